/* ---- 4 execute: the route ------------------------------------------------------------------
   From request and plan: how each buffer travels, and the stages as steps on streams. Pure; writes
   spipe_priv_route_t. */
/* Whether stages work on the user's own array. */
SPIPE_PRIV_RARE int spipe_priv_used_in_place(const spipe_priv_request_t *r,
                                             const spipe_plan_t *plan, int i) {
    const spipe_buffer_desc_t *b = &r->desc.buffers[i];
    const spipe_priv_array_t *a = &r->arrays[i];
    if (plan->schedule != SPIPE_SCHEDULE_ZERO_COPY || b->halo_before || b->halo_after) return 0;
    return b->host && a->type != SPIPE_PRIV_PAGEABLE && a->mapped;
}

/* Whether a pinned array must be copied though it could be used in place: in a checked run, because
   there is no room for guards around it, and an input that a host stage writes. */
SPIPE_PRIV_RARE int spipe_priv_needs_copy(const spipe_priv_request_t *r, int i) {
    unsigned written = 0;
    int s;
    if (r->arrays[i].type != SPIPE_PRIV_PINNED) return 0;
    for (s = 0; s < r->desc.num_stages; ++s) written |= r->desc.stages[s].writes;
    return r->desc.checked || (spipe_priv_is_input(r->desc.buffers[i].kind) && (written >> i & 1));
}

SPIPE_PRIV_RARE spipe_priv_path_t spipe_priv_path_of(const spipe_priv_request_t *r,
                                                     const spipe_plan_t *plan, int i) {
    const spipe_buffer_desc_t *b = &r->desc.buffers[i];
    const spipe_priv_array_t *a = &r->arrays[i];
    const spipe_priv_kind_t *k = spipe_priv_kind(b->kind);
    const int pageable = a->type == SPIPE_PRIV_PAGEABLE;
    if (b->on_device) return SPIPE_PRIV_PATH_NONE;
    if (k->hosted) return SPIPE_PRIV_PATH_STAGED;
    if (!k->array) {
        return k->once && b->host && pageable ? SPIPE_PRIV_PATH_STAGED : SPIPE_PRIV_PATH_NONE;
    }
    if (plan->schedule == SPIPE_SCHEDULE_ZERO_COPY && b->host) {
        const int in_place = spipe_priv_used_in_place(r, plan, i) && !spipe_priv_needs_copy(r, i);
        return in_place ? SPIPE_PRIV_PATH_ZERO_COPY : SPIPE_PRIV_PATH_STAGED;
    }
    if (!b->host || !pageable) return SPIPE_PRIV_PATH_COPIED;
    return plan->staging == SPIPE_STAGING_DIRECT ? SPIPE_PRIV_PATH_COPIED : SPIPE_PRIV_PATH_STAGED;
}

/* Sets the members of the route that follow from a buffer's path. */
SPIPE_PRIV_RARE void spipe_priv_route_buffer(spipe_priv_route_t *t, const spipe_priv_request_t *r,
                                             const spipe_plan_t *plan, int i) {
    const spipe_buffer_desc_t *b = &r->desc.buffers[i];
    const int pageable = b->host && r->arrays[i].type == SPIPE_PRIV_PAGEABLE;
    const spipe_priv_kind_t *k = spipe_priv_kind(b->kind);
    if (k->array && pageable && t->path[i] == SPIPE_PRIV_PATH_COPIED) t->pageable_copies = 1;
    if (k->array && b->host && k->out) t->out_blocks = pageable && !r->facts.pageable_access;
    if (t->path[i] != SPIPE_PRIV_PATH_STAGED && !b->on_device) return;
    t->host_work = 1;
    t->pageable_copies |= plan->pageable_slots && !k->once;
    t->sequential |= k->in_order;
    t->fills |= k->in;
    t->drains |= k->out;
}

/* A filled slot is free when it was copied in. In three cases it is free only when its chunk is
   done: stages read it in place, several GPUs run, or progress is reported. */
