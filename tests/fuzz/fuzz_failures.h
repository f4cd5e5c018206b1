/*  fuzz_failures.h -- runs a scene of failures_scene.h and holds what the library says was done
    against what must have been, and against the arrays: chunks_whole, chunks_done, count_done, the
    chunks that the message names, what a sink took, the bytes before and behind.
    A difference ends the program by abort(), after a sentence on stderr. The error may end CUDA's
    work in the process, so on a GPU each scene has a process of its own. */
#ifndef FUZZ_FAILURES_H
#define FUZZ_FAILURES_H

#include "fuzz/failures_world.h"

/* ---- what is there ------------------------------------------------------------------------- */
static inline unsigned char fails_want(const fails_world_t *w, int out, size_t i) {
    const unsigned char x = w->ins[0][FAILS_GUARD + i];
    const int line = w->s.num_stages - w->s.apart;
    if (out == 1) return (unsigned char)(3 * x);
    return (unsigned char)(x + line + (w->s.num_ins > 1 ? w->ins[1][FAILS_GUARD + i] : 0));
}

/* So many elements are right in every output, and those that nobody may have written are as before;
   the guards are whole. */
static inline void fails_check_bytes(const fails_world_t *w, size_t right, size_t written) {
    const size_t bytes = w->s.elem_bytes, all = w->s.count * bytes + 2 * FAILS_GUARD;
    size_t i;
    int o;
    for (o = 0; o < w->s.num_outs; ++o) {
        const unsigned char *y = w->outs[o] + FAILS_GUARD;
        for (i = 0; i < right * bytes; ++i) {
            FAILS_CHECK(w, y[i] == fails_want(w, o, i), "output %d, byte %zu (chunk %zu) is wrong",
                        o, i, i / bytes / w->s.chunk);
        }
        for (i = written * bytes; i < all - FAILS_GUARD; ++i) {
            FAILS_CHECK(w, y[i] == FAILS_POISON, "output %d, byte %zu: who wrote it?", o, i);
        }
        for (i = 0; i < FAILS_GUARD; ++i) {
            FAILS_CHECK(w, w->outs[o][i] == FAILS_POISON, "output %d: before its begin", o);
        }
    }
}

static int fails_progress(const spipe_progress_t *p, void *user) {
    fails_world_t *w = (fails_world_t *)user;
    const int stop = w->armed && w->s.what == FAILS_STOPPED && p->chunks_done >= w->s.stop_at;
    FAILS_CHECK(w, w->told == SIZE_MAX || p->chunks_done > w->told, "told %zu after %zu",
                p->chunks_done, w->told);
    FAILS_CHECK(w, p->elements_done == fails_least(p->chunks_done * w->s.chunk, w->s.count),
                "told %zu elements in %zu chunks", p->elements_done, p->chunks_done);
    w->told = p->chunks_done;
    if (stop && w->told_at_stop == SIZE_MAX) w->told_at_stop = p->chunks_done;
    return stop;
}

/* ---- the outcome --------------------------------------------------------------------------- */
static inline size_t fails_chunks(const fails_world_t *w, size_t chunks) {
    return fails_least(chunks, w->s.num_chunks);
}

/* The chunks that a message names hold the bad one, begin at the first that is not whole, and end
   with one that the host may have come to: 2 x depth chunks behind the last that it began. */
