/*  test_positioned.cu -- positioned sources and sinks: each element is asked for and handed out
    once, whatever the schedule, the threads, the chunk and the other buffers; several calls are
    under way at once; a failure names the first chunk that failed; all before it are whole. */
#include "pipe_common.h"
#include "streampipe_devices.h"

#include <atomic>
#include <stdexcept>
#include <string>

enum {
    MOST = 6000,
    NEVER = MOST + 1
};

/* What the functions see and do. Each element has two bytes. */
typedef struct world {
    size_t count;
    unsigned short in[MOST], out[MOST];
    std::atomic<int> given[MOST], taken[MOST];
    std::atomic<int> inside, most_inside, outside;
    size_t wait_for;             /* calls that must be inside at once, or a second must pass */
    size_t source_bad, sink_bad; /* elements from which on they fail */
    int throws;
} world_t;

static void world_new(world_t *w, size_t count) {
    size_t i;
    w->count = count;
    w->inside = w->most_inside = w->outside = 0;
    w->wait_for = 0;
    w->source_bad = w->sink_bad = NEVER;
    w->throws = 0;
    for (i = 0; i < MOST; ++i) {
        w->in[i] = (unsigned short)pipe_random();
        w->out[i] = 0xEEEE;
        w->given[i] = w->taken[i] = 0;
    }
}

static void enter(world_t *w) {
    const int now = ++w->inside;
    const double until = spipe_priv_seconds() + 1.0;
    int most = w->most_inside;
    while (now > most && !w->most_inside.compare_exchange_weak(most, now)) continue;
    while (w->most_inside < (int)w->wait_for && spipe_priv_seconds() < until) {
        spipe_priv_give_up_cpu();
    }
}

static cudaError_t give_at(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t first = part->first, count = part->count;
    world_t *w = (world_t *)user;
    size_t i;
    enter(w);
    if (count == 0 || first + count > w->count) ++w->outside;
    for (i = first; i < first + count && i < w->count; ++i) ++w->given[i];
    memcpy(dst, w->in + first, count * sizeof *w->in);
    --w->inside;
    if (first + count <= w->source_bad) return cudaSuccess;
    if (w->throws) throw std::runtime_error("no such page");
    return cudaErrorOperatingSystem;
}

static cudaError_t take_at(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    world_t *w = (world_t *)user;
    size_t i;
    enter(w);
    if (count == 0 || first + count > w->count) ++w->outside;
    for (i = first; i < first + count && i < w->count; ++i) ++w->taken[i];
    memcpy(w->out + first, src, count * sizeof *w->out);
    --w->inside;
    if (first + count <= w->sink_bad) return cudaSuccess;
    if (w->throws) throw std::runtime_error("no room");
    return cudaErrorOperatingSystem;
}

/* Each element plus its neighbours. */
static __global__ void add_kernel(const unsigned short *x, unsigned short *y, size_t n, int before,
                                  int after) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    unsigned sum = 0;
    if (i >= n) return;
    for (int k = -before; k <= after; ++k) sum += x[(ptrdiff_t)i + k];
    y[i] = (unsigned short)sum;
}

static cudaError_t add_stage(const spipe_chunk_t *c, void *user) {
    const int *halo = (const int *)user;
    return SPIPE_LAUNCH(add_kernel, spipe_blocks(c->count, 64), 64, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned short), SPIPE_BUF(c, 1, unsigned short),
                        c->count, halo[0], halo[1]);
}

static unsigned short sum_at(const world_t *w, size_t at, const int *halo) {
    unsigned sum = 0;
    ptrdiff_t k;
    for (k = -halo[0]; k <= halo[1]; ++k) {
        ptrdiff_t i = (ptrdiff_t)at + k;
        if (i < 0) i = 0;
        if (i >= (ptrdiff_t)w->count) i = (ptrdiff_t)w->count - 1;
        sum += w->in[i];
    }
    return (unsigned short)sum;
}

