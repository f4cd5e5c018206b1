/*  test_caller_streams.cu -- what else the program has the GPU do: a run starts after the work on
    the default stream, and neither fails nor breaks anything while another thread captures. */
#include "streampipe_devices.h"

#include "pipe_common.h"

#include <unistd.h>

enum {
    N = 1 << 16,
    CHUNK = 1 << 13
};

static int run_returned;

/* On a stream, in front of work that a run must wait for. */
static void slow(void *user) {
    (void)user;
    usleep(20000);
}

static void until_returned(void *user) {
    (void)user;
    while (!__atomic_load_n(&run_returned, __ATOMIC_ACQUIRE)) usleep(100);
}

static __global__ void fill(unsigned char *x, unsigned char seed, size_t n) {
    const size_t step = (size_t)blockDim.x * gridDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += step) {
        x[i] = (unsigned char)(seed + i * 13u);
    }
}

/* ---- the default stream ---------------------------------------------------------------------- */
typedef enum way {
    ONCE,
    KEPT,
    REPLAYED,
    PULLED,
    ZERO_COPY,
    CHECKED_ZERO_COPY,
    ON_RESOURCES,
    TWICE_ONE_GPU,
    NUM_WAYS
} way_t;

static const char *const way_names[] = {
    "spipe_run",          "a kept pipeline",
    "a replayed graph",   "a loop of spipe_pipeline_next",
    "zero-copy",          "checked zero-copy, which host threads copy",
    "a run on resources", "a run of two parts"};

typedef struct world {
    unsigned char *x, *y; /* pinned, or x on the device */
    pipe_mix_args_t args;
    spipe_resources_t *resources;
    spipe_pipeline_t *p;
    spipe_report_t report;
} world_t;

static spipe_desc_t describe(world_t *w, way_t way) {
    spipe_desc_t d = spipe_desc_default();
    int stage;
    d.count = N;
    d.chunk = way == REPLAYED || way == ZERO_COPY ? SPIPE_AUTO : (size_t)CHUNK;
    if (way == ON_RESOURCES) d.resources = w->resources;
    if (way == ZERO_COPY || way == CHECKED_ZERO_COPY) d.schedule = SPIPE_SCHEDULE_ZERO_COPY;
    d.checked = way == CHECKED_ZERO_COPY;
    if (way == TWICE_ONE_GPU) {
        const int list[] = {0, 0};
        (void)spipe_devices_list(&d, list, 2);
    }
    spipe_add_input(&d, w->x, 1);
    spipe_add_output(&d, w->y, 1);
    w->args.in = 0;
    w->args.out = 1;
    w->args.elem_bytes = 1;
    if (way == PULLED) return d;
    stage = spipe_add_stage(&d, "mix", pipe_mix_stage, &w->args);
    if (way == ZERO_COPY) spipe_stage_elementwise(&d, stage);
    if (way == REPLAYED) spipe_stage_replayable(&d, stage);
    return d;
}

static cudaError_t pull(world_t *w) {
    cudaStream_t stream = NULL;
    spipe_chunk_t c;
    cudaError_t e = spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT);
    while (e == cudaSuccess && (e = spipe_pipeline_next(w->p, stream, &c)) == cudaSuccess &&
           c.count > 0) {
        c.stream = stream;
        e = pipe_mix_stage(&c, &w->args);
        if (e == cudaSuccess) e = spipe_pipeline_release(w->p, stream);
    }
    if (e == cudaSuccess) e = spipe_pipeline_end(w->p, NULL);
    (void)cudaStreamDestroy(stream);
    return e;
}

static cudaError_t run(world_t *w, const spipe_desc_t *d, way_t way) {
    if (way == PULLED) return pull(w);
    return w->p ? spipe_pipeline_run(w->p, &w->report) : spipe_run(d, &w->report);
}

static size_t wrong_after(const unsigned char *y, unsigned char seed) {
    size_t i, wrong = 0;
    for (i = 0; i < N; ++i) wrong += y[i] != pipe_mix((unsigned char)(seed + i * 13u), i);
    return wrong;
}

/* x is filled by a kernel on the default stream (and from there copied, if it is pinned), y is
   still being read by a copy on it. */
