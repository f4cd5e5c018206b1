/*  test_mistakes.cu -- each mistake that the library can see, made once: it is refused, with a
    sentence that names it. What no sentence can name is made, too, where that shows something; the
    sanitizers' part is in tests/cli/mistakes.sh. With --page it prints docs/MISTAKES.md; without,
    it compares. */
#include "pipe_common.h"
#include "streampipe_files.h"
#include "streampipe_timeline.h"

enum {
    N = 1000,
    CHUNK = 100
};

#define OLDER              (CUDART_VERSION < 13000) /* refuses launches with another error */
#define POINTER_IS_AS_LONG (sizeof(void *) == sizeof(float)) /* as an element: 32 bits */

static float x[N], y[N];
static double wide[N];
static char out_text[1 << 16]; /* the page */

static __global__ void twice(const float *in, float *out, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2.0f * in[i];
}
SPIPE_MAP_STAGE(twice_stage, twice, float, float)

static __global__ void twice_past(const float *in, float *out) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    out[i] = 2.0f * in[i];
}

static cudaError_t past_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(twice_past, spipe_blocks(c->count, 64), 64, 0, c->stream,
                        SPIPE_BUF(c, 0, const float), SPIPE_BUF(c, 1, float));
}

static cudaError_t default_stream_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(twice, spipe_blocks(c->count, 64), 64, 0, cudaStreamLegacy,
                        SPIPE_BUF(c, 0, const float), SPIPE_BUF(c, 1, float), c->count);
}

static __global__ void twice_in_place(float *v, float *out, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = v[i] = 2.0f * v[i];
}

static cudaError_t in_place_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(twice_in_place, spipe_blocks(c->count, 64), 64, 0, c->stream,
                        (float *)c->data[0], SPIPE_BUF(c, 1, float), c->count);
}

static cudaError_t asking_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(twice_in_place, spipe_blocks(c->count, 64), 64, 0, c->stream,
                        SPIPE_BUF(c, 0, float), SPIPE_BUF(c, 1, float), c->count);
}

static __global__ void times(const float *in, float *out, size_t n, float factor) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = factor * in[i];
}

static cudaError_t times_stage(const spipe_chunk_t *c, void *user) {
    return SPIPE_LAUNCH(times, spipe_blocks(c->count, 64), 64, 0, c->stream,
                        SPIPE_BUF(c, 0, const float), SPIPE_BUF(c, 1, float), c->count,
                        *(const float *)user);
}

static cudaError_t third_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(twice, 1, 1, 0, c->stream, SPIPE_BUF(c, 0, const float),
                        SPIPE_BUF(c, 2, float), c->count);
}

static cudaError_t pixel_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(twice, 1, 1, 0, c->stream, SPIPE_BUF(c, 0, const float),
                        SPIPE_BUF_ROW(c, 1, float, 3), c->count);
}

static cudaError_t fft_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return spipe_chunk_fail(c, "cufftExecC2C returned %d", 5);
}

static cudaError_t bad_launch_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(twice, 1, 4096, 0, c, SPIPE_BUF(c, 0, const float), SPIPE_BUF(c, 1, float),
                        c->count);
}

static cudaError_t host_stage(const spipe_chunk_t *c, void *user) {
    const int buffer = user ? *(const int *)user : 1;
    SPIPE_BUF(c, buffer, float)[0] += 1.0f;
    return cudaSuccess;
}

static cudaError_t small_grid_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(twice, (unsigned)(c->count / 64), 64, 0, c->stream,
                        SPIPE_BUF(c, 0, const float), SPIPE_BUF(c, 1, float), c->count);
}

static cudaError_t number_stage(const spipe_chunk_t *c, void *user) {
    (void)c;
    (void)user;
    return (cudaError_t)5000;
}

static cudaError_t long_source(spipe_part_t *part, void *) {
    const size_t most = part->count;
    size_t *count = &part->count;
    *count = most + 1;
    return cudaSuccess;
}

static spipe_desc_t good(void) {
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.chunk = CHUNK;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "twice", twice_stage, NULL);
    return d;
}

static spipe_desc_t with_stage(spipe_stage_fn fn) {
    spipe_desc_t d = good();
    d.stages[0].fn = fn;
    return d;
}

static cudaError_t run(const spipe_desc_t *d, spipe_failure_t *f) {
    spipe_report_t r;
    const cudaError_t e = spipe_run(d, &r);
    *f = r.failure;
    return e;
}

/* ---- The mistakes: each makes one, and returns what the library did ------------------------ */
#if !defined(_WIN32) /* they are made with POSIX calls */
/* ---- files ----------------------------------------------------------------------------------- */
/* In a folder of their own, so that the sentences name no other: records.bin has N floats, and
   more.bin one more. */
