/* hostcuda: what a .cu file sees (see ../README.md). C gets the API alone, C++ the kernel
 * language too.
 *
 * A kernel is an ordinary function. Its blocks run one after another on the thread of the
 * stream; the threads of a block run one after another, and become fibers only where they wait
 * for each other. */
#ifndef HOSTCUDA_CUDA_RUNTIME_H
#define HOSTCUDA_CUDA_RUNTIME_H
#define __CUDA_RUNTIME_H__

#include "cuda_runtime_api.h"
#include "vector_functions.h"

/* ---- qualifiers ------------------------------------------------------------------------------ */

#ifdef __HOSTCUDA_HCC__ /* hcc finds the kernels by these words, and who may call whom */
#define __device__ __device__
#define __host__   __host__
#else
#define __global__ __attribute__((unused))
#define __device__ __attribute__((unused))
#define __host__   __attribute__((unused))
#endif
#define __constant__ __attribute__((unused))
#define __launch_bounds__(...)
#define __grid_constant__
/* Managed variables lie in a section of their own, so that the runtime knows them. */
#if defined(__APPLE__)
#define __managed__ __attribute__((unused, section("__DATA,hostcuda_mgd")))
#elif defined(__ELF__)
#define __managed__ __attribute__((unused, section("hostcuda_managed")))
#endif
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __align__(n)    __attribute__((aligned(n)))
/* A block runs on one OS thread, so a variable of that thread is the block's. */
#define __shared__ static thread_local
/* __noinline__ is left alone: libstdc++ 12 spells its own attribute so. */

#ifdef __cplusplus

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>
#include <utility>

/* CUDA's `extern __shared__ T name[]` for both: hostcuda needs this macro in its place. */
#define HOSTCUDA_DYNAMIC_SHARED(type, name)                                                        \
    type *name = static_cast<type *>(hostcuda::dynamic_shared())

/* ---- the coordinates of the running thread --------------------------------------------------- */

extern __thread uint3 threadIdx;
extern __thread uint3 blockIdx;
extern __thread dim3 blockDim;
extern __thread dim3 gridDim;
constexpr int warpSize = 32;

namespace hostcuda {

/* Where a block stands; its layout is known here so that stepping to the next thread is inlined. */
struct Cursor {
    unsigned next, total;   /* next thread to start; threads of the block */
    unsigned current;       /* the running thread, linear */
    unsigned done, blocked; /* threads that ended; fibers that wait */
    uint3 index;            /* threadIdx of next */
    unsigned exited[32];    /* a bit a lane, for each warp */
};

extern __thread Cursor cursor;

typedef void (*Invoker)(const void *func, void *const *args);
/* Of each parameter: its size, and whether it is a pointer to data. */
/* name: in traces, where hostcuda_kernel_name gives none; may be NULL. */
void register_kernel(const void *func, Invoker invoker, const size_t *sizes, const bool *pointers,
                     unsigned count, const char *name);
void thread_exit_slow();
void *dynamic_shared();
void fence(void *room, size_t size, bool up); /* for AddressSanitizer */
int barrier(int predicate, int how);          /* how: 0 count, 1 and, 2 or */

enum WarpOp {
    WARP_SYNC,
    WARP_SHUFFLE,
    WARP_BALLOT,
    WARP_ALIVE,
    WARP_ADD,
    WARP_MIN,
    WARP_MAX,
    WARP_IMIN,
    WARP_IMAX,
    WARP_AND,
    WARP_OR,
    WARP_XOR
};

unsigned long long warp(unsigned mask, WarpOp op, unsigned long long value, int source_lane);
unsigned alive_lanes();
long long device_clock();
[[noreturn]] void stop_kernel(cudaError_t error); /* from one of its threads */

/* Synchronisation between a kernel's threads is hidden from ThreadSanitizer, because it is slow and
 * happens on one OS thread. */
#if defined(__SANITIZE_THREAD__)
#define HOSTCUDA_UNWATCHED __attribute__((no_sanitize_thread))
#else
#define HOSTCUDA_UNWATCHED
#endif

HOSTCUDA_UNWATCHED inline bool next_thread() {
    Cursor &c = cursor;
    if (c.next == c.total) return false;
    c.current = c.next++;
    threadIdx = c.index;
    if (++c.index.x == blockDim.x) {
        c.index.x = 0;
        if (++c.index.y == blockDim.y) {
            c.index.y = 0;
            ++c.index.z;
        }
    }
    return true;
}

HOSTCUDA_UNWATCHED inline void thread_exit() {
    const unsigned t = cursor.current;
    cursor.exited[t >> 5] |= 1u << (t & 31u);
    ++cursor.done;
    if (cursor.blocked) thread_exit_slow();
}

template <size_t... I>
struct Indices {};

template <size_t N, size_t... I>
struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};

