/* ---- 12 execute: the clock of a model -------------------------------------------------------
   Tells a CUDA runtime that models time (hostcuda, which defines HOSTCUDA_TASKS) which tasks the
   workers have and how long they take, so that a run there has one clock. With any other runtime
   all of this is empty. */
#if defined(HOSTCUDA_TASKS)
#define SPIPE_PRIV_TIMES       " (modelled)" /* behind times in a report */
#define SPIPE_PRIV_OWN_FIGURES " (of this CPU, not modelled)"

/* Distance of the bytes that are touched before pinning, which is only modelled. */
#define SPIPE_PRIV_TOUCH_STEP ((size_t)2 << 20)

/* Bytes that the calling thread has copied into a slot, or out of one. */
#define SPIPE_PRIV_COPIED(bytes, out) hostcuda_host_copy(bytes, out)

/* Seconds on the calling thread's clock. */
SPIPE_API double spipe_priv_clock(void) { return 1e-9 * hostcuda_now_ns(); }

/* Tasks are numbered by batches, those of host stages by stages, too. */
SPIPE_API size_t spipe_priv_task_number(int what, int stage, size_t batch) {
    return what == SPIPE_PRIV_HOST ? batch * SPIPE_MAX_STAGES + (size_t)stage : batch;
}

SPIPE_API unsigned spipe_priv_model_threads(const spipe_priv_queue_t *q) {
    return (unsigned)(q->num_threads < q->limit ? q->num_threads : q->limit);
}

/* Called when a run begins. */
SPIPE_API void spipe_priv_model_run(spipe_priv_pipeline_t *p) {
    const spipe_priv_queue_t *q = p->workers.queues;
    const unsigned copying = spipe_priv_model_threads(&q[SPIPE_PRIV_FILL]) +
                             spipe_priv_model_threads(&q[SPIPE_PRIV_DRAIN]);
    int i;
    for (i = 0; i < SPIPE_PRIV_NUM_QUEUES && p->workers.block; ++i) {
        hostcuda_pool_begin(&q[i], spipe_priv_model_threads(&q[i]), copying);
    }
}

SPIPE_API void spipe_priv_model_free(spipe_priv_pipeline_t *p) {
    int i;
    for (i = 0; i < SPIPE_PRIV_NUM_QUEUES; ++i) hostcuda_pool_end(&p->workers.queues[i]);
}

/* Whether batches of these tasks pass one after another: sources, sinks, ordered host stages. */
SPIPE_API int spipe_priv_model_in_turn(const spipe_priv_pipeline_t *p, int what, int stage) {
    const spipe_desc_t *d = &p->request.desc;
    int i;
    if (what == SPIPE_PRIV_HOST) return d->stages[stage].ordered;
    for (i = 0; i < d->num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &d->buffers[i];
        if (what == SPIPE_PRIV_FILL && b->kind == SPIPE_SOURCE && !b->filler) return 1;
        if (what == SPIPE_PRIV_DRAIN && b->kind == SPIPE_SINK) return 1;
    }
    return 0;
}

/* Called when a task is posted: says what it waits for, and whether the caller does it. */
SPIPE_API void spipe_priv_model_post(spipe_priv_pipeline_t *p, int what, int stage, size_t batch) {
    const size_t depth = p->plan.depth;
    const spipe_priv_slot_t *slot = &p->memory.slots[batch % depth];
    const spipe_priv_queue_t *q = p->workers.queues, *before = NULL;
    cudaEvent_t event = NULL;
    size_t number = 0;
    int callers = p->plan.caller_helps;
    if (what >= SPIPE_PRIV_NUM_QUEUES) return;
    if (batch > 0 && spipe_priv_model_in_turn(p, what, stage)) {
        before = &q[what];
        number = spipe_priv_task_number(what, stage, batch - 1);
    }
    if (what == SPIPE_PRIV_HOST) {
        event = slot->stage_done[stage];
    } else if (what == SPIPE_PRIV_DRAIN) {
        event = slot->out_done;
    } else if (batch >= depth && p->route.refill == SPIPE_PRIV_REFILL_DRAINED) {
        before = &q[SPIPE_PRIV_DRAIN];
        number = batch - depth;
    } else if (batch >= depth) {
        event = p->route.refill == SPIPE_PRIV_REFILL_COPIED_IN ? slot->in_done : slot->out_done;
    }
    callers &= (what == SPIPE_PRIV_FILL && batch == 0) ||
               (what == SPIPE_PRIV_DRAIN && batch + 1 == p->run.num_batches);
    hostcuda_task_post(&q[what], spipe_priv_task_number(what, stage, batch), event, before, number,
                       callers);
}

