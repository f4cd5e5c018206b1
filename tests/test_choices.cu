/*  test_choices.cu -- what the library chooses by itself changes how fast a run is, never what
    comes out: small chunks copied several at a time, arrays worked on in place, runs replayed as a
    graph, the stream of a small run, several arrays in one copy, who copies what is staged. */
#include <pthread.h>
#include <sched.h>
#include <time.h>

/* The clock that the library reads here: it goes on while a stage says so, and a little at each
   look. Which of two ways is the faster one must not hang on what else the machine does. */
static pthread_mutex_t clock_lock = PTHREAD_MUTEX_INITIALIZER;
static double          told_seconds = 0.0;

static double pass(double seconds) {
    double now;
    pthread_mutex_lock(&clock_lock);
    now = told_seconds += seconds;
    pthread_mutex_unlock(&clock_lock);
    return now;
}

static int told_time(struct timespec *now) {
    const double seconds = pass(1e-6);
    now->tv_sec = (time_t)seconds;
    now->tv_nsec = (long)(1e9 * (seconds - (double)now->tv_sec));
    return 0;
}
#define clock_gettime(clock, now) told_time(now)

static double yield_seconds = 0.0; /* that a yield takes, by that clock */
static size_t num_yields = 0;

static int told_yield(void) {
    (void)pass(yield_seconds);
    __atomic_fetch_add(&num_yields, 1, __ATOMIC_RELAXED);
    return 0;
}
#define sched_yield() told_yield()

static size_t num_roused = 0; /* threads */

static int told_signal(pthread_cond_t *condition) {
    __atomic_fetch_add(&num_roused, 1, __ATOMIC_RELAXED);
    return pthread_cond_signal(condition);
}
#define pthread_cond_signal(condition) told_signal(condition)

#if defined(__linux__)
static int told_cpus = 0; /* processors that the library counts here; 0: as many as there are */

static int told_affinity(pid_t who, size_t bytes, cpu_set_t *cpus) {
    int k;
    if (told_cpus == 0) return sched_getaffinity(who, bytes, cpus);
    CPU_ZERO(cpus);
    for (k = 0; k < told_cpus; ++k) CPU_SET((size_t)k, cpus);
    return 0;
}
#define sched_getaffinity(who, bytes, cpus) told_affinity(who, bytes, cpus)
#endif
#include "pipe_common.h"
#ifdef __HOSTCUDA__
#include "hostcuda.h"
#endif

enum { CHUNK = 64, CHUNKS = 512, N = CHUNK * CHUNKS + 17 };

/* ---- What a stage saw ------------------------------------------------------------------------ */

typedef struct seen {
    pipe_mix_args_t args;
    size_t          calls, next, elements, fail_at;
    int             in_order;
} seen_t;

static cudaError_t watched_stage(const spipe_chunk_t *c, void *user) {
    seen_t *s = (seen_t *)user;
    s->in_order &= c->index == s->next && c->first == c->index * CHUNK && c->total == N;
    s->next = c->index + 1;
    s->elements += c->count;
    ++s->calls;
    if (c->index == s->fail_at) return cudaErrorLaunchOutOfResources;
    return pipe_mix_stage(c, &s->args);
}

static seen_t new_seen(void) {
    seen_t s;
    memset(&s, 0, sizeof s);
    s.args.out = 1;
    s.args.elem_bytes = 1;
    s.in_order = 1;
    s.fail_at = SPIPE_AUTO;
    return s;
}

static spipe_desc_t describe(pipe_array_t x, pipe_array_t y, seen_t *s) {
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "mix", watched_stage, s);
    return d;
}

static size_t num_wrong(pipe_array_t x, pipe_array_t y, size_t n) {
    size_t i, wrong = !pipe_guard_whole(y);
    for (i = 0; i < n; ++i) wrong += y.at[i] != pipe_mix(x.at[i], i);
    return wrong;
}

/* ---- Small chunks ---------------------------------------------------------------------------- */

static void test_batch(void) {
    pipe_array_t     x = pipe_array_new(N, PIPE_PINNED), y = pipe_array_new(N, PIPE_PINNED);
    seen_t           s = new_seen();
    spipe_desc_t     d = describe(x, y, &s);
    spipe_pipeline_t *p;
    spipe_report_t   r;
    pipe_randomise(x);
    pipe_poison(y);
    d.chunk = CHUNK;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_run(p, &r));
    tap_ok(p.batch > 1 && num_wrong(x, y, N) == 0, "small chunks are copied several at a time");
    tap_ok(s.in_order && s.calls == CHUNKS + 1 && s.elements == N,
           "and the stage still sees each of them, in order, with its own place");
    tap_ok(r.chunk == CHUNK && r.num_chunks == CHUNKS + 1 && r.chunks_done == CHUNKS + 1 &&
               r.failure.chunks_whole == CHUNKS + 1 && r.count_done == N,
           "and the report counts them");
    SPIPE_CHECK(spipe_pipeline_set_count(p, 3 * CHUNK));
    SPIPE_CHECK(spipe_pipeline_run(p, &r));
    tap_ok(r.num_chunks == 3 && strstr(r.why_schedule, "one copy carries all") != NULL,
           "so few that one copy carries them do not overlap, and the report says so");
    SPIPE_CHECK(spipe_pipeline_set_count(p, N));
    s.fail_at = 300;
    pipe_poison(y);
    tap_ok(spipe_pipeline_run(p, &r) == cudaErrorLaunchOutOfResources && r.failure.chunk == 300 &&
               r.failure.stage == 0 && r.failure.chunks_whole <= 300 &&
               num_wrong(x, y, r.failure.chunks_whole * CHUNK) == 0,
           "one that fails is named, and those told to be whole are: %s", r.failure.message);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    d.depth = 4;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    tap_ok(p.batch == 1 && p.desc.depth == 4, "depth says how much memory: then one at a time");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    pipe_free(&x);
    pipe_free(&y);
}

