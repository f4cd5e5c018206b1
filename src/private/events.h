/* ---- 5 events ------------------------------------------------------------------------------
   Untimed events, pools of them, timers. Uses threads. */
SPIPE_API cudaError_t spipe_event_create(cudaEvent_t *event) {
    if (!event) return cudaErrorInvalidValue;
    *event = NULL;
    return spipe_priv_take_error(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
}

SPIPE_API cudaError_t spipe_event_pool_create(spipe_event_pool_t *pool) {
    if (!pool) return cudaErrorInvalidValue;
    memset(pool, 0, sizeof *pool);
    SPIPE_TRY(spipe_priv_take_error(cudaGetDevice(&pool->device)));
    pool->sync = spipe_priv_sync_create();
    if (!pool->sync) return cudaErrorMemoryAllocation;
    pool->self = pool;
    return cudaSuccess;
}

/* Makes one more event, and room for all events, so that release needs no memory. */
SPIPE_API cudaError_t spipe_priv_event_pool_grow(spipe_event_pool_t *pool, cudaEvent_t *event) {
    const size_t room = (pool->num_total + 1) * sizeof *pool->free_events;
    cudaEvent_t *grown = (cudaEvent_t *)realloc((void *)pool->free_events, room);
    if (!grown) return cudaErrorMemoryAllocation;
    pool->free_events = grown;
    SPIPE_TRY(spipe_event_create(event));
    ++pool->num_total;
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_event_acquire(spipe_event_pool_t *pool, cudaEvent_t *event) {
    cudaError_t e = cudaSuccess;
    if (!event) return cudaErrorInvalidValue;
    *event = NULL;
    if (!pool || pool->self != pool) return cudaErrorInvalidValue;
    spipe_priv_lock(pool->sync);
    if (pool->num_free > 0)
        *event = pool->free_events[--pool->num_free];
    else
        e = spipe_priv_event_pool_grow(pool, event);
    spipe_priv_unlock(pool->sync);
    return e;
}

SPIPE_API cudaError_t spipe_event_release(spipe_event_pool_t *pool, cudaEvent_t event) {
    cudaError_t e = cudaErrorInvalidValue;
    size_t i = 0;
    if (!pool || pool->self != pool || !event) return e;
    spipe_priv_lock(pool->sync);
    while (i < pool->num_free && pool->free_events[i] != event) ++i;
    if (i == pool->num_free && i < pool->num_total) {
        pool->free_events[pool->num_free++] = event;
        e = cudaSuccess;
    }
    spipe_priv_unlock(pool->sync);
    return e;
}

SPIPE_API cudaError_t spipe_event_pool_destroy(spipe_event_pool_t *pool) {
    cudaError_t e = cudaSuccess;
    size_t i;
    if (!pool || pool->self != pool) {
        return pool ? spipe_priv_may_free(pool, pool->self) : cudaSuccess;
    }
    if (pool->num_free != pool->num_total) e = cudaErrorInvalidValue;
    for (i = 0; i < pool->num_free; ++i) {
        spipe_priv_keep_error(&e, cudaEventDestroy(pool->free_events[i]));
    }
    free((void *)pool->free_events);
    spipe_priv_sync_destroy(pool->sync);
    memset(pool, 0, sizeof *pool);
    return spipe_priv_take_error(e);
}

SPIPE_API cudaError_t spipe_timer_destroy(spipe_timer_t *timer) {
    cudaError_t e = cudaSuccess;
    if (!timer || timer->self != timer) {
        return timer ? spipe_priv_may_free(timer, timer->self) : cudaSuccess;
    }
    if (timer->begin) spipe_priv_keep_error(&e, cudaEventDestroy(timer->begin));
    if (timer->end) spipe_priv_keep_error(&e, cudaEventDestroy(timer->end));
    memset(timer, 0, sizeof *timer);
    return spipe_priv_take_error(e);
}

SPIPE_API cudaError_t spipe_timer_create(spipe_timer_t *timer) {
    cudaError_t e;
    if (!timer) return cudaErrorInvalidValue;
    memset(timer, 0, sizeof *timer);
    timer->self = timer;
    e = cudaEventCreateWithFlags(&timer->begin, cudaEventDefault);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&timer->end, cudaEventDefault);
    if (e != cudaSuccess) (void)spipe_timer_destroy(timer);
    return spipe_priv_take_error(e);
}

SPIPE_API cudaError_t spipe_timer_start(spipe_timer_t *timer, cudaStream_t stream) {
    if (!timer || timer->self != timer) return cudaErrorInvalidResourceHandle;
    return spipe_priv_take_error(cudaEventRecord(timer->begin, stream));
}

SPIPE_API cudaError_t spipe_timer_stop(spipe_timer_t *timer, cudaStream_t stream) {
    if (!timer || timer->self != timer) return cudaErrorInvalidResourceHandle;
    return spipe_priv_take_error(cudaEventRecord(timer->end, stream));
}

SPIPE_API cudaError_t spipe_timer_ms(spipe_timer_t *timer, float *ms) {
    if (!ms) return cudaErrorInvalidValue;
    *ms = 0.0f;
    if (!timer || timer->self != timer) return cudaErrorInvalidResourceHandle;
    SPIPE_TRY(spipe_priv_take_error(cudaEventSynchronize(timer->end)));
    return spipe_priv_take_error(cudaEventElapsedTime(ms, timer->begin, timer->end));
}
