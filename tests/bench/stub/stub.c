/*  stub.c -- a CUDA runtime that does nothing: every call succeeds at once, every event has
    happened, "device" memory is malloc's. What a program then spends is its own.

    For counting instructions on hostcuda's headers (tests/bench/host); nothing is computed. Host
    memory counts as pinned. Stream capture is refused, so that every chunk is issued by calls. */
#include "stub.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

/* The calls that a pipeline makes while it runs; of the others only the sum is of interest. */
enum {
    COPY,
    LAUNCH,
    RECORD,
    WAIT_EVENT,
    QUERY_EVENT,
    WAIT_HOST,
    MEMSET,
    HOST_FUNC,
    LAST_ERROR,
    OTHER,
    NUM_COUNTS
};

static stub_count_t counts[] = {
    {"cudaMemcpyAsync", 0},
    {"cudaLaunchKernel", 0},
    {"cudaEventRecord", 0},
    {"cudaStreamWaitEvent", 0},
    {"cudaEventQuery", 0},
    {"synchronise", 0},
    {"cudaMemsetAsync", 0},
    {"cudaLaunchHostFunc", 0},
    {"last error", 0},
    {"other", 0},
    {NULL, 0},
};

const stub_count_t *stub_counts(void) { return counts; }

void stub_reset(void) {
    int k;
    for (k = 0; k < NUM_COUNTS; ++k) counts[k].calls = 0;
}

static cudaError_t did(int what) {
    counts[what].calls++;
    return cudaSuccess;
}

/* A handle that is not NULL and can be freed. */
static cudaError_t make(void *handle) {
    void *p = malloc(1);
    if (!p) return cudaErrorMemoryAllocation;
    memcpy(handle, &p, sizeof p);
    return did(OTHER);
}

static cudaError_t drop(void *handle) {
    free(handle);
    return did(OTHER);
}

static cudaError_t give(void **memory, size_t bytes) {
    *memory = malloc(bytes > 0 ? bytes : 1);
    return *memory ? did(OTHER) : cudaErrorMemoryAllocation;
}

static cudaError_t say(int *value, int is) {
    *value = is;
    return did(OTHER);
}

/* ---- errors and devices -------------------------------------------------------------------- */

const char *cudaGetErrorName(cudaError_t error) { return error ? "error" : "cudaSuccess"; }

const char *cudaGetErrorString(cudaError_t error) { return error ? "an error" : "no error"; }

cudaError_t cudaGetLastError(void) { return did(LAST_ERROR); }

cudaError_t cudaPeekAtLastError(void) { return did(LAST_ERROR); }

cudaError_t cudaRuntimeGetVersion(int *version) { return say(version, CUDART_VERSION); }

cudaError_t cudaDriverGetVersion(int *version) { return say(version, CUDART_VERSION); }

cudaError_t cudaGetDeviceCount(int *count) { return say(count, 1); }

cudaError_t cudaGetDevice(int *device) { return say(device, 0); }

cudaError_t cudaSetDevice(int device) {
    (void)device;
    return did(OTHER);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device) {
    (void)device;
    switch ((int)attr) {
    case cudaDevAttrComputeCapabilityMajor: return say(value, 9);
    case cudaDevAttrMultiProcessorCount: return say(value, 132);
    case cudaDevAttrAsyncEngineCount: return say(value, 3);
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory: return say(value, 1);
    default: return say(value, 0);
    }
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device) {
    (void)device;
    memset(prop, 0, sizeof *prop);
    memcpy(prop->name, "stub", 5);
    prop->totalGlobalMem = (size_t)16 << 30;
    prop->major = 9;
    prop->multiProcessorCount = 132;
    prop->asyncEngineCount = 3;
    prop->concurrentKernels = prop->canMapHostMemory = prop->unifiedAddressing = 1;
    return did(OTHER);
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int device) {
    (void)device;
    if (len > 0) id[0] = 0;
    return did(OTHER);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    (void)say(least, 0);
    return say(greatest, -5);
}

cudaError_t cudaDeviceSynchronize(void) { return did(WAIT_HOST); }

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    *available = *total = (size_t)16 << 30;
    return did(OTHER);
}

/* ---- streams and events -------------------------------------------------------------------- */

