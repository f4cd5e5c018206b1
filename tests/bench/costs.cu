/*  costs.cu -- what a machine's copies, launches, threads and pinning cost: the facts that a plan
    is made of, each measured by itself.

    nvcc -O3 -std=c++17 -arch=sm_90 -Xcompiler -pthread tests/bench/costs.cu -o costs
    ./costs                        all of it, under 40 s        ./costs link ring     only these

    Each line is a name, a value, a unit and, after #, a remark. Values are medians. Only the CUDA
    runtime and POSIX threads are used, nothing of streampipe. `fit` lines come from least squares
    on relative errors: bytes that cost a fixed time and a rate, or a ring of chunks that costs
    (n - 1) x (copy_s + chunk / rate) + 2 x (copy_s + chunk / link) + ends.                       */
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <vector>
#if defined(__SSE2__) || defined(__x86_64__)
#include <emmintrin.h>
#define HAVE_STREAM 1
#else
#define HAVE_STREAM 0
#endif

/* On hostcuda only the program itself is tried, on a sixteenth of the bytes. */
#ifdef __HOSTCUDA__
enum {
    SMALLER = 16,
    SKIP = 77
};
#else
enum {
    SMALLER = 1,
    SKIP = 77
};
#endif
static const size_t KIB = 1024, MIB = 1024 * KIB / SMALLER;
static const size_t MOST = 256 * MIB;    /* of a pinned array, and of one on the device */
static const size_t PAGEABLE = 4 * MOST; /* more than any cache holds */

typedef std::vector<double> doubles_t;

/* ---- Failing, printing, arithmetic ----------------------------------------------------------- */

static void check_cuda(cudaError_t e, const char *call, int line) {
    if (e == cudaSuccess) return;
    fflush(stdout);
    fprintf(stderr, "costs: line %d: %s: %s\n", line, call, cudaGetErrorString(e));
    exit(1);
}

static void check_zero(int e, const char *call, int line) {
    if (e == 0) return;
    fflush(stdout);
    fprintf(stderr, "costs: line %d: %s: %s\n", line, call, strerror(e));
    exit(1);
}

#define CUDA(call) check_cuda((call), #call, __LINE__)
#define ZERO(call) check_zero((call), #call, __LINE__)

static double now_s() {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static std::string text(const char *form, ...) {
    char at[160];
    va_list list;
    va_start(list, form);
    (void)vsnprintf(at, sizeof at, form, list);
    va_end(list);
    return at;
}

static void say(const std::string &name, double value, const char *unit,
                const std::string &remark = "") {
    const char *space = remark.empty() ? "" : "   # ";
    printf("%-34s %12.4f %-5s%s%s\n", name.c_str(), value, unit, space, remark.c_str());
    fflush(stdout);
}

static void say_us(const std::string &name, double s, const std::string &remark = "") {
    say(name, s * 1e6, "us", remark);
}

static void say_rate(const std::string &name, double bytes_a_second,
                     const std::string &remark = "") {
    say(name, bytes_a_second / 1e9, "GB/s", remark);
}

static double median(doubles_t x) {
    if (x.empty()) return 0;
    std::sort(x.begin(), x.end());
    return x.size() % 2 ? x[x.size() / 2] : 0.5 * (x[x.size() / 2 - 1] + x[x.size() / 2]);
}

/* The median of work(), in seconds, which it measures itself. */
template <typename Work>
static double median_of(int times, Work work) {
    doubles_t s;
    for (int k = 0; k < times; ++k) s.push_back(work());
    return median(s);
}

/* The same of what the host's clock says. */
template <typename Work>
static double timed(int times, Work work) {
    return median_of(times, [&] {
        const double begin = now_s();
        work();
        return now_s() - begin;
    });
}

/* Least squares of sum(a[k] * row[k]) = y on relative errors; up to three unknowns. */
typedef struct equation {
    double row[3], y;
} equation_t;

static void solve(const std::vector<equation_t> &all, int n, double a[3], double *worst) {
    double m[3][4] = {{0}};
    for (const equation_t &e : all) {
        for (int i = 0; i < n; ++i) {
            for (int j = 0; j < n; ++j) m[i][j] += e.row[i] * e.row[j] / (e.y * e.y);
            m[i][n] += e.row[i] / e.y;
        }
    }
    for (int i = 0; i < n; ++i) {
        for (int j = 0; j < n; ++j) {
            const double f = j == i || m[i][i] == 0 ? 0 : m[j][i] / m[i][i];
            for (int k = 0; k <= n; ++k) m[j][k] -= f * m[i][k];
        }
    }
    for (int i = 0; i < n; ++i) a[i] = m[i][i] == 0 ? 0 : m[i][n] / m[i][i];
    *worst = 0;
    for (const equation_t &e : all) {
        double y = 0;
        for (int i = 0; i < n; ++i) y += a[i] * e.row[i];
        *worst = std::max(*worst, fabs(y / e.y - 1));
    }
}

static double per(double slope) { return slope > 0 ? 1 / slope : 0; }

/* seconds[k] for bytes[k]: a fixed time and a rate. */
static void say_fit(const std::string &name, const std::vector<size_t> &bytes,
                    const doubles_t &seconds) {
    std::vector<equation_t> all;
    double a[3], worst;
    for (size_t k = 0; k < bytes.size(); ++k) {
        all.push_back({{1, (double)bytes[k], 0}, seconds[k]});
    }
    solve(all, 2, a, &worst);
    say_us(name + ".fit.fixed", a[0], text("worst error %.0f %%", 100 * worst));
    say_rate(name + ".fit.rate", per(a[1]));
}

static std::string size_text(size_t bytes) {
    const size_t real = bytes * SMALLER;
    return real >= 1024 * KIB ? text("%zuM", real / (1024 * KIB)) : text("%zuK", real / KIB);
}

/* ---- Kernels --------------------------------------------------------------------------------- */

static __global__ void tiny_kernel(float *at) {
    if (threadIdx.x == 0) at[0] += 1.0f;
}

/* One element a thread, or many, a grid apart; in may be NULL (only write), out too (only read). */
static __global__ void copy_kernel(const float *in, float *out, float *never, size_t n) {
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    float sum = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += stride) {
        const float x = in ? in[i] : 1.0f;
        if (out)
            out[i] = x + 1.0f;
        else
            sum += x;
    }
    if (sum == 12345.678f) *never = sum; /* so that what is only read is read */
}

