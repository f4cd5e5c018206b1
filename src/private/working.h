/* ---- 4 execute: what the threads of a run do ------------------------------------------------
   Each thread does what is ready: it issues a slot, asks CUDA what has ended, or does a task.
   Issuing is a role that one thread has at a time. Writes the states of slots. */

/* A slot's chunk has left it, or is on the device and needs the slot no more: then its end is known
   when the slot's next chunk is copied in. Called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_empty(spipe_priv_pipeline_t *p, spipe_priv_slot_t *s, int whole) {
    s->before = whole ? SPIPE_AUTO : s->chunk;
    s->state = SPIPE_PRIV_EMPTY;
    p->run.at.completed = spipe_priv_completed(p);
}

/* Whether a chunk is whole when all of it is issued: its last copy out, or each step, was waited
   for. */
SPIPE_PRIV_RARE int spipe_priv_has_ended(const spipe_priv_pipeline_t *p) {
    return p->route.out_blocks || p->request.desc.checked;
}

/* All of a slot's operations have ended that the host waits for. Called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_arrived(spipe_priv_pipeline_t *p, spipe_priv_slot_t *s) {
    if (p->route.drains)
        s->state = SPIPE_PRIV_OUT;
    else
        spipe_priv_empty(p, s, p->route.until_done || spipe_priv_has_ended(p));
}

/* Asks CUDA about the oldest of the slots that are on the device, or before a host stage (hosts =
   1). Returns whether there was news. Called with the lock held. */
SPIPE_PRIV_RARE int spipe_priv_ask_about(spipe_priv_pipeline_t *p, spipe_priv_hand_t *h,
                                         int hosts) {
    cudaEvent_t event = NULL;
    cudaError_t e;
    int stage, reached;
    spipe_priv_slot_t *s = spipe_priv_next_asked(p, hosts, &event, &stage);
    if (!s) return 0;
    p->run.at.asking = 1;
    ++p->run.at.busy;
    spipe_priv_unlock(p->sync);
    if (!h->caller && !h->on_device) (void)cudaSetDevice(p->request.device); /* not device 0 */
    h->on_device = 1;
    e = spipe_priv_query(event);
    reached = spipe_priv_reached(e);
    if (!reached && e != cudaErrorNotReady) {
        (void)spipe_priv_check_step(p, e, -1, s->chunk,
                                    "a stage or copy (a checked run tells "
                                    "which)");
    }
    spipe_priv_lock(p->sync);
    p->run.at.asking = 0;
    --p->run.at.busy;
    if (reached) spipe_priv_count_idle(p, h, 0);
    if (reached && stage >= 0) s->reached |= SPIPE_BIT(stage);
    if (reached && stage < 0) spipe_priv_arrived(p, s);
    if (reached || e != cudaErrorNotReady || spipe_priv_is_over(p)) spipe_priv_tell(p);
    return reached || e != cudaErrorNotReady;
}

/* Whether this thread asks now: one that waits does so for all, as long as it waits. */
SPIPE_PRIV_RARE int spipe_priv_ask(spipe_priv_pipeline_t *p, spipe_priv_hand_t *h) {
    if (p->workers.asker && !h->asks) return 0;
    if (!h->caller && !spipe_priv_workers_call(p)) return 0;
    return spipe_priv_ask_about(p, h, 0) || spipe_priv_ask_about(p, h, 1);
}

/* Does a task that next_task found. Called with the lock held, which is given back meanwhile. */
SPIPE_PRIV_RARE void spipe_priv_take_task(spipe_priv_pipeline_t *p, spipe_priv_task_t *t) {
    spipe_priv_slot_t *s = t->slot;
    int goes_on;
    ++p->run.at.busy;
    switch (t->what) {
    case SPIPE_PRIV_FILL:
        spipe_priv_take_slot(p, s, SPIPE_PRIV_FILLING);
        p->run.at.reading = spipe_priv_reads_in_turn(p);
        break;
    case SPIPE_PRIV_DRAIN: s->state = SPIPE_PRIV_DRAINING; break;
    case SPIPE_PRIV_HOST: s->busy |= SPIPE_BIT(t->stage); break;
    default: ++p->run.at.touched; break;
    }
    if (!p->request.kept && spipe_priv_is_worked_off(p) && p->workers.made) {
        spipe_priv_cond_broadcast(&p->workers.work); /* they end while this is done */
        spipe_priv_cond_broadcast(&p->workers.rest);
    }
    spipe_priv_tell(p);
    spipe_priv_unlock(p->sync);
    goes_on = spipe_priv_do_task(p, t);
    spipe_priv_lock(p->sync);
    --p->run.at.busy;
    if (s && t->what == SPIPE_PRIV_FILL && s->state == SPIPE_PRIV_FILLING) {
        s->state = goes_on ? SPIPE_PRIV_FILLED : SPIPE_PRIV_EMPTY;
        if (!goes_on && p->run.shared) p->run.at.end = --p->run.at.next; /* it was none */
    } else if (s && t->what == SPIPE_PRIV_DRAIN && goes_on) {
        spipe_priv_empty(p, s, 1);
    } else if (s && t->what == SPIPE_PRIV_HOST) {
        s->waits &= ~SPIPE_BIT(t->stage);
        if (s->waits == 0) s->state = SPIPE_PRIV_FILLED;
    }
    spipe_priv_tell(p);
}

