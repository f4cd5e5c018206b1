/*  Every macro that a user writes, used as a user would: nested, in an if without braces, in C, C++
    and CUDA. Compiled, not run. WITH_LAUNCH: compiled as CUDA, by nvcc or on hostcuda.          */
#include "streampipe.h"

#if SPIPE_VERSION != SPIPE_VERSION_MAJOR * 10000 + SPIPE_VERSION_MINOR * 100 + SPIPE_VERSION_PATCH
#error "the version's parts and the whole disagree"
#endif

static cudaError_t try_all(const spipe_desc_t *desc, int which) {
    if (which)
        SPIPE_TRY(cudaGetLastError());
    else
        SPIPE_TRY(cudaPeekAtLastError());
    for (;;) {
        SPIPE_TRY(spipe_desc_check(desc, NULL));
        break;
    }
    return cudaSuccess;
}

static cudaError_t touch_stage(const spipe_chunk_t *c, void *user) {
    const float *in = SPIPE_BUF(c, 0, const float);
    float *out = SPIPE_BUF(c, 1, float);
    (void)user;
    return in == out ? cudaErrorInvalidValue : cudaSuccess;
}

#if defined(WITH_LAUNCH)
template <typename T, int n>
static __global__ void add_kernel(const T *in, T *out, size_t count) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < count) out[i] = in[i] + n;
}
SPIPE_MAP_STAGE(add_stage, (add_kernel<float, 2>), float, float)

static cudaError_t launch_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    SPIPE_TRY(SPIPE_LAUNCH((add_kernel<int, 1>), 2, 32, 0, c->stream, SPIPE_BUF(c, 0, const int),
                           SPIPE_BUF(c, 1, int), c->count));
    return SPIPE_LAUNCH((add_kernel<int, 2>), dim3(2, 2), dim3(8, 4), 0, c->stream,
                        SPIPE_BUF(c, 0, const int), SPIPE_BUF(c, 1, int), 3);
}
#endif

#if defined(WITH_LAUNCH)
static __global__ void alone_kernel() {}
#endif

/* The size of an element is that of the pointer's type. */
static int typed(void) {
    static double x[4];
    static short y[4];
    spipe_desc_t d = spipe_desc_default();
    SPIPE_ADD_INPUT(&d, x);
    SPIPE_ADD_OUTPUT(&d, y + 1);
    SPIPE_ADD_INOUT(&d, &y[2]);
    SPIPE_ADD_TEMP(&d, double);
#if defined(__cplusplus)
    spipe_add_input(&d, (const short *)y);
    spipe_add_output(&d, x);
    spipe_add_inout(&d, &x[0]);
    if (d.buffers[4].elem_bytes != sizeof *y || d.buffers[5].elem_bytes != sizeof *x) return 0;
    if (d.num_buffers != 7 || d.buffers[6].elem_bytes != sizeof *x) return 0;
#endif
    return d.buffers[0].elem_bytes == sizeof *x && d.buffers[1].elem_bytes == sizeof *y &&
           d.buffers[2].elem_bytes == sizeof *y && d.buffers[3].elem_bytes == sizeof *x;
}

int main(void) {
    float x[4] = {0, 0, 0, 0};
    spipe_report_t report;
    spipe_desc_t d = spipe_desc_default();
    d.count = 4;
    spipe_add_input(&d, x, sizeof x[0]);
    spipe_add_stage(&d, "touch", touch_stage, NULL);
#if defined(WITH_LAUNCH)
    spipe_add_stage(&d, "add", add_stage, NULL);
    spipe_add_stage(&d, "launch", launch_stage, NULL);
#endif
    if (!typed()) return 1;
#if defined(WITH_LAUNCH)
    SPIPE_CHECK(SPIPE_LAUNCH(alone_kernel, 1, 1, 0, NULL));
#endif
    SPIPE_CHECK(try_all(&d, 1));
    SPIPE_CHECK_RUN(&d, &report);
    if (report.failure.error != cudaSuccess) SPIPE_CHECK(report.failure.error);
    return SPIPE_BIT(1) == 2u ? 0 : 1;
}
