/*  sweep.cu -- what the rows of the planner's costs are fitted to: rings of pageable memory by
    chunk, slots and threads; chunks of pinned memory; and ways to run from 16 threads at once.

    usage: sweep [--only rings|chunks|beside] [--smoke]
    rings    512 MiB and 2 GiB of pageable memory through a kernel that takes little, kept: ms, the
             median of the runs; then one-shot runs, and what of them is set-up; and one-shot runs
             of 64 MiB by chunk.
    chunks   1 to 16 MiB of pinned memory, one and three stages, once and kept: ms, the median of
             the runs, in 1 to 16 chunks and as the library plans; and what the law says.
    beside   4 and 64 MiB each way, kept, from one thread and from 16: GB/s in and out of all of
             them, by hand in three ways, and with resources, as planned and in other ways. */
#include "bench_common.h"

#include <atomic>
#include <condition_variable>
#include <mutex>

static __global__ void scale(const float *x, float *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i] + 1.0f;
}

SPIPE_MAP_STAGE(scale_stage, scale, float, float)

typedef struct options {
    int smoke;
    std::string only;
} options_t;

static double mib_of(size_t floats) { return (double)(floats * sizeof(float)) / (double)BENCH_MIB; }

static spipe_desc_t describe(float *x, float *y, size_t n) {
    spipe_desc_t d = spipe_desc_default();
    d.count = n;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_stage_elementwise(&d, spipe_add_stage(&d, "scale", scale_stage, NULL));
    return d;
}

/* ---- Rings ----------------------------------------------------------------------------------- */
static double ring_ms(spipe_desc_t d, int runs) {
    std::vector<double> ms;
    spipe_pipeline_t *p;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (int k = 0; k < runs; ++k) {
        const double began = bench_now_ms();
        SPIPE_CHECK(spipe_pipeline_run(p, NULL));
        if (k > 0) ms.push_back(bench_now_ms() - began);
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    return bench_median(ms);
}

static void ring_table(float *x, float *y, size_t n) {
    static const double chunks[] = {0.75, 1.5, 2.25, 3.0, 4.5, 6.0, 9.0};
    printf("\n%.0f MiB, kept, ms, by MiB in a chunk:\n\n| slots | threads a way |", mib_of(n));
    for (double mib : chunks) printf(" %.2f |", mib);
    printf("\n| --- | --- |");
    for (size_t k = 0; k < sizeof chunks / sizeof *chunks; ++k) printf(" --- |");
    printf("\n");
    for (size_t depth : {12, 16}) {
        for (size_t threads : {6, 7}) {
            printf("| %zu | %zu |", depth, threads);
            for (double mib : chunks) {
                spipe_desc_t d = describe(x, y, n);
                d.schedule = SPIPE_ENGINES;
                d.staging = SPIPE_STAGING_COPY;
                d.depth = depth;
                d.threads = threads;
                d.chunk = std::min(n, (size_t)(mib * (double)BENCH_MIB) / sizeof(float));
                printf(" %.2f |", ring_ms(d, 5));
                fflush(stdout);
            }
            printf("\n");
        }
    }
}

static void once_table(float *x, float *y, size_t n) {
    printf(
        "\n%.0f MiB, one call, chunks of 1.5 MiB: ms, and of them set-up\n\n"
        "| threads a way | 8 slots | 10 | 12 | 14 | 16 |\n| --- | --- | --- | --- | --- | --- |\n",
        mib_of(n));
    for (size_t threads : {4, 5, 6, 7}) {
        printf("| %zu |", threads);
        for (size_t depth : {8, 10, 12, 14, 16}) {
            std::vector<double> all, setup;
            spipe_desc_t d = describe(x, y, n);
            spipe_report_t r;
            d.schedule = SPIPE_ENGINES;
            d.staging = SPIPE_STAGING_COPY;
            d.depth = depth;
            d.threads = threads;
            d.chunk = std::min(n, 3 * BENCH_MIB / 2 / sizeof(float));
            for (int k = 0; k < 5; ++k) {
                const double began = bench_now_ms();
                SPIPE_CHECK_RUN(&d, &r);
                all.push_back(bench_now_ms() - began);
                setup.push_back(all.back() - r.wall_ms);
            }
            printf(" %.2f, %.2f |", bench_median(all), bench_median(setup));
            fflush(stdout);
        }
        printf("\n");
    }
}

/* The median of nine calls. */
static double once_ms(const spipe_desc_t *d) {
    std::vector<double> all;
    spipe_report_t r;
    for (int k = 0; k < 9; ++k) {
        const double began = bench_now_ms();
        SPIPE_CHECK_RUN(d, &r);
        all.push_back(bench_now_ms() - began);
    }
    return bench_median(all);
}

static void once_chunks(float *x, float *y, size_t n) {
    static const double chunks[] = {0.5, 0.75, 1.0, 1.5, 2.0};
    const spipe_desc_t planned = describe(x, y, n);
    printf("\n%.0f MiB, one call, ms, by MiB in a chunk; as planned: %.2f\n\n"
           "| threads a way | 0.50 | 0.75 | 1.00 | 1.50 | 2.00 |\n"
           "| --- | --- | --- | --- | --- | --- |\n",
           mib_of(n), once_ms(&planned));
    for (size_t threads : {4, 5, 6, 7}) {
        printf("| %zu |", threads);
        for (double mib : chunks) {
            spipe_desc_t d = planned;
            d.schedule = SPIPE_ENGINES;
            d.staging = SPIPE_STAGING_COPY;
            d.threads = threads;
            d.chunk = std::min(n, (size_t)(mib * (double)BENCH_MIB) / sizeof(float));
            printf(" %.2f |", once_ms(&d));
            fflush(stdout);
        }
        printf("\n");
    }
}

static void rings(const options_t *o) {
    const size_t most = o->smoke ? 4 * BENCH_MIB : 2 * BENCH_GIB, less = most / 4;
    bench_array_t x = bench_array_t(), y = bench_array_t();
    SPIPE_CHECK(bench_array_need(&x, most, 0));
    SPIPE_CHECK(bench_array_need(&y, most, 0));
    ring_table((float *)x.at, (float *)y.at, less / sizeof(float));
    if (!o->smoke) ring_table((float *)x.at, (float *)y.at, most / sizeof(float));
    once_table((float *)x.at, (float *)y.at, less / sizeof(float));
    once_chunks((float *)x.at, (float *)y.at, less / sizeof(float) / 8);
    bench_array_free(&x);
    bench_array_free(&y);
}

/* ---- Chunks ---------------------------------------------------------------------------------- */
SPIPE_MAP_STAGE(first_stage, scale, float, float)

static cudaError_t more_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(scale, spipe_blocks(c->count, 256), 256, 0, c->stream,
                        SPIPE_BUF(c, 1, const float), SPIPE_BUF(c, 1, float), c->count);
}

