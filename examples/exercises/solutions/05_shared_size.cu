/*  05_shared_size.cu -- solved: the launch gives the size of shared memory

    Why      the third number in <<< >>> is the dynamic shared memory of a block in bytes; it is 0
             if left out.
    Unsolved out of bounds: reverse (line 16) writes 4 bytes beside its 0 bytes of shared memory  */
#include "exercise.h"

enum {
    BLOCK = 128,
    N = 8 * BLOCK
};

static __global__ void reverse(int *x) {
    extern __shared__ int tile[];
    int *own = x + blockIdx.x * BLOCK;
    tile[threadIdx.x] = own[threadIdx.x];
    __syncthreads();
    own[threadIdx.x] = tile[BLOCK - 1 - threadIdx.x];
}

int main() {
    static int x[N];
    int *dev;
    for (int i = 0; i < N; ++i) x[i] = i;
    CHECK(cudaMalloc(&dev, sizeof x));
    CHECK(cudaMemcpy(dev, x, sizeof x, cudaMemcpyHostToDevice));
    /* WRITE HERE: launch reverse with BLOCK ints of shared memory for each block. */
    reverse<<<N / BLOCK, BLOCK, BLOCK * sizeof(int)>>>(dev);
    /* END */
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(x, dev, sizeof x, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(dev));
    judge("x", x, N, [](int i) { return i / BLOCK * BLOCK + BLOCK - 1 - i % BLOCK; });
    return judge_done();
}

/* Hint: it is the third number of the launch, in bytes. */
