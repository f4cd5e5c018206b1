/*  test_races.cu -- several threads with pipelines of their own share a stream pool and a worker; a
    pool is leased from a million times; ten thousand pipelines come and go. For ThreadSanitizer,
    and for values, order and memory without it.

    usage: test_races [--all]     without --all a tenth of it                                     */
#include "hostcuda.h"
#include "pipe_common.h"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum {
    SANITIZED = 1
};
#else
enum {
    SANITIZED = 0
};
#endif
enum {
    THREADS = 8,
    N = 1500,
    CHUNK = 100,
    LEASERS = 4
};

static int num_rounds = SANITIZED ? 4 : 10;
static int num_pipelines = SANITIZED ? 300 : 1000;
static long num_leases = SANITIZED ? 20000 : 100000;

/* ---- eight threads ------------------------------------------------------------------------- */
typedef struct shared {
    spipe_stream_pool_t pool;
    spipe_worker_t worker;
    std::atomic<int> wrong;
    int calls; /* by the worker alone, so no lock */
} shared_t;

typedef struct job { /* what one thread asks of the worker */
    shared_t *shared;
    cudaStream_t stream;
    pipe_array_t *y;
    unsigned char copy[64];
    int done;
} job_t;

/* Runs on the worker when the stream got here; calls CUDA, as it may. */
static void look(cudaError_t status, void *user) {
    job_t *j = (job_t *)user;
    j->shared->wrong += status != cudaSuccess;
    ++j->shared->calls;
    memcpy(j->copy, j->y->at, sizeof j->copy); /* after all that was on the stream */
    j->shared->wrong += cudaStreamQuery(j->stream) == cudaErrorInvalidResourceHandle;
    j->done = 1;
}

static cudaError_t keep_running(spipe_desc_t *d, int round, pipe_array_t *x, pipe_array_t *y,
                                job_t *j, pipe_mix_args_t *args) {
    static const spipe_schedule_t schedules[] = {SPIPE_SCHEDULE_ENGINES, SPIPE_SCHEDULE_ZERO_COPY,
                                                 SPIPE_SCHEDULE_SERIAL};
    spipe_pipeline_t *p;
    cudaError_t e;
    *d = spipe_desc_default();
    d->count = N;
    d->chunk = CHUNK;
    d->depth = 3;
    d->threads = (size_t)(round % 2);
    d->staging = SPIPE_STAGING_COPY;
    d->schedule = schedules[round % 3];
    spipe_add_input(d, x->at, 1);
    spipe_add_output(d, y->at, 1);
    spipe_add_stage(d, "mix", pipe_mix_stage, args);
    pipe_poison(*y);
    e = spipe_pipeline_create(&p, d, NULL);
    if (e == cudaSuccess) e = spipe_stream_acquire(&j->shared->pool, &j->stream);
    if (e == cudaSuccess) {
        e = spipe_pipeline_enqueue(p, j->stream);
        /* the worker sees the whole output, whose last chunks the stream alone waits for */
        if (e == cudaSuccess) e = spipe_worker_call(&j->shared->worker, j->stream, look, j);
        spipe_priv_keep_error(&e, spipe_pipeline_wait(p, NULL));
        /* of all threads: so of mine */
        spipe_priv_keep_error(&e, spipe_worker_wait(&j->shared->worker));
        spipe_priv_keep_error(&e, spipe_stream_release(&j->shared->pool, j->stream));
    }
    spipe_priv_keep_error(&e, spipe_pipeline_destroy(p));
    return e;
}

static void one_thread(shared_t *s, int number) {
    pipe_array_t x = pipe_array_new(N, number % PIPE_NUM_MEMORIES);
    pipe_array_t y = pipe_array_new(N, (number + 1) % PIPE_NUM_MEMORIES);
    int round;
    size_t i;
    for (i = 0; i < N; ++i) x.at[i] = (unsigned char)(i * 7 + (size_t)number);
    for (round = 0; round < num_rounds; ++round) {
        job_t j;
        spipe_desc_t d;
        pipe_mix_args_t args = {0, 1, 1};
        memset(&j, 0, sizeof j);
        j.shared = s;
        j.y = &y;
        s->wrong += keep_running(&d, round + number, &x, &y, &j, &args) != cudaSuccess || !j.done;
        for (i = 0; i < N; ++i) s->wrong += y.at[i] != pipe_mix(x.at[i], i);
        for (i = 0; i < sizeof j.copy; ++i) s->wrong += j.copy[i] != pipe_mix(x.at[i], i);
        s->wrong += !pipe_guard_whole(y);
    }
    pipe_free(&x);
    pipe_free(&y);
}

