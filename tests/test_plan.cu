/*  test_plan.cu -- the planner by itself, on several hundred random works: its choice is as good as
    the best of a fine grid by the same law, it keeps what the user fixed, it stays within the
    memory, and more data or a faster link does not make chunks smaller. Nothing is run. */
#include "pipe_common.h"

#include <math.h>

/* ---- Random works ---------------------------------------------------------------------------- */

/* What the planner is given: a request whose arrays nobody looks at, and how long kernels take. */
typedef struct scene {
    spipe_priv_request_t request;
    double cache, kernel_share; /* of the time that copying takes */
    spipe_priv_work_t work;
    spipe_priv_way_t ways[SPIPE_PRIV_CANDIDATES];
    size_t num;
    spipe_plan_t plan;
} scene_t;

static cudaError_t no_stage(const spipe_chunk_t *, void *) { return cudaSuccess; }

static cudaError_t no_source(void *, size_t, size_t *, void *) { return cudaSuccess; }

static cudaError_t no_source_at(void *, size_t, size_t, void *) { return cudaSuccess; }

static cudaError_t no_work(void *, const void *, size_t, size_t, void *) { return cudaSuccess; }

static cudaError_t no_sink(const void *, size_t, size_t, void *) { return cudaSuccess; }

static double random_part(void) { return (double)(pipe_random() % 10001) * 1e-4; }

/* From low to high, each power of two as likely as the next. */
static double random_scale(double low, double high) { return low * pow(high / low, random_part()); }

/* A machine that nobody has seen: figures up to three times better or worse than a known one. */
static spipe_costs_t random_costs(void) {
    static const char *const names[] = {"NVIDIA H200", "NVIDIA H100 PCIe", "Some other GPU"};
    spipe_costs_t c = spipe_priv_costs_for(names[pipe_random() % 3]);
    size_t i;
    if (pipe_random() % 2) return c;
    for (i = 0; i < SPIPE_PRIV_NUM_COSTS; ++i) {
        *spipe_priv_cost_figure(&c, i) *= random_scale(1.0 / 3.0, 3.0);
    }
    if (c.link_both > c.link_in) c.link_both = c.link_in;
    if (c.link_both > c.link_out) c.link_both = c.link_out;
    if (c.memory_uncached > c.memory) c.memory_uncached = c.memory;
    return c;
}

static void add_buffers(spipe_desc_t *d, spipe_priv_array_t *arrays, int pageable) {
    static const size_t sizes[] = {1, 4, 4, 8, 12, 4096};
    static unsigned char nothing;
    const int shape = (int)(pipe_random() % 6);
    int i, ins = 1, outs = 1;
    if (shape == 1) ins = 3;
    if (shape == 2) outs = 2;
    if (shape == 3) outs = 0;
    if (shape == 4) ins = 0;
    for (i = 0; i < ins; ++i) spipe_add_input(d, &nothing, sizes[pipe_random() % 6]);
    for (i = 0; i < outs; ++i) spipe_add_output(d, &nothing, sizes[pipe_random() % 6]);
    if (shape == 5) spipe_add_temp(d, 4);
    for (i = 0; i < d->num_buffers; ++i) {
        arrays[i].type = pageable && (pageable == 1 || pipe_random() % 2) ? SPIPE_PRIV_PAGEABLE
                                                                          : SPIPE_PRIV_PINNED;
        if (arrays[i].type == SPIPE_PRIV_PINNED) arrays[i].mapped = &nothing;
    }
}

/* bytes: of the busier direction. */
static void scene_count(scene_t *s, double bytes) {
    spipe_priv_request_t *r = &s->request;
    spipe_priv_work_t w;
    r->desc.count = 1;
    w = spipe_priv_request_work(r, 0.0);
    r->desc.count = (size_t)(bytes / spipe_priv_busier(&w)) + 1;
}

static void scene_plan(scene_t *s) {
    spipe_priv_request_t *r = &s->request;
    s->work = spipe_priv_request_work(r, 0.0);
    s->work.kernel_s =
        s->kernel_share * (double)s->work.count * spipe_priv_busier(&s->work) / r->costs.link_both;
    s->work.machine.cache = s->cache;
    s->num = spipe_priv_request_plan(r, &s->work, s->ways, r->kept ? SPIPE_PRIV_CANDIDATES : 1,
                                     &s->plan);
}

/* pageable: 0 = none is, 1 = all arrays are, 2 = some. */
static scene_t random_scene(int pageable, int kept) {
    static const double kernels[] = {0.0, 0.1, 0.5, 1.0, 3.0};
    static const size_t cpus[] = {1, 2, 4, 8, 16, 64};
    static const int sms[] = {0, 20, 132}; /* not known, a laptop's, an H100's */
    scene_t s;
    spipe_priv_request_t *r = &s.request;
    int k, stages = 1 + (int)(pipe_random() % 3);
    memset((void *)&s, 0, sizeof s);
    r->desc = spipe_desc_default();
    r->kept = kept;
    r->may_register = 1;
    r->costs = random_costs();
    r->cpus = cpus[pipe_random() % 6];
    r->facts.map_host_memory = 1;
    r->facts.memory_bytes = (size_t)random_scale(1e9, 140e9);
    add_buffers(&r->desc, r->arrays, pageable);
    for (k = 0; k < stages; ++k) {
        static const char *const names[] = {"a", "b", "c"};
        const int stage = spipe_add_stage(&r->desc, names[k], no_stage, NULL);
        if (pipe_random() % 4 == 0) spipe_stage_elementwise(&r->desc, stage);
        if (pipe_random() % 4 == 0) spipe_stage_replayable(&r->desc, stage);
    }
    r->facts.num_sms = sms[pipe_random() % 3];
    s.cache = pipe_random() % 3 ? random_scale(4e6, 300e6) : 0.0;
    s.kernel_share = kernels[pipe_random() % 5];
    scene_count(&s, random_scale(1e3, 4e9));
    scene_plan(&s);
    return s;
}

