/*  test_enqueue.cu -- a pipeline made once runs many times, in a stream's order when enqueued, and
    inside a CUDA graph when captured. */
#include "pipe_common.h"

enum {
    N = 4001,
    CHUNK = 300
};

static spipe_desc_t describe(pipe_array_t x, pipe_array_t y, pipe_mix_args_t *args,
                             spipe_schedule_t schedule) {
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.chunk = CHUNK;
    d.schedule = schedule;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "mix", pipe_mix_stage, args);
    return d;
}

static int is_mixed(const unsigned char *x, const unsigned char *y, size_t n) {
    size_t i, wrong = 0;
    for (i = 0; i < n; ++i) wrong += y[i] != pipe_mix(x[i], i);
    if (wrong) tap_note("%zu of %zu bytes are wrong", wrong, n);
    return wrong == 0;
}

static void test_many_runs(int memory) {
    pipe_mix_args_t args = {0, 1, 1};
    pipe_array_t x = pipe_array_new(N, memory), y = pipe_array_new(N, memory);
    pipe_array_t x2 = pipe_array_new(2 * N, PIPE_PAGEABLE), y2 = pipe_array_new(2 * N, PIPE_PINNED);
    spipe_desc_t d = describe(x, y, &args, SPIPE_SCHEDULE_AUTO);
    spipe_pipeline_t *p;
    spipe_report_t r;
    int k, good = 1;
    tap_ok(spipe_pipeline_create(&p, &d, NULL) == cudaSuccess, "a pipeline is made (%s)",
           pipe_memory_names[memory]);
    for (k = 0; k < 5; ++k) {
        pipe_randomise(x);
        pipe_poison(y);
        good &= spipe_pipeline_run(p, &r) == cudaSuccess && is_mixed(x.at, y.at, N);
    }
    tap_ok(good && r.setup_ms == 0.0, "it runs again and again, set up once");
    pipe_randomise(x2);
    pipe_poison(y2);
    good = spipe_pipeline_set_host(p, 0, x2.at) == cudaSuccess &&
           spipe_pipeline_set_host(p, 1, y2.at) == cudaSuccess &&
           spipe_pipeline_set_count(p, 2 * N) == cudaSuccess;
    good = good && spipe_pipeline_run(p, &r) == cudaSuccess && is_mixed(x2.at, y2.at, 2 * N);
    tap_ok(good && pipe_guard_whole(y2),
           "other arrays, of other kinds of memory, and another length");
    good = spipe_pipeline_set_count(p, 5) == cudaSuccess;
    pipe_poison(y2);
    good = good && spipe_pipeline_run(p, &r) == cudaSuccess && is_mixed(x2.at, y2.at, 5);
    tap_ok(good && y2.at[5] == 0xA5, "and a shorter one");
    tap_ok(spipe_pipeline_set_host(p, 7, x.at) == cudaErrorInvalidValue &&
               spipe_pipeline_set_host(p, 0, NULL) == cudaErrorInvalidValue,
           "set_host refuses a buffer that is not there and a NULL array");
    tap_ok(spipe_pipeline_destroy(p) == cudaSuccess, "and is destroyed");
    pipe_free(&x);
    pipe_free(&y);
    pipe_free(&x2);
    pipe_free(&y2);
}

static cudaError_t fail_when_told(const spipe_chunk_t *c, void *user) {
    pipe_mix_args_t args = {0, 1, 1};
    if (*(int *)user && c->index == 2) return cudaErrorNotSupported;
    return pipe_mix_stage(c, &args);
}

static void test_run_after_failure(void) {
    pipe_mix_args_t args = {0, 1, 1};
    pipe_array_t x = pipe_array_new(N, PIPE_PAGEABLE), y = pipe_array_new(N, PIPE_PAGEABLE);
    spipe_desc_t d = describe(x, y, &args, SPIPE_SCHEDULE_ENGINES);
    spipe_pipeline_t *p;
    spipe_report_t r;
    int fail = 1, k, good = 1;
    d.stages[0].fn = fail_when_told;
    d.stages[0].user = &fail;
    pipe_randomise(x);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (k = 0; k < 6; ++k) {
        fail = k % 2 == 0;
        pipe_poison(y);
        const cudaError_t e = spipe_pipeline_run(p, &r);
        good &= fail ? e == cudaErrorNotSupported && r.failure.chunk == 2
                     : e == cudaSuccess && is_mixed(x.at, y.at, N);
    }
    tap_ok(good, "a pipeline runs again after a failed run");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    pipe_free(&x);
    pipe_free(&y);
}