SPIPE_PRIV_RARE void spipe_priv_route_refill(spipe_priv_route_t *t, const spipe_priv_request_t *r,
                                             const spipe_plan_t *plan) {
    const int shared = r->desc.hooks && r->desc.hooks->next_chunk;
    int i;
    t->until_done =
        plan->schedule == SPIPE_SCHEDULE_ZERO_COPY || r->desc.progress != NULL || shared;
    for (i = 0; i < r->desc.num_buffers; ++i) {
        t->until_done |= r->desc.buffers[i].on_device;
    }
}

SPIPE_PRIV_RARE void spipe_priv_route_buffers(spipe_priv_route_t *t, const spipe_priv_request_t *r,
                                              const spipe_plan_t *plan) {
    int i;
    t->fills = t->drains = t->host_work = t->sequential = t->pageable_copies = t->out_blocks = 0;
    for (i = 0; i < r->desc.num_stages; ++i) t->host_work |= r->desc.stages[i].host;
    if (t->host_work && plan->pageable_slots) t->pageable_copies = 1;
    for (i = 0; i < r->desc.num_buffers; ++i) {
        t->path[i] = spipe_priv_path_of(r, plan, i);
        spipe_priv_route_buffer(t, r, plan, i);
    }
    spipe_priv_route_refill(t, r, plan);
}

/* The chain that a stage continues: the chain of the first stage that it waits for, unless another
   stage continues it already; -1 = none. A host stage begins a chain of its own. */
SPIPE_PRIV_RARE int spipe_priv_chain_before(const spipe_priv_route_t *t, const spipe_desc_t *d,
                                            int s, int *continued) {
    int j;
    if (d->stages[s].host) return -1;
    for (j = 0; j < d->num_stages; ++j) {
        if (!(t->after[s] & SPIPE_BIT(j)) || continued[j] || d->stages[j].host) continue;
        continued[j] = 1;
        return t->chain[j];
    }
    return -1;
}

SPIPE_PRIV_RARE void spipe_priv_route_chains(spipe_priv_route_t *t, const spipe_desc_t *d,
                                             const int *order) {
    const int serial = d->schedule == SPIPE_SCHEDULE_SERIAL;
    int continued[SPIPE_MAX_STAGES] = {0}, n;
    t->num_chains = serial;
    for (n = 0; n < d->num_stages; ++n) {
        const int s = order[n];
        t->chain[s] = spipe_priv_chain_before(t, d, s, continued);
        if (t->chain[s] < 0) t->chain[s] = serial ? 0 : t->num_chains++;
    }
    if (t->num_chains == 0) t->num_chains = 1; /* without stages: chains have the streams */
}

/* The stages that need an event: those before the copies out, before a stage of another chain or
   the same stage of the next chunk, and host stages. Within a chain the stream keeps the order. */
SPIPE_PRIV_RARE unsigned spipe_priv_awaited(const spipe_priv_route_t *t, const spipe_desc_t *d) {
    unsigned awaited = t->leaves;
    int s, j;
    for (s = 0; s < d->num_stages; ++s) {
        if (d->stages[s].host || d->stages[s].ordered) awaited |= SPIPE_BIT(s);
        for (j = 0; j < d->num_stages; ++j) {
            if (t->chain[j] != t->chain[s]) awaited |= t->after[s] & SPIPE_BIT(j);
        }
    }
    return awaited;
}

SPIPE_PRIV_RARE void spipe_priv_add_step(spipe_priv_route_t *t, spipe_priv_step_t what, int stage) {
    t->steps[t->num_steps].what = what;
    t->steps[t->num_steps++].stage = stage;
}

