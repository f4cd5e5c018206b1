/* ---- 6 plan: the first guess ----------------------------------------------------------------
   How a run is made before anything of it is known. Nothing is predicted: a long run finds its
   number of threads, kept runs climb to better sizes; a single run has only this guess. Pure. */

/* The numbers of the guess; none is of one machine. "Bytes" are of the busier direction. */
enum {
    SPIPE_PRIV_LOST = 60000, /* bytes that could be copied while a chunk's two calls are made */
    SPIPE_PRIV_LEAST_CHUNK = 128 << 10, /* bytes: smaller copies do not reach the link's rate */
    SPIPE_PRIV_MOST_DIRECT = 8 << 20,   /* bytes: larger chunks gain nothing more, and start late */
    SPIPE_PRIV_MOST_STAGED = 2 << 20,   /* bytes: so a thread copies within its core's cache */
    SPIPE_PRIV_RING = 32 << 20,         /* bytes of all slots: they stay in the last-level cache */
    SPIPE_PRIV_IN_PLACE = 16 << 20,     /* bytes in pinned arrays that elementwise kernels may use
                                           in place: of more, copies on both engines are faster */
    SPIPE_PRIV_ONCE_WHOLE = 1 << 20, /* bytes of a single run in one chunk: events for more chunks
                                        take as long to make as the overlap saves */
    SPIPE_PRIV_ONCE_CUDA = 8 << 20, /* bytes in pageable arrays, both ways, that a single run leaves
                                        to CUDA: pinning a ring takes longer than its copies */
    SPIPE_PRIV_ONCE_THREAD = 1 << 20, /* bytes that two threads copy in the time to start one */
    SPIPE_PRIV_OWN_CPUS = 8,          /* CPUs that together take most of the memory's rate */
    SPIPE_PRIV_COPY_SLOTS = 4,        /* slots: one for each copy, and two kernels */
    SPIPE_PRIV_MEMORY_SHARE = 4       /* slots take a quarter of the device's memory at most */
};

/* What is done about pageable arrays. */
SPIPE_PRIV_RARE spipe_staging_t spipe_priv_guess_staging(const spipe_priv_request_t *r,
                                                         const spipe_priv_work_t *w) {
    const double pageable = (double)w->count * (w->pageable_in + w->pageable_out);
    const spipe_staging_t asked = r->desc.staging;
    const int alone = asked == SPIPE_STAGING_AUTO && w->hosted_in + w->hosted_out <= 0.0;
    const int few = spipe_priv_is_once(r) && pageable <= (double)SPIPE_PRIV_ONCE_CUDA;
    if (w->pageable_in + w->pageable_out <= 0.0) return SPIPE_STAGING_AUTO;
    if (asked == SPIPE_STAGING_REGISTER ? r->may_register : asked != SPIPE_STAGING_AUTO)
        return asked;
    if (spipe_priv_no_pins(r) || r->reads_pages) return SPIPE_STAGING_DIRECT;
    return alone && few ? SPIPE_STAGING_DIRECT : SPIPE_STAGING_COPY;
}

/* Whether stages work on pinned arrays in place, in one piece: each goes through the link anew. */
SPIPE_PRIV_RARE int spipe_priv_guess_in_place(const spipe_priv_request_t *r,
                                              const spipe_priv_work_t *w) {
    const int staged = w->hosted_in + w->hosted_out + w->pageable_in + w->pageable_out > 0.0;
    const int most = r->desc.num_stages > 1 ? (int)SPIPE_PRIV_ONCE_WHOLE : (int)SPIPE_PRIV_IN_PLACE;
    if (staged || w->halo > 0.0 || w->count == SPIPE_AUTO || r->desc.chunk != SPIPE_AUTO) return 0;
    if (r->desc.schedule == SPIPE_SCHEDULE_ZERO_COPY) return 1;
    if (r->desc.schedule != SPIPE_SCHEDULE_AUTO || !(w->flags & SPIPE_PRIV_MAY_ZERO_COPY)) return 0;
    return r->facts.integrated || spipe_priv_whole_bytes(w) <= (double)most;
}

