/*  test_host_at_once.cu -- a host stage that is not ordered has as many calls under way at once as
    there are threads; an ordered one beside it has one, in order, and takes no thread from others
    while it waits; of several calls that fail, the failure names the first chunk, and all before it
    are whole; results are those of a serial loop. */
#include "pipe_common.h"
#include "streampipe_devices.h"

#include <pthread.h>
#include <stdexcept>
#include <string>
#include <sys/time.h>

enum {
    CHUNK = 50,
    CHUNKS = 40,
    N = CHUNK * (CHUNKS - 1) + 7,
    MOST_THREADS = 8,
    NONE = CHUNKS
};

static const spipe_schedule_t schedules[] = {SPIPE_SCHEDULE_ENGINES, SPIPE_SCHEDULE_SERIAL,
                                             SPIPE_SCHEDULE_ZERO_COPY};

enum {
    NUM_SCHEDULES = (int)(sizeof schedules / sizeof *schedules)
};

/* What all host stages of a run share. Whoever waits here waits for what must come, 10 s at most
   where it does not. */
typedef struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int inside, most;          /* calls under way now, and at most */
    int wanted;                /* nobody leaves before so many were inside at once */
    int next, strays;          /* of the ordered stage: whose turn it is; who came out of turn */
    int in_turn, most_in_turn; /* calls of it */
    int entered;               /* the latest chunk that the first stage has entered, + 1 */
    int first_waits_for;       /* the ordered stage's first call waits until so many have */
    int fails[3];              /* chunks that fail; the first two once the one behind has */
    int failed[CHUNKS];
    int throws;
    int given_up; /* what was waited for did not come, so nobody waits any more */
    size_t calls;
} meeting_t;

static meeting_t meeting;

static void meeting_new(int wanted) {
    static int made;
    if (!made) {
        pthread_mutex_init(&meeting.lock, NULL);
        pthread_cond_init(&meeting.changed, NULL);
        made = 1;
    }
    meeting.inside = meeting.most = meeting.next = meeting.strays = meeting.in_turn =
        meeting.most_in_turn = 0;
    meeting.entered = meeting.first_waits_for = meeting.throws = meeting.given_up = 0;
    meeting.wanted = wanted;
    meeting.fails[0] = meeting.fails[1] = meeting.fails[2] = NONE;
    meeting.calls = 0;
    memset(meeting.failed, 0, sizeof meeting.failed);
}

/* Until *value is at least what is wanted; with the lock held. */
static void await(const int *value, int wanted) {
    struct timeval now;
    struct timespec until;
    (void)gettimeofday(&now, NULL);
    until.tv_sec = now.tv_sec + 10;
    until.tv_nsec = now.tv_usec * 1000;
    while (*value < wanted && !meeting.given_up) {
        if (pthread_cond_timedwait(&meeting.changed, &meeting.lock, &until) != 0)
            meeting.given_up = 1;
    }
}

/* Each byte of buffer 1 is changed by its place, so that a chunk at the wrong place shows. */
static void change(const spipe_chunk_t *c, unsigned salt) {
    unsigned char *y = SPIPE_BUF(c, 1, unsigned char);
    size_t i;
    for (i = 0; i < c->count; ++i) y[i] = (unsigned char)(3 * y[i] + salt + (c->first + i) % 11);
}

static unsigned char changed(unsigned char y, size_t at, unsigned salt) {
    return (unsigned char)(3 * y + salt + at % 11);
}

static cudaError_t fail(int chunk) {
    const int behind = chunk == meeting.fails[0] ? meeting.fails[1] : meeting.fails[2];
    if (behind != NONE && behind != chunk) await(&meeting.failed[behind], 1);
    meeting.failed[chunk] = 1;
    pthread_cond_broadcast(&meeting.changed);
    return cudaErrorNotSupported;
}

