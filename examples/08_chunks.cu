/*  08_chunks.cu -- divide one job into N chunks: what a formula predicts, and what is reached.

    nvcc -O3 -I.. -o 08_chunks 08_chunks.cu && ./08_chunks           (without a GPU: make examples)

    You learn   copy in, kernel and copy out of T each take 3 T one after another. In N chunks the
                first takes 3 T/N and each other adds T/N, so the total is (N + 2) T/N, at best 3 x
                faster. More chunks gain less and less, but each has a fixed cost, so there is a
                best N.
    Mind        the usual four chunks give at most 2 x, two thirds of what is possible. The formula
                leaves out that copies in both directions slow each other down, whatever N is.
                streampipe chooses the chunk if you do not.
    Expect      (hostcuda) one after the other: 0.928 ms, so T = 0.309 ms
                      N   modelled   model      faster by   model
                      1    0.928 ms   0.928 ms     1.00 x     1.00 x
                      4    0.491 ms   0.464 ms     1.89 x     2.00 x
                     16    0.428 ms   0.348 ms     2.17 x     2.67 x
                     64    0.606 ms   0.319 ms     1.53 x     2.91 x
                right: the CPU finds the same                                                     */
#include "ex_common.h"

#include <math.h>

enum {
    N_ELEMENTS = (1 << 22) + 37,
    MOST_CHUNKS = 64,
    TRIES = EX_HOSTCUDA ? 1 : 5
};

/* The closed form, with T = a third of the serial time. */
static double model_ms(double serial_ms, double chunks) {
    return (chunks + 2.0) * (serial_ms / 3.0) / chunks;
}

/* The shortest of some runs: disturbances make a run longer, never shorter. */
static double run_ms(const spipe_desc_t *d, unsigned *y, unsigned steps, int *right) {
    spipe_pipeline_t *p;
    double best = 1e30;
    SPIPE_CHECK(spipe_pipeline_create(&p, d, NULL));
    for (int k = 0; k < TRIES; ++k) {
        memset(y, 0, N_ELEMENTS * sizeof *y);
        const double start = ex_now_ms();
        SPIPE_CHECK(spipe_pipeline_run(p, NULL));
        best = fmin(best, ex_now_ms() - start);
        *right &= ex_busy_right(y, steps, N_ELEMENTS);
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    return best;
}

int main(void) {
    const size_t bytes = N_ELEMENTS * sizeof(unsigned);
    unsigned *x, *y, *dev;
    int right = 1;
    ex_begin();
    SPIPE_CHECK(spipe_pinned_alloc((void **)&x, bytes));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&y, bytes));
    SPIPE_CHECK(cudaMalloc((void **)&dev, bytes));
    ex_fill(x, N_ELEMENTS);
    unsigned steps = ex_busy_steps(dev, N_ELEMENTS, ex_copy_ms(dev, x, bytes));
    SPIPE_CHECK(cudaFree(dev));

    spipe_desc_t d = spipe_desc_default();
    d.count = d.chunk = N_ELEMENTS;
    d.schedule = SPIPE_SCHEDULE_SERIAL;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "busy", ex_busy_stage, &steps);
    const double serial = run_ms(&d, y, steps, &right);
    printf("one after the other: %.3f ms, so T = %.3f ms\n", serial, serial / 3);
    printf("      N   " EX_TIMES "   model      faster by   model\n");
    d.schedule = SPIPE_SCHEDULE_ENGINES;
    for (size_t n = 1; n <= MOST_CHUNKS; n *= 2) {
        d.chunk = (N_ELEMENTS + n - 1) / n; /* rounded up: the last chunk is the shorter one */
        const double ms = run_ms(&d, y, steps, &right), model = model_ms(serial, (double)n);
        printf("     %2zu   %6.3f ms  %6.3f ms   %6.2f x   %6.2f x\n", n, ms, model, serial / ms,
               serial / model);
    }
    SPIPE_CHECK(spipe_pinned_free(y));
    SPIPE_CHECK(spipe_pinned_free(x));
    return ex_verdict(right);
}
