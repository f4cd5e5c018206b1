/* ---- 4 execute: pipelines ------------------------------------------------------------------
   Making a pipeline from a description, running it, changing its arrays and length, freeing it. */

SPIPE_PRIV_RARE cudaError_t spipe_priv_free(spipe_priv_pipeline_t *p) {
    cudaError_t e = cudaSuccess;
    int before = 0;
    const int known = spipe_priv_use_device(p->request.device, &before) == cudaSuccess;
    if (p->run.failed || p->request.kept) spipe_priv_sync_streams(&p->streams, &e);
    spipe_priv_stop_workers(p);
    spipe_priv_keep_error(&e, spipe_priv_drop_graph(&p->program.replay));
    spipe_priv_keep_error(&e, spipe_priv_free_arenas(p)); /* then streams end faster */
    spipe_priv_end_streams(p, &e);
    p->lent.stays = 0;
    spipe_priv_keep_error(&e, spipe_priv_unregister(&p->request));
    spipe_priv_check_out(p);
    free((void *)p->program.ops);
    if (p->memory.slots != &p->memory.single) free((void *)p->memory.slots);
    spipe_priv_sync_destroy(p->sync);
    if (known && before != p->request.device) (void)cudaSetDevice(before);
    return e;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_set_up(spipe_priv_pipeline_t *p, const spipe_desc_t *d,
                                              int kept) {
    p->provider = spipe_priv_provider_of(d);
    SPIPE_TRY(spipe_priv_request_begin(&p->request, d, kept, &p->failure)); /* for freeing */
    p->sync = spipe_priv_sync_create();
    if (!p->sync) return cudaErrorMemoryAllocation;
    SPIPE_TRY(spipe_priv_refuse_zero_copy(&p->request, &p->failure));
    SPIPE_TRY(spipe_priv_check_in(p));
    SPIPE_TRY(spipe_priv_plan_request(p));
    spipe_priv_route_stages(&p->route, d);
    spipe_priv_route_plan(&p->route, &p->request, &p->plan);
    spipe_priv_measure(p);
    SPIPE_TRY(spipe_priv_create_slots(p));
    SPIPE_TRY(spipe_priv_create_events(p));
    SPIPE_TRY(spipe_priv_arrange(p));
    if (!kept) return cudaSuccess;
    return spipe_priv_unregister(&p->request); /* each run pins anew */
}

/* The same from the beginning, except that the known limits of memory stay. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_set_up_anew(spipe_priv_pipeline_t *p, const spipe_desc_t *d,
                                                   int kept) {
    const int device = p->request.device, refusals = p->request.pin_refusals;
    const size_t limit = p->request.pin_limit;
    const spipe_priv_fit_t fit = p->request.fit;
    (void)spipe_priv_free(p);
    memset((void *)p, 0, offsetof(spipe_priv_pipeline_t, streams.streams));
    spipe_priv_failure_clear(&p->failure);
    p->request.device = device;
    p->request.pin_refusals = refusals;
    p->request.pin_limit = limit;
    p->request.fit = fit;
    return spipe_priv_set_up(p, d, kept);
}

/* Makes a pipeline in memory of the caller's, from a description that was checked with this
   failure; frees all on failure. It has its memory until it is checked out. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_create(spipe_priv_pipeline_t *p, const spipe_desc_t *d,
                                              int kept, spipe_failure_t *failure) {
    const double began = spipe_priv_clock();
    cudaError_t e;
    double started;
    int least, greatest;
    memset((void *)p, 0, offsetof(spipe_priv_pipeline_t, streams.streams));
    spipe_priv_failure_clear(&p->failure);
    e = cudaGetDevice(&p->request.device);
    if (e == cudaSuccess) e = cudaDeviceGetStreamPriorityRange(&least, &greatest); /* starts CUDA */
    if (e != cudaSuccess) return spipe_priv_no_device(failure, e);
    started = spipe_priv_clock();
    e = spipe_priv_set_up(p, d, kept);
    while (e != cudaSuccess && (spipe_priv_pin_less(p) || spipe_priv_take_less(p))) {
        e = spipe_priv_set_up_anew(p, d, kept);
    }
    if (e != cudaSuccess) {
        (void)spipe_priv_call_failed(p, e, "setting up");
        if (failure) *failure = p->failure;
        (void)spipe_priv_free(p);
        return e;
    }
    if (kept) spipe_priv_begin(p);
    p->report.start_ms = 1e3 * (started - began);
    p->report.setup_ms = 1e3 * (spipe_priv_clock() - began);
    return cudaSuccess;
}

