/* ---- 13 resources: threads, streams and events ----------------------------------------------
   Made when a run needs more of them than are idle; afterwards they wait for the next run. */

/* A thread that runs one function after the other. */
typedef struct spipe_priv_lent_thread {
    struct spipe_priv_lending *owner;
    void *thread;
    void *(*fn)(void *arg); /* NULL = it has returned */
    void *arg;
    spipe_priv_cond_t work, done;
    struct spipe_priv_lent_thread *next_idle, *next;
} spipe_priv_lent_thread_t;

enum {
    SPIPE_PRIV_MOST_IDLE = 4096 /* idle ones of a kind; more are destroyed */
};

/* Streams of one priority, or events, that nobody uses. */
typedef struct spipe_priv_idle {
    size_t num, made;
    void *items[SPIPE_PRIV_MOST_IDLE];
} spipe_priv_idle_t;

enum {
    SPIPE_PRIV_NUM_PRIORITIES = SPIPE_PRIORITY_HIGH + 1
};

typedef struct spipe_priv_lending {
    spipe_priv_sync_t *sync; /* the resources' lock */
    spipe_priv_lent_thread_t *idle, *all;
    size_t num_threads;
    size_t returning; /* pipelines whose threads will be idle in a moment */
    int quit;
    spipe_priv_idle_t streams[SPIPE_PRIV_NUM_PRIORITIES];
    spipe_priv_idle_t events[2]; /* [1]: who waits for them sleeps */
} spipe_priv_lending_t;

SPIPE_PRIV_RARE void *spipe_priv_lent_main(void *arg) {
    spipe_priv_lent_thread_t *t = (spipe_priv_lent_thread_t *)arg;
    spipe_priv_sync_t *s = t->owner->sync;
    spipe_priv_lock(s);
    while (!t->owner->quit) {
        if (!t->fn) {
            spipe_priv_cond_wait(&t->work, &s->lock);
            continue;
        }
        spipe_priv_unlock(s);
        (void)t->fn(t->arg); /* no other thread writes these before fn returns */
        spipe_priv_lock(s);
        t->fn = NULL;
        spipe_priv_cond_signal(&t->done);
    }
    spipe_priv_unlock(s);
    return NULL;
}

/* Starts a thread. Called without the lock, because starting takes long. */
SPIPE_PRIV_RARE spipe_priv_lent_thread_t *spipe_priv_new_thread(spipe_priv_lending_t *l) {
    spipe_priv_lent_thread_t *t = (spipe_priv_lent_thread_t *)calloc(1, sizeof *t);
    if (!t) return NULL;
    t->owner = l;
    spipe_priv_cond_create(&t->work);
    spipe_priv_cond_create(&t->done);
    t->thread = spipe_priv_thread_start(spipe_priv_lent_main, t);
    if (t->thread) return t;
    spipe_priv_cond_destroy(&t->work);
    spipe_priv_cond_destroy(&t->done);
    free(t);
    return NULL;
}

/* Counts one thread more, if there are fewer than num. */
SPIPE_PRIV_RARE int spipe_priv_count_thread(spipe_priv_lending_t *l, size_t num) {
    int fewer;
    spipe_priv_lock(l->sync);
    fewer = l->num_threads < num;
    l->num_threads += (size_t)fewer;
    spipe_priv_unlock(l->sync);
    return fewer;
}

SPIPE_PRIV_RARE int spipe_priv_has_threads(spipe_priv_lending_t *l, size_t num) {
    size_t threads;
    spipe_priv_lock(l->sync);
    threads = l->num_threads;
    spipe_priv_unlock(l->sync);
    return threads >= num;
}

SPIPE_PRIV_RARE int spipe_priv_has_idle_thread(const spipe_priv_lending_t *l) {
    int idle;
    spipe_priv_lock(l->sync);
    idle = l->idle != NULL;
    spipe_priv_unlock(l->sync);
    return idle;
}

/* Starts a thread that was counted; NULL, and counted no more, if there is none. */
SPIPE_PRIV_RARE spipe_priv_lent_thread_t *spipe_priv_add_thread(spipe_priv_lending_t *l, int idle) {
    spipe_priv_lent_thread_t *t = spipe_priv_new_thread(l);
    spipe_priv_lock(l->sync);
    if (t) {
        t->next = l->all;
        l->all = t;
    } else {
        --l->num_threads;
    }
    if (t && idle) {
        t->next_idle = l->idle;
        l->idle = t;
    }
    spipe_priv_unlock(l->sync);
    return t;
}

/* Makes idle threads until there are so many in all. */
SPIPE_PRIV_RARE void spipe_priv_make_threads(spipe_priv_lending_t *l, size_t num) {
    while (spipe_priv_count_thread(l, num)) {
        if (!spipe_priv_add_thread(l, 1)) return;
    }
}

/* Takes an idle thread; NULL: there is none. */
SPIPE_PRIV_RARE spipe_priv_lent_thread_t *spipe_priv_idle_thread(spipe_priv_lending_t *l) {
    spipe_priv_lent_thread_t *t;
    spipe_priv_lock(l->sync);
    t = l->idle;
    if (t) l->idle = t->next_idle;
    spipe_priv_unlock(l->sync);
    return t;
}

