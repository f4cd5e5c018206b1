/*  test_hostcuda_peers.cu -- two devices of hostcuda: whose memory a kernel may use, and how long a
    copy between them takes by the model. */
#include "hostcuda.h"
#include "tap.h"

enum {
    N = 1 << 20
};

static __global__ void add(int *to, const int *from) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) to[i] += from[i];
}

/* On the current device. */
static cudaError_t run(int *to, const int *from) {
    cudaLaunchConfig_t c = {};
    c.gridDim = N / 256;
    c.blockDim = 256;
    const cudaError_t e = cudaLaunchKernelEx(&c, add, to, from);
    return e != cudaSuccess ? e : cudaDeviceSynchronize();
}

static int *device_memory(int device, int value) {
    int *p = nullptr;
    cudaSetDevice(device);
    cudaMalloc(&p, N * sizeof *p);
    cudaMemset(p, value, N * sizeof *p);
    cudaDeviceSynchronize();
    return p;
}

static void test_access(void) {
    int can = -1, *mine = device_memory(0, 0), *other = device_memory(1, 1), first = 0;
    cudaSetDevice(0);
    tap_ok(cudaDeviceCanAccessPeer(&can, 0, 1) == cudaSuccess && can == 1 &&
               cudaDeviceCanAccessPeer(&can, 1, 1) == cudaSuccess && can == 0,
           "a device can access another one's memory; of itself that is not said");
    tap_ok(cudaDeviceCanAccessPeer(&can, 0, 2) == cudaErrorInvalidDevice &&
               cudaDeviceEnablePeerAccess(0, 0) == cudaErrorInvalidDevice &&
               cudaDeviceEnablePeerAccess(1, 1) == cudaErrorInvalidValue &&
               cudaDeviceDisablePeerAccess(1) == cudaErrorPeerAccessNotEnabled,
           "no such device, itself, flags, access that was not enabled: refused");
    tap_ok(cudaDeviceEnablePeerAccess(1, 0) == cudaSuccess &&
               cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessAlreadyEnabled,
           "access is enabled once");
    tap_ok(run(mine, other) == cudaSuccess &&
               cudaMemcpy(&first, mine, sizeof first, cudaMemcpyDeviceToHost) == cudaSuccess &&
               first == 0x01010101,
           "a kernel reads the memory of another device then");
    tap_ok(cudaDeviceDisablePeerAccess(1) == cudaSuccess &&
               run(mine, other) == cudaErrorIllegalAddress,
           "and fails without");
    cudaDeviceReset();
    cudaSetDevice(1);
    cudaDeviceReset();
}

/* Of device 0's stream 0. */
static double copy_ms(int *to, const int *from) {
    cudaEvent_t begin, end;
    float ms = 0;
    cudaSetDevice(0);
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    cudaEventRecord(begin, nullptr);
    cudaMemcpyAsync(to, from, N * sizeof *to, cudaMemcpyDefault, nullptr);
    cudaEventRecord(end, nullptr);
    cudaEventSynchronize(end);
    cudaEventElapsedTime(&ms, begin, end);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return static_cast<double>(ms);
}

static void test_copies(void) {
    int *mine = device_memory(0, 0), *too = device_memory(0, 2), *other = device_memory(1, 1);
    const double within = copy_ms(mine, too), between = copy_ms(mine, other);
    const hostcuda_profile_t p = hostcuda_get_profile(0);
    const double bus = N * sizeof *mine / p.d2h * 1e-6;
    tap_ok(within < bus / 4 && between > bus && between < bus * 1.2,
           "a copy between devices takes the time of the bus, within one that of its memory");
    cudaFree(mine);
    cudaFree(too);
    cudaFree(other);
}

int main() {
    const hostcuda_profile_t p = hostcuda_profile("h200");
    if (hostcuda_set_devices(2) != cudaSuccess) return 1;
    for (int g = 0; g < 2; ++g) hostcuda_set_profile(g, &p);
    test_access();
    test_copies();
    tap_ok(hostcuda_leaks(stderr) == 0, "all is released");
    return tap_done();
}