static char files_folder[64];
static int files_before = -1; /* the folder to go back to */

static void files_begin(void) {
    static const char *const names[2] = {"records.bin", "more.bin"};
    int k;
    snprintf(files_folder, sizeof files_folder, "/tmp/streampipe_mistakes.XXXXXX");
    files_before = open(".", O_RDONLY);
    if (files_before < 0 || !mkdtemp(files_folder) || chdir(files_folder) != 0) exit(99);
    for (k = 0; k < 2; ++k) {
        FILE *f = fopen(names[k], "wb");
        if (!f || fwrite(x, sizeof *x, N, f) != N) exit(99);
        if (k == 1 && fwrite(x, sizeof *x, 1, f) != 1) exit(99);
        if (fclose(f) != 0) exit(99);
    }
}

static void files_end(void) {
    (void)remove("records.bin");
    (void)remove("more.bin");
    if (fchdir(files_before) != 0 || rmdir(files_folder) != 0) exit(99);
    (void)close(files_before);
}

/* From a file, or two, to an output of a kind. */
typedef struct files {
    spipe_file_t in, more, out;
    spipe_desc_t d;
} files_t;

static files_t *files_open(void) {
    static files_t f;
    files_begin();
    SPIPE_CHECK(spipe_file_open(&f.in, "records.bin", NULL));
    SPIPE_CHECK(spipe_file_open(&f.more, "more.bin", NULL));
    SPIPE_CHECK(spipe_file_create(&f.out, "result.bin", NULL));
    f.d = spipe_desc_default();
    f.d.chunk = CHUNK;
    spipe_add_file_input(&f.d, &f.in, sizeof(float));
    spipe_add_stage(&f.d, "twice", twice_stage, NULL);
    return &f;
}

static cudaError_t files_close(files_t *f, cudaError_t e) {
    spipe_file_close(&f->in);
    spipe_file_close(&f->more);
    spipe_file_close(&f->out);
    files_end();
    return e;
}

static cudaError_t files_run(files_t *f, spipe_failure_t *why) {
    spipe_report_t r;
    const cudaError_t e = spipe_run(&f->d, &r);
    *why = r.failure;
    return files_close(f, e);
}

static cudaError_t file_and_array(spipe_failure_t *f) {
    files_t *w = files_open();
    spipe_add_output(&w->d, y, sizeof *y);
    return files_run(w, f);
}

static cudaError_t two_files(spipe_failure_t *f) {
    files_t *w = files_open();
    spipe_add_file_input(&w->d, &w->more, sizeof(float));
    return files_run(w, f);
}

static cudaError_t beyond_the_file(spipe_failure_t *f) {
    files_t *w = files_open();
    spipe_add_file_output(&w->d, &w->out, sizeof(float));
    w->d.count = 2 * N;
    return files_run(w, f);
}

static cudaError_t assigned_bytes(spipe_failure_t *f) {
    files_t *w = files_open();
    w->d.num_buffers = 0;
    w->in.bytes = 400;
    spipe_add_file_input(&w->d, &w->in, sizeof(float));
    return files_run(w, f);
}

static cudaError_t copied_file(spipe_failure_t *f) {
    files_t *w = files_open();
    spipe_file_t copy = w->out;
    spipe_add_file_output(&w->d, &copy, sizeof(float));
    return files_run(w, f);
}

static cudaError_t stops(const spipe_chunk_t *c, void *user) {
    (void)user;
    return c->index < 3 ? cudaSuccess : cudaErrorNotSupported;
}

static cudaError_t commits_failure(spipe_failure_t *f) {
    files_t *w = files_open();
    spipe_add_file_output(&w->d, &w->out, sizeof(float));
    w->d.stages[0].fn = stops;
    if (spipe_run(&w->d, NULL) == cudaSuccess) exit(99);
    return files_close(w, spipe_file_commit(&w->out, SPIPE_AUTO, f));
}

static cudaError_t commits_nothing(spipe_failure_t *f) {
    files_t *w = files_open();
    spipe_add_file_output(&w->d, &w->out, sizeof(float));
    return files_close(w, spipe_file_commit(&w->out, SPIPE_AUTO, f));
}

static cudaError_t runs_when_committed(spipe_failure_t *f) {
    files_t *w = files_open();
    spipe_add_file_output(&w->d, &w->out, sizeof(float));
    SPIPE_CHECK_RUN(&w->d, NULL);
    SPIPE_CHECK(spipe_file_commit(&w->out, SPIPE_AUTO, NULL));
    (void)remove("result.bin");
    return files_run(w, f);
}

