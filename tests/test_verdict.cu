/*  test_verdict.cu -- a run with a timeline reports what ran when, how far from the bound it
    was, and why: each cause is provoked, and named with its stage or buffer and a cure. */
#if defined(__HOSTCUDA__)
#include "hostcuda.h"
#endif
#include "pipe_common.h"
#include "streampipe_timeline.h"
#if !defined(_MSC_VER)
#include <unistd.h>
#endif

enum {
    N = 8 << 20, /* chunks of 2 MiB: copies long enough to show what overlaps */
    CHUNKS = 16,
    CHUNK = N / CHUNKS,
    ROOM = 4096
};

static spipe_span_t spans[ROOM];

/* ---- Work ------------------------------------------------------------------------------------ */

static __global__ void add_one(const float *x, float *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + 1.0f;
}

enum {
    WHERE_ASKED,
    WHERE_LEGACY,
    WHERE_OWN
};

typedef struct work {
    int times, where, waits;
    size_t fail_at;
    cudaStream_t own;
} work_t;

static cudaError_t add_stage(const spipe_chunk_t *c, void *user) {
    const work_t *w = (const work_t *)user;
    cudaStream_t s = c->stream;
    int i;
    if (w->where == WHERE_LEGACY) s = cudaStreamLegacy;
    if (w->where == WHERE_OWN) s = w->own;
    if (c->index == w->fail_at) return cudaErrorLaunchOutOfResources;
    for (i = 0; i < w->times; ++i) {
        SPIPE_TRY(SPIPE_LAUNCH(add_one, spipe_blocks(c->count, 256), 256, 0, s,
                               SPIPE_BUF(c, 0, const float), SPIPE_BUF(c, 1, float), c->count));
    }
    return w->waits ? cudaStreamSynchronize(s) : cudaSuccess;
}

/* ---- A run that is watched ------------------------------------------------------------------- */

typedef struct bench {
    pipe_array_t x, y;
    work_t work;
    spipe_desc_t d;
    spipe_timeline_t t;
    spipe_report_t r;
    cudaError_t e;
} bench_t;

static bench_t new_bench(int memory) {
    bench_t b;
    float *x;
    size_t i;
    memset(&b, 0, sizeof b);
    b.x = pipe_array_new(N * sizeof(float), memory);
    b.y = pipe_array_new(N * sizeof(float), memory);
    x = (float *)(void *)b.x.at;
    for (i = 0; i < N; ++i) x[i] = (float)(i % 1000);
    pipe_poison(b.y);
    b.work.times = 1;
    b.work.fail_at = SPIPE_AUTO;
    b.t = spipe_timeline_default();
    b.t.spans = spans;
    b.t.capacity = ROOM;
    b.d = spipe_desc_default();
    b.d.count = N;
    b.d.chunk = CHUNK;
    return b;
}

static void run(bench_t *b) {
    if (b->d.num_buffers == 0) {
        spipe_add_input(&b->d, b->x.at, sizeof(float));
        spipe_add_output(&b->d, b->y.at, sizeof(float));
        spipe_add_stage(&b->d, "add", add_stage, &b->work);
    }
    b->d.timeline = &b->t;
    b->e = spipe_run(&b->d, &b->r);
}

static void done(bench_t *b) {
    pipe_free(&b->x);
    pipe_free(&b->y);
}

static int right(const bench_t *b) {
    const float *y = (const float *)(const void *)b->y.at;
    float sum[1000];
    size_t i, wrong = !pipe_guard_whole(b->y);
    for (i = 0; i < 1000; ++i) sum[i] = (float)i + 1.0f;
    for (i = 0; i < N; ++i) wrong += memcmp(&y[i], &sum[i % 1000], sizeof sum[0]) != 0;
    return b->e == cudaSuccess && wrong == 0;
}

static int has(const bench_t *b, unsigned cause, const char *words) {
    const int yes = (b->r.causes & cause) == cause && strstr(b->r.verdict, words) != NULL;
    if (!yes) printf("# causes %#x, verdict: %s\n", b->r.causes, b->r.verdict);
    return yes;
}

static void tap_cause(bench_t *b, unsigned cause, const char *words, const char *rule) {
    run(b);
    tap_ok(b->e == cudaSuccess && has(b, cause, words), "%s", rule);
    done(b);
}

static size_t num_of(const bench_t *b, int kind) {
    size_t k, n = 0;
    for (k = 0; k < b->t.num_spans; ++k) n += spans[k].kind == (spipe_span_kind_t)kind;
    return n;
}

