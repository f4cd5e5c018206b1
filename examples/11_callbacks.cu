/*  11_callbacks.cu -- a chain: when a batch ends, a function checks it and enqueues the next.

    nvcc -O3 -I.. -o 11_callbacks 11_callbacks.cu && ./11_callbacks  (without a GPU: make examples)

    You learn   cudaLaunchHostFunc (spipe_host_call) runs a C function in a stream's order, but the
                function must not call CUDA. A spipe_worker_t runs a function on a thread of its own
                when a stream reaches that point. That function may call CUDA, so it can enqueue the
                next batch, and the thread that began the chain is free.
    Mind        a callback must not enqueue more work for the GPU: inside cudaStreamAddCallback or
                cudaLaunchHostFunc that is refused or hangs. Callbacks are not called after an error
                either, so they must not be used to clean up; a worker's function is always called,
                and is given the error. A host function also blocks its stream until it returns. So
                prefer a worker or an event.
    Expect      (hostcuda) a CUDA call inside cudaLaunchHostFunc: operation not permitted
                the host waits for each of 8 batches: it is busy 2.50 ms
                each batch queues the next: the host is busy 0.01 ms, then does as it likes
                right: the CPU finds the same                                                     */
#include "ex_common.h"

enum {
    N = 1 << 14,
    BYTES = N * sizeof(unsigned),
    BATCHES = 8,
    MOST_STEPS = EX_HOSTCUDA ? 1000 : 100000
};

typedef struct chain {
    spipe_worker_t worker;
    cudaStream_t stream;
    unsigned *host, *dev; /* host: pinned */
    int done;
    cudaError_t error;
} chain_t;

/* How long the next batch is depends on what the last one found. */
static unsigned next_steps(unsigned found) { return 1 + found % MOST_STEPS; }

static cudaError_t queue_batch(chain_t *c) {
    SPIPE_TRY(ex_busy(c->dev, c->dev, next_steps(c->host[0]), N, c->stream));
    return cudaMemcpyAsync(c->host, c->dev, BYTES, cudaMemcpyDeviceToHost, c->stream);
}

/* On the worker's thread, after the batch. c->host is whole, and CUDA may be called. */
static void batch_done(cudaError_t status, void *user) {
    chain_t *c = (chain_t *)user;
    c->error = status;
    if (status == cudaSuccess && ++c->done < BATCHES) {
        c->error = queue_batch(c);
        if (c->error == cudaSuccess) {
            c->error = spipe_worker_call(&c->worker, c->stream, batch_done, c);
        }
    }
}

static void begin(chain_t *c) {
    ex_fill(c->host, N);
    c->done = 0;
    SPIPE_CHECK(cudaMemcpyAsync(c->dev, c->host, BYTES, cudaMemcpyHostToDevice, c->stream));
    SPIPE_CHECK(queue_batch(c));
}

/* The same steps on the CPU, for the first number, give how many there were in all. */
static int right_after(const chain_t *c) {
    unsigned found = 0, all = 0;
    for (int k = 0; k < BATCHES; ++k) {
        const unsigned steps = next_steps(found);
        for (unsigned i = 0; i < steps; ++i) found = EX_NEXT(found);
        all += steps;
    }
    return ex_busy_right(c->host, all, N);
}

#if EX_HOSTCUDA /* a real GPU's driver may wait for ever here */
static void forbidden(void *user) { *(cudaError_t *)user = cudaStreamQuery(cudaStreamLegacy); }
#endif

int main(void) {
    chain_t c;
    double start;
    ex_begin();
    SPIPE_CHECK(spipe_worker_create(&c.worker));
    SPIPE_CHECK(spipe_stream_create(&c.stream, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&c.host, BYTES));
    SPIPE_CHECK(cudaMalloc((void **)&c.dev, BYTES));
    (void)ex_busy_steps(c.dev, N, 0.3); /* sets hostcuda's kernel time; c.steps stays */

#if EX_HOSTCUDA
    cudaError_t refused;
    SPIPE_CHECK(spipe_host_call(c.stream, forbidden, &refused));
    SPIPE_CHECK(cudaStreamSynchronize(c.stream));
    printf("a CUDA call inside cudaLaunchHostFunc: %s\n", cudaGetErrorString(refused));
#endif
    start = ex_now_ms();
    begin(&c);
    for (c.done = 1; c.done < BATCHES; ++c.done) {
        SPIPE_CHECK(cudaStreamSynchronize(c.stream));
        SPIPE_CHECK(queue_batch(&c));
    }
    SPIPE_CHECK(cudaStreamSynchronize(c.stream));
    printf("the host waits for each of %d batches: it is busy %.2f ms\n", (int)BATCHES,
           ex_now_ms() - start);
    int right = right_after(&c);

    start = ex_now_ms();
    begin(&c);
    SPIPE_CHECK(spipe_worker_call(&c.worker, c.stream, batch_done, &c));
    const double busy = ex_now_ms() - start;
    SPIPE_CHECK(spipe_worker_wait(&c.worker)); /* no call is left: the chain has ended */
    SPIPE_CHECK(c.error);
    printf("each batch queues the next: the host is busy %.2f ms, then does as it likes\n", busy);
    right &= right_after(&c) && c.done == BATCHES;

    SPIPE_CHECK(cudaFree(c.dev));
    SPIPE_CHECK(spipe_pinned_free(c.host));
    SPIPE_CHECK(cudaStreamDestroy(c.stream));
    SPIPE_CHECK(spipe_worker_destroy(&c.worker));
    return ex_verdict(right);
}
