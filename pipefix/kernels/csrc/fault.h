/* What can go wrong, as a value: no exception crosses a setjmp, and no message is printed from native code. */
#ifndef PIPEFIX_FAULT_H
#define PIPEFIX_FAULT_H

/* The order is that of pipefix.kernels.errors.REASONS. */
enum {
    PF_FINE = 0,
    PF_NOT_JPEG,    /* no JPEG at all, or damaged before the first scan */
    PF_TRUNCATED,   /* the end of the picture is missing */
    PF_CORRUPT,     /* the decoder went on over damaged data */
    PF_UNSUPPORTED, /* a JPEG that is right and that this kernel leaves to others: CMYK, 12 bits, ... */
    PF_TOO_LARGE,   /* it claims more pixels than anybody should believe */
    PF_NO_MEMORY,
    PF_BAD_REQUEST  /* the caller's figures do not fit the picture */
};

typedef struct {
    int code;
    char text[216];
} pf_fault;

int pf_say(pf_fault *fault, int code, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

#endif