/* One way to divide the whole: parts, or 0 = as the library plans. */
typedef struct part {
    size_t parts;
    spipe_desc_t d;
    spipe_pipeline_t *kept;
    spipe_report_t r;
    std::vector<double> ms;
} part_t;

static void chunk_row(float *x, float *y, size_t n, int stages, int kept, int runs) {
    std::vector<part_t> ways;
    for (size_t parts : {0, 1, 2, 3, 4, 5, 6, 8, 12, 16}) {
        part_t w = part_t();
        w.parts = parts;
        w.d = spipe_desc_default();
        w.d.count = n;
        if (parts > 0) w.d.chunk = ((n - 1) / parts / 32 + 1) * 32;
        if (parts > 0) w.d.depth = std::min(parts, (size_t)4); /* given, so chunks are no batches */
        spipe_add_input(&w.d, x, sizeof *x);
        spipe_add_output(&w.d, y, sizeof *y);
        spipe_add_stage(&w.d, "first", first_stage, NULL);
        if (stages > 1) spipe_add_stage(&w.d, "second", more_stage, NULL);
        if (stages > 2) spipe_add_stage(&w.d, "third", more_stage, NULL);
        ways.push_back(w);
    }
    for (part_t &w : ways) {
        if (kept) SPIPE_CHECK(spipe_pipeline_create(&w.kept, &w.d, NULL));
        for (int k = 0; kept && k < 24; ++k) SPIPE_CHECK(spipe_pipeline_run(w.kept, NULL));
    }
    for (int k = 0; k < runs; ++k) {
        for (part_t &w : ways) {
            const double began = bench_now_ms();
            if (kept)
                SPIPE_CHECK(spipe_pipeline_run(w.kept, &w.r));
            else
                SPIPE_CHECK_RUN(&w.d, &w.r);
            w.ms.push_back(bench_now_ms() - began);
        }
    }
    printf("| %.0f MiB, %s, %d | %.0f KiB |", mib_of(n), kept ? "kept" : "once", stages,
           1024.0 * mib_of(ways[0].r.chunk));
    for (part_t &w : ways) {
        printf(" %.3f (%.3f) |", bench_median(w.ms), w.r.predicted_ms);
        SPIPE_CHECK(spipe_pipeline_destroy(w.kept));
    }
    printf("\n");
    fflush(stdout);
}

