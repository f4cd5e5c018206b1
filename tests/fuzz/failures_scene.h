/*  failures_scene.h -- a long run made out of bytes that fails on the device, or is stopped, and
    what must be said to be whole of it. The reference knows what the host waits for, in chunks; it
    looks at no stream, slot or event.

    The kernel of one chunk waits for a flag and fails then. The flag is raised when the host can
    get no further, so what it has seen to be whole by then is a number and not a matter of time. */
#ifndef FAILURES_SCENE_H
#define FAILURES_SCENE_H

#include <cuda_runtime.h>

/* The library's questions whether an event was reached; some are held up (failures_world.h). */
static inline cudaError_t fails_query(cudaEvent_t event);
#define cudaEventQuery fails_query
#include "fuzz/fuzz_scene.h"
#undef cudaEventQuery

enum { /* what happens to the run */
    FAILS_ON_DEVICE,
    FAILS_STOPPED
};

enum { /* what an array is, and what a source or a sink is */
    FAILS_PINNED,
    FAILS_PAGEABLE,
    FAILS_HOSTED
};

enum {
    FAILS_MAX_STAGES = 4,
    FAILS_FAR = 16 /* chunks whose ends are recorded at once, and such records that there are */
};

typedef struct fails_scene {
    int what, way, ins[2], num_ins, outs[2], num_outs, num_stages, bad_stage;
    size_t chunk, num_chunks, count, elem_bytes, depth, threads, bad;
    spipe_schedule_t schedule;
    spipe_staging_t staging;
    int progress, checked, open_ended;
    int apart;      /* 1 = stage 1 does not wait for stage 0 */
    int prompt;     /* 1 = the next call returns the error (hostcuda) */
    int watched;    /* 1 = the test may ask a one-shot run how far it is */
    int fine_first; /* kept: a run before it that does not fail */
    size_t stop_at; /* chunks told, after which the callback stops the run */
    unsigned salt;
} fails_scene_t;

/* What a run does with the scene: the plan's, and what follows from it. */
typedef struct fails_run {
    const fails_scene_t *s;
    size_t depth, num, bad; /* slots; chunks; the one that fails */
    int fills, drains, direct, pins, zero_copy, counted;
    int at_once;      /* 1 = the bad one fails when it can, however far the host is */
    int settles;      /* 1 = the bad one waits until the host has seen what it can */
    size_t last;      /* chunk: the last whose stages are called before the host must wait */
    size_t low, high; /* chunks that the host has seen whole then: at once, and in the end */
} fails_run_t;

/* ---- bytes to a scene ---------------------------------------------------------------------- */
static inline void fails_make_ends(fails_scene_t *s, fuzz_bytes_t *b) {
    const int hosted = fuzz_one_in(b, 3);
    int i;
    s->num_ins = 1 + fuzz_one_in(b, 4);
    s->num_outs = 1 + fuzz_one_in(b, 3);
    for (i = 0; i < 2; ++i) {
        s->ins[i] = hosted ? (int)fuzz_pick(b, 3) : fuzz_one_in(b, 3);
        s->outs[i] = hosted ? (int)fuzz_pick(b, 3) : fuzz_one_in(b, 3);
    }
    s->open_ended = fuzz_one_in(b, 2);
    for (i = 0; i < s->num_ins; ++i) s->open_ended &= s->ins[i] == FAILS_HOSTED;
    for (i = 0; i < s->num_outs; ++i) s->open_ended &= s->outs[i] == FAILS_HOSTED;
}

/* Half of the runs are longer than what the host may be ahead of the GPU: 256 chunks. */
static inline void fails_make_sizes(fails_scene_t *s, fuzz_bytes_t *b) {
    static const size_t chunks[] = {8, 1, 3, 16, 40, 7, 64, 100};
    s->chunk = chunks[fuzz_pick(b, 8)];
    s->num_chunks = fuzz_one_in(b, 2) ? 400 + fuzz_pick(b, 801) : 1 + fuzz_pick(b, 400);
    s->count = s->num_chunks * s->chunk - fuzz_pick(b, s->chunk);
    s->elem_bytes = 1 + fuzz_pick(b, 3);
    s->depth = 1 + fuzz_pick(b, SPIPE_MAX_DEPTH);
    s->threads = fuzz_pick(b, 5);
    s->bad = fuzz_pick(b, 65536) % s->num_chunks;
    if (s->num_chunks > 200 && fuzz_one_in(b, 2)) s->bad %= 100;
    s->stop_at = fuzz_pick(b, 65536) % (s->num_chunks + 1);
}

