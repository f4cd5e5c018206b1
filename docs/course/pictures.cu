/*  pictures.cu -- draws the pictures of the course: for each a few operations on the modelled clock
    of hostcuda, written by streampipe_timeline.h as FOLDER/NN_name.svg. `make course` runs it.

    In the lessons on streams each stream carries one chunk, so that a colour is a stream.       */
#include "hostcuda.h"
#include "streampipe_kernels.cuh"
#include "streampipe_timeline.h"

enum {
    BYTES = 16 << 20, /* 0.3 ms to copy */
    MOST = 512,
    ROWS = 480,
    WIDTH = 640
};

static const char *folder;
static char *host[4], *dev[4], *pageable;
static cudaStream_t streams[4];

static __global__ void work() {}

static __global__ void other() {}

static void in(int k) {
    SPIPE_CHECK(cudaMemcpyAsync(dev[k], host[k], BYTES, cudaMemcpyHostToDevice, streams[k]));
}

static void out(int k) {
    SPIPE_CHECK(cudaMemcpyAsync(host[k], dev[k], BYTES, cudaMemcpyDeviceToHost, streams[k]));
}

/* A kernel that takes so long. */
static void kernel(double ms, cudaStream_t s) {
    hostcuda_kernel_time(work, ms * 1e6, 0);
    SPIPE_CHECK(SPIPE_LAUNCH(work, 1, 256, 0, s));
}

static void begin(void) {
    SPIPE_CHECK(cudaDeviceSynchronize());
    hostcuda_clock_reset();
    hostcuda_trace_start();
}

static void write_picture(spipe_timeline_t *t, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%.400s/%s.svg", folder, name);
    SPIPE_CHECK(spipe_timeline_write_svg(t, path));
}

static int by_begin(const void *a, const void *b) {
    const double x = ((const spipe_span_t *)a)->begin_ms, y = ((const spipe_span_t *)b)->begin_ms;
    return (x > y) - (x < y);
}

/* The copies and kernels since begin(), as the timeline of a run: a stream's work is a chunk. */
static void draw(const char *name) {
    static hostcuda_op_t ops[MOST];
    static spipe_span_t spans[MOST];
    unsigned seen[MOST];
    spipe_timeline_t t = spipe_timeline_default();
    SPIPE_CHECK(cudaDeviceSynchronize());
    const size_t n = hostcuda_trace(ops, MOST);
    size_t num_seen = 0;
    for (size_t i = 0; i < n; ++i) {
        spipe_span_t *s = &spans[t.num_spans];
        const int kind = ops[i].kind;
        if (kind != HOSTCUDA_H2D && kind != HOSTCUDA_D2H && kind != HOSTCUDA_KERNEL) continue;
        s->kind = kind == HOSTCUDA_H2D ? SPIPE_SPAN_IN : SPIPE_SPAN_OUT;
        if (kind == HOSTCUDA_KERNEL) s->kind = SPIPE_SPAN_STAGE;
        s->stage = kind == HOSTCUDA_KERNEL ? 0 : -1;
        for (s->chunk = 0; s->chunk < num_seen && seen[s->chunk] != ops[i].stream;) ++s->chunk;
        if (s->chunk == num_seen) seen[num_seen++] = ops[i].stream;
        s->stream = (int)s->chunk;
        s->begin_ms = ops[i].start_ns * 1e-6;
        s->end_ms = ops[i].end_ns * 1e-6;
        if (s->end_ms > t.wall_ms) t.wall_ms = s->end_ms;
        ++t.num_spans;
    }
    qsort(spans, t.num_spans, sizeof *spans, by_begin);
    t.spans = spans;
    t.capacity = MOST;
    t.modelled = 1;
    t.num_stages = 1;
    t.stage_names[0] = "kernel";
    snprintf(t.device, sizeof t.device, "%s", hostcuda_get_profile(0).name);
    write_picture(&t, name);
}

/* ---- lessons on streams --------------------------------------------------------------------- */

static void two_chunks(const char *name, int second) {
    begin();
    for (int k : {0, second}) {
        in(k);
        kernel(0.3, streams[k]);
        out(k);
    }
    draw(name);
}

static void one_waits(void) {
    begin();
    in(0);
    kernel(0.6, streams[0]);
    SPIPE_CHECK(spipe_stream_wait(streams[1], streams[0]));
    in(2);
    out(1);
    draw("02_one_stream_waits");
}

/* Four kernels of 0.3 ms; after each somebody launches a short one into stream 0. */
static void default_stream(const char *name, unsigned flags) {
    cudaStream_t s[4];
    for (cudaStream_t &k : s) SPIPE_CHECK(cudaStreamCreateWithFlags(&k, flags));
    begin();
    for (cudaStream_t k : s) {
        kernel(0.3, k);
        SPIPE_CHECK(SPIPE_LAUNCH(other, 1, 32, 0, (cudaStream_t)NULL));
    }
    draw(name);
    for (cudaStream_t k : s) SPIPE_CHECK(cudaStreamDestroy(k));
}

