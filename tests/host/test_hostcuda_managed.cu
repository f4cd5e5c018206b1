/*  test_hostcuda_managed.cu -- managed memory of hostcuda: which code may use it, what moves
    when, advice, managed variables. */
#include <cmath>
#include <cstring>
#include <vector>

#include "hostcuda.h"
#include "tap.h"

static const int N = 1 << 20;
static const size_t BYTES = N * sizeof(int);

static __managed__ int counter = 5;
static __managed__ float table[100];

static cudaError_t last; /* of the call in a rule */
#define REFUSED(call, error, rule)                                                                 \
    do {                                                                                           \
        last = (call);                                                                             \
        tap_ok(last == (error), "%s", rule);                                                       \
        if (last != (error)) tap_note("returned %s", cudaGetErrorName(last));                      \
        (void)cudaGetLastError();                                                                  \
    } while (0)
#define GIVEN(call, rule) REFUSED(call, cudaSuccess, rule)

static __global__ void add(int *p, int n, int v) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) p[i] += v;
}

static cudaError_t launch(int *p, int n, cudaStream_t s) {
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3(static_cast<unsigned>(n + 255) / 256);
    c.blockDim = dim3(256);
    c.stream = s;
    return cudaLaunchKernelEx(&c, add, p, n, 1);
}

static cudaMemLocation place(cudaMemLocationType type, int id) {
    cudaMemLocation l;
    l.type = type;
    l.id = id;
    return l;
}

static void test_memory() {
    int *p = nullptr, *dev = nullptr;
    std::vector<int> pageable(N);
    GIVEN(cudaMallocManaged(&p, BYTES), "managed memory is given");
    cudaMalloc(&dev, BYTES);
    for (int i = 0; i < N; i++) p[i] = i;
    launch(p, N, nullptr);
    cudaDeviceSynchronize();
    tap_ok(p[0] == 1 && p[N - 1] == N, "the host writes and reads what kernels read and write");
    cudaPointerAttributes a;
    cudaPointerGetAttributes(&a, p + 3);
    tap_ok(a.type == cudaMemoryTypeManaged && a.devicePointer == p + 3 && a.hostPointer == p + 3,
           "its pointers are known as managed, for the host and the device");
    GIVEN(cudaMemcpy(dev, p, BYTES, cudaMemcpyHostToDevice), "a copy takes it for host memory");
    GIVEN(cudaMemcpy(dev, p, BYTES, cudaMemcpyDeviceToDevice), "or for device memory");
    GIVEN(cudaMemcpy(p, dev, BYTES, cudaMemcpyDeviceToHost), "also as what is written");
    GIVEN(cudaMemcpy(pageable.data(), p, BYTES, cudaMemcpyDefault), "or as it comes");
    tap_ok(pageable[N - 1] == N, "and copies");
    REFUSED(cudaMemcpy(dev, p, BYTES, cudaMemcpyDeviceToHost), cudaErrorInvalidValue,
            "device memory stays no host memory");
    REFUSED(cudaMemcpy(p + 1, dev, BYTES, cudaMemcpyDefault), cudaErrorInvalidValue,
            "a copy past its end is refused");
    GIVEN(cudaMemset(p, 0, BYTES), "memset takes it");
    cudaDeviceSynchronize();
    tap_ok(p[5] == 0, "and sets it");
    tap_ok(hostcuda_leaks(nullptr) == 2, "until it is freed it counts as alive");
    GIVEN(cudaFree(p), "cudaFree frees it");
    REFUSED(cudaFree(p), cudaErrorInvalidValue, "once");
    cudaFree(dev);
}

