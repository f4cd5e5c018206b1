/*  test_stop_functions.cu -- buffers[i].stop: a source or sink that waits does not hold up the end
    of a run, whatever ends it, and the failure that is reported is the one that ended it. */
#include "streampipe_devices.h"

#include "pipe_common.h"

#include <pthread.h>

enum {
    CHUNK = 1000,
    CHUNKS = 12,
    N = CHUNK * CHUNKS
};

/* A queue that stays empty after so many elements, until it is closed. */
typedef struct feed {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned char x[N], y[N];
    size_t given, most;    /* elements given, and how many there are before it waits */
    int closed, num_stops; /* by the stop function */
    int waiting;           /* calls that wait now */
    int sink_waits, ends;  /* sink: waits at chunk 2; ends: gives 0 when closed, not an error */
} feed_t;

static void feed_begin(feed_t *f, size_t most) {
    size_t i;
    memset((void *)f, 0, sizeof *f);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    for (i = 0; i < N; ++i) f->x[i] = (unsigned char)pipe_random();
    f->most = most;
}

static void feed_end(feed_t *f) {
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
}

/* Waits until the queue is closed. */
static void wait_closed(feed_t *f) {
    pthread_mutex_lock(&f->lock);
    ++f->waiting;
    pthread_cond_broadcast(&f->changed);
    while (!f->closed) pthread_cond_wait(&f->changed, &f->lock);
    --f->waiting;
    pthread_mutex_unlock(&f->lock);
}

