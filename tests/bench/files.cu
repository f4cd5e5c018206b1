/*  files.cu -- a file to the GPU: streampipe_files.h beside what an expert writes by hand.

    make bench-files BACKEND=cuda ARCH=native          BENCH_ARGS="--folder /mnt/disk --quick"
                                                        BENCH_ARGS=--sweep, --cached, "--cores 4"
    --quick leaves out what no target asks for: other sizes, mapped files, few threads by hand,
    one thread that reads 4 GiB. --cores: as on a machine with so many. --charts: what the charts
    show, files of 64 KiB to 1 GiB in the page cache, under a minute.

    The work is a kernel that adds up all bytes; every way's sum is compared with the first one's.
    Ways, of each file size, from the page cache:
      kept       a pipeline made once, nothing tuned
      once       spipe_run; up to 1 MiB also with its stage declared replayable (promised), and
                 with resources that are kept (shared); host memory is what the run before freed
      first      up to 1 MiB, once and plain once with memory that is new from the system, as in
                 the first call of a program
      hand T     T threads, each reads (pread) into pinned slots of its own, two of 4 MiB, and
                 copies them on a stream of its own; streams and slots are kept
      least once by hand, up to 1 MiB: what one call takes at least with a stream of its own
      plain      one thread: read into pageable memory, cudaMemcpy, kernel; its memory kept, or
                 made and freed within the time, as that of a single call is
      mapped     the file mapped into memory, pinned, copied by 4 MiB; with and without the pinning
    From the disk (cold) also
      cuFile     spipe_run, the file read by cuFile, where that is there
      dd, fio    reading alone: dd iflag=direct, and 8 reads of 4 MiB at once, where fio is there
    Then entropy_map, file to file (--folder, and --tmpfs, by default /dev/shm), a loop that pulls
    chunks beside a run, the loader of examples/14_loader, and 4 cores. Medians of runs in turn;
    GB/s are the file's bytes over the time of the whole call. At the end each target, met
    or missed; the exit status is 1 if one is missed (not with --smoke).                         */
#include "bench_common.h"
#include "streampipe_files.h"
#include "streampipe_kernels.cuh"

#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

#define main entropy_main

namespace entropy {
#include "../../examples/entropy_map.cu"
}

#undef main

enum {
    CHUNK = 4 << 20,
    BLOCK = 256,
    MOST_THREADS = 16
};

static __global__ void add_kernel(const unsigned char *x, size_t n, unsigned long long *sum) {
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    const uint4 *v = (const uint4 *)x;
    unsigned long long own = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n / 16; i += stride) {
        const unsigned w[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
        for (int k = 0; k < 4; ++k) {
            own += (w[k] & 255) + (w[k] >> 8 & 255) + (w[k] >> 16 & 255) + (w[k] >> 24);
        }
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        for (size_t i = n / 16 * 16; i < n; ++i) own += x[i];
    }
    for (int k = 16; k > 0; k /= 2) own += __shfl_down_sync(0xffffffffu, own, k);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, own); /* from every thread they take 12 us a MiB */
}

static cudaError_t add(const void *x, size_t n, unsigned long long *sum, cudaStream_t stream) {
    unsigned blocks = spipe_blocks(n / 64, BLOCK);
    if (blocks > 1024) blocks = 1024;
    return SPIPE_LAUNCH(add_kernel, blocks, BLOCK, 0, stream, (const unsigned char *)x, n, sum);
}

static cudaError_t add_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return add(c->data[0], c->count * c->elem_bytes[0], SPIPE_BUF(c, 1, unsigned long long),
               c->stream);
}

static cudaError_t keep_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return cudaMemcpyAsync(c->data[1], c->data[0], c->count * c->elem_bytes[0],
                           cudaMemcpyDeviceToDevice, c->stream);
}

/* ---- Targets -------------------------------------------------------------------------------- */
static std::vector<bench_target_t> targets;

/* Printed as they come, too: a run that is cut short has told what it knows. */
static void at_least(const std::string &name, double got, double want) {
    targets.push_back({name, got, want, 0});
    bench_target_print(targets.back());
}

/* Why a target has no row here. */
static void not_measured(const char *name, const char *why) {
    targets.push_back({std::string(name) + ": " + why, NAN, NAN, 0});
    bench_target_print(targets.back());
}

static int print_targets(size_t bytes) {
    printf("\ntargets, of a file of %zu MiB where no other size is said\n", bytes / BENCH_MIB);
    return bench_targets_print(targets, 1);
}

/* ---- The ways ------------------------------------------------------------------------------- */
typedef struct world {
    std::string folder, name;
    size_t bytes;
    int cold;                     /* 1 = dropped from the page cache before each run */
    unsigned long long want, got; /* sums of all bytes */
    std::string how;              /* of the last run of streampipe */
    std::vector<double> setup_ms; /* of the runs of streampipe in the table, ms */
    spipe_file_way_t way;         /* likewise */
    unsigned cores;
    size_t main_bytes; /* the file that targets are about: 4 GiB */
    int quick;         /* 1 = only what the targets ask for */
    int charts;        /* 1 = only what the charts show */
    size_t fewest;     /* threads by hand */
    spipe_resources_t *resources;
} world_t;

