/*  09_launch_error.cu -- solved: a launch that never happened

    Why      a launch leaves its error behind; cudaGetLastError returns and clears it, while
             cudaPeekAtLastError would leave it for the next check. What goes wrong while the kernel
             runs comes later, from a synchronisation.
    Unsolved wrong: launch() says that 2048 threads are fine                                      */
#include "exercise.h"

static __global__ void one(int *x) { x[threadIdx.x] = 1; }

static cudaError_t launch(int *x, unsigned threads) {
    one<<<1, threads>>>(x);
    /* WRITE HERE: return the error of this launch, and leave none behind for later checks. */
    return cudaGetLastError();
    /* END */
}

int main() {
    static int out[1024];
    int *dev;
    CHECK(cudaMalloc(&dev, sizeof out));
    CHECK(cudaMemset(dev, 0, sizeof out));
    judge_that(launch(dev, 2048) != cudaSuccess, "launch() says that 2048 threads are fine");
    judge_that(cudaPeekAtLastError() == cudaSuccess, "launch() leaves its error behind");
    CHECK(launch(dev, 1024));
    CHECK(cudaMemcpy(out, dev, sizeof out, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(dev));
    judge("out", out, 1024, [](int) { return 1; });
    return judge_done();
}

/* Hint: there is a call that returns the last error and clears it. */
