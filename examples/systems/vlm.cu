/*  vlm.cu -- a service that answers questions about pictures: p50 and p99, without overlap and
    with it.

    nvcc -O3 -I../.. -I../../extras -o vlm vlm.cu && ./vlm          (without a GPU: make examples)
    vlm --train FILE      trains the network anew, on the CPU, and writes its weights
    vlm FILE              uses these weights, and not vlm.weights beside the source

    What it is  requests arrive at fixed times, each a picture and a question: preprocess, encode,
                decode, by a small trained network. The program answers them one after another;
                then through a pipeline whose source waits for requests and whose sink answers;
                then beside a batch job that fills the GPU; then the same with a high priority.
    With, and   one after another, a request takes longer than the gap to the next: a queue builds
    without     up, and p99 is the time in that queue. The pipeline makes no request shorter. But
                copies, kernels and host work on several requests at once, so there is no queue.
                Where a request takes less than the gap there is no queue in either case, and
                overlap gains little: an H100 takes 0.05 ms (docs/course/TIMES.md).
    Mind        p50 alone would hide that. A priority orders kernels only, and running blocks are
                not stopped: a request waits for those, not for the batch job's whole kernels.
    Expect      (hostcuda)
                400 questions, one each 0.12 ms; the network knows the answer to 400 of them
                the first: what is it? blue
                                                                     p50         p99
                one after another                               2.678 ms    5.067 ms
                pipelined                                       0.157 ms    0.338 ms
                pipelined, beside a batch job                  52.936 ms   64.365 ms
                the same with d.priority = HIGH                 0.240 ms    0.795 ms
                right: the CPU finds the same                                                     */
#include "vlm_net.h"

#include <algorithm>

enum {
    REQUESTS = 400,
    BATCH_KERNELS = EX_HOSTCUDA ? 130 : 400,
    BATCH_N = EX_HOSTCUDA ? 1 << 18 : 1 << 23 /* elements: many rounds of blocks */
};

enum {
    REQUEST,
    INPUT,
    FEATURE,
    ANSWER,
    WEIGHTS
}; /* buffers; an element is one request */

static const double GAP_MS = 0.12; /* between two requests, on average */

typedef struct service {
    weights_t weights;
    request_t *requests; /* pinned, as are the answers */
    answer_t *answers;
    double arrives_ms[REQUESTS]; /* since zero_ms */
    double zero_ms, done_ns[REQUESTS];
    size_t given;
} service_t;

/* ---- The network on the GPU ------------------------------------------------------------------ */

static __global__ void preprocess(float *in, const request_t *r, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    const int k = (int)(i % (PATCHES * INPUTS));
    if (i < n) in[i] = vlm_input(&r[i / (PATCHES * INPUTS)], k / INPUTS, k % INPUTS);
}

static __global__ void encode(float *h, const float *in, const weights_t *w, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, one = PATCHES * FEATURES;
    const int k = (int)(i % one);
    if (i < n) h[i] = vlm_feature(w, in + i / one * PATCHES * INPUTS, k / FEATURES, k % FEATURES);
}

static __global__ void decode(answer_t *a, const float *h, const request_t *r, const weights_t *w,
                              size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) a[i] = vlm_answer(w, h + i * PATCHES * FEATURES, r[i].question);
}

static cudaError_t run_preprocess(float *in, const request_t *r, size_t count, cudaStream_t s) {
    const size_t n = count * PATCHES * INPUTS;
    return SPIPE_LAUNCH(preprocess, spipe_blocks(n, 256), 256, 0, s, in, r, n);
}

static cudaError_t run_encode(float *h, const float *in, const weights_t *w, size_t count,
                              cudaStream_t s) {
    const size_t n = count * PATCHES * FEATURES;
    return SPIPE_LAUNCH(encode, spipe_blocks(n, 128), 128, 0, s, h, in, w, n);
}

static cudaError_t run_decode(answer_t *a, const float *h, const request_t *r, const weights_t *w,
                              size_t count, cudaStream_t s) {
    return SPIPE_LAUNCH(decode, spipe_blocks(count, 32), 32, 0, s, a, h, r, w, count);
}

static cudaError_t preprocess_stage(const spipe_chunk_t *c, void *) {
    return run_preprocess(SPIPE_BUF_ROW(c, INPUT, float, PATCHES *INPUTS),
                          SPIPE_BUF(c, REQUEST, const request_t), c->count, c->stream);
}

static cudaError_t encode_stage(const spipe_chunk_t *c, void *) {
    return run_encode(SPIPE_BUF_ROW(c, FEATURE, float, PATCHES *FEATURES),
                      SPIPE_BUF_ROW(c, INPUT, const float, PATCHES *INPUTS),
                      SPIPE_BUF(c, WEIGHTS, const weights_t), c->count, c->stream);
}

