/* ---- 12 execute: workers -------------------------------------------------------------------
   The threads that fill slots, drain them and run host stages; posting tasks to them. Knows tasks
   only by number; what they do is in hostwork.h. Writes spipe_priv_workers_t. */

enum {
    SPIPE_PRIV_ASKS_FROM = 32 /* chunks for each thread: in so long a run it calls CUDA */
};

/* Does a task; in hostwork.h. */
SPIPE_PRIV_RARE void spipe_priv_do_task(spipe_priv_pipeline_t *p, spipe_priv_task_t t);

/* Whether the oldest task of a queue can be done now: a slot is filled again once its copy in has
   ended, and drained once its copy out has. Called with the lock held. */
SPIPE_PRIV_RARE int spipe_priv_is_ready(const spipe_priv_pipeline_t *p,
                                        const spipe_priv_queue_t *q) {
    const spipe_priv_task_t *t = &q->tasks[q->head];
    if (q->num_tasks == 0) return 0; /* between runs the plan may change */
    if (t->what == SPIPE_PRIV_DRAIN) return t->batch < p->run.at.polled_out;
    if (t->what != SPIPE_PRIV_FILL || p->route.refill != SPIPE_PRIV_REFILL_COPIED_IN) return 1;
    return t->batch < p->plan.depth + p->run.at.polled_in;
}

/* Returns 1 if the work before an event of batch *polled has ended; -1 if with an error, which ends
   the run. For the error *polled is read again: while the thread that asks is held up, others go
   on, and CUDA returns an error of the GPU for any event. */
SPIPE_PRIV_RARE int spipe_priv_poll_event(spipe_priv_pipeline_t *p, cudaEvent_t event,
                                          const size_t *polled) {
    cudaError_t e;
    if (!event) return 0; /* of a single batch: no task waits for its copies */
    e = spipe_priv_query(event);
    if (spipe_priv_reached(e)) return 1;
    if (e == cudaErrorNotReady) return 0;
    (void)spipe_priv_check_step(p, e, -1, SPIPE_PRIV_LOAD(*polled),
                                "a stage or copy (a checked run tells which)");
    return -1;
}

/* A calling thread that helps fills the first batch and drains the last one: no worker would wake
   up sooner. */
SPIPE_PRIV_RARE int spipe_priv_is_callers(const spipe_priv_pipeline_t *p,
                                          const spipe_priv_task_t *t) {
    if (!p->plan.caller_helps) return 0;
    return (t->what == SPIPE_PRIV_FILL && t->batch == 0) ||
           (t->what == SPIPE_PRIV_DRAIN && t->batch + 1 == p->run.num_batches);
}

/* Counts batches whose copies have ended, for which tasks of a kind wait. A worker that asked does
   the task that may follow itself, so no other is woken. */
SPIPE_PRIV_RARE void spipe_priv_count_polled(spipe_priv_pipeline_t *p, int what, size_t batches) {
    size_t *polled = what == SPIPE_PRIV_FILL ? &p->run.at.polled_in : &p->run.at.polled_out;
    spipe_priv_queue_t *q = &p->workers.queues[what];
    spipe_priv_worker_t *w = NULL;
    spipe_priv_lock(p->sync);
    if (*polled < batches) SPIPE_PRIV_STORE(*polled, batches);
    if (!q->polling && spipe_priv_is_ready(p, q) && !spipe_priv_is_callers(p, &q->tasks[q->head])) {
        w = spipe_priv_unpark(&q->parked);
    }
    spipe_priv_unlock_and_wake(p->sync, w);
}

/* Asks whether these copies of one more batch have ended; after an error, too, because then nothing
   is drained. Returns whether they have. In a checked run the calling thread waits for each step
   and meets its errors itself, so nothing is asked before that. */
