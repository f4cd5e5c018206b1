/*  test_host_stages.cu -- host stages: one chunk at a time if marked ordered, and buffers that
    they write without reading. */
#include <pthread.h>
#include <unistd.h>

#include "pipe_common.h"

static const spipe_schedule_t schedules[] = {SPIPE_SCHEDULE_ENGINES, SPIPE_SCHEDULE_SERIAL,
                                             SPIPE_SCHEDULE_ZERO_COPY};

enum {
    NUM_SCHEDULES = (int)(sizeof schedules / sizeof *schedules),
    CHUNK = 64,
    CHUNKS = 24,
    N = CHUNK * CHUNKS + 5
};

/* ---- One at a time --------------------------------------------------------------------------- */

typedef struct turns {
    pthread_mutex_t lock;
    size_t inside, most, next, out_of_order;
} turns_t;

/* Gives another thread time to come in, so that one that may would be met. */
static cudaError_t in_turn(const spipe_chunk_t *c, void *user) {
    turns_t *t = (turns_t *)user;
    pthread_mutex_lock(&t->lock);
    ++t->inside;
    if (t->most < t->inside) t->most = t->inside;
    t->out_of_order += c->index != t->next;
    ++t->next;
    pthread_mutex_unlock(&t->lock);
    usleep(2000);
    pthread_mutex_lock(&t->lock);
    --t->inside;
    pthread_mutex_unlock(&t->lock);
    return cudaSuccess;
}

static void test_turns(spipe_schedule_t schedule, size_t threads) {
    pipe_array_t x = pipe_array_new(N, PIPE_PINNED), y = pipe_array_new(N, PIPE_PINNED);
    pipe_mix_args_t args = {0, 1, 1};
    turns_t t;
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    size_t i, wrong = 0;
    int s;
    memset((void *)&t, 0, sizeof t);
    pthread_mutex_init(&t.lock, NULL);
    pipe_randomise(x);
    pipe_poison(y);
    d.count = N;
    d.chunk = CHUNK;
    d.schedule = schedule;
    d.threads = threads;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    s = spipe_add_host_stage(&d, "in turn", in_turn, &t, SPIPE_BIT(1), 0);
    spipe_stage_ordered(&d, s);
    SPIPE_CHECK_RUN(&d, &r);
    for (i = 0; i < N; ++i) wrong += y.at[i] != pipe_mix(x.at[i], i);
    tap_ok(t.most == 1 && t.out_of_order == 0 && t.next == CHUNKS + 1 && wrong == 0,
           "an ordered host stage, %s, %zu threads: one chunk at a time, in order",
           spipe_schedule_name(schedule), threads);
    pthread_mutex_destroy(&t.lock);
    pipe_free(&x);
    pipe_free(&y);
}

/* ---- An input with a halo that is written, but not read -------------------------------------- */

enum {
    BEFORE = 3,
    AFTER = 2
};

static __global__ void spread_kernel(const unsigned *x, unsigned *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = 0;
    for (int k = -BEFORE; k <= AFTER; ++k) y[i] = y[i] * 31 + x[(ptrdiff_t)i + k];
}

static cudaError_t spread_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(spread_kernel, spipe_blocks(c->count, 64), 64, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned), SPIPE_BUF(c, 1, unsigned), c->count);
}

static unsigned made_up(size_t at) { return (unsigned)(at * 2654435761u) | 1u; }

static cudaError_t make_up(const spipe_chunk_t *c, void *user) {
    size_t i;
    (void)user;
    for (i = 0; i < c->count; ++i) SPIPE_BUF(c, 0, unsigned)[i] = made_up(c->first + i);
    return cudaSuccess;
}

/* What a chunk's window holds at a place of the whole: what the host stage made of its own,
   and the neighbours as they were, beyond the ends repeated. */
static unsigned in_window(const unsigned *x, size_t first, size_t count, ptrdiff_t at) {
    if (at >= (ptrdiff_t)first && at < (ptrdiff_t)(first + count)) return made_up((size_t)at);
    if (at < 0) return x[0];
    return x[at < (ptrdiff_t)N ? at : (ptrdiff_t)N - 1];
}

static void test_written_halo(spipe_schedule_t schedule, int memory) {
    pipe_array_t a = pipe_array_new(N * sizeof(unsigned), memory);
    unsigned *x = (unsigned *)(void *)a.at, *y = (unsigned *)calloc(N, sizeof *y);
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    size_t i, wrong = 0;
    if (!y) exit(99);
    for (i = 0; i < N; ++i) x[i] = pipe_random();
    d.count = N;
    d.chunk = CHUNK;
    d.schedule = schedule;
    d.staging = SPIPE_STAGING_COPY;
    spipe_add_input(&d, x, sizeof *x);
    spipe_set_halo(&d, 0, BEFORE, AFTER, SPIPE_EDGE_CLAMP);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_host_stage(&d, "makes up", make_up, NULL, 0, SPIPE_BIT(0));
    spipe_add_stage(&d, "spread", spread_stage, NULL);
    SPIPE_CHECK_RUN(&d, &r);
    for (i = 0; i < N; ++i) {
        const size_t first = i - i % CHUNK, left = N - first;
        const size_t count = left < CHUNK ? left : (size_t)CHUNK;
        unsigned want = 0;
        int k;
        for (k = -BEFORE; k <= AFTER; ++k) {
            want = want * 31 + in_window(x, first, count, (ptrdiff_t)i + k);
        }
        wrong += y[i] != want;
    }
    tap_ok(wrong == 0,
           "a host stage that writes an input with a halo leaves the neighbours, %s, %s",
           spipe_schedule_name(schedule), pipe_memory_names[memory]);
    pipe_free(&a);
    free(y);
}

int main(void) {
    int s;
    for (s = 0; s < NUM_SCHEDULES; ++s) {
        test_turns(schedules[s], 3);
        test_written_halo(schedules[s], PIPE_PAGEABLE);
        test_written_halo(schedules[s], PIPE_PINNED);
    }
    test_turns(SPIPE_SCHEDULE_ENGINES, 0);
    return tap_done();
}
