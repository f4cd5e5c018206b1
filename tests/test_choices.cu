/*  test_choices.cu -- the library's choices change how fast a run is, never its result: arrays used
    in place, runs replayed as a graph, the stream of a small run, several arrays in one copy. The
    plan is what runs, also after a change; of the settings that runs try the fastest stays. */
#include "replaced.h"

#include "pipe_common.h"
#ifdef __HOSTCUDA__
#include "hostcuda.h"
#endif

/* The clock that the library reads here: it goes on while a stage says so, and a little at each
   look. Which of two ways is the faster one must not hang on what else the machine does. Threads
   that wait look until 300 us are over: with 64 ns a look these tests take 8 s, with 8 ns 11. */
static long long told_ns = 0;

static long long pass_ns(long long ns) {
    return __atomic_add_fetch(&told_ns, ns, __ATOMIC_SEQ_CST);
}

static long long pass(double seconds) { return pass_ns((long long)(1e9 * seconds + 0.5)); }

static int told_time(struct timespec *now) {
    const long long ns = pass_ns(64); /* those who wait look often */
    now->tv_sec = (time_t)(ns / 1000000000);
    now->tv_nsec = (long)(ns % 1000000000);
    return 0;
}

static size_t num_yields = 0;

static int told_yield(void) {
    __atomic_fetch_add(&num_yields, 1, __ATOMIC_RELAXED);
    return 0;
}

enum {
    CHUNK = 64,
    CHUNKS = 512,
    N = CHUNK * CHUNKS + 17
};

/* ---- What a stage saw ------------------------------------------------------------------------ */

