/* hostcuda: how it starts and ends, what every call passes, errors, devices, and its own functions.
 * A call checks and issues; a thread for each stream does the work in order. */
#include <algorithm>
#include <climits>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

#ifdef __GLIBC__
#include <unistd.h>
#endif
#ifndef _WIN32
#include <pthread.h>
#endif

#include "cuda_profiler_api.h"
#include "hostcuda.h"
#include "hostcuda_internal.h"

namespace hc {

#ifdef _WIN32
Thread &self_here() {
    static thread_local Thread *thread = nullptr;
    if (!thread) thread = new Thread;
    return *thread;
}
#else
thread_local Thread self;
#endif

namespace {

/* ---- start and end --------------------------------------------------------------------------- */

void arm(State &s, const std::string &what, long k, cudaError_t e, bool async) {
    s.faults.push_back(Fault{what, async, k, e});
}

/* Reads HOSTCUDA_FAIL: "cudaMalloc:3:2,kernel:1:700". */
void arm_from_environment(State &s) {
    const char *text = getenv("HOSTCUDA_FAIL");
    std::string rest = text ? text : "";
    while (!rest.empty()) {
        const std::string item = rest.substr(0, rest.find(','));
        rest = item.size() < rest.size() ? rest.substr(item.size() + 1) : "";
        const size_t a = item.find(':'), b = item.find(':', a == std::string::npos ? a : a + 1);
        if (a == std::string::npos || b == std::string::npos) {
            fprintf(stderr, "hostcuda: HOSTCUDA_FAIL: \"%s\" is not function:k:error\n",
                    item.c_str());
            exit(2);
        }
        const std::string what = item.substr(0, a);
        arm(s, what, atol(item.c_str() + a + 1),
            static_cast<cudaError_t>(atoi(item.c_str() + b + 1)), what.compare(0, 4, "cuda") != 0);
    }
}

int list_blocks(const Blocks &blocks, FILE *f, bool on_device) {
    int count = 0;
    for (const auto &b : blocks) {
        if (b.second.variable) continue;
        const char *what = b.second.registered ? "registered host memory" : "pinned memory";
        if (on_device) what = b.second.managed ? "managed memory" : "device memory";
        if (f)
            fprintf(f, "hostcuda:   %s: %zu bytes (device %d)\n", what, b.second.size,
                    b.second.device);
        ++count;
    }
    return count;
}

int list_count(size_t count, const char *what, FILE *f) {
    if (f && count) fprintf(f, "hostcuda:   %s: %zu\n", what, count);
    return static_cast<int>(count);
}

int report_leaks(FILE *f) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    const State &s = state();
    return list_count(s.streams.size(), "streams", f) + list_count(s.events.size(), "events", f) +
           list_count(s.graphs.size(), "graphs", f) +
           list_count(s.execs.size(), "executable graphs", f) +
           list_count(static_cast<size_t>(pools_made()), "memory pools", f) +
           list_blocks(s.device_blocks, f, true) + list_blocks(s.host_blocks, f, false);
}

bool any_closing() {
    for (const auto &d : state().devices)
        for (const StreamP &s : d->streams)
            if (s->closing) return true;
    return false;
}

/* Waits, for a limited time, until the threads of destroyed streams have ended; those of live
 * streams are left idle. */
void let_threads_end() {
    if (self.in_host) return;
    const Hidden hidden;
    Lock lock(state().mutex);
    const auto until = Steady::now() + std::chrono::seconds(2);
    while (any_closing() && Steady::now() < until) {
        lock.wait_for(state().changed, std::chrono::milliseconds(100));
    }
    for (const auto &d : state().devices)
        for (const StreamP &s : d->streams)
            if (s->thread.joinable()) s->thread.detach();
    join_finished(lock);
}

void at_exit(int status) {
    if (state().forked) return;
    let_threads_end();
    if (report_leaks(nullptr) == 0) return;
    fprintf(stderr, "hostcuda: alive at exit:\n");
    report_leaks(stderr);
    const char *mode = getenv("HOSTCUDA_LEAKS");
    if (status != 0 || (mode && strcmp(mode, "0") == 0)) return;
#ifdef __GLIBC__
    fflush(nullptr);
    _exit(97);
#endif
}

#ifdef __GLIBC__
void on_exit_hook(int status, void *) { at_exit(status); }
#else
void atexit_hook() { at_exit(1); }
#endif

void add_device(State &s, const hostcuda_profile_t &profile) {
    std::unique_ptr<Device> d(new Device);
    d->profile = profile;
    d->legacy = std::make_shared<Stream>();
    d->legacy->device = static_cast<int>(s.devices.size());
    model_device(*d);
    s.devices.push_back(std::move(d));
}

#ifndef _WIN32
/* In a process that was forked another thread would hold the lock for ever. If CUDA was used before
 * the fork, it does not work there: the threads of streams are not there, either. */
void lock_for_fork() {
    const Hidden hidden;
    state().mutex.lock();
}

void unlock_after_fork() {
    const Hidden hidden;
    state().mutex.unlock();
}

void in_forked() {
    state().forked = state().used;
    unlock_after_fork();
}
#endif

State *make_state() {
    State *s = new State; /* never deleted: the streams' threads may outlive main */
    const char *name = getenv("HOSTCUDA_PROFILE"), *count = getenv("HOSTCUDA_DEVICES");
    const hostcuda_profile_t profile = profile_named(name ? name : "h200");
    if (!profile.name[0]) {
        fprintf(stderr, "hostcuda: HOSTCUDA_PROFILE: no profile \"%s\"\n", name);
        exit(2);
    }
    const int devices = std::min(16, std::max(1, count ? atoi(count) : 1));
    for (int i = 0; i < devices; ++i) add_device(*s, profile);
    if (const char *seed = getenv("HOSTCUDA_JITTER")) s->jitter = static_cast<unsigned>(atoi(seed));
    if (const char *on = getenv("HOSTCUDA_PROMPT_ERRORS")) s->prompt = atoi(on) != 0;
    if (const char *most = getenv("HOSTCUDA_PINNED_LIMIT"))
        s->pinned_limit = static_cast<size_t>(strtoull(most, nullptr, 10));
    arm_from_environment(*s);
    add_managed_variables(*s);
#ifndef _WIN32
    (void)pthread_atfork(lock_for_fork, unlock_after_fork, in_forked);
#endif
#ifdef __GLIBC__
    on_exit(on_exit_hook, nullptr);
#else
    atexit(atexit_hook);
#endif
    return s;
}

} /* namespace */

