/*  test_misused_objects.c -- what was copied, moved or never made is refused before anything of it
    is read or written: pools, timers, workers, channels, descriptions, timelines. And a pipeline
    that another thread is running: every call on it is refused, and does nothing. */
#include "pipe_common.h"
#include "streampipe_timeline.h"

#include <pthread.h>

enum {
    GARBAGE = 0xA5
};

static int refused(cudaError_t e) { return e == cudaErrorInvalidValue; }

static void no_call(cudaError_t status, void *user) {
    (void)status;
    ++*(int *)user;
}

/* ---- Objects --------------------------------------------------------------------------------- */

/* Every function of each kind of object, all of which must refuse. */
static int refuses_streams(void *at) {
    spipe_stream_pool_t *pool = (spipe_stream_pool_t *)at;
    cudaStream_t s = NULL;
    return refused(spipe_stream_next(pool, &s)) && refused(spipe_stream_acquire(pool, &s)) &&
           refused(spipe_stream_try_acquire(pool, &s)) && refused(spipe_stream_release(pool, s)) &&
           refused(spipe_stream_pool_destroy(pool));
}

static int refuses_events(void *at) {
    spipe_event_pool_t *pool = (spipe_event_pool_t *)at;
    cudaEvent_t e = NULL, made;
    int good;
    SPIPE_CHECK(spipe_event_create(&made));
    good = refused(spipe_event_acquire(pool, &e)) && refused(spipe_event_release(pool, made)) &&
           refused(spipe_event_pool_destroy(pool));
    SPIPE_CHECK(cudaEventDestroy(made));
    return good;
}

static int refuses_timer(void *at) {
    spipe_timer_t *timer = (spipe_timer_t *)at;
    float ms;
    return refused(spipe_timer_start(timer, NULL)) && refused(spipe_timer_stop(timer, NULL)) &&
           refused(spipe_timer_ms(timer, &ms)) && refused(spipe_timer_destroy(timer));
}

static int refuses_worker(void *at) {
    spipe_worker_t *worker = (spipe_worker_t *)at;
    int called = 0;
    return refused(spipe_worker_call(worker, NULL, no_call, &called)) &&
           refused(spipe_worker_wait(worker)) && refused(spipe_worker_destroy(worker)) && !called;
}

static int refuses_channel(void *at) {
    spipe_channel_t *c = (spipe_channel_t *)at;
    int value = 0;
    return refused(spipe_channel_send(c, NULL, &value)) &&
           refused(spipe_channel_recv(c, NULL, &value)) && refused(spipe_channel_destroy(c));
}

typedef union object {
    spipe_stream_pool_t streams;
    spipe_event_pool_t events;
    spipe_timer_t timer;
    spipe_worker_t worker;
    spipe_channel_t channel;
} object_t;

/* A copy, and garbage, in the place of an object: refused, and left as they were. */
static void test_object(const char *name, const object_t *made, int (*refuses)(void *at)) {
    object_t other, before;
    int copy, garbage;
    memcpy((void *)&other, (const void *)made, sizeof other);
    memcpy((void *)&before, (const void *)made, sizeof before);
    copy = refuses(&other) && memcmp((void *)&other, (void *)&before, sizeof other) == 0;
    memset((void *)&other, GARBAGE, sizeof other);
    memset((void *)&before, GARBAGE, sizeof before);
    garbage = refuses(&other) && memcmp((void *)&other, (void *)&before, sizeof other) == 0;
    tap_ok(copy, "a %s that was copied is refused by every function, and left as it was", name);
    tap_ok(garbage, "so is one that was never made");
}

static void test_objects(void) {
    static object_t o;
    SPIPE_CHECK(spipe_stream_pool_create(&o.streams, 2, SPIPE_PRIORITY_DEFAULT));
    test_object("pool of streams", &o, refuses_streams);
    SPIPE_CHECK(spipe_stream_pool_destroy(&o.streams));
    SPIPE_CHECK(spipe_event_pool_create(&o.events));
    test_object("pool of events", &o, refuses_events);
    SPIPE_CHECK(spipe_event_pool_destroy(&o.events));
    SPIPE_CHECK(spipe_timer_create(&o.timer));
    test_object("timer", &o, refuses_timer);
    SPIPE_CHECK(spipe_timer_destroy(&o.timer));
    SPIPE_CHECK(spipe_channel_create(&o.channel, sizeof(int), 2));
    test_object("channel", &o, refuses_channel);
    SPIPE_CHECK(spipe_channel_destroy(&o.channel));
    if (!pipe_threads()) {
        tap_skip("a worker that was copied is refused", "no thread can be had");
        return;
    }
    SPIPE_CHECK(spipe_worker_create(&o.worker));
    test_object("worker", &o, refuses_worker);
    SPIPE_CHECK(spipe_worker_destroy(&o.worker));
}

/* ---- Descriptions and timelines -------------------------------------------------------------- */

static cudaError_t no_stage(const spipe_chunk_t *c, void *user) {
    (void)c;
    (void)user;
    return cudaSuccess;
}

