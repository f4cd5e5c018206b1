/*  test_beside.cu -- runs that know of other runs: a kept pipeline that runs within the stages
    of another takes its share of the memory, and takes turns; its results are the same. */
#include "pipe_common.h"

#include <pthread.h>

/* ThreadSanitizer takes a minute for kernels of 16 MB, and 6 MB are planned and shared alike. */
#if defined(__SANITIZE_THREAD__)
enum {
    COUNT = 1500000,
    ALONE_AGAIN = 8 /* runs */
};
#else
enum {
    COUNT = 4000000,
    ALONE_AGAIN = 30
};
#endif
enum {
    OTHERS = 8,
    SLACK = 256 << 10 /* bytes of a pipeline's memory besides its slots */
};

static __global__ void add_kernel(const unsigned *x, unsigned *y, size_t n, size_t first) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = 3 * x[i] + (unsigned)(first + i);
}

static cudaError_t add(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(add_kernel, spipe_blocks(c->count, 128), 128, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned), SPIPE_BUF(c, 1, unsigned), c->count,
                        c->first);
}

/* ---- A kept pipeline, beside OTHERS runs, each in the stage of the one before ---------------- */
static struct {
    spipe_pipeline_t *p;
    const spipe_desc_t *call; /* a call that is planned instead */
    spipe_plan_t plan;
    spipe_report_t r;
    spipe_priority_t priority; /* of the others */
    spipe_desc_t others[OTHERS];
    unsigned few[2];
} beside;

static cudaError_t nest(const spipe_chunk_t *c, void *user) {
    const spipe_desc_t *me = (const spipe_desc_t *)user;
    if (me + 1 < beside.others + OTHERS) SPIPE_TRY(spipe_run(me + 1, NULL));
    if (me + 1 == beside.others + OTHERS && beside.call) {
        SPIPE_TRY(spipe_plan(beside.call, 0, &beside.plan, NULL));
    } else if (me + 1 == beside.others + OTHERS) {
        SPIPE_TRY(spipe_pipeline_run(beside.p, &beside.r));
        beside.plan = *spipe_pipeline_plan(beside.p);
    }
    return SPIPE_LAUNCH(add_kernel, 1, 1, 0, c->stream, SPIPE_BUF(c, 0, const unsigned),
                        SPIPE_BUF(c, 1, unsigned), 1, (size_t)0);
}

static void run_beside(spipe_resources_t *r) {
    int k;
    for (k = 0; k < OTHERS; ++k) {
        spipe_desc_t *d = &beside.others[k];
        *d = spipe_desc_default();
        d->resources = r;
        d->priority = beside.priority;
        d->count = 1;
        d->threads = 0;
        d->schedule = SPIPE_SCHEDULE_ENGINES;
        spipe_add_input(d, &beside.few[0], 4);
        spipe_add_output(d, &beside.few[1], 4);
        spipe_add_stage(d, "nest", nest, d);
    }
    SPIPE_CHECK(spipe_run(&beside.others[0], NULL));
}

PIPE_UNWATCHED static int are_right(const unsigned *x, const unsigned *y) {
    size_t i;
    int good = 1;
    for (i = 0; i < COUNT; ++i) good &= y[i] == 3 * x[i] + (unsigned)i;
    return good;
}

static int right(unsigned *x, unsigned *y) {
    int good;
    pipe_reads(y, COUNT * sizeof *y);
    good = are_right(x, y);
    memset(y, 0xA5, COUNT * sizeof *y);
    return good;
}

/* Several times the arrays. The default is 640 MiB, and to touch it takes half a second. */
static spipe_resources_t *new_resources(void) {
    spipe_resources_limits_t limits = spipe_resources_limits_default();
    spipe_resources_t *r;
    limits.device_bytes = (size_t)64 * COUNT;
    limits.pinned_bytes = (size_t)16 * COUNT;
    SPIPE_CHECK(spipe_resources_create(&r, &limits, NULL));
    return r;
}