template <size_t... I>
struct MakeIndices<0, I...> {
    typedef Indices<I...> type;
};

template <typename T>
struct Bare {
    typedef T type;
};

template <typename T>
struct Bare<const T> {
    typedef T type;
};

template <typename T>
struct PointsToData {
    typedef typename std::remove_pointer<T>::type Target;
    static const bool value = std::is_pointer<T>::value && !std::is_function<Target>::value;
};

template <typename... P>
struct Launcher {
    typedef void (*Kernel)(P...);

    template <size_t... I>
    HOSTCUDA_UNWATCHED static void run(Kernel kernel, void *const *args, Indices<I...>) {
        (void)args;
        while (next_thread()) {
            kernel(*static_cast<typename Bare<P>::type *>(args[I])...);
            thread_exit();
        }
    }

    static void invoke(const void *func, void *const *args) {
        run(reinterpret_cast<Kernel>(const_cast<void *>(func)), args,
            typename MakeIndices<sizeof...(P)>::type());
    }

    static const void *add(Kernel kernel, const char *name = nullptr) {
        static const size_t sizes[sizeof...(P) + 1] = {sizeof(P)..., 0};
        static const bool pointers[sizeof...(P) + 1] = {PointsToData<P>::value..., false};
        const void *func = reinterpret_cast<const void *>(kernel);
        register_kernel(func, invoke, sizes, pointers, static_cast<unsigned>(sizeof...(P)), name);
        return func;
    }
};

} /* namespace hostcuda */

/* Makes a kernel known, as cudaLaunchKernelEx does, for a launch through cudaLaunchKernelExC
 * from C. */
template <typename... P>
inline const void *hostcuda_register_kernel(void (*kernel)(P...)) {
    return hostcuda::Launcher<P...>::add(kernel);
}

/* ---- the C++ view of the API ----------------------------------------------------------------- */

/* Arguments are converted to the kernel's parameters as quietly as the toolkit's (system)
 * header does it. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wfloat-conversion"

template <typename... P, typename... A>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...),
                                      A &&...args) {
    const void *func = hostcuda_register_kernel(kernel);
    return [&](P... coerced) {
        void *array[sizeof...(P) + 1] = {const_cast<void *>(static_cast<const void *>(&coerced))...,
                                         nullptr};
        return cudaLaunchKernelExC(config, func, array);
    }(std::forward<A>(args)...);
}

#pragma GCC diagnostic pop

template <typename... P>
inline cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void **args,
                                    size_t shared = 0, cudaStream_t stream = nullptr) {
    return cudaLaunchKernel(hostcuda_register_kernel(kernel), grid, block, args, shared, stream);
}

template <typename... P>
inline cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attr, int value) {
    return cudaFuncSetAttribute(hostcuda_register_kernel(kernel), attr, value);
}

template <typename... P>
inline cudaError_t cudaFuncSetCacheConfig(void (*kernel)(P...), cudaFuncCache config) {
    return cudaFuncSetCacheConfig(hostcuda_register_kernel(kernel), config);
}

template <typename... P>
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attr, void (*kernel)(P...)) {
    return cudaFuncGetAttributes(attr, hostcuda_register_kernel(kernel));
}

template <typename... P>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void (*kernel)(P...),
                                                                 int block_size, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, hostcuda_register_kernel(kernel),
                                                         block_size, shared);
}

/* The block size with which the most threads are on a multiprocessor, the largest of several, and
 * how many such blocks fill the device. limit: 0 = the device's. */
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int *min_grid, int *block, const void *kernel,
                                                      size_t shared = 0, int limit = 0) {
    int device = 0, most = 0, processors = 0, threads = -1;
    cudaError_t e = min_grid && block ? cudaGetDevice(&device) : cudaErrorInvalidValue;
    if (e == cudaSuccess) e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxThreadsPerBlock, device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (limit > 0 && limit < most) most = limit;
    for (int size = most; size > 0 && e == cudaSuccess; size = (size - 1) / 32 * 32) {
        int blocks = 0;
        e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, size, shared);
        if (blocks * size <= threads) continue;
        threads = blocks * size;
        *block = size;
        *min_grid = blocks * processors;
    }
    return e;
}

