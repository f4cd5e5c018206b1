/* ---- 11 plan: saying why -------------------------------------------------------------------
   A way as a spipe_plan_t, with a sentence for each choice. Pure. */
SPIPE_PRIV_RARE const char *spipe_priv_why_chunk(const spipe_desc_t *d, const spipe_priv_work_t *w,
                                                 const spipe_priv_way_t *y) {
    const int whole = y->chunk >= w->count;
    if (d->chunk != SPIPE_AUTO)
        return y->batch > 1 ? "as asked; several are copied at once" : "as asked";
    if (spipe_priv_endless(d)) return "no total is known, so for a long run";
    if (y->schedule == SPIPE_ZERO_COPY && !spipe_priv_is_staged(w, y)) {
        return whole ? "the whole: overlapping gains nothing"
                     : "without copies, some parts side by side";
    }
    if (whole && y->staging == SPIPE_STAGING_DIRECT) return "the whole: CUDA waits between chunks";
    if (whole && !w->machine.beside) return "the whole: overlapping gains nothing";
    return w->machine.beside
               ? "beside other runs that overlap this one"
               : "balances per-copy overhead (and halos) against pipeline fill and drain";
}

/* NULL: the report, which knows the number of chunks, says what overlapped. */
SPIPE_PRIV_RARE const char *spipe_priv_why_schedule(const spipe_desc_t *d,
                                                    const spipe_priv_way_t *y) {
    if (d->schedule != SPIPE_SCHEDULE_AUTO) return "as asked";
    if (y->schedule == SPIPE_ZERO_COPY) {
        return "elementwise, on pinned memory: copies take longer";
    }
    return NULL;
}

SPIPE_PRIV_RARE const char *spipe_priv_why_staging(const spipe_desc_t *d,
                                                   const spipe_priv_work_t *w,
                                                   const spipe_priv_way_t *y) {
    const int few = (w->flags & SPIPE_PRIV_FEW_PINS) != 0;
    const int slots = w->hosted_in + w->hosted_out > 0.0 || w->num_segments > 1;
    int i;
    for (i = 0; i < d->num_buffers && !few; ++i) {
        if (d->buffers[i].how) return d->buffers[i].how;
    }
    if (w->pageable_in + w->pageable_out <= 0.0) {
        if (y->pageable_slots)
            return "slots in pageable memory: too little data for pinning to pay";
        if (!few || !slots) return "no pageable array";
        return w->flags & SPIPE_PRIV_NO_PINS ? "slots in pageable memory: no room to pin a ring"
                                             : "smaller or fewer slots: no room to pin more";
    }
    if (d->staging != SPIPE_STAGING_AUTO) {
        return d->staging == y->staging ? "as asked"
                                        : "the system refused to pin the arrays in place";
    }
    if (w->flags & SPIPE_PRIV_PAGE_TABLES) return "the GPU reads host pages at full speed";
    switch (y->staging) {
    case SPIPE_STAGING_DIRECT:
        return few ? "CUDA copies by itself: no room to pin a ring"
                   : "plain cudaMemcpy: too little data for staging to pay";
    case SPIPE_STAGING_REGISTER: return "pinned in place: staging takes longer to set up";
    default:
        return few ? "through pinned slots by host threads: no room to pin more"
                   : "through pinned slots by host threads: CUDA's own copies block";
    }
}

SPIPE_PRIV_RARE spipe_plan_t spipe_priv_explain(const spipe_desc_t *d, const spipe_costs_t *costs,
                                                const spipe_priv_work_t *w,
                                                const spipe_priv_way_t *y) {
    spipe_plan_t plan;
    memset(&plan, 0, sizeof plan);
    plan.count = d->count;
    plan.chunk = y->chunk;
    plan.batch = y->batch;
    plan.depth = y->depth;
    plan.schedule = y->schedule;
    plan.staging = y->staging;
    plan.fill_threads = y->fill_threads;
    plan.drain_threads = y->drain_threads;
    plan.host_threads = spipe_priv_host_threads(d, w, y);
    if (plan.host_threads > y->depth) plan.host_threads = y->depth;
    plan.caller_helps = y->caller_helps;
    plan.pageable_slots = y->pageable_slots || (w->flags & SPIPE_PRIV_NO_PINS) != 0;
    plan.replay = y->replay;
    plan.predicted_ms = 1e3 * y->predicted_s;
    plan.kernel_ms = 1e3 * w->kernel_s;
    plan.why_chunk = spipe_priv_why_chunk(d, w, y);
    plan.why_schedule = spipe_priv_why_schedule(d, y);
    plan.why_staging = spipe_priv_why_staging(d, w, y);
    memcpy(plan.costs, costs->name, sizeof costs->name);
    spipe_priv_make_printable(plan.costs);
    return plan;
}

/* The kernels' time, assumed until a run has shown it. */
SPIPE_PRIV_RARE double spipe_priv_assumed_kernel(const spipe_costs_t *c,
                                                 const spipe_priv_work_t *w) {
    return SPIPE_PRIV_ASSUMED_KERNEL * spipe_priv_real(w->count) * spipe_priv_busier(w) /
           c->link_both;
}

SPIPE_API cudaError_t spipe_plan_print(const spipe_plan_t *plan, FILE *to) {
    if (!plan || !to) return cudaErrorInvalidValue;
    fprintf(to, "  plan      chunk %zu (elements), batch %zu (chunks), depth %zu (slots)\n",
            plan->chunk, plan->batch, plan->depth);
    fprintf(to, "  chunk     %s\n", plan->why_chunk ? plan->why_chunk : "");
    fprintf(to, "  schedule  %s%s", spipe_schedule_name(plan->schedule),
            plan->replay ? ", replayed" : "");
    if (plan->why_schedule) fprintf(to, ": %s", plan->why_schedule);
    fprintf(to, "\n");
    fprintf(to, "  staging   %s\n", plan->why_staging ? plan->why_staging : "");
    fprintf(to, "  host      %zu to fill, %zu to drain", plan->fill_threads, plan->drain_threads);
    if (plan->host_threads > 0) fprintf(to, ", %zu for host stages", plan->host_threads);
    fprintf(to, "%s\n", plan->caller_helps ? ", and the calling thread" : "");
    fprintf(to,
            "  time      %.3f ms predicted, kernels %.3f ms %s; costs of %s; %d ways compared\n",
            plan->predicted_ms, plan->kernel_ms, plan->kernel_known ? "at most" : "assumed",
            plan->costs, plan->num_candidates);
    return ferror(to) ? cudaErrorOperatingSystem : cudaSuccess;
}
