/*  test_ring_failures.cu -- the system refuses pinned memory: the run takes another way if
    there is one, says so if there is none, and gives the memory back that was to be pinned. */
#include "replaced.h"

#include "hostcuda.h"
#include "pipe_common.h"

/* What the library holds of the host's memory. */
static long blocks_held;

static void *counted(void *p) {
    blocks_held += p != NULL;
    return p;
}

static void *counted_malloc(size_t bytes) { return counted(malloc(bytes)); }

static void *counted_calloc(size_t n, size_t bytes) { return counted(calloc(n, bytes)); }

static void *counted_realloc(void *p, size_t bytes) {
    void *more = realloc(p, bytes);
    blocks_held += !p && more;
    return more;
}

static void counted_free(void *p) {
    blocks_held -= p != NULL;
    free(p);
}

enum {
    N = 300000,
    CHUNK = 30000
};

static pipe_array_t x, y, pinned_x, pinned_y;
static pipe_mix_args_t args = {0, 1, 1};

static spipe_desc_t describe(void) {
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.chunk = CHUNK;
    d.threads = 1;
    d.staging = SPIPE_STAGING_COPY;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    pipe_poison(y);
    return d;
}

static int is_right(void) {
    size_t i;
    for (i = 0; i < N; ++i) {
        if (y.at[i] != pipe_mix(x.at[i], i)) return 0;
    }
    return 1;
}

/* Pinning in place fails from now on, and so does pinned memory of CUDA where none. */
static void refuse(int none) {
    long k;
    hostcuda_fail_clear();
    for (k = 1; k <= 8; ++k) {
        hostcuda_fail("cudaHostRegister", k, cudaErrorMemoryAllocation);
        if (none) hostcuda_fail("cudaHostAlloc", k, cudaErrorMemoryAllocation);
    }
}

static int is_told(cudaError_t e, const spipe_failure_t *f) {
    return e == cudaErrorMemoryAllocation && f->error == e && strstr(f->message, "pinned host") &&
           cudaGetLastError() == cudaSuccess;
}

static void test_run(void) {
    const int alive = hostcuda_leaks(NULL);
    const long before = blocks_held;
    spipe_desc_t d = describe();
    spipe_report_t r;
    refuse(0);
    const cudaError_t e = spipe_run(&d, &r);
    tap_ok(e == cudaSuccess && is_right() && hostcuda_fail_fired() == 1,
           "a ring that cannot be pinned in place is allocated pinned");
    tap_ok(blocks_held == before && hostcuda_leaks(NULL) == alive, "and nothing is kept");
    refuse(1);
    tap_ok(is_told(spipe_run(&d, &r), &r.failure) && hostcuda_fail_fired() == 2,
           "one that cannot be had is told: %s", r.failure.message);
    tap_ok(blocks_held == before && hostcuda_leaks(NULL) == alive,
           "and nothing is kept then either");
}

static void test_kept(void) {
    const int alive = hostcuda_leaks(NULL);
    const long before = blocks_held;
    spipe_desc_t d = describe();
    spipe_pipeline_t *p = NULL;
    spipe_failure_t f;
    refuse(1);
    tap_ok(is_told(spipe_pipeline_create(&p, &d, &f), &f) && !p,
           "a pipeline without its ring is not made");
    tap_ok(blocks_held == before && hostcuda_leaks(NULL) == alive, "and nothing of it is kept");
    d.buffers[0].host = pinned_x.at;
    d.buffers[1].host = pinned_y.at; /* no ring yet */
    hostcuda_fail_clear();
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    refuse(1);
    tap_ok(is_told(spipe_pipeline_set_host(p, 0, x.at), spipe_pipeline_failure(p)),
           "an array whose ring cannot be had is refused");
    hostcuda_fail_clear();
    pipe_poison(y);
    tap_ok(spipe_pipeline_set_host(p, 0, x.at) == cudaSuccess &&
               spipe_pipeline_set_host(p, 1, y.at) == cudaSuccess &&
               spipe_pipeline_run(p, NULL) == cudaSuccess && is_right(),
           "and taken when there is memory again");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    tap_ok(blocks_held == before && hostcuda_leaks(NULL) == alive,
           "and all is given back in the end");
}

int main(void) {
    replaced.malloc = counted_malloc;
    replaced.calloc = counted_calloc;
    replaced.realloc = counted_realloc;
    replaced.free = counted_free;
    x = pipe_array_new(N, PIPE_PAGEABLE);
    y = pipe_array_new(N, PIPE_PAGEABLE);
    pinned_x = pipe_array_new(N, PIPE_PINNED);
    pinned_y = pipe_array_new(N, PIPE_PINNED);
    pipe_randomise(x);
    test_run();
    test_kept();
    pipe_free(&x);
    pipe_free(&y);
    pipe_free(&pinned_x);
    pipe_free(&pinned_y);
    return tap_done();
}
