/*  host.c -- one run of a pinned pipeline on the stub runtime, by the library or by hand, for
    tests/bench/host to count the instructions of.

    host library|hand STAGES CHUNKS      prints the CUDA calls of the run, one kind a line
    Everything but the run itself stays outside measured_run(), which callgrind is told to watch. */
#include "streampipe.h"
#include "stub/stub.h"

enum {
    SLOTS = 4,
    CHUNK = 64,
    MOST_STAGES = 8
};

#if defined(__GNUC__) || defined(__clang__)
#define KEEP __attribute__((noinline, noclone))
#else
#define KEEP
#endif

typedef struct work {
    float *in, *out;
    size_t count;
    int stages;
    spipe_pipeline_t *pipeline;
    /* by hand */
    float *slot_in[SLOTS], *slot_out[SLOTS];
    cudaStream_t to_device, kernels[2], to_host;
    cudaEvent_t in_done[SLOTS], stages_done[SLOTS], out_done[SLOTS];
} work_t;

/* What a user's stage costs is not the library's: tests/bench/host leaves this function out. */
KEEP static cudaError_t user_stage(const spipe_chunk_t *c, void *user) {
    static const char kernel = 0; /* an address that no two kernels share */
    cudaLaunchConfig_t config;
    void *in = c->data[0], *out = c->data[1], *args[3];
    size_t count = c->count;
    (void)user;
    args[0] = &in;
    args[1] = &out;
    args[2] = &count;
    memset(&config, 0, sizeof config);
    config.gridDim.x = (unsigned)(c->count / 32 + 1);
    config.gridDim.y = config.gridDim.z = config.blockDim.y = config.blockDim.z = 1;
    config.blockDim.x = 32;
    config.stream = c->stream;
    return cudaLaunchKernelExC(&config, &kernel, args);
}

/* ---- By hand ------------------------------------------------------------------------------- */

static cudaError_t hand_stages(work_t *w, size_t slot, size_t count, cudaStream_t stream) {
    spipe_chunk_t c;
    int s;
    memset(&c, 0, sizeof c);
    c.count = count;
    c.stream = stream;
    c.data[0] = w->slot_in[slot];
    c.data[1] = w->slot_out[slot];
    for (s = 0; s < w->stages; ++s) SPIPE_TRY(user_stage(&c, NULL));
    return cudaSuccess;
}

static cudaError_t hand_chunk(work_t *w, size_t k) {
    const size_t slot = k % SLOTS, first = k * CHUNK, rest = w->count - first;
    const size_t count = rest < CHUNK ? rest : CHUNK;
    cudaStream_t kernels = w->kernels[k % 2];
    if (k >= SLOTS) SPIPE_TRY(cudaStreamWaitEvent(w->to_device, w->out_done[slot], 0));
    SPIPE_TRY(cudaMemcpyAsync(w->slot_in[slot], w->in + first, count * sizeof(float),
                              cudaMemcpyHostToDevice, w->to_device));
    SPIPE_TRY(cudaEventRecord(w->in_done[slot], w->to_device));
    SPIPE_TRY(cudaStreamWaitEvent(kernels, w->in_done[slot], 0));
    SPIPE_TRY(hand_stages(w, slot, count, kernels));
    SPIPE_TRY(cudaEventRecord(w->stages_done[slot], kernels));
    SPIPE_TRY(cudaStreamWaitEvent(w->to_host, w->stages_done[slot], 0));
    SPIPE_TRY(cudaMemcpyAsync(w->out + first, w->slot_out[slot], count * sizeof(float),
                              cudaMemcpyDeviceToHost, w->to_host));
    return cudaEventRecord(w->out_done[slot], w->to_host);
}

static cudaError_t hand_run(work_t *w) {
    size_t k;
    for (k = 0; k * CHUNK < w->count; ++k) SPIPE_TRY(hand_chunk(w, k));
    return cudaStreamSynchronize(w->to_host);
}

