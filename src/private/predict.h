/* ---- 11 plan: the law ----------------------------------------------------------------------
   How long one way of doing the work takes: arithmetic on costs and work; no choice is made. */

/* A ring of slots is a chain of engines: host threads that fill, the copy engine in, the kernels,
   the copy engine out, host threads that drain, and the calling thread that issues. So a run takes

       set-up + the time of one batch through all engines + (n - 1) x the busiest engine's time

   and no more than depth batches may be under way at once: each of those beyond depth takes at
   least the time of one batch through all engines / depth. */

/* One way of doing the work: what the planner varies, what the law says, what runs measured. */
typedef struct spipe_priv_way {
    spipe_schedule_t schedule;
    spipe_staging_t staging;
    size_t chunk, batch, depth; /* elements, chunks, slots */
    size_t fill_threads, drain_threads;
    int caller_helps;
    int pageable_slots; /* nothing is pinned; CUDA's copies of the slots block */
    int replay;
    int tries; /* runs measured */
    double predicted_s;
    double best_s; /* the least time measured; 0 = not run yet */
} spipe_priv_way_t;

/* Seconds of each engine for one batch. */
typedef struct spipe_priv_engines {
    double in, out;     /* copy engines, both busy */
    double alone;       /* both together, one after the other: the first copy in, the last out */
    double kernel;      /* the busy time of both kernel streams, by batch */
    double chain;       /* all kernels of one batch, one after the other */
    double fill, drain; /* one thread's time for a batch */
    double staging;     /* all staging threads, at the host memory's rate; 0 = no staging */
    double issue;       /* the calling thread */
    double wakes;       /* waking the threads of a batch, if they were parked */
    double saved;       /* saved at both ends if the caller helps: no thread has to be woken */
    double busiest;
    double slots;      /* time of a batch that waits for a slot, if that is longer */
    double slots_lose; /* of the busiest engine, where the slots just suffice */
} spipe_priv_engines_t;

SPIPE_PRIV_OFTEN double spipe_priv_max(double a, double b) { return a > b ? a : b; }

SPIPE_PRIV_OFTEN double spipe_priv_min(double a, double b) { return a < b ? a : b; }

/* A batch's time where two engines at times wait for each other, because single batches take longer
   or shorter: if both take equally long, it is longer than either by the share equals_lose. With
   0.19 that is near the fourth root of a^4 + b^4, but needs no square root, for which a program in
   C would have to link libm. */
SPIPE_PRIV_OFTEN double spipe_priv_in_turns(double a, double b, double equals_lose) {
    const double longer = spipe_priv_max(a, b), shorter = spipe_priv_min(a, b);
    const double share = shorter / longer; /* calls take time, so longer is not 0 */
    return longer + equals_lose * shorter * share * share * share;
}

/* How many batches a way makes of the whole. */
SPIPE_PRIV_RARE double spipe_priv_num_batches(const spipe_priv_work_t *w,
                                              const spipe_priv_way_t *y) {
    const size_t batch = y->chunk * y->batch;
    const size_t full = w->count == 0 ? 0 : (w->count - 1) / batch;
    return spipe_priv_real(full) + 1.0;
}

SPIPE_PRIV_OFTEN int spipe_priv_is_staged(const spipe_priv_work_t *w, const spipe_priv_way_t *y) {
    const double pageable = w->pageable_in + w->pageable_out;
    return w->hosted_in + w->hosted_out > 0.0 ||
           (pageable > 0.0 && y->staging == SPIPE_STAGING_COPY);
}

/* Bytes of an element that host threads copy into slots, and out of them. */
SPIPE_PRIV_OFTEN double spipe_priv_filled(const spipe_priv_work_t *w, const spipe_priv_way_t *y) {
    return w->hosted_in + (y->staging == SPIPE_STAGING_COPY ? w->pageable_in : 0.0);
}

SPIPE_PRIV_OFTEN double spipe_priv_drained(const spipe_priv_work_t *w, const spipe_priv_way_t *y) {
    return w->hosted_out + (y->staging == SPIPE_STAGING_COPY ? w->pageable_out : 0.0);
}

