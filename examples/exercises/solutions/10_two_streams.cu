/*  10_two_streams.cu -- solved: two kernels at the same time

    Why      work in one stream keeps its order; between two streams there is no order, so the GPU
             may run both at once. The fourth number in <<< >>> is the stream.
    Unsolved slow: two kernels of 1 ms took 2.010 ms, wanted at most 1.500 ms                     */
#include "exercise.h"

int main() {
    cudaStream_t a, b;
    prepare_busy();
    CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    double start = now_ms();
    /* WRITE HERE: launch busy twice, so that the two can run at the same time. */
    busy<<<1, 32, 0, a>>>();
    busy<<<1, 32, 0, b>>>();
    /* END */
    CHECK(cudaGetLastError());
    judge_that(cudaStreamQuery(a) == cudaErrorNotReady, "nothing runs on stream a");
    CHECK(cudaDeviceSynchronize());
    judge_ms("two kernels of 1 ms", now_ms() - start, 1.5);
    judge_that(now_ms() - start > 0.9, "the kernels did not run");
    CHECK(cudaStreamDestroy(b));
    CHECK(cudaStreamDestroy(a));
    return judge_done();
}

/* Hint: the fourth number of a launch is its stream; the third, shared memory, is 0. */
