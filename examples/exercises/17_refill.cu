/*  17_refill.cu -- a buffer is filled again

    Task     The host sends eight blocks through two pinned buffers in turn. It fills a buffer
             again while the copy of two blocks before may still read it. Wait for that copy, and
             for no other.
    Try it   make exercise N=17                                                                   */
#include "exercise.h"

#include <string.h>

enum {
    N = 1 << 14,
    BLOCKS = 8,
    BYTES = N * sizeof(int)
};

int main() {
    static int out[BLOCKS * N];
    int *buffer[2], *dev;
    cudaStream_t s;
    cudaEvent_t copied[2];
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&dev, sizeof out));
    for (int k : {0, 1}) {
        CHECK(cudaMallocHost(&buffer[k], BYTES));
        CHECK(cudaEventCreateWithFlags(&copied[k], cudaEventDisableTiming));
    }
    for (int block = 0; block < BLOCKS; ++block) {
        int which = block % 2;
        /* WRITE HERE: wait until the copy that last used this buffer has ended. */
        /* END */
        for (int i = 0; i < N; ++i) buffer[which][i] = block * N + i;
        CHECK(cudaMemcpyAsync(dev + block * N, buffer[which], BYTES, cudaMemcpyHostToDevice, s));
        CHECK(cudaEventRecord(copied[which], s));
    }
    CHECK(cudaStreamSynchronize(s));
    CHECK(cudaMemcpy(out, dev, sizeof out, cudaMemcpyDeviceToHost));
    judge("out", out, BLOCKS * N, [](int i) { return i; });
    for (int k : {0, 1}) {
        CHECK(cudaEventDestroy(copied[k]));
        CHECK(cudaFreeHost(buffer[k]));
    }
    CHECK(cudaFree(dev));
    CHECK(cudaStreamDestroy(s));
    return judge_done();
}

/* Hint: copied[which] was recorded after that copy; before the first record nobody waits. */