/* Whether threads call positioned sources, such as files, and the calling thread drains by itself:
   there is little to drain, and on few CPUs a thread for that would keep one from filling. A caller
   that takes chunks itself has no time for it. */
SPIPE_PRIV_RARE int spipe_priv_caller_drains(const spipe_priv_work_t *w,
                                             const spipe_priv_way_t *y) {
    const double in = spipe_priv_filled(w, y), out = spipe_priv_drained(w, y);
    if (!(w->flags & SPIPE_PRIV_POSITIONED) || w->num_stages == 0) return 0;
    if (w->machine.cpus >= SPIPE_PRIV_SPARE_CPUS) return 0;
    return out * (double)SPIPE_PRIV_LITTLE_OUT < in;
}

/* Bytes of pinned memory that the slots take. */
SPIPE_PRIV_OFTEN double spipe_priv_ring_bytes(const spipe_priv_work_t *w,
                                              const spipe_priv_way_t *y) {
    const double elements = spipe_priv_real(y->chunk) * spipe_priv_real(y->batch);
    return spipe_priv_real(y->depth) * elements *
           (spipe_priv_filled(w, y) + spipe_priv_drained(w, y));
}

/* The copy engines: both directions are slower while both are busy. */
SPIPE_PRIV_RARE void spipe_priv_copy_times(const spipe_costs_t *c, const spipe_priv_work_t *w,
                                           double in, double out, spipe_priv_engines_t *e) {
    const double both = spipe_priv_min(in, out) / c->link_both;
    const double shared = spipe_priv_min(in, out);
    e->in = in > 0.0 ? both + (in - shared) / c->link_in + c->copy_s * w->copies[0] : 0.0;
    e->out = out > 0.0 ? both + (out - shared) / c->link_out + c->copy_s * w->copies[1] : 0.0;
    e->alone = in / c->link_in + out / c->link_out;
    e->alone += c->copy_s * (w->copies[0] + w->copies[1]);
}

/* The share of what is written into rings of so many bytes that the cache does not hold until it is
   copied: the larger the rings, the larger that share. */
SPIPE_PRIV_RARE double spipe_priv_missed(const spipe_priv_work_t *w, double rings) {
    const double span = SPIPE_PRIV_MISSED_RING - SPIPE_PRIV_HELD_RING;
    const double missed = (rings / w->machine.cache - SPIPE_PRIV_HELD_RING) / span;
    return spipe_priv_min(spipe_priv_max(missed, 0.0), 1.0); /* no cache: 1 */
}

/* Seconds for which a staged byte occupies the host memory. What the cache does not hold is written
   to memory and read again. */
SPIPE_PRIV_RARE double spipe_priv_memory_s(const spipe_costs_t *c, double missed) {
    return (1.0 - missed) / c->memory + missed / c->memory_uncached;
}