static inline void fails_check_range(const fails_world_t *w, const spipe_failure_t *f,
                                     int settled) {
    const fails_scene_t *s = &w->s;
    const size_t begun = w->begun, ahead = begun + 2 * w->r.depth;
    const char *range = strstr(f->message, "in one of the chunks ");
    size_t from = SIZE_MAX, to = 0;
    FAILS_CHECK(w, range && sscanf(range, "in one of the chunks %zu to %zu", &from, &to) == 2,
                "no chunks in: %s", f->message);
    FAILS_CHECK(w, f->stage == -1 && f->chunk == from && strstr(f->message, "a checked run tells"),
                "stage %d, chunk %zu: %s", f->stage, f->chunk, f->message);
    FAILS_CHECK(w, from <= s->bad && s->bad <= to, "chunk %zu failed: %s", s->bad, f->message);
    FAILS_CHECK(w,
                settled || !(w->r.drains || w->r.direct) ? from == f->chunks_whole
                                                         : from <= f->chunks_whole,
                "%zu chunks are whole: %s", f->chunks_whole, f->message);
    FAILS_CHECK(w, to + 1 >= fails_chunks(w, begun) && to < ahead, "%zu chunks were begun: %s",
                w->begun, f->message);
    FAILS_CHECK(w, s->open_ended || to < s->num_chunks, "of %zu chunks: %s", s->num_chunks,
                f->message);
    if (!s->prompt || s->open_ended) return;
    FAILS_CHECK(w, to + 1 <= fails_chunks(w, w->r.bad + 2 * w->r.depth), "prompt: %s", f->message);
}

static inline void fails_check_failed(const fails_world_t *w, cudaError_t e,
                                      const spipe_report_t *r) {
    const fails_scene_t *s = &w->s;
    const spipe_failure_t *f = &r->failure;
    const int settled = w->p && w->r.settles && !w->stuck;
    const size_t low = fails_chunks(w, settled ? w->r.high : w->r.low);
    char where[32];
#if defined(__HOSTCUDA__)
    FAILS_CHECK(w, e == cudaErrorIllegalAddress, "%s: %s", cudaGetErrorName(e), f->message);
    FAILS_CHECK(w, !w->stuck, "the host did not get so far");
#else
    FAILS_CHECK(w, e != cudaSuccess && e != SPIPE_STOPPED, "%s", f->message);
#endif
    FAILS_CHECK(
        w, f->chunks_whole >= (w->stuck ? 0 : low) && f->chunks_whole <= fails_chunks(w, w->r.high),
        "%zu chunks are said to be whole%s: %s", f->chunks_whole, settled ? ", all was seen" : "",
        f->message);
    if (s->checked) {
        snprintf(where, sizeof where, "'s%d' failed at chunk %zu:", s->bad_stage, s->bad);
        FAILS_CHECK(w, f->stage == s->bad_stage && f->chunk == s->bad && strstr(f->message, where),
                    "stage %d, chunk %zu: %s", f->stage, f->chunk, f->message);
    } else if (w->r.counted) {
        fails_check_range(w, f, settled);
    }
    fails_check_bytes(w, r->count_done, fails_least((w->begun + 1) * s->chunk, s->count));
}

/* All whose stages were called are whole, no more were begun than slots are ahead of what was told,
   and nothing else was written. */
static inline void fails_check_stopped(const fails_world_t *w, cudaError_t e,
                                       const spipe_report_t *r) {
    const spipe_failure_t *f = &r->failure;
    const size_t slots = w->r.depth;
    char after[32];
    FAILS_CHECK(w, e == SPIPE_STOPPED && w->told_at_stop >= w->s.stop_at, "%s: %s",
                cudaGetErrorName(e), f->message);
    FAILS_CHECK(w, f->chunks_whole == w->called && w->begun == w->called && w->told == w->called,
                "%zu begun, %zu told, %zu said to be whole", w->begun, w->told, f->chunks_whole);
    FAILS_CHECK(w, w->called >= w->told_at_stop && w->called <= w->told_at_stop + slots,
                "stopped at %zu, called for %zu", w->told_at_stop, w->called);
    snprintf(after, sizeof after, "after %zu chunks", w->called);
    FAILS_CHECK(w, f->stage == -1 && f->chunk == w->called && strstr(f->message, after), "%s",
                f->message);
    fails_check_bytes(w, r->count_done, r->count_done);
}

