/*  test_resources.cu -- resources that runs share: results are those of runs without them,
    nothing is set up twice, runs get memory in turn, and every refusal is in words. */
#include "resources_common.h"

#include <atomic>
#include <stdexcept>
#include <string>
#include <unistd.h>
#if !defined(_WIN32)
#include <sys/wait.h>
#endif
#if defined(__HOSTCUDA__)
#include "hostcuda.h"
#endif

enum {
    COUNT = RESOURCES_COUNT,
    THREADS = 6
};

/* What one thread runs: a description, its arrays, and what a stage does beside its work. */
typedef struct world {
    spipe_desc_t d;
    spipe_report_t r;
    spipe_failure_t f;
    unsigned *x, *y, sum;
    size_t count, taken;
    int resident;
    size_t fail_at; /* chunk */
    int throws;
    void (*during)(struct world *w); /* called in the first chunk's stage, or NULL */
    cudaError_t got;
    spipe_resources_t *other;
} world_t;

static cudaError_t add(const spipe_chunk_t *c, void *user) {
    world_t *w = (world_t *)user;
    if (c->index == w->fail_at && w->throws) throw std::runtime_error("the stage gave up");
    if (c->index == w->fail_at) return spipe_chunk_fail(c, "the stage gave up");
    if (c->index == 0 && w->during) w->during(w);
    return SPIPE_LAUNCH(resources_kernel, spipe_blocks(c->count, 64), 64, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned), SPIPE_BUF(c, 1, unsigned), c->count,
                        c->first, w->resident ? SPIPE_BUF(c, 2, unsigned) : NULL);
}

static cudaError_t give(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t most = part->count;
    size_t *count = &part->count;
    world_t *w = (world_t *)user;
    *count = w->count - w->taken < most ? w->count - w->taken : most;
    memcpy(dst, w->x + w->taken, *count * 4);
    w->taken += *count;
    return cudaSuccess;
}

static cudaError_t take_at(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    memcpy(((world_t *)user)->y + first, src, count * 4);
    return cudaSuccess;
}

static void world_new(world_t *w, spipe_resources_t *r, kind_t kind, size_t count) {
    memset((void *)w, 0, sizeof *w);
    w->count = count;
    w->fail_at = SIZE_MAX;
    w->resident = kind == RESIDENT;
    resources_arrays_new(kind, &w->x, &w->y);
    w->d = spipe_desc_default();
    w->d.resources = r;
    if (kind == HOSTED) {
        w->d.count = count;
        spipe_add_source(&w->d, give, w, 4, SPIPE_IN_ORDER);
        spipe_add_sink(&w->d, take_at, w, 4, SPIPE_ANY_ORDER);
    } else {
        w->d.count = count;
        spipe_add_input(&w->d, w->x, 4);
        spipe_add_output(&w->d, w->y, 4);
    }
    if (w->resident) spipe_add_resident(&w->d, &w->sum, 4, SPIPE_DOWNLOAD);
    spipe_add_stage(&w->d, "add", add, w);
}

static int pinned_is(const world_t *w) { return w->d.buffers[0].kind == SPIPE_INPUT; }

static void world_free(world_t *w, kind_t kind) { resources_arrays_free(kind, w->x, w->y); }

/* Whether the output is right, and poisons it for the next run. */
static int right(world_t *w) {
    size_t wrong = resources_wrong(w->x, w->y, w->count);
    if (w->resident) wrong += w->sum != resources_sum(w->x, w->count);
    w->sum = 0;
    w->taken = 0;
    return wrong == 0;
}

static spipe_resources_t *resources_new(size_t device, size_t pinned) {
    spipe_resources_limits_t l = spipe_resources_limits_default();
    spipe_resources_t *r = NULL;
    spipe_failure_t f;
    l.device_bytes = device;
    l.pinned_bytes = pinned;
    l.threads = 8;
    if (spipe_resources_create(&r, &l, &f) != cudaSuccess) {
        printf("# %s\n", f.message);
        exit(99);
    }
    return r;
}

static spipe_resources_usage_t usage_of(spipe_resources_t *r) {
    spipe_resources_usage_t u;
    SPIPE_CHECK(spipe_resources_usage(r, &u));
    return u;
}

static int idle(spipe_resources_t *r) {
    const spipe_resources_usage_t u = usage_of(r);
    return u.runs == 0 && u.waiting == 0 && u.device_bytes == 0 && u.pinned_bytes == 0;
}

static void resources_end(spipe_resources_t *r) {
    spipe_failure_t f;
    const cudaError_t e = spipe_resources_destroy(r, &f);
    tap_ok(e == cudaSuccess, "and the resources are freed: %s", f.message);
}

/* ---- Once ----------------------------------------------------------------------------------- */
static void test_once(void) {
    static const size_t counts[] = {0, 1, 31, 1000, COUNT};
    spipe_resources_t *r = resources_new(4 << 20, 1 << 20);
    int kind, k, wrong = 0;
    for (kind = 0; kind < NUM_KINDS; ++kind) {
        for (k = 0; k < 10; ++k) {
            world_t w;
            world_new(&w, r, (kind_t)kind, counts[k % 5]);
            if (k >= 5) w.d.chunk = 700;
            w.d.checked = k == 8;
            SPIPE_CHECK_RUN(&w.d, &w.r);
            wrong += !right(&w) || w.r.waited_ms > 0.0 || w.r.runs_beside != 0;
            world_free(&w, (kind_t)kind);
        }
        tap_ok(wrong == 0 && idle(r), "once, %s: right, and all is given back", kind_names[kind]);
    }
    resources_end(r);
}

/* After the first runs nothing is allocated, created or started any more. */
static void test_sets_up_nothing(void) {
#if defined(__HOSTCUDA__)
    static const char *const calls[] = {"cudaMalloc",        "cudaFree",
                                        "cudaHostRegister",  "cudaHostUnregister",
                                        "cudaHostAlloc",     "cudaStreamCreateWithPriority",
                                        "cudaStreamDestroy", "cudaEventCreateWithFlags",
                                        "cudaEventDestroy",  "cudaGetDeviceProperties"};
    spipe_resources_t *r = resources_new(4 << 20, 1 << 20);
    spipe_resources_usage_t before, after;
    size_t i;
    long made = 0;
    int k, wrong = 0;
    world_t w;
    world_new(&w, r, PAGEABLE, COUNT);
    w.d.chunk = 1000;
    w.d.threads = pipe_threads() ? 2 : SPIPE_AUTO;
    for (k = 0; k < 2; ++k) SPIPE_CHECK_RUN(&w.d, &w.r);
    before = usage_of(r);
    hostcuda_calls_reset();
    for (k = 0; k < 5; ++k) {
        SPIPE_CHECK_RUN(&w.d, &w.r);
        wrong += !right(&w);
    }
    for (i = 0; i < sizeof calls / sizeof *calls; ++i) made += hostcuda_calls(calls[i]);
    after = usage_of(r);
    tap_ok(wrong == 0 && made == 0, "a run once sets nothing up: %ld calls that make things", made);
    tap_ok(after.threads == before.threads && after.streams == before.streams &&
               after.events == before.events,
           "nor more threads (%zu), streams (%zu) or events (%zu)", after.threads, after.streams,
           after.events);
    tap_ok(!pipe_threads() || (before.threads == 4 && w.r.fill_threads == 2),
           "two threads fill and two drain");
    world_free(&w, PAGEABLE);
    resources_end(r);
#else
    tap_skip("a run once sets nothing up", "counting calls needs hostcuda");
#endif
}

