/*  test_limits.cu -- limits of a description: other counts and arrays of a pipeline, arrays
    pinned in part, sizes that overflow, few processors, an ordered stage in one stream. Each is
    refused in words or runs right; none writes out of bounds, and none hangs. */
#include "pipe_common.h"
#if defined(__linux__)
#include <sched.h>
#endif

static cudaError_t copy_stage(const spipe_chunk_t *c, void *user) {
    const size_t *bytes = (const size_t *)user;
    return cudaMemcpyAsync(c->data[1], c->data[0], c->count * *bytes, cudaMemcpyDefault, c->stream);
}

static size_t one_byte = 1, four_bytes = 4;

/* ---- Another count --------------------------------------------------------------------------- */

typedef struct stream_of_sevens {
    size_t given, most;
} stream_of_sevens_t;

static cudaError_t give_sevens(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t want = part->count;
    size_t *n = &part->count;
    stream_of_sevens_t *s = (stream_of_sevens_t *)user;
    *n = s->most - s->given < want ? s->most - s->given : want;
    memset(dst, 7, *n);
    s->given += *n;
    return cudaSuccess;
}

/* A source has as much as it likes; the array is as long as count said when it was given. */
static void test_count_of_a_source(size_t count, const char *name) {
    enum {
        LENGTH = 100
    };

    pipe_array_t y = pipe_array_new(4096, PIPE_PAGEABLE);
    stream_of_sevens_t sevens = {0, 4000};
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p = NULL;
    spipe_report_t r;
    size_t i, beyond = 0;
    cudaError_t e, f;
    pipe_poison(y);
    d.count = LENGTH;
    d.chunk = 10;
    d.staging = SPIPE_STAGING_COPY;
    spipe_add_source(&d, give_sevens, &sevens, 1, SPIPE_IN_ORDER);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "copy", copy_stage, &one_byte);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_run(p, &r));
    e = spipe_pipeline_set_count(p, count);
    tap_ok(e == cudaErrorInvalidValue && spipe_pipeline_failure(p)->error == e &&
               strstr(spipe_pipeline_failure(p)->message, "an array needs a length"),
           "%s: refused in words where a source feeds an array: %s", name,
           spipe_pipeline_failure(p)->message);
    sevens.given = 0;
    f = spipe_pipeline_run(p, &r);
    for (i = LENGTH; i < y.bytes; ++i) beyond += y.at[i] != 0xA5;
    tap_ok(f == cudaSuccess && r.count_done == LENGTH && beyond == 0,
           "%s: and the next run is as long as before, and writes nothing behind the array", name);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    pipe_free(&y);
}

static void test_changes_in_words(void) {
    pipe_array_t x = pipe_array_new(100, PIPE_PAGEABLE), y = pipe_array_new(100, PIPE_PAGEABLE);
    const spipe_failure_t *f;
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p = NULL;
    spipe_report_t r;
    memset(x.at, 1, 100);
    d.count = 25;
    spipe_add_input(&d, x.at, 4);
    spipe_add_output(&d, y.at, 4);
    spipe_add_temp(&d, 4);
    spipe_add_stage(&d, "copy", copy_stage, &four_bytes);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    f = spipe_pipeline_failure(p);
    tap_ok(spipe_pipeline_set_host(p, 0, NULL) == cudaErrorInvalidValue &&
               strstr(f->message, "buffer 0: the host array is NULL"),
           "set_host: %s", f->message);
    tap_ok(spipe_pipeline_set_host(p, 3, x.at) == cudaErrorInvalidValue &&
               strstr(f->message, "there is no buffer 3; the pipeline has 3"),
           "set_host: %s", f->message);
    tap_ok(spipe_pipeline_set_host(p, 2, x.at) == cudaErrorInvalidValue &&
               strstr(f->message, "buffer 2 (temp) has no host array"),
           "set_host: %s", f->message);
    tap_ok(spipe_pipeline_set_count(p, SIZE_MAX - 1) == cudaErrorInvalidValue &&
               strstr(f->message, "more than SIZE_MAX bytes"),
           "set_count: %s", f->message);
    tap_ok(spipe_pipeline_set_count(p, 20) == cudaSuccess && f->error == cudaSuccess &&
               spipe_pipeline_run(p, &r) == cudaSuccess && r.count_done == 20,
           "the refusals left the pipeline as it was");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    pipe_free(&x);
    pipe_free(&y);
}

