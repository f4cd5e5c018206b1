/*  test_forked.cu -- a process that was forked after CUDA was used: every call on an object that it
    inherited is refused at once, and destroying one frees host memory and says so. So a child ends,
    whatever threads of its parent were doing; and the parent goes on. */
#include "pipe_common.h"
#include "streampipe_timeline.h"

#include <fcntl.h>
#undef O_TMPFILE /* so that outputs have a name from the start */
#include "streampipe_files.h"

#if defined(_WIN32) || defined(SPIPE_NO_THREADS)
int main(void) { tap_skip_all("no fork, or no threads, here"); }
#else
#include <sys/wait.h>
#include <unistd.h>

enum {
    N = 10000
};

#define FORKED cudaErrorInitializationError /* as CUDA's own calls return in a forked process */

/* ---- What the parent has made ---------------------------------------------------------------- */
static unsigned x[N], y[N];
static spipe_stream_pool_t streams;
static spipe_event_pool_t events;
static spipe_timer_t timer;
static spipe_scope_t scope;
static spipe_worker_t worker;
static spipe_channel_t channel;
static spipe_pipeline_t *pipeline, *lent, *taken;
static spipe_resources_t *resources;
static cudaStream_t stream;
static cudaEvent_t event;
static spipe_chunk_t chunk;
static void *value;

/* A gate that stages and jobs of the parent wait behind. */
static struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int open, waiting;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 1, 0};

static void pass(void) {
    pthread_mutex_lock(&gate.lock);
    ++gate.waiting;
    pthread_cond_broadcast(&gate.changed);
    while (!gate.open) pthread_cond_wait(&gate.changed, &gate.lock);
    --gate.waiting;
    pthread_mutex_unlock(&gate.lock);
}