static void test_way(world_t *w, way_t way, int on_device) {
    const spipe_desc_t d = describe(w, way);
    unsigned char *made, *seen, *back = (unsigned char *)malloc(N);
    size_t wrong = 0, old = 0, i;
    cudaError_t e = cudaSuccess;
    int k, replayed = 0;
    if (!back) exit(99);
    w->p = NULL;
    SPIPE_CHECK(cudaMalloc((void **)&made, N));
    SPIPE_CHECK(cudaMalloc((void **)&seen, N));
    if (way == KEPT || way == REPLAYED || way == PULLED) {
        SPIPE_CHECK(spipe_pipeline_create(&w->p, &d, NULL));
    }
    for (k = 0; k < (way == REPLAYED ? 40 : 2) && e == cudaSuccess; ++k) {
        const unsigned char seed = (unsigned char)(3 + 41 * k), before = (unsigned char)(200 + k);
        unsigned char *into = on_device ? w->x : made;
        memset(w->y, before, N);
        SPIPE_CHECK(cudaDeviceSynchronize());
        SPIPE_CHECK(spipe_host_call(NULL, slow, NULL));
        SPIPE_CHECK(SPIPE_LAUNCH(fill, 4, 256, 0, NULL, into, seed, (size_t)N));
        if (!on_device) SPIPE_CHECK(cudaMemcpyAsync(w->x, made, N, cudaMemcpyDefault, NULL));
        SPIPE_CHECK(cudaMemcpyAsync(seen, w->y, N, cudaMemcpyDefault, NULL));
        e = run(w, &d, way);
        wrong += wrong_after(w->y, seed);
        replayed += w->report.replayed;
        SPIPE_CHECK(cudaMemcpy(back, seen, N, cudaMemcpyDefault));
        for (i = 0; i < N; ++i) old += back[i] != before;
    }
    tap_ok(e == cudaSuccess && wrong == 0,
           "%s reads what the default stream was writing, %s: %zu wrong", way_names[way],
           on_device ? "on the device" : "in pinned memory", wrong);
    tap_ok(old == 0, "%s writes after the default stream has read: %zu wrong", way_names[way], old);
    if (way == REPLAYED) tap_note("%d of %d runs were replayed", replayed, k);
    SPIPE_CHECK(spipe_pipeline_destroy(w->p));
    w->p = NULL;
    SPIPE_CHECK(cudaFree(made));
    SPIPE_CHECK(cudaFree(seen));
    free(back);
}

static void test_default_stream(void) {
    world_t w;
    unsigned char *device;
    pipe_array_t x = pipe_array_new(N, PIPE_PINNED), y = pipe_array_new(N, PIPE_PINNED);
    int way;
    memset(&w, 0, sizeof w);
    SPIPE_CHECK(cudaMalloc((void **)&device, N));
    SPIPE_CHECK(spipe_resources_create(&w.resources, NULL, NULL));
    w.y = y.at;
    for (way = ONCE; way < NUM_WAYS; ++way) {
        w.x = x.at;
        if (x.memory == PIPE_PINNED && y.memory == PIPE_PINNED) test_way(&w, (way_t)way, 0);
        w.x = device;
        if (way != CHECKED_ZERO_COPY) test_way(&w, (way_t)way, 1);
    }
    SPIPE_CHECK(spipe_resources_destroy(w.resources, NULL));
    SPIPE_CHECK(cudaFree(device));
    pipe_free(&x);
    pipe_free(&y);
}

/* Resident buffers are moved at a run's ends; the bytes go in and come back with the run. */
static void test_resident(void) {
    pipe_array_t x = pipe_array_new(N, PIPE_PAGEABLE), table = pipe_array_new(256, PIPE_PINNED);
    unsigned char *made;
    pipe_mix_args_t args = {0, 1, 1};
    spipe_desc_t d = spipe_desc_default();
    size_t i, wrong = 0;
    pipe_array_t y = pipe_array_new(N, PIPE_PAGEABLE);
    SPIPE_CHECK(cudaMalloc((void **)&made, 256));
    pipe_randomise(x);
    memset(table.at, 0, 256);
    d.count = N;
    d.chunk = CHUNK;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_resident(&d, table.at, 256, SPIPE_UPLOAD | SPIPE_DOWNLOAD);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    SPIPE_CHECK(spipe_host_call(NULL, slow, NULL));
    SPIPE_CHECK(SPIPE_LAUNCH(fill, 1, 256, 0, NULL, made, (unsigned char)9, (size_t)256));
    SPIPE_CHECK(cudaMemcpyAsync(table.at, made, 256, cudaMemcpyDefault, NULL));
    SPIPE_CHECK_RUN(&d, NULL);
    for (i = 0; i < 256; ++i) wrong += table.at[i] != (unsigned char)(9 + i * 13u);
    tap_ok(wrong == 0 || table.memory != PIPE_PINNED,
           "a resident buffer is uploaded after the default stream has written it: %zu wrong",
           wrong);
    SPIPE_CHECK(cudaDeviceSynchronize());
    SPIPE_CHECK(cudaFree(made));
    pipe_free(&x);
    pipe_free(&y);
    pipe_free(&table);
}

