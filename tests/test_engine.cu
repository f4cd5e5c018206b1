/*  test_engine.cu -- the engine from outside: who calls stages and in which order, waits that use
    no CPU, and a worker that comes late. */
#include "pipe_common.h"

#include <atomic>
#include <time.h>
#include <unistd.h>

static __global__ void copy_kernel(const unsigned char *x, unsigned char *y, size_t n) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}

enum {
    CHUNKS = 48,
    CHUNK = 1000,
    COUNT = CHUNKS * CHUNK
};

static unsigned char give_at(size_t k) { return (unsigned char)(k * 7 + k / 251); }

/* What the functions of a run see. */
typedef struct seen {
    std::atomic<int> inside, most, calls, others, unordered;
    std::atomic<size_t> next;
    std::atomic<int> late, passed; /* chunks that were issued while one was late */
    uintptr_t caller;
    int ms;
} seen_t;

static void seen_clear(seen_t *s) {
    s->inside = s->most = s->calls = s->others = s->unordered = s->late = s->passed = 0;
    s->next = 0;
    s->caller = spipe_priv_this_thread();
    s->ms = 0;
}

static cudaError_t stage(const spipe_chunk_t *c, void *user) {
    seen_t *s = (seen_t *)user;
    const int now = ++s->inside;
    if (now > s->most) s->most = now;
    ++s->calls;
    s->others += spipe_priv_this_thread() != s->caller;
    s->unordered += c->index != s->next;
    s->next = c->index + 1;
    s->passed += s->late == 1;
    if (s->ms == 0) usleep(50);
    --s->inside;
    return SPIPE_LAUNCH(copy_kernel, spipe_blocks(c->count, 64), 64, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned char), SPIPE_BUF(c, 1, unsigned char),
                        c->count);
}

/* The chunk of this number comes late. */
enum {
    LATE = 5
};

static cudaError_t source_at(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t first = part->first, count = part->count;
    seen_t *s = (seen_t *)user;
    size_t k;
    if (s->ms > 0 && first == LATE * CHUNK) {
        s->late = 1;
        usleep((unsigned)s->ms * 1000u);
        s->late = 2;
    }
    if (s->ms == 0) usleep(200);
    for (k = 0; k < count; ++k) ((unsigned char *)dst)[k] = give_at(first + k);
    return cudaSuccess;
}

static size_t wrong_in(const unsigned char *y) {
    size_t k, wrong = 0;
    for (k = 0; k < COUNT; ++k) wrong += y[k] != give_at(k);
    return wrong;
}

static spipe_desc_t describe(seen_t *s, unsigned char *y, size_t threads, int ordered) {
    spipe_desc_t d = spipe_desc_default();
    d.count = COUNT;
    d.chunk = CHUNK;
    d.depth = 8;
    d.threads = threads;
    d.staging = SPIPE_STAGING_COPY;
    spipe_add_source(&d, source_at, s, 1, SPIPE_ANY_ORDER);
    spipe_add_output(&d, y, 1);
    const int number = spipe_add_stage(&d, "stage", stage, s);
    if (ordered) spipe_stage_ordered(&d, number);
    return d;
}

static void test_calls(void) {
    static unsigned char y[COUNT];
    static seen_t s;
    int ordered, on_caller, k;
    for (k = 0; k < 8; ++k) {
        spipe_pipeline_t *p;
        ordered = k & 1;
        on_caller = k >> 1 & 1;
        seen_clear(&s);
        memset(y, 0, sizeof y);
        spipe_desc_t d = describe(&s, y, k < 4 ? 3 : 0, ordered);
        d.stages_on_caller = on_caller;
        SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
        SPIPE_CHECK(spipe_pipeline_run(p, NULL));
        SPIPE_CHECK(spipe_pipeline_destroy(p));
        tap_ok(s.most == 1 && s.calls == CHUNKS && wrong_in(y) == 0,
               "%s threads: stages are called by one thread at a time, %d by others",
               k < 4 ? "3" : "no", (int)s.others);
        if (ordered) tap_ok(s.unordered == 0, "an ordered stage gets its chunks in order");
        if (on_caller) tap_ok(s.others == 0, "if asked to, the caller alone calls stages");
    }
}

/* ---- one that comes late -------------------------------------------------------------------- */

static void test_late(void) {
    static unsigned char y[COUNT];
    static seen_t s;
    spipe_pipeline_t *p;
    if (!pipe_threads() || spipe_priv_is_modelled()) {
        tap_skip("one late worker does not hold up the ring", "it is chunk by chunk on a model");
        return;
    }
    seen_clear(&s);
    s.ms = 300;
    spipe_desc_t d = describe(&s, y, 3, 0);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_run(p, NULL));
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    tap_ok(wrong_in(y) == 0 && s.passed > CHUNKS / 2,
           "while one worker is late with a chunk, %d others are issued", (int)s.passed);
}

/* ---- waits that use no CPU ------------------------------------------------------------------ */

static double cpu_seconds(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static cudaError_t sleepy_source(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    int *left = (int *)user;
    usleep(100000);
    *count = *left > 0 ? max_count : 0;
    --*left;
    memset(dst, 1, *count);
    return cudaSuccess;
}

static cudaError_t sleepy_stage(const spipe_chunk_t *c, void *user) {
    (void)c;
    (void)user;
    usleep(100000);
    return cudaSuccess;
}

static void test_blocking(void) {
    static unsigned char y[8 * CHUNK];
    static seen_t s;
    int k;
    for (k = 0; k < 2; ++k) {
        int left = 8;
        double cpu;
        spipe_desc_t d = spipe_desc_default();
        seen_clear(&s);
        s.ms = 1;
        d.count = 8 * CHUNK;
        d.chunk = CHUNK;
        d.threads = 2;
        d.depth = 3;
        d.blocking = 1;
        if (k == 0)
            spipe_add_source(&d, sleepy_source, &left, 1, SPIPE_IN_ORDER);
        else
            spipe_add_source(&d, source_at, &s, 1, SPIPE_ANY_ORDER);
        spipe_add_output(&d, y, 1);
        spipe_add_stage(&d, "stage", stage, &s);
        if (k == 1) {
            const int host =
                spipe_add_host_stage(&d, "sleepy", sleepy_stage, NULL, SPIPE_BIT(1), SPIPE_BIT(1));
            spipe_stage_ordered(&d, host);
        }
        cpu = cpu_seconds();
        SPIPE_CHECK(spipe_run(&d, NULL));
        cpu = cpu_seconds() - cpu;
        tap_ok(cpu < 0.15 && (k == 1 || y[0] == 1),
               "%s sleeps for 0.8 s: a blocking run takes %.1f ms of the CPU",
               k == 0 ? "a source" : "a host stage", 1e3 * cpu);
    }
}

int main(void) {
    test_calls();
    test_late();
    test_blocking();
    return tap_done();
}
