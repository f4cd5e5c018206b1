/*  test_other_device.cu -- objects of GPU 1 are used while GPU 0 is the current one, as in any new
    thread: they work on their own GPU, and GPU 0 stays current. Then the same while another thread
    captures streams in the global mode, which fails no call, and which no call breaks. Every public
    function is called so; the headers say which there are. */
#include "hostcuda.h"
#include "streampipe.h"
#include "streampipe_devices.h"
#include "streampipe_files.h"
#include "streampipe_timeline.h"
#include "streampipe_tools.h"
#include "tap.h"

#include <set>
#include <string>
#include <unistd.h>
#include <vector>

enum {
    N = 5000,
    CHUNK = 600
};

/* ---- What was called, and how it went -------------------------------------------------------- */
static std::set<std::string> called;
static int current, wrong; /* the device that should be current; calls that went wrong */

/* Captures again and again, in the mode in which other threads' calls matter. */
static struct {
    pthread_t thread;
    int on, stop, num, broken;
} captures;

static void *capturing(void *) {
    cudaStream_t s;
    SPIPE_CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    while (!__atomic_load_n(&captures.stop, __ATOMIC_ACQUIRE)) {
        cudaGraph_t graph = NULL;
        const cudaError_t began = cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
        __atomic_add_fetch(&captures.num, 1, __ATOMIC_RELEASE);
        usleep(500);
        const cudaError_t ended = cudaStreamEndCapture(s, &graph);
        if (began != cudaSuccess || ended != cudaSuccess) {
            (void)cudaGetLastError();
            __atomic_add_fetch(&captures.broken, 1, __ATOMIC_RELEASE);
        }
        if (graph) SPIPE_CHECK(cudaGraphDestroy(graph));
    }
    SPIPE_CHECK(cudaStreamDestroy(s));
    return NULL;
}

/* Only the library's calls are made in CUDA's default mode; the test's own mind no capture. */
static void set_mode(cudaStreamCaptureMode mode) {
    if (captures.on) SPIPE_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
}

static void begin_captures(void) {
    captures.on = 1;
    set_mode(cudaStreamCaptureModeRelaxed);
    pthread_create(&captures.thread, NULL, capturing, NULL);
    while (!__atomic_load_n(&captures.num, __ATOMIC_ACQUIRE)) usleep(10);
}

static void end_captures(void) {
    __atomic_store_n(&captures.stop, 1, __ATOMIC_RELEASE);
    pthread_join(captures.thread, NULL);
    tap_ok(captures.broken == 0, "of %d captures of another thread %d were broken", captures.num,
           captures.broken);
}

static void use(int device) {
    SPIPE_CHECK(cudaSetDevice(device));
    current = device;
}

static void note(const char *call, int line, cudaError_t e) {
    const std::string name(call, strcspn(call, "("));
    static int broken;
    const int now = __atomic_load_n(&captures.broken, __ATOMIC_ACQUIRE);
    int device = -1;
    set_mode(cudaStreamCaptureModeRelaxed);
    called.insert(name);
    if (now != broken) tap_note("line %d: a capture was broken, perhaps by %s", line, name.c_str());
    broken = now;
    (void)cudaGetDevice(&device);
    if (e == cudaSuccess && device == current) return;
    ++wrong;
    tap_note("line %d: %s returned %s, and device %d is current", line, name.c_str(),
             cudaGetErrorName(e), device);
    (void)cudaGetLastError();
    (void)cudaSetDevice(current);
}

template <typename T>
T value_of(const char *call, int line, T value) {
    note(call, line, cudaSuccess);
    return value;
}

