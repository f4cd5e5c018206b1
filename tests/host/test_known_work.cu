/*  test_known_work.cu -- calls of spipe_run with resources that come again are run by pipelines
    that the resources keep: each is made as the first was, and nothing is tried; other work,
    kernels, arrays and less memory are told apart; every result is right. */
#include "hostcuda.h"
#include "pipe_common.h"

/* Elements of the smallest and of the largest work, and of each of many callers; how often each of
   these calls. A sanitizer takes minutes for kernels of 4 MiB; 512 KiB go the same ways. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum {
    LEAST = 128 << 10,
    MOST = 256 << 10,
    CALLED = 16 << 10,
    CALLS = 20
};
#else
enum {
    LEAST = 128 << 10,
    MOST = 1 << 20,
    CALLED = 64 << 10,
    CALLS = 60
};
#endif
enum {
    RUNS = 40
};

static __global__ void twice_kernel(const unsigned *x, unsigned *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i] + 1;
}

static __global__ void thrice_kernel(const unsigned *x, unsigned *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = 3 * x[i] + 1;
}

static cudaError_t twice(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(twice_kernel, spipe_blocks(c->count, 128), 128, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned), SPIPE_BUF(c, 1, unsigned), c->count);
}

static cudaError_t thrice(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(thrice_kernel, spipe_blocks(c->count, 128), 128, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned), SPIPE_BUF(c, 1, unsigned), c->count);
}

static unsigned *x, *y;
static size_t wrong;

static spipe_desc_t work(size_t count, spipe_stage_fn stage, spipe_resources_t *r) {
    spipe_desc_t d = spipe_desc_default();
    d.count = count;
    d.resources = r;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "multiply", stage, NULL);
    return d;
}

PIPE_UNWATCHED static size_t num_wrong(const unsigned *in, const unsigned *out, size_t n,
                                       unsigned factor) {
    size_t num = 0;
    for (size_t i = 0; i < n; ++i) num += out[i] != factor * in[i] + 1;
    return num;
}

static spipe_report_t once(const spipe_desc_t *d, unsigned factor) {
    spipe_report_t report;
    memset(y, 0xA5, d->count * sizeof *y);
    SPIPE_CHECK(spipe_run(d, &report));
    pipe_reads(y, d->count * sizeof *y);
    wrong += num_wrong(x, y, d->count, factor);
    return report;
}

/* With memory for this work. The default is 640 MiB, and to touch it takes half a second. */
static spipe_resources_t *new_resources(void) {
    spipe_resources_limits_t l = spipe_resources_limits_default();
    spipe_resources_t *r;
    l.device_bytes = 16 * MOST * sizeof *x;
    l.pinned_bytes = 8 * MOST * sizeof *x;
    SPIPE_CHECK(spipe_resources_create(&r, &l, NULL));
    return r;
}

static int same_plan(const spipe_report_t *a, const spipe_report_t *b) {
    return a->chunk == b->chunk && a->depth == b->depth && a->schedule == b->schedule;
}

/* Calls that come again are all made in one way, also after other work; the first, for which
   nothing is kept yet, may have fewer slots. */
static void stays_as_it_was(size_t count) {
    spipe_resources_t *r;
    spipe_report_t first, last;
    size_t others = 0;
    int tried = 0;
    r = new_resources();
    spipe_desc_t d = work(count, twice, r), e = work(count, thrice, r);
    (void)once(&d, 2);
    first = once(&d, 2);
    for (int k = 2; k < RUNS; ++k) {
        last = once(&d, 2);
        tried += last.trying || last.found;
        others += !same_plan(&first, &last);
    }
    tap_ok(others == 0 && tried == 0, "%zu elements: %d calls are made in one way: chunks of %zu",
           count, RUNS, first.chunk);
    (void)once(&e, 3);
    d.count = count / 2;
    (void)once(&d, 2);
    d.count = count;
    last = once(&d, 2);
    tap_ok(same_plan(&first, &last), "also after another kernel, and another count");
    d.chunk = 100000;
    last = once(&d, 2);
    tap_ok(last.chunk == 100000, "a chunk that is asked for is taken");
    SPIPE_CHECK(spipe_resources_destroy(r, NULL));
}