SPIPE_PRIV_RARE int spipe_priv_ask(spipe_priv_pipeline_t *p, int what) {
    const int in = what == SPIPE_PRIV_FILL;
    const size_t *issued = in ? &p->run.at.issued_in : &p->run.at.issued_out;
    const size_t *polled = in ? &p->run.at.polled_in : &p->run.at.polled_out;
    const size_t batch = SPIPE_PRIV_LOAD(*polled);
    const spipe_priv_slot_t *slot = &p->memory.slots[batch % p->plan.depth];
    if (batch >= SPIPE_PRIV_LOAD(*issued)) return 0;
    if (p->request.desc.checked && !SPIPE_PRIV_LOAD(p->run.failed)) return 0;
    if (spipe_priv_poll_event(p, in ? slot->in_done : slot->out_done, polled) == 0) return 0;
    spipe_priv_count_polled(p, what, batch + 1);
    return 1;
}

/* Whether workers ask CUDA, or the calling thread does: a thread's first call of CUDA takes long,
   which pays only in a long run. */
SPIPE_PRIV_RARE int spipe_priv_workers_ask(const spipe_priv_pipeline_t *p,
                                           const spipe_priv_queue_t *q) {
    const int in = q == &p->workers.queues[SPIPE_PRIV_FILL];
    const size_t *polled = in ? &p->run.at.polled_in : &p->run.at.polled_out;
    if (p->request.desc.resources) return 1; /* lent threads have called CUDA before */
    if (p->request.kept) return 1;
    return SPIPE_PRIV_LOAD(*polled) >= SPIPE_PRIV_ASKS_FROM * SPIPE_PRIV_LOAD(q->num_threads);
}

/* Whether no task will follow in a queue: all batches of a one-shot run are filled, or drained.
   Then its workers end. Called with the lock held. */
SPIPE_PRIV_RARE int spipe_priv_is_over(const spipe_priv_pipeline_t *p,
                                       const spipe_priv_queue_t *q) {
    if (p->request.kept || p->run.positions) return 0; /* they may begin again */
    if (q->num_tasks > 0 || q->num_taken == 0) return 0;
    return q->num_taken >= p->run.num_batches && q != &p->workers.queues[SPIPE_PRIV_HOST];
}

/* Does the oldest task of a queue, and wakes a worker, or none (NULL), to ask for the next one;
   called and returns with the lock held. With the last task, the parked workers are woken: they end
   while it is done, so the run need not wait for them. */
SPIPE_PRIV_RARE void spipe_priv_do_next(spipe_priv_pipeline_t *p, spipe_priv_queue_t *q,
                                        spipe_priv_worker_t *next) {
    const spipe_priv_task_t t = q->tasks[q->head];
    q->head = (q->head + 1) % SPIPE_PRIV_QUEUE;
    --q->num_tasks;
    ++q->num_busy;
    q->num_taken += t.what != SPIPE_PRIV_TOUCH;
    if (spipe_priv_is_over(p, q)) spipe_priv_wake_all(q);
    spipe_priv_unlock_and_wake(p->sync, next);
    spipe_priv_do_task(p, t);
    spipe_priv_lock(p->sync);
    --q->num_busy;
}

/* One worker at a time asks for the oldest task of its queue, so that the calling thread need not
   ask and the others can sleep. If the copy has ended, it wakes the next worker to ask, and does
   that task. *asked: whether this worker has called CUDA before. Called, and returns, with the lock
   held. */
SPIPE_PRIV_RARE void spipe_priv_poll_copy(spipe_priv_pipeline_t *p, spipe_priv_queue_t *q,
                                          int *asked) {
    const int what = q->tasks[q->head].what;
    SPIPE_PRIV_STORE(q->polling, 1);
    spipe_priv_unlock(p->sync);
    if (!*asked) (void)cudaSetDevice(p->request.device); /* else CUDA starts on device 0 */
    *asked = 1;
    if (!spipe_priv_ask(p, what)) spipe_priv_yield(&q->busy_until);
    spipe_priv_lock(p->sync);
    SPIPE_PRIV_STORE(q->polling, 0);
    if (!spipe_priv_is_ready(p, q)) return;
    spipe_priv_do_next(p, q, q->num_tasks > 1 ? spipe_priv_unpark(&q->parked) : NULL);
}

