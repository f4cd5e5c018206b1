/*  arr_coc.cuh -- the arithmetic of arr_coc.cu, for one pixel, patch or picture: kernels call
    it, and so does the CPU that checks them.                                                     */
#ifndef ARR_COC_CUH
#define ARR_COC_CUH

#include "../ex_common.h"
#include "streampipe_kernels.cuh"

#include <math.h>

enum {
    WIDTH = 128,
    HEIGHT = 96,
    PIXELS = WIDTH * HEIGHT,
    PATCH = 16,
    ACROSS = WIDTH / PATCH,
    PATCHES = ACROSS * (HEIGHT / PATCH),
    CHANNELS = 13,
    LEAST = 64, /* tokens per patch */
    MOST = 400,
    TOTAL = 4096, /* tokens per picture */
    LEAST_SIDE = 3,
    MOST_SIDE = 6,               /* largest side of the grid of a compressed patch */
    ROOM = MOST_SIDE * MOST_SIDE /* numbers per patch and channel */
};

typedef struct query { /* the texture that is asked for in a picture */
    float weight[CHANNELS];
} query_t;

typedef struct patch { /* a compressed patch */
    uint32_t tokens;
    uint32_t side; /* side of each channel's grid of averages */
    float mean[CHANNELS * ROOM];
} patch_t;

static __host__ __device__ inline int held(int x, int most) {
    if (x < 0) return 0;
    return x < most ? x : most - 1;
}

/* Brightness, in whole numbers of 1/256: exact, on any machine. */
static __host__ __device__ inline float gray(const spipe_rgb8_t *rgb, int x, int y) {
    const spipe_rgb8_t p = rgb[held(y, HEIGHT) * WIDTH + held(x, WIDTH)];
    return (float)(77 * p.r + 150 * p.g + 29 * p.b) / 256.0f;
}

/* The 13 channels of pixel i, each in a plane of its own, about -1 to 1: R G B, L a b, Sobel gx gy,
   its length and direction, x, y, and the distance from where one looks, the centre. */
static __host__ __device__ inline void texture_at(float *t, const spipe_rgb8_t *rgb,
                                                  const float *lab, int i) {
    const int x = i % WIDTH, y = i / WIDTH;
    const float u = (float)x / WIDTH - 0.5f, v = (float)y / HEIGHT - 0.5f;
    float gx = 0.0f, gy = 0.0f;
    for (int k = -1; k <= 1; ++k) {
        const float w = (float)(2 - k * k);
        gx += w * (gray(rgb, x + 1, y + k) - gray(rgb, x - 1, y + k));
        gy += w * (gray(rgb, x + k, y + 1) - gray(rgb, x + k, y - 1));
    }
    const float all[CHANNELS] = {(float)rgb[i].r / 255,
                                 (float)rgb[i].g / 255,
                                 (float)rgb[i].b / 255,
                                 lab[3 * i] / 100,
                                 lab[3 * i + 1] / 100,
                                 lab[3 * i + 2] / 100,
                                 gx / 1024,
                                 gy / 1024,
                                 sqrtf(gx * gx + gy * gy) / 1024,
                                 atan2f(gy, gx) / 3.2f,
                                 u,
                                 v,
                                 sqrtf(u * u + v * v)};
    for (int c = 0; c < CHANNELS; ++c) t[c * PIXELS + i] = all[c];
}

static __host__ __device__ inline int pixel_of(int patch, int k) {
    const int x = patch % ACROSS * PATCH + k % PATCH, y = patch / ACROSS * PATCH + k / PATCH;
    return y * WIDTH + x;
}

/* What is there: the entropy of the patch's brightness, 0 to 1. */
static __host__ __device__ inline float propositional(const float *t, int patch) {
    int bins[16] = {0};
    float bits = 0.0f;
    for (int k = 0; k < PATCH * PATCH; ++k) {
        const float *p = t + pixel_of(patch, k);
        const float light = 77 * p[0] + 150 * p[PIXELS] + 29 * p[2 * PIXELS];
        ++bins[held((int)(light / 16), 16)];
    }
    for (int k = 0; k < 16; ++k) {
        const float share = (float)bins[k] / (PATCH * PATCH);
        if (bins[k]) bits -= share * log2f(share);
    }
    return bits / 4;
}

/* What stands out: edges, the more the nearer to where one looks. */
static __host__ __device__ inline float perspectival(const float *t, int patch) {
    float sum = 0.0f;
    for (int k = 0; k < PATCH * PATCH; ++k) {
        const float *p = t + pixel_of(patch, k);
        sum += p[8 * PIXELS] * (1.0f - p[12 * PIXELS]);
    }
    return sum / (sum + 20.0f);
}

/* What was asked: likeness to the query of this picture. */
static __host__ __device__ inline float participatory(const float *t, const query_t *q, int patch) {
    float sum = 0.0f;
    for (int k = 0; k < PATCH * PATCH; ++k) {
        const float *p = t + pixel_of(patch, k);
        for (int c = 0; c < CHANNELS; ++c) sum += p[c * PIXELS] * q->weight[c];
    }
    return 1 / (1 + expf(-sum / 64));
}

/* One number from three scores: their weighted mean, raised where they disagree. */
static __host__ __device__ inline float balance(float a, float b, float c) {
    const float mean = 0.3f * a + 0.3f * b + 0.4f * c;
    const float most = fmaxf(a, fmaxf(b, c)), least = fminf(a, fminf(b, c));
    return mean + 0.2f * (most - least);
}

/* Every patch gets LEAST tokens and, of what is left, its part by how much more relevant it is than
   the least relevant one. In whole numbers: exact. */
static __host__ __device__ inline uint32_t tokens_of(const float *relevance, int patch) {
    const uint32_t spare = TOTAL - LEAST * PATCHES;
    uint32_t all = 1, mine = 0;
    float least = relevance[0];
    for (int k = 1; k < PATCHES; ++k) least = fminf(least, relevance[k]);
    for (int k = 0; k < PATCHES; ++k) {
        const uint32_t part =
            (uint32_t)((relevance[k] - least) * (relevance[k] - least) * 65536.0f);
        all += part;
        if (k == patch) mine = part;
    }
    const uint32_t tokens = LEAST + (uint32_t)((unsigned long long)spare * mine / all);
    return tokens < MOST ? tokens : (uint32_t)MOST;
}

/* Side of the grid that fits into so many tokens: 13 channels, 4 bytes a token. */
static __host__ __device__ inline uint32_t side_of(uint32_t tokens) {
    uint32_t side = LEAST_SIDE;
    while (side < MOST_SIDE && CHANNELS * (side + 1) * (side + 1) <= 2 * tokens) ++side;
    return side;
}

/* Number k of a compressed patch: the mean of channel c over a cell of its grid. */
static __host__ __device__ inline float compressed_at(const float *t, int patch, uint32_t side,
                                                      int k) {
    const int c = k / ROOM, cell = k % ROOM, n = (int)side;
    if (cell >= n * n) return 0.0f;
    const int left = cell % n * PATCH / n, right = (cell % n + 1) * PATCH / n;
    const int top = cell / n * PATCH / n, bottom = (cell / n + 1) * PATCH / n;
    float sum = 0.0f;
    for (int y = top; y < bottom; ++y)
        for (int x = left; x < right; ++x) sum += t[c * PIXELS + pixel_of(patch, y * PATCH + x)];
    return sum / (float)((right - left) * (bottom - top));
}

#endif /* ARR_COC_CUH */
