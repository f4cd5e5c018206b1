/*  test_pinned_ring.cu -- the pinned memory that pageable arrays pass through: whatever a kept
    pipeline is set to, every slot lies whole in it, and nothing else does. */
#include "pipe_common.h"

enum {
    CHUNK = 100000,
    N = 8 * CHUNK + 17
};

/* Whether memory of a slot lies in the pinned arena, and CUDA knows all of it as pinned. */
static int is_inside(const spipe_priv_memory_t *m, const unsigned char *at, size_t bytes) {
    int pinned = 0;
    if (!at || at < m->pinned || at + bytes > m->pinned + m->pinned_bytes) return 0;
    return spipe_is_pinned(at, bytes, &pinned) == cudaSuccess && pinned;
}

/* All slots' pinned twins: those that there should be, inside, and apart from each other. */
static int slots_are_whole(const spipe_pipeline_t *pipeline, int in, int out) {
    const spipe_priv_pipeline_t *p = (const spipe_priv_pipeline_t *)(const void *)pipeline;
    const size_t bytes = p->plan.chunk * p->plan.batch;
    const unsigned char *all[2 * SPIPE_MAX_DEPTH];
    size_t k, j, num = 0;
    for (k = 0; k < p->plan.depth; ++k) {
        const spipe_priv_slot_t *s = &p->memory.slots[k];
        if ((s->pin_in[0] != NULL) != in || (s->pin_out[1] != NULL) != out) return 0;
        if (in) all[num++] = s->pin_in[0];
        if (out) all[num++] = s->pin_out[1];
    }
    for (k = 0; k < num; ++k) {
        if (!is_inside(&p->memory, all[k], bytes)) return 0;
        for (j = 0; j < k; ++j) {
            if (all[j] < all[k] + bytes && all[k] < all[j] + bytes) return 0;
        }
    }
    return num > 0 || (!in && !out);
}

static int runs_right(spipe_pipeline_t *p, pipe_array_t x, pipe_array_t y) {
    size_t i;
    pipe_randomise(x);
    pipe_poison(y);
    if (spipe_pipeline_run(p, NULL) != cudaSuccess) return 0;
    for (i = 0; i < N; ++i) {
        if (y.at[i] != pipe_mix(x.at[i], i)) return 0;
    }
    return pipe_guard_whole(y);
}

/* From one kind of memory to another and back; the ring grows on the way, and stays. */
static void test_grow(size_t chunk, size_t threads) {
    static const int kinds[][2] = {{PIPE_PINNED, PIPE_PINNED},       {PIPE_PINNED, PIPE_PAGEABLE},
                                   {PIPE_PAGEABLE, PIPE_PAGEABLE},   {PIPE_PAGEABLE, PIPE_PINNED},
                                   {PIPE_UNALIGNED, PIPE_UNALIGNED}, {PIPE_PINNED, PIPE_PINNED}};
    pipe_array_t x[PIPE_NUM_MEMORIES], y[PIPE_NUM_MEMORIES];
    pipe_mix_args_t args = {0, 1, 1};
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    size_t k;
    for (k = 0; k < PIPE_NUM_MEMORIES; ++k) {
        x[k] = pipe_array_new(N, (int)k);
        y[k] = pipe_array_new(N, (int)k);
    }
    d.count = N;
    d.chunk = chunk;
    d.threads = threads;
    d.staging = SPIPE_STAGING_COPY;
    spipe_add_input(&d, x[PIPE_PINNED].at, 1);
    spipe_add_output(&d, y[PIPE_PINNED].at, 1);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (k = 0; k < sizeof kinds / sizeof *kinds; ++k) {
        const pipe_array_t from = x[kinds[k][0]], to = y[kinds[k][1]];
        SPIPE_CHECK(spipe_pipeline_set_host(p, 0, from.at));
        SPIPE_CHECK(spipe_pipeline_set_host(p, 1, to.at));
        if (!tap_ok(slots_are_whole(p, kinds[k][0] != PIPE_PINNED, kinds[k][1] != PIPE_PINNED),
                    "%s in, %s out, chunk %s: the ring has room for every slot",
                    pipe_memory_names[kinds[k][0]], pipe_memory_names[kinds[k][1]],
                    chunk == SPIPE_AUTO ? "left open" : "given")) {
            break; /* a run would write where it may not */
        }
        tap_ok(runs_right(p, from, to), "and the run is right");
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    for (k = 0; k < PIPE_NUM_MEMORIES; ++k) {
        pipe_free(&x[k]);
        pipe_free(&y[k]);
    }
}

int main(void) {
    test_grow(CHUNK, 1);
    test_grow(SPIPE_AUTO, 2);
    return tap_done();
}
