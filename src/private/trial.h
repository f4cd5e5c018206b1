/* ---- 13 execute: the trial -----------------------------------------------------------------
   A kept pipeline runs its best few candidates in turn and keeps the fastest. The first runs also
   tell how long the kernels take, and the candidates are listed anew. Writes spipe_priv_trial_t. */

/* Forgets the graph: it names arrays and sizes. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_drop_graph(spipe_priv_trial_t *t) {
    const cudaError_t e = t->graph ? cudaGraphExecDestroy(t->graph) : cudaSuccess;
    t->graph = NULL;
    return e;
}

/* Starts a new trial of num candidates. */
SPIPE_PRIV_RARE void spipe_priv_trial_reset(spipe_priv_trial_t *t, size_t num) {
    t->num = num;
    t->current = 0;
    t->num_runs = 0;
    t->over = 0;
    t->kernel_s = -1.0;
    t->graph_failed = 0;
    memset((void *)t->work, 0, sizeof t->work);
}

/* Whether candidates may be compared by running them. Not with resident buffers, sources, sinks,
   checked runs and progress, which see how the work is divided; nor beside other runs, which change
   the measured times. */
SPIPE_PRIV_RARE int spipe_priv_may_try(const spipe_priv_request_t *r) {
    const spipe_priv_work_t w = spipe_priv_request_work(r, 0.0);
    return r->kept && !r->beside && (w.flags & SPIPE_PRIV_MAY_TRY) && r->desc.count > 0;
}

/* Plans for the request as it is now. Returns the number of candidates, at most so many. */
SPIPE_PRIV_RARE size_t spipe_priv_make_plan(spipe_priv_pipeline_t *p, double kernel_s,
                                            size_t most) {
    spipe_priv_request_t *r = &p->request;
    spipe_priv_way_t *ways = p->trial.ways;
    spipe_priv_work_t w;
    size_t num, k;
    memset((void *)ways, 0, sizeof p->trial.ways);
    w = spipe_priv_request_work(r, kernel_s);
    if (spipe_priv_staged_bytes(&w) > 0.0 || w.host_calls > 0) {
        spipe_priv_request_host(r, spipe_priv_staged_bytes(&w));
        w = spipe_priv_request_work(r, kernel_s);
    }
    num = spipe_priv_request_plan(r, &w, ways, most, &p->plan);
    p->plan.kernel_known = kernel_s >= 0.0;
    for (k = 1; k < num; ++k) {
        if (ways[k].predicted_s > SPIPE_PRIV_WORTH_TRYING * ways[0].predicted_s) break;
    }
    return k;
}

/* The plan of candidate number k for this work, without arranging anything. */
SPIPE_PRIV_RARE void spipe_priv_take_way_for(spipe_priv_pipeline_t *p, size_t k,
                                             const spipe_priv_work_t *w) {
    const int compared = p->plan.num_candidates;
    p->plan = spipe_priv_explain(&p->request.desc, &p->request.costs, w, &p->trial.ways[k]);
    p->plan.num_candidates = compared;
    p->plan.kernel_known = p->trial.kernel_s >= 0.0;
    if (k > 0 && !p->trial.over) p->plan.why_chunk = "a candidate that is being measured";
    if (k > 0 && p->trial.over) p->plan.why_chunk = "the fastest of the candidates that were run";
    p->trial.current = k;
}

SPIPE_PRIV_RARE void spipe_priv_take_way(spipe_priv_pipeline_t *p, size_t k) {
    const spipe_priv_work_t w = spipe_priv_request_work(&p->request, p->trial.kernel_s);
    spipe_priv_take_way_for(p, k, &w);
}

/* Route, memory, events and program for the plan in use. Allocates nothing once each candidate was
   arranged. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_arrange(spipe_priv_pipeline_t *p) {
    p->request.incomplete = 1; /* until everything is arranged */
    spipe_priv_route_plan(&p->route, &p->request, &p->plan);
    spipe_priv_measure(p);
    p->workers.steer.found = 0; /* it was of another plan */
    spipe_priv_make_workers(p);
    SPIPE_TRY(spipe_priv_create_streams(p));
    if (spipe_priv_needs_events(p)) SPIPE_TRY(spipe_priv_create_slot_events(p));
    SPIPE_TRY(spipe_priv_arrange_memory(p));
    SPIPE_TRY(spipe_priv_arrange_program(p));
    p->request.incomplete = p->request.other_arrays = 0;
    return cudaSuccess;
}

