/* ---- 4 execute: the provider ---------------------------------------------------------------
   Where a pipeline's memory, streams and threads come from: NULL = from CUDA and the system, for
   this pipeline alone; else from what runs share (lent.h). */
/* The functions that lend a pipeline memory, streams, events and threads from resources. Without a
   provider CUDA and the system make these for the pipeline alone. */
struct spipe_priv_provider {
    /* Sets the device's facts, and how much memory a plan may take. */
    cudaError_t (*facts)(spipe_priv_request_t *r, spipe_failure_t *f);
    /* Takes streams and events, as many as there are of those that the next calls will ask for. */
    void (*ahead)(struct spipe_priv_pipeline *p, int num_streams, size_t num_events);
    cudaError_t (*stream)(struct spipe_priv_pipeline *p, cudaStream_t *stream);
    cudaError_t (*event)(struct spipe_priv_pipeline *p, cudaEvent_t *event);
    void (*end_streams)(struct spipe_priv_pipeline *p, cudaError_t *e); /* and of events */
    cudaError_t (*arenas)(struct spipe_priv_pipeline *p, size_t device, size_t pinned);
    cudaError_t (*free_arenas)(struct spipe_priv_pipeline *p);
    void *(*start_thread)(struct spipe_resources *r, void *(*fn)(void *arg), void *arg);
    void (*join_thread)(struct spipe_resources *r, void *thread);
    /* Called before a run's first operation, and after its last one. */
    cudaError_t (*enter)(struct spipe_priv_pipeline *p);
    void (*leave)(struct spipe_priv_pipeline *p);
    /* The pipeline keeps its memory until it is destroyed. */
    void (*stay)(struct spipe_priv_pipeline *p);
    /* Whether a kept pipeline must be planned anew: for a far smaller or larger number of runs, or
       because others have the memory that its plan needs. If so, it has given its memory back. */
    int (*outdated)(struct spipe_priv_pipeline *p);
    /* Lowers the threads wanted of each kind to the run's share. */
    void (*share)(struct spipe_priv_pipeline *p, size_t wanted[]);
    /* Between two chunks: follows a share that has changed, lets other runs have their turn. */
    void (*between)(struct spipe_priv_pipeline *p);
    /* Called by spipe_run before the description is checked. 1: the run was made, and e is what
       became of it; 0: spipe_run must make it, or e and f say why there can be none. */
    int (*run)(const spipe_desc_t *d, spipe_report_t *report, cudaError_t *e, spipe_failure_t *f,
               spipe_priv_visit_t *visit);
};

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