static void test_plans(int pinned, const char *name) {
    spipe_resources_t *r;
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t last;
    unsigned *x, *y;
    size_t i, need, device_alone, pinned_alone;
    int k, good;
    if (pinned) {
        SPIPE_CHECK(spipe_pinned_alloc((void **)&x, COUNT * sizeof *x));
        SPIPE_CHECK(spipe_pinned_alloc((void **)&y, COUNT * sizeof *y));
    } else {
        x = (unsigned *)malloc(COUNT * sizeof *x);
        y = (unsigned *)malloc(COUNT * sizeof *y);
        if (!x || !y) exit(99);
    }
    for (i = 0; i < COUNT; ++i) x[i] = (unsigned)i * 2654435761u;
    r = new_resources();
    d.resources = r;
    d.count = COUNT;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "add", add, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&beside.p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_run(beside.p, &last));
    device_alone = last.device_bytes;
    pinned_alone = last.pinned_bytes;
    good = right(x, y) && last.runs_beside == 0;
    run_beside(r);
    good &= right(x, y) && beside.r.runs_beside == OTHERS;
    tap_ok(good, "%s: right alone, and beside %zu runs", name, beside.r.runs_beside);
    tap_ok(beside.r.fill_threads <= beside.plan.fill_threads &&
               beside.r.drain_threads <= beside.plan.drain_threads,
           "threads of the plan before do not work: %zu + %zu do, %zu + %zu are planned",
           beside.r.fill_threads, beside.r.drain_threads, beside.plan.fill_threads,
           beside.plan.drain_threads);
    need = beside.plan.depth * beside.plan.chunk * (sizeof *x + sizeof *y);
    tap_ok(beside.r.device_bytes <= need + SLACK && beside.r.pinned_bytes <= need + SLACK,
           "it has given back what this plan does not need: %zu + %zu KiB, alone %zu + %zu",
           beside.r.device_bytes >> 10, beside.r.pinned_bytes >> 10, device_alone >> 10,
           pinned_alone >> 10);
    for (k = 0; k < 3; ++k) SPIPE_CHECK(spipe_pipeline_run(beside.p, &last));
    good = right(x, y) && last.runs_beside == 0 && last.device_bytes >= beside.r.device_bytes;
    tap_ok(good && !last.trying, "alone again it takes no less: %zu KiB", last.device_bytes >> 10);
    SPIPE_CHECK(spipe_pipeline_destroy(beside.p));
    SPIPE_CHECK(spipe_resources_destroy(r, NULL));
    if (pinned) {
        SPIPE_CHECK(spipe_pinned_free(x));
        SPIPE_CHECK(spipe_pinned_free(y));
    } else {
        free(x);
        free(y);
    }
}

/* ---- Turns ---------------------------------------------------------------------------------- */

/* Is a chunk issued before the copy in of the one before has ended? */
static struct {
    const spipe_priv_pipeline_t *p;
    size_t early, issued;
} turns;

static cudaError_t watch(const spipe_chunk_t *c, void *user) {
    const size_t depth = turns.p->plan.depth;
    if (c->index > 0) {
        const cudaEvent_t before = turns.p->memory.slots[(c->index - 1) % depth].in_done;
        turns.early += cudaEventQuery(before) != cudaSuccess;
        (void)cudaGetLastError(); /* not ready */
        ++turns.issued;
    }
    return add(c, user);
}

