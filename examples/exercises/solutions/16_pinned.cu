/*  16_pinned.cu -- solved: a copy that does not hold up the host

    Why      the GPU reads pinned memory by itself. Pageable memory must first be copied into pinned
             memory, by the driver, on the calling thread.
    Unsolved slow: the call of cudaMemcpyAsync took 2.489 ms, wanted at most 0.100 ms             */
#include "exercise.h"

static const size_t BYTES = 16 << 20;

/* WRITE HERE: allocate and free host memory that the GPU can read while the host goes on. */
static void *take(size_t bytes) {
    void *p = NULL;
    CHECK(cudaMallocHost(&p, bytes));
    return p;
}

static void give_back(void *p) { CHECK(cudaFreeHost(p)); }

/* END */

int main() {
    unsigned char *host = (unsigned char *)take(BYTES), *dev, last;
    cudaStream_t s;
    for (size_t i = 0; i < BYTES; ++i) host[i] = (unsigned char)(i % 251);
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&dev, BYTES));
    CHECK(cudaMemsetAsync(dev, 0, BYTES, s));
    CHECK(cudaStreamSynchronize(s));
    double start = now_ms();
    CHECK(cudaMemcpyAsync(dev, host, BYTES, cudaMemcpyHostToDevice, s));
    double returned = now_ms() - start;
    CHECK(cudaStreamSynchronize(s));
    judge_ms("the call of cudaMemcpyAsync", returned, 0.1);
    CHECK(cudaMemcpy(&last, dev + BYTES - 1, 1, cudaMemcpyDeviceToHost));
    judge("last", &last, 1, [](int) { return (BYTES - 1) % 251; });
    CHECK(cudaFree(dev));
    CHECK(cudaStreamDestroy(s));
    give_back(host);
    return judge_done();
}

/* Hint: cudaMallocHost and cudaFreeHost. */