static __global__ void sum3_kernel(const unsigned char *x, unsigned char *y, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)blockDim.x * gridDim.x) {
        const unsigned char *at = x + i; /* one before and one after are there */
        y[i] = (unsigned char)(at[-1] + 2 * at[0] + 3 * at[1]);
    }
}

static cudaError_t sum3_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(sum3_kernel, spipe_blocks(c->count, 256), 256, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned char), SPIPE_BUF(c, 1, unsigned char),
                        c->count);
}

static void test_batch_with_halo(void) {
    pipe_array_t     x = pipe_array_new(N, PIPE_PINNED), y = pipe_array_new(N, PIPE_PINNED);
    spipe_desc_t     d = spipe_desc_default();
    spipe_pipeline_t *p;
    size_t           i, wrong = 0;
    pipe_randomise(x);
    pipe_poison(y);
    d.count = N;
    d.chunk = CHUNK;
    spipe_set_halo(&d, spipe_add_input(&d, x.at, 1), 1, 1, SPIPE_EDGE_ZERO);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "sum", sum3_stage, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_run(p, NULL));
    for (i = 0; i < N; ++i) {
        const int before = i > 0 ? x.at[i - 1] : 0, after = i + 1 < N ? x.at[i + 1] : 0;
        wrong += y.at[i] != (unsigned char)(before + 2 * x.at[i] + 3 * after);
    }
    tap_ok(p.batch > 1 && wrong == 0, "chunks of a batch see each other as neighbours");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    pipe_free(&x);
    pipe_free(&y);
}

/* ---- In place -------------------------------------------------------------------------------- */

/* The schedule chosen for a stage that touches each element once; SPIPE_SCHEDULE_AUTO: wrong. */
static spipe_schedule_t chosen_for(int once, int memory, size_t count, int two_stages, int halo) {
    pipe_array_t    x = pipe_array_new(count, memory), y = pipe_array_new(count, memory);
    pipe_mix_args_t args = {0, 1, 1}, again = {1, 1, 1};
    spipe_desc_t    d = spipe_desc_default();
    spipe_report_t  r;
    size_t          i, wrong = 0;
    int             stage;
    pipe_randomise(x);
    pipe_poison(y);
    d.count = count;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    if (halo) spipe_set_halo(&d, 0, 1, 1, SPIPE_EDGE_CLAMP);
    stage = spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    if (once) spipe_stage_elementwise(&d, stage);
    if (two_stages) spipe_stage_elementwise(&d, spipe_add_stage(&d, "again", pipe_mix_stage, &again));
    SPIPE_CHECK_RUN(&d, &r);
    for (i = 0; i < count; ++i) {
        const unsigned char v = pipe_mix(x.at[i], i);
        wrong += y.at[i] != (two_stages ? pipe_mix(v, i) : v);
    }
    pipe_free(&x);
    pipe_free(&y);
    return wrong ? SPIPE_SCHEDULE_AUTO : r.schedule;
}

static void test_in_place(void) {
    const size_t small = 100003, large = ((size_t)16 << 20) + 1;
    tap_ok(chosen_for(1, PIPE_PINNED, small, 0, 0) == SPIPE_ZERO_COPY,
           "a small total in pinned memory is worked on in place by a stage that touches it once");
    tap_ok(chosen_for(0, PIPE_PINNED, small, 0, 0) == SPIPE_ENGINES, "not by one that may not");
    tap_ok(chosen_for(1, PIPE_PAGEABLE, small, 0, 0) == SPIPE_ENGINES, "not in pageable memory");
    tap_ok(chosen_for(1, PIPE_PINNED, small, 1, 0) == SPIPE_ZERO_COPY, "by two such stages, too");
    tap_ok(chosen_for(0, PIPE_PINNED, small, 1, 0) == SPIPE_ENGINES, "not if one of two may not");
    tap_ok(chosen_for(1, PIPE_PINNED, 3 << 20, 1, 0) == SPIPE_ENGINES, "not 3 MiB by two stages");
    tap_ok(chosen_for(1, PIPE_PINNED, small, 0, 1) == SPIPE_ENGINES, "not with a halo");
    tap_ok(chosen_for(1, PIPE_PINNED, large, 0, 0) == SPIPE_ENGINES, "not a large total");
    tap_ok(chosen_for(1, PIPE_PINNED, 1, 0, 0) == SPIPE_ZERO_COPY, "one element");
}

/* In how many chunks one run and kept ones take so many bytes in place; 0: wrong. Two stages hand
   each other a buffer on the device. */
static size_t chunks_in_place(size_t bytes, int kept, int stages) {
    pipe_array_t     x = pipe_array_new(bytes, PIPE_PINNED), y = pipe_array_new(bytes, PIPE_PINNED);
    pipe_mix_args_t  args = {0, stages > 1 ? 2 : 1, 1}, again = {2, 1, 1};
    spipe_desc_t     d = spipe_desc_default();
    spipe_pipeline_t *p;
    spipe_report_t   r;
    size_t           wrong = 0, i;
    int              k;
    d.count = bytes;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    if (stages > 1) spipe_add_temp(&d, 1);
    spipe_stage_elementwise(&d, spipe_add_stage(&d, "mix", pipe_mix_stage, &args));
    if (stages > 1) spipe_stage_elementwise(&d, spipe_add_stage(&d, "again", pipe_mix_stage, &again));
    if (kept) SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (k = 0; k < (kept && bytes < 2000000 ? 3 : 1); ++k) { /* some, where it is quick */
        pipe_randomise(x);
        pipe_poison(y);
        if (kept) SPIPE_CHECK(spipe_pipeline_run(p, &r));
        else SPIPE_CHECK_RUN(&d, &r);
        for (i = 0; i < bytes; ++i) {
            const unsigned char v = pipe_mix(x.at[i], i);
            wrong += y.at[i] != (stages > 1 ? pipe_mix(v, i) : v);
        }
        wrong += !pipe_guard_whole(y) + (r.schedule != SPIPE_ZERO_COPY);
        wrong += r.device_bytes > (stages > 1 ? 5 * bytes : 0);
    }
    if (kept) SPIPE_CHECK(spipe_pipeline_destroy(p));
    pipe_free(&x);
    pipe_free(&y);
    return wrong ? 0 : r.num_chunks;
}

