/* ---- 4 execute: the clock of a model --------------------------------------------------------
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

/* Whether the engine decides as the model would, so that modelled times are the same whatever this
   computer's CPUs do: a chunk takes the slot that the one depth before it frees, and the calling
   thread issues in order. */
SPIPE_PRIV_LOCAL int spipe_priv_is_modelled(void) { return !hostcuda_is_free(); }

/* Seconds on the calling thread's clock. */
SPIPE_PRIV_LOCAL double spipe_priv_clock(void) { return 1e-9 * hostcuda_now_ns(); }

enum {
    SPIPE_PRIV_TASKS_A_CHUNK = SPIPE_MAX_STAGES + 2
};

/* Tasks are numbered by age: those of a chunk, then those of the next. */
SPIPE_PRIV_LOCAL size_t spipe_priv_task_number(int what, int stage, size_t order) {
    size_t number = 0;
    if (what == SPIPE_PRIV_HOST) number = 1 + (size_t)stage;
    if (what == SPIPE_PRIV_DRAIN) number = SPIPE_MAX_STAGES + 1;
    return order * SPIPE_PRIV_TASKS_A_CHUNK + number;
}

/* Threads that copy, which share the host memory's rate. */
SPIPE_PRIV_LOCAL unsigned spipe_priv_model_copying(const spipe_priv_pipeline_t *p) {
    const size_t host = p->workers.planned[SPIPE_PRIV_HOST];
    return p->workers.active > host ? (unsigned)(p->workers.active - host) : 0;
}

/* Called when a run begins, and when its number of threads changes. */
SPIPE_PRIV_LOCAL void spipe_priv_model_run(spipe_priv_pipeline_t *p) {
    const size_t started = p->workers.num_threads, active = p->workers.active;
    if (!p->run.states || !spipe_priv_is_modelled()) return;
    hostcuda_pool_begin(&p->workers, (unsigned)(started < active ? started : active),
                        spipe_priv_model_copying(p));
}

SPIPE_PRIV_LOCAL void spipe_priv_model_threads(spipe_priv_pipeline_t *p) {
    if (!spipe_priv_is_modelled()) return;
    hostcuda_pool_threads(&p->workers, (unsigned)p->workers.active, spipe_priv_model_copying(p));
}

/* Seconds that the pool's threads were busy, up to now by the calling thread's clock. */
SPIPE_PRIV_LOCAL double spipe_priv_model_busy(const spipe_priv_pipeline_t *p) {
    return 1e-9 * hostcuda_pool_busy(&p->workers);
}

SPIPE_PRIV_LOCAL void spipe_priv_model_free(spipe_priv_pipeline_t *p) {
    hostcuda_pool_end(&p->workers);
}

/* Whether chunks of these tasks pass one after another: sources, sinks, ordered host stages. */
SPIPE_PRIV_LOCAL int spipe_priv_model_in_turn(const spipe_priv_pipeline_t *p, int what, int stage) {
    const spipe_desc_t *d = &p->request.desc;
    int i;
    if (what == SPIPE_PRIV_HOST) return d->stages[stage].ordered;
    for (i = 0; i < d->num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &d->buffers[i];
        if (spipe_priv_in_order(b, what == SPIPE_PRIV_DRAIN) && !b->filler) return 1;
    }
    return 0;
}

/* Posts a task of the chunk of this order: says what it waits for, and whether the caller does
   it. */
SPIPE_PRIV_LOCAL void spipe_priv_model_post(spipe_priv_pipeline_t *p, int what, int stage,
                                            size_t order) {
    const size_t depth = p->plan.depth;
    const spipe_priv_slot_t *slot = &p->memory.slots[order % depth];
    cudaEvent_t event = NULL;
    size_t before[2] = {SIZE_MAX, SIZE_MAX};
    int callers = p->plan.caller_helps;
    if (!spipe_priv_is_modelled()) return;
    if (order > 0 && spipe_priv_model_in_turn(p, what, stage)) {
        before[0] = spipe_priv_task_number(what, stage, order - 1);
    }
    if (what == SPIPE_PRIV_HOST) event = slot->stage_done[stage];
    if (what == SPIPE_PRIV_DRAIN) event = slot->out_done;
    if (what == SPIPE_PRIV_FILL && order >= depth) {
        if (p->route.drains)
            before[1] = spipe_priv_task_number(SPIPE_PRIV_DRAIN, -1, order - depth);
        else
            event = p->route.until_done ? slot->out_done : slot->in_done;
    }
    callers &= (what == SPIPE_PRIV_FILL && order == 0) ||
               (what == SPIPE_PRIV_DRAIN && order + 1 == p->run.num_chunks);
    hostcuda_task_post(&p->workers, spipe_priv_task_number(what, stage, order), event, before,
                       callers);
}

/* No slot is given to chunks from this order on. */
SPIPE_PRIV_LOCAL void spipe_priv_model_cut(const spipe_priv_pipeline_t *p, size_t order) {
    if (!spipe_priv_is_modelled()) return;
    hostcuda_pool_cut(&p->workers, spipe_priv_task_number(SPIPE_PRIV_FILL, -1, order));
}

