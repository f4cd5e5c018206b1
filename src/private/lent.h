/* ---- 13 resources: the provider -------------------------------------------------------------
   The provider of pipelines whose description names resources: memory, streams, events and threads
   are lent, not made. Everything here is under one lock. */
enum {
    SPIPE_PRIV_LEAST_SHARE = 16, /* of what resources hold, a plan may always take 1/16 */
    SPIPE_PRIV_RUNS_AT_ONCE = 7  /* that keep a link busy (`make bench-many`, H200, 2026-11-26); of
                                    more, each plans for 1/7 of the device memory, and some wait, if
                                    they may */
};

/* Bytes that a plan may take of a space: an equal part for each run under way, but at most half of
   what is free, so that some is left for the next run, and at least a sixteenth of all. What is
   free now does not count for a run that takes memory later. */
SPIPE_PRIV_RARE size_t spipe_priv_share_of(const spipe_priv_space_t *s, int later, size_t parts) {
    const size_t least = s->bytes / SPIPE_PRIV_LEAST_SHARE;
    const size_t half = (later ? s->bytes : s->bytes - s->used) / 2;
    const size_t share = half < s->bytes / parts ? half : s->bytes / parts;
    return share > least ? share : least;
}

/* Whether a run is planned as if it were alone, as one of the highest priority is; others are
   planned for the shortest time of all runs together. Runs that wait count, because they wait for
   memory that large rings take. */
SPIPE_PRIV_RARE int spipe_priv_plans_alone(const spipe_priv_request_t *r) {
    return r->runs < 2 || r->desc.priority == SPIPE_PRIORITY_HIGH;
}

/* Sets how much memory a plan may take beside so many runs, itself included. Beside more than keep
   the link busy a run plans for a share of the device memory and waits until that is free, because
   few large chunks are faster. */
