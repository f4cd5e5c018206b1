/*  07_any_grid.cu -- a kernel that is right with any number of threads

    Task     The launch has 8 blocks of 128 threads, whatever n is. Let each thread work on several
             elements: its own, then the one T further on (T: the number of all threads), and so on.
    Try it   make exercise N=07                                                                   */
#include "exercise.h"

enum {
    N = 10000
};

static __global__ void triple(int *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    /* WRITE HERE: a loop over the elements of this thread. */
    if (i < n) x[i] = 3 * i;
    /* END */
}

int main() {
    static int out[N];
    int *dev;
    CHECK(cudaMalloc(&dev, sizeof out));
    CHECK(cudaMemset(dev, 0, sizeof out));
    triple<<<8, 128>>>(dev, N);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(out, dev, sizeof out, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(dev));
    judge("out", out, N, [](int i) { return 3 * i; });
    return judge_done();
}

/* Hint: gridDim.x blocks of blockDim.x threads: that is the step of the loop. */
