/*  test_torture_devices.cu -- everything that a run on several GPUs asks of the system fails once:
    each call of the CUDA runtime, each operation on a GPU, each malloc and calloc, each thread, or
    all of these from one on, each of the user's own functions. Each time the first error comes
    back with a sentence that says which GPU failed, and where there is one with stage and chunk,
    and what is called whole is whole. Sinks are called in order, no chunk twice, none after a gap.
    Nothing is left over, the caller's device is current, and the same run is right at once.

    GPUs have threads of their own, so which of them makes the k-th call is a matter of time, and
    whether there is a k-th may be, too: a fault that was not reached is counted apart. What is
    judged holds whoever it hits.

    usage: test_torture_devices [--all] [--case NAME]    without --all every so many-th fault     */
#include "torture_faults.h"

#include "streampipe_devices.h"

#include <map>

enum {
    DEVICES = 3,
    CALLER = 1
}; /* CALLER is current when a run begins, and after it */

enum {
    LIKE_THAT,
    SINK,
    UPLOADED,
    EMPTY,
    SOURCE,
    PLACED /* inputs are positioned sources, outputs positioned sinks */
};

typedef struct devices_case {
    torture_case_t c;
    int num, list[DEVICES], also; /* num 0 = all; also: what torture_scene does not do */
} devices_case_t;

#define CASE(name, shape, schedule, staging, memory, threads)                                      \
    { name, shape, WAY_RUN, schedule, staging, memory, threads, 3, 0, 0 }
