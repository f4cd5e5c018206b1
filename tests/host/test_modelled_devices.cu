/*  test_modelled_devices.cu -- devices that this machine does not have: two of them, little
    memory, one that reads pageable memory through the host's page tables; and each small call
    failing, first to last. */
#include "hostcuda.h"
#include "pipe_common.h"

#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
/* A stream whose destroying was made to fail keeps its thread: that is hostcuda's, and asked for.
 */
extern "C" const char *__tsan_default_options() { return "report_thread_leaks=0"; }
#endif

enum {
    N = 200000
};

static spipe_desc_t describe(pipe_array_t x, pipe_array_t y, pipe_mix_args_t *args) {
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "mix", pipe_mix_stage, args);
    return d;
}

static int right(pipe_array_t x, pipe_array_t y) {
    for (size_t i = 0; i < N; ++i) {
        if (y.at[i] != pipe_mix(x.at[i], i)) return 0;
    }
    return 1;
}

/* The caller is on device 1 while objects of device 0 are used; device 1 must still be current. */
static void test_two(pipe_array_t x, pipe_array_t y) {
    pipe_mix_args_t args = {0, 1, 1};
    spipe_desc_t d = describe(x, y, &args);
    spipe_pipeline_t *p = NULL;
    spipe_report_t r;
    cudaStream_t s;
    spipe_device_t facts;
    int device = -1;
    SPIPE_CHECK(cudaSetDevice(0));
    SPIPE_CHECK(spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(cudaSetDevice(1));
    pipe_poison(y);
    tap_ok(spipe_pipeline_run(p, &r) == cudaSuccess && right(x, y),
           "a pipeline of device 0 runs while device 1 is the current one");
    SPIPE_CHECK(cudaGetDevice(&device));
    tap_ok(device == 1, "and device 1 still is, afterwards");
    tap_ok(spipe_pipeline_set_host(p, 0, x.at) == cudaSuccess &&
               spipe_pipeline_set_count(p, N) == cudaSuccess &&
               spipe_pipeline_enqueue(p, s) == cudaSuccess &&
               spipe_pipeline_wait(p, NULL) == cudaSuccess &&
               spipe_pipeline_destroy(p) == cudaSuccess && cudaGetDevice(&device) == cudaSuccess &&
               device == 1,
           "so do set, enqueue, wait and destroy");
    tap_ok(spipe_device_get(&facts, 0) == cudaSuccess && facts.device == 0 &&
               spipe_device_get(&facts, -1) == cudaSuccess && facts.device == 1 &&
               spipe_device_get(&facts, 7) == cudaErrorInvalidDevice && facts.num_sms == 0,
           "facts of one device, of the current one, of one that there is not");
    SPIPE_CHECK(cudaSetDevice(0));
    SPIPE_CHECK(cudaStreamDestroy(s));
}

static void test_little_memory(pipe_array_t x, pipe_array_t y) {
    pipe_mix_args_t args = {0, 1, 1};
    spipe_desc_t d = describe(x, y, &args);
    const hostcuda_profile_t whole = hostcuda_get_profile(0);
    spipe_report_t r;
    hostcuda_profile_t little = whole;
    little.memory = 256 << 10;
    SPIPE_CHECK(hostcuda_set_profile(0, &little));
    pipe_poison(y);
    const cudaError_t e = spipe_run(&d, &r);
    tap_ok(e == cudaSuccess && right(x, y) && r.device_bytes <= 256 << 10 && r.chunk < N / 2,
           "with 256 KiB of device memory the chunk shrinks until all slots fit: %zu elements, %s",
           r.chunk, r.failure.message);
    SPIPE_CHECK(hostcuda_set_profile(0, &whole));
}

/* ---- Each call that a small function makes fails once ---------------------------------------- */
static cudaError_t use_pool(void) {
    spipe_stream_pool_t p;
    cudaStream_t s[3];
    SPIPE_TRY(spipe_stream_pool_create(&p, 2, SPIPE_PRIORITY_HIGH));
    cudaError_t e = spipe_stream_acquire(&p, &s[0]);
    if (e == cudaSuccess) spipe_priv_keep_error(&e, spipe_stream_release(&p, s[0]));
    spipe_priv_keep_error(&e, spipe_stream_next(&p, &s[0]));
    spipe_priv_keep_error(&e, spipe_stream_pool_destroy(&p));
    return e;
}

static cudaError_t use_wait(void) {
    cudaStream_t s[2] = {NULL, NULL};
    cudaError_t e = spipe_stream_create(&s[0], SPIPE_PRIORITY_LOW);
    if (e == cudaSuccess) e = spipe_stream_create(&s[1], SPIPE_PRIORITY_MEDIUM);
    if (e == cudaSuccess) e = spipe_stream_wait(s[1], s[0]);
    for (cudaStream_t k : s) {
        if (k) spipe_priv_keep_error(&e, cudaStreamDestroy(k));
    }
    return e;
}

static cudaError_t use_memory(void) {
    static char bytes[4096];
    void *p = NULL;
    int pinned = -1;
    SPIPE_TRY(spipe_pinned_alloc(&p, 100));
    cudaError_t e = spipe_is_pinned(p, 100, &pinned);
    spipe_priv_keep_error(&e, spipe_pinned_free(p));
    if (e == cudaSuccess) e = spipe_pin(bytes, sizeof bytes);
    if (e == cudaSuccess) {
        e = spipe_unpin(bytes);
        if (e != cudaSuccess) (void)spipe_unpin(bytes); /* for the next time */
    }
    return e;
}

static cudaError_t use_timer(void) {
    spipe_timer_t t;
    float ms;
    SPIPE_TRY(spipe_timer_create(&t));
    cudaError_t e = spipe_timer_start(&t, NULL);
    if (e == cudaSuccess) e = spipe_timer_stop(&t, NULL);
    if (e == cudaSuccess) e = spipe_timer_ms(&t, &ms);
    spipe_priv_keep_error(&e, spipe_timer_destroy(&t));
    return e;
}

static cudaError_t use_channel(void) {
    spipe_channel_t c;
    char in[64] = "a", out[64] = "b";
    SPIPE_TRY(spipe_channel_create(&c, 64, 2));
    cudaError_t e = spipe_channel_send(&c, NULL, in);
    if (e == cudaSuccess) e = spipe_channel_recv(&c, NULL, out);
    (void)cudaDeviceSynchronize();
    spipe_priv_keep_error(&e, spipe_channel_destroy(&c));
    return e;
}

static cudaError_t use_events(void) {
    spipe_event_pool_t p;
    cudaEvent_t event;
    SPIPE_TRY(spipe_event_pool_create(&p));
    cudaError_t e = spipe_event_acquire(&p, &event);
    if (e == cudaSuccess) spipe_priv_keep_error(&e, spipe_event_release(&p, event));
    spipe_priv_keep_error(&e, spipe_event_pool_destroy(&p));
    return e;
}

static cudaError_t use_scope(void) {
    spipe_stream_pool_t p;
    spipe_scope_t scope;
    SPIPE_TRY(spipe_stream_pool_create(&p, 2, SPIPE_PRIORITY_DEFAULT));
    cudaError_t e = spipe_scope_begin(&scope, &p, NULL);
    if (e == cudaSuccess) e = spipe_scope_end(&scope);
    spipe_priv_keep_error(&e, spipe_stream_pool_destroy(&p));
    return e;
}

static void call_back(cudaError_t e, void *user) { *(cudaError_t *)user = e; }

static cudaError_t use_worker(void) {
    spipe_worker_t w;
    cudaError_t told = cudaSuccess;
    SPIPE_TRY(spipe_worker_create(&w));
    cudaError_t e = spipe_worker_call(&w, NULL, call_back, &told);
    (void)spipe_worker_destroy(&w);
    return e == cudaSuccess ? told : e;
}

static cudaError_t use_device(void) {
    spipe_device_t facts;
    return spipe_device_get(&facts, -1);
}

static void test_calls(const char *name, cudaError_t (*use)(void)) {
    long tried = 0, told = 0, wrong = 0;
    for (long k = 1;; ++k) {
        hostcuda_fail(NULL, k, cudaErrorLaunchOutOfResources);
        const cudaError_t e = use();
        const long fired = hostcuda_fail_fired();
        hostcuda_fail_clear();
        (void)cudaGetLastError();
        if (fired == 0) {
            wrong += e != cudaSuccess;
            break;
        }
        ++tried;
        told += e == cudaErrorLaunchOutOfResources;
        wrong += e != cudaSuccess && e != cudaErrorLaunchOutOfResources;
    }
    tap_ok(wrong == 0 && told > 0 && use() == cudaSuccess,
           "%s: %ld calls failed one by one, %ld of the errors came back, the rest did no harm",
           name, tried, told);
}

int main(void) {
    SPIPE_CHECK(hostcuda_set_devices(2));
    pipe_array_t x = pipe_array_new(N, PIPE_PINNED), y = pipe_array_new(N, PIPE_PINNED);
    pipe_randomise(x);
    test_two(x, y);
    test_little_memory(x, y);
    pipe_free(&x);
    pipe_free(&y);
    test_calls("a device's facts", use_device);
    test_calls("a pool of streams", use_pool);
    test_calls("one stream waits for another", use_wait);
    test_calls("pinned memory", use_memory);
    test_calls("a timer", use_timer);
    test_calls("a channel", use_channel);
    test_calls("a pool of events", use_events);
    test_calls("a scope", use_scope);
    test_calls("a worker", use_worker);
    (void)tap_done();
    fflush(stdout);
    _exit(tap_failed != 0); /* what a failed destroy keeps is no leak of ours */
}
