/* ---- 12 execute: failures ------------------------------------------------------------------
   The first failure of a run, for any thread to record; and where a batch lies in the whole. */

/* Batches follow each other, unless several GPUs share the whole. */
SPIPE_PRIV_OFTEN size_t spipe_priv_position(const spipe_priv_pipeline_t *p, size_t batch) {
    return p->run.positions ? p->run.positions[batch % SPIPE_PRIV_POSITIONS] : batch;
}

/* The number of a batch's first chunk. */
SPIPE_API size_t spipe_priv_chunk_index(const spipe_priv_pipeline_t *p, size_t batch) {
    return spipe_priv_position(p, batch);
}

/* Tells sources and sinks that wait that the run ends early. Without the lock, because the user's
   function may take one of its own. */
SPIPE_PRIV_RARE void spipe_priv_stop_calls(spipe_priv_pipeline_t *p) {
    int i, told;
    spipe_priv_lock(p->sync);
    told = p->run.told.stop;
    SPIPE_PRIV_STORE(p->run.told.stop, 1);
    spipe_priv_unlock(p->sync);
    for (i = 0; i < p->request.desc.num_buffers && !told; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        if (b->stop) b->stop(b->user);
    }
}

/* Whether what a source or sink returns is not reported any more: it was told to stop. */
SPIPE_PRIV_RARE int spipe_priv_was_stopped(const spipe_priv_pipeline_t *p,
                                           const spipe_buffer_desc_t *b) {
    return b->stop && SPIPE_PRIV_LOAD(p->run.told.stop);
}

/* A source or sink that was told to stop gives nothing for a batch. If the run has failed, it has
   failed at this batch, too, for the reason that is known. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_cut(spipe_priv_pipeline_t *p, spipe_priv_note_t *note,
                                           size_t batch) {
    spipe_priv_lock(p->sync);
    if (p->run.failed && batch < p->run.failed_batch) {
        SPIPE_PRIV_STORE(p->run.failed_batch, batch);
        spipe_priv_wake(p->sync);
    }
    spipe_priv_unlock(p->sync);
    spipe_priv_drop_thrown(&note->thrown);
    return SPIPE_STOPPED;
}

/* Records a failure; every thread checks run.failed and stops. The first failure is reported; a
   later one at an earlier batch only moves failed_batch. note: a user's function's, or NULL. If
   such a function failed, the batches before its batch are completed; if several failed, on several
   threads, the one at the earliest batch is reported, with its exception; other exceptions are
   freed. Returns e. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_fail(spipe_priv_pipeline_t *p, spipe_priv_note_t *note,
                                            cudaError_t e, int stage, size_t batch,
                                            const char *format, ...) {
    const size_t how = note ? SPIPE_PRIV_FAILED_IN_CALL : SPIPE_PRIV_FAILED;
    if (note && e == SPIPE_STOPPED) e = cudaErrorUnknown; /* that is for the progress callback */
    spipe_priv_lock(p->sync);
    if (!p->run.failed || (note && how == p->run.failed && batch < p->run.failed_batch)) {
        va_list args;
        if (note && (note->thrown || p->run.failed)) {
            void *thrown = p->thrown;
            p->thrown = note->thrown;
            note->thrown = thrown;
        }
        SPIPE_PRIV_STORE(p->run.failed, how);
        spipe_priv_failure_clear(&p->failure);
        p->failure.error = e;
        p->failure.stage = stage;
        p->failure.chunk = batch == SPIPE_AUTO ? batch : spipe_priv_chunk_index(p, batch);
        va_start(args, format);
        spipe_priv_say(&p->failure, format, args);
        va_end(args);
    }
    if (batch < p->run.failed_batch) SPIPE_PRIV_STORE(p->run.failed_batch, batch);
    spipe_priv_wake(p->sync);
    spipe_priv_unlock(p->sync);
    if (note) spipe_priv_drop_thrown(&note->thrown);
    spipe_priv_stop_calls(p);
    return e;
}

SPIPE_PRIV_RARE void spipe_priv_set(spipe_priv_pipeline_t *p, size_t *to, size_t value) {
    spipe_priv_lock(p->sync);
    SPIPE_PRIV_STORE(*to, value);
    spipe_priv_wake(p->sync);
    spipe_priv_unlock(p->sync);
}

/* Several GPUs: of this batch and those that this GPU was given after it, which lies last in the
   whole? Returns its position + 1. A batch beyond the end has SPIPE_AUTO, and counts as 0. */
SPIPE_PRIV_RARE size_t spipe_priv_after_given(const spipe_priv_pipeline_t *p, size_t batch) {
    const size_t end = SPIPE_PRIV_LOAD(p->run.at.num_positions);
    size_t after = 1;
    for (; batch < end; ++batch) {
        const size_t next = spipe_priv_position(p, batch) + 1;
        if (next > after) after = next;
    }
    return after;
}