static __global__ void add_kernel(unsigned char *x, unsigned char v, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) x[i] = (unsigned char)(x[i] + v);
}

/* The caller's stream: +1 on the pinned input by a kernel, the pipeline, +1 on its output. */
static void test_order(int memory, spipe_schedule_t schedule) {
    pipe_mix_args_t args = {0, 1, 1};
    pipe_array_t x = pipe_array_new(N, PIPE_PINNED), y = pipe_array_new(N, memory);
    pipe_array_t z = pipe_array_new(N, PIPE_PINNED);
    spipe_desc_t d = describe(x, y, &args, schedule);
    spipe_pipeline_t *p;
    cudaStream_t stream;
    unsigned char *before = (unsigned char *)malloc(N);
    size_t i, wrong = 0;
    int k, good = 1;
    d.stages[0].fn = pipe_mix_stage;
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    pipe_randomise(x);
    memcpy(before, x.at, N);
    pipe_poison(y);
    for (k = 0; k < 3; ++k) { /* x grows by one before each run; nothing waits on the host */
        good &= SPIPE_LAUNCH(add_kernel, spipe_blocks(N, 256), 256, 0, stream, x.at, 1,
                             (size_t)N) == cudaSuccess;
        good &= spipe_pipeline_enqueue(p, stream) == cudaSuccess;
    }
    if (memory == PIPE_PINNED) {
        good &= SPIPE_LAUNCH(add_kernel, spipe_blocks(N, 256), 256, 0, stream, y.at, 1,
                             (size_t)N) == cudaSuccess;
    }
    good &= cudaStreamSynchronize(stream) == cudaSuccess;
    for (i = 0; i < N; ++i) {
        const unsigned char want = pipe_mix((unsigned char)(before[i] + 3), i);
        wrong += y.at[i] != (unsigned char)(want + (memory == PIPE_PINNED));
    }
    if (wrong) tap_note("%zu of %d bytes are wrong", wrong, (int)N);
    tap_ok(good && wrong == 0 && spipe_pipeline_wait(p, NULL) == cudaSuccess,
           "enqueued runs keep the caller's stream's order, %s, output %s",
           spipe_schedule_name(schedule), pipe_memory_names[memory]);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(cudaStreamDestroy(stream));
    free(before);
    pipe_free(&x);
    pipe_free(&y);
    pipe_free(&z);
}

static void test_graph(int memory, spipe_schedule_t schedule) {
    pipe_mix_args_t args = {0, 1, 1};
    pipe_array_t x = pipe_array_new(N, memory), y = pipe_array_new(N, memory);
    spipe_desc_t d = describe(x, y, &args, schedule);
    spipe_pipeline_t *p;
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaError_t e, ended;
    int k, good = 1;
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    pipe_randomise(x);
    good &= spipe_pipeline_run(p, NULL) == cudaSuccess; /* events were used before the capture */
    SPIPE_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    e = spipe_pipeline_enqueue(p, stream);
    ended = cudaStreamEndCapture(stream, &graph);
    if (memory != PIPE_PINNED) {
        tap_ok(e == cudaErrorStreamCaptureUnsupported && ended == cudaSuccess &&
                   strstr(spipe_pipeline_failure(p)->message, "pinned") != NULL,
               "a captured run that would need host threads is refused in words, and the capture "
               "goes on, %s",
               spipe_schedule_name(schedule));
        goto done;
    }
    if (e != cudaSuccess) tap_note("enqueue: %s", cudaGetErrorName(e));
    if (ended != cudaSuccess) tap_note("end: %s", cudaGetErrorName(ended));
    good &= e == cudaSuccess && ended == cudaSuccess && graph;
    if (good) good &= cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess;
    for (k = 0; k < 4 && good; ++k) {
        pipe_randomise(x);
        pipe_poison(y);
        good &= cudaGraphLaunch(exec, stream) == cudaSuccess;
        good &= cudaStreamSynchronize(stream) == cudaSuccess;
        good &= is_mixed(x.at, y.at, N);
    }
    tap_ok(good, "a captured run replays with new data, %s, %s", spipe_schedule_name(schedule),
           pipe_memory_names[memory]);
done:
    pipe_poison(y);
    tap_ok(spipe_pipeline_run(p, NULL) == cudaSuccess && is_mixed(x.at, y.at, N),
           "and the pipeline still runs by itself");
    if (exec) SPIPE_CHECK(cudaGraphExecDestroy(exec));
    if (graph) SPIPE_CHECK(cudaGraphDestroy(graph));
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(cudaStreamDestroy(stream));
    pipe_free(&x);
    pipe_free(&y);
}

