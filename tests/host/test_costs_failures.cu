/*  test_costs_failures.cu -- errors while costs are measured are returned and leak nothing:
    each CUDA function at several of its calls, no memory, no threads, a system that refuses to
    pin. */
#include "replaced.h"

#include "hostcuda.h"
#include "tap.h"

#include <limits.h>
#include <string>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <unistd.h>
#include <vector>

/* Allocations of the library and threads that it starts, counted; from the due one on they fail. */
static long due_memory, due_threads, made_memory, made_threads, alive_memory;

static void *short_malloc(size_t bytes) {
    ++made_memory;
    if (due_memory > 0 && made_memory >= due_memory) return NULL;
    ++alive_memory;
    return malloc(bytes);
}

static void *short_calloc(size_t n, size_t bytes) {
    void *p = short_malloc(n * bytes);
    return p ? memset(p, 0, n * bytes) : NULL;
}

static void counted_free(void *p) {
    alive_memory -= p != NULL;
    free(p);
}

static int short_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg) {
    ++made_threads;
    return due_threads > 0 && made_threads >= due_threads ? 11 : pthread_create(t, a, fn, arg);
}

#if defined(__SANITIZE_THREAD__)
/* A stream whose destroying was made to fail keeps its thread: that is hostcuda's, and asked for.
 */
extern "C" const char *__tsan_default_options() { return "report_thread_leaks=0"; }
#endif

static const double EFFORT = 0.01; /* of the usual times: each measurement is made about once */
static spipe_costs_t row;

static cudaError_t measure(spipe_costs_t *c) { return spipe_priv_costs_measure(c, EFFORT); }

/* Things of CUDA's and blocks of memory. */
static int num_alive() {
    (void)cudaDeviceSynchronize();
    return hostcuda_leaks(NULL) + (int)alive_memory;
}

static int all_positive(spipe_costs_t c) {
    for (size_t i = 0; i < SPIPE_PRIV_NUM_COSTS; ++i) {
        const double figure = *spipe_priv_cost_figure(&c, i);
        if (!(figure > 0.0 && figure < 1e14)) return 0;
    }
    return 1;
}

static int is_row(const spipe_costs_t *c) { return memcmp(c, &row, sizeof row) == 0; }

static int is_zero(const spipe_costs_t *c) {
    static const spipe_costs_t zero = spipe_costs_t();
    return memcmp(c, &zero, sizeof zero) == 0;
}

typedef struct called {
    std::string name;
    long calls;
} called_t;

/* The functions that a measurement calls and how often. */
static std::vector<called_t> functions_called() {
    std::vector<called_t> all;
    spipe_costs_t c;
    hostcuda_calls_reset();
    const cudaError_t e = measure(&c);
    for (size_t i = 0; hostcuda_called(i); ++i) {
        const called_t one = {hostcuda_called(i), hostcuda_calls(hostcuda_called(i))};
        all.push_back(one);
    }
    tap_ok(e == cudaSuccess && all_positive(c) && num_alive() == 0,
           "measuring frees all that it takes, of %zu CUDA functions", all.size());
    return all;
}

/* How much stays that a failed one of these was to free; what is not unpinned is left as a block of
   memory, too. */
static int stays(const std::string &name) {
    if (name == "cudaHostUnregister") return 2;
    return name.find("Free") != std::string::npos || name.find("Destroy") != std::string::npos;
}

/* The k-th call of a function fails; 1 = as it should be, -1 = there was no k-th call. */
static int fail_once(const std::string &name, long k) {
    const int before = num_alive();
    spipe_costs_t c;
    hostcuda_fail_clear();
    hostcuda_fail(name.c_str(), k, cudaErrorLaunchOutOfResources);
    const cudaError_t e = measure(&c);
    const int fired = hostcuda_fail_fired() > 0;
    hostcuda_fail_clear();
    (void)cudaGetLastError();
    const int more = num_alive() - before;
    if (!fired) return e == cudaSuccess && more == 0 ? -1 : 0;
    if (name == "cudaDeviceGetPCIBusId" || name == "cudaThreadExchangeStreamCaptureMode")
        return e == cudaSuccess && more == 0; /* of the NUMA node, of other threads' captures */
    const int set = is_row(&c) || is_zero(&c);
    const int good = e == cudaErrorLaunchOutOfResources && set && more <= stays(name);
    if (!good)
        tap_note("call %ld of %s: %s, %d more alive", k, name.c_str(), cudaGetErrorName(e), more);
    return good;
}

static void test_function(const called_t &f) {
#if defined(__SANITIZE_THREAD__)
    const long picked[] = {(f.calls + 1) / 2}; /* dear there; what leaks at the first, ASan says */
#elif defined(__SANITIZE_ADDRESS__)
    const long picked[] = {1, f.calls / 2}; /* dear there */
#else
    const long all[] = {1, 2, f.calls / 2, f.calls - 12, f.calls};
    const long some[] = {1, 1, f.calls / 2, f.calls / 2, f.calls};
    const long(&picked)[5] = tap_thorough() ? all : some;
#endif
    long last = 0, tried = 0, wrong = 0;
    for (long k : picked) {
        if (k <= last || k > f.calls) continue;
        last = k;
        const int is = fail_once(f.name, k);
        tried += is >= 0;
        wrong += is == 0;
    }
    tap_ok(wrong == 0 && tried > 0,
           "%s: %ld of its %ld calls failed one by one; the error came back, nothing leaked",
           f.name.c_str(), tried, f.calls);
}

