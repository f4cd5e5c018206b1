/*  arr_coc.cu -- how many tokens each patch of a picture gets, by what is asked about the picture.

    nvcc -O3 -I../.. -I../../extras -o arr_coc arr_coc.cu && ./arr_coc
                                                                     (without a GPU: make examples)
    arr_coc FOLDER        writes FOLDER/tokens.ppm: the photographs, bright where the tokens went

    What it is  lab -> texture of 13 channels -> three scorers, side by side, each patch against a
                query of its picture -> balance -> a budget of 64 to 400 tokens a patch, 4096 a
                picture -> each patch compressed as its tokens allow. Photographs, many batches.
    With, and   first line: on one stream a batch is copied in, worked on and copied out, then the
    without     next. Second line: with a stream for each batch the batches overlap, but each runs
                its stages in a row. Third line: as a graph of stages the scorers of one batch run
                side by side, too, and the copies have streams of their own.
                A single batch gains less (last lines): only its scorers can overlap.
    Expect      (hostcuda)
                24 pictures in batches of 2
                  one stream                              2.103 ms   1.00 x
                  a stream for each batch, 4 of them      0.630 ms   3.34 x
                  a graph of stages                       0.595 ms   3.54 x
                tokens of the patches of the first photograph (64 to 400, at most 4096 in all):
                    75    74    75    73    84    77    73    72
                    72    84    98   102    98    93    71    64
                    88    89    97   114    86    91    87    77
                    84   103    91   125   113   113    77    67
                    68    89    78   106   139   107    68    64
                    66    64    68    77    96    67    64    65
                2 pictures in batches of 2
                  one stream                              0.177 ms   1.00 x
                  a stream for each batch, 4 of them      0.177 ms   1.00 x
                  a graph of stages                       0.111 ms   1.59 x
                right: the CPU finds the same                                                     */
#include "arr_coc.cuh"

enum {
    PHOTOS = 3,
    PICTURES = EX_HOSTCUDA ? 24 : 1536,
    BATCH = EX_HOSTCUDA ? 2 : 64,
    STREAMS = 4
};

enum {
    PICTURE,
    QUERY,
    LAB,
    TEXTURE,
    SCORE, /* three of them */
    RELEVANCE = SCORE + 3,
    OUT
}; /* buffers; an element is one picture */

typedef struct job {
    spipe_rgb8_t *pictures; /* pinned, as are queries, relevance and patches */
    query_t *queries;
    float *relevance;
    patch_t *patches;
} job_t;

typedef struct memory { /* device memory of one batch */
    spipe_rgb8_t *pictures;
    query_t *queries;
    float *lab, *texture, *score[3], *relevance;
    patch_t *patches;
} memory_t;

/* ---- Kernels: a thread for each pixel, patch or number --------------------------------------- */

static __global__ void texture_kernel(float *t, const spipe_rgb8_t *rgb, const float *lab,
                                      size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, picture = i / PIXELS * PIXELS;
    if (i < n)
        texture_at(t + CHANNELS * picture, rgb + picture, lab + 3 * picture, (int)(i % PIXELS));
}

static __global__ void score_kernel(float *out, int which, const float *t, const query_t *q,
                                    size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, picture = i / PATCHES;
    const int patch = (int)(i % PATCHES);
    if (i >= n) return;
    t += picture * CHANNELS * PIXELS;
    if (which == 0) out[i] = propositional(t, patch);
    if (which == 1) out[i] = perspectival(t, patch);
    if (which == 2) out[i] = participatory(t, q + picture, patch);
}

static __global__ void balance_kernel(float *out, const float *a, const float *b, const float *c,
                                      size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = balance(a[i], b[i], c[i]);
}

