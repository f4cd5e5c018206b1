/*  pipe_common.h -- what the pipeline tests share: random data, poisoned outputs, host arrays of
    each kind of memory, small stages with a serial result beside them, and what is scarce. */
#ifndef PIPE_COMMON_H
#define PIPE_COMMON_H

#include "tap.h"

#include <errno.h>
#include <stdlib.h>

/* ---- What is scarce, as tests/cli/scarce.sh says --------------------------------------------- */

/* Whether the library may start threads. */
static inline int pipe_threads(void) { return !getenv("PIPE_NO_THREADS"); }

#if !defined(SPIPE_NO_THREADS) && !defined(pthread_create)
#include <pthread.h>

/* How many threads the library may still start; -1: as many as it likes. */
static int pipe_threads_left = -1;

/* The library's threads; those of the test and of the CUDA runtime are started as ever. */
static inline int pipe_thread_create(pthread_t *thread, const pthread_attr_t *attributes,
                                     void *(*fn)(void *), void *arg) {
    static int told;
    const int left = __atomic_load_n(&pipe_threads_left, __ATOMIC_RELAXED);
    if (left == 0) return EAGAIN;
    if (left > 0) (void)__atomic_sub_fetch(&pipe_threads_left, 1, __ATOMIC_RELAXED);
    if (pipe_threads()) return pthread_create(thread, attributes, fn, arg);
    if (told++ == 0) tap_note("no thread can be had");
    return EAGAIN;
}

#define pthread_create pipe_thread_create
#include "streampipe.h"
#undef pthread_create
#else
#include "streampipe.h"
#endif

/* Whether compute-sanitizer looks at this program. Then each buffer is an allocation of its own, a
   tool reports what goes wrong on the device before the library can, and it holds work up. */
static inline int pipe_sanitized(void) {
    return getenv("NV_SANITIZER_INJECTION_TRANSPORT_TYPE") != NULL;
}

/* Skips a program under compute-sanitizer, where runs neither lend memory nor wait for it. */
static inline void pipe_needs_lending(void) {
    if (!pipe_sanitized()) return;
    SPIPE_CHECK(cudaFree(NULL)); /* it wants to see CUDA used */
    tap_skip_all("under compute-sanitizer no memory is lent");
}

/* Whether there may be too little room to pin what a test wants. */
static inline int pipe_few_pins(void) { return getenv("PIPE_FEW_PINS") != NULL; }

/* Where little can be pinned, what asks for pinned slots is refused in words. Leaves it to the
   library then, which must do without; 0 = that is not what went wrong. */
static inline int pipe_leave_open(spipe_desc_t *d, cudaError_t e, const spipe_failure_t *f) {
    static int told;
    const int zero_copy = d->schedule == SPIPE_SCHEDULE_ZERO_COPY;
    if (e != cudaErrorMemoryAllocation || !pipe_few_pins()) return 0;
    if (!strstr(f->message, "pinned host") || !strstr(f->message, "to the library")) return 0;
    if (d->staging != SPIPE_STAGING_COPY && !zero_copy) return 0;
    if (told++ == 0) tap_note("refused, so left to the library: %s", f->message);
    d->staging = SPIPE_STAGING_AUTO;
    if (zero_copy) d->schedule = SPIPE_SCHEDULE_AUTO;
    return 1;
}

static inline cudaError_t pipe_run(const spipe_desc_t *d, spipe_report_t *report) {
    spipe_report_t own, *r = report ? report : &own;
    const cudaError_t e = spipe_run(d, r);
    spipe_desc_t open = spipe_desc_default();
    if (d) open = *d;
    return pipe_leave_open(&open, e, &r->failure) ? spipe_run(&open, report) : e;
}

static inline void pipe_check_run(const spipe_desc_t *d, spipe_report_t *report, const char *file,
                                  int line) {
    spipe_report_t own, *r = report ? report : &own;
    const cudaError_t e = pipe_run(d, r);
    spipe_priv_check(e, "spipe_run", r->failure.message, file, line);
}

