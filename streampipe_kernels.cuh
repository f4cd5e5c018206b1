/*  streampipe_kernels.cuh -- reference kernels for streampipe.h. Each comes with a ready-made stage
    function and a CPU twin: a function that computes the same on whole arrays, to compare with.

    DO THIS     #include "streampipe_kernels.cuh"           (C++ only; it includes streampipe.h)
                static const spipe_scale_t half = {0, 1, 0.5f};      buffers 0 -> 1, factor 0.5
                spipe_add_stage(&desc, "half", spipe_scale_stage, (void *)&half);

    CONTENTS    >>tools      loads, stores and loops that the kernels share (private)
                >>elements   fill  scale  saxpy  vector_add  busy  black_scholes
                >>images     u8_to_f32  f32_to_u8  u8_to_chw  rgb_to_gray  rgb_to_lab  sobel
                             blur_down  blur_across
                >>bytes      histogram  total_histogram  entropy  byte_entropy  quantise
                >>running    reduce  scan
                >>selection  threshold  topk

    NAMES       spipe_X_t        the stage's parameters: the indices of its buffers, then settings
                spipe_X_stage    the stage function; its user pointer is a const spipe_X_t *
                spipe_X_kernel   the kernel (static), to launch yourself or to copy
                spipe_X_cpu      the CPU twin: plain serial loops

    CONTRACT    This holds for every stage function here; each comment below adds only what differs.
    chunk       the chunk to process; chunk->data[b] is buffer b, never NULL for a buffer used.
    user        a const spipe_X_t * in host memory, valid until the last chunk has been enqueued.
    Returns     cudaSuccess, cudaErrorInvalidValue for settings outside the stated range, or the
                error of the launch. A chunk of 0 elements launches nothing.
    Blocks      never: it enqueues on chunk->stream and returns.
    Threads     any; calls share nothing but the buffers.
    Callback    not from a cudaLaunchHostFunc function (CUDA forbids CUDA calls there).
    Capture     yes.        Allocates  nothing.
    Order       chunks may run in any order and concurrently, unless the comment says "ordered".
    Alignment   whatever the element type needs. Buffers whose addresses agree modulo 16 bytes are
                accessed 16 bytes at a time, others one element at a time.
    Exact       the twin gives the same bits unless the comment states a tolerance.

    The kernels need blocks of SPIPE_PRIV_THREADS threads unless their launch says otherwise. All
    sizes are size_t. Floats are assumed not to be NaN unless the comment says otherwise.

    LICENCE     MIT, see the end of streampipe.h.                                               */
#ifndef STREAMPIPE_KERNELS_CUH
#define STREAMPIPE_KERNELS_CUH

#include "streampipe.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* ============================================================================================
   >>tools
   ============================================================================================ */
#define SPIPE_PRIV_ON_DEVICE static inline __device__
#define SPIPE_PRIV_THREADS   256u
#define SPIPE_PRIV_WARP      32u
#define SPIPE_PRIV_WARPS     (SPIPE_PRIV_THREADS / SPIPE_PRIV_WARP) /* of a thread block */
#define SPIPE_PRIV_ALL_LANES 0xffffffffu
#ifdef __CUDACC__
#define SPIPE_PRIV_UNROLL _Pragma("unroll")
#else
#define SPIPE_PRIV_UNROLL
#endif

/* Most blocks of a kernel in which every block ends with atomics on the same address: enough to
   fill any GPU sold so far several times over, and few enough that the atomics cost nothing. */
#define SPIPE_PRIV_FEW_BLOCKS 4096u

/* Resident blocks per multiprocessor of the small blur (__launch_bounds__); a multiprocessor of
   sm_75 holds only 1,024 threads. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define SPIPE_PRIV_ACROSS_BLOCKS 4
#else
#define SPIPE_PRIV_ACROSS_BLOCKS 5
#endif

/* A pack is four elements, aligned so that one vector load or store moves up to 16 bytes of it. */
template <size_t BYTES>
struct spipe_priv_alignment_t {
    static constexpr size_t lowest_bit = BYTES & (~BYTES + 1);
    static constexpr size_t value = lowest_bit < 16 ? lowest_bit : 16;
};

template <typename T>
struct alignas(spipe_priv_alignment_t<4 * sizeof(T)>::value) spipe_priv_pack_t {
    T v[4];
};

template <typename A, typename B>
struct spipe_priv_pair_t {
    A a;
    B b;
};

/* How `count` elements split: `head` single elements, `packs` aligned packs of 4, then a tail of
   single elements. */
struct spipe_priv_split_t {
    size_t head;
    size_t packs;
    size_t rest; /* single elements: head + tail */
};

template <typename T>
SPIPE_PRIV_ON_DEVICE bool spipe_priv_aligned(const T *p) {
    return (uintptr_t)p % alignof(spipe_priv_pack_t<T>) == 0;
}

/* Splits three arrays in the same way. Where no element is aligned in all three, there are no packs
   and all elements are single. */
template <typename A, typename B, typename C>
SPIPE_PRIV_ON_DEVICE spipe_priv_split_t spipe_priv_split(const A *a, const B *b, const C *c,
                                                         size_t count) {
    spipe_priv_split_t s = {0, 0, count};
    while (s.head < 4 && !(spipe_priv_aligned(a + s.head) && spipe_priv_aligned(b + s.head) &&
                           spipe_priv_aligned(c + s.head)))
        s.head++;
    if (s.head == 4 || s.head >= count) return s;
    s.packs = (count - s.head) / 4;
    s.rest = count - 4 * s.packs;
    return s;
}

/* The index of the i-th single element. */
SPIPE_PRIV_ON_DEVICE size_t spipe_priv_single(const spipe_priv_split_t &s, size_t i) {
    return i < s.head ? i : i + 4 * s.packs;
}

/* Runs store(i, load(i)) for every i below count, in a grid-stride loop. Each thread issues four
   loads before its first store, because fewer loads in flight do not saturate the memory of a large
   GPU. An element is loaded before it is stored, so the output may be the input. */
template <typename Load, typename Store>
SPIPE_PRIV_ON_DEVICE void spipe_priv_spread(size_t count, Load load, Store store) {
    const size_t threads = SPIPE_PRIV_THREADS;
    const size_t tile = 4 * threads;
    const size_t whole = count / tile * tile;
    for (size_t i = blockIdx.x * tile + threadIdx.x; i < whole; i += gridDim.x * tile) {
        const auto a = load(i);
        const auto b = load(i + threads);
        const auto c = load(i + 2 * threads);
        const auto d = load(i + 3 * threads);
        store(i, a);
        store(i + threads, b);
        store(i + 2 * threads, c);
        store(i + 3 * threads, d);
    }
    size_t i = whole + blockIdx.x * threads + threadIdx.x;
    for (; i < count; i += gridDim.x * threads) store(i, load(i));
}

/* Blocks for spipe_priv_spread over the packs of `count` elements: each thread takes 4 packs, that
   is 16 elements. */
SPIPE_PRIV_LOCAL unsigned spipe_priv_spread_blocks(size_t count) {
    return spipe_blocks(count / 16 + (count % 16 != 0), SPIPE_PRIV_THREADS);
}

/* Launches a kernel that runs spipe_priv_spread over the packs of `count` elements. */
template <typename Kernel, typename... Args>
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_launch_spread(const spipe_chunk_t *chunk, size_t count,
                                                      Kernel kernel, Args... args) {
    if (count == 0) return cudaSuccess;
    return SPIPE_LAUNCH(kernel, spipe_priv_spread_blocks(count), SPIPE_PRIV_THREADS, 0, chunk,
                        args...);
}

SPIPE_PRIV_LOCAL unsigned spipe_priv_few_blocks(unsigned blocks) {
    return blocks < SPIPE_PRIV_FEW_BLOCKS ? blocks : SPIPE_PRIV_FEW_BLOCKS;
}

/* out[i] = op(in[i]) */
template <typename Out, typename In, typename Op>
SPIPE_PRIV_ON_DEVICE void spipe_priv_map(Out *out, const In *in, size_t count, Op op) {
    typedef spipe_priv_pack_t<In> from_t;
    typedef spipe_priv_pack_t<Out> to_t;
    const spipe_priv_split_t s = spipe_priv_split(out, in, in, count);
    const from_t *from = reinterpret_cast<const from_t *>(in + s.head);
    to_t *to = reinterpret_cast<to_t *>(out + s.head);
    spipe_priv_spread(
        s.packs, [=](size_t i) { return from[i]; },
        [=](size_t i, const from_t &x) {
            to_t y;
            for (int k = 0; k < 4; k++) y.v[k] = op(x.v[k]);
            to[i] = y;
        });
    spipe_priv_spread(
        s.rest, [=](size_t i) { return in[spipe_priv_single(s, i)]; },
        [=](size_t i, const In &x) { out[spipe_priv_single(s, i)] = op(x); });
}

/* out[i] = op(a[i], b[i]); out may be a or b */
template <typename Out, typename A, typename B, typename Op>
SPIPE_PRIV_ON_DEVICE void spipe_priv_map2(Out *out, const A *a, const B *b, size_t count, Op op) {
    typedef spipe_priv_pair_t<spipe_priv_pack_t<A>, spipe_priv_pack_t<B>> from_t;
    typedef spipe_priv_pair_t<A, B> single_t;
    typedef spipe_priv_pack_t<Out> to_t;
    const spipe_priv_split_t s = spipe_priv_split(out, a, b, count);
    const auto *pa = reinterpret_cast<const spipe_priv_pack_t<A> *>(a + s.head);
    const auto *pb = reinterpret_cast<const spipe_priv_pack_t<B> *>(b + s.head);
    to_t *to = reinterpret_cast<to_t *>(out + s.head);
    spipe_priv_spread(
        s.packs,
        [=](size_t i) {
            return from_t{pa[i], pb[i]};
        },
        [=](size_t i, const from_t &x) {
            to_t y;
            for (int k = 0; k < 4; k++) y.v[k] = op(x.a.v[k], x.b.v[k]);
            to[i] = y;
        });
    spipe_priv_spread(
        s.rest,
        [=](size_t i) {
            const size_t e = spipe_priv_single(s, i);
            return single_t{a[e], b[e]};
        },
        [=](size_t i, const single_t &x) { out[spipe_priv_single(s, i)] = op(x.a, x.b); });
}

/* Whether rows of `width` elements can be accessed in aligned packs of 4. */
template <typename T>
SPIPE_PRIV_ON_DEVICE bool spipe_priv_wide(const T *p, size_t width) {
    return width % 4 == 0 && spipe_priv_aligned(p);
}

/* Stores a pack to the elements x .. x+3 of a row, or to those of them that exist. */
template <typename T>
SPIPE_PRIV_ON_DEVICE void spipe_priv_store4(T *row, const spipe_priv_pack_t<T> &p, size_t x,
                                            size_t width, bool wide) {
    if (wide) {
        *reinterpret_cast<spipe_priv_pack_t<T> *>(row + x) = p;
        return;
    }
    for (size_t k = 0; k < 4; k++)
        if (x + k < width) row[x + k] = p.v[k];
}

/* The sum over a warp; every lane gets it. */
template <typename T>
SPIPE_PRIV_ON_DEVICE T spipe_priv_warp_sum(T x) {
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(SPIPE_PRIV_ALL_LANES, x, d);
    return x;
}

/* Base-2 logarithm, 2^x and square root in one instruction each, accurate to 2 units in the last
   place, or to 2e-7 near 1. The CUDA math functions take several more instructions to handle
   numbers below 1e-38, which do not occur here. */
#ifdef __CUDA_ARCH__
#define SPIPE_PRIV_APPROXIMATE(name, instruction, host)                                            \
    SPIPE_PRIV_ON_DEVICE float name(float x) {                                                     \
        float y;                                                                                   \
        asm(instruction ".approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));                             \
        return y;                                                                                  \
    }
#else
#define SPIPE_PRIV_APPROXIMATE(name, instruction, host)                                            \
    SPIPE_PRIV_ON_DEVICE float name(float x) { return host(x); }
#endif
SPIPE_PRIV_APPROXIMATE(spipe_priv_log2, "lg2", log2f)
SPIPE_PRIV_APPROXIMATE(spipe_priv_exp2, "ex2", exp2f)
SPIPE_PRIV_APPROXIMATE(spipe_priv_sqrt, "sqrt", sqrtf)

/* Rounds to the nearest integer (ties to even) and clamps to 0..255; NaN gives 0. Adding 2^23 does
   the rounding and leaves the integer in the lowest bits of the float; a conversion instruction has
   an eighth of the throughput of an addition. */
SPIPE_PRIV_ON_DEVICE unsigned char spipe_priv_to_u8(float x) {
    return (unsigned char)(__float_as_uint(fminf(fmaxf(x, 0.0f), 255.0f) + 8388608.0f) & 0xffu);
}

SPIPE_PRIV_LOCAL unsigned char spipe_priv_to_u8_cpu(float x) {
    return (unsigned char)rintf(fminf(fmaxf(x, 0.0f), 255.0f));
}

/* ============================================================================================
   >>elements
   ============================================================================================ */

/*  spipe_fill_stage -- out[i] = value.
    out         buffer; element: one float. Writes 4 bytes per element.                          */
typedef struct spipe_fill {
    int out;
    float value;
} spipe_fill_t;

static __global__ void spipe_fill_kernel(float *out, float value, size_t count) {
    typedef spipe_priv_pack_t<float> pack_t;
    const spipe_priv_split_t s = spipe_priv_split(out, out, out, count);
    pack_t *to = reinterpret_cast<pack_t *>(out + s.head);
    const pack_t four = {{value, value, value, value}};
    spipe_priv_spread(
        s.packs, [](size_t) { return 0; }, [=](size_t i, int) { to[i] = four; });
    spipe_priv_spread(
        s.rest, [](size_t) { return 0; },
        [=](size_t i, int) { out[spipe_priv_single(s, i)] = value; });
}

SPIPE_PRIV_LOCAL cudaError_t spipe_fill_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_fill_t *p = (const spipe_fill_t *)user;
    return spipe_priv_launch_spread(chunk, chunk->count, spipe_fill_kernel,
                                    SPIPE_BUF(chunk, p->out, float), p->value, chunk->count);
}

SPIPE_PRIV_LOCAL void spipe_fill_cpu(float *out, float value, size_t count) {
    for (size_t i = 0; i < count; i++) out[i] = value;
}

/*  spipe_scale_stage -- out[i] = factor * in[i].
    in, out     buffers, may be the same; element: one float. Moves 8 bytes per element.         */
typedef struct spipe_scale {
    int in, out;
    float factor;
} spipe_scale_t;

static __global__ void spipe_scale_kernel(float *out, const float *in, float factor, size_t count) {
    spipe_priv_map(out, in, count, [=](float x) { return factor * x; });
}

SPIPE_PRIV_LOCAL cudaError_t spipe_scale_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_scale_t *p = (const spipe_scale_t *)user;
    return spipe_priv_launch_spread(chunk, chunk->count, spipe_scale_kernel,
                                    SPIPE_BUF(chunk, p->out, float),
                                    SPIPE_BUF(chunk, p->in, const float), p->factor, chunk->count);
}

SPIPE_PRIV_LOCAL void spipe_scale_cpu(float *out, const float *in, float factor, size_t count) {
    for (size_t i = 0; i < count; i++) out[i] = factor * in[i];
}

