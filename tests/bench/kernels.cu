/*  kernels.cu -- how fast the kernels of streampipe_kernels.cuh run beside the GPU's own copying.

    nvcc -O3 -std=c++17 -arch=native -I. tests/bench/kernels.cu -o kernels && ./kernels [SIZE]

    Each kernel reads and writes about SIZE x 8 MiB (default 256: 2 GiB); four arrays of that size
    are allocated. Time is the median of 15 launches, measured with events after 3 unmeasured ones.
    Bytes moved are those that the work must read and write once each: what a kernel reads again is
    its own loss. The yardstick is cudaMemcpyAsync from device to device that reads and writes as
    many bytes in the same run. The first results are checked against the CPU twin.

    Exit status 1 if a result is wrong or a kernel marked "memory" is below 0.80 of the yardstick.
    "mixed" are kernels bound by arithmetic or shared memory on a fast GPU: reported only.       */
#include "streampipe_kernels.cuh"

#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

#define CHECK(expr)                                                                                \
    do {                                                                                           \
        const cudaError_t err_ = (expr);                                                           \
        if (err_ != cudaSuccess) {                                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err_));          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum {
    SAMPLE = 1000,
    RUNS = 15,
    WARM_UP = 3
};

static cudaStream_t stream;
static size_t budget = (size_t)2 << 30; /* bytes that each kernel moves, about */
static size_t part_size;                /* bytes in each device array */
static unsigned char *part[3], *spare;  /* buffers 0..2, and where plain copies go */
static int failures;

/* ---- measuring ------------------------------------------------------------------------------- */

template <typename Work>
static double median_seconds(Work work) {
    cudaEvent_t begin, end;
    std::vector<float> ms(RUNS);
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    for (int k = 0; k < WARM_UP; k++) CHECK(work());
    for (int k = 0; k < RUNS; k++) {
        CHECK(cudaEventRecord(begin, stream));
        CHECK(work());
        CHECK(cudaEventRecord(end, stream));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&ms[(size_t)k], begin, end));
    }
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    std::sort(ms.begin(), ms.end());
    return ms[RUNS / 2] * 1e-3;
}

/* GB/s of copying, read and written bytes added up. */
static double copy_rate(size_t moved) {
    const size_t bytes = moved / 2 < part_size ? moved / 2 : part_size;
    const double s = median_seconds(
        [=]() { return cudaMemcpyAsync(spare, part[0], bytes, cudaMemcpyDeviceToDevice, stream); });
    return 2.0 * (double)bytes / s * 1e-9;
}

struct work_t {
    const char *name;
    bool memory;              /* must reach 0.80 */
    double bytes_per_element; /* read and written, at least */
    spipe_stage_fn stage;
    void *settings;
    size_t element[3]; /* bytes of one element in buffers 0, 1, 2; 0: not used */
    size_t halo;       /* elements before and after in buffer 0 */
};

static spipe_chunk_t chunk_of(const work_t &w, size_t count) {
    spipe_chunk_t c;
    memset(&c, 0, sizeof c);
    c.count = count;
    c.total = count;
    c.stream = stream;
    for (int b = 0; b < 3; b++) c.data[b] = part[b];
    c.data[0] = part[0] + w.halo * w.element[0];
    return c;
}

static size_t elements_of(const work_t &w) {
    size_t count = (size_t)((double)budget / w.bytes_per_element);
    for (int b = 0; b < 3; b++)
        if (w.element[b] > 0) count = std::min(count, part_size / w.element[b] - 2 * w.halo);
    return count > 4096 ? count / 4096 * 4096 : count;
}

static void report(const work_t &w, bool right) {
    const size_t count = elements_of(w);
    const spipe_chunk_t c = chunk_of(w, count);
    const double moved = w.bytes_per_element * (double)count;
    const double seconds = median_seconds([&]() { return w.stage(&c, w.settings); });
    const double rate = moved / seconds * 1e-9, copy = copy_rate((size_t)moved);
    const double part_of_copy = rate / copy;
    const bool good = right && (!w.memory || part_of_copy >= 0.80);
    printf("%-28s %-7s %12zu %9.1f %9.1f %7.3f  %s%s\n", w.name, w.memory ? "memory" : "mixed",
           count, seconds * 1e6, rate, part_of_copy, right ? "right" : "WRONG",
           good ? "" : "  FAILS");
    fflush(stdout);
    if (!good) failures++;
}

/* ---- data and checks ------------------------------------------------------------------------- */

