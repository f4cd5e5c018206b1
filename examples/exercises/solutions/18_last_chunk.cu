/*  18_last_chunk.cu -- solved: the last chunk is shorter

    Why      the count of the last chunk is what is left. All three steps need the same count, so it
             is computed once.
    Unsolved failed: line 35: cudaMemcpyAsync(d, h, bytes, cudaMemcpyHostToDevice, s[k % 2]):     */
#include "exercise.h"

enum {
    N = 10000,
    CHUNK = 4096
};

static __global__ void negate(int *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = -x[i];
}

static int count_of(int first) {
    /* WRITE HERE: the number of elements in the chunk that begins with element first. */
    return N - first < CHUNK ? N - first : CHUNK;
    /* END */
}

int main() {
    int *x, *dev;
    cudaStream_t s[2];
    CHECK(cudaMallocHost(&x, N * sizeof(int)));
    CHECK(cudaMalloc(&dev, N * sizeof(int)));
    for (int i = 0; i < N; ++i) x[i] = i;
    for (int k : {0, 1}) CHECK(cudaStreamCreateWithFlags(&s[k], cudaStreamNonBlocking));
    for (int first = 0, k = 0; first < N; first += CHUNK, ++k) {
        int n = count_of(first), *h = x + first, *d = dev + first;
        size_t bytes = (size_t)n * sizeof(int);
        CHECK(cudaMemcpyAsync(d, h, bytes, cudaMemcpyHostToDevice, s[k % 2]));
        negate<<<(n + 255) / 256, 256, 0, s[k % 2]>>>(d, n);
        CHECK(cudaMemcpyAsync(h, d, bytes, cudaMemcpyDeviceToHost, s[k % 2]));
    }
    CHECK(cudaDeviceSynchronize());
    judge("x", x, N, [](int i) { return -i; });
    for (int k : {0, 1}) CHECK(cudaStreamDestroy(s[k]));
    CHECK(cudaFree(dev));
    CHECK(cudaFreeHost(x));
    return judge_done();
}

/* Hint: the smaller of CHUNK and what is left after first. */
