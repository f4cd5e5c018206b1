/*  many.cu -- many threads run at once: streampipe with resources that they share, without, and by
    hand; a small run beside large ones; what a run takes to set up.

    usage: many [--quick] [--only rates|latency|setup] [--threads N] [--smoke]
                [--work "kept, pinned"]   rates of this work alone
                [--plans]                 what each thread's last run was
    At the end each target with what came out of it; 1 if one was missed (not with --smoke).
    By hand: each thread has a stream of its own and copies the whole in, runs the kernel, copies
    the whole out; kept: with buffers made once, else made and freed each time. Every thread has
    arrays of its own, and every output is compared. GB/s: both directions together, while all
    threads run; the median of the rounds, in which the ways take turns, with the pipelines and
    buffers that they keep.
    peers/torch_threads.py measures PyTorch with the same work.                                  */
#include "bench_common.h"

#include <atomic>
#include <map>
#include <mutex>

enum {
    HAND,
    ALONE,  /* each pipeline makes what it needs */
    SHARED, /* resources */
    KEPT,   /* beside calls of one thread: a pipeline with the same resources and arrays */
    NUM_WAYS,
    LATENCY_MS = 3000 /* the most that a row of latencies takes, from 20 runs on */
};

static const char *const way_names[NUM_WAYS] = {"by hand", "alone", "shared", "kept"};

static std::vector<bench_target_t> targets;

static __global__ void scale(const float *x, float *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i] + 1.0f;
}

SPIPE_MAP_STAGE(scale_stage, scale, float, float)

typedef struct job {
    int way, kept, pinned;
    size_t n; /* elements */
    spipe_priority_t priority;
    spipe_resources_t *resources;
} job_t;

/* What one thread has. */
typedef struct hand {
    bench_array_t x, y;
    spipe_pipeline_t *kept[NUM_WAYS];
    spipe_desc_t d;
    cudaStream_t stream;
    float *dx, *dy;
    size_t runs;
    spipe_report_t last;
    std::vector<double> ms, setup_ms;
} hand_t;

static void describe(hand_t *h, const job_t *j) {
    h->d = spipe_desc_default();
    h->d.count = j->n;
    h->d.priority = j->priority;
    h->d.resources = j->way >= SHARED ? j->resources : NULL;
    spipe_add_input(&h->d, h->x.at, sizeof(float));
    spipe_add_output(&h->d, h->y.at, sizeof(float));
    spipe_stage_elementwise(&h->d, spipe_add_stage(&h->d, "scale", scale_stage, NULL));
}

static void hand_make(hand_t *h) {
    SPIPE_CHECK(cudaStreamCreateWithFlags(&h->stream, cudaStreamNonBlocking));
    SPIPE_CHECK(cudaMalloc((void **)&h->dx, h->x.bytes));
    SPIPE_CHECK(cudaMalloc((void **)&h->dy, h->y.bytes));
}

static void hand_drop(hand_t *h) {
    SPIPE_CHECK(cudaStreamDestroy(h->stream));
    SPIPE_CHECK(cudaFree(h->dx));
    SPIPE_CHECK(cudaFree(h->dy));
}

static void hand_run(hand_t *h, size_t n) {
    const size_t bytes = n * sizeof(float);
    SPIPE_CHECK(cudaMemcpyAsync(h->dx, h->x.at, bytes, cudaMemcpyDefault, h->stream));
    SPIPE_CHECK(SPIPE_LAUNCH(scale, spipe_blocks(n, 256), 256, 0, h->stream, h->dx, h->dy, n));
    SPIPE_CHECK(cudaMemcpyAsync(h->y.at, h->dy, bytes, cudaMemcpyDefault, h->stream));
    SPIPE_CHECK(cudaStreamSynchronize(h->stream));
}

/* Before the first run of a way. */
static void begin(hand_t *h, const job_t *j) {
    const size_t bytes = j->n * sizeof(float);
    SPIPE_CHECK(bench_array_need(&h->x, bytes, j->pinned));
    SPIPE_CHECK(bench_array_need(&h->y, bytes, j->pinned));
    for (size_t i = 0; i < j->n; ++i) ((float *)h->x.at)[i] = (float)(i % 8191);
    describe(h, j);
    if (!j->kept) return;
    if (j->way == HAND)
        hand_make(h);
    else
        SPIPE_CHECK(spipe_pipeline_create(&h->kept[j->way], &h->d, NULL));
}