/* After a chunk's last operation. Called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_all_issued(spipe_priv_pipeline_t *p, spipe_priv_slot_t *s) {
    const int waits = p->route.drains || p->route.until_done || p->route.fills;
    if (p->route.drains) spipe_priv_model_post(p, SPIPE_PRIV_DRAIN, -1, s->order);
    if (p->route.fills && s->order + p->plan.depth < p->run.at.end) {
        spipe_priv_model_post(p, SPIPE_PRIV_FILL, -1, s->order + p->plan.depth);
    }
    if (!waits || spipe_priv_read_at_once(p) || !spipe_priv_awaited_event(p, s))
        spipe_priv_empty(p, s, spipe_priv_has_ended(p));
    else if (p->request.desc.checked)
        spipe_priv_arrived(p, s);
    else
        s->state = SPIPE_PRIV_ON_DEVICE;
}

/* A slot's segment is issued: it goes on to host stages, or to the device alone. Called with the
   lock held. */
SPIPE_PRIV_RARE void spipe_priv_segment_issued(spipe_priv_pipeline_t *p, spipe_priv_slot_t *s) {
    int i;
    s->used = 1;
    if (p->pull.active && s->segment++ == 0) {
        s->waits = SPIPE_PRIV_CALLERS;
        s->state = SPIPE_PRIV_ON_HOST;
        return;
    }
    s->segment += !p->pull.active;
    if (s->segment >= p->route.num_segments) {
        spipe_priv_all_issued(p, s);
        return;
    }
    s->waits = p->route.segments[s->segment - 1].waits;
    s->reached = p->request.desc.checked ? s->waits : 0;
    s->state = SPIPE_PRIV_ON_HOST;
    for (i = 0; i < p->request.desc.num_stages; ++i) {
        if (s->waits & SPIPE_BIT(i)) spipe_priv_model_post(p, SPIPE_PRIV_HOST, i, s->order);
    }
}

/* On a modelled clock the thread that issues waits until what it needs is done. */
SPIPE_PRIV_RARE void spipe_priv_await_model(spipe_priv_pipeline_t *p, const spipe_priv_slot_t *s) {
    const size_t order = s->order, depth = p->plan.depth;
    int i;
    if (!spipe_priv_is_modelled()) return;
    if (s->segment == 0) {
        if (p->route.drains && order >= depth) {
            spipe_priv_model_await(p, SPIPE_PRIV_DRAIN, -1, order - depth);
        }
        if (p->route.fills) spipe_priv_model_await(p, SPIPE_PRIV_FILL, -1, order);
    }
    for (i = 0; i < p->request.desc.num_stages && s->segment > 0; ++i) {
        if (p->route.segments[s->segment - 1].waits & SPIPE_BIT(i)) {
            spipe_priv_model_await(p, SPIPE_PRIV_HOST, i, order);
        }
    }
}

/* Takes a slot to issue its next segment. Called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_begin_issuing(spipe_priv_pipeline_t *p, spipe_priv_slot_t *s) {
    if (s->state == SPIPE_PRIV_EMPTY) spipe_priv_take_slot(p, s, SPIPE_PRIV_FILLED);
    s->state = SPIPE_PRIV_ISSUING;
    if (s->segment > 0) return;
    s->order = p->run.in_turn ? s->order : p->run.at.issued;
    s->behind = p->run.at.last;
    p->run.at.last = s;
    ++p->run.at.issued;
}

/* Issues a segment's steps for a slot; one that fails stays as it is. */
SPIPE_PRIV_RARE void spipe_priv_issue_segment(spipe_priv_pipeline_t *p, spipe_priv_slot_t *s) {
    const int segment = s->segment;
    int from = p->route.segments[segment].start, last = p->route.segments[segment + 1].start;
    cudaError_t e;
    if (p->pull.active) { /* copies in, then copies out */
        from = segment == 0 ? 0 : p->route.num_steps - 1;
        last = from + (segment == 0 ? p->route.num_steps - 1 : 1);
    }
    if (p->run.shared && !p->route.fills && segment == 0) {
        (void)spipe_priv_ask_chunk(p, s); /* if there is none, the slot is empty again */
    }
    if (s->state != SPIPE_PRIV_ISSUING || spipe_priv_is_lost(p, s->chunk)) return;
    e = spipe_priv_issue(p, p->program.step_start[from], p->program.step_start[last], s);
    if (e == cudaSuccess || spipe_priv_is_lost(p, s->chunk)) return;
    spipe_priv_lock(p->sync);
    spipe_priv_end_at(p, s->chunk);
    spipe_priv_unlock(p->sync);
}

