/* ---- 4 execute: a run ----------------------------------------------------------------------
   From the first chunk to the last: begin, issue in the schedule's order, let everything end, count
   what is whole. Writes spipe_priv_run_t. */

/* How many chunks there are, and whether one stream will do. */
SPIPE_PRIV_RARE void spipe_priv_measure(spipe_priv_pipeline_t *p) {
    spipe_priv_run_t *run = &p->run;
    const spipe_desc_t *d = &p->request.desc;
    const size_t size = p->plan.chunk;
    spipe_priv_lock(p->sync); /* workers of the run before may be there */
    run->shared = d->hooks && d->hooks->next_chunk;
    run->endless = spipe_priv_endless(d);
    run->total = run->endless ? SPIPE_AUTO : d->count;
    run->full_chunks = run->endless ? 0 : d->count / size;
    run->num_chunks = run->full_chunks + (d->count % size != 0);
    if (run->endless || run->shared) run->num_chunks = SIZE_MAX;
    run->one_stream = p->plan.schedule == SPIPE_SCHEDULE_SERIAL;
    if (run->num_chunks <= 1 || (p->plan.pageable_slots && p->plan.depth == 1)) {
        run->one_stream |= p->route.num_chains == 1 && p->route.num_segments == 1;
    }
    spipe_priv_unlock(p->sync);
}

SPIPE_PRIV_LOCAL void spipe_priv_begin(spipe_priv_pipeline_t *p) {
    spipe_priv_run_t *run = &p->run;
    size_t k;
    if (!p->workers.started) p->sync->single_threaded = !p->workers.made;
    spipe_priv_failure_clear(&p->failure);
    p->note.error = cudaSuccess;
    p->note.catches = SPIPE_PRIV_CATCHES;
    p->workers.caller.caller = 1;
    p->workers.caller.found = p->visit.found;
    spipe_priv_measure(p);
    if (!spipe_priv_program_fits(p)) spipe_priv_write_program(p);
    run->moved[0] = run->moved[1] = 0;
    p->report.wall_ms = 0.0;
    spipe_priv_lock(p->sync);
    SPIPE_PRIV_STORE(run->failed, 0);
    SPIPE_PRIV_STORE(run->stop_asked, 0);
    SPIPE_PRIV_STORE(run->limit, SPIPE_AUTO);
    run->told.stop = 0;
    run->resident = cudaErrorNotReady;
    memset((void *)&run->at, 0, sizeof run->at);
    run->at.reported = SIZE_MAX;
    run->at.found = p->visit.found;
    for (k = 0; k < p->plan.depth; ++k) {
        p->memory.slots[k].state = SPIPE_PRIV_EMPTY;
        p->memory.slots[k].before = SPIPE_AUTO;
    }
    run->states = 0;
    run->in_turn = 1;
    spipe_priv_unlock(p->sync);
}

/* From now on workers look at the slots, if there is host work. */
SPIPE_PRIV_RARE void spipe_priv_begin_states(spipe_priv_pipeline_t *p) {
    spipe_priv_run_t *run = &p->run;
    if (!p->route.host_work || run->mode != SPIPE_PRIV_WAITED_FOR) return;
    spipe_priv_lock(p->sync);
    run->states = 1;
    run->in_turn = spipe_priv_is_modelled();
    run->at.issuing = 1; /* until residents are copied in */
    spipe_priv_begin_steering(p);
    spipe_priv_model_run(p);
    spipe_priv_unlock(p->sync);
}

/* The slot of the next chunk, in a run that takes them in turn. NULL: there is no chunk. Several
   GPUs: asks which it is when the slot is free, so that a slow GPU takes fewer. */
SPIPE_PRIV_OFTEN spipe_priv_slot_t *spipe_priv_turn(spipe_priv_pipeline_t *p, size_t order) {
    const size_t depth = p->plan.depth;
    spipe_priv_slot_t *slot = &p->memory.slots[order % depth];
    cudaError_t e = cudaSuccess;
    slot->chunk = order;
    if (p->run.shared) {
        if (slot->used) e = cudaEventSynchronize(slot->out_done);
        if (e != cudaSuccess) (void)cudaGetLastError(); /* the next call returns it, too */
        if (e == cudaSuccess && slot->used && p->run.at.completed <= slot->order) {
            p->run.at.completed = slot->order + 1;
        }
        slot->chunk = p->request.desc.hooks->next_chunk(p);
        if (slot->chunk == SPIPE_AUTO) p->run.at.end = order;
        if (slot->chunk == SPIPE_AUTO) return NULL;
    }
    slot->order = order;
    slot->behind = order > 0 ? &p->memory.slots[(order - 1) % depth] : NULL;
    p->run.at.issued = order + 1;
    return slot;
}

