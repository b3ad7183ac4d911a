#include "jpeg.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h> /* before jerror.h, which needs it */
#include <jerror.h>

/* More pixels than that Pillow refuses as a decompression bomb (twice its MAX_IMAGE_PIXELS). */
#define MOST_PIXELS 178956970.0
/* A progressive file of a few bytes may ask for any number of passes over the whole picture: at most so many, over so many pixels
 * in all. Usual files make about ten passes. */
#define MOST_SCANS 500
#define MOST_VISITS 2e9
/* Rows that are read together. libjpeg answers with at most as many as a block row has. */
#define ROWS 16
/* Columns beside the wanted ones: where a region ends, chroma has no neighbour to be interpolated with. */
#define BESIDE 2

typedef struct {
    struct jpeg_error_mgr base;
    jmp_buf out;
    pf_fault *fault;
} errors;

/* Of one picture: libjpeg keeps tables from one picture to the next, so that no two of them share a decoder. */
typedef struct {
    struct jpeg_decompress_struct jpeg;
    errors errors;
    struct jpeg_progress_mgr progress;
    pf_arena arena;
} decoder;

/* ---- libjpeg's ways to speak ---- */

static int meaning(int code) {
    switch (code) {
    case JERR_INPUT_EMPTY:
    case JERR_NO_SOI:
    case JERR_SOI_DUPLICATE:
        return PF_NOT_JPEG;
    case JERR_INPUT_EOF:
    case JWRN_JPEG_EOF:
        return PF_TRUNCATED;
    case JERR_OUT_OF_MEMORY:
    case JERR_NO_BACKING_STORE:
        return PF_NO_MEMORY;
    case JERR_IMAGE_TOO_BIG:
    case JERR_WIDTH_OVERFLOW:
        return PF_TOO_LARGE;
    case JERR_BAD_PRECISION:
    case JERR_SOF_UNSUPPORTED:
    case JERR_ARITH_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_CCIR601_NOTIMPL:
    case JERR_COMPONENT_COUNT:
    case JERR_FRACT_SAMPLE_NOTIMPL:
        return PF_UNSUPPORTED;
    default:
        return PF_CORRUPT;
    }
}

static void on_error(j_common_ptr jpeg) {
    errors *self = (errors *)jpeg->err;
    char text[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, text);
    pf_say(self->fault, meaning(jpeg->err->msg_code), "%s", text);
    longjmp(self->out, 1);
}

static void on_message(j_common_ptr jpeg, int level) {
    /* Below zero is a warning: the decoder would go on over damaged data. Nobody wants what it makes of that. */
    if (level < 0) on_error(jpeg);
}

static void silent(j_common_ptr jpeg) { (void)jpeg; }

static void on_progress(j_common_ptr jpeg) {
    if (!jpeg->is_decompressor) return;
    j_decompress_ptr of = (j_decompress_ptr)jpeg;
    int scans = of->input_scan_number;
    if (scans <= MOST_SCANS && (double)scans * of->image_width * of->image_height <= MOST_VISITS) return;
    errors *self = (errors *)jpeg->err;
    pf_say(self->fault, PF_TOO_LARGE, "it takes %d passes and more over %u x %u pixels", scans, of->image_width, of->image_height);
    longjmp(self->out, 1);
}

/* ---- a picture's decoder ---- */

/* The end of the picture must be there, even where the wanted rows end before it: a program that decodes all of it would say so.
 * The marker cannot occur within a scan. */
static int has_end(const struct jpeg_source_mgr *scans) {
    const uint8_t *data = scans->next_input_byte;
    for (size_t at = scans->bytes_in_buffer; at >= 2; at--)
        if (data[at - 1] == 0xD9 && data[at - 2] == 0xFF) return 1;
    return 0;
}