static __global__ void noise_kernel(unsigned *out, unsigned and_mask, unsigned or_mask,
                                    size_t words) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < words; i += (size_t)gridDim.x * blockDim.x) {
        unsigned x = (unsigned)i * 2654435761u + (unsigned)(i >> 32) * 40503u;
        x ^= x >> 15;
        x *= 2246822519u;
        x ^= x >> 13;
        out[i] = (x & and_mask) | or_mask;
    }
}

/* Bits of floats from 1 up to 2, of small integers, or of bytes at random. */
enum noise {
    FLOATS,
    INTEGERS,
    BYTES
};

static void make_noise(noise kind) {
    static const unsigned masks[][2] = {{0x007fffffu, 0x3f800000u}, {0xffu, 0u}, {0xffffffffu, 0u}};
    for (int b = 0; b < 3; b++) {
        CHECK(SPIPE_LAUNCH(noise_kernel, 4096, 256, 0, stream, (unsigned *)part[b], masks[kind][0],
                           masks[kind][1], part_size / 4));
    }
    CHECK(cudaStreamSynchronize(stream));
}

template <typename T>
static std::vector<T> fetch(int b, size_t n) {
    std::vector<T> v(n);
    CHECK(cudaMemcpy(v.data(), part[b], n * sizeof(T), cudaMemcpyDeviceToHost));
    return v;
}

static bool close_to(const std::vector<float> &a, const std::vector<float> &b, double tolerance) {
    for (size_t i = 0; i < a.size(); i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= tolerance)) return false;
    return a.size() == b.size();
}

static void run_once(const work_t &w, size_t count) {
    const spipe_chunk_t c = chunk_of(w, count);
    CHECK(w.stage(&c, w.settings));
    CHECK(cudaStreamSynchronize(stream));
}

/* ---- the kernels ----------------------------------------------------------------------------- */

static void bench_elements(void) {
    spipe_fill_t fill = {1, 3.0f};
    spipe_scale_t scale = {0, 1, 1.5f};
    spipe_saxpy_t saxpy = {0, 1, 1.5f};
    spipe_vector_add_t add = {0, 1, 2};
    spipe_busy_t busy = {0, 1, 16};
    spipe_quantise_t quantise = {0, 1, 1.0f, 2.0f};
    const work_t f = {"fill", true, 4, spipe_fill_stage, &fill, {0, 4, 0}, 0};
    const work_t s = {"scale", true, 8, spipe_scale_stage, &scale, {4, 4, 0}, 0};
    const work_t x = {"saxpy", true, 12, spipe_saxpy_stage, &saxpy, {4, 4, 0}, 0};
    const work_t a = {"vector_add", true, 12, spipe_vector_add_stage, &add, {4, 4, 4}, 0};
    const work_t b = {"busy, 16 steps", true, 8, spipe_busy_stage, &busy, {4, 4, 0}, 0};
    const work_t q = {"quantise", true, 5, spipe_quantise_stage, &quantise, {4, 1, 0}, 0};
    std::vector<float> want(SAMPLE);
    std::vector<unsigned char> want_bytes(SAMPLE);
    make_noise(FLOATS);
    const std::vector<float> in = fetch<float>(0, SAMPLE), y = fetch<float>(1, SAMPLE);
    run_once(a, SAMPLE);
    spipe_vector_add_cpu(want.data(), in.data(), y.data(), SAMPLE);
    report(a, fetch<float>(2, SAMPLE) == want);
    make_noise(FLOATS);
    want = y;
    run_once(x, SAMPLE);
    spipe_saxpy_cpu(want.data(), in.data(), saxpy.a, SAMPLE);
    report(x, fetch<float>(1, SAMPLE) == want);
    run_once(f, SAMPLE);
    spipe_fill_cpu(want.data(), fill.value, SAMPLE);
    report(f, fetch<float>(1, SAMPLE) == want);
    run_once(s, SAMPLE);
    spipe_scale_cpu(want.data(), in.data(), scale.factor, SAMPLE);
    report(s, fetch<float>(1, SAMPLE) == want);
    run_once(b, SAMPLE);
    spipe_busy_cpu(want.data(), in.data(), busy.steps, SAMPLE);
    report(b, fetch<float>(1, SAMPLE) == want);
    run_once(q, SAMPLE);
    spipe_quantise_cpu(want_bytes.data(), in.data(), quantise.lo, quantise.hi, SAMPLE);
    report(q, fetch<unsigned char>(1, SAMPLE) == want_bytes);
}

/* Five buffers: three arrays hold two of them each but one. */
static cudaError_t black_scholes_stage(const spipe_chunk_t *c, void *user) {
    spipe_chunk_t five = *c;
    five.data[3] = (unsigned char *)c->data[0] + part_size / 2;
    five.data[4] = (unsigned char *)c->data[1] + part_size / 2;
    return spipe_black_scholes_stage(&five, user);
}

