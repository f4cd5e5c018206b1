/* ---- 14 resources: the provider -------------------------------------------------------------
   The provider of pipelines whose description names resources: memory, streams, events and threads
   are lent, not made. Everything here is under one lock. */
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
    size_t num_runs, most_runs, num_pipelines;
    size_t num_active; /* runs that do not wait for memory; also read without the lock */
    spipe_priv_pipeline_t *holders; /* runs that have memory, and give it back when they end */
    spipe_priv_space_t device, pinned;
    unsigned char *pinned_block;  /* what malloc gave; NULL where CUDA allocated it */
    spipe_priv_waiter_t *waiters; /* those who came first, and of a higher priority, first */
    spipe_priv_lending_t lending;
};

SPIPE_PRIV_RARE spipe_resources_t *spipe_priv_resources_of(const spipe_desc_t *d) {
    return d->resources;
}

/* Bytes that a plan may take of a space: half of what is free, so that there is some for the next
   run, but a sixteenth of all at the least. A kept pipeline runs later, when other memory is free.
 */
SPIPE_PRIV_RARE size_t spipe_priv_share_of(const spipe_priv_space_t *s, int kept) {
    const size_t least = s->bytes / SPIPE_PRIV_LEAST_SHARE;
    const size_t half = (kept ? s->bytes : s->bytes - s->used) / 2;
    return half > least ? half : least;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_lent_facts(spipe_priv_request_t *r, spipe_failure_t *f) {
    spipe_resources_t *s = spipe_priv_resources_of(&r->desc);
    size_t resident = 0, share, pinned;
    int i;
    SPIPE_PRIV_REFUSE_IF(s->facts.device != r->device,
                         "the resources are of device %d, and device %d is the current one",
                         s->facts.device, r->device);
    r->facts = s->facts;
    r->costs = s->costs;
    for (i = 0; i < r->desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &r->desc.buffers[i];
        if (b->kind == SPIPE_RESIDENT) resident += b->elem_bytes;
    }
    spipe_priv_lock(s->lending.sync);
    share = spipe_priv_share_of(&s->device, r->kept);
    pinned = spipe_priv_share_of(&s->pinned, r->kept);
    r->runs = s->num_active + 1;
    spipe_priv_unlock(s->lending.sync);
    r->beside = r->runs > 1 ? spipe_priv_beside : NULL;
    r->device_limit = share > resident ? share - resident : 1;
    if (r->pin_limit == 0 || r->pin_limit > pinned) r->pin_limit = pinned;
    return cudaSuccess;
}

/* One run more, or less, is not waiting. The number is read without the lock, too. */
SPIPE_PRIV_RARE void spipe_priv_count_active(spipe_resources_t *r, int one_more) {
#if defined(SPIPE_NO_THREADS)
    r->num_active += one_more ? 1 : SIZE_MAX;
#else
    (void)__atomic_add_fetch(&r->num_active, one_more ? 1 : SIZE_MAX, __ATOMIC_RELAXED);
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
            if (!waits) spipe_priv_count_active(r, 0);
            waits = 1;
            spipe_priv_wait(r->lending.sync);
            p->report.waited_ms = 1e3 * (spipe_priv_seconds() - began);
        }
    }
    if (waits) spipe_priv_count_active(r, 1);
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