static const devices_case_t cases[] = {
    {CASE("pinned", SHAPE_MAP, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 0), 0, {0}, LIKE_THAT},
    {CASE("pinned, two pipelines on one GPU", SHAPE_MAP, SPIPE_SCHEDULE_ENGINES, T_COPY,
          FUZZ_PINNED, 0),
     2,
     {2, 2},
     LIKE_THAT},
    {CASE("pinned, one GPU of a list", SHAPE_MAP, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 0),
     1,
     {2},
     LIKE_THAT},
    {CASE("staged by threads", SHAPE_MAP, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PAGEABLE, 6),
     0,
     {0},
     LIKE_THAT},
    {CASE("staged by the GPUs' own", SHAPE_MANY, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_UNALIGNED, 0),
     2,
     {2, 0},
     LIKE_THAT},
    {CASE("pinned in place", SHAPE_MAP, SPIPE_SCHEDULE_ENGINES, T_REGISTER, FUZZ_PAGEABLE, 1),
     2,
     {0, 2},
     LIKE_THAT},
    {CASE("left to CUDA", SHAPE_MANY, SPIPE_SCHEDULE_ENGINES, T_DIRECT, FUZZ_PAGEABLE, 0),
     0,
     {0},
     LIKE_THAT},
    {CASE("mapped", SHAPE_MAP, SPIPE_SCHEDULE_ZERO_COPY, T_COPY, FUZZ_PAGEABLE, 1),
     2,
     {0, 1},
     LIKE_THAT},
    {CASE("halo", SHAPE_HALO, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 0),
     2,
     {1, 2},
     LIKE_THAT},
    {CASE("in/out and temporary", SHAPE_CHAIN, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 0),
     0,
     {0},
     LIKE_THAT},
    {CASE("in/out, staged", SHAPE_CHAIN, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PAGEABLE, 1),
     2,
     {0, 1},
     LIKE_THAT},
    {CASE("counts from zero, reduced", SHAPE_COUNTS, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED,
          0),
     0,
     {0},
     LIKE_THAT},
    {CASE("counts uploaded, reduced", SHAPE_COUNTS, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PAGEABLE,
          1),
     2,
     {0, 1},
     UPLOADED},
    {CASE("counts of nothing", SHAPE_COUNTS, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 0),
     2,
     {0, 1},
     EMPTY},
    {CASE("source and sink", SHAPE_STREAM, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PAGEABLE, 3),
     0,
     {0},
     LIKE_THAT},
    {CASE("source and sink beside arrays", SHAPE_MIXED, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED,
          0),
     2,
     {1, 0},
     LIKE_THAT},
    {CASE("source and sink, mapped", SHAPE_STREAM, SPIPE_SCHEDULE_ZERO_COPY, T_COPY, FUZZ_PAGEABLE,
          1),
     0,
     {0},
     LIKE_THAT},
    {CASE("source beside arrays, no threads", SHAPE_MIXED, SPIPE_SCHEDULE_ENGINES, T_COPY,
          FUZZ_PAGEABLE, 0),
     0,
     {0},
     LIKE_THAT},
    {CASE("source and array", SHAPE_MAP, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 0),
     2,
     {0, 1},
     SOURCE},
    {CASE("two sources and staged arrays", SHAPE_MANY, SPIPE_SCHEDULE_ENGINES, T_COPY,
          FUZZ_PAGEABLE, 2),
     0,
     {0},
     SOURCE},
    {CASE("counts of a source", SHAPE_COUNTS, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 1),
     0,
     {0},
     SOURCE},
    {CASE("array and sink", SHAPE_MAP, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 2),
     0,
     {0},
     SINK},
    {CASE("arrays and two sinks", SHAPE_MANY, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PAGEABLE, 6),
     0,
     {0},
     SINK},
    {CASE("arrays and two sinks, no threads", SHAPE_MANY, SPIPE_SCHEDULE_ENGINES, T_COPY,
          FUZZ_PINNED, 0),
     2,
     {1, 1},
     SINK},
    {CASE("positioned", SHAPE_MAP, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 6), 0, {0}, PLACED},
    {CASE("positioned with a halo, no threads", SHAPE_HALO, SPIPE_SCHEDULE_ENGINES, T_COPY,
          FUZZ_PINNED, 0),
     2,
     {1, 0},
     PLACED},
    {CASE("several positioned", SHAPE_MANY, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 3),
     2,
     {0, 2},
     PLACED},
    {CASE("positioned, mapped", SHAPE_MAP, SPIPE_SCHEDULE_ZERO_COPY, T_COPY, FUZZ_PINNED, 3),
     0,
     {0},
     PLACED},
    {CASE("counts of a positioned source", SHAPE_COUNTS, SPIPE_SCHEDULE_ENGINES, T_COPY,
          FUZZ_PINNED, 3),
     0,
     {0},
     PLACED},
    {CASE("positioned beside those in order", SHAPE_EITHER, SPIPE_SCHEDULE_ENGINES, T_COPY,
          FUZZ_PAGEABLE, 3),
     0,
     {0},
     LIKE_THAT},
    {CASE("host stage and sink", SHAPE_HOST, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PAGEABLE, 3),
     0,
     {0},
     SINK},
    {CASE("counts beside a sink", SHAPE_COUNTS, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 1),
     2,
     {0, 1},
     SINK},
    {CASE("host stage", SHAPE_HOST, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 3),
     0,
     {0},
     LIKE_THAT},
    {CASE("host stage, no threads", SHAPE_HOST, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PAGEABLE, 0),
     2,
     {0, 2},
     LIKE_THAT},
    {CASE("stages in a graph", SHAPE_DIAMOND, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 0),
     2,
     {0, 1},
     LIKE_THAT},
    {{"every step waited for", SHAPE_MAP, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 0,
      3, 1, 0},
     2,
     {0, 1},
     LIKE_THAT},
    {{"progress told", SHAPE_CHAIN, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 0, 3, 0,
      1},
     0,
     {0},
     LIKE_THAT},
    {{"progress told, staged", SHAPE_MAP, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PAGEABLE, 2,
      3, 0, 1},
     2,
     {0, 1},
     LIKE_THAT},
    {{"progress told, sink", SHAPE_MAP, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PAGEABLE, 3,
      3, 0, 1},
     0,
     {0},
     SINK},
};

enum {
    NUM = (int)(sizeof cases / sizeof *cases)
};

