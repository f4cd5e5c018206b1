/*  test_kernels_reductions.cu -- as test_kernels_elements.cu, for the kernels on bytes (histogram,
    entropy), those that carry a result from chunk to chunk (reduce, scan) and those that select
    (threshold, top k). */
#include "kernels_common.h"

#include <cmath>

/* ---- bytes ----------------------------------------------------------------------------------- */

enum byte_data {
    RANDOM,
    ZEROS,
    TEXT,
    RAMP
};

static std::vector<unsigned char> bytes_of(byte_data kind, size_t n) {
    static const char words[] = "the quick brown fox jumps over the lazy dog. ";
    std::vector<unsigned char> v = random_bytes(n);
    for (size_t i = 0; i < n; i++) {
        if (kind == ZEROS) v[i] = 0;
        if (kind == TEXT) v[i] = (unsigned char)words[v[i] % (sizeof words - 1)];
        if (kind == RAMP) v[i] = (unsigned char)i;
    }
    return v;
}

/* All four stages on the same blocks, against their twins. Two chunks go into one total. */
static bool bytes_agree(const std::vector<unsigned char> &x, size_t block_bytes, size_t shift,
                        bool some_short) {
    const size_t count = x.size() / block_bytes;
    std::vector<uint32_t> valid(count), want(256 * count);
    for (size_t i = 0; i < count; i++) {
        valid[i] = random_u32() % (unsigned)(block_bytes + 1);
        if (i % 3 == 0) valid[i] = (uint32_t)block_bytes;
        if (i == 1) valid[i] = 0;
    }
    const uint32_t *host_valid = some_short ? valid.data() : NULL;
    std::vector<float> want_bits(count), want_direct(count);
    std::vector<unsigned long long> want_total(256), zero(256);
    device_array_t<unsigned char> in(x, shift);
    device_array_t<uint32_t> dvalid(valid, 0), counts(256 * count, 0);
    device_array_t<float> bits(count, 1), direct(count, 1);
    device_array_t<unsigned long long> total(zero, 0), total_alone(zero, 0);
    spipe_bytes_t p = {0, some_short ? 1 : -1, 2, 3, 4, block_bytes}, fused = p, alone = p;
    fused.entropy = 5;
    alone.total = 6;
    spipe_chunk_t c = chunk_of(count);
    c.data[0] = in.data();
    c.data[1] = dvalid.data();
    c.data[2] = counts.data();
    c.data[3] = bits.data();
    c.data[4] = total.data();
    c.data[5] = direct.data();
    c.data[6] = total_alone.data();
    run(spipe_histogram_stage, c, p);
    run(spipe_entropy_stage, c, p);
    run(spipe_byte_entropy_stage, c, fused);
    run(spipe_total_histogram_stage, c, alone);
    run(spipe_total_histogram_stage, c, alone);
    spipe_histogram_cpu(want.data(), x.data(), host_valid, block_bytes, count);
    spipe_entropy_cpu(want_bits.data(), want.data(), count);
    spipe_byte_entropy_cpu(want_direct.data(), x.data(), host_valid, block_bytes, count);
    for (int twice = 0; twice < 2; twice++)
        spipe_total_histogram_cpu(want_total.data(), x.data(), host_valid, block_bytes, count);
    return same(counts.get(), want, "histogram") &&
           close_to(bits.get(), want_bits, 1e-5, "entropy") &&
           close_to(direct.get(), want_direct, 1e-5, "byte_entropy") &&
           same(total.get(), want_total, "total") &&
           same(total_alone.get(), want_total, "total_histogram");
}

