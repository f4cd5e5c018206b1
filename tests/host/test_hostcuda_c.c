/*  test_hostcuda_c.c -- hostcuda from C99: the API without the kernel language. */
#include <string.h>

#include <cuda_runtime.h>

#include "hostcuda.h"
#include "tap.h"

int main(void) {
    struct cudaDeviceProp prop;
    cudaStream_t stream;
    cudaLaunchConfig_t config;
    int engines = 0, attribute = 0;
    void *pinned = NULL, *device = NULL;
    char back[64];
    tap_ok(cudaGetDeviceProperties(&prop, 0) == cudaSuccess &&
               strstr(prop.name, "modelled") != NULL,
           "the device's name says that it is modelled");
    engines = prop.asyncEngineCount;
    tap_ok(cudaDeviceGetAttribute(&attribute, cudaDevAttrAsyncEngineCount, 0) == cudaSuccess &&
               attribute == engines,
           "attributes and properties agree");
    tap_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess,
           "a stream is made");
    tap_ok(cudaMallocHost(&pinned, 64) == cudaSuccess && cudaMalloc(&device, 64) == cudaSuccess,
           "memory is given");
    memset(pinned, 42, 64);
    tap_ok(cudaMemcpyAsync(device, pinned, 64, cudaMemcpyHostToDevice, stream) == cudaSuccess &&
               cudaMemcpyAsync(back, device, 64, cudaMemcpyDeviceToHost, stream) == cudaSuccess &&
               cudaStreamSynchronize(stream) == cudaSuccess && memcmp(back, pinned, 64) == 0,
           "a round trip keeps the bytes");
    memset(&config, 0, sizeof config);
    config.gridDim.x = config.gridDim.y = config.gridDim.z = 1;
    config.blockDim = config.gridDim;
    tap_ok(cudaLaunchKernelExC(&config, back, NULL) == cudaErrorInvalidDeviceFunction,
           "what is no kernel is refused");
    tap_ok(cudaGetLastError() == cudaErrorInvalidDeviceFunction &&
               cudaGetLastError() == cudaSuccess,
           "the last error is kept once");
    tap_ok(cudaFree(device) == cudaSuccess && cudaFreeHost(pinned) == cudaSuccess &&
               cudaStreamDestroy(stream) == cudaSuccess && hostcuda_leaks(stderr) == 0,
           "all is released");
    return tap_done();
}
