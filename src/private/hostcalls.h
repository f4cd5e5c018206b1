/* ---- 7 host calls --------------------------------------------------------------------------
   Host functions in a stream's order; a worker thread that may call CUDA. */
SPIPE_API cudaError_t spipe_host_call(cudaStream_t stream, spipe_host_fn fn, void *user) {
    if (!fn) return cudaErrorInvalidValue;
    return spipe_priv_take_error(cudaLaunchHostFunc(stream, (cudaHostFn_t)fn, user));
}

struct spipe_priv_job {
    struct spipe_priv_job *next;
    cudaEvent_t reached;
    spipe_worker_fn fn;
    void *user;
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
        w->busy = spipe_priv_this_thread();
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
    SPIPE_TRY(spipe_priv_take_error(cudaGetDevice(&worker->device)));
    worker->sync = spipe_priv_sync_create();
    if (!worker->sync) return cudaErrorMemoryAllocation;
    worker->self = worker;
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
    cudaError_t e;
    if (!worker || worker->self != worker || !fn) return cudaErrorInvalidValue;
    job = (struct spipe_priv_job *)calloc(1, sizeof *job);
    if (!job) return cudaErrorMemoryAllocation;
    job->fn = fn;
    job->user = user;
    /* blocking sync: the worker sleeps while it waits, and keeps no core busy */
    e = cudaEventCreateWithFlags(&job->reached, cudaEventDisableTiming | cudaEventBlockingSync);
    if (e == cudaSuccess) e = cudaEventRecord(job->reached, stream);
    if (e != cudaSuccess) {
        if (job->reached) (void)cudaEventDestroy(job->reached);
        free(job);
        return spipe_priv_take_error(e);
    }
    spipe_priv_lock(worker->sync);
    if (worker->first)
        worker->last->next = job;
    else
        worker->first = job;
    worker->last = job;
    spipe_priv_wake(worker->sync);
    spipe_priv_unlock(worker->sync);
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_worker_wait(spipe_worker_t *worker) {
    int within;
    if (!worker || worker->self != worker) return cudaErrorInvalidValue;
    spipe_priv_lock(worker->sync);
    within = worker->busy && worker->busy == spipe_priv_this_thread();
    while (!within && (worker->first || worker->busy)) spipe_priv_wait(worker->sync);
    spipe_priv_unlock(worker->sync);
    return within ? cudaErrorNotPermitted : cudaSuccess; /* it would wait for itself */
}

SPIPE_API cudaError_t spipe_worker_destroy(spipe_worker_t *worker) {
    if (!worker || worker->self != worker) {
        return worker ? spipe_priv_may_free(worker, worker->self) : cudaSuccess;
    }
    if (worker->running) {
        SPIPE_TRY(spipe_worker_wait(worker));
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
