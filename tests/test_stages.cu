/*  test_stages.cu -- stages run in line by default, in a graph by name, in order if marked, on
    the host if asked; a stage that fails is reported with its name and chunk. */
#include "pipe_common.h"
#ifdef __HOSTCUDA__
#include "hostcuda.h"
#endif

static const spipe_schedule_t schedules[] = {SPIPE_SCHEDULE_ENGINES, SPIPE_SCHEDULE_SERIAL,
                                             SPIPE_SCHEDULE_ZERO_COPY};

enum {
    NUM_SCHEDULES = (int)(sizeof schedules / sizeof *schedules),
    N = 3001,
    CHUNK = 100
};

static __global__ void linear_kernel(const int *a, const int *b, int *out, int fa, int fb, int add,
                                     size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = fa * a[i] + fb * b[i] + add;
}

/* out = fa * a + fb * b + add, by buffer numbers */
typedef struct linear {
    int a, b, out, fa, fb, add;
} linear_t;

static cudaError_t linear_stage(const spipe_chunk_t *c, void *user) {
    const linear_t *l = (const linear_t *)user;
    return SPIPE_LAUNCH(linear_kernel, spipe_blocks(c->count, 64), 64, 0, c->stream,
                        SPIPE_BUF(c, l->a, const int), SPIPE_BUF(c, l->b, const int),
                        SPIPE_BUF(c, l->out, int), l->fa, l->fb, l->add, c->count);
}

/* Staged: workers fill and drain. Direct: nothing to drain, completion is the GPU's. */
static spipe_staging_t staging = SPIPE_STAGING_COPY;

static int runs(const spipe_desc_t *d) {
    spipe_report_t r;
    const cudaError_t e = spipe_run(d, &r);
    if (e != cudaSuccess) tap_note("%s", r.failure.message);
    return e == cudaSuccess;
}

static void fill(int *x) {
    int i;
    for (i = 0; i < N; ++i) x[i] = (int)(pipe_random() % 100000);
}

static spipe_desc_t start(spipe_schedule_t schedule, const int *x, int *y) {
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.chunk = CHUNK;
    d.schedule = schedule;
    d.staging = staging;
    memset(y, 0xA5, N * sizeof *y);
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    return d;
}

/* x -> a; a -> b and a -> c side by side, b and c -> y: added out of order, so names decide. */
static void test_diamond(spipe_schedule_t schedule, int *x, int *y) {
    linear_t first = {0, 0, 2, 3, 0, 1}, left = {2, 2, 3, 5, 0, 2}, right = {2, 2, 4, 7, 0, 3};
    linear_t last = {3, 4, 1, 1, 2, 4};
    spipe_desc_t d = start(schedule, x, y);
    int i, wrong = 0, s;
    spipe_add_temp(&d, sizeof *x);
    spipe_add_temp(&d, sizeof *x);
    spipe_add_temp(&d, sizeof *x);
    s = spipe_add_stage(&d, "join", linear_stage, &last);
    spipe_stage_after(&d, s, "left");
    spipe_stage_after(&d, s, "right");
    s = spipe_add_stage(&d, "left", linear_stage, &left);
    spipe_stage_after(&d, s, "first");
    s = spipe_add_stage(&d, "right", linear_stage, &right);
    spipe_stage_after(&d, s, "first");
    s = spipe_add_stage(&d, "first", linear_stage, &first);
    spipe_stage_after(&d, s, NULL);
    const int ran = runs(&d);
    for (i = 0; i < N; ++i) {
        const int a = 3 * x[i] + 1;
        wrong += y[i] != (5 * a + 2) + 2 * (7 * a + 3) + 4;
    }
    tap_ok(ran && wrong == 0, "a graph of stages by name, %s", spipe_schedule_name(schedule));
}

