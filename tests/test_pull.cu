/*  test_pull.cu -- a loop that takes chunks: spipe_pipeline_next, _release and _end. The result is
    that of a run, however many chunks are held and whenever the loop ends; mistakes are told. */
#include "pipe_common.h"

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

enum {
    MOST = 5000
};

static __global__ void add_kernel(const unsigned short *x, unsigned short *y, size_t n,
                                  size_t first, unsigned *sum) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = (unsigned short)(x[i] + x[(ptrdiff_t)i - 1] + first + i);
    atomicAdd(sum, (unsigned)x[i]);
}

static cudaError_t work(const spipe_chunk_t *c, cudaStream_t stream) {
    return SPIPE_LAUNCH(add_kernel, spipe_blocks(c->count, 64), 64, 0, stream,
                        SPIPE_BUF(c, 0, const unsigned short), SPIPE_BUF(c, 1, unsigned short),
                        c->count, c->first, SPIPE_BUF(c, 2, unsigned));
}

typedef enum kind {
    ARRAYS,
    POSITIONED,
    SEQUENTIAL, /* with no count */
    NUM_KINDS
} kind_t;

static const char *const kind_names[] = {"arrays", "positioned", "in order"};

typedef struct world {
    pipe_array_t x, y;
    unsigned sum;
    size_t count, given, taken, bad;
    int throws;
    std::atomic<int> asked;   /* for elements that cannot be had */
    std::atomic<size_t> read; /* elements in all */
    spipe_desc_t d;
    spipe_pipeline_t *p;
} world_t;

static cudaError_t fails(world_t *w, size_t end) {
    if (end <= w->bad) return cudaSuccess;
    w->asked = 1;
    if (w->throws) throw std::runtime_error("the decoder gave up");
    return cudaErrorOperatingSystem;
}

static cudaError_t give(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t most = part->count;
    size_t *count = &part->count;
    world_t *w = (world_t *)user;
    *count = w->count - w->given < most ? w->count - w->given : most;
    memcpy(dst, w->x.at + 2 * w->given, 2 * *count);
    w->given += *count;
    w->read += *count;
    return fails(w, w->given);
}

static cudaError_t take(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    world_t *w = (world_t *)user;
    if (first != w->taken) return cudaErrorUnknown;
    memcpy(w->y.at + 2 * first, src, 2 * count);
    w->taken += count;
    return cudaSuccess;
}

static cudaError_t give_at(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t first = part->first, count = part->count;
    world_t *w = (world_t *)user;
    memcpy(dst, w->x.at + 2 * first, 2 * count);
    w->read += count;
    return fails(w, first + count);
}

static cudaError_t take_at(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    memcpy(((world_t *)user)->y.at + 2 * first, src, 2 * count);
    return cudaSuccess;
}

static void world_new(world_t *w, kind_t kind, int memory, size_t count, size_t chunk) {
    w->count = count;
    w->given = w->taken = 0;
    w->bad = SIZE_MAX;
    w->asked = 0;
    w->read = 0;
    w->throws = 0;
    w->sum = 0;
    w->x = pipe_array_new(2 * MOST, memory);
    w->y = pipe_array_new(2 * MOST, memory);
    pipe_randomise(w->x);
    pipe_poison(w->y);
    w->d = spipe_desc_default();
    w->d.chunk = chunk;
    if (kind != SEQUENTIAL) w->d.count = count;
    if (kind == ARRAYS) {
        spipe_add_input(&w->d, w->x.at, 2);
        spipe_add_output(&w->d, w->y.at, 2);
    } else if (kind == POSITIONED) {
        spipe_add_source(&w->d, give_at, w, 2, SPIPE_ANY_ORDER);
        spipe_add_sink(&w->d, take_at, w, 2, SPIPE_ANY_ORDER);
    } else {
        spipe_add_source(&w->d, give, w, 2, SPIPE_IN_ORDER);
        spipe_add_sink(&w->d, take, w, 2, SPIPE_IN_ORDER);
    }
    spipe_set_halo(&w->d, 0, 1, 0, SPIPE_EDGE_ZERO);
    spipe_add_resident(&w->d, &w->sum, sizeof w->sum, SPIPE_DOWNLOAD);
}

static void world_free(world_t *w) {
    SPIPE_CHECK(spipe_pipeline_destroy(w->p));
    pipe_free(&w->x);
    pipe_free(&w->y);
}

static unsigned short at(const unsigned char *data, size_t i) {
    unsigned short v;
    memcpy(&v, data + 2 * i, 2);
    return v;
}