static void tell(const char *what, const scene_t *s) {
    const spipe_priv_work_t *w = &s->work;
    const spipe_priv_machine_t *m = &w->machine;
    const spipe_priv_way_t *y = &s->ways[0];
    tap_note("%s: %s, %s, %zu elements, in %g out %g (pageable %g %g), kernels %g ms, %zu CPUs, "
             "cache %g: %s staging %d, chunk %zu x %zu, depth %zu, threads %zu+%zu%s%s, %g ms",
             what, s->request.costs.name, s->request.kept ? "kept" : "one-shot", w->count, w->in,
             w->out, w->pageable_in, w->pageable_out, 1e3 * w->kernel_s, m->cpus, m->cache,
             spipe_schedule_name(y->schedule), (int)y->staging, y->chunk, y->batch, y->depth,
             y->fill_threads, y->drain_threads, y->caller_helps ? "+caller" : "",
             y->replay ? ", replayed" : "", 1e3 * y->predicted_s);
}

/* Without copies only temporaries are on the device. */
static int fits(const scene_t *s, const spipe_priv_way_t *y) {
    const spipe_desc_t *d = &s->request.desc;
    const int zero_copy = y->schedule == SPIPE_ZERO_COPY && !spipe_priv_is_staged(&s->work, y);
    double slot = 0.0;
    int i;
    for (i = 0; i < d->num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &d->buffers[i];
        const size_t elements = b->halo_before + y->chunk * y->batch + b->halo_after;
        if (b->kind == SPIPE_RESIDENT) continue;
        if (!zero_copy || b->kind == SPIPE_TEMP) slot += (double)elements * (double)b->elem_bytes;
    }
    return (double)y->depth * slot <= 0.25 * (double)s->request.facts.memory_bytes;
}

/* ---- The best of a fine grid ----------------------------------------------------------------- */

/* Every way that may be taken, by the law alone: the planner's code is not asked. */
typedef struct grid {
    const scene_t *scene;
    double best_s;
    spipe_priv_way_t best;
} grid_t;

static void grid_try(grid_t *g, spipe_priv_way_t y) {
    const scene_t *s = g->scene;
    const double seconds = spipe_priv_predict(&s->request.costs, &s->work, &y);
    if (seconds >= g->best_s || !fits(s, &y)) return;
    g->best_s = seconds;
    g->best = y;
}

/* A staged ring has more slots than the law asks for, as its steps are of unequal length: so many
   as the planner takes. Of others every number of slots is tried, from four on: with fewer nothing
   hides kernels that turn out to take as long as the copies. */
static void grid_depths(grid_t *g, spipe_priv_way_t y) {
    const scene_t *s = g->scene;
    const double batches = spipe_priv_num_batches(&s->work, &y);
    if (!spipe_priv_is_staged(&s->work, &y)) {
        y.depth = batches < SPIPE_PRIV_COPY_SLOTS ? (size_t)batches : (size_t)SPIPE_PRIV_COPY_SLOTS;
        for (; y.depth <= SPIPE_MAX_DEPTH; ++y.depth) grid_try(g, y);
        return;
    }
    y.depth = spipe_priv_depth_for(&s->request.desc, &s->work, &y);
    if (!s->request.kept && (double)y.depth > batches) y.depth = (size_t)batches;
    grid_try(g, y);
}

static void grid_threads(grid_t *g, spipe_priv_way_t y) {
    const spipe_priv_work_t *w = &g->scene->work;
    size_t most, all;
    if (!spipe_priv_is_staged(w, &y)) {
        grid_depths(g, y);
        return;
    }
    most = spipe_priv_most_threads(w, &y);
    const size_t each = spipe_priv_most_each_way(w, spipe_priv_both_ways(w, &y));
    for (all = 0; all <= most; ++all) {
        for (y.fill_threads = 0; y.fill_threads <= all; ++y.fill_threads) {
            y.drain_threads = all - y.fill_threads;
            if (y.fill_threads > each || y.drain_threads > each) continue;
            if (all > 0 && (y.fill_threads > 0) != (w->pageable_in > 0.0)) continue;
            if (all > 0 && (y.drain_threads > 0) != (w->pageable_out > 0.0)) continue;
            y.caller_helps = all == 0;
            grid_depths(g, y);
            y.caller_helps = 1;
            grid_depths(g, y);
        }
    }
}

static void grid_chunks(grid_t *g, spipe_priv_way_t y) {
    const spipe_priv_work_t *w = &g->scene->work;
    const double element = spipe_priv_busier(w), total = (double)w->count * element;
    const double most = total < SPIPE_PRIV_MOST_CHUNK ? total : (double)SPIPE_PRIV_MOST_CHUNK;
    const int coarse = spipe_priv_is_staged(w, &y) && w->machine.cpus > 16;
    double bytes;
    size_t parts;
    for (parts = 1; parts <= SPIPE_PRIV_MAX_PARTS; ++parts) {
        y.chunk = (w->count - 1) / parts + 1;
        if ((double)y.chunk * element <= (double)SPIPE_PRIV_MOST_CHUNK) grid_threads(g, y);
    }
    for (bytes = SPIPE_PRIV_LEAST_CHUNK; bytes <= most; bytes *= coarse ? 1.2 : 1.05) {
        y.chunk = (size_t)(bytes / element);
        if (y.chunk == 0) y.chunk = 1;
        if (y.chunk < w->count) grid_threads(g, y);
    }
}

static void grid_stagings(grid_t *g, spipe_priv_way_t y) {
    const spipe_priv_work_t *w = &g->scene->work;
    if (w->pageable_in + w->pageable_out <= 0.0) {
        grid_chunks(g, y);
        return;
    }
    y.staging = SPIPE_STAGING_COPY;
    grid_chunks(g, y);
    if (g->scene->request.kept) return;
    y.staging = SPIPE_STAGING_DIRECT;
    grid_chunks(g, y);
    y.staging = SPIPE_STAGING_REGISTER;
    grid_chunks(g, y);
}

static grid_t grid_of(const scene_t *s) {
    const spipe_priv_work_t *w = &s->work;
    grid_t g;
    spipe_priv_way_t y;
    memset(&g, 0, sizeof g);
    memset(&y, 0, sizeof y);
    g.scene = s;
    g.best_s = 1e30;
    y.batch = 1;
    y.schedule = SPIPE_ENGINES;
    grid_stagings(&g, y);
    if ((w->flags & SPIPE_PRIV_MAY_REPLAY) && s->request.kept) {
        y.replay = 1;
        grid_chunks(&g, y);
        y.replay = 0;
    }
    if (w->flags & SPIPE_PRIV_MAY_ZERO_COPY) {
        y.schedule = SPIPE_ZERO_COPY;
        for (size_t parts = 1; parts <= SPIPE_PRIV_MAX_PARTS; ++parts) {
            y.chunk = (w->count - 1) / parts + 1;
            grid_depths(&g, y);
        }
    }
    return g;
}