template <typename... P, typename... A>
static void launch(void (*kernel)(P...), unsigned blocks, unsigned threads, cudaStream_t s,
                   A... args) {
    cudaLaunchConfig_t config = cudaLaunchConfig_t();
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.stream = s;
    CUDA(cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...));
}

/* ---- What everything runs on ----------------------------------------------------------------- */

enum {
    SLOTS = 4,
    RING_BYTES = 32
};

typedef struct slot {
    char *in, *out;
    cudaEvent_t in_done, done, out_done;
} slot_t;

static struct rig {
    char *pin_in, *pin_out, *page_in, *page_out, *dev_in, *dev_out;
    float *word;
    cudaStream_t streams[4]; /* in, kernels, kernels, out */
    cudaEvent_t begin, end;  /* timed */
    slot_t slots[SLOTS];
    double link; /* one way, alone */
    int cpus, sms;
} rig;

static char *touched(size_t bytes) {
    void *at = NULL;
    ZERO(posix_memalign(&at, 4096, bytes));
    memset(at, 1, bytes);
    return (char *)at;
}

static void create_rig() {
    const size_t chunk = 8 * MIB;
    CUDA(cudaHostAlloc((void **)&rig.pin_in, MOST, cudaHostAllocMapped));
    CUDA(cudaHostAlloc((void **)&rig.pin_out, MOST, cudaHostAllocMapped));
    CUDA(cudaMalloc((void **)&rig.dev_in, MOST));
    CUDA(cudaMalloc((void **)&rig.dev_out, MOST));
    CUDA(cudaMalloc((void **)&rig.word, 4096));
    CUDA(cudaMemset(rig.word, 0, 4096));
    rig.page_in = touched(PAGEABLE);
    rig.page_out = touched(PAGEABLE);
    memset(rig.pin_in, 1, MOST);
    memset(rig.pin_out, 1, MOST);
    for (cudaStream_t &s : rig.streams) CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CUDA(cudaEventCreate(&rig.begin));
    CUDA(cudaEventCreate(&rig.end));
    for (size_t k = 0; k < SLOTS; ++k) {
        slot_t *s = &rig.slots[k];
        s->in = rig.dev_in + k * chunk;
        s->out = rig.dev_out + k * chunk;
        CUDA(cudaEventCreateWithFlags(&s->in_done, cudaEventDisableTiming));
        CUDA(cudaEventCreateWithFlags(&s->done, cudaEventDisableTiming));
        CUDA(cudaEventCreateWithFlags(&s->out_done, cudaEventDisableTiming));
    }
}

static void destroy_rig() {
    for (slot_t &s : rig.slots) {
        CUDA(cudaEventDestroy(s.in_done));
        CUDA(cudaEventDestroy(s.done));
        CUDA(cudaEventDestroy(s.out_done));
    }
    CUDA(cudaEventDestroy(rig.begin));
    CUDA(cudaEventDestroy(rig.end));
    for (cudaStream_t s : rig.streams) CUDA(cudaStreamDestroy(s));
    CUDA(cudaFree(rig.dev_in));
    CUDA(cudaFree(rig.dev_out));
    CUDA(cudaFree(rig.word));
    CUDA(cudaFreeHost(rig.pin_in));
    CUDA(cudaFreeHost(rig.pin_out));
    free(rig.page_in);
    free(rig.page_out);
}

static void copy_in(size_t at, size_t bytes) {
    CUDA(cudaMemcpyAsync(rig.dev_in + at, rig.pin_in + at, bytes, cudaMemcpyHostToDevice,
                         rig.streams[0]));
}

static void copy_out(size_t at, size_t bytes) {
    CUDA(cudaMemcpyAsync(rig.pin_out + at, rig.dev_out + at, bytes, cudaMemcpyDeviceToHost,
                         rig.streams[3]));
}

static void finish() {
    CUDA(cudaStreamSynchronize(rig.streams[0]));
    CUDA(cudaStreamSynchronize(rig.streams[3]));
}

/* The GPU at its clock, and awake. */
static void wake_gpu() {
    for (int k = 0; k < 4; ++k) {
        copy_in(0, 64 * MIB);
        copy_out(0, 64 * MIB);
    }
    for (int k = 0; k < 20; ++k) launch(tiny_kernel, 1, 32, rig.streams[1], rig.word);
    CUDA(cudaDeviceSynchronize());
}

/* ---- link ------------------------------------------------------------------------------------ */

static void probe_link() {
    const size_t piece = 64 * MIB, all = MOST;
    double s[3];
    for (int way = 0; way < 3; ++way) {
        s[way] = timed(5, [=] {
            for (size_t at = 0; at < all; at += piece) {
                if (way != 1) copy_in(at, piece);
                if (way != 0) copy_out(at, piece);
            }
            finish();
        });
    }
    rig.link = (double)all / s[0];
    say_rate("link_in", (double)all / s[0], "pinned, 64 MiB at a time, alone");
    say_rate("link_out", (double)all / s[1]);
    say_rate("link_both", (double)all / s[2], "each way, while both are busy");
}

