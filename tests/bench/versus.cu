/*  versus.cu -- an old streampipe.h beside the new one, in one process, on the same arrays, run by
    run in random order: is the new one as fast everywhere?

    make bench-versus                         all rows, about 8 minutes of a quiet GPU
    make bench-versus VERSUS_ARGS="--quick"   32 rows; what there is to choose: --help

    THE WORK     An array goes in, one or three kernels, an array comes out. The kernels' time is
                 set to a multiple (k) of the time that the pinned copy in takes. 3:1: three floats
                 are read for each one written. A row's size is the bytes of the busier way.
    THE SIDES    versus_side.cu compiled twice into shared objects, with the old header (of commit
                 OLD_COMMIT) and with the new one. Both use one CUDA runtime and one context.
    HOW          The host's clock around spipe_pipeline_run (kept) or spipe_run (once), everything
                 idle before it. Kept pipelines first run 45 times, by turns and not timed (20 at 4
                 GiB, and from 256 MiB on if pageable), so that what they try is over. Then each
                 round runs both sides in random order. Speed is the old side's median by the new
                 side's: above 1 the new one is faster. In brackets: 5 % and 95 % of it, pairs and
                 rounds drawn again 400 times. Two kept pipelines over pageable memory differ by
                 where their memory and threads are, so such a row makes up to three pairs, one by
                 one.
    THE CHECK    Once a row each side's output is poisoned, made again, and compared with the CPU's
                 in places and with the other side's whole.
    AGAIN        Of 336 rows some are under their floor by chance alone. So those that are run once
                 more, with twice the rounds, and this second measurement counts instead.
    --busy=N     N threads that never wait run beside: other programs want the CPUs.
    --sweep      The new side alone beside hand-written rings: chunks of 256 KiB to 8 MiB, 4 slots,
                 two kernel streams. Where kernels are the bound (k3), kept, pinned.             */
#include "bench_common.h"
#include "versus_side.h"

#include <dlfcn.h>
#include <limits.h>

#define CUDA(call) check_cuda((call), #call, __LINE__)

