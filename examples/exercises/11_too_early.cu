/*  11_too_early.cu -- when may the host read?

    Task     cudaMemcpyAsync returns at once: the copy has not even begun, and the host reads the
             sum too early. Let the host wait, for this stream and nothing else.
    Try it   make exercise N=11                                                                   */
#include "exercise.h"

enum {
    N = 1 << 16
};

static __global__ void fill(int *x, int value) { x[blockIdx.x * blockDim.x + threadIdx.x] = value; }

int main() {
    int *host, *dev, sum = 0;
    cudaStream_t s;
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CHECK(cudaMallocHost(&host, N * sizeof(int)));
    CHECK(cudaMalloc(&dev, N * sizeof(int)));
    for (int i = 0; i < N; ++i) host[i] = -1;
    fill<<<N / 256, 256, 0, s>>>(dev, 2);
    CHECK(cudaMemcpyAsync(host, dev, N * sizeof(int), cudaMemcpyDeviceToHost, s));
    /* WRITE HERE: wait until the copy has ended. */
    /* END */
    for (int i = 0; i < N; ++i) sum += host[i];
    CHECK(cudaStreamSynchronize(s));
    judge("sum", &sum, 1, [](int) { return 2 * N; });
    CHECK(cudaFree(dev));
    CHECK(cudaFreeHost(host));
    CHECK(cudaStreamDestroy(s));
    return judge_done();
}

/* Hint: cudaStreamSynchronize waits for one stream. */
