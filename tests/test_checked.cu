/*  test_checked.cu -- a checked run names the stage, the chunk and the buffer if a stage writes
    past its buffers; the stage that puts nothing on its stream; and the one that is marked
    replayable and is not. It reports nothing for a right pipeline. Each mistake in every
    schedule, one-shot and kept. */
#include "pipe_common.h"

#if defined(__HOSTCUDA__)
#include "hostcuda.h"
#endif

enum {
    N = 1000,
    CHUNK = 96, /* so the last chunk has 40 */
    LAST = N / CHUNK
};

/* What a stage does wrong, in chunk bad. */
typedef struct wrong {
    long at; /* the element that it writes besides, counted from the chunk's first */
    int buffer;
    size_t bad;
    cudaStream_t stream; /* where it works, or NULL = on the chunk's */
    int nothing;
} wrong_t;

static __global__ void twice(const unsigned char *x, unsigned char *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = (unsigned char)(2 * x[i]);
}

static __global__ void put(unsigned char *at) { *at = 1; }

static cudaError_t twice_stage(const spipe_chunk_t *c, void *user) {
    const wrong_t *w = (const wrong_t *)user;
    const cudaStream_t stream = w->stream ? w->stream : c->stream;
    if (w->nothing) return cudaSuccess;
    SPIPE_TRY(SPIPE_LAUNCH(twice, spipe_blocks(c->count, 64), 64, 0, stream,
                           SPIPE_BUF(c, 0, const unsigned char), SPIPE_BUF(c, 1, unsigned char),
                           c->count));
    if (w->buffer < 0 || c->index != w->bad) return cudaSuccess;
    return SPIPE_LAUNCH(put, 1, 1, 0, stream, (unsigned char *)c->data[w->buffer] + w->at);
}

static cudaError_t host_stage(const spipe_chunk_t *c, void *user) {
    const wrong_t *w = (const wrong_t *)user;
    unsigned char *y = SPIPE_BUF(c, 1, unsigned char);
    size_t i;
    for (i = 0; i < c->count; ++i) y[i] = (unsigned char)(y[i] + 1);
    if (w->buffer >= 0 && c->index == w->bad) y[w->at] = 1;
    return cudaSuccess;
}

/* With zero-copy the arrays are pinned, as pageable ones are never used in place. */
static unsigned char *pinned_x, *pinned_y;

typedef struct world {
    unsigned char *x, *y;
    unsigned char pageable_x[N], pageable_y[N];
    spipe_desc_t d;
    spipe_report_t r;
    wrong_t device, host;
} world_t;

static void world_new(world_t *w, spipe_schedule_t schedule, int with_host) {
    static const wrong_t none = {0, -1, 0, NULL, 0};
    size_t i;
    w->x = schedule == SPIPE_SCHEDULE_ZERO_COPY ? pinned_x : w->pageable_x;
    w->y = schedule == SPIPE_SCHEDULE_ZERO_COPY ? pinned_y : w->pageable_y;
    w->device = w->host = none;
    for (i = 0; i < N; ++i) w->x[i] = (unsigned char)(i * 7);
    memset(w->y, 0xEE, N);
    w->d = spipe_desc_default();
    w->d.count = N;
    w->d.chunk = CHUNK;
    w->d.schedule = schedule;
    w->d.checked = 1;
    spipe_add_input(&w->d, w->x, 1);
    spipe_add_output(&w->d, w->y, 1);
    spipe_add_resident(&w->d, NULL, 64, SPIPE_ZERO);
    spipe_add_temp(&w->d, 3);
    spipe_set_halo(&w->d, 0, 2, 1, SPIPE_EDGE_ZERO);
    spipe_add_stage(&w->d, "twice", twice_stage, &w->device);
    if (with_host) {
        spipe_add_host_stage(&w->d, "add", host_stage, &w->host, SPIPE_BIT(1), SPIPE_BIT(1));
    }
}

