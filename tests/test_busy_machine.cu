/*  test_busy_machine.cu -- where other programs want every CPU, threads that wait sleep, and
    between runs workers use none. Yields take as long here as the test says. */
#include "replaced.h"

#include "tap.h"

#if defined(SPIPE_NO_THREADS) || defined(_WIN32) || !defined(CLOCK_THREAD_CPUTIME_ID)
int main(void) {
    tap_skip("a thread that polls on a busy machine sleeps", "needs select and the thread's clock");
    return tap_done();
}
#else
static int yield_us;   /* how long a yield takes: workers read it while the test sets it */
static int num_yields; /* of all threads */

static double seconds_of(clockid_t clock) {
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void set_yield_us(int us) { __atomic_store_n(&yield_us, us, __ATOMIC_RELAXED); }

/* The machine is busy: the CPU is back after so many microseconds. */
static int slow_yield(void) {
    const int us = __atomic_load_n(&yield_us, __ATOMIC_RELAXED);
    const double until = seconds_of(CLOCK_MONOTONIC) + 1e-6 * us;
    (void)__atomic_add_fetch(&num_yields, 1, __ATOMIC_RELAXED);
    while (seconds_of(CLOCK_MONOTONIC) < until) {
    }
    return 0;
}

static int went_on;

static void *cancelled(void *arg) {
    (void)pthread_cancel(pthread_self());
    spipe_priv_nap(20);
    went_on = 1;
    pthread_testcancel();
    return arg;
}

static void cancelled_thread(void) {
    pthread_t thread;
    void *result = NULL;
    if (!tap_ok(pthread_create(&thread, NULL, cancelled, NULL) == 0, "a thread starts")) return;
    (void)pthread_join(thread, &result);
    tap_ok(went_on && result == PTHREAD_CANCELED,
           "a thread that is cancelled ends after its nap, not in it");
}

static int stall_ms, stalled_yields; /* in the stage of the middle chunk, where others wait */

static cudaError_t nothing(const spipe_chunk_t *c, void *user) {
    const int before = __atomic_load_n(&num_yields, __ATOMIC_RELAXED);
    const struct timespec stall = {0, 1000000L * stall_ms};
    (void)user;
    if (stall_ms == 0 || c->index != 16) return cudaSuccess;
    (void)nanosleep(&stall, NULL);
    stalled_yields = __atomic_load_n(&num_yields, __ATOMIC_RELAXED) - before;
    return cudaSuccess;
}

enum {
    ELEMENTS = 1 << 20,
    CHUNKS = 32
};

static spipe_pipeline_t *with_workers(void) {
    static float x[ELEMENTS];
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p = NULL;
    d.count = ELEMENTS;
    d.chunk = ELEMENTS / CHUNKS;
    d.threads = 4;
    d.staging = SPIPE_STAGING_COPY;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_stage(&d, "nothing", nothing, NULL);
    cudaError_t e = spipe_pipeline_create(&p, &d, NULL);
    if (e == cudaSuccess) e = spipe_pipeline_run(p, NULL);
    tap_ok(e == cudaSuccess, "a run with four threads");
    return p;
}

/* Workers of a kept pipeline between its runs. */
static void idle_workers(void) {
    const struct timespec rest = {0, 300 * 1000 * 1000};
    spipe_pipeline_t *p = with_workers();
    double cpu;
    (void)nanosleep(&rest, NULL); /* CUDA's own threads come to rest, too */
    cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    (void)nanosleep(&rest, NULL);
    cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    tap_note("in 300 ms without a run: %.2f ms of the CPU", 1e3 * cpu);
    tap_ok(cpu < 0.03, "between runs its workers leave the CPUs to others");
    (void)spipe_pipeline_destroy(p);
}

/* A yield takes 2 ms, as long as a thread waits awake: so where nothing comes a thread yields once
   or twice, and then sleeps. */
static void workers_of_a_busy_machine(void) {
    enum {
        THREADS = 5
    };

    spipe_pipeline_t *p = with_workers();
    set_yield_us(2000);
    stall_ms = 300;
    const cudaError_t e = spipe_pipeline_run(p, NULL);
    set_yield_us(0);
    stall_ms = 0;
    tap_note("while nothing comes for 300 ms: %d yields", stalled_yields);
    tap_ok(e == cudaSuccess, "a run on a busy machine");
    tap_ok(stalled_yields <= 6 * THREADS, "its threads sleep while they wait");
    (void)spipe_pipeline_destroy(p);
}

int main(void) {
    replaced.sched_yield = slow_yield;
    cancelled_thread();
    idle_workers();
    workers_of_a_busy_machine();
    return tap_done();
}
#endif
