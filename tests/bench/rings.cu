/*  rings.cu -- the library beside the best ring written by hand: pageable arrays and files in the
    page cache to the GPU, pageable arrays there and back.

    make bench-rings BACKEND=cuda ARCH=native     BENCH_ARGS="--quick", "--cpus 4"; all: --help

    THE WORK     in: the sum of the array's or file's words. In and out: the square of each number.
                 The kernels take less time than the copies.
    THE RINGS    A fixed number of threads and two slots of pinned and device memory for each. A
                 thread takes the slot that was issued the longest ago, waits for it, empties it
                 into the output, fills it with the next chunk and issues copy, kernel and copy
                 itself. All use one stream for each of these three, or each thread has one stream.
                 Threads, slots and streams are kept from run to run.
    HOW          Rounds, in which the library and all rings run in random order. The odd rounds
                 choose the ring: the least median. The even ones judge: the ring's median by the
                 library's, so 1 is as fast and more is faster. Before them a kept pipeline runs 45
                 times (20 at 1 GiB and more), so that what it tries is over. First five runs: each
                 round makes a new pipeline and takes the mean of its runs; the ring is the same.
    THE CHECK    Each way's first run, into a poisoned output, is compared with the CPU's result.
                 If one is wrong the exit status is 1. It is 0 if a target is missed.             */
#include "ring_by_hand.h"
#include "streampipe_files.h"

enum {
    ELEMENT = 64, /* bytes */
    FIRST_RUNS = 5
};

typedef struct options {
    int quick, smoke, rounds;
    unsigned cpus; /* 0 = all */
    size_t largest;
    std::string folder, json;
} options_t;

static options_t opt;

typedef struct way {
    std::string name;
    std::function<double()> run; /* ms */
    std::vector<double> ms;
} way_t;

/* Groups of rows and their targets: of the geometric means of the ratios. */
enum {
    IN,
    IN_FIRST,
    IN_BUSY,
    BOTH,
    BOTH_BUSY,
    BOTH_FEW
};

static const struct {
    const char *name;
    double target;
} groups[] = {{"in, kept", 0.97},         {"in, first five runs", 0.80},
              {"in, busy", 0.90},         {"in and out, kept", 0.98},
              {"in and out, busy", 0.90}, {"in and out, --cpus", 0.96}};

/* The library against the chosen ring, both in the even rounds. */
typedef struct row {
    int group;
    std::string work, ring, plan;
    size_t bytes;
    double ms, ring_ms, ratio;
    std::vector<double> all_ms, all_ring_ms; /* of all rounds */
} row_t;

static struct bench {
    bench_machine_t machine;
    std::vector<team_t *> teams;
    std::vector<ring_t> rings;
    std::vector<row_t> rows;
    std::mt19937 rng;
    std::string path; /* of the file */
    int checked, wrong;
} bench;

/* 4, 8 and 12 threads, but no more than there are CPUs; chunks of 1, 2 and 4 MiB. */
static void make_rings(unsigned cpus) {
    const size_t least = opt.smoke ? 16 * BENCH_KIB : BENCH_MIB;
    for (size_t threads : {4u, 8u, 12u}) {
        if (!bench.teams.empty() && bench.teams.back()->threads.size() >= cpus) continue;
        team_t *t = team_new(std::min(threads, (size_t)cpus), 4 * least);
        bench.teams.push_back(t);
        for (size_t chunk : {least, 2 * least, 4 * least}) {
            for (int own : {0, 1}) bench.rings.push_back({t, chunk, own});
        }
    }
}

/* ---- The library ----------------------------------------------------------------------------- */
typedef struct library {
    spipe_file_t file;
    spipe_desc_t d;
    spipe_pipeline_t *kept;
    spipe_report_t report; /* of the kept one's last run */
} library_t;

static cudaError_t stage(const spipe_chunk_t *c, void *user) {
    return launch((const work_t *)user, c->data[0], c->data[1], c->count * ELEMENT, c->stream);
}

static void library_begin(library_t *l, work_t *w, const std::string &path) {
    l->d = spipe_desc_default();
    l->d.count = w->bytes / ELEMENT;
    if (w->fd >= 0) {
        SPIPE_CHECK(spipe_file_open(&l->file, path.c_str(), NULL));
        l->file.length = w->bytes;
        spipe_add_file_input(&l->d, &l->file, ELEMENT);
    } else
        spipe_add_input(&l->d, w->x, ELEMENT);
    if (w->y)
        spipe_add_output(&l->d, w->y, ELEMENT);
    else
        spipe_add_resident(&l->d, &w->got, sizeof w->got, SPIPE_DOWNLOAD);
    spipe_add_stage(&l->d, "work", stage, w);
    if (w->y) spipe_stage_elementwise(&l->d, 0);
    SPIPE_CHECK(spipe_pipeline_create(&l->kept, &l->d, NULL));
}