typedef struct seen {
    pipe_mix_args_t args;
    size_t calls, next, elements, fail_at;
    int in_order;
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

/* ---- In place -------------------------------------------------------------------------------- */

/* The schedule chosen for a single run; SPIPE_SCHEDULE_AUTO: the result is wrong. */
static spipe_schedule_t chosen_for(int once, int memory, size_t count, int two_stages, int halo) {
    pipe_array_t x = pipe_array_new(count, memory), y = pipe_array_new(count, memory);
    pipe_mix_args_t args = {0, 1, 1}, again = {1, 1, 1};
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    size_t i, wrong = 0;
    int stage;
    pipe_randomise(x);
    pipe_poison(y);
    d.count = count;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    if (halo) spipe_set_halo(&d, 0, 1, 1, SPIPE_EDGE_CLAMP);
    stage = spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    if (once) spipe_stage_elementwise(&d, stage);
    if (two_stages) {
        spipe_stage_elementwise(&d, spipe_add_stage(&d, "again", pipe_mix_stage, &again));
    }
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
    const size_t small = 100003;
    tap_ok(chosen_for(1, PIPE_PINNED, small, 0, 0) == SPIPE_SCHEDULE_ZERO_COPY,
           "a small total in pinned memory is worked on in place by an elementwise stage");
    tap_ok(chosen_for(0, PIPE_PINNED, small, 0, 0) == SPIPE_SCHEDULE_ENGINES, "not by another");
    tap_ok(chosen_for(1, PIPE_PAGEABLE, small, 0, 0) == SPIPE_SCHEDULE_ENGINES,
           "not in pageable memory");
    tap_ok(chosen_for(0, PIPE_PINNED, small, 1, 0) == SPIPE_SCHEDULE_ENGINES,
           "not if one of two stages is not elementwise");
    tap_ok(chosen_for(1, PIPE_PINNED, small, 0, 1) == SPIPE_SCHEDULE_ENGINES, "not with a halo");
    tap_ok(chosen_for(1, PIPE_PINNED, (size_t)40 << 20, 0, 0) == SPIPE_SCHEDULE_ENGINES,
           "not a large total: copies on both engines are faster");
    tap_ok(chosen_for(1, PIPE_PINNED, 1, 0, 0) == SPIPE_SCHEDULE_ZERO_COPY, "one element");
}

/* Runs in place, asked for: once or kept. Two stages hand each other a buffer on the device. */
static void test_runs_in_place(size_t bytes, int kept, int stages) {
    pipe_array_t x = pipe_array_new(bytes, PIPE_PINNED), y = pipe_array_new(bytes, PIPE_PINNED);
    pipe_mix_args_t args = {0, stages > 1 ? 2 : 1, 1}, again = {2, 1, 1};
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p = NULL;
    spipe_report_t r;
    size_t wrong = 0, most, i;
    int k;
    d.count = bytes;
    d.schedule = SPIPE_SCHEDULE_ZERO_COPY;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    if (stages > 1) spipe_add_temp(&d, 1);
    spipe_stage_elementwise(&d, spipe_add_stage(&d, "mix", pipe_mix_stage, &args));
    if (stages > 1) {
        spipe_stage_elementwise(&d, spipe_add_stage(&d, "again", pipe_mix_stage, &again));
    }
    if (kept) SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (k = 0; k < (kept ? 4 : 1); ++k) {
        pipe_randomise(x);
        pipe_poison(y);
        if (kept)
            SPIPE_CHECK(spipe_pipeline_run(p, &r));
        else
            SPIPE_CHECK_RUN(&d, &r);
        for (i = 0; i < bytes; ++i) {
            const unsigned char v = pipe_mix(x.at[i], i);
            wrong += y.at[i] != (stages > 1 ? pipe_mix(v, i) : v);
        }
        most = stages > 1 ? r.chunk * r.depth + 512 * r.depth : 0;
        wrong += !pipe_guard_whole(y) + (r.schedule != SPIPE_SCHEDULE_ZERO_COPY) +
                 (r.device_bytes > most);
    }
    if (kept) SPIPE_CHECK(spipe_pipeline_destroy(p));
    tap_ok(wrong == 0, "%zu bytes in place, %s, %d stages: %s", bytes, kept ? "kept" : "once",
           stages, stages > 1 ? "only the temporary is on the device" : "nothing on the device");
    pipe_free(&x);
    pipe_free(&y);
}

/* ---- The plan in force ----------------------------------------------------------------------- */

static int is_same(const spipe_plan_t *a, const spipe_plan_t *b) {
    const int same = a->count == b->count && a->chunk == b->chunk && a->depth == b->depth &&
                     a->schedule == b->schedule && a->staging == b->staging &&
                     a->fill_threads == b->fill_threads && a->drain_threads == b->drain_threads &&
                     a->caller_helps == b->caller_helps && a->replay == b->replay &&
                     a->why_schedule == b->why_schedule && a->why_staging == b->why_staging;
    if (!same) (void)spipe_plan_print(a, stderr);
    if (!same) (void)spipe_plan_print(b, stderr);
    return same;
}

/* A run did what was planned. */
static int is_done(const spipe_plan_t *plan, const spipe_report_t *r) {
    return plan->chunk == r->chunk && plan->depth == r->depth && plan->schedule == r->schedule &&
           r->staged == (plan->staging == SPIPE_STAGING_COPY) &&
           r->fill_threads <= plan->fill_threads && r->drain_threads <= plan->drain_threads &&
           plan->why_chunk == r->why_chunk && plan->why_staging == r->why_staging;
}

typedef struct setting {
    const char *name;
    int memory, elementwise, replayable;
    size_t chunk, depth, threads;
    spipe_schedule_t schedule;
    spipe_staging_t staging;
} setting_t;

#define ANY SPIPE_AUTO, SPIPE_AUTO, SPIPE_AUTO, SPIPE_SCHEDULE_AUTO, SPIPE_STAGING_AUTO
static const setting_t settings[] = {
    {"pinned", PIPE_PINNED, 0, 0, ANY},
    {"pinned, elementwise", PIPE_PINNED, 1, 0, ANY},
    {"pinned, replayable", PIPE_PINNED, 0, 1, ANY},
    {"pinned, small chunks", PIPE_PINNED, 0, 0, 100, SPIPE_AUTO, SPIPE_AUTO, SPIPE_SCHEDULE_AUTO,
     SPIPE_STAGING_AUTO},
    {"pageable", PIPE_PAGEABLE, 0, 0, ANY},
    {"pageable, staged", PIPE_PAGEABLE, 0, 0, 5000, SPIPE_AUTO, 2, SPIPE_SCHEDULE_AUTO,
     SPIPE_STAGING_COPY},
    {"pageable, fewer slots than threads", PIPE_PAGEABLE, 0, 0, 5000, 3, 8, SPIPE_SCHEDULE_AUTO,
     SPIPE_STAGING_COPY},
    {"pageable, left to CUDA", PIPE_PAGEABLE, 0, 0, SPIPE_AUTO, SPIPE_AUTO, SPIPE_AUTO,
     SPIPE_SCHEDULE_AUTO, SPIPE_STAGING_DIRECT},
    {"pageable, pinned in place", PIPE_PAGEABLE, 0, 0, 5000, SPIPE_AUTO, SPIPE_AUTO,
     SPIPE_SCHEDULE_AUTO, SPIPE_STAGING_REGISTER},
};
#undef ANY

typedef struct planned {
    pipe_array_t x, y;
    pipe_mix_args_t args;
    spipe_desc_t d;
} planned_t;

static void planned_new(planned_t *w, const setting_t *s, size_t count) {
    int stage;
    w->x = pipe_array_new(count, s->memory);
    w->y = pipe_array_new(count, s->memory);
    memset(&w->args, 0, sizeof w->args);
    w->args.out = 1;
    w->args.elem_bytes = 1;
    w->d = spipe_desc_default();
    w->d.count = count;
    w->d.chunk = s->chunk;
    w->d.depth = s->depth;
    w->d.threads = s->threads;
    w->d.schedule = s->schedule;
    w->d.staging = s->staging;
    spipe_add_input(&w->d, w->x.at, 1);
    spipe_add_output(&w->d, w->y.at, 1);
    stage = spipe_add_stage(&w->d, "mix", pipe_mix_stage, &w->args);
    if (s->elementwise) spipe_stage_elementwise(&w->d, stage);
    if (s->replayable) spipe_stage_replayable(&w->d, stage);
    pipe_randomise(w->x);
    pipe_poison(w->y);
}

static void planned_free(planned_t *w) {
    pipe_free(&w->x);
    pipe_free(&w->y);
}

/* spipe_plan, before anything is made, says what a run and a kept pipeline then have. */
static void test_plan_is_what_runs(const setting_t *s, size_t count) {
    planned_t w;
    spipe_plan_t plan;
    spipe_pipeline_t *p;
    spipe_report_t r;
    int pinned = -1, good;
    planned_new(&w, s, count);
    SPIPE_CHECK(spipe_plan(&w.d, 0, &plan, NULL));
    SPIPE_CHECK(spipe_is_pinned(w.x.at, count, &pinned));
    good = pinned == (s->memory == PIPE_PINNED) && w.y.at[0] == 0xA5;
    SPIPE_CHECK_RUN(&w.d, &r);
    good &= num_wrong(w.x, w.y, count) == 0;
    tap_ok(good && is_done(&plan, &r), "a plan touches nothing, and is what spipe_run does: %s",
           s->name);
    SPIPE_CHECK(spipe_plan(&w.d, 1, &plan, NULL));
    SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
    good = is_same(&plan, spipe_pipeline_plan(p));
    SPIPE_CHECK(spipe_pipeline_run(p, &r));
    tap_ok(good && is_done(&plan, &r), "and what a kept pipeline begins with: %s", s->name);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    planned_free(&w);
}

/* Whether a pipeline has the plan of a new one. */
static int is_like_new(const spipe_pipeline_t *p, const spipe_desc_t *d) {
    spipe_pipeline_t *fresh;
    int same;
    SPIPE_CHECK(spipe_pipeline_create(&fresh, d, NULL));
    same = is_same(spipe_pipeline_plan(p), spipe_pipeline_plan(fresh));
    SPIPE_CHECK(spipe_pipeline_destroy(fresh));
    return same;
}

/* Whatever a pipeline ran before, with another count it is like a new one. */
static void test_changes_plan_anew(const setting_t *s) {
    static const size_t counts[] = {70001, 300007, 1000, (size_t)1 << 20, 100003};
    const size_t most = (size_t)1 << 20;
    planned_t w;
    spipe_pipeline_t *p;
    spipe_report_t r;
    size_t k;
    int runs, moved, good = 1;
    planned_new(&w, s, most);
    w.d.count = 200003;
    SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
    for (k = 0; k < sizeof counts / sizeof *counts; ++k) {
        pipe_array_t other = pipe_array_new(most, k % 2 ? PIPE_PINNED : PIPE_PAGEABLE);
        for (runs = 0; runs < (int)(3 * k); ++runs) SPIPE_CHECK(spipe_pipeline_run(p, NULL));
        w.d.count = counts[k];
        if (spipe_pipeline_set_count(p, counts[k]) != cudaSuccess) {
            good &= s->staging == SPIPE_STAGING_REGISTER; /* arrays are pinned for their length */
            w.d.count = spipe_pipeline_plan(p)->count;
        }
        moved = s->staging != SPIPE_STAGING_REGISTER;
        good &= !moved || is_like_new(p, &w.d);
        memcpy(other.at, w.x.at, most);
        if (moved) w.d.buffers[0].host = other.at;
        if (moved) SPIPE_CHECK(spipe_pipeline_set_host(p, 0, other.at));
        good &= !moved || is_like_new(p, &w.d);
        pipe_poison(w.y);
        SPIPE_CHECK(spipe_pipeline_run(p, &r));
        good &= num_wrong(w.x, w.y, w.d.count) == 0 && r.count_done == w.d.count;
        if (moved) SPIPE_CHECK(spipe_pipeline_set_host(p, 0, w.x.at));
        w.d.buffers[0].host = w.x.at;
        pipe_free(&other);
    }
    tap_ok(good, "after set_count and set_host the plan is that of a new pipeline: %s", s->name);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    planned_free(&w);
}

/* Under compute-sanitizer each setting has memory of its own, which a graph must not outlive. */
static void test_apart(void) {
#if defined(__HOSTCUDA__) && !defined(_WIN32)
    const char *name = "NV_SANITIZER_INJECTION_TRANSPORT_TYPE";
    const char *was = getenv(name);
    if (!was) setenv(name, "test", 1);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; ++i) {
        if (settings[i].replayable) test_changes_plan_anew(&settings[i]);
    }
    if (!was) unsetenv(name);
#endif
}

