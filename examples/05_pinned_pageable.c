/*  05_pinned_pageable.c -- what pinning host memory gains, what it costs, and when it pays.

    nvcc -O3 -I.. -o 05_pinned_pageable 05_pinned_pageable.c && ./05_pinned_pageable
                                                                     (without a GPU: make examples)
    You learn   an "asynchronous" copy of pageable memory blocks the host until it is done, so
                nothing overlaps it. spipe_is_pinned says whether a pointer is pinned; no profiler
                is needed. Allocating pinned memory takes as long as many copies: allocate a small
                amount once, and keep it.
    Mind        copying pageable memory is not an error: the driver copies it through pinned memory
                of its own, which is correct but slow. Measure whether pinning in place pays for
                memory that is sent once; allocating pinned memory for one copy never pays.
    Expect      (hostcuda)          pinned?   call returned   arrived     GB/s
                    pageable          0         2.489 ms      2.491 ms     6.7
                    pinned in place   1         0.002 ms      0.309 ms    54.3
                    allocated pinned  1         0.002 ms      0.309 ms    54.3
                to pin it in place took 0.7 ms, to let go 0.3 ms, to allocate it pinned 7.1 ms
                sent once: pageable 2.5 ms, pinned in place for it 1.4 ms, allocated 7.4 ms
                allocated pinned memory has paid for itself after 4 sends
                right: the CPU finds the same                                                     */
#include "ex_common.h"

#include <math.h>

enum {
    N = EX_HOSTCUDA ? 1 << 22 : 1 << 24,
    BYTES = N * 4
};

typedef struct sent {
    double returned_ms, arrived_ms;
    int pinned, right;
} sent_t;

/* Sends host's numbers and brings them back into the pinned memory at back, to check them. */
static sent_t send(const char *name, unsigned *host, unsigned *dev, unsigned *back,
                   cudaStream_t s) {
    sent_t r;
    double start;
    ex_fill(host, N);
    SPIPE_CHECK(spipe_is_pinned(host, BYTES, &r.pinned));
    start = ex_now_ms();
    SPIPE_CHECK(cudaMemcpyAsync(dev, host, BYTES, cudaMemcpyHostToDevice, s));
    r.returned_ms = ex_now_ms() - start;
    SPIPE_CHECK(cudaStreamSynchronize(s));
    r.arrived_ms = ex_now_ms() - start;
    memset(back, 0, BYTES);
    SPIPE_CHECK(cudaMemcpyAsync(back, dev, BYTES, cudaMemcpyDeviceToHost, s));
    SPIPE_CHECK(cudaStreamSynchronize(s));
    r.right = memcmp(back, host, BYTES) == 0;
    printf("    %-16s  %d      %8.3f ms   %8.3f ms   %5.1f\n", name, r.pinned, r.returned_ms,
           r.arrived_ms, BYTES * 1e-6 / r.arrived_ms);
    return r;
}

/* Milliseconds since *since, which becomes now. */
static double lap_ms(double *since) {
    const double now = ex_now_ms(), ms = now - *since;
    *since = now;
    return ms;
}

int main(void) {
    cudaStream_t s;
    unsigned *page = (unsigned *)malloc(BYTES), *pinned, *dev, *back;
    sent_t as_is, in_place, allocated;
    double since, alloc_ms, pin_ms, unpin_ms, gain;
    ex_begin();
    if (!page) return 1;
    SPIPE_CHECK(spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(cudaMalloc((void **)&dev, BYTES));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&back, BYTES));
    printf("%20spinned?   call returned   arrived     GB/s\n", "");
    as_is = send("pageable", page, dev, back, s);

    since = ex_now_ms();
    SPIPE_CHECK(spipe_pin(page, BYTES));
    pin_ms = lap_ms(&since);
    in_place = send("pinned in place", page, dev, back, s);
    (void)lap_ms(&since);
    SPIPE_CHECK(spipe_unpin(page));
    unpin_ms = lap_ms(&since);
    SPIPE_CHECK(spipe_pinned_alloc((void **)&pinned, BYTES));
    alloc_ms = lap_ms(&since);
    allocated = send("allocated pinned", pinned, dev, back, s);

    printf("to pin it in place took %.1f ms, to let go %.1f ms, to allocate it pinned %.1f ms\n",
           pin_ms, unpin_ms, alloc_ms);
    printf("sent once: pageable %.1f ms, pinned in place for it %.1f ms, allocated %.1f ms\n",
           as_is.arrived_ms, pin_ms + in_place.arrived_ms + unpin_ms,
           alloc_ms + allocated.arrived_ms);
    gain = as_is.arrived_ms - allocated.arrived_ms;
    if (gain > 0) {
        printf("allocated pinned memory has paid for itself after %.0f sends\n",
               ceil(alloc_ms / gain));
    } else {
        printf("this GPU reads pageable memory as fast: there is nothing to gain\n");
    }
    SPIPE_CHECK(spipe_pinned_free(pinned));
    SPIPE_CHECK(spipe_pinned_free(back));
    SPIPE_CHECK(cudaFree(dev));
    SPIPE_CHECK(cudaStreamDestroy(s));
    free(page);
    return ex_verdict(as_is.right && in_place.right && allocated.right && !as_is.pinned &&
                      in_place.pinned && allocated.pinned);
}
