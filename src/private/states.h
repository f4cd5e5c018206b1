/* ---- 4 execute: the states of slots ----------------------------------------------------------
   What is ready follows from the slots' states: nothing else is stored about tasks. Who tells of a
   change wakes who may be needed. All of it is called with the lock held, unless it says more. */

/* Elements in the whole; SPIPE_AUTO while the sources have not ended. Without the lock. */
SPIPE_PRIV_OFTEN size_t spipe_priv_total(const spipe_priv_pipeline_t *p) {
    return p->run.endless ? SPIPE_PRIV_LOAD(p->run.total) : p->run.total;
}

/* Elements of a chunk: all are full but the last, and that one is read after the total is known.
   Without the lock. */
SPIPE_PRIV_OFTEN size_t spipe_priv_count_of(const spipe_priv_pipeline_t *p, size_t chunk) {
    const size_t size = p->plan.chunk;
    size_t total;
    if (chunk < p->run.full_chunks) return size;
    total = spipe_priv_total(p);
    if (total == SPIPE_AUTO) return chunk == SPIPE_AUTO ? 0 : size;
    if (total / size < chunk || chunk * size >= total) return 0;
    return total - chunk * size < size ? total - chunk * size : size;
}

/* Whether the run has failed at this chunk or before it, or stopped. Chunks before are finished.
   Without the lock. */
SPIPE_PRIV_OFTEN int spipe_priv_is_lost(const spipe_priv_pipeline_t *p, size_t chunk) {
    return SPIPE_PRIV_LOAD(p->run.limit) <= chunk;
}

/* Whether a slot has a chunk that is to be worked on. */
SPIPE_PRIV_RARE int spipe_priv_is_taken(const spipe_priv_pipeline_t *p,
                                        const spipe_priv_slot_t *s) {
    return s->state != SPIPE_PRIV_EMPTY && !spipe_priv_is_lost(p, s->chunk);
}

/* Whether there is a next chunk to give a slot to. */
SPIPE_PRIV_RARE int spipe_priv_has_next(const spipe_priv_pipeline_t *p) {
    return p->run.at.next < p->run.at.end && !p->run.failed && !p->run.stop_asked;
}

/* The slot for the next chunk, or NULL. */
SPIPE_PRIV_RARE spipe_priv_slot_t *spipe_priv_free_slot(spipe_priv_pipeline_t *p) {
    spipe_priv_slot_t *slots = p->memory.slots;
    size_t k = 0, depth = p->plan.depth;
    if (!spipe_priv_has_next(p) || p->run.at.reading) return NULL;
    if (p->run.in_turn) {
        k = p->run.at.next % depth;
        depth = k + 1;
    }
    for (; k < depth; ++k) {
        if (slots[k].state == SPIPE_PRIV_EMPTY) return &slots[k];
    }
    return NULL;
}

/* The segment that a host stage follows. */
SPIPE_PRIV_RARE int spipe_priv_segment_before(const spipe_priv_pipeline_t *p, int stage) {
    int k = 0;
    while (!(p->route.segments[k].waits & SPIPE_BIT(stage))) ++k;
    return k;
}

/* Whether a chunk before that of s has yet to do something: to be issued as far as s (what =
   SPIPE_PRIV_FILL), to leave a host stage (HOST), or to get to the sinks (DRAIN). */
SPIPE_PRIV_RARE int spipe_priv_has_before(const spipe_priv_pipeline_t *p,
                                          const spipe_priv_slot_t *s, int what, int stage) {
    const int segment = what == SPIPE_PRIV_HOST ? spipe_priv_segment_before(p, stage) : s->segment;
    size_t k;
    for (k = 0; k < p->plan.depth; ++k) {
        const spipe_priv_slot_t *o = &p->memory.slots[k];
        if (o->state == SPIPE_PRIV_EMPTY || o->chunk >= s->chunk) continue;
        if (what == SPIPE_PRIV_FILL && o->state == SPIPE_PRIV_ISSUING) continue;
        if (what == SPIPE_PRIV_DRAIN ? !o->sunk : o->segment <= segment) return 1;
        if (what == SPIPE_PRIV_HOST && (o->waits & SPIPE_BIT(stage))) return 1;
    }
    return 0;
}

