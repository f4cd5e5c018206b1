/* ---- 4 execute: failures -------------------------------------------------------------------
   The failure of a run, for any thread to record; and what a stage sees of its chunk. */

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

/* Chunks from this one on are not worked on. Called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_end_at(spipe_priv_pipeline_t *p, size_t chunk) {
    if (chunk < p->run.limit) SPIPE_PRIV_STORE(p->run.limit, chunk);
    if (!p->run.shared && chunk < p->run.at.end) SPIPE_PRIV_STORE(p->run.at.end, chunk);
    if (p->run.states) spipe_priv_model_cut(p, p->run.at.next);
    spipe_priv_tell(p);
}

/* A source or sink that was told to stop gives nothing for a chunk. If the run has failed, it has
   failed at this chunk, too, for the reason that is known. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_cut(spipe_priv_pipeline_t *p, spipe_priv_note_t *note,
                                           size_t chunk) {
    spipe_priv_lock(p->sync);
    if (p->run.failed) spipe_priv_end_at(p, chunk);
    spipe_priv_unlock(p->sync);
    spipe_priv_drop_thrown(&note->thrown);
    return SPIPE_STOPPED;
}

/* Records a failure: chunks from this one on are not worked on, those before are finished. If
   several fail, the one at the earliest chunk is reported, with its exception; other exceptions are
   freed. note: a user's function's, or NULL. Returns e. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_fail(spipe_priv_pipeline_t *p, spipe_priv_note_t *note,
                                            cudaError_t e, int stage, size_t chunk,
                                            const char *format, ...) {
    void *dropped = NULL;
    if (note && spipe_priv_own_error(e)) e = cudaErrorUnknown; /* those are the library's */
    spipe_priv_lock(p->sync);
    if (!p->run.failed || (chunk < p->failure.chunk && !p->run.at.broken)) {
        va_list args;
        if (p->run.failed || (note && note->thrown)) {
            dropped = p->thrown;
            p->thrown = note ? note->thrown : NULL;
            if (note) note->thrown = NULL;
        }
        SPIPE_PRIV_STORE(p->run.failed, 1);
        spipe_priv_failure_clear(&p->failure);
        p->failure.error = e;
        p->failure.stage = stage;
        p->failure.chunk = chunk;
        va_start(args, format);
        spipe_priv_say(&p->failure, format, args);
        va_end(args);
    }
    spipe_priv_end_at(p, chunk);
    spipe_priv_unlock(p->sync);
    spipe_priv_drop_thrown(&dropped);
    if (note) spipe_priv_drop_thrown(&note->thrown);
    spipe_priv_stop_calls(p);
    return e;
}

SPIPE_PRIV_RARE void spipe_priv_set(spipe_priv_pipeline_t *p, size_t *to, size_t value) {
    spipe_priv_lock(p->sync);
    SPIPE_PRIV_STORE(*to, value);
    spipe_priv_tell(p);
    spipe_priv_unlock(p->sync);
}

/* Whether a slot's chunk may be on the device: not if it is known to have left it. */
SPIPE_PRIV_RARE int spipe_priv_may_be_there(const spipe_priv_pipeline_t *p,
                                            const spipe_priv_slot_t *s) {
    const size_t issued = p->run.at.issued, depth = p->plan.depth;
    if (!p->run.states) { /* also while its operations are issued */
        if (s->order >= issued || s->order + depth < issued) return 0;
        return s->order >= p->run.at.completed && s == &p->memory.slots[s->order % depth];
    }
    if (s->state == SPIPE_PRIV_FILLED && s->segment == 0) return p->run.at.issuing;
    return s->state >= SPIPE_PRIV_FILLED && s->state <= SPIPE_PRIV_ON_DEVICE;
}