cudaError_t cudaStreamCreate(cudaStream_t *stream) { return make(stream); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
    (void)flags;
    return make(stream);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority) {
    (void)flags;
    (void)priority;
    return make(stream);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) { return drop(stream); }

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    (void)stream;
    return did(WAIT_HOST);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    (void)stream;
    return did(QUERY_EVENT);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
    (void)stream;
    (void)event;
    (void)flags;
    return did(WAIT_EVENT);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    (void)stream;
    *status = cudaStreamCaptureStatusNone;
    return did(OTHER);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    (void)stream;
    (void)mode;
    (void)did(OTHER);
    return cudaErrorNotSupported;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    (void)mode;
    return did(OTHER);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *user) {
    (void)stream;
    (void)did(HOST_FUNC);
    fn(user);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return make(event); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
    (void)flags;
    return make(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) { return drop(event); }

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    (void)event;
    (void)stream;
    return did(RECORD);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    (void)event;
    return did(QUERY_EVENT);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    (void)event;
    return did(WAIT_HOST);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    (void)start;
    (void)end;
    *ms = 0;
    return did(OTHER);
}

/* ---- memory -------------------------------------------------------------------------------- */

cudaError_t cudaMalloc(void **p, size_t bytes) { return give(p, bytes); }

cudaError_t cudaFree(void *p) { return drop(p); }

cudaError_t cudaMallocHost(void **p, size_t bytes) { return give(p, bytes); }

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned int flags) {
    (void)flags;
    return give(p, bytes);
}

cudaError_t cudaFreeHost(void *p) { return drop(p); }

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned int flags) {
    (void)p;
    (void)bytes;
    (void)flags;
    return did(OTHER);
}

cudaError_t cudaHostUnregister(void *p) {
    (void)p;
    return did(OTHER);
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned int flags) {
    (void)flags;
    *device = host;
    return did(OTHER);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *p) {
    memset(attributes, 0, sizeof *attributes);
    attributes->type = cudaMemoryTypeHost;
    memcpy(&attributes->hostPointer, &p, sizeof p);
    attributes->devicePointer = attributes->hostPointer;
    return did(OTHER);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    (void)to;
    (void)from;
    (void)bytes;
    (void)kind;
    (void)stream;
    return did(COPY);
}

cudaError_t cudaMemcpyBatchAsync(void *const *to, const void *const *from, const size_t *sizes,
                                 size_t count, struct cudaMemcpyAttributes *attributes,
                                 size_t *indices, size_t num_attributes, cudaStream_t stream) {
    (void)to;
    (void)from;
    (void)sizes;
    (void)count;
    (void)attributes;
    (void)indices;
    (void)num_attributes;
    (void)stream;
    return did(COPY);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
    (void)p;
    (void)value;
    (void)bytes;
    (void)stream;
    return did(MEMSET);
}

/* ---- launches and graphs ------------------------------------------------------------------- */

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *func, void **args) {
    (void)config;
    (void)func;
    (void)args;
    return did(LAUNCH);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    (void)stream;
    (void)did(OTHER);
    *graph = NULL;
    return cudaErrorNotSupported;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long flags) {
    (void)graph;
    (void)flags;
    (void)did(OTHER);
    *exec = NULL;
    return cudaErrorNotSupported;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    (void)exec;
    (void)stream;
    (void)did(OTHER);
    return cudaErrorNotSupported;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    (void)exec;
    (void)stream;
    return did(OTHER);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *num) {
    (void)graph;
    (void)nodes;
    *num = 1;
    return did(OTHER);
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type) {
    (void)node;
    *type = cudaGraphNodeTypeEmpty;
    return did(OTHER);
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node,
                                         struct cudaKernelNodeParams *params) {
    (void)node;
    (void)params;
    return cudaErrorNotSupported;
}

cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, struct cudaMemcpy3DParms *params) {
    (void)node;
    (void)params;
    return cudaErrorNotSupported;
}

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, struct cudaMemsetParams *params) {
    (void)node;
    (void)params;
    return cudaErrorNotSupported;
}

cudaError_t cudaFuncGetParamInfo(const void *func, size_t index, size_t *offset, size_t *size) {
    (void)func;
    (void)index;
    *offset = *size = 0;
    return cudaErrorNotSupported;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    (void)graph;
    return did(OTHER);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    (void)exec;
    return did(OTHER);
}