/*  spipe_saxpy_stage -- y[i] = a * x[i] + y[i], rounded once (a fused multiply-add).
    x, y        buffers; element: one float; y is read and written. Moves 12 bytes per element.  */
typedef struct spipe_saxpy {
    int x, y;
    float a;
} spipe_saxpy_t;

static __global__ void spipe_saxpy_kernel(float *y, const float *x, float a, size_t count) {
    spipe_priv_map2(y, x, y, count, [=](float xi, float yi) { return fmaf(a, xi, yi); });
}

SPIPE_PRIV_LOCAL cudaError_t spipe_saxpy_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_saxpy_t *p = (const spipe_saxpy_t *)user;
    return spipe_priv_launch_spread(chunk, chunk->count, spipe_saxpy_kernel,
                                    SPIPE_BUF(chunk, p->y, float),
                                    SPIPE_BUF(chunk, p->x, const float), p->a, chunk->count);
}

SPIPE_PRIV_LOCAL void spipe_saxpy_cpu(float *y, const float *x, float a, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = fmaf(a, x[i], y[i]);
}

/*  spipe_vector_add_stage -- out[i] = a[i] + b[i].
    a, b, out   buffers, may be the same; element: one float. Moves 12 bytes per element.        */
typedef struct spipe_vector_add {
    int a, b, out;
} spipe_vector_add_t;

static __global__ void spipe_vector_add_kernel(float *out, const float *a, const float *b,
                                               size_t count) {
    spipe_priv_map2(out, a, b, count, [](float x, float y) { return x + y; });
}

SPIPE_PRIV_LOCAL cudaError_t spipe_vector_add_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_vector_add_t *p = (const spipe_vector_add_t *)user;
    return spipe_priv_launch_spread(
        chunk, chunk->count, spipe_vector_add_kernel, SPIPE_BUF(chunk, p->out, float),
        SPIPE_BUF(chunk, p->a, const float), SPIPE_BUF(chunk, p->b, const float), chunk->count);
}

SPIPE_PRIV_LOCAL void spipe_vector_add_cpu(float *out, const float *a, const float *b,
                                           size_t count) {
    for (size_t i = 0; i < count; i++) out[i] = a[i] + b[i];
}

/*  spipe_busy_stage -- applies x = 0.999 x + 0.001 `steps` times to each element: a kernel of any
    duration that moves little data, to make it as long as a copy, or ten times longer.
    in, out     buffers, may be the same; element: one float. Moves 8 bytes per element.
    steps       dependent multiply-adds per element, 2 flops each; 0 only copies.                */
typedef struct spipe_busy {
    int in, out;
    unsigned steps;
} spipe_busy_t;

static __global__ void spipe_busy_kernel(float *out, const float *in, unsigned steps,
                                         size_t count) {
    spipe_priv_map(out, in, count, [=](float x) {
        for (unsigned k = 0; k < steps; k++) x = fmaf(x, 0.999f, 0.001f);
        return x;
    });
}

SPIPE_PRIV_LOCAL cudaError_t spipe_busy_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_busy_t *p = (const spipe_busy_t *)user;
    return spipe_priv_launch_spread(chunk, chunk->count, spipe_busy_kernel,
                                    SPIPE_BUF(chunk, p->out, float),
                                    SPIPE_BUF(chunk, p->in, const float), p->steps, chunk->count);
}

SPIPE_PRIV_LOCAL void spipe_busy_cpu(float *out, const float *in, unsigned steps, size_t count) {
    for (size_t i = 0; i < count; i++) {
        float x = in[i];
        for (unsigned k = 0; k < steps; k++) x = fmaf(x, 0.999f, 0.001f);
        out[i] = x;
    }
}

/*  spipe_black_scholes_stage -- prices of European options by the Black-Scholes formula.
    spot, strike, years   input buffers; element: one float > 0 (price now, price agreed, time to
                          expiry in years)
    call, put             output buffers; element: one float. Moves 20 bytes per element.
    rate, volatility      risk-free interest rate and volatility of the price, per year;
                          volatility > 0
    Exact       no: differs from the twin, which computes in double, by at most
                1e-5 (spot + strike).                                                            */
typedef struct spipe_black_scholes {
    int spot, strike, years, call, put;
    float rate, volatility;
} spipe_black_scholes_t;

/* The cumulative distribution function of the standard normal distribution. */
SPIPE_PRIV_ON_DEVICE float spipe_priv_normal(float x) { return 0.5f * erfcf(-0.70710678f * x); }

static __global__ void spipe_black_scholes_kernel(float *call, float *put, const float *spot,
                                                  const float *strike, const float *years,
                                                  float rate, float volatility, size_t count) {
    struct option_t {
        float s, x, t;
    };

    const float drift = rate + 0.5f * volatility * volatility;
    spipe_priv_spread(
        count,
        [=](size_t i) {
            return option_t{spot[i], strike[i], years[i]};
        },
        [=](size_t i, const option_t &o) {
            const float ln_2 = 0.69314718f;
            const float spread = volatility * spipe_priv_sqrt(o.t);
            const float gain = ln_2 * spipe_priv_log2(__fdividef(o.s, o.x));
            const float d1 = __fdividef(fmaf(drift, o.t, gain), spread);
            const float n1 = spipe_priv_normal(d1);
            const float n2 = spipe_priv_normal(d1 - spread);
            const float later = o.x * spipe_priv_exp2(-rate / ln_2 * o.t);
            call[i] = o.s * n1 - later * n2;
            put[i] = later * (1.0f - n2) - o.s * (1.0f - n1);
        });
}

SPIPE_PRIV_LOCAL cudaError_t spipe_black_scholes_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_black_scholes_t *p = (const spipe_black_scholes_t *)user;
    if (!(p->volatility > 0.0f)) return cudaErrorInvalidValue;
    if (chunk->count == 0) return cudaSuccess;
    return SPIPE_LAUNCH(
        spipe_black_scholes_kernel, spipe_blocks(chunk->count / 4 + 1, SPIPE_PRIV_THREADS),
        SPIPE_PRIV_THREADS, 0, chunk, SPIPE_BUF(chunk, p->call, float),
        SPIPE_BUF(chunk, p->put, float), SPIPE_BUF(chunk, p->spot, const float),
        SPIPE_BUF(chunk, p->strike, const float), SPIPE_BUF(chunk, p->years, const float), p->rate,
        p->volatility, chunk->count);
}

SPIPE_PRIV_LOCAL void spipe_black_scholes_cpu(float *call, float *put, const float *spot,
                                              const float *strike, const float *years, float rate,
                                              float volatility, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const double s = spot[i], x = strike[i], t = years[i], r = rate, v = volatility;
        const double d1 = (log(s / x) + (r + 0.5 * v * v) * t) / (v * sqrt(t));
        const double d2 = d1 - v * sqrt(t);
        const double root_half = 0.70710678118654752440;
        const double later = x * exp(-r * t);
        call[i] = (float)(s * 0.5 * erfc(-d1 * root_half) - later * 0.5 * erfc(-d2 * root_half));
        put[i] = (float)(later * 0.5 * erfc(d2 * root_half) - s * 0.5 * erfc(d1 * root_half));
    }
}

/* ============================================================================================
   >>images
   ============================================================================================ */

/*  spipe_u8_to_f32_stage -- out = (in * scale - mean[c]) / std[c], the usual input of a network.
    spipe_f32_to_u8_stage -- the inverse: out = (in * std[c] + mean[c]) / scale, rounded to the
    nearest integer (ties to even) and clamped to 0..255; NaN gives 0.
    in, out     buffers; element: one pixel of `channels` interleaved samples, c = 0 .. channels-1:
                bytes in one buffer, floats in the other. Moves 5 bytes per sample.
    channels    1..4
    scale       usually 1/255, not 0;  std not 0.
    Exact       to u8: yes, both use fmaf with the factors rounded to float. To f32: no, it differs
                from the twin, which computes in double, by at most
                1e-6 (|in scale| + |mean|) / |std|.                                              */
typedef struct spipe_normalise {
    int in, out;
    int channels;
    float scale;
    float mean[4], std[4];
} spipe_normalise_t;

/* The factor (.x) and the summand (.y) for each of 12 consecutive samples. 12 is a multiple of 1,
   2, 3 and 4 channels, and 3 more entries let a pack of 4 begin at any sample. */
typedef struct spipe_priv_line_table {
    float2 line[15];
} spipe_priv_lines_t;

SPIPE_PRIV_LOCAL int spipe_priv_normalise_valid(const spipe_normalise_t *p) {
    if (p->channels < 1 || p->channels > 4 || p->scale == 0.0f) return 0;
    for (int c = 0; c < p->channels; c++)
        if (p->std[c] == 0.0f) return 0;
    return 1;
}

SPIPE_PRIV_LOCAL spipe_priv_lines_t spipe_priv_lines(const spipe_normalise_t *p, bool back) {
    spipe_priv_lines_t l;
    for (int k = 0; k < 15; k++) {
        const double scale = p->scale, mean = p->mean[k % p->channels],
                     std = p->std[k % p->channels];
        l.line[k] = back ? make_float2((float)(std / scale), (float)(mean / scale))
                         : make_float2((float)(scale / std), (float)(-mean / std));
    }
    return l;
}

/* Copies the table to shared memory. A kernel parameter indexed by a variable would be spilled to
   local memory; here one thread copies it with indices that are compile-time constants. */
SPIPE_PRIV_ON_DEVICE void spipe_priv_share_lines(float2 *line, const spipe_priv_lines_t &lines) {
    if (threadIdx.x == 0) {
        SPIPE_PRIV_UNROLL
        for (int k = 0; k < 15; k++) line[k] = lines.line[k];
    }
    __syncthreads();
}

/* out[i] = op(mul * in[i] + add), with the factor and the summand of sample i. */
template <typename Out, typename In, typename Op>
SPIPE_PRIV_ON_DEVICE void spipe_priv_map_lines(Out *out, const In *in, const float2 *line,
                                               size_t count, Op op) {
    typedef spipe_priv_pack_t<In> from_t;
    typedef spipe_priv_pack_t<Out> to_t;
    const spipe_priv_split_t s = spipe_priv_split(out, in, in, count);
    const from_t *from = reinterpret_cast<const from_t *>(in + s.head);
    to_t *to = reinterpret_cast<to_t *>(out + s.head);
    spipe_priv_spread(
        s.packs, [=](size_t i) { return from[i]; },
        [=](size_t i, const from_t &x) {
            const float2 *l = line + (s.head + 4 * i) % 12;
            to_t y;
            for (int k = 0; k < 4; k++) y.v[k] = op(fmaf((float)x.v[k], l[k].x, l[k].y));
            to[i] = y;
        });
    spipe_priv_spread(
        s.rest, [=](size_t i) { return in[spipe_priv_single(s, i)]; },
        [=](size_t i, const In &x) {
            const size_t e = spipe_priv_single(s, i);
            out[e] = op(fmaf((float)x, line[e % 12].x, line[e % 12].y));
        });
}

static __global__ void spipe_u8_to_f32_kernel(float *out, const unsigned char *in,
                                              spipe_priv_lines_t lines, size_t count) {
    __shared__ float2 line[15];
    spipe_priv_share_lines(line, lines);
    spipe_priv_map_lines(out, in, line, count, [](float x) { return x; });
}

static __global__ void spipe_f32_to_u8_kernel(unsigned char *out, const float *in,
                                              spipe_priv_lines_t lines, size_t count) {
    __shared__ float2 line[15];
    spipe_priv_share_lines(line, lines);
    spipe_priv_map_lines(out, in, line, count, [](float x) { return spipe_priv_to_u8(x); });
}

SPIPE_PRIV_LOCAL cudaError_t spipe_u8_to_f32_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_normalise_t *p = (const spipe_normalise_t *)user;
    if (!spipe_priv_normalise_valid(p)) return cudaErrorInvalidValue;
    const size_t samples = chunk->count * (size_t)p->channels;
    return spipe_priv_launch_spread(chunk, samples, spipe_u8_to_f32_kernel,
                                    SPIPE_BUF_ROW(chunk, p->out, float, p->channels),
                                    SPIPE_BUF_ROW(chunk, p->in, const unsigned char, p->channels),
                                    spipe_priv_lines(p, false), samples);
}

SPIPE_PRIV_LOCAL cudaError_t spipe_f32_to_u8_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_normalise_t *p = (const spipe_normalise_t *)user;
    if (!spipe_priv_normalise_valid(p)) return cudaErrorInvalidValue;
    const size_t samples = chunk->count * (size_t)p->channels;
    return spipe_priv_launch_spread(chunk, samples, spipe_f32_to_u8_kernel,
                                    SPIPE_BUF_ROW(chunk, p->out, unsigned char, p->channels),
                                    SPIPE_BUF_ROW(chunk, p->in, const float, p->channels),
                                    spipe_priv_lines(p, true), samples);
}

/* The twins process `pixels` pixels; they do not read p->in and p->out. */
SPIPE_PRIV_LOCAL void spipe_u8_to_f32_cpu(float *out, const unsigned char *in,
                                          const spipe_normalise_t *p, size_t pixels) {
    const size_t channels = (size_t)p->channels;
    for (size_t i = 0; i < pixels * channels; i++) {
        const double mean = p->mean[i % channels], std = p->std[i % channels];
        out[i] = (float)(((double)in[i] * p->scale - mean) / std);
    }
}

SPIPE_PRIV_LOCAL void spipe_f32_to_u8_cpu(unsigned char *out, const float *in,
                                          const spipe_normalise_t *p, size_t pixels) {
    const size_t channels = (size_t)p->channels;
    for (size_t i = 0; i < pixels * channels; i++) {
        const double mean = p->mean[i % channels], std = p->std[i % channels];
        const float mul = (float)(std / p->scale);
        const float add = (float)(mean / p->scale);
        out[i] = spipe_priv_to_u8_cpu(fmaf(in[i], mul, add));
    }
}

/*  spipe_u8_to_chw_stage -- like spipe_u8_to_f32_stage, but each output picture is planar (CHW).
    in          buffer; element: one picture of pixels x channels bytes, interleaved (HWC)
    out         buffer; element: one picture, channel 0's `pixels` floats, then channel 1's, ...
    norm        channels, scale, mean and std; its in and out are not read
    Exact       within the bound of spipe_u8_to_f32_stage. Moves 5 bytes per sample.             */
typedef struct spipe_u8_to_chw {
    int in, out;
    size_t pixels;
    spipe_normalise_t norm;
} spipe_u8_to_chw_t;

/* Each thread converts four pixels: it reads C words and writes four floats to each of C planes. */
template <unsigned C>
static __global__ void spipe_u8_to_chw_kernel(float *out, const unsigned char *in,
                                              spipe_priv_lines_t lines, size_t pixels,
                                              size_t count) {
    typedef spipe_priv_pack_t<unsigned char> word_t;
    const bool wide = spipe_priv_wide(in, pixels) && spipe_priv_wide(out, pixels);
    for (size_t picture = blockIdx.y; picture < count; picture += gridDim.y) {
        const unsigned char *from = in + picture * pixels * C;
        float *to = out + picture * pixels * C;
        size_t i = 4 * ((size_t)blockIdx.x * blockDim.x + threadIdx.x);
        for (; i < pixels; i += 4 * (size_t)gridDim.x * blockDim.x) {
            word_t x[C];
            if (wide)
                for (unsigned w = 0; w < C; w++)
                    x[w] = reinterpret_cast<const word_t *>(from + i * C)[w];
            else
                for (unsigned k = 0; k < 4 * C; k++)
                    x[k / 4].v[k % 4] = i + k / C < pixels ? from[i * C + k] : (unsigned char)0;
            for (unsigned c = 0; c < C; c++) {
                const float2 line = lines.line[c];
                spipe_priv_pack_t<float> y;
                for (unsigned k = 0; k < 4; k++) {
                    const unsigned char sample = x[(C * k + c) / 4].v[(C * k + c) % 4];
                    y.v[k] = fmaf((float)sample, line.x, line.y);
                }
                spipe_priv_store4(to + c * pixels, y, i, pixels, wide);
            }
        }
    }
}

