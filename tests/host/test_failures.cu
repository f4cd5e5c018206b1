/*  test_failures.cu -- each CUDA call that a run makes fails once: the error comes back, nothing
    leaks, what is called whole is whole, and the same description runs right afterwards. */
#include "hostcuda.h"
#include "pipe_common.h"

#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
/* A stream whose destroying was made to fail keeps its thread: that is hostcuda's, and asked for.
 */
extern "C" const char *__tsan_default_options() { return "report_thread_leaks=0"; }
#endif

enum {
    N = 1500,
    CHUNK = 200
};

typedef struct world {
    pipe_array_t x, y;
    pipe_mix_args_t args;
    size_t given, taken;
} world_t;

static cudaError_t source(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    world_t *w = (world_t *)user;
    const size_t left = w->x.bytes - w->given;
    *count = left < max_count ? left : max_count;
    memcpy(dst, w->x.at + w->given, *count);
    w->given += *count;
    return cudaSuccess;
}

static cudaError_t sink(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    world_t *w = (world_t *)user;
    memcpy(w->y.at + first, src, count);
    w->taken += count;
    return cudaSuccess;
}

static cudaError_t host_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return c->data[1] ? cudaSuccess : cudaErrorInvalidValue;
}

static spipe_desc_t describe(world_t *w, int what) {
    spipe_desc_t d = spipe_desc_default();
    d.chunk = CHUNK;
    d.staging = SPIPE_STAGING_COPY;
    d.threads = what % 2 ? 2 : 0;
    if (what == 2) {
        spipe_add_source(&d, source, w, 1, SPIPE_IN_ORDER);
        spipe_add_sink(&d, sink, w, 1, SPIPE_IN_ORDER);
    } else {
        d.count = w->x.bytes;
        spipe_add_input(&d, w->x.at, 1);
        spipe_add_output(&d, w->y.at, 1);
        if (what == 3) spipe_add_resident(&d, NULL, 64, SPIPE_ZERO);
    }
    spipe_add_stage(&d, "mix", pipe_mix_stage, &w->args);
    if (what == 3) spipe_add_host_stage(&d, "host", host_stage, NULL, SPIPE_BIT(1), SPIPE_BIT(1));
    if (what == 4) d.schedule = SPIPE_SCHEDULE_ZERO_COPY;
    if (what == 5) d.depth = 3;
    if (what == 6) d.staging = SPIPE_STAGING_REGISTER;
    return d;
}

/* Right up to here: 1; when whole: of everything. */
static int right(const world_t *w, size_t bytes) {
    size_t i;
    for (i = 0; i < bytes; ++i) {
        if (w->y.at[i] != pipe_mix(w->x.at[i], i)) return 0;
    }
    return 1;
}

static void start(world_t *w) {
    w->given = w->taken = 0;
    pipe_poison(w->y);
}

