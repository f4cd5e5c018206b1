/*  22_python.cu -- a pipeline for Python: three C functions in a shared object.

    nvcc -O3 -I.. -shared -Xcompiler -fPIC -o lib22_python.so 22_python.cu
    python3 22_python.py ./lib22_python.so             on a PyTorch stream, with PyTorch tensors
    python3 22_cupy.py ./lib22_python.so               on a CuPy stream, with CuPy arrays
    nvcc -O3 -I.. -o 22_python 22_python.cu && ./22_python           the same calls, made from C
    You learn   Python needs no binding generator, only functions of plain C types: pointers, sizes
                and a stream, which is what tensor.data_ptr() and stream.cuda_stream are.
                spipe_pipeline_enqueue puts the run between what PyTorch has queued on that stream
                and what it queues next; the host does not wait. So Python goes on, and its own time
                is hidden behind the GPU's.
    Mind        the tops of 22_python.py and 22_cupy.py say what a Python program must take care of.
    Expect      (hostcuda)
                8 runs of 1000003 numbers, the host waits after each: 1.361 ms
                it waits once, at the end: 1.117 ms; 0 numbers are wrong
                right: the CPU finds the same                                                     */
#include "ex_common.h"

enum {
    RUNS = 8
};

static __global__ void square(const float *x, float *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}
SPIPE_MAP_STAGE(square_stage, square, float, float)

/* The wrapper. x: pinned host memory, y: device memory, n floats each; they must stay alive and in
   place until squares_destroy. NULL: it could not be made. */
extern "C" void *squares_create(const float *x, float *y, size_t n) {
    spipe_pipeline_t *p = NULL;
    spipe_desc_t d = spipe_desc_default();
    d.count = n;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "square", square_stage, NULL);
    (void)spipe_pipeline_create(&p, &d, NULL);
    return p;
}

/* 0, or a cudaError_t. Does not wait. */
extern "C" int squares_enqueue(void *p, void *stream) {
    return spipe_pipeline_enqueue((spipe_pipeline_t *)p, (cudaStream_t)stream);
}

/* Waits for what is under way. */
extern "C" int squares_destroy(void *p) { return spipe_pipeline_destroy((spipe_pipeline_t *)p); }

/* What comes after the run on the same stream: here a kernel, in 22_python.py PyTorch's sum. */
static __global__ void add_one(float *x, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1.0f;
}

/* RUNS times a run, a kernel that needs all of it, and 0.05 ms of work on the host, such as that of
   Python between two calls. It waits after each, or once; the milliseconds. */
static double runs_ms(void *squares, float *y, size_t n, cudaStream_t stream, int waits) {
    const double start = ex_now_ms();
    for (int k = 0; k < RUNS; ++k) {
        SPIPE_CHECK((cudaError_t)squares_enqueue(squares, stream));
        SPIPE_CHECK(SPIPE_LAUNCH(add_one, spipe_blocks(n, 256), 256, 0, stream, y, n));
        if (waits) SPIPE_CHECK(cudaStreamSynchronize(stream));
        ex_host_work(0.05);
    }
    SPIPE_CHECK(cudaStreamSynchronize(stream));
    return ex_now_ms() - start;
}

int main(void) {
    const size_t n = 1000003;
    cudaStream_t stream;
    float *x, *y, *back;
    size_t i, wrong = 0;
    ex_begin();
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&x, n * sizeof *x));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&back, n * sizeof *back));
    SPIPE_CHECK(cudaMalloc((void **)&y, n * sizeof *y));
    for (i = 0; i < n; ++i) x[i] = (float)(i % 1000);
    void *squares = squares_create(x, y, n);
    if (!squares) return 1;
    (void)runs_ms(squares, y, n, stream, 1); /* warms up */
    const double waited = runs_ms(squares, y, n, stream, 1);
    const double once = runs_ms(squares, y, n, stream, 0);
    SPIPE_CHECK(cudaMemcpyAsync(back, y, n * sizeof *y, cudaMemcpyDeviceToHost, stream));
    SPIPE_CHECK(cudaStreamSynchronize(stream));
    for (i = 0; i < n; ++i) wrong += back[i] != x[i] * x[i] + 1.0f;
    printf("%d runs of %zu numbers, the host waits after each: %.3f ms\n", (int)RUNS, n, waited);
    printf("it waits once, at the end: %.3f ms; %zu numbers are wrong\n", once, wrong);
    SPIPE_CHECK((cudaError_t)squares_destroy(squares));
    SPIPE_CHECK(cudaFree(y));
    SPIPE_CHECK(spipe_pinned_free(back));
    SPIPE_CHECK(spipe_pinned_free(x));
    SPIPE_CHECK(cudaStreamDestroy(stream));
    return ex_verdict(wrong == 0);
}
