/*  26_between_stages.cu -- what stays on the GPU

    Task     Two stages: the first turns bytes into floats, the second halves them. Nothing else
             needs the floats between the two, but here they are an output, which is copied out.
             Keep them on the GPU.
    Try it   make exercise N=26                                                                   */
#include "exercise.h"

#include "streampipe.h"

enum {
    N = 1 << 20
};

static __global__ void widen(const unsigned char *x, float *y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}

static __global__ void half(const float *x, unsigned char *y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = (unsigned char)(x[i] / 2);
}

static cudaError_t widen_stage(const spipe_chunk_t *c, void *) {
    return SPIPE_LAUNCH(widen, spipe_blocks(c->count, 256), 256, 0, c,
                        SPIPE_BUF(c, 0, const unsigned char), SPIPE_BUF(c, 1, float), c->count);
}

static cudaError_t half_stage(const spipe_chunk_t *c, void *) {
    return SPIPE_LAUNCH(half, spipe_blocks(c->count, 256), 256, 0, c, SPIPE_BUF(c, 1, const float),
                        SPIPE_BUF(c, 2, unsigned char), c->count);
}

int main() {
    static unsigned char x[N], y[N];
    static float between[N];
    spipe_report_t report;
    spipe_desc_t d = spipe_desc_default();
    for (int i = 0; i < N; ++i) x[i] = (unsigned char)(i % 256);
    (void)between;
    d.count = N;
    d.chunk = N / 4;
    spipe_add_input(&d, x, sizeof *x);
    /* WRITE HERE: add buffer 1, the floats between the stages, so that it is on the GPU only. */
    spipe_add_output(&d, between, sizeof *between);
    /* END */
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "widen", widen_stage, NULL);
    spipe_add_stage(&d, "half", half_stage, NULL);
    cudaError_t e = spipe_run(&d, &report);
    judge_that(e == cudaSuccess, report.failure.message);
    judge("y", y, N, [](int i) { return i % 256 / 2; });
    judge("bytes out", &report.bytes_out, 1, [](int) { return N; });
    return judge_done();
}

/* Hint: spipe_add_temp. */