/* ---- Kept ----------------------------------------------------------------------------------- */
static void test_kept(void) {
    spipe_resources_t *r = resources_new(4 << 20, 1 << 20);
    spipe_pipeline_t *p[NUM_KINDS];
    world_t w[NUM_KINDS];
    int kind, k, wrong = 0;
    for (kind = 0; kind < NUM_KINDS; ++kind) {
        world_new(&w[kind], r, (kind_t)kind, COUNT - (size_t)kind);
        SPIPE_CHECK(spipe_pipeline_create(&p[kind], &w[kind].d, &w[kind].f));
        wrong += !idle(r);
    }
    tap_ok(wrong == 0, "a kept pipeline has no memory until it runs");
    tap_ok(usage_of(r).pipelines == NUM_KINDS, "%zu pipelines use them", usage_of(r).pipelines);
    for (k = 0; k < 30; ++k) {
        kind = (int)(pipe_random() % NUM_KINDS);
        if (pinned_is(&w[kind]) && pipe_random() % 4 == 0) {
            w[kind].count = pipe_random() % COUNT;
            SPIPE_CHECK(spipe_pipeline_set_count(p[kind], w[kind].count));
        }
        SPIPE_CHECK(spipe_pipeline_run(p[kind], &w[kind].r));
        wrong += !right(&w[kind]) || !idle(r);
    }
    tap_ok(wrong == 0, "pipelines that take turns with the same memory are right");
    tap_ok(spipe_resources_destroy(r, &w[0].f) == cudaErrorNotPermitted,
           "resources in use are not freed: %s", w[0].f.message);
    for (kind = 0; kind < NUM_KINDS; ++kind) {
        SPIPE_CHECK(spipe_pipeline_destroy(p[kind]));
        world_free(&w[kind], (kind_t)kind);
    }
    resources_end(r);
}

/* A pipeline whose memory lies elsewhere in each run: another holds what it had. */
static world_t *inner;
static spipe_pipeline_t *inner_pipeline;

static void run_inner(world_t *w) {
    (void)w;
    inner->got = spipe_pipeline_run(inner_pipeline, &inner->r);
}

static void test_moved(void) {
    spipe_resources_t *r = resources_new(4 << 20, 1 << 20);
    world_t a, b;
    spipe_pipeline_t *p, *q;
    int k, wrong = 0;
    world_new(&a, r, PINNED, COUNT);
    world_new(&b, r, PINNED, COUNT / 2);
    a.d.chunk = b.d.chunk = 1000;
    SPIPE_CHECK(spipe_pipeline_create(&p, &a.d, NULL));
    SPIPE_CHECK(spipe_pipeline_create(&q, &b.d, NULL));
    inner = &b;
    inner_pipeline = q;
    for (k = 0; k < 8; ++k) {
        a.during = k % 2 ? run_inner : NULL; /* so the other one runs where this one was, or not */
        SPIPE_CHECK(spipe_pipeline_run(p, &a.r));
        if (!a.during) SPIPE_CHECK(spipe_pipeline_run(q, &b.r));
        wrong += !right(&a) || !right(&b) || b.got != cudaSuccess;
        wrong += b.r.runs_beside != (size_t)(k % 2);
    }
    tap_ok(wrong == 0, "a pipeline's memory may lie elsewhere in each run");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(spipe_pipeline_destroy(q));
    world_free(&a, PINNED);
    world_free(&b, PINNED);
    resources_end(r);
}

/* ---- What does not fit ---------------------------------------------------------------------- */
static void test_too_large(void) {
    spipe_resources_t *r = resources_new(64 << 10, 64 << 10);
    spipe_pipeline_t *p = NULL;
    world_t w;
    world_new(&w, r, PINNED, COUNT);
    SPIPE_CHECK_RUN(&w.d, &w.r);
    tap_ok(right(&w) && w.r.device_bytes <= 64 << 10, "a plan fits: %zu bytes of %d",
           w.r.device_bytes, 64 << 10);
    w.d.chunk = 10000;
    w.d.depth = 2;
    tap_ok(spipe_run(&w.d, &w.r) == cudaErrorMemoryAllocation &&
               strstr(w.r.failure.message, "do not fit into resources"),
           "one that was asked for and does not: %s", w.r.failure.message);
    tap_ok(spipe_pipeline_create(&p, &w.d, &w.f) == cudaErrorMemoryAllocation && !p && idle(r),
           "nor kept: %s", w.f.message);
    w.d.chunk = w.d.depth = SPIPE_AUTO;
    SPIPE_CHECK_RUN(&w.d, &w.r);
    tap_ok(right(&w) && idle(r), "and the next one runs");
    world_free(&w, PINNED);
    resources_end(r);
}

/* No pinned memory in them: pageable arrays are left to CUDA. */
static void test_nothing_pinned(void) {
    spipe_resources_t *r = resources_new(1 << 20, 0);
    world_t w;
    world_new(&w, r, PAGEABLE, COUNT);
    SPIPE_CHECK_RUN(&w.d, &w.r);
    tap_ok(right(&w) && w.r.pinned_bytes == 0, "with no pinned memory: %s", w.r.why_staging);
    world_free(&w, PAGEABLE);
    world_new(&w, r, HOSTED, COUNT);
    SPIPE_CHECK_RUN(&w.d, &w.r);
    tap_ok(right(&w) && w.r.pinned_bytes == 0, "nor for a source: %s", w.r.why_staging);
    world_free(&w, HOSTED);
    resources_end(r);
}

#if defined(__HOSTCUDA__)
/* Where the system refuses to pin them, resources have none, and say so in what runs choose. */
static void test_cannot_pin(void) {
    spipe_resources_t *r;
    world_t w;
    hostcuda_set_pinned_limit(4096);
    r = resources_new(1 << 20, 1 << 20);
    world_new(&w, r, PAGEABLE, COUNT);
    SPIPE_CHECK_RUN(&w.d, &w.r);
    tap_ok(right(&w) && w.r.pinned_bytes == 0 && usage_of(r).most_pinned_bytes == 0,
           "resources that could not be pinned: %s", w.r.why_staging);
    w.d.staging = SPIPE_STAGING_COPY;
    w.d.threads = 0;
    tap_ok(spipe_run(&w.d, &w.r) == cudaErrorMemoryAllocation && idle(r),
           "what needs them is refused: %s", w.r.failure.message);
    world_free(&w, PAGEABLE);
    resources_end(r);
    hostcuda_set_pinned_limit((size_t)-1);
}
#endif

static int no_wait;

static void run_no_wait(world_t *w) {
    world_t v;
    world_new(&v, w->d.resources, PAGEABLE, 1000);
    v.d.chunk = 2000;
    v.d.no_wait = no_wait;
    w->got = spipe_run(&v.d, &v.r);
    w->f = v.r.failure;
    world_free(&v, PAGEABLE);
}

/* Inside a stage of the run that has all there is: to wait would be to wait for itself. */
static void test_no_wait(void) {
    spipe_resources_t *r = resources_new(64 << 10, 64 << 10);
    world_t w;
    world_new(&w, r, PINNED, COUNT);
    w.d.chunk = 4000;
    w.d.depth = 2; /* 64,000 bytes: all there is */
    w.during = run_no_wait;
    no_wait = 1;
    SPIPE_CHECK_RUN(&w.d, &w.r);
    tap_ok(right(&w) && w.got == SPIPE_WOULD_WAIT && strstr(w.f.message, "no_wait"),
           "a run that would have to wait, and may not: %s", w.f.message);
    no_wait = 0;
    SPIPE_CHECK_RUN(&w.d, &w.r);
    tap_ok(right(&w) && w.got == cudaErrorNotPermitted && strstr(w.f.message, "itself"),
           "nor does one wait for the run that it is in: %s", w.f.message);
    world_free(&w, PINNED);
    resources_end(r);
}

