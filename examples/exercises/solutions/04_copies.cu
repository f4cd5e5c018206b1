/*  04_copies.cu -- solved: there and back

    Why      cudaMemcpy wants the target first, the size in bytes, and the direction. The copy back
             waits for the kernel, because both are in the same stream.
    Unsolved wrong: x[0] is 0, wanted 1; 4096 of 4096 are wrong                                   */
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
    CHECK(cudaMemcpy(dev, x, sizeof x, cudaMemcpyHostToDevice));
    add_one<<<N / 256, 256>>>(dev);
    CHECK(cudaMemcpy(x, dev, sizeof x, cudaMemcpyDeviceToHost));
    /* END */
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(dev));
    judge("x", x, N, [](int i) { return 10 * i + 1; });
    return judge_done();
}

/* Hint: cudaMemcpy(target, source, bytes, cudaMemcpyHostToDevice), and the other way round. */