/* Calls that return an error, a value, nothing, or what is wanted. */
#define BEGIN      set_mode(cudaStreamCaptureModeGlobal)
#define CALL(call) note(#call, __LINE__, (BEGIN, call))
#define GET(call)  value_of(#call, __LINE__, (BEGIN, call))
#define DO(call)   (BEGIN, call, note(#call, __LINE__, cudaSuccess))
#define IS(wanted, call)                                                                           \
    note(#call, __LINE__, (BEGIN, call) == (wanted) ? cudaSuccess : cudaErrorUnknown)

static int went_well(void) {
    const int well = wrong == 0;
    wrong = 0;
    return well;
}

/* ---- Streams, events, timers ----------------------------------------------------------------- */
static void add_one(void *user) { ++*(int *)user; }

static void slow_one(void *user) {
    usleep(20000);
    add_one(user);
}

static void keep_one(void *user) { ((int *)user)[1] = ((int *)user)[0]; }

/* What was put on GPU 1's default stream is behind NULL as the parent of its pool's scope. */
static void test_scope(spipe_stream_pool_t *pool, cudaStream_t parent) {
    int seen[2] = {0, 0};
    spipe_scope_t scope;
    use(1);
    SPIPE_CHECK(cudaLaunchHostFunc(parent, slow_one, seen));
    use(0);
    CALL(spipe_scope_begin(&scope, pool, parent));
    SPIPE_CHECK(cudaLaunchHostFunc(scope.stream, keep_one, seen));
    SPIPE_CHECK(cudaStreamSynchronize(scope.stream));
    CALL(spipe_scope_end(&scope));
    tap_ok(seen[1] == 1, "a scope begins after the work of %s",
           parent ? "its parent" : "the default stream of its pool's GPU");
}

/* Streams of GPU 1 join a capture, and leave it. */
static void test_captured(void) {
    cudaStream_t a, b;
    cudaGraph_t graph = NULL;
    use(1);
    SPIPE_CHECK(spipe_stream_create(&a, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_stream_create(&b, SPIPE_PRIORITY_DEFAULT));
    use(0);
    SPIPE_CHECK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    CALL(spipe_stream_wait(b, a));
    CALL(spipe_stream_wait(a, b));
    const cudaError_t e = cudaStreamEndCapture(a, &graph);
    tap_ok(went_well() && e == cudaSuccess, "a wait for a capturing stream joins its capture");
    (void)cudaGetLastError();
    if (graph) SPIPE_CHECK(cudaGraphDestroy(graph));
    SPIPE_CHECK(cudaStreamDestroy(a));
    SPIPE_CHECK(cudaStreamDestroy(b));
}

static void test_streams(void) {
    spipe_stream_pool_t pool;
    cudaStream_t s0, s1, a, b;
    int priority = 1;
    CALL(spipe_stream_create(&s0, SPIPE_PRIORITY_DEFAULT));
    use(1);
    CALL(spipe_stream_create(&s1, SPIPE_PRIORITY_DEFAULT));
    CALL(spipe_stream_pool_create(&pool, 2, SPIPE_PRIORITY_HIGH));
    use(0);
    CALL(spipe_priority_value(SPIPE_PRIORITY_HIGH, &priority));
    CALL(spipe_stream_next(&pool, &a));
    CALL(spipe_stream_acquire(&pool, &a));
    CALL(spipe_stream_try_acquire(&pool, &b));
    for (int device = 0; device < 2; ++device) {
        const cudaStream_t all[] = {s0, s1, a, NULL};
        use(device);
        for (cudaStream_t waiter : all) {
            for (cudaStream_t other : all) CALL(spipe_stream_wait(waiter, other));
        }
    }
    tap_ok(went_well(), "streams of two GPUs wait for each other, whichever GPU is current");
    int seen[2] = {0, 0};
    use(0);
    SPIPE_CHECK(cudaLaunchHostFunc(s1, slow_one, seen));
    CALL(spipe_stream_wait(s0, s1));
    CALL(spipe_host_call(s0, keep_one, seen));
    SPIPE_CHECK(cudaStreamSynchronize(s0));
    tap_ok(seen[1] == 1, "and the one waits until the other has come so far");
    CALL(spipe_stream_release(&pool, a));
    CALL(spipe_stream_release(&pool, b));
    test_scope(&pool, s1);
    test_scope(&pool, NULL);
    CALL(spipe_stream_pool_destroy(&pool));
    SPIPE_CHECK(cudaStreamDestroy(s0));
    SPIPE_CHECK(cudaStreamDestroy(s1));
    tap_ok(went_well(), "a pool of streams and its scopes work on their own GPU");
}

static void test_events(void) {
    spipe_event_pool_t pool;
    spipe_timer_t timer;
    cudaEvent_t e, plain;
    cudaStream_t s;
    use(1);
    SPIPE_CHECK(spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT));
    CALL(spipe_event_pool_create(&pool));
    CALL(spipe_timer_create(&timer));
    use(0);
    CALL(spipe_event_create(&plain));
    CALL(spipe_event_acquire(&pool, &e));
    tap_ok(cudaEventRecord(e, s) == cudaSuccess, "an event of a pool is of the pool's GPU");
    (void)cudaGetLastError();
    CALL(spipe_event_release(&pool, e));
    CALL(spipe_event_pool_destroy(&pool));
    for (cudaStream_t on : {s, (cudaStream_t)NULL}) {
        float ms = -1.0f;
        int count = 0;
        CALL(spipe_timer_start(&timer, on));
        use(1);
        SPIPE_CHECK(cudaLaunchHostFunc(on, add_one, &count));
        use(0);
        CALL(spipe_timer_stop(&timer, on));
        CALL(spipe_timer_ms(&timer, &ms));
        tap_ok(ms > 0.0f && count == 1, "a timer times %s of its own GPU",
               on ? "a stream" : "the default stream");
    }
    CALL(spipe_timer_destroy(&timer));
    SPIPE_CHECK(cudaEventDestroy(plain));
    SPIPE_CHECK(cudaStreamDestroy(s));
    tap_ok(went_well(), "pools of events and timers work on their own GPU");
}

/* ---- Workers, channels, memory --------------------------------------------------------------- */
static void keep_device(cudaError_t status, void *user) {
    if (status == cudaSuccess) (void)cudaGetDevice((int *)user);
}

static void test_worker_and_channel(void) {
    spipe_worker_t worker;
    spipe_channel_t channel;
    cudaStream_t s0, s1;
    int *value, sent = 7, got = 0;
    SPIPE_CHECK(spipe_stream_create(&s0, SPIPE_PRIORITY_DEFAULT));
    use(1);
    SPIPE_CHECK(spipe_stream_create(&s1, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(cudaMalloc((void **)&value, 2 * sizeof *value));
    SPIPE_CHECK(cudaMemcpy(value, &sent, sizeof sent, cudaMemcpyDefault));
    CALL(spipe_worker_create(&worker));
    CALL(spipe_channel_create(&channel, sizeof *value, 2));
    use(0);
    for (cudaStream_t on : {s1, s0, (cudaStream_t)NULL}) {
        int device = -1;
        CALL(spipe_worker_call(&worker, on, keep_device, &device));
        CALL(spipe_worker_wait(&worker));
        tap_ok(device == 1, "a worker's function has the worker's GPU as its current one");
    }
    for (cudaStream_t on : {s1, (cudaStream_t)NULL}) {
        CALL(spipe_channel_send(&channel, on, value));
        CALL(spipe_channel_recv(&channel, on, value + 1));
        use(1);
        SPIPE_CHECK(cudaDeviceSynchronize());
        use(0);
    }
    SPIPE_CHECK(cudaMemcpy(&got, value + 1, sizeof got, cudaMemcpyDefault));
    CALL(spipe_worker_destroy(&worker));
    CALL(spipe_channel_destroy(&channel));
    tap_ok(went_well() && got == sent, "workers and channels work on their own GPU");
    SPIPE_CHECK(cudaFree(value));
    SPIPE_CHECK(cudaStreamDestroy(s0));
    SPIPE_CHECK(cudaStreamDestroy(s1));
}

static void test_memory(void) {
    static unsigned char mine[1 << 16];
    void *pinned = NULL;
    int is = 0;
    use(1);
    CALL(spipe_pinned_alloc(&pinned, 1000));
    CALL(spipe_pin(mine, sizeof mine));
    use(0);
    CALL(spipe_is_pinned(mine, sizeof mine, &is));
    CALL(spipe_pinned_free(pinned));
    CALL(spipe_unpin(mine));
    tap_ok(went_well() && is, "memory pinned while another GPU was current is pinned for all");
}

/* ---- Descriptions, runs and pipelines -------------------------------------------------------- */
static int x[N], y[N], z[N], sums[4];
static size_t at;

static __global__ void plus_one(const int *in, int *out, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] + 1;
}

static cudaError_t stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(plus_one, spipe_blocks(c->count, 64), 64, 0, c->stream,
                        SPIPE_BUF(c, 0, const int), SPIPE_BUF(c, 1, int), c->count);
}

static cudaError_t host_stage(const spipe_chunk_t *c, void *user) {
    int *const out = SPIPE_BUF(c, 1, int);
    (void)user;
    for (size_t i = 0; i < c->count; ++i) ++out[i];
    return cudaSuccess;
}

static cudaError_t failing(const spipe_chunk_t *c, void *user) {
    const cudaError_t e = spipe_chunk_fail(c, "on purpose");
    (void)user;
    called.insert("spipe_chunk_fail");
    return e;
}

static cudaError_t source(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    (void)user;
    *count = N - at < max_count ? N - at : max_count;
    memcpy(dst, x + at, *count * sizeof *x);
    at += *count;
    return cudaSuccess;
}

static cudaError_t source_at(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t first = part->first, count = part->count;
    (void)user;
    memcpy(dst, x + first, count * sizeof *x);
    return cudaSuccess;
}

static cudaError_t work(const spipe_part_t *part, const void *tickets, void *user) {
    void *dst = part->data;
    const size_t count = part->count;
    (void)user;
    memcpy(dst, tickets, count * sizeof *x);
    return cudaSuccess;
}

static cudaError_t sink(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    memcpy((int *)user + first, src, count * sizeof *x);
    return cudaSuccess;
}

static cudaError_t sink_at(const spipe_part_t *part, void *user) { return sink(part, user); }

static cudaError_t reduce(void *into, const void *from, size_t bytes, void *user) {
    (void)user;
    for (size_t i = 0; i < bytes / sizeof(int); ++i) ((int *)into)[i] += ((const int *)from)[i];
    return cudaSuccess;
}

static int right(const int *of, int added) {
    int bad = 0;
    for (int i = 0; i < N; ++i) bad += of[i] != x[i] + added;
    memset(y, 0, sizeof y);
    memset(z, 0, sizeof z);
    return bad == 0;
}

static spipe_desc_t plain(void) {
    spipe_desc_t d = GET(spipe_desc_default());
    d.count = N;
    d.chunk = CHUNK;
    (void)GET(spipe_add_input(&d, x, sizeof *x));
    (void)GET(spipe_add_output(&d, y, sizeof *y));
    (void)GET(spipe_add_stage(&d, "plus one", stage, NULL));
    return d;
}

/* Each kind of buffer and stage once, described while GPU 0 is current, run on the current one. */
static void test_descriptions(void) {
    spipe_failure_t f;
    spipe_report_t r;
    spipe_plan_t plan;
    spipe_desc_t d = plain();
    const int number =
        GET(spipe_add_host_stage(&d, "host", host_stage, NULL, SPIPE_BIT(1), SPIPE_BIT(1)));
    IS(number, spipe_stage_ordered(&d, number));
    IS(number, spipe_stage_after(&d, number, "plus one"));
    IS(0, spipe_stage_replayable(&d, 0));
    IS(0, spipe_set_halo(&d, 0, 1, 1, SPIPE_EDGE_ZERO));
    (void)GET(spipe_add_temp(&d, 4));
    (void)GET(spipe_add_resident(&d, sums, sizeof sums, SPIPE_UPLOAD));
    CALL(spipe_desc_check(&d, &f));
    CALL(spipe_plan(&d, 0, &plan, &f));
    CALL(spipe_run(&d, &r));
    tap_ok(went_well() && right(y, 2), "a run has the current GPU as its own");
    d = GET(spipe_desc_default());
    at = 0;
    (void)GET(spipe_add_source(&d, source, NULL, sizeof *x, SPIPE_IN_ORDER));
    (void)GET(spipe_add_sink(&d, sink, y, sizeof *y, SPIPE_IN_ORDER));
    IS(0, spipe_stage_elementwise(&d, spipe_add_stage(&d, "plus one", stage, NULL)));
    CALL(spipe_run(&d, &r));
    tap_ok(went_well() && right(y, 1), "with a source and a sink");
    d = GET(spipe_desc_default());
    d.count = N;
    (void)GET(spipe_add_source(&d, source_at, NULL, sizeof *x, SPIPE_ANY_ORDER));
    (void)GET(spipe_add_sink(&d, sink_at, y, sizeof *y, SPIPE_ANY_ORDER));
    (void)spipe_add_stage(&d, "plus one", stage, NULL);
    CALL(spipe_run(&d, &r));
    tap_ok(went_well() && right(y, 1), "with positioned ones");
    d = GET(spipe_desc_default());
    at = 0;
    d.count = N;
    (void)GET(spipe_add_split_source(&d, source, work, NULL, sizeof *x, sizeof *x));
    memcpy(z, x, sizeof z);
    (void)GET(spipe_add_inout(&d, z, sizeof *z));
    (void)spipe_add_stage(&d, "plus one", stage, NULL);
    CALL(spipe_run(&d, &r));
    tap_ok(went_well() && right(z, 1), "with a split source and an in/out array");
    d = plain();
    (void)spipe_add_stage(&d, "fails", failing, NULL);
    IS(cudaErrorUnknown, spipe_run(&d, &r));
    tap_ok(went_well() && strstr(r.failure.message, "on purpose"), "and where a stage fails");
}

static void test_pipeline(void) {
    spipe_timeline_t t = GET(spipe_timeline_default());
    spipe_pipeline_t *p;
    spipe_failure_t f;
    spipe_report_t r;
    spipe_desc_t d = plain();
    cudaStream_t s0, s1;
    SPIPE_CHECK(spipe_stream_create(&s0, SPIPE_PRIORITY_DEFAULT));
    use(1);
    SPIPE_CHECK(spipe_stream_create(&s1, SPIPE_PRIORITY_DEFAULT));
    CALL(spipe_pipeline_create(&p, &d, &f));
    use(0);
    CALL(spipe_pipeline_run(p, &r));
    tap_ok(went_well() && right(y, 1), "a pipeline runs on its own GPU");
    CALL(spipe_pipeline_set_host(p, 1, z));
    CALL(spipe_pipeline_set_count(p, N - 1));
    CALL(spipe_pipeline_set_count(p, N));
    CALL(spipe_pipeline_set_timeline(p, &t));
    CALL(spipe_pipeline_run(p, &r));
    CALL(spipe_pipeline_set_timeline(p, NULL));
    tap_ok(went_well() && right(z, 1), "with another array, count, and a timeline");
    tap_ok(GET(spipe_pipeline_failure(p))->error == cudaSuccess &&
               GET(spipe_pipeline_plan(p))->count == N,
           "and says what it is");
    for (cudaStream_t on : {s0, s1, (cudaStream_t)NULL}) {
        CALL(spipe_pipeline_enqueue(p, on));
        CALL(spipe_pipeline_wait(p, &r));
        tap_ok(went_well() && right(z, 1), "and in the order of any GPU's stream");
    }
    CALL(spipe_pipeline_destroy(p));
    tap_ok(went_well(), "and is destroyed there");
    SPIPE_CHECK(cudaStreamDestroy(s0));
    SPIPE_CHECK(cudaStreamDestroy(s1));
}

/* Chunks taken in a loop, once to the end. */
static void test_loop(void) {
    spipe_pipeline_t *p;
    spipe_failure_t f;
    spipe_report_t r;
    spipe_chunk_t c;
    cudaStream_t s1;
    spipe_desc_t d = plain();
    d.num_stages = 0;
    use(1);
    SPIPE_CHECK(spipe_stream_create(&s1, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, &f));
    use(0);
    for (;;) {
        CALL(spipe_pipeline_next(p, s1, &c));
        if (c.count == 0) break;
        use(1); /* a launch is the caller's */
        SPIPE_CHECK(SPIPE_LAUNCH(plus_one, spipe_blocks(c.count, 64), 64, 0, s1,
                                 SPIPE_BUF(&c, 0, const int), SPIPE_BUF(&c, 1, int), c.count));
        use(0);
        CALL(spipe_pipeline_release(p, s1));
    }
    tap_ok(went_well() && right(y, 1), "chunks are taken from a pipeline of another GPU");
    CALL(spipe_pipeline_next(p, s1, &c));
    CALL(spipe_pipeline_release(p, s1));
    CALL(spipe_pipeline_end(p, &r));
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    tap_ok(went_well(), "and a loop ends early");
    SPIPE_CHECK(cudaStreamDestroy(s1));
}

static void test_resources(void) {
    spipe_resources_limits_t l = GET(spipe_resources_limits_default());
    spipe_resources_usage_t usage;
    spipe_resources_t *one, *both;
    spipe_pipeline_t *p;
    spipe_failure_t f;
    spipe_report_t r;
    spipe_desc_t d = plain();
    const int list[2] = {0, 1}, last = 1;
    l.device_bytes = l.pinned_bytes = 1 << 20;
    use(1);
    CALL(spipe_resources_create(&one, &l, &f));
    d.resources = one;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, &f));
    use(0);
    CALL(spipe_pipeline_run(p, &r));
    CALL(spipe_resources_usage(one, &usage));
    tap_ok(went_well() && right(y, 1) && usage.pipelines == 1,
           "a pipeline with resources of another GPU runs there");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    IS(cudaErrorInvalidValue, spipe_run(&d, &r));
    tap_ok(went_well() && strstr(r.failure.message, "the resources are of device 1"),
           "a run, which is the current GPU's, cannot have them: %s", r.failure.message);
    (void)GET(spipe_devices_list(&d, &last, 1));
    CALL(spipe_run(&d, &r));
    tap_ok(went_well() && right(y, 1), "unless it is sent there");
    CALL(spipe_resources_destroy(one, &f));
    CALL(spipe_devices_resources_create(&both, list, 2, &l, &f));
    d = plain();
    d.resources = both;
    (void)spipe_add_resident(&d, sums, sizeof sums, SPIPE_UPLOAD | SPIPE_DOWNLOAD);
    IS(0, spipe_devices_all(&d));
    IS(0, spipe_devices_reduce(&d, reduce, NULL));
    CALL(spipe_run(&d, &r));
    tap_ok(went_well() && right(y, 1) && r.num_devices == 2, "or to both");
    CALL(spipe_resources_destroy(both, &f));
    tap_ok(went_well(), "resources are freed on their own GPUs");
}

