/* hostcuda: what hcc makes of k<<<grid, block, shared, stream>>>(x), of extern __shared__ T s[]
 * outside of functions and, with AddressSanitizer, of __shared__ T s[N]. Included by
 * cuda_runtime.h. */
#ifndef HOSTCUDA_LAUNCH_H
#define HOSTCUDA_LAUNCH_H

#include "cuda_runtime.h"

namespace hostcuda {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
inline namespace per_thread { /* so that files of both kinds can be linked */
#endif

template <typename... P>
struct AnyReference {
    static const bool value = false;
};

template <typename First, typename... P>
struct AnyReference<First, P...> {
    static const bool value = std::is_reference<First>::value || AnyReference<P...>::value;
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"

/* kernel_of(k, "k").on(grid, block, shared, stream)(x): what it is called with is converted to the
 * kernel's parameters, as in a call of the kernel. An error is for cudaGetLastError, as in CUDA. */
template <typename... P>
class Launch {
  public:
    static_assert(!AnyReference<P...>::value, "a kernel's parameter cannot be a reference");

    Launch(void (*kernel)(P...), const char *name)
        : func(Launcher<P...>::add(kernel, name)), grid(), block(), bytes(0), where() {}

    /* The defaults are the types of { } lists. */
    template <typename G = dim3, typename B = dim3, typename S = size_t>
    Launch &on(G grid_of_blocks, B threads, S shared = 0, cudaStream_t stream = nullptr) {
        grid = dim3(grid_of_blocks);
        block = dim3(threads);
        bytes = static_cast<size_t>(shared);
        where = stream;
        return *this;
    }

    void operator()(P... p) const {
        void *args[sizeof...(P) + 1] = {const_cast<void *>(static_cast<const void *>(&p))...,
                                        nullptr};
        (void)cudaLaunchKernel(func, grid, block, args, bytes, where);
    }

  private:
    const void *func;
    dim3 grid, block;
    size_t bytes;
    cudaStream_t where;
};

#pragma GCC diagnostic pop

template <typename... P>
inline Launch<P...> kernel_of(void (*kernel)(P...), const char *name) {
    return Launch<P...>(kernel, name);
}

/* extern __shared__ T s[] of a whole file: wherever it is used, the memory of the running block. */
template <typename T>
struct DynamicShared {
    constexpr DynamicShared() {}

    operator T *() const { return static_cast<T *>(dynamic_shared()); }

    template <typename U>
    explicit operator U *() const {
        return static_cast<U *>(dynamic_shared());
    }
};

/* AddressSanitizer does not look at variables of a thread, which __shared__ arrays are here. So
 * with it hcc puts these around each array: an access to one of them is reported. */
struct Fence {
    char room[64];

    Fence() { fence(room, sizeof room, true); }

    ~Fence() { fence(room, sizeof room, false); }
};

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
} /* namespace per_thread */
#endif
} /* namespace hostcuda */

#endif
