/*  17_texture.cuh -- the arithmetic of 17_vision.cu: what is computed for one pixel, one patch, one
    picture; the kernels that call it, and their stages. The CPU's check calls it in loops.      */
#include "streampipe_kernels.cuh"

enum {
    PICTURE,
    LAB,
    TEXTURE,
    SCORE,
    ASKED = SCORE + 3,
    RELEVANCE,
    TOKENS
}; /* buffers */

enum {
    SIDE = 64,
    PIXELS = SIDE * SIDE,
    PATCH = 16,
    ACROSS = SIDE / PATCH,
    CHANNELS = 13
};

enum {
    PATCHES = ACROSS * ACROSS,
    LEAST = 64,
    MOST = 400,
    TOTAL = 2560
}; /* tokens */

/* Beyond the border, the nearest pixel. */
static __host__ __device__ inline int inside(int x) {
    if (x < 0) return 0;
    return x < SIDE ? x : SIDE - 1;
}

/* Brightness, 0 to 255, in whole numbers of 1/256: exact, on any machine. */
static __host__ __device__ inline float gray(const spipe_rgb8_t *rgb, int x, int y) {
    const spipe_rgb8_t p = rgb[inside(y) * SIDE + inside(x)];
    return (float)(77 * p.r + 150 * p.g + 29 * p.b) / 256.0f;
}

/* The 13 channels of pixel i, each in a plane of its own: R G B, L a b, Sobel gx gy, its length and
   direction, x, y and the distance from the centre, in sides. */
static __host__ __device__ inline void texture_at(float *t, const spipe_rgb8_t *rgb,
                                                  const float *lab, int i) {
    const int x = i % SIDE, y = i / SIDE;
    const float u = (float)x / (float)SIDE - 0.5f, v = (float)y / (float)SIDE - 0.5f;
    float gx = 0.0f, gy = 0.0f;
    for (int k = -1; k <= 1; ++k) {
        const float w = (float)(2 - k * k);
        gx += w * (gray(rgb, x + 1, y + k) - gray(rgb, x - 1, y + k));
        gy += w * (gray(rgb, x + k, y + 1) - gray(rgb, x + k, y - 1));
    }
    const float all[CHANNELS] = {(float)rgb[i].r,
                                 (float)rgb[i].g,
                                 (float)rgb[i].b,
                                 lab[3 * i],
                                 lab[3 * i + 1],
                                 lab[3 * i + 2],
                                 gx,
                                 gy,
                                 sqrtf(gx * gx + gy * gy),
                                 atan2f(gy, gx),
                                 u,
                                 v,
                                 sqrtf(u * u + v * v)};
    for (int c = 0; c < CHANNELS; ++c) t[c * PIXELS + i] = all[c];
}

/* 0: entropy of the gray levels; 1: edges, more so near the centre; 2: likeness to the query. */
static __host__ __device__ inline float score(int which, const float *t, const float *asked,
                                              int patch) {
    int bins[16] = {0};
    float sum = 0.0f, bits = 0.0f;
    for (int k = 0; k < PATCH * PATCH; ++k) {
        const float *p =
            t + (patch / ACROSS * PATCH + k / PATCH) * SIDE + patch % ACROSS * PATCH + k % PATCH;
        if (which == 0) ++bins[(int)(77 * p[0] + 150 * p[PIXELS] + 29 * p[2 * PIXELS]) / 4096];
        if (which == 1) sum += p[8 * PIXELS] * (1.0f - p[12 * PIXELS]);
        for (int c = 0; c < CHANNELS && which == 2; ++c) sum += p[c * PIXELS] * asked[c];
    }
    for (int k = 0; k < 16; ++k)
        if (bins[k]) bits -= (float)bins[k] / 256 * log2f((float)bins[k] / 256);
    if (which == 0) return bits / 4;
    return which == 1 ? sum / (sum + 1e4f) : 1 / (1 + expf(-sum / 256));
}

