/* ---- 12 execute: waiting -------------------------------------------------------------------
   What the calling thread does while it waits: it helps the workers, and does what they would do
   where there are none. */

/* Whether the slot of a batch may be filled again. For a batch that was drained CUDA is not asked:
   it could return a later error of the GPU. */
SPIPE_PRIV_RARE int spipe_priv_may_refill(spipe_priv_pipeline_t *p, size_t batch) {
    const spipe_priv_slot_t *slot = &p->memory.slots[batch % p->plan.depth];
    if (batch >= p->run.at.issued_out) return 0;
    if (p->route.refill == SPIPE_PRIV_REFILL_DRAINED) {
        return SPIPE_PRIV_LOAD(slot->whole) > batch;
    }
    return spipe_priv_poll_event(p, slot->out_done, &p->run.at.polled_in) > 0;
}

/* Asks CUDA whether copies have ended, in place of the workers of a kind: if there are none, or if
   the caller helps them and none of them asks. */
SPIPE_PRIV_RARE void spipe_priv_help_ask(spipe_priv_pipeline_t *p, int what) {
    const spipe_priv_queue_t *q = &p->workers.queues[what];
    int help = spipe_priv_may_help(p, what);
    if (p->plan.caller_helps) help = !SPIPE_PRIV_LOAD(q->polling);
    if (help || !spipe_priv_workers_ask(p, q)) (void)spipe_priv_ask(p, what);
}

/* Does what workers do that are missing: asks which copies have ended, and lets slots be filled
   again. Where a slot is free only when its batch is done, the calling thread alone sees that. */
SPIPE_PRIV_RARE void spipe_priv_poll(spipe_priv_pipeline_t *p) {
    size_t batch;
    if (p->provider) p->provider->between(p);
    if (p->route.drains) spipe_priv_help_ask(p, SPIPE_PRIV_DRAIN);
    if (p->route.refill == SPIPE_PRIV_REFILL_NEVER) return;
    if (p->route.refill == SPIPE_PRIV_REFILL_COPIED_IN) {
        spipe_priv_help_ask(p, SPIPE_PRIV_FILL);
        return;
    }
    batch = SPIPE_PRIV_LOAD(p->run.at.polled_in);
    for (; spipe_priv_may_refill(p, batch); ++batch) {
        spipe_priv_post(p, SPIPE_PRIV_FILL, -1, p->plan.depth + batch);
        spipe_priv_set(p, &p->run.at.polled_in, batch + 1);
    }
}

/* Whether the slot of a batch has been filled; by a modelled clock, if there is one. */
SPIPE_PRIV_RARE int spipe_priv_is_filled(spipe_priv_pipeline_t *p, size_t batch) {
    const size_t *filled = &p->memory.slots[batch % p->plan.depth].filled;
    while (spipe_priv_model_unsure(p, batch) && !spipe_priv_is_lost(p, batch)) {
        if (spipe_priv_help(p)) continue;
        spipe_priv_poll(p);
        spipe_priv_yield(&p->sync->busy_until);
    }
    return !spipe_priv_model_unfilled(p, batch) && SPIPE_PRIV_LOAD(*filled) > batch;
}

/* Waits until the workers are done and no task will follow. */
SPIPE_PRIV_RARE void spipe_priv_finish_host_work(spipe_priv_pipeline_t *p) {
    int busy = p->workers.block != NULL;
    while (busy) {
        spipe_priv_poll(p);
        busy = spipe_priv_workers_busy(p);
        if (!spipe_priv_help(p) && busy) spipe_priv_yield(&p->sync->busy_until);
    }
}

SPIPE_PRIV_RARE void spipe_priv_touch(spipe_priv_pipeline_t *p) {
    const size_t bytes = p->memory.pinned_bytes, page = spipe_priv_touch_page(bytes);
    size_t k;
    memset(&p->run.at, 0, sizeof p->run.at);
    spipe_priv_start_workers(p);
    for (k = 0; k * page < bytes; ++k) {
        if (p->workers.block)
            spipe_priv_post(p, SPIPE_PRIV_TOUCH, -1, k);
        else
            spipe_priv_touch_one(p, k);
    }
    spipe_priv_finish_host_work(p);
}

