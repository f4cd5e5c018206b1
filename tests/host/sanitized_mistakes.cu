/*  sanitized_mistakes.cu -- mistakes that no sentence tells and a sanitizer finds, as
    docs/MISTAKES.md says. Not a test by itself: tests/cli/mistakes.sh builds it with each of them.

    usage: sanitized_mistakes MISTAKE       "right", or one of main's names                       */
#include "streampipe.h"

enum {
    N = 40000,
    CHUNK = 1000
};

static float x[N], y[N];
static float *scratch; /* of the device, one for all chunks */
static const void *kept;
static int keeps, looks_at_tickets;

static __global__ void twice(const float *in, float *out, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2.0f * in[i];
}
SPIPE_MAP_STAGE(twice_stage, twice, float, float)

static cudaError_t scratch_stage(const spipe_chunk_t *c, void *user) {
    float *between = user ? (float *)user : SPIPE_BUF(c, 2, float);
    SPIPE_TRY(SPIPE_LAUNCH(twice, spipe_blocks(c->count, 64), 64, 0, c->stream,
                           SPIPE_BUF(c, 0, const float), between, c->count));
    return SPIPE_LAUNCH(twice, spipe_blocks(c->count, 64), 64, 0, c->stream, between,
                        SPIPE_BUF(c, 1, float), c->count);
}

static cudaError_t give(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t most = part->count;
    size_t *count = &part->count;
    size_t *given = (size_t *)user;
    *count = N - *given < most ? N - *given : most;
    memcpy(dst, x + *given, *count * sizeof *x);
    *given += *count;
    if (kept) ((float *)(uintptr_t)kept)[0] = 1.0f;
    if (keeps) kept = dst;
    return cudaSuccess;
}

static cudaError_t take(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    (void)user;
    if (kept) y[first] = ((const float *)kept)[0];
    if (keeps) kept = src;
    memcpy(y + first, src, count * sizeof *y);
    return cudaSuccess;
}

static cudaError_t next_ticket(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t most = part->count;
    size_t *count = &part->count;
    size_t *given = (size_t *)user, i;
    *count = N - *given < most ? N - *given : most;
    for (i = 0; i < *count; ++i) ((size_t *)dst)[i] = (*given)++;
    return cudaSuccess;
}

static cudaError_t work(const spipe_part_t *part, const void *tickets, void *user) {
    void *elements = part->data;
    const size_t first = part->first, count = part->count;
    const size_t *t = (const size_t *)tickets;
    size_t i;
    (void)user;
    for (i = 0; i < count; ++i) {
        ((float *)elements)[i] = x[t[looks_at_tickets ? first + i : i] % N];
    }
    return cudaSuccess;
}

static cudaError_t run(spipe_desc_t *d) {
    spipe_report_t r;
    const cudaError_t e = spipe_run(d, &r);
    if (e != cudaSuccess) fprintf(stderr, "%s\n", r.failure.message);
    return e;
}

/* A checked run from a source to a sink. */
static cudaError_t hosted(int sink_keeps, int source_keeps) {
    spipe_desc_t d = spipe_desc_default();
    size_t given = 0;
    d.chunk = CHUNK;
    d.checked = 1;
    keeps = sink_keeps || source_keeps;
    if (source_keeps || !keeps)
        spipe_add_source(&d, give, &given, sizeof *x, SPIPE_IN_ORDER);
    else
        spipe_add_input(&d, x, sizeof *x);
    if (!source_keeps)
        spipe_add_sink(&d, take, NULL, sizeof *y, SPIPE_IN_ORDER);
    else
        spipe_add_output(&d, y, sizeof *y);
    if (d.buffers[0].kind == SPIPE_INPUT || d.buffers[1].kind == SPIPE_OUTPUT) d.count = N;
    spipe_add_stage(&d, "twice", twice_stage, NULL);
    return run(&d);
}

static cudaError_t tickets(int by_first) {
    spipe_desc_t d = spipe_desc_default();
    size_t given = 0;
    d.count = N;
    d.chunk = CHUNK;
    d.checked = 1;
    looks_at_tickets = by_first;
    spipe_add_split_source(&d, next_ticket, work, &given, sizeof(size_t), sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "twice", twice_stage, NULL);
    return run(&d);
}

static cudaError_t shared_scratch(int shared) {
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.chunk = CHUNK;
    d.staging = SPIPE_STAGING_COPY; /* CUDA's own copies of pageable memory wait for each chunk */
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_temp(&d, sizeof *x);
    spipe_add_stage(&d, "scratch", scratch_stage, shared ? scratch : NULL);
    return run(&d);
}

static cudaError_t released(int on_another) {
    spipe_desc_t d = spipe_desc_default();
    cudaStream_t streams[2];
    spipe_pipeline_t *p;
    spipe_chunk_t c;
    cudaError_t e = cudaSuccess;
    d.count = N;
    d.chunk = CHUNK;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    SPIPE_CHECK(spipe_stream_create(&streams[0], SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_stream_create(&streams[1], SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    while (e == cudaSuccess) {
        e = spipe_pipeline_next(p, streams[0], &c);
        if (e != cudaSuccess || c.count == 0) break;
        SPIPE_CHECK(twice_stage(&c, NULL));
        e = spipe_pipeline_release(p, streams[on_another]);
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(cudaDeviceSynchronize());
    SPIPE_CHECK(cudaStreamDestroy(streams[0]));
    SPIPE_CHECK(cudaStreamDestroy(streams[1]));
    return e;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "right";
    const int right = strcmp(what, "right") == 0;
    cudaError_t e = cudaSuccess;
    SPIPE_CHECK(cudaMalloc((void **)&scratch, CHUNK * sizeof *scratch));
    if (right || !strcmp(what, "sink")) e = hosted(!right, 0);
    if (e == cudaSuccess && (right || !strcmp(what, "source"))) e = hosted(0, !right);
    if (e == cudaSuccess && (right || !strcmp(what, "tickets"))) e = tickets(!right);
    if (e == cudaSuccess && (right || !strcmp(what, "scratch"))) e = shared_scratch(!right);
    if (e == cudaSuccess && (right || !strcmp(what, "stream"))) e = released(!right);
    SPIPE_CHECK(cudaFree(scratch));
    return e != cudaSuccess;
}