/* Memory that a kept pipeline keeps makes the plan smaller; without it the plan is as before. */
static void fits_what_is_free(void) {
    spipe_resources_limits_t l = spipe_resources_limits_default();
    spipe_resources_t *r;
    spipe_pipeline_t *p;
    spipe_report_t alone, beside, after;
    cudaStream_t stream;
    l.device_bytes = 2 * MOST; /* a quarter of the arrays */
    l.pinned_bytes = 8 * MOST;
    SPIPE_CHECK(spipe_resources_create(&r, &l, NULL));
    const spipe_desc_t d = work(MOST, twice, r);
    for (int k = 0; k < RUNS; ++k) alone = once(&d, 2);
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_enqueue(p, stream)); /* keeps its memory from now on */
    SPIPE_CHECK(cudaStreamSynchronize(stream));
    beside = once(&d, 2);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(cudaStreamDestroy(stream));
    for (int k = 0; k < 3; ++k) after = once(&d, 2);
    tap_ok(beside.device_bytes < alone.device_bytes,
           "with less memory free, known work takes less: %zu bytes, %zu before",
           beside.device_bytes, alone.device_bytes);
    tap_ok(after.device_bytes == alone.device_bytes,
           "and as much as before when the memory is free again: %zu", after.device_bytes);
    SPIPE_CHECK(spipe_resources_destroy(r, NULL));
}

/* The same work on other arrays, pinned and not, by turns: each call reads and writes its own. */
static void other_arrays(void) {
    enum {
        NUM = 4
    };

    spipe_resources_t *r;
    unsigned *in[NUM], *out[NUM];
    spipe_report_t report;
    size_t bad = 0;
    const size_t n = LEAST / 4;
    r = new_resources();
    for (int k = 0; k < NUM; ++k) {
        if (k < NUM / 2) {
            SPIPE_CHECK(spipe_pinned_alloc((void **)&in[k], n * sizeof **in));
            SPIPE_CHECK(spipe_pinned_alloc((void **)&out[k], n * sizeof **out));
        } else {
            in[k] = (unsigned *)malloc(n * sizeof **in);
            out[k] = (unsigned *)malloc(n * sizeof **out);
        }
        for (size_t i = 0; i < n; ++i) in[k][i] = (unsigned)(i * 40503u + (unsigned)k);
    }
    for (int run = 0; run < 12 * NUM; ++run) {
        const int a = run % NUM, b = run / NUM % 2 ? a ^ 1 : a;
        spipe_desc_t d = work(n, twice, r);
        d.buffers[0].host = in[a];
        d.buffers[1].host = out[b];
        memset(out[b], 0x5A, n * sizeof **out);
        SPIPE_CHECK(spipe_run(&d, &report));
        pipe_reads(out[b], n * sizeof **out);
        bad += num_wrong(in[a], out[b], n, 2);
    }
    tap_ok(bad == 0, "other arrays in each call, pinned and not: %zu elements are wrong", bad);
    bad = 0;
    for (int run = 0; run < 8; ++run) { /* pinned in every other call */
        unsigned *const from = in[NUM - 1], *const to = out[NUM - 1];
        const int pins = run % 2;
        spipe_desc_t d = work(n, twice, r);
        d.buffers[0].host = from;
        d.buffers[1].host = to;
        d.stages[0].elementwise = 1;
        if (pins) SPIPE_CHECK(spipe_pin(from, n * sizeof *from));
        if (pins) SPIPE_CHECK(spipe_pin(to, n * sizeof *to));
        memset(to, 0x5A, n * sizeof *to);
        SPIPE_CHECK(spipe_run(&d, &report));
        pipe_reads(to, n * sizeof *to);
        bad += num_wrong(from, to, n, 2);
        bad += (report.schedule == SPIPE_SCHEDULE_ZERO_COPY) != pins;
        if (pins) SPIPE_CHECK(spipe_unpin(from));
        if (pins) SPIPE_CHECK(spipe_unpin(to));
    }
    tap_ok(bad == 0,
           "nor where arrays are pinned in every other call, and only then read in place: %zu",
           bad);
    for (int k = 0; k < NUM; ++k) {
        if (k < NUM / 2) {
            SPIPE_CHECK(spipe_pinned_free(in[k]));
            SPIPE_CHECK(spipe_pinned_free(out[k]));
        } else {
            free(in[k]);
            free(out[k]);
        }
    }
    SPIPE_CHECK(spipe_resources_destroy(r, NULL));
}

