/*  17_vision.cu -- how many tokens each patch of a picture deserves: a graph of seven stages.

    nvcc -O3 -I.. -o 17_vision 17_vision.cu && ./17_vision          (without a GPU: make examples)
    You learn   spipe_stage_after makes a graph of stages. Those that do not wait for each other run
                at the same time, and different pictures are in different stages.
                              /-> entropy  (what is there)  -\
                lab -> texture -> salience (what stands out) -> balance -> tokens
                              \-> query    (what was asked) -/
    Mind        three mistakes are common in such programs: streams that are called parallel but
                wait for each other in a row, while the three scorers, which could run in parallel,
                share one stream; stages that do not wait for each other at all; and a last loop
                that loses the last batches.
    Expect      (hostcuda)
                in a row     1 stream    1.398 ms
                as a graph   8 streams   1.060 ms
                picture 0, tokens a patch (64 to 400, at most 2560 in all):
                   161   194   185   163
                   241   258   204   180
                   134   181   174   139
                    64    88    97    91
                right: the CPU finds the same                                                     */
#include "17_texture.cuh" /* the kernels and all stages but the first */
#include "ex_common.h"

enum {
    PICTURES = 48
};

typedef struct job {
    spipe_rgb8_t pictures[PICTURES * PIXELS];
    float asked[CHANNELS], relevance[PICTURES * PATCHES];
    uint32_t tokens[PICTURES * PATCHES];
} job_t;

/* The library's stage counts pixels, this pipeline pictures: the same memory, more elements. */
static cudaError_t lab_stage(const spipe_chunk_t *c, void *user) {
    static const spipe_rgb_to_lab_t lab = {PICTURE, LAB};
    spipe_chunk_t pixels = *c;
    (void)user;
    pixels.count *= PIXELS;
    pixels.elem_bytes[PICTURE] = sizeof(spipe_rgb8_t);
    pixels.elem_bytes[LAB] = 3 * sizeof(float);
    return spipe_rgb_to_lab_stage(&pixels, (void *)&lab);
}

static spipe_report_t run(job_t *j, spipe_schedule_t schedule) {
    static const char *const names[3] = {"entropy", "salience", "query"};
    int which[3] = {0, 1, 2}, k, stage;
    spipe_report_t report;
    spipe_desc_t d = spipe_desc_default();
    d.count = PICTURES;
    d.chunk = 8;
    d.schedule = schedule;
    spipe_add_input(&d, j->pictures, PIXELS * sizeof(spipe_rgb8_t));
    spipe_add_temp(&d, PIXELS * 3 * sizeof(float));
    spipe_add_temp(&d, PIXELS * CHANNELS * sizeof(float));
    for (k = 0; k < 3; ++k) spipe_add_temp(&d, PATCHES * sizeof(float));
    spipe_add_resident(&d, j->asked, sizeof j->asked, SPIPE_UPLOAD);
    spipe_add_output(&d, j->relevance, PATCHES * sizeof(float));
    spipe_add_output(&d, j->tokens, PATCHES * sizeof(uint32_t));
    spipe_add_stage(&d, "lab", lab_stage, NULL);
    spipe_add_stage(&d, "texture", texture_stage, NULL);
    for (k = 0; k < 3; ++k) {
        stage = spipe_add_stage(&d, names[k], score_stage, &which[k]);
        spipe_stage_after(&d, stage, "texture"); /* not after each other */
    }
    stage = spipe_add_stage(&d, "balance", balance_stage, NULL);
    for (k = 0; k < 3; ++k) spipe_stage_after(&d, stage, names[k]);
    spipe_add_stage(&d, "tokens", tokens_stage, NULL); /* after "balance", added before it */
    SPIPE_CHECK_RUN(&d, &report);
    return report;
}

/* Returns how many patches differ from one CPU thread's. Wipes the results for the next run. */
static int count_wrong(job_t *j) {
    static float lab[3 * PIXELS], t[CHANNELS * PIXELS];
    uint32_t tokens[PATCHES];
    int n, k, wrong = 0;
    for (n = 0; n < PICTURES; ++n) {
        const spipe_rgb8_t *picture = j->pictures + n * PIXELS;
        const float *got = j->relevance + n * PATCHES;
        spipe_rgb_to_lab_cpu(lab, picture, PIXELS);
        for (k = 0; k < PIXELS; ++k) texture_at(t, picture, lab, k);
        for (k = 0; k < PATCHES; ++k)
            wrong += !(fabsf(got[k] - balance(score(0, t, j->asked, k), score(1, t, j->asked, k),
                                              score(2, t, j->asked, k))) < 1e-4f);
        share(tokens, got);
        wrong += memcmp(tokens, j->tokens + n * PATCHES, sizeof tokens) != 0;
    }
    memset(j->relevance, 0xFF, sizeof j->relevance);
    return wrong;
}

int main(void) {
    static job_t j;
    int i, wrong;
    ex_begin();
    for (i = 0; i < PICTURES * PIXELS; ++i) { /* a ball that rolls over a pattern */
        const int x = i % SIDE, y = i / SIDE % SIDE, u = x - i / PIXELS - 8, v = y - 30;
        const int ball = u * u + v * v < 150;
        j.pictures[i].r = (unsigned char)(ball ? 220 : x + y);
        j.pictures[i].g = (unsigned char)(ball ? 30 + (x ^ y) % 16 : 2 * y);
        j.pictures[i].b = (unsigned char)(ball ? 40 : 200 - x % 9);
    }
#if EX_HOSTCUDA /* a thread does all pixels of a patch, so kernels are long */
    hostcuda_kernel_time(score_kernel, 30e3, 0);
#endif
    j.asked[4] = 0.03f;                   /* red, by Lab, ... */
    j.asked[12] = -2.0f;                  /* ... and not far from the centre */
    (void)run(&j, SPIPE_SCHEDULE_SERIAL); /* loads the kernels */
    const spipe_report_t row = run(&j, SPIPE_SCHEDULE_SERIAL);
    wrong = count_wrong(&j);
    const spipe_report_t graph = run(&j, SPIPE_SCHEDULE_AUTO);
    wrong += count_wrong(&j);
    printf("in a row     %d stream   %6.3f ms\n", row.num_streams, row.wall_ms);
    printf("as a graph   %d streams  %6.3f ms\n", graph.num_streams, graph.wall_ms);
    printf("picture 0, tokens a patch (%d to %d, at most %d in all):\n", LEAST, MOST, TOTAL);
    for (i = 0; i < PATCHES; ++i) printf("%6u%s", j.tokens[i], i % ACROSS == 3 ? "\n" : "");
    return ex_verdict(wrong == 0); /* every relevance and every budget */
}
