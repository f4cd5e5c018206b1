/* ---- 4 streams -----------------------------------------------------------------------------
   Streams by priority and pools of them. Uses threads, errors. */
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

SPIPE_API cudaError_t spipe_stream_wait(cudaStream_t waiter, cudaStream_t other) {
    cudaEvent_t event = NULL;
    cudaError_t e;
    SPIPE_TRY(spipe_event_create(&event));
    e = cudaEventRecord(event, other);
    if (e == cudaSuccess) e = cudaStreamWaitEvent(waiter, event, 0);
    spipe_priv_keep_error(&e, cudaEventDestroy(event)); /* a wait already queued stays valid */
    return spipe_priv_take_error(e);
}

SPIPE_API cudaError_t spipe_stream_pool_destroy(spipe_stream_pool_t *pool) {
    cudaError_t e = cudaSuccess;
    size_t i;
    if (!pool || pool->self != pool) {
        return pool ? spipe_priv_may_free(pool, pool->self) : cudaSuccess;
    }
    for (i = 0; i < pool->num_streams; ++i) {
        if (pool->streams[i]) spipe_priv_keep_error(&e, cudaStreamDestroy(pool->streams[i]));
    }
    spipe_priv_sync_destroy(pool->sync);
    memset(pool, 0, sizeof *pool);
    return spipe_priv_take_error(e);
}

SPIPE_API cudaError_t spipe_stream_pool_create(spipe_stream_pool_t *pool, size_t num_streams,
                                               spipe_priority_t priority) {
    cudaError_t e = cudaSuccess;
    if (!pool) return cudaErrorInvalidValue;
    memset(pool, 0, sizeof *pool);
    if (num_streams == 0 || num_streams > SPIPE_MAX_STREAMS) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_take_error(cudaGetDevice(&pool->device)));
    pool->sync = spipe_priv_sync_create();
    if (!pool->sync) return cudaErrorMemoryAllocation;
    pool->self = pool;
    for (; pool->num_streams < num_streams && e == cudaSuccess; ++pool->num_streams) {
        e = spipe_stream_create(&pool->streams[pool->num_streams], priority);
    }
    if (e != cudaSuccess) (void)spipe_stream_pool_destroy(pool);
    return e;
}

/* Whether a query returned success. "Not ready" is no error, but CUDA may keep it as the last. */
SPIPE_API int spipe_priv_reached(cudaError_t query) {
    if (query == cudaErrorNotReady && cudaPeekAtLastError() == query) (void)cudaGetLastError();
    return query == cudaSuccess;
}

SPIPE_API cudaError_t spipe_stream_next(spipe_stream_pool_t *pool, cudaStream_t *stream) {
    if (!stream) return cudaErrorInvalidValue;
    *stream = NULL;
    if (!pool || pool->self != pool) return cudaErrorInvalidValue;
    spipe_priv_lock(pool->sync);
    *stream = pool->streams[pool->next];
    pool->next = (pool->next + 1) % pool->num_streams;
    spipe_priv_unlock(pool->sync);
    return cudaSuccess;
}