/* A one-shot run. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_run_once(const spipe_desc_t *d, spipe_report_t *report,
                                                spipe_priv_visit_t *visit) {
    const int hooked = spipe_priv_begun(d) && d->hooks && d->hooks->run;
    const spipe_priv_provider_t *from;
    spipe_priv_pipeline_t p;
    spipe_failure_t failure;
    cudaError_t e, freed;
    from = spipe_priv_has_lender(d) ? spipe_priv_provider_of(d) : NULL;
    e = hooked || from ? cudaSuccess : spipe_desc_check(d, &failure);
    if (e == cudaSuccess && !visit->arrived) { /* a bad description has made no call of CUDA's */
        *visit = spipe_priv_arrive(cudaStreamCaptureModeThreadLocal);
    }
    if (hooked) return d->hooks->run(d, report, visit);
    if (from && from->run(d, report, &e, &failure, visit)) return e;
    if (e == cudaSuccess) {
        e = spipe_priv_create(&p, d, SPIPE_PRIV_ONE_RUN, &failure);
        p.visit = *visit;
    }
    if (e != cudaSuccess) {
        if (report) {
            memset(report, 0, sizeof *report);
            report->failure = failure;
        }
        return e;
    }
    e = spipe_priv_run_plan(&p);
    (void)cudaSetDevice(p.request.device); /* a stage may have made another device current */
    spipe_priv_report(&p, report);
    freed = spipe_priv_free(&p);
    visit->thrown = p.thrown;
    if (e != cudaSuccess || freed == cudaSuccess) return e;
    e = spipe_priv_refuse(report ? &report->failure : NULL, freed,
                          "freeing after the run failed: %s", cudaGetErrorString(freed));
    if (report) report->failure.chunks_whole = report->num_chunks;
    return e;
}

SPIPE_API cudaError_t spipe_run(const spipe_desc_t *d, spipe_report_t *report) {
    spipe_priv_visit_t visit;
    cudaError_t e;
    memset((void *)&visit, 0, sizeof visit);
    e = spipe_priv_run_once(d, report, &visit);
    spipe_priv_depart(&visit);
    spipe_priv_rethrow(&visit.thrown);
    return e;
}

SPIPE_API cudaError_t spipe_pipeline_create(spipe_pipeline_t **pipeline, const spipe_desc_t *d,
                                            spipe_failure_t *failure) {
    spipe_priv_pipeline_t *p;
    spipe_priv_visit_t visit;
    cudaError_t e;
    if (!pipeline) {
        return spipe_priv_refuse(failure, cudaErrorInvalidValue,
                                 "there is no pointer to put the pipeline into");
    }
    *pipeline = NULL;
    if (spipe_priv_begun(d) && d->hooks && d->hooks->run) {
        return spipe_priv_refuse(failure, cudaErrorNotSupported,
                                 "several devices are for spipe_run; of pipelines that are kept, "
                                 "make one on each device");
    }
    e = spipe_priv_check_desc(d, failure);
    if (e != cudaSuccess || !d) return e;
    p = (spipe_priv_pipeline_t *)malloc(sizeof *p);
    if (!p) {
        (void)spipe_priv_refuse(failure, cudaErrorMemoryAllocation, "no memory for the pipeline");
        return cudaErrorMemoryAllocation;
    }
    visit = spipe_priv_arrive(cudaStreamCaptureModeThreadLocal);
    e = spipe_priv_create(p, d, SPIPE_PRIV_KEPT_BY_USER, failure);
    if (e == cudaSuccess) spipe_priv_check_out(p);
    spipe_priv_depart(&visit);
    if (e != cudaSuccess) {
        free(p);
        return e;
    }
    spipe_priv_own_on(&p->owner, p, p->request.device);
    p->program.replay.compare_work =
        spipe_priv_compare_work; /* so that spipe_run does not link it */
    *pipeline = (spipe_pipeline_t *)(void *)p;
    return e;
}

