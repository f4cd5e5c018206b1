/* ---- 3 describe ----------------------------------------------------------------------------
   Adding buffers and stages to a description; mistakes are kept for the check. */
SPIPE_API spipe_desc_t spipe_desc_default(void) {
    spipe_desc_t d;
    memset(&d, 0, sizeof d);
    d.count = d.chunk = d.depth = d.threads = SPIPE_AUTO;
    d.stamp = SPIPE_PRIV_STAMP;
    return d;
}

/* Whether spipe_desc_default made d. If not, its members may be garbage, so none is used. */
SPIPE_PRIV_RARE int spipe_priv_begun(const spipe_desc_t *d) {
    return d && d->stamp == SPIPE_PRIV_STAMP;
}

SPIPE_PRIV_RARE int spipe_priv_mistake(spipe_desc_t *d, const char *problem) {
    if (spipe_priv_begun(d) && !d->problem) d->problem = problem;
    return -1;
}

SPIPE_PRIV_RARE int spipe_priv_add_buffer(spipe_desc_t *d, spipe_kind_t kind, void *host,
                                          size_t bytes) {
    spipe_buffer_desc_t *b;
    if (!spipe_priv_begun(d)) return -1;
    if (d->num_buffers < 0 || d->num_buffers >= SPIPE_MAX_BUFFERS) {
        return spipe_priv_mistake(d, "too many buffers: at most 16; put several fields into one");
    }
    b = &d->buffers[d->num_buffers];
    memset(b, 0, sizeof *b);
    b->kind = kind;
    b->host = host;
    b->elem_bytes = bytes;
    return d->num_buffers++;
}

SPIPE_API int spipe_add_input(spipe_desc_t *d, const void *host, size_t elem_bytes) {
    return spipe_priv_add_buffer(d, SPIPE_INPUT, (void *)host, elem_bytes); /* never written */
}

SPIPE_API int spipe_add_output(spipe_desc_t *d, void *host, size_t elem_bytes) {
    return spipe_priv_add_buffer(d, SPIPE_OUTPUT, host, elem_bytes);
}

SPIPE_API int spipe_add_inout(spipe_desc_t *d, void *host, size_t elem_bytes) {
    return spipe_priv_add_buffer(d, SPIPE_INOUT, host, elem_bytes);
}

SPIPE_API int spipe_add_temp(spipe_desc_t *d, size_t elem_bytes) {
    return spipe_priv_add_buffer(d, SPIPE_TEMP, NULL, elem_bytes);
}

SPIPE_API int spipe_add_resident(spipe_desc_t *d, void *host, size_t bytes, int how) {
    const int i = spipe_priv_add_buffer(d, SPIPE_RESIDENT, host, bytes);
    if (i >= 0) d->buffers[i].resident = how;
    return i;
}