static spipe_desc_t describe(world_t *w, int *halo) {
    spipe_desc_t d = spipe_desc_default();
    d.count = w->count;
    spipe_add_source(&d, give_at, w, sizeof *w->in, SPIPE_ANY_ORDER);
    spipe_add_sink(&d, take_at, w, sizeof *w->out, SPIPE_ANY_ORDER);
    if (halo[0] + halo[1] > 0) {
        spipe_set_halo(&d, 0, (size_t)halo[0], (size_t)halo[1], SPIPE_EDGE_CLAMP);
    }
    spipe_add_stage(&d, "add", add_stage, halo);
    return d;
}

/* After one run: what differs from the serial result, and elements not handled exactly once. */
static size_t wrong_in(const world_t *w, const int *halo) {
    size_t i, wrong = (size_t)w->outside;
    for (i = 0; i < w->count; ++i) {
        wrong += w->out[i] != sum_at(w, i, halo) || w->taken[i] != 1;
        wrong += w->given[i] < 1 || (halo[0] + halo[1] == 0 && w->given[i] != 1);
    }
    return wrong;
}

static world_t world;

static void test_runs(spipe_schedule_t schedule) {
    static const size_t counts[] = {1, 31, 1000, 4999}, threads[] = {SPIPE_AUTO, 0, 1, 4};
    static const size_t chunks[] = {SPIPE_AUTO, 7, 64, 1000};
    size_t k, wrong = 0, runs = 0;
    const size_t step = tap_every(5, 19); /* no divisor of 192: all values of everything */
    for (k = 0; k < 4 * 4 * 4 * 3; k += step) {
        int halo[2] = {2 * (k % 3 == 1), 3 * (k % 3 > 0)};
        spipe_report_t r;
        world_new(&world, counts[k / 3 % 4]);
        if (world.count < 4) halo[0] = halo[1] = 0;
        spipe_desc_t d = describe(&world, halo);
        d.schedule = schedule;
        d.chunk = chunks[k / 12 % 4];
        d.threads = threads[k / 48];
        const cudaError_t e = spipe_run(&d, &r);
        const size_t bad = e == cudaSuccess ? wrong_in(&world, halo) : 1;
        if (bad && !wrong)
            tap_note("%zu elements, chunks of %zu: %zu wrong, %s", world.count, d.chunk, bad,
                     r.failure.message);
        wrong += bad;
        ++runs;
    }
    tap_ok(wrong == 0, "%s: %zu runs are right, each element asked for and handed out once",
           spipe_schedule_name(schedule), runs);
}

/* ---- One call over so little that nothing is pinned ------------------------------------------ */
typedef struct little {
    unsigned *in, *out;
    size_t count;                    /* elements of the whole */
    size_t bad;                      /* element at which the source fails; SIZE_MAX: none */
    std::atomic<size_t> given, most; /* elements of all calls, and of the largest one */
} little_t;

static cudaError_t little_give(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t first = part->first, count = part->count;
    little_t *w = (little_t *)user;
    memcpy(dst, w->in + first, count * sizeof *w->in);
    w->given += count;
    size_t most = w->most;
    while (count > most && !w->most.compare_exchange_weak(most, count)) continue;
    return first <= w->bad && w->bad < first + count ? cudaErrorOperatingSystem : cudaSuccess;
}

static cudaError_t little_take(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    const little_t *w = (const little_t *)user;
    memcpy(w->out + first, src, count * sizeof *w->out);
    return cudaSuccess;
}

static __global__ void little_kernel(const unsigned *x, unsigned *y, size_t n, int halo) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = 3 * x[i] + (halo ? x[(ptrdiff_t)i - 1] + x[i + 1] : 0);
}

static cudaError_t little_stage(const spipe_chunk_t *c, void *user) {
    return SPIPE_LAUNCH(little_kernel, spipe_blocks(c->count, 64), 64, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned), SPIPE_BUF(c, 1, unsigned), c->count,
                        *(const int *)user);
}

