/* ---- 4 execute: chunk by chunk --------------------------------------------------------------
   A run whose chunks the caller takes, and works on in a stream of its own. Writes
   spipe_priv_pull_t. */

SPIPE_PRIV_RARE cudaError_t spipe_priv_pull_begin(spipe_priv_pipeline_t *p) {
    cudaError_t e;
    memset(&p->pull, 0, sizeof p->pull);
    spipe_priv_failure_clear(&p->failure);
    e = spipe_priv_pick_up(p);
    if (e == cudaSuccess) e = spipe_priv_choose_setting(p);
    if (e == cudaSuccess) e = spipe_priv_begin_run(p);
    if (e != cudaSuccess) {
        spipe_priv_check_out(p);
        return spipe_priv_call_failed(p, e, "setting up");
    }
    spipe_priv_lock(p->sync);
    p->pull.active = 1;
    spipe_priv_unlock(p->sync);
    return spipe_priv_start_streams(p);
}

/* Ends what is under way; the failure and the report then say what happened. */
SPIPE_PRIV_RARE void spipe_priv_pull_end(spipe_priv_pipeline_t *p) {
    cudaError_t e = cudaSuccess;
    int early;
    spipe_priv_lock(p->sync); /* a worker may be recording a failure */
    if (!p->run.failed) spipe_priv_failure_clear(&p->failure); /* from a refused call */
    early = p->pull.active && p->pull.released < p->run.num_chunks;
    if (early) spipe_priv_end_at(p, p->pull.released); /* no more slots are filled */
    spipe_priv_unlock(p->sync);
    if (!p->pull.active) {
        p->failure.chunks_whole = p->run.at.completed;
        return;
    }
    if (early && !p->run.failed) spipe_priv_stop_calls(p);
    if (p->run.states) spipe_priv_work_off(p);
    spipe_priv_let_end(p);
    if (p->pull.released < p->pull.issued) spipe_priv_sync_streams(&p->streams, &e);
    spipe_priv_lock(p->sync); /* workers of kept pipelines live on */
    p->pull.active = 0;
    spipe_priv_unlock(p->sync);
    if (p->pull.released < p->pull.taken && (p->provider || spipe_priv_registers(&p->request))) {
        spipe_priv_keep_error(&e, cudaDeviceSynchronize()); /* the caller's work on that memory */
    }
    spipe_priv_finish(p);
    p->report.wall_ms = 1e3 * (spipe_priv_clock() - p->run.began);
    p->report.replayed = 0;
    spipe_priv_check_out(p);
}

/* The run's error where it has failed at this chunk or before it. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_pull_error(spipe_priv_pipeline_t *p, size_t chunk) {
    cudaError_t e;
    spipe_priv_lock(p->sync);
    e = spipe_priv_is_lost(p, chunk) ? p->failure.error : cudaSuccess;
    spipe_priv_unlock(p->sync);
    return e;
}

/* A number of chunks that a worker may lower. */
SPIPE_PRIV_RARE size_t spipe_priv_pull_bound(spipe_priv_pipeline_t *p, const size_t *of) {
    size_t bound;
    spipe_priv_lock(p->sync);
    bound = *of;
    spipe_priv_unlock(p->sync);
    return bound;
}

/* Whether the next chunk's slot is filled by a modelled clock, if there is one. */
SPIPE_PRIV_RARE int spipe_priv_pull_filled(spipe_priv_pipeline_t *p) {
    int filled = 1;
    while (p->route.fills && !spipe_priv_is_lost(p, p->pull.issued)) {
        filled = spipe_priv_model_filled(p, p->pull.issued);
        if (filled >= 0) break;
        spipe_priv_lock(p->sync); /* it is known when the slot has really been filled */
        filled = spipe_priv_do_one(p, &p->workers.caller);
        spipe_priv_unlock(p->sync);
        if (!filled) spipe_priv_nap(SPIPE_PRIV_NAP_US); /* the model has no patience for ever */
    }
    return filled;
}

/* With states: issues the copies in of the next chunk; waits until its slot is filled, or (waits =
   0) returns 0 if it is not. */
SPIPE_PRIV_RARE int spipe_priv_pull_issue(spipe_priv_pipeline_t *p, int waits) {
    spipe_priv_hand_t *h = &p->workers.caller;
    const size_t next = p->pull.issued;
    spipe_priv_lock(p->sync);
    while (spipe_priv_look_anew(p, h)) {
        spipe_priv_slot_t *s = spipe_priv_issuable(p);
        if (s) {
            spipe_priv_have_role(p, h, s);
            break;
        }
        if (!waits || spipe_priv_is_lost(p, next)) break;
        if (!spipe_priv_has_next(p) && p->run.at.busy == 0) break;
        spipe_priv_callers_turn(p);
        if (!spipe_priv_do_one(p, h)) spipe_priv_rest(p, h);
    }
    spipe_priv_count_idle(p, h, 0);
    p->pull.issued = p->run.at.issued;
    spipe_priv_unlock(p->sync);
    return p->pull.issued > next;
}