static cudaError_t decode_stage(const spipe_chunk_t *c, void *) {
    return run_decode(SPIPE_BUF(c, ANSWER, answer_t),
                      SPIPE_BUF_ROW(c, FEATURE, const float, PATCHES *FEATURES),
                      SPIPE_BUF(c, REQUEST, const request_t),
                      SPIPE_BUF(c, WEIGHTS, const weights_t), c->count, c->stream);
}

/* ---- Requests by a clock --------------------------------------------------------------------- */

/* Waits until request i arrives. */
static void wait_for_request(const service_t *s, size_t i) {
    const double until = s->zero_ms + s->arrives_ms[i];
#if EX_HOSTCUDA
    hostcuda_host_until(until * 1e6);
#else
    while (ex_now_ms() < until) continue;
#endif
}

static cudaError_t next_request(spipe_part_t *part, void *user) {
    service_t *s = (service_t *)user;
    part->count = s->given < REQUESTS;
    if (part->count == 0) return cudaSuccess;
    wait_for_request(s, s->given);
    memcpy(part->data, &s->requests[s->given++], sizeof(request_t));
    return cudaSuccess;
}

/* Notes the time of an answer. */
static void note_time(double *ns) {
#if EX_HOSTCUDA
    hostcuda_when_done(ns);
#else
    *ns = ex_now_ms() * 1e6;
#endif
}

static cudaError_t take_answers(const spipe_part_t *part, void *user) {
    const size_t first = part->first, count = part->count;
    service_t *s = (service_t *)user;
    memcpy(&s->answers[first], part->data, count * sizeof(answer_t));
    for (size_t i = first; i < first + count; ++i) note_time(&s->done_ns[i]);
    return cudaSuccess;
}

/* ---- Without overlap, and with it ------------------------------------------------------------ */

static void one_after_another(service_t *s, cudaStream_t stream) {
    request_t *r;
    answer_t *a;
    weights_t *w;
    float *in, *h;
    SPIPE_CHECK(cudaMalloc((void **)&r, sizeof *r));
    SPIPE_CHECK(cudaMalloc((void **)&a, sizeof *a));
    SPIPE_CHECK(cudaMalloc((void **)&w, sizeof *w));
    SPIPE_CHECK(cudaMalloc((void **)&in, PATCHES * INPUTS * sizeof *in));
    SPIPE_CHECK(cudaMalloc((void **)&h, PATCHES * FEATURES * sizeof *h));
    SPIPE_CHECK(cudaMemcpy(w, &s->weights, sizeof *w, cudaMemcpyHostToDevice));
    s->zero_ms = ex_now_ms();
    for (size_t i = 0; i < REQUESTS; ++i) {
        wait_for_request(s, i);
        SPIPE_CHECK(cudaMemcpyAsync(r, &s->requests[i], sizeof *r, cudaMemcpyDefault, stream));
        SPIPE_CHECK(run_preprocess(in, r, 1, stream));
        SPIPE_CHECK(run_encode(h, in, w, 1, stream));
        SPIPE_CHECK(run_decode(a, h, r, w, 1, stream));
        SPIPE_CHECK(cudaMemcpyAsync(&s->answers[i], a, sizeof *a, cudaMemcpyDefault, stream));
        SPIPE_CHECK(cudaStreamSynchronize(stream));
        note_time(&s->done_ns[i]);
    }
    SPIPE_CHECK(cudaFree(h));
    SPIPE_CHECK(cudaFree(in));
    SPIPE_CHECK(cudaFree(w));
    SPIPE_CHECK(cudaFree(a));
    SPIPE_CHECK(cudaFree(r));
}

static void pipelined(service_t *s, spipe_priority_t priority) {
    spipe_desc_t d = spipe_desc_default();
    d.chunk = 1; /* an answer does not wait for later requests */
    d.priority = priority;
    spipe_add_source(&d, next_request, s, sizeof(request_t), SPIPE_IN_ORDER);
    spipe_add_temp(&d, PATCHES * INPUTS * sizeof(float));
    spipe_add_temp(&d, PATCHES * FEATURES * sizeof(float));
    spipe_add_sink(&d, take_answers, s, sizeof(answer_t), SPIPE_IN_ORDER);
    spipe_add_resident(&d, &s->weights, sizeof s->weights, SPIPE_UPLOAD);
    spipe_add_stage(&d, "preprocess", preprocess_stage, NULL);
    spipe_add_stage(&d, "encode", encode_stage, NULL);
    spipe_add_stage(&d, "decode", decode_stage, NULL);
    spipe_pipeline_t *p;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    s->given = 0;
    s->zero_ms = ex_now_ms();
    SPIPE_CHECK(spipe_pipeline_run(p, NULL));
    SPIPE_CHECK(spipe_pipeline_destroy(p));
}

/* ---- What it is worth ------------------------------------------------------------------------ */