static void little_new(little_t *w, size_t count) {
    size_t i;
    w->count = count;
    w->given = w->most = 0;
    w->bad = SIZE_MAX;
    w->in = (unsigned *)malloc(2 * count * sizeof *w->in);
    if (!w->in) exit(99);
    w->out = w->in + count;
    for (i = 0; i < count; ++i) w->in[i] = (unsigned)(i * 2654435761u);
    memset(w->out, 0xEE, count * sizeof *w->out);
}

/* Little data in a single run. sink: the output, too. */
static void test_little(size_t count, int halo, int sink) {
    little_t w;
    spipe_report_t r;
    spipe_desc_t d = spipe_desc_default();
    size_t i, wrong = 0;
    little_new(&w, count);
    d.count = count;
    spipe_add_source(&d, little_give, &w, sizeof *w.in, SPIPE_ANY_ORDER);
    if (sink)
        spipe_add_sink(&d, little_take, &w, sizeof *w.out, SPIPE_ANY_ORDER);
    else
        spipe_add_output(&d, w.out, sizeof *w.out);
    if (halo) spipe_set_halo(&d, 0, 1, 1, SPIPE_EDGE_CLAMP);
    spipe_add_stage(&d, "thrice", little_stage, &halo);
    const cudaError_t e = spipe_run(&d, &r);
    for (i = 0; i < count; ++i) {
        unsigned want = 3 * w.in[i];
        if (halo) want += w.in[i - (i > 0)] + w.in[i + (i + 1 < count)];
        wrong += w.out[i] != want;
    }
    const char *how = halo ? "halo, " : "";
    const char *into = sink ? "sink" : "array";
    tap_ok(e == cudaSuccess && wrong == 0 && (halo || w.given == count) &&
               (halo || r.bytes_in == count * sizeof *w.in),
           "one call, %zu KiB, %s%s: %zu chunks, %zu wrong, at most %zu elements at once",
           count / 256, how, into, r.num_chunks, wrong, w.most.load());
    free(w.in);
}

/* A source that fails in the middle of a chunk: the elements that were asked for are named, and
   nothing from their chunk on is called whole. */
static void test_source_fails(void) {
    const size_t part = (size_t)128 << 10, count = 4 * part - 100;
    size_t k;
    for (k = 0; k < 4; ++k) {
        size_t n = 0, from = 0;
        const char *where;
        little_t w;
        int halo = 0, named;
        spipe_report_t r;
        spipe_desc_t d = spipe_desc_default();
        little_new(&w, count);
        w.bad = k < 3 ? k * part + k : count - 1;
        d.count = count;
        spipe_add_source(&d, little_give, &w, sizeof *w.in, SPIPE_ANY_ORDER);
        spipe_add_sink(&d, little_take, &w, sizeof *w.out, SPIPE_ANY_ORDER);
        spipe_add_stage(&d, "thrice", little_stage, &halo);
        const cudaError_t e = spipe_run(&d, &r);
        where = strchr(r.failure.message, '(');
        named = where && sscanf(where, "(%zu elements from %zu)", &n, &from) == 2;
        named = named && from <= w.bad && w.bad < from + n;
        tap_ok(e == cudaErrorOperatingSystem && named &&
                   r.failure.chunks_whole * r.chunk <= w.bad && w.out[count - 1] == 0xEEEEEEEE,
               "part %zu fails: %s", k, r.failure.message);
        free(w.in);
    }
}

/* Elements of more than a MiB, which are more than a chunk has otherwise. */
typedef struct large_element {
    unsigned char bytes[(1 << 20) + 4096];
} large_element_t;

static cudaError_t large_take(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    memcpy((unsigned char *)user + first, src, count);
    return cudaSuccess;
}