static inline void fails_check(const fails_world_t *w, cudaError_t e, const spipe_report_t *r) {
    const fails_scene_t *s = &w->s;
    const size_t whole = r->failure.chunks_whole;
    int o;
    FAILS_CHECK(w, r->failure.error == e && (r->failure.message[0] != 0) == (e != cudaSuccess),
                "%s, but the report says %s: %s", cudaGetErrorName(e),
                cudaGetErrorName(r->failure.error), r->failure.message);
    FAILS_CHECK(w,
                r->chunks_done == whole && r->count_done == fails_least(whole * s->chunk, s->count),
                "%zu chunks whole, %zu done, %zu elements", whole, r->chunks_done, r->count_done);
    FAILS_CHECK(w, s->open_ended || r->total == s->count, "a total of %zu", r->total);
    for (o = 0; o < s->num_outs; ++o) {
        FAILS_CHECK(w, s->outs[o] != FAILS_HOSTED || w->taken[o] == r->count_done,
                    "the sink of output %d took %zu elements of %zu", o, w->taken[o],
                    r->count_done);
    }
    if (!w->armed) {
        FAILS_CHECK(w, e == cudaSuccess && whole == s->num_chunks, "%zu whole: %s", whole,
                    r->failure.message);
        fails_check_bytes(w, s->count, s->count);
    } else if (s->what == FAILS_STOPPED) {
        fails_check_stopped(w, e, r);
    } else {
        fails_check_failed(w, e, r);
    }
}

/* ---- the run ------------------------------------------------------------------------------- */
static void fails_notify(struct spipe_timeline *timeline, spipe_priv_pipeline_t *p, int what,
                         const void *about, const struct spipe_priv_slot *slot, int after) {
    (void)about;
    (void)slot;
    if (what == SPIPE_PRIV_WATCH_RUN && !after) {
        ((fails_timeline_t *)(void *)timeline)->world->p = p;
    }
}

/* A look at how far a run is, without the lock that a run without threads does not take. */
#if defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize_thread, noinline))
#endif
static size_t
fails_completed(const spipe_priv_pipeline_t *p) {
    return *(const volatile size_t *)&p->run.at.completed;
}

