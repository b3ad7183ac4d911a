#define _POSIX_C_SOURCE 200809L
#include "resample.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "resample_loops.h"

int pf_say(pf_fault *fault, int code, const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(fault->text, sizeof fault->text, format, values);
    va_end(values);
    return fault->code = code;
}

void *pf_take(pf_arena *arena, size_t bytes, pf_fault *fault) {
    void *memory = NULL;
    if (arena->count == sizeof arena->blocks / sizeof *arena->blocks || posix_memalign(&memory, 64, bytes)) {
        pf_say(fault, PF_NO_MEMORY, "%zu bytes are not to be had", bytes);
        return NULL;
    }
    return arena->blocks[arena->count++] = memory;
}

void pf_let_go(pf_arena *arena) {
    while (arena->count) free(arena->blocks[--arena->count]);
}

/* ---- loops of this processor ---- */

static const pf_loops *chosen;

static const pf_loops *loops_in_use(void) {
    if (!chosen) {
        const pf_loops *fast = pf_loops_avx2();
        chosen = fast ? fast : &pf_loops_baseline;
    }
    return chosen;
}

const char *pf_loops_name(void) { return loops_in_use()->name; }

int pf_loops_choose(const char *name) {
    const pf_loops *all[] = {&pf_loops_baseline, pf_loops_avx2()};
    for (int k = 0; k < 2; k++)
        if (all[k] && !strcmp(all[k]->name, name)) {
            chosen = all[k];
            return 1;
        }
    return 0;
}

/* ---- weights ---- */

static double bilinear(double x) {
    x = x < 0 ? -x : x;
    return x < 1 ? 1 - x : 0;
}