/* After a failure of a run that is waited for, the chunks before are still issued. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_goes_on(const spipe_priv_pipeline_t *p, cudaError_t e) {
    return p->run.mode != SPIPE_PRIV_WAITED_FOR || p->run.shared ? e : cudaSuccess;
}

/* Issues steps from .. last-1 of a chunk, in a run that takes slots in turn. */
SPIPE_PRIV_OFTEN cudaError_t spipe_priv_issue_steps(spipe_priv_pipeline_t *p, int from, int last,
                                                    size_t order) {
    const spipe_priv_program_t *g = &p->program;
    spipe_priv_slot_t *slot = &p->memory.slots[order % p->plan.depth];
    cudaError_t e;
    if (order >= p->run.at.end) return cudaSuccess;
    if (from == 0) slot = spipe_priv_turn(p, order);
    if (!slot) return cudaSuccess;
    e = spipe_priv_issue(p, g->step_start[from], g->step_start[last], slot);
    if (e != cudaSuccess) return spipe_priv_goes_on(p, e);
    if (last == p->route.num_steps) {
        slot->used = 1;
        if ((order & g->checkpoint_mask) == g->checkpoint_mask) {
            e = spipe_priv_checkpoint(p, order);
            if (e != cudaSuccess) {
                e = spipe_priv_check_step(p, e, -1, slot->chunk, "recording its end");
                return spipe_priv_goes_on(p, e);
            }
        }
        p->run.at.issued_out = order + 1; /* after its checkpoint, which shows that it is whole */
        if (p->request.desc.checked && p->run.mode == SPIPE_PRIV_WAITED_FOR)
            p->run.at.completed = order + 1;
    }
    if (p->provider && !p->sync->single_threaded) p->provider->between(p);
    if (p->request.desc.progress) spipe_priv_report_progress(p);
    return cudaSuccess;
}

/* Once the run is to stop, no further chunk is issued. */
SPIPE_PRIV_OFTEN void spipe_priv_stop_at(spipe_priv_pipeline_t *p, size_t order) {
    if (p->run.stop_asked && order < p->run.at.end) p->run.at.end = order;
}

/* All chunks of a run without host work. */
SPIPE_PRIV_OFTEN cudaError_t spipe_priv_issue_all(spipe_priv_pipeline_t *p) {
    size_t order;
    for (order = 0; order < p->run.at.end; ++order) {
        SPIPE_TRY(spipe_priv_issue_steps(p, 0, p->route.num_steps, order));
        spipe_priv_stop_at(p, order + 1);
    }
    return cudaSuccess;
}

/* Workers look at no slot any more: between runs the plan may change. */
SPIPE_PRIV_RARE void spipe_priv_end_states(spipe_priv_pipeline_t *p) {
    spipe_priv_lock(p->sync);
    p->run.states = 0;
    spipe_priv_unlock(p->sync);
}

/* With states: waits for what the host did not have to wait for yet. */
SPIPE_PRIV_RARE void spipe_priv_let_slots_end(spipe_priv_pipeline_t *p) {
    const size_t depth = p->plan.depth, n = p->run.at.issued;
    cudaError_t e = cudaSuccess;
    size_t k;
    for (k = n < depth ? 0 : n - depth; k < n && p->route.drains && !p->run.failed; ++k) {
        spipe_priv_model_await(p, SPIPE_PRIV_DRAIN, -1, k);
    }
    for (k = 0; k < depth && !p->route.drains && e == cudaSuccess; ++k) {
        const spipe_priv_slot_t *s = &p->memory.slots[(n + k) % depth]; /* the last one last */
        if (s->used && s->before != SPIPE_AUTO) e = spipe_priv_complete(p, s->out_done, 0);
    }
    spipe_priv_lock(p->sync);
    for (k = 0; k < depth && e == cudaSuccess; ++k) p->memory.slots[k].before = SPIPE_AUTO;
    p->run.at.completed = spipe_priv_completed(p);
    spipe_priv_unlock(p->sync);
    spipe_priv_report_progress(p);
    spipe_priv_end_states(p);
}

