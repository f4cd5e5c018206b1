/*  test_hostcuda_pools.cu -- memory allocated and freed in a stream's order, memory pools,
    callbacks of streams. */
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>

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

/* Holds a stream until opened. */
struct gate_t {
    std::atomic<bool> open;

    gate_t() : open(false) {}

    static void wait(void *self) {
        while (!static_cast<gate_t *>(self)->open.load()) std::this_thread::yield();
    }
};

static cudaStream_t new_stream() {
    cudaStream_t s;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    return s;
}

static uint64_t told(cudaMemPool_t pool, cudaMemPoolAttr attr) {
    uint64_t value = 0;
    cudaMemPoolGetAttribute(pool, attr, &value);
    return value;
}

/* ---- in a stream's order --------------------------------------------------------------------- */

static void test_order() {
    const cudaStream_t s = new_stream(), t = new_stream();
    cudaEvent_t allocated;
    cudaEventCreateWithFlags(&allocated, cudaEventDisableTiming);
    gate_t gate;
    char *p;
    cudaLaunchHostFunc(s, gate_t::wait, &gate);
    GIVEN(cudaMallocAsync(&p, BYTES, s), "memory is given while its stream is busy");
    cudaEventRecord(allocated, s);
    cudaStreamWaitEvent(t, allocated, 0);
    cudaMemsetAsync(p, 7, BYTES, t);
    gate.open = true;
    GIVEN(cudaStreamSynchronize(t), "another stream uses it after an event");
    tap_ok(p[BYTES - 1] == 7, "as its own");
    GIVEN(cudaFree(p), "cudaFree takes it, too");
    cudaMalloc(&p, BYTES);
    GIVEN(cudaFreeAsync(p, s), "and cudaFreeAsync what cudaMalloc gave");
    REFUSED(cudaFreeAsync(p, s), cudaErrorInvalidValue, "once");
    REFUSED(cudaFree(p), cudaErrorInvalidValue, "in whatever way");
    GIVEN(cudaFreeAsync(nullptr, s), "freeing NULL is fine");
    gate_t late;
    cudaLaunchHostFunc(s, gate_t::wait, &late);
    cudaMallocAsync(&p, BYTES, s);
    cudaMemsetAsync(p, 7, BYTES, t); /* nothing orders it after the allocation */
    REFUSED(cudaStreamSynchronize(t), cudaErrorIllegalAddress,
            "work that nothing orders after the allocation fails");
    late.open = true;
    cudaEventDestroy(allocated);
    cudaDeviceReset();
}

static void test_freed_before_there() {
    const cudaStream_t s = new_stream(), t = new_stream();
    gate_t late;
    char *p;
    cudaLaunchHostFunc(s, gate_t::wait, &late);
    cudaMallocAsync(&p, BYTES, s);
    cudaFreeAsync(p, t);
    cudaStreamSynchronize(t);
    late.open = true;
    REFUSED(cudaStreamSynchronize(s), cudaErrorIllegalAddress,
            "so does a free that nothing orders after it");
    cudaDeviceReset();
}

/* ---- pools ----------------------------------------------------------------------------------- */