static void test_eight_threads(void) {
    static shared_t s;
    std::vector<std::thread> threads;
    int i;
    SPIPE_CHECK(spipe_stream_pool_create(&s.pool, 3, SPIPE_PRIORITY_DEFAULT)); /* so some wait */
    SPIPE_CHECK(spipe_worker_create(&s.worker));
    for (i = 0; i < THREADS; ++i) threads.push_back(std::thread(one_thread, &s, i));
    for (std::thread &t : threads) t.join();
    SPIPE_CHECK(spipe_worker_wait(&s.worker));
    tap_ok(s.wrong == 0 && s.calls == THREADS * num_rounds,
           "%d threads run %d pipelines of their own over 3 shared streams and one worker", THREADS,
           s.calls);
    SPIPE_CHECK(spipe_worker_destroy(&s.worker));
    SPIPE_CHECK(spipe_stream_pool_destroy(&s.pool));
}

/* ---- leases -------------------------------------------------------------------------------- */
static spipe_stream_pool_t pool;
static std::atomic<int> holders[3], doubly;
static long held[3]; /* without a lock: whoever has the lease is alone */

static void lease(long times, int number) {
    long i;
    for (i = 0; i < times; ++i) {
        cudaStream_t stream = NULL;
        int k = 0;
        if ((i + number) % 16 == 0) {
            while (spipe_stream_try_acquire(&pool, &stream) == SPIPE_ALL_LEASED) {
                std::this_thread::yield();
            }
        } else {
            (void)spipe_stream_acquire(&pool, &stream);
        }
        while (k < 2 && pool.streams[k] != stream) ++k;
        doubly += holders[k]++ != 0;
        ++held[k];
        --holders[k];
        doubly += spipe_stream_release(&pool, stream) != cudaSuccess;
    }
}

static void test_leases(void) {
    std::vector<std::thread> threads;
    int i;
    SPIPE_CHECK(spipe_stream_pool_create(&pool, 3, SPIPE_PRIORITY_DEFAULT));
    for (i = 0; i < LEASERS; ++i) threads.push_back(std::thread(lease, num_leases / LEASERS, i));
    for (std::thread &t : threads) t.join();
    tap_ok(doubly == 0 && held[0] + held[1] + held[2] == num_leases,
           "%ld leases by %d threads, none of a stream that somebody has", num_leases, LEASERS);
    SPIPE_CHECK(spipe_stream_pool_destroy(&pool));
}

/* ---- turns --------------------------------------------------------------------------------- */
/* A source and a sink that take their time, so that a second caller would be met inside. */
typedef struct slow {
    pipe_array_t *x, *y;
    size_t given, taken;
    std::atomic<int> reading, writing, wrong;
    std::atomic<int> *stopped; /* the source: from chunk wait_from on it waits for this */
    size_t wait_from;
} slow_t;

static void take_a_while(void) {
    const struct timespec a_while = {0, 1000000};
    nanosleep(&a_while, NULL);
}

static cudaError_t slow_source(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    slow_t *s = (slow_t *)user;
    const size_t left = N - s->given, n = left < max_count ? left : max_count;
    int patience = 2000;
    s->wrong += s->reading++ != 0;
    take_a_while();
    while (s->stopped && s->given >= s->wait_from * CHUNK && !*s->stopped && --patience) {
        take_a_while();
    }
    memcpy(dst, s->x->at + s->given, n);
    s->given += n;
    *count = n;
    --s->reading;
    return cudaSuccess;
}

static cudaError_t slow_sink(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    slow_t *s = (slow_t *)user;
    s->wrong += s->writing++ != 0;
    s->wrong += first != s->taken;
    take_a_while();
    memcpy(s->y->at + first, src, count);
    s->taken += count;
    --s->writing;
    return cudaSuccess;
}

