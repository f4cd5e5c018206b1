/*  multi.cu -- one run on 1, 2, 4, ... GPUs, as fractions of what the machine allows.

    make bench-multi BACKEND=cuda ARCH=sm_90          needs 2 GPUs or more
    build/cuda/tests/bench/multi --gib 16 --rounds 5  --smoke: tries the logic, on hostcuda too

    THE WORK     Floats in pinned host memory go in, through one kernel, and out, into other pinned
                 memory: 8 GiB each way in all (--gib), whatever the number of GPUs.
    THE BOUND    All GPUs copy their shares both ways at once and do nothing else. Copies in alone
                 and out alone are rates only.
    ROWS         kernel 1 x: the kernel takes as long as the copy in on one GPU alone: fraction of
                 the bound. kernel 3 x: speedup over one GPU, by the number of GPUs. uneven: the
                 same with twice the steps on the last GPU; over the ideal split.
    TARGETS      0.95 each; exit status 1 when one is missed.
    CALLS        One call over 1 to 64 MiB each way on all GPUs, by the host's clock around it:
                 ms without resources and with those of all GPUs. No target.
    HOW          Wall time of the run, set-up apart (the library's report; for the bound the host's
                 clock around it). Each round runs every variant once, in random order; a ratio is
                 taken within a round, then its median. Outputs are compared with the CPU's at
                 random places after every run, and poisoned there before it.                    */
#include "bench_common.h"
#include "streampipe_devices.h"

#include <atomic>
#include <math.h>

static const float FACTOR = 0.9999f, TERM = 0.0001f;
static const double TARGET = 0.95;

enum {
    PLACES = 400
};

static __global__ void busy_kernel(const float *in, float *out, size_t n, unsigned steps) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i];
    for (unsigned k = 0; k < steps; k++) x = fmaf(x, 0.9999f, 0.0001f);
    out[i] = x;
}

static struct bench {
    bench_array_t in, out;
    size_t count;
    int num_gpus, rounds, smoke;
    unsigned steps_1, steps_3; /* of a kernel as long as the copy in, and three times that */
    std::mt19937 rng;
} bench;

/* ---- The library's run ---------------------------------------------------------------------- */
typedef struct job {
    unsigned steps;
    int slow; /* number of the device that takes twice the steps, or -1 */
} job_t;

/* On the slow device every element goes through twice as many steps, of which half are for show:
   the second launch writes what the first one did. */
static cudaError_t busy_stage(const spipe_chunk_t *c, void *user) {
    const job_t *j = (const job_t *)user;
    int device = -1;
    SPIPE_TRY(cudaGetDevice(&device));
    for (int again = 0; again <= (device == j->slow); again++) {
        SPIPE_TRY(SPIPE_LAUNCH(busy_kernel, spipe_blocks(c->count, 256), 256, 0, c->stream,
                               SPIPE_BUF(c, 0, const float), SPIPE_BUF(c, 1, float), c->count,
                               j->steps));
    }
    return cudaSuccess;
}

static std::vector<size_t> poison() {
    std::vector<size_t> places(PLACES);
    for (size_t &at : places) {
        at = bench.rng() % bench.count;
        ((float *)bench.out.at)[at] = 1e30f;
    }
    return places;
}

static int is_right(const std::vector<size_t> &places, unsigned steps) {
    for (size_t at : places) {
        float x = ((const float *)bench.in.at)[at];
        for (unsigned k = 0; k < steps; k++) x = fmaf(x, FACTOR, TERM);
        if (((const float *)bench.out.at)[at] != x) {
            fprintf(stderr, "multi: element %zu is wrong\n", at);
            return 0;
        }
    }
    return 1;
}

/* ms on the first num GPUs; the report's chunks when asked. */
static double run_shared(int num, job_t job, spipe_report_t *report) {
    int list[SPIPE_MAX_DEVICES];
    spipe_report_t r;
    spipe_desc_t d = spipe_desc_default();
    for (int i = 0; i < num; i++) list[i] = i;
    d.count = bench.count;
    spipe_add_input(&d, bench.in.at, sizeof(float));
    spipe_add_output(&d, bench.out.at, sizeof(float));
    spipe_add_stage(&d, "busy", busy_stage, &job);
    spipe_devices_list(&d, list, num);
    const std::vector<size_t> places = poison();
    SPIPE_CHECK_RUN(&d, &r);
    if (!is_right(places, job.steps)) exit(1);
    if (report) *report = r;
    return r.wall_ms;
}

/* ---- The bound ------------------------------------------------------------------------------ */
static const size_t PIECE = 64 * BENCH_MIB;

