/* The Python face, in the stable ABI of Python 3.10: figures and buffers in, None or (reason, text) out.
 * Sizes are checked against the buffers here; what is asked of them by pipefix/kernels/native.py, in words for users. Every picture
 * is worked on without the interpreter's lock, and with all of its buffers exported: none can be closed or resized meanwhile. */
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

#include "colour.h"
#include "jpeg.h"

/* ---- buffers ---- */

/* Part of the stable ABI from Python 3.11 on. 3.10 has the same functions and the same layout; only its headers leave them out. */
typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
} Py_buffer;
enum { PyBUF_SIMPLE = 0, PyBUF_WRITABLE = 1, PyBUF_STRIDES = 0x18 };
PyAPI_FUNC(int) PyObject_GetBuffer(PyObject *object, Py_buffer *view, int flags);
PyAPI_FUNC(void) PyBuffer_Release(Py_buffer *view);

enum { MOST_BUFFERS = 4, MOST_TAPS = 255 };

typedef struct {
    PyObject *object[MOST_BUFFERS]; /* None: an empty view */
    Py_buffer view[MOST_BUFFERS];
} buffers;

static void let_go(buffers *all) {
    for (int k = 0; k < MOST_BUFFERS; k++)
        if (all->view[k].obj) PyBuffer_Release(&all->view[k]);
}

static int take_hold(buffers *all, const int *flags) {
    for (int k = 0; k < MOST_BUFFERS; k++)
        if (all->object[k] && all->object[k] != Py_None && PyObject_GetBuffer(all->object[k], &all->view[k], flags[k])) {
            all->view[k].obj = NULL;
            let_go(all);
            return 0;
        }
    return 1;
}

static pf_bytes bytes_of(const Py_buffer *view) { return (pf_bytes){view->buf, (size_t)view->len}; }

static int pixels_of(const Py_buffer *view, pf_pixels *pixels) {
    const Py_ssize_t *shape = view->shape, *strides = view->strides;
    if (view->ndim != 3 || view->itemsize != 1 || shape[2] != 3 || strides[2] != 1 || strides[1] != 3 || shape[0] < 1 ||
        shape[1] < 1 || shape[0] > INT32_MAX || shape[1] > INT32_MAX || strides[0] < 3 * shape[1])
        return 0;
    *pixels = (pf_pixels){view->buf, (int)shape[1], (int)shape[0], strides[0]};
    return 1;
}

/* Sample `index` of a batch, N x 3 x H x W of bytes or floats in any memory order. */
static int sample_of(const Py_buffer *view, Py_ssize_t index, const pf_box *window, pf_target *target) {
    const Py_ssize_t *shape = view->shape, *strides = view->strides, item = view->itemsize;
    if (view->ndim != 4 || (item != 1 && item != 4) || index < 0 || index >= shape[0] || shape[1] != 3 ||
        shape[2] != window->height || shape[3] != window->width || strides[1] % item || strides[2] % item || strides[3] % item)
        return 0;
    target->data = (char *)view->buf + index * strides[0];
    target->kind = item == 4 ? PF_FLOAT32 : PF_UINT8;
    target->channel = strides[1] / item, target->row = strides[2] / item, target->column = strides[3] / item;
    return 1;
}

/* ---- functions ---- */

static PyObject *answer(const pf_fault *fault) {
    if (fault->code == PF_FINE) Py_RETURN_NONE;
    PyObject *text = PyUnicode_DecodeLatin1(fault->text, (Py_ssize_t)strlen(fault->text), "replace");
    return text ? Py_BuildValue("(iN)", fault->code, text) : NULL;
}

static PyObject *unfit(buffers *all) {
    let_go(all);
    PyErr_SetString(PyExc_ValueError, "a buffer is not of the size that the call is about");
    return NULL;
}

/* From bytes of a JPEG, or from rows of pixels, which are an array of three dimensions. */
static PyObject *resampled(PyObject *self, PyObject *given) {
    (void)self;
    enum { PICTURE, BATCH, TABLE, RAMP };
    static const int flags[MOST_BUFFERS] = {PyBUF_STRIDES, PyBUF_STRIDES | PyBUF_WRITABLE, PyBUF_SIMPLE, PyBUF_SIMPLE};
    buffers all = {0};
    pf_request of = {0};
    pf_target target = {0};
    pf_pixels pixels = {0};
    pf_fault fault = {0};
    Py_ssize_t index;
    if (!PyArg_ParseTuple(given, "O((iiii)(ii)(iiii)ppiipid)OnOOp", &all.object[PICTURE], &of.box.x, &of.box.y, &of.box.width,
                          &of.box.height, &of.full_width, &of.full_height, &of.window.x, &of.window.y, &of.window.width,
                          &of.window.height, &of.mirrored, &of.upside_down, &of.filter, &of.arithmetic, &of.down_first,
                          &of.coarsest, &of.sharp, &all.object[BATCH], &index, &all.object[TABLE], &all.object[RAMP],
                          &target.ramp_divides))
        return NULL;
    if (!take_hold(&all, flags)) return NULL;
    const Py_buffer *picture = &all.view[PICTURE], *table = &all.view[TABLE], *ramp = &all.view[RAMP];
    pf_bytes data = bytes_of(picture);
    int encoded = picture->ndim == 1 && picture->itemsize == 1 && picture->strides[0] == 1;
    if (!encoded && !pixels_of(picture, &pixels)) return unfit(&all);
    if (!sample_of(&all.view[BATCH], index, &of.window, &target)) return unfit(&all);
    size_t tables = target.kind == PF_FLOAT32 ? 3 * 256 * sizeof(float) : 0;
    if ((size_t)table->len != tables || (ramp->buf && (size_t)ramp->len != 9 * sizeof(float))) return unfit(&all);
    target.table = table->buf, target.ramp = ramp->buf;
    Py_BEGIN_ALLOW_THREADS
    if (encoded)
        pf_jpeg_resampled(&data, &of, &target, &fault);
    else
        pf_pixels_resampled(&pixels, &of, &target, &fault);
    Py_END_ALLOW_THREADS
    let_go(&all);
    return answer(&fault);
}

