/*  test_devices_shares.cu -- several GPUs of different speed: each does the share that its speed
    allows, by the modelled clock; and whichever CUDA call fails on one of them, the result is whole
    or the run says what is.

    hostcuda's threads run as the system lets them, so which GPU asks first would be chance. Here
    they ask in the order of their modelled clocks (see gate_queue), as GPUs do in time. */
#include "hostcuda.h"
#include "pipe_common.h"
#include "streampipe_devices.h"

#include <condition_variable>
#include <mutex>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
/* A stream whose destroying was made to fail keeps its thread: that is hostcuda's, and asked for.
 */
extern "C" const char *__tsan_default_options() { return "report_thread_leaks=0"; }
#endif

/* Instrumented, the same is ten times as long: then some of it does. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum {
    MIB = 6
};
#else
enum {
    MIB = 24
};
#endif

/* ---- In the order of modelled time ---------------------------------------------------------- */
static const double never = 1e300;

static struct gate {
    std::mutex lock;
    std::condition_variable changed;
    double at[SPIPE_MAX_DEVICES]; /* when each asks, in modelled ns */
    double latest;                /* of the first questions */
    int num, num_there;
} gate;

static void gate_open(int num) {
    gate.num = num;
    gate.latest = 0.0;
    gate.num_there = 0;
    for (double &at : gate.at) at = -1.0; /* has not asked yet */
}

static int gate_is_first(int place) {
    for (int i = 0; i < gate.num; ++i) {
        if (gate.at[i] < gate.at[place] || (gate.at[i] == gate.at[place] && i < place)) return 0;
    }
    return 1;
}

static void gate_queue(int place, int last) {
    std::unique_lock<std::mutex> held(gate.lock);
    double now = hostcuda_now_ns();
    if (gate.at[place] < 0.0) { /* set up at different times, by clocks that no lock joins */
        gate.at[place] = 0.0;
        if (now > gate.latest) gate.latest = now;
        ++gate.num_there;
        gate.changed.notify_all();
        while (gate.num_there < gate.num) gate.changed.wait(held);
        hostcuda_host_work(gate.latest - now);
        now = gate.latest;
    }
    gate.at[place] = last ? never : now;
    gate.changed.notify_all();
    while (!last && !gate_is_first(place)) gate.changed.wait(held);
}

/* Runs on several GPUs whose requests for chunks go through the gate. */
static const spipe_priv_hooks_t *gated_hooks(void) {
    static spipe_priv_hooks_t hooks;
    hooks = *spipe_priv_devices_hooks();
    hooks.turn = gate_queue;
    return &hooks;
}

/* ---- Shares --------------------------------------------------------------------------------- */
static void set_speeds(const double *speeds, int num) {
    for (int i = 0; i < num; ++i) {
        hostcuda_profile_t p = hostcuda_profile("h200");
        p.h2d *= speeds[i] / 16.0; /* so that 64 KiB take as long as 1 MiB does */
        p.d2h *= speeds[i] / 16.0;
        SPIPE_CHECK(hostcuda_set_profile(i, &p));
    }
}

/* Modelled seconds from the first copy to the last, of the GPU that takes longest. */
static double modelled_span(void) {
    static hostcuda_op_t ops[40000];
    const size_t n = hostcuda_trace(ops, 40000);
    double begin[SPIPE_MAX_DEVICES], end[SPIPE_MAX_DEVICES], span = 0.0;
    for (int i = 0; i < SPIPE_MAX_DEVICES; ++i) begin[i] = end[i] = -1.0;
    for (size_t i = 0; i < n && i < 40000; ++i) {
        const int on = ops[i].device;
        if (ops[i].kind != HOSTCUDA_H2D && ops[i].kind != HOSTCUDA_D2H) continue;
        if (begin[on] < 0.0 || ops[i].start_ns < begin[on]) begin[on] = ops[i].start_ns;
        if (ops[i].end_ns > end[on]) end[on] = ops[i].end_ns;
        if (end[on] - begin[on] > span) span = end[on] - begin[on];
    }
    return span * 1e-9;
}

