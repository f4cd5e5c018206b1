/*  18_last_chunk.cu -- the last chunk is shorter

    Task     10000 numbers go through the GPU in chunks of 4096: copy in, kernel, copy out, in two
             streams by turns. The third chunk has only 1808. Say how many elements a chunk has.
    Try it   make exercise N=18                                                                   */
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
    (void)first;
    return CHUNK;
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