/* ---- ring ------------------------------------------------------------------------------------ */

enum {
    RING = 0,
    IN_ONLY,
    OUT_ONLY,
    BOTH_ONLY
}; /* the last three: copies and no kernels */

static void ring_chunk(size_t c, size_t at, size_t bytes) {
    const slot_t *slot = &rig.slots[c % SLOTS];
    const cudaStream_t in = rig.streams[0], kernels = rig.streams[1 + c % 2], out = rig.streams[3];
    if (c >= SLOTS) CUDA(cudaStreamWaitEvent(in, slot->out_done, 0));
    CUDA(cudaMemcpyAsync(slot->in, rig.pin_in + at, bytes, cudaMemcpyHostToDevice, in));
    CUDA(cudaEventRecord(slot->in_done, in));
    CUDA(cudaStreamWaitEvent(kernels, slot->in_done, 0));
    launch(tiny_kernel, 1, 32, kernels, (float *)slot->in);
    CUDA(cudaEventRecord(slot->done, kernels));
    CUDA(cudaStreamWaitEvent(out, slot->done, 0));
    CUDA(cudaMemcpyAsync(rig.pin_out + at, slot->out, bytes, cudaMemcpyDeviceToHost, out));
    CUDA(cudaEventRecord(slot->out_done, out));
}

static void run_ring(int way, size_t total, size_t chunk) {
    for (size_t c = 0; c * chunk < total; ++c) {
        const size_t at = c * chunk, in_slots = c % SLOTS * chunk;
        if (way == RING) ring_chunk(c, at, chunk);
        if (way == IN_ONLY || way == BOTH_ONLY) {
            CUDA(cudaMemcpyAsync(rig.dev_in + in_slots, rig.pin_in + at, chunk,
                                 cudaMemcpyHostToDevice, rig.streams[0]));
        }
        if (way == OUT_ONLY || way == BOTH_ONLY) {
            CUDA(cudaMemcpyAsync(rig.pin_out + at, rig.dev_out + in_slots, chunk,
                                 cudaMemcpyDeviceToHost, rig.streams[3]));
        }
    }
    finish();
}

/* A ring's first copy in and last copy out are alone; copies without kernels have no such ends. */
static void fit_ring(const std::string &name, int way, size_t total, size_t least,
                     const std::vector<size_t> &chunks, const doubles_t &seconds) {
    std::vector<equation_t> all;
    double a[3], worst;
    for (size_t k = 0; k < chunks.size(); ++k) {
        const double b = (double)chunks[k], n = (double)(total / chunks[k]);
        if (chunks[k] < least) continue;
        if (way == RING)
            all.push_back({{n + 1, (n - 1) * b, 1}, seconds[k] - 2 * b / rig.link});
        else
            all.push_back({{n, n * b, 0}, seconds[k]});
    }
    solve(all, way == RING ? 3 : 2, a, &worst);
    say_us(name + ".copy_s", a[0], text("worst error %.1f %%", 100 * worst));
    say_rate(name + ".link_eff", per(a[1]));
    if (way == RING) say_us(name + ".ends", a[2]);
}

static void probe_ring() {
    static const char *const names[] = {"ring", "in_only", "out_only", "both_only"};
    const size_t total = RING_BYTES * MIB;
    std::vector<size_t> chunks;
    for (size_t c = 64 * KIB / SMALLER; c <= 8 * MIB; c *= 2) chunks.push_back(c);
    for (int way = 0; way < 4; ++way) {
        const std::string name = names[way];
        doubles_t seconds;
        run_ring(way, total, chunks[0]);
        for (size_t c : chunks) {
            seconds.push_back(timed(11, [=] { run_ring(way, total, c); }));
            say_us(name + "." + size_text(c), seconds.back(),
                   text("%.2f us a chunk", 1e6 * seconds.back() / (double)(total / c)));
        }
        fit_ring(name + ".fit", way, total, 0, chunks, seconds);
        if (way == RING) {
            fit_ring(name + ".fit_from_512K", way, total, 8 * chunks[0], chunks, seconds);
        }
    }
    for (size_t c : {4 * KIB, 64 * KIB, 256 * KIB}) {
        say_us("one_chunk." + text("%zuK", c / KIB),
               timed(31,
                     [=] {
                         ring_chunk(0, 0, c);
                         finish();
                     }),
               "copied in, kernel, copied out, waited for; the host's clock");
    }
}

/* ---- launch ---------------------------------------------------------------------------------- */

enum {
    PART_IN = 1,
    PART_KERNEL = 2,
    PART_OUT = 4,
    PART_NEXT = 8,
    PART_SET = 16 /* a cudaMemsetAsync of 4 bytes instead of a kernel */
};

/* GPU time from a mark to a mark, of parts one after another, each in its own stream. A copy of
   some 300 us goes before, so that all is queued when the first mark is reached. */
static double chain_once(int parts, size_t bytes, int kernels) {
    const slot_t *slot = &rig.slots[0];
    float ms = 0;
    cudaStream_t last = rig.streams[0];
    copy_in(64 * MIB, 16 * MIB);
    CUDA(cudaEventRecord(rig.begin, last));
    if (parts & PART_IN) copy_in(0, bytes);
    if (parts & PART_KERNEL) {
        if (parts & PART_NEXT) {
            CUDA(cudaEventRecord(slot->in_done, last));
            last = rig.streams[1];
            CUDA(cudaStreamWaitEvent(last, slot->in_done, 0));
        }
        for (int k = 0; k < kernels; ++k) {
            if (parts & PART_SET) {
                CUDA(cudaMemsetAsync(rig.word, 0, sizeof *rig.word, last));
            } else {
                launch(tiny_kernel, 1, 32, last, rig.word);
            }
        }
    }
    if (parts & PART_OUT) {
        if (parts & PART_NEXT) {
            CUDA(cudaEventRecord(slot->done, last));
            last = rig.streams[3];
            CUDA(cudaStreamWaitEvent(last, slot->done, 0));
        }
        CUDA(cudaMemcpyAsync(rig.pin_out, rig.dev_out, bytes, cudaMemcpyDeviceToHost, last));
    }
    CUDA(cudaEventRecord(rig.end, last));
    CUDA(cudaEventSynchronize(rig.end));
    CUDA(cudaEventElapsedTime(&ms, rig.begin, rig.end));
    return (double)ms / 1e3;
}

