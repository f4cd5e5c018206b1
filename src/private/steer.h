/* ---- 4 execute: steering --------------------------------------------------------------------
   A long run finds its number of threads by what it waits for, and follows the machine: while
   another program runs, or a file is not in the page cache, it is another one. Writes
   spipe_priv_steer_t. */

enum {
    SPIPE_PRIV_WINDOW_ROUNDS = 2 /* of the ring, between two decisions */
};

#define SPIPE_PRIV_WAITS 0.1 /* of a window: the issuer waits, so one more thread ... */
#define SPIPE_PRIV_FEW   0.5 /* ... unless so many workers were idle, on average */
#define SPIPE_PRIV_MANY  3.0 /* so many are idle: one thread fewer */

SPIPE_PRIV_RARE double spipe_priv_steer_clock(void) {
    return spipe_priv_is_modelled() ? spipe_priv_clock() : spipe_priv_seconds();
}

/* Whether a run steers: not one whose threads the user has set, or that others share with it. */
SPIPE_PRIV_RARE int spipe_priv_steers(const spipe_priv_pipeline_t *p) {
    if (!p->run.states || p->provider || p->request.desc.threads != SPIPE_AUTO) return 0;
    return p->workers.active > 0 && p->workers.num_threads >= p->workers.active &&
           spipe_priv_is_long(p);
}

/* Seconds of idle workers so far, summed; modelled: of busy ones. Called with the lock held. */
SPIPE_PRIV_RARE double spipe_priv_sum_idle(spipe_priv_pipeline_t *p, double now) {
    spipe_priv_steer_t *s = &p->workers.steer;
    if (spipe_priv_is_modelled()) {
        double busy;
        spipe_priv_unlock(p->sync); /* the model may wait for a worker */
        busy = spipe_priv_model_busy(p);
        spipe_priv_lock(p->sync);
        return busy;
    }
    s->idle_s += (double)p->workers.idle * (now - s->idle_since);
    s->idle_since = now;
    return s->idle_s;
}

/* Begins a window. Called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_begin_window(spipe_priv_pipeline_t *p, double now) {
    spipe_priv_steer_t *s = &p->workers.steer;
    s->from = p->run.at.issued;
    s->began = now;
    s->waited = 0.0;
    s->idle_from = spipe_priv_sum_idle(p, now);
}

/* Called when a run begins. */
SPIPE_PRIV_RARE void spipe_priv_begin_steering(spipe_priv_pipeline_t *p) {
    p->workers.steer.began = 0.0;
    p->workers.steer.num_windows = 0;
    p->workers.steer.last = 0.0;
}

/* The most threads that steering goes to: all CPUs, slots for what the device does
   meanwhile, and what the climb allows. */
SPIPE_PRIV_RARE size_t spipe_priv_steer_limit(const spipe_priv_pipeline_t *p) {
    const size_t slots = p->plan.depth > 2 ? p->plan.depth - 2 : 1;
    size_t most = p->request.cpus;
    if (spipe_priv_is_modelled()) most = SPIPE_MAX_THREADS; /* it has as many CPUs as it wants */
    if (p->climb.taken.threads > 0) most = p->climb.taken.threads;
    if (most > SPIPE_PRIV_MOST_WORKERS) most = SPIPE_PRIV_MOST_WORKERS;
    return most < slots ? most : slots;
}

/* Measures a window that has ended. Called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_measure_window(spipe_priv_pipeline_t *p, double now) {
    spipe_priv_steer_t *s = &p->workers.steer;
    const double span = now - s->began;
    const size_t active = p->workers.active;
    double idle = (spipe_priv_sum_idle(p, now) - s->idle_from) / span;
    if (spipe_priv_is_modelled()) idle = (double)active - idle;
    if (s->now.threads > 0 && s->now.threads != active) s->other = s->now;
    s->now.threads = active;
    s->now.waited = s->waited / span;
    s->now.idle = idle;
}

/* At the end of a window: one thread more or fewer, or neither. Called with the lock held, which it
   gives back while it starts a thread. */
SPIPE_PRIV_RARE void spipe_priv_end_window(spipe_priv_pipeline_t *p, double now) {
    spipe_priv_steer_t *s = &p->workers.steer;
    const size_t active = p->workers.active;
    size_t wanted = active;
    if (now <= s->began || s->num_windows++ == 0) return; /* the pipeline was filling up */
    spipe_priv_measure_window(p, now);
    if (s->now.waited > SPIPE_PRIV_WAITS && s->now.idle < SPIPE_PRIV_FEW) wanted = active + 1;
    if (s->now.idle > SPIPE_PRIV_MANY) wanted = active - 1;
    if (wanted == active || (wanted > active && wanted > spipe_priv_steer_limit(p))) return;
    s->found = wanted;
    spipe_priv_set_active(p, wanted);
    spipe_priv_unlock(p->sync);
    spipe_priv_start_threads(p, wanted);
    spipe_priv_model_threads(p);
    spipe_priv_lock(p->sync);
}

/* Called with the lock held by the thread that issues, before a chunk's first operations (after =
   0) and after its last ones: in between, somebody waited for the chunk. */
SPIPE_PRIV_RARE void spipe_priv_watch(spipe_priv_pipeline_t *p, int after) {
    spipe_priv_steer_t *s = &p->workers.steer;
    double now;
    if (!spipe_priv_steers(p)) return;
    now = spipe_priv_steer_clock();
    if (s->began <= 0.0) spipe_priv_begin_window(p, now);
    if (!after && s->last > 0.0) s->waited += now - s->last;
    s->last = after ? now : 0.0;
    if (!after || p->run.at.issued < s->from + SPIPE_PRIV_WINDOW_ROUNDS * p->plan.depth) return;
    spipe_priv_end_window(p, now);
    spipe_priv_begin_window(p, now);
}
