/* hostcuda: --default-stream per-thread, that is CUDA_API_PER_THREAD_DEFAULT_STREAM. In a file that
 * is compiled so, stream 0 is cudaStreamPerThread, and the calls that wait for their own work, as
 * cudaMemcpy, work in that stream. cudaStreamLegacy stays what it is. The functions are those that
 * CUDA 13 lists; other files of the program may be compiled without. Included by
 * cuda_runtime_api.h. */
#ifndef HOSTCUDA_PER_THREAD_H
#define HOSTCUDA_PER_THREAD_H

#include "cuda_runtime_api.h"

#define HOSTCUDA_OWN(stream) ((stream) ? (stream) : cudaStreamPerThread)
#define HOSTCUDA_PTSZ        static inline __attribute__((unused)) cudaError_t

/* ---- those that take a stream ---------------------------------------------------------------- */

HOSTCUDA_PTSZ cudaMemcpyAsync_ptsz(void *dst, const void *src, size_t count,
                                   enum cudaMemcpyKind kind,
                                   cudaStream_t stream HOSTCUDA_DEFAULT(0)) {
    return cudaMemcpyAsync(dst, src, count, kind, HOSTCUDA_OWN(stream));
}

HOSTCUDA_PTSZ cudaMemcpy2DAsync_ptsz(void *dst, size_t dpitch, const void *src, size_t spitch,
                                     size_t width, size_t height, enum cudaMemcpyKind kind,
                                     cudaStream_t stream HOSTCUDA_DEFAULT(0)) {
    return cudaMemcpy2DAsync(dst, dpitch, src, spitch, width, height, kind, HOSTCUDA_OWN(stream));
}

HOSTCUDA_PTSZ cudaMemsetAsync_ptsz(void *p, int value, size_t count,
                                   cudaStream_t stream HOSTCUDA_DEFAULT(0)) {
    return cudaMemsetAsync(p, value, count, HOSTCUDA_OWN(stream));
}

HOSTCUDA_PTSZ cudaMemset2D_ptds(void *p, size_t pitch, int value, size_t width, size_t height) {
    return cudaMemset2DAsync(p, pitch, value, width, height, cudaStreamPerThread);
}

HOSTCUDA_PTSZ cudaMemset2DAsync_ptsz(void *p, size_t pitch, int value, size_t width, size_t height,
                                     cudaStream_t stream HOSTCUDA_DEFAULT(0)) {
    return cudaMemset2DAsync(p, pitch, value, width, height, HOSTCUDA_OWN(stream));
}

#if CUDART_VERSION >= 13000
HOSTCUDA_PTSZ cudaMemcpyBatchAsync_ptsz(void *const *dsts, const void *const *srcs,
                                        const size_t *sizes, size_t count,
                                        struct cudaMemcpyAttributes *attrs, size_t *first,
                                        size_t num, cudaStream_t stream) {
    return cudaMemcpyBatchAsync(dsts, srcs, sizes, count, attrs, first, num, HOSTCUDA_OWN(stream));
}
#endif

HOSTCUDA_PTSZ cudaMallocAsync_ptsz(void **p, size_t size, cudaStream_t stream) {
    return cudaMallocAsync(p, size, HOSTCUDA_OWN(stream));
}

HOSTCUDA_PTSZ cudaFreeAsync_ptsz(void *p, cudaStream_t stream) {
    return cudaFreeAsync(p, HOSTCUDA_OWN(stream));
}

HOSTCUDA_PTSZ cudaStreamQuery_ptsz(cudaStream_t stream) {
    return cudaStreamQuery(HOSTCUDA_OWN(stream));
}

HOSTCUDA_PTSZ cudaStreamSynchronize_ptsz(cudaStream_t stream) {
    return cudaStreamSynchronize(HOSTCUDA_OWN(stream));
}

#if CUDART_VERSION >= 12080
HOSTCUDA_PTSZ cudaStreamGetDevice_ptsz(cudaStream_t stream, int *device) {
    return cudaStreamGetDevice(HOSTCUDA_OWN(stream), device);
}
#endif

HOSTCUDA_PTSZ cudaStreamGetFlags_ptsz(cudaStream_t stream, unsigned int *flags) {
    return cudaStreamGetFlags(HOSTCUDA_OWN(stream), flags);
}

HOSTCUDA_PTSZ cudaStreamGetId_ptsz(cudaStream_t stream, unsigned long long *id) {
    return cudaStreamGetId(HOSTCUDA_OWN(stream), id);
}

