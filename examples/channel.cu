/*  channel.cu -- one stream hands values to another, which may lag behind: a channel keeps them.

    nvcc -O3 -I.. -o channel channel.cu && ./channel                  (without a GPU: make examples)
    You learn   with a single place for values the writer must wait until the reader has read one. A
                channel has several places, and events that say when a value is there and when it
                has been read. The host waits for neither.
    Mind        a channel of n values lets the writer be n values ahead; then the writer waits. A
                channel gains if values come in bursts; if they come evenly, one place is nearly as
                good.
    Expect      (hostcuda) 16 values in bursts of 4; a burst takes 0.4 ms, a value is read in 0.1 ms
                one place          2.765 ms
                a channel of 4     2.171 ms
                right: the CPU finds the same                                                     */
#include "ex_common.h"

enum {
    VALUES = 16,
    BURST = 4,
    N = 4096 /* elements of a kernel that takes 0.1 ms */
};

static unsigned *scratch[2], steps; /* for the writer and the reader */

static __global__ void put(int *to, int value) { *to = value; }

static __global__ void append(int *list, int at, const int *value) { list[at] = *value; }

/* Stream a writes value[0] and sends it; b receives into value[1]; the channel has `places`. */
static double hand_over(cudaStream_t a, cudaStream_t b, int *value, int *list, size_t places) {
    spipe_channel_t c;
    SPIPE_CHECK(spipe_channel_create(&c, sizeof(int), places));
    const double start = ex_now_ms();
    for (int k = 0; k < VALUES; ++k) {
        if (k % BURST == 0) SPIPE_CHECK(ex_busy(scratch[0], scratch[0], 4 * steps, 4 * N, a));
        SPIPE_CHECK(SPIPE_LAUNCH(put, 1, 1, 0, a, &value[0], k));
        SPIPE_CHECK(spipe_channel_send(&c, a, &value[0]));
        SPIPE_CHECK(spipe_channel_recv(&c, b, &value[1]));
        SPIPE_CHECK(ex_busy(scratch[1], scratch[1], steps, N, b));
        SPIPE_CHECK(SPIPE_LAUNCH(append, 1, 1, 0, b, list, k, &value[1]));
    }
    SPIPE_CHECK(cudaStreamSynchronize(b));
    const double took = ex_now_ms() - start;
    SPIPE_CHECK(spipe_channel_destroy(&c));
    return took;
}

int main(void) {
    cudaStream_t s[2];
    int *value, *list, right = 1;
    ex_begin();
    for (int k : {0, 1}) {
        SPIPE_CHECK(spipe_stream_create(&s[k], SPIPE_PRIORITY_DEFAULT));
        SPIPE_CHECK(cudaMalloc((void **)&scratch[k], 4 * N * sizeof(unsigned)));
        SPIPE_CHECK(cudaMemset(scratch[k], 0, 4 * N * sizeof(unsigned)));
    }
    SPIPE_CHECK(cudaMalloc((void **)&value, 2 * sizeof *value));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&list, VALUES * sizeof *list));
    SPIPE_CHECK(cudaDeviceSynchronize()); /* these streams do not wait for cudaMemset */
    steps = ex_busy_steps(scratch[0], N, 0.1);
    (void)hand_over(s[0], s[1], value, list, 1); /* warms up */
    printf("%d values in bursts of %d; a burst takes 0.4 ms, a value is read in 0.1 ms\n",
           (int)VALUES, (int)BURST);
    for (size_t places : {1, 4}) {
        memset(list, 0xFF, VALUES * sizeof *list);
        const double ms = hand_over(s[0], s[1], value, list, places);
        if (places == 1) printf("one place        %7.3f ms\n", ms);
        if (places > 1) printf("a channel of %zu   %7.3f ms\n", places, ms);
        for (int k = 0; k < VALUES; ++k) right &= list[k] == k; /* every value, in order */
    }
    SPIPE_CHECK(spipe_pinned_free(list));
    SPIPE_CHECK(cudaFree(value));
    for (int k : {0, 1}) {
        SPIPE_CHECK(cudaFree(scratch[k]));
        SPIPE_CHECK(cudaStreamDestroy(s[k]));
    }
    return ex_verdict(right);
}
