/*  async_sample.cu -- the work of NVIDIA's "how to overlap data transfers" post, by its variants
    and by streampipe.

    nvcc -O3 -std=c++17 -arch=sm_90 -I. -Itests -Xcompiler -pthread tests/bench/async_sample.cu \
         -o async_sample && ./async_sample --targets

    16 MiB of floats in pinned memory, changed in place: to each element the length of the vector
    (sin i, cos i) is added, i its number. The variants: all on one stream; four streams, each
    taking a quarter through copy, kernel, copy (V1); the same operations issued as all copies in,
    all kernels, all copies out (V2). Written anew: only the work is the same. The data are random
    here, and checked.                                                                            */
#include "sample_common.h"

#include <math.h>

enum {
    STREAMS = 4,
    BLOCK = 256
};

static __global__ void add_length_kernel(float *a, size_t n, size_t first) {
    const size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (k >= n) return;
    const float x = (float)(first + k), s = sinf(x), c = cosf(x);
    a[k] += sqrtf(s * s + c * c);
}

static cudaError_t add_length(float *a, size_t n, size_t first, cudaStream_t stream) {
    return SPIPE_LAUNCH(add_length_kernel, spipe_blocks(n, BLOCK), BLOCK, 0, stream, a, n, first);
}

static cudaError_t add_length_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return add_length(SPIPE_BUF(c, 0, float), c->count, c->first, c->stream);
}

typedef struct work {
    float *host, *device; /* host: pinned, changed in place */
    const float *before;  /* what it holds before a run */
    size_t n;
    cudaStream_t streams[STREAMS];
} work_t;

static cudaError_t copy_in(const work_t *w, size_t first, size_t n, cudaStream_t s) {
    return cudaMemcpyAsync(w->device + first, w->host + first, n * sizeof(float),
                           cudaMemcpyHostToDevice, s);
}

static cudaError_t copy_out(const work_t *w, size_t first, size_t n, cudaStream_t s) {
    return cudaMemcpyAsync(w->host + first, w->device + first, n * sizeof(float),
                           cudaMemcpyDeviceToHost, s);
}

static cudaError_t run_serial(const work_t *w) {
    SPIPE_TRY(cudaMemcpy(w->device, w->host, w->n * sizeof(float), cudaMemcpyHostToDevice));
    SPIPE_TRY(add_length(w->device, w->n, 0, NULL));
    return cudaMemcpy(w->host, w->device, w->n * sizeof(float), cudaMemcpyDeviceToHost);
}

static cudaError_t wait_for_all(const work_t *w) {
    for (cudaStream_t s : w->streams) SPIPE_TRY(cudaStreamSynchronize(s));
    return cudaSuccess;
}

static cudaError_t run_v1(const work_t *w) {
    const size_t part = w->n / STREAMS;
    for (size_t s = 0; s < STREAMS; ++s) {
        SPIPE_TRY(copy_in(w, s * part, part, w->streams[s]));
        SPIPE_TRY(add_length(w->device + s * part, part, s * part, w->streams[s]));
        SPIPE_TRY(copy_out(w, s * part, part, w->streams[s]));
    }
    return wait_for_all(w);
}

static cudaError_t run_v2(const work_t *w) {
    const size_t part = w->n / STREAMS;
    for (size_t s = 0; s < STREAMS; ++s) SPIPE_TRY(copy_in(w, s * part, part, w->streams[s]));
    for (size_t s = 0; s < STREAMS; ++s) {
        SPIPE_TRY(add_length(w->device + s * part, part, s * part, w->streams[s]));
    }
    for (size_t s = 0; s < STREAMS; ++s) SPIPE_TRY(copy_out(w, s * part, part, w->streams[s]));
    return wait_for_all(w);
}

/* The length is 1 but for rounding. */
static int right(const work_t *w) {
    for (size_t i = 0; i < w->n; ++i) {
        if (!(fabsf(w->host[i] - w->before[i] - 1.0f) < 1e-5f)) return 0;
    }
    return 1;
}

static sample_t sample_of(const work_t *w, spipe_pipeline_t *p) {
    sample_t s;
    s.reset = [w] {
        bench_copy(w->host, w->before, w->n * sizeof(float));
    };
    s.right = [w] {
        return right(w);
    };
    s.variants.push_back({"serial", [w] { return run_serial(w); }, {}});
    s.variants.push_back({"V1: copy, kernel, copy per stream", [w] { return run_v1(w); }, {}});
    s.variants.push_back({"V2: copies, kernels, copies", [w] { return run_v2(w); }, {}});
    s.variants.push_back(
        {"streampipe, nothing tuned", [p] { return spipe_pipeline_run(p, NULL); }, {}});
    return s;
}

int main(int argc, char **argv) {
    const sample_options_t o = sample_parse(argc, argv);
    const bench_machine_t m = bench_machine_or_skip(o.smoke);
    work_t w = work_t();
    bench_array_t host = bench_array_t(), before = bench_array_t();
    spipe_pipeline_t *p = NULL;
    spipe_desc_t d = spipe_desc_default();
    bench_machine_print(&m, stdout);
    w.n = (o.smoke ? BENCH_MIB / 4 : 16 * BENCH_MIB) / sizeof(float);
    SPIPE_CHECK(bench_array_need(&host, w.n * sizeof(float), 1));
    SPIPE_CHECK(bench_array_need(&before, w.n * sizeof(float), 0));
    bench_fill_random((float *)before.at, w.n);
    w.host = (float *)host.at;
    w.before = (const float *)before.at;
    SPIPE_CHECK(cudaMalloc((void **)&w.device, w.n * sizeof(float)));
    for (cudaStream_t &s : w.streams) SPIPE_CHECK(cudaStreamCreate(&s));

    d.count = w.n;
    spipe_add_inout(&d, w.host, sizeof(float));
    spipe_add_stage(&d, "add length", add_length_stage, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));

    sample_t sample = sample_of(&w, p);
    sample_measure(&sample, 3, o.rounds);
    const double ratio = sample_print(&sample, "async.cu's work: 16 MiB of floats in place");

    SPIPE_CHECK(spipe_pipeline_destroy(p));
    for (cudaStream_t s : w.streams) (void)cudaStreamDestroy(s);
    (void)cudaFree(w.device);
    bench_array_free(&host);
    bench_array_free(&before);
    return sample_verdict(&o, ratio);
}