static void bench_black_scholes(void) {
    spipe_black_scholes_t p = {0, 1, 2, 3, 4, 0.02f, 0.3f};
    const work_t w = {"black_scholes", false, 20, black_scholes_stage, &p, {8, 8, 8}, 0};
    make_noise(FLOATS);
    const std::vector<float> s = fetch<float>(0, SAMPLE), x = fetch<float>(1, SAMPLE);
    const std::vector<float> t = fetch<float>(2, SAMPLE);
    std::vector<float> call(SAMPLE), put(SAMPLE), got(SAMPLE);
    run_once(w, SAMPLE);
    spipe_black_scholes_cpu(call.data(), put.data(), s.data(), x.data(), t.data(), p.rate,
                            p.volatility, SAMPLE);
    CHECK(cudaMemcpy(got.data(), part[1] + part_size / 2, SAMPLE * 4, cudaMemcpyDeviceToHost));
    report(w, close_to(got, put, 4e-5));
}

static void bench_pixels(void) {
    spipe_normalise_t norm = {
        0, 1, 3, 1.0f / 255.0f, {0.485f, 0.456f, 0.406f, 0.0f}, {0.229f, 0.224f, 0.225f, 1.0f}};
    spipe_normalise_t back = norm;
    back.in = 1;
    back.out = 2;
    spipe_u8_to_chw_t chw = {0, 1, 224 * 224, norm};
    spipe_rgb_to_gray_t gray = {0, 1};
    spipe_rgb_to_lab_t lab = {0, 1};
    const size_t picture = 3 * 224 * 224;
    const work_t u = {
        "u8_to_f32, 3 channels", true, 15, spipe_u8_to_f32_stage, &norm, {3, 12, 0}, 0};
    const work_t f = {
        "f32_to_u8, 3 channels", true, 15, spipe_f32_to_u8_stage, &back, {0, 12, 3}, 0};
    const work_t p = {
        "u8_to_chw, 3 x 224 x 224", true, 5.0 * (double)picture, spipe_u8_to_chw_stage, &chw,
        {picture, 4 * picture, 0},  0};
    const work_t g = {"rgb_to_gray", true, 4, spipe_rgb_to_gray_stage, &gray, {3, 1, 0}, 0};
    const work_t l = {"rgb_to_lab", false, 15, spipe_rgb_to_lab_stage, &lab, {3, 12, 0}, 0};
    make_noise(BYTES);
    const std::vector<unsigned char> in = fetch<unsigned char>(0, 3 * SAMPLE);
    const std::vector<unsigned char> pic = fetch<unsigned char>(0, picture);
    std::vector<float> want(3 * SAMPLE), want_pic(picture);
    std::vector<unsigned char> want_gray(SAMPLE);
    run_once(u, SAMPLE);
    spipe_u8_to_f32_cpu(want.data(), in.data(), &norm, SAMPLE);
    report(u, close_to(fetch<float>(1, 3 * SAMPLE), want, 1e-5));
    run_once(f, SAMPLE);
    report(f, fetch<unsigned char>(2, 3 * SAMPLE) == in);
    run_once(p, 1);
    spipe_u8_to_chw_cpu(want_pic.data(), pic.data(), &chw, 1);
    report(p, close_to(fetch<float>(1, picture), want_pic, 1e-5));
    run_once(g, SAMPLE);
    spipe_rgb_to_gray_cpu(want_gray.data(), (const spipe_rgb8_t *)in.data(), SAMPLE);
    report(g, fetch<unsigned char>(1, SAMPLE) == want_gray);
    run_once(l, SAMPLE);
    spipe_rgb_to_lab_cpu(want.data(), (const spipe_rgb8_t *)in.data(), SAMPLE);
    report(l, close_to(fetch<float>(1, 3 * SAMPLE), want, 2e-4));
}

static void bench_sobel(void) {
    const size_t width = 4096, rows = 9;
    spipe_sobel_t sobel = {0, 1, width};
    const work_t w = {"sobel",           false, 2.0 * (double)width, spipe_sobel_stage, &sobel,
                      {width, width, 0}, 1};
    make_noise(BYTES);
    const std::vector<unsigned char> in = fetch<unsigned char>(0, width * rows);
    std::vector<unsigned char> want(width * rows);
    run_once(w, rows - 2);
    spipe_sobel_cpu(want.data(), in.data(), width, rows);
    want.erase(want.begin(), want.begin() + width);
    want.resize(width * (rows - 2));
    report(w, fetch<unsigned char>(1, width * (rows - 2)) == want);
}

