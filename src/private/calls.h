/* ---- 13 resources: pipelines of calls -------------------------------------------------------
   spipe_run with resources: what is called again is run by a kept pipeline, which stays idle in the
   resources between two calls. So such a call sets nothing up. */

enum {
    SPIPE_PRIV_IDLE_PIPELINES = 32 /* that resources keep between calls */
};

/* A hash of what makes most requests differ; addresses of arrays are not in it, as they may be
   others in each call. */
SPIPE_PRIV_RARE uint64_t spipe_priv_hash_request(const spipe_priv_request_t *q) {
    const spipe_desc_t *d = &q->desc;
    uint64_t hash = (uint64_t)d->num_stages;
    int i;
    spipe_priv_hash(&hash, &d->count, sizeof d->count);
    spipe_priv_hash(&hash, &d->chunk, sizeof d->chunk);
    spipe_priv_hash(&hash, &d->priority, sizeof d->priority);
    for (i = 0; i < d->num_buffers; ++i) {
        spipe_priv_hash(&hash, &d->buffers[i].kind, sizeof d->buffers[i].kind);
        spipe_priv_hash(&hash, &d->buffers[i].elem_bytes, sizeof d->buffers[i].elem_bytes);
        spipe_priv_hash(&hash, &q->arrays[i].type, sizeof q->arrays[i].type);
    }
    for (i = 0; i < d->num_stages; ++i) {
        spipe_priv_hash(&hash, (const void *)&d->stages[i].fn, sizeof d->stages[i].fn);
    }
    return hash;
}

SPIPE_PRIV_RARE int spipe_priv_same_buffer(const spipe_buffer_desc_t *a,
                                           const spipe_buffer_desc_t *b) {
    return a->kind == b->kind && a->elem_bytes == b->elem_bytes && !a->host == !b->host &&
           a->halo_before == b->halo_before && a->halo_after == b->halo_after &&
           a->edge == b->edge && a->resident == b->resident && a->ticket_bytes == b->ticket_bytes &&
           a->source == b->source && a->sink == b->sink && a->work == b->work &&
           a->caller == b->caller && a->filler == b->filler && a->on_device == b->on_device &&
           spipe_priv_length(a) == spipe_priv_length(b);
}

SPIPE_PRIV_RARE int spipe_priv_same_stage(const spipe_stage_desc_t *a,
                                          const spipe_stage_desc_t *b) {
    return a->fn == b->fn && a->host == b->host && a->ordered == b->ordered &&
           a->elementwise == b->elementwise && a->replayable == b->replayable &&
           a->reads == b->reads && a->writes == b->writes && a->after_given == b->after_given &&
           a->num_after == b->num_after;
}

/* Whether two requests are the same as far as their descriptions say: all that a plan and a program
   follow from, but for the arrays. */
SPIPE_PRIV_RARE int spipe_priv_same_desc(const spipe_priv_request_t *a,
                                         const spipe_priv_request_t *b) {
    const spipe_desc_t *d = &a->desc, *e = &b->desc;
    int i;
    if (d->count != e->count || d->chunk != e->chunk || d->depth != e->depth) return 0;
    if (d->threads != e->threads || d->schedule != e->schedule) return 0;
    if (d->staging != e->staging || d->priority != e->priority) return 0;
    if (!d->progress != !e->progress || d->blocking != e->blocking) return 0;
    if (d->stages_on_caller != e->stages_on_caller) return 0;
    if (d->num_buffers != e->num_buffers || d->num_stages != e->num_stages) return 0;
    for (i = 0; i < d->num_buffers; ++i) {
        if (!spipe_priv_same_buffer(&d->buffers[i], &e->buffers[i])) return 0;
    }
    for (i = 0; i < d->num_stages; ++i) {
        if (!spipe_priv_same_stage(&d->stages[i], &e->stages[i])) return 0;
        if (spipe_priv_stage_deps(d, i) != spipe_priv_stage_deps(e, i)) return 0;
    }
    return 1;
}

/* Whether a pipeline that was made for one request can run another; arrays may lie elsewhere. */
SPIPE_PRIV_RARE int spipe_priv_same_request(const spipe_priv_request_t *a,
                                            const spipe_priv_request_t *b) {
    int i;
    for (i = 0; i < b->desc.num_buffers; ++i) {
        if (a->arrays[i].type != b->arrays[i].type) return 0;
        if (!a->arrays[i].mapped != !b->arrays[i].mapped) return 0;
    }
    return spipe_priv_same_desc(a, b);
}

/* Whether two calls are the same, with the same arrays: then the description was checked before.
   What kind of memory the arrays are now is not compared. */