static void test_side_by_side(void) {
    const size_t mib = (size_t)1 << 20;
    tap_ok(chunks_in_place(mib / 4, 1, 1) == 1 && chunks_in_place(2 * mib, 1, 1) == 1,
           "in place a kept pipeline takes a quarter of a MiB, and 2 MiB, as a whole");
    tap_ok(chunks_in_place(mib, 1, 1) == 2, "1 MiB in halves, side by side");
    tap_ok(chunks_in_place(5 * mib + 77, 1, 1) == 3 && chunks_in_place(10 * mib + 1, 1, 1) == 3,
           "5 and 10 MiB with a small rest that fills the end");
    tap_ok(chunks_in_place(5 * mib, 0, 1) == 1, "a single run takes the whole, in one stream");
    tap_ok(chunks_in_place(mib, 1, 2) == 2 && chunks_in_place(mib, 0, 2) == 1,
           "so do two stages with a buffer between them that stays on the device");
}

/* ---- Two ways by turns ----------------------------------------------------------------------- */

typedef struct lazy {
    double each_ms, large_ms; /* that a call takes, and one of more elements than ... */
    size_t large;             /* ... these; 0: of the whole */
    double by_slot_ms;        /* that a call takes where each slot has a stream of its own */
    int    fails;
    const spipe_pipeline_t *p;
} lazy_t;

/* Each element once, so that it may be done in place; slow as it is told, by the clock above. */
static cudaError_t lazy_stage(const spipe_chunk_t *c, void *user) {
    const lazy_t *s = (const lazy_t *)user;
    const size_t  large = s->large ? s->large : c->total - 1;
    const int     by_slot = s->by_slot_ms > 0.0 && s->p->desc.schedule == SPIPE_DEPTH_FIRST;
    (void)pass(1e-3 * (by_slot ? s->by_slot_ms : c->count > large ? s->large_ms : s->each_ms));
    if (s->fails) return cudaErrorLaunchOutOfResources;
    return cudaMemcpyAsync(c->data[1], c->data[0], c->count, cudaMemcpyDefault, c->stream);
}

typedef struct kept {
    pipe_array_t     x, y;
    lazy_t           lazy;
    spipe_desc_t     d;
    spipe_pipeline_t *p;
    spipe_report_t   r;
    size_t           wrong, tried, last; /* runs that tried; chunks of the last */
    size_t           by_chunks[64];      /* runs of so many */
} kept_t;

static void kept_new(kept_t *k, int memory, size_t bytes, double each_ms, double large_ms) {
    memset((void *)k, 0, sizeof *k);
    k->x = pipe_array_new(bytes, memory);
    k->y = pipe_array_new(bytes, memory);
    k->lazy.each_ms = each_ms;
    k->lazy.large_ms = large_ms;
    k->d = spipe_desc_default();
    k->d.count = bytes;
    spipe_add_input(&k->d, k->x.at, 1);
    spipe_add_output(&k->d, k->y.at, 1);
    spipe_stage_elementwise(&k->d, spipe_add_stage(&k->d, "lazy", lazy_stage, &k->lazy));
}

static void kept_run(kept_t *k, int runs) {
    if (!k->p.alive) SPIPE_CHECK(spipe_pipeline_create(&k->p, &k->d, NULL));
    for (; runs > 0; --runs) {
        const unsigned char *in = (const unsigned char *)k->p.desc.buffers[0].host;
        const unsigned char *out = (const unsigned char *)k->p.desc.buffers[1].host;
        pipe_randomise(k->x);
        pipe_poison(k->y);
        SPIPE_CHECK(spipe_pipeline_run(&k->p, &k->r));
        k->wrong += memcmp(in, out, k->p.desc.count) != 0 || !pipe_guard_whole(k->y);
        k->wrong += k->r.chunks_done != k->r.num_chunks || k->r.count_done != k->p.desc.count;
        k->tried += k->r.trying != 0;
        k->last = k->r.num_chunks;
        ++k->by_chunks[k->last < 64 ? k->last : 63];
    }
}

static size_t kept_free(kept_t *k) {
    k->wrong += spipe_pipeline_destroy(&k->p) != cudaSuccess;
    pipe_free(&k->x);
    pipe_free(&k->y);
    return k->wrong;
}

static void test_two_ways(void) {
    const size_t mib = (size_t)1 << 20;
    kept_t       k;
    size_t       wrong;
    int          tried;
    kept_new(&k, PIPE_PINNED, mib, 0.0, 0.0);
    kept_run(&k, 4);
    tap_ok(k.tried == 4 && k.by_chunks[1] == 2 && k.by_chunks[2] == 2,
           "the first runs of a kept pipeline cut the whole in two ways by turns");
    wrong = kept_free(&k);
    kept_new(&k, PIPE_PINNED, mib, 1.0, 2.0); /* the same either way */
    kept_run(&k, 30);
    tried = k.tried >= 4 && k.tried <= 24 && k.by_chunks[1] + k.by_chunks[2] + k.by_chunks[4] == 30;
    tap_ok(wrong + kept_free(&k) == 0 && tried, "%d of them, and each is right", (int)k.tried);
    kept_new(&k, PIPE_PINNED, mib, 2.0, 2.0);
    kept_run(&k, 15);
    tap_ok(k.last == 1 && !k.r.trying && kept_free(&k) == 0,
           "all others go the faster way: whole, where a call takes long");
    kept_new(&k, PIPE_PINNED, 2 * mib, 1.0, 4.0);
    kept_run(&k, 26);
    tap_ok(k.last == 2 && !k.r.trying && kept_free(&k) == 0,
           "in halves, where one call for the whole takes long");
    kept_new(&k, PIPE_PINNED, 2 * mib, 0.0, 4.0);
    kept_run(&k, 4);
    k.lazy.large = mib / 2;
    kept_run(&k, 20);
    tap_ok(k.last == 4 && !k.r.trying && kept_free(&k) == 0, "in quarters, where one half does");
    kept_new(&k, PIPE_PINNED, 17 * mib, 2.0, 2.0);
    kept_run(&k, 1);
    tried = k.r.schedule == SPIPE_ENGINES;
    kept_run(&k, 14);
    tap_ok(tried && k.r.schedule == SPIPE_ZERO_COPY && k.last == 3 && kept_free(&k) == 0,
           "in place, where copies were planned and many calls take long");
    kept_new(&k, PIPE_PINNED, 13 * mib, 0.0, 8.0);
    k.lazy.large = 3 * mib;
    kept_run(&k, 1);
    tried = k.r.schedule == SPIPE_ZERO_COPY;
    kept_run(&k, 14);
    tap_ok(tried && k.r.schedule == SPIPE_ENGINES && kept_free(&k) == 0,
           "with copies, where it was planned in place and large calls take long");
}

