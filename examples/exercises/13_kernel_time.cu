/*  13_kernel_time.cu -- how long does a kernel take?

    Task     A launch returns before the kernel has begun, so a clock of the host around it measures
             the launch. Measure with two events in the kernel's stream, on the GPU's own clock.
    Try it   make exercise N=13                                                                   */
#include "exercise.h"

int main() {
    cudaStream_t s;
    cudaEvent_t begin, end;
    float ms = 0;
    prepare_busy();
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    /* WRITE HERE: record begin, launch busy on stream s, record end, wait for end. */
    CHECK(cudaEventRecord(begin, s));
    CHECK(cudaEventRecord(end, s));
    busy<<<1, 32, 0, s>>>();
    CHECK(cudaEventSynchronize(end));
    /* END */
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    judge_that(ms > 0.9f && ms < 1.2f, "the kernel takes 1 ms; the events say something else");
    CHECK(cudaStreamSynchronize(s));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaStreamDestroy(s));
    return judge_done();
}

/* Hint: cudaEventRecord twice around the launch, then cudaEventSynchronize(end). */