static void make_scene(fuzz_scene_t *s, const devices_case_t *c) {
    int i;
    torture_scene(s, &c->c);
    if (c->also == EMPTY) s->count = s->count_then = 0;
    for (i = 0; i < s->num_buffers; ++i) {
        fuzz_buffer_t *f = &s->buffers[i];
        if (f->kind == SPIPE_SOURCE && !f->positioned) {
            f->before = f->after = 0; /* several GPUs have none */
        }
        if (c->also == PLACED && fuzz_is_array(f)) {
            f->kind = fuzz_goes_in(f) ? SPIPE_SOURCE : SPIPE_SINK;
            f->positioned = 1;
        }
        if (f->kind == SPIPE_OUTPUT && c->also == SINK) f->kind = SPIPE_SINK;
        if (f->kind == SPIPE_INPUT && c->also == SOURCE) f->kind = SPIPE_SOURCE;
        if (f->kind == SPIPE_RESIDENT && c->also == UPLOADED) f->how |= SPIPE_UPLOAD;
    }
}

static int num_of(const devices_case_t *c) { return c->num ? c->num : DEVICES; }

static size_t chunks_of(const fuzz_world_t *w) { return (w->count + CHUNK - 1) / CHUNK; }

/* ---- the user's functions ------------------------------------------------------------------ */
enum {
    STAGES = 0,
    BUFFERS = FUZZ_MAX_STAGES,
    REDUCE = BUFFERS + FUZZ_MAX_BUFFERS,
    PROGRESS
};

static const fault_t *user_fault;       /* its k-th call of this function fails, or NULL */
static int user_function, user_starves; /* and then there is no memory left */
static std::atomic<long> user_calls[PROGRESS + 1];
static std::atomic<int> user_gone; /* a source or a sink has failed: it is not called again */
static fuzz_world_t *world;
static size_t told;

static int user_fails(int function) {
    const long n = ++user_calls[function];
    if (!user_fault || function != user_function) return 0;
    if (n != user_fault->k && !(user_fault->lasts && n > user_fault->k)) return 0;
    ++torture_fired;
    if (user_starves) torture_lasts = torture_malloc_fails = 1;
    return 1;
}

static cudaError_t stage(const spipe_chunk_t *c, void *user) {
    const int number = ((const fuzz_part_t *)user)->number;
    if (!user_fails(STAGES + number)) return fuzz_run_stage(c, user);
    if (user_fault->lasts) return user_fault->error; /* on several GPUs at once */
    world->refused_stage = number;
    world->refused_chunk = c->index;
    return user_fault->error;
}

static int part_fails(const void *user) {
    const int function = BUFFERS + ((const fuzz_part_t *)user)->number;
    FUZZ_CHECK(world, !user_fault || function != user_function || !user_gone,
               "buffer %d: called after it failed", function - BUFFERS);
    return user_gone |= user_fails(function);
}

static cudaError_t source(spipe_part_t *part, void *user) {
    if (part_fails(user)) return user_fault->error;
    return fuzz_source(part, user);
}

static cudaError_t sink(const spipe_part_t *part, void *user) {
    FUZZ_CHECK(world, part->first % CHUNK == 0, "a sink is called at %zu", part->first);
    if (part_fails(user)) return user_fault->error;
    return fuzz_sink(part, user);
}

/* Of a positioned one others may be under way when it fails. */
static cudaError_t source_at(spipe_part_t *part, void *user) {
    if (user_fails(BUFFERS + ((const fuzz_part_t *)user)->number)) return user_fault->error;
    return fuzz_source_at(part, user);
}

static cudaError_t sink_at(const spipe_part_t *part, void *user) {
    if (user_fails(BUFFERS + ((const fuzz_part_t *)user)->number)) return user_fault->error;
    return fuzz_sink_at(part, user);
}

/* Counts are added; all start from what is uploaded, and one start remains. */
static cudaError_t add_counts(void *into, const void *from, size_t bytes, void *user) {
    const fuzz_buffer_t *f = (const fuzz_buffer_t *)user;
    unsigned *a = (unsigned *)into;
    const unsigned *b = (const unsigned *)from;
    size_t i;
    FUZZ_CHECK(world, bytes == f->elem_bytes, "%zu bytes to reduce", bytes);
    if (user_fails(REDUCE)) return user_fault->error;
    for (i = 0; i < bytes / sizeof *a; ++i) {
        a[i] += b[i] - (f->how & SPIPE_UPLOAD ? fuzz_word(f->given, i) : 0);
    }
    return cudaSuccess;
}

