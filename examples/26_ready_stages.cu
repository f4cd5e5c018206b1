/*  26_ready_stages.cu -- a pipeline without a kernel of your own: ready-made stages.

    nvcc -O3 -I.. -o ready_stages 26_ready_stages.cu && ./ready_stages
                                                                     (without a GPU: make examples)
    You learn   streampipe_kernels.cuh has ready-made stages, each with a function for the CPU that
                gives the same. The user pointer of a stage points to a small struct: the numbers of
                its buffers, then its settings. Here photos become brighter grey ones, and at the
                same time their brightness is summed up, from the same buffer.
    Mind        a stage says what an element is: a pixel of three bytes, a float, a whole row. A sum
                of floats in parallel has no fixed order, so it is compared with a tolerance.
    Expect      (hostcuda) 300000 pixels, 0 of them wrong, the brightest 255
                mean level 0.5003 on the GPU, 0.5003 on the CPU
                right: the CPU finds the same                                                     */
#include "ex_common.h"
#include "streampipe_kernels.cuh"

enum {
    PHOTO,
    GREY,
    LEVEL,
    BRIGHTER,
    OUT,
    SUMMARY
}; /* the buffers; an element is a pixel */

enum {
    N = 300000
};

/* grey = 0.299 r + 0.587 g + 0.114 b; level = grey / 255; brighter = 1.5 level; out = 255 x it */
static const spipe_rgb_to_gray_t grey = {PHOTO, GREY};
static const spipe_normalise_t level = {GREY, LEVEL, 1, 1.0f / 255, {0}, {1, 1, 1, 1}};
static const spipe_scale_t brighter = {LEVEL, BRIGHTER, 1.5f};
static const spipe_normalise_t bytes = {BRIGHTER, OUT, 1, 1.0f / 255, {0}, {1, 1, 1, 1}};
static const spipe_reduce_t sum = {LEVEL, SUMMARY};

static spipe_rgb8_t photo[N];
static unsigned char out[N];

static spipe_summary_t run(void) {
    spipe_summary_t summary = spipe_summary_init();
    spipe_report_t report;
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.chunk = 1 << 16;
    spipe_add_input(&d, photo, sizeof *photo);
    spipe_add_temp(&d, sizeof(unsigned char));
    spipe_add_temp(&d, sizeof(float));
    spipe_add_temp(&d, sizeof(float));
    spipe_add_output(&d, out, sizeof *out);
    spipe_add_resident(&d, &summary, sizeof summary, SPIPE_UPLOAD | SPIPE_DOWNLOAD);
    spipe_add_stage(&d, "grey", spipe_rgb_to_gray_stage, (void *)&grey);
    spipe_add_stage(&d, "level", spipe_u8_to_f32_stage, (void *)&level);
    spipe_add_stage(&d, "brighter", spipe_scale_stage, (void *)&brighter);
    spipe_add_stage(&d, "bytes", spipe_f32_to_u8_stage, (void *)&bytes);
    const int beside = spipe_add_stage(&d, "sum", spipe_reduce_stage, (void *)&sum);
    spipe_stage_after(&d, beside, "level"); /* and not after bytes */
    SPIPE_CHECK_RUN(&d, &report);
    return summary;
}

/* The same with the functions for the CPU. */
static int compare(spipe_summary_t gpu) {
    static unsigned char want_grey[N], want[N];
    static float want_level[N], want_brighter[N];
    spipe_summary_t cpu = spipe_summary_init();
    int wrong = 0, brightest = 0;
    spipe_rgb_to_gray_cpu(want_grey, photo, N);
    spipe_u8_to_f32_cpu(want_level, want_grey, &level, N);
    spipe_scale_cpu(want_brighter, want_level, brighter.factor, N);
    spipe_f32_to_u8_cpu(want, want_brighter, &bytes, N);
    spipe_reduce_cpu(&cpu, want_level, N);
    for (int i = 0; i < N; ++i) {
        wrong += abs(out[i] - want[i]) > 1; /* a value near x.5 may be rounded either way */
        if (out[i] > brightest) brightest = out[i];
    }
    printf("%d pixels, %d of them wrong, the brightest %d\n", N, wrong, brightest);
    printf("mean level %.4f on the GPU, %.4f on the CPU\n", gpu.sum / N, cpu.sum / N);
    return wrong == 0 && gpu.count == cpu.count && fabs(gpu.sum - cpu.sum) <= 1e-5 * cpu.sum;
}

int main(void) {
    unsigned random = 1;
    ex_begin();
    for (spipe_rgb8_t &p : photo) {
        random = EX_NEXT(random);
        p.r = (unsigned char)(random >> 24);
        p.g = (unsigned char)(random >> 16);
        p.b = (unsigned char)(random >> 8);
    }
    return ex_verdict(compare(run()));
}