static int open_picture(decoder *self, const pf_bytes *data, pf_fault *fault) {
    struct jpeg_decompress_struct *jpeg = &self->jpeg;
    if (data->size < 4 || data->at[0] != 0xFF || data->at[1] != 0xD8)
        return pf_say(fault, PF_NOT_JPEG, data->size ? "it begins with no JPEG marker" : "it is empty");
    jpeg_create_decompress(jpeg);
    self->progress.progress_monitor = on_progress;
    jpeg->progress = &self->progress;
    jpeg_mem_src(jpeg, (unsigned char *)data->at, (unsigned long)data->size);
    jpeg_read_header(jpeg, TRUE);
    if ((double)jpeg->image_width * jpeg->image_height > MOST_PIXELS)
        return pf_say(fault, PF_TOO_LARGE, "it claims %u x %u pixels", jpeg->image_width, jpeg->image_height);
    if (jpeg->jpeg_color_space != JCS_YCbCr && jpeg->jpeg_color_space != JCS_GRAYSCALE && jpeg->jpeg_color_space != JCS_RGB)
        return pf_say(fault, PF_UNSUPPORTED, "its %d components are neither grey nor colour in three", jpeg->num_components);
    if (jpeg->arith_code) return pf_say(fault, PF_UNSUPPORTED, "it is coded arithmetically");
    if (!has_end(jpeg->src)) return pf_say(fault, PF_TRUNCATED, "the end of the picture is missing");
    jpeg->out_color_space = JCS_RGB;
    return PF_FINE;
}

/* Whether chroma is sampled in one of the usual ways, for which decoding a region has been proved to equal decoding everything. */
static int usual_sampling(const struct jpeg_decompress_struct *jpeg) {
    const jpeg_component_info *part = jpeg->comp_info;
    if (jpeg->num_components == 1) return 1;
    if (part[0].h_samp_factor > 2 || part[0].v_samp_factor > 2) return 0;
    for (int k = 1; k < 3; k++)
        if (part[k].h_samp_factor != 1 || part[k].v_samp_factor != 1) return 0;
    return 1;
}

/* Whether scans of a progressive picture are missing, though it ends as it should. The decoder then makes up what is missing from
 * neighbouring blocks, which a region lacks, and every version of the library in another way. */
static int lacks_scans(const struct jpeg_decompress_struct *jpeg) {
    if (!jpeg->progressive_mode || !jpeg->coef_bits) return 0;
    for (int part = 0; part < jpeg->num_components; part++)
        for (int k = 0; k < DCTSIZE2; k++)
            if (jpeg->coef_bits[part][k]) return 1;
    return 0;
}

static int box_inside(const pf_box *box, int width, int height, pf_fault *fault) {
    if (box->x >= 0 && box->y >= 0 && box->width > 0 && box->height > 0 && box->x <= width - box->width &&
        box->y <= height - box->height)
        return PF_FINE;
    return pf_say(fault, PF_BAD_REQUEST, "the box at (%d, %d) of %d x %d does not lie in the picture of %d x %d", box->x, box->y,
                  box->width, box->height, width, height);
}

/* ---- rows of a region ---- */

typedef void take_row(void *who, const uint8_t *row);
typedef void take_pause(void *who);

/* Decode `wanted`, in pixels of the (scaled) output, and hand its rows, from its first column on, to `row`; `pause`, if any, says
 * that the rows are about to be overwritten. The decompression must have been set up, not started. Rows have PF_SLACK readable bytes
 * behind them. */
static int rows_of(decoder *self, const pf_box *wanted, take_row *row, take_pause *pause, void *who, pf_fault *fault) {
    struct jpeg_decompress_struct *jpeg = &self->jpeg;
    int part = usual_sampling(jpeg);
    jpeg_start_decompress(jpeg);
    if (lacks_scans(jpeg)) return pf_say(fault, PF_UNSUPPORTED, "its last scans are missing");
    int full = (int)jpeg->output_width, begin = wanted->x - BESIDE, end = wanted->x + wanted->width + BESIDE;
    JDIMENSION left = begin < 0 ? 0 : begin, width = (end > full ? full : end) - left;
    if (part && width < jpeg->output_width)
        jpeg_crop_scanline(jpeg, &left, &width);
    else
        left = 0, width = jpeg->output_width;
    size_t stride = ((size_t)width * 3 + PF_SLACK + 63) & ~(size_t)63;
    uint8_t *memory = pf_take(&self->arena, stride * ROWS, fault);
    if (!memory) return fault->code;
    JSAMPROW rows[ROWS];
    for (int k = 0; k < ROWS; k++) rows[k] = memory + stride * k;
    int at = 0, last = wanted->y + wanted->height;
    if (part && wanted->y > 0) at = (int)jpeg_skip_scanlines(jpeg, wanted->y);
    size_t offset = (size_t)(wanted->x - (int)left) * 3;
    while (at < last) {
        int filled = 0, count = last - at < ROWS ? last - at : ROWS;
        while (filled < count) {
            JDIMENSION got = jpeg_read_scanlines(jpeg, rows + filled, count - filled);
            if (!got) return pf_say(fault, PF_CORRUPT, "the decoder stopped after %d rows", at + filled);
            filled += (int)got;
        }
        for (int k = 0; k < filled; k++)
            if (at + k >= wanted->y) row(who, rows[k] + offset);
        if (pause) pause(who);
        at += filled;
    }
    return PF_FINE;
}