static int progress(const spipe_progress_t *p, void *user) {
    FUZZ_CHECK(world,
               p->chunks_done >= told && p->chunks_done <= chunks_of(world) && p->total == COUNT &&
                   p->elements_done <= COUNT && user == &told,
               "%zu chunks done after %zu, %zu elements", p->chunks_done, told, p->elements_done);
    told = p->chunks_done;
    return user_fails(PROGRESS);
}

static void describe(spipe_desc_t *d, const devices_case_t *c, fuzz_world_t *w) {
    int i;
    *d = fuzz_describe(w);
    for (i = 0; i < d->num_stages; ++i) d->stages[i].fn = stage;
    for (i = 0; i < d->num_buffers; ++i) {
        spipe_buffer_desc_t *b = &d->buffers[i];
        if (b->kind == SPIPE_SOURCE) b->source = source;
        if (b->kind == SPIPE_SINK) b->sink = sink;
        if (b->kind == SPIPE_SOURCE_AT) b->source = source_at;
        if (b->kind == SPIPE_SINK_AT) b->sink = sink_at;
        if (b->kind == SPIPE_RESIDENT) spipe_devices_reduce(d, add_counts, &w->scene->buffers[i]);
    }
    if (c->c.progress) d->progress = progress;
    d->progress_user = &told;
    if (c->num)
        spipe_devices_list(d, c->list, c->num);
    else
        spipe_devices_all(d);
}

/* ---- one attempt --------------------------------------------------------------------------- */
/* Faults that several GPUs may take without a word, beside those that one may. */
static int may_pass_here(const devices_case_t *c, const fault_t &f) {
    if (f.sort != FAULT_CALL) return may_pass(f);
    return may_pass(f) ||
           f.what == "cudaEventSynchronize" || /* for a free slot: the streams wait anyway */
           (f.what == "cudaPointerGetAttributes" && c->c.staging == T_REGISTER); /* then staged */
}

/* Whether it has a chunk; what is copied out after the last one has none. */
static int copies(const fault_t &f, const char *text) {
    return !strstr(text, "copying a resident buffer out") && f.sort == FAULT_CALL &&
           (f.what == "cudaMemcpyAsync" || f.what == "cudaMemcpyBatchAsync" ||
            f.what == "cudaLaunchKernelExC");
}

/* Where memory runs out when a stage fails, which of the two comes first is a matter of time. */
static int no_memory(const fault_t &f, const spipe_report_t *r) {
    return f.sort == FAULT_USER && user_starves && r->failure.error == cudaErrorMemoryAllocation;
}

/* Who left is named, and where it happened. */
static void judge_words(const fuzz_world_t *w, const fault_t &f, const spipe_report_t *r) {
    const fuzz_scene_t *s = w->scene;
    const char *text = r->failure.message;
    char chunk[40];
    int i, device = -1, named = 0;
    if (sscanf(text, "device %d: ", &device) == 1) {
        for (i = 0; i < r->num_devices; ++i) {
            named |= r->device_numbers[i] == device && (r->devices_failed & SPIPE_BIT(i));
        }
    }
    FUZZ_CHECK(w, named || !r->devices_failed || r->num_devices == 1, "who failed, %x? %s",
               r->devices_failed, text);
    FUZZ_CHECK(w, !copies(f, text) || strstr(text, "chunk"), "no chunk is named: %s", text);
    if (w->refused_stage < 0 || (f.sort != FAULT_CALL && f.sort != FAULT_USER)) return;
    if (f.lasts || no_memory(f, r)) return; /* then it is the last of several */
    (void)snprintf(chunk, sizeof chunk, "chunk %zu:", w->refused_chunk);
    FUZZ_CHECK(w, strstr(text, s->stages[w->refused_stage].name) && strstr(text, chunk),
               "it was stage %d of chunk %zu: %s", w->refused_stage, w->refused_chunk, text);
}

