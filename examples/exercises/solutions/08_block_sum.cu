/*  08_block_sum.cu -- solved: the sum of a block in eight steps

    Why      every step reads what other threads wrote in the step before, so there is a barrier
             after each. It stands outside the if: all threads of the block must reach it.
    Unsolved wrong: sums[0] is 0, wanted 32640; 16 of 16 are wrong                                */
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
    for (unsigned half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) tile[threadIdx.x] += tile[threadIdx.x + half];
        __syncthreads();
    }
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
