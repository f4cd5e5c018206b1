/* ---- 4 execute: in a stream's order --------------------------------------------------------
   A run that is enqueued, or captured into a graph: the host does not wait, so it counts nothing.
   */

/* Puts a run into streams that start after stream and end before what follows on it. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_enqueue_run(spipe_priv_pipeline_t *p, cudaStream_t stream) {
    spipe_priv_run_t *run = &p->run;
    cudaError_t e = cudaSuccess, synced = cudaSuccess;
    if (run->mode == SPIPE_PRIV_ENQUEUED && run->running_enqueued) {
        e = cudaStreamWaitEvent(stream, p->streams.end, 0);
    }
    if (e == cudaSuccess) e = spipe_priv_move_resident(p, 0, stream);
    if (e == cudaSuccess) e = spipe_priv_fork(&p->streams, stream);
    spipe_priv_open(p);
    if (e == cudaSuccess) e = spipe_priv_issue_all(p);
    spipe_priv_keep_error(&e, spipe_priv_join(&p->streams, stream));
    if (e == cudaSuccess) e = spipe_priv_move_resident(p, 1, stream);
    if (run->mode == SPIPE_PRIV_CAPTURED) return e;
    if (e == cudaSuccess) e = cudaEventRecord(p->streams.end, stream);
    if (e == cudaSuccess)
        run->running_enqueued = 1;
    else
        spipe_priv_sync_streams(&p->streams, &synced);
    return e;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_capture_into(spipe_priv_pipeline_t *p, cudaGraph_t *graph) {
    const cudaStream_t base = p->streams.streams[0];
    cudaError_t e;
    SPIPE_TRY(cudaStreamBeginCapture(base, cudaStreamCaptureModeThreadLocal));
    p->run.mode = SPIPE_PRIV_CAPTURED;
    e = spipe_priv_enqueue_run(p, base);
    p->run.mode = SPIPE_PRIV_WAITED_FOR;
    spipe_priv_keep_error(&e, cudaStreamEndCapture(base, graph));
    return e;
}

/* Replays a run that was captured. */
SPIPE_PRIV_RARE void spipe_priv_run_graph(spipe_priv_pipeline_t *p) {
    const cudaStream_t base = p->streams.streams[0];
    cudaError_t e = spipe_priv_follow_default(p), again = cudaSuccess;
    if (e == cudaSuccess) e = cudaGraphLaunch(p->program.replay.graph, base);
    if (e == cudaSuccess) e = spipe_priv_sync_stream(p, base);
    if (e == cudaSuccess) {
        memcpy(p->run.moved, p->program.replay.graph_moved, sizeof p->run.moved);
        p->run.at.completed = p->run.num_chunks;
        return;
    }
    spipe_priv_sync_streams(&p->streams, &again); /* it may be under way */
    (void)cudaGetLastError();
    (void)spipe_priv_fail(p, NULL, e, -1, SPIPE_AUTO,
                          "the GPU reported an error in a replayed run: %s; set checked to learn "
                          "which stage",
                          cudaGetErrorString(e));
}

SPIPE_PRIV_RARE void spipe_priv_capture_run(spipe_priv_pipeline_t *p) {
    spipe_priv_replay_t *t = &p->program.replay;
    const spipe_failure_t failure = p->failure; /* the last run's, not the capture's */
    const size_t completed = p->run.at.completed;
    cudaGraph_t graph = NULL;
    cudaError_t e = spipe_priv_drop_graph(t);
    spipe_priv_begin(p);
    if (e == cudaSuccess) e = spipe_priv_capture_into(p, &graph);
    if (e == cudaSuccess) e = cudaGraphInstantiateWithFlags(&t->graph, graph, 0);
    if (e == cudaSuccess) e = cudaGraphUpload(t->graph, p->streams.streams[0]);
    if (graph) (void)cudaGraphDestroy(graph);
    memcpy(t->graph_moved, p->run.moved, sizeof p->run.moved);
    t->graph_chunk = p->plan.chunk;
    p->run.at.completed = completed;
    p->failure = failure;
    t->run_graph = spipe_priv_run_graph;
    if (e == cudaSuccess) return;
    (void)cudaGetLastError();
    (void)spipe_priv_drop_graph(t);
    t->graph_failed = 1;
}

/* Whether a failure is still to be told: by wait, or at the end of a loop, which a worker may be
   recording just now. */
SPIPE_PRIV_RARE int spipe_priv_owes_failure(const spipe_priv_pipeline_t *p) {
    return p->run.failed && (p->pull.active || p->run.ran_now);
}