static cudaError_t large_give(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t first = part->first, count = part->count;
    std::atomic<size_t> *given = (std::atomic<size_t> *)user;
    size_t i;
    for (i = 0; i < count; ++i) {
        memset((unsigned char *)dst + i * sizeof(large_element_t), (int)(first + i + 1),
               sizeof(large_element_t));
    }
    *given += count;
    return cudaSuccess;
}

static __global__ void last_byte_kernel(const large_element_t *x, unsigned char *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i].bytes[sizeof x->bytes - 1];
}

static cudaError_t last_byte_stage(const spipe_chunk_t *c, void *) {
    return SPIPE_LAUNCH(last_byte_kernel, spipe_blocks(c->count, 64), 64, 0, c->stream,
                        SPIPE_BUF(c, 0, const large_element_t), SPIPE_BUF(c, 1, unsigned char),
                        c->count);
}

static void test_large_elements(void) {
    unsigned char out[5] = {0};
    std::atomic<size_t> given(0);
    spipe_report_t r;
    spipe_desc_t d = spipe_desc_default();
    d.count = 5;
    spipe_add_source(&d, large_give, &given, sizeof(large_element_t), SPIPE_ANY_ORDER);
    spipe_add_sink(&d, large_take, out, 1, SPIPE_ANY_ORDER);
    spipe_add_stage(&d, "last byte", last_byte_stage, NULL);
    const cudaError_t e = spipe_run(&d, &r);
    tap_ok(e == cudaSuccess && memcmp(out, "\1\2\3\4\5", 5) == 0 && given == 5,
           "elements of more than a MiB: %zu are given", given.load());
}

/* ---- The calling thread fills, too ---------------------------------------------------------- */
static cudaError_t take_in_order(const spipe_part_t *part, void *user) {
    (void)part;
    (void)user;
    return cudaSuccess;
}

static cudaError_t give_in_order(spipe_part_t *part, void *user) {
    const size_t max_count = part->count;
    size_t *count = &part->count;
    (void)user;
    *count = max_count;
    return cudaSuccess;
}

/* The plan on a machine with 4 CPUs; sink: entropies, say, are taken in order. */
static spipe_plan_t planned_on_few_cpus(int sink, int source, int shared) {
    spipe_priv_request_t r;
    spipe_priv_hooks_t hooks;
    const spipe_priv_setting_t nothing = {0, 0, 0};
    spipe_plan_t plan;
    memset((void *)&r, 0, sizeof r);
    memset((void *)&hooks, 0, sizeof hooks);
    r.desc = spipe_desc_default();
    r.desc.count = 1 << 10;
    spipe_add_source(&r.desc, give_at, NULL, 4096, SPIPE_ANY_ORDER);
    if (source) spipe_add_source(&r.desc, give_in_order, NULL, 4, SPIPE_IN_ORDER);
    if (sink) spipe_add_sink(&r.desc, take_in_order, NULL, 4, SPIPE_IN_ORDER);
    spipe_add_stage(&r.desc, "add", add_stage, NULL);
    hooks.next_chunk = spipe_priv_team_next;
    if (shared) r.desc.hooks = &hooks;
    SPIPE_CHECK(cudaGetDevice(&r.device));
    SPIPE_CHECK(spipe_priv_device_facts(&r.facts, r.device));
    r.cpus = 4;
    const spipe_priv_work_t w = spipe_priv_request_work(&r);
    spipe_priv_make_plan(&r, &w, &nothing, &plan);
    return plan;
}

static void test_caller_fills(void) {
    const spipe_plan_t alone = planned_on_few_cpus(0, 0, 0), sink = planned_on_few_cpus(1, 0, 0);
    tap_ok(alone.caller_helps && sink.caller_helps,
           "4 CPUs: the caller fills, also beside a sink that takes chunks in order");
    tap_ok(!planned_on_few_cpus(1, 1, 0).caller_helps && !planned_on_few_cpus(1, 0, 1).caller_helps,
           "not beside a source in order, nor a sink of several GPUs, which may wait for what it "
           "issues");
}