static void host_waits(const char *name, int waits) {
    begin();
    for (int k = 0; k < 3; ++k) {
        in(k);
        kernel(0.3, streams[k]);
        out(k);
        if (waits) SPIPE_CHECK(cudaStreamSynchronize(streams[k]));
    }
    draw(name);
}

static void pageable_copies(void) {
    begin();
    for (int k : {0, 1}) {
        SPIPE_CHECK(cudaMemcpyAsync(dev[k], pageable, BYTES, cudaMemcpyHostToDevice, streams[k]));
        kernel(0.3, streams[k]);
        out(k);
    }
    draw("05_pageable");
}

static void issue_order(const char *name, const char *gpu, int breadth) {
    const hostcuda_profile_t old = hostcuda_get_profile(0), p = hostcuda_profile(gpu);
    SPIPE_CHECK(hostcuda_set_profile(0, &p));
    begin();
    for (int step = 0; step < (breadth ? 3 : 1); ++step) {
        for (int k = 0; k < 4; ++k) {
            if (!breadth || step == 0) in(k);
            if (!breadth || step == 1) kernel(3.0, streams[k]);
            if (!breadth || step == 2) out(k);
        }
    }
    draw(name);
    SPIPE_CHECK(hostcuda_set_profile(0, &old));
}

/* Three kernels that fill the GPU; then a request: copy in, a short kernel, copy out. */
static void request(const char *name, spipe_priority_t priority) {
    cudaStream_t urgent;
    const int threads = 132 * 2048;
    SPIPE_CHECK(spipe_stream_create(&urgent, priority));
    begin();
    hostcuda_kernel_time(other, 0, 5e5 / threads);
    for (int k = 0; k < 3; ++k) SPIPE_CHECK(SPIPE_LAUNCH(other, threads / 256, 256, 0, streams[0]));
    SPIPE_CHECK(cudaMemcpyAsync(dev[1], host[1], 1 << 20, cudaMemcpyHostToDevice, urgent));
    kernel(0.1, urgent);
    SPIPE_CHECK(cudaMemcpyAsync(host[1], dev[1], 1 << 20, cudaMemcpyDeviceToHost, urgent));
    draw(name);
    SPIPE_CHECK(cudaStreamDestroy(urgent));
    hostcuda_kernel_time(other, 1e4, 0);
}

/* ---- lessons on pipelines ------------------------------------------------------------------- */

static cudaError_t work_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    kernel(0.3 * (double)c->count / BYTES, c->stream);
    return cudaSuccess;
}

static cudaError_t waiting_stage(const spipe_chunk_t *c, void *user) {
    SPIPE_TRY(work_stage(c, user));
    return cudaStreamSynchronize(c->stream);
}

static void run_and_draw(spipe_desc_t *d, const char *name) {
    static spipe_span_t spans[MOST];
    spipe_report_t report;
    spipe_timeline_t t = spipe_timeline_default();
    SPIPE_CHECK_RUN(d, &report); /* the first run loads the kernels */
    SPIPE_CHECK(cudaDeviceSynchronize());
    hostcuda_clock_reset();
    t.spans = spans;
    t.capacity = MOST;
    d->timeline = &t;
    SPIPE_CHECK_RUN(d, &report);
    d->timeline = NULL;
    /* From the first span on; times of events come in half microseconds. */
    const double first = spans[0].begin_ms;
    for (size_t i = 0; i < t.num_spans; ++i) {
        spans[i].begin_ms = floor((spans[i].begin_ms - first) * 1e4 + 0.5) * 1e-4;
        spans[i].end_ms = floor((spans[i].end_ms - first) * 1e4 + 0.5) * 1e-4;
    }
    t.wall_ms = floor((t.wall_ms - first) * 1e4 + 0.5) * 1e-4;
    write_picture(&t, name);
}

/* Arrays from malloc, through pinned slots that so many threads fill, and as many drain. */
static void staged(const char *name, size_t threads) {
    spipe_desc_t d = spipe_desc_default();
    char *to = (char *)calloc(BYTES, 1);
    d.count = BYTES;
    d.chunk = BYTES / 16;
    d.threads = threads;
    d.staging = SPIPE_STAGING_COPY;
    spipe_add_input(&d, pageable, 1);
    spipe_add_output(&d, to, 1);
    spipe_add_stage(&d, "work", work_stage, NULL);
    run_and_draw(&d, name);
    free(to);
}