/* Arenas for all candidates, so that trying them allocates nothing. Where there is no room for all
   the best one is enough. */
SPIPE_PRIV_RARE void spipe_priv_reserve(spipe_priv_pipeline_t *p) {
    size_t k, device, pinned, most_device = 0, most_pinned = 0;
    for (k = p->trial.num; k > 0; --k) {
        spipe_priv_take_way(p, k - 1);
        spipe_priv_route_plan(&p->route, &p->request, &p->plan);
        spipe_priv_layout(p, &device, &pinned);
        if (device > most_device) most_device = device;
        if (pinned > most_pinned) most_pinned = pinned;
    }
    spipe_priv_make_workers(p);
    if (spipe_priv_grow_arenas(p, most_device, most_pinned) == cudaSuccess) return;
    (void)cudaGetLastError();
    spipe_priv_failure_clear(&p->failure);
    p->trial.num = 1;
}

/* After the system refused to pin a ring: whether to plan anew with half as much, the third time
   with nothing pinned. Not if the user asked for a way that needs pinned slots. */
SPIPE_PRIV_RARE int spipe_priv_pin_less(spipe_priv_pipeline_t *p) {
    spipe_priv_request_t *r = &p->request;
    const int copy = p->plan.staging == SPIPE_STAGING_COPY;
    const int asked = copy && r->desc.staging == SPIPE_STAGING_COPY;
    if (p->memory.refused == 0 || asked || p->plan.schedule == SPIPE_ZERO_COPY) return 0;
    if (spipe_priv_no_pins(r)) return 0;
    ++r->pin_refusals;
    r->pin_limit = spipe_priv_no_pins(r) ? 0 : p->memory.refused / 2;
    return 1;
}

/* Plans, and pins arrays in place if that is the plan; if the system refuses, plans anew. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_plan_request(spipe_priv_pipeline_t *p) {
    const size_t most = p->request.kept ? SPIPE_PRIV_CANDIDATES : 1;
    int may_try = spipe_priv_may_try(&p->request) && p->request.fit.slots == 0, pinned = 1;
    size_t num;
    num = spipe_priv_make_plan(p, -1.0, most);
    if (p->plan.staging == SPIPE_STAGING_REGISTER) {
        SPIPE_TRY(spipe_priv_register(&p->request, &pinned));
        if (!pinned) {
            p->request.may_register = 0;
            num = spipe_priv_make_plan(p, -1.0, most);
        }
        may_try = 0;
    }
    spipe_priv_trial_reset(&p->trial, may_try ? num : 0);
    return cudaSuccess;
}

/* The fewest elements that a slot may have: a chunk that the user fixed, or the widest halo. */
SPIPE_PRIV_RARE size_t spipe_priv_least_elems(const spipe_desc_t *d) {
    size_t least = d->chunk == SPIPE_AUTO ? 1 : d->chunk;
    int i;
    for (i = 0; i < d->num_buffers && d->chunk == SPIPE_AUTO; ++i) {
        if (least < d->buffers[i].halo_before) least = d->buffers[i].halo_before;
        if (least < d->buffers[i].halo_after) least = d->buffers[i].halo_after;
    }
    return least;
}

/* After memory was refused: whether to plan anew with less of what is left to the library. Slots
   become smaller, down to the smallest chunk that is proposed; then fewer, down to two; then
   smaller again, down to one slot of one element. */
SPIPE_PRIV_RARE int spipe_priv_take_less(spipe_priv_pipeline_t *p) {
    const spipe_desc_t *d = &p->request.desc;
    const spipe_priv_work_t w = spipe_priv_request_work(&p->request, 0.0);
    const size_t least = spipe_priv_least_elems(d), depth = p->plan.depth;
    const size_t elems = p->plan.chunk * p->plan.batch;
    const int large = spipe_priv_real(elems) * w.held > (double)SPIPE_PRIV_LEAST_CHUNK;
    const int fewer = d->depth == SPIPE_AUTO && depth > 1;
    spipe_priv_fit_t *fit = &p->request.fit;
    if (!p->memory.lacks) return 0;
    fit->elems = elems;
    fit->slots = depth;
    if (elems > least && (large || depth <= 2 || !fewer))
        fit->elems = elems / 2 > least ? elems / 2 : least;
    else if (fewer)
        fit->slots = (depth + 1) / 2;
    else
        return 0;
    return 1;
}