static int all_refuse(const spipe_desc_t *d, const char *words) {
    spipe_pipeline_t *p = NULL;
    spipe_failure_t f;
    spipe_report_t r;
    spipe_plan_t plan;
    int good = refused(spipe_desc_check(d, &f)) && strstr(f.message, words);
    good = good && refused(spipe_run(d, &r)) && strstr(r.failure.message, words);
    good = good && refused(spipe_plan(d, 0, &plan, &f)) && strstr(f.message, words);
    good = good && refused(spipe_pipeline_create(&p, d, &f)) && strstr(f.message, words);
    return good && !p;
}

static void test_description(int byte) {
    static spipe_desc_t d, before;
    static int x[10];
    int added;
    memset((void *)&d, byte, sizeof d);
    memset((void *)&before, byte, sizeof before);
    added = spipe_add_input(&d, x, sizeof *x) >= 0 || spipe_add_temp(&d, 4) >= 0 ||
            spipe_add_stage(&d, "s", no_stage, NULL) >= 0 || spipe_stage_ordered(&d, 0) >= 0 ||
            spipe_set_halo(&d, 0, 1, 1, SPIPE_EDGE_ZERO) >= 0;
    tap_ok(!added && memcmp((void *)&d, (void *)&before, sizeof d) == 0 &&
               all_refuse(&d, "the description was not begun"),
           "a description of bytes 0x%02X is refused, and nothing of it is read or written", byte);
}

static void test_timeline(int byte) {
    static spipe_timeline_t t, before;
    static int x[10];
    spipe_desc_t d = spipe_desc_default();
    memset((void *)&t, byte, sizeof t);
    memset((void *)&before, byte, sizeof before);
    d.count = 10;
    d.timeline = &t;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_stage(&d, "s", no_stage, NULL);
    tap_ok(all_refuse(&d, "the timeline is not ready to be filled") &&
               memcmp((void *)&t, (void *)&before, sizeof t) == 0,
           "so is a timeline of bytes 0x%02X", byte);
}

/* ---- Two threads and one pipeline ------------------------------------------------------------ */

/* The stage of the first thread's run waits until the second has made its calls. */
typedef struct two {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int inside, done;
    size_t calls;
    spipe_pipeline_t *p;
    int refused; /* of the second thread's calls */
    int others;
    char message[sizeof((spipe_failure_t *)NULL)->message];
} two_t;

static cudaError_t waiting_stage(const spipe_chunk_t *c, void *user) {
    two_t *t = (two_t *)user;
    pthread_mutex_lock(&t->lock);
    ++t->calls;
    t->inside = 1;
    pthread_cond_broadcast(&t->changed);
    while (!t->done) pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
    return cudaMemcpyAsync(c->data[1], c->data[0], c->count * sizeof(int), cudaMemcpyDefault,
                           c->stream);
}

static void count_call(two_t *t, cudaError_t e) {
    t->refused += e == cudaErrorNotPermitted;
    ++t->others;
}

static void *second_thread(void *user) {
    two_t *t = (two_t *)user;
    spipe_report_t r;
    spipe_chunk_t c;
    int x[10];
    pthread_mutex_lock(&t->lock);
    while (!t->inside) pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
    count_call(t, spipe_pipeline_run(t->p, &r));
    memcpy(t->message, r.failure.message, sizeof t->message);
    count_call(t, spipe_pipeline_enqueue(t->p, NULL));
    count_call(t, spipe_pipeline_wait(t->p, &r));
    count_call(t, spipe_pipeline_set_count(t->p, 5));
    count_call(t, spipe_pipeline_set_host(t->p, 0, x));
    count_call(t, spipe_pipeline_set_timeline(t->p, NULL));
    count_call(t, spipe_pipeline_next(t->p, NULL, &c));
    count_call(t, spipe_pipeline_release(t->p, NULL));
    count_call(t, spipe_pipeline_end(t->p, &r));
    count_call(t, spipe_pipeline_destroy(t->p));
    pthread_mutex_lock(&t->lock);
    t->done = 1;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void test_two_threads(void) {
    static int x[100], y[100];
    two_t t;
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    pthread_t second;
    cudaError_t e;
    int i, wrong = 0;
    memset((void *)&t, 0, sizeof t);
    pthread_mutex_init(&t.lock, NULL);
    pthread_cond_init(&t.changed, NULL);
    for (i = 0; i < 100; ++i) x[i] = i + 1;
    d.count = 100;
    d.chunk = 10;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "waits", waiting_stage, &t);
    SPIPE_CHECK(spipe_pipeline_create(&t.p, &d, NULL));
    if (pthread_create(&second, NULL, second_thread, &t) != 0) exit(99);
    e = spipe_pipeline_run(t.p, &r);
    pthread_join(second, NULL);
    for (i = 0; i < 100; ++i) wrong += y[i] != i + 1;
    tap_ok(t.refused == t.others && strstr(t.message, "in use by another thread"),
           "while one thread runs a pipeline, %d of %d calls of another are refused: %s", t.refused,
           t.others, t.message);
    tap_ok(e == cudaSuccess && r.count_done == 100 && wrong == 0 && t.calls == 10,
           "and the run is as if nobody had called");
    tap_ok(spipe_pipeline_destroy(t.p) == cudaSuccess, "and it may be destroyed afterwards");
    pthread_mutex_destroy(&t.lock);
    pthread_cond_destroy(&t.changed);
}

int main(void) {
    test_objects();
    test_description(GARBAGE);
    test_description(0);
    test_timeline(GARBAGE);
    test_timeline(0);
    test_two_threads();
    return tap_done();
}