static void test_turns(void) {
    pipe_array_t x = pipe_array_new(N, PIPE_PAGEABLE), y = pipe_array_new(N, PIPE_PAGEABLE);
    pipe_array_t a = pipe_array_new(N, PIPE_PAGEABLE), b = pipe_array_new(N, PIPE_PAGEABLE);
    pipe_mix_args_t args[2] = {{0, 1, 1}, {2, 3, 1}};
    spipe_desc_t d = spipe_desc_default();
    slow_t s = {&x, &y, 0, 0, {0}, {0}, {0}, NULL, 0};
    size_t i;
    pipe_randomise(x);
    pipe_randomise(a);
    d.count = N;
    d.chunk = CHUNK;
    d.threads = 3; /* the arrays have so many, and whoever fills them fills the source's slot too */
    d.staging = SPIPE_STAGING_COPY;
    spipe_add_source(&d, slow_source, &s, 1, SPIPE_IN_ORDER);
    spipe_add_sink(&d, slow_sink, &s, 1, SPIPE_IN_ORDER);
    spipe_add_input(&d, a.at, 1);
    spipe_add_output(&d, b.at, 1);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args[0]);
    spipe_add_stage(&d, "mix beside", pipe_mix_stage, &args[1]);
    const cudaError_t e = spipe_run(&d, NULL);
    for (i = 0; i < N; ++i) {
        s.wrong += y.at[i] != pipe_mix(x.at[i], i) || b.at[i] != pipe_mix(a.at[i], i);
    }
    tap_ok(e == cudaSuccess && s.wrong == 0 && s.taken == N,
           "a source and a sink are called by one thread at a time and in order, with 3 threads");
    pipe_free(&x);
    pipe_free(&y);
    pipe_free(&a);
    pipe_free(&b);
}

/* It fails while the run asks again and again whether something has. */
static cudaError_t failing_source(spipe_part_t *part, void *user) {
    slow_t *s = (slow_t *)user;
    take_a_while();
    take_a_while();
    if (s->given >= 2 * CHUNK) return cudaErrorOperatingSystem;
    return slow_source(part, user);
}

