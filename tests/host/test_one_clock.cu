/*  test_one_clock.cu -- on hostcuda a run has one clock: work of host threads has modelled
    times, on as many modelled threads as the run has, however many processors this computer
    has; and running blocks are not preempted. */
#include "hostcuda.h"
#include "../pipe_common.h"
#include "streampipe_devices.h"
#include "streampipe_timeline.h"

#include <math.h>

static __global__ void work() {}

static cudaError_t work_stage(const spipe_chunk_t *c, void *user) {
    (void)c;
    (void)user;
    return SPIPE_LAUNCH(work, 1, 256, 0, c->stream);
}

static int within(double got, double want, double share) {
    if (fabs(got - want) <= share * want) return 1;
    printf("# %.6f, not %.6f\n", got, want);
    return 0;
}

/* ---- pageable arrays ------------------------------------------------------------------------ */

typedef struct seen {
    double modelled_ms;
    spipe_report_t report;
} seen_t;

enum {
    MOST_BYTES = 64 << 20
};

/* In the same arrays each time: new pages would take most of the test's time. */
static seen_t pageable_run(size_t bytes, size_t threads) {
    static char *const x = (char *)calloc(MOST_BYTES, 1), *const y = (char *)calloc(MOST_BYTES, 1);
    seen_t s;
    spipe_pipeline_t *p;
    spipe_desc_t d = spipe_desc_default();
    d.count = bytes;
    d.threads = threads;
    d.chunk = (size_t)1 << 20;
    d.depth = 10;
    d.staging = SPIPE_STAGING_COPY;
    spipe_add_input(&d, x, 1);
    spipe_add_output(&d, y, 1);
    spipe_add_stage(&d, "work", work_stage, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_run(p, &s.report));
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    s.modelled_ms = s.report.wall_ms;
    return s;
}

static void test_pageable(void) {
    const size_t mib = (size_t)1 << 20;
    size_t threads, bytes;
    seen_t a, b;
    for (threads = 1; threads <= 4; threads += 3) {
        int same = 1;
        for (bytes = 4 * mib; bytes <= 64 * mib; bytes *= 4) {
            a = pageable_run(bytes, threads);
            b = pageable_run(bytes, threads);
            same &= within(b.modelled_ms, a.modelled_ms, 1e-9);
        }
        tap_ok(same, "%zu threads each way: the same time in every run", threads);
    }
    a = pageable_run(64 * mib, 1);
    b = pageable_run(64 * mib, 4);
    tap_ok(b.report.fill_threads == 4 && within(a.modelled_ms, 3.5 * b.modelled_ms, 0.15),
           "4 threads each way stage about 3.5 times as fast as one, on any number of processors");
}

/* ---- decoding ------------------------------------------------------------------------------- */

enum {
    ITEMS = 64,
    ITEM_BYTES = 4096
};

static cudaError_t next(spipe_part_t *part, void *user) {
    void *tickets = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    size_t *given = (size_t *)user;
    for (*count = 0; *count < max_count && *given < ITEMS; ++*count, ++*given)
        ((unsigned *)tickets)[*count] = (unsigned)*given;
    return cudaSuccess;
}

static cudaError_t decode(const spipe_part_t *part, const void *tickets, void *user) {
    void *dst = part->data;
    const size_t count = part->count;
    (void)tickets;
    (void)user;
    memset(dst, 7, count * ITEM_BYTES);
    hostcuda_host_work(1e6 * (double)count); /* 1 ms each */
    return cudaSuccess;
}

