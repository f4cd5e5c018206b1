/*  test_one_at_a_time.cu -- objects that allow one call at a time see a second one, on another
    thread or within the first, and refuse it before it does anything: a timeline in two runs, a
    timer, a scope, and whatever is destroyed while another thread uses it. */
#include "pipe_common.h"
#include "streampipe_timeline.h"

#if defined(SPIPE_NO_THREADS)
int main(void) { tap_skip_all("there is one thread"); }
#else
#include <unistd.h>

enum {
    N = 4000,
    THREADS = 3
};

/* ---- A gate that the first call waits behind ------------------------------------------------- */
static struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int open, waiting;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};

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

static void await_one(void) {
    pthread_mutex_lock(&gate.lock);
    while (gate.waiting == 0) pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static pthread_t start(void *(*fn)(void *), void *user) {
    pthread_t t;
    if (pthread_create(&t, NULL, fn, user) != 0) exit(99);
    return t;
}

/* ---- A timeline in two runs ------------------------------------------------------------------ */
static unsigned x[N], y[N], z[N];
static size_t num_calls; /* of the second run's stage */

static cudaError_t copy(const spipe_chunk_t *c, size_t *calls) {
    if (calls)
        ++*calls;
    else if (c->index == 1)
        pass();
    return cudaMemcpyAsync(c->data[1], c->data[0], c->count * sizeof *x, cudaMemcpyDefault,
                           c->stream);
}

static cudaError_t copy_stage(const spipe_chunk_t *c, void *user) {
    return copy(c, (size_t *)user);
}

static spipe_desc_t describe(spipe_timeline_t *t, unsigned *out, size_t *calls) {
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.chunk = 500;
    d.timeline = t;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, out, sizeof *out);
    spipe_add_stage(&d, "copy", copy_stage, calls);
    return d;
}

static void *first_run(void *t) {
    const spipe_desc_t d = describe((spipe_timeline_t *)t, y, NULL);
    SPIPE_CHECK_RUN(&d, NULL);
    return NULL;
}

static int told(cudaError_t e, const spipe_failure_t *f) {
    return e == cudaErrorNotPermitted && f->error == e &&
           strstr(f->message, "another run is filling the timeline; give each run its own");
}

static void test_timeline(void) {
    static spipe_span_t spans[200];
    spipe_timeline_t t = spipe_timeline_default();
    const spipe_desc_t d = describe(&t, z, &num_calls);
    spipe_pipeline_t *p;
    spipe_report_t r;
    pthread_t first;
    cudaError_t e;
    size_t num;
    t.spans = spans;
    t.capacity = 200;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    set_gate(0);
    first = start(first_run, &t);
    await_one();
    e = spipe_run(&d, &r);
    tap_ok(told(e, &r.failure), "a run refuses a timeline that another is filling: %s",
           r.failure.message);
    e = spipe_pipeline_run(p, &r);
    tap_ok(told(e, &r.failure) && r.count_done == 0, "so does a kept pipeline");
    tap_ok(num_calls == 0 && z[0] == 0, "and nothing of it is done");
    set_gate(1);
    (void)pthread_join(first, NULL);
    num = t.num_spans;
    tap_ok(memcmp(x, y, sizeof x) == 0 && num >= 24 && t.num_lost == 0,
           "the first run and its timeline are as if nobody had called");
    e = spipe_pipeline_run(p, &r);
    tap_ok(e == cudaSuccess && r.timed_ms > 0.0 && memcmp(x, z, sizeof x) == 0,
           "and afterwards the next run fills it");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
}

/* ---- A timer --------------------------------------------------------------------------------- */
static void pass_gate(void *user) {
    (void)user;
    pass();
}

static void *read_timer(void *timer) {
    float ms = -1.0f;
    SPIPE_CHECK(spipe_timer_ms((spipe_timer_t *)timer, &ms));
    return ms > 0.0f ? NULL : timer;
}