SPIPE_PRIV_LOCAL cudaError_t spipe_u8_to_chw_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_u8_to_chw_t *p = (const spipe_u8_to_chw_t *)user;
    if (!spipe_priv_normalise_valid(&p->norm)) return cudaErrorInvalidValue;
    if (chunk->count == 0 || p->pixels == 0) return cudaSuccess;
    typedef void (*kernel_t)(float *, const unsigned char *, spipe_priv_lines_t, size_t, size_t);
    const kernel_t kernels[] = {spipe_u8_to_chw_kernel<1>, spipe_u8_to_chw_kernel<2>,
                                spipe_u8_to_chw_kernel<3>, spipe_u8_to_chw_kernel<4>};
    const size_t samples = p->pixels * (size_t)p->norm.channels;
    const dim3 grid(spipe_blocks(p->pixels / 4 + 1, SPIPE_PRIV_THREADS),
                    chunk->count < 65535 ? (unsigned)chunk->count : 65535u);
    return SPIPE_LAUNCH(kernels[p->norm.channels - 1], grid, SPIPE_PRIV_THREADS, 0, chunk,
                        SPIPE_BUF_ROW(chunk, p->out, float, samples),
                        SPIPE_BUF_ROW(chunk, p->in, const unsigned char, samples),
                        spipe_priv_lines(&p->norm, false), p->pixels, chunk->count);
}

SPIPE_PRIV_LOCAL void spipe_u8_to_chw_cpu(float *out, const unsigned char *in,
                                          const spipe_u8_to_chw_t *p, size_t pictures) {
    const size_t channels = (size_t)p->norm.channels;
    for (size_t n = 0; n < pictures; n++)
        for (size_t i = 0; i < p->pixels; i++)
            for (size_t c = 0; c < channels; c++) {
                const size_t base = n * p->pixels * channels;
                const double x = in[base + i * channels + c];
                out[base + c * p->pixels + i] =
                    (float)((x * p->norm.scale - p->norm.mean[c]) / p->norm.std[c]);
            }
}

/* A pixel of three bytes, as in a PPM file. */
typedef struct spipe_rgb8 {
    unsigned char r, g, b;
} spipe_rgb8_t;

/*  spipe_rgb_to_gray_stage -- luma of ITU-R BT.601: 0.299 r + 0.587 g + 0.114 b, rounded to the
    nearest integer. It uses 16-bit fixed point with weights that add up to exactly 1, so a gray
    pixel keeps its value.
    in          buffer; element: one spipe_rgb8_t
    out         buffer; element: one byte. Moves 4 bytes per pixel.                              */
typedef struct spipe_rgb_to_gray {
    int in, out;
} spipe_rgb_to_gray_t;

SPIPE_PRIV_ON_DEVICE unsigned char spipe_priv_gray(unsigned r, unsigned g, unsigned b) {
    return (unsigned char)((19595u * r + 38470u * g + 7471u * b + 32768u) >> 16);
}

/* Each thread reads four pixels as three words; reading single bytes would take four times as many
   loads. */
static __global__ void spipe_rgb_to_gray_kernel(unsigned char *out, const spipe_rgb8_t *in,
                                                size_t count) {
    typedef spipe_priv_pack_t<unsigned char> word_t;

    struct words_t {
        word_t w[3];
    };

    const spipe_priv_split_t s = spipe_priv_split(out, in, in, count);
    const word_t *from = reinterpret_cast<const word_t *>(in + s.head);
    word_t *to = reinterpret_cast<word_t *>(out + s.head);
    spipe_priv_spread(
        s.packs,
        [=](size_t i) {
            return words_t{{from[3 * i], from[3 * i + 1], from[3 * i + 2]}};
        },
        [=](size_t i, const words_t &x) {
            unsigned char byte[12];
            word_t gray;
            for (int k = 0; k < 12; k++) byte[k] = x.w[k / 4].v[k % 4];
            for (int k = 0; k < 4; k++)
                gray.v[k] = spipe_priv_gray(byte[3 * k], byte[3 * k + 1], byte[3 * k + 2]);
            to[i] = gray;
        });
    spipe_priv_spread(
        s.rest, [=](size_t i) { return in[spipe_priv_single(s, i)]; },
        [=](size_t i, const spipe_rgb8_t &p) {
            out[spipe_priv_single(s, i)] = spipe_priv_gray(p.r, p.g, p.b);
        });
}

SPIPE_PRIV_LOCAL cudaError_t spipe_rgb_to_gray_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_rgb_to_gray_t *p = (const spipe_rgb_to_gray_t *)user;
    return spipe_priv_launch_spread(chunk, chunk->count, spipe_rgb_to_gray_kernel,
                                    SPIPE_BUF(chunk, p->out, unsigned char),
                                    SPIPE_BUF(chunk, p->in, const spipe_rgb8_t), chunk->count);
}

SPIPE_PRIV_LOCAL void spipe_rgb_to_gray_cpu(unsigned char *out, const spipe_rgb8_t *in,
                                            size_t count) {
    for (size_t i = 0; i < count; i++)
        out[i] =
            (unsigned char)((19595u * in[i].r + 38470u * in[i].g + 7471u * in[i].b + 32768u) >> 16);
}

/*  spipe_rgb_to_lab_stage -- CIE 1976 L*a*b* of sRGB pixels (IEC 61966-2-1, white point D65).
    in          buffer; element: one spipe_rgb8_t
    out         buffer; element: three floats L (0..100), a, b. Moves 15 bytes per pixel.
    Exact       no: within 2e-4 of the twin, which computes in double.                           */
typedef struct spipe_rgb_to_lab {
    int in, out;
} spipe_rgb_to_lab_t;

typedef struct spipe_priv_lab {
    float l, a, b;
} spipe_priv_lab_t;

/* The function f of the Lab definition: a cube root, and a straight line near black. t is at most
   1, where exp2(log2(t) / 3) is accurate to a few units in the last place and cheaper than
   cbrtf. */
SPIPE_PRIV_ON_DEVICE float spipe_priv_lab_f(float t) {
    const float root = spipe_priv_exp2(spipe_priv_log2(t) * 0.33333333f);
    return t > 0.008856452f ? root : fmaf(7.787037f, t, 0.13793103f);
}

/* One pixel in Lab. `light` is this lane's copy of the table that makes a byte's linear light. */
SPIPE_PRIV_ON_DEVICE spipe_priv_lab_t spipe_priv_to_lab(const float *light, unsigned red,
                                                        unsigned green, unsigned blue) {
    const unsigned each = SPIPE_PRIV_WARP;
    const float r = light[each * red], g = light[each * green], b = light[each * blue];
    const float x = 0.43394994f * r + 0.37620977f * g + 0.18984029f * b;
    const float y = 0.21267290f * r + 0.71515220f * g + 0.07217500f * b;
    const float z = 0.01775658f * r + 0.10946796f * g + 0.87277536f * b;
    const float fx = spipe_priv_lab_f(x), fy = spipe_priv_lab_f(y), fz = spipe_priv_lab_f(z);
    return {116.0f * fy - 16.0f, 500.0f * (fx - fy), 200.0f * (fy - fz)};
}

/* Fills the table of the linear light of all 256 byte values, because powf per sample is slow. Each
   lane has its own copy of the table in its own shared-memory bank, so the lanes of a warp can look
   up different bytes without bank conflicts. */
SPIPE_PRIV_ON_DEVICE void spipe_priv_make_light(float *light) {
    const unsigned t = threadIdx.x;
    const float v = (float)t / 255.0f;
    const float x = v <= 0.04045f ? v / 12.92f : powf((v + 0.055f) / 1.055f, 2.4f);
    for (unsigned k = 0; k < SPIPE_PRIV_WARP; k++)
        light[SPIPE_PRIV_WARP * t + (t + k) % SPIPE_PRIV_WARP] = x;
    __syncthreads();
}

/* Each lane converts four pixels. The results go through shared memory, so that a warp's stores are
   coalesced. */
static __global__ void spipe_rgb_to_lab_kernel(float *out, const spipe_rgb8_t *in, size_t count) {
    typedef spipe_priv_pack_t<float> pack_t;
    __shared__ float light[256 * SPIPE_PRIV_WARP];
    __shared__ pack_t tile[3 * SPIPE_PRIV_THREADS];
    const unsigned lane = threadIdx.x % SPIPE_PRIV_WARP;
    const unsigned first = threadIdx.x - lane;
    spipe_priv_lab_t *lab = reinterpret_cast<spipe_priv_lab_t *>(out);
    const spipe_priv_split_t s = spipe_priv_split(lab, in, in, count);
    const unsigned *from = reinterpret_cast<const unsigned *>(in + s.head);
    pack_t *to = reinterpret_cast<pack_t *>(lab + s.head);
    pack_t *mine = tile + 3 * first;
    spipe_priv_make_light(light);
    const float *own = light + lane;
    size_t base = (size_t)blockIdx.x * SPIPE_PRIV_THREADS + first;
    for (; base < s.packs; base += (size_t)gridDim.x * SPIPE_PRIV_THREADS) {
        const size_t at = 3 * (base + lane < s.packs ? base + lane : s.packs - 1);
        const unsigned w[3] = {from[at], from[at + 1], from[at + 2]};
        unsigned byte[12];
        spipe_priv_lab_t four[4];
        for (int k = 0; k < 12; k++) byte[k] = w[k / 4] >> (8 * (k % 4)) & 0xffu;
        for (int k = 0; k < 4; k++)
            four[k] = spipe_priv_to_lab(own, byte[3 * k], byte[3 * k + 1], byte[3 * k + 2]);
        mine[3 * lane] = {{four[0].l, four[0].a, four[0].b, four[1].l}};
        mine[3 * lane + 1] = {{four[1].a, four[1].b, four[2].l, four[2].a}};
        mine[3 * lane + 2] = {{four[2].b, four[3].l, four[3].a, four[3].b}};
        __syncwarp();
        for (unsigned k = lane; k < 3 * SPIPE_PRIV_WARP; k += SPIPE_PRIV_WARP)
            if (3 * base + k < 3 * s.packs) to[3 * base + k] = mine[k];
        __syncwarp();
    }
    spipe_priv_spread(
        s.rest, [=](size_t i) { return in[spipe_priv_single(s, i)]; },
        [=](size_t i, const spipe_rgb8_t &p) {
            lab[spipe_priv_single(s, i)] = spipe_priv_to_lab(own, p.r, p.g, p.b);
        });
}

SPIPE_PRIV_LOCAL cudaError_t spipe_rgb_to_lab_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_rgb_to_lab_t *p = (const spipe_rgb_to_lab_t *)user;
    if (chunk->count == 0) return cudaSuccess;
    /* 32 pixels per thread: fewer would not repay the table that each block fills. */
    return SPIPE_LAUNCH(spipe_rgb_to_lab_kernel,
                        spipe_blocks(chunk->count / 32 + 1, SPIPE_PRIV_THREADS), SPIPE_PRIV_THREADS,
                        0, chunk, SPIPE_BUF_ROW(chunk, p->out, float, 3),
                        SPIPE_BUF(chunk, p->in, const spipe_rgb8_t), chunk->count);
}

SPIPE_PRIV_LOCAL double spipe_priv_light_cpu(unsigned char byte) {
    const double v = byte / 255.0;
    return v <= 0.04045 ? v / 12.92 : pow((v + 0.055) / 1.055, 2.4);
}

SPIPE_PRIV_LOCAL double spipe_priv_lab_f_cpu(double t) {
    return t > 216.0 / 24389.0 ? cbrt(t) : 841.0 / 108.0 * t + 4.0 / 29.0;
}

SPIPE_PRIV_LOCAL void spipe_rgb_to_lab_cpu(float *out, const spipe_rgb8_t *in, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const double r = spipe_priv_light_cpu(in[i].r), g = spipe_priv_light_cpu(in[i].g);
        const double b = spipe_priv_light_cpu(in[i].b);
        const double x = (0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.9504700;
        const double y = 0.2126729 * r + 0.7151522 * g + 0.0721750 * b;
        const double z = (0.0193339 * r + 0.1191920 * g + 0.9503041 * b) / 1.0888300;
        const double fx = spipe_priv_lab_f_cpu(x), fy = spipe_priv_lab_f_cpu(y);
        out[3 * i] = (float)(116.0 * fy - 16.0);
        out[3 * i + 1] = (float)(500.0 * (fx - fy));
        out[3 * i + 2] = (float)(200.0 * (fy - spipe_priv_lab_f_cpu(z)));
    }
}

/* Launch shape of the kernels that work on rows: a warp covers 128 columns, 4 per lane, and a block
   of 8 warps covers 8 strips of rows. */
#define SPIPE_PRIV_STRIPS 8u

SPIPE_PRIV_LOCAL dim3 spipe_priv_row_block(void) {
    return dim3(SPIPE_PRIV_WARP, SPIPE_PRIV_STRIPS);
}

SPIPE_PRIV_LOCAL dim3 spipe_priv_row_grid(size_t width, size_t rows, size_t rows_per_strip) {
    const unsigned down = spipe_blocks(rows / rows_per_strip + 1, SPIPE_PRIV_STRIPS);
    return dim3(spipe_blocks(width, 4 * SPIPE_PRIV_WARP), down < 65535u ? down : 65535u);
}

/* The column of this thread's first pixel. */
SPIPE_PRIV_ON_DEVICE size_t spipe_priv_column(void) {
    return 4 * ((size_t)blockIdx.x * SPIPE_PRIV_WARP + threadIdx.x);
}

/* The first strip of rows of this thread. */
SPIPE_PRIV_ON_DEVICE size_t spipe_priv_strip(void) {
    return (size_t)blockIdx.y * SPIPE_PRIV_STRIPS + threadIdx.y;
}

/* The rows that a strip reads: from row y on, clamped to first .. last. */
struct spipe_priv_rows_t {
    ptrdiff_t y, first, last;
};

template <typename T>
SPIPE_PRIV_ON_DEVICE const T *spipe_priv_row_at(const T *in, const spipe_priv_rows_t &r, int j,
                                                size_t width) {
    ptrdiff_t row = r.y + j;
    if (row < r.first)
        row = r.first;
    else if (row > r.last)
        row = r.last;
    return in + row * (ptrdiff_t)width;
}

/* Loads the pixels x .. x+3 of N rows, one word per row; columns past the end repeat the last. All
   loads are in one unrolled loop, before any use and not inside a branch of their own, so that all
   of them are in flight at the same time. */
