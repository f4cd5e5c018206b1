/*  test_hostcuda.cu -- the runtime API of hostcuda: order, what runs when, refusals, memory,
    faults, leaks, captures. Each line names a rule that CUDA has and hostcuda keeps. */
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sys/resource.h>
#include <unistd.h>
#endif

#include "hostcuda.h"
#include "tap.h"

static const size_t BYTES = 4096;

static cudaError_t last; /* of the call in a rule */
#define REFUSED(call, error, rule)                                                                 \
    do {                                                                                           \
        last = (call);                                                                             \
        tap_ok(last == (error), "%s", rule);                                                       \
        if (last != (error)) tap_note("returned %s", cudaGetErrorName(last));                      \
        (void)cudaGetLastError();                                                                  \
    } while (0)
#define GIVEN(call, rule) REFUSED(call, cudaSuccess, rule)

static __global__ void add_one(int *p) { p[0] += 1; }

static cudaError_t launch(int *p, cudaStream_t s) {
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3(1);
    c.blockDim = dim3(1);
    c.stream = s;
    return cudaLaunchKernelEx(&c, add_one, p);
}

struct kit_t { /* what most rules need */
    cudaStream_t a, b;
    cudaEvent_t e;
    char *dev, *pinned;
    std::vector<char> pageable;

    explicit kit_t(unsigned flags = cudaStreamNonBlocking)
        : a(), b(), e(), dev(), pinned(), pageable(2 * BYTES) {
        cudaStreamCreateWithFlags(&a, flags);
        cudaStreamCreateWithFlags(&b, flags);
        cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
        cudaMalloc(&dev, BYTES);
        cudaMallocHost(&pinned, BYTES);
        memset(pinned, 1, BYTES);
    }

    ~kit_t() {
        cudaFree(dev);
        cudaFreeHost(pinned);
        cudaStreamDestroy(a);
        cudaStreamDestroy(b);
        cudaEventDestroy(e);
    }

    kit_t(const kit_t &) = delete;
    kit_t &operator=(const kit_t &) = delete;
};

/* Holds a stream until opened. */
struct gate_t {
    std::atomic<bool> open;

    gate_t() : open(false) {}

    static void wait(void *self) {
        while (!static_cast<gate_t *>(self)->open.load()) std::this_thread::yield();
    }
};

static void append(void *p) {
    int *const order = static_cast<int *>(p);
    order[1 + order[0]] = order[0];
    order[0]++;
}

static void test_order() {
    kit_t k;
    int order[20] = {0};
    for (int i = 0; i < 10; i++) cudaLaunchHostFunc(k.a, append, order);
    cudaStreamSynchronize(k.a);
    bool good = order[0] == 10;
    for (int i = 0; i < 10; i++) good = good && order[1 + i] == i;
    tap_ok(good, "a stream does its work in order");
    gate_t gate;
    int *p = reinterpret_cast<int *>(k.pinned);
    p[0] = 5;
    cudaLaunchHostFunc(k.a, gate_t::wait, &gate);
    launch(p, k.a);
    cudaEventRecord(k.e, k.a);
    cudaStreamWaitEvent(k.b, k.e, 0);
    launch(p, k.b);
    tap_ok(cudaStreamQuery(k.b) == cudaErrorNotReady && p[0] == 5, "a wait holds the other stream");
    cudaEvent_t e2;
    cudaEventCreateWithFlags(&e2, cudaEventDisableTiming);
    cudaStreamWaitEvent(k.a, e2, 0);
    gate.open = true;
    cudaStreamSynchronize(k.b);
    tap_ok(p[0] == 7, "until the event is reached");
    GIVEN(cudaStreamSynchronize(k.a), "a wait for an event never recorded is no wait");
    GIVEN(cudaEventQuery(e2), "which counts as complete");
    cudaEventDestroy(e2);
}

static void test_record_again() {
    kit_t k;
    gate_t first, second;
    cudaLaunchHostFunc(k.a, gate_t::wait, &first);
    cudaEventRecord(k.e, k.a);
    cudaStreamWaitEvent(k.b, k.e, 0); /* the first record */
    cudaLaunchHostFunc(k.a, gate_t::wait, &second);
    cudaEventRecord(k.e, k.a);
    first.open = true;
    GIVEN(cudaStreamSynchronize(k.b), "a wait keeps to the record that was the last at the call");
    tap_ok(cudaEventQuery(k.e) == cudaErrorNotReady, "the event itself follows the newer record");
    second.open = true;
    GIVEN(cudaEventSynchronize(k.e), "which comes in its turn");
}

