/*  stage_table.cu -- a table of ready-made stages; each is run and compared with the CPU.

    nvcc -O3 -I.. -I../extras -o stage_table stage_table.cu && ./stage_table
                                                                     (without a GPU: make examples)
    What it is  a stage is a function and its parameters, so stages can stand in a table. Each line
                becomes a pipeline over the same arrays, is run twice, and compared with the stage's
                twin, a function for the CPU. The last columns say how long a run took, and which
                engine was the limit: the second run is recorded (spipe_pipeline_set_timeline).
    Mind        an element may be a row: thresholds of 32 scores, the entropy of 64 bytes. Sums that
                go on from chunk to chunk are ordered, and keep the carry in a resident buffer.
    Expect      (hostcuda)
                fill            right   0.028 ms   the limit is copies in
                saxpy           right   0.044 ms   the limit is copies in
                vector add      right   0.044 ms   the limit is copies in
                busy            right   0.028 ms   the limit is copies in
                Black-Scholes   right   0.070 ms   the limit is copies in
                sums of float   right   0.029 ms   the limit is copies in
                sums of uint32  right   0.029 ms   the limit is copies in
                sums of uint64  right   0.029 ms   the limit is copies in
                threshold       right   0.030 ms   the limit is copies in
                byte entropy    right   0.026 ms   the limit is copies in
                right: the CPU finds the same                                                     */
#include "ex_common.h"
#include "streampipe_kernels.cuh"
#include "streampipe_timeline.h"

#include <math.h>

enum {
    N = 1 << 16, /* elements, of 4 or 8 bytes */
    ROW = 32,    /* scores in a row */
    KEEP = 4,
    BLOCK = 64 /* bytes whose entropy is one number */
};

/* Three arrays to read, two to write, one to read and write; and the CPU's results. */
typedef struct arrays {
    float *a, *b, *c, *both, *out, *out2;
    float want[2 * N], want2[N];
} arrays_t;

typedef struct line {
    const char *name;
    spipe_stage_fn stage;
    const void *parameters;
    void (*add)(spipe_desc_t *d, const arrays_t *x); /* its buffers */
    void (*twin)(arrays_t *x);                       /* the same on the CPU */
    double tolerance;
    int ordered;
} line_t;

/* ---- Buffers: as the parameters number them -------------------------------------------------- */

static void one_to_one(spipe_desc_t *d, const arrays_t *x) {
    spipe_add_input(d, x->a, 4);
    spipe_add_output(d, x->out, 4);
}

static void two_to_one(spipe_desc_t *d, const arrays_t *x) {
    spipe_add_input(d, x->a, 4);
    spipe_add_input(d, x->b, 4);
    spipe_add_output(d, x->out, 4);
}

static void onto_itself(spipe_desc_t *d, const arrays_t *x) {
    memcpy(x->both, x->c, N * 4);
    spipe_add_input(d, x->a, 4);
    spipe_add_inout(d, x->both, 4);
}

static void three_to_two(spipe_desc_t *d, const arrays_t *x) {
    two_to_one(d, x);
    spipe_add_input(d, x->c, 4);
    spipe_add_output(d, x->out2, 4);
}

static void scan_of(spipe_desc_t *d, const arrays_t *x, size_t bytes) {
    spipe_add_input(d, x->a, bytes);
    spipe_add_output(d, x->out, bytes);
    spipe_add_resident(d, NULL, sizeof(spipe_scan_state_t), SPIPE_ZERO);
    d->count = N * 4 / bytes;
}

static void scan_of_4(spipe_desc_t *d, const arrays_t *x) { scan_of(d, x, 4); }

static void scan_of_8(spipe_desc_t *d, const arrays_t *x) { scan_of(d, x, 8); }

static void rows(spipe_desc_t *d, const arrays_t *x) {
    d->count = N / ROW;
    spipe_add_input(d, x->a, ROW * 4);
    spipe_add_output(d, x->out, KEEP * 4);
    spipe_add_output(d, x->out2, 4);
}

static void blocks(spipe_desc_t *d, const arrays_t *x) {
    d->count = N * 4 / BLOCK;
    spipe_add_input(d, x->a, BLOCK);
    spipe_add_output(d, x->out, 4);
}

/* ---- Parameters, and the twins --------------------------------------------------------------- */

static const spipe_fill_t FILL = {1, 2.5f};
static const spipe_saxpy_t SAXPY = {0, 1, 3.0f};
static const spipe_vector_add_t ADD = {0, 1, 2};
static const spipe_busy_t BUSY = {0, 1, 20};
static const spipe_black_scholes_t PRICES = {0, 1, 3, 2, 4, 0.02f, 0.3f};
static const spipe_scan_t SCAN = {0, 1, 2};
static const spipe_threshold_t HIGH = {0, 1, 2, ROW, KEEP, 40.0f};
static const spipe_bytes_t BYTES = {0, -1, -1, 1, -1, BLOCK};

static void fill(arrays_t *x) { spipe_fill_cpu(x->want, FILL.value, N); }

static void saxpy(arrays_t *x) {
    memcpy(x->want, x->c, N * 4);
    spipe_saxpy_cpu(x->want, x->a, SAXPY.a, N);
}

static void add(arrays_t *x) { spipe_vector_add_cpu(x->want, x->a, x->b, N); }