static cudaError_t two_at_once(spipe_failure_t *f) {
    files_t *w = files_open();
    spipe_pipeline_t *p;
    spipe_report_t r;
    spipe_chunk_t c;
    cudaError_t e;
    spipe_desc_t first;
    w->in.way = SPIPE_FILE_ORDERED;
    w->d.num_buffers = 0;
    spipe_add_file_input(&w->d, &w->in, sizeof(float));
    spipe_add_temp(&w->d, sizeof(float));
    first = w->d;
    first.num_stages = 0;
    SPIPE_CHECK(spipe_pipeline_create(&p, &first, NULL));
    SPIPE_CHECK(spipe_pipeline_next(p, NULL, &c));
    e = spipe_run(&w->d, &r);
    *f = r.failure;
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    return files_close(w, e);
}

static cudaError_t pipe_again(spipe_failure_t *f) {
    files_t *w = files_open();
    spipe_file_t in;
    spipe_report_t r;
    int ends[2], was = dup(0);
    if (pipe(ends) != 0 || write(ends[1], x, 40) != 40 || dup2(ends[0], 0) < 0) exit(99);
    (void)close(ends[0]);
    (void)close(ends[1]);
    SPIPE_CHECK(spipe_file_open(&in, "-", NULL));
    if (was >= 0) (void)dup2(was, 0);
    if (was >= 0) (void)close(was);
    w->d.num_buffers = 0;
    spipe_add_file_input(&w->d, &in, sizeof(float));
    spipe_add_temp(&w->d, sizeof(float));
    SPIPE_CHECK_RUN(&w->d, NULL);
    (void)spipe_run(&w->d, &r);
    *f = r.failure;
    spipe_file_close(&in);
    return files_close(w, f->error);
}
#endif

typedef cudaError_t (*mistake_fn)(spipe_failure_t *f);

static cudaError_t size_of_pointer(spipe_failure_t *f) {
    const float *pointer = x;
    spipe_desc_t d = good();
    d.buffers[0].elem_bytes = sizeof pointer;
    d.count = N / 2;
    return run(&d, f);
}

static cudaError_t other_type(spipe_failure_t *f) {
    spipe_desc_t d = good();
    d.buffers[0].host = wide;
    d.buffers[0].elem_bytes = sizeof *wide;
    return run(&d, f);
}

static cudaError_t wrong_row(spipe_failure_t *f) {
    spipe_desc_t d = with_stage(pixel_stage);
    return run(&d, f);
}

static cudaError_t wrong_order(spipe_failure_t *f) {
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.chunk = CHUNK;
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_stage(&d, "twice", twice_stage, NULL);
    return run(&d, f);
}

static cudaError_t no_such_buffer(spipe_failure_t *f) {
    spipe_desc_t d = with_stage(third_stage);
    return run(&d, f);
}

static cudaError_t undeclared(spipe_failure_t *f) {
    static const int input = 0;
    spipe_desc_t d = good();
    spipe_add_host_stage(&d, "add", host_stage, (void *)&input, 0, SPIPE_BIT(1));
    return run(&d, f);
}

static cudaError_t only_read(spipe_failure_t *f) {
    static const int output = 1;
    spipe_desc_t d = good();
    d.checked = 1;
    spipe_add_host_stage(&d, "add", host_stage, (void *)&output, SPIPE_BIT(1), 0);
    return run(&d, f);
}

static cudaError_t numbers_for_masks(spipe_failure_t *f) {
    spipe_desc_t d = good();
    spipe_add_host_stage(&d, "add", host_stage, NULL, 0, 4);
    return run(&d, f);
}

static cudaError_t masks_of_nothing(spipe_failure_t *f) {
    spipe_desc_t d = good();
    spipe_add_host_stage(&d, "add", host_stage, NULL, 0, 0);
    return run(&d, f);
}

static cudaError_t no_array(spipe_failure_t *f) {
    spipe_desc_t d = good();
    d.buffers[1].host = NULL;
    return run(&d, f);
}

static cudaError_t shifted(spipe_failure_t *f) {
    spipe_desc_t d = good();
    d.count = N - 1;
    d.buffers[1].host = x + 1;
    return run(&d, f);
}

static cudaError_t in_place_with_halo(spipe_failure_t *f) {
    spipe_desc_t d = good();
    d.buffers[1].host = x;
    spipe_set_halo(&d, 0, 1, 1, SPIPE_EDGE_CLAMP);
    return run(&d, f);
}

static cudaError_t one_array_twice(spipe_failure_t *f) {
    spipe_desc_t d = good();
    spipe_add_output(&d, y, sizeof *y);
    return run(&d, f);
}