enum {
    WAY_IN = 1,
    WAY_OUT = 2
};

/* One GPU's share, in large pieces, each way in a stream of its own. */
static cudaError_t copy_share(int device, size_t begin, size_t end, std::atomic<int> *ready,
                              int num, int ways) {
    unsigned char *in = NULL, *out = NULL;
    cudaStream_t streams[2] = {NULL, NULL};
    SPIPE_TRY(cudaSetDevice(device));
    SPIPE_TRY(cudaMalloc((void **)&in, PIECE));
    SPIPE_TRY(cudaMalloc((void **)&out, PIECE));
    for (cudaStream_t &s : streams) SPIPE_TRY(spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT));
    SPIPE_TRY(cudaMemset(out, 0, PIECE));
    SPIPE_TRY(cudaDeviceSynchronize());
    ++*ready;
    while (*ready < num) std::this_thread::yield();
    for (size_t at = begin; at < end; at += PIECE) {
        const size_t n = std::min(PIECE, end - at);
        if (ways & WAY_IN) {
            SPIPE_TRY(cudaMemcpyAsync(in, (char *)bench.in.at + at, n, cudaMemcpyHostToDevice,
                                      streams[0]));
        }
        if (ways & WAY_OUT) {
            SPIPE_TRY(cudaMemcpyAsync((char *)bench.out.at + at, out, n, cudaMemcpyDeviceToHost,
                                      streams[1]));
        }
    }
    for (cudaStream_t s : streams) SPIPE_TRY(cudaStreamSynchronize(s));
    ++*ready; /* the end of the last one is the end of all */
    while (*ready < 2 * num) std::this_thread::yield();
    for (cudaStream_t s : streams) SPIPE_TRY(cudaStreamDestroy(s));
    SPIPE_TRY(cudaFree(in));
    return cudaFree(out);
}

static double run_copies(int num, int ways) {
    const size_t bytes = bench.count * sizeof(float);
    std::atomic<int> ready(0);
    std::vector<std::thread> threads;
    for (int i = 0; i < num; i++) {
        const size_t begin = bytes / (size_t)num * (size_t)i;
        const size_t end = i + 1 == num ? bytes : begin + bytes / (size_t)num;
        threads.emplace_back(
            [=, &ready] { SPIPE_CHECK(copy_share(i, begin, end, &ready, num, ways)); });
    }
    while (ready < num) std::this_thread::yield();
    const double began = bench_now_ms();
    while (ready < 2 * num) std::this_thread::yield();
    const double ms = bench_now_ms() - began;
    for (std::thread &t : threads) t.join();
    return ms;
}

/* ---- Calibration ---------------------------------------------------------------------------- */
/* How many steps take as long as copying the same elements in, on the first GPU alone. */
static void calibrate() {
    const size_t n = std::min(bench.count, 64 * BENCH_MIB);
    const unsigned few = 500, many = 4500;
    float *in = NULL, *out = NULL;
    cudaEvent_t t[5];
    float copy = 0, a = 0, b = 0;
    if (bench.smoke) {
        bench.steps_1 = 2;
        bench.steps_3 = 6;
        return;
    }
    SPIPE_CHECK(cudaSetDevice(0));
    SPIPE_CHECK(cudaMalloc((void **)&in, n * sizeof(float)));
    SPIPE_CHECK(cudaMalloc((void **)&out, n * sizeof(float)));
    for (cudaEvent_t &e : t) SPIPE_CHECK(cudaEventCreate(&e));
    for (int round = 0; round < 2; round++) { /* the first warms up */
        SPIPE_CHECK(cudaEventRecord(t[0], NULL));
        SPIPE_CHECK(
            cudaMemcpyAsync(in, bench.in.at, n * sizeof(float), cudaMemcpyHostToDevice, NULL));
        SPIPE_CHECK(cudaEventRecord(t[1], NULL));
        SPIPE_CHECK(SPIPE_LAUNCH(busy_kernel, spipe_blocks(n, 256), 256, 0, NULL, in, out, n, few));
        SPIPE_CHECK(cudaEventRecord(t[2], NULL));
        SPIPE_CHECK(
            SPIPE_LAUNCH(busy_kernel, spipe_blocks(n, 256), 256, 0, NULL, in, out, n, many));
        SPIPE_CHECK(cudaEventRecord(t[3], NULL));
        SPIPE_CHECK(cudaEventSynchronize(t[3]));
    }
    SPIPE_CHECK(cudaEventElapsedTime(&copy, t[0], t[1]));
    SPIPE_CHECK(cudaEventElapsedTime(&a, t[1], t[2]));
    SPIPE_CHECK(cudaEventElapsedTime(&b, t[2], t[3]));
    const double each = (b - a) / (many - few), fixed = a - each * few;
    bench.steps_1 = (unsigned)std::max(1.0, (copy - fixed) / each);
    bench.steps_3 = (unsigned)std::max(3.0, (3.0 * copy - fixed) / each);
    printf("kernel: %u steps take as long as copying in (%.1f GB/s), %u three times that\n",
           bench.steps_1, (double)n * sizeof(float) / copy * 1e-6, bench.steps_3);
    for (cudaEvent_t e : t) SPIPE_CHECK(cudaEventDestroy(e));
    SPIPE_CHECK(cudaFree(in));
    SPIPE_CHECK(cudaFree(out));
}