static void drop(const world_t *w) {
    const int fd = open(w->name.c_str(), O_RDONLY);
    if (fd < 0) exit(1);
    (void)fsync(fd);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

/* A pipeline over the file; kept over runs, or for one. */
typedef struct reader {
    spipe_file_t file;
    spipe_pipeline_t *p;
    unsigned long long sum;
} reader_t;

static spipe_desc_t describe(reader_t *r, const world_t *w, spipe_file_way_t way,
                             int replayable = 0) {
    spipe_desc_t d = spipe_desc_default();
    SPIPE_CHECK(spipe_file_open(&r->file, w->name.c_str(), NULL));
    r->file.way = way;
    spipe_add_file_input(&d, &r->file, 64);
    spipe_add_resident(&d, &r->sum, sizeof r->sum, SPIPE_DOWNLOAD);
    const int stage = spipe_add_stage(&d, "add", add_stage, NULL);
    if (replayable) spipe_stage_replayable(&d, stage);
    return d;
}

static std::string plan_of(const spipe_report_t *r) {
    char text[300];
    snprintf(text, sizeof text, "%zu threads, %zu x %zu KiB, set-up %.2f + %.2f ms, %s",
             r->fill_threads, r->depth, r->chunk * 64 / 1024, r->setup_ms, r->wall_ms,
             r->why_staging);
    return text;
}

/* The least, the median and the most. */
static std::string spread_text(std::vector<double> x) {
    char text[64];
    std::sort(x.begin(), x.end());
    snprintf(text, sizeof text, "%.2f to %.2f to %.2f ms", x[0], x[x.size() / 2], x.back());
    return text;
}

static double once(world_t *w, spipe_file_way_t way, int replayable = 0,
                   spipe_resources_t *resources = NULL) {
    reader_t r;
    spipe_report_t report;
    const double began = bench_now_ms();
    spipe_desc_t d = describe(&r, w, way, replayable);
    d.resources = resources;
    SPIPE_CHECK_RUN(&d, &report);
    w->way = r.file.way_used;
    spipe_file_close(&r.file);
    const double took = bench_now_ms() - began;
    w->got = r.sum;
    w->setup_ms.push_back(report.setup_ms);
    w->how = plan_of(&report) + ", set-ups " + spread_text(w->setup_ms);
    return took;
}

static double kept(world_t *w, reader_t *r) {
    spipe_report_t report;
    const double began = bench_now_ms();
    SPIPE_CHECK(spipe_pipeline_run(r->p, &report));
    const double took = bench_now_ms() - began;
    w->got = r->sum;
    w->how = plan_of(&report);
    return took;
}

/* One thread's stream and slots. */
typedef struct hand {
    cudaStream_t stream;
    cudaEvent_t done[2];
    void *pinned[2], *device[2];
    unsigned long long *sum;
} hand_t;

static void hand_new(hand_t *h) {
    SPIPE_CHECK(cudaStreamCreateWithFlags(&h->stream, cudaStreamNonBlocking));
    for (int k = 0; k < 2; ++k) {
        SPIPE_CHECK(cudaEventCreateWithFlags(&h->done[k], cudaEventDisableTiming));
        SPIPE_CHECK(cudaHostAlloc(&h->pinned[k], CHUNK, cudaHostAllocDefault));
        SPIPE_CHECK(cudaMalloc(&h->device[k], CHUNK));
    }
    SPIPE_CHECK(cudaMalloc((void **)&h->sum, sizeof *h->sum));
}

static void hand_free(hand_t *h) {
    for (int k = 0; k < 2; ++k) {
        SPIPE_CHECK(cudaEventDestroy(h->done[k]));
        SPIPE_CHECK(cudaFreeHost(h->pinned[k]));
        SPIPE_CHECK(cudaFree(h->device[k]));
    }
    SPIPE_CHECK(cudaFree(h->sum));
    SPIPE_CHECK(cudaStreamDestroy(h->stream));
}

/* Every threads-th chunk, from number k on. direct: past the page cache, and then chunks must be
   whole pages, so the last one is read through it. */
static void hand_part(hand_t *h, int fd, int direct, size_t bytes, size_t k, size_t threads) {
    size_t round = 0;
    SPIPE_CHECK(cudaMemsetAsync(h->sum, 0, sizeof *h->sum, h->stream));
    for (size_t at = k * CHUNK; at < bytes; at += threads * CHUNK, ++round) {
        const size_t n = std::min((size_t)CHUNK, bytes - at), s = round % 2;
        const int use = direct >= 0 && n == CHUNK ? direct : fd;
        if (round >= 2) SPIPE_CHECK(cudaEventSynchronize(h->done[s]));
        bench_read(use, h->pinned[s], n, at);
        SPIPE_CHECK(
            cudaMemcpyAsync(h->device[s], h->pinned[s], n, cudaMemcpyHostToDevice, h->stream));
        SPIPE_CHECK(add(h->device[s], n, h->sum, h->stream));
        SPIPE_CHECK(cudaEventRecord(h->done[s], h->stream));
    }
    SPIPE_CHECK(cudaStreamSynchronize(h->stream));
}

static double by_hand(world_t *w, std::vector<hand_t> &hands, size_t threads, int use_direct) {
    const double began = bench_now_ms();
    const int fd = open(w->name.c_str(), O_RDONLY);
    const int direct = use_direct ? open(w->name.c_str(), O_RDONLY | O_DIRECT) : -1;
    std::vector<std::thread> others;
    unsigned long long sum;
    for (size_t k = 1; k < threads; ++k) {
        others.emplace_back([&, k] { hand_part(&hands[k], fd, direct, w->bytes, k, threads); });
    }
    hand_part(&hands[0], fd, direct, w->bytes, 0, threads);
    for (std::thread &t : others) t.join();
    w->got = 0;
    for (size_t k = 0; k < threads; ++k) {
        SPIPE_CHECK(cudaMemcpy(&sum, hands[k].sum, sizeof sum, cudaMemcpyDeviceToHost));
        w->got += sum;
    }
    close(fd);
    if (direct >= 0) close(direct);
    return bench_now_ms() - began;
}

/* h and pageable are kept, or made and freed within the call (fresh), as a single call has to. */
static double plain(world_t *w, hand_t kept, std::vector<char> *pageable, int fresh) {
    const double began = bench_now_ms();
    const size_t room = std::min((size_t)CHUNK, w->bytes);
    const int fd = open(w->name.c_str(), O_RDONLY);
    hand_t *h = &kept;
    char *own = fresh ? (char *)malloc(room) : NULL;
    char *to = fresh ? own : pageable->data();
    if (!to) exit(1);
    if (fresh) {
        SPIPE_CHECK(cudaMalloc(&h->device[0], room));
        SPIPE_CHECK(cudaMalloc((void **)&h->sum, sizeof *h->sum));
    }
    SPIPE_CHECK(cudaMemset(h->sum, 0, sizeof *h->sum));
    for (size_t at = 0; at < w->bytes; at += CHUNK) {
        const size_t n = std::min((size_t)CHUNK, w->bytes - at);
        bench_read(fd, to, n, at);
        SPIPE_CHECK(cudaMemcpy(h->device[0], to, n, cudaMemcpyHostToDevice));
        SPIPE_CHECK(add(h->device[0], n, h->sum, cudaStreamLegacy));
    }
    SPIPE_CHECK(cudaMemcpy(&w->got, h->sum, sizeof w->got, cudaMemcpyDeviceToHost));
    if (fresh) {
        SPIPE_CHECK(cudaFree(h->device[0]));
        SPIPE_CHECK(cudaFree(h->sum));
        free(own);
    }
    close(fd);
    return bench_now_ms() - began;
}

/* A call whose memory is new from the system: the heap has given back what was freed. Afterwards it
   has so many bytes again, so that the next way finds it as it was. */
static double with_new_memory(size_t bytes, const std::function<double(void)> &call) {
    (void)malloc_trim(0);
    const double took = call();
    volatile char *const again = (volatile char *)malloc(bytes);
    for (size_t at = 0; again && at < bytes; at += 4096) again[at] = 1;
    free((void *)again);
    return took;
}

/* The least that one call can do with a stream that it may hand on: made for the call, as is the
   memory; the file in two parts, so that half as much memory is touched. */
static double least_once(world_t *w) {
    const double began = bench_now_ms();
    const int fd = open(w->name.c_str(), O_RDONLY);
    const size_t part = (w->bytes + 1) / 2;
    char *own = (char *)malloc(part), *device;
    cudaStream_t stream;
    if (!own) exit(1);
    SPIPE_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    SPIPE_CHECK(cudaMalloc((void **)&device, part + 512 + sizeof(unsigned long long)));
    unsigned long long *sum = (unsigned long long *)(device + (part + 511) / 512 * 512);
    SPIPE_CHECK(cudaMemsetAsync(sum, 0, sizeof *sum, stream));
    for (size_t at = 0; at < w->bytes; at += part) {
        const size_t n = std::min(part, w->bytes - at);
        bench_read(fd, own, n, at);
        SPIPE_CHECK(cudaMemcpyAsync(device, own, n, cudaMemcpyHostToDevice, stream));
        SPIPE_CHECK(add(device, n, sum, stream));
    }
    SPIPE_CHECK(cudaMemcpyAsync(&w->got, sum, sizeof w->got, cudaMemcpyDeviceToHost, stream));
    SPIPE_CHECK(cudaStreamSynchronize(stream));
    SPIPE_CHECK(cudaFree(device));
    SPIPE_CHECK(cudaStreamDestroy(stream));
    free(own);
    close(fd);
    return bench_now_ms() - began;
}

/* Returns the time of the whole, and of the copies alone. */
static double mapped(world_t *w, hand_t *h, double *copies_ms) {
    const double began = bench_now_ms();
    const int fd = open(w->name.c_str(), O_RDONLY);
    char *at = (char *)mmap(NULL, w->bytes, PROT_READ, MAP_SHARED, fd, 0);
    double copies, took;
    if (at == MAP_FAILED) exit(1);
    if (cudaHostRegister(at, w->bytes, cudaHostRegisterReadOnly) != cudaSuccess) {
        (void)cudaGetLastError();
        munmap(at, w->bytes);
        close(fd);
        return *copies_ms = NAN;
    }
    copies = bench_now_ms();
    SPIPE_CHECK(cudaMemsetAsync(h->sum, 0, sizeof *h->sum, h->stream));
    for (size_t k = 0; k * CHUNK < w->bytes; ++k) {
        const size_t n = std::min((size_t)CHUNK, w->bytes - k * CHUNK);
        SPIPE_CHECK(cudaMemcpyAsync(h->device[k % 2], at + k * CHUNK, n, cudaMemcpyHostToDevice,
                                    h->stream));
        SPIPE_CHECK(add(h->device[k % 2], n, h->sum, h->stream));
    }
    SPIPE_CHECK(cudaStreamSynchronize(h->stream));
    *copies_ms = bench_now_ms() - copies;
    SPIPE_CHECK(cudaMemcpy(&w->got, h->sum, sizeof w->got, cudaMemcpyDeviceToHost));
    SPIPE_CHECK(cudaHostUnregister(at));
    took = bench_now_ms() - began;
    munmap(at, w->bytes);
    close(fd);
    return took;
}

/* entropy_map as its user has it, but that CUDA is started: all of its main, without its words. */
static double entropy_ms(world_t *w) {
    std::string file = w->name, map = w->name + ".pgm";
    char program[] = "entropy_map", option[] = "-o";
    char *argv[] = {program, &file[0], option, &map[0], NULL};
    const int out = dup(1), err = dup(2), nowhere = open("/dev/null", O_WRONLY);
    double began;
    fflush(stdout);
    (void)dup2(nowhere, 1);
    (void)dup2(nowhere, 2); /* nor a progress bar */
    began = bench_now_ms();
    const int failed = entropy::entropy_main(4, argv);
    fflush(stdout);
    const double took = bench_now_ms() - began;
    (void)dup2(out, 1);
    (void)dup2(err, 2);
    close(out);
    close(err);
    close(nowhere);
    (void)remove(map.c_str());
    w->got = w->want;
    return failed ? NAN : took;
}

/* Reading alone, by dd: one read at a time. */
static double dd_ms(world_t *w) {
    const std::string dd = "dd if='" + w->name + "' of=/dev/null bs=4M iflag=direct 2>/dev/null";
    const double began = bench_now_ms();
    w->got = w->want;
    return system(dd.c_str()) == 0 ? bench_now_ms() - began : NAN;
}

/* By fio: 8 reads at once; its own time. */
static double fio_ms(world_t *w) {
    const std::string line = bench_first_line(
        ("fio --name=x --readonly --rw=read --direct=1 --ioengine=libaio --iodepth=8 --bs=" +
         std::to_string(std::min((size_t)CHUNK, w->bytes)) + " --output-format=terse --filename='" +
         w->name + "' 2>/dev/null | cut -d ';' -f 7")
            .c_str());
    const double kib = atof(line.c_str()); /* a second */
    w->got = w->want;
    return kib > 0.0 ? (double)w->bytes / 1.024 / kib : NAN;
}

/* ---- Tables --------------------------------------------------------------------------------- */
static double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

/* A way, and what its runs took. */
typedef struct way {
    std::string name, how;
    std::function<double()> run;
    std::vector<double> ms;
    double gbs;
} way_t;

/* Runs all ways in rounds, each in a random order, since a way may profit or suffer from the one
   before; every sum must be the same. A way that cannot be measured has NAN. */
static void measure(world_t *w, std::vector<way_t> &ways, int times) {
    static std::mt19937 rng(1);
    std::vector<size_t> all;
    for (int k = 0; k < times; ++k) {
        for (size_t way : bench_order(ways.size(), &rng)) all.push_back(way);
    }
    for (size_t way : all) {
        way_t &y = ways[way];
        if (w->cold) drop(w);
        const double took = y.run();
        y.ms.push_back(took);
        if (std::isnan(took)) continue;
        if (w->want == 0) w->want = w->got;
        if (w->got != w->want) {
            fprintf(stderr, "%s, %s: the sum is %llu, not %llu\n", w->name.c_str(), y.name.c_str(),
                    w->got, w->want);
            exit(1);
        }
    }
    for (way_t &y : ways) {
        const bool failed = std::any_of(y.ms.begin(), y.ms.end(), [](double x) { return x != x; });
        y.gbs = failed ? NAN : 1e-6 * (double)w->bytes / median(y.ms);
    }
}

static double rate_of(const std::vector<way_t> &ways, const char *name) {
    for (const way_t &y : ways) {
        if (y.name == name) return y.gbs;
    }
    return NAN;
}

/* Of those whose names begin so. */
static double best_of(const std::vector<way_t> &ways, const char *begin) {
    double best = 0.0;
    for (const way_t &y : ways) {
        if (y.name.compare(0, strlen(begin), begin) == 0 && y.gbs > best) best = y.gbs;
    }
    return best;
}

static void make_file(world_t *w, size_t bytes) {
    std::vector<float> part(BENCH_MIB);
    const size_t step = part.size() * sizeof(float);
    FILE *f = fopen(w->name.c_str(), "wb");
    if (!f) exit(1);
    for (size_t at = 0; at < bytes; at += step) {
        const size_t n = std::min(step, bytes - at);
        for (size_t i = 0; i < n / sizeof(float); ++i) part[i] = bench_random_float(at + i);
        if (fwrite(part.data(), 1, n, f) != n) exit(1);
    }
    if (fclose(f) != 0) exit(1);
    w->bytes = bytes;
    w->want = 0;
}

static void print_ways(const std::vector<way_t> &ways) {
    const double best = best_of(ways, "hand");
    for (const way_t &y : ways) {
        if (std::isnan(y.gbs)) {
            printf("  %-10s not here     %s\n", y.name.c_str(), y.how.c_str());
            continue;
        }
        printf("  %-10s %7.2f GB/s", y.name.c_str(), y.gbs);
        if (y.name.compare(0, 7, "writing") != 0)
            printf("  %.2f of the best by hand", y.gbs / best);
        printf("  %s\n", y.how.c_str());
    }
    fflush(stdout);
}

/* What streampipe says of its last run goes behind its row. */
static std::function<double()> told(world_t *w, std::string *how, std::function<double()> run) {
    return [=] {
        const double took = run();
        *how = w->how;
        return took;
    };
}

/* The fastest of many ways that were measured three times was also lucky. So it runs again, by
   turns with spipe_run, and these runs count. */
static void judge_cold(world_t *w, const std::vector<way_t> &ways, int times) {
    std::vector<way_t> two;
    const way_t *best = NULL;
    for (const way_t &y : ways) {
        if (y.name == "once") two.push_back(y);
        if (y.name.compare(0, 4, "hand") != 0 && y.name != "dd" && y.name != "fio") continue;
        if (!best || y.gbs > best->gbs) best = std::isnan(y.gbs) ? best : &y;
    }
    if (!best) return;
    two.push_back(*best);
    for (way_t &y : two) y.ms.clear();
    measure(w, two, times);
    printf("  again, by turns: once %.2f GB/s, %s %.2f\n", two[0].gbs, two[1].name.c_str(),
           two[1].gbs);
    at_least("cold, once: of reading by fio, dd or threads by hand", two[0].gbs / two[1].gbs, 0.95);
}

static void judge_reading(const world_t *w, const std::vector<way_t> &ways) {
    const double hand = best_of(ways, "hand"), kept_gbs = rate_of(ways, "kept");
    const double once_gbs = rate_of(ways, "once");
    if (w->bytes == BENCH_MIB) {
        at_least("1 MiB, page cache, once: of read + cudaMemcpy, once",
                 once_gbs / rate_of(ways, "plain once"), 1.0);
        at_least("the same, of a stage that is declared replayable",
                 rate_of(ways, "promised") / rate_of(ways, "plain once"), 1.0);
        at_least("the same, with memory that is new from the system",
                 rate_of(ways, "first") / rate_of(ways, "first plain"), 1.0);
    }
    if (w->bytes != w->main_bytes) return;
    at_least("page cache through a kernel, kept: of the best by hand", kept_gbs / hand, 0.95);
    if (hand >= 50.0)
        at_least("the same, GB/s", kept_gbs, 45.0);
    else
        not_measured("the same, GB/s", "threads by hand do not reach 50 here");
    at_least("entropy_map, the whole program: of the best by hand", rate_of(ways, "entropy") / hand,
             0.85);
}

static void read_table(world_t *w, std::vector<hand_t> &hands, int times) {
    static std::vector<char> pageable(CHUNK);
    std::string once_how, kept_how, cufile_how;
    std::vector<double> copies;
    std::vector<way_t> ways;
    reader_t r;
    printf("%zu KiB, %s\n", w->bytes / 1024, w->cold ? "from the disk" : "page cache");
    for (size_t threads = w->fewest; threads <= hands.size(); threads *= 2) {
        ways.push_back({"hand " + std::to_string(threads),
                        w->cold ? "O_DIRECT" : "",
                        [=, &hands] { return by_hand(w, hands, threads, w->cold); },
                        {},
                        0.0});
    }
    if (w->cold) drop(w); /* it is asked for when the file is added */
    const spipe_desc_t d = describe(&r, w, SPIPE_FILE_AUTO);
    SPIPE_CHECK(spipe_pipeline_create(&r.p, &d, NULL));
    if (!w->cold) { /* its trial */
        for (int k = 0; k < 24; ++k) (void)kept(w, &r);
    }
    w->setup_ms.clear();
    ways.push_back(
        {"once", "", told(w, &once_how, [=] { return once(w, SPIPE_FILE_AUTO); }), {}, 0.0});
    ways.push_back({"kept", "", told(w, &kept_how, [=, &r] { return kept(w, &r); }), {}, 0.0});
    if (w->cold) {
        ways.push_back({"cuFile",
                        "",
                        told(w, &cufile_how,
                             [=] {
                                 const double took = once(w, SPIPE_FILE_GPU);
                                 return w->way == SPIPE_FILE_GPU ? took : NAN;
                             }),
                        {},
                        0.0});
        ways.push_back({"dd", "reading alone", [=] { return dd_ms(w); }, {}, 0.0});
        ways.push_back({"fio", "reading alone", [=] { return fio_ms(w); }, {}, 0.0});
    } else if (!w->quick || w->bytes < BENCH_GIB) {
        ways.push_back({"plain",
                        "read + cudaMemcpy",
                        [=, &hands] { return plain(w, hands[0], &pageable, 0); },
                        {},
                        0.0});
        ways.push_back({"plain once",
                        "with its memory",
                        [=, &hands] { return plain(w, hands[0], &pageable, 1); },
                        {},
                        0.0});
        if (!w->quick && !w->charts) {
            ways.push_back({"mapped",
                            "with its pinning",
                            [=, &hands, &copies] {
                                copies.push_back(0.0);
                                return mapped(w, &hands[0], &copies.back());
                            },
                            {},
                            0.0});
        }
    }
    if (!w->cold && w->bytes <= BENCH_MIB) {
        ways.push_back({"promised",
                        "once, its stage declared replayable",
                        [=] { return once(w, SPIPE_FILE_AUTO, 1); },
                        {},
                        0.0});
        ways.push_back({"least once",
                        "by hand: a stream, and memory for half of the file, made for the call",
                        [=] { return least_once(w); },
                        {},
                        0.0});
        ways.push_back(
            {"first",
             "once, its memory new from the system",
             [=] { return with_new_memory(w->bytes, [=] { return once(w, SPIPE_FILE_AUTO); }); },
             {},
             0.0});
        ways.push_back({"first plain",
                        "plain once, its memory new from the system",
                        [=, &hands] {
                            return with_new_memory(
                                w->bytes, [=, &hands] { return plain(w, hands[0], &pageable, 1); });
                        },
                        {},
                        0.0});
        ways.push_back({"shared",
                        "once, with resources that are kept",
                        [=] { return once(w, SPIPE_FILE_AUTO, 0, w->resources); },
                        {},
                        0.0});
    }
    if (!w->cold && !w->charts) {
        ways.push_back({"entropy",
                        "entropy_map, its three stages and the map",
                        [=] { return entropy_ms(w); },
                        {},
                        0.0});
    }
    measure(w, ways, times);
    for (way_t &y : ways) {
        if (y.name == "once") y.how = once_how;
        if (y.name == "kept") y.how = kept_how;
        if (y.name == "cuFile") y.how = cufile_how;
    }
    print_ways(ways);
    if (!copies.empty() && !std::isnan(copies[0])) {
        printf("  mapped     %7.2f GB/s  without its pinning\n",
               1e-6 * (double)w->bytes / median(copies));
    }
    if (!w->cold) judge_reading(w, ways);
    if (w->cold && w->bytes == w->main_bytes) judge_cold(w, ways, 3 * times);
    SPIPE_CHECK(spipe_pipeline_destroy(r.p));
    spipe_file_close(&r.file);
}

/* The same with 4 cores: this thread, and all that are made from now on. The file is read once
   before: a pipeline asks the page cache when the file is added. */
static void few_cores_table(world_t *w, std::vector<hand_t> &hands, int times, unsigned cores) {
    const size_t threads = std::min(hands.size(), (size_t)cores);
    std::string kept_how;
    std::vector<way_t> ways;
    reader_t r;
    if (!bench_use_cores(cores)) return not_measured("4 cores", "there are fewer");
    (void)by_hand(w, hands, threads, 0);
    const spipe_desc_t d = describe(&r, w, SPIPE_FILE_AUTO);
    SPIPE_CHECK(spipe_pipeline_create(&r.p, &d, NULL));
    for (int k = 0; k < 24; ++k) (void)kept(w, &r);
    ways.push_back({"hand " + std::to_string(threads),
                    "",
                    [=, &hands] { return by_hand(w, hands, threads, 0); },
                    {},
                    0.0});
    ways.push_back({"kept", "", told(w, &kept_how, [=, &r] { return kept(w, &r); }), {}, 0.0});
    ways.push_back({"entropy", "entropy_map", [=] { return entropy_ms(w); }, {}, 0.0});
    measure(w, ways, times);
    ways[1].how = kept_how;
    printf("%zu KiB, page cache, %u cores\n", w->bytes / 1024, cores);
    print_ways(ways);
    const std::string name = std::to_string(cores) + " cores, page cache, ";
    const double hand = best_of(ways, "hand");
    at_least(name + "kept: of as many threads by hand", rate_of(ways, "kept") / hand, 0.9);
    at_least(name + "entropy_map: of the same", rate_of(ways, "entropy") / hand, 0.9);
    SPIPE_CHECK(spipe_pipeline_destroy(r.p));
    spipe_file_close(&r.file);
}

/* Kept pipelines of fixed threads, slots and chunk sizes: what the planner could choose. */
static void sweep_table(world_t *w, int times) {
    static const size_t threads[] = {2, 3, 4, 8, 10, 12, 14}, slots[] = {6, 8, 10, 12, 14, 16};
    static const size_t kib[] = {512, 1024, 2048, 4096, 8192, 16384};
    printf("%zu KiB, page cache, kept: rows threads x slots, columns KiB of a chunk\n       ",
           w->bytes / 1024);
    for (size_t k : kib) printf(" %6zu", k);
    printf("\n");
    for (size_t t : threads) {
        for (size_t s : slots) {
            if (t > w->cores || 4 * t < w->cores || s < t) continue;
            printf("%3zu x %2zu", t, s);
            for (size_t k : kib) {
                reader_t r;
                spipe_desc_t d = describe(&r, w, SPIPE_FILE_AUTO);
                d.threads = t;
                d.depth = s;
                d.chunk = k * 1024 / 64;
                SPIPE_CHECK(spipe_pipeline_create(&r.p, &d, NULL));
                (void)kept(w, &r);
                std::vector<way_t> ways;
                ways.push_back({"kept", "", [=, &r] { return kept(w, &r); }, {}, 0.0});
                measure(w, ways, times);
                printf(" %6.2f", ways[0].gbs);
                SPIPE_CHECK(spipe_pipeline_destroy(r.p));
                spipe_file_close(&r.file);
            }
            printf("\n");
            fflush(stdout);
        }
    }
}

/* File to file, beside reading alone and writing alone by as many threads as are best. */
static double write_by_hand(world_t *w, size_t threads, const std::string &to) {
    const double began = bench_now_ms();
    const int fd = open(to.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    std::vector<std::thread> all;
    for (size_t k = 0; k < threads; ++k) {
        all.emplace_back([=] {
            std::vector<char> data(CHUNK, 1);
            for (size_t at = k * CHUNK; at < w->bytes; at += threads * CHUNK) {
                const size_t n = std::min((size_t)CHUNK, w->bytes - at);
                if (pwrite(fd, data.data(), n, (off_t)at) != (ssize_t)n) exit(1);
            }
        });
    }
    for (std::thread &t : all) t.join();
    close(fd);
    w->got = w->want;
    return bench_now_ms() - began;
}

static double copy_once(world_t *w, const std::string &to) {
    spipe_file_t in, out;
    spipe_report_t report;
    spipe_desc_t d = spipe_desc_default();
    const double began = bench_now_ms();
    SPIPE_CHECK(spipe_file_open(&in, w->name.c_str(), NULL));
    SPIPE_CHECK(spipe_file_create(&out, to.c_str(), NULL));
    spipe_add_file_input(&d, &in, 64);
    spipe_add_file_output(&d, &out, 64);
    spipe_add_stage(&d, "keep", keep_stage, NULL);
    SPIPE_CHECK_RUN(&d, &report);
    SPIPE_CHECK(spipe_file_commit(&out, w->bytes, NULL));
    spipe_file_close(&in);
    spipe_file_close(&out);
    w->got = w->want;
    w->how = plan_of(&report);
    return bench_now_ms() - began;
}

static void copy_table(world_t *w, std::vector<hand_t> &hands, int times, const char *where) {
    const std::string to = w->name + ".out";
    std::string how;
    std::vector<way_t> ways;
    for (size_t threads = w->fewest; threads <= hands.size(); threads *= 2) {
        const std::string number = std::to_string(threads);
        ways.push_back({"hand " + number,
                        "reading alone",
                        [=, &hands] { return by_hand(w, hands, threads, 0); },
                        {},
                        0.0});
        ways.push_back({"writing " + number,
                        "writing alone",
                        [=] {
                            (void)remove(to.c_str());
                            return write_by_hand(w, threads, to);
                        },
                        {},
                        0.0});
    }
    ways.push_back({"once",
                    "",
                    told(w, &how,
                         [=] {
                             (void)remove(to.c_str());
                             return copy_once(w, to);
                         }),
                    {},
                    0.0});
    measure(w, ways, times);
    ways.back().how = how;
    (void)remove(to.c_str());
    printf("%zu KiB, file to file, %s\n", w->bytes / 1024, where);
    print_ways(ways);
    const double slower = std::min(best_of(ways, "hand"), best_of(ways, "writing"));
    printf("  once is %.2f of the slower of reading alone and writing alone\n",
           rate_of(ways, "once") / slower);
    if (w->bytes != w->main_bytes) return;
    at_least(std::string("file -> kernel -> file, ") + where + ": of the slower alone",
             rate_of(ways, "once") / slower, 0.8);
}

/* In memory: the largest of the sizes for whose input and output there is room. */
static void tmpfs_table(const world_t *of, std::vector<hand_t> &hands, int times,
                        const std::string &folder) {
    struct statvfs fs;
    world_t w = *of;
    size_t room = 0;
    if (statvfs(folder.c_str(), &fs) == 0) room = (size_t)fs.f_bavail * (size_t)fs.f_frsize;
    w.name = folder + "/streampipe_bench_files." + std::to_string((long)getpid());
    w.cold = 0;
    while (w.main_bytes > BENCH_GIB && room / 5 * 2 < w.main_bytes) w.main_bytes /= 2;
    if (room / 5 * 2 < w.main_bytes) {
        return not_measured("file -> kernel -> file, tmpfs", "no room; --tmpfs FOLDER");
    }
    make_file(&w, w.main_bytes);
    copy_table(&w, hands, times, "tmpfs");
    (void)remove(w.name.c_str());
}

/* The loader, as its user has it: its table's milliseconds of one worker and of four. */
static void loader_table(const char *self, int times, unsigned cores) {
    const std::string path(self), folder = path.substr(0, path.rfind('/') + 1);
    const std::string loader = folder + "../../examples/14_loader 2>/dev/null";
    std::vector<double> ratios;
    for (int k = 0; k < times; ++k) {
        double one = 0.0, four = 0.0, ms;
        unsigned workers;
        char line[128];
        FILE *from = popen(loader.c_str(), "r");
        while (from && fgets(line, sizeof line, from)) {
            if (sscanf(line, "%u workers %lf", &workers, &ms) != 2) continue;
            if (workers == 1) one = ms;
            if (workers == 4) four = ms;
        }
        if (from) (void)pclose(from);
        if (four > 0.0) ratios.push_back(one / four);
    }
    if (ratios.empty()) return not_measured("loader", "build examples/14_loader");
    printf("loader, 4 workers: %.2f x one, %u cores\n", median(ratios), cores);
    at_least("loader, decode-bound, 4 workers: x one worker", median(ratios), 3.5);
}

/* A stage that takes as long as its copy: it adds up each chunk so many times. The reads are
   volatile, or once would do. */
static unsigned rounds = 1;

static __global__ void rounds_kernel(const volatile unsigned *x, size_t n, unsigned num,
                                     unsigned long long *sum) {
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    unsigned long long own = 0;
    for (unsigned k = 0; k < num; ++k) {
        for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += stride) {
            own += x[i];
        }
    }
    for (int k = 16; k > 0; k /= 2) own += __shfl_down_sync(0xffffffffu, own, k);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, own);
}