static void run_once(hand_t *h, const job_t *j) {
    if (j->way == HAND) {
        if (!j->kept) hand_make(h);
        hand_run(h, j->n);
        if (!j->kept) hand_drop(h);
    } else if (j->kept) {
        SPIPE_CHECK(spipe_pipeline_run(h->kept[j->way], &h->last));
    } else {
        SPIPE_CHECK_RUN(&h->d, &h->last);
        h->setup_ms.push_back(h->last.setup_ms);
    }
    ++h->runs;
}

/* Before runs that count. */
static void poison(hand_t *h, const job_t *j) {
    describe(h, j);
    memset(h->y.at, 0xFF, j->n * sizeof(float));
    h->ms.clear();
    h->setup_ms.clear();
}

/* After them. */
static void check(const hand_t *h, const job_t *j) {
    const float *y = (const float *)h->y.at;
    size_t wrong = 0;
    for (size_t i = 0; i < j->n; ++i) wrong += y[i] != 2.0f * (float)(i % 8191) + 1.0f;
    if (wrong == 0) return;
    fprintf(stderr, "%zu of %zu elements are wrong (%s)\n", wrong, j->n, way_names[j->way]);
    exit(1);
}

/* After the last run of a way. */
static void end(hand_t *h, const job_t *j) {
    if (!j->kept) return;
    if (j->way == HAND) hand_drop(h);
    SPIPE_CHECK(spipe_pipeline_destroy(h->kept[j->way]));
    h->kept[j->way] = NULL;
}

/* Threads that run all the time, and what they did in so many seconds of it: each counts from the
   end of its second run to the end of another, and goes on until all have counted. So every run
   that counts has as many beside it, and none begins with resources that nobody uses. They begin
   when all are set up: beside threads that copy pageable memory without end, cudaStreamCreate did
   not return within 9 s (driver 580). */
static double rate(std::vector<hand_t> *hands, const job_t &j, size_t threads, double seconds,
                   int first) {
    std::vector<std::thread> team;
    std::vector<double> rates(threads);
    std::atomic<size_t> ready(0), counted(0);
    std::atomic<int> go(0), stop(0);
    for (size_t k = 0; k < threads; ++k) {
        hand_t *h = &(*hands)[k];
        double *mine = &rates[k];
        team.emplace_back([=, &ready, &counted, &go, &stop] {
            const int trial = first && (j.kept || j.way == SHARED) && j.way != HAND;
            if (first) begin(h, &j);
            poison(h, &j);
            for (int w = 0; w < (trial ? 32 : 2); ++w) run_once(h, &j); /* until a plan is chosen */
            ++ready;
            while (!go) std::this_thread::yield();
            for (int w = 0; w < 2; ++w) run_once(h, &j);
            h->runs = 0;
            const double began = bench_now_ms();
            while (!stop || h->runs == 0) run_once(h, &j);
            *mine = 2e-6 * (double)(h->runs * j.n * sizeof(float)) / (bench_now_ms() - began);
            ++counted;
            while (counted < threads) run_once(h, &j);
            check(h, &j);
        });
    }
    while (ready < threads) std::this_thread::sleep_for(std::chrono::microseconds(100));
    go = 1;
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    stop = 1;
    for (std::thread &t : team) t.join();
    double all = 0.0;
    for (double r : rates) all += r;
    return all;
}

static void drop_arrays(std::vector<hand_t> *hands) {
    for (hand_t &h : *hands) {
        bench_array_free(&h.x);
        bench_array_free(&h.y);
    }
}

typedef struct options {
    int quick, smoke, plans;
    const char *work; /* the only rates to measure; NULL = all */
    size_t threads;   /* 0 = 1 to 64 */
    double seconds;
    int rounds;
} options_t;

/* Rates of one thread with resources, of the sizes measured so far: GB/s, kept and once. */
typedef struct alone {
    job_t job;
    double rate;
} alone_t;

static std::vector<alone_t> one_thread;

static double rate_of_one(const job_t *j, int kept) {
    for (const alone_t &a : one_thread) {
        if (a.job.kept == kept && a.job.pinned == j->pinned && a.job.n == j->n) return a.rate;
    }
    return NAN;
}

