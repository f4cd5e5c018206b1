/*  test_pipeline.cu -- whatever the sizes, schedule and memory, every element of the output is
    what a serial loop gives, and nothing beyond the end is touched. */
#include "pipe_common.h"

static const spipe_schedule_t schedules[] = {SPIPE_SCHEDULE_AUTO, SPIPE_SCHEDULE_ENGINES,
                                             SPIPE_SCHEDULE_SERIAL, SPIPE_SCHEDULE_ZERO_COPY};

/* Elements with which the library has a choice. A sanitizer takes ten seconds for 28 MB; 4 MB go in
   one chunk as CUDA copies them, and 6 MB in eight, pinned in place, as 28 MB do. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum {
    SOME = 1000000,
    MORE = 1500000
};
#else
enum {
    SOME = 3000000,
    MORE = 7000000
};
#endif

/* One run of mix over count elements; 1 when all of the output is right. */
static int mix_is_right(size_t count, size_t eb, size_t chunk, size_t depth, int memory,
                        spipe_schedule_t schedule, size_t threads, spipe_staging_t staging) {
    pipe_array_t x = pipe_array_new(count * eb, memory), y = pipe_array_new(count * eb, memory);
    pipe_mix_args_t args = {0, 1, eb};
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t report;
    size_t i, wrong = 0;
    pipe_randomise(x);
    pipe_poison(y);
    d.count = count;
    d.chunk = chunk;
    d.depth = depth;
    d.schedule = schedule;
    d.threads = threads;
    d.staging = staging;
    spipe_add_input(&d, x.at, eb);
    spipe_add_output(&d, y.at, eb);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    const cudaError_t e = spipe_run(&d, &report);
    if (e != cudaSuccess) tap_note("%s", report.failure.message);
    for (i = 0; i < count * eb; ++i) wrong += y.at[i] != pipe_mix(x.at[i], i);
    if (wrong) tap_note("%zu of %zu bytes are wrong", wrong, count * eb);
    wrong += !pipe_guard_whole(y);
    wrong += report.count_done != count || report.chunks_done != report.num_chunks;
    wrong += report.failure.chunks_whole != report.num_chunks;
    pipe_free(&x);
    pipe_free(&y);
    return e == cudaSuccess && wrong == 0;
}

/* Staged, as large arrays are, and however the library would do it. */
static int mix_plain(size_t count, size_t eb, size_t chunk, size_t depth) {
    return mix_is_right(count, eb, chunk, depth, PIPE_PAGEABLE, SPIPE_SCHEDULE_AUTO, SPIPE_AUTO,
                        SPIPE_STAGING_COPY) &&
           mix_is_right(count, eb, chunk, depth, PIPE_PAGEABLE, SPIPE_SCHEDULE_AUTO, SPIPE_AUTO,
                        SPIPE_STAGING_AUTO);
}

static void test_schedules(void) {
    size_t s;
    int m;
    for (s = 0; s < sizeof schedules / sizeof *schedules; ++s) {
        for (m = 0; m < PIPE_NUM_MEMORIES; ++m) {
            int good = 1;
            size_t threads;
            for (threads = 0; threads < 4; ++threads) {
                good &= mix_is_right(10007, 4, 1000, SPIPE_AUTO, m, schedules[s], threads,
                                     SPIPE_STAGING_COPY);
            }
            tap_ok(good, "%s, %s memory, 0 to 3 threads: every element is the serial result",
                   spipe_schedule_name(schedules[s]), pipe_memory_names[m]);
        }
    }
}

static void test_sizes(void) {
    static const size_t chunks[] = {1, 2, 7, 64, 1000};
    static const size_t bytes[] = {1, 3, 4, 4000};
    size_t c, n, b;
    for (c = 0; c < sizeof chunks / sizeof *chunks; ++c) {
        int good = 1;
        const size_t k = chunks[c];
        for (n = 0; n <= 5; ++n) {
            good &= mix_plain(n * k, 1, k, 3);
            good &= mix_plain(n * k + 1, 1, k, 3);
            if (n * k > 0) good &= mix_plain(n * k - 1, 1, k, 3);
        }
        tap_ok(good, "n = k x chunk, one more and one less are whole at chunk %zu", k);
    }
    for (b = 0; b < sizeof bytes / sizeof *bytes; ++b) {
        tap_ok(mix_plain(101, bytes[b], 10, SPIPE_AUTO) && mix_plain(1, bytes[b], 10, SPIPE_AUTO),
               "elements of %zu bytes", bytes[b]);
    }
    tap_ok(mix_plain(0, 4, SPIPE_AUTO, SPIPE_AUTO), "no element at all is a run that does nothing");
    tap_ok(mix_plain(1, 4, SPIPE_AUTO, SPIPE_AUTO), "one element");
    tap_ok(mix_plain(5, 4, 1000, SPIPE_AUTO), "fewer elements than a chunk");
    tap_ok(mix_plain(20, 4, 7, 16), "more slots than chunks");
    tap_ok(mix_plain(1000, 4, 10, 1), "one slot");
    tap_ok(mix_plain(1000, 4, 10, 2), "two slots");
    tap_ok(mix_plain(SOME, 4, SPIPE_AUTO, SPIPE_AUTO), "sizes left to the library");
    tap_ok(mix_plain(MORE, 4, SPIPE_AUTO, SPIPE_AUTO), "and more, which it stages by itself");
}

