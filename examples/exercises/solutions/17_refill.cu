/*  17_refill.cu -- solved: a buffer is filled again

    Why      an event for each buffer, recorded after its copy, says when it may be filled again.
             The other buffer's copy goes on meanwhile; cudaStreamSynchronize would wait for that,
             too.
    Unsolved race                                                                                 */
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
        CHECK(cudaEventSynchronize(copied[which]));
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
