/* ---- 11 plan: choosing ---------------------------------------------------------------------
   Lists the ways to do the work: rings with each way to stage, zero-copy, CUDA's own copies. Pure,
   so it runs again whenever the work changes. */

/* Zero-copy: the whole in one launch of each stage, or a few parts side by side. Of ways that are
   alike only one is tried, and three parts are like two and like four: so they come last, and are
   left out unless they gain more than runs vary. */
SPIPE_PRIV_RARE void spipe_priv_consider_zero_copy(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    static const unsigned char parts[] = {1, 2, SPIPE_PRIV_MAX_PARTS, SPIPE_PRIV_MAX_PARTS - 1};
    const size_t last = sizeof parts - 1;
    size_t k;
    y.schedule = SPIPE_ZERO_COPY;
    for (k = 0; k <= last; ++k) {
        y.chunk = spipe_priv_part_of(p->work, parts[k]);
        y.depth = p->desc->depth;
        if (y.depth == SPIPE_AUTO) {
            y.depth = p->work->flags & SPIPE_PRIV_KEPT ? (size_t)SPIPE_PRIV_COPY_SLOTS : parts[k];
        }
        if (k == last && spipe_priv_predict(p->costs, p->work, &y) >
                             SPIPE_PRIV_CHANCE * p->best[0].predicted_s) {
            break;
        }
        spipe_priv_consider(p, &y);
    }
}

/* The least time that any ring can take: its set-up, the smallest batch through all engines, and
   the copies of the rest. */
SPIPE_PRIV_RARE double spipe_priv_least_time(const spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const spipe_priv_work_t *w = p->work;
    const size_t ladder = spipe_priv_chunk_of(w, SPIPE_PRIV_LEAST_CHUNK);
    spipe_priv_engines_t e;
    double rest;
    y.depth = y.batch = 1;
    y.chunk = spipe_priv_part_of(w, SPIPE_MAX_DEPTH);
    if (y.chunk > ladder) y.chunk = ladder;
    e = spipe_priv_engines_of(p->costs, w, &y);
    rest = spipe_priv_real(w->count) - spipe_priv_real(y.chunk);
    rest *= spipe_priv_max(w->in / p->costs->link_in, w->out / p->costs->link_out);
    if (!(w->flags & SPIPE_PRIV_PAID)) rest -= SPIPE_PRIV_ONE_BATCH * p->costs->setup_s;
    return spipe_priv_setup(p->costs, w, &y) + spipe_priv_latency(p->costs, &e, e.alone) + rest;
}

/* Considers rings with one kind of staging, unless their least time is longer than the best way so
   far, because planning a small run must not take long. */
SPIPE_PRIV_RARE void spipe_priv_consider_staging(spipe_priv_planner_t *p,
                                                 const spipe_priv_way_t *y) {
    const spipe_priv_work_t *w = p->work;
    const spipe_priv_way_t best = p->best[0];
    const double least = spipe_priv_least_time(p, *y);
    const size_t num = p->num;
    if (num == p->capacity && !w->machine.beside && least >= best.predicted_s) return;
    if (p->capacity == 1) p->num = 0; /* so that the best ring of this staging is refined */
    p->to_beat = p->capacity == 1 && num > 0 ? best.predicted_s : 0.0;
    spipe_priv_consider_chunks(p, *y);
    p->to_beat = 0.0;
    if (p->capacity > 1 || num == 0 || p->best[0].predicted_s < best.predicted_s) return;
    p->best[0] = best;
}

/* For little data through sources and sinks, to pin a slot takes longer than CUDA's own copies of a
   pageable slot, which the calling thread fills and drains; in a few parts, since a smaller slot is
   touched in less time. */
SPIPE_PRIV_RARE void spipe_priv_consider_pageable_slots(spipe_priv_planner_t *p,
                                                        spipe_priv_way_t y) {
    const spipe_priv_work_t *w = p->work;
    const unsigned never = SPIPE_PRIV_PAID | SPIPE_PRIV_SPLIT | SPIPE_PRIV_NO_PINS;
    const double total = spipe_priv_real(w->count) * spipe_priv_busier(w);
    size_t parts;
    if (w->hosted_in + w->hosted_out <= 0.0 || w->pageable_in + w->pageable_out > 0.0) return;
    if ((w->flags & never) || w->num_segments > 1 || p->desc->count == SPIPE_AUTO) return;
    if (p->desc->schedule != SPIPE_SCHEDULE_AUTO || p->desc->threads != SPIPE_AUTO) return;
    if (p->desc->depth != SPIPE_AUTO || p->desc->chunk != SPIPE_AUTO) return;
    if (total > (double)SPIPE_PRIV_MOST_CHUNK) return;
    y.depth = 1;
    y.pageable_slots = 1;
    for (parts = 1; parts <= SPIPE_MAX_DEPTH; parts *= 2) {
        if (parts > 1 && total < spipe_priv_real(parts) * (double)SPIPE_PRIV_LEAST_CHUNK) break;
        y.chunk = spipe_priv_part_of(w, parts);
        spipe_priv_consider(p, &y);
    }
}

/* What may be done about pageable arrays. */
SPIPE_PRIV_RARE void spipe_priv_consider_stagings(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const spipe_priv_work_t *w = p->work;
    const int few = (w->flags & SPIPE_PRIV_FEW_PINS) != 0;
    const int shared = p->desc->hooks && p->desc->hooks->next_chunk; /* by several GPUs */
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
        spipe_priv_consider_staging(p, &y);
        return;
    }
    y.staging = SPIPE_STAGING_DIRECT;
    spipe_priv_consider_chunks(p, y);
    y.staging = SPIPE_STAGING_REGISTER;
    if (w->flags & SPIPE_PRIV_MAY_REGISTER) spipe_priv_consider_staging(p, &y);
    y.staging = SPIPE_STAGING_COPY;
    spipe_priv_consider_staging(p, &y);
}

/* Drops ways that do not fit into the memory. If none fits, the best one stays, and allocating will
   say how much is missing. */
SPIPE_PRIV_RARE size_t spipe_priv_drop_unfit(spipe_priv_planner_t *p) {
    while (p->num > 1 && p->best[p->num - 1].predicted_s >= SPIPE_PRIV_DOES_NOT_FIT) --p->num;
    if (p->best[0].predicted_s >= SPIPE_PRIV_DOES_NOT_FIT) {
        p->best[0].predicted_s = spipe_priv_predict(p->costs, p->work, &p->best[0]);
    }
    return p->num;
}

/* Lists the best ways, best first; returns how many, at least 1. */
SPIPE_PRIV_RARE size_t spipe_priv_list_ways(spipe_priv_planner_t *p) {
    const spipe_schedule_t asked = p->desc->schedule;
    const spipe_priv_work_t *w = p->work;
    const int only_zero_copy = asked == SPIPE_ZERO_COPY && p->desc->chunk == SPIPE_AUTO &&
                               w->pageable_in + w->pageable_out <= 0.0 && w->halo <= 0.0;
    spipe_priv_way_t y;
    memset(&y, 0, sizeof y);
    y.batch = 1;
    y.schedule = asked == SPIPE_SCHEDULE_AUTO ? SPIPE_ENGINES : asked;
    p->num = 0;
    p->num_compared = 0;
    if (only_zero_copy || (asked == SPIPE_SCHEDULE_AUTO && (w->flags & SPIPE_PRIV_MAY_ZERO_COPY))) {
        spipe_priv_consider_zero_copy(p, y);
    }
    if (!only_zero_copy) spipe_priv_consider_stagings(p, y);
    return spipe_priv_drop_unfit(p);
}
