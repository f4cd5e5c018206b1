/*  test_staging.cu -- pageable memory through pinned slots: whatever the stage's speed, the
    array's memory and the number of threads, no data is torn, lost or overtaken. */
#include <pthread.h>

#include <atomic>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pipe_common.h"

enum {
    CHUNK = 3001,
    CHUNKS = 40,
    N = CHUNK * CHUNKS + 13
};

static size_t num_wrong(const unsigned char *x, pipe_array_t y) {
    size_t i, wrong = !pipe_guard_whole(y);
    for (i = 0; i < N; ++i) wrong += y.at[i] != pipe_mix(x[i], i);
    return wrong;
}

/* ---- The stage's pace ------------------------------------------------------------------------ */

typedef struct pace {
    pipe_mix_args_t args;
    int slow;        /* every chunk takes a millisecond longer */
    size_t stuck_at; /* this one waits until it is let go */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int free, waits;           /* under the lock */
    std::atomic<size_t> given; /* elements that the source gave */
} pace_t;

static void CUDART_CB linger(void *user) {
    (void)user;
    usleep(1000);
}

static void CUDART_CB get_stuck(void *user) {
    pace_t *p = (pace_t *)user;
    pthread_mutex_lock(&p->lock);
    p->waits = 1;
    pthread_cond_broadcast(&p->changed);
    while (!p->free) pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

static cudaError_t paced_stage(const spipe_chunk_t *c, void *user) {
    pace_t *p = (pace_t *)user;
    SPIPE_TRY(pipe_mix_stage(c, &p->args));
    if (p->slow) SPIPE_TRY(spipe_host_call(c->stream, linger, NULL));
    if (c->index == p->stuck_at) SPIPE_TRY(spipe_host_call(c->stream, get_stuck, p));
    return cudaSuccess;
}

static cudaError_t numbers(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    pace_t *p = (pace_t *)user;
    const size_t first = p->given;
    size_t i;
    for (i = 0; i < max_count && first + i < N; ++i) {
        ((unsigned char *)dst)[i] = (unsigned char)((first + i) * 11);
    }
    p->given += i;
    *count = i;
    return cudaSuccess;
}

/* Lets the stuck stage go, and says how far the source had run ahead by then. */
static void *free_it(void *arg) {
    pace_t *p = (pace_t *)arg;
    size_t ahead;
    pthread_mutex_lock(&p->lock);
    while (!p->waits) pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
    usleep(100000);
    ahead = p->given;
    pthread_mutex_lock(&p->lock);
    p->free = 1;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return (void *)ahead;
}

static void set_up(pace_t *p) {
    p->args.in = 0;
    p->args.out = 1;
    p->args.elem_bytes = 1;
    p->stuck_at = SPIPE_AUTO;
    p->slow = p->free = p->waits = 0;
    p->given = 0;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
}

static void test_pace(int slow, int stuck, size_t threads) {
    static unsigned char reference[N];
    pace_t *p = new pace_t();
    pipe_array_t y = pipe_array_new(N, PIPE_PAGEABLE);
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    pthread_t helper;
    void *ahead = NULL;
    size_t i;
    set_up(p);
    p->slow = slow;
    if (stuck) p->stuck_at = 7;
    for (i = 0; i < N; ++i) reference[i] = (unsigned char)(i * 11);
    pipe_poison(y);
    d.count = N;
    d.chunk = CHUNK;
    d.depth = 5;
    d.threads = threads;
    d.staging = SPIPE_STAGING_COPY;
    spipe_add_source(&d, numbers, p, 1, SPIPE_IN_ORDER);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "paced", paced_stage, p);
    const char *pace = slow ? "slow" : "fast";
    if (stuck && pthread_create(&helper, NULL, free_it, p) != 0) exit(99);
    SPIPE_CHECK_RUN(&d, &r);
    if (stuck) pthread_join(helper, &ahead);
    tap_ok(num_wrong(reference, y) == 0 && r.chunks_done == CHUNKS + 1,
           "a %s stage, %zu threads: every element arrives", stuck ? "stuck" : pace, threads);
    if (stuck) {
        tap_ok((size_t)ahead >= 8 * CHUNK && (size_t)ahead <= (7 + 2 * 5) * CHUNK,
               "meanwhile the source filled the slots, pinned and on the device, and no more");
    }
    pipe_free(&y);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->changed);
    delete p;
}

/* ---- The array's kind ------------------------------------------------------------------------ */

static int run_from(const unsigned char *x, pipe_array_t y, spipe_staging_t staging) {
    pipe_mix_args_t args = {0, 1, 1};
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    pipe_poison(y);
    d.count = N;
    d.chunk = CHUNK;
    d.staging = staging;
    spipe_add_input(&d, x, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    if (spipe_run(&d, &r) != cudaSuccess) tap_note("%s", r.failure.message);
    return r.failure.error == cudaSuccess && num_wrong(x, y) == 0;
}

static void test_kinds(void) {
    static const char *const names[] = {"auto", "copy", "register", "direct"};
    pipe_array_t x = pipe_array_new(N, PIPE_UNALIGNED), y = pipe_array_new(N, PIPE_UNALIGNED);
    FILE *f = tmpfile();
    int s;
    pipe_randomise(x);
    if (!f || fwrite(x.at, 1, N, f) != N || fflush(f) != 0) exit(99);
    const size_t bytes = (N + 4095) / 4096 * 4096;
    void *file = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fileno(f), 0);
    unsigned char *read_only = (unsigned char *)mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (file == MAP_FAILED || read_only == MAP_FAILED) exit(99);
    memcpy(read_only, x.at, N);
    if (mprotect(read_only, bytes, PROT_READ) != 0) exit(99);
    for (s = SPIPE_STAGING_AUTO; s <= SPIPE_STAGING_DIRECT; ++s) {
        const spipe_staging_t staging = (spipe_staging_t)s;
        tap_ok(run_from(x.at, y, staging), "arrays one byte off, %s", names[s]);
        tap_ok(run_from((unsigned char *)file, y, staging), "a file mapped for reading, %s",
               names[s]);
        tap_ok(run_from(read_only, y, staging), "read-only memory, %s", names[s]);
    }
    munmap(file, bytes);
    munmap(read_only, bytes);
    fclose(f);
    pipe_free(&x);
    pipe_free(&y);
}

