/* ---- 4 streams: leases and scopes ----------------------------------------------------------
   A pool's stream for one thread, an idle one first. Uses streams. */
/* Picks an unleased stream, an idle one if there is one; under the lock. A stream whose query fails
   is picked last: the error is the context's, and the holder's own calls will return it. */
SPIPE_API int spipe_priv_pool_pick(spipe_stream_pool_t *pool, size_t *pick) {
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

SPIPE_API cudaError_t spipe_priv_pool_lease(spipe_stream_pool_t *pool, cudaStream_t *stream,
                                            int may_wait) {
    size_t pick = 0;
    cudaError_t e = cudaSuccess;
    if (!stream) return cudaErrorInvalidValue;
    *stream = NULL;
    if (!pool || pool->self != pool) return cudaErrorInvalidValue;
    spipe_priv_lock(pool->sync);
    while (!spipe_priv_pool_pick(pool, &pick)) {
#if defined(SPIPE_NO_THREADS)
        may_wait = 0; /* no other thread could release one */
#endif
        if (!may_wait) {
            e = cudaErrorNotReady;
            break;
        }
        spipe_priv_wait(pool->sync);
    }
    if (e == cudaSuccess) {
        pool->leased[pick] = 1;
        *stream = pool->streams[pick];
    }
    spipe_priv_unlock(pool->sync);
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
    if (!pool || pool->self != pool) return cudaErrorInvalidValue;
    spipe_priv_lock(pool->sync);
    for (i = 0; i < pool->num_streams; ++i) {
        if (pool->streams[i] != stream || !pool->leased[i]) continue;
        pool->leased[i] = 0;
        e = cudaSuccess;
    }
    spipe_priv_wake(pool->sync);
    spipe_priv_unlock(pool->sync);
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
    e = spipe_stream_wait(scope->stream, parent);
    if (e != cudaSuccess) {
        (void)spipe_stream_release(pool, scope->stream);
        memset(scope, 0, sizeof *scope);
    }
    return e;
}

SPIPE_API cudaError_t spipe_scope_end(spipe_scope_t *scope) {
    cudaError_t e;
    if (!scope || !scope->pool) return cudaSuccess;
    e = spipe_stream_wait(scope->parent, scope->stream);
    spipe_priv_keep_error(&e, spipe_stream_release(scope->pool, scope->stream));
    memset(scope, 0, sizeof *scope);
    return e;
}