static PyObject *jpeg_region(PyObject *self, PyObject *given) {
    (void)self;
    static const int flags[MOST_BUFFERS] = {PyBUF_SIMPLE, PyBUF_WRITABLE};
    buffers all = {0};
    pf_box box;
    pf_fault fault = {0};
    if (!PyArg_ParseTuple(given, "O(iiii)O", &all.object[0], &box.x, &box.y, &box.width, &box.height, &all.object[1])) return NULL;
    if (!take_hold(&all, flags)) return NULL;
    pf_bytes data = bytes_of(&all.view[0]);
    if (box.width < 1 || box.height < 1 || all.view[1].len / 3 / box.width != box.height) return unfit(&all);
    Py_BEGIN_ALLOW_THREADS
    pf_jpeg_region(&data, &box, all.view[1].buf, &fault);
    Py_END_ALLOW_THREADS
    let_go(&all);
    return answer(&fault);
}

/* Two buffers of height x width x 3 bytes, and rows x columns of floats where a picture is blurred. */
static int pictures_of(const buffers *all, pf_picture *picture) {
    pf_pixels in, out;
    if (!pixels_of(&all->view[0], &in) || !pixels_of(&all->view[1], &out) || in.width != out.width || in.height != out.height ||
        in.stride != 3 * (ptrdiff_t)in.width || out.stride != in.stride)
        return 0;
    *picture = (pf_picture){in.at, (uint8_t *)all->view[1].buf, in.width, in.height};
    return 1;
}

static PyObject *hue_turned(PyObject *self, PyObject *given) {
    (void)self;
    static const int flags[MOST_BUFFERS] = {PyBUF_STRIDES, PyBUF_STRIDES | PyBUF_WRITABLE};
    buffers all = {0};
    pf_picture picture;
    unsigned char shift;
    if (!PyArg_ParseTuple(given, "OOb", &all.object[0], &all.object[1], &shift) || !take_hold(&all, flags)) return NULL;
    if (!pictures_of(&all, &picture)) return unfit(&all);
    pf_hue_prepare();
    Py_BEGIN_ALLOW_THREADS
    pf_hue_turned(&picture, shift);
    Py_END_ALLOW_THREADS
    let_go(&all);
    Py_RETURN_NONE;
}

static PyObject *blurred(PyObject *self, PyObject *given) {
    (void)self;
    static const int flags[MOST_BUFFERS] = {PyBUF_STRIDES, PyBUF_STRIDES | PyBUF_WRITABLE, PyBUF_SIMPLE};
    buffers all = {0};
    pf_picture picture;
    int rows, columns, done;
    if (!PyArg_ParseTuple(given, "OOOii", &all.object[0], &all.object[1], &all.object[2], &rows, &columns) || !take_hold(&all, flags))
        return NULL;
    if (!pictures_of(&all, &picture) || rows < 1 || columns < 1 || !(rows % 2 && columns % 2) || rows / 2 >= picture.height ||
        columns / 2 >= picture.width || rows > MOST_TAPS || columns > MOST_TAPS ||
        (size_t)all.view[2].len != sizeof(float) * rows * columns)
        return unfit(&all);
    Py_BEGIN_ALLOW_THREADS
    done = pf_blurred(&picture, all.view[2].buf, rows, columns);
    Py_END_ALLOW_THREADS
    let_go(&all);
    return done ? PyBool_FromLong(done > 0) : PyErr_NoMemory();
}

static PyObject *loops(PyObject *self, PyObject *nothing) {
    (void)self, (void)nothing;
    return PyUnicode_FromString(pf_loops_name());
}

static PyObject *choose_loops(PyObject *self, PyObject *name) {
    (void)self;
    PyObject *text = PyUnicode_AsASCIIString(name);
    if (!text) return NULL;
    int has = pf_loops_choose(PyBytes_AsString(text));
    Py_DECREF(text);
    return PyBool_FromLong(has);
}

static PyMethodDef methods[] = {
    {"resampled", resampled, METH_VARARGS, NULL},   {"jpeg_region", jpeg_region, METH_VARARGS, NULL},
    {"hue_turned", hue_turned, METH_VARARGS, NULL}, {"blurred", blurred, METH_VARARGS, NULL},
    {"loops", loops, METH_NOARGS, NULL},            {"choose_loops", choose_loops, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "pipefix.kernels._native", "See pipefix.kernels.native.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&definition); }