template <typename... P>
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int *min_grid, int *block,
                                                      void (*kernel)(P...), size_t shared = 0,
                                                      int limit = 0) {
    return cudaOccupancyMaxPotentialBlockSize(min_grid, block, hostcuda_register_kernel(kernel),
                                              shared, limit);
}

template <typename T>
inline cudaError_t cudaMalloc(T **p, size_t size) {
    return cudaMalloc(reinterpret_cast<void **>(p), size);
}

template <typename T>
inline cudaError_t cudaMallocPitch(T **p, size_t *pitch, size_t width, size_t height) {
    return cudaMallocPitch(reinterpret_cast<void **>(p), pitch, width, height);
}

template <typename T>
inline cudaError_t cudaMallocManaged(T **p, size_t size, unsigned flags = cudaMemAttachGlobal) {
    return cudaMallocManaged(reinterpret_cast<void **>(p), size, flags);
}

template <typename T>
inline cudaError_t cudaMallocFromPoolAsync(T **p, size_t size, cudaMemPool_t pool,
                                           cudaStream_t stream) {
    return cudaMallocFromPoolAsync(reinterpret_cast<void **>(p), size, pool, stream);
}

template <typename T>
inline cudaError_t cudaMallocAsync(T **p, size_t size, cudaStream_t stream) {
    return cudaMallocAsync(reinterpret_cast<void **>(p), size, stream);
}

inline cudaError_t cudaMallocAsync(void **p, size_t size, cudaMemPool_t pool, cudaStream_t stream) {
    return cudaMallocFromPoolAsync(p, size, pool, stream);
}

template <typename T>
inline cudaError_t cudaMallocAsync(T **p, size_t size, cudaMemPool_t pool, cudaStream_t stream) {
    return cudaMallocFromPoolAsync(reinterpret_cast<void **>(p), size, pool, stream);
}

inline cudaError_t cudaMallocHost(void **p, size_t size, unsigned int flags) {
    return cudaHostAlloc(p, size, flags);
}

template <typename T>
inline cudaError_t cudaMallocHost(T **p, size_t size, unsigned int flags = 0) {
    return cudaHostAlloc(reinterpret_cast<void **>(p), size, flags);
}

template <typename T>
inline cudaError_t cudaHostAlloc(T **p, size_t size, unsigned int flags) {
    return cudaHostAlloc(reinterpret_cast<void **>(p), size, flags);
}

template <typename T>
inline cudaError_t cudaHostGetDevicePointer(T **d, void *h, unsigned int flags) {
    return cudaHostGetDevicePointer(reinterpret_cast<void **>(d), h, flags);
}

inline cudaError_t cudaEventCreate(cudaEvent_t *event, unsigned int flags) {
    return cudaEventCreateWithFlags(event, flags);
}

#if CUDART_VERSION >= 12000
/* As it was declared before. */
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, cudaGraphNode_t *,
                                        char *, size_t) {
    return cudaGraphInstantiate(exec, graph, 0);
}
#endif

#include "hostcuda_launch.h"
#include "hostcuda_symbols.h"

/* ---- barriers and warps ---------------------------------------------------------------------- */

inline void __syncthreads() { hostcuda::barrier(0, 0); }

inline int __syncthreads_count(int predicate) { return hostcuda::barrier(predicate, 0); }

inline int __syncthreads_and(int predicate) { return hostcuda::barrier(predicate, 1); }

inline int __syncthreads_or(int predicate) { return hostcuda::barrier(predicate, 2); }

inline void __syncwarp(unsigned mask = 0xffffffffu) {
    hostcuda::warp(mask, hostcuda::WARP_SYNC, 0, 0);
}

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