static cudaError_t wide_halo(spipe_failure_t *f) {
    spipe_desc_t d = good();
    spipe_set_halo(&d, 0, d.chunk + 1, 0, SPIPE_EDGE_CLAMP);
    return run(&d, f);
}

static cudaError_t useless_array(spipe_failure_t *f) {
    spipe_desc_t d = good();
    spipe_add_resident(&d, wide, sizeof wide, SPIPE_ZERO);
    return run(&d, f);
}

static cudaError_t partly_pinned(spipe_failure_t *f) {
    spipe_desc_t d = good();
    float *pinned, *room;
    cudaError_t e;
    SPIPE_CHECK(spipe_pinned_alloc((void **)&pinned, sizeof x));
    d.buffers[0].host = pinned;
    d.count = 1 << 20; /* where the array has a thousand */
    room = (float *)malloc(2 * d.count * sizeof(float));
    d.buffers[1].host = room + d.count; /* not within a million elements of the pinned array */
    e = run(&d, f);
    free(room);
    SPIPE_CHECK(spipe_pinned_free(pinned));
    return e;
}

static cudaError_t no_count(spipe_failure_t *f) {
    spipe_desc_t d = good();
    d.count = SPIPE_AUTO;
    return run(&d, f);
}

static cudaError_t never_begun(spipe_failure_t *f) {
    spipe_desc_t d;
    memset((void *)&d, 0, sizeof d);
    d.count = N;
    spipe_add_input(&d, x, sizeof *x);
    return run(&d, f);
}

static cudaError_t timeline_never_begun(spipe_failure_t *f) {
    spipe_timeline_t t;
    spipe_desc_t d = good();
    memset((void *)&t, 0, sizeof t);
    d.timeline = &t;
    return run(&d, f);
}

static cudaError_t refused_call(spipe_pipeline_t *p, spipe_failure_t *f) {
    spipe_report_t r;
    const cudaError_t e = spipe_pipeline_run(p, &r);
    *f = r.failure;
    return e;
}

static cudaError_t null_pipeline(spipe_failure_t *f) { return refused_call(NULL, f); }

static cudaError_t still_no_array(spipe_failure_t *f) {
    spipe_desc_t d = good();
    spipe_pipeline_t *p;
    cudaError_t e;
    d.buffers[0].host = NULL;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    e = refused_call(p, f);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    return e;
}

/* The pipeline, as the stage sees it. */
typedef struct inner {
    spipe_pipeline_t *p;
    spipe_failure_t f;
    cudaError_t run, destroy;
} inner_t;

static cudaError_t nested_stage(const spipe_chunk_t *c, void *user) {
    inner_t *in = (inner_t *)user;
    if (in->p) in->run = refused_call(in->p, &in->f);
    if (in->p) in->destroy = spipe_pipeline_destroy(in->p);
    return twice_stage(c, NULL);
}

static cudaError_t run_in_stage(spipe_failure_t *f) {
    spipe_desc_t d = with_stage(nested_stage);
    inner_t in = {NULL, {}, cudaSuccess, cudaSuccess};
    d.stages[0].user = &in;
    SPIPE_CHECK(spipe_pipeline_create(&in.p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_run(in.p, NULL));
    *f = in.f;
    SPIPE_CHECK(spipe_pipeline_destroy(in.p));
    return in.destroy == in.run ? in.run : cudaSuccess;
}

static cudaError_t too_long(spipe_failure_t *f) {
    spipe_desc_t d = good();
    d.num_buffers = 0;
    spipe_add_source(&d, long_source, NULL, sizeof *x, SPIPE_IN_ORDER);
    spipe_add_output(&d, y, sizeof *y);
    return run(&d, f);
}

static cudaError_t bad_launch(spipe_failure_t *f) {
    spipe_desc_t d = with_stage(bad_launch_stage);
    return run(&d, f);
}

static cudaError_t own_words(spipe_failure_t *f) {
    spipe_desc_t d = with_stage(fft_stage);
    return run(&d, f);
}

static cudaError_t no_error_of_cuda(spipe_failure_t *f) {
    spipe_desc_t d = with_stage(number_stage);
    return run(&d, f);
}

static cudaError_t same_name(spipe_failure_t *f) {
    spipe_desc_t d = good();
    spipe_add_stage(&d, "twice", twice_stage, NULL);
    return run(&d, f);
}

static cudaError_t circle(spipe_failure_t *f) {
    spipe_desc_t d = good();
    spipe_stage_after(&d, 0, "again");
    spipe_add_stage(&d, "again", twice_stage, NULL);
    return run(&d, f);
}

static cudaError_t past_the_end(spipe_failure_t *f) {
    spipe_desc_t d = with_stage(past_stage);
    d.checked = 1;
    return run(&d, f);
}

static cudaError_t default_stream(spipe_failure_t *f) {
    spipe_desc_t d = with_stage(default_stream_stage);
    cudaError_t e;
    d.checked = 1;
    e = run(&d, f);
    SPIPE_CHECK(cudaDeviceSynchronize());
    return e;
}

static cudaError_t input_to_write(spipe_failure_t *f) {
    spipe_desc_t d = with_stage(asking_stage);
    spipe_stage_elementwise(&d, 0);
    return run(&d, f);
}

static cudaError_t broken_promise(spipe_failure_t *f) {
    spipe_desc_t d = with_stage(in_place_stage);
    d.checked = 1;
    spipe_stage_elementwise(&d, 0);
    return run(&d, f);
}

static cudaError_t other_work(spipe_failure_t *f) {
    spipe_desc_t d = with_stage(times_stage);
    float factor = 2.0f;
    spipe_pipeline_t *p;
    cudaError_t e;
    d.checked = 1;
    d.stages[0].user = &factor;
    spipe_stage_replayable(&d, 0);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_run(p, NULL));
    factor = 3.0f;
    e = refused_call(p, f);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    return e;
}

