/* ---- 14 resources: memory ------------------------------------------------------------------
   What resources are, and how runs have their memory in turn. Everything here is under one lock. */
#if defined(SPIPE_NO_THREADS)
#define SPIPE_PRIV_LOAD(x) (x)
#else
#define SPIPE_PRIV_LOAD(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#endif

/* A run that waits for memory. */
typedef struct spipe_priv_waiter {
    int rank;
    uintptr_t thread;
    struct spipe_priv_waiter *next;
} spipe_priv_waiter_t;

struct spipe_resources {
    spipe_priv_shared_t shared; /* first: it says whose provider to take */
    spipe_device_t facts;
    spipe_costs_t costs;
    size_t limit_threads;
    size_t num_runs;   /* under way, also those that wait for memory; */
    size_t num_active; /* those that do not; both are also read without the lock */
    size_t most_runs, num_pipelines;
    spipe_priv_pipeline_t *holders; /* runs that have memory, and give it back when they end */
    spipe_priv_space_t device, pinned;
    unsigned char *pinned_block;  /* what malloc gave; NULL where CUDA allocated it */
    spipe_priv_waiter_t *waiters; /* those who came first, and of a higher priority, first */
    spipe_priv_lending_t lending;
};

SPIPE_PRIV_RARE spipe_resources_t *spipe_priv_resources_of(const spipe_desc_t *d) {
    return d->resources;
}

/* One more, or less, of a number that is read without the lock, too. */
SPIPE_PRIV_RARE void spipe_priv_count_one(size_t *number, int one_more) {
#if defined(SPIPE_NO_THREADS)
    *number += one_more ? 1 : SIZE_MAX;
#else
    (void)__atomic_add_fetch(number, one_more ? 1 : SIZE_MAX, __ATOMIC_RELAXED);
#endif
}

/* A number of the calling thread. */
SPIPE_PRIV_RARE uintptr_t spipe_priv_this_thread(void) {
#if defined(SPIPE_NO_THREADS)
    return 0;
#else
    return (uintptr_t)pthread_self();
#endif
}

/* Who waits for memory: those of a higher priority first, else in the order in which they came. */
SPIPE_PRIV_RARE void spipe_priv_queue_up(spipe_resources_t *r, spipe_priv_waiter_t *w,
                                         spipe_priority_t priority) {
    spipe_priv_waiter_t **at = &r->waiters;
    w->rank = (priority == SPIPE_PRIORITY_MEDIUM) + 2 * (priority == SPIPE_PRIORITY_HIGH);
    w->thread = spipe_priv_this_thread();
    while (*at && (*at)->rank >= w->rank) at = &(*at)->next;
    w->next = *at;
    *at = w;
    spipe_priv_wake(r->lending.sync); /* some may have waited for a run of this thread */
}

SPIPE_PRIV_RARE void spipe_priv_step_out(spipe_resources_t *r, const spipe_priv_waiter_t *w) {
    spipe_priv_waiter_t **at = &r->waiters;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    spipe_priv_wake(r->lending.sync); /* the next one may be served */
}

