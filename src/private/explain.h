/* ---- 6 plan: saying why --------------------------------------------------------------------
   A sentence for each choice of a plan, and printing it. Pure. */
SPIPE_PRIV_RARE const char *spipe_priv_why_chunk(const spipe_priv_request_t *r,
                                                 const spipe_priv_work_t *w,
                                                 const spipe_plan_t *plan) {
    const int whole = plan->chunk >= w->count;
    const int in_place = plan->schedule == SPIPE_SCHEDULE_ZERO_COPY;
    if (r->desc.chunk != SPIPE_AUTO) return "as asked";
    if (r->fit.slots > 0) return "as much as fits into the memory that is free";
    if (plan->found) return "found by the runs before";
    if (spipe_priv_endless(&r->desc)) return "first guess: no total is known, so for a long run";
    if (whole && in_place) return "the whole: nothing is copied";
    if (whole && plan->staging == SPIPE_STAGING_DIRECT)
        return "the whole: CUDA waits between chunks";
    if (whole) return "the whole: overlapping gains nothing";
    return "first guess: balances the time lost per chunk against the ends of the run";
}

/* NULL: the report, which knows the number of chunks, says what overlapped. */
SPIPE_PRIV_RARE const char *spipe_priv_why_schedule(const spipe_desc_t *d,
                                                    const spipe_plan_t *plan) {
    if (d->schedule != SPIPE_SCHEDULE_AUTO) return "as asked";
    if (plan->schedule == SPIPE_SCHEDULE_ZERO_COPY) {
        return "elementwise, on pinned memory: copies take longer";
    }
    return NULL;
}

SPIPE_PRIV_RARE const char *spipe_priv_why_staging(const spipe_priv_request_t *r,
                                                   const spipe_priv_work_t *w,
                                                   const spipe_plan_t *plan) {
    const spipe_desc_t *d = &r->desc;
    const int few = r->pin_refusals > 0;
    const int slots = w->hosted_in + w->hosted_out > 0.0 || w->num_segments > 1;
    int i;
    for (i = 0; i < d->num_buffers && !few; ++i) {
        if (d->buffers[i].how) return d->buffers[i].how;
    }
    if (w->pageable_in + w->pageable_out <= 0.0) {
        if (!few || !slots) return "no pageable array";
        return plan->pageable_slots ? "slots in pageable memory: no room to pin a ring"
                                    : "smaller or fewer slots: no room to pin more";
    }
    if (d->staging != SPIPE_STAGING_AUTO) {
        return d->staging == plan->staging ? "as asked"
                                           : "the system refused to pin the arrays in place";
    }
    if (plan->staging == SPIPE_STAGING_DIRECT) {
        if (r->reads_pages)
            return "the GPU reads these pages faster than a thread, as was measured";
        return few ? "CUDA copies by itself: no room to pin a ring"
                   : "plain cudaMemcpy: too little data for staging to pay";
    }
    return few ? "through pinned slots by host threads: no room to pin more"
               : "through pinned slots by host threads: CUDA's own copies block";
}

SPIPE_PRIV_RARE void spipe_priv_explain(const spipe_priv_request_t *r, const spipe_priv_work_t *w,
                                        spipe_plan_t *plan) {
    plan->why_chunk = spipe_priv_why_chunk(r, w, plan);
    plan->why_schedule = spipe_priv_why_schedule(&r->desc, plan);
    plan->why_staging = spipe_priv_why_staging(r, w, plan);
}

SPIPE_API cudaError_t spipe_plan(const spipe_desc_t *d, int kept, spipe_plan_t *plan,
                                 spipe_failure_t *failure) {
    const spipe_priv_setting_t nothing = {0, 0, 0};
    spipe_priv_request_t r;
    spipe_priv_work_t w;
    spipe_priv_visit_t visit;
    cudaError_t e;
    if (!plan) return spipe_priv_refuse(failure, cudaErrorInvalidValue, "the plan is NULL");
    memset(plan, 0, sizeof *plan);
    SPIPE_TRY(kept ? spipe_priv_check_desc(d, failure) : spipe_desc_check(d, failure));
    memset(&r, 0, sizeof r);
    visit = spipe_priv_arrive(cudaStreamCaptureModeThreadLocal);
    e = cudaGetDevice(&r.device);
    if (e == cudaSuccess)
        e = spipe_priv_request_begin(&r, d, kept, failure);
    else
        (void)spipe_priv_no_device(failure, e);
    if (e == cudaSuccess) e = spipe_priv_answered(spipe_priv_measure_pages(&r), failure);
    spipe_priv_depart(&visit);
    if (e == cudaSuccess) e = spipe_priv_refuse_zero_copy(&r, failure);
    if (e != cudaSuccess) return e;
    w = spipe_priv_request_work(&r);
    spipe_priv_make_plan(&r, &w, &nothing, plan);
    spipe_priv_explain(&r, &w, plan);
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_plan_print(const spipe_plan_t *plan, FILE *to) {
    if (!plan || !to) return cudaErrorInvalidValue;
    fprintf(to, "  plan      chunk %zu (elements), depth %zu (slots): ", plan->chunk, plan->depth);
    if (plan->found)
        fprintf(to, "found in %d runs\n", plan->found);
    else
        fprintf(to, "first guess\n");
    fprintf(to, "  chunk     %s\n", plan->why_chunk ? plan->why_chunk : "");
    fprintf(to, "  schedule  %s%s", spipe_schedule_name(plan->schedule),
            plan->replay ? ", replayed" : "");
    if (plan->why_schedule) fprintf(to, ": %s", plan->why_schedule);
    fprintf(to, "\n");
    fprintf(to, "  staging   %s\n", plan->why_staging ? plan->why_staging : "");
    fprintf(to, "  host      %zu to fill, %zu to drain", plan->fill_threads, plan->drain_threads);
    if (plan->host_threads > 0) fprintf(to, ", %zu for host stages", plan->host_threads);
    fprintf(to, "%s\n", plan->caller_helps ? ", and the calling thread" : "");
    return ferror(to) ? cudaErrorOperatingSystem : cudaSuccess;
}