static cudaError_t hand_create(work_t *w) {
    int k;
    for (k = 0; k < SLOTS; ++k) {
        SPIPE_TRY(cudaMalloc((void **)&w->slot_in[k], CHUNK * sizeof(float)));
        SPIPE_TRY(cudaMalloc((void **)&w->slot_out[k], CHUNK * sizeof(float)));
        SPIPE_TRY(cudaEventCreateWithFlags(&w->in_done[k], cudaEventDisableTiming));
        SPIPE_TRY(cudaEventCreateWithFlags(&w->stages_done[k], cudaEventDisableTiming));
        SPIPE_TRY(cudaEventCreateWithFlags(&w->out_done[k], cudaEventDisableTiming));
    }
    SPIPE_TRY(spipe_stream_create(&w->to_device, SPIPE_PRIORITY_DEFAULT));
    SPIPE_TRY(spipe_stream_create(&w->kernels[0], SPIPE_PRIORITY_DEFAULT));
    SPIPE_TRY(spipe_stream_create(&w->kernels[1], SPIPE_PRIORITY_DEFAULT));
    return spipe_stream_create(&w->to_host, SPIPE_PRIORITY_DEFAULT);
}

static void hand_destroy(work_t *w) {
    int k;
    for (k = 0; k < SLOTS; ++k) {
        (void)cudaFree(w->slot_in[k]);
        (void)cudaFree(w->slot_out[k]);
        (void)cudaEventDestroy(w->in_done[k]);
        (void)cudaEventDestroy(w->stages_done[k]);
        (void)cudaEventDestroy(w->out_done[k]);
    }
    (void)cudaStreamDestroy(w->to_device);
    (void)cudaStreamDestroy(w->kernels[0]);
    (void)cudaStreamDestroy(w->kernels[1]);
    (void)cudaStreamDestroy(w->to_host);
}

/* ---- By the library ------------------------------------------------------------------------ */

static cudaError_t library_create(work_t *w) {
    static const char *const names[MOST_STAGES] = {"1", "2", "3", "4", "5", "6", "7", "8"};
    spipe_desc_t d = spipe_desc_default();
    int s;
    d.count = w->count;
    d.chunk = CHUNK;
    d.depth = SLOTS;
    d.schedule = SPIPE_SCHEDULE_ENGINES;
    spipe_add_input(&d, w->in, sizeof(float));
    spipe_add_output(&d, w->out, sizeof(float));
    for (s = 0; s < w->stages; ++s) spipe_add_stage(&d, names[s], user_stage, NULL);
    return spipe_pipeline_create(&w->pipeline, &d, NULL);
}

/* Not the last thing it does: a call that has become a jump would hide from callgrind. */
KEEP static cudaError_t measured_run(work_t *w, int by_hand) {
    volatile cudaError_t e;
    e = by_hand ? hand_run(w) : spipe_pipeline_run(w->pipeline, NULL);
    return e;
}

static cudaError_t run(work_t *w, int by_hand) {
    SPIPE_TRY(by_hand ? hand_create(w) : library_create(w));
    if (!by_hand) SPIPE_TRY(spipe_pipeline_run(w->pipeline, NULL)); /* what it learns, it knows */
    stub_reset();
    SPIPE_TRY(measured_run(w, by_hand));
    if (by_hand)
        hand_destroy(w);
    else
        SPIPE_TRY(spipe_pipeline_destroy(w->pipeline));
    return cudaSuccess;
}

int main(int argc, char **argv) {
    static work_t w;
    const stub_count_t *c;
    int k;
    if (argc != 4 || (w.stages = atoi(argv[2])) < 1 || w.stages > MOST_STAGES) {
        fprintf(stderr, "usage: host library|hand STAGES CHUNKS\n");
        return 2;
    }
    w.count = (size_t)atol(argv[3]) * CHUNK;
    w.in = (float *)calloc(w.count + 1, sizeof(float));
    w.out = (float *)calloc(w.count + 1, sizeof(float));
    if (!w.in || !w.out) return 1;
    SPIPE_CHECK(run(&w, strcmp(argv[1], "hand") == 0));
    for (c = stub_counts(), k = 0; c->name; ++c, ++k) printf("%lu %s\n", c->calls, c->name);
    free(w.in);
    free(w.out);
    return 0;
}
