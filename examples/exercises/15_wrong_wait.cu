/*  15_wrong_wait.cu -- cudaMemcpy waits, but for whom?

    Task     "cudaMemcpy waits for the kernel" holds in one stream. This kernel is on a non-blocking
             stream, and cudaMemcpy is in the default stream, so it copies too early. Copy in the
             kernel's order.
    Try it   make exercise N=15                                                                   */
#include "exercise.h"

enum {
    N = 1 << 14
};

static __global__ void fill(int *x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = 7 * i;
}

int main() {
    int *host, *dev;
    cudaStream_t s;
    prepare_busy();
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CHECK(cudaMallocHost(&host, N * sizeof(int)));
    CHECK(cudaMalloc(&dev, N * sizeof(int)));
    busy<<<1, 32, 0, s>>>();
    fill<<<N / 256, 256, 0, s>>>(dev);
    /* WRITE HERE: copy dev to host after the kernel, so that host is whole when this part ends. */
    CHECK(cudaMemcpy(host, dev, N * sizeof(int), cudaMemcpyDeviceToHost));
    /* END */
    judge("host", host, N, [](int i) { return 7 * i; });
    CHECK(cudaStreamSynchronize(s));
    CHECK(cudaFree(dev));
    CHECK(cudaFreeHost(host));
    CHECK(cudaStreamDestroy(s));
    return judge_done();
}

/* Hint: cudaMemcpyAsync takes a stream; afterwards the host waits for it. */
