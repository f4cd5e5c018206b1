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

/* The copies and kernels since begin(), as the timeline of a run: a stream's work is a chunk. Of
   several GPUs each has rows of its own, and all of its work is a chunk. */
static void draw(const char *name, int gpus = 1) {
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
        if (gpus > 1) {
            s->stage = 3 * ops[i].device + (s->kind == SPIPE_SPAN_IN ? 0 : 1);
            if (s->kind == SPIPE_SPAN_OUT) ++s->stage;
            s->kind = SPIPE_SPAN_STAGE;
            s->chunk = (size_t)ops[i].device;
        }
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
    static const char *const rows[] = {"in 0", "kernel 0", "out 0", "in 1", "kernel 1", "out 1"};
    t.num_stages = gpus > 1 ? 6 : 1;
    t.stage_names[0] = "kernel";
    for (int k = 0; k < 6 && gpus > 1; ++k) t.stage_names[k] = rows[k];
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

/* Two kernels that fill the GPU five times over, in rounds of 0.1 ms; then a request: copy in, a
   short kernel, copy out. */
static void request(const char *name, spipe_priority_t priority) {
    cudaStream_t urgent;
    const int threads = 132 * 2048;
    SPIPE_CHECK(spipe_stream_create(&urgent, priority));
    begin();
    hostcuda_kernel_time(other, 0, 1e5 / threads);
    for (int k = 0; k < 2; ++k)
        SPIPE_CHECK(SPIPE_LAUNCH(other, 5 * threads / 256, 256, 0, streams[0]));
    SPIPE_CHECK(cudaMemcpyAsync(dev[1], host[1], 1 << 20, cudaMemcpyHostToDevice, urgent));
    kernel(0.1, urgent);
    SPIPE_CHECK(cudaMemcpyAsync(host[1], dev[1], 1 << 20, cudaMemcpyDeviceToHost, urgent));
    draw(name);
    SPIPE_CHECK(cudaStreamDestroy(urgent));
    hostcuda_kernel_time(other, 1e4, 0);
}

/* What lesson 0 does: everything in one stream, and the host waits. */
static void first_kernels(void) {
    begin();
    in(0);
    kernel(0.2, streams[0]);
    kernel(0.1, streams[0]);
    out(0);
    draw("00_copies_and_kernels");
}

static void slow_function(void *user) {
    (void)user;
    hostcuda_host_work(1e6);
}

/* A host function between kernel and copy holds up its stream, and no other one. */
static void host_function(void) {
    begin();
    in(0);
    kernel(0.3, streams[0]);
    SPIPE_CHECK(cudaLaunchHostFunc(streams[0], slow_function, NULL));
    in(1);
    kernel(0.3, streams[1]);
    out(1);
    out(0);
    draw("11_host_function");
}

/* Four tasks in two streams, each with memory of its own, or with memory that is there. */
static void tasks(const char *name, int allocates) {
    void *own;
    begin();
    for (int k = 0; k < 4; ++k) {
        if (allocates) SPIPE_CHECK(cudaMalloc(&own, BYTES));
        SPIPE_CHECK(cudaMemcpyAsync(dev[k], host[k], BYTES, cudaMemcpyDefault, streams[k % 2]));
        kernel(0.3, streams[k % 2]);
        SPIPE_CHECK(cudaMemcpyAsync(host[k], dev[k], BYTES, cudaMemcpyDefault, streams[k % 2]));
        if (allocates) SPIPE_CHECK(cudaFree(own));
    }
    draw(name);
}

/* Eight requests over so many streams. */
static void requests(const char *name, int num_streams) {
    begin();
    for (int k = 0; k < 8; ++k) {
        cudaStream_t s = streams[k % num_streams];
        SPIPE_CHECK(cudaMemcpyAsync(dev[0], host[0], BYTES / 4, cudaMemcpyDefault, s));
        kernel(0.1, s);
        SPIPE_CHECK(cudaMemcpyAsync(host[1], dev[1], BYTES / 4, cudaMemcpyDefault, s));
    }
    draw(name);
}

/* 16 requests over two streams, so many at once: a copy and a kernel take some time however little
   they are given. */
static void batches(const char *name, int size) {
    begin();
    for (int k = 0; k < 16 / size; ++k) {
        cudaStream_t s = streams[k % 2];
        const size_t bytes = (size_t)size << 14;
        SPIPE_CHECK(cudaMemcpyAsync(dev[k % 2], host[0], bytes, cudaMemcpyDefault, s));
        kernel(0.005 + 0.0005 * size, s);
        SPIPE_CHECK(cudaMemcpyAsync(host[1], dev[k % 2], bytes, cudaMemcpyDefault, s));
    }
    draw(name);
}

/* 16 small chunks with four short kernels each in four streams: issued call by call, or as a graph
   that was captured. */
static void small_chunks(const char *name, int replays) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    begin();
    if (replays) SPIPE_CHECK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal));
    for (int k = 1; k < 4 && replays; ++k) SPIPE_CHECK(spipe_stream_wait(streams[k], streams[0]));
    for (int k = 0; k < 16; ++k) {
        cudaStream_t s = streams[k % 4];
        SPIPE_CHECK(cudaMemcpyAsync(dev[k % 4], host[0], 1 << 12, cudaMemcpyHostToDevice, s));
        for (int step = 0; step < 4; ++step) kernel(0.001, s);
        SPIPE_CHECK(cudaMemcpyAsync(host[1], dev[k % 4], 1 << 12, cudaMemcpyDeviceToHost, s));
    }
    if (replays) {
        for (int k = 1; k < 4; ++k) SPIPE_CHECK(spipe_stream_wait(streams[0], streams[k]));
        SPIPE_CHECK(cudaStreamEndCapture(streams[0], &graph));
        SPIPE_CHECK(cudaGraphInstantiate(&exec, graph, 0));
        begin();
        SPIPE_CHECK(cudaGraphLaunch(exec, streams[0]));
    }
    draw(name);
    if (!replays) return;
    SPIPE_CHECK(cudaGraphExecDestroy(exec));
    SPIPE_CHECK(cudaGraphDestroy(graph));
}

