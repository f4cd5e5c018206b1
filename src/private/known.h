/* ---- 14 resources: known work ---------------------------------------------------------------
   What one-shot runs on resources learn from each other: a run whose work is that of an earlier one
   is not planned again, and such runs try candidates in turn, as a kept pipeline does. */

SPIPE_PRIV_RARE uint64_t spipe_priv_mix(uint64_t hash, uint64_t value) {
    return (hash ^ value) * 0x9E3779B97F4A7C15u + (hash >> 32);
}

/* What a description asks for besides its work: what it fixes, and its stages, whose kernels take
   times of their own. */
SPIPE_PRIV_RARE uint64_t spipe_priv_asked(const spipe_desc_t *d) {
    uint64_t hash = (uint64_t)(d->count == SPIPE_AUTO);
    int i;
    hash = spipe_priv_mix(hash, d->chunk);
    hash = spipe_priv_mix(hash, d->depth);
    hash = spipe_priv_mix(hash, d->threads);
    hash = spipe_priv_mix(hash, (uint64_t)d->schedule);
    hash = spipe_priv_mix(hash, (uint64_t)d->staging);
    for (i = 0; i < d->num_stages; ++i) {
        hash = spipe_priv_mix(hash, (uint64_t)(uintptr_t)d->stages[i].fn);
    }
    return hash;
}

/* Whether two runs have the same work. How much memory is free does not count. */
SPIPE_PRIV_RARE int spipe_priv_same_work(const spipe_priv_work_t *a, const spipe_priv_work_t *b) {
    if (a->count != b->count || a->flags != b->flags) return 0;
    if (a->in != b->in || a->out != b->out) return 0;
    if (a->pageable_in != b->pageable_in || a->pageable_out != b->pageable_out) return 0;
    if (a->hosted_in != b->hosted_in || a->hosted_out != b->hosted_out) return 0;
    if (a->held != b->held || a->temps != b->temps || a->halo != b->halo) return 0;
    if (a->copies[0] != b->copies[0] || a->copies[1] != b->copies[1]) return 0;
    if (a->num_stages != b->num_stages || a->num_segments != b->num_segments) return 0;
    if (a->host_calls != b->host_calls || a->zero_copy_passes != b->zero_copy_passes) return 0;
    return a->machine.beside == b->machine.beside &&
           (!a->machine.beside || a->machine.runs == b->machine.runs);
}

/* Known work that a run has, too; NULL: there is none. Work that was planned for less than half of
   the memory there is now is planned again. Called with the lock held. */
SPIPE_PRIV_RARE spipe_priv_known_t *spipe_priv_find_known(spipe_resources_t *r, uint64_t asked,
                                                          const spipe_priv_work_t *w,
                                                          size_t pinned) {
    size_t i;
    for (i = 0; i < SPIPE_PRIV_KNOWN; ++i) {
        spipe_priv_known_t *k = &r->met.known[i];
        if (k->used == 0 || k->asked != asked || !spipe_priv_same_work(&k->work, w)) continue;
        if (w->machine.memory > 2.0 * k->work.machine.memory || pinned > 2 * k->pinned) continue;
        return k;
    }
    return NULL;
}

/* Where to note work that is not known: in place of the work that was not met for longest. Called
   with the lock held. */
SPIPE_PRIV_RARE spipe_priv_known_t *spipe_priv_oldest_known(spipe_resources_t *r) {
    spipe_priv_known_t *oldest = &r->met.known[0];
    size_t i;
    for (i = 1; i < SPIPE_PRIV_KNOWN; ++i) {
        if (r->met.known[i].used < oldest->used) oldest = &r->met.known[i];
    }
    return oldest;
}

/* Chooses among the candidates; returns whether the choice fits into the memory there is. Work that
   was met a few times only may not come again, so it is done as predicted. */
SPIPE_PRIV_RARE int spipe_priv_choose_known(spipe_priv_pipeline_t *p, spipe_priv_work_t *w,
                                            size_t num_runs) {
    spipe_priv_trial_t *t = &p->trial;
    spipe_priv_planner_t limits;
    size_t next = 0;
    if (t->num > 0 && num_runs >= SPIPE_PRIV_TRY_FROM) {
        next = p->request.desc.timeline ? spipe_priv_fastest(t) : spipe_priv_next_way(t);
    }
    memset(&limits, 0, sizeof limits);
    limits.work = w;
    limits.pinned_bytes = p->request.pin_limit;
    if (!spipe_priv_fits(&limits, &t->ways[next])) return 0;
    if (t->kernel_s >= 0.0) w->kernel_s = t->kernel_s;
    spipe_priv_take_way_for(p, next, w);
    p->report.trying = t->num > 1 && !t->over;
    return 1;
}

/* Plans a one-shot run by what runs of the same work showed. Returns 0 for runs that are planned
   each by itself. */
SPIPE_PRIV_RARE int spipe_priv_lent_recall(spipe_priv_pipeline_t *p) {
    const spipe_priv_request_t *q = &p->request;
    spipe_priv_work_t w = spipe_priv_request_work(q, -1.0);
    const int may_try = !q->beside && q->runs < 2 && (w.flags & SPIPE_PRIV_MAY_TRY);
    spipe_resources_t *r = spipe_priv_resources_of(&q->desc);
    const uint64_t asked = spipe_priv_asked(&q->desc);
    spipe_priv_known_t *k;
    size_t num_runs = 0;
    double took = 0.0;
    if (q->kept || q->desc.costs || q->desc.hooks || q->pin_refusals > 0) return 0;
    spipe_priv_lock(r->lending.sync);
    k = spipe_priv_find_known(r, asked, &w, q->pin_limit);
    if (k) {
        p->trial = k->trial;
        num_runs = k->num_runs;
        took = k->took_ms;
        k->took_ms = 0.0;
    }
    spipe_priv_unlock(r->lending.sync);
    if (took > 0.0) {
        p->report.wall_ms = took;
        spipe_priv_note_run(p);
    }
    if (!k || !spipe_priv_choose_known(p, &w, num_runs)) {
        const size_t num = spipe_priv_make_plan(p, -1.0, may_try ? SPIPE_PRIV_CANDIDATES : 1);
        spipe_priv_trial_reset(&p->trial, may_try ? num : 0);
        p->report.trying = p->trial.num > 1;
        num_runs = 0;
    }
    spipe_priv_lock(r->lending.sync);
    k = spipe_priv_find_known(r, asked, &w, q->pin_limit);
    if (!k) k = spipe_priv_oldest_known(r);
    k->asked = asked;
    k->work = w;
    k->pinned = q->pin_limit;
    k->num_runs = num_runs + 1;
    k->trial = p->trial;
    k->used = ++r->met.num_met;
    k->run = p;
    p->lent.known = k;
    spipe_priv_unlock(r->lending.sync);
    return 1;
}

/* After a one-shot run that succeeded: notes how long it took, if it was alone. */
SPIPE_PRIV_RARE void spipe_priv_lent_note(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_known_t *k = p->lent.known;
    if (!k || p->trial.num == 0 || p->request.desc.timeline) return;
    spipe_priv_lock(r->lending.sync);
    if (k->run == p && r->num_runs < 2) k->took_ms = p->report.wall_ms;
    spipe_priv_unlock(r->lending.sync);
}