static cudaError_t run(world_t *w, int kept) {
    spipe_pipeline_t *p;
    cudaError_t e;
    if (!kept) return spipe_run(&w->d, &w->r);
    SPIPE_CHECK(spipe_pipeline_create(&p, &w->d, NULL));
    e = spipe_pipeline_run(p, &w->r);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    return e;
}

static int is_right(const world_t *w, int add) {
    size_t i;
    for (i = 0; i < N; ++i) {
        if (w->y[i] != (unsigned char)(2 * w->x[i] + add)) return 0;
    }
    return 1;
}

/* The chunks before the one that failed are finished. */
static int names(const spipe_report_t *r, const char *stage, size_t chunk, const char *words) {
    const spipe_failure_t *f = &r->failure;
    return strstr(f->message, stage) && strstr(f->message, words) && f->chunk == chunk &&
           f->chunks_whole == chunk;
}

static void test_right(spipe_schedule_t schedule) {
    world_t w;
    int k, good = 1;
    for (k = 0; k < 4; ++k) {
        world_new(&w, schedule, k & 1);
        good &= run(&w, k / 2) == cudaSuccess && is_right(&w, k & 1);
    }
    tap_ok(good, "%s: a right pipeline runs right, %s", spipe_schedule_name(schedule),
           w.r.failure.message);
}

typedef struct past {
    int buffer;
    long at;
    size_t chunk;
    const char *words;
} past_t;

static void test_past(spipe_schedule_t schedule) {
    static const past_t cases[] = {
        {1, CHUNK, 3, "past the end of buffer 1 (output)"},
        {1, CHUNK + 200, 0, "past the end of buffer 1 (output)"},
        {1, -1, 4, "before the beginning of buffer 1 (output)"},
        {0, CHUNK + 1, 2, "past the end of buffer 0 (input)"}, /* the halo is its own */
        {0, -3, 2, "before the beginning of buffer 0 (input)"},
        {1, N % CHUNK, LAST, "past the end of buffer 1 (output)"}, /* in the slot still */
        {1, CHUNK - 1, LAST, "past the end of buffer 1 (output)"},
        {2, 64, 5, "past the end of buffer 2 (resident)"},
        {3, 3 * CHUNK, 1, "past the end of buffer 3 (temp)"}};
    size_t k;
    for (k = 0; k < sizeof cases / sizeof *cases; ++k) {
        const past_t *c = &cases[k];
        world_t w;
        /* a tool sees what is past device memory by itself, and stops the kernel or the program */
        const int tool = SPIPE_PRIV_ASAN || pipe_sanitized();
        cudaError_t e;
        if (tool && (schedule != SPIPE_SCHEDULE_ZERO_COPY || c->buffer > 1)) continue;
        world_new(&w, schedule, 0);
        w.device.buffer = c->buffer;
        w.device.at = c->at;
        w.device.bad = c->chunk;
        e = run(&w, (int)k % 2);
        tap_ok(e == cudaErrorInvalidValue && names(&w.r, "'twice'", c->chunk, c->words), "%s: %s",
               spipe_schedule_name(schedule), w.r.failure.message);
    }
}

/* The rest of the slot behind a shorter last chunk is a guard, too, however long it is. */
enum {
    MANY = 8000,
    LARGE = 3000, /* so the last chunk has 2000 */
    REST = 2000 + 700
};

static __global__ void copy_and_put(const unsigned char *x, unsigned char *y, size_t n,
                                    size_t past) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
    if (i == 0 && past > 0) y[past] = 1;
}

static cudaError_t rest_stage(const spipe_chunk_t *c, void *user) {
    const size_t past = c->count < LARGE ? *(const size_t *)user : 0;
    return SPIPE_LAUNCH(copy_and_put, spipe_blocks(c->count, 64), 64, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned char), SPIPE_BUF(c, 1, unsigned char),
                        c->count, past);
}