/* own, others: priorities. A run waits for those of its own or a higher one. */
static void test_turns(spipe_priority_t own, spipe_priority_t others, int waits, const char *name) {
    spipe_resources_t *r;
    spipe_desc_t d = spipe_desc_default();
    unsigned *x, *y;
    size_t i, early;
    int good;
    SPIPE_CHECK(spipe_pinned_alloc((void **)&x, COUNT * sizeof *x));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&y, COUNT * sizeof *y));
    for (i = 0; i < COUNT; ++i) x[i] = (unsigned)i * 2654435761u;
    r = new_resources();
    d.resources = r;
    d.priority = own;
    d.count = COUNT;
    d.chunk = COUNT / 16;
    d.depth = 8;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "watch", watch, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&beside.p, &d, NULL));
    turns.p = (const spipe_priv_pipeline_t *)(const void *)beside.p;
    turns.early = turns.issued = 0;
    SPIPE_CHECK(spipe_pipeline_run(beside.p, NULL));
    good = right(x, y);
    early = turns.early;
    turns.early = turns.issued = 0;
    beside.priority = others;
    run_beside(r);
    beside.priority = SPIPE_PRIORITY_DEFAULT;
    good &= right(x, y);
    tap_ok(good && early > 0 && turns.issued == 15 && waits == (turns.early == 0),
           "%s: a chunk is issued %s: %zu of %zu were early, alone %zu", name,
           waits ? "when the copy before it has ended" : "without waiting", turns.early,
           turns.issued, early);
    SPIPE_CHECK(spipe_pipeline_destroy(beside.p));
    SPIPE_CHECK(spipe_resources_destroy(r, NULL));
    SPIPE_CHECK(spipe_pinned_free(x));
    SPIPE_CHECK(spipe_pinned_free(y));
}

/* The highest priority is for the run's own time. */
static void test_priority(void) {
    spipe_resources_limits_t limits = spipe_resources_limits_default();
    spipe_resources_t *r;
    spipe_desc_t d = spipe_desc_default();
    static unsigned x[COUNT], y[COUNT];
    spipe_plan_t alone;
    limits.device_bytes = (size_t)64 * COUNT;
    limits.pinned_bytes = (size_t)4 << 20;
    SPIPE_CHECK(spipe_resources_create(&r, &limits, NULL));
    d.resources = r;
    d.count = COUNT;
    d.priority = SPIPE_PRIORITY_HIGH;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "add", add, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&beside.p, &d, NULL));
    alone = *spipe_pipeline_plan(beside.p);
    run_beside(r);
    tap_ok(right(x, y) && beside.plan.chunk == alone.chunk && beside.r.runs_beside == OTHERS,
           "a run of the highest priority is planned as if it were alone: chunks of %zu",
           beside.plan.chunk);
    SPIPE_CHECK(spipe_pipeline_destroy(beside.p));
    SPIPE_CHECK(spipe_resources_destroy(r, NULL));
}

/* ---- Parts of the memory --------------------------------------------------------------------- */
static size_t ring_bytes(const spipe_plan_t *p) {
    return p->depth * p->chunk * (size_t)4; /* in, and then out */
}

static void test_parts(void) {
    spipe_resources_limits_t limits = spipe_resources_limits_default();
    const size_t slack = (size_t)1 << 16; /* for alignment */
    unsigned *x = (unsigned *)malloc(COUNT * sizeof *x), *y = (unsigned *)malloc(COUNT * sizeof *y);
    spipe_desc_t d = spipe_desc_default();
    spipe_resources_t *r;
    size_t alone, i;
    int k, good;
    if (!x || !y) exit(99);
    for (i = 0; i < COUNT; ++i) x[i] = (unsigned)i * 2654435761u;
    limits.device_bytes = (size_t)64 * COUNT;
    limits.pinned_bytes = (size_t)4 << 20;
    SPIPE_CHECK(spipe_resources_create(&r, &limits, NULL));
    d.resources = r;
    d.count = COUNT;
    spipe_add_input(&d, x);
    spipe_add_output(&d, y);
    spipe_add_stage(&d, "add", add, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&beside.p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_run(beside.p, NULL));
    alone = ring_bytes(spipe_pipeline_plan(beside.p));
    good = right(x, y);
    run_beside(r);
    good &= right(x, y);
    tap_ok(good && ring_bytes(&beside.plan) <= limits.pinned_bytes / (OTHERS + 1) + slack &&
               alone > limits.pinned_bytes / (OTHERS + 1) + slack,
           "beside %d runs a ring takes its part of the pinned memory: %zu KiB, alone %zu", OTHERS,
           ring_bytes(&beside.plan) >> 10, alone >> 10);
    for (k = 0; k < ALONE_AGAIN; ++k) SPIPE_CHECK(spipe_pipeline_run(beside.p, NULL));
    tap_ok(right(x, y) && ring_bytes(spipe_pipeline_plan(beside.p)) >
                              limits.pinned_bytes / (OTHERS + 1) + slack,
           "alone again it takes more: %zu KiB", ring_bytes(spipe_pipeline_plan(beside.p)) >> 10);
    SPIPE_CHECK(spipe_pipeline_destroy(beside.p));
    SPIPE_CHECK(spipe_resources_destroy(r, NULL));
    free(x);
    free(y);
}

