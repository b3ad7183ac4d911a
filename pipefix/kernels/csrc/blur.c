/* A Gaussian blur that gives the bytes of a convolution in two dimensions at the price of two in one.
 *
 * Both are computed with rounding errors, whose bound is known: where rows and then columns come out further than that from half an
 * integer, both round to the same byte. The few other values are computed as torch computes them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "colour.h"

#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)
#define FUSED __attribute__((target("avx2,fma")))
static int fuses(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#elif defined(__aarch64__)
#define FUSED
static int fuses(void) { return 1; }
#else
#define FUSED
static int fuses(void) { return 0; }
#endif

enum { BLOCK = 64, GROUP = 8 };

typedef struct {
    const float *weight;
    float *across, *down; /* the same along rows and along columns */
    float *padded, *between;
    int rows, columns;
    int width;  /* of a row of values in the padded picture */
    int values; /* of a row of the outcome */
    float doubt;
} blur;

static int reflected(int place, int count) { return place < 0 ? -place : place >= count ? 2 * count - 2 - place : place; }

static void pad(const blur *self, const pf_picture *picture) {
    int left = self->columns / 2, above = self->rows / 2;
    for (int y = 0; y < picture->height + self->rows - 1; y++) {
        const uint8_t *in = picture->in + 3 * (size_t)picture->width * reflected(y - above, picture->height);
        float *out = self->padded + (size_t)self->width * y;
        for (int x = 0; x < left; x++)
            for (int c = 0; c < 3; c++) out[3 * x + c] = in[3 * reflected(x - left, picture->width) + c];
        for (int k = 0; k < self->values; k++) out[3 * left + k] = in[k];
        for (int x = left + picture->width; x < picture->width + self->columns - 1; x++)
            for (int c = 0; c < 3; c++) out[3 * x + c] = in[3 * reflected(x - left, picture->width) + c];
    }
}

/* out[k] = the sum of weight[tap] * in[k + tap * step] */
FUSED static void along(const float *in, size_t step, const float *weight, int taps, float *out, int count) {
    int k = 0;
    for (; k + BLOCK <= count; k += BLOCK) {
        float sum[BLOCK] = {0};
        for (int tap = 0; tap < taps; tap++) {
            const float *from = in + k + tap * step;
            for (int n = 0; n < BLOCK; n++) sum[n] += weight[tap] * from[n];
        }
        memcpy(out + k, sum, sizeof sum);
    }
    for (; k < count; k++) {
        float sum = 0;
        for (int tap = 0; tap < taps; tap++) sum += weight[tap] * in[k + tap * step];
        out[k] = sum;
    }
}

/* As torch adds them up: several values beside each other, as each addition waits for the one before. */
FUSED static void as_torch(const blur *self, const float *const *from, int count, float *sum) {
    const float *weight = self->weight;
    for (int n = 0; n < GROUP; n++) sum[n] = 0;
    for (int i = 0; i < self->rows; i++)
        for (int j = 0; j < self->columns; j++, weight++) {
            size_t place = (size_t)self->width * i + 3 * (size_t)j;
            for (int n = 0; n < GROUP; n++) sum[n] = fmaf(from[n < count ? n : 0][place], *weight, sum[n]);
        }
}

FUSED static void settle(const blur *self, int y, const int *which, int count, uint8_t *out) {
    const float *from[GROUP];
    float sum[GROUP];
    for (int n = 0; n < count; n++) from[n] = self->padded + (size_t)self->width * y + which[n];
    as_torch(self, from, count, sum);
    for (int n = 0; n < count; n++) out[which[n]] = (uint8_t)rintf(sum[n]);
}

FUSED static void blur_rows(const blur *self, const pf_picture *picture) {
    for (int y = 0; y < picture->height + self->rows - 1; y++)
        along(self->padded + (size_t)self->width * y, 3, self->across, self->columns, self->between + (size_t)self->values * y,
              self->values);
    float *line = self->between + (size_t)self->values * (picture->height + self->rows - 1);
    for (int y = 0; y < picture->height; y++) {
        uint8_t *out = picture->out + (size_t)self->values * y;
        int which[GROUP], count = 0;
        along(self->between + (size_t)self->values * y, self->values, self->down, self->rows, line, self->values);
        for (int k = 0; k < self->values; k++) out[k] = (uint8_t)rintf(line[k]);
        for (int k = 0; k < self->values; k++) {
            if (0.5f - fabsf(line[k] - out[k]) > self->doubt) continue;
            which[count++] = k;
            if (count == GROUP) settle(self, y, which, count, out), count = 0;
        }
        if (count) settle(self, y, which, count, out);
    }
}

int pf_blurred(const pf_picture *picture, const float *weight, int rows, int columns) {
    if (!fuses()) return -1;
    blur self = {.weight = weight, .rows = rows, .columns = columns};
    self.values = 3 * picture->width, self.width = 3 * (picture->width + columns - 1);
    size_t high = (size_t)picture->height + rows - 1;
    size_t padded = high * self.width, between = (high + 1) * self.values;
    float *memory = malloc((padded + between + rows + columns) * sizeof *memory);
    if (!memory) return 0;
    self.padded = memory, self.between = memory + padded, self.across = self.between + between, self.down = self.across + columns;
    /* Additions and products of both ways, each wrong by half a unit in the last place of 256 at most, and weights' own rounding. */
    self.doubt = (float)(2 * rows * columns + 4 * (rows + columns)) * 256.0f / (1 << 24);
    for (int j = 0; j < columns; j++) {
        double sum = 0;
        for (int i = 0; i < rows; i++) sum += weight[i * columns + j];
        self.across[j] = (float)sum;
    }
    for (int i = 0; i < rows; i++) {
        double sum = 0;
        for (int j = 0; j < columns; j++) sum += weight[i * columns + j];
        self.down[i] = (float)sum;
    }
    pad(&self, picture);
    blur_rows(&self, picture);
    free(memory);
    return 1;
}
