/*  test_worker_error.cu -- after an error of the GPU a worker still calls its function, with
    the error. A program of its own, because such an error ends the context. */
#include "hostcuda.h"
#include "pipe_common.h"

#include <unistd.h>

/* cudaLaunchHostFunc's function is not called after an error; the worker's is, and is told. */
static void hear(cudaError_t status, void *user) { *(cudaError_t *)user = status; }

static void test_worker_after_error(void) {
    spipe_worker_t worker;
    cudaStream_t s;
    cudaError_t heard = cudaSuccess;
    int called = 0;
    SPIPE_CHECK(spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_worker_create(&worker));
    hostcuda_fail_async("memset", 1, cudaErrorIllegalAddress);
    void *memory = NULL;
    SPIPE_CHECK(cudaMalloc(&memory, 64));
    SPIPE_CHECK(cudaMemsetAsync(memory, 0, 64, s));
    SPIPE_CHECK(spipe_host_call(
        s, [](void *user) { ++*(int *)user; }, &called));
    SPIPE_CHECK(spipe_worker_call(&worker, s, hear, &heard));
    SPIPE_CHECK(spipe_worker_wait(&worker));
    tap_ok(heard == cudaErrorIllegalAddress && called == 0,
           "after an error of the GPU the worker is called with it; a host function is not called");
    (void)spipe_worker_destroy(&worker);
}

int main(void) {
    test_worker_after_error();
    (void)tap_done();
    fflush(stdout);
    _exit(tap_failed != 0); /* what the broken context keeps is no leak of ours */
}