/* Arrays, resources for which they are large, and a run over them without a stage. */
typedef struct part {
    unsigned *x, *y;
    spipe_resources_t *r;
    size_t device_bytes;
    spipe_desc_t d;
} part_t;

static part_t begin_part(void) {
    spipe_resources_limits_t limits = spipe_resources_limits_default();
    part_t p;
    size_t i;
    SPIPE_CHECK(spipe_pinned_alloc((void **)&p.x, COUNT * sizeof *p.x));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&p.y, COUNT * sizeof *p.y));
    for (i = 0; i < COUNT; ++i) p.x[i] = (unsigned)i * 2654435761u;
    p.device_bytes = (size_t)24 << 20;
    limits.device_bytes = limits.pinned_bytes = p.device_bytes;
    SPIPE_CHECK(spipe_resources_create(&p.r, &limits, NULL));
    p.d = spipe_desc_default();
    p.d.resources = p.r;
    p.d.count = COUNT;
    p.d.schedule = SPIPE_SCHEDULE_ENGINES;
    spipe_add_input(&p.d, p.x, sizeof *p.x);
    spipe_add_output(&p.d, p.y, sizeof *p.y);
    return p;
}

static void end_part(const part_t *p) {
    SPIPE_CHECK(spipe_resources_destroy(p->r, NULL));
    SPIPE_CHECK(spipe_pinned_free(p->x));
    SPIPE_CHECK(spipe_pinned_free(p->y));
}

static size_t device_ring(void) { return 2 * ring_bytes(&beside.plan); } /* in and out */

/* Whether the ring that was planned takes more than one part of the device memory, and at most
   another; 0 parts: no limit. */
static int takes(const part_t *p, size_t more_than, size_t at_most) {
    const size_t bytes = device_ring(), slack = (size_t)1 << 16;
    return bytes <= p->device_bytes / at_most + slack &&
           (more_than == 0 || bytes > p->device_bytes / more_than + slack);
}

/* Seven runs keep the link busy, so beside eight others a run plans for a seventh of the device
   memory, not a ninth, unless it may not wait for it. */
static void test_device_part(int no_wait) {
    part_t p = begin_part();
    p.d.no_wait = no_wait;
    spipe_add_stage(&p.d, "add", add, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&beside.p, &p.d, NULL));
    run_beside(p.r);
    tap_ok(right(p.x, p.y) && (no_wait ? takes(&p, 0, OTHERS + 1) : takes(&p, OTHERS + 1, 7)),
           "beside %d runs a ring takes %s of the device memory: %zu of %zu KiB", OTHERS,
           no_wait ? "at most a ninth, if it may not wait,"
                   : "more than a ninth, at most a seventh",
           device_ring() >> 10, p.device_bytes >> 10);
    SPIPE_CHECK(spipe_pipeline_destroy(beside.p));
    end_part(&p);
}

static cudaError_t hold(const spipe_chunk_t *c, void *user) {
    if (c->index == 0) run_beside((spipe_resources_t *)user);
    return add(c, NULL);
}

/* A call of spipe_run plans for a seventh as well, even where another run holds 20 of 24 MiB: it
   waits for them, because few large chunks are faster for all runs together. */