/* Plans for the request as it is now, and arranges what follows from it. In pipeline.h. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_plan_anew(spipe_priv_pipeline_t *p);

/* Borrows from resources before a kept pipeline's run, and pins arrays in place; plans anew if the
   number of runs has changed much, or if the system refuses to
   pin. If its memory lies elsewhere than before, everything with addresses is written anew. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_pick_up(spipe_priv_pipeline_t *p) {
    const unsigned char *device = p->memory.device, *pinned = p->memory.pinned;
    int registered;
    SPIPE_TRY(spipe_priv_check_in(p));
    SPIPE_TRY(spipe_priv_register_again(&p->request, &registered));
    p->request.may_register &= registered;
    if (!registered || (p->provider && p->provider->outdated(p))) return spipe_priv_plan_anew(p);
    if (device == p->memory.device && pinned == p->memory.pinned && !p->request.other_arrays) {
        return cudaSuccess;
    }
    SPIPE_TRY(spipe_priv_drop_graph(&p->trial));
    return spipe_priv_arrange(p);
}

/* Makes room for the candidates, which only a kept pipeline has, and arranges the best one. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_arrange_all(spipe_priv_pipeline_t *p) {
    p->trial.arranged = 0;
    if (p->trial.num > 1) spipe_priv_reserve(p);
    if (p->trial.num > 0) spipe_priv_take_way(p, 0);
    SPIPE_TRY(spipe_priv_arrange(p));
    p->trial.arranged = 1;
    return cudaSuccess;
}

/* Captures a run. A stage that cannot be captured is no failure: then nothing is replayed. In
   enqueue.h. */
SPIPE_PRIV_RARE void spipe_priv_capture_run(spipe_priv_pipeline_t *p);

/* A time of this way must be less than so much of another's to be known as shorter: runs vary. */
SPIPE_PRIV_RARE double spipe_priv_chance(const spipe_priv_way_t *way) {
    return way->staging == SPIPE_STAGING_COPY ? SPIPE_PRIV_STAGED_CHANCE : SPIPE_PRIV_CHANCE;
}

/* The fastest candidate that has run; the first in the list if none has. A candidate that was
   predicted to be slower replaces a better prediction only if it gains more than runs vary. */
SPIPE_PRIV_RARE size_t spipe_priv_fastest(const spipe_priv_trial_t *t) {
    size_t k, best = 0;
    for (k = 1; k < t->num; ++k) {
        const spipe_priv_way_t *way = &t->ways[k];
        if (way->tries == 0) continue;
        if (t->ways[best].tries > 0 && way->best_s >= spipe_priv_chance(way) * t->ways[best].best_s)
            continue;
        best = k;
    }
    return best;
}

/* Whether another run of a candidate may change what is fastest. Without staging two runs are
   enough. With staging times vary more, so a candidate runs again unless its least time is longer
   than that of the fastest by more than they vary. */
SPIPE_PRIV_RARE int spipe_priv_worth_a_run(const spipe_priv_trial_t *t, size_t k) {
    const spipe_priv_way_t *way = &t->ways[k], *best = &t->ways[spipe_priv_fastest(t)];
    const int staged = way->staging == SPIPE_STAGING_COPY;
    if (way->tries >= SPIPE_PRIV_TRIES || (way->replay && t->graph_failed)) return 0;
    return way->tries < 2 || (staged && SPIPE_PRIV_STAGED_CHANCE * way->best_s < best->best_s);
}

/* The candidate for the next run: one that is worth a run, else the fastest. With staging the least
   tried comes first. The law knows ways without staging well, so there the one predicted to be the
   fastest comes first, and four of five runs are of the fastest so far. A typical run is then fast
   from the second one on; the run after another candidate's is not, as everything is arranged
   anew. */