static cudaError_t small_grid(spipe_failure_t *f) {
    spipe_desc_t d = with_stage(small_grid_stage);
    d.checked = 1;
    return run(&d, f);
}

/* A loop that takes two chunks, and releases one, or three. */
static cudaError_t loop(int releases, int checked, spipe_failure_t *f) {
    spipe_desc_t d = good();
    spipe_pipeline_t *p;
    spipe_chunk_t c;
    cudaError_t e = cudaSuccess;
    int k;
    d.num_stages = 0;
    d.checked = checked;
    d.depth = 2;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (k = 0; k < 2; ++k) SPIPE_CHECK(spipe_pipeline_next(p, NULL, &c));
    for (k = 0; k < releases && e == cudaSuccess; ++k) e = spipe_pipeline_release(p, NULL);
    *f = *spipe_pipeline_failure(p);
    (void)spipe_pipeline_end(p, NULL);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    return e;
}

static cudaError_t released_twice(spipe_failure_t *f) { return loop(3, 0, f); }

static cudaError_t released_early(spipe_failure_t *f) { return loop(1, 1, f); }

static cudaError_t no_chunk_more(spipe_failure_t *f) {
    spipe_desc_t d = good();
    spipe_pipeline_t *p;
    spipe_chunk_t c;
    cudaError_t e;
    d.num_stages = 0;
    d.depth = 2;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    do {
        e = spipe_pipeline_next(p, NULL, &c);
    } while (e == cudaSuccess);
    *f = *spipe_pipeline_failure(p);
    (void)spipe_pipeline_end(p, NULL);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    return e;
}

static const char *const OUT_FILE = "mistake.out";

static cudaError_t one_path_twice(spipe_failure_t *f) {
    spipe_desc_t d = spipe_desc_default();
    spipe_file_t a, b;
    cudaError_t e;
    d.count = N;
    SPIPE_CHECK(spipe_file_create(&a, OUT_FILE, NULL));
    SPIPE_CHECK(spipe_file_create(&b, OUT_FILE, NULL));
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_file_output(&d, &a, sizeof *x);
    spipe_add_file_output(&d, &b, sizeof *x);
    spipe_add_stage(&d, "twice", twice_stage, NULL);
    e = run(&d, f);
    spipe_file_close(&a);
    spipe_file_close(&b);
    return e;
}

/* ---- What no sentence tells: success, and what is to be seen is so --------------------------- */
static cudaError_t not_committed(spipe_failure_t *f) {
    spipe_desc_t d = spipe_desc_default();
    spipe_file_t a;
    FILE *there;
    cudaError_t e;
    d.count = N;
    SPIPE_CHECK(spipe_file_create(&a, OUT_FILE, NULL));
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_file_output(&d, &a, sizeof *x);
    spipe_add_stage(&d, "twice", twice_stage, NULL);
    e = run(&d, f);
    spipe_file_close(&a);
    there = fopen(OUT_FILE, "rb");
    if (!there) return e;
    fclose(there);
    return cudaErrorUnknown;
}

static cudaError_t changed_later(spipe_failure_t *f) {
    spipe_desc_t d = good();
    spipe_pipeline_t *p;
    spipe_report_t r;
    cudaError_t e;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    d.count = N / 2;
    d.chunk = 2 * CHUNK;
    e = spipe_pipeline_run(p, &r);
    *f = r.failure;
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    return r.total == N && r.chunk == CHUNK ? e : cudaErrorUnknown;
}

/* ---- The page ------------------------------------------------------------------------------ */
typedef struct mistake {
    const char *what; /* NULL = a heading follows in cure */
    mistake_fn make;
    cudaError_t error;
    const char *cure;
} mistake_t;