/* 16 threads against as many by hand, and against one; one thread's calls against a pipeline. */
static void judge_rate(const job_t *j, size_t threads, const char *name, const double *is) {
    const size_t bytes = j->n * sizeof(float);
    if (threads == 16) {
        targets.push_back(
            {std::string(name) + ": 16 threads, of by hand", is[SHARED] / is[HAND], 1.0, 0});
        targets.push_back({std::string(name) + ": 16 threads, of one alone",
                           is[SHARED] / rate_of_one(j, j->kept), 0.97, 0});
    }
    if (threads != 1) return;
    one_thread.push_back({*j, is[SHARED]});
    if (j->kept || bytes < BENCH_MIB || bytes > 64 * BENCH_MIB) return;
    targets.push_back(
        {std::string(name) + ": one thread, of the pipeline kept", is[SHARED] / is[KEPT], 0.95, 0});
}

static const char *const how[] = {"once", "kept"}, *const memory[] = {"pageable", "pinned"};

static job_t of_way(job_t j, int way) {
    j.way = way;
    if (way == KEPT) j.kept = 1;
    return j;
}

/* The plans of all threads' last runs, each with the number of threads that had it. */
static void print_plans(const std::vector<spipe_report_t> *reports, const char *way) {
    std::map<std::string, std::vector<double>> ms;
    for (const spipe_report_t &r : *reports) {
        char plan[160];
        (void)snprintf(plan, sizeof plan, "%s, %zu KiB x %zu, %zu + %zu threads, %zu runs beside",
                       spipe_schedule_name(r.schedule), r.chunk * sizeof(float) / 1024, r.depth,
                       r.fill_threads, r.drain_threads, r.runs_beside);
        ms[plan].push_back(r.wall_ms);
    }
    for (const auto &m : ms) {
        printf("  %s, %zu threads: %s; run %.3f ms\n", way, m.second.size(), m.first.c_str(),
               bench_median(m.second));
    }
}

static void rate_row(std::vector<hand_t> *hands, const options_t *o, const job_t j,
                     size_t threads) {
    double is[NUM_WAYS] = {0};
    char name[64];
    std::vector<double> rates[NUM_WAYS];
    std::vector<spipe_report_t> last[NUM_WAYS];
    std::mt19937 rng(1);
    const int ways = threads == 1 && !j.kept ? NUM_WAYS : KEPT;
    const int finer = threads == 1 ? 3 : 1; /* more turns, as other machines' work comes and goes */
    for (int turn = 0; turn < finer * o->rounds; ++turn) {
        for (size_t way : bench_order((size_t)ways, &rng)) {
            rates[way].push_back(
                rate(hands, of_way(j, (int)way), threads, o->seconds / finer, turn == 0));
            last[way].clear();
            for (size_t k = 0; k < threads; ++k) last[way].push_back((*hands)[k].last);
        }
    }
    for (int way = 0; way < ways; ++way) {
        const job_t job = of_way(j, way);
        is[way] = bench_median(rates[way]);
        for (size_t k = 0; k < threads; ++k) end(&(*hands)[k], &job);
    }
    printf("| %zu | %s, %s | %zu KiB | %.1f | %.1f | %.1f | %.2f |\n", threads, how[j.kept],
           memory[j.pinned], j.n * sizeof(float) / 1024, is[HAND], is[ALONE], is[SHARED],
           is[SHARED] / is[HAND]);
    for (int w = ALONE; w < ways && o->plans; ++w) print_plans(&last[w], way_names[w]);
    fflush(stdout);
    (void)snprintf(name, sizeof name, "%s, %s, %zu KiB", how[j.kept], memory[j.pinned],
                   j.n * sizeof(float) / 1024);
    judge_rate(&j, threads, name, is);
}

/* What a target is about. */
static int is_asked(size_t bytes, size_t threads) {
    if (bytes == BENCH_MIB) return threads == 1;
    return (bytes == 4 * BENCH_MIB || bytes == 64 * BENCH_MIB) && (threads == 1 || threads == 16);
}