static void bench_blur(int radius, float sigma, bool memory) {
    const size_t width = 4096, halo = (size_t)radius, rows = 3;
    spipe_blur_t blur = {0, 1, 2, width, radius, sigma};
    char name[2][64];
    snprintf(name[0], sizeof name[0], "blur_down, radius %d", radius);
    snprintf(name[1], sizeof name[1], "blur_across, radius %d", radius);
    const work_t down = {
        name[0], memory, 5.0 * (double)width, spipe_blur_down_stage, &blur, {width, 4 * width, 0},
        halo};
    const work_t across = {
        name[1], memory, 5.0 * (double)width, spipe_blur_across_stage, &blur, {0, 4 * width, width},
        0};
    make_noise(BYTES);
    const std::vector<unsigned char> in = fetch<unsigned char>(0, width * (rows + 2 * halo));
    std::vector<unsigned char> want(width * rows);
    std::vector<float> middle(in.size());
    run_once(down, rows);
    run_once(across, rows);
    spipe_blur_down_cpu(middle.data(), in.data(), &blur, rows + 2 * halo);
    middle.erase(middle.begin(), middle.begin() + (ptrdiff_t)(halo * width));
    middle.resize(width * rows);
    spipe_blur_across_cpu(want.data(), middle.data(), &blur, rows);
    const std::vector<unsigned char> got = fetch<unsigned char>(2, width * rows);
    bool right = true;
    for (size_t i = 0; i < got.size(); i++) right = right && abs((int)got[i] - (int)want[i]) <= 1;
    report(down, close_to(fetch<float>(1, width * rows), middle, 1e-4));
    report(across, right);
}

static void bench_bytes(const char *data, size_t block, unsigned and_mask) {
    spipe_bytes_t p = {0, -1, 1, 2, -1, block};
    char name[3][64];
    snprintf(name[0], sizeof name[0], "histogram, %zu, %s", block, data);
    snprintf(name[1], sizeof name[1], "entropy, %s", data);
    snprintf(name[2], sizeof name[2], "byte_entropy, %zu, %s", block, data);
    const work_t h = {name[0],          false, (double)block + 1024, spipe_histogram_stage, &p,
                      {block, 1024, 0}, 0};
    const work_t e = {name[1], true, 1028, spipe_entropy_stage, &p, {0, 1024, 4}, 0};
    const work_t b = {name[2],       false, (double)block + 4, spipe_byte_entropy_stage, &p,
                      {block, 0, 4}, 0};
    const size_t blocks = 20;
    std::vector<uint32_t> counts(256 * blocks);
    std::vector<float> bits(blocks);
    CHECK(SPIPE_LAUNCH(noise_kernel, 4096, 256, 0, stream, (unsigned *)part[0], and_mask, 0u,
                       part_size / 4));
    CHECK(cudaStreamSynchronize(stream));
    const std::vector<unsigned char> in = fetch<unsigned char>(0, block * blocks);
    spipe_histogram_cpu(counts.data(), in.data(), NULL, block, blocks);
    spipe_entropy_cpu(bits.data(), counts.data(), blocks);
    run_once(h, blocks);
    report(h, fetch<uint32_t>(1, 256 * blocks) == counts);
    run_once(e, blocks);
    if (block == 4096) report(e, close_to(fetch<float>(2, blocks), bits, 1e-5));
    run_once(b, blocks);
    report(b, close_to(fetch<float>(2, blocks), bits, 1e-5));
}