template <int N>
SPIPE_PRIV_ON_DEVICE void spipe_priv_load_words(unsigned *word, const unsigned char *in,
                                                const spipe_priv_rows_t &r, size_t x, size_t width,
                                                bool wide) {
    if (wide) {
        SPIPE_PRIV_UNROLL
        for (int j = 0; j < N; j++)
            word[j] = *reinterpret_cast<const unsigned *>(spipe_priv_row_at(in, r, j, width) + x);
        return;
    }
    SPIPE_PRIV_UNROLL
    for (int j = 0; j < N; j++) {
        const unsigned char *row = spipe_priv_row_at(in, r, j, width);
        word[j] = 0;
        for (size_t k = 0; k < 4; k++)
            word[j] |= (unsigned)row[x + k < width ? x + k : width - 1] << (8 * k);
    }
}

/* Byte k of a word. */
SPIPE_PRIV_ON_DEVICE int spipe_priv_byte(unsigned word, int k) {
    return (int)(word >> (8 * k) & 0xffu);
}

/*  spipe_sobel_stage -- edges: sqrt(gx^2 + gy^2) of the 3x3 Sobel operator, rounded to the nearest
    integer, at most 255. Columns beyond the left and right end repeat the outermost column.
    in          buffer; element: one row of `width` bytes; needs a halo of 1 row before and 1 after
    out         buffer; element: one row of `width` bytes. Moves 2 bytes per pixel.
    width       pixels in a row, at least 1                                                      */
typedef struct spipe_sobel {
    int in, out;
    size_t width;
} spipe_sobel_t;

/* The edge value of a pixel, in the lowest byte of the result.
   Four sums of 2x2 pixels meet at the pixel. With p and q their differences along the two
   diagonals, gx = p + q and gy = p - q, so gx^2 + gy^2 = 2 (p^2 + q^2), an exact integer. Its
   square root is at least 4e-4 away from every x.5 below 256, so the approximate root rounds as the
   exact one does. */
SPIPE_PRIV_ON_DEVICE unsigned spipe_priv_sobel_edge(float p, float q) {
    /* 180.31 * sqrt(2) rounds to 255. */
    const float root = fminf(spipe_priv_sqrt(fmaf(p, p, q * q)), 180.31f);
    return __float_as_uint(fmaf(root, 1.41421356f, 8388608.0f));
}

/* The edge value at column x of the row after `above`; columns past the ends repeat the
   outermost. */
SPIPE_PRIV_ON_DEVICE unsigned char spipe_priv_sobel_pixel(const unsigned char *above, size_t x,
                                                          size_t width) {
    const unsigned char *here = above + width;
    const unsigned char *below = here + width;
    const size_t l = x > 0 ? x - 1 : 0;
    const size_t r = x + 1 < width ? x + 1 : x;
    const int p = here[r] + below[x] + below[r] - above[l] - above[x] - here[l];
    const int q = above[x] + above[r] + here[r] - here[l] - below[l] - below[x];
    return (unsigned char)(spipe_priv_sobel_edge((float)p, (float)q) & 0xffu);
}

/* Byte k of a word as the float 32768 + byte, made by one byte permutation instead of a conversion.
   Float additions have twice the throughput of integer additions, and are exact here; the 32768s
   cancel in the differences. */
SPIPE_PRIV_ON_DEVICE float spipe_priv_biased(unsigned word, unsigned k) {
    return __uint_as_float(__byte_perm(word, 0x47000000u, 0x7404u + (k << 4)));
}

/* Eight pixels of a row and one more on either side. */
struct spipe_priv_sobel_in_t {
    uint2 word;
    unsigned left, right;
};

/* Sums of 2x2 pixels along two rows: `row` is the upper row, and becomes the lower one, `p`. */
SPIPE_PRIV_ON_DEVICE void spipe_priv_sobel_boxes(float *box, float *row,
                                                 const spipe_priv_sobel_in_t &p) {
    float lower[10], down[10];
    lower[0] = spipe_priv_biased(p.left, 0);
    lower[9] = spipe_priv_biased(p.right, 0);
    for (unsigned k = 0; k < 4; k++) {
        lower[1 + k] = spipe_priv_biased(p.word.x, k);
        lower[5 + k] = spipe_priv_biased(p.word.y, k);
    }
    for (unsigned k = 0; k < 10; k++) {
        down[k] = row[k] + lower[k];
        row[k] = lower[k];
    }
    for (unsigned k = 0; k < 9; k++) box[k] = down[k] + down[k + 1];
}

/* Eight edge values from the 2x2 sums that lie above and below them. */
SPIPE_PRIV_ON_DEVICE uint2 spipe_priv_sobel_edges(const float *above, const float *below) {
    unsigned pair[4];
    for (unsigned k = 0; k < 4; k++) {
        const float *a = above + 2 * k, *b = below + 2 * k;
        pair[k] = __byte_perm(spipe_priv_sobel_edge(b[1] - a[0], a[1] - b[0]),
                              spipe_priv_sobel_edge(b[2] - a[1], a[2] - b[1]), 0x0040);
    }
    return make_uint2(__byte_perm(pair[0], pair[1], 0x5410), __byte_perm(pair[2], pair[3], 0x5410));
}

enum {
    SPIPE_PRIV_SOBEL_STRIP = 16,   /* rows that one thread makes */
    SPIPE_PRIV_SOBEL_AHEAD = 4,    /* rows loaded before their use */
    SPIPE_PRIV_SOBEL_THREADS = 128 /* per block, side by side */
};

/* Makes a strip of rows of eight pixels; `in` points to the row before the first. */
SPIPE_PRIV_ON_DEVICE void spipe_priv_sobel_strip(unsigned char *out, const unsigned char *in,
                                                 size_t width, bool leftmost, bool rightmost) {
    enum {
        AHEAD = SPIPE_PRIV_SOBEL_AHEAD,
        STRIP = SPIPE_PRIV_SOBEL_STRIP
    };

    const ptrdiff_t left = leftmost ? 0 : -1;
    const ptrdiff_t right = rightmost ? 7 : 8;
    const auto next_row = [&]() {
        const spipe_priv_sobel_in_t p = {*reinterpret_cast<const uint2 *>(in), in[left], in[right]};
        in += width;
        return p;
    };
    float row[10] = {}, above[9], below[9];
    spipe_priv_sobel_in_t first[2], p[AHEAD];
    for (int k = 0; k < 2; k++) first[k] = next_row();
    for (int k = 0; k < AHEAD; k++) p[k] = next_row();
    for (int k = 0; k < 2; k++) spipe_priv_sobel_boxes(above, row, first[k]);
    for (int j = 0; j < STRIP; j += AHEAD) {
        SPIPE_PRIV_UNROLL
        for (int k = 0; k < AHEAD; k++, out += width) {
            spipe_priv_sobel_boxes(below, row, p[k]);
            if (j + AHEAD < STRIP) p[k] = next_row();
            *reinterpret_cast<uint2 *>(out) = spipe_priv_sobel_edges(above, below);
            for (unsigned c = 0; c < 9; c++) above[c] = below[c];
        }
    }
}

/* Each thread makes 8 x 16 pixels. It reads 8 pixels at a time where every row begins at a multiple
   of 8 bytes and the chunk has at least 16 rows, otherwise one pixel at a time. The last strip
   begins early enough to have 16 rows, so a few rows are made twice. */
static __global__ void __launch_bounds__(SPIPE_PRIV_SOBEL_THREADS, 8)
    spipe_sobel_kernel(unsigned char *out, const unsigned char *in, size_t width, size_t rows) {
    enum {
        STRIP = SPIPE_PRIV_SOBEL_STRIP,
        THREADS = SPIPE_PRIV_SOBEL_THREADS
    };

    const size_t block = (size_t)8 * blockIdx.x * THREADS;
    const size_t x = block + 8 * threadIdx.x;
    const bool wide = width % 8 == 0 && (uintptr_t)in % 8 == 0 && (uintptr_t)out % 8 == 0;
    for (size_t y = (size_t)blockIdx.y * STRIP; y < rows; y += (size_t)gridDim.y * STRIP) {
        size_t from = y + STRIP < rows ? y : rows - STRIP;
        if (rows < STRIP) from = 0;
        if (wide && rows >= STRIP) {
            const size_t at = from * width + x;
            if (x < width)
                spipe_priv_sobel_strip(out + at, in + at - width, width, x == 0, x + 8 == width);
            continue;
        }
        for (size_t k = 0; k < 8 * STRIP; k++) {
            const size_t row = from + k / 8;
            const size_t column = block + k % 8 * THREADS + threadIdx.x;
            if (row < rows && column < width)
                out[row * width + column] =
                    spipe_priv_sobel_pixel(in + row * width - width, column, width);
        }
    }
}

SPIPE_PRIV_LOCAL cudaError_t spipe_sobel_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_sobel_t *p = (const spipe_sobel_t *)user;
    if (p->width == 0) return cudaErrorInvalidValue;
    if (chunk->count == 0) return cudaSuccess;
    const unsigned down = spipe_blocks(chunk->count, SPIPE_PRIV_SOBEL_STRIP);
    const dim3 grid(spipe_blocks(p->width, 8 * SPIPE_PRIV_SOBEL_THREADS),
                    down < 65535u ? down : 65535u);
    return SPIPE_LAUNCH(spipe_sobel_kernel, grid, SPIPE_PRIV_SOBEL_THREADS, 0, chunk,
                        SPIPE_BUF_ROW(chunk, p->out, unsigned char, p->width),
                        SPIPE_BUF_ROW(chunk, p->in, const unsigned char, p->width), p->width,
                        chunk->count);
}

/* The index at + by - minus, clamped to 0 .. size - 1. */
SPIPE_PRIV_LOCAL size_t spipe_priv_clamp_cpu(size_t at, size_t by, size_t minus, size_t size) {
    const size_t sum = at + by;
    if (sum < minus) return 0;
    return sum - minus < size ? sum - minus : size - 1;
}

/* One picture of `rows` rows; rows beyond the first and last repeat them (a clamped halo). */
SPIPE_PRIV_LOCAL void spipe_sobel_cpu(unsigned char *out, const unsigned char *in, size_t width,
                                      size_t rows) {
    static const int across[3][3] = {{-1, 0, 1}, {-2, 0, 2}, {-1, 0, 1}};
    for (size_t y = 0; y < rows; y++)
        for (size_t x = 0; x < width; x++) {
            int gx = 0, gy = 0;
            for (size_t j = 0; j < 3; j++)
                for (size_t i = 0; i < 3; i++) {
                    const int p = in[spipe_priv_clamp_cpu(y, j, 1, rows) * width +
                                     spipe_priv_clamp_cpu(x, i, 1, width)];
                    gx += across[j][i] * p;
                    gy += across[i][j] * p;
                }
            const double root = floor(sqrt((double)(gx * gx + gy * gy)) + 0.5);
            out[y * width + x] = root < 255.0 ? (unsigned char)root : (unsigned char)255;
        }
}

/*  spipe_blur_down_stage, spipe_blur_across_stage -- a Gaussian blur in two stages: down the
    columns from bytes to floats, then across each row from floats to bytes (rounded, ties to even).
    in          read by blur_down; buffer; element: one row of `width` bytes; needs a halo of
                `radius` rows before and after
    middle      written by blur_down, read by blur_across; temporary buffer; element: one row of
                `width` floats. It needs no halo, because the vertical stage comes first.
    out         written by blur_across; buffer; element: one row of `width` bytes. Each stage moves
                5 bytes per pixel.
    sigma       standard deviation of the Gaussian, in pixels, > 0; weights beyond `radius` are 0,
                the others add up to 1
    radius      1..8
    width       pixels in a row, at least 1; columns beyond the ends repeat the outermost column
    Exact       no: middle differs from the twin by at most 1e-4, out by at most 1, because a value
                close to x.5 may be rounded either way.                                          */
typedef struct spipe_blur {
    int in, middle, out;
    size_t width;
    int radius;
    float sigma;
} spipe_blur_t;

#define SPIPE_BLUR_MAX_RADIUS 8

/* Weights of the offsets -8 .. 8; 0 beyond the radius. */
typedef struct spipe_priv_weights {
    float w[2 * SPIPE_BLUR_MAX_RADIUS + 1];
} spipe_priv_weights_t;

SPIPE_PRIV_LOCAL spipe_priv_weights_t spipe_priv_gaussian(int radius, float sigma) {
    spipe_priv_weights_t weights;
    double sum = 0.0;
    for (int k = -radius; k <= radius; k++) sum += exp(-0.5 * k * k / ((double)sigma * sigma));
    for (int k = -SPIPE_BLUR_MAX_RADIUS; k <= SPIPE_BLUR_MAX_RADIUS; k++) {
        const double w = exp(-0.5 * k * k / ((double)sigma * sigma)) / sum;
        weights.w[k + SPIPE_BLUR_MAX_RADIUS] = k < -radius || k > radius ? 0.0f : (float)w;
    }
    return weights;
}

SPIPE_PRIV_LOCAL int spipe_priv_blur_valid(const spipe_blur_t *p) {
    return p->width > 0 && p->radius >= 1 && p->radius <= SPIPE_BLUR_MAX_RADIUS && p->sigma > 0.0f;
}

/* Each thread makes 8 rows of 4 pixels, so that each row it reads serves all outputs that need it.
   REACH is the radius rounded up to a compile-time constant, so that the weights are indexed by
   constants. Rows beyond the true radius have weight 0 and may not exist, so the nearest existing
   row is read in their place. */
template <int REACH>
static __global__ void spipe_blur_down_kernel(float *out, const unsigned char *in,
                                              spipe_priv_weights_t weights, int radius,
                                              size_t width, size_t rows) {
    enum {
        STRIP = 8,
        READ = STRIP + 2 * REACH
    };

    const size_t x = spipe_priv_column();
    if (x >= width) return;
    const bool wide_in = spipe_priv_wide(in, width);
    const bool wide_out = spipe_priv_wide(out, width);
    for (size_t y = spipe_priv_strip() * STRIP; y < rows;
         y += gridDim.y * SPIPE_PRIV_STRIPS * STRIP) {
        const spipe_priv_rows_t r = {(ptrdiff_t)y - REACH, -radius, (ptrdiff_t)rows - 1 + radius};
        unsigned word[READ];
        spipe_priv_load_words<READ>(word, in, r, x, width, wide_in);
        spipe_priv_pack_t<float> sum[STRIP] = {};
        SPIPE_PRIV_UNROLL
        for (int j = 0; j < READ; j++) {
            float p[4];
            for (int c = 0; c < 4; c++) p[c] = (float)spipe_priv_byte(word[j], c);
            SPIPE_PRIV_UNROLL
            for (int k = 0; k < STRIP; k++) {
                if (j < k || j > k + 2 * REACH) continue;
                const float w = weights.w[j - k - REACH + SPIPE_BLUR_MAX_RADIUS];
                for (int c = 0; c < 4; c++) sum[k].v[c] = fmaf(w, p[c], sum[k].v[c]);
            }
        }
        SPIPE_PRIV_UNROLL
        for (int k = 0; k < STRIP; k++)
            if (y + (size_t)k < rows)
                spipe_priv_store4(out + (y + (size_t)k) * width, sum[k], x, width, wide_out);
    }
}

/* Loads the floats x - PAD .. x + 3 + PAD of a row in packs; columns past the ends repeat the
   outermost. `inside`: all of them exist and are aligned. */