SPIPE_API cudaError_t spipe_pipeline_destroy(spipe_pipeline_t *pipeline) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)(void *)pipeline;
    spipe_priv_visit_t visit;
    cudaError_t e;
    int forked;
    if (!p) return cudaSuccess;
    SPIPE_TRY(spipe_priv_begin_destroy(&p->owner, p, &forked));
    if (forked) {
        spipe_priv_forget(p);
        return SPIPE_PRIV_FORKED;
    }
    visit = spipe_priv_arrive(cudaStreamCaptureModeRelaxed);
    spipe_priv_pull_end(p);
    e = spipe_priv_free(p);
    spipe_priv_depart(&visit);
    free(p);
    return e;
}

/* One more run of a kept pipeline, which borrows its memory; the caller checks out after it. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_run_again(spipe_priv_pipeline_t *p, spipe_report_t *report) {
    cudaError_t e = spipe_priv_pick_up(p);
    if (e == cudaSuccess) e = spipe_priv_choose_setting(p);
    p->report.trying = p->climb.may_climb && !p->climb.settled;
    if (e == cudaSuccess)
        e = spipe_priv_run_plan(p);
    else
        e = spipe_priv_call_failed(p, e, "setting up");
    if (e == cudaSuccess) spipe_priv_note_run(p, 1e-3 * p->report.wall_ms);
    spipe_priv_report(p, report);
    p->report.setup_ms = 0.0;
    p->report.start_ms = 0.0;
    return e;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_run_kept(spipe_priv_pipeline_t *p, spipe_report_t *report) {
    int before;
    cudaError_t e;
    if (p->run.running_enqueued || p->run.ran_now) SPIPE_TRY(spipe_priv_wait_enqueued(p, report));
    if (p->request.desc.num_stages == 0) {
        e = spipe_priv_check_stages(&p->request.desc, &p->failure);
        return spipe_priv_refuse_call(NULL, report, e, p->failure.message);
    }
    SPIPE_TRY(spipe_priv_enter_run(p, &before, report));
    e = spipe_priv_run_again(p, report);
    spipe_priv_check_out(p);
    (void)cudaSetDevice(before);
    return e;
}

SPIPE_API cudaError_t spipe_pipeline_run(spipe_pipeline_t *pipeline, spipe_report_t *report) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)(void *)pipeline;
    cudaError_t e;
    SPIPE_TRY(spipe_priv_claim(p, report));
    e = spipe_priv_run_kept(p, report);
    spipe_priv_let_go_throwing(p);
    return e;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_plan_anew(spipe_priv_pipeline_t *p) {
    cudaError_t e;
    p->request.incomplete = 1;
    SPIPE_TRY(spipe_priv_drop_graph(&p->program.replay));
    do {
        e = spipe_priv_plan_request(p);
        if (e != cudaSuccess) break;
        e = spipe_priv_arrange(p);
    } while (e != cudaSuccess && (spipe_priv_pin_less(p) || spipe_priv_take_less(p)));
    return e;
}

/* Plans anew for other arrays, or another count. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_replan(spipe_priv_pipeline_t *p) {
    cudaError_t e;
    p->request.incomplete = 1;
    p->request.arrays_known = 0;
    SPIPE_TRY(spipe_priv_look_at_arrays(&p->request, &p->failure));
    SPIPE_TRY(spipe_priv_check_in(p));
    e = spipe_priv_plan_anew(p);
    if (e == cudaSuccess) e = spipe_priv_unregister(&p->request);
    spipe_priv_check_out(p);
    return e;
}

/* Checks the description with this array in it. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_other_host(spipe_priv_pipeline_t *p, int buffer,
                                                        void *host) {
    spipe_desc_t *d = &p->request.desc;
    void *before = d->buffers[buffer].host;
    cudaError_t e;
    d->buffers[buffer].host = host;
    e = spipe_priv_check_desc(d, &p->failure);
    d->buffers[buffer].host = before;
    return e;
}

/* What is wrong with another array for a buffer, in words. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_host(spipe_priv_pipeline_t *p, int buffer,
                                                  void *host) {
    const spipe_desc_t *d = &p->request.desc;
    spipe_failure_t *f = &p->failure;
    const int there = buffer >= 0 && buffer < d->num_buffers;
    SPIPE_PRIV_REFUSE_IF(!there, "there is no buffer %d; the pipeline has %d", buffer,
                         d->num_buffers);
    SPIPE_PRIV_REFUSE_IF(!d->buffers[buffer].host && !spipe_priv_lacks_array(d, buffer),
                         "buffer %d (%s) has no host array to replace", buffer,
                         spipe_priv_kind(d->buffers[buffer].kind)->name);
    SPIPE_PRIV_REFUSE_IF(!host, "buffer %d: the host array is NULL; pass the array", buffer);
    return spipe_priv_check_other_host(p, buffer, host);
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_set_host(spipe_priv_pipeline_t *p, int buffer, void *host) {
    int before;
    cudaError_t e;
    (void)spipe_priv_wait_enqueued(p, NULL);
    SPIPE_TRY(spipe_priv_check_host(p, buffer, host));
    p->request.incomplete = 1; /* the program may still name the old array */
    SPIPE_TRY(spipe_priv_enter_device(p, &before, NULL));
    p->request.desc.buffers[buffer].host = host;
    e = spipe_priv_replan(p);
    if (e == cudaSuccess) spipe_priv_begin(p);
    (void)cudaSetDevice(before);
    return spipe_priv_call_failed(p, e, "setting another array");
}