static void test_plan_refusals(void) {
    spipe_desc_t d = spipe_desc_default();
    spipe_plan_t plan;
    spipe_failure_t f;
    memset(&plan, 0xEE, sizeof plan);
    tap_ok(spipe_plan(&d, 0, &plan, &f) == cudaErrorInvalidValue && f.message[0] &&
               plan.chunk == 0 && !plan.why_chunk,
           "a bad description has no plan, in words: %s", f.message);
    tap_ok(spipe_plan(&d, 0, NULL, &f) == cudaErrorInvalidValue && f.message[0] &&
               spipe_plan(NULL, 0, &plan, NULL) == cudaErrorInvalidValue &&
               spipe_plan_print(NULL, stdout) == cudaErrorInvalidValue &&
               spipe_plan_print(&plan, NULL) == cudaErrorInvalidValue,
           "there must be a place for the plan, and one to print");
}

static void test_plan_printed(void) {
    planned_t w;
    spipe_plan_t plan;
    char text[4096] = "", chunk[64];
    FILE *to = tmpfile();
    if (!to) exit(99);
    planned_new(&w, &settings[5], 300007);
    SPIPE_CHECK(spipe_plan(&w.d, 1, &plan, NULL));
    SPIPE_CHECK(spipe_plan_print(&plan, to));
    rewind(to);
    (void)!fread(text, 1, sizeof text - 1, to);
    fclose(to);
    snprintf(chunk, sizeof chunk, " chunk %zu (elements)", plan.chunk);
    tap_ok(strstr(text, chunk) && strstr(text, plan.why_chunk) && strstr(text, plan.why_staging) &&
               strstr(text, spipe_schedule_name(plan.schedule)) && strstr(text, "first guess"),
           "a printed plan says how large chunks are, and why");
    planned_free(&w);
}