static void test_bytes(void) {
    static const char *const name[] = {"random bytes", "zeros", "text", "a ramp"};
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    static const size_t sizes[] = {1, 15, 16, 17, 255, 4096, 4097}; /* dear there */
#else
    static const size_t sizes[] = {1, 3, 15, 16, 17, 255, 1000, 4095, 4096, 4097, 5000};
#endif
    for (int kind = RANDOM; kind <= RAMP; kind++) {
        bool good = true;
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            for (size_t shift = 0; shift < 2; shift++) {
                const std::vector<unsigned char> x = bytes_of((byte_data)kind, 5 * sizes[k]);
                const bool fine = bytes_agree(x, sizes[k], shift, (k + shift) % 2 == 1);
                if (!fine) tap_note("fails for blocks of %zu bytes", sizes[k]);
                good = good && fine;
            }
        tap_ok(good, "histograms and entropies agree with their twins on %s", name[kind]);
    }
    tap_ok(bytes_agree(bytes_of(TEXT, 2 * 200000), 200000, 0, false) &&
               bytes_agree(bytes_of(RANDOM, 3 * 70001), 70001, 5, true),
           "histograms and entropies agree for blocks counted in parts");
    tap_ok(bytes_agree(bytes_of(TEXT, 16 * 101), 16, 3, false) &&
               bytes_agree(bytes_of(TEXT, 0), 4096, 0, false),
           "histograms and entropies agree for many tiny blocks, and for none");
}

static void test_entropy_ends(void) {
    const size_t block = 4096;
    std::vector<unsigned char> x(4 * block,
                                 77); /* equal bytes; a ramp; two values; nothing valid */
    for (size_t i = 0; i < block; i++) {
        x[block + i] = (unsigned char)i;
        x[2 * block + i] = (unsigned char)(i % 2);
    }
    const std::vector<uint32_t> valid = {49, 4096, 4096, 0};
    device_array_t<unsigned char> in(x, 0);
    device_array_t<uint32_t> dvalid(valid, 0);
    device_array_t<float> out(4, 0);
    spipe_bytes_t p = {0, 1, -1, 2, -1, block};
    spipe_chunk_t c = chunk_of(4);
    c.data[0] = in.data();
    c.data[1] = dvalid.data();
    c.data[2] = out.data();
    run(spipe_byte_entropy_stage, c, p);
    const std::vector<float> bits = out.get();
    tap_ok(bits[0] == 0.0f && bits[3] == 0.0f && !std::signbit(bits[0]) && !std::signbit(bits[3]),
           "equal bytes and an empty block have entropy 0, exactly");
    tap_ok(fabsf(bits[1] - 8.0f) < 1e-5f && fabsf(bits[2] - 1.0f) < 1e-5f,
           "a ramp has 8 bits per byte, two equally frequent values have 1");
    p.block_bytes = 0;
    tap_ok(spipe_byte_entropy_stage(&c, &p) == cudaErrorInvalidValue &&
               spipe_histogram_stage(&c, &p) == cudaErrorInvalidValue,
           "blocks of 0 bytes are refused");
}

static bool quantise_case(size_t n, size_t a, size_t b) {
    std::vector<float> x = random_floats(n, -1.0f, 9.0f);
    if (n > 2) x[2] = HUGE_VALF - HUGE_VALF; /* not a number */
    device_array_t<float> in(x, a);
    device_array_t<unsigned char> out(n, b);
    std::vector<unsigned char> want(n);
    spipe_quantise_t p = {0, 1, 0.0f, 8.0f};
    spipe_chunk_t c = chunk_of(n);
    c.data[0] = in.data();
    c.data[1] = out.data();
    run(spipe_quantise_stage, c, p);
    spipe_quantise_cpu(want.data(), x.data(), p.lo, p.hi, n);
    return same(out.get(), want, "quantise");
}

/* ---- from chunk to chunk --------------------------------------------------------------------- */