/* Elements among the first n that are wrong. */
static size_t wrong_in(const world_t *w, size_t n) {
    size_t i, wrong = 0;
    for (i = 0; i < n; ++i) {
        const unsigned before = i > 0 ? at(w->x.at, i - 1) : 0;
        wrong += at(w->y.at, i) != (unsigned short)(at(w->x.at, i) + before + i);
    }
    return wrong + !pipe_guard_whole(w->y);
}

static unsigned sum_of(const world_t *w, size_t n) {
    unsigned sum = 0;
    size_t i;
    for (i = 0; i < n; ++i) sum += at(w->x.at, i);
    return sum;
}

/* Takes chunks until the end, or as many as most; holds up to held of them. */
static cudaError_t loop(world_t *w, const cudaStream_t *streams, size_t held, size_t most,
                        size_t *taken) {
    size_t released = 0;
    spipe_chunk_t c;
    cudaError_t e;
    *taken = 0;
    for (;;) {
        const cudaStream_t s = streams[*taken % 2];
        if (*taken == most) return cudaSuccess;
        while (*taken - released >= held) {
            e = spipe_pipeline_release(w->p, streams[released++ % 2]);
            if (e != cudaSuccess) return e;
        }
        e = spipe_pipeline_next(w->p, s, &c);
        if (e == SPIPE_ALL_HELD && *taken > released) { /* the end, or all slots are held */
            e = spipe_pipeline_release(w->p, streams[released++ % 2]);
            if (e != cudaSuccess) return e;
            continue;
        }
        if (e != cudaSuccess || c.count == 0) return e;
        if (c.index != *taken || c.stream != s) return cudaErrorUnknown;
        e = work(&c, s);
        if (e != cudaSuccess) return e;
        ++*taken;
    }
}

static void test_results(kind_t kind, const cudaStream_t *streams) {
    static const size_t counts[] = {0, 1, 100, 4999}, chunks[] = {SPIPE_AUTO, 64, 1000};
    static const spipe_schedule_t schedules[] = {SPIPE_SCHEDULE_AUTO, SPIPE_SCHEDULE_SERIAL};
    size_t k, wrong = 0, loops = 0;
    const size_t step = tap_every(7, 13); /* no divisor of 144 or 5: all values of everything */
    for (k = 0; k < 4 * 3 * 3 * 2 * 2; k += step) {
        const size_t count = counts[k % 4], chunk = chunks[k / 4 % 3];
        const size_t held = k / 72 ? 3 : 1;
        int again;
        world_t w;
        world_new(&w, kind, k / 36 % 2 ? PIPE_PINNED : PIPE_UNALIGNED, count, chunk);
        w.d.schedule = schedules[k / 12 % 2];
        w.d.threads = k % 5 == 0 ? 0 : SPIPE_AUTO;
        SPIPE_CHECK(spipe_pipeline_create(&w.p, &w.d, NULL));
        for (again = 0; again < 3; ++again) {
            size_t taken;
            w.given = w.taken = 0;
            pipe_poison(w.y);
            const cudaError_t e = loop(&w, streams, held, SIZE_MAX, &taken);
            const size_t bad = e == cudaSuccess ? wrong_in(&w, count) : 1;
            if ((bad || w.sum != sum_of(&w, count)) && wrong++ == 0) {
                tap_note("%zu elements, chunks of %zu, %s, %zu held, loop %d: %zu wrong, %s", count,
                         chunk, spipe_schedule_name(w.d.schedule), held, again, bad,
                         spipe_pipeline_failure(w.p)->message);
            }
            ++loops;
        }
        world_free(&w);
    }
    tap_ok(wrong == 0, "%s: %zu loops give what runs give", kind_names[kind], loops);
}

static void test_early(kind_t kind, const cudaStream_t *streams) {
    size_t stop, wrong = 0;
    for (stop = 0; stop < 12; ++stop) {
        spipe_report_t r;
        size_t taken;
        world_t w;
        world_new(&w, kind, PIPE_PAGEABLE, 1000, 100);
        SPIPE_CHECK(spipe_pipeline_create(&w.p, &w.d, NULL));
        SPIPE_CHECK(loop(&w, streams, 1, stop, &taken));
        if (stop > 0)
            wrong += spipe_pipeline_release(w.p, streams[(stop - 1) % 2]) !=
                     (stop <= 10 ? cudaSuccess : cudaErrorNotPermitted);
        wrong += spipe_pipeline_end(w.p, &r) != cudaSuccess;
        const size_t whole = stop < 10 ? stop : 10;
        wrong += wrong_in(&w, 100 * whole) + (r.chunks_done != whole);
        wrong += r.failure.chunks_whole != whole;
        wrong += whole < 10 && at(w.y.at, 100 * whole) != 0xA5A5; /* not written */
        if (kind == ARRAYS) {                                     /* and from the beginning again */
            wrong += loop(&w, streams, 1, SIZE_MAX, &taken) != cudaSuccess || wrong_in(&w, 1000);
        }
        if (wrong) tap_note("stopped after %zu: %zu whole", stop, r.chunks_done);
        world_free(&w);
    }
    tap_ok(wrong == 0,
           "%s: stopped after any chunk, what was released is whole, nothing else is "
           "written",
           kind_names[kind]);
}

