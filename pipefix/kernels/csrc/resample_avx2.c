/* The hot loops for processors with AVX2, chosen when the program runs: nothing here is compiled for more than it asks for. */
#include "resample_loops.h"

#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))
#define INLINE static inline __attribute__((always_inline)) AVX2

INLINE __m256i two_weights(const int16_t *weight) {
    int32_t both;
    memcpy(&both, weight, sizeof both);
    return _mm256_set1_epi32(both);
}

INLINE __m256i rounded(__m256i high, __m256i low, __m256i half, __m128i shift, int planes) {
    __m256i sum = planes == 2 ? _mm256_add_epi32(_mm256_slli_epi32(high, 11), low) : low;
    return _mm256_sra_epi32(_mm256_add_epi32(sum, half), shift);
}

/* A 256-bit register holds the same columns of two rows, one in each half. */
INLINE void across_planes(const pf_axis *axis, const uint8_t *one, const uint8_t *two, uint8_t *one_out, uint8_t *two_out, int plane,
                          int planes, const int taps) {
    const __m256i front = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
    const __m256i back = _mm256_broadcastsi128_si256(_mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
    const __m256i apart = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m256i half = _mm256_set1_epi32(1 << (axis->shift - 1));
    const __m128i shift = _mm_cvtsi32_si128(axis->shift);
    const int count = axis->count;
    const size_t part = (size_t)count * taps;
    for (int x = 0; x < count; x += 4) {
        __m256i four[4];
        for (int k = 0; k < 4; k++) {
            int at = x + k < count ? x + k : count - 1;
            const int16_t *weight = axis->weight + (size_t)at * taps;
            size_t offset = (size_t)(axis->first[at] - axis->low) * 3;
            __m256i low = _mm256_setzero_si256(), high = _mm256_setzero_si256();
            for (int tap = 0; tap < taps; tap += 4, offset += 12) {
                int more = tap + 2 < taps; /* the last step may be of two */
                __m256i pixels = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(one + offset))),
                                                         _mm_loadu_si128((const __m128i *)(two + offset)), 1);
                __m256i first = _mm256_shuffle_epi8(pixels, front), second = _mm256_shuffle_epi8(pixels, back);
                low = _mm256_add_epi32(low, _mm256_madd_epi16(first, two_weights(weight + tap)));
                if (more) low = _mm256_add_epi32(low, _mm256_madd_epi16(second, two_weights(weight + tap + 2)));
                if (planes == 2) {
                    high = _mm256_add_epi32(high, _mm256_madd_epi16(first, two_weights(weight + part + tap)));
                    if (more) high = _mm256_add_epi32(high, _mm256_madd_epi16(second, two_weights(weight + part + tap + 2)));
                }
            }
            four[k] = rounded(high, low, half, shift, planes);
        }
        __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(four[0], four[1]), _mm256_packs_epi32(four[2], four[3]));
        bytes = _mm256_shuffle_epi8(bytes, apart);
        __m128i upper = _mm256_castsi256_si128(bytes), lower = _mm256_extracti128_si256(bytes, 1);
        int32_t red = _mm_cvtsi128_si32(upper), green = _mm_extract_epi32(upper, 1), blue = _mm_extract_epi32(upper, 2);
        memcpy(one_out + x, &red, 4), memcpy(one_out + plane + x, &green, 4), memcpy(one_out + 2 * (size_t)plane + x, &blue, 4);
        red = _mm_cvtsi128_si32(lower), green = _mm_extract_epi32(lower, 1), blue = _mm_extract_epi32(lower, 2);
        memcpy(two_out + x, &red, 4), memcpy(two_out + plane + x, &green, 4), memcpy(two_out + 2 * (size_t)plane + x, &blue, 4);
    }
}

AVX2 static void across(const pf_axis *axis, const uint8_t *one, const uint8_t *two, uint8_t *one_out, uint8_t *two_out, int plane) {
    /* Four and six are what a picture takes that shrinks to between a whole and a half. */
    if (axis->planes == 2 && axis->taps == 4)
        across_planes(axis, one, two, one_out, two_out, plane, 2, 4);
    else if (axis->planes == 2)
        across_planes(axis, one, two, one_out, two_out, plane, 2, axis->taps);
    else if (axis->taps == 4)
        across_planes(axis, one, two, one_out, two_out, plane, 1, 4);
    else if (axis->taps == 6)
        across_planes(axis, one, two, one_out, two_out, plane, 1, 6);
    else
        across_planes(axis, one, two, one_out, two_out, plane, 1, axis->taps);
}

/* The bytes of two rows side by side, widened: 16 columns in two registers. */
INLINE void pair(const uint8_t *one, const uint8_t *two, __m256i *left, __m256i *right) {
    __m128i upper = _mm_loadu_si128((const __m128i *)one), lower = _mm_loadu_si128((const __m128i *)two);
    *left = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(upper, lower));
    *right = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(upper, lower));
}

INLINE void down_planes(const pf_axis *axis, int index, const uint8_t *const *rows, uint8_t *out, int bytes, int planes) {
    const int16_t *weight = axis->weight + (size_t)index * axis->taps;
    const size_t part = (size_t)axis->count * axis->taps;
    const __m256i half = _mm256_set1_epi32(1 << (axis->shift - 1));
    const __m128i shift = _mm_cvtsi32_si128(axis->shift);
    const int taps = (axis->used[index] + 1) & ~1;
    for (int x = 0; x < bytes; x += 16) {
        __m256i low[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()}, high[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        for (int tap = 0; tap < taps; tap += 2) {
            __m256i left, right, both = two_weights(weight + tap);
            pair(rows[tap] + x, rows[tap + 1] + x, &left, &right);
            low[0] = _mm256_add_epi32(low[0], _mm256_madd_epi16(left, both));
            low[1] = _mm256_add_epi32(low[1], _mm256_madd_epi16(right, both));
            if (planes == 2) {
                both = two_weights(weight + part + tap);
                high[0] = _mm256_add_epi32(high[0], _mm256_madd_epi16(left, both));
                high[1] = _mm256_add_epi32(high[1], _mm256_madd_epi16(right, both));
            }
        }
        __m256i left = rounded(high[0], low[0], half, shift, planes), right = rounded(high[1], low[1], half, shift, planes);
        __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(left, right), 0xD8);
        __m128i sixteen = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
        _mm_storeu_si128((__m128i *)(out + x), sixteen);
    }
}

AVX2 static void down(const pf_axis *axis, int index, const uint8_t *const *rows, uint8_t *out, int bytes) {
    if (axis->planes == 2)
        down_planes(axis, index, rows, out, bytes, 2);
    else
        down_planes(axis, index, rows, out, bytes, 1);
}

AVX2 static void climb(const float *ramp, int divides, const uint8_t *in, float *out, int count) {
    const __m256 factor = _mm256_set1_ps(ramp[0]), mean = _mm256_set1_ps(ramp[1]), deviation = _mm256_set1_ps(ramp[2]);
    int x = 0;
    for (; x + 8 <= count; x += 8) {
        __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(in + x))));
        value = divides ? _mm256_div_ps(value, factor) : _mm256_mul_ps(value, factor);
        _mm256_storeu_ps(out + x, _mm256_div_ps(_mm256_sub_ps(value, mean), deviation));
    }
    if (x < count) pf_loops_baseline.climb(ramp, divides, in + x, out + x, count - x);
}

static const pf_loops loops = {"avx2", across, down, climb};

const pf_loops *pf_loops_avx2(void) { return __builtin_cpu_supports("avx2") ? &loops : NULL; }

#else

const pf_loops *pf_loops_avx2(void) { return NULL; }

#endif
