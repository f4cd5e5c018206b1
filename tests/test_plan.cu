/*  test_plan.cu -- what the library guesses for a first run, on several hundred random
    descriptions: it keeps what the user fixed, it stays within the memory, it says why, it says the
    same twice, and more data does not make chunks smaller. Nothing is run. */
#include "pipe_common.h"

#include <math.h>

enum {
    MOST_PINNED = 8 << 20 /* bytes; of pageable arrays the guess never looks at the memory */
};

static unsigned char *pinned_at;

static cudaError_t no_stage(const spipe_chunk_t *, void *) { return cudaSuccess; }

static cudaError_t no_source(spipe_part_t *part, void *) {
    (void)part;
    return cudaSuccess;
}

static cudaError_t no_source_at(spipe_part_t *part, void *) {
    (void)part;
    return cudaSuccess;
}

static cudaError_t no_work(const spipe_part_t *part, const void *, void *) {
    (void)part;
    return cudaSuccess;
}

static cudaError_t no_sink(const spipe_part_t *part, void *) {
    (void)part;
    return cudaSuccess;
}

static double random_part(void) { return (double)(pipe_random() % 10001) * 1e-4; }

/* From low to high, each power of two as likely as the next. */
static double random_scale(double low, double high) { return low * pow(high / low, random_part()); }

/* A description of the sort of what is planned here. */
typedef struct scene {
    spipe_desc_t d;
    int pinned, kept;
    double element; /* bytes of an element in the busier direction */
} scene_t;

static void scene_count(scene_t *s, double bytes) {
    const double most = s->pinned ? (double)MOST_PINNED : 4e9;
    const size_t n = (size_t)(fmin(bytes, most) / s->element);
    s->d.count = n > 0 ? n : 1;
}

static scene_t random_scene(int pinned, int kept) {
    static const size_t sizes[] = {1, 4, 4, 8, 12, 4096};
    scene_t s;
    const size_t in = sizes[pipe_random() % 6], out = sizes[pipe_random() % 6];
    int stages = 1 + (int)(pipe_random() % 3);
    memset((void *)&s, 0, sizeof s);
    s.d = spipe_desc_default();
    s.pinned = pinned;
    s.kept = kept;
    s.element = (double)(in > out ? in : out);
    spipe_add_input(&s.d, pinned ? pinned_at : (void *)((uintptr_t)3 << 40), in);
    spipe_add_output(&s.d, pinned ? pinned_at + MOST_PINNED : (void *)((uintptr_t)1 << 40), out);
    if (pipe_random() % 3 == 0) spipe_add_temp(&s.d, 4);
    for (; stages > 0; --stages) {
        static const char *const names[] = {"a", "b", "c"};
        const int stage = spipe_add_stage(&s.d, names[stages - 1], no_stage, NULL);
        if (pipe_random() % 3 == 0) spipe_stage_elementwise(&s.d, stage);
        if (pipe_random() % 3 == 0) spipe_stage_replayable(&s.d, stage);
    }
    scene_count(&s, random_scale(1e3, 4e9));
    return s;
}

/* Sources, sinks, halos, host stages, ordered ones, resident buffers, an end that is not known. */
static scene_t odd_scene(void) {
    scene_t s = random_scene((int)(pipe_random() % 2), (int)(pipe_random() % 2));
    spipe_desc_t *d = &s.d;
    if (pipe_random() % 4 == 0)
        spipe_add_source(d, no_source, NULL, 1 + pipe_random() % 100, SPIPE_IN_ORDER);
    if (pipe_random() % 4 == 0)
        spipe_add_source(d, no_source_at, NULL, 1 + pipe_random() % 100, SPIPE_ANY_ORDER);
    if (pipe_random() % 8 == 0) spipe_add_split_source(d, no_source, no_work, NULL, 8, 100);
    if (pipe_random() % 4 == 0)
        spipe_add_sink(d, no_sink, NULL, 1 + pipe_random() % 100, SPIPE_IN_ORDER);
    if (pipe_random() % 4 == 0) spipe_add_resident(d, NULL, 1000, SPIPE_ZERO);
    if (pipe_random() % 4 == 0) {
        const size_t most = d->count / 2 < 5000 ? d->count / 2 + 1 : 5000;
        spipe_set_halo(d, 0, pipe_random() % most, pipe_random() % most, SPIPE_EDGE_ZERO);
    }
    if (pipe_random() % 4 == 0) spipe_stage_ordered(d, 0);
    if (pipe_random() % 4 == 0) spipe_add_host_stage(d, "host", no_stage, NULL, 1, 0);
    d->checked = pipe_random() % 8 == 0;
    if (pipe_random() % 16 == 0) d->count = 1 + pipe_random() % 3;
    return s;
}