static double chain(int parts, int kernels) {
    return median_of(31, [=] { return chain_once(parts, 64 * KIB / SMALLER, kernels); });
}

/* From the first call until so many kernels of a stream that was idle have ended. */
static double idle_chain_s(int kernels) {
    const cudaStream_t stream = rig.streams[1];
    return timed(31, [=] {
        for (int k = 0; k < kernels; ++k) launch(tiny_kernel, 1, 32, stream, rig.word);
        CUDA(cudaStreamSynchronize(stream));
    });
}

static void probe_launch() {
    const int all = PART_IN | PART_KERNEL | PART_OUT;
    const double none = chain(0, 0), in = chain(PART_IN, 0) - none;
    const double kernel = chain(PART_KERNEL, 1) - none, out = chain(PART_OUT, 0) - none;
    const double many = chain(PART_KERNEL, 9) - none;
    const double one_stream = chain(all, 1) - none, streams = chain(all | PART_NEXT, 1) - none;
    say_us("chain.marks", none, "two event records, nothing between them");
    say_us("chain.in_64K", in);
    say_us("chain.kernel", kernel, "one block");
    say_us("chain.out_64K", out);
    say_us("chain.next_kernel", (many - kernel) / 8, "each further kernel of one stream");
    say_us("chain.one_stream", one_stream, "in, kernel, out");
    say_us("chain.three_streams", streams, "the same over three streams joined by events");
    say_us("chain.hand_overs", streams - in - kernel - out, "three streams less the parts");
    say_us("launch_s", (idle_chain_s(16) - idle_chain_s(4)) / 12,
           "each further kernel of a stream that was idle; the host's clock");

    /* spipe_costs_measure, in a header of C, has no kernel: it takes two calls' time, or
       twice a memset's if that is longer. */
    const int set_part = PART_KERNEL | PART_SET;
    const double set = chain(set_part, 1) - none, sets = chain(set_part, 9) - none;
    say_us("chain.memset", set, "4 bytes");
    say_us("chain.next_memset", (sets - set) / 8, "each further memset of one stream");
}

/* The calling thread's time for each of n calls, with nothing but them on the GPU. */
template <typename Work>
static double call_s(int n, Work work) {
    return median_of(15, [=] {
        const double begin = now_s();
        for (int k = 0; k < n; ++k) work(k);
        const double s = now_s() - begin;
        CUDA(cudaDeviceSynchronize());
        return s / n;
    });
}

static void ask_about(const void *array) {
    cudaPointerAttributes a;
    CUDA(cudaPointerGetAttributes(&a, array));
}

static void probe_issue() {
    const size_t bytes = 64 * KIB / SMALLER;
    const cudaEvent_t event = rig.slots[0].done;
    const auto in = rig.streams[0], out = rig.streams[3];
    say_us("issue_s",
           call_s(64, [=](int k) { ring_chunk((size_t)k + SLOTS, (size_t)k % 8 * bytes, bytes); }),
           "a chunk: 2 copies, a launch, 3 records, 3 waits");
    say_us("issue.copy", call_s(64, [=](int) { copy_in(0, bytes); }));
    say_us("issue.launch",
           call_s(64, [=](int) { launch(tiny_kernel, 1, 32, rig.streams[1], rig.word); }));
    say_us("issue.record", call_s(64, [=](int) { CUDA(cudaEventRecord(event, in)); }));
    say_us("issue.wait", call_s(64, [=](int) { CUDA(cudaStreamWaitEvent(out, event, 0)); }));
    say_us("issue.query", call_s(64, [=](int) { CUDA(cudaEventQuery(event)); }));
    say_us("issue.synchronize", call_s(64, [=](int) { CUDA(cudaStreamSynchronize(in)); }),
           "of an idle stream");
    say_us("issue.pointer_pinned", call_s(1024, [](int) { ask_about(rig.pin_in); }),
           "what kind of memory an array is: two of these for each array of a run");
    say_us("issue.pointer_pageable", call_s(1024, [](int) { ask_about(rig.page_in); }));
}

/* ---- zero_copy ------------------------------------------------------------------------------- */

static const unsigned EACH_ONE = 0; /* blocks: a thread an element */

static double zero_copy_s(size_t bytes, unsigned blocks, int reads, int writes) {
    void *in = NULL, *out = NULL;
    CUDA(cudaHostGetDevicePointer(&in, rig.pin_in, 0));
    CUDA(cudaHostGetDevicePointer(&out, rig.pin_out, 0));
    const size_t n = bytes / sizeof(float);
    if (blocks == EACH_ONE) blocks = (unsigned)((n + 255) / 256);
    return timed(bytes > 64 * MIB ? 5 : 11, [=] {
        launch(copy_kernel, blocks, 256, rig.streams[1], (const float *)(reads ? in : NULL),
               (float *)(writes ? out : NULL), rig.word, n);
        CUDA(cudaStreamSynchronize(rig.streams[1]));
    });
}

