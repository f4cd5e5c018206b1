/*  test_stopped.cu -- a run that was stopped or that failed reports exactly what it did,
    whichever thread counts it. */
#include "pipe_common.h"

enum {
    CHUNK = 100,
    CHUNKS = 40,
    N = CHUNK * CHUNKS + 33
};

typedef struct world {
    pipe_array_t x, y;
    pipe_mix_args_t args;
    size_t given, taken; /* elements, at the source and the sink */
    size_t source_fails, sink_fails, stage_fails, stop_at;
    size_t told; /* elements, by the last progress */
} world_t;

static cudaError_t source(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    world_t *w = (world_t *)user;
    const size_t left = N - w->given;
    if (w->given >= w->source_fails) return cudaErrorOperatingSystem;
    *count = left < max_count ? left : max_count;
    memcpy(dst, w->x.at + w->given, *count);
    w->given += *count;
    return cudaSuccess;
}

static cudaError_t sink(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    world_t *w = (world_t *)user;
    if (first >= w->sink_fails) return cudaErrorOperatingSystem;
    memcpy(w->y.at + first, src, count);
    w->taken = first + count;
    return cudaSuccess;
}

static cudaError_t stage(const spipe_chunk_t *c, void *user) {
    world_t *w = (world_t *)user;
    if (c->index == w->stage_fails) return cudaErrorNotSupported;
    return pipe_mix_stage(c, &w->args);
}

static int progress(const spipe_progress_t *p, void *user) {
    world_t *w = (world_t *)user;
    w->told = p->elements_done;
    return p->elements_done >= w->stop_at;
}

enum {
    SOURCES,
    PAGEABLE,
    PINNED,
    NUM_WHATS
};

static const char *const what_names[] = {"source and sink", "pageable arrays", "pinned arrays"};

static spipe_desc_t describe(world_t *w, int what, spipe_schedule_t schedule) {
    spipe_desc_t d = spipe_desc_default();
    d.chunk = CHUNK;
    d.schedule = schedule;
    d.staging = SPIPE_STAGING_COPY;
    d.progress_user = w;
    if (what == SOURCES) {
        spipe_add_source(&d, source, w, 1, SPIPE_IN_ORDER);
        spipe_add_sink(&d, sink, w, 1, SPIPE_IN_ORDER);
    } else {
        d.count = N;
        spipe_add_input(&d, w->x.at, 1);
        spipe_add_output(&d, w->y.at, 1);
    }
    spipe_add_stage(&d, "mix", stage, w);
    return d;
}

static world_t new_world(int what) {
    const int memory = what == PINNED ? PIPE_PINNED : PIPE_PAGEABLE;
    world_t w;
    memset((void *)&w, 0, sizeof w);
    w.x = pipe_array_new(N, memory);
    w.y = pipe_array_new(N, memory);
    w.args.out = 1;
    w.args.elem_bytes = 1;
    w.source_fails = w.sink_fails = w.stage_fails = w.stop_at = SIZE_MAX;
    pipe_randomise(w.x);
    pipe_poison(w.y);
    return w;
}

static void free_world(world_t *w) {
    pipe_free(&w->x);
    pipe_free(&w->y);
}

/* count_done is the elements of the whole chunks, all of which are right. */
static int is_exact(const world_t *w, const spipe_report_t *r) {
    const size_t whole = r->failure.chunks_whole * CHUNK;
    size_t i;
    if (r->chunks_done != r->failure.chunks_whole) return 0;
    if (r->count_done != (whole < N ? whole : (size_t)N)) return 0;
    for (i = 0; i < r->count_done; ++i) {
        if (w->y.at[i] != pipe_mix(w->x.at[i], i)) return 0;
    }
    return pipe_guard_whole(w->y);
}

static void tell(const spipe_report_t *r) {
    tap_note("count_done %zu, chunks_done %zu, chunks_whole %zu: %s", r->count_done, r->chunks_done,
             r->failure.chunks_whole, r->failure.message);
}

static void test_stop(int what, spipe_schedule_t schedule, size_t stop_at) {
    world_t w = new_world(what);
    spipe_desc_t d = describe(&w, what, schedule);
    spipe_report_t r;
    int good;
    d.progress = progress;
    w.stop_at = stop_at;
    const cudaError_t e = spipe_run(&d, &r);
    good = e == SPIPE_STOPPED && is_exact(&w, &r) && r.count_done >= stop_at;
    good &= r.count_done >= w.told && r.count_done < N;
    if (what == SOURCES) good &= w.taken == r.count_done;
    tap_ok(good, "stopped at %zu, %s, %s: what was done is counted", stop_at, what_names[what],
           spipe_schedule_name(schedule));
    if (!good) tell(&r);
    free_world(&w);
}

