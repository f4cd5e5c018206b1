/*  test_tune.cu -- spipe_plan tells what a run then does; spipe_tune gives back a description that
    gives the same result. */
#if defined(__linux__)
#include <sched.h>
#endif
#if defined(CPU_COUNT)
/* The processors that the library counts here: what it plans must not hang on this machine's. */
static int told_cpus = 0; /* 0: those that there are */
static int count_cpus(const cpu_set_t *set) { return told_cpus > 0 ? told_cpus : CPU_COUNT(set); }
#undef CPU_COUNT
#define CPU_COUNT(set) count_cpus(set)
#endif
#include "pipe_common.h"
#include "streampipe_tools.h"

enum { N = 200003 };

typedef struct setting {
    const char      *name;
    int              memory, once;
    size_t           chunk, depth, threads;
    spipe_schedule_t schedule;
    spipe_staging_t  staging;
} setting_t;

static const setting_t settings[] = {
    {"pinned", PIPE_PINNED, 0, SPIPE_AUTO, SPIPE_AUTO, SPIPE_AUTO, SPIPE_SCHEDULE_AUTO,
     SPIPE_STAGING_AUTO},
    {"pinned, touched once", PIPE_PINNED, 1, SPIPE_AUTO, SPIPE_AUTO, SPIPE_AUTO,
     SPIPE_SCHEDULE_AUTO, SPIPE_STAGING_AUTO},
    {"pinned, small chunks", PIPE_PINNED, 0, 100, SPIPE_AUTO, SPIPE_AUTO, SPIPE_SCHEDULE_AUTO,
     SPIPE_STAGING_AUTO},
    {"pinned, depth-first", PIPE_PINNED, 0, 5000, 3, SPIPE_AUTO, SPIPE_DEPTH_FIRST,
     SPIPE_STAGING_AUTO},
    {"pageable", PIPE_PAGEABLE, 0, SPIPE_AUTO, SPIPE_AUTO, SPIPE_AUTO, SPIPE_SCHEDULE_AUTO,
     SPIPE_STAGING_AUTO},
    {"pageable, staged", PIPE_PAGEABLE, 0, 5000, SPIPE_AUTO, 2, SPIPE_SCHEDULE_AUTO,
     SPIPE_STAGING_COPY},
    {"pageable, fewer slots than threads", PIPE_PAGEABLE, 0, 5000, 3, 8, SPIPE_SCHEDULE_AUTO,
     SPIPE_STAGING_COPY},
    {"pageable, pinned in place", PIPE_PAGEABLE, 0, 5000, SPIPE_AUTO, SPIPE_AUTO,
     SPIPE_SCHEDULE_AUTO, SPIPE_STAGING_REGISTER},
};

typedef struct work {
    pipe_array_t    x, y;
    pipe_mix_args_t args;
    spipe_desc_t    d;
} work_t;

static void begin(work_t *w, const setting_t *s) {
    int stage;
    w->x = pipe_array_new(N, s->memory);
    w->y = pipe_array_new(N, s->memory);
    w->args.in = 0;
    w->args.out = 1;
    w->args.elem_bytes = 1;
    w->d = spipe_desc_default();
    w->d.count = N;
    w->d.chunk = s->chunk;
    w->d.depth = s->depth;
    w->d.threads = s->threads;
    w->d.schedule = s->schedule;
    w->d.staging = s->staging;
    spipe_add_input(&w->d, w->x.at, 1);
    spipe_add_output(&w->d, w->y.at, 1);
    stage = spipe_add_stage(&w->d, "mix", pipe_mix_stage, &w->args);
    if (s->once) spipe_stage_elementwise(&w->d, stage);
    pipe_randomise(w->x);
    pipe_poison(w->y);
}

static void end(work_t *w) {
    pipe_free(&w->x);
    pipe_free(&w->y);
}

static int is_right(const work_t *w) {
    size_t i, wrong = !pipe_guard_whole(w->y);
    for (i = 0; i < N; ++i) wrong += w->y.at[i] != pipe_mix(w->x.at[i], i);
    return wrong == 0;
}

