/*  test_busy_machine.cu -- where other programs want every CPU, a thread that polls sleeps, and
    otherwise it only lets others run; a worker without a task waits awake, but not for long, and
    not where it often comes late to its task. Yields take as long here as the test says. */
#include "replaced.h"

#include "tap.h"

#if defined(SPIPE_NO_THREADS) || defined(_WIN32) || !defined(CLOCK_THREAD_CPUTIME_ID)
int main(void) {
    tap_skip("a thread that polls on a busy machine sleeps", "needs select and the thread's clock");
    return tap_done();
}
#else
enum {
    POLLS = 50
};

static int yield_us;        /* how long a yield takes: workers read it while the test sets it */
static int num_yields;      /* of all threads */
static int flag, set_after; /* the yield of that number sets the flag; 0 = none does */

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
    if (__atomic_add_fetch(&num_yields, 1, __ATOMIC_RELAXED) == set_after) {
        __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    }
    while (seconds_of(CLOCK_MONOTONIC) < until) {
    }
    return 0;
}

/* What so many polls do: yields, and seconds by the clock and of the CPU. */
typedef struct polls {
    int yields;
    double wall, cpu;
} polls_t;

static polls_t poll_often(double *busy_until, int times) {
    polls_t p;
    const double wall = seconds_of(CLOCK_MONOTONIC), cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    num_yields = 0;
    for (int k = 0; k < times; ++k) spipe_priv_yield(busy_until);
    p.yields = num_yields;
    p.wall = seconds_of(CLOCK_MONOTONIC) - wall;
    p.cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu;
    return p;
}

static void quiet_machine(void) {
    double busy_until = 0.0;
    set_yield_us(0);
    const polls_t p = poll_often(&busy_until, POLLS);
    tap_ok(p.yields == POLLS || busy_until > 0.0, "on a quiet machine each poll yields");
    set_yield_us(2000);
    busy_until = 0.0;
    (void)poll_often(&busy_until, 1);
    set_yield_us(0);
    tap_ok(poll_often(&busy_until, 1).yields == 1, "after one long yield, too");
}

static void busy_machine(void) {
    double busy_until = 0.0;
    polls_t last = polls_t();
    int k;
    set_yield_us(10000);
    /* Two, unless the test itself is held up for long between them. */
    for (k = 0; k < 100 && busy_until < seconds_of(CLOCK_MONOTONIC); ++k) {
        last = poll_often(&busy_until, 1);
    }
    const double rest = busy_until - seconds_of(CLOCK_MONOTONIC);
    tap_ok(k >= 2 && rest > 0.0, "after two long yields a thread that polls sleeps");
    tap_ok(rest < 33.0 * last.wall, "for 32 times as long as the last yield took");
    busy_until += 60.0; /* for as long as the test wants, however slow its machine is */
    const polls_t p = poll_often(&busy_until, POLLS);
    tap_note("%d polls: %.1f ms, %.1f of the CPU", POLLS, 1e3 * p.wall, 1e3 * p.cpu);
    tap_ok(p.yields == 0 && p.wall > 20e-6 * POLLS, "each poll takes as long as a sleep");
    tap_ok(p.cpu < 0.5 * p.wall, "and leaves the CPU to others");
    busy_until = seconds_of(CLOCK_MONOTONIC) - 60.0;
    set_yield_us(0);
    tap_ok(poll_often(&busy_until, 1).yields == 1, "then it tries to yield again");
    busy_until = 0.0;
    set_yield_us(150000);
    for (k = 0; k < 10 && busy_until < seconds_of(CLOCK_MONOTONIC); ++k) {
        (void)poll_often(&busy_until, 1);
    }
    tap_ok(k < 10, "a thread whose yields take longer than 0.1 s sleeps, too");
}

static int went_on;

static void *cancelled(void *arg) {
    double busy_until = seconds_of(CLOCK_MONOTONIC) + 60.0;
    (void)pthread_cancel(pthread_self());
    (void)poll_often(&busy_until, POLLS);
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
           "a thread that is cancelled ends after its polls, not in them");
}

/* Waits awake for the flag, which that yield sets; returns the number of yields. */
static int spin(int set_by) {
    flag = 0;
    set_after = set_by;
    num_yields = 0;
    (void)spipe_priv_spin(&flag);
    set_after = 0;
    return num_yields;
}

static void waiting_awake(void) {
    const double most = 60.0;
    const double began = seconds_of(CLOCK_MONOTONIC);
    int k, yields;
    set_yield_us(100);
    tap_ok(spin(0) == 1, "a thread that waits awake stops after a long yield");
    set_yield_us(0);
    flag = 1;
    num_yields = 0;
    tap_ok(!spipe_priv_spin(&flag) && num_yields == 0, "it does not wait for a flag that is set");
    /* Again if the test was held up: that is a long yield, too. */
    for (k = 0; k < 100 && spin(5) < 5; ++k) continue;
    tap_ok(num_yields == 5, "it sees the flag as soon as it is set");
    for (k = 0; k < 100 && spin(0) <= 5; ++k) continue;
    yields = num_yields;
    tap_note("%d yields, then it would sleep", yields);
    tap_ok(yields > 5 && seconds_of(CLOCK_MONOTONIC) - began < most, "it does not wait for ever");
}

/* ---- A worker that parks; its clock advances with its yields only ---------------------------- */

typedef struct parked {
    spipe_priv_sync_t *sync;
    spipe_priv_worker_t *list, worker;
    int last; /* 1: the thread that wakes it ends */
} parked_t;

static struct timespec model_time;
static double model_yield_ms;
static parked_t *woken_by_yield; /* NULL: yields wake nobody */