/* Records an error of the GPU. It belongs to a batch from the first that is not whole to the last
   that may have been issued: less than 2 x depth after the one that the host still waits for. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_fail_between(spipe_priv_pipeline_t *p, cudaError_t e,
                                                    size_t batch) {
    const size_t end = SPIPE_PRIV_LOAD(p->run.num_batches);
    const size_t first = SPIPE_PRIV_LOAD(p->run.at.completed);
    size_t after = batch + 2 * p->plan.depth;
    if (after > end) after = end;
    if (p->run.positions) after = spipe_priv_after_given(p, first);
    return spipe_priv_fail(p, NULL, e, -1, first,
                           "the GPU reported an error in one of the chunks %zu to %zu (a checked "
                           "run tells which stage): %s",
                           spipe_priv_chunk_index(p, first), after - 1, cudaGetErrorString(e));
}

/* Whether an error is one of the GPU: it stays, and any call may be the first to return it. */
SPIPE_PRIV_RARE int spipe_priv_stays(const spipe_priv_pipeline_t *p, cudaError_t e) {
    enum cudaStreamCaptureStatus status;
    if (cudaStreamIsCapturing(p->streams.streams[0], &status) != e) return 0;
    (void)cudaGetLastError();
    return 1;
}

/* Returns the result of a step, and records it if it is an error; what = NULL names the stage
   itself. In a checked run nothing else is under way, so an error of the GPU belongs to this step.
   */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_step(spipe_priv_pipeline_t *p, cudaError_t e,
                                                  int stage, size_t batch, const char *what) {
    size_t chunk;
    if (e == cudaSuccess) return e;
    (void)spipe_priv_take_error(e);
    if (!p->request.desc.checked && spipe_priv_stays(p, e)) {
        return spipe_priv_fail_between(p, e, batch);
    }
    chunk = spipe_priv_chunk_index(p, batch);
    if (stage < 0) {
        return spipe_priv_fail(p, NULL, e, stage, batch, "%s failed at chunk %zu: %s", what, chunk,
                               cudaGetErrorString(e));
    }
    return spipe_priv_fail(p, NULL, e, stage, batch, "%s%s' failed at chunk %zu: %s",
                           what ? what : "stage '", p->request.desc.stages[stage].name, chunk,
                           cudaGetErrorString(e));
}

/* Whether the run has failed at this batch or before it. Batches before may still be finished. */
SPIPE_PRIV_RARE int spipe_priv_is_lost(const spipe_priv_pipeline_t *p, size_t batch) {
    return SPIPE_PRIV_LOAD(p->run.failed_batch) <= batch;
}

/* The run's error where it has failed at this batch or before it. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_error_at(const spipe_priv_pipeline_t *p, size_t batch) {
    cudaError_t e;
    if (!spipe_priv_is_lost(p, batch)) return cudaSuccess;
    spipe_priv_lock(p->sync);
    e = p->failure.error;
    spipe_priv_unlock(p->sync);
    return e;
}

/* Elements in the whole; SPIPE_AUTO while the sources have not ended. */
SPIPE_PRIV_OFTEN size_t spipe_priv_total(const spipe_priv_pipeline_t *p) {
    return p->run.endless ? SPIPE_PRIV_LOAD(p->run.total) : p->run.total;
}

/* Elements of the batch at a position: all are full but the last, and that one is read after the
   total is known. */
SPIPE_PRIV_OFTEN size_t spipe_priv_count_at(const spipe_priv_pipeline_t *p, size_t position) {
    const size_t size = p->run.batch_elems;
    size_t total;
    if (position < p->run.full_batches) return size;
    total = spipe_priv_total(p);
    if (total == SPIPE_AUTO) return position == SPIPE_AUTO ? 0 : size;
    if (total / size < position || position * size >= total) return 0;
    return total - position * size < size ? total - position * size : size;
}

SPIPE_PRIV_RARE size_t spipe_priv_count_of(const spipe_priv_pipeline_t *p, size_t batch) {
    return spipe_priv_count_at(p, spipe_priv_position(p, batch));
}

/* A batch on its way: where it lies in the whole, and its slot. */
typedef struct spipe_priv_at {
    size_t batch, position, first, count;
    spipe_priv_slot_t *slot;
} spipe_priv_at_t;

/* Finds a batch; returns its row of the program. */
SPIPE_PRIV_OFTEN size_t spipe_priv_locate(spipe_priv_pipeline_t *p, size_t batch,
                                          spipe_priv_at_t *at) {
    const size_t row = batch % p->program.num_rows, depth = p->plan.depth;
    at->batch = batch;
    at->position = spipe_priv_position(p, batch);
    at->first = at->position * p->run.batch_elems;
    at->count = spipe_priv_count_at(p, at->position);
    at->slot = &p->memory.slots[row < depth ? row : row - depth];
    return row;
}

/* What a stage sees of a batch, in a slot whose memory is known since it was laid out. */
SPIPE_PRIV_OFTEN void spipe_priv_view(spipe_priv_pipeline_t *p, const spipe_priv_at_t *at,
                                      spipe_chunk_t *c) {
    int i;
    c->index = at->position;
    c->first = at->first;
    c->count = at->count;
    c->total = spipe_priv_total(p);
    if (p->plan.schedule != SPIPE_ZERO_COPY) return;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        if (p->route.path[i] != SPIPE_PRIV_PATH_ZERO_COPY) continue;
        c->data[i] = p->request.arrays[i].mapped + c->first * p->request.desc.buffers[i].elem_bytes;
    }
}

SPIPE_PRIV_RARE void spipe_priv_notify(spipe_priv_pipeline_t *p, int what, const void *about,
                                       size_t batch, int after) {
    if (!p->watcher) return;
    p->watcher->notify(p->request.desc.timeline, p, what, about, batch, after);
}
