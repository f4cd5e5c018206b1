/*  02_bound.cu -- solved: more threads than elements

    Why      the number of threads is a multiple of the block size, the number of elements is not.
             So nearly every kernel begins with this line.
    Unsolved out of bounds: twice (line 18) writes 4 bytes beside memory of 4000 bytes            */
#include "exercise.h"

enum {
    N = 1000
};

static __global__ void twice(int *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    /* WRITE HERE: let the threads without an element do nothing. */
    if (i >= n) return;
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