/* The first chunk that may be on the device, and the one behind the last. */
SPIPE_PRIV_RARE void spipe_priv_on_the_way(spipe_priv_pipeline_t *p, size_t *first, size_t *after) {
    size_t k;
    *first = SPIPE_AUTO;
    *after = 0;
    spipe_priv_lock(p->sync);
    if (!p->run.shared) *first = p->run.states ? p->run.at.next : p->run.at.completed;
    for (k = 0; k < p->plan.depth; ++k) {
        const spipe_priv_slot_t *s = &p->memory.slots[k];
        const size_t last = s->before != SPIPE_AUTO && s->before + 1 > *after ? s->before + 1 : 0;
        if (s->before < *first) *first = s->before;
        if (last > 0) *after = last;
        if (!spipe_priv_may_be_there(p, s)) continue;
        if (s->chunk < *first) *first = s->chunk;
        if (s->chunk + 1 > *after) *after = s->chunk + 1;
    }
    if (*first == SPIPE_AUTO) *first = 0;
    if (*after <= *first) *after = *first + 1;
    spipe_priv_unlock(p->sync);
}

/* Records an error of the GPU, which does not say in which chunk it happened. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_fail_between(spipe_priv_pipeline_t *p, cudaError_t e) {
    size_t first, after;
    spipe_priv_on_the_way(p, &first, &after);
    return spipe_priv_fail(p, NULL, e, -1, first,
                           "the GPU reported an error in one of the chunks %zu to %zu (a checked "
                           "run tells which stage): %s",
                           first, after - 1, cudaGetErrorString(e));
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
                                                  int stage, size_t chunk, const char *what) {
    size_t first, after;
    int stays;
    if (e == cudaSuccess) return e;
    (void)spipe_priv_take_error(e);
    stays = spipe_priv_stays(p, e);
    if (stays && !p->request.desc.checked) return spipe_priv_fail_between(p, e);
    if (stage < 0) {
        e = spipe_priv_fail(p, NULL, e, stage, chunk, "%s failed at chunk %zu: %s", what, chunk,
                            cudaGetErrorString(e));
    } else {
        e = spipe_priv_fail(p, NULL, e, stage, chunk, "%s%s' failed at chunk %zu: %s",
                            what ? what : "stage '", p->request.desc.stages[stage].name, chunk,
                            cudaGetErrorString(e));
    }
    if (!stays) return e;
    spipe_priv_on_the_way(p, &first, &after);
    spipe_priv_lock(p->sync); /* every call fails from now on, at whatever chunk */
    p->run.at.broken = 1;
    spipe_priv_end_at(p, first);
    spipe_priv_unlock(p->sync);
    return e;
}

/* A chunk on its way: where it lies in the whole, and its slot. */
typedef struct spipe_priv_at {
    size_t chunk, first, count;
    spipe_priv_slot_t *slot;
} spipe_priv_at_t;

SPIPE_PRIV_OFTEN void spipe_priv_locate(const spipe_priv_pipeline_t *p, spipe_priv_slot_t *slot,
                                        spipe_priv_at_t *at) {
    at->slot = slot;
    at->chunk = slot->chunk;
    at->first = at->chunk * p->plan.chunk;
    at->count = spipe_priv_count_of(p, at->chunk);
}

/* What a stage sees of a chunk, in a slot whose memory is known since it was laid out. */
SPIPE_PRIV_OFTEN void spipe_priv_view(spipe_priv_pipeline_t *p, const spipe_priv_at_t *at,
                                      spipe_chunk_t *c) {
    int i;
    c->index = at->chunk;
    c->first = at->first;
    c->count = at->count;
    c->total = spipe_priv_total(p);
    if (p->plan.schedule != SPIPE_SCHEDULE_ZERO_COPY) return;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        if (p->route.path[i] != SPIPE_PRIV_PATH_ZERO_COPY) continue;
        c->data[i] = p->request.arrays[i].mapped + c->first * p->request.desc.buffers[i].elem_bytes;
    }
}

/* about: an operation or a task of this slot; slot NULL: the run. */
SPIPE_PRIV_RARE void spipe_priv_notify(spipe_priv_pipeline_t *p, int what, const void *about,
                                       const spipe_priv_slot_t *slot, int after) {
    if (!p->watcher) return;
    p->watcher->notify(p->request.desc.timeline, p, what, about, slot, after);
}