/* The planner tries fewer chunk sizes and numbers of threads than the grid, so it may miss the best
   way: how often, and by how much, is what these figures say. */
static void test_grid(int pageable, int kept, int num, const char *name) {
    double worst = 0.0, sum = 0.0;
    int k, over = 0;
    pipe_seed = 9u;
    for (k = 0; k < num; ++k) {
        const scene_t s = random_scene(pageable, kept);
        const grid_t g = grid_of(&s);
        const double loss = s.ways[0].predicted_s / g.best_s - 1.0;
        sum += loss > 0.0 ? loss : 0.0;
        over += loss > 0.02;
        if (loss > worst) worst = loss;
        if (loss <= 0.02) continue;
        tell("worse than the grid", &s);
        tap_note("    the grid has %s, staging %d, chunk %zu, depth %zu, threads %zu+%zu%s, %g ms",
                 spipe_schedule_name(g.best.schedule), (int)g.best.staging, g.best.chunk,
                 g.best.depth, g.best.fill_threads, g.best.drain_threads,
                 g.best.caller_helps ? "+caller" : "", 1e3 * g.best_s);
    }
    tap_ok(over * 200 <= num && worst < 0.08 && sum < 0.002 * num,
           "%s: of %d works 199 in 200 are planned within 2 %% of a fine grid's best time, none "
           "over 8 %%, on average within 0.2 %% (%d are over 2 %%, %.1f %% at worst, %.2f %%)",
           name, num, over, 100.0 * worst, 100.0 * sum / num);
}

/* ---- What is always so ----------------------------------------------------------------------- */

/* More than the grid's law covers: sources, sinks, halos, host stages, ordered ones, resident
   buffers, watched runs. */
static scene_t odd_scene(void) {
    scene_t s = random_scene((int)(pipe_random() % 3), (int)(pipe_random() % 2));
    spipe_desc_t *d = &s.request.desc;
    if (pipe_random() % 4 == 0) spipe_add_source(d, no_source, NULL, 1 + pipe_random() % 100);
    if (pipe_random() % 4 == 0) spipe_add_sink(d, no_sink, NULL, 1 + pipe_random() % 100);
    if (pipe_random() % 4 == 0) spipe_add_resident(d, NULL, 1000, SPIPE_ZERO);
    if (pipe_random() % 4 == 0) {
        d->buffers[0].halo_before = pipe_random() % 5000;
        d->buffers[0].halo_after = pipe_random() % 5000;
    }
    if (pipe_random() % 4 == 0) spipe_stage_ordered(d, 0);
    if (pipe_random() % 4 == 0) spipe_add_host_stage(d, "host", no_stage, NULL, 1, 0);
    d->checked = pipe_random() % 8 == 0;
    s.request.facts.host_page_tables = pipe_random() % 8 == 0;
    s.request.facts.map_host_memory = pipe_random() % 8 != 0;
    if (pipe_random() % 16 == 0) d->count = pipe_random() % 3;
    if (pipe_random() % 16 == 0) s.request.facts.memory_bytes = (size_t)random_scale(1e3, 1e9);
    scene_plan(&s);
    return s;
}

static int is_sound(const scene_t *s, const spipe_priv_way_t *y) {
    const spipe_priv_work_t *w = &s->work;
    const double law = spipe_priv_predict(&s->request.costs, w, y);
    const double wrong_by = law - y->predicted_s;
    const size_t largest = w->count > w->least_chunk ? w->count : w->least_chunk;
    return y->chunk >= 1 && y->chunk >= w->least_chunk && y->chunk <= (largest > 0 ? largest : 1) &&
           y->batch >= 1 && y->depth >= 1 && y->depth <= SPIPE_MAX_DEPTH &&
           y->fill_threads <= SPIPE_MAX_THREADS && y->drain_threads <= SPIPE_MAX_THREADS &&
           law >= 0.0 && law < 1e9 && wrong_by == 0.0;
}

static void test_sound(void) {
    int k, sound = 1, sorted = 1, different = 1, same = 1, told = 1;
    pipe_seed = 1u;
    for (k = 0; k < 1000; ++k) {
        scene_t s = odd_scene(), again = s;
        size_t i, j;
        scene_plan(&again);
        same &=
            again.num == s.num && memcmp((void *)again.ways, (void *)s.ways, sizeof s.ways) == 0;
        for (i = 0; i < s.num; ++i) {
            sound &= is_sound(&s, &s.ways[i]);
            sorted &= i == 0 || s.ways[i].predicted_s >= s.ways[i - 1].predicted_s;
            for (j = 0; j < i; ++j)
                different &= memcmp(&s.ways[i], &s.ways[j], sizeof s.ways[i]) != 0;
        }
        told &= s.plan.why_chunk && s.plan.why_staging && s.plan.num_candidates >= (int)s.num;
        told &= s.plan.chunk == s.ways[0].chunk && s.plan.depth == s.ways[0].depth;
        told &= s.plan.predicted_ms == 1e3 * s.ways[0].predicted_s;
        sound &= s.num >= 1 && s.num <= SPIPE_PRIV_CANDIDATES;
        if (!sound || !sorted || !different || !same || !told) {
            tell("the first that is wrong", &s);
            break;
        }
    }
    tap_ok(sound, "of 1000 odd works each has a way, and sizes and times that can be");
    tap_ok(sorted && different, "the candidates are in order, and no two of them the same");
    tap_ok(same, "planning again gives the same");
    tap_ok(told, "a plan tells what was chosen and why");
}

static void test_memory(void) {
    int k, least_too_large = 0, good = 1;
    pipe_seed = 2u;
    for (k = 0; k < 500; ++k) {
        scene_t s = random_scene((int)(pipe_random() % 3), (int)(pipe_random() % 2));
        spipe_priv_way_t least;
        s.request.facts.memory_bytes = (size_t)random_scale(1e5, 1e9);
        if (k % 2) { /* as much around a chunk as a tenth of the whole */
            spipe_buffer_desc_t *b = &s.request.desc.buffers[0];
            b->halo_before = (size_t)random_scale(1.0, 0.1 * (double)s.request.desc.count + 1.0);
            b->halo_after = b->halo_before / 2;
        }
        scene_plan(&s);
        if (fits(&s, &s.ways[0])) continue;
        ++least_too_large;
        least = s.ways[0];
        least.depth = SPIPE_MAX_DEPTH;
        least.chunk = spipe_priv_chunk_of(&s.work, SPIPE_PRIV_LEAST_CHUNK);
        if (least.chunk < s.ways[0].chunk && fits(&s, &least)) good = 0;
        if (!good) tell("more than a quarter of the memory", &s);
        if (!good) break;
    }
    tap_ok(good && least_too_large < 400,
           "slots take a quarter of the device's memory at most, where the smallest do");
}