static void bench_running(void) {
    spipe_reduce_t reduce = {0, 1};
    spipe_scan_t scan = {0, 1, 2};
    const spipe_summary_t none = spipe_summary_init();
    const work_t r = {"reduce", true, 4, spipe_reduce_stage, &reduce, {4, 0, 0}, 0};
    const work_t f = {"scan_f32", true, 8, spipe_scan_f32_stage, &scan, {4, 4, 0}, 0};
    const work_t u = {"scan_u32", true, 8, spipe_scan_u32_stage, &scan, {4, 4, 0}, 0};
    const work_t l = {"scan_u64", true, 16, spipe_scan_u64_stage, &scan, {8, 8, 0}, 0};
    const size_t many = 100 * SAMPLE;
    spipe_summary_t want = none;
    make_noise(FLOATS);
    const std::vector<float> in = fetch<float>(0, many);
    CHECK(cudaMemcpy(part[1], &none, sizeof none, cudaMemcpyHostToDevice));
    run_once(r, many);
    spipe_reduce_cpu(&want, in.data(), many);
    const spipe_summary_t got = fetch<spipe_summary_t>(1, 1)[0];
    report(r, got.count == want.count && got.min == want.min && got.max == want.max &&
                  fabs(got.sum - want.sum) <= 1e-6 * want.sum);
    std::vector<float> want_f(many);
    CHECK(cudaMemset(part[2], 0, sizeof(spipe_scan_state_t)));
    run_once(f, many);
    spipe_scan_f32_cpu(want_f.data(), in.data(), 0.0, many);
    report(f, close_to(fetch<float>(1, many), want_f, 0.5));
    std::vector<uint32_t> want_u(many);
    make_noise(INTEGERS);
    CHECK(cudaMemset(part[2], 0, sizeof(spipe_scan_state_t)));
    run_once(u, many);
    spipe_scan_u32_cpu(want_u.data(), fetch<uint32_t>(0, many).data(), 0, many);
    report(u, fetch<uint32_t>(1, many) == want_u);
    std::vector<uint64_t> want_l(many);
    CHECK(cudaMemset(part[2], 0, sizeof(spipe_scan_state_t)));
    run_once(l, many);
    spipe_scan_u64_cpu(want_l.data(), fetch<uint64_t>(0, many).data(), 0, many);
    report(l, fetch<uint64_t>(1, many) == want_l);
}

static void bench_selection(void) {
    const size_t width = 4096, rows = 20, keep = 64;
    spipe_threshold_t threshold = {0, 1, 2, width, keep, 1.99f};
    spipe_topk_t topk = {0, 1, width, 32};
    const double row = 4.0 * (double)width;
    const work_t t = {
        "threshold, 64 of 4096",  true, row + 4 * keep + 4, spipe_threshold_stage, &threshold,
        {4 * width, 4 * keep, 4}, 0};
    const work_t k = {"topk, 32 of 4096",  false, row + 128, spipe_topk_stage, &topk,
                      {4 * width, 128, 0}, 0};
    std::vector<uint32_t> want(keep * rows), counts(rows), best(32 * rows);
    make_noise(FLOATS);
    const std::vector<float> in = fetch<float>(0, width * rows);
    run_once(t, rows);
    spipe_threshold_cpu(want.data(), counts.data(), in.data(), &threshold, rows);
    report(t, fetch<uint32_t>(1, keep * rows) == want && fetch<uint32_t>(2, rows) == counts);
    run_once(k, rows);
    spipe_topk_cpu(best.data(), in.data(), width, 32, rows);
    report(k, fetch<uint32_t>(1, 32 * rows) == best);
}

static void print_machine(void) {
    cudaDeviceProp prop;
    int driver = 0, runtime = 0, device = 0;
    CHECK(cudaGetDevice(&device));
    CHECK(cudaGetDeviceProperties(&prop, device));
    CHECK(cudaDriverGetVersion(&driver));
    CHECK(cudaRuntimeGetVersion(&runtime));
    printf("%s, compute capability %d.%d, %d multiprocessors; driver API %d.%d, runtime %d.%d\n",
           prop.name, prop.major, prop.minor, prop.multiProcessorCount, driver / 1000,
           driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
}

int main(int argc, char **argv) {
    if (argc > 1 && atol(argv[1]) > 0) budget = (size_t)atol(argv[1]) << 23;
    part_size = budget > ((size_t)1 << 22) ? budget : (size_t)1 << 22;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    print_machine();
    for (int b = 0; b < 3; b++) CHECK(cudaMalloc(&part[b], part_size));
    CHECK(cudaMalloc(&spare, part_size));
    make_noise(BYTES);
    printf("copy, device to device: %.1f GB/s read and written\n\n", copy_rate(budget));
    printf("%-28s %-7s %12s %9s %9s %7s\n", "kernel", "bound", "elements", "us", "GB/s", "of copy");
    bench_elements();
    bench_black_scholes();
    bench_pixels();
    bench_sobel();
    bench_blur(2, 1.0f, true);
    bench_blur(8, 4.0f, false);
    bench_bytes("random", 4096, 0xffffffffu);
    bench_bytes("zeros", 4096, 0u);
    bench_bytes("random", 65536, 0xffffffffu);
    bench_running();
    bench_selection();
    for (int b = 0; b < 3; b++) CHECK(cudaFree(part[b]));
    CHECK(cudaFree(spare));
    CHECK(cudaStreamDestroy(stream));
    printf("\n%s\n", failures ? "some kernels are wrong or below 0.80"
                              : "all that are bound by memory reach 0.80");
    return failures ? 1 : 0;
}