static void test_refusals() {
    void *p = nullptr;
    REFUSED(cudaMallocManaged(&p, 0), cudaErrorInvalidValue, "no bytes are refused");
    REFUSED(cudaMallocManaged(&p, 8, 0), cudaErrorInvalidValue, "no flag is refused");
    REFUSED(cudaMallocManaged(&p, 8, cudaMemAttachSingle), cudaErrorInvalidValue,
            "a stream's own is refused at the allocation");
    REFUSED(cudaMallocManaged(nullptr, 8), cudaErrorInvalidValue, "NULL is refused");
    GIVEN(cudaMallocManaged(&p, 100, cudaMemAttachHost), "memory of the host first is given");
    cudaMemPrefetchAsync(p, 100, 0, nullptr);
    const cudaMemLocation dev = place(cudaMemLocationTypeDevice, 0);
    int host = 0;
    REFUSED(cudaMemPrefetchAsync(&host, 4, dev, 0), cudaErrorInvalidValue,
            "prefetching other memory is refused");
    REFUSED(cudaMemPrefetchAsync(p, 101, dev, 0), cudaErrorInvalidValue, "past the end, too");
    REFUSED(cudaMemPrefetchAsync(p, 0, dev, 0), cudaErrorInvalidValue, "of nothing, too");
    REFUSED(cudaMemPrefetchAsync(p, 100, dev, 1), cudaErrorInvalidValue, "with a flag, too");
    REFUSED(cudaMemPrefetchAsync(p, 100, 7, nullptr), cudaErrorInvalidDevice,
            "to a device that is not there, too");
    REFUSED(cudaMemPrefetchAsync(p, 100, place(cudaMemLocationTypeNone, 0), 0),
            cudaErrorInvalidValue, "to no place, too");
    REFUSED(cudaMemAdvise(p, 100, static_cast<cudaMemoryAdvise>(7), 0), cudaErrorInvalidValue,
            "unknown advice is refused");
    REFUSED(cudaMemAdvise(&host, 4, cudaMemAdviseSetReadMostly, 0), cudaErrorInvalidValue,
            "advice for other memory is refused");
    REFUSED(cudaHostRegister(p, 100, 0), cudaErrorInvalidValue, "it cannot be registered");
    REFUSED(cudaFreeAsync(p, nullptr), cudaErrorInvalidValue, "nor freed in a stream");
    cudaFree(p);
    REFUSED(cudaMemPrefetchAsync(p, 100, dev, 0), cudaErrorInvalidValue, "freed memory is refused");
}

/* One kernel of a fixed time on memory that lies in the host's part. */
static double kernel_us(int *p, cudaStream_t s, bool prefetch) {
    if (prefetch) cudaMemPrefetchAsync(p, BYTES, 0, s);
    cudaStreamSynchronize(s);
    cudaEvent_t a, b;
    cudaEventCreate(&a);
    cudaEventCreate(&b);
    cudaEventRecord(a, s);
    launch(p, N, s);
    cudaEventRecord(b, s);
    cudaEventSynchronize(b);
    float ms = 0;
    cudaEventElapsedTime(&ms, a, b);
    cudaEventDestroy(a);
    cudaEventDestroy(b);
    return 1e3 * static_cast<double>(ms);
}

static bool near(double x, double y) { return std::fabs(x - y) < 0.01 * y; }

static void test_times() {
    hostcuda_profile_t p = hostcuda_profile("ideal"); /* 10 bytes a ns */
    p.pageable_h2d = 2.0;
    hostcuda_set_profile(0, &p);
    hostcuda_kernel_time(add, 100e3, 0);
    cudaStream_t s;
    int *m;
    cudaStreamCreate(&s);
    cudaMallocManaged(&m, BYTES);
    memset(m, 0, BYTES);
    const double bytes = static_cast<double>(BYTES), moves = bytes / 2.0 * 1e-3;
    const double first = kernel_us(m, s, false), second = kernel_us(m, s, false);
    tap_ok(near(first, 100 + moves), "a kernel waits until its memory has moved to the device");
    tap_ok(near(second, 100), "and does not when it is there");
    cudaMemPrefetchAsync(m, BYTES, cudaCpuDeviceId, s);
    tap_ok(near(kernel_us(m, s, true), 100), "a prefetch moves it before the kernel");
    cudaMemPrefetchAsync(m, BYTES, place(cudaMemLocationTypeHost, 0), 0, s);
    cudaStreamSynchronize(s);
    hostcuda_trace_start();
    cudaMemPrefetchAsync(m, BYTES, place(cudaMemLocationTypeDevice, 0), 0, s);
    cudaMemPrefetchAsync(m, BYTES, place(cudaMemLocationTypeDevice, 0), 0, s);
    cudaStreamSynchronize(s);
    hostcuda_op_t ops[2];
    tap_ok(hostcuda_trace(ops, 2) == 2 && ops[0].engine == HOSTCUDA_COPY0 &&
               ops[0].bytes == BYTES && near(ops[0].end_ns - ops[0].start_ns, bytes / 10.0),
           "it takes the copy engine, for the time of a copy of pinned memory");
    tap_ok(ops[1].bytes == 0 && ops[1].engine == HOSTCUDA_NO_ENGINE, "and nothing the second time");
    cudaMemPrefetchAsync(m, BYTES, cudaCpuDeviceId, s);
    cudaMemPrefetchAsync(m, BYTES / 2, 0, s);
    tap_ok(near(kernel_us(m, s, false), 100 + moves / 2), "a prefetch of a half moves a half");
    cudaMemPrefetchAsync(m, BYTES, cudaCpuDeviceId, s);
    cudaMemAdvise(m, BYTES, cudaMemAdviseSetAccessedBy, 0);
    tap_ok(near(kernel_us(m, s, false), 100), "a device that accesses it by advice moves nothing");
    cudaFree(m);
    cudaStreamDestroy(s);
    p = hostcuda_profile("h200");
    hostcuda_set_profile(0, &p);
}