/* ---- the jobs ---- */

typedef struct {
    const pf_request *request;
    const pf_target *target;
} resampling;

static void row_resampled(void *who, const uint8_t *row) { pf_resampler_row(who, row); }
static void pause_resampled(void *who) { pf_resampler_idle(who); }

/* How much the decoder may scale down: whole powers of two, for which it is quick. */
static int denominator(const pf_request *request) {
    double across = (double)request->box.width / request->full_width, down = (double)request->box.height / request->full_height;
    double least = (across < down ? across : down) / request->sharp;
    int by = 1;
    while (by < 8 && by < request->coarsest && least >= 2 * by) by *= 2;
    return by;
}

/* The box in pixels of a picture scaled down by `by`: the whole pixels it touches, and where exactly it begins in the first. */
static void scaled(int begin, int length, int by, int limit, int *first, pf_span *span) {
    int end = (begin + length + by - 1) / by;
    *first = begin / by;
    if (*first >= limit) *first = limit - 1;
    span->begin = (double)begin / by - *first;
    span->length = (double)length / by;
    span->inputs = (end > limit ? limit : end) - *first;
}

static int axes_of(pf_resampler *job, pf_arena *arena, const pf_request *request, pf_span *across, pf_span *down, pf_fault *fault) {
    across->outputs = request->full_width, across->from = request->window.x, across->count = request->window.width;
    down->outputs = request->full_height, down->from = request->window.y, down->count = request->window.height;
    across->mirrored = request->mirrored, down->mirrored = 0;
    job->target.upside_down = request->upside_down, job->down_first = request->down_first;
    int code = pf_axis_make(&job->across, arena, across, request->filter, request->arithmetic, fault);
    return code ? code : pf_axis_make(&job->down, arena, down, request->filter, request->arithmetic, fault);
}

static int sensible(const pf_request *request, pf_fault *fault) {
    const int most = 1 << 16;
    if (request->full_width < 1 || request->full_height < 1 || request->full_width > most || request->full_height > most ||
        request->window.width < 1 || request->window.height < 1 || request->window.width > most || request->window.height > most)
        return pf_say(fault, PF_BAD_REQUEST, "a picture of %d x %d, of which %d x %d are wanted, cannot be made",
                      request->full_width, request->full_height, request->window.width, request->window.height);
    return PF_FINE;
}

static int resample_jpeg(decoder *self, const pf_bytes *data, const void *asked, pf_fault *fault) {
    const resampling *of = asked;
    const pf_request *request = of->request;
    struct jpeg_decompress_struct *jpeg = &self->jpeg;
    pf_resampler job = {.target = *of->target};
    int code = open_picture(self, data, fault);
    if (!code) code = box_inside(&request->box, jpeg->image_width, jpeg->image_height, fault);
    if (!code) code = sensible(request, fault);
    if (code) return code;
    pf_span across, down;
    pf_box wanted;
    jpeg->scale_num = 1, jpeg->scale_denom = denominator(request);
    jpeg_calc_output_dimensions(jpeg);
    scaled(request->box.x, request->box.width, jpeg->scale_denom, jpeg->output_width, &wanted.x, &across);
    scaled(request->box.y, request->box.height, jpeg->scale_denom, jpeg->output_height, &wanted.y, &down);
    code = axes_of(&job, &self->arena, request, &across, &down, fault);
    if (!code) code = pf_resampler_start(&job, &self->arena, fault);
    if (code) return code;
    wanted.x += job.across.low, wanted.width = job.across.high - job.across.low;
    wanted.y += job.down.low, wanted.height = job.down.high - job.down.low;
    return rows_of(self, &wanted, row_resampled, pause_resampled, &job, fault);
}

