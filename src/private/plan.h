/* ---- 6 plan: a plan that fits ----------------------------------------------------------------
   From the guess, or from what runs have found, to a plan: made smaller until it fits, and with its
   reasons. Pure. */

/* Makes what is automatic smaller until the slots fit into the memory that a run may take: its
   share of the device's, what resources give, what could be allocated and pinned before. */
SPIPE_PRIV_RARE void spipe_priv_fit_plan(const spipe_priv_request_t *r, const spipe_priv_work_t *w,
                                         spipe_plan_t *plan) {
    const double in = spipe_priv_staged(w, plan, 0), out = spipe_priv_staged(w, plan, 1);
    const double staged = in + out, apart = w->halo > 0.0 ? w->hosted_in : 0.0;
    const double over = in - apart > out ? in : apart + out; /* see spipe_priv_layout_pins */
    const double pinned = plan->schedule == SPIPE_SCHEDULE_ZERO_COPY ? staged : over;
    const int in_place = plan->schedule == SPIPE_SCHEDULE_ZERO_COPY && staged <= 0.0;
    const double element = in_place ? w->temps : w->held, depth = (double)plan->depth;
    double room = (double)r->facts.memory_bytes / (double)SPIPE_PRIV_MEMORY_SHARE;
    double most = (double)plan->chunk;
    if (r->device_limit > 0) room = spipe_priv_within(room, 0.0, (double)r->device_limit);
    if (element > 0.0) most = spipe_priv_within((room / depth - w->halo) / element, 0.0, most);
    if (r->pin_limit > 0 && staged > 0.0 && !plan->pageable_slots)
        most = spipe_priv_within((double)r->pin_limit / depth / pinned, 0.0, most);
    if (r->fit.slots > 0) most = spipe_priv_within(most, 0.0, (double)r->fit.elems);
    if (most < (double)plan->chunk && r->desc.chunk == SPIPE_AUTO) {
        plan->chunk = (size_t)most > w->least_chunk ? (size_t)most : w->least_chunk;
        if (plan->chunk == 0) plan->chunk = 1;
    }
    if (r->fit.slots > 0 && plan->depth > r->fit.slots) plan->depth = r->fit.slots;
    if (plan->fill_threads > plan->depth) plan->fill_threads = plan->depth;
    if (plan->drain_threads > plan->depth) plan->drain_threads = plan->depth;
    if (plan->host_threads > plan->depth) plan->host_threads = plan->depth;
}

/* A plan: the first guess, or with what a climb has found. */
SPIPE_PRIV_RARE void spipe_priv_make_plan(const spipe_priv_request_t *r, const spipe_priv_work_t *w,
                                          const spipe_priv_setting_t *found, spipe_plan_t *plan) {
    memset(plan, 0, sizeof *plan);
    plan->count = r->desc.count;
    plan->schedule =
        r->desc.schedule == SPIPE_SCHEDULE_AUTO ? SPIPE_SCHEDULE_ENGINES : r->desc.schedule;
    if (spipe_priv_guess_in_place(r, w)) plan->schedule = SPIPE_SCHEDULE_ZERO_COPY;
    plan->staging = spipe_priv_guess_staging(r, w);
    plan->pageable_slots = spipe_priv_no_pins(r);
    plan->chunk = found->chunk > 0 ? found->chunk : spipe_priv_guess_chunk(r, w, plan);
    spipe_priv_guess_threads(r, w, found->threads, plan);
    plan->host_threads = spipe_priv_guess_host(r, w, plan);
    plan->depth = spipe_priv_guess_depth(r, w, plan);
    spipe_priv_fit_plan(r, w, plan);
    plan->replay = found->replay;
}