static cudaError_t rounds_on(const void *x, size_t n, unsigned long long *sum, cudaStream_t s) {
    return SPIPE_LAUNCH(rounds_kernel, 1024, BLOCK, 0, s, (const volatile unsigned *)x, n / 4,
                        rounds, sum);
}

static cudaError_t rounds_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return rounds_on(c->data[0], c->count * c->elem_bytes[0], SPIPE_BUF(c, 1, unsigned long long),
                     c->stream);
}

/* Milliseconds of 64 copies of a chunk, or of 64 kernels on one. */
static double chunks_ms(hand_t *h, int copies) {
    double began = 0.0;
    for (int k = -4; k < 64; ++k) { /* four to warm up */
        if (k == 0) {
            SPIPE_CHECK(cudaStreamSynchronize(h->stream));
            began = bench_now_ms();
        }
        if (copies)
            SPIPE_CHECK(cudaMemcpyAsync(h->device[0], h->pinned[0], CHUNK, cudaMemcpyHostToDevice,
                                        h->stream));
        else
            SPIPE_CHECK(rounds_on(h->device[0], CHUNK, h->sum, h->stream));
    }
    SPIPE_CHECK(cudaStreamSynchronize(h->stream));
    return bench_now_ms() - began;
}

/* A loop that pulls beside a run of the same work: pinned array in, sum of its numbers; a kernel of
   1 x the copy. */