static void chunks(const options_t *o) {
    const size_t most = o->smoke ? BENCH_MIB : 16 * BENCH_MIB;
    bench_array_t x = bench_array_t(), y = bench_array_t();
    SPIPE_CHECK(bench_array_need(&x, most, 1));
    SPIPE_CHECK(bench_array_need(&y, most, 1));
    printf("\nPinned, ms (and as predicted), by chunks of the whole:\n\n"
           "| each way, stages | planned chunk | planned | 1 | 2 | 3 | 4 | 5 | 6 | 8 | 12 | 16 |\n"
           "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (int kept = 0; kept < 2; ++kept) {
        for (size_t mib : {1, 2, 4, 16}) {
            if (mib * BENCH_MIB > most) continue;
            for (int stages : {1, 3}) {
                chunk_row((float *)x.at, (float *)y.at, mib * BENCH_MIB / sizeof(float), stages,
                          kept, o->smoke ? 2 : 41);
            }
        }
    }
    bench_array_free(&x);
    bench_array_free(&y);
}

/* ---- Beside each other ----------------------------------------------------------------------- */
enum {
    TEAM = 16,
    FEW = 8
};

typedef enum hand {
    LIBRARY,
    HAND,        /* copy in, kernel, copy out, in the thread's own stream */
    HAND_COPIES, /* no kernel; copies in and out wait for nothing: what the link can do */
    HAND_FEW     /* as HAND, but at most FEW threads do it at once */
} hand_t;

typedef struct way {
    const char *name;
    hand_t hand;
    spipe_schedule_t schedule;
    double chunk_mib; /* 0 = the library chooses, < 0 the whole */
    size_t depth, threads;
} way_t;

static const way_t pinned_ways[] = {
    {"by hand", HAND, SPIPE_ENGINES, 0, 1, 0},
    {"by hand, 8 runs at once", HAND_FEW, SPIPE_ENGINES, 0, 1, 0},
    {"by hand, no kernel, copies out wait for none in", HAND_COPIES, SPIPE_ENGINES, 0, 1, 0},
    {"as planned", LIBRARY, SPIPE_SCHEDULE_AUTO, 0, SPIPE_AUTO, SPIPE_AUTO},
    {"the whole", LIBRARY, SPIPE_ENGINES, -1, 1, SPIPE_AUTO},
    {"16 MiB, 2 slots", LIBRARY, SPIPE_ENGINES, 16, 2, SPIPE_AUTO},
    {"4 MiB, 4 slots", LIBRARY, SPIPE_ENGINES, 4, 4, SPIPE_AUTO},
    {"1 MiB, 4 slots", LIBRARY, SPIPE_ENGINES, 1, 4, SPIPE_AUTO}};

static const way_t pageable_ways[] = {
    {"by hand", HAND, SPIPE_ENGINES, 0, 1, 0},
    {"as planned", LIBRARY, SPIPE_SCHEDULE_AUTO, 0, SPIPE_AUTO, SPIPE_AUTO},
    {"no thread, 0.5 MiB, 4 slots", LIBRARY, SPIPE_ENGINES, 0.5, 4, 0},
    {"no thread, 1 MiB, 4 slots", LIBRARY, SPIPE_ENGINES, 1, 4, 0},
    {"no thread, 2 MiB, 2 slots", LIBRARY, SPIPE_ENGINES, 2, 2, 0},
    {"no thread, 4 MiB, 2 slots", LIBRARY, SPIPE_ENGINES, 4, 2, 0},
    {"1 thread a way, 1 MiB, 4 slots", LIBRARY, SPIPE_ENGINES, 1, 4, 1},
    {"2 threads a way, 1 MiB, 6 slots", LIBRARY, SPIPE_ENGINES, 1, 6, 2},
    {"6 threads a way, 1 MiB, 12 slots", LIBRARY, SPIPE_ENGINES, 1, 12, 6}};

