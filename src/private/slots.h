/* ---- 11 plan: chunks, threads, slots --------------------------------------------------------
   How large a chunk of some bytes is, how many threads there may be, and how many slots they need.
   Pure arithmetic; compares nothing. */
/* Elements in a chunk that has about this many bytes in the busier direction: a multiple of 32, and
   never fewer than the halo. */
SPIPE_PRIV_RARE size_t spipe_priv_chunk_of(const spipe_priv_work_t *w, double bytes) {
    const size_t align = SPIPE_PRIV_ALIGN_ELEMS;
    size_t chunk = spipe_priv_whole(bytes / spipe_priv_busier(w));
    if (chunk > SPIPE_PRIV_ALIGN_FROM * align) chunk -= chunk % align;
    if (chunk < w->least_chunk) chunk = w->least_chunk;
    return chunk > 0 ? chunk : 1;
}

/* Elements in a chunk when the whole is divided into this many parts, rounded up to a multiple. */
SPIPE_PRIV_RARE size_t spipe_priv_part_of(const spipe_priv_work_t *w, size_t parts) {
    const size_t align = SPIPE_PRIV_ALIGN_ELEMS;
    size_t chunk = w->count == 0 ? 1 : (w->count - 1) / parts + 1;
    if (parts > 1 && chunk > SPIPE_PRIV_ALIGN_FROM * align) {
        chunk += (align - chunk % align) % align;
    }
    return chunk < w->least_chunk ? w->least_chunk : chunk;
}

/* Threads for host stages: as many as the user wants, else as many as there are CPUs besides those
   of the staging threads, but at least half of the CPUs: if host stages take longest, staging
   waits. */
SPIPE_PRIV_RARE size_t spipe_priv_host_threads(const spipe_desc_t *d, const spipe_priv_work_t *w,
                                               const spipe_priv_way_t *y) {
    const size_t staging = y->fill_threads + y->drain_threads;
    const size_t cpus = w->machine.cpus, half = (cpus + 1) / 2;
    size_t most = cpus > staging + half ? cpus - staging : half;
    if (d->threads != SPIPE_AUTO) most = d->threads;
    return most < w->host_calls ? most : w->host_calls;
}

/* Slots for threads whose work takes an unknown time: one for each thread that runs host stages or
   the work of a split source, besides the slots that are being copied. */
SPIPE_PRIV_RARE size_t spipe_priv_least_depth(const spipe_desc_t *d, const spipe_priv_work_t *w,
                                              const spipe_priv_way_t *y) {
    const size_t segments = (size_t)SPIPE_PRIV_COPY_SLOTS * (size_t)w->num_segments;
    size_t busy = spipe_priv_host_threads(d, w, y);
    if ((w->flags & SPIPE_PRIV_SPLIT) && busy < y->fill_threads) busy = y->fill_threads;
    busy += SPIPE_PRIV_COPY_SLOTS;
    return busy > segments ? busy : segments;
}

/* Number of slots: even, because chunks alternate between two kernel streams. One for each staging
   thread plus two that are being copied; or two for each thread of the direction that has more
   threads, because a chunk that is filled waits for those before it. The times of positioned
   sources vary more than those of copies, so each of their threads has twice as many: a file was
   read at 29 GB/s by 3 threads with 12 slots, and at 21 with 6 (H200, 4 CPUs, 2026-11-25). */
SPIPE_PRIV_RARE size_t spipe_priv_depth_for(const spipe_desc_t *d, const spipe_priv_work_t *w,
                                            const spipe_priv_way_t *y) {
    const size_t least = spipe_priv_least_depth(d, w, y);
    size_t busier = y->fill_threads > y->drain_threads ? y->fill_threads : y->drain_threads;
    size_t depth = y->fill_threads + y->drain_threads + 2;
    if (d->schedule == SPIPE_SERIAL) return 1;
    if (d->depth != SPIPE_AUTO) return d->depth;
    if (w->flags & SPIPE_PRIV_POSITIONED) busier *= 2;
    if (depth < 2 * busier) depth = 2 * busier;
    depth += depth % 2;
    if (depth < least || !spipe_priv_is_staged(w, y)) depth = least;
    return depth < SPIPE_MAX_DEPTH ? depth : SPIPE_MAX_DEPTH;
}

