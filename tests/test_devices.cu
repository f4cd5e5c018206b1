/*  test_devices.cu -- one run on several GPUs: whichever GPU does a chunk, the result is the
    same. If there is only one GPU it is listed three times: three pipelines share it, as three
    GPUs would. */
#include "pipe_common.h"
#include "streampipe_devices.h"
#ifdef __HOSTCUDA__
#include "hostcuda.h"
#endif

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

static int devices[4] = {0, 0, 0, 0}, num_devices = 3;

static void use(spipe_desc_t *d) { spipe_devices_list(d, devices, num_devices); }

/* ---- Arrays --------------------------------------------------------------------------------- */
static size_t sum_of_chunks(const spipe_report_t *r) {
    size_t sum = 0;
    for (int i = 0; i < r->num_devices; ++i) sum += r->device_chunks[i];
    return sum;
}

/* Every byte is what the position and the input make it, and nothing behind the end was touched. */
static int is_mixed(pipe_array_t x, pipe_array_t y) {
    for (size_t i = 0; i < y.bytes; ++i) {
        if (y.at[i] != pipe_mix(x.at[i], i)) return 0;
    }
    return pipe_guard_whole(y);
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum {
    DEAR = 1
}; /* a run takes ten times as long */
#else
enum {
    DEAR = 0
};
#endif
static void test_arrays(void) {
    static const size_t counts[] = {0, 1, 2, 7, 1000, 4096, 10007};
    static const size_t chunks[] = {SPIPE_AUTO, 1, 64, 100};
    int tried = 0, good = 1;
    for (int memory = 0; memory < PIPE_NUM_MEMORIES; ++memory) {
        /* 11 has no divisor of 7, 4 or 3, and each memory begins elsewhere */
        const int step = DEAR ? 11 : 1;
        for (int k = DEAR * memory; k < 7 * 4 * 3; k += step) {
            const size_t count = counts[k % 7], chunk = chunks[k / 7 % 4];
            pipe_array_t x = pipe_array_new(count * 3, memory);
            pipe_array_t y = pipe_array_new(count * 3, memory);
            pipe_mix_args_t args = {0, 1, 3};
            spipe_report_t r;
            spipe_desc_t d = spipe_desc_default();
            if (chunk == 1 && count > 1000) { /* minutes under a sanitizer */
                pipe_free(&x);
                pipe_free(&y);
                continue;
            }
            pipe_randomise(x);
            pipe_poison(y);
            d.count = count;
            d.chunk = chunk;
            d.threads = k % 3 == 1 ? 0 : 4;
            if (k % 3 == 0) d.threads = SPIPE_AUTO;
            if (k % 5 == 4) d.schedule = SPIPE_SCHEDULE_ZERO_COPY;
            if (k % 4 == 3) d.staging = SPIPE_STAGING_REGISTER;
            spipe_add_input(&d, x.at, 3);
            spipe_add_output(&d, y.at, 3);
            spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
            use(&d);
            const cudaError_t e = spipe_run(&d, &r);
            const int ok = e == cudaSuccess && is_mixed(x, y) && r.num_devices == num_devices &&
                           sum_of_chunks(&r) == r.num_chunks && r.chunks_done == r.num_chunks &&
                           r.count_done == count && r.total == count && !r.devices_failed &&
                           r.failure.chunks_whole == r.num_chunks && !r.failure.message[0];
            if (!ok) {
                tap_note("%s, %zu elements in chunks of %zu, %s: %s", pipe_memory_names[memory],
                         count, chunk, spipe_schedule_name(d.schedule), r.failure.message);
            }
            good &= ok;
            ++tried;
            pipe_free(&x);
            pipe_free(&y);
        }
    }
    tap_ok(good && tried > (DEAR ? 16 : 200),
           "%d runs over arrays, whatever memory, lengths, schedule: right", tried);
}

static __global__ void window_kernel(const unsigned char *x, unsigned char *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = (unsigned char)(x[(ptrdiff_t)i - 2] + 3 * x[i] + 5 * x[i + 1]);
}

static cudaError_t window_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(window_kernel, spipe_blocks(c->count, 256), 256, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned char), SPIPE_BUF(c, 1, unsigned char),
                        c->count);
}

static void test_halo(int memory) {
    const size_t n = 5003;
    pipe_array_t x = pipe_array_new(n, memory), y = pipe_array_new(n, memory);
    spipe_report_t r;
    spipe_desc_t d = spipe_desc_default();
    int good = 1;
    pipe_randomise(x);
    pipe_poison(y);
    d.count = n;
    d.chunk = 97;
    spipe_set_halo(&d, spipe_add_input(&d, x.at, 1), 2, 1, SPIPE_EDGE_CLAMP);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "window", window_stage, NULL);
    use(&d);
    const cudaError_t e = spipe_run(&d, &r);
    for (size_t i = 0; i < n; ++i) {
        const unsigned char a = x.at[i < 2 ? 0 : i - 2];
        const unsigned char b = x.at[i + 1 < n ? i + 1 : n - 1];
        good &= y.at[i] == (unsigned char)(a + 3 * x.at[i] + 5 * b);
    }
    tap_ok(e == cudaSuccess && good && pipe_guard_whole(y),
           "neighbours that another GPU has are there, too (%s)", pipe_memory_names[memory]);
    pipe_free(&x);
    pipe_free(&y);
}