static void set_gate(int open) {
    pthread_mutex_lock(&gate.lock);
    gate.open = open;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

static void await(int waiting) {
    pthread_mutex_lock(&gate.lock);
    while (gate.waiting < waiting) pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static cudaError_t copy(const spipe_chunk_t *c, void *user) {
    (void)user;
    if (c->index == 1) pass();
    return cudaMemcpyAsync(c->data[1], c->data[0], c->count * sizeof *x, cudaMemcpyDefault,
                           c->stream);
}

static spipe_desc_t describe(spipe_resources_t *r) {
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.chunk = 1000;
    d.resources = r;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "copy", copy, NULL);
    return d;
}

static void make_all(void) {
    spipe_resources_limits_t l = spipe_resources_limits_default();
    spipe_desc_t d = describe(NULL);
    l.device_bytes = l.pinned_bytes = 1 << 20;
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(cudaMalloc(&value, 64));
    SPIPE_CHECK(spipe_stream_pool_create(&streams, 2, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_scope_begin(&scope, &streams, stream));
    SPIPE_CHECK(spipe_event_pool_create(&events));
    SPIPE_CHECK(spipe_event_acquire(&events, &event));
    SPIPE_CHECK(spipe_timer_create(&timer));
    SPIPE_CHECK(spipe_worker_create(&worker));
    SPIPE_CHECK(spipe_channel_create(&channel, 64, 2));
    SPIPE_CHECK(spipe_pipeline_create(&pipeline, &d, NULL));
    d.num_stages = 0;
    SPIPE_CHECK(spipe_pipeline_create(&taken, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_next(taken, stream, &chunk));
    SPIPE_CHECK(spipe_resources_create(&resources, &l, NULL));
    d = describe(resources);
    SPIPE_CHECK(spipe_pipeline_create(&lent, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_run(pipeline, NULL));
    SPIPE_CHECK(spipe_pipeline_run(lent, NULL));
    for (int k = 0; k < 3; ++k) SPIPE_CHECK_RUN(&d, NULL); /* kept by the resources */
}

static void end_all(void) {
    SPIPE_CHECK(spipe_pipeline_end(taken, NULL));
    SPIPE_CHECK(spipe_pipeline_destroy(taken));
    SPIPE_CHECK(spipe_pipeline_destroy(lent));
    SPIPE_CHECK(spipe_pipeline_destroy(pipeline));
    SPIPE_CHECK(spipe_resources_destroy(resources, NULL));
    SPIPE_CHECK(spipe_channel_destroy(&channel));
    SPIPE_CHECK(spipe_worker_destroy(&worker));
    SPIPE_CHECK(spipe_timer_destroy(&timer));
    SPIPE_CHECK(spipe_event_release(&events, event));
    SPIPE_CHECK(spipe_event_pool_destroy(&events));
    SPIPE_CHECK(spipe_scope_end(&scope));
    SPIPE_CHECK(spipe_stream_pool_destroy(&streams));
    SPIPE_CHECK(cudaFree(value));
    SPIPE_CHECK(cudaStreamDestroy(stream));
}

/* ---- What a child does ----------------------------------------------------------------------- */
static int words; /* sentences that name the cause */

static void count_words(const spipe_failure_t *f) {
    words += strstr(f->message, "another process") && strstr(f->message, "fork before");
}

static void no_job(cudaError_t status, void *user) {
    (void)status;
    (void)user;
}

/* Calls on objects: all are refused. Returns the number of those that were not. */
static int call_objects(void) {
    cudaStream_t s;
    cudaEvent_t e;
    spipe_scope_t other;
    float ms;
    return (spipe_stream_next(&streams, &s) != FORKED) +
           (spipe_stream_acquire(&streams, &s) != FORKED) +
           (spipe_stream_try_acquire(&streams, &s) != FORKED) +
           (spipe_stream_release(&streams, scope.stream) != FORKED) +
           (spipe_scope_begin(&other, &streams, stream) != FORKED) +
           (spipe_event_acquire(&events, &e) != FORKED) +
           (spipe_event_release(&events, event) != FORKED) +
           (spipe_timer_start(&timer, stream) != FORKED) +
           (spipe_timer_stop(&timer, stream) != FORKED) + (spipe_timer_ms(&timer, &ms) != FORKED) +
           (spipe_worker_call(&worker, stream, no_job, NULL) != FORKED) +
           (spipe_worker_wait(&worker) != FORKED) +
           (spipe_channel_send(&channel, stream, value) != FORKED) +
           (spipe_channel_recv(&channel, stream, value) != FORKED);
}

static int call_pipeline(spipe_pipeline_t *p) {
    spipe_timeline_t t = spipe_timeline_default();
    spipe_report_t r;
    spipe_chunk_t c;
    int bad = spipe_pipeline_run(p, &r) != FORKED;
    count_words(&r.failure);
    bad += spipe_pipeline_wait(p, &r) != FORKED;
    count_words(&r.failure);
    bad += spipe_pipeline_end(p, &r) != FORKED;
    count_words(&r.failure);
    return bad + (spipe_pipeline_enqueue(p, NULL) != FORKED) +
           (spipe_pipeline_set_host(p, 0, y) != FORKED) +
           (spipe_pipeline_set_count(p, 5) != FORKED) +
           (spipe_pipeline_set_timeline(p, &t) != FORKED) +
           (spipe_pipeline_next(p, NULL, &c) != FORKED) +
           (spipe_pipeline_release(p, NULL) != FORKED);
}

static int call_resources(void) {
    const spipe_desc_t d = describe(resources);
    spipe_resources_usage_t usage;
    spipe_pipeline_t *p = NULL;
    spipe_failure_t f;
    spipe_report_t r;
    int bad = spipe_run(&d, &r) != FORKED;
    count_words(&r.failure);
    bad += spipe_pipeline_create(&p, &d, &f) != FORKED;
    count_words(&f);
    bad += spipe_desc_check(&d, &f) != FORKED;
    count_words(&f);
    return bad + (spipe_resources_usage(resources, &usage) != FORKED);
}

static int destroy_all(void) {
    spipe_failure_t f;
    int bad = (spipe_scope_end(&scope) != FORKED) + (spipe_timer_destroy(&timer) != FORKED) +
              (spipe_event_pool_destroy(&events) != FORKED) +
              (spipe_channel_destroy(&channel) != FORKED) +
              (spipe_stream_pool_destroy(&streams) != FORKED) +
              (spipe_worker_destroy(&worker) != FORKED);
    bad += (spipe_pipeline_destroy(pipeline) != FORKED) + (spipe_pipeline_destroy(lent) != FORKED) +
           (spipe_pipeline_destroy(taken) != FORKED);
    bad += spipe_resources_destroy(resources, &f) != FORKED;
    count_words(&f);
    /* They are dead now, as after any destroy. */
    bad += (spipe_scope_end(&scope) != cudaSuccess) + (spipe_timer_destroy(&timer) != cudaSuccess) +
           (spipe_event_pool_destroy(&events) != cudaSuccess) +
           (spipe_channel_destroy(&channel) != cudaSuccess) +
           (spipe_stream_pool_destroy(&streams) != cudaSuccess) +
           (spipe_worker_destroy(&worker) != cudaSuccess);
    return bad;
}

static int refuses(void) {
    return call_objects() + call_pipeline(pipeline) + call_pipeline(lent) + call_pipeline(taken) +
                   call_resources() ==
               0 &&
           words == 12;
}

static int destroys(void) { return destroy_all() == 0 && words == 1; }

/* Runs that in a child, which has 20 s. */
static int in_child(int (*fn)(void)) {
    int status = -1;
    pid_t child;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        (void)alarm(20);
        _exit(fn() ? 0 : 1);
    }
    (void)waitpid(child, &status, 0);
    if (status != 0) tap_note("the child's status is %#x (14: it hung)", (unsigned)status);
    return status == 0;
}

/* ---- While threads of the parent are at work ------------------------------------------------- */
static void *run(void *p) {
    SPIPE_CHECK(spipe_pipeline_run((spipe_pipeline_t *)p, NULL));
    return NULL;
}

static void *lease(void *user) {
    cudaStream_t s;
    (void)user;
    SPIPE_CHECK(spipe_stream_acquire(&streams, &s)); /* when the others are back */
    SPIPE_CHECK(spipe_stream_release(&streams, s));
    return NULL;
}

static void slow_job(cudaError_t status, void *user) {
    (void)status;
    (void)user;
    pass();
}

static void test_busy(void) {
    pthread_t threads[3];
    cudaStream_t other;
    SPIPE_CHECK(spipe_stream_acquire(&streams, &other));
    set_gate(0);
    if (pthread_create(&threads[0], NULL, run, pipeline) != 0) exit(99);
    if (pthread_create(&threads[1], NULL, run, lent) != 0) exit(99);
    if (pthread_create(&threads[2], NULL, lease, NULL) != 0) exit(99);
    SPIPE_CHECK(spipe_worker_call(&worker, stream, slow_job, NULL));
    SPIPE_CHECK(spipe_worker_call(&worker, stream, slow_job, NULL));
    await(3);
    while (SPIPE_PRIV_LOAD(streams.owner.calls) == 0) usleep(100);
    tap_ok(in_child(refuses), "while threads of the parent are in a run, a job and an acquire, a "
                              "child's calls are refused");
    tap_ok(in_child(destroys), "and it destroys what they use");
    set_gate(1);
    SPIPE_CHECK(spipe_stream_release(&streams, other));
    for (pthread_t &t : threads) (void)pthread_join(t, NULL);
    SPIPE_CHECK(spipe_worker_wait(&worker));
}

/* ---- Files ----------------------------------------------------------------------------------- */
static spipe_file_t output;

static int close_output(void) {
    spipe_file_close(&output);
    return 1;
}

/* The child's destructors close what it inherited, too. */
static void test_files(void) {
    char folder[] = "/tmp/forked.XXXXXX", path[64];
    spipe_failure_t f;
    cudaError_t e;
    if (!mkdtemp(folder)) exit(99);
    snprintf(path, sizeof path, "%s/output", folder);
    SPIPE_CHECK(spipe_file_create(&output, path, NULL));
    SPIPE_CHECK(spipe_file_write(&output, x, sizeof x, 0, NULL));
    (void)in_child(close_output);
    e = spipe_file_commit(&output, sizeof x, &f);
    tap_ok(e == cudaSuccess, "a child that closes an output leaves it to its parent: %s",
           f.message);
    spipe_file_close(&output);
    (void)remove(path);
    (void)rmdir(folder);
}

int main(void) {
    if (!pipe_threads()) tap_skip_all("no thread can be had");
    pipe_needs_lending();
    for (unsigned i = 0; i < N; ++i) x[i] = 3 * i;
    make_all();
    tap_ok(in_child(refuses), "in a forked process every call on each kind of object is refused");
    tap_ok(in_child(destroys), "and destroying one frees its memory, and returns the same error");
    test_busy();
    test_files();
    memset(y, 0, sizeof y);
    SPIPE_CHECK(spipe_pipeline_run(pipeline, NULL));
    tap_ok(memcmp(x, y, sizeof x) == 0, "the parent goes on");
    end_all();
    tap_ok(1, "and frees what is its own");
    return tap_done();
}
#endif