/* A host stage that can run on a slot's chunk; -1 = none. */
SPIPE_PRIV_RARE int spipe_priv_ready_stage(const spipe_priv_pipeline_t *p,
                                           const spipe_priv_slot_t *s) {
    unsigned ready = s->waits & s->reached & ~s->busy;
    int i;
    for (i = 0; ready; ++i, ready >>= 1) {
        if (!(ready & 1)) continue;
        if (!p->request.desc.stages[i].ordered || !spipe_priv_has_before(p, s, SPIPE_PRIV_HOST, i))
            return i;
    }
    return -1;
}

/* Finds the oldest task that is ready: the oldest chunk's, draining before filling. What has to
   happen in turn is ready when its turn has come, so no thread ever waits for a turn. */
SPIPE_PRIV_RARE int spipe_priv_next_task(spipe_priv_pipeline_t *p, spipe_priv_task_t *t) {
    size_t k;
    memset((void *)t, 0, sizeof *t);
    t->what = SPIPE_PRIV_TOUCH;
    t->chunk = p->run.at.touched;
    if (p->run.at.touched < p->run.at.pages) return 1;
    if (!p->run.states) return 0; /* between runs the plan may change */
    for (k = 0; k < p->plan.depth; ++k) {
        spipe_priv_slot_t *s = &p->memory.slots[k];
        int stage = -1;
        if (s->state != SPIPE_PRIV_OUT && s->state != SPIPE_PRIV_ON_HOST) continue;
        if (!spipe_priv_is_taken(p, s) || (t->slot && t->chunk < s->chunk)) continue;
        if (s->state == SPIPE_PRIV_ON_HOST) {
            stage = spipe_priv_ready_stage(p, s);
            if (stage < 0) continue;
        } else if (spipe_priv_first_in_order(&p->request.desc, 1) >= 0 &&
                   spipe_priv_has_before(p, s, SPIPE_PRIV_DRAIN, -1)) {
            continue;
        }
        t->what = stage >= 0 ? SPIPE_PRIV_HOST : SPIPE_PRIV_DRAIN;
        t->stage = stage;
        t->slot = s;
        t->chunk = s->chunk;
    }
    if (t->slot || !p->route.fills) return t->slot != NULL;
    t->what = SPIPE_PRIV_FILL;
    t->stage = -1;
    t->chunk = p->run.at.next;
    t->slot = spipe_priv_free_slot(p);
    return t->slot != NULL;
}

/* Takes a slot for the next chunk. Several GPUs: the chunk's number is asked for later. */
SPIPE_PRIV_RARE void spipe_priv_take_slot(spipe_priv_pipeline_t *p, spipe_priv_slot_t *s,
                                          spipe_priv_state_t state) {
    s->order = p->run.at.next++;
    s->chunk = p->run.shared ? SPIPE_AUTO - 1 : s->order;
    s->state = state;
    s->segment = 0;
    s->sunk = 0;
    s->waits = s->reached = s->busy = 0;
}

/* The slot whose next segment is issued next, or NULL: the oldest, in order where that matters. */
SPIPE_PRIV_RARE spipe_priv_slot_t *spipe_priv_issuable(spipe_priv_pipeline_t *p) {
    const int in_order = p->route.in_order || p->pull.active;
    spipe_priv_slot_t *best = NULL;
    size_t k;
    if (!p->run.states) return NULL;
    for (k = 0; k < p->plan.depth; ++k) {
        spipe_priv_slot_t *s = &p->memory.slots[k];
        if (s->state != SPIPE_PRIV_FILLED || !spipe_priv_is_taken(p, s)) continue;
        if (best && best->chunk < s->chunk) continue;
        if (in_order && spipe_priv_has_before(p, s, SPIPE_PRIV_FILL, -1)) continue;
        best = s;
    }
    if (best || p->route.fills) return best;
    return spipe_priv_free_slot(p);
}

/* The event that tells that a slot on the device can be drained, or is free. */
SPIPE_PRIV_RARE cudaEvent_t spipe_priv_awaited_event(const spipe_priv_pipeline_t *p,
                                                     const spipe_priv_slot_t *s) {
    return p->route.drains || p->route.until_done ? s->out_done : s->in_done;
}

/* The slot that was issued first of those about which CUDA is asked; for host stages, or at the
   end of a chunk. NULL: none. In a checked run the thread that issues has waited for each step. */
