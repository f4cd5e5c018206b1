/*  test_devices_sinks.cu -- several GPUs, of which one fails: each sink gets each chunk once, or
    the run fails. A sink that adds up would else be wrong without a word. */
#include "hostcuda.h"
#include "pipe_common.h"
#include "streampipe_devices.h"

#include <atomic>

#if defined(__SANITIZE_THREAD__)
/* A stream whose destroying was made to fail keeps its thread: that is hostcuda's, and asked for.
 */
extern "C" const char *__tsan_default_options() { return "report_thread_leaks=0"; }
#endif

enum {
    N = 200,
    CHUNK = 2,
    FAULTS = 40
};

static unsigned x[N];
static std::atomic<int> times[N / CHUNK], in_order[N / CHUNK];
static size_t given;

static cudaError_t source(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    (void)user;
    *count = N - given < max_count ? N - given : max_count;
    memcpy(dst, x + given, *count * sizeof *x);
    given += *count;
    return cudaSuccess;
}

/* Elements first .. first + count - 1 are whole chunks, which one call may share. */
static void note(std::atomic<int> *at, size_t first, size_t count) {
    for (size_t k = first / CHUNK; k < (first + count) / CHUNK; ++k) ++at[k];
}

static cudaError_t sink(const spipe_part_t *part, void *user) {
    const size_t first = part->first, count = part->count;
    (void)user;
    note(in_order, first, count);
    return cudaSuccess;
}

static cudaError_t sink_at(const spipe_part_t *part, void *user) {
    const size_t first = part->first, count = part->count;
    (void)user;
    note(times, first, count);
    return cudaSuccess;
}

static cudaError_t copy(const spipe_chunk_t *c, void *user) {
    (void)user;
    return cudaMemcpyAsync(c->data[1], c->data[0], c->count * sizeof *x, cudaMemcpyDefault,
                           c->stream);
}

/* One run with a fault; 1 = it fails, or each sink gets each chunk once. */
static int once(int with_source, int with_sink, long fault, spipe_report_t *r) {
    spipe_desc_t d = spipe_desc_default();
    int good = 1;
    d.count = N;
    d.chunk = CHUNK;
    d.depth = 4;
    d.threads = 3;
    given = 0;
    if (with_source) spipe_add_source(&d, source, NULL, sizeof *x, SPIPE_IN_ORDER);
    if (!with_source) spipe_add_input(&d, x, sizeof *x);
    spipe_add_sink(&d, sink_at, NULL, sizeof *x, SPIPE_ANY_ORDER);
    if (with_sink) spipe_add_sink(&d, sink, NULL, sizeof *x, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "copy", copy, NULL);
    spipe_devices_all(&d);
    for (auto &t : times) t = 0;
    for (auto &t : in_order) t = 0;
    hostcuda_fail("cudaEventRecord", fault, cudaErrorMemoryAllocation);
    const cudaError_t e = spipe_run(&d, r);
    hostcuda_fail_clear();
    for (auto &t : times) good &= t == 1;
    for (auto &t : in_order) good &= t == with_sink;
    return e != cudaSuccess || good;
}

static void test_faults(int with_source, int with_sink) {
    spipe_report_t r;
    const char *beside = with_sink ? " beside one in order" : "";
    int right = 0;
    for (long fault = 1; fault <= FAULTS; ++fault) right += once(with_source, with_sink, fault, &r);
    tap_ok(right == FAULTS, "a positioned sink%s gets each chunk once, or the run fails%s", beside,
           with_source ? ", with a source" : "");
}

int main(void) {
    hostcuda_set_devices(4);
    for (unsigned i = 0; i < N; ++i) x[i] = i;
    test_faults(0, 0);
    test_faults(1, 0);
    test_faults(0, 1);
    test_faults(1, 1);
    return tap_done();
}