static cudaError_t together(const spipe_chunk_t *c, void *user) {
    const int chunk = (int)c->index;
    cudaError_t e = cudaSuccess;
    int throws;
    (void)user;
    pthread_mutex_lock(&meeting.lock);
    ++meeting.calls;
    if (meeting.entered < chunk + 1) meeting.entered = chunk + 1;
    if (++meeting.inside > meeting.most) meeting.most = meeting.inside;
    pthread_cond_broadcast(&meeting.changed);
    await(&meeting.most, meeting.wanted);
    if (chunk == meeting.fails[0] || chunk == meeting.fails[1] || chunk == meeting.fails[2])
        e = fail(chunk);
    --meeting.inside;
    throws = meeting.throws;
    pthread_mutex_unlock(&meeting.lock);
    if (e && (throws & (chunk == meeting.fails[0] ? 1 : 2))) {
        throw std::runtime_error("no chunk " + std::to_string(chunk));
    }
    change(c, 5);
    return e;
}

static cudaError_t in_turn(const spipe_chunk_t *c, void *user) {
    (void)user;
    pthread_mutex_lock(&meeting.lock);
    meeting.strays += (int)c->index != meeting.next++;
    if (++meeting.in_turn > meeting.most_in_turn) meeting.most_in_turn = meeting.in_turn;
    if (c->index == 0) await(&meeting.entered, meeting.first_waits_for);
    pthread_mutex_unlock(&meeting.lock);
    change(c, 9);
    pthread_mutex_lock(&meeting.lock);
    --meeting.in_turn;
    pthread_mutex_unlock(&meeting.lock);
    return cudaSuccess;
}

/* ---- Results --------------------------------------------------------------------------------- */
typedef struct world {
    pipe_array_t x, y;
    pipe_mix_args_t mix;
    spipe_desc_t d;
    spipe_report_t r;
    int in_turn; /* 1 = the ordered stage and another unordered one follow */
} world_t;

static void world_new(world_t *w, int memory, int with_in_turn) {
    const pipe_mix_args_t mix = {0, 1, 1};
    w->x = pipe_array_new(N, memory);
    w->y = pipe_array_new(N, memory);
    w->mix = mix;
    w->in_turn = with_in_turn;
    pipe_randomise(w->x);
    pipe_poison(w->y);
    w->d = spipe_desc_default();
    w->d.count = N;
    w->d.chunk = CHUNK;
    spipe_add_input(&w->d, w->x.at, 1);
    spipe_add_output(&w->d, w->y.at, 1);
    spipe_add_stage(&w->d, "mix", pipe_mix_stage, &w->mix);
    spipe_add_host_stage(&w->d, "together", together, NULL, SPIPE_BIT(1), SPIPE_BIT(1));
    if (!with_in_turn) return;
    spipe_stage_ordered(
        &w->d, spipe_add_host_stage(&w->d, "in turn", in_turn, NULL, SPIPE_BIT(1), SPIPE_BIT(1)));
    spipe_add_host_stage(&w->d, "again", together, NULL, SPIPE_BIT(1), SPIPE_BIT(1));
}

static void world_free(world_t *w) {
    pipe_free(&w->x);
    pipe_free(&w->y);
}

static size_t wrong_in(const world_t *w, size_t n) {
    size_t i, wrong = 0;
    for (i = 0; i < n; ++i) {
        unsigned char want = changed(pipe_mix(w->x.at[i], i), i, 5);
        if (w->in_turn) want = changed(changed(want, i, 9), i, 5);
        wrong += w->y.at[i] != want;
    }
    return wrong;
}

/* Threads that a run gets of those it wants. */
static int had(size_t threads) { return pipe_threads() ? (int)threads : 0; }

static void test_at_once(spipe_schedule_t schedule, size_t threads, size_t depth) {
    world_t w;
    int n = had(threads) > 0 ? had(threads) : 1;
    world_new(&w, PIPE_PINNED, 0);
    w.d.schedule = schedule;
    w.d.threads = threads;
    w.d.depth = depth;
    if (depth != SPIPE_AUTO && n > (int)depth) n = (int)depth;
    if (schedule == SPIPE_SCHEDULE_SERIAL && depth == SPIPE_AUTO) n = 1;
    meeting_new(n);
    SPIPE_CHECK_RUN(&w.d, &w.r);
    tap_ok(meeting.most == n && meeting.calls == CHUNKS && wrong_in(&w, N) == 0 &&
               (depth == SPIPE_AUTO || w.r.depth == depth) &&
               w.r.host_threads == (size_t)(had(threads) > 0 ? n : 0),
           "%s, %zu threads, %s%zu slots: %d calls are under way at once",
           spipe_schedule_name(schedule), threads, depth == SPIPE_AUTO ? "chosen " : "", w.r.depth,
           meeting.most);
    world_free(&w);
}