static void judge_success(const fuzz_world_t *w, const devices_case_t *c, const fault_t &f,
                          const spipe_report_t *r, long fired) {
    const size_t chunks = chunks_of(w);
    FUZZ_CHECK(w, !fired || may_pass_here(c, f), "a fault that nobody heard of");
    FUZZ_CHECK(w, !r->devices_failed && !r->failure.message[0], "devices %x failed, words: %s",
               r->devices_failed, r->failure.message);
    FUZZ_CHECK(w,
               r->failure.error == cudaSuccess && r->failure.stage == -1 &&
                   r->failure.chunk == SPIPE_AUTO && r->num_chunks == chunks &&
                   r->chunks_done == chunks && r->failure.chunks_whole == chunks &&
                   r->count_done == w->count && r->total == w->count,
               "%zu, %zu, %zu of %zu chunks, %zu of %zu elements: %s", r->failure.chunks_whole,
               r->chunks_done, r->num_chunks, chunks, r->count_done, r->total, r->failure.message);
}

static void judge_failure(const fuzz_world_t *w, const fault_t &f, cudaError_t e,
                          const spipe_report_t *r, long fired) {
    const fuzz_scene_t *s = w->scene;
    const spipe_failure_t *why = &r->failure;
    const char *text = why->message;
    const int lacks = f.what == "cudaDeviceGetAttribute" && e == cudaErrorNotSupported;
    const int given = e == f.error || lacks || no_memory(f, r);
    FUZZ_CHECK(w, fired && given, "not the error given: %s", cudaGetErrorName(e));
    FUZZ_CHECK(w, why->error == e && text[0], "no sentence: '%s' (%s)", text,
               cudaGetErrorName(why->error));
    FUZZ_CHECK(w, why->stage >= -1 && why->stage < s->num_stages, "stage %d", why->stage);
    FUZZ_CHECK(w, why->stage < 0 || strstr(text, s->stages[why->stage].name),
               "the stage is not named: %s", text);
    FUZZ_CHECK(w, why->chunk == SPIPE_AUTO || why->chunk <= chunks_of(w), "chunk %zu: %s",
               why->chunk, text);
    FUZZ_CHECK(w, !copies(f, text) || why->chunk != SPIPE_AUTO, "no chunk is named: %s", text);
    judge_words(w, f, r);
    if (f.sort == FAULT_WORK) broken = 1;
}

static void judge(fuzz_world_t *w, const devices_case_t *c, const fault_t &f, cudaError_t e,
                  const spipe_report_t *r, long fired) {
    /* what could not be put back after the run does not make the run undone */
    const int done = e == cudaSuccess || strstr(r->failure.message, "after the run") != NULL;
    size_t sum = 0, whole = r->failure.chunks_whole * CHUNK;
    int i;
    for (i = 0; i < r->num_devices; ++i) sum += r->device_chunks[i];
    FUZZ_CHECK(w,
               (r->num_devices == num_of(c) || (e != cudaSuccess && !r->num_devices)) &&
                   r->devices_failed < SPIPE_BIT(num_of(c)),
               "%d devices, %x failed: %s", r->num_devices, r->devices_failed, r->failure.message);
    FUZZ_CHECK(w, sum == r->chunks_done && r->failure.chunks_whole <= sum && sum <= chunks_of(w),
               "the devices did %zu, all %zu chunks, %zu whole: %s", sum, r->chunks_done,
               r->failure.chunks_whole, r->failure.message);
    if (e == cudaSuccess)
        judge_success(w, c, f, r, fired);
    else
        judge_failure(w, f, e, r, fired);
    FUZZ_CHECK(w, !done || r->failure.chunks_whole == chunks_of(w), "%zu chunks are whole: %s",
               r->failure.chunks_whole, r->failure.message);
    if (whole > w->count) whole = w->count;
    w->redone = r->devices_failed != 0;
    fuzz_snapshot(w);
    for (i = 0; i < w->scene->num_buffers; ++i) {
        /* with one GPU it may have been on its way when the wait for it failed */
        if (w->scene->buffers[i].kind == SPIPE_RESIDENT && !done && num_of(c) == 1) continue;
        fuzz_check_values(w, i, whole, done);
    }
}