/* Chunks that the library chooses for a few elements are never smaller than the halo. */
static void test_wide_halo(void) {
    static const size_t counts[] = {300, 302, 399, 501, 1000, 4999};
    static unsigned char x[5000], y[5000];
    int tried = 0, good = 1;
    const int step = DEAR ? 7 : 1; /* each count, staging, schedule */
    for (int k = 0; k < 6 * 4 * 4; k += step) {
        spipe_report_t r;
        spipe_desc_t d = spipe_desc_default();
        d.count = counts[k % 6];
        d.staging = (spipe_staging_t)(k / 6 % 4);
        if (k / 24 > 0) d.schedule = (spipe_schedule_t)(SPIPE_SCHEDULE_ENGINES + k / 24 % 3);
        for (size_t i = 0; i < sizeof x; ++i) x[i] = (unsigned char)(i * i / 7);
        memset(y, 0xEE, sizeof y);
        spipe_set_halo(&d, spipe_add_input(&d, x, 1), 300, 200, SPIPE_EDGE_CLAMP);
        spipe_add_output(&d, y, 1);
        spipe_add_stage(&d, "window", window_stage, NULL);
        use(&d);
        int ok = spipe_run(&d, &r) == cudaSuccess && r.chunk >= 300;
        for (size_t i = 0; i < d.count; ++i) {
            const unsigned char a = x[i < 2 ? 0 : i - 2];
            const unsigned char b = x[i + 1 < d.count ? i + 1 : i];
            ok &= y[i] == (unsigned char)(a + 3 * x[i] + 5 * b);
        }
        ok &= y[d.count] == 0xEE;
        if (!ok) {
            tap_note("%zu elements, staging %d, %s: chunks of %zu: %s", d.count, (int)d.staging,
                     spipe_schedule_name(d.schedule), r.chunk, r.failure.message);
        }
        good &= ok;
        ++tried;
    }
    tap_ok(good && tried == (DEAR ? 14 : 96),
           "%d runs whose halo is wider than a GPU's share: right", tried);
}

static void test_in_place(void) {
    const size_t n = 20000;
    pipe_array_t x = pipe_array_new(n, PIPE_PAGEABLE), y = pipe_array_new(n, PIPE_PAGEABLE);
    pipe_mix_args_t args = {0, 0, 1};
    spipe_report_t r;
    spipe_desc_t d = spipe_desc_default();
    pipe_randomise(x);
    pipe_poison(y);
    memcpy(y.at, x.at, n);
    d.count = n;
    d.chunk = 333;
    spipe_add_inout(&d, y.at, 1);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    use(&d);
    tap_ok(spipe_run(&d, &r) == cudaSuccess && is_mixed(x, y),
           "an in/out array is changed once, by one GPU or another");
    pipe_free(&x);
    pipe_free(&y);
}

static void test_one_and_all(void) {
    const size_t n = 5000;
    int there = 0, before = -1, after = -2;
    pipe_array_t x = pipe_array_new(n, PIPE_PAGEABLE), y = pipe_array_new(n, PIPE_PAGEABLE);
    pipe_mix_args_t args = {0, 1, 1};
    spipe_report_t r;
    spipe_desc_t d = spipe_desc_default();
    SPIPE_CHECK(cudaGetDeviceCount(&there));
    SPIPE_CHECK(cudaGetDevice(&before));
    const int last = there - 1;
    pipe_randomise(x);
    pipe_poison(y);
    d.count = n;
    d.chunk = 64;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_stage_ordered(&d, spipe_add_stage(&d, "mix", pipe_mix_stage, &args));
    spipe_devices_list(&d, &last, 1);
    tap_ok(spipe_run(&d, &r) == cudaSuccess && is_mixed(x, y) && r.num_devices == 1 &&
               r.device_numbers[0] == last && r.device_chunks[0] == r.num_chunks,
           "a list of one GPU is a plain run there, ordered stages and all");
    d.stages[0].ordered = 0;
    pipe_poison(y);
    spipe_devices_all(&d);
    tap_ok(spipe_run(&d, &r) == cudaSuccess && is_mixed(x, y) && r.num_devices == there &&
               sum_of_chunks(&r) == r.num_chunks,
           "all GPUs are all that there are: %d", there);
    SPIPE_CHECK(cudaGetDevice(&after));
    tap_ok(before == after, "the current device is as it was");
    FILE *f = tmpfile();
    char text[4096] = "";
    if (f && spipe_report_print(&r, f) == cudaSuccess) {
        rewind(f);
        text[fread(text, 1, sizeof text - 1, f)] = 0;
    }
    if (f) fclose(f);
    tap_ok(strstr(text, "device 0 ") != NULL, "the report prints what each GPU did");
    pipe_free(&x);
    pipe_free(&y);
}