namespace hostcuda {

inline int lane() { return static_cast<int>(cursor.current & 31u); }

template <typename T>
inline T shuffle(unsigned mask, T value, int source) {
    static_assert(sizeof(T) <= 8, "shuffles take types of up to 8 bytes");
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = warp(mask, WARP_SHUFFLE, bits, source);
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The lane a shuffle reads: within the reader's group of `width` lanes, else its own. */
inline int source_of(int wanted, int width) {
    const int own = lane(), first = own & ~(width - 1);
    return wanted < first || wanted >= first + width ? own : wanted;
}

} /* namespace hostcuda */

template <typename T>
inline T __shfl_sync(unsigned mask, T v, int source, int width = 32) {
    const int first = hostcuda::lane() & ~(width - 1);
    return hostcuda::shuffle(mask, v, first + (source & (width - 1)));
}

template <typename T>
inline T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32) {
    return hostcuda::shuffle(
        mask, v, hostcuda::source_of(hostcuda::lane() - static_cast<int>(delta), width));
}

template <typename T>
inline T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32) {
    return hostcuda::shuffle(
        mask, v, hostcuda::source_of(hostcuda::lane() + static_cast<int>(delta), width));
}

template <typename T>
inline T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32) {
    /* Unlike the others it may read a lower group, as CUDA's does. */
    const int own = hostcuda::lane(), wanted = own ^ bits;
    return hostcuda::shuffle(mask, v, wanted >= (own & ~(width - 1)) + width ? own : wanted);
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
    return static_cast<unsigned>(hostcuda::warp(mask, hostcuda::WARP_BALLOT, predicate != 0, 0) &
                                 0xffffffffu);
}

inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }

inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

namespace hostcuda {

/* The lanes of the mask that come: all but those that have exited. */
inline unsigned lanes_that_come(unsigned mask) {
    return static_cast<unsigned>(warp(mask, WARP_SYNC, 0, 0) & 0xffffffffu);
}

} /* namespace hostcuda */

/* The lanes that have the same value. */
template <typename T>
inline unsigned __match_any_sync(unsigned mask, T v) {
    const unsigned there = hostcuda::lanes_that_come(mask);
    unsigned same = 0;
    for (int i = 0; i < 32; ++i)
        if (((there >> i) & 1u) && hostcuda::shuffle(mask, v, i) == v) same |= 1u << i;
    return same;
}

/* All of the mask if they have one value, else 0. */
template <typename T>
inline unsigned __match_all_sync(unsigned mask, T v, int *all) {
    const unsigned there = hostcuda::lanes_that_come(mask);
    *all = __all_sync(mask, __match_any_sync(mask, v) == there);
    return *all ? there : 0u;
}

inline unsigned __activemask() { return hostcuda::alive_lanes(); }

#define HOSTCUDA_REDUCE(name, type, op)                                                            \
    inline type __reduce_##name##_sync(unsigned mask, type v) {                                    \
        return static_cast<type>(hostcuda::warp(mask, hostcuda::op, static_cast<unsigned>(v), 0) & \
                                 0xffffffffu);                                                     \
    }
HOSTCUDA_REDUCE(add, unsigned, WARP_ADD)
HOSTCUDA_REDUCE(min, unsigned, WARP_MIN)
HOSTCUDA_REDUCE(max, unsigned, WARP_MAX)
HOSTCUDA_REDUCE(and, unsigned, WARP_AND)
HOSTCUDA_REDUCE(or, unsigned, WARP_OR)
HOSTCUDA_REDUCE(xor, unsigned, WARP_XOR)
HOSTCUDA_REDUCE(add, int, WARP_ADD)
HOSTCUDA_REDUCE(min, int, WARP_IMIN)
HOSTCUDA_REDUCE(max, int, WARP_IMAX)
#undef HOSTCUDA_REDUCE

/* ---- atomics: relaxed, as CUDA's ------------------------------------------------------------- */