template <int PAD>
SPIPE_PRIV_ON_DEVICE void spipe_priv_load_window(spipe_priv_pack_t<float> *p, const float *row,
                                                 size_t x, size_t width, bool inside) {
    if (inside) {
        const float *from = row + x - PAD;
        SPIPE_PRIV_UNROLL
        for (int k = 0; k < 1 + PAD / 2; k++)
            p[k] = *reinterpret_cast<const spipe_priv_pack_t<float> *>(from + 4 * k);
        return;
    }
    SPIPE_PRIV_UNROLL
    for (int k = 0; k < 4 + 2 * PAD; k++) {
        const size_t at = x + (size_t)k; /* PAD too large, so that it is never negative */
        const size_t column = at < PAD ? 0 : at - PAD;
        p[k / 4].v[k % 4] = row[column < width ? column : width - 1];
    }
}

/* Each thread makes 4 pixels of two rows. Neighbouring threads read overlapping columns, which the
   L1 cache serves. */
template <int REACH>
static __global__ void __launch_bounds__(SPIPE_PRIV_THREADS,
                                         REACH == 2 ? SPIPE_PRIV_ACROSS_BLOCKS : 3)
    spipe_blur_across_kernel(unsigned char *out, const float *in, spipe_priv_weights_t weights,
                             size_t width, size_t rows) {
    enum {
        ROWS = 2,
        PAD = (REACH + 3) / 4 * 4
    };

    const size_t x = spipe_priv_column();
    if (x >= width) return;
    const bool wide_out = spipe_priv_wide(out, width);
    const bool inside = x >= PAD && x + 4 + PAD <= width && spipe_priv_wide(in, width);
    for (size_t y = spipe_priv_strip() * ROWS; y < rows;
         y += gridDim.y * SPIPE_PRIV_STRIPS * ROWS) {
        spipe_priv_pack_t<float> p[ROWS][1 + PAD / 2];
        SPIPE_PRIV_UNROLL
        for (size_t r = 0; r < ROWS; r++)
            spipe_priv_load_window<PAD>(p[r], in + (y + r < rows ? y + r : y) * width, x, width,
                                        inside);
        SPIPE_PRIV_UNROLL
        for (size_t r = 0; r < ROWS; r++) {
            spipe_priv_pack_t<unsigned char> blurred;
            SPIPE_PRIV_UNROLL
            for (int c = 0; c < 4; c++) {
                float sum = 0.0f;
                SPIPE_PRIV_UNROLL
                for (int k = c + PAD - REACH; k <= c + PAD + REACH; k++)
                    sum = fmaf(weights.w[k - c - PAD + SPIPE_BLUR_MAX_RADIUS], p[r][k / 4].v[k % 4],
                               sum);
                blurred.v[c] = spipe_priv_to_u8(sum);
            }
            if (y + r < rows) spipe_priv_store4(out + (y + r) * width, blurred, x, width, wide_out);
        }
    }
}

SPIPE_PRIV_LOCAL cudaError_t spipe_blur_down_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_blur_t *p = (const spipe_blur_t *)user;
    if (!spipe_priv_blur_valid(p)) return cudaErrorInvalidValue;
    if (chunk->count == 0) return cudaSuccess;
    return SPIPE_LAUNCH((p->radius <= 4 ? spipe_blur_down_kernel<4> : spipe_blur_down_kernel<8>),
                        spipe_priv_row_grid(p->width, chunk->count, 8), spipe_priv_row_block(), 0,
                        chunk, SPIPE_BUF_ROW(chunk, p->middle, float, p->width),
                        SPIPE_BUF_ROW(chunk, p->in, const unsigned char, p->width),
                        spipe_priv_gaussian(p->radius, p->sigma), p->radius, p->width,
                        chunk->count);
}

SPIPE_PRIV_LOCAL cudaError_t spipe_blur_across_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_blur_t *p = (const spipe_blur_t *)user;
    if (!spipe_priv_blur_valid(p)) return cudaErrorInvalidValue;
    if (chunk->count == 0) return cudaSuccess;
    auto *kernel = spipe_blur_across_kernel<8>;
    if (p->radius <= 4) kernel = spipe_blur_across_kernel<4>;
    if (p->radius <= 2) kernel = spipe_blur_across_kernel<2>;
    return SPIPE_LAUNCH(kernel, spipe_priv_row_grid(p->width, chunk->count, 2),
                        spipe_priv_row_block(), 0, chunk,
                        SPIPE_BUF_ROW(chunk, p->out, unsigned char, p->width),
                        SPIPE_BUF_ROW(chunk, p->middle, const float, p->width),
                        spipe_priv_gaussian(p->radius, p->sigma), p->width, chunk->count);
}

/* One picture of `rows` rows; rows beyond the first and last repeat them (a clamped halo). */
SPIPE_PRIV_LOCAL void spipe_blur_down_cpu(float *out, const unsigned char *in,
                                          const spipe_blur_t *p, size_t rows) {
    const spipe_priv_weights_t weights = spipe_priv_gaussian(p->radius, p->sigma);
    const size_t radius = (size_t)p->radius;
    for (size_t y = 0; y < rows; y++)
        for (size_t x = 0; x < p->width; x++) {
            double sum = 0.0;
            for (size_t k = 0; k <= 2 * radius; k++)
                sum += (double)weights.w[k + SPIPE_BLUR_MAX_RADIUS - radius] *
                       in[spipe_priv_clamp_cpu(y, k, radius, rows) * p->width + x];
            out[y * p->width + x] = (float)sum;
        }
}

SPIPE_PRIV_LOCAL void spipe_blur_across_cpu(unsigned char *out, const float *in,
                                            const spipe_blur_t *p, size_t rows) {
    const spipe_priv_weights_t weights = spipe_priv_gaussian(p->radius, p->sigma);
    const size_t radius = (size_t)p->radius;
    for (size_t y = 0; y < rows; y++)
        for (size_t x = 0; x < p->width; x++) {
            double sum = 0.0;
            for (size_t k = 0; k <= 2 * radius; k++)
                sum += (double)weights.w[k + SPIPE_BLUR_MAX_RADIUS - radius] *
                       in[y * p->width + spipe_priv_clamp_cpu(x, k, radius, p->width)];
            out[y * p->width + x] = spipe_priv_to_u8_cpu((float)sum);
        }
}

/* ============================================================================================
   >>bytes
   ============================================================================================ */

/*  Settings of the four byte stages below. An element is one block of `block_bytes` bytes, of which
    the first `valid` are used (the last block of a file may be shorter):
    in          buffer; element: one block of block_bytes bytes
    valid       buffer; element: one uint32_t, the number of bytes of this block to use (more than
                block_bytes means block_bytes); -1: no buffer, all bytes are used
    counts      buffer; element: 256 uint32_t, how often each byte value occurs in the block
    entropy     buffer; element: one float, the Shannon entropy in bits per byte, 0..8; exactly 0
                for an empty block and for a block of equal bytes
    total       resident buffer of 256 unsigned long long, zeroed before the run: how often each
                value occurs in all blocks; -1: no buffer, not computed
    block_bytes 1 .. 2^32 - 1; fastest where every block begins at a multiple of 16 bytes.

    spipe_histogram_stage        in, valid -> counts (and total)
    spipe_total_histogram_stage  in, valid -> total
    spipe_entropy_stage          counts -> entropy
    spipe_byte_entropy_stage     in, valid -> entropy (and total), in one pass and without counts

    Order       any, also concurrently: total is updated with atomics.
    Exact       counts and total yes; entropy differs by at most 1e-5 from the twin, which computes
                in double.
    Speed       independent of the data. histogram divides a block of more than 32 KiB among several
                warps, byte_entropy gives each block to one warp. So where blocks are that large and
                a chunk has fewer than a few thousand of them, use histogram and entropy.        */
typedef struct spipe_bytes {
    int in, valid, counts, entropy, total;
    size_t block_bytes;
} spipe_bytes_t;

/* Entries of the table in which each warp counts on its own. Equal bytes within a warp are common
   in pictures and text; the hardware combines their shared-memory atomics. */
#define SPIPE_PRIV_TABLE 256u

/* The index of this warp in the grid. */
SPIPE_PRIV_ON_DEVICE size_t spipe_priv_warp(void) {
    return ((size_t)blockIdx.x * SPIPE_PRIV_THREADS + threadIdx.x) / SPIPE_PRIV_WARP;
}

/* The number of warps in the grid. */
SPIPE_PRIV_ON_DEVICE size_t spipe_priv_warps(void) { return (size_t)gridDim.x * SPIPE_PRIV_WARPS; }

/* Counts the four bytes of a word. Byte offsets take one instruction less than indices. */
SPIPE_PRIV_ON_DEVICE void spipe_priv_count_word(unsigned *table, unsigned word) {
    unsigned char *base = reinterpret_cast<unsigned char *>(table);
    atomicAdd(reinterpret_cast<unsigned *>(base + (word << 2 & 0x3fcu)), 1u);
    atomicAdd(reinterpret_cast<unsigned *>(base + (word >> 6 & 0x3fcu)), 1u);
    atomicAdd(reinterpret_cast<unsigned *>(base + (word >> 14 & 0x3fcu)), 1u);
    atomicAdd(reinterpret_cast<unsigned *>(base + (word >> 22 & 0x3fcu)), 1u);
}

/* One warp counts the bytes of a span: in 16-byte vectors aligned to 16, and at either end fewer
   than 16 single bytes, one per lane. */
SPIPE_PRIV_ON_DEVICE void spipe_priv_count_bytes(unsigned *table, const unsigned char *span,
                                                 size_t bytes, unsigned lane) {
    enum {
        TOGETHER = 4 /* loads in flight */
    };

    const size_t lead = (uintptr_t)span % 16; /* bytes from the aligned base to the span */
    const size_t end = lead + bytes;
    const size_t first = lead > 0 ? 1 : 0; /* whole vectors: first .. last - 1 */
    const size_t last = end / 16;
    const unsigned char *base = span - lead;
    const uint4 *vectors = reinterpret_cast<const uint4 *>(base);
    for (size_t at = first + lane; at < last; at += TOGETHER * SPIPE_PRIV_WARP) {
        uint4 x[TOGETHER];
        SPIPE_PRIV_UNROLL
        for (unsigned k = 0; k < TOGETHER; k++)
            if (at + SPIPE_PRIV_WARP * k < last) x[k] = vectors[at + SPIPE_PRIV_WARP * k];
        SPIPE_PRIV_UNROLL
        for (unsigned k = 0; k < TOGETHER; k++) {
            if (at + SPIPE_PRIV_WARP * k >= last) break;
            spipe_priv_count_word(table, x[k].x);
            spipe_priv_count_word(table, x[k].y);
            spipe_priv_count_word(table, x[k].z);
            spipe_priv_count_word(table, x[k].w);
        }
    }
    if ((lead > 0 || last == 0) && lane >= lead && lane < 16 && lane < end)
        atomicAdd(&table[base[lane]], 1u);
    if (last > 0 && lane < end % 16) atomicAdd(&table[base[16 * last + lane]], 1u);
}

/* One warp counts a span: n[k] becomes the number of bytes of value lane + 32 k. The warp's table
   is all zero before and after. */
SPIPE_PRIV_ON_DEVICE void spipe_priv_count_span(unsigned *n, unsigned *table,
                                                const unsigned char *span, size_t bytes,
                                                unsigned lane) {
    spipe_priv_count_bytes(table, span, bytes, lane);
    __syncwarp();
    for (unsigned k = 0; k < 8; k++) {
        n[k] = table[lane + SPIPE_PRIV_WARP * k];
        table[lane + SPIPE_PRIV_WARP * k] = 0;
    }
    __syncwarp();
}

/* Zeroes this warp's table and returns it. */
SPIPE_PRIV_ON_DEVICE unsigned *spipe_priv_clear_table(unsigned *tables) {
    unsigned *table = tables + threadIdx.x / SPIPE_PRIV_WARP * SPIPE_PRIV_TABLE;
    for (unsigned k = threadIdx.x % SPIPE_PRIV_WARP; k < SPIPE_PRIV_TABLE; k += SPIPE_PRIV_WARP)
        table[k] = 0;
    __syncwarp();
    return table;
}

/* Adds a warp's sums to the total of all blocks, if there is one. */
SPIPE_PRIV_ON_DEVICE void spipe_priv_add_total(unsigned long long *total,
                                               const unsigned long long *sum, unsigned lane) {
    for (unsigned k = 0; k < 8; k++)
        if (total != NULL && sum[k] > 0) atomicAdd(&total[lane + SPIPE_PRIV_WARP * k], sum[k]);
}

/* The number of bytes to use of block i. */
SPIPE_PRIV_ON_DEVICE size_t spipe_priv_valid_bytes(const uint32_t *valid, size_t i,
                                                   size_t block_bytes) {
    return valid == NULL || valid[i] > block_bytes ? block_bytes : valid[i];
}

/* Each warp counts one part of `part_bytes` of a block at a time, so that a few large blocks still
   fill the GPU. Where a block is one part its counts are stored; otherwise they are added to counts
   that the stage has zeroed. */
static __global__ void __launch_bounds__(SPIPE_PRIV_THREADS, 4)
    spipe_histogram_kernel(uint32_t *counts, unsigned long long *total, const unsigned char *in,
                           const uint32_t *valid, size_t block_bytes, size_t part_bytes,
                           size_t count) {
    __shared__ unsigned tables[SPIPE_PRIV_TABLE * SPIPE_PRIV_WARPS];
    const unsigned lane = threadIdx.x % SPIPE_PRIV_WARP;
    const size_t parts = (block_bytes + part_bytes - 1) / part_bytes;
    unsigned *table = spipe_priv_clear_table(tables);
    unsigned long long sum[8] = {};
    for (size_t k = spipe_priv_warp(); k < count * parts; k += spipe_priv_warps()) {
        const size_t i = parts == 1 ? k : k / parts;
        const size_t begin = (k - i * parts) * part_bytes;
        const size_t bytes = spipe_priv_valid_bytes(valid, i, block_bytes);
        const size_t left = bytes > begin ? bytes - begin : 0;
        unsigned n[8];
        spipe_priv_count_span(n, table, in + i * block_bytes + begin,
                              left < part_bytes ? left : part_bytes, lane);
        for (unsigned v = 0; v < 8; v++) {
            const size_t at = 256 * i + lane + SPIPE_PRIV_WARP * v;
            sum[v] += n[v];
            if (counts != NULL && parts == 1) counts[at] = n[v];
            if (counts != NULL && parts > 1 && n[v] > 0) atomicAdd(&counts[at], n[v]);
        }
    }
    spipe_priv_add_total(total, sum, lane);
}

SPIPE_PRIV_LOCAL bool spipe_priv_bytes_valid(const spipe_bytes_t *p) {
    return p->block_bytes > 0 && p->block_bytes <= UINT32_MAX;
}

SPIPE_PRIV_LOCAL cudaError_t spipe_priv_histogram(const spipe_chunk_t *chunk,
                                                  const spipe_bytes_t *p, uint32_t *counts) {
    const size_t part_bytes = (size_t)1 << 15;
    const size_t parts = (p->block_bytes + part_bytes - 1) / part_bytes;
    if (chunk->count == 0) return cudaSuccess;
    if (counts != NULL && parts > 1)
        SPIPE_TRY(cudaMemsetAsync(counts, 0, chunk->count * 256 * sizeof *counts, chunk->stream));
    unsigned long long *total = NULL;
    const uint32_t *valid = NULL;
    if (p->total >= 0) total = SPIPE_BUF(chunk, p->total, unsigned long long);
    if (p->valid >= 0) valid = SPIPE_BUF(chunk, p->valid, const uint32_t);
    return SPIPE_LAUNCH(spipe_histogram_kernel,
                        spipe_priv_few_blocks(spipe_blocks(chunk->count * parts, SPIPE_PRIV_WARPS)),
                        SPIPE_PRIV_THREADS, 0, chunk, counts, total,
                        SPIPE_BUF_ROW(chunk, p->in, const unsigned char, p->block_bytes), valid,
                        p->block_bytes, parts > 1 ? part_bytes : p->block_bytes, chunk->count);
}