static const mistake_t mistakes[] = {
    {NULL, NULL, cudaSuccess, "Sizes and numbers of buffers"},
    {"`spipe_add_input(&d, x, sizeof x)`, where `x` is a pointer", size_of_pointer,
     cudaErrorInvalidValue, "`sizeof *x`, or in C++ `spipe_add_input(&d, x)`"},
    {"An array of `double` for a kernel that takes `float`", other_type, cudaErrorInvalidValue,
     "use one type for array, `SPIPE_BUF` and kernel"},
    {"Elements that are rows, of another length than `SPIPE_BUF_ROW` says", wrong_row,
     cudaErrorInvalidValue, "`SPIPE_BUF_ROW(c, i, type, length)` with the length of an element"},
    {"Buffers added in another order than `SPIPE_MAP_STAGE` reads them", wrong_order,
     cudaErrorInvalidValue, "add the input first"},
    {"A buffer number that does not exist", no_such_buffer, cudaErrorInvalidValue,
     "keep the numbers that the `spipe_add_` functions return"},
    {"An elementwise stage that asks for its input without const: `SPIPE_BUF(c, 0, float)`",
     input_to_write, cudaErrorInvalidValue, "`SPIPE_BUF(c, 0, const float)`, or an in/out buffer"},
    {"A host stage that uses a buffer it did not declare", undeclared, cudaErrorInvalidValue,
     "name it in `reads` or `writes`"},
    {"A buffer number in place of a mask", numbers_for_masks, cudaErrorInvalidValue,
     "`SPIPE_BIT(number)`; `4` is the mask of buffer 2"},
    {"A host stage without any buffer", masks_of_nothing, cudaErrorInvalidValue,
     "name what it reads and writes; code that uses no buffer needs no stage"},
    {NULL, NULL, cudaSuccess, "Arrays"},
    {"A NULL array", no_array, cudaErrorInvalidValue, "pass the array"},
    {"`count` not set", no_count, cudaErrorInvalidValue, "set it, or add a source that ends"},
    {"An output that lies one element after the input", shifted, cudaErrorInvalidValue,
     "two separate arrays, or the very same array for both"},
    {"The same array for input and output, with a halo", in_place_with_halo, cudaErrorInvalidValue,
     "two arrays; in one array a chunk's neighbours would be read after they changed"},
    {"One array as two outputs", one_array_twice, cudaErrorInvalidValue, "two arrays"},
    {"A halo given in bytes, or longer than a chunk", wide_halo, cudaErrorInvalidValue,
     "give the halo in elements"},
    {"A resident buffer with a host array that is neither uploaded nor downloaded", useless_array,
     cudaErrorInvalidValue, "`SPIPE_UPLOAD`, `SPIPE_DOWNLOAD` or both"},
    {"A pinned array that is shorter than `count`", partly_pinned, cudaErrorInvalidValue,
     "`count` elements, all of them pinned or none"},
    {NULL, NULL, cudaSuccess, "Descriptions and pipelines"},
    {"A description that `spipe_desc_default` did not make", never_begun, cudaErrorInvalidValue,
     "`spipe_desc_t d = spipe_desc_default();`"},
    {"A timeline that `spipe_timeline_default` did not make", timeline_never_begun,
     cudaErrorInvalidValue, "`spipe_timeline_t t = spipe_timeline_default();`"},
    {"A NULL pipeline, because the result of create was not checked", null_pipeline,
     cudaErrorInvalidResourceHandle, "`SPIPE_CHECK(spipe_pipeline_create(...))`"},
    {"A pipeline run with an array still NULL", still_no_array, cudaErrorInvalidValue,
     "`spipe_pipeline_set_host` before the first run"},
    {"A pipeline run or destroyed by its own stage, or by two threads", run_in_stage,
     cudaErrorNotPermitted, "a pipeline for each thread, or a lock around it"},
    {"Two outputs of one path", one_path_twice, cudaErrorInvalidValue, "two paths"},
    {"A chunk released twice: more releases than chunks", released_twice, cudaErrorNotPermitted,
     "one `spipe_pipeline_release` for each `spipe_pipeline_next`"},
    {"A loop that never releases", no_chunk_more, SPIPE_ALL_HELD,
     "release a chunk before the next, or hold at most `depth` of them"},
    {NULL, NULL, cudaSuccess, "Stages and sources"},
    {"Two stages with the same name", same_name, cudaErrorInvalidValue,
     "give each stage a name of its own"},
    {"Stages that wait for each other", circle, cudaErrorInvalidValue,
     "remove one `spipe_stage_after`"},
    {"A launch that CUDA refuses", bad_launch, cudaErrorInvalidConfiguration,
     "at most 1024 threads per block"},
    {"An error of another library: `spipe_chunk_fail(c, \"cufftExecC2C returned %d\", r)`",
     own_words, cudaErrorUnknown, "as that library says"},
    {"A positive int, or EOF, as a stage's result", no_error_of_cuda, (cudaError_t)5000,
     "`spipe_chunk_fail` for other errors, else a `cudaError_t`: 1 is \"invalid "
     "argument\""},
    {"A source that gives more than it was asked for", too_long, cudaErrorInvalidValue,
     "give at most `part->count` elements per call"},
#if !defined(_WIN32)
    {NULL, NULL, cudaSuccess, "Files"},
    {"An array beside a file, and no `count`", file_and_array, cudaErrorInvalidValue,
     "`d.count` = elements of the array; if the file has fewer, the run is refused"},
    {"Two files of different lengths, and no `count`", two_files, cudaErrorInvalidValue,
     "`d.count`, or `length` of the longer file"},
    {"A `count` beyond the end of a file", beyond_the_file, cudaErrorInvalidValue,
     "leave `count` to the file, or compute it from `size`"},
    {"A part of a file by `in.bytes = 400`", assigned_bytes, cudaErrorInvalidValue,
     "`in.length = 400`; the library writes `bytes`"},
    {"An open file that was copied", copied_file, cudaErrorInvalidValue,
     "hand on a pointer to the one that was opened"},
    {"A pipe that is read by two runs", pipe_again, cudaErrorNotPermitted,
     "open it for each run, or write what comes into a file first"},
    {"Two runs at once that read one open file in order", two_at_once, cudaErrorNotPermitted,
     "`spipe_file_open` for each; runs that read the same part at places may share one"},
    {"A commit though the run failed", commits_failure, cudaErrorNotPermitted,
     "look at what the run returned; close the file, or let a run write it again"},
    {"A commit before the run", commits_nothing, cudaErrorNotPermitted, "commit after it"},
    {"A run after the commit", runs_when_committed, cudaErrorInvalidValue,
     "`spipe_file_create` for each result"},
#endif
    {NULL, NULL, cudaSuccess, "What only a checked run finds (`d.checked = 1`)"},
    {"A kernel without `if (i < n)`", past_the_end, cudaErrorInvalidValue,
     "compare the index with the count"},
    {"A launch on the default stream, or on a stream of your own", default_stream,
     cudaErrorInvalidValue, "`chunk->stream`"},
    {"An elementwise stage that writes into its input through `chunk->data`", broken_promise,
     cudaErrorInvalidValue, "use an in/out buffer, or do not call `spipe_stage_elementwise`"},
    {"A host stage that writes into a buffer that it declared only to read", only_read,
     cudaErrorInvalidValue, "name it in `writes`"},
    {"A stage marked replayable whose kernel gets another argument in the next run", other_work,
     cudaErrorInvalidValue,
     "keep what changes in device memory, or do not call `spipe_stage_replayable`"},
    {"An output that no stage writes, or not all of it, as with `count / 64` blocks of 64 threads",
     small_grid, cudaErrorInvalidValue, "`spipe_blocks(c->count, 64)`"},
    {"A chunk released too early: before the work on it is in the stream, or by a second release",
     released_early, cudaErrorInvalidValue,
     "release when the last work is in the stream, once for each chunk"}};