/* Three chunks into one summary, the last two at the same time on two streams. */
static bool reduce_case(size_t n, size_t a, size_t b) {
    cudaStream_t other;
    must(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    const std::vector<float> x = random_floats(n, -1.0f, 3.0f), y = random_floats(n, -7.0f, 0.0f);
    const std::vector<spipe_summary_t> start(1, spipe_summary_init());
    device_array_t<float> dx(x, a), dy(y, b);
    device_array_t<spipe_summary_t> summary(start, 0);
    spipe_summary_t want = start[0];
    spipe_reduce_t p = {0, 1};
    spipe_chunk_t c = chunk_of(n);
    c.data[0] = dx.data();
    c.data[1] = summary.data();
    run(spipe_reduce_stage, c, p);
    run(spipe_reduce_stage, c, p);
    c.data[0] = dy.data();
    c.stream = other;
    run(spipe_reduce_stage, c, p);
    must(cudaStreamSynchronize(other), "cudaStreamSynchronize");
    must(cudaStreamDestroy(other), "cudaStreamDestroy");
    spipe_reduce_cpu(&want, x.data(), n);
    spipe_reduce_cpu(&want, x.data(), n);
    spipe_reduce_cpu(&want, y.data(), n);
    const spipe_summary_t got = summary.get()[0];
    return got.count == want.count && got.min == want.min && got.max == want.max &&
           fabs(got.sum - want.sum) <= 1e-6 * 12.0 * (double)n;
}

/* Scans three chunks of n elements, with the twin going on from where it ended too. */
template <typename T, typename Carry, typename Random>
static bool scan_agrees(size_t n, size_t a, size_t b, spipe_stage_fn stage,
                        Carry (*twin)(T *, const T *, Carry, size_t), double tolerance,
                        Random random) {
    device_array_t<spipe_scan_state_t> state(1, 0);
    must(cudaMemsetAsync(state.data(), 0, sizeof(spipe_scan_state_t), stream), "cudaMemsetAsync");
    Carry carry = 0;
    if (n > 100000 && a != 0) return true; /* slow under sanitizers, and nothing new */
    for (int k = 0; k < 3; k++) {
        std::vector<T> x(n), want(n);
        for (size_t i = 0; i < n; i++) x[i] = random();
        device_array_t<T> in(x, a), out(n, b);
        spipe_scan_t p = {0, k == 2 ? 0 : 1, 2}; /* the last one in place */
        spipe_chunk_t c = chunk_of(n);
        c.data[0] = in.data();
        c.data[1] = out.data();
        c.data[2] = state.data();
        run(stage, c, p);
        carry = twin(want.data(), x.data(), carry, n);
        const std::vector<T> got = k == 2 ? in.get() : out.get();
        for (size_t i = 0; i < n; i++)
            if (got[i] != want[i] &&
                !(fabs((double)got[i] - (double)want[i]) <= tolerance * (double)(n * 3))) {
                tap_note("chunk %d, element %zu of %zu is %.9g, not %.9g", k, i, n, (double)got[i],
                         (double)want[i]);
                return false;
            }
    }
    return true;
}

static bool scan_f32_case(size_t n, size_t a, size_t b) {
    return scan_agrees<float, double>(n, a, b, spipe_scan_f32_stage, spipe_scan_f32_cpu, 1e-6,
                                      []() { return random_between(-1.0f, 1.0f); });
}

static bool scan_u32_case(size_t n, size_t a, size_t b) {
    return scan_agrees<uint32_t, uint32_t>(n, a, b, spipe_scan_u32_stage, spipe_scan_u32_cpu, 0.0,
                                           []() { return random_u32(); });
}

static bool scan_u64_case(size_t n, size_t a, size_t b) {
    return scan_agrees<uint64_t, uint64_t>(n, a, b, spipe_scan_u64_stage, spipe_scan_u64_cpu, 0.0,
                                           []() { return (uint64_t)random_u32() << 20; });
}

static void test_scan_carry(void) {
    const std::vector<uint64_t> x(5000, 3);
    std::vector<spipe_scan_state_t> state(1);
    memset(&state[0], 0, sizeof state[0]);
    state[0].carry = 10000000000ull;
    device_array_t<uint64_t> in(x, 0), out(x.size(), 0);
    device_array_t<spipe_scan_state_t> dstate(state, 0);
    spipe_scan_t p = {0, 1, 2};
    spipe_chunk_t c = chunk_of(x.size());
    c.data[0] = in.data();
    c.data[1] = out.data();
    c.data[2] = dstate.data();
    run(spipe_scan_u64_stage, c, p);
    tap_ok(out.get().back() == 10000015000ull && dstate.get()[0].carry == 10000015000ull,
           "a scan begins at the carry that the state holds and leaves its end there");
}

/* ---- selection ------------------------------------------------------------------------------- */

/* Random scores, or few different ones so that ties abound. */
static std::vector<float> scores(size_t n, bool ties) {
    std::vector<float> v = random_floats(n, -5.0f, 5.0f);
    for (size_t i = 0; i < n && ties; i++) v[i] = (float)(int)v[i] * (i % 2 ? 1.0f : -1.0f);
    return v;
}

static bool threshold_agrees(size_t width, size_t keep, bool ties) {
    const size_t rows = KERNELS_ARE_DEAR ? 3 : 9;
    const std::vector<float> x = scores(width * rows, ties);
    device_array_t<float> in(x, 1);
    device_array_t<uint32_t> out(keep * rows, 1), counts(rows, 1), counts_alone(rows, 1);
    std::vector<uint32_t> want(keep * rows), want_counts(rows);
    spipe_threshold_t p = {0, 1, 2, width, keep, 2.0f};
    spipe_chunk_t c = chunk_of(rows);
    c.data[0] = in.data();
    c.data[1] = out.data();
    c.data[2] = counts.data();
    run(spipe_threshold_stage, c, p);
    spipe_threshold_cpu(want.data(), want_counts.data(), x.data(), &p, rows);
    p.out = -1;
    c.data[2] = counts_alone.data();
    run(spipe_threshold_stage, c, p);
    return same(out.get(), want, "threshold") && same(counts.get(), want_counts, "its counts") &&
           same(counts_alone.get(), want_counts, "counts alone");
}

static bool topk_agrees(size_t width, unsigned k, bool ties) {
    const size_t rows = 3;
    const std::vector<float> x = scores(width * rows, ties);
    device_array_t<float> in(x, 1);
    device_array_t<uint32_t> out(k * rows, 1);
    std::vector<uint32_t> want(k * rows);
    spipe_topk_t p = {0, 1, width, k};
    spipe_chunk_t c = chunk_of(rows);
    c.data[0] = in.data();
    c.data[1] = out.data();
    run(spipe_topk_stage, c, p);
    spipe_topk_cpu(want.data(), x.data(), width, k, rows);
    return same(out.get(), want, "topk");
}

static void test_selection(void) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    static const size_t widths[] = {1, 31, 32, 33, 127, 128, 129, 256, 500}; /* dear there */
#else
    static const size_t widths[] = {1, 31, 32, 33, 127, 128, 129, 256, 1000, 5000};
#endif
    for (int ties = 0; ties < 2; ties++) {
        bool threshold = true, topk = true;
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
            static const unsigned ks[] = {1, 2, 50, SPIPE_TOPK_MAX};
            threshold = threshold_agrees(widths[w], widths[w], ties != 0) && threshold;
            threshold = threshold_agrees(widths[w], (widths[w] + 2) / 3, ties != 0) && threshold;
            for (size_t k = 0; k < 4; k++) topk = topk_agrees(widths[w], ks[k], ties != 0) && topk;
        }
        tap_ok(threshold, "threshold agrees with its twin%s",
               ties ? ", with many equal scores" : "");
        tap_ok(topk, "topk agrees with its twin%s",
               ties ? ", with many equal scores: the lower place first" : "");
    }
    spipe_topk_t p = {0, 1, 100, SPIPE_TOPK_MAX + 1};
    spipe_chunk_t c = chunk_of(1);
    tap_ok(spipe_topk_stage(&c, &p) == cudaErrorInvalidValue,
           "a k beyond SPIPE_TOPK_MAX is refused");
}

int main(void) {
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    test_bytes();
    test_entropy_ends();
    all_sizes("quantise", quantise_case);
    all_sizes("reduce", reduce_case);
    all_sizes("scan_f32", scan_f32_case);
    all_sizes("scan_u32", scan_u32_case);
    all_sizes("scan_u64", scan_u64_case);
    test_scan_carry();
    test_selection();
    must(cudaStreamDestroy(stream), "cudaStreamDestroy");
    return tap_done();
}