SPIPE_PRIV_RARE void *spipe_priv_worker_thread(void *arg) {
    spipe_priv_queue_t *q = (spipe_priv_queue_t *)arg;
    spipe_priv_pipeline_t *p = q->pipeline;
    spipe_priv_worker_t *w;
    size_t number;
    spipe_priv_model_worker();
    (void)spipe_priv_own_calls();
    if (q == &p->workers.queues[SPIPE_PRIV_HOST]) (void)cudaSetDevice(p->request.device);
    spipe_priv_lock(p->sync);
    number = q->num_begun++;
    w = &q->workers[number];
    memset((void *)w, 0, sizeof *w);
    spipe_priv_cond_create(&w->work);
    while (!p->workers.quit && !spipe_priv_is_over(p, q)) {
        const int barred = number >= q->limit;
        if (!barred && spipe_priv_is_ready(p, q))
            spipe_priv_do_next(p, q, NULL);
        else if (!barred && q->num_tasks > 0 && !q->polling && spipe_priv_workers_ask(p, q))
            spipe_priv_poll_copy(p, q, &w->asked);
        else {
            if (barred) spipe_priv_wake_one(&q->parked); /* to ask, as this one may have done */
            spipe_priv_park(p->sync, barred ? &q->barred : &q->parked, w);
        }
    }
    spipe_priv_wake_one(&q->parked);
    spipe_priv_unlock(p->sync);
    return NULL; /* its condition stays: a thread may be about to signal it */
}

/* Posts a task. *issued, unless it is NULL, counts one more batch whose copies are in the streams.
   If the task has to wait for a copy, a worker is woken only to ask about that copy. */
SPIPE_PRIV_RARE void spipe_priv_post_after(spipe_priv_pipeline_t *p, int what, int stage,
                                           size_t batch, size_t *issued) {
    const int number = what == SPIPE_PRIV_TOUCH ? (int)(batch % 2) : what;
    spipe_priv_queue_t *q = &p->workers.queues[number];
    spipe_priv_worker_t *w = NULL;
    spipe_priv_task_t *t;
    int ask;
    spipe_priv_lock(p->sync);
    if (issued) SPIPE_PRIV_STORE(*issued, *issued + 1);
    if (what != SPIPE_PRIV_FILL || batch < p->run.num_batches) {
        if (what != SPIPE_PRIV_HOST) spipe_priv_model_post(p, what, stage, batch);
        t = &q->tasks[(q->head + q->num_tasks++) % SPIPE_PRIV_QUEUE];
        t->what = what;
        t->stage = stage;
        t->batch = batch;
        t->began = 0.0;
        ask = !q->polling && spipe_priv_workers_ask(p, q);
        if ((ask || spipe_priv_is_ready(p, q)) && !spipe_priv_is_callers(p, t)) {
            w = spipe_priv_unpark(&q->parked);
        }
    }
    spipe_priv_unlock_and_wake(p->sync, w);
}

SPIPE_PRIV_RARE void spipe_priv_post(spipe_priv_pipeline_t *p, int what, int stage, size_t batch) {
    spipe_priv_post_after(p, what, stage, batch, NULL);
}

/* Posts the draining of a batch, once its copies out are issued. */
SPIPE_PRIV_RARE void spipe_priv_post_drain(spipe_priv_pipeline_t *p, size_t batch) {
    spipe_priv_post_after(p, SPIPE_PRIV_DRAIN, -1, batch, &p->run.at.issued_out);
}

/* Posts a host stage for a batch. An ordered one is posted when the batch before has left it, so no
   worker ever waits for a turn while there is other work. */
SPIPE_PRIV_RARE void spipe_priv_post_host(spipe_priv_pipeline_t *p, int stage, size_t batch) {
    int ready;
    spipe_priv_model_post(p, SPIPE_PRIV_HOST, stage, batch);
    spipe_priv_lock(p->sync);
    p->run.at.host_begun[stage] = batch + 1;
    ready = !p->request.desc.stages[stage].ordered || p->run.at.host_left[stage] == batch;
    spipe_priv_unlock(p->sync);
    if (ready) spipe_priv_post(p, SPIPE_PRIV_HOST, stage, batch);
}