/* Staging: threads share the host memory's rate; a caller that helps is half a thread each way. */
SPIPE_PRIV_RARE void spipe_priv_staging_times(const spipe_costs_t *c, const spipe_priv_work_t *w,
                                              const spipe_priv_way_t *y, double elements,
                                              spipe_priv_engines_t *e) {
    const double in = elements * spipe_priv_filled(w, y);
    const double out = elements * spipe_priv_drained(w, y);
    const double help = y->caller_helps ? 0.5 : 0.0, n = spipe_priv_num_batches(w, y);
    const double ring = spipe_priv_ring_bytes(w, y);
    const double missed = spipe_priv_missed(w, ring);
    const double threads = spipe_priv_real(y->fill_threads + y->drain_threads);
    const double wake = threads > 0.0 ? c->wake_s : 0.0, ways = (in > 0.0) + (out > 0.0);
    const double hosted = elements * w->hosted_in;
    const int large = ring > SPIPE_PRIV_CACHE_SHARE * w->machine.cache;
    double fill, drain, slower = SPIPE_PRIV_MISSED_ARRAY * missed * (in - hosted);
    slower += (large ? SPIPE_PRIV_LARGE_SOURCE : SPIPE_PRIV_SOURCE) * hosted;
    e->fill = in > 0.0 ? (in + slower) / c->fill + wake : 0.0;
    e->drain =
        out > 0.0 ? (out + SPIPE_PRIV_SINK * elements * w->hosted_out) / c->drain + wake : 0.0;
    e->staging = (in + out) * spipe_priv_memory_s(c, missed);
    if (!(threads > 0.0)) {
        e->issue += e->fill + e->drain;
        return;
    }
    e->wakes = wake * ways;
    e->slots_lose = SPIPE_PRIV_SLOTS_LOSE;
    if (y->caller_helps) e->saved = e->wakes;
    e->issue += c->staged_s * (1.0 + SPIPE_PRIV_THREAD_COST * threads);
    if (!(w->flags & SPIPE_PRIV_PAID)) { /* the calling thread asks whether copies have ended */
        e->issue += c->call_s * 2.0 * ways;
    }
    fill = spipe_priv_min(spipe_priv_real(y->fill_threads) + help, n);
    drain = spipe_priv_min(spipe_priv_real(y->drain_threads) + help, n);
    if (in > 0.0) e->staging = spipe_priv_max(e->staging, e->fill / fill);
    if (drain > 0.0)
        e->staging = spipe_priv_max(e->staging, e->drain / drain);
    else
        e->issue += e->drain; /* the calling thread drains */
}

/* How many times its share of the whole a chunk's kernel takes: more than once if the chunk does
   not fill the GPU. How many threads it has is not known; usually one for each value that goes in
   or that comes out, whichever are fewer. */
SPIPE_PRIV_OFTEN double spipe_priv_underfilled(const spipe_priv_work_t *w, double elements) {
    const double least = spipe_priv_min(w->in, w->out);
    double x = w->machine.few_bytes / elements / (least > 0.0 ? least : w->held);
    x *= x;
    return 1.0 + spipe_priv_min(x * x, SPIPE_PRIV_UNDERFILLED);
}

/* One batch's time through all engines, with so many seconds of its copies. */
SPIPE_PRIV_RARE double spipe_priv_latency(const spipe_costs_t *c, const spipe_priv_engines_t *e,
                                          double copies) {
    const double links = c->latency_s * ((e->in > 0.0) + (e->out > 0.0));
    return e->fill + copies + e->chain + e->drain + links - e->saved;
}

SPIPE_PRIV_RARE spipe_priv_engines_t spipe_priv_engines_of(const spipe_costs_t *c,
                                                           const spipe_priv_work_t *w,
                                                           const spipe_priv_way_t *y) {
    const double n = spipe_priv_num_batches(w, y);
    const double elements = spipe_priv_real(w->count) / n;
    const double launches = (double)w->num_stages * spipe_priv_real(y->batch);
    /* A launch takes the time of two calls; so do all records of events and waits of a batch. */
    const double calls = w->copies[0] + w->copies[1] + 2.0 * (launches + 1.0);
    const double kernel = w->kernel_s / n;
    spipe_priv_engines_t e;
    double limit; /* one batch through all engines, in a long run: threads are awake */
    memset(&e, 0, sizeof e);
    spipe_priv_copy_times(c, w, elements * w->in + w->halo, elements * w->out, &e);
    /* Two kernel streams: while one launches a kernel, that of the other runs. */
    e.kernel = kernel * spipe_priv_underfilled(w, elements) + SPIPE_PRIV_KERNEL_GAP * c->launch_s;
    e.kernel = spipe_priv_max(e.kernel, 0.5 * (kernel + c->launch_s * launches));
    e.chain = kernel + 1.5 * c->launch_s * launches; /* longer in an idle stream */
    e.issue = c->call_s * (y->replay ? 1.0 : calls);
    if (spipe_priv_is_staged(w, y)) spipe_priv_staging_times(c, w, y, elements, &e);
    e.busiest = spipe_priv_max(spipe_priv_max(e.in, e.out), e.kernel);
    e.busiest =
        spipe_priv_max(e.busiest, spipe_priv_in_turns(e.issue, e.staging, SPIPE_PRIV_EQUALS_LOSE));
    limit = spipe_priv_latency(c, &e, e.in + e.out) + e.saved - e.wakes;
    if (y->caller_helps) limit += e.fill;   /* nothing is issued while the caller copies a batch */
    if (w->flags & SPIPE_PRIV_POSITIONED) { /* reads end in another order than chunks are copied */
        limit += c->wake_s * spipe_priv_real(y->fill_threads + y->drain_threads);
    }
    e.slots = spipe_priv_in_turns(e.busiest, limit / spipe_priv_real(y->depth), e.slots_lose);
    if (y->schedule == SPIPE_SERIAL) e.slots = spipe_priv_latency(c, &e, e.alone);
    return e;
}