/* If nothing has to be drained: waits for an event, or (NULL) for stream 0, and counts the batches
   before it as whole. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_complete(spipe_priv_pipeline_t *p, cudaEvent_t event,
                                                size_t batches) {
    cudaError_t e = cudaSuccess;
    if (event)
        e = cudaEventSynchronize(event);
    else if (!p->route.out_blocks)
        e = cudaStreamSynchronize(p->streams.streams[0]);
    if (e == cudaSuccess && p->run.at.completed < batches) {
        spipe_priv_set(p, &p->run.at.completed, batches);
    }
    if (e == cudaSuccess) return e;
    (void)cudaGetLastError();
    return spipe_priv_fail_between(p, e, p->run.at.issued_out);
}

/* The events of a checkpoint: there are events for a few checkpoints, which take turns. */
SPIPE_PRIV_RARE cudaEvent_t *spipe_priv_checkpoint_events(spipe_priv_pipeline_t *p, size_t number) {
    const size_t width = p->program.checkpoint_width;
    return &p->streams.checkpoints[number % (SPIPE_PRIV_CHECKPOINTS / width) * width];
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_complete_checkpoint(spipe_priv_pipeline_t *p) {
    const size_t every = p->program.checkpoint_mask + 1, width = p->program.checkpoint_width;
    const size_t number = p->run.at.completed / every;
    const cudaEvent_t *events = spipe_priv_checkpoint_events(p, number);
    size_t k;
    for (k = 0; k < width; ++k) {
        SPIPE_TRY(spipe_priv_complete(p, events[k], number * every + (k + 1 == width) * every));
    }
    return cudaSuccess;
}

/* Records the end of some batches, and keeps the host from running too far ahead of the GPU. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_checkpoint(spipe_priv_pipeline_t *p, size_t batch) {
    const size_t every = p->program.checkpoint_mask + 1, width = p->program.checkpoint_width;
    const size_t number = batch / every, row = batch % p->plan.depth;
    const size_t event = batch % every - p->program.checkpoint_from;
    if (p->run.mode != SPIPE_PRIV_WAITED_FOR || p->route.drains) return cudaSuccess;
    if (number >= p->run.at.completed / every + SPIPE_PRIV_CHECKPOINTS / width) {
        SPIPE_TRY(spipe_priv_complete_checkpoint(p));
    }
    return cudaEventRecord(spipe_priv_checkpoint_events(p, number)[event],
                           spipe_priv_stream_for(p, row, SPIPE_PRIV_ON_OUT));
}

/* Counts the batches that are whole by now, if the copies out show that. */
SPIPE_PRIV_RARE int spipe_priv_complete_some(spipe_priv_pipeline_t *p) {
    while (!p->route.drains && p->run.at.completed < p->run.at.issued_out) {
        const size_t number = p->run.at.completed % SPIPE_PRIV_CHECKPOINTS;
        const int all_taken = p->run.at.issued_out - p->run.at.completed >= p->plan.depth;
        if (!spipe_priv_reached(cudaEventQuery(p->streams.checkpoints[number])) && !all_taken)
            return 1;
        if (spipe_priv_complete_checkpoint(p) != cudaSuccess) return 0;
    }
    return 1;
}

/* Calls the progress callback if more batches are whole than it was told. */
SPIPE_PRIV_RARE void spipe_priv_report_progress(spipe_priv_pipeline_t *p) {
    const spipe_desc_t *d = &p->request.desc;
    spipe_progress_t progress;
    size_t completed, total;
    int stop;
    if (!d->progress || p->run.mode != SPIPE_PRIV_WAITED_FOR) return;
    if (!spipe_priv_complete_some(p)) return;
    completed = SPIPE_PRIV_LOAD(p->run.at.completed);
    total = SPIPE_PRIV_LOAD(p->run.total);
    if (completed == p->run.at.reported) return;
    p->run.at.reported = completed;
    progress.chunks_done = completed;
    progress.total = total == SPIPE_AUTO ? 0 : total;
    progress.num_chunks = (progress.total + p->run.batch_elems - 1) / p->run.batch_elems;
    progress.elements_done = completed * p->run.batch_elems;
    if (progress.elements_done > total) progress.elements_done = total;
    progress.seconds = spipe_priv_clock() - p->run.began;
    (void)spipe_priv_set_mode(p->visit.mode);
    SPIPE_PRIV_CALL(p->sync, &p->thrown, NULL, stop, d->progress(&progress, d->progress_user), 1);
    (void)spipe_priv_own_calls();
    if (!stop) return;
    spipe_priv_set(p, &p->run.stop_asked, 1);
    spipe_priv_stop_calls(p);
}

/* Waits until *flag is at least value, or the run has failed at this batch or before it; returns
   the error in that case. Meanwhile the progress callback may stop the run. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_await(spipe_priv_pipeline_t *p, const size_t *flag,
                                             size_t value, size_t batch) {
    while (!spipe_priv_is_lost(p, batch) && SPIPE_PRIV_LOAD(*flag) < value) {
        if (spipe_priv_help(p)) continue;
        spipe_priv_poll(p);
        if (p->request.desc.progress) spipe_priv_report_progress(p);
        spipe_priv_yield(&p->sync->busy_until);
    }
    return spipe_priv_error_at(p, batch);
}