/* ---- Sources and sinks ---------------------------------------------------------------------- */
typedef struct flow {
    pipe_array_t x, y, z;
    size_t given, taken, taken_2, most, fail_at;
    size_t refused; /* the first sink fails there */
    std::atomic<int> refusals;
    size_t held;  /* the second sink is there until the first has failed, or for a time */
    int by_turns; /* GPUs take chunks by turns, as long as all do */
    std::atomic<int> inside, twice, wrong;
} flow_t;

static cudaError_t flow_source(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    flow_t *w = (flow_t *)user;
    const size_t left = w->x.bytes - w->given, n = left < w->most ? left : w->most;
    if (w->inside++ > 0) w->twice = 1;
    *count = n < max_count ? n : max_count;
    memcpy(dst, w->x.at + w->given, *count);
    w->given += *count;
    w->inside--;
    return w->given > w->fail_at ? cudaErrorOperatingSystem : cudaSuccess;
}

static cudaError_t flow_sink(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    flow_t *w = (flow_t *)user;
    if (first != w->taken) w->wrong = 1;
    if (first == w->refused && ++w->refusals > 0) return cudaErrorOperatingSystem;
    memcpy(w->y.at + first, src, count);
    w->taken += count;
    return cudaSuccess;
}

static cudaError_t flow_sink_2(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    flow_t *w = (flow_t *)user;
    if (first != w->taken_2) w->wrong = 1;
    for (int ms = 0; first == w->held && w->refusals == 0 && ms < 100; ++ms) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (first == w->held) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    memcpy(w->z.at + first, src, count);
    w->taken_2 += count;
    return cudaSuccess;
}

/* Lets the GPUs ask for chunks by turns, until the first has none any more. */
static struct turns {
    std::mutex lock;
    std::condition_variable changed;
    int next, over;
} turns;

static void take_turn(int place, int last) {
    std::unique_lock<std::mutex> held(turns.lock);
    while (!last && !turns.over && turns.next != place) turns.changed.wait(held);
    turns.next = (place + 1) % num_devices;
    turns.over |= last;
    turns.changed.notify_all();
}

static const spipe_priv_hooks_t *hooks_by_turns(void) {
    static spipe_priv_hooks_t hooks;
    hooks = *spipe_priv_devices_hooks();
    hooks.turn = take_turn;
    turns.next = turns.over = 0;
    return &hooks;
}

static void flow_new(flow_t *w, size_t n, size_t most) {
    w->x = pipe_array_new(n, PIPE_PAGEABLE);
    w->y = pipe_array_new(n, PIPE_PAGEABLE);
    w->z = pipe_array_new(n, PIPE_PAGEABLE);
    w->given = w->taken = w->taken_2 = 0;
    w->most = most;
    w->fail_at = w->refused = w->held = SIZE_MAX;
    w->refusals = w->by_turns = 0;
    w->inside = w->twice = w->wrong = 0;
    pipe_randomise(w->x);
    pipe_poison(w->y);
    pipe_poison(w->z);
}

static void flow_free(flow_t *w) {
    pipe_free(&w->x);
    pipe_free(&w->y);
    pipe_free(&w->z);
}

static cudaError_t flow_run(flow_t *w, size_t count, size_t chunk, size_t threads,
                            spipe_report_t *r) {
    pipe_mix_args_t args = {0, 1, 1}, more = {0, 2, 1};
    spipe_desc_t d = spipe_desc_default();
    d.count = count;
    d.chunk = chunk;
    d.threads = threads;
    spipe_add_source(&d, flow_source, w, 1, SPIPE_IN_ORDER);
    spipe_add_sink(&d, flow_sink, w, 1, SPIPE_IN_ORDER);
    spipe_add_sink(&d, flow_sink_2, w, 1, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    spipe_add_stage(&d, "again", pipe_mix_stage, &more);
    use(&d);
    return spipe_run(&d, r);
}

static void test_flows(void) {
    static const size_t counts[] = {0, 1, 64, 65, 640, 5001};
    static const size_t threads_of[] = {0, SPIPE_AUTO, 6};
    int good = 1;
    const int step = DEAR ? 5 : 1; /* each count, number of threads */
    for (int k = 0; k < 6 * 2 * 3; k += step) {
        const size_t n = counts[k % 6];
        const int known = k / 6 % 2;
        const size_t threads = threads_of[k / 12];
        flow_t w;
        spipe_report_t r;
        flow_new(&w, n, k % 2 ? 50 : SIZE_MAX);
        const cudaError_t e = flow_run(&w, known && n > 0 ? n : SPIPE_AUTO, 64, threads, &r);
        const int ok = e == cudaSuccess && is_mixed(w.x, w.y) && is_mixed(w.x, w.z) && !w.wrong &&
                       !w.twice && w.taken == n && w.taken_2 == n &&
                       r.chunks_done == (n + 63) / 64 && sum_of_chunks(&r) == r.chunks_done &&
                       r.num_chunks == r.chunks_done && r.total == n && r.count_done == n;
        if (!ok) {
            tap_note("%zu elements, %s, %zu threads: %s; %zu and %zu taken; %zu chunks, total %zu",
                     n, known ? "known" : "endless", threads, r.failure.message, w.taken, w.taken_2,
                     r.chunks_done, r.total);
        }
        good &= ok;
        flow_free(&w);
    }
    tap_ok(good, "sources are read and two sinks called in order, by one GPU at a time");
}

static void test_flow_fails(void) {
    flow_t w;
    spipe_report_t r;
    flow_new(&w, 10000, SIZE_MAX);
    w.fail_at = 3000;
    const cudaError_t e = flow_run(&w, SPIPE_AUTO, 64, SPIPE_AUTO, &r);
    const size_t whole = r.failure.chunks_whole * 64;
    int right = 1;
    for (size_t i = 0; i < whole && i < w.y.bytes; ++i) {
        right &= w.y.at[i] == pipe_mix(w.x.at[i], i);
    }
    tap_ok(e == cudaErrorOperatingSystem && right && whole == 2944 && w.taken == whole &&
               w.taken_2 == whole && w.given < 3200 && !w.wrong &&
               strstr(r.failure.message, "the source of buffer 0 failed at chunk 46"),
           "a source that fails ends the run, and what is called whole is: %s", r.failure.message);
    flow_free(&w);
}

/* ---- Resident buffers ----------------------------------------------------------------------- */
static __global__ void count_kernel(const unsigned char *x, const unsigned *weights,
                                    unsigned *counts, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&counts[x[i]], weights[x[i]]);
}

