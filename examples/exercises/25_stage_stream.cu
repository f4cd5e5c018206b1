/*  25_stage_stream.cu -- the stage's own stream

    Task     The stage launches its kernel on another stream than it should: nothing orders the
             kernel and the copies of its chunk. Launch it on the stream that the chunk names.
    Try it   make exercise N=25                                                                   */
#include "exercise.h"

#include "streampipe.h"

enum {
    N = 1 << 16
};

static __global__ void square(const int *x, int *y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}

static cudaError_t square_stage(const spipe_chunk_t *c, void *user) {
    const int *x = SPIPE_BUF(c, 0, const int);
    int *y = SPIPE_BUF(c, 1, int);
    (void)user;
    /* WRITE HERE: launch square for this chunk on the chunk's stream. */
    square<<<spipe_blocks(c->count, 256), 256>>>(x, y, c->count);
    /* END */
    return cudaGetLastError();
}

int main() {
    static int x[N], y[N];
    spipe_report_t report;
    spipe_desc_t d = spipe_desc_default();
    for (int i = 0; i < N; ++i) x[i] = i % 1000;
    d.count = N;
    d.chunk = N / 8;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "square", square_stage, NULL);
    cudaError_t e = spipe_run(&d, &report);
    judge_that(e == cudaSuccess, report.failure.message);
    judge("y", y, N, [](int i) { return (i % 1000) * (i % 1000); });
    return judge_done();
}

/* Hint: c->stream is the fourth number of the launch. */
