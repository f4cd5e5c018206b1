/*  test_hostcuda_faults.cu -- mistakes that fail on a GPU and would not on a CPU: kernels that
    are given pageable memory, memory freed while work uses it, and errors that the next call
    returns. */
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "hostcuda.h"
#include "tap.h"

static const size_t BYTES = 4096;

static __global__ void set(char *p, char value) { p[0] = value; }

static __global__ void set_if(char *p, const char *maybe, const char *end) {
    p[0] = static_cast<char>(!maybe && end - p == static_cast<long>(BYTES));
}

static __global__ void call(char *p, char (*function)(void)) { p[0] = function(); }

static char nine() { return 9; }

static cudaLaunchConfig_t one_thread(cudaStream_t s) {
    cudaLaunchConfig_t c = {};
    c.gridDim = c.blockDim = dim3(1);
    c.stream = s;
    return c;
}

static cudaError_t launch(char *p, char value, cudaStream_t s) {
    const cudaLaunchConfig_t c = one_thread(s);
    return cudaLaunchKernelEx(&c, set, p, value);
}

/* Holds a stream until opened. */
struct gate_t {
    std::atomic<bool> open;

    gate_t() : open(false) {}

    static void wait(void *self) {
        while (!static_cast<gate_t *>(self)->open.load()) std::this_thread::yield();
    }
};

static cudaStream_t new_stream() {
    cudaStream_t s = nullptr;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    return s;
}

/* A device that works, whatever happened to it; all that was on it is gone. */
static void reset() {
    hostcuda_fail_clear();
    hostcuda_set_prompt_errors(0);
    cudaDeviceReset();
}

/* ---- pageable memory ------------------------------------------------------------------------- */

static cudaError_t outcome_of(char *p) {
    const cudaStream_t s = new_stream();
    const bool taken = launch(p, 5, s) == cudaSuccess;
    const cudaError_t e = cudaStreamSynchronize(s);
    cudaStreamDestroy(s);
    return taken ? e : cudaErrorUnknown;
}

static void test_pageable() {
    std::vector<char> heap(2 * BYTES, 1);
    char on_stack = 1;
    int value = -1;
    cudaDeviceGetAttribute(&value, cudaDevAttrPageableMemoryAccess, 0);
    tap_ok(value == 0, "the profiles' GPUs cannot access pageable memory");
    tap_ok(outcome_of(heap.data()) == cudaErrorIllegalAddress && heap[0] == 1,
           "so a kernel that is given memory of malloc fails when it runs, and does nothing");
    reset();
    tap_ok(outcome_of(&on_stack) == cudaErrorIllegalAddress && on_stack == 1, "so for the stack");
    reset();
    char *pinned, *dev, back = 0;
    cudaHostRegister(heap.data(), BYTES, cudaHostRegisterDefault);
    cudaMallocHost(&pinned, BYTES);
    cudaMalloc(&dev, BYTES);
    tap_ok(outcome_of(pinned) == cudaSuccess && pinned[0] == 5, "pinned memory is there for it");
    tap_ok(outcome_of(heap.data()) == cudaSuccess && heap[0] == 5, "and what was registered");
    tap_ok(outcome_of(dev) == cudaSuccess &&
               cudaMemcpy(&back, dev, 1, cudaMemcpyDefault) == cudaSuccess && back == 5,
           "and device memory");
    tap_ok(outcome_of(heap.data() + BYTES + 1) == cudaErrorIllegalAddress,
           "what lies behind the registered part is not");
    reset();
    hostcuda_profile_t p = hostcuda_get_profile(0);
    p.pageable_access = 1;
    hostcuda_set_profile(0, &p);
    cudaDeviceGetAttribute(&value, cudaDevAttrPageableMemoryAccess, 0);
    tap_ok(value == 1 && outcome_of(heap.data() + BYTES + 1) == cudaSuccess && heap[BYTES + 1] == 5,
           "a profile may allow all");
    p.pageable_access = 0;
    hostcuda_set_profile(0, &p);
    reset();
}

static void test_harmless_pointers() {
    char *dev, back[2] = {0, 0};
    const cudaStream_t s = new_stream();
    cudaMalloc(&dev, BYTES);
    const cudaLaunchConfig_t c = one_thread(s);
    cudaLaunchKernelEx(&c, set_if, dev, nullptr, dev + BYTES);
    cudaLaunchKernelEx(&c, call, dev + 1, nine);
    tap_ok(cudaStreamSynchronize(s) == cudaSuccess &&
               cudaMemcpy(back, dev, 2, cudaMemcpyDefault) == cudaSuccess && back[0] == 1 &&
               back[1] == 9,
           "NULL, the end of an array and a function are no pageable memory");
    cudaFree(dev);
    cudaStreamDestroy(s);
}