static void test_legacy() {
    kit_t k(cudaStreamDefault);
    cudaStream_t free_stream;
    cudaStreamCreateWithFlags(&free_stream, cudaStreamNonBlocking);
    gate_t gate;
    int *p = reinterpret_cast<int *>(k.pinned);
    p[0] = 0;
    cudaLaunchHostFunc(k.a, gate_t::wait, &gate);
    launch(p, nullptr);
    launch(p, k.b);
    cudaLaunchHostFunc(
        free_stream, [](void *q) { *static_cast<char *>(q) = 9; }, k.pinned + 64);
    cudaStreamSynchronize(free_stream);
    tap_ok(k.pinned[64] == 9, "a non-blocking stream does not wait for the legacy stream");
    tap_ok(p[0] == 0, "the legacy stream waits for blocking streams, and they for it");
    gate.open = true;
    GIVEN(cudaStreamSynchronize(k.b), "then all of them run");
    tap_ok(p[0] == 2, "in order of issue");
    cudaStreamDestroy(free_stream);
}

/* What one thread waits for may be out of date, and gone, before it is done waiting. */
static void test_shared_stream() {
    kit_t k;
    std::vector<std::thread> threads;
    std::atomic<int> failed(0);
    int *p = reinterpret_cast<int *>(k.pinned);
    p[0] = 0;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&] {
            for (int i = 0; i < 100; i++) {
                launch(p, nullptr);
                failed += cudaStreamSynchronize(nullptr) != cudaSuccess;
            }
        });
    for (std::thread &t : threads) t.join();
    tap_ok(failed == 0 && p[0] == 400, "threads may issue to one stream and wait for it at once");
}

static void test_copies() {
    kit_t k;
    char *const page = k.pageable.data();
    gate_t gate;
    cudaLaunchHostFunc(k.a, gate_t::wait, &gate);
    memset(page, 3, BYTES);
    std::thread opener([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        gate.open = true;
    });
    cudaMemcpyAsync(k.dev, page, BYTES, cudaMemcpyHostToDevice, k.a);
    memset(page, 4, BYTES); /* the copy has been taken */
    opener.join();
    GIVEN(cudaMemcpyAsync(page + BYTES, k.dev, BYTES, cudaMemcpyDeviceToHost, k.a),
          "pageable copies work");
    tap_ok(page[BYTES] == 3,
           "pageable: read during the call on the way in, written at return on the way out");
    gate_t pinned_gate;
    cudaLaunchHostFunc(k.a, gate_t::wait, &pinned_gate);
    cudaMemcpyAsync(k.dev, k.pinned, BYTES, cudaMemcpyHostToDevice, k.a);
    k.pinned[0] = 77;
    pinned_gate.open = true;
    cudaStreamSynchronize(k.a);
    cudaMemcpy(page, k.dev, 1, cudaMemcpyDeviceToHost);
    tap_ok(page[0] == 77, "pinned: read when the stream gets there");
    cudaMemcpy2D(page, 10, k.dev, 100, 5, 3, cudaMemcpyDeviceToHost);
    cudaMemset(k.dev, 6, BYTES);
    cudaMemcpy2D(page, 10, k.dev, 100, 5, 3, cudaMemcpyDeviceToHost);
    tap_ok(page[0] == 6 && page[4] == 6 && page[5] != 6 && page[24] == 6,
           "2D copies keep to their rows");
}