/* Refuses a call with a sentence, in the report and as the pipeline's failure. p NULL: it is none,
   or another call has it; or its failure has the sentence already. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_refuse_call(spipe_priv_pipeline_t *p, spipe_report_t *report,
                                                   cudaError_t e, const char *why) {
    if (p) {
        spipe_priv_lock(p->sync);
        if (!spipe_priv_owes_failure(p)) (void)spipe_priv_refuse(&p->failure, e, "%s", why);
        spipe_priv_unlock(p->sync);
    }
    if (!report) return e;
    memset(report, 0, sizeof *report);
    return spipe_priv_refuse(&report->failure, e, "%s", why);
}

/* Completes the failure of a call that began nothing: one that has a sentence keeps it. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_call_failed(spipe_priv_pipeline_t *p, cudaError_t e,
                                                   const char *what) {
    if (e == cudaSuccess || p->failure.error != cudaSuccess) return e;
    return spipe_priv_refuse(&p->failure, e, "%s failed: %s", what, cudaGetErrorString(e));
}

/* Every call on a pipeline begins with this or with claim, and ends with let_go, so that there is
   only one call at a time, on whatever thread. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_claim_any(spipe_priv_pipeline_t *p, spipe_report_t *report) {
    cudaError_t e;
    if (!p) {
        return spipe_priv_refuse_call(NULL, report, cudaErrorInvalidResourceHandle,
                                      "the pipeline is NULL; make one with spipe_pipeline_create");
    }
    e = spipe_priv_begin_call_on(&p->owner, p, 1);
    if (e == SPIPE_PRIV_FORKED) {
        return spipe_priv_refuse_call(NULL, report, e, SPIPE_PRIV_FORKED_WORDS("pipeline was"));
    }
    if (e == cudaSuccess) {
        p->visit = spipe_priv_arrive(cudaStreamCaptureModeThreadLocal);
        return e;
    }
    return spipe_priv_refuse_call(NULL, report, cudaErrorNotPermitted,
                                  "the pipeline is in use by another thread, or by the run whose "
                                  "stage called; make a pipeline for each thread");
}

SPIPE_PRIV_RARE void spipe_priv_let_go(spipe_priv_pipeline_t *p) {
    spipe_priv_depart(&p->visit);
    spipe_priv_end_call_on(&p->owner, 1);
}

/* The same, for calls that are refused while the caller takes chunks. From here on the pipeline's
   failure is this call's, but for one that is still to be told. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_claim(spipe_priv_pipeline_t *p, spipe_report_t *report) {
    cudaError_t e = cudaSuccess;
    SPIPE_TRY(spipe_priv_claim_any(p, report));
    if (!p->pull.active && !spipe_priv_owes_failure(p)) spipe_priv_failure_clear(&p->failure);
    if (!p->pull.active) return e;
    e = spipe_priv_refuse_call(
        p, report, cudaErrorNotPermitted,
        "chunks of the pipeline are being taken with spipe_pipeline_next; take the "
        "last one, or end with spipe_pipeline_end");
    spipe_priv_let_go(p);
    return e;
}

/* The same at the end of a call that may throw on what a function of the user's threw. */
SPIPE_PRIV_RARE void spipe_priv_let_go_throwing(spipe_priv_pipeline_t *p) {
    void *thrown = p->thrown;
    p->thrown = NULL;
    spipe_priv_let_go(p);
    spipe_priv_rethrow(&thrown);
}

