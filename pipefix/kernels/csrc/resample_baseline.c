/* The hot loops in plain C: the definition that the others must equal. */
#include "resample_loops.h"

static inline uint8_t clipped(int value) { return value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value; }

static inline int rounded(int32_t high, int32_t low, const pf_axis *axis) {
    int64_t sum = axis->planes == 2 ? (int64_t)high * 2048 + low : low;
    return (int)((sum + ((int64_t)1 << (axis->shift - 1))) >> axis->shift);
}

static void across_one(const pf_axis *axis, const uint8_t *row, uint8_t *out, int plane) {
    const int16_t *low = axis->weight, *high = axis->weight + (size_t)axis->count * axis->taps;
    for (int x = 0; x < axis->count; x++, low += axis->taps, high += axis->taps) {
        const uint8_t *pixel = row + (size_t)(axis->first[x] - axis->low) * 3;
        int32_t sums[2][3] = {{0}};
        for (int tap = 0; tap < axis->used[x]; tap++, pixel += 3)
            for (int c = 0; c < 3; c++) {
                sums[0][c] += low[tap] * pixel[c];
                if (axis->planes == 2) sums[1][c] += high[tap] * pixel[c];
            }
        for (int c = 0; c < 3; c++) out[(size_t)c * plane + x] = clipped(rounded(sums[1][c], sums[0][c], axis));
    }
}

static void across(const pf_axis *axis, const uint8_t *one, const uint8_t *two, uint8_t *one_out, uint8_t *two_out, int plane) {
    across_one(axis, one, one_out, plane);
    if (two_out != one_out) across_one(axis, two, two_out, plane);
}

enum { BLOCK = 64 };

static void down(const pf_axis *axis, int index, const uint8_t *const *rows, uint8_t *out, int bytes) {
    const int16_t *low = axis->weight + (size_t)index * axis->taps;
    const int16_t *high = low + (size_t)axis->count * axis->taps;
    for (int begin = 0; begin < bytes; begin += BLOCK) {
        int32_t lows[BLOCK] = {0}, highs[BLOCK] = {0};
        int width = bytes - begin < BLOCK ? bytes - begin : BLOCK;
        for (int tap = 0; tap < axis->used[index]; tap++) {
            const uint8_t *row = rows[tap] + begin;
            for (int x = 0; x < width; x++) lows[x] += low[tap] * row[x];
            if (axis->planes == 2)
                for (int x = 0; x < width; x++) highs[x] += high[tap] * row[x];
        }
        for (int x = 0; x < width; x++) out[begin + x] = clipped(rounded(highs[x], lows[x], axis));
    }
}

static void climb(const float *ramp, int divides, const uint8_t *in, float *out, int count) {
    float factor = ramp[0], mean = ramp[1], deviation = ramp[2];
    if (divides)
        for (int x = 0; x < count; x++) out[x] = ((float)in[x] / factor - mean) / deviation;
    else
        for (int x = 0; x < count; x++) out[x] = ((float)in[x] * factor - mean) / deviation;
}

const pf_loops pf_loops_baseline = {"baseline", across, down, climb};