/* Callers of the user's functions: the first three in filling.h, the others in hostwork.h. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_fill_sources(struct spipe_priv_pipeline *p, int buffer,
                                                    const struct spipe_priv_at *at);
SPIPE_PRIV_RARE cudaError_t spipe_priv_fill_part(struct spipe_priv_pipeline *p, int buffer,
                                                 const struct spipe_priv_at *at);
SPIPE_PRIV_RARE cudaError_t spipe_priv_fill_work(struct spipe_priv_pipeline *p, int buffer,
                                                 const struct spipe_priv_at *at);
SPIPE_PRIV_RARE cudaError_t spipe_priv_drain_sink(struct spipe_priv_pipeline *p, int buffer,
                                                  const struct spipe_priv_at *at);

SPIPE_PRIV_RARE int spipe_priv_add_hosted(spipe_desc_t *d, spipe_kind_t kind, void *user,
                                          spipe_priv_caller_t caller, size_t elem_bytes) {
    const int i = spipe_priv_add_buffer(d, kind, NULL, elem_bytes);
    if (i < 0) return i;
    d->buffers[i].user = user;
    d->buffers[i].caller = caller;
    return i;
}

SPIPE_API int spipe_add_source(spipe_desc_t *d, spipe_source_fn source, void *user,
                               size_t elem_bytes, spipe_order_t order) {
    const int any = order == SPIPE_ANY_ORDER;
    const int i =
        any ? spipe_priv_add_hosted(d, SPIPE_SOURCE_AT, user, spipe_priv_fill_part, elem_bytes)
            : spipe_priv_add_hosted(d, SPIPE_SOURCE, user, spipe_priv_fill_sources, elem_bytes);
    if (i >= 0) d->buffers[i].source = source;
    return i;
}

SPIPE_API int spipe_add_sink(spipe_desc_t *d, spipe_sink_fn sink, void *user, size_t elem_bytes,
                             spipe_order_t order) {
    const spipe_kind_t kind = order == SPIPE_ANY_ORDER ? SPIPE_SINK_AT : SPIPE_SINK;
    const int i = spipe_priv_add_hosted(d, kind, user, spipe_priv_drain_sink, elem_bytes);
    if (i >= 0) d->buffers[i].sink = sink;
    return i;
}

SPIPE_API int spipe_add_split_source(spipe_desc_t *d, spipe_source_fn next, spipe_work_fn work,
                                     void *user, size_t ticket_bytes, size_t elem_bytes) {
    const int i = spipe_add_source(d, next, user, elem_bytes, SPIPE_IN_ORDER);
    if (i < 0) return i;
    d->buffers[i].work = work;
    d->buffers[i].ticket_bytes = ticket_bytes;
    d->buffers[i].filler = spipe_priv_fill_work;
    return i;
}

SPIPE_API int spipe_set_halo(spipe_desc_t *d, int buffer, size_t before, size_t after,
                             spipe_edge_t edge) {
    if (!spipe_priv_begun(d)) return -1;
    if (buffer < 0 || buffer >= d->num_buffers) {
        return spipe_priv_mistake(d, "spipe_set_halo: no such buffer; take what adding it gave");
    }
    d->buffers[buffer].halo_before = before;
    d->buffers[buffer].halo_after = after;
    d->buffers[buffer].edge = edge;
    return buffer;
}

SPIPE_API int spipe_add_stage(spipe_desc_t *d, const char *name, spipe_stage_fn fn, void *user) {
    spipe_stage_desc_t *s;
    if (!spipe_priv_begun(d)) return -1;
    if (d->num_stages < 0 || d->num_stages >= SPIPE_MAX_STAGES) {
        return spipe_priv_mistake(d, "too many stages: at most 16; enqueue several kernels in one");
    }
    s = &d->stages[d->num_stages];
    memset(s, 0, sizeof *s);
    s->name = name;
    s->fn = fn;
    s->user = user;
    return d->num_stages++;
}

SPIPE_API int spipe_add_host_stage(spipe_desc_t *d, const char *name, spipe_stage_fn fn, void *user,
                                   unsigned reads, unsigned writes) {
    const int i = spipe_add_stage(d, name, fn, user);
    if (i < 0) return i;
    d->stages[i].host = 1;
    d->stages[i].reads = reads;
    d->stages[i].writes = writes;
    return i;
}

SPIPE_PRIV_RARE spipe_stage_desc_t *spipe_priv_stage_at(spipe_desc_t *d, int stage) {
    if (spipe_priv_begun(d) && stage >= 0 && stage < d->num_stages) return &d->stages[stage];
    (void)spipe_priv_mistake(d, "no such stage; use the number that spipe_add_stage returned");
    return NULL;
}

SPIPE_API int spipe_stage_after(spipe_desc_t *d, int stage, const char *after) {
    spipe_stage_desc_t *s = spipe_priv_stage_at(d, stage);
    if (!s) return -1;
    s->after_given = 1;
    if (after && s->num_after >= SPIPE_MAX_STAGES) {
        return spipe_priv_mistake(d, "a stage waits for more stages than there can be");
    }
    if (after) s->after[s->num_after++] = after;
    return stage;
}

SPIPE_API int spipe_stage_ordered(spipe_desc_t *d, int stage) {
    spipe_stage_desc_t *s = spipe_priv_stage_at(d, stage);
    if (!s) return -1;
    s->ordered = 1;
    return stage;
}

SPIPE_API int spipe_stage_elementwise(spipe_desc_t *d, int stage) {
    spipe_stage_desc_t *s = spipe_priv_stage_at(d, stage);
    if (!s) return -1;
    s->elementwise = 1;
    return stage;
}

SPIPE_API int spipe_stage_replayable(spipe_desc_t *d, int stage) {
    spipe_stage_desc_t *s = spipe_priv_stage_at(d, stage);
    if (!s) return -1;
    s->replayable = 1;
    return stage;
}
