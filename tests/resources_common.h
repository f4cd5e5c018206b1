/*  resources_common.h -- what the tests of resources share, of one device and of several: the work,
    its arrays, and what is in use. */
#ifndef RESOURCES_COMMON_H
#define RESOURCES_COMMON_H

#include "pipe_common.h"

enum {
    RESOURCES_COUNT = 40000 /* elements of an array */
};

typedef enum kind {
    PAGEABLE,
    PINNED,
    HOSTED,
    RESIDENT,
    NUM_KINDS
} kind_t;

static const char *const kind_names[] = {"pageable", "pinned", "source and sink", "resident"};

/* The output is 3 times the input and the element's number; sum, or NULL, adds up the input. */
static __global__ void resources_kernel(const unsigned *x, unsigned *y, size_t n, size_t first,
                                        unsigned *sum) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = 3 * x[i] + (unsigned)(first + i);
    if (sum) atomicAdd(sum, x[i]);
}

/* An input, and an output that is poisoned. */
static inline void resources_arrays_new(kind_t kind, unsigned **x, unsigned **y) {
    const size_t bytes = RESOURCES_COUNT * sizeof **x;
    if (kind == PINNED) {
        SPIPE_CHECK(spipe_pinned_alloc((void **)x, bytes));
        SPIPE_CHECK(spipe_pinned_alloc((void **)y, bytes));
    } else {
        *x = (unsigned *)malloc(bytes);
        *y = (unsigned *)malloc(bytes);
        if (!*x || !*y) exit(99);
    }
    for (size_t i = 0; i < RESOURCES_COUNT; ++i) (*x)[i] = (unsigned)(i * 2654435761u) + 1u;
    memset(*y, 0xA5, bytes);
}

static inline void resources_arrays_free(kind_t kind, unsigned *x, unsigned *y) {
    if (kind == PINNED) {
        SPIPE_CHECK(spipe_pinned_free(x));
        SPIPE_CHECK(spipe_pinned_free(y));
        return;
    }
    free(x);
    free(y);
}

/* How many of count outputs are wrong, and of those behind them written; poisons all again. */
static inline size_t resources_wrong(const unsigned *x, unsigned *y, size_t count) {
    size_t i, wrong = 0;
    for (i = 0; i < count; ++i) wrong += y[i] != 3 * x[i] + (unsigned)i;
    for (; i < RESOURCES_COUNT; ++i) wrong += y[i] != 0xA5A5A5A5u;
    memset(y, 0xA5, RESOURCES_COUNT * sizeof *y);
    return wrong;
}

/* The sum of count inputs. */
static inline unsigned resources_sum(const unsigned *x, size_t count) {
    unsigned sum = 0;
    for (size_t i = 0; i < count; ++i) sum += x[i];
    return sum;
}

#endif
