/*  streampipe_parts.h -- parts for programs that drive streams themselves: a worker, channels, an
    event pool, scopes, a timer, leases of streams. Optional; needs streampipe.h beside it, and
    nothing else does.

    A WORKER runs your functions on a host thread when streams get there, and they may call CUDA, so
    that the end of one batch can queue the next.

BEGIN EXAMPLE chain.c
    #include "streampipe_parts.h"

    typedef struct chain { spipe_worker_t worker; cudaStream_t stream; int left; } chain_t;

    static void next_batch(cudaError_t status, void *user) {
        chain_t *c = (chain_t *)user;
        if (status != cudaSuccess || c->left == 0) return;
        --c->left;                           // launch the next batch on c->stream here
        (void)spipe_worker_call(&c->worker, c->stream, next_batch, c);
    }
    int main(void) {
        chain_t c = {{0}, NULL, 3};
        SPIPE_CHECK(spipe_stream_create(&c.stream, SPIPE_PRIORITY_DEFAULT));
        SPIPE_CHECK(spipe_worker_create(&c.worker));
        SPIPE_CHECK(spipe_worker_call(&c.worker, c.stream, next_batch, &c));
        SPIPE_CHECK(spipe_worker_wait(&c.worker));      // until no call is left
        SPIPE_CHECK(spipe_worker_destroy(&c.worker));
        SPIPE_CHECK(cudaStreamDestroy(c.stream));
        return c.left;
    }
END EXAMPLE

    A CHANNEL hands values from one stream to another without the host waiting; an EVENT POOL keeps
    untimed events for reuse; a SCOPE leases a side stream for a stretch of code; a TIMER is a
    stopwatch on a stream; a LEASE lends a pool's stream to one thread, an idle one first.
    Examples: 01, 02, 09 and 11. The rules of streampipe.h hold here too. */
#ifndef STREAMPIPE_PARTS_H
#define STREAMPIPE_PARTS_H

#include "streampipe.h"

/* ============================================================================================
   >>api    every public type and function
   ============================================================================================ */

/* ---- 1 >>lease ------------------------------------------------------------------------- */
/*  spipe_stream_acquire, spipe_stream_try_acquire, spipe_stream_release -- lease and give back.

    pool       in      made by spipe_stream_pool_create of streampipe.h.
    stream     out/in  acquire: a stream nobody else has leased, an idle one if there is one.
                       release: one that acquire gave; work may still be queued on it.
    Returns    cudaSuccess; try_acquire: cudaErrorNotReady when all are leased; release:
               cudaErrorInvalidResourceHandle for a stream that is not leased from this pool;
               cudaErrorInvalidValue for a dead pool.
    Blocks     acquire: the calling thread, until another releases. The others: no.
    Threads    any.
    Callback   release: yes. acquire and try_acquire: no (they query streams).
    Capture    release: yes. The others: no.   Allocates  nothing. */
SPIPE_API cudaError_t spipe_stream_acquire(spipe_stream_pool_t *pool, cudaStream_t *stream);
SPIPE_API cudaError_t spipe_stream_try_acquire(spipe_stream_pool_t *pool, cudaStream_t *stream);
SPIPE_API cudaError_t spipe_stream_release(spipe_stream_pool_t *pool, cudaStream_t stream);

/* ---- 2 >>worker ---------------------------------------------------------------------------- */
typedef void (*spipe_worker_fn)(cudaError_t status, void *user);

/* A host thread that runs functions when streams reach them. Members are private. */
typedef struct spipe_worker {
    struct spipe_priv_job *first, *last; /* the calls that wait */
    int                    running, quit, busy, device;
    spipe_priv_sync_t     *sync;
    void                  *thread;
} spipe_worker_t;

