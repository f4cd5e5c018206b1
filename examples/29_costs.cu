/*  29_costs.cu -- how long will a run take? A machine's costs, a plan, and runs.

    nvcc -O3 -I.. -I../extras -o costs 29_costs.cu && ./costs [costs.txt]
                                                                     (without a GPU: make examples)
    You learn   spipe_costs_t says what copies, launches and threads take on a machine: the library
                has a row for some; others are measured in under a second and kept as a line of
                text. spipe_plan chooses by these costs, without running anything. A kept
                pipeline tries other plans in its first runs. hostcuda runs it without a GPU, on a
                modelled clock, also that of a GPU that you do not have.
    Mind        a plan is only as good as its costs, so compare with a run. What a kept pipeline
                finds on a modelled clock holds for that model only.
    Expect      (hostcuda) costs of H200, read back from a line: the same
                planned: chunks of 131072, 4 slots, engines
                a run of it: 0.088 ms
                kept, after its trials: chunks of 104864, engines, ~0.082 ms
                right: the CPU finds the same                                                     */
#include "ex_common.h"
#include "streampipe_measure.h"

enum {
    N = EX_HOSTCUDA ? 1 << 19 : 32 << 20,
    LINE = 1024
};

/* The costs, from the file that is named or of this kind of GPU; written to a line and read. */
static spipe_costs_t find_costs(const char *path, int *right) {
    spipe_costs_t costs, again;
    char line[LINE] = "";
    SPIPE_CHECK(spipe_costs_get(&costs, -1));
    FILE *f = path ? fopen(path, "r") : NULL;
    if (f) {
        if (!fgets(line, sizeof line, f)) line[0] = 0;
        fclose(f);
        SPIPE_CHECK(spipe_costs_read(&costs, -1, line)); /* refused: it is another machine's */
    } else if (path) {
        SPIPE_CHECK(spipe_costs_measure(&costs));
        SPIPE_CHECK(spipe_costs_write(&costs, -1, line, sizeof line));
        f = fopen(path, "w");
        if (!f || fprintf(f, "%s\n", line) < 0 || fclose(f) != 0) perror(path);
    }
    SPIPE_CHECK(spipe_costs_write(&costs, -1, line, sizeof line));
    SPIPE_CHECK(spipe_costs_read(&again, -1, line));
    const int same = strcmp(costs.name, again.name) == 0;
    printf("costs of %s, read back from a line: %s\n", costs.name, same ? "the same" : "others");
    if (path) SPIPE_CHECK(spipe_costs_print(&costs, stdout));
    *right &= same;
    return costs;
}

int main(int argc, char **argv) {
    const size_t bytes = N * sizeof(unsigned);
    unsigned *x, *y, *dev;
    spipe_plan_t plan;
    spipe_report_t report;
    spipe_pipeline_t *p;
    int right = 1;
    ex_begin();
    const spipe_costs_t costs = find_costs(argc > 1 ? argv[1] : NULL, &right);
    SPIPE_CHECK(spipe_pinned_alloc((void **)&x, bytes));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&y, bytes));
    SPIPE_CHECK(cudaMalloc((void **)&dev, bytes));
    ex_fill(x, N);
    unsigned steps = ex_busy_steps(dev, N, ex_copy_ms(dev, x, bytes));
    SPIPE_CHECK(cudaFree(dev));

    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.costs = &costs;
    d.schedule = SPIPE_ENGINES;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "busy", ex_busy_stage, &steps);
    SPIPE_CHECK(spipe_plan(&d, 1, &plan, NULL));
    printf("planned: chunks of %zu, %zu slots, %s\n", plan.chunk, plan.depth,
           spipe_schedule_name(plan.schedule));

    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_run(p, NULL)); /* the first run loads the kernels */
    double start = ex_now_ms();
    SPIPE_CHECK(spipe_pipeline_run(p, &report));
    printf("a run of it: %.3f ms\n", ex_now_ms() - start);
    for (int k = 0; report.trying && k < 100; ++k) SPIPE_CHECK(spipe_pipeline_run(p, &report));
    start = ex_now_ms();
    SPIPE_CHECK(spipe_pipeline_run(p, &report));
    printf("kept, after its trials: chunks of %zu, %s, %.3f ms\n", report.chunk,
           spipe_schedule_name(report.schedule), ex_now_ms() - start);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    right &= ex_busy_right(y, steps, N);
    SPIPE_CHECK(spipe_pinned_free(y));
    SPIPE_CHECK(spipe_pinned_free(x));
    return ex_verdict(right);
}