/* Prints p50 and p99; returns 1 if the answers are the CPU's. Wipes them for the next time. */
static int look_at(service_t *s, const char *how, double *p99) {
    static float in[PATCHES * INPUTS], h[PATCHES * FEATURES];
    double took_ms[REQUESTS];
    int same = 1;
    for (size_t i = 0; i < REQUESTS; ++i) {
        took_ms[i] = s->done_ns[i] * 1e-6 - s->zero_ms - s->arrives_ms[i];
        const answer_t want = vlm_cpu(&s->weights, &s->requests[i], in, h);
        const float off = s->answers[i].score - want.score;
        same &= off < 1e-3f && off > -1e-3f && (s->answers[i].word == want.word);
    }
    memset(s->answers, 0xFF, REQUESTS * sizeof *s->answers);
    std::sort(took_ms, took_ms + REQUESTS);
    *p99 = took_ms[REQUESTS * 99 / 100];
    printf("%-44s %8.3f ms %8.3f ms\n", how, took_ms[REQUESTS / 2], *p99);
    return same;
}

/* A batch job of kernels that fill the GPU, queued for as long as the requests come. */
static void batch_job(unsigned *scratch, unsigned steps, cudaStream_t low) {
    for (int k = 0; k < BATCH_KERNELS; ++k)
        SPIPE_CHECK(ex_busy(scratch, scratch, steps, BATCH_N, low));
}

static void make_requests(service_t *s) {
    unsigned state = 99;
    double at = 0.0;
    int known = 0;
    float in[PATCHES * INPUTS], h[PATCHES * FEATURES];
    for (size_t i = 0; i < REQUESTS; ++i) {
        vlm_make(&s->requests[i], &state);
        known += vlm_cpu(&s->weights, &s->requests[i], in, h).word == s->requests[i].expected;
        at -= GAP_MS * log((1.0 + vlm_random(&state, 4095)) / 4096.0);
        s->arrives_ms[i] = at;
    }
    printf("%d questions, one each %.2f ms; the network knows the answer to %d of them\n",
           (int)REQUESTS, GAP_MS, known);
    printf("the first: what is it? %s\n",
           VLM_WORDS[vlm_cpu(&s->weights, &s->requests[0], in, h).word]);
}

static void read_weights(service_t *s, const char *path) {
    char beside[512];
    const char *slash = strrchr(__FILE__, '/');
    snprintf(beside, sizeof beside, "%.*svlm.weights", slash ? (int)(slash - __FILE__ + 1) : 0,
             __FILE__);
    if (!vlm_read(&s->weights, path ? path : beside)) exit(1);
}

int main(int argc, char **argv) {
    static service_t s;
    cudaStream_t stream, low;
    unsigned *scratch;
    double alone, overlapped, beside, urgent;
    if (argc > 2 && strcmp(argv[1], "--train") == 0) return !vlm_train(argv[2]);
    read_weights(&s, argc > 1 ? argv[1] : NULL);
#if EX_HOSTCUDA /* times as for a large network, and a smaller GPU */
    hostcuda_profile_t profile = hostcuda_get_profile(0);
    profile.sm_count = 8;
    SPIPE_CHECK(hostcuda_set_profile(0, &profile));
    hostcuda_kernel_time(preprocess, 15e3, 0);
    hostcuda_kernel_time(encode, 60e3, 0);
    hostcuda_kernel_time(decode, 35e3, 0);
#endif
    ex_begin();
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_stream_create(&low, SPIPE_PRIORITY_LOW));
    SPIPE_CHECK(cudaMalloc((void **)&scratch, BATCH_N * sizeof *scratch));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&s.requests, REQUESTS * sizeof *s.requests));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&s.answers, REQUESTS * sizeof *s.answers));
    const unsigned steps = ex_busy_steps(scratch, BATCH_N, 0.5);
    make_requests(&s);
    printf("%-44s %11s %11s\n", "", "p50", "p99");
    one_after_another(&s, stream);
    int right = look_at(&s, "one after another", &alone);
    pipelined(&s, SPIPE_PRIORITY_DEFAULT);
    right &= look_at(&s, "pipelined", &overlapped);
    batch_job(scratch, steps, low);
    pipelined(&s, SPIPE_PRIORITY_DEFAULT);
    right &= look_at(&s, "pipelined, beside a batch job", &beside);
    SPIPE_CHECK(cudaDeviceSynchronize());
    batch_job(scratch, steps, low);
    pipelined(&s, SPIPE_PRIORITY_HIGH);
    right &= look_at(&s, "the same with d.priority = HIGH", &urgent);
    SPIPE_CHECK(cudaDeviceSynchronize());
    if (EX_HOSTCUDA) right &= overlapped < alone && urgent < beside;
    SPIPE_CHECK(spipe_pinned_free(s.answers));
    SPIPE_CHECK(spipe_pinned_free(s.requests));
    SPIPE_CHECK(cudaFree(scratch));
    SPIPE_CHECK(cudaStreamDestroy(low));
    SPIPE_CHECK(cudaStreamDestroy(stream));
    return ex_verdict(right);
}