/* Has a thread run a function. */
SPIPE_PRIV_RARE void spipe_priv_start_on(spipe_priv_lending_t *l, spipe_priv_lent_thread_t *t,
                                         void *(*fn)(void *arg), void *arg) {
    spipe_priv_lock(l->sync);
    t->arg = arg;
    t->fn = fn;
    spipe_priv_cond_signal(&t->work);
    spipe_priv_unlock(l->sync);
}

/* Waits until a lent thread's function has returned. */
SPIPE_PRIV_RARE void spipe_priv_take_thread_back(spipe_priv_lending_t *l, void *thread) {
    spipe_priv_lent_thread_t *t = (spipe_priv_lent_thread_t *)thread;
    spipe_priv_lock(l->sync);
    while (t->fn) spipe_priv_cond_wait(&t->done, &l->sync->lock);
    t->next_idle = l->idle;
    l->idle = t;
    spipe_priv_unlock(l->sync);
}

SPIPE_PRIV_RARE void spipe_priv_end_threads(spipe_priv_lending_t *l) {
    spipe_priv_lent_thread_t *t;
    spipe_priv_lock(l->sync);
    l->quit = 1;
    for (t = l->all; t; t = t->next) spipe_priv_cond_signal(&t->work);
    spipe_priv_unlock(l->sync);
    while (l->all) {
        t = l->all;
        l->all = t->next;
        spipe_priv_thread_join(t->thread);
        spipe_priv_cond_destroy(&t->work);
        spipe_priv_cond_destroy(&t->done);
        free(t);
    }
    l->idle = NULL;
}

/* Takes up to n idle ones; returns how many. Called with the lock held. */
SPIPE_PRIV_RARE size_t spipe_priv_take_idle(spipe_priv_idle_t *idle, void *items, size_t n) {
    if (n > idle->num) n = idle->num;
    idle->num -= n;
    memcpy(items, (void *)(idle->items + idle->num), n * sizeof *idle->items);
    return n;
}

/* Keeps items for later runs; returns how many, the first ones. The others are no longer counted,
   and the caller must destroy them. Called with the lock held. */
SPIPE_PRIV_RARE size_t spipe_priv_put_idle(spipe_priv_idle_t *idle, const void *items, size_t n) {
    const size_t space = SPIPE_PRIV_MOST_IDLE - idle->num, kept = n < space ? n : space;
    memcpy((void *)(idle->items + idle->num), items, kept * sizeof *idle->items);
    idle->num += kept;
    idle->made -= n - kept;
    return kept;
}

/* Takes one for a run that has k of them. 0: there is none, so the caller must make one, which is
   counted already, and should add *more: each other run under way may want k + 1, too. So where
   most runs were under way at once and had to make one, none is made any more. */
SPIPE_PRIV_RARE int spipe_priv_lend_one(spipe_priv_lending_t *l, spipe_priv_idle_t *idle,
                                        void *item, const size_t *num_runs, int k, size_t *more) {
    int found;
    spipe_priv_lock(l->sync);
    found = (int)spipe_priv_take_idle(idle, item, 1);
    *more = *num_runs > 1 ? (*num_runs - 1) * (size_t)(k + 1) : 0;
    idle->made += !found;
    spipe_priv_unlock(l->sync);
    return found;
}

/* Adds a new one. 0: there is no space, so the caller must destroy it. */
SPIPE_PRIV_RARE int spipe_priv_add_idle(spipe_priv_lending_t *l, spipe_priv_idle_t *idle,
                                        const void *item) {
    size_t kept;
    spipe_priv_lock(l->sync);
    ++idle->made;
    kept = spipe_priv_put_idle(idle, item, 1);
    spipe_priv_unlock(l->sync);
    return kept == 1;
}

/* Counts one less: it could not be made, or was destroyed. */
SPIPE_PRIV_RARE void spipe_priv_one_less(spipe_priv_lending_t *l, spipe_priv_idle_t *idle) {
    spipe_priv_lock(l->sync);
    --idle->made;
    spipe_priv_unlock(l->sync);
}

SPIPE_PRIV_RARE void spipe_priv_end_lending(spipe_priv_lending_t *l, cudaError_t *e) {
    size_t k;
    int i;
    spipe_priv_end_threads(l);
    for (i = 0; i < 2; ++i) {
        for (k = 0; k < l->events[i].num; ++k) {
            spipe_priv_keep_error(e, cudaEventDestroy((cudaEvent_t)l->events[i].items[k]));
        }
    }
    for (i = 0; i < SPIPE_PRIV_NUM_PRIORITIES; ++i) {
        const spipe_priv_idle_t *idle = &l->streams[i];
        for (k = 0; k < idle->num; ++k) {
            spipe_priv_keep_error(e, cudaStreamDestroy((cudaStream_t)idle->items[k]));
        }
    }
}
