/* hostcuda: __constant__ and __device__ variables in calls. Included by cuda_runtime.h. */
#ifndef HOSTCUDA_SYMBOLS_H
#define HOSTCUDA_SYMBOLS_H

#include "cuda_runtime.h"

struct hostcuda_symbol_copy_t {
    void *symbol;
    size_t size; /* of the symbol */
    void *other; /* memory that is read or written */
    size_t count, offset;
    cudaMemcpyKind kind;
    cudaStream_t stream;
    bool to_symbol, wait;
};

/* name: of the function that was called. */
extern "C" cudaError_t hostcuda_copy_symbol(const char *name, const hostcuda_symbol_copy_t *copy);
extern "C" cudaError_t hostcuda_symbol_address(void **p, void *symbol, size_t size);

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define HOSTCUDA_STREAM_0 cudaStreamPerThread
#else
#define HOSTCUDA_STREAM_0 cudaStreamLegacy
#endif

namespace hostcuda {

template <typename T>
inline void *address_of(const T &symbol) {
    return const_cast<void *>(
        static_cast<const volatile void *>(&reinterpret_cast<const volatile char &>(symbol)));
}

} /* namespace hostcuda */

template <typename T>
inline cudaError_t cudaMemcpyToSymbol(const T &symbol, const void *src, size_t count,
                                      size_t offset = 0,
                                      cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
    const hostcuda_symbol_copy_t c = {hostcuda::address_of(symbol),
                                      sizeof(T),
                                      const_cast<void *>(src),
                                      count,
                                      offset,
                                      kind,
                                      HOSTCUDA_STREAM_0,
                                      true,
                                      true};
    return hostcuda_copy_symbol("cudaMemcpyToSymbol", &c);
}

template <typename T>
inline cudaError_t cudaMemcpyFromSymbol(void *dst, const T &symbol, size_t count, size_t offset = 0,
                                        cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
    const hostcuda_symbol_copy_t c = {hostcuda::address_of(symbol),
                                      sizeof(T),
                                      dst,
                                      count,
                                      offset,
                                      kind,
                                      HOSTCUDA_STREAM_0,
                                      false,
                                      true};
    return hostcuda_copy_symbol("cudaMemcpyFromSymbol", &c);
}

template <typename T>
inline cudaError_t cudaMemcpyToSymbolAsync(const T &symbol, const void *src, size_t count,
                                           size_t offset, cudaMemcpyKind kind,
                                           cudaStream_t stream = nullptr) {
    const hostcuda_symbol_copy_t c = {hostcuda::address_of(symbol),
                                      sizeof(T),
                                      const_cast<void *>(src),
                                      count,
                                      offset,
                                      kind,
                                      stream ? stream : HOSTCUDA_STREAM_0,
                                      true,
                                      false};
    return hostcuda_copy_symbol("cudaMemcpyToSymbolAsync", &c);
}

template <typename T>
inline cudaError_t cudaMemcpyFromSymbolAsync(void *dst, const T &symbol, size_t count,
                                             size_t offset, cudaMemcpyKind kind,
                                             cudaStream_t stream = nullptr) {
    const hostcuda_symbol_copy_t c = {
        hostcuda::address_of(symbol),        sizeof(T), dst,  count, offset, kind,
        stream ? stream : HOSTCUDA_STREAM_0, false,     false};
    return hostcuda_copy_symbol("cudaMemcpyFromSymbolAsync", &c);
}

template <typename T>
inline cudaError_t cudaGetSymbolAddress(void **p, const T &symbol) {
    return hostcuda_symbol_address(p, hostcuda::address_of(symbol), sizeof(T));
}

template <typename T>
inline cudaError_t cudaGetSymbolSize(size_t *size, const T &) {
    if (!size) return cudaErrorInvalidValue;
    *size = sizeof(T);
    return cudaSuccess;
}

#endif
