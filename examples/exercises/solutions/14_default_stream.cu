/*  14_default_stream.cu -- solved: somebody uses the default stream

    Why      a stream made by cudaStreamCreate is blocking: it and the default stream wait for each
             other. With cudaStreamNonBlocking neither waits for the other.
    Unsolved slow: four kernels of 1 ms took 4.028 ms, wanted at most 2.000 ms                    */
#include "exercise.h"

static __global__ void nothing() {}

static void make_stream(cudaStream_t *s) {
    /* WRITE HERE: make stream s so that it does not wait for the default stream. */
    CHECK(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking));
    /* END */
}

int main() {
    cudaStream_t streams[4];
    prepare_busy();
    for (cudaStream_t &s : streams) make_stream(&s);
    nothing<<<1, 1>>>();
    CHECK(cudaDeviceSynchronize());
    double start = now_ms();
    for (cudaStream_t &s : streams) {
        busy<<<1, 32, 0, s>>>();
        nothing<<<1, 1>>>(); /* in the default stream */
    }
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    judge_ms("four kernels of 1 ms", now_ms() - start, 2.0);
    for (cudaStream_t &s : streams) CHECK(cudaStreamDestroy(s));
    return judge_done();
}

/* Hint: cudaStreamCreateWithFlags has a flag for it. */