static void pipeline(const char *name, size_t chunks, size_t depth, spipe_stage_fn stage) {
    spipe_desc_t d = spipe_desc_default();
    d.count = BYTES;
    d.chunk = BYTES / chunks;
    d.depth = depth;
    d.schedule = SPIPE_ENGINES;
    spipe_add_input(&d, host[0], 1);
    spipe_add_output(&d, host[1], 1);
    spipe_add_stage(&d, "work", stage, NULL);
    run_and_draw(&d, name);
}

static void picture_rows(void) {
    static const spipe_sobel_t sobel = {0, 1, WIDTH};
    static const spipe_blur_t blur = {0, 2, 3, WIDTH, 6, 2.5f};
    spipe_desc_t d = spipe_desc_default();
    d.count = ROWS;
    d.chunk = ROWS / 8;
    d.schedule = SPIPE_ENGINES;
    spipe_add_input(&d, host[0], WIDTH);
    spipe_set_halo(&d, 0, 6, 6, SPIPE_EDGE_CLAMP);
    spipe_add_output(&d, host[1], WIDTH);
    spipe_add_temp(&d, WIDTH * sizeof(float));
    spipe_add_output(&d, host[2], WIDTH);
    spipe_add_stage(&d, "sobel", spipe_sobel_stage, (void *)&sobel);
    spipe_stage_after(&d, spipe_add_stage(&d, "down", spipe_blur_down_stage, (void *)&blur), NULL);
    spipe_add_stage(&d, "across", spipe_blur_across_stage, (void *)&blur);
    run_and_draw(&d, "13_picture");
}

/* Six stages of a vision pipeline: three of them need not wait for each other. */
static void stage_graph(const char *name, int side_by_side) {
    static const char *const names[] = {"texture", "entropy", "salience", "query", "tokens"};
    spipe_desc_t d = spipe_desc_default();
    d.count = BYTES;
    d.chunk = d.count / 4;
    d.schedule = SPIPE_ENGINES;
    spipe_add_input(&d, host[0], 1);
    spipe_add_output(&d, host[1], 1);
    for (int k = 0; k < 5; ++k) {
        const int stage = spipe_add_stage(&d, names[k], work_stage, NULL);
        if (side_by_side && k > 1 && k < 4) spipe_stage_after(&d, stage, "texture");
    }
    for (int k = 1; k < 4 && side_by_side; ++k) spipe_stage_after(&d, 4, names[k]);
    run_and_draw(&d, name);
}

int main(int argc, char **argv) {
    hostcuda_profile_t p = hostcuda_profile("h200");
    if (argc != 2) return 1;
    folder = argv[1];
    p.call_query = 0; /* so that a loop that asks gives the same picture in every run */
    SPIPE_CHECK(hostcuda_set_profile(0, &p));
    for (int k = 0; k < 4; ++k) {
        SPIPE_CHECK(spipe_stream_create(&streams[k], SPIPE_PRIORITY_DEFAULT));
        SPIPE_CHECK(spipe_pinned_alloc((void **)&host[k], BYTES));
        SPIPE_CHECK(cudaMalloc((void **)&dev[k], BYTES));
    }
    pageable = (char *)calloc(BYTES, 1);
    if (!pageable) return 1;
    hostcuda_kernel_time(other, 1e4, 0);
    two_chunks("01_one_stream", 0);
    two_chunks("01_two_streams", 1);
    one_waits();
    default_stream("03_blocking_streams", cudaStreamDefault);
    default_stream("03_non_blocking_streams", cudaStreamNonBlocking);
    host_waits("04_host_waits", 1);
    host_waits("04_host_goes_on", 0);
    pageable_copies();
    staged("05_staged_by_one", 1);
    staged("05_staged_by_four", 4);
    pipeline("06_first_pipeline", 6, SPIPE_AUTO, work_stage);
    pipeline("07_stage_waits", 6, SPIPE_AUTO, waiting_stage);
    pipeline("07_one_slot", 6, 1, work_stage);
    pipeline("08_one_chunk", 1, SPIPE_AUTO, work_stage);
    pipeline("08_four_chunks", 4, SPIPE_AUTO, work_stage);
    pipeline("08_sixteen_chunks", 16, SPIPE_AUTO, work_stage);
    issue_order("09_breadth_first_c2050", "c2050", 1);
    issue_order("09_depth_first_c2050", "c2050", 0);
    request("10_no_priority", SPIPE_PRIORITY_DEFAULT);
    request("10_high_priority", SPIPE_PRIORITY_HIGH);
    picture_rows();
    stage_graph("17_in_a_row", 0);
    stage_graph("17_side_by_side", 1);
    for (int k = 0; k < 4; ++k) {
        SPIPE_CHECK(cudaFree(dev[k]));
        SPIPE_CHECK(spipe_pinned_free(host[k]));
        SPIPE_CHECK(cudaStreamDestroy(streams[k]));
    }
    free(pageable);
    return 0;
}
