/* ---- 4 execute: the climb -------------------------------------------------------------------
   Runs of a kept pipeline try the neighbours of the best setting so far: chunks 1.5 times as small
   or large, fewer or more threads, a replayed graph. What is faster by more than runs vary becomes
   the best. When no neighbour is, the climb is over, until two runs in a row take a time that none
   took before. Writes spipe_priv_climb_t. */
enum {
    SPIPE_PRIV_MORE_THREADS, /* two moves that undo each other differ in the last bit */
    SPIPE_PRIV_FEWER_THREADS,
    SPIPE_PRIV_SMALLER_CHUNK,
    SPIPE_PRIV_LARGER_CHUNK,
    SPIPE_PRIV_REPLAY,
    SPIPE_PRIV_NUM_MOVES,
    SPIPE_PRIV_MOST_TRIED = 14,   /* settings */
    SPIPE_PRIV_MOST_REPLAY = 1024 /* chunks of a run that may be replayed */
};

#define SPIPE_PRIV_CLIMB_STEP 1.5  /* between two sizes of chunks */
#define SPIPE_PRIV_LEAST_GAIN 0.01 /* of a run's time: less is chance, however little runs vary */
#define SPIPE_PRIV_OUTSIDE                                                                         \
    0.25 /* of a run's time, besides the spread seen: the machine is another one than before. What
            other programs leave in the caches makes 0.15 (H200, 16 CPUs, 2026-11-29) */

/* Starts a climb from the first guess. */
SPIPE_PRIV_RARE void spipe_priv_climb_reset(spipe_priv_climb_t *c, int may_climb) {
    memset((void *)c, 0, sizeof *c);
    c->may_climb = may_climb;
    c->came = -1;
}

/* Whether runs may be made in different ways. Not with resident buffers, ordered sources and sinks,
   checked runs and progress, which see how the work is divided; nor where others use the machine at
   the same time, which changes the times. */
SPIPE_PRIV_RARE int spipe_priv_may_climb(const spipe_priv_request_t *r,
                                         const spipe_priv_work_t *w) {
    return r->kept && !r->desc.resources && r->fit.slots == 0 && (w->flags & SPIPE_PRIV_MAY_CLIMB);
}

/* Another chunk by a factor. 0: there is none. */
SPIPE_PRIV_RARE size_t spipe_priv_other_chunk(const spipe_priv_pipeline_t *p,
                                              const spipe_priv_work_t *w, double factor) {
    const double bytes = (double)p->plan.chunk * spipe_priv_busier(w) * factor;
    const size_t chunk = spipe_priv_chunk_of(w, bytes);
    const int direct = p->plan.staging == SPIPE_STAGING_DIRECT && !p->request.reads_pages;
    if (p->request.desc.chunk != SPIPE_AUTO || direct) return 0;
    if (p->plan.schedule == SPIPE_SCHEDULE_ZERO_COPY) return 0;
    if (2.0 * bytes < (double)SPIPE_PRIV_LEAST_CHUNK) return 0;
    return chunk == p->plan.chunk ? 0 : chunk;
}

/* Another number of threads by a factor; in a long run, which steers, the most that it may take. 0:
   there is none. */
SPIPE_PRIV_RARE size_t spipe_priv_other_threads(const spipe_priv_pipeline_t *p,
                                                const spipe_priv_work_t *w, double factor) {
    const spipe_plan_t *plan = &p->plan;
    const size_t planned = plan->fill_threads + plan->drain_threads, most = p->request.cpus;
    const size_t found = p->workers.steer.found;
    const size_t now = spipe_priv_is_long(p) && found > 0 ? found : planned;
    const size_t ways = (size_t)(plan->fill_threads > 0) + (size_t)(plan->drain_threads > 0);
    size_t other = (size_t)(factor * (double)now + (factor > 1.0 ? 0.99 : 0.0));
    if (now == 0 || p->request.desc.threads != SPIPE_AUTO) return 0;
    if (!(w->flags & SPIPE_PRIV_AT_ONCE)) return 0;
    if (factor > 1.0 && spipe_priv_is_long(p) && p->climb.best.threads == 0)
        return 0; /* it steers */
    if (other > most) other = most;
    if (other < ways) other = ways;
    return other == now ? 0 : other;
}

/* The neighbour of the best setting that a move leads to. 0: there is none. The plan in use is that
   of the best setting. */