static void library_end(library_t *l, const work_t *w) {
    SPIPE_CHECK(spipe_pipeline_destroy(l->kept));
    if (w->fd >= 0) spipe_file_close(&l->file);
}

static double run_ms(spipe_pipeline_t *p, spipe_report_t *report) {
    const double began = bench_now_ms();
    SPIPE_CHECK(spipe_pipeline_run(p, report));
    return bench_now_ms() - began;
}

/* The mean of a new pipeline's first runs; making it is not counted. */
static double first_ms(const library_t *l) {
    spipe_pipeline_t *p;
    double ms = 0;
    SPIPE_CHECK(spipe_pipeline_create(&p, &l->d, NULL));
    for (int k = 0; k < FIRST_RUNS; ++k) ms += run_ms(p, NULL) / FIRST_RUNS;
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    return ms;
}

static std::string plan_text(const library_t *l) {
    const spipe_report_t *r = &l->report;
    return std::to_string(r->fill_threads) + "+" + std::to_string(r->drain_threads) + " threads, " +
           std::to_string(r->depth) + " x " + bench_size_text(r->chunk * ELEMENT);
}

/* ---- One row --------------------------------------------------------------------------------- */
static unsigned long long sum_of(const char *x, size_t bytes) {
    std::atomic<unsigned long long> sum(0);
    bench_parallel(bytes / sizeof(unsigned), BENCH_MIB, [=, &sum](size_t begin, size_t end) {
        unsigned long long mine = 0;
        for (size_t i = begin; i < end; ++i) mine += ((const unsigned *)(const void *)x)[i];
        sum += mine;
    });
    return sum;
}

static int is_right(const work_t *w) {
    const float *x = (const float *)(const void *)w->x, *y = (const float *)(const void *)w->y;
    std::atomic<size_t> wrong(0);
    if (!y) return w->got == w->want;
    bench_parallel(w->bytes / sizeof *y, BENCH_MIB, [=, &wrong](size_t begin, size_t end) {
        size_t mine = 0;
        for (size_t i = begin; i < end; ++i) mine += y[i] != x[i] * x[i];
        wrong += mine;
    });
    return wrong == 0;
}

static void checked_run(work_t *w, const way_t *way) {
    w->got = ~w->want;
    if (w->y) SPIPE_CHECK(bench_touch(w->y, w->bytes));
    (void)way->run();
    ++bench.checked;
    if (is_right(w)) return;
    ++bench.wrong;
    printf("WRONG: %s, %s, by %s\n", w->name, bench_size_text(w->bytes).c_str(), way->name.c_str());
}

static int rounds_of(size_t bytes) {
    if (opt.rounds > 0) return opt.rounds;
    if (opt.quick || opt.smoke) return 3;
    if (bytes >= BENCH_GIB) return 8;
    return bytes > 64 * BENCH_MIB ? 20 : 40;
}

static int warm_runs_of(size_t bytes) {
    if (opt.smoke) return 2;
    return bytes >= BENCH_GIB ? 20 : 45;
}

static double gb_per_s(const row_t *r, double ms) { return 1e-6 * (double)r->bytes / ms; }

static void judge(row_t *r, int group, const way_t *library, const std::vector<way_t> &rings) {
    std::vector<std::vector<double>> ms;
    for (const way_t &ring : rings) ms.push_back(ring.ms);
    const size_t best = bench_fastest_in(ms, 0);
    r->group = group;
    r->ring = rings[best].name;
    r->all_ms = library->ms;
    r->all_ring_ms = ms[best];
    r->ms = bench_median(bench_half(library->ms, 1));
    r->ring_ms = bench_median(bench_half(ms[best], 1));
    r->ratio = r->ring_ms / r->ms;
    bench.rows.push_back(*r);
    printf("%-21s %-13s %7s %8.2f %8.2f  %.3f  %-35s %s\n", groups[group].name, r->work.c_str(),
           bench_size_text(r->bytes).c_str(), gb_per_s(r, r->ms), gb_per_s(r, r->ring_ms), r->ratio,
           r->ring.c_str(), r->plan.c_str());
    fflush(stdout);
}