/*  spipe_worker_create, spipe_worker_call, spipe_worker_wait, spipe_worker_destroy -- a host
    thread that runs fn(status, user) when a stream gets there, and MAY call CUDA: so the end of
    one batch can queue the next.

    worker     out/in  of the current device at create, which is current in fn; must not move.
    stream     in      fn runs after all that is on stream at the call; the stream goes on
                       without waiting for fn.
    fn         in      called exactly once, in the order of the calls, whatever happens: status
                       is cudaSuccess or the error found on reaching it. May call
                       spipe_worker_call (a chain), not wait or destroy.
    user       in      handed to fn; must live until it has run.
    Returns    cudaSuccess; cudaErrorInvalidValue; cudaErrorMemoryAllocation;
               cudaErrorNotSupported (no thread can be had); any error of event calls: then fn
               was not taken and will not be called.
    Blocks     create, call: no. wait: until no call is left. destroy: likewise.
    Threads    call, wait: any. create, destroy: one.
    Callback   from fn: call only. From a spipe_host_call function: no.
    Capture    no.
    Allocates  create: a thread. call: one untimed event and host memory until fn has run. */
SPIPE_API cudaError_t spipe_worker_create(spipe_worker_t *worker);
SPIPE_API cudaError_t spipe_worker_call(spipe_worker_t *worker, cudaStream_t stream,
                                        spipe_worker_fn fn, void *user);
SPIPE_API cudaError_t spipe_worker_wait(spipe_worker_t *worker);
SPIPE_API cudaError_t spipe_worker_destroy(spipe_worker_t *worker);

/* ---- 3 >>channel --------------------------------------------------------------------------- */
/* A queue of values between two streams, in device memory. Members are private. */
typedef struct spipe_channel {
    size_t             bytes, stride, capacity, num_sent, num_received;
    unsigned char     *device_memory;
    cudaEvent_t       *full, *empty; /* one pair a place */
    int                device;
    spipe_priv_sync_t *sync;
} spipe_channel_t;

/*  spipe_channel_create, spipe_channel_send, spipe_channel_recv, spipe_channel_destroy -- hand
    values from one stream to another, first in first out, without the host waiting.

    c          out/in  of the current device at create; must not move.
    bytes      bytes   size of one value, 1 or more.
    capacity   in      values under way at most, 1 or more.
    stream     in      send: value is read in this stream's order. recv: what is queued on it
                       after the call sees the value.
    value      in      send: device (or pinned host) memory to read.
    into       out     recv: device (or pinned host) memory to write.
    Returns    cudaSuccess; cudaErrorNotReady (send: full; recv: nothing sent yet; try again
               after the other side's call); cudaErrorInvalidValue; any error of the copy.
    Blocks     no. destroy waits for the device.
    Threads    send, recv: any. create, destroy: one.   Callback  no.   Capture  no.
    Allocates  create: capacity values of device memory and 2 x capacity events, until destroy. */
SPIPE_API cudaError_t spipe_channel_create(spipe_channel_t *c, size_t bytes, size_t capacity);
SPIPE_API cudaError_t spipe_channel_send(spipe_channel_t *c, cudaStream_t stream,
                                         const void *value);
SPIPE_API cudaError_t spipe_channel_recv(spipe_channel_t *c, cudaStream_t stream, void *into);
SPIPE_API cudaError_t spipe_channel_destroy(spipe_channel_t *c);

/* ---- 4 >>events ---------------------------------------------------------------------------- */
/* Untimed events kept for reuse. Members are private. */
typedef struct spipe_event_pool {
    size_t             num_free, num_total;
    cudaEvent_t       *free_events;
    int                device;
    spipe_priv_sync_t *sync;
} spipe_event_pool_t;

/*  spipe_event_pool_create, spipe_event_pool_destroy, spipe_event_acquire, spipe_event_release
    -- untimed events, made when first needed and kept.

    pool       out/in  of the current device at create; must not move until destroyed.
    event      out/in  acquire: one nobody else holds. release: one that acquire gave; waits
                       queued on it stay valid.
    Returns    cudaSuccess; cudaErrorInvalidValue (a dead pool, NULL, or more released than
               acquired); cudaErrorMemoryAllocation; any error of event creation. destroy
               returns cudaErrorInvalidValue when events are still out; those stay the holder's.
    Blocks     no.
    Threads    create, destroy: one. The others: any.
    Callback   release: yes. The others: no.   Capture  yes.
    Allocates  an event when none is free, and a little host memory. */