static cudaError_t count_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(count_kernel, spipe_blocks(c->count, 256), 256, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned char), SPIPE_BUF(c, 1, const unsigned),
                        SPIPE_BUF(c, 2, unsigned), c->count);
}

static cudaError_t add_counts(void *into, const void *from, size_t bytes, void *user) {
    unsigned *a = (unsigned *)into;
    const unsigned *b = (const unsigned *)from;
    for (size_t i = 0; i < bytes / sizeof *a; ++i) a[i] += b[i];
    ++*(std::atomic<int> *)user;
    return cudaSuccess;
}

static void describe_counts(spipe_desc_t *d, pipe_array_t x, unsigned *weights, unsigned *counts,
                            std::atomic<int> *calls) {
    *d = spipe_desc_default();
    d->count = x.bytes;
    d->chunk = 128;
    spipe_add_input(d, x.at, 1);
    spipe_add_resident(d, weights, 1024, SPIPE_UPLOAD);
    spipe_add_resident(d, counts, 1024, SPIPE_DOWNLOAD);
    spipe_add_stage(d, "count", count_stage, NULL);
    use(d);
    spipe_devices_reduce(d, add_counts, calls);
}

static void test_resident(void) {
    pipe_array_t x = pipe_array_new(9999, PIPE_PAGEABLE);
    unsigned weights[256], counts[256], want[256];
    std::atomic<int> calls(0);
    spipe_report_t r;
    spipe_desc_t d;
    pipe_randomise(x);
    for (int i = 0; i < 256; ++i) {
        weights[i] = (unsigned)(i % 7 + 1);
        counts[i] = want[i] = 0;
    }
    for (size_t i = 0; i < x.bytes; ++i) want[x.at[i]] += weights[x.at[i]];
    describe_counts(&d, x, weights, counts, &calls);
    d.buffers[2].resident = SPIPE_DOWNLOAD; /* from zeros */
    const cudaError_t e = spipe_run(&d, &r);
    int with_chunks = 0;
    for (int i = 0; i < num_devices; ++i) with_chunks += r.device_chunks[i] > 0;
    tap_ok(e == cudaSuccess && memcmp(counts, want, sizeof want) == 0 && calls < num_devices &&
               calls >= with_chunks - 1,
           "weights are on every GPU; counts are each one's, and become one");
    d.devices.reduce = NULL;
    tap_ok(spipe_run(&d, &r) == cudaErrorInvalidValue && strstr(r.failure.message, "buffer 2"),
           "without a function to reduce them they are refused: %s", r.failure.message);
    d = spipe_desc_default();
    tap_ok(spipe_devices_reduce(&d, NULL, NULL) == -1 && d.problem, "a NULL function is a mistake");
    pipe_free(&x);
}

/* ---- Failures ------------------------------------------------------------------------------- */
typedef struct trap { /* a stage that works until its n-th call, and fails num times */
    pipe_mix_args_t args;
    std::atomic<int> calls;
    int from, num;
    std::atomic<size_t> first_failed{SIZE_MAX}; /* of the chunks that it failed at */
} trap_t;

static cudaError_t trap_stage(const spipe_chunk_t *c, void *user) {
    trap_t *t = (trap_t *)user;
    const int call = ++t->calls;
    size_t first = t->first_failed;
    if (call < t->from || call >= t->from + t->num) return pipe_mix_stage(c, &t->args);
    while (c->index < first && !t->first_failed.compare_exchange_weak(first, c->index)) continue;
    return cudaErrorAssert;
}

