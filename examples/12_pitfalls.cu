/*  12_pitfalls.cu -- four ways to write streams that do not overlap, each beside its cure.

    nvcc -O3 -I.. -o 12_pitfalls 12_pitfalls.cu && ./12_pitfalls     (without a GPU: make examples)

    You learn   none of them is an error, no result is wrong, and nothing warns you. Only the time
                shows it, so measure, or ask the doctor (19_doctor).
    Mind        the number of useful streams is limited by the hardware's queues: 8, or up to 32
                with CUDA_DEVICE_MAX_CONNECTIONS. More streams work, but share queues and take time
                to create; 2 to 4 are enough (15_requests uses a pool).
    Expect      (hostcuda)                                            pitfall        mended
                    false dependency: someone uses stream 0            0.276 ms      0.141 ms
                    unpinned memory                                    1.917 ms      0.141 ms
                    over-synchronising: a wait a task                  0.290 ms      0.141 ms
                    too many streams: one for each of 256 tasks        4.147 ms      2.440 ms
                right: the CPU finds the same                                                     */
#include "ex_common.h"

enum {
    N = EX_HOSTCUDA ? 1 << 20 : 1 << 22,
    BYTES = N * sizeof(unsigned),
    STREAMS = 4,
    MANY = 256
};

typedef struct way {
    int tasks;       /* parts of the array, each with copy in, kernel, copy out */
    int blocking;    /* 1 = made by cudaStreamCreate: stream 0 and these wait for each other */
    int pageable;    /* 1 = host memory is not pinned */
    int sync_each;   /* 1 = wait after every task */
    int stream_each; /* 1 = make a stream for every task */
} way_t;

static const struct pitfall {
    const char *name;
    way_t bad, good;
} pitfalls[] = {
    {"false dependency: someone uses stream 0", {STREAMS, 1, 0, 0, 0}, {STREAMS, 0, 0, 0, 0}},
    {"unpinned memory", {STREAMS, 0, 1, 0, 0}, {STREAMS, 0, 0, 0, 0}},
    {"over-synchronising: a wait a task", {STREAMS, 0, 0, 1, 0}, {STREAMS, 0, 0, 0, 0}},
    {"too many streams: one for each of 256 tasks", {MANY, 0, 0, 0, 1}, {MANY, 0, 0, 0, 0}},
};

static unsigned *pageable, *pinned, *dev, *mark, steps; /* mark: work in stream 0 writes it */

static void make_stream(cudaStream_t *s, int blocking) {
    if (blocking)
        SPIPE_CHECK(cudaStreamCreate(s));
    else
        SPIPE_CHECK(spipe_stream_create(s, SPIPE_PRIORITY_DEFAULT));
}

static void queue_task(unsigned *host, size_t first, size_t count, cudaStream_t s) {
    unsigned *h = host + first, *d = dev + first;
    SPIPE_CHECK(cudaMemcpyAsync(d, h, count * sizeof *d, cudaMemcpyHostToDevice, s));
    SPIPE_CHECK(ex_busy(d, d, steps, count, s));
    SPIPE_CHECK(cudaMemcpyAsync(h, d, count * sizeof *d, cudaMemcpyDeviceToHost, s));
    SPIPE_CHECK(cudaMemsetAsync(mark, 0, sizeof *mark, NULL)); /* stream 0, always */
}

/* Milliseconds of the whole; negative when a result is wrong. */
static double run_ms(const way_t *w) {
    unsigned *host = w->pageable ? pageable : pinned;
    const size_t count = (size_t)N / (size_t)w->tasks;
    cudaStream_t streams[MANY];
    const int num_streams = w->stream_each ? w->tasks : STREAMS;
    ex_fill(host, N);
    for (int k = 0; k < num_streams && !w->stream_each; ++k) make_stream(&streams[k], w->blocking);
    const double start = ex_now_ms();
    for (int t = 0; t < w->tasks; ++t) {
        cudaStream_t *s = &streams[t % num_streams];
        if (w->stream_each) make_stream(s, w->blocking);
        queue_task(host, (size_t)t * count, count, *s);
        if (w->sync_each) SPIPE_CHECK(cudaStreamSynchronize(*s));
    }
    for (int k = 0; k < num_streams; ++k) SPIPE_CHECK(cudaStreamSynchronize(streams[k]));
    double ms = ex_now_ms() - start;
    for (int k = 0; k < num_streams; ++k) SPIPE_CHECK(cudaStreamDestroy(streams[k]));
    if (w->stream_each) ms = ex_now_ms() - start; /* counts cudaStreamDestroy, too */
    return ex_busy_right(host, steps, N) ? ms : -1;
}

int main(void) {
    int right = 1;
    ex_begin();
    pageable = (unsigned *)malloc(BYTES);
    if (!pageable) return 1;
    SPIPE_CHECK(spipe_pinned_alloc((void **)&pinned, BYTES));
    SPIPE_CHECK(cudaMalloc((void **)&dev, BYTES));
    SPIPE_CHECK(cudaMalloc((void **)&mark, sizeof *mark));
    ex_fill(pinned, N);
    steps = ex_busy_steps(dev, N, ex_copy_ms(dev, pinned, BYTES));
    (void)run_ms(&pitfalls[0].good); /* warm up */
    printf("%56spitfall        mended\n", "");
    for (const struct pitfall &p : pitfalls) {
        const double bad = run_ms(&p.bad), good = run_ms(&p.good);
        printf("    %-44s %11.3f ms %10.3f ms\n", p.name, bad, good);
        right &= bad >= 0 && good >= 0;
    }
    SPIPE_CHECK(cudaFree(mark));
    SPIPE_CHECK(cudaFree(dev));
    SPIPE_CHECK(spipe_pinned_free(pinned));
    free(pageable);
    return ex_verdict(right);
}