static void test_kept(void) {
    int halo[2] = {0, 0};
    size_t wrong = 0, k;
    spipe_pipeline_t *p;
    world_new(&world, 3000);
    spipe_desc_t d = describe(&world, halo);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (k = 0; k < 30; ++k) {
        world_new(&world, k < 20 ? 3000 : 100 * k);
        if (k >= 20) SPIPE_CHECK(spipe_pipeline_set_count(p, world.count));
        SPIPE_CHECK(spipe_pipeline_run(p, NULL));
        wrong += wrong_in(&world, halo);
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    tap_ok(wrong == 0, "a kept pipeline, 30 runs, other lengths: right");
}

/* ---- Beside other buffers -------------------------------------------------------------------- */
typedef struct in_order {
    size_t given, taken;
    unsigned short out[MOST];
} in_order_t;

static cudaError_t give(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    in_order_t *o = (in_order_t *)user;
    const size_t left = world.count - o->given;
    *count = left < max_count ? left : max_count;
    memcpy(dst, world.in + o->given, *count * sizeof *world.in);
    o->given += *count;
    return cudaSuccess;
}

static cudaError_t take(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    in_order_t *o = (in_order_t *)user;
    if (first != o->taken) return cudaErrorUnknown;
    memcpy(o->out + first, src, count * sizeof *o->out);
    o->taken += count;
    return cudaSuccess;
}

static __global__ void all_kernel(const unsigned short *a, const unsigned short *b,
                                  const unsigned short *c, unsigned short *x, unsigned short *y,
                                  unsigned short *z, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) x[i] = y[i] = z[i] = (unsigned short)(a[i] + 3 * b[i] + 5 * c[i]);
}

static cudaError_t all_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(all_kernel, spipe_blocks(c->count, 64), 64, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned short),
                        SPIPE_BUF(c, 1, const unsigned short),
                        SPIPE_BUF(c, 2, const unsigned short), SPIPE_BUF(c, 3, unsigned short),
                        SPIPE_BUF(c, 4, unsigned short), SPIPE_BUF(c, 5, unsigned short), c->count);
}

/* A positioned source, one in order, and an array or (open-ended) one more positioned source. */
static void test_mixed(int open_ended, size_t threads) {
    static in_order_t order;
    static unsigned short array[MOST], out[MOST];
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    size_t i, wrong = 0;
    world_new(&world, 2345);
    memset(&order, 0, sizeof order);
    memcpy(array, world.in, sizeof array);
    d.chunk = 100;
    d.threads = threads;
    if (!open_ended) d.count = world.count;
    spipe_add_source(&d, give_at, &world, 2, SPIPE_ANY_ORDER);
    spipe_add_source(&d, give, &order, 2, SPIPE_IN_ORDER);
    if (open_ended)
        spipe_add_source(&d, give_at, &world, 2, SPIPE_ANY_ORDER);
    else
        spipe_add_input(&d, array, 2);
    spipe_add_sink(&d, take_at, &world, 2, SPIPE_ANY_ORDER);
    spipe_add_sink(&d, take, &order, 2, SPIPE_IN_ORDER);
    if (open_ended)
        spipe_add_sink(&d, take_at, &world, 2, SPIPE_ANY_ORDER);
    else
        spipe_add_output(&d, out, 2);
    spipe_add_stage(&d, "all", all_stage, NULL);
    const cudaError_t e = spipe_run(&d, &r);
    for (i = 0; i < world.count; ++i) {
        const unsigned short want = (unsigned short)(9 * world.in[i]);
        wrong += world.out[i] != want || order.out[i] != want || (!open_ended && out[i] != want);
        wrong += world.given[i] != 1 + open_ended || world.taken[i] != 1 + open_ended;
    }
    tap_ok(e == cudaSuccess && wrong == 0 && world.outside == 0 && order.taken == world.count,
           "beside %s and a source in order, %s: %s", open_ended ? "another" : "an array",
           threads == 0 ? "no threads" : "threads", r.failure.message);
}