typedef struct {
    const pf_box *box;
    uint8_t *out;
} copying;

static void row_copied(void *who, const uint8_t *row) {
    copying *self = who;
    size_t bytes = (size_t)self->box->width * 3;
    memcpy(self->out, row, bytes);
    self->out += bytes;
}

static int copy_region(decoder *self, const pf_bytes *data, const void *asked, pf_fault *fault) {
    copying job = *(const copying *)asked;
    const pf_box *box = job.box;
    int code = open_picture(self, data, fault);
    if (!code) code = box_inside(box, self->jpeg.image_width, self->jpeg.image_height, fault);
    return code ? code : rows_of(self, box, row_copied, NULL, &job, fault);
}

typedef int work(decoder *self, const pf_bytes *data, const void *asked, pf_fault *fault);

/* Apart from `decode`, whose variables would be lost by the jump. */
static int guarded(decoder *self, const pf_bytes *data, work *work, const void *asked) {
    if (setjmp(self->errors.out)) return self->errors.fault->code;
    return work(self, data, asked, self->errors.fault);
}

static int decode(const pf_bytes *data, work *work, const void *asked, pf_fault *fault) {
    decoder self = {0};
    fault->code = PF_FINE;
    self.errors.fault = fault;
    self.jpeg.err = jpeg_std_error(&self.errors.base);
    self.errors.base.error_exit = on_error;
    self.errors.base.emit_message = on_message;
    self.errors.base.output_message = silent;
    int code = guarded(&self, data, work, asked);
    jpeg_destroy_decompress(&self.jpeg);
    pf_let_go(&self.arena);
    return fault->code = code;
}

int pf_jpeg_resampled(const pf_bytes *data, const pf_request *request, const pf_target *target, pf_fault *fault) {
    const resampling asked = {request, target};
    return decode(data, resample_jpeg, &asked, fault);
}

int pf_jpeg_region(const pf_bytes *data, const pf_box *box, uint8_t *out, pf_fault *fault) {
    const copying asked = {box, out};
    return decode(data, copy_region, &asked, fault);
}

static int resample_pixels(const pf_pixels *pixels, const pf_request *request, const pf_target *target, pf_arena *arena,
                           pf_fault *fault) {
    pf_resampler job = {.target = *target};
    pf_span across, down;
    int x, y, width = pixels->width, height = pixels->height;
    size_t most = ((size_t)request->box.width * 3 + 2 * PF_SLACK + 63) & ~(size_t)63;
    if (box_inside(&request->box, width, height, fault) || sensible(request, fault)) return fault->code;
    scaled(request->box.x, request->box.width, 1, width, &x, &across);
    scaled(request->box.y, request->box.height, 1, height, &y, &down);
    if (axes_of(&job, arena, request, &across, &down, fault)) return fault->code;
    if (pf_resampler_start(&job, arena, fault)) return fault->code;
    uint8_t *spare[2] = {pf_take(arena, most, fault), pf_take(arena, most, fault)};
    if (!spare[0] || !spare[1]) return fault->code;
    const uint8_t *end = pixels->at + (height - 1) * pixels->stride + (ptrdiff_t)width * 3;
    size_t bytes = (size_t)(job.across.high - job.across.low) * 3;
    for (int row = job.down.low; row < job.down.high; row++) {
        const uint8_t *from = pixels->at + (y + row) * pixels->stride + (ptrdiff_t)(x + job.across.low) * 3;
        if (end - from < (ptrdiff_t)(bytes + PF_SLACK)) { /* the caller's memory may end here */
            uint8_t *copy = spare[row & 1];
            memcpy(copy, from, bytes);
            from = copy;
        }
        pf_resampler_row(&job, from);
    }
    pf_resampler_idle(&job);
    return PF_FINE;
}

int pf_pixels_resampled(const pf_pixels *pixels, const pf_request *request, const pf_target *target, pf_fault *fault) {
    pf_arena arena = {0};
    fault->code = PF_FINE;
    resample_pixels(pixels, request, target, &arena, fault);
    pf_let_go(&arena);
    return fault->code;
}