/* Threads that fill and drain, if there are enough chunks: one on each of the first CPUs and on
   half of the others, because all share the memory; one for each way where order matters. */
SPIPE_PRIV_RARE size_t spipe_priv_most_threads(const spipe_priv_request_t *r,
                                               const spipe_priv_work_t *w,
                                               const spipe_plan_t *plan) {
    const size_t ways = spipe_priv_num_ways(w, plan);
    if (r->desc.threads != SPIPE_AUTO) return r->desc.threads * ways;
    if (!(w->flags & (SPIPE_PRIV_AT_ONCE | SPIPE_PRIV_SPLIT))) return ways;
    return r->cpus > SPIPE_PRIV_OWN_CPUS ? (r->cpus + SPIPE_PRIV_OWN_CPUS) / 2 : r->cpus;
}

/* Slots for so many threads: two for each, so that none waits for the device. A single run has to
   pin them, so it has one for each, and those that are being copied. */
SPIPE_PRIV_RARE size_t spipe_priv_slots_for(const spipe_priv_request_t *r, size_t threads) {
    const double least = SPIPE_PRIV_COPY_SLOTS, num = (double)threads;
    const double slots = spipe_priv_is_once(r) ? num + least : 2.0 * num;
    return (size_t)spipe_priv_within(slots, least, (double)SPIPE_MAX_DEPTH);
}

/* Elements in a chunk. Small chunks lose time for each of them; large ones lose it at both ends of
   the run, where nothing overlaps. The sum of both is least near the square root of the whole times
   the bytes lost. A single run also pins its slots: smaller chunks need fewer bytes of them. */
SPIPE_PRIV_RARE size_t spipe_priv_guess_chunk(const spipe_priv_request_t *r,
                                              const spipe_priv_work_t *w,
                                              const spipe_plan_t *plan) {
    const double whole = spipe_priv_whole_bytes(w), least = (double)SPIPE_PRIV_LEAST_CHUNK;
    const int once = spipe_priv_is_once(r), staged = spipe_priv_num_ways(w, plan) > 0;
    double bytes = whole;
    if (r->desc.chunk != SPIPE_AUTO) return r->desc.chunk;
    if (plan->schedule == SPIPE_SCHEDULE_ZERO_COPY && !staged) return spipe_priv_chunk_of(w, whole);
    if (plan->staging == SPIPE_STAGING_DIRECT && !r->reads_pages)
        return spipe_priv_chunk_of(w, whole); /* CUDA waits between chunks */
    if (staged || !once || whole > (double)SPIPE_PRIV_ONCE_WHOLE) {
        const double lost = (staged && once ? 0.25 : 1.0) * (double)SPIPE_PRIV_LOST;
        const size_t slots = spipe_priv_slots_for(r, spipe_priv_most_threads(r, w, plan));
        const double ring = (double)SPIPE_PRIV_RING / (double)slots;
        const double most = staged ? spipe_priv_within(ring, least, (double)SPIPE_PRIV_MOST_STAGED)
                                   : (double)SPIPE_PRIV_MOST_DIRECT;
        bytes = spipe_priv_within(spipe_priv_root(whole * lost), least, most);
    }
    if ((w->flags & SPIPE_PRIV_SPLIT) && w->count != SPIPE_AUTO) { /* four each: times vary */
        const size_t threads = r->desc.threads == SPIPE_AUTO ? r->cpus : r->desc.threads + 1;
        bytes = spipe_priv_within(whole / (4.0 * (double)threads), 0.0, bytes);
    }
    return spipe_priv_chunk_of(w, bytes);
}

/* Threads that fill and drain: no more than chunks, of arrays at least two for each; and in a
   single run no more than are worth starting. */