/* ---- Large copies ---------------------------------------------------------------------------- */

/* From 64 KiB on stores pass the caches, in pieces of 16 bytes: what lies before and behind those
   must be there at every alignment, and nothing beyond. */
static void test_streaming_copy(void) {
    enum {
        MOST = 65536 + 33,
        GUARD = 64
    };

    static const size_t sizes[] = {1, 65535, 65536, 65537, 65536 + 15, 65536 + 16, MOST};
    unsigned char *from = (unsigned char *)malloc(MOST + GUARD);
    unsigned char *to = (unsigned char *)malloc(MOST + 2 * GUARD);
    size_t k, n, wrong = 0;
    size_t i, at;
    if (!from || !to) exit(99);
    for (i = 0; i < MOST + GUARD; ++i) from[i] = (unsigned char)(pipe_random() | 1);
    for (k = 0; k < sizeof sizes / sizeof *sizes; ++k) {
        for (at = 0; at < 32; ++at) {
            const unsigned char *source = from + at * 5 % 16;
            n = sizes[k];
            memset(to, 0, MOST + 2 * GUARD);
            spipe_priv_copy(to + GUARD / 2 + at, source, n);
            wrong += memcmp(to + GUARD / 2 + at, source, n) != 0;
            for (i = 0; i < GUARD / 2 + at; ++i) wrong += to[i] != 0;
            for (i = GUARD / 2 + at + n; i < MOST + 2 * GUARD; ++i) wrong += to[i] != 0;
        }
    }
    tap_ok(wrong == 0, "copies of 64 KiB and more are whole from and to every alignment");
    free(from);
    free(to);
}

/* The same in runs: chunks of an odd size, halos before them, arrays at every alignment. */
static void test_large_chunks(void) {
    enum {
        BIG = 300001,
        BIG_CHUNK = 99991 /* or 64 KiB, from where on stores pass the caches */
    };

    static const size_t threads[] = {0, 1, 2, 4};
    unsigned char *x = (unsigned char *)malloc(BIG + 64), *y = (unsigned char *)malloc(BIG + 128);
    pipe_mix_args_t args = {0, 1, 1};
    size_t i, at, wrong = 0;
    if (!x || !y) exit(99);
    for (i = 0; i < BIG + 64; ++i) x[i] = (unsigned char)pipe_random();
    for (at = 0; at < 64; ++at) {
        unsigned char *out = y + 32 + at * 5 % 64;
        spipe_desc_t d = spipe_desc_default();
        memset(y, 0xA5, BIG + 128);
        d.count = BIG;
        d.chunk = at % 3 ? BIG_CHUNK : 65536;
        d.threads = threads[at / 2 % 4];
        d.staging = SPIPE_STAGING_COPY;
        spipe_add_input(&d, x + at, 1);
        if (at % 2) spipe_set_halo(&d, 0, at, 3, SPIPE_EDGE_CLAMP);
        spipe_add_output(&d, out, 1);
        spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
        SPIPE_CHECK_RUN(&d, NULL);
        for (i = 0; i < BIG; ++i) wrong += out[i] != pipe_mix(x[at + i], i);
        for (i = 0; y + i < out; ++i) wrong += y[i] != 0xA5;
        for (i = BIG; out + i < y + BIG + 128; ++i) wrong += out[i] != 0xA5;
    }
    tap_ok(wrong == 0, "large chunks of arrays at every alignment arrive whole, and nothing else");
    free(x);
    free(y);
}

/* ---- Threads that cannot be had -------------------------------------------------------------- */

static void test_few_threads(void) {
    pipe_array_t x = pipe_array_new(N, PIPE_PAGEABLE), y = pipe_array_new(N, PIPE_PAGEABLE);
    pipe_mix_args_t args = {0, 1, 1};
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    spipe_report_t r;
    size_t wrong, started;
    int k;
    pipe_randomise(x);
    d.count = N;
    d.chunk = CHUNK;
    d.threads = 3;
    d.staging = SPIPE_STAGING_COPY;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    for (k = 0; k <= 6; ++k) {
        pipe_poison(y);
        pipe_threads_left = k;
        SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
        SPIPE_CHECK(spipe_pipeline_run(p, &r));
        started = pipe_threads() && r.staged ? r.fill_threads + r.drain_threads : (size_t)k;
        wrong = num_wrong(x.at, y);
        SPIPE_CHECK(spipe_pipeline_destroy(p));
        tap_ok(wrong == 0 && started == (size_t)k, "%d of 6 copy threads can be started", k);
    }
    pipe_threads_left = -1;
    pipe_free(&x);
    pipe_free(&y);
}

int main(void) {
    size_t threads;
    for (threads = 0; threads < 4; ++threads) {
        test_pace(0, 0, threads);
        test_pace(1, 0, threads);
        test_pace(0, 1, threads);
    }
    test_kinds();
    test_streaming_copy();
    test_large_chunks();
    test_few_threads();
    return tap_done();
}