/* Figures of the kept run are the one-shot run's without the setting up. */
static void test_kept_is_not_slower(void) {
    int k, good = 1;
    pipe_seed = 3u;
    for (k = 0; k < 300 && good; ++k) {
        scene_t s = random_scene((int)(pipe_random() % 3), 0), kept = s;
        kept.request.kept = 1;
        kept.request.desc.staging = s.ways[0].staging;
        scene_plan(&kept);
        good &= kept.ways[0].predicted_s <= s.ways[0].predicted_s * 1.0001;
        if (!good) tell("once", &s);
        if (!good) tell("kept", &kept);
    }
    tap_ok(good, "a kept pipeline is never predicted to take longer than a single run");
}

/* ---- What the user fixed --------------------------------------------------------------------- */

enum {
    FIX_CHUNK,
    FIX_DEPTH,
    FIX_THREADS,
    FIX_SCHEDULE,
    FIX_STAGING,
    NUM_FIXES
};

static void fix(spipe_desc_t *d, int what) {
    static const size_t threads[] = {0, 1, 2, 5, 32};
    if (what == FIX_CHUNK) d->chunk = 1 + pipe_random() % 100000;
    if (what == FIX_DEPTH) d->depth = 1 + pipe_random() % SPIPE_MAX_DEPTH;
    if (what == FIX_THREADS) d->threads = threads[pipe_random() % 5];
    if (what == FIX_SCHEDULE) d->schedule = (spipe_schedule_t)(1 + pipe_random() % 5);
    if (what == FIX_STAGING) d->staging = (spipe_staging_t)(1 + pipe_random() % 3);
}

static int is_kept(const scene_t *s, const spipe_priv_way_t *y) {
    const spipe_desc_t *d = &s->request.desc;
    const spipe_priv_work_t *w = &s->work;
    const double batches = spipe_priv_num_batches(w, y);
    const int spared = !s->request.kept && (double)y->depth == batches && y->depth < d->depth;
    int kept = d->chunk == SPIPE_AUTO || y->chunk == d->chunk;
    if (d->depth != SPIPE_AUTO && d->schedule != SPIPE_SERIAL) {
        kept &= (y->depth == d->depth && y->batch == 1) || spared;
    }
    if (d->schedule == SPIPE_SERIAL) kept &= y->depth == 1;
    if (d->schedule != SPIPE_SCHEDULE_AUTO) kept &= y->schedule == d->schedule;
    if (w->pageable_in + w->pageable_out > 0.0 && d->staging != SPIPE_STAGING_AUTO) {
        kept &= y->staging == d->staging;
    }
    if (d->threads != SPIPE_AUTO && spipe_priv_is_staged(w, y)) {
        kept &= y->fill_threads == (w->pageable_in > 0.0 ? d->threads : 0);
        kept &= y->drain_threads == (w->pageable_out > 0.0 ? d->threads : 0);
    }
    return kept;
}

static void test_fixed(void) {
    static const char *const names[] = {"chunk", "depth", "threads", "schedule", "staging"};
    int what, k;
    pipe_seed = 4u;
    for (what = 0; what <= NUM_FIXES; ++what) { /* the last: several of them */
        int good = 1;
        for (k = 0; k < 200 && good; ++k) {
            scene_t s = random_scene((int)(pipe_random() % 3), (int)(pipe_random() % 2));
            size_t i;
            int j;
            for (j = 0; j < NUM_FIXES; ++j) {
                if (what == NUM_FIXES ? pipe_random() % 2 : what == j) fix(&s.request.desc, j);
            }
            scene_plan(&s);
            for (i = 0; i < s.num; ++i) good &= is_kept(&s, &s.ways[i]);
            if (!good) tell("not as asked", &s);
        }
        tap_ok(good, "%s: what the user fixed is so in all ways",
               what == NUM_FIXES ? "any of these" : names[what]);
    }
}

/* Who fixes the chunk that the library takes by itself loses nothing by it. */
static void test_own_chunk(void) {
    int k, good = 1, compared = 0;
    double most = 0.0;
    pipe_seed = 29u;
    for (k = 0; k < 1000 && good; ++k) {
        scene_t s = random_scene(1, k % 2), fixed = s;
        if (!spipe_priv_is_staged(&s.work, &s.ways[0]) || s.ways[0].batch > 1) continue;
        fixed.request.desc.chunk = s.ways[0].chunk;
        scene_plan(&fixed);
        good = fixed.ways[0].predicted_s <= 1.02 * s.ways[0].predicted_s;
        most = fmax(most, fixed.ways[0].predicted_s / s.ways[0].predicted_s);
        ++compared;
        if (good) continue;
        tell("chosen", &s);
        tell("with its chunk fixed", &fixed);
    }
    tap_ok(good && compared > 300,
           "with its own chunk fixed a staged plan is not slower (%d plans, at most %.3f times)",
           compared, most);
}

/* ---- More of everything ---------------------------------------------------------------------- */

/* Whether two plans do the work in the same way, in so many chunks that their size is a choice. */
static int comparable(const scene_t *a, const scene_t *b) {
    const spipe_priv_way_t *x = &a->ways[0], *y = &b->ways[0];
    return spipe_priv_num_batches(&a->work, x) >= 4.0 &&
           spipe_priv_num_batches(&b->work, y) >= 4.0 && x->schedule == y->schedule &&
           x->staging == y->staging && x->replay == y->replay &&
           (x->fill_threads + x->drain_threads > 0) == (y->fill_threads + y->drain_threads > 0);
}

/* Whether two ways have the same threads and slots, and more batches than slots. */
static int same_ring(const scene_t *a, const scene_t *b) {
    const spipe_priv_way_t *x = &a->ways[0], *y = &b->ways[0];
    return x->fill_threads == y->fill_threads && x->drain_threads == y->drain_threads &&
           x->caller_helps == y->caller_helps && x->depth == y->depth &&
           spipe_priv_num_batches(&a->work, x) > (double)x->depth &&
           spipe_priv_num_batches(&b->work, y) > (double)y->depth;
}