static cudaError_t host_rest_stage(const spipe_chunk_t *c, void *user) {
    const size_t past = c->count < LARGE ? *(const size_t *)user : 0;
    if (past > 0) SPIPE_BUF(c, 1, unsigned char)[past] = 1;
    return cudaSuccess;
}

static void test_rest(spipe_schedule_t schedule) {
    static unsigned char x[MANY], y[MANY];
    static size_t none = 0, past = REST;
    int host;
    for (host = 0; host < 2; ++host) {
        const int tool = SPIPE_PRIV_ASAN || pipe_sanitized(); /* a slot is one allocation there */
        spipe_desc_t d = spipe_desc_default();
        spipe_report_t r;
        cudaError_t e;
        if (tool && !host) continue;
        d.count = MANY;
        d.chunk = LARGE;
        d.schedule = schedule;
        d.checked = 1;
        spipe_add_input(&d, x, 1);
        spipe_add_output(&d, y, 1);
        spipe_add_stage(&d, "copy", rest_stage, host ? &none : &past);
        spipe_add_host_stage(&d, "host", host_rest_stage, host ? &past : &none, SPIPE_BIT(1),
                             SPIPE_BIT(1));
        e = spipe_run(&d, &r);
        tap_ok(e == cudaErrorInvalidValue && r.failure.chunk == MANY / LARGE &&
                   strstr(r.failure.message, host ? "'host' wrote past" : "'copy' wrote past"),
               "%s, the rest of a slot: %s", spipe_schedule_name(schedule), r.failure.message);
    }
}

static cudaError_t take(const spipe_part_t *part, void *) {
    (void)part;
    return cudaSuccess;
}

/* ---- outputs that nobody wrote --------------------------------------------------------------- */
/* A stage that leaves elements out, from number `from` of a chunk on. */
typedef struct gap {
    size_t chunk, from, num;
    int in_host_stage;
} gap_t;

static __global__ void copy_but(const unsigned *x, unsigned *y, size_t n, size_t from, size_t num) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n && (i < from || i >= from + num)) y[i] = x[i] + 1;
}

static cudaError_t gap_stage(const spipe_chunk_t *c, void *user) {
    const gap_t *g = (const gap_t *)user;
    const size_t num = g->in_host_stage || c->index != g->chunk ? 0 : g->num;
    return SPIPE_LAUNCH(copy_but, spipe_blocks(c->count, 64), 64, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned), SPIPE_BUF(c, 1, unsigned), c->count,
                        g->from, num);
}

static cudaError_t gap_host_stage(const spipe_chunk_t *c, void *user) {
    const gap_t *g = (const gap_t *)user;
    const unsigned *x = SPIPE_BUF(c, 0, const unsigned);
    unsigned *y = SPIPE_BUF(c, 1, unsigned);
    size_t i;
    for (i = 0; i < c->count; ++i) {
        if (c->index != g->chunk || i < g->from || i >= g->from + g->num) y[i] = x[i] + 1;
    }
    return cudaSuccess;
}

static cudaError_t run_gap(spipe_schedule_t schedule, gap_t *g, int sink, unsigned *x, unsigned *y,
                           spipe_report_t *r) {
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.chunk = CHUNK;
    d.schedule = schedule;
    d.checked = 1;
    spipe_add_input(&d, x, sizeof *x);
    if (sink)
        spipe_add_sink(&d, take, NULL, sizeof *y, SPIPE_IN_ORDER);
    else
        spipe_add_output(&d, y, sizeof *y);
    if (!g->in_host_stage) spipe_add_stage(&d, "copy", gap_stage, g);
    if (g->in_host_stage)
        spipe_add_host_stage(&d, "copy", gap_host_stage, g, SPIPE_BIT(0), SPIPE_BIT(1));
    return spipe_run(&d, r);
}

