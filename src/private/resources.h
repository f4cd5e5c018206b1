/* ---- 13 resources -------------------------------------------------------------------------
   Making, freeing and asking what runs share. */
enum {
    SPIPE_PRIV_LENT_DEVICE = 512 << 20, /* bytes of device memory that resources have by default */
    SPIPE_PRIV_LENT_PINNED = 128 << 20  /* bytes of pinned memory, likewise */
};

SPIPE_API spipe_resources_limits_t spipe_resources_limits_default(void) {
    spipe_resources_limits_t l;
    memset(&l, 0, sizeof l);
    l.device_bytes = SPIPE_AUTO;
    l.pinned_bytes = SPIPE_PRIV_LENT_PINNED;
    l.threads = SPIPE_AUTO;
    l.stamp = SPIPE_PRIV_STAMP;
    return l;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_check_limits(const spipe_resources_limits_t *l,
                                                    spipe_failure_t *f) {
    SPIPE_PRIV_REFUSE_IF(l->stamp != SPIPE_PRIV_STAMP,
                         "the limits were not begun; begin with spipe_resources_limits_default()");
    SPIPE_PRIV_REFUSE_IF(l->device_bytes == 0, "resources need device_bytes of 1 or more");
    SPIPE_PRIV_REFUSE_IF(l->threads == 0, "resources need 1 thread or more");
    SPIPE_PRIV_REFUSE_IF(l->pinned_bytes == SPIPE_AUTO, "pinned_bytes is not a number of bytes");
    return cudaSuccess;
}

/* Allocates memory, touches it and pins it in place, which is ten times faster than CUDA's pinned
   allocation; NULL: the system refuses. */
SPIPE_PRIV_RARE unsigned char *spipe_priv_pin_block(spipe_resources_t *r, size_t bytes) {
    unsigned char *at = spipe_priv_new_pages(bytes, &r->pinned_block);
    if (!at) return NULL;
    memset(at, 0, bytes);
    if (spipe_pin(at, bytes) == cudaSuccess) return at;
    free(r->pinned_block);
    r->pinned_block = NULL;
    return NULL;
}

/* Makes the pinned memory for staging. If the system refuses, there is none, and runs do without.
   */
SPIPE_PRIV_RARE void spipe_priv_pin_space(spipe_resources_t *r, size_t bytes) {
    void *at;
    if (bytes == 0) return;
    at = spipe_priv_pin_block(r, bytes);
    if (!at && spipe_pinned_alloc(&at, bytes) != cudaSuccess) return;
    r->pinned.base = (unsigned char *)at;
    r->pinned.bytes = bytes;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_fill_resources(spipe_resources_t *r,
                                                      const spipe_resources_limits_t *l,
                                                      spipe_failure_t *failure) {
    size_t device = l->device_bytes;
    cudaError_t e = spipe_device_get(&r->facts, -1);
    if (e != cudaSuccess) return spipe_priv_no_device(failure, e);
    if (device == SPIPE_AUTO) {
        const size_t quarter = r->facts.memory_bytes / 4;
        device =
            quarter < (size_t)SPIPE_PRIV_LENT_DEVICE ? quarter : (size_t)SPIPE_PRIV_LENT_DEVICE;
    }
    r->cpus = spipe_priv_num_cpus();
    r->limit_threads = l->threads == SPIPE_AUTO ? r->cpus : l->threads;
    e = cudaMalloc((void **)&r->device.base, device);
    if (e != cudaSuccess) {
        return spipe_priv_refuse(failure, e, "no room for resources of %zu bytes on the device",
                                 device);
    }
    r->device.bytes = device;
    r->lending.sync = spipe_priv_sync_create();
    if (!r->lending.sync) {
        (void)cudaFree(r->device.base);
        return spipe_priv_refuse(failure, cudaErrorMemoryAllocation, "no memory for a lock");
    }
    r->others = r;
    spipe_priv_watch_ends(r);
    r->shared.provider = spipe_priv_lender();
    spipe_priv_own_on(&r->shared.owner, r, r->facts.device);
    spipe_priv_pin_space(r, l->pinned_bytes);
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_resources_create(spipe_resources_t **resources,
                                             const spipe_resources_limits_t *limits,
                                             spipe_failure_t *failure) {
    const spipe_resources_limits_t own = spipe_resources_limits_default();
    const spipe_resources_limits_t *l = limits ? limits : &own;
    spipe_priv_visit_t visit;
    spipe_resources_t *r;
    cudaError_t e;
    if (failure) spipe_priv_failure_clear(failure);
    if (!resources) {
        return spipe_priv_refuse(failure, cudaErrorInvalidValue,
                                 "there is no pointer to put the resources into");
    }
    *resources = NULL;
    SPIPE_TRY(spipe_priv_check_limits(l, failure));
    r = (spipe_resources_t *)calloc(1, sizeof *r);
    if (!r) {
        return spipe_priv_refuse(failure, cudaErrorMemoryAllocation, "no memory for resources");
    }
    visit = spipe_priv_arrive(cudaStreamCaptureModeThreadLocal);
    e = spipe_priv_fill_resources(r, l, failure);
    spipe_priv_depart(&visit);
    if (e == cudaSuccess)
        *resources = r;
    else
        free(r);
    return e;
}

/* Whether no run or pipeline uses these resources, on any of their devices; if so, from now on none
   may begin to. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_close_resources(spipe_resources_t *r, spipe_failure_t *f) {
    size_t runs = 0, pipelines = 0;
    spipe_resources_t *s = r;
    SPIPE_TRY(spipe_priv_check_resources(r, f));
    spipe_priv_lock(r->lending.sync);
    do {
        runs += s->num_runs;
        pipelines += s->num_pipelines;
        s = s->others;
    } while (s != r);
    do {
        if (runs == 0 && pipelines == 0) SPIPE_PRIV_STORE(s->shared.owner.self, NULL);
        s = s->others;
    } while (s != r);
    spipe_priv_unlock(r->lending.sync);
    if (runs == 0 && pipelines == 0) return cudaSuccess;
    return spipe_priv_refuse(f, cudaErrorNotPermitted,
                             "%zu pipelines and runs still use the resources; destroy them first",
                             pipelines);
}

/* Frees the resources of one device; the lock stays. */
SPIPE_PRIV_RARE void spipe_priv_free_resources(spipe_resources_t *r, cudaError_t *e) {
    spipe_priv_keep_error(e, cudaSetDevice(r->facts.device));
    spipe_priv_free_idle(r, 1);
    spipe_priv_end_watch(r);
    spipe_priv_end_lending(&r->lending, e);
    spipe_priv_keep_error(e, cudaFree(r->device.base));
    if (r->pinned_block)
        spipe_priv_keep_error(e, spipe_priv_unpin_and_free(r->pinned.base, r->pinned_block));
    else
        spipe_priv_keep_error(e, spipe_pinned_free(r->pinned.base));
    free((void *)r->device.spans);
    free((void *)r->pinned.spans);
    free(r);
}

/* Frees the resources of one device in a forked process; the lock stays. What runs were changing
   at the fork is left. */
SPIPE_PRIV_RARE void spipe_priv_forget_resources(spipe_resources_t *r) {
    spipe_priv_end_watch(r);
    if (r->num_runs > 0) return;
    while (r->calls.idle) {
        spipe_priv_pipeline_t *p = r->calls.idle;
        r->calls.idle = p->lent.next_idle;
        spipe_priv_forget(p);
    }
    while (r->lending.all) {
        spipe_priv_lent_thread_t *t = r->lending.all;
        r->lending.all = t->next;
        free(t->thread);
        free(t);
    }
    free(r->pinned_block);
    free((void *)r->device.spans);
    free((void *)r->pinned.spans);
    free(r);
}

/* Frees the resources of all devices that were made together, and their lock. */
SPIPE_PRIV_RARE void spipe_priv_free_all(spipe_resources_t *r, int forked, cudaError_t *e) {
    spipe_priv_sync_t *sync = r->lending.sync;
    spipe_resources_t *s = r->others;
    for (;;) {
        spipe_resources_t *next = s->others;
        const int last = s == r;
        if (forked)
            spipe_priv_forget_resources(s);
        else
            spipe_priv_free_resources(s, e);
        if (last) break;
        s = next;
    }
    spipe_priv_sync_destroy(sync);
}

SPIPE_API cudaError_t spipe_resources_destroy(spipe_resources_t *r, spipe_failure_t *failure) {
    spipe_priv_visit_t visit;
    cudaError_t e = cudaSuccess;
    int before = 0;
    if (failure) spipe_priv_failure_clear(failure);
    if (!r) return e;
    e = spipe_priv_close_resources(r, failure);
    if (e == SPIPE_PRIV_FORKED) spipe_priv_free_all(r, 1, &e);
    if (e != cudaSuccess) return e;
    visit = spipe_priv_arrive(cudaStreamCaptureModeRelaxed);
    spipe_priv_keep_error(&e, cudaGetDevice(&before));
    spipe_priv_free_all(r, 0, &e);
    (void)cudaSetDevice(before);
    spipe_priv_depart(&visit);
    if (e == cudaSuccess) return e;
    return spipe_priv_refuse(failure, e, "freeing the resources failed: %s", cudaGetErrorString(e));
}

SPIPE_API cudaError_t spipe_resources_usage(spipe_resources_t *r, spipe_resources_usage_t *usage) {
    const spipe_priv_waiter_t *w;
    int i, device;
    if (!usage) return cudaErrorInvalidValue;
    memset(usage, 0, sizeof *usage);
    if (!r) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_check_resources(r, NULL));
    if (r->others != r) {
        SPIPE_TRY(spipe_priv_take_error(cudaGetDevice(&device)));
        r = spipe_priv_resources_on(r, device);
        if (!r) return cudaErrorInvalidDevice;
    }
    spipe_priv_lock(r->lending.sync);
    usage->runs = r->num_runs;
    usage->most_runs = r->most_runs;
    for (w = r->waiters; w; w = w->next) ++usage->waiting;
    usage->pipelines = r->num_pipelines;
    usage->device_bytes = r->device.used;
    usage->most_device_bytes = r->device.most;
    usage->pinned_bytes = r->pinned.used;
    usage->most_pinned_bytes = r->pinned.most;
    usage->threads = r->lending.num_threads;
    for (i = 0; i < SPIPE_PRIV_NUM_PRIORITIES; ++i) usage->streams += r->lending.streams[i].made;
    usage->events = r->lending.events[0].made + r->lending.events[1].made;
    spipe_priv_unlock(r->lending.sync);
    return cudaSuccess;
}
