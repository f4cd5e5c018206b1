/* ---- 4 execute: what is whole ----------------------------------------------------------------
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

/* Checkpoints that there are events for at a time: 16, or more slots where each chunk is one. */
SPIPE_PRIV_RARE size_t spipe_priv_num_checkpoints(const spipe_priv_pipeline_t *p) {
    const size_t depth = p->plan.depth, most = SPIPE_PRIV_CHECKPOINTS;
    return p->program.checkpoint_mask == 0 && depth > most ? depth : most;
}

/* The event of a checkpoint: there are events for a few checkpoints, which take turns. */
SPIPE_PRIV_RARE cudaEvent_t spipe_priv_checkpoint_event(const spipe_priv_pipeline_t *p,
                                                        size_t number) {
    return p->streams.checkpoints[number % spipe_priv_num_checkpoints(p)];
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_complete_checkpoint(spipe_priv_pipeline_t *p) {
    const size_t every = p->program.checkpoint_mask + 1, number = p->run.at.checkpoints;
    SPIPE_TRY(spipe_priv_complete(p, spipe_priv_checkpoint_event(p, number), (number + 1) * every));
    ++p->run.at.checkpoints;
    return cudaSuccess;
}

/* Records the end of some chunks, and keeps the host from running too far ahead of the GPU. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_checkpoint(spipe_priv_pipeline_t *p, size_t order) {
    const size_t number = order / (p->program.checkpoint_mask + 1);
    if (p->run.mode != SPIPE_PRIV_WAITED_FOR) return cudaSuccess;
    if (number >= p->run.at.checkpoints + spipe_priv_num_checkpoints(p)) {
        SPIPE_TRY(spipe_priv_complete_checkpoint(p));
    }
    return cudaEventRecord(spipe_priv_checkpoint_event(p, number),
                           spipe_priv_stream_for(p, order, SPIPE_PRIV_ON_OUT));
}

/* Counts the chunks that are whole by now, if the copies out show that: with progress there is a
   checkpoint for each. */
SPIPE_PRIV_RARE int spipe_priv_complete_some(spipe_priv_pipeline_t *p) {
    while (p->run.at.checkpoints < p->run.at.issued_out) {
        const cudaEvent_t event = spipe_priv_checkpoint_event(p, p->run.at.checkpoints);
        const int all_taken = p->run.at.issued_out - p->run.at.completed >= p->plan.depth;
        if (!spipe_priv_reached(cudaEventQuery(event)) && !all_taken) return 1;
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