static cudaError_t idle_stage(const spipe_chunk_t *c, void *user) {
    (void)c;
    (void)user;
    return cudaSuccess;
}

/* Two stages, so that the other cut is chunks of half the size; the plan's chunk. */
static size_t third_new(kept_t *k, double each_ms) {
    kept_new(k, PIPE_PINNED, (size_t)7 << 20, each_ms, 8.0);
    k->lazy.large = (size_t)7 << 20;
    k->lazy.p = &k->p;
    spipe_stage_elementwise(&k->d, spipe_add_stage(&k->d, "idle", idle_stage, NULL));
    SPIPE_CHECK(spipe_pipeline_create(&k->p, &k->d, NULL));
    return k->p.desc.chunk;
}

static void test_third_way(void) {
    kept_t k;
    size_t chunk = third_new(&k, 2.0), half;
    kept_run(&k, 26);
    tap_ok(k.r.schedule == SPIPE_ENGINES && k.r.chunk == chunk && k.tried <= 24 && !k.r.trying,
           "where half the chunk loses, what is tried next may lose, too: %d runs tried",
           (int)k.tried);
    tap_ok(kept_free(&k) == 0, "and each is right");
    chunk = third_new(&k, 2.0);
    k.lazy.by_slot_ms = 1.0;
    kept_run(&k, 26);
    tap_ok(k.r.schedule == SPIPE_DEPTH_FIRST && k.r.chunk == chunk && !k.r.trying &&
               kept_free(&k) == 0, "or win: a stream of its own for each slot");
    chunk = third_new(&k, 0.1);
    k.lazy.large = chunk / 2 + 32;
    kept_run(&k, 26);
    half = k.r.chunk;
    tap_ok(half > chunk / 2 - 32 && half <= chunk / 2 && !k.r.trying && kept_free(&k) == 0,
           "half the chunk where large calls take long");
    chunk = third_new(&k, 0.1);
    k.lazy.large = chunk / 2 + 32;
    kept_run(&k, 4); /* half wins clearly ... */
    k.lazy.large = chunk / 3 + 32;
    kept_run(&k, 26);
    tap_ok(k.r.schedule == SPIPE_ENGINES && k.r.chunk > chunk / 3 - 64 && k.r.chunk <= chunk / 3 &&
               !k.r.trying, "then a third, where half of it is still too large");
    SPIPE_CHECK(spipe_pipeline_set_count(&k.p, k.d.count));
    k.lazy.each_ms = 2.0;
    k.lazy.large = k.d.count;
    kept_run(&k, 4); /* the whole chunk wins clearly ... */
    k.lazy.by_slot_ms = 1.0;
    kept_run(&k, 26);
    tap_ok(k.r.schedule == SPIPE_DEPTH_FIRST && k.r.chunk == chunk && !k.r.trying &&
               kept_free(&k) == 0, "another count begins all of it again");
    kept_new(&k, PIPE_PINNED, (size_t)17 << 20, 0.0, 8.0); /* one stage: copies or in place */
    k.lazy.large = (size_t)3 << 20;
    kept_run(&k, 4);
    k.lazy.large = k.p.cuts[0].chunk - 1;
    chunk = k.p.cuts[0].chunk;
    kept_run(&k, 26);
    tap_ok(k.r.schedule == SPIPE_ENGINES && k.r.chunk > chunk / 3 * 2 - 32 &&
               k.r.chunk <= chunk / 3 * 2 && !k.r.trying && kept_free(&k) == 0,
           "where copies win from work in place, 2/3 of their chunk is tried");
}

/* Chunks of a kept pipeline that stages so many bytes, after runs of which those with chunks over
   half as long as the plan's, or all of them, take long; the plan's in *chunk. */
static size_t staged_halves(size_t bytes, int long_ones, int runs, size_t *chunk,
                            size_t *tried) {
    kept_t k;
    size_t last;
    kept_new(&k, PIPE_PAGEABLE, bytes, long_ones ? 0.1 : 2.0, 4.0);
    k.lazy.large = bytes;
    SPIPE_CHECK(spipe_pipeline_create(&k.p, &k.d, NULL));
    *chunk = k.p.desc.chunk;
    if (long_ones) k.lazy.large = *chunk / 2 + 32;
    kept_run(&k, runs);
    *tried = k.tried;
    last = k.r.trying ? 0 : k.r.chunk;
    return kept_free(&k) == 0 ? last : 0;
}

static void test_halves_staged(void) {
    const size_t mib = (size_t)1 << 20;
    size_t       chunk, tried, least, last;
    last = staged_halves(13 * mib, 1, 26, &chunk, &tried);
    tap_ok(last > chunk / 2 - 32 && last <= chunk / 2 && tried >= 4 && tried <= 24,
           "staged, 12 to 100 MiB: half the chunk where large calls take long, after %d runs",
           (int)tried);
    last = staged_halves(13 * mib, 0, 26, &chunk, &tried);
    tap_ok(last == chunk && tried >= 4 && tried <= 24, "or the chunk that was planned, after %d",
           (int)tried);
    (void)staged_halves(8 * mib, 1, 2, &chunk, &least);
    (void)staged_halves(101 * mib, 1, 1, &chunk, &tried);
    tap_ok(least == 0 && tried == 0, "less, and more, is done as planned");
}

