/*  test_few_pins.cu -- the system pins little or nothing: if the library chose the ring, the
    run takes a smaller one, or none, says so, and is right; if the user chose it, the run is
    refused in words. */
#include <stdlib.h>
#include <string.h>

#include "hostcuda.h"
#include "pipe_common.h"
#include "streampipe_devices.h"

#if defined(__SANITIZE_ADDRESS__)
/* 12 MB take twice as long there, and go the same ways. */
static const size_t N = (size_t)5 << 20;
#else
static const size_t N = (size_t)12 << 20;
#endif
static const size_t NO_LIMIT = SIZE_MAX;
static unsigned char *x, *y, *pinned_x, *pinned_y;
static unsigned char *x_more; /* x plus one, what a host stage must leave */
static size_t source_at, sink_at;
static int alive_idle;

static cudaError_t copy_stage(const spipe_chunk_t *c, void *) {
    return cudaMemcpyAsync(c->data[1], c->data[0], c->count, cudaMemcpyDeviceToDevice, c->stream);
}

/* Reads what was copied, and adds one. */
static cudaError_t host_stage(const spipe_chunk_t *c, void *) {
    unsigned char *at = SPIPE_BUF(c, 1, unsigned char);
    size_t i = 0;
    /* eight bytes at a time, without their carries: a sanitizer looks at each access */
    for (; i + 8 <= c->count; i += 8) {
        unsigned long long v;
        memcpy(&v, at + i, 8);
        v = ((v & 0x7F7F7F7F7F7F7F7FULL) + 0x0101010101010101ULL) ^ (v & 0x8080808080808080ULL);
        memcpy(at + i, &v, 8);
    }
    for (; i < c->count; ++i) ++at[i];
    return cudaSuccess;
}

static cudaError_t source(spipe_part_t *part, void *) {
    void *dst = part->data;
    const size_t want = part->count;
    size_t *got = &part->count;
    *got = want < N - source_at ? want : N - source_at;
    memcpy(dst, x + source_at, *got);
    source_at += *got;
    return cudaSuccess;
}

static cudaError_t sink(const spipe_part_t *part, void *) {
    const void *src = part->data;
    const size_t n = part->count;
    memcpy(y + sink_at, src, n);
    sink_at += n;
    return cudaSuccess;
}

enum {
    ARRAYS,
    STREAMED,  /* a source and a sink */
    HOST_STAGE /* pinned arrays */
};

static spipe_desc_t describe(int what) {
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    if (what == STREAMED) {
        d.count = SPIPE_AUTO;
        spipe_add_source(&d, source, NULL, 1, SPIPE_IN_ORDER);
        spipe_add_sink(&d, sink, NULL, 1, SPIPE_IN_ORDER);
    } else {
        spipe_add_input(&d, what == ARRAYS ? x : pinned_x, 1);
        spipe_add_output(&d, what == ARRAYS ? y : pinned_y, 1);
    }
    spipe_add_stage(&d, "copy", copy_stage, NULL);
    if (what == HOST_STAGE)
        spipe_add_host_stage(&d, "host", host_stage, NULL, SPIPE_BIT(1), SPIPE_BIT(1));
    return d;
}

static void begin(void) {
    source_at = sink_at = 0;
    memset(y, 0xA5, N);
    memset(pinned_y, 0xA5, N);
    hostcuda_calls_reset();
}

/* Whether the first n elements are right, and nothing sticks. */
static int right(int what, size_t n) {
    const unsigned char *to = what == HOST_STAGE ? pinned_y : y;
    const unsigned char *want = what == HOST_STAGE ? x_more : x;
    /* memcmp: a sanitizer looks once at all of it, not once at each of 12 Mi bytes */
    if (memcmp(to, want, n) != 0) return 0;
    return (n == N || to[n] == 0xA5) && cudaGetLastError() == cudaSuccess;
}

static int says(const char *text, const char *part) { return text && strstr(text, part); }

/* What pins the library now, beside the test's own arrays. */
static void limit(size_t bytes) {
    hostcuda_set_pinned_limit(bytes == NO_LIMIT ? bytes : 2 * N + bytes);
}

static int is_clean(void) { return hostcuda_leaks(NULL) == alive_idle; }

/* ---- One-shot runs --------------------------------------------------------------------------- */

static const char *const names[] = {"arrays", "a source and a sink", "a host stage"};

