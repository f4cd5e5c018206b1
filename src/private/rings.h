/* ---- 11 plan: rings of slots ----------------------------------------------------------------
   Compares rings by the law: sizes of chunks, numbers of threads and of slots; keeps the best few
   ways. Pure: no state, no allocation, no CUDA call. */
typedef struct spipe_priv_planner {
    const spipe_costs_t *costs;
    const spipe_priv_work_t *work;
    const spipe_desc_t *desc; /* what the user fixed */
    spipe_priv_way_t *best;   /* the best ways so far, best first */
    size_t num, capacity;
    size_t device_bytes; /* memory that may be used; 0 = no limit */
    size_t pinned_bytes;
    int num_compared;
    double to_beat; /* seconds of the best way with another staging; 0 = there is none */
    int fine;       /* 1 = near the best so far every number of threads and of slots is compared */
} spipe_priv_planner_t;

/* Whether two numbers of threads are so close that one run of them is enough. */
SPIPE_API int spipe_priv_close(size_t a, size_t b) {
    const double x = spipe_priv_real(a), y = spipe_priv_real(b);
    return spipe_priv_max(x, y) <= SPIPE_PRIV_OTHER_THREADS * spipe_priv_min(x, y);
}

/* Whether two ways are so alike that only one is worth running. */
SPIPE_PRIV_RARE int spipe_priv_alike(const spipe_priv_way_t *a, const spipe_priv_way_t *b) {
    const double x = spipe_priv_real(a->chunk * a->batch), y = spipe_priv_real(b->chunk * b->batch);
    const double ratio = spipe_priv_max(x, y) / spipe_priv_min(x, y);
    if (a->schedule != b->schedule || a->staging != b->staging || a->replay != b->replay) return 0;
    if (a->pageable_slots != b->pageable_slots) return 0;
    if (a->replay) return 1; /* one candidate that replays is enough */
    return ratio < SPIPE_PRIV_OTHER_CHUNK && a->caller_helps == b->caller_helps &&
           spipe_priv_close(a->fill_threads, b->fill_threads) &&
           spipe_priv_close(a->drain_threads, b->drain_threads);
}

/* Whether the slots of a way fit into the memory there is. */
SPIPE_PRIV_RARE int spipe_priv_fits(const spipe_priv_planner_t *p, const spipe_priv_way_t *y) {
    const double slots = spipe_priv_real(y->depth) * spipe_priv_real(y->chunk * y->batch);
    const int in_place = y->schedule == SPIPE_ZERO_COPY && !spipe_priv_is_staged(p->work, y);
    const double halos = in_place ? 0.0 : spipe_priv_real(y->depth) * p->work->halo;
    const double device = slots * (in_place ? p->work->temps : p->work->held) + halos;
    if (device > p->work->machine.memory) return 0;
    if (p->device_bytes > 0 && device > spipe_priv_real(p->device_bytes)) return 0;
    if (p->pinned_bytes == 0 || y->pageable_slots) return 1;
    return spipe_priv_ring_bytes(p->work, y) <= spipe_priv_real(p->pinned_bytes);
}

/* Puts a way among the best, in order; of two that are alike the better one stays. Returns what it
   is predicted to take. */
SPIPE_PRIV_RARE double spipe_priv_consider(spipe_priv_planner_t *p, spipe_priv_way_t *y) {
    size_t k = 0;
    y->predicted_s = spipe_priv_predict(p->costs, p->work, y);
    if (p->work->machine.beside) {
        y->predicted_s = p->work->machine.beside(p->work, p->costs, y, y->predicted_s);
    }
    if (!spipe_priv_fits(p, y)) y->predicted_s += SPIPE_PRIV_DOES_NOT_FIT;
    ++p->num_compared;
    while (k < p->num && !spipe_priv_alike(&p->best[k], y)) ++k;
    if (k == p->capacity) --k;
    if (k < p->num && p->best[k].predicted_s <= y->predicted_s) return y->predicted_s;
    if (k == p->num) ++p->num;
    for (; k > 0 && p->best[k - 1].predicted_s > y->predicted_s; --k) p->best[k] = p->best[k - 1];
    p->best[k] = *y;
    return y->predicted_s;
}

