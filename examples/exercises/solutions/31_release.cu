/*  31_release.cu -- solved: give the chunk back

    Why      the slot is used again after the work that is on the stream at
             spipe_pipeline_release. Nothing orders a kernel that is launched later and the next
             copy into the slot.
    Unsolved race                                                                                 */
#include "exercise.h"

#include "streampipe.h"

enum {
    N = 1 << 16
};

static __global__ void add_up(const int *x, unsigned long long *sum, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(sum, (unsigned long long)x[i]);
}

int main() {
    static int x[N];
    unsigned long long sum = 0, *dev_sum;
    spipe_pipeline_t *p;
    spipe_chunk_t c;
    cudaStream_t s;
    for (int i = 0; i < N; ++i) x[i] = i;
    CHECK(spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT));
    CHECK(cudaMalloc(&dev_sum, sizeof sum));
    CHECK(cudaMemsetAsync(dev_sum, 0, sizeof sum, s));
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.chunk = N / 16;
    d.depth = 2;
    spipe_add_input(&d, x, sizeof *x);
    CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (;;) {
        CHECK(spipe_pipeline_next(p, s, &c));
        if (c.count == 0) break;
        /* WRITE HERE: launch add_up on the chunk, and give the chunk back, in the right order. */
        add_up<<<spipe_blocks(c.count, 256), 256, 0, s>>>(SPIPE_BUF(&c, 0, int), dev_sum, c.count);
        CHECK(spipe_pipeline_release(p, s));
        /* END */
    }
    CHECK(cudaMemcpyAsync(&sum, dev_sum, sizeof sum, cudaMemcpyDeviceToHost, s));
    CHECK(cudaStreamSynchronize(s));
    CHECK(spipe_pipeline_destroy(p));
    judge("sum", &sum, 1, [](int) { return (unsigned long long)N * (N - 1) / 2; });
    CHECK(cudaFree(dev_sum));
    CHECK(cudaStreamDestroy(s));
    return judge_done();
}

/* Hint: spipe_pipeline_release comes after the launch; neither waits. */