/* What is alive; a stream that was destroyed is gone when its last work has ended. */
static int num_alive(void) {
    (void)cudaDeviceSynchronize();
    return hostcuda_leaks(NULL);
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum {
    STEP = 5
}; /* dear there, and tests/torture has its share, too */
#else
enum {
    STEP = 1
};
#endif
static void test_runs(int what, const char *name, int memory) {
    world_t w = {pipe_array_new(N, memory), pipe_array_new(N, memory), {0, 1, 1}, 0, 0};
    long k, tried = 0, kept = 0;
    int good = 1, fired = 1;
    pipe_randomise(w.x);
    for (k = 1; fired && good; k += STEP) {
        const spipe_desc_t d = describe(&w, what);
        spipe_report_t r;
        const int alive = num_alive();
        start(&w);
        hostcuda_fail_clear();
        hostcuda_fail(NULL, k, cudaErrorLaunchOutOfResources);
        const cudaError_t e = spipe_run(&d, &r);
        fired = hostcuda_fail_fired() > 0;
        hostcuda_fail_clear();
        (void)cudaGetLastError();
        tried += fired;
        /* a run that copes with a failed call must be whole; one that does not must say so */
        if (e == cudaSuccess)
            good &= right(&w, N);
        else
            good &= r.failure.message[0] != 0;
        if (e != cudaSuccess) {
            const size_t whole = r.failure.chunks_whole * CHUNK;
            good &= right(&w, whole < w.y.bytes ? whole : w.y.bytes);
        }
        /* a failed cudaFree or destroy keeps its one thing: all else must be gone */
        const int stuck = e != cudaSuccess && strstr(r.failure.message, "freeing") != NULL;
        const int more = num_alive() - alive;
        good &= more <= 0 || (more == 1 && stuck); /* fewer: what was late to go */
        kept += more;
        if (!good) {
            tap_note("call %ld: %s: %s; %d alive, %d before", k, cudaGetErrorName(e),
                     r.failure.message, hostcuda_leaks(NULL), alive);
        }
        start(&w);
        const cudaError_t again = spipe_run(&d, &r);
        const int whole = right(&w, N);
        if (again != cudaSuccess || !whole) {
            tap_note("the run after call %ld: %s, %s: %s", k, whole ? "right" : "wrong",
                     cudaGetErrorName(again), r.failure.message);
        }
        good &= again == cudaSuccess && whole;
    }
    if (what == 6) { /* what a failed call left pinned would be pinned in the next array, too */
        (void)cudaHostUnregister(w.x.at);
        (void)cudaHostUnregister(w.y.at);
        (void)cudaGetLastError();
    }
    if (tried <= 20 / STEP) tap_note("call %ld was %s", k - STEP, fired ? "failed" : "not reached");
    tap_ok(good && tried > 20 / STEP,
           "%s (%s): %ld calls failed one by one (%ld of them frees that kept theirs), none leaked "
           "or lied",
           name, pipe_memory_names[memory], tried, kept);
    pipe_free(&w.x);
    pipe_free(&w.y);
}

/* Slots that CUDA does not unpin are not given back to malloc: no new array may be pinned. */
static void test_left_pinned(void) {
    enum {
        ARRAYS = 200
    };

    world_t w = {
        pipe_array_new(N, PIPE_PAGEABLE), pipe_array_new(N, PIPE_PAGEABLE), {0, 1, 1}, 0, 0};
    const spipe_desc_t d = describe(&w, 0);
    void *arrays[ARRAYS];
    spipe_report_t r;
    int k, pinned, num_pinned = 0;
    hostcuda_fail("cudaHostUnregister", 1, cudaErrorInvalidValue);
    const cudaError_t e = spipe_run(&d, &r);
    const int fired = hostcuda_fail_fired() > 0;
    hostcuda_fail_clear();
    (void)cudaGetLastError();
    for (k = 0; k < ARRAYS; ++k) {
        arrays[k] = malloc(r.pinned_bytes);
        if (!arrays[k]) exit(99);
        for (size_t at = 0; at < r.pinned_bytes; at += 512) {
            SPIPE_CHECK(spipe_is_pinned((char *)arrays[k] + at, 1, &pinned));
            num_pinned += pinned;
        }
    }
    for (k = 0; k < ARRAYS; ++k) free(arrays[k]);
    tap_ok(fired && e != cudaSuccess && r.pinned_bytes > 0 && num_pinned == 0,
           "slots of %zu bytes that are not unpinned are not used again", r.pinned_bytes);
    pipe_free(&w.x);
    pipe_free(&w.y);
}

/* Without a plan there is nothing to tell of but why. */
static void test_plans(void) {
    world_t w = {
        pipe_array_new(N, PIPE_PAGEABLE), pipe_array_new(N, PIPE_PAGEABLE), {0, 1, 1}, 0, 0};
    const spipe_desc_t d = describe(&w, 6);
    long k, tried = 0;
    int good = 1, fired = 1;
    for (k = 1; fired && good; ++k) {
        spipe_plan_t plan, none;
        spipe_failure_t f;
        memset(&plan, 0xEE, sizeof plan);
        memset(&none, 0, sizeof none);
        hostcuda_fail(NULL, k, cudaErrorLaunchOutOfResources);
        const cudaError_t e = spipe_plan(&d, (int)(k % 2), &plan, &f);
        fired = hostcuda_fail_fired() > 0;
        hostcuda_fail_clear();
        (void)cudaGetLastError();
        tried += e != cudaSuccess;
        good &= e == f.error;
        if (e == cudaSuccess)
            good &= plan.depth <= SPIPE_MAX_DEPTH && plan.why_staging != NULL;
        else
            good &= f.message[0] && memcmp(&plan, &none, sizeof plan) == 0;
    }
    tap_ok(good && tried > 2, "a plan that fails, %ld calls one by one, tells why and nothing else",
           tried);
    pipe_free(&w.x);
    pipe_free(&w.y);
}

/* A longer whole that there is little room for. */
static void test_no_room(void) {
    world_t w = {
        pipe_array_new(8 * N, PIPE_PINNED), pipe_array_new(8 * N, PIPE_PINNED), {0, 1, 1}, 0, 0};
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    cudaError_t e;
    size_t left = 0, total = 0;
    d.count = N;
    spipe_add_input(&d, w.x.at, 1);
    spipe_add_output(&d, w.y.at, 1);
    spipe_add_temp(&d, (size_t)1 << 10); /* so that more elements need more memory */
    spipe_add_stage(&d, "mix", pipe_mix_stage, &w.args);
    pipe_randomise(w.x);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(cudaMemGetInfo(&left, &total));
    SPIPE_CHECK(hostcuda_set_memory(total - left + ((size_t)2 << 20)));
    e = spipe_pipeline_set_count(p, 8 * N);
    start(&w);
    tap_ok(e == cudaSuccess && spipe_pipeline_run(p, NULL) == cudaSuccess &&
               right(&w, (size_t)8 * N) && spipe_pipeline_plan(p)->chunk < 8 * N,
           "a longer whole that there is little room for takes smaller chunks");
    SPIPE_CHECK(hostcuda_set_memory(total));
    e = spipe_pipeline_set_count(p, N);
    start(&w);
    tap_ok(e == cudaSuccess && spipe_pipeline_run(p, NULL) == cudaSuccess && right(&w, N) &&
               w.y.at[N] == 0xA5,
           "and a shorter one runs in what there is");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    pipe_free(&w.x);
    pipe_free(&w.y);
}

/* ---- Errors of the GPU ----------------------------------------------------------------------- */

enum {
    LONG = 60 * CHUNK,
    BAD = 37 /* chunk */
};

/* Whether a failure says the truth of an error in chunk BAD: that chunk, or chunks with it. */
static int names(const spipe_failure_t *f, int checked, int stage) {
    const char *range = strstr(f->message, "in one of the chunks ");
    size_t from = 0, to = 0;
    if (checked) return f->chunk == BAD && f->stage == stage;
    if (!range || sscanf(range, "in one of the chunks %zu to %zu", &from, &to) != 2) return 0;
    return from <= BAD && BAD <= to && f->chunk == from && f->stage == -1 &&
           strstr(f->message, "a checked run tells which") != NULL;
}

/* A kernel or a copy of chunk BAD fails on the GPU. The error comes back from a synchronisation or,
   where prompt, from whatever call is next: what is said of it must be true in both cases. */
static void test_gpu_error(int what, int memory, const char *op, int prompt, int checked) {
    static const char *const names_of[] = {"arrays",         "arrays, threads", "source and sink",
                                           "host stage",     "zero-copy",       "breadth-first",
                                           "pinned in place"};
    world_t w = {pipe_array_new(LONG, memory), pipe_array_new(LONG, memory), {0, 1, 1}, 0, 0};
    spipe_desc_t d = describe(&w, what);
    spipe_report_t r;
    cudaError_t e;
    const long guards = SPIPE_PRIV_ASAN ? 0 : 8;
    const long copies = checked ? 2 + 2 + guards : 2;
    int whole;
    size_t behind = 0;
    pipe_randomise(w.x);
    start(&w);
    d.checked = checked;
    if (what == 5) d.depth = 4;
    if (strcmp(op, "copy") == 0) d.depth = 4; /* or one copy might carry several chunks */
    hostcuda_set_prompt_errors(prompt);
    /* Arrays, sources and sinks: a copy in and a copy out of each chunk, and in a checked run one
       of the output before the stage and after it, and of each of four guards. */
    hostcuda_fail_async(op, strcmp(op, "copy") == 0 ? copies * BAD + 1 : BAD + 1,
                        cudaErrorIllegalAddress);
    e = spipe_run(&d, &r);
    hostcuda_fail_clear();
    hostcuda_set_prompt_errors(0);
    /* A checked run waits for each step of a chunk; what follows a host stage is issued up to depth
       chunks later. Else how many were seen whole before the error shows is chance;
       tests/test_chunks_whole.cu holds the GPU back until it is not. */
    whole = r.failure.chunks_whole <= BAD && right(&w, r.failure.chunks_whole * CHUNK);
    if (what == 3) behind = r.depth;
    if (checked) whole &= r.failure.chunks_whole + behind >= BAD;
    const char *told = prompt ? "prompt" : "late";
    tap_ok(e == cudaErrorIllegalAddress && r.failure.error == e && whole &&
               names(&r.failure, checked, strcmp(op, "copy") == 0 ? -1 : 0),
           "a %s, %s, %s, %s%s: %s", op, names_of[what], pipe_memory_names[memory], told,
           checked ? ", checked" : "", r.failure.message);
    pipe_free(&w.x);
    pipe_free(&w.y);
    (void)cudaDeviceReset();
}

/* In place of a timeline's watcher: the worker of a host stage begins with chunk BAD - 1 only when
   the GPU has failed at the next one, and before the calling thread has said so. */
static void hold_up(struct spipe_timeline *, struct spipe_priv_pipeline *, int what,
                    const void *about, const struct spipe_priv_slot *slot, int after) {
    const size_t chunk = slot ? slot->chunk : SPIPE_AUTO;
    int k;
    if (what == SPIPE_PRIV_WATCH_OP && after && chunk == BAD && hostcuda_fail_fired() > 0) {
        usleep(50000);
    }
    if (what != SPIPE_PRIV_WATCH_TASK || after || chunk != BAD - 1) return;
    if (((const spipe_priv_task_t *)about)->what != SPIPE_PRIV_HOST) return;
    for (k = 0; k < 2000 && hostcuda_fail_fired() == 0; ++k) usleep(1000);
    usleep(5000);
}

/* In a checked run the chunk that is named is the one that failed, however late the host stages of
   the chunks before it begin. */
static void test_late_host_stage(void) {
    spipe_priv_watcher_t watcher = {SPIPE_PRIV_STAMP, 0, hold_up};
    world_t w = {
        pipe_array_new(LONG, PIPE_PAGEABLE), pipe_array_new(LONG, PIPE_PAGEABLE), {0, 1, 1}, 0, 0};
    spipe_desc_t d = describe(&w, 3);
    spipe_report_t r;
    cudaError_t e;
    pipe_randomise(w.x);
    start(&w);
    d.checked = 1;
    d.timeline = (struct spipe_timeline *)(void *)&watcher;
    hostcuda_fail_async("kernel", BAD + 1, cudaErrorIllegalAddress);
    e = spipe_run(&d, &r);
    tap_ok(hostcuda_fail_fired() > 0 && e == cudaErrorIllegalAddress && names(&r.failure, 1, 0),
           "a host stage that begins late does not take the error of a later chunk for its own: %s",
           r.failure.message);
    hostcuda_fail_clear();
    pipe_free(&w.x);
    pipe_free(&w.y);
    (void)cudaDeviceReset();
}

/* Waits until two threads are here, by counters that order nothing: ThreadSanitizer then sees what
   the library does to order what they do next. */
static cudaError_t fail_together(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t first = part->first, count = part->count;
    int *here = (int *)user, k;
    memset(dst, 0, count);
    (void)__atomic_fetch_add(here, 1, __ATOMIC_RELAXED);
    for (k = 0; k < 10000 && __atomic_load_n(here, __ATOMIC_RELAXED) < 2; ++k) usleep(1000);
    return first < 2 * (size_t)CHUNK ? cudaErrorInvalidValue : cudaSuccess;
}

/* Two threads fail at once, at the first and the second chunk: the first one is reported. */
static void test_two_fail(void) {
    world_t w = {
        pipe_array_new(N, PIPE_PAGEABLE), pipe_array_new(N, PIPE_PAGEABLE), {0, 1, 1}, 0, 0};
    int runs, here, good = 1;
    for (runs = 0; runs < 20; ++runs) {
        spipe_desc_t d = spipe_desc_default();
        spipe_report_t r;
        cudaError_t e;
        here = 0;
        d.chunk = CHUNK;
        d.count = N;
        d.threads = 2;
        spipe_add_source(&d, fail_together, &here, 1, SPIPE_ANY_ORDER);
        spipe_add_output(&d, w.y.at, 1);
        spipe_add_stage(&d, "mix", pipe_mix_stage, &w.args);
        e = spipe_run(&d, &r);
        good &= e == cudaErrorInvalidValue && here >= 2;
        good &= r.failure.error == e && r.failure.chunk == 0 && r.failure.chunks_whole == 0;
        if (!good)
            tap_note("chunk %zu, %zu whole: %s", r.failure.chunk, r.failure.chunks_whole,
                     r.failure.message);
    }
    tap_ok(good, "two threads fail at once: the earlier chunk is reported, 20 times");
    pipe_free(&w.x);
    pipe_free(&w.y);
}

static void test_gpu_errors(void) {
    int what, prompt, checked;
    for (checked = 0; checked < 2; ++checked) {
        for (prompt = 0; prompt < 2; ++prompt) {
            test_gpu_error(0, PIPE_PINNED, "kernel", prompt, checked);
            test_gpu_error(0, PIPE_PINNED, "copy", prompt, checked);
            for (what = 0; what < 7; ++what) {
                test_gpu_error(what, PIPE_PAGEABLE, "kernel", prompt, checked);
                if (what > 2) continue;
                test_gpu_error(what, PIPE_PAGEABLE, "copy", prompt, checked);
            }
        }
    }
}

int main(void) {
    test_runs(0, "arrays", PIPE_PINNED);
    test_runs(0, "arrays, no threads", PIPE_PAGEABLE);
    test_runs(1, "arrays, threads", PIPE_PAGEABLE);
    test_runs(2, "source and sink", PIPE_PAGEABLE);
    test_runs(3, "host stage and resident", PIPE_PAGEABLE);
    test_runs(4, "mapped", PIPE_PAGEABLE);
    test_runs(5, "breadth-first", PIPE_PINNED);
    test_runs(6, "pinned in place", PIPE_PAGEABLE);
    test_left_pinned();
    test_plans();
    (void)
        cudaDeviceReset(); /* arrays that a failed unpinning left pinned, their memory given back */
    test_no_room();
    test_gpu_errors();
    test_late_host_stage();
    test_two_fail();
    (void)tap_done();
    fflush(stdout);
    _exit(tap_failed != 0); /* what failed frees kept is no leak of ours */
}
