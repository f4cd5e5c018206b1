/*  27_halo.cu -- solved: neighbours beyond the chunk

    Why      with a halo the elements -1 and count of a chunk can be read, too. The library copies
             them along, and fills in what lies beyond the first and the last of all.
    Unsolved race                                                                                 */
#include "exercise.h"

#include "streampipe.h"

enum {
    N = 100000
};

static __global__ void sum3(const int *x, int *y, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i - 1] + x[i] + x[i + 1];
}

static cudaError_t sum3_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(sum3, spipe_blocks(c->count, 256), 256, 0, c, SPIPE_BUF(c, 0, const int),
                        SPIPE_BUF(c, 1, int), (long)c->count);
}

int main() {
    static int x[N], y[N];
    spipe_report_t report;
    spipe_desc_t d = spipe_desc_default();
    for (int i = 0; i < N; ++i) x[i] = i + 1;
    d.count = N;
    d.chunk = 1 << 14;
    d.schedule = SPIPE_SCHEDULE_ENGINES;
    d.staging = SPIPE_STAGING_COPY; /* so little is else left to CUDA, which waits for each chunk */
    /* WRITE HERE: the input x, with one element more to be read before and after each chunk; zeros
   beyond the whole. */
    int in = spipe_add_input(&d, x, sizeof *x);
    spipe_set_halo(&d, in, 1, 1, SPIPE_EDGE_ZERO);
    /* END */
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "sum3", sum3_stage, NULL);
    cudaError_t e = spipe_run(&d, &report);
    judge_that(e == cudaSuccess, report.failure.message);
    judge("y", y, N, [](int i) { return i < N - 1 ? 3 * (i + 1) : i + i + 1; });
    return judge_done();
}

/* Hint: spipe_add_input returns the number of the buffer that spipe_set_halo wants. */
