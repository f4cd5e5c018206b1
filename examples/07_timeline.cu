/*  07_timeline.cu -- what a run did and when, and why it was not faster, in words and pictures.

    nvcc -O3 -I.. -I../extras -o 07_timeline 07_timeline.cu && ./07_timeline [folder]

    You learn   a run with a timeline is recorded: its report has the time of each engine, how much
                of what can overlap did overlap, and a verdict with causes and cures. The timeline
                can be drawn as a chart, an SVG, a page that zooms, a trace for ui.perfetto.dev.
    Mind        recording costs two events per operation: 1 to 3 % of a run of 512 MiB, 14 % of one
                of 16 MiB (H200). The GPU's clock times its work, the host's clock host threads.
                Three runs of the same work follow, each with its verdict and a chart.
    Expect      (hostcuda)
                a stage that synchronises: 0.286 ms, 35 % of what can overlap does
                two chunks in one slot: 0.255 ms, 0 % of what can overlap does
                copies in waited 1 time for a free slot, 33 % of the time in all: use a depth of
                more than 1
                all left to the library: 0.140 ms, 85 % of what can overlap does
                right: the CPU finds the same                                                     */
#include "07_pictures.h" /* writes a timeline as files; prints text in lines */

enum {
    N_ELEMENTS = EX_HOSTCUDA ? 1 << 20 : 4 << 20,
    ROOM = 1000
};

typedef struct busy {
    unsigned steps;
    int waits; /* 1 = synchronise in the stage, as many first programs do */
} busy_t;

static cudaError_t busy_stage(const spipe_chunk_t *c, void *user) {
    busy_t *b = (busy_t *)user;
    SPIPE_TRY(ex_busy_stage(c, &b->steps));
    return b->waits ? cudaStreamSynchronize(c->stream) : cudaSuccess;
}

static spipe_span_t spans[ROOM];

/* Runs the description with recording, prints the verdict, and draws the timeline. */
static spipe_report_t look(const char *name, spipe_desc_t *d, spipe_timeline_t *t) {
    spipe_report_t r;
    SPIPE_CHECK_RUN(d, &r); /* warms up */
    *t = spipe_timeline_default();
    t->spans = spans;
    t->capacity = ROOM;
    t->title = name;
    d->timeline = t;
    SPIPE_CHECK_RUN(d, &r);
    d->timeline = NULL;
    printf("\n%s: %.3f ms, %.0f %% of what can overlap does\n", name, r.timed_ms,
           100.0 * r.overlap);
    print_wrapped(r.verdict);
    SPIPE_CHECK(spipe_timeline_print(t, stdout, 100));
    return r;
}

int main(int argc, char **argv) {
    const size_t bytes = N_ELEMENTS * sizeof(unsigned);
    unsigned *x, *y, *dev;
    busy_t busy = {0, 0};
    spipe_timeline_t t;
    spipe_report_t waiting, one_slot, plain;
    int right = 1;
    ex_begin();
    SPIPE_CHECK(spipe_pinned_alloc((void **)&x, bytes));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&y, bytes));
    SPIPE_CHECK(cudaMalloc((void **)&dev, bytes));
    ex_fill(x, N_ELEMENTS);
    busy.steps = ex_busy_steps(dev, N_ELEMENTS, ex_copy_ms(dev, x, bytes));
    SPIPE_CHECK(cudaFree(dev));

    spipe_desc_t d = spipe_desc_default();
    d.count = N_ELEMENTS;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "busy", busy_stage, &busy);

    busy.waits = 1;
    waiting = look("a stage that synchronises", &d, &t);
    right &= ex_busy_right(y, busy.steps, N_ELEMENTS);
    if (argc > 1) write_page(&t, argv[1], "slow.html");
    busy.waits = 0;

    d.chunk = N_ELEMENTS / 2;
    d.depth = 1;
    one_slot = look("two chunks in one slot", &d, &t);
    right &= ex_busy_right(y, busy.steps, N_ELEMENTS);
    d.chunk = d.depth = SPIPE_AUTO;

    plain = look("all left to the library", &d, &t);
    right &= ex_busy_right(y, busy.steps, N_ELEMENTS);
    if (argc > 1)
        write_pictures(&t, &plain, argv[1]);
    else
        printf("\nname a folder, and the pictures will be there\n");

    right &= (waiting.causes & SPIPE_CAUSE_STAGE_WAITS) != 0;
    right &= (one_slot.causes & SPIPE_CAUSE_DEPTH) != 0;
    right &= plain.overlap > one_slot.overlap;
    SPIPE_CHECK(spipe_pinned_free(y));
    SPIPE_CHECK(spipe_pinned_free(x));
    return ex_verdict(right);
}