SPIPE_PRIV_RARE void spipe_priv_limit(spipe_priv_request_t *r, size_t runs) {
    spipe_resources_t *s = spipe_priv_resources_of(&r->desc);
    const size_t at_once = SPIPE_PRIV_RUNS_AT_ONCE;
    size_t resident = 0, share, pinned, parts;
    int waits, later, i;
    for (i = 0; i < r->desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &r->desc.buffers[i];
        if (spipe_priv_kind(b->kind)->once) resident += b->elem_bytes;
    }
    r->runs = runs;
    parts = spipe_priv_plans_alone(r) ? 1 : runs;
    waits = parts > at_once && !r->desc.no_wait;
    later = waits || r->kept == SPIPE_PRIV_KEPT_BY_USER;
    spipe_priv_lock(s->lending.sync);
    share = spipe_priv_share_of(&s->device, later, waits ? at_once : parts);
    pinned = spipe_priv_share_of(&s->pinned, later, parts);
    spipe_priv_unlock(s->lending.sync);
    r->device_limit = share > resident ? share - resident : 1;
    if (r->pin_refusals == 0 || r->pin_limit > pinned) r->pin_limit = pinned;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_lent_facts(spipe_priv_request_t *r, spipe_failure_t *f) {
    spipe_resources_t *s = spipe_priv_resources_of(&r->desc);
    const int several = s->others != s, of = s->facts.device;
    s = spipe_priv_resources_on(s, r->device);
    SPIPE_PRIV_REFUSE_IF(!s, "the resources are of device %d%s, and device %d is the current one",
                         of, several ? " and others" : "", r->device);
    r->desc.resources = s;
    r->facts = s->facts;
    r->cpus = s->cpus;
    spipe_priv_limit(r, SPIPE_PRIV_LOAD(s->num_runs) + 1);
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_lent_arenas(spipe_priv_pipeline_t *p, size_t device,
                                                   size_t pinned) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_memory_t *m = &p->memory;
    const int own = p->plan.pageable_slots; /* 1 = nothing can be pinned, so slots are pageable */
    const spipe_priv_hooks_t *hooks = p->request.desc.hooks;
    cudaError_t e = cudaSuccess;
    if (device == 0 && pinned == 0) return e;
    m->device_bytes = device;
    m->pinned_bytes = pinned;
    p->lent.thread = spipe_priv_this_thread();
    if (pinned > r->pinned.bytes && !own) {
        m->refused = pinned;
        spipe_priv_lock(r->lending.sync);
        e = spipe_priv_too_large(p);
        spipe_priv_unlock(r->lending.sync);
    } else if (hooks && hooks->gather) {
        e = hooks->gather(p, spipe_priv_take_memory);
    } else {
        e = spipe_priv_take_memory(&p, 1);
    }
    if (e != cudaSuccess) {
        m->device_bytes = m->pinned_bytes = 0;
        return e;
    }
    spipe_priv_note_end(r);
    m->pageable = own;
    if (own && pinned > 0) e = spipe_priv_pin_ring(p, pinned);
    if (e == cudaSuccess) return e;
    return spipe_priv_no_memory(p, e, pinned, "host", "");
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_lent_free_arenas(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_memory_t *m = &p->memory;
    const cudaError_t e = spipe_priv_free_apart(m);
    if (p->lent.entered && spipe_priv_has_memory(m)) {
        spipe_priv_lock(r->lending.sync);
        spipe_priv_give_both(p);
        spipe_priv_unlock(r->lending.sync);
    }
    free(m->pinned_base);
    m->device = m->pinned = m->pinned_base = NULL;
    m->device_bytes = m->pinned_bytes = 0;
    return e;
}

/* Counts one run more, or less, under way. Called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_count_run(spipe_priv_pipeline_t *p, int one_more) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_count_one(&r->num_runs, one_more);
    if (r->most_runs < r->num_runs) SPIPE_PRIV_STORE(r->most_runs, r->num_runs);
    spipe_priv_count_one(&r->num_active[spipe_priv_rank(p->request.desc.priority)], one_more);
}

/* Notes whether a run is one of those that share the threads. */
SPIPE_PRIV_RARE void spipe_priv_note_sharing(spipe_priv_pipeline_t *p, int shares) {
    if (p->workers.shares == shares) return;
    p->workers.shares = shares;
    spipe_priv_count_one(&spipe_priv_resources_of(&p->request.desc)->num_sharing, shares);
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_lent_enter(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    cudaError_t e = cudaSuccess;
    int taken = 1;
    p->lent.cancels = spipe_priv_hold_off_cancel();
    p->lent.holds_off = 1;
    p->lent.thread = spipe_priv_this_thread();
    spipe_priv_lock(r->lending.sync);
    if (!p->lent.attached) ++r->num_pipelines;
    p->lent.attached = 1;
    p->report.runs_beside = r->num_runs;
    p->report.waited_ms = 0.0;
    spipe_priv_count_run(p, 1);
    if (spipe_priv_has_memory(&p->memory)) {
        if (p->request.kept == SPIPE_PRIV_KEPT_FOR_CALLS)
            taken = spipe_priv_take_now(p);
        else
            e = spipe_priv_wait_for_memory(&p, 1);
    }
    if (e != cudaSuccess) spipe_priv_count_run(p, 0);
    spipe_priv_unlock(r->lending.sync);
    if (!taken) { /* to be planned for what is free now */
        (void)spipe_priv_lent_free_arenas(p);
        p->lent.plan_is_old = 1;
    }
    if (e == cudaSuccess && spipe_priv_has_memory(&p->memory)) spipe_priv_note_end(r);
    if (e != cudaSuccess) spipe_priv_end_hold(p);
    return e;
}

/* Ends a run: its memory is free. Called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_end_run(spipe_priv_pipeline_t *p) {
    if (spipe_priv_has_memory(&p->memory)) spipe_priv_give_both(p);
    spipe_priv_note_sharing(p, 0);
    spipe_priv_count_run(p, 0);
}

SPIPE_PRIV_RARE void spipe_priv_lent_leave(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_lock(r->lending.sync);
    spipe_priv_end_run(p);
    spipe_priv_unlock(r->lending.sync);
    spipe_priv_note_end(r);
    spipe_priv_end_hold(p);
}

/* From now on the pipeline keeps its memory, and no run waits for it. */
SPIPE_PRIV_RARE void spipe_priv_lent_stay(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    p->lent.stays = 1;
    spipe_priv_lock(r->lending.sync);
    spipe_priv_no_holder(p);
    spipe_priv_unlock(r->lending.sync);
    spipe_priv_note_end(r);
    spipe_priv_end_hold(p);
}

/* Whether to plan anew; if so, the pipeline has no memory any more. Not if a graph of enqueued runs
   has addresses of the memory, or arrays are pinned in place. */
SPIPE_PRIV_RARE int spipe_priv_lent_outdated(spipe_priv_pipeline_t *p) {
    const size_t runs = SPIPE_PRIV_LOAD(spipe_priv_resources_of(&p->request.desc)->num_runs);
    const size_t planned = p->request.runs;
    const int as_many = 2 * runs <= 3 * planned && 3 * runs >= 2 * planned;
    if (p->lent.stays || p->plan.staging == SPIPE_STAGING_REGISTER) return 0;
    if (as_many && !p->lent.plan_is_old) return 0;
    p->lent.plan_is_old = 0;
    (void)spipe_priv_lent_free_arenas(p); /* the new plan may need less, others want it */
    spipe_priv_limit(&p->request, runs);
    return 1;
}

/* Takes all at once, because many runs wait for the lock. */
SPIPE_PRIV_RARE void spipe_priv_lent_ahead(spipe_priv_pipeline_t *p, int num_streams,
                                           size_t num_events) {
    spipe_priv_lending_t *l = &spipe_priv_resources_of(&p->request.desc)->lending;
    spipe_priv_streams_t *s = &p->streams;
    spipe_priv_idle_t *idle = &l->streams[p->request.desc.priority];
    const size_t streams = num_streams > 0 ? (size_t)num_streams : 0;
    if (streams + num_events == 0) return;
    if (p->lent.streams_ahead + p->lent.events_ahead > 0) return; /* left by a failure */
    spipe_priv_lock(l->sync);
    p->lent.streams_ahead = spipe_priv_take_idle(idle, (void *)(s->streams + s->num), streams);
    p->lent.events_ahead = spipe_priv_take_idle(spipe_priv_idle_events(p),
                                                (void *)(s->events + s->num_events), num_events);
    spipe_priv_unlock(l->sync);
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_lent_stream(spipe_priv_pipeline_t *p, cudaStream_t *stream) {
    const spipe_priority_t priority = p->request.desc.priority;
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_lending_t *l = &r->lending;
    spipe_priv_idle_t *idle = &l->streams[priority];
    const int k = p->streams.num;
    cudaStream_t other;
    size_t more;
    cudaError_t e;
    if (p->lent.streams_ahead > 0) {
        --p->lent.streams_ahead;
        *stream = p->streams.streams[k];
        return cudaSuccess;
    }
    if (spipe_priv_lend_one(l, idle, (void *)stream, &r->num_runs, k, &more)) return cudaSuccess;
    e = spipe_stream_create(stream, priority);
    if (e != cudaSuccess) spipe_priv_one_less(l, idle);
    for (; more > 0 && e == cudaSuccess; --more) {
        if (spipe_stream_create(&other, priority) != cudaSuccess) break;
        if (!spipe_priv_add_idle(l, idle, (const void *)&other)) (void)cudaStreamDestroy(other);
    }
    return e;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_lent_event(spipe_priv_pipeline_t *p, cudaEvent_t *event) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_lending_t *l = &r->lending;
    spipe_priv_idle_t *idle = spipe_priv_idle_events(p);
    const int k = p->streams.num_events, blocking = p->request.desc.blocking;
    cudaEvent_t other;
    size_t more;
    cudaError_t e;
    if (p->lent.events_ahead > 0) {
        --p->lent.events_ahead;
        *event = p->streams.events[k];
        return cudaSuccess;
    }
    if (spipe_priv_lend_one(l, idle, (void *)event, &r->num_runs, k, &more)) return cudaSuccess;
    e = spipe_priv_make_event(event, blocking);
    if (e != cudaSuccess) spipe_priv_one_less(l, idle);
    for (; more > 0 && e == cudaSuccess; --more) {
        if (spipe_priv_make_event(&other, blocking) != cudaSuccess) break;
        if (!spipe_priv_add_idle(l, idle, (const void *)&other)) (void)cudaEventDestroy(other);
    }
    return e;
}

/* Streams and events go back, but not those of a run that failed: a stage may have left a capture
   in a stream. */
SPIPE_PRIV_RARE void spipe_priv_lent_end_streams(spipe_priv_pipeline_t *p, cudaError_t *e) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_lending_t *l = &r->lending;
    spipe_priv_idle_t *idle = &l->streams[p->request.desc.priority];
    const spipe_priv_streams_t *s = &p->streams;
    const size_t owned = (size_t)s->first_owned;
    const size_t num_streams = (size_t)s->num + p->lent.streams_ahead - owned;
    const size_t num_events = (size_t)s->num_events + p->lent.events_ahead;
    size_t streams = 0, events = 0; /* that were kept */
    spipe_priv_lock(l->sync);
    if (p->run.failed) {
        idle->made -= num_streams;
        spipe_priv_idle_events(p)->made -= num_events;
    } else {
        streams = spipe_priv_put_idle(idle, (const void *)(s->streams + owned), num_streams);
        events =
            spipe_priv_put_idle(spipe_priv_idle_events(p), (const void *)s->events, num_events);
    }
    if (p->lent.attached) --r->num_pipelines;
    spipe_priv_unlock(l->sync);
    for (; events < num_events; ++events) {
        spipe_priv_keep_error(e, cudaEventDestroy(s->events[events]));
    }
    for (; streams < num_streams; ++streams) {
        spipe_priv_keep_error(e, cudaStreamDestroy(s->streams[owned + streams]));
    }
}

/* Threads that are enough for so many runs: two for each CPU, or for each run if those are more. */
SPIPE_PRIV_RARE size_t spipe_priv_enough_threads(const spipe_resources_t *r, size_t runs) {
    return 2 * (runs > r->limit_threads ? runs : r->limit_threads);
}

/* How many threads there shall be once one was missing, so that later hardly any is missing: twice
   as many as are enough, because a run that began with few beside it holds more than its share;
   but no more than so many runs can use. */
SPIPE_PRIV_RARE size_t spipe_priv_threads_ahead(const spipe_resources_t *r, size_t runs) {
    const size_t twice = 2 * spipe_priv_enough_threads(r, runs);
    const size_t most = 2 * (size_t)SPIPE_MAX_THREADS * runs;
    return twice < most ? twice : most;
}

/* Takes back the threads of an idle pipeline. In calls.h. */
SPIPE_PRIV_RARE int spipe_priv_take_threads(spipe_resources_t *r);

/* Runs a function on an idle thread; if there are enough threads, on one of an idle pipeline, or on
   one that is about to be idle; else on a new one, and then more are made. NULL: there is none. */
SPIPE_PRIV_RARE void *spipe_priv_lent_start(spipe_resources_t *r, void *(*fn)(void *arg),
                                            void *arg) {
    spipe_priv_lending_t *l = &r->lending;
    const size_t enough = spipe_priv_enough_threads(r, SPIPE_PRIV_LOAD(r->num_runs));
    const size_t runs = SPIPE_PRIV_LOAD(r->most_runs);
    spipe_priv_lent_thread_t *t = spipe_priv_idle_thread(l);
    int may_come = 1; /* a thread that is not idle yet may become so */
    while (!t && may_come && spipe_priv_has_threads(l, enough)) {
        may_come = SPIPE_PRIV_LOAD(l->returning) > 0;
        if (spipe_priv_take_threads(r))
            may_come = 1;
        else if (may_come)
            spipe_priv_give_up_cpu();
        t = spipe_priv_idle_thread(l);
    }
    if (!t) {
        (void)spipe_priv_count_thread(l, SIZE_MAX);
        t = spipe_priv_add_thread(l, 0);
        if (t && runs > 1) spipe_priv_make_threads(l, spipe_priv_threads_ahead(r, runs));
    }
    if (t) spipe_priv_start_on(l, t, fn, arg);
    return t;
}

SPIPE_PRIV_RARE void spipe_priv_lent_join(spipe_resources_t *r, void *thread) {
    spipe_priv_take_thread_back(&r->lending, thread);
}

/* The runs that want threads, on all devices, get equal shares of them, but each run at least one
   thread of each kind. */
SPIPE_PRIV_RARE void spipe_priv_lent_share(spipe_priv_pipeline_t *p, size_t wanted[]) {
    const spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    size_t all = 0, runs, share;
    int i;
    for (i = 0; i < 3; ++i) all += wanted[i];
    spipe_priv_note_sharing(p, all > 0);
    runs = spipe_priv_all_sharing(r);
    share = runs > 1 ? r->limit_threads / runs : r->limit_threads;
    p->workers.beside = runs;
    p->workers.started = 1; /* so that between() is called even if a run has no threads */
    if (p->sync->single_threaded) p->sync->single_threaded = 0; /* there is no other thread yet */
    for (i = 0; i < 3 && share < all; ++i) {
        if (wanted[i] > 0) wanted[i] = wanted[i] * share > all ? wanted[i] * share / all : 1;
    }
}

/* Gives other runs their turn: a chunk is issued only when the copy in before it has ended, because
   a copy engine goes on with a stream that has work. Chunks that are filled come one by one. */
SPIPE_PRIV_RARE void spipe_priv_take_turns(spipe_priv_pipeline_t *p) {
    const spipe_priv_run_t *run = &p->run;
    const size_t issued = run->at.issued_out;
    if (!p->program.turns || run->mode != SPIPE_PRIV_WAITED_FOR || run->states || issued == 0 ||
        issued >= run->at.end)
        return;
    (void)cudaEventSynchronize(p->memory.slots[(issued - 1) % p->plan.depth].in_done);
}

/* Whether there are runs that this one must give a turn: those of its own or a higher priority. */
SPIPE_PRIV_RARE int spipe_priv_has_rivals(const spipe_resources_t *r, spipe_priority_t priority) {
    size_t active = 0;
    int k;
    for (k = spipe_priv_rank(priority); k < SPIPE_PRIV_RANKS; ++k) {
        active += SPIPE_PRIV_LOAD(r->num_active[k]);
    }
    return active > 1;
}

/* The thread may be another one than before: a new one may have the number of one that ended. */
SPIPE_PRIV_RARE void spipe_priv_lent_between(spipe_priv_pipeline_t *p) {
    const spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    if (p->lent.thread != spipe_priv_this_thread() || p->lent.ended) spipe_priv_take_over(p);
    if (spipe_priv_all_sharing(r) != p->workers.beside) spipe_priv_start_workers(p);
    if (spipe_priv_has_rivals(r, p->request.desc.priority)) spipe_priv_take_turns(p);
}

/* Has a kept pipeline run a call of spipe_run. In calls.h. */
SPIPE_PRIV_RARE int spipe_priv_lent_run(const spipe_desc_t *d, spipe_report_t *report,
                                        cudaError_t *e, spipe_failure_t *f,
                                        spipe_priv_visit_t *visit);

SPIPE_PRIV_RARE const spipe_priv_provider_t *spipe_priv_lender(void) {
    static const spipe_priv_provider_t provider = {
        spipe_priv_lent_facts,       spipe_priv_lent_ahead,       spipe_priv_lent_stream,
        spipe_priv_lent_event,       spipe_priv_lent_end_streams, spipe_priv_lent_arenas,
        spipe_priv_lent_free_arenas, spipe_priv_lent_start,       spipe_priv_lent_join,
        spipe_priv_lent_enter,       spipe_priv_lent_leave,       spipe_priv_lent_stay,
        spipe_priv_lent_outdated,    spipe_priv_lent_share,       spipe_priv_lent_between,
        spipe_priv_lent_run};
    return &provider;
}