SPIPE_PRIV_LOCAL cudaError_t spipe_histogram_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_bytes_t *p = (const spipe_bytes_t *)user;
    if (!spipe_priv_bytes_valid(p)) return cudaErrorInvalidValue;
    return spipe_priv_histogram(chunk, p, SPIPE_BUF_ROW(chunk, p->counts, uint32_t, 256));
}

SPIPE_PRIV_LOCAL cudaError_t spipe_total_histogram_stage(const spipe_chunk_t *chunk, void *user) {
    spipe_bytes_t p = *(const spipe_bytes_t *)user;
    spipe_chunk_t all = *chunk;
    if (p.total < 0 || !spipe_priv_bytes_valid(&p)) return cudaErrorInvalidValue;
    /* If all bytes are used, borders between blocks do not matter: the chunk is one large block. */
    if (p.valid < 0 && chunk->count > 0) {
        p.block_bytes *= chunk->count;
        if (p.in >= 0 && p.in < all.num_buffers) all.elem_bytes[p.in] *= chunk->count;
        all.count = 1;
    }
    return spipe_priv_histogram(&all, &p, NULL);
}

/* One value's share of the entropy, -p log2(p). Where all bytes are equal it is exactly 0, which
   the approximate logarithm would not give. */
SPIPE_PRIV_ON_DEVICE float spipe_priv_surprise(unsigned n, unsigned all, float one_of_all) {
    const float p = (float)n * one_of_all;
    return n == 0 || n == all ? 0.0f : -p * spipe_priv_log2(p);
}

/* Eight lanes read the 256 counts of one block: a warp then has 4 KiB in flight, and a sum takes 3
   shuffles. */
static __global__ void spipe_entropy_kernel(float *entropy, const uint32_t *counts, size_t count) {
    typedef spipe_priv_pack_t<uint32_t> pack_t;

    enum {
        LANES = 8,
        PACKS = 256 / 4 / LANES
    };

    const unsigned lane = threadIdx.x % LANES;
    const bool wide = spipe_priv_aligned(counts);
    size_t i = ((size_t)blockIdx.x * SPIPE_PRIV_THREADS + threadIdx.x) / LANES;
    if (i - i % 4 >= count) return; /* the whole warp returns, so shuffles stay complete */
    const uint32_t *row = counts + 256 * (i < count ? i : count - 1);
    pack_t n[PACKS];
    unsigned all = 0;
    float bits = 0.0f;
    if (wide)
        for (unsigned k = 0; k < PACKS; k++)
            n[k] = reinterpret_cast<const pack_t *>(row)[LANES * k + lane];
    else
        for (unsigned k = 0; k < 4 * PACKS; k++) n[k / 4].v[k % 4] = row[LANES * k + lane];
    for (unsigned k = 0; k < 4 * PACKS; k++) all += n[k / 4].v[k % 4];
    for (int d = LANES / 2; d > 0; d /= 2) all += __shfl_xor_sync(SPIPE_PRIV_ALL_LANES, all, d);
    const float one_of_all = 1.0f / (float)all;
    for (unsigned k = 0; k < 4 * PACKS; k++)
        bits += spipe_priv_surprise(n[k / 4].v[k % 4], all, one_of_all);
    for (int d = LANES / 2; d > 0; d /= 2) bits += __shfl_xor_sync(SPIPE_PRIV_ALL_LANES, bits, d);
    if (lane == 0 && i < count) entropy[i] = bits;
}

SPIPE_PRIV_LOCAL cudaError_t spipe_entropy_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_bytes_t *p = (const spipe_bytes_t *)user;
    if (chunk->count == 0) return cudaSuccess;
    return SPIPE_LAUNCH(spipe_entropy_kernel, spipe_blocks(chunk->count, SPIPE_PRIV_THREADS / 8),
                        SPIPE_PRIV_THREADS, 0, chunk, SPIPE_BUF(chunk, p->entropy, float),
                        SPIPE_BUF_ROW(chunk, p->counts, const uint32_t, 256), chunk->count);
}

static __global__ void __launch_bounds__(SPIPE_PRIV_THREADS, 4)
    spipe_byte_entropy_kernel(float *entropy, unsigned long long *total, const unsigned char *in,
                              const uint32_t *valid, size_t block_bytes, size_t count) {
    __shared__ unsigned tables[SPIPE_PRIV_TABLE * SPIPE_PRIV_WARPS];
    const unsigned lane = threadIdx.x % SPIPE_PRIV_WARP;
    unsigned *table = spipe_priv_clear_table(tables);
    unsigned long long sum[8] = {};
    for (size_t i = spipe_priv_warp(); i < count; i += spipe_priv_warps()) {
        const size_t bytes = spipe_priv_valid_bytes(valid, i, block_bytes);
        const float one_of_all = 1.0f / (float)bytes;
        unsigned n[8];
        float bits = 0.0f;
        spipe_priv_count_span(n, table, in + i * block_bytes, bytes, lane);
        for (unsigned k = 0; k < 8; k++) {
            sum[k] += n[k];
            bits += spipe_priv_surprise(n[k], (unsigned)bytes, one_of_all);
        }
        bits = spipe_priv_warp_sum(bits);
        if (lane == 0) entropy[i] = bits;
    }
    spipe_priv_add_total(total, sum, lane);
}

SPIPE_PRIV_LOCAL cudaError_t spipe_byte_entropy_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_bytes_t *p = (const spipe_bytes_t *)user;
    if (!spipe_priv_bytes_valid(p)) return cudaErrorInvalidValue;
    if (chunk->count == 0) return cudaSuccess;
    unsigned long long *total = NULL;
    const uint32_t *valid = NULL;
    if (p->total >= 0) total = SPIPE_BUF(chunk, p->total, unsigned long long);
    if (p->valid >= 0) valid = SPIPE_BUF(chunk, p->valid, const uint32_t);
    return SPIPE_LAUNCH(spipe_byte_entropy_kernel,
                        spipe_priv_few_blocks(spipe_blocks(chunk->count, SPIPE_PRIV_WARPS)),
                        SPIPE_PRIV_THREADS, 0, chunk, SPIPE_BUF(chunk, p->entropy, float), total,
                        SPIPE_BUF_ROW(chunk, p->in, const unsigned char, p->block_bytes), valid,
                        p->block_bytes, chunk->count);
}

/* The twins; valid may be NULL, then all bytes are used. */
SPIPE_PRIV_LOCAL void spipe_histogram_cpu(uint32_t *counts, const unsigned char *in,
                                          const uint32_t *valid, size_t block_bytes, size_t count) {
    for (size_t i = 0; i < 256 * count; i++) counts[i] = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < block_bytes && (valid == NULL || k < valid[i]); k++)
            counts[256 * i + in[i * block_bytes + k]]++;
}

SPIPE_PRIV_LOCAL void spipe_total_histogram_cpu(unsigned long long *total, const unsigned char *in,
                                                const uint32_t *valid, size_t block_bytes,
                                                size_t count) {
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < block_bytes && (valid == NULL || k < valid[i]); k++)
            total[in[i * block_bytes + k]]++;
}

SPIPE_PRIV_LOCAL void spipe_entropy_cpu(float *entropy, const uint32_t *counts, size_t count) {
    for (size_t i = 0; i < count; i++) {
        double all = 0.0, bits = 0.0;
        for (size_t v = 0; v < 256; v++) all += counts[256 * i + v];
        for (size_t v = 0; v < 256; v++) {
            const double p = counts[256 * i + v] / all;
            if (p > 0.0) bits -= p * log2(p);
        }
        entropy[i] = (float)fabs(bits);
    }
}

SPIPE_PRIV_LOCAL void spipe_byte_entropy_cpu(float *entropy, const unsigned char *in,
                                             const uint32_t *valid, size_t block_bytes,
                                             size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint32_t counts[256];
        spipe_histogram_cpu(counts, in + i * block_bytes, valid ? valid + i : NULL, block_bytes, 1);
        spipe_entropy_cpu(entropy + i, counts, 1);
    }
}

/*  spipe_quantise_stage -- maps lo .. hi to 0 .. 255, rounded to the nearest (ties to even);
    values outside are clamped, NaN gives 0.
    in          buffer; element: one float
    out         buffer; element: one byte. Moves 5 bytes per element.
    lo, hi      in the unit of the values; must differ                                           */
typedef struct spipe_quantise {
    int in, out;
    float lo, hi;
} spipe_quantise_t;

/* The factor (.x) and the summand (.y) that map lo .. hi to 0 .. 255. */
SPIPE_PRIV_LOCAL float2 spipe_priv_quantise_line(float lo, float hi) {
    const double scale = 255.0 / ((double)hi - lo);
    return make_float2((float)scale, (float)(-lo * scale));
}

static __global__ void spipe_quantise_kernel(unsigned char *out, const float *in, float2 line,
                                             size_t count) {
    spipe_priv_map(out, in, count,
                   [=](float x) { return spipe_priv_to_u8(fmaf(x, line.x, line.y)); });
}

SPIPE_PRIV_LOCAL cudaError_t spipe_quantise_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_quantise_t *p = (const spipe_quantise_t *)user;
    if (p->lo == p->hi) return cudaErrorInvalidValue;
    return spipe_priv_launch_spread(
        chunk, chunk->count, spipe_quantise_kernel, SPIPE_BUF(chunk, p->out, unsigned char),
        SPIPE_BUF(chunk, p->in, const float), spipe_priv_quantise_line(p->lo, p->hi), chunk->count);
}

SPIPE_PRIV_LOCAL void spipe_quantise_cpu(unsigned char *out, const float *in, float lo, float hi,
                                         size_t count) {
    const float2 line = spipe_priv_quantise_line(lo, hi);
    for (size_t i = 0; i < count; i++) out[i] = spipe_priv_to_u8_cpu(fmaf(in[i], line.x, line.y));
}

/* ============================================================================================
   >>running
   ============================================================================================ */

/* The result of spipe_reduce_stage so far; begin with the value of spipe_summary_init(). */
typedef struct spipe_summary {
    double sum;
    unsigned long long count;
    float min, max; /* +infinity and -infinity while there is no element */
} spipe_summary_t;

/*  spipe_summary_init -- the summary of no elements, which the resident buffer must hold before the
    run. */
SPIPE_PRIV_LOCAL spipe_summary_t spipe_summary_init(void) {
    spipe_summary_t s;
    s.sum = 0.0;
    s.count = 0;
    s.min = HUGE_VALF;
    s.max = -HUGE_VALF;
    return s;
}

/*  spipe_reduce_stage -- adds a chunk's sum, minimum, maximum and count to a summary.
    in          buffer; element: one float. Reads 4 bytes per element.
    summary     resident buffer of one spipe_summary_t, spipe_summary_init() before the run
    Order       any, also concurrently: the summary is updated with atomics only.
    Exact       min, max and count yes. The sum is added up in double, in an order that changes from
                run to run: it differs by at most 1e-6 times the sum of absolute values.         */
typedef struct spipe_reduce {
    int in, summary;
} spipe_reduce_t;

/* Atomic minimum (`less`) or maximum of a float; CUDA has none. Most calls only read, because x is
   not better than the value in memory. */
SPIPE_PRIV_ON_DEVICE void spipe_priv_atomic_best(float *at, float x, bool less) {
    unsigned *bits = reinterpret_cast<unsigned *>(at);
    unsigned seen = atomicAdd(bits, 0u);
    while (less ? x < __uint_as_float(seen) : x > __uint_as_float(seen)) {
        const unsigned before = atomicCAS(bits, seen, __float_as_uint(x));
        if (before == seen) return;
        seen = before;
    }
}

/* Combines the summaries of a block's threads and adds the result to *out. */
SPIPE_PRIV_ON_DEVICE void spipe_priv_summarise(spipe_summary_t *out, spipe_summary_t *warp_sums,
                                               spipe_summary_t s) {
    s.sum = spipe_priv_warp_sum(s.sum);
    for (int d = 16; d > 0; d /= 2) {
        s.min = fminf(s.min, __shfl_xor_sync(SPIPE_PRIV_ALL_LANES, s.min, d));
        s.max = fmaxf(s.max, __shfl_xor_sync(SPIPE_PRIV_ALL_LANES, s.max, d));
    }
    if (threadIdx.x % SPIPE_PRIV_WARP == 0) warp_sums[threadIdx.x / SPIPE_PRIV_WARP] = s;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (unsigned w = 1; w < SPIPE_PRIV_WARPS; w++) {
        s.sum += warp_sums[w].sum;
        s.min = fminf(s.min, warp_sums[w].min);
        s.max = fmaxf(s.max, warp_sums[w].max);
    }
    atomicAdd(&out->sum, s.sum);
    spipe_priv_atomic_best(&out->min, s.min, true);
    spipe_priv_atomic_best(&out->max, s.max, false);
}

static __global__ void spipe_reduce_kernel(spipe_summary_t *out, const float *in, size_t count) {
    typedef spipe_priv_pack_t<float> pack_t;
    __shared__ spipe_summary_t warp_sums[SPIPE_PRIV_WARPS];
    const spipe_priv_split_t s = spipe_priv_split(in, in, in, count);
    const pack_t *packs = reinterpret_cast<const pack_t *>(in + s.head);
    spipe_summary_t mine = {0.0, 0, HUGE_VALF, -HUGE_VALF};
    spipe_priv_spread(
        s.packs, [=](size_t i) { return packs[i]; },
        [&](size_t, const pack_t &x) {
            mine.sum += (x.v[0] + x.v[1]) + (x.v[2] + x.v[3]);
            mine.min = fminf(mine.min, fminf(fminf(x.v[0], x.v[1]), fminf(x.v[2], x.v[3])));
            mine.max = fmaxf(mine.max, fmaxf(fmaxf(x.v[0], x.v[1]), fmaxf(x.v[2], x.v[3])));
        });
    spipe_priv_spread(
        s.rest, [=](size_t i) { return in[spipe_priv_single(s, i)]; },
        [&](size_t, float x) {
            mine.sum += x;
            mine.min = fminf(mine.min, x);
            mine.max = fmaxf(mine.max, x);
        });
    spipe_priv_summarise(out, warp_sums, mine);
    if (blockIdx.x == 0 && threadIdx.x == 0) atomicAdd(&out->count, (unsigned long long)count);
}

SPIPE_PRIV_LOCAL cudaError_t spipe_reduce_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_reduce_t *p = (const spipe_reduce_t *)user;
    if (chunk->count == 0) return cudaSuccess;
    return SPIPE_LAUNCH(spipe_reduce_kernel,
                        spipe_priv_few_blocks(spipe_priv_spread_blocks(chunk->count)),
                        SPIPE_PRIV_THREADS, 0, chunk, SPIPE_BUF(chunk, p->summary, spipe_summary_t),
                        SPIPE_BUF(chunk, p->in, const float), chunk->count);
}