/* ---- Arrays pinned in part ------------------------------------------------------------------- */

static void test_half_pinned(int elementwise, size_t chunk, spipe_staging_t staging) {
    const size_t n = (size_t)1 << 18, bytes = 4 * n;
    pipe_array_t y = pipe_array_new(bytes, PIPE_PINNED);
    unsigned char *raw = (unsigned char *)malloc(bytes + 4096), *x;
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    spipe_plan_t plan;
    spipe_failure_t f;
    cudaError_t e;
    int stage;
    if (!raw) exit(99);
    x = raw + (4096 - ((uintptr_t)raw & 4095));
    memset(x, 1, bytes);
    SPIPE_CHECK(spipe_pin(x, bytes / 2));
    pipe_poison(y);
    d.count = n;
    d.chunk = chunk;
    d.staging = staging;
    spipe_add_input(&d, x, 4);
    spipe_add_output(&d, y.at, 4);
    stage = spipe_add_stage(&d, "copy", copy_stage, &four_bytes);
    if (elementwise) spipe_stage_elementwise(&d, stage);
    e = spipe_run(&d, &r);
    tap_ok(e == cudaErrorInvalidValue && strstr(r.failure.message, "buffer 0: the first of its") &&
               strstr(r.failure.message, "pinned only in part") && y.at[0] == 0xA5 &&
               spipe_plan(&d, 0, &plan, &f) == e && strcmp(f.message, r.failure.message) == 0,
           "an array pinned in its first half%s is refused before anything runs: %s",
           elementwise ? " and an elementwise stage" : "", r.failure.message);
    SPIPE_CHECK(spipe_unpin(x));
    tap_ok(spipe_run(&d, &r) == cudaSuccess && memcmp(x, y.at, bytes) == 0,
           "and runs once it is not pinned any more");
    free(raw);
    pipe_free(&y);
}

/* A longer count reaches behind what is pinned. */
static void test_longer_than_pinned(void) {
    pipe_array_t y = pipe_array_new(1 << 16, PIPE_PAGEABLE);
    unsigned char *x = NULL;
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p = NULL;
    spipe_report_t r;
    SPIPE_CHECK(spipe_pinned_alloc((void **)&x, 4096));
    memset(x, 3, 4096);
    d.count = 4096;
    spipe_add_input(&d, x, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "copy", copy_stage, &one_byte);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    tap_ok(spipe_pipeline_set_count(p, 1 << 16) == cudaErrorInvalidValue &&
               strstr(spipe_pipeline_failure(p)->message, "is it too short"),
           "a count beyond what is pinned: %s", spipe_pipeline_failure(p)->message);
    tap_ok(spipe_pipeline_run(p, &r) == cudaSuccess && r.count_done == 4096,
           "and the pipeline keeps the count before");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    (void)spipe_pinned_free(x);
    pipe_free(&y);
}

/* ---- Sizes ----------------------------------------------------------------------------------- */

static void test_resident_sizes(void) {
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 255, SIZE_MAX - 399, SIZE_MAX / 2 + 1};
    unsigned char x[16] = {0};
    size_t k;
    for (k = 0; k < sizeof sizes / sizeof *sizes; ++k) {
        spipe_desc_t d = spipe_desc_default();
        spipe_failure_t f;
        d.count = 16;
        spipe_add_input(&d, x, 1);
        spipe_add_resident(&d, NULL, sizes[k], SPIPE_ZERO);
        spipe_add_resident(&d, NULL, sizes[k], SPIPE_ZERO);
        spipe_add_stage(&d, "copy", copy_stage, &one_byte);
        tap_ok(spipe_desc_check(&d, &f) == cudaErrorInvalidValue &&
                   strstr(f.message, "buffer 1 (resident): the buffer is too many bytes"),
               "two resident buffers of %zu bytes, whose sum overflows: %s", sizes[k], f.message);
    }
}

