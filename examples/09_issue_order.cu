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

/* Milliseconds of the last of some runs, the first warm up; -1 if a result is wrong. */
static double run_ms(spipe_schedule_t schedule, const unsigned *x, unsigned *y, unsigned *steps) {
    spipe_pipeline_t *p;
    spipe_desc_t d = spipe_desc_default();
    double ms = 0;
    d.count = N;
    d.chunk = N / CHUNKS;
    d.depth = schedule == SPIPE_SERIAL ? 1 : CHUNKS;
    d.schedule = schedule;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "busy", ex_busy_stage, steps);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (int k = 0; k < TRIES && ms >= 0; ++k) {
        memset(y, 0, BYTES);
        const double start = ex_now_ms();
        SPIPE_CHECK(spipe_pipeline_run(p, NULL));
        ms = ex_now_ms() - start;
        if (!ex_busy_right(y, *steps, N)) ms = -1;
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    return ms;
}

static int compare(void) {
    static const spipe_schedule_t orders[] = {SPIPE_SERIAL, SPIPE_DEPTH_FIRST, SPIPE_BREADTH_FIRST,
                                              SPIPE_ENGINES};
    spipe_device_t gpu;
    unsigned *x, *y, *dev;
    double ms[4];
    int right = 1;
    SPIPE_CHECK(spipe_device_get(&gpu, -1));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&x, BYTES));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&y, BYTES));
    SPIPE_CHECK(cudaMalloc((void **)&dev, BYTES));
    ex_fill(x, N);
    unsigned steps = ex_busy_steps(dev, N, ex_copy_ms(dev, x, BYTES));
    SPIPE_CHECK(cudaFree(dev));
    for (int k = 0; k < 4; ++k) {
        ms[k] = run_ms(orders[k], x, y, &steps);
        right &= ms[k] >= 0;
    }
    printf("    %-26s %d copy engine%s  %8.3f ms %7.2f x %7.2f x %7.2f x\n", gpu.name,
           gpu.copy_engines, gpu.copy_engines == 1 ? " " : "s", ms[0], ms[0] / ms[1], ms[0] / ms[2],
           ms[0] / ms[3]);
    SPIPE_CHECK(spipe_pinned_free(y));
    SPIPE_CHECK(spipe_pinned_free(x));
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
