/*  test_hostcuda_kernels.cu -- kernels on hostcuda against values worked out on the CPU:
    coordinates, shared memory, barriers, shuffles, votes, atomics, early exits, a deadlock. */
#include <cstring>
#include <vector>

#include "hostcuda.h"
#include "tap.h"

static cudaLaunchConfig_t config(dim3 grid, dim3 block, size_t shared = 0) {
    cudaLaunchConfig_t c = {};
    c.gridDim = grid;
    c.blockDim = block;
    c.dynamicSmemBytes = shared;
    return c;
}

/* Memory that the kernel writes and the test reads. */
template <typename T>
struct mapped_t {
    T *p;

    explicit mapped_t(size_t n, T v = T()) : p() {
        cudaMallocHost(&p, n * sizeof(T));
        for (size_t i = 0; i < n; i++) p[i] = v;
    }

    ~mapped_t() { cudaFreeHost(p); }

    mapped_t(const mapped_t &) = delete;
    mapped_t &operator=(const mapped_t &) = delete;

    T &operator[](size_t i) { return p[i]; }
};

template <typename... P, typename... A>
static cudaError_t run(const cudaLaunchConfig_t &c, void (*k)(P...), A... args) {
    const cudaError_t e = cudaLaunchKernelEx(&c, k, args...);
    return e != cudaSuccess ? e : cudaDeviceSynchronize();
}

static __global__ void coordinates(unsigned *out) {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const unsigned i = block * blockDim.x * blockDim.y * blockDim.z + thread;
    out[i] += i;
}

static __global__ void block_sum(const int *in, int *out, int n) {
    __shared__ int s[256];
    const int t = static_cast<int>(threadIdx.x), i = static_cast<int>(blockIdx.x) * 256 + t;
    s[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int d = 128; d > 0; d /= 2) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}

static __global__ void reverse(int *p, int n) {
    HOSTCUDA_DYNAMIC_SHARED(int, s);
    const int t = static_cast<int>(threadIdx.x);
    s[t] = p[t];
    __syncthreads();
    p[t] = s[n - 1 - t];
}

static __global__ void warp_sum(const int *in, int *out) {
    int v = in[threadIdx.x];
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffffu, v, static_cast<unsigned>(d));
    if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = v;
}

static __global__ void shuffles(int *o) {
    const int t = static_cast<int>(threadIdx.x);
    const unsigned all = 0xffffffffu;
    o[t] = __shfl_sync(all, t * 10, 5);
    o[32 + t] = __shfl_up_sync(all, t, 3);
    o[64 + t] = __shfl_xor_sync(all, t, 1);
    o[96 + t] = __shfl_sync(all, t, 1, 8);
    o[128 + t] = static_cast<int>(__ballot_sync(all, t % 3 == 0));
    o[160 + t] = __any_sync(all, t == 7) + 2 * __all_sync(all, t < 31);
    o[192 + t] = static_cast<int>(__reduce_add_sync(all, static_cast<unsigned>(t)));
    o[224 + t] = static_cast<int>(__shfl_down_sync(all, 1.5 * t, 2));
    const unsigned half = t < 16 ? 0x0000ffffu : 0xffff0000u;
    if (t < 16)
        o[256 + t] = static_cast<int>(__ballot_sync(half, 1));
    else
        o[256 + t] = static_cast<int>(__ballot_sync(half, t & 1));
}

static __global__ void votes(int *o) {
    const int t = static_cast<int>(threadIdx.x);
    const int count = __syncthreads_count(t % 2), all = __syncthreads_and(t < 63),
              any = __syncthreads_or(t == 9);
    o[t] = count * 100 + all * 10 + any;
}

static __global__ void atomics(int *i, unsigned *u, unsigned long long *ull, float *f, double *d) {
    const int t = static_cast<int>(threadIdx.x + blockIdx.x * blockDim.x);
    atomicAdd(&i[0], t);
    atomicSub(&i[1], 1);
    atomicMin(&i[2], -t);
    atomicMax(&i[3], t);
    atomicCAS(&i[4], t, t + 1);
    atomicOr(&u[0], 1u << (t % 32));
    atomicAnd(&u[1], ~(1u << (t % 32)));
    atomicXor(&u[2], static_cast<unsigned>(t));
    atomicInc(&u[3], 9);
    atomicAdd(&ull[0], 1ull << 33);
    atomicAdd(&f[0], 0.5f);
    atomicAdd(&d[0], 0.25);
    if (t == 3) i[5] = atomicExch(&i[6], 42);
}

