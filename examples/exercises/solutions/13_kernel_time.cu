/*  13_kernel_time.cu -- solved: how long does a kernel take?

    Why      events stand in the stream's order, so the time between them is the kernel's.
             cudaEventElapsedTime needs both to be complete: the host waits for the second.
    Unsolved wrong: the kernel takes 1 ms; the events say something else                          */
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
    busy<<<1, 32, 0, s>>>();
    CHECK(cudaEventRecord(end, s));
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