static double run_shared(pipe_array_t x, pipe_array_t y, size_t chunk, int num, spipe_report_t *r) {
    static const int list[4] = {0, 1, 2, 3};
    pipe_mix_args_t args = {0, 1, 64};
    spipe_desc_t d = spipe_desc_default();
    d.count = x.bytes / 64;
    d.chunk = chunk;
    spipe_add_input(&d, x.at, 64);
    spipe_add_output(&d, y.at, 64);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    spipe_devices_list(&d, list, num);
    d.hooks = gated_hooks();
    gate_open(num);
    pipe_poison(y);
    hostcuda_clock_reset();
    hostcuda_trace_start();
    SPIPE_CHECK_RUN(&d, r);
    return modelled_span();
}

/* n GPUs of these speeds against the time that the first one takes alone. */
static void test_share(const char *name, const double *speeds, int num, size_t chunk,
                       double allowed) {
    pipe_array_t x = pipe_array_new((size_t)MIB << 20, PIPE_PINNED);
    pipe_array_t y = pipe_array_new((size_t)MIB << 20, PIPE_PINNED);
    double sum = 0.0, alone, ideal;
    spipe_report_t r;
    spipe_desc_t d = spipe_desc_default();
    pipe_mix_args_t args = {0, 1, 64};
    set_speeds(speeds, num);
    pipe_randomise(x);
    d.count = x.bytes / 64;
    spipe_add_input(&d, x.at, 64);
    spipe_add_output(&d, y.at, 64);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    d.chunk = chunk;
    d.depth = 4; /* as on several */
    hostcuda_clock_reset();
    hostcuda_trace_start();
    SPIPE_CHECK_RUN(&d, &r);
    alone = modelled_span();
    for (int i = 0; i < num; ++i) sum += speeds[i] / speeds[0];
    ideal = alone / sum;
    const double span = run_shared(x, y, chunk, num, &r);
    int good = 1;
    for (size_t i = 0; i < y.bytes; ++i) good &= y.at[i] == pipe_mix(x.at[i], i);
    tap_ok(good && span <= ideal * allowed, "%s: %.3f ms in all against %.3f ideal, modelled: %.3f",
           name, 1e3 * span, 1e3 * ideal, span / ideal);
    tap_note("%zu elements a chunk, %zu %zu %zu chunks", r.chunk, r.device_chunks[0],
             r.device_chunks[1], num > 2 ? r.device_chunks[2] : 0);
    pipe_free(&x);
    pipe_free(&y);
}

/* ---- Failures ------------------------------------------------------------------------------- */
enum {
    N = 1500,
    CHUNK = 100
};

typedef struct world {
    pipe_array_t x, y;
    pipe_mix_args_t args;
    size_t given, taken;
    int wrong;
} world_t;

static cudaError_t source(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    world_t *w = (world_t *)user;
    const size_t left = N - w->given;
    *count = left < max_count ? left : max_count;
    memcpy(dst, w->x.at + w->given, *count);
    w->given += *count;
    return cudaSuccess;
}

static cudaError_t sink(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    world_t *w = (world_t *)user;
    w->wrong |= first != w->taken;
    memcpy(w->y.at + first, src, count);
    w->taken += count;
    return cudaSuccess;
}

static cudaError_t keep_first(void *into, const void *from, size_t bytes, void *user) {
    (void)into;
    (void)from;
    (void)user;
    return bytes == 64 ? cudaSuccess : cudaErrorInvalidValue;
}

static spipe_desc_t describe(world_t *w, int what) {
    static unsigned char kept[64];
    static const int list[2] = {0, 1};
    spipe_desc_t d = spipe_desc_default();
    d.chunk = CHUNK;
    d.threads = what == 0 ? 0 : 2;
    if (what == 2) {
        spipe_add_source(&d, source, w, 1, SPIPE_IN_ORDER);
        spipe_add_sink(&d, sink, w, 1, SPIPE_IN_ORDER);
    } else {
        d.count = N;
        spipe_add_input(&d, w->x.at, 1);
        if (what == 4)
            spipe_add_sink(&d, sink, w, 1, SPIPE_IN_ORDER);
        else
            spipe_add_output(&d, w->y.at, 1);
        if (what == 3) spipe_add_resident(&d, kept, 64, SPIPE_DOWNLOAD);
    }
    spipe_add_stage(&d, "mix", pipe_mix_stage, &w->args);
    spipe_devices_list(&d, list, 2);
    spipe_devices_reduce(&d, keep_first, NULL);
    return d;
}