SPIPE_PRIV_RARE int spipe_priv_same_call(const spipe_priv_request_t *a,
                                         const spipe_priv_request_t *b) {
    int i;
    if (!spipe_priv_same_desc(a, b)) return 0;
    for (i = 0; i < b->desc.num_buffers; ++i) {
        if (a->desc.buffers[i].host != b->desc.buffers[i].host) return 0;
    }
    for (i = 0; i < b->desc.num_stages; ++i) {
        if (a->desc.stages[i].name != b->desc.stages[i].name) return 0;
    }
    return 1;
}

SPIPE_PRIV_RARE size_t spipe_priv_threads_of(const spipe_priv_pipeline_t *p) {
    return p->workers.num_threads;
}

/* Takes a pipeline out of the idle ones. Called with the lock held. */
SPIPE_PRIV_RARE spipe_priv_pipeline_t *spipe_priv_unlink_idle(spipe_priv_calls_t *c,
                                                              spipe_priv_pipeline_t **at) {
    spipe_priv_pipeline_t *p = *at;
    *at = p->lent.next_idle;
    --c->num_idle;
    return p;
}

/* Takes an idle pipeline that can run a request, the one that ran last first; NULL: there is none.
   *soon = 1: there is one whose threads are being taken back, and it can be taken in a moment. */
SPIPE_PRIV_RARE spipe_priv_pipeline_t *spipe_priv_take_idle_pipeline(
    const spipe_priv_request_t *q,
    int (*same)(const spipe_priv_request_t *a, const spipe_priv_request_t *b), int *soon) {
    spipe_resources_t *r = spipe_priv_resources_of(&q->desc);
    spipe_priv_calls_t *c = &r->calls;
    spipe_priv_pipeline_t **at, *p = NULL;
    *soon = 0;
    spipe_priv_lock(r->lending.sync);
    for (at = &c->idle; *at && !p;) {
        const int can = same(&(*at)->request, q), loses = (*at)->lent.loses_threads;
        *soon |= can && loses;
        if (can && !loses)
            p = spipe_priv_unlink_idle(c, at);
        else
            at = &(*at)->lent.next_idle;
    }
    spipe_priv_unlock(r->lending.sync);
    if (p) *soon = 0;
    return p;
}

/* Whether a request was met before; it is from now on. */
SPIPE_PRIV_RARE int spipe_priv_was_met(const spipe_priv_request_t *q) {
    spipe_resources_t *r = spipe_priv_resources_of(&q->desc);
    spipe_priv_calls_t *c = &r->calls;
    const uint64_t hash = spipe_priv_hash_request(q);
    size_t i;
    int met = 0;
    spipe_priv_lock(r->lending.sync);
    for (i = 0; i < SPIPE_PRIV_MET; ++i) met |= c->met[i] == hash;
    if (!met) c->met[c->num_met++ % SPIPE_PRIV_MET] = hash;
    spipe_priv_unlock(r->lending.sync);
    return met;
}

/* Takes back the threads of a pipeline between two calls. */
SPIPE_PRIV_RARE void spipe_priv_return_threads(spipe_resources_t *r, spipe_priv_pipeline_t *p) {
    spipe_priv_count_one(&r->lending.returning, 1);
    spipe_priv_end_workers(p);
    spipe_priv_count_one(&r->lending.returning, 0);
}

/* Takes back the threads of the idle pipeline that ran least recently and has some. 0: there is
   none. The pipeline stays in the list, so that a call that wants it waits, and makes no other. */
SPIPE_PRIV_RARE int spipe_priv_take_threads(spipe_resources_t *r) {
    spipe_priv_pipeline_t *p, *found = NULL;
    spipe_priv_lock(r->lending.sync);
    for (p = r->calls.idle; p; p = p->lent.next_idle) {
        if (!p->lent.loses_threads && spipe_priv_threads_of(p) > 0) found = p;
    }
    if (found) found->lent.loses_threads = 1;
    spipe_priv_unlock(r->lending.sync);
    if (!found) return 0;
    spipe_priv_return_threads(r, found);
    spipe_priv_lock(r->lending.sync);
    found->lent.loses_threads = 0;
    spipe_priv_unlock(r->lending.sync);
    return 1;
}

/* Frees idle pipelines, those that ran least recently first: all, or what is too many. */
SPIPE_PRIV_RARE void spipe_priv_free_idle(spipe_resources_t *r, int all) {
    spipe_priv_calls_t *c = &r->calls;
    spipe_priv_pipeline_t *p, **at, **last;
    do {
        p = NULL;
        last = NULL;
        spipe_priv_lock(r->lending.sync);
        for (at = &c->idle; *at; at = &(*at)->lent.next_idle) {
            if (!(*at)->lent.loses_threads) last = at;
        }
        if (last && (all || c->num_idle > SPIPE_PRIV_IDLE_PIPELINES)) {
            p = spipe_priv_unlink_idle(c, last);
        }
        spipe_priv_unlock(r->lending.sync);
        if (p) (void)spipe_priv_free(p);
        free(p);
    } while (p);
}

