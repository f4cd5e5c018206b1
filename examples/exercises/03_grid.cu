/*  03_grid.cu -- how many blocks

    Task     The kernel is right for any number of elements, but the launch has too few threads for
             1000. Choose the number of blocks so that there are enough threads for every n, and no
             block is without work.
    Try it   make exercise N=03                                                                   */
#include "exercise.h"

enum {
    N = 1000
};

static __global__ void square(int *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = i * i;
}

static unsigned blocks_for(int n) {
    /* WRITE HERE: the number of blocks of 256 threads that n elements need. */
    return (unsigned)n / 256;
    /* END */
}

int main() {
    static int out[N];
    int *dev;
    CHECK(cudaMalloc(&dev, sizeof out));
    CHECK(cudaMemset(dev, 0, sizeof out));
    square<<<blocks_for(N), 256>>>(dev, N);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(out, dev, sizeof out, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(dev));
    judge("out", out, N, [](int i) { return i * i; });
    judge_that(blocks_for(1) == 1 && blocks_for(256) == 1 && blocks_for(257) == 2,
               "1 and 256 elements need one block, 257 need two");
    return judge_done();
}

/* Hint: integer division rounds down: what must be added to n before? */