SPIPE_API void spipe_priv_model_begin(const spipe_priv_pipeline_t *p, const spipe_priv_task_t *t) {
    if (t->what >= SPIPE_PRIV_NUM_QUEUES) return;
    hostcuda_task_begin(&p->workers.queues[t->what],
                        spipe_priv_task_number(t->what, t->stage, t->batch));
}

SPIPE_API void spipe_priv_model_end(void) { hostcuda_task_end(); }

/* Advances the calling thread's clock to the end of a task that it has seen done. */
SPIPE_API void spipe_priv_model_await(const spipe_priv_pipeline_t *p, int what, int stage,
                                      size_t batch) {
    hostcuda_task_await(&p->workers.queues[what], spipe_priv_task_number(what, stage, batch));
}

/* Whether, on the modelled clock, the slot is filled later than now. */
SPIPE_API int spipe_priv_model_unfilled(const spipe_priv_pipeline_t *p, size_t batch) {
    return hostcuda_task_is_done(&p->workers.queues[SPIPE_PRIV_FILL], batch) == 0;
}

/* Whether that is not known before it was really filled. */
SPIPE_API int spipe_priv_model_unsure(const spipe_priv_pipeline_t *p, size_t batch) {
    return hostcuda_task_is_done(&p->workers.queues[SPIPE_PRIV_FILL], batch) < 0;
}

/* The calling thread is a new worker, whose calls to CUDA only serve the tasks. */
SPIPE_API void spipe_priv_model_started(void) { hostcuda_thread_started(); }

SPIPE_API void spipe_priv_model_worker(void) { (void)hostcuda_unmodelled(1); }

/* The calling thread may have been a worker, and now issues work of its own. */
SPIPE_API void spipe_priv_model_issuer(void) { (void)hostcuda_unmodelled(0); }

/* The calling thread has joined others: its clock advances to the latest of theirs. */
SPIPE_API void spipe_priv_model_joined(void) { hostcuda_catch_up(); }

/* A lent thread begins: its modelled clock goes on to that time, which is that of the thread that
   called spipe_run. */
SPIPE_API void spipe_priv_model_until(double seconds) { hostcuda_host_until(1e9 * seconds); }

/* 1: calls to CUDA take no modelled time from here on, 0: they do again. Returns what was. */
SPIPE_API int spipe_priv_model_pause(int pause) { return hostcuda_unmodelled(pause); }

/* cudaEventQuery without modelled time, because how often workers ask is chance. */
SPIPE_API cudaError_t spipe_priv_query(cudaEvent_t event) {
    const int before = spipe_priv_model_pause(1);
    const cudaError_t e = cudaEventQuery(event);
    (void)spipe_priv_model_pause(before);
    return e;
}

/* When a task was done, in seconds on the clock of spipe_priv_clock; 0 = not known. */
SPIPE_API int spipe_priv_model_times(const spipe_priv_pipeline_t *p, int what, int stage,
                                     size_t batch, double *begin, double *end) {
    if (!hostcuda_task_times(&p->workers.queues[what], spipe_priv_task_number(what, stage, batch),
                             begin, end)) {
        return 0;
    }
    *begin *= 1e-9;
    *end *= 1e-9;
    return 1;
}
#else
#define SPIPE_PRIV_TIMES                              ""
#define SPIPE_PRIV_OWN_FIGURES                        ""
#define SPIPE_PRIV_TOUCH_STEP                         4096
#define SPIPE_PRIV_COPIED(bytes, out)                 ((void)0)
#define spipe_priv_clock()                            spipe_priv_seconds()
#define spipe_priv_query(event)                       cudaEventQuery(event)
#define spipe_priv_model_run(p)                       ((void)0)
#define spipe_priv_model_free(p)                      ((void)0)
#define spipe_priv_model_post(p, what, stage, batch)  ((void)0)
#define spipe_priv_model_begin(p, t)                  ((void)0)
#define spipe_priv_model_end()                        ((void)0)
#define spipe_priv_model_await(p, what, stage, batch) ((void)0)
#define spipe_priv_model_unfilled(p, batch)           0
#define spipe_priv_model_unsure(p, batch)             0
#define spipe_priv_model_started()                    ((void)0)
#define spipe_priv_model_worker()                     ((void)0)
#define spipe_priv_model_issuer()                     ((void)0)
#define spipe_priv_model_joined()                     ((void)0)
#define spipe_priv_model_until(seconds)               ((void)0)

SPIPE_API int spipe_priv_model_pause(int pause) { return pause; }

SPIPE_API int spipe_priv_model_times(const spipe_priv_pipeline_t *p, int what, int stage,
                                     size_t batch, const double *begin, const double *end) {
    (void)p;
    (void)what;
    (void)stage;
    (void)batch;
    (void)begin;
    (void)end;
    return 0;
}
#endif
