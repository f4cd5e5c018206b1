/*  test_tune.cu -- spipe_plan tells what a run then does; spipe_tune gives back a description that
    gives the same result. */
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
    if (s->once) spipe_stage_once(&w->d, stage);
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
           plan->num_chunks == run->num_chunks && plan->device_bytes == run->device_bytes &&
           plan->pinned_bytes == run->pinned_bytes && plan->total == run->total &&
           strcmp(plan->why_chunk, run->why_chunk) == 0 &&
           strcmp(plan->why_schedule, run->why_schedule) == 0 &&
           strcmp(plan->why_staging, run->why_staging) == 0;
}

static void test_plan(const setting_t *s) {
    work_t           w;
    spipe_pipeline_t p;
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
    SPIPE_CHECK(spipe_pipeline_run(&p, &run));
    tap_ok(agree(&plan, &run), "or what a kept pipeline does, %s", s->name);
    SPIPE_CHECK(spipe_pipeline_destroy(&p));
    end(&w);
}

/* MiB of a chunk of a kept pipeline that stages so many MiB by so many threads each way. */
static double staged_chunk(size_t mib, size_t threads, size_t *depth) {
    setting_t      s = settings[4];
    work_t         w;
    spipe_report_t plan;
    s.threads = threads;
    s.staging = SPIPE_STAGING_COPY;
    begin(&w, &s);
    w.d.count = mib << 20; /* no byte of which is touched */
    SPIPE_CHECK(spipe_plan(&w.d, 1, &plan));
    end(&w);
    *depth = plan.depth;
    return (double)plan.chunk / 1048576.0;
}
static void test_staging_plan(void) {
    size_t       two, four, six, seven, any;
    const double small = staged_chunk(64, 6, &six), middle = staged_chunk(512, 7, &seven);
    const double large = staged_chunk(2048, 4, &four), few = staged_chunk(64, 2, &two);
    tap_ok(small == 1.0 && middle == 1.5 && large == 2.0 && few == 1.0 &&
               staged_chunk(2, 6, &any) == 0.25,
           "staged chunks grow with the total, and of little there are eight");
    tap_ok(two == 10 && four == 16 && six == 16 && seven == 14,
           "and rings with the threads, as far as the cache holds them");
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
    test_tune(&settings[0]);
    test_tune(&settings[1]);
    test_tune(&settings[5]);
    test_refusals();
    return tap_done();
}