HOSTCUDA_PTSZ cudaStreamGetPriority_ptsz(cudaStream_t stream, int *priority) {
    return cudaStreamGetPriority(HOSTCUDA_OWN(stream), priority);
}

HOSTCUDA_PTSZ cudaStreamWaitEvent_ptsz(cudaStream_t stream, cudaEvent_t event,
                                       unsigned int flags HOSTCUDA_DEFAULT(0)) {
    return cudaStreamWaitEvent(HOSTCUDA_OWN(stream), event, flags);
}

HOSTCUDA_PTSZ cudaEventRecord_ptsz(cudaEvent_t event, cudaStream_t stream HOSTCUDA_DEFAULT(0)) {
    return cudaEventRecord(event, HOSTCUDA_OWN(stream));
}

HOSTCUDA_PTSZ cudaEventRecordWithFlags_ptsz(cudaEvent_t event,
                                            cudaStream_t stream HOSTCUDA_DEFAULT(0),
                                            unsigned int flags HOSTCUDA_DEFAULT(0)) {
    return cudaEventRecordWithFlags(event, HOSTCUDA_OWN(stream), flags);
}

HOSTCUDA_PTSZ cudaLaunchHostFunc_ptsz(cudaStream_t stream, cudaHostFn_t fn, void *user) {
    return cudaLaunchHostFunc(HOSTCUDA_OWN(stream), fn, user);
}

HOSTCUDA_PTSZ cudaStreamAddCallback_ptsz(cudaStream_t stream, cudaStreamCallback_t fn, void *user,
                                         unsigned int flags) {
    return cudaStreamAddCallback(HOSTCUDA_OWN(stream), fn, user, flags);
}

HOSTCUDA_PTSZ
cudaStreamAttachMemAsync_ptsz(cudaStream_t stream, void *p, size_t length HOSTCUDA_DEFAULT(0),
                              unsigned int flags HOSTCUDA_DEFAULT(cudaMemAttachSingle)) {
    return cudaStreamAttachMemAsync(HOSTCUDA_OWN(stream), p, length, flags);
}

#if defined(__cplusplus) || CUDART_VERSION >= 13000
HOSTCUDA_PTSZ cudaMemPrefetchAsync_ptsz(const void *p, size_t count,
                                        struct cudaMemLocation location, unsigned int flags,
                                        cudaStream_t stream HOSTCUDA_DEFAULT(0)) {
    return cudaMemPrefetchAsync(p, count, location, flags, HOSTCUDA_OWN(stream));
}
#endif
#ifdef __cplusplus
HOSTCUDA_PTSZ cudaMemPrefetchAsync_ptsz(const void *p, size_t count, int device,
                                        cudaStream_t stream = nullptr) {
    return cudaMemPrefetchAsync(p, count, device, HOSTCUDA_OWN(stream));
}
#endif

HOSTCUDA_PTSZ cudaMallocFromPoolAsync_ptsz(void **p, size_t size, cudaMemPool_t pool,
                                           cudaStream_t stream) {
    return cudaMallocFromPoolAsync(p, size, pool, HOSTCUDA_OWN(stream));
}

HOSTCUDA_PTSZ cudaLaunchKernel_ptsz(const void *func, dim3 grid, dim3 block, void **args,
                                    size_t shared, cudaStream_t stream) {
    return cudaLaunchKernel(func, grid, block, args, shared, HOSTCUDA_OWN(stream));
}

HOSTCUDA_PTSZ cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *config, const void *func,
                                       void **args) {
    cudaLaunchConfig_t own;
    if (!config) return cudaLaunchKernelExC(config, func, args);
    own = *config;
    own.stream = HOSTCUDA_OWN(own.stream);
    return cudaLaunchKernelExC(&own, func, args);
}

HOSTCUDA_PTSZ cudaStreamBeginCapture_ptsz(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    return cudaStreamBeginCapture(HOSTCUDA_OWN(stream), mode);
}

HOSTCUDA_PTSZ cudaStreamEndCapture_ptsz(cudaStream_t stream, cudaGraph_t *graph) {
    return cudaStreamEndCapture(HOSTCUDA_OWN(stream), graph);
}

HOSTCUDA_PTSZ cudaStreamIsCapturing_ptsz(cudaStream_t stream,
                                         enum cudaStreamCaptureStatus *status) {
    return cudaStreamIsCapturing(HOSTCUDA_OWN(stream), status);
}