/* Whether fewer slots than the threads can use may be better: a one-shot run has to pin each slot,
   which takes time, and the cache holds a smaller ring. */
SPIPE_PRIV_RARE int spipe_priv_may_have_fewer(const spipe_priv_planner_t *p,
                                              const spipe_priv_way_t *y) {
    const spipe_priv_work_t *w = p->work;
    if (p->desc->depth != SPIPE_AUTO || (w->flags & SPIPE_PRIV_SPLIT)) return 0;
    return spipe_priv_host_threads(p->desc, w, y) <= 1;
}

/* Completes a way whose chunk and threads are known, and compares it. */
SPIPE_PRIV_RARE double spipe_priv_consider_ring(spipe_priv_planner_t *p, spipe_priv_way_t *y) {
    const spipe_priv_work_t *w = p->work;
    size_t least = SPIPE_PRIV_COPY_SLOTS;
    size_t depth;
    double took;
    y->depth = spipe_priv_depth_for(p->desc, w, y);
    if ((w->flags & SPIPE_PRIV_PAID) != SPIPE_PRIV_KEPT && p->desc->count != SPIPE_AUTO) {
        const double n = spipe_priv_num_batches(w, y);
        if (spipe_priv_real(y->depth) > n)
            y->depth = spipe_priv_whole(n); /* no more slots than batches */
    }
    depth = y->depth;
    took = spipe_priv_consider(p, y);
    if (!p->fine || !spipe_priv_may_have_fewer(p, y)) return took;
    if (w->flags & SPIPE_PRIV_POSITIONED) least += y->fill_threads; /* depth_for says why */
    while (y->depth >= least + 2 && y->depth + SPIPE_PRIV_FEWER_SLOTS > depth) {
        y->depth -= 2 - y->depth % 2; /* even: depth_for says why */
        took = spipe_priv_min(took, spipe_priv_consider(p, y));
    }
    return took;
}

/* The fewest threads to compare: two each way fewer than the best ring so far has. Another size of
   chunk hardly ever needs fewer than that. */
SPIPE_PRIV_RARE size_t spipe_priv_threads_from(const spipe_priv_planner_t *p, size_t ways) {
    const size_t best = p->num > 0 ? p->best[0].fill_threads + p->best[0].drain_threads : 0;
    const size_t from = best - best % ways;
    return from > 2 * ways ? from - 2 * ways : 0;
}

/* So many threads for a staged way whose chunk is known, shared between both directions. */
SPIPE_PRIV_RARE void spipe_priv_set_threads(const spipe_priv_planner_t *p, spipe_priv_way_t *y,
                                            size_t threads) {
    const size_t asked = p->desc->threads;
    y->fill_threads = y->drain_threads = 0;
    if (threads > 0) spipe_priv_share_threads(p->costs, p->work, y, threads);
    if (asked != SPIPE_AUTO && y->fill_threads > 0) y->fill_threads = asked;
    if (asked != SPIPE_AUTO && spipe_priv_drained(p->work, y) > 0.0) y->drain_threads = asked;
    y->caller_helps = threads == 0;
}

/* Whether a ring that takes so many seconds is so much slower than the best way with another
   staging that comparing more rings like it is a waste of time. */
SPIPE_PRIV_RARE int spipe_priv_is_beaten(const spipe_priv_planner_t *p, double seconds) {
    return p->to_beat > 0.0 && seconds > SPIPE_PRIV_WORTH_TRYING * p->to_beat;
}

/* Compares numbers of threads for a staged way whose chunk is known. Both directions get one thread
   more as long as that is faster; near the best ring every number is compared, up to two more in
   each direction than the best has. Fewer slots, and a caller that helps, are compared for each
   number by a kept pipeline; by a one-shot run, whose planning counts, for the best number only. */
