/*  01_threads.cu -- every thread finds its own element

    Task     A launch of 4 blocks of 64 threads makes 256 threads, and all of them run the same
             function. Let each thread write its own number, 0 to 255, into the element of that
             number.
    Try it   make exercise N=01                                                                   */
#include "exercise.h"

enum {
    BLOCKS = 4,
    THREADS = 64,
    N = BLOCKS * THREADS
};

static __global__ void number(int *out) {
    /* WRITE HERE: the number of this thread in the whole launch. */
    int i = threadIdx.x;
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
