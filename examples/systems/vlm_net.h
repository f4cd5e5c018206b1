/*  vlm_net.h -- for vlm.cu: a tiny network that answers questions about pictures, its weights in a
    file, the pictures, and how it was trained. What runs for one patch or one picture is
    written once, for the GPU and for the CPU that checks it.

    A picture of 16 x 16 is 16 patches. Preprocessing makes numbers of its bytes; the encoder makes
    FEATURES of each patch; the decoder looks where the question says (attention), and takes the
    word with the highest score.                                                                 */
#ifndef VLM_NET_H
#define VLM_NET_H

#include "../ex_common.h"

#include <math.h>

enum {
    SIDE = 16,
    PATCHES = 16,
    INPUTS = 48, /* per patch: 4 x 4 pixels of 3 bytes */
    FEATURES = 24,
    QUESTIONS = 3,
    WORDS = 9
};

typedef struct request {
    unsigned char pixels[SIDE * SIDE * 3];
    int question, expected; /* expected: the right word, for the count */
} request_t;

typedef struct answer {
    int word;
    float score;
} answer_t;

typedef struct weights {
    float encode[FEATURES][INPUTS], bias[FEATURES], place[PATCHES][FEATURES];
    float look[QUESTIONS][FEATURES]; /* attention: what a question looks for */
    float word[WORDS][2 * FEATURES], prior[QUESTIONS][WORDS];
} weights_t;

static const char *const VLM_WORDS[WORDS] = {"red",  "green", "blue", "yellow", "square",
                                             "disc", "cross", "left", "right"};

/* Input k of a patch. */
static __host__ __device__ inline float vlm_input(const request_t *r, int patch, int k) {
    const int pixel = k / 3, x = patch % 4 * 4 + pixel % 4, y = patch / 4 * 4 + pixel / 4;
    return (float)r->pixels[3 * (y * SIDE + x) + k % 3] / 64.0f - 2.0f;
}

/* Feature f of a patch, of its inputs. */
static __host__ __device__ inline float vlm_feature(const weights_t *w, const float *in, int patch,
                                                    int f) {
    float sum = w->bias[f] + w->place[patch][f];
    for (int k = 0; k < INPUTS; ++k) sum += w->encode[f][k] * in[patch * INPUTS + k];
    return sum > 0.0f ? sum : 0.0f;
}

/* seen: the features' mean weighted by the question's attention, then their plain mean. */
static __host__ __device__ inline void vlm_look(const weights_t *w, const float *h, int question,
                                                float share[PATCHES], float seen[2 * FEATURES]) {
    float most = -1e30f, all = 0.0f;
    for (int p = 0; p < PATCHES; ++p) {
        share[p] = 0.0f;
        for (int f = 0; f < FEATURES; ++f) share[p] += w->look[question][f] * h[p * FEATURES + f];
        most = fmaxf(most, share[p]);
    }
    for (int p = 0; p < PATCHES; ++p) all += share[p] = expf(share[p] - most);
    for (int f = 0; f < 2 * FEATURES; ++f) seen[f] = 0.0f;
    for (int p = 0; p < PATCHES; ++p) {
        share[p] /= all;
        for (int f = 0; f < FEATURES; ++f) {
            seen[f] += share[p] * h[p * FEATURES + f];
            seen[FEATURES + f] += h[p * FEATURES + f] / PATCHES;
        }
    }
}

static __host__ __device__ inline float vlm_score(const weights_t *w, const float *seen,
                                                  int question, int word) {
    float sum = w->prior[question][word];
    for (int f = 0; f < 2 * FEATURES; ++f) sum += w->word[word][f] * seen[f];
    return sum;
}

static __host__ __device__ inline answer_t vlm_answer(const weights_t *w, const float *h,
                                                      int question) {
    float share[PATCHES], seen[2 * FEATURES];
    answer_t best = {0, -1e30f};
    vlm_look(w, h, question, share, seen);
    for (int k = 0; k < WORDS; ++k) {
        const float score = vlm_score(w, seen, question, k);
        if (score > best.score) best.word = k;
        best.score = fmaxf(best.score, score);
    }
    return best;
}

/* ---- Pictures: a shape of one colour, in one half, on a grainy ground ------------------------ */

static inline unsigned vlm_random(unsigned *state, unsigned below) {
    *state = EX_NEXT(*state);
    return (*state >> 10) % below;
}

static inline void vlm_make(request_t *r, unsigned *state) {
    static const unsigned char colours[4][3] = {
        {220, 40, 40}, {40, 200, 60}, {50, 60, 230}, {225, 215, 40}};
    const int colour = (int)vlm_random(state, 4), shape = (int)vlm_random(state, 3);
    const int right = (int)vlm_random(state, 2);
    const int cx = 3 + 8 * right + (int)vlm_random(state, 3), cy = 4 + (int)vlm_random(state, 8);
    for (int i = 0; i < SIDE * SIDE; ++i) {
        const int x = i % SIDE - cx, y = i / SIDE - cy;
        int in = abs(x) <= 3 && abs(y) <= 3;
        if (shape == 1) in = x * x + y * y <= 10;
        if (shape == 2) in = in && (abs(x) <= 0 || abs(y) <= 0);
        for (int c = 0; c < 3; ++c) {
            const int light = in ? colours[colour][c] : 110;
            r->pixels[3 * i + c] = (unsigned char)(light - 20 + (int)vlm_random(state, 40));
        }
    }
    r->question = (int)vlm_random(state, QUESTIONS);
    const int right_words[QUESTIONS] = {colour, 4 + shape, 7 + right};
    r->expected = right_words[r->question];
}