static void test_timer(void) {
    spipe_timer_t timer;
    cudaStream_t s;
    pthread_t reader;
    void *bad;
    float ms;
    int refused;
    SPIPE_CHECK(spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_timer_create(&timer));
    set_gate(0);
    SPIPE_CHECK(spipe_timer_start(&timer, s));
    SPIPE_CHECK(spipe_host_call(s, pass_gate, NULL));
    SPIPE_CHECK(spipe_timer_stop(&timer, s));
    reader = start(read_timer, &timer);
    while (SPIPE_PRIV_LOAD(timer.owner.calls) == 0) usleep(100);
    refused = spipe_timer_start(&timer, s) == cudaErrorNotPermitted &&
              spipe_timer_stop(&timer, s) == cudaErrorNotPermitted &&
              spipe_timer_ms(&timer, &ms) == cudaErrorNotPermitted &&
              spipe_timer_destroy(&timer) == cudaErrorNotPermitted;
    set_gate(1);
    (void)pthread_join(reader, &bad);
    tap_ok(refused && !bad, "while a thread reads a timer, others may not start, stop or end it");
    SPIPE_CHECK(spipe_timer_destroy(&timer));
    SPIPE_CHECK(cudaStreamDestroy(s));
}

/* ---- Destroyed while in use ------------------------------------------------------------------ */
static void *wait_for_lease(void *pool) {
    cudaStream_t s;
    SPIPE_CHECK(spipe_stream_acquire((spipe_stream_pool_t *)pool, &s));
    SPIPE_CHECK(spipe_stream_release((spipe_stream_pool_t *)pool, s));
    return NULL;
}