/* What no sentence tells: success, and what finds it. make NULL: made by tests/cli/mistakes.sh. */
typedef struct unseen {
    const char *what;
    mistake_fn make;
    const char *found, *cure;
} unseen_t;

static const unseen_t unseen[] = {
    {"An output file that is not committed", not_committed,
     "the file is not there, or is still the old one", "`spipe_file_commit` after the run"},
    {"A description changed after `spipe_pipeline_create`, which has copied it", changed_later,
     "`report.total` and `report.chunk` are the old ones",
     "`spipe_pipeline_set_count`, `spipe_pipeline_set_host`, or another pipeline"},
    {"A sink that keeps its pointer, or a source that writes when it has returned", NULL,
     "AddressSanitizer, in a checked run: heap-use-after-free", "copy what is to be kept"},
    {"Tickets of a split source indexed by `first + i`", NULL,
     "AddressSanitizer, in a checked run: heap-buffer-overflow",
     "`tickets[i]`: they are the chunk's, as the elements are"},
    {"One scratch array of your own for all chunks, of which several are under way", NULL,
     "ThreadSanitizer: data race. The schedule `SPIPE_SCHEDULE_SERIAL` gives another result; a\n"
     "checked run waits after each step, which hides it",
     "`spipe_add_temp`: each slot has its own"},
    {"A chunk released on another stream than it was used on", NULL, "ThreadSanitizer: data race",
     "the stream that was used last, or `spipe_stream_wait` between the two"}};