SPIPE_PRIV_LOCAL void spipe_priv_model_begin(const spipe_priv_pipeline_t *p,
                                             const spipe_priv_task_t *t) {
    if (t->what == SPIPE_PRIV_TOUCH || !spipe_priv_is_modelled()) return;
    hostcuda_task_begin(&p->workers, spipe_priv_task_number(t->what, t->stage, t->slot->order));
}

SPIPE_PRIV_LOCAL void spipe_priv_model_end(void) { hostcuda_task_end(); }

/* Advances the calling thread's clock to the end of a task that it has seen done. */
SPIPE_PRIV_LOCAL void spipe_priv_model_await(const spipe_priv_pipeline_t *p, int what, int stage,
                                             size_t order) {
    if (!spipe_priv_is_modelled()) return;
    hostcuda_task_await(&p->workers, spipe_priv_task_number(what, stage, order));
}

/* Whether, on the modelled clock, the slot is filled now; -1 = not known before it really is. */
SPIPE_PRIV_LOCAL int spipe_priv_model_filled(const spipe_priv_pipeline_t *p, size_t order) {
    if (!spipe_priv_is_modelled()) return 1;
    return hostcuda_task_is_done(&p->workers, spipe_priv_task_number(SPIPE_PRIV_FILL, -1, order));
}

/* Which of these tasks the calling thread goes on with: the first that is done by its clock, or
   else the one that is done soonest. */
SPIPE_PRIV_LOCAL size_t spipe_priv_model_first(const spipe_priv_pipeline_t *p,
                                               const size_t *numbers, size_t num) {
    return hostcuda_task_first(&p->workers, numbers, num);
}

/* The calling thread is a new worker, whose calls to CUDA only serve the tasks. */
SPIPE_PRIV_LOCAL void spipe_priv_model_started(void) { hostcuda_thread_started(); }

SPIPE_PRIV_LOCAL void spipe_priv_model_worker(void) { (void)hostcuda_unmodelled(1); }

/* The calling thread may have been a worker, and now issues work of its own. */
SPIPE_PRIV_LOCAL void spipe_priv_model_issuer(void) { (void)hostcuda_unmodelled(0); }

/* The calling thread has joined others: its clock advances to the latest of theirs. */
SPIPE_PRIV_LOCAL void spipe_priv_model_joined(void) { hostcuda_catch_up(); }

/* A lent thread begins: its modelled clock goes on to that time, which is that of the thread that
   called spipe_run. */
SPIPE_PRIV_LOCAL void spipe_priv_model_until(double seconds) { hostcuda_host_until(1e9 * seconds); }

/* 1: calls to CUDA take no modelled time from here on, 0: they do again. Returns what was. */
SPIPE_PRIV_LOCAL int spipe_priv_model_pause(int pause) { return hostcuda_unmodelled(pause); }

/* cudaEventQuery without modelled time, because how often threads ask is chance. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_query(cudaEvent_t event) {
    const int before = spipe_priv_model_pause(1);
    const cudaError_t e = cudaEventQuery(event);
    (void)spipe_priv_model_pause(before);
    return e;
}

/* When a task was done, in seconds on the clock of spipe_priv_clock; 0 = not known. */
SPIPE_PRIV_LOCAL int spipe_priv_model_times(const spipe_priv_pipeline_t *p, int what, int stage,
                                            size_t order, double *begin, double *end) {
    if (!hostcuda_task_times(&p->workers, spipe_priv_task_number(what, stage, order), begin, end)) {
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
#define spipe_priv_is_modelled()                      0
#define spipe_priv_clock()                            spipe_priv_seconds()
#define spipe_priv_query(event)                       cudaEventQuery(event)
#define spipe_priv_model_run(p)                       ((void)0)
#define spipe_priv_model_threads(p)                   ((void)0)
#define spipe_priv_model_busy(p)                      0.0
#define spipe_priv_model_free(p)                      ((void)0)
#define spipe_priv_model_post(p, what, stage, order)  ((void)0)
#define spipe_priv_model_cut(p, order)                ((void)0)
#define spipe_priv_model_begin(p, t)                  ((void)0)
#define spipe_priv_model_end()                        ((void)0)
#define spipe_priv_model_await(p, what, stage, order) ((void)0)
#define spipe_priv_model_filled(p, order)             1
#define spipe_priv_model_first(p, numbers, num)       0
#define spipe_priv_task_number(what, stage, order)    (order)
#define spipe_priv_model_started()                    ((void)0)
#define spipe_priv_model_worker()                     ((void)0)
#define spipe_priv_model_issuer()                     ((void)0)
#define spipe_priv_model_joined()                     ((void)0)
#define spipe_priv_model_until(seconds)               ((void)0)

SPIPE_PRIV_LOCAL int spipe_priv_model_pause(int pause) { return pause; }

SPIPE_PRIV_LOCAL int spipe_priv_model_times(const spipe_priv_pipeline_t *p, int what, int stage,
                                            size_t order, const double *begin, const double *end) {
    (void)p;
    (void)what;
    (void)stage;
    (void)order;
    (void)begin;
    (void)end;
    return 0;
}
#endif