static void test_waiting(void) {
    spipe_stream_pool_t pool;
    cudaStream_t s;
    pthread_t waiter;
    cudaError_t e;
    SPIPE_CHECK(spipe_stream_pool_create(&pool, 1, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_stream_acquire(&pool, &s));
    waiter = start(wait_for_lease, &pool);
    while (SPIPE_PRIV_LOAD(pool.owner.calls) == 0) usleep(100);
    e = spipe_stream_pool_destroy(&pool);
    SPIPE_CHECK(spipe_stream_release(&pool, s));
    (void)pthread_join(waiter, NULL);
    tap_ok(e == cudaErrorNotPermitted && spipe_stream_pool_destroy(&pool) == cudaSuccess,
           "a pool is not destroyed while a thread waits for its stream");
}

/* Threads that use an object until it is dead, and this one, which destroys it meanwhile. */
typedef union object {
    spipe_stream_pool_t streams;
    spipe_event_pool_t events;
    spipe_channel_t channel;
    spipe_worker_t worker;
} object_t;

static object_t shared;
static void *memory;
static cudaStream_t stream;
static cudaEvent_t nobodys;

static void no_job(cudaError_t status, void *user) {
    (void)status;
    (void)user;
}

static cudaError_t use_streams(void) {
    cudaStream_t s;
    SPIPE_TRY(spipe_stream_acquire(&shared.streams, &s));
    SPIPE_CHECK(spipe_stream_release(&shared.streams, s)); /* as long as it is leased */
    return spipe_stream_next(&shared.streams, &s);
}

static cudaError_t use_events(void) {
    const cudaError_t e = spipe_event_release(&shared.events, nobodys);
    return e == cudaErrorInvalidValue && SPIPE_PRIV_LOAD(shared.events.owner.self) ? cudaSuccess
                                                                                   : e;
}

static cudaError_t use_channel(void) {
    const cudaError_t e = spipe_channel_send(&shared.channel, stream, memory);
    if (e != cudaSuccess && e != SPIPE_CHANNEL_FULL) return e;
    return spipe_channel_recv(&shared.channel, stream, memory);
}

static cudaError_t use_worker(void) {
    SPIPE_TRY(spipe_worker_call(&shared.worker, stream, no_job, NULL));
    return spipe_worker_wait(&shared.worker);
}

/* NULL, unless something went wrong. A worker lives as long as it is given calls. */
static void *use_until_dead(void *fn) {
    cudaError_t e = cudaSuccess;
    int k;
    for (k = 0; k < 1000 && e != cudaErrorInvalidValue; ++k) {
        e = ((cudaError_t(*)(void))fn)();
        if (e == cudaSuccess || e == SPIPE_CHANNEL_EMPTY || e == cudaErrorNotPermitted) continue;
        if (e != cudaErrorInvalidValue) return &shared;
    }
    return NULL;
}

static void test_destroyed(const char *name, cudaError_t (*fn)(void),
                           cudaError_t (*destroy)(void)) {
    pthread_t threads[THREADS];
    int k, bad = 0, refused = 0;
    cudaError_t e;
    for (k = 0; k < THREADS; ++k) threads[k] = start(use_until_dead, (void *)fn);
    usleep(1000);
    while ((e = destroy()) == cudaErrorNotPermitted) {
        ++refused;
        (void)sched_yield();
    }
    for (k = 0; k < THREADS; ++k) {
        void *wrong;
        (void)pthread_join(threads[k], &wrong);
        bad += wrong != NULL;
    }
    tap_ok(
        e == cudaSuccess && bad == 0,
        "a %s that threads use is destroyed when none is in a call (refused %s), and then refuses "
        "them",
        name, refused > 0 ? "before" : "never");
}

static cudaError_t end_streams(void) { return spipe_stream_pool_destroy(&shared.streams); }

static cudaError_t end_events(void) { return spipe_event_pool_destroy(&shared.events); }

static cudaError_t end_channel(void) { return spipe_channel_destroy(&shared.channel); }

static cudaError_t end_worker(void) { return spipe_worker_destroy(&shared.worker); }

static void test_all_destroyed(void) {
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_event_create(&nobodys));
    SPIPE_CHECK(cudaMalloc(&memory, 64));
    SPIPE_CHECK(spipe_stream_pool_create(&shared.streams, 2, SPIPE_PRIORITY_DEFAULT));
    test_destroyed("pool of streams", use_streams, end_streams);
    SPIPE_CHECK(spipe_event_pool_create(&shared.events));
    test_destroyed("pool of events", use_events, end_events);
    SPIPE_CHECK(spipe_channel_create(&shared.channel, 64, 2));
    test_destroyed("channel", use_channel, end_channel);
    SPIPE_CHECK(spipe_worker_create(&shared.worker));
    test_destroyed("worker", use_worker, end_worker);
    SPIPE_CHECK(cudaFree(memory));
    SPIPE_CHECK(cudaEventDestroy(nobodys));
    SPIPE_CHECK(cudaStreamDestroy(stream));
}

/* ---- A scope that two threads end ------------------------------------------------------------ */
static void *end_scope(void *scope) {
    const cudaError_t e = spipe_scope_end((spipe_scope_t *)scope);
    const int late = e == cudaErrorNotPermitted || e == cudaErrorInvalidValue;
    return e == cudaSuccess || late ? NULL : scope;
}

static void test_scope(void) {
    spipe_stream_pool_t pool;
    int k, bad = 0;
    SPIPE_CHECK(spipe_stream_pool_create(&pool, 2, SPIPE_PRIORITY_DEFAULT));
    for (k = 0; k < 50; ++k) {
        spipe_scope_t scope;
        pthread_t other;
        void *wrong;
        SPIPE_CHECK(spipe_scope_begin(&scope, &pool, NULL));
        other = start(end_scope, &scope);
        bad += end_scope(&scope) != NULL;
        (void)pthread_join(other, &wrong);
        bad += wrong != NULL;
    }
    tap_ok(bad == 0 && spipe_stream_pool_destroy(&pool) == cudaSuccess,
           "of two threads that end a scope, one gives the stream back");
}

int main(void) {
    unsigned i;
    if (!pipe_threads()) tap_skip_all("no thread can be had");
    for (i = 0; i < N; ++i) x[i] = 3 * i + 1;
    test_timeline();
    test_timer();
    test_waiting();
    test_all_destroyed();
    test_scope();
    return tap_done();
}
#endif