static void test_not_two_ways(void) {
    const size_t mib = (size_t)1 << 20;
    kept_t       k;
    kept_new(&k, PIPE_PINNED, mib, 0.0, 0.0);
    k.d.chunk = mib / 4;
    kept_run(&k, 4);
    tap_ok(kept_free(&k) == 0 && k.by_chunks[4] == 4, "one way only where chunk was asked for");
    kept_new(&k, PIPE_PINNED, mib, 0.0, 0.0);
    k.d.stages[0].once = 0;
    kept_run(&k, 4);
    tap_ok(kept_free(&k) == 0 && k.by_chunks[k.last] == 4,
           "or where a stage may look at an element twice");
    kept_new(&k, PIPE_PINNED, mib, 0.0, 0.0);
    k.d.sync_each = 1;
    kept_run(&k, 4);
    tap_ok(kept_free(&k) == 0 && k.by_chunks[k.last] == 4, "or where each step is looked at");
}

static void test_ways_and_changes(void) {
    const size_t mib = (size_t)1 << 20;
    pipe_array_t pageable = pipe_array_new(mib, PIPE_PAGEABLE);
    kept_t       k;
    size_t       tried;
    kept_new(&k, PIPE_PINNED, mib, 0.0, 0.0);
    kept_run(&k, 2);
    memset(pageable.at, 7, mib);
    SPIPE_CHECK(spipe_pipeline_set_host(&k.p, 0, pageable.at));
    tried = k.tried;
    kept_run(&k, 5);
    tap_ok(k.wrong == 0 && k.tried - tried <= 1,
           "an array that has to be staged ends the trial, halfway");
    SPIPE_CHECK(spipe_pipeline_set_host(&k.p, 0, k.x.at));
    tried = k.tried;
    kept_run(&k, 20);
    tap_ok(k.wrong == 0 && k.tried - tried >= 4, "pinned arrays begin it again");
    SPIPE_CHECK(spipe_pipeline_set_count(&k.p, 1000));
    kept_run(&k, 3);
    SPIPE_CHECK(spipe_pipeline_set_count(&k.p, mib));
    tried = k.tried;
    kept_run(&k, 20);
    tap_ok(k.wrong == 0 && k.tried - tried >= 4, "so does another count");
    k.lazy.fails = 1;
    SPIPE_CHECK(spipe_pipeline_set_count(&k.p, mib));
    tap_ok(spipe_pipeline_run(&k.p, &k.r) == cudaErrorLaunchOutOfResources &&
               k.r.failure.stage == 0, "a stage that fails there is named");
    k.lazy.fails = 0;
    kept_run(&k, 20);
    tap_ok(kept_free(&k) == 0, "and the runs after it are right");
    pipe_free(&pageable);
}

#ifdef __HOSTCUDA__
/* Going over to another cut asks CUDA about each array; going back to the plan, too. */
static void test_ways_that_fail(void) {
    kept_t      k;
    cudaError_t e;
    kept_new(&k, PIPE_PINNED, (size_t)1 << 20, 0.0, 0.0);
    kept_run(&k, 1);
    hostcuda_fail("cudaPointerGetAttributes", 1, cudaErrorUnknown);
    kept_run(&k, 5);
    tap_ok(k.wrong == 0 && hostcuda_fail_fired() == 1 && k.by_chunks[2] == 6 && k.tried == 1,
           "a cut that cannot be tried is none: the runs go on as planned");
    hostcuda_fail_clear();
    SPIPE_CHECK(spipe_pipeline_set_count(&k.p, k.d.count));
    kept_run(&k, 1);
    hostcuda_fail("cudaPointerGetAttributes", 1, cudaErrorUnknown);
    hostcuda_fail("cudaPointerGetAttributes", 2, cudaErrorUnknown);
    e = spipe_pipeline_run(&k.p, &k.r);
    tap_ok(e == cudaErrorUnknown && hostcuda_fail_fired() == 2 && k.r.failure.chunks_whole == 0 &&
               strstr(k.r.failure.message, "the arrays cannot be looked at"),
           "where neither can be arranged the run says so: %s", k.r.failure.message);
    hostcuda_fail_clear();
    e = spipe_pipeline_run(&k.p, &k.r);
    SPIPE_CHECK(spipe_pipeline_set_host(&k.p, 0, k.x.at));
    kept_run(&k, 14);
    tap_ok(e == cudaErrorInvalidResourceHandle && kept_free(&k) == 0,
           "and so do those after it, until an array is set");
}
#endif

/* A stage that is fixed, too: a graph is tried first, and the faster way against another cut, which
   is one with copies and so wants memory of the device. */
static void test_ways_and_graph(void) {
    kept_t k;
    int    m, replayed = 0, both;
#ifdef __HOSTCUDA__
    int    alive = 0;
#endif
    kept_new(&k, PIPE_PINNED, (size_t)13 << 20, 0.0, 0.0);
    spipe_stage_replayable(&k.d, 0);
    for (m = 0; m < 24; ++m) {
        kept_run(&k, 1);
        replayed += k.r.replayed;
#ifdef __HOSTCUDA__
        if (m == 0) alive = hostcuda_leaks(NULL);
        k.wrong += hostcuda_leaks(NULL) != alive;
#endif
    }
    both = k.by_chunks[3] > 0 && k.by_chunks[3] < 24;
    tap_ok(kept_free(&k) == 0 && replayed >= 2 && both,
           "a graph, and another cut, are tried; nothing is made after the first run");
}

/* ---- Little pageable memory ------------------------------------------------------------------ */

#if defined(__linux__) /* elsewhere nobody can tell the library how many processors there are */

/* Host threads each way, and in how many chunks, that a kept pipeline takes for so many bytes. */
static size_t staged_by(int cpus, size_t bytes, size_t *chunks) {
    kept_t k;
    told_cpus = cpus;
    kept_new(&k, PIPE_PAGEABLE, bytes, 0.0, 0.0);
    kept_run(&k, 3);
    told_cpus = 0;
    *chunks = kept_free(&k) == 0 && k.r.staged ? k.last : 0;
    return k.r.threads;
}

