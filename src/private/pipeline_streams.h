/* ---- 4 execute: streams and events ---------------------------------------------------------
   Which stream carries a chunk's copies and stages; making the streams and events of a pipeline.
   Writes spipe_priv_streams_t. */
enum {
    SPIPE_PRIV_ON_IN,   /* copies in */
    SPIPE_PRIV_ON_OUT,  /* copies out */
    SPIPE_PRIV_ON_CHAIN /* plus the number of a chain of stages */
};

/* The stream of one kind of work, for the parity of a chunk's order. */
SPIPE_PRIV_RARE cudaStream_t spipe_priv_stream_for(const spipe_priv_pipeline_t *p, size_t order,
                                                   int on) {
    const int chain = on < SPIPE_PRIV_ON_CHAIN ? 0 : on - SPIPE_PRIV_ON_CHAIN;
    const cudaStream_t *streams = p->streams.streams;
    if (p->run.one_stream) return streams[0];
    if (on == SPIPE_PRIV_ON_OUT) return streams[on]; /* zero-copy: the ends of chunks */
    if (on == SPIPE_PRIV_ON_IN && !p->route.no_copies) return streams[on];
    return streams[2 + 2 * chain + (int)(order & 1)];
}

/* A small run may use cudaStreamPerThread, which saves 10 us, if all stages are replayable. (A
   stage that passes this handle to another thread would use that thread's stream.) */
SPIPE_PRIV_RARE int spipe_priv_may_borrow(const spipe_priv_pipeline_t *p) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const int direct = p->plan.staging == SPIPE_STAGING_DIRECT || p->plan.pageable_slots;
    int i;
    if (p->request.desc.resources) return 0;
    if (!direct || p->request.kept || !p->run.one_stream || p->request.desc.priority) return 0;
    for (i = 0; i < p->request.desc.num_stages; ++i) {
        if (!p->request.desc.stages[i].replayable) return 0;
    }
    return cudaStreamIsCapturing(cudaStreamPerThread, &status) == cudaSuccess &&
           status == cudaStreamCaptureStatusNone;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_new_stream(spipe_priv_pipeline_t *p, cudaStream_t *stream) {
    if (p->provider) return p->provider->stream(p, stream);
    return spipe_stream_create(stream, p->request.desc.priority);
}

/* Whether a slot may be filled again when its copies in have been issued: CUDA has read a pageable
   slot when the call returns, unless the GPU reads such memory by itself. */
SPIPE_PRIV_RARE int spipe_priv_read_at_once(const spipe_priv_pipeline_t *p) {
    return p->plan.pageable_slots && !p->request.facts.pageable_access && p->route.fills &&
           !p->route.until_done && !p->route.drains;
}

/* Whether host threads wait for more than the end of a run. */
SPIPE_PRIV_RARE int spipe_priv_threads_wait(const spipe_priv_pipeline_t *p) {
    int none = p->run.num_chunks <= 1 || spipe_priv_read_at_once(p);
    none = none && p->route.num_segments == 1 && !p->route.drains;
    return p->route.host_work && !none;
}

/* Whether more chunks may come than the plan has: in the next run of a kept pipeline, or in a run
   that several GPUs share. */
SPIPE_PRIV_RARE int spipe_priv_more_may_come(const spipe_priv_pipeline_t *p) {
    return p->request.kept || (p->request.desc.hooks && p->request.desc.hooks->next_chunk);
}

/* A run in one stream needs no event, because the stream says when all is done; unless host threads
   wait for more than that, or more chunks may come; or if this thread shall sleep. */
SPIPE_PRIV_RARE int spipe_priv_needs_events(const spipe_priv_pipeline_t *p) {
    return !p->run.one_stream || spipe_priv_threads_wait(p) || spipe_priv_more_may_come(p) ||
           p->request.desc.blocking;
}

/* How many events the plan's slots still lack. */
SPIPE_PRIV_RARE size_t spipe_priv_events_to_make(const spipe_priv_pipeline_t *p) {
    const size_t made = p->streams.num_slot_events, depth = p->plan.depth;
    unsigned stages;
    size_t each = 2;
    if (depth <= made || !spipe_priv_needs_events(p)) return 0;
    for (stages = p->route.awaited; stages; stages &= stages - 1) ++each;
    return (depth - made) * each;
}