enum {
    SEVERAL = 3
};

static void several_new(world_t *w, kind_t kind) {
    static const size_t counts[SEVERAL] = {4999, 100, 2500};
    int i;
    for (i = 0; i < SEVERAL; ++i) {
        world_new(&w[i], kind, PIPE_PAGEABLE, counts[i], 100 + 50 * (size_t)i);
        SPIPE_CHECK(spipe_pipeline_create(&w[i].p, &w[i].d, NULL));
    }
}

static size_t several_wrong(world_t *w) {
    size_t wrong = 0;
    int i;
    for (i = 0; i < SEVERAL; ++i) {
        wrong += wrong_in(&w[i], w[i].count) + (w[i].sum != sum_of(&w[i], w[i].count));
        world_free(&w[i]);
    }
    return wrong;
}

/* One thread takes a chunk of each in turn, on one stream; they end at different times. */
static void test_in_turn(kind_t kind, cudaStream_t stream) {
    world_t w[SEVERAL];
    int i, ended = 0;
    several_new(w, kind);
    while (ended != (1 << SEVERAL) - 1) {
        for (i = 0; i < SEVERAL; ++i) {
            spipe_chunk_t c;
            if (ended >> i & 1) continue;
            SPIPE_CHECK(spipe_pipeline_next(w[i].p, stream, &c));
            if (c.count == 0) ended |= 1 << i;
            if (c.count == 0) continue;
            SPIPE_CHECK(work(&c, stream));
            SPIPE_CHECK(spipe_pipeline_release(w[i].p, stream));
        }
    }
    tap_ok(several_wrong(w) == 0, "%s: %d pipelines in turn, on one stream", kind_names[kind],
           (int)SEVERAL);
}

/* Each on a thread of its own, several times. */
static void test_at_once(kind_t kind) {
    std::atomic<int> failed(0);
    std::vector<std::thread> threads;
    world_t w[SEVERAL];
    int i;
    several_new(w, kind);
    for (i = 0; i < SEVERAL; ++i) {
        threads.emplace_back([&failed, &w, i] {
            cudaStream_t own[2];
            size_t taken;
            int k;
            SPIPE_CHECK(cudaStreamCreateWithFlags(&own[0], cudaStreamNonBlocking));
            own[1] = own[0];
            for (k = 0; k < 5; ++k) {
                w[i].given = w[i].taken = 0;
                failed += loop(&w[i], own, 2, SIZE_MAX, &taken) != cudaSuccess;
            }
            SPIPE_CHECK(cudaStreamDestroy(own[0]));
        });
    }
    for (std::thread &t : threads) t.join();
    tap_ok(several_wrong(w) == 0 && failed == 0, "%s: %d pipelines at once, each on its thread",
           kind_names[kind], (int)SEVERAL);
}

/* Slots that are free when a loop ends, or become free by its end, are not filled any more. Without
   threads, as then the calling thread reads, and no call of a source can be under way. */
static void test_read_on(kind_t kind, spipe_schedule_t schedule, cudaStream_t stream) {
    spipe_chunk_t c;
    world_t w;
    size_t read;
    int k;
    world_new(&w, kind, PIPE_PAGEABLE, 4000, 100);
    w.d.depth = 2;
    w.d.threads = 0;
    w.d.schedule = schedule;
    SPIPE_CHECK(spipe_pipeline_create(&w.p, &w.d, NULL));
    for (k = 0; k < 2; ++k) SPIPE_CHECK(spipe_pipeline_next(w.p, stream, &c));
    for (k = 0; k < 2; ++k) SPIPE_CHECK(spipe_pipeline_release(w.p, stream));
    read = w.read;
    SPIPE_CHECK(spipe_pipeline_end(w.p, NULL));
    tap_ok(read >= 200 && w.read == read,
           "%s, %s: no source is read on after the end: %zu elements, then %zu", kind_names[kind],
           spipe_schedule_name(schedule), read, (size_t)w.read);
    world_free(&w);
}

