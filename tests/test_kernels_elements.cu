/*  test_kernels_elements.cu -- the kernels on elements and images, each through its stage function
    and a chunk made by hand, against its CPU twin: element by element, on random data, outputs
    poisoned beforehand, at sizes around warps, blocks and tiles, and from unaligned starts. */
#include "kernels_common.h"

/* ---- elements -------------------------------------------------------------------------------- */

static bool fill_case(size_t n, size_t a, size_t) {
    device_array_t<float> out(n, a);
    std::vector<float> want(n);
    spipe_fill_t p = {0, 2.5f};
    spipe_chunk_t c = chunk_of(n);
    c.data[0] = out.data();
    run(spipe_fill_stage, c, p);
    spipe_fill_cpu(want.data(), p.value, n);
    return same(out.get(), want, "fill");
}

static bool scale_case(size_t n, size_t a, size_t b) {
    const std::vector<float> x = random_floats(n, -9.0f, 9.0f);
    device_array_t<float> in(x, a), out(n, b);
    std::vector<float> want(n);
    spipe_scale_t p = {0, 1, 1.7f};
    spipe_chunk_t c = chunk_of(n);
    c.data[0] = in.data();
    c.data[1] = out.data();
    run(spipe_scale_stage, c, p);
    spipe_scale_cpu(want.data(), x.data(), p.factor, n);
    if (!same(out.get(), want, "scale") || !same(in.get(), x, "scale's input")) return false;
    p.out = 0; /* in place */
    run(spipe_scale_stage, c, p);
    return same(in.get(), want, "scale in place");
}

static bool saxpy_case(size_t n, size_t a, size_t b) {
    const std::vector<float> x = random_floats(n, -9.0f, 9.0f);
    std::vector<float> y = random_floats(n, -9.0f, 9.0f);
    device_array_t<float> dx(x, a), dy(y, b);
    spipe_saxpy_t p = {0, 1, 0.3f};
    spipe_chunk_t c = chunk_of(n);
    c.data[0] = dx.data();
    c.data[1] = dy.data();
    run(spipe_saxpy_stage, c, p);
    spipe_saxpy_cpu(y.data(), x.data(), p.a, n);
    return same(dy.get(), y, "saxpy");
}

static bool vector_add_case(size_t n, size_t a, size_t b) {
    const std::vector<float> x = random_floats(n, -9.0f, 9.0f), y = random_floats(n, -9.0f, 9.0f);
    device_array_t<float> dx(x, a), dy(y, b), out(n, a);
    std::vector<float> want(n);
    spipe_vector_add_t p = {0, 1, 2};
    spipe_chunk_t c = chunk_of(n);
    c.data[0] = dx.data();
    c.data[1] = dy.data();
    c.data[2] = out.data();
    run(spipe_vector_add_stage, c, p);
    spipe_vector_add_cpu(want.data(), x.data(), y.data(), n);
    return same(out.get(), want, "vector_add");
}

static bool busy_case(size_t n, size_t a, size_t b) {
    const std::vector<float> x = random_floats(n, -9.0f, 9.0f);
    device_array_t<float> in(x, a), out(n, b);
    std::vector<float> want(n);
    spipe_busy_t p = {0, 1, (unsigned)(n % 13)};
    spipe_chunk_t c = chunk_of(n);
    c.data[0] = in.data();
    c.data[1] = out.data();
    run(spipe_busy_stage, c, p);
    spipe_busy_cpu(want.data(), x.data(), p.steps, n);
    return same(out.get(), want, "busy");
}