typedef struct member {
    float *x, *y, *dx, *dy;
    size_t n;
    cudaStream_t stream, other;
    spipe_pipeline_t *p;
} member_t;

/* At most so many runs by hand at once. */
static struct gate {
    std::mutex mutex;
    std::condition_variable left;
    int inside = 0;

    void enter(int most) {
        std::unique_lock<std::mutex> lock(mutex);
        left.wait(lock, [this, most] { return inside < most; });
        ++inside;
    }

    void leave() {
        {
            const std::lock_guard<std::mutex> lock(mutex);
            --inside;
        }
        left.notify_one();
    }
} gate;

static void member_begin(member_t *m, const way_t *w, spipe_resources_t *r, int pinned) {
    spipe_desc_t d = describe(m->x, m->y, m->n);
    if (w->hand) {
        SPIPE_CHECK(cudaStreamCreateWithFlags(&m->stream, cudaStreamNonBlocking));
        if (w->hand == HAND_COPIES) {
            SPIPE_CHECK(cudaStreamCreateWithFlags(&m->other, cudaStreamNonBlocking));
        }
        SPIPE_CHECK(cudaMalloc((void **)&m->dx, m->n * sizeof *m->dx));
        SPIPE_CHECK(cudaMalloc((void **)&m->dy, m->n * sizeof *m->dy));
        return;
    }
    d.resources = r;
    d.schedule = w->schedule;
    d.depth = w->depth;
    d.threads = w->threads;
    if (!pinned && w->chunk_mib > 0) d.staging = SPIPE_STAGING_COPY;
    if (w->chunk_mib < 0) d.chunk = m->n;
    if (w->chunk_mib > 0) {
        d.chunk = std::min(m->n, (size_t)(w->chunk_mib * (double)BENCH_MIB) / sizeof(float));
    }
    SPIPE_CHECK(spipe_pipeline_create(&m->p, &d, NULL));
}

static void member_run(member_t *m, const way_t *w) {
    const size_t bytes = m->n * sizeof(float);
    if (!w->hand) {
        SPIPE_CHECK(spipe_pipeline_run(m->p, NULL));
        return;
    }
    if (w->hand == HAND_FEW) gate.enter(FEW);
    SPIPE_CHECK(cudaMemcpyAsync(m->dx, m->x, bytes, cudaMemcpyDefault, m->stream));
    if (w->hand == HAND_COPIES) {
        SPIPE_CHECK(cudaMemcpyAsync(m->y, m->dy, bytes, cudaMemcpyDefault, m->other));
        SPIPE_CHECK(cudaStreamSynchronize(m->other));
    } else {
        SPIPE_CHECK(
            SPIPE_LAUNCH(scale, spipe_blocks(m->n, 256), 256, 0, m->stream, m->dx, m->dy, m->n));
        SPIPE_CHECK(cudaMemcpyAsync(m->y, m->dy, bytes, cudaMemcpyDefault, m->stream));
    }
    SPIPE_CHECK(cudaStreamSynchronize(m->stream));
    if (w->hand == HAND_FEW) gate.leave();
}

static void member_end(member_t *m, const way_t *w) {
    SPIPE_CHECK(spipe_pipeline_destroy(m->p));
    m->p = NULL;
    if (!w->hand) return;
    SPIPE_CHECK(cudaStreamDestroy(m->stream));
    if (w->hand == HAND_COPIES) SPIPE_CHECK(cudaStreamDestroy(m->other));
    SPIPE_CHECK(cudaFree(m->dx));
    SPIPE_CHECK(cudaFree(m->dy));
}

