/*  01_threads.cu -- solved: every thread finds its own element

    Why      threadIdx.x counts within a block only. The blocks before this one have blockIdx.x *
             blockDim.x threads.
    Unsolved wrong: out[64] is 0, wanted 64; 192 of 256 are wrong                                 */
#include "exercise.h"

enum {
    BLOCKS = 4,
    THREADS = 64,
    N = BLOCKS * THREADS
};

static __global__ void number(int *out) {
    /* WRITE HERE: the number of this thread in the whole launch. */
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    /* END */
    out[i] = i;
}

int main() {
    static int out[N];
    int *dev;
    CHECK(cudaMalloc(&dev, sizeof out));
    CHECK(cudaMemset(dev, 0, sizeof out));
    number<<<BLOCKS, THREADS>>>(dev);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(out, dev, sizeof out, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(dev));
    judge("out", out, N, [](int i) { return i; });
    return judge_done();
}

/* Hint: blockIdx.x is the number of the block, blockDim.x the number of threads in each. */