static void test_copy_refusals() {
    kit_t k;
    char *const page = k.pageable.data();
    REFUSED(cudaMemcpy(k.dev, page, BYTES + 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue,
            "a copy past the end of device memory is refused");
    REFUSED(cudaMemcpy(k.dev + 1, page, BYTES, cudaMemcpyHostToDevice), cudaErrorInvalidValue,
            "also from the middle");
    REFUSED(cudaMemcpyAsync(k.dev, k.pinned + 8, BYTES, cudaMemcpyHostToDevice, k.a),
            cudaErrorInvalidValue, "and past the end of pinned memory");
    REFUSED(cudaMemcpy(page, page + BYTES, 8, cudaMemcpyHostToDevice), cudaErrorInvalidValue,
            "host memory is no device memory");
    REFUSED(cudaMemcpy(k.dev, k.dev, 8, cudaMemcpyHostToDevice), cudaErrorInvalidValue,
            "device memory is no host memory");
    REFUSED(cudaMemcpy(nullptr, page, 8, cudaMemcpyDefault), cudaErrorInvalidValue,
            "NULL is refused");
    REFUSED(cudaMemcpy(k.dev, page, 8, static_cast<cudaMemcpyKind>(7)),
            cudaErrorInvalidMemcpyDirection, "an unknown direction is refused");
    GIVEN(cudaMemcpy(k.dev, page, 0, cudaMemcpyHostToDevice), "nothing to copy is fine");
    GIVEN(cudaMemcpy(k.dev, page, 8, cudaMemcpyDefault), "the direction can be inferred");
    REFUSED(cudaMemset(page, 0, 8), cudaErrorInvalidValue, "memset of pageable memory is refused");
    REFUSED(cudaMemcpy2D(page, 4, k.dev, 100, 5, 3, cudaMemcpyDeviceToHost),
            cudaErrorInvalidPitchValue, "a pitch below the width is refused");
    char *gone;
    cudaMalloc(&gone, BYTES);
    cudaFree(gone);
    REFUSED(cudaMemcpy(gone, page, 8, cudaMemcpyHostToDevice), cudaErrorInvalidValue,
            "freed memory is refused");
    REFUSED(cudaFree(gone), cudaErrorInvalidValue, "freeing twice is refused");
    REFUSED(cudaFree(k.dev + 1), cudaErrorInvalidValue, "freeing the middle is refused");
    REFUSED(cudaFreeHost(page), cudaErrorInvalidValue, "freeing what was never pinned is refused");
    GIVEN(cudaFree(nullptr), "freeing NULL is fine");
}

static void test_batch() {
    kit_t k;
    void *dsts[2] = {k.dev, k.dev + 100};
    const void *srcs[2] = {k.pinned, k.pinned + 200};
    size_t sizes[2] = {50, 60}, first[2] = {0, 1};
    cudaMemcpyAttributes at[2] = {};
    at[0].srcAccessOrder = at[1].srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    memset(k.pinned, 8, BYTES);
    GIVEN(cudaMemcpyBatchAsync(dsts, srcs, sizes, 2, at, first, 1, k.a),
          "a batch of copies is taken");
    cudaStreamSynchronize(k.a);
    tap_ok(k.dev[49] == 8 && k.dev[159] == 8 && k.dev[50] != 8,
           "and copies all its ranges and no more");
    REFUSED(cudaMemcpyBatchAsync(dsts, srcs, sizes, 2, at, first, 1, nullptr),
            cudaErrorInvalidValue, "not in the legacy stream");
    first[1] = 0;
    REFUSED(cudaMemcpyBatchAsync(dsts, srcs, sizes, 2, at, first, 2, k.a), cudaErrorInvalidValue,
            "attribute indices must rise");
    sizes[1] = BYTES;
    REFUSED(cudaMemcpyBatchAsync(dsts, srcs, sizes, 2, at, first, 1, k.a), cudaErrorInvalidValue,
            "every range is checked first");
}

static void test_handles() {
    cudaStream_t s;
    cudaEvent_t e;
    cudaStreamCreate(&s);
    cudaEventCreate(&e);
    cudaStreamDestroy(s);
    cudaEventDestroy(e);
    REFUSED(cudaStreamDestroy(s), cudaErrorInvalidResourceHandle,
            "a stream destroyed twice is refused");
    REFUSED(cudaEventDestroy(e), cudaErrorInvalidResourceHandle,
            "an event destroyed twice is refused");
    REFUSED(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle, "a dead stream is refused");
    REFUSED(cudaEventRecord(e, nullptr), cudaErrorInvalidResourceHandle, "a dead event is refused");
    REFUSED(cudaStreamCreateWithFlags(&s, 4), cudaErrorInvalidValue,
            "unknown stream flags are refused");
    kit_t k;
    float ms;
    cudaEventRecord(k.e, k.a);
    cudaEventSynchronize(k.e);
    REFUSED(cudaEventElapsedTime(&ms, k.e, k.e), cudaErrorInvalidResourceHandle,
            "events without timing give no time");
    gate_t gate;
    int *const p = reinterpret_cast<int *>(k.pinned);
    p[0] = 0;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    cudaLaunchHostFunc(s, gate_t::wait, &gate);
    launch(p, s);
    cudaEventRecord(k.e, s);
    GIVEN(cudaStreamDestroy(s), "a busy stream can be destroyed");
    gate.open = true;
    cudaEventSynchronize(k.e);
    tap_ok(p[0] == 1, "and its work is still done");
    int least, greatest, priority;
    cudaDeviceGetStreamPriorityRange(&least, &greatest);
    cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, -1000);
    cudaStreamGetPriority(s, &priority);
    tap_ok(least == 0 && greatest == -5 && priority == greatest,
           "priorities are clamped to the range");
    cudaStreamDestroy(s);
}