/* ---- Files, tools: GPU 0's, or nobody's ------------------------------------------------------ */
static void test_files(const std::string &folder) {
    const std::string from = folder + "/from", to = folder + "/to";
    spipe_file_t in, out;
    spipe_failure_t f;
    spipe_report_t r;
    spipe_desc_t d = spipe_desc_default();
    CALL(spipe_file_create(&out, from.c_str(), &f));
    CALL(spipe_file_write(&out, x, sizeof x, 0, &f));
    CALL(spipe_file_commit(&out, sizeof x, &f));
    DO(spipe_file_close(&out));
    CALL(spipe_file_open(&in, from.c_str(), &f));
    SPIPE_CHECK(spipe_file_create(&out, to.c_str(), &f));
    (void)GET(spipe_add_file_input(&d, &in, sizeof *x));
    (void)GET(spipe_add_file_output(&d, &out, sizeof *x));
    (void)spipe_add_stage(&d, "plus one", stage, NULL);
    CALL(spipe_run(&d, &r));
    SPIPE_CHECK(spipe_file_commit(&out, sizeof x, &f));
    spipe_file_close(&in);
    spipe_file_close(&out);
    FILE *read = fopen(to.c_str(), "rb");
    const size_t got = read ? fread(y, sizeof *y, N, read) : 0;
    if (read) fclose(read);
    (void)remove(from.c_str());
    (void)remove(to.c_str());
    tap_ok(went_well() && got == N && right(y, 1), "files are read and written");
}

