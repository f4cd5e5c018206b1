/* ---- 4 execute: workers --------------------------------------------------------------------
   The threads of a run, and how all of them wait. What they do is in working.h. Writes
   spipe_priv_workers_t. */

/* Does one thing that is ready, if there is one that this thread may do; in working.h. */
SPIPE_PRIV_RARE int spipe_priv_do_one(spipe_priv_pipeline_t *p, spipe_priv_hand_t *h);

#define SPIPE_PRIV_AWAKE_S 2e-3 /* a thread waits awake for as long as a wait usually takes */
#define SPIPE_PRIV_NAP_US  50   /* between two questions to the GPU once it lets us wait longer */

enum {
    SPIPE_PRIV_STEERED_ROUNDS = 8 /* of the ring: shorter runs keep the plan's threads */
};

/* Counts the seconds of idle workers, for the steering, and whether this one is idle. Called with
   the lock held. */
SPIPE_PRIV_RARE void spipe_priv_count_idle(spipe_priv_pipeline_t *p, spipe_priv_hand_t *h,
                                           int idle) {
    spipe_priv_workers_t *w = &p->workers;
    if (h->asks && !idle) w->asker = h->asks = 0;
    if (!idle) h->since = 0.0;
    if (h->caller || h->idle == idle) return;
    if (p->workers.steer.began > 0.0) {
        const double now = spipe_priv_seconds();
        p->workers.steer.idle_s += (double)w->idle * (now - p->workers.steer.idle_since);
        p->workers.steer.idle_since = now;
    }
    h->idle = idle;
    w->idle = idle ? w->idle + 1 : w->idle - 1;
}

/* Waits awake for news, for a moment. */
SPIPE_PRIV_RARE void spipe_priv_wait_awake(spipe_priv_pipeline_t *p, double most) {
    const unsigned seen = p->workers.news;
    const double until = spipe_priv_seconds() + most;
    spipe_priv_unlock(p->sync);
    do {
        spipe_priv_give_up_cpu();
    } while (SPIPE_PRIV_LOAD(p->workers.news) == seen && spipe_priv_seconds() < until);
    spipe_priv_lock(p->sync);
}

/* Whether a thread may wait awake. Not a caller whose workers do everything: it would take a CPU
   from them where other programs want the rest. */
SPIPE_PRIV_RARE int spipe_priv_may_wait_awake(const spipe_priv_pipeline_t *p,
                                              const spipe_priv_hand_t *h) {
    const spipe_priv_workers_t *w = &p->workers;
    if (p->request.desc.blocking) return 0;
    if (!h->caller || p->provider || p->plan.caller_helps || w->all_cpus) return 1;
    return w->num_threads == 0 || !spipe_priv_workers_issue(p);
}

/* Lets the GPU work for a while: sleeps a little or, if asked to, until an event has come. */
SPIPE_PRIV_RARE void spipe_priv_let_work(spipe_priv_pipeline_t *p, spipe_priv_hand_t *h) {
    cudaEvent_t event = NULL;
    int stage, sleeps = p->request.desc.blocking && !spipe_priv_is_modelled();
    if (!spipe_priv_next_asked(p, 1, &event, &stage)) {
        (void)spipe_priv_next_asked(p, 0, &event, &stage);
    }
    sleeps &= event != NULL;
    p->run.at.asking |= sleeps;
    p->run.at.busy += (size_t)sleeps;
    spipe_priv_unlock(p->sync);
    if (sleeps) {
        if (!h->on_device) (void)cudaSetDevice(p->request.device);
        h->on_device = 1;
        if (cudaEventSynchronize(event) != cudaSuccess) (void)cudaGetLastError(); /* asked again */
    } else {
        spipe_priv_nap(SPIPE_PRIV_NAP_US);
    }
    spipe_priv_lock(p->sync);
    if (!sleeps) return;
    p->run.at.asking = 0;
    --p->run.at.busy;
    h->since = 0.0;
}

/* A thread begins to look for what it can do: if news come meanwhile, while it has not the lock, it
   looks again before it waits. Always returns 1. */
SPIPE_PRIV_RARE int spipe_priv_look_anew(const spipe_priv_pipeline_t *p, spipe_priv_hand_t *h) {
    h->seen = p->workers.news;
    return 1;
}

/* One turn of waiting, for a thread that has nothing to do: awake for as long as a wait usually
   takes, then asleep; one thread sleeps in naps while only the GPU can bring news. Called with the
   lock held. */