static void probe_zero_copy() {
    const std::vector<size_t> sizes = {MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB};
    for (int one = 0; one < 2; ++one) {
        const std::string name = one ? "zero_copy_one" : "zero_copy";
        const unsigned blocks = one ? EACH_ONE : 8 * (unsigned)rig.sms;
        doubles_t seconds;
        for (size_t b : sizes) {
            seconds.push_back(zero_copy_s(b, blocks, 1, 1));
            say_rate(name + "." + size_text(b), (double)b / seconds.back(),
                     text("each way, %.1f us; %s", 1e6 * seconds.back(),
                          one ? "a thread an element" : "8 blocks a multiprocessor"));
        }
        say_fit(name, sizes, seconds);
    }
    const size_t b = 64 * MIB;
    say_rate("zero_copy_read.64M", (double)b / zero_copy_s(b, EACH_ONE, 1, 0));
    say_rate("zero_copy_write.64M", (double)b / zero_copy_s(b, EACH_ONE, 0, 1));
}

/* ---- pageable -------------------------------------------------------------------------------- */

static void copy_pageable(int out, size_t bytes) {
    if (out)
        CUDA(cudaMemcpy(rig.page_out, rig.dev_out, bytes, cudaMemcpyDeviceToHost));
    else
        CUDA(cudaMemcpy(rig.dev_in, rig.page_in, bytes, cudaMemcpyHostToDevice));
}

static void *copy_pageable_out(void *bytes) {
    CUDA(cudaSetDevice(0));
    for (int k = 0; k < 2; ++k) copy_pageable(1, *(size_t *)bytes);
    return NULL;
}

static void probe_pageable() {
    const std::vector<size_t> sizes = {MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB};
    for (int out = 0; out < 2; ++out) {
        const std::string name = out ? "pageable_out" : "pageable_in";
        doubles_t seconds;
        for (size_t b : sizes) {
            seconds.push_back(timed(b > 64 * MIB ? 3 : 7, [=] { copy_pageable(out, b); }));
            say_rate(name + "." + size_text(b), (double)b / seconds.back(),
                     text("%.1f us", 1e6 * seconds.back()));
        }
        say_fit(name, sizes, seconds);
    }
    size_t bytes = 64 * MIB;
    const double s = timed(3, [&] {
        pthread_t other;
        ZERO(pthread_create(&other, NULL, copy_pageable_out, &bytes));
        for (int k = 0; k < 2; ++k) copy_pageable(0, bytes);
        ZERO(pthread_join(other, NULL));
    });
    say_rate("pageable_both.64M", 2.0 * (double)bytes / s, "each way, from two threads at once");
}

/* ---- host: copying by threads ---------------------------------------------------------------- */

enum {
    MOST_HANDS = 24
};

static void copy_host(char *to, const char *from, size_t n, int stream) {
#if HAVE_STREAM
    if (stream) {
        for (size_t k = 0; k < n; k += 16) {
            const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(from + k));
            _mm_stream_si128((__m128i *)(void *)(to + k), a);
        }
        _mm_sfence();
        return;
    }
#endif
    (void)stream;
    memcpy(to, from, n);
}

/* A direction: pieces of an array one after another, into or from a ring, until stopped. The next
   measurement goes on where this one stopped, so that no cache holds what it reads. */
typedef struct way {
    char *array, *ring;
    size_t ring_bytes, piece;
    int out, stream;
    std::atomic<size_t> next;
} way_t;

typedef struct hand {
    pthread_t thread;
    way_t *way; /* NULL: rests */
    double rate;
} hand_t;

static struct crew {
    hand_t hands[MOST_HANDS];
    pthread_mutex_t lock;
    pthread_cond_t told;
    int num, turn, quit;
    std::atomic<int> running, stop, ended;
} crew;

static void work_until_stopped(hand_t *h) {
    way_t *w = h->way;
    size_t moved = 0;
    const double begin = now_s();
    while (!crew.stop.load(std::memory_order_relaxed)) {
        const size_t k = w->next.fetch_add(1);
        char *const array = w->array + k * w->piece % PAGEABLE;
        char *const ring = w->ring + k * w->piece % w->ring_bytes;
        if (w->out)
            copy_host(array, ring, w->piece, w->stream);
        else
            copy_host(ring, array, w->piece, w->stream);
        moved += w->piece;
    }
    h->rate = (double)moved / (now_s() - begin);
}

static void *hand_main(void *arg) {
    hand_t *h = (hand_t *)arg;
    for (int seen = 0;;) {
        ZERO(pthread_mutex_lock(&crew.lock));
        while (crew.turn == seen && !crew.quit) ZERO(pthread_cond_wait(&crew.told, &crew.lock));
        seen = crew.turn;
        const int quit = crew.quit;
        ZERO(pthread_mutex_unlock(&crew.lock));
        if (quit) return NULL;
        if (h->way) {
            crew.running++;
            work_until_stopped(h);
        }
        crew.ended++;
    }
}

static void start_crew(int num) {
    ZERO(pthread_mutex_init(&crew.lock, NULL));
    ZERO(pthread_cond_init(&crew.told, NULL));
    crew.num = num;
    for (int k = 0; k < num; ++k) {
        ZERO(pthread_create(&crew.hands[k].thread, NULL, hand_main, &crew.hands[k]));
    }
}

static void end_crew() {
    ZERO(pthread_mutex_lock(&crew.lock));
    crew.quit = 1;
    ZERO(pthread_cond_broadcast(&crew.told));
    ZERO(pthread_mutex_unlock(&crew.lock));
    for (int k = 0; k < crew.num; ++k) ZERO(pthread_join(crew.hands[k].thread, NULL));
    ZERO(pthread_cond_destroy(&crew.told));
    ZERO(pthread_mutex_destroy(&crew.lock));
}

static void sleep_until(double end) {
    while (now_s() < end) (void)usleep(500);
}