/* From the third call on nothing is made any more, and nothing counts as in use between calls. */
static void makes_nothing(void) {
    spipe_resources_t *r;
    spipe_resources_usage_t before, after;
    r = new_resources();
    const spipe_desc_t d = work(LEAST, twice, r);
    for (int k = 0; k < RUNS; ++k) (void)once(&d, 2);
    SPIPE_CHECK(spipe_resources_usage(r, &before));
    const long calls = hostcuda_calls("cudaStreamCreateWithPriority");
    for (int k = 0; k < RUNS; ++k) (void)once(&d, 2);
    SPIPE_CHECK(spipe_resources_usage(r, &after));
    tap_ok(before.streams == after.streams && before.events == after.events &&
               before.threads == after.threads &&
               calls == hostcuda_calls("cudaStreamCreateWithPriority"),
           "calls that come again make no stream, event or thread");
    tap_ok(after.pipelines == 0 && after.runs == 0 && after.device_bytes == 0,
           "and between them nothing is in use");
    SPIPE_CHECK(spipe_resources_destroy(r, NULL));
}

/* A call whose pipeline is losing its threads to another run waits for it, and makes no other. */
static void *call_once(void *arg) {
    SPIPE_CHECK(spipe_run((const spipe_desc_t *)arg, NULL));
    return NULL;
}

static void waits_for_its_pipeline(void) {
    spipe_resources_t *r;
    spipe_resources_usage_t before, after;
    pthread_t caller;
    const struct timespec pause = {0, 20 * 1000 * 1000};
    r = new_resources();
    spipe_desc_t d = work(LEAST, twice, r);
    for (int k = 0; k < 3; ++k) (void)once(&d, 2);
    spipe_priv_pipeline_t *const p = r->calls.idle;
    SPIPE_CHECK(spipe_resources_usage(r, &before));
    p->lent.loses_threads = 1;
    SPIPE_CHECK((cudaError_t)pthread_create(&caller, NULL, call_once, &d));
    (void)nanosleep(&pause, NULL);
    spipe_priv_lock(r->lending.sync);
    const int alone = r->calls.idle == p && r->calls.num_idle == 1;
    p->lent.loses_threads = 0;
    spipe_priv_unlock(r->lending.sync);
    (void)pthread_join(caller, NULL);
    SPIPE_CHECK(spipe_resources_usage(r, &after));
    tap_ok(alone && r->calls.idle == p && r->calls.num_idle == 1 && before.streams == after.streams,
           "a call whose pipeline is losing its threads waits for it, and makes no other");
    SPIPE_CHECK(spipe_resources_destroy(r, NULL));
}

/* A run that lacks a thread waits for one that is about to become idle. */
typedef struct giving {
    spipe_resources_t *r;
    void *thread;
} giving_t;

static void *give_back(void *arg) {
    const giving_t *const g = (const giving_t *)arg;
    const struct timespec pause = {0, 20 * 1000 * 1000};
    (void)nanosleep(&pause, NULL);
    spipe_priv_take_thread_back(&g->r->lending, g->thread);
    spipe_priv_count_one(&g->r->lending.returning, 0);
    return NULL;
}

static void *do_nothing(void *arg) { return arg; }

