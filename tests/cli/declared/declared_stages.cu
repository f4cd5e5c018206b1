/*  The stages of a program of three files, with prototypes alone: see declared_caller.c. C++ for
    hostcuda, and CUDA for nvcc.                                                                 */
#define SPIPE_DECLARATIONS
#include "streampipe.h"
#if __cplusplus >= 201402L
#include "streampipe_kernels.cuh"
#endif
#include <stdexcept>

static __global__ void twice_kernel(const float *in, float *out, size_t count) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < count) out[i] = 2.0f * in[i];
}
SPIPE_MAP_STAGE(map_twice, twice_kernel, float, float)

static __global__ void plus_kernel(float *p, float plus, size_t count) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < count) p[i] += plus;
}

static cudaError_t throwing_stage(const spipe_chunk_t *, void *) {
    throw std::runtime_error("thrown by a stage");
}

extern "C" {
cudaError_t twice_stage(const spipe_chunk_t *c, void *user);
cudaError_t plus_stage(const spipe_chunk_t *c, void *user);
cudaError_t wrong_cpp_stage(const spipe_chunk_t *c, void *not_left);
int exception_is_caught(void);

cudaError_t twice_stage(const spipe_chunk_t *c, void *user) {
#if __cplusplus >= 201402L
    static const spipe_scale_t twice = {0, 1, 2.0f};
    if (c->index % 2 == 1) return spipe_scale_stage(c, const_cast<spipe_scale_t *>(&twice));
#endif
    return map_twice(c, user);
}

cudaError_t plus_stage(const spipe_chunk_t *c, void *) {
    return SPIPE_LAUNCH(plus_kernel, spipe_blocks(c->count, 128), 128, 0, c, SPIPE_BUF(c, 1, float),
                        1, c->count);
}

cudaError_t wrong_cpp_stage(const spipe_chunk_t *c, void *not_left) {
    *static_cast<int *>(not_left) = 0;
    const double *p = SPIPE_BUF(c, 0, const double);
    *static_cast<int *>(not_left) = 1;
    return p ? cudaSuccess : cudaErrorUnknown;
}

int exception_is_caught(void) {
    static float array[100];
    spipe_desc_t d = spipe_desc_default();
    d.count = 100;
    spipe_add_inout(&d, array);
    spipe_add_stage(&d, "throws", throwing_stage, NULL);
    try {
        (void)spipe_run(&d, NULL);
    } catch (const std::runtime_error &e) {
        return strcmp(e.what(), "thrown by a stage") == 0;
    }
    return 0;
}
}
