/* JPEG through libjpeg-turbo: only the wanted rows and columns, row by row, and never an exception or a message. */
#ifndef PIPEFIX_JPEG_H
#define PIPEFIX_JPEG_H

#include "fault.h"
#include "resample.h"

typedef struct {
    int x, y, width, height;
} pf_box;

/* What to make of a picture: the box, resized to full_width x full_height, of which a window is wanted. */
typedef struct {
    pf_box box;
    int full_width, full_height;
    pf_box window;
    int mirrored, upside_down;
    int filter, arithmetic, down_first;
    int coarsest; /* 1, 2, 4 or 8: the decoder may scale down by as much, where `sharp` allows it */
    double sharp; /* outputs are made of at least so many scaled inputs along each axis */
} pf_request;

/* Of an encoded picture. */
typedef struct {
    const uint8_t *at;
    size_t size;
} pf_bytes;

/* RGB rows, `stride` bytes apart. */
typedef struct {
    const uint8_t *at;
    int width, height;
    ptrdiff_t stride;
} pf_pixels;

/* Everything that was asked for, straight into the target. */
int pf_jpeg_resampled(const pf_bytes *data, const pf_request *request, const pf_target *target, pf_fault *fault);
/* The box as it is, as RGB rows without gaps. */
int pf_jpeg_region(const pf_bytes *data, const pf_box *box, uint8_t *out, pf_fault *fault);
/* The same as pf_jpeg_resampled from pixels. */
int pf_pixels_resampled(const pf_pixels *pixels, const pf_request *request, const pf_target *target, pf_fault *fault);

#endif