static void test_resident_without_use(void) {
    unsigned char x[16] = {0};
    spipe_desc_t d = spipe_desc_default();
    spipe_failure_t f;
    d.count = 16;
    spipe_add_input(&d, x, 1);
    spipe_add_resident(&d, x, 16, SPIPE_ZERO);
    spipe_add_stage(&d, "copy", copy_stage, &one_byte);
    tap_ok(spipe_desc_check(&d, &f) == cudaErrorInvalidValue &&
               strstr(f.message, "SPIPE_ZERO alone does not use its host array"),
           "%s", f.message);
}

/* Leaves part->count as it is: it gave all that it was asked for. */
static cudaError_t give_all(spipe_part_t *part, void *user) {
    (void)user;
    memset(part->data, 1, part->count);
    return cudaSuccess;
}

static void test_source_of_all(void) {
    unsigned char y[16] = {0};
    stream_of_sevens_t unused = {0, 0};
    spipe_desc_t d = spipe_desc_default();
    size_t i, ones = 0;
    cudaError_t e;
    d.count = 16;
    d.chunk = 5;
    spipe_add_source(&d, give_all, &unused, 1, SPIPE_IN_ORDER);
    spipe_add_output(&d, y, 1);
    spipe_add_stage(&d, "copy", copy_stage, &one_byte);
    e = spipe_run(&d, NULL);
    for (i = 0; i < 16; ++i) ones += y[i] == 1;
    tap_ok(e == cudaSuccess && ones == 16, "a source that leaves part->count gave all of the part");
}

/* What lies before a chunk by so many bytes as user says. */
static cudaError_t shifted_stage(const spipe_chunk_t *c, void *user) {
    const size_t before = *(const size_t *)user;
    return cudaMemcpyAsync(c->data[1], (unsigned char *)c->data[0] - before, c->count,
                           cudaMemcpyDefault, c->stream);
}

/* An edge of a million elements takes a few copies, and each element of it is the nearest one. */
static void test_wide_edge(size_t elem_bytes) {
    const size_t bytes = (size_t)1 << 20, count = bytes / elem_bytes, halo = count - 3;
    pipe_array_t x = pipe_array_new(bytes, PIPE_PINNED), y = pipe_array_new(count, PIPE_PINNED);
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    size_t before = halo * elem_bytes, i, wrong = 0;
    cudaError_t e;
    pipe_randomise(x);
    d.count = d.chunk = count;
    spipe_add_input(&d, x.at, elem_bytes);
    spipe_set_halo(&d, 0, halo, halo, SPIPE_EDGE_CLAMP);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "shifted", shifted_stage, &before);
    e = spipe_run(&d, &r);
    for (i = 0; i < count; ++i) {
        wrong += y.at[i] != x.at[i < before ? i % elem_bytes : i - before];
    }
    tap_ok(e == cudaSuccess && wrong == 0 && r.wall_ms < 5000.0,
           "elements of %zu bytes, a halo of all but three: the edge is the first element %s",
           elem_bytes, r.failure.message);
    pipe_free(&x);
    pipe_free(&y);
}

/* Chunks of one element with 16 MiB of scratch each, so many that their scratch is twice the GPU's
   memory: slots take a quarter of it at most. */
