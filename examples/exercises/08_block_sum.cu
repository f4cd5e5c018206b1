/*  08_block_sum.cu -- the sum of a block in eight steps

    Task     Each block adds up its 256 numbers. In the first step the lower 128 threads add the
             number of the thread 128 above, then 64 threads the one 64 above, and so on until
             tile[0] has the sum.
    Try it   make exercise N=08                                                                   */
#include "exercise.h"

enum {
    BLOCK = 256,
    BLOCKS = 16,
    N = BLOCKS * BLOCK
};

static __global__ void sum(const int *x, int *sums) {
    __shared__ int tile[BLOCK];
    tile[threadIdx.x] = x[blockIdx.x * BLOCK + threadIdx.x];
    __syncthreads();
    /* WRITE HERE: the loop over the steps 128, 64, ... 1, with what the threads must wait for. */
    /* END */
    if (threadIdx.x == 0) sums[blockIdx.x] = tile[0];
}

int main() {
    static int x[N], sums[BLOCKS];
    int *dev, *dev_sums;
    for (int i = 0; i < N; ++i) x[i] = i % 1000;
    CHECK(cudaMalloc(&dev, sizeof x));
    CHECK(cudaMalloc(&dev_sums, sizeof sums));
    CHECK(cudaMemcpy(dev, x, sizeof x, cudaMemcpyHostToDevice));
    sum<<<BLOCKS, BLOCK>>>(dev, dev_sums);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(sums, dev_sums, sizeof sums, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(dev_sums));
    CHECK(cudaFree(dev));
    judge("sums", sums, BLOCKS, [](int block) {
        int all = 0;
        for (int i = 0; i < BLOCK; ++i) all += x[block * BLOCK + i];
        return all;
    });
    return judge_done();
}

/* Hint: for (unsigned half = 128; half > 0; half /= 2) and a barrier that all threads reach. */
