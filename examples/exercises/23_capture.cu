/*  23_capture.cu -- two streams in one graph

    Task     The work of two streams is to be captured once and replayed as a graph. Stream b joins
             the capture by waiting for an event of a, and the capture ends on a: but a does not
             know when b's part is done, so the capture is refused. Join b to a.
    Try it   make exercise N=23                                                                   */
#include "exercise.h"

static __global__ void put(int *x, int value) { *x = value; }

static __global__ void add(int *x) { x[2] = x[0] + x[1]; }

int main() {
    int *x, sum = 0;
    cudaStream_t a, b;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaMalloc(&x, 3 * sizeof(int)));
    CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    CHECK(cudaEventRecord(fork, a));
    CHECK(cudaStreamWaitEvent(b, fork, 0));
    put<<<1, 1, 0, a>>>(x, 30);
    put<<<1, 1, 0, b>>>(x + 1, 12);
    /* WRITE HERE: let stream a wait for what is on stream b. */
    /* END */
    add<<<1, 1, 0, a>>>(x);
    CHECK(cudaStreamEndCapture(a, &graph));
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, a));
    CHECK(cudaMemcpyAsync(&sum, x + 2, sizeof sum, cudaMemcpyDeviceToHost, a));
    CHECK(cudaStreamSynchronize(a));
    judge("sum", &sum, 1, [](int) { return 42; });
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(join));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaStreamDestroy(b));
    CHECK(cudaStreamDestroy(a));
    CHECK(cudaFree(x));
    return judge_done();
}

/* Hint: the same two calls as at the fork, with the streams exchanged, and the event `join`. */