static void test_tools(const std::string &folder, FILE *null) {
    const std::string path = folder + "/picture";
    static spipe_span_t spans[1000];
    spipe_timeline_t t = spipe_timeline_default();
    spipe_doctor_desc_t doctor = GET(spipe_doctor_default());
    spipe_checkup_t checkup;
    spipe_report_t r;
    spipe_plan_t plan;
    spipe_device_t facts;
    spipe_desc_t d = plain();
    cudaStream_t streams[2];
    use(1);
    for (cudaStream_t &s : streams) SPIPE_CHECK(spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT));
    use(0);
    doctor.streams = streams;
    doctor.num_streams = 2;
    doctor.probe_bytes = 1 << 16;
    CALL(spipe_doctor(&doctor, &checkup, null));
    tap_ok(went_well() && checkup.device.device == 1, "the doctor examines a stream's own GPU");
    CALL(spipe_device_get(&facts, 1));
    tap_ok(went_well() && facts.device == 1, "facts of another GPU");
    t.spans = spans;
    t.capacity = 1000;
    d.timeline = &t;
    CALL(spipe_run(&d, &r));
    CALL(spipe_report_print(&r, null));
    CALL(spipe_report_write_json(&r, path.c_str()));
    CALL(spipe_timeline_print(&t, null, 80));
    CALL(spipe_timeline_write_svg(&t, path.c_str()));
    CALL(spipe_timeline_write_html(&t, path.c_str()));
    CALL(spipe_timeline_write_trace(&t, path.c_str()));
    (void)remove(path.c_str());
    tap_ok(went_well(), "reports and pictures");
    d.timeline = NULL;
    SPIPE_CHECK(spipe_plan(&d, 0, &plan, NULL));
    CALL(spipe_plan_print(&plan, null));
    (void)GET(spipe_schedule_name(SPIPE_SCHEDULE_ENGINES));
    (void)GET(spipe_error_name(SPIPE_STOPPED));
    (void)GET(spipe_error_string(SPIPE_STOPPED));
    (void)GET(spipe_blocks((size_t)1, 1u));
    tap_ok(went_well(), "plans");
    for (cudaStream_t s : streams) SPIPE_CHECK(cudaStreamDestroy(s));
}

