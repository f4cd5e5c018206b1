/*  09_issue_order.cu -- the same operations issued in three orders, on GPUs of four generations.

    nvcc -O3 -I.. -o 09_issue_order 09_issue_order.cu && ./09_issue_order
                                                  (older GPUs, modelled, and no GPU: make examples)
    You learn   depth-first issues copy, kernel, copy of chunk 0, then of chunk 1, and so on.
                Breadth-first issues all copies in, then all kernels, then all copies out. Which of
                them overlaps depends on the number of copy engines and of hardware queues. ENGINES
                has a stream for each direction; it does not help where one engine serves both.
    Mind        if an order takes 8/12, 6/12 or 4/7 of the serial time, its speedup is 1.5, 2 or
                1.75 x. No order is best on today's GPUs: from Kepler on there are many queues, all
                orders are equal, and only the number and size of chunks matter.
    Expect      (hostcuda)                                  serial       depth   breadth   engines
                hostcuda h200 (modelled)   3 copy engines     0.276 ms    1.96 x    1.96 x    1.96 x
                hostcuda c1060 (modelled)  1 copy engine      2.248 ms    1.00 x    1.52 x    1.00 x
                hostcuda c2050 (modelled)  2 copy engines     2.248 ms    1.94 x    1.34 x    1.94 x
                hostcuda k20c (modelled)   2 copy engines     2.248 ms    1.94 x    1.94 x    1.94 x
                right: the CPU finds the same                                                     */
#include "ex_common.h"

enum {
    N = EX_HOSTCUDA ? 1 << 20 : 1 << 24,
    CHUNKS = 4,
    BYTES = N * sizeof(unsigned),
    TRIES = EX_HOSTCUDA ? 1 : 5
};

static const int IN = 0, OUT = 2; /* steps of a chunk; 1 is the kernel */

typedef struct work {
    unsigned *x, *y, *dev_x, *dev_y, steps;
    cudaStream_t streams[CHUNKS];
    cudaEvent_t step_done[CHUNKS];
} work_t;

static cudaError_t issue(const work_t *w, int step, int chunk, cudaStream_t s) {
    const size_t n = N / CHUNKS, at = (size_t)chunk * n;
    if (step == IN)
        return cudaMemcpyAsync(w->dev_x + at, w->x + at, n * 4, cudaMemcpyHostToDevice, s);
    if (step == OUT)
        return cudaMemcpyAsync(w->y + at, w->dev_y + at, n * 4, cudaMemcpyDeviceToHost, s);
    return ex_busy(w->dev_y + at, w->dev_x + at, w->steps, n, s);
}

static void serial(const work_t *w) {
    for (int k = 0; k < 3 * CHUNKS; ++k) SPIPE_CHECK(issue(w, k % 3, k / 3, w->streams[0]));
}

static void depth_first(const work_t *w) { /* a stream for each chunk */
    for (int k = 0; k < 3 * CHUNKS; ++k) SPIPE_CHECK(issue(w, k % 3, k / 3, w->streams[k / 3]));
}

static void breadth_first(const work_t *w) {
    for (int k = 0; k < 3 * CHUNKS; ++k) {
        SPIPE_CHECK(issue(w, k / CHUNKS, k % CHUNKS, w->streams[k % CHUNKS]));
    }
}

static void engines(const work_t *w) { /* a stream for each step, joined by events */
    for (int k = 0; k < 3 * CHUNKS; ++k) {
        const int step = k % 3;
        if (step > IN) SPIPE_CHECK(cudaStreamWaitEvent(w->streams[step], w->step_done[k / 3], 0));
        SPIPE_CHECK(issue(w, step, k / 3, w->streams[step]));
        if (step < OUT) SPIPE_CHECK(cudaEventRecord(w->step_done[k / 3], w->streams[step]));
    }
}

/* Milliseconds of the last of some runs, the first warm up; -1 if a result is wrong. */
static double run_ms(const work_t *w, void (*order)(const work_t *)) {
    double ms = 0;
    for (int k = 0; k < TRIES && ms >= 0; ++k) {
        memset(w->y, 0, BYTES);
        const double start = ex_now_ms();
        order(w);
        SPIPE_CHECK(cudaDeviceSynchronize());
        ms = ex_now_ms() - start;
        if (!ex_busy_right(w->y, w->steps, N)) ms = -1;
    }
    return ms;
}

static int compare(void) {
    void (*const orders[])(const work_t *) = {serial, depth_first, breadth_first, engines};
    spipe_device_t gpu;
    work_t w;
    double ms[4];
    int right = 1;
    SPIPE_CHECK(spipe_device_get(&gpu, -1));
    for (unsigned **p : {&w.x, &w.y}) SPIPE_CHECK(spipe_pinned_alloc((void **)p, BYTES));
    for (unsigned **p : {&w.dev_x, &w.dev_y}) SPIPE_CHECK(cudaMalloc((void **)p, BYTES));
    for (cudaStream_t &s : w.streams) SPIPE_CHECK(spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT));
    for (cudaEvent_t &e : w.step_done) SPIPE_CHECK(cudaEventCreate(&e));
    ex_fill(w.x, N);
    w.steps = ex_busy_steps(w.dev_x, N, ex_copy_ms(w.dev_x, w.x, BYTES));
    for (int k = 0; k < 4; ++k) {
        ms[k] = run_ms(&w, orders[k]);
        right &= ms[k] >= 0;
    }
    printf("    %-26s %d copy engine%s  %8.3f ms %7.2f x %7.2f x %7.2f x\n", gpu.name,
           gpu.copy_engines, gpu.copy_engines == 1 ? " " : "s", ms[0], ms[0] / ms[1], ms[0] / ms[2],
           ms[0] / ms[3]);
    for (cudaEvent_t e : w.step_done) SPIPE_CHECK(cudaEventDestroy(e));
    for (cudaStream_t s : w.streams) SPIPE_CHECK(cudaStreamDestroy(s));
    for (unsigned *p : {w.dev_x, w.dev_y}) SPIPE_CHECK(cudaFree(p));
    for (unsigned *p : {w.x, w.y}) SPIPE_CHECK(spipe_pinned_free(p));
    return right;
}

int main(void) {
    ex_begin();
    printf("%45s   serial       depth   breadth   engines\n", "");
    int right = compare();
#if EX_HOSTCUDA
    for (const char *name : {"c1060", "c2050", "k20c"}) {
        const hostcuda_profile_t gpu = hostcuda_profile(name);
        SPIPE_CHECK(hostcuda_set_profile(0, &gpu));
        right &= compare();
    }
#endif
    return ex_verdict(right);
}