static void test_memory() {
    size_t free_before, free_after, total;
    char *p, *q;
    hostcuda_set_memory(1 << 20);
    cudaMemGetInfo(&free_before, &total);
    cudaMalloc(&p, 1000);
    cudaMemGetInfo(&free_after, &total);
    tap_ok(total == 1 << 20 && free_before - free_after == 1000, "memory in use is counted");
    REFUSED(cudaMalloc(&q, 1 << 20), cudaErrorMemoryAllocation, "a full device gives no memory");
    tap_ok(reinterpret_cast<uintptr_t>(p) % 256 == 0, "device memory is aligned to 256 bytes");
    tap_ok(static_cast<unsigned char>(p[0]) == 0xA5 && static_cast<unsigned char>(p[999]) == 0xA5,
           "new memory holds a pattern, not zeros");
    cudaPointerAttributes a;
    cudaPointerGetAttributes(&a, p + 10);
    tap_ok(a.type == cudaMemoryTypeDevice && a.device == 0 && a.devicePointer == p + 10,
           "device pointers are known");
    cudaFree(p);
    hostcuda_set_memory(hostcuda_profile("h200").memory);
    std::vector<char> v(10000);
    GIVEN(cudaPointerGetAttributes(&a, v.data()), "an unregistered pointer is no error");
    tap_ok(a.type == cudaMemoryTypeUnregistered, "but told so");
    GIVEN(cudaHostRegister(v.data() + 100, 5000, cudaHostRegisterDefault),
          "host memory can be registered");
    cudaPointerGetAttributes(&a, v.data() + 200);
    tap_ok(a.type == cudaMemoryTypeHost && a.devicePointer == v.data() + 200,
           "registered memory is pinned");
    REFUSED(cudaHostRegister(v.data() + 5000, 1000, 0), cudaErrorHostMemoryAlreadyRegistered,
            "overlapping registration is refused");
    REFUSED(cudaHostRegister(v.data(), 10000, 0), cudaErrorHostMemoryAlreadyRegistered,
            "around it, too");
    REFUSED(cudaHostUnregister(v.data() + 101), cudaErrorHostMemoryNotRegistered,
            "only the start can be unregistered");
    GIVEN(cudaHostUnregister(v.data() + 100), "and unregistered");
    kit_t k;
    cudaMallocAsync(reinterpret_cast<void **>(&p), 100, k.a);
    GIVEN(cudaMemsetAsync(p, 0, 100, k.a), "stream-ordered memory is memory");
    GIVEN(cudaFreeAsync(p, k.a), "and freed in the stream");
    REFUSED(cudaMemsetAsync(p, 0, 100, k.a), cudaErrorInvalidValue, "after which it is refused");
}