static __global__ void early_exit(int *out) {
    __shared__ int s;
    if (threadIdx.x >= 40) return;
    if (threadIdx.x == 7) s = 11;
    __syncthreads();
    out[threadIdx.x] = s;
    const unsigned alive = __ballot_sync(0xffffffffu, 1);
    if (threadIdx.x == 32) out[100] = __popc(alive);
}

static __global__ void never_meet(int *out) {
    if (threadIdx.x == 0)
        __syncthreads();
    else
        __syncwarp();
    out[0] = 1;
}

template <typename T>
static __global__ void axpy(T a, const T *__restrict__ x, T *y, int n) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) y[i] += a * x[i];
}

static __global__ void by_value(float4 v, char c, double d, float *out) {
    out[0] = v.x + v.y + v.z + v.w + static_cast<float>(c) + static_cast<float>(d);
}

static void test_coordinates() {
    const unsigned n = 2 * 3 * 4 * 5 * 3 * 2;
    mapped_t<unsigned> out(n);
    bool good = run(config(dim3(2, 3, 4), dim3(5, 3, 2)), coordinates, out.p) == cudaSuccess;
    for (unsigned i = 0; i < n; i++) good = good && out[i] == i;
    tap_ok(good, "every thread of every block runs once, with its coordinates");
}

static void test_shared() {
    const int n = 1000;
    mapped_t<int> in(n), out(4);
    int want[4] = {0, 0, 0, 0};
    for (int i = 0; i < n; i++) want[i / 256] += in[static_cast<size_t>(i)] = i * i % 97;
    bool good = run(config(4, 256), block_sum, in.p, out.p, n) == cudaSuccess;
    for (size_t i = 0; i < 4; i++) good = good && out[i] == want[i];
    tap_ok(good, "shared memory and barriers: block sums");
    for (int i = 0; i < 200; i++) in[static_cast<size_t>(i)] = i;
    good = run(config(1, 200, 200 * sizeof(int)), reverse, in.p, 200) == cudaSuccess;
    for (int i = 0; i < 200; i++) good = good && in[static_cast<size_t>(i)] == 199 - i;
    tap_ok(good, "dynamic shared memory: a block reversed");
    mapped_t<int> big(1024);
    for (int i = 0; i < 1024; i++) big[static_cast<size_t>(i)] = i;
    good = run(config(1, 1024, 1024 * sizeof(int)), reverse, big.p, 1024) == cudaSuccess;
    for (int i = 0; i < 1024; i++) good = good && big[static_cast<size_t>(i)] == 1023 - i;
    tap_ok(good, "a block of 1024 threads at a barrier");
}

static void test_warps() {
    mapped_t<int> in(96), out(3), o(288);
    for (int i = 0; i < 96; i++) in[static_cast<size_t>(i)] = i * 3;
    bool good = run(config(1, 96), warp_sum, in.p, out.p) == cudaSuccess;
    for (int w = 0; w < 3; w++)
        good = good && out[static_cast<size_t>(w)] == 3 * (32 * 32 * w + 496);
    tap_ok(good, "a shuffle reduction sums each warp");
    good = run(config(1, 32), shuffles, o.p) == cudaSuccess;
    bool sh = good, vote = good, halves = good;
    for (int t = 0; t < 32; t++) {
        const size_t i = static_cast<size_t>(t);
        sh = sh && o[i] == 50 && o[32 + i] == (t < 3 ? t : t - 3) && o[64 + i] == (t ^ 1) &&
             o[96 + i] == t / 8 * 8 + 1;
        sh = sh && o[224 + i] == static_cast<int>(1.5 * (t < 30 ? t + 2 : t));
        vote = vote && o[128 + i] == 0x49249249 && o[160 + i] == 1 && o[192 + i] == 496;
        halves = halves && static_cast<unsigned>(o[256 + i]) == (t < 16 ? 0xffffu : 0xaaaa0000u);
    }
    tap_ok(sh, "shuffles by index, up, down, xor, in groups");
    tap_ok(vote, "ballot, any, all, reduce");
    tap_ok(halves, "two halves of a warp vote apart");
    mapped_t<int> v(64);
    good = run(config(1, 64), votes, v.p) == cudaSuccess;
    for (size_t t = 0; t < 64; t++) good = good && v[t] == 3201;
    tap_ok(good, "barriers that count, and, or");
}

