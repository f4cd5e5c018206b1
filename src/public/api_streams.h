/* ---- 8 >>streams ---------------------------------------------------------------------------
   Streams by priority, pools of them, leases and scopes. */
typedef struct spipe_priv_sync spipe_priv_sync_t; /* a lock, and a condition to wait for */

/* Private: whose an object is. Whatever device is current, an object works on its own, and there
   stream NULL is that device's default stream. */
typedef struct spipe_priv_owner {
    const void *self; /* the object's address when made: a copy, or one never made, is refused */
    long process;     /* that made it; a forked one cannot use what CUDA made */
    int device;       /* that was current then */
    int calls;        /* that are under way; below 0: one that allows no other */
} spipe_priv_owner_t;

/* Streams made once, to take in turn or to lease. Members are private. */
typedef struct spipe_stream_pool {
    size_t num_streams, next;
    cudaStream_t streams[SPIPE_MAX_STREAMS];
    unsigned char leased[SPIPE_MAX_STREAMS];
    spipe_priv_sync_t *sync;
    spipe_priv_owner_t owner; /* must be last */
} spipe_stream_pool_t;

/*  spipe_priority_value -- CUDA's number for a priority name.
    spipe_stream_create -- a non-blocking stream of a priority: it neither waits for the legacy
    default stream nor holds it up.
    spipe_stream_wait -- make a stream wait for another.

    priority   in      one of spipe_priority_t, on the current device.
    value      out     for cudaStreamCreateWithPriority; lower is more urgent.
    stream     out     yours; free it with cudaStreamDestroy. NULL on error.
    waiter     in      what is queued on it from now on starts after all that is on other by now.
    other      in      may be of another device than waiter; neither need be of the current one.
    Returns    cudaSuccess; cudaErrorInvalidValue; any error of the CUDA calls that they make.
    Blocks     no.   Threads  any.   Callback  no.   Capture  yes: waiter joins other's capture.
    Allocates  create: one stream. wait: one untimed event, freed before it returns; if that is
               too slow, keep an event and use cudaEventRecord + cudaStreamWaitEvent. */
SPIPE_API cudaError_t spipe_priority_value(spipe_priority_t priority, int *value);
SPIPE_API cudaError_t spipe_stream_create(cudaStream_t *stream, spipe_priority_t priority);
SPIPE_API cudaError_t spipe_stream_wait(cudaStream_t waiter, cudaStream_t other);

/*  spipe_stream_pool_create, spipe_stream_pool_destroy -- num_streams streams, made once.

    pool       out     made on the current device; must not move until destroyed.
    num_streams in     1 .. SPIPE_MAX_STREAMS; more than 8 share hardware queues unless
                       CUDA_DEVICE_MAX_CONNECTIONS is larger, so 2 to 8 are enough.
    priority   in      of all of them.
    Returns    cudaSuccess; cudaErrorInvalidValue (destroy: a pool that was moved, copied or never
               made); cudaErrorNotPermitted (destroy: somebody holds or waits for a lease, and
               nothing is done); cudaErrorMemoryAllocation; any error of stream creation (then the
               pool is dead and nothing is kept).
    Blocks     create: no. destroy: no; work still queued on the streams completes.
    Threads    one.
    Callback   no.   Capture  no.
    Allocates  num_streams streams and a little host memory, until destroy. */
SPIPE_API cudaError_t spipe_stream_pool_create(spipe_stream_pool_t *pool, size_t num_streams,
                                               spipe_priority_t priority);
SPIPE_API cudaError_t spipe_stream_pool_destroy(spipe_stream_pool_t *pool);

/*  spipe_stream_next -- the next stream of a pool, round robin.

    pool       in      made by spipe_stream_pool_create.
    stream     out     may be in use elsewhere, too; for a stream of your own: spipe_stream_acquire.
    Returns    cudaSuccess; cudaErrorInvalidValue (a dead pool, a copy).
    Blocks     no.   Threads  any.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API cudaError_t spipe_stream_next(spipe_stream_pool_t *pool, cudaStream_t *stream);

/*  spipe_stream_acquire, spipe_stream_try_acquire, spipe_stream_release -- lease and give back.

    pool       in      made by spipe_stream_pool_create.
    stream     out/in  acquire: a stream nobody else has leased, an idle one if there is one.
                       release: one that acquire gave; work may still be queued on it.
    Returns    cudaSuccess; try_acquire: SPIPE_ALL_LEASED; release:
               cudaErrorInvalidResourceHandle for a stream that is not leased from this pool;
               cudaErrorInvalidValue for a dead pool.
    Blocks     acquire: the calling thread, until another releases. The others: no.
    Threads    any.
    Callback   release: yes. acquire and try_acquire: no (they query streams).
    Capture    release: yes. The others: no.   Allocates  nothing. */
SPIPE_API cudaError_t spipe_stream_acquire(spipe_stream_pool_t *pool, cudaStream_t *stream);
SPIPE_API cudaError_t spipe_stream_try_acquire(spipe_stream_pool_t *pool, cudaStream_t *stream);
SPIPE_API cudaError_t spipe_stream_release(spipe_stream_pool_t *pool, cudaStream_t stream);

/* A stream leased for a while: use stream; the other members are private. */
typedef struct spipe_scope {
    cudaStream_t stream;
    cudaStream_t parent;
    spipe_stream_pool_t *pool;
    spipe_priv_owner_t owner; /* must be last */
} spipe_scope_t;

/*  spipe_scope_begin, spipe_scope_end -- a side stream for a stretch of code.

    scope      out/in  scope->stream is the leased stream. Its work starts after what is on parent
                       at begin; work put on parent after end starts after all work on the stream.
    pool       in      where the stream is leased from, between begin and end.
    parent     in      the stream to fork from and join, of any device.
    Returns    cudaSuccess; any error of acquire, release and spipe_stream_wait. end:
               cudaErrorInvalidValue (a copy); cudaErrorNotPermitted (another thread ends it); else
               it gives the stream back whatever happens. Ending a zeroed or ended scope is fine.
    Blocks     begin: until a stream is free. end: no.
    Threads    one scope, one thread; a pool serves many.   Callback  no.
    Capture    end: yes. begin: no (it queries streams).   Allocates  nothing that stays. */
SPIPE_API cudaError_t spipe_scope_begin(spipe_scope_t *scope, spipe_stream_pool_t *pool,
                                        cudaStream_t parent);
SPIPE_API cudaError_t spipe_scope_end(spipe_scope_t *scope);