/* ---- Rounds --------------------------------------------------------------------------------- */
enum {
    BOUND,
    IN_ALONE,
    OUT_ALONE,
    ONE_X,
    THREE_X,
    UNEVEN,
    KINDS
};

typedef struct times {
    std::vector<double> ms[KINDS];
} times_t;

static double measure(int kind, int num, spipe_report_t *report) {
    const job_t one = {bench.steps_1, -1}, three = {bench.steps_3, -1};
    const job_t uneven = {bench.steps_3, num - 1};
    if (kind == BOUND) return run_copies(num, WAY_IN | WAY_OUT);
    if (kind == IN_ALONE || kind == OUT_ALONE) {
        return run_copies(num, kind == IN_ALONE ? WAY_IN : WAY_OUT);
    }
    if (kind == ONE_X) return run_shared(num, one, report);
    return run_shared(num, kind == THREE_X ? three : uneven, report);
}

static int verdict(const char *what, int num, double value) {
    const int good = value >= TARGET || bench.smoke;
    const char *judged = good ? "ok" : "MISSED";
    printf("%d GPU%s  %-34s %5.3f  %s\n", num, num > 1 ? "s" : " ", what, value,
           bench.smoke ? "-" : judged);
    return good;
}

static std::vector<double> scaled(std::vector<double> x, double by) {
    for (double &v : x) v *= by;
    return x;
}

static int run_all() {
    std::vector<int> nums;
    std::vector<times_t> times;
    spipe_report_t split[SPIPE_MAX_DEVICES + 1];
    int good = 1;
    for (int n = 1; n <= bench.num_gpus; n *= 2) nums.push_back(n);
    times.resize(nums.size());
    for (int n : nums) (void)measure(ONE_X, n, NULL); /* contexts, kernels, the first touch */
    for (int round = 0; round < bench.rounds; round++) {
        for (size_t at : bench_order(nums.size() * KINDS, &bench.rng)) {
            const int kind = (int)(at % KINDS), num = nums[at / KINDS];
            if (kind == UNEVEN && num == 1) continue; /* nobody to do the rest */
            times[at / KINDS].ms[kind].push_back(
                measure(kind, num, kind == UNEVEN ? &split[num] : NULL));
        }
    }
    const double gb = 2.0 * (double)bench.count * sizeof(float) * 1e-6;
    for (size_t k = 0; k < nums.size(); k++) {
        printf("%d GPU%s  copies: in alone %.1f GB/s, out alone %.1f, both at once %.1f each way\n",
               nums[k], nums[k] > 1 ? "s" : " ", gb / 2 / bench_median(times[k].ms[IN_ALONE]),
               gb / 2 / bench_median(times[k].ms[OUT_ALONE]),
               gb / 2 / bench_median(times[k].ms[BOUND]));
    }
    for (size_t k = 0; k < nums.size(); k++) {
        printf("%d GPU%s  bound %.1f ms, %.1f GB/s in and out; 1 x %.1f ms, 3 x %.1f ms\n", nums[k],
               nums[k] > 1 ? "s" : " ", bench_median(times[k].ms[BOUND]),
               gb / bench_median(times[k].ms[BOUND]), bench_median(times[k].ms[ONE_X]),
               bench_median(times[k].ms[THREE_X]));
    }
    for (size_t k = 0; k < nums.size(); k++) {
        const int n = nums[k];
        const std::vector<double> &alone = times[0].ms[THREE_X];
        good &= verdict("kernel 1 x: fraction of the bound", n,
                        bench_median(bench_ratio(times[k].ms[BOUND], times[k].ms[ONE_X])));
        if (n == 1) continue;
        good &= verdict("kernel 3 x: speedup by GPUs", n,
                        bench_median(bench_ratio(scaled(alone, 1.0 / n), times[k].ms[THREE_X])));
        good &=
            verdict("one half as fast: of the ideal", n,
                    bench_median(bench_ratio(scaled(alone, 1.0 / (n - 0.5)), times[k].ms[UNEVEN])));
        printf("        chunks of %.0f MiB, last round:", (double)split[n].chunk / 262144.0);
        for (int i = 0; i < n; i++) printf(" %zu", split[n].device_chunks[i]);
        printf("\n");
    }
    return good;
}

