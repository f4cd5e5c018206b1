/*  02_bound.cu -- more threads than elements

    Task     1000 elements need 4 blocks of 256 threads: 24 threads too many. They write past the
             end of the array. Often nobody notices, because the memory there belongs to nobody yet.
             Prevent that.
    Try it   make exercise N=02                                                                   */
#include "exercise.h"

enum {
    N = 1000
};

static __global__ void twice(int *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    /* WRITE HERE: let the threads without an element do nothing. */
    (void)n;
    /* END */
    x[i] = 2 * i;
}

int main() {
    static int out[N];
    int *dev;
    CHECK(cudaMalloc(&dev, sizeof out));
    twice<<<4, 256>>>(dev, N);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(out, dev, sizeof out, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(dev));
    judge("out", out, N, [](int i) { return 2 * i; });
    return judge_done();
}

/* Hint: a kernel returns nothing, but it may return early. */