static void test_much_scratch(void) {
    const size_t scratch = (size_t)16 << 20;
    pipe_array_t x, y;
    spipe_desc_t d = spipe_desc_default();
    spipe_device_t facts;
    spipe_plan_t plan;
    SPIPE_CHECK(spipe_device_get(&facts, -1));
    d.count = 2 * (facts.memory_bytes / scratch);
    x = pipe_array_new(4 * d.count, PIPE_PINNED);
    y = pipe_array_new(4 * d.count, PIPE_PINNED);
    d.chunk = 1;
    spipe_add_input(&d, x.at, 4);
    spipe_add_output(&d, y.at, 4);
    spipe_add_temp(&d, scratch);
    spipe_add_stage(&d, "copy", copy_stage, &four_bytes);
    SPIPE_CHECK(spipe_plan(&d, 0, &plan, NULL));
    tap_ok((double)(plan.chunk * plan.depth) * (double)scratch <= 0.25 * (double)facts.memory_bytes,
           "scratch counts: %zu slots of %zu elements with 16 MiB each", plan.depth, plan.chunk);
    pipe_free(&x);
    pipe_free(&y);
}

/* ---- Few processors -------------------------------------------------------------------------- */

/* A peer that answers only when it has had all that it asked for. */
typedef struct peer {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    size_t asked, had;
    int stuck;
} peer_t;

enum {
    REQUESTS = 50
};

static cudaError_t ask(spipe_part_t *part, void *user) {
    void *dst = part->data;
    size_t *n = &part->count;
    peer_t *p = (peer_t *)user;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    pthread_mutex_lock(&p->lock);
    while (p->had < p->asked && !p->stuck) {
        if (pthread_cond_timedwait(&p->moved, &p->lock, &until) != 0) p->stuck = 1;
    }
    *n = p->asked < REQUESTS && !p->stuck;
    memset(dst, 1, *n * 4);
    p->asked += *n;
    pthread_mutex_unlock(&p->lock);
    return cudaSuccess;
}

static cudaError_t answer(const spipe_part_t *part, void *user) {
    const size_t n = part->count;
    peer_t *p = (peer_t *)user;
    pthread_mutex_lock(&p->lock);
    p->had += n;
    pthread_cond_signal(&p->moved);
    pthread_mutex_unlock(&p->lock);
    return cudaSuccess;
}

static void test_source_that_waits(size_t threads, int cpus) {
    peer_t p = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0};
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    d.chunk = 1;
    d.depth = 4;
    d.threads = threads;
    spipe_add_source(&d, ask, &p, 4, SPIPE_IN_ORDER);
    spipe_add_sink(&d, answer, &p, 4, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "copy", copy_stage, &four_bytes);
    tap_ok(spipe_run(&d, &r) == cudaSuccess && !p.stuck && p.had == REQUESTS,
           "%d processors, %s threads: a source may wait for what the sink has had", cpus,
           threads == 1 ? "1 + 1" : "as many as the library takes,");
}

static void test_few_processors(void) {
#if defined(__linux__) && defined(CPU_SET)
    cpu_set_t all, few;
    int cpus, k;
    if (sched_getaffinity(0, sizeof all, &all) != 0) exit(99);
    for (cpus = 1; cpus <= 2; ++cpus) {
        int taken = 0;
        CPU_ZERO(&few);
        for (k = 0; k < CPU_SETSIZE && taken < cpus; ++k) {
            if (CPU_ISSET((size_t)k, &all)) CPU_SET((size_t)k, &few);
            taken += CPU_ISSET((size_t)k, &all) != 0;
        }
        if (sched_setaffinity(0, sizeof few, &few) != 0) exit(99);
        test_source_that_waits(SPIPE_AUTO, cpus);
        test_source_that_waits(1, cpus);
    }
    if (sched_setaffinity(0, sizeof all, &all) != 0) exit(99);
#else
    tap_skip("few processors: a source may wait for what the sink has had", "needs affinity");
#endif
}

/* ---- An input that is written into ----------------------------------------------------------- */

static __global__ void twice_in_place(unsigned char *x, unsigned char *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] = (unsigned char)(2 * x[i]);
}

static __global__ void twice(const unsigned char *x, unsigned char *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = (unsigned char)(2 * x[i]);
}

/* What a stage does with its input. */
enum {
    READS,
    ASKS_AND_WRITES, /* with SPIPE_BUF, whose type says so */
    WRITES           /* through chunk->data, which says nothing */
};

