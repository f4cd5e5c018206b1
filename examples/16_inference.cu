/*  16_inference.cu -- inference in three stages over a stream of requests, batch after batch.

    nvcc -O3 -I.. -o 16_inference 16_inference.cu && ./16_inference (without a GPU: make examples)
    nvcc -O3 -I.. -DUSE_CUBLAS -o 16_inference 16_inference.cu -lcublas    (the product by cuBLAS)
    You learn   preprocess -> encode -> decode of ONE batch is a chain, and three streams make it no
                shorter. But batch k's decoding overlaps with k+1's encoding and k+2's copy in. A
                library call, here cuBLAS, can be a stage: give it the stage's stream.
    Mind        a common mistake is a stream and an event for each stage, and then a synchronisation
                after every batch: there is never a second batch to overlap with.
    Expect      (hostcuda) 192 requests in batches of 24, product by a plain kernel
                batch after batch    0.307 ms
                pipelined            0.171 ms
                right: the CPU finds the same                                                     */
#include "16_product.cuh" /* product_stage, by cuBLAS or a kernel */
#include "ex_common.h"

static const int BATCH = EX_HOSTCUDA ? 24 : 8192, REQUESTS = 8 * BATCH;
static const int PIXELS = 8 * 8, FEATURES = 3 * PIXELS, CLASSES = 32;

enum {
    PICTURE,
    WEIGHTS,
    FEATURE,
    SCORE,
    ANSWER
}; /* the buffers; an element is one request */

/* Preprocess: bytes p to floats p / 128 - 1, in three planes. Decode: the best three classes. */
static const spipe_u8_to_chw_t PREPROCESS = {
    PICTURE, FEATURE, PIXELS, {0, 0, 3, 1.0f / 128, {1, 1, 1, 0}, {1, 1, 1, 0}}};
static const spipe_topk_t DECODE = {SCORE, ANSWER, CLASSES, 3};

typedef struct model {
    unsigned char *pictures; /* pinned, as are the answers: copies do not block the host */
    uint32_t *answers;
    float weights[CLASSES * FEATURES];
} model_t;

/* Runs all requests, twice: the first run loads the kernels, the second counts. */
static void infer(model_t *m, spipe_schedule_t schedule, cudaStream_t stream, const char *label) {
    product_t encode = {FEATURE, WEIGHTS, SCORE, FEATURES, CLASSES, NULL};
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    spipe_timer_t timer;
    float ms;
    d.count = REQUESTS; /* with a source and a sink instead of input and output it has no end */
    d.chunk = BATCH;
    d.schedule = schedule;
    spipe_add_input(&d, m->pictures, FEATURES);
    spipe_add_resident(&d, m->weights, sizeof m->weights, SPIPE_UPLOAD);
    spipe_add_temp(&d, FEATURES * sizeof(float));
    spipe_add_temp(&d, CLASSES * sizeof(float));
    spipe_add_output(&d, m->answers, 3 * sizeof(uint32_t));
    spipe_add_stage(&d, "preprocess", spipe_u8_to_chw_stage, (void *)&PREPROCESS);
    spipe_add_stage(&d, "encode", product_stage, &encode);
    spipe_add_stage(&d, "decode", spipe_topk_stage, (void *)&DECODE);
    SPIPE_CHECK(product_open(&encode));
    SPIPE_CHECK(spipe_timer_create(&timer));
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (int k = 0; k < 2; ++k) {
        SPIPE_CHECK(spipe_timer_start(&timer, stream));
        SPIPE_CHECK(spipe_pipeline_enqueue(p, stream));
        SPIPE_CHECK(spipe_timer_stop(&timer, stream));
        SPIPE_CHECK(spipe_pipeline_wait(p, NULL));
    }
    SPIPE_CHECK(spipe_timer_ms(&timer, &ms));
    printf("%-18s %7.3f ms\n", label, ms);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(spipe_timer_destroy(&timer));
    SPIPE_CHECK(product_close(&encode));
}

/* All numbers are short binary fractions, so every sum is exact, in whatever order it is taken:
   the kernel, cuBLAS and this loop must agree to the bit. Wipes the answers for the next run. */
static int count_wrong(const model_t *m) {
    static float features[FEATURES], scores[CLASSES];
    int wrong = 0;
    for (int r = 0; r < REQUESTS; ++r) {
        uint32_t best[3];
        spipe_u8_to_chw_cpu(features, m->pictures + r * FEATURES, &PREPROCESS, 1);
        for (int i = 0; i < CLASSES; ++i) {
            scores[i] = 0.0f;
            for (int k = 0; k < FEATURES; ++k)
                scores[i] += m->weights[i * FEATURES + k] * features[k];
        }
        spipe_topk_cpu(best, scores, CLASSES, 3, 1);
        wrong += memcmp(best, m->answers + 3 * r, sizeof best) != 0;
    }
    memset(m->answers, 0xFF, REQUESTS * 3 * sizeof(uint32_t));
    return wrong;
}

int main(void) {
    static model_t m;
    cudaStream_t stream;
    uint32_t x = 1;
    int i, wrong;
    ex_begin();
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&m.pictures, REQUESTS * FEATURES));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&m.answers, REQUESTS * 3 * sizeof(uint32_t)));
    for (i = 0; i < REQUESTS * FEATURES; ++i)
        m.pictures[i] = (unsigned char)((x = x * 1664525u + 1013904223u) >> 24);
    for (i = 0; i < CLASSES * FEATURES; ++i)
        m.weights[i] = (float)((x = x * 1664525u + 1013904223u) >> 28) / 8 - 1;
#if EX_HOSTCUDA
    hostcuda_kernel_time(product_kernel, 20e3, 0); /* ns, as for a larger batch */
#endif
    printf("%d requests in batches of %d, product by %s\n", REQUESTS, BATCH, PRODUCT_BY);
    infer(&m, SPIPE_SCHEDULE_SERIAL, stream, "batch after batch");
    wrong = count_wrong(&m);
    infer(&m, SPIPE_SCHEDULE_AUTO, stream, "pipelined");
    wrong += count_wrong(&m);
    SPIPE_CHECK(spipe_pinned_free(m.answers));
    SPIPE_CHECK(spipe_pinned_free(m.pictures));
    SPIPE_CHECK(cudaStreamDestroy(stream));
    return ex_verdict(wrong == 0);
}