/* The default stream is held up until the run has returned: a run that waits would never return.
   Kept, because to free memory CUDA waits for the whole device. */
static void test_not_waiting(int memory, int ignore, const char *rule) {
    pipe_array_t x = pipe_array_new(N, memory), y = pipe_array_new(N, memory);
    world_t w;
    spipe_desc_t d;
    cudaError_t e = cudaSuccess;
    int k;
    memset(&w, 0, sizeof w);
    w.x = x.at;
    w.y = y.at;
    d = describe(&w, KEPT);
    d.ignore_default_stream = ignore;
    SPIPE_CHECK(spipe_pipeline_create(&w.p, &d, NULL));
    for (k = 0; k < 2; ++k) { /* the first run sets up */
        __atomic_store_n(&run_returned, k == 0, __ATOMIC_RELEASE);
        SPIPE_CHECK(spipe_host_call(NULL, until_returned, NULL));
        spipe_priv_keep_error(&e, spipe_pipeline_run(w.p, NULL));
    }
    __atomic_store_n(&run_returned, 1, __ATOMIC_RELEASE);
    tap_ok(e == cudaSuccess, "%s", rule);
    SPIPE_CHECK(spipe_pipeline_destroy(w.p));
    pipe_free(&x);
    pipe_free(&y);
}

/* ---- captures of other threads --------------------------------------------------------------- */
#if !defined(SPIPE_NO_THREADS)
typedef struct capture {
    cudaStreamCaptureMode mode;
    int stop, num, broken;
    float *memory;
} capture_t;

static __global__ void nothing_much(float *x) { x[threadIdx.x] += 1.0f; }

/* Captures again and again, with a little work in each. */
static void *capturing(void *arg) {
    capture_t *c = (capture_t *)arg;
    cudaStream_t s;
    SPIPE_CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    do {
        cudaGraph_t graph = NULL;
        const cudaError_t began = cudaStreamBeginCapture(s, c->mode);
        cudaError_t ended;
        __atomic_add_fetch(&c->num, 1, __ATOMIC_RELEASE);
        usleep(300);
        if (began == cudaSuccess) (void)SPIPE_LAUNCH(nothing_much, 1, 32, 0, s, c->memory);
        ended = cudaStreamEndCapture(s, &graph);
        c->broken += began != cudaSuccess || ended != cudaSuccess;
        (void)cudaGetLastError();
        if (graph) SPIPE_CHECK(cudaGraphDestroy(graph));
    } while (!__atomic_load_n(&c->stop, __ATOMIC_ACQUIRE));
    SPIPE_CHECK(cudaStreamDestroy(s));
    return NULL;
}

/* All that a program does with pipelines, from making to destroying. */
static cudaError_t live(pipe_array_t x, pipe_array_t y, int resources, size_t *wrong) {
    world_t w;
    spipe_desc_t d;
    cudaError_t e = cudaSuccess;
    int k;
    memset(&w, 0, sizeof w);
    w.x = x.at;
    w.y = y.at;
    if (resources) e = spipe_resources_create(&w.resources, NULL, NULL);
    d = describe(&w, resources ? ON_RESOURCES : KEPT);
    d.threads = 2;
    if (e == cudaSuccess) e = spipe_run(&d, &w.report);
    if (e == cudaSuccess) e = spipe_pipeline_create(&w.p, &d, &w.report.failure);
    for (k = 0; k < 3 && e == cudaSuccess; ++k) {
        pipe_poison(y);
        e = spipe_pipeline_run(w.p, &w.report);
        for (size_t i = 0; i < N && e == cudaSuccess; ++i) {
            *wrong += y.at[i] != pipe_mix(x.at[i], i);
        }
    }
    if (e == cudaSuccess) e = spipe_pipeline_set_host(w.p, 0, x.at);
    if (e == cudaSuccess) e = spipe_pipeline_run(w.p, &w.report);
    if (e != cudaSuccess) tap_note("%s: %s", cudaGetErrorName(e), w.report.failure.message);
    spipe_priv_keep_error(&e, spipe_pipeline_destroy(w.p));
    spipe_priv_keep_error(&e, spipe_resources_destroy(w.resources, NULL));
    return e;
}