/* Called when a batch has left a host stage. */
SPIPE_PRIV_RARE void spipe_priv_left_host(spipe_priv_pipeline_t *p, int stage, size_t batch) {
    int next;
    spipe_priv_lock(p->sync);
    SPIPE_PRIV_STORE(p->memory.slots[batch % p->plan.depth].host_done[stage], batch + 1);
    p->run.at.host_left[stage] = batch + 1;
    next = p->request.desc.stages[stage].ordered && p->run.at.host_begun[stage] > batch + 1;
    spipe_priv_wake(p->sync);
    spipe_priv_unlock(p->sync);
    if (next) spipe_priv_post(p, SPIPE_PRIV_HOST, stage, batch + 1);
}

/* Threads of each kind: what the plan wants, or the run's share of them. */
SPIPE_PRIV_RARE void spipe_priv_wanted_threads(spipe_priv_pipeline_t *p, size_t wanted[]) {
    wanted[SPIPE_PRIV_FILL] = p->plan.fill_threads;
    wanted[SPIPE_PRIV_DRAIN] = p->plan.drain_threads;
    wanted[SPIPE_PRIV_HOST] = p->plan.host_threads;
    if (p->provider) p->provider->share(p, wanted);
}

/* Allocates the queues when there is host work. A task is set when it is posted and a worker when
   its thread begins, so a short run does not touch the memory of the others. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_create_queues(spipe_priv_pipeline_t *p) {
    const size_t ring = SPIPE_PRIV_QUEUE * sizeof(spipe_priv_task_t);
    const size_t workers = SPIPE_MAX_THREADS * sizeof(spipe_priv_worker_t);
    unsigned char *at;
    int i;
    if (p->workers.block || !p->route.host_work) return cudaSuccess;
    at = (unsigned char *)malloc(SPIPE_PRIV_NUM_QUEUES * (ring + workers));
    if (!at) return cudaErrorMemoryAllocation;
    p->workers.block = at;
    for (i = 0; i < SPIPE_PRIV_NUM_QUEUES; ++i, at += ring + workers) {
        spipe_priv_queue_t *q = &p->workers.queues[i];
        q->pipeline = p;
        q->tasks = (spipe_priv_task_t *)(void *)at;
        q->workers = (spipe_priv_worker_t *)(void *)(at + ring);
    }
    return cudaSuccess;
}

SPIPE_PRIV_RARE void spipe_priv_start_queue(spipe_priv_pipeline_t *p, spipe_priv_queue_t *q,
                                            size_t wanted) {
    size_t k;
    if (wanted > p->plan.depth) wanted = p->plan.depth;
    for (k = q->num_threads; k < wanted; ++k) {
        void *thread = p->provider ? p->provider->start_thread(p->request.desc.resources,
                                                               spipe_priv_worker_thread, q)
                                   : spipe_priv_thread_start(spipe_priv_worker_thread, q);
        if (!thread) break;
        spipe_priv_model_started();
        spipe_priv_lock(p->sync);
        q->threads[k] = thread;
        SPIPE_PRIV_STORE(q->num_threads, k + 1);
        spipe_priv_unlock(p->sync);
    }
    spipe_priv_lock(p->sync);
    if (q->limit != wanted) {
        SPIPE_PRIV_STORE(q->limit, wanted);
        spipe_priv_wake_all(q); /* each worker checks whether it is within the limit */
    }
    spipe_priv_unlock(p->sync);
}

/* Starts the threads that the plan wants and that do not run yet; fewer, down to none, will do. */
SPIPE_PRIV_RARE void spipe_priv_start_workers(spipe_priv_pipeline_t *p) {
    size_t wanted[SPIPE_PRIV_NUM_QUEUES];
    int i;
    spipe_priv_wanted_threads(p, wanted);
    if (!p->workers.block) return;
    if (!p->workers.started && wanted[0] + wanted[1] + wanted[2] == 0) return;
    if (p->sync->single_threaded) p->sync->single_threaded = 0; /* no other thread yet */
    p->workers.started = 1;
    if (p->request.cpus == 0) p->request.cpus = spipe_priv_num_cpus();
    p->workers.all_cpus = wanted[0] + wanted[1] >= p->request.cpus;
    for (i = 0; i < SPIPE_PRIV_NUM_QUEUES; ++i) {
        spipe_priv_start_queue(p, &p->workers.queues[i], wanted[i]);
    }
}