static void test_atomics() {
    mapped_t<int> i(8);
    mapped_t<unsigned> u(4);
    mapped_t<unsigned long long> ull(1);
    mapped_t<float> f(1);
    mapped_t<double> d(1);
    u[1] = 0xffffffffu;
    i[6] = 5;
    const bool good = run(config(4, 32), atomics, i.p, u.p, ull.p, f.p, d.p) == cudaSuccess;
    tap_ok(good && i[0] == 127 * 64 && i[1] == -128 && i[2] == -127 && i[3] == 127,
           "add, sub, min, max");
    tap_ok(good && i[4] == 128 && i[5] == 5 && i[6] == 42, "compare and swap, exchange");
    tap_ok(good && u[0] == 0xffffffffu && u[1] == 0 && u[2] == 0 && u[3] == 8, "or, and, xor, inc");
    tap_ok(good && ull[0] == 128ull << 33 && f[0] > 63.9f && f[0] < 64.1f && d[0] > 31.9 &&
               d[0] < 32.1,
           "64 bits, float, double");
}

static void test_exits() {
    mapped_t<int> out(128);
    const bool good = run(config(1, 128), early_exit, out.p) == cudaSuccess;
    tap_ok(good && out[0] == 11 && out[39] == 11 && out[40] == 0,
           "threads that exit count as arrived");
    tap_ok(good && out[100] == 8, "and leave the masks of their warp");
}

static void test_arguments() {
    mapped_t<float> x(100, 2.0f), y(100, 1.0f), o(1);
    tap_ok(run(config(1, 128), axpy<float>, 3, x.p, y.p, 100) == cudaSuccess && y[99] > 6.9f &&
               y[99] < 7.1f,
           "a template kernel; arguments are converted as in a call");
    const float4 v = make_float4(1, 2, 3, 4);
    tap_ok(run(config(1, 1), by_value, v, static_cast<char>(5), 6.0, o.p) == cudaSuccess &&
               o[0] > 20.9f && o[0] < 21.1f,
           "vectors, chars and doubles by value");
    float a = 1.0f;
    int n = 100;
    const float *px = x.p;
    float *py = y.p;
    void *args[] = {&a, &px, &py, &n};
    const cudaLaunchConfig_t c = config(1, 128);
    const void *func = hostcuda_register_kernel(axpy<float>);
    const cudaError_t e = cudaLaunchKernelExC(&c, func, args);
    a = 100.0f; /* too late to matter */
    tap_ok(e == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess && y[0] < 9.1f,
           "arguments are copied at the launch");
    tap_ok(cudaLaunchKernelExC(&c, "no kernel", args) == cudaErrorInvalidDeviceFunction,
           "an unknown function is refused");
    (void)cudaGetLastError();
}

static void test_launch_limits() {
    mapped_t<float> o(1);
    const float4 v = make_float4(0, 0, 0, 0);
    tap_ok(run(config(0, 1), by_value, v, 'a', 0, o.p) == cudaErrorInvalidValue,
           "no blocks: refused");
    tap_ok(run(config(1, 1025), by_value, v, 'a', 0, o.p) == cudaErrorInvalidValue,
           "1025 threads: refused");
    tap_ok(run(config(dim3(1, 65536), 1), by_value, v, 'a', 0, o.p) == cudaErrorInvalidValue,
           "65536 blocks along y: refused");
    tap_ok(run(config(1, 1, 49 * 1024), by_value, v, 'a', 0, o.p) == cudaErrorInvalidValue,
           "more than 48 KiB of shared memory: refused");
    tap_ok(cudaFuncSetAttribute(by_value, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 * 1024) ==
                   cudaSuccess &&
               run(config(1, 1, 49 * 1024), by_value, v, 'a', 0, o.p) == cudaSuccess,
           "unless asked for");
    (void)cudaGetLastError();
}

static void test_deadlock() {
    mapped_t<int> out(1);
    tap_ok(run(config(1, 32), never_meet, out.p) == cudaErrorLaunchTimeout,
           "a deadlock ends as a timeout");
    tap_ok(cudaGetLastError() == cudaErrorLaunchTimeout &&
               cudaGetLastError() == cudaErrorLaunchTimeout,
           "which is sticky");
    cudaDeviceReset();
    tap_ok(cudaGetLastError() == cudaSuccess, "until the device is reset");
    out.p = nullptr;
}

int main() {
    test_coordinates();
    test_shared();
    test_warps();
    test_atomics();
    test_exits();
    test_arguments();
    test_launch_limits();
    test_deadlock();
    tap_ok(hostcuda_leaks(stderr) == 0, "all is released");
    return tap_done();
}