SPIPE_PRIV_RARE spipe_priv_slot_t *spipe_priv_asked(spipe_priv_pipeline_t *p, int hosts) {
    const spipe_priv_state_t state = hosts ? SPIPE_PRIV_ON_HOST : SPIPE_PRIV_ON_DEVICE;
    spipe_priv_slot_t *best = NULL;
    size_t k;
    if (!p->run.states || p->run.at.asking || p->request.desc.checked) return NULL;
    for (k = 0; k < p->plan.depth; ++k) {
        spipe_priv_slot_t *s = &p->memory.slots[k];
        if (s->state != state || !spipe_priv_is_taken(p, s)) continue;
        if (best && best->order < s->order) continue;
        if (!hosts || (s->waits & ~s->reached & ~SPIPE_PRIV_CALLERS)) best = s;
    }
    return best;
}

/* The event that is asked for next, of one of the two that `asked` finds. stage: the host stage
   before which it stands; -1 = the end of a chunk. */
SPIPE_PRIV_RARE spipe_priv_slot_t *spipe_priv_next_asked(spipe_priv_pipeline_t *p, int hosts,
                                                         cudaEvent_t *event, int *stage) {
    spipe_priv_slot_t *s = spipe_priv_asked(p, hosts);
    *stage = -1;
    if (!s) return s;
    *event = spipe_priv_awaited_event(p, s);
    if (!hosts) return s;
    for (*stage = 0; !(s->waits & ~s->reached & SPIPE_BIT(*stage));) ++*stage;
    *event = s->stage_done[*stage];
    return s;
}

/* Chunks that are whole: all before this one; several GPUs: so many. */
SPIPE_PRIV_RARE size_t spipe_priv_completed(const spipe_priv_pipeline_t *p) {
    size_t least = p->run.at.next, num = p->run.at.next, k;
    if (!p->run.states) return p->run.at.completed;
    for (k = 0; k < p->plan.depth; ++k) {
        const spipe_priv_slot_t *s = &p->memory.slots[k];
        if (s->state != SPIPE_PRIV_EMPTY && s->chunk < least) least = s->chunk;
        if (s->before < least) least = s->before;
        num -= (size_t)(s->state != SPIPE_PRIV_EMPTY) + (size_t)(s->before != SPIPE_AUTO);
    }
    if (p->run.shared) return num;
    if (p->run.limit < least) least = p->run.limit;
    return least < p->run.num_chunks ? least : p->run.num_chunks;
}

/* Whether no task will follow, so that workers of a one-shot run can end. */
SPIPE_PRIV_RARE int spipe_priv_is_worked_off(const spipe_priv_pipeline_t *p) {
    const int drains = p->route.drains || p->route.num_segments > 1;
    size_t k;
    if (!p->run.states || spipe_priv_has_next(p) || p->run.at.touched < p->run.at.pages) return 0;
    for (k = 0; k < p->plan.depth; ++k) {
        const spipe_priv_slot_t *s = &p->memory.slots[k];
        if (!spipe_priv_is_taken(p, s) || s->state == SPIPE_PRIV_DRAINING) continue;
        if (drains || s->state == SPIPE_PRIV_FILLING) return 0;
    }
    return p->run.at.next > 0 || p->run.failed || p->run.stop_asked;
}

/* Whether all chunks that can be finished are, and no thread is at work. */
SPIPE_PRIV_RARE int spipe_priv_is_over(const spipe_priv_pipeline_t *p) {
    size_t k;
    if (p->run.at.busy > 0 || p->run.at.touched < p->run.at.pages) return 0;
    if (!p->run.states) return 1;
    if (spipe_priv_has_next(p)) return 0;
    for (k = 0; k < p->plan.depth; ++k) {
        if (spipe_priv_is_taken(p, &p->memory.slots[k])) return 0;
    }
    return 1;
}

enum {
    SPIPE_PRIV_ASKS_FROM = 32 /* chunks for each thread: in so long a run it calls CUDA */
};

/* Whether workers call CUDA: a thread's first call takes long, which pays only in a long run. */
SPIPE_PRIV_RARE int spipe_priv_workers_call(const spipe_priv_pipeline_t *p) {
    if (p->request.desc.resources || p->request.kept) return 1; /* they have called it before */
    if (spipe_priv_is_modelled()) return 1;                     /* it takes no modelled time */
    return p->run.at.issued >= SPIPE_PRIV_ASKS_FROM * p->workers.num_threads;
}

