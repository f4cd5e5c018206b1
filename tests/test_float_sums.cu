/*  test_float_sums.cu -- a stage that sums floats by chunk: another chunk gives other last digits,
    which no library can help. With a chunk that is given, and the stage ordered, every run gives
    the same bits: those of a serial loop that cuts at the same places. */
#include "pipe_common.h"

enum {
    N = 30011,
    CHUNK = 1000
};

static float x[N], total;

/* One thread: the order of its additions is that of the serial loop. */
static __global__ void sum_kernel(const float *in, float *sum, size_t n) {
    float part = 0.0f;
    for (size_t i = 0; i < n; ++i) part += in[i];
    *sum += part;
}

static cudaError_t sum_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(sum_kernel, 1, 1, 0, c, SPIPE_BUF(c, 0, const float),
                        SPIPE_BUF(c, 1, float), c->count);
}

static float serial(size_t chunk) {
    float sum = 0.0f;
    for (size_t first = 0; first < N; first += chunk) {
        float part = 0.0f;
        for (size_t i = first; i < N && i < first + chunk; ++i) part += x[i];
        sum += part;
    }
    return sum;
}

static void test_schedule(spipe_schedule_t schedule, const pipe_array_t *in) {
    const float wanted = serial(CHUNK);
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    int k, same = 1;
    d.count = N;
    d.chunk = CHUNK;
    d.schedule = schedule;
    memcpy(in->at, x, sizeof x);
    spipe_add_input(&d, in->at, sizeof *x);
    spipe_add_resident(&d, &total, sizeof total, SPIPE_ZERO | SPIPE_DOWNLOAD);
    spipe_stage_ordered(&d, spipe_add_stage(&d, "sum", sum_stage, NULL));
    SPIPE_CHECK_RUN(&d, NULL);
    same &= memcmp(&total, &wanted, sizeof total) == 0;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (k = 0; k < 12; ++k) { /* it climbs meanwhile */
        total = -1.0f;
        SPIPE_CHECK(spipe_pipeline_run(p, NULL));
        same &= memcmp(&total, &wanted, sizeof total) == 0;
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    tap_ok(same, "with a given chunk and an ordered stage every run sums to the same bits: %s, %s",
           spipe_schedule_name(schedule), pipe_memory_names[in->memory]);
}

int main(void) {
    static const spipe_schedule_t schedules[] = {SPIPE_SCHEDULE_AUTO, SPIPE_SCHEDULE_ENGINES,
                                                 SPIPE_SCHEDULE_SERIAL};
    for (size_t i = 0; i < N; ++i) x[i] = (float)(pipe_random() % 10000) * 1e-3f;
    tap_ok(serial(CHUNK) - serial(CHUNK / 10) != 0.0f, "another chunk gives other last digits");
    for (int memory = 0; memory <= PIPE_PINNED; ++memory) {
        pipe_array_t in = pipe_array_new(sizeof x, memory);
        for (spipe_schedule_t s : schedules) test_schedule(s, &in);
        pipe_free(&in);
    }
    return tap_done();
}