/* Waits until issued work has ended, whatever happened, and counts the chunks that are whole. The
   last copy out of each slot is the end of everything that was issued for whole chunks. */
SPIPE_PRIV_RARE void spipe_priv_let_end(spipe_priv_pipeline_t *p) {
    const size_t depth = p->plan.depth, n = p->run.at.issued_out;
    const int states = p->run.states;
    cudaError_t e = cudaSuccess;
    size_t k;
    if (states) spipe_priv_let_slots_end(p);
    while (!states && p->request.desc.progress && p->run.at.completed < n && e == cudaSuccess) {
        e = spipe_priv_complete_checkpoint(p);
        spipe_priv_report_progress(p);
    }
    for (k = n < depth ? 0 : n - depth; k < n && !states && e == cudaSuccess; ++k) {
        e = spipe_priv_complete(p, p->memory.slots[k % depth].out_done, k + 1 == n ? n : 0);
    }
    if (!p->run.failed) return;
    e = cudaSuccess;
    spipe_priv_sync_streams(&p->streams, &e);
    (void)spipe_priv_take_error(p->failure.error);
}

/* Chunks may be worked on from now on. */
SPIPE_PRIV_RARE void spipe_priv_open(spipe_priv_pipeline_t *p) {
    size_t k;
    spipe_priv_lock(p->sync);
    p->run.at.end = p->run.num_chunks;
    for (k = 0; k < p->plan.depth; ++k) {
        const int fills = p->run.states && p->route.fills && k < p->run.at.end;
        p->memory.slots[k].used = 0;
        if (fills) spipe_priv_model_post(p, SPIPE_PRIV_FILL, -1, k);
    }
    if (p->run.states && p->route.fills && !spipe_priv_reads_in_turn(p)) {
        spipe_priv_cond_broadcast(&p->workers.work); /* each would wake the next one, in turn */
    }
    spipe_priv_tell(p);
    spipe_priv_unlock(p->sync);
}

/* Before the first chunk: slots are filled, and resident buffers are on the device. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_start_streams(spipe_priv_pipeline_t *p) {
    const cudaStream_t base = p->streams.streams[0];
    cudaError_t e = spipe_priv_follow_default(p);
    spipe_priv_open(p);
    if (e == cudaSuccess) e = spipe_priv_move_resident(p, 0, base);
    if (e == cudaSuccess && spipe_priv_has_resident(&p->request.desc)) {
        e = spipe_priv_fork(&p->streams, base);
    }
    if (e != cudaSuccess) {
        (void)spipe_priv_fail(p, NULL, e, -1, 0, "starting the run failed: %s",
                              cudaGetErrorString(e));
    }
    spipe_priv_lock(p->sync);
    p->run.at.issuing = 0;
    spipe_priv_tell(p);
    spipe_priv_unlock(p->sync);
    return e;
}

SPIPE_PRIV_RARE void spipe_priv_run_streams(spipe_priv_pipeline_t *p) {
    cudaError_t e = spipe_priv_start_streams(p);
    if (p->run.states)
        spipe_priv_work_off(p);
    else if (e == cudaSuccess)
        e = spipe_priv_issue_all(p);
    if (e == cudaSuccess) spipe_priv_resident_behind(p);
    spipe_priv_let_end(p);
}

/* Before the first chunk. An error: the run has failed, and nothing is to be issued. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_begin_run(spipe_priv_pipeline_t *p) {
    spipe_failure_t why;
    cudaError_t e;
    p->run.began = spipe_priv_clock();
    spipe_priv_start_workers(p);
    spipe_priv_begin(p);
    e = spipe_priv_tell_begin(&p->request.desc, &why);
    p->run.told.begin = e == cudaSuccess;
    if (e == cudaSuccess) spipe_priv_begin_states(p);
    if (e == cudaSuccess) return e;
    return spipe_priv_fail(p, NULL, e, -1, SPIPE_AUTO, "%s", why.message);
}

/* After the last chunk: resident buffers out, and the failure completed. */
SPIPE_PRIV_RARE void spipe_priv_finish(spipe_priv_pipeline_t *p) {
    const cudaStream_t base = p->streams.streams[0];
    cudaError_t e;
    if (p->run.failed) {
        spipe_priv_set(p, &p->run.stop_asked, 0); /* the stop is not why the run ended */
    } else if (p->run.stop_asked) {
        (void)spipe_priv_fail(p, NULL, SPIPE_STOPPED, -1, p->run.at.completed,
                              "stopped by the progress callback after %zu chunks",
                              p->run.at.completed);
    }
    if (!p->run.failed && spipe_priv_has_resident(&p->request.desc)) {
        e = p->run.resident;
        if (e == cudaErrorNotReady) {
            e = spipe_priv_move_resident(p, 1, base);
            if (e == cudaSuccess) e = spipe_priv_sync_stream(p, base);
        }
        if (e != cudaSuccess) {
            cudaError_t again = cudaSuccess;
            spipe_priv_sync_streams(&p->streams, &again); /* a copy may be under way */
            (void)spipe_priv_fail(p, NULL, e, -1, p->run.at.completed,
                                  "copying a resident buffer out failed: %s",
                                  cudaGetErrorString(e));
        }
    }
    e = p->request.kept ? spipe_priv_unregister(&p->request) : cudaSuccess;
    if (e != cudaSuccess) {
        (void)spipe_priv_fail(p, NULL, e, -1, SPIPE_AUTO, "freeing after the run failed: %s",
                              cudaGetErrorString(e));
    }
    p->failure.chunks_whole = p->run.at.completed;
    if (p->run.told.begin) {
        spipe_priv_tell_end(&p->request.desc, p->request.desc.num_buffers, p->failure.error);
    }
    p->run.told.begin = 0;
}

