/*  07_any_grid.cu -- solved: a kernel that is right with any number of threads

    Why      the step is the number of threads of the whole launch. In each turn neighbouring
             threads still use neighbouring elements, which the memory serves fastest.
    Unsolved wrong: out[1024] is 0, wanted 3072; 8976 of 10000 are wrong                          */
#include "exercise.h"

enum {
    N = 10000
};

static __global__ void triple(int *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    /* WRITE HERE: a loop over the elements of this thread. */
    for (; i < n; i += gridDim.x * blockDim.x) x[i] = 3 * i;
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
