/*  test_climb.cu -- on the modelled clock of hostcuda: after 40 runs a kept pipeline is as fast as
    the best of a sweep over chunks and threads, on machines that nobody has fitted anything to; and
    when the machine changes, it climbs again. */
#include "replaced.h"

#include "hostcuda.h"
#include "pipe_common.h"

enum {
    CPUS = 16,
    RUNS = 40
};

static int told_affinity(pid_t who, size_t bytes, cpu_set_t *cpus) {
    int k;
    (void)who;
    (void)bytes;
    CPU_ZERO(cpus);
    for (k = 0; k < CPUS; ++k) CPU_SET((size_t)k, cpus);
    return 0;
}

/* Machines: factors on an H200's figures. */
typedef struct machine {
    const char *name;
    double link, host, memory, lost, kernel;
} machine_t;

static const machine_t machines[] = {
    {"as an H200", 1.0, 1.0, 1.0, 1.0, 1.0},
    {"half the link", 0.5, 1.0, 1.0, 1.0, 1.0},
    {"slow threads", 1.0, 0.4, 1.0, 1.0, 1.0},
    {"fast threads, slow memory", 1.0, 2.0, 0.4, 1.0, 1.0},
    {"copies lose much", 1.0, 1.0, 1.0, 5.0, 1.0},
    {"long kernels", 1.0, 1.0, 1.0, 1.0, 60.0},
};

enum {
    PINNED_BOTH,
    PAGEABLE_IN,
    PAGEABLE_BOTH,
    NUM_WORKS
};

static const char *const work_names[] = {"pinned, both ways", "pageable, in",
                                         "pageable, both ways"};

static hostcuda_profile_t profile_of(const machine_t *m) {
    hostcuda_profile_t p = hostcuda_profile("h200");
    p.h2d *= m->link;
    p.d2h *= m->link;
    p.host_fill *= m->host;
    p.host_drain *= m->host;
    p.host_memory *= m->memory;
    p.copy_lost *= m->lost;
    p.kernel_ns_per_thread *= m->kernel;
    return p;
}

static __global__ void next_kernel(const float *x, float *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + 1.0f;
}

static cudaError_t stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(next_kernel, spipe_blocks(c->count, 256), 256, 0, c,
                        SPIPE_BUF(c, 0, const float), SPIPE_BUF(c, 1, float), c->count);
}

typedef struct world {
    float *x, *y;
    size_t n;
    int work;
} world_t;

static world_t world_new(int work, size_t bytes) {
    world_t w;
    size_t i;
    w.work = work;
    w.n = bytes / sizeof *w.x;
    if (work == PINNED_BOTH) {
        SPIPE_CHECK(spipe_pinned_alloc((void **)&w.x, bytes));
        SPIPE_CHECK(spipe_pinned_alloc((void **)&w.y, bytes));
    } else {
        w.x = (float *)malloc(bytes);
        w.y = (float *)malloc(bytes);
        if (!w.x || !w.y) exit(99);
    }
    for (i = 0; i < w.n; ++i) w.x[i] = (float)(i % 1000);
    memset(w.y, 0, bytes);
    return w;
}

static void world_free(world_t *w) {
    if (w->work == PINNED_BOTH) {
        SPIPE_CHECK(spipe_pinned_free(w->x));
        SPIPE_CHECK(spipe_pinned_free(w->y));
        return;
    }
    free(w->x);
    free(w->y);
}