static void test_line(spipe_schedule_t schedule, int *x, int *y) {
    linear_t l[12];
    spipe_desc_t d = start(schedule, x, y);
    char names[12][16];
    int i, k, wrong = 0;
    spipe_add_temp(&d, sizeof *x);
    spipe_add_temp(&d, sizeof *x);
    for (k = 0; k < 12; ++k) {
        const int from = k == 0 ? 0 : 2 + (k + 1) % 2;
        const int to = k == 11 ? 1 : 2 + k % 2;
        const linear_t each = {from, 0, to, 2, 1, k};
        l[k] = each;
        snprintf(names[k], sizeof names[k], "s%d", k);
        spipe_add_stage(&d, names[k], linear_stage, &l[k]);
    }
#ifdef __HOSTCUDA__
    const long before = hostcuda_calls("cudaEventRecord");
#endif
    const int ran = runs(&d);
    for (i = 0; i < N; ++i) {
        unsigned v = (unsigned)x[i];
        for (k = 0; k < 12; ++k) v = 2u * v + (unsigned)x[i] + (unsigned)k;
        wrong += (unsigned)y[i] != v;
    }
    tap_ok(ran && wrong == 0, "twelve stages in line follow each other, %s",
           spipe_schedule_name(schedule));
#ifdef __HOSTCUDA__
    /* after the copies in, the last stage and the copies out; and checkpoints */
    const size_t most = 3 * ((N + CHUNK - 1) / CHUNK) + 8;
    const size_t records = (size_t)(hostcuda_calls("cudaEventRecord") - before);
    tap_ok(records <= most, "and no event is recorded that nothing waits for: %zu of %zu", records,
           most);
#endif
}

/* A one-shot run makes the events of its slots, and of the ends that it records: of each 16th chunk
   if copies out show that chunks are whole, not if workers drain. */
static void test_events_made(spipe_schedule_t schedule, int *x, int *y) {
#ifdef __HOSTCUDA__
    static const size_t chunks[] = {N, 400, 201, 200, 188, 187, 40, 12, 11, 5};
    linear_t twice = {0, 0, 1, 1, 1, 0};
    size_t k;
    int i, wrong = 0;
    if (pipe_few_pins()) return; /* it is set up again with less to pin, and makes events again */
    for (k = 0; k < sizeof chunks / sizeof *chunks; ++k) {
        const long made_before = hostcuda_calls("cudaEventCreateWithFlags");
        const long ended_before = hostcuda_calls("cudaEventDestroy");
        spipe_desc_t d = start(schedule, x, y);
        spipe_report_t r;
        d.chunk = chunks[k];
        spipe_add_stage(&d, "twice", linear_stage, &twice);
        const int ran = spipe_run(&d, &r) == cudaSuccess;
        const long made_now = hostcuda_calls("cudaEventCreateWithFlags");
        const size_t made = (size_t)(made_now - made_before);
        const size_t ended = (size_t)(hostcuda_calls("cudaEventDestroy") - ended_before);
        size_t ends = staging == SPIPE_STAGING_COPY ? 0 : r.num_chunks / 16;
        if (ends > 16) ends = 16;
        if (!ran || made != ended || made > 3 * r.depth + ends) {
            tap_note("chunks of %zu: %zu events made, %zu destroyed", chunks[k], made, ended);
            ++wrong;
        }
        for (i = 0; i < N; ++i) wrong += y[i] != 2 * x[i];
    }
    tap_ok(wrong == 0, "a run makes no event that it does not need, %s%s",
           spipe_schedule_name(schedule), staging == SPIPE_STAGING_COPY ? ", staged" : "");
#else
    (void)schedule;
    (void)x;
    (void)y;
#endif
}

/* An ordered stage: a running sum with its carry in a resident buffer. One thread: the order of
   chunks is what is tested. */
static __global__ void scan_kernel(const int *x, int *y, unsigned long long *carry, size_t n) {
    unsigned long long sum = *carry;
    for (size_t i = 0; i < n; ++i) {
        sum = sum * 3 + (unsigned long long)x[i];
        y[i] = (int)(sum & 0x3FFFFFFF);
    }
    *carry = sum;
}

static cudaError_t scan_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(scan_kernel, 1, 1, 0, c->stream, SPIPE_BUF(c, 0, const int),
                        SPIPE_BUF(c, 1, int), SPIPE_BUF(c, 2, unsigned long long), c->count);
}