/* Issues the copies in of the following chunks, as long as slots are free and filled. A model has
   to wait until a slot has really been filled: there only of those that others had time for. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_pull_ahead(spipe_priv_pipeline_t *p) {
    spipe_priv_pull_t *pull = &p->pull;
    const int waits = p->run.states && p->run.in_turn;
    const size_t ahead = waits ? (p->plan.depth + 1) / 2 : p->plan.depth;
    while (pull->issued < pull->released + ahead &&
           pull->issued < spipe_priv_pull_bound(p, &p->run.at.end)) {
        if (!p->run.states)
            SPIPE_TRY(spipe_priv_issue_steps(p, 0, p->route.num_steps - 1, pull->issued++));
        else if (!spipe_priv_pull_filled(p) || !spipe_priv_pull_issue(p, 0))
            break;
    }
    return cudaSuccess;
}

/* The slot of a chunk that is held. */
SPIPE_PRIV_RARE spipe_priv_slot_t *spipe_priv_held(spipe_priv_pipeline_t *p, size_t chunk) {
    spipe_priv_slot_t *s = &p->memory.slots[chunk % p->plan.depth];
    if (!p->run.states) return s;
    spipe_priv_lock(p->sync);
    for (s = p->memory.slots; s->chunk != chunk || s->state != SPIPE_PRIV_ON_HOST;) ++s;
    spipe_priv_unlock(p->sync);
    return s;
}

/* A stream waits for a chunk's copies in. One stream has only one chunk under way. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_pull_wait(spipe_priv_pipeline_t *p,
                                                 const spipe_priv_slot_t *slot,
                                                 cudaStream_t stream) {
    cudaEvent_t event = slot->in_done;
    if (p->run.one_stream) {
        event = p->streams.sync_event;
        SPIPE_TRY(cudaEventRecord(event, p->streams.streams[0]));
    }
    return cudaStreamWaitEvent(stream, event, 0);
}

/* Issues the copies in of the next chunk, which may be found to be none. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_pull_fetch(spipe_priv_pipeline_t *p) {
    spipe_priv_pull_t *pull = &p->pull;
    if (!pull->active) SPIPE_TRY(spipe_priv_pull_begin(p));
    if (pull->issued > pull->taken || pull->taken - pull->released >= p->plan.depth) {
        return spipe_priv_pull_error(p, pull->taken);
    }
    if (p->run.states)
        (void)spipe_priv_pull_issue(p, 1);
    else if (pull->taken < p->run.at.end)
        SPIPE_TRY(spipe_priv_issue_steps(p, 0, p->route.num_steps - 1, pull->issued++));
    return spipe_priv_pull_error(p, pull->taken);
}

/* Gives the next chunk to the caller, or ends the run. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_pull_give(spipe_priv_pipeline_t *p, cudaStream_t stream,
                                                 spipe_chunk_t *chunk) {
    spipe_priv_pull_t *pull = &p->pull;
    spipe_priv_at_t at;
    if (!chunk || pull->taken >= pull->issued) {
        spipe_priv_pull_end(p);
        return p->failure.error;
    }
    SPIPE_TRY(spipe_priv_pull_ahead(p));
    spipe_priv_locate(p, spipe_priv_held(p, pull->taken), &at);
    SPIPE_TRY(spipe_priv_pull_wait(p, at.slot, stream));
    spipe_priv_view(p, &at, &at.slot->view);
    *chunk = at.slot->view;
    chunk->stream = stream;
    chunk->note = NULL;
    ++pull->taken;
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_pull_release(spipe_priv_pipeline_t *p, cudaStream_t stream) {
    const int last = p->route.num_steps;
    const size_t chunk = p->pull.released;
    spipe_priv_slot_t *slot = spipe_priv_held(p, chunk);
    const cudaStream_t out = spipe_priv_stream_for(p, slot->order, SPIPE_PRIV_ON_OUT);
    SPIPE_TRY(cudaEventRecord(p->streams.sync_event, stream));
    SPIPE_TRY(cudaStreamWaitEvent(out, p->streams.sync_event, 0));
    if (p->run.states) {
        spipe_priv_lock(p->sync);
        slot->waits = 0;
        spipe_priv_have_role(p, &p->workers.caller, slot);
        spipe_priv_unlock(p->sync);
        ++p->pull.released;
        SPIPE_TRY(spipe_priv_pull_error(p, chunk));
    } else {
        SPIPE_TRY(spipe_priv_issue_steps(p, last - 1, last, chunk));
        ++p->pull.released;
    }
    return spipe_priv_pull_ahead(p);
}

/* After an error: the run ends, and its failure has a sentence. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_pull_failed(spipe_priv_pipeline_t *p, cudaError_t e) {
    if (e == cudaSuccess || !p->pull.active) return e;
    if (!SPIPE_PRIV_LOAD(p->run.failed)) {
        (void)spipe_priv_fail(p, NULL, e, -1, p->pull.taken, "taking chunk %zu failed: %s",
                              p->pull.taken, cudaGetErrorString(e));
    }
    spipe_priv_pull_end(p);
    return p->failure.error;
}

/* Whether chunks may be taken from this pipeline now. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_pull_check(spipe_priv_pipeline_t *p, const void *chunk) {
    const size_t held = p->pull.taken - p->pull.released;
    if (p->request.desc.num_stages > 0) {
        return spipe_priv_refuse_call(
            p, NULL, cudaErrorInvalidValue,
            "the pipeline has stages, so run it; spipe_pipeline_next is for one "
            "without");
    }
    if (!chunk)
        return spipe_priv_refuse_call(p, NULL, cudaErrorInvalidValue,
                                      "there is no chunk to write to");
    if (!p->pull.active || held == 0) return cudaSuccess;
    if (held < p->plan.depth && p->pull.taken < spipe_priv_pull_bound(p, &p->run.num_chunks)) {
        return cudaSuccess;
    }
    return spipe_priv_refuse_call(p, NULL, SPIPE_ALL_HELD,
                                  "chunks that were taken are held; release them first");
}

/* Ends a call. An exception that a source threw for a chunk that the caller has not got yet is
   kept, and thrown when the run ends. */
