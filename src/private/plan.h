/* ---- 11 plan: choosing ---------------------------------------------------------------------
   Lists ways to do the work, predicts each by the law, keeps the best few. Pure: no state, no
   allocation, no CUDA call, so it runs again whenever the work changes. */
typedef struct spipe_priv_planner {
    const spipe_costs_t *costs;
    const spipe_priv_work_t *work;
    const spipe_desc_t *desc; /* what the user fixed */
    spipe_priv_way_t *best;   /* the best ways so far, best first */
    size_t num, capacity;
    size_t device_bytes; /* memory there is, 0 = take what is needed */
    size_t pinned_bytes;
    int num_compared;
} spipe_priv_planner_t;

/* Whether two numbers of threads are so close that one run of them is enough. */
SPIPE_API int spipe_priv_close(size_t a, size_t b) {
    const double x = (double)a, y = (double)b;
    return spipe_priv_max(x, y) <= SPIPE_PRIV_OTHER_THREADS * spipe_priv_min(x, y);
}

/* Whether two ways are so alike that only one is worth running. */
SPIPE_PRIV_RARE int spipe_priv_alike(const spipe_priv_way_t *a, const spipe_priv_way_t *b) {
    const double x = (double)(a->chunk * a->batch), y = (double)(b->chunk * b->batch);
    const double ratio = spipe_priv_max(x, y) / spipe_priv_min(x, y);
    if (a->schedule != b->schedule || a->staging != b->staging || a->replay != b->replay) return 0;
    if (a->pageable_slots != b->pageable_slots) return 0;
    if (a->replay) return 1; /* one graph is enough */
    return ratio < SPIPE_PRIV_OTHER_CHUNK && a->caller_helps == b->caller_helps &&
           spipe_priv_close(a->fill_threads, b->fill_threads) &&
           spipe_priv_close(a->drain_threads, b->drain_threads);
}

/* Whether the slots of a way fit into the memory there is. */
SPIPE_PRIV_RARE int spipe_priv_fits(const spipe_priv_planner_t *p, const spipe_priv_way_t *y) {
    const double slots = (double)y->depth * (double)(y->chunk * y->batch);
    const int in_place = y->schedule == SPIPE_ZERO_COPY && !spipe_priv_is_staged(p->work, y);
    const double halos = in_place ? 0.0 : (double)y->depth * p->work->halo;
    const double device = slots * (in_place ? p->work->temps : p->work->held) + halos;
    if (device > p->work->memory) return 0;
    if (p->device_bytes > 0 && device > (double)p->device_bytes) return 0;
    if (p->pinned_bytes == 0 || y->pageable_slots) return 1;
    return spipe_priv_ring_bytes(p->work, y) <= (double)p->pinned_bytes;
}

/* Puts a way among the best, in order; of two that are alike the better one stays. Returns what it
   is predicted to take. */
SPIPE_PRIV_RARE double spipe_priv_consider(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    size_t k = 0;
    y.predicted_s = spipe_priv_predict(p->costs, p->work, &y);
    if (p->work->beside) {
        y.predicted_s = p->work->beside(p->work, p->costs, &y, y.predicted_s);
    }
    if (!spipe_priv_fits(p, &y)) y.predicted_s += SPIPE_PRIV_DOES_NOT_FIT;
    ++p->num_compared;
    while (k < p->num && !spipe_priv_alike(&p->best[k], &y)) ++k;
    if (k == p->capacity) --k;
    if (k < p->num && p->best[k].predicted_s <= y.predicted_s) return y.predicted_s;
    if (k == p->num) ++p->num;
    for (; k > 0 && p->best[k - 1].predicted_s > y.predicted_s; --k) p->best[k] = p->best[k - 1];
    p->best[k] = y;
    return y.predicted_s;
}

/* Completes a way whose chunk and staging are known, and compares it. */
SPIPE_PRIV_RARE double spipe_priv_consider_ring(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const spipe_priv_work_t *w = p->work;
    double took;
    int fewer;
    y.depth = spipe_priv_depth_for(p->desc, p->costs, w, y);
    if ((w->flags & SPIPE_PRIV_PAID) != SPIPE_PRIV_KEPT && p->desc->count != SPIPE_AUTO) {
        const double n = spipe_priv_num_batches(w, &y);
        if ((double)y.depth > n) y.depth = (size_t)n; /* no slot for a batch that does not come */
    }
    took = spipe_priv_consider(p, y);
    if (p->desc->depth != SPIPE_AUTO || (w->flags & SPIPE_PRIV_SPLIT)) return took;
    if (spipe_priv_host_threads(p->desc, w, &y) > 1) return took;
    if ((w->flags & SPIPE_PRIV_PAID) && !(w->flags & SPIPE_PRIV_FEW_PINS)) return took;
    for (fewer = 0; fewer < 2 && y.depth > SPIPE_PRIV_COPY_SLOTS; ++fewer) {
        y.depth -= y.depth / SPIPE_PRIV_COPY_SLOTS; /* a one-shot run has to make its slots */
        y.depth -= y.depth % 2;
        took = spipe_priv_min(took, spipe_priv_consider(p, y));
    }
    return took;
}