/* ---- On the CPU ------------------------------------------------------------------------------ */

static inline answer_t vlm_cpu(const weights_t *w, const request_t *r, float *in, float *h) {
    for (int i = 0; i < PATCHES * INPUTS; ++i) in[i] = vlm_input(r, i / INPUTS, i % INPUTS);
    for (int i = 0; i < PATCHES * FEATURES; ++i)
        h[i] = vlm_feature(w, in, i / FEATURES, i % FEATURES);
    return vlm_answer(w, h, r->question);
}

/* One step of stochastic gradient descent, on one picture; the loss before it. */
static inline float vlm_learn(weights_t *w, const request_t *r, float rate) {
    float in[PATCHES * INPUTS], h[PATCHES * FEATURES], share[PATCHES], seen[2 * FEATURES];
    float score[WORDS], all = 0.0f, most = -1e30f, to_seen[2 * FEATURES] = {0}, mean = 0.0f;
    float by_share[PATCHES];
    const int q = r->question;
    (void)vlm_cpu(w, r, in, h);
    vlm_look(w, h, q, share, seen);
    for (int k = 0; k < WORDS; ++k) most = fmaxf(most, score[k] = vlm_score(w, seen, q, k));
    for (int k = 0; k < WORDS; ++k) all += score[k] = expf(score[k] - most);
    const float loss = logf(all / score[r->expected]);
    for (int k = 0; k < WORDS; ++k) {
        const float g = score[k] / all - (k == r->expected ? 1.0f : 0.0f);
        for (int f = 0; f < 2 * FEATURES; ++f) {
            to_seen[f] += g * w->word[k][f];
            w->word[k][f] -= rate * g * seen[f];
        }
        w->prior[q][k] -= rate * g;
    }
    for (int p = 0; p < PATCHES; ++p) {
        by_share[p] = 0.0f;
        for (int f = 0; f < FEATURES; ++f) by_share[p] += to_seen[f] * h[p * FEATURES + f];
        mean += share[p] * by_share[p];
    }
    float to_look[FEATURES] = {0};
    for (int p = 0; p < PATCHES; ++p) {
        const float to_logit = share[p] * (by_share[p] - mean);
        for (int f = 0; f < FEATURES; ++f) {
            const float x = h[p * FEATURES + f];
            float g =
                share[p] * to_seen[f] + to_seen[FEATURES + f] / PATCHES + to_logit * w->look[q][f];
            to_look[f] += to_logit * x;
            if (!(x > 0.0f)) continue;
            g *= rate;
            w->bias[f] -= g;
            w->place[p][f] -= g;
            for (int k = 0; k < INPUTS; ++k) w->encode[f][k] -= g * in[p * INPUTS + k];
        }
    }
    for (int f = 0; f < FEATURES; ++f) w->look[q][f] -= rate * to_look[f];
    return loss;
}

/* ---- The file: numbers as text --------------------------------------------------------------- */

enum {
    VLM_NUMBERS = sizeof(weights_t) / sizeof(float)
};

static inline int vlm_read(weights_t *w, const char *path) {
    FILE *f = fopen(path, "r");
    float *number = &w->encode[0][0];
    int k = 0;
    for (; f && k < VLM_NUMBERS && fscanf(f, "%f", &number[k]) == 1;) ++k;
    if (f) fclose(f);
    if (!f)
        fprintf(stderr, "%s is not there: run it in the folder that it was compiled in\n", path);
    else if (k < VLM_NUMBERS)
        fprintf(stderr, "%s: %d of %d weights\n", path, k, (int)VLM_NUMBERS);
    return k == VLM_NUMBERS;
}

/* Trains on pictures that it makes, for some seconds, and writes the weights. */
static inline int vlm_train(const char *path) {
    static weights_t w;
    float *number = &w.encode[0][0], loss = 0.0f;
    unsigned state = 7;
    request_t r;
    const int steps = 600000;
    for (int k = 0; k < VLM_NUMBERS; ++k)
        number[k] = ((float)vlm_random(&state, 2000) / 1000.0f - 1.0f) * 0.15f;
    for (int k = 1; k <= steps; ++k) {
        vlm_make(&r, &state);
        loss += vlm_learn(&w, &r, 0.006f * (1.0f - 0.98f * (float)k / (float)steps));
        if (k % (steps / 10) == 0)
            printf("%d pictures, loss %.4f\n", k, (double)loss / (steps / 10));
        if (k % (steps / 10) == 0) loss = 0.0f;
    }
    FILE *f = fopen(path, "w");
    for (int k = 0; f && k < VLM_NUMBERS; ++k)
        fprintf(f, "%.4g%c", (double)number[k], k % 12 == 11 ? '\n' : ' ');
    if (f) fprintf(f, "\n");
    return f && fclose(f) == 0;
}

#endif /* VLM_NET_H */