SPIPE_PRIV_RARE int spipe_priv_neighbour(const spipe_priv_pipeline_t *p, const spipe_priv_work_t *w,
                                         int move, spipe_priv_setting_t *to) {
    const spipe_priv_climb_t *c = &p->climb;
    const double step = SPIPE_PRIV_CLIMB_STEP;
    const size_t chunks = w->count / p->plan.chunk;
    *to = c->best;
    if (c->came >= 0 && c->came != SPIPE_PRIV_REPLAY && move == (c->came ^ 1)) return 0;
    switch (move) {
    case SPIPE_PRIV_SMALLER_CHUNK:
    case SPIPE_PRIV_LARGER_CHUNK:
        to->chunk =
            spipe_priv_other_chunk(p, w, move == SPIPE_PRIV_LARGER_CHUNK ? step : 1.0 / step);
        return to->chunk > 0;
    case SPIPE_PRIV_FEWER_THREADS:
    case SPIPE_PRIV_MORE_THREADS:
        to->threads =
            spipe_priv_other_threads(p, w, move == SPIPE_PRIV_MORE_THREADS ? step : 1.0 / step);
        return to->threads > 0;
    default:
        to->replay = !c->best.replay;
        if (p->program.replay.graph_failed || chunks < 2 || chunks > SPIPE_PRIV_MOST_REPLAY)
            return 0;
        return (w->flags & SPIPE_PRIV_MAY_REPLAY) && c->came != SPIPE_PRIV_REPLAY;
    }
}

SPIPE_PRIV_RARE int spipe_priv_same_setting(const spipe_priv_setting_t *a,
                                            const spipe_priv_setting_t *b) {
    return a->chunk == b->chunk && a->threads == b->threads && a->replay == b->replay;
}

/* Chooses the setting for the next run: a neighbour of the best, or the best itself if no neighbour
   is left. Called with the plan of the best setting in use. */
SPIPE_PRIV_RARE void spipe_priv_climb_on(spipe_priv_pipeline_t *p) {
    const spipe_priv_work_t w = spipe_priv_request_work(&p->request);
    spipe_priv_climb_t *c = &p->climb;
    c->turns = 0;
    while (c->failed < SPIPE_PRIV_NUM_MOVES && c->tried < SPIPE_PRIV_MOST_TRIED) {
        if (spipe_priv_neighbour(p, &w, c->move, &c->now)) return;
        c->move = (c->move + 1) % SPIPE_PRIV_NUM_MOVES;
        ++c->failed;
    }
    c->now = c->best;
    c->settled = 1;
}

/* Judges the present setting: it is better if the longest of its runs took less than the shortest
   of the best's. */
SPIPE_PRIV_RARE void spipe_priv_judge_setting(spipe_priv_climb_t *c) {
    ++c->tried;
    c->judged = 1;
    if (c->best_most > 0.0 && c->most >= c->best_least * (1.0 - SPIPE_PRIV_LEAST_GAIN)) {
        ++c->failed;
        c->move = (c->move + 1) % SPIPE_PRIV_NUM_MOVES;
        return;
    }
    c->came = c->best_most > 0.0 ? c->move : -1;
    c->best = c->now;
    c->best_least = c->least;
    c->best_most = c->most;
    c->failed = 0;
}

/* After the climb: whether the machine has become another one. Then the climb begins again, from
   what was the best. */
SPIPE_PRIV_RARE void spipe_priv_watch_time(spipe_priv_climb_t *c, double seconds) {
    const double most = c->best_most * (1.0 + SPIPE_PRIV_OUTSIDE);
    const double least = c->best_least * (1.0 - SPIPE_PRIV_OUTSIDE);
    c->outside = seconds > most || seconds < least ? c->outside + 1 : 0;
    if (c->outside < 2) return;
    c->settled = c->outside = c->tried = c->failed = c->move = c->turns = 0;
    c->best_most = 0.0;
    c->came = -1;
}

/* After a successful run, which took so many seconds. The first run of a setting meets new pages
   and first calls of CUDA, and is not counted; short runs vary more, so more of them are made. */
SPIPE_PRIV_RARE void spipe_priv_note_run(spipe_priv_pipeline_t *p, double seconds) {
    spipe_priv_climb_t *c = &p->climb;
    const int needs = seconds < 0.02 ? 4 : 3;
    if (!c->may_climb || p->request.desc.timeline) return;
    if (c->settled) {
        spipe_priv_watch_time(c, seconds);
        return;
    }
    ++c->num_runs;
    if (c->turns++ == 0) {
        c->least = 1e30;
        c->most = 0.0;
        return;
    }
    if (seconds < c->least) c->least = seconds;
    if (seconds > c->most) c->most = seconds;
    if (c->turns >= needs) spipe_priv_judge_setting(c);
}