/* Bytes of the pages that this process has been given; 0 = not known, or nothing is staged. */
SPIPE_PRIV_RARE size_t spipe_priv_page_bytes(const spipe_plan_t *plan) {
#if defined(_SC_PAGESIZE) && !defined(_WIN32)
    struct rusage usage;
    if (plan->staging != SPIPE_STAGING_COPY || getrusage(RUSAGE_SELF, &usage) != 0) return 0;
    return (size_t)usage.ru_minflt * (size_t)sysconf(_SC_PAGESIZE);
#else
    (void)plan;
    return 0;
#endif
}

/* Takes the timeline for this run, which another may be filling. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_take_watcher(spipe_priv_pipeline_t *p) {
    spipe_priv_watcher_t *w = (spipe_priv_watcher_t *)(void *)p->request.desc.timeline;
    if (w && !spipe_priv_exchange_if(&w->taken, 0, 1)) {
        spipe_priv_begin(p);
        p->report.wall_ms = p->report.timed_ms = 0.0;
        return spipe_priv_fail(p, NULL, cudaErrorNotPermitted, -1, SPIPE_AUTO,
                               "another run is filling the timeline; give each run its own");
    }
    p->watcher = w;
    return cudaSuccess;
}

/* Makes one run with the plan in use; replays it if the plan says so and no timeline watches. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_run_plan(spipe_priv_pipeline_t *p) {
    const spipe_desc_t *d = &p->request.desc;
    const int replayed = p->plan.replay && p->program.replay.graph && !d->timeline;
    int begun;
    SPIPE_TRY(spipe_priv_take_watcher(p));
    begun = spipe_priv_begin_run(p) == cudaSuccess;
    p->report.new_page_bytes = 0 - spipe_priv_page_bytes(&p->plan);
    p->report.timed_ms = 0.0;
    spipe_priv_notify(p, SPIPE_PRIV_WATCH_RUN, NULL, 0, 0);
    if (begun && replayed)
        p->program.replay.run_graph(p);
    else if (begun)
        spipe_priv_run_streams(p);
    spipe_priv_finish(p);
    p->report.wall_ms = 1e3 * (spipe_priv_clock() - p->run.began);
    p->report.new_page_bytes += spipe_priv_page_bytes(&p->plan);
    spipe_priv_notify(p, SPIPE_PRIV_WATCH_RUN, NULL, 0, 1);
    if (p->watcher) SPIPE_PRIV_STORE(p->watcher->taken, 0);
    p->watcher = NULL;
    p->report.replayed = replayed;
    return p->failure.error;
}