/* A row for the kept pipeline, and one for new ones where `first` is a group, not -1. */
static void measure(work_t *w, int kept, int first) {
    library_t l = library_t();
    std::vector<way_t> ways;
    for (const ring_t &r : bench.rings) {
        ways.push_back({ring_text(&r), [=, &r] { return ring_ms(&r, w); }, {}});
    }
    library_begin(&l, w, bench.path);
    ways.push_back({"the library, kept", [&l] { return run_ms(l.kept, &l.report); }, {}});
    if (first >= 0) ways.push_back({"the library, new", [&l] { return first_ms(&l); }, {}});
    for (const way_t &way : ways) checked_run(w, &way);
    for (int k = 0; k < warm_runs_of(w->bytes); ++k) (void)run_ms(l.kept, NULL);
    for (int k = 0; k < rounds_of(w->bytes); ++k) {
        for (size_t v : bench_order(ways.size(), &bench.rng)) ways[v].ms.push_back(ways[v].run());
    }
    const std::vector<way_t> rings(ways.begin(), ways.begin() + (long)bench.rings.size());
    row_t r = row_t();
    r.work = w->name;
    r.bytes = w->bytes;
    r.plan = plan_text(&l);
    judge(&r, kept, &ways[rings.size()], rings);
    if (first >= 0) judge(&r, first, &ways.back(), rings);
    library_end(&l, w);
}

/* ---- All of it ------------------------------------------------------------------------------- */
static std::vector<size_t> sizes_of(int both) {
    std::vector<size_t> sizes = {64 * BENCH_MIB, 512 * BENCH_MIB, 4 * BENCH_GIB}, some;
    if (both) sizes = {16 * BENCH_MIB, 256 * BENCH_MIB, 4 * BENCH_GIB};
    if (opt.quick) sizes = {64 * BENCH_MIB, 256 * BENCH_MIB};
    if (opt.cpus) sizes = both ? std::vector<size_t>{256 * BENCH_MIB} : std::vector<size_t>();
    if (opt.smoke && !sizes.empty()) sizes = {320 * BENCH_KIB + ELEMENT, BENCH_MIB};
    for (size_t bytes : sizes) {
        if (bytes <= opt.largest) some.push_back(bytes);
    }
    return some;
}

static size_t largest(int both) {
    const std::vector<size_t> sizes = sizes_of(both);
    return sizes.empty() ? 0 : sizes.back();
}

static void remove_file() { (void)remove(bench.path.c_str()); }

/* The file, written and on the disk, so that nothing writes beside what is measured. */
static int make_file(const char *x, size_t bytes) {
    bench.path = opt.folder + "/streampipe_bench_rings." + std::to_string((long)getpid());
    FILE *f = fopen(bench.path.c_str(), "w+b");
    (void)atexit(remove_file);
    if (!f || fwrite(x, 1, bytes, f) != bytes || fflush(f) != 0 || fsync(fileno(f)) != 0) {
        fprintf(stderr, "rings: %s cannot be written; --folder F\n", bench.path.c_str());
        exit(1);
    }
    return dup(fileno(f)); /* the end of the program closes both */
}

static void measure_all(char *x, char *y, int fd, int busy) {
    for (size_t bytes : sizes_of(0)) {
        work_t array = {"in, array", bytes, x, -1, NULL, sum_of(x, bytes), 0};
        work_t file = array;
        file.name = "in, file";
        file.fd = fd;
        for (work_t *w : {&array, &file}) {
            if (busy)
                measure(w, IN_BUSY, -1);
            else
                measure(w, IN, IN_FIRST);
        }
    }
    for (size_t bytes : sizes_of(1)) {
        work_t both = {"in and out", bytes, x, -1, y, 0, 0};
        const int kept = opt.cpus ? BOTH_FEW : BOTH;
        measure(&both, busy ? BOTH_BUSY : kept, -1);
    }
}

static std::vector<bench_target_t> make_targets() {
    std::vector<bench_target_t> targets;
    for (int g = IN; g <= BOTH_FEW; ++g) {
        std::vector<double> ratios;
        for (const row_t &r : bench.rows) {
            if (r.group == g) ratios.push_back(r.ratio);
        }
        if (ratios.empty()) continue;
        targets.push_back({groups[g].name, bench_geometric_mean(ratios), groups[g].target, 0});
    }
    return targets;
}