HOSTCUDA_PTSZ cudaStreamGetCaptureInfo_ptsz(
    cudaStream_t stream, enum cudaStreamCaptureStatus *status,
    unsigned long long *id HOSTCUDA_DEFAULT(0), cudaGraph_t *graph HOSTCUDA_DEFAULT(0),
    const cudaGraphNode_t **dependencies HOSTCUDA_DEFAULT(0),
    const cudaGraphEdgeData **edges HOSTCUDA_DEFAULT(0), size_t *count HOSTCUDA_DEFAULT(0)) {
    return cudaStreamGetCaptureInfo(HOSTCUDA_OWN(stream), status, id, graph, dependencies, edges,
                                    count);
}

HOSTCUDA_PTSZ cudaGraphLaunch_ptsz(cudaGraphExec_t graph, cudaStream_t stream) {
    return cudaGraphLaunch(graph, HOSTCUDA_OWN(stream));
}

HOSTCUDA_PTSZ cudaGraphUpload_ptsz(cudaGraphExec_t graph, cudaStream_t stream) {
    return cudaGraphUpload(graph, HOSTCUDA_OWN(stream));
}

/* ---- the names ------------------------------------------------------------------------------- */

#define cudaMemcpy                cudaMemcpy_ptds
#define cudaMemcpy2D              cudaMemcpy2D_ptds
#define cudaMemset                cudaMemset_ptds
#define cudaMemset2D              cudaMemset2D_ptds
#define cudaMemcpyToSymbol        cudaMemcpyToSymbol_ptds
#define cudaMemcpyFromSymbol      cudaMemcpyFromSymbol_ptds
#define cudaMemcpyToSymbolAsync   cudaMemcpyToSymbolAsync_ptsz
#define cudaMemcpyFromSymbolAsync cudaMemcpyFromSymbolAsync_ptsz
#define cudaMemcpyAsync           cudaMemcpyAsync_ptsz
#define cudaMemcpy2DAsync         cudaMemcpy2DAsync_ptsz
#define cudaMemcpyBatchAsync      cudaMemcpyBatchAsync_ptsz
#define cudaMemsetAsync           cudaMemsetAsync_ptsz
#define cudaMemset2DAsync         cudaMemset2DAsync_ptsz
#define cudaMallocAsync           cudaMallocAsync_ptsz
#define cudaFreeAsync             cudaFreeAsync_ptsz
#define cudaStreamQuery           cudaStreamQuery_ptsz
#define cudaStreamSynchronize     cudaStreamSynchronize_ptsz
#define cudaStreamGetDevice       cudaStreamGetDevice_ptsz
#define cudaStreamGetFlags        cudaStreamGetFlags_ptsz
#define cudaStreamGetId           cudaStreamGetId_ptsz
#define cudaStreamGetPriority     cudaStreamGetPriority_ptsz
#define cudaStreamWaitEvent       cudaStreamWaitEvent_ptsz
#define cudaEventRecord           cudaEventRecord_ptsz
#define cudaEventRecordWithFlags  cudaEventRecordWithFlags_ptsz
#define cudaLaunchHostFunc        cudaLaunchHostFunc_ptsz
#define cudaStreamAddCallback     cudaStreamAddCallback_ptsz
#define cudaStreamAttachMemAsync  cudaStreamAttachMemAsync_ptsz
#define cudaMemPrefetchAsync      cudaMemPrefetchAsync_ptsz
#define cudaMallocFromPoolAsync   cudaMallocFromPoolAsync_ptsz
#define cudaLaunchKernel          cudaLaunchKernel_ptsz
#define cudaLaunchKernelExC       cudaLaunchKernelExC_ptsz
#define cudaStreamBeginCapture    cudaStreamBeginCapture_ptsz
#define cudaStreamEndCapture      cudaStreamEndCapture_ptsz
#define cudaStreamIsCapturing     cudaStreamIsCapturing_ptsz
#define cudaStreamGetCaptureInfo  cudaStreamGetCaptureInfo_ptsz
#define cudaGraphLaunch           cudaGraphLaunch_ptsz
#define cudaGraphUpload           cudaGraphUpload_ptsz
/* A template that calls one of these must not have one name in both kinds of files. */
#define cudaLaunchKernelEx cudaLaunchKernelEx_ptsz

#endif