/* How much longer a work takes in another way than in its own: 0.01 = a hundredth; below 0 if the
   planner has missed that way. */
static double loss_of(const scene_t *s, const spipe_priv_way_t *way) {
    const double seconds = spipe_priv_predict(&s->request.costs, &s->work, way);
    return seconds / s->ways[0].predicted_s - 1.0;
}

/* The law's best chunk for a total, in more batches than slots: all numbers of them are tried, or
   every twentieth; all else is as in the scene's best way. 0 = 128 KiB would be too large. */
static size_t best_chunk(const scene_t *s, const spipe_priv_work_t *w) {
    spipe_priv_way_t y = s->ways[0];
    const double total = (double)w->count * spipe_priv_busier(w);
    double least = 1e30;
    size_t n, best = 0;
    for (n = y.depth + 1; (double)n * (double)SPIPE_PRIV_LEAST_CHUNK <= total; n += n / 20 + 1) {
        double seconds;
        y.chunk = (w->count - 1) / n + 1;
        seconds = spipe_priv_predict(&s->request.costs, w, &y);
        if (seconds < least) best = y.chunk;
        if (seconds < least) least = seconds;
    }
    return best;
}

/* With the same threads and slots, and more batches than slots, the law makes of a way's time a
   part that grows with the chunk (set-up, one batch through all engines) plus the total times a
   part that falls with it until the ring outgrows the cache. So the best chunk grows with the
   total. One step of 1.5: a total is divided into whole batches, here into three or more. */
static void test_law_more_data(double most) {
    int k, compared = 0, larger = 0, good = 1;
    pipe_seed = 25u;
    for (k = 0; k < 2000 && good; ++k) {
        const int pageable = (int)(pipe_random() % 3), kept = (int)(pipe_random() % 2);
        const double times = random_scale(1.1, 64.0);
        scene_t s = random_scene(pageable, kept);
        spipe_priv_work_t more;
        size_t x, y;
        scene_count(&s, random_scale(1e5, most));
        scene_plan(&s);
        more = s.work;
        more.count = (size_t)((double)more.count * times);
        more.kernel_s *= times;
        x = best_chunk(&s, &s.work);
        y = best_chunk(&s, &more);
        if (x == 0 || s.ways[0].schedule != SPIPE_ENGINES) continue;
        ++compared;
        larger += y > x;
        good &= 1.51 * (double)y >= (double)x;
        if (!good) tell("less", &s);
        if (!good) tap_note("by the law %zu; for %g times as much %zu", x, times, y);
    }
    tap_ok(good && compared > 500 && larger * 2 > compared,
           "by the law alone: with the same threads and slots the best chunk grows with the total "
           "(up to %g MB, %d works, larger in %d)",
           1e-6 * most, compared, larger);
}

/* So must the planner's choice. One step of its ladder of sizes is 1.5, so two plans may lie that
   much apart. It does not try all, so it may also miss the other plan's way, but then that is
   hardly better (test_grid). What may shrink a chunk is another number of threads or of slots,
   which a larger total pays for, or a total that fits into the slots: then no batch waits. Its time
   grows with the total, as far as the planner finds the best way (test_grid: within 8 %). */
static void test_more_data(double most) {
    int k, compared = 0, same = 0, smaller = 0, good = 1;
    double least = 2.0;
    pipe_seed = 5u;
    for (k = 0; k < 6000 && good; ++k) {
        const int pageable = (int)(pipe_random() % 3), kept = (int)(pipe_random() % 2);
        scene_t less = random_scene(pageable, kept), more;
        const double bytes = random_scale(1e5, most);
        double faster;
        less.request.facts.memory_bytes = (size_t)spipe_priv_min(140e9, (double)(SIZE_MAX / 2));
        more = less;
        scene_count(&less, bytes);
        scene_count(&more, bytes * random_scale(1.1, 64.0));
        scene_plan(&less);
        scene_plan(&more);
        faster = more.ways[0].predicted_s / less.ways[0].predicted_s;
        if (faster < least) least = faster;
        if (!comparable(&less, &more)) continue;
        ++compared;
        same += same_ring(&less, &more);
        if (1.51 * (double)more.ways[0].chunk >= (double)less.ways[0].chunk) continue;
        ++smaller;
        if (!same_ring(&less, &more)) continue;
        good &= loss_of(&more, &less.ways[0]) < 0.02 || loss_of(&less, &more.ways[0]) < 0.02;
        if (!good) tell("less", &less);
        if (!good) tell("more", &more);
    }
    tap_ok(good && same > 1000 && smaller * 1000 <= compared,
           "up to %g MB: with the same threads and slots more data does not make chunks smaller "
           "(%d pairs), and else in one of 1000 pairs at most (%d of %d)",
           1e-6 * most, same, smaller, compared);
    tap_ok(least > 0.92, "up to %g MB: more data is not predicted to take less time (%.2f x)",
           1e-6 * most, least);
}

/* A positioned source, one-shot: from some size on slots are pinned, on every machine, and pageable
   ones are best for one range of sizes, if for any. Kept
   pipelines pin once, and threads that are asked for need slots that they fill side by side. */
static void test_pageable_slots(void) {
    int k, good = 1, some = 0;
    pipe_seed = 15u;
    for (k = 0; k < 300 && good; ++k) {
        scene_t s = random_scene(0, 0);
        spipe_priv_request_t *r = &s.request;
        double bytes;
        int pageable = 0, over = 0;
        r->desc.num_buffers = 0;
        (void)spipe_add_source_at(&r->desc, no_source_at, NULL, 4);
        memset((void *)r->arrays, 0, sizeof r->arrays);
        r->facts.memory_bytes = (size_t)spipe_priv_min(140e9, (double)(SIZE_MAX / 2));
        for (bytes = 1e3; bytes < 1e9; bytes *= 2.0) {
            scene_count(&s, bytes);
            scene_plan(&s);
            over |= pageable && !s.plan.pageable_slots;
            pageable = s.plan.pageable_slots;
            good &= !(pageable && over);
            some += pageable;
            if (pageable) good &= s.plan.fill_threads == 0 && s.plan.depth == 1;
            r->desc.threads = 2;
            scene_plan(&s);
            good &= !s.plan.pageable_slots;
            r->desc.threads = SPIPE_AUTO;
            r->kept = 1;
            scene_plan(&s);
            good &= !s.plan.pageable_slots;
            r->kept = 0;
        }
        good &= !pageable;
        if (!good) tell("pageable slots", &s);
    }
    tap_ok(good && some > 1000, "slots are pageable for little data alone (%d of 6000)", some);
}

