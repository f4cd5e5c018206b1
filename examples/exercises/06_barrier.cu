/*  06_barrier.cu -- wait for the others of the block

    Task     Each thread writes its number into shared memory and reads its right neighbour's. The
             neighbour may not have written it yet. Make the threads of a block wait for each
             other.
    Try it   make exercise N=06                                                                   */
#include "exercise.h"

enum {
    BLOCK = 256,
    N = 4 * BLOCK
};

static __global__ void take_neighbours(const int *x, int *y) {
    __shared__ int tile[BLOCK];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    tile[threadIdx.x] = x[i];
    /* WRITE HERE: let all threads of the block come here before any goes on. */
    /* END */
    y[i] = tile[(threadIdx.x + 1) % BLOCK];
}

int main() {
    static int x[N];
    int *dev, *out;
    for (int i = 0; i < N; ++i) x[i] = 3 * i + 1;
    CHECK(cudaMalloc(&dev, sizeof x));
    CHECK(cudaMalloc(&out, sizeof x));
    CHECK(cudaMemcpy(dev, x, sizeof x, cudaMemcpyHostToDevice));
    take_neighbours<<<N / BLOCK, BLOCK>>>(dev, out);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(x, out, sizeof x, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(out));
    CHECK(cudaFree(dev));
    judge("y", x, N, [](int i) { return 3 * (i / BLOCK * BLOCK + (i + 1) % BLOCK) + 1; });
    return judge_done();
}

/* Hint: a call without arguments, of the block, that every thread must reach. */
