/*  28_published_table.cu -- how the order of issue and the kind of device change the overlap: times
    that NVIDIA published, the model's, and those of this machine's GPU.

    nvcc -O3 -I.. -o 28_published_table 28_published_table.cu  (or: make examples)
    You learn   the same twelve operations on four streams can be slower than no overlap at all, or
                nearly twice as fast, depending on the order in which they are issued: {copy,
                kernel, copy} for each stream, or {all copies in} {all kernels} {all copies out}.
    Mind        the first order is bad with one copy engine and one in-order queue (C1060), the
                second with two engines whose kernels signal late (C2050). With queues that do not
                block each other (K20c and later) both are equal. 16 MiB, changed in place; in ms.
    Expect      (hostcuda) 16 MiB of floats, changed in place, 4 streams; ms
                                          sequential   V1 c,k,c   V2 cc,kk
                Tesla C1060    published      12.924     13.637      8.846
                Tesla C1060    modelled       12.924     12.987      8.687
                Tesla C2050    published       9.985      5.736      7.598
                Tesla C2050    modelled        9.985      5.747      7.801
                Tesla K20c     published       7.102      3.974      3.968
                Tesla K20c     modelled        7.102      4.117      4.117
                right: the CPU finds the same                                                     */
#include "ex_common.h"

static const int STREAMS = 4, BLOCK = 256;
static const int IN = 0, OUT = 2; /* steps of a stream; 1 is the kernel */
static const size_t count = (size_t)4 << 20, part = count / STREAMS;

static __global__ void add_one(float *a, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) a[i] += 1.0f;
}

typedef struct work {
    float *host, *device;
    cudaStream_t streams[STREAMS];
    cudaEvent_t begin, end;
} work_t;

static cudaError_t issue(const work_t *w, int what, size_t first, size_t n, cudaStream_t s) {
    float *h = w->host + first, *d = w->device + first;
    if (what == IN) return cudaMemcpyAsync(d, h, n * sizeof *d, cudaMemcpyHostToDevice, s);
    if (what == OUT) return cudaMemcpyAsync(h, d, n * sizeof *d, cudaMemcpyDeviceToHost, s);
    return SPIPE_LAUNCH(add_one, spipe_blocks(n, BLOCK), BLOCK, 0, s, d, n);
}

/* Order 0: all on one stream; 1: stream by stream; 2: step by step. Returns milliseconds. */
static double run(const work_t *w, int order) {
    float ms = 0.0f;
    SPIPE_CHECK(cudaDeviceSynchronize());
    SPIPE_CHECK(cudaEventRecord(w->begin, NULL)); /* NULL waits for all blocking streams */
    for (int k = 0; k < 3 * STREAMS; ++k) {
        const int stream = order == 1 ? k / 3 : k % STREAMS;
        const int what = order == 1 ? k % 3 : k / STREAMS;
        if (order == 0 && k < 3) SPIPE_CHECK(issue(w, k, 0, count, w->streams[0]));
        if (order == 0) continue;
        SPIPE_CHECK(issue(w, what, (size_t)stream * part, part, w->streams[stream]));
    }
    SPIPE_CHECK(cudaEventRecord(w->end, NULL));
    SPIPE_CHECK(cudaEventSynchronize(w->end));
    SPIPE_CHECK(cudaEventElapsedTime(&ms, w->begin, w->end));
    return (double)ms;
}

static void make(work_t *w) {
    SPIPE_CHECK(spipe_pinned_alloc((void **)&w->host, count * sizeof(float)));
    SPIPE_CHECK(cudaMalloc((void **)&w->device, count * sizeof(float)));
    for (cudaStream_t &s : w->streams) SPIPE_CHECK(cudaStreamCreate(&s));
    for (cudaEvent_t *e : {&w->begin, &w->end}) SPIPE_CHECK(cudaEventCreate(e));
    memset(w->host, 0, count * sizeof(float));
}

/* Frees all memory. Returns 1 if every element went through each of the runs. */
static int unmake(work_t *w, float runs) {
    size_t wrong = 0;
    for (size_t i = 0; i < count; ++i) wrong += w->host[i] != runs;
    for (cudaStream_t s : w->streams) SPIPE_CHECK(cudaStreamDestroy(s));
    for (cudaEvent_t e : {w->begin, w->end}) SPIPE_CHECK(cudaEventDestroy(e));
    SPIPE_CHECK(cudaFree(w->device));
    SPIPE_CHECK(spipe_pinned_free(w->host));
    return wrong == 0;
}

static void print_row(const char *who, const char *how, const double *ms) {
    printf("%-14.40s %-10s %10.3f %10.3f %10.3f\n", who, how, ms[0], ms[1], ms[2]);
}

int main(void) {
    static const struct {
        const char *profile, *name;
        double ms[3];
    } cards[] = {{"c1060", "Tesla C1060", {12.92381, 13.63690, 8.84588}},
                 {"c2050", "Tesla C2050", {9.984512, 5.735584, 7.597984}},
                 {"k20c", "Tesla K20c", {7.101760, 3.974144, 3.967616}}};

    work_t w = work_t();
    int right = 1;
    printf("16 MiB of floats, changed in place, 4 streams; ms\n%-25s %10s %10s %10s\n", "",
           "sequential", "V1 c,k,c", "V2 cc,kk");
    for (const auto &card : cards) {
        print_row(card.name, "published", card.ms);
#ifdef __HOSTCUDA__
        const hostcuda_profile_t p = hostcuda_profile(card.profile);
        SPIPE_CHECK(hostcuda_set_profile(0, &p));
        make(&w);
        hostcuda_kernel_time(add_one, 0.0, 0.0); /* the copies' time; the rest is the kernel's, */
        hostcuda_kernel_time(add_one, 0.0, (card.ms[0] - run(&w, 0)) * 1e6 / (double)count);
        const double ms[3] = {run(&w, 0), run(&w, 1), run(&w, 2)};
        print_row(card.name, "modelled", ms); /* the only time taken from the table */
        right &= unmake(&w, 4.0f);
#endif
    }
#ifndef __HOSTCUDA__
    spipe_device_t facts;
    SPIPE_CHECK(spipe_device_get(&facts, -1));
    make(&w);
    for (int order : {0, 1, 2}) (void)run(&w, order); /* warms up */
    const double ms[3] = {run(&w, 0), run(&w, 1), run(&w, 2)};
    print_row(facts.name, "measured", ms);
    right = unmake(&w, 6.0f);
#endif
    return ex_verdict(right);
}