static void test_run(int what) {
    spipe_desc_t d = describe(what);
    spipe_report_t full, r;
    size_t part, pinned = 0;
    limit(NO_LIMIT);
    begin();
    SPIPE_CHECK(spipe_run(&d, &full));
    tap_ok(right(what, N) && full.pinned_bytes > 0 && hostcuda_calls("cudaHostRegister") == 1 &&
               hostcuda_calls("cudaHostAlloc") == 0,
           "%s: with room enough %zu bytes are pinned, by one call", names[what],
           full.pinned_bytes);
    for (part = 2; part <= 8; part *= 2) {
        limit(full.pinned_bytes / part);
        begin();
        const cudaError_t e = spipe_run(&d, &r);
        pinned = r.pinned_bytes;
        tap_ok(e == cudaSuccess && right(what, N) && pinned <= full.pinned_bytes / part,
               "room for a part in %zu: %zu bytes pinned, %zu slots of %zu: %s", part, pinned,
               r.depth, r.chunk, r.why_staging);
        if (what == HOST_STAGE) continue; /* whose copies of arrays the guess does not count */
        tap_ok((part > 2 || pinned > 0) && says(r.why_staging, "room to pin"), "which is said");
    }
    limit(0);
    begin();
    const cudaError_t e = spipe_run(&d, &r);
    tap_ok(e == cudaSuccess && right(what, N) && r.pinned_bytes == 0 && !r.staged &&
               says(r.why_staging, "no room to pin a ring"),
           "room for nothing: %s", r.why_staging);
    tap_ok(is_clean(), "nothing is kept of what was tried");
}

/* What the user set is kept; only the staging, which he left open, changes. */
static void test_as_set(int what) {
    spipe_desc_t d = describe(what);
    spipe_report_t r;
    d.chunk = 1000000;
    d.depth = 3;
    limit(0);
    begin();
    const cudaError_t e = spipe_run(&d, &r);
    tap_ok(e == cudaSuccess && right(what, N) && r.chunk == d.chunk && r.depth == d.depth &&
               r.pinned_bytes == 0,
           "%s, chunk and depth as set, and no room: %s", names[what], r.why_staging);
}

/* What needs pinned slots because the user says so. */
static void test_asked(spipe_staging_t staging, spipe_schedule_t schedule) {
    spipe_desc_t d = describe(ARRAYS);
    spipe_report_t r;
    d.staging = staging;
    d.schedule = schedule;
    d.chunk = 1000000;
    limit(0);
    begin();
    const cudaError_t e = spipe_run(&d, &r);
    tap_ok(e == cudaErrorMemoryAllocation && r.failure.error == e && y[0] == 0xA5 &&
               strstr(r.failure.message, "pinned host") && strstr(r.failure.message, "leave") &&
               cudaGetLastError() == cudaSuccess && is_clean(),
           "asked for: %s", r.failure.message);
}

static void test_register(void) {
    spipe_desc_t d = describe(ARRAYS);
    spipe_report_t r;
    d.staging = SPIPE_STAGING_REGISTER;
    limit(N + 100); /* one of the two arrays */
    begin();
    cudaError_t e = spipe_run(&d, &r);
    tap_ok(e == cudaSuccess && right(ARRAYS, N), "one array pinned in place: %s", r.why_staging);
    limit(0);
    begin();
    e = spipe_run(&d, &r);
    tap_ok(e == cudaSuccess && right(ARRAYS, N) && r.pinned_bytes == 0, "none pinned in place: %s",
           r.why_staging);
    tap_ok(is_clean(), "and nothing stays pinned");
}

/* Two GPUs, each with a ring of its own: room for both, for one, for none. */
static void test_devices(int what) {
    spipe_desc_t d = describe(what);
    spipe_report_t full, r;
    int part;
    spipe_devices_all(&d);
    limit(NO_LIMIT);
    begin();
    SPIPE_CHECK(spipe_run(&d, &full));
    tap_ok(right(what, N) && full.num_devices == 2 && full.pinned_bytes > 0,
           "two GPUs, %s: %zu bytes are pinned", names[what], full.pinned_bytes);
    for (part = 1; part >= 0; --part) {
        limit((size_t)part * (full.pinned_bytes / 2 + 4096));
        begin();
        const cudaError_t e = spipe_run(&d, &r);
        tap_ok(e == cudaSuccess && right(what, N) && (r.pinned_bytes > 0) == (part > 0) &&
                   r.devices_failed == 0,
               "room for the rings of %d: %zu bytes pinned, %s", part, r.pinned_bytes,
               r.why_staging);
    }
    tap_ok(is_clean(), "and nothing is kept");
}

/* ---- Kept pipelines -------------------------------------------------------------------------- */

static int runs(spipe_pipeline_t *p, int what, size_t n, int times) {
    int ok = 1, k;
    for (k = 0; k < times; ++k) {
        begin();
        ok &= spipe_pipeline_run(p, NULL) == cudaSuccess && right(what, n);
    }
    return ok;
}

