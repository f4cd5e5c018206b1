/*  test_split_source.cu -- split sources: next gives the tickets of all elements once, in
    order, one call at a time; work gets each element's own ticket, on all threads at once; the
    end may be unknown; a failure names the first chunk that failed, and all before it are
    whole. */
#include "pipe_common.h"
#include "streampipe_devices.h"

#include <atomic>
#include <stdexcept>
#include <string>

enum {
    MOST = 3000,
    SIZE = 20, /* bytes of an element */
    NEVER = MOST + 1
};

typedef struct ticket {
    unsigned item;
    unsigned short salt;
} ticket_t;

/* What the functions see and do. Chunks that fail do so in the opposite order, where they can. */
typedef struct world {
    size_t count, given;
    size_t at_most; /* tickets that next gives at once; 0 = all that are asked for */
    std::atomic<int> in_next, in_work, most_in_work, mistakes;
    std::atomic<int> worked[MOST]; /* times that an element was made */
    int wanted;                    /* calls of work that must be inside at once */
    size_t next_bad, bad[2];       /* elements that fail: of next, of work */
    std::atomic<int> later_failed;
    int throws;
    unsigned char out[MOST * SIZE];
} world_t;

static world_t world;

static ticket_t ticket_of(size_t at) {
    ticket_t t;
    t.item = (unsigned)(at * 7919u % 100003u);
    t.salt = (unsigned short)(at * at);
    return t;
}

static unsigned char byte_of(const ticket_t *t, size_t k) {
    return (unsigned char)(t->item * 13u + t->salt + k * 31u);
}

static world_t *world_new(size_t count) {
    world_t *w = &world;
    size_t i;
    w->count = count;
    w->given = w->at_most = 0;
    w->in_next = w->in_work = w->most_in_work = w->mistakes = w->later_failed = 0;
    w->wanted = w->throws = 0;
    w->next_bad = w->bad[0] = w->bad[1] = NEVER;
    for (i = 0; i < MOST; ++i) w->worked[i] = 0;
    memset(w->out, 0xEE, sizeof w->out);
    return w;
}

static cudaError_t next(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    world_t *w = (world_t *)user;
    ticket_t *t = (ticket_t *)dst;
    size_t n = w->count - w->given, i;
    w->mistakes += w->in_next++ != 0 || max_count == 0;
    if (n > max_count) n = max_count;
    if (w->at_most > 0 && n > w->at_most) n = w->at_most;
    for (i = 0; i < n; ++i) t[i] = ticket_of(w->given + i);
    if (w->next_bad < w->given + n) {
        --w->in_next;
        if (w->throws) throw std::runtime_error("no list");
        return cudaErrorOperatingSystem;
    }
    w->given += n;
    *count = n;
    --w->in_next;
    return cudaSuccess;
}

/* Until what must come has come, 10 s at most. */
template <typename Test>
static void await(Test there) {
    const double until = spipe_priv_seconds() + 10.0;
    while (!there() && spipe_priv_seconds() < until) spipe_priv_give_up_cpu();
}

static int holds(size_t at, size_t first, size_t count) {
    return at >= first && at - first < count;
}

static cudaError_t work(const spipe_part_t *part, const void *tickets, void *user) {
    void *dst = part->data;
    const size_t first = part->first, count = part->count;
    world_t *w = (world_t *)user;
    const ticket_t *t = (const ticket_t *)tickets;
    unsigned char *to = (unsigned char *)dst;
    const int now = ++w->in_work;
    int most = w->most_in_work, bad = 0;
    size_t i, k;
    while (now > most && !w->most_in_work.compare_exchange_weak(most, now)) continue;
    if (w->wanted > 0) await([w] { return w->most_in_work >= w->wanted; });
    w->mistakes += count == 0 || first + count > w->count;
    for (i = 0; i < count && first + i < w->count; ++i) {
        const ticket_t want = ticket_of(first + i);
        w->mistakes += t[i].item != want.item || t[i].salt != want.salt; /* the rest is padding */
        ++w->worked[first + i];
        for (k = 0; k < SIZE; ++k) to[i * SIZE + k] = byte_of(&t[i], k);
    }
    if (holds(w->bad[1], first, count)) bad = 2;
    if (holds(w->bad[0], first, count)) {
        if (w->bad[1] != NEVER) await([w] { return w->later_failed != 0; });
        bad = 1;
    }
    if (bad == 2) w->later_failed = 1;
    --w->in_work;
    if (bad && w->throws) throw std::runtime_error(bad == 1 ? "bad picture" : "bad one behind");
    return bad ? cudaErrorOperatingSystem : cudaSuccess;
}