/* Everything that host threads have to do. */
typedef struct rolling {
    size_t given, taken;
    int in_order;
} rolling_t;

static cudaError_t rolling_source(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    rolling_t *r = (rolling_t *)user;
    size_t i;
    for (i = 0; i < max_count; ++i)
        ((unsigned char *)dst)[i] = (unsigned char)(r->given++ % N * 11);
    *count = max_count;
    return cudaSuccess;
}

static cudaError_t rolling_sink(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    rolling_t *r = (rolling_t *)user;
    size_t i;
    for (i = 0; i < count; ++i) {
        const unsigned char want =
            (unsigned char)(pipe_mix((unsigned char)((first + i) * 11), first + i) + 1);
        r->in_order &= ((const unsigned char *)src)[i] == want;
    }
    r->in_order &= first == r->taken % N;
    r->taken += count;
    return cudaSuccess;
}

static cudaError_t add_one(const spipe_chunk_t *c, void *user) {
    unsigned char *v = SPIPE_BUF(c, 1, unsigned char);
    size_t i;
    (void)user;
    for (i = 0; i < c->count; ++i) ++v[i];
    return cudaSuccess;
}

static void test_host_work(void) {
    pipe_mix_args_t args = {0, 1, 1};
    unsigned weight = 7, back = 0;
    rolling_t r = {0, 0, 1};
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    cudaStream_t stream;
    int k, good = 1;
    d.count = N;
    d.chunk = CHUNK;
    spipe_add_source(&d, rolling_source, &r, 1, SPIPE_IN_ORDER);
    spipe_add_sink(&d, rolling_sink, &r, 1, SPIPE_IN_ORDER);
    spipe_add_resident(&d, &weight, sizeof weight, SPIPE_UPLOAD | SPIPE_DOWNLOAD);
    spipe_add_resident(&d, &back, sizeof back, SPIPE_DOWNLOAD);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    spipe_add_host_stage(&d, "one", add_one, NULL, SPIPE_BIT(1), SPIPE_BIT(1));
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    back = 99;
    for (k = 0; k < 3; ++k) good &= spipe_pipeline_enqueue(p, stream) == cudaSuccess;
    good &= cudaStreamSynchronize(stream) == cudaSuccess;
    good &= spipe_pipeline_wait(p, NULL) == cudaSuccess;
    tap_ok(good && r.in_order && r.taken == 3 * N && r.given == 3 * N && weight == 7 && back == 0,
           "source, sink, host stage and resident buffers in enqueued runs");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(cudaStreamDestroy(stream));
}

/* A resident buffer in pageable memory, which a host function in the caller's stream sets while
   spipe_pipeline_enqueue is being called: the run must see what was set. */
typedef struct weights {
    unsigned value[64];
    unsigned next;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int open; /* under the lock: set_weights may go on */
} weights_t;

static void CUDART_CB set_weights(void *user) {
    weights_t *w = (weights_t *)user;
    size_t i;
    pthread_mutex_lock(&w->lock);
    while (!w->open) pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    for (i = 0; i < 64; ++i) w->value[i] = w->next;
}

static void *let_set(void *user) {
    weights_t *w = (weights_t *)user;
    usleep(30000); /* the caller is in enqueue by then, or through with it */
    pthread_mutex_lock(&w->lock);
    w->open = 1;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static __global__ void weigh_kernel(const unsigned char *x, unsigned char *y, unsigned *weight,
                                    size_t first, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = (unsigned char)(x[i] + weight[0]);
    if (first + i == 0) weight[1] = weight[0] + 1;
}

static cudaError_t weigh_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(weigh_kernel, spipe_blocks(c->count, 256), 256, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned char), SPIPE_BUF(c, 1, unsigned char),
                        SPIPE_BUF(c, 2, unsigned), c->first, c->count);
}