/* Every patch gets the least number of tokens, and of the rest its part, by how much more relevant
   it is than the least relevant one. In whole numbers, so exact. */
static __host__ __device__ inline void share(uint32_t *tokens, const float *relevance) {
    float least = relevance[0];
    uint32_t all = 1;
    for (int k = 1; k < PATCHES; ++k) least = fminf(least, relevance[k]);
    for (int k = 0; k < PATCHES; ++k)
        all += tokens[k] = (uint32_t)((relevance[k] - least) * 65536.0f);
    for (int k = 0; k < PATCHES; ++k) {
        tokens[k] = LEAST + (TOTAL - LEAST * PATCHES) * tokens[k] / all;
        if (tokens[k] > MOST) tokens[k] = MOST;
    }
}

/* Opposed aims, one number: 0 to 1, as the scores are. */
static __host__ __device__ inline float balance(float entropy, float salience, float likeness) {
    return 0.3f * entropy + 0.3f * salience + 0.4f * likeness;
}

/* The kernels: a thread for each of n pixels, patches or pictures; short rather than fast. */
static __global__ void texture_kernel(float *t, const spipe_rgb8_t *rgb, const float *lab,
                                      size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, picture = i / PIXELS * PIXELS;
    if (i < n) texture_at(t + CHANNELS * picture, rgb + picture, lab + 3 * picture, i % PIXELS);
}

static __global__ void score_kernel(float *out, int which, const float *t, const float *asked,
                                    size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = score(which, t + i / PATCHES * CHANNELS * PIXELS, asked, i % PATCHES);
}

static __global__ void balance_kernel(float *out, const float *a, const float *b, const float *c,
                                      size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = balance(a[i], b[i], c[i]);
}

static __global__ void tokens_kernel(uint32_t *tokens, const float *relevance, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) share(tokens + i * PATCHES, relevance + i * PATCHES);
}

/* And their stages. An element is one picture. */
static cudaError_t texture_stage(const spipe_chunk_t *c, void *user) {
    const size_t n = c->count * PIXELS;
    (void)user;
    return SPIPE_LAUNCH(texture_kernel, spipe_blocks(n, 256), 256, 0, c,
                        SPIPE_BUF_ROW(c, TEXTURE, float, PIXELS *CHANNELS),
                        SPIPE_BUF_ROW(c, PICTURE, const spipe_rgb8_t, PIXELS),
                        SPIPE_BUF_ROW(c, LAB, const float, PIXELS * 3), n);
}

static cudaError_t score_stage(const spipe_chunk_t *c, void *user) {
    const int which = *(const int *)user;
    return SPIPE_LAUNCH(score_kernel, spipe_blocks(c->count * PATCHES, 64), 64, 0, c,
                        SPIPE_BUF_ROW(c, SCORE + which, float, PATCHES), which,
                        SPIPE_BUF_ROW(c, TEXTURE, const float, PIXELS *CHANNELS),
                        SPIPE_BUF(c, ASKED, const float), c->count * PATCHES);
}

static cudaError_t balance_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(balance_kernel, spipe_blocks(c->count * PATCHES, 64), 64, 0, c,
                        SPIPE_BUF_ROW(c, RELEVANCE, float, PATCHES),
                        SPIPE_BUF_ROW(c, SCORE, const float, PATCHES),
                        SPIPE_BUF_ROW(c, SCORE + 1, const float, PATCHES),
                        SPIPE_BUF_ROW(c, SCORE + 2, const float, PATCHES), c->count * PATCHES);
}

static cudaError_t tokens_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(tokens_kernel, spipe_blocks(c->count, 64), 64, 0, c,
                        SPIPE_BUF_ROW(c, TOKENS, uint32_t, PATCHES),
                        SPIPE_BUF_ROW(c, RELEVANCE, const float, PATCHES), c->count);
}
