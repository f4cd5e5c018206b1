/*  test_closed_forms.cu -- on the modelled clock the schedules take exactly as long as theory says.

    N equal chunks, three equal steps of t each (copy in, kernel, copy out), calls that cost
   nothing: serial 3 N t; overlapped with two copy engines (N + 2) t, that is (N+2)/(3N) of serial;
   with one copy engine and one hardware queue, depth-first issue gains nothing. */
#include "hostcuda.h"
#include "pipe_common.h"

enum {
    CHUNK = 1000,
    MAX_CHUNKS = 64
};

static const double t = 4000.0; /* ns: 4,000 bytes at 1 GB/s, and the kernel's time */

static __global__ void copy_kernel(const float *x, float *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
SPIPE_MAP_STAGE(copy_stage, copy_kernel, float, float)

/* Modelled ns of one run; negative when the run or its result is wrong. */
static double run_ns(size_t chunks, spipe_schedule_t schedule, size_t depth) {
    pipe_array_t x = pipe_array_new(chunks * CHUNK * sizeof(float), PIPE_PINNED);
    pipe_array_t y = pipe_array_new(x.bytes, PIPE_PINNED);
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    double ns = -1.0;
    pipe_randomise(x);
    pipe_poison(y);
    d.count = chunks * CHUNK;
    d.chunk = CHUNK;
    d.depth = depth;
    d.schedule = schedule;
    spipe_add_input(&d, x.at, sizeof(float));
    spipe_add_output(&d, y.at, sizeof(float));
    spipe_add_stage(&d, "copy", copy_stage, NULL);
    if (spipe_pipeline_create(&p, &d, NULL) == cudaSuccess) {
        const double began = hostcuda_now_ns();
        if (spipe_pipeline_run(p, NULL) == cudaSuccess) ns = hostcuda_now_ns() - began;
        if (memcmp(x.at, y.at, x.bytes) != 0) ns = -2.0;
        (void)spipe_pipeline_destroy(p);
    }
    pipe_free(&x);
    pipe_free(&y);
    return ns;
}

static void use_profile(const char *name) {
    hostcuda_profile_t p = hostcuda_profile(name);
    p.h2d = p.d2h = 1.0;
    SPIPE_CHECK(hostcuda_set_profile(0, &p));
    hostcuda_kernel_time(copy_kernel, t, 0.0);
}

static int is(double got, double want) {
    if (got > want - 0.5 && got < want + 0.5) return 1;
    tap_note("modelled %.1f ns, the closed form says %.1f", got, want);
    return 0;
}

int main(void) {
    static const size_t counts[] = {1, 2, 3, 4, 8, 16, MAX_CHUNKS};
    size_t i;
    use_profile("ideal");
    for (i = 0; i < sizeof counts / sizeof *counts; ++i) {
        const size_t n = counts[i];
        const double serial = 3.0 * (double)n * t, best = (double)(n + 2) * t;
        tap_ok(is(run_ns(n, SPIPE_SCHEDULE_SERIAL, SPIPE_AUTO), serial),
               "serial takes 3 N t, N = %zu", n);
        tap_ok(is(run_ns(n, SPIPE_SCHEDULE_ENGINES, 4), best), "engines takes (N + 2) t, N = %zu",
               n);
    }
    tap_ok(is(run_ns(8, SPIPE_SCHEDULE_ENGINES, 1), 24.0 * t), "one slot overlaps nothing");
    tap_ok(is(run_ns(8, SPIPE_SCHEDULE_ENGINES, 3), 10.0 * t),
           "three slots are enough to overlap all");
    return tap_done();
}