static void test_ordered(spipe_schedule_t schedule, int *x, int *y, int followed) {
    unsigned long long carry = 17, expect = 17;
    linear_t doubled = {1, 1, 1, 2, 0, 0};
    spipe_desc_t d = start(schedule, x, y);
    int i, wrong = 0;
    spipe_add_resident(&d, &carry, sizeof carry, SPIPE_UPLOAD | SPIPE_DOWNLOAD);
    spipe_stage_ordered(&d, spipe_add_stage(&d, "scan", scan_stage, NULL));
    if (followed) spipe_add_stage(&d, "double", linear_stage, &doubled);
    const int ran = runs(&d);
    for (i = 0; i < N; ++i) {
        expect = expect * 3 + (unsigned long long)x[i];
        wrong += y[i] != (int)(expect & 0x3FFFFFFF) << followed;
    }
    tap_ok(ran && wrong == 0 && carry == expect, "an ordered stage %scarries state, %s",
           followed ? "with one after it " : "", spipe_schedule_name(schedule));
}

/* A host stage between two device stages: squares modulo, in place. */
static cudaError_t host_square(const spipe_chunk_t *c, void *user) {
    int *v = SPIPE_BUF(c, 2, int);
    size_t i;
    if (c->data[0] || c->stream) return cudaErrorInvalidValue; /* only what was declared is there */
    for (i = 0; i < c->count; ++i) v[i] = (int)((unsigned)v[i] * (unsigned)v[i] % 9973u);
    if (user) __atomic_fetch_add((int *)user, 1, __ATOMIC_RELAXED); /* several threads at once */
    return cudaSuccess;
}

static void test_host(spipe_schedule_t schedule, int *x, int *y, size_t threads, size_t depth) {
    linear_t up = {0, 0, 2, 1, 0, 5}, down = {2, 0, 1, 3, 1, 1};
    spipe_desc_t d = start(schedule, x, y);
    int i, wrong = 0, calls = 0;
    d.threads = threads;
    d.depth = depth;
    spipe_add_temp(&d, sizeof *x);
    spipe_add_stage(&d, "up", linear_stage, &up);
    spipe_add_host_stage(&d, "square", host_square, &calls, SPIPE_BIT(2), SPIPE_BIT(2));
    spipe_add_stage(&d, "down", linear_stage, &down);
    const int ran = runs(&d);
    for (i = 0; i < N; ++i) {
        const unsigned v = (unsigned)(x[i] + 5);
        wrong += y[i] != (int)(3 * (v * v % 9973u)) + x[i] + 1;
    }
    tap_ok(ran && wrong == 0 && calls == (N + CHUNK - 1) / CHUNK,
           "a host stage between device stages, %s, %zu threads, depth %d",
           spipe_schedule_name(schedule), threads, depth == SPIPE_AUTO ? 0 : (int)depth);
}

static cudaError_t host_add(const spipe_chunk_t *c, void *user) {
    const int *in = SPIPE_BUF(c, 0, const int);
    int *out = SPIPE_BUF(c, *(const int *)user, int);
    size_t i;
    for (i = 0; i < c->count; ++i) out[i] = in[i] + *(const int *)user;
    return cudaSuccess;
}

/* Host stages alone, two side by side, joined on the device. */
static void test_two_hosts(spipe_schedule_t schedule, int *x, int *y) {
    int two = 2, three = 3, i, s, wrong = 0;
    linear_t join = {2, 3, 1, 1, 10, 0};
    spipe_desc_t d = start(schedule, x, y);
    spipe_add_temp(&d, sizeof *x);
    spipe_add_temp(&d, sizeof *x);
    spipe_add_host_stage(&d, "two", host_add, &two, SPIPE_BIT(0), SPIPE_BIT(2));
    s = spipe_add_host_stage(&d, "three", host_add, &three, SPIPE_BIT(0), SPIPE_BIT(3));
    spipe_stage_after(&d, s, NULL);
    s = spipe_add_stage(&d, "join", linear_stage, &join);
    spipe_stage_after(&d, s, "two");
    spipe_stage_after(&d, s, "three");
    const int ran = runs(&d);
    for (i = 0; i < N; ++i) wrong += y[i] != x[i] + 2 + 10 * (x[i] + 3);
    tap_ok(ran && wrong == 0, "two host stages side by side, %s", spipe_schedule_name(schedule));
}

