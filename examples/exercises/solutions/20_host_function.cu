/*  20_host_function.cu -- solved: a host function in a stream's order

    Why      the function runs after the copy, in the stream's order, so the numbers are in host
             memory already. Any CUDA call in it could wait for the stream that waits for it.
    Unsolved wrong: sum[0] is 0, wanted 8386560; 1 of 1 are wrong                                 */
#include "exercise.h"

enum {
    N = 1 << 12
};

typedef struct job {
    int *host, *dev;
    long sum;
} job_t;

static __global__ void fill(int *x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = i;
}

static void add_up(void *user) {
    job_t *job = (job_t *)user;
    /* WRITE HERE: add up the numbers of the job without a call of CUDA. */
    /* END */
    for (int i = 0; i < N; ++i) job->sum += job->host[i];
}

int main() {
    job_t job = {NULL, NULL, 0};
    cudaStream_t s;
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CHECK(cudaMallocHost(&job.host, N * sizeof(int)));
    CHECK(cudaMalloc(&job.dev, N * sizeof(int)));
    fill<<<N / 256, 256, 0, s>>>(job.dev);
    CHECK(cudaMemcpyAsync(job.host, job.dev, N * sizeof(int), cudaMemcpyDeviceToHost, s));
    CHECK(cudaLaunchHostFunc(s, add_up, &job));
    CHECK(cudaStreamSynchronize(s));
    judge("sum", &job.sum, 1, [](int) { return (long)N * (N - 1) / 2; });
    CHECK(cudaFree(job.dev));
    CHECK(cudaFreeHost(job.host));
    CHECK(cudaStreamDestroy(s));
    return judge_done();
}

/* Hint: job->host has the numbers: the copy before the function has ended. */