static bool black_scholes_case(size_t n, size_t a, size_t b) {
    const std::vector<float> s = random_floats(n, 5.0f, 150.0f), x = random_floats(n, 1.0f, 200.0f);
    const std::vector<float> t = random_floats(n, 0.25f, 10.0f);
    device_array_t<float> ds(s, a), dx(x, b), dt(t, a), call(n, b), put(n, a);
    std::vector<float> want_call(n), want_put(n);
    spipe_black_scholes_t p = {0, 1, 2, 3, 4, 0.02f, 0.30f};
    spipe_chunk_t c = chunk_of(n);
    c.data[0] = ds.data();
    c.data[1] = dx.data();
    c.data[2] = dt.data();
    c.data[3] = call.data();
    c.data[4] = put.data();
    run(spipe_black_scholes_stage, c, p);
    spipe_black_scholes_cpu(want_call.data(), want_put.data(), s.data(), x.data(), t.data(), p.rate,
                            p.volatility, n);
    const std::vector<float> got_call = call.get(), got_put = put.get();
    for (size_t i = 0; i < n; i++) {
        const double tolerance = 1e-5 * ((double)s[i] + (double)x[i]);
        if (fabs((double)got_call[i] - want_call[i]) > tolerance) return false;
        if (fabs((double)got_put[i] - want_put[i]) > tolerance) return false;
    }
    return true;
}

static void test_elements(void) {
    all_sizes("fill", fill_case);
    all_sizes("scale", scale_case);
    all_sizes("saxpy", saxpy_case);
    all_sizes("vector_add", vector_add_case);
    all_sizes("busy", busy_case);
    all_sizes("black_scholes", black_scholes_case);
}

/* ---- images ---------------------------------------------------------------------------------- */

static spipe_normalise_t normalise_of(int channels) {
    const spipe_normalise_t p = {0,
                                 1,
                                 channels,
                                 1.0f / 255.0f,
                                 {0.485f, 0.456f, 0.406f, 0.5f},
                                 {0.229f, 0.224f, 0.225f, 0.25f}};
    return p;
}

static bool u8_to_f32_case(size_t n, size_t a, size_t b) {
    for (int channels = 1; channels <= 4; channels++) {
        const size_t pixels = n / (size_t)channels, samples = pixels * (size_t)channels;
        const std::vector<unsigned char> x = random_bytes(samples);
        device_array_t<unsigned char> in(x, a);
        device_array_t<float> out(samples, b);
        std::vector<float> want(samples);
        spipe_normalise_t p = normalise_of(channels);
        spipe_chunk_t c = chunk_of(pixels);
        c.data[0] = in.data();
        c.data[1] = out.data();
        run(spipe_u8_to_f32_stage, c, p);
        spipe_u8_to_f32_cpu(want.data(), x.data(), &p, pixels);
        if (!close_to(out.get(), want, 1e-6 * 1.5 / 0.22, "u8_to_f32")) return false;
    }
    return true;
}

static bool f32_to_u8_case(size_t n, size_t a, size_t b) {
    for (int channels = 1; channels <= 4; channels++) {
        const size_t pixels = n / (size_t)channels, samples = pixels * (size_t)channels;
        std::vector<float> x = random_floats(samples, -3.0f, 4.0f);
        if (samples > 3) x[3] = HUGE_VALF;
        if (samples > 5) x[5] = -HUGE_VALF;
        if (samples > 7) x[7] = x[3] + x[5]; /* not a number */
        device_array_t<float> in(x, a);
        device_array_t<unsigned char> out(samples, b);
        std::vector<unsigned char> want(samples);
        spipe_normalise_t p = normalise_of(channels);
        spipe_chunk_t c = chunk_of(pixels);
        c.data[0] = in.data();
        c.data[1] = out.data();
        run(spipe_f32_to_u8_stage, c, p);
        spipe_f32_to_u8_cpu(want.data(), x.data(), &p, pixels);
        if (samples > 7 && want[7] != 0) return false;
        if (!same(out.get(), want, "f32_to_u8")) return false;
    }
    return true;
}

static void test_normalise_round_trip(void) {
    std::vector<unsigned char> x(256 * 3);
    for (size_t i = 0; i < x.size(); i++) x[i] = (unsigned char)(i / 3);
    device_array_t<unsigned char> in(x, 0), back(x.size(), 0);
    device_array_t<float> middle(x.size(), 0);
    spipe_normalise_t there = normalise_of(3), home = there;
    home.in = 1;
    home.out = 2;
    spipe_chunk_t c = chunk_of(256);
    c.data[0] = in.data();
    c.data[1] = middle.data();
    c.data[2] = back.data();
    run(spipe_u8_to_f32_stage, c, there);
    run(spipe_f32_to_u8_stage, c, home);
    tap_ok(same(back.get(), x, "round trip"), "every byte comes back from u8_to_f32 and f32_to_u8");
}