SPIPE_PRIV_RARE size_t spipe_priv_next_way(spipe_priv_trial_t *t) {
    const size_t best = spipe_priv_fastest(t);
    size_t k, next = t->num;
    if (t->over || (t->num_runs % SPIPE_PRIV_TRY_EVERY != 1 && t->ways[best].tries > 0 &&
                    t->ways[best].staging != SPIPE_STAGING_COPY)) {
        return best;
    }
    for (k = 0; k < t->num; ++k) {
        if (!spipe_priv_worth_a_run(t, k)) continue;
        if (next == t->num ||
            (t->ways[k].staging == SPIPE_STAGING_COPY && t->ways[k].tries < t->ways[next].tries)) {
            next = k;
        }
    }
    if (next < t->num) return next;
    t->over = 1;
    return best;
}

/* Makes a candidate the plan in use. If its memory cannot be allocated, the run does not fail: the
   first candidate is used instead and the trial ends. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_use_way(spipe_priv_pipeline_t *p, size_t next) {
    spipe_priv_trial_t *t = &p->trial;
    if (next == t->current && t->arranged) return cudaSuccess;
    if (p->request.apart) SPIPE_TRY(spipe_priv_drop_graph(t)); /* it names memory that is freed */
    spipe_priv_take_way(p, next);
    t->arranged = 1;
    if (spipe_priv_arrange(p) == cudaSuccess) return cudaSuccess;
    (void)cudaGetLastError();
    t->num = 1;
    t->over = 1;
    spipe_priv_take_way(p, 0);
    return spipe_priv_arrange(p);
}

/* Chooses the candidate for the next run. A run with a timeline takes the fastest one and is not
   measured, because recording slows it down. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_choose_way(spipe_priv_pipeline_t *p) {
    spipe_priv_trial_t *t = &p->trial;
    const int watched = p->request.desc.timeline != NULL;
    size_t next;
    if (t->num == 0) return cudaSuccess;
    next = watched ? spipe_priv_fastest(t) : spipe_priv_next_way(t);
    SPIPE_TRY(spipe_priv_use_way(p, next));
    if (!p->plan.replay || watched) return cudaSuccess;
    if (!t->graph || t->graph_chunk != p->plan.chunk) spipe_priv_capture_run(p);
    return t->graph_failed ? spipe_priv_use_way(p, spipe_priv_next_way(t)) : cudaSuccess;
}

/* Whether two ways are equal: a time measured with one then holds for the other. */
SPIPE_PRIV_RARE int spipe_priv_same_way(const spipe_priv_way_t *a, const spipe_priv_way_t *b) {
    if (a->schedule != b->schedule || a->staging != b->staging || a->replay != b->replay) return 0;
    return a->chunk == b->chunk && a->batch == b->batch && a->depth == b->depth &&
           a->fill_threads == b->fill_threads && a->drain_threads == b->drain_threads &&
           a->caller_helps == b->caller_helps;
}

/* Replaces the candidates by a new list, and copies the times measured for ways that are in both.
   The way in use stays a candidate: if the new list lacks it, it is added or replaces the last. */
SPIPE_PRIV_RARE void spipe_priv_keep_measured(spipe_priv_trial_t *t, spipe_priv_way_t *ways) {
    const spipe_priv_way_t ran = t->ways[t->current];
    size_t j, k;
    for (k = 0; k < t->num; ++k) {
        for (j = 0; j < SPIPE_PRIV_CANDIDATES; ++j) {
            if (!spipe_priv_same_way(&ways[k], &t->ways[j])) continue;
            ways[k].best_s = t->ways[j].best_s;
            ways[k].tries = t->ways[j].tries;
        }
    }
    for (k = 0; k < t->num && !spipe_priv_same_way(&ways[k], &ran); ++k) continue;
    if (k == t->num && t->num < SPIPE_PRIV_CANDIDATES) ++t->num;
    if (k == t->num) --k;
    ways[k] = ran;
    memcpy((void *)t->ways, (void *)ways, sizeof t->ways);
    t->current = k;
}