static void test_staging(void) {
    tap_ok(mix_is_right(10007, 4, 500, SPIPE_AUTO, PIPE_PAGEABLE, SPIPE_SCHEDULE_ENGINES,
                        SPIPE_AUTO, SPIPE_STAGING_COPY),
           "pageable memory through pinned slots");
    tap_ok(mix_is_right(10007, 4, 500, SPIPE_AUTO, PIPE_PAGEABLE, SPIPE_SCHEDULE_ENGINES,
                        SPIPE_AUTO, SPIPE_STAGING_REGISTER),
           "pageable memory pinned in place for the run");
    tap_ok(mix_is_right(10007, 4, 500, SPIPE_AUTO, PIPE_PAGEABLE, SPIPE_SCHEDULE_ENGINES,
                        SPIPE_AUTO, SPIPE_STAGING_DIRECT),
           "pageable memory left to CUDA");
    tap_ok(mix_is_right(10007, 4, 500, SPIPE_AUTO, PIPE_PAGEABLE, SPIPE_SCHEDULE_ZERO_COPY,
                        SPIPE_AUTO, SPIPE_STAGING_REGISTER),
           "pageable memory pinned in place and mapped");
}

/* Sizes of the two buffers differ: three floats in, one out. */
typedef struct three {
    float v[3];
} three_t;

static __global__ void norm_kernel(const three_t *x, float *out, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i].v[0] + 2.0f * x[i].v[1] + 4.0f * x[i].v[2];
}
SPIPE_MAP_STAGE(norm_stage, norm_kernel, three_t, float)

static void test_ratio(void) {
    const size_t n = 5001;
    float *v = (float *)malloc(3 * n * sizeof *v), *out = (float *)malloc(n * sizeof *out);
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t report;
    size_t i, wrong = 0;
    for (i = 0; i < 3 * n; ++i) v[i] = (float)(pipe_random() % 1000);
    memset(out, 0xFF, n * sizeof *out);
    d.count = n;
    d.chunk = 100;
    spipe_add_input(&d, v, 3 * sizeof *v);
    spipe_add_output(&d, out, sizeof *out);
    spipe_add_stage(&d, "norm", norm_stage, NULL);
    tap_ok(spipe_run(&d, &report) == cudaSuccess, "an element of 12 bytes in and of 4 out runs");
    for (i = 0; i < n; ++i) {
        wrong += !(out[i] == v[3 * i] + 2.0f * v[3 * i + 1] + 4.0f * v[3 * i + 2]);
    }
    tap_ok(wrong == 0, "element sizes may differ between buffers (SPIPE_MAP_STAGE)");
    tap_ok(report.bytes_in == 12 * n && report.bytes_out == 4 * n, "the report counts the bytes");
    free(v);
    free(out);
}

static int told, told_at[1000];

static int progress(const spipe_progress_t *p, void *user) {
    const size_t stop_after = *(const size_t *)user;
    if (told < 1000) told_at[told] = (int)p->chunks_done;
    ++told;
    return p->chunks_done >= stop_after;
}

static void test_progress(int memory) {
    pipe_array_t x = pipe_array_new(10000, memory), y = pipe_array_new(10000, memory);
    pipe_mix_args_t args = {0, 1, 1};
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t report;
    size_t stop_after = SIZE_MAX, i, wrong = 0;
    int k, rising = 1;
    pipe_randomise(x);
    pipe_poison(y);
    d.count = 10000;
    d.chunk = 100;
    d.staging = SPIPE_STAGING_COPY;
    d.progress = progress;
    d.progress_user = &stop_after;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    told = 0;
    tap_ok(spipe_run(&d, &report) == cudaSuccess && told > 0 && told_at[told - 1] == 100,
           "progress is told and ends at the whole (%s)", pipe_memory_names[memory]);
    for (k = 1; k < told; ++k) rising &= told_at[k] > told_at[k - 1];
    tap_ok(rising, "progress only rises");
    pipe_poison(y);
    stop_after = 10;
    told = 0;
    tap_ok(spipe_run(&d, &report) == SPIPE_STOPPED && report.failure.error == SPIPE_STOPPED,
           "the progress callback can stop a run, which says so");
    for (i = 0; i < report.failure.chunks_whole * 100; ++i)
        wrong += y.at[i] != pipe_mix(x.at[i], i);
    tap_ok(report.failure.chunks_whole >= 10 && report.failure.chunks_whole < 100 && wrong == 0 &&
               report.failure.chunks_whole == (size_t)told_at[told - 1] &&
               report.chunks_done == report.failure.chunks_whole,
           "and the chunks it calls whole are whole");
    pipe_free(&x);
    pipe_free(&y);
}

int main(void) {
    test_schedules();
    test_sizes();
    test_staging();
    test_ratio();
    test_progress(PIPE_PAGEABLE);
    test_progress(PIPE_PINNED);
    return tap_done();
}