#ifdef __linux__
static size_t resident_bytes() {
    size_t all = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%zu %zu", &all, &pages) != 2) pages = 0;
    fclose(f);
    return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

/* Whether the system can read a byte, asked without reading it here. */
static bool can_be_read(const void *at) {
    int ends[2];
    if (pipe(ends) != 0) return false;
    const bool can = write(ends[1], at, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return can;
}

static bool has_pattern(const char *p, size_t at) {
    return static_cast<unsigned char>(p[at]) == 0xA5;
}

/* As on a GPU, memory costs nothing before it is used. */
static void test_huge_memory() {
    const size_t size = (static_cast<size_t>(512) << 20) + 1000, at = size / 2;
    const size_t before = resident_bytes(), page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    char *p = nullptr;
    GIVEN(cudaMalloc(&p, size), "a huge block can be had");
    if (!p) return;
#ifdef __SANITIZE_THREAD__
    (void)before;
    tap_skip("a huge block's pages exist when written to", "ThreadSanitizer keeps more for each");
#else
    tap_ok(resident_bytes() < before + (64 << 20), "a huge block's pages exist when written to");
#endif
    bool filled = true;
    for (size_t i = 0; i < size; i += size / 99) filled = filled && has_pattern(p, i);
    tap_ok(filled && has_pattern(p, size - 1), "before, all of it holds the pattern");
    cudaMemset(p + at, 7, 1000);
    cudaDeviceSynchronize();
    tap_ok(p[at] == 7 && p[at + 999] == 7 && has_pattern(p, at - 1) && has_pattern(p, at + 1000),
           "what is written stays");
    tap_ok(!can_be_read(p - 1) && can_be_read(p + size - 1) && !can_be_read(p + size + page),
           "what lies around the block can not be used");
    REFUSED(cudaMemset(p, 0, size + 1), cudaErrorInvalidValue, "its end is known");
    cudaFree(p);
    tap_ok(!can_be_read(p) && hostcuda_leaks(nullptr) == 0, "and it is gone when it is freed");
    rlimit files, none;
    getrlimit(RLIMIT_NOFILE, &files);
    none = files;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
    const cudaError_t e = cudaMalloc(&p, static_cast<size_t>(256) << 20);
    setrlimit(RLIMIT_NOFILE, &files);
    tap_ok(e == cudaSuccess && has_pattern(p, 0) && has_pattern(p, (256 << 20) - 1),
           "where no file can be opened for the pattern, the block is filled at once");
    cudaFree(p);
}
#else
static void test_huge_memory() {}
#endif

struct inside_t {
    cudaStream_t stream;
    cudaError_t query, malloc_error;
};

static void call_inside(void *p) {
    inside_t *const in = static_cast<inside_t *>(p);
    char *q = nullptr;
    in->query = cudaStreamQuery(in->stream);
    in->malloc_error = cudaMalloc(&q, 10);
}

static void test_host_functions() {
    kit_t k;
    inside_t in = {k.b, cudaSuccess, cudaSuccess};
    cudaLaunchHostFunc(k.a, call_inside, &in);
    cudaStreamSynchronize(k.a);
    tap_ok(in.query == cudaErrorNotPermitted && in.malloc_error == cudaErrorNotPermitted,
           "a host function may not call CUDA");
    int order[4] = {0};
    hostcuda_break_device(cudaErrorIllegalAddress);
    GIVEN(cudaLaunchHostFunc(k.a, append, order),
          "a broken device takes work until it is found out");
    tap_ok(cudaStreamSynchronize(k.a) == cudaErrorIllegalAddress, "at a synchronisation");
    tap_ok(order[0] == 0, "host functions are skipped then");
    tap_ok(cudaMalloc(reinterpret_cast<void **>(&order), 10) == cudaErrorIllegalAddress &&
               cudaGetLastError() == cudaErrorIllegalAddress &&
               cudaGetLastError() == cudaErrorIllegalAddress,
           "and every call says so");
    cudaStream_t a = k.a;
    tap_ok(cudaStreamDestroy(a) == cudaErrorIllegalAddress, "releases too, which still release");
    cudaDeviceReset();
}

static void test_faults() {
    hostcuda_fail("cudaMalloc", 2, cudaErrorMemoryAllocation);
    char *p, *q;
    GIVEN(cudaMalloc(&p, 10), "the first call passes");
    REFUSED(cudaMalloc(&q, 10), cudaErrorMemoryAllocation, "the second fails as armed");
    tap_ok(hostcuda_fail_fired() == 1, "and the fault is spent");
    hostcuda_calls_reset();
    cudaFree(p);
    tap_ok(hostcuda_calls("cudaFree") == 1 && hostcuda_calls(nullptr) == 1, "calls are counted");
    hostcuda_fail_clear();
    kit_t k;
    int *const n = reinterpret_cast<int *>(k.pinned);
    n[0] = 0;
    hostcuda_fail_async("kernel", 2, cudaErrorLaunchFailure);
    bool issued = true;
    for (int i = 0; i < 3; i++) issued = launch(n, k.a) == cudaSuccess && issued;
    tap_ok(issued, "an asynchronous failure does not show at the launch");
    tap_ok(cudaStreamSynchronize(k.a) == cudaErrorLaunchFailure && n[0] == 1,
           "it shows at a synchronisation, and later work is skipped");
    hostcuda_fail_clear();
    cudaDeviceReset();
}

static void test_leaks() {
    const int before = hostcuda_leaks(nullptr);
    char *p;
    cudaStream_t s;
    cudaEvent_t e;
    cudaMalloc(&p, 10);
    cudaStreamCreate(&s);
    cudaEventCreate(&e);
    tap_ok(before == 0 && hostcuda_leaks(nullptr) == 3, "what is alive is counted");
    cudaFree(p);
    cudaStreamDestroy(s);
    cudaEventDestroy(e);
    tap_ok(hostcuda_leaks(nullptr) == 0, "until it is released");
}

static void test_threads_errors() {
    (void)cudaFree(&last);
    cudaError_t other = cudaErrorUnknown;
    std::thread([&] { other = cudaGetLastError(); }).join();
    tap_ok(other == cudaSuccess, "the last error belongs to a host thread");
    tap_ok(cudaPeekAtLastError() == cudaErrorInvalidValue &&
               cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess,
           "peeking keeps it, getting clears it");
    tap_ok(strcmp(cudaGetErrorName(cudaErrorNotReady), "cudaErrorNotReady") == 0,
           "errors have names");
    hostcuda_set_devices(2);
    kit_t k;
    char *far;
    cudaSetDevice(1);
    REFUSED(launch(reinterpret_cast<int *>(k.pinned), k.a), cudaErrorInvalidResourceHandle,
            "a launch into another device's stream is refused");
    cudaStream_t s;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    REFUSED(cudaEventRecord(k.e, s), cudaErrorInvalidResourceHandle,
            "so is recording its event here");
    cudaSetDevice(0);
    cudaEventRecord(k.e, k.a);
    GIVEN(cudaStreamWaitEvent(s, k.e, 0), "but waiting for it is allowed");
    cudaSetDevice(1);
    cudaMalloc(&far, BYTES);
    GIVEN(cudaMemcpyPeerAsync(far, 1, k.dev, 0, BYTES, s), "devices copy to each other");
    cudaStreamSynchronize(s);
    tap_ok(memcmp(far, k.dev, BYTES) == 0, "all bytes");
    cudaFree(far);
    cudaStreamDestroy(s);
    REFUSED(cudaSetDevice(2), cudaErrorInvalidDevice, "there is no third device");
    cudaSetDevice(0);
}

static void test_capture() {
    kit_t k;
    cudaGraph_t g;
    cudaGraphExec_t x;
    int *const n = reinterpret_cast<int *>(k.pinned);
    n[0] = 0;
    cudaStreamBeginCapture(k.a, cudaStreamCaptureModeGlobal);
    launch(n, k.a);
    cudaEventRecord(k.e, k.a);
    cudaStreamWaitEvent(k.b, k.e, 0);
    launch(n, k.b);
    cudaStreamCaptureStatus status;
    cudaStreamIsCapturing(k.b, &status);
    tap_ok(status == cudaStreamCaptureStatusActive,
           "an event of a capture draws the waiting stream in");
    cudaEventRecord(k.e, k.b);
    REFUSED(cudaEventQuery(k.e), cudaErrorStreamCaptureUnsupported,
            "unsafe calls are refused meanwhile");
    REFUSED(cudaStreamEndCapture(k.a, &g), cudaErrorStreamCaptureInvalidated,
            "and spoil the capture");
    for (int i = 0; i < 2; i++) {
        cudaStreamBeginCapture(k.a, cudaStreamCaptureModeGlobal);
        launch(n, k.a);
        cudaEventRecord(k.e, k.a);
        cudaStreamWaitEvent(k.b, k.e, 0);
        launch(n, k.b);
        cudaEventRecord(k.e, k.b);
        if (i == 0) {
            REFUSED(cudaStreamEndCapture(k.a, &g), cudaErrorStreamCaptureUnjoined,
                    "forks must be joined");
            continue;
        }
        cudaStreamWaitEvent(k.a, k.e, 0);
        GIVEN(cudaStreamEndCapture(k.a, &g), "a capture ends in a graph");
    }
    tap_ok(n[0] == 0, "captured work has not run");
    size_t nodes = 0;
    cudaGraphGetNodes(g, nullptr, &nodes);
    tap_ok(nodes == 2, "the graph holds a node for each operation");
    cudaGraphInstantiate(&x, g, 0);
    cudaGraphDestroy(g);
    cudaGraphLaunch(x, k.a);
    cudaGraphLaunch(x, k.b);
    cudaDeviceSynchronize();
    tap_ok(n[0] == 4, "each launch runs it once, after the launch before");
    cudaGraphExecDestroy(x);
}

static void test_capture_refusals() {
    kit_t k;
    cudaGraph_t g;
    char *p;
    REFUSED(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal),
            cudaErrorStreamCaptureUnsupported, "the legacy stream cannot be captured");
    REFUSED(cudaStreamEndCapture(k.a, &g), cudaErrorIllegalState, "nor an end without a begin");
    const auto begin = [&] {
        cudaStreamBeginCapture(k.a, cudaStreamCaptureModeGlobal);
    };
    const auto end = [&] {
        return cudaStreamEndCapture(k.a, &g);
    };
    begin();
    REFUSED(cudaStreamSynchronize(k.a), cudaErrorStreamCaptureUnsupported,
            "no synchronisation in a capture");
    REFUSED(end(), cudaErrorStreamCaptureInvalidated, "it spoils it");
    begin();
    cudaLaunchConfig_t large = {};
    large.gridDim = 1;
    large.blockDim = 4096;
    large.stream = k.a;
    REFUSED(cudaLaunchKernelEx(&large, add_one, (int *)k.dev), cudaErrorInvalidValue,
            "no launch of too large a block");
    REFUSED(end(), cudaErrorStreamCaptureInvalidated, "it spoils it, too");
    begin();
    REFUSED(cudaMalloc(&p, 10), cudaErrorStreamCaptureUnsupported, "no allocation");
    (void)end();
    begin();
    REFUSED(cudaMemcpyAsync(k.dev, k.pageable.data(), 8, cudaMemcpyHostToDevice, k.a),
            cudaErrorStreamCaptureUnsupported, "no copy of pageable memory");
    (void)end();
    cudaGraph_t empty;
    begin();
    GIVEN(cudaStreamWaitEvent(k.a, k.e, 0), "a wait for an event never recorded is none here too");
    GIVEN(cudaStreamEndCapture(k.a, &empty), "and the capture goes on");
    cudaGraphDestroy(empty);
    cudaEventRecord(k.e, k.b);
    begin();
    REFUSED(cudaStreamWaitEvent(k.a, k.e, 0), cudaErrorStreamCaptureIsolation,
            "no wait for work outside");
    (void)end();
    begin();
    cudaStreamBeginCapture(k.b, cudaStreamCaptureModeGlobal);
    cudaEventRecord(k.e, k.a);
    REFUSED(cudaStreamWaitEvent(k.b, k.e, 0), cudaErrorStreamCaptureMerge, "captures do not merge");
    (void)end();
    (void)cudaStreamEndCapture(k.b, &g);
    begin();
    cudaError_t other = cudaSuccess;
    std::thread([&] { other = cudaStreamEndCapture(k.a, &g); }).join();
    tap_ok(other == cudaErrorStreamCaptureWrongThread, "the thread that began must end it");
    GIVEN(end(), "as it can");
    cudaGraphDestroy(g);
    (void)cudaGetLastError();
}

int main() {
    test_order();
    test_record_again();
    test_legacy();
    test_shared_stream();
    test_copies();
    test_copy_refusals();
    test_batch();
    test_handles();
    test_memory();
    test_huge_memory();
    test_host_functions();
    test_faults();
    test_leaks();
    test_threads_errors();
    test_capture();
    test_capture_refusals();
    (void)cudaGetLastError();
    tap_ok(hostcuda_leaks(stderr) == 0, "all is released");
    return tap_done();
}
