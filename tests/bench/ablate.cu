/*  ablate.cu -- what each mechanism of the library gains: the header without it beside the whole
    one, in one process, on the same arrays, run by run in random order.

    make ablate BACKEND=cuda ARCH=native     on a GPU; tests/bench/ablate makes the sides

    usage: ablate [--smoke] [--rounds N] WHOLE.so WITHOUT.so ...
    THE ROWS     arrays, or a file, through an elementwise kernel and back; several rows a group.
    THE FIGURE   the median without the mechanism by the median with it, less 1, in per cent;
                 a group's is the geometric mean of its rows. Above 0 the mechanism gains.
    THE CHECK    each side's first output of a row is compared with the CPU's.
    Prints a line a side: its name and the seven figures, with tabs.                              */
#include "ablate.h"
#include "bench_common.h"

#include <atomic>
#include <dlfcn.h>
#include <unistd.h>

enum {
    SMALL,
    LARGE,
    KEPT,
    ONCE,
    FILES,
    FIXED,
    THREADS,
    NUM_GROUPS
};

static const char *const group_names[] = {"pinned to 4 MiB", "pinned larger", "pageable kept",
                                          "pageable once",   "files",         "chunks of 64 KiB",
                                          "16 threads"};

typedef struct row {
    int group, pinned, kept, threads;
    size_t kib, chunk_kib;
    int inputs;
} row_t;

static const row_t rows[] = {
    {SMALL, 1, 1, 1, 1024, 0, 1},    {SMALL, 1, 0, 1, 1024, 0, 1},
    {SMALL, 1, 1, 1, 4096, 0, 1},    {SMALL, 1, 0, 1, 4096, 0, 1},
    {SMALL, 1, 1, 1, 4096, 0, 3},    {LARGE, 1, 1, 1, 65536, 0, 1},
    {LARGE, 1, 0, 1, 65536, 0, 1},   {LARGE, 1, 1, 1, 262144, 0, 1},
    {KEPT, 0, 1, 1, 4096, 0, 1},     {KEPT, 0, 1, 1, 65536, 0, 1},
    {KEPT, 0, 1, 1, 262144, 0, 1},   {ONCE, 0, 0, 1, 1024, 0, 1},
    {ONCE, 0, 0, 1, 16384, 0, 1},    {ONCE, 0, 0, 1, 65536, 0, 1},
    {FILES, 0, 1, 1, 65536, 0, 1},   {FILES, 0, 1, 1, 262144, 0, 1},
    {FIXED, 1, 1, 1, 16384, 64, 1},  {FIXED, 1, 1, 1, 4096, 64, 3},
    {FIXED, 0, 1, 1, 16384, 64, 1},  {THREADS, 1, 1, 16, 4096, 0, 1},
    {THREADS, 0, 1, 16, 4096, 0, 1},
};

typedef struct side {
    std::string name;
    ablate_create_t create;
    ablate_run_t run;
    ablate_destroy_t destroy;
    std::vector<ablate_kept_t *> kept; /* one for each thread */
    std::vector<double> ms;
} side_t;

static int smoke, rounds = 15;
static std::string path;

static void check(int e, const char *what, const std::string &who) {
    if (e == cudaSuccess) return;
    fprintf(stderr, "ablate: %s: %s: %s\n", who.c_str(), what, cudaGetErrorString((cudaError_t)e));
    exit(1);
}

template <typename Function>
static void find(void *object, const char *name, Function *f) {
    *f = (Function)dlsym(object, name);
    if (*f) return;
    fprintf(stderr, "ablate: %s\n", dlerror());
    exit(1);
}

static side_t side_of(const std::string &file) {
    side_t s = side_t();
    void *object = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    const size_t slash = file.rfind('/') + 1;
    if (!object) {
        fprintf(stderr, "ablate: %s\n", dlerror());
        exit(1);
    }
    s.name = file.substr(slash, file.rfind('.') - slash);
    find(object, "ablate_create", &s.create);
    find(object, "ablate_run", &s.run);
    find(object, "ablate_destroy", &s.destroy);
    return s;
}

/* One run of each thread, all at once; several of each, if threads are many. ms of a run. */
static double run_ms(side_t *s) {
    const int times = s->kept.size() > 1 ? 8 : 1;
    std::vector<std::thread> team;
    const double began = bench_now_ms();
    for (size_t k = 1; k < s->kept.size(); ++k) {
        team.emplace_back([=] {
            for (int i = 0; i < times; ++i) check(s->run(s->kept[k]), "a run", s->name);
        });
    }
    for (int i = 0; i < times; ++i) check(s->run(s->kept[0]), "a run", s->name);
    for (std::thread &t : team) t.join();
    return (bench_now_ms() - began) / times;
}

