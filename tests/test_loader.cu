/*  test_loader.cu -- a split source and a loop that pulls, as a data loader has them: over all
    epochs each item comes once an epoch, in the order that next gave, with any number of workers;
    a loop may end early and begin again; a file that work refuses is named; waits overlap. */
#include "pipe_common.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

enum {
    ITEMS = 53,
    EPOCHS = 4,
    ALL = ITEMS * EPOCHS,
    WORDS = 5, /* of an element: the item, its epoch, and three that follow from them */
    NEVER = ITEMS
};

typedef struct world {
    size_t given;
    unsigned order[EPOCHS][ITEMS];
    std::atomic<int> worked[EPOCHS][ITEMS], mistakes;
    unsigned bad; /* an item that cannot be read */
    int wait_ms;  /* for each element */
} world_t;

static world_t world;
static thread_local char words[64];

static unsigned mixed(unsigned item, unsigned epoch, unsigned k) {
    return (item * 2654435761u ^ epoch * 40503u) + k * 7919u;
}

static world_t *world_new(void) {
    world_t *w = &world;
    unsigned e, i;
    w->given = 0;
    w->mistakes = 0;
    w->bad = NEVER;
    w->wait_ms = 0;
    for (e = 0; e < EPOCHS; ++e) {
        for (i = 0; i < ITEMS; ++i) {
            w->order[e][i] = (i * (2 * e + 3) + 11 * e) % ITEMS; /* ITEMS is prime */
            w->worked[e][i] = 0;
        }
    }
    return w;
}

/* A ticket is the item and the epoch. */
static cudaError_t next(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    world_t *w = (world_t *)user;
    unsigned *t = (unsigned *)dst;
    for (*count = 0; *count < max_count && w->given < ALL; ++*count, ++w->given, t += 2) {
        t[0] = w->order[w->given / ITEMS][w->given % ITEMS];
        t[1] = (unsigned)(w->given / ITEMS);
    }
    return cudaSuccess;
}

static cudaError_t work(const spipe_part_t *part, const void *tickets, void *user) {
    void *dst = part->data;
    const size_t first = part->first, count = part->count;
    world_t *w = (world_t *)user;
    const unsigned *t = (const unsigned *)tickets;
    unsigned *to = (unsigned *)dst, k;
    size_t i;
    for (i = first; i < first + count; ++i, t += 2, to += WORDS) {
        if (t[1] != i / ITEMS || t[0] != w->order[i / ITEMS][i % ITEMS]) {
            ++w->mistakes;
            return cudaErrorUnknown;
        }
        snprintf(words, sizeof words, "item%02u is damaged", t[0]);
        if (t[0] == w->bad) return cudaErrorOperatingSystem;
        ++w->worked[t[1]][t[0]];
        to[0] = t[0];
        to[1] = t[1];
        for (k = 2; k < WORDS; ++k) to[k] = mixed(t[0], t[1], k);
    }
    if (w->wait_ms > 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(w->wait_ms * (int)count));
    }
    return cudaSuccess;
}

static const char *why(void *) { return words; }

static __global__ void keep_kernel(const unsigned *x, unsigned *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}

/* The user's own: what arrived, on the device, and the stream of the loop. */
typedef struct loop {
    unsigned *arrived;
    cudaStream_t stream;
    spipe_desc_t d;
    spipe_pipeline_t *p;
} loop_t;

static void loop_new(loop_t *l, world_t *w, size_t chunk, size_t threads) {
    l->d = spipe_desc_default();
    l->d.chunk = chunk;
    l->d.threads = threads;
    l->d.buffers[spipe_add_split_source(&l->d, next, work, w, 8, 4 * WORDS)].why = why;
    SPIPE_CHECK(cudaMalloc((void **)&l->arrived, ALL * 4 * WORDS));
    SPIPE_CHECK(cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking));
    SPIPE_CHECK(cudaMemsetAsync(l->arrived, 0xEE, ALL * 4 * WORDS, l->stream));
}