/* ---- The spans and the figures --------------------------------------------------------------- */

static void test_spans(void) {
    bench_t b = new_bench(PIPE_PINNED);
    size_t k, wrong = 0, turned = 0;
    run(&b);
    tap_ok(right(&b), "a watched run comes out right");
    tap_ok(b.t.num_spans == 3 * CHUNKS && b.t.num_lost == 0 &&
               num_of(&b, SPIPE_SPAN_IN) == CHUNKS && num_of(&b, SPIPE_SPAN_STAGE) == CHUNKS &&
               num_of(&b, SPIPE_SPAN_OUT) == CHUNKS,
           "every copy and every stage of every chunk is a span");
    for (k = 0; k < b.t.num_spans; ++k) {
        wrong += spans[k].begin_ms < 0.0 || spans[k].end_ms < spans[k].begin_ms ||
                 spans[k].end_ms > b.t.wall_ms || spans[k].chunk >= CHUNKS ||
                 (spans[k].stage == 0) != (spans[k].kind == SPIPE_SPAN_STAGE);
        turned += k > 0 && spans[k].begin_ms < spans[k - 1].begin_ms;
    }
    tap_ok(wrong == 0 && turned == 0, "spans lie within the run, in the order of their begin");
    tap_ok(b.t.num_stages == 1 && strcmp(b.t.stage_names[0], "add") == 0 && b.t.device[0],
           "the timeline knows stages and device by name");
    done(&b);
}

static void test_figures(void) {
    bench_t b = new_bench(PIPE_PINNED);
    double sum = 0.0, most = 0.0;
    int i;
    b.t.spans = NULL;
    b.work.times = 3;
    run(&b);
    for (i = 0; i < 6; ++i) {
        sum += b.r.busy_ms[i];
        if (b.r.busy_ms[i] > most) most = b.r.busy_ms[i];
    }
    tap_ok(right(&b) && b.r.timed_ms > 0.0 && b.t.num_spans == 0,
           "without an array for the spans the report is filled all the same");
    tap_ok(b.r.busy_ms[SPIPE_SPAN_IN] > 0.0 && b.r.busy_ms[SPIPE_SPAN_STAGE] > 0.0 &&
               b.r.busy_ms[SPIPE_SPAN_OUT] > 0.0 && !(b.r.busy_ms[SPIPE_SPAN_FILL] > 0.0),
           "the engines that worked were busy, the others were not");
    tap_ok(b.r.bound_ms >= most && b.r.bound_ms <= most && most <= b.r.timed_ms * 1.0001,
           "the bound is the busiest engine's time, and no engine is busy for longer than the run");
    tap_ok(b.r.serial_ms <= sum * 1.0001 && b.r.serial_ms >= b.r.bound_ms * 0.5 &&
               b.r.overlap >= 0.0 && b.r.overlap <= 1.0,
           "one after another takes the engines' sum at most");
    tap_ok(b.r.stage_ms[0] <= b.r.busy_ms[SPIPE_SPAN_STAGE] * 1.0001 &&
               b.r.stage_ms[0] >= b.r.busy_ms[SPIPE_SPAN_STAGE] * 0.9999,
           "a single stage is all stages");
    for (i = 0; i < 6; ++i) {
        if (b.r.busy_ms[i] + b.r.idle_ms[i] > b.r.timed_ms * 1.0001) break;
    }
    tap_ok(i == 6, "busy and idle time of an engine fit into the run");
    tap_ok(strncmp(b.r.verdict, "the limit is ", 13) == 0, "the verdict begins with the limit");
    tap_ok(strcmp(b.r.verdict, b.t.verdict) == 0, "the timeline has the report's verdict");
    done(&b);
}

static void test_unwatched(void) {
    bench_t b = new_bench(PIPE_PINNED);
    run(&b);
    b.d.timeline = NULL;
    b.e = spipe_run(&b.d, &b.r);
    tap_ok(right(&b) && !(b.r.timed_ms > 0.0) && !b.r.verdict[0] && b.r.causes == 0,
           "a run that nobody watches has no such figures");
    memset(&b.t, 0, sizeof b.t);
    b.d.timeline = &b.t;
    b.e = spipe_run(&b.d, &b.r);
    tap_ok(b.e == cudaErrorInvalidValue && strstr(b.r.failure.message, "spipe_timeline_default"),
           "a timeline that is not from spipe_timeline_default is refused in words");
    done(&b);
}

