/*  24_describe.cu -- solved: describe a pipeline

    Why      buffers are numbered as they are added: x is buffer 0, y is buffer 1, and that is how
             the stage asks for them. The library takes care of chunks, streams, events and pinned
             memory.
    Unsolved wrong: stage 'twice' failed at chunk 0: it takes buffer 1, and the pipeline has      */
#include "exercise.h"

#include "streampipe.h"

enum {
    N = 300000
};

static __global__ void twice(const float *x, float *y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}

static cudaError_t twice_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    twice<<<spipe_blocks(c->count, 256), 256, 0, c->stream>>>(SPIPE_BUF(c, 0, const float),
                                                              SPIPE_BUF(c, 1, float), c->count);
    return cudaGetLastError();
}

int main() {
    static float x[N], y[N];
    spipe_report_t report;
    spipe_desc_t d = spipe_desc_default();
    for (int i = 0; i < N; ++i) x[i] = (float)i;
    /* WRITE HERE: the number of elements, the input x, the output y, the stage twice_stage. */
    d.count = N;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "twice", twice_stage, NULL);
    /* END */
    d.chunk = 1 << 16;
    cudaError_t e = spipe_run(&d, &report);
    judge_that(e == cudaSuccess, report.failure.message);
    judge("y", y, N, [](int i) { return 2 * i; });
    return judge_done();
}

/* Hint: the complete program at the top of streampipe.h. */