/* ---- The climb ------------------------------------------------------------------------------- */

/* A stage that takes as long as it is told, by the clock above and by hostcuda's. */
typedef struct lazy {
    double call_ms, mib_ms; /* of each call, and of each MiB in it */
    double in_place_ms;     /* more, where nothing is copied */
    int fails;
    spipe_pipeline_t **p;
} lazy_t;

static cudaError_t lazy_stage(const spipe_chunk_t *c, void *user) {
    const lazy_t *s = (const lazy_t *)user;
    const int in_place = *s->p && spipe_pipeline_plan(*s->p)->schedule == SPIPE_SCHEDULE_ZERO_COPY;
    const double mib = (double)c->count / 1048576.0;
    const double ms = s->call_ms + mib * s->mib_ms + (in_place ? s->in_place_ms : 0.0);
    (void)pass(1e-3 * ms);
#ifdef __HOSTCUDA__
    hostcuda_host_work(1e6 * ms);
#endif
    if (s->fails) return cudaErrorLaunchOutOfResources;
    return cudaMemcpyAsync(c->data[1], c->data[0], c->count, cudaMemcpyDefault, c->stream);
}

typedef struct kept {
    pipe_array_t x, y;
    unsigned char *in, *out; /* the arrays of today */
    size_t count;
    lazy_t lazy;
    spipe_desc_t d;
    spipe_pipeline_t *p;
    spipe_report_t r;
    size_t wrong, tried; /* tried: runs that tried a setting */
} kept_t;

