/* RGB to HSV, the hue turned, and back, each rounded to bytes as Pillow rounds it. What depends on two bytes is looked up. */
#include <math.h>

#include "colour.h"

/* Which channel is the largest (the first of several), and which the smallest. */
enum { R_G, R_B, G_B, G_R, B_R, B_G, CASES };

static uint8_t hue[CASES][256][256];  /* by largest - smallest, and largest - the one between */
static uint8_t saturation[256][256];  /* by largest - smallest, and largest */
static uint8_t lowest[256][256];      /* of the way back, by saturation and value */
static uint8_t order[256][3];         /* by hue: which of value, lowest, falling and rising goes to each channel */
static float part[256], colourful[256]; /* by hue: of its sixth; by saturation: from 0 to 1 */

static uint8_t byte(int value) { return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value); }

static uint8_t hue_of(int kind, float between) {
    float h = 0;
    switch (kind) {
    case R_G: h = between - 1.0f; break;
    case R_B: h = 1.0f - between; break;
    case G_B: h = (float)(2.0 + between - 1.0); break;
    case G_R: h = (float)(2.0 + 1.0 - between); break;
    case B_R: h = (float)(4.0 + between - 1.0); break;
    case B_G: h = (float)(4.0 + 1.0 - between); break;
    }
    h = (float)fmod(h / 6.0 + 1.0, 1.0);
    return byte((int)(h * 255.0));
}

/* Not below zero, and never within rounding of half an integer: held against Pillow for every hue, saturation and value. */
static inline uint8_t rounded(double value) { return (uint8_t)(int)(value + 0.5); }

void pf_hue_prepare(void) {
    static const uint8_t orders[6][3] = {{0, 3, 1}, {2, 0, 1}, {1, 0, 3}, {1, 2, 0}, {3, 1, 0}, {0, 1, 2}};
    static int ready;
    if (ready) return;
    for (int range = 1; range < 256; range++)
        for (int k = 0; k < 256; k++) {
            for (int kind = 0; k <= range && kind < CASES; kind++) hue[kind][range][k] = hue_of(kind, (float)k / (float)range);
            if (k >= range) saturation[range][k] = byte((int)((float)range / (float)k * 255.0));
        }
    for (int k = 0; k < 256; k++) {
        double sixth = (float)k * 6.0 / 255.0;
        part[k] = (float)(sixth - (float)(int)sixth);
        colourful[k] = (float)((float)k / 255.0);
        for (int c = 0; c < 3; c++) order[k][c] = orders[(int)sixth % 6][c];
        for (int value = 0; value < 256; value++) lowest[k][value] = rounded(value * (1.0 - colourful[k]));
    }
    ready = 1;
}

void pf_hue_turned(const pf_picture *picture, uint8_t shift) {
    /* By red >= green, green >= blue, red >= blue; two of the eight cannot be. */
    static const uint8_t kinds[8] = {B_R, B_G, G_R, 0, 0, R_G, G_B, R_B};
    const uint8_t *in = picture->in;
    uint8_t *out = picture->out;
    const uint8_t *end = in + 3 * (size_t)picture->width * picture->height;
    for (; in < end; in += 3, out += 3) {
        int r = in[0], g = in[1], b = in[2];
        int high = r > g ? r : g, low = r > g ? g : r;
        int most = high > b ? high : b, least = low < b ? low : b, range = most - least;
        int h = (uint8_t)(hue[kinds[(r >= g) | (g >= b) << 1 | (r >= b) << 2]][range][2 * most + least - r - g - b] + shift);
        int s = saturation[range][most];
        float f = part[h], fs = colourful[s];
        uint8_t value[4] = {(uint8_t)most, lowest[s][most], rounded(most * (1.0 - fs * f)), rounded(most * (1.0 - fs * (1.0 - f)))};
        for (int c = 0; c < 3; c++) out[c] = value[order[h][c]];
    }
}