/* Makes a pipeline idle, at once with the end of its run: so its threads are always those of a run
   under way, or of an idle pipeline that gives them back. */
SPIPE_PRIV_RARE void spipe_priv_put_idle_pipeline(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_calls_t *c = &r->calls;
    const int ran = p->lent.entered, cancels = p->lent.cancels;
    const int holds = ran && spipe_priv_forget_hold(p);
    int many;
    spipe_priv_lock(r->lending.sync);
    if (ran) spipe_priv_end_run(p);
    p->lent.entered = 0;
    if (p->lent.attached) --r->num_pipelines; /* idle ones do not count */
    p->lent.attached = 0;
    p->lent.next_idle = c->idle;
    c->idle = p;
    ++c->num_idle;
    many = c->num_idle > SPIPE_PRIV_IDLE_PIPELINES;
    spipe_priv_unlock(r->lending.sync);
    if (ran) spipe_priv_note_end(r);
    if (many) spipe_priv_free_idle(r, 0);
    if (holds) spipe_priv_let_cancel(cancels);
}

/* Whether there is more than 1.5 times the memory that a plan was made for. Pinned memory that was
   refused stays refused. */
SPIPE_PRIV_RARE int spipe_priv_has_grown(const spipe_priv_request_t *was,
                                         const spipe_priv_request_t *now) {
    if (2 * now->device_limit > 3 * was->device_limit) return 1;
    return was->pin_refusals == 0 && 2 * now->pin_limit > 3 * was->pin_limit;
}

/* Has an idle pipeline run another request of the same kind: other addresses. */
SPIPE_PRIV_RARE void spipe_priv_renew(spipe_priv_pipeline_t *p, const spipe_priv_request_t *q) {
    spipe_priv_request_t *r = &p->request;
    int i;
    p->lent.plan_is_old = spipe_priv_has_grown(r, q);
    for (i = 0; i < q->desc.num_buffers; ++i) {
        r->other_arrays |= r->desc.buffers[i].host != q->desc.buffers[i].host;
        r->other_arrays |= r->arrays[i].mapped != q->arrays[i].mapped;
        r->arrays[i].mapped = q->arrays[i].mapped;
    }
    spipe_priv_copy_desc(&r->desc, &q->desc);
}

/* Makes a kept pipeline for a request that was met before. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_new_for_calls(const spipe_desc_t *d,
                                                     spipe_priv_pipeline_t **made,
                                                     spipe_failure_t *f) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)malloc(sizeof *p);
    cudaError_t e;
    if (!p) return spipe_priv_refuse(f, cudaErrorMemoryAllocation, "no memory for the pipeline");
    e = spipe_priv_create(p, d, SPIPE_PRIV_KEPT_FOR_CALLS, f);
    if (e == cudaSuccess)
        *made = p;
    else
        free(p);
    return e;
}

/* Whether a call is run by a pipeline of its own: it may hold what the next call must not see; or
   the description is damaged, which its check will say. */
SPIPE_PRIV_RARE int spipe_priv_is_single(const spipe_desc_t *d) {
    if (d->num_buffers < 0 || d->num_buffers > SPIPE_MAX_BUFFERS) return 1;
    if (d->num_stages < 0 || d->num_stages > SPIPE_MAX_STAGES) return 1;
    return d->hooks || d->timeline || d->checked || d->staging == SPIPE_STAGING_REGISTER;
}

/* Sets what decides which pipeline can run a call, but for the arrays, and nothing else. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_look_at_call(spipe_priv_request_t *q, const spipe_desc_t *d,
                                                    spipe_failure_t *f) {
    int i;
    SPIPE_TRY(spipe_priv_answered(cudaGetDevice(&q->device), f));
    spipe_priv_copy_desc(&q->desc, d);
    q->desc.count = spipe_priv_desc_count(d);
    for (i = 0; i < d->num_stages; ++i) { /* a graph names arrays, and each call has others */
        q->desc.stages[i].replayable = 0;
    }
    q->kept = SPIPE_PRIV_KEPT_FOR_CALLS;
    q->pin_refusals = 0;
    return spipe_priv_lent_facts(q, f);
}

