/* ---- 9 events ------------------------------------------------------------------------------
   Untimed events, pools of them, timers. Uses threads, objects. */
/* blocking: 1 = who waits for it sleeps. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_make_event(cudaEvent_t *event, int blocking) {
    const unsigned flags = blocking ? cudaEventBlockingSync : 0;
    *event = NULL;
    return spipe_priv_take_error(cudaEventCreateWithFlags(event, cudaEventDisableTiming | flags));
}

SPIPE_API cudaError_t spipe_event_create(cudaEvent_t *event) {
    return event ? spipe_priv_make_event(event, 0) : cudaErrorInvalidValue;
}

SPIPE_API cudaError_t spipe_event_pool_create(spipe_event_pool_t *pool) {
    if (!pool) return cudaErrorInvalidValue;
    memset(pool, 0, sizeof *pool);
    SPIPE_TRY(spipe_priv_own(&pool->owner, pool));
    pool->sync = spipe_priv_sync_create();
    if (pool->sync) return cudaSuccess;
    (void)spipe_event_pool_destroy(pool);
    return cudaErrorMemoryAllocation;
}

/* Makes one more event, and room for all events, so that release needs no memory. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_event_pool_grow(spipe_event_pool_t *pool,
                                                        cudaEvent_t *event) {
    const size_t room = (pool->num_total + 1) * sizeof *pool->free_events;
    cudaEvent_t *grown = (cudaEvent_t *)realloc((void *)pool->free_events, room);
    int before;
    cudaError_t e;
    if (!grown) return cudaErrorMemoryAllocation;
    pool->free_events = grown;
    SPIPE_TRY(spipe_priv_use_device(pool->owner.device, &before));
    e = spipe_event_create(event);
    if (before != pool->owner.device) (void)cudaSetDevice(before);
    if (e == cudaSuccess) ++pool->num_total;
    return e;
}

SPIPE_API cudaError_t spipe_event_acquire(spipe_event_pool_t *pool, cudaEvent_t *event) {
    cudaError_t e = cudaSuccess;
    if (!event) return cudaErrorInvalidValue;
    *event = NULL;
    if (!pool) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_begin_call_on(&pool->owner, pool, 0));
    spipe_priv_lock(pool->sync);
    if (pool->num_free > 0)
        *event = pool->free_events[--pool->num_free];
    else
        e = spipe_priv_event_pool_grow(pool, event);
    spipe_priv_unlock(pool->sync);
    spipe_priv_end_call_on(&pool->owner, 0);
    return spipe_priv_take_error(e);
}

SPIPE_API cudaError_t spipe_event_release(spipe_event_pool_t *pool, cudaEvent_t event) {
    cudaError_t e = cudaErrorInvalidValue;
    size_t i = 0;
    if (!pool || !event) return e;
    SPIPE_TRY(spipe_priv_begin_call_on(&pool->owner, pool, 0));
    spipe_priv_lock(pool->sync);
    while (i < pool->num_free && pool->free_events[i] != event) ++i;
    if (i == pool->num_free && i < pool->num_total) {
        pool->free_events[pool->num_free++] = event;
        e = cudaSuccess;
    }
    spipe_priv_unlock(pool->sync);
    spipe_priv_end_call_on(&pool->owner, 0);
    return e;
}

SPIPE_API cudaError_t spipe_event_pool_destroy(spipe_event_pool_t *pool) {
    cudaError_t e = cudaSuccess;
    size_t i;
    int forked;
    if (!pool || spipe_priv_is_dead(&pool->owner)) return cudaSuccess;
    SPIPE_TRY(spipe_priv_begin_destroy(&pool->owner, pool, &forked));
    if (pool->num_free != pool->num_total) e = cudaErrorInvalidValue;
    for (i = 0; i < pool->num_free && !forked; ++i) {
        spipe_priv_keep_error(&e, cudaEventDestroy(pool->free_events[i]));
    }
    free((void *)pool->free_events);
    spipe_priv_sync_destroy(pool->sync);
    memset(pool, 0, offsetof(spipe_event_pool_t, owner));
    return spipe_priv_end_destroy(&pool->owner, forked, spipe_priv_take_error(e));
}

SPIPE_API cudaError_t spipe_timer_destroy(spipe_timer_t *timer) {
    cudaError_t e = cudaSuccess;
    int forked;
    if (!timer || spipe_priv_is_dead(&timer->owner)) return cudaSuccess;
    SPIPE_TRY(spipe_priv_begin_destroy(&timer->owner, timer, &forked));
    if (timer->begin && !forked) spipe_priv_keep_error(&e, cudaEventDestroy(timer->begin));
    if (timer->end && !forked) spipe_priv_keep_error(&e, cudaEventDestroy(timer->end));
    memset(timer, 0, offsetof(spipe_timer_t, owner));
    return spipe_priv_end_destroy(&timer->owner, forked, spipe_priv_take_error(e));
}

SPIPE_API cudaError_t spipe_timer_create(spipe_timer_t *timer) {
    cudaError_t e;
    if (!timer) return cudaErrorInvalidValue;
    memset(timer, 0, sizeof *timer);
    SPIPE_TRY(spipe_priv_own(&timer->owner, timer));
    e = cudaEventCreateWithFlags(&timer->begin, cudaEventDefault);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&timer->end, cudaEventDefault);
    if (e != cudaSuccess) (void)spipe_timer_destroy(timer);
    return spipe_priv_take_error(e);
}

/* Records the timer's begin, or its end. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_timer_record(spipe_timer_t *timer, int end,
                                                     cudaStream_t stream) {
    cudaError_t e;
    int before;
    if (!timer) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_begin_call_there(&timer->owner, timer, 1, &before));
    e = cudaEventRecord(end ? timer->end : timer->begin, stream);
    spipe_priv_end_call_there(&timer->owner, 1, before);
    return spipe_priv_take_error(e);
}

SPIPE_API cudaError_t spipe_timer_start(spipe_timer_t *timer, cudaStream_t stream) {
    return spipe_priv_timer_record(timer, 0, stream);
}

SPIPE_API cudaError_t spipe_timer_stop(spipe_timer_t *timer, cudaStream_t stream) {
    return spipe_priv_timer_record(timer, 1, stream);
}

SPIPE_API cudaError_t spipe_timer_ms(spipe_timer_t *timer, float *ms) {
    float took = 0.0f;
    spipe_priv_visit_t visit;
    cudaError_t e;
    if (!ms) return cudaErrorInvalidValue;
    *ms = 0.0f;
    if (!timer) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_begin_call_on(&timer->owner, timer, 1));
    visit = spipe_priv_arrive(cudaStreamCaptureModeThreadLocal);
    e = cudaEventSynchronize(timer->end);
    if (e == cudaSuccess) e = cudaEventSynchronize(timer->begin); /* of another stream, or later */
    if (e == cudaSuccess) e = cudaEventElapsedTime(&took, timer->begin, timer->end);
    spipe_priv_depart(&visit);
    if (e == cudaSuccess && took < 0.0f) e = cudaErrorInvalidResourceHandle;
    spipe_priv_end_call_on(&timer->owner, 1);
    if (e == cudaSuccess) *ms = took;
    return e;
}