static void write_json(const std::vector<bench_target_t> &targets) {
    if (opt.json.empty()) return;
    FILE *f = fopen(opt.json.c_str(), "w");
    if (!f) {
        fprintf(stderr, "rings: %s cannot be written\n", opt.json.c_str());
        exit(1);
    }
    fprintf(f, "{");
    bench_machine_json(&bench.machine, f);
    fprintf(f, ", \"cpus\": %u, \"wrong\": %d,\n \"rows\": [", opt.cpus, bench.wrong);
    for (const row_t &r : bench.rows) {
        fprintf(f,
                "%s  {\"group\": \"%s\", \"work\": \"%s\", \"bytes\": %zu, \"gb_per_s\": %.3f, "
                "\"ring_gb_per_s\": %.3f, \"ratio\": %.4f, \"ring\": \"%s\", \"plan\": \"%s\", "
                "\"ms\": [",
                &r == &bench.rows[0] ? "\n" : ",\n", groups[r.group].name, r.work.c_str(), r.bytes,
                gb_per_s(&r, r.ms), gb_per_s(&r, r.ring_ms), r.ratio, r.ring.c_str(),
                r.plan.c_str());
        bench_numbers_json(r.all_ms, f);
        fprintf(f, "], \"ring_ms\": [");
        bench_numbers_json(r.all_ring_ms, f);
        fprintf(f, "]}");
    }
    fprintf(f, "],\n ");
    bench_targets_json(targets, f);
    fprintf(f, "}\n");
    if (fclose(f) != 0) exit(1);
}

static const char USAGE[] =
    "rings: the library beside the best ring by hand\n"
    "  --quick          64 and 256 MiB, 3 rounds\n"
    "  --rounds N       of every row, 2 or more (40 to 64 MiB, 20 to 512 MiB, then 8)\n"
    "  --cpus N         on N CPUs; only 256 MiB in and out\n"
    "  --largest BYTES  leave out what is larger\n"
    "  --folder F       where the file is made (/tmp)\n"
    "  --json FILE      the rows and targets, too\n"
    "  --smoke          tiny, on hostcuda too: tries the program, measures nothing\n";

static void parse(int argc, char **argv) {
    opt.largest = SIZE_MAX;
    opt.folder = "/tmp";
    for (int k = 1; k < argc; ++k) {
        const std::string a = argv[k], value = k + 1 < argc ? argv[k + 1] : "";
        const size_t number = (size_t)strtoull(value.c_str(), NULL, 10);
        k += a != "--quick" && a != "--smoke";
        if (a == "--quick")
            opt.quick = 1;
        else if (a == "--smoke")
            opt.smoke = 1;
        else if (a == "--rounds" && number >= 2)
            opt.rounds = (int)number;
        else if (a == "--cpus" && number > 0)
            opt.cpus = (unsigned)number;
        else if (a == "--largest" && number > 0)
            opt.largest = number;
        else if (a == "--folder" && !value.empty())
            opt.folder = value;
        else if (a == "--json" && !value.empty())
            opt.json = value;
        else {
            fprintf(a == "--help" ? stdout : stderr, "%s", USAGE);
            exit(a == "--help" ? 0 : 2);
        }
    }
}

int main(int argc, char **argv) {
    static bench_busy_t busy;
    bench_array_t x = bench_array_t(), y = bench_array_t();
    const double began = bench_now_ms();
    parse(argc, argv);
    if (opt.cpus && !bench_use_cores(opt.cpus)) {
        fprintf(stderr, "rings: there are no %u CPUs\n", opt.cpus);
        return 2;
    }
    bench.machine = bench_machine_or_skip(opt.smoke);
    bench_machine_print(&bench.machine, stdout);
    if (opt.cpus) printf("on %u CPUs\n", opt.cpus);
    make_rings(opt.cpus ? opt.cpus : std::max(bench.machine.cores, 1u));
    const size_t in = largest(0), both = largest(1);
    SPIPE_CHECK(bench_array_need(&x, std::max(in, both), 0));
    SPIPE_CHECK(bench_array_need(&y, both, 0));
    bench_fill_random((float *)x.at, std::max(in, both) / sizeof(float));
    const int fd = in > 0 ? make_file((char *)x.at, in) : -1;
    printf("GB/s each way; ratio = ring's median / library's, of the even rounds\n"
           "%-21s %-13s %7s %8s %8s  %-5s  %-35s %s\n",
           "group", "work", "size", "library", "ring", "ratio", "ring", "kept pipeline's plan");
    measure_all((char *)x.at, (char *)y.at, fd, 0);
    if (!opt.cpus) {
        bench_busy_begin(&busy, opt.smoke ? 1 : 8);
        measure_all((char *)x.at, (char *)y.at, fd, 1);
        bench_busy_end(&busy);
    }
    for (team_t *t : bench.teams) team_free(t);
    bench_array_free(&x);
    bench_array_free(&y);
    printf("\n%d ways checked against the CPU's results: %d wrong\n", bench.checked, bench.wrong);
    const std::vector<bench_target_t> targets = make_targets();
    printf(
        "groups: geometric means of their rows' ratios (busy: beside 8 threads that never wait)\n");
    (void)bench_targets_print(targets, 1);
    write_json(targets);
    printf("took %.0f s\n", (bench_now_ms() - began) / 1e3);
    return bench.wrong > 0;
}
