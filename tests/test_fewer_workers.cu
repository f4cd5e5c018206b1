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

/* A worker of the kept run asks CUDA and gets no answer until another run has begun, which shares
   the threads. */
static std::atomic<int> is_held, is_fewer, is_over;
static thread_local int is_caller;

static cudaError_t held_query(cudaEvent_t event) {
    if (is_caller || is_fewer) return cudaEventQuery(event);
    is_held = 1;
    while (!is_fewer && !is_over) usleep(200);
    return cudaErrorNotReady;
}

static cudaError_t take_at(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
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

int main(void) {
    spipe_resources_limits_t l = spipe_resources_limits_default();
    spipe_resources_usage_t u;
    spipe_resources_t *r = NULL;
    static unsigned others[COUNT];
    unsigned *x, *y;
    spipe_desc_t d = spipe_desc_default(), other;
    spipe_pipeline_t *p;
    pthread_t threads[2];
    int k;
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
    spipe_add_input(&d, x, 4);
    other = d;
    spipe_add_sink(&d, take_at, y, 4, SPIPE_ANY_ORDER);
    spipe_add_stage(&d, "add", add, NULL);
    spipe_add_sink(&other, take_at, others, 4, SPIPE_ANY_ORDER);
    spipe_add_stage(&other, "wait", add, &other);
    other.count = 1000;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    if (pthread_create(&threads[0], NULL, run_kept, p) != 0) exit(99);
    while (!is_held && !is_over) usleep(200);
    if (is_over) printf("# the run ended before a worker asked\n");
    if (pthread_create(&threads[1], NULL, run_other, &other) != 0) exit(99);
    for (k = 0; k < 5000 && !is_over; ++k) { /* until both share the threads */
        SPIPE_CHECK(spipe_resources_usage(r, &u));
        if (u.runs == 2) break;
        usleep(200);
    }
    usleep(20000);
    is_fewer = 1;
    for (k = 0; k < 100000 && !is_over; ++k) usleep(200);
    tap_ok(is_over,
           "the worker that asks has to stop, as another run shares the threads: the run goes on");
    if (!is_over) exit(1);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    tap_ok(got[0] == cudaSuccess && got[1] == cudaSuccess, "both runs end well");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    resources_arrays_free(PINNED, x, y);
    SPIPE_CHECK(spipe_resources_destroy(r, NULL));
    return tap_done();
}
#endif