static void kept_new(kept_t *k, int memory, size_t bytes) {
    memset((void *)k, 0, sizeof *k);
    k->x = pipe_array_new(bytes, memory);
    k->y = pipe_array_new(bytes, memory);
    k->in = k->x.at;
    k->out = k->y.at;
    k->count = bytes;
    k->lazy.p = &k->p;
    k->d = spipe_desc_default();
    k->d.count = bytes;
    spipe_add_input(&k->d, k->x.at, 1);
    spipe_add_output(&k->d, k->y.at, 1);
    spipe_add_stage(&k->d, "lazy", lazy_stage, &k->lazy);
    pipe_randomise(k->x);
}

static void kept_run(kept_t *k, int runs) {
    if (!k->p) SPIPE_CHECK(spipe_pipeline_create(&k->p, &k->d, NULL));
    for (; runs > 0; --runs) {
        memset(k->out, 0xA5, k->count);
        memset(k->y.at + k->y.bytes, 0x5A, 32);
        k->in[pipe_random() % k->count] ^= 1;
        SPIPE_CHECK(spipe_pipeline_run(k->p, &k->r));
        k->wrong += memcmp(k->in, k->out, k->count) != 0 || !pipe_guard_whole(k->y);
        k->wrong += k->r.chunks_done != k->r.num_chunks || k->r.count_done != k->count;
        k->tried += k->r.trying != 0;
    }
}

static size_t kept_free(kept_t *k) {
    k->wrong += spipe_pipeline_destroy(k->p) != cudaSuccess;
    pipe_free(&k->x);
    pipe_free(&k->y);
    return k->wrong;
}

/* What two runs have in common that went the same way. */
static int is_same_way(const spipe_plan_t *a, const spipe_plan_t *b) {
    return a->chunk == b->chunk && a->depth == b->depth && a->schedule == b->schedule &&
           a->fill_threads == b->fill_threads && a->drain_threads == b->drain_threads &&
           a->caller_helps == b->caller_helps && a->replay == b->replay;
}

/* A climb to its end; whether each run was right, it ended, and what stays is as fast as anything
   that was run, but for what runs vary by. */