SPIPE_PRIV_LOCAL void spipe_reduce_cpu(spipe_summary_t *summary, const float *in, size_t count) {
    for (size_t i = 0; i < count; i++) {
        summary->sum += (double)in[i];
        if (in[i] < summary->min) summary->min = in[i];
        if (in[i] > summary->max) summary->max = in[i];
        summary->count++;
    }
}

/*  spipe_scan_f32_stage, spipe_scan_u32_stage, spipe_scan_u64_stage -- inclusive prefix sums that
    continue from chunk to chunk: out[i] = in[0] + ... + in[i], where in[0] is the run's first
    element.
    in, out     buffers, may be the same; element: one float, uint32_t or uint64_t
    state       resident buffer of one spipe_scan_state_t (512 KiB), zeroed before the run; its
                `carry` is the sum so far: a double, a uint32_t or a uint64_t in 8 bytes
    Order       ordered: mark the stage as such, because each chunk continues the one before it.
    Exact       integers yes (they wrap around). Floats differ by at most 1e-6 times the sum of
                absolute values so far, and their last bits may change from run to run.          */
typedef struct spipe_scan {
    int in, out, state;
} spipe_scan_t;

#define SPIPE_SCAN_MAX_TILES 32768

/* A launch divides its elements into tiles, one per thread block. `sum` holds each tile's own sum
   and later the sum of everything up to the tile's end. A sum is stored as two words, each with 32
   bits of the sum and a 32-bit tag that names the launch and which of the two sums it is. A word is
   written at once, so sum and tag arrive together, and nothing has to be cleared between
   launches. */
typedef struct spipe_scan_state {
    unsigned long long carry;
    unsigned long long begun; /* launches << 32 | tiles of this launch that have begun */
    unsigned long long sum[SPIPE_SCAN_MAX_TILES][2];
} spipe_scan_state_t;

/* The type in which sums of T are exchanged between warps and tiles, and its 8 bytes in memory. */
template <typename T>
struct spipe_priv_sum_t {
    typedef unsigned long long type;

    SPIPE_PRIV_ON_DEVICE unsigned long long pack(type x) { return (T)x; }

    SPIPE_PRIV_ON_DEVICE type unpack(unsigned long long x) { return x; }
};

template <>
struct spipe_priv_sum_t<float> {
    typedef double type;

    SPIPE_PRIV_ON_DEVICE unsigned long long pack(double x) {
        return (unsigned long long)__double_as_longlong(x);
    }

    SPIPE_PRIV_ON_DEVICE double unpack(unsigned long long x) {
        return __longlong_as_double((long long)x);
    }
};

/* Writes a tile's sum. An even `tag` marks the tile's own sum; the odd number after it marks the
   sum up to the tile's end. */
SPIPE_PRIV_ON_DEVICE void spipe_priv_scan_publish(spipe_scan_state_t *state, size_t tile,
                                                  unsigned tag, unsigned long long sum) {
    volatile unsigned long long *half = state->sum[tile];
    half[0] = (unsigned long long)tag << 32 | (sum & 0xffffffffu);
    half[1] = (unsigned long long)tag << 32 | sum >> 32;
}

/* The sum of everything before this tile ("decoupled look-back": Merrill and Garland 2016). One
   warp reads the sums of 128 earlier tiles at a time, nearest first, and adds up tiles' own sums
   until it meets a tile that has its sum up to the end. Waiting for a tile cannot deadlock: tiles
   are numbered in the order in which their blocks start, so every earlier tile is running or
   done. */
template <typename T>
SPIPE_PRIV_ON_DEVICE typename spipe_priv_sum_t<T>::type
spipe_priv_scan_look_back(const spipe_scan_state_t *state, size_t tile, unsigned tag,
                          unsigned lane) {
    typedef spipe_priv_sum_t<T> io;

    enum {
        DEEP = 4 /* tiles per lane */
    };

    typename io::type before = 0;
    if (tile == 0) return io::unpack(state->carry);
    for (size_t end = tile;;) {
        unsigned long long low[DEEP], high[DEEP];
        for (unsigned k = 0; k < DEEP; k++) {
            const size_t back = SPIPE_PRIV_WARP * k + lane;
            const volatile unsigned long long *half = state->sum[end > back ? end - 1 - back : 0];
            low[k] = half[0];
            high[k] = half[1];
        }
        typename io::type sum = 0;
        unsigned missing = 0;
        /* `ends` are the lanes whose tile has its sum up to the end, `wanted` those up to the
           nearest of them: the tiles beyond it are already part of its sum. */
        SPIPE_PRIV_UNROLL
        for (unsigned k = 0; k < DEEP; k++) {
            const bool there = low[k] >> 33 == tag / 2 && low[k] >> 32 == high[k] >> 32;
            const unsigned ends =
                __ballot_sync(SPIPE_PRIV_ALL_LANES, there && (low[k] >> 32 & 1) != 0);
            const unsigned wanted = ends ? ends ^ (ends - 1) : SPIPE_PRIV_ALL_LANES;
            missing = wanted & ~__ballot_sync(SPIPE_PRIV_ALL_LANES, there);
            if (missing != 0) break;
            if (wanted >> lane & 1) sum += io::unpack(high[k] << 32 | (low[k] & 0xffffffffu));
            if (ends != 0) return spipe_priv_warp_sum(before + sum);
        }
        if (missing != 0) continue; /* a sum is not there yet: read the same tiles again */
        before += sum;
        end -= DEEP * SPIPE_PRIV_WARP;
    }
}

/* 16 bytes of elements. */
template <typename T>
struct alignas(16) spipe_priv_vector_t {
    enum {
        N = 16 / sizeof(T)
    };

    T v[N];
};

enum {
    SPIPE_PRIV_SCAN_ROWS = 16,                  /* vectors of 16 bytes per thread */
    SPIPE_PRIV_SCANNERS = SPIPE_PRIV_WARPS - 1, /* warps that scan; one more looks back */
    SPIPE_PRIV_SCAN_AHEAD = 64                  /* tiles from a load to its prefetch into L2 */
};

/* Elements of a row (one vector per lane), of a warp's part, and of a tile. */

template <typename T>
struct spipe_priv_tile_t {
    enum {
        ROW = 16 / sizeof(T) * SPIPE_PRIV_WARP
    };

    enum {
        WARP = ROW * (int)SPIPE_PRIV_SCAN_ROWS
    };

    enum {
        TILE = WARP * (int)SPIPE_PRIV_SCANNERS
    }; /* elements */
};

/* The index of a vector's sum in shared memory: each lane reads SCAN_ROWS consecutive sums, and the
   padding after every SCAN_ROWS of them avoids bank conflicts. */
SPIPE_PRIV_ON_DEVICE unsigned spipe_priv_scan_place(unsigned vector) {
    return vector + vector / SPIPE_PRIV_SCAN_ROWS;
}

/* Prefetches a warp's part of the tile that is SCAN_AHEAD tiles further on into L2. */
template <typename T>
SPIPE_PRIV_ON_DEVICE void spipe_priv_scan_prefetch(const T *in, size_t left) {
#ifdef __CUDA_ARCH__
    const size_t tile = spipe_priv_tile_t<T>::TILE;
    if (left <= (SPIPE_PRIV_SCAN_AHEAD + 1) * tile) return;
    const char *p = reinterpret_cast<const char *>(in + SPIPE_PRIV_SCAN_AHEAD * tile) +
                    128 * (threadIdx.x % 32);
    for (int k = 0; k < SPIPE_PRIV_SCAN_ROWS * 512; k += 4096)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(p + k));
#else
    (void)in;
    (void)left;
#endif
}

/* Loads a warp's part of a tile, which begins at `in`. In each row the lanes hold consecutive
   vectors, so that the loads are coalesced. Elements past `left` are 0. */
template <typename T>
SPIPE_PRIV_ON_DEVICE void spipe_priv_scan_load(spipe_priv_vector_t<T> *x, const T *in, size_t left,
                                               bool wide) {
    enum {
        N = spipe_priv_vector_t<T>::N,
        ROW = spipe_priv_tile_t<T>::ROW
    };

    const size_t from = N * (threadIdx.x % SPIPE_PRIV_WARP);
    if (wide) { /* one branch around all loads, so that all are in flight at the same time */
        for (size_t r = 0; r < SPIPE_PRIV_SCAN_ROWS; r++)
            x[r] = *reinterpret_cast<const spipe_priv_vector_t<T> *>(in + from + ROW * r);
        spipe_priv_scan_prefetch(in, left);
        return;
    }
    for (size_t k = 0; k < N * (size_t)SPIPE_PRIV_SCAN_ROWS; k++) {
        const size_t at = from + ROW * (k / N) + k % N;
        x[k / N].v[k % N] = at < left ? in[at] : (T)0;
    }
}

/* Stores a warp's part of a tile. To each vector it adds the sum of the vectors before it
   (`before`) and of everything before the warp's part (`base`). */
template <typename T>
SPIPE_PRIV_ON_DEVICE void spipe_priv_scan_store(T *out, const spipe_priv_vector_t<T> *x,
                                                const T *before, T base, size_t left, bool wide) {
    enum {
        N = spipe_priv_vector_t<T>::N,
        ROW = spipe_priv_tile_t<T>::ROW
    };

    const unsigned lane = threadIdx.x % SPIPE_PRIV_WARP;
    const size_t from = N * lane;
    for (size_t r = 0; r < SPIPE_PRIV_SCAN_ROWS; r++) {
        const T sum = base + before[spipe_priv_scan_place(SPIPE_PRIV_WARP * (unsigned)r + lane)];
        spipe_priv_vector_t<T> y;
        for (size_t k = 0; k < N; k++) {
            y.v[k] = x[r].v[k] + sum;
            if (!wide && from + ROW * r + k < left) out[from + ROW * r + k] = y.v[k];
        }
        if (wide) *reinterpret_cast<spipe_priv_vector_t<T> *>(out + from + ROW * r) = y;
    }
}

/* Makes inclusive sums within each of a warp's vectors; `before` becomes the sum of the vectors
   before each one. Returns the sum of all of them. */
template <typename T>
SPIPE_PRIV_ON_DEVICE T spipe_priv_scan_warp(spipe_priv_vector_t<T> *x, T *before, unsigned lane) {
    enum {
        N = spipe_priv_vector_t<T>::N,
        ROWS = SPIPE_PRIV_SCAN_ROWS
    };

    for (unsigned r = 0; r < ROWS; r++) {
        for (int k = 1; k < N; k++) x[r].v[k] += x[r].v[k - 1];
        before[spipe_priv_scan_place(SPIPE_PRIV_WARP * r + lane)] = x[r].v[N - 1];
    }
    __syncwarp();
    T *mine = before + spipe_priv_scan_place(ROWS * lane);
    T own = 0;
    for (unsigned k = 0; k < ROWS; k++) own += mine[k];
    T up_to = own;
    for (unsigned d = 1; d < SPIPE_PRIV_WARP; d *= 2) {
        const T left = __shfl_up_sync(SPIPE_PRIV_ALL_LANES, up_to, d);
        if (lane >= d) up_to += left;
    }
    T sum = __shfl_up_sync(SPIPE_PRIV_ALL_LANES, up_to, 1);
    if (lane == 0) sum = 0;
    for (unsigned k = 0; k < ROWS; k++) {
        const T next = sum + mine[k];
        mine[k] = sum;
        sum = next;
    }
    __syncwarp();
    return __shfl_sync(SPIPE_PRIV_ALL_LANES, up_to, SPIPE_PRIV_WARP - 1);
}

template <typename T>
struct spipe_priv_scan_shared_t {
    T before[SPIPE_PRIV_SCANNERS][SPIPE_PRIV_WARP * (SPIPE_PRIV_SCAN_ROWS + 1)];
    unsigned long long begun;
    typename spipe_priv_sum_t<T>::type warp_sum[SPIPE_PRIV_SCANNERS];
    typename spipe_priv_sum_t<T>::type tile_sum;
    typename spipe_priv_sum_t<T>::type before_tile;
    unsigned warps_added; /* warps whose sum is in tile_sum */
};

/* The sum of the first `warps` warps of a tile. */
template <typename T>
SPIPE_PRIV_ON_DEVICE typename spipe_priv_sum_t<T>::type
spipe_priv_scan_up_to(const spipe_priv_scan_shared_t<T> *s, unsigned warps) {
    typename spipe_priv_sum_t<T>::type sum = 0;
    for (unsigned w = 0; w < SPIPE_PRIV_SCANNERS; w++)
        if (w < warps) sum += s->warp_sum[w];
    return sum;
}

/* Adds a warp's sum to the tile's. The last warp to do so publishes the tile's own sum, which later
   tiles can use before this tile's look-back has ended. The first tile does not publish its own
   sum: it alone adds the carry of earlier launches, so later tiles must wait for its sum up to the
   end. */
template <typename T>
SPIPE_PRIV_ON_DEVICE void spipe_priv_scan_add_warp(spipe_priv_scan_shared_t<T> *s,
                                                   spipe_scan_state_t *state, size_t tile,
                                                   unsigned tag, unsigned warp, T sum) {
    typedef spipe_priv_sum_t<T> io;
    s->warp_sum[warp] = sum;
    atomicAdd(&s->tile_sum, (typename io::type)sum);
    __threadfence_block();
    if (atomicAdd(&s->warps_added, 1u) + 1 < SPIPE_PRIV_SCANNERS || tile == 0) return;
    __threadfence_block();
    spipe_priv_scan_publish(state, tile, tag, io::pack(atomicAdd(&s->tile_sum, 0)));
}

/* Publishes the sum up to the tile's end. The last tile also stores it as the carry and resets the
   count of tiles begun for the next launch; all tiles have begun by then. */
template <typename T>
SPIPE_PRIV_ON_DEVICE void spipe_priv_scan_finish(const spipe_priv_scan_shared_t<T> *s,
                                                 spipe_scan_state_t *state, size_t tile,
                                                 unsigned tag) {
    const unsigned long long sum =
        spipe_priv_sum_t<T>::pack(s->before_tile + spipe_priv_scan_up_to(s, SPIPE_PRIV_SCANNERS));
    spipe_priv_scan_publish(state, tile, tag + 1, sum);
    if (tile + 1 < gridDim.x) return;
    state->carry = sum;
    state->begun = (unsigned long long)(tag / 2) << 32;
}

/* One tile per block: seven warps scan their parts of the tile while the eighth looks back for the
   sum of everything before it. */
