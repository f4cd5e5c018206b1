/*  01_streams.cu -- a stream is a queue: order inside it, none between two of them.

    nvcc -O3 -I.. -o 01_streams 01_streams.cu && ./01_streams         (without a GPU: make examples)

    You learn   which operations of two streams overlap, and how one stream waits for another.
    Mind        "streams overlap" is half the truth: copies in one direction never do, in both they
                slow each other down, and a kernel that fills the GPU leaves no room for another.
    Expect      (hostcuda)                  one stream   two streams
                    copy in      + big kernel         0.614 ms      0.311 ms
                    copy in      + copy out           0.618 ms      0.334 ms
                    copy in      + copy in            0.618 ms      0.616 ms
                    big kernel   + big kernel         0.612 ms      0.607 ms
                    small kernel + small kernel       0.612 ms      0.311 ms
                no order: b read 1; with spipe_stream_wait b read 3
                right: the CPU finds the same                                                     */
#include "ex_common.h"

static const int BIG = 1 << 22, SMALL = 4096;
static const size_t BYTES = BIG * sizeof(unsigned);
static const int IN = 0, OUT = 1, BUSY = 2, TINY = 3; /* the work of a stream */
static const char *const names[] = {"copy in", "copy out", "big kernel", "small kernel"};
static unsigned *host[2], *dev[2], steps; /* per stream; of ex_busy */

static __global__ void put(int *to, int value) { *to = value; }

static cudaError_t queue(int what, int which, cudaStream_t s) {
    unsigned *h = host[which], *d = dev[which];
    if (what == IN) return cudaMemcpyAsync(d, h, BYTES, cudaMemcpyDefault, s);
    if (what == OUT) return cudaMemcpyAsync(h, d, BYTES, cudaMemcpyDefault, s);
    return ex_busy(d, d, steps, what == BUSY ? BIG : SMALL, s);
}

static double pair_ms(const int *pair, cudaStream_t a, cudaStream_t b) {
    const double start = ex_now_ms();
    SPIPE_CHECK(queue(pair[0], 0, a));
    SPIPE_CHECK(queue(pair[1], 1, b));
    for (cudaStream_t s : {a, b}) SPIPE_CHECK(cudaStreamSynchronize(s));
    return ex_now_ms() - start;
}

static int side_by_side(cudaStream_t a, cudaStream_t b) {
    static const int pairs[][2] = {{IN, BUSY}, {IN, OUT}, {IN, IN}, {BUSY, BUSY}, {TINY, TINY}};
    for (int k : {0, 1}) SPIPE_CHECK(queue(IN, k, a));
    SPIPE_CHECK(cudaStreamSynchronize(a));
    printf("%36sone stream   two streams\n", "");
    for (const int *p : pairs) {
        steps = ex_busy_steps(dev[0], p[1] == TINY ? SMALL : BIG, 0.3);
        const double one = pair_ms(p, a, a), two = pair_ms(p, a, b);
        printf("    %-12s + %-12s  %10.3f ms %10.3f ms\n", names[p[0]], names[p[1]], one, two);
    }
    ex_fill(host[0], BIG); /* no wait between the next three calls: the stream keeps their order */
    for (int what : {IN, BUSY, OUT}) SPIPE_CHECK(queue(what, 0, a));
    SPIPE_CHECK(cudaStreamSynchronize(a));
    return ex_busy_right(host[0], steps, BIG);
}

/* Stream a writes another value while b reads it. The gate keeps a back until b may have read. */
static int hand_over(cudaStream_t a, cudaStream_t b, int *value, int *seen) {
    ex_gate_t gate;
    int held = 1;
    SPIPE_CHECK(SPIPE_LAUNCH(put, 1, 1, 0, a, value, 1));
    SPIPE_CHECK(cudaStreamSynchronize(a));
    for (int ordered : {0, 1}) {
        SPIPE_CHECK(ex_gate_close(&gate, a));
        SPIPE_CHECK(SPIPE_LAUNCH(put, 1, 1, 0, a, value, 2 + ordered));
        if (ordered) SPIPE_CHECK(spipe_stream_wait(b, a)); /* b waits for a; the host does not */
        SPIPE_CHECK(cudaMemcpyAsync(&seen[ordered], value, sizeof(int), cudaMemcpyDefault, b));
        if (!ordered) SPIPE_CHECK(cudaStreamSynchronize(b));
        held &= ex_gate_open(&gate, a);
        SPIPE_CHECK(cudaStreamSynchronize(b));
    }
    printf("no order: b read %d; with spipe_stream_wait b read %d\n", seen[0], seen[1]);
    return held && seen[0] == 1 && seen[1] == 3;
}

int main(void) {
    cudaStream_t s[2];
    int *value, *seen, right;
    ex_begin();
    for (int k : {0, 1}) {
        SPIPE_CHECK(spipe_stream_create(&s[k], SPIPE_PRIORITY_DEFAULT));
        SPIPE_CHECK(spipe_pinned_alloc((void **)&host[k], BYTES));
        SPIPE_CHECK(cudaMalloc((void **)&dev[k], BYTES));
        ex_fill(host[k], BIG);
    }
    SPIPE_CHECK(cudaMalloc((void **)&value, sizeof *value));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&seen, 2 * sizeof *seen));
    right = side_by_side(s[0], s[1]) & hand_over(s[0], s[1], value, seen);
    for (int k : {0, 1}) {
        SPIPE_CHECK(cudaFree(dev[k]));
        SPIPE_CHECK(spipe_pinned_free(host[k]));
        SPIPE_CHECK(cudaStreamDestroy(s[k]));
    }
    SPIPE_CHECK(spipe_pinned_free(seen));
    SPIPE_CHECK(cudaFree(value));
    return ex_verdict(right);
}
