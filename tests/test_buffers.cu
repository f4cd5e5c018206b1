/*  test_buffers.cu -- every kind of buffer does what its name says: in/out, temporary, resident,
    source, sink, halo. Each against a serial result, element by element. */
#include "pipe_common.h"

static const spipe_schedule_t schedules[] = {SPIPE_SCHEDULE_ENGINES, SPIPE_SCHEDULE_SERIAL,
                                             SPIPE_SCHEDULE_ZERO_COPY};

enum {
    NUM_SCHEDULES = (int)(sizeof schedules / sizeof *schedules)
};

/* Pageable arrays go through pinned slots, as large ones do by themselves. */
static spipe_desc_t staged_desc(void) {
    spipe_desc_t d = spipe_desc_default();
    d.staging = SPIPE_STAGING_COPY;
    return d;
}

static int runs(const spipe_desc_t *d) {
    spipe_report_t r;
    const cudaError_t e = spipe_run(d, &r);
    if (e != cudaSuccess) tap_note("%s", r.failure.message);
    return e == cudaSuccess;
}

/* ---- in/out and temporary ---- */

static void test_inout(spipe_schedule_t schedule, int memory) {
    const size_t n = 5003;
    pipe_array_t x = pipe_array_new(n, memory);
    unsigned char *before = (unsigned char *)malloc(n);
    pipe_mix_args_t a = {0, 1, 1}, b = {1, 0, 1};
    spipe_desc_t d = staged_desc();
    size_t i, wrong = 0;
    pipe_randomise(x);
    memcpy(before, x.at, n);
    d.count = n;
    d.chunk = 300;
    d.schedule = schedule;
    spipe_add_inout(&d, x.at, 1);
    spipe_add_temp(&d, 1);
    spipe_add_stage(&d, "there", pipe_mix_stage, &a);
    spipe_add_stage(&d, "back", pipe_mix_stage, &b);
    const int ran = runs(&d);
    for (i = 0; i < n; ++i) wrong += x.at[i] != pipe_mix(pipe_mix(before[i], i), i);
    tap_ok(ran && wrong == 0, "in/out through a temporary, %s, %s", spipe_schedule_name(schedule),
           pipe_memory_names[memory]);
    free(before);
    pipe_free(&x);
}

/* ---- resident: weights in, a histogram out ---- */

static __global__ void weigh_kernel(const unsigned char *x, const unsigned *weights, unsigned *y,
                                    unsigned long long *histogram, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = weights[x[i]];
    atomicAdd(&histogram[x[i]], 1ull);
}

static cudaError_t weigh_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(weigh_kernel, spipe_blocks(c->count, 128), 128, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned char), SPIPE_BUF(c, 1, const unsigned),
                        SPIPE_BUF(c, 2, unsigned), SPIPE_BUF(c, 3, unsigned long long), c->count);
}

/* All but the weights is in one kind of memory. The histogram has more bytes than are used; pinned
   and large, its copy ends well after the call that issues it. The pipeline is kept, since to free
   its memory would wait for that copy. */