namespace hostcuda {

/* Compare and swap on the bits, so that floats work; F maps the old value to the new. */
template <typename T, typename F>
inline T atomic_update(T *p, F change) {
    T old;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    for (;;) {
        T value = change(old);
        if (__atomic_compare_exchange(p, &old, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return old;
    }
}

} /* namespace hostcuda */

#define HOSTCUDA_ATOMIC_INT(type)                                                                  \
    inline type atomicAdd(type *p, type v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }  \
    inline type atomicExch(type *p, type v) {                                                      \
        return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);                                        \
    }                                                                                              \
    inline type atomicAnd(type *p, type v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); }  \
    inline type atomicOr(type *p, type v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }    \
    inline type atomicXor(type *p, type v) { return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED); }  \
    inline type atomicMin(type *p, type v) {                                                       \
        return hostcuda::atomic_update(p, [v](type old) { return old < v ? old : v; });            \
    }                                                                                              \
    inline type atomicMax(type *p, type v) {                                                       \
        return hostcuda::atomic_update(p, [v](type old) { return old > v ? old : v; });            \
    }                                                                                              \
    inline type atomicCAS(type *p, type expected, type v) {                                        \
        __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);   \
        return expected;                                                                           \
    }
HOSTCUDA_ATOMIC_INT(int)
HOSTCUDA_ATOMIC_INT(unsigned int)
HOSTCUDA_ATOMIC_INT(unsigned long long)
#undef HOSTCUDA_ATOMIC_INT

inline int atomicSub(int *p, int v) { return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED); }

inline unsigned atomicSub(unsigned *p, unsigned v) {
    return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED);
}

inline float atomicAdd(float *p, float v) {
    return hostcuda::atomic_update(p, [v](float old) { return old + v; });
}

inline double atomicAdd(double *p, double v) {
    return hostcuda::atomic_update(p, [v](double old) { return old + v; });
}

inline float atomicExch(float *p, float v) {
    return hostcuda::atomic_update(p, [v](float) { return v; });
}

inline unsigned atomicInc(unsigned *p, unsigned last) {
    return hostcuda::atomic_update(p, [last](unsigned old) { return old >= last ? 0u : old + 1u; });
}

inline unsigned atomicDec(unsigned *p, unsigned last) {
    return hostcuda::atomic_update(
        p, [last](unsigned old) { return old == 0 || old > last ? last : old - 1u; });
}

/* A block runs on one OS thread, and all memory is the host's: all scopes are one. */
#define atomicAdd_block   atomicAdd
#define atomicAdd_system  atomicAdd
#define atomicSub_block   atomicSub
#define atomicSub_system  atomicSub
#define atomicExch_block  atomicExch
#define atomicExch_system atomicExch
#define atomicMin_block   atomicMin
#define atomicMin_system  atomicMin
#define atomicMax_block   atomicMax
#define atomicMax_system  atomicMax
#define atomicInc_block   atomicInc
#define atomicInc_system  atomicInc
#define atomicDec_block   atomicDec
#define atomicDec_system  atomicDec
#define atomicCAS_block   atomicCAS
#define atomicCAS_system  atomicCAS
#define atomicAnd_block   atomicAnd
#define atomicAnd_system  atomicAnd
#define atomicOr_block    atomicOr
#define atomicOr_system   atomicOr
#define atomicXor_block   atomicXor
#define atomicXor_system  atomicXor

/* ---- loads, stores, bits --------------------------------------------------------------------- */

template <typename T>
inline T __ldg(const T *p) {
    return *p;
}

template <typename T>
inline T __ldca(const T *p) {
    return *p;
}

template <typename T>
inline T __ldcg(const T *p) {
    return *p;
}

template <typename T>
inline T __ldcs(const T *p) {
    return *p;
}

template <typename T>
inline void __stcg(T *p, T v) {
    *p = v;
}

template <typename T>
inline void __stcs(T *p, T v) {
    *p = v;
}

template <typename T>
inline void __stwt(T *p, T v) {
    *p = v;
}

inline int __popc(unsigned v) { return __builtin_popcount(v); }

inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }

inline int __clz(int v) { return v ? __builtin_clz(static_cast<unsigned>(v)) : 32; }

inline int __clzll(long long v) {
    return v ? __builtin_clzll(static_cast<unsigned long long>(v)) : 64;
}

inline int __ffs(int v) { return __builtin_ffs(v); }

inline int __ffsll(long long v) { return __builtin_ffsll(v); }