SPIPE_PRIV_RARE cudaError_t spipe_priv_lent_arenas(spipe_priv_pipeline_t *p, size_t device,
                                                   size_t pinned) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_memory_t *m = &p->memory;
    const int own = p->plan.pageable_slots; /* nothing can be pinned */
    cudaError_t e = cudaSuccess;
    if (device == 0 && pinned == 0) return e;
    spipe_priv_lock(r->lending.sync);
    if (pinned > r->pinned.bytes && !own) {
        m->refused = pinned;
        e = spipe_priv_too_large(p, device, pinned);
    }
    if (e == cudaSuccess) e = spipe_priv_wait_for_memory(p, device, own ? 0 : pinned);
    spipe_priv_unlock(r->lending.sync);
    if (e != cudaSuccess) return e;
    m->device_bytes = device;
    m->pinned_bytes = pinned;
    m->pageable = own;
    if (own && pinned > 0) e = spipe_priv_pin_ring(p, pinned);
    if (e == cudaSuccess) return e;
    return spipe_priv_no_memory(p, e, pinned, "host", "");
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_lent_free_arenas(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_memory_t *m = &p->memory;
    const cudaError_t e = spipe_priv_free_apart(m);
    if (p->entered && spipe_priv_has_memory(m)) {
        spipe_priv_lock(r->lending.sync);
        spipe_priv_give_both(p);
        spipe_priv_unlock(r->lending.sync);
    }
    free(m->pinned_base);
    m->device = m->pinned = m->pinned_base = NULL;
    m->device_bytes = m->pinned_bytes = 0;
    return e;
}

/* One run more, or less, is under way. Called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_count_run(spipe_resources_t *r, int one_more) {
    r->num_runs += one_more ? 1 : SIZE_MAX;
    if (r->most_runs < r->num_runs) r->most_runs = r->num_runs;
    spipe_priv_count_active(r, one_more);
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_lent_enter(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_memory_t *m = &p->memory;
    cudaError_t e = cudaSuccess;
    spipe_priv_lock(r->lending.sync);
    if (!p->attached) ++r->num_pipelines;
    p->attached = 1;
    p->report.runs_beside = r->num_runs;
    p->report.waited_ms = 0.0;
    spipe_priv_count_run(r, 1);
    if (spipe_priv_has_memory(m)) {
        e = spipe_priv_wait_for_memory(p, m->device_bytes, m->pinned_base ? 0 : m->pinned_bytes);
    }
    if (e != cudaSuccess) spipe_priv_count_run(r, 0);
    spipe_priv_unlock(r->lending.sync);
    return e;
}

SPIPE_PRIV_RARE void spipe_priv_lent_leave(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_lock(r->lending.sync);
    if (spipe_priv_has_memory(&p->memory)) spipe_priv_give_both(p);
    spipe_priv_count_run(r, 0);
    spipe_priv_unlock(r->lending.sync);
}

/* Where a graph of enqueued runs names its memory, or arrays are pinned in place, a pipeline keeps
   the plan it has. */