static cudaError_t twice_stage(const spipe_chunk_t *c, void *user) {
    const unsigned blocks = spipe_blocks(c->count, 256);
    const int does = *(const int *)user;
    if (does == READS) {
        return SPIPE_LAUNCH(twice, blocks, 256, 0, c->stream, SPIPE_BUF(c, 0, const unsigned char),
                            SPIPE_BUF(c, 1, unsigned char), c->count);
    }
    return SPIPE_LAUNCH(twice_in_place, blocks, 256, 0, c->stream,
                        does == WRITES ? (unsigned char *)c->data[0]
                                       : SPIPE_BUF(c, 0, unsigned char),
                        SPIPE_BUF(c, 1, unsigned char), c->count);
}

/* A stage that works in place on a copy of its input is right. One that promised to be elementwise
   may be given the array itself, and with zero-copy each is given what is pinned. One that asks for
   memory to write is refused in any run; of the others a checked run names each before it is given
   the array. */
static void test_written_input(int memory, int elementwise, int does, int zero_copy, int checked) {
    enum {
        LENGTH = 5000
    };

    static const char *const acts[] = {"writes its output alone", "asks to write into its input",
                                       "works in place"};

    const int wrong_stage = does != READS && (elementwise || (zero_copy && memory == PIPE_PINNED));
    const int asks = does == ASKS_AND_WRITES && (elementwise || !checked);
    if (wrong_stage && does == WRITES && !checked) return; /* nobody can see that */
    pipe_array_t x = pipe_array_new(LENGTH, memory), y = pipe_array_new(LENGTH, memory);
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    size_t i, changed = 0, wrong = 0;
    cudaError_t e;
    int stage, named;
    for (i = 0; i < LENGTH; ++i) x.at[i] = (unsigned char)(i * 5 + 1);
    d.count = LENGTH;
    d.chunk = 1000;
    d.checked = checked;
    if (zero_copy) d.schedule = SPIPE_SCHEDULE_ZERO_COPY;
    if (elementwise && !zero_copy) d.chunk = SPIPE_AUTO; /* so that it may be zero-copy */
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    stage = spipe_add_stage(&d, "twice", twice_stage, &does);
    if (elementwise) spipe_stage_elementwise(&d, stage);
    e = spipe_run(&d, &r);
    for (i = 0; i < LENGTH; ++i) changed += x.at[i] != (unsigned char)(i * 5 + 1);
    for (i = 0; i < LENGTH; ++i) wrong += y.at[i] != (unsigned char)(2 * (i * 5 + 1));
    named = e == cudaErrorInvalidValue && r.failure.stage == 0 && r.failure.chunk == 0 &&
            strstr(r.failure.message,
                   asks ? "stage 'twice' failed at chunk 0: it takes buffer 0 (input) as if to "
                          "write into it"
                        : "stage 'twice' wrote into buffer 0, an input, at chunk 0");
    const char *called = elementwise ? "is called elementwise and " : "";
    const char *how = zero_copy ? ", zero-copy" : "";
    const char *how_run = checked ? ", checked" : "";
    tap_ok(changed == 0 && (wrong_stage ? named : e == cudaSuccess && wrong == 0),
           "%s%s%s, a stage that %s%s: the input stays as it is%s%s", pipe_memory_names[memory],
           how_run, how, called, acts[does], named ? "; " : "", r.failure.message);
    pipe_free(&x);
    pipe_free(&y);
}