static int is_fastest_kept(kept_t *k, size_t *ways_run) {
    enum {
        MOST = 60
    };

    spipe_plan_t ways[MOST];
    double least[MOST];
    size_t num = 0, best = 0, i, n;
    int good, trying = 1;
    for (n = 0; n < MOST && trying; ++n) {
        kept_run(k, 1);
        trying = k->r.trying;
        for (i = 0; i < num && !is_same_way(&ways[i], spipe_pipeline_plan(k->p)); ++i) continue;
        if (i == num) {
            ways[num] = *spipe_pipeline_plan(k->p);
            least[num++] = 1e30;
        }
        if (n > 0 && k->r.wall_ms < least[i]) least[i] = k->r.wall_ms;
    }
    for (best = 0, i = 1; i < num; ++i) best = least[i] < least[best] ? i : best;
    for (i = 0; i < num && !is_same_way(&ways[i], spipe_pipeline_plan(k->p)); ++i) continue;
    good = !trying && i < num && least[i] <= 1.12 * least[best] + 0.005;
    for (i = 0; i < num && !good; ++i) {
        tap_note("%s chunk %zu depth %zu threads %zu+%zu: %g ms",
                 spipe_schedule_name(ways[i].schedule), ways[i].chunk, ways[i].depth,
                 ways[i].fill_threads, ways[i].drain_threads, least[i]);
    }
    if (!good) (void)spipe_plan_print(spipe_pipeline_plan(k->p), stdout);
    *ways_run = num;
    return good && k->wrong == 0;
}

static void test_climb(int memory, size_t bytes, int elementwise) {
    static const lazy_t lazies[] = {{0.0, 0.0, 0.0, 0, NULL},
                                    {0.3, 0.0, 0.0, 0, NULL},
                                    {0.0, 5.0, 0.0, 0, NULL},
                                    {0.05, 0.5, 0.0, 0, NULL}};
    size_t i, ways, most = 0;
    int good = 1;
    for (i = 0; i < sizeof lazies / sizeof *lazies; ++i) {
        kept_t k;
        kept_new(&k, memory, bytes);
        k.lazy = lazies[i];
        k.lazy.p = &k.p;
        if (elementwise) spipe_stage_elementwise(&k.d, 0);
        good &= is_fastest_kept(&k, &ways);
        good &= kept_free(&k) == 0;
        if (ways > most) most = ways;
    }
    tap_ok(good,
           "%zu KiB, %s%s: up to %zu settings are tried, each run is right, the fastest stays",
           bytes >> 10, pipe_memory_names[memory], elementwise ? ", elementwise" : "", most);
}

static int never_stop(const spipe_progress_t *progress, void *user) {
    (void)progress;
    (void)user;
    return 0;
}

/* Whoever looks at single chunks or carries state sees the same cut in each run. */
static void test_no_climb(void) {
    static const char *const names[] = {"checked", "progress", "a resident buffer"};
    int what;
    for (what = 0; what < 3; ++what) {
        kept_t k;
        size_t chunk;
        int i, good = 1;
        kept_new(&k, PIPE_PINNED, (size_t)5 << 20);
        if (what == 0) k.d.checked = 1;
        if (what == 1) k.d.progress = never_stop;
        if (what == 2) spipe_add_resident(&k.d, NULL, 100, SPIPE_ZERO);
        kept_run(&k, 1);
        chunk = k.r.chunk;
        for (i = 0; i < 8; ++i) {
            kept_run(&k, 1);
            good &= k.r.chunk == chunk && !k.r.trying;
        }
        tap_ok(kept_free(&k) == 0 && good && k.tried == 0, "nothing is tried with %s", names[what]);
    }
}

/* Another array goes on with what was found; another count begins anew. */
static void test_climb_and_changes(void) {
    const size_t mib = (size_t)1 << 20;
    pipe_array_t pageable = pipe_array_new(mib, PIPE_PAGEABLE);
    kept_t k;
    size_t ways;
    int good;
    kept_new(&k, PIPE_PINNED, mib);
    kept_run(&k, 2);
    memset(pageable.at, 7, mib);
    SPIPE_CHECK(spipe_pipeline_set_host(k.p, 0, pageable.at));
    k.in = pageable.at;
    good = is_fastest_kept(&k, &ways);
    SPIPE_CHECK(spipe_pipeline_set_host(k.p, 0, k.x.at));
    k.in = k.x.at;
    good &= is_fastest_kept(&k, &ways);
    SPIPE_CHECK(spipe_pipeline_set_count(k.p, 1000));
    k.count = 1000;
    kept_run(&k, 3);
    SPIPE_CHECK(spipe_pipeline_set_count(k.p, mib));
    k.count = mib;
    k.tried = 0;
    good &= is_fastest_kept(&k, &ways) && k.tried > 0;
    tap_ok(good, "another kind of array, and another count, begin a climb anew");
    k.lazy.fails = 1;
    SPIPE_CHECK(spipe_pipeline_set_count(k.p, 1000));
    tap_ok(spipe_pipeline_run(k.p, &k.r) == cudaErrorLaunchOutOfResources &&
               k.r.failure.stage == 0 && strstr(k.r.failure.message, "'lazy'"),
           "a stage that fails there is named");
    k.lazy.fails = 0;
    SPIPE_CHECK(spipe_pipeline_set_count(k.p, mib));
    good = is_fastest_kept(&k, &ways);
    tap_ok(kept_free(&k) == 0 && good, "and the runs after it are right");
    pipe_free(&pageable);
}