/* Numbers of threads for a staged way whose chunk is known. Fine: each number up to the most; else
   both directions get one more as long as that gains something. */
SPIPE_PRIV_RARE void spipe_priv_consider_staged(spipe_priv_planner_t *p, spipe_priv_way_t y,
                                                int fine) {
    const spipe_priv_work_t *w = p->work;
    const int both = spipe_priv_filled(w, &y) > 0.0 && spipe_priv_drained(w, &y) > 0.0;
    const size_t ways = both ? 2 : 1, asked = p->desc->threads;
    const int may_help = w->num_segments == 1 && !(w->flags & SPIPE_PRIV_SEQUENTIAL);
    size_t most = spipe_priv_most_threads(w, &y), threads = may_help ? 0 : ways;
    double took, least = SPIPE_PRIV_DOES_NOT_FIT;
    int more = 0;
    if (w->flags & SPIPE_PRIV_SPLIT)
        threads = most; /* the law does not know what their work takes */
    else if (w->pageable_in + w->pageable_out <= 0.0 && !(w->flags & SPIPE_PRIV_POSITIONED))
        most = ways; /* sources and sinks see chunks in order */
    if (asked != SPIPE_AUTO) threads = most = ways * asked;
    for (; threads <= most && (fine || more < 2); threads += fine ? 1 : ways) {
        y.fill_threads = y.drain_threads = 0;
        if (threads > 0) spipe_priv_share_threads(p->costs, w, &y, threads);
        if (asked != SPIPE_AUTO && y.fill_threads > 0) y.fill_threads = asked;
        if (asked != SPIPE_AUTO && y.drain_threads > 0) y.drain_threads = asked;
        y.caller_helps = threads == 0;
        took = spipe_priv_consider_ring(p, y);
        if (threads > 0 && may_help) {
            y.caller_helps = 1;
            took = spipe_priv_min(took, spipe_priv_consider_ring(p, y));
        }
        more = took < least ? 0 : more + 1;
        least = spipe_priv_min(least, took);
    }
}

/* Chunks that the user made far smaller than a copy is worth are copied several at a time. */
SPIPE_PRIV_RARE void spipe_priv_consider_batches(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const spipe_priv_work_t *w = p->work;
    const double chunk = (double)y.chunk * spipe_priv_busier(w);
    const double most = SPIPE_PRIV_MOST_CHUNK;
    const size_t chunks = w->count == 0 ? 1 : (w->count - 1) / y.chunk + 1;
    y.batch = 1;
    spipe_priv_consider_ring(p, y);
    if (!(w->flags & SPIPE_PRIV_MAY_BATCH) || y.schedule != SPIPE_ENGINES) return;
    for (y.batch = 2; y.batch < chunks && chunk * (double)y.batch <= most; y.batch *= 2) {
        spipe_priv_consider_ring(p, y);
    }
    y.batch = chunks;
    if (chunks > 1 && chunk * (double)chunks <= most) spipe_priv_consider_ring(p, y);
}

/* A way whose chunk is known: staged by some threads, or copied as it is, or in batches. */
SPIPE_PRIV_RARE void spipe_priv_consider_chunk(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const size_t most = spipe_priv_most_chunk(p->desc, p->work, &y);
    if (p->desc->chunk == SPIPE_AUTO && y.chunk > most) y.chunk = most;
    if (spipe_priv_is_staged(p->work, &y))
        spipe_priv_consider_staged(p, y, 0);
    else if (p->desc->chunk != SPIPE_AUTO)
        spipe_priv_consider_batches(p, y);
    else
        spipe_priv_consider_ring(p, y);
    if (!(p->work->flags & SPIPE_PRIV_MAY_REPLAY) || !(p->work->flags & SPIPE_PRIV_KEPT)) return;
    if (spipe_priv_num_batches(p->work, &y) > (double)SPIPE_PRIV_MAX_REPLAY) return;
    if (spipe_priv_num_batches(p->work, &y) < 2.0) return;
    y.replay = 1;
    spipe_priv_consider_ring(p, y);
}

