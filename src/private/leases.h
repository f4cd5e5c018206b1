/* ---- 8 streams: leases and scopes ----------------------------------------------------------
   A pool's stream for one thread, an idle one first. A lease counts as a call on the pool, from
   acquire to release. Uses streams. */
/* Picks an unleased stream, an idle one if there is one; under the lock. A stream whose query fails
   is picked last: the error is the context's, and the holder's own calls will return it. */
SPIPE_PRIV_LOCAL int spipe_priv_pool_pick(spipe_stream_pool_t *pool, size_t *pick) {
    size_t i;
    int found = 0;
    for (i = 0; i < pool->num_streams; ++i) {
        if (pool->leased[i]) continue;
        if (spipe_priv_reached(cudaStreamQuery(pool->streams[i]))) {
            *pick = i;
            return 1;
        }
        if (!found) *pick = i;
        found = 1;
    }
    return found;
}

SPIPE_PRIV_LOCAL cudaError_t spipe_priv_pool_lease(spipe_stream_pool_t *pool, cudaStream_t *stream,
                                                   int may_wait) {
    size_t pick = 0;
    spipe_priv_visit_t visit;
    cudaError_t e = cudaSuccess;
    if (!stream) return cudaErrorInvalidValue;
    *stream = NULL;
    if (!pool) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_begin_call_on(&pool->owner, pool, 0));
    visit = spipe_priv_arrive(cudaStreamCaptureModeThreadLocal);
    spipe_priv_lock(pool->sync);
    while (!spipe_priv_pool_pick(pool, &pick)) {
#if defined(SPIPE_NO_THREADS)
        may_wait = 0; /* no other thread could release one */
#endif
        if (!may_wait) {
            e = SPIPE_ALL_LEASED;
            break;
        }
        spipe_priv_wait(pool->sync);
    }
    if (e == cudaSuccess) {
        pool->leased[pick] = 1;
        *stream = pool->streams[pick];
    }
    spipe_priv_unlock(pool->sync);
    spipe_priv_depart(&visit);
    if (e != cudaSuccess) spipe_priv_end_call_on(&pool->owner, 0); /* else release ends it */
    return e;
}

SPIPE_API cudaError_t spipe_stream_acquire(spipe_stream_pool_t *pool, cudaStream_t *stream) {
    return spipe_priv_pool_lease(pool, stream, 1);
}

SPIPE_API cudaError_t spipe_stream_try_acquire(spipe_stream_pool_t *pool, cudaStream_t *stream) {
    return spipe_priv_pool_lease(pool, stream, 0);
}

SPIPE_API cudaError_t spipe_stream_release(spipe_stream_pool_t *pool, cudaStream_t stream) {
    cudaError_t e = cudaErrorInvalidResourceHandle;
    size_t i;
    if (!pool) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_begin_call_on(&pool->owner, pool, 0));
    spipe_priv_lock(pool->sync);
    for (i = 0; i < pool->num_streams; ++i) {
        if (pool->streams[i] != stream || !pool->leased[i]) continue;
        pool->leased[i] = 0;
        e = cudaSuccess;
    }
    spipe_priv_wake(pool->sync);
    spipe_priv_unlock(pool->sync);
    if (e == cudaSuccess) spipe_priv_end_call_on(&pool->owner, 0); /* that of acquire */
    spipe_priv_end_call_on(&pool->owner, 0);
    return e;
}

/* Makes a stream wait for another; NULL is the default stream of the pool's device. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_scope_wait(spipe_stream_pool_t *pool, cudaStream_t waiter,
                                                   cudaStream_t other) {
    cudaError_t e;
    int before;
    SPIPE_TRY(spipe_priv_begin_call_there(&pool->owner, pool, 0, &before));
    e = spipe_stream_wait(waiter, other);
    spipe_priv_end_call_there(&pool->owner, 0, before);
    return e;
}

SPIPE_API cudaError_t spipe_scope_begin(spipe_scope_t *scope, spipe_stream_pool_t *pool,
                                        cudaStream_t parent) {
    cudaError_t e;
    if (!scope) return cudaErrorInvalidValue;
    memset(scope, 0, sizeof *scope);
    SPIPE_TRY(spipe_stream_acquire(pool, &scope->stream));
    scope->parent = parent;
    scope->pool = pool;
    e = spipe_priv_scope_wait(pool, scope->stream, parent);
    if (e == cudaSuccess) e = spipe_priv_own(&scope->owner, scope);
    if (e == cudaSuccess) return e;
    (void)spipe_stream_release(pool, scope->stream);
    memset(scope, 0, sizeof *scope);
    return e;
}

SPIPE_API cudaError_t spipe_scope_end(spipe_scope_t *scope) {
    cudaError_t e;
    int forked;
    if (!scope || spipe_priv_is_dead(&scope->owner)) return cudaSuccess;
    SPIPE_TRY(spipe_priv_begin_destroy(&scope->owner, scope, &forked));
    e = spipe_priv_scope_wait(scope->pool, scope->parent, scope->stream);
    spipe_priv_keep_error(&e, spipe_stream_release(scope->pool, scope->stream));
    memset(scope, 0, offsetof(spipe_scope_t, owner));
    return spipe_priv_end_destroy(&scope->owner, forked, e);
}