/* The law beside what `make bench-files BENCH_ARGS=--sweep` measured on an H100 (RESULTS.md):
   a file of 1 GiB, 8 threads. */
static void test_measured_files(void) {
    static const struct {
        size_t slots, chunk_mib;
        double measured; /* GB/s */
    } rows[] = {{8, 1, 22}, {8, 2, 30}, {8, 4, 35}, {12, 1, 31}, {12, 2, 42}, {16, 2, 46}};

    const double bytes = 1073741824.0;
    size_t k;
    double worst = 1.0;
    for (k = 0; k < sizeof rows / sizeof *rows; ++k) {
        scene_t s = random_scene(0, 1);
        spipe_priv_request_t *r = &s.request;
        spipe_priv_way_t y;
        double ratio;
        r->desc = spipe_desc_default();
        r->costs = spipe_priv_costs_for("NVIDIA H100");
        r->cpus = 16;
        (void)spipe_add_source_at(&r->desc, no_source_at, NULL, 64);
        spipe_add_stage(&r->desc, "sum", no_stage, NULL);
        memset((void *)r->arrays, 0, sizeof r->arrays);
        s.cache = 300.0 * 1048576.0;
        s.kernel_share = 0.1;
        scene_count(&s, bytes);
        scene_plan(&s);
        memset(&y, 0, sizeof y);
        y.schedule = SPIPE_ENGINES;
        y.staging = SPIPE_STAGING_COPY;
        y.chunk = (rows[k].chunk_mib << 20) / 64;
        y.batch = 1;
        y.depth = rows[k].slots;
        y.fill_threads = 8;
        ratio = 1e-9 * bytes / spipe_priv_predict(&r->costs, &s.work, &y) / rows[k].measured;
        if (ratio < 1.0) ratio = 1.0 / ratio;
        if (ratio > worst) worst = ratio;
    }
    tap_ok(worst < 1.15, "files: what the law says and what was measured differ by %.2f x at most",
           worst);
}

/* A split source's work takes nobody knows how long, so each thread gets some of it. */
static void test_split(void) {
    int k, good = 1;
    pipe_seed = 16u;
    for (k = 0; k < 300 && good; ++k) {
        scene_t s = random_scene(0, (int)(pipe_random() % 2));
        spipe_priv_request_t *r = &s.request;
        size_t chunks;
        r->desc.num_buffers = 0;
        (void)spipe_add_source_split(&r->desc, no_source, no_work, NULL, 4, 64);
        memset((void *)r->arrays, 0, sizeof r->arrays);
        if (pipe_random() % 2) r->desc.threads = 1 + pipe_random() % SPIPE_MAX_THREADS;
        scene_count(&s, random_scale(1e3, 1e8));
        scene_plan(&s);
        chunks = (r->desc.count - 1) / s.plan.chunk + 1;
        good &= chunks >= 2 * s.plan.fill_threads || s.plan.chunk <= SPIPE_PRIV_ALIGN_ELEMS;
        if (!good) tell("split", &s);
    }
    tap_ok(good, "a split source has two chunks for each thread, or more");
}

/* Kernels become faster, too; else they would be what limits the run, and then small chunks win. */
static void test_faster_link(void) {
    int k, compared = 0, good = 1;
    pipe_seed = 6u;
    for (k = 0; k < 1000 && good; ++k) {
        scene_t slow = random_scene(0, (int)(pipe_random() % 2)), fast;
        const double faster = random_scale(1.2, 8.0);
        if (slow.kernel_share > 0.6) continue;
        fast = slow;
        fast.request.costs.link_in *= faster;
        fast.request.costs.link_out *= faster;
        fast.request.costs.link_both *= faster;
        scene_plan(&fast);
        if (!comparable(&slow, &fast)) continue;
        ++compared;
        good &= (double)fast.ways[0].chunk >= 0.9 * (double)slow.ways[0].chunk; /* its steps */
        if (!good) tell("slow", &slow);
        if (!good) tell("fast", &fast);
    }
    tap_ok(good && compared > 100, "a faster link does not make chunks smaller (%d pairs)",
           compared);
}

/* A chunk that fills a small GPU need not fill a large one. Where no chunk of the work would fill
   it, all take as much longer, and their size is not a matter of the GPU's. */
static void test_larger_gpu(void) {
    const double most = 1.0 + 0.9 * SPIPE_PRIV_UNDERFILLED;
    int k, compared = 0, larger = 0, good = 1;
    pipe_seed = 9u;
    for (k = 0; k < 2000 && good; ++k) {
        scene_t small = random_scene(0, 1), large;
        if (small.request.facts.num_sms == 0 || small.kernel_share < 0.9) continue;
        large = small;
        large.request.facts.num_sms *= 1 + (int)(pipe_random() % 8);
        scene_plan(&large);
        if (!comparable(&small, &large)) continue;
        if (spipe_priv_underfilled(&large.work, (double)small.ways[0].chunk) > most) continue;
        ++compared;
        larger += large.ways[0].chunk > small.ways[0].chunk;
        good &= (double)large.ways[0].chunk >= 0.9 * (double)small.ways[0].chunk;
        if (!good) tell("small", &small);
        if (!good) tell("large", &large);
    }
    tap_ok(good && compared > 100 && larger > 20,
           "more multiprocessors do not make chunks smaller, but in %d of %d pairs larger", larger,
           compared);
}

/* Each figure of the costs by itself: rates up, times down. */
static void test_better_machine(void) {
    static const double si[] = {
#define FIGURE_UNIT(member, unit, si) si,
        SPIPE_PRIV_COST_FIGURES(FIGURE_UNIT)
#undef FIGURE_UNIT
    };
    double worst = 0.0;
    int k;
    for (k = 0; k < 2000; ++k) {
        scene_t s = random_scene((int)(pipe_random() % 3), (int)(pipe_random() % 2)), better = s;
        const size_t i = pipe_random() % SPIPE_PRIV_NUM_COSTS;
        double loss;
        *spipe_priv_cost_figure(&better.request.costs, i) *= si[i] > 1.0 ? 2.0 : 0.5;
        better.kernel_share = s.kernel_share * better.request.costs.link_both /
                              s.request.costs.link_both; /* the kernels stay as they are */
        scene_plan(&better);
        loss = better.ways[0].predicted_s / s.ways[0].predicted_s - 1.0;
        if (loss > worst && loss > 0.02) tell("worse", &s);
        if (loss > worst && loss > 0.02) tell("with a better figure", &better);
        if (loss > worst) worst = loss;
    }
    tap_ok(worst < 0.20, "no better figure of a machine makes a run slower (%.1f %% at worst)",
           100.0 * worst);
}