/* Lists ways with these costs and this work that fit into the memory that the pipeline has. */
SPIPE_PRIV_RARE size_t spipe_priv_list_fitting(const spipe_priv_pipeline_t *p,
                                               const spipe_costs_t *costs,
                                               const spipe_priv_work_t *w, spipe_priv_way_t *ways) {
    spipe_priv_planner_t planner;
    size_t num, k;
    memset(&planner, 0, sizeof planner);
    planner.costs = costs;
    planner.work = w;
    planner.desc = &p->request.desc;
    planner.best = ways;
    planner.capacity = SPIPE_PRIV_CANDIDATES;
    if (p->memory.device_bytes > 0) {
        planner.device_bytes = p->memory.device_bytes - spipe_priv_slack(p);
    }
    planner.pinned_bytes = p->request.pin_limit;
    if (p->memory.pinned_bytes > 0) {
        planner.pinned_bytes = p->memory.pinned_bytes - spipe_priv_slack(p);
    }
    num = spipe_priv_list_ways(&planner);
    for (k = 1; k < num; ++k) {
        if (ways[k].predicted_s > SPIPE_PRIV_WORTH_TRYING * ways[0].predicted_s) break;
    }
    return k;
}

/* Lists the candidates again after a run that took so many seconds. If that is longer than the
   copies explain, either the kernels or the host's threads took the rest: the best of each
   explanation is a candidate. Times measured before are kept. */
SPIPE_PRIV_RARE void spipe_priv_list_again(spipe_priv_pipeline_t *p, double took) {
    spipe_priv_trial_t *t = &p->trial;
    const spipe_priv_way_t ran = t->ways[t->current];
    spipe_priv_work_t w = spipe_priv_request_work(&p->request, t->kernel_s);
    spipe_priv_way_t ways[SPIPE_PRIV_CANDIDATES], others[SPIPE_PRIV_CANDIDATES];
    spipe_costs_t slower;
    size_t k;
    memset((void *)ways, 0, sizeof ways);
    memset((void *)others, 0, sizeof others);
    t->num = spipe_priv_list_fitting(p, &p->request.costs, &w, ways);
    if (ran.fill_threads + ran.drain_threads > 0 && t->kernel_s > 0.0) {
        w.kernel_s = 0.0;
        slower = spipe_priv_solve_host(&p->request.costs, &w, &ran, took);
        (void)spipe_priv_list_fitting(p, &slower, &w, others);
        for (k = 0; k < t->num && !spipe_priv_same_way(&ways[k], &others[0]); ++k) continue;
        if (k == t->num && t->num < SPIPE_PRIV_CANDIDATES) ++t->num;
        if (k == t->num) --k;
        for (; k > 1; --k) ways[k] = ways[k - 1]; /* put second, because the last may be dropped */
        if (k == 1) ways[1] = others[0];
    }
    spipe_priv_keep_measured(t, ways);
}

/* After a successful run: notes its time. The first runs of a process are slow, so the kernels'
   time computed from them is too long: a later run that gives a clearly shorter one counts, too. */
SPIPE_PRIV_RARE void spipe_priv_note_run(spipe_priv_pipeline_t *p) {
    spipe_priv_trial_t *t = &p->trial;
    spipe_priv_way_t *way = &t->ways[t->current];
    const double took = 1e-3 * p->report.wall_ms;
    spipe_priv_work_t w;
    if (t->num == 0 || t->over || p->request.desc.timeline) return;
    if (way->tries < SPIPE_PRIV_TRIES) {
        if (way->tries == 0 || took < way->best_s) way->best_s = took;
        ++way->tries;
    }
    if (++t->num_runs > SPIPE_PRIV_CANDIDATES) return;
    w = spipe_priv_request_work(&p->request, t->kernel_s);
    if (t->num_runs > 2) w.kernel_s -= SPIPE_PRIV_LESS_KERNEL * took;
    if (t->kernel_s >= 0.0) { /* only a run shorter than predicted tells more */
        if (w.kernel_s <= 0.0 || spipe_priv_predict(&p->request.costs, &w, way) <= took) return;
    }
    t->kernel_s = spipe_priv_solve_kernel(&p->request.costs, &w, way, took);
    spipe_priv_list_again(p, took);
}
