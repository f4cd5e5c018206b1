/*  ablate.h -- what ablate.cu knows of a side: the header with or without a mechanism, in a shared
    object. The program and its sides include this and nothing else of each other's. C++14. */
#ifndef ABLATE_H
#define ABLATE_H

#include <cuda_runtime.h>

#include <stddef.h>

typedef struct ablate_work {
    size_t count, chunk; /* elements; chunk 0: the library's choice */
    const float *in;
    float *out;
    const char *path; /* a file to read instead of `in`, or NULL */
    int kept, inputs; /* inputs: `in` so many times */
} ablate_work_t;

typedef struct ablate_kept ablate_kept_t;

/* What a side exports under these names. All give a cudaError_t. */
typedef int (*ablate_create_t)(const ablate_work_t *w, ablate_kept_t **kept);
typedef int (*ablate_run_t)(ablate_kept_t *kept);
typedef int (*ablate_destroy_t)(ablate_kept_t *kept);

static __global__ void ablate_kernel(const float *in, float *out, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2.0f * in[i] + 1.0f;
}

static inline cudaError_t ablate_launch(const float *in, float *out, size_t n,
                                        cudaStream_t stream) {
    cudaLaunchConfig_t config = cudaLaunchConfig_t();
    config.gridDim = dim3((unsigned)((n + 255) / 256));
    config.blockDim = dim3(256);
    config.stream = stream;
    return cudaLaunchKernelEx(&config, ablate_kernel, in, out, n);
}

#endif /* ABLATE_H */