/* ---- Waiting -------------------------------------------------------------------------------- */
#if !defined(SPIPE_NO_THREADS)
static int order[THREADS], num_ended;
static pthread_mutex_t order_lock = PTHREAD_MUTEX_INITIALIZER;

static void wait_for_waiters(world_t *w) {
    while (usage_of(w->d.resources).waiting < THREADS) usleep(200);
}

static void note_order(world_t *w) {
    pthread_mutex_lock(&order_lock);
    order[num_ended++] = (int)w->d.priority;
    pthread_mutex_unlock(&order_lock);
}

static void *run_world(void *arg) {
    world_t *w = (world_t *)arg;
    w->got = spipe_run(&w->d, &w->r);
    return NULL;
}

/* One run has all the memory until as many wait as there are threads; then it is their turn, by
   priority. */
static void test_waiting(void) {
    static const spipe_priority_t priorities[THREADS] = {
        SPIPE_PRIORITY_LOW,  SPIPE_PRIORITY_HIGH,   SPIPE_PRIORITY_DEFAULT,
        SPIPE_PRIORITY_HIGH, SPIPE_PRIORITY_MEDIUM, SPIPE_PRIORITY_LOW};
    spipe_resources_t *r = resources_new(64 << 10, 64 << 10);
    world_t first, w[THREADS];
    pthread_t threads[THREADS], holder;
    int k, wrong = 0, high;
    world_new(&first, r, PINNED, COUNT);
    first.d.chunk = 4000;
    first.d.depth = 2;
    first.during = wait_for_waiters;
    num_ended = 0;
    pthread_create(&holder, NULL, run_world, &first);
    while (usage_of(r).device_bytes == 0) usleep(200);
    for (k = 0; k < THREADS; ++k) {
        world_new(&w[k], r, PINNED, COUNT);
        w[k].d.chunk = 4000;
        w[k].d.depth = 2;
        w[k].d.priority = priorities[k];
        w[k].during = note_order;
        pthread_create(&threads[k], NULL, run_world, &w[k]);
    }
    pthread_join(holder, NULL);
    for (k = 0; k < THREADS; ++k) pthread_join(threads[k], NULL);
    wrong = first.got != cudaSuccess || !right(&first);
    for (k = 0; k < THREADS; ++k) {
        wrong += w[k].got != cudaSuccess || !right(&w[k]) || !(w[k].r.waited_ms > 0.0);
        wrong += w[k].r.runs_beside == 0;
        world_free(&w[k], PINNED);
    }
    tap_ok(wrong == 0 && idle(r), "runs that wait for memory get it, and are right");
    high = order[0] == SPIPE_PRIORITY_HIGH && order[1] == SPIPE_PRIORITY_HIGH;
    tap_ok(high && order[2] == SPIPE_PRIORITY_MEDIUM, "those of a higher priority first");
    tap_ok(usage_of(r).most_runs == THREADS + 1, "%zu runs at once", usage_of(r).most_runs);
    world_free(&first, PINNED);
    resources_end(r);
}

/* A run in a stage, while another thread waits for the memory of the run around it. */
static pthread_t large_thread;
static world_t large;

static void run_before_waiter(world_t *w) {
    world_t v;
    pthread_create(&large_thread, NULL, run_world, &large);
    while (usage_of(w->d.resources).waiting == 0) usleep(200);
    world_new(&v, w->d.resources, PINNED, 1000);
    v.d.chunk = 500;
    v.d.depth = 2;
    w->got = spipe_run(&v.d, &v.r);
    if (!right(&v)) w->got = cudaErrorUnknown;
    world_free(&v, PINNED);
}

static void test_inside(void) {
    spipe_resources_t *r = resources_new(64 << 10, 64 << 10);
    world_t w;
    world_new(&w, r, PINNED, COUNT);
    world_new(&large, r, PINNED, COUNT);
    w.d.chunk = 1500;
    large.d.chunk = 4000;
    w.d.depth = large.d.depth = 2;
    w.during = run_before_waiter;
    SPIPE_CHECK_RUN(&w.d, &w.r);
    pthread_join(large_thread, NULL);
    tap_ok(w.got == cudaSuccess && large.got == cudaSuccess && right(&w) && right(&large),
           "a run in a stage does not wait behind who waits for the run around it");
    world_free(&w, PINNED);
    world_free(&large, PINNED);
    resources_end(r);
}

/* Two threads, each with a run in a stage that wants what both runs around have. */
static pthread_barrier_t both_inside;

static void run_too_much(world_t *w) {
    world_t v;
    (void)pthread_barrier_wait(&both_inside);
    world_new(&v, w->d.resources, PINNED, COUNT);
    v.d.chunk = 2500;
    v.d.depth = 2;
    v.got = spipe_run(&v.d, &v.r);
    w->other = v.got == cudaSuccess && right(&v) ? w->d.resources : NULL;
    w->f = v.r.failure;
    world_free(&v, PINNED);
}

static void test_each_other(void) {
    spipe_resources_t *r = resources_new(64 << 10, 64 << 10);
    pthread_t threads[2];
    world_t w[2];
    int k, refused = 0, wrong = 0;
    (void)pthread_barrier_init(&both_inside, NULL, 2);
    for (k = 0; k < 2; ++k) {
        world_new(&w[k], r, PINNED, COUNT);
        w[k].d.chunk = 1500;
        w[k].d.depth = 2;
        w[k].during = run_too_much;
        pthread_create(&threads[k], NULL, run_world, &w[k]);
    }
    for (k = 0; k < 2; ++k) pthread_join(threads[k], NULL);
    for (k = 0; k < 2; ++k) {
        wrong += w[k].got != cudaSuccess || !right(&w[k]);
        if (w[k].other) continue;
        ++refused;
        wrong += w[k].f.error != cudaErrorNotPermitted;
    }
    tap_ok(wrong == 0 && refused > 0 && idle(r),
           "nor do two runs in stages wait for each other: %d refused", refused);
    (void)pthread_barrier_destroy(&both_inside);
    for (k = 0; k < 2; ++k) world_free(&w[k], PINNED);
    resources_end(r);
}

/* Many threads, all kinds of work, some of which fails or throws. */
static void *run_many(void *arg) {
    world_t *w = (world_t *)arg;
    spipe_resources_t *r = w->other;
    unsigned seed = (unsigned)w->count;
    int k;
    w->got = cudaSuccess;
    for (k = 0; k < 12; ++k) {
        world_t v;
        spipe_pipeline_t *p;
        cudaError_t e;
        kind_t kind;
        seed = seed * 1664525u + 1013904223u;
        kind = (kind_t)((seed >> 20) % NUM_KINDS);
        world_new(&v, r, kind, (seed >> 8) % COUNT);
        if (seed & 64) v.d.chunk = 500 + (seed >> 16) % 3000;
        if (seed & 128) v.fail_at = 1;
        v.d.priority = (spipe_priority_t)((seed >> 24) % 4);
        if (seed & 256) {
            e = spipe_pipeline_create(&p, &v.d, &v.f);
            if (e == cudaSuccess) {
                e = spipe_pipeline_run(p, &v.r);
                if (e == cudaSuccess && !right(&v)) w->got = cudaErrorUnknown;
                if (e == cudaSuccess) e = spipe_pipeline_run(p, &v.r);
                SPIPE_CHECK(spipe_pipeline_destroy(p));
            }
        } else {
            e = spipe_run(&v.d, &v.r);
        }
        if (e == cudaSuccess && !right(&v)) w->got = cudaErrorUnknown;
        if (e != cudaSuccess && v.fail_at != 1) w->got = e;
        world_free(&v, kind);
    }
    return NULL;
}