static void page(const char *format, ...) {
    const size_t n = strlen(out_text);
    va_list args;
    va_start(args, format);
    vsnprintf(out_text + n, sizeof out_text - n, format, args);
    va_end(args);
}

/* A quotation, in lines of at most 80 columns. */
static void quote(const char *text) {
    size_t column = 81;
    page("\n");
    while (*text) {
        const size_t n = strcspn(text, " ");
        if (column + 1 + n > 80) {
            page(column > 80 ? ">" : "\n>");
            column = 1;
        }
        page(" %.*s", (int)n, text);
        column += 1 + n;
        text += n + (text[n] == ' ');
    }
    page("\n");
}

static void begin_page(void) {
    page(
        "# Mistakes, and what the library says\n\n"
        "`make mistakes` runs `tests/test_mistakes.cu`, which makes every mistake below and\n"
        "prints this page. The quoted sentence is in `report.failure.message`, or in the failure\n"
        "that `spipe_desc_check` and `spipe_pipeline_create` fill; `SPIPE_CHECK_RUN` prints it.\n"
        "A run that is refused before its first chunk changes nothing.\n\n"
        "The compiler itself refuses macros of C++ used from C, launches with too many or too few\n"
        "arguments, and results that are ignored. No library can see a kernel that reads past its\n"
        "buffers: AddressSanitizer finds it on hostcuda, compute-sanitizer on a GPU.\n"
        "`hostcuda/hcc -fsanitize=address` and `-fsanitize=thread` need no GPU.\n");
}

static void make_all(int print) {
    const size_t num = sizeof mistakes / sizeof *mistakes;
    size_t k;
    for (k = 0; k < num; ++k) {
        const mistake_t *m = &mistakes[k];
        spipe_failure_t f;
        cudaError_t e;
        if (!m->what) {
            page("\n## %s\n", m->cure);
            continue;
        }
        memset(&f, 0, sizeof f);
        /* which a tool finds by itself */
        if ((SPIPE_PRIV_ASAN || pipe_sanitized()) && m->make == past_the_end) continue;
        if (m->make == size_of_pointer && POINTER_IS_AS_LONG) continue; /* right there */
        e = m->make(&f);
        if (!print)
            tap_ok((e == m->error || (OLDER && m->make == bad_launch)) && f.error == e &&
                       f.message[0],
                   "%s: %s", m->what, f.message);
        page("\n%s:\n", m->what);
        quote(f.message);
        page("\nCure: %s.\n", m->cure);
    }
}

static void make_unseen(int print) {
    size_t k;
    page("\n## What no sentence tells\n\nThe sanitizers find these on hostcuda.\n");
    for (k = 0; k < sizeof unseen / sizeof *unseen; ++k) {
        const unseen_t *u = &unseen[k];
        spipe_failure_t f;
        memset(&f, 0, sizeof f);
        page("\n%s.\n\nFound by: %s.\n\nCure: %s.\n", u->what, u->found, u->cure);
        if (u->make && !print)
            tap_ok(u->make(&f) == cudaSuccess && !f.message[0], "%s: %s", u->what, u->found);
    }
}

static void compare(void) {
    static char kept[sizeof out_text];
    FILE *f = fopen("docs/MISTAKES.md", "rb");
    const size_t n = f ? fread(kept, 1, sizeof kept - 1, f) : 0;
    if (f) fclose(f);
    kept[n] = 0;
#if defined(_WIN32)
    tap_skip("docs/MISTAKES.md is what these mistakes print", "it has files made with POSIX calls");
#elif OLDER
    tap_skip("docs/MISTAKES.md is what these mistakes print", "it has CUDA 13's words");
#else
    if (SPIPE_PRIV_ASAN || pipe_sanitized())
        tap_skip("docs/MISTAKES.md is what these mistakes print", "one of them stops the tool");
    else if (POINTER_IS_AS_LONG)
        tap_skip("docs/MISTAKES.md is what these mistakes print", "with 32 bits one is none");
    else
        tap_ok(strcmp(kept, out_text) == 0,
               "docs/MISTAKES.md is what these mistakes print (make mistakes)");
#endif
}

int main(int argc, char **argv) {
    const int print = argc > 1 && strcmp(argv[1], "--page") == 0;
    size_t i;
    for (i = 0; i < N; ++i) x[i] = (float)i;
    begin_page();
    make_all(print);
    make_unseen(print);
    if (print) return fputs(out_text, stdout) < 0;
    compare();
    return tap_done();
}
