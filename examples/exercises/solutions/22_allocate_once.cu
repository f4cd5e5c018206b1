/*  22_allocate_once.cu -- solved: memory that is allocated in the loop

    Why      cudaFreeAsync frees the memory when the stream reaches that point; the host does not
             wait. Memory that every task needs could also be allocated once, before the loop.
    Unsolved slow: four tasks of 1 ms took 4.053 ms, wanted at most 2.000 ms                      */
#include "exercise.h"

enum {
    N = 1 << 10
};

static __global__ void fill(int *x, int value) { x[blockIdx.x * blockDim.x + threadIdx.x] = value; }

static __global__ void add(const int *x, int *sum) { atomicAdd(sum, x[threadIdx.x * 4]); }

static void task(int k, int *sums, cudaStream_t s) {
    int *x;
    /* WRITE HERE: allocate, launch twice and free, all in the order of stream s. */
    CHECK(cudaMallocAsync(&x, N * sizeof(int), s));
    fill<<<N / 256, 256, 0, s>>>(x, k + 1);
    add<<<1, 256, 0, s>>>(x, &sums[k]);
    CHECK(cudaFreeAsync(x, s));
    /* END */
}

int main() {
    cudaStream_t streams[4];
    int *sums;
    prepare_busy();
    CHECK(cudaMallocManaged(&sums, 4 * sizeof(int)));
    for (int k = 0; k < 4; ++k) {
        CHECK(cudaStreamCreateWithFlags(&streams[k], cudaStreamNonBlocking));
        sums[k] = 0;
        task(k, sums, streams[k]);
    }
    CHECK(cudaDeviceSynchronize());
    double start = now_ms();
    for (int k = 0; k < 4; ++k) {
        busy<<<1, 32, 0, streams[k]>>>();
        task(k, sums, streams[k]);
    }
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    judge_ms("four tasks of 1 ms", now_ms() - start, 2.0);
    judge("sums", sums, 4, [](int k) { return 2 * 256 * (k + 1); });
    for (int k = 0; k < 4; ++k) CHECK(cudaStreamDestroy(streams[k]));
    CHECK(cudaFree(sums));
    return judge_done();
}

/* Hint: cudaMallocAsync(&x, bytes, s) and cudaFreeAsync(x, s). */