template <typename T>
static __global__ void __launch_bounds__(SPIPE_PRIV_THREADS, sizeof(T) == 8 ? 2 : 3)
    spipe_scan_kernel(T *out, const T *in, spipe_scan_state_t *state, size_t count) {
    typedef spipe_priv_tile_t<T> tile_t;
    __shared__ spipe_priv_scan_shared_t<T> s;
    const unsigned lane = threadIdx.x % SPIPE_PRIV_WARP;
    const unsigned warp = threadIdx.x / SPIPE_PRIV_WARP;
    if (threadIdx.x == 0) {
        s.begun = atomicAdd(&state->begun, 1ull);
        s.tile_sum = 0;
        s.warps_added = 0;
    }
    __syncthreads();
    const size_t tile = (size_t)(s.begun & 0xffffffffu);
    const unsigned tag = 2 * (unsigned)((s.begun >> 32) + 1);
    const size_t from = tile * tile_t::TILE + warp * tile_t::WARP;
    const size_t left = from < count ? count - from : 0;
    const bool wide = (uintptr_t)in % 16 == 0 && (uintptr_t)out % 16 == 0 && left >= tile_t::WARP;
    spipe_priv_vector_t<T> x[SPIPE_PRIV_SCAN_ROWS];
    if (warp < SPIPE_PRIV_SCANNERS) {
        spipe_priv_scan_load(x, in + from, left, wide);
        const T sum = spipe_priv_scan_warp(x, s.before[warp], lane);
        if (lane == 0) spipe_priv_scan_add_warp(&s, state, tile, tag, warp, sum);
    } else {
        const auto before = spipe_priv_scan_look_back<T>(state, tile, tag, lane);
        if (lane == 0) s.before_tile = before;
    }
    __syncthreads();
    if (threadIdx.x == 0) spipe_priv_scan_finish(&s, state, tile, tag);
    if (warp < SPIPE_PRIV_SCANNERS)
        spipe_priv_scan_store(out + from, x, s.before[warp],
                              (T)(s.before_tile + spipe_priv_scan_up_to(&s, warp)), left, wide);
}

/* Each launch scans as many tiles as the state has entries for, which is up to 1 GiB. */
template <typename T>
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_scan(const spipe_chunk_t *chunk, void *user) {
    const spipe_scan_t *p = (const spipe_scan_t *)user;
    const size_t tile = spipe_priv_tile_t<T>::TILE;
    const size_t most = SPIPE_SCAN_MAX_TILES * tile;
    for (size_t done = 0; done < chunk->count; done += most) {
        const size_t left = chunk->count - done;
        const size_t n = left < most ? left : most;
        SPIPE_TRY(SPIPE_LAUNCH(spipe_scan_kernel<T>, spipe_blocks(n, (unsigned)tile),
                               SPIPE_PRIV_THREADS, 0, chunk, SPIPE_BUF(chunk, p->out, T) + done,
                               SPIPE_BUF(chunk, p->in, const T) + done,
                               SPIPE_BUF(chunk, p->state, spipe_scan_state_t), n));
    }
    return cudaSuccess;
}

SPIPE_PRIV_LOCAL cudaError_t spipe_scan_f32_stage(const spipe_chunk_t *chunk, void *user) {
    return spipe_priv_scan<float>(chunk, user);
}

SPIPE_PRIV_LOCAL cudaError_t spipe_scan_u32_stage(const spipe_chunk_t *chunk, void *user) {
    return spipe_priv_scan<uint32_t>(chunk, user);
}

SPIPE_PRIV_LOCAL cudaError_t spipe_scan_u64_stage(const spipe_chunk_t *chunk, void *user) {
    return spipe_priv_scan<uint64_t>(chunk, user);
}

/* The twins take the sum of everything before the array and return the sum up to its end. */
SPIPE_PRIV_LOCAL double spipe_scan_f32_cpu(float *out, const float *in, double carry,
                                           size_t count) {
    for (size_t i = 0; i < count; i++) {
        carry += (double)in[i];
        out[i] = (float)carry;
    }
    return carry;
}

SPIPE_PRIV_LOCAL uint32_t spipe_scan_u32_cpu(uint32_t *out, const uint32_t *in, uint32_t carry,
                                             size_t count) {
    for (size_t i = 0; i < count; i++) {
        carry += in[i];
        out[i] = carry;
    }
    return carry;
}

SPIPE_PRIV_LOCAL uint64_t spipe_scan_u64_cpu(uint64_t *out, const uint64_t *in, uint64_t carry,
                                             size_t count) {
    for (size_t i = 0; i < count; i++) {
        carry += in[i];
        out[i] = carry;
    }
    return carry;
}

/* ============================================================================================
   >>selection
   ============================================================================================ */

#define SPIPE_NO_INDEX UINT32_MAX /* fills the rest of a list of indices */

/*  spipe_threshold_stage -- the indices of a row's scores that are at least `threshold`. One warp
    works on one row.
    in          buffer; element: one row of `width` floats (NaN is never at least the threshold)
    out         buffer; element: `keep` uint32_t, the first `keep` such indices, counted from 0 in
                ascending order, then SPIPE_NO_INDEX; -1: no buffer, only counts are computed
    counts      buffer; element: one uint32_t, the number of such scores, also beyond `keep`;
                -1: no buffer
    width       1 .. 2^32 - 1
    keep        1 .. width                                                                       */
typedef struct spipe_threshold {
    int in, out, counts;
    size_t width, keep;
    float threshold;
} spipe_threshold_t;

/* One warp writes the indices of one row's scores that reach the threshold, and returns how many
   there are. Each lane reads 8 scores at a time, to have enough loads in flight. Where 32 adjacent
   scores are all too low, nothing more is done for them. */
SPIPE_PRIV_ON_DEVICE uint32_t spipe_priv_compact(uint32_t *out, const float *row, size_t width,
                                                 uint32_t keep, float threshold, unsigned lane) {
    enum {
        EACH = 8 /* scores per lane */
    };

    const unsigned before = (1u << lane) - 1;
    uint32_t found = 0;
    for (size_t base = 0; base < width; base += EACH * SPIPE_PRIV_WARP) {
        const size_t left = width - base;
        float score[EACH];
        if (left >= EACH * SPIPE_PRIV_WARP)
            for (unsigned k = 0; k < EACH; k++) score[k] = row[base + SPIPE_PRIV_WARP * k + lane];
        else
            for (unsigned k = 0; k < EACH; k++) {
                const unsigned at = SPIPE_PRIV_WARP * k + lane; /* NaN never reaches it */
                score[k] = at < left ? row[base + at] : __int_as_float(0x7fffffff);
            }
        for (unsigned k = 0; k < EACH; k++) {
            const bool good = score[k] >= threshold;
            const unsigned all = __ballot_sync(SPIPE_PRIV_ALL_LANES, good);
            if (all == 0) continue;
            const uint32_t place = found + (uint32_t)__popc(all & before);
            if (good && place < keep) /* keep is 0 where there is no `out` */
                out[place] = (uint32_t)(base + SPIPE_PRIV_WARP * k + lane);
            found += (uint32_t)__popc(all);
        }
    }
    return found;
}

static __global__ void spipe_threshold_kernel(uint32_t *out, uint32_t *counts, const float *in,
                                              size_t width, size_t keep, float threshold,
                                              size_t count) {
    const size_t warps = (size_t)gridDim.x * (SPIPE_PRIV_WARPS);
    const unsigned lane = threadIdx.x % SPIPE_PRIV_WARP;
    size_t i = ((size_t)blockIdx.x * SPIPE_PRIV_THREADS + threadIdx.x) / SPIPE_PRIV_WARP;
    for (; i < count; i += warps) {
        uint32_t *places = keep > 0 ? out + i * keep : NULL;
        const uint32_t found =
            spipe_priv_compact(places, in + i * width, width, (uint32_t)keep, threshold, lane);
        for (size_t k = found + lane; k < keep; k += SPIPE_PRIV_WARP) places[k] = SPIPE_NO_INDEX;
        if (counts != NULL && lane == 0) counts[i] = found;
    }
}

SPIPE_PRIV_LOCAL cudaError_t spipe_threshold_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_threshold_t *p = (const spipe_threshold_t *)user;
    if (p->width == 0 || p->width > UINT32_MAX) return cudaErrorInvalidValue;
    if (p->out >= 0 && (p->keep == 0 || p->keep > p->width)) return cudaErrorInvalidValue;
    if (chunk->count == 0) return cudaSuccess;
    uint32_t *out = NULL;
    uint32_t *counts = NULL;
    if (p->out >= 0) out = SPIPE_BUF_ROW(chunk, p->out, uint32_t, p->keep);
    if (p->counts >= 0) counts = SPIPE_BUF(chunk, p->counts, uint32_t);
    return SPIPE_LAUNCH(spipe_threshold_kernel, spipe_blocks(chunk->count, SPIPE_PRIV_WARPS),
                        SPIPE_PRIV_THREADS, 0, chunk, out, counts,
                        SPIPE_BUF_ROW(chunk, p->in, const float, p->width), p->width,
                        out == NULL ? (size_t)0 : p->keep, p->threshold, chunk->count);
}

/* out and counts may be NULL. */
SPIPE_PRIV_LOCAL void spipe_threshold_cpu(uint32_t *out, uint32_t *counts, const float *in,
                                          const spipe_threshold_t *p, size_t rows) {
    for (size_t i = 0; i < rows; i++) {
        uint32_t found = 0;
        for (size_t k = 0; out != NULL && k < p->keep; k++) out[i * p->keep + k] = SPIPE_NO_INDEX;
        for (size_t k = 0; k < p->width; k++) {
            if (!(in[i * p->width + k] >= p->threshold)) continue;
            if (out != NULL && found < p->keep) out[i * p->keep + found] = (uint32_t)k;
            found++;
        }
        if (counts != NULL) counts[i] = found;
    }
}

/*  spipe_topk_stage -- the indices of the k highest scores of a row, the highest first; of equal
    scores the lower index first. One thread block works on one row.
    in          buffer; element: one row of `width` floats
    out         buffer; element: k uint32_t, indices from 0; SPIPE_NO_INDEX after all `width` of
                them
    width       1 .. 2^32 - 1
    k           1 .. SPIPE_TOPK_MAX                                                              */
typedef struct spipe_topk {
    int in, out;
    size_t width;
    unsigned k;
} spipe_topk_t;

#define SPIPE_TOPK_MAX 256u

/* A score and its index as one 64-bit key: a higher score has a greater key, and of equal scores
   the lower index. No two keys of a row are equal. */
SPIPE_PRIV_ON_DEVICE unsigned long long spipe_priv_topk_key(float score, size_t place) {
    const unsigned bits = __float_as_uint(score + 0.0f); /* -0 becomes 0 */
    const unsigned rising = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (unsigned long long)rising << 32 | (UINT32_MAX - (uint32_t)place);
}

struct spipe_priv_topk_shared_t {
    unsigned bins[256], warp_bins[SPIPE_PRIV_WARPS];
    unsigned digit, wanted, found;
    unsigned long long keys[SPIPE_TOPK_MAX];
};

/* Finds the bin (s->digit) that holds the wanted-th greatest key, and sets s->wanted to how many of
   that bin's keys are among the wanted. Returns whether all of them are. */
SPIPE_PRIV_ON_DEVICE bool spipe_priv_topk_digit(spipe_priv_topk_shared_t *s) {
    const unsigned t = threadIdx.x;
    const unsigned lane = t % SPIPE_PRIV_WARP;
    const unsigned wanted = s->wanted;
    const unsigned own = s->bins[t];
    unsigned from = own; /* becomes the number of keys in this bin and all above it */
    for (unsigned d = 1; d < SPIPE_PRIV_WARP; d *= 2) {
        const unsigned right = __shfl_down_sync(SPIPE_PRIV_ALL_LANES, from, d);
        if (lane + d < SPIPE_PRIV_WARP) from += right;
    }
    if (lane == 0) s->warp_bins[t / SPIPE_PRIV_WARP] = from;
    __syncthreads();
    for (unsigned w = t / SPIPE_PRIV_WARP + 1; w < SPIPE_PRIV_WARPS; w++) from += s->warp_bins[w];
    if (from >= wanted && from - own < wanted) {
        s->digit = t;
        s->wanted = wanted - (from - own);
    }
    __syncthreads();
    return s->bins[s->digit] == s->wanted;
}

/* A key such that exactly `wanted` keys of the row are not below it: a radix search, 8 bits at a
   time from the top. The scores' bits decide in most rows; the indices' bits only break ties. */
SPIPE_PRIV_ON_DEVICE unsigned long long spipe_priv_topk_lowest(spipe_priv_topk_shared_t *s,
                                                               const float *row, size_t width,
                                                               unsigned wanted) {
    unsigned long long prefix = 0;
    for (unsigned shift = 56;; shift -= 8) {
        s->bins[threadIdx.x] = 0;
        if (shift == 56 && threadIdx.x == 0) s->wanted = wanted;
        __syncthreads();
        for (size_t i = threadIdx.x; i < width; i += SPIPE_PRIV_THREADS) {
            const unsigned long long key = spipe_priv_topk_key(row[i], i) >> shift;
            if (key >> 8 == prefix) atomicAdd(&s->bins[key & 0xffu], 1u);
        }
        __syncthreads();
        const bool all = spipe_priv_topk_digit(s);
        prefix = prefix << 8 | s->digit;
        if (all || shift == 0) return prefix << shift;
        __syncthreads();
    }
}

static __global__ void spipe_topk_kernel(uint32_t *out, const float *in, size_t width, unsigned k,
                                         size_t count) {
    __shared__ spipe_priv_topk_shared_t s;
    const unsigned t = threadIdx.x;
    const unsigned kept = k < width ? k : (unsigned)width;
    for (size_t i = blockIdx.x; i < count; i += gridDim.x) {
        const float *row = in + i * width;
        const unsigned long long lowest = spipe_priv_topk_lowest(&s, row, width, kept);
        if (t == 0) s.found = 0;
        __syncthreads();
        for (size_t at = t; at < width; at += SPIPE_PRIV_THREADS) {
            const unsigned long long key = spipe_priv_topk_key(row[at], at);
            if (key >= lowest) s.keys[atomicAdd(&s.found, 1u)] = key;
        }
        __syncthreads();
        if (t < kept) { /* a key's rank is the number of greater keys */
            unsigned rank = 0;
            for (unsigned j = 0; j < kept; j++) rank += s.keys[j] > s.keys[t];
            out[i * k + rank] = UINT32_MAX - (uint32_t)s.keys[t];
        } else if (t < k) {
            out[i * k + t] = SPIPE_NO_INDEX;
        }
        __syncthreads();
    }
}

SPIPE_PRIV_LOCAL cudaError_t spipe_topk_stage(const spipe_chunk_t *chunk, void *user) {
    const spipe_topk_t *p = (const spipe_topk_t *)user;
    if (p->width == 0 || p->width > UINT32_MAX) return cudaErrorInvalidValue;
    if (p->k == 0 || p->k > SPIPE_TOPK_MAX) return cudaErrorInvalidValue;
    if (chunk->count == 0) return cudaSuccess;
    return SPIPE_LAUNCH(spipe_topk_kernel, spipe_blocks(chunk->count, 1), SPIPE_PRIV_THREADS, 0,
                        chunk, SPIPE_BUF_ROW(chunk, p->out, uint32_t, p->k),
                        SPIPE_BUF_ROW(chunk, p->in, const float, p->width), p->width, p->k,
                        chunk->count);
}

/* Inserts each score into the sorted list of the best so far, behind those that are not worse. */
SPIPE_PRIV_LOCAL void spipe_topk_cpu(uint32_t *out, const float *in, size_t width, unsigned k,
                                     size_t rows) {
    for (size_t i = 0; i < rows; i++) {
        const float *row = in + i * width;
        uint32_t *best = out + i * k;
        for (size_t j = 0; j < k; j++) best[j] = SPIPE_NO_INDEX;
        for (size_t p = 0; p < width; p++) {
            size_t j = k;
            for (; j > 0 && (best[j - 1] == SPIPE_NO_INDEX || row[best[j - 1]] < row[p]); j--)
                if (j < k) best[j] = best[j - 1];
            if (j < k) best[j] = (uint32_t)p;
        }
    }
}

#endif /* STREAMPIPE_KERNELS_CUH */