static void test_destroyed(kind_t kind, const cudaStream_t *streams) {
    size_t taken;
    world_t w;
    world_new(&w, kind, PIPE_PAGEABLE, 4000, 100);
    SPIPE_CHECK(spipe_pipeline_create(&w.p, &w.d, NULL));
    SPIPE_CHECK(loop(&w, streams, 2, 7, &taken));
    SPIPE_CHECK(cudaStreamSynchronize(streams[0]));
    SPIPE_CHECK(cudaStreamSynchronize(streams[1]));
    world_free(&w);
    tap_ok(1, "%s: destroyed in the middle of a loop", kind_names[kind]);
}

static void test_failures(kind_t kind, const cudaStream_t *streams, int throws) {
    std::string what = "nothing";
    cudaError_t e = cudaSuccess;
    size_t taken = 0;
    world_t w;
    world_new(&w, kind, PIPE_PAGEABLE, 4000, 100);
    w.bad = 1234;
    w.throws = throws;
    SPIPE_CHECK(spipe_pipeline_create(&w.p, &w.d, NULL));
    try {
        e = loop(&w, streams, 1, SIZE_MAX, &taken);
    } catch (const std::exception &x) {
        what = x.what();
    }
    const spipe_failure_t f = *spipe_pipeline_failure(w.p);
    tap_ok((throws ? what == "the decoder gave up" : e == cudaErrorOperatingSystem) &&
               f.chunk == 12 && taken <= 12 && strstr(f.message, "failed at chunk 12"),
           "%s, a source that %s: %s", kind_names[kind], throws ? "throws" : "fails", f.message);
    w.bad = SIZE_MAX;
    w.given = w.taken = 0;
    e = loop(&w, streams, 1, SIZE_MAX, &taken);
    tap_ok(e == cudaSuccess && wrong_in(&w, 4000) == 0,
           "and the next loop is right: %zu chunks, %s", taken,
           spipe_pipeline_failure(w.p)->message);
    world_free(&w);
}

/* Whether a call was refused because of the loop, and says so; another refusal comes between. */
static int refuses(const world_t *w, cudaError_t e) {
    const spipe_failure_t f = *spipe_pipeline_failure(w->p);
    (void)spipe_pipeline_next(w->p, NULL, NULL);
    return e == cudaErrorNotPermitted && f.error == e && strstr(f.message, "spipe_pipeline_end");
}

static int says(const world_t *w, const char *words) {
    return strstr(spipe_pipeline_failure(w->p)->message, words) != NULL;
}

/* A chunk is held, meanwhile a worker fails to fill the one that follows: that is what the loop
   says in the end, not that the calls in between were refused. */
static void test_failure_stays(kind_t kind, cudaStream_t stream) {
    spipe_chunk_t c;
    cudaError_t e = cudaErrorNotPermitted;
    size_t k;
    world_t w;
    world_new(&w, kind, PIPE_PAGEABLE, 4000, 100);
    w.bad = 134;
    w.d.depth = 2;
    w.d.threads = 2;
    SPIPE_CHECK(spipe_pipeline_create(&w.p, &w.d, NULL));
    SPIPE_CHECK(spipe_pipeline_next(w.p, stream, &c));
    SPIPE_CHECK(work(&c, stream));
    while (!w.asked) std::this_thread::yield();
    for (k = 0; k < 2000 && e == cudaErrorNotPermitted; ++k) {
        std::this_thread::yield(); /* the failure is noted at any time from now on */
        e = spipe_pipeline_run(w.p, NULL);
    }
    SPIPE_CHECK(spipe_pipeline_release(w.p, stream));
    tap_ok(e == cudaErrorNotPermitted &&
               spipe_pipeline_next(w.p, stream, &c) == cudaErrorOperatingSystem &&
               says(&w, "failed at chunk 1"),
           "%s: the source fails while a chunk is held, which is said later, too: %s",
           kind_names[kind], spipe_pipeline_failure(w.p)->message);
    world_free(&w);
}

static cudaError_t keep_stage(const spipe_chunk_t *c, void *) { return work(c, c->stream); }