/* A loop that takes batches; the milliseconds by its clock. */
static double decode_ms(size_t threads) {
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    spipe_chunk_t c;
    cudaStream_t s;
    size_t given = 0;
    spipe_add_split_source(&d, next, decode, &given, sizeof(unsigned), ITEM_BYTES);
    d.count = ITEMS;
    d.chunk = 1;
    d.threads = threads;
    SPIPE_CHECK(spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    const double began = hostcuda_now_ns();
    for (;;) {
        SPIPE_CHECK(spipe_pipeline_next(p, s, &c));
        if (c.count == 0) break;
        SPIPE_CHECK(SPIPE_LAUNCH(work, 1, 256, 0, s));
        SPIPE_CHECK(spipe_pipeline_release(p, s));
    }
    SPIPE_CHECK(cudaStreamSynchronize(s));
    const double took = hostcuda_now_ns() - began;
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(cudaStreamDestroy(s));
    return took * 1e-6;
}

static void test_decoding(void) {
    const double one = decode_ms(1), four = decode_ms(4), again = decode_ms(4);
    tap_ok(within(one, (double)ITEMS, 0.05), "a worker takes for all items what they say");
    tap_ok(one / four > 3.5, "4 workers decode 3.5 times as fast as one (%.2f x)", one / four);
    tap_ok(within(again, four, 0.02), "in every run");
}

/* ---- host stages, sources, sinks ------------------------------------------------------------ */

static cudaError_t slow_stage(const spipe_chunk_t *c, void *user) {
    (void)c;
    (void)user;
    hostcuda_host_work(2e6);
    return cudaSuccess;
}

/* 16 chunks through a host stage of 2 ms. */
static double host_stage_ms(size_t threads, int ordered, spipe_timeline_t *t) {
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    pipe_array_t x = pipe_array_new(1 << 16, PIPE_PINNED), y = pipe_array_new(1 << 16, PIPE_PINNED);
    d.count = 1 << 16;
    d.chunk = d.count / 16;
    d.depth = 8;
    d.threads = threads;
    d.timeline = t;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "work", work_stage, NULL);
    const int s = spipe_add_host_stage(&d, "slow", slow_stage, NULL, SPIPE_BIT(0), SPIPE_BIT(1));
    if (ordered) spipe_stage_ordered(&d, s);
    SPIPE_CHECK_RUN(&d, &r);
    pipe_free(&x);
    pipe_free(&y);
    return r.wall_ms;
}

static void test_host_stages(void) {
    static spipe_span_t spans[512];
    spipe_timeline_t t = spipe_timeline_default();
    double all = 0.0;
    size_t k;
    tap_ok(within(host_stage_ms(1, 0, NULL), 32.0, 0.05),
           "a host stage takes the time that it declares");
    tap_ok(within(host_stage_ms(4, 0, NULL), 8.0, 0.1), "4 threads do 4 chunks at once");
    tap_ok(within(host_stage_ms(4, 1, NULL), 32.0, 0.05), "an ordered one does one at a time");
    t.spans = spans;
    t.capacity = 512;
    (void)host_stage_ms(1, 0, &t);
    for (k = 0; k < t.num_spans; ++k) {
        if (spans[k].kind == SPIPE_SPAN_HOST) all += spans[k].end_ms - spans[k].begin_ms;
    }
    tap_ok(within(all, 32.0, 1e-6), "a chart shows these times");
}

static cudaError_t give(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    size_t *left = (size_t *)user;
    *count = *left < max_count ? *left : max_count;
    *left -= *count;
    memset(dst, 1, *count);
    return cudaSuccess;
}

static cudaError_t take(const spipe_part_t *part, void *user) {
    const size_t count = part->count;
    *(size_t *)user += count;
    return cudaSuccess;
}

/* Numbers that come in one a millisecond. */
static cudaError_t arrive(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    unsigned *next = (unsigned *)user;
    *count = max_count < 20 - *next ? max_count : 20 - *next;
    if (*count > 0) memset(dst, 1, *count);
    *next += (unsigned)*count;
    hostcuda_host_until(1e6 * *next);
    return cudaSuccess;
}

