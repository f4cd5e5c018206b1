/*  00_threads.cu -- a kernel is a function that thousands of threads run; each has its own element.

    nvcc -O3 -I.. -o 00_threads 00_threads.cu && ./00_threads
    ../hostcuda/hcc 00_threads.cu -o 00_threads && ./00_threads                   (without a GPU)
    You learn   kernel<<<blocks, threads>>>(...) runs the function in blocks x threads threads. Each
                finds its number from blockIdx, blockDim and threadIdx. Threads of a block share
                memory and can wait for each other; blocks are in no order. Memory of the GPU is
                apart from the host's: cudaMalloc and cudaMemcpy.
    Mind        the number of threads is a multiple of the block, the number of elements is not:
                without a bound the last threads write past the end, and often nobody notices. Try
                ../hostcuda/hcc -g -fsanitize=address 00_threads.cu -o 00_threads
                ./00_threads no-bound
    Expect      (hostcuda) 1000 elements in 4 blocks of 256 threads: 24 threads have none
                element 515 was squared by thread 3 of block 2
                sums of the blocks: 32640 98176 163712 204972
                right: the CPU finds the same                                                     */
#include "ex_common.h"

enum {
    N = 1000,
    THREADS = 256,                       /* per block: a power of 2, at most 1024 */
    BLOCKS = (N + THREADS - 1) / THREADS /* rounded up, so that there are enough */
};

typedef struct where {
    unsigned block, thread;
} where_t;

/* Every thread runs this. What differs is blockIdx and threadIdx, and so the element. */
static __global__ void square(const int *x, int *y, where_t *by, int n) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) return; /* the bound: the last block has more threads than elements */
    y[i] = x[i] * x[i];
    by[i].block = blockIdx.x;
    by[i].thread = threadIdx.x;
}

/* The same without the bound: y[1000] to y[1023] belong to somebody else. */
static __global__ void square_no_bound(const int *x, int *y) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    y[i] = x[i] * x[i];
}

/* The threads of a block add up their elements in the memory that they share. */
static __global__ void sum_blocks(const int *x, int *sums, int n) {
    extern __shared__ int tile[]; /* the launch gives its size in bytes */
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    tile[threadIdx.x] = i < n ? x[i] : 0;
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads(); /* wait for all threads of the block: then what they wrote can be read */
        if (threadIdx.x < half) tile[threadIdx.x] += tile[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = tile[0];
}

static int compare(const int *y, const int *sums) {
    int right = 1, want[BLOCKS] = {0};
    for (int i = 0; i < N; ++i) {
        right &= y[i] == i * i;
        want[i / THREADS] += i;
    }
    printf("sums of the blocks:");
    for (int b = 0; b < BLOCKS; ++b) {
        printf(" %d", sums[b]);
        right &= sums[b] == want[b];
    }
    printf("\n");
    return right;
}

int main(int argc, char **argv) {
    static int x[N], y[N], sums[BLOCKS];
    static where_t by[N];
    int *dev_x, *dev_y, *dev_sums;
    where_t *dev_by;
    ex_begin();
    for (int i = 0; i < N; ++i) x[i] = i;
    SPIPE_CHECK(cudaMalloc((void **)&dev_x, sizeof x));
    SPIPE_CHECK(cudaMalloc((void **)&dev_y, sizeof y));
    SPIPE_CHECK(cudaMalloc((void **)&dev_sums, sizeof sums));
    SPIPE_CHECK(cudaMalloc((void **)&dev_by, sizeof by));
    SPIPE_CHECK(cudaMemcpy(dev_x, x, sizeof x, cudaMemcpyHostToDevice));

    printf("%d elements in %d blocks of %d threads: %d threads have none\n", N, BLOCKS, THREADS,
           BLOCKS * THREADS - N);
    if (argc > 1 && strcmp(argv[1], "no-bound") == 0)
        square_no_bound<<<BLOCKS, THREADS>>>(dev_x, dev_y);
    square<<<BLOCKS, THREADS>>>(dev_x, dev_y, dev_by, N);
    SPIPE_CHECK(cudaGetLastError()); /* <<<>>> returns nothing: ask whether it was accepted */
    sum_blocks<<<BLOCKS, THREADS, THREADS * sizeof(int)>>>(dev_x, dev_sums, N);
    SPIPE_CHECK(cudaGetLastError());

    /* cudaMemcpy waits for the kernels before it, and returns when the bytes are here. */
    SPIPE_CHECK(cudaMemcpy(y, dev_y, sizeof y, cudaMemcpyDeviceToHost));
    SPIPE_CHECK(cudaMemcpy(sums, dev_sums, sizeof sums, cudaMemcpyDeviceToHost));
    SPIPE_CHECK(cudaMemcpy(by, dev_by, sizeof by, cudaMemcpyDeviceToHost));
    printf("element 515 was squared by thread %u of block %u\n", by[515].thread, by[515].block);
    const int right = compare(y, sums);
    SPIPE_CHECK(cudaFree(dev_by));
    SPIPE_CHECK(cudaFree(dev_sums));
    SPIPE_CHECK(cudaFree(dev_y));
    SPIPE_CHECK(cudaFree(dev_x));
    return ex_verdict(right);
}