SPIPE_PRIV_RARE void spipe_priv_consider_staged(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const spipe_priv_work_t *w = p->work;
    const size_t ways = spipe_priv_both_ways(w, &y) ? 2 : 1;
    const int may_help = w->num_segments == 1 && !(w->flags & SPIPE_PRIV_IN_TURN);
    const int all_help = p->fine || p->capacity > 1;
    const size_t reach = 2 * ways;
    size_t most = spipe_priv_most_threads(w, &y), threads = spipe_priv_threads_from(p, ways);
    size_t best = 0;
    double took, least = SPIPE_PRIV_DOES_NOT_FIT;
    double helped; /* at the least, with a caller that helps: half a thread */
    int more = 0;
    if (threads == 0 && !may_help) threads = ways;
    if (p->fine && most > threads + 2 * reach) most = threads + 2 * reach;
    if (w->flags & SPIPE_PRIV_SPLIT)
        threads = most = spipe_priv_most_threads(w, &y); /* the time of their work is not known */
    else if (w->pageable_in + w->pageable_out <= 0.0 && !(w->flags & SPIPE_PRIV_POSITIONED))
        threads = most = ways; /* sources and sinks see chunks in order */
    if (p->desc->threads != SPIPE_AUTO) threads = most = ways * p->desc->threads;
    for (; threads <= most && (p->fine || more < 2); threads += p->fine ? 1 : ways) {
        spipe_priv_set_threads(p, &y, threads);
        took = spipe_priv_consider_ring(p, &y);
        if (all_help && threads > 0 && may_help) {
            y.caller_helps = 1;
            took = spipe_priv_min(took, spipe_priv_consider_ring(p, &y));
        }
        more = took < least ? 0 : more + 1;
        if (took < least) best = threads;
        least = spipe_priv_min(least, took);
    }
    helped = least * spipe_priv_real(best) / (spipe_priv_real(best) + 0.5);
    if (all_help || spipe_priv_is_beaten(p, helped)) return;
    p->fine = 1;
    spipe_priv_set_threads(p, &y, best);
    spipe_priv_consider_ring(p, &y);
    if (best == 0 && most > 0) spipe_priv_set_threads(p, &y, ways);
    y.caller_helps = 1;
    if (may_help) spipe_priv_consider_ring(p, &y);
    p->fine = 0;
}

/* Chunks that the user made far smaller than a copy is worth are copied several at a time. */
SPIPE_PRIV_RARE void spipe_priv_consider_batches(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const spipe_priv_work_t *w = p->work;
    const double chunk = spipe_priv_real(y.chunk) * spipe_priv_busier(w);
    const double most = SPIPE_PRIV_MOST_CHUNK;
    const size_t chunks = w->count == 0 ? 1 : (w->count - 1) / y.chunk + 1;
    y.batch = 1;
    spipe_priv_consider_ring(p, &y);
    if (!(w->flags & SPIPE_PRIV_MAY_BATCH) || y.schedule != SPIPE_ENGINES) return;
    for (y.batch = 2; y.batch < chunks && chunk * spipe_priv_real(y.batch) <= most; y.batch *= 2) {
        spipe_priv_consider_ring(p, &y);
    }
    y.batch = chunks;
    if (chunks > 1 && chunk * spipe_priv_real(chunks) <= most) spipe_priv_consider_ring(p, &y);
}

/* A way whose chunk is known: staged by some threads, or copied as it is, or in batches. */
SPIPE_PRIV_RARE void spipe_priv_consider_chunk(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const size_t most = spipe_priv_most_chunk(p->desc, p->work, &y);
    if (p->desc->chunk == SPIPE_AUTO && y.chunk > most) y.chunk = most;
    if (spipe_priv_is_staged(p->work, &y))
        spipe_priv_consider_staged(p, y);
    else if (p->desc->chunk != SPIPE_AUTO)
        spipe_priv_consider_batches(p, y);
    else
        spipe_priv_consider_ring(p, &y);
    if (!(p->work->flags & SPIPE_PRIV_MAY_REPLAY) || !(p->work->flags & SPIPE_PRIV_KEPT)) return;
    if (spipe_priv_num_batches(p->work, &y) > (double)SPIPE_PRIV_MAX_REPLAY) return;
    if (spipe_priv_num_batches(p->work, &y) < 2.0) return;
    y.replay = 1;
    spipe_priv_consider_ring(p, &y);
}

/* Below the smallest chunk size: halves the chunk until some way fits into the memory. */
SPIPE_PRIV_RARE void spipe_priv_shrink(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    y.chunk = spipe_priv_chunk_of(p->work, SPIPE_PRIV_LEAST_CHUNK);
    while (p->best[0].predicted_s >= SPIPE_PRIV_DOES_NOT_FIT && y.chunk > 1) {
        y.chunk /= 2;
        if (y.chunk < p->work->least_chunk) return;
        spipe_priv_consider_chunk(p, y);
    }
}