/* Below the ladder: halves the chunk until some way fits into the memory there is. */
SPIPE_PRIV_RARE void spipe_priv_shrink(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    y.chunk = spipe_priv_chunk_of(p->work, SPIPE_PRIV_LEAST_CHUNK);
    while (p->best[0].predicted_s >= SPIPE_PRIV_DOES_NOT_FIT && y.chunk > 1) {
        y.chunk /= 2;
        if (y.chunk < p->work->least_chunk) return;
        spipe_priv_consider_chunk(p, y);
    }
}

/* Between the rungs of the ladder: chunks near the best so far that divide the whole evenly; then
   every number of threads for the best of them. */
SPIPE_PRIV_RARE void spipe_priv_refine(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const size_t n = (size_t)spipe_priv_num_batches(p->work, &p->best[0]);
    size_t parts = n - n / SPIPE_PRIV_REFINE_DOWN;
    if (p->best[0].schedule != y.schedule || p->best[0].staging != y.staging) return;
    for (; parts <= n + n / SPIPE_PRIV_REFINE_UP + 1; parts += n / SPIPE_PRIV_REFINE_STEPS + 1) {
        y.chunk = spipe_priv_part_of(p->work, parts);
        if (parts != n) spipe_priv_consider_chunk(p, y);
    }
    y = p->best[0];
    if (y.fill_threads + y.drain_threads > 0) spipe_priv_consider_staged(p, y, 1);
}

/* The ladder of chunk sizes: the whole, 128 KiB, 192, 256, 384, ... 16 MiB. */
SPIPE_PRIV_RARE void spipe_priv_consider_chunks(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const spipe_priv_work_t *w = p->work;
    const double total = (double)w->count * spipe_priv_busier(w);
    const int compared = p->num_compared;
    size_t parts, bytes;
    y.chunk = p->desc->chunk;
    if (y.chunk != SPIPE_AUTO) {
        spipe_priv_consider_chunk(p, y);
        return;
    }
    for (parts = 1; parts <= SPIPE_MAX_DEPTH; parts *= 2) {
        if (total > (double)parts * (double)SPIPE_PRIV_MOST_CHUNK) continue;
        y.chunk = spipe_priv_part_of(w, parts);
        spipe_priv_consider_chunk(p, y);
    }
    for (bytes = SPIPE_PRIV_LEAST_CHUNK; bytes <= SPIPE_PRIV_MOST_CHUNK; bytes *= 2) {
        y.chunk = spipe_priv_chunk_of(w, (double)bytes);
        if (y.chunk < w->count) spipe_priv_consider_chunk(p, y);
        y.chunk = spipe_priv_chunk_of(w, 1.5 * (double)bytes);
        if (y.chunk < w->count) spipe_priv_consider_chunk(p, y);
    }
    if (p->num_compared == compared) { /* one element, or its halo, exceeds the ladder */
        y.chunk = spipe_priv_part_of(w, 1);
        spipe_priv_consider_chunk(p, y);
    }
    spipe_priv_refine(p, y);
    spipe_priv_shrink(p, y);
}

/* Zero-copy: the whole in one launch of each stage, or a few parts side by side. */
SPIPE_PRIV_RARE void spipe_priv_consider_zero_copy(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const int one_shot = !(p->work->flags & SPIPE_PRIV_KEPT);
    size_t parts;
    y.schedule = SPIPE_ZERO_COPY;
    y.depth = SPIPE_PRIV_COPY_SLOTS;
    if (p->desc->depth != SPIPE_AUTO) y.depth = p->desc->depth;
    for (parts = 1; parts <= SPIPE_PRIV_MAX_PARTS; parts *= 2) {
        y.chunk = spipe_priv_part_of(p->work, parts);
        if (one_shot && p->desc->depth == SPIPE_AUTO) y.depth = parts;
        spipe_priv_consider(p, y);
    }
}

/* Considers a way to stage unless its set-up and its bytes alone take longer than the best way so
   far: planning small runs must not take long itself. */
SPIPE_PRIV_RARE void spipe_priv_consider_staging(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const spipe_priv_work_t *w = p->work;
    double least;
    y.chunk = y.depth = y.batch = 1;
    least = spipe_priv_setup(p->costs, w, &y) +
            (double)w->count * spipe_priv_busier(w) / p->costs->link_in;
    if (p->num < p->capacity || least < p->best[0].predicted_s) spipe_priv_consider_chunks(p, y);
}

/* Little data through sources and sinks: pinning a slot takes longer than CUDA's own copies of a
   pageable one, which the calling thread fills and drains. */
