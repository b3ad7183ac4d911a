/* The hot loops, one table of them for each instruction set. */
#ifndef PIPEFIX_RESAMPLE_LOOPS_H
#define PIPEFIX_RESAMPLE_LOOPS_H

#include "resample.h"

struct pf_loops {
    const char *name;
    /* Two rows of RGB pixels to two rows of planes. */
    void (*across)(const pf_axis *axis, const uint8_t *one, const uint8_t *two, uint8_t *one_out, uint8_t *two_out, int plane);
    /* `bytes` columns of axis->taps rows to one, for output `index`. */
    void (*down)(const pf_axis *axis, int index, const uint8_t *const *rows, uint8_t *out, int bytes);
    /* One row of a channel from bytes to floats, by arithmetic. */
    void (*climb)(const float *ramp, int divides, const uint8_t *in, float *out, int count);
};

extern const pf_loops pf_loops_baseline;
/* NULL where this processor lacks it. */
const pf_loops *pf_loops_avx2(void);

#endif
