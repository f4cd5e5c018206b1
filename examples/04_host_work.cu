/*  04_host_work.cu -- the host works while the GPU does; when may it read the GPU's results?

    nvcc -O3 -I.. -o 04_host_work 04_host_work.cu && ./04_host_work   (without a GPU: make examples)

    You learn   launches and asynchronous copies return at once, so the host can work and wait
                later. A copied result is there only after a wait, and not every wait is for your
                stream.
    Mind        "kernel, then copy to the host" is no mistake in one stream: the copy waits for the
                kernel, and cudaMemcpy returns when it is done. The real mistakes are to read after
                cudaMemcpyAsync without a wait, and to copy with cudaMemcpy what a non-blocking
                stream computes: cudaMemcpy waits for the default stream, not for yours.
    Expect      (hostcuda) one after the other 2.016 ms, side by side 1.014 ms
                read after cudaMemcpyAsync, no wait      -1   the copy had not begun
                cudaMemcpy beside a non-blocking stream  -1   it waits for another stream
                read after cudaStreamSynchronize          7
                right: the CPU finds the same                                                     */
#include "ex_common.h"

enum {
    N = 1 << 20,
    BYTES = N * sizeof(unsigned)
};

static __global__ void put(int *to, int value) { *to = value; }

/* The work on the GPU and the work on the host take 1 ms each: 1 ms side by side, else 2. */
static double both_ms(int side_by_side, unsigned *host, unsigned *dev, unsigned steps,
                      cudaStream_t s) {
    const double start = ex_now_ms();
    SPIPE_CHECK(cudaMemcpyAsync(dev, host, BYTES, cudaMemcpyHostToDevice, s));
    SPIPE_CHECK(ex_busy(dev, dev, steps, N, s));
    SPIPE_CHECK(cudaMemcpyAsync(host, dev, BYTES, cudaMemcpyDeviceToHost, s));
    if (!side_by_side) SPIPE_CHECK(cudaStreamSynchronize(s));
    ex_host_work(1.0);
    SPIPE_CHECK(cudaStreamSynchronize(s)); /* the first moment at which host[] may be read */
    return ex_now_ms() - start;
}

/* The gate holds the stream, so "too early" is too early on the fastest GPU. */
static int too_early(cudaStream_t s, int *dev, int *seen) {
    ex_gate_t gate;
    int held;
    SPIPE_CHECK(SPIPE_LAUNCH(put, 1, 1, 0, s, dev, -1));
    SPIPE_CHECK(cudaStreamSynchronize(s));
    seen[0] = seen[1] = -1;
    SPIPE_CHECK(ex_gate_close(&gate, s));
    SPIPE_CHECK(SPIPE_LAUNCH(put, 1, 1, 0, s, dev, 7));
    SPIPE_CHECK(cudaMemcpy(&seen[1], dev, sizeof *seen, cudaMemcpyDeviceToHost));
    SPIPE_CHECK(cudaMemcpyAsync(seen, dev, sizeof *seen, cudaMemcpyDeviceToHost, s));
    const int early = seen[0];     /* the call returned; the copy has not begun */
    held = ex_gate_open(&gate, s); /* it waits for s, too */
    printf("read after cudaMemcpyAsync, no wait      %2d   the copy had not begun\n", early);
    printf("cudaMemcpy beside a non-blocking stream  %2d   it waits for another stream\n", seen[1]);
    printf("read after cudaStreamSynchronize         %2d\n", seen[0]);
    return held && early == -1 && seen[1] == -1 && seen[0] == 7;
}

int main(void) {
    cudaStream_t s;
    unsigned *host, *dev;
    int *number, *seen;
    ex_begin();
    SPIPE_CHECK(spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT)); /* non-blocking, as all here */
    SPIPE_CHECK(spipe_pinned_alloc((void **)&host, BYTES));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&seen, 2 * sizeof *seen));
    SPIPE_CHECK(cudaMalloc((void **)&dev, BYTES));
    SPIPE_CHECK(cudaMalloc((void **)&number, sizeof *number));
    const unsigned steps = ex_busy_steps(dev, N, 0.85);
    ex_fill(host, N);
    const double serial = both_ms(0, host, dev, steps, s);
    int right = ex_busy_right(host, steps, N);
    ex_fill(host, N);
    const double beside = both_ms(1, host, dev, steps, s);
    right &= ex_busy_right(host, steps, N);
    printf("one after the other %.3f ms, side by side %.3f ms\n", serial, beside);
    right &= too_early(s, number, seen);
    SPIPE_CHECK(cudaFree(number));
    SPIPE_CHECK(cudaFree(dev));
    SPIPE_CHECK(spipe_pinned_free(seen));
    SPIPE_CHECK(spipe_pinned_free(host));
    SPIPE_CHECK(cudaStreamDestroy(s));
    return ex_verdict(right);
}