static void test_unwritten(spipe_schedule_t schedule) {
    static const gap_t gaps[] = {{0, CHUNK - 1, 1, 0}, {3, 0, 1, 0},     {2, 30, 2, 0},
                                 {LAST, 0, CHUNK, 0},  {4, 40, 30, 0},   {1, CHUNK - 9, 9, 1},
                                 {5, 17, 1, 0},        {5, CHUNK, 1, 0}, {5, 0, 0, 1}};
    static unsigned pageable[2][N];
    unsigned *x = pageable[0], *y = pageable[1];
    size_t k;
    int sink;
    for (k = 0; k < N; ++k) x[k] = (unsigned)k * 2654435761u;
    for (k = 0; k < sizeof gaps / sizeof *gaps; ++k) {
        for (sink = 0; sink < 2; ++sink) {
            gap_t g = gaps[k];
            const size_t end = g.chunk == LAST ? N % CHUNK : CHUNK;
            const size_t num = g.from + g.num < end ? g.num : end - g.from;
            const size_t from = g.chunk * CHUNK + g.from;
            const int found = k < 6; /* one element in the middle may have the pattern by chance */
            spipe_report_t r;
            char words[80];
            const cudaError_t e = run_gap(schedule, &g, sink, x, y, &r);
            snprintf(words, sizeof words, "no stage wrote elements %zu to %zu of buffer 1 (%s)",
                     from, from + num - 1, sink ? "sink" : "output");
            if (found)
                tap_ok(e == cudaErrorInvalidValue && strstr(r.failure.message, words) &&
                           r.failure.chunk == g.chunk && r.failure.chunks_whole == g.chunk,
                       "%s: %s", spipe_schedule_name(schedule), r.failure.message);
            else
                tap_ok(e == cudaSuccess, "%s: what is written is not found%s%s",
                       spipe_schedule_name(schedule), e ? ": " : "", r.failure.message);
        }
    }
}

/* What a stage need not write: in/out elements keep what they were. */
static cudaError_t nothing_stage(const spipe_chunk_t *c, void *) {
    return SPIPE_LAUNCH(copy_but, 1, 1, 0, c->stream, SPIPE_BUF(c, 0, const unsigned),
                        SPIPE_BUF(c, 0, unsigned), 0, 0, 0);
}

static void test_kept_elements(spipe_schedule_t schedule) {
    static unsigned x[N];
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    d.count = N;
    d.chunk = CHUNK;
    d.schedule = schedule;
    d.checked = 1;
    spipe_add_inout(&d, x, sizeof *x);
    spipe_add_temp(&d, 4);
    spipe_add_stage(&d, "nothing", nothing_stage, NULL);
    tap_ok(spipe_run(&d, &r) == cudaSuccess,
           "%s: in/out and temporary buffers need not be written%s", spipe_schedule_name(schedule),
           r.failure.message);
}

static void test_host_past(spipe_schedule_t schedule) {
    static const long at[] = {CHUNK, -1, N % CHUNK};
    static const size_t bad[] = {2, 2, LAST};
    int k;
    for (k = 0; k < 3; ++k) {
        world_t w;
        cudaError_t e;
        world_new(&w, schedule, 1);
        w.host.buffer = 1;
        w.host.at = at[k];
        w.host.bad = bad[k];
        e = run(&w, k % 2);
        tap_ok(e == cudaErrorInvalidValue && names(&w.r, "'add'", bad[k], "buffer 1"),
               "%s, a host stage: %s", spipe_schedule_name(schedule), w.r.failure.message);
    }
}