static void test_little_room(void) {
    bench_t b = new_bench(PIPE_PINNED);
    b.t.capacity = 10;
    memset(spans, 0x77, sizeof spans);
    run(&b);
    tap_ok(right(&b) && b.t.num_spans == 10 && b.t.num_lost == 3 * CHUNKS - 10 &&
               spans[10].chunk == (size_t)0x7777777777777777ULL,
           "where there is little room the rest is counted, and nothing is written behind it");
    tap_ok(strstr(b.r.verdict, "38 operations did not fit into the timeline") != NULL,
           "and the verdict says so");
    done(&b);
}

static void test_kept(void) {
    bench_t b = new_bench(PIPE_PINNED);
    spipe_pipeline_t *p;
    spipe_report_t r;
    int k, whole = 1;
    run(&b);
    SPIPE_CHECK(spipe_pipeline_create(&p, &b.d, NULL));
    for (k = 0; k < 4; ++k) {
        pipe_poison(b.y);
        b.e = spipe_pipeline_run(p, &r);
        whole &= right(&b) && r.timed_ms > 0.0 && b.t.num_spans == 3 * CHUNKS && !r.replayed;
    }
    tap_ok(whole, "a kept pipeline fills its timeline anew in every run");
    SPIPE_CHECK(spipe_pipeline_set_timeline(p, NULL));
    SPIPE_CHECK(spipe_pipeline_run(p, &b.r));
    tap_ok(!(b.r.timed_ms > 0.0), "without its timeline a run is not recorded");
    SPIPE_CHECK(spipe_pipeline_set_timeline(p, &b.t));
    SPIPE_CHECK(spipe_pipeline_run(p, &b.r));
    tap_ok(b.r.timed_ms > 0.0 && b.t.num_spans == 3 * CHUNKS, "and is with it again");
    b.t.num_spans = 7;
    SPIPE_CHECK(spipe_pipeline_enqueue(p, NULL));
    SPIPE_CHECK(spipe_pipeline_wait(p, &r));
    tap_ok(b.t.num_spans == 7, "an enqueued run leaves the timeline alone");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    done(&b);
}

static void test_failed(void) {
    bench_t b = new_bench(PIPE_PINNED);
    b.work.fail_at = 9;
    run(&b);
    tap_ok(b.e == cudaErrorLaunchOutOfResources && b.r.failure.chunk == 9 && b.r.timed_ms > 0.0 &&
               num_of(&b, SPIPE_SPAN_OUT) == b.r.failure.chunks_whole &&
               b.r.failure.chunks_whole >= 1 && strncmp(b.r.verdict, "the limit is ", 13) == 0,
           "a run that failed says what was done until then");
    done(&b);
}

static void test_staged(void) {
    bench_t b = new_bench(PIPE_PAGEABLE);
    b.d.staging = SPIPE_STAGING_COPY;
    run(&b);
    tap_ok(right(&b) && num_of(&b, SPIPE_SPAN_FILL) == CHUNKS &&
               num_of(&b, SPIPE_SPAN_DRAIN) == CHUNKS && b.r.busy_ms[SPIPE_SPAN_FILL] > 0.0 &&
               b.r.busy_ms[SPIPE_SPAN_DRAIN] > 0.0,
           "filling and draining of pinned slots are spans as well");
    tap_ok(has(&b, SPIPE_CAUSE_PAGEABLE, "buffer 0 is pageable and goes through pinned slots"),
           "pageable memory that is staged is named");
    done(&b);
}

/* Of the host, on whatever clock the run has. */
static void take_2_ms(void) {
#if defined(__HOSTCUDA__)
    hostcuda_host_work(2e6);
#elif !defined(_MSC_VER)
    usleep(2000);
#endif
}

static cudaError_t host_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    SPIPE_BUF(c, 1, float)[0] += 0.0f;
    take_2_ms();
    return cudaSuccess;
}

static cudaError_t slow_source(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    size_t *left = (size_t *)user;
    *count = max_count < *left ? max_count : *left;
    *left -= *count;
    memset(dst, 0, *count * sizeof(float));
    take_2_ms();
    return cudaSuccess;
}