static void test_many(void) {
    spipe_resources_t *r = resources_new(1 << 20, 512 << 10);
    world_t w[THREADS];
    pthread_t threads[THREADS];
    int k, wrong = 0;
    memset((void *)w, 0, sizeof w);
    for (k = 0; k < THREADS; ++k) {
        w[k].other = r;
        w[k].count = (size_t)(pipe_random() + (unsigned)k);
        pthread_create(&threads[k], NULL, run_many, &w[k]);
    }
    for (k = 0; k < THREADS; ++k) {
        pthread_join(threads[k], NULL);
        wrong += w[k].got != cudaSuccess;
    }
    tap_ok(wrong == 0 && idle(r) && usage_of(r).pipelines == 0,
           "%d threads run, keep, fail and destroy at once: all right, and all given back",
           (int)THREADS);
    resources_end(r);
}

/* With others beside it a run has fewer threads, and more again when they have ended. */
static size_t threads_beside;
static int says_beside;

/* Whether the printed report has a text. */
static int print_says(const spipe_report_t *r, const char *text) {
    char all[4096] = "";
    FILE *f = tmpfile();
    size_t n;
    if (!f) return 0;
    SPIPE_CHECK(spipe_report_print(r, f));
    rewind(f);
    n = fread(all, 1, sizeof all - 1, f);
    all[n] = 0;
    fclose(f);
    return strstr(all, text) != NULL;
}

static void run_beside(world_t *w) {
    world_t v;
    world_new(&v, w->d.resources, PAGEABLE, COUNT);
    v.d.chunk = 1000;
    v.d.threads = 4;
    v.got = spipe_run(&v.d, &v.r);
    w->got = v.got;
    threads_beside = v.r.fill_threads;
    says_beside = print_says(&v.r, "1 run on the same resources");
    if (!right(&v)) w->got = cudaErrorUnknown;
    world_free(&v, PAGEABLE);
}

static void test_threads(kind_t kind) {
    spipe_resources_t *r = resources_new(4 << 20, 4 << 20);
    const size_t share = kind == PAGEABLE ? 2 : 4;
    world_t w;
    world_new(&w, r, kind, COUNT);
    w.d.chunk = 1000;
    w.d.threads = 4;
    w.during = run_beside;
    SPIPE_CHECK_RUN(&w.d, &w.r);
    tap_ok(right(&w) && w.got == cudaSuccess, "a run inside another's stage: right");
    tap_ok(says_beside, "and its report says that one ran beside it");
    if (pipe_threads()) {
        tap_ok(threads_beside == share && w.r.fill_threads == (kind == PAGEABLE ? 4 : 0),
               "beside a run with %s arrays it has %zu of 8 threads each way; alone that has %zu",
               kind_names[kind], threads_beside, w.r.fill_threads);
    }
    world_free(&w, kind);
    resources_end(r);
}
#endif

#if !defined(SPIPE_NO_THREADS)
/* ---- Memory that is kept -------------------------------------------------------------------- */
/* Nobody waits for what an enqueued pipeline keeps: not its own thread, nor another. */
static void test_kept_by_enqueued(void) {
    spipe_resources_t *r = resources_new(320 << 10, 64 << 10);
    spipe_pipeline_t *p;
    cudaStream_t stream;
    pthread_t thread;
    world_t w, v;
    int wrong = 0;
    world_new(&w, r, PINNED, COUNT);
    world_new(&v, r, PINNED, COUNT);
    w.d.chunk = 13000; /* 208,000 bytes */
    v.d.chunk = 8000;  /* 128,000 bytes */
    w.d.depth = v.d.depth = 2;
    SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_pipeline_enqueue(p, stream));
    SPIPE_CHECK(spipe_pipeline_wait(p, &w.r));
    wrong += !right(&w);
    tap_ok(spipe_run(&v.d, &v.r) == cudaErrorMemoryAllocation &&
               strstr(v.r.failure.message, "kept by others"),
           "an enqueued pipeline keeps its memory, and a run is told: %s", v.r.failure.message);
    if (pthread_create(&thread, NULL, run_world, &v) != 0) exit(99);
    pthread_join(thread, NULL);
    tap_ok(v.got == cudaErrorMemoryAllocation && strstr(v.r.failure.message, "kept by others"),
           "on another thread, too, which does not wait for ever");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK_RUN(&v.d, &v.r);
    tap_ok(wrong == 0 && right(&v), "destroyed, it gives it to who comes next");
    SPIPE_CHECK(cudaStreamDestroy(stream));
    world_free(&w, PINNED);
    world_free(&v, PINNED);
    resources_end(r);
}

/* ---- Threads that end in the middle --------------------------------------------------------- */
static spipe_pipeline_t *pulled;

static void *pull_one(void *arg) {
    world_t *w = (world_t *)arg;
    spipe_chunk_t c;
    w->got = spipe_pipeline_next(pulled, cudaStreamPerThread, &c);
    while (usage_of(w->d.resources).waiting == 0) usleep(200);
    return NULL;
}

static int is_told(const world_t *v) {
    return v->got == cudaErrorNotPermitted && strstr(v->r.failure.message, "thread has ended");
}

static std::atomic<int> came_back;

static void *run_and_tell(void *arg) {
    (void)run_world(arg);
    came_back = 1;
    return NULL;
}

static pthread_t goes_on;

/* Takes the other chunks; who comes meanwhile waits until the loop ends. */
static void *go_on(void *arg) {
    world_t *v = (world_t *)arg;
    pthread_t waiter;
    spipe_chunk_t c;
    int k;
    goes_on = pthread_self();
    for (k = 0; k < 2; ++k) {
        SPIPE_CHECK(spipe_pipeline_release(pulled, cudaStreamPerThread));
        SPIPE_CHECK(spipe_pipeline_next(pulled, cudaStreamPerThread, &c));
    }
    came_back = 0;
    if (pthread_create(&waiter, NULL, run_and_tell, v) != 0) exit(99);
    while (usage_of(v->d.resources).waiting == 0 && !came_back) usleep(200);
    (void)spipe_pipeline_end(pulled, NULL);
    pthread_join(waiter, NULL);
    return NULL;
}

/* A thread takes a chunk and ends. Who waits for the memory is told; then another one goes on with
   the loop: this one, or a new one, which the system may give the number of the one that ended. */