/* One array as input and as output, without a halo: each chunk is read before it is written. */
static void test_one_array(int memory, spipe_schedule_t schedule) {
    enum {
        LENGTH = 5000
    };

    const int does = READS;
    pipe_array_t x = pipe_array_new(LENGTH, memory);
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    size_t i, wrong = 0;
    cudaError_t e;
    for (i = 0; i < LENGTH; ++i) x.at[i] = (unsigned char)(i * 5 + 1);
    d.count = LENGTH;
    d.chunk = 300;
    d.schedule = schedule;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, x.at, 1);
    spipe_add_stage(&d, "twice", twice_stage, (void *)&does);
    e = spipe_run(&d, &r);
    for (i = 0; i < LENGTH; ++i) wrong += x.at[i] != (unsigned char)(2 * (i * 5 + 1));
    tap_ok(e == cudaSuccess && wrong == 0, "%s, %s: an array may be input and output: %s",
           pipe_memory_names[memory], spipe_schedule_name(schedule), r.failure.message);
    pipe_free(&x);
}

/* A host stage says what it writes, so an input that it writes is copied, with zero-copy, too. */
static cudaError_t negate_stage(const spipe_chunk_t *c, void *user) {
    unsigned char *x = SPIPE_BUF(c, 0, unsigned char);
    size_t i;
    (void)user;
    for (i = 0; i < c->count; ++i) x[i] = (unsigned char)~x[i];
    return cudaSuccess;
}

static void test_host_writes_input(int memory) {
    enum {
        LENGTH = 5000
    };

    pipe_array_t x = pipe_array_new(LENGTH, memory), y = pipe_array_new(LENGTH, memory);
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    size_t i, changed = 0, wrong = 0;
    cudaError_t e;
    for (i = 0; i < LENGTH; ++i) x.at[i] = (unsigned char)(i * 5 + 1);
    d.count = LENGTH;
    d.chunk = 1000;
    d.schedule = SPIPE_SCHEDULE_ZERO_COPY;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_host_stage(&d, "negate", negate_stage, NULL, SPIPE_BIT(0), SPIPE_BIT(0));
    spipe_add_stage(&d, "copy", copy_stage, &one_byte);
    e = spipe_run(&d, &r);
    for (i = 0; i < LENGTH; ++i) changed += x.at[i] != (unsigned char)(i * 5 + 1);
    for (i = 0; i < LENGTH; ++i) wrong += y.at[i] != (unsigned char)~(i * 5 + 1);
    tap_ok(e == cudaSuccess && changed == 0 && wrong == 0,
           "%s, zero-copy, a host stage that writes an input: the array stays as it is: %s",
           pipe_memory_names[memory], r.failure.message);
    pipe_free(&x);
    pipe_free(&y);
}

/* ---- An ordered stage in one stream ---------------------------------------------------------- */

static __global__ void number(const int *x, int *y, int *last, size_t n) {
    if (blockIdx.x || threadIdx.x) return;
    for (size_t i = 0; i < n; ++i) y[i] = x[i] + (*last)++;
}

static cudaError_t number_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(number, 1, 1, 0, c->stream, SPIPE_BUF(c, 0, const int),
                        SPIPE_BUF(c, 1, int), SPIPE_BUF(c, 2, int), c->count);
}

/* Whether each event that the program waits for is one that it records: a GPU takes any other for
   no wait at all. */
static int waits_are_recorded(const spipe_pipeline_t *pipeline) {
    const spipe_priv_pipeline_t *p = (const spipe_priv_pipeline_t *)(const void *)pipeline;
    const spipe_priv_op_t *ops = p->program.ops;
    const size_t num = p->plan.depth * p->program.parities * p->program.num_ops;
    size_t k, j;
    for (k = 0; k < num; ++k) {
        if (!ops[k].wait) continue;
        for (j = 0; j < num && ops[j].done != ops[k].wait; ++j) continue;
        if (j == num) return 0;
    }
    return num > 0;
}

