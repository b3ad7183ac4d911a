/* Antialiased separable resize of RGB rows that arrive one after the other, fused with crop, flips and a table per channel.
 *
 * The arithmetic is in integers, in the way of one of two libraries, bit for bit: along rows, rounded to 8 bits, then along columns,
 * rounded to 8 bits, or the other way round. Nothing depends on the order of additions: every implementation gives one answer. */
#ifndef PIPEFIX_RESAMPLE_H
#define PIPEFIX_RESAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "fault.h"

enum { PF_BILINEAR = 0, PF_BICUBIC = 1 };

/* PF_TORCH: weights in 16 bits with as many fractional bits as the largest allows (torch's resize of uint8 tensors).
 * PF_PILLOW: weights with 22 fractional bits (Pillow's resize). */
enum { PF_TORCH = 0, PF_PILLOW = 1 };

enum { PF_UINT8 = 0, PF_FLOAT32 = 1 };

/* Weights of one axis. Planes: PF_PILLOW's 22 bits are kept as two parts of 11. */
typedef struct {
    int count;       /* outputs */
    int taps;        /* weights an output, padded with zeros to an even number, 4 at least */
    int planes;      /* 1 or 2 */
    int shift;       /* fractional bits */
    int low, high;   /* inputs that are needed: [low, high) */
    int32_t *first;  /* count: first input of each output */
    int32_t *used;   /* count: weights that are not padding */
    int16_t *weight; /* planes x count x taps */
} pf_axis;

/* What is asked for along one axis. */
typedef struct {
    double begin;  /* where the box begins, from its first whole input: 0 unless the input was scaled while decoding */
    double length; /* of the box, in inputs */
    int inputs;    /* whole inputs that the box touches */
    int outputs;   /* the box is resized to so many ... */
    int from;      /* ... of which those from here ... */
    int count;     /* ... and so many are wanted, */
    int mirrored;  /* last one first */
} pf_span;

/* Where the answer goes; strides in elements. */
typedef struct {
    void *data;
    int kind; /* PF_UINT8 or PF_FLOAT32 */
    ptrdiff_t channel, row, column;
    const float *table; /* 3 x 256, for PF_FLOAT32 */
    /* The same as arithmetic, 3 x (factor, mean, deviation), or NULL: ((x * or / factor) - mean) / deviation, where that is exact. */
    const float *ramp;
    int ramp_divides;
    int upside_down;
} pf_target;

/* Memory of one call. */
typedef struct {
    void *blocks[16];
    int count;
} pf_arena;

typedef struct pf_loops pf_loops;

typedef struct {
    pf_axis across, down;
    pf_target target;
    const pf_loops *loops;
    int down_first; /* along columns first */
    uint8_t *ring;  /* the last rows, as the pass along columns wants them: planes after that along rows, else RGB as they came */
    int ring_rows;
    int stride; /* bytes of a row in the ring */
    int plane;  /* bytes of a channel in a planar row */
    int seen;  /* input rows that were handed in, counted from down.low */
    int made;  /* output rows that were written */
    uint8_t *between; /* a row between the passes, where columns come first */
    uint8_t *line;    /* one output row, planar */
    const uint8_t **taps; /* the rows that one output row is made of */
    const uint8_t *waiting; /* a row that waits for its neighbour, so that two are worked on together */
} pf_resampler;

/* A block that is aligned for any vector; NULL where there is none. */
void *pf_take(pf_arena *arena, size_t bytes, pf_fault *fault);
void pf_let_go(pf_arena *arena);
int pf_axis_make(pf_axis *axis, pf_arena *arena, const pf_span *span, int filter, int arithmetic, pf_fault *fault);

/* `across` and `down` must have been made. Rows are read up to PF_SLACK bytes beyond their end. */
#define PF_SLACK 64
int pf_resampler_start(pf_resampler *self, pf_arena *arena, pf_fault *fault);
/* Hand in the next row, from input column across.low on. `row` must stay as it is until `pf_resampler_idle`. */
void pf_resampler_row(pf_resampler *self, const uint8_t *row);
/* Work off a row that waits. */
void pf_resampler_idle(pf_resampler *self);

/* "avx2" or "baseline". */
const char *pf_loops_name(void);
/* Use the loops of that name from now on, where this processor has them. Returns whether it has. */
int pf_loops_choose(const char *name);

#endif
