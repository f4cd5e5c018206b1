/*  files.cu -- a file to the GPU: streampipe_files.h beside what an expert writes by hand.

    make bench-files BACKEND=cuda ARCH=native          BENCH_ARGS="--folder /mnt/disk --quick"
                                                        BENCH_ARGS=--sweep or --cached

    The work is a kernel that adds up all bytes; every way's sum is compared with the first one's.
    Ways, of each file size, from the page cache:
      kept       a pipeline made once, nothing tuned
      once       spipe_run
      hand T     T threads, each reads (pread) into pinned slots of its own, two of 4 MiB, and
                 copies them on a stream of its own; streams and slots are kept
      plain      one thread: read into pageable memory, cudaMemcpy, kernel; its memory kept, or
                 made and freed within the time, as that of a single call is
      mapped     the file mapped into memory, pinned, copied by 4 MiB; with and without the pinning
    Then from the disk (cold), file to file, and a loop that pulls chunks beside a run. Medians of
    runs in turn; GB/s are the file's bytes over the time of the whole call.                     */
#include "bench_common.h"
#include "streampipe_files.h"

#include <sys/mman.h>

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

/* ---- The ways ------------------------------------------------------------------------------- */
typedef struct world {
    std::string folder, name;
    size_t bytes;
    int cold;                     /* 1 = dropped from the page cache before each run */
    unsigned long long want, got; /* sums of all bytes */
    std::string how;              /* of the last run of streampipe */
    unsigned cores;
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

static spipe_desc_t describe(reader_t *r, const world_t *w, spipe_file_way_t way) {
    spipe_desc_t d = spipe_desc_default();
    SPIPE_CHECK(spipe_file_open(&r->file, w->name.c_str(), NULL));
    r->file.way = way;
    spipe_add_file_input(&d, &r->file, 64);
    spipe_add_resident(&d, &r->sum, sizeof r->sum, SPIPE_DOWNLOAD);
    spipe_add_stage(&d, "add", add_stage, NULL);
    return d;
}

static std::string plan_of(const spipe_report_t *r) {
    char text[300];
    snprintf(text, sizeof text, "%zu threads, %zu x %zu KiB, set-up %.2f + %.2f ms, %s",
             r->fill_threads, r->depth, r->chunk * 64 / 1024, r->setup_ms, r->wall_ms,
             r->why_staging);
    return text;
}

static double once(world_t *w, spipe_file_way_t way) {
    reader_t r;
    spipe_report_t report;
    const double began = bench_now_ms();
    const spipe_desc_t d = describe(&r, w, way);
    SPIPE_CHECK_RUN(&d, &report);
    spipe_file_close(&r.file);
    w->got = r.sum;
    w->how = plan_of(&report);
    return bench_now_ms() - began;
}

static double kept(world_t *w, reader_t *r) {
    spipe_report_t report;
    const double began = bench_now_ms();
    SPIPE_CHECK(spipe_pipeline_run(r->p, &report));
    w->got = r->sum;
    w->how = plan_of(&report);
    return bench_now_ms() - began;
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

static void read_whole(int fd, void *to, size_t n, size_t at) {
    for (size_t done = 0; done < n;) {
        const ssize_t got = pread(fd, (char *)to + done, n - done, (off_t)(at + done));
        if (got <= 0) exit(1);
        done += (size_t)got;
    }
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
        read_whole(use, h->pinned[s], n, at);
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
    std::vector<char> own(fresh ? room : 0);
    char *to = fresh ? own.data() : pageable->data();
    if (fresh) {
        SPIPE_CHECK(cudaMalloc(&h->device[0], room));
        SPIPE_CHECK(cudaMalloc((void **)&h->sum, sizeof *h->sum));
    }
    SPIPE_CHECK(cudaMemset(h->sum, 0, sizeof *h->sum));
    for (size_t at = 0; at < w->bytes; at += CHUNK) {
        const size_t n = std::min((size_t)CHUNK, w->bytes - at);
        read_whole(fd, to, n, at);
        SPIPE_CHECK(cudaMemcpy(h->device[0], to, n, cudaMemcpyHostToDevice));
        SPIPE_CHECK(add(h->device[0], n, h->sum, cudaStreamLegacy));
    }
    SPIPE_CHECK(cudaMemcpy(&w->got, h->sum, sizeof w->got, cudaMemcpyDeviceToHost));
    if (fresh) {
        SPIPE_CHECK(cudaFree(h->device[0]));
        SPIPE_CHECK(cudaFree(h->sum));
    }
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

/* ---- Tables --------------------------------------------------------------------------------- */
static double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

/* GB/s of some runs; every sum must be the same. */
template <typename Run>
static double rate(world_t *w, int times, Run run) {
    std::vector<double> took;
    for (int k = 0; k < times; ++k) {
        if (w->cold) drop(w);
        took.push_back(run());
        if (std::isnan(took.back())) return NAN;
        if (w->want == 0) w->want = w->got;
        if (w->got != w->want) {
            fprintf(stderr, "%s: the sum is %llu, not %llu\n", w->name.c_str(), w->got, w->want);
            exit(1);
        }
    }
    return 1e-6 * (double)w->bytes / median(took);
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

static void print_row(const char *way, double gbs, double best, const char *how) {
    printf("  %-10s %7.2f GB/s", way, gbs);
    if (best > 0.0) printf("  %.2f of the best by hand", gbs / best);
    printf("  %s\n", how);
}

static void read_table(world_t *w, std::vector<hand_t> &hands, int times) {
    std::vector<char> pageable(CHUNK);
    reader_t r;
    double best = 0.0, copies = 0.0, gbs;
    printf("%zu KiB, %s\n", w->bytes / 1024, w->cold ? "from the disk" : "page cache");
    for (size_t threads = 1; threads <= hands.size(); threads *= 2) {
        char way[32];
        gbs = rate(w, times, [&] { return by_hand(w, hands, threads, w->cold); });
        snprintf(way, sizeof way, "hand %zu", threads);
        print_row(way, gbs, 0.0, w->cold ? "O_DIRECT" : "");
        best = std::max(best, gbs);
    }
    if (!w->cold) {
        gbs = rate(w, times, [&] { return plain(w, hands[0], &pageable, 0); });
        print_row("plain", gbs, best, "read + cudaMemcpy");
        gbs = rate(w, times, [&] { return plain(w, hands[0], &pageable, 1); });
        print_row("", gbs, best, "with its memory: once");
        gbs = rate(w, times, [&] { return mapped(w, &hands[0], &copies); });
        print_row("mapped", gbs, best, "with its pinning");
        print_row("", 1e-6 * (double)w->bytes / copies, best, "without");
    }
    gbs = rate(w, times, [&] { return once(w, SPIPE_FILE_AUTO); });
    print_row("once", gbs, best, w->how.c_str());
    if (w->cold) drop(w); /* it is asked for when the file is added */
    const spipe_desc_t d = describe(&r, w, SPIPE_FILE_AUTO);
    SPIPE_CHECK(spipe_pipeline_create(&r.p, &d, NULL));
    if (!w->cold) { /* its trial */
        for (int k = 0; k < 24; ++k) (void)kept(w, &r);
    }
    gbs = rate(w, times, [&] { return kept(w, &r); });
    print_row("kept", gbs, best, w->how.c_str());
    SPIPE_CHECK(spipe_pipeline_destroy(r.p));
    spipe_file_close(&r.file);
}

/* Kept pipelines of fixed threads, slots and chunk sizes: what the planner could choose. */
static void sweep_table(world_t *w, int times) {
    static const size_t threads[] = {4, 8, 10, 12, 14}, slots[] = {8, 10, 12, 14, 16};
    static const size_t kib[] = {512, 1024, 2048, 4096, 8192, 16384};
    printf("%zu KiB, page cache, kept: rows threads x slots, columns KiB of a chunk\n       ",
           w->bytes / 1024);
    for (size_t k : kib) printf(" %6zu", k);
    printf("\n");
    for (size_t t : threads) {
        for (size_t s : slots) {
            if (t > w->cores || s < t) continue;
            printf("%3zu x %2zu", t, s);
            for (size_t k : kib) {
                reader_t r;
                spipe_desc_t d = describe(&r, w, SPIPE_FILE_AUTO);
                d.threads = t;
                d.depth = s;
                d.chunk = k * 1024 / 64;
                SPIPE_CHECK(spipe_pipeline_create(&r.p, &d, NULL));
                (void)kept(w, &r);
                printf(" %6.2f", rate(w, times, [&] { return kept(w, &r); }));
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

static void copy_table(world_t *w, std::vector<hand_t> &hands, int times) {
    const std::string to = w->name + ".out";
    double reading = 0.0, writing = 0.0, gbs;
    for (size_t threads = 1; threads <= hands.size(); threads *= 2) {
        gbs = rate(w, times, [&] { return by_hand(w, hands, threads, 0); });
        reading = std::max(reading, gbs);
        (void)remove(to.c_str());
        gbs = rate(w, times, [&] {
            (void)remove(to.c_str());
            return write_by_hand(w, threads, to);
        });
        writing = std::max(writing, gbs);
    }
    gbs = rate(w, times, [&] {
        spipe_file_t in, out;
        spipe_desc_t d = spipe_desc_default();
        (void)remove(to.c_str());
        const double began = bench_now_ms();
        SPIPE_CHECK(spipe_file_open(&in, w->name.c_str(), NULL));
        SPIPE_CHECK(spipe_file_create(&out, to.c_str(), NULL));
        spipe_add_file_input(&d, &in, 64);
        spipe_add_file_output(&d, &out, 64);
        spipe_add_stage(&d, "keep", keep_stage, NULL);
        SPIPE_CHECK_RUN(&d, NULL);
        SPIPE_CHECK(spipe_file_commit(&out, w->bytes, NULL));
        spipe_file_close(&in);
        spipe_file_close(&out);
        w->got = w->want;
        return bench_now_ms() - began;
    });
    (void)remove(to.c_str());
    printf("%zu KiB, file to file: reading alone %.2f GB/s, writing alone %.2f\n", w->bytes / 1024,
           reading, writing);
    printf("  %-10s %7.2f GB/s  %.2f of the slower of both\n", "once", gbs,
           gbs / std::min(reading, writing));
}

/* A loop that pulls beside a run of the same work: pinned array in, sum of its bytes. */
static void pull_table(size_t bytes, int times) {
    bench_array_t x = bench_array_t();
    unsigned long long sums[2] = {0, 0};
    spipe_pipeline_t *runs, *pulls;
    cudaStream_t stream;
    spipe_chunk_t c;
    std::vector<double> run_ms, pull_ms;
    SPIPE_CHECK(bench_array_need(&x, bytes, 1));
    SPIPE_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    spipe_desc_t d = spipe_desc_default();
    d.count = bytes / 64;
    spipe_add_input(&d, x.at, 64);
    spipe_add_resident(&d, &sums[0], sizeof sums[0], SPIPE_DOWNLOAD);
    spipe_desc_t without = d;
    without.buffers[1].host = &sums[1];
    spipe_add_stage(&d, "add", add_stage, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&runs, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_create(&pulls, &without, NULL));
    for (int k = 0; k < 24 + times; ++k) {
        double began = bench_now_ms();
        SPIPE_CHECK(spipe_pipeline_run(runs, NULL));
        if (k >= 24) run_ms.push_back(bench_now_ms() - began);
        began = bench_now_ms();
        for (;;) {
            SPIPE_CHECK(spipe_next(pulls, stream, &c));
            if (c.count == 0) break;
            c.stream = stream;
            SPIPE_CHECK(add_stage(&c, NULL));
            SPIPE_CHECK(spipe_release(pulls, stream));
        }
        if (k >= 24) pull_ms.push_back(bench_now_ms() - began);
    }
    if (sums[0] != sums[1]) exit(1);
    printf("%zu KiB pinned: run %.2f GB/s, a loop that pulls %.2f, ratio %.3f\n", bytes / 1024,
           1e-6 * (double)bytes / median(run_ms), 1e-6 * (double)bytes / median(pull_ms),
           median(run_ms) / median(pull_ms));
    SPIPE_CHECK(spipe_pipeline_destroy(runs));
    SPIPE_CHECK(spipe_pipeline_destroy(pulls));
    SPIPE_CHECK(cudaStreamDestroy(stream));
    bench_array_free(&x);
}

int main(int argc, char **argv) {
    static const size_t sizes[] = {64 * 1024, BENCH_MIB,     16 * BENCH_MIB, 256 * BENCH_MIB,
                                   BENCH_GIB, 4 * BENCH_GIB, 8 * BENCH_GIB};
    int quick = 0, smoke = 0, sweep = 0, cached = 0;
    world_t w = world_t();
    w.folder = "/tmp";
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--quick") == 0) quick = 1;
        if (strcmp(argv[i], "--smoke") == 0) smoke = 1;
        if (strcmp(argv[i], "--sweep") == 0) sweep = 1;
        if (strcmp(argv[i], "--cached") == 0) cached = 1;
        if (strcmp(argv[i], "--folder") == 0 && i + 1 < argc) w.folder = argv[++i];
    }
    const bench_machine_t machine = bench_machine_or_skip(smoke);
    bench_machine_print(&machine, stdout);
    w.cores = machine.cores;
    w.name = w.folder + "/streampipe_bench_files." + std::to_string((long)getpid());
    std::vector<hand_t> hands(std::min(std::max(w.cores, 1u), (unsigned)MOST_THREADS));
    for (hand_t &h : hands) hand_new(&h);
    size_t most = quick ? 4 * BENCH_GIB : 8 * BENCH_GIB;
    if (smoke) most = BENCH_MIB;
    for (size_t bytes : sizes) {
        int times = bytes >= BENCH_GIB ? 5 : 15;
        if (bytes > most) break;
        if (smoke) times = 1;
        make_file(&w, bytes);
        w.cold = 0;
        if (sweep) {
            if (bytes == BENCH_GIB || smoke) sweep_table(&w, 3);
            continue;
        }
        read_table(&w, hands, times);
        if ((bytes < BENCH_GIB && !smoke) || cached) continue;
        copy_table(&w, hands, times);
        w.cold = 1;
        if (bytes <= 4 * BENCH_GIB) read_table(&w, hands, smoke ? 1 : 3);
        w.cold = 0;
    }
    if (smoke)
        pull_table(BENCH_MIB, 1);
    else if (!sweep)
        pull_table(512 * BENCH_MIB, 15);
    (void)remove(w.name.c_str());
    for (hand_t &h : hands) hand_free(&h);
    return 0;
}
