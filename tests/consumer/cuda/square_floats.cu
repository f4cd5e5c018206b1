/* A user's program in CUDA C++: a kernel, a stage of one line, a run. */
#include "streampipe.h"

static __global__ void square(const float *x, float *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}
SPIPE_MAP_STAGE(square_stage, square, float, float)

int main(void) {
    enum {
        N = 100003
    };

    static float x[N], y[N];
    for (int i = 0; i < N; ++i) x[i] = (float)(i % 1000);
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.chunk = 1000;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "square", square_stage, NULL);
    SPIPE_CHECK_RUN(&d, NULL);
    for (int i = 0; i < N; ++i)
        if (y[i] != x[i] * x[i]) return 1;
    printf("all %d are right\n", (int)N);
    return 0;
}