static void describe_trap(spipe_desc_t *d, pipe_array_t x, pipe_array_t y, trap_t *t, int in_out) {
    *d = spipe_desc_default();
    d->count = x.bytes;
    d->chunk = 100;
    t->calls = 0;
    t->first_failed = SIZE_MAX;
    t->args.in = 0;
    t->args.out = in_out ? 0 : 1;
    t->args.elem_bytes = 1;
    if (in_out)
        spipe_add_inout(d, y.at, 1);
    else
        spipe_add_input(d, x.at, 1);
    if (!in_out) spipe_add_output(d, y.at, 1);
    spipe_add_stage(d, "trap", trap_stage, t);
    use(d);
}

static int num_bits(unsigned bits) {
    int num = 0;
    for (; bits; bits &= bits - 1) ++num;
    return num;
}

/* The report of a run in which one GPU failed once: at which chunk, and that all before it are
   whole. */
static int tells_of_trap(cudaError_t e, const trap_t *t, const spipe_report_t *r) {
    return e == cudaErrorAssert && r->failure.stage == 0 && r->failure.chunk == t->first_failed &&
           r->failure.chunks_whole == t->first_failed && num_bits(r->devices_failed) == 1 &&
           r->chunks_done >= t->first_failed && sum_of_chunks(r) == r->chunks_done &&
           strstr(r->failure.message, "'trap'") && strstr(r->failure.message, "device ");
}

static void test_gpu_fails(int memory, int in_out) {
    pipe_array_t x = pipe_array_new(20000, memory), y = pipe_array_new(20000, memory);
    trap_t t;
    spipe_report_t r;
    spipe_desc_t d;
    int good = 1;
    pipe_randomise(x);
    t.num = 1;
    for (t.from = 1; t.from <= 200 && good; t.from += DEAR ? 45 : 13) {
        describe_trap(&d, x, y, &t, in_out);
        pipe_poison(y);
        if (in_out) memcpy(y.at, x.at, x.bytes);
        good = tells_of_trap(spipe_run(&d, &r), &t, &r);
        for (size_t i = 0; i < r.failure.chunks_whole * 100; ++i) {
            good &= y.at[i] == pipe_mix(x.at[i], i);
        }
        if (!good) tap_note("failing call %d: %s", t.from, r.failure.message);
    }
    tap_ok(good, "a GPU that fails fails the run, and what is called whole is (%s%s): %s",
           pipe_memory_names[memory], in_out ? ", in/out" : "", r.failure.message);
    pipe_free(&x);
    pipe_free(&y);
}

static void test_all_fail(void) {
    pipe_array_t x = pipe_array_new(20000, PIPE_PINNED), y = pipe_array_new(20000, PIPE_PINNED);
    trap_t t;
    spipe_report_t r;
    spipe_desc_t d;
    int right = 1;
    pipe_randomise(x);
    t.from = 20;
    t.num = 1000;
    describe_trap(&d, x, y, &t, 0);
    pipe_poison(y);
    const cudaError_t e = spipe_run(&d, &r);
    for (size_t i = 0; i < r.failure.chunks_whole * 100; ++i) {
        right &= y.at[i] == pipe_mix(x.at[i], i);
    }
    tap_ok(e == cudaErrorAssert && right && r.failure.stage == 0 && r.chunks_done <= 19 &&
               r.chunks_done >= r.failure.chunks_whole && r.failure.chunks_whole == t.first_failed,
           "when all fail the first chunk that failed is where the whole ends: %s",
           r.failure.message);
    pipe_free(&x);
    pipe_free(&y);
}

/* Counts, and fails at the 31st of all calls. */
static cudaError_t count_or_fail(const spipe_chunk_t *c, void *user) {
    return ++*(std::atomic<int> *)user == 31 ? cudaErrorAssert : count_stage(c, NULL);
}

static void test_reduced_fails(void) {
    pipe_array_t x = pipe_array_new(9999, PIPE_PAGEABLE);
    unsigned weights[256], counts[256], want[256];
    std::atomic<int> calls(0);
    spipe_report_t r;
    spipe_desc_t d;
    std::atomic<int> stages(0);
    pipe_randomise(x);
    for (unsigned i = 0; i < 256; ++i) weights[i] = counts[i] = want[i] = i;
    describe_counts(&d, x, weights, counts, &calls);
    d.stages[0].fn = count_or_fail;
    d.stages[0].user = &stages;
    tap_ok(spipe_run(&d, &r) == cudaErrorAssert && memcmp(counts, want, sizeof want) == 0 &&
               num_bits(r.devices_failed) == 1,
           "a run that fails leaves a buffer to reduce as it was: %s", r.failure.message);
    pipe_free(&x);
}