static spipe_desc_t describe_weights(pipe_array_t x, pipe_array_t y, weights_t *w) {
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.chunk = CHUNK;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_resident(&d, w->value, sizeof w->value, SPIPE_UPLOAD | SPIPE_DOWNLOAD);
    spipe_add_stage(&d, "weigh", weigh_stage, NULL);
    return d;
}

static void test_pageable_resident(void) {
    pipe_array_t x = pipe_array_new(N, PIPE_PINNED), y = pipe_array_new(N, PIPE_PINNED);
    weights_t *w = (weights_t *)malloc(sizeof *w);
    spipe_pipeline_t *p;
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    cudaError_t e, ended;
    pthread_t helper;
    int good = 1;
    unsigned run;
    size_t i;
    if (!w) exit(99);
    memset((void *)w, 0, sizeof *w);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    pipe_randomise(x);
    const spipe_desc_t d = describe_weights(x, y, w);
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (run = 0; run < 3; ++run) {
        w->next = 10 * run + 5;
        w->open = 0;
        pipe_poison(y);
        SPIPE_CHECK(cudaLaunchHostFunc(stream, set_weights, w));
        if (pthread_create(&helper, NULL, let_set, w) != 0) exit(99);
        good &= spipe_pipeline_enqueue(p, stream) == cudaSuccess;
        good &= cudaStreamSynchronize(stream) == cudaSuccess;
        pthread_join(helper, NULL);
        for (i = 0; i < N; ++i) good &= y.at[i] == (unsigned char)(x.at[i] + w->next);
        good &= w->value[0] == w->next && w->value[1] == w->next + 1;
    }
    tap_ok(good && spipe_pipeline_wait(p, NULL) == cudaSuccess,
           "a pageable resident buffer is read when the stream gets there, and written back");
    SPIPE_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    e = spipe_pipeline_enqueue(p, stream);
    ended = cudaStreamEndCapture(stream, &graph);
    tap_ok(e == cudaErrorStreamCaptureUnsupported && ended == cudaSuccess &&
               strstr(spipe_pipeline_failure(p)->message, "pinned") != NULL,
           "and is refused in a capture, which goes on");
    if (graph) SPIPE_CHECK(cudaGraphDestroy(graph));
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(cudaStreamDestroy(stream));
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->changed);
    free(w);
    pipe_free(&x);
    pipe_free(&y);
}

