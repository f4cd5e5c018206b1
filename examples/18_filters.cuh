/*  18_filters.cuh -- what 18_y4m_filter.cu does to frames of 8 bits: negate, sobel, gblur.       */
#include "18_y4m.h"

#include <math.h>

enum {
    IN,
    OUT,
    MIDDLE
}; /* the buffers; an element is a frame */

enum {
    RADIUS = 8,
    UNIT = 4096
}; /* gblur's weights: whole numbers that add to UNIT */

enum {
    NEGATE,
    SOBEL,
    DOWN,
    ACROSS
};

typedef struct filter {
    int step;
    layout_t layout;
    unsigned weight[2 * RADIUS + 1];
} filter_t;

static __host__ __device__ inline int inside(int x, int size) {
    if (x < 0) return 0;
    return x < size ? x : size - 1;
}

/* Sample (x, y) of a plane; beyond its border, the nearest one. */
template <typename T>
static __host__ __device__ unsigned sample(const T *plane, int w, int h, int x, int y) {
    return plane[(size_t)inside(y, h) * (size_t)w + (size_t)inside(x, w)];
}

/* Byte i of a frame, filtered. The GPU calls it from a kernel, the check from a loop. */
template <typename T>
static __host__ __device__ unsigned filter_at(const filter_t &f, const T *frame, size_t i) {
    const int k = (i >= f.layout.at[1]) + (i >= f.layout.at[2]), w = (int)f.layout.width[k];
    const T *p = frame + f.layout.at[k];
    const int h = (int)((f.layout.at[k + 1] - f.layout.at[k]) / f.layout.width[k]);
    const int x = (int)((i - f.layout.at[k]) % f.layout.width[k]);
    const int y = (int)((i - f.layout.at[k]) / f.layout.width[k]);
    int gx = 0, gy = 0;
    unsigned sum = 0;
    if (f.step == NEGATE) return 255 - sample(p, w, h, x, y);
    if (f.step == SOBEL) {
        for (int j = -1; j <= 1; ++j) {
            const int weight = 2 - j * j;
            gx += weight * (int)(sample(p, w, h, x + 1, y + j) - sample(p, w, h, x - 1, y + j));
            gy += weight * (int)(sample(p, w, h, x + j, y + 1) - sample(p, w, h, x + j, y - 1));
        }
        const float edge = sqrtf((float)(gx * gx + gy * gy)) + 0.5f;
        return edge < 255.0f ? (unsigned)edge : 255;
    }
    for (int j = -RADIUS; j <= RADIUS; ++j)
        sum += f.weight[j + RADIUS] *
               (f.step == DOWN ? sample(p, w, h, x, y + j) : sample(p, w, h, x + j, y));
    return f.step == DOWN ? sum : (sum + UNIT * UNIT / 2) / (UNIT * UNIT);
}

template <typename Out, typename In>
static __global__ void filter_kernel(Out *out, const In *in, filter_t f, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, bytes = f.layout.at[3];
    if (i < n) out[i] = (Out)filter_at(f, in + i / bytes * bytes, i % bytes);
}

static cudaError_t filter_stage(const spipe_chunk_t *c, void *user) {
    typedef unsigned char byte_t;
    const filter_t *f = (const filter_t *)user;
    const size_t n = c->count * f->layout.at[3];
    const byte_t *in =
        SPIPE_BUF_ROW(c, IN, const byte_t, f->layout.at[3]); /* an element: a frame */
    byte_t *out = SPIPE_BUF_ROW(c, OUT, byte_t, f->layout.at[3]);
    if (f->step == DOWN)
        return SPIPE_LAUNCH((filter_kernel<unsigned, byte_t>), spipe_blocks(n, 256), 256, 0,
                            c->stream, SPIPE_BUF_ROW(c, MIDDLE, unsigned, f->layout.at[3]), in, *f,
                            n);
    if (f->step == ACROSS)
        return SPIPE_LAUNCH((filter_kernel<byte_t, unsigned>), spipe_blocks(n, 256), 256, 0,
                            c->stream, out,
                            SPIPE_BUF_ROW(c, MIDDLE, const unsigned, f->layout.at[3]), *f, n);
    return SPIPE_LAUNCH((filter_kernel<byte_t, byte_t>), spipe_blocks(n, 256), 256, 0, c, out, in,
                        *f, n);
}

/* Fills in the steps of a filter and says how many there are, 1 or 2; 0 = it knows no such name.
   gblur's weights are what six exponentials, there and back, make of a single bright pixel. */
static int filter_make(filter_t *f, const char *name, const layout_t *layout) {
    const double lambda = 1.5 * 1.5 / (2 * 6);
    const double nu = (1 + 2 * lambda - sqrt(1 + 4 * lambda)) / (2 * lambda);
    double w[65] = {0}, sum = 0;
    unsigned *weight = f[0].weight + RADIUS;
    const int blur = strcmp(name, "gblur") == 0, sobel = strcmp(name, "sobel") == 0;
    int i, pass;
    f[0].step = blur ? DOWN : NEGATE;
    if (sobel) f[0].step = SOBEL;
    f[0].layout = *layout;
    for (w[32] = 1, pass = 0; pass < 6; ++pass) {
        for (i = 1; i < 65; ++i) w[i] += nu * w[i - 1];
        for (i = 63; i >= 0; --i) w[i] += nu * w[i + 1];
    }
    for (i = -RADIUS; i <= RADIUS; ++i) sum += w[32 + i];
    for (weight[0] = UNIT, i = 1; i <= RADIUS; ++i) {
        weight[i] = weight[-i] = (unsigned)(w[32 + i] / sum * (double)UNIT + 0.5);
        weight[0] -= 2 * weight[i];
    }
    f[1] = f[0];
    f[1].step = ACROSS;
    return blur ? 2 : sobel || strcmp(name, "negate") == 0;
}