/* An array, or a source, to one sink or two, in chunks of 100. */
static cudaError_t run_trap_to_sinks(flow_t *w, trap_t *t, int source, int sinks, size_t threads,
                                     spipe_report_t *r) {
    pipe_mix_args_t more = {0, 2, 1};
    spipe_desc_t d = spipe_desc_default();
    d.count = source ? SPIPE_AUTO : w->x.bytes;
    d.chunk = 100;
    d.threads = threads;
    t->calls = 0;
    t->first_failed = SIZE_MAX;
    t->args.in = 0;
    t->args.out = 1;
    t->args.elem_bytes = 1;
    if (source)
        spipe_add_source(&d, flow_source, w, 1, SPIPE_IN_ORDER);
    else
        spipe_add_input(&d, w->x.at, 1);
    spipe_add_sink(&d, flow_sink, w, 1, SPIPE_IN_ORDER);
    if (sinks == 2) spipe_add_sink(&d, flow_sink_2, w, 1, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "trap", trap_stage, t);
    if (sinks == 2) spipe_add_stage(&d, "again", pipe_mix_stage, &more);
    use(&d);
    if (w->by_turns) d.hooks = hooks_by_turns();
    return spipe_run(&d, r);
}

/* At which of 200 calls the stage fails: all along the run, and closer together at its end. */
static int next_call(int call) {
    if (DEAR) return call + (call < 180 ? 90 : 10);
    return call + (int)tap_every(3, 1) * (call < 180 ? 15 : 2);
}

/* The first sink has had chunks 0 .. whole-1 and no other, and they are right. */
static int taken_is_whole(const flow_t *w, const spipe_report_t *r) {
    int right = !w->wrong && w->taken == r->failure.chunks_whole * 100;
    for (size_t i = 0; i < w->taken; ++i) right &= w->y.at[i] == pipe_mix(w->x.at[i], i);
    return right;
}

/* A GPU fails at a stage, early and late in the run: sinks have had what is whole, once and in
   order; sources are not read twice. */
static void test_flow_of_failed(int source, int sinks, size_t threads) {
    trap_t t;
    spipe_report_t r;
    int good = 1;
    t.num = 1;
    for (t.from = 1; t.from <= 200 && good; t.from = next_call(t.from)) {
        flow_t w;
        flow_new(&w, 19950, t.from % 2 ? 77 : SIZE_MAX); /* 200 chunks, the last one half */
        const cudaError_t e = run_trap_to_sinks(&w, &t, source, sinks, threads, &r);
        good = tells_of_trap(e, &t, &r) && taken_is_whole(&w, &r) && !w.twice &&
               (sinks == 1 || w.taken_2 == w.taken);
        if (!good) {
            tap_note("failing call %d: %s; %zu and %zu taken%s, %zu chunks done, %x failed", t.from,
                     r.failure.message, w.taken, w.taken_2, w.wrong ? " out of order" : "",
                     r.chunks_done, r.devices_failed);
        }
        flow_free(&w);
    }
    const char *from = source ? "a source" : "an array";
    tap_ok(good, "a GPU fails, %s, %d sinks, %s: each has had what is whole: %s", from, sinks,
           threads ? "threads" : "no threads", r.failure.message);
}

/* Counts what a source gives, in a buffer that is reduced. */
static void test_counted_source_ends(void) {
    flow_t w;
    spipe_report_t r;
    unsigned counts[256] = {0}, weights[256] = {0};
    std::atomic<int> calls(0);
    spipe_desc_t d = spipe_desc_default();
    std::atomic<int> stages(0);
    flow_new(&w, 20000, SIZE_MAX);
    d.chunk = 100;
    spipe_add_source(&d, flow_source, &w, 1, SPIPE_IN_ORDER);
    spipe_add_resident(&d, weights, sizeof weights, SPIPE_UPLOAD);
    spipe_add_resident(&d, counts, sizeof counts, SPIPE_DOWNLOAD);
    spipe_add_stage(&d, "count", count_or_fail, &stages);
    spipe_devices_reduce(&d, add_counts, &calls);
    use(&d);
    tap_ok(spipe_run(&d, &r) == cudaErrorAssert && r.failure.stage == 0 &&
               /* the first chunk of the GPU that failed, and which one that is is chance */
               r.failure.chunks_whole < 200 && strstr(r.failure.message, "'count'"),
           "what was counted of a source is gone with its GPU: the run fails: %s",
           r.failure.message);
    flow_free(&w);
}

static void test_sinks_end(void) {
    trap_t t;
    spipe_report_t r;
    flow_t w;
    t.from = 1000000;
    t.num = 1;
    flow_new(&w, 20000, SIZE_MAX);
    w.refused = 9000;
    cudaError_t e = run_trap_to_sinks(&w, &t, 0, 2, SPIPE_AUTO, &r);
    tap_ok(e == cudaErrorOperatingSystem && w.refusals == 1 && !w.wrong && w.taken == 9000 &&
               r.failure.chunks_whole == 90 && w.taken_2 == 9000 &&
               num_bits(r.devices_failed) == 1 &&
               strstr(r.failure.message, "the sink of buffer 1 failed at chunk 90"),
           "a sink that fails ends the run, and is not called again: %s", r.failure.message);
    flow_free(&w);
    /* Chunk 88 is still at the second sink when chunk 90 fails at the first. */
    flow_new(&w, 20000, SIZE_MAX);
    w.refused = 9000;
    w.held = 8800;
    w.by_turns = 1;
    e = run_trap_to_sinks(&w, &t, 0, 2, SPIPE_AUTO, &r);
    tap_ok(e == cudaErrorOperatingSystem && r.failure.chunks_whole == 90 && !w.wrong &&
               w.taken == 9000 && w.taken_2 == 9000,
           "what is at the second sink then, or waits for it, is finished: %zu chunks",
           w.taken_2 / 100);
    flow_free(&w);
    t.from = 40;
    t.num = 1000000;
    for (int source = 0; source < 2; ++source) {
        flow_new(&w, 20000, SIZE_MAX);
        e = run_trap_to_sinks(&w, &t, source, 1, SPIPE_AUTO, &r);
        tap_ok(e == cudaErrorAssert && r.failure.chunks_whole < 40 && taken_is_whole(&w, &r) &&
                   r.devices_failed != 0 && r.failure.stage == 0,
               "when all have failed the sink has had what is whole: %s", r.failure.message);
        flow_free(&w);
    }
}