static int model_clock(struct timespec *now) {
    *now = model_time;
    return 0;
}

static int model_yield(void) {
    ++num_yields;
    model_time.tv_nsec += 500 + (long)(1e6 * model_yield_ms);
    while (model_time.tv_nsec >= 1000000000) {
        model_time.tv_nsec -= 1000000000;
        ++model_time.tv_sec;
    }
    if (woken_by_yield) {
        spipe_priv_lock(woken_by_yield->sync);
        spipe_priv_wake_one(&woken_by_yield->list);
        spipe_priv_unlock(woken_by_yield->sync);
    }
    return 0;
}

/* Wakes the worker whenever it sleeps. */
static void *wake_sleeper(void *arg) {
    parked_t *p = (parked_t *)arg;
    for (int last = 0; !last; usleep(10)) {
        spipe_priv_lock(p->sync);
        if (p->list && p->list->asleep) spipe_priv_wake_one(&p->list);
        last = p->last;
        spipe_priv_unlock(p->sync);
    }
    return NULL;
}

/* So many waits of the worker. Its yields take `late` ms; its task comes in its first yield or, if
   there is none or without `task`, when it sleeps. Returns how many of the waits began awake. */
static int waits(parked_t *p, int times, double late, int task) {
    int awake = 0;
    model_yield_ms = late;
    woken_by_yield = task ? p : NULL;
    spipe_priv_lock(p->sync);
    for (int k = 0; k < times; ++k) {
        num_yields = 0;
        spipe_priv_park(p->sync, &p->list, &p->worker);
        awake += num_yields > 0;
    }
    spipe_priv_unlock(p->sync);
    woken_by_yield = NULL;
    return awake;
}

static void late_workers(void) {
    parked_t p;
    pthread_t thread;
    int awake = 0, k, before;
    memset((void *)&p, 0, sizeof p);
    p.sync = spipe_priv_sync_create();
    spipe_priv_cond_create(&p.worker.work);
    if (!tap_ok(p.sync && pthread_create(&thread, NULL, wake_sleeper, &p) == 0, "a thread starts"))
        return;
    replaced.clock_gettime = model_clock;
    replaced.sched_yield = model_yield;
    tap_ok(waits(&p, 1000, 0.0, 1) == 1000, "a worker whose task comes in time waits awake");
    tap_ok(waits(&p, 100, 3.0, 0) == 100, "and one that loses its CPU while there is no task");
    for (k = 0; k < 1000; ++k) awake += waits(&p, 1, k % 20 ? 0.0 : 3.0, 1);
    tap_ok(awake == 1000, "and one that comes late to one task in 20");
    before = waits(&p, 1000, 3.0, 1);
    tap_note("of 1000 waits that end late if they begin awake: %d awake", before);
    tap_ok(before > 1 && before < 100, "one that often comes late sleeps at once");
    awake = waits(&p, 2000, 3.0, 1);
    tap_ok(awake == 0, "for long");
    awake = waits(&p, 10000, 0.0, 1);
    tap_note("of 10000 waits that end in time: %d awake", awake);
    tap_ok(awake > 5000, "then it waits awake again");
    before = waits(&p, 1000, 0.0, 1);
    awake = waits(&p, 1000, 3.0, 1);
    tap_ok(before == 1000 && awake < 100, "until it often comes late again");
    replaced.clock_gettime = NULL;
    replaced.sched_yield = slow_yield;
    spipe_priv_lock(p.sync);
    p.last = 1;
    spipe_priv_unlock(p.sync);
    (void)pthread_join(thread, NULL);
    spipe_priv_cond_destroy(&p.worker.work);
    spipe_priv_sync_destroy(p.sync);
}

static cudaError_t nothing(const spipe_chunk_t *c, void *user) {
    (void)c;
    (void)user;
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

/* Each yield takes 2 ms, so almost every worker comes late to its task. Yields of workers that wait
   awake are counted. Two threads poll and yield, too: the calling thread, and a worker that asks
   about copies. After a long yield each sleeps for 32 times as long before it yields again, so the
   time that the runs took tells how many of the yields are theirs. */
static void workers_of_a_busy_machine(void) {
    enum {
        RUNS = 20,
        TRIES = 50
    };

    const double poll_s = 32 * 2e-3 / 2; /* from one yield of the two that poll to the next */
    spipe_pipeline_t *p = with_workers();
    cudaError_t e = cudaSuccess;
    double awake = RUNS;
    set_yield_us(2000);
    for (int k = 0; k < TRIES && awake >= RUNS / 2; ++k) {
        const double began = seconds_of(CLOCK_MONOTONIC);
        __atomic_store_n(&num_yields, 0, __ATOMIC_RELAXED);
        for (int run = 0; run < RUNS && e == cudaSuccess; ++run) e = spipe_pipeline_run(p, NULL);
        const int yields = __atomic_load_n(&num_yields, __ATOMIC_RELAXED);
        const double took = seconds_of(CLOCK_MONOTONIC) - began;
        awake = yields - took / poll_s;
        tap_note("%d runs of %d chunks, %.0f ms: %d yields", RUNS, CHUNKS, 1e3 * took, yields);
    }
    set_yield_us(0);
    tap_ok(e == cudaSuccess, "runs on a busy machine");
    tap_ok(awake < RUNS / 2, "after some of them no worker waits awake");
    (void)spipe_pipeline_destroy(p);
}

int main(void) {
    replaced.sched_yield = slow_yield;
    quiet_machine();
    busy_machine();
    cancelled_thread();
    waiting_awake();
    late_workers();
    idle_workers();
    workers_of_a_busy_machine();
    return tap_done();
}
#endif
