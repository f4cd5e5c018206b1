/* ---- 11 >>hostcalls ------------------------------------------------------------------------
   Host functions that run when a stream reaches them. */
typedef void (*spipe_host_fn)(void *user);

/*  spipe_host_call -- CUDA calls fn(user) on a thread of CUDA's when stream reaches this point.

    stream     in      work queued after this call waits until fn returns.
    fn         in      must not call CUDA, directly or by waiting for a thread that does; must
                       not throw. NOT called after an error in the context: do not clean up in it.
    user       in      handed to fn; must live until it has run.
    Returns    cudaSuccess; cudaErrorInvalidValue; any error of cudaLaunchHostFunc.
    Blocks     no.   Threads  any.   Callback  no.   Capture  yes: a host node.
    Allocates  nothing. */
SPIPE_API cudaError_t spipe_host_call(cudaStream_t stream, spipe_host_fn fn, void *user);

typedef void (*spipe_worker_fn)(cudaError_t status, void *user);

/* A host thread that runs functions when streams reach them. Members are private. */
typedef struct spipe_worker {
    struct spipe_priv_job *first, *last; /* queue of calls */
    int running, quit;
    uintptr_t busy; /* the thread, while a function runs */
    spipe_priv_sync_t *sync;
    void *thread;
    spipe_priv_owner_t owner; /* must be last */
} spipe_worker_t;

/*  spipe_worker_create, spipe_worker_call, spipe_worker_wait, spipe_worker_destroy -- a host
    thread that runs fn(status, user) when a stream reaches the point of the call. fn MAY call
    CUDA, so the end of one batch can queue the next.

    worker     out/in  of the device that is current at create; it is current in fn, too. Must not
                       move.
    stream     in      of any device. fn runs after all that is on stream at the call; the stream
                       goes on without waiting for fn.
    fn         in      called exactly once, in the order of the calls, whatever happens: status
                       is cudaSuccess, or the error found there. It may call spipe_worker_call
                       (a chain), but neither wait nor destroy.
    user       in      handed to fn; must live until it has run.
    Returns    cudaSuccess; cudaErrorInvalidValue; cudaErrorMemoryAllocation;
               cudaErrorNotSupported (there are no threads); any error of event calls. When call
               returns an error, fn is not called. wait, destroy: cudaErrorNotPermitted when fn
               calls them, because they would wait for fn itself; destroy also when another thread
               is in a call.
    Blocks     create, call: no. wait, destroy: until no call is left.
    Threads    call, wait: any. create, destroy: one.
    Callback   from fn: call only. From a spipe_host_call function: no.
    Capture    no.
    Allocates  create: a thread. call: one untimed event and host memory until fn has run. */
SPIPE_API cudaError_t spipe_worker_create(spipe_worker_t *worker);
SPIPE_API cudaError_t spipe_worker_call(spipe_worker_t *worker, cudaStream_t stream,
                                        spipe_worker_fn fn, void *user);
SPIPE_API cudaError_t spipe_worker_wait(spipe_worker_t *worker);
SPIPE_API cudaError_t spipe_worker_destroy(spipe_worker_t *worker);
