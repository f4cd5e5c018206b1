/*  ex_common.h -- what the examples share, so that each can be about one thing: the line that says
    where its times come from, a clock, data and its check, a gate, a kernel of a chosen length.
    Nothing of it is needed to use streampipe.h.                                                  */
#ifndef EX_COMMON_H
#define EX_COMMON_H

#include "streampipe.h"

/* hostcuda is the CUDA runtime on the CPU. Its clock is a model: it measures nothing. */
#ifdef __HOSTCUDA__
#include "hostcuda.h"
#define EX_HOSTCUDA 1
#define EX_TIMES    "modelled"
#else
#define EX_HOSTCUDA 0
#define EX_TIMES    "measured"
#endif

/* Says what the example runs on. Without a GPU it ends the program: 77 means skipped. */
static inline void ex_begin(void) {
    spipe_device_t gpu;
    const cudaError_t e = spipe_device_get(&gpu, -1);
    if (e != cudaSuccess) {
        fprintf(stderr, "there is no GPU to run on: %s\n", cudaGetErrorString(e));
        exit(77);
    }
    printf("on %s; times are " EX_TIMES "\n", gpu.name);
    fflush(stdout); /* before what may go to stderr */
}

/* The host's clock. */
static inline double ex_now_ms(void) {
#if EX_HOSTCUDA
    return hostcuda_now_ns() * 1e-6;
#elif defined(CLOCK_MONOTONIC)
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
#else
    struct timeval now; /* all that strict C99 shows */
    gettimeofday(&now, NULL);
    return (double)now.tv_sec * 1e3 + (double)now.tv_usec * 1e-3;
#endif
}

/* Keeps the host busy. On the modelled clock, work takes no time unless it is declared. */
static inline void ex_host_work(double ms) {
#if EX_HOSTCUDA
    hostcuda_host_work(ms * 1e6);
#else
    const double end = ex_now_ms() + ms;
    while (ex_now_ms() < end) continue;
#endif
}

/* "right" and 0, or "WRONG" and 1: what main returns. */
static inline int ex_verdict(int right) {
    printf("%s\n", right ? "right: the CPU finds the same" : "WRONG: not what the CPU finds");
    return right ? 0 : 1;
}

/* Fills x with numbers that are all different, so that a misplaced one is found. */
static inline void ex_fill(unsigned *x, size_t n) {
    size_t i;
    for (i = 0; i < n; ++i) x[i] = (unsigned)i * 2654435761u;
}

/* How long a copy to the device takes by itself. */
static inline double ex_copy_ms(void *dev, const void *host, size_t bytes) {
    spipe_timer_t timer;
    float ms = 0;
    int k;
    SPIPE_CHECK(spipe_timer_create(&timer));
    for (k = 0; k < 2; ++k) { /* the first one warms up */
        SPIPE_CHECK(spipe_timer_start(&timer, NULL));
        SPIPE_CHECK(cudaMemcpyAsync(dev, host, bytes, cudaMemcpyHostToDevice, NULL));
        SPIPE_CHECK(spipe_timer_stop(&timer, NULL));
        SPIPE_CHECK(spipe_timer_ms(&timer, &ms));
    }
    SPIPE_CHECK(spipe_timer_destroy(&timer));
    return (double)ms;
}

/* ---- A gate: holds a stream until the host opens it, so that "was it done by then?" has a sure
   answer and no race. For lessons only: it holds up CUDA's own thread. While it is closed, allocate
   nothing and launch no kernel for the first time: CUDA may wait for all streams to do that. -- */
typedef struct ex_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int open;
} ex_gate_t;

static inline void ex_gate_keep(void *user) {
    ex_gate_t *g = (ex_gate_t *)user;
    const struct timespec patience = {time(NULL) + 10, 0}; /* a lesson must end */
    pthread_mutex_lock(&g->lock);
    while (!g->open && pthread_cond_timedwait(&g->changed, &g->lock, &patience) == 0) continue;
    g->open = 1;
    pthread_mutex_unlock(&g->lock);
}

