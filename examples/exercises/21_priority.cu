/*  21_priority.cu -- an urgent request beside a large job

    Task     A job of many kernels fills the GPU. A small request comes and waits until the kernels
             before it have ended, because its stream is no more urgent than the job's. Make its
             stream the most urgent one of this GPU.
    Try it   make exercise N=21                                                                   */
#include "exercise.h"

enum {
    KERNELS = 20,
    FULL = 1 << 15 /* blocks, many times as many as fit on the GPU */
};

static __global__ void large() {
#ifdef __CUDA_ARCH__
    for (long long end = clock64() + 50000; clock64() < end;) continue;
#endif
}

static __global__ void small(int *x) { *x = 1; }

static void make_stream(cudaStream_t *s) {
    /* WRITE HERE: make stream s: non-blocking, and of the greatest priority. */
    CHECK(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking));
    /* END */
}

int main() {
    cudaStream_t job, urgent;
    int *x;
#ifdef __HOSTCUDA__
    hostcuda_kernel_time(large, 0, 1e6 / (FULL * 128.0)); /* 1 ms each */
    hostcuda_kernel_time(small, 1e4, 0);
#endif
    CHECK(cudaMalloc(&x, sizeof *x));
    CHECK(cudaStreamCreateWithFlags(&job, cudaStreamNonBlocking));
    make_stream(&urgent);
    small<<<1, 1, 0, urgent>>>(x);
    large<<<FULL, 128, 0, job>>>();
    CHECK(cudaDeviceSynchronize());
    double start = now_ms();
    for (int k = 0; k < KERNELS; ++k) large<<<FULL, 128, 0, job>>>();
    double one = now_ms();
    small<<<1, 1, 0, urgent>>>(x);
    CHECK(cudaStreamSynchronize(urgent));
    double request = now_ms() - one;
    CHECK(cudaDeviceSynchronize());
    judge_ms("the request", request, (now_ms() - start) / KERNELS / 2);
    CHECK(cudaFree(x));
    CHECK(cudaStreamDestroy(urgent));
    CHECK(cudaStreamDestroy(job));
    return judge_done();
}

/* Hint: cudaDeviceGetStreamPriorityRange gives the least, then the greatest priority. */
