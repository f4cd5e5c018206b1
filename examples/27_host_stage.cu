/*  27_host_stage.cu -- a step on the CPU in the middle of a pipeline, and how a stage gives up.

    nvcc -O3 -I.. -o host_stage 27_host_stage.cu && ./host_stage      (without a GPU: make examples)

    You learn   work that the GPU cannot do, such as calls of a CPU library, goes into a host stage:
                threads of the library run it on chunks in host memory, several at once, while the
                GPU works on others. SPIPE_BIT names the buffers that are copied to the host and
                back to the GPU. An in/out array is changed in place.
    Mind        a host stage must not call CUDA, and what it shares with other chunks needs a lock
                or an ordered stage. A stage that finds bad data says so in its own words with
                spipe_chunk_fail; the report names stage and chunk, and the chunks before are whole.
    Expect      (hostcuda) 40000 words go to the GPU, the CPU and the GPU: 0 are wrong
                a bad word: host stage 'look' failed at chunk 7: word 29000 is 0
                right: the CPU finds the same                                                     */
#include "ex_common.h"

enum {
    N = 40000,
    CHUNK = 4096
};

static __global__ void mix(unsigned *x, unsigned by, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) x[i] = EX_NEXT(x[i] ^ by);
}

/* On the GPU; user is an unsigned. */
static cudaError_t mix_stage(const spipe_chunk_t *c, void *user) {
    return SPIPE_LAUNCH(mix, spipe_blocks(c->count, 256), 256, 0, c, SPIPE_BUF(c, 0, unsigned),
                        *(const unsigned *)user, c->count);
}

static unsigned reversed(unsigned x) {
    unsigned y = 0;
    for (int k = 0; k < 32; ++k) y |= (x >> k & 1u) << (31 - k);
    return y;
}

/* On the CPU: SPIPE_BUF is host memory here, and c->stream is NULL. */
static cudaError_t reverse_stage(const spipe_chunk_t *c, void *user) {
    unsigned *x = SPIPE_BUF(c, 0, unsigned);
    (void)user;
    for (size_t i = 0; i < c->count; ++i) x[i] = reversed(x[i]);
    return cudaSuccess;
}

/* On the CPU as well: it only looks, and gives up where a word is 0. */
static cudaError_t look_stage(const spipe_chunk_t *c, void *user) {
    const unsigned *x = SPIPE_BUF(c, 0, const unsigned);
    (void)user;
    for (size_t i = 0; i < c->count; ++i) {
        if (x[i] == 0) return spipe_chunk_fail(c, "word %zu is 0", c->first + i);
    }
    return cudaSuccess;
}

static void fill(unsigned *x) {
    for (unsigned i = 0; i < N; ++i) x[i] = i + 1;
}

int main(void) {
    static unsigned x[N], by[2] = {0x1234567u, 0x89abcdefu};
    spipe_report_t report;
    int wrong = 0;
    ex_begin();
    fill(x);
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.chunk = CHUNK;
    spipe_add_inout(&d, x, sizeof *x);
    spipe_add_stage(&d, "mix", mix_stage, &by[0]);
    spipe_add_host_stage(&d, "reverse", reverse_stage, NULL, SPIPE_BIT(0), SPIPE_BIT(0));
    spipe_add_stage(&d, "mix again", mix_stage, &by[1]);
    SPIPE_CHECK_RUN(&d, &report);
    for (unsigned i = 0; i < N; ++i) {
        wrong += x[i] != EX_NEXT(reversed(EX_NEXT((i + 1) ^ by[0])) ^ by[1]);
    }
    printf("%d words go to the GPU, the CPU and the GPU: %d are wrong\n", (int)N, wrong);

    fill(x);
    x[29000] = 0;
    d = spipe_desc_default();
    d.count = N;
    d.chunk = CHUNK;
    spipe_add_inout(&d, x, sizeof *x);
    spipe_add_host_stage(&d, "look", look_stage, NULL, SPIPE_BIT(0), 0);
    spipe_add_stage(&d, "mix", mix_stage, &by[0]);
    const cudaError_t e = spipe_run(&d, &report);
    printf("a bad word: %s\n", report.failure.message);
    const int said = e != cudaSuccess && report.failure.chunk == 29000 / CHUNK &&
                     strstr(report.failure.message, "word 29000 is 0") != NULL;
    return ex_verdict(wrong == 0 && said);
}