/* What is queued on the stream from now on waits. */
static inline cudaError_t ex_gate_close(ex_gate_t *g, cudaStream_t stream) {
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    g->open = 0;
    return spipe_host_call(stream, ex_gate_keep, g);
}

/* Lets the stream go on and waits for it; 1 if the gate had held until now. */
static inline int ex_gate_open(ex_gate_t *g, cudaStream_t stream) {
    int held;
    pthread_mutex_lock(&g->lock);
    held = !g->open;
    g->open = 1;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
    SPIPE_CHECK(cudaStreamSynchronize(stream));
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    return held;
}

/* ---- A kernel that lasts as long as one likes: `steps` random numbers on from each element --- */
#define EX_NEXT(x) (1664525u * (x) + 1013904223u)
#ifdef __cplusplus
static __global__ void ex_busy_kernel(unsigned *y, const unsigned *x, unsigned steps, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned v = x[i];
    for (unsigned k = 0; k < steps; ++k) v = EX_NEXT(v);
    y[i] = v;
}

static inline cudaError_t ex_busy(unsigned *y, const unsigned *x, unsigned steps, size_t n,
                                  cudaStream_t stream) {
    return SPIPE_LAUNCH(ex_busy_kernel, spipe_blocks(n, 256), 256, 0, stream, y, x, steps, n);
}

/* The same as a stage from buffer 0 to buffer 1; user is an unsigned, the steps. */
static inline cudaError_t ex_busy_stage(const spipe_chunk_t *c, void *user) {
    return ex_busy(SPIPE_BUF(c, 1, unsigned), SPIPE_BUF(c, 0, const unsigned), *(unsigned *)user,
                   c->count, c->stream);
}

/* The number of steps with which ex_busy over n elements takes about `ms` alone on the device. On a
   GPU it is measured with many steps and with none. On hostcuda the duration is set instead (half
   the elements, half the time), so that little is computed; the last call counts for all launches
   after it. Waits for the device. */
static inline unsigned ex_busy_steps(unsigned *scratch, size_t n, double ms) {
#if EX_HOSTCUDA
    (void)scratch;
    hostcuda_kernel_time(ex_busy_kernel, 0.0, ms * 1e6 / (256.0 * spipe_blocks(n, 256)));
    return 3;
#else
    const unsigned many = 20000;
    spipe_timer_t timer;
    float took[3]; /* warm-up, none, many */
    SPIPE_CHECK(spipe_timer_create(&timer));
    SPIPE_CHECK(cudaMemset(scratch, 0, n * sizeof *scratch));
    SPIPE_CHECK(cudaDeviceSynchronize());
    for (int k = 0; k < 3; ++k) {
        SPIPE_CHECK(spipe_timer_start(&timer, NULL));
        SPIPE_CHECK(ex_busy(scratch, scratch, k == 1 ? 0 : many, n, NULL));
        SPIPE_CHECK(spipe_timer_stop(&timer, NULL));
        SPIPE_CHECK(spipe_timer_ms(&timer, &took[k]));
    }
    SPIPE_CHECK(spipe_timer_destroy(&timer));
    const double a_step = ((double)took[2] - (double)took[1]) / many;
    return a_step > 0 && ms > (double)took[1] ? (unsigned)((ms - (double)took[1]) / a_step) : 0;
#endif
}

/* Whether y is what ex_busy makes of ex_fill's numbers; prints where it is not. All the steps
   together are one multiplication and one addition, found by repeated squaring. */
static inline int ex_busy_right(const unsigned *y, unsigned steps, size_t n) {
    unsigned a = 1, c = 0, square_a = 1664525u, square_c = 1013904223u;
    for (; steps; steps /= 2) {
        if (steps % 2) {
            a *= square_a;
            c = square_a * c + square_c;
        }
        square_c *= square_a + 1;
        square_a *= square_a;
    }
    for (size_t i = 0; i < n; ++i) {
        const unsigned want = a * ((unsigned)i * 2654435761u) + c;
        if (y[i] == want) continue;
        printf("element %zu is %u, not %u\n", i, y[i], want);
        return 0;
    }
    return 1;
}
#endif

#endif /* EX_COMMON_H */