/* A graph of a captured run: launched once, and looked at. */
static int captured_is_right(spipe_pipeline_t *p, const int *x, int *y, int n) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaStream_t q;
    int i, wrong = 0;
    SPIPE_CHECK(spipe_stream_create(&q, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(cudaStreamBeginCapture(q, cudaStreamCaptureModeThreadLocal));
    wrong += spipe_pipeline_enqueue(p, q) != cudaSuccess;
    wrong += cudaStreamEndCapture(q, &graph) != cudaSuccess;
    if (wrong) tap_note("%s", spipe_pipeline_failure(p)->message);
    (void)cudaGetLastError();
    memset(y, 0xA5, (size_t)n * sizeof *y);
    if (!wrong) {
        SPIPE_CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
        SPIPE_CHECK(cudaGraphLaunch(exec, q));
        SPIPE_CHECK(cudaStreamSynchronize(q));
        SPIPE_CHECK(cudaGraphExecDestroy(exec));
    }
    for (i = 0; i < n; ++i) wrong += y[i] != x[i] + i;
    if (graph) SPIPE_CHECK(cudaGraphDestroy(graph));
    SPIPE_CHECK(cudaStreamDestroy(q));
    return wrong == 0;
}

static void test_ordered(spipe_schedule_t schedule, size_t depth, int run_before) {
    enum {
        LENGTH = 100
    };

    pipe_array_t x = pipe_array_new(4 * LENGTH, PIPE_PINNED);
    pipe_array_t y = pipe_array_new(4 * LENGTH, PIPE_PINNED);
    int *in = (int *)(void *)x.at, *out = (int *)(void *)y.at, i, good = 1;
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p = NULL;
    for (i = 0; i < LENGTH; ++i) in[i] = 3 * i;
    d.count = LENGTH;
    d.chunk = 10;
    d.depth = depth;
    d.schedule = schedule;
    spipe_add_input(&d, in, 4);
    spipe_add_output(&d, out, 4);
    spipe_add_resident(&d, NULL, 4, SPIPE_ZERO);
    spipe_stage_ordered(&d, spipe_add_stage(&d, "number", number_stage, NULL));
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    if (run_before) {
        SPIPE_CHECK(spipe_pipeline_run(p, NULL));
        for (i = 0; i < LENGTH; ++i) good &= out[i] == in[i] + i;
    }
    tap_ok(good && captured_is_right(p, in, out, LENGTH),
           "%s, %zu slots, an ordered stage: captured %s a run, it carries its state on",
           spipe_schedule_name(schedule), depth, run_before ? "after" : "before");
    tap_ok(waits_are_recorded(p), "and waits for no event that is never recorded");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    pipe_free(&x);
    pipe_free(&y);
}

int main(void) {
    static const spipe_schedule_t schedules[] = {SPIPE_SCHEDULE_ENGINES, SPIPE_SCHEDULE_SERIAL};
    size_t s, depth;
    test_count_of_a_source(0, "a count of 0");
    test_count_of_a_source(SPIPE_AUTO, "a count of SPIPE_AUTO");
    test_changes_in_words();
    test_half_pinned(0, 40000, SPIPE_STAGING_AUTO);
    test_half_pinned(0, 40000, SPIPE_STAGING_COPY);
    test_half_pinned(1, SPIPE_AUTO, SPIPE_STAGING_AUTO);
    test_longer_than_pinned();
    test_resident_sizes();
    test_resident_without_use();
    test_source_of_all();
    test_wide_edge(1);
    test_wide_edge(12);
    if (sizeof(size_t) > 4) test_much_scratch(); /* or the sum is more than SIZE_MAX */
    test_few_processors();
    for (s = 0; s < 48; ++s) {
        test_written_input(s & 1 ? PIPE_PINNED : PIPE_PAGEABLE, s >> 1 & 1, (int)s / 16, s >> 2 & 1,
                           s >> 3 & 1);
    }
    test_host_writes_input(PIPE_PAGEABLE);
    test_host_writes_input(PIPE_PINNED);
    for (s = 0; s < sizeof schedules / sizeof *schedules; ++s) {
        test_one_array(PIPE_PAGEABLE, schedules[s]);
        test_one_array(PIPE_PINNED, schedules[s]);
        for (depth = 1; depth <= 4; ++depth) {
            test_ordered(schedules[s], depth, 0);
            test_ordered(schedules[s], depth, 1);
        }
    }
    return tap_done();
}
