/*  pipe_common.h -- what the pipeline tests share: random data, poisoned outputs, host arrays of
    each kind of memory, and small stages with a serial result beside them. */
#ifndef PIPE_COMMON_H
#define PIPE_COMMON_H

#include "streampipe.h"
#include "tap.h"

static unsigned pipe_seed = 12345u;

static inline unsigned pipe_random(void) {
    pipe_seed = pipe_seed * 1664525u + 1013904223u;
    return pipe_seed >> 8;
}

enum {
    PIPE_PAGEABLE,
    PIPE_PINNED,
    PIPE_UNALIGNED,
    PIPE_NUM_MEMORIES
};

static const char *const pipe_memory_names[] = {"pageable", "pinned", "pageable, one byte off"};

/* A host array of some kind of memory; at is what the pipeline is given. */
typedef struct pipe_array {
    unsigned char *base, *at;
    size_t bytes;
    int memory;
} pipe_array_t;

static inline pipe_array_t pipe_array_new(size_t bytes, int memory) {
    pipe_array_t a;
    void *p = NULL;
    a.bytes = bytes;
    a.memory = memory;
    if (memory == PIPE_PINNED)
        SPIPE_CHECK(spipe_pinned_alloc(&p, bytes + 64));
    else
        p = malloc(bytes + 64);
    if (!p) exit(99);
    a.base = (unsigned char *)p;
    a.at = a.base + (memory == PIPE_UNALIGNED ? 1 : 0);
    return a;
}

static inline void pipe_randomise(pipe_array_t a) {
    size_t i;
    for (i = 0; i < a.bytes; ++i) a.at[i] = (unsigned char)pipe_random();
}

/* Bytes no stage writes by chance, and a guard behind the end that nobody may touch. */
static inline void pipe_poison(pipe_array_t a) {
    memset(a.at, 0xA5, a.bytes);
    memset(a.at + a.bytes, 0x5A, 32);
}

static inline int pipe_guard_whole(pipe_array_t a) {
    int i;
    for (i = 0; i < 32; ++i) {
        if (a.at[a.bytes + (size_t)i] != 0x5A) return 0;
    }
    return 1;
}

static inline void pipe_free(pipe_array_t *a) {
    if (a->memory == PIPE_PINNED)
        (void)spipe_pinned_free(a->base);
    else
        free(a->base);
    a->base = a->at = NULL;
}

/* Byte b of element e of an array: what every test stage is a function of, so that a chunk at the
   wrong place, a stale slot and a lost remainder all show. */
static inline unsigned char pipe_mix(unsigned char byte, size_t at) {
    return (unsigned char)(byte * 7u + (unsigned char)(at * 31u) + 3u);
}

/* The first byte that differs, or n. */
static inline size_t pipe_differs(const unsigned char *a, const unsigned char *b, size_t n) {
    size_t i;
    for (i = 0; i < n; ++i) {
        if (a[i] != b[i]) return i;
    }
    return n;
}

#ifdef __cplusplus
/* y[i] = mix(x[i], global position), bytes first .. first+n-1 of the whole */
static __global__ void pipe_mix_kernel(const unsigned char *x, unsigned char *y, size_t first,
                                       size_t n) {
    const size_t step = (size_t)blockDim.x * gridDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += step) {
        y[i] = (unsigned char)(x[i] * 7u + (unsigned char)((first + i) * 31u) + 3u);
    }
}

/* user: in and out buffer numbers and bytes an element */
typedef struct pipe_mix_args {
    int in, out;
    size_t elem_bytes;
} pipe_mix_args_t;

static inline cudaError_t pipe_mix_stage(const spipe_chunk_t *c, void *user) {
    const pipe_mix_args_t *a = (const pipe_mix_args_t *)user;
    const size_t n = c->count * a->elem_bytes;
    return SPIPE_LAUNCH(pipe_mix_kernel, spipe_blocks(n, 256), 256, 0, c->stream,
                        SPIPE_BUF_ROW(c, a->in, const unsigned char, a->elem_bytes),
                        SPIPE_BUF_ROW(c, a->out, unsigned char, a->elem_bytes),
                        c->first * a->elem_bytes, n);
}
#endif
#endif
