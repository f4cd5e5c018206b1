/*  12_order.cu -- one stream waits for another

    Task     Stream a computes what stream b copies out. Nothing orders the two, so b may copy
             before a has computed. Let b wait for a; the host must not wait.
    Try it   make exercise N=12                                                                   */
#include "exercise.h"

enum {
    N = 1 << 14
};

static __global__ void fill(int *x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = 5 * i;
}

int main() {
    int *host, *dev;
    cudaStream_t a, b;
    cudaEvent_t event;
    prepare_busy();
    CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaMallocHost(&host, N * sizeof(int)));
    CHECK(cudaMalloc(&dev, N * sizeof(int)));
    CHECK(cudaMemset(dev, 0, N * sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    double start = now_ms();
    busy<<<1, 32, 0, a>>>();
    fill<<<N / 256, 256, 0, a>>>(dev);
    /* WRITE HERE: record an event in stream a, and let stream b wait for it. */
    /* END */
    CHECK(cudaMemcpyAsync(host, dev, N * sizeof(int), cudaMemcpyDeviceToHost, b));
    judge_ms("what the host does meanwhile", now_ms() - start, 0.5);
    CHECK(cudaStreamSynchronize(b));
    judge("host", host, N, [](int i) { return 5 * i; });
    CHECK(cudaStreamSynchronize(a));
    CHECK(cudaFree(dev));
    CHECK(cudaFreeHost(host));
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(b));
    CHECK(cudaStreamDestroy(a));
    return judge_done();
}

/* Hint: cudaEventRecord(event, a), then cudaStreamWaitEvent(b, event, 0). */