/* ---- memory freed too early ------------------------------------------------------------------ */

enum how {
    BY_KERNEL,
    BY_COPY,
    BY_MEMSET,
    BY_GRAPH,
    NUM_HOWS
};

static const char *const how_names[] = {"a kernel", "a copy", "a memset", "a graph"};

static void use(char *p, char *other, enum how how, cudaStream_t s, cudaGraphExec_t *graph) {
    cudaGraph_t g = nullptr;
    *graph = nullptr;
    if (how == BY_KERNEL) launch(p, 5, s);
    if (how == BY_COPY) cudaMemcpyAsync(other, p, BYTES, cudaMemcpyDefault, s);
    if (how == BY_MEMSET) cudaMemsetAsync(p, 5, BYTES, s);
    if (how != BY_GRAPH) return;
    const cudaStream_t captured = new_stream();
    cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed);
    launch(p, 5, captured);
    cudaStreamEndCapture(captured, &g);
    cudaGraphInstantiate(graph, g, 0);
    cudaGraphDestroy(g);
    cudaStreamDestroy(captured);
    cudaGraphLaunch(*graph, s);
}

enum freed {
    PINNED,
    REGISTERED,
    NUM_FREED
};

static const char *const freed_names[] = {"cudaFreeHost", "cudaHostUnregister"};

/* Frees memory that work uses, before the work has ended (early) or after it. */
static cudaError_t free_it(enum freed what, enum how how, bool early) {
    std::vector<char> heap(BYTES, 1);
    char *p = heap.data(), *other;
    cudaGraphExec_t graph;
    gate_t gate;
    const cudaStream_t s = new_stream();
    cudaMalloc(&other, BYTES);
    if (what == PINNED) cudaMallocHost(&p, BYTES);
    if (what == REGISTERED) cudaHostRegister(p, BYTES, cudaHostRegisterDefault);
    cudaLaunchHostFunc(s, gate_t::wait, &gate);
    use(p, other, how, s, &graph);
    if (!early) gate.open = true;
    if (!early) cudaStreamSynchronize(s);
    hostcuda_calls_reset();
    std::thread opener([&] { /* the call has looked for users when others can count it */
                             while (hostcuda_calls(freed_names[what]) == 0)
                                 std::this_thread::yield();
                             gate.open = true;
    });
    const cudaError_t freed = what == PINNED ? cudaFreeHost(p) : cudaHostUnregister(p);
    opener.join();
    const cudaError_t e = cudaStreamSynchronize(s);
    if (graph) cudaGraphExecDestroy(graph);
    reset();
    return freed == cudaSuccess ? e : freed;
}

static void test_freed() {
    for (int what = 0; what < NUM_FREED; ++what) {
        for (int how = 0; how < NUM_HOWS; ++how) {
            const enum freed f = static_cast<enum freed>(what);
            const enum how h = static_cast<enum how>(how);
            tap_ok(free_it(f, h, true) == cudaErrorIllegalAddress,
                   "%s makes %s that still uses the memory fail", freed_names[what],
                   how_names[how]);
            tap_ok(free_it(f, h, false) == cudaSuccess, "and not one that has ended");
        }
    }
}

/* Work issued before cudaFree runs to its end, as cudaFree waits; work issued after it fails, also
 * where the address is in use again. */
static void test_freed_device() {
    char *p, *q, back = 0, other;
    cudaGraphExec_t graph;
    gate_t gate;
    const cudaStream_t s = new_stream();
    cudaMalloc(&p, BYTES);
    cudaMalloc(&q, BYTES);
    cudaLaunchHostFunc(s, gate_t::wait, &gate);
    launch(p, 5, s);
    cudaMemcpyAsync(q, p, 1, cudaMemcpyDefault, s);
    hostcuda_calls_reset();
    std::thread opener([&] {
        while (hostcuda_calls("cudaFree") == 0) std::this_thread::yield();
        gate.open = true;
    });
    const cudaError_t freed = cudaFree(p);
    opener.join();
    cudaMemcpy(&back, q, 1, cudaMemcpyDefault);
    tap_ok(freed == cudaSuccess && back == 5, "cudaFree lets work under way end");
    launch(p, 5, s);
    tap_ok(cudaStreamSynchronize(s) == cudaErrorIllegalAddress,
           "a kernel that is given freed memory fails");
    reset();
    const cudaStream_t t = new_stream();
    cudaMalloc(&p, BYTES);
    use(p, &other, BY_GRAPH, t, &graph);
    cudaStreamSynchronize(t);
    cudaFree(p);
    cudaMalloc(&q, BYTES); /* mostly at the same address */
    cudaGraphLaunch(graph, t);
    tap_ok(cudaStreamSynchronize(t) == cudaErrorIllegalAddress,
           "and so does a graph that was captured with it, launched again");
    cudaGraphExecDestroy(graph);
    reset();
}