static void test_arrivals(void) {
    static spipe_span_t spans[256];
    unsigned next = 0;
    size_t taken = 0, k;
    int prompt = 1;
    spipe_timeline_t t = spipe_timeline_default();
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    t.spans = spans;
    t.capacity = 256;
    d.chunk = 1;
    d.timeline = &t;
    spipe_add_source(&d, arrive, &next, 1, SPIPE_IN_ORDER);
    spipe_add_sink(&d, take, &taken, 1, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "work", work_stage, NULL);
    SPIPE_CHECK(cudaDeviceSynchronize());
    hostcuda_clock_reset();
    SPIPE_CHECK_RUN(&d, &r);
    for (k = 0; k < t.num_spans; ++k) {
        const double after = spans[k].end_ms - (double)(spans[k].chunk + 1);
        if (spans[k].kind == SPIPE_SPAN_DRAIN) prompt &= after > -1.0 && after < 0.2;
    }
    tap_ok(taken == 20 && within(r.wall_ms, 20.0, 0.05) && prompt,
           "a source may wait until something comes in, and it is answered soon after");
}

static void test_source(void) {
    const double fill = hostcuda_get_profile(0).host_fill;
    size_t left = 32 << 20, taken = 0;
    const double bytes = (double)left;
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    d.threads = 4;
    d.chunk = (size_t)1 << 20; /* the library would choose both by this computer's cache */
    d.depth = 8;
    spipe_add_source(&d, give, &left, 1, SPIPE_IN_ORDER);
    spipe_add_sink(&d, take, &taken, 1, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "work", work_stage, NULL);
    SPIPE_CHECK_RUN(&d, &r);
    tap_ok(taken == (size_t)32 << 20 && within(r.wall_ms, bytes / fill * 1e-6, 0.3),
           "a source that is read in order is as fast as one thread, however many there are");
}

/* ---- the chart of a pageable run ------------------------------------------------------------ */

static void test_chart(void) {
    static spipe_span_t spans[1024], *of[64][6];
    const size_t bytes = 16 << 20, chunks = 16;
    int right = 1, complete = 1;
    spipe_timeline_t t = spipe_timeline_default();
    spipe_report_t r;
    spipe_desc_t d = spipe_desc_default();
    char *x = (char *)calloc(bytes, 1), *y = (char *)calloc(bytes, 1);
    size_t k;
    t.spans = spans;
    t.capacity = 1024;
    d.count = bytes;
    d.chunk = bytes / chunks;
    d.threads = 2;
    d.staging = SPIPE_STAGING_COPY;
    d.timeline = &t;
    spipe_add_input(&d, x, 1);
    spipe_add_output(&d, y, 1);
    spipe_add_stage(&d, "work", work_stage, NULL);
    SPIPE_CHECK_RUN(&d, &r);
    for (k = 0; k < t.num_spans; ++k) of[spans[k].chunk][spans[k].kind] = &spans[k];
    for (k = 0; k < chunks; ++k) {
        spipe_span_t **s = of[k];
        complete &=
            s[SPIPE_SPAN_FILL] && s[SPIPE_SPAN_IN] && s[SPIPE_SPAN_OUT] && s[SPIPE_SPAN_DRAIN];
        if (!complete) break;
        /* events come in half microseconds, and the clock starts a few us after its first event */
        right &= s[SPIPE_SPAN_FILL]->end_ms <= s[SPIPE_SPAN_IN]->begin_ms + 0.01;
        right &= s[SPIPE_SPAN_OUT]->end_ms <= s[SPIPE_SPAN_DRAIN]->begin_ms + 0.01;
        right &= within(s[SPIPE_SPAN_FILL]->end_ms - s[SPIPE_SPAN_FILL]->begin_ms,
                        (double)d.chunk / hostcuda_get_profile(0).host_fill * 1e-6, 0.01);
    }
    tap_ok(complete, "a chart of a pageable run has each chunk filled, copied in and out, drained");
    tap_ok(right, "in this order, and a fill takes what the profile says of its bytes");
    tap_ok(within(t.wall_ms, r.wall_ms, 0.05), "and the chart is as long as the run");
    free(x);
    free(y);
}

/* ---- priorities ----------------------------------------------------------------------------- */

/* When a short urgent kernel ends that is issued 1.1 ms into a long one of so many rounds of
   blocks, of 4 ms together; and the long one's end. */
