/*  28_running_sum.cu -- solved: state from chunk to chunk

    Why      chunks take turns on two kernel streams, so that kernels of neighbouring chunks may
             overlap. Chunk k leaves an ordered stage before chunk k + 1 enters it, so such a stage
             may carry state.
    Unsolved race                                                                                 */
#include "exercise.h"

#include "streampipe.h"

enum {
    N = 4096
};

static __global__ void running(const int *x, int *y, long long *carry, size_t n) {
    long long sum = *carry;
    for (size_t i = 0; i < n; ++i) {
        sum += x[i];
        y[i] = (int)sum;
    }
    *carry = sum;
}

static cudaError_t running_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(running, 1, 1, 0, c, SPIPE_BUF(c, 0, const int), SPIPE_BUF(c, 1, int),
                        (long long *)c->data[2], c->count);
}

int main() {
    static int x[N], y[N];
    spipe_report_t report;
    spipe_desc_t d = spipe_desc_default();
    for (int i = 0; i < N; ++i) x[i] = i % 7;
    d.count = N;
    d.chunk = N / 8;
    d.schedule = SPIPE_SCHEDULE_ENGINES;
    d.staging = SPIPE_STAGING_COPY; /* so little is else left to CUDA, which waits for each chunk */
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_resident(&d, NULL, sizeof(long long), SPIPE_ZERO);
    /* WRITE HERE: add running_stage so that chunks go through it one after another, in order. */
    int stage = spipe_add_stage(&d, "running", running_stage, NULL);
    spipe_stage_ordered(&d, stage);
    /* END */
    cudaError_t e = spipe_run(&d, &report);
    judge_that(e == cudaSuccess, report.failure.message);
    judge("y", y, N, [](int i) { return (i + 1) / 7 * 21 + (i + 1) % 7 * ((i + 1) % 7 - 1) / 2; });
    return judge_done();
}

/* Hint: spipe_add_stage returns the number of the stage, which spipe_stage_ordered wants. */