static __global__ void compress_kernel(patch_t *out, const float *t, const float *relevance,
                                       size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, one = CHANNELS * ROOM;
    if (i >= n) return;
    const size_t at = i / one, picture = at / PATCHES;
    const uint32_t tokens = tokens_of(relevance + picture * PATCHES, (int)(at % PATCHES));
    const uint32_t side = side_of(tokens);
    out[at].mean[i % one] =
        compressed_at(t + picture * CHANNELS * PIXELS, (int)(at % PATCHES), side, (int)(i % one));
    if (i % one == 0) out[at].tokens = tokens;
    if (i % one == 0) out[at].side = side;
}

/* The steps of a batch of n pictures. */
static cudaError_t lab(const memory_t *m, size_t n, cudaStream_t s) {
    return SPIPE_LAUNCH(spipe_rgb_to_lab_kernel, spipe_blocks(n * PIXELS, 256), 256, 0, s, m->lab,
                        m->pictures, n * PIXELS);
}

static cudaError_t texture(const memory_t *m, size_t n, cudaStream_t s) {
    return SPIPE_LAUNCH(texture_kernel, spipe_blocks(n * PIXELS, 256), 256, 0, s, m->texture,
                        m->pictures, m->lab, n * PIXELS);
}

static cudaError_t score(const memory_t *m, int which, size_t n, cudaStream_t s) {
    return SPIPE_LAUNCH(score_kernel, spipe_blocks(n * PATCHES, 64), 64, 0, s, m->score[which],
                        which, m->texture, m->queries, n * PATCHES);
}

static cudaError_t weigh(const memory_t *m, size_t n, cudaStream_t s) {
    return SPIPE_LAUNCH(balance_kernel, spipe_blocks(n * PATCHES, 64), 64, 0, s, m->relevance,
                        m->score[0], m->score[1], m->score[2], n * PATCHES);
}

static cudaError_t compress(const memory_t *m, size_t n, cudaStream_t s) {
    const size_t all = n * PATCHES * CHANNELS * ROOM;
    return SPIPE_LAUNCH(compress_kernel, spipe_blocks(all, 256), 256, 0, s, m->patches, m->texture,
                        m->relevance, all);
}

/* ---- By hand: a stream for each batch, or one for all ---------------------------------------- */

static void memory_take(memory_t *m) {
    SPIPE_CHECK(cudaMalloc((void **)&m->pictures, BATCH * PIXELS * sizeof *m->pictures));
    SPIPE_CHECK(cudaMalloc((void **)&m->queries, BATCH * sizeof *m->queries));
    SPIPE_CHECK(cudaMalloc((void **)&m->lab, BATCH * PIXELS * 3 * sizeof(float)));
    SPIPE_CHECK(cudaMalloc((void **)&m->texture, BATCH * PIXELS * CHANNELS * sizeof(float)));
    for (float *&s : m->score)
        SPIPE_CHECK(cudaMalloc((void **)&s, BATCH * PATCHES * sizeof(float)));
    SPIPE_CHECK(cudaMalloc((void **)&m->relevance, BATCH * PATCHES * sizeof(float)));
    SPIPE_CHECK(cudaMalloc((void **)&m->patches, BATCH * PATCHES * sizeof *m->patches));
}

static void memory_give_back(memory_t *m) {
    SPIPE_CHECK(cudaFree(m->patches));
    SPIPE_CHECK(cudaFree(m->relevance));
    for (float *s : m->score) SPIPE_CHECK(cudaFree(s));
    SPIPE_CHECK(cudaFree(m->texture));
    SPIPE_CHECK(cudaFree(m->lab));
    SPIPE_CHECK(cudaFree(m->queries));
    SPIPE_CHECK(cudaFree(m->pictures));
}

