/* ---- 13 execute: the provider --------------------------------------------------------------
   Where a pipeline's memory, streams and threads come from. Here: made by CUDA and the system for
   this pipeline alone. resources.h has the other one, which lends what runs share. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_own_facts(spipe_priv_request_t *r, spipe_failure_t *f) {
    (void)f;
    SPIPE_TRY(spipe_priv_device_facts(&r->facts, r->device));
    r->costs = r->desc.costs ? *r->desc.costs : spipe_priv_costs_for(r->facts.name);
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_own_stream(spipe_priv_pipeline_t *p, cudaStream_t *stream) {
    return spipe_stream_create(stream, p->request.desc.priority);
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_own_event(spipe_priv_pipeline_t *p, cudaEvent_t *event) {
    (void)p;
    return spipe_event_create(event);
}

SPIPE_PRIV_RARE void *spipe_priv_own_thread(spipe_priv_pipeline_t *p, void *(*fn)(void *arg),
                                            void *arg) {
    (void)p;
    return spipe_priv_thread_start(fn, arg);
}

SPIPE_PRIV_RARE void spipe_priv_own_join(spipe_priv_pipeline_t *p, void *thread) {
    (void)p;
    spipe_priv_thread_join(thread);
}

/* What resources begin with, too: whoever is given them finds their provider there. */
SPIPE_PRIV_RARE const spipe_priv_provider_t *spipe_priv_provider_of(const spipe_desc_t *d) {
    static const spipe_priv_provider_t own = {spipe_priv_own_facts,
                                              spipe_priv_own_stream,
                                              spipe_priv_own_event,
                                              spipe_priv_destroy_streams,
                                              spipe_priv_allocate_arenas,
                                              spipe_priv_free_arenas,
                                              spipe_priv_own_thread,
                                              spipe_priv_own_join,
                                              NULL,
                                              NULL,
                                              NULL,
                                              NULL};
    const spipe_priv_shared_t *shared = (const spipe_priv_shared_t *)(const void *)d->resources;
    return shared ? shared->provider : &own;
}

/* Takes part in what is shared, until check_out; may wait for others. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_in(spipe_priv_pipeline_t *p) {
    if (p->entered || !p->provider->enter) return cudaSuccess;
    SPIPE_TRY(p->provider->enter(p));
    p->entered = 1;
    return cudaSuccess;
}

SPIPE_PRIV_RARE void spipe_priv_check_out(spipe_priv_pipeline_t *p) {
    if (!p->entered || p->stays) return;
    p->entered = 0;
    p->provider->leave(p);
}
