/*  test_wide_halos.cu -- a halo wider than the whole input: pictures of one pixel, the last tile of
    an image, short files. What lies beyond both ends is what the edge says. */
#include "pipe_common.h"

enum {
    MOST = 12,
    HALO = 9
};

static const size_t counts[] = {1, 2, 3, 5, 8, 9, 10, MOST};

typedef struct world {
    unsigned char x[MOST * 3], y[MOST * 3 * (2 * HALO + 1)];
    size_t count, elem, before, after, given;
} world_t;

/* Copies each element's window, all 1 + before + after elements, to the output. */
static __global__ void windows(const unsigned char *x, unsigned char *y, size_t n, size_t elem,
                               size_t before, size_t after) {
    const size_t width = (1 + before + after) * elem;
    const size_t step = (size_t)blockDim.x * gridDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n * width; i += step) {
        y[i] = (x - before * elem)[i / width * elem + i % width];
    }
}

static cudaError_t stage(const spipe_chunk_t *c, void *user) {
    const world_t *w = (const world_t *)user;
    const size_t width = (1 + w->before + w->after) * w->elem;
    return SPIPE_LAUNCH(windows, spipe_blocks(c->count * width, 64), 64, 0, c->stream,
                        SPIPE_BUF_ROW(c, 0, const unsigned char, w->elem),
                        SPIPE_BUF_ROW(c, 1, unsigned char, width), c->count, w->elem, w->before,
                        w->after);
}

static cudaError_t source(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    world_t *w = (world_t *)user;
    *count = w->count - w->given < max_count ? w->count - w->given : max_count;
    if (*count > 2) *count = 2;
    memcpy(dst, w->x + w->given * w->elem, *count * w->elem);
    w->given += *count;
    return cudaSuccess;
}

static cudaError_t source_at(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t first = part->first, count = part->count;
    const world_t *w = (const world_t *)user;
    if (first + count > w->count) return cudaErrorInvalidValue;
    memcpy(dst, w->x + first * w->elem, count * w->elem);
    return cudaSuccess;
}

/* What an element's window holds: the element at, counted from the first, or what is beyond. */
static unsigned char expected(const world_t *w, long at, size_t byte, spipe_edge_t edge) {
    const long last = (long)w->count - 1;
    if ((at < 0 || at > last) && edge == SPIPE_EDGE_ZERO) return 0;
    if (at < 0) at = 0;
    if (at > last) at = last;
    return w->x[(size_t)at * w->elem + byte];
}

static size_t num_wrong(const world_t *w, spipe_edge_t edge) {
    const unsigned char *y = w->y;
    size_t i, k, b, wrong = 0;
    for (i = 0; i < w->count; ++i) {
        for (k = 0; k < 1 + w->before + w->after; ++k) {
            for (b = 0; b < w->elem; ++b, ++y) {
                wrong += *y != expected(w, (long)i + (long)k - (long)w->before, b, edge);
            }
        }
    }
    return wrong;
}

enum {
    PAGEABLE,
    PINNED,
    SOURCE,
    ENDLESS,
    SOURCE_AT,
    NUM_KINDS
};

static const char *const kind_names[] = {"pageable", "pinned", "source", "source without count",
                                         "positioned source"};

static spipe_desc_t describe(world_t *w, int kind, spipe_edge_t edge, unsigned char *pinned) {
    spipe_desc_t d = spipe_desc_default();
    if (kind != ENDLESS) d.count = w->count;
    if (kind == PAGEABLE) spipe_add_input(&d, w->x, w->elem);
    if (kind == PINNED) spipe_add_input(&d, pinned, w->elem);
    if (kind == SOURCE || kind == ENDLESS) spipe_add_source(&d, source, w, w->elem, SPIPE_IN_ORDER);
    if (kind == SOURCE_AT) spipe_add_source(&d, source_at, w, w->elem, SPIPE_ANY_ORDER);
    spipe_set_halo(&d, 0, w->before, w->after, edge);
    return d;
}

static cudaError_t sink(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    world_t *w = (world_t *)user;
    const size_t width = (1 + w->before + w->after) * w->elem;
    memcpy(w->y + first * width, src, count * width);
    return cudaSuccess;
}