/* ---- One call ------------------------------------------------------------------------------- */
static double one_call(size_t bytes, spipe_resources_t *resources) {
    job_t job = {1, -1};
    spipe_report_t r;
    spipe_desc_t d = spipe_desc_default();
    d.count = std::min(bytes / sizeof(float), bench.count);
    d.resources = resources;
    spipe_add_input(&d, bench.in.at, sizeof(float));
    spipe_add_output(&d, bench.out.at, sizeof(float));
    spipe_add_stage(&d, "busy", busy_stage, &job);
    spipe_devices_all(&d);
    memset(bench.out.at, 0xA5, d.count * sizeof(float));
    const double began = bench_now_ms();
    SPIPE_CHECK_RUN(&d, &r);
    const double took = bench_now_ms() - began;
    for (size_t at : {(size_t)0, d.count / 2, d.count - 1}) {
        if (((float *)bench.out.at)[at] == fmaf(((float *)bench.in.at)[at], FACTOR, TERM)) continue;
        fprintf(stderr, "multi: element %zu of one call is wrong\n", at);
        exit(1);
    }
    return took;
}

static void calls() {
    spipe_resources_t *shared;
    SPIPE_CHECK(spipe_devices_resources_create(&shared, NULL, 0, NULL, NULL));
    for (size_t mib = 1; mib <= 64; mib *= 4) {
        std::vector<double> ms[2];
        for (int k = 0; k < 2 * (bench.smoke ? 2 : 10 * bench.rounds + 2); k++) {
            ms[k % 2].push_back(one_call(mib * BENCH_MIB, k % 2 ? shared : NULL));
        }
        for (std::vector<double> &times : ms) times.erase(times.begin()); /* the first touch */
        printf("%d GPUs one call, %2zu MiB: %.3f ms by itself, %.3f with resources: %.2f x\n",
               bench.num_gpus, mib, bench_median(ms[0]), bench_median(ms[1]),
               bench_median(bench_ratio(ms[0], ms[1])));
    }
    SPIPE_CHECK(spipe_resources_destroy(shared, NULL));
}

static int arguments(int argc, char **argv, double *gib) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--smoke"))
            bench.smoke = 1;
        else if (!strcmp(argv[i], "--gib") && i + 1 < argc)
            *gib = atof(argv[++i]);
        else if (!strcmp(argv[i], "--rounds") && i + 1 < argc)
            bench.rounds = atoi(argv[++i]);
        else
            return 0;
    }
    return *gib > 0 && bench.rounds > 0;
}

int main(int argc, char **argv) {
    double gib = 8.0;
    bench.rounds = 3;
    if (!arguments(argc, argv, &gib)) {
        fprintf(stderr, "usage: multi [--gib G] [--rounds N] [--smoke]\n");
        return 2;
    }
    const bench_machine_t machine = bench_machine_or_skip(bench.smoke);
    SPIPE_CHECK(cudaGetDeviceCount(&bench.num_gpus));
    if (bench.num_gpus < 2) {
        printf("multi: skipped: needs 2 GPUs or more, there is %d\n", bench.num_gpus);
        return BENCH_SKIP;
    }
    bench.num_gpus = std::min(bench.num_gpus, (int)SPIPE_MAX_DEVICES);
    bench.count = (size_t)(gib * (double)BENCH_GIB) / sizeof(float);
    if (bench.smoke) bench.count = BENCH_MIB + 77;
    bench_machine_print(&machine, stdout);
    const double began = bench_now_ms();
    SPIPE_CHECK(bench_array_need(&bench.in, bench.count * sizeof(float), 1));
    SPIPE_CHECK(bench_array_need(&bench.out, bench.count * sizeof(float), 1));
    bench_fill_random((float *)bench.in.at, bench.count);
    printf("%.2f GiB in and as much out, pinned in %.1f s; %d GPUs, %d rounds\n",
           (double)bench.count * sizeof(float) / (double)BENCH_GIB, (bench_now_ms() - began) * 1e-3,
           bench.num_gpus, bench.rounds);
    calibrate();
    const int good = run_all();
    calls();
    bench_array_free(&bench.in);
    bench_array_free(&bench.out);
    return good ? 0 : 1;
}