static spipe_pipeline_t *pipeline_of(const world_t *w, size_t chunk, size_t threads) {
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    d.count = w->n;
    d.chunk = chunk;
    d.threads = threads;
    spipe_add_input(&d, w->x, sizeof *w->x);
    if (w->work == PAGEABLE_IN)
        spipe_add_temp(&d, sizeof *w->y);
    else
        spipe_add_output(&d, w->y, sizeof *w->y);
    spipe_add_stage(&d, "next", stage, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    return p;
}

/* The least time of some runs, in ms. */
static double least_of(spipe_pipeline_t *p, int runs) {
    double least = 1e30;
    for (; runs > 0; --runs) {
        spipe_report_t r;
        SPIPE_CHECK(spipe_pipeline_run(p, &r));
        if (r.wall_ms < least) least = r.wall_ms;
    }
    return least;
}

/* The best of a sweep by hand. */
static double sweep(const world_t *w, size_t *best_chunk, size_t *best_threads) {
    static const size_t numbers[] = {1, 2, 4, 6, 7, 10}; /* in each direction: the last for one */
    static const size_t settings[NUM_WORKS] = {1, 6, 5};
    double best = 1e30, bytes;
    size_t k;
    for (bytes = 65536.0; bytes <= 4.2e6; bytes *= 1.5) {
        for (k = 0; k < settings[w->work]; ++k) {
            const size_t chunk = (size_t)(bytes / 4.0);
            const size_t threads = w->work == PINNED_BOTH ? SPIPE_AUTO : numbers[k];
            spipe_pipeline_t *p = pipeline_of(w, chunk, threads);
            const double t = least_of(p, 2);
            SPIPE_CHECK(spipe_pipeline_destroy(p));
            if (t >= best) continue;
            best = t;
            *best_chunk = chunk;
            *best_threads = threads;
        }
    }
    return best;
}

static void test_machine(const machine_t *m, int work, size_t bytes) {
    const hostcuda_profile_t profile = profile_of(m);
    world_t w;
    spipe_pipeline_t *p;
    spipe_report_t r;
    size_t chunk = 0, threads = 0, i, wrong = 0;
    double best, climbed;
    SPIPE_CHECK(hostcuda_set_profile(0, &profile));
    w = world_new(work, bytes);
    best = sweep(&w, &chunk, &threads);
    p = pipeline_of(&w, SPIPE_AUTO, SPIPE_AUTO);
    (void)least_of(p, RUNS);
    climbed = least_of(p, 2);
    SPIPE_CHECK(spipe_pipeline_run(p, &r));
    for (i = 0; i < w.n && work != PAGEABLE_IN; ++i) wrong += w.y[i] != w.x[i] + 1.0f;
    tap_ok(
        wrong == 0 && climbed <= 1.05 * best,
        "%s, %s: after %d runs %.3f of a sweep's best time (%.3f ms with %zu elements, %d threads; "
        "%zu elements, %zu and %zu threads)",
        m->name, work_names[work], RUNS, climbed / best, best, chunk,
        threads == SPIPE_AUTO ? 0 : (int)threads, r.chunk, r.fill_threads, r.drain_threads);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    world_free(&w);
}

/* A faster machine is never slower. */
static void test_faster(int work) {
    double before = 0.0;
    int k, good = 1;
    for (k = 0; k < 4; ++k) {
        machine_t m = machines[0];
        hostcuda_profile_t profile;
        world_t w;
        spipe_pipeline_t *p;
        double t;
        m.host = 0.25 * (double)(1 << k);
        profile = profile_of(&m);
        SPIPE_CHECK(hostcuda_set_profile(0, &profile));
        w = world_new(work, (size_t)8 << 20);
        p = pipeline_of(&w, SPIPE_AUTO, SPIPE_AUTO);
        (void)least_of(p, RUNS);
        t = least_of(p, 2);
        good &= k == 0 || t <= 1.02 * before;
        before = t;
        SPIPE_CHECK(spipe_pipeline_destroy(p));
        world_free(&w);
    }
    tap_ok(good, "%s: threads that are twice as fast never make a run slower", work_names[work]);
}

/* When the machine becomes another one, two runs show it, and the climb begins again. */
static void test_climbs_again(void) {
    hostcuda_profile_t profile = profile_of(&machines[0]);
    world_t w;
    spipe_pipeline_t *p;
    spipe_report_t r;
    int settled, k, again = 0;
    SPIPE_CHECK(hostcuda_set_profile(0, &profile));
    w = world_new(PINNED_BOTH, (size_t)16 << 20);
    p = pipeline_of(&w, SPIPE_AUTO, SPIPE_AUTO);
    (void)least_of(p, RUNS + 10);
    SPIPE_CHECK(spipe_pipeline_run(p, &r));
    settled = !r.trying && r.found > 0;
    profile.copy_lost *= 20.0;
    SPIPE_CHECK(hostcuda_set_profile(0, &profile));
    for (k = 0; k < 4; ++k) {
        SPIPE_CHECK(spipe_pipeline_run(p, &r));
        again |= r.trying;
    }
    tap_ok(settled && again, "after the climb, another machine is climbed anew");
    (void)least_of(p, RUNS + 10);
    SPIPE_CHECK(spipe_pipeline_run(p, &r));
    tap_ok(!r.trying && r.chunk > w.n / 16, "to larger chunks, if copies lose more (%zu elements)",
           r.chunk);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    world_free(&w);
}

int main(void) {
    const int every = (int)tap_every(1, 4);
    int k, work;
    replaced.sched_getaffinity = told_affinity;
    for (work = 0; work < NUM_WORKS; ++work) {
        for (k = 0; k < (int)(sizeof machines / sizeof *machines); k += every)
            test_machine(&machines[k], work, (size_t)(work == PAGEABLE_BOTH ? 24 : 8) << 20);
    }
    test_faster(PAGEABLE_IN);
    test_faster(PAGEABLE_BOTH);
    test_climbs_again();
    return tap_done();
}