/* Has the role of issuing for a slot. Called with the lock held, which is given back meanwhile. */
SPIPE_PRIV_RARE void spipe_priv_have_role(spipe_priv_pipeline_t *p, spipe_priv_hand_t *h,
                                          spipe_priv_slot_t *s) {
    spipe_priv_begin_issuing(p, s);
    p->run.at.issuing = 1;
    ++p->run.at.busy;
    spipe_priv_tell(p); /* another may have to ask CUDA now */
    if (spipe_priv_is_modelled()) {
        spipe_priv_unlock(p->sync);
        spipe_priv_await_model(p, s);
        spipe_priv_lock(p->sync);
    }
    spipe_priv_watch(p, 0);
    spipe_priv_unlock(p->sync);
    if (!h->caller) (void)cudaSetDevice(p->request.device); /* a stage may have made it another */
    h->on_device = 1;
    p->run.at.found = h->found;
    spipe_priv_issue_segment(p, s);
    spipe_priv_lock(p->sync);
    if (s->state == SPIPE_PRIV_ISSUING && !spipe_priv_is_lost(p, s->chunk)) {
        spipe_priv_segment_issued(p, s);
    }
    p->run.at.chosen = NULL;
    spipe_priv_watch(p, 1);
    p->run.at.issuing = 0;
    --p->run.at.busy;
    spipe_priv_tell(p);
}

/* What a slot that may be issued next waits for on a modelled clock. 0: it is not one of those. */
SPIPE_PRIV_RARE int spipe_priv_is_candidate(spipe_priv_pipeline_t *p, const spipe_priv_slot_t *s,
                                            size_t *number) {
    const size_t order = p->run.at.issued, depth = p->plan.depth;
    const int filled = s->state == SPIPE_PRIV_FILLED || s->state == SPIPE_PRIV_FILLING;
    int stage = SPIPE_MAX_STAGES - 1;
    *number = SIZE_MAX; /* nothing */
    if (s->state != SPIPE_PRIV_EMPTY && !spipe_priv_is_taken(p, s)) return 0;
    if (s->state == SPIPE_PRIV_EMPTY || (filled && s->segment == 0)) {
        if (s != &p->memory.slots[order % depth]) return 0;
        if (s->state == SPIPE_PRIV_EMPTY && !spipe_priv_has_next(p)) return 0;
        if (p->route.fills)
            *number = spipe_priv_task_number(SPIPE_PRIV_FILL, -1, order);
        else if (p->route.drains && order >= depth)
            *number = spipe_priv_task_number(SPIPE_PRIV_DRAIN, -1, order - depth);
        return 1;
    }
    if (!filled && s->state != SPIPE_PRIV_ON_HOST) return 0;
    if (p->route.in_order && spipe_priv_has_before(p, s, SPIPE_PRIV_FILL, -1)) return 0;
    while (!(p->route.segments[s->segment - 1].waits & SPIPE_BIT(stage))) --stage;
    *number = spipe_priv_task_number(SPIPE_PRIV_HOST, stage, s->order);
    return 1;
}

/* On a modelled clock: the slot that is issued next, if it can really be. Of several, the oldest
   that is ready by the clock, or else the one that is ready soonest. */