static cudaError_t take(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    world_t *w = (world_t *)user;
    memcpy(w->out + first * SIZE, src, count * SIZE);
    return cudaSuccess;
}

static __global__ void flip_kernel(const unsigned char *x, unsigned char *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = (unsigned char)~x[i];
}

static cudaError_t flip(const spipe_chunk_t *c, void *user) {
    std::atomic<int> *fails = (std::atomic<int> *)user;
    const size_t n = c->count * SIZE;
    if (fails && c->index >= 20 && fails->exchange(0) != 0) return cudaErrorNotSupported;
    return SPIPE_LAUNCH(flip_kernel, spipe_blocks(n, 128), 128, 0, c->stream,
                        SPIPE_BUF_ROW(c, 0, const unsigned char, SIZE),
                        SPIPE_BUF_ROW(c, 1, unsigned char, SIZE), n);
}

/* Into a sink, or an array. */
static spipe_desc_t describe(world_t *w, int sink) {
    spipe_desc_t d = spipe_desc_default();
    d.count = w->count;
    spipe_add_split_source(&d, next, work, w, sizeof(ticket_t), SIZE);
    if (sink)
        spipe_add_sink(&d, take, w, SIZE, SPIPE_IN_ORDER);
    else
        spipe_add_output(&d, w->out, SIZE);
    spipe_add_stage(&d, "flip", flip, NULL);
    return d;
}

static size_t wrong_in(const world_t *w, size_t n) {
    size_t i, k, wrong = 0;
    for (i = 0; i < n; ++i) {
        const ticket_t t = ticket_of(i);
        for (k = 0; k < SIZE; ++k) wrong += w->out[i * SIZE + k] != (unsigned char)~byte_of(&t, k);
    }
    return wrong + (size_t)w->mistakes;
}

static size_t wrong_after(const world_t *w) {
    size_t i, wrong = wrong_in(w, w->count) + (w->given != w->count);
    for (i = 0; i < w->count; ++i) wrong += w->worked[i] != 1;
    return wrong;
}

static void test_runs(spipe_schedule_t schedule) {
    static const size_t counts[] = {1, 63, 64, 1000, 2999}, threads[] = {SPIPE_AUTO, 0, 1, 4};
    static const size_t chunks[] = {SPIPE_AUTO, 7, 64}, at_most[] = {0, 5}, depths[] = {1, 3};
    size_t k, wrong = 0, runs = 0;
    const size_t step = tap_every(7, 29); /* no divisor of 240: all values of everything */
    for (k = 0; k < 5 * 4 * 3 * 2 * 2; k += step) {
        world_t *w = world_new(counts[k % 5]);
        const int open_ended = k / 60 % 2;
        spipe_report_t r;
        spipe_desc_t d = describe(w, open_ended || k % 3);
        w->at_most = at_most[k / 120];
        d.schedule = schedule;
        d.chunk = chunks[k / 20 % 3];
        d.threads = threads[k / 5 % 4];
        d.checked = k % 11 == 5;
        if (k % 4 == 3) d.depth = depths[k / 4 % 2];
        if (open_ended) d.count = SPIPE_AUTO;
        const cudaError_t e = spipe_run(&d, &r);
        const size_t bad = e == cudaSuccess && r.total == w->count ? wrong_after(w) : 1;
        if (bad && !wrong) {
            tap_note("%zu elements, chunks of %zu, %s: %zu wrong, %s", w->count, d.chunk,
                     open_ended ? "until the end" : "counted", bad, r.failure.message);
        }
        wrong += bad;
        ++runs;
    }
    tap_ok(wrong == 0, "%s: %zu runs are right, each element made once, of its own ticket",
           spipe_schedule_name(schedule), runs);
}

