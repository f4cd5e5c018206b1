/* ---- 7 >>hostcalls -------------------------------------------------------------------------
   Host functions that run when a stream reaches them. */
typedef void (*spipe_host_fn)(void *user);

/*  spipe_host_call -- CUDA calls fn(user) on a thread of its own when stream gets there.

    stream     in      work queued after it waits until fn returns.
    fn         in      must not call CUDA, directly or by waiting for a thread that does; must
                       not throw. NOT called after an error in the context: no cleanup hook.
    user       in      handed to fn; must live until it has run.
    Returns    cudaSuccess; cudaErrorInvalidValue; any error of cudaLaunchHostFunc.
    Blocks     no.   Threads  any.   Callback  no.   Capture  yes: a host node.
    Allocates  nothing. */
SPIPE_API cudaError_t spipe_host_call(cudaStream_t stream, spipe_host_fn fn, void *user);

typedef void (*spipe_worker_fn)(cudaError_t status, void *user);

/* A host thread that runs functions when streams reach them. Members are private. */
typedef struct spipe_worker {
    struct spipe_priv_job *first, *last; /* the calls that wait */
    int running, quit, device;
    uintptr_t busy; /* the thread, while a function runs */
    spipe_priv_sync_t *sync;
    void *thread;
    const void *self; /* where it was made: what was copied or never made is refused */
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
               cudaErrorNotSupported (no thread can be had); wait, destroy: cudaErrorNotPermitted
               from fn, which would wait for itself; any error of event calls: then fn was not
               taken and will not be called.
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
