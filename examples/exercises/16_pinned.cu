/*  16_pinned.cu -- a copy that does not hold up the host

    Task     The host wants to go on while 16 MiB are copied. cudaMemcpyAsync of memory from malloc
             returns only when the copy is done. Give it memory that the GPU can read by itself.
    Try it   make exercise N=16                                                                   */
#include "exercise.h"

static const size_t BYTES = 16 << 20;

/* WRITE HERE: allocate and free host memory that the GPU can read while the host goes on. */
static void *take(size_t bytes) { return malloc(bytes); }

static void give_back(void *p) { free(p); }

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