/* All ways to share the threads with an ordered stage. */
static void test_in_turn(spipe_schedule_t schedule, int memory) {
    static const size_t threads[] = {SPIPE_AUTO, 0, 1, 2, 4}, depths[] = {SPIPE_AUTO, 1, 2, 3, 7};
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    const size_t step = 4; /* each number of threads, depth */
#else
    const size_t step = 1;
#endif
    size_t k, wrong = 0, strays = 0;
    int most = 0;
    for (k = 0; k < 25; k += step) {
        world_t w;
        world_new(&w, memory, 1);
        w.d.schedule = schedule;
        w.d.threads = threads[k % 5];
        w.d.depth = depths[k / 5];
        w.d.checked = k % 7 == 3;
        meeting_new(1);
        SPIPE_CHECK_RUN(&w.d, &w.r);
        wrong += wrong_in(&w, N) + (meeting.calls != 2 * CHUNKS);
        strays += (size_t)(meeting.strays + (meeting.next != CHUNKS));
        if (most < meeting.most_in_turn) most = meeting.most_in_turn;
        world_free(&w);
    }
    tap_ok(wrong == 0 && strays == 0 && most == 1,
           "%s, %s: an ordered host stage between others sees chunks in order, one at a time",
           spipe_schedule_name(schedule), pipe_memory_names[memory]);
}

/* With 16 slots for three host stages, the first 11 chunks are begun before the first call of the
   ordered stage is waited for. Were a thread to wait for each turn, none would be left for them. */
static void test_no_thread_waits(void) {
    world_t w;
    world_new(&w, PIPE_PINNED, 1);
    w.d.threads = 4;
    w.d.depth = 16;
    meeting_new(1);
    meeting.first_waits_for = had(4) > 0 ? 11 : 0;
    SPIPE_CHECK_RUN(&w.d, &w.r);
    tap_ok(wrong_in(&w, N) == 0 && meeting.strays == 0 && !meeting.given_up,
           "chunks that wait for their turn keep no thread from other work");
    world_free(&w);
}

static cudaError_t look_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_BUF(c, 0, unsigned char) ? cudaSuccess : cudaErrorUnknown;
}

/* Two that do not wait for each other share the threads. */
static void test_side_by_side(void) {
    world_t w;
    int s;
    world_new(&w, PIPE_PINNED, 0);
    w.d.threads = 6;
    s = spipe_add_host_stage(&w.d, "beside", together, NULL, SPIPE_BIT(0), SPIPE_BIT(0));
    w.d.stages[s].fn = look_stage;
    spipe_stage_after(&w.d, s, NULL);
    meeting_new(had(6) ? 6 : 1);
    SPIPE_CHECK_RUN(&w.d, &w.r);
    tap_ok(wrong_in(&w, N) == 0 && meeting.most == meeting.wanted,
           "two host stages side by side share the threads");
    world_free(&w);
}

