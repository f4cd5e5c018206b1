/* ---- 14 resources: the law beside other runs -------------------------------------------------
   How long a way takes when other runs share the machine: arithmetic, like the law of one run. */

/* Seconds that a run's copying takes on all processors. Staging threads have the processors that
   the calling threads leave: each run's calling thread keeps one busy while it waits for the GPU.
   */
SPIPE_PRIV_RARE double spipe_priv_processors(const spipe_priv_work_t *w, const spipe_priv_way_t *y,
                                             double copying) {
    const size_t threads = y->fill_threads + y->drain_threads;
    const size_t taken = threads > 0 ? w->machine.runs : 0;
    return copying / spipe_priv_real(w->machine.cpus > taken ? w->machine.cpus - taken : 1);
}

/* Seconds for which a run takes what it shares: the link, the kernels, the host's memory, the
   processors; the longest of them. */
SPIPE_PRIV_RARE double spipe_priv_shared_s(const spipe_priv_work_t *w, const spipe_costs_t *c,
                                           const spipe_priv_way_t *y) {
    const double n = spipe_priv_num_batches(w, y), count = spipe_priv_real(w->count);
    const double staged = count * (spipe_priv_filled(w, y) + spipe_priv_drained(w, y));
    const double rings = spipe_priv_real(w->machine.runs) * spipe_priv_ring_bytes(w, y);
    spipe_priv_engines_t e;
    double longest;
    if (y->schedule == SPIPE_ZERO_COPY && !spipe_priv_is_staged(w, y)) {
        longest = count * spipe_priv_max(w->in, w->out) / c->zero_copy;
        if (w->zero_copy_passes > 0) {
            longest += (w->zero_copy_passes - 1) * count * w->out / c->zero_copy;
        }
        return spipe_priv_max(longest, w->kernel_s);
    }
    e = spipe_priv_engines_of(c, w, y);
    longest = n * spipe_priv_max(spipe_priv_max(e.in, e.out), e.kernel);
    if (!spipe_priv_is_staged(w, y)) return longest;
    longest = spipe_priv_max(longest, staged * spipe_priv_memory_s(c, spipe_priv_missed(w, rings)));
    return spipe_priv_max(longest, spipe_priv_processors(w, y, n * (e.fill + e.drain)));
}

/* The time of a way beside other runs: the runs overlap each other, so none needs to overlap its
   own work. Of ways with equal time here, the one that is fastest alone is the best. */
SPIPE_PRIV_RARE double spipe_priv_beside(const spipe_priv_work_t *w, const spipe_costs_t *c,
                                         const spipe_priv_way_t *y, double alone) {
    const double runs = spipe_priv_real(w->machine.runs);
    const int direct = y->staging == SPIPE_STAGING_DIRECT || y->pageable_slots;
    if (direct && !(w->flags & SPIPE_PRIV_PAGE_TABLES)) return runs * alone; /* they block */
    return spipe_priv_max(alone, runs * spipe_priv_shared_s(w, c, y)) +
           SPIPE_PRIV_ALONE_SHARE * alone;
}