/* A one-shot run's set-up for a ring. A kept pipeline has paid for it, and so have resources. */
SPIPE_PRIV_RARE double spipe_priv_setup(const spipe_costs_t *c, const spipe_priv_work_t *w,
                                        const spipe_priv_way_t *y) {
    const double ring = spipe_priv_ring_bytes(w, y);
    const double arrays = spipe_priv_real(w->count) * (w->pageable_in + w->pageable_out);
    const double held = w->held * spipe_priv_real(y->depth) * spipe_priv_real(y->chunk * y->batch);
    const double threads = spipe_priv_real(y->fill_threads + y->drain_threads);
    double s = c->setup_s + c->malloc_s + held / c->malloc_bytes;
    if (w->flags & SPIPE_PRIV_PAID) return 0.0;
    if (y->chunk * y->batch >= w->count) s -= SPIPE_PRIV_ONE_BATCH * c->setup_s;
    if (ring > 0.0 && !y->pageable_slots) s += 2.0 * c->pin_s + ring / c->pin;
    s += c->start_s * threads;
    if (y->staging == SPIPE_STAGING_REGISTER) {
        s += 2.0 * c->pin_s * ((w->pageable_in > 0.0) + (w->pageable_out > 0.0));
        s += arrays / c->pin_arrays;
    }
    return s;
}

/* CUDA's own copies of pageable memory: they block, so nothing overlaps. Slots were just filled, so
   their copies find them in the cache, and each of them costs no more than a step of a ring; but to
   touch a slot for the first time takes half the time of pinning it. Positioned sources are read
   and copied in pieces. */
SPIPE_PRIV_RARE double spipe_priv_predict_direct(const spipe_costs_t *c, const spipe_priv_work_t *w,
                                                 const spipe_priv_way_t *y) {
    const double n = spipe_priv_num_batches(w, y), count = spipe_priv_real(w->count);
    const double chunk = spipe_priv_real(y->chunk), held = w->held * chunk;
    const double piece = (double)SPIPE_PRIV_PIECE, read = w->hosted_in * chunk;
    double in = c->pageable_in, out = c->pageable_out, copy = c->pageable_s;
    double copies = w->copies[0], touched = chunk * (w->hosted_in + w->hosted_out);
    double batch = c->launch_s * w->num_stages, once = SPIPE_PRIV_ONE_STREAM * c->setup_s;
    once += c->malloc_s + spipe_priv_real(y->depth) * held / c->malloc_bytes;
    if (y->pageable_slots) {
        in *= SPIPE_PRIV_HELD_SLOT;
        copy = c->copy_s;
        batch += c->latency_s * (copies + w->copies[1]);
        if ((w->flags & SPIPE_PRIV_POSITIONED) && read > piece) {
            copies *= read / piece;
            touched -= read - piece;
        }
        once += 0.5 * touched / c->pin;
        once += SPIPE_PRIV_BLOCK_S * spipe_priv_real(spipe_priv_whole(held) / SPIPE_PRIV_BLOCK);
    } else {
        if (w->pageable_in <= 0.0) in = c->link_in;
        if (w->pageable_out <= 0.0) out = c->link_out;
    }
    if (w->flags & SPIPE_PRIV_PAID) once = 0.0;
    return once + count * (w->hosted_in / c->fill + w->hosted_out / c->drain) +
           count * (w->in / in + w->out / out) + w->kernel_s +
           n * (batch + copy * (copies + w->copies[1]));
}

