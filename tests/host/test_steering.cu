/*  test_steering.cu -- on the modelled clock of hostcuda: a long run finds its number of threads on
    six machines, it follows a machine that changes, and the report says what was seen. */
#include "replaced.h"

#include "hostcuda.h"
#include "pipe_common.h"

enum {
    CPUS = 16,
    CHUNK = 1 << 20, /* bytes */
    CHUNKS = 200,
    MOST = 14 /* threads of a sweep */
};

static int told_affinity(pid_t who, size_t bytes, cpu_set_t *cpus) {
    int k;
    (void)who;
    (void)bytes;
    CPU_ZERO(cpus);
    for (k = 0; k < CPUS; ++k) CPU_SET((size_t)k, cpus);
    return 0;
}

typedef struct machine {
    const char *name;
    double fill, drain, memory, link; /* GB/s; fill and drain: of one thread */
    int sinks;                        /* 1 = threads drain, too */
    int runs; /* memory that all threads share shows only in the time of whole runs: the climb */
} machine_t;

static const machine_t machines[] = {{"a fast link, slow threads", 5.0, 5.0, 1e3, 50.0, 0, 3},
                                     {"a slow link", 10.0, 10.0, 1e3, 12.0, 0, 3},
                                     {"fast threads", 20.0, 20.0, 1e3, 50.0, 0, 3},
                                     {"little memory", 10.0, 10.0, 20.0, 50.0, 0, 40},
                                     {"slow to fill", 4.0, 12.0, 1e3, 25.0, 1, 3},
                                     {"slow to drain", 12.0, 4.0, 1e3, 25.0, 1, 3}};

static unsigned slow_from; /* chunks from here on are three times as long to make; 0 = none */

static cudaError_t made(spipe_part_t *part, void *user) {
    const size_t first = part->first, count = part->count;
    (void)user;
    hostcuda_host_copy(count, 0);
    if (slow_from > 0 && first >= (size_t)slow_from * CHUNK) hostcuda_host_copy(2 * count, 0);
    return cudaSuccess;
}

static cudaError_t taken(const spipe_part_t *part, void *user) {
    const size_t count = part->count;
    (void)user;
    hostcuda_host_copy(count, 1);
    return cudaSuccess;
}

static cudaError_t nothing(const spipe_chunk_t *c, void *user) {
    (void)c;
    (void)user;
    return cudaSuccess;
}

static spipe_pipeline_t *pipeline_of(size_t threads, int sinks) {
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    d.count = (size_t)CHUNK * CHUNKS;
    d.chunk = CHUNK;
    d.depth = 16;
    d.threads = threads;
    spipe_add_source(&d, made, NULL, 1, SPIPE_ANY_ORDER);
    if (sinks)
        spipe_add_sink(&d, taken, NULL, 1, SPIPE_ANY_ORDER);
    else
        spipe_add_temp(&d, 1);
    spipe_add_stage(&d, "nothing", nothing, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    return p;
}

/* A run with so many threads each way. Returns its time in ms. */
static double fixed_ms(size_t threads, int sinks) {
    spipe_pipeline_t *p = pipeline_of(threads, sinks);
    spipe_report_t r;
    SPIPE_CHECK(spipe_pipeline_run(p, &r));
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    return r.wall_ms;
}

/* The last of some runs of a pipeline, each of which begins with the threads that were found. */
static spipe_report_t steered(int sinks, int runs) {
    spipe_pipeline_t *p = pipeline_of(SPIPE_AUTO, sinks);
    spipe_report_t r;
    for (; runs > 0; --runs) SPIPE_CHECK(spipe_pipeline_run(p, &r));
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    return r;
}

static void test_machine(const machine_t *m, const hostcuda_profile_t *h200) {
    hostcuda_profile_t now = *h200;
    double best = 1e30, ms[MOST];
    size_t threads, least = 0, found;
    spipe_report_t r;
    int near;
    now.host_fill = m->fill;
    now.host_drain = m->drain;
    now.host_memory = m->memory;
    now.h2d = now.d2h = m->link;
    SPIPE_CHECK(hostcuda_set_profile(0, &now));
    for (threads = 1; threads < (m->sinks ? MOST / 2 + 1 : MOST); ++threads) {
        ms[threads] = fixed_ms(threads, m->sinks);
        if (ms[threads] < best) best = ms[threads];
    }
    while (ms[++least] > 1.03 * best) continue; /* more gain nothing */
    if (m->sinks) least *= 2;
    r = steered(m->sinks, m->runs);
    found = r.fill_threads + r.drain_threads;
    near = m->runs > 3 || (found <= least + 2 && found + 2 >= least);
    tap_ok(near && r.wall_ms < 1.05 * best,
           "%s: after %d runs %zu threads, %zu are enough; %.2f ms, %.2f at best", m->name, m->runs,
           found, least, r.wall_ms, best);
}

static void test_changes(const hostcuda_profile_t *h200) {
    hostcuda_profile_t now = *h200;
    size_t quiet, slow;
    spipe_report_t r;
    now.host_fill = 10.0;
    now.host_memory = 1e3;
    SPIPE_CHECK(hostcuda_set_profile(0, &now));
    r = steered(0, 3);
    quiet = r.fill_threads;
    slow_from = CHUNKS / 4;
    r = steered(0, 3);
    slow = r.fill_threads;
    slow_from = 0;
    tap_ok(slow > quiet, "a source becomes slow in mid-run: %zu threads instead of %zu", slow,
           quiet);
}

/* The report says what was seen with these threads, and with another number of them. */
static void test_says(const hostcuda_profile_t *h200) {
    hostcuda_profile_t now = *h200;
    spipe_report_t r;
    now.host_fill = 4.0; /* 12 threads are too few */
    now.host_memory = 1e3;
    SPIPE_CHECK(hostcuda_set_profile(0, &now));
    r = steered(0, 3);
    tap_ok(r.seen_threads[0] == r.fill_threads && r.seen_threads[1] + 1 == r.seen_threads[0] &&
               r.seen_waited[1] > 0.1 && r.seen_idle[1] < 0.5,
           "the report says that no chunk was ready %.0f %% of the time with %zu threads, so there "
           "are %zu",
           100.0 * r.seen_waited[1], r.seen_threads[1], r.seen_threads[0]);
    now.host_fill = 40.0; /* and too many */
    SPIPE_CHECK(hostcuda_set_profile(0, &now));
    r = steered(0, 3);
    tap_ok(r.seen_threads[0] < r.seen_threads[1] && r.seen_idle[1] > 2.0,
           "that %.1f of %zu were idle, so there are %zu", r.seen_idle[1], r.seen_threads[1],
           r.seen_threads[0]);
}

int main(void) {
    hostcuda_profile_t h200;
    size_t m;
    replaced.sched_getaffinity = told_affinity;
    if (!pipe_threads() || !spipe_priv_is_modelled()) {
        tap_skip("steering", "needs threads and the modelled clock");
        return tap_done();
    }
    SPIPE_CHECK(cudaDeviceSynchronize());
    h200 = hostcuda_profile("h200");
    for (m = 0; m < sizeof machines / sizeof *machines; ++m) test_machine(&machines[m], &h200);
    test_changes(&h200);
    test_says(&h200);
    return tap_done();
}