/* Made under a limit, and given longer work. */
static void test_kept(int what, size_t bytes) {
    spipe_desc_t d = describe(what);
    spipe_pipeline_t *p = NULL;
    const int counted = what != STREAMED;
    if (counted) d.count = N / 8;
    limit(bytes);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    tap_ok(runs(p, what, counted ? N / 8 : N, 6), "kept, %s, room for %zu bytes: six runs right",
           names[what], bytes);
    if (counted) {
        SPIPE_CHECK(spipe_pipeline_set_count(p, N));
        const int six = runs(p, what, N, 6);
        tap_ok(six, "and longer: %s", spipe_pipeline_plan(p)->why_staging);
    }
    begin();
    tap_ok(spipe_pipeline_enqueue(p, 0) == cudaSuccess &&
               spipe_pipeline_wait(p, NULL) == cudaSuccess && right(what, N),
           "and enqueued");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    tap_ok(is_clean(), "and nothing is kept");
}

/* From pinned arrays to pageable ones, while nothing can be pinned; then with room again. */
static void test_set_host(void) {
    spipe_desc_t d = describe(ARRAYS);
    spipe_pipeline_t *p = NULL;
    d.buffers[0].host = pinned_x;
    d.buffers[1].host = pinned_y;
    limit(0);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    tap_ok(says(spipe_pipeline_plan(p)->why_staging, "no pageable array"),
           "pinned arrays need no room");
    SPIPE_CHECK(spipe_pipeline_set_host(p, 0, x));
    SPIPE_CHECK(spipe_pipeline_set_host(p, 1, y));
    const int six = runs(p, ARRAYS, N, 6);
    tap_ok(six && says(spipe_pipeline_plan(p)->why_staging, "no room to pin"),
           "pageable ones instead: %s", spipe_pipeline_plan(p)->why_staging);
    limit(NO_LIMIT);
    SPIPE_CHECK(spipe_pipeline_set_host(p, 0, pinned_x));
    tap_ok(runs(p, ARRAYS, N, 2), "and one of each kind");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
}

/* Room for the ring of the first guess and no more: what a climb tries besides must fit there. */
static void test_climb(void) {
    enum {
        RUNS = 60 /* more than a climb takes */
    };

    spipe_desc_t d = describe(ARRAYS);
    spipe_pipeline_t *p = NULL;
    spipe_report_t r;
    size_t room, most = 0;
    int good = 1, k;
    limit(NO_LIMIT);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_run(p, &r));
    room = r.pinned_bytes;
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    limit(room);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (k = 0; k < RUNS; ++k) {
        begin();
        good &= spipe_pipeline_run(p, &r) == cudaSuccess && right(ARRAYS, N);
        if (most < r.pinned_bytes) most = r.pinned_bytes;
        if (!r.trying) break;
    }
    tap_ok(good && !r.trying && most <= room && r.staged,
           "with room for the first ring, %d runs that climb pin %zu of %zu bytes at most", k + 1,
           most, room);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    tap_ok(is_clean(), "and nothing is kept");
}

int main(void) {
    const size_t rooms[] = {0, 4096, (size_t)300 << 10, (size_t)1 << 20};
    SPIPE_CHECK(hostcuda_set_devices(2));
    x = (unsigned char *)malloc(N);
    y = (unsigned char *)malloc(N);
    x_more = (unsigned char *)malloc(N);
    SPIPE_CHECK(spipe_pinned_alloc((void **)&pinned_x, N));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&pinned_y, N));
    if (!x || !y || !x_more) exit(99);
    for (size_t i = 0; i < N; ++i) x[i] = (unsigned char)pipe_random();
    for (size_t i = 0; i < N; ++i) x_more[i] = (unsigned char)(x[i] + 1);
    memcpy(pinned_x, x, N);
    alive_idle = hostcuda_leaks(NULL);
    for (int what = ARRAYS; what <= HOST_STAGE; ++what) {
        test_run(what);
        test_as_set(what);
        for (const size_t room : rooms) test_kept(what, room);
    }
    test_asked(SPIPE_STAGING_COPY, SPIPE_SCHEDULE_AUTO);
    test_asked(SPIPE_STAGING_AUTO, SPIPE_SCHEDULE_ZERO_COPY);
    test_register();
    test_devices(ARRAYS);
    test_devices(STREAMED);
    test_set_host();
    test_climb();
    limit(NO_LIMIT);
    free(x);
    free(y);
    free(x_more);
    (void)spipe_pinned_free(pinned_x);
    (void)spipe_pinned_free(pinned_y);
    return tap_done();
}