inline unsigned __brev(unsigned v) {
    v = ((v >> 1) & 0x55555555u) | ((v & 0x55555555u) << 1);
    v = ((v >> 2) & 0x33333333u) | ((v & 0x33333333u) << 2);
    v = ((v >> 4) & 0x0f0f0f0fu) | ((v & 0x0f0f0f0fu) << 4);
    return __builtin_bswap32(v);
}

inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
    const unsigned long long both = (static_cast<unsigned long long>(y) << 32) | x;
    unsigned r = 0;
    for (unsigned i = 0; i < 4; ++i)
        r |= static_cast<unsigned>((both >> (8u * ((s >> (4u * i)) & 7u))) & 0xffu) << (8u * i);
    return r;
}

inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32);
}

inline int __mulhi(int a, int b) { return static_cast<int>((static_cast<long long>(a) * b) >> 32); }

/* 32 bits of hi:lo, shifted by up to 31 bits. */
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned by) {
    const unsigned long long both = (static_cast<unsigned long long>(hi) << 32) | lo;
    return static_cast<unsigned>((both << (by & 31u)) >> 32);
}

inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned by) {
    const unsigned long long both = (static_cast<unsigned long long>(hi) << 32) | lo;
    return static_cast<unsigned>((both >> (by & 31u)) & 0xffffffffu);
}

inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a < b ? b - a : a - b) + c; }

inline unsigned __sad(int a, int b, unsigned c) {
    const unsigned x = static_cast<unsigned>(a), y = static_cast<unsigned>(b);
    return (a < b ? y - x : x - y) + c;
}

inline int __hadd(int a, int b) { return static_cast<int>((static_cast<long long>(a) + b) >> 1); }

inline int __mul24(int a, int b) {
    const int x = static_cast<int>(static_cast<unsigned>(a) << 8) >> 8;
    const int y = static_cast<int>(static_cast<unsigned>(b) << 8) >> 8;
    return static_cast<int>(static_cast<unsigned>(x) * static_cast<unsigned>(y));
}

inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }

/* ---- arithmetic ------------------------------------------------------------------------------ */

/* glibc declares some of these names itself, so they are macros. */
#define __expf(x)    expf(x)
#define __exp10f(x)  powf(10.0f, x)
#define __logf(x)    logf(x)
#define __log2f(x)   log2f(x)
#define __log10f(x)  log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x)    sinf(x)
#define __cosf(x)    cosf(x)
#define __tanf(x)    tanf(x)
#define __tanhf(x)   tanhf(x)

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }

inline double rsqrt(double x) { return 1.0 / sqrt(x); }

inline float __fdividef(float a, float b) { return a / b; }

inline float fdividef(float a, float b) { return a / b; }

inline double rcbrt(double x) { return 1.0 / cbrt(x); }

inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }

inline double normcdf(double x) { return 0.5 * erfc(-x / sqrt(2.0)); }

inline float normcdff(float x) { return 0.5f * erfcf(-x / sqrtf(2.0f)); }

inline float norm3df(float a, float b, float c) { return sqrtf(a * a + b * b + c * c); }

inline float __saturatef(float x) {
    if (!(x > 0.0f)) return 0.0f;
    return x < 1.0f ? x : 1.0f;
}

inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }

inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

inline float __fadd_rn(float a, float b) { return a + b; }

inline float __fsub_rn(float a, float b) { return a - b; }

inline float __fmul_rn(float a, float b) { return a * b; }

inline float __fdiv_rn(float a, float b) { return a / b; }

inline float __fsqrt_rn(float x) { return sqrtf(x); }

inline float __frcp_rn(float x) { return 1.0f / x; }

inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }

inline double __dadd_rn(double a, double b) { return a + b; }

inline double __dmul_rn(double a, double b) { return a * b; }

namespace hostcuda {

/* Conversions saturate and take NaN to 0, as the device's do. */
inline int to_int(float x) {
    if (x != x) return 0;
    if (x >= 2147483648.0f) return 2147483647;
    return x < -2147483648.0f ? -2147483647 - 1 : static_cast<int>(x);
}

inline unsigned to_uint(float x) {
    if (!(x > 0.0f)) return 0u;
    return x >= 4294967296.0f ? 4294967295u : static_cast<unsigned>(x);
}

} /* namespace hostcuda */

