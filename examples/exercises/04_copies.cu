/*  04_copies.cu -- there and back

    Task     The kernel reads and writes memory of the GPU. The numbers are in x at first, and their
             results must be in x. Copy them to the GPU before the kernel, and back after it.
    Try it   make exercise N=04                                                                   */
#include "exercise.h"

enum {
    N = 4096
};

static __global__ void add_one(int *x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 1; }

int main() {
    static int x[N];
    int *dev;
    for (int i = 0; i < N; ++i) x[i] = 10 * i;
    CHECK(cudaMalloc(&dev, sizeof x));
    /* WRITE HERE: copy x to dev, launch the kernel, copy dev to x. */
    add_one<<<N / 256, 256>>>(dev);
    /* END */
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(dev));
    judge("x", x, N, [](int i) { return 10 * i + 1; });
    return judge_done();
}

/* Hint: cudaMemcpy(target, source, bytes, cudaMemcpyHostToDevice), and the other way round. */