static void test_advice() {
    int *p, value[3];
    cudaMallocManaged(&p, BYTES);
    const size_t one = sizeof(int);
    cudaMemRangeGetAttribute(value, one, cudaMemRangeAttributeLastPrefetchLocation, p, BYTES);
    tap_ok(value[0] == cudaInvalidDeviceId, "memory has been prefetched nowhere at first");
    GIVEN(cudaMemAdvise(p, BYTES, cudaMemAdviseSetPreferredLocation, cudaCpuDeviceId),
          "advice is taken as in CUDA 12");
    GIVEN(cudaMemAdvise(p, BYTES, cudaMemAdviseSetAccessedBy, place(cudaMemLocationTypeDevice, 0)),
          "and as in CUDA 13");
    cudaMemPrefetchAsync(p, BYTES, 0);
    cudaMemRangeGetAttribute(value, one, cudaMemRangeAttributeLastPrefetchLocation, p, BYTES);
    tap_ok(value[0] == 0, "the last prefetch is told");
    cudaMemRangeGetAttribute(value, one, cudaMemRangeAttributePreferredLocation, p, BYTES);
    tap_ok(value[0] == cudaCpuDeviceId, "so is the preferred place");
    cudaMemRangeGetAttribute(value, 2 * one, cudaMemRangeAttributeAccessedBy, p, BYTES);
    tap_ok(value[0] == 0 && value[1] == cudaInvalidDeviceId, "and who accesses it");
    REFUSED(cudaMemRangeGetAttribute(value, 3, cudaMemRangeAttributeReadMostly, p, BYTES),
            cudaErrorInvalidValue, "not into three bytes");
    cudaStream_t s;
    cudaStreamCreate(&s);
    GIVEN(cudaStreamAttachMemAsync(s, p), "memory can be attached to a stream");
    REFUSED(cudaStreamAttachMemAsync(nullptr, p), cudaErrorInvalidValue, "not to the legacy one");
    REFUSED(cudaStreamAttachMemAsync(s, p + 1), cudaErrorInvalidValue, "as a whole");
    REFUSED(cudaStreamAttachMemAsync(s, p, 0, 3), cudaErrorInvalidValue, "in a way that there is");
    cudaStreamSynchronize(s);
    cudaStreamDestroy(s);
    cudaDeviceSynchronize();
    cudaFree(p);
}

static void test_variables() {
    int *const c = &counter;
    launch(c, 1, nullptr);
    GIVEN(cudaDeviceSynchronize(), "a kernel may be given a managed variable");
    tap_ok(counter == 6, "which host and kernels share");
    GIVEN(cudaMemset(table, 0, sizeof table), "and calls know its memory");
    cudaPointerAttributes a;
    cudaPointerGetAttributes(&a, table);
    tap_ok(a.type == cudaMemoryTypeManaged, "as managed");
    REFUSED(cudaFree(c), cudaErrorInvalidValue, "it is not freed");
    REFUSED(cudaFree(table), cudaErrorInvalidValue, "wherever it lies");
    cudaDeviceReset();
    launch(c, 1, nullptr);
    GIVEN(cudaDeviceSynchronize(), "and is there after cudaDeviceReset");
    tap_ok(hostcuda_leaks(nullptr) == 0, "it is no leak");
}

static void test_older_devices() {
    hostcuda_profile_t p = hostcuda_profile("c2050");
    int *m, value;
    hostcuda_set_profile(0, &p);
    REFUSED(cudaMallocManaged(&m, 8), cudaErrorNotSupported, "Fermi has no managed memory");
    p = hostcuda_profile("k20c");
    hostcuda_set_profile(0, &p);
    GIVEN(cudaMallocManaged(&m, 8), "Kepler has");
    cudaDeviceGetAttribute(&value, cudaDevAttrConcurrentManagedAccess, 0);
    tap_ok(value == 0, "but not for host and device at once");
    REFUSED(cudaMemPrefetchAsync(m, 8, 0), cudaErrorInvalidDevice, "and without prefetching");
    cudaFree(m);
    p = hostcuda_profile("h200");
    hostcuda_set_profile(0, &p);
    cudaDeviceProp prop;
    cudaGetDeviceProperties(&prop, 0);
    tap_ok(prop.managedMemory && prop.concurrentManagedAccess, "a new device has both");
}

int main() {
    test_memory();
    test_refusals();
    test_times();
    test_advice();
    test_variables();
    test_older_devices();
    return tap_done();
}