static cudaError_t one_batch(const job_t *j, const memory_t *m, size_t first, size_t n,
                             cudaStream_t s) {
    const cudaMemcpyKind in = cudaMemcpyHostToDevice, out = cudaMemcpyDeviceToHost;
    SPIPE_TRY(cudaMemcpyAsync(m->pictures, j->pictures + first * PIXELS,
                              n * PIXELS * sizeof *m->pictures, in, s));
    SPIPE_TRY(cudaMemcpyAsync(m->queries, j->queries + first, n * sizeof *m->queries, in, s));
    SPIPE_TRY(lab(m, n, s));
    SPIPE_TRY(texture(m, n, s));
    for (int k = 0; k < 3; ++k) SPIPE_TRY(score(m, k, n, s));
    SPIPE_TRY(weigh(m, n, s));
    SPIPE_TRY(compress(m, n, s));
    SPIPE_TRY(cudaMemcpyAsync(j->relevance + first * PATCHES, m->relevance,
                              n * PATCHES * sizeof(float), out, s));
    return cudaMemcpyAsync(j->patches + first * PATCHES, m->patches,
                           n * PATCHES * sizeof *m->patches, out, s);
}

/* The milliseconds for so many pictures, over so many streams. */
static double by_hand(const job_t *j, size_t pictures, int streams) {
    memory_t m[STREAMS];
    cudaStream_t s[STREAMS];
    for (int k = 0; k < streams; ++k) {
        memory_take(&m[k]);
        SPIPE_CHECK(spipe_stream_create(&s[k], SPIPE_PRIORITY_DEFAULT));
    }
    SPIPE_CHECK(cudaDeviceSynchronize());
    const double start = ex_now_ms();
    for (size_t first = 0, k = 0; first < pictures; first += BATCH, k = (k + 1) % (size_t)streams)
        SPIPE_CHECK(one_batch(j, &m[k], first, BATCH, s[k]));
    SPIPE_CHECK(cudaDeviceSynchronize());
    const double ms = ex_now_ms() - start;
    for (int k = 0; k < streams; ++k) {
        SPIPE_CHECK(cudaStreamDestroy(s[k]));
        memory_give_back(&m[k]);
    }
    return ms;
}

/* ---- As a graph of stages -------------------------------------------------------------------- */

/* A chunk's memory, as the kernels want it. */
static memory_t memory_of(const spipe_chunk_t *c) {
    memory_t m;
    memset((void *)&m, 0, sizeof m);
    m.pictures = (spipe_rgb8_t *)c->data[PICTURE];
    m.queries = (query_t *)c->data[QUERY];
    m.lab = (float *)c->data[LAB];
    m.texture = (float *)c->data[TEXTURE];
    for (int k = 0; k < 3; ++k) m.score[k] = (float *)c->data[SCORE + k];
    m.relevance = (float *)c->data[RELEVANCE];
    m.patches = (patch_t *)c->data[OUT];
    return m;
}

typedef cudaError_t (*step_t)(const memory_t *m, size_t n, cudaStream_t s);

static cudaError_t step_stage(const spipe_chunk_t *c, void *user) {
    const memory_t m = memory_of(c);
    return (*(const step_t *)user)(&m, c->count, c->stream);
}

static cudaError_t score_stage(const spipe_chunk_t *c, void *user) {
    const memory_t m = memory_of(c);
    return score(&m, *(const int *)user, c->count, c->stream);
}

static double as_graph(const job_t *j, size_t pictures) {
    static const char *const names[3] = {"propositional", "perspectival", "participatory"};
    static int which[3] = {0, 1, 2};
    static step_t steps[4] = {lab, texture, weigh, compress};
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    d.count = pictures;
    d.chunk = BATCH;
    spipe_add_input(&d, j->pictures, PIXELS * sizeof *j->pictures);
    spipe_add_input(&d, j->queries, sizeof *j->queries); /* one element per picture */
    spipe_add_temp(&d, PIXELS * 3 * sizeof(float));
    spipe_add_temp(&d, PIXELS * CHANNELS * sizeof(float));
    for (int k = 0; k < 3; ++k) spipe_add_temp(&d, PATCHES * sizeof(float));
    spipe_add_output(&d, j->relevance, PATCHES * sizeof(float));
    spipe_add_output(&d, j->patches, PATCHES * sizeof *j->patches);
    spipe_add_stage(&d, "lab", step_stage, &steps[0]);
    spipe_add_stage(&d, "texture", step_stage, &steps[1]);
    for (int k = 0; k < 3; ++k) /* after the texture, and not after each other */
        spipe_stage_after(&d, spipe_add_stage(&d, names[k], score_stage, &which[k]), "texture");
    const int weighs = spipe_add_stage(&d, "balance", step_stage, &steps[2]);
    for (const char *name : names) spipe_stage_after(&d, weighs, name);
    spipe_add_stage(&d, "compress", step_stage, &steps[3]);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    const double start = ex_now_ms();
    SPIPE_CHECK(spipe_pipeline_run(p, NULL));
    const double ms = ex_now_ms() - start;
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    return ms;
}