static void loop_free(loop_t *l) {
    SPIPE_CHECK(spipe_pipeline_destroy(l->p));
    SPIPE_CHECK(cudaFree(l->arrived));
    SPIPE_CHECK(cudaStreamDestroy(l->stream));
}

/* Takes elements until the end, or until there are most; says how many. */
static cudaError_t take(loop_t *l, size_t most, size_t *taken) {
    spipe_chunk_t c;
    for (*taken = 0; *taken < most; *taken += c.count) {
        SPIPE_TRY(spipe_pipeline_next(l->p, l->stream, &c));
        if (c.count == 0) break;
        if (c.first != *taken) return cudaErrorUnknown;
        SPIPE_TRY(SPIPE_LAUNCH(keep_kernel, spipe_blocks(c.count * WORDS, 64), 64, 0, l->stream,
                               SPIPE_BUF_ROW(&c, 0, const unsigned, WORDS),
                               l->arrived + c.first * WORDS, c.count * WORDS));
        SPIPE_TRY(spipe_pipeline_release(l->p, l->stream));
    }
    return cudaStreamSynchronize(l->stream);
}

/* What is wrong with the first n that arrived, and with how often each was made: exactly once,
   where the loop went to its end. */
static size_t wrong_in(const loop_t *l, const world_t *w, size_t n) {
    std::vector<unsigned> got(ALL * WORDS);
    size_t wrong = (size_t)w->mistakes, i, k;
    SPIPE_CHECK(cudaMemcpy(&got[0], l->arrived, ALL * 4 * WORDS, cudaMemcpyDeviceToHost));
    for (i = 0; i < n; ++i) {
        const unsigned *x = &got[i * WORDS], epoch = (unsigned)(i / ITEMS);
        const unsigned item = w->order[epoch][i % ITEMS];
        wrong += x[0] != item || x[1] != epoch;
        for (k = 2; k < WORDS; ++k) wrong += x[k] != mixed(item, epoch, (unsigned)k);
        wrong += n < ALL ? w->worked[epoch][item] < 1 : w->worked[epoch][item] != 1;
    }
    return wrong;
}

static void test_epochs(void) {
    static const size_t chunks[] = {1, 4, 7, ITEMS, SPIPE_AUTO}, threads[] = {0, 1, 4, SPIPE_AUTO};
    static const size_t depths[] = {1, 3, SPIPE_AUTO};
    size_t k, wrong = 0, loops = 0;
#if defined(__SANITIZE_THREAD__) /* a loop takes twenty times as long */
    const size_t step = 7;
#else
    const size_t step = 1;
#endif
    for (k = 0; k < 5 * 4 * 3 * 2; k += step) {
        world_t *w = world_new();
        size_t taken;
        int again;
        loop_t l;
        loop_new(&l, w, chunks[k % 5], threads[k / 5 % 4]);
        l.d.depth = depths[k / 20 % 3];
        if (k / 60) l.d.count = ALL;
        SPIPE_CHECK(spipe_pipeline_create(&l.p, &l.d, NULL));
        for (again = 0; again < 2; ++again, ++loops) {
            (void)world_new();
            const cudaError_t e = take(&l, ALL + 1, &taken);
            const size_t bad = e == cudaSuccess && taken == ALL ? wrong_in(&l, w, ALL) : 1;
            if (bad && wrong == 0) {
                tap_note("batches of %zu, %zu workers, loop %d: %zu taken, %zu wrong, %s",
                         l.d.chunk, l.d.threads, again, taken, bad,
                         spipe_pipeline_failure(l.p)->message);
            }
            wrong += bad;
        }
        loop_free(&l);
    }
    tap_ok(wrong == 0, "%zu loops: each item once in each of %d epochs, in their orders", loops,
           (int)EPOCHS);
}

