/*  test_tune.cu -- spipe_tune returns a description that gives the same result and keeps what
    the user fixed; it refuses a description whose runs change what the next run reads. */
#include "pipe_common.h"
#include "streampipe_tools.h"

enum {
    N = 200003
};

typedef struct setting {
    const char *name;
    int memory, once;
    size_t chunk, depth, threads;
    spipe_schedule_t schedule;
    spipe_staging_t staging;
} setting_t;

enum {
#if defined(__SANITIZE_ADDRESS__) /* of 100 elements they are so many that they take 13 s */
    SMALL = 500
#else
    SMALL = 100
#endif
};

static const setting_t settings[] = {
    {"pinned", PIPE_PINNED, 0, SPIPE_AUTO, SPIPE_AUTO, SPIPE_AUTO, SPIPE_SCHEDULE_AUTO,
     SPIPE_STAGING_AUTO},
    {"pinned, touched once", PIPE_PINNED, 1, SPIPE_AUTO, SPIPE_AUTO, SPIPE_AUTO,
     SPIPE_SCHEDULE_AUTO, SPIPE_STAGING_AUTO},
    {"pinned, small chunks", PIPE_PINNED, 0, SMALL, SPIPE_AUTO, SPIPE_AUTO, SPIPE_SCHEDULE_AUTO,
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
    pipe_array_t x, y;
    pipe_mix_args_t args;
    spipe_desc_t d;
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

/* What the user fixed is tuned around, not away. */
static int is_kept(const setting_t *s, const spipe_desc_t *best) {
    return (s->depth == SPIPE_AUTO || best->depth == s->depth) &&
           (s->threads == SPIPE_AUTO || best->threads == s->threads) &&
           (s->schedule == SPIPE_SCHEDULE_AUTO || best->schedule == s->schedule) &&
           (s->chunk == SPIPE_AUTO || best->chunk == s->chunk) &&
           (s->staging == SPIPE_STAGING_AUTO || best->staging == s->staging);
}

static void test_tune(const setting_t *s) {
    work_t w;
    spipe_desc_t best;
    spipe_report_t r;
    begin(&w, s);
    SPIPE_CHECK(spipe_tune(&w.d, &best, &r));
    pipe_poison(w.y);
    SPIPE_CHECK_RUN(&best, NULL);
    tap_ok(is_right(&w) && r.wall_ms > 0.0 && r.chunks_done == r.num_chunks && best.count == N &&
               best.num_buffers == 2 && best.num_stages == 1 && best.chunk != SPIPE_AUTO &&
               is_kept(s, &best),
           "what is tuned gives the same result, and keeps what was fixed: %s (%s)", s->name,
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
    work_t w;
    spipe_desc_t best;
    spipe_report_t r;
    int calls = 0;
    begin(&w, &settings[0]);
    spipe_add_sink(&w.d, no_sink, &calls, 1);
    tap_ok(spipe_tune(&w.d, &best, &r) == cudaErrorInvalidValue && calls == 0 &&
               strstr(r.failure.message, "buffer 2 (sink)"),
           "what a second run would notice is not tuned: %s", r.failure.message);
    w.d = spipe_desc_default();
    tap_ok(spipe_tune(&w.d, &best, &r) == cudaErrorInvalidValue && r.failure.message[0],
           "a bad description is refused in words: %s", r.failure.message);
    tap_ok(spipe_tune(&w.d, NULL, &r) == cudaErrorInvalidValue,
           "there must be a place for the answer");
    end(&w);
}

int main(void) {
    size_t i;
    for (i = 0; i < sizeof settings / sizeof *settings; ++i) test_tune(&settings[i]);
    test_refusals();
    return tap_done();
}