static void test_streams(spipe_schedule_t schedule) {
    cudaStream_t own;
    int k;
    SPIPE_CHECK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
    for (k = 0; k < 3; ++k) {
        static const char *const how[] = {"nothing", "the default stream", "a stream of its own"};
        world_t w;
        cudaError_t e;
        world_new(&w, schedule, 0);
        w.device.nothing = k == 0;
        if (k > 0) w.device.stream = k == 1 ? cudaStreamLegacy : own;
        e = run(&w, k % 2);
        tap_ok(e == cudaErrorInvalidValue && names(&w.r, "'twice'", 0, "put nothing on its stream"),
               "%s, %s: %s", spipe_schedule_name(schedule), how[k], w.r.failure.message);
        SPIPE_CHECK(cudaDeviceSynchronize());
    }
    SPIPE_CHECK(cudaStreamDestroy(own));
}

/* What a capture cannot have is no mistake: the stage is called again. */
static cudaError_t waiting_stage(const spipe_chunk_t *c, void *user) {
    SPIPE_TRY(twice_stage(c, user));
    return cudaStreamSynchronize(c->stream);
}

static void test_waiting(spipe_schedule_t schedule) {
    world_t w;
    world_new(&w, schedule, 0);
    w.d.stages[0].fn = waiting_stage;
    tap_ok(run(&w, 0) == cudaSuccess && is_right(&w, 0), "%s: a stage that waits runs right",
           spipe_schedule_name(schedule));
}

/* Any other error is the stage's own, also if it comes once: it is not called again. */
static int once_calls;

static __global__ void nothing() {}

static cudaError_t failing_once_stage(const spipe_chunk_t *c, void *user) {
    return once_calls++ == 0 ? cudaErrorNotSupported : twice_stage(c, user);
}

static cudaError_t launching_wrong_once_stage(const spipe_chunk_t *c, void *user) {
    if (once_calls++ > 0) return twice_stage(c, user);
    (void)SPIPE_LAUNCH(nothing, 1, 4096, 0, c->stream); /* more threads than a block can have */
    return cudaSuccess;
}

static void test_once(spipe_schedule_t schedule) {
    static const spipe_stage_fn stages[] = {failing_once_stage, launching_wrong_once_stage};
    int k;
    for (k = 0; k < 2; ++k) {
        world_t w;
        cudaError_t e;
        world_new(&w, schedule, 0);
        w.d.stages[0].fn = stages[k];
        once_calls = 0;
        e = run(&w, 0);
        (void)cudaGetLastError();
        tap_ok(
            e != cudaSuccess && once_calls == 1 && names(&w.r, "'twice'", 0, "failed at chunk 0"),
            "%s, an error that comes once: %s", spipe_schedule_name(schedule), w.r.failure.message);
    }
}

/* What a stage that promised to be replayable enqueues: for each member that differs between two
   runs, a replay would have been wrong. */
typedef struct work {
    int factor, blocks_more, other_kernel, fill;
    const unsigned char *table; /* device memory */
    int more;                   /* one more kernel */
} work_t;

/* An argument with padding, which is something else in every call. */
typedef struct padded {
    const unsigned char *tables[3];
    unsigned char zero;
} padded_t;

static __global__ void times(const unsigned char *x, unsigned char *y, size_t n, int factor,
                             padded_t p) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = (unsigned char)(factor * x[i] + p.zero);
}

static __global__ void times_too(const unsigned char *x, unsigned char *y, size_t n, int factor,
                                 padded_t p) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = (unsigned char)(factor * x[i] + p.zero);
}