/* Kernels that cross the link themselves. With temporaries the first stage reads and the last one
   writes; without them every stage reads and writes the output across the link. */
SPIPE_PRIV_RARE double spipe_priv_predict_zero_copy(const spipe_costs_t *c,
                                                    const spipe_priv_work_t *w,
                                                    const spipe_priv_way_t *y) {
    const double n = spipe_priv_num_batches(w, y), part = spipe_priv_real(w->count) / n;
    const double in = part * w->in / c->zero_copy, out = part * w->out / c->zero_copy;
    const double kernel = w->kernel_s / n, launches = c->launch_s * w->num_stages;
    double one, busiest, setup = n > 1.0 ? c->setup_s : SPIPE_PRIV_ONE_STREAM * c->setup_s;
    if (w->flags & SPIPE_PRIV_PAID) setup = 0.0;
    if (w->zero_copy_passes > 0) {
        one = spipe_priv_max(in, out) + (w->zero_copy_passes - 1) * out;
        one = spipe_priv_max(one, kernel);
        busiest = one;
    } else {
        one = in + kernel + out;
        busiest = spipe_priv_max(SPIPE_PRIV_SIDE_BY_SIDE * (in + out), kernel);
    }
    return setup + launches + one + (n - 1.0) * (busiest + c->launch_s);
}

/* Seconds that a way takes, as far as the costs are right. */
SPIPE_PRIV_OFTEN double spipe_priv_predict(const spipe_costs_t *c, const spipe_priv_work_t *w,
                                           const spipe_priv_way_t *y) {
    const int direct = y->staging == SPIPE_STAGING_DIRECT && !(w->flags & SPIPE_PRIV_PAGE_TABLES);
    const double n = spipe_priv_num_batches(w, y);
    const double at_once = spipe_priv_min(n, spipe_priv_real(y->depth));
    spipe_priv_engines_t e;
    if (w->count == 0) return 0.0;
    if (y->schedule == SPIPE_ZERO_COPY && !spipe_priv_is_staged(w, y)) {
        return spipe_priv_predict_zero_copy(c, w, y);
    }
    if (direct || y->pageable_slots) return spipe_priv_predict_direct(c, w, y);
    e = spipe_priv_engines_of(c, w, y);
    return spipe_priv_setup(c, w, y) + spipe_priv_latency(c, &e, e.alone) +
           (at_once - 1.0) * e.busiest + (n - at_once) * e.slots;
}

/* The kernels' time that makes the law agree with a measured run; 0 where copies explain it. */
SPIPE_PRIV_OFTEN double spipe_priv_solve_kernel(const spipe_costs_t *c, const spipe_priv_work_t *w,
                                                const spipe_priv_way_t *y, double measured_s) {
    spipe_priv_work_t trial = *w;
    double low = 0.0, high = measured_s;
    int i;
    for (i = 0; i < SPIPE_PRIV_BISECTIONS; ++i) {
        trial.kernel_s = 0.5 * (low + high);
        if (spipe_priv_predict(c, &trial, y) > measured_s)
            high = trial.kernel_s;
        else
            low = trial.kernel_s;
    }
    return low;
}

/* The same for the rates at which a thread fills and drains slots: the costs with which the law
   agrees with a measured run, if its kernels take no longer than its copies. */
SPIPE_PRIV_OFTEN spipe_costs_t spipe_priv_solve_host(const spipe_costs_t *c,
                                                     const spipe_priv_work_t *w,
                                                     const spipe_priv_way_t *y, double measured_s) {
    spipe_costs_t trial = *c;
    double low = 0.0, high = 1.0; /* as a share of the rates in the table */
    int i;
    for (i = 0; i < SPIPE_PRIV_BISECTIONS; ++i) {
        const double share = 0.5 * (low + high);
        trial.fill = share * c->fill;
        trial.drain = share * c->drain;
        if (spipe_priv_predict(&trial, w, y) > measured_s)
            low = share;
        else
            high = share;
    }
    return trial;
}
