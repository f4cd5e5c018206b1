/* ---- 4 execute: planning and arranging -------------------------------------------------------
   From a request to a plan, and from a plan to memory, events and a program; with less where memory
   is refused. Writes the plan, and spipe_priv_climb_t when it begins. */

/* Forgets the graph: it names arrays and sizes. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_drop_graph(spipe_priv_replay_t *t) {
    const cudaError_t e = t->graph ? cudaGraphExecDestroy(t->graph) : cudaSuccess;
    t->graph = NULL;
    return e;
}

/* The plan of a setting, without arranging anything. */
SPIPE_PRIV_RARE void spipe_priv_take_setting(spipe_priv_pipeline_t *p,
                                             const spipe_priv_setting_t *setting) {
    const spipe_priv_work_t w = spipe_priv_request_work(&p->request);
    spipe_priv_climb_t *c = &p->climb;
    spipe_priv_make_plan(&p->request, &w, setting, &p->plan);
    p->plan.found = c->settled ? c->num_runs : 0;
    spipe_priv_explain(&p->request, &w, &p->plan);
    if (!c->settled && c->tried > 0) p->plan.why_chunk = "a setting that is being tried";
    c->taken = *setting;
}

/* Route, memory, events and program for the plan in use. Allocates nothing where what there is is
   large enough. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_arrange(spipe_priv_pipeline_t *p) {
    p->request.incomplete = 1; /* until everything is arranged */
    p->climb.arranged = 0;
    spipe_priv_route_plan(&p->route, &p->request, &p->plan);
    spipe_priv_measure(p);
    spipe_priv_make_workers(p);
    SPIPE_TRY(spipe_priv_create_streams(p));
    if (spipe_priv_needs_events(p)) SPIPE_TRY(spipe_priv_create_slot_events(p));
    SPIPE_TRY(spipe_priv_arrange_memory(p));
    SPIPE_TRY(spipe_priv_arrange_program(p));
    p->request.incomplete = p->request.other_arrays = 0;
    p->climb.arranged = 1;
    return cudaSuccess;
}

/* After the system refused to pin a ring: whether to plan anew with half as much, the third time
   with nothing pinned. Not if the user asked for a way that needs pinned slots. */
SPIPE_PRIV_RARE int spipe_priv_pin_less(spipe_priv_pipeline_t *p) {
    spipe_priv_request_t *r = &p->request;
    const int copy = p->plan.staging == SPIPE_STAGING_COPY;
    const int asked = copy && r->desc.staging == SPIPE_STAGING_COPY;
    if (p->memory.refused == 0 || asked || p->plan.schedule == SPIPE_SCHEDULE_ZERO_COPY) return 0;
    if (spipe_priv_no_pins(r)) return 0;
    ++r->pin_refusals;
    r->pin_limit = spipe_priv_no_pins(r) ? 0 : p->memory.refused / 2;
    return 1;
}

/* Plans, and pins arrays in place if that is the plan; if the system refuses, plans anew. What a
   climb has found stays where the work is of the same size. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_plan_request(spipe_priv_pipeline_t *p) {
    spipe_priv_request_t *r = &p->request;
    const spipe_priv_work_t w = spipe_priv_request_work(r);
    spipe_priv_climb_t *c = &p->climb;
    int pinned = 1;
    SPIPE_TRY(spipe_priv_measure_pages(r));
    if (c->count != w.count || c->flags != w.flags || !spipe_priv_may_climb(r, &w))
        spipe_priv_climb_reset(c, spipe_priv_may_climb(r, &w));
    c->count = w.count;
    c->flags = w.flags;
    spipe_priv_take_setting(p, &c->best);
    if (p->plan.staging != SPIPE_STAGING_REGISTER) return cudaSuccess;
    SPIPE_TRY(spipe_priv_register(r, &pinned));
    if (!pinned) r->may_register = 0;
    spipe_priv_climb_reset(c, 0);
    if (!pinned) spipe_priv_take_setting(p, &c->best);
    return cudaSuccess;
}

/* The fewest elements that a slot may have: a chunk that the user fixed, or the widest halo. */
SPIPE_PRIV_RARE size_t spipe_priv_least_elems(const spipe_desc_t *d) {
    size_t least = d->chunk == SPIPE_AUTO ? 1 : d->chunk;
    int i;
    for (i = 0; i < d->num_buffers && d->chunk == SPIPE_AUTO; ++i) {
        if (least < d->buffers[i].halo_before) least = d->buffers[i].halo_before;
        if (least < d->buffers[i].halo_after) least = d->buffers[i].halo_after;
    }
    return least;
}