static void test_pools() {
    cudaMemPool_t own, current, normal;
    cudaMemPoolProps props = {};
    char *p, *q;
    const cudaStream_t s = new_stream();
    GIVEN(cudaDeviceGetDefaultMemPool(&normal, 0), "a device has a pool");
    cudaDeviceGetMemPool(&current, 0);
    tap_ok(current == normal, "which it uses");
    uint64_t keep = UINT64_MAX;
    GIVEN(cudaMemPoolSetAttribute(normal, cudaMemPoolAttrReleaseThreshold, &keep),
          "what it keeps can be set");
    cudaMallocAsync(&p, BYTES, s);
    tap_ok(told(normal, cudaMemPoolAttrUsedMemCurrent) == BYTES, "its memory in use is counted");
    cudaFreeAsync(p, s);
    cudaStreamSynchronize(s);
    tap_ok(told(normal, cudaMemPoolAttrUsedMemCurrent) == 0 &&
               told(normal, cudaMemPoolAttrUsedMemHigh) == BYTES &&
               told(normal, cudaMemPoolAttrReservedMemCurrent) == BYTES,
           "freed memory is kept under the threshold");
    GIVEN(cudaMemPoolTrimTo(normal, 0), "until the pool is trimmed");
    tap_ok(told(normal, cudaMemPoolAttrReservedMemCurrent) == 0, "to nothing");
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.maxSize = 2 * BYTES;
    GIVEN(cudaMemPoolCreate(&own, &props), "another pool can be made");
    GIVEN(cudaMallocFromPoolAsync(&p, BYTES, own, s), "and used");
    REFUSED(cudaMallocAsync(&q, 2 * BYTES, own, s), cudaErrorMemoryAllocation,
            "up to its largest size");
    GIVEN(cudaDeviceSetMemPool(0, own), "or be the device's");
    cudaMallocAsync(&q, BYTES, s);
    tap_ok(told(own, cudaMemPoolAttrUsedMemCurrent) == 2 * BYTES, "which is used then");
    tap_ok(hostcuda_leaks(nullptr) == 4, "a pool counts as alive, with its memory and the stream");
    GIVEN(cudaMemPoolDestroy(own), "it is destroyed");
    cudaDeviceGetMemPool(&current, 0);
    tap_ok(current == normal, "and the device uses its own again");
    GIVEN(cudaFreeAsync(p, s), "memory of a destroyed pool is freed");
    cudaFreeAsync(q, s);
    REFUSED(cudaMemPoolDestroy(own), cudaErrorInvalidValue, "a pool is destroyed once");
    REFUSED(cudaMemPoolDestroy(normal), cudaErrorInvalidValue, "the device's never");
    REFUSED(cudaMallocFromPoolAsync(&p, BYTES, own, s), cudaErrorInvalidValue, "nor used after it");
    props.handleTypes = cudaMemHandleTypePosixFileDescriptor;
    REFUSED(cudaMemPoolCreate(&own, &props), cudaErrorNotSupported,
            "a pool for other processes is refused");
    props.allocType = cudaMemAllocationTypeInvalid;
    REFUSED(cudaMemPoolCreate(&own, &props), cudaErrorInvalidValue, "so is one without a type");
    uint64_t high = 1;
    REFUSED(cudaMemPoolSetAttribute(normal, cudaMemPoolAttrUsedMemHigh, &high),
            cudaErrorInvalidValue, "a high watermark is set to 0 only");
    cudaStreamDestroy(s);
    cudaDeviceSynchronize();
}

/* ---- callbacks ------------------------------------------------------------------------------- */

struct seen_t {
    int calls;
    cudaStream_t stream;
    cudaError_t status, inside;
};

static void note(cudaStream_t stream, cudaError_t status, void *user) {
    seen_t *const seen = static_cast<seen_t *>(user);
    seen->calls++;
    seen->stream = stream;
    seen->status = status;
    seen->inside = cudaStreamQuery(stream);
}

static void test_callbacks() {
    const cudaStream_t s = new_stream();
    char *p;
    cudaMallocHost(&p, BYTES);
    p[0] = 0;
    seen_t seen = {};
    gate_t gate;
    cudaLaunchHostFunc(s, gate_t::wait, &gate);
    GIVEN(cudaStreamAddCallback(s, note, &seen, 0), "a callback is taken while the stream is busy");
    tap_ok(seen.calls == 0, "and waits");
    cudaMemsetAsync(p, 1, BYTES, s);
    gate.open = true;
    cudaStreamSynchronize(s);
    tap_ok(seen.calls == 1 && seen.stream == s && seen.status == cudaSuccess,
           "it is called once, with its stream and no error");
    tap_ok(seen.inside == cudaErrorNotPermitted, "CUDA calls in it are refused");
    tap_ok(p[0] == 1, "and work after it follows");
    REFUSED(cudaStreamAddCallback(s, nullptr, &seen, 0), cudaErrorInvalidValue, "NULL is refused");
    REFUSED(cudaStreamAddCallback(s, note, &seen, 1), cudaErrorInvalidValue, "a flag is refused");
    cudaGraph_t graph;
    cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
    REFUSED(cudaStreamAddCallback(s, note, &seen, 0), cudaErrorStreamCaptureUnsupported,
            "it cannot be captured");
    cudaStreamEndCapture(s, &graph);
    (void)cudaGetLastError();
    hostcuda_fail_async("memset", 1, cudaErrorLaunchFailure);
    cudaMemsetAsync(p, 2, BYTES, s);
    cudaStreamAddCallback(s, note, &seen, 0);
    REFUSED(cudaStreamSynchronize(s), cudaErrorLaunchFailure, "after a failure of the device");
    tap_ok(seen.calls == 2 && seen.status == cudaErrorLaunchFailure,
           "it is called all the same, and told");
    cudaFreeHost(p);
    cudaDeviceReset();
}

int main() {
    test_order();
    test_freed_before_there();
    test_pools();
    test_callbacks();
    return tap_done();
}