SPIPE_PRIV_RARE void spipe_priv_guess_threads(const spipe_priv_request_t *r,
                                              const spipe_priv_work_t *w, size_t found,
                                              spipe_plan_t *plan) {
    const double in = spipe_priv_staged(w, plan, 0), out = spipe_priv_staged(w, plan, 1);
    const size_t asked = r->desc.threads, ways = spipe_priv_num_ways(w, plan);
    const size_t chunks = spipe_priv_num_planned(r, w, plan->chunk);
    const size_t each = w->hosted_in + w->hosted_out > 0.0 ? 1 : 2;
    size_t all = spipe_priv_most_threads(r, w, plan);
    if (ways == 0) return;
    if (spipe_priv_is_once(r) && !(w->flags & SPIPE_PRIV_SPLIT)) {
        const double moved = spipe_priv_whole_bytes(w) / spipe_priv_busier(w) * (in + out);
        const size_t worth = (size_t)spipe_priv_root(moved / (double)SPIPE_PRIV_ONCE_THREAD);
        if (all > worth) all = worth;
    }
    if (all > chunks / each) all = chunks / each;
    if (found > 0) all = found;
    if (all < ways) all = ways;
    plan->fill_threads = (size_t)((double)(2 * all) * in / (in + out) + 1.0) / 2; /* rounded */
    if (in > 0.0 && plan->fill_threads == 0) plan->fill_threads = 1;
    if (out > 0.0 && plan->fill_threads == all) plan->fill_threads = all - 1;
    plan->drain_threads = all - plan->fill_threads;
    if (asked != SPIPE_AUTO) plan->fill_threads = in > 0.0 ? asked : 0;
    if (asked != SPIPE_AUTO) plan->drain_threads = out > 0.0 ? asked : 0;
    plan->caller_helps = !(w->flags & SPIPE_PRIV_IN_TURN) && w->num_segments == 1 &&
                         (asked == 0 || chunks <= SPIPE_MAX_DEPTH);
}

/* Threads for host stages: as many as the user wants, else the CPUs besides those of the threads
   above, but at least half: if host stages take longest, staging waits. */
SPIPE_PRIV_RARE size_t spipe_priv_guess_host(const spipe_priv_request_t *r,
                                             const spipe_priv_work_t *w, const spipe_plan_t *plan) {
    const size_t staging = plan->fill_threads + plan->drain_threads, half = (r->cpus + 1) / 2;
    size_t most = r->cpus > staging + half ? r->cpus - staging : half;
    if (r->desc.threads != SPIPE_AUTO) most = r->desc.threads;
    return most < w->host_calls ? most : w->host_calls;
}

/* Slots: an even number, because chunks alternate between two kernel streams; no more than there
   are chunks. A kept pipeline may have more, unless each would hold the whole. */
SPIPE_PRIV_RARE size_t spipe_priv_guess_depth(const spipe_priv_request_t *r,
                                              const spipe_priv_work_t *w,
                                              const spipe_plan_t *plan) {
    const size_t chunks = spipe_priv_num_planned(r, w, plan->chunk), asked = r->desc.depth;
    const size_t rounds = (size_t)SPIPE_PRIV_COPY_SLOTS * (size_t)w->num_segments;
    const size_t staging = plan->fill_threads + plan->drain_threads, hosts = plan->host_threads;
    const size_t least = rounds > hosts ? rounds : hosts;
    size_t depth = spipe_priv_slots_for(r, staging > hosts ? staging : hosts);
    if (depth < least) depth = least;
    depth = depth + depth % 2 < SPIPE_MAX_DEPTH ? depth + depth % 2 : SPIPE_MAX_DEPTH;
    if (r->desc.schedule == SPIPE_SCHEDULE_SERIAL || (asked == SPIPE_AUTO && chunks == 1)) return 1;
    if (asked != SPIPE_AUTO) depth = asked;
    return depth < chunks || r->kept ? depth : chunks;
}
