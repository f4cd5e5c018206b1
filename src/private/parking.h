/* ---- 12 execute: parked workers -------------------------------------------------------------
   Workers without a task: how they wait, and how other threads wake them. Knows no tasks. */
enum {
    SPIPE_PRIV_LATE_ADDS = 8,   /* for each worker late for its task; each wait takes 1 off again */
    SPIPE_PRIV_MOST_LATE = 256, /* beyond this sum, workers without a task sleep at once ... */
    SPIPE_PRIV_LATE_REST = 4096 /* ... for as many waits as take this sum back to MOST_LATE */
};

/* The calling worker waits until it is woken: first awake, then asleep. A worker that waits awake
   while another program has its CPU comes late to its task, and no other worker is woken for it.
   Each time that happens adds LATE_ADDS to s->late, and each wait takes 1 off, so s->late grows if
   more than one wait in 8 ends late. Above MOST_LATE, other programs want every CPU: s->late
   becomes LATE_REST, and workers sleep at once until it is back at MOST_LATE. Called with the lock
   held. */
SPIPE_PRIV_RARE void spipe_priv_park(spipe_priv_sync_t *s, spipe_priv_worker_t **list,
                                     spipe_priv_worker_t *w) {
    int late;
    w->woken = w->asleep = 0;
    w->next = *list;
    *list = w;
    if (s->late <= SPIPE_PRIV_MOST_LATE) {
        spipe_priv_unlock(s);
        late = spipe_priv_spin(&w->woken);
        spipe_priv_lock(s);
        if (late && w->woken) s->late += SPIPE_PRIV_LATE_ADDS;
        if (s->late > SPIPE_PRIV_MOST_LATE) s->late = SPIPE_PRIV_LATE_REST;
    }
    if (s->late) --s->late;
    w->asleep = 1;
    while (!w->woken) spipe_priv_cond_wait(&w->work, &s->lock);
}

/* Takes the worker that parked last off a list. Returns it for spipe_priv_unlock_and_wake if it is
   asleep; NULL if it is not, or if there is none. Called with the lock held. */
SPIPE_PRIV_RARE spipe_priv_worker_t *spipe_priv_unpark(spipe_priv_worker_t **list) {
    spipe_priv_worker_t *w = *list;
    if (!w) return NULL;
    *list = w->next;
    SPIPE_PRIV_STORE(w->woken, 1);
    return w->asleep ? w : NULL;
}

/* Wakes a worker, or none (NULL), after giving back the lock, for which the worker would else have
   to wait. */
SPIPE_PRIV_RARE void spipe_priv_unlock_and_wake(spipe_priv_sync_t *s, spipe_priv_worker_t *w) {
    spipe_priv_unlock(s);
    if (w) spipe_priv_cond_signal(&w->work);
}

/* Wakes the worker that parked last; called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_wake_one(spipe_priv_worker_t **list) {
    spipe_priv_worker_t *w = spipe_priv_unpark(list);
    if (w) spipe_priv_cond_signal(&w->work);
}

SPIPE_PRIV_RARE void spipe_priv_wake_all(spipe_priv_queue_t *q) {
    while (q->parked) spipe_priv_wake_one(&q->parked);
    while (q->barred) spipe_priv_wake_one(&q->barred);
}
