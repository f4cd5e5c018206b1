/* ---- 3 describe: hooks ---------------------------------------------------------------------
   What other headers of the library, and tests, may hang into a run. */
struct spipe_priv_pipeline;
struct spipe_priv_slot;

/* Takes the memory of all parts of a run from resources, or none. */
typedef cudaError_t (*spipe_priv_take_fn)(struct spipe_priv_pipeline *const *parts, size_t num);

/* Behind desc.hooks; any member may be NULL. */
typedef struct spipe_priv_hooks {
    /* Several GPUs: called in place of spipe_run's own code. */
    cudaError_t (*run)(const spipe_desc_t *d, spipe_report_t *report, spipe_priv_visit_t *visit);
    /* Several GPUs: the number of the next chunk that this GPU does; SPIPE_AUTO = none. */
    size_t (*next_chunk)(struct spipe_priv_pipeline *p);
    /* And whether the sources were read for it. */
    void (*chunk_read)(struct spipe_priv_pipeline *p, int read);
    void *user;
    /* Tests: called before a GPU asks for a chunk (last = 0) and after its last one (1). */
    void (*turn)(int place, int last);
    /* Several GPUs with resources: has `take` take the memory of all of them at once. */
    cudaError_t (*gather)(struct spipe_priv_pipeline *p, spipe_priv_take_fn take);
} spipe_priv_hooks_t;

/* Whether a timeline was begun, so that its watcher may be called. */
SPIPE_PRIV_LOCAL int spipe_priv_watches(const struct spipe_timeline *timeline) {
    const spipe_priv_watcher_t *w = (const spipe_priv_watcher_t *)(const void *)timeline;
    return w->stamp == SPIPE_PRIV_STAMP;
}

/* The first members of resources. */
typedef struct spipe_priv_shared {
    const struct spipe_priv_provider *provider;
    spipe_priv_owner_t owner;
} spipe_priv_shared_t;

/* Whether resources were made here, and not destroyed; f says what is wrong with them. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_check_resources(const struct spipe_resources *resources,
                                                        spipe_failure_t *f) {
    const spipe_priv_shared_t *s = (const spipe_priv_shared_t *)(const void *)resources;
    const cudaError_t e = spipe_priv_is_owned(&s->owner, resources);
    if (e == cudaSuccess) return e;
    return spipe_priv_refuse(f, e,
                             e == SPIPE_PRIV_FORKED ? SPIPE_PRIV_FORKED_WORDS("resources were")
                                                    : "the resources are not made, or were "
                                                      "destroyed");
}
