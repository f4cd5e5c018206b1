/*  test_verdict_clock.cu -- the figures of a recorded run against closed forms, on the modelled
    clock, and the cause that only another device can have. */
#include "hostcuda.h"
#include "../pipe_common.h"
#include "streampipe_timeline.h"

#include <math.h>

enum {
    CHUNK = 1 << 20,
    CHUNKS = 8,
    N = CHUNK * CHUNKS
};

static __global__ void touch(const unsigned char *x, unsigned char *y, size_t n) {
    if (blockIdx.x == 0 && threadIdx.x == 0) y[0] = (unsigned char)(x[0] + n);
}
SPIPE_MAP_STAGE(touch_stage, touch, unsigned char, unsigned char)

static void use_profile(const char *name, double kernel_us) {
    hostcuda_profile_t p = hostcuda_profile(name);
    p.sm_count = 1; /* a chunk's threads fill it */
    p.threads_per_sm = 256;
    p.call_query = 1.0; /* else a query that is not ready would wait */
    SPIPE_CHECK(hostcuda_set_profile(0, &p));
    hostcuda_kernel_time(touch, 0.0, kernel_us * 1e3 / (256.0 * spipe_blocks(CHUNK, 256)));
}

static spipe_report_t run(spipe_schedule_t schedule) {
    pipe_array_t x = pipe_array_new(N, PIPE_PINNED), y = pipe_array_new(N, PIPE_PINNED);
    spipe_timeline_t t = spipe_timeline_default();
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    memset(x.at, 0, x.bytes);
    d.count = N;
    d.chunk = CHUNK;
    d.depth = 4;
    d.schedule = schedule;
    d.timeline = &t;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "touch", touch_stage, NULL);
    spipe_stage_ordered(&d, 0); /* one kernel stream: the closed form's */
    SPIPE_CHECK_RUN(&d, &r);
    pipe_free(&x);
    pipe_free(&y);
    return r;
}

/* Event times come in half microseconds. */
static int is(double got, double want) {
    if (fabs(got - want) <= 8e-3 * want) return 1;
    printf("# %.9f, not %.9f\n", got, want);
    return 0;
}

static void test_closed_forms(void) {
    const double step = CHUNK * 0.1e-6; /* ms of a chunk's copy: 10 bytes a ns */
    const double all = CHUNKS * step;
    use_profile("ideal", step * 1e3);
    spipe_report_t r = run(SPIPE_SCHEDULE_ENGINES);
    tap_ok(is(r.timed_ms, all + 2.0 * step),
           "N equal chunks of three equal steps take N + 2 steps");
    tap_ok(is(r.busy_ms[SPIPE_SPAN_IN], all) && is(r.busy_ms[SPIPE_SPAN_STAGE], all) &&
               is(r.busy_ms[SPIPE_SPAN_OUT], all) && is(r.stage_ms[0], all),
           "each engine is busy for N of them");
    tap_ok(is(r.serial_ms, 3.0 * all) && is(r.bound_ms, all),
           "one after another they take 3 N, and N is the bound");
    tap_ok(is(r.overlap, (2.0 * all - 2.0 * step) / (2.0 * all)),
           "of 2 N steps that could be hidden 2 N - 2 are");
    tap_ok(r.sync_us < 1e-3, "where waiting costs nothing every step begins at its turn");
    r = run(SPIPE_SCHEDULE_SERIAL);
    tap_ok(is(r.timed_ms, 3.0 * all) && r.overlap < 1e-9, "a serial run hides nothing");
}

static void test_one_engine(void) {
    use_profile("ideal1", 1.0);
    spipe_report_t r = run(SPIPE_SCHEDULE_ENGINES);
    tap_ok((r.causes & SPIPE_CAUSE_ONE_COPY_ENGINE) && strstr(r.verdict, "1 copy engine"),
           "a device that copies one way at a time is named");
    use_profile("ideal", 1.0);
    r = run(SPIPE_SCHEDULE_ENGINES);
    tap_ok(!(r.causes & SPIPE_CAUSE_ONE_COPY_ENGINE), "one with two engines is not");
}

int main(void) {
    test_closed_forms();
    test_one_engine();
    return tap_done();
}
