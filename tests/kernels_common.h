/*  kernels_common.h -- what the tests of streampipe_kernels.cuh share: random data, device arrays
    with poison around them, chunks made by hand, comparing.                                      */
#ifndef KERNELS_COMMON_H
#define KERNELS_COMMON_H

#include "streampipe_kernels.cuh"

#include "tap.h"

#include <vector>

static cudaStream_t stream;

/* ---- data ------------------------------------------------------------------------------------ */

static unsigned long long random_state = 0x9e3779b97f4a7c15ull;

SPIPE_API unsigned random_u32(void) {
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(random_state >> 33) ^ (unsigned)(random_state >> 11);
}

SPIPE_API float random_between(float lo, float hi) {
    return lo + (hi - lo) * (float)(random_u32() % 1000003u) / 1000003.0f;
}

SPIPE_API std::vector<float> random_floats(size_t n, float lo, float hi) {
    std::vector<float> v(n);
    for (size_t i = 0; i < n; i++) v[i] = random_between(lo, hi);
    return v;
}

SPIPE_API std::vector<unsigned char> random_bytes(size_t n) {
    std::vector<unsigned char> v(n);
    for (size_t i = 0; i < n; i++) v[i] = (unsigned char)random_u32();
    return v;
}

SPIPE_API void must(cudaError_t err, const char *what) {
    if (err == cudaSuccess) return;
    tap_ok(0, "%s: %s", what, cudaGetErrorString(err));
    exit(tap_done());
}

/* A device array that begins `shift` elements into its allocation. All that is not given to it is
   poison, and so is a border behind it, which must stay so. */
template <typename T>
struct device_array_t {
    enum {
        POISON = 0xa5,
        BORDER = 64
    };

    T *base;
    size_t shift, size;

    device_array_t(size_t n, size_t start) : base(NULL), shift(start), size(n) {
        must(cudaMalloc(&base, bytes()), "cudaMalloc");
        must(cudaMemsetAsync(base, POISON, bytes(), stream), "cudaMemsetAsync");
    }

    device_array_t(const std::vector<T> &v, size_t start)
        : base(NULL), shift(start), size(v.size()) {
        must(cudaMalloc(&base, bytes()), "cudaMalloc");
        must(cudaMemsetAsync(base, POISON, bytes(), stream), "cudaMemsetAsync");
        put(v);
    }

    ~device_array_t() { cudaFree(base); }

    device_array_t(const device_array_t &) = delete;
    device_array_t &operator=(const device_array_t &) = delete;

    size_t bytes() const { return (shift + size) * sizeof(T) + BORDER; }

    T *data() const { return base + shift; }

    void put(const std::vector<T> &v) {
        if (v.empty()) return;
        must(
            cudaMemcpyAsync(data(), v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice, stream),
            "cudaMemcpyAsync");
        must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    }

    std::vector<T> get() const {
        std::vector<unsigned char> raw(bytes());
        std::vector<T> v(size);
        must(cudaMemcpyAsync(raw.data(), base, raw.size(), cudaMemcpyDeviceToHost, stream),
             "cudaMemcpyAsync");
        must(cudaStreamSynchronize(stream), "the kernel");
        if (size > 0)
            memcpy(static_cast<void *>(v.data()), &raw[shift * sizeof(T)], size * sizeof(T));
        for (size_t i = 0; i < raw.size(); i++)
            if ((i < shift * sizeof(T) || i >= raw.size() - BORDER) && raw[i] != POISON)
                must(cudaErrorIllegalAddress, "a kernel wrote outside its buffer");
        return v;
    }
};

SPIPE_API spipe_chunk_t chunk_of(size_t count) {
    spipe_chunk_t c;
    memset(&c, 0, sizeof c);
    c.count = count;
    c.total = count;
    c.stream = stream;
    return c;
}

template <typename S>
static void run(spipe_stage_fn stage, const spipe_chunk_t &chunk, S &settings) {
    must(stage(&chunk, &settings), "a stage");
}

/* ---- comparing ------------------------------------------------------------------------------- */

template <typename T>
static bool same(const std::vector<T> &got, const std::vector<T> &want, const char *name) {
    for (size_t i = 0; i < want.size(); i++) {
        if (got[i] == want[i]) continue;
        tap_note("%s: element %zu of %zu is %.9g, not %.9g", name, i, want.size(), (double)got[i],
                 (double)want[i]);
        return false;
    }
    return got.size() == want.size();
}

SPIPE_API bool close_to(const std::vector<float> &got, const std::vector<float> &want,
                        double tolerance, const char *name) {
    for (size_t i = 0; i < want.size(); i++) {
        if (fabs((double)got[i] - (double)want[i]) <= tolerance) continue;
        tap_note("%s: element %zu of %zu is %.9g, not %.9g", name, i, want.size(), (double)got[i],
                 (double)want[i]);
        return false;
    }
    return got.size() == want.size();
}

/* Sanitizers make kernels on the CPU twenty times as long. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum {
    KERNELS_ARE_DEAR = 1
};
#else
enum {
    KERNELS_ARE_DEAR = 0
};
#endif

/* A case runs one kernel on `count` elements, its buffers begun `a` and `b` elements off
   alignment. */
typedef bool (*case_fn)(size_t count, size_t a, size_t b);

SPIPE_API void all_sizes(const char *name, case_fn one) {
    static const size_t sizes[] = {0, 1, 31, 32, 33, 255, 256, 257, 1000, 1025, 5000, 100003};
    static const size_t starts[][2] = {{0, 0}, {1, 1}, {0, 1}, {3, 2}};
    static const char *const text[] = {"aligned", "both one element off",
                                       "one of two one element off", "two and three elements off"};
    for (size_t s = 0; s < 4; s++) {
        bool good = true;
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            /* to the largest, the last starts bring nothing new */
            if (s >= 2 - KERNELS_ARE_DEAR && sizes[k] > 100000) continue;
            if (one(sizes[k], starts[s][0], starts[s][1])) continue;
            tap_note("%s fails at %zu elements", name, sizes[k]);
            good = false;
        }
        tap_ok(good, "%s agrees with its twin at all sizes, %s", name, text[s]);
    }
}

#endif /* KERNELS_COMMON_H */