static void check_cuda(cudaError_t e, const char *call, int line) {
    if (e == cudaSuccess) return;
    fflush(stdout);
    fprintf(stderr, "versus: line %d: %s: %s\n", line, call, cudaGetErrorString(e));
    exit(1);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

typedef struct row {
    size_t bytes; /* of the input */
    double kernel;
    int pinned, kept, floats, stages;
    versus_work_t work;
    double ms[2], speed, low, high; /* by sides: old, new */
    versus_report_t reports[2];
    int rounds, done;
} row_t;

typedef struct options {
    std::vector<std::string> only;
    double seconds;
    int quick, smoke, sweep, list, rounds, busy;
    unsigned seed;
    std::string tsv;
} options_t;

static options_t opt;
static int round_factor = 1; /* of every row's rounds */

static std::string number_text(double x) {
    char text[32];
    (void)snprintf(text, sizeof text, "%g", x);
    return text;
}

static std::string memory_text(const row_t *r) { return r->pinned ? "pinned" : "pageable"; }

static std::string life_text(const row_t *r) { return r->kept ? "kept" : "once"; }

static std::string kernel_text(const row_t *r) { return "k" + number_text(r->kernel); }

static std::string shape_text(const row_t *r) { return r->floats == 3 ? "3:1" : "1:1"; }

static std::string stages_text(const row_t *r) { return "s" + std::to_string(r->stages); }

static std::string row_text(const row_t *r) {
    char text[96];
    (void)snprintf(text, sizeof text, "%-8s %-4s %6s %-4s %-3s %-2s", memory_text(r).c_str(),
                   life_text(r).c_str(), bench_size_text(r->bytes).c_str(), kernel_text(r).c_str(),
                   shape_text(r).c_str(), stages_text(r).c_str());
    return text;
}

/* What an axis is called on the command line: its words are alternatives, axes are conditions. */
static std::vector<std::string> words_of(const row_t *r) {
    return {memory_text(r), life_text(r),  std::to_string(r->bytes / BENCH_MIB),
            kernel_text(r), shape_text(r), stages_text(r)};
}

static size_t axis_of(const std::string &word) {
    if (word == "pinned" || word == "pageable") return 0;
    if (word == "kept" || word == "once") return 1;
    if (word.find(':') != std::string::npos) return 4;
    if (word[0] == 'k') return 3;
    return word[0] == 's' ? 5 : 2;
}

static int is_wanted(const row_t *r) {
    const std::vector<std::string> words = words_of(r);
    for (size_t axis = 0; axis < words.size(); ++axis) {
        int named = 0, fits = 0;
        for (const std::string &word : opt.only) {
            if (axis_of(word) != axis) continue;
            named = 1;
            fits |= word == words[axis];
        }
        if (named && !fits) return 0;
    }
    return 1;
}

/* Small before large, and one row's neighbours differ in as much as they can, so that a run that
   ends early has seen something of everything. */
static std::vector<row_t> make_rows() {
    std::vector<size_t> sizes;
    std::vector<double> kernels = {0.1, 1, 3};
    std::vector<int> shapes = {1, 3}, stages = {1, 3};
    std::vector<row_t> rows;
    for (size_t mib : {1, 4, 16, 64, 256, 512, 4096}) sizes.push_back(mib * BENCH_MIB);
    if (opt.quick) {
        sizes = {BENCH_MIB, 16 * BENCH_MIB, 64 * BENCH_MIB, 512 * BENCH_MIB};
        kernels = {0.1, 1};
        shapes = stages = {1};
    }
    if (opt.smoke) {
        sizes = {BENCH_MIB, 2 * BENCH_MIB};
        kernels = {1};
    }
    if (opt.sweep) {
        sizes = {16 * BENCH_MIB, 64 * BENCH_MIB, 512 * BENCH_MIB};
        if (opt.smoke) sizes = {2 * BENCH_MIB};
        kernels = {3};
    }
    for (size_t bytes : sizes) {
        for (int s : stages) {
            for (int floats : shapes) {
                for (double kernel : kernels) {
                    for (int which = 0; which < (opt.sweep ? 1 : 4); ++which) {
                        row_t r = row_t();
                        r.bytes = bytes;
                        r.kernel = kernel;
                        r.floats = floats;
                        r.stages = s;
                        r.kept = !(which & 1);
                        r.pinned = !(which & 2);
                        if (is_wanted(&r)) rows.push_back(r);
                    }
                }
            }
        }
    }
    return rows;
}

enum {
    WARM_RUNS = 45
};

static int warm_runs(const row_t *r) {
    if (opt.smoke) return 2;
    if (!r->kept) return 2;
    /* a trial takes up to 20 runs if arrays are staged, else 45, as one of five is of a challenger
     */
    const size_t few_from = (r->pinned ? 1024 : 256) * BENCH_MIB;
    return r->bytes >= few_from ? 20 : WARM_RUNS;
}

static int rounds_of(const row_t *r) {
    const int mib = (int)(r->bytes / BENCH_MIB);
    int rounds = mib <= 512 ? 9 : 3;
    if (mib <= 64) rounds = mib < 16 ? 31 : 15;
    if (opt.smoke) return 3;
    if (opt.rounds) return round_factor * opt.rounds;
    return round_factor * (opt.quick ? rounds * 2 / 3 : rounds);
}

/* Pairs of pipelines that share the rounds. */
static int pairs_of(const row_t *r) {
    if (!r->kept || r->pinned || opt.quick || r->bytes >= BENCH_GIB) return 1;
    return r->bytes > 64 * BENCH_MIB ? 2 : 3;
}

/* A guess, to stop by. */
static double guess_seconds(const row_t *r) {
    const double gb = (double)r->bytes / 1e9, kernel = std::max(1.0, r->kernel) * gb / 48;
    double run = r->pinned ? kernel : std::max(kernel, gb / 25);
    if (!r->kept) run += r->pinned ? 0.002 : 0.004 + gb / 100;
    return 2 * (pairs_of(r) * warm_runs(r) + rounds_of(r)) * (run + 0.0003) + gb / 4;
}

/* ---- Sides ----------------------------------------------------------------------------------- */

static struct side {
    const char *name;
    versus_create_t create;
    versus_run_t run;
    versus_destroy_t destroy;
    versus_once_t once;
    int version;
} sides[2];

template <typename Function>
static void find(void *object, const char *name, Function *f) {
    void *at = dlsym(object, name);
    if (!at) {
        fprintf(stderr, "versus: %s is missing: %s\n", name, dlerror());
        exit(1);
    }
    memcpy((void *)f, (const void *)&at, sizeof at);
}

/* The two shared objects lie beside this program. */
static void load_side(struct side *s, const char *name) {
    char at[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", at, sizeof at - 1);
    if (n < 0) {
        fprintf(stderr, "versus: /proc/self/exe cannot be read\n");
        exit(1);
    }
    at[n] = 0;
    const std::string path = std::string(at) + "_" + name + ".so";
    void *object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        fprintf(stderr, "versus: %s\n", dlerror());
        exit(1);
    }
    versus_version_t version = NULL;
    find(object, "versus_create", &s->create);
    find(object, "versus_run", &s->run);
    find(object, "versus_destroy", &s->destroy);
    find(object, "versus_once", &s->once);
    find(object, "versus_version", &version);
    s->name = name;
    s->version = version();
}

/* ---- Arrays ---------------------------------------------------------------------------------- */

/* Made when first needed, as large as any row of their kind, and kept. */
typedef struct arrays {
    bench_array_t in, out;
} arrays_t;

static struct rig {
    arrays_t arrays[2][2]; /* pageable or pinned; up to 512 MiB or more */
    size_t least[2];       /* bytes of small and of large arrays */
    float *scratch;        /* on the device, to wake it */
    cudaStream_t stream;
    std::mt19937 rng;
    int hostcuda;
} rig;

enum {
    WAKE_FLOATS = 1 << 20
};

static int is_large(const row_t *r) { return r->bytes > 512 * BENCH_MIB; }

static arrays_t *arrays_of(const row_t *r) {
    arrays_t *a = &rig.arrays[r->pinned][is_large(r)];
    const size_t bytes = rig.least[is_large(r)];
    if (a->in.bytes) return a;
    CUDA(bench_array_need(&a->in, bytes, r->pinned));
    CUDA(bench_array_need(&a->out, bytes, r->pinned));
    bench_fill_random((float *)a->in.at, bytes / sizeof(float));
    return a;
}

/* Where in the arrays a row's are: somewhere else for each row, from a boundary of 2 MiB on. */
static void place(row_t *r) {
    const arrays_t *a = arrays_of(r);
    const size_t step = 2 * BENCH_MIB, room = (a->in.bytes - r->bytes) / step + 1;
    r->work.in = (const float *)((const char *)a->in.at + rig.rng() % room * step);
    r->work.out = (float *)((char *)a->out.at + rig.rng() % room * step);
}

static void create_rig(const std::vector<row_t> &rows) {
    for (const row_t &r : rows) {
        size_t *least = &rig.least[is_large(&r)];
        *least = std::max(*least, r.bytes);
    }
    if (!opt.smoke) rig.least[0] = std::max(rig.least[0], 512 * BENCH_MIB);
    CUDA(cudaMalloc((void **)&rig.scratch, WAKE_FLOATS * sizeof(float)));
    CUDA(cudaMemset(rig.scratch, 0, WAKE_FLOATS * sizeof(float)));
    CUDA(cudaStreamCreateWithFlags(&rig.stream, cudaStreamNonBlocking));
    rig.rng.seed(opt.seed);
}

static void destroy_rig() {
    for (auto &kind : rig.arrays) {
        for (arrays_t &a : kind) {
            bench_array_free(&a.in);
            bench_array_free(&a.out);
        }
    }
    CUDA(cudaFree(rig.scratch));
    CUDA(cudaStreamDestroy(rig.stream));
}

/* The GPU is awake and at its clock when a run begins, whatever the host did before. */
static void wake() {
    versus_work_t w = versus_work_t();
    w.floats = 1;
    w.steps[0] = rig.hostcuda ? 1 : 4096;
    const size_t n = rig.hostcuda ? 256 : (size_t)WAKE_FLOATS;
    CUDA(versus_launch(&w, 0, rig.scratch, rig.scratch, n, rig.stream));
    CUDA(cudaDeviceSynchronize());
}

/* ---- How long the kernels are ---------------------------------------------------------------- */

/* Device arrays for calibration, gone before anything is compared. */
static struct lab {
    float *in, *out, *between, *host;
    cudaEvent_t begin, end;
} lab;

static void set_steps(versus_work_t *w, double steps) {
    const unsigned all = (unsigned)(std::min(std::max(steps, 0.0), 4e6) + 0.5);
    for (int s = 0; s < w->stages; ++s) w->steps[s] = all / (unsigned)w->stages;
    w->steps[0] += all % (unsigned)w->stages;
}

template <typename Work>
static double gpu_ms(int times, Work work) {
    std::vector<double> all;
    for (int k = 0; k < 3; ++k) {
        float ms = 0;
        CUDA(cudaEventRecord(lab.begin, rig.stream));
        for (int i = 0; i < times; ++i) work();
        CUDA(cudaEventRecord(lab.end, rig.stream));
        CUDA(cudaEventSynchronize(lab.end));
        CUDA(cudaEventElapsedTime(&ms, lab.begin, lab.end));
        all.push_back((double)ms / times);
    }
    return bench_median(all);
}

static double copy_in_ms(size_t bytes) {
    return gpu_ms(bytes > 64 * BENCH_MIB ? 2 : 10, [=] {
        CUDA(cudaMemcpyAsync(lab.in, lab.host, bytes, cudaMemcpyHostToDevice, rig.stream));
    });
}

static double kernels_ms(versus_work_t *w, double steps) {
    set_steps(w, steps);
    const size_t bytes = w->count * sizeof(float) * (size_t)w->floats;
    return gpu_ms(bytes > 64 * BENCH_MIB ? 2 : 10, [=] {
        for (int s = 0; s < w->stages; ++s) {
            float *to = s == w->stages - 1 ? lab.out : lab.between;
            CUDA(versus_launch(w, s, s ? lab.between : lab.in, to, w->count, rig.stream));
        }
    });
}

/* Sets a row's steps so that all its kernels take `kernel` times the copy in. */
static void calibrate(row_t *r, double copy_ms) {
    const double few = 64, many = 1024, want = r->kernel * copy_ms;
    versus_work_t *w = &r->work;
    if (rig.hostcuda) {
        set_steps(w, 3);
        return;
    }
    (void)kernels_ms(w, many); /* to the clock that it will have */
    const double at_few = kernels_ms(w, few), slope = (kernels_ms(w, many) - at_few) / (many - few);
    double steps = few, ms = at_few;
    for (int k = 0; k < 2 && slope > 0; ++k) {
        steps = std::max(0.0, steps + (want - ms) / slope);
        ms = kernels_ms(w, steps);
    }
    if (slope > 0) set_steps(w, std::max(0.0, steps + (want - ms) / slope));
}

/* All rows' kernels, those of rows that differ in memory and life alone from one measurement. Rows
   over 512 MiB take the steps of 512 MiB: copy and kernels both grow with the bytes. */
static void calibrate_all(std::vector<row_t> *rows) {
    const double begin = bench_now_ms();
    size_t most = 0, copied = 0;
    double copy_ms = 0;
    for (const row_t &r : *rows) most = std::max(most, std::min(r.bytes, 512 * BENCH_MIB));
    CUDA(cudaMalloc((void **)&lab.in, most));
    CUDA(cudaMalloc((void **)&lab.out, most));
    CUDA(cudaMalloc((void **)&lab.between, most));
    CUDA(cudaHostAlloc((void **)&lab.host, most, cudaHostAllocDefault));
    CUDA(cudaMemset(lab.in, 0, most));
    CUDA(cudaEventCreate(&lab.begin));
    CUDA(cudaEventCreate(&lab.end));
    (void)copy_in_ms(most);
    for (size_t k = 0; k < rows->size(); ++k) {
        row_t *r = &(*rows)[k];
        const size_t bytes = std::min(r->bytes, most);
        const row_t *like = k > 0 ? &(*rows)[k - 1] : NULL;
        r->work.floats = r->floats;
        r->work.stages = r->stages;
        r->work.elementwise = 1;
        r->work.count = bytes / sizeof(float) / (size_t)r->floats;
        if (bytes != copied) {
            copy_ms = copy_in_ms(bytes);
            copied = bytes;
        }
        if (like && like->bytes == r->bytes && like->floats == r->floats &&
            like->stages == r->stages && like->kernel == r->kernel) {
            memcpy(r->work.steps, like->work.steps, sizeof r->work.steps);
        } else
            calibrate(r, copy_ms);
        r->work.count = r->bytes / sizeof(float) / (size_t)r->floats;
    }
    CUDA(cudaEventDestroy(lab.begin));
    CUDA(cudaEventDestroy(lab.end));
    CUDA(cudaFree(lab.in));
    CUDA(cudaFree(lab.out));
    CUDA(cudaFree(lab.between));
    CUDA(cudaFreeHost(lab.host));
    printf("kernels' lengths set in %.1f s\n", (bench_now_ms() - begin) / 1e3);
    fflush(stdout);
}

/* ---- Running a side -------------------------------------------------------------------------- */

static void refuse(const row_t *r, const char *side, const char *doing, const char *why) {
    fflush(stdout);
    fprintf(stderr, "versus: %s: the %s side, %s: %s\n", row_text(r).c_str(), side, doing, why);
    exit(1);
}

/* One run by the host's clock, in ms. kept: its pipeline, or NULL for a run of its own. */
static double run_ms(row_t *r, int side, void *kept) {
    const struct side *s = &sides[side];
    versus_report_t *report = &r->reports[side];
    wake();
    const double begin = bench_now_ms();
    const int e = kept ? s->run(kept, report) : s->once(&r->work, report);
    const double ms = bench_now_ms() - begin;
    if (e != cudaSuccess) refuse(r, s->name, "running", report->message);
    return ms;
}

static void *create(row_t *r, int side) {
    void *kept = NULL;
    versus_report_t report = versus_report_t();
    if (!r->kept) return NULL;
    if (sides[side].create(&r->work, &kept, &report) == cudaSuccess) return kept;
    refuse(r, sides[side].name, "making a pipeline", report.message);
    return NULL;
}

static void destroy(row_t *r, int side, void *kept) {
    if (kept && sides[side].destroy(kept) != cudaSuccess) {
        refuse(r, sides[side].name, "destroying a pipeline", "it failed");
    }
}

/* A sum in which every float and its place counts. */
static uint64_t hash_of(const float *at, size_t n) {
    std::atomic<uint64_t> sum(0);
    std::atomic<uint64_t> *into = &sum;
    bench_parallel(n, BENCH_MIB, [=](size_t begin, size_t end) {
        uint64_t mine = 0;
        for (size_t i = begin; i < end; ++i) {
            uint32_t bits;
            memcpy(&bits, at + i, sizeof bits);
            mine += (bits + 1ull) * (i * 0x9E3779B97F4A7C15ull | 1);
        }
        *into += mine;
    });
    return sum;
}

/* All bits one: a NaN that no kernel here makes. */
static void poison(const row_t *r) {
    float *at = r->work.out;
    bench_parallel(r->work.count, BENCH_MIB, [=](size_t begin, size_t end) {
        memset(at + begin, 0xFF, (end - begin) * sizeof(float));
    });
}

static void check_places(const row_t *r, const char *side) {
    const versus_work_t *w = &r->work;
    const size_t places = std::min(w->count, (size_t)128);
    for (size_t k = 0; k <= places; ++k) {
        const size_t i = (size_t)((double)(w->count - 1) * (double)k / (double)places);
        const float want = versus_cpu(w, w->in + i * (size_t)w->floats);
        if (memcmp(&w->out[i], &want, sizeof want) != 0) {
            refuse(r, side, "running", "wrong output: not what the CPU gets");
        }
    }
}

static uint64_t checked_run(row_t *r, int side, void *kept) {
    poison(r);
    (void)run_ms(r, side, kept);
    check_places(r, sides[side].name);
    return hash_of(r->work.out, r->work.count);
}

/* ---- A row ----------------------------------------------------------------------------------- */

/* How the rounds are shared among pairs of pipelines. */
static size_t first_round(const row_t *r, int pair) {
    return (size_t)(rounds_of(r) * pair / pairs_of(r));
}

/* The speed of rounds drawn again: pairs first, since rounds of one pair are alike, then rounds. */
static double draw_speed(const row_t *r, const std::vector<double> ms[2]) {
    std::vector<double> of[2];
    for (int k = 0; k < pairs_of(r); ++k) {
        const int pair = (int)(rig.rng() % (unsigned)pairs_of(r));
        const size_t first = first_round(r, pair), n = first_round(r, pair + 1) - first;
        for (size_t i = 0; i < n; ++i) {
            const size_t round = first + rig.rng() % n;
            for (int side = 0; side < 2; ++side) of[side].push_back(ms[side][round]);
        }
    }
    return bench_median(of[0]) / bench_median(of[1]);
}

static void judge(row_t *r, const std::vector<double> ms[2]) {
    std::vector<double> drawn;
    for (int side = 0; side < 2; ++side) r->ms[side] = bench_median(ms[side]);
    r->speed = r->ms[0] / r->ms[1];
    for (int again = 0; again < 400; ++again) drawn.push_back(draw_speed(r, ms));
    std::sort(drawn.begin(), drawn.end());
    r->low = bench_quantile(drawn, 0.05);
    r->high = bench_quantile(drawn, 0.95);
    r->rounds = (int)ms[0].size();
    r->done = 1;
}

static void run_pair(row_t *r, int rounds, int check, std::vector<double> ms[2]) {
    void *kept[2] = {NULL, NULL};
    for (size_t side : bench_order(2, &rig.rng)) kept[side] = create(r, (int)side);
    for (int k = check ? 1 : 0; k < warm_runs(r); ++k) {
        for (size_t side : bench_order(2, &rig.rng)) (void)run_ms(r, (int)side, kept[side]);
    }
    if (check) {
        const uint64_t old_hash = checked_run(r, 0, kept[0]);
        if (checked_run(r, 1, kept[1]) != old_hash) {
            refuse(r, "new", "running", "wrong output: not what the old side gets");
        }
    }
    for (int k = 0; k < rounds; ++k) {
        for (size_t side : bench_order(2, &rig.rng)) {
            ms[side].push_back(run_ms(r, (int)side, kept[side]));
        }
    }
    for (int side = 0; side < 2; ++side) destroy(r, side, kept[side]);
}

static std::string plan_text(const versus_report_t *p) {
    char text[96], chunk[24];
    const double kib = (double)p->chunk_bytes / 1024;
    (void)snprintf(chunk, sizeof chunk, kib < 1023 ? "%.0fK" : "%.3gM",
                   kib < 1023 ? kib : kib / 1024);
    (void)snprintf(text, sizeof text, "%s %s x %zu%s", p->schedule, chunk, p->depth,
                   !p->staged && p->num_chunks == 1 ? ", whole" : "");
    std::string all = text;
    if (p->staged) all += ", " + std::to_string(p->fill) + "+" + std::to_string(p->drain);
    return all;
}

static void print_heading() {
    printf("\n%-33s %9s %9s  %6s %-14s %3s  %s\n", "row", "old ms", "new ms", "speed",
           "[5 % .. 95 %]", "n", "old plan | new plan (chunk x slots, fill+drain threads)");
    fflush(stdout);
}

static void print_row(const row_t *r) {
    printf("%-33s %9.3f %9.3f  %6.3f [%.3f %.3f]  %3d  %s | %s\n", row_text(r).c_str(), r->ms[0],
           r->ms[1], r->speed, r->low, r->high, r->rounds, plan_text(&r->reports[0]).c_str(),
           plan_text(&r->reports[1]).c_str());
    fflush(stdout);
}

static void run_row(row_t *r) {
    std::vector<double> ms[2];
    const int pairs = pairs_of(r), rounds = rounds_of(r);
    place(r);
    for (int k = 0; k < pairs; ++k) {
        run_pair(r, rounds * (k + 1) / pairs - rounds * k / pairs, k == 0, ms);
    }
    judge(r, ms);
    print_row(r);
}

/* ---- What came of all rows ------------------------------------------------------------------- */

static void print_mean(const std::vector<row_t> &rows, const std::string &name,
                       const std::string &word) {
    double sum = 0, least = 0;
    int n = 0;
    for (const row_t &r : rows) {
        const std::vector<std::string> words = words_of(&r);
        if (!r.done) continue;
        if (!word.empty() && words[axis_of(word)] != word) continue;
        sum += log(r.speed);
        least = n == 0 ? r.speed : std::min(least, r.speed);
        ++n;
    }
    if (n) printf("  %-14s %.3f   least %.3f   %d rows\n", name.c_str(), exp(sum / n), least, n);
}

static void print_two(const std::vector<row_t> &rows, const std::string &a, const std::string &b) {
    std::vector<row_t> some;
    for (const row_t &r : rows) {
        if (words_of(&r)[axis_of(a)] == a) some.push_back(r);
    }
    print_mean(some, a + " " + b, b);
}

static double floor_of(const row_t *r) { return r->bytes >= 16 * BENCH_MIB ? 0.96 : 0.90; }

static int print_summary(std::vector<row_t> rows) {
    int slow = 0;
    printf("\ngeometric means of speed (old ms / new ms)\n");
    print_mean(rows, "all", "");
    for (const char *memory : {"pinned", "pageable"}) {
        for (const char *life : {"kept", "once"}) print_two(rows, memory, life);
    }
    for (const char *word : {"1", "4", "16", "64", "256", "512", "4096"}) {
        print_mean(rows, std::string(word) + " MiB", word);
    }
    for (const char *word : {"k0.1", "k1", "k3", "1:1", "3:1", "s1", "s3"}) {
        print_mean(rows, word, word);
    }
    std::sort(rows.begin(), rows.end(),
              [](const row_t &a, const row_t &b) { return a.speed < b.speed; });
    printf("\nthe slowest rows\n");
    int shown = 0;
    for (const row_t &r : rows) {
        if (r.done && shown++ < 10) print_row(&r);
    }
    printf("\nunder 0.96 (from 16 MiB on) or 0.90\n");
    for (const row_t &r : rows) {
        if (!r.done || r.speed >= floor_of(&r)) continue;
        printf("  %s  %.3f [%.3f %.3f]%s\n", row_text(&r).c_str(), r.speed, r.low, r.high,
               r.high < floor_of(&r) ? "" : "  perhaps by chance");
        ++slow;
    }
    printf("  %d rows\n", slow);
    return slow;
}

static void write_tsv(const std::vector<row_t> &rows) {
    if (opt.tsv.empty()) return;
    FILE *to = fopen(opt.tsv.c_str(), "w");
    if (!to) {
        fprintf(stderr, "versus: %s cannot be written\n", opt.tsv.c_str());
        exit(1);
    }
    fprintf(to, "memory\tlife\tbytes\tkernel\tshape\tstages\told_ms\tnew_ms\tspeed\tlow\thigh\t"
                "old_plan\tnew_plan\n");
    for (const row_t &r : rows) {
        if (!r.done) continue;
        fprintf(to, "%s\t%s\t%zu\t%g\t%s\t%d\t%.4f\t%.4f\t%.4f\t%.4f\t%.4f\t%s\t%s\n",
                memory_text(&r).c_str(), life_text(&r).c_str(), r.bytes, r.kernel,
                shape_text(&r).c_str(), r.stages, r.ms[0], r.ms[1], r.speed, r.low, r.high,
                plan_text(&r.reports[0]).c_str(), plan_text(&r.reports[1]).c_str());
    }
    if (fclose(to) != 0) fprintf(stderr, "versus: %s is not whole\n", opt.tsv.c_str());
}

/* Large rows come last, and are what is left out where time is. */
static void run_rows(std::vector<row_t> *rows, double began) {
    int skipped = 0;
    print_heading();
    for (row_t &r : *rows) {
        const double spent = (bench_now_ms() - began) / 1e3;
        if (opt.seconds > 0 && spent + guess_seconds(&r) > opt.seconds) {
            if (skipped++ == 0) printf("after %.0f s:\n", spent);
            printf("%-33s left out, for lack of time\n", row_text(&r).c_str());
            continue;
        }
        run_row(&r);
        write_tsv(*rows);
    }
    if (skipped) printf("%d rows were left out: --seconds=%.0f\n", skipped, opt.seconds);
}

/* Runs the rows under their floor once more. */
static void run_again(std::vector<row_t> *rows, double began) {
    round_factor = 2;
    printf("\nagain, the rows under their floor:\n");
    for (row_t &r : *rows) {
        const double spent = (bench_now_ms() - began) / 1e3;
        if (!r.done || r.speed >= floor_of(&r)) continue;
        if (opt.seconds > 0 && spent + guess_seconds(&r) > opt.seconds) continue;
        run_row(&r);
    }
    write_tsv(*rows);
}

/* ---- --sweep: beside rings by hand ----------------------------------------------------------- */

enum {
    SLOTS = 4
};

static const size_t MOST_CHUNK = 8 * BENCH_MIB;

static struct hand {
    struct {
        float *in, *out, *between;
        cudaEvent_t in_done, done, out_done;
    } slots[SLOTS];

    cudaStream_t streams[4]; /* in, kernels, kernels, out */
} hand;

static void create_hand() {
    for (auto &s : hand.slots) {
        CUDA(cudaMalloc((void **)&s.in, MOST_CHUNK));
        CUDA(cudaMalloc((void **)&s.out, MOST_CHUNK));
        CUDA(cudaMalloc((void **)&s.between, MOST_CHUNK));
        CUDA(cudaEventCreateWithFlags(&s.in_done, cudaEventDisableTiming));
        CUDA(cudaEventCreateWithFlags(&s.done, cudaEventDisableTiming));
        CUDA(cudaEventCreateWithFlags(&s.out_done, cudaEventDisableTiming));
    }
    for (auto &s : hand.streams) CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
}

static void destroy_hand() {
    for (auto &s : hand.slots) {
        CUDA(cudaFree(s.in));
        CUDA(cudaFree(s.out));
        CUDA(cudaFree(s.between));
        CUDA(cudaEventDestroy(s.in_done));
        CUDA(cudaEventDestroy(s.done));
        CUDA(cudaEventDestroy(s.out_done));
    }
    for (cudaStream_t s : hand.streams) CUDA(cudaStreamDestroy(s));
}

static void ring_chunk(const versus_work_t *w, size_t c, size_t chunk) {
    const size_t first = c * chunk, n = std::min(chunk, w->count - first);
    const size_t floats = (size_t)w->floats;
    const auto *slot = &hand.slots[c % SLOTS];
    const cudaStream_t in = hand.streams[0], out = hand.streams[3];
    const cudaStream_t kernels = hand.streams[1 + c % 2];
    if (c >= SLOTS) CUDA(cudaStreamWaitEvent(in, slot->out_done, 0));
    CUDA(cudaMemcpyAsync(slot->in, w->in + first * floats, n * floats * sizeof(float),
                         cudaMemcpyHostToDevice, in));
    CUDA(cudaEventRecord(slot->in_done, in));
    CUDA(cudaStreamWaitEvent(kernels, slot->in_done, 0));
    for (int s = 0; s < w->stages; ++s) {
        CUDA(versus_launch(w, s, s ? slot->between : slot->in,
                           s == w->stages - 1 ? slot->out : slot->between, n, kernels));
    }
    CUDA(cudaEventRecord(slot->done, kernels));
    CUDA(cudaStreamWaitEvent(out, slot->done, 0));
    CUDA(
        cudaMemcpyAsync(w->out + first, slot->out, n * sizeof(float), cudaMemcpyDeviceToHost, out));
    CUDA(cudaEventRecord(slot->out_done, out));
}

static double ring_ms(const row_t *r, size_t chunk_bytes) {
    const versus_work_t *w = &r->work;
    const size_t chunk = chunk_bytes / sizeof(float) / (size_t)w->floats / 64 * 64;
    wake();
    const double begin = bench_now_ms();
    for (size_t c = 0; c * chunk < w->count; ++c) ring_chunk(w, c, chunk);
    CUDA(cudaStreamSynchronize(hand.streams[3]));
    return bench_now_ms() - begin;
}

/* The rings' chunks from the best on, by the median of five runs. */
static std::vector<size_t> best_rings(const row_t *r) {
    std::vector<std::pair<double, size_t>> found;
    std::vector<size_t> best;
    std::vector<size_t> chunks;
    std::vector<std::vector<double>> ms;
    for (size_t c = 256 * BENCH_KIB; c <= std::min(MOST_CHUNK, r->bytes / 2); c *= 2) {
        chunks.push_back(c);
    }
    ms.resize(chunks.size());
    for (int k = -1; k < 5; ++k) {
        for (size_t c : bench_order(chunks.size(), &rig.rng)) {
            const double taken = ring_ms(r, chunks[c]);
            if (k >= 0) ms[c].push_back(taken);
        }
    }
    for (size_t c = 0; c < chunks.size(); ++c) found.push_back({bench_median(ms[c]), chunks[c]});
    std::sort(found.begin(), found.end());
    for (const auto &f : found) best.push_back(f.second);
    return best;
}

/* Rounds of the new side and the three best rings; how fast the side is in units of the rings'
   best, of which each half of the rounds names the best for the other half. */
static void race(row_t *r, void *kept, const std::vector<size_t> &rings, int rounds,
                 std::vector<std::vector<double>> *ms) {
    ms->resize(1 + rings.size());
    for (int k = 0; k < rounds; ++k) {
        for (size_t v : bench_order(ms->size(), &rig.rng)) {
            (*ms)[v].push_back(v == 0 ? run_ms(r, 1, kept) : ring_ms(r, rings[v - 1]));
        }
    }
}

static bench_spread_t fraction_of(const std::vector<std::vector<double>> &ms) {
    const std::vector<std::vector<double>> rings(ms.begin() + 1, ms.end());
    return bench_spread(bench_ratio(bench_fastest(rings), ms[0]));
}

static void sweep_row(row_t *r) {
    const int many = r->bytes > 64 * BENCH_MIB ? 8 : 14;
    const int runs = opt.smoke ? 2 : many;
    std::vector<std::vector<double>> early, late;
    place(r);
    (void)ring_ms(r, 256 * BENCH_KIB);
    const std::vector<size_t> all = best_rings(r);
    const std::vector<size_t> rings(all.begin(),
                                    all.begin() + (long)std::min(all.size(), (size_t)3));
    for (int pipeline = 0; pipeline < 3; ++pipeline) {
        void *kept = create(r, 1);
        if (pipeline == 0) {
            poison(r);
            (void)ring_ms(r, rings[0]);
            check_places(r, "hand-written");
            (void)checked_run(r, 1, kept);
        } else
            (void)run_ms(r, 1, kept);
        race(r, kept, rings, runs, &early);
        for (int k = 1 + runs; k < (opt.smoke ? 4 : WARM_RUNS); ++k) (void)run_ms(r, 1, kept);
        race(r, kept, rings, (runs + 1) / 2, &late);
        destroy(r, 1, kept);
    }
    const bench_spread_t e = fraction_of(early), l = fraction_of(late);
    printf("%-33s %8.3f %-6s %9.3f  %.3f [%.3f %.3f]  %9.3f  %.3f [%.3f %.3f]  %s\n",
           row_text(r).c_str(), bench_median(late[1]), bench_size_text(rings[0]).c_str(),
           bench_median(early[0]), e.median, e.q1, e.q3, bench_median(late[0]), l.median, l.q1,
           l.q3, plan_text(&r->reports[1]).c_str());
    fflush(stdout);
}

static void run_sweep(std::vector<row_t> *rows) {
    create_hand();
    printf(
        "\nThe new side beside the best hand-written ring: ring's time by the side's, [quartiles]\n"
        "%-33s %8s %-6s %9s  %-21s  %9s  %-21s  %s\n",
        "row", "ring ms", "chunk", "new ms", "from the 2nd run on", "new ms", "from the 45th on",
        "plan at last");
    fflush(stdout);
    for (row_t &r : *rows) sweep_row(&r);
    destroy_hand();
}

/* ---- Arguments ------------------------------------------------------------------------------- */

static const char USAGE[] =
    "versus: an old streampipe.h beside the new one, run by run\n"
    "  --only=WORD,WORD   pinned pageable kept once, MiB (1 4 16 64 256 512 4096), k0.1 k1 k3,\n"
    "                     1:1 3:1, s1 s3; words of a kind are alternatives\n"
    "  --seconds=N        rows that would end later are left out, the largest come last (540)\n"
    "  --quick            32 rows and fewer rounds\n"
    "  --rounds=N         of every row\n"
    "  --sweep            the new side beside hand-written rings, kernels 3 x the copy\n"
    "  --busy=N           beside N threads that never wait, as on a busy machine\n"
    "  --tsv=FILE         the rows for a spreadsheet, too\n"
    "  --seed=N           of the random order\n"
    "  --list             say what would run, and how long\n"
    "  --smoke            tiny, on hostcuda too: tries the program, measures nothing\n";

static void parse(int argc, char **argv) {
    opt.seconds = 540;
    opt.seed = 1;
    for (int k = 1; k < argc; ++k) {
        const std::string a = argv[k], name = a.substr(0, a.find('='));
        const std::string value = name.size() < a.size() ? a.substr(name.size() + 1) : "";
        if (a == "--help" || a == "-h") {
            printf("%s", USAGE);
            exit(0);
        } else if (a == "--quick")
            opt.quick = 1;
        else if (a == "--smoke")
            opt.smoke = 1;
        else if (a == "--sweep")
            opt.sweep = 1;
        else if (a == "--list")
            opt.list = 1;
        else if (name == "--seconds")
            opt.seconds = atof(value.c_str());
        else if (name == "--rounds")
            opt.rounds = atoi(value.c_str());
        else if (name == "--busy")
            opt.busy = atoi(value.c_str());
        else if (name == "--seed")
            opt.seed = (unsigned)atoi(value.c_str());
        else if (name == "--tsv")
            opt.tsv = value;
        else if (name == "--only") {
            for (size_t at = 0; at < value.size();) {
                const size_t end = std::min(value.find(',', at), value.size());
                if (end > at) opt.only.push_back(value.substr(at, end - at));
                at = end + 1;
            }
        } else {
            fprintf(stderr, "versus: %s is no option\n%s", argv[k], USAGE);
            exit(2);
        }
    }
}

static int list(const std::vector<row_t> &rows) {
    double seconds = 10;
    for (const row_t &r : rows) {
        printf("%-33s about %5.1f s\n", row_text(&r).c_str(), guess_seconds(&r));
        seconds += guess_seconds(&r);
    }
    printf("%zu rows, about %.0f s\n", rows.size(), seconds);
    return 0;
}

int main(int argc, char **argv) {
    static bench_busy_t busy;
    const double began = bench_now_ms();
    parse(argc, argv);
    std::vector<row_t> rows = make_rows();
    if (rows.empty()) {
        fprintf(stderr, "versus: no row is left of --only\n");
        exit(2);
    }
    if (opt.list) return list(rows);
    const bench_machine_t machine = bench_machine_or_skip(opt.smoke);
    bench_machine_print(&machine, stdout);
    rig.hostcuda = machine.hostcuda;
    load_side(&sides[0], "old");
    load_side(&sides[1], "new");
    printf("old: version %d, new: version %d\n", sides[0].version, sides[1].version);
    create_rig(rows);
    calibrate_all(&rows);
    if (opt.busy > 0) printf("beside %d threads that never wait\n", opt.busy);
    bench_busy_begin(&busy, opt.busy);
    if (opt.sweep)
        run_sweep(&rows);
    else
        run_rows(&rows, began);
    if (!opt.sweep) run_again(&rows, began);
    bench_busy_end(&busy);
    if (!opt.sweep) (void)print_summary(rows);
    destroy_rig();
    printf("took %.0f s\n", (bench_now_ms() - began) / 1e3);
    return 0;
}
