/*  test_hostcuda_symbols.cu -- __constant__ and __device__ variables in calls, rows with a pitch,
    what a device and the profiler are told. */
#include <cstring>
#include <vector>

#include "cuda_profiler_api.h"
#include "hostcuda.h"
#include "tap.h"

static __constant__ float weights[4] = {1, 1, 1, 1};
static __device__ int total;

static cudaError_t last; /* of the call in a rule */
#define REFUSED(call, error, rule)                                                                 \
    do {                                                                                           \
        last = (call);                                                                             \
        tap_ok(last == (error), "%s", rule);                                                       \
        if (last != (error)) tap_note("returned %s", cudaGetErrorName(last));                      \
        (void)cudaGetLastError();                                                                  \
    } while (0)
#define GIVEN(call, rule) REFUSED(call, cudaSuccess, rule)

static __global__ void weigh(float *p) {
    const unsigned i = threadIdx.x;
    p[i] *= weights[i];
    atomicAdd(&total, 1);
}

static __global__ void set(int *p, int v) { *p = v; }

template <typename... P, typename... A>
static cudaError_t launch(void (*kernel)(P...), unsigned threads, A... args) {
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3(1);
    c.blockDim = dim3(threads);
    return cudaLaunchKernelEx(&c, kernel, args...);
}

static void test_copies() {
    const float given[4] = {1, 2, 3, 4};
    float *p, got[4] = {1, 1, 1, 1};
    int count = 0;
    cudaMalloc(&p, sizeof got);
    cudaMemcpy(p, got, sizeof got, cudaMemcpyHostToDevice);
    GIVEN(cudaMemcpyToSymbol(weights, given, sizeof given), "a constant is written by the host");
    launch(weigh, 4, p);
    cudaMemcpy(got, p, sizeof got, cudaMemcpyDeviceToHost);
    tap_ok(got[0] == 1 && got[3] == 4, "and read by kernels");
    GIVEN(cudaMemcpyFromSymbol(&count, total, sizeof count), "a device variable is read");
    tap_ok(count == 4, "by the host");
    GIVEN(cudaMemcpyToSymbol(weights, given, 4, 4), "a part is written");
    GIVEN(cudaMemcpyFromSymbol(p, weights, sizeof weights, 0, cudaMemcpyDeviceToDevice),
          "a symbol is copied within the device");
    cudaMemcpy(got, p, sizeof got, cudaMemcpyDeviceToHost);
    tap_ok(got[1] == 1 && got[2] == 3, "at its place");
    REFUSED(cudaMemcpyToSymbol(weights, given, 4, 13), cudaErrorInvalidValue,
            "past the end of the symbol is refused");
    REFUSED(cudaMemcpyToSymbol(weights, given, 4, 0, cudaMemcpyDeviceToHost),
            cudaErrorInvalidMemcpyDirection, "so is the other direction");
    cudaStream_t s;
    cudaStreamCreate(&s);
    const int one = 1;
    GIVEN(cudaMemcpyToSymbolAsync(total, &one, sizeof one, 0, cudaMemcpyHostToDevice, s),
          "it is written in a stream");
    GIVEN(cudaMemcpyFromSymbolAsync(&count, total, sizeof count, 0, cudaMemcpyDeviceToHost, s),
          "and read");
    cudaStreamSynchronize(s);
    tap_ok(count == 1, "in order");
    cudaStreamDestroy(s);
    cudaFree(p);
}

static void test_address() {
    int *p = nullptr, value = 0;
    size_t size = 0;
    GIVEN(cudaGetSymbolAddress(reinterpret_cast<void **>(&p), total), "a symbol has an address");
    cudaGetSymbolSize(&size, weights);
    tap_ok(size == sizeof weights, "and a size");
    launch(set, 1, p, 7);
    GIVEN(cudaDeviceSynchronize(), "which may be given to a kernel");
    cudaMemcpy(&value, p, sizeof value, cudaMemcpyDeviceToHost);
    tap_ok(value == 7, "and to copies");
    REFUSED(cudaFree(p), cudaErrorInvalidValue, "it is not freed");
    tap_ok(hostcuda_leaks(nullptr) == 0, "and no leak");
}

static void test_rows() {
    char *p, got[3];
    size_t pitch = 0;
    GIVEN(cudaMallocPitch(&p, &pitch, 100, 3), "rows with a pitch are given");
    tap_ok(pitch >= 100 && pitch % 512 == 0, "that is aligned");
    cudaMemset(p, 1, 3 * pitch);
    GIVEN(cudaMemset2D(p, pitch, 2, 100, 3), "rows are set");
    for (size_t i = 0; i < 3; i++) cudaMemcpy(got + i, p + 99 + i, 1, cudaMemcpyDeviceToHost);
    tap_ok(got[0] == 2 && got[1] == 1, "up to their width");
    cudaFree(p);
}

static void test_flags() {
    unsigned flags = 0;
    GIVEN(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync), "how the host waits can be set");
    cudaGetDeviceFlags(&flags);
    tap_ok(flags == (cudaDeviceBlockingSync | cudaDeviceMapHost), "and is told");
    REFUSED(cudaSetDeviceFlags(cudaDeviceScheduleSpin | cudaDeviceScheduleYield),
            cudaErrorInvalidValue, "two ways at once are refused");
    tap_ok(cudaProfilerStart() == cudaSuccess && cudaProfilerStop() == cudaSuccess,
           "the profiler can be started and stopped");
}

int main() {
    test_copies();
    test_address();
    test_rows();
    test_flags();
    return tap_done();
}
