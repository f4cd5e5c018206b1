/*  14_default_stream.cu -- somebody uses the default stream

    Task     Four kernels of 1 ms in four streams could run at the same time. But between them
             somebody, perhaps a library, launches into the default stream, and streams
             made by cudaStreamCreate wait for that, as it waits for them. Make streams that do not.
    Try it   make exercise N=14                                                                   */
#include "exercise.h"

static __global__ void nothing() {}

static void make_stream(cudaStream_t *s) {
    /* WRITE HERE: make stream s so that it does not wait for the default stream. */
    CHECK(cudaStreamCreate(s));
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