State &state() {
    static State *s = make_state();
    return *s;
}

/* ---- every call ------------------------------------------------------------------------------ */

bool forbidden_by_capture() {
    bool forbidden = false;
    auto &list = state().capturing;
    for (const auto &weak : list) {
        const CaptureP c = weak.lock();
        if (!c || self.mode == cudaStreamCaptureModeRelaxed) continue;
        const bool mine = c->thread == thread_key();
        const bool global =
            c->mode == cudaStreamCaptureModeGlobal && self.mode == cudaStreamCaptureModeGlobal;
        if (global || (mine && c->mode != cudaStreamCaptureModeRelaxed)) {
            forbidden = true;
            c->invalid = true;
        }
    }
    return forbidden;
}

static cudaError_t injected(const char *function) {
    State &s = state();
    cudaError_t e = cudaSuccess;
    for (size_t i = 0; i < s.faults.size();) {
        Fault &f = s.faults[i];
        if (f.async || (!f.what.empty() && f.what != function) || --f.left > 0) {
            ++i;
            continue;
        }
        e = f.error;
        ++s.fired;
        s.faults.erase(s.faults.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return e;
}

/* Lets the operation that is to fail do so, and shows its error to this call; but a host function
 * may wait for this thread. */
static void surface_promptly(Lock &lock) {
    Device &d = current();
    const std::chrono::milliseconds patience(100);
    while (d.doomed && !d.doomed->done && !host_function_hangs(patience))
        lock.wait_for(state().changed, std::chrono::milliseconds(1));
    (void)surface(d);
}

void explain(const char *format, ...) {
    static int said;
    if (++said > 20) return;
    va_list values;
    va_start(values, format);
    fputs("hostcuda: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
}

Call::Call(const char *function, unsigned flags, double hostcuda_profile_t::*cost)
    : lock(state().mutex) {
    State &s = state();
    s.used = true;
    if (s.forked) {
        refused = cudaErrorInitializationError;
        return;
    }
    if (self.in_host) {
        refused = cudaErrorNotPermitted;
        return;
    }
    if (!(flags & (NO_STICKY | NO_START))) self.started = true;
    ++s.calls[function];
    ++s.all_calls;
    if (s.prompt && !(flags & NO_STICKY)) surface_promptly(lock);
    refused = injected(function);
    if (refused == cudaSuccess && !(flags & NO_STICKY)) sticky = current().sticky;
    if (refused == cudaSuccess && !(flags & RELEASE)) refused = sticky;
    if (refused == cudaSuccess && (flags & UNSAFE) && forbidden_by_capture())
        refused = cudaErrorStreamCaptureUnsupported;
    if (refused == cudaSuccess && cost && !self.unmodelled) clock_advance(current().profile.*cost);
}

} /* namespace hc */

using namespace hc;

extern "C" {

/* ---- errors ---------------------------------------------------------------------------------- */

struct ErrorText {
    cudaError_t error;
    const char *name, *text;
};

static const ErrorText error_texts[] = {
#define E(name, text)                                                                              \
    { name, #name, text }
    E(cudaSuccess, "no error"),
    E(cudaErrorInvalidValue, "invalid argument"),
    E(cudaErrorMemoryAllocation, "out of memory"),
    E(cudaErrorInitializationError, "initialization error"),
    E(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    E(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    E(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    E(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    E(cudaErrorInvalidDeviceFunction, "invalid device function"),
    E(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    E(cudaErrorInvalidDevice, "invalid device ordinal"),
    E(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    E(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    E(cudaErrorNotReady, "device not ready"),
    E(cudaErrorOperatingSystem, "OS call failed or operation not supported on this OS"),
    E(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    E(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    E(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    E(cudaErrorAssert, "device-side assert triggered"),
    E(cudaErrorHostMemoryAlreadyRegistered,
      "part or all of the requested memory range is already mapped"),
    E(cudaErrorHostMemoryNotRegistered,
      "pointer does not correspond to a registered memory region"),
    E(cudaErrorMisalignedAddress, "misaligned address"),
    E(cudaErrorLaunchFailure, "unspecified launch failure"),
    E(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    E(cudaErrorNotPermitted, "operation not permitted"),
    E(cudaErrorNotSupported, "operation not supported"),
    E(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    E(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    E(cudaErrorStreamCaptureMerge,
      "operation would result in a merge of separate capture sequences"),
    E(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    E(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    E(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    E(cudaErrorStreamCaptureImplicit,
      "operation would make the legacy stream depend on a capturing stream"),
    E(cudaErrorCapturedEvent,
      "operation not permitted on an event last recorded in a capturing stream"),
    E(cudaErrorStreamCaptureWrongThread,
      "attempt to terminate a thread-local capture from another thread"),
    E(cudaErrorUnknown, "unknown error"),
#undef E
};

const char *cudaGetErrorName(cudaError_t error) {
    for (const ErrorText &t : error_texts)
        if (t.error == error) return t.name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
    for (const ErrorText &t : error_texts)
        if (t.error == error) return t.text;
    return "unrecognized error code";
}

static cudaError_t last_error(bool clear) {
    const Hidden hidden;
    Lock lock(state().mutex);
    if (state().prompt && !self.in_host) surface_promptly(lock);
    const cudaError_t sticky = current().sticky;
    const cudaError_t e = sticky != cudaSuccess ? sticky : self.last;
    if (clear) self.last = cudaSuccess;
    return e;
}

cudaError_t cudaGetLastError(void) { return last_error(true); }

cudaError_t cudaPeekAtLastError(void) { return last_error(false); }

cudaError_t cudaRuntimeGetVersion(int *version) {
    ENTER(NO_STICKY);
    REFUSE_IF(!version, cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return call.done(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int *version) {
    ENTER(NO_STICKY);
    REFUSE_IF(!version, cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return call.done(cudaSuccess);
}

/* ---- devices --------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *count) {
    ENTER(NO_STICKY);
    REFUSE_IF(!count, cudaErrorInvalidValue);
    *count = static_cast<int>(state().devices.size());
    return call.done(cudaSuccess);
}

cudaError_t cudaGetDevice(int *out) {
    ENTER(NO_STICKY);
    REFUSE_IF(!out, cudaErrorInvalidValue);
    *out = self.device;
    return call.done(cudaSuccess);
}

cudaError_t cudaSetDevice(int i) {
    ENTER(NO_STICKY);
    REFUSE_IF(!is_device(i), cudaErrorInvalidDevice);
    self.device = i;
    self.started = true;
    return call.done(cudaSuccess);
}

/* How the host waits is for the driver to say: here it always blocks. */
cudaError_t cudaSetDeviceFlags(unsigned flags) {
    ENTER(NO_STICKY);
    const unsigned known = cudaDeviceScheduleMask | cudaDeviceMapHost | cudaDeviceLmemResizeToMax;
    const unsigned how = flags & cudaDeviceScheduleMask;
    REFUSE_IF((flags & ~known) || (how & (how - 1)), cudaErrorInvalidValue);
    current().flags = flags;
    return call.done(cudaSuccess);
}

cudaError_t cudaGetDeviceFlags(unsigned *flags) {
    ENTER(NO_STICKY);
    REFUSE_IF(!flags, cudaErrorInvalidValue);
    *flags = current().flags | cudaDeviceMapHost;
    return call.done(cudaSuccess);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int i, int peer) {
    ENTER(PLAIN);
    REFUSE_IF(!can, cudaErrorInvalidValue);
    REFUSE_IF(!is_device(i) || !is_device(peer), cudaErrorInvalidDevice);
    *can = i != peer;
    return call.done(cudaSuccess);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    ENTER(PLAIN);
    REFUSE_IF(flags, cudaErrorInvalidValue);
    REFUSE_IF(!is_device(peer) || peer == self.device, cudaErrorInvalidDevice);
    REFUSE_IF(!current().peers.insert(peer).second, cudaErrorPeerAccessAlreadyEnabled);
    return call.done(cudaSuccess);
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    ENTER(PLAIN);
    REFUSE_IF(!is_device(peer), cudaErrorInvalidDevice);
    REFUSE_IF(!current().peers.erase(peer), cudaErrorPeerAccessNotEnabled);
    return call.done(cudaSuccess);
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
    ENTER(PLAIN);
    const unsigned which = static_cast<unsigned>(limit);
    REFUSE_IF(which > cudaLimitMallocHeapSize, cudaErrorUnsupportedLimit);
    current().limits[which] = value;
    return call.done(cudaSuccess);
}

cudaError_t cudaDeviceGetLimit(size_t *value, cudaLimit limit) {
    ENTER(PLAIN);
    const unsigned which = static_cast<unsigned>(limit);
    REFUSE_IF(!value, cudaErrorInvalidValue);
    REFUSE_IF(which > cudaLimitMallocHeapSize, cudaErrorUnsupportedLimit);
    *value = current().limits[which];
    return call.done(cudaSuccess);
}

cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache config) {
    ENTER(PLAIN);
    REFUSE_IF(static_cast<unsigned>(config) > cudaFuncCachePreferEqual, cudaErrorInvalidValue);
    current().cache = config;
    return call.done(cudaSuccess);
}

cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache *config) {
    ENTER(PLAIN);
    REFUSE_IF(!config, cudaErrorInvalidValue);
    *config = current().cache;
    return call.done(cudaSuccess);
}

/* There is no profiler to start. */
cudaError_t cudaProfilerStart(void) {
    ENTER(PLAIN);
    return call.done(cudaSuccess);
}

cudaError_t cudaProfilerStop(void) {
    ENTER(PLAIN);
    return call.done(cudaSuccess);
}

static bool attribute(const hostcuda_profile_t &p, cudaDeviceAttr attr, int dev, int *value) {
    const int old = p.cc_major < 3;
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = p.max_threads_per_block; return true;
    case cudaDevAttrMaxBlockDimZ: *value = 64; return true;
    case cudaDevAttrMaxGridDimX: *value = old ? 65535 : INT_MAX; return true;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; return true;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = static_cast<int>(p.shared_per_block);
        return true;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = static_cast<int>(p.shared_optin);
        return true;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = static_cast<int>(p.shared_optin);
        return true;
    case cudaDevAttrTotalConstantMemory: *value = 65536; return true;
    case cudaDevAttrWarpSize: *value = 32; return true;
    case cudaDevAttrMaxPitch: *value = INT_MAX; return true;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; return true;
    case cudaDevAttrGpuOverlap: *value = p.async_engine_count > 0; return true;
    case cudaDevAttrMultiProcessorCount: *value = p.sm_count; return true;
    case cudaDevAttrKernelExecTimeout:
    case cudaDevAttrComputeMode:
    case cudaDevAttrTccDriver:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrIsMultiGpuBoard:
    case cudaDevAttrMultiGpuBoardGroupID:
    case cudaDevAttrHostNativeAtomicSupported:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrDirectManagedMemAccessFromHost:
    case cudaDevAttrClusterLaunch:
    case cudaDevAttrGPUDirectRDMASupported:
    case cudaDevAttrPciDomainId:
    case cudaDevAttrPciDeviceId: *value = 0; return true;
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem: *value = 1; return true;
    case cudaDevAttrIntegrated: *value = p.integrated; return true;
    case cudaDevAttrPageableMemoryAccess: *value = p.pageable_access; return true;
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables:
        *value = p.host_page_tables;
        return true;
    case cudaDevAttrConcurrentKernels: *value = p.concurrent_kernels; return true;
    case cudaDevAttrPciBusId: *value = 16 + dev; return true;
    case cudaDevAttrL2CacheSize: *value = static_cast<int>(p.l2_bytes); return true;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.threads_per_sm; return true;
    case cudaDevAttrAsyncEngineCount: *value = p.async_engine_count; return true;
    case cudaDevAttrComputeCapabilityMajor: *value = p.cc_major; return true;
    case cudaDevAttrComputeCapabilityMinor: *value = p.cc_minor; return true;
    case cudaDevAttrStreamPrioritiesSupported:
        *value = p.priority_least != p.priority_greatest;
        return true;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = 32; return true;
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrManagedMemory: *value = !old; return true;
    case cudaDevAttrConcurrentManagedAccess: *value = p.cc_major >= 6; return true;
    case cudaDevAttrHostNumaId: *value = -1; return true;
    case cudaDevAttrClockRate: *value = 1000000; return true;
    case cudaDevAttrMemoryClockRate: *value = 1000000; return true;
    case cudaDevAttrGlobalMemoryBusWidth: *value = 4096; return true;
    default: return false;
    }
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attr, int i) {
    ENTER(NO_STICKY);
    REFUSE_IF(!value, cudaErrorInvalidValue);
    REFUSE_IF(!is_device(i), cudaErrorInvalidDevice);
    return call.done(attribute(device(i).profile, attr, i, value) ? cudaSuccess
                                                                  : cudaErrorInvalidValue);
}

static int attribute_of(int i, cudaDeviceAttr attr) {
    int value = 0;
    attribute(device(i).profile, attr, i, &value);
    return value;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int i) {
    ENTER(NO_STICKY);
    REFUSE_IF(!prop, cudaErrorInvalidValue);
    REFUSE_IF(!is_device(i), cudaErrorInvalidDevice);
    const hostcuda_profile_t &p = device(i).profile;
    memset(prop, 0, sizeof *prop);
    snprintf(prop->name, sizeof prop->name, "hostcuda %s (modelled)", p.name);
    prop->totalGlobalMem = p.memory;
    prop->sharedMemPerBlock = p.shared_per_block;
    prop->sharedMemPerBlockOptin = prop->sharedMemPerMultiprocessor = p.shared_optin;
    prop->regsPerBlock = prop->regsPerMultiprocessor = 65536;
    prop->warpSize = 32;
    prop->memPitch = INT_MAX;
    prop->maxThreadsPerBlock = prop->maxThreadsDim[0] = prop->maxThreadsDim[1] =
        p.max_threads_per_block;
    prop->maxThreadsDim[2] = 64;
    prop->maxGridSize[0] = attribute_of(i, cudaDevAttrMaxGridDimX);
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->totalConstMem = 65536;
    prop->major = p.cc_major;
    prop->minor = p.cc_minor;
    prop->multiProcessorCount = p.sm_count;
    prop->canMapHostMemory = prop->unifiedAddressing = prop->hostRegisterSupported = 1;
    prop->canUseHostPointerForRegisteredMem = 1;
    prop->concurrentKernels = p.concurrent_kernels;
    prop->pciBusID = attribute_of(i, cudaDevAttrPciBusId);
    prop->asyncEngineCount = p.async_engine_count;
    prop->memoryBusWidth = attribute_of(i, cudaDevAttrGlobalMemoryBusWidth);
    prop->l2CacheSize = static_cast<int>(p.l2_bytes);
    prop->maxThreadsPerMultiProcessor = p.threads_per_sm;
    prop->streamPrioritiesSupported = attribute_of(i, cudaDevAttrStreamPrioritiesSupported);
    prop->maxBlocksPerMultiProcessor = 32;
    prop->integrated = attribute_of(i, cudaDevAttrIntegrated);
    prop->pageableMemoryAccess = attribute_of(i, cudaDevAttrPageableMemoryAccess);
    prop->pageableMemoryAccessUsesHostPageTables =
        attribute_of(i, cudaDevAttrPageableMemoryAccessUsesHostPageTables);
    prop->managedMemory = attribute_of(i, cudaDevAttrManagedMemory);
    prop->concurrentManagedAccess = attribute_of(i, cudaDevAttrConcurrentManagedAccess);
    prop->memoryPoolsSupported = attribute_of(i, cudaDevAttrMemoryPoolsSupported);
    prop->hostNumaId = -1;
    return call.done(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int i) {
    ENTER(NO_STICKY);
    REFUSE_IF(!id || len < 13, cudaErrorInvalidValue);
    REFUSE_IF(!is_device(i), cudaErrorInvalidDevice);
    snprintf(id, static_cast<size_t>(len), "0000:%02x:00.0", static_cast<unsigned>(16 + i));
    return call.done(cudaSuccess);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    ENTER(PLAIN);
    if (least) *least = current().profile.priority_least;
    if (greatest) *greatest = current().profile.priority_greatest;
    return call.done(cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void) {
    ENTER(UNSAFE, &P::call_sync);
    wait_for_device(call, current());
    trim_pools();
    return call.done(surface(current()));
}

static void reset_memory(Blocks &blocks, int of_device) {
    for (auto i = blocks.begin(); i != blocks.end();) {
        if (i->second.device != of_device || i->second.variable) {
            ++i;
            continue;
        }
        state().blocks_there.erase(i->second.number);
        if (!i->second.registered) really_free(reinterpret_cast<void *>(~i->first));
        i = blocks.erase(i);
    }
}

/* Destroys everything on the device, as CUDA does; a device that had failed works again. */
cudaError_t cudaDeviceReset(void) {
    ENTER(NO_STICKY | UNSAFE);
    Device &d = current();
    wait_for_device(call, d);
    State &s = state();
    for (auto i = s.streams.begin(); i != s.streams.end();) {
        const bool gone = i->second->device == self.device;
        if (gone) close_stream(i->second);
        i = gone ? s.streams.erase(i) : std::next(i);
    }
    for (auto i = s.events.begin(); i != s.events.end();)
        i = i->second->device == self.device ? s.events.erase(i) : std::next(i);
    reset_memory(s.device_blocks, self.device);
    reset_memory(s.host_blocks, self.device);
    reset_pools(self.device);
    d.used = 0;
    d.peers.clear();
    d.failed = d.sticky = cudaSuccess;
    d.doomed.reset();
    self.last = cudaSuccess;
    return call.done(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    ENTER(PLAIN);
    REFUSE_IF(!free_bytes || !total, cudaErrorInvalidValue);
    *total = current().profile.memory;
    *free_bytes = *total - current().used;
    return call.done(cudaSuccess);
}

/* ======== hostcuda's own ====================================================================== */

hostcuda_profile_t hostcuda_profile(const char *name) { return profile_named(name ? name : ""); }

cudaError_t hostcuda_set_profile(int i, const hostcuda_profile_t *profile) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    if (!is_device(i)) return cudaErrorInvalidDevice;
    if (!profile || !profile->name[0] || profile->copy_engines < 1 || profile->copy_engines > 2 ||
        profile->queues < 1)
        return cudaErrorInvalidValue;
    Device &d = device(i);
    model_run(NEVER, nullptr);
    for (const auto &q : d.queues)
        if (!q.empty()) return cudaErrorNotReady;
    d.profile = *profile;
    model_device(d);
    return cudaSuccess;
}

hostcuda_profile_t hostcuda_get_profile(int i) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    return is_device(i) ? device(i).profile : profile_named("");
}

cudaError_t hostcuda_set_devices(int count) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    State &s = state();
    if (count < 1 || count > 16) return cudaErrorInvalidValue;
    if (static_cast<size_t>(count) < s.devices.size()) return cudaErrorInvalidValue;
    while (s.devices.size() < static_cast<size_t>(count)) {
        const hostcuda_profile_t p = s.devices[0]->profile;
        add_device(s, p);
    }
    return cudaSuccess;
}

void hostcuda_set_pinned_limit(size_t bytes) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    state().pinned_limit = bytes;
}

cudaError_t hostcuda_set_memory(size_t bytes) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    if (bytes < current().used) return cudaErrorInvalidValue;
    current().profile.memory = bytes;
    return cudaSuccess;
}

void hostcuda_kernel_time(const void *func, double fixed_ns, double ns_per_thread) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    KernelInfo &k = state().kernels[func];
    k.timed = true;
    k.fixed_ns = fixed_ns;
    k.ns_per_thread = ns_per_thread;
}

void hostcuda_kernel_name(const void *func, const char *name) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    state().kernels[func].name = name ? name : "";
}

double hostcuda_now_ns(void) {
    if (self.in_host || self.task || self.unmodelled) return -1;
    const Hidden hidden;
    const Lock lock(state().mutex);
    return clock_of_thread();
}

void hostcuda_host_work(double ns) {
    if (!(ns > 0)) return;
    if (self.in_host) {
        self.host_ns += ns;
        return;
    }
    const Hidden hidden;
    const Lock lock(state().mutex);
    if (self.task)
        add_work(*self.task, ns);
    else if (!self.unmodelled)
        clock_advance(ns);
}

void hostcuda_clock_reset(void) {
    const Hidden hidden;
    Lock lock(state().mutex);
    State &s = state();
    for (const auto &d : s.devices)
        for (const OpP &op : tails(*d)) wait_real(lock, *op);
    run_model(lock, NEVER, nullptr, std::chrono::milliseconds(1000), true);
    forget_tasks();
    s.now = s.latest = 0;
    ++s.epoch;
}

void hostcuda_trace_start(void) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    state().tracing = true;
    state().trace.clear();
}

static void describe(const Op &op, hostcuda_op_t *out) {
    memset(out, 0, sizeof *out);
    out->kind = op.kind;
    out->engine = op.engine;
    out->device = op.device;
    out->stream = op.stream;
    out->bytes = op.bytes;
    const std::string label = op.label.empty() ? hostcuda_kind_name(op.kind) : op.label;
    label.copy(out->label, sizeof out->label - 1);
    out->issue_ns = op.issue;
    out->start_ns = op.start;
    out->end_ns = op.end;
}

size_t hostcuda_trace(hostcuda_op_t *out, size_t max) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    std::vector<OpP> ops = state().trace;
    std::sort(ops.begin(), ops.end(), [](const OpP &a, const OpP &b) { return a->seq < b->seq; });
    for (size_t i = 0; out && i < ops.size() && i < max; ++i) describe(*ops[i], &out[i]);
    return ops.size();
}

void hostcuda_trace_print(FILE *f) {
    static const char *const engines[] = {"-", "copy0", "copy1", "compute"};
    std::vector<hostcuda_op_t> ops(hostcuda_trace(nullptr, 0));
    hostcuda_trace(ops.data(), ops.size());
    fprintf(f,
            "modelled, us:   issue       start         end  dev stream engine   bytes      what\n");
    for (const hostcuda_op_t &op : ops)
        fprintf(f, "%21.3f %11.3f %11.3f %4d %6u %-8s %-10zu %s\n", op.issue_ns * 1e-3,
                op.start_ns * 1e-3, op.end_ns * 1e-3, op.device, op.stream, engines[op.engine],
                op.bytes, op.label);
}

const char *hostcuda_kind_name(int kind) {
    static const char *const names[] = {"h2d",    "d2h",           "d2d",    "h2h",  "memset",
                                        "kernel", "host function", "record", "wait", "other"};
    return kind >= 0 && kind <= HOSTCUDA_OTHER ? names[kind] : "?";
}

void hostcuda_fail(const char *function, long k, cudaError_t e) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    arm(state(), function ? function : "", k, e, false);
}

void hostcuda_fail_async(const char *what, long k, cudaError_t e) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    arm(state(), what ? what : "", k, e, true);
}

void hostcuda_fail_clear(void) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    state().faults.clear();
    state().fired = 0;
}

long hostcuda_fail_fired(void) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    return state().fired;
}

long hostcuda_calls(const char *function) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    if (!function) return state().all_calls;
    const auto i = state().calls.find(function);
    return i == state().calls.end() ? 0 : i->second;
}

void hostcuda_calls_reset(void) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    state().calls.clear();
    state().all_calls = 0;
}

const char *hostcuda_called(size_t i) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    for (const auto &c : state().calls)
        if (i-- == 0) return c.first.c_str();
    return nullptr;
}

void hostcuda_set_prompt_errors(int prompt) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    state().prompt = prompt != 0;
}

void hostcuda_break_device(cudaError_t e) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    current().failed = e;
}

void hostcuda_set_jitter(unsigned seed) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    state().jitter = seed;
}

int hostcuda_leaks(FILE *f) { return report_leaks(f); }

} /* extern "C" */