static void test_resident(spipe_schedule_t schedule, int memory, size_t n, size_t bytes) {
    pipe_array_t x = pipe_array_new(n, memory);
    pipe_array_t counts = pipe_array_new(bytes, memory);
    pipe_array_t y = pipe_array_new(n * sizeof(unsigned), memory);
    unsigned weights[256];
    spipe_pipeline_t *p;
    unsigned long long expect[256] = {0};
    spipe_desc_t d = staged_desc();
    size_t i, wrong = 0, left = 0;
    pipe_randomise(x);
    for (i = 0; i < 256; ++i) weights[i] = pipe_random();
    memset(counts.at, 0xFF, bytes);
    d.count = n;
    d.chunk = 1000;
    d.schedule = schedule;
    spipe_add_input(&d, x.at, 1);
    spipe_add_resident(&d, weights, sizeof weights, SPIPE_UPLOAD);
    spipe_add_output(&d, y.at, sizeof(unsigned));
    spipe_add_resident(&d, counts.at, bytes, SPIPE_DOWNLOAD);
    spipe_add_stage(&d, "weigh", weigh_stage, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    const int ran = spipe_pipeline_run(p, NULL) == cudaSuccess;
    for (i = 0; i < n; ++i) {
        wrong += memcmp(y.at + i * sizeof(unsigned), &weights[x.at[i]], sizeof(unsigned)) != 0;
        ++expect[x.at[i]];
    }
    tap_ok(ran && wrong == 0, "a resident buffer carries weights in, %s, %zu elements",
           spipe_schedule_name(schedule), n);
    for (i = sizeof expect; i < bytes; i += 64) left += counts.at[i] != 0;
    tap_ok(memcmp(counts.at, expect, sizeof expect) == 0 && left == 0,
           "a resident buffer starts as zeros and carries a histogram out into %s memory",
           pipe_memory_names[memory]);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    pipe_free(&y);
    pipe_free(&x);
    pipe_free(&counts);
}

/* ---- source and sink ---- */

typedef struct feed {
    const unsigned char *data;
    unsigned char *out;
    size_t total, given, taken, most, calls, eb;
    int in_order;
} feed_t;

/* Gives most elements a call at most, as a pipe or a socket would. */
static cudaError_t feed_source(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    feed_t *f = (feed_t *)user;
    size_t n = f->total - f->given;
    if (n > max_count) n = max_count;
    if (n > f->most) n = f->most;
    memcpy(dst, f->data + f->given * f->eb, n * f->eb);
    f->given += n;
    ++f->calls;
    *count = n;
    return cudaSuccess;
}

static cudaError_t feed_sink(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    feed_t *f = (feed_t *)user;
    f->in_order &= first == f->taken;
    memcpy(f->out + first * f->eb, src, count * f->eb);
    f->taken += count;
    return cudaSuccess;
}

static int stream_is_right(size_t n, size_t eb, size_t chunk, size_t most, size_t count,
                           spipe_schedule_t schedule, size_t threads) {
    pipe_array_t x = pipe_array_new(n * eb, PIPE_PAGEABLE);
    pipe_array_t y = pipe_array_new(n * eb, PIPE_PAGEABLE);
    feed_t f = {x.at, y.at, n, 0, 0, most, 0, eb, 1};
    pipe_mix_args_t args = {0, 1, eb};
    spipe_desc_t d = staged_desc();
    size_t i, wrong = 0;
    pipe_randomise(x);
    pipe_poison(y);
    d.count = count;
    d.chunk = chunk;
    d.schedule = schedule;
    d.threads = threads;
    spipe_add_source(&d, feed_source, &f, eb, SPIPE_IN_ORDER);
    spipe_add_sink(&d, feed_sink, &f, eb, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    int good = runs(&d) && f.taken == n && f.in_order && pipe_guard_whole(y);
    for (i = 0; i < n * eb; ++i) wrong += y.at[i] != pipe_mix(x.at[i], i);
    pipe_free(&x);
    pipe_free(&y);
    return good && wrong == 0;
}

static void test_streams(void) {
    int s;
    for (s = 0; s < NUM_SCHEDULES; ++s) {
        int good = 1;
        size_t n;
        for (n = 0; n < 4; ++n) {
            good &= stream_is_right(1000 * n + 1, 4, 100, SIZE_MAX, SPIPE_AUTO, schedules[s], n);
            good &= stream_is_right(1000 * n, 3, 100, 7, SPIPE_AUTO, schedules[s], n);
            good &= stream_is_right(99, 1, 100, 50, 0, schedules[s], n);
        }
        tap_ok(good, "a source is read to its end and a sink gets all of it in order, %s",
               spipe_schedule_name(schedules[s]));
    }
    tap_ok(stream_is_right(1234, 4, 100, 10, 1234, SPIPE_SCHEDULE_ENGINES, 2),
           "a source with a count");
    tap_ok(stream_is_right(0, 4, 100, 10, SPIPE_AUTO, SPIPE_SCHEDULE_ENGINES, 2),
           "an empty source");
    tap_ok(stream_is_right(3, 4000, 1, 1, SPIPE_AUTO, SPIPE_SCHEDULE_ENGINES, 2),
           "a source of records");
}

static void test_short_source(void) {
    unsigned char x[100] = {0}, y[200];
    feed_t f = {x, y, 100, 0, 0, SIZE_MAX, 0, 1, 1};
    pipe_mix_args_t args = {0, 1, 1};
    spipe_desc_t d = staged_desc();
    spipe_report_t r;
    d.count = 200;
    d.chunk = 30;
    spipe_add_source(&d, feed_source, &f, 1, SPIPE_IN_ORDER);
    spipe_add_sink(&d, feed_sink, &f, 1, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    tap_ok(spipe_run(&d, &r) == cudaErrorInvalidValue && strstr(r.failure.message, "100 of 200") &&
               r.failure.chunk == 3 && r.failure.chunks_whole == 3 && f.taken == 90,
           "a source that ends before count is a failure that says so: %s", r.failure.message);
}

/* ---- halo: a box sum over neighbours, at both kinds of edge ---- */

typedef struct box {
    int before, after;
} box_t;

static __global__ void box_kernel(const int *x, int *y, int before, int after, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    int sum = 0;
    for (int k = -before; k <= after; ++k) sum += (k + before + 1) * x[(long long)i + k];
    y[i] = sum;
}

static cudaError_t box_stage(const spipe_chunk_t *c, void *user) {
    const box_t *b = (const box_t *)user;
    return SPIPE_LAUNCH(box_kernel, spipe_blocks(c->count, 128), 128, 0, c->stream,
                        SPIPE_BUF(c, 0, const int), SPIPE_BUF(c, 1, int), b->before, b->after,
                        c->count);
}

static int box_is_right(size_t n, size_t chunk, box_t b, spipe_edge_t edge, int memory,
                        spipe_schedule_t schedule, int from_source, size_t depth) {
    pipe_array_t xa = pipe_array_new(n * sizeof(int), memory);
    int *x = (int *)(void *)xa.at, *y = (int *)malloc(n * sizeof *y + 1);
    feed_t f = {xa.at, NULL, n, 0, 0, 13, 0, sizeof(int), 1};
    spipe_desc_t d = staged_desc();
    size_t i, wrong = 0;
    if (b.before > (int)n) b.before = (int)n; /* more is refused */
    if (b.after > (int)n) b.after = (int)n;
    for (i = 0; i < n; ++i) x[i] = (int)(pipe_random() % 1000);
    memset(y, 0xA5, n * sizeof *y);
    d.count = n;
    d.chunk = chunk;
    d.depth = depth;
    d.schedule = schedule;
    d.threads = 3;
    if (from_source)
        spipe_add_source(&d, feed_source, &f, sizeof(int), SPIPE_IN_ORDER);
    else
        spipe_add_input(&d, x, sizeof(int));
    spipe_add_output(&d, y, sizeof(int));
    spipe_set_halo(&d, 0, (size_t)b.before, (size_t)b.after, edge);
    spipe_add_stage(&d, "box", box_stage, &b);
    const int ran = n == 0 || runs(&d);
    for (i = 0; i < n; ++i) {
        int k, sum = 0;
        for (k = -b.before; k <= b.after; ++k) {
            long long at = (long long)i + k;
            const int beyond = at < 0 || at >= (long long)n;
            if (edge == SPIPE_EDGE_ZERO && beyond) continue;
            if (beyond) at = at < 0 ? 0 : (long long)n - 1;
            sum += (k + b.before + 1) * x[at];
        }
        wrong += y[i] != sum;
    }
    free(y);
    pipe_free(&xa);
    return ran && wrong == 0;
}

/* Elements in chunks of five: with ThreadSanitizer, which takes ten times as long for a chunk, each
   of the three slots is used again ten times, without it thirty times. */
#if defined(__SANITIZE_THREAD__)
enum {
    MANY = 150,
    EVERY = 2 /* box, for each schedule another half of them: each is in two or three schedules */
};
#else
enum {
    MANY = 500,
    EVERY = 1
};
#endif

static void test_halo(spipe_schedule_t schedule) {
    static const box_t boxes[] = {{1, 1}, {3, 0}, {0, 2}, {5, 4}};
    int good[3] = {1, 1, 1}, e, k;
    size_t b;
    for (b = (size_t)schedule % EVERY; b < 4; b += EVERY) {
        for (e = 0; e < 2; ++e) {
            const spipe_edge_t edge = e ? SPIPE_EDGE_ZERO : SPIPE_EDGE_CLAMP;
            for (k = 0; k < 3; ++k) { /* 0 pageable, 1 pinned, 2 a source */
                const int m = k == 1 ? PIPE_PINNED : PIPE_PAGEABLE;
                good[k] &= box_is_right(1003, 100, boxes[b], edge, m, schedule, k == 2, SPIPE_AUTO);
                good[k] &= box_is_right(MANY, 5, boxes[b], edge, m, schedule, k == 2, 3);
                good[k] &= box_is_right(11, 5, boxes[b], edge, m, schedule, k == 2, SPIPE_AUTO);
                good[k] &= box_is_right(3, 10, boxes[b], edge, m, schedule, k == 2, 1);
                good[k] &= box_is_right(1, 5, boxes[b], edge, m, schedule, k == 2, SPIPE_AUTO);
                good[k] &= box_is_right(40, 5, boxes[b], edge, m, schedule, k == 2, 1);
            }
        }
    }
    tap_ok(good[0], "halos of pageable arrays, both edges, %s", spipe_schedule_name(schedule));
    tap_ok(good[1], "halos of pinned arrays, both edges, %s", spipe_schedule_name(schedule));
    tap_ok(good[2], "halos of a source, both edges, %s", spipe_schedule_name(schedule));
}

int main(void) {
    int s, m;
    for (s = 0; s < NUM_SCHEDULES; ++s) {
        for (m = 0; m < PIPE_NUM_MEMORIES; ++m) {
            test_inout(schedules[s], m);
            test_resident(schedules[s], m, 20011, 2048);
            if (schedules[s] != SPIPE_SCHEDULE_SERIAL && schedules[s] != SPIPE_SCHEDULE_ENGINES)
                continue;
            /* with 32 bits a buffer has less than 4 MiB */
            const size_t bytes = m == PIPE_PINNED ? (4 << 20) - 64 : 2048;
            test_resident(schedules[s], m, 600, bytes); /* one chunk, so one stream */
            test_resident(schedules[s], m, 0, bytes);
        }
        test_halo(schedules[s]);
    }
    test_streams();
    test_short_source();
    return tap_done();
}