static void pull_table(hand_t *h, size_t bytes, int times, int smoke) {
    bench_array_t x = bench_array_t();
    unsigned long long sums[2] = {0, 0};
    spipe_pipeline_t *runs, *pulls;
    cudaStream_t stream;
    spipe_chunk_t c;
    std::vector<double> run_ms, pull_ms;
    if (!smoke) {
        const double copy = chunks_ms(h, 1);
        double kernel = chunks_ms(h, 0);
        for (int k = 0; k < 4; ++k) { /* the first times are those of a GPU that was idle */
            rounds = std::max(1u, (unsigned)((double)rounds * copy / kernel + 0.5));
            kernel = chunks_ms(h, 0);
        }
        printf("copy %.3f ms a chunk of 4 MiB, kernel %.3f\n", copy / 64.0, kernel / 64.0);
    }
    SPIPE_CHECK(bench_array_need(&x, bytes, 1));
    SPIPE_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    spipe_desc_t d = spipe_desc_default();
    d.count = bytes / 64;
    spipe_add_input(&d, x.at, 64);
    spipe_add_resident(&d, &sums[0], sizeof sums[0], SPIPE_DOWNLOAD);
    spipe_desc_t without = d;
    without.buffers[1].host = &sums[1];
    spipe_add_stage(&d, "rounds", rounds_stage, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&runs, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_create(&pulls, &without, NULL));
    for (int k = 0; k < 24 + times; ++k) {
        double began = bench_now_ms();
        SPIPE_CHECK(spipe_pipeline_run(runs, NULL));
        if (k >= 24) run_ms.push_back(bench_now_ms() - began);
        began = bench_now_ms();
        for (;;) {
            SPIPE_CHECK(spipe_pipeline_next(pulls, stream, &c));
            if (c.count == 0) break;
            c.stream = stream;
            SPIPE_CHECK(rounds_stage(&c, NULL));
            SPIPE_CHECK(spipe_pipeline_release(pulls, stream));
        }
        if (k >= 24) pull_ms.push_back(bench_now_ms() - began);
    }
    if (sums[0] != sums[1]) exit(1);
    const double ratio = median(run_ms) / median(pull_ms);
    printf("%zu KiB pinned: run %.2f GB/s, a loop that pulls %.2f, ratio %.3f\n", bytes / 1024,
           1e-6 * (double)bytes / median(run_ms), 1e-6 * (double)bytes / median(pull_ms), ratio);
    at_least("a loop that pulls, kernel of 1 x the copy, pinned: of the run", ratio, 0.97);
    SPIPE_CHECK(spipe_pipeline_destroy(runs));
    SPIPE_CHECK(spipe_pipeline_destroy(pulls));
    SPIPE_CHECK(cudaStreamDestroy(stream));
    bench_array_free(&x);
}