SPIPE_PRIV_RARE void spipe_priv_consider_pageable_slots(spipe_priv_planner_t *p,
                                                        spipe_priv_way_t y) {
    const spipe_priv_work_t *w = p->work;
    const unsigned never = SPIPE_PRIV_PAID | SPIPE_PRIV_SPLIT | SPIPE_PRIV_NO_PINS;
    if (w->hosted_in + w->hosted_out <= 0.0 || w->pageable_in + w->pageable_out > 0.0) return;
    if ((w->flags & never) || w->num_segments > 1 || p->desc->count == SPIPE_AUTO) return;
    if (p->desc->schedule != SPIPE_SCHEDULE_AUTO || p->desc->threads != SPIPE_AUTO) return;
    if (p->desc->depth != SPIPE_AUTO || p->desc->chunk != SPIPE_AUTO) return;
    y.chunk = spipe_priv_part_of(w, 1);
    if ((double)y.chunk * spipe_priv_busier(w) > (double)SPIPE_PRIV_MOST_CHUNK) return;
    y.depth = 1;
    y.pageable_slots = 1;
    spipe_priv_consider(p, y);
}

/* What may be done about pageable arrays. */
SPIPE_PRIV_RARE void spipe_priv_consider_stagings(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const spipe_priv_work_t *w = p->work;
    const int few = (w->flags & SPIPE_PRIV_FEW_PINS) != 0;
    const int shared = p->desc->hooks && p->desc->hooks->next_batch; /* several GPUs at once */
    const int paid = (w->flags & SPIPE_PRIV_PAID) || shared;
    if (w->pageable_in + w->pageable_out <= 0.0) {
        y.staging = SPIPE_STAGING_AUTO;
    } else if (p->desc->staging != SPIPE_STAGING_AUTO) {
        y.staging = p->desc->staging;
    } else if (w->flags & (SPIPE_PRIV_PAGE_TABLES | SPIPE_PRIV_NO_PINS)) {
        y.staging = SPIPE_STAGING_DIRECT;
    } else {
        y.staging = SPIPE_STAGING_COPY;
    }
    if (y.staging == SPIPE_STAGING_REGISTER && !(w->flags & SPIPE_PRIV_MAY_REGISTER)) {
        y.staging = SPIPE_STAGING_COPY; /* the system refused to pin the arrays */
        if (w->flags & SPIPE_PRIV_NO_PINS) y.staging = SPIPE_STAGING_DIRECT;
    }
    if ((paid && !few) || p->desc->staging != SPIPE_STAGING_AUTO ||
        y.staging != SPIPE_STAGING_COPY) {
        if (!paid) spipe_priv_consider_pageable_slots(p, y);
        spipe_priv_consider_staging(p, y);
        return;
    }
    y.staging = SPIPE_STAGING_DIRECT;
    spipe_priv_consider_chunks(p, y);
    y.staging = SPIPE_STAGING_REGISTER;
    if (w->flags & SPIPE_PRIV_MAY_REGISTER) spipe_priv_consider_staging(p, y);
    y.staging = SPIPE_STAGING_COPY;
    spipe_priv_consider_staging(p, y);
}

/* Drops ways that do not fit into the memory there is; where none does, the best one stays, and
   allocating will say how much is missing. */
SPIPE_PRIV_RARE size_t spipe_priv_drop_unfit(spipe_priv_planner_t *p) {
    while (p->num > 1 && p->best[p->num - 1].predicted_s >= SPIPE_PRIV_DOES_NOT_FIT) --p->num;
    if (p->best[0].predicted_s >= SPIPE_PRIV_DOES_NOT_FIT) {
        p->best[0].predicted_s = spipe_priv_predict(p->costs, p->work, &p->best[0]);
    }
    return p->num;
}

/* Lists the best ways, best first; returns how many, 1 at the least. */
SPIPE_PRIV_RARE size_t spipe_priv_list_ways(spipe_priv_planner_t *p) {
    const spipe_schedule_t asked = p->desc->schedule;
    spipe_priv_way_t y;
    memset(&y, 0, sizeof y);
    y.batch = 1;
    y.schedule = asked == SPIPE_SCHEDULE_AUTO ? SPIPE_ENGINES : asked;
    p->num = 0;
    p->num_compared = 0;
    if (asked == SPIPE_ZERO_COPY && p->desc->chunk == SPIPE_AUTO &&
        p->work->pageable_in + p->work->pageable_out <= 0.0 && p->work->halo <= 0.0) {
        spipe_priv_consider_zero_copy(p, y);
        return spipe_priv_drop_unfit(p);
    }
    spipe_priv_consider_stagings(p, y);
    if (asked == SPIPE_SCHEDULE_AUTO && (p->work->flags & SPIPE_PRIV_MAY_ZERO_COPY)) {
        spipe_priv_consider_zero_copy(p, y);
    }
    return spipe_priv_drop_unfit(p);
}
