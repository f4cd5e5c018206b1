/*  test_no_memory.cu -- each host allocation fails once: the run reports it, nothing crashes or
    leaks, and the same work runs right afterwards. */
#include "replaced.h"

#include "hostcuda.h"
#include "pipe_common.h"

/* The library's allocations, counted; the one whose turn it is fails. */
static long due, num_made;

static int fails(void) { return ++num_made == due; }

static void *short_malloc(size_t bytes) { return fails() ? NULL : malloc(bytes); }

static void *short_calloc(size_t n, size_t bytes) { return fails() ? NULL : calloc(n, bytes); }

static void *short_realloc(void *p, size_t bytes) { return fails() ? NULL : realloc(p, bytes); }

enum {
    N = 3000,
    CHUNK = 100
};

static pipe_array_t x, y;

static cudaError_t host_stage(const spipe_chunk_t *c, void *) {
    return c->data[1] ? cudaSuccess : cudaErrorInvalidValue;
}

static cudaError_t run(const spipe_desc_t *d) {
    spipe_report_t r;
    pipe_poison(y);
    SPIPE_TRY(spipe_run(d, &r));
    for (size_t i = 0; i < N; ++i) {
        if (y.at[i] != pipe_mix(x.at[i], i)) return cudaErrorUnknown;
    }
    return cudaSuccess;
}

/* Each piece of work as a function: 0 with memory enough, cudaErrorMemoryAllocation without. */
static cudaError_t arrays(void) {
    pipe_mix_args_t args = {0, 1, 1};
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.chunk = CHUNK;
    d.threads = 2;
    d.staging = SPIPE_STAGING_COPY;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    spipe_add_host_stage(&d, "host", host_stage, NULL, SPIPE_BIT(1), SPIPE_BIT(1));
    return run(&d);
}

static cudaError_t kept(void) {
    pipe_mix_args_t args = {0, 1, 1};
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p = NULL;
    spipe_plan_t plan;
    d.count = N;
    d.chunk = CHUNK;
    d.depth = 2;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    cudaError_t e = spipe_pipeline_create(&p, &d, NULL);
    if (e == cudaSuccess) e = spipe_pipeline_run(p, NULL);
    if (e == cudaSuccess) e = spipe_plan(&d, 1, &plan, NULL);
    (void)spipe_pipeline_destroy(p);
    return e;
}

static cudaError_t pool(void) {
    spipe_stream_pool_t p;
    SPIPE_TRY(spipe_stream_pool_create(&p, 2, SPIPE_PRIORITY_DEFAULT));
    return spipe_stream_pool_destroy(&p);
}

static void add_one(cudaError_t e, void *user) { *(int *)user += e == cudaSuccess; }

static cudaError_t worker(void) {
    spipe_worker_t w;
    int ran = 0;
    memset(&w, 0, sizeof w);
    SPIPE_TRY(spipe_worker_create(&w));
    cudaError_t e = spipe_worker_call(&w, NULL, add_one, &ran);
    spipe_priv_keep_error(&e, spipe_worker_destroy(&w));
    return e == cudaSuccess && ran != 1 ? cudaErrorUnknown : e;
}

static cudaError_t channel(void) {
    spipe_channel_t c;
    SPIPE_TRY(spipe_channel_create(&c, 64, 2));
    return spipe_channel_destroy(&c);
}

static cudaError_t events(void) {
    spipe_event_pool_t p;
    cudaEvent_t event[3];
    SPIPE_TRY(spipe_event_pool_create(&p));
    cudaError_t e = cudaSuccess;
    int n = 0;
    while (n < 3 && e == cudaSuccess) {
        e = spipe_event_acquire(&p, &event[n]);
        n += e == cudaSuccess;
    }
    while (n > 0) spipe_priv_keep_error(&e, spipe_event_release(&p, event[--n]));
    spipe_priv_keep_error(&e, spipe_event_pool_destroy(&p));
    return e;
}

static cudaError_t files(void) {
    const char *path = "build/no_memory.json"; /* /dev/null is no file: written in place */
    spipe_report_t r;
    memset(&r, 0, sizeof r);
    const cudaError_t e = spipe_report_write_json(&r, path);
    (void)remove(path);
    return e;
}

static cudaError_t pictures(void) {
    spipe_span_t spans[2];
    spipe_timeline_t t = spipe_timeline_default();
    FILE *to = fopen("/dev/null", "w");
    if (!to) exit(99);
    memset(spans, 0, sizeof spans);
    spans[0].end_ms = 1.0;
    t.spans = spans;
    t.capacity = 2;
    t.num_spans = 1;
    const cudaError_t e = spipe_timeline_print(&t, to, 80);
    fclose(to);
    return e;
}

static void test(const char *name, cudaError_t (*work)(void)) {
    long k = 1, said = 0, coped = 0, wrong = 0;
    for (;; ++k) {
        const int alive = hostcuda_leaks(NULL);
        due = k;
        num_made = 0;
        const cudaError_t e = work();
        if (num_made < k) { /* there was no k-th */
            wrong += e != cudaSuccess;
            break;
        }
        /* not supported: a worker that gets no thread */
        const int told = e == cudaErrorMemoryAllocation || e == cudaErrorNotSupported;
        said += told;
        coped += e == cudaSuccess;
        wrong += (e != cudaSuccess && !told) || hostcuda_leaks(NULL) != alive;
    }
    due = 0;
    tap_ok(wrong == 0 && said > 0 && work() == cudaSuccess,
           "%s: of %ld allocations %ld failed and were told, %ld were not needed, none leaked",
           name, k - 1, said, coped);
}

int main(void) {
    replaced.malloc = short_malloc;
    replaced.calloc = short_calloc;
    replaced.realloc = short_realloc;
    x = pipe_array_new(N, PIPE_PAGEABLE);
    y = pipe_array_new(N, PIPE_PAGEABLE);
    pipe_randomise(x);
    test("arrays through threads and a host stage", arrays);
    test("a pipeline that is kept, and a plan", kept);
    test("a pool of streams", pool);
    test("a worker", worker);
    test("a channel", channel);
    test("a pool of events", events);
    test("a timeline", pictures);
    test("a report written to a file", files);
    pipe_free(&x);
    pipe_free(&y);
    return tap_done();
}
