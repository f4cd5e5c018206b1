/* ---- 13 execute: the request ---------------------------------------------------------------
   The description as it is kept, what kind of memory its arrays are, and planning it. The one place
   that asks CUDA about arrays. Writes spipe_priv_request_t and nothing else. */
/* Copies a description without the buffers and stages that it does not have. */
SPIPE_PRIV_RARE void spipe_priv_copy_desc(spipe_desc_t *to, const spipe_desc_t *d) {
    memcpy((void *)to, (const void *)d, offsetof(spipe_desc_t, buffers));
    memcpy((void *)to->buffers, (const void *)d->buffers,
           (size_t)d->num_buffers * sizeof d->buffers[0]);
    memcpy((void *)to->stages, (const void *)d->stages,
           (size_t)d->num_stages * sizeof d->stages[0]);
    to->problem = d->problem;
    to->stamp = d->stamp;
}

/* What kind of memory an array is, also where count is 0: what may be captured does not depend on
   the count. Its first and its last byte must be of one kind: CUDA refuses a copy across the end of
   what is pinned, in the middle of a run. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_look_at_array(spipe_priv_request_t *r, int i,
                                                     spipe_failure_t *f) {
    const unsigned char *host = (const unsigned char *)r->desc.buffers[i].host;
    const size_t bytes = spipe_priv_array_bytes(&r->desc, i);
    spipe_priv_array_t *a = &r->arrays[i];
    void *mapped = NULL;
    int last;
    a->type = SPIPE_PRIV_PAGEABLE;
    a->pins = 0;
    a->mapped = NULL;
    if (!host) return cudaSuccess;
    SPIPE_TRY(spipe_priv_memory_type(host, &a->type, &mapped));
    last = a->type;
    if (bytes > 1) SPIPE_TRY(spipe_priv_memory_type(host + bytes - 1, &last, NULL));
    SPIPE_PRIV_REFUSE_IF(last != a->type,
                         "buffer %d: the first of its %zu bytes is in %s memory, the last is not; "
                         "is it too short, or pinned only in part?",
                         i, bytes, spipe_priv_memory_names[a->type]);
    if (a->type != SPIPE_PRIV_PAGEABLE) a->mapped = (unsigned char *)mapped;
    return cudaSuccess;
}

/* Pins an array in place for a run. *done 0: the system refuses, which is no failure. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_register_array(spipe_priv_request_t *r, int i, int *done) {
    const spipe_buffer_desc_t *b = &r->desc.buffers[i];
    spipe_priv_array_t *a = &r->arrays[i];
    const unsigned char *mapped = a->mapped;
    if (a->registered) return cudaSuccess;
    a->registered = spipe_pin(b->host, r->desc.count * b->elem_bytes) == cudaSuccess;
    if (!a->registered) {
        (void)cudaGetLastError();
        *done = 0;
    }
    SPIPE_TRY(spipe_priv_look_at_array(r, i, NULL));
    a->pins = a->registered;
    r->other_arrays |= a->mapped != mapped;
    return cudaSuccess;
}

/* Pins the pageable arrays in place, of which the plan then says that they are. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_register(spipe_priv_request_t *r, int *done) {
    int i;
    *done = 1;
    for (i = 0; i < r->desc.num_buffers && r->desc.count > 0; ++i) {
        const spipe_buffer_desc_t *b = &r->desc.buffers[i];
        if (!spipe_priv_is_array(b) || !b->host) continue;
        if (r->arrays[i].type != SPIPE_PRIV_PAGEABLE) continue;
        SPIPE_TRY(spipe_priv_register_array(r, i, done));
    }
    return cudaSuccess;
}

/* Pins the same arrays for another run. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_register_again(spipe_priv_request_t *r, int *done) {
    int i;
    *done = 1;
    for (i = 0; i < r->desc.num_buffers; ++i) {
        if (r->arrays[i].pins) SPIPE_TRY(spipe_priv_register_array(r, i, done));
    }
    return cudaSuccess;
}

/* Whether runs pin arrays in place. */
SPIPE_PRIV_RARE int spipe_priv_registers(const spipe_priv_request_t *r) {
    int i, pins = 0;
    for (i = 0; i < r->desc.num_buffers; ++i) pins |= r->arrays[i].pins;
    return pins;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_look_at_arrays(spipe_priv_request_t *r, spipe_failure_t *f) {
    int i;
    for (i = 0; i < r->desc.num_buffers; ++i) SPIPE_TRY(spipe_priv_look_at_array(r, i, f));
    return cudaSuccess;
}

/* Completes the failure of asking CUDA about a request. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_answered(cudaError_t e, spipe_failure_t *f) {
    if (e == cudaSuccess || (f && f->error == e)) return e;
    (void)cudaGetLastError();
    return spipe_priv_refuse(f, e, "asking CUDA about the arrays failed: %s",
                             cudaGetErrorString(e));
}

/* The device's facts, its costs, and the arrays: all that planning needs. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_request_begin(spipe_priv_request_t *r, const spipe_desc_t *d,
                                                     int kept, spipe_failure_t *f) {
    const spipe_priv_provider_t *from = spipe_priv_provider_of(d);
    cudaError_t e;
    r->desc = *d;
    r->desc.count = spipe_priv_desc_count(d);
    r->kept = kept;
    r->arrays_known = !kept;
    r->may_register = 1;
    r->sanitized = getenv("NV_SANITIZER_INJECTION_TRANSPORT_TYPE") != NULL;
    r->apart = r->sanitized || (SPIPE_PRIV_ASAN && d->checked);
    e = from ? from->facts(r, f) : spipe_priv_device_facts(&r->facts, r->device);
    if (!from) r->costs = spipe_priv_costs_for(r->facts.name);
    if (d->costs) r->costs = *d->costs;
    if (e == cudaSuccess) e = spipe_priv_look_at_arrays(r, f);
    return spipe_priv_answered(e, f);
}

/* Asks for the number of CPUs and the size of the cache, once, if staging may depend on them. */
SPIPE_PRIV_RARE void spipe_priv_request_host(spipe_priv_request_t *r, double staged_bytes) {
    if (r->cpus == 0) r->cpus = spipe_priv_num_cpus();
    if (r->cache > 0 || (!r->kept && staged_bytes < (double)SPIPE_PRIV_ASK_CACHE)) return;
    r->cache = spipe_priv_cache_bytes();
}

/* Bytes of the whole that are in pageable arrays, or pass through sources and sinks. */
SPIPE_PRIV_RARE double spipe_priv_staged_bytes(const spipe_priv_work_t *w) {
    return spipe_priv_real(w->count) *
           (w->pageable_in + w->pageable_out + w->hosted_in + w->hosted_out);
}

/* 1 = the system refused to pin a ring, half of it and a quarter of it. */
SPIPE_PRIV_RARE int spipe_priv_no_pins(const spipe_priv_request_t *r) {
    return r->pin_refusals > 2;
}

/* The work with the kernels' time, where it is known (kernel_s >= 0), or assumed. */
SPIPE_PRIV_RARE spipe_priv_work_t spipe_priv_request_work(const spipe_priv_request_t *r,
                                                          double kernel_s) {
    spipe_priv_work_t w =
        spipe_priv_work_of(&r->desc, &r->facts, r->arrays, r->kept, r->cpus > 0 ? r->cpus : 1);
    if (!r->may_register || r->pin_refusals > 0) w.flags &= ~(unsigned)SPIPE_PRIV_MAY_REGISTER;
    if (r->pin_refusals > 0) w.flags |= SPIPE_PRIV_FEW_PINS;
    if (spipe_priv_no_pins(r)) w.flags |= SPIPE_PRIV_NO_PINS;
    if (r->device_limit > 0 && w.machine.memory > spipe_priv_real(r->device_limit)) {
        w.machine.memory = spipe_priv_real(r->device_limit);
    }
    w.machine.cache = spipe_priv_real(r->cache);
    w.machine.runs = r->runs;
    w.machine.beside = r->beside;
    w.kernel_s = kernel_s >= 0.0 ? kernel_s : spipe_priv_assumed_kernel(&r->costs, &w);
    return w;
}

/* Lowers a way's slots to what fits into the memory that is free. */
SPIPE_PRIV_RARE void spipe_priv_fit_way(const spipe_priv_fit_t *fit, spipe_priv_way_t *y) {
    const size_t chunks = fit->elems / y->chunk;
    if (fit->slots == 0) return;
    if (y->depth > fit->slots) y->depth = fit->slots;
    if (chunks == 0) y->chunk = fit->elems;
    if (y->batch > chunks) y->batch = chunks > 0 ? chunks : 1;
    if (y->fill_threads > y->depth) y->fill_threads = y->depth;
    if (y->drain_threads > y->depth) y->drain_threads = y->depth;
}

/* Lists the best ways, best first, and explains the first one. */
SPIPE_PRIV_RARE size_t spipe_priv_request_plan(const spipe_priv_request_t *r,
                                               const spipe_priv_work_t *w, spipe_priv_way_t *ways,
                                               size_t capacity, spipe_plan_t *plan) {
    spipe_priv_planner_t planner;
    size_t num;
    memset(&planner, 0, sizeof planner);
    planner.costs = &r->costs;
    planner.work = w;
    planner.desc = &r->desc;
    planner.best = ways;
    planner.capacity = capacity;
    planner.pinned_bytes = r->pin_limit;
    num = spipe_priv_list_ways(&planner);
    spipe_priv_fit_way(&r->fit, &ways[0]);
    *plan = spipe_priv_explain(&r->desc, &r->costs, w, &ways[0]);
    if (r->fit.slots > 0) plan->why_chunk = "as much as fits into the memory that is free";
    plan->num_candidates = planner.num_compared;
    return num;
}

/* If the calling thread fills pageable slots from positioned sources, and everything is in one
   stream, it reads and copies piece by piece: fewer launches will do, and little host memory is
   touched for the first time. Not with a host stage: it fills while it waits for that. */
SPIPE_PRIV_RARE void spipe_priv_read_in_pieces(spipe_priv_pipeline_t *p) {
    spipe_desc_t *d = &p->request.desc;
    int i;
    if (!p->plan.pageable_slots || !p->run.one_stream || p->plan.fill_threads > 0) return;
    if (p->request.kept || p->route.num_segments > 1) return;
    if (d->timeline || p->request.facts.pageable_access) return; /* the GPU would read the block */
    for (i = 0; i < d->num_buffers; ++i) {
        spipe_buffer_desc_t *b = &d->buffers[i];
        if (b->kind != SPIPE_SOURCE_AT || b->on_device || b->halo_before || b->halo_after) continue;
        if (p->plan.chunk * b->elem_bytes <= SPIPE_PRIV_PIECE) continue;
        b->on_device = SPIPE_PRIV_IN_PIECES;
    }
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_refuse_zero_copy(const spipe_priv_request_t *r,
                                                        spipe_failure_t *f) {
    if (r->desc.schedule != SPIPE_ZERO_COPY || r->facts.map_host_memory) return cudaSuccess;
    return spipe_priv_refuse(f, cudaErrorNotSupported,
                             "SPIPE_ZERO_COPY needs a device that can map host "
                             "memory; leave schedule to the library");
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_no_device(spipe_failure_t *f, cudaError_t e) {
    (void)cudaGetLastError();
    return spipe_priv_refuse(f, e, "the device cannot be used: %s", cudaGetErrorString(e));
}

SPIPE_API cudaError_t spipe_plan(const spipe_desc_t *d, int kept, spipe_plan_t *plan,
                                 spipe_failure_t *failure) {
    spipe_priv_request_t r;
    spipe_priv_way_t ways[SPIPE_PRIV_CANDIDATES];
    spipe_priv_work_t w;
    spipe_priv_visit_t visit;
    cudaError_t e;
    if (!plan) return spipe_priv_refuse(failure, cudaErrorInvalidValue, "the plan is NULL");
    memset(plan, 0, sizeof *plan);
    SPIPE_TRY(kept ? spipe_priv_check_desc(d, failure) : spipe_desc_check(d, failure));
    memset(&r, 0, sizeof r);
    visit = spipe_priv_arrive(cudaStreamCaptureModeThreadLocal);
    e = cudaGetDevice(&r.device);
    if (e == cudaSuccess)
        e = spipe_priv_request_begin(&r, d, kept, failure);
    else
        (void)spipe_priv_no_device(failure, e);
    spipe_priv_depart(&visit);
    if (e == cudaSuccess) e = spipe_priv_refuse_zero_copy(&r, failure);
    if (e != cudaSuccess) return e;
    w = spipe_priv_request_work(&r, -1.0);
    spipe_priv_request_host(&r, spipe_priv_staged_bytes(&w));
    w = spipe_priv_request_work(&r, -1.0);
    (void)spipe_priv_request_plan(&r, &w, ways, kept ? SPIPE_PRIV_CANDIDATES : 1, plan);
    return cudaSuccess;
}
