/* ---- 12 execute: what is whole ---------------------------------------------------------------
   In a run without host work the calling thread waits for the device at checkpoints; progress. */

/* Waits for an event, or (NULL) for stream 0, and counts the chunks before it as whole. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_complete(spipe_priv_pipeline_t *p, cudaEvent_t event,
                                                size_t chunks) {
    cudaError_t e = cudaSuccess;
    if (event)
        e = cudaEventSynchronize(event);
    else if (!p->route.out_blocks)
        e = cudaStreamSynchronize(p->streams.streams[0]);
    if (e == cudaSuccess && p->run.at.completed < chunks) p->run.at.completed = chunks;
    if (e == cudaSuccess) return e;
    (void)cudaGetLastError();
    return spipe_priv_fail_between(p, e);
}

/* Checkpoints that there are events for at a time: 16 events; or one for each of more slots, where
   a slot has its own or each chunk is a checkpoint. */
SPIPE_PRIV_RARE size_t spipe_priv_num_checkpoints(const spipe_priv_pipeline_t *p) {
    const size_t width = p->program.checkpoint_width, depth = p->plan.depth;
    const int each = width > 1 || p->program.checkpoint_mask == 0;
    const size_t most = SPIPE_PRIV_CHECKPOINTS;
    return (each && depth > most ? depth : most) / width;
}

/* The events of a checkpoint: there are events for a few checkpoints, which take turns. */
SPIPE_PRIV_RARE cudaEvent_t *spipe_priv_checkpoint_events(spipe_priv_pipeline_t *p, size_t number) {
    const size_t width = p->program.checkpoint_width;
    return &p->streams.checkpoints[number % spipe_priv_num_checkpoints(p) * width];
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_complete_checkpoint(spipe_priv_pipeline_t *p) {
    const size_t every = p->program.checkpoint_mask + 1, width = p->program.checkpoint_width;
    const size_t number = p->run.at.checkpoints;
    const cudaEvent_t *events = spipe_priv_checkpoint_events(p, number);
    size_t k;
    for (k = 0; k < width; ++k) {
        SPIPE_TRY(spipe_priv_complete(p, events[k], (number + (k + 1 == width)) * every));
    }
    ++p->run.at.checkpoints;
    return cudaSuccess;
}

/* Records the end of some chunks, and keeps the host from running too far ahead of the GPU. Where
   each slot has a stream, a checkpoint is an event in each. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_checkpoint(spipe_priv_pipeline_t *p, size_t order) {
    const size_t width = p->program.checkpoint_width;
    const size_t number = order / (p->program.checkpoint_mask + 1);
    size_t k;
    if (p->run.mode != SPIPE_PRIV_WAITED_FOR) return cudaSuccess;
    if (number >= p->run.at.checkpoints + spipe_priv_num_checkpoints(p)) {
        SPIPE_TRY(spipe_priv_complete_checkpoint(p));
    }
    for (k = 0; k < width; ++k) {
        const size_t slot = width > 1 ? k : order % p->plan.depth;
        SPIPE_TRY(cudaEventRecord(spipe_priv_checkpoint_events(p, number)[k],
                                  spipe_priv_stream_for(p, slot, order, SPIPE_PRIV_ON_OUT)));
    }
    return cudaSuccess;
}

/* Counts the chunks that are whole by now, if the copies out show that: with progress there is a
   checkpoint for each. */
SPIPE_PRIV_RARE int spipe_priv_complete_some(spipe_priv_pipeline_t *p) {
    while (p->run.at.checkpoints < p->run.at.issued_out) {
        const size_t number = p->run.at.checkpoints % spipe_priv_num_checkpoints(p);
        const int all_taken = p->run.at.issued_out - p->run.at.completed >= p->plan.depth;
        if (!spipe_priv_reached(cudaEventQuery(p->streams.checkpoints[number])) && !all_taken)
            return 1;
        if (spipe_priv_complete_checkpoint(p) != cudaSuccess) return 0;
    }
    return 1;
}

/* The run is to stop: no chunk is issued that was not. Its sources and sinks are told. */
SPIPE_PRIV_RARE void spipe_priv_stop_run(spipe_priv_pipeline_t *p) {
    size_t least = SPIPE_AUTO, k;
    spipe_priv_lock(p->sync);
    SPIPE_PRIV_STORE(p->run.stop_asked, 1);
    for (k = 0; k < p->plan.depth && p->run.states; ++k) {
        const spipe_priv_slot_t *s = &p->memory.slots[k];
        const int waits = s->state == SPIPE_PRIV_FILLING || s->state == SPIPE_PRIV_FILLED;
        if (waits && s->segment == 0 && s->chunk < least) least = s->chunk;
    }
    if (p->run.states) spipe_priv_end_at(p, least);
    spipe_priv_unlock(p->sync);
    spipe_priv_stop_calls(p);
}

/* Calls the progress callback if more chunks are whole than it was told. */
SPIPE_PRIV_RARE void spipe_priv_report_progress(spipe_priv_pipeline_t *p) {
    const spipe_desc_t *d = &p->request.desc;
    spipe_progress_t progress;
    size_t completed, total;
    int stop;
    if (!d->progress || p->run.mode != SPIPE_PRIV_WAITED_FOR) return;
    if (!p->run.states && !spipe_priv_complete_some(p)) return;
    spipe_priv_lock(p->sync);
    completed = spipe_priv_completed(p);
    total = p->run.total;
    spipe_priv_unlock(p->sync);
    if (completed == p->run.at.reported) return;
    p->run.at.reported = completed;
    progress.chunks_done = completed;
    progress.total = total == SPIPE_AUTO ? 0 : total;
    progress.num_chunks = (progress.total + p->plan.chunk - 1) / p->plan.chunk;
    progress.elements_done = completed * p->plan.chunk;
    if (progress.elements_done > total) progress.elements_done = total;
    progress.seconds = spipe_priv_clock() - p->run.began;
    (void)spipe_priv_set_mode(p->visit.mode);
    SPIPE_PRIV_CALL(p->sync, &p->thrown, NULL, stop, d->progress(&progress, d->progress_user), 1);
    (void)spipe_priv_own_calls();
    if (stop) spipe_priv_stop_run(p);
}