static spipe_plan_t plan_of(const scene_t *s) {
    spipe_plan_t plan;
    spipe_failure_t f;
    memset(&f, 0, sizeof f);
    if (spipe_plan(&s->d, s->kept, &plan, &f) != cudaSuccess) {
        tap_note("no plan: %s", f.message);
        exit(99);
    }
    return plan;
}

/* Bytes of device memory that the slots of a plan take. */
static double slot_bytes(const scene_t *s, const spipe_plan_t *plan) {
    double slot = 0.0;
    int i;
    for (i = 0; i < s->d.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &s->d.buffers[i];
        const size_t elements = b->halo_before + plan->chunk + b->halo_after;
        if (b->kind == SPIPE_RESIDENT) continue;
        if (plan->schedule == SPIPE_SCHEDULE_ZERO_COPY && b->kind != SPIPE_TEMP) continue;
        slot += (double)elements * (double)b->elem_bytes;
    }
    return (double)plan->depth * slot;
}

static void tell(const char *what, const scene_t *s, const spipe_plan_t *plan) {
    const char *memory = s->pinned ? "pinned" : "pageable";
    tap_note("%s: %s, kept %d, %zu elements of %g bytes, %d buffers, %d stages, halo %zu %zu:",
             what, memory, s->kept, s->d.count, s->element, s->d.num_buffers, s->d.num_stages,
             s->d.buffers[0].halo_before, s->d.buffers[0].halo_after);
    (void)spipe_plan_print(plan, stdout);
}

static int is_sound(const scene_t *s, const spipe_plan_t *plan, double memory) {
    size_t least = 1, most;
    int i;
    for (i = 0; i < s->d.num_buffers; ++i) {
        if (least < s->d.buffers[i].halo_before) least = s->d.buffers[i].halo_before;
        if (least < s->d.buffers[i].halo_after) least = s->d.buffers[i].halo_after;
    }
    most = s->d.count > least ? s->d.count : least;
    if (plan->chunk < least || plan->chunk > most) return 0;
    if (plan->depth < 1 || plan->depth > SPIPE_MAX_DEPTH) return 0;
    if (plan->fill_threads > SPIPE_MAX_THREADS || plan->drain_threads > SPIPE_MAX_THREADS) return 0;
    if (plan->host_threads > SPIPE_MAX_THREADS || plan->found != 0) return 0;
    if (!plan->why_chunk || !plan->why_staging || plan->count != s->d.count) return 0;
    return slot_bytes(s, plan) <= 0.25 * memory || plan->chunk == least;
}

static void test_sound(double memory) {
    int k, sound = 1, same = 1;
    pipe_seed = 1u;
    for (k = 0; k < 1000 && sound && same; ++k) {
        const scene_t s = odd_scene();
        const spipe_plan_t plan = plan_of(&s), again = plan_of(&s);
        same = plan.chunk == again.chunk && plan.depth == again.depth &&
               plan.fill_threads == again.fill_threads && plan.staging == again.staging &&
               plan.schedule == again.schedule && plan.why_chunk == again.why_chunk;
        sound = is_sound(&s, &plan, memory);
        if (!sound || !same) tell("the first that is wrong", &s, &plan);
    }
    tap_ok(sound, "of 1000 odd descriptions each has a plan that can be, and says why; its slots "
                  "take a quarter of the device's memory at most");
    tap_ok(same, "planning again gives the same");
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
    if (what == FIX_SCHEDULE) d->schedule = (spipe_schedule_t)(1 + pipe_random() % 3);
    if (what == FIX_STAGING) d->staging = (spipe_staging_t)(1 + pipe_random() % 3);
}

static int is_kept(const scene_t *s, const spipe_plan_t *plan) {
    const spipe_desc_t *d = &s->d;
    const size_t chunks = (d->count - 1) / plan->chunk + 1;
    const int staged = !s->pinned && plan->staging == SPIPE_STAGING_COPY;
    int kept = d->chunk == SPIPE_AUTO || plan->chunk == d->chunk;
    if (d->depth != SPIPE_AUTO && d->schedule != SPIPE_SCHEDULE_SERIAL) {
        kept &= plan->depth == d->depth || (plan->depth == chunks && chunks < d->depth);
    }
    if (d->schedule == SPIPE_SCHEDULE_SERIAL) kept &= plan->depth == 1;
    if (d->schedule != SPIPE_SCHEDULE_AUTO) kept &= plan->schedule == d->schedule;
    if (!s->pinned && d->staging != SPIPE_STAGING_AUTO) kept &= plan->staging == d->staging;
    if (d->threads != SPIPE_AUTO && staged) {
        const size_t most = d->threads < plan->depth ? d->threads : plan->depth;
        kept &= plan->fill_threads == most && plan->drain_threads == most;
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
            scene_t s = random_scene((int)(pipe_random() % 2), (int)(pipe_random() % 2));
            spipe_plan_t plan;
            int j;
            for (j = 0; j < NUM_FIXES; ++j) {
                if (what == NUM_FIXES ? pipe_random() % 2 : what == j) fix(&s.d, j);
            }
            plan = plan_of(&s);
            good = is_kept(&s, &plan);
            if (!good) tell("not as asked", &s, &plan);
        }
        tap_ok(good, "%s: what the user fixed is so",
               what == NUM_FIXES ? "any of these" : names[what]);
    }
}