/* Whether workers issue: not where the caller must, because of the order, or of what it asked. */
SPIPE_PRIV_RARE int spipe_priv_workers_issue(const spipe_priv_pipeline_t *p) {
    const spipe_desc_t *d = &p->request.desc;
    if (p->run.in_turn || p->pull.active || d->stages_on_caller || d->checked) return 0;
    return spipe_priv_workers_call(p);
}

/* How many kinds of tasks there are: filling, draining, host stages. */
SPIPE_PRIV_RARE size_t spipe_priv_num_kinds(const spipe_priv_pipeline_t *p) {
    return (size_t)p->route.fills + (size_t)p->route.drains + (size_t)(p->route.num_segments > 1);
}

/* Whether a waiting caller does a task: if there are no workers, if they take all CPUs, or if the
   plan says so. Host stages, and what takes one thread at a time, it does only where workers are
   missing; a source may wait for what a sink has got, so not that one. */
SPIPE_PRIV_RARE int spipe_priv_caller_does(const spipe_priv_pipeline_t *p,
                                           const spipe_priv_task_t *t) {
    const spipe_priv_workers_t *w = &p->workers;
    const size_t workers = w->num_threads < w->active ? w->num_threads : w->active;
    if (workers == 0) return 1;
    if (p->route.sequential) {
        return workers < spipe_priv_num_kinds(p) && t->what != SPIPE_PRIV_FILL;
    }
    return t->what != SPIPE_PRIV_HOST && (w->all_cpus || p->plan.caller_helps);
}

/* Whether CUDA is to be asked about any slot. */
SPIPE_PRIV_RARE int spipe_priv_asks(spipe_priv_pipeline_t *p) {
    return spipe_priv_asked(p, 0) || spipe_priv_asked(p, 1);
}

/* Whether a task is left to the caller: a caller that helps fills the first chunk and drains the
   last one, since no worker would wake up sooner. */
SPIPE_PRIV_RARE int spipe_priv_is_callers(const spipe_priv_pipeline_t *p,
                                          const spipe_priv_task_t *t) {
    if (!p->plan.caller_helps || t->what > SPIPE_PRIV_FILL) return 0;
    if (t->what == SPIPE_PRIV_FILL && t->chunk > 0) return 0;
    if (t->what == SPIPE_PRIV_DRAIN && t->chunk + 1 != p->run.num_chunks) return 0;
    return spipe_priv_caller_does(p, t);
}

/* Whether the sleeping caller is needed. Workers that may issue find what there is themselves. */
SPIPE_PRIV_RARE int spipe_priv_needs_caller(spipe_priv_pipeline_t *p) {
    spipe_priv_task_t t;
    if (p->request.desc.progress || p->pull.active || spipe_priv_is_over(p)) return 1;
    if (!spipe_priv_workers_issue(p) && !p->run.at.issuing && spipe_priv_issuable(p)) return 1;
    if (!p->workers.asker && !spipe_priv_workers_call(p) && spipe_priv_asks(p)) return 1;
    return spipe_priv_next_task(p, &t) && spipe_priv_caller_does(p, &t);
}

/* Whether a sleeping worker is needed. */
SPIPE_PRIV_RARE int spipe_priv_needs_worker(spipe_priv_pipeline_t *p) {
    spipe_priv_task_t t;
    if (spipe_priv_next_task(p, &t) && !spipe_priv_is_callers(p, &t)) return 1;
    if (!spipe_priv_workers_call(p)) return 0;
    if (!p->workers.asker && spipe_priv_asks(p)) return 1;
    return spipe_priv_workers_issue(p) && !p->run.at.issuing && spipe_priv_issuable(p);
}

/* Some state has changed: those who wait awake see it, and who is needed and sleeps is woken. */
SPIPE_PRIV_RARE void spipe_priv_tell(spipe_priv_pipeline_t *p) {
    spipe_priv_workers_t *w = &p->workers;
    SPIPE_PRIV_STORE(w->news, w->news + 1);
    if (w->caller_asleep && spipe_priv_needs_caller(p)) spipe_priv_wake(p->sync);
    if (w->asleep > 0 && w->asleep == w->idle && spipe_priv_needs_worker(p)) {
        spipe_priv_cond_signal(&w->work);
    }
}