SPIPE_API cudaError_t spipe_event_pool_create(spipe_event_pool_t *pool);
SPIPE_API cudaError_t spipe_event_acquire(spipe_event_pool_t *pool, cudaEvent_t *event);
SPIPE_API cudaError_t spipe_event_release(spipe_event_pool_t *pool, cudaEvent_t event);
SPIPE_API cudaError_t spipe_event_pool_destroy(spipe_event_pool_t *pool);

/* ---- 5 >>scope ----------------------------------------------------------------------------- */
/* A stream leased for a while: use stream; the other members are private. */
typedef struct spipe_scope {
    cudaStream_t         stream;
    cudaStream_t         parent;
    spipe_stream_pool_t *pool;
} spipe_scope_t;

/*  spipe_scope_begin, spipe_scope_end -- a side stream for a stretch of code.

    scope      out/in  scope->stream is the leased stream. It starts after what is on parent at
                       begin; what is put on parent after end starts after all that is on it.
    pool       in      where the stream is leased from, between begin and end.
    parent     in      the stream to fork from and join.
    Returns    cudaSuccess; any error of acquire, release and spipe_stream_wait. end gives the
               stream back whatever happens; ending a zeroed or ended scope is fine.
    Blocks     begin: until a stream is free. end: no.
    Threads    one scope, one thread; a pool serves many.   Callback  no.
    Capture    end: yes. begin: no (it queries streams).   Allocates  nothing that stays. */
SPIPE_API cudaError_t spipe_scope_begin(spipe_scope_t *scope, spipe_stream_pool_t *pool,
                                        cudaStream_t parent);
SPIPE_API cudaError_t spipe_scope_end(spipe_scope_t *scope);

/* ---- 6 >>timer ----------------------------------------------------------------------------- */
/* A stopwatch on a stream. Members are private. */
typedef struct spipe_timer {
    cudaEvent_t begin, end;
} spipe_timer_t;

/*  spipe_timer_create, spipe_timer_destroy, spipe_timer_start, spipe_timer_stop, spipe_timer_ms
    -- time what lies between start and stop on a stream, by the GPU's clock.

    timer      out/in  of the current device at create; may be started again and again.
    stream     in      start and stop may name different streams of the same device.
    ms         out     milliseconds between the two, resolution about half a microsecond.
    Returns    cudaSuccess; cudaErrorInvalidValue; cudaErrorInvalidResourceHandle (a dead timer,
               or ms before start and stop); any error of the event calls.
    Blocks     ms: until stop's point is reached. The others: no.
    Threads    one.   Callback  no.   Capture  no.
    Allocates  create: two timed events, until destroy. */
SPIPE_API cudaError_t spipe_timer_create(spipe_timer_t *timer);
SPIPE_API cudaError_t spipe_timer_start(spipe_timer_t *timer, cudaStream_t stream);
SPIPE_API cudaError_t spipe_timer_stop(spipe_timer_t *timer, cudaStream_t stream);
SPIPE_API cudaError_t spipe_timer_ms(spipe_timer_t *timer, float *ms);
SPIPE_API cudaError_t spipe_timer_destroy(spipe_timer_t *timer);

/* ============================================================================================
   >>impl   the same, as code
   ============================================================================================ */

/* ---- 1 lease --------------------------------------------------------------------------- */
/* An unleased stream, an idle one if there is one; under the lock. A stream whose query fails is
   lent last: the error is the context's and will surface in the holder's own calls. */