static void rate_table(std::vector<hand_t> *hands, const options_t *o, spipe_resources_t *r) {
    static const size_t all[] = {256 * BENCH_KIB, BENCH_MIB, 4 * BENCH_MIB, 64 * BENCH_MIB,
                                 256 * BENCH_MIB};
    static const size_t counts[] = {1, 4, 16, 64};
    printf("\n| threads | work | each way | by hand | alone | shared | shared / by hand |\n"
           "| --- | --- | --- | --- | --- | --- | --- |\n");
    for (int pinned = 1; pinned >= 0; --pinned) {
        for (int kept = 1; kept >= 0; --kept) {
            const std::string work = std::string(how[kept]) + ", " + memory[pinned];
            if (o->work && work != o->work) continue;
            for (size_t bytes : all) {
                if (o->smoke && bytes != 256 * BENCH_KIB) continue;
                for (size_t threads : counts) {
                    job_t j = {HAND, kept, pinned, bytes / sizeof(float), SPIPE_PRIORITY_DEFAULT,
                               r};
                    if (o->threads && threads != o->threads) continue;
                    if (o->quick && !is_asked(bytes, threads)) continue;
                    if (threads > hands->size() || threads * bytes > 8 * BENCH_GIB) continue;
                    rate_row(hands, o, j, threads);
                }
            }
            drop_arrays(hands);
        }
    }
}

/* Runs of 1 MiB, one after another, by themselves or beside threads that run 1 GiB all the time.
   Returns the 99th percentile, ms. */
static double latency_row(std::vector<hand_t> *hands, const options_t *o, spipe_resources_t *r,
                          int way, size_t beside) {
    const size_t large = o->smoke ? BENCH_MIB : BENCH_GIB;
    const job_t small = {way, 1, 1, BENCH_MIB / sizeof(float), SPIPE_PRIORITY_HIGH, r};
    const job_t big = {way, 1, 1, large / sizeof(float), SPIPE_PRIORITY_LOW, r};
    const int times = o->smoke ? 3 : 2000;
    const int warm = beside ? 4 : 24;
    std::vector<std::thread> team;
    std::atomic<size_t> ready(0);
    std::atomic<int> stop(0);
    hand_t *h = &(*hands)[beside];
    for (size_t k = 0; k < beside; ++k) {
        hand_t *b = &(*hands)[k];
        team.emplace_back([=, &ready, &stop, &big] {
            begin(b, &big);
            poison(b, &big);
            run_once(b, &big);
            ++ready;
            while (!stop) run_once(b, &big);
        });
    }
    begin(h, &small);
    poison(h, &small);
    while (ready < beside) std::this_thread::sleep_for(std::chrono::microseconds(100));
    for (int k = 0; k < warm; ++k) run_once(h, &small);
    const double first = bench_now_ms();
    for (int k = 0; k < times && (k < 20 || bench_now_ms() - first < LATENCY_MS); ++k) {
        const double began = bench_now_ms();
        run_once(h, &small);
        h->ms.push_back(bench_now_ms() - began);
    }
    stop = 1;
    for (std::thread &t : team) t.join();
    std::sort(h->ms.begin(), h->ms.end());
    printf("| %s | %zu | %zu | %.3f | %.3f | %.3f |\n", way_names[way], beside, h->ms.size(),
           bench_quantile(h->ms, 0.5), bench_quantile(h->ms, 0.95), bench_quantile(h->ms, 0.99));
    fflush(stdout);
    check(h, &small);
    end(h, &small);
    for (size_t k = 0; k < beside; ++k) {
        check(&(*hands)[k], &big);
        end(&(*hands)[k], &big);
    }
    return bench_quantile(h->ms, 0.99);
}

static void latency_table(std::vector<hand_t> *hands, const options_t *o, spipe_resources_t *r) {
    printf("\n1 MiB each way, kept, pinned, of a high priority, beside runs of 1 GiB, ms:\n\n"
           "| way | beside | runs | p50 | p95 | p99 |\n"
           "| --- | --- | --- | --- | --- | --- |\n");
    for (int way = 0; way <= SHARED; ++way) {
        const double alone = latency_row(hands, o, r, way, 0);
        const double beside = latency_row(hands, o, r, way, 4);
        if (way != SHARED) continue;
        targets.push_back({"p99 of an urgent run beside four of 1 GiB, of its p99 alone",
                           beside / alone, 5.0, 1});
    }
    drop_arrays(hands);
}