static void test_call_part(int no_wait) {
    const size_t halves = sizeof(size_t) < 8 ? 2 : 1; /* a buffer has less than 4 MiB there */
    part_t p = begin_part();
    spipe_desc_t call = p.d;
    call.no_wait = no_wait;
    spipe_add_stage(&call, "add", add, NULL);
    p.d.chunk = ((size_t)5 << 20) / 4 / halves; /* all slots, with their outputs: 20 MiB */
    p.d.depth = 2 * halves;
    spipe_add_stage(&p.d, "hold", hold, p.r);
    beside.call = &call;
    SPIPE_CHECK(spipe_run(&p.d, NULL));
    beside.call = NULL;
    tap_ok(right(p.x, p.y) && (no_wait ? takes(&p, 0, 12) : takes(&p, OTHERS + 1, 7)),
           "where most is taken, a call plans for %s: %zu of %zu KiB",
           no_wait ? "what is free, if it may not wait" : "a seventh as well", device_ring() >> 10,
           p.device_bytes >> 10);
    end_part(&p);
}

/* Each of as many runs as there were at once will need a thread that fills and one that drains. So
   the first run that needs a thread, alone or not, has twice as many made, or twice as many as two
   for each CPU, and later runs make none. */
static void test_threads_made(void) {
    unsigned *x = (unsigned *)malloc(COUNT * sizeof *x), *y = (unsigned *)malloc(COUNT * sizeof *y);
    spipe_desc_t d = spipe_desc_default();
    spipe_resources_usage_t none, first, last;
    spipe_resources_t *r;
    size_t i, more;
    if (!x || !y) exit(99);
    for (i = 0; i < COUNT; ++i) x[i] = (unsigned)i * 2654435761u;
    r = new_resources();
    d.resources = r;
    d.count = 1;
    d.threads = 0;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "add", add, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&beside.p, &d, NULL));
    run_beside(r);
    SPIPE_CHECK(spipe_pipeline_destroy(beside.p));
    SPIPE_CHECK(spipe_resources_usage(r, &none));
    d.count = COUNT;
    d.threads = 1;
    d.staging = SPIPE_STAGING_COPY;
    SPIPE_CHECK(spipe_run(&d, NULL));
    SPIPE_CHECK(spipe_resources_usage(r, &first));
    SPIPE_CHECK(spipe_pipeline_create(&beside.p, &d, NULL));
    run_beside(r);
    SPIPE_CHECK(spipe_pipeline_destroy(beside.p));
    SPIPE_CHECK(spipe_resources_usage(r, &last));
    more = none.most_runs > spipe_priv_num_cpus() ? none.most_runs : spipe_priv_num_cpus();
    tap_ok(
        right(x, y) && none.threads == 0 && none.most_runs == OTHERS + 1 &&
            first.threads >= 2 * none.most_runs && first.threads <= 4 * more &&
            last.threads == first.threads,
        "after %zu runs at once without a thread, the first run that needs one has %zu made, and "
        "later runs none: %zu",
        none.most_runs, first.threads, last.threads);
    SPIPE_CHECK(spipe_resources_destroy(r, NULL));
    free(x);
    free(y);
}

int main(void) {
    pipe_needs_lending();
    test_plans(0, "pageable");
    test_plans(1, "pinned");
    test_turns(SPIPE_PRIORITY_DEFAULT, SPIPE_PRIORITY_DEFAULT, 1, "beside others");
    test_turns(SPIPE_PRIORITY_HIGH, SPIPE_PRIORITY_HIGH, 1, "urgent, beside others as urgent");
    test_turns(SPIPE_PRIORITY_HIGH, SPIPE_PRIORITY_MEDIUM, 0, "urgent, beside others");
    test_turns(SPIPE_PRIORITY_MEDIUM, SPIPE_PRIORITY_LOW, 0, "medium, beside low");
    test_turns(SPIPE_PRIORITY_LOW, SPIPE_PRIORITY_MEDIUM, 1, "low, beside medium");
    test_priority();
    test_parts();
    test_device_part(0);
    test_device_part(1);
    test_call_part(0);
    test_call_part(1);
    test_threads_made();
    return tap_done();
}
