/*  search.cu -- looks for a number in chunks, and stops when it has found it.

    nvcc -O3 -I.. -o search search.cu && ./search                    (without a GPU: make examples)

    What it is  a loop of your own takes chunk after chunk (spipe_pipeline_next) and searches each
                on the next stream of a pool, so that several are searched at once. An event of a
                pool marks the end of each search; the host waits for the oldest, and reads its
                result. When the number is found, spipe_pipeline_end ends the run.
    Mind        the host must not wait for each search before it issues the next one, and must not
                issue far ahead, either: what is issued is copied. Here AHEAD are under way.
    Expect      (hostcuda)
                found at  419430:  0.139 ms,  19 % of the data was taken
                found at 2097152:  0.309 ms,  59 % of the data was taken
                found at 4194303:  0.428 ms, 100 % of the data was taken
                not there:         0.428 ms, 100 %
                right: the CPU finds the same                                                     */
#include "ex_common.h"

enum {
    N = 1 << 22,
    CHUNK = 1 << 17,
    AHEAD = 3,
    STREAMS = 2
};

static const unsigned NOWHERE = ~0u;

static __global__ void search(unsigned *found, const unsigned *x, size_t n, unsigned wanted,
                              size_t first) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n && x[i] == wanted) *found = (unsigned)(first + i);
}

typedef struct searches { /* those under way; the oldest is number `done` */
    cudaEvent_t ended[AHEAD];
    unsigned *found; /* AHEAD numbers in pinned memory; kernels write them */
    size_t issued, done;
} searches_t;

/* Waits for the oldest search, and says what it found. */
static unsigned wait_for_one(searches_t *s, spipe_event_pool_t *events) {
    const size_t k = s->done++ % AHEAD;
    SPIPE_CHECK(cudaEventSynchronize(s->ended[k]));
    SPIPE_CHECK(spipe_event_release(events, s->ended[k]));
    return s->found[k];
}

/* Searches the next chunk on the next stream of the pool; returns 0 if no chunk is left. */
static int issue_one(searches_t *s, spipe_pipeline_t *p, spipe_stream_pool_t *streams,
                     spipe_event_pool_t *events, unsigned wanted) {
    const size_t k = s->issued % AHEAD;
    cudaStream_t stream;
    spipe_chunk_t c;
    SPIPE_CHECK(spipe_stream_next(streams, &stream)); /* in turn */
    SPIPE_CHECK(spipe_pipeline_next(p, stream, &c));
    if (c.count == 0) return 0;
    SPIPE_CHECK(cudaMemsetAsync(&s->found[k], 0xFF, sizeof *s->found, stream));
    SPIPE_CHECK(SPIPE_LAUNCH(search, spipe_blocks(c.count, 256), 256, 0, stream, &s->found[k],
                             SPIPE_BUF(&c, 0, const unsigned), c.count, wanted, c.first));
    SPIPE_CHECK(spipe_pipeline_release(p, stream));
    SPIPE_CHECK(spipe_event_acquire(events, &s->ended[k]));
    SPIPE_CHECK(cudaEventRecord(s->ended[k], stream));
    ++s->issued;
    return 1;
}

/* Returns where `wanted` is, or NOWHERE; *ms: the time; *share: how much data was taken. */
static unsigned find(const unsigned *x, unsigned wanted, unsigned *memory, double *ms,
                     double *share) {
    searches_t s = {{NULL}, memory, 0, 0};
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    spipe_stream_pool_t streams;
    spipe_event_pool_t events;
    unsigned found = NOWHERE;
    d.count = N;
    d.chunk = CHUNK;
    spipe_add_input(&d, x, sizeof *x);
    SPIPE_CHECK(spipe_stream_pool_create(&streams, STREAMS, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_event_pool_create(&events));
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    const double start = ex_now_ms();
    while (found == NOWHERE && issue_one(&s, p, &streams, &events, wanted))
        if (s.issued - s.done == AHEAD) found = wait_for_one(&s, &events);
    *share = (double)s.issued * CHUNK / N;
    while (s.done < s.issued) {
        const unsigned at = wait_for_one(&s, &events);
        found = at < found ? at : found;
    }
    SPIPE_CHECK(spipe_pipeline_end(p, NULL)); /* what is left is not copied */
    *ms = ex_now_ms() - start;
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(spipe_event_pool_destroy(&events));
    SPIPE_CHECK(spipe_stream_pool_destroy(&streams));
    return found;
}

/* Uses a leased stream, which nobody else gets meanwhile; spipe_stream_next shares streams. */
static void fill_on_a_lease(unsigned *x, spipe_stream_pool_t *pool) {
    cudaStream_t mine;
    SPIPE_CHECK(spipe_stream_acquire(pool, &mine));
    SPIPE_CHECK(cudaMemsetAsync(x, 0, N * sizeof *x, mine));
    SPIPE_CHECK(cudaStreamSynchronize(mine));
    SPIPE_CHECK(spipe_stream_release(pool, mine));
}

int main(void) {
    static const unsigned places[] = {N / 10, N / 2, N - 1};
    spipe_stream_pool_t pool;
    unsigned *x, *found;
    double ms, share;
    int right = 1;
    ex_begin();
    SPIPE_CHECK(spipe_pinned_alloc((void **)&x, N * sizeof *x));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&found, AHEAD * sizeof *found));
    SPIPE_CHECK(spipe_stream_pool_create(&pool, 1, SPIPE_PRIORITY_LOW));
    fill_on_a_lease(x, &pool); /* touches all pages before the timing */
    SPIPE_CHECK(spipe_stream_pool_destroy(&pool));
    ex_fill(x, N);
    for (unsigned place : places) {
        const unsigned at = find(x, x[place], found, &ms, &share);
        printf("found at %7u: %6.3f ms, %3.0f %% of the data was taken\n", at, ms, 100.0 * share);
        right &= at == place;
    }
    right &= find(x, 12345, found, &ms, &share) == NOWHERE;
    printf("not there:        %6.3f ms, %3.0f %%\n", ms, 100.0 * share);
    SPIPE_CHECK(spipe_pinned_free(found));
    SPIPE_CHECK(spipe_pinned_free(x));
    return ex_verdict(right);
}