static void test_ended(int by_new) {
#if defined(_WIN32)
    (void)by_new;
    tap_skip("a thread ends in the middle", "with MinGW ends are not seen");
#else
    spipe_resources_t *r = resources_new(100 << 10, 64 << 10);
    pthread_t puller, waiter;
    world_t w, v;
    world_new(&w, r, PINNED, COUNT);
    world_new(&v, r, PINNED, COUNT);
    w.d.num_stages = 0;
    w.d.chunk = v.d.chunk = 4000;
    w.d.depth = v.d.depth = 2; /* 64,000 bytes */
    SPIPE_CHECK(spipe_pipeline_create(&pulled, &w.d, NULL));
    if (pthread_create(&puller, NULL, pull_one, &w) != 0) exit(99);
    while (usage_of(r).device_bytes == 0) usleep(200);
    if (pthread_create(&waiter, NULL, run_world, &v) != 0) exit(99);
    pthread_join(waiter, NULL); /* the first to be joined leaves its number last */
    pthread_join(puller, NULL);
    tap_ok(w.got == cudaSuccess && is_told(&v), "a thread ends in the middle: %s",
           v.r.failure.message);
    (void)run_world(&v);
    tap_ok(is_told(&v), "who comes later is told, too");
    if (!by_new) {
        (void)go_on(&v);
    } else {
        pthread_t next;
        if (pthread_create(&next, NULL, go_on, &v) != 0) exit(99);
        pthread_join(next, NULL);
    }
    tap_ok(v.got == cudaSuccess && right(&v) && idle(r),
           "another thread%s goes on with the loop: then others wait until that ends it",
           by_new && pthread_equal(goes_on, puller) ? " of the same number" : "");
    SPIPE_CHECK(spipe_pipeline_destroy(pulled));
    world_free(&w, PINNED);
    world_free(&v, PINNED);
    resources_end(r);
#endif
}

/* ---- A new thread ---------------------------------------------------------------------------- */
static spipe_schedule_t schedules[2];

/* The first calls that this thread makes to CUDA are those of the library. */
static void *run_first(void *arg) {
    world_t *w = (world_t *)arg;
    spipe_pipeline_t *p;
    w->got = spipe_pipeline_create(&p, &w->d, &w->f);
    if (w->got == cudaSuccess) w->got = spipe_pipeline_run(p, &w->r);
    if (w->got == cudaSuccess) schedules[0] = w->r.schedule;
    if (w->got == cudaSuccess) w->got = spipe_pipeline_destroy(p);
    return NULL;
}

static void *run_once_first(void *arg) {
    world_t *w = (world_t *)arg;
    w->got = spipe_run(&w->d, &w->r);
    schedules[1] = w->r.schedule;
    return NULL;
}

/* Whatever thread makes it, a run is planned alike: here zero-copy, which needs the address at
   which the device sees the arrays. */
static void test_new_thread(void) {
    spipe_resources_t *r = resources_new(4 << 20, 1 << 20);
    pthread_t thread;
    spipe_plan_t plan;
    world_t w;
    int k, wrong = 0;
    world_new(&w, r, PINNED, COUNT);
    spipe_stage_elementwise(&w.d, 0);
    for (k = 0; k < 2; ++k) {
        SPIPE_CHECK(spipe_plan(&w.d, k == 0, &plan, NULL));
        if (pthread_create(&thread, NULL, k == 0 ? run_first : run_once_first, &w) != 0) exit(99);
        pthread_join(thread, NULL);
        wrong += w.got != cudaSuccess || !right(&w);
        tap_ok(schedules[k] == plan.schedule && plan.schedule == SPIPE_SCHEDULE_ZERO_COPY,
               "%s, as a thread's first call: %s as in this thread (%s)",
               k == 0 ? "a pipeline" : "a run", spipe_schedule_name(schedules[k]),
               spipe_schedule_name(plan.schedule));
    }
    tap_ok(wrong == 0, "and each is right");
    world_free(&w, PINNED);
    resources_end(r);
}

/* ---- Threads that are cancelled ------------------------------------------------------------- */
static std::atomic<int> inside_stage, let_go;

static void sleep_in_stage(world_t *w) {
    (void)w;
    inside_stage = 1;
    while (!let_go) usleep(200); /* where a thread can be cancelled */
}

static void *run_and_end(void *arg) {
    (void)run_world(arg);
    pthread_testcancel();
    return NULL;
}

static void *run_quietly(void *arg) {
    world_t *w = (world_t *)arg;
    w->got = spipe_run(&w->d, &w->r);
    return NULL;
}

/* Runs that begin one after another and are all under way at the end. Those that have to make
   streams and events make some for the others, too: the fourth finds what it needs, and so does
   every run afterwards, while no more than four are under way. */
static void test_made_ahead(void) {
    enum {
        RUNS = 4
    };

    spipe_resources_t *r = resources_new(4 << 20, 1 << 20);
    spipe_resources_usage_t u[2 * RUNS];
    pthread_t threads[RUNS];
    world_t w[RUNS];
    int round, k, wrong = 0;
    for (round = 0; round < 2; ++round) {
        let_go = 0;
        for (k = 0; k < RUNS; ++k) {
            inside_stage = 0;
            world_new(&w[k], r, PINNED, COUNT);
            w[k].d.chunk = 4000;
            w[k].d.depth = 2;
            w[k].d.schedule = SPIPE_SCHEDULE_ENGINES; /* of each run, whatever runs beside it */
            w[k].during = sleep_in_stage;
            if (pthread_create(&threads[k], NULL, run_quietly, &w[k]) != 0) exit(99);
            while (!inside_stage) usleep(200);
            u[round * RUNS + k] = usage_of(r);
        }
        let_go = 1;
        for (k = 0; k < RUNS; ++k) {
            pthread_join(threads[k], NULL);
            wrong += w[k].got != cudaSuccess || !right(&w[k]);
            world_free(&w[k], PINNED);
        }
    }
    tap_ok(u[0].streams > 0 && u[0].streams < u[1].streams && u[3].streams == u[2].streams &&
               u[7].streams == u[3].streams,
           "streams while one to four runs are under way: %zu, %zu, %zu, %zu, and again %zu",
           u[0].streams, u[1].streams, u[2].streams, u[3].streams, u[7].streams);
    tap_ok(u[0].events > 0 && u[0].events < u[1].events && u[3].events == u[2].events &&
               u[7].events == u[3].events,
           "and events: %zu, %zu, %zu, %zu, and again %zu", u[0].events, u[1].events, u[2].events,
           u[3].events, u[7].events);
    tap_ok(wrong == 0 && idle(r), "each is right");
    resources_end(r);
}

/* One thread in a stage, and one that waits for its memory: both end when their runs have. */
static void test_cancelled(void) {
    spipe_resources_t *r = resources_new(64 << 10, 64 << 10);
    pthread_t threads[2];
    world_t w[2];
    void *how;
    int k, wrong = 0, cancelled = 0;
    inside_stage = let_go = 0;
    for (k = 0; k < 2; ++k) {
        world_new(&w[k], r, PINNED, COUNT);
        w[k].d.chunk = 4000;
        w[k].d.depth = 2; /* all there is */
    }
    w[0].during = sleep_in_stage;
    if (pthread_create(&threads[0], NULL, run_and_end, &w[0]) != 0) exit(99);
    while (!inside_stage) usleep(200);
    if (pthread_create(&threads[1], NULL, run_and_end, &w[1]) != 0) exit(99);
    while (usage_of(r).waiting == 0) usleep(200);
    for (k = 0; k < 2; ++k) pthread_cancel(threads[k]);
    usleep(2000);
    let_go = 1;
    for (k = 0; k < 2; ++k) {
        pthread_join(threads[k], &how);
        cancelled += how == PTHREAD_CANCELED;
        wrong += w[k].got != cudaSuccess || !right(&w[k]);
    }
    tap_ok(cancelled == 2 && wrong == 0 && idle(r),
           "a thread that is cancelled, in a stage or while it waits, ends when its run has");
    SPIPE_CHECK_RUN(&w[1].d, &w[1].r);
    tap_ok(right(&w[1]), "and the next one runs");
    for (k = 0; k < 2; ++k) world_free(&w[k], PINNED);
    resources_end(r);
}
#endif