/* A loop that has seen enough. What was made ahead for it is lost, and the next begins anew. */
static void test_early(size_t threads) {
    size_t stop, wrong = 0;
    for (stop = 0; stop <= ALL; stop += 20) {
        world_t *w = world_new();
        size_t taken;
        loop_t l;
        loop_new(&l, w, 4, threads);
        SPIPE_CHECK(spipe_pipeline_create(&l.p, &l.d, NULL));
        SPIPE_CHECK(take(&l, stop, &taken));
        wrong += taken != stop || wrong_in(&l, w, taken);
        wrong += spipe_pipeline_end(l.p, NULL) != cudaSuccess;
        (void)world_new();
        wrong += take(&l, ALL + 1, &taken) != cudaSuccess || taken != ALL || wrong_in(&l, w, ALL);
        loop_free(&l);
    }
    tap_ok(wrong == 0, "%zu workers: ended early and begun again, the second loop is whole",
           threads);
}

static void test_damaged(size_t threads) {
    size_t wrong = 0, k;
    for (k = 0; k < ITEMS; k += 13) {
        world_t *w = world_new();
        size_t taken;
        char name[32];
        loop_t l;
        loop_new(&l, w, 4, threads);
        w->bad = w->order[0][k];
        snprintf(name, sizeof name, "item%02u is damaged", w->bad);
        SPIPE_CHECK(spipe_pipeline_create(&l.p, &l.d, NULL));
        const cudaError_t e = take(&l, ALL + 1, &taken);
        const spipe_failure_t f = *spipe_pipeline_failure(l.p);
        if (e != cudaErrorOperatingSystem || f.chunk != k / 4 || !strstr(f.message, name)) {
            tap_note("%s, item %zu, taken %zu: %s", name, k, taken, f.message);
            ++wrong;
        }
        SPIPE_CHECK(cudaStreamSynchronize(l.stream));
        wrong += taken > k - k % 4 || wrong_in(&l, w, taken);
        (void)world_new();
        wrong += take(&l, ALL + 1, &taken) != cudaSuccess || wrong_in(&l, w, ALL);
        loop_free(&l);
    }
    tap_ok(wrong == 0, "%zu workers: an item that is damaged is named, and its batch", threads);
}

#if !defined(__SANITIZE_THREAD__)
/* The seconds of a loop in which each element takes 2 ms. */
static double seconds_with(size_t threads) {
    world_t *w = world_new();
    size_t taken;
    loop_t l;
    w->wait_ms = 2;
    loop_new(&l, w, 4, threads);
    SPIPE_CHECK(spipe_pipeline_create(&l.p, &l.d, NULL));
    const double began = spipe_priv_seconds();
    SPIPE_CHECK(take(&l, ALL + 1, &taken));
    const double took = spipe_priv_seconds() - began;
    loop_free(&l);
    return taken == ALL ? took : 1e9;
}
#endif

/* Two threads, one worker and the loop's own where it helps, take half of the waits or more; four
   workers take less. The least of five loops each, since whatever else runs here slows them down;
   of more where that was not enough. */
static void test_overlap(void) {
#if defined(__SANITIZE_THREAD__)
    tap_skip("four workers take less time than one", "ThreadSanitizer's own work takes longer");
#else
    const double all = 2e-3 * ALL;
    double one = 1e9, four = 1e9;
    int k;
    for (k = 0; k < 5 || (k < 15 && four > 0.7 * one); ++k) {
        one = std::min(one, seconds_with(1));
        four = std::min(four, seconds_with(4));
    }
    tap_ok(one > 0.49 * all && four <= 0.7 * one,
           "%d waits of 2 ms: %.0f ms with one worker, %.0f ms with four", (int)ALL, 1e3 * one,
           1e3 * four);
#endif
}

int main(void) {
    test_epochs();
    test_early(0);
    test_early(3);
    test_damaged(0);
    test_damaged(1);
    test_damaged(4);
    if (pipe_threads()) test_overlap();
    return tap_done();
}