/* Takes both memories of a pipeline, or none. Called with the lock held. */
SPIPE_PRIV_RARE int spipe_priv_take_both(spipe_resources_t *r, spipe_priv_memory_t *m,
                                         size_t device, size_t pinned) {
    unsigned char *dev = NULL, *pin = NULL;
    if (device > 0) dev = spipe_priv_space_take(&r->device, device, m->device);
    if (device > 0 && !dev) return 0;
    if (pinned > 0) pin = spipe_priv_space_take(&r->pinned, pinned, m->pinned);
    if (pinned > 0 && !pin) {
        if (dev) spipe_priv_space_give(&r->device, dev);
        return 0;
    }
    m->device = dev;
    if (!m->pinned_base) m->pinned = pin;
    return 1;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_too_large(spipe_priv_pipeline_t *p, size_t device,
                                                 size_t pinned) {
    const spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    return spipe_priv_refuse(&p->failure, cudaErrorMemoryAllocation,
                             "%zu bytes of device memory and %zu of pinned memory (%zu slots of "
                             "%zu elements) do not fit into resources of %zu and %zu, of which %zu "
                             "and %zu are kept by others; lower chunk or depth, or make larger "
                             "resources",
                             device, pinned, p->plan.depth, p->plan.chunk * p->plan.batch,
                             r->device.bytes, r->pinned.bytes, r->device.used, r->pinned.used);
}

SPIPE_PRIV_RARE int spipe_priv_is_waiting(const spipe_resources_t *r, uintptr_t thread) {
    const spipe_priv_waiter_t *w = r->waiters;
    while (w && w->thread != thread) w = w->next;
    return w != NULL;
}

/* Whether this thread has a run that has memory, so this one is in its stage. Called with the lock
   held. */
SPIPE_PRIV_RARE int spipe_priv_is_inside(const spipe_resources_t *r) {
    const spipe_priv_pipeline_t *h = r->holders;
    while (h && h->thread != spipe_priv_this_thread()) h = h->next_holder;
    return h != NULL;
}

/* Whether waiting can come to an end: somebody will give memory back. For a run in a stage that
   must be a thread that does not wait itself, or both would wait for each other. Called with the
   lock held. */
SPIPE_PRIV_RARE int spipe_priv_worth_waiting(const spipe_resources_t *r, int inside) {
    const spipe_priv_pipeline_t *h = r->holders;
    while (h && inside && spipe_priv_is_waiting(r, h->thread)) h = h->next_holder;
    return h != NULL;
}

/* Why a run does not wait any longer. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_cannot_wait(spipe_priv_pipeline_t *p, int first,
                                                   size_t device, size_t pinned) {
    const spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    if (p->request.desc.no_wait && (r->holders || !first)) {
        return spipe_priv_refuse(&p->failure, cudaErrorNotReady,
                                 "other runs have the resources' memory: %zu of %zu bytes on the "
                                 "device, %zu of %zu pinned; leave no_wait 0 to wait for them",
                                 r->device.used, r->device.bytes, r->pinned.used, r->pinned.bytes);
    }
    if (r->holders) {
        return spipe_priv_refuse(&p->failure, cudaErrorNotPermitted,
                                 "a run in a stage wants memory that only runs around such runs "
                                 "have, so it would wait for itself; make larger resources, or "
                                 "give it others");
    }
    return spipe_priv_too_large(p, device, pinned);
}

/* Waits until the memory is free, if others who will end have it. A run in a stage goes first:
   those who came before it may be waiting for the run around it. Called with the lock held. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_wait_for_memory(spipe_priv_pipeline_t *p, size_t device,
                                                       size_t pinned) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    const double began = spipe_priv_seconds();
    const int inside = spipe_priv_is_inside(r);
    spipe_priv_waiter_t me;
    cudaError_t e = cudaErrorNotReady;
    int waits = 0;
    spipe_priv_queue_up(r, &me, p->request.desc.priority);
    while (e == cudaErrorNotReady) {
        const int first = inside || r->waiters == &me;
        if (first && spipe_priv_take_both(r, &p->memory, device, pinned)) {
            e = cudaSuccess;
        } else if (p->request.desc.no_wait || (first && !spipe_priv_worth_waiting(r, inside))) {
            e = spipe_priv_cannot_wait(p, first, device, pinned);
            break;
        } else {
            if (!waits) spipe_priv_count_one(&r->num_active, 0);
            waits = 1;
            spipe_priv_wait(r->lending.sync);
            p->report.waited_ms = 1e3 * (spipe_priv_seconds() - began);
        }
    }
    if (waits) spipe_priv_count_one(&r->num_active, 1);
    spipe_priv_step_out(r, &me);
    if (e != cudaSuccess || p->stays) return e;
    p->thread = spipe_priv_this_thread();
    p->next_holder = r->holders;
    r->holders = p;
    return e;
}

/* Gives a pipeline's memory back; it remembers where that was. Called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_give_both(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    const spipe_priv_memory_t *m = &p->memory;
    spipe_priv_pipeline_t **at = &r->holders;
    if (m->device) spipe_priv_space_give(&r->device, m->device);
    if (m->pinned && !m->pinned_base) spipe_priv_space_give(&r->pinned, m->pinned);
    while (*at && *at != p) at = &(*at)->next_holder;
    if (*at) *at = p->next_holder;
    spipe_priv_wake(r->lending.sync);
}

/* Whether a pipeline has memory, or had when it ran last. */
SPIPE_PRIV_RARE int spipe_priv_has_memory(const spipe_priv_memory_t *m) {
    return m->device_bytes > 0 || m->pinned_bytes > 0;
}
