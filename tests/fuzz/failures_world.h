/*  failures_world.h -- what a scene of failures_scene.h runs with: arrays, a flag, and stages of
    which one fails on the device, once the flag is raised. */
#ifndef FAILURES_WORLD_H
#define FAILURES_WORLD_H

#include "fuzz/failures_scene.h"

#if defined(__HOSTCUDA__)
#include "hostcuda.h"
#endif
#include <pthread.h>
#include <time.h>

enum {
    FAILS_GUARD = 64,
    FAILS_POISON = 0xA5,
    FAILS_STUCK = 5 /* seconds in which nothing is called: then the host waits for something else */
};

struct fails_world;

typedef struct fails_part { /* what a callback is handed */
    struct fails_world *world;
    int number;
} fails_part_t;

typedef struct fails_timeline { /* tells which pipeline runs */
    spipe_priv_watcher_t watcher;
    struct fails_world *world;
} fails_timeline_t;

typedef struct fails_world {
    fails_scene_t s;
    fails_run_t r;
    unsigned char *ins[2], *outs[2]; /* guards before and behind */
    size_t given[2], taken[2];
    size_t begun, called;           /* chunks whose first, whose last stage was called; atomic */
    int armed;                      /* 1 = this run fails or is stopped */
    int flag;                       /* lets the bad kernel go; atomic */
    int reached, over;              /* the host is as far as it gets; the run is over; atomic */
    int stuck;                      /* 1 = it did not get so far */
    const spipe_priv_pipeline_t *p; /* that runs, where the test may ask it */
    size_t told, told_at_stop;      /* chunks, by the progress callback */
    fails_timeline_t timeline;
    fails_part_t parts[4], stages[FAILS_MAX_STAGES];
} fails_world_t;

#define FAILS_CHECK(w, cond, ...)                                                                  \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "fuzz: %s:%d: %s\n  ", __FILE__, __LINE__, #cond);                     \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fprintf(stderr, "\n");                                                                 \
            fails_print(&(w)->s);                                                                  \
            fprintf(stderr, "  depth %zu, last %zu, low %zu, high %zu, called %zu\n",              \
                    (w)->r.depth, (w)->r.last, (w)->r.low, (w)->r.high, (w)->called);              \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* ---- threads that are held up -------------------------------------------------------------- */
enum {
    FAILS_HELD_EVERY = 64, /* questions, of which one is held up */
    FAILS_HELD = 6,        /* at most so many in a run */
    FAILS_HELD_NAPS = 100, /* of 0.2 ms, at most, until the flag is raised */
    FAILS_HELD_ASKS = 1000
};

static struct {
    const int *flag; /* of the run that may fail; NULL = nobody is held up */
    unsigned asked, from;
} fails_held;

static inline void fails_nap(void) {
    const struct timespec pause = {0, 200000};
    nanosleep(&pause, NULL);
}

/* A thread that is about to ask is held up until the error is there, and may be the first to meet
   it. */
static inline cudaError_t fails_query(cudaEvent_t event) {
    /* relaxed, or the threads that ask would be ordered by it, which ThreadSanitizer believes */
    const int *flag = __atomic_load_n(&fails_held.flag, __ATOMIC_RELAXED);
    const unsigned n = __atomic_fetch_add(&fails_held.asked, 1, __ATOMIC_RELAXED);
    cudaError_t e = cudaSuccess;
    int i;
    if (!flag || n % FAILS_HELD_EVERY != fails_held.from || n / FAILS_HELD_EVERY >= FAILS_HELD) {
        return cudaEventQuery(event);
    }
    for (i = 0; i < FAILS_HELD_NAPS && !__atomic_load_n(flag, __ATOMIC_SEQ_CST); ++i) fails_nap();
    for (i = 0; i < FAILS_HELD_ASKS && (e == cudaSuccess || e == cudaErrorNotReady); ++i) {
        if (e == cudaErrorNotReady) (void)cudaGetLastError(); /* only the last answer stays */
        e = cudaEventQuery(event);
    }
    return e;
}

/* ---- the stages ---------------------------------------------------------------------------- */
/* y = x + z + 1 and also = 3 x, byte by byte; or it fails. */
static __global__ void fails_kernel(const unsigned char *x, const unsigned char *z,
                                    unsigned char *y, unsigned char *also, size_t n, int bad) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
#if defined(__CUDA_ARCH__)
    if (bad) __trap();
#endif
    if (bad || i >= n) return;
    if (also) also[i] = (unsigned char)(3 * x[i]);
    if (y) y[i] = (unsigned char)(x[i] + (z ? z[i] : 0) + 1);
}

/* Numbers of buffers: inputs, outputs, and the temporaries between the stages of the main line,
   which are all but one that stands apart. */
static inline int fails_line(const fails_scene_t *s, int stage) {
    return stage - (s->apart && stage > 1);
}