/* One-shot runs from 16 threads; what the report says that setting up took. */
static void setup_table(std::vector<hand_t> *hands, const options_t *o) {
    const size_t threads = std::min((size_t)16, hands->size()), all = o->smoke ? 64 : 100000;
    spipe_resources_limits_t l = spipe_resources_limits_default();
    spipe_resources_usage_t before, after;
    spipe_resources_t *r;
    std::vector<double> ms;
    l.device_bytes = l.pinned_bytes = 64 * BENCH_MIB;
    SPIPE_CHECK(spipe_resources_create(&r, &l, NULL));
    for (int round = 0; round < 2; ++round) { /* what is lent exists by the last tenth */
        const job_t j = {SHARED, 0, 0, BENCH_MIB / 4 / sizeof(float), SPIPE_PRIORITY_DEFAULT, r};
        std::vector<std::thread> team;
        SPIPE_CHECK(spipe_resources_usage(r, &before));
        for (size_t k = 0; k < threads; ++k) {
            hand_t *h = &(*hands)[k];
            const size_t times = (round == 0 ? all / 10 * 9 : all / 10) / threads;
            team.emplace_back([=, &j] {
                begin(h, &j);
                poison(h, &j);
                for (size_t t = 0; t < times; ++t) run_once(h, &j);
                check(h, &j);
            });
        }
        for (std::thread &t : team) t.join();
        SPIPE_CHECK(spipe_resources_usage(r, &after));
        for (size_t k = 0; k < threads; ++k) {
            const std::vector<double> &some = (*hands)[k].setup_ms;
            ms.insert(ms.end(), some.begin(), some.end());
        }
    }
    std::sort(ms.begin(), ms.end());
    printf(
        "\n%zu one-shot runs of 256 KiB, pageable, from %zu threads, resources of 64 MiB: set-up "
        "p50 %.3f ms, p99 %.3f, p99.9 %.3f; in the last tenth threads %zu to %zu, streams %zu to "
        "%zu, events %zu to %zu\n",
        ms.size(), threads, bench_quantile(ms, 0.5), bench_quantile(ms, 0.99),
        bench_quantile(ms, 0.999), before.threads, after.threads, before.streams, after.streams,
        before.events, after.events);
    targets.push_back({"set-up from the shared: p99.9 above the median, ms",
                       bench_quantile(ms, 0.999) - bench_quantile(ms, 0.5), 0.5, 1});
    targets.push_back({"and streams, events and threads that the last tenth of the runs makes",
                       (double)(after.threads - before.threads + after.streams - before.streams +
                                after.events - before.events),
                       0.0, 1});
    SPIPE_CHECK(spipe_resources_destroy(r, NULL));
    drop_arrays(hands);
}

int main(int argc, char **argv) {
    options_t o = {0, 0, 0, NULL, 0, 0.3, 5};
    const char *only = "";
    spipe_resources_limits_t l = spipe_resources_limits_default();
    spipe_resources_t *r;
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--quick") == 0) o.quick = 1;
        if (strcmp(argv[i], "--smoke") == 0) o.smoke = 1;
        if (strcmp(argv[i], "--plans") == 0) o.plans = 1;
        if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) only = argv[++i];
        if (strcmp(argv[i], "--work") == 0 && i + 1 < argc) o.work = argv[++i];
        if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) o.threads = (size_t)atoi(argv[++i]);
    }
    if (o.quick) o.seconds = 0.15;
    if (o.quick) o.rounds = 7;
    if (o.smoke) o = {0, 1, o.plans, o.work, 0, 0.02, 2};
    const bench_machine_t machine = bench_machine_or_skip(o.smoke);
    std::vector<hand_t> hands(o.smoke ? 5 : 64);
    for (hand_t &h : hands) h = hand_t();
    bench_machine_print(&machine, stdout);
    l.device_bytes = o.smoke ? 8 * BENCH_MIB : BENCH_GIB;
    l.pinned_bytes = o.smoke ? 8 * BENCH_MIB : 256 * BENCH_MIB;
    SPIPE_CHECK(spipe_resources_create(&r, &l, NULL));
    if (!*only || strcmp(only, "rates") == 0) rate_table(&hands, &o, r);
    if (!*only || strcmp(only, "latency") == 0) latency_table(&hands, &o, r);
    if (!*only || strcmp(only, "setup") == 0) setup_table(&hands, &o);
    SPIPE_CHECK(spipe_resources_destroy(r, NULL));
    printf("\ntargets\n");
    return bench_targets_print(targets, 1) > 0 && !o.smoke;
}