/* After memory was refused: whether to plan anew with less of what is left to the library. Slots
   become smaller, down to the smallest chunk that is proposed; then fewer, down to two; then
   smaller again, down to one slot of one element. */
SPIPE_PRIV_RARE int spipe_priv_take_less(spipe_priv_pipeline_t *p) {
    const spipe_desc_t *d = &p->request.desc;
    const spipe_priv_work_t w = spipe_priv_request_work(&p->request);
    const size_t least = spipe_priv_least_elems(d), depth = p->plan.depth;
    const size_t elems = p->plan.chunk;
    const int large = (double)elems * w.held > (double)SPIPE_PRIV_LEAST_CHUNK;
    const int fewer = d->depth == SPIPE_AUTO && depth > 1;
    spipe_priv_fit_t *fit = &p->request.fit;
    if (!p->memory.lacks) return 0;
    fit->elems = elems;
    fit->slots = depth;
    if (elems > least && (large || depth <= 2 || !fewer))
        fit->elems = elems / 2 > least ? elems / 2 : least;
    else if (fewer)
        fit->slots = (depth + 1) / 2;
    else
        return 0;
    return 1;
}

/* Plans for the request as it is now, and arranges what follows from it. In pipeline.h. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_plan_anew(spipe_priv_pipeline_t *p);

/* Borrows from resources before a kept pipeline's run, and pins arrays in place; plans anew if the
   number of runs has changed much, or if the system refuses to
   pin. If its memory lies elsewhere than before, everything with addresses is written anew. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_pick_up(spipe_priv_pipeline_t *p) {
    const unsigned char *device = p->memory.device, *pinned = p->memory.pinned;
    int registered;
    SPIPE_TRY(spipe_priv_check_in(p));
    SPIPE_TRY(spipe_priv_register_again(&p->request, &registered));
    p->request.may_register &= registered;
    if (!registered || (p->provider && p->provider->outdated(p))) return spipe_priv_plan_anew(p);
    if (device == p->memory.device && pinned == p->memory.pinned && !p->request.other_arrays) {
        return cudaSuccess;
    }
    SPIPE_TRY(spipe_priv_drop_graph(&p->program.replay));
    return spipe_priv_arrange(p);
}

/* Captures a run. A stage that cannot be captured is no failure: then nothing is replayed. In
   enqueue.h. */
SPIPE_PRIV_RARE void spipe_priv_capture_run(spipe_priv_pipeline_t *p);

/* Makes a setting the plan in use. If its memory cannot be allocated, the run does not fail: the
   best setting is used instead, and the climb is over. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_use_setting(spipe_priv_pipeline_t *p,
                                                   const spipe_priv_setting_t *setting) {
    spipe_priv_climb_t *c = &p->climb;
    if (c->arranged && spipe_priv_same_setting(setting, &c->taken)) return cudaSuccess;
    if (p->request.apart)
        SPIPE_TRY(spipe_priv_drop_graph(&p->program.replay)); /* it names that memory */
    spipe_priv_take_setting(p, setting);
    if (spipe_priv_arrange(p) == cudaSuccess) return cudaSuccess;
    (void)cudaGetLastError();
    spipe_priv_failure_clear(&p->failure);
    c->now = c->best;
    c->settled = 1;
    spipe_priv_take_setting(p, &c->best);
    return spipe_priv_arrange(p);
}

/* Makes the plan for the next run of a kept pipeline. A run with a timeline takes the best setting,
   and is not judged, because recording slows it down. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_choose_setting(spipe_priv_pipeline_t *p) {
    spipe_priv_climb_t *c = &p->climb;
    const int watched = p->request.desc.timeline != NULL;
    if (!c->may_climb) return cudaSuccess;
    if (c->judged) {
        c->judged = 0;
        spipe_priv_take_setting(p, &c->best);
        c->arranged = 0; /* the plan was taken only to look around it */
        spipe_priv_climb_on(p);
    }
    SPIPE_TRY(spipe_priv_use_setting(p, watched ? &c->best : &c->now));
    if (!p->plan.replay || watched) return cudaSuccess;
    if (!p->program.replay.graph || p->program.replay.graph_chunk != p->plan.chunk)
        spipe_priv_capture_run(p);
    if (!p->program.replay.graph_failed) return cudaSuccess;
    c->best.replay = 0;
    spipe_priv_climb_on(p);
    return spipe_priv_use_setting(p, &c->now);
}