static void test_stage(int what, spipe_schedule_t schedule, int checked, size_t depth) {
    world_t w = new_world(what);
    spipe_desc_t d = describe(&w, what, schedule);
    spipe_report_t r;
    int good;
    d.checked = checked;
    d.depth = depth;
    w.stage_fails = 17;
    const cudaError_t e = spipe_run(&d, &r);
    good = e == cudaErrorNotSupported && is_exact(&w, &r);
    good &= r.chunks_done == 17;
    if (what == SOURCES) good &= w.taken == r.count_done;
    tap_ok(good, "a stage that fails at chunk 17%s, %s, %s%s: what was done is counted",
           checked ? " (checked)" : "", what_names[what], spipe_schedule_name(schedule),
           depth == SPIPE_AUTO ? ", depth left open" : "");
    if (!good) tell(&r);
    free_world(&w);
}

static void test_ends(spipe_schedule_t schedule) {
    world_t w = new_world(SOURCES);
    spipe_desc_t d = describe(&w, SOURCES, schedule);
    spipe_report_t r;
    int good;
    w.source_fails = 12 * CHUNK;
    cudaError_t e = spipe_run(&d, &r);
    good = e == cudaErrorOperatingSystem && is_exact(&w, &r) && r.chunks_done == 12 &&
           w.taken == r.count_done;
    tap_ok(good, "a source that fails, %s: what the sink took is counted",
           spipe_schedule_name(schedule));
    if (!good) tell(&r);
    free_world(&w);
    w = new_world(SOURCES);
    w.sink_fails = 12 * CHUNK;
    e = spipe_run(&d, &r);
    good = e == cudaErrorOperatingSystem && is_exact(&w, &r) && r.count_done == 12 * CHUNK &&
           w.taken == r.count_done;
    tap_ok(good, "a sink that fails, %s: what it took before is counted",
           spipe_schedule_name(schedule));
    if (!good) tell(&r);
    free_world(&w);
}

/* A kept pipeline counts each run for itself: whole, stopped, whole again. */
static void test_kept(int what) {
    world_t w = new_world(what);
    spipe_desc_t d = describe(&w, what, SPIPE_SCHEDULE_ENGINES);
    spipe_pipeline_t *p;
    spipe_report_t r;
    int k, good = 1;
    d.progress = progress;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (k = 0; k < 5; ++k) {
        const int stopped = k % 2;
        w.given = w.taken = w.told = 0;
        w.stop_at = stopped ? 5 * CHUNK : SIZE_MAX;
        pipe_poison(w.y);
        const cudaError_t e = spipe_pipeline_run(p, &r);
        good &= e == (stopped ? SPIPE_STOPPED : cudaSuccess) && is_exact(&w, &r);
        good &= stopped ? r.count_done >= 5 * CHUNK && r.count_done < N : r.count_done == N;
    }
    tap_ok(good, "a kept pipeline counts each of its runs, %s", what_names[what]);
    if (!good) tell(&r);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    free_world(&w);
}

/* ---- cudaErrorNotReady, which a query leaves ------------------------------------------------- */
enum {
    BY_STAGE,
    BY_HOST_STAGE,
    BY_SOURCE,
    BY_SINK,
    BY_SOURCE_AT,
    BY_SINK_AT,
    BY_WORK,
    NUM_BYS
};

static const char *const by_names[] = {
    "a stage",           "a host stage",         "a source", "a sink", "a positioned source",
    "a positioned sink", "a split source's work"};

static cudaError_t busy_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return c->index == 3 ? cudaErrorNotReady : cudaSuccess;
}

static cudaError_t busy_source(spipe_part_t *part, void *user) {
    world_t *w = (world_t *)user;
    const cudaError_t e = source(part, user);
    return w->given > 5 * CHUNK ? cudaErrorNotReady : e;
}

static cudaError_t busy_sink(const spipe_part_t *part, void *user) {
    const size_t first = part->first;
    (void)user;
    return first == 3 * CHUNK ? cudaErrorNotReady : cudaSuccess;
}

static cudaError_t busy_sink_at(const spipe_part_t *part, void *user) {
    return busy_sink(part, user);
}

