/* ---- 13 resources: threads that end --------------------------------------------------------
   A thread may end in the middle of a loop that takes chunks; its run then keeps its memory. A key,
   whose destructor the system calls when a thread ends, shows that, so no run waits for it. */

/* With MinGW ends are not seen: its pthread_key_delete takes the lock of keys, then that of
   threads; a thread that ends takes them in the opposite order, so both may wait for ever. */
#if !defined(SPIPE_NO_THREADS) && !defined(_WIN32)
#define SPIPE_PRIV_SEES_ENDS
#endif

#if defined(SPIPE_PRIV_SEES_ENDS)
/* Called when a thread ends that has runs with memory. */
SPIPE_PRIV_RARE void spipe_priv_thread_ends(void *arg) {
    spipe_resources_t *r = (spipe_resources_t *)arg;
    spipe_priv_pipeline_t *h;
    if (spipe_priv_check_resources(r, NULL) != cudaSuccess) return; /* a forked process */
    spipe_priv_lock(r->lending.sync);
    for (h = r->holders; h; h = h->lent.next_holder)
        h->lent.ended |= h->lent.thread == spipe_priv_this_thread();
    spipe_priv_wake(r->lending.sync);
    spipe_priv_unlock(r->lending.sync);
}
#endif

/* If there is no key left, ends of threads are not seen. */
SPIPE_PRIV_RARE void spipe_priv_watch_ends(spipe_resources_t *r) {
#if defined(SPIPE_PRIV_SEES_ENDS)
    r->has_key = pthread_key_create(&r->key, spipe_priv_thread_ends) == 0;
#else
    r->has_key = 0;
#endif
}

SPIPE_PRIV_RARE void spipe_priv_end_watch(spipe_resources_t *r) {
#if defined(SPIPE_PRIV_SEES_ENDS)
    if (r->has_key) (void)pthread_key_delete(r->key);
#endif
    r->has_key = 0;
}

/* Sets the key while the calling thread has runs with memory, else clears it. */
SPIPE_PRIV_RARE void spipe_priv_note_end(spipe_resources_t *r) {
#if defined(SPIPE_PRIV_SEES_ENDS)
    const spipe_priv_pipeline_t *h;
    if (!r->has_key) return;
    spipe_priv_lock(r->lending.sync);
    h = r->holders;
    while (h && h->lent.thread != spipe_priv_this_thread()) h = h->lent.next_holder;
    (void)pthread_setspecific(r->key, h ? r : NULL);
    spipe_priv_unlock(r->lending.sync);
#else
    (void)r;
#endif
}

/* Notes that the calling thread continues a run of another thread. */
SPIPE_PRIV_RARE void spipe_priv_take_over(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_lock(r->lending.sync);
    p->lent.thread = spipe_priv_this_thread();
    p->lent.ended = 0;
    spipe_priv_unlock(r->lending.sync);
    p->lent.holds_off = 0; /* the other thread's hold-off */
    spipe_priv_note_end(r);
}

/* Forgets that a run's thread may not be cancelled. 1: that is the calling thread, which has to
   allow it again, as no other can. */
SPIPE_PRIV_RARE int spipe_priv_forget_hold(spipe_priv_pipeline_t *p) {
    const int ends = p->lent.holds_off && p->lent.thread == spipe_priv_this_thread();
    p->lent.holds_off = 0;
    return ends;
}

SPIPE_PRIV_RARE void spipe_priv_end_hold(spipe_priv_pipeline_t *p) {
    if (spipe_priv_forget_hold(p)) spipe_priv_let_cancel(p->lent.cancels);
}