static void test_freed_in_stream() {
    char *p;
    gate_t gate;
    const cudaStream_t s = new_stream(), t = new_stream();
    cudaMallocAsync(&p, BYTES, s);
    cudaLaunchHostFunc(s, gate_t::wait, &gate);
    launch(p, 5, s);
    cudaFreeAsync(p, s);
    gate.open = true;
    tap_ok(cudaStreamSynchronize(s) == cudaSuccess, "work before cudaFreeAsync has the memory");
    gate_t late;
    cudaMallocAsync(&p, BYTES, s);
    cudaLaunchHostFunc(t, gate_t::wait, &late);
    launch(p, 5, t); /* nothing orders it before the free */
    cudaFreeAsync(p, s);
    cudaStreamSynchronize(s);
    late.open = true;
    tap_ok(cudaStreamSynchronize(t) == cudaErrorIllegalAddress,
           "work of another stream that comes after it fails");
    reset();
}

/* ---- prompt errors --------------------------------------------------------------------------- */

static cudaStream_t stream_of_calls;
static cudaEvent_t event_of_calls;
static char *memory_of_calls, *pinned_of_calls;

static cudaError_t do_malloc() {
    void *p = nullptr;
    return cudaMalloc(&p, 8);
}

static cudaError_t do_launch() { return launch(memory_of_calls, 1, stream_of_calls); }

static cudaError_t do_copy() {
    return cudaMemcpyAsync(memory_of_calls, pinned_of_calls, 8, cudaMemcpyDefault, stream_of_calls);
}

static cudaError_t do_record() { return cudaEventRecord(event_of_calls, stream_of_calls); }

static cudaError_t do_query() { return cudaEventQuery(event_of_calls); }

static cudaError_t do_wait() { return cudaStreamWaitEvent(stream_of_calls, event_of_calls, 0); }

static cudaError_t do_peek() { return cudaPeekAtLastError(); }

static const struct {
    const char *name;
    cudaError_t (*call)();
    bool at_once; /* without the mode, too */
} calls[] = {{"cudaMalloc", do_malloc, false},       {"a launch", do_launch, false},
             {"cudaMemcpyAsync", do_copy, false},    {"cudaEventRecord", do_record, false},
             {"cudaEventQuery", do_query, true},     {"cudaStreamWaitEvent", do_wait, false},
             {"cudaPeekAtLastError", do_peek, false}};

static void test_prompt(int prompt) {
    for (const auto &c : calls) {
        stream_of_calls = new_stream();
        cudaEventCreateWithFlags(&event_of_calls, cudaEventDisableTiming); /* never recorded */
        cudaMalloc(&memory_of_calls, 8);
        cudaMallocHost(&pinned_of_calls, 8);
        hostcuda_set_prompt_errors(prompt);
        hostcuda_fail_async("kernel", 1, cudaErrorLaunchFailure);
        const cudaError_t e = launch(memory_of_calls, 1, stream_of_calls);
        const cudaError_t next = prompt || !c.at_once ? c.call() : cudaSuccess;
        tap_ok(e == cudaSuccess && next == (prompt ? cudaErrorLaunchFailure : cudaSuccess) &&
                   cudaStreamSynchronize(stream_of_calls) == cudaErrorLaunchFailure,
               "%s: %s", c.name,
               prompt ? "the very next call returns the error" : "a synchronisation returns it");
        reset();
    }
}

/* The call that comes next does not wait for ever for work that waits for it. */
static void test_prompt_behind_host_function() {
    gate_t gate;
    char *p;
    const cudaStream_t s = new_stream();
    cudaMalloc(&p, 8);
    hostcuda_set_prompt_errors(1);
    hostcuda_fail_async("kernel", 1, cudaErrorLaunchFailure);
    cudaLaunchHostFunc(s, gate_t::wait, &gate);
    const cudaError_t issued = launch(p, 1, s), next = cudaGetLastError();
    gate.open = true;
    tap_ok(issued == cudaSuccess && next == cudaSuccess &&
               cudaStreamSynchronize(s) == cudaErrorLaunchFailure,
           "prompt errors do not wait for a host function that waits for the host");
    reset();
}

int main() {
    test_pageable();
    test_harmless_pointers();
    test_freed();
    test_freed_device();
    test_freed_in_stream();
    test_prompt(0);
    test_prompt(1);
    test_prompt_behind_host_function();
    tap_ok(hostcuda_leaks(stderr) == 0, "all is released");
    return tap_done();
}