static void test_chw(void) {
    static const size_t pixels[] = {1, 33, 784, 5000};
    bool good = true;
    for (int channels = 1; channels <= 4; channels++)
        for (size_t k = 0; k < 4; k++) {
            const size_t pictures = 3, n = pictures * pixels[k] * (size_t)channels;
            const std::vector<unsigned char> x = random_bytes(n);
            device_array_t<unsigned char> in(x, k);
            device_array_t<float> out(n, 1);
            std::vector<float> want(n);
            spipe_u8_to_chw_t p = {0, 1, pixels[k], normalise_of(channels)};
            spipe_chunk_t c = chunk_of(pictures);
            c.data[0] = in.data();
            c.data[1] = out.data();
            run(spipe_u8_to_chw_stage, c, p);
            spipe_u8_to_chw_cpu(want.data(), x.data(), &p, pictures);
            good = close_to(out.get(), want, 1e-6 * 1.5 / 0.22, "u8_to_chw") && good;
        }
    tap_ok(good, "u8_to_chw agrees with its twin for 1..4 channels");
}

static std::vector<spipe_rgb8_t> random_pixels(size_t n) {
    std::vector<spipe_rgb8_t> v(n);
    for (size_t i = 0; i < n; i++) {
        const unsigned x = random_u32();
        v[i].r = (unsigned char)x;
        v[i].g = (unsigned char)(x >> 8);
        v[i].b = (unsigned char)(x >> 16);
    }
    return v;
}

static bool gray_case(size_t n, size_t a, size_t b) {
    const std::vector<spipe_rgb8_t> x = random_pixels(n);
    device_array_t<spipe_rgb8_t> in(x, a);
    device_array_t<unsigned char> out(n, b);
    std::vector<unsigned char> want(n);
    spipe_rgb_to_gray_t p = {0, 1};
    spipe_chunk_t c = chunk_of(n);
    c.data[0] = in.data();
    c.data[1] = out.data();
    run(spipe_rgb_to_gray_stage, c, p);
    spipe_rgb_to_gray_cpu(want.data(), x.data(), n);
    return same(out.get(), want, "rgb_to_gray");
}

static bool lab_case(size_t n, size_t a, size_t b) {
    const std::vector<spipe_rgb8_t> x = random_pixels(n);
    device_array_t<spipe_rgb8_t> in(x, a);
    device_array_t<float> out(3 * n, b);
    std::vector<float> want(3 * n);
    spipe_rgb_to_lab_t p = {0, 1};
    spipe_chunk_t c = chunk_of(n);
    c.data[0] = in.data();
    c.data[1] = out.data();
    run(spipe_rgb_to_lab_stage, c, p);
    spipe_rgb_to_lab_cpu(want.data(), x.data(), n);
    return close_to(out.get(), want, 2e-4, "rgb_to_lab");
}

/* Colours whose L*a*b* values are published. */
static void test_known_colours(void) {
    const spipe_rgb8_t in[] = {{255, 255, 255}, {0, 0, 0}, {255, 0, 0}, {0, 255, 0}, {0, 0, 255}};
    const double want[] = {100.0,   0.0,     0.0,      0.0,     0.0,     0.0,     53.2408,  80.0925,
                           67.2032, 87.7347, -86.1827, 83.1793, 32.2970, 79.1875, -107.8602};
    float lab[15];
    unsigned char gray[5];
    bool good = true;
    spipe_rgb_to_lab_cpu(lab, in, 5);
    spipe_rgb_to_gray_cpu(gray, in, 5);
    for (size_t i = 0; i < 15; i++) good = good && fabs((double)lab[i] - want[i]) < 0.02;
    tap_ok(good, "rgb_to_lab's twin gives the published values of five colours");
    tap_ok(gray[0] == 255 && gray[1] == 0 && gray[2] == 76 && gray[3] == 150 && gray[4] == 29,
           "rgb_to_gray's twin gives BT.601's luma of five colours");
}