/* The plan and the run it was made for agree on everything that is decided before. */
static int agree(const spipe_report_t *plan, const spipe_report_t *run) {
    return plan->chunk == run->chunk && plan->depth == run->depth &&
           plan->schedule == run->schedule && plan->staged == run->staged &&
           plan->fill_threads == run->fill_threads && plan->drain_threads == run->drain_threads &&
           plan->num_chunks == run->num_chunks && plan->device_bytes == run->device_bytes &&
           plan->pinned_bytes == run->pinned_bytes && plan->total == run->total &&
           strcmp(plan->why_chunk, run->why_chunk) == 0 &&
           strcmp(plan->why_schedule, run->why_schedule) == 0 &&
           strcmp(plan->why_staging, run->why_staging) == 0;
}

static void test_plan(const setting_t *s) {
    work_t           w;
    spipe_pipeline_t *p;
    spipe_report_t   plan, run;
    int              pinned = -1;
    begin(&w, s);
    SPIPE_CHECK(spipe_plan(&w.d, 0, &plan));
    SPIPE_CHECK(spipe_is_pinned(w.x.at, N, &pinned));
    tap_ok(plan.chunks_done == 0 && pinned == (s->memory == PIPE_PINNED) && w.y.at[0] == 0xA5,
           "a plan touches nothing, %s", s->name);
    SPIPE_CHECK_RUN(&w.d, &run);
    tap_ok(agree(&plan, &run) && is_right(&w), "a plan is what spipe_run does, %s: %s; %s; %s",
           s->name, plan.why_chunk, plan.why_schedule, plan.why_staging);
    SPIPE_CHECK(spipe_plan(&w.d, 1, &plan));
    SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
    SPIPE_CHECK(spipe_pipeline_run(p, &run));
    tap_ok(agree(&plan, &run), "or what a kept pipeline does, %s", s->name);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    end(&w);
}

/* How so many MiB of pageable memory are planned: in_bytes an element, of which one comes out; or
   LONE, one that only goes in. */
enum { LONE = 0 };
static spipe_report_t plan_of(size_t mib, size_t threads, spipe_staging_t staging, int kept,
                              size_t in_bytes) {
    setting_t      s = settings[4];
    work_t         w;
    spipe_report_t plan;
    s.threads = threads;
    s.staging = staging;
    begin(&w, &s);
    if (in_bytes == LONE) in_bytes = w.d.num_buffers = 1;
    w.d.count = (mib << 20) / in_bytes; /* no byte of which is touched */
    w.d.buffers[0].elem_bytes = in_bytes;
    SPIPE_CHECK(spipe_plan(&w.d, kept, &plan));
    end(&w);
    return plan;
}

/* MiB of the input in a chunk of a run that stages. */
static double staged_chunk(size_t mib, size_t threads, int kept, size_t in_bytes) {
    const spipe_report_t plan = plan_of(mib, threads, SPIPE_STAGING_COPY, kept, in_bytes);
    return (double)(plan.chunk * (in_bytes == LONE ? 1 : in_bytes)) / 1048576.0;
}

/* Chunks begin where the array is as aligned as at its beginning: 32 elements. */
static int is_about(double mib, double wanted) {
    return mib <= wanted && mib > wanted - 0.01;
}

static size_t staged_slots(size_t mib, size_t threads, int kept) {
    return plan_of(mib, threads, SPIPE_STAGING_COPY, kept, 1).depth;
}

static void test_staging_plan(void) {
    tap_ok(staged_chunk(64, 6, 1, 1) == 1.0 && staged_chunk(512, 7, 1, 1) == 1.5 &&
               staged_chunk(2048, 4, 1, 1) == 2.0 && staged_chunk(64, 2, 1, 1) == 1.0 &&
               staged_chunk(2, 6, 1, 1) == 0.25,
           "staged chunks grow with the total, and of little there are eight");
    tap_ok(staged_slots(64, 2, 1) == 10 && staged_slots(2048, 4, 1) == 16 &&
               staged_slots(64, 6, 1) == 16 && staged_slots(512, 7, 1) == 14,
           "and rings with the threads, as far as the cache holds them");
    tap_ok(is_about(staged_chunk(512, 7, 1, 3), 2.25) && is_about(staged_chunk(64, 6, 1, 2), 1.5) &&
               is_about(staged_chunk(32, 6, 1, 3), 1.0) && staged_chunk(64, 6, 1, LONE) == 1.0 &&
               staged_chunk(512, 7, 1, LONE) == 3.0,
           "of much, chunks are longer where half as much comes out, or less");
    tap_ok(is_about(staged_chunk(512, 7, 0, 3), 2.25) && is_about(staged_chunk(64, 4, 0, 3), 1.5) &&
               staged_chunk(512, 7, 0, LONE) == 1.5 && staged_chunk(64, 4, 0, LONE) == 1.0,
           "in a single run too, but not where nothing comes out");
    tap_ok(staged_chunk(16, 2, 0, 1) == 0.375 && staged_chunk(24, 3, 0, 1) == 0.5 &&
               staged_chunk(64, 4, 0, 1) == 1.0 && staged_chunk(256, 5, 0, 1) == 1.5 &&
               staged_chunk(2048, 7, 0, 1) == 2.0,
           "a single run has smaller ones, which are sooner pinned");
    tap_ok(staged_slots(16, 2, 0) == 6 && staged_slots(64, 4, 0) == 8 &&
               staged_slots(256, 5, 0) == 10 && staged_slots(512, 6, 0) == 12 &&
               staged_slots(2048, 7, 0) == 12,
           "and fewer slots");
}