SPIPE_API int spipe_priv_pool_pick(spipe_stream_pool_t *pool, size_t *pick) {
    size_t i;
    int    found = 0;
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
    size_t      pick = 0;
    cudaError_t e = cudaSuccess;
    if (!stream) return cudaErrorInvalidValue;
    *stream = NULL;
    if (!pool || !pool->sync) return cudaErrorInvalidValue;
    spipe_priv_lock(pool->sync);
    while (!spipe_priv_pool_pick(pool, &pick)) {
#if defined(SPIPE_NO_THREADS)
        may_wait = 0; /* nobody else could release one */
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
    size_t      i;
    if (!pool || !pool->sync) return cudaErrorInvalidValue;
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

/* ---- 2 worker ------------------------------------------------------------------------------ */
struct spipe_priv_job {
    struct spipe_priv_job *next;
    cudaEvent_t     reached;
    spipe_worker_fn fn;
    void           *user;
};

SPIPE_API void *spipe_priv_worker_main(void *arg) {
    spipe_worker_t *w = (spipe_worker_t *)arg;
    (void)cudaSetDevice(w->device);
    spipe_priv_lock(w->sync);
    while (w->first || !w->quit) {
        struct spipe_priv_job *job = w->first;
        if (!job) {
            spipe_priv_wait(w->sync);
            continue;
        }
        w->first = job->next;
        w->busy = 1;
        spipe_priv_unlock(w->sync);
        job->fn(cudaEventSynchronize(job->reached), job->user);
        (void)cudaEventDestroy(job->reached);
        free(job);
        spipe_priv_lock(w->sync);
        w->busy = 0;
        spipe_priv_wake(w->sync);
    }
    spipe_priv_unlock(w->sync);
    return NULL;
}

SPIPE_API cudaError_t spipe_worker_create(spipe_worker_t *worker) {
    if (!worker) return cudaErrorInvalidValue;
    memset(worker, 0, sizeof *worker);
    SPIPE_TRY(cudaGetDevice(&worker->device));
    worker->sync = spipe_priv_sync_create();
    if (!worker->sync) return cudaErrorMemoryAllocation;
    worker->thread = spipe_priv_thread_start(spipe_priv_worker_main, worker);
    if (!worker->thread) {
        (void)spipe_worker_destroy(worker);
        return cudaErrorNotSupported;
    }
    worker->running = 1;
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_worker_call(spipe_worker_t *worker, cudaStream_t stream,
                                        spipe_worker_fn fn, void *user) {
    struct spipe_priv_job *job;
    cudaError_t            e;
    if (!worker || !worker->running || !fn) return cudaErrorInvalidValue;
    job = (struct spipe_priv_job *)calloc(1, sizeof *job);
    if (!job) return cudaErrorMemoryAllocation;
    job->fn = fn;
    job->user = user;
    /* blocking sync: the worker sleeps instead of burning a core while it waits */
    e = cudaEventCreateWithFlags(&job->reached, cudaEventDisableTiming | cudaEventBlockingSync);
    if (e == cudaSuccess) e = cudaEventRecord(job->reached, stream);
    if (e != cudaSuccess) {
        if (job->reached) (void)cudaEventDestroy(job->reached);
        free(job);
        return e;
    }
    spipe_priv_lock(worker->sync);
    if (worker->first) worker->last->next = job;
    else worker->first = job;
    worker->last = job;
    spipe_priv_wake(worker->sync);
    spipe_priv_unlock(worker->sync);
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_worker_wait(spipe_worker_t *worker) {
    if (!worker || !worker->running) return cudaErrorInvalidValue;
    spipe_priv_lock(worker->sync);
    while (worker->first || worker->busy) spipe_priv_wait(worker->sync);
    spipe_priv_unlock(worker->sync);
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_worker_destroy(spipe_worker_t *worker) {
    if (!worker) return cudaSuccess;
    if (worker->running) {
        (void)spipe_worker_wait(worker);
        spipe_priv_lock(worker->sync);
        worker->quit = 1;
        spipe_priv_wake(worker->sync);
        spipe_priv_unlock(worker->sync);
        spipe_priv_thread_join(worker->thread);
    }
    spipe_priv_sync_destroy(worker->sync);
    memset(worker, 0, sizeof *worker);
    return cudaSuccess;
}

/* ---- 3 channel ----------------------------------------------------------------------------- */
SPIPE_API cudaError_t spipe_channel_destroy(spipe_channel_t *c) {
    cudaError_t e = cudaSuccess;
    size_t      i;
    if (!c) return cudaSuccess;
    for (i = 0; c->full && i < 2 * c->capacity; ++i) { /* full, then empty */
        if (c->full[i]) spipe_priv_keep(&e, cudaEventDestroy(c->full[i]));
    }
    if (c->device_memory) spipe_priv_keep(&e, cudaFree(c->device_memory));
    free((void *)c->full);
    spipe_priv_sync_destroy(c->sync);
    memset(c, 0, sizeof *c);
    return e;
}

SPIPE_API cudaError_t spipe_channel_create(spipe_channel_t *c, size_t bytes, size_t capacity) {
    cudaError_t e = cudaErrorMemoryAllocation;
    size_t      i;
    if (!c) return cudaErrorInvalidValue;
    memset(c, 0, sizeof *c);
    if (bytes == 0 || capacity == 0 || bytes > SIZE_MAX / 2 - 256) return cudaErrorInvalidValue;
    c->bytes = bytes;
    c->stride = (bytes + 255) & ~(size_t)255;
    c->capacity = capacity;
    if (capacity > SIZE_MAX / c->stride / 4) return cudaErrorInvalidValue;
    SPIPE_TRY(cudaGetDevice(&c->device));
    c->full = (cudaEvent_t *)calloc(2 * capacity, sizeof *c->full);
    c->sync = spipe_priv_sync_create();
    if (c->full && c->sync) {
        c->empty = c->full + capacity;
        e = cudaMalloc((void **)&c->device_memory, c->stride * capacity);
        for (i = 0; i < 2 * capacity && e == cudaSuccess; ++i) {
            e = spipe_event_create(&c->full[i]);
        }
    }
    if (e != cudaSuccess) (void)spipe_channel_destroy(c);
    return e;
}

SPIPE_API cudaError_t spipe_channel_send(spipe_channel_t *c, cudaStream_t stream,
                                         const void *value) {
    cudaError_t e = cudaErrorNotReady;
    if (!c || !c->sync || !value) return cudaErrorInvalidValue;
    spipe_priv_lock(c->sync);
    if (c->num_sent - c->num_received < c->capacity) {
        const size_t   place = c->num_sent % c->capacity;
        unsigned char *at = c->device_memory + place * c->stride;
        e = cudaStreamWaitEvent(stream, c->empty[place], 0); /* never recorded: no wait */
        if (e == cudaSuccess) {
            e = cudaMemcpyAsync(at, value, c->bytes, cudaMemcpyDefault, stream);
        }
        if (e == cudaSuccess) e = cudaEventRecord(c->full[place], stream);
        if (e == cudaSuccess) ++c->num_sent;
    }
    spipe_priv_unlock(c->sync);
    return e;
}

SPIPE_API cudaError_t spipe_channel_recv(spipe_channel_t *c, cudaStream_t stream, void *into) {
    cudaError_t e = cudaErrorNotReady;
    if (!c || !c->sync || !into) return cudaErrorInvalidValue;
    spipe_priv_lock(c->sync);
    if (c->num_sent != c->num_received) {
        const size_t         place = c->num_received % c->capacity;
        const unsigned char *at = c->device_memory + place * c->stride;
        e = cudaStreamWaitEvent(stream, c->full[place], 0);
        if (e == cudaSuccess) {
            e = cudaMemcpyAsync(into, at, c->bytes, cudaMemcpyDefault, stream);
        }
        if (e == cudaSuccess) e = cudaEventRecord(c->empty[place], stream);
        if (e == cudaSuccess) ++c->num_received;
    }
    spipe_priv_unlock(c->sync);
    return e;
}

/* ---- 4 events ------------------------------------------------------------------------------ */
SPIPE_API cudaError_t spipe_event_pool_create(spipe_event_pool_t *pool) {
    if (!pool) return cudaErrorInvalidValue;
    memset(pool, 0, sizeof *pool);
    SPIPE_TRY(cudaGetDevice(&pool->device));
    pool->sync = spipe_priv_sync_create();
    return pool->sync ? cudaSuccess : cudaErrorMemoryAllocation;
}
/* Makes one more; with room for every event there is, release cannot fail for want of memory. */
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
    if (!pool || !pool->sync) return cudaErrorInvalidValue;
    spipe_priv_lock(pool->sync);
    if (pool->num_free > 0) *event = pool->free_events[--pool->num_free];
    else e = spipe_priv_event_pool_grow(pool, event);
    spipe_priv_unlock(pool->sync);
    return e;
}

SPIPE_API cudaError_t spipe_event_release(spipe_event_pool_t *pool, cudaEvent_t event) {
    cudaError_t e = cudaErrorInvalidValue;
    if (!pool || !pool->sync || !event) return e;
    spipe_priv_lock(pool->sync);
    if (pool->num_free < pool->num_total) {
        pool->free_events[pool->num_free++] = event;
        e = cudaSuccess;
    }
    spipe_priv_unlock(pool->sync);
    return e;
}

SPIPE_API cudaError_t spipe_event_pool_destroy(spipe_event_pool_t *pool) {
    cudaError_t e = cudaSuccess;
    size_t      i;
    if (!pool) return cudaSuccess;
    if (pool->num_free != pool->num_total) e = cudaErrorInvalidValue;
    for (i = 0; i < pool->num_free; ++i) {
        spipe_priv_keep(&e, cudaEventDestroy(pool->free_events[i]));
    }
    free((void *)pool->free_events);
    spipe_priv_sync_destroy(pool->sync);
    memset(pool, 0, sizeof *pool);
    return e;
}

/* ---- 5 scope ------------------------------------------------------------------------------- */
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
    spipe_priv_keep(&e, spipe_stream_release(scope->pool, scope->stream));
    memset(scope, 0, sizeof *scope);
    return e;
}

/* ---- 6 timer ------------------------------------------------------------------------------- */
SPIPE_API cudaError_t spipe_timer_destroy(spipe_timer_t *timer) {
    cudaError_t e = cudaSuccess;
    if (!timer) return cudaSuccess;
    if (timer->begin) spipe_priv_keep(&e, cudaEventDestroy(timer->begin));
    if (timer->end) spipe_priv_keep(&e, cudaEventDestroy(timer->end));
    memset(timer, 0, sizeof *timer);
    return e;
}

SPIPE_API cudaError_t spipe_timer_create(spipe_timer_t *timer) {
    cudaError_t e;
    if (!timer) return cudaErrorInvalidValue;
    memset(timer, 0, sizeof *timer);
    e = cudaEventCreateWithFlags(&timer->begin, cudaEventDefault);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&timer->end, cudaEventDefault);
    if (e != cudaSuccess) (void)spipe_timer_destroy(timer);
    return e;
}
SPIPE_API cudaError_t spipe_timer_start(spipe_timer_t *timer, cudaStream_t stream) {
    if (!timer || !timer->begin) return cudaErrorInvalidResourceHandle;
    return cudaEventRecord(timer->begin, stream);
}
SPIPE_API cudaError_t spipe_timer_stop(spipe_timer_t *timer, cudaStream_t stream) {
    if (!timer || !timer->end) return cudaErrorInvalidResourceHandle;
    return cudaEventRecord(timer->end, stream);
}
SPIPE_API cudaError_t spipe_timer_ms(spipe_timer_t *timer, float *ms) {
    if (!ms) return cudaErrorInvalidValue;
    *ms = 0.0f;
    if (!timer || !timer->end) return cudaErrorInvalidResourceHandle;
    SPIPE_TRY(cudaEventSynchronize(timer->end));
    return cudaEventElapsedTime(ms, timer->begin, timer->end);
}

#endif /* STREAMPIPE_PARTS_H */

/*  MIT License. Copyright (c) 2026 The streampipe authors.

    Permission is hereby granted, free of charge, to any person obtaining a copy of this software
    and associated documentation files (the "Software"), to deal in the Software without
    restriction, including without limitation the rights to use, copy, modify, merge, publish,
    distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the
    Software is furnished to do so, subject to the following conditions: The above copyright notice
    and this permission notice shall be included in all copies or substantial portions of the
    Software. THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED,
    INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE
    AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
    DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
    OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
