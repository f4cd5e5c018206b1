/*  29_side_by_side.cu -- solved: stages that do not wait for each other

    Why      stages that do not wait for each other run at the same time, on streams of their own.
             NULL as a name means: after the copies in, and no stage.
    Unsolved slow: two stages of 1 ms took 2.025 ms, wanted at most 1.500 ms                      */
#include "exercise.h"

#include "streampipe.h"

enum {
    N = 1024
};

static __global__ void add(const int *x, int *y, int what, size_t n) {
    size_t i = threadIdx.x;
    if (i < n) y[i] = x[i] + what;
}

/* Buffer *user is written; 1 ms. */
static cudaError_t slow_stage(const spipe_chunk_t *c, void *user) {
    int out = *(int *)user;
    busy<<<1, 32, 0, c->stream>>>();
    return SPIPE_LAUNCH(add, 1, 1024, 0, c, SPIPE_BUF(c, 0, const int), SPIPE_BUF(c, out, int), out,
                        c->count);
}

int main() {
    int *x, *y, outputs[2] = {1, 2};
    spipe_pipeline_t *p;
    prepare_busy();
    CHECK(cudaMallocHost(&x, N * sizeof(int)));
    CHECK(cudaMallocHost(&y, 2 * N * sizeof(int)));
    for (int i = 0; i < N; ++i) x[i] = i;
    spipe_desc_t d = spipe_desc_default();
    d.count = d.chunk = N;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_output(&d, y + N, sizeof *y);
    spipe_add_stage(&d, "left", slow_stage, &outputs[0]);
    int right = spipe_add_stage(&d, "right", slow_stage, &outputs[1]);
    /* WRITE HERE: let stage "right" begin as soon as the copies in have ended. */
    spipe_stage_after(&d, right, NULL);
    /* END */
    CHECK(spipe_pipeline_create(&p, &d, NULL));
    CHECK(spipe_pipeline_run(p, NULL)); /* the first run loads the kernels */
    double start = now_ms();
    CHECK(spipe_pipeline_run(p, NULL));
    double ms = now_ms() - start;
    CHECK(spipe_pipeline_destroy(p));
    judge("y", y, 2 * N, [](int i) { return i % N + 1 + i / N; });
    judge_ms("two stages of 1 ms", ms, 1.5);
    CHECK(cudaFreeHost(y));
    CHECK(cudaFreeHost(x));
    return judge_done();
}

/* Hint: spipe_stage_after; the name may be NULL. */