/* ---- The kernels' time from a run ------------------------------------------------------------ */

static void test_solve(void) {
    int k, good = 1, shows = 0;
    pipe_seed = 8u;
    for (k = 0; k < 500 && good; ++k) {
        const scene_t s = random_scene((int)(pipe_random() % 3), 1);
        const spipe_priv_way_t *y = &s.ways[0];
        spipe_priv_work_t w = s.work;
        const double took = spipe_priv_predict(&s.request.costs, &w, y);
        const double kernel = spipe_priv_solve_kernel(&s.request.costs, &w, y, took);
        w.kernel_s = kernel;
        good &= spipe_priv_predict(&s.request.costs, &w, y) <= took * 1.000001;
        good &= kernel >= s.work.kernel_s * 0.9999 && kernel <= took;
        w.kernel_s = 0.99 * s.work.kernel_s; /* does a hundredth less show? */
        if (took - spipe_priv_predict(&s.request.costs, &w, y) < 0.005 * s.work.kernel_s) continue;
        if (s.work.kernel_s == 0.0) continue;
        ++shows;
        good &= kernel <= s.work.kernel_s * 1.0001;
        if (!good) tell("the kernels' time is not found", &s);
    }
    tap_ok(good && shows > 20,
           "where the kernels limit a run their time is found from the run's (%d "
           "of 500 works)",
           shows);
}

/* A run that took longer than its copies explain: the kernels took the rest, or the host's threads
   are slower than the table says. Then the best way for slower threads is a candidate, too. */
static void test_slow_host(void) {
    int k, good = 1, compared = 0, more = 0;
    pipe_seed = 11u;
    for (k = 0; k < 600 && good; ++k) {
        const scene_t s = random_scene(1 + (int)(pipe_random() % 2), 1);
        const spipe_priv_way_t ran = s.ways[0];
        spipe_priv_pipeline_t *p;
        spipe_costs_t slower = s.request.costs;
        spipe_priv_work_t w = spipe_priv_request_work(&s.request, 0.0);
        double took, least = 1e9;
        size_t j, threads = 0;
        if (ran.fill_threads + ran.drain_threads == 0) continue;
        slower.fill /= 3.0;
        slower.drain /= 3.0;
        took = spipe_priv_predict(&slower, &w, &ran);
        p = (spipe_priv_pipeline_t *)calloc(1, sizeof *p);
        if (!p) exit(99);
        p->request = s.request;
        p->trial.num = 1;
        p->trial.ways[0] = ran;
        p->trial.kernel_s = spipe_priv_solve_kernel(&s.request.costs, &w, &ran, took);
        if (p->trial.kernel_s > 0.01 * took) {
            spipe_priv_way_t ways[SPIPE_PRIV_CANDIDATES];
            memset((void *)ways, 0, sizeof ways);
            slower = spipe_priv_solve_host(&s.request.costs, &w, &ran, took);
            (void)spipe_priv_list_fitting(p, &slower, &w, ways);
            spipe_priv_list_again(p, took);
            for (j = 0; j < p->trial.num; ++j) {
                const spipe_priv_way_t *y = &p->trial.ways[j];
                least = spipe_priv_min(least, spipe_priv_predict(&slower, &w, y));
                if (threads < y->fill_threads + y->drain_threads)
                    threads = y->fill_threads + y->drain_threads;
            }
            ++compared;
            more += threads > ran.fill_threads + ran.drain_threads;
            good &= least <= 1.001 * spipe_priv_predict(&slower, &w, &ways[0]);
            good &= spipe_priv_same_way(&p->trial.ways[p->trial.current], &ran);
            if (!good) tell("the way for a slow host is no candidate", &s);
        }
        free(p);
    }
    tap_ok(good && compared > 50 && more > compared / 4,
           "a host slower than the table: the best way for it is a candidate (%d works, %d with "
           "more threads)",
           compared, more);
}

static void note_run(spipe_priv_pipeline_t *p, double seconds) {
    p->report.wall_ms = 1e3 * seconds;
    spipe_priv_note_run(p);
}

/* A process's first two runs are three times as slow as those that follow: what they leave for the
   kernels is forgotten, and the best way for what the others leave is a candidate. */
static void test_slow_first_runs(void) {
    int k, good = 1, listed = 0;
    pipe_seed = 12u;
    for (k = 0; k < 300 && good; ++k) {
        const scene_t s = random_scene((int)(pipe_random() % 3), 1);
        const double took = s.ways[0].predicted_s;
        spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)calloc(1, sizeof *p);
        spipe_priv_way_t ways[SPIPE_PRIV_CANDIDATES];
        spipe_priv_work_t w = spipe_priv_request_work(&s.request, 0.0);
        size_t j;
        double first;
        if (!p) exit(99);
        p->request = s.request;
        p->trial.num = 1;
        p->trial.ways[0] = s.ways[0];
        p->trial.kernel_s = -1.0;
        note_run(p, 3.0 * took);
        note_run(p, 3.0 * took);
        first = p->trial.kernel_s;
        note_run(p, took);
        w.kernel_s = spipe_priv_solve_kernel(&s.request.costs, &w, &s.ways[0], took);
        good &= p->trial.kernel_s <= first;
        good &= p->trial.kernel_s <= w.kernel_s + 0.2 * took;
        if (p->trial.kernel_s < first) {
            ++listed;
            memset((void *)ways, 0, sizeof ways);
            (void)spipe_priv_list_fitting(p, &s.request.costs, &w, ways);
            for (j = 0; j < p->trial.num; ++j) {
                if (spipe_priv_same_way(&p->trial.ways[j], &ways[0])) break;
            }
            good &= j < p->trial.num;
        }
        if (!good) tell("the first runs are believed", &s);
        free(p);
    }
    tap_ok(good && listed > 100, "slow first runs are forgotten (%d of 300 works)", listed);
}