static void test_little(void) {
    const size_t kib = 1024;
    size_t       least, two, some, mib, many, none;
    none = staged_by(2, 30 * kib, &least) + staged_by(2, 50 * kib + 1, &two) +
           staged_by(2, 1024 * kib, &mib) + staged_by(16, 380 * kib, &some);
    tap_ok(none == 0 && staged_by(2, 1600 * kib, &many) == 1,
           "with 2 processors a kept pipeline wakes no thread to stage up to 1.5 MiB");
    tap_ok(least == 1 && two == 2 && mib == 2 && some == 2 && many == 8,
           "the least in one chunk, the rest in two; with more of them up to 0.375 MiB");
    tap_ok(staged_by(16, 400 * kib, &some) == 3 && staged_by(16, 1500 * kib, &mib) == 3 &&
               some == 4 && mib == 4 && staged_by(4, 400 * kib, &some) == 2 && some == 4,
           "then three threads each way take a quarter each, or two, with the caller's help");
    tap_ok(staged_by(16, 4000 * kib + 1, &some) == 6 && staged_by(16, 9000 * kib, &many) == 6 &&
               some == 8 && many == 16, "six an eighth, or a sixteenth");
}

/* Elements a chunk that is staged for so many of these bytes each. */
static size_t staged_chunk(size_t count, size_t elem_bytes, int cpus) {
    pipe_array_t     x = pipe_array_new(count * elem_bytes, PIPE_PAGEABLE);
    spipe_desc_t     d = spipe_desc_default();
    spipe_pipeline_t *p;
    size_t           chunk;
    told_cpus = cpus;
    d.count = count;
    spipe_add_inout(&d, x.at, elem_bytes);
    spipe_add_stage(&d, "idle", idle_stage, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    chunk = p.desc.chunk;
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    told_cpus = 0;
    pipe_free(&x);
    return chunk;
}

static void test_few_large(void) {
    tap_ok(staged_chunk(5, 60000, 2) == 3 && staged_chunk(5, 200000, 16) == 2 &&
               staged_chunk(1, 1000000, 16) == 1 && staged_chunk(1, 1000, 16) == 1,
           "of few large elements a slot holds no more than a half, or a quarter");
}

/* Which of the loads that are filled and drained the caller does itself. */
typedef struct hands {
    spipe_priv_watch_t watch; /* first: it stands in a timeline's place */
    pthread_t          caller;
    size_t             own[2], others[2]; /* filled, drained */
    size_t             roused;
} hands_t;

static void tell_hands(struct spipe_timeline *timeline, spipe_pipeline_t *p, int what,
                       const void *about, size_t load, int after) {
    hands_t *h = (hands_t *)(void *)timeline;
    int      own, task;
    (void)p, (void)load;
    if (what != SPIPE_PRIV_WATCH_TASK || after) return;
    own = pthread_equal(h->caller, pthread_self());
    task = ((const spipe_priv_task_t *)about)->what;
    if (task < 2) __atomic_fetch_add(own ? &h->own[task] : &h->others[task], 1, __ATOMIC_RELAXED);
}

/* Until every thread of the crews waits to be roused. */
static void until_all_rest(spipe_pipeline_t *p) {
    size_t awake = 1;
    while (awake > 0) {
        int i;
        usleep(500);
        spipe_priv_lock(p->sync);
        for (awake = 0, i = 0; i < SPIPE_PRIV_NUM_CREWS; ++i) {
            const spipe_priv_worker_t *hand = p->crews[i].resting;
            awake += p->crews[i].num_threads;
            for (; hand; hand = hand->next) --awake;
        }
        spipe_priv_unlock(p->sync);
    }
}

static hands_t hands_of(size_t bytes, size_t chunk, int one_shot, int runs, size_t *wrong) {
    hands_t h;
    kept_t  k;
    memset((void *)&h, 0, sizeof h);
    h.watch.tell = tell_hands;
    h.caller = pthread_self();
    told_cpus = 16;
    kept_new(&k, PIPE_PAGEABLE, bytes, 0.0, 0.0);
    k.d.threads = 2;
    k.d.chunk = chunk;
    k.d.staging = SPIPE_STAGING_COPY;
    k.d.timeline = (struct spipe_timeline *)(void *)&h;
    if (!one_shot) SPIPE_CHECK(spipe_pipeline_create(&k.p, &k.d, NULL));
    for (; runs > 0; --runs) {
        const size_t before = num_roused;
        if (!one_shot) until_all_rest(&k.p);
        if (one_shot) SPIPE_CHECK(spipe_run(&k.d, NULL));
        else kept_run(&k, 1);
        h.roused += num_roused - before;
    }
    *wrong = kept_free(&k);
    told_cpus = 0;
    return h;
}

static void test_help(void) {
    size_t  wrong;
    hands_t h = hands_of(100000, 100000, 0, 6, &wrong);
    tap_ok(wrong == 0 && h.own[0] == 6 && h.own[1] == 6 && h.others[0] + h.others[1] == 0,
           "one load is filled and drained by the caller of a kept pipeline");
    tap_ok(h.roused == 0, "who wakes nobody for it");
    h = hands_of((size_t)8 << 20, (size_t)1 << 20, 0, 10, &wrong);
    tap_ok(wrong == 0 && h.own[0] + h.others[0] == 80 && h.own[1] + h.others[1] == 80 &&
               h.own[0] > 0 && h.others[0] > 0 && h.others[1] > 0,
           "of several, the caller and threads fill some each: %d by the caller, %d by threads, "
           "and drain: %d, %d", (int)h.own[0], (int)h.others[0], (int)h.own[1], (int)h.others[1]);
    h = hands_of((size_t)12 << 20, (size_t)1 << 20, 0, 2, &wrong);
    tap_ok(wrong == 0 && h.own[0] + h.own[1] == 0, "from 12 MiB on only threads do");
    h = hands_of((size_t)8 << 20, (size_t)1 << 20, 1, 2, &wrong);
    tap_ok(wrong == 0 && h.own[0] + h.own[1] == 0, "and in a single run");
}

#endif

/* ---- Busy processors ------------------------------------------------------------------------- */

/* A host stage, on a thread that nobody helps. Makes the caller wait, and so poll: until it has
   yielded so often (5 s at most), and then on. */
static cudaError_t slow_stage(const spipe_chunk_t *c, void *user) {
    const size_t *until = (const size_t *)user;
    int           ms;
    for (ms = 0; ms < 5000 && __atomic_load_n(&num_yields, __ATOMIC_RELAXED) < *until; ++ms) {
        usleep(1000);
    }
    usleep(1000);
    memcpy(c->data[1], c->data[0], c->count);
    return cudaSuccess;
}

static size_t yields_of_a_run(double seconds_each, size_t until) {
    pipe_array_t x = pipe_array_new(N, PIPE_PINNED), y = pipe_array_new(N, PIPE_PINNED);
    spipe_desc_t d = spipe_desc_default();
    size_t       wrong;
    d.count = N;
    d.chunk = N / 8;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_host_stage(&d, "slow", slow_stage, &until, SPIPE_BIT(0), SPIPE_BIT(1));
    pipe_randomise(x);
    num_yields = 0;
    yield_seconds = seconds_each;
    SPIPE_CHECK(spipe_run(&d, NULL));
    yield_seconds = 0.0;
    wrong = memcmp(x.at, y.at, N) != 0;
    pipe_free(&x);
    pipe_free(&y);
    return wrong ? 0 : num_yields;
}

static void test_busy(void) {
    tap_ok(yields_of_a_run(0.0, 9) > 8, "whoever waits for the host's threads lets others run");
    tap_ok(yields_of_a_run(1.0, 1) == 1,
           "but once where that takes long: others keep every processor busy");
}

/* ---- Replay ---------------------------------------------------------------------------------- */

static void test_replay(void) {
    pipe_array_t     x = pipe_array_new(N, PIPE_PINNED), y = pipe_array_new(N, PIPE_PINNED);
    pipe_array_t     z = pipe_array_new(N, PIPE_PINNED);
    seen_t           s = new_seen();
    spipe_desc_t     d = describe(x, y, &s);
    spipe_pipeline_t *p;
    spipe_report_t   r;
    size_t           wrong = 0, calls, bytes = 0;
    int              k, replayed = 0;
    d.chunk = CHUNK;
    spipe_stage_replayable(&d, 0);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (k = 0; k < 8; ++k) {
        pipe_randomise(x);
        pipe_poison(y);
        s.next = 0;
        calls = s.calls;
        SPIPE_CHECK(spipe_pipeline_run(p, &r));
        wrong += num_wrong(x, y, N) + (r.chunks_done != CHUNKS + 1) + (r.bytes_in != N);
        wrong += r.replayed && s.calls != calls;
        replayed += r.replayed;
        bytes += r.bytes_in + r.bytes_out;
    }
    tap_ok(wrong == 0 && replayed >= 2 && bytes == 16 * (size_t)N,
           "runs of a fixed stage replay as a graph, with new data each time, when that is faster");
    SPIPE_CHECK(spipe_pipeline_set_host(p, 1, z.at));
    for (wrong = 0, k = 0; k < 5; ++k) {
        pipe_randomise(x);
        pipe_poison(z);
        SPIPE_CHECK(spipe_pipeline_run(p, NULL));
        wrong += num_wrong(x, z, N);
    }
    tap_ok(wrong == 0, "another array is another graph");
    SPIPE_CHECK(spipe_pipeline_set_count(p, 1000));
    for (wrong = 0, k = 0; k < 5; ++k) {
        pipe_randomise(x);
        pipe_poison(z);
        SPIPE_CHECK(spipe_pipeline_run(p, &r));
        wrong += num_wrong(x, z, 1000) + (z.at[1000] != 0xA5) + (r.count_done != 1000);
    }
    tap_ok(wrong == 0, "another count, too");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    pipe_free(&x);
    pipe_free(&y);
    pipe_free(&z);
}

static cudaError_t waiting_stage(const spipe_chunk_t *c, void *user) {
    const cudaError_t e = pipe_mix_stage(c, user);
    return e == cudaSuccess ? cudaStreamSynchronize(c->stream) : e; /* no capture allows that */
}

static void test_no_replay(void) {
    pipe_array_t     x = pipe_array_new(N, PIPE_PINNED), y = pipe_array_new(N, PIPE_PINNED);
    pipe_mix_args_t  args = {0, 1, 1};
    spipe_desc_t     d = spipe_desc_default();
    spipe_pipeline_t *p;
    spipe_report_t   r;
    size_t           wrong = 0;
    int              k, replayed = 0;
    d.count = N;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    d.chunk = N / 5;
    spipe_stage_replayable(&d, spipe_add_stage(&d, "waits", waiting_stage, &args));
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (k = 0; k < 6; ++k) {
        pipe_randomise(x);
        pipe_poison(y);
        SPIPE_CHECK(spipe_pipeline_run(p, &r));
        wrong += num_wrong(x, y, N);
        replayed += r.replayed;
    }
    tap_ok(wrong == 0 && replayed == 0 && cudaPeekAtLastError() == cudaSuccess,
           "a stage that cannot be captured is called, as ever");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    pipe_free(&x);
    pipe_free(&y);
}

/* ---- The thread's own stream ----------------------------------------------------------------- */

typedef struct noted {
    pipe_mix_args_t args;
    size_t          calls, own; /* own: in the thread's own stream */
    int             fails;
} noted_t;

static cudaError_t noting_stage(const spipe_chunk_t *c, void *user) {
    noted_t *s = (noted_t *)user;
    ++s->calls;
    s->own += c->stream == cudaStreamPerThread;
    return s->fails ? cudaErrorLaunchOutOfResources : pipe_mix_stage(c, &s->args);
}

enum { FIXED = 1, URGENT = 2, KEPT = 4, CAPTURING = 8, FAILING = 16 };

/* Whether a stage was called in the thread's own stream; -1 when anything else is not right. */
static int in_own_stream(size_t n, int how) {
    pipe_array_t     x = pipe_array_new(n, PIPE_PAGEABLE), y = pipe_array_new(n, PIPE_PAGEABLE);
    noted_t          s = {{0, 1, 1}, 0, 0, 0};
    spipe_desc_t     d = spipe_desc_default();
    spipe_pipeline_t *p;
    cudaGraph_t      graph = NULL;
    cudaError_t      e;
    size_t           wrong;
    s.fails = (how & FAILING) != 0;
    d.count = n;
    if (how & URGENT) d.priority = SPIPE_PRIORITY_HIGH;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "notes", noting_stage, &s);
    if (how & FIXED) spipe_stage_replayable(&d, 0);
    pipe_randomise(x);
    pipe_poison(y);
    if (how & CAPTURING) {
        SPIPE_CHECK(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeRelaxed));
    }
    if (how & KEPT) {
        SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
        e = spipe_pipeline_run(p, NULL);
        SPIPE_CHECK(spipe_pipeline_destroy(p));
    } else {
        e = spipe_run(&d, NULL);
    }
    if (how & CAPTURING) {
        SPIPE_CHECK(cudaStreamEndCapture(cudaStreamPerThread, &graph));
        SPIPE_CHECK(cudaGraphDestroy(graph));
    }
    wrong = s.fails ? e != cudaErrorLaunchOutOfResources : e + num_wrong(x, y, n);
    wrong += cudaPeekAtLastError() != cudaSuccess || s.calls == 0;
    wrong += s.own > 0 && s.own < s.calls;
    pipe_free(&x);
    pipe_free(&y);
    return wrong ? -1 : s.own > 0;
}