/* ---- What came of it ------------------------------------------------------------------------- */

/* Whether the first pictures are as one thread of the CPU has them. Wipes all results. */
static int is_right(const job_t *j, size_t pictures) {
    static float l[3 * PIXELS], t[CHANNELS * PIXELS];
    int right = 1;
    for (size_t n = 0; n < pictures; n += n < PHOTOS ? 1 : 7) {
        const spipe_rgb8_t *rgb = j->pictures + n * PIXELS;
        const float *got = j->relevance + n * PATCHES;
        spipe_rgb_to_lab_cpu(l, rgb, PIXELS);
        for (int i = 0; i < PIXELS; ++i) texture_at(t, rgb, l, i);
        for (int k = 0; k < PATCHES; ++k) {
            const patch_t *p = &j->patches[n * PATCHES + (size_t)k];
            const float want = balance(propositional(t, k), perspectival(t, k),
                                       participatory(t, &j->queries[n], k));
            right &= fabsf(got[k] - want) < 1e-4f;
            right &= p->tokens == tokens_of(got, k) && p->side == side_of(p->tokens);
            for (int i = 0; i < CHANNELS * ROOM; i += 5)
                right &= fabsf(p->mean[i] - compressed_at(t, k, p->side, i)) < 1e-4f;
        }
    }
    return right;
}

static void wipe(const job_t *j) {
    memset(j->relevance, 0xFF, PICTURES * PATCHES * sizeof(float));
    memset((void *)j->patches, 0xFF, PICTURES * PATCHES * sizeof *j->patches);
}

/* Photographs, one above the other: as they are, and bright where the tokens went. */
static void write_picture(const job_t *j, const char *folder) {
    char path[512];
    snprintf(path, sizeof path, "%.480s/tokens.ppm", folder);
    FILE *f = fopen(path, "wb");
    if (f) fprintf(f, "P6\n%d %d\n255\n", 2 * WIDTH, HEIGHT * PHOTOS);
    for (int i = 0; f && i < 2 * PIXELS * PHOTOS; ++i) {
        const int x = i % (2 * WIDTH), y = i / (2 * WIDTH), photo = y / HEIGHT;
        const int patch = y % HEIGHT / PATCH * ACROSS + x % WIDTH / PATCH;
        const spipe_rgb8_t p = j->pictures[y * WIDTH + x % WIDTH];
        const unsigned tokens = j->patches[photo * PATCHES + patch].tokens;
        const unsigned light = x < WIDTH ? 255 : 40 + 215 * (tokens - LEAST) / (160 - LEAST);
        const unsigned held_light = light < 255 ? light : 255;
        putc((int)(p.r * held_light / 255), f);
        putc((int)(p.g * held_light / 255), f);
        putc((int)(p.b * held_light / 255), f);
    }
    if (f && fclose(f) == 0) printf("%s shows where the tokens went\n", path);
}