SPIPE_API cudaError_t spipe_pipeline_set_host(spipe_pipeline_t *pipeline, int buffer, void *host) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)(void *)pipeline;
    cudaError_t e;
    SPIPE_TRY(spipe_priv_claim(p, NULL));
    e = spipe_priv_set_host(p, buffer, host);
    spipe_priv_let_go(p);
    return e;
}

/* Plans for another count. If that fails, the pipeline goes back to the old count. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_change_count(spipe_priv_pipeline_t *p, size_t count) {
    const size_t before = p->request.desc.count;
    spipe_failure_t why;
    cudaError_t e;
    p->request.desc.count = count;
    e = spipe_priv_replan(p);
    if (e == cudaSuccess) {
        spipe_priv_begin(p);
        return e;
    }
    (void)spipe_priv_take_error(spipe_priv_call_failed(p, e, "setting another count"));
    why = p->failure;
    p->request.desc.count = before;
    if (spipe_priv_replan(p) == cudaSuccess) spipe_priv_begin(p);
    p->failure = why;
    return e;
}

/* What is wrong with another count, in words: mistakes as in a description. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_count(spipe_priv_pipeline_t *p, size_t count) {
    spipe_desc_t *d = &p->request.desc;
    const size_t before = d->count;
    cudaError_t e;
    d->count = count;
    e = spipe_priv_check_desc(d, &p->failure);
    d->count = before;
    return e;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_set_count(spipe_priv_pipeline_t *p, size_t count) {
    cudaError_t e;
    int before;
    SPIPE_TRY(spipe_priv_enter(p, &before, NULL));
    if (p->run.running_enqueued || p->run.ran_now) (void)spipe_priv_wait_enqueued(p, NULL);
    e = spipe_priv_check_count(p, count);
    if (e == cudaSuccess && count != p->request.desc.count) e = spipe_priv_change_count(p, count);
    (void)cudaSetDevice(before);
    return e;
}

SPIPE_API cudaError_t spipe_pipeline_set_count(spipe_pipeline_t *pipeline, size_t count) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)(void *)pipeline;
    cudaError_t e;
    SPIPE_TRY(spipe_priv_claim(p, NULL));
    e = spipe_priv_set_count(p, count);
    spipe_priv_let_go(p);
    return e;
}

SPIPE_API const spipe_plan_t *spipe_pipeline_plan(const spipe_pipeline_t *pipeline) {
    const spipe_priv_pipeline_t *p = (const spipe_priv_pipeline_t *)(const void *)pipeline;
    return p ? &p->plan : NULL;
}

SPIPE_API const spipe_failure_t *spipe_pipeline_failure(const spipe_pipeline_t *pipeline) {
    const spipe_priv_pipeline_t *p = (const spipe_priv_pipeline_t *)(const void *)pipeline;
    return p ? &p->failure : NULL;
}

SPIPE_API cudaError_t spipe_pipeline_set_timeline(spipe_pipeline_t *pipeline,
                                                  struct spipe_timeline *timeline) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)(void *)pipeline;
    cudaError_t e;
    SPIPE_TRY(spipe_priv_claim(p, NULL));
    (void)spipe_priv_wait_enqueued(p, NULL);
    e = spipe_priv_check_timeline(timeline, &p->failure);
    if (e == cudaSuccess) p->request.desc.timeline = timeline;
    spipe_priv_let_go(p);
    return e;
}