static int right(const world_t *w, size_t bytes) {
    for (size_t i = 0; i < bytes && i < N; ++i) {
        if (w->y.at[i] != pipe_mix(w->x.at[i], i)) return 0;
    }
    return 1;
}

static int num_alive(void) {
    for (int i = 0; i < 2; ++i) {
        SPIPE_CHECK(cudaSetDevice(i));
        (void)cudaDeviceSynchronize();
    }
    SPIPE_CHECK(cudaSetDevice(0));
    return hostcuda_leaks(NULL);
}

/* Each call of a run fails once. Which GPU makes it is chance; what must hold is not. */
static void test_each_call(int what, const char *name, int memory) {
    world_t w = {pipe_array_new(N, memory), pipe_array_new(N, memory), {0, 1, 1}, 0, 0, 0};
    long k, tried = 0, kept = 0;
    int good = 1, quiet = 0;
    const long every = tap_thorough() ? 2 : (long)tap_every(6, 31);
    pipe_randomise(w.x);
    for (k = 1; quiet < 9 && good && k < 2000; k += every) { /* how many there are differs a bit */
        const spipe_desc_t d = describe(&w, what);
        spipe_report_t r;
        const int alive = num_alive();
        w.given = w.taken = 0;
        pipe_poison(w.y);
        hostcuda_fail_clear();
        hostcuda_fail(NULL, k, cudaErrorLaunchOutOfResources);
        const cudaError_t e = spipe_run(&d, &r);
        const int fired = hostcuda_fail_fired() > 0;
        hostcuda_fail_clear();
        (void)cudaGetLastError();
        tried += fired;
        quiet = fired ? 0 : quiet + 1;
        if (e == cudaSuccess)
            good &= right(&w, N) && r.chunks_done == N / CHUNK;
        else
            good &= r.failure.message[0] != 0 && right(&w, r.failure.chunks_whole * CHUNK);
        if (what == 2 || what == 4) good &= !w.wrong && (e != cudaSuccess || w.taken == N);
        const int stuck = e != cudaSuccess || r.devices_failed || r.failure.message[0];
        const int more = num_alive() - alive;
        good &= more <= 0 || (more == 1 && stuck);
        kept += more;
        if (!good) {
            tap_note("call %ld: %s: %s; %d alive, %d before; %zu whole", k, cudaGetErrorName(e),
                     r.failure.message, hostcuda_leaks(NULL), alive, r.failure.chunks_whole);
        }
    }
    tap_ok(good && tried > 100 / every,
           "%s (%s): %ld calls failed one by one; no run leaked or lied (%ld failed frees kept "
           "theirs)",
           name, pipe_memory_names[memory], tried, kept);
    pipe_free(&w.x);
    pipe_free(&w.y);
}

static int broken_device = -1;

static cudaError_t breaking_stage(const spipe_chunk_t *c, void *user) {
    int device = -1;
    SPIPE_TRY(cudaGetDevice(&device));
    if (device == broken_device && c->index > 2) hostcuda_break_device(cudaErrorIllegalAddress);
    return pipe_mix_stage(c, user);
}

static cudaError_t refusing_stage(const spipe_chunk_t *c, void *user) {
    int device = -1;
    SPIPE_TRY(cudaGetDevice(&device));
    return device == broken_device ? cudaErrorNotSupported : pipe_mix_stage(c, user);
}