static void test_late_failure(void) {
    pipe_array_t x = pipe_array_new(N, PIPE_PAGEABLE), y = pipe_array_new(N, PIPE_PAGEABLE);
    pipe_mix_args_t args = {0, 1, 1};
    spipe_desc_t d = spipe_desc_default();
    slow_t s = {&x, &y, 0, 0, {0}, {0}, {0}, NULL, 0};
    spipe_report_t r;
    int round, heard = 0;
    d.count = N;
    d.chunk = CHUNK;
    d.threads = 1;
    spipe_add_source(&d, failing_source, &s, 1, SPIPE_IN_ORDER);
    spipe_add_sink(&d, slow_sink, &s, 1, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    for (round = 0; round < 20; ++round) { /* the lock's absence shows in every second one */
        s.given = s.taken = 0;
        heard += spipe_run(&d, &r) == cudaErrorOperatingSystem && r.failure.chunk == 2;
    }
    tap_ok(heard == 20 && s.wrong == 0, "a failure on another thread is heard: %s",
           r.failure.message);
    pipe_free(&x);
    pipe_free(&y);
}

static int stop_at_once(const spipe_progress_t *p, void *user) {
    std::atomic<int> *stopped = (std::atomic<int> *)user;
    if (p->chunks_done > 0) *stopped = 1;
    return *stopped;
}

/* The stop comes while a later chunk of the wave is being filled: it and those after are not. */
static void test_stop_in_a_wave(void) {
    pipe_array_t x = pipe_array_new(N, PIPE_PAGEABLE), y = pipe_array_new(N, PIPE_PAGEABLE);
    pipe_mix_args_t args = {0, 1, 1};
    spipe_desc_t d = spipe_desc_default();
    std::atomic<int> stopped(0);
    slow_t s = {&x, &y, 0, 0, {0}, {0}, {0}, &stopped, 5};
    spipe_report_t r;
    size_t i;
    pipe_randomise(x);
    pipe_poison(y);
    d.count = N;
    d.chunk = CHUNK;
    d.depth = 4;
    d.threads = 1;
    d.progress = stop_at_once;
    d.progress_user = &stopped;
    spipe_add_source(&d, slow_source, &s, 1, SPIPE_IN_ORDER);
    spipe_add_sink(&d, slow_sink, &s, 1, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    const cudaError_t e = spipe_run(&d, &r);
    for (i = 0; i < s.taken; ++i) s.wrong += y.at[i] != pipe_mix(x.at[i], i);
    tap_ok(e == SPIPE_STOPPED && s.wrong == 0 && s.taken >= r.failure.chunks_whole * CHUNK,
           "a stop asked for in a wave: of %zu elements handed out %d are wrong", s.taken,
           s.wrong.load());
    pipe_free(&x);
    pipe_free(&y);
}

/* ---- enqueued here and there --------------------------------------------------------------- */
/* Runs of one pipeline follow each other whatever their streams, and wait is for all of them. */
static void test_two_streams(void) {
    spipe_pipeline_t *p;
    pipe_array_t x = pipe_array_new(N, PIPE_PINNED);
    pipe_mix_args_t args = {0, 0, 1};
    spipe_desc_t d = spipe_desc_default();
    cudaStream_t streams[2];
    unsigned char want[N];
    int k, round, wrong = 0, refused = 0;
    size_t i;
    d.count = N;
    d.chunk = CHUNK;
    d.depth = 3;
    spipe_add_inout(&d, x.at, 1);
    spipe_add_stage(&d, "mix in place", pipe_mix_stage, &args);
    SPIPE_CHECK(spipe_stream_create(&streams[0], SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_stream_create(&streams[1], SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (round = 0; round < 20; ++round) {
        pipe_randomise(x);
        memcpy(want, x.at, N);
        for (k = 0; k < 4; ++k) {
            refused += spipe_pipeline_enqueue(p, streams[k % 2]) != cudaSuccess;
            for (i = 0; i < N; ++i) want[i] = pipe_mix(want[i], i);
        }
        refused += spipe_pipeline_wait(p, NULL) != cudaSuccess;
        for (i = 0; i < N; ++i) wrong += x.at[i] != want[i];
    }
    tap_ok(refused == 0 && wrong == 0,
           "runs enqueued on two streams in turn follow each other, "
           "and wait waits for all: %d wrong",
           wrong);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(cudaStreamDestroy(streams[0]));
    SPIPE_CHECK(cudaStreamDestroy(streams[1]));
    pipe_free(&x);
}

/* ---- ten thousand -------------------------------------------------------------------------- */
static long resident_kib(void) {
    long pages = 0, all;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &all, &pages) != 2) pages = 0;
    if (f) fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void test_many(void) {
    spipe_pipeline_t *p;
    pipe_array_t x = pipe_array_new(N, PIPE_PINNED), y = pipe_array_new(N, PIPE_PAGEABLE);
    pipe_mix_args_t args = {0, 1, 1};
    spipe_desc_t d = spipe_desc_default();
    long before = 0, after;
    int i, wrong = 0;
    size_t k;
    pipe_randomise(x);
    d.count = N;
    d.chunk = 500;
    d.depth = 2;
    d.threads = 1;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    for (i = 0; i < num_pipelines; ++i) {
        pipe_poison(y);
        wrong += spipe_pipeline_create(&p, &d, NULL) != cudaSuccess;
        wrong += spipe_pipeline_run(p, NULL) != cudaSuccess;
        wrong += spipe_pipeline_destroy(p) != cudaSuccess;
        for (k = 0; k < N; ++k) wrong += y.at[k] != pipe_mix(x.at[k], k);
        if (i + 1 == num_pipelines / 10) before = resident_kib();
    }
    after = resident_kib();
    tap_note("%ld KiB resident after %d, %ld KiB after %d", before, num_pipelines / 10, after,
             num_pipelines);
    tap_ok(wrong == 0, "%d pipelines are made, run and destroyed", num_pipelines);
    if (SANITIZED)
        tap_skip("memory stays flat", "a sanitizer keeps what is freed");
    else
        tap_ok(before > 0 && after - before < 512, "memory stays flat: %ld KiB more",
               after - before);
    (void)cudaDeviceSynchronize();
    pipe_free(&x);
    pipe_free(&y);
    tap_ok(hostcuda_leaks(NULL) == 0, "and nothing of them is left");
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--all") == 0) {
        num_rounds = 50;
        num_leases = 1000000;
        num_pipelines = 10000;
    }
    test_eight_threads();
    test_leases();
    test_turns();
    test_late_failure();
    test_stop_in_a_wave();
    test_two_streams();
    test_many();
    return tap_done();
}