SPIPE_PRIV_RARE int spipe_priv_lent_outdated(spipe_priv_pipeline_t *p) {
    const size_t runs = SPIPE_PRIV_LOAD(spipe_priv_resources_of(&p->request.desc)->num_active);
    const size_t planned = p->request.runs;
    if (p->stays || p->plan.staging == SPIPE_STAGING_REGISTER) return 0;
    if (runs <= 2 * planned && 2 * runs >= planned) return 0;
    if (spipe_priv_lent_facts(&p->request, NULL) != cudaSuccess) return 0;
    p->request.runs = runs;
    return 1;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_lent_stream(spipe_priv_pipeline_t *p, cudaStream_t *stream) {
    const spipe_priority_t priority = p->request.desc.priority;
    spipe_priv_lending_t *l = &spipe_priv_resources_of(&p->request.desc)->lending;
    cudaError_t e;
    *stream = (cudaStream_t)spipe_priv_take_idle(l, &l->streams[priority]);
    if (*stream) return cudaSuccess;
    e = spipe_stream_create(stream, priority);
    if (e != cudaSuccess) spipe_priv_one_less(l, &l->streams[priority]);
    return e;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_lent_event(spipe_priv_pipeline_t *p, cudaEvent_t *event) {
    spipe_priv_lending_t *l = &spipe_priv_resources_of(&p->request.desc)->lending;
    cudaError_t e;
    *event = (cudaEvent_t)spipe_priv_take_idle(l, &l->events);
    if (*event) return cudaSuccess;
    e = spipe_event_create(event);
    if (e != cudaSuccess) spipe_priv_one_less(l, &l->events);
    return e;
}

/* Streams and events go back for the next run, but not those of a run that failed: a stage may have
   left a capture in a stream. */
SPIPE_PRIV_RARE int spipe_priv_take_back(spipe_priv_pipeline_t *p, spipe_priv_idle_t *idle,
                                         void *item) {
    spipe_priv_lending_t *l = &spipe_priv_resources_of(&p->request.desc)->lending;
    if (!p->run.failed) return spipe_priv_put_idle(l, idle, item);
    spipe_priv_one_less(l, idle);
    return 0;
}

SPIPE_PRIV_RARE void spipe_priv_lent_end_streams(spipe_priv_pipeline_t *p, cudaError_t *e) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_lending_t *l = &r->lending;
    spipe_priv_idle_t *idle = &l->streams[p->request.desc.priority];
    const spipe_priv_streams_t *s = &p->streams;
    int i;
    for (i = 0; i < s->num_events; ++i) {
        if (spipe_priv_take_back(p, &l->events, (void *)s->events[i])) continue;
        spipe_priv_keep_error(e, cudaEventDestroy(s->events[i]));
    }
    for (i = s->first_owned; i < s->num; ++i) {
        if (spipe_priv_take_back(p, idle, (void *)s->streams[i])) continue;
        spipe_priv_keep_error(e, cudaStreamDestroy(s->streams[i]));
    }
    spipe_priv_lock(l->sync);
    if (p->attached) --r->num_pipelines;
    spipe_priv_unlock(l->sync);
}

SPIPE_PRIV_RARE void *spipe_priv_lent_start(spipe_priv_pipeline_t *p, void *(*fn)(void *arg),
                                            void *arg) {
    return spipe_priv_lend_thread(&spipe_priv_resources_of(&p->request.desc)->lending, fn, arg);
}

SPIPE_PRIV_RARE void spipe_priv_lent_join(spipe_priv_pipeline_t *p, void *thread) {
    spipe_priv_take_thread_back(&spipe_priv_resources_of(&p->request.desc)->lending, thread);
}

/* The runs under way have equal shares of the threads, but each has one of each kind. */
SPIPE_PRIV_RARE void spipe_priv_lent_share(spipe_priv_pipeline_t *p, size_t wanted[]) {
    const spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    const size_t runs = SPIPE_PRIV_LOAD(r->num_active);
    const size_t share = runs > 1 ? r->limit_threads / runs : r->limit_threads;
    size_t all = 0;
    int i;
    p->workers.beside = runs;
    for (i = 0; i < SPIPE_PRIV_NUM_QUEUES; ++i) all += wanted[i];
    for (i = 0; i < SPIPE_PRIV_NUM_QUEUES && share < all; ++i) {
        if (wanted[i] > 0) wanted[i] = wanted[i] * share > all ? wanted[i] * share / all : 1;
    }
}

SPIPE_PRIV_RARE int spipe_priv_lent_share_changed(const spipe_priv_pipeline_t *p) {
    const spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    return SPIPE_PRIV_LOAD(r->num_active) != p->workers.beside;
}

SPIPE_PRIV_RARE const spipe_priv_provider_t *spipe_priv_lender(void) {
    static const spipe_priv_provider_t provider = {
        spipe_priv_lent_facts,        spipe_priv_lent_stream,   spipe_priv_lent_event,
        spipe_priv_lent_end_streams,  spipe_priv_lent_arenas,   spipe_priv_lent_free_arenas,
        spipe_priv_lent_start,        spipe_priv_lent_join,     spipe_priv_lent_enter,
        spipe_priv_lent_leave,        spipe_priv_lent_outdated, spipe_priv_lent_share,
        spipe_priv_lent_share_changed};
    return &provider;
}