/* Copies both ways between the device and pinned memory that the hands leave alone, as much of it
   as their ring is large, until `end`; the rate of each way. */
static double gpu_until(double end, size_t ring_bytes) {
    const size_t piece = std::min(ring_bytes, MIB), far = 128 * MIB;
    const double begin = now_s();
    size_t batches = 0;
    for (size_t at = 0; now_s() < end; ++batches) {
        slot_t *s = &rig.slots[batches % 2];
        if (batches >= 2) CUDA(cudaEventSynchronize(s->in_done));
        if (batches >= 2) CUDA(cudaEventSynchronize(s->out_done));
        for (int k = 0; k < 8; ++k, at = (at + piece) % ring_bytes) {
            copy_in(far + at, piece);
            copy_out(far + at, piece);
        }
        CUDA(cudaEventRecord(s->in_done, rig.streams[0]));
        CUDA(cudaEventRecord(s->out_done, rig.streams[3]));
    }
    finish();
    return (double)(8 * batches * piece) / (now_s() - begin);
}

typedef struct rates {
    double fill, drain, link;
} rates_t;

/* fill hands and drain hands at once for 10 ms, beside copies by the GPU or not. */
static rates_t crew_once(int fill, int drain, size_t ring_bytes, int stream, int gpu) {
    const size_t piece = std::min(MIB, ring_bytes / 32),
                 each = fill && drain ? ring_bytes / 2 : ring_bytes;
    static way_t ways[2];
    rates_t r = {0, 0, 0};
    for (int out = 0; out < 2; ++out) {
        way_t *w = &ways[out];
        w->array = out ? rig.page_out : rig.page_in;
        w->ring = out ? rig.pin_out : rig.pin_in;
        w->ring_bytes = each;
        w->piece = piece;
        w->out = out;
        w->stream = stream;
    }
    for (int k = 0; k < crew.num; ++k) {
        crew.hands[k].way = NULL;
        if (k < fill + drain) crew.hands[k].way = k < fill ? &ways[0] : &ways[1];
        crew.hands[k].rate = 0;
    }
    crew.running = crew.stop = crew.ended = 0;
    ZERO(pthread_mutex_lock(&crew.lock));
    crew.turn++;
    ZERO(pthread_cond_broadcast(&crew.told));
    ZERO(pthread_mutex_unlock(&crew.lock));
    while (crew.running < fill + drain) (void)sched_yield();
    if (gpu)
        r.link = gpu_until(now_s() + 0.010, ring_bytes);
    else
        sleep_until(now_s() + 0.010);
    crew.stop = 1;
    while (crew.ended < crew.num) (void)sched_yield();
    for (int k = 0; k < fill; ++k) r.fill += crew.hands[k].rate;
    for (int k = fill; k < fill + drain; ++k) r.drain += crew.hands[k].rate;
    return r;
}

static rates_t crew_rates(int fill, int drain, size_t ring_bytes, int stream, int gpu) {
    doubles_t in, out, link;
    for (int k = 0; k < 3; ++k) {
        const rates_t r = crew_once(fill, drain, ring_bytes, stream, gpu);
        in.push_back(r.fill);
        out.push_back(r.drain);
        link.push_back(r.link);
    }
    const rates_t r = {median(in), median(out), median(link)};
    return r;
}

static void probe_host() {
    static const int counts[] = {1, 2, 3, 4, 6, 7, 8, 12};
    printf("# host copying, GB/s of all threads of a way; t threads fill, t drain; gpu: while it\n"
           "# copies both ways, each at the rate said last. mem: memcpy, str: streaming stores.\n"
           "# ring store  t |  fill | drain |  both: fill drain |  both, gpu: fill drain  link\n");
    start_crew(MOST_HANDS);
    for (size_t ring : {8 * MIB, 64 * MIB}) {
        for (int stream = 0; stream <= HAVE_STREAM; ++stream) {
            for (int t : counts) {
                const rates_t fill = crew_rates(t, 0, ring, stream, 0);
                const rates_t drain = crew_rates(0, t, ring, stream, 0);
                const rates_t both = crew_rates(t, t, ring, stream, 0);
                const rates_t gpu = crew_rates(t, t, ring, stream, 1);
                printf("host %4s %4s %3d | %5.1f | %5.1f |     %6.1f %6.1f |        %6.1f %6.1f "
                       "%6.1f\n",
                       size_text(ring).c_str(), stream ? "str" : "mem", t, fill.fill / 1e9,
                       drain.drain / 1e9, both.fill / 1e9, both.drain / 1e9, gpu.fill / 1e9,
                       gpu.drain / 1e9, gpu.link / 1e9);
                fflush(stdout);
            }
        }
    }
    end_crew();
}

/* ---- threads --------------------------------------------------------------------------------- */

static struct bell {
    pthread_mutex_t lock;
    pthread_cond_t rings[8];
    std::atomic<int> waiting, awake;
    std::atomic<double> woke;
    int turn, quit;
} bell;

static void *sleeper(void *arg) {
    pthread_cond_t *mine = &bell.rings[(size_t)(uintptr_t)arg];
    ZERO(pthread_mutex_lock(&bell.lock));
    for (int seen = 0; !bell.quit;) {
        bell.waiting++;
        while (bell.turn == seen && !bell.quit) ZERO(pthread_cond_wait(mine, &bell.lock));
        seen = bell.turn;
        bell.woke = now_s();
        bell.awake++;
    }
    ZERO(pthread_mutex_unlock(&bell.lock));
    return NULL;
}