static void test_kept(void) {
    world_t w;
    size_t k, wrong = 0;
    spipe_pipeline_t *p;
    world_new(&w, PIPE_PAGEABLE, 1);
    w.d.chunk = SPIPE_AUTO;
    SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
    for (k = 0; k < 30; ++k) {
        const size_t n = k < 20 ? (size_t)N : 60 * k;
        meeting_new(1);
        pipe_poison(w.y);
        if (k >= 20) SPIPE_CHECK(spipe_pipeline_set_count(p, n));
        SPIPE_CHECK(spipe_pipeline_run(p, &w.r));
        wrong += wrong_in(&w, n) + (size_t)meeting.strays;
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    tap_ok(wrong == 0, "a kept pipeline, 30 runs, other lengths: right and in order");
    world_free(&w);
}

/* ---- What is chosen -------------------------------------------------------------------------- */
/* On a machine of 16 CPUs. */
static spipe_plan_t planned(const spipe_desc_t *d, int kept) {
    spipe_priv_request_t r;
    const spipe_priv_setting_t nothing = {0, 0, 0};
    spipe_plan_t plan;
    memset((void *)&r, 0, sizeof r);
    SPIPE_CHECK(spipe_priv_request_begin(&r, d, kept, NULL));
    r.cpus = 16;
    const spipe_priv_work_t w = spipe_priv_request_work(&r);
    spipe_priv_make_plan(&r, &w, &nothing, &plan);
    return plan;
}

static void test_chosen(int kept) {
    spipe_plan_t plan;
    world_t w;
    world_new(&w, PIPE_PINNED, 1);
    plan = planned(&w.d, kept);
    tap_ok(plan.host_threads == (w.x.memory == PIPE_PINNED ? 16 : plan.host_threads) &&
               plan.host_threads >= 8 && plan.depth >= plan.host_threads,
           "%s: of 16 CPUs all run host stages where nothing is staged: %zu threads, %zu slots",
           kept ? "kept" : "one-shot", plan.host_threads, plan.depth);
    w.d.stages[1].ordered = w.d.stages[3].ordered = 1;
    w.d.threads = 5;
    plan = planned(&w.d, kept);
    tap_ok(plan.host_threads == 3, "for three that are ordered there is one each");
    w.d.threads = 0;
    plan = planned(&w.d, kept);
    tap_ok(plan.host_threads == 0, "and none where the calling thread does it all");
    world_free(&w);
    world_new(&w, PIPE_PAGEABLE, 1);
    w.d.staging = SPIPE_STAGING_COPY;
    plan = planned(&w.d, kept);
    tap_ok(plan.host_threads >= 8 && plan.depth >= plan.host_threads,
           "beside %zu and %zu that stage, %zu: half of the CPUs at the least", plan.fill_threads,
           plan.drain_threads, plan.host_threads);
    world_free(&w);
}

/* ---- Failures -------------------------------------------------------------------------------- */

/* Chunks 6, 9 and 11 fail, in the opposite order. Where one thread does all, 6 is the first. */
static void test_fails(spipe_schedule_t schedule, size_t threads, int with_in_turn) {
    const int several = had(threads) >= MOST_THREADS && schedule != SPIPE_SCHEDULE_SERIAL;
    world_t w;
    cudaError_t e;
    world_new(&w, PIPE_PINNED, with_in_turn);
    w.d.schedule = schedule;
    w.d.threads = threads;
    if (several) w.d.depth = 16;
    meeting_new(1);
    meeting.fails[0] = 6;
    if (several) meeting.fails[1] = 9;
    if (several) meeting.fails[2] = with_in_turn ? (int)NONE : 11;
    e = spipe_run(&w.d, &w.r);
    tap_ok(e == cudaErrorNotSupported && w.r.failure.chunk == 6 && w.r.failure.stage == 1 &&
               w.r.failure.chunks_whole == 6 && wrong_in(&w, 6 * CHUNK) == 0 &&
               strstr(w.r.failure.message, "'together' failed at chunk 6:"),
           "%s, %zu threads%s: of several that fail the first chunk is named: %s, %zu whole",
           spipe_schedule_name(schedule), threads, with_in_turn ? ", with an ordered stage" : "",
           w.r.failure.message, w.r.failure.chunks_whole);
    world_free(&w);
}

/* throws: 1 = the first of the chunks that fail, 2 = those behind it. */
static void test_throws(int throws) {
    const int several = had(MOST_THREADS) > 0;
    std::string what = "nothing";
    world_t w;
    world_new(&w, PIPE_PINNED, 0);
    w.d.threads = MOST_THREADS;
    meeting_new(1);
    meeting.throws = throws;
    meeting.fails[0] = 6;
    if (several) meeting.fails[1] = 9;
    if (several) meeting.fails[2] = 11;
    try {
        (void)spipe_run(&w.d, &w.r);
    } catch (const std::exception &x) {
        what = x.what();
    }
    tap_ok(what == (throws & 1 ? "no chunk 6" : "nothing") && w.r.failure.chunk == 6 &&
               w.r.failure.chunks_whole == 6 && wrong_in(&w, 6 * CHUNK) == 0 &&
               (!strstr(w.r.failure.message, "no chunk") || (throws & 1)),
           "what the reported chunk threw leaves the call: %s: %s", what.c_str(),
           w.r.failure.message);
    world_free(&w);
}

/* A stage on the device fails at a chunk behind one that fails later in a host stage. */
static cudaError_t bad_stage(const spipe_chunk_t *c, void *user) {
    const world_t *w = (const world_t *)user;
    pipe_mix_args_t mix = w->mix;
    if (c->index != 8) return pipe_mix_stage(c, &mix);
    pthread_mutex_lock(&meeting.lock);
    meeting.failed[8] = 1;
    pthread_cond_broadcast(&meeting.changed);
    pthread_mutex_unlock(&meeting.lock);
    return spipe_chunk_fail(c, "bad");
}

static cudaError_t last_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return c->stream ? cudaSuccess : cudaErrorInvalidValue;
}