/* The photographs, and pictures made of them by moving; each with a query of its own. */
static int read_photos(job_t *j) {
    static const char *const names[PHOTOS] = {"cat", "coffee", "astronaut"};
    const char *slash = strrchr(__FILE__, '/');
    for (int k = 0; k < PHOTOS; ++k) {
        char path[512];
        int w = 0, h = 0;
        snprintf(path, sizeof path, "%.*sphotos/%s.ppm", slash ? (int)(slash - __FILE__ + 1) : 0,
                 __FILE__, names[k]);
        FILE *f = fopen(path, "rb");
        const int whole = f && fscanf(f, "P6 %d %d 255", &w, &h) == 2 && w == WIDTH &&
                          h == HEIGHT && getc(f) != EOF &&
                          fread(j->pictures + k * PIXELS, 3, PIXELS, f) == PIXELS;
        if (!f)
            fprintf(stderr, "%s is not there: run it in the folder that it was compiled in\n",
                    path);
        else if (!whole)
            fprintf(stderr, "%s is not a PPM of %d x %d\n", path, (int)WIDTH, (int)HEIGHT);
        if (f) fclose(f);
        if (!whole) return 0;
    }
    for (int i = PHOTOS * PIXELS; i < PICTURES * PIXELS; ++i)
        j->pictures[i] = j->pictures[(i + i / (PHOTOS * PIXELS) * 5 * WIDTH) % (PHOTOS * PIXELS)];
    memset(j->queries, 0, PICTURES * sizeof *j->queries);
    for (int k = 0; k < PICTURES; ++k) { /* queries: red; bright; central */
        j->queries[k].weight[4] = k % 3 == 0 ? 4.0f : 0.0f;
        j->queries[k].weight[3] = k % 3 == 1 ? 1.0f : 0.0f;
        j->queries[k].weight[12] = k % 3 == 2 ? -2.0f : -0.5f;
    }
    return 1;
}

static void print_tokens(const job_t *j) {
    printf("tokens of the patches of the first photograph (%d to %d, at most %d in all):\n",
           (int)LEAST, (int)MOST, (int)TOTAL);
    for (int k = 0; k < PATCHES; ++k)
        printf("%6u%s", j->patches[k].tokens, k % ACROSS == ACROSS - 1 ? "\n" : "");
}

int main(int argc, char **argv) {
    static const char *const names[3] = {"one stream", "a stream for each batch, 4 of them",
                                         "a graph of stages"};
    static const int streams[2] = {1, STREAMS};
    job_t j;
    int right = 1;
#if EX_HOSTCUDA /* times as for larger pictures: a step as long as its copy, scorers longest */
    hostcuda_kernel_time(texture_kernel, 20e3, 0);
    hostcuda_kernel_time(score_kernel, 30e3, 0);
    hostcuda_kernel_time(balance_kernel, 5e3, 0);
    hostcuda_kernel_time(compress_kernel, 20e3, 0);
#endif
    ex_begin();
    SPIPE_CHECK(spipe_pinned_alloc((void **)&j.pictures, PICTURES * PIXELS * sizeof *j.pictures));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&j.queries, PICTURES * sizeof *j.queries));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&j.relevance, PICTURES * PATCHES * sizeof(float)));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&j.patches, PICTURES * PATCHES * sizeof *j.patches));
    if (!read_photos(&j)) return 1;
    for (const size_t pictures : {(size_t)PICTURES, (size_t)BATCH}) {
        double ms[3];
        printf("%zu pictures in batches of %d\n", pictures, (int)BATCH);
        for (int k = 0; k < 3; ++k) {
            wipe(&j);
            ms[k] = k < 2 ? by_hand(&j, pictures, streams[k]) : as_graph(&j, pictures);
            right &= is_right(&j, pictures);
            printf("  %-36s %8.3f ms %6.2f x\n", names[k], ms[k], ms[0] / ms[k]);
        }
        if (EX_HOSTCUDA) right &= ms[2] < ms[0] && (pictures == BATCH || ms[2] < ms[1]);
        if (pictures == PICTURES) print_tokens(&j);
        if (pictures == PICTURES && argc > 1) write_picture(&j, argv[1]);
    }
    SPIPE_CHECK(spipe_pinned_free(j.patches));
    SPIPE_CHECK(spipe_pinned_free(j.relevance));
    SPIPE_CHECK(spipe_pinned_free(j.queries));
    SPIPE_CHECK(spipe_pinned_free(j.pictures));
    return ex_verdict(right);
}