/* What the last run asked for: the runtime's functions, memory, threads. */
static std::map<std::string, long> calls_made;
static long mallocs_made, threads_made;

enum {
    MANY = 1000000
};

static cudaError_t run(const spipe_desc_t *d, const fault_t &f, spipe_report_t *r) {
    int i;
    user_fault = f.sort == FAULT_USER ? &f : NULL;
    for (std::atomic<long> &calls : user_calls) calls = 0;
    user_gone = 0;
    told = 0;
    poison(r);
    arm(f);
    if (f.sort == FAULT_USER) torture_lasts = 0; /* of the user's function alone */
    if (f.sort == FAULT_NONE) torture_malloc_fails = torture_thread_fails = MANY;
    const cudaError_t e = spipe_run(d, r);
    calls_made.clear();
    for (i = 0; hostcuda_called((size_t)i); ++i) {
        calls_made[hostcuda_called((size_t)i)] = hostcuda_calls(hostcuda_called((size_t)i));
    }
    mallocs_made = MANY - torture_malloc_fails;
    threads_made = MANY - torture_thread_fails;
    disarm_now();
    return e;
}

static void attempt_one(const devices_case_t *c, const fault_t &f, long *fired) {
    static fuzz_world_t fresh;
    fuzz_scene_t s = fuzz_scene_t();
    fuzz_world_t w(fresh);
    spipe_report_t r;
    spipe_desc_t d;
    int i, device = -1;
    w.scene = &s;
    world = &w;
    make_scene(&s, c);
    describe(&d, c, &w);
    fuzz_start(&w, s.count);
    SPIPE_CHECK(cudaSetDevice(CALLER));
    const cudaError_t e = run(&d, f, &r);
    (void)cudaGetDevice(&device);
    FUZZ_CHECK(&w, device == CALLER || f.what == "cudaSetDevice", "device %d is current", device);
    (void)cudaSetDevice(0);
    judge(&w, c, f, e, &r, torture_fired);
    *fired = disarm();
    for (i = 0; i < s.num_buffers; ++i) {
        if (w.arrays[i].base) (void)fuzz_array_free(&w.arrays[i]);
    }
}

/* ---- all of them --------------------------------------------------------------------------- */
static long num_faults, num_missed, step = 1, turn; /* every step-th, in turn over all cases */

/* One fault, what it leaves, and the same run once more without. 0: it was not reached. */
static int attempt(const devices_case_t *c, const fault_t &f) {
    const fault_t none = {FAULT_NONE, "", 0, cudaSuccess};
    long fired, again;
    what_now = std::string("\n  ") + c->c.name + ": " + sort_names[f.sort] + " " + f.what +
               " number " + std::to_string(f.k) + (f.lasts ? " and all after it" : "");
    fuzz_what = what_now.c_str();
    attempt_one(c, f, &fired);
    check_clean(&c->c, f, fired);
    if (!fired) return 0;
    what_now += ", and once more without";
    fuzz_what = what_now.c_str();
    attempt_one(c, none, &again);
    check_clean(&c->c, none, 0);
    return 1;
}

/* most: as many as there were when nothing failed. */
static long try_all(const devices_case_t *c, fault_t f, long most) {
    long tried = 0;
    for (f.k = 1; f.k <= most; ++f.k) {
        if (turn++ % step != 0) continue;
        const int reached = attempt(c, f);
        tried += reached;
        num_missed += !reached;
    }
    return tried;
}

static long try_user(const devices_case_t *c, const std::vector<long> &made) {
    long tried = 0;
    for (user_function = 0; user_function <= PROGRESS; ++user_function) {
        const long n = made[(size_t)user_function];
        const cudaError_t error =
            user_function == PROGRESS ? SPIPE_STOPPED : cudaErrorOperatingSystem;
        if (user_function >= BUFFERS) {
            const char *name = user_function == REDUCE ? "reduce" : "progress";
            if (user_function < REDUCE) name = "source or sink";
            tried += try_all(c, {FAULT_USER, name, 0, error}, n);
            continue;
        }
        tried += try_all(c, {FAULT_USER, "stage", 0, error}, n);
        tried += try_all(c, {FAULT_USER, "stage", 0, error, 1}, n);
        user_starves = 1;
        tried += try_all(c, {FAULT_USER, "stage, then no memory,", 0, error}, n);
        user_starves = 0;
    }
    user_function = -1;
    return tried;
}