static void test_device_stage(int host_fails) {
    world_t w;
    cudaError_t e;
    const size_t first = host_fails ? 6 : 8;
    world_new(&w, PIPE_PINNED, 0);
    w.d.threads = MOST_THREADS;
    w.d.stages[0].fn = bad_stage;
    w.d.stages[0].user = &w;
    spipe_add_stage(&w.d, "last", last_stage, NULL);
    meeting_new(1);
    if (host_fails) meeting.fails[0] = 6;
    if (host_fails && had(1)) meeting.fails[1] = 8; /* 6 waits until the stage has failed there */
    e = spipe_run(&w.d, &w.r);
    tap_ok(e == (host_fails ? cudaErrorNotSupported : cudaErrorUnknown) &&
               w.r.failure.chunk == first && w.r.failure.chunks_whole == first &&
               w.r.failure.stage == host_fails && wrong_in(&w, first * CHUNK) == 0,
           "a stage on the device failed before, at a later chunk: %s, %zu whole",
           w.r.failure.message, w.r.failure.chunks_whole);
    world_free(&w);
}

/* ---- Several GPUs ---------------------------------------------------------------------------- */
static void test_devices(void) {
    static const int list[2] = {0, 0};
    world_t w;
    world_new(&w, PIPE_PINNED, 0);
    w.d.threads = 6; /* three for each */
    meeting_new(had(6) ? 4 : 1);
    spipe_devices_list(&w.d, list, 2);
    const cudaError_t e = spipe_run(&w.d, &w.r);
    tap_ok(e == cudaSuccess && wrong_in(&w, N) == 0 && meeting.calls == CHUNKS &&
               (!had(6) || meeting.most >= 4),
           "two GPUs: their calls are under way at once: %d", meeting.most);
    world_free(&w);
}

int main(void) {
    static const size_t threads[] = {0, 1, 4, MOST_THREADS};
    size_t s, k;
    for (s = 0; s < NUM_SCHEDULES; ++s) {
        for (k = 0; k < 4; ++k) test_at_once(schedules[s], threads[k], SPIPE_AUTO);
        test_at_once(schedules[s], MOST_THREADS, schedules[s] == SPIPE_SCHEDULE_SERIAL ? 1 : 3);
        test_in_turn(schedules[s], PIPE_PINNED);
        test_in_turn(schedules[s], PIPE_PAGEABLE);
        for (k = 0; k < 8; ++k) test_fails(schedules[s], threads[k / 2], k % 2);
    }
    test_at_once(SPIPE_SCHEDULE_ENGINES, 12, SPIPE_AUTO);
    test_at_once(SPIPE_SCHEDULE_ENGINES, SPIPE_MAX_THREADS, SPIPE_MAX_DEPTH);
    test_no_thread_waits();
    test_side_by_side();
    test_kept();
    test_chosen(0);
    test_chosen(1);
    for (k = 1; k <= 3; ++k) test_throws((int)k);
    test_device_stage(0);
    test_device_stage(1);
    test_devices();
    return tap_done();
}