static void test_refused(const cudaStream_t *streams) {
    spipe_report_t r;
    spipe_chunk_t c;
    size_t k;
    world_t w;
    world_new(&w, ARRAYS, PIPE_PAGEABLE, 1000, 100);
    tap_ok(spipe_run(&w.d, &r) == cudaErrorInvalidValue && strstr(r.failure.message, "no stage"),
           "run without a stage: %s", r.failure.message);
    w.d.depth = 2;
    SPIPE_CHECK(spipe_pipeline_create(&w.p, &w.d, NULL));
    tap_ok(spipe_pipeline_run(w.p, &r) == cudaErrorInvalidValue &&
               strstr(r.failure.message, "spipe_pipeline_next"),
           "a kept one: %s", r.failure.message);
    tap_ok(spipe_pipeline_enqueue(w.p, streams[0]) == cudaErrorInvalidValue && says(&w, "no stage"),
           "enqueued: %s", spipe_pipeline_failure(w.p)->message);
    tap_ok(spipe_pipeline_release(w.p, streams[0]) == cudaErrorNotPermitted &&
               says(&w, "no chunk is held"),
           "release without a chunk: %s", spipe_pipeline_failure(w.p)->message);
    tap_ok(spipe_pipeline_next(w.p, streams[0], NULL) == cudaErrorInvalidValue,
           "no chunk to write to: %s", spipe_pipeline_failure(w.p)->message);
    for (k = 0; k < 2; ++k) SPIPE_CHECK(spipe_pipeline_next(w.p, streams[0], &c));
    tap_ok(spipe_pipeline_next(w.p, streams[0], &c) == SPIPE_ALL_HELD &&
               says(&w, "release them first"),
           "more than there are slots: %s", spipe_pipeline_failure(w.p)->message);
    tap_ok(spipe_pipeline_run(w.p, &r) == cudaErrorNotPermitted &&
               strstr(r.failure.message, "spipe_pipeline_end") &&
               spipe_pipeline_set_count(w.p, 10) == cudaErrorNotPermitted &&
               spipe_pipeline_set_host(w.p, 0, w.x.at) == cudaErrorNotPermitted,
           "other calls meanwhile: %s", r.failure.message);
    tap_ok(refuses(&w, spipe_pipeline_set_count(w.p, 10)) &&
               refuses(&w, spipe_pipeline_set_host(w.p, 0, w.x.at)) &&
               refuses(&w, spipe_pipeline_enqueue(w.p, streams[0])) &&
               refuses(&w, spipe_pipeline_run(w.p, NULL)) &&
               refuses(&w, spipe_pipeline_wait(w.p, NULL)) &&
               refuses(&w, spipe_pipeline_set_timeline(w.p, NULL)),
           "each of them leaves a sentence: %s", spipe_pipeline_failure(w.p)->message);
    SPIPE_CHECK(spipe_pipeline_end(w.p, NULL));
    tap_ok(!spipe_pipeline_failure(w.p)->message[0], "which is none of the loop's");
    SPIPE_CHECK(spipe_pipeline_set_count(w.p, 500));
    tap_ok(loop(&w, streams, 1, SIZE_MAX, &k) == cudaSuccess && k == 5,
           "after the end another count may be set");
    SPIPE_CHECK(spipe_pipeline_destroy(w.p));
    spipe_add_stage(&w.d, "keep", keep_stage, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&w.p, &w.d, NULL));
    tap_ok(spipe_pipeline_next(w.p, streams[0], &c) == cudaErrorInvalidValue &&
               says(&w, "has stages"),
           "a pipeline with stages: %s", spipe_pipeline_failure(w.p)->message);
    world_free(&w);
}

int main(void) {
    cudaStream_t streams[2], one[2];
    int kind;
    SPIPE_CHECK(cudaStreamCreateWithFlags(&streams[0], cudaStreamNonBlocking));
    SPIPE_CHECK(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking));
    one[0] = one[1] = streams[0];
    for (kind = 0; kind < NUM_KINDS; ++kind) {
        test_results((kind_t)kind, one);
        test_early((kind_t)kind, one);
        test_destroyed((kind_t)kind, streams);
        test_in_turn((kind_t)kind, streams[0]);
        if (pipe_threads()) test_at_once((kind_t)kind);
        if (kind == ARRAYS) continue;
        test_read_on((kind_t)kind, SPIPE_SCHEDULE_ENGINES, streams[0]);
        test_read_on((kind_t)kind, SPIPE_SCHEDULE_ZERO_COPY, streams[0]);
        test_failures((kind_t)kind, one, 0);
        test_failures((kind_t)kind, one, 1);
        if (pipe_threads()) test_failure_stays((kind_t)kind, streams[0]);
    }
    test_refused(streams);
    SPIPE_CHECK(cudaStreamDestroy(streams[0]));
    SPIPE_CHECK(cudaStreamDestroy(streams[1]));
    return tap_done();
}
