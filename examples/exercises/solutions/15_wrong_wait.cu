/*  15_wrong_wait.cu -- solved: cudaMemcpy waits, but for whom?

    Why      cudaMemcpy waits for the default stream, not for a non-blocking one. The copy belongs
             into the kernel's stream, and the host waits for that one.
    Unsolved race                                                                                 */
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
    CHECK(cudaMemcpyAsync(host, dev, N * sizeof(int), cudaMemcpyDeviceToHost, s));
    CHECK(cudaStreamSynchronize(s));
    /* END */
    judge("host", host, N, [](int i) { return 7 * i; });
    CHECK(cudaStreamSynchronize(s));
    CHECK(cudaFree(dev));
    CHECK(cudaFreeHost(host));
    CHECK(cudaStreamDestroy(s));
    return judge_done();
}

/* Hint: cudaMemcpyAsync takes a stream; afterwards the host waits for it. */