static double urgent_ms(unsigned rounds, double *last) {
    const hostcuda_profile_t p = hostcuda_profile("ideal");
    const unsigned threads = (unsigned)(p.sm_count * p.threads_per_sm);
    hostcuda_op_t ops[4];
    cudaStream_t low, high;
    SPIPE_CHECK(cudaDeviceSynchronize());
    SPIPE_CHECK(hostcuda_set_profile(0, &p));
    hostcuda_clock_reset();
    hostcuda_trace_start();
    SPIPE_CHECK(spipe_stream_create(&low, SPIPE_PRIORITY_LOW));
    SPIPE_CHECK(spipe_stream_create(&high, SPIPE_PRIORITY_HIGH));
    hostcuda_kernel_time(work, 4e6, 0);
    SPIPE_CHECK(SPIPE_LAUNCH(work, rounds * threads / 256, 256, 0, low));
    hostcuda_host_work(1.1e6);
    hostcuda_kernel_time(work, 0.2e6, 0);
    SPIPE_CHECK(SPIPE_LAUNCH(work, threads / 256, 256, 0, high));
    SPIPE_CHECK(cudaDeviceSynchronize());
    const size_t n = hostcuda_trace(ops, 4);
    SPIPE_CHECK(cudaStreamDestroy(low));
    SPIPE_CHECK(cudaStreamDestroy(high));
    *last = ops[0].end_ns * 1e-6;
    return n == 2 ? ops[1].end_ns * 1e-6 : -1.0;
}

static void test_priorities(void) {
    double last;
    tap_ok(within(urgent_ms(1, &last), 4.2, 1e-6) && within(last, 4.0, 1e-6),
           "all blocks run: an urgent kernel waits until they end");
    tap_ok(within(urgent_ms(4, &last), 2.2, 1e-6) && within(last, 4.2, 1e-6),
           "in 4 rounds of blocks: it waits for those that run, and goes before the next ones");
    tap_ok(within(urgent_ms(400, &last), 1.3, 0.01) && within(last, 4.2, 0.01),
           "of short blocks: it hardly waits");
}

/* ---- several GPUs ---------------------------------------------------------------------------- */

/* Which GPU takes a chunk is chance here: if one takes them all, it is as long as with one. */
static void test_devices(void) {
    const size_t bytes = (size_t)64 << 20;
    const int both[] = {0, 1};
    double ms[2];
    char *x, *y;
    int k;
    SPIPE_CHECK(spipe_pinned_alloc((void **)&x, bytes));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&y, bytes));
    for (k = 0; k < 2; ++k) {
        spipe_desc_t d = spipe_desc_default();
        spipe_report_t r;
        d.count = bytes;
        d.chunk = (size_t)1 << 20;
        spipe_add_input(&d, x, 1);
        spipe_add_output(&d, y, 1);
        spipe_add_stage(&d, "work", work_stage, NULL);
        if (spipe_devices_list(&d, both, k + 1) != 0) tap_ok(0, "devices are listed");
        SPIPE_CHECK_RUN(&d, &r);
        ms[k] = r.wall_ms;
    }
    tap_ok(ms[0] > 1.2 && ms[1] > 0.4 * ms[0] && ms[1] < 1.1 * ms[0],
           "64 MiB on one GPU of the model takes %.3f ms, on two %.3f ms", ms[0], ms[1]);
    SPIPE_CHECK(spipe_pinned_free(x));
    SPIPE_CHECK(spipe_pinned_free(y));
}

int main(void) {
    const hostcuda_profile_t p = hostcuda_profile("h200");
    SPIPE_CHECK(hostcuda_set_devices(2));
    SPIPE_CHECK(hostcuda_set_profile(0, &p));
    SPIPE_CHECK(hostcuda_set_profile(1, &p));
    hostcuda_kernel_time(work, 1e3, 0);
    test_pageable();
    test_decoding();
    test_host_stages();
    test_source();
    test_arrivals();
    test_chart();
    test_priorities();
    test_devices();
    return tap_done();
}
