/* ---- 9 >>events ----------------------------------------------------------------------------
   Events for ordering, pools of them, and a stopwatch. */
/*  spipe_event_create -- an event for ordering, without a time stamp (about ten times cheaper).

    event      out     yours; free it with cudaEventDestroy. NULL on error.
    Returns    cudaSuccess; cudaErrorInvalidValue; any error of event creation.
    Blocks     no.   Threads  any.   Callback  no.   Capture  yes.   Allocates  an event. */
SPIPE_API cudaError_t spipe_event_create(cudaEvent_t *event);

/* Untimed events kept for reuse. Members are private. */
typedef struct spipe_event_pool {
    size_t num_free, num_total;
    cudaEvent_t *free_events;
    spipe_priv_sync_t *sync;
    spipe_priv_owner_t owner; /* must be last */
} spipe_event_pool_t;

/*  spipe_event_pool_create, spipe_event_pool_destroy, spipe_event_acquire, spipe_event_release
    -- untimed events, made when first needed and kept.

    pool       out/in  of the device that is current at create; must not move until destroyed.
    event      out/in  acquire: an event that nobody else holds. release: one that acquire gave;
                       waits that are queued on it stay valid.
    Returns    cudaSuccess; cudaErrorInvalidValue (a dead pool, a copy, NULL, or an event
               released twice); cudaErrorMemoryAllocation; any error of event creation. destroy
               returns cudaErrorInvalidValue when events are not released yet; those stay yours;
               and cudaErrorNotPermitted while another call is under way.
    Blocks     no.
    Threads    create, destroy: one. The others: any.
    Callback   release: yes. The others: no.   Capture  yes.
    Allocates  an event when none is free, and a little host memory. */
SPIPE_API cudaError_t spipe_event_pool_create(spipe_event_pool_t *pool);
SPIPE_API cudaError_t spipe_event_acquire(spipe_event_pool_t *pool, cudaEvent_t *event);
SPIPE_API cudaError_t spipe_event_release(spipe_event_pool_t *pool, cudaEvent_t event);
SPIPE_API cudaError_t spipe_event_pool_destroy(spipe_event_pool_t *pool);

/* A stopwatch on a stream. Members are private. */
typedef struct spipe_timer {
    cudaEvent_t begin, end;
    spipe_priv_owner_t owner; /* must be last */
} spipe_timer_t;

/*  spipe_timer_create, spipe_timer_destroy, spipe_timer_start, spipe_timer_stop, spipe_timer_ms
    -- time what lies between start and stop on a stream, by the GPU's clock.

    timer      out/in  of the device that is current at create; may be started again and again.
    stream     in      start and stop may name different streams of the same device.
    ms         out     milliseconds between the two, resolution about half a microsecond.
    Returns    cudaSuccess; cudaErrorInvalidValue (a dead timer, a copy, NULL); ms:
               cudaErrorInvalidResourceHandle (there is no time: start or stop was not called, or
               stop was reached before start); cudaErrorNotPermitted (another call is under way);
               any error of the event calls.
    Blocks     ms: until start and stop are reached. The others: no.
    Threads    one.   Callback  no.   Capture  no.
    Allocates  create: two timed events, until destroy. */
SPIPE_API cudaError_t spipe_timer_create(spipe_timer_t *timer);
SPIPE_API cudaError_t spipe_timer_start(spipe_timer_t *timer, cudaStream_t stream);
SPIPE_API cudaError_t spipe_timer_stop(spipe_timer_t *timer, cudaStream_t stream);
SPIPE_API cudaError_t spipe_timer_ms(spipe_timer_t *timer, float *ms);
SPIPE_API cudaError_t spipe_timer_destroy(spipe_timer_t *timer);