/* Who fixes the chunk that the library takes by itself changes nothing else. */
static void test_own_chunk(void) {
    int k, good = 1;
    pipe_seed = 29u;
    for (k = 0; k < 500 && good; ++k) {
        scene_t s = random_scene(0, k % 2);
        const spipe_plan_t plan = plan_of(&s);
        spipe_plan_t fixed;
        if (plan.staging != SPIPE_STAGING_COPY) continue;
        s.d.chunk = plan.chunk;
        fixed = plan_of(&s);
        good = fixed.depth == plan.depth && fixed.fill_threads == plan.fill_threads &&
               fixed.drain_threads == plan.drain_threads && fixed.staging == plan.staging;
        if (!good) tell("chosen", &s, &plan);
        if (!good) tell("with its chunk fixed", &s, &fixed);
    }
    tap_ok(good, "with its own chunk fixed a staged plan has the same threads and slots");
}

/* ---- More data ------------------------------------------------------------------------------- */

/* Chunks of one length divide the whole, so they are up to a chunk's share smaller than the rule
   says. */
static void test_more_data(int pinned) {
    int k, good = 1, compared = 0;
    pipe_seed = 5u;
    for (k = 0; k < 2000 && good; ++k) {
        scene_t less = random_scene(pinned, k % 2), more;
        spipe_plan_t a, b;
        size_t chunks;
        scene_count(&less, random_scale(1e4, pinned ? 4e6 : 1e9));
        more = less;
        scene_count(&more, (double)less.d.count * less.element * random_scale(1.1, 64.0));
        a = plan_of(&less);
        b = plan_of(&more);
        if (a.schedule != b.schedule || a.staging != b.staging || a.chunk >= less.d.count) continue;
        chunks = (less.d.count - 1) / a.chunk + 1;
        ++compared;
        good = (double)b.chunk * (1.0 + 1.0 / (double)chunks) + 64.0 >= (double)a.chunk;
        good &= b.fill_threads + b.drain_threads >= a.fill_threads + a.drain_threads;
        if (!good) tell("less", &less, &a);
        if (!good) tell("more", &more, &b);
    }
    tap_ok(good && compared > 200,
           "%s: more data makes neither chunks smaller nor threads fewer (%d pairs)",
           pinned ? "pinned" : "pageable", compared);
}

/* A split source's work takes a time that nobody knows: each thread has several chunks. */
static void test_split(void) {
    int k, good = 1;
    pipe_seed = 31u;
    for (k = 0; k < 200 && good; ++k) {
        scene_t s = random_scene(0, 1);
        spipe_plan_t plan;
        s.d.num_buffers = 0;
        spipe_add_split_source(&s.d, no_source, no_work, NULL, 8, 1000);
        s.d.count = 1 + (size_t)random_scale(1e2, 1e6);
        s.d.threads = 1 + pipe_random() % 8;
        plan = plan_of(&s);
        good = plan.chunk == 1 || (s.d.count - 1) / plan.chunk + 1 >= 2 * s.d.threads;
        if (!good) tell("too few chunks", &s, &plan);
    }
    tap_ok(good, "a split source has two chunks for each thread, or more");
}

/* What the guess does without set-up, by kind: the same plan, kept or on resources. */
static void test_once(void) {
    scene_t s = random_scene(0, 0);
    spipe_plan_t small, large, kept;
    scene_count(&s, 1e5);
    small = plan_of(&s);
    scene_count(&s, 1e9);
    large = plan_of(&s);
    s.kept = 1;
    scene_count(&s, 1e5);
    kept = plan_of(&s);
    tap_ok(small.staging == SPIPE_STAGING_DIRECT && large.staging == SPIPE_STAGING_COPY,
           "a single run leaves little pageable memory to CUDA, and stages much");
    tap_ok(kept.staging == SPIPE_STAGING_COPY, "a kept pipeline, which is set up once, stages it");
}

int main(void) {
    struct cudaDeviceProp properties;
    SPIPE_CHECK(cudaGetDeviceProperties(&properties, 0));
    if (properties.pageableMemoryAccessUsesHostPageTables) {
        tap_skip_all("this GPU would read the arrays, which are not there");
    }
    SPIPE_CHECK(spipe_pinned_alloc((void **)&pinned_at, (size_t)3 * MOST_PINNED));
    test_sound((double)properties.totalGlobalMem);
    test_fixed();
    test_own_chunk();
    test_more_data(0);
    test_more_data(1);
    test_split();
    test_once();
    SPIPE_CHECK(spipe_pinned_free(pinned_at));
    return tap_done();
}
