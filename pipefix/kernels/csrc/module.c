/* The Python face, in the stable ABI of Python 3.10: figures and addresses in, None or (reason, text) out.
 * Types and shapes are checked by pipefix/kernels/native.py; every picture is worked on without the interpreter's lock. */
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdatomic.h>
#include <stdlib.h>

#include "jpeg.h"

/* ---- decoders that are not in use ---- */

enum { SPARE = 64 };
static pf_decoder *spare[SPARE];
static int spares;
static atomic_flag busy = ATOMIC_FLAG_INIT;

/* Nobody waits: who finds the list taken (for ever, in a child forked at that moment) makes a decoder of its own. */
static pf_decoder *borrow(void) {
    pf_decoder *decoder = NULL;
    if (!atomic_flag_test_and_set(&busy)) {
        if (spares) decoder = spare[--spares];
        atomic_flag_clear(&busy);
    }
    return decoder ? decoder : pf_decoder_new();
}

static void give_back(pf_decoder *decoder) {
    if (decoder && !atomic_flag_test_and_set(&busy)) {
        if (spares < SPARE) {
            spare[spares++] = decoder;
            decoder = NULL;
        }
        atomic_flag_clear(&busy);
    }
    pf_decoder_free(decoder);
}

/* ---- arguments ---- */

typedef struct {
    PyObject *const *next;
    Py_ssize_t left;
} arguments;

static long long figure(arguments *from) {
    if (from->left-- <= 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "too few arguments");
        return 0;
    }
    return PyLong_AsLongLong(*from->next++);
}

static int number(arguments *from) {
    long long value = figure(from);
    if (value < INT32_MIN || value > INT32_MAX) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_OverflowError, "a figure does not fit in 32 bits");
        return 0;
    }
    return (int)value;
}

static double fraction(arguments *from) {
    if (from->left-- <= 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "too few arguments");
        return 0;
    }
    return PyFloat_AsDouble(*from->next++);
}

static void *address(arguments *from) { return (void *)(intptr_t)figure(from); }

static pf_box box_from(arguments *from) {
    pf_box box;
    box.x = number(from), box.y = number(from), box.width = number(from), box.height = number(from);
    return box;
}

static pf_request request_from(arguments *from) {
    pf_request request;
    request.box = box_from(from);
    request.full_width = number(from), request.full_height = number(from);
    request.window = box_from(from);
    request.mirrored = number(from), request.upside_down = number(from);
    request.filter = number(from), request.arithmetic = number(from), request.down_first = number(from);
    request.coarsest = number(from), request.sharp = fraction(from);
    return request;
}

static pf_target target_from(arguments *from) {
    pf_target target;
    target.data = address(from), target.kind = number(from);
    target.channel = (ptrdiff_t)figure(from), target.row = (ptrdiff_t)figure(from), target.column = (ptrdiff_t)figure(from);
    target.table = address(from), target.ramp = address(from), target.ramp_divides = number(from);
    target.upside_down = 0;
    return target;
}

/* Bytes as an object, or an address and a length. */
typedef struct {
    const uint8_t *data;
    size_t size;
} bytes;

static bytes bytes_from(arguments *from) {
    bytes given = {0};
    if (from->left > 0 && PyBytes_Check(*from->next)) {
        char *data;
        Py_ssize_t size;
        if (!PyBytes_AsStringAndSize(*from->next, &data, &size)) given.data = (const uint8_t *)data, given.size = (size_t)size;
        from->next++, from->left--;
        figure(from); /* the length, known already */
        return given;
    }
    given.data = address(from), given.size = (size_t)figure(from);
    return given;
}

static PyObject *answer(const pf_fault *fault) {
    if (fault->code == PF_FINE) Py_RETURN_NONE;
    PyObject *text = PyUnicode_DecodeLatin1(fault->text, (Py_ssize_t)strlen(fault->text), "replace");
    return text ? Py_BuildValue("(iN)", fault->code, text) : NULL;
}

static int complete(const arguments *given) {
    if (!PyErr_Occurred() && given->left != 0) PyErr_SetString(PyExc_TypeError, "wrong number of arguments");
    return !PyErr_Occurred();
}

static void no_decoder(pf_fault *fault) { pf_say(fault, PF_NO_MEMORY, "no memory for a decoder"); }

/* ---- functions ---- */

static PyObject *jpeg_resampled(PyObject *self, PyObject *const *argument, Py_ssize_t count) {
    (void)self;
    arguments from = {argument, count};
    bytes picture = bytes_from(&from);
    pf_request request = request_from(&from);
    pf_target target = target_from(&from);
    pf_fault fault = {0};
    if (!complete(&from)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    pf_decoder *decoder = borrow();
    if (decoder)
        pf_jpeg_resampled(decoder, picture.data, picture.size, &request, &target, &fault);
    else
        no_decoder(&fault);
    give_back(decoder);
    Py_END_ALLOW_THREADS
    return answer(&fault);
}

static PyObject *jpeg_region(PyObject *self, PyObject *const *argument, Py_ssize_t count) {
    (void)self;
    arguments from = {argument, count};
    bytes picture = bytes_from(&from);
    pf_box box = box_from(&from);
    uint8_t *out = address(&from);
    ptrdiff_t stride = (ptrdiff_t)figure(&from);
    pf_fault fault = {0};
    if (!complete(&from)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    pf_decoder *decoder = borrow();
    if (decoder)
        pf_jpeg_region(decoder, picture.data, picture.size, &box, out, stride, &fault);
    else
        no_decoder(&fault);
    give_back(decoder);
    Py_END_ALLOW_THREADS
    return answer(&fault);
}

static PyObject *pixels_resampled(PyObject *self, PyObject *const *argument, Py_ssize_t count) {
    (void)self;
    arguments from = {argument, count};
    const uint8_t *pixels = address(&from);
    int width = number(&from), height = number(&from);
    ptrdiff_t stride = (ptrdiff_t)figure(&from);
    pf_request request = request_from(&from);
    pf_target target = target_from(&from);
    pf_fault fault = {0};
    if (!complete(&from)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    pf_decoder *decoder = borrow();
    if (decoder)
        pf_pixels_resampled(decoder, pixels, width, height, stride, &request, &target, &fault);
    else
        no_decoder(&fault);
    give_back(decoder);
    Py_END_ALLOW_THREADS
    return answer(&fault);
}

static PyObject *jpeg_header(PyObject *self, PyObject *const *argument, Py_ssize_t count) {
    (void)self;
    arguments from = {argument, count};
    bytes picture = bytes_from(&from);
    pf_header header;
    pf_fault fault = {0};
    if (!complete(&from)) return NULL;
    if (pf_jpeg_header(picture.data, picture.size, &header, &fault)) return answer(&fault);
    return Py_BuildValue("(iiiiii)", header.width, header.height, header.components, header.precision, header.progressive,
                         header.orientation);
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
    {"jpeg_resampled", (PyCFunction)(void (*)(void))jpeg_resampled, METH_FASTCALL, NULL},
    {"jpeg_region", (PyCFunction)(void (*)(void))jpeg_region, METH_FASTCALL, NULL},
    {"pixels_resampled", (PyCFunction)(void (*)(void))pixels_resampled, METH_FASTCALL, NULL},
    {"jpeg_header", (PyCFunction)(void (*)(void))jpeg_header, METH_FASTCALL, NULL},
    {"loops", loops, METH_NOARGS, NULL},
    {"choose_loops", choose_loops, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "pipefix.kernels._native", "See pipefix.kernels.native.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&definition); }
