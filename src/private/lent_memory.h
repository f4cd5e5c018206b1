/* ---- 13 resources: memory ------------------------------------------------------------------
   What resources are, and how runs have their memory in turn. Everything here is under one lock. */
#if defined(SPIPE_NO_THREADS)
typedef int spipe_priv_key_t;
#else
typedef pthread_key_t spipe_priv_key_t;
#endif

/* A run that waits for memory, at each device that it wants some of. */
typedef struct spipe_priv_waiter {
    int rank;
    uintptr_t thread;
    const void *run; /* the same in all waiters of a run */
    struct spipe_priv_waiter *next;
} spipe_priv_waiter_t;

enum {
    SPIPE_PRIV_RANKS = 3,
    SPIPE_PRIV_MET = 128 /* requests of calls that are remembered */
};

/* Pipelines that run calls of spipe_run, and wait for the next. */
typedef struct spipe_priv_calls {
    spipe_priv_pipeline_t *idle; /* a list, the one that ran last first */
    size_t num_idle;
    uint64_t met[SPIPE_PRIV_MET]; /* hashes of requests, a ring */
    size_t num_met;
} spipe_priv_calls_t;

struct spipe_resources {
    spipe_priv_shared_t shared;     /* must be first: pipelines find the provider here */
    struct spipe_resources *others; /* those of other devices, made together: a ring, with one lock
                                       for all; these alone are a ring of one */
    spipe_device_t facts;
    size_t cpus, limit_threads;
    size_t num_runs;                     /* runs under way, those that wait for memory included */
    size_t num_active[SPIPE_PRIV_RANKS]; /* runs that do not wait, by rank of priority */
    size_t num_sharing; /* those that want threads; all three are also read without the lock */
    size_t most_runs, num_pipelines;
    spipe_priv_pipeline_t *holders; /* runs that have memory, and give it back when they end */
    spipe_priv_space_t device, pinned;
    unsigned char *pinned_block;  /* from malloc; NULL if CUDA allocated it */
    spipe_priv_waiter_t *waiters; /* by priority, then in the order in which they came */
    spipe_priv_lending_t lending;
    spipe_priv_key_t key; /* set in threads that have memory; valid if has_key */
    int has_key;
    spipe_priv_calls_t calls;
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

/* The rank of a priority; CUDA's default is its lowest. */
SPIPE_PRIV_RARE int spipe_priv_rank(spipe_priority_t priority) {
    return (priority == SPIPE_PRIORITY_MEDIUM) + 2 * (priority == SPIPE_PRIORITY_HIGH);
}

/* Of resources that were made together, those of a device; NULL: there are none. */
SPIPE_PRIV_RARE spipe_resources_t *spipe_priv_resources_on(spipe_resources_t *r, int device) {
    spipe_resources_t *s = r;
    while (s->facts.device != device) {
        s = s->others;
        if (s == r) return NULL;
    }
    return s;
}

/* Who waits for memory: those of a higher priority first, else in the order in which they came. */
SPIPE_PRIV_RARE void spipe_priv_queue_up(spipe_resources_t *r, spipe_priv_waiter_t *w,
                                         spipe_priority_t priority) {
    spipe_priv_waiter_t **at = &r->waiters;
    w->rank = spipe_priv_rank(priority);
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

/* Takes both memories of a pipeline, as many bytes as are noted in it, or none. Called with the
   lock held. */
SPIPE_PRIV_RARE int spipe_priv_take_both(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_memory_t *m = &p->memory;
    const size_t device = m->device_bytes;
    const size_t pinned = p->plan.pageable_slots || m->pinned_base ? 0 : m->pinned_bytes;
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

/* Adds a pipeline to the list of those that will give memory back. Called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_add_holder(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    p->lent.ended = 0;
    p->lent.next_holder = r->holders;
    r->holders = p;
}

/* Removes a pipeline from the list of those that will give memory back. Called with the lock held.
 */
SPIPE_PRIV_RARE void spipe_priv_no_holder(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_pipeline_t **at = &r->holders;
    while (*at && *at != p) at = &(*at)->lent.next_holder;
    if (*at) *at = p->lent.next_holder;
    spipe_priv_wake(r->lending.sync);
}

/* Gives a pipeline's memory back; it remembers where that was. Called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_give_both(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    const spipe_priv_memory_t *m = &p->memory;
    if (m->device) spipe_priv_space_give(&r->device, m->device);
    if (m->pinned && !m->pinned_base) spipe_priv_space_give(&r->pinned, m->pinned);
    spipe_priv_no_holder(p);
}

/* Takes the memory of all parts, or of none: a run that has one part and waits for another would
   make others wait for it. Returns the first part for which there is no memory, num if all have it.
   Called with the lock held. */
SPIPE_PRIV_RARE size_t spipe_priv_take_all(spipe_priv_pipeline_t *const *parts, size_t num) {
    size_t k, taken = 0;
    while (taken < num && spipe_priv_take_both(parts[taken])) ++taken;
    for (k = 0; k < taken && taken < num; ++k) spipe_priv_give_both(parts[k]);
    return taken;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_too_large(spipe_priv_pipeline_t *p) {
    const spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    const spipe_priv_memory_t *m = &p->memory;
    return spipe_priv_refuse(&p->failure, cudaErrorMemoryAllocation,
                             "%zu bytes of device memory and %zu of pinned memory (%zu slots of "
                             "%zu elements) do not fit into resources of %zu and %zu, of which %zu "
                             "and %zu are kept by others; lower chunk or depth, or make larger "
                             "resources",
                             m->device_bytes, m->pinned_bytes, p->plan.depth, p->plan.chunk,
                             r->device.bytes, r->pinned.bytes, r->device.used, r->pinned.used);
}

/* If a thread runs a part of a run on several devices: the thread that waits for all its parts;
   else 0. Called with the lock held. */
SPIPE_PRIV_RARE uintptr_t spipe_priv_starter_of(const spipe_resources_t *r, uintptr_t thread) {
    const spipe_resources_t *s = r;
    const spipe_priv_pipeline_t *h;
    do {
        for (h = s->holders; h; h = h->lent.next_holder) {
            if (h->lent.thread == thread && h->lent.starter) return h->lent.starter;
        }
        s = s->others;
    } while (s != r);
    return 0;
}

/* Whether a run cannot end while a thread waits: the thread runs it, or another part of it, or a
   part of a run in its stage. Called with the lock held. */
SPIPE_PRIV_RARE int spipe_priv_needs(const spipe_resources_t *r, const spipe_priv_pipeline_t *h,
                                     uintptr_t thread) {
    while (h->lent.thread != thread) {
        thread = spipe_priv_starter_of(r, thread);
        if (!thread) return 0;
        if (h->lent.starter == thread) return 1;
    }
    return 1;
}

/* Whether a run cannot end because of a thread that waits. Called with the lock held. */
SPIPE_PRIV_RARE int spipe_priv_is_stuck(const spipe_resources_t *r,
                                        const spipe_priv_pipeline_t *h) {
    const spipe_resources_t *s = r;
    const spipe_priv_waiter_t *w;
    do {
        for (w = s->waiters; w; w = w->next) {
            if (spipe_priv_needs(r, h, w->thread)) return 1;
        }
        s = s->others;
    } while (s != r);
    return 0;
}

/* Whether a thread has a run that has memory, so that what it runs now is in a stage. Called with
   the lock held. */
SPIPE_PRIV_RARE int spipe_priv_is_inside(const spipe_resources_t *r, uintptr_t thread) {
    const spipe_resources_t *s = r;
    const spipe_priv_pipeline_t *h;
    do {
        for (h = s->holders; h; h = h->lent.next_holder) {
            if (h->lent.thread == thread && !h->lent.ended) return 1;
        }
        s = s->others;
    } while (s != r);
    return 0;
}

/* Whether waiting can end: a run whose thread has not ended will give memory back. For a run in a
   stage, that run must not need a thread that waits, or both would wait for each other. Called with
   the lock held. */
SPIPE_PRIV_RARE int spipe_priv_worth_waiting(const spipe_resources_t *r, int inside) {
    const spipe_priv_pipeline_t *h = r->holders;
    while (h && (h->lent.ended || (inside && spipe_priv_is_stuck(r, h)))) h = h->lent.next_holder;
    return h != NULL;
}

/* Writes why a run does not wait any longer into its failure. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_cannot_wait(spipe_priv_pipeline_t *p, int first) {
    const spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    const spipe_priv_pipeline_t *h = r->holders;
    if (p->request.desc.no_wait && !first) {
        return spipe_priv_refuse(&p->failure, SPIPE_WOULD_WAIT,
                                 "other runs wait for the resources' memory already; leave no_wait "
                                 "0 to wait behind them");
    }
    if (p->request.desc.no_wait && r->holders) {
        return spipe_priv_refuse(&p->failure, SPIPE_WOULD_WAIT,
                                 "other runs have the resources' memory: %zu of %zu bytes on the "
                                 "device, %zu of %zu pinned; leave no_wait 0 to wait for them",
                                 r->device.used, r->device.bytes, r->pinned.used, r->pinned.bytes);
    }
    while (h && !h->lent.ended) h = h->lent.next_holder;
    if (h) {
        return spipe_priv_refuse(&p->failure, cudaErrorNotPermitted,
                                 "a thread has ended in the middle of a run, which has the memory; "
                                 "call spipe_pipeline_end, or destroy that pipeline");
    }
    if (r->holders) {
        return spipe_priv_refuse(&p->failure, cudaErrorNotPermitted,
                                 "a run in a stage wants memory that only runs around such runs "
                                 "have, so it would wait for itself; make larger resources, or "
                                 "give it others");
    }
    return spipe_priv_too_large(p);
}

/* Counts a run as waiting, or no longer, on each device that it has a part on. Called with the lock
   held. */
SPIPE_PRIV_RARE void spipe_priv_count_waiting(spipe_priv_pipeline_t *const *parts, size_t num,
                                              int ends) {
    const int rank = spipe_priv_rank(parts[0]->request.desc.priority);
    size_t k;
    for (k = 0; k < num; ++k) {
        spipe_resources_t *r = spipe_priv_resources_of(&parts[k]->request.desc);
        spipe_priv_count_one(&r->num_active[rank], ends);
    }
}

/* The first part that is not first in its queue; num: none. Called with the lock held. */
SPIPE_PRIV_RARE size_t spipe_priv_behind(spipe_priv_pipeline_t *const *parts, size_t num,
                                         const void *run) {
    size_t k = 0;
    while (k < num && spipe_priv_resources_of(&parts[k]->request.desc)->waiters->run == run) ++k;
    return k;
}

/* Waits until there is memory for all parts of a run, if others who will end have it. It is in the
   queues of all its devices at once, so of two runs one is first in all that both are in. A run in
   a stage goes first: those who came before it may be waiting for the run around it. Called with
   the lock held. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_wait_turn(spipe_priv_pipeline_t *const *parts, size_t num,
                                                 const void *run, uintptr_t thread) {
    spipe_resources_t *r = spipe_priv_resources_of(&parts[0]->request.desc);
    const double began = spipe_priv_seconds();
    const int inside = spipe_priv_is_inside(r, thread);
    cudaError_t e = SPIPE_WOULD_WAIT;
    int waits = 0;
    size_t k;
    for (;;) {
        size_t lacking = inside ? num : spipe_priv_behind(parts, num, run);
        const int first = lacking == num;
        if (first) lacking = spipe_priv_take_all(parts, num);
        if (lacking == num) {
            e = cudaSuccess;
            break;
        }
        r = spipe_priv_resources_of(&parts[lacking]->request.desc);
        if (parts[0]->request.desc.no_wait || (first && !spipe_priv_worth_waiting(r, inside))) {
            e = spipe_priv_cannot_wait(parts[lacking], first);
            break;
        }
        if (!waits) spipe_priv_count_waiting(parts, num, 0);
        waits = 1;
        spipe_priv_wait(r->lending.sync);
        for (k = 0; k < num; ++k) {
            parts[k]->report.waited_ms = 1e3 * (spipe_priv_seconds() - began);
        }
    }
    if (waits) spipe_priv_count_waiting(parts, num, 1);
    return e;
}

/* The same, and notes which thread has the memory. If a part gets no memory, its failure says why.
   Called with the lock held. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_wait_for_memory(spipe_priv_pipeline_t *const *parts,
                                                       size_t num) {
    const uintptr_t starter = parts[0]->lent.starter;
    spipe_priv_waiter_t me[SPIPE_MAX_DEVICES];
    cudaError_t e;
    size_t k;
    for (k = 0; k < num; ++k) {
        me[k].run = me;
        me[k].thread = starter ? starter : parts[0]->lent.thread;
        spipe_priv_queue_up(spipe_priv_resources_of(&parts[k]->request.desc), &me[k],
                            parts[0]->request.desc.priority);
    }
    e = spipe_priv_wait_turn(parts, num, me, me[0].thread);
    for (k = 0; k < num; ++k) {
        spipe_priv_step_out(spipe_priv_resources_of(&parts[k]->request.desc), &me[k]);
        if (e == cudaSuccess && !parts[k]->lent.stays) spipe_priv_add_holder(parts[k]);
    }
    return e;
}

/* Takes a pipeline's memory if it is free and nobody waits for memory. Called with the lock
   held. */
SPIPE_PRIV_RARE int spipe_priv_take_now(spipe_priv_pipeline_t *p) {
    if (spipe_priv_resources_of(&p->request.desc)->waiters || !spipe_priv_take_both(p)) return 0;
    spipe_priv_add_holder(p);
    return 1;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_take_memory(spipe_priv_pipeline_t *const *parts,
                                                   size_t num) {
    spipe_priv_sync_t *sync = spipe_priv_resources_of(&parts[0]->request.desc)->lending.sync;
    cudaError_t e;
    spipe_priv_lock(sync);
    e = spipe_priv_wait_for_memory(parts, num);
    spipe_priv_unlock(sync);
    return e;
}

/* Whether a pipeline has memory, or had when it ran last. */
SPIPE_PRIV_RARE int spipe_priv_has_memory(const spipe_priv_memory_t *m) {
    return m->device_bytes > 0 || m->pinned_bytes > 0;
}

/* Runs under way that want threads, on all devices of resources that were made together. */
SPIPE_PRIV_RARE size_t spipe_priv_all_sharing(const spipe_resources_t *r) {
    const spipe_resources_t *s = r;
    size_t all = 0;
    do {
        all += SPIPE_PRIV_LOAD(s->num_sharing);
        s = s->others;
    } while (s != r);
    return all;
}

/* Idle events, of those that block or of others. */
SPIPE_PRIV_RARE spipe_priv_idle_t *spipe_priv_idle_events(const spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    return &r->lending.events[p->request.desc.blocking != 0];
}