SPIPE_PRIV_RARE void spipe_priv_rest(spipe_priv_pipeline_t *p, spipe_priv_hand_t *h) {
    spipe_priv_workers_t *w = &p->workers;
    const double now = spipe_priv_seconds();
    const int may_ask = h->caller || spipe_priv_workers_call(p);
    const int asks = spipe_priv_asks(p);
    if (w->news != h->seen) return; /* something came while it looked, without the lock */
    if (h->since <= 0.0) h->since = now;
    if (!w->asker && may_ask && asks) w->asker = h->asks = 1;
    if (spipe_priv_may_wait_awake(p, h) && now - h->since < SPIPE_PRIV_AWAKE_S) {
        spipe_priv_wait_awake(p, h->asks ? 1e-6 : 20e-6);
    } else if ((h->asks && asks) || w->num_threads == 0) {
        spipe_priv_let_work(p, h);
    } else {
        if (h->asks) w->asker = h->asks = 0;
        if (h->caller) {
            w->caller_asleep = 1;
            spipe_priv_wait(p->sync);
            w->caller_asleep = 0;
        } else {
            ++w->asleep;
            spipe_priv_cond_wait(&w->work, &p->sync->lock);
            --w->asleep;
        }
        h->since = 0.0;
    }
}

/* Whether a worker ends: it is told to, or no task will follow in a one-shot run. */
SPIPE_PRIV_RARE int spipe_priv_worker_ends(const spipe_priv_pipeline_t *p) {
    if (p->workers.quit) return 1;
    return !p->request.kept && !p->run.shared && spipe_priv_is_worked_off(p);
}

SPIPE_PRIV_RARE void *spipe_priv_worker_thread(void *arg) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)arg;
    spipe_priv_workers_t *w = &p->workers;
    spipe_priv_hand_t h;
    memset((void *)&h, 0, sizeof h);
    spipe_priv_model_worker();
    (void)spipe_priv_own_calls();
    spipe_priv_lock(p->sync);
    ++w->taking;
    while (spipe_priv_look_anew(p, &h) && !spipe_priv_worker_ends(p)) {
        if (w->taking > w->active) {
            spipe_priv_count_idle(p, &h, 0);
            --w->taking;
            spipe_priv_wake(p->sync); /* others have to do what it may have been woken for */
            spipe_priv_tell(p);
            spipe_priv_cond_wait(&w->rest, &p->sync->lock);
            ++w->taking;
        } else if (!spipe_priv_do_one(p, &h)) {
            spipe_priv_count_idle(p, &h, 1);
            spipe_priv_rest(p, &h);
        }
    }
    spipe_priv_count_idle(p, &h, 0);
    --w->taking;
    spipe_priv_cond_broadcast(&w->work);
    spipe_priv_cond_broadcast(&w->rest);
    spipe_priv_tell(p);
    spipe_priv_unlock(p->sync);
    return NULL;
}

/* From now on so many workers take part. Called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_set_active(spipe_priv_pipeline_t *p, size_t threads) {
    if (p->workers.active == threads) return;
    p->workers.active = threads;
    spipe_priv_cond_broadcast(&p->workers.rest);
    spipe_priv_cond_broadcast(&p->workers.work);
    spipe_priv_tell(p);
}

/* Starts threads until there are so many; fewer, down to none, will do. */
SPIPE_PRIV_RARE void spipe_priv_start_threads(spipe_priv_pipeline_t *p, size_t num) {
    spipe_priv_workers_t *w = &p->workers;
    if (num > SPIPE_PRIV_MOST_WORKERS) num = SPIPE_PRIV_MOST_WORKERS;
    while (w->num_threads < num) {
        void *thread = p->provider ? p->provider->start_thread(p->request.desc.resources,
                                                               spipe_priv_worker_thread, p)
                                   : spipe_priv_thread_start(spipe_priv_worker_thread, p);
        if (!thread) break;
        spipe_priv_model_started();
        spipe_priv_lock(p->sync);
        w->threads[w->num_threads++] = thread;
        spipe_priv_unlock(p->sync);
    }
}

