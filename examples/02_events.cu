/*  02_events.cu -- an event marks a point in a stream: for timing, ordering, querying, waiting.

    nvcc -O3 -I.. -o 02_events 02_events.cu && ./02_events           (without a GPU: make examples)

    You learn   five ways to wait, from waiting for everything to not blocking the host at all. Only
                the last one, which orders two streams, leaves the host free at once.
    Mind        record first, then wait: waiting for an event that was never recorded does not wait.
                Events without time stamps are about ten times cheaper: spipe_event_create makes
                those, spipe_timer_t has timed ones.
    Expect      (hostcuda) a kernel of 1.003 ms, timed between two events
                                                   host gets on after   result there
                    cudaDeviceSynchronize                 1.007 ms      yes   all streams
                    cudaStreamSynchronize                 1.007 ms      yes   one stream
                    cudaStreamQuery until done            1.007 ms      yes   host may work between
                    cudaEventSynchronize                  1.007 ms      yes   up to one point
                    cudaStreamWaitEvent                   0.004 ms      no    a stream waits instead
                an event without time stamps has no time to tell: invalid resource handle
                right: the CPU finds the same                                                     */
#include "ex_common.h"

enum {
    N = 1 << 20,
    BYTES = N * sizeof(unsigned),
    WAYS = 5
};

static const char *const ways[WAYS][2] = {
    {"cudaDeviceSynchronize", "all streams"},
    {"cudaStreamSynchronize", "one stream"},
    {"cudaStreamQuery until done", "host may work between"},
    {"cudaEventSynchronize", "up to one point"},
    {"cudaStreamWaitEvent", "a stream waits instead"},
};

/* Waits for what was on producer when event was recorded. */
static cudaError_t wait_by(int way, cudaStream_t producer, cudaEvent_t event, cudaStream_t other) {
    cudaError_t e = cudaErrorNotReady;
    switch (way) {
    case 0: return cudaDeviceSynchronize();
    case 1: return cudaStreamSynchronize(producer);
    case 2: /* "not ready" is not a failure, so do not use SPIPE_CHECK */
        while (e == cudaErrorNotReady) e = cudaStreamQuery(producer);
        return e;
    case 3: return cudaEventSynchronize(event);
    default: return cudaStreamWaitEvent(other, event, 0);
    }
}

/* The kernel's time by the GPU's own clock: between two timed events in its stream. */
static float kernel_ms(unsigned *y, const unsigned *x, unsigned steps, cudaStream_t s) {
    spipe_timer_t timer;
    float ms;
    SPIPE_CHECK(spipe_timer_create(&timer));
    SPIPE_CHECK(spipe_timer_start(&timer, s));
    SPIPE_CHECK(ex_busy(y, x, steps, N, s));
    SPIPE_CHECK(spipe_timer_stop(&timer, s));
    SPIPE_CHECK(spipe_timer_ms(&timer, &ms)); /* waits for the second event */
    SPIPE_CHECK(spipe_timer_destroy(&timer));
    return ms;
}

/* Kernel on s[0], copy out on s[1] after waiting in one of the ways; 1 if the copy is right. */
static int try_way(int way, const cudaStream_t *s, cudaEvent_t event, unsigned **dev,
                   unsigned *host, unsigned steps) {
    memset(host, 0, BYTES);
    SPIPE_CHECK(cudaMemsetAsync(dev[1], 0, BYTES, s[0]));
    SPIPE_CHECK(cudaStreamSynchronize(s[0]));
    const double start = ex_now_ms();
    SPIPE_CHECK(ex_busy(dev[1], dev[0], steps, N, s[0]));
    SPIPE_CHECK(cudaEventRecord(event, s[0]));
    SPIPE_CHECK(wait_by(way, s[0], event, s[1]));
    const double got_on = ex_now_ms() - start;
    const int there = cudaEventQuery(event) == cudaSuccess;
    /* Whichever way was taken, this copy comes after the kernel. */
    SPIPE_CHECK(cudaMemcpyAsync(host, dev[1], BYTES, cudaMemcpyDeviceToHost, s[1]));
    SPIPE_CHECK(cudaStreamSynchronize(s[1]));
    printf("    %-28s %14.3f ms      %-5s %s\n", ways[way][0], got_on, there ? "yes" : "no",
           ways[way][1]);
    return ex_busy_right(host, steps, N) && (there || way == WAYS - 1);
}

int main(void) {
    cudaStream_t s[2];
    cudaEvent_t event;
    unsigned *host, *dev[2];
    float none;
    int right = 1;
    ex_begin();
    for (int k : {0, 1}) {
        SPIPE_CHECK(spipe_stream_create(&s[k], SPIPE_PRIORITY_DEFAULT));
        SPIPE_CHECK(cudaMalloc((void **)&dev[k], BYTES));
    }
    SPIPE_CHECK(spipe_event_create(&event));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&host, BYTES));
    const unsigned steps = ex_busy_steps(dev[1], N, 1.0);
    ex_fill(host, N);
    SPIPE_CHECK(cudaMemcpyAsync(dev[0], host, BYTES, cudaMemcpyHostToDevice, s[0]));
    printf("a kernel of %.3f ms, timed between two events\n%35shost gets on after   result there\n",
           (double)kernel_ms(dev[1], dev[0], steps, s[0]), "");
    for (int way = 0; way < WAYS; ++way) right &= try_way(way, s, event, dev, host, steps);
    const cudaError_t e = cudaEventElapsedTime(&none, event, event);
    printf("an event without time stamps has no time to tell: %s\n", cudaGetErrorString(e));
    (void)cudaGetLastError(); /* this error was wanted: clear it, so that no later check finds it */
    right &= e == cudaErrorInvalidResourceHandle;
    SPIPE_CHECK(spipe_pinned_free(host));
    SPIPE_CHECK(cudaEventDestroy(event));
    for (int k : {0, 1}) {
        SPIPE_CHECK(cudaFree(dev[k]));
        SPIPE_CHECK(cudaStreamDestroy(s[k]));
    }
    return ex_verdict(right);
}