static void busy(arrays_t *x) { spipe_busy_cpu(x->want, x->a, BUSY.steps, N); }

static void prices(arrays_t *x) {
    spipe_black_scholes_cpu(x->want, x->want2, x->a, x->b, x->c, PRICES.rate, PRICES.volatility, N);
}

static void scan_f32(arrays_t *x) { (void)spipe_scan_f32_cpu(x->want, x->a, 0.0, N); }

static void scan_u32(arrays_t *x) {
    (void)spipe_scan_u32_cpu((uint32_t *)(void *)x->want, (const uint32_t *)(const void *)x->a, 0,
                             N);
}

static void scan_u64(arrays_t *x) {
    (void)spipe_scan_u64_cpu((uint64_t *)(void *)x->want, (const uint64_t *)(const void *)x->a, 0,
                             N / 2);
}

static void threshold(arrays_t *x) {
    spipe_threshold_cpu((uint32_t *)(void *)x->want, (uint32_t *)(void *)x->want2, x->a, &HIGH,
                        N / ROW);
}

static void entropy(arrays_t *x) {
    spipe_byte_entropy_cpu(x->want, (const unsigned char *)x->a, NULL, BLOCK, N * 4 / BLOCK);
}

/* With a tolerance of 0 the bits must be equal. */
static const line_t TABLE[] = {
    {"fill", spipe_fill_stage, &FILL, one_to_one, fill, 0, 0},
    {"saxpy", spipe_saxpy_stage, &SAXPY, onto_itself, saxpy, 0, 0},
    {"vector add", spipe_vector_add_stage, &ADD, two_to_one, add, 0, 0},
    {"busy", spipe_busy_stage, &BUSY, one_to_one, busy, 0, 0},
    {"Black-Scholes", spipe_black_scholes_stage, &PRICES, three_to_two, prices, 2e-3, 0},
    {"sums of float", spipe_scan_f32_stage, &SCAN, scan_of_4, scan_f32, 10.0, 1},
    {"sums of uint32", spipe_scan_u32_stage, &SCAN, scan_of_4, scan_u32, 0, 1},
    {"sums of uint64", spipe_scan_u64_stage, &SCAN, scan_of_8, scan_u64, 0, 1},
    {"threshold", spipe_threshold_stage, &HIGH, rows, threshold, 0, 0},
    {"byte entropy", spipe_byte_entropy_stage, &BYTES, blocks, entropy, 1e-5, 0},
};

/* ---- The runs -------------------------------------------------------------------------------- */

static int is_like(const float *got, const float *want, size_t bytes, double tolerance) {
    if (tolerance == 0.0) return memcmp(got, want, bytes) == 0;
    for (size_t i = 0; i < bytes / 4; ++i)
        if (!(fabs((double)got[i] - (double)want[i]) <= tolerance)) return 0;
    return 1;
}

/* Whether all outputs of a pipeline are what the twin wrote. */
static int is_right(const spipe_desc_t *d, const arrays_t *x, double tolerance) {
    const float *want = x->want;
    int right = 1;
    for (int i = 0; i < d->num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &d->buffers[i];
        if (b->kind != SPIPE_OUTPUT && b->kind != SPIPE_INOUT) continue;
        right &= is_like((const float *)b->host, want, d->count * b->elem_bytes, tolerance);
        want = x->want2;
    }
    return right;
}

static int try_line(const line_t *l, arrays_t *x) {
    spipe_timeline_t t = spipe_timeline_default();
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    spipe_pipeline_t *p;
    d.count = N;
    memset(x->out, 0xFF, N * 4);
    memset(x->out2, 0xFF, N * 4);
    l->add(&d, x);
    const int stage = spipe_add_stage(&d, l->name, l->stage, (void *)l->parameters);
    if (l->ordered) spipe_stage_ordered(&d, stage);
    l->twin(x);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_run(p, &r));
    int right = is_right(&d, x, l->tolerance);
    if (d.buffers[1].kind == SPIPE_INOUT) memcpy(x->both, x->c, N * 4);
    SPIPE_CHECK(spipe_pipeline_set_timeline(p, &t));
    SPIPE_CHECK(spipe_pipeline_run(p, &r));
    right &= is_right(&d, x, l->tolerance);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    const int first_line = (int)strcspn(r.verdict, ",\n");
    printf("%-15s %s %7.3f ms   %.*s\n", l->name, right ? "right" : "WRONG", r.timed_ms, first_line,
           r.verdict);
    return right;
}

int main(void) {
    static arrays_t x;
    int right = 1;
    float **all[] = {&x.a, &x.b, &x.c, &x.both, &x.out, &x.out2};
    ex_begin();
    for (float **array : all) SPIPE_CHECK(spipe_pinned_alloc((void **)array, N * 4));
    for (unsigned i = 0; i < N; ++i) {
        x.a[i] = 10.0f + (float)(i * 2654435761u >> 26);
        x.b[i] = 20.0f + (float)(i % 41);
        x.c[i] = 0.25f + (float)(i % 7);
    }
    for (const line_t &l : TABLE) right &= try_line(&l, &x);
    for (float **array : all) SPIPE_CHECK(spipe_pinned_free(*array));
    return ex_verdict(right);
}