/* Ends the workers, whose queues are empty or not wanted any more. */
SPIPE_PRIV_RARE void spipe_priv_end_workers(spipe_priv_pipeline_t *p) {
    size_t k;
    int i;
    for (i = 0; i < SPIPE_PRIV_NUM_QUEUES && p->workers.block; ++i) {
        spipe_priv_queue_t *q = &p->workers.queues[i];
        spipe_priv_lock(p->sync);
        p->workers.quit = 1;
        spipe_priv_wake_all(q);
        spipe_priv_unlock(p->sync);
        for (k = q->num_threads; k > 0;) {
            void *thread = q->threads[--k];
            if (p->provider)
                p->provider->join_thread(p->request.desc.resources, thread);
            else
                spipe_priv_thread_join(thread);
        }
        while (q->num_begun > 0) spipe_priv_cond_destroy(&q->workers[--q->num_begun].work);
        q->num_threads = 0;
    }
    p->workers.quit = 0;
}

SPIPE_PRIV_RARE void spipe_priv_stop_workers(spipe_priv_pipeline_t *p) {
    spipe_priv_end_workers(p);
    spipe_priv_model_free(p);
    free(p->workers.block);
    p->workers.block = NULL;
}

/* Workers that may take tasks of this queue in this run. */
SPIPE_PRIV_RARE size_t spipe_priv_num_workers(const spipe_priv_queue_t *q) {
    const size_t started = SPIPE_PRIV_LOAD(q->num_threads), limit = SPIPE_PRIV_LOAD(q->limit);
    return started < limit ? started : limit;
}

/* Whether a waiting caller should help with a queue: its workers are missing or take all CPUs, or
   the plan says so; in that case it drains only if CUDA need not be asked about more copies. With
   host stages, sources and sinks, which take one thread at a time, it else helps only if there is
   no worker: a source that gives chunks in order may wait for what a sink has got, and only the
   caller issues. */
SPIPE_PRIV_RARE int spipe_priv_may_help(const spipe_priv_pipeline_t *p, int i) {
    const int all_polled =
        SPIPE_PRIV_LOAD(p->run.at.polled_out) >= SPIPE_PRIV_LOAD(p->run.num_batches);
    int help = p->workers.all_cpus && i != SPIPE_PRIV_HOST && !p->route.sequential;
    if (p->plan.caller_helps && i != SPIPE_PRIV_HOST) help = i == SPIPE_PRIV_FILL || all_polled;
    return help || spipe_priv_num_workers(&p->workers.queues[i]) == 0;
}

/* Does one task that the calling thread should and can do; returns 0 if there is none. It drains
   before it fills: while it fills a large chunk, nothing is issued, and slots that wait to be
   drained stay taken. */
SPIPE_PRIV_RARE int spipe_priv_help(spipe_priv_pipeline_t *p) {
    int i, ready = 0;
    for (i = 0; i < SPIPE_PRIV_NUM_QUEUES && p->workers.block && !ready; ++i) {
        spipe_priv_queue_t *q = &p->workers.queues[i];
        if (!spipe_priv_may_help(p, i)) continue;
        spipe_priv_lock(p->sync);
        ready = spipe_priv_is_ready(p, q);
        if (ready) spipe_priv_do_next(p, q, NULL);
        spipe_priv_unlock(p->sync);
    }
    return ready;
}

SPIPE_PRIV_RARE int spipe_priv_workers_busy(spipe_priv_pipeline_t *p) {
    int i, busy = 0;
    spipe_priv_lock(p->sync);
    for (i = 0; i < SPIPE_PRIV_NUM_QUEUES && p->workers.block; ++i) {
        const spipe_priv_queue_t *q = &p->workers.queues[i];
        busy |= q->num_tasks > 0 || q->num_busy > 0 || q->polling;
    }
    spipe_priv_unlock(p->sync);
    return busy;
}
