/* ---- 4 execute: the request ----------------------------------------------------------------
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
        if (!spipe_priv_kind(b->kind)->array || !b->host) continue;
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

/* Seconds that a thread takes to read some bytes of an array into memory of its own. */
SPIPE_PRIV_RARE double spipe_priv_time_thread(void *own, const void *host, size_t bytes) {
    const double began = spipe_priv_clock();
    memcpy(own, host, bytes);
    SPIPE_PRIV_COPIED(bytes, 0);
    return spipe_priv_clock() - began;
}

/* The same of the GPU. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_time_gpu(void *dev, const void *host, size_t bytes,
                                                double *seconds) {
    const double began = spipe_priv_clock();
    SPIPE_TRY(cudaMemcpyAsync(dev, host, bytes, cudaMemcpyDefault, cudaStreamPerThread));
    SPIPE_TRY(cudaStreamSynchronize(cudaStreamPerThread));
    *seconds = spipe_priv_clock() - began;
    return cudaSuccess;
}

/* Some GPUs read pageable memory by themselves: at the link's rate, or, for pages of a mapped file,
   a hundred times slower than a thread. So the first bytes of each array tell: a thread reads some
   of them, the GPU those behind them. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_measure_pages(spipe_priv_request_t *r) {
    const size_t most = 1 << 20;
    unsigned char *own = NULL;
    void *dev = NULL;
    double thread = 0.0, gpu = 0.0, t = 0.0;
    cudaError_t e = cudaSuccess;
    int i;
    r->reads_pages = 0;
    if (!r->facts.host_page_tables || r->desc.staging != SPIPE_STAGING_AUTO) return e;
    own = (unsigned char *)malloc(most);
    if (own) e = cudaMalloc(&dev, most);
    for (i = 0; i < r->desc.num_buffers && dev && e == cudaSuccess; ++i) {
        const spipe_buffer_desc_t *b = &r->desc.buffers[i];
        const unsigned char *host = (const unsigned char *)b->host;
        size_t bytes = spipe_priv_array_bytes(&r->desc, i) / 2;
        if (!spipe_priv_kind(b->kind)->array || r->arrays[i].type != SPIPE_PRIV_PAGEABLE) continue;
        if (bytes > most) bytes = most;
        if (bytes == 0) continue;
        thread += spipe_priv_time_thread(own, host, bytes);
        e = spipe_priv_time_gpu(dev, host + bytes, bytes, &t);
        gpu += t;
    }
    if (dev) spipe_priv_keep_error(&e, cudaFree(dev));
    free(own);
    r->reads_pages = e == cudaSuccess && thread > 0.0 && gpu < thread;
    if (e != cudaSuccess) (void)cudaGetLastError();
    return cudaSuccess; /* without memory for it the arrays are staged */
}

/* Completes the failure of asking CUDA about a request. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_answered(cudaError_t e, spipe_failure_t *f) {
    if (e == cudaSuccess || (f && f->error == e)) return e;
    (void)cudaGetLastError();
    return spipe_priv_refuse(f, e, "asking CUDA about the arrays failed: %s",
                             cudaGetErrorString(e));
}

/* The device's facts and the arrays: all that planning needs. */
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
    if (e == cudaSuccess) e = spipe_priv_look_at_arrays(r, f);
    return spipe_priv_answered(e, f);
}

/* 1 = the system refused to pin a ring, half of it and a quarter of it. */
SPIPE_PRIV_RARE int spipe_priv_no_pins(const spipe_priv_request_t *r) {
    return r->pin_refusals > 2;
}

/* The work of a request as it is now. Asks for the number of CPUs, once, if threads may work. */
SPIPE_PRIV_RARE spipe_priv_work_t spipe_priv_request_work(spipe_priv_request_t *r) {
    const spipe_priv_work_t w = spipe_priv_work_of(&r->desc, &r->facts, r->arrays);
    const double staged = w.pageable_in + w.pageable_out + w.hosted_in + w.hosted_out;
    if (r->cpus == 0 && (staged > 0.0 || w.host_calls > 0)) r->cpus = spipe_priv_num_cpus();
    return w;
}

/* Whether set-up counts: a kept pipeline and resources have paid for it. */
SPIPE_PRIV_RARE int spipe_priv_is_once(const spipe_priv_request_t *r) {
    const int shared = r->desc.hooks && r->desc.hooks->next_chunk; /* by several GPUs */
    return !r->kept && !r->desc.resources && !shared;
}

/* How many chunks there are; many if their number is not known, or several GPUs share them. */
SPIPE_PRIV_RARE size_t spipe_priv_num_planned(const spipe_priv_request_t *r,
                                              const spipe_priv_work_t *w, size_t chunk) {
    const int shared = r->desc.hooks && r->desc.hooks->next_chunk;
    if (w->count == SPIPE_AUTO || shared) return SIZE_MAX;
    return w->count == 0 ? 1 : (w->count - 1) / chunk + 1;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_refuse_zero_copy(const spipe_priv_request_t *r,
                                                        spipe_failure_t *f) {
    if (r->desc.schedule != SPIPE_SCHEDULE_ZERO_COPY || r->facts.map_host_memory)
        return cudaSuccess;
    return spipe_priv_refuse(f, cudaErrorNotSupported,
                             "SPIPE_SCHEDULE_ZERO_COPY needs a device that can map host "
                             "memory; leave schedule to the library");
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_no_device(spipe_failure_t *f, cudaError_t e) {
    (void)cudaGetLastError();
    return spipe_priv_refuse(f, e, "the device cannot be used: %s", cudaGetErrorString(e));
}