/* An empty list, and a length of nothing. */
static void test_empty(void) {
    world_t *w = world_new(0);
    spipe_report_t r;
    spipe_desc_t d = describe(w, 1);
    d.count = SPIPE_AUTO;
    const cudaError_t e = spipe_run(&d, &r);
    tap_ok(e == cudaSuccess && r.num_chunks == 0 && w->most_in_work == 0 && w->mistakes == 0,
           "a source that has nothing: no chunk, no work");
}

static void test_kept(void) {
    world_t *w = world_new(1500);
    size_t wrong = 0, k;
    spipe_report_t r;
    spipe_pipeline_t *p;
    spipe_desc_t d = describe(w, 0);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (k = 0; k < 24; ++k) {
        (void)world_new(k < 12 ? 1500 : 90 * (k - 11));
        if (k >= 12) SPIPE_CHECK(spipe_pipeline_set_count(p, w->count));
        SPIPE_CHECK(spipe_pipeline_run(p, &r));
        const size_t bad = wrong_after(w);
        if (bad && !wrong) {
            tap_note(
                "run %zu of %zu elements, %zu given, chunks of %zu, %zu slots, %zu threads, %s: "
                "%zu wrong in the output, %d mistakes",
                k, w->count, w->given, r.chunk, r.depth, r.fill_threads,
                spipe_schedule_name(r.schedule), wrong_in(w, w->count), (int)w->mistakes);
        }
        wrong += bad;
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    tap_ok(wrong == 0, "a kept pipeline, 24 runs, other lengths: right");
}

static void test_at_once(size_t threads, spipe_schedule_t schedule) {
    world_t *w = world_new(1000);
    spipe_report_t r;
    spipe_desc_t d = describe(w, 1);
    const int n = pipe_threads() ? (int)threads : 1;
    d.chunk = 20;
    d.count = SPIPE_AUTO;
    d.threads = threads;
    d.schedule = schedule;
    w->wanted = n;
    SPIPE_CHECK(spipe_run(&d, &r));
    tap_ok(w->most_in_work >= n && w->most_in_work <= 2 * n && wrong_after(w) == 0,
           "%s, %zu threads, %zu slots: %d calls of work are under way at once",
           spipe_schedule_name(schedule), threads, r.depth, (int)w->most_in_work);
}

/* On a machine of 16 CPUs, for very little data. */
static void test_threads_chosen(void) {
    world_t *w = world_new(1000);
    int kept;
    for (kept = 0; kept < 2; ++kept) {
        spipe_desc_t d = describe(w, 1);
        spipe_priv_request_t r;
        const spipe_priv_setting_t nothing = {0, 0, 0};
        spipe_plan_t plan;
        memset((void *)&r, 0, sizeof r);
        d.chunk = 20;
        SPIPE_CHECK(spipe_priv_request_begin(&r, &d, kept, NULL));
        r.cpus = 16;
        const spipe_priv_work_t made = spipe_priv_request_work(&r);
        spipe_priv_make_plan(&r, &made, &nothing, &plan);
        tap_ok(plan.fill_threads + plan.drain_threads >= 8 && plan.depth >= plan.fill_threads + 4,
               "of 16 CPUs half work at least, for any amount: %zu and %zu threads, %zu slots",
               plan.fill_threads, plan.drain_threads, plan.depth);
    }
}

/* ---- Beside other buffers -------------------------------------------------------------------- */
static cudaError_t count_up(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    size_t *at = (size_t *)user, i;
    const size_t left = world.count - *at;
    *count = left < max_count ? left : max_count;
    for (i = 0; i < *count; ++i) ((unsigned *)dst)[i] = (unsigned)(*at + i);
    *at += *count;
    return cudaSuccess;
}

static cudaError_t numbers(const spipe_part_t *part, const void *tickets, void *user) {
    void *dst = part->data;
    const size_t first = part->first, count = part->count;
    const unsigned *t = (const unsigned *)tickets;
    size_t i;
    (void)user;
    for (i = 0; i < count; ++i) ((double *)dst)[i] = t[i] == first + i ? 0.5 * t[i] : -1.0;
    return cudaSuccess;
}

static __global__ void join_kernel(const unsigned char *x, const unsigned *a, const double *b,
                                   const unsigned *c, unsigned char *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned ok = 2.0 * b[i] == (double)a[i] && c[i] == a[i];
    for (size_t k = 0; k < SIZE; ++k) y[i * SIZE + k] = ok ? (unsigned char)~x[i * SIZE + k] : 0;
}

static cudaError_t join(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(join_kernel, spipe_blocks(c->count, 64), 64, 0, c->stream,
                        SPIPE_BUF_ROW(c, 0, const unsigned char, SIZE),
                        SPIPE_BUF(c, 2, const unsigned), SPIPE_BUF(c, 3, const double),
                        SPIPE_BUF(c, 4, const unsigned), SPIPE_BUF_ROW(c, 1, unsigned char, SIZE),
                        c->count);
}

static cudaError_t positions(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t first = part->first, count = part->count;
    size_t i;
    (void)user;
    for (i = 0; i < count; ++i) ((unsigned *)dst)[i] = (unsigned)(first + i);
    return cudaSuccess;
}

/* Another split source, one in order and a positioned one. */
static void test_mixed(size_t threads, int open_ended) {
    world_t *w = world_new(2345);
    size_t at[2] = {0, 0};
    spipe_report_t r;
    spipe_desc_t d = describe(w, 1);
    d.chunk = 50;
    d.threads = threads;
    if (open_ended) d.count = SPIPE_AUTO;
    d.stages[0].fn = join;
    spipe_add_source(&d, count_up, &at[0], sizeof(unsigned), SPIPE_IN_ORDER);
    spipe_add_split_source(&d, count_up, numbers, &at[1], sizeof(unsigned), sizeof(double));
    spipe_add_source(&d, positions, NULL, sizeof(unsigned), SPIPE_ANY_ORDER);
    const cudaError_t e = spipe_run(&d, &r);
    tap_ok(e == cudaSuccess && wrong_after(w) == 0 && at[0] == w->count && at[1] == w->count,
           "beside sources of all kinds, %zu threads%s: %s", threads,
           open_ended ? ", until the end" : "", r.failure.message);
}

/* ---- Failures -------------------------------------------------------------------------------- */
static void test_fails(spipe_schedule_t schedule, size_t threads, int in_next) {
    static const size_t bad[] = {0, 99, 100, 1234};
    const int several =
        pipe_threads() && threads >= 4 && schedule != SPIPE_SCHEDULE_SERIAL && !in_next;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    const int step = 3;
#else
    const int step = 1;
#endif
    int right = 0, k;
    for (k = 0; k < 8; k += step) {
        const size_t chunk = bad[k % 4] / 50;
        world_t *w = world_new(2000);
        spipe_report_t r;
        spipe_desc_t d = describe(w, k / 4);
        if (in_next) w->next_bad = bad[k % 4];
        if (!in_next) w->bad[0] = bad[k % 4];
        if (several) w->bad[1] = bad[k % 4] + 100;
        d.schedule = schedule;
        d.chunk = 50;
        d.threads = threads;
        const cudaError_t e = spipe_run(&d, &r);
        const int good = e == cudaErrorOperatingSystem && r.failure.chunk == chunk &&
                         r.failure.chunks_whole == chunk && wrong_in(w, chunk * 50) == 0 &&
                         strstr(r.failure.message, in_next ? "the source of buffer 0 failed at"
                                                           : "the work of split source 0 failed");
        if (!good && right * step == k) {
            tap_note("bad at %zu: chunk %zu, %zu whole: %s", bad[k % 4], r.failure.chunk,
                     r.failure.chunks_whole, r.failure.message);
        }
        right += good;
    }
    tap_ok(right * step == k, "%s, %zu threads: where %s fails the first chunk is named, %d runs",
           spipe_schedule_name(schedule), threads, in_next ? "next" : "work", right);
}

static void test_throws(int in_next) {
    world_t *w = world_new(2000);
    std::string what = "nothing";
    spipe_report_t r;
    spipe_desc_t d = describe(w, 1);
    w->throws = 1;
    d.chunk = 50;
    d.threads = 4;
    if (in_next) w->next_bad = 720;
    if (!in_next) w->bad[0] = 720;
    if (!in_next && pipe_threads()) w->bad[1] = 820;
    try {
        (void)spipe_run(&d, &r);
    } catch (const std::exception &x) {
        what = x.what();
    }
    tap_ok(what == (in_next ? "no list" : "bad picture") && r.failure.chunk == 14 &&
               r.failure.chunks_whole == 14 && strstr(r.failure.message, what.c_str()),
           "a %s that throws: %s", in_next ? "next" : "work", r.failure.message);
}

static void tap_refused(spipe_desc_t d, const char *words) {
    spipe_failure_t f;
    tap_ok(spipe_desc_check(&d, &f) == cudaErrorInvalidValue && strstr(f.message, words), "%s",
           f.message);
}

static void test_refused(void) {
    world_t *w = world_new(100);
    spipe_desc_t d = describe(w, 1);
    d.buffers[0].source = NULL;
    tap_refused(d, "its function is NULL");
    d = describe(w, 1);
    d.buffers[0].work = NULL;
    tap_refused(d, "its work is NULL");
    d = describe(w, 1);
    d.buffers[0].ticket_bytes = 0;
    tap_refused(d, "a ticket is 0 bytes");
    d = describe(w, 1);
    d.buffers[0].ticket_bytes = SIZE_MAX;
    tap_refused(d, "too many bytes");
    d = describe(w, 1);
    spipe_set_halo(&d, 0, 1, 0, SPIPE_EDGE_CLAMP);
    tap_refused(d, "it cannot have a halo");
    w->given = 0;
    d = describe(w, 1);
    d.count = 200;
    tap_ok(spipe_run(&d, NULL) == cudaErrorInvalidValue, "a list shorter than count ends the run");
}

/* ---- Several GPUs ---------------------------------------------------------------------------- */
static void test_devices(int fails) {
    static const int list[3] = {0, 0, 0};
    static std::atomic<int> failing;
    world_t *w = world_new(2500);
    spipe_report_t r;
    size_t i, never = 0;
    spipe_desc_t d = describe(w, fails < 2);
    failing = fails;
    d.stages[0].user = &failing;
    d.chunk = 30;
    spipe_devices_list(&d, list, 3);
    const cudaError_t e = spipe_run(&d, &r);
    const size_t whole = fails ? 30 * r.failure.chunks_whole : w->count;
    for (i = 0; i < w->count; ++i) never += w->worked[i] != 1 && i < whole;
    tap_ok(e == (fails ? cudaErrorNotSupported : cudaSuccess) && wrong_in(w, whole) == 0 &&
               never == 0 && w->given >= whole && whole <= w->count,
           "three GPUs%s: each ticket is given once: %s",
           fails ? ", of which one fails, so the run does" : "", r.failure.message);
}

int main(void) {
    static const spipe_schedule_t schedules[] = {SPIPE_SCHEDULE_AUTO, SPIPE_SCHEDULE_SERIAL,
                                                 SPIPE_SCHEDULE_ZERO_COPY};
    size_t s, threads;
    for (s = 0; s < 3; ++s) {
        test_runs(schedules[s]);
        for (threads = 0; threads < 9; threads += 4) {
            test_fails(schedules[s], threads, 0);
            test_fails(schedules[s], threads, 1);
        }
        if (schedules[s] == SPIPE_SCHEDULE_SERIAL) continue;
        test_at_once(1, schedules[s]);
        test_at_once(4, schedules[s]);
        test_at_once(12, schedules[s]);
    }
    test_empty();
    test_kept();
    test_threads_chosen();
    for (s = 0; s < 4; ++s) test_mixed(s < 2 ? 0 : 3, s % 2);
    test_throws(0);
    test_throws(1);
    test_refused();
    for (s = 0; s < 3; ++s) {
        test_devices((int)s);
    }
    return tap_done();
}
