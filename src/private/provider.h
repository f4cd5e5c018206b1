/* ---- 13 execute: the provider --------------------------------------------------------------
   Where a pipeline's memory, streams and threads come from: NULL = from CUDA and the system, for
   this pipeline alone; else from what runs share (lent.h). */
SPIPE_PRIV_RARE const spipe_priv_provider_t *spipe_priv_provider_of(const spipe_desc_t *d) {
    const spipe_priv_shared_t *shared = (const spipe_priv_shared_t *)(const void *)d->resources;
    return shared ? shared->provider : NULL;
}

/* Whether a description names resources that may be asked before it is checked. */
SPIPE_PRIV_RARE int spipe_priv_has_lender(const spipe_desc_t *d) {
    return spipe_priv_begun(d) && !d->problem && d->resources &&
           spipe_priv_check_resources(d->resources, NULL) == cudaSuccess;
}

/* Borrows memory from resources, until check_out; may wait for other runs. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_in(spipe_priv_pipeline_t *p) {
    if (p->lent.entered || !p->provider) return cudaSuccess;
    SPIPE_TRY(p->provider->enter(p));
    p->lent.entered = 1;
    return cudaSuccess;
}

/* Unpins what was pinned for a run. What stayed pinned would show the old pages once the user has
   put another array at its address. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_unregister(spipe_priv_request_t *r) {
    cudaError_t e = cudaSuccess;
    int i;
    for (i = 0; i < r->desc.num_buffers; ++i) {
        if (!r->arrays[i].registered) continue;
        r->arrays[i].registered = 0;
        spipe_priv_keep_error(&e, spipe_unpin(r->desc.buffers[i].host));
    }
    return e;
}

/* Ends what a run has for itself: arrays pinned in place, memory of resources. */
SPIPE_PRIV_RARE void spipe_priv_check_out(spipe_priv_pipeline_t *p) {
    (void)spipe_priv_unregister(&p->request);
    if (!p->provider || !p->lent.entered || p->lent.stays) return;
    p->lent.entered = 0;
    p->provider->leave(p);
}