/* Makes the pipeline's device current. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_enter_device(spipe_priv_pipeline_t *p, int *before,
                                                    spipe_report_t *report) {
    const cudaError_t e = spipe_priv_use_device(p->request.device, before);
    if (e == cudaSuccess) return e;
    return spipe_priv_refuse_call(p, report, e,
                                  "the device of the pipeline cannot be made the current one");
}

/* The same; refuses a pipeline that cannot run. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_enter(spipe_priv_pipeline_t *p, int *before,
                                             spipe_report_t *report) {
    *before = p->request.device;
    if (!p->request.incomplete) return spipe_priv_enter_device(p, before, report);
    return spipe_priv_refuse_call(p, report, cudaErrorInvalidResourceHandle,
                                  "an array could not be set; set it again");
}

/* The same before a run, where its arrays may have been set since the last. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_enter_run(spipe_priv_pipeline_t *p, int *before,
                                                 spipe_report_t *report) {
    cudaError_t e = cudaSuccess;
    SPIPE_TRY(spipe_priv_enter(p, before, report));
    if (p->request.arrays_known) return e;
    e = spipe_priv_check_arrays(&p->request.desc, &p->failure);
    p->request.arrays_known = e == cudaSuccess;
    if (e == cudaSuccess) return e;
    (void)cudaSetDevice(*before);
    return spipe_priv_refuse_call(NULL, report, e, p->failure.message);
}

/* Runs at once, after waiting for the stream, if host threads have work to do, if arrays are pinned
   for the run, or if CUDA copies pageable memory, which it may read during the call. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_run_now(spipe_priv_pipeline_t *p, cudaStream_t stream) {
    if (p->run.mode == SPIPE_PRIV_CAPTURED) {
        return spipe_priv_refuse(&p->failure, cudaErrorStreamCaptureUnsupported,
                                 "a captured run takes pinned arrays only; no sources, sinks or "
                                 "host stages, and no zero-copy that is checked");
    }
    if (p->run.ran_now && p->run.failed) return p->failure.error; /* until wait has reported it */
    if (p->run.running_enqueued) SPIPE_TRY(cudaEventSynchronize(p->streams.end));
    SPIPE_TRY(cudaStreamSynchronize(stream));
    p->run.mode = SPIPE_PRIV_WAITED_FOR;
    p->run.ran_now = 1;
    SPIPE_TRY(spipe_priv_choose_setting(p));
    return spipe_priv_run_plan(p);
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_run_later(spipe_priv_pipeline_t *p, cudaStream_t stream) {
    spipe_priv_run_t *run = &p->run;
    cudaError_t e;
    if (!run->running_enqueued) spipe_priv_begin(p);
    e = spipe_priv_enqueue_run(p, stream);
    if (e == cudaSuccess) return e;
    if (run->mode == SPIPE_PRIV_ENQUEUED) run->ran_now = 1; /* so that wait reports it */
    return spipe_priv_fail(p, NULL, e, -1, SPIPE_AUTO, "enqueuing failed: %s",
                           cudaGetErrorString(e));
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_enqueue(spipe_priv_pipeline_t *p, cudaStream_t stream) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    int before;
    cudaError_t e;
    SPIPE_TRY(spipe_priv_check_stages(&p->request.desc, &p->failure));
    SPIPE_TRY(spipe_priv_enter_run(p, &before, NULL));
    e = spipe_priv_pick_up(p);
    if (p->lent.entered && !p->lent.stays && p->provider)
        p->provider->stay(p); /* a graph of it may run later */
    if (e == cudaSuccess) e = cudaStreamIsCapturing(stream, &status); /* 0 may be the thread's */
    p->run.mode = status == cudaStreamCaptureStatusNone ? SPIPE_PRIV_ENQUEUED : SPIPE_PRIV_CAPTURED;
    if (e == cudaSuccess &&
        (p->route.blocks || p->route.host_work || spipe_priv_registers(&p->request)))
        e = spipe_priv_run_now(p, stream);
    else if (e == cudaSuccess)
        e = spipe_priv_run_later(p, stream);
    (void)spipe_priv_unregister(&p->request);
    p->run.mode = SPIPE_PRIV_WAITED_FOR;
    (void)cudaSetDevice(before);
    return spipe_priv_call_failed(p, e, "enqueuing");
}

SPIPE_API cudaError_t spipe_pipeline_enqueue(spipe_pipeline_t *pipeline, cudaStream_t stream) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)(void *)pipeline;
    cudaError_t e;
    SPIPE_TRY(spipe_priv_claim(p, NULL));
    e = spipe_priv_enqueue(p, stream);
    spipe_priv_let_go_throwing(p);
    return e;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_wait_enqueued(spipe_priv_pipeline_t *p,
                                                     spipe_report_t *report) {
    spipe_priv_run_t *run;
    int before;
    cudaError_t e = cudaSuccess;
    SPIPE_TRY(spipe_priv_enter(p, &before, report));
    run = &p->run;
    if (!spipe_priv_owes_failure(p)) spipe_priv_failure_clear(&p->failure);
    if (run->running_enqueued) e = cudaEventSynchronize(p->streams.end);
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        (void)spipe_priv_fail(p, NULL, e, -1, SPIPE_AUTO,
                              "the GPU reported an error in an enqueued run: %s; set checked to "
                              "learn which stage",
                              cudaGetErrorString(e));
    }
    if (run->running_enqueued && !run->failed) run->at.completed = run->num_chunks;
    p->failure.chunks_whole = run->at.completed;
    run->running_enqueued = run->ran_now = 0;
    e = p->failure.error;
    spipe_priv_report(p, report);
    (void)cudaSetDevice(before);
    return e;
}

SPIPE_API cudaError_t spipe_pipeline_wait(spipe_pipeline_t *pipeline, spipe_report_t *report) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)(void *)pipeline;
    cudaError_t e;
    SPIPE_TRY(spipe_priv_claim(p, report));
    e = spipe_priv_wait_enqueued(p, report);
    spipe_priv_let_go(p);
    return e;
}