static inline void fails_make(fails_scene_t *s, const unsigned char *data, size_t size) {
    static const spipe_staging_t stagings[] = {SPIPE_STAGING_COPY, SPIPE_STAGING_COPY,
                                               SPIPE_STAGING_REGISTER, SPIPE_STAGING_DIRECT};
    fuzz_bytes_t b = {data, size};
    s->schedule = (spipe_schedule_t)(SPIPE_SCHEDULE_ENGINES + (int)fuzz_pick(&b, 3));
    s->what = fuzz_one_in(&b, 3) ? FAILS_STOPPED : FAILS_ON_DEVICE;
    fails_make_sizes(s, &b);
    fails_make_ends(s, &b);
    s->staging = stagings[fuzz_pick(&b, 4)];
    s->way = (int)fuzz_pick(&b, FUZZ_NUM_WAYS);
    s->checked = fuzz_one_in(&b, 5);
    s->progress = fuzz_one_in(&b, 3) || s->what == FAILS_STOPPED;
    s->num_stages = 1 + (int)fuzz_pick(&b, FAILS_MAX_STAGES);
    s->bad_stage = (int)fuzz_pick(&b, (size_t)s->num_stages);
    s->apart = s->num_stages > 1 && s->num_outs > 1 && fuzz_one_in(&b, 2);
    s->watched = fuzz_one_in(&b, 2);
    s->fine_first = fuzz_one_in(&b, 3);
    s->salt = fuzz_byte(&b);
#if defined(__HOSTCUDA__)
    s->prompt = s->what == FAILS_ON_DEVICE && fuzz_one_in(&b, 5);
#endif
    /* where nobody watches, the library may choose the number of slots */
    if (s->way == FUZZ_ONE_SHOT && fuzz_one_in(&b, 5)) s->depth = SPIPE_AUTO;
    if (s->what == FAILS_STOPPED && s->way == FUZZ_ENQUEUED) s->way = FUZZ_KEPT;
}

static inline const char *fails_word(int said, const char *word) { return said ? word : ""; }

static inline void fails_print(const fails_scene_t *s) {
    fprintf(stderr,
            "  %s, way %d, %s, %zu elements of %zu bytes in %zu chunks of %zu, depth %zd, threads"
            " %zu, staging %d, in %d.%d of %d, out %d.%d of %d, %s%s%s%s%s%s%s%d stages, chunk %zu"
            " fails in stage %d, stop at %zu\n",
            s->what == FAILS_STOPPED ? "stopped" : "fails", s->way,
            spipe_schedule_name(s->schedule), s->count, s->elem_bytes, s->num_chunks, s->chunk,
            (ssize_t)s->depth, s->threads, (int)s->staging, s->ins[0], s->ins[1], s->num_ins,
            s->outs[0], s->outs[1], s->num_outs, fails_word(s->progress, "progress, "),
            fails_word(s->checked, "checked, "), fails_word(s->open_ended, "open end, "),
            fails_word(s->apart, "apart, "), fails_word(s->prompt, "prompt, "),
            fails_word(s->watched, "watched, "), fails_word(s->fine_first, "fine first, "),
            s->num_stages, s->bad, s->bad_stage, s->stop_at);
}

/* ---- how far the host gets ----------------------------------------------------------------- */
/* Chunks counted whole, once the ends of those before `issued` are recorded and none after `bad`
   is whole. The ends of 16 are recorded at once, by one event of 16, and before one is used again
   the host waits for it. */
static inline size_t fails_recorded(const fails_run_t *r, size_t issued) {
    size_t b, whole = 0;
    for (b = FAILS_FAR - 1; b < issued; b += FAILS_FAR) {
        if (b / FAILS_FAR < whole / FAILS_FAR + FAILS_FAR) continue;
        if (whole + FAILS_FAR > r->bad) break;
        whole += FAILS_FAR;
    }
    return whole;
}