/* A picture with `halo` rows before and after, which repeat its first and last row. */
static std::vector<unsigned char> with_halo(const std::vector<unsigned char> &x, size_t width,
                                            size_t rows, size_t halo) {
    std::vector<unsigned char> v;
    for (size_t y = 0; y < rows + 2 * halo; y++) {
        const size_t inside = y < halo ? 0 : y - halo;
        const size_t from = inside < rows ? inside : rows - 1;
        v.insert(v.end(), x.begin() + (ptrdiff_t)(from * width),
                 x.begin() + (ptrdiff_t)((from + 1) * width));
    }
    return v;
}

static bool sobel_case(size_t width, size_t rows, size_t shift) {
    const std::vector<unsigned char> x = random_bytes(width * rows);
    device_array_t<unsigned char> in(with_halo(x, width, rows, 1), shift), out(x.size(), shift);
    std::vector<unsigned char> want(x.size());
    spipe_sobel_t p = {0, 1, width};
    spipe_chunk_t c = chunk_of(rows);
    c.data[0] = in.data() + width;
    c.data[1] = out.data();
    run(spipe_sobel_stage, c, p);
    spipe_sobel_cpu(want.data(), x.data(), width, rows);
    return same(out.get(), want, "sobel");
}

static bool blur_case(size_t width, size_t rows, size_t shift) {
    bool good = true;
    for (int radius = 1; radius <= SPIPE_BLUR_MAX_RADIUS; radius += radius < 4 ? 3 : 2) {
        const std::vector<unsigned char> x = random_bytes(width * rows);
        device_array_t<unsigned char> in(with_halo(x, width, rows, (size_t)radius), shift);
        device_array_t<float> middle(x.size(), shift);
        device_array_t<unsigned char> out(x.size(), shift);
        std::vector<float> want_middle(x.size());
        std::vector<unsigned char> want(x.size());
        spipe_blur_t p = {0, 1, 2, width, radius, 0.5f * (float)radius};
        spipe_chunk_t c = chunk_of(rows);
        c.data[0] = in.data() + (size_t)radius * width;
        c.data[1] = middle.data();
        c.data[2] = out.data();
        run(spipe_blur_down_stage, c, p);
        run(spipe_blur_across_stage, c, p);
        spipe_blur_down_cpu(want_middle.data(), x.data(), &p, rows);
        spipe_blur_across_cpu(want.data(), want_middle.data(), &p, rows);
        good = close_to(middle.get(), want_middle, 1e-4, "blur_down") && good;
        const std::vector<unsigned char> got = out.get();
        for (size_t i = 0; i < got.size(); i++)
            if (got[i] + 1 < want[i] || got[i] > want[i] + 1) return false;
    }
    return good;
}

static void all_pictures(const char *name, case_fn one) {
    static const size_t widths[] = {1, 2, 3, 4, 5, 8, 31, 124, 128, 129, 260};
    static const size_t rows[] = {0, 1, 2, 16, 37};
    for (size_t shift = 0; shift < 2; shift++) {
        bool good = true;
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
            for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
                if (!(rows[r] == 0 || one(widths[w], rows[r], shift))) {
                    tap_note("%s fails at %zu x %zu", name, widths[w], rows[r]);
                    good = false;
                }
        tap_ok(good, "%s agrees with its twin for pictures of all shapes, %s", name,
               shift ? "one byte off" : "aligned");
    }
}

static void test_images(void) {
    all_sizes("u8_to_f32", u8_to_f32_case);
    all_sizes("f32_to_u8", f32_to_u8_case);
    test_normalise_round_trip();
    test_chw();
    all_sizes("rgb_to_gray", gray_case);
    all_sizes("rgb_to_lab", lab_case);
    test_known_colours();
    all_pictures("sobel", sobel_case);
    all_pictures("blur_down and blur_across", blur_case);
}

int main(void) {
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    test_elements();
    test_images();
    must(cudaStreamDestroy(stream), "cudaStreamDestroy");
    return tap_done();
}