SPIPE_PRIV_RARE spipe_priv_slot_t *spipe_priv_choose(spipe_priv_pipeline_t *p) {
    spipe_priv_slot_t *all[SPIPE_MAX_DEPTH], *s = p->run.at.chosen;
    const size_t depth = p->plan.depth;
    size_t numbers[SPIPE_MAX_DEPTH], num = 0, k;
    if (s && s->state == SPIPE_PRIV_EMPTY && !spipe_priv_has_next(p)) s = NULL;
    for (k = 0; k <= depth && !s; ++k) { /* the oldest comes first, the next chunk's slot last */
        spipe_priv_slot_t *o = &p->memory.slots[(p->run.at.issued + k) % depth];
        const int next = o->state == SPIPE_PRIV_EMPTY || o->segment == 0;
        if (k % depth == 0 && next != (k == depth)) continue;
        if (spipe_priv_is_candidate(p, o, &numbers[num])) all[num++] = o;
    }
    if (!s && num == 0) return NULL;
    if (!s && num > 1 && p->workers.num_threads > 0) {
        p->run.at.issuing = 1;
        spipe_priv_count_idle(p, &p->workers.caller, 0);
        spipe_priv_tell(p);         /* another may have to ask CUDA now */
        spipe_priv_unlock(p->sync); /* the model may wait for a worker */
        k = spipe_priv_model_first(p, numbers, num);
        spipe_priv_lock(p->sync);
        p->run.at.issuing = 0;
        for (s = k < num ? all[k] : NULL, k = 0; !s && k < num; ++k) { /* what there is, then */
            if (all[k]->state == SPIPE_PRIV_FILLED) s = all[k];
        }
        if (!s) return NULL;
    }
    if (!s) { /* a caller without workers begins chunks as long as slots are free */
        s = all[num - 1];
        if (s->state != SPIPE_PRIV_EMPTY && s->segment > 0) s = all[0];
    }
    p->run.at.chosen = s;
    if (s->state == SPIPE_PRIV_FILLED && !spipe_priv_is_lost(p, s->chunk)) return s;
    if (s->state == SPIPE_PRIV_EMPTY && !p->route.fills) return spipe_priv_free_slot(p);
    if (spipe_priv_is_lost(p, s->chunk)) p->run.at.chosen = NULL;
    return NULL;
}

SPIPE_PRIV_RARE int spipe_priv_do_one(spipe_priv_pipeline_t *p, spipe_priv_hand_t *h) {
    spipe_priv_slot_t *s = NULL;
    spipe_priv_task_t t;
    if ((h->caller || spipe_priv_workers_issue(p)) && !p->pull.active && !p->run.at.issuing) {
        s = p->run.states && p->run.in_turn ? spipe_priv_choose(p) : spipe_priv_issuable(p);
    }
    if (s) {
        spipe_priv_count_idle(p, h, 0);
        spipe_priv_have_role(p, h, s);
        return 1;
    }
    if (spipe_priv_ask(p, h)) return 1;
    if (!spipe_priv_next_task(p, &t)) return 0;
    if (h->caller ? !spipe_priv_caller_does(p, &t) : spipe_priv_is_callers(p, &t)) return 0;
    spipe_priv_count_idle(p, h, 0);
    spipe_priv_take_task(p, &t);
    return 1;
}

/* What the caller does in each turn of its loop besides: the provider's part, and progress. Called
   with the lock held, which is given back meanwhile. */
SPIPE_PRIV_RARE void spipe_priv_callers_turn(spipe_priv_pipeline_t *p) {
    const int reports = p->request.desc.progress && spipe_priv_completed(p) != p->run.at.reported;
    if (!p->provider && !reports) return;
    spipe_priv_unlock(p->sync);
    if (p->provider) p->provider->between(p);
    if (reports) spipe_priv_report_progress(p);
    spipe_priv_lock(p->sync);
}

/* The caller works until all is over. */
SPIPE_PRIV_RARE void spipe_priv_work_off(spipe_priv_pipeline_t *p) {
    spipe_priv_hand_t *h = &p->workers.caller;
    spipe_priv_lock(p->sync);
    while (spipe_priv_look_anew(p, h) && !spipe_priv_is_over(p)) {
        if (p->run.states) spipe_priv_callers_turn(p);
        if (!spipe_priv_do_one(p, h)) spipe_priv_rest(p, h);
    }
    spipe_priv_count_idle(p, h, 0);
    spipe_priv_unlock(p->sync);
}

SPIPE_PRIV_RARE void spipe_priv_touch(spipe_priv_pipeline_t *p) {
    const size_t page = SPIPE_PRIV_TOUCH_PAGE;
    p->workers.caller.caller = 1;
    spipe_priv_start_workers(p);
    spipe_priv_lock(p->sync);
    p->run.states = 0;
    p->run.at.touched = 0;
    p->run.at.pages = (p->memory.pinned_bytes + page - 1) / page;
    spipe_priv_tell(p);
    spipe_priv_unlock(p->sync);
    spipe_priv_work_off(p);
}