/* Not under ThreadSanitizer: a call that finds the device broken waits for nothing, so it orders
   nothing. */
#if defined(__HOSTCUDA__) && !defined(SPIPE_NO_THREADS) && !defined(__SANITIZE_THREAD__)
/* The device breaks while threads run, and wait for memory: each run ends, and says why. */
static void *run_until_lost(void *arg) {
    world_t *w = (world_t *)arg;
    do {
        w->got = spipe_run(&w->d, &w->r);
    } while (w->got == cudaSuccess);
    return NULL;
}

static void test_lost(void) {
    spipe_resources_t *r = resources_new(64 << 10, 64 << 10);
    world_t w[THREADS];
    pthread_t threads[THREADS];
    int k, wrong = 0;
    for (k = 0; k < THREADS; ++k) {
        world_new(&w[k], r, k % 2 ? PINNED : PAGEABLE, COUNT);
        pthread_create(&threads[k], NULL, run_until_lost, &w[k]);
    }
    usleep(20000);
    hostcuda_break_device(cudaErrorIllegalAddress);
    for (k = 0; k < THREADS; ++k) {
        pthread_join(threads[k], NULL);
        wrong += w[k].got != cudaErrorIllegalAddress || !w[k].r.failure.message[0];
    }
    tap_ok(wrong == 0 && idle(r), "a device that is lost ends all runs: %s",
           w[0].r.failure.message);
    tap_ok(spipe_resources_destroy(r, &w[0].f) == cudaErrorIllegalAddress, "%s", w[0].f.message);
    SPIPE_CHECK(cudaDeviceReset());
    for (k = 0; k < THREADS; ++k) {
        if (k % 2 == 0) world_free(&w[k], PAGEABLE); /* what was pinned went with the device */
    }
}
#endif

/* ---- Failures ------------------------------------------------------------------------------- */
static void test_failures(void) {
    spipe_resources_t *r = resources_new(4 << 20, 1 << 20);
    int kind, kept, throws, wrong = 0;
    for (kind = 0; kind < NUM_KINDS; ++kind) {
        for (kept = 0; kept < 2; ++kept) {
            for (throws = 0; throws < 2; ++throws) {
                spipe_pipeline_t *p = NULL;
                cudaError_t e = cudaSuccess;
                int caught = 0;
                world_t w;
                world_new(&w, r, (kind_t)kind, COUNT);
                w.d.chunk = 1000;
                w.d.depth = 4;
                w.fail_at = 3;
                w.throws = throws;
                if (kept) SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
                try {
                    e = kept ? spipe_pipeline_run(p, &w.r) : spipe_run(&w.d, &w.r);
                } catch (const std::runtime_error &) {
                    caught = 1;
                }
                wrong += caught != throws || (!throws && e == cudaSuccess);
                wrong += !throws && w.r.failure.chunks_whole != 3;
                memset(w.y, 0xA5, COUNT * 4);
                w.taken = 0;
                w.fail_at = SIZE_MAX;
                if (kept)
                    SPIPE_CHECK(spipe_pipeline_run(p, &w.r));
                else
                    SPIPE_CHECK_RUN(&w.d, &w.r);
                wrong += !right(&w) || !idle(r);
                SPIPE_CHECK(spipe_pipeline_destroy(p));
                world_free(&w, (kind_t)kind);
            }
        }
    }
    tap_ok(wrong == 0, "after a stage has failed or thrown, the next run is right");
    resources_end(r);
}

/* A stage that leaves a capture open in its stream, as a stage of a run may that fails. */
static cudaStream_t captured;

static cudaError_t capturing_stage(const spipe_chunk_t *c, void *user) {
    const world_t *w = (const world_t *)user;
    if (c->index != w->fail_at) return add(c, user);
    captured = c->stream;
    SPIPE_TRY(cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeRelaxed));
    return spipe_chunk_fail(c, "the stage gave up");
}

static void test_failed_streams(void) {
    spipe_resources_t *r = resources_new(4 << 20, 1 << 20);
    int k, kept, wrong = 0;
    for (kept = 0; kept < 2; ++kept) {
        world_t w, v;
        world_new(&w, r, PINNED, COUNT);
        world_new(&v, r, PINNED, COUNT);
        w.d.chunk = v.d.chunk = 1000;
        w.d.depth = v.d.depth = 4;
        w.d.stages[0].fn = capturing_stage;
        w.fail_at = 3;
        for (k = 0; k < 3; ++k) {
            spipe_pipeline_t *p = NULL;
            if (kept) SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
            wrong += (kept ? spipe_pipeline_run(p, &w.r) : spipe_run(&w.d, &w.r)) == cudaSuccess;
            (void)spipe_pipeline_destroy(p); /* which may say that a stream is captured */
            (void)cudaGetLastError();
            wrong += spipe_run(&v.d, &v.r) != cudaSuccess || !right(&v);
#if defined(__HOSTCUDA__) /* where a stream that is captured cannot be destroyed */
            cudaGraph_t graph = NULL;
            (void)cudaStreamEndCapture(captured, &graph);
            if (graph) SPIPE_CHECK(cudaGraphDestroy(graph));
            (void)cudaStreamDestroy(captured);
#endif
        }
        if (wrong) tap_note("%s", v.r.failure.message);
        world_free(&w, PINNED);
        world_free(&v, PINNED);
    }
    tap_ok(wrong == 0, "streams of a run that failed are not lent again: the next is right");
    resources_end(r);
}

/* A run that gets no memory is not under way. */
static void test_refused_run(void) {
    spipe_resources_t *r = resources_new(144 << 10, 64 << 10);
    spipe_pipeline_t *p, *q;
    spipe_chunk_t c;
    world_t w, v;
    int k, wrong = 0;
    world_new(&w, r, PINNED, COUNT);
    world_new(&v, r, PINNED, COUNT);
    w.d.chunk = v.d.chunk = 5000; /* 80,000 bytes each */
    w.d.depth = v.d.depth = 2;
    v.d.num_stages = 0;
    SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
    SPIPE_CHECK(spipe_pipeline_create(&q, &v.d, NULL));
    SPIPE_CHECK(spipe_pipeline_next(q, NULL, &c));
    for (k = 0; k < 3; ++k) {
        wrong += spipe_pipeline_run(p, &w.r) != cudaErrorNotPermitted || usage_of(r).runs != 1;
    }
    tap_ok(wrong == 0, "a run that is refused is none under way: %s", w.r.failure.message);
    (void)spipe_pipeline_end(q, NULL);
    wrong = !idle(r);
    SPIPE_CHECK(spipe_pipeline_run(p, &w.r));
    tap_ok(wrong == 0 && right(&w) && w.r.runs_beside == 0 && idle(r),
           "nor is it counted beside those after it");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(spipe_pipeline_destroy(q));
    world_free(&w, PINNED);
    world_free(&v, PINNED);
    resources_end(r);
}