/* Makes the streams that the plan needs and that do not exist yet. All have the pipeline's
   priority, which does not matter for copies. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_create_streams(spipe_priv_pipeline_t *p) {
    spipe_priv_streams_t *s = &p->streams;
    int total = 2 + 2 * p->route.num_chains;
    if (p->plan.schedule == SPIPE_SCHEDULE_SERIAL) total = 1;
    if (p->run.one_stream && !p->request.kept) total = 1;
    if (s->num == 0 && spipe_priv_may_borrow(p)) {
        s->streams[s->num++] = cudaStreamPerThread;
        s->first_owned = 1;
    }
    if (p->provider) p->provider->ahead(p, total - s->num, spipe_priv_events_to_make(p));
    for (; s->num < total; ++s->num) SPIPE_TRY(spipe_priv_new_stream(p, &s->streams[s->num]));
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_new_event(spipe_priv_pipeline_t *p, cudaEvent_t *event) {
    const int blocking = p->request.desc.blocking;
    SPIPE_TRY(p->provider ? p->provider->event(p, event) : spipe_priv_make_event(event, blocking));
    p->streams.events[p->streams.num_events++] = *event;
    return cudaSuccess;
}

/* Makes events for slots that have none yet. Slots keep theirs when the plan changes. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_create_slot_events(spipe_priv_pipeline_t *p) {
    spipe_priv_streams_t *s = &p->streams;
    int i;
    for (; s->num_slot_events < p->plan.depth; ++s->num_slot_events) {
        spipe_priv_slot_t *slot = &p->memory.slots[s->num_slot_events];
        SPIPE_TRY(spipe_priv_new_event(p, &slot->out_done));
        SPIPE_TRY(spipe_priv_new_event(p, &slot->in_done));
        for (i = 0; i < p->request.desc.num_stages; ++i) {
            if (!(p->route.awaited & SPIPE_BIT(i))) continue;
            SPIPE_TRY(spipe_priv_new_event(p, &slot->stage_done[i]));
        }
    }
    return cudaSuccess;
}

SPIPE_PRIV_RARE int spipe_priv_has_resident(const spipe_desc_t *d) {
    int i;
    for (i = 0; i < d->num_buffers; ++i) {
        if (spipe_priv_kind(d->buffers[i].kind)->once) return 1;
    }
    return 0;
}

/* How many checkpoint events are made. Making and destroying them takes time, so a one-shot run
   makes only those that it records. */
SPIPE_PRIV_RARE size_t spipe_priv_num_checkpoint_events(const spipe_priv_pipeline_t *p) {
    const int each = p->request.desc.progress != NULL;
    const size_t slots = p->request.kept ? SPIPE_MAX_DEPTH : p->plan.depth;
    const size_t most =
        each && slots > SPIPE_PRIV_CHECKPOINTS ? slots : (size_t)SPIPE_PRIV_CHECKPOINTS;
    const size_t recorded = p->run.num_chunks / SPIPE_PRIV_CHECKPOINT_EVERY;
    if (p->request.kept || p->request.desc.progress) return most;
    if (p->route.host_work) return 0;
    return recorded < most && !each ? recorded : most;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_create_events(spipe_priv_pipeline_t *p) {
    spipe_priv_streams_t *s = &p->streams;
    const size_t checkpoints = spipe_priv_num_checkpoint_events(p);
    size_t k;
    if (p->request.kept || p->request.desc.blocking ||
        (!p->run.one_stream && spipe_priv_has_resident(&p->request.desc))) {
        SPIPE_TRY(spipe_priv_new_event(p, &s->sync_event));
    }
    if (p->request.kept) SPIPE_TRY(spipe_priv_new_event(p, &s->end));
    for (k = 0; k < checkpoints; ++k) SPIPE_TRY(spipe_priv_new_event(p, &s->checkpoints[k]));
    return cudaSuccess;
}

/* Waits for a stream; asleep, if the description asks for that. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_sync_stream(const spipe_priv_pipeline_t *p,
                                                   cudaStream_t stream) {
    if (!p->request.desc.blocking || !p->streams.sync_event) return cudaStreamSynchronize(stream);
    SPIPE_TRY(cudaEventRecord(p->streams.sync_event, stream));
    return cudaEventSynchronize(p->streams.sync_event);
}

SPIPE_PRIV_RARE void spipe_priv_sync_streams(const spipe_priv_streams_t *s, cudaError_t *e) {
    int i;
    for (i = 0; i < s->num; ++i) spipe_priv_keep_error(e, cudaStreamSynchronize(s->streams[i]));
}

/* Destroys streams and events, or gives them back. */
SPIPE_PRIV_RARE void spipe_priv_end_streams(spipe_priv_pipeline_t *p, cudaError_t *e) {
    const spipe_priv_streams_t *s = &p->streams;
    int i;
    if (p->provider) {
        p->provider->end_streams(p, e);
        return;
    }
    for (i = 0; i < s->num_events; ++i) spipe_priv_keep_error(e, cudaEventDestroy(s->events[i]));
    for (i = s->first_owned; i < s->num; ++i) {
        spipe_priv_keep_error(e, cudaStreamDestroy(s->streams[i]));
    }
}