/* n threads that rest on conditions of their own are signalled one after another. */
static void wake_times(int n, double pause, int times) {
    pthread_t threads[8];
    doubles_t last, paid;
    ZERO(pthread_mutex_init(&bell.lock, NULL));
    bell.turn = bell.quit = 0;
    bell.waiting = bell.awake = 0;
    for (int k = 0; k < n; ++k) {
        ZERO(pthread_cond_init(&bell.rings[k], NULL));
        ZERO(pthread_create(&threads[k], NULL, sleeper, (void *)(uintptr_t)k));
    }
    for (int i = 0; i <= times; ++i) {
        while (bell.waiting < n) (void)sched_yield();
        const double until = now_s() + pause;
        while (now_s() < until) {
        }
        bell.awake = bell.waiting = 0;
        ZERO(pthread_mutex_lock(&bell.lock));
        bell.turn++;
        bell.quit = i == times;
        const double begin = now_s();
        for (int k = 0; k < n; ++k) ZERO(pthread_cond_signal(&bell.rings[k]));
        ZERO(pthread_mutex_unlock(&bell.lock));
        const double done = now_s();
        while (bell.awake < n) {
        }
        if (i < times) {
            paid.push_back(done - begin);
            last.push_back(bell.woke - begin);
        }
    }
    for (int k = 0; k < n; ++k) {
        ZERO(pthread_join(threads[k], NULL));
        ZERO(pthread_cond_destroy(&bell.rings[k]));
    }
    ZERO(pthread_mutex_destroy(&bell.lock));
    const std::string name = n == 1 ? std::string("wake_s") : text("wake_%d_s", n);
    const std::string after = text("after %.0f us of rest", pause * 1e6);
    say_us(name, median(last), after + (n == 1 ? "" : ", the last of them"));
    say_us(name + ".caller", median(paid), "what the caller pays for all");
}

static std::atomic<double> started;

static void *note_start(void *) {
    started = now_s();
    return NULL;
}

static void probe_threads() {
    doubles_t create, start, join;
    wake_times(1, 100e-6, 200);
    wake_times(1, 5e-3, 20);
    wake_times(6, 100e-6, 100);
    for (int k = 0; k < 100; ++k) {
        pthread_t t;
        const double begin = now_s();
        ZERO(pthread_create(&t, NULL, note_start, NULL));
        const double made = now_s();
        while (now_s() < made + 200e-6) {
        }
        const double join_began = now_s();
        ZERO(pthread_join(t, NULL));
        create.push_back(made - begin);
        start.push_back(started - begin);
        join.push_back(now_s() - join_began);
    }
    say_us("start_s", median(start), "pthread_create until it runs");
    say_us("start_s.caller", median(create), "what pthread_create takes");
    say_us("start_s.join", median(join), "pthread_join of one that has ended");
    pthread_t many[12];
    say_us("start_12_s.caller",
           timed(20,
                 [&] {
                     for (pthread_t &t : many) ZERO(pthread_create(&t, NULL, note_start, NULL));
                     for (pthread_t &t : many) ZERO(pthread_join(t, NULL));
                 }),
           "12 created and joined");
}

/* ---- pin: pinning, touching, allocating ------------------------------------------------------ */

static struct mapping { /* one at a time */
    void *base;
    size_t bytes;
} mapping;

