/* ---- 8 streams -----------------------------------------------------------------------------
   Streams by priority and pools of them. Uses threads, errors, objects. */
SPIPE_API cudaError_t spipe_priority_value(spipe_priority_t priority, int *value) {
    int least = 0, greatest = 0;
    if (!value) return cudaErrorInvalidValue;
    *value = 0;
    if ((int)priority < 0 || priority > SPIPE_PRIORITY_HIGH) return cudaErrorInvalidValue;
    if (priority == SPIPE_PRIORITY_DEFAULT) return cudaSuccess;
    SPIPE_TRY(spipe_priv_take_error(cudaDeviceGetStreamPriorityRange(&least, &greatest)));
    if (priority == SPIPE_PRIORITY_LOW) *value = least;
    if (priority == SPIPE_PRIORITY_MEDIUM) *value = (least + greatest) / 2;
    if (priority == SPIPE_PRIORITY_HIGH) *value = greatest;
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_stream_create(cudaStream_t *stream, spipe_priority_t priority) {
    int value = 0;
    if (!stream) return cudaErrorInvalidValue;
    *stream = NULL;
    SPIPE_TRY(spipe_priority_value(priority, &value));
    return spipe_priv_take_error(
        cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, value));
}

/* Makes an event on a device and records it on a stream, which must be of that device. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_event_on(int device, cudaStream_t stream, unsigned flags,
                                                 cudaEvent_t *event) {
    int before;
    cudaError_t e;
    *event = NULL;
    SPIPE_TRY(spipe_priv_use_device(device, &before));
    e = cudaEventCreateWithFlags(event, flags);
    if (e == cudaSuccess) e = cudaEventRecord(*event, stream);
    if (before != device) (void)cudaSetDevice(before);
    if (e == cudaSuccess || !*event) return e;
    (void)cudaEventDestroy(*event);
    *event = NULL;
    return e;
}

/* The device of a stream; -1: it cannot be asked for. Of a capturing stream the question would
   break the capture. */
SPIPE_PRIV_LOCAL int spipe_priv_stream_device(cudaStream_t stream) {
    int device = -1;
#if CUDART_VERSION >= 12080
    enum cudaStreamCaptureStatus status;
    if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) return -1;
    if (status != cudaStreamCaptureStatusNone) return -1;
    if (cudaStreamGetDevice(stream, &device) != cudaSuccess) return -1;
#else
    (void)stream;
#endif
    return device;
}

/* The same on the stream's device, which it tells: the current one, else one after the other,
   until the event is not refused. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_event_behind(cudaStream_t stream, unsigned flags,
                                                     cudaEvent_t *event, int *device) {
    int i, end;
    cudaError_t e;
    SPIPE_TRY(cudaGetDevice(device));
    e = spipe_priv_event_on(*device, stream, flags, event);
    if (e != cudaErrorInvalidResourceHandle) return e;
    i = spipe_priv_stream_device(stream);
    end = i + 1;
    if (i < 0) SPIPE_TRY(cudaGetDeviceCount(&end));
    for (i = i < 0 ? 0 : i; i < end && e == cudaErrorInvalidResourceHandle; ++i) {
        (void)cudaGetLastError();
        *device = i;
        e = spipe_priv_event_on(i, stream, flags, event);
    }
    return e;
}

SPIPE_API cudaError_t spipe_stream_wait(cudaStream_t waiter, cudaStream_t other) {
    cudaEvent_t event;
    cudaError_t e;
    int device;
    e = spipe_priv_event_behind(other, cudaEventDisableTiming, &event, &device);
    if (e == cudaSuccess) {
        e = cudaStreamWaitEvent(waiter, event, 0);
        spipe_priv_keep_error(&e, cudaEventDestroy(event)); /* a wait already queued stays valid */
    }
    return spipe_priv_take_error(e);
}

SPIPE_API cudaError_t spipe_stream_pool_destroy(spipe_stream_pool_t *pool) {
    cudaError_t e = cudaSuccess;
    size_t i;
    int forked;
    if (!pool || spipe_priv_is_dead(&pool->owner)) return cudaSuccess;
    SPIPE_TRY(spipe_priv_begin_destroy(&pool->owner, pool, &forked));
    for (i = 0; i < pool->num_streams && !forked; ++i) {
        if (pool->streams[i]) spipe_priv_keep_error(&e, cudaStreamDestroy(pool->streams[i]));
    }
    spipe_priv_sync_destroy(pool->sync);
    memset(pool, 0, offsetof(spipe_stream_pool_t, owner));
    return spipe_priv_end_destroy(&pool->owner, forked, spipe_priv_take_error(e));
}

SPIPE_API cudaError_t spipe_stream_pool_create(spipe_stream_pool_t *pool, size_t num_streams,
                                               spipe_priority_t priority) {
    cudaError_t e = cudaSuccess;
    if (!pool) return cudaErrorInvalidValue;
    memset(pool, 0, sizeof *pool);
    if (num_streams == 0 || num_streams > SPIPE_MAX_STREAMS) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_own(&pool->owner, pool));
    pool->sync = spipe_priv_sync_create();
    if (!pool->sync) e = cudaErrorMemoryAllocation;
    for (; pool->num_streams < num_streams && e == cudaSuccess; ++pool->num_streams) {
        e = spipe_stream_create(&pool->streams[pool->num_streams], priority);
    }
    if (e != cudaSuccess) (void)spipe_stream_pool_destroy(pool);
    return e;
}

/* Whether a query returned success. "Not ready" is no error, but CUDA may keep it as the last. */
SPIPE_PRIV_LOCAL int spipe_priv_reached(cudaError_t query) {
    if (query == cudaErrorNotReady && cudaPeekAtLastError() == query) (void)cudaGetLastError();
    return query == cudaSuccess;
}

SPIPE_API cudaError_t spipe_stream_next(spipe_stream_pool_t *pool, cudaStream_t *stream) {
    if (!stream) return cudaErrorInvalidValue;
    *stream = NULL;
    if (!pool) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_begin_call_on(&pool->owner, pool, 0));
    spipe_priv_lock(pool->sync);
    *stream = pool->streams[pool->next];
    pool->next = (pool->next + 1) % pool->num_streams;
    spipe_priv_unlock(pool->sync);
    spipe_priv_end_call_on(&pool->owner, 0);
    return cudaSuccess;
}