static void test_host_work(void) {
    bench_t b = new_bench(PIPE_PINNED);
    size_t left = N;
    spipe_add_input(&b.d, b.x.at, sizeof(float));
    spipe_add_output(&b.d, b.y.at, sizeof(float));
    spipe_add_stage(&b.d, "add", add_stage, &b.work);
    spipe_stage_ordered(
        &b.d, spipe_add_host_stage(&b.d, "look", host_stage, NULL, SPIPE_BIT(1), SPIPE_BIT(1)));
    run(&b);
    tap_ok(right(&b) && num_of(&b, SPIPE_SPAN_HOST) == CHUNKS &&
               has(&b, SPIPE_CAUSE_HOST_WORK, "do less in host stages"),
           "a slow host stage is named");
    tap_ok(b.r.busy_ms[SPIPE_SPAN_HOST] >= 2.0 * CHUNKS * 0.99, "and timed by the host's clock");
    done(&b);
    b = new_bench(PIPE_PINNED);
    spipe_add_source(&b.d, slow_source, &left, sizeof(float), SPIPE_IN_ORDER);
    spipe_add_output(&b.d, b.y.at, sizeof(float));
    spipe_add_stage(&b.d, "add", add_stage, &b.work);
    tap_cause(&b, SPIPE_CAUSE_HOST_WORK, "one thread calls the source or sink",
              "a slow source is named");
}

/* ---- The causes ------------------------------------------------------------------------------ */

static void test_memory(void) {
    bench_t b = new_bench(PIPE_PAGEABLE);
    b.d.staging = SPIPE_STAGING_DIRECT;
    tap_cause(&b, SPIPE_CAUSE_PAGEABLE, "buffer 0 is pageable and copied by CUDA",
              "pageable memory that is left to CUDA is named");
    b = new_bench(PIPE_PINNED);
    run(&b);
    tap_ok(!(b.r.causes & SPIPE_CAUSE_PAGEABLE), "pinned memory is not");
    tap_ok(!(b.r.causes &
             (SPIPE_CAUSE_LEGACY_STREAM | SPIPE_CAUSE_OTHER_STREAM | SPIPE_CAUSE_STAGE_WAITS |
              SPIPE_CAUSE_SMALL_CHUNKS | SPIPE_CAUSE_SERIAL | SPIPE_CAUSE_LAUNCH_BLOCKING |
              SPIPE_CAUSE_CONNECTIONS | SPIPE_CAUSE_HOST_WORK | SPIPE_CAUSE_DEPTH)),
           "a plain run has none of the causes that it does not have (%#x)", b.r.causes);
    done(&b);
}

static void test_streams(void) {
#if defined(__SANITIZE_THREAD__)
    tap_skip("work on a wrong stream is named", "it is a race, which ThreadSanitizer reports");
#else
    bench_t b = new_bench(PIPE_PINNED);
    b.work.where = WHERE_LEGACY;
    b.work.times = 4;
    run(&b);
    tap_ok(has(&b, SPIPE_CAUSE_LEGACY_STREAM,
               "the legacy default stream is in use around stage 'add'"),
           "a stage on the legacy default stream is named");
    tap_ok(has(&b, SPIPE_CAUSE_OTHER_STREAM, "stage 'add' enqueued nothing on chunk->stream"),
           "and that it left its own stream empty");
    done(&b);
    b = new_bench(PIPE_PINNED);
    SPIPE_CHECK(cudaStreamCreateWithFlags(&b.work.own, cudaStreamNonBlocking));
    b.work.where = WHERE_OWN;
    b.work.times = 4;
    run(&b);
    tap_ok(has(&b, SPIPE_CAUSE_OTHER_STREAM, "stage 'add' enqueued nothing on chunk->stream") &&
               !(b.r.causes & SPIPE_CAUSE_LEGACY_STREAM),
           "so is a stage on a stream of its own");
    SPIPE_CHECK(cudaStreamSynchronize(b.work.own));
    SPIPE_CHECK(cudaStreamDestroy(b.work.own));
    done(&b);
#endif
}

static void test_waiting(void) {
    bench_t b = new_bench(PIPE_PINNED);
    b.work.waits = 1;
    b.work.times = 20;
    tap_cause(&b, SPIPE_CAUSE_STAGE_WAITS, "stage 'add' returned only when its work was done",
              "a stage that synchronises is named");
}

static void test_chunks(void) {
    bench_t b = new_bench(PIPE_PINNED);
    b.d.chunk = 4096;
    b.d.depth = 4; /* so that they are not copied several at a time */
    tap_cause(&b, SPIPE_CAUSE_SMALL_CHUNKS, "copies of 16.0 KiB are too small",
              "chunks that are too small are named");
    b = new_bench(PIPE_PINNED);
    if (sizeof(size_t) < 8) b.d.count = N / 8; /* chunks of 2 MiB: they are below 4 MiB there */
    b.d.chunk = b.d.count / 2;
    tap_cause(&b, SPIPE_CAUSE_LARGE_CHUNKS, "only the first or the last of 2 chunks",
              "chunks that are too large are named");
    b = new_bench(PIPE_PINNED);
    b.d.depth = 1;
    tap_cause(&b, SPIPE_CAUSE_DEPTH, "a depth of more than 1", "too little depth is named");
}