static cudaError_t work_stage(const spipe_chunk_t *c, void *user) {
    const work_t *w = (const work_t *)user;
    const unsigned blocks = spipe_blocks(c->count, 64) + (unsigned)w->blocks_more;
    const unsigned char *x = SPIPE_BUF(c, 0, const unsigned char);
    unsigned char *y = SPIPE_BUF(c, 1, unsigned char);
    void *temp = SPIPE_BUF_ROW(c, 3, unsigned char, 3);
    void (*kernel)(const unsigned char *, unsigned char *, size_t, int, padded_t) =
        w->other_kernel ? times_too : times;
    size_t n = c->count;
    int factor = w->factor;
    static int calls;
    static padded_t p;
    void *args[] = {&x, &y, &n, &factor, &p}; /* SPIPE_LAUNCH copies a struct by its members */
    memset((void *)&p, ++calls, sizeof p);
    p.tables[0] = p.tables[1] = p.tables[2] = w->table;
    p.zero = 0;
    SPIPE_TRY(cudaMemsetAsync(temp, w->fill, c->count, c->stream));
    SPIPE_TRY(cudaMemcpyAsync(temp, w->table, 16, cudaMemcpyDefault, c->stream));
    SPIPE_TRY(cudaLaunchKernel(kernel, dim3(blocks), dim3(64), args, 0, c->stream));
    if (!w->more) return cudaSuccess;
    return cudaLaunchKernel(kernel, dim3(blocks), dim3(64), args, 0, c->stream);
}

static void world_replayable(world_t *w, spipe_schedule_t schedule, work_t *work, int promised) {
    world_new(w, schedule, 0);
    w->d.stages[0].fn = work_stage;
    w->d.stages[0].user = work;
    if (promised) spipe_stage_replayable(&w->d, 0);
}

/* The third of four runs differs from the two before it, so the fourth does, too. */
static void test_lie(spipe_schedule_t schedule, const char *what, work_t before, work_t after) {
    int promised;
    for (promised = 0; promised < 2; ++promised) {
        spipe_pipeline_t *p;
        work_t work = before;
        cudaError_t e[4];
        world_t w;
        int k, told = 1;
        world_replayable(&w, schedule, &work, promised);
        SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
        for (k = 0; k < 4; ++k) {
            work = k == 2 ? after : before;
            e[k] = spipe_pipeline_run(p, &w.r);
            if (k >= 2 && promised) told &= names(&w.r, "'twice'", 0, "other work than in the run");
        }
        SPIPE_CHECK(spipe_pipeline_destroy(p));
        k = e[2] == cudaErrorInvalidValue && e[3] == cudaErrorInvalidValue && told;
        if (!promised) k = e[2] == cudaSuccess && e[3] == cudaSuccess;
        tap_ok(e[0] == cudaSuccess && e[1] == cudaSuccess && k, "%s, %s, %s: %s",
               spipe_schedule_name(schedule), what, promised ? "promised" : "not promised",
               w.r.failure.message);
    }
}

/* Other arrays and another count are no lie. */
static void test_no_lie(spipe_schedule_t schedule, work_t work) {
    static unsigned char other[N];
    spipe_pipeline_t *p;
    world_t w;
    int k, good = 1;
    world_replayable(&w, schedule, &work, 1);
    SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
    for (k = 0; k < 6; ++k) {
        if (k == 2) SPIPE_CHECK(spipe_pipeline_set_host(p, 0, other));
        if (k == 4) SPIPE_CHECK(spipe_pipeline_set_count(p, CHUNK / 2));
        good &= spipe_pipeline_run(p, &w.r) == cudaSuccess;
    }
    tap_ok(good && w.y[CHUNK / 2 - 1] == 0, "%s: other arrays and another count are no lie: %s",
           spipe_schedule_name(schedule), w.r.failure.message);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
}

/* Nor is a first chunk of another length: the source of a kept pipeline ends elsewhere. */
static size_t left_to_give;

static cudaError_t give(spipe_part_t *part, void *) {
    void *dst = part->data;
    const size_t most = part->count;
    size_t *count = &part->count;
    *count = left_to_give < most ? left_to_give : most;
    left_to_give -= *count;
    memset(dst, 1, *count);
    return cudaSuccess;
}