static void test_own_stream(void) {
    const size_t small = 100003, large = ((size_t)7 << 20) + 1;
    tap_ok(in_own_stream(small, FIXED) == 1,
           "a small run of a fixed stage goes through the stream that the thread has anyway");
    tap_ok(in_own_stream(small, 0) == 0, "not of a stage that may hand its stream to a thread");
    tap_ok(in_own_stream(small, FIXED | URGENT) == 0, "not with a priority");
    tap_ok(in_own_stream(small, FIXED | KEPT) == 0, "not of a pipeline that is kept");
    tap_ok(in_own_stream(large, FIXED) == 0, "not a large run");
    tap_ok(in_own_stream(small, FIXED | CAPTURING) == 0,
           "not while that stream is captured, and the capture stays whole");
    tap_ok(in_own_stream(small, FIXED | FAILING) == 1 && in_own_stream(small, FIXED) == 1,
           "a run that failed there leaves it as it was");
}

/* ---- Several arrays -------------------------------------------------------------------------- */

static __global__ void three_kernel(const unsigned char *a, const unsigned short *b,
                                    const unsigned *c, unsigned char *s, unsigned *t, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)blockDim.x * gridDim.x) {
        s[i] = (unsigned char)(a[i] + b[i]);
        t[i] = c[i] + 3u * b[i];
    }
}