static inline cudaError_t pipe_create(spipe_pipeline_t **p, const spipe_desc_t *d,
                                      spipe_failure_t *failure) {
    spipe_failure_t own, *f = failure ? failure : &own;
    const cudaError_t e = spipe_pipeline_create(p, d, f);
    spipe_desc_t open = spipe_desc_default();
    if (d) open = *d;
    return pipe_leave_open(&open, e, f) ? spipe_pipeline_create(p, &open, failure) : e;
}

#undef SPIPE_CHECK_RUN
#define SPIPE_CHECK_RUN(d, report)           pipe_check_run((d), (report), __FILE__, __LINE__)
#define spipe_run(d, report)                 pipe_run(d, report)
#define spipe_pipeline_create(p, d, failure) pipe_create(p, d, failure)

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

/* A host array of some kind of memory; at is what the pipeline is given. One that was to be pinned
   is pageable where pins are scarce: memory says which. */
typedef struct pipe_array {
    unsigned char *base, *at;
    size_t bytes;
    int memory;
} pipe_array_t;

static inline pipe_array_t pipe_array_new(size_t bytes, int memory) {
    pipe_array_t a;
    void *p = NULL;
    a.bytes = bytes;
    if (memory == PIPE_PINNED && pipe_few_pins()) {
        if (spipe_pinned_alloc(&p, bytes + 64) != cudaSuccess) {
            (void)cudaGetLastError();
            tap_note("no room to pin %zu bytes: that array is pageable", bytes);
            memory = PIPE_PAGEABLE;
        }
    } else if (memory == PIPE_PINNED) {
        SPIPE_CHECK(spipe_pinned_alloc(&p, bytes + 64));
    }
    a.memory = memory;
    if (memory != PIPE_PINNED) p = malloc(bytes + 64);
    if (!p) exit(99);
    a.base = (unsigned char *)p;
    a.at = a.base + (memory == PIPE_UNALIGNED ? 1 : 0);
    return a;
}

static inline void pipe_randomise(pipe_array_t a) {
    /* The seed in a local: a sanitizer looks at each access of memory. */
    unsigned seed = pipe_seed;
    size_t i;
    for (i = 0; i < a.bytes; ++i) {
        seed = seed * 1664525u + 1013904223u;
        a.at[i] = (unsigned char)(seed >> 8);
    }
    pipe_seed = seed;
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

/* Whether the test's own arrays of so many bytes together can be pinned. */
static inline int pipe_can_pin(size_t bytes) {
    pipe_array_t a = pipe_array_new(bytes, PIPE_PINNED);
    const int pinned = a.memory == PIPE_PINNED;
    pipe_free(&a);
    return pinned;
}

/* A loop that compares millions of elements takes ThreadSanitizer seconds, as it looks at each
   access. So pipe_reads shows it all of the bytes at once, which it holds against who wrote them,
   and then a function that is PIPE_UNWATCHED compares them. */
#if defined(__SANITIZE_THREAD__)
#ifdef __cplusplus
extern "C"
#endif
    void
    __tsan_read_range(void *at, unsigned long bytes);
#define PIPE_UNWATCHED __attribute__((no_sanitize_thread, noinline))

static inline void pipe_reads(const void *at, size_t bytes) {
    __tsan_read_range((void *)(size_t)at, bytes);
}
#else
#define PIPE_UNWATCHED

static inline void pipe_reads(const void *at, size_t bytes) {
    (void)at;
    (void)bytes;
}
#endif

/* Byte b of element e of an array: what every test stage is a function of, so that a chunk at the
   wrong place, a stale slot and a lost remainder all show. */
static inline unsigned char pipe_mix(unsigned char byte, size_t at) {
    return (unsigned char)(byte * 7u + (unsigned char)(at * 31u) + 3u);
}

/* The first byte that differs, or n. Nearly always all are equal, which memcmp says at once. */
static inline size_t pipe_differs(const unsigned char *a, const unsigned char *b, size_t n) {
    size_t i;
    if (n == 0 || memcmp(a, b, n) == 0) return n;
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