static void about_to_be_idle(spipe_resources_t *r, const spipe_priv_pipeline_t *last) {
    enum {
        MOST = 256
    };

    spipe_priv_lending_t *const l = &r->lending;
    void *held[MOST];
    giving_t g = {r, NULL};
    pthread_t giver;
    size_t num = 0;
    while (num < MOST && (held[num] = spipe_priv_idle_thread(l)) != NULL) ++num;
    r->num_runs = l->num_threads / 2 - 1; /* the others: then these threads are just enough */
    tap_ok(spipe_priv_threads_of(last) > 3 && spipe_priv_threads_are_short(r, last),
           "beside others a pipeline gives back more threads than its share, where none is idle");
    r->num_runs = l->num_threads;
    tap_ok(!spipe_priv_threads_are_short(r, last), "but not where more should be made");
    r->num_runs = 0;
    while (spipe_priv_take_threads(r)) continue;
    while (num < MOST && (held[num] = spipe_priv_idle_thread(l)) != NULL) ++num;
    if (!tap_ok(num > 0 && num == l->num_threads, "all %zu threads can be taken", num)) return;
    g.thread = held[0];
    spipe_priv_count_one(&l->returning, 1);
    SPIPE_CHECK((cudaError_t)pthread_create(&giver, NULL, give_back, &g));
    void *const got = spipe_priv_lent_start(r, do_nothing, NULL);
    (void)pthread_join(giver, NULL);
    tap_ok(got == g.thread && l->num_threads == num,
           "a run that lacks a thread waits for one that is about to become idle");
    spipe_priv_lent_join(r, got);
    for (size_t k = 1; k < num; ++k) spipe_priv_take_thread_back(l, held[k]);
}

/* Many threads that call all the time: threads, streams and events are made at first only. */
static void *call_often(void *arg) {
    const spipe_desc_t *d = (const spipe_desc_t *)arg;
    for (int k = 0; k < CALLS; ++k) SPIPE_CHECK(spipe_run(d, NULL));
    return NULL;
}

static void many_callers(void) {
    enum {
        CALLERS = 12
    };

    spipe_resources_limits_t l = spipe_resources_limits_default();
    spipe_resources_t *r;
    spipe_resources_usage_t used[2];
    spipe_desc_t d[CALLERS];
    pthread_t threads[CALLERS];
    const size_t n = CALLED;
    unsigned *const in = (unsigned *)malloc(n * sizeof *in);
    l.threads = CALLERS / 2;
    l.device_bytes = 16 * MOST;
    l.pinned_bytes = 8 * MOST;
    SPIPE_CHECK(spipe_resources_create(&r, &l, NULL));
    for (size_t i = 0; i < n; ++i) in[i] = (unsigned)i;
    for (int k = 0; k < CALLERS; ++k) {
        d[k] = work(n, twice, r);
        d[k].threads = 4;
        d[k].chunk = n / 8;
        d[k].buffers[0].host = in;
        d[k].buffers[1].host = malloc(n * sizeof *in);
    }
    for (int round = 0; round < 2; ++round) {
        for (int k = 0; k < CALLERS; ++k) {
            SPIPE_CHECK((cudaError_t)pthread_create(&threads[k], NULL, call_often, &d[k]));
        }
        for (int k = 0; k < CALLERS; ++k) (void)pthread_join(threads[k], NULL);
        SPIPE_CHECK(spipe_resources_usage(r, &used[round]));
    }
    /* a few more are made where callers begin at the same time */
    tap_ok(used[1].threads <= 5 * CALLERS && used[1].threads > 0,
           "%d callers share %zu threads, not four each way for each, %zu at first", (int)CALLERS,
           used[1].threads, used[0].threads);
    (void)call_often(&d[0]); /* alone, with more threads made than are wanted */
    const spipe_priv_pipeline_t *const last = r->calls.idle;
    tap_ok(spipe_priv_threads_of(last) > 0 && spipe_priv_has_threads(&r->lending, CALLERS + 1),
           "and one that calls alone keeps its %zu between calls", spipe_priv_threads_of(last));
    about_to_be_idle(r, last);
    for (int k = 0; k < CALLERS; ++k) {
        const unsigned *const out = (const unsigned *)d[k].buffers[1].host;
        for (size_t i = 0; i < n; ++i) wrong += out[i] != 2 * in[i] + 1;
        free(d[k].buffers[1].host);
    }
    free(in);
    SPIPE_CHECK(spipe_resources_destroy(r, NULL));
}