/* Each GPU takes every other chunk. */
static void two_gpus(void) {
    cudaStream_t s[2][2];
    char *on[2];
    for (int g : {0, 1}) {
        SPIPE_CHECK(cudaSetDevice(g));
        SPIPE_CHECK(cudaMalloc((void **)&on[g], BYTES));
        for (cudaStream_t &k : s[g]) SPIPE_CHECK(spipe_stream_create(&k, SPIPE_PRIORITY_DEFAULT));
    }
    begin();
    for (int k = 0; k < 8; ++k) {
        cudaStream_t own = s[k % 2][k / 2 % 2];
        SPIPE_CHECK(cudaSetDevice(k % 2));
        SPIPE_CHECK(cudaMemcpyAsync(on[k % 2], host[0], BYTES / 4, cudaMemcpyDefault, own));
        kernel(0.08, own);
        SPIPE_CHECK(cudaMemcpyAsync(host[1], on[k % 2], BYTES / 4, cudaMemcpyDefault, own));
    }
    for (int g : {1, 0}) {
        SPIPE_CHECK(cudaSetDevice(g));
        SPIPE_CHECK(cudaDeviceSynchronize());
    }
    draw("21_two_gpus", 2);
    for (int g : {1, 0}) {
        SPIPE_CHECK(cudaSetDevice(g));
        SPIPE_CHECK(cudaFree(on[g]));
        for (cudaStream_t k : s[g]) SPIPE_CHECK(cudaStreamDestroy(k));
    }
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

/* Leaves out the chunks that a source was asked for after its end. */
static void drop_empty(spipe_timeline_t *t) {
    const size_t all = t->num_spans;
    double end = 0.0;
    t->num_spans = 0;
    for (size_t i = 0; i < all; ++i) {
        const spipe_span_t s = t->spans[i];
        if (s.kind == SPIPE_SPAN_FILL && s.end_ms <= s.begin_ms) continue;
        t->spans[t->num_spans++] = s;
        if (s.end_ms > end) end = s.end_ms;
    }
    if (t->num_spans < all) t->wall_ms = end;
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
    drop_empty(&t);
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
    d.count = BYTES / chunks * chunks;
    d.chunk = BYTES / chunks;
    d.depth = depth;
    d.schedule = SPIPE_SCHEDULE_ENGINES;
    spipe_add_input(&d, host[0], 1);
    spipe_add_output(&d, host[1], 1);
    spipe_add_stage(&d, "work", stage, NULL);
    run_and_draw(&d, name);
}

/* A run between two kernels of a stream of the user's. */
static void in_a_stream(void) {
    spipe_pipeline_t *p;
    spipe_desc_t d = spipe_desc_default();
    d.count = BYTES;
    d.chunk = BYTES / 4;
    spipe_add_input(&d, host[0], 1);
    spipe_add_output(&d, host[1], 1);
    spipe_add_stage(&d, "work", work_stage, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (int warm : {1, 0}) {
        begin();
        kernel(0.2, streams[0]);
        SPIPE_CHECK(spipe_pipeline_enqueue(p, streams[0]));
        kernel(0.2, streams[0]);
        if (!warm) draw("22_in_your_stream");
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
}

static void picture_rows(void) {
    static const spipe_sobel_t sobel = {0, 1, WIDTH};
    static const spipe_blur_t blur = {0, 2, 3, WIDTH, 6, 2.5f};
    spipe_desc_t d = spipe_desc_default();
    d.count = ROWS;
    d.chunk = ROWS / 8;
    d.schedule = SPIPE_SCHEDULE_ENGINES;
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
    d.schedule = SPIPE_SCHEDULE_ENGINES;
    spipe_add_input(&d, host[0], 1);
    spipe_add_output(&d, host[1], 1);
    for (int k = 0; k < 5; ++k) {
        const int stage = spipe_add_stage(&d, names[k], work_stage, NULL);
        if (side_by_side && k > 1 && k < 4) spipe_stage_after(&d, stage, "texture");
    }
    for (int k = 1; k < 4 && side_by_side; ++k) spipe_stage_after(&d, 4, names[k]);
    run_and_draw(&d, name);
}

/* Preprocess, encode, decode of four batches. */
static void three_stages(void) {
    static const char *const names[] = {"preprocess", "encode", "decode"};
    spipe_desc_t d = spipe_desc_default();
    d.count = BYTES;
    d.chunk = d.count / 4;
    d.schedule = SPIPE_SCHEDULE_ENGINES;
    spipe_add_input(&d, host[0], 1);
    spipe_add_output(&d, host[1], 1);
    for (const char *stage : names) spipe_add_stage(&d, stage, work_stage, NULL);
    run_and_draw(&d, "16_three_stages");
}

enum {
    ITEMS = 8
};

static cudaError_t next_item(spipe_part_t *part, void *user) {
    void *tickets = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    size_t *given = (size_t *)user;
    for (*count = 0; *count < max_count && *given < ITEMS; ++*count, ++*given)
        ((unsigned *)tickets)[*count] = (unsigned)*given;
    if (*count == 0) *given = 0; /* for the next run */
    return cudaSuccess;
}

static cudaError_t decode_item(const spipe_part_t *part, const void *tickets, void *) {
    void *dst = part->data;
    const size_t count = part->count;
    (void)tickets;
    memset(dst, 7, count << 20);
    hostcuda_host_work(2e5 * (double)count);
    return cudaSuccess;
}

static cudaError_t item_stage(const spipe_chunk_t *c, void *) {
    kernel(0.1, c->stream);
    return cudaSuccess;
}

/* Items that take 0.2 ms to decode, and 0.15 ms to write, by so many workers. */
static void loader(const char *name, size_t workers) {
    size_t given = 0;
    spipe_desc_t d = spipe_desc_default();
    d.chunk = 1;
    d.threads = workers;
    spipe_add_split_source(&d, next_item, decode_item, &given, sizeof(unsigned), 1 << 20);
    spipe_add_stage(&d, "train", item_stage, NULL);
    run_and_draw(&d, name);
}

static cudaError_t read_frame(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    size_t *given = (size_t *)user;
    *count = *given < ITEMS && max_count > 0;
    *given = *count ? *given + 1 : 0;
    if (*count) memset(dst, 1, 1 << 20);
    return cudaSuccess;
}

static cudaError_t write_frame(const spipe_part_t *part, void *user) {
    (void)part;
    (void)user;
    return cudaSuccess;
}

/* Frames from a function and to one. */
static void frames(const char *name, const char *const *stages, int num_stages) {
    size_t given = 0;
    spipe_desc_t d = spipe_desc_default();
    d.chunk = 1;
    spipe_add_source(&d, read_frame, &given, 1 << 20, SPIPE_IN_ORDER);
    spipe_add_sink(&d, write_frame, NULL, 1 << 20, SPIPE_IN_ORDER);
    for (int k = 0; k < num_stages; ++k) spipe_add_stage(&d, stages[k], item_stage, NULL);
    run_and_draw(&d, name);
}

static cudaError_t cpu_stage(const spipe_chunk_t *c, void *) {
    (void)c;
    hostcuda_host_work(3e5);
    return cudaSuccess;
}

/* A step on the CPU between two on the GPU, by so many threads. */
static void cpu_step(const char *name, size_t threads) {
    spipe_desc_t d = spipe_desc_default();
    d.count = BYTES / 2;
    d.chunk = d.count / 8;
    d.threads = threads;
    spipe_add_input(&d, host[0], 1);
    spipe_add_output(&d, host[1], 1);
    spipe_add_stage(&d, "before", work_stage, NULL);
    spipe_add_host_stage(&d, "cpu", cpu_stage, NULL, SPIPE_BIT(0), SPIPE_BIT(1));
    spipe_add_stage(&d, "after", work_stage, NULL);
    run_and_draw(&d, name);
}

/* Eight chunks on a GPU that is not here. */
static void pipeline_on(const char *name, const char *gpu) {
    const hostcuda_profile_t old = hostcuda_get_profile(0), p = hostcuda_profile(gpu);
    SPIPE_CHECK(hostcuda_set_profile(0, &p));
    pipeline(name, 8, SPIPE_AUTO, work_stage);
    SPIPE_CHECK(hostcuda_set_profile(0, &old));
}

static void draw_all(void) {
    static const char *const filter[] = {"filter"}, *const job[] = {"histogram", "entropy", "grey"};
    first_kernels();
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
    host_function();
    tasks("12_memory_in_each_task", 1);
    tasks("12_memory_once", 0);
    picture_rows();
    loader("14_one_worker", 1);
    loader("14_four_workers", 4);
    requests("15_one_stream", 1);
    requests("15_four_streams", 4);
    three_stages();
    stage_graph("17_in_a_row", 0);
    stage_graph("17_side_by_side", 1);
    frames("18_frames", filter, 1);
    small_chunks("20_call_by_call", 0);
    small_chunks("20_graph", 1);
    two_gpus();
    in_a_stream();
    frames("24_main_job", job, 3);
    batches("25_one_by_one", 1);
    batches("25_batches_of_eight", 8);
    cpu_step("27_one_thread", 1);
    cpu_step("27_four_threads", 4);
    pipeline_on("29_on_h200", "h200");
    pipeline_on("29_on_c2050", "c2050");
}

int main(int argc, char **argv) {
    const hostcuda_profile_t p = hostcuda_profile("h200");
    if (argc != 2) return 1;
    folder = argv[1];
    SPIPE_CHECK(hostcuda_set_devices(2));
    for (int g : {0, 1}) SPIPE_CHECK(hostcuda_set_profile(g, &p));
    for (int k = 0; k < 4; ++k) {
        SPIPE_CHECK(spipe_stream_create(&streams[k], SPIPE_PRIORITY_DEFAULT));
        SPIPE_CHECK(spipe_pinned_alloc((void **)&host[k], BYTES));
        SPIPE_CHECK(cudaMalloc((void **)&dev[k], BYTES));
    }
    pageable = (char *)calloc(BYTES, 1);
    if (!pageable) return 1;
    hostcuda_kernel_time(other, 1e4, 0);
    draw_all();
    for (int k = 0; k < 4; ++k) {
        SPIPE_CHECK(cudaFree(dev[k]));
        SPIPE_CHECK(spipe_pinned_free(host[k]));
        SPIPE_CHECK(cudaStreamDestroy(streams[k]));
    }
    free(pageable);
    return 0;
}
