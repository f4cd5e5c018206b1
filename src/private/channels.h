/* ---- 12 channels ---------------------------------------------------------------------------
   Values between two streams, in device memory. Uses events, objects. */
SPIPE_API cudaError_t spipe_channel_destroy(spipe_channel_t *c) {
    cudaError_t e = cudaSuccess;
    size_t i;
    int forked;
    if (!c || spipe_priv_is_dead(&c->owner)) return cudaSuccess;
    SPIPE_TRY(spipe_priv_begin_destroy(&c->owner, c, &forked));
    for (i = 0; c->full && i < 2 * c->capacity && !forked; ++i) { /* full, then empty */
        if (c->full[i]) spipe_priv_keep_error(&e, cudaEventDestroy(c->full[i]));
    }
    if (c->device_memory && !forked) {
        const spipe_priv_visit_t visit = spipe_priv_arrive(cudaStreamCaptureModeRelaxed);
        spipe_priv_keep_error(&e, cudaFree(c->device_memory));
        spipe_priv_depart(&visit);
    }
    free((void *)c->full);
    spipe_priv_sync_destroy(c->sync);
    memset(c, 0, offsetof(spipe_channel_t, owner));
    return spipe_priv_end_destroy(&c->owner, forked, spipe_priv_take_error(e));
}

SPIPE_API cudaError_t spipe_channel_create(spipe_channel_t *c, size_t bytes, size_t capacity) {
    cudaError_t e = cudaErrorMemoryAllocation;
    size_t i;
    if (!c) return cudaErrorInvalidValue;
    memset(c, 0, sizeof *c);
    if (bytes == 0 || capacity == 0 || bytes > SIZE_MAX / 2 - 256) return cudaErrorInvalidValue;
    c->bytes = bytes;
    c->stride = (bytes + 255) & ~(size_t)255;
    c->capacity = capacity;
    if (capacity > SIZE_MAX / c->stride / 4) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_own(&c->owner, c));
    c->full = (cudaEvent_t *)calloc(2 * capacity, sizeof *c->full);
    c->sync = spipe_priv_sync_create();
    if (c->full && c->sync) {
        const spipe_priv_visit_t visit = spipe_priv_arrive(cudaStreamCaptureModeThreadLocal);
        c->empty = c->full + capacity;
        e = cudaMalloc((void **)&c->device_memory, c->stride * capacity);
        spipe_priv_depart(&visit);
        for (i = 0; i < 2 * capacity && e == cudaSuccess; ++i) {
            e = spipe_event_create(&c->full[i]);
        }
    }
    if (e != cudaSuccess) (void)spipe_channel_destroy(c);
    return spipe_priv_take_error(e);
}

SPIPE_API cudaError_t spipe_channel_send(spipe_channel_t *c, cudaStream_t stream,
                                         const void *value) {
    cudaError_t e = SPIPE_CHANNEL_FULL;
    int before;
    if (!c || !value) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_begin_call_there(&c->owner, c, 0, &before));
    spipe_priv_lock(c->sync);
    if (c->num_sent - c->num_received < c->capacity) {
        const size_t place = c->num_sent % c->capacity;
        unsigned char *at = c->device_memory + place * c->stride;
        e = cudaStreamWaitEvent(stream, c->empty[place], 0); /* never recorded: no wait */
        if (e == cudaSuccess) {
            e = cudaMemcpyAsync(at, value, c->bytes, cudaMemcpyDefault, stream);
        }
        if (e == cudaSuccess) e = cudaEventRecord(c->full[place], stream);
        if (e == cudaSuccess) ++c->num_sent;
    }
    spipe_priv_unlock(c->sync);
    spipe_priv_end_call_there(&c->owner, 0, before);
    return spipe_priv_take_error(e);
}

SPIPE_API cudaError_t spipe_channel_recv(spipe_channel_t *c, cudaStream_t stream, void *into) {
    cudaError_t e = SPIPE_CHANNEL_EMPTY;
    int before;
    if (!c || !into) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_begin_call_there(&c->owner, c, 0, &before));
    spipe_priv_lock(c->sync);
    if (c->num_sent != c->num_received) {
        const size_t place = c->num_received % c->capacity;
        const unsigned char *at = c->device_memory + place * c->stride;
        e = cudaStreamWaitEvent(stream, c->full[place], 0);
        if (e == cudaSuccess) {
            e = cudaMemcpyAsync(into, at, c->bytes, cudaMemcpyDefault, stream);
        }
        if (e == cudaSuccess) e = cudaEventRecord(c->empty[place], stream);
        if (e == cudaSuccess) ++c->num_received;
    }
    spipe_priv_unlock(c->sync);
    spipe_priv_end_call_there(&c->owner, 0, before);
    return spipe_priv_take_error(e);
}