/* Whether a graph is tried, and each run is right. */
static void test_climb_and_graph(int memory, size_t bytes, size_t chunk) {
    kept_t k;
    int m, replayed = 0;
    kept_new(&k, memory, bytes);
    k.d.chunk = chunk;
    spipe_stage_replayable(&k.d, 0);
    for (m = 0; m < 40; ++m) {
        kept_run(&k, 1);
        replayed += k.r.replayed;
    }
    tap_ok(kept_free(&k) == 0 && (memory == PIPE_PINNED ? replayed > 0 : replayed == 0),
           "%zu KiB, %s: %d of 40 runs are replayed", bytes >> 10, pipe_memory_names[memory],
           replayed);
}

/* ---- Busy processors ------------------------------------------------------------------------- */

/* A host stage, on a thread that nobody helps. Makes the others wait, and so poll: until they have
   yielded so often (5 s at most), and then on. */
static cudaError_t slow_stage(const spipe_chunk_t *c, void *user) {
    const size_t *until = (const size_t *)user;
    int ms;
    for (ms = 0; ms < 5000 && __atomic_load_n(&num_yields, __ATOMIC_RELAXED) < *until; ++ms) {
        usleep(1000);
    }
    usleep(1000);
    memcpy(c->data[1], c->data[0], c->count);
    return cudaSuccess;
}

static void test_busy(void) {
    size_t until = 9, wrong;
    spipe_report_t r;
    pipe_array_t x = pipe_array_new(N, PIPE_PINNED), y = pipe_array_new(N, PIPE_PINNED);
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.chunk = N / 8;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_host_stage(&d, "slow", slow_stage, &until, SPIPE_BIT(0), SPIPE_BIT(1));
    pipe_randomise(x);
    num_yields = 0;
    SPIPE_CHECK(spipe_run(&d, &r));
    wrong = memcmp(x.at, y.at, N) != 0;
    tap_ok(!wrong && num_yields > 8, "whoever waits for the host's threads lets others run");
    pipe_free(&x);
    pipe_free(&y);
}

/* ---- Replay ---------------------------------------------------------------------------------- */