/* What kind of memory arrays are whose ends were looked at in a call before. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_look_again(spipe_priv_request_t *q) {
    int i;
    for (i = 0; i < q->desc.num_buffers; ++i) {
        spipe_priv_array_t *a = &q->arrays[i];
        void *mapped = NULL;
        a->type = SPIPE_PRIV_PAGEABLE;
        if (q->desc.buffers[i].host) {
            SPIPE_TRY(spipe_priv_memory_type(q->desc.buffers[i].host, &a->type, &mapped));
        }
        a->mapped = a->type == SPIPE_PRIV_PAGEABLE ? NULL : (unsigned char *)mapped;
    }
    return cudaSuccess;
}

/* Finds an idle pipeline that ran the same call before; *p NULL: there is none. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_find_same(spipe_priv_request_t *q, spipe_priv_pipeline_t **p,
                                                 spipe_failure_t *f) {
    cudaError_t e;
    int soon;
    *p = spipe_priv_take_idle_pipeline(q, spipe_priv_same_call, &soon);
    if (!*p) return cudaSuccess;
    e = spipe_priv_look_again(q);
    if (e == cudaSuccess && spipe_priv_same_request(&(*p)->request, q)) {
        spipe_priv_renew(*p, q);
        return e;
    }
    spipe_priv_put_idle_pipeline(*p);
    *p = NULL;
    return spipe_priv_answered(e, f);
}

/* Finds an idle pipeline for a call, or makes one; *p NULL: there is none. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_find_other(spipe_priv_request_t *q,
                                                  spipe_priv_pipeline_t **p, spipe_failure_t *f) {
    int soon;
    SPIPE_TRY(spipe_desc_check(&q->desc, f));
    SPIPE_TRY(spipe_priv_answered(spipe_priv_look_at_arrays(q, f), f));
    do {
        *p = spipe_priv_take_idle_pipeline(q, spipe_priv_same_request, &soon);
        if (soon) spipe_priv_give_up_cpu();
    } while (soon);
    if (*p) spipe_priv_renew(*p, q);
    if (*p || !spipe_priv_was_met(q)) return cudaSuccess;
    return spipe_priv_new_for_calls(&q->desc, p, f);
}

/* Whether a pipeline that becomes idle should give its threads back: other runs are under way, no
   thread is idle, and either there are more threads than enough, or there are enough and it has
   more than its share of them. Otherwise it keeps them, because to start them again takes a small
   call twice as long. */
SPIPE_PRIV_RARE int spipe_priv_threads_are_short(spipe_resources_t *r,
                                                 const spipe_priv_pipeline_t *p) {
    spipe_priv_lending_t *l = &r->lending;
    const size_t others = SPIPE_PRIV_LOAD(r->num_runs) - 1; /* besides its own */
    const size_t enough = spipe_priv_enough_threads(r, others + 1);
    const int many = spipe_priv_threads_of(p) * (others + 1) > enough;
    return others > 0 && !spipe_priv_has_idle_thread(l) &&
           spipe_priv_has_threads(l, many ? enough : 1 + enough);
}

/* After a call: an idle pipeline again, or freed if the run failed. */
SPIPE_PRIV_RARE void spipe_priv_end_call(spipe_priv_pipeline_t *p, cudaError_t e,
                                         spipe_priv_visit_t *visit) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    visit->thrown = p->thrown;
    p->thrown = NULL;
    (void)cudaSetDevice(p->request.device); /* a stage may have made another device current */
    if (e == cudaSuccess) {
        if (spipe_priv_threads_are_short(r, p)) spipe_priv_return_threads(r, p);
        spipe_priv_put_idle_pipeline(p);
    } else {
        (void)spipe_priv_free(p);
        free(p);
    }
}

/* Has an idle pipeline run a call, or makes one for it. */
SPIPE_PRIV_RARE int spipe_priv_lent_run(const spipe_desc_t *d, spipe_report_t *report,
                                        cudaError_t *e, spipe_failure_t *f,
                                        spipe_priv_visit_t *visit) {
    const double began = spipe_priv_clock();
    spipe_priv_request_t q;
    spipe_priv_pipeline_t *p = NULL;
    if (spipe_priv_is_single(d)) {
        *e = spipe_desc_check(d, f);
        return 0;
    }
    spipe_priv_failure_clear(f);
    *e = spipe_priv_look_at_call(&q, d, f);
    if (*e == cudaSuccess) *e = spipe_priv_find_same(&q, &p, f);
    if (*e == cudaSuccess && !p) *e = spipe_priv_find_other(&q, &p, f);
    if (!p) return 0;
    p->visit = *visit;
    *e = spipe_priv_run_again(p, report);
    if (report && p->run.began > began) report->setup_ms = 1e3 * (p->run.began - began);
    spipe_priv_end_call(p, *e, visit);
    return 1;
}