typedef struct options {
    int smoke, sweep, cached;
    unsigned cores; /* 0 = all */
    std::string tmpfs;
} options_t;

static options_t parse(int argc, char **argv, world_t *w) {
    options_t o = {0, 0, 0, 0, "/dev/shm"};
    w->folder = "/tmp";
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--quick") == 0) w->quick = 1;
        if (strcmp(argv[i], "--smoke") == 0) o.smoke = 1;
        if (strcmp(argv[i], "--sweep") == 0) o.sweep = 1;
        if (strcmp(argv[i], "--cached") == 0) o.cached = 1;
        if (strcmp(argv[i], "--charts") == 0) o.cached = w->charts = 1;
        if (strcmp(argv[i], "--folder") == 0 && i + 1 < argc) w->folder = argv[++i];
        if (strcmp(argv[i], "--cores") == 0 && i + 1 < argc) {
            if (!bench_use_cores((unsigned)atoi(argv[++i]))) exit(2);
            o.cores = (unsigned)atoi(argv[i]);
        }
        if (strcmp(argv[i], "--tmpfs") == 0 && i + 1 < argc) o.tmpfs = argv[++i];
    }
    return o;
}

/* All tables of files of one size. */
static void size_tables(world_t *w, std::vector<hand_t> &hands, const options_t *o, size_t bytes) {
    int times = bytes >= BENCH_GIB ? 5 : 31;
    if (w->charts) times = bytes >= BENCH_GIB ? 5 : 15;
    if (o->smoke) times = 1;
    w->fewest = w->quick && bytes >= BENCH_GIB ? std::min(w->cores, 4u) : 1;
    make_file(w, bytes);
    w->cold = 0;
    if (o->sweep) {
        if (bytes == BENCH_GIB || o->smoke) sweep_table(w, 3);
        return;
    }
    read_table(w, hands, w->quick && bytes >= BENCH_GIB ? 9 : times);
    if ((bytes < BENCH_GIB && !o->smoke) || o->cached) return;
    copy_table(w, hands, o->smoke ? 1 : 3, "disk");
    w->cold = 1;
    if (bytes <= 4 * BENCH_GIB) read_table(w, hands, o->smoke ? 1 : 3);
    w->cold = 0;
}