/* ---- Refusals, progress, host stages -------------------------------------------------------- */
static void test_refusals(void) {
    unsigned char x[64] = {0}, y[64];
    pipe_mix_args_t args = {0, 1, 1};
    spipe_report_t r;
    spipe_failure_t failure;
    spipe_pipeline_t *p = NULL;
    const int absent[2] = {0, 99};
    spipe_desc_t d = spipe_desc_default();
    d.count = 64;
    spipe_add_input(&d, x, 1);
    spipe_add_output(&d, y, 1);
    spipe_stage_ordered(&d, spipe_add_stage(&d, "mix", pipe_mix_stage, &args));
    use(&d);
    tap_ok(spipe_run(&d, &r) == cudaErrorInvalidValue && strstr(r.failure.message, "ordered"),
           "ordered stages are refused: %s", r.failure.message);
    d.stages[0].ordered = 0;
    tap_ok(spipe_pipeline_create(&p, &d, &failure) == cudaErrorNotSupported &&
               strstr(failure.message, "spipe_run") && spipe_pipeline_destroy(p) == cudaSuccess,
           "a kept pipeline is of one device: %s", failure.message);
    spipe_devices_list(&d, absent, 2);
    tap_ok(spipe_run(&d, &r) == cudaErrorInvalidDevice && strstr(r.failure.message, "99"),
           "a device that is not there is refused: %s", r.failure.message);
    spipe_devices_list(&d, absent, 0);
    tap_ok(spipe_run(&d, NULL) == cudaErrorInvalidValue, "an empty list is refused");
    d = spipe_desc_default();
    flow_t w;
    flow_new(&w, 10, SIZE_MAX);
    spipe_set_halo(&d, spipe_add_source(&d, flow_source, &w, 1, SPIPE_IN_ORDER), 1, 1,
                   SPIPE_EDGE_CLAMP);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    use(&d);
    tap_ok(spipe_run(&d, &r) == cudaErrorInvalidValue && strstr(r.failure.message, "halo"),
           "a source with a halo is refused: %s", r.failure.message);
    flow_free(&w);
}

typedef struct watch {
    size_t last, total, stop_at;
    int backwards, calls;
} watch_t;

static int watch_progress(const spipe_progress_t *p, void *user) {
    watch_t *w = (watch_t *)user;
    w->backwards |= p->chunks_done < w->last;
    w->last = p->chunks_done;
    w->total = p->total;
    ++w->calls;
    return p->chunks_done >= w->stop_at;
}

static void test_progress(void) {
    pipe_array_t x = pipe_array_new(20000, PIPE_PINNED), y = pipe_array_new(20000, PIPE_PINNED);
    pipe_mix_args_t args = {0, 1, 1};
    watch_t w = {0, 0, SIZE_MAX, 0, 0};
    spipe_report_t r;
    spipe_desc_t d = spipe_desc_default();
    int right = 1;
    pipe_randomise(x);
    pipe_poison(y);
    d.count = x.bytes;
    d.chunk = 100;
    d.progress = watch_progress;
    d.progress_user = &w;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    use(&d);
    tap_ok(spipe_run(&d, &r) == cudaSuccess && is_mixed(x, y) && !w.backwards && w.last == 200 &&
               w.total == 20000,
           "progress is that of all GPUs together, and never goes back");
    w.last = 0;
    w.stop_at = 30;
    pipe_poison(y);
    const cudaError_t e = spipe_run(&d, &r);
    for (size_t i = 0; i < r.failure.chunks_whole * 100; ++i) {
        right &= y.at[i] == pipe_mix(x.at[i], i);
    }
    tap_ok(e == SPIPE_STOPPED && right && r.chunks_done >= 30 && r.chunks_done < 200 &&
               r.failure.chunks_whole == r.chunks_done && r.devices_failed == 0,
           "stopping stops all of them: %s", r.failure.message);
    pipe_free(&x);
    pipe_free(&y);
}

/* A stage and a sink return what a query may leave: the run fails with it. */
static cudaError_t not_ready_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return c->index == 30 ? cudaErrorNotReady : pipe_mix_stage(c, user);
}