static double team_rate(std::vector<member_t> *members, const way_t *w, spipe_resources_t *r,
                        int pinned, size_t threads, const options_t *o) {
    std::vector<std::thread> team;
    std::atomic<size_t> ready(0), runs(0);
    std::atomic<int> go(0), stop(0);
    double began, took;
    for (size_t k = 0; k < threads; ++k) {
        member_t *m = &(*members)[k];
        team.emplace_back([=, &ready, &runs, &go, &stop] {
            size_t mine = 0;
            member_begin(m, w, r, pinned);
            for (int warm = 0; warm < (o->smoke ? 1 : 12); ++warm) member_run(m, w);
            ++ready;
            while (!go) std::this_thread::yield();
            for (; !stop; ++mine) member_run(m, w);
            runs += mine;
        });
    }
    while (ready < threads) std::this_thread::sleep_for(std::chrono::microseconds(100));
    began = bench_now_ms();
    go = 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(o->smoke ? 5 : 200));
    stop = 1;
    for (std::thread &t : team) t.join();
    took = bench_now_ms() - began;
    for (size_t k = 0; k < threads; ++k) member_end(&(*members)[k], w);
    return 2e-6 * (double)(runs * (*members)[0].n * sizeof(float)) / took;
}

template <size_t Num>
static void beside_table(const way_t (&ways)[Num], size_t bytes, int pinned, spipe_resources_t *r,
                         const options_t *o) {
    std::vector<bench_array_t> x(TEAM), y(TEAM);
    std::vector<member_t> members(TEAM);
    for (size_t k = 0; k < TEAM; ++k) {
        x[k] = y[k] = bench_array_t();
        SPIPE_CHECK(bench_array_need(&x[k], bytes, pinned));
        SPIPE_CHECK(bench_array_need(&y[k], bytes, pinned));
        members[k] = member_t();
        members[k].x = (float *)x[k].at;
        members[k].y = (float *)y[k].at;
        members[k].n = bytes / sizeof(float);
    }
    std::vector<double> rates[Num][2];
    for (int round = 0; round < (o->smoke ? 1 : 5); ++round) {
        for (size_t k = 0; k < Num; ++k) {
            rates[k][0].push_back(team_rate(&members, &ways[k], r, pinned, 1, o));
            rates[k][1].push_back(team_rate(&members, &ways[k], r, pinned, TEAM, o));
        }
    }
    printf("\n%s, %zu KiB each way, GB/s, medians of %zu:\n\n"
           "| way | 1 thread | %d |\n| --- | --- | --- |\n",
           pinned ? "Pinned" : "Pageable", bytes / BENCH_KIB, rates[0][0].size(), (int)TEAM);
    for (size_t k = 0; k < Num; ++k) {
        printf("| %s | %.1f | %.1f |\n", ways[k].name, bench_median(rates[k][0]),
               bench_median(rates[k][1]));
    }
    fflush(stdout);
    for (size_t k = 0; k < TEAM; ++k) {
        bench_array_free(&x[k]);
        bench_array_free(&y[k]);
    }
}

static void beside(const options_t *o) {
    spipe_resources_limits_t l = spipe_resources_limits_default();
    spipe_resources_t *r;
    l.device_bytes = o->smoke ? 64 * BENCH_MIB : 4 * BENCH_GIB;
    l.pinned_bytes = o->smoke ? 64 * BENCH_MIB : BENCH_GIB;
    SPIPE_CHECK(spipe_resources_create(&r, &l, NULL));
    for (size_t mib : {4, 64}) {
        const size_t bytes = o->smoke ? mib * BENCH_KIB : mib * BENCH_MIB;
        beside_table(pinned_ways, bytes, 1, r, o);
        beside_table(pageable_ways, bytes, 0, r, o);
    }
    SPIPE_CHECK(spipe_resources_destroy(r, NULL));
}

int main(int argc, char **argv) {
    options_t o = {0, ""};
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--smoke") == 0) o.smoke = 1;
        if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) o.only = argv[++i];
    }
    const bench_machine_t machine = bench_machine_or_skip(o.smoke);
    bench_machine_print(&machine, stdout);
    if (o.only.empty() || o.only == "rings") rings(&o);
    if (o.only.empty() || o.only == "chunks") chunks(&o);
    if (o.only.empty() || o.only == "beside") beside(&o);
    return 0;
}
