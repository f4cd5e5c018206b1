/*  test_pinned_ring.cu -- the memory of slots: whatever a kept pipeline is set to, and whichever
    setting it tries, every buffer of every slot lies whole in its arena, apart from others. */
#include "pipe_common.h"
#if defined(__HOSTCUDA__)
#include "hostcuda.h"
#endif

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

/* All slots' pinned twins: those that there should be, inside, and apart from other slots'. */
static int slots_are_whole(const spipe_pipeline_t *pipeline, int in, int out) {
    const spipe_priv_pipeline_t *p = (const spipe_priv_pipeline_t *)(const void *)pipeline;
    const size_t bytes = p->plan.chunk;
    const unsigned char *all[2 * SPIPE_MAX_DEPTH];
    size_t k, j, of[2 * SPIPE_MAX_DEPTH], num = 0;
    for (k = 0; k < p->plan.depth; ++k) {
        const spipe_priv_slot_t *s = &p->memory.slots[k];
        if ((s->pin_in[0] != NULL) != in || (s->pin_out[1] != NULL) != out) return 0;
        of[num] = k;
        if (in) all[num++] = s->pin_in[0];
        of[num] = k;
        if (out) all[num++] = s->pin_out[1];
    }
    for (k = 0; k < num; ++k) {
        if (!is_inside(&p->memory, all[k], bytes)) return 0;
        for (j = 0; j < k; ++j) {
            if (of[j] != of[k] && all[j] < all[k] + bytes && all[k] < all[j] + bytes) return 0;
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

/* ---- All settings ---------------------------------------------------------------------------- */

typedef struct span {
    const unsigned char *from, *to;
    size_t of; /* twice the slot, plus 1 if it goes out */
} span_t;

static size_t add_span(span_t *spans, size_t n, const unsigned char *at, size_t bytes, size_t of) {
    if (!at) return n;
    spans[n].of = of;
    spans[n].from = at;
    spans[n].to = at + bytes;
    return n + 1;
}

/* Of an arena: that its spans are inside, and none touches another, unless one is what comes into a
   slot and the other what goes out of it. */
static int are_apart(const span_t *s, size_t n, const unsigned char *arena, size_t bytes) {
    size_t i, j;
    for (i = 0; i < n; ++i) {
        if (s[i].from < arena || s[i].to > arena + bytes || s[i].from >= s[i].to) return 0;
        for (j = 0; j < i; ++j) {
            if ((s[i].of ^ s[j].of) == 1) continue;
            if (s[i].from < s[j].to && s[j].from < s[i].to) return 0;
        }
    }
    return 1;
}

static int layout_is_right(const spipe_priv_pipeline_t *p) {
    span_t device[SPIPE_MAX_DEPTH * 4], pinned[SPIPE_MAX_DEPTH * 4];
    const size_t elements = p->plan.chunk;
    size_t k, on_device = 0, on_host = 0;
    int i;
    for (k = 0; k < p->plan.depth; ++k) {
        const spipe_priv_slot_t *s = &p->memory.slots[k];
        for (i = 0; i < p->request.desc.num_buffers; ++i) {
            const size_t bytes = elements * p->request.desc.buffers[i].elem_bytes;
            on_device = add_span(device, on_device, s->dev[i], bytes, 2 * k);
            on_host = add_span(pinned, on_host, s->pin_in[i], bytes, 2 * k);
            if (s->pin_out[i] == s->pin_in[i]) continue;
            on_host = add_span(pinned, on_host, s->pin_out[i], bytes, 2 * k + 1);
        }
    }
    return are_apart(device, on_device, p->memory.device, p->memory.device_bytes) &&
           are_apart(pinned, on_host, p->memory.pinned, p->memory.pinned_bytes);
}

static cudaError_t copy(const spipe_chunk_t *c, void *user) {
    const size_t bytes = c->count * *(const size_t *)user;
    return cudaMemcpyAsync(c->data[1], c->data[0], bytes, cudaMemcpyDeviceToDevice, c->stream);
}

enum {
    BYTES = 4 << 20,
    RUNS = 60 /* more than a climb takes */
};

/* Runs that climb: after each of them the layout is that of the setting that it tried. */
static void test_settings(size_t elem_bytes, int memory) {
    pipe_array_t x = pipe_array_new(BYTES, memory), y = pipe_array_new(BYTES, memory);
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    spipe_pipeline_t *p;
    size_t k, wrong = 0, changes = 0, before = 0;
    pipe_randomise(x);
    d.count = BYTES / elem_bytes;
    d.staging = SPIPE_STAGING_COPY;
    spipe_add_input(&d, x.at, elem_bytes);
    spipe_add_output(&d, y.at, elem_bytes);
    spipe_add_temp(&d, elem_bytes);
    spipe_add_stage(&d, "copy", copy, &elem_bytes);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (k = 0; k < RUNS; ++k) {
        pipe_poison(y);
        SPIPE_CHECK(spipe_pipeline_run(p, &r));
        pipe_reads(y.at, BYTES);
        wrong += memcmp(x.at, y.at, BYTES) != 0;
        if (!pipe_sanitized()) /* there each buffer is an allocation */
            wrong += !layout_is_right((const spipe_priv_pipeline_t *)(const void *)p);
        changes += k > 0 && r.chunk != before;
        before = r.chunk;
        if (!r.trying) break;
    }
    tap_ok(changes > 0 && wrong == 0 && !r.trying && r.found > 0,
           "%s, elements of %zu, %zu runs, whose chunk changes %zu times: right, buffers apart",
           pipe_memory_names[memory], elem_bytes, k + 1, changes);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    pipe_free(&x);
    pipe_free(&y);
}

/* Where one chunk is better, the climb tries a smaller one last, where another is, a larger one. */
static void test_machines(void) {
#if defined(__HOSTCUDA__)
    static const char *const names[] = {"c1060", "k20c", "h200"};
    size_t k;
    for (k = 0; k < sizeof names / sizeof *names; ++k) {
        const hostcuda_profile_t profile = hostcuda_profile(names[k]);
        SPIPE_CHECK(hostcuda_set_profile(0, &profile));
        test_settings(1, PIPE_PINNED);
        test_settings(4096, PIPE_PINNED);
    }
#else
    test_settings(1, PIPE_PINNED);
#endif
    test_settings(1, PIPE_PAGEABLE);
    test_settings(4096, PIPE_PAGEABLE);
}

int main(void) {
    test_machines();
    test_grow(CHUNK, 1);
    test_grow(SPIPE_AUTO, 2);
    return tap_done();
}
