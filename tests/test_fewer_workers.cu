/*  test_fewer_workers.cu -- a run has fewer workers once another shares the threads, also if the
    one that must stop was just asking CUDA: another asks on, or the run would not end. */
#include "replaced.h"

#include "resources_common.h"

#include <atomic>
#include <unistd.h>

#if defined(SPIPE_NO_THREADS)
int main(void) {
    tap_skip("fewer workers", "SPIPE_NO_THREADS");
    return tap_done();
}
#else
enum {
    COUNT = RESOURCES_COUNT
};

/* The kept run's drain queue, and how far the scene is: each of its two workers knows its number
   when it first asks. Number 0 stays in the sink until number 1 asks, and number 1 asks until there
   is one worker less. */
static spipe_priv_pipeline_t *kept;
static std::atomic<int> is_held, is_fewer, is_over;
static thread_local int number = -1, is_caller;

static spipe_priv_queue_t *drains(void) { return &kept->workers.queues[SPIPE_PRIV_DRAIN]; }

/* Of two workers only one asks at a time; whoever asks first is the only one so far that did. */
static void learn_number(void) {
    static std::atomic<int> num_known;
    static int first;
    if (number >= 0) return;
    spipe_priv_lock(kept->sync);
    if (num_known++ == 0)
        number = first = !drains()->workers[0].asked;
    else
        number = !first;
    spipe_priv_unlock(kept->sync);
}

static int is_idle(int worker) {
    int idle;
    spipe_priv_lock(kept->sync);
    idle = drains()->parked == &drains()->workers[worker] && drains()->num_busy == 0;
    spipe_priv_unlock(kept->sync);
    return idle;
}

/* Whether there is one that number 1 may ask for; without, the run would wait for this one. */
static int has_tasks(void) {
    int has;
    spipe_priv_lock(kept->sync);
    has = drains()->num_tasks > 0;
    spipe_priv_unlock(kept->sync);
    return has;
}

static cudaError_t held_query(cudaEvent_t event) {
    if (is_caller || (number < 0 && is_held == 2)) return cudaEventQuery(event);
    learn_number();
    if (number == 0 || is_fewer) return cudaEventQuery(event);
    while (!is_idle(0)) {
        is_held = 1;
        usleep(200);
    }
    is_held = 2;
    while (!is_fewer) usleep(200);
    return cudaErrorNotReady;
}

static cudaError_t take_at(const void *src, size_t first, size_t count, void *user) {
    while (!is_caller && number == 0 && !is_held && has_tasks()) usleep(200);
    memcpy((unsigned *)user + first, src, count * 4);
    return cudaSuccess;
}

static cudaError_t add(const spipe_chunk_t *c, void *wait) {
    while (wait && !is_over) usleep(200);
    return SPIPE_LAUNCH(resources_kernel, spipe_blocks(c->count, 64), 64, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned), SPIPE_BUF(c, 1, unsigned), c->count,
                        c->first, (unsigned *)NULL);
}

static cudaError_t got[2];

static void *run_kept(void *arg) {
    is_caller = 1;
    got[0] = spipe_pipeline_run((spipe_pipeline_t *)arg, NULL);
    is_over = 1;
    return NULL;
}

static void *run_other(void *arg) {
    is_caller = 1;
    got[1] = spipe_run((const spipe_desc_t *)arg, NULL);
    return NULL;
}

/* Whether the second worker may learn that it has to stop: no task will follow those there are. */
static int is_fewer_due(void) {
    const spipe_priv_progress_counts_t *at = &kept->run.at;
    int due, all;
    spipe_priv_lock(kept->sync);
    all = at->issued_out == kept->run.num_batches && /* and the last one is posted */
          at->completed + drains()->num_tasks == at->issued_out;
    due = drains()->limit == 1 && (all || drains()->num_tasks == kept->plan.depth);
    spipe_priv_unlock(kept->sync);
    return due;
}

/* Whether the run has nobody who asks for its oldest task, once the second worker has stopped. */
static int stands_still(void) {
    spipe_priv_queue_t *q = drains();
    int still = 0;
    while (!is_over) {
        spipe_priv_lock(kept->sync);
        const int stopped = q->barred != NULL;
        still = stopped && q->parked && q->num_tasks > 0 && !q->polling && q->num_busy == 0;
        if (still) spipe_priv_wake_one(&q->parked); /* so that the test ends */
        spipe_priv_unlock(kept->sync);
        if (stopped) return still;
        usleep(200);
    }
    return still;
}

int main(void) {
    spipe_resources_limits_t l = spipe_resources_limits_default();
    spipe_resources_t *r = NULL;
    static unsigned others[COUNT];
    unsigned *x, *y;
    spipe_desc_t d = spipe_desc_default(), other;
    spipe_pipeline_t *p;
    pthread_t threads[2];
    int still;
    replaced.cudaEventQuery = held_query;
    l.device_bytes = l.pinned_bytes = 4 << 20;
    l.threads = 2;
    SPIPE_CHECK(spipe_resources_create(&r, &l, NULL));
    resources_arrays_new(PINNED, &x, &y);
    d.resources = r;
    d.count = COUNT;
    d.chunk = 1000;
    d.depth = 4;
    d.threads = 2;
    d.schedule = SPIPE_DEPTH_FIRST;
    spipe_add_input(&d, x, 4);
    other = d;
    spipe_add_sink_at(&d, take_at, y, 4);
    spipe_add_stage(&d, "add", add, NULL);
    spipe_add_sink_at(&other, take_at, others, 4);
    spipe_add_stage(&other, "wait", add, &other);
    other.count = 1000;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    kept = (spipe_priv_pipeline_t *)(void *)p;
    if (pthread_create(&threads[0], NULL, run_kept, p) != 0) exit(99);
    while (is_held < 2 && !is_over) usleep(200);
    if (is_over) printf("# the run ended before its second worker asked\n");
    if (pthread_create(&threads[1], NULL, run_other, &other) != 0) exit(99);
    while (!is_fewer_due() && !is_over) usleep(200);
    is_fewer = 1;
    still = stands_still();
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    tap_ok(
        got[0] == cudaSuccess && got[1] == cudaSuccess && !still,
        "the worker that asks has to stop, as another run shares the threads: the other one asks");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    resources_arrays_free(PINNED, x, y);
    SPIPE_CHECK(spipe_resources_destroy(r, NULL));
    return tap_done();
}
#endif