/* Adds every stage that may begin now; returns those that end in this segment, as bits. */
SPIPE_PRIV_RARE unsigned spipe_priv_begin_stages(spipe_priv_route_t *t, const spipe_desc_t *d,
                                                 const int *order, unsigned *begun, unsigned done) {
    int n;
    for (n = 0; n < d->num_stages; ++n) {
        const int s = order[n], host = d->stages[s].host;
        if ((*begun & SPIPE_BIT(s)) || (t->after[s] & ~done)) continue;
        *begun |= SPIPE_BIT(s);
        if (!host) done |= SPIPE_BIT(s);
        spipe_priv_add_step(t, host ? SPIPE_PRIV_STEP_HOST_BEGIN : SPIPE_PRIV_STEP_STAGE, s);
    }
    return done;
}

/* The steps of a chunk in order: in, stages, out. A host stage ends as late as possible, and its
   end opens a new segment, so that other chunks are issued while the host works. */
SPIPE_PRIV_RARE void spipe_priv_route_steps(spipe_priv_route_t *t, const spipe_desc_t *d,
                                            const int *order) {
    unsigned begun = 0, done = 0;
    int n, ended = 1;
    t->num_steps = 0;
    t->num_segments = 1;
    t->segments[0].start = 0;
    memset((void *)t->segments, 0, sizeof t->segments);
    spipe_priv_add_step(t, SPIPE_PRIV_STEP_IN, -1);
    while (ended) {
        done = spipe_priv_begin_stages(t, d, order, &begun, done);
        for (ended = 0, n = 0; n < d->num_stages; ++n) {
            const int s = order[n];
            if (!(begun & SPIPE_BIT(s)) || (done & SPIPE_BIT(s))) continue;
            if (!ended) t->segments[t->num_segments++].start = t->num_steps;
            t->segments[t->num_segments - 2].waits |= SPIPE_BIT(s);
            ended = 1;
            done |= SPIPE_BIT(s);
            spipe_priv_add_step(t, SPIPE_PRIV_STEP_HOST_END, s);
        }
    }
    spipe_priv_add_step(t, SPIPE_PRIV_STEP_OUT, -1);
    t->segments[t->num_segments].start = t->num_steps;
}

/* Writes the stages' part of the route, which does not depend on the plan. */
SPIPE_PRIV_RARE void spipe_priv_route_stages(spipe_priv_route_t *t, const spipe_desc_t *d) {
    int order[SPIPE_MAX_STAGES] = {0}, i;
    (void)spipe_priv_sort_stages(d, order);
    t->leaves = (1u << d->num_stages) - 1;
    t->in_order = 0;
    for (i = 0; i < d->num_stages; ++i) {
        t->in_order |= d->stages[i].ordered && !d->stages[i].host;
        t->after[i] = spipe_priv_stage_deps(d, i);
        t->leaves &= ~t->after[i];
    }
    spipe_priv_route_chains(t, d, order);
    t->awaited = spipe_priv_awaited(t, d);
    spipe_priv_route_steps(t, d, order);
}

/* Stages work on the user's own memory, and nothing is copied either way. */
SPIPE_PRIV_RARE int spipe_priv_no_copies(const spipe_priv_request_t *r, const spipe_priv_route_t *t,
                                         const spipe_plan_t *plan) {
    int i, copied = 0;
    for (i = 0; i < r->desc.num_buffers; ++i) {
        const spipe_priv_kind_t *k = spipe_priv_kind(r->desc.buffers[i].kind);
        copied |= (k->in || k->out) && t->path[i] != SPIPE_PRIV_PATH_ZERO_COPY;
    }
    return plan->schedule == SPIPE_SCHEDULE_ZERO_COPY && !copied;
}

SPIPE_PRIV_RARE void spipe_priv_route_plan(spipe_priv_route_t *t, const spipe_priv_request_t *r,
                                           const spipe_plan_t *plan) {
    spipe_priv_route_buffers(t, r, plan);
    t->no_copies = spipe_priv_no_copies(r, t, plan);
    t->blocks = t->pageable_copies && !r->facts.host_page_tables;
}
