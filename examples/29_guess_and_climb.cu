/*  29_guess_and_climb.cu -- which chunk is best on a machine that nobody has measured? A first
    guess, and what the runs of a kept pipeline find.

    nvcc -O3 -I.. -o 29_guess_and_climb 29_guess_and_climb.cu       (without a GPU: make examples)
    You learn   the library knows no machine. Before the first run it can only guess: small chunks
                lose time for each of them, large ones at both ends of a run. Runs of a kept
                pipeline then try chunks that are 1.5 times as small or large, and keep what is
                faster, until no neighbour is: they climb. plan.found and report.found say in how
                many runs, 0 that nothing was found yet.
    Mind        a single run has only the guess. A chunk, a depth or threads that you set stay. What
                is found holds for this machine and this count; hostcuda's machines are modelled.
    Expect      (hostcuda) on hostcuda k20c (modelled); times are modelled
                  plan      chunk 99872 (elements), depth 4 (slots): first guess
                  chunk     first guess: balances the time lost per chunk against the ends of the
                  runs 1 to 4:   chunks of   99872,  0.5782 ms
                  runs 5 to 8:   chunks of   72320,  0.5585 ms
                  runs 9 to 12:  chunks of   51168,  0.5549 ms
                found in 12 runs: chunks of 72320, engines; guessed were 99872
                on hostcuda h200 (modelled); times are modelled
                  plan      chunk 99872 (elements), depth 4 (slots): first guess
                  runs 1 to 4:   chunks of   99872,  0.0852 ms
                  runs 5 to 8:   chunks of   72320,  0.0886 ms
                  runs 9 to 12:  chunks of  161344,  0.0869 ms
                found in 12 runs: chunks of 99872, engines; guessed were 99872
                right: the CPU finds the same                                                     */
#include "ex_common.h"

enum {
    N = EX_HOSTCUDA ? 1 << 19 : 32 << 20,
    MOST_RUNS = 100
};

/* Runs of one setting in a row, and the shortest of their times. */
typedef struct row {
    int from, to;
    size_t chunk;
    double ms;
} row_t;

static void print_row(const row_t *row) {
    char runs[32];
    snprintf(runs, sizeof runs, "%d to %d:", row->from, row->to);
    printf("  runs %-9s chunks of %7zu, %7.4f ms\n", runs, row->chunk, row->ms);
}

/* Runs until nothing is tried any more, and then once more. */
static spipe_report_t climb(spipe_pipeline_t *p) {
    row_t row = {1, 0, 0, 1e30};
    spipe_report_t report;
    for (int k = 1; k <= MOST_RUNS; ++k) {
        SPIPE_CHECK(spipe_pipeline_run(p, &report));
        if (row.chunk != report.chunk) {
            if (row.chunk > 0) print_row(&row);
            row = {k, k, report.chunk, report.wall_ms};
        }
        row.to = k;
        row.ms = report.wall_ms < row.ms ? report.wall_ms : row.ms;
        if (!report.trying) break;
    }
    print_row(&row);
    return report;
}

static int on_this_machine(void) {
    const size_t bytes = N * sizeof(unsigned);
    unsigned *x, *y, *dev;
    spipe_pipeline_t *p;
    spipe_plan_t plan;
    ex_begin();
    SPIPE_CHECK(spipe_pinned_alloc((void **)&x, bytes));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&y, bytes));
    SPIPE_CHECK(cudaMalloc((void **)&dev, bytes));
    ex_fill(x, N);
    unsigned steps = ex_busy_steps(dev, N, ex_copy_ms(dev, x, bytes));
    SPIPE_CHECK(cudaFree(dev));

    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "busy", ex_busy_stage, &steps);
    SPIPE_CHECK(spipe_plan(&d, 1, &plan, NULL)); /* runs nothing */
    SPIPE_CHECK(spipe_plan_print(&plan, stdout));

    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    const spipe_report_t last = climb(p);
    printf("found in %d runs: chunks of %zu, %s; guessed were %zu\n", last.found, last.chunk,
           spipe_schedule_name(last.schedule), plan.chunk);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    const int right = ex_busy_right(y, steps, N) && last.found > 0 && plan.found == 0;
    SPIPE_CHECK(spipe_pinned_free(y));
    SPIPE_CHECK(spipe_pinned_free(x));
    return right;
}

int main(void) {
#if EX_HOSTCUDA
    int right = 1;
    for (const char *name : {"k20c", "h200"}) { /* as HOSTCUDA_PROFILE=k20c does for a program */
        const hostcuda_profile_t profile = hostcuda_profile(name);
        SPIPE_CHECK(hostcuda_set_profile(0, &profile));
        right &= on_this_machine();
    }
    return ex_verdict(right);
#else
    return ex_verdict(on_this_machine());
#endif
}
