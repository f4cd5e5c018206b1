/*  30_source.cu -- solved: data that comes from a function

    Why      the run ends when the source gives 0 elements. The last chunk is as long as what was
             left, and nobody had to know the length before.
    Unsolved wrong: sum[0] is 75491328, wanted 50005000; 1 of 1 are wrong                         */
#include "exercise.h"

#include "streampipe.h"

typedef struct counter {
    int next, end;
} counter_t;

static cudaError_t count_on(spipe_part_t *part, void *user) {
    counter_t *c = (counter_t *)user;
    int *numbers = (int *)part->data;
    /* WRITE HERE: fill in the next numbers, say how many in part->count, and count on. */
    size_t left = (size_t)(c->end - c->next);
    if (part->count > left) part->count = left;
    for (size_t i = 0; i < part->count; ++i) numbers[i] = c->next++;
    /* END */
    return cudaSuccess;
}

static __global__ void add_up(const int *x, unsigned long long *sum, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(sum, (unsigned long long)x[i]);
}

static cudaError_t add_up_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(add_up, spipe_blocks(c->count, 256), 256, 0, c, SPIPE_BUF(c, 0, const int),
                        (unsigned long long *)c->data[1], c->count);
}

int main() {
    counter_t counter = {0, 10001};
    unsigned long long sum;
    spipe_report_t report;
    spipe_desc_t d = spipe_desc_default();
    d.chunk = 4096; /* and no count: until the source ends */
    spipe_add_source(&d, count_on, &counter, sizeof(int), SPIPE_IN_ORDER);
    spipe_add_resident(&d, &sum, sizeof sum, SPIPE_ZERO | SPIPE_DOWNLOAD);
    spipe_stage_ordered(&d, spipe_add_stage(&d, "add up", add_up_stage, NULL));
    cudaError_t e = spipe_run(&d, &report);
    judge_that(e == cudaSuccess, report.failure.message);
    judge("sum", &sum, 1, [](int) { return 10000 * 10001 / 2; });
    return judge_done();
}

/* Hint: the smaller of part->count and what is left; 0 is the end. */
