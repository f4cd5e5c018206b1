/*  06_first_pipeline.cu -- you say what goes in, what comes out and what to do; no more is needed.

    nvcc -O3 -I.. -o first_pipeline 06_first_pipeline.cu && ./first_pipeline
                                                                     (without a GPU: make examples)
    You learn   a description names buffers and stages. spipe_plan says what a run would do and why;
                spipe_run does it. A kept pipeline sets up only once, before its first run, and
                arrays and lengths may change between runs.
    Mind        for a mistake in the description you get a sentence with the cure, before anything
                runs. Buffers are numbered in the order of adding; a stage asks for them by number
                and type, and a wrong type ends the run with a sentence that says so.
    Expect      (hostcuda) a mistake: stage 'root': its function is NULL
                1 run of 1000000 numbers in 16 chunks, 0 wrong
                kept: other arrays, 0 wrong; 250000 of them, 0 wrong
                right: the CPU finds the same                                                     */
#include "ex_common.h"

#include <math.h>

enum {
    N = 1000000
};

static __global__ void root(const float *x, float *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = sqrtf(x[i]);
}

/* Defines root_stage: the kernel from buffer 0 to buffer 1 on the chunk's stream. By hand it is
       static cudaError_t root_stage(const spipe_chunk_t *c, void *user) {
           return SPIPE_LAUNCH(root, spipe_blocks(c->count, 256), 256, 0, c,
                               SPIPE_BUF(c, 0, const float), SPIPE_BUF(c, 1, float), c->count);
       }                                                                                          */
SPIPE_MAP_STAGE(root_stage, root, float, float)

static void fill(float *x, int from) {
    for (int i = 0; i < N; ++i) x[i] = (float)(from + i);
}

/* Returns how many of the first n results are wrong, and wipes all. */
static int count_wrong(float *y, int from, size_t n) {
    int wrong = 0;
    for (size_t i = 0; i < N; ++i) {
        const float want = i < n ? sqrtf((float)(from + (int)i)) : -1.0f;
        wrong += !(fabsf(y[i] - want) <= 1e-3f);
        y[i] = -1.0f;
    }
    return wrong;
}

int main(void) {
    static float x[N], y[N], other_x[N], other_y[N]; /* any host memory: pageable here */
    spipe_desc_t d = spipe_desc_default();
    spipe_failure_t failure;
    spipe_report_t report;
    spipe_plan_t plan;
    spipe_pipeline_t *p;
    ex_begin();
    fill(x, 0);
    fill(other_x, 5000);
    (void)count_wrong(y, 0, 0);
    (void)count_wrong(other_y, 0, 0);

    d.count = N;
    d.chunk = 1 << 16;                  /* without this line the library chooses */
    spipe_add_input(&d, x, sizeof *x);  /* buffer 0 */
    spipe_add_output(&d, y, sizeof *y); /* buffer 1 */
    spipe_desc_t mistaken = d;
    spipe_add_stage(&mistaken, "root", NULL, NULL);
    int right = spipe_desc_check(&mistaken, &failure) == cudaErrorInvalidValue;
    printf("a mistake: %s\n", failure.message);

    const int stage = spipe_add_stage(&d, "root", root_stage, NULL);
    spipe_stage_elementwise(&d, stage); /* each thread has its own element, ... */
    spipe_stage_replayable(&d, stage);  /* ... and every run launches the same */
    SPIPE_CHECK(spipe_plan(&d, 0, &plan, &failure));
    SPIPE_CHECK(spipe_plan_print(&plan, stdout)); /* what a run will do, and why */
    SPIPE_CHECK_RUN(&d, &report);
    int wrong = count_wrong(y, 0, N);
    printf("1 run of %d numbers in %zu chunks, %d wrong\n", N, report.num_chunks, wrong);

    SPIPE_CHECK(spipe_pipeline_create(&p, &d, &failure));
    SPIPE_CHECK(spipe_pipeline_set_host(p, 0, other_x));
    SPIPE_CHECK(spipe_pipeline_set_host(p, 1, other_y));
    SPIPE_CHECK(spipe_pipeline_run(p, &report));
    const int wrong_all = count_wrong(other_y, 5000, N);
    SPIPE_CHECK(spipe_pipeline_set_count(p, N / 4));
    SPIPE_CHECK(spipe_pipeline_run(p, &report));
    const int wrong_part = count_wrong(other_y, 5000, N / 4);
    right &= spipe_pipeline_plan(p)->count == N / 4; /* planned anew */
    printf("kept: other arrays, %d wrong; %d of them, %d wrong\n", wrong_all, N / 4, wrong_part);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    return ex_verdict(right && wrong + wrong_all + wrong_part == 0);
}