/* The library's own number of threads each way shows in the slots of a single run: one or two for
   each thread, and four. */
static void test_threads_of_a_run(void) {
#if defined(CPU_COUNT)
    told_cpus = 16;
    tap_ok(staged_slots(12, SPIPE_AUTO, 0) == 6 && staged_slots(24, SPIPE_AUTO, 0) == 8 &&
               staged_slots(149, SPIPE_AUTO, 0) == 8 && staged_slots(150, SPIPE_AUTO, 0) == 10 &&
               staged_slots(399, SPIPE_AUTO, 0) == 10 && staged_slots(400, SPIPE_AUTO, 0) == 12,
           "a single run takes more threads for more bytes, as starting them takes time");
    told_cpus = 4;
    tap_ok(staged_slots(24, SPIPE_AUTO, 0) == 6 && staged_slots(400, SPIPE_AUTO, 0) == 6,
           "and no more than there are processors for");
    told_cpus = 0;
#else
    tap_skip("a single run takes more threads for more bytes", "processors cannot be told");
#endif
}

/* "7/7": threads that fill and that drain. */
static int are(const char *fill_and_drain, size_t mib, size_t threads, int kept, size_t in_bytes) {
    const spipe_report_t plan = plan_of(mib, threads, SPIPE_STAGING_COPY, kept, in_bytes);
    char                 is[32];
    snprintf(is, sizeof is, "%zu/%zu", plan.fill_threads, plan.drain_threads);
    if (strcmp(is, fill_and_drain) == 0) return 1;
    tap_note("%zu MiB, %zu bytes in: %s, not %s", mib, in_bytes, is, fill_and_drain);
    return 0;
}

static void test_sharing(void) {
    tap_ok(are("7/7", 512, 7, 1, 1) && are("9/5", 512, 7, 1, 2) && are("9/5", 512, 7, 0, 3) &&
               are("8/4", 64, 6, 1, 3) && are("2/2", 64, 2, 1, 3) && are("0/0", 64, 0, 1, 3),
           "where twice as much goes in, a third of the threads that would drain fill");
#if defined(CPU_COUNT)
    told_cpus = 16;
    tap_ok(are("7/7", 512, SPIPE_AUTO, 1, 1) && are("6/6", 64, SPIPE_AUTO, 1, 1) &&
               are("7/0", 512, SPIPE_AUTO, 1, LONE) && are("6/0", 64, SPIPE_AUTO, 1, LONE) &&
               are("8/4", 512, SPIPE_AUTO, 1, 2) && are("8/4", 512, SPIPE_AUTO, 0, 3),
           "by itself the library takes up to seven each way, six if one has half as much to do");
    told_cpus = 8;
    tap_ok(are("4/4", 512, SPIPE_AUTO, 1, 1) && are("6/0", 512, SPIPE_AUTO, 1, LONE) &&
               are("4/0", 64, SPIPE_AUTO, 0, LONE),
           "half of the processors each, or three quarters of them where there is one way");
    told_cpus = 0;
#else
    tap_skip("the library's own threads each way", "processors cannot be told");
    tap_skip("half of the processors each, or three quarters", "processors cannot be told");
#endif
}