static void test_refused(void) {
    spipe_resources_limits_t l = spipe_resources_limits_default();
    spipe_resources_t *r = resources_new(1 << 20, 1 << 20), *none = NULL;
    size_t garbage[64] = {1, 2, 3};
    spipe_failure_t f;
    spipe_plan_t plan;
    world_t w;
    tap_ok(spipe_resources_create(NULL, NULL, &f) == cudaErrorInvalidValue, "%s", f.message);
    l.device_bytes = 0;
    tap_ok(spipe_resources_create(&none, &l, &f) == cudaErrorInvalidValue && !none, "%s",
           f.message);
    l.device_bytes = SIZE_MAX - SIZE_MAX / 16;
    tap_ok(spipe_resources_create(&none, &l, &f) == cudaErrorMemoryAllocation && !none, "%s",
           f.message);
    memset((void *)&l, 0, sizeof l);
    tap_ok(spipe_resources_create(&none, &l, &f) == cudaErrorInvalidValue && !none, "%s",
           f.message);
    world_new(&w, (spipe_resources_t *)(void *)garbage, PAGEABLE, COUNT);
    tap_ok(spipe_run(&w.d, &w.r) == cudaErrorInvalidValue, "%s", w.r.failure.message);
    tap_ok(spipe_resources_destroy((spipe_resources_t *)(void *)garbage, &f) ==
               cudaErrorInvalidValue,
           "%s", f.message);
    w.d.resources = r;
    SPIPE_CHECK(spipe_plan(&w.d, 0, &plan, NULL));
    tap_ok(plan.chunk > 0 && idle(r), "a plan takes nothing");
    tap_ok(spipe_resources_usage(NULL, NULL) == cudaErrorInvalidValue &&
               spipe_resources_destroy(NULL, NULL) == cudaSuccess,
           "NULL is no resources");
    world_free(&w, PAGEABLE);
    resources_end(r);
}

static void test_other_device(void) {
    spipe_resources_t *r;
    world_t w;
    int devices = 0;
    SPIPE_CHECK(cudaGetDeviceCount(&devices));
    if (devices < 2) {
        tap_skip("resources of another device are refused", "needs two devices");
        return;
    }
    r = resources_new(1 << 20, 1 << 20);
    world_new(&w, r, PAGEABLE, COUNT);
    SPIPE_CHECK(cudaSetDevice(1));
    tap_ok(spipe_run(&w.d, &w.r) == cudaErrorInvalidValue, "%s", w.r.failure.message);
    SPIPE_CHECK(cudaSetDevice(0));
    world_free(&w, PAGEABLE);
    resources_end(r);
}

/* ---- In a stream's order, chunk by chunk ---------------------------------------------------- */
static void test_enqueued(void) {
    spipe_resources_t *r = resources_new(4 << 20, 1 << 20);
    spipe_pipeline_t *p;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    world_t w, v;
    int k, wrong = 0;
    world_new(&w, r, PINNED, COUNT);
    world_new(&v, r, PINNED, COUNT);
    w.d.chunk = 3000;
    SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    SPIPE_CHECK(spipe_pipeline_enqueue(p, stream));
    SPIPE_CHECK(cudaStreamEndCapture(stream, &graph));
    SPIPE_CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    tap_ok(usage_of(r).device_bytes > 0, "an enqueued pipeline keeps its memory");
    for (k = 0; k < 3; ++k) {
        SPIPE_CHECK(cudaGraphLaunch(exec, stream));
        SPIPE_CHECK_RUN(&v.d, &v.r); /* beside it */
        SPIPE_CHECK(cudaStreamSynchronize(stream));
        wrong += !right(&w) || !right(&v);
        SPIPE_CHECK(spipe_pipeline_run(p, &w.r));
        wrong += !right(&w);
        SPIPE_CHECK(spipe_pipeline_enqueue(p, stream));
        SPIPE_CHECK(spipe_pipeline_wait(p, &w.r));
        wrong += !right(&w);
    }
    tap_ok(wrong == 0, "captured, run and enqueued by turns, with others beside it: right");
    SPIPE_CHECK(cudaGraphExecDestroy(exec));
    SPIPE_CHECK(cudaGraphDestroy(graph));
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    tap_ok(idle(r), "destroyed, it gives it back");
    SPIPE_CHECK(cudaStreamDestroy(stream));
    world_free(&w, PINNED);
    world_free(&v, PINNED);
    resources_end(r);
}

#if !defined(SPIPE_NO_THREADS)
/* A graph of an enqueued run may be launched at any time, also while the pipeline itself has run
   since, and while others run: nobody else is lent its memory. */
static std::atomic<int> gate_is_open;

static void wait_at_gate(void *user) {
    (void)user;
    while (!gate_is_open) usleep(100);
}

static void let_graph_run(world_t *w) {
    gate_is_open = 1;
    SPIPE_CHECK(
        cudaStreamSynchronize((cudaStream_t)(void *)w->other)); /* this chunk is copied in */
}

static void test_graph_beside(int crowded) {
    spipe_resources_t *r = resources_new(4 << 20, 1 << 20);
    spipe_pipeline_t *p, *q[3];
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    spipe_chunk_t c;
    world_t w, v, loops[3];
    size_t bytes;
    int k, wrong = 0;
    world_new(&w, r, PINNED, COUNT);
    world_new(&v, r, PINNED, COUNT);
    for (k = 0; k < COUNT; ++k) v.x[k] = ~w.x[k];
    w.d.chunk = v.d.chunk = 3000;
    SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    SPIPE_CHECK(spipe_pipeline_enqueue(p, stream));
    SPIPE_CHECK(cudaStreamEndCapture(stream, &graph));
    SPIPE_CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    bytes = usage_of(r).device_bytes;
    for (k = 0; k < 3 && crowded; ++k) { /* so many others that a pipeline is planned anew */
        world_new(&loops[k], r, PINNED, COUNT);
        loops[k].d.num_stages = 0;
        loops[k].d.chunk = 1000;
        SPIPE_CHECK(spipe_pipeline_create(&q[k], &loops[k].d, NULL));
        SPIPE_CHECK(spipe_pipeline_next(q[k], stream, &c));
    }
    SPIPE_CHECK(spipe_pipeline_run(p, &w.r));
    wrong += !right(&w);
    for (k = 0; k < 3 && crowded; ++k) {
        (void)spipe_pipeline_end(q[k], NULL);
        SPIPE_CHECK(spipe_pipeline_destroy(q[k]));
        world_free(&loops[k], PINNED);
    }
    tap_ok(wrong == 0 && usage_of(r).device_bytes == bytes,
           "an enqueued pipeline that runs by itself keeps its memory%s",
           crowded ? ", also beside many" : "");
    gate_is_open = 0;
    SPIPE_CHECK(spipe_host_call(stream, wait_at_gate, NULL));
    SPIPE_CHECK(cudaGraphLaunch(exec, stream));
    v.other = (spipe_resources_t *)(void *)stream;
    v.during = let_graph_run;
    SPIPE_CHECK_RUN(&v.d, &v.r);
    SPIPE_CHECK(cudaStreamSynchronize(stream));
    tap_ok(right(&w) && right(&v), "its graph and a run beside it do not disturb each other");
    SPIPE_CHECK(cudaGraphExecDestroy(exec));
    SPIPE_CHECK(cudaGraphDestroy(graph));
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(cudaStreamDestroy(stream));
    world_free(&w, PINNED);
    world_free(&v, PINNED);
    resources_end(r);
}
#endif