static cudaError_t not_ready_sink(const spipe_part_t *part, void *user) {
    return part->first == 3000 ? cudaErrorNotReady : flow_sink(part, user);
}

static void test_not_ready(void) {
    pipe_mix_args_t args = {0, 1, 1};
    for (int what = 0; what < 3; ++what) {
        static const char *const who[] = {"a stage of arrays", "a stage before a sink", "a sink"};
        static const char *const said[] = {"stage 'mix' failed at chunk 30",
                                           "stage 'mix' failed at chunk 30",
                                           "the sink of buffer 1 failed at chunk 30"};
        int good = 1;
        spipe_report_t r;
        for (int k = 0; k < (DEAR ? 6 : 20) && good; ++k) {
            flow_t w;
            spipe_desc_t d = spipe_desc_default();
            flow_new(&w, 20000, SIZE_MAX);
            d.count = w.x.bytes;
            d.chunk = 100;
            d.threads = k % 2 ? SPIPE_AUTO : 0;
            spipe_add_input(&d, w.x.at, 1);
            if (what == 0) spipe_add_output(&d, w.y.at, 1);
            if (what == 1) spipe_add_sink(&d, flow_sink, &w, 1, SPIPE_IN_ORDER);
            if (what == 2) spipe_add_sink(&d, not_ready_sink, &w, 1, SPIPE_IN_ORDER);
            spipe_add_stage(&d, "mix", what < 2 ? not_ready_stage : pipe_mix_stage, &args);
            use(&d);
            const cudaError_t e = spipe_run(&d, &r);
            good &= e == cudaErrorNotReady && strstr(r.failure.message, said[what]) &&
                    r.failure.chunk == 30 && r.failure.stage == (what < 2 ? 0 : -1) &&
                    r.failure.chunks_whole == 30;
            good &= num_bits(r.devices_failed) == 1;
            if (what > 0) good &= taken_is_whole(&w, &r) && w.taken == 3000;
            if (!good) tap_note("%x failed: %s", r.devices_failed, r.failure.message);
            flow_free(&w);
        }
        tap_ok(good, "cudaErrorNotReady of %s is its error, not a stop: %s", who[what],
               r.failure.message);
    }
}

static cudaError_t count_host_stage(const spipe_chunk_t *c, void *user) {
    unsigned char *y = SPIPE_BUF(c, 1, unsigned char);
    __atomic_fetch_add((size_t *)user, c->count, __ATOMIC_RELAXED); /* several threads at once */
    for (size_t i = 0; i < c->count; ++i) y[i] ^= 0xFF;
    return cudaSuccess;
}

static void test_host_stage(void) {
    pipe_array_t x = pipe_array_new(5000, PIPE_PAGEABLE);
    pipe_array_t y = pipe_array_new(5000, PIPE_PAGEABLE);
    pipe_mix_args_t args = {0, 1, 1};
    size_t seen = 0;
    spipe_report_t r;
    spipe_desc_t d = spipe_desc_default();
    pipe_randomise(x);
    pipe_poison(y);
    d.count = x.bytes;
    d.chunk = 64;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    spipe_add_host_stage(&d, "flip", count_host_stage, &seen, SPIPE_BIT(1), SPIPE_BIT(1));
    use(&d);
    const cudaError_t e = spipe_run(&d, &r);
    for (size_t i = 0; i < y.bytes; ++i) y.at[i] ^= 0xFF;
    tap_ok(e == cudaSuccess && is_mixed(x, y) && seen == 5000,
           "a host stage is called for every chunk, by threads of all GPUs at once");
    pipe_free(&x);
    pipe_free(&y);
}

int main(void) {
#ifdef __HOSTCUDA__
    SPIPE_CHECK(hostcuda_set_devices(3));
#endif
    SPIPE_CHECK(cudaGetDeviceCount(&num_devices));
    for (int i = 0; i < 4; ++i) devices[i] = i < num_devices ? i : 0;
    num_devices = num_devices < 4 ? 3 : 4;
    tap_note("%d pipelines, on devices %d %d %d", num_devices, devices[0], devices[1], devices[2]);
    test_arrays();
    test_halo(PIPE_PAGEABLE);
    test_halo(PIPE_PINNED);
    test_wide_halo();
    test_in_place();
    test_one_and_all();
    test_flows();
    test_flow_fails();
    test_resident();
    test_gpu_fails(PIPE_PINNED, 0);
    test_gpu_fails(PIPE_PAGEABLE, 0);
    test_gpu_fails(PIPE_PINNED, 1);
    test_all_fail();
    test_reduced_fails();
    test_flow_of_failed(0, 1, SPIPE_AUTO);
    test_flow_of_failed(0, 2, 0);
    test_flow_of_failed(0, 2, 6);
    test_flow_of_failed(1, 1, SPIPE_AUTO);
    test_flow_of_failed(1, 2, 4);
    test_flow_of_failed(1, 1, 0);
    test_counted_source_ends();
    test_sinks_end();
    test_refusals();
    test_progress();
    test_not_ready();
    test_host_stage();
    return tap_done();
}