/* ---- All of them ----------------------------------------------------------------------------- */
/* The public functions of a header: its prototypes between the last >>api and the last >>impl. */
static std::set<std::string> functions_of(const char *header) {
    std::set<std::string> names;
    std::string text;
    char some[4096];
    FILE *f = fopen(header, "r");
    for (size_t n; f && (n = fread(some, 1, sizeof some, f)) > 0;) text.append(some, n);
    if (f) fclose(f);
    const size_t first = text.rfind(">>api"), last = text.rfind(">>impl");
    for (size_t i = text.find("\nSPIPE_API", first == text.npos ? 0 : first); i < last;
         i = text.find("\nSPIPE_API", i + 1)) {
        const size_t end = text.find('(', i), name = text.rfind("spipe_", end);
        names.insert(text.substr(name, end - name));
    }
    return names;
}

static void test_all(void) {
    static const char *const headers[] = {
        "streampipe.h", "extras/streampipe_devices.h", "extras/streampipe_files.h",
        "extras/streampipe_timeline.h", "extras/streampipe_tools.h"};
    for (const char *header : headers) {
        std::string missing;
        const std::set<std::string> names = functions_of(header);
        for (const std::string &name : names) {
            if (!called.count(name)) missing += " " + name;
        }
        tap_ok(!names.empty() && missing.empty(), "each function of %s is called here:%s", header,
               missing.empty() ? " all" : missing.c_str());
    }
}

static void test_functions(const std::string &folder, FILE *null) {
    test_streams();
    test_captured();
    test_events();
    test_worker_and_channel();
    test_memory();
    test_descriptions();
    use(1);
    test_descriptions();
    use(0);
    test_pipeline();
    test_loop();
    test_resources();
    test_files(folder);
    test_tools(folder, null);
}

int main(void) {
    char folder[] = "/tmp/other_device.XXXXXX";
    FILE *null = fopen("/dev/null", "w");
    if (!mkdtemp(folder) || !null) exit(99);
    hostcuda_set_devices(2);
    for (int i = 0; i < N; ++i) x[i] = 3 * i;
    use(0);
    test_functions(folder, null);
    begin_captures();
    test_functions(folder, null);
    end_captures();
    test_all();
    fclose(null);
    (void)rmdir(folder);
    return tap_done();
}