static void test_replay(void) {
    pipe_array_t x = pipe_array_new(N, PIPE_PINNED), y = pipe_array_new(N, PIPE_PINNED);
    pipe_array_t z = pipe_array_new(N, PIPE_PINNED);
    seen_t s = new_seen();
    spipe_desc_t d = describe(x, y, &s);
    spipe_pipeline_t *p;
    spipe_report_t r;
    size_t wrong = 0, calls, bytes = 0;
    int k, replayed = 0;
    d.chunk = CHUNK;
    d.depth = 4; /* so each chunk is copied by itself */
    spipe_stage_replayable(&d, 0);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (k = 0; k < 8; ++k) {
        pipe_randomise(x);
        pipe_poison(y);
        s.next = 0;
        calls = s.calls;
        SPIPE_CHECK(spipe_pipeline_run(p, &r));
        wrong += num_wrong(x, y, N) + (r.chunks_done != CHUNKS + 1) + (r.bytes_in != N);
        wrong += r.replayed && replayed > 0 && s.calls != calls; /* the first one is captured */
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

/* One that promised nothing is called for each chunk of each run. So is one that did, in a checked
   run: a replay would do what it did before, and the mistake would not show. */
static void test_not_replayed(int checked) {
    pipe_array_t x = pipe_array_new(N, PIPE_PINNED), y = pipe_array_new(N, PIPE_PINNED);
    seen_t s = new_seen();
    spipe_desc_t d = describe(x, y, &s);
    spipe_pipeline_t *p;
    spipe_report_t r;
    size_t wrong = 0, k;
    d.chunk = CHUNK;
    d.depth = 4;
    d.checked = checked;
    if (checked) spipe_stage_replayable(&d, 0);
    pipe_randomise(x);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (k = 1; k <= 6; ++k) {
        s.next = 0;
        SPIPE_CHECK(spipe_pipeline_run(p, &r));
        wrong += r.replayed || s.calls != k * (CHUNKS + 1) || !s.in_order;
    }
    tap_ok(wrong == 0, "a stage that is %s is called for each chunk of each run",
           checked ? "replayable, but checked," : "not replayable");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    pipe_free(&x);
    pipe_free(&y);
}

static void test_no_replay(void) {
    pipe_array_t x = pipe_array_new(N, PIPE_PINNED), y = pipe_array_new(N, PIPE_PINNED);
    pipe_mix_args_t args = {0, 1, 1};
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    spipe_report_t r;
    size_t wrong = 0;
    int k, replayed = 0;
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
    size_t calls, own; /* own: in the thread's own stream */
    int fails;
} noted_t;

static cudaError_t noting_stage(const spipe_chunk_t *c, void *user) {
    noted_t *s = (noted_t *)user;
    ++s->calls;
    s->own += c->stream == cudaStreamPerThread;
    return s->fails ? cudaErrorLaunchOutOfResources : pipe_mix_stage(c, &s->args);
}

enum {
    FIXED = 1,
    URGENT = 2,
    KEPT = 4,
    CAPTURING = 8,
    FAILING = 16
};

/* Whether a stage was called in the thread's own stream; -1 when anything else is not right. */
static int in_own_stream(size_t n, int how) {
    pipe_array_t x = pipe_array_new(n, PIPE_PAGEABLE), y = pipe_array_new(n, PIPE_PAGEABLE);
    noted_t s = {{0, 1, 1}, 0, 0, 0};
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    cudaGraph_t graph = NULL;
    cudaError_t e;
    size_t wrong;
    s.fails = (how & FAILING) != 0;
    d.count = n;
    if (how & URGENT) d.priority = SPIPE_PRIORITY_HIGH;
    pipe_randomise(x);
    pipe_poison(y);
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "notes", noting_stage, &s);
    if (how & FIXED) spipe_stage_replayable(&d, 0);
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
    pipe_array_t a[5];
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    size_t i, wrong = 0;
    int k;
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
        unsigned c, t;
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
    const size_t mib = (size_t)1 << 20;
    size_t i;
    int k;
    replaced.clock_gettime = told_time;
    replaced.sched_yield = told_yield;
    test_in_place();
    for (k = 0; k < 4; ++k) {
        test_runs_in_place(1, k % 2, 1 + k / 2);
        test_runs_in_place(mib + 77, k % 2, 1 + k / 2);
    }
    for (i = 0; i < sizeof settings / sizeof *settings; ++i) {
        if (pipe_sanitized() && settings[i].chunk == 100) {
            tap_skip(settings[i].name, "compute-sanitizer takes minutes for so many kernels");
            continue;
        }
        test_plan_is_what_runs(&settings[i], 200003);
        test_changes_plan_anew(&settings[i]);
    }
    test_apart();
    test_plan_refusals();
    test_plan_printed();
    test_busy();
    for (k = 0; k < 2; ++k) {
        const int memory = k ? PIPE_PINNED : PIPE_PAGEABLE;
        test_climb(memory, mib, 0);
        test_climb(memory, 3 * mib, 0);
        test_climb_and_graph(memory, mib / 4, mib / 64);
        test_climb_and_graph(memory, 5 * mib, SPIPE_AUTO);
    }
    test_climb(PIPE_PINNED, mib, 1);
    test_no_climb();
    test_climb_and_changes();
    test_replay();
    test_no_replay();
    test_not_replayed(0);
    test_not_replayed(1);
    test_own_stream();
    for (k = 0; k <= 5; ++k) test_several_arrays(k);
    return tap_done();
}