/* Every halo of every width, on either side, for every kind of input; kept, with a count that
   becomes smaller than the halo. */
static void test_kind(int kind, spipe_edge_t edge, unsigned char *pinned) {
    world_t w;
    size_t wrong = 0, k, before, after;
    cudaError_t e = cudaSuccess;
    char said[320] = "";
    int checked;
    for (k = 0; k < sizeof counts / sizeof *counts; ++k) {
        for (before = 0; before <= HALO; before += 3) {
            for (after = 0; after <= HALO; after += 3) {
                for (checked = 0; checked < 2; ++checked) {
                    spipe_desc_t d;
                    spipe_report_t r;
                    cudaError_t now;
                    memset(&w, 0, sizeof w);
                    w.count = counts[k];
                    w.elem = 1 + k % 3;
                    w.before = before;
                    w.after = after;
                    for (size_t i = 0; i < sizeof w.x; ++i) {
                        w.x[i] = (unsigned char)(1 + pipe_random() % 255);
                    }
                    memcpy(pinned, w.x, sizeof w.x);
                    d = describe(&w, kind, edge, pinned);
                    spipe_add_sink(&d, sink, &w, (1 + before + after) * w.elem, SPIPE_IN_ORDER);
                    spipe_add_stage(&d, "windows", stage, &w);
                    d.checked = checked;
                    if (before == after) d.chunk = 16;
                    if (kind == PAGEABLE) d.staging = (spipe_staging_t)(k % 4);
                    if (after == 3) d.schedule = SPIPE_SCHEDULE_SERIAL;
                    now = spipe_run(&d, &r);
                    if (now != cudaSuccess) snprintf(said, sizeof said, "%s", r.failure.message);
                    if (now != cudaSuccess) e = now;
                    wrong += num_wrong(&w, edge);
                }
            }
        }
    }
    tap_ok(e == cudaSuccess && wrong == 0, "a halo wider than the whole, %s, %s: %zu wrong; %s",
           kind_names[kind], edge == SPIPE_EDGE_ZERO ? "zeros" : "clamped", wrong, said);
}

/* A kept pipeline whose count becomes smaller than its halo, and larger again. */
static void test_count(unsigned char *pinned) {
    static const size_t then[] = {MOST, 1, 4, MOST, 2};
    world_t w;
    spipe_desc_t d;
    spipe_pipeline_t *p;
    size_t k, wrong = 0;
    cudaError_t e;
    memset(&w, 0, sizeof w);
    w.count = MOST;
    w.elem = 2;
    w.before = w.after = HALO;
    for (k = 0; k < sizeof w.x; ++k) w.x[k] = (unsigned char)(1 + pipe_random() % 255);
    d = describe(&w, PAGEABLE, SPIPE_EDGE_CLAMP, pinned);
    spipe_add_sink(&d, sink, &w, (1 + 2 * HALO) * w.elem, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "windows", stage, &w);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (k = 0, e = cudaSuccess; k < sizeof then / sizeof *then && e == cudaSuccess; ++k) {
        w.count = then[k];
        e = spipe_pipeline_set_count(p, w.count);
        memset(w.y, 0, sizeof w.y);
        if (e == cudaSuccess) e = spipe_pipeline_run(p, NULL);
        wrong += num_wrong(&w, SPIPE_EDGE_CLAMP);
    }
    tap_ok(e == cudaSuccess && wrong == 0,
           "a kept pipeline's count may become smaller than its halo: %zu wrong; %s", wrong,
           spipe_pipeline_failure(p)->message);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
}

int main(void) {
    pipe_array_t pinned = pipe_array_new(MOST * 3, PIPE_PINNED);
    int kind;
    for (kind = PAGEABLE; kind < NUM_KINDS; ++kind) {
        test_kind(kind, SPIPE_EDGE_CLAMP, pinned.at);
        test_kind(kind, SPIPE_EDGE_ZERO, pinned.at);
    }
    test_count(pinned.at);
    pipe_free(&pinned);
    return tap_done();
}