/* CUDA runs the launches of one graph after the other, also from two streams at once. */
static void test_replay_in_two_streams(spipe_schedule_t schedule) {
    pipe_mix_args_t args = {0, 0, 1};
    pipe_array_t x = pipe_array_new(N, PIPE_PINNED);
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    cudaStream_t s[2];
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    unsigned char *before = (unsigned char *)malloc(N);
    size_t i, wrong = 0;
    int k, good = 1;
    if (!before) exit(99);
    d.count = N;
    d.chunk = CHUNK;
    d.schedule = schedule;
    spipe_add_inout(&d, x.at, 1);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    pipe_randomise(x);
    memcpy(before, x.at, N);
    for (k = 0; k < 2; ++k) SPIPE_CHECK(spipe_stream_create(&s[k], SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(cudaStreamBeginCapture(s[0], cudaStreamCaptureModeThreadLocal));
    good &= spipe_pipeline_enqueue(p, s[0]) == cudaSuccess;
    good &= cudaStreamEndCapture(s[0], &graph) == cudaSuccess;
    good = good && cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess;
    for (k = 0; k < 6 && good; ++k) good &= cudaGraphLaunch(exec, s[k % 2]) == cudaSuccess;
    for (k = 0; k < 2; ++k) good &= cudaStreamSynchronize(s[k]) == cudaSuccess;
    for (i = 0; i < N; ++i) {
        unsigned char v = before[i];
        for (k = 0; k < 6; ++k) v = pipe_mix(v, i);
        wrong += x.at[i] != v;
    }
    tap_ok(good && wrong == 0, "a captured run replayed in two streams at once runs in turn, %s",
           spipe_schedule_name(schedule));
    if (exec) SPIPE_CHECK(cudaGraphExecDestroy(exec));
    if (graph) SPIPE_CHECK(cudaGraphDestroy(graph));
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    for (k = 0; k < 2; ++k) SPIPE_CHECK(cudaStreamDestroy(s[k]));
    free(before);
    pipe_free(&x);
}

/* Stream 0 is asked, too: it may be the thread's own, which captures, or one that may not be used
   while a stream that waits for it captures. */
static void test_stream_zero(void) {
    pipe_mix_args_t args = {0, 1, 1};
    pipe_array_t x = pipe_array_new(N, PIPE_PINNED), y = pipe_array_new(N, PIPE_PINNED);
    spipe_desc_t d = describe(x, y, &args, SPIPE_SCHEDULE_ENGINES);
    spipe_pipeline_t *p;
    cudaStream_t blocking;
    cudaGraph_t graph = NULL;
    cudaError_t e, ended;
    pipe_randomise(x);
    SPIPE_CHECK(cudaStreamCreate(&blocking));
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeThreadLocal));
    e = spipe_pipeline_enqueue(p, NULL);
    ended = cudaStreamEndCapture(blocking, &graph);
    tap_ok(e == cudaErrorStreamCaptureImplicit && ended == cudaSuccess && graph,
           "a run in stream 0 while a blocking stream captures is refused, the capture goes on");
    if (e == cudaErrorStreamCaptureImplicit) (void)cudaGetLastError();
    pipe_poison(y);
    tap_ok(spipe_pipeline_enqueue(p, NULL) == cudaSuccess &&
               spipe_pipeline_wait(p, NULL) == cudaSuccess && is_mixed(x.at, y.at, N),
           "and taken afterwards");
    if (graph) SPIPE_CHECK(cudaGraphDestroy(graph));
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(cudaStreamDestroy(blocking));
    pipe_free(&x);
    pipe_free(&y);
}

static cudaError_t bad_sink(const spipe_part_t *part, void *user) {
    const size_t first = part->first, count = part->count;
    if (first >= 5 * CHUNK) return cudaErrorOperatingSystem;
    *(size_t *)user = first + count;
    return cudaSuccess;
}

/* What may be captured is a matter of the arrays, not of the count. */
static void test_capture_nothing(spipe_staging_t staging) {
    pipe_mix_args_t args = {0, 1, 1};
    pipe_array_t x = pipe_array_new(N, PIPE_PINNED), y = pipe_array_new(N, PIPE_PINNED);
    spipe_desc_t d = describe(x, y, &args, SPIPE_SCHEDULE_AUTO);
    spipe_pipeline_t *p;
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaError_t e, ended;
    d.staging = staging;
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_set_count(p, 0));
    pipe_poison(y);
    SPIPE_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    e = spipe_pipeline_enqueue(p, stream);
    ended = cudaStreamEndCapture(stream, &graph);
    if (e == cudaSuccess && ended == cudaSuccess) {
        SPIPE_CHECK(cudaGraphInstantiate(&exec, graph, 0));
        SPIPE_CHECK(cudaGraphLaunch(exec, stream));
        SPIPE_CHECK(cudaStreamSynchronize(stream));
        SPIPE_CHECK(cudaGraphExecDestroy(exec));
    }
    tap_ok(e == cudaSuccess && ended == cudaSuccess && y.at[0] == 0xA5 && pipe_guard_whole(y),
           "pinned arrays with count 0 are captured, and nothing is written, staging %d: %s",
           (int)staging, spipe_pipeline_failure(p)->message);
    if (graph) SPIPE_CHECK(cudaGraphDestroy(graph));
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(cudaStreamDestroy(stream));
    pipe_free(&x);
    pipe_free(&y);
}

