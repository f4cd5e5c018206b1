/*  32_in_my_stream.cu -- a pipeline between two kernels of your own

    Task     A kernel computes the factor that the pipeline's stage needs, and another kernel adds
             up what the pipeline computes. spipe_pipeline_run would begin before the factor is
             there. Put the run into the order of stream s instead.
    Try it   make exercise N=32                                                                   */
#include "exercise.h"

#include "streampipe.h"

enum {
    N = 1 << 14
};

static __global__ void find_factor(int *factor) { *factor = 3; }

static __global__ void times(const int *x, int *y, const int *factor, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * *factor;
}

static __global__ void add_up(const int *y, unsigned long long *sum) {
    atomicAdd(sum, (unsigned long long)y[blockIdx.x * blockDim.x + threadIdx.x]);
}

static cudaError_t times_stage(const spipe_chunk_t *c, void *user) {
    return SPIPE_LAUNCH(times, spipe_blocks(c->count, 256), 256, 0, c, SPIPE_BUF(c, 0, const int),
                        SPIPE_BUF(c, 1, int), (const int *)user, c->count);
}

int main() {
    int *x, *y, *factor;
    unsigned long long *sum;
    spipe_pipeline_t *p;
    cudaStream_t s;
    prepare_busy();
    CHECK(spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT));
    CHECK(spipe_pinned_alloc((void **)&x, N * sizeof *x));
    CHECK(spipe_pinned_alloc((void **)&sum, sizeof *sum));
    CHECK(cudaMalloc(&y, N * sizeof *y));
    CHECK(cudaMalloc(&factor, sizeof *factor));
    for (int i = 0; i < N; ++i) x[i] = i;
    *sum = 0;
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.chunk = N / 4;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y); /* device memory: it stays where it is needed */
    spipe_add_stage(&d, "times", times_stage, factor);
    CHECK(spipe_pipeline_create(&p, &d, NULL));
    busy<<<1, 32, 0, s>>>();
    find_factor<<<1, 1, 0, s>>>(factor);
    /* WRITE HERE: a run of pipeline p, after what is on stream s and before what comes next. */
    CHECK(spipe_pipeline_run(p, NULL));
    /* END */
    add_up<<<N / 256, 256, 0, s>>>(y, sum);
    CHECK(cudaStreamSynchronize(s));
    judge("sum", sum, 1, [](int) { return 3ull * N * (N - 1) / 2; });
    CHECK(spipe_pipeline_destroy(p));
    CHECK(cudaFree(factor));
    CHECK(cudaFree(y));
    CHECK(spipe_pinned_free(sum));
    CHECK(spipe_pinned_free(x));
    CHECK(cudaStreamDestroy(s));
    return judge_done();
}

/* Hint: spipe_pipeline_enqueue. */