static void test_beside_captures(void) {
    static const char *const modes[] = {"global", "thread-local", "relaxed"};
    capture_t c;
    int mode, memory;
    for (mode = 0; mode < 3; ++mode) {
        pthread_t thread;
        memset(&c, 0, sizeof c);
        c.mode = (cudaStreamCaptureMode)mode;
        SPIPE_CHECK(cudaMalloc((void **)&c.memory, 128));
        SPIPE_CHECK(cudaDeviceSynchronize());
        pthread_create(&thread, NULL, capturing, &c);
        while (!__atomic_load_n(&c.num, __ATOMIC_ACQUIRE)) usleep(10);
        for (memory = 0; memory < 4; ++memory) {
            pipe_array_t x, y;
            size_t wrong = 0;
            cudaError_t e;
            x = pipe_array_new(N, PIPE_PAGEABLE);
            y = pipe_array_new(N, PIPE_PAGEABLE);
            pipe_randomise(x);
            e = live(x, y, memory & 1, &wrong);
            tap_ok(e == cudaSuccess && wrong == 0,
                   "beside a capture in the %s mode runs are right%s", modes[mode],
                   memory & 1 ? ", on resources" : "");
            pipe_free(&x);
            pipe_free(&y);
        }
        __atomic_store_n(&c.stop, 1, __ATOMIC_RELEASE);
        pthread_join(thread, NULL);
        tap_ok(c.broken == 0, "and of %d captures in the %s mode none is broken", c.num,
               modes[mode]);
        SPIPE_CHECK(cudaFree(c.memory));
    }
}

/* The mode of the calling thread, as a stage sees it, and after each call. */
static cudaStreamCaptureMode ask_mode(void) {
    cudaStreamCaptureMode found = cudaStreamCaptureModeRelaxed, back;
    SPIPE_CHECK(cudaThreadExchangeStreamCaptureMode(&found));
    back = found;
    SPIPE_CHECK(cudaThreadExchangeStreamCaptureMode(&back));
    return found;
}

static cudaError_t sees_mode(const spipe_chunk_t *c, void *user) {
    int *others = (int *)user;
    *others += ask_mode() != cudaStreamCaptureModeGlobal;
    return cudaMemcpyAsync(c->data[1], c->data[0], c->count, cudaMemcpyDeviceToDevice, c->stream);
}

static int fails;

static cudaError_t sees_mode_and_fails(const spipe_chunk_t *c, void *user) {
    const cudaError_t e = sees_mode(c, user);
    return fails ? cudaErrorUnknown : e;
}

static void test_mode_of_stages(void) {
    pipe_array_t x = pipe_array_new(N, PIPE_PAGEABLE), y = pipe_array_new(N, PIPE_PAGEABLE);
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    cudaStream_t s;
    spipe_plan_t plan;
    int others = 0, after = 0, checked;
    d.count = N;
    d.chunk = CHUNK;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "mode", sees_mode_and_fails, &others);
    SPIPE_CHECK(spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT));
    for (checked = 0; checked < 2; ++checked) {
        for (fails = 0; fails < 2; ++fails) {
            d.checked = checked;
            (void)spipe_run(&d, NULL);
            after += ask_mode() != cudaStreamCaptureModeGlobal;
            SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
            after += ask_mode() != cudaStreamCaptureModeGlobal;
            (void)spipe_pipeline_run(p, NULL);
            after += ask_mode() != cudaStreamCaptureModeGlobal;
            (void)spipe_pipeline_enqueue(p, s);
            (void)spipe_pipeline_wait(p, NULL);
            after += ask_mode() != cudaStreamCaptureModeGlobal;
            SPIPE_CHECK(spipe_pipeline_destroy(p));
            SPIPE_CHECK(spipe_plan(&d, 0, &plan, NULL));
            after += ask_mode() != cudaStreamCaptureModeGlobal;
        }
    }
    tap_ok(others == 0, "a stage is called in the capture mode of its thread");
    tap_ok(after == 0, "and each call leaves that mode as it was");
    SPIPE_CHECK(cudaStreamDestroy(s));
    pipe_free(&x);
    pipe_free(&y);
}
#endif

int main(void) {
    pipe_needs_lending();
    test_default_stream();
    test_resident();
    test_not_waiting(PIPE_PINNED, 1, "ignore_default_stream: a run does not wait for it");
    test_not_waiting(PIPE_PAGEABLE, 0, "a run of pageable arrays has nothing to wait for there");
#if !defined(SPIPE_NO_THREADS)
    if (pipe_threads()) test_beside_captures();
    test_mode_of_stages();
#endif
    return tap_done();
}
