/*  test_calls.cu -- calls of spipe_run with resources that are repeated are run by a pipeline which
    the resources keep. A call that differs from those before it, in a halo, an edge or a promise,
    is another call: its result is what its own description says. */
#include "resources_common.h"

enum {
    N = 10000,
    CHUNK = 500,
    REPEATS = 4 /* the second call makes the pipeline, the third and fourth are run by it */
};

static float *x[2], *y[2]; /* pageable, pinned */

static void arrays_new(void) {
    size_t i;
    x[0] = (float *)malloc(N * sizeof(float));
    y[0] = (float *)malloc(N * sizeof(float));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&x[1], N * sizeof(float)));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&y[1], N * sizeof(float)));
    for (i = 0; i < N; ++i) x[0][i] = x[1][i] = (float)(i % 100 + 1);
}

static void arrays_free(void) {
    free(x[0]);
    free(y[0]);
    SPIPE_CHECK(spipe_pinned_free(x[1]));
    SPIPE_CHECK(spipe_pinned_free(y[1]));
}

/* ---- another halo ---------------------------------------------------------------------------- */
typedef struct reach {
    size_t before, after;
    spipe_edge_t edge;
} reach_t;

static __global__ void ends_kernel(const float *in, float *out, size_t n, size_t before,
                                   size_t after) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[(ptrdiff_t)i - (ptrdiff_t)before] + 2.0f * in[i + after];
}

static cudaError_t ends_stage(const spipe_chunk_t *c, void *user) {
    const reach_t *r = (const reach_t *)user;
    return SPIPE_LAUNCH(ends_kernel, spipe_blocks(c->count, 64), 64, 0, c->stream,
                        SPIPE_BUF(c, 0, const float), SPIPE_BUF(c, 1, float), c->count, r->before,
                        r->after);
}

static float at(const float *in, size_t i, size_t before, size_t after, spipe_edge_t edge) {
    const int outside = i < before || i - before + after >= N;
    if (outside && edge == SPIPE_EDGE_ZERO) return 0.0f;
    if (i < before) return in[0];
    return in[i - before + after < N ? i - before + after : N - 1];
}

static int ends_right(const float *in, const float *out, const reach_t *r) {
    size_t i, wrong = 0;
    for (i = 0; i < N; ++i) {
        wrong +=
            out[i] != at(in, i, r->before, 0, r->edge) + 2.0f * at(in, i, 0, r->after, r->edge);
    }
    return wrong == 0;
}

static int calls_right(spipe_resources_t *res, int memory, reach_t r) {
    int k, right = 1;
    for (k = 0; k < REPEATS; ++k) {
        spipe_desc_t d = spipe_desc_default();
        d.count = N;
        d.chunk = CHUNK;
        d.resources = res;
        spipe_set_halo(&d, spipe_add_input(&d, x[memory], sizeof(float)), r.before, r.after,
                       r.edge);
        spipe_add_output(&d, y[memory], sizeof(float));
        spipe_add_stage(&d, "ends", ends_stage, &r);
        memset(y[memory], 0, N * sizeof(float));
        SPIPE_CHECK_RUN(&d, NULL);
        right &= ends_right(x[memory], y[memory], &r);
    }
    return right;
}

static void test_halos(void) {
    static const reach_t reaches[] = {{1, 1, SPIPE_EDGE_CLAMP}, {3, 1, SPIPE_EDGE_CLAMP},
                                      {3, 2, SPIPE_EDGE_CLAMP}, {3, 2, SPIPE_EDGE_ZERO},
                                      {1, 1, SPIPE_EDGE_CLAMP}, {0, 0, SPIPE_EDGE_CLAMP}};
    spipe_resources_t *res;
    int memory;
    size_t k;
    SPIPE_CHECK(spipe_resources_create(&res, NULL, NULL));
    for (memory = 0; memory < 2; ++memory) {
        for (k = 0; k < sizeof reaches / sizeof *reaches; ++k) {
            const reach_t *r = &reaches[k];
            tap_ok(
                calls_right(res, memory, *r),
                "calls with a halo of %zu before and %zu after, %s, are others than those before "
                "them, %s",
                r->before, r->after, r->edge == SPIPE_EDGE_ZERO ? "zeros" : "clamped",
                pipe_memory_names[memory]);
        }
    }
    SPIPE_CHECK(spipe_resources_destroy(res, NULL));
}

/* ---- another promise ------------------------------------------------------------------------- */
static __global__ void double_kernel(float *in, float *out, size_t n, int in_place) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = 2.0f * in[i];
    if (in_place) in[i] = -1.0f; /* the copy in the slot, which a stage may change */
}

static cudaError_t double_stage(const spipe_chunk_t *c, void *user) {
    return SPIPE_LAUNCH(double_kernel, spipe_blocks(c->count, 64), 64, 0, c->stream,
                        (float *)c->data[0], SPIPE_BUF(c, 1, float), c->count, *(const int *)user);
}

/* Elementwise, pinned arrays may be used where they are. Without the promise a stage may write into
   its input, which is a copy. */
static void test_promise(void) {
    spipe_resources_t *res;
    spipe_report_t r;
    size_t i, wrong = 0;
    int k, in_place, zero_copy = 0;
    SPIPE_CHECK(spipe_resources_create(&res, NULL, NULL));
    for (k = 0; k < 4 * REPEATS; ++k) {
        spipe_desc_t d = spipe_desc_default();
        in_place = k / REPEATS % 2;
        d.count = N;
        d.resources = res;
        spipe_add_input(&d, x[1], sizeof(float));
        spipe_add_output(&d, y[1], sizeof(float));
        spipe_add_stage(&d, "double", double_stage, &in_place);
        if (!in_place) spipe_stage_elementwise(&d, 0);
        memset(y[1], 0, N * sizeof(float));
        SPIPE_CHECK_RUN(&d, &r);
        zero_copy |= r.schedule == SPIPE_SCHEDULE_ZERO_COPY;
        for (i = 0; i < N; ++i) wrong += y[1][i] != 2.0f * x[0][i] || x[1][i] != x[0][i];
        memcpy(x[1], x[0], N * sizeof(float));
    }
    if (zero_copy)
        tap_ok(wrong == 0,
               "a stage that does not promise to be elementwise has a copy to write to");
    else
        tap_skip("a stage that does not promise to be elementwise has a copy to write to",
                 "nothing is used in place here");
    SPIPE_CHECK(spipe_resources_destroy(res, NULL));
}

int main(void) {
    pipe_needs_lending();
    if (!pipe_can_pin(3 * N * sizeof(float))) tap_skip_all("no room to pin the test's own arrays");
    arrays_new();
    test_halos();
    test_promise();
    arrays_free();
    return tap_done();
}