/* A call that fails, in whatever pipeline, does not make the next one wrong. */
static int fail_now;

static cudaError_t twice_or_fail(const spipe_chunk_t *c, void *user) {
    if (fail_now) return cudaErrorNotSupported;
    return twice(c, user);
}

static cudaError_t count_up(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t first = part->first, count = part->count;
    (void)user;
    for (size_t i = 0; i < count; ++i) ((unsigned *)dst)[i] = (unsigned)(first + i);
    return cudaSuccess;
}

static void after_failures(void) {
    spipe_resources_t *r;
    spipe_report_t report;
    int told = 0;
    r = new_resources();
    const spipe_desc_t d = work(LEAST, twice_or_fail, r);
    for (int k = 0; k < 8; ++k) {
        (void)once(&d, 2);
        fail_now = 1;
        told += spipe_run(&d, &report) == cudaErrorNotSupported &&
                report.failure.error == cudaErrorNotSupported && report.failure.message[0];
        fail_now = 0;
    }
    (void)once(&d, 2);
    spipe_desc_t same = d; /* the last call but for one array, and the last but for a stage */
    same.buffers[1].host = x + 1; /* overlaps the input */
    tap_ok(spipe_run(&same, &report) == cudaErrorInvalidValue && report.failure.message[0],
           "a mistake in a call like those before is refused: %s", report.failure.message);
    same = d;
    same.stages[0].fn = NULL;
    tap_ok(spipe_run(&same, &report) == cudaErrorInvalidValue && report.failure.message[0],
           "so is one in a stage: %s", report.failure.message);
    same = spipe_desc_default(); /* a source that is there in the first calls only */
    same.count = LEAST;
    same.resources = r;
    spipe_add_source(&same, count_up, NULL, sizeof *x, SPIPE_ANY_ORDER);
    spipe_add_output(&same, y, sizeof *y);
    spipe_add_stage(&same, "multiply", twice, NULL);
    for (int k = 0; k < 3; ++k) SPIPE_CHECK(spipe_run(&same, &report));
    same.buffers[0].source = NULL;
    tap_ok(spipe_run(&same, &report) == cudaErrorInvalidValue && report.failure.message[0],
           "and a source that is missing now: %s", report.failure.message);
    tap_ok(told == 8, "calls that fail say so, and those after them are right: %d of 8", told);
    SPIPE_CHECK(spipe_resources_destroy(r, NULL));
}

/* More kinds of work than are remembered: each is planned and right. */
static void many_kinds(void) {
    spipe_resources_t *r;
    size_t before = wrong;
    r = new_resources();
    for (int round = 0; round < 3; ++round) {
        for (size_t k = 1; k <= 50; ++k) {
            const spipe_desc_t d = work(1000 * k + 7, k % 2 ? twice : thrice, r);
            (void)once(&d, k % 2 ? 2 : 3);
        }
    }
    tap_ok(wrong == before, "50 kinds of work by turns: every result is right");
    SPIPE_CHECK(spipe_resources_destroy(r, NULL));
}

int main(void) {
    SPIPE_CHECK(spipe_pinned_alloc((void **)&x, MOST * sizeof *x));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&y, MOST * sizeof *y));
    for (size_t i = 0; i < MOST; ++i) x[i] = (unsigned)(i * 2654435761u);
    stays_as_it_was(LEAST);
    stays_as_it_was(MOST);
    fits_what_is_free();
    other_arrays();
    makes_nothing();
    waits_for_its_pipeline();
    many_callers();
    after_failures();
    many_kinds();
    tap_ok(wrong == 0, "all results are right: %zu wrong", wrong);
    SPIPE_CHECK(spipe_pinned_free(x));
    SPIPE_CHECK(spipe_pinned_free(y));
    return tap_done();
}
