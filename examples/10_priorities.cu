/*  10_priorities.cu -- an urgent request beside a batch job that can wait.

    nvcc -O3 -I.. -o 10_priorities 10_priorities.cu && ./10_priorities
                                                                     (without a GPU: make examples)
    You learn   when a block ends, blocks of a high-priority stream start before other blocks that
                already wait; running blocks are not preempted. So the request waits for some blocks
                of the batch job, not for the rest of its kernel and those queued behind it.
    Mind        priorities order kernels only. A small copy waits behind a large one, whatever their
                streams' priorities; only smaller chunks shorten that. Lower numbers are more
                urgent, and the range differs between GPUs: use the names, as here, or query it.
    Expect      (hostcuda) to CUDA the default priority is 0, and high is -5
                100 requests: copy in, kernel, copy out                 p50         p99
                    nothing else on the GPU                         0.044 ms    0.044 ms
                    a batch beside them                             1.101 ms    2.026 ms
                    the same, the requests of high priority         0.160 ms    0.265 ms
                right: the CPU finds the same                                                     */
#include "ex_common.h"

#include <algorithm>

/* The batch's kernels fill the GPU many times over. */
enum {
    BATCH = EX_HOSTCUDA ? 9 << 15 : 1 << 23,
    REQUEST = BATCH / 64,
    REQUESTS = 100,
    BYTES = REQUEST * sizeof(unsigned)
};

typedef struct work {
    unsigned *batch, *x, *y, *in, *out; /* batch, x, y: device; in, out: pinned */
    unsigned steps;
    cudaStream_t background;
} work_t;

/* Milliseconds from issuing a request to its result on the host; negative if it is wrong. */
static double request_ms(const work_t *w, cudaStream_t s) {
    memset(w->out, 0, BYTES);
    const double start = ex_now_ms();
    SPIPE_CHECK(cudaMemcpyAsync(w->x, w->in, BYTES, cudaMemcpyHostToDevice, s));
    SPIPE_CHECK(ex_busy(w->y, w->x, w->steps, REQUEST, s));
    SPIPE_CHECK(cudaMemcpyAsync(w->out, w->y, BYTES, cudaMemcpyDeviceToHost, s));
    SPIPE_CHECK(cudaStreamSynchronize(s));
    const double ms = ex_now_ms() - start;
    return ex_busy_right(w->out, w->steps, REQUEST) ? ms : -1;
}

/* Sends requests at random times, while the GPU runs a batch of so many kernels. */
static int serve(const char *name, const work_t *w, int kernels, spipe_priority_t priority) {
    cudaStream_t s;
    double ms[REQUESTS];
    unsigned random = 1;
    SPIPE_CHECK(spipe_stream_create(&s, priority));
    for (int k = 0; k < kernels; ++k) {
        SPIPE_CHECK(ex_busy(w->batch, w->batch, w->steps, BATCH, w->background));
    }
    for (double &took : ms) {
        random = EX_NEXT(random);
        ex_host_work((random >> 24) * (2.0 / 256)); /* up to 2 ms: as long as a kernel */
        took = request_ms(w, s);
    }
    const int busy = cudaStreamQuery(w->background) == cudaErrorNotReady;
    SPIPE_CHECK(cudaStreamSynchronize(w->background));
    SPIPE_CHECK(cudaStreamDestroy(s));
    std::sort(ms, ms + REQUESTS);
    printf("    %-44s %8.3f ms %8.3f ms%s\n", name, ms[REQUESTS / 2], ms[REQUESTS * 99 / 100],
           kernels && !busy ? "   (the batch ended before)" : "");
    return ms[0] >= 0;
}

int main(void) {
    const int kernels = EX_HOSTCUDA ? 120 : 300; /* of 2 ms: the batch outlasts the requests */
    unsigned *host;
    int normal, high;
    work_t w;
#if EX_HOSTCUDA
    hostcuda_profile_t p = hostcuda_get_profile(0);
    p.sm_count = 16; /* so that the batch's kernels fill the modelled GPU many times over */
    SPIPE_CHECK(hostcuda_set_profile(0, &p));
#endif
    ex_begin();
    SPIPE_CHECK(spipe_priority_value(SPIPE_PRIORITY_DEFAULT, &normal));
    SPIPE_CHECK(spipe_priority_value(SPIPE_PRIORITY_HIGH, &high));
    printf("to CUDA the default priority is %d, and high is %d\n", normal, high);
    SPIPE_CHECK(spipe_stream_create(&w.background, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(cudaMalloc((void **)&w.batch, BATCH * sizeof(unsigned)));
    SPIPE_CHECK(cudaMalloc((void **)&w.x, BYTES));
    SPIPE_CHECK(cudaMalloc((void **)&w.y, BYTES));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&w.in, BYTES));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&w.out, BYTES));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&host, BATCH * sizeof(unsigned)));
    w.steps = ex_busy_steps(w.batch, BATCH, 2.0);
    ex_fill(w.in, REQUEST);
    ex_fill(host, BATCH);
    SPIPE_CHECK(cudaMemcpy(w.batch, host, BATCH * sizeof(unsigned), cudaMemcpyHostToDevice));
    printf("%d requests: copy in, kernel, copy out %16s p50         p99\n", (int)REQUESTS, "");
    int right = serve("nothing else on the GPU", &w, 0, SPIPE_PRIORITY_DEFAULT);
    right &= serve("a batch beside them", &w, kernels, SPIPE_PRIORITY_DEFAULT);
    right &= serve("the same, the requests of high priority", &w, kernels, SPIPE_PRIORITY_HIGH);
    SPIPE_CHECK(cudaMemcpy(host, w.batch, BATCH * sizeof(unsigned), cudaMemcpyDeviceToHost));
    right &= ex_busy_right(host, w.steps * 2 * kernels, BATCH); /* the batch is done, too */
    SPIPE_CHECK(spipe_pinned_free(host));
    SPIPE_CHECK(spipe_pinned_free(w.out));
    SPIPE_CHECK(spipe_pinned_free(w.in));
    SPIPE_CHECK(cudaFree(w.y));
    SPIPE_CHECK(cudaFree(w.x));
    SPIPE_CHECK(cudaFree(w.batch));
    SPIPE_CHECK(cudaStreamDestroy(w.background));
    return ex_verdict(right);
}