static void check_output(const ablate_work_t *w, const float *x, const side_t *s) {
    for (size_t i = 0; i < w->count; i += 97) {
        if (w->out[i] == 2.0f * x[i] + 1.0f) continue;
        fprintf(stderr, "ablate: %s: element %zu is %g\n", s->name.c_str(), i, (double)w->out[i]);
        exit(1);
    }
}

/* The medians of all sides. */
static void measure(const row_t *r, std::vector<side_t> *sides, bench_array_t *x,
                    bench_array_t *y) {
    const size_t kib = smoke ? std::min(r->kib, (size_t)256) : r->kib;
    const int threads = smoke ? std::min(r->threads, 2) : r->threads;
    int warm = kib >= 65536 ? 30 : 45;
    const size_t bytes = kib * BENCH_KIB, all = bytes * (size_t)threads;
    std::mt19937 rng(1);
    if (!r->kept || smoke) warm = 1;
    check(bench_array_need(x, all, r->pinned), "memory", "arrays");
    check(bench_array_need(y, all, r->pinned), "memory", "arrays");
    bench_fill_random((float *)x->at, all / sizeof(float));
    if (r->group == FILES) {
        FILE *f = fopen(path.c_str(), "wb");
        if (!f || fwrite(x->at, 1, bytes, f) != bytes || fflush(f) || fsync(fileno(f)) || fclose(f))
            exit(1);
    }
    for (side_t &s : *sides) {
        s.ms.clear();
        for (int k = 0; k < threads; ++k) {
            ablate_work_t w = {bytes / sizeof(float),
                               r->chunk_kib * BENCH_KIB / sizeof(float),
                               (float *)x->at + (size_t)k * bytes / sizeof(float),
                               (float *)y->at + (size_t)k * bytes / sizeof(float),
                               r->group == FILES ? path.c_str() : NULL,
                               r->kept,
                               r->inputs};
            s.kept.push_back(NULL);
            check(s.create(&w, &s.kept.back()), "create", s.name);
            memset(w.out, 0, bytes);
            check(s.run(s.kept.back()), "the first run", s.name);
            check_output(&w, r->group == FILES ? (const float *)x->at : w.in, &s);
        }
        for (int k = 0; k < (threads > 1 ? warm / 8 + 1 : warm); ++k) (void)run_ms(&s);
    }
    for (int k = 0; k < rounds; ++k) {
        for (size_t i : bench_order(sides->size(), &rng)) {
            (*sides)[i].ms.push_back(run_ms(&(*sides)[i]));
        }
    }
    for (side_t &s : *sides) {
        for (ablate_kept_t *k : s.kept) check(s.destroy(k), "destroy", s.name);
        s.kept.clear();
    }
}

int main(int argc, char **argv) {
    std::vector<side_t> sides;
    std::vector<std::vector<std::vector<double>>> ratios;
    bench_array_t x[2] = {}, y[2] = {};
    for (int k = 1; k < argc; ++k) {
        const std::string a = argv[k];
        if (a == "--smoke")
            smoke = 1;
        else if (a == "--rounds" && k + 1 < argc)
            rounds = atoi(argv[++k]);
        else
            sides.push_back(side_of(a));
    }
    if (smoke) rounds = 2;
    if (sides.size() < 2) return 2;
    const bench_machine_t machine = bench_machine_or_skip(smoke);
    bench_machine_print(&machine, stdout);
    path = "/tmp/streampipe_ablate." + std::to_string((long)getpid());
    ratios.assign(sides.size(), std::vector<std::vector<double>>(NUM_GROUPS));
    for (const row_t &r : rows) {
        measure(&r, &sides, &x[r.pinned], &y[r.pinned]);
        const double whole = bench_median(sides[0].ms);
        for (size_t k = 0; k < sides.size(); ++k) {
            ratios[k][(size_t)r.group].push_back(bench_median(sides[k].ms) / whole);
        }
    }
    (void)remove(path.c_str());
    printf("mechanism");
    for (const char *name : group_names) printf("\t%s", name);
    printf("\n");
    for (size_t k = 1; k < sides.size(); ++k) {
        printf("%s", sides[k].name.c_str());
        for (const std::vector<double> &g : ratios[k]) {
            printf("\t%.1f", 100.0 * (bench_geometric_mean(g) - 1.0));
        }
        printf("\n");
    }
    for (int k = 0; k < 2; ++k) {
        bench_array_free(&x[k]);
        bench_array_free(&y[k]);
    }
    return 0;
}