static void torture(const devices_case_t *c) {
    const fault_t none = {FAULT_NONE, "", 0, cudaSuccess};
    const long missed = num_missed;
    long tried[NUM_SORTS] = {0}, fired, all = 0;
    int lasts;
    what_now = std::string("\n  ") + c->c.name + ": nothing fails";
    fuzz_what = what_now.c_str();
    attempt_one(c, none, &fired); /* counts */
    check_clean(&c->c, none, 0);
    std::map<std::string, long> made = calls_made;
    long calls = 0;
    for (const auto &call : made) calls += call.second;
    turn = torture_first_turn(c - cases, calls, step);
    const size_t functions = made.size();
    const std::vector<long> user_made(user_calls, user_calls + PROGRESS + 1);
    const long mallocs = mallocs_made, threads = threads_made;
    for (const auto &call : made) {
        /* how often it polls is a matter of time */
        const long most = call.first == "cudaEventQuery" ? 40 : call.second;
        tried[FAULT_CALL] += try_all(c, {FAULT_CALL, call.first, 0, CALL_ERROR}, most);
    }
#if !defined(__SANITIZE_THREAD__) /* what finds the GPU broken waits for nothing: orders nothing */
    const long copied = made["cudaMemcpyAsync"] + 3 * made["cudaMemcpyBatchAsync"];
    tried[FAULT_WORK] += try_all(c, {FAULT_WORK, "copy", 0, WORK_ERROR}, copied);
    tried[FAULT_WORK] +=
        try_all(c, {FAULT_WORK, "kernel", 0, WORK_ERROR}, made["cudaLaunchKernelExC"]);
    tried[FAULT_WORK] += try_all(c, {FAULT_WORK, "memset", 0, WORK_ERROR}, made["cudaMemsetAsync"]);
#endif
    for (lasts = 0; lasts < 2; ++lasts) {
        tried[FAULT_MALLOC] +=
            try_all(c, {FAULT_MALLOC, "", 0, cudaErrorMemoryAllocation, lasts}, mallocs);
        tried[FAULT_THREAD] += try_all(c, {FAULT_THREAD, "", 0, cudaSuccess, lasts}, threads);
    }
    tried[FAULT_USER] = try_user(c, user_made);
    for (long n : tried) all += n;
    num_faults += all;
#if defined(__SANITIZE_THREAD__) /* few are tried, and how often it polls is a matter of time */
    const long aimed = all + num_missed - missed;
#else
    const long aimed = all;
#endif
    tap_ok(aimed > 0,
           "%s: %ld faults (%ld of calls of %zu functions, %ld on the GPU, %ld mallocs, "
           "%ld threads, %ld of the user's), %ld more not reached",
           c->c.name, all, tried[FAULT_CALL], functions, tried[FAULT_WORK], tried[FAULT_MALLOC],
           tried[FAULT_THREAD], tried[FAULT_USER], num_missed - missed);
}

int main(int argc, char **argv) {
    const char *only = NULL;
    int i;
    step = tap_thorough() ? 12 : (long)tap_every(24, 208);
    for (i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--all") == 0)
            step = 1;
        else if (strcmp(argv[i], "--case") == 0 && i + 1 < argc)
            only = argv[++i];
    }
    last_device = DEVICES - 1;
    SPIPE_CHECK(hostcuda_set_devices(DEVICES));
    SPIPE_CHECK(cudaFree(0));
    begin_counting_threads(DEVICES);
    for (i = 0; i < NUM; ++i) {
        if (!only || strcmp(only, cases[i].c.name) == 0) torture(&cases[i]);
    }
    tap_note("%ld faults in all, and after each of them the same run was right; %ld more were not "
             "reached",
             num_faults, num_missed);
    (void)tap_done();
    fflush(stdout);
    _exit(tap_failed != 0); /* what failed frees kept is no leak of ours */
}
