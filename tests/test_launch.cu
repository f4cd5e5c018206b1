/*  test_launch.cu -- a launch whose grid or block is too large ends the run with a sentence that
    names it and the limit, if the stage gave SPIPE_LAUNCH its chunk; if it gave the stream, with
    one that names the limits. */
#include "pipe_common.h"

enum {
    N = 1000
};

static unsigned x[N], y[N];
static dim3 grid, block;

static __global__ void copy_kernel(const unsigned *in, unsigned *out, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n && blockIdx.y == 0) out[i] = in[i];
}

static cudaError_t by_chunk(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(copy_kernel, grid, block, 0, c, SPIPE_BUF(c, 0, const unsigned),
                        SPIPE_BUF(c, 1, unsigned), c->count);
}

static cudaError_t by_stream(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(copy_kernel, grid, block, 0, c->stream, SPIPE_BUF(c, 0, const unsigned),
                        SPIPE_BUF(c, 1, unsigned), c->count);
}

/* The failure is only in CUDA's last error, and in the chunk's note. */
static cudaError_t ignoring(const spipe_chunk_t *c, void *user) {
    (void)by_chunk(c, user);
    return cudaSuccess;
}

static spipe_report_t r;

static cudaError_t run(spipe_stage_fn stage, dim3 blocks, dim3 threads, int checked) {
    spipe_desc_t d = spipe_desc_default();
    cudaError_t e;
    grid = blocks;
    block = threads;
    d.count = N;
    d.checked = checked;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "copy", stage, NULL);
    memset(y, 0, sizeof y);
    e = spipe_run(&d, &r);
    (void)cudaGetLastError();
    return e;
}

static void test_named(void) {
    static const struct {
        dim3 grid, block;
        const char *says;
    } cases[] = {
        {dim3(16, 65536), dim3(64), "a grid of 16 x 65536 x 1 blocks"},
        {dim3(16, 1, 65536), dim3(64), "a grid of 16 x 1 x 65536 blocks"},
        {dim3(2147483648u), dim3(64), "a grid of 2147483648 x 1 x 1 blocks"},
        {dim3(16, 0), dim3(64), "a grid of 16 x 0 x 1 blocks"},
        {dim3(1), dim3(1025), "blocks of 1025 x 1 x 1 threads"},
        {dim3(1), dim3(32, 33), "blocks of 32 x 33 x 1 threads"},
        {dim3(1), dim3(1, 1, 65), "blocks of 1 x 1 x 65 threads"},
        {dim3(1), dim3(0), "blocks of 0 x 1 x 1 threads"},
    };

    for (const auto &c : cases) {
        for (int checked = 0; checked < 2; ++checked) {
            const int is_grid = strstr(c.says, "grid") != NULL;
            const cudaError_t e = run(by_chunk, c.grid, c.block, checked);
            tap_ok(e == cudaErrorInvalidConfiguration && strstr(r.failure.message, c.says) &&
                       strstr(r.failure.message, is_grid ? "2147483647 x 65535 x 65535" : "1024") &&
                       strstr(r.failure.message, "stage 'copy' failed at chunk 0"),
                   "%s: %s", checked ? "so in a checked run" : "the size and its limit are named",
                   r.failure.message);
        }
    }
}

static void test_others(void) {
    cudaError_t e = run(ignoring, dim3(16, 65536), dim3(64), 0);
    tap_ok(e != cudaSuccess && strstr(r.failure.message, "a grid of 16 x 65536 x 1 blocks"),
           "also where the stage ignores the error: %s", r.failure.message);
    e = run(by_stream, dim3(16, 65536), dim3(64), 0);
    tap_ok(e == cudaErrorInvalidConfiguration &&
               strstr(r.failure.message, "2147483647 x 65535 x 65535") &&
               strstr(r.failure.message, "given the chunk"),
           "by a stage that gives its stream the limits are named: %s", r.failure.message);
    e = run(by_chunk, dim3(16, 65535), dim3(64), 0);
    tap_ok(e == cudaSuccess && memcmp(x, y, sizeof x) == 0, "what is allowed is launched");
    e = run(by_stream, dim3(1), dim3(1024), 0);
    tap_ok(e == cudaSuccess && memcmp(x, y, sizeof x) == 0, "in either way");
    e = SPIPE_LAUNCH(copy_kernel, dim3(1, 65536), 1, 0, NULL, (const unsigned *)NULL,
                     (unsigned *)NULL, 0u);
    tap_ok(e == cudaErrorInvalidConfiguration, "NULL is a stream, and the error is the same there");
    (void)cudaGetLastError();
}

int main(void) {
    for (unsigned i = 0; i < N; ++i) x[i] = i + 1;
    test_named();
    test_others();
    return tap_done();
}