/* The chunk at whose end the host waits for the bad one, for want of events. */
static inline size_t fails_recorded_last(const fails_run_t *r) {
    return (r->bad / FAILS_FAR + FAILS_FAR + 1) * FAILS_FAR - 1;
}

static inline size_t fails_least(size_t a, size_t b) { return a < b ? a : b; }

static inline size_t fails_less(size_t a, size_t b) { return a > b ? a - b : 0; }

/* The last chunk that comes as far as the copies out before the host has to wait for the bad one. A
   slot is free when its chunk is drained or, where none is, copied in; with progress, done. */
static inline size_t fails_last(const fails_run_t *r) {
    const size_t k = r->bad, d = r->depth;
    size_t last = SIZE_MAX, out;
    if (r->at_once) return k;
    if (!r->counted) return r->num - 1;
    if (r->zero_copy && (r->fills || r->drains)) return fails_least(k + d - 1, r->num - 1);
    if (r->fills) last = r->s->schedule == SPIPE_SCHEDULE_SERIAL ? k + d : k + 2 * d - 1;
    out = fails_recorded_last(r);
    if (r->drains || r->s->progress) out = k + d - 1;
    return fails_least(fails_least(last, out), r->num - 1);
}

/* What is counted when the copies out of so many chunks are issued. */
static inline size_t fails_counted(const fails_run_t *r, size_t issued) {
    if (!r->drains && !r->s->progress) return fails_recorded(r, issued);
    return fails_least(r->bad, fails_less(issued + (!r->drains || r->zero_copy), r->depth));
}

/* In a checked run all before it is whole. */
static inline void fails_expect_each(fails_run_t *r) { r->low = r->high = r->bad; }

/* The numbers of a run, once the plan is known. */
static inline void fails_expect(fails_run_t *r, const fails_scene_t *s, const spipe_plan_t *plan) {
    const int in_place = plan->staging == SPIPE_STAGING_REGISTER; /* pageable memory is pinned */
    const int staged = plan->staging == SPIPE_STAGING_COPY ||
                       (s->schedule == SPIPE_SCHEDULE_ZERO_COPY && !in_place);
    const int direct = plan->staging == SPIPE_STAGING_DIRECT && !staged;
    const int guarded = s->schedule == SPIPE_SCHEDULE_ZERO_COPY && s->checked; /* works on copies */
    size_t issued;
    int i;
    memset((void *)r, 0, sizeof *r);
    r->s = s;
    r->depth = plan->depth;
    r->num = s->num_chunks;
    r->bad = s->bad;
    r->zero_copy = s->schedule == SPIPE_SCHEDULE_ZERO_COPY;
    for (i = 0; i < s->num_ins; ++i) {
        r->fills |= guarded || s->ins[i] == FAILS_HOSTED || (s->ins[i] == FAILS_PAGEABLE && staged);
        r->direct |= s->ins[i] == FAILS_PAGEABLE && direct;
        r->pins |= s->ins[i] == FAILS_PAGEABLE && in_place;
    }
    for (i = 0; i < s->num_outs; ++i) {
        r->drains |=
            guarded || s->outs[i] == FAILS_HOSTED || (s->outs[i] == FAILS_PAGEABLE && staged);
        r->direct |= s->outs[i] == FAILS_PAGEABLE && direct;
        r->pins |= s->outs[i] == FAILS_PAGEABLE && in_place;
    }
    /* an enqueued run that the host works in, or that pins arrays, runs at once */
    r->counted = s->way != FUZZ_ENQUEUED || r->fills || r->drains || r->direct || r->pins;
    r->at_once = r->direct || s->prompt || s->checked;
    r->settles = r->counted && !r->at_once;
    r->last = fails_last(r);
    if (!r->counted) return; /* nobody counts */
    if (s->checked) {
        fails_expect_each(r);
        return;
    }
    issued = r->last;
    r->low = fails_counted(r, issued);
    r->high = r->bad;
    if (r->drains || r->fills || s->progress || r->direct) return;
    r->high = fails_recorded(r, fails_least(issued + 1, r->num));
    if (r->at_once) r->high = fails_recorded(r, r->num);
}

#endif