inline int __float2int_rn(float x) { return hostcuda::to_int(rintf(x)); }

inline int __float2int_rz(float x) { return hostcuda::to_int(truncf(x)); }

inline int __float2int_ru(float x) { return hostcuda::to_int(ceilf(x)); }

inline int __float2int_rd(float x) { return hostcuda::to_int(floorf(x)); }

inline unsigned __float2uint_rn(float x) { return hostcuda::to_uint(rintf(x)); }

inline unsigned __float2uint_rz(float x) { return hostcuda::to_uint(truncf(x)); }

inline unsigned __float2uint_ru(float x) { return hostcuda::to_uint(ceilf(x)); }

inline unsigned __float2uint_rd(float x) { return hostcuda::to_uint(floorf(x)); }

inline float __int2float_rn(int x) { return static_cast<float>(x); }

inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }

inline int __float_as_int(float x) {
    int v;
    memcpy(&v, &x, sizeof v);
    return v;
}

inline unsigned __float_as_uint(float x) {
    unsigned v;
    memcpy(&v, &x, sizeof v);
    return v;
}

inline float __int_as_float(int x) {
    float v;
    memcpy(&v, &x, sizeof v);
    return v;
}

inline float __uint_as_float(unsigned x) {
    float v;
    memcpy(&v, &x, sizeof v);
    return v;
}

inline long long __double_as_longlong(double x) {
    long long v;
    memcpy(&v, &x, sizeof v);
    return v;
}

inline double __longlong_as_double(long long x) {
    double v;
    memcpy(&v, &x, sizeof v);
    return v;
}

/* min and max as CUDA overloads them: mixed signs go to unsigned, int and float do not mix. */
#define HOSTCUDA_MIN_MAX(result, a_type, b_type)                                                   \
    inline result min(a_type a, b_type b) {                                                        \
        const result x = static_cast<result>(a), y = static_cast<result>(b);                       \
        return y < x ? y : x;                                                                      \
    }                                                                                              \
    inline result max(a_type a, b_type b) {                                                        \
        const result x = static_cast<result>(a), y = static_cast<result>(b);                       \
        return x < y ? y : x;                                                                      \
    }
HOSTCUDA_MIN_MAX(int, int, int)
HOSTCUDA_MIN_MAX(unsigned, unsigned, unsigned)
HOSTCUDA_MIN_MAX(unsigned, int, unsigned)
HOSTCUDA_MIN_MAX(unsigned, unsigned, int)
HOSTCUDA_MIN_MAX(long, long, long)
HOSTCUDA_MIN_MAX(unsigned long, unsigned long, unsigned long)
HOSTCUDA_MIN_MAX(unsigned long, long, unsigned long)
HOSTCUDA_MIN_MAX(unsigned long, unsigned long, long)
HOSTCUDA_MIN_MAX(long long, long long, long long)
HOSTCUDA_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
HOSTCUDA_MIN_MAX(unsigned long long, long long, unsigned long long)
HOSTCUDA_MIN_MAX(unsigned long long, unsigned long long, long long)
#undef HOSTCUDA_MIN_MAX

inline float min(float a, float b) { return fminf(a, b); }

inline float max(float a, float b) { return fmaxf(a, b); }

inline double min(double a, double b) { return fmin(a, b); }

inline double max(double a, double b) { return fmax(a, b); }

inline double min(float a, double b) { return fmin(static_cast<double>(a), b); }

inline double min(double a, float b) { return fmin(a, static_cast<double>(b)); }

inline double max(float a, double b) { return fmax(static_cast<double>(a), b); }

inline double max(double a, float b) { return fmax(a, static_cast<double>(b)); }

inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }

inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }

inline long long llmin(long long a, long long b) { return min(a, b); }

inline long long llmax(long long a, long long b) { return max(a, b); }

inline long long clock64() { return hostcuda::device_clock(); }

inline void __nanosleep(unsigned) {}

[[noreturn]] inline void __trap() { hostcuda::stop_kernel(cudaErrorLaunchFailure); }

#endif /* __cplusplus */

#endif