/* Raises the flag when the host gets no further, and has seen what it can. */
static void *fails_raise(void *user) {
    fails_world_t *w = (fails_world_t *)user;
    size_t before = 0;
    double since = spipe_priv_seconds();
    while (!__atomic_load_n(&w->reached, __ATOMIC_SEQ_CST) &&
           !__atomic_load_n(&w->over, __ATOMIC_SEQ_CST)) {
        const size_t now = __atomic_load_n(&w->begun, __ATOMIC_SEQ_CST);
        if (now != before) since = spipe_priv_seconds();
        before = now;
        w->stuck = spipe_priv_seconds() - since > FAILS_STUCK;
        if (w->stuck) break;
        fails_nap();
    }
    since = spipe_priv_seconds();
    while (!w->stuck && w->p && w->r.settles && !__atomic_load_n(&w->over, __ATOMIC_SEQ_CST) &&
           fails_completed(w->p) < w->r.high && spipe_priv_seconds() - since < FAILS_STUCK) {
        fails_nap();
    }
#if defined(__HOSTCUDA__)
    /* a query that is not ready would not tell, as it does on a GPU */
    hostcuda_set_prompt_errors(w->r.fills || w->r.drains || w->s.salt % 2);
#endif
    __atomic_store_n(&w->flag, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static inline spipe_desc_t fails_describe(fails_world_t *w) {
    static const char *const names[FAILS_MAX_STAGES] = {"s0", "s1", "s2", "s3"};
    const fails_scene_t *s = &w->s;
    spipe_desc_t d = spipe_desc_default();
    int i;
    if (!s->open_ended) d.count = s->count;
    d.chunk = s->chunk;
    d.depth = s->depth;
    d.threads = s->threads;
    d.schedule = s->schedule;
    d.staging = s->staging;
    d.checked = s->checked;
    d.progress = s->progress ? fails_progress : NULL;
    d.progress_user = w;
    for (i = 0; i < 4; ++i) w->parts[i] = {w, i % 2};
    for (i = 0; i < s->num_ins; ++i) {
        if (s->ins[i] == FAILS_HOSTED)
            spipe_add_source(&d, fails_source, &w->parts[i], s->elem_bytes, SPIPE_IN_ORDER);
        else
            spipe_add_input(&d, w->ins[i] + FAILS_GUARD, s->elem_bytes);
    }
    for (i = 0; i < s->num_outs; ++i) {
        if (s->outs[i] == FAILS_HOSTED)
            spipe_add_sink(&d, fails_sink, &w->parts[2 + i], s->elem_bytes, SPIPE_IN_ORDER);
        else
            spipe_add_output(&d, w->outs[i] + FAILS_GUARD, s->elem_bytes);
    }
    for (i = s->apart; i < s->num_stages - 1; ++i) spipe_add_temp(&d, s->elem_bytes);
    for (i = 0; i < s->num_stages; ++i) {
        w->stages[i] = {w, i};
        spipe_add_stage(&d, names[i], fails_stage, &w->stages[i]);
        if (s->apart && i == 1) spipe_stage_after(&d, i, NULL);
        if (s->apart && i == 2) spipe_stage_after(&d, i, names[0]);
    }
    return d;
}

/* Puts all back to where a run begins. */
static inline void fails_start(fails_world_t *w, int armed) {
    int i;
    for (i = 0; i < w->s.num_outs; ++i) {
        memset(w->outs[i], FAILS_POISON, w->s.count * w->s.elem_bytes + 2 * FAILS_GUARD);
    }
    memset(w->given, 0, sizeof w->given);
    memset(w->taken, 0, sizeof w->taken);
    w->told = w->told_at_stop = SIZE_MAX;
    w->begun = w->called = 0;
    w->armed = armed;
    w->reached = w->over = w->stuck = 0;
    w->flag = 0;
}

static inline cudaError_t fails_enqueue(spipe_pipeline_t *p, spipe_report_t *r) {
    cudaStream_t stream;
    cudaError_t e, waited;
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    e = spipe_pipeline_enqueue(p, stream);
    waited = spipe_pipeline_wait(p, r);
    (void)cudaStreamDestroy(stream);
    return e == cudaSuccess || e == waited ? waited : cudaErrorUnknown;
}

/* One run; p = NULL: a one-shot run. */
static inline void fails_run_once(fails_world_t *w, spipe_pipeline_t *p, const spipe_desc_t *d,
                                  int armed) {
    const int raises = armed && w->s.what == FAILS_ON_DEVICE;
    spipe_report_t r;
    pthread_t raiser;
    cudaError_t e;
    fails_start(w, armed);
#if defined(__HOSTCUDA__)
    hostcuda_set_prompt_errors(w->s.prompt);
#endif
    fails_held.asked = 0;
    fails_held.from = w->s.salt % FAILS_HELD_EVERY;
    __atomic_store_n(&fails_held.flag, raises && w->s.watched ? &w->flag : NULL, __ATOMIC_SEQ_CST);
    if (raises && pthread_create(&raiser, NULL, fails_raise, w) != 0) exit(99);
    if (!p)
        e = spipe_run(d, &r);
    else if (w->s.way == FUZZ_ENQUEUED)
        e = fails_enqueue(p, &r);
    else
        e = spipe_pipeline_run(p, &r);
    __atomic_store_n(&w->over, 1, __ATOMIC_SEQ_CST);
    if (raises) (void)pthread_join(raiser, NULL);
#if defined(__HOSTCUDA__)
    hostcuda_clock_reset(); /* waits for kernels beside the one that failed, which a GPU ends */
#endif
    fails_check(w, e, &r);
    if (p) {
        const spipe_failure_t *f = spipe_pipeline_failure(p);
        FAILS_CHECK(w, f->error == e && f->chunks_whole == r.failure.chunks_whole,
                    "the pipeline says %zu chunks, the report %zu", f->chunks_whole,
                    r.failure.chunks_whole);
    }
}

static inline void fails_runs(fails_world_t *w) {
    const fails_scene_t *s = &w->s;
    spipe_desc_t d = fails_describe(w);
    spipe_pipeline_t *p = NULL;
    spipe_failure_t f;
    spipe_plan_t plan;
    cudaError_t e = spipe_plan(&d, s->way != FUZZ_ONE_SHOT, &plan, &f);
    FAILS_CHECK(w, e == cudaSuccess, "plan: %s", f.message);
    if (s->way == FUZZ_ONE_SHOT && s->watched) d.timeline = (spipe_timeline *)(void *)&w->timeline;
    if (s->way != FUZZ_ONE_SHOT) {
        e = spipe_pipeline_create(&p, &d, &f);
        FAILS_CHECK(w, e == cudaSuccess, "create: %s", f.message);
        w->p = (const spipe_priv_pipeline_t *)(const void *)p;
        plan = *spipe_pipeline_plan(p);
    }
    fails_expect(&w->r, s, &plan);
    if (p && s->fine_first) fails_run_once(w, p, &d, 0);
    fails_run_once(w, p, &d, 1);
    if (p && s->what == FAILS_STOPPED) fails_run_once(w, p, &d, 0);
    if (p) (void)spipe_pipeline_destroy(p);
}

/* ---- memory -------------------------------------------------------------------------------- */
static inline unsigned char *fails_alloc(const fails_world_t *w, int kind) {
    const size_t bytes = w->s.count * w->s.elem_bytes + 2 * FAILS_GUARD;
    void *at = NULL;
    if (kind == FAILS_PINNED)
        SPIPE_CHECK(spipe_pinned_alloc(&at, bytes));
    else
        at = malloc(bytes);
    if (!at) exit(99);
    return (unsigned char *)at;
}

static inline void fails_free(void *at, int kind) {
    if (kind == FAILS_PINNED)
        (void)spipe_pinned_free(at); /* which may return the error once more */
    else
        free(at);
}

#if defined(__HOSTCUDA__)
/* As many hardware queues as streams: else one that waits for the flag holds up others. */
static inline void fails_set_queues(void) {
    hostcuda_profile_t profile = hostcuda_get_profile(0);
    profile.queues = 128;
    SPIPE_CHECK(hostcuda_set_profile(0, &profile));
}
#endif

/* One scene from its bytes to its end. */
static inline void fuzz_failures(const unsigned char *data, size_t size) {
    fails_world_t *w = new fails_world_t();
    fails_scene_t *s = &w->s;
    unsigned seed;
    size_t i;
    int k;
    fails_make(s, data, size);
#if defined(__HOSTCUDA__)
    fails_set_queues();
#endif
    w->timeline.watcher.stamp = SPIPE_PRIV_STAMP;
    w->timeline.watcher.notify = fails_notify;
    w->timeline.world = w;
    for (k = 0; k < 2; ++k) {
        w->ins[k] = fails_alloc(w, s->ins[k]);
        w->outs[k] = fails_alloc(w, s->outs[k]);
        for (i = 0, seed = s->salt; i < s->count * s->elem_bytes; ++i) {
            seed = seed * 1664525u + 1013904223u;
            w->ins[k][FAILS_GUARD + i] = (unsigned char)(seed >> 24);
        }
    }
    fails_runs(w);
#if defined(__SANITIZE_THREAD__)
    /* hostcuda shows it no order behind a failed wait, so what kernels used stays for the end */
    if (s->what == FAILS_ON_DEVICE) return;
#endif
    for (k = 0; k < 2; ++k) {
        fails_free(w->ins[k], s->ins[k]);
        fails_free(w->outs[k], s->outs[k]);
    }
#if defined(__HOSTCUDA__)
    hostcuda_fail_clear();
    FAILS_CHECK(w, hostcuda_leaks(NULL) == 0, "%d things were left alive", hostcuda_leaks(stderr));
    (void)cudaDeviceReset();
#endif
    delete w;
}

#endif