/* Whether threads fill and drain. */
SPIPE_PRIV_RARE int spipe_priv_both_ways(const spipe_priv_work_t *w, const spipe_priv_way_t *y) {
    return spipe_priv_filled(w, y) > 0.0 && spipe_priv_drained(w, y) > 0.0 &&
           !spipe_priv_caller_drains(w, y);
}

/* The most threads that a plan gives one direction: half of the CPUs if both directions have
   threads. (Arrays of 16 to 512 MiB, three times as much in as out: 8 and 4 threads took 0.96 of
   the time of 10 and 4, in the mean; H100, 16 CPUs, 2026-11-25.) How many calls of positioned
   sources are of use is not known. */
SPIPE_PRIV_RARE size_t spipe_priv_most_each_way(const spipe_priv_work_t *w, int both) {
    const size_t half = (w->machine.cpus + 1) / 2;
    const int halves = both && !(w->flags & SPIPE_PRIV_POSITIONED);
    return halves && half < SPIPE_MAX_THREADS ? half : SPIPE_MAX_THREADS;
}

/* Shares threads between filling and draining by the time that each takes. */
SPIPE_PRIV_RARE void spipe_priv_share_threads(const spipe_costs_t *c, const spipe_priv_work_t *w,
                                              spipe_priv_way_t *y, size_t threads) {
    const double elements = spipe_priv_real(y->chunk) * spipe_priv_real(y->batch);
    const int both = spipe_priv_both_ways(w, y);
    const size_t most = spipe_priv_most_each_way(w, both);
    spipe_priv_engines_t e;
    double share;
    e.issue = 0.0;
    y->fill_threads = threads;
    y->drain_threads = 0;
    y->depth = threads + 2; /* depth_for says why */
    spipe_priv_staging_times(c, w, y, elements, &e);
    share = e.fill / (e.fill + e.drain);
    /* the nearest whole number */
    y->fill_threads = (spipe_priv_whole(2.0 * spipe_priv_real(threads) * share) + 1) / 2;
    if (y->fill_threads == 0 && e.fill > 0.0) y->fill_threads = 1;
    if (y->fill_threads > most) y->fill_threads = most;
    y->drain_threads = threads > y->fill_threads ? threads - y->fill_threads : 0;
    if (y->drain_threads == 0) y->drain_threads = 1;
    if (!both && e.fill > 0.0) y->drain_threads = 0;
    if (y->drain_threads > most) y->drain_threads = most;
}

/* The most staging threads: seven of eight CPUs, or three quarters when data moves one way only.
   The others are left to the calling thread and the stages. Positioned sources may have all CPUs
   but one: the table of costs does not know how fast they are. */
SPIPE_PRIV_RARE size_t spipe_priv_most_threads(const spipe_priv_work_t *w,
                                               const spipe_priv_way_t *y) {
    const int both = spipe_priv_both_ways(w, y);
    const size_t cpus = w->machine.cpus;
    size_t most;
    if (cpus < SPIPE_PRIV_FEW_CPUS) return both ? 2 : 1;
    if (!both && (w->flags & SPIPE_PRIV_POSITIONED)) return cpus - 1;
    if (!both) return cpus - cpus / SPIPE_PRIV_FEW_CPUS;
    most = cpus - cpus / SPIPE_PRIV_SPARE_CPUS;
    return most - most % 2;
}

/* Most elements in a chunk. Limited beside other runs, which wait for a chunk's copy; and with a
   split source, so that each thread gets a few chunks of work whose time is not known. */
SPIPE_PRIV_RARE size_t spipe_priv_most_chunk(const spipe_desc_t *d, const spipe_priv_work_t *w,
                                             const spipe_priv_way_t *y) {
    size_t threads = spipe_priv_most_threads(w, y);
    if (!(w->flags & SPIPE_PRIV_SPLIT)) {
        return w->machine.beside ? spipe_priv_chunk_of(w, SPIPE_PRIV_MOST_CHUNK) : SIZE_MAX;
    }
    if (d->threads != SPIPE_AUTO) threads = d->threads > 0 ? d->threads : 1;
    return spipe_priv_part_of(w, threads * SPIPE_PRIV_SPLIT_PARTS);
}