/* Threads of each kind that the plan wants, or the run's share of them. Returns their sum. */
SPIPE_PRIV_RARE size_t spipe_priv_wanted_threads(spipe_priv_pipeline_t *p) {
    const size_t of[3] = {p->plan.drain_threads, p->plan.fill_threads, p->plan.host_threads};
    size_t *planned = p->workers.planned, all = 0;
    int i;
    for (i = 0; i < 3; ++i) planned[i] = of[i] < p->plan.depth ? of[i] : p->plan.depth;
    if (p->provider) p->provider->share(p, planned);
    for (i = 0; i < 3; ++i) all += planned[i];
    return all;
}

/* Whether a run is long enough to find its number of threads by itself. */
SPIPE_PRIV_RARE int spipe_priv_is_long(const spipe_priv_pipeline_t *p) {
    return p->run.num_chunks >= SPIPE_PRIV_STEERED_ROUNDS * p->plan.depth;
}

/* Starts the threads that the plan wants and that do not run yet; or, for a long run, as many as
   runs before it found to be best. */
SPIPE_PRIV_RARE void spipe_priv_start_workers(spipe_priv_pipeline_t *p) {
    spipe_priv_workers_t *w = &p->workers;
    size_t wanted = spipe_priv_wanted_threads(p);
    if (!w->made || (!w->started && wanted == 0)) return;
    if (p->sync->single_threaded) p->sync->single_threaded = 0; /* no other thread yet */
    w->started = 1;
    if (p->request.cpus == 0) p->request.cpus = spipe_priv_num_cpus();
    if (w->steer.found > 0 && wanted > 0 && spipe_priv_is_long(p)) {
        const size_t most = p->climb.taken.threads;
        wanted = most > 0 && most < w->steer.found ? most : w->steer.found;
    }
    spipe_priv_lock(p->sync);
    w->all_cpus = w->planned[SPIPE_PRIV_FILL] + w->planned[SPIPE_PRIV_DRAIN] >= p->request.cpus;
    spipe_priv_set_active(p, wanted);
    spipe_priv_unlock(p->sync);
    spipe_priv_start_threads(p, wanted);
}

/* Makes what workers wait for, where there is host work. */
SPIPE_PRIV_RARE void spipe_priv_make_workers(spipe_priv_pipeline_t *p) {
    if (p->workers.made || !p->route.host_work) return;
    spipe_priv_cond_create(&p->workers.work);
    spipe_priv_cond_create(&p->workers.rest);
    p->workers.made = 1;
}

/* Ends the workers, which have no task or are not wanted any more. */
SPIPE_PRIV_RARE void spipe_priv_end_workers(spipe_priv_pipeline_t *p) {
    spipe_priv_workers_t *w = &p->workers;
    size_t k;
    if (w->num_threads == 0) return;
    spipe_priv_lock(p->sync);
    w->quit = 1;
    SPIPE_PRIV_STORE(w->news, w->news + 1);
    spipe_priv_cond_broadcast(&w->work);
    spipe_priv_cond_broadcast(&w->rest);
    spipe_priv_unlock(p->sync);
    for (k = w->num_threads; k > 0; --k) {
        void *thread = w->threads[k - 1];
        if (p->provider)
            p->provider->join_thread(p->request.desc.resources, thread);
        else
            spipe_priv_thread_join(thread);
    }
    w->num_threads = 0;
    w->quit = 0;
}

SPIPE_PRIV_RARE void spipe_priv_stop_workers(spipe_priv_pipeline_t *p) {
    spipe_priv_end_workers(p);
    spipe_priv_model_free(p);
    if (!p->workers.made) return;
    spipe_priv_cond_destroy(&p->workers.work);
    spipe_priv_cond_destroy(&p->workers.rest);
    p->workers.made = 0;
}

/* Workers of a kind, for the report: of those that run, as the plan divides them. */
SPIPE_PRIV_RARE size_t spipe_priv_num_workers(const spipe_priv_pipeline_t *p, int what) {
    const spipe_priv_workers_t *w = &p->workers;
    const size_t num = w->num_threads < w->active ? w->num_threads : w->active;
    const size_t all = w->planned[0] + w->planned[1] + w->planned[2];
    const size_t fill = all > 0 ? (num * w->planned[SPIPE_PRIV_FILL] + all - 1) / all : 0;
    const size_t host = all > 0 ? num * w->planned[SPIPE_PRIV_HOST] / all : 0;
    if (what == SPIPE_PRIV_FILL) return fill;
    return what == SPIPE_PRIV_HOST ? host : num - fill - host;
}