/* What ends the run comes when the source or sink waits. */
static void wait_waiting(feed_t *f) {
    pthread_mutex_lock(&f->lock);
    while (f->waiting == 0 && !f->closed) pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

static void close_feed(void *user) {
    feed_t *f = (feed_t *)user;
    pthread_mutex_lock(&f->lock);
    f->closed = 1;
    ++f->num_stops;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static cudaError_t source(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    feed_t *f = (feed_t *)user;
    const size_t left = (f->most < N ? f->most : (size_t)N) - f->given;
    if (left == 0 && f->most < N) {
        wait_closed(f);
        *count = 0;
        return f->ends ? cudaSuccess : cudaErrorOperatingSystem;
    }
    *count = left < max_count ? left : max_count;
    memcpy(dst, f->x + f->given, *count);
    f->given += *count;
    return cudaSuccess;
}

static cudaError_t source_at(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t first = part->first, count = part->count;
    feed_t *f = (feed_t *)user;
    if (first == 2 * CHUNK) { /* in the middle: later parts are read meanwhile */
        wait_closed(f);
        return cudaErrorOperatingSystem;
    }
    if (first == 5 * CHUNK && f->most < N) {
        wait_waiting(f);
        return cudaErrorInvalidValue;
    }
    memcpy(dst, f->x + first, count);
    return cudaSuccess;
}

static cudaError_t work(const spipe_part_t *part, const void *tickets, void *user) {
    void *dst = part->data;
    const size_t count = part->count;
    (void)user;
    memcpy(dst, tickets, count);
    return cudaSuccess;
}

static cudaError_t sink(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    feed_t *f = (feed_t *)user;
    if (f->sink_waits && first == 2 * CHUNK) {
        wait_closed(f);
        return cudaErrorOperatingSystem;
    }
    memcpy(f->y + first, src, count);
    return cudaSuccess;
}

static cudaError_t fails_at_3(const spipe_chunk_t *c, void *user) {
    feed_t *f = (feed_t *)user;
    if (c->index == 3) {
        wait_waiting(f);
        return spipe_chunk_fail(c, "this is the cause");
    }
    return cudaMemcpyAsync(c->data[1], c->data[0], c->count, cudaMemcpyDeviceToDevice, c->stream);
}

static cudaError_t keeps(const spipe_chunk_t *c, void *user) {
    (void)user;
    return cudaMemcpyAsync(c->data[1], c->data[0], c->count, cudaMemcpyDeviceToDevice, c->stream);
}

static int stop_at_2(const spipe_progress_t *progress, void *user) {
    feed_t *f = (feed_t *)user;
    if (progress->chunks_done < 2) return 0;
    wait_waiting(f);
    return 1;
}

enum {
    ENDLESS,
    COUNTED,
    SPLIT,
    POSITIONED,
    NUM_SOURCES
};

static const char *const source_names[] = {"a source", "a source with count", "a split source",
                                           "a positioned source"};

static spipe_desc_t describe(feed_t *f, int kind) {
    spipe_desc_t d = spipe_desc_default();
    d.chunk = CHUNK;
    d.depth = 8; /* so that a source may be ahead of the stage */
    d.threads = 3;
    if (kind != ENDLESS) d.count = N;
    if (kind == POSITIONED)
        spipe_add_source(&d, source_at, f, 1, SPIPE_ANY_ORDER);
    else if (kind == SPLIT)
        spipe_add_split_source(&d, source, work, f, 1, 1);
    else
        spipe_add_source(&d, source, f, 1, SPIPE_IN_ORDER);
    d.buffers[0].stop = close_feed;
    return d;
}

static int prefix_is_right(const feed_t *f, size_t chunks) {
    return memcmp(f->x, f->y, chunks * CHUNK) == 0;
}

/* A stage fails, or the progress callback stops the run, while the source waits. */
static void test_runs(int kind, int stopped, int ends) {
    static feed_t f;
    spipe_desc_t d;
    spipe_report_t r;
    cudaError_t e;
    int right;
    feed_begin(&f, 6 * CHUNK);
    f.ends = ends;
    d = describe(&f, kind);
    spipe_add_sink(&d, sink, &f, 1, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "stage", stopped || kind == POSITIONED ? keeps : fails_at_3, &f);
    if (stopped) d.progress = stop_at_2;
    d.progress_user = &f;
    if (stopped && kind == POSITIONED) f.most = N;
    e = spipe_run(&d, &r);
    right = prefix_is_right(&f, r.failure.chunks_whole);
    if (stopped)
        tap_ok(e == SPIPE_STOPPED && strstr(r.failure.message, "stopped by the progress") && right,
               "stopped by the callback while %s waits: %s", source_names[kind], r.failure.message);
    else if (kind == POSITIONED)
        tap_ok(e == cudaErrorInvalidValue && r.failure.chunk == 5 && right,
               "one part of %s fails while another waits: %s", source_names[kind],
               r.failure.message);
    else
        tap_ok(e != cudaSuccess && strstr(r.failure.message, "this is the cause") &&
                   r.failure.chunks_whole == 3 && right,
               "a stage fails while %s waits: %s", source_names[kind], r.failure.message);
    tap_ok(f.num_stops == 1, "and stop is called once, not %d times", f.num_stops);
    feed_end(&f);
}

/* A sink waits when a later chunk fails in the source. */
static cudaError_t source_fails(spipe_part_t *part, void *user) {
    feed_t *f = (feed_t *)user;
    if (f->given >= 5 * CHUNK) {
        wait_waiting(f);
        return cudaErrorFileNotFound;
    }
    return source(part, user);
}

static void test_sink(void) {
    static feed_t f;
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    cudaError_t e;
    feed_begin(&f, N);
    f.sink_waits = 1;
    d.chunk = CHUNK;
    d.depth = 8; /* so that a source may be ahead of the stage */
    d.threads = 3;
    spipe_add_source(&d, source_fails, &f, 1, SPIPE_IN_ORDER);
    spipe_add_sink(&d, sink, &f, 1, SPIPE_IN_ORDER);
    d.buffers[1].stop = close_feed;
    spipe_add_stage(&d, "keeps", keeps, NULL);
    e = spipe_run(&d, &r);
    tap_ok(e == cudaErrorFileNotFound && r.failure.chunks_whole == 2 && prefix_is_right(&f, 2),
           "the source fails while the sink waits: %s", r.failure.message);
    feed_end(&f);
}

/* A loop that is left while the source waits, by end or by destroy; then another, whole. */
static void test_loops(int destroy, int kind) {
    static feed_t f;
    spipe_desc_t d;
    spipe_pipeline_t *p;
    spipe_chunk_t c;
    cudaStream_t s;
    cudaError_t e;
    size_t got = 0;
    feed_begin(&f, 3 * CHUNK);
    d = describe(&f, kind);
    spipe_add_output(&d, f.y, 1);
    if (kind == ENDLESS) --d.num_buffers; /* an array needs a length */
    SPIPE_CHECK(spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_next(p, s, &c));
    wait_waiting(&f);
    if (!destroy) {
        e = spipe_pipeline_end(p, NULL);
        tap_ok(e == cudaSuccess && f.num_stops == 1, "spipe_pipeline_end ends while %s waits",
               source_names[kind]);
        f.closed = f.num_stops = 0;
        f.given = 0;
        f.most = N;
        while ((e = spipe_pipeline_next(p, s, &c)) == cudaSuccess && c.count > 0) {
            got += c.count;
            SPIPE_CHECK(spipe_pipeline_release(p, s));
        }
        tap_ok(e == cudaSuccess && got == N && f.num_stops == 0,
               "the next loop gets all, and at its end stop is not called");
    }
    e = spipe_pipeline_destroy(p);
    tap_ok(e == cudaSuccess && (!destroy || f.num_stops == 1), "destroy ends%s",
           destroy ? " while the source waits" : "");
    SPIPE_CHECK(cudaStreamDestroy(s));
    feed_end(&f);
}

/* Two parts of one GPU: one fails for good, while the other's source waits. */
static void test_devices(void) {
    static feed_t f;
    const int list[] = {0, 0};
    spipe_desc_t d;
    spipe_report_t r;
    cudaError_t e;
    feed_begin(&f, 6 * CHUNK);
    d = describe(&f, ENDLESS);
    spipe_add_sink(&d, sink, &f, 1, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "stage", fails_at_3, &f);
    (void)spipe_devices_list(&d, list, 2);
    e = spipe_run(&d, &r);
    tap_ok(e != cudaSuccess && strstr(r.failure.message, "this is the cause") && f.num_stops >= 1 &&
               prefix_is_right(&f, r.failure.chunks_whole),
           "two parts, of which both fail: %s", r.failure.message);
    feed_end(&f);
}

int main(void) {
    int kind;
    if (!pipe_threads()) tap_skip_all("needs a thread that waits while another goes on");
    for (kind = ENDLESS; kind < NUM_SOURCES; ++kind) {
        test_runs(kind, 0, 0);
        if (kind != POSITIONED) test_runs(kind, 1, 0);
    }
    test_runs(ENDLESS, 0, 1);
    test_runs(ENDLESS, 1, 1);
    test_runs(COUNTED, 0, 1);
    test_sink();
    for (kind = ENDLESS; kind <= SPLIT; ++kind) {
        test_loops(0, kind);
        test_loops(1, kind);
    }
    test_devices();
    return tap_done();
}