static inline cudaError_t fails_launch(const fails_world_t *w, const spipe_chunk_t *c, int stage) {
    const fails_scene_t *s = &w->s;
    const int apart = s->apart && stage == 1, at = fails_line(s, stage);
    const int temps = s->num_ins + s->num_outs, end = stage == s->num_stages - 1;
    const int ends = end || (s->apart && stage == 0 && s->num_stages == 2);
    const int also = s->num_outs > 1 && (s->apart ? stage == 1 : stage == 0);
    const int from = at == 0 || apart ? 0 : temps + at - 1;
    const int to = ends ? s->num_ins : temps + at;
    const size_t n = c->count * s->elem_bytes;
    const int has_z = ends && !apart && s->num_ins > 1;
    return SPIPE_LAUNCH(
        fails_kernel, spipe_blocks(n, 256), 256, 0, c->stream,
        SPIPE_BUF_ROW(c, from, const unsigned char, s->elem_bytes),
        has_z ? SPIPE_BUF_ROW(c, 1, const unsigned char, s->elem_bytes) : NULL,
        apart ? NULL : SPIPE_BUF_ROW(c, to, unsigned char, s->elem_bytes),
        also ? SPIPE_BUF_ROW(c, s->num_ins + 1, unsigned char, s->elem_bytes) : NULL, n, 0);
}

static void CUDART_CB fails_wait(void *user) {
    const fails_world_t *w = (const fails_world_t *)user;
    const struct timespec pause = {0, 200000};
    while (!__atomic_load_n(&w->flag, __ATOMIC_SEQ_CST)) nanosleep(&pause, NULL);
}

#if defined(__HOSTCUDA__)
/* hostcuda's clock stands still at a host function; at a kernel that takes long it goes on. */
typedef struct fails_gate {
    fails_world_t *world;
} fails_gate_t;

static __global__ void fails_gate_kernel(fails_gate_t gate) { fails_wait(gate.world); }
#endif

/* Work that waits for the flag. */
static inline cudaError_t fails_launch_gate(fails_world_t *w, cudaStream_t stream) {
#if defined(__HOSTCUDA__)
    const fails_gate_t gate = {w};
    hostcuda_kernel_time(fails_gate_kernel, 1e12, 0);
    return SPIPE_LAUNCH(fails_gate_kernel, 1, 1, 0, stream, gate);
#else
    return spipe_host_call(stream, fails_wait, w);
#endif
}

/* The bad chunk's kernel, behind the flag, but where the host would wait there, too. */
static inline cudaError_t fails_launch_bad(fails_world_t *w, const spipe_chunk_t *c) {
    unsigned char *none = NULL;
    if (!w->s.prompt && !w->s.checked) SPIPE_TRY(fails_launch_gate(w, c->stream));
#if defined(__HOSTCUDA__)
    hostcuda_fail_async("kernel", 1, cudaErrorIllegalAddress);
#endif
    return SPIPE_LAUNCH(fails_kernel, 1, 1, 0, c->stream, none, none, none, none, (size_t)0, 1);
}

static cudaError_t fails_stage(const spipe_chunk_t *c, void *user) {
    const fails_part_t *part = (const fails_part_t *)user;
    fails_world_t *w = part->world;
    const fails_scene_t *s = &w->s;
    const size_t last = fails_least(w->r.last + 1, s->num_chunks) - 1;
    cudaError_t e = cudaSuccess;
    const int fails = w->armed && s->what == FAILS_ON_DEVICE;
    if (fails && c->index == s->bad && part->number == s->bad_stage) e = fails_launch_bad(w, c);
    __atomic_store_n(&w->begun, c->index + 1, __ATOMIC_SEQ_CST);
    if (e == cudaSuccess) e = fails_launch(w, c, part->number);
    if (part->number != s->num_stages - 1) return e;
    __atomic_store_n(&w->called, c->index + 1, __ATOMIC_SEQ_CST);
    if (fails && c->index == last) __atomic_store_n(&w->reached, 1, __ATOMIC_SEQ_CST);
    return e;
}

static cudaError_t fails_source(spipe_part_t *elements, void *user) {
    void *dst = elements->data;
    const size_t max_count = elements->count;
    size_t *count = &elements->count;
    const fails_part_t *part = (const fails_part_t *)user;
    fails_world_t *w = part->world;
    size_t *given = &w->given[part->number];
    *count = fails_least(max_count, w->s.count - *given);
    memcpy(dst, w->ins[part->number] + FAILS_GUARD + *given * w->s.elem_bytes,
           *count * w->s.elem_bytes);
    *given += *count;
    return cudaSuccess;
}

static cudaError_t fails_sink(const spipe_part_t *elements, void *user) {
    const void *src = elements->data;
    const size_t first = elements->first, count = elements->count;
    const fails_part_t *part = (const fails_part_t *)user;
    fails_world_t *w = part->world;
    FAILS_CHECK(w, first == w->taken[part->number] && count > 0 && first + count <= w->s.count,
                "the sink of output %d is given %zu at %zu", part->number, count, first);
    memcpy(w->outs[part->number] + FAILS_GUARD + first * w->s.elem_bytes, src,
           count * w->s.elem_bytes);
    w->taken[part->number] = first + count;
    return cudaSuccess;
}

#endif
