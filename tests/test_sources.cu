/*  test_sources.cu -- several sources: if they give the same number of elements, the run is
    right, whatever their halos and the pieces that they give; if not, the run fails and no data
    is cut off silently. */
#include "pipe_common.h"

/* The lengths that are tried, each with each: a quarter of the pairs where all is instrumented. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum {
    MOST = 17
};
#else
enum {
    MOST = 34
};
#endif

enum {
    CHUNK = 10,
    MOST_HALO = 3
};

typedef struct giver {
    size_t given, total, piece;
    unsigned salt;
} giver_t;

static unsigned element(unsigned salt, size_t at) {
    return (unsigned)(at + 1) * 2654435761u ^ salt;
}

static cudaError_t give(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    giver_t *g = (giver_t *)user;
    size_t n = g->total - g->given, i;
    if (n > max_count) n = max_count;
    if (n > g->piece) n = g->piece;
    for (i = 0; i < n; ++i) ((unsigned *)dst)[i] = element(g->salt, g->given + i);
    g->given += n;
    *count = n;
    return cudaSuccess;
}

typedef struct taker {
    unsigned got[MOST + MOST_HALO];
    size_t taken;
} taker_t;

static cudaError_t take(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    taker_t *t = (taker_t *)user;
    if (first != t->taken || first + count > MOST + MOST_HALO) return cudaErrorUnknown;
    memcpy(t->got + first, src, count * sizeof *t->got);
    t->taken += count;
    return cudaSuccess;
}

static __global__ void sum_kernel(const unsigned *a, const unsigned *b, unsigned *y, size_t n,
                                  int halo_a, int halo_b) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = 0;
    for (int k = 0; k <= halo_a; ++k) y[i] += a[i + (size_t)k];
    for (int k = 0; k <= halo_b; ++k) y[i] += 7 * b[i + (size_t)k];
}

static cudaError_t sum_stage(const spipe_chunk_t *c, void *user) {
    const int *halos = (const int *)user;
    return SPIPE_LAUNCH(sum_kernel, 1, 32, 0, c->stream, SPIPE_BUF(c, 0, const unsigned),
                        SPIPE_BUF(c, 1, const unsigned), SPIPE_BUF(c, 2, unsigned), c->count,
                        halos[0], halos[1]);
}

/* Beyond the last element it is repeated. */
static unsigned sum_at(const giver_t *g, int halo, size_t at) {
    unsigned sum = 0;
    int k;
    for (k = 0; k <= halo; ++k) {
        const size_t i = at + (size_t)k;
        sum += element(g->salt, i < g->total ? i : g->total - 1);
    }
    return sum;
}

/* A run with sources of a and b elements: 1 when it says what it must. */
static int says_right(size_t a, size_t b, const int *halos, size_t piece, size_t depth) {
    giver_t first = {0, a, piece, 1}, second = {0, b, piece, 2};
    taker_t out;
    int own[2] = {halos[0], halos[1]};
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    size_t i, wrong = 0;
    memset(&out, 0, sizeof out);
    d.chunk = CHUNK;
    d.depth = depth;
    d.threads = 0;
    spipe_add_source(&d, give, &first, sizeof(unsigned), SPIPE_IN_ORDER);
    spipe_add_source(&d, give, &second, sizeof(unsigned), SPIPE_IN_ORDER);
    spipe_add_sink(&d, take, &out, sizeof(unsigned), SPIPE_IN_ORDER);
    for (i = 0; i < 2; ++i) {
        if (own[i] > 0) spipe_set_halo(&d, (int)i, 0, (size_t)own[i], SPIPE_EDGE_CLAMP);
    }
    spipe_add_stage(&d, "sum", sum_stage, own);
    const cudaError_t e = spipe_run(&d, &r);
    for (i = 0; i < out.taken; ++i) {
        wrong += out.got[i] != sum_at(&first, own[0], i) + 7 * sum_at(&second, own[1], i);
    }
    if (a == b ? e == cudaSuccess && out.taken == a && wrong == 0
               : e == cudaErrorInvalidValue && strstr(r.failure.message, "disagree") != NULL)
        return 1;
    tap_note("%zu and %zu elements, halos %d and %d, %zu slots: %zu taken, %zu wrong, error %d: %s",
             a, b, halos[0], halos[1], depth, out.taken, wrong, (int)e, r.failure.message);
    return 0;
}

static void test_halos(int halo_a, int halo_b, size_t piece, size_t depth) {
    const int halos[2] = {halo_a, halo_b};
    size_t a, b, equal = 0, different = 0;
    for (a = 0; a <= MOST; ++a) {
        equal += !says_right(a, a, halos, piece, depth);
        for (b = 0; b <= MOST; ++b) {
            different += a != b && !says_right(a, b, halos, piece, depth);
        }
    }
    tap_ok(equal == 0,
           "halos of %d and %d, pieces of %zu, %zu slots: sources of one length make a run", halo_a,
           halo_b, piece, depth);
    tap_ok(different == 0, "and of two lengths, they are said to disagree");
}

int main(void) {
    test_halos(0, 0, 1000, 3);
    test_halos(0, 0, 3, 3);
    test_halos(MOST_HALO, MOST_HALO, 1000, 3);
    test_halos(0, MOST_HALO, 1000, 3);
    test_halos(0, MOST_HALO, 1000, 1); /* its slot is filled again while others end */
    test_halos(MOST_HALO, 0, 7, 1);
    test_halos(1, MOST_HALO, 1000, 2);
    return tap_done();
}