int main(int argc, char **argv) {
    static const size_t sizes[] = {64 * 1024,       BENCH_MIB, 4 * BENCH_MIB, 16 * BENCH_MIB,
                                   256 * BENCH_MIB, BENCH_GIB, 8 * BENCH_GIB, 4 * BENCH_GIB};
    world_t w = world_t();
    const options_t o = parse(argc, argv, &w);
    const bench_machine_t machine = bench_machine_or_skip(o.smoke);
    bench_machine_print(&machine, stdout);
    w.cores = o.cores ? o.cores : machine.cores;
    w.main_bytes = o.smoke ? BENCH_MIB : 4 * BENCH_GIB;
    w.name = w.folder + "/streampipe_bench_files." + std::to_string((long)getpid());
    SPIPE_CHECK(spipe_resources_create(&w.resources, NULL, NULL));
    std::vector<hand_t> hands(std::min(std::max(w.cores, 1u), (unsigned)MOST_THREADS));
    for (hand_t &h : hands) hand_new(&h);
    for (size_t bytes : sizes) {
        if (o.smoke && bytes > BENCH_MIB) continue;
        if (o.sweep && !o.smoke && bytes != BENCH_GIB) continue;
        if (w.quick && (bytes < BENCH_MIB || bytes > 4 * BENCH_MIB) && bytes != w.main_bytes)
            continue;
        if (w.charts && bytes > BENCH_GIB) continue;
        size_tables(&w, hands, &o, bytes);
    }
    const int few = o.smoke ? 1 : 3;
    if (!o.sweep && !o.cached) {
        tmpfs_table(&w, hands, few, o.tmpfs);
        pull_table(&hands[0], o.smoke ? BENCH_MIB : 512 * BENCH_MIB, 5 * few, o.smoke);
        loader_table(argv[0], o.smoke ? 1 : 5, w.cores);
    }
    const unsigned cores = o.smoke ? 1 : 4;
    if (!o.sweep && !w.charts) few_cores_table(&w, hands, o.smoke ? 1 : 7, cores); /* it stays so */
    (void)remove(w.name.c_str());
    for (hand_t &h : hands) hand_free(&h);
    SPIPE_CHECK(spipe_resources_destroy(w.resources, NULL));
    const int missed = o.sweep || w.charts ? 0 : print_targets(w.main_bytes);
    return missed && !o.smoke ? 1 : 0;
}