static double bicubic(double x) {
    const double a = -0.5; /* both libraries' choice when they antialias */
    x = x < 0 ? -x : x;
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

typedef struct {
    int first, used;
} reach;

/* The inputs that output `index` of the whole resized row is made of, and their weights, which add up to one. */
static reach weigh(const pf_span *span, int filter, int index, double *weight) {
    double scale = span->length / span->outputs, stretch = scale < 1 ? 1 : scale, shrink = 1 / stretch;
    double support = (filter == PF_BICUBIC ? 2.0 : 1.0) * stretch, centre = span->begin + (index + 0.5) * scale, total = 0;
    reach of;
    of.first = (int)(centre - support + 0.5);
    if (of.first < 0) of.first = 0;
    int end = (int)(centre + support + 0.5);
    of.used = (end > span->inputs ? span->inputs : end) - of.first;
    for (int tap = 0; tap < of.used; tap++) {
        double x = (tap + of.first - centre + 0.5) * shrink;
        weight[tap] = filter == PF_BICUBIC ? bicubic(x) : bilinear(x);
        total += weight[tap];
    }
    if (total != 0)
        for (int tap = 0; tap < of.used; tap++) weight[tap] /= total;
    return of;
}

/* As many fractional bits as leave the largest weight below 2^15. */
static int torch_shift(double largest) {
    int shift = 0;
    for (; shift < 22; shift++)
        if ((int)(0.5 + largest * (1 << (shift + 1))) >= 1 << 15) break;
    return shift;
}

static int whole(double weight, int shift) { return (int)((weight < 0 ? -0.5 : 0.5) + weight * (1 << shift)); }

static int widest(const pf_span *span, int filter) {
    double scale = span->length / span->outputs;
    double taps = ceil((filter == PF_BICUBIC ? 2.0 : 1.0) * (scale < 1 ? 1 : scale)) * 2 + 1;
    return taps < span->inputs ? (int)taps : span->inputs;
}

static void store(pf_axis *axis, int at, const double *weight) {
    int16_t *low = axis->weight + (size_t)at * axis->taps, *high = low + (size_t)axis->count * axis->taps;
    memset(low, 0, sizeof *low * axis->taps);
    if (axis->planes == 2) memset(high, 0, sizeof *high * axis->taps);
    for (int tap = 0; tap < axis->used[at]; tap++) {
        int value = whole(weight[tap], axis->shift);
        low[tap] = (int16_t)(axis->planes == 2 ? value & 2047 : value);
        if (axis->planes == 2) high[tap] = (int16_t)((value - (value & 2047)) / 2048);
    }
}

/* The largest weight of the whole resized row: the wanted ones are known, the others are weighed for it. */
static double largest_of(const pf_span *span, int filter, const double *known, const pf_axis *axis, int most, double *spare) {
    double largest = 0;
    for (int index = 0; index < span->outputs; index++) {
        int k = index - span->from, wanted = k >= 0 && k < span->count;
        const double *weight = wanted ? known + (size_t)k * most : spare;
        int used = wanted ? axis->used[span->mirrored ? span->count - 1 - k : k] : weigh(span, filter, index, spare).used;
        for (int tap = 0; tap < used; tap++) largest = weight[tap] > largest ? weight[tap] : largest;
    }
    return largest;
}

int pf_axis_make(pf_axis *axis, pf_arena *arena, const pf_span *span, int filter, int arithmetic, pf_fault *fault) {
    if (span->inputs < 1 || span->outputs < 1 || span->count < 1 || span->from < 0 || span->from > span->outputs - span->count)
        return pf_say(fault, PF_BAD_REQUEST, "%d inputs cannot become %d outputs, of which %d from %d on are wanted", span->inputs,
                      span->outputs, span->count, span->from);
    int most = widest(span, filter) + 1, count = span->count;
    axis->count = count;
    axis->planes = arithmetic == PF_PILLOW ? 2 : 1;
    axis->first = pf_take(arena, sizeof *axis->first * count, fault);
    axis->used = pf_take(arena, sizeof *axis->used * count, fault);
    double *weight = pf_take(arena, sizeof *weight * most * (count + 1), fault);
    if (!axis->first || !axis->used || !weight) return fault->code;
    axis->low = span->inputs, axis->high = 0, axis->taps = 4;
    for (int k = 0; k < count; k++) {
        int at = span->mirrored ? count - 1 - k : k;
        reach of = weigh(span, filter, span->from + k, weight + (size_t)k * most);
        axis->first[at] = of.first, axis->used[at] = of.used;
        if (of.first < axis->low) axis->low = of.first;
        if (of.first + of.used > axis->high) axis->high = of.first + of.used;
        if (of.used > axis->taps) axis->taps = (of.used + 1) & ~1;
    }
    axis->weight = pf_take(arena, sizeof *axis->weight * axis->planes * count * axis->taps, fault);
    if (!axis->weight) return fault->code;
    axis->shift = 22;
    if (arithmetic == PF_TORCH)
        axis->shift = torch_shift(largest_of(span, filter, weight, axis, most, weight + (size_t)count * most));
    for (int k = 0; k < count; k++) store(axis, span->mirrored ? count - 1 - k : k, weight + (size_t)k * most);
    return PF_FINE;
}

/* Padding weights must not reach beyond the last input: such outputs begin earlier, with zeros in front. */
static void keep_inside(pf_axis *axis) {
    for (int k = 0; k < axis->count; k++) {
        int over = axis->first[k] + axis->taps - axis->high, room = axis->first[k] - axis->low;
        int by = over < room ? over : room;
        if (by <= 0) continue;
        if (by > axis->taps - axis->used[k]) by = axis->taps - axis->used[k];
        for (int part = 0; part < axis->planes; part++) {
            int16_t *weight = axis->weight + ((size_t)part * axis->count + k) * axis->taps;
            memmove(weight + by, weight, sizeof *weight * axis->used[k]);
            memset(weight, 0, sizeof *weight * by);
        }
        axis->first[k] -= by, axis->used[k] += by;
    }
}

/* ---- rows ---- */

int pf_resampler_start(pf_resampler *self, pf_arena *arena, pf_fault *fault) {
    keep_inside(&self->across);
    self->loops = loops_in_use();
    self->plane = (self->across.count + 31) & ~15;
    self->stride = self->down_first ? (3 * (self->across.high - self->across.low) + PF_SLACK + 15) & ~15 : 3 * self->plane;
    self->ring_rows = self->down.taps + 2;
    self->ring = pf_take(arena, (size_t)self->ring_rows * self->stride, fault);
    self->between = pf_take(arena, self->stride, fault);
    self->line = pf_take(arena, 3 * (size_t)self->plane, fault);
    self->taps = pf_take(arena, sizeof *self->taps * (self->down.taps + 2), fault);
    if (!self->ring || !self->between || !self->line || !self->taps) return fault->code;
    /* What lies behind a row's end is computed with, though never handed out. */
    memset(self->ring, 0, (size_t)self->ring_rows * self->stride);
    self->seen = self->made = 0;
    self->waiting = NULL;
    return PF_FINE;
}

static uint8_t *slot(const pf_resampler *self, int row) {
    return self->ring + (size_t)(row % self->ring_rows) * self->stride;
}

static void hand_out(const pf_resampler *self, int made) {
    const pf_target *to = &self->target;
    int width = self->across.count, row = to->upside_down ? self->down.count - 1 - made : made;
    for (int c = 0; c < 3; c++) {
        const uint8_t *in = self->line + (size_t)c * self->plane;
        ptrdiff_t begin = c * to->channel + row * to->row;
        if (to->kind == PF_UINT8) {
            uint8_t *out = (uint8_t *)to->data + begin;
            if (to->column == 1)
                memcpy(out, in, width);
            else
                for (int x = 0; x < width; x++) out[x * to->column] = in[x];
            continue;
        }
        float *out = (float *)to->data + begin;
        const float *table = to->table + 256 * c;
        if (to->column == 1 && to->ramp)
            self->loops->climb(to->ramp + 3 * c, to->ramp_divides, in, out, width);
        else if (to->column == 1) /* a gathering load is no quicker than eight plain ones */
            for (int x = 0; x < width; x++) out[x] = table[in[x]];
        else
            for (int x = 0; x < width; x++) out[x * to->column] = table[in[x]];
    }
}

static void make_rows(pf_resampler *self) {
    const pf_axis *down = &self->down;
    for (; self->made < down->count; self->made++) {
        int first = down->first[self->made] - down->low, used = down->used[self->made];
        if (first + used > self->seen) return;
        for (int tap = 0; tap < used; tap++) self->taps[tap] = slot(self, first + tap);
        self->taps[used] = self->taps[used - 1]; /* beside an odd last one, with no weight */
        self->loops->down(down, self->made, self->taps, self->down_first ? self->between : self->line, self->stride);
        if (self->down_first) self->loops->across(&self->across, self->between, self->between, self->line, self->line, self->plane);
        hand_out(self, self->made);
    }
}

static void take_in(pf_resampler *self, const uint8_t *one, const uint8_t *two) {
    uint8_t *first = slot(self, self->seen);
    uint8_t *second = two ? slot(self, self->seen + 1) : first;
    if (self->down_first)
        memcpy(first, one, 3 * (size_t)(self->across.high - self->across.low));
    else
        self->loops->across(&self->across, one, two ? two : one, first, second, self->plane);
    self->seen += two ? 2 : 1;
    make_rows(self);
}

void pf_resampler_row(pf_resampler *self, const uint8_t *row) {
    if (self->down_first)
        take_in(self, row, NULL);
    else if (!self->waiting) {
        self->waiting = row;
    } else {
        const uint8_t *one = self->waiting;
        self->waiting = NULL;
        take_in(self, one, row);
    }
}

void pf_resampler_idle(pf_resampler *self) {
    const uint8_t *one = self->waiting;
    self->waiting = NULL;
    if (one) take_in(self, one, NULL);
}