static void test_one_device_fails(void) {
    world_t w = {
        pipe_array_new(N, PIPE_PINNED), pipe_array_new(N, PIPE_PINNED), {0, 1, 1}, 0, 0, 0};
    spipe_desc_t d = describe(&w, 0);
    spipe_report_t r;
    pipe_randomise(w.x);
    pipe_poison(w.y);
    broken_device = 1;
    d.stages[0].fn = refusing_stage;
    d.hooks = gated_hooks(); /* so that both are asked */
    gate_open(2);
    cudaError_t e = spipe_run(&d, &r);
    tap_ok(e == cudaErrorNotSupported && right(&w, r.failure.chunks_whole * CHUNK) &&
               r.device_chunks[1] == 0 && r.devices_failed == SPIPE_BIT(1),
           "a stage that one GPU cannot do fails the run, and the report says which: %s",
           r.failure.message);
    pipe_poison(w.y);
    gate_open(2);
    d.stages[0].fn = breaking_stage;
    e = spipe_run(&d, &r);
    /* Which chunk that GPU has when it breaks, and how many it had that were not seen whole, is
       chance: its thread and the other GPU's run side by side. */
    tap_ok(e == cudaErrorIllegalAddress && right(&w, r.failure.chunks_whole * CHUNK) &&
               r.failure.chunks_whole < N / CHUNK && strstr(r.failure.message, "device 1"),
           "an error that ends CUDA's work there ends the run, which says what is whole: %s",
           r.failure.message);
    SPIPE_CHECK(cudaSetDevice(1));
    SPIPE_CHECK(cudaDeviceReset());
    SPIPE_CHECK(cudaSetDevice(0));
    pipe_free(&w.x);
    pipe_free(&w.y);
}

/* The GPU in question does one chunk less than so many; the others have something on their way when
   it fails, for they are held in their first chunk until then. */
static struct turn {
    std::mutex lock;
    std::condition_variable changed;
    int left, broken;
} hold;

static cudaError_t held_stage(const spipe_chunk_t *c, void *user) {
    int device = -1;
    SPIPE_TRY(cudaGetDevice(&device));
    std::unique_lock<std::mutex> held(hold.lock);
    if (device == broken_device) {
        hold.broken = 1;
        hold.changed.notify_all();
        return cudaErrorNotSupported;
    }
    while (!hold.broken) hold.changed.wait(held);
    held.unlock();
    return pipe_mix_stage(c, user);
}

static cudaError_t counting_stage(const spipe_chunk_t *c, void *user) {
    std::unique_lock<std::mutex> held(hold.lock);
    if (--hold.left == 0) hostcuda_break_device(cudaErrorIllegalAddress);
    held.unlock();
    return pipe_mix_stage(c, user);
}

/* To a sink. Whichever chunk the one that fails had, each of the others has later ones in hand. */
static void test_sink_has_whole(void) {
    static const int list[3] = {0, 1, 2};
    int good = 1, k;
    world_t w = {
        pipe_array_new(N, PIPE_PINNED), pipe_array_new(N, PIPE_PINNED), {0, 1, 1}, 0, 0, 0};
    spipe_report_t r;
    pipe_randomise(w.x);
    for (k = 0; k < 30 && good; ++k) {
        spipe_desc_t d = describe(&w, 4);
        spipe_devices_list(&d, list, 3);
        d.depth = 2; /* or two of them take all chunks before the third asks */
        d.threads = k % 2 ? 2 : 0;
        d.stages[0].fn = held_stage;
        broken_device = k % 3;
        hold.broken = 0;
        w.taken = 0;
        pipe_poison(w.y);
        good = spipe_run(&d, &r) == cudaErrorNotSupported && !w.wrong &&
               w.taken == r.failure.chunks_whole * CHUNK && right(&w, w.taken) &&
               r.devices_failed == SPIPE_BIT(k % 3) && r.device_chunks[k % 3] == 0 &&
               r.failure.chunk == r.failure.chunks_whole;
    }
    tap_ok(good,
           "a GPU fails while others have chunks for a sink in hand: it gets what is before: "
           "%s",
           r.failure.message);
    pipe_free(&w.x);
    pipe_free(&w.y);
}