static cudaError_t busy_source_at(spipe_part_t *part, void *user) {
    memset(part->data, 1, part->count);
    return busy_sink(part, user);
}

static cudaError_t busy_work(const spipe_part_t *part, const void *tickets, void *user) {
    spipe_part_t own = *part;
    (void)tickets;
    return busy_source_at(&own, user);
}

static void test_not_ready(int by) {
    world_t w = new_world(SOURCES);
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    spipe_chunk_t c;
    spipe_report_t r;
    spipe_failure_t f;
    cudaError_t e, next = cudaSuccess;
    d.chunk = CHUNK;
    d.count = N;
    if (by == BY_SOURCE) spipe_add_source(&d, busy_source, &w, 1, SPIPE_IN_ORDER);
    if (by == BY_SOURCE_AT) spipe_add_source(&d, busy_source_at, &w, 1, SPIPE_ANY_ORDER);
    if (by == BY_WORK) spipe_add_split_source(&d, source, busy_work, &w, 1, 1);
    if (d.num_buffers == 0) spipe_add_input(&d, w.x.at, 1);
    if (by == BY_SINK) spipe_add_sink(&d, busy_sink, &w, 1, SPIPE_IN_ORDER);
    if (by == BY_SINK_AT) spipe_add_sink(&d, busy_sink_at, &w, 1, SPIPE_ANY_ORDER);
    if (d.num_buffers == 1) spipe_add_output(&d, w.y.at, 1);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &w.args);
    if (by == BY_STAGE) spipe_add_stage(&d, "busy", busy_stage, &w);
    if (by == BY_HOST_STAGE) spipe_add_host_stage(&d, "busy", busy_stage, &w, 2, 2);
    e = spipe_run(&d, &r);
    tap_ok(e == cudaErrorNotReady &&
               strstr(r.failure.message, "it returned cudaErrorNotReady, which cudaStreamQuery"),
           "cudaErrorNotReady from %s is told as that, not as a stop: %s", by_names[by],
           r.failure.message);
    if (by != BY_SOURCE && by != BY_SOURCE_AT && by != BY_WORK) {
        free_world(&w);
        return;
    }
    d.num_stages = 0; /* spipe_pipeline_next returns it if chunks are held */
    w.given = 0;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    while (next == cudaSuccess) {
        next = spipe_pipeline_next(p, NULL, &c);
        if (next == cudaSuccess) SPIPE_CHECK(spipe_pipeline_release(p, NULL));
    }
    f = *spipe_pipeline_failure(p);
    tap_ok(next == cudaErrorNotReady && strstr(f.message, "it returned cudaErrorNotReady"),
           "nor does spipe_pipeline_next take it for chunks that are held");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    free_world(&w);
}

/* A stage that asks whether its stream is busy, and goes on. */
static cudaError_t asking_stage(const spipe_chunk_t *c, void *user) {
    const cudaError_t e = pipe_mix_stage(c, user);
    (void)cudaStreamQuery(c->stream);
    return e;
}

static void test_query(int checked) {
    world_t w = new_world(PAGEABLE);
    spipe_desc_t d = describe(&w, PAGEABLE, SPIPE_SCHEDULE_ENGINES);
    spipe_report_t r;
    d.checked = checked;
    d.num_stages = 0;
    spipe_add_stage(&d, "asks", asking_stage, &w.args);
    tap_ok(spipe_run(&d, &r) == cudaSuccess && is_exact(&w, &r) && r.count_done == N,
           "a stage may ask whether its stream is busy%s: %s", checked ? ", in a checked run" : "",
           r.failure.message);
    (void)cudaGetLastError();
    free_world(&w);
}

int main(void) {
    static const spipe_schedule_t schedules[] = {SPIPE_SCHEDULE_ENGINES, SPIPE_SCHEDULE_SERIAL,
                                                 SPIPE_SCHEDULE_ZERO_COPY};
    int s, what;
    for (what = 0; what < NUM_WHATS; ++what) {
        for (s = 0; s < 3; ++s) {
            test_stop(what, schedules[s], 1);
            test_stop(what, schedules[s], 11 * CHUNK);
            test_stage(what, schedules[s], 0, 3);
            test_stage(what, schedules[s], 1, 3);
            test_stage(what, schedules[s], 0, SPIPE_AUTO);
        }
        test_kept(what);
    }
    for (s = 0; s < 3; ++s) test_ends(schedules[s]);
    for (s = 0; s < NUM_BYS; ++s) test_not_ready(s);
    test_query(0);
    test_query(1);
    return tap_done();
}