/* A chunk near the best so far, with its threads, and with one more. */
SPIPE_PRIV_RARE void spipe_priv_consider_near(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const size_t threads = y.fill_threads + y.drain_threads + 1;
    if (p->capacity > 1 && spipe_priv_is_staged(p->work, &y)) {
        spipe_priv_consider_staged(p, y);
        return;
    }
    spipe_priv_consider_ring(p, &y);
    if (threads == 1 || p->desc->threads != SPIPE_AUTO) return;
    if (threads > spipe_priv_most_threads(p->work, &y)) return;
    spipe_priv_share_threads(p->costs, p->work, &y, threads);
    spipe_priv_consider_ring(p, &y);
}

/* Near the best so far: every number of threads and of slots, and chunk sizes between those already
   compared, which divide the whole evenly; then threads and slots again for the best of those. */
SPIPE_PRIV_RARE void spipe_priv_refine(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const int staged = spipe_priv_is_staged(p->work, &y);
    const size_t least = spipe_priv_chunk_of(p->work, SPIPE_PRIV_LEAST_CHUNK);
    size_t n, parts, chunk;
    if (p->best[0].schedule != y.schedule || p->best[0].staging != y.staging) return;
    if (spipe_priv_is_beaten(p, p->best[0].predicted_s)) return;
    p->fine = 1;
    if (staged) spipe_priv_consider_staged(p, p->best[0]);
    y = p->best[0];
    chunk = y.chunk;
    n = spipe_priv_whole(spipe_priv_num_batches(p->work, &y));
    parts = n - n / SPIPE_PRIV_REFINE_DOWN;
    for (; parts <= n + n / SPIPE_PRIV_REFINE_UP + 1; parts += n / SPIPE_PRIV_REFINE_STEPS + 1) {
        y.chunk = spipe_priv_part_of(p->work, parts);
        if (parts == n || y.chunk > spipe_priv_most_chunk(p->desc, p->work, &y)) continue;
        if (parts > n && y.chunk < least) continue;
        spipe_priv_consider_near(p, y);
    }
    if (staged && p->best[0].chunk != chunk) spipe_priv_consider_staged(p, p->best[0]);
    p->fine = 0;
}

/* Compares chunk sizes: the whole, 128 KiB, 192, 256, 384, ... 16 MiB. */
SPIPE_PRIV_RARE void spipe_priv_consider_chunks(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const spipe_priv_work_t *w = p->work;
    const double total = spipe_priv_real(w->count) * spipe_priv_busier(w);
    const int compared = p->num_compared;
    size_t parts, bytes;
    y.chunk = p->desc->chunk;
    if (y.chunk != SPIPE_AUTO) {
        for (; p->fine < 2; ++p->fine)
            spipe_priv_consider_chunk(p, y); /* first: how many threads */
        p->fine = 0;
        return;
    }
    for (parts = 1; parts <= SPIPE_MAX_DEPTH; parts *= 2) {
        if (total > spipe_priv_real(parts) * (double)SPIPE_PRIV_MOST_CHUNK) continue;
        y.chunk = spipe_priv_part_of(w, parts);
        spipe_priv_consider_chunk(p, y);
    }
    for (bytes = SPIPE_PRIV_LEAST_CHUNK; bytes <= SPIPE_PRIV_MOST_CHUNK; bytes *= 2) {
        y.chunk = spipe_priv_chunk_of(w, spipe_priv_real(bytes));
        if (y.chunk < w->count) spipe_priv_consider_chunk(p, y);
        y.chunk = spipe_priv_chunk_of(w, 1.5 * spipe_priv_real(bytes));
        if (y.chunk < w->count) spipe_priv_consider_chunk(p, y);
    }
    if (p->num_compared == compared) { /* one element, or its halo, exceeds all sizes */
        y.chunk = spipe_priv_part_of(w, 1);
        spipe_priv_consider_chunk(p, y);
    }
    spipe_priv_refine(p, y);
    spipe_priv_shrink(p, y);
}