static void test_settings(void) {
    bench_t b = new_bench(PIPE_PINNED);
    b.d.schedule = SPIPE_SCHEDULE_SERIAL;
    tap_cause(&b, SPIPE_CAUSE_SERIAL, "the schedule SPIPE_SCHEDULE_SERIAL was requested",
              "a serial schedule is named");
    b = new_bench(PIPE_PINNED);
    b.d.checked = 1;
    tap_cause(&b, SPIPE_CAUSE_SERIAL, "a checked run was requested", "checked is named");
    b = new_bench(PIPE_PINNED);
#if defined(_WIN32)
    tap_skip("more streams than connections are named", "there is no setenv");
    done(&b);
#else
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "2", 1);
    tap_cause(&b, SPIPE_CAUSE_CONNECTIONS, "4 streams share 2 hardware connections",
              "more streams than connections are named");
    (void)unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
#endif
}

static void test_environment(void) {
#if defined(_WIN32)
    tap_skip("what the environment does is named", "no setenv here");
#else
    bench_t b = new_bench(PIPE_PINNED);
    (void)setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    tap_cause(&b, SPIPE_CAUSE_LAUNCH_BLOCKING, "CUDA_LAUNCH_BLOCKING is set",
              "CUDA_LAUNCH_BLOCKING is named");
    (void)setenv("CUDA_LAUNCH_BLOCKING", "0", 1);
    b = new_bench(PIPE_PINNED);
    run(&b);
    tap_ok(!(b.r.causes & SPIPE_CAUSE_LAUNCH_BLOCKING), "not where it is 0");
    done(&b);
    (void)unsetenv("CUDA_LAUNCH_BLOCKING");
    (void)setenv("NSYS_PROFILING_SESSION_ID", "1", 1);
    b = new_bench(PIPE_PINNED);
    tap_cause(&b, SPIPE_CAUSE_WATCHED, "a profiler or sanitizer is attached",
              "a profiler is named");
    (void)unsetenv("NSYS_PROFILING_SESSION_ID");
#endif
}

static void test_both_ways(void) {
#if defined(__SANITIZE_THREAD__)
    tap_skip("copies that slow each other down are told", "copies are too short here");
#else
    bench_t b = new_bench(PIPE_PINNED);
    b.d.chunk = 2 * CHUNK; /* so large that bytes, not each copy's start, take the time */
    run(&b);
    if (b.r.busy_ms[SPIPE_SPAN_STAGE] >= b.r.bound_ms) {
        tap_skip("copies that slow each other down are told", "here the stages take longest");
    } else {
        tap_ok(has(&b, SPIPE_CAUSE_BOTH_WAYS, "x as long as alone"),
               "copies that slow each other down are told");
    }
    done(&b);
#endif
}

static void test_print(void) {
    bench_t b = new_bench(PIPE_PINNED);
    char text[8192];
    size_t n;
    FILE *f = tmpfile();
    b.d.checked = 1;
    spipe_add_input(&b.d, b.x.at, sizeof(float));
    spipe_add_output(&b.d, b.y.at, sizeof(float));
    spipe_add_stage(&b.d, "add", add_stage, &b.work);
    spipe_add_stage(&b.d, "again", add_stage, &b.work);
    run(&b);
    if (!f) exit(99);
    SPIPE_CHECK(spipe_report_print(&b.r, f));
    rewind(f);
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    fclose(f);
    tap_ok(strstr(text, "copy in ") && strstr(text, "stages ") && strstr(text, "overlap ") &&
               strstr(text, "  bound ") && strstr(text, "  sync ") && strstr(text, "\n    add ") &&
               strstr(text, "\n    again ") && strstr(text, "  verdict   the limit is ") &&
               strstr(text, "\n            a checked run was"),
           "the printed report shows engines, stages, overlap and a line for each cause");
    done(&b);
}

int main(void) {
    const int serial = pipe_sanitized();
    test_spans();
    test_figures();
    test_unwatched();
    test_little_room();
    test_kept();
    test_failed();
    test_staged();
    test_settings();
    test_environment();
    test_print();
    if (serial) {
        tap_skip("causes that work side by side shows are named", "compute-sanitizer serialises");
        return tap_done();
    }
    test_host_work();
    test_memory();
    test_streams();
    test_waiting();
    test_chunks();
    test_both_ways();
    return tap_done();
}