/* ---- At once --------------------------------------------------------------------------------- */
static void test_at_once(int sink) {
    int halo[2] = {0, 0};
    spipe_report_t r;
    world_new(&world, 4000);
    world.wait_for = 3;
    spipe_desc_t d = describe(&world, halo);
    d.chunk = 100;
    d.depth = 8;
    d.threads = 4;
    if (sink) {
        d.buffers[0].kind = SPIPE_INPUT;
        d.buffers[0].caller = NULL;
        d.buffers[0].source = NULL;
        d.buffers[0].host = world.in;
    } else {
        d.buffers[1].kind = SPIPE_OUTPUT;
        d.buffers[1].caller = NULL;
        d.buffers[1].sink = NULL;
        d.buffers[1].host = world.out;
    }
    SPIPE_CHECK(spipe_run(&d, &r));
    if (!pipe_threads())
        tap_ok(world.most_inside == 1, "without threads the calling one does it alone");
    else
        tap_ok(world.most_inside >= 3 && world.most_inside <= 5, /* the calling thread may help */
               "with four threads, three to five calls of the %s are under way at once: %d",
               sink ? "sink" : "source", (int)world.most_inside);
}

static void test_threads_chosen(void) {
    int halo[2] = {0, 0};
    spipe_plan_t plan;
    spipe_desc_t d = describe(&world, halo);
    d.count = (size_t)1 << 30;
    SPIPE_CHECK(spipe_plan(&d, 1, &plan, NULL));
    const size_t half = spipe_priv_num_cpus() / 2;
    tap_ok(plan.fill_threads + plan.drain_threads >= (half < 8 ? half : 8),
           "for 2 GiB the plan takes half of the CPUs, or 8 and more: %zu and %zu threads",
           plan.fill_threads, plan.drain_threads);
}

/* ---- Failures -------------------------------------------------------------------------------- */
static void test_fails(spipe_schedule_t schedule, int sink, size_t threads) {
    static const size_t bad[] = {0, 99, 100, 1234, 3999};
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    const int step = 3;
#else
    const int step = 1;
#endif
    int right = 0, k, halo[2] = {0, 0};
    for (k = 0; k < 5 * 4; k += step) {
        const size_t chunk = bad[k % 5] / 100;
        spipe_report_t r;
        world_new(&world, 4000);
        *(sink ? &world.sink_bad : &world.source_bad) = bad[k % 5];
        spipe_desc_t d = describe(&world, halo);
        d.schedule = schedule;
        d.chunk = 100;
        d.threads = threads;
        d.checked = k >= 15;
        const cudaError_t e = spipe_run(&d, &r);
        const int good = e == cudaErrorOperatingSystem && r.failure.chunk == chunk &&
                         r.failure.chunks_whole == chunk &&
                         strstr(r.failure.message, sink ? "the sink of buffer 1 failed at chunk"
                                                        : "the source of buffer 0 failed at chunk");
        if (!good && right * step == k) {
            tap_note("bad from %zu: chunk %zu, %zu whole: %s", bad[k % 5], r.failure.chunk,
                     r.failure.chunks_whole, r.failure.message);
        }
        right += good;
    }
    const char *many = threads == 0 ? "no" : "some";
    tap_ok(right * step == k,
           "%s, %s threads: a %s that fails in %d runs: the first chunk is named, and "
           "those before it are whole",
           spipe_schedule_name(schedule), many, sink ? "sink" : "source", right);
}