static void test_sink_ends(void) {
    int good = 1, k;
    world_t w = {pipe_array_new(N, PIPE_PAGEABLE),
                 pipe_array_new(N, PIPE_PAGEABLE),
                 {0, 1, 1},
                 0,
                 0,
                 0}; /* a reset ends what is pinned */
    spipe_report_t r;
    pipe_randomise(w.x);
    for (k = 1; k < N / CHUNK && good; ++k) {
        spipe_desc_t d = describe(&w, 4);
        d.stages[0].fn = counting_stage;
        hold.left = k;
        w.taken = 0;
        pipe_poison(w.y);
        good = spipe_run(&d, &r) == cudaErrorIllegalAddress && right(&w, w.taken) && !w.wrong &&
               w.taken < N && r.failure.chunks_whole * CHUNK == w.taken &&
               strstr(r.failure.message, "device ");
        if (!good) {
            tap_note("launch %d: %s, %zu chunks whole, %zu elements taken, %s", k,
                     cudaGetErrorName(r.failure.error), r.failure.chunks_whole, w.taken,
                     right(&w, w.taken) ? "which are right" : "which are wrong");
        }
        for (int device = 1; device >= 0; --device) {
            SPIPE_CHECK(cudaSetDevice(device));
            SPIPE_CHECK(cudaDeviceReset());
        }
    }
    tap_ok(good,
           "an error that ends CUDA's work ends a run with a sink, which has had what is "
           "whole: %s",
           r.failure.message);
    pipe_free(&w.x);
    pipe_free(&w.y);
}

static cudaError_t late_stage(const spipe_chunk_t *c, void *user) {
    if (c->index == N / CHUNK - 2) hostcuda_fail_async("kernel", 1, cudaErrorIllegalAddress);
    return pipe_mix_stage(c, user);
}

/* An error so late that a GPU may have asked for a chunk beyond the end: the range that the failure
   names is one of chunks that there are. */
static void test_range_ends(void) {
    world_t w = {
        pipe_array_new(N, PIPE_PINNED), pipe_array_new(N, PIPE_PINNED), {0, 1, 1}, 0, 0, 0};
    spipe_desc_t d = describe(&w, 0);
    spipe_report_t r;
    size_t from = SIZE_MAX, to = 0;
    pipe_randomise(w.x);
    d.stages[0].fn = late_stage;
    const cudaError_t e = spipe_run(&d, &r);
    const char *range = strstr(r.failure.message, "in one of the chunks ");
    tap_ok(e == cudaErrorIllegalAddress &&
               (!range || sscanf(range, "in one of the chunks %zu to %zu", &from, &to) == 2) &&
               (!range || (from <= to && to < N / CHUNK)),
           "an error in the last but one of %d chunks: %s", (int)(N / CHUNK), r.failure.message);
    for (int device = 1; device >= 0; --device) {
        SPIPE_CHECK(cudaSetDevice(device));
        SPIPE_CHECK(cudaDeviceReset());
    }
    pipe_free(&w.x);
    pipe_free(&w.y);
}

int main(void) {
    const double equal[4] = {1.0, 1.0, 1.0, 1.0}, half[2] = {1.0, 0.5};
    const double odd[3] = {1.0, 0.3, 0.6};
    const size_t small = 1024; /* elements of 64 bytes */
    SPIPE_CHECK(hostcuda_set_devices(4));
    if (MIB == 24) test_share("two equal GPUs", equal, 2, small, 1.05);
    if (MIB == 24) test_share("four equal GPUs", equal, 4, small, 1.05);
    test_share("one half as fast", half, 2, small, 1.05);
    if (MIB == 24) test_share("one half as fast, 96 chunks", half, 2, 4 * small, 1.05);
    /* The modelled clock is one for all devices: a piece may begin late, as another's ends. */
    if (MIB == 24) test_share("three of different speed", odd, 3, small, 1.10);
    test_each_call(0, "arrays, no threads", PIPE_PINNED);
    test_each_call(1, "arrays, threads", PIPE_PAGEABLE);
    test_each_call(2, "source and sink", PIPE_PAGEABLE);
    test_each_call(3, "a resident buffer reduced", PIPE_PINNED);
    test_each_call(4, "array and sink", PIPE_PAGEABLE);
    test_one_device_fails();
    test_sink_has_whole();
    test_sink_ends();
    test_range_ends();
    (void)tap_done();
    fflush(stdout);
    _exit(tap_failed != 0); /* what failed frees kept is no leak of ours */
}