static void test_open_end(const unsigned char *table) {
    static const size_t lengths[] = {50, 50, 40, 50, N};
    work_t work = {2, 0, 0, 1, table, 0};
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    spipe_report_t r;
    size_t k;
    int good = 1;
    d.chunk = CHUNK;
    d.checked = 1;
    spipe_add_source(&d, give, NULL, 1, SPIPE_IN_ORDER);
    spipe_add_sink(&d, take, NULL, 1, SPIPE_IN_ORDER);
    spipe_add_resident(&d, NULL, 64, SPIPE_ZERO);
    spipe_add_temp(&d, 3);
    spipe_add_stage(&d, "twice", work_stage, &work);
    spipe_stage_replayable(&d, 0);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (k = 0; k < sizeof lengths / sizeof *lengths; ++k) {
        left_to_give = lengths[k];
        good &= spipe_pipeline_run(p, &r) == cudaSuccess;
    }
    tap_ok(good, "a first chunk of another length is no lie: %s", r.failure.message);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
}

static void test_replayable(spipe_schedule_t schedule, const unsigned char *table) {
    const work_t before = {2, 0, 0, 1, table, 0};
    work_t after[6];
    static const char *const what[] = {"an argument", "the grid", "the kernel",
                                       "a memset",    "a copy",   "one more"};
    int k;
    for (k = 0; k < 6; ++k) after[k] = before;
    after[0].factor = 3;
    after[1].blocks_more = 1;
    after[2].other_kernel = 1;
    after[3].fill = 2;
    after[4].table = table + 16;
    after[5].more = 1;
#if CUDART_VERSION >= 12040
    k = 0;
#else
    k = 1; /* older toolkits do not tell how large arguments are */
#endif
    for (; k < 6; ++k) test_lie(schedule, what[k], before, after[k]);
    test_no_lie(schedule, before);
}

#if defined(__HOSTCUDA__) && !defined(_WIN32)
/* Where a tool watches memory, each buffer of each slot is an allocation of its own. */
static void test_apart(void) {
    const char *name = "NV_SANITIZER_INJECTION_TRANSPORT_TYPE";
    const char *was = getenv(name);
    long before, calls;
    int good;
    world_t w;
    world_new(&w, SPIPE_SCHEDULE_ENGINES, 1);
    w.d.depth = 3;
    if (!was) setenv(name, "test", 1);
    before = hostcuda_calls("cudaMalloc");
    good = run(&w, 0) == cudaSuccess && is_right(&w, 1);
    calls = hostcuda_calls("cudaMalloc") - before;
    tap_ok(good && calls == 3 * 3 + 1 &&
               w.r.device_bytes == 3 * (CHUNK + 3 + CHUNK + 3 * CHUNK) + 64,
           "3 slots of 3 buffers, and one that is resident: %ld allocations, %zu bytes", calls,
           w.r.device_bytes);
    if (!was) unsetenv(name);
}
#endif

int main(void) {
    static const spipe_schedule_t schedules[] = {SPIPE_SCHEDULE_ENGINES, SPIPE_SCHEDULE_SERIAL,
                                                 SPIPE_SCHEDULE_ZERO_COPY};
    unsigned char *table;
    size_t s;
    SPIPE_CHECK(spipe_pinned_alloc((void **)&pinned_x, N));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&pinned_y, N));
    SPIPE_CHECK(cudaMalloc((void **)&table, 32));
    SPIPE_CHECK(cudaMemset(table, 0, 32));
    for (s = 0; s < sizeof schedules / sizeof *schedules; ++s) {
        test_right(schedules[s]);
        test_streams(schedules[s]);
        test_waiting(schedules[s]);
        test_once(schedules[s]);
        test_replayable(schedules[s], table);
        test_past(schedules[s]);
        test_host_past(schedules[s]);
        test_rest(schedules[s]);
        test_unwritten(schedules[s]);
        test_kept_elements(schedules[s]);
    }
    test_open_end(table);
#if defined(__HOSTCUDA__) && !defined(_WIN32)
    test_apart();
#endif
    SPIPE_CHECK(cudaFree(table));
    SPIPE_CHECK(spipe_pinned_free(pinned_x));
    SPIPE_CHECK(spipe_pinned_free(pinned_y));
    return tap_done();
}
