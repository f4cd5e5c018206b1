/*  16_product.cuh -- a matrix product as a stage, for 16_inference.cu: each element's row of
    `width` floats times a resident matrix of `height` such rows gives `height` floats.

    With -DUSE_CUBLAS and -lcublas it calls cuBLAS. To use a library in a stage, create its handle
    before the run, and set its stream to the stage's stream before each call.                  */
#include "streampipe_kernels.cuh"

typedef struct product {
    int in, matrix, out; /* buffers */
    size_t width, height;
    void *handle; /* of cuBLAS */
} product_t;

#if defined(USE_CUBLAS) && __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#define PRODUCT_BY "cuBLAS"

static cudaError_t product_error(cublasStatus_t s) {
    return s == CUBLAS_STATUS_SUCCESS ? cudaSuccess : cudaErrorUnknown;
}

static cudaError_t product_open(product_t *p) {
    return product_error(cublasCreate((cublasHandle_t *)&p->handle));
}

static cudaError_t product_close(product_t *p) {
    return product_error(cublasDestroy((cublasHandle_t)p->handle));
}

/* cuBLAS counts down the columns: to it each of these matrices is transposed. */
static cudaError_t product_stage(const spipe_chunk_t *c, void *user) {
    const product_t *p = (const product_t *)user;
    const cublasHandle_t h = (cublasHandle_t)p->handle;
    const float one = 1.0f, zero = 0.0f;
    const int n = (int)c->count, width = (int)p->width, height = (int)p->height;
    SPIPE_TRY(product_error(cublasSetStream(h, c->stream)));
    return product_error(cublasSgemm(h, CUBLAS_OP_T, CUBLAS_OP_N, height, n, width, &one,
                                     SPIPE_BUF(c, p->matrix, const float), width,
                                     SPIPE_BUF_ROW(c, p->in, const float, width), width, &zero,
                                     SPIPE_BUF_ROW(c, p->out, float, height), height));
}

#else
#define PRODUCT_BY "a plain kernel"

static cudaError_t product_open(product_t *) { return cudaSuccess; }

static cudaError_t product_close(product_t *) { return cudaSuccess; }

static __global__ void product_kernel(float *out, const float *in, const float *matrix,
                                      size_t width, size_t height, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    float sum = 0.0f;
    if (i >= n * height) return;
    for (size_t k = 0; k < width; ++k)
        sum += in[i / height * width + k] * matrix[i % height * width + k];
    out[i] = sum;
}

static cudaError_t product_stage(const spipe_chunk_t *c, void *user) {
    const product_t *p = (const product_t *)user;
    return SPIPE_LAUNCH(product_kernel, spipe_blocks(c->count * p->height, 256), 256, 0, c,
                        SPIPE_BUF_ROW(c, p->out, float, p->height),
                        SPIPE_BUF_ROW(c, p->in, const float, p->width),
                        SPIPE_BUF(c, p->matrix, const float), p->width, p->height, c->count);
}
#endif