/* A work with so many runs beside each other. */
static scene_t beside(const scene_t *alone, size_t runs) {
    scene_t s = *alone;
    s.request.runs = runs;
    s.request.beside = runs > 1 ? spipe_priv_beside : NULL;
    scene_plan(&s);
    return s;
}

/* Runs overlap each other, so none needs to overlap itself: fewer threads, larger chunks. */
static void test_beside(int pageable, const char *name) {
    int k, good = 1, fewer = 0, larger = 0;
    pipe_seed = 21u;
    for (k = 0; k < 400 && good; ++k) {
        const scene_t s = random_scene(pageable, (int)(pipe_random() % 2));
        const scene_t two = beside(&s, 2), many = beside(&s, 16), more = beside(&s, 64);
        const spipe_priv_way_t *y = &s.ways[0], *z = &many.ways[0];
        const double alone = y->predicted_s;
        good &= z->predicted_s >= alone && two.ways[0].predicted_s >= alone;
        good &= z->predicted_s >= two.ways[0].predicted_s;
        good &= more.ways[0].predicted_s >= z->predicted_s;
        if (s.work.machine.cpus <= 16) { /* a CPU a run */
            good &= z->fill_threads + z->drain_threads == 0;
        }
        if (!good) tell("alone", &s);
        if (!good) tell("beside 15", &many);
        fewer += z->fill_threads + z->drain_threads < y->fill_threads + y->drain_threads;
        larger += !pageable && z->chunk * z->batch > y->chunk * y->batch;
    }
    tap_ok(good && (pageable ? fewer : larger) > 50,
           "%s, beside others: no run is expected to take less, and with no CPU to spare none has "
           "threads (fewer in %d works, larger chunks in %d)",
           name, fewer, larger);
}

/* The candidates of a kept pipeline that may run without copies: the whole, two parts and four are
   each listed, unless the list is full of ways that are predicted to be faster, or three parts are
   listed instead and gain more than runs vary. */
static void test_zero_copy_parts(void) {
    int k, listed = 0, missing = 0;
    pipe_seed = 35u;
    for (k = 0; k < 3000 && missing == 0; ++k) {
        scene_t s = random_scene(0, 1);
        size_t parts;
        if (!(s.work.flags & SPIPE_PRIV_MAY_ZERO_COPY) || s.work.count < 1000) continue;
        for (parts = 1; parts <= SPIPE_PRIV_MAX_PARTS; parts *= 2) {
            spipe_priv_way_t y;
            size_t j = 0;
            memset(&y, 0, sizeof y);
            y.schedule = SPIPE_ZERO_COPY;
            y.batch = 1;
            y.depth = SPIPE_PRIV_COPY_SLOTS;
            y.chunk = spipe_priv_part_of(&s.work, parts);
            y.predicted_s = spipe_priv_predict(&s.request.costs, &s.work, &y);
            while (j < s.num && !spipe_priv_alike(&s.ways[j], &y)) ++j;
            if (j < s.num && s.ways[j].chunk == y.chunk) {
                ++listed;
                continue;
            }
            if (j < s.num && s.ways[j].predicted_s <= SPIPE_PRIV_CHANCE * y.predicted_s) continue;
            if (s.num == SPIPE_PRIV_CANDIDATES && s.ways[s.num - 1].predicted_s <= y.predicted_s)
                continue;
            if (!fits(&s, &y)) continue;
            ++missing;
            tap_note("%zu parts of %g ms are missing", parts, 1e3 * y.predicted_s);
            tell("without copies", &s);
        }
    }
    tap_ok(missing == 0 && listed > 500,
           "zero-copy: the whole, two and four parts are all candidates (%d listed)", listed);
}

/* Where the cache holds all rings, a run with more slots is never predicted to be slower, and a
   batch always takes longer than the busiest engine, because threads fill chunks out of order. If
   draining were twice as fast, a plan would give it as many threads or fewer. */
static void test_slots(void) {
    int k, good = 1, fewer = 0, rings = 0;
    pipe_seed = 33u;
    for (k = 0; k < 400 && good; ++k) {
        scene_t s = random_scene(1, 1);
        spipe_priv_way_t y = s.ways[0], z;
        spipe_costs_t fast = s.request.costs;
        double last = 1e30;
        if (!spipe_priv_is_staged(&s.work, &y) || y.fill_threads + y.drain_threads == 0) continue;
        ++rings;
        s.work.machine.cache = 1e15;
        for (y.depth = 2; y.depth <= SPIPE_MAX_DEPTH; ++y.depth) {
            const double took = spipe_priv_predict(&s.request.costs, &s.work, &y);
            const spipe_priv_engines_t e = spipe_priv_engines_of(&s.request.costs, &s.work, &y);
            good &= took <= last * (1.0 + 1e-9);
            good &= e.slots > e.busiest;
            last = took;
        }
        z = y;
        fast.drain *= 2.0;
        spipe_priv_share_threads(&s.request.costs, &s.work, &y, 12);
        spipe_priv_share_threads(&fast, &s.work, &z, 12);
        good &= z.drain_threads <= y.drain_threads;
        fewer += z.drain_threads < y.drain_threads;
        if (!good) tell("more slots, faster drains", &s);
    }
    tap_ok(good && rings > 100 && fewer > 20,
           "%d rings: more slots are not slower, drains twice as fast have no more threads (fewer "
           "in %d)",
           rings, fewer);
}

int main(void) {
    test_sound();
    test_slots();
    test_zero_copy_parts();
    test_memory();
    test_kept_is_not_slower();
    test_fixed();
    test_own_chunk();
    test_law_more_data(3e7);
    test_more_data(3e7);
    if (sizeof(size_t) > 4) { /* 64 times as many fit into size_t */
        test_law_more_data(1e9);
        test_more_data(1e9);
    }
    test_pageable_slots();
    test_measured_files();
    test_split();
    test_faster_link();
    test_larger_gpu();
    test_better_machine();
    test_solve();
    test_slow_host();
    test_slow_first_runs();
    test_beside(0, "pinned");
    test_beside(1, "pageable");
    test_beside(2, "some of each");
    test_grid(0, 0, 400, "pinned, once");
    test_grid(0, 1, 400, "pinned, kept");
    test_grid(1, 0, 200, "pageable, once");
    test_grid(1, 1, 200, "pageable, kept");
    test_grid(2, 1, 200, "some of each, kept");
    return tap_done();
}