static void test_pulled(void) {
    spipe_resources_t *r = resources_new(4 << 20, 1 << 20);
    spipe_pipeline_t *p;
    cudaStream_t stream;
    spipe_chunk_t c;
    world_t w;
    int k, wrong = 0;
    world_new(&w, r, PAGEABLE, COUNT);
    w.d.num_stages = 0;
    w.d.chunk = 3000;
    SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    for (k = 0; k < 3; ++k) {
        SPIPE_CHECK(spipe_pipeline_next(p, stream, &c));
        wrong += idle(r);
        while (c.count > 0) {
            c.stream = stream;
            SPIPE_CHECK(add(&c, &w));
            SPIPE_CHECK(spipe_pipeline_release(p, stream));
            SPIPE_CHECK(spipe_pipeline_next(p, stream, &c));
        }
        wrong += !right(&w) || !idle(r);
    }
    tap_ok(wrong == 0, "chunk by chunk: right, and given back at the end");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(cudaStreamDestroy(stream));
    world_free(&w, PAGEABLE);
    resources_end(r);
}

/* A loop that ends while it holds a chunk that its own stream still works on: until then nobody
   else is lent that memory. */
static __global__ void keep_kernel(const unsigned *x, unsigned *kept, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) kept[i] = x[i];
}

static void a_while(void *user) {
    (void)user;
    usleep(50000);
}

static void test_held(void) {
    spipe_resources_t *r = resources_new(1 << 20, 1 << 20);
    unsigned *kept, *seen = (unsigned *)malloc(3000 * 4);
    spipe_pipeline_t *p;
    cudaStream_t stream;
    spipe_chunk_t c;
    world_t w, v;
    size_t i, wrong = 0;
    if (!seen) exit(99);
    world_new(&w, r, PINNED, COUNT);
    world_new(&v, r, PINNED, COUNT);
    for (i = 0; i < COUNT; ++i) v.x[i] = ~w.x[i];
    w.d.num_stages = 0;
    w.d.chunk = v.d.chunk = 3000;
    SPIPE_CHECK(cudaMalloc((void **)&kept, 3000 * 4));
    SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_pipeline_next(p, stream, &c));
    SPIPE_CHECK(spipe_host_call(stream, a_while, NULL));
    SPIPE_CHECK(SPIPE_LAUNCH(keep_kernel, spipe_blocks(c.count, 64), 64, 0, stream,
                             SPIPE_BUF(&c, 0, const unsigned), kept, c.count));
    (void)spipe_pipeline_end(p, NULL);
    SPIPE_CHECK_RUN(&v.d, &v.r); /* takes the memory that was given back */
    SPIPE_CHECK(cudaStreamSynchronize(stream));
    SPIPE_CHECK(cudaMemcpy(seen, kept, c.count * 4, cudaMemcpyDefault));
    for (i = 0; i < c.count; ++i) wrong += seen[i] != w.x[i];
    tap_ok(wrong == 0 && right(&v), "a chunk that is held stays as it is for the work on it");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(cudaStreamDestroy(stream));
    SPIPE_CHECK(cudaFree(kept));
    free(seen);
    world_free(&w, PINNED);
    world_free(&v, PINNED);
    resources_end(r);
}

/* ---- A forked process ----------------------------------------------------------------------- */
static void test_fork(void) {
#if defined(_WIN32)
    tap_skip("a forked process is told that it cannot use them", "no fork here");
#else
    spipe_resources_t *r = resources_new(1 << 20, 1 << 20);
    int status = -1;
    world_t w;
    pid_t child;
    world_new(&w, r, PAGEABLE, COUNT);
    SPIPE_CHECK_RUN(&w.d, &w.r);
    child = fork();
    if (child == 0) {
        const cudaError_t e = spipe_run(&w.d, &w.r);
        const int told =
            e == cudaErrorInitializationError && strstr(w.r.failure.message, "process");
        _exit(told && spipe_resources_destroy(r, NULL) == e ? 0 : 1);
    }
    (void)waitpid(child, &status, 0);
    tap_ok(status == 0, "a forked process is told that it cannot use them");
    SPIPE_CHECK_RUN(&w.d, &w.r);
    tap_ok(right(&w), "and here they go on");
    world_free(&w, PAGEABLE);
    resources_end(r);
#endif
}

/* ---- Space ---------------------------------------------------------------------------------- */
/* Parts lent at random: none overlap, and what is free in one piece can be had. */
static void test_space(void) {
    enum {
        BLOCKS = 64,
        PARTS = 24
    };

    static unsigned char block[BLOCKS * 512];
    unsigned char *parts[PARTS] = {NULL}, owner[BLOCKS];
    size_t sizes[PARTS] = {0};
    spipe_priv_space_t s;
    int step, wrong = 0;
    memset(&s, 0, sizeof s);
    memset(owner, 0, sizeof owner);
    s.base = block;
    s.bytes = sizeof block;
    for (step = 0; step < 20000; ++step) {
        const unsigned k = pipe_random() % PARTS;
        size_t i, at, longest = 0, gap = 0;
        if (parts[k]) {
            spipe_priv_space_give(&s, parts[k]);
            at = (size_t)(parts[k] - block) / 512;
            for (i = 0; i < sizes[k]; ++i) owner[at + i] = 0;
            if (pipe_random() % 2) parts[k] = NULL;
            if (!parts[k]) continue;
            sizes[k] = (size_t)(parts[k] - block); /* asks for the same place */
        }
        for (i = 0; i < BLOCKS; ++i) {
            gap = owner[i] ? 0 : gap + 1;
            if (gap > longest) longest = gap;
        }
        {
            const unsigned char *before = parts[k];
            const size_t bytes = 1 + pipe_random() % (512 * 9);
            const size_t place = before ? sizes[k] / 512 : 0;
            sizes[k] = (bytes + 511) / 512;
            for (i = 0, gap = 0; before && place + i < BLOCKS && !owner[place + i]; ++i) ++gap;
            parts[k] = spipe_priv_space_take(&s, bytes, before);
            wrong += (parts[k] != NULL) != (longest >= sizes[k]);
            wrong += before && gap >= sizes[k] && parts[k] != before;
        }
        if (!parts[k]) continue;
        at = (size_t)(parts[k] - block) / 512;
        for (i = 0; i < sizes[k]; ++i) {
            wrong += owner[at + i] != 0;
            owner[at + i] = 1;
        }
        for (i = 0, gap = 0; i < BLOCKS; ++i) gap += owner[i];
        wrong += s.used != gap * 512;
    }
    tap_ok(wrong == 0, "parts of a space never overlap, and what fits is had");
    free((void *)s.spans);
}

int main(void) {
    pipe_needs_lending();
    test_space();
    test_once();
    test_sets_up_nothing();
    test_kept();
    test_moved();
    test_too_large();
    test_nothing_pinned();
#if defined(__HOSTCUDA__)
    if (!pipe_few_pins()) test_cannot_pin();
#endif
    test_no_wait();
#if !defined(SPIPE_NO_THREADS)
    test_waiting();
    test_inside();
    test_each_other();
    test_many();
    test_threads(PAGEABLE);
    test_threads(PINNED);
    test_kept_by_enqueued();
    test_ended(0);
    test_ended(1);
    test_new_thread();
    test_made_ahead();
    test_cancelled();
#endif
    test_failures();
    test_failed_streams();
    test_refused_run();
    test_refused();
    test_other_device();
    test_enqueued();
#if !defined(SPIPE_NO_THREADS)
    test_graph_beside(0);
    test_graph_beside(1);
#endif
    test_pulled();
    test_held();
    test_fork();
#if defined(__HOSTCUDA__) && !defined(SPIPE_NO_THREADS) && !defined(__SANITIZE_THREAD__)
    test_lost(); /* last */
#endif
    return tap_done();
}