/* A call that is refused between enqueue and wait is no failure of the run. */
static void test_refused_meanwhile(void) {
    pipe_mix_args_t args = {0, 1, 1};
    pipe_array_t x = pipe_array_new(N, PIPE_PINNED), y = pipe_array_new(N, PIPE_PINNED);
    spipe_desc_t d = describe(x, y, &args, SPIPE_SCHEDULE_AUTO);
    spipe_pipeline_t *p;
    spipe_report_t r;
    spipe_chunk_t c;
    pipe_randomise(x);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_enqueue(p, NULL));
    tap_ok(spipe_pipeline_next(p, NULL, &c) == cudaErrorInvalidValue &&
               strstr(spipe_pipeline_failure(p)->message, "has stages"),
           "a call that is refused says why: %s", spipe_pipeline_failure(p)->message);
    tap_ok(spipe_pipeline_wait(p, &r) == cudaSuccess && !r.failure.message[0] &&
               is_mixed(x.at, y.at, N),
           "and the run that was enqueued before it ends well: %s", r.failure.message);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    pipe_free(&x);
    pipe_free(&y);
}

static void test_late_failure(void) {
    pipe_mix_args_t args = {0, 1, 1};
    pipe_array_t x = pipe_array_new(N, PIPE_PINNED);
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    spipe_report_t r;
    size_t got = 0;
    pipe_randomise(x);
    d.count = N;
    d.chunk = CHUNK;
    spipe_add_input(&d, x.at, 1);
    spipe_add_sink(&d, bad_sink, &got, 1, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    tap_ok(spipe_pipeline_enqueue(p, NULL) == cudaErrorOperatingSystem &&
               spipe_pipeline_enqueue(p, NULL) == cudaErrorOperatingSystem,
           "a failure while the host works comes back from enqueue, and from the next one");
    tap_ok(spipe_pipeline_wait(p, &r) == cudaErrorOperatingSystem && r.failure.chunk == 5 &&
               r.failure.chunks_whole == 5 && got == 5 * CHUNK,
           "wait tells what failed in an enqueued run: %s", r.failure.message);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    pipe_free(&x);
}

/* A run by itself cannot be captured, and says that this is why; nor does it harm the next. */
static void test_run_in_capture(void) {
    pipe_mix_args_t args = {0, 1, 1};
    pipe_array_t x = pipe_array_new(N, PIPE_PAGEABLE), y = pipe_array_new(N, PIPE_PAGEABLE);
    spipe_desc_t d = describe(x, y, &args, SPIPE_SCHEDULE_AUTO);
    spipe_report_t r;
    cudaGraph_t graph = NULL;
    cudaStream_t stream;
    cudaError_t e;
    pipe_randomise(x);
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    e = spipe_run(&d, &r);
    (void)cudaStreamEndCapture(stream, &graph); /* which the run may have made invalid */
    (void)cudaGetLastError();
    tap_ok(e == cudaErrorStreamCaptureUnsupported &&
               strstr(r.failure.message, cudaGetErrorString(e)),
           "a run during a capture: %s", r.failure.message);
    tap_ok(spipe_run(&d, &r) == cudaSuccess && is_mixed(x.at, y.at, N), "and the next is right");
    if (graph) SPIPE_CHECK(cudaGraphDestroy(graph));
    SPIPE_CHECK(cudaStreamDestroy(stream));
    pipe_free(&x);
    pipe_free(&y);
}

int main(void) {
    static const spipe_schedule_t schedules[] = {SPIPE_SCHEDULE_ENGINES, SPIPE_SCHEDULE_SERIAL,
                                                 SPIPE_SCHEDULE_ZERO_COPY};
    const int pinned = pipe_can_pin((size_t)4 * N); /* three arrays at once */
    int s, m;
    for (m = 0; m < PIPE_NUM_MEMORIES; ++m) test_many_runs(m);
    test_run_after_failure();
    for (s = 0; s < 3; ++s) test_graph(PIPE_PAGEABLE, schedules[s]);
    for (s = 0; s < 3 && pinned; ++s) {
        test_order(PIPE_PINNED, schedules[s]);
        test_order(PIPE_PAGEABLE, schedules[s]);
        test_graph(PIPE_PINNED, schedules[s]);
    }
    test_host_work();
    test_pageable_resident();
    if (pinned) {
        test_replay_in_two_streams(SPIPE_SCHEDULE_ENGINES);
        test_stream_zero();
    } else {
        tap_skip("kernels of the caller's may use the arrays, and captures, too",
                 "no room to pin the test's own arrays");
    }
    for (s = 0; s < 4 && pinned; ++s) test_capture_nothing((spipe_staging_t)s);
    test_refused_meanwhile();
    test_late_failure();
    test_run_in_capture();
    return tap_done();
}