static cudaError_t three_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(three_kernel, spipe_blocks(c->count, 256), 256, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned char), SPIPE_BUF(c, 1, const unsigned short),
                        SPIPE_BUF(c, 2, const unsigned), SPIPE_BUF(c, 3, unsigned char),
                        SPIPE_BUF(c, 4, unsigned), c->count);
}

/* Of these arrays the first `pinned` are pinned. */
static void test_several_arrays(int pinned) {
    static const size_t bytes[5] = {1, 2, 4, 1, 4};
    pipe_array_t        a[5];
    spipe_desc_t        d = spipe_desc_default();
    spipe_report_t      r;
    size_t              i, wrong = 0;
    int                 k;
    for (k = 0; k < 5; ++k) {
        a[k] = pipe_array_new(N * bytes[k], k < pinned ? PIPE_PINNED : PIPE_PAGEABLE);
        pipe_randomise(a[k]);
    }
    pipe_poison(a[3]);
    pipe_poison(a[4]);
    d.count = N;
    d.chunk = 1000;
    d.staging = SPIPE_STAGING_COPY;
    for (k = 0; k < 3; ++k) spipe_add_input(&d, a[k].at, bytes[k]);
    for (k = 3; k < 5; ++k) spipe_add_output(&d, a[k].at, bytes[k]);
    spipe_add_stage(&d, "three", three_stage, NULL);
    SPIPE_CHECK_RUN(&d, &r);
    for (i = 0; i < N; ++i) {
        unsigned short b;
        unsigned       c, t;
        memcpy(&b, a[1].at + 2 * i, sizeof b);
        memcpy(&c, a[2].at + 4 * i, sizeof c);
        memcpy(&t, a[4].at + 4 * i, sizeof t);
        wrong += a[3].at[i] != (unsigned char)(a[0].at[i] + b) || t != c + 3u * b;
    }
    wrong += !pipe_guard_whole(a[3]) || !pipe_guard_whole(a[4]);
    tap_ok(wrong == 0 && r.bytes_in == 7 * (size_t)N && r.bytes_out == 5 * (size_t)N,
           "three arrays in and two out, %d of the five pinned", pinned);
    for (k = 0; k < 5; ++k) pipe_free(&a[k]);
}

int main(void) {
    int k;
    test_batch();
    test_batch_with_halo();
    test_in_place();
    test_side_by_side();
#if defined(__linux__)
    test_little();
    test_few_large();
    test_help();
#endif
    test_busy();
    test_two_ways();
    test_third_way();
    test_halves_staged();
    test_not_two_ways();
    test_ways_and_changes();
#ifdef __HOSTCUDA__
    test_ways_that_fail();
#endif
    test_ways_and_graph();
    test_replay();
    test_no_replay();
    test_own_stream();
    for (k = 0; k <= 5; ++k) test_several_arrays(k);
    return tap_done();
}