SPIPE_PRIV_RARE void spipe_priv_pull_let_go(spipe_priv_pipeline_t *p) {
    if (p->pull.active)
        spipe_priv_let_go(p);
    else
        spipe_priv_let_go_throwing(p);
}

SPIPE_API cudaError_t spipe_pipeline_next(spipe_pipeline_t *pipeline, cudaStream_t stream,
                                          spipe_chunk_t *chunk) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)(void *)pipeline;
    cudaError_t e;
    int before = 0;
    if (chunk) memset((void *)chunk, 0, sizeof *chunk);
    SPIPE_TRY(spipe_priv_claim_any(p, NULL));
    e = spipe_priv_pull_check(p, chunk);
    if (e == cudaSuccess) e = spipe_priv_enter_run(p, &before, NULL);
    if (e == cudaSuccess) {
        e = spipe_priv_pull_failed(p, spipe_priv_pull_fetch(p));
        if (e == cudaSuccess) e = spipe_priv_pull_check(p, chunk); /* it may be the end */
        if (e == cudaSuccess) e = spipe_priv_pull_failed(p, spipe_priv_pull_give(p, stream, chunk));
        (void)cudaSetDevice(before);
    }
    spipe_priv_pull_let_go(p);
    return e;
}

SPIPE_API cudaError_t spipe_pipeline_release(spipe_pipeline_t *pipeline, cudaStream_t stream) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)(void *)pipeline;
    cudaError_t e;
    int before = 0;
    SPIPE_TRY(spipe_priv_claim_any(p, NULL));
    if (!p->pull.active || p->pull.released == p->pull.taken) {
        e = spipe_priv_refuse_call(p, NULL, cudaErrorNotPermitted,
                                   "no chunk is held; take one with spipe_pipeline_next first");
    } else {
        e = spipe_priv_enter(p, &before, NULL);
        if (e == cudaSuccess) {
            e = spipe_priv_pull_failed(p, spipe_priv_pull_release(p, stream));
            (void)cudaSetDevice(before);
        }
    }
    spipe_priv_pull_let_go(p);
    return e;
}

SPIPE_API cudaError_t spipe_pipeline_end(spipe_pipeline_t *pipeline, spipe_report_t *report) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)(void *)pipeline;
    cudaError_t e;
    int before = 0;
    SPIPE_TRY(spipe_priv_claim_any(p, report));
    e = spipe_priv_enter(p, &before, report);
    if (e == cudaSuccess) {
        spipe_priv_pull_end(p);
        e = p->failure.error;
        spipe_priv_report(p, report);
        (void)cudaSetDevice(before);
    }
    spipe_priv_pull_let_go(p);
    return e;
}
