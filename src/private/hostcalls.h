/* ---- 11 host calls -------------------------------------------------------------------------
   Host functions in a stream's order; a worker thread that may call CUDA. Uses streams, objects. */
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

SPIPE_PRIV_LOCAL void *spipe_priv_worker_main(void *arg) {
    spipe_worker_t *w = (spipe_worker_t *)arg;
    spipe_priv_visit_t visit;
    cudaError_t reached;
    (void)cudaSetDevice(w->owner.device);
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
        visit = spipe_priv_arrive(cudaStreamCaptureModeThreadLocal);
        reached = cudaEventSynchronize(job->reached);
        spipe_priv_depart(&visit);
        job->fn(reached, job->user);
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
    cudaError_t e = cudaErrorMemoryAllocation;
    if (!worker) return cudaErrorInvalidValue;
    memset(worker, 0, sizeof *worker);
    SPIPE_TRY(spipe_priv_own(&worker->owner, worker));
    worker->sync = spipe_priv_sync_create();
    if (worker->sync) {
        e = cudaErrorNotSupported;
        worker->thread = spipe_priv_thread_start(spipe_priv_worker_main, worker);
    }
    worker->running = worker->thread != NULL;
    if (worker->running) return cudaSuccess;
    (void)spipe_worker_destroy(worker);
    return e;
}

/* Queues a job. */
SPIPE_PRIV_LOCAL void spipe_priv_worker_add(spipe_worker_t *worker, struct spipe_priv_job *job) {
    spipe_priv_lock(worker->sync);
    if (worker->first)
        worker->last->next = job;
    else
        worker->first = job;
    worker->last = job;
    spipe_priv_wake(worker->sync);
    spipe_priv_unlock(worker->sync);
}

SPIPE_API cudaError_t spipe_worker_call(spipe_worker_t *worker, cudaStream_t stream,
                                        spipe_worker_fn fn, void *user) {
    /* blocking sync: the worker sleeps while it waits, and keeps no core busy */
    const unsigned flags = cudaEventDisableTiming | cudaEventBlockingSync;
    struct spipe_priv_job *job;
    cudaError_t e = cudaErrorMemoryAllocation;
    int before, device;
    if (!worker || !fn) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_begin_call_there(&worker->owner, worker, 0, &before));
    job = (struct spipe_priv_job *)calloc(1, sizeof *job);
    if (job) e = spipe_priv_event_behind(stream, flags, &job->reached, &device);
    if (e == cudaSuccess) {
        job->fn = fn;
        job->user = user;
        spipe_priv_worker_add(worker, job);
    } else {
        free(job);
    }
    spipe_priv_end_call_there(&worker->owner, 0, before);
    return spipe_priv_take_error(e);
}

SPIPE_API cudaError_t spipe_worker_wait(spipe_worker_t *worker) {
    int within;
    if (!worker) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_begin_call_on(&worker->owner, worker, 0));
    spipe_priv_lock(worker->sync);
    within = worker->busy && worker->busy == spipe_priv_this_thread();
    while (!within && (worker->first || worker->busy)) spipe_priv_wait(worker->sync);
    spipe_priv_unlock(worker->sync);
    spipe_priv_end_call_on(&worker->owner, 0);
    return within ? cudaErrorNotPermitted : cudaSuccess; /* it would wait for itself */
}

/* Ends the thread; a forked process does not have it, and drops the jobs. */
SPIPE_PRIV_LOCAL void spipe_priv_worker_end(spipe_worker_t *worker, int forked) {
    struct spipe_priv_job *job;
    if (!forked) {
        spipe_priv_lock(worker->sync);
        worker->quit = 1;
        spipe_priv_wake(worker->sync);
        spipe_priv_unlock(worker->sync);
        spipe_priv_thread_join(worker->thread);
        return;
    }
    while ((job = worker->first) != NULL) {
        worker->first = job->next;
        free(job);
    }
    free(worker->thread);
}

SPIPE_API cudaError_t spipe_worker_destroy(spipe_worker_t *worker) {
    cudaError_t e = cudaSuccess;
    int forked;
    if (!worker || spipe_priv_is_dead(&worker->owner)) return cudaSuccess;
    /* First, and as a call like others, because a function that runs may add calls. */
    if (worker->running) e = spipe_worker_wait(worker);
    if (e != cudaSuccess && e != SPIPE_PRIV_FORKED) return e;
    SPIPE_TRY(spipe_priv_begin_destroy(&worker->owner, worker, &forked));
    if (worker->running) spipe_priv_worker_end(worker, forked);
    spipe_priv_sync_destroy(worker->sync);
    memset(worker, 0, offsetof(spipe_worker_t, owner));
    return spipe_priv_end_destroy(&worker->owner, forked, cudaSuccess);
}