/* Fails at one chunk, without having queued anything. */
typedef struct failing {
    size_t at;
    cudaError_t error;
    int quietly; /* leave the launch error for the library to find */
} failing_t;

static cudaError_t failing_stage(const spipe_chunk_t *c, void *user) {
    failing_t *f = (failing_t *)user;
    linear_t copy = {0, 0, 1, 1, 0, 0};
    if (c->index != f->at) return linear_stage(c, &copy);
    if (!f->quietly) return f->error;
    (void)SPIPE_LAUNCH(linear_kernel, 0, 0, 0, c->stream, (const int *)NULL, (const int *)NULL,
                       (int *)NULL, 0, 0, 0, (size_t)0);
    return cudaSuccess;
}

static cudaError_t failing_host(const spipe_chunk_t *c, void *user) {
    const failing_t *f = (const failing_t *)user;
    return c->index == f->at ? f->error : cudaSuccess;
}

static void test_failing(spipe_schedule_t schedule, int *x, int *y, int host, size_t threads) {
    failing_t f = {7, cudaErrorNotSupported, 0};
    linear_t copy = {0, 0, 1, 1, 0, 0};
    spipe_desc_t d = start(schedule, x, y);
    spipe_report_t r;
    size_t i, wrong = 0;
    d.threads = threads;
    if (host) {
        spipe_add_stage(&d, "copy", linear_stage, &copy);
        spipe_add_host_stage(&d, "bad", failing_host, &f, SPIPE_BIT(1), 0);
    } else {
        spipe_add_stage(&d, "bad", failing_stage, &f);
    }
    const cudaError_t e = spipe_run(&d, &r);
    for (i = 0; i < r.failure.chunks_whole * CHUNK; ++i) wrong += y[i] != x[i];
    tap_ok(e == cudaErrorNotSupported && r.failure.error == e && r.failure.chunk == 7 &&
               r.failure.stage == host && strstr(r.failure.message, "'bad'") &&
               r.failure.chunks_whole == 7 && wrong == 0,
           "a failing %s stage is told with name and chunk, %s, %zu threads: %zu whole",
           host ? "host" : "device", spipe_schedule_name(schedule), threads,
           r.failure.chunks_whole);
}

static void test_quiet_launch(int *x, int *y) {
    failing_t f = {3, cudaSuccess, 1};
    spipe_desc_t d = start(SPIPE_SCHEDULE_ENGINES, x, y);
    spipe_report_t r;
    spipe_add_stage(&d, "quiet", failing_stage, &f);
    const cudaError_t e = spipe_run(&d, &r);
    tap_ok(e != cudaSuccess && r.failure.chunk == 3 && r.failure.stage == 0,
           "a launch error that a stage did not look at is found: %s", r.failure.message);
    tap_ok(cudaGetLastError() == cudaSuccess, "and does not show up again in the next check");
}

int main(void) {
    static int x[N], y[N];
    int s;
    fill(x);
    for (s = 0; s < NUM_SCHEDULES; ++s) {
        test_line(schedules[s], x, y);
        test_events_made(schedules[s], x, y);
        test_diamond(schedules[s], x, y);
        test_ordered(schedules[s], x, y, 0);
        test_ordered(schedules[s], x, y, 1);
        test_host(schedules[s], x, y, 0, SPIPE_AUTO);
        test_host(schedules[s], x, y, 1, SPIPE_AUTO);
        test_host(schedules[s], x, y, 2, 1);
        test_host(schedules[s], x, y, 2, 3);
        test_two_hosts(schedules[s], x, y);
        staging = SPIPE_STAGING_DIRECT;
        test_events_made(schedules[s], x, y);
        test_failing(schedules[s], x, y, 0, 2);
        test_failing(schedules[s], x, y, 1, 2);
        test_host(schedules[s], x, y, 2, SPIPE_AUTO);
        staging = SPIPE_STAGING_COPY;
        test_failing(schedules[s], x, y, 0, 0);
        test_failing(schedules[s], x, y, 0, 2);
        test_failing(schedules[s], x, y, 1, 0);
        test_failing(schedules[s], x, y, 1, 2);
    }
    test_quiet_launch(x, y);
    return tap_done();
}