/* Memory that nobody has touched, from a boundary of huge pages on. */
static char *fresh(size_t bytes, int huge) {
    const size_t page = 2048 * KIB;
    mapping.bytes = bytes + page;
    mapping.base =
        mmap(NULL, mapping.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping.base == MAP_FAILED) ZERO(ENOMEM);
    (void)madvise(mapping.base, mapping.bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return (char *)mapping.base + (page - (uintptr_t)mapping.base % page) % page;
}

static void release() {
    if (munmap(mapping.base, mapping.bytes) != 0) ZERO(errno);
}

typedef struct span {
    char *at;
    size_t bytes;
} span_t;

static void *touch_span(void *arg) {
    const span_t *s = (const span_t *)arg;
    for (size_t k = 0; k < s->bytes; k += 4096) *(volatile char *)(s->at + k) = 1;
    return NULL;
}

static double touch_s(size_t bytes, int huge, int threads) {
    return median_of(3, [=] {
        char *at = fresh(bytes, huge);
        pthread_t t[8];
        span_t spans[8];
        const double begin = now_s();
        for (int k = 0; k < threads; ++k) {
            const size_t each = bytes / (size_t)threads / 4096 * 4096;
            spans[k].at = at + (size_t)k * each;
            spans[k].bytes = each;
            if (threads == 1)
                (void)touch_span(&spans[k]);
            else
                ZERO(pthread_create(&t[k], NULL, touch_span, &spans[k]));
        }
        for (int k = 0; threads > 1 && k < threads; ++k) ZERO(pthread_join(t[k], NULL));
        const double s = now_s() - begin;
        release();
        return s;
    });
}

static void pin_times(int huge) {
    const std::string kind = huge ? ".huge" : ".4k";
    const std::vector<size_t> sizes = {64 * KIB / SMALLER, MIB, 16 * MIB, 256 * MIB};
    doubles_t pin, unpin;
    for (size_t b : sizes) {
        doubles_t on, off;
        char *at = fresh(b, huge);
        span_t all = {at, b};
        (void)touch_span(&all);
        for (int k = 0; k < (b > 64 * MIB ? 3 : 7); ++k) {
            const double begin = now_s();
            CUDA(cudaHostRegister(at, b, cudaHostRegisterPortable | cudaHostRegisterMapped));
            const double done = now_s();
            CUDA(cudaHostUnregister(at));
            on.push_back(done - begin);
            off.push_back(now_s() - done);
        }
        release();
        pin.push_back(median(on));
        unpin.push_back(median(off));
        say_us("pin" + kind + "." + size_text(b), pin.back(), "cudaHostRegister, touched memory");
        say_us("unpin" + kind + "." + size_text(b), unpin.back());
    }
    say_fit("pin" + kind, sizes, pin);
    say_fit("unpin" + kind, sizes, unpin);
}

static void probe_pin() {
    const size_t b = 64 * MIB;
    pin_times(1);
    pin_times(0);
    for (int huge = 1; huge >= 0; --huge) {
        for (int threads : {1, 6}) {
            say_rate(text("touch.%s.%d", huge ? "huge" : "4k", threads),
                     (double)b / touch_s(b, huge, threads),
                     text("64 MiB of fresh memory, %d thread%s", threads, threads > 1 ? "s" : ""));
        }
    }
}

static void probe_alloc() {
    for (size_t b : {MIB, 16 * MIB, 64 * MIB}) {
        doubles_t made, freed;
        for (int k = 0; k < 3; ++k) {
            void *at = NULL;
            const double begin = now_s();
            CUDA(cudaHostAlloc(&at, b, cudaHostAllocPortable | cudaHostAllocMapped));
            const double done = now_s();
            CUDA(cudaFreeHost(at));
            made.push_back(done - begin);
            freed.push_back(now_s() - done);
        }
        say_us("malloc_host." + size_text(b), median(made),
               text("%.2f GB/s", (double)b / median(made) / 1e9));
        say_us("free_host." + size_text(b), median(freed));
    }
    for (size_t b : {MIB, 8 * MIB, 64 * MIB}) {
        doubles_t made, freed;
        for (int k = 0; k < 9; ++k) {
            void *at = NULL;
            const double begin = now_s();
            CUDA(cudaMalloc(&at, b));
            const double done = now_s();
            CUDA(cudaFree(at));
            if (k >= 2) {
                made.push_back(done - begin);
                freed.push_back(now_s() - done);
            }
        }
        say_us("malloc." + size_text(b), median(made));
        say_us("free." + size_text(b), median(freed));
    }
    say_us("stream",
           timed(21,
                 [] {
                     cudaStream_t s;
                     CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
                     CUDA(cudaStreamDestroy(s));
                 }),
           "create and destroy");
    say_us("streams_4",
           timed(21,
                 [] {
                     cudaStream_t s[4];
                     for (cudaStream_t &x : s)
                         CUDA(cudaStreamCreateWithFlags(&x, cudaStreamNonBlocking));
                     for (cudaStream_t x : s) CUDA(cudaStreamDestroy(x));
                 }),
           "create and destroy");
    say_us("event",
           timed(51,
                 [] {
                     cudaEvent_t e;
                     CUDA(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
                     CUDA(cudaEventDestroy(e));
                 }),
           "create and destroy");
}

/* ---- The machine ----------------------------------------------------------------------------- */

static int numa_nodes() {
    int n = 0;
    while (access(text("/sys/devices/system/node/node%d", n).c_str(), F_OK) == 0) ++n;
    return n;
}

static std::string first_line(const char *path) {
    char line[128] = "";
    FILE *f = fopen(path, "r");
    if (f && !fgets(line, sizeof line, f)) line[0] = 0;
    if (f) (void)fclose(f);
    line[strcspn(line, "\n")] = 0;
    return line;
}

static void print_machine() {
    cudaDeviceProp prop;
    cpu_set_t set;
    int driver = 0, runtime = 0;
    long l3 = 0;
    CUDA(cudaGetDeviceProperties(&prop, 0));
    CUDA(cudaDriverGetVersion(&driver));
    CUDA(cudaRuntimeGetVersion(&runtime));
    CUDA(cudaDeviceGetAttribute(&rig.sms, cudaDevAttrMultiProcessorCount, 0));
    rig.cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
#ifdef _SC_LEVEL3_CACHE_SIZE
    l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    printf("# %s, driver API %d, runtime %d, %d multiprocessors%s\n", prop.name, driver, runtime,
           rig.sms, SMALLER > 1 ? "; hostcuda: no figure below means anything" : "");
    printf("# transparent huge pages: %s\n",
           first_line("/sys/kernel/mm/transparent_hugepage/enabled").c_str());
    say("cpus", rig.cpus, "", "that this process may use");
    say("cpus_online", (double)sysconf(_SC_NPROCESSORS_ONLN), "");
    say("cache", (double)l3 / (1024.0 * 1024.0), "MiB", "last level, by sysconf");
    say("numa_nodes", numa_nodes(), "");
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*probe)();
    } probes[] = {{"link", probe_link},           {"ring", probe_ring},
                  {"launch", probe_launch},       {"issue", probe_issue},
                  {"zero_copy", probe_zero_copy}, {"pageable", probe_pageable},
                  {"threads", probe_threads},     {"pin", probe_pin},
                  {"alloc", probe_alloc},         {"host", probe_host}};

    const double began = now_s();
    int num = 0;
    const cudaError_t e = cudaGetDeviceCount(&num);
    if (e != cudaSuccess || num == 0) {
        fprintf(stderr, "costs: there is no GPU here to measure: %s\n", cudaGetErrorString(e));
        return SKIP;
    }
    CUDA(cudaSetDevice(0));
    CUDA(cudaFree(NULL));
    print_machine();
    create_rig();
    wake_gpu();
    printf("# ready after %.2f s\n", now_s() - began);
    for (const auto &p : probes) {
        int wanted = argc < 2 || p.probe == probe_link; /* others need its rate */
        const double begin = now_s();
        for (int k = 1; k < argc; ++k) wanted |= strcmp(argv[k], p.name) == 0;
        if (!wanted) continue;
        wake_gpu();
        p.probe();
        printf("# %s: %.2f s\n", p.name, now_s() - begin);
        fflush(stdout);
    }
    destroy_rig();
    printf("# in all %.1f s\n", now_s() - began);
    return 0;
}
