/*  versus_side.h -- what versus.cu knows of a side: one version of streampipe.h in a shared object.
    The program and both sides include this and nothing else of each other's. C++14. */
#ifndef VERSUS_SIDE_H
#define VERSUS_SIDE_H

#include <cuda_runtime.h>

#include <math.h>
#include <stddef.h>

enum {
    VERSUS_STAGES = 3
};

/* The work, the same for both sides. in: `floats` floats an element; out: one. */
typedef struct versus_work {
    size_t count; /* elements */
    const float *in;
    float *out;
    int floats, stages;
    unsigned steps[VERSUS_STAGES]; /* how long each stage's kernel is */
    int elementwise;               /* the stages promise what the library calls so */
} versus_work_t;

/* What a run was, and why it failed. */
typedef struct versus_report {
    size_t chunk_bytes, num_chunks, depth; /* chunk_bytes: of the input */
    size_t fill, drain;                    /* threads that stage; 0: none */
    int staged;
    double wall_ms;
    char schedule[24], message[512];
} versus_report_t;

/* What a side exports under these names with `versus_` before them. All give a cudaError_t. */
typedef int (*versus_create_t)(const versus_work_t *w, void **kept, versus_report_t *r);
typedef int (*versus_run_t)(void *kept, versus_report_t *r);
typedef int (*versus_destroy_t)(void *kept);
typedef int (*versus_once_t)(const versus_work_t *w, versus_report_t *r);
typedef int (*versus_version_t)(void);

/* ---- The kernels, compiled into each side and into the program ------------------------------- */

/* One element a thread; `steps` says how long it takes. The data do not matter. */
static __global__ void versus_kernel(const float *in, float *out, size_t n, int floats,
                                     unsigned steps) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float *at = in + i * (size_t)floats;
    float x = floats == 1 ? at[0] : fmaf(at[2], 0.25f, fmaf(at[1], 0.25f, at[0] * 0.5f));
    for (unsigned k = 0; k < steps; k++) x = fmaf(x, 0.9999f, 0.0001f);
    out[i] = x;
}

static inline float versus_cpu(const versus_work_t *w, const float *at) {
    float x = w->floats == 1 ? at[0] : fmaf(at[2], 0.25f, fmaf(at[1], 0.25f, at[0] * 0.5f));
    for (int s = 0; s < w->stages; ++s) {
        for (unsigned k = 0; k < w->steps[s]; k++) x = fmaf(x, 0.9999f, 0.0001f);
    }
    return x;
}

/* Stage s of the work on n elements; only the first reads several floats an element. */
static inline cudaError_t versus_launch(const versus_work_t *w, int s, const float *in, float *out,
                                        size_t n, cudaStream_t stream) {
    cudaLaunchConfig_t config = cudaLaunchConfig_t();
    config.gridDim = dim3((unsigned)((n + 255) / 256));
    config.blockDim = dim3(256);
    config.stream = stream;
    return cudaLaunchKernelEx(&config, versus_kernel, in, out, n, s == 0 ? w->floats : 1,
                              w->steps[s]);
}

#endif /* VERSUS_SIDE_H */