/* A single run of little pageable memory in so many chunks of the user's. */
static spipe_report_t in_chunks_of(size_t num) {
    setting_t      s = settings[4];
    work_t         w;
    spipe_report_t plan;
    s.chunk = N / num;
    s.staging = SPIPE_STAGING_AUTO;
    begin(&w, &s);
    SPIPE_CHECK(spipe_plan(&w.d, 0, &plan));
    end(&w);
    return plan;
}

static void test_staging_choice(void) {
    const spipe_staging_t by_itself = SPIPE_STAGING_AUTO, direct = SPIPE_STAGING_DIRECT;
    tap_ok(strstr(plan_of(4, 2, by_itself, 0, 1).why_staging, "left to CUDA") &&
               strstr(plan_of(4, 2, by_itself, 0, 1).why_schedule, "one chunk") &&
               !plan_of(11, 2, by_itself, 0, 1).staged && plan_of(12, 2, by_itself, 0, 1).staged,
           "a single run leaves little to CUDA and stages from 12 MiB on");
    tap_ok(plan_of(1, 2, by_itself, 1, 1).staged && plan_of(12, 2, by_itself, 1, 1).staged,
           "a kept pipeline stages");
    tap_ok(plan_of(4, 2, direct, 0, 1).num_chunks == 1 &&
               strstr(plan_of(4, 2, direct, 0, 1).why_schedule, "one chunk") &&
               strcmp(plan_of(4, 2, direct, 0, 1).why_staging, "as asked") == 0 &&
               plan_of(64, 2, direct, 0, 1).num_chunks > 1 &&
               strstr(plan_of(64, 2, direct, 0, 1).why_schedule, "little overlaps"),
           "what is to be left to CUDA is as well; of much, its copies block between chunks");
    tap_ok(strstr(plan_of(64, 2, SPIPE_STAGING_COPY, 0, 1).why_schedule, "work at once") &&
               strstr(in_chunks_of(1).why_schedule, "one chunk") &&
               strstr(in_chunks_of(2).why_schedule, "little overlaps"),
           "a report says that all work at once only where they can");
}

static void test_tune(const setting_t *s) {
    work_t         w;
    spipe_desc_t   best;
    spipe_report_t r;
    begin(&w, s);
    SPIPE_CHECK(spipe_tune(&w.d, &best, &r));
    pipe_poison(w.y);
    SPIPE_CHECK_RUN(&best, NULL);
    tap_ok(is_right(&w) && r.wall_ms > 0.0 && r.chunks_done == r.num_chunks &&
               best.count == N && best.num_buffers == 2 && best.num_stages == 1,
           "what is tuned gives the same result, %s (%s)", s->name,
           spipe_schedule_name(best.schedule));
    end(&w);
}

static cudaError_t no_sink(const void *src, size_t count, size_t first, void *user) {
    (void)src;
    (void)count;
    (void)first;
    ++*(int *)user;
    return cudaSuccess;
}

static void test_refusals(void) {
    work_t         w;
    spipe_desc_t   best;
    spipe_report_t r;
    int            calls = 0;
    begin(&w, &settings[0]);
    spipe_add_sink(&w.d, no_sink, &calls, 1);
    tap_ok(spipe_tune(&w.d, &best, &r) == cudaErrorInvalidValue && calls == 0 &&
               strstr(r.failure.message, "buffer 2 (sink)"),
           "what a second run would notice is not tuned: %s", r.failure.message);
    w.d = spipe_desc_default();
    tap_ok(spipe_plan(&w.d, 0, &r) == cudaErrorInvalidValue && r.failure.message[0] &&
               spipe_tune(&w.d, &best, &r) == cudaErrorInvalidValue && r.failure.message[0],
           "a bad description is refused in words: %s", r.failure.message);
    tap_ok(spipe_plan(&w.d, 0, NULL) == cudaErrorInvalidValue &&
               spipe_tune(&w.d, NULL, &r) == cudaErrorInvalidValue,
           "there must be a place for the answer");
    end(&w);
}

int main(void) {
    size_t i;
    for (i = 0; i < sizeof settings / sizeof *settings; ++i) test_plan(&settings[i]);
    test_staging_plan();
    test_threads_of_a_run();
    test_sharing();
    test_staging_choice();
    test_tune(&settings[0]);
    test_tune(&settings[1]);
    test_tune(&settings[5]);
    test_refusals();
    return tap_done();
}