static void test_throws(int sink) {
    int halo[2] = {0, 0};
    std::string what = "nothing";
    spipe_report_t r;
    world_new(&world, 4000);
    *(sink ? &world.sink_bad : &world.source_bad) = 1500;
    world.throws = 1;
    spipe_desc_t d = describe(&world, halo);
    d.chunk = 100;
    try {
        (void)spipe_run(&d, &r);
    } catch (const std::exception &x) {
        what = x.what();
    }
    tap_ok(what == (sink ? "no room" : "no such page") && r.failure.chunk == 15 &&
               r.failure.chunks_whole == 15 && strstr(r.failure.message, what.c_str()),
           "a %s that throws: %s", sink ? "sink" : "source", r.failure.message);
}

static void test_refused(void) {
    int halo[2] = {0, 0};
    spipe_failure_t f;
    spipe_desc_t d;
    world_new(&world, 1000);
    d = describe(&world, halo);
    d.count = SPIPE_AUTO;
    tap_ok(spipe_desc_check(&d, &f) == cudaErrorInvalidValue && strstr(f.message, "count was not"),
           "no count: %s", f.message);
    d = describe(&world, halo);
    d.buffers[0].source = NULL;
    tap_ok(spipe_desc_check(&d, &f) == cudaErrorInvalidValue && strstr(f.message, "is NULL"),
           "no function: %s", f.message);
    d = describe(&world, halo);
    spipe_set_halo(&d, 1, 1, 0, SPIPE_EDGE_CLAMP);
    tap_ok(spipe_desc_check(&d, &f) == cudaErrorInvalidValue && strstr(f.message, "halo"),
           "a sink with a halo: %s", f.message);
    d = describe(&world, halo);
    d.count = SPIPE_AUTO;
    spipe_set_halo(&d, 0, 1, 0, SPIPE_EDGE_CLAMP);
    spipe_add_source(&d, give, NULL, 2, SPIPE_IN_ORDER);
    tap_ok(spipe_desc_check(&d, &f) == cudaErrorInvalidValue && strstr(f.message, "set count"),
           "a halo, and no count: %s", f.message);
}

/* ---- Several GPUs ---------------------------------------------------------------------------- */
static void test_devices(int fails) {
    static const int list[3] = {0, 0, 0};
    int halo[2] = {0, 0};
    spipe_report_t r;
    size_t wrong;
    world_new(&world, 5555);
    if (fails) world.source_bad = 3333;
    spipe_desc_t d = describe(&world, halo);
    d.chunk = 100;
    spipe_devices_list(&d, list, 3);
    const cudaError_t e = spipe_run(&d, &r);
    if (fails) {
        tap_ok(e == cudaErrorOperatingSystem &&
                   strstr(r.failure.message, "the source of buffer 0") &&
                   r.failure.chunks_whole == 33 && r.failure.chunk >= 33,
               "three GPUs, a source that fails: %zu whole, %s", r.failure.chunks_whole,
               r.failure.message);
        return;
    }
    wrong = wrong_in(&world, halo);
    tap_ok(e == cudaSuccess && wrong == 0, "three GPUs: each element once, %zu wrong: %s", wrong,
           r.failure.message);
}

int main(void) {
    static const spipe_schedule_t schedules[] = {SPIPE_SCHEDULE_AUTO, SPIPE_SCHEDULE_SERIAL,
                                                 SPIPE_SCHEDULE_ZERO_COPY};
    size_t s, threads;
    for (s = 0; s < 3; ++s) {
        test_runs(schedules[s]);
        for (threads = 0; threads < 6 && s < 2; threads += 3) {
            test_fails(schedules[s], 0, threads);
            test_fails(schedules[s], 1, threads);
        }
    }
    for (s = 200; s < 700000; s = s * 5 + 3) {
        for (threads = 0; threads < 4; ++threads) test_little(s, threads & 1, threads & 2);
    }
    test_source_fails();
    test_large_elements();
    test_kept();
    for (s = 0; s < 4; ++s) test_mixed(s & 1, s & 2);
    test_caller_fills();
    test_at_once(0);
    test_at_once(1);
    test_threads_chosen();
    test_throws(0);
    test_throws(1);
    test_refused();
    test_devices(0);
    test_devices(1);
    return tap_done();
}
