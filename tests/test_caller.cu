/*  test_caller.cu -- what a run leaves unchanged in the calling thread and process: where
    signals are handled, and the current device, even if a stage changes it. */
#include <signal.h>
#include <unistd.h>

#if defined(__HOSTCUDA__)
#include "hostcuda.h"
#endif
#include "pipe_common.h"

enum {
    N = 4001,
    CHUNK = 100
};

/* ---- Signals --------------------------------------------------------------------------------- */

#if !defined(_WIN32)
/* A thread that is not the caller's says whether it would be interrupted by a signal. */
typedef struct seen {
    pthread_t caller;
    size_t elsewhere, given;
    size_t open; /* to signals that are meant for the process */
    size_t deaf; /* to its own faults: a handler could not deal with them */
} seen_t;

static void look(seen_t *s) {
    sigset_t mask;
    if (pthread_sigmask(SIG_SETMASK, NULL, &mask) != 0) exit(99);
    if (pthread_equal(s->caller, pthread_self())) return;
    ++s->elsewhere;
    s->open += !sigismember(&mask, SIGUSR1) || !sigismember(&mask, SIGINT) ||
               !sigismember(&mask, SIGTERM) || !sigismember(&mask, SIGALRM);
    s->deaf += sigismember(&mask, SIGSEGV) || sigismember(&mask, SIGBUS);
}

static cudaError_t source(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    seen_t *s = (seen_t *)user;
    const size_t left = N - s->given;
    *count = left < max_count ? left : max_count;
    memset(dst, 7, *count);
    s->given += *count;
    look(s);
    return cudaSuccess;
}

static cudaError_t sink(const spipe_part_t *part, void *user) {
    (void)part;
    look((seen_t *)user);
    return cudaSuccess;
}

static cudaError_t host_stage(const spipe_chunk_t *c, void *user) {
    (void)c;
    look((seen_t *)user);
    return cudaSuccess;
}

static void CUDART_CB call_back(cudaError_t e, void *user) {
    (void)e;
    look((seen_t *)user);
}

static seen_t new_seen(void) {
    seen_t s;
    memset((void *)&s, 0, sizeof s);
    s.caller = pthread_self();
    return s;
}

static void test_signals(void) {
    pipe_mix_args_t args = {0, 1, 1};
    seen_t in = new_seen(), out = new_seen(), host = new_seen(), worker = new_seen();
    spipe_desc_t d = spipe_desc_default();
    spipe_worker_t w;
    sigset_t before, after;
    int k, same = 1;
    memset(&before, 0, sizeof before);
    memset(&after, 0, sizeof after);
    if (pthread_sigmask(SIG_SETMASK, NULL, &before) != 0) exit(99);
    d.chunk = CHUNK;
    d.threads = 2;
    spipe_add_source(&d, source, &in, 1, SPIPE_IN_ORDER);
    spipe_add_sink(&d, sink, &out, 1, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    spipe_stage_ordered(
        &d, spipe_add_host_stage(&d, "host", host_stage, &host, SPIPE_BIT(1), 0)); /* it counts */
    SPIPE_CHECK_RUN(&d, NULL);
    const cudaError_t made = spipe_worker_create(&w);
    if (made == cudaSuccess) {
        SPIPE_CHECK(spipe_worker_call(&w, NULL, call_back, &worker));
        SPIPE_CHECK(spipe_worker_destroy(&w));
    }
    if (pthread_sigmask(SIG_SETMASK, NULL, &after) != 0) exit(99);
    for (k = 1; k < 32; ++k) same &= sigismember(&before, k) == sigismember(&after, k);
    tap_ok((host.elsewhere > 0) == pipe_threads() && host.open + in.open + out.open == 0,
           "no thread that fills, drains or runs host stages takes a signal of the process");
    if (pipe_threads())
        tap_ok(worker.elsewhere == 1 && worker.open == 0, "nor the thread of a worker");
    else
        tap_ok(made == cudaErrorNotSupported, "and a worker that gets no thread is not made");
    tap_ok(host.deaf + in.deaf + out.deaf + worker.deaf == 0,
           "but each takes those of its own faults, which a handler may deal with");
    tap_ok(same, "and the caller's own signals are as they were");
}
#endif

/* ---- The current device ---------------------------------------------------------------------- */

/* Enqueues on the pipeline's device and leaves another one current. */
static cudaError_t wandering_stage(const spipe_chunk_t *c, void *user) {
    pipe_mix_args_t args = {0, 1, 1};
    SPIPE_TRY(cudaSetDevice(0));
    SPIPE_TRY(pipe_mix_stage(c, &args));
    (void)user;
    return cudaSetDevice(1);
}

static int is_mixed(pipe_array_t x, pipe_array_t y) {
    size_t i;
    for (i = 0; i < N; ++i) {
        if (y.at[i] != pipe_mix(x.at[i], i)) return 0;
    }
    return pipe_guard_whole(y);
}

static void test_device(int memory, size_t chunk, spipe_schedule_t schedule) {
    pipe_array_t x = pipe_array_new(N, memory), y = pipe_array_new(N, memory);
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    int k, device = -1, good = 1;
    cudaError_t e;
    pipe_randomise(x);
    d.count = N;
    d.chunk = chunk;
    d.schedule = schedule;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "wanders", wandering_stage, NULL);
    pipe_poison(y);
    e = spipe_run(&d, NULL);
    good = e == cudaSuccess && is_mixed(x, y);
    SPIPE_CHECK(cudaGetDevice(&device));
    tap_ok(good, "a stage may leave another device current, %s, %s", spipe_schedule_name(schedule),
           pipe_memory_names[memory]);
    tap_ok(device == 0, "spipe_run makes the caller's current again");
    SPIPE_CHECK(cudaSetDevice(0));
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (k = 0, good = 1; k < 3; ++k) {
        pipe_poison(y);
        good &= spipe_pipeline_run(p, NULL) == cudaSuccess && is_mixed(x, y);
        SPIPE_CHECK(cudaGetDevice(&device));
        good &= device == 0;
    }
    good &= spipe_pipeline_destroy(p) == cudaSuccess;
    tap_ok(good, "and so does a pipeline that is kept, run after run");
    pipe_free(&x);
    pipe_free(&y);
}

static void test_devices(void) {
    int num = 0;
#if defined(__HOSTCUDA__)
    SPIPE_CHECK(hostcuda_set_devices(2));
#endif
    SPIPE_CHECK(cudaGetDeviceCount(&num));
    if (num < 2) {
        tap_skip("a stage may leave another device current", "there is one GPU");
        return;
    }
    test_device(PIPE_PAGEABLE, CHUNK, SPIPE_SCHEDULE_ENGINES);
    test_device(PIPE_PINNED, CHUNK, SPIPE_SCHEDULE_ENGINES);
    test_device(PIPE_PINNED, CHUNK, SPIPE_SCHEDULE_ZERO_COPY);
    test_device(PIPE_PAGEABLE, SPIPE_AUTO, SPIPE_SCHEDULE_AUTO);
}

int main(void) {
#if !defined(_WIN32)
    test_signals();
#endif
    test_devices();
    return tap_done();
}
