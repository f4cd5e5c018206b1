/*  30_source.cu -- data that comes from a function

    Task     The numbers come from a counter, not from an array, and only the counter knows when
             they end. Write the function that fills a part of a chunk: up to part->count numbers,
             fewer at the end, and none when there are no more.
    Try it   make exercise N=30                                                                   */
#include "exercise.h"

#include "streampipe.h"

typedef struct counter {
    int next, end;
} counter_t;

static cudaError_t count_on(spipe_part_t *part, void *user) {
    counter_t *c = (counter_t *)user;
    int *numbers = (int *)part->data;
    /* WRITE HERE: fill in the next numbers, say how many in part->count, and count on. */
    if (c->next >= c->end) part->count = 0;
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