static void test_no_memory() {
    long k, told = 0, coped = 0, wrong = 0;
    spipe_costs_t c;
    for (k = 1; k < 1000; ++k) {
        const int before = num_alive();
        made_memory = 0;
        due_memory = k;
        const cudaError_t e = measure(&c);
        due_memory = 0;
        if (made_memory < k) break; /* there was no k-th */
        told += e == cudaErrorMemoryAllocation && is_row(&c);
        coped += e == cudaSuccess && all_positive(c);
        wrong += num_alive() != before;
    }
    tap_ok(wrong == 0 && told > 3 && told + coped == k - 1,
           "without memory from the k-th allocation on, %ld times, it says so or copes (%ld)",
           k - 1, coped);
}

/* From the k-th on no thread can be had. */
static void test_no_threads() {
    spipe_costs_t c;
    int wrong = 0, kept = 0;
    for (long k = 1; k < 6; ++k) {
        due_threads = k;
        made_threads = 0;
        wrong += measure(&c) != cudaSuccess || !all_positive(c) || num_alive() != 0;
        if (k == 1) {
            kept = c.wake_s == row.wake_s && c.start_s == row.start_s && c.fill == row.fill &&
                   c.drain == row.drain && c.memory == row.memory &&
                   c.memory_uncached == row.memory_uncached;
        }
    }
    due_threads = 0;
    tap_ok(wrong == 0, "fewer threads than wanted will do");
    tap_ok(kept, "with none the figures of threads are the row's");
}

static void test_no_pinning() {
    spipe_costs_t c;
    hostcuda_fail("cudaHostRegister", 1, cudaErrorNotSupported);
    const cudaError_t e = measure(&c);
    hostcuda_fail_clear();
    tap_ok(e == cudaSuccess && all_positive(c) && c.pin == row.pin && c.pin_s == row.pin_s &&
               c.pin_arrays == row.pin_arrays && c.link_in != row.link_in,
           "where memory cannot be pinned in place, the figures of that are the row's");
    tap_ok(num_alive() == 0 && cudaGetLastError() == cudaSuccess,
           "and nothing is left of it, no error either");
}

/* What the device's clock gives is modelled, so that the figures that come of it are known. */
static void test_modelled() {
    const hostcuda_profile_t p = hostcuda_get_profile(0);
    spipe_costs_t c;
    const cudaError_t e = measure(&c);
    const double lost = 1e-9 * p.copy_lost, in = 1e9 * p.h2d, out = 1e9 * p.d2h;
    tap_ok(e == cudaSuccess && c.link_in > 0.97 * in && c.link_in < 1.001 * in &&
               c.link_out > 0.97 * out && c.link_out < 1.001 * out,
           "the link's rates are those of the model, to 3 %%: %.2f GB/s for %.2f, %.2f for %.2f",
           c.link_in / 1e9, in / 1e9, c.link_out / 1e9, out / 1e9);
    tap_ok(c.link_both > 0.95 * p.both_ways * in && c.link_both < 1.02 * p.both_ways * in,
           "and both ways, to 5 %%: %.2f GB/s for %.2f", c.link_both / 1e9, p.both_ways * in / 1e9);
    tap_ok(c.copy_s > 0.9 * lost && c.copy_s < 1.1 * lost,
           "two sizes of chunk give what a copy loses, to 10 %%: %.2f us for %.2f", c.copy_s * 1e6,
           lost * 1e6);
    tap_ok(c.zero_copy == 0.8 * c.link_both && c.staged_s == row.staged_s,
           "what cannot be measured is derived, or the row's");
}

static void test_device() {
    int device = -1;
    spipe_costs_t c;
    size_t unused = 0, before[2], after[2];
    for (int k = 0; k < 2; ++k) {
        SPIPE_CHECK(cudaSetDevice(k));
        SPIPE_CHECK(cudaMemGetInfo(&before[k], &unused));
    }
    const cudaError_t e = measure(&c);
    SPIPE_CHECK(cudaGetDevice(&device));
    tap_ok(e == cudaSuccess && device == 1, "the current device is what it was");
    for (int k = 0; k < 2; ++k) {
        SPIPE_CHECK(cudaSetDevice(k));
        SPIPE_CHECK(cudaMemGetInfo(&after[k], &unused));
    }
    tap_ok(before[0] == after[0] && before[1] == after[1], "the devices' memory is free again");
    SPIPE_CHECK(cudaSetDevice(0));
}

int main(void) {
    replaced.malloc = short_malloc;
    replaced.calloc = short_calloc;
    replaced.free = counted_free;
    replaced.pthread_create = short_create;
#ifdef __GLIBC__
    /* Each measurement takes the same large arrays: mapped anew each time, they would take 8 of the
       test's 12 CPU seconds. */
    (void)mallopt(M_MMAP_MAX, 0);
    (void)mallopt(M_TRIM_THRESHOLD, INT_MAX);
#endif
    SPIPE_CHECK(hostcuda_set_devices(2));
    SPIPE_CHECK(spipe_costs_get(&row, -1));
    const std::vector<called_t> all = functions_called();
    test_device();
    test_modelled();
    test_no_pinning();
    test_no_threads();
    test_no_memory();
    for (const called_t &f : all) {
        if (!stays(f.name)) test_function(f);
    }
    for (const called_t &f : all) { /* what these keep is no leak of ours */
        if (stays(f.name)) test_function(f);
    }
    (void)tap_done();
    fflush(stdout);
    _exit(tap_failed != 0);
}
