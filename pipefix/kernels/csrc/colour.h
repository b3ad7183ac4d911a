/* Operations on whole pictures of RGB bytes that take longest in training's lists, to the bit as Pillow or torch has them. */
#ifndef PIPEFIX_COLOUR_H
#define PIPEFIX_COLOUR_H

#include <stddef.h>
#include <stdint.h>

/* Height x width x 3, rows one after the other. */
typedef struct {
    const uint8_t *in;
    uint8_t *out;
    int width, height;
} pf_picture;

/* The hue of every pixel turned by `shift` of 256 parts, as Pillow does by way of HSV. Called once before, by one thread. */
void pf_hue_prepare(void);
void pf_hue_turned(const pf_picture *picture, uint8_t shift);

/* Correlated with `weight` (rows x columns, both odd, less than half of which reaches beyond any side), edges reflected, as torch
 * does it in single precision: products added one after the other, row by row, each in one rounding. Values from 0 to 255.
 * Returns 0 where there is no memory, -1 where this processor does not multiply and add in one rounding. */
int pf_blurred(const pf_picture *picture, const float *weight, int rows, int columns);

#endif
