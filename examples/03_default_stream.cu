/*  03_default_stream.cu -- what "no stream given" means: eight host threads launch a kernel each.

    nvcc -O3 -I.. -o 03_default_stream 03_default_stream.cu && ./03_default_stream
    nvcc -O3 -I.. --default-stream per-thread -o 03_per_thread 03_default_stream.cu
                                                                     (without a GPU: make examples)
    You learn   stream 0 is the legacy stream: it waits for all blocking streams, and they wait for
                it. If the program is built the second way, stream 0 is one stream per host thread.
    Mind        per-thread streams and those of cudaStreamCreate are blocking: they wait for the
                legacy stream if anything, perhaps a library, uses it. Streams made with
                cudaStreamNonBlocking do not wait; spipe_stream_create makes only those. A #define
                in a .cu is too late for the second way: nvcc includes the runtime before line 1.
    Expect      (hostcuda)                        8 kernels of 1 ms   wait for the legacy stream
                    stream 0: the legacy one            ~8.05 ms           yes
                    cudaStreamLegacy                    ~8.05 ms           yes
                    cudaStreamPerThread                 ~1.00 ms           yes
                    a non-blocking stream each          ~1.05 ms           no
                right: the CPU finds the same                                                     */
#include "ex_common.h"

static const int THREADS = 8, SMALL = 4096;
static const size_t BYTES = SMALL * sizeof(unsigned);
static const int LEGACY = 0, PER_THREAD = 1, NON_BLOCKING = 2; /* kinds of streams */
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM                      /* --default-stream per-thread */
static const int stream_0 = PER_THREAD;
#else
static const int stream_0 = LEGACY;
#endif

typedef struct job {
    pthread_t thread;
    cudaStream_t stream, own;
    cudaEvent_t begin, end;
    unsigned *host, *y; /* pinned; device */
} job_t;

static unsigned *x, steps; /* input and scratch; the kernels' length */
static pthread_mutex_t queueing = PTHREAD_MUTEX_INITIALIZER; /* for one thread's calls */
static pthread_cond_t all_queued = PTHREAD_COND_INITIALIZER;
static int queued; /* launches so far */

static void *launch_one(void *user) {
    const job_t *j = (const job_t *)user;
    pthread_mutex_lock(&queueing);
    SPIPE_CHECK(cudaEventRecord(j->begin, j->stream));
    SPIPE_CHECK(ex_busy(j->y, x, steps, SMALL, j->stream));
    SPIPE_CHECK(cudaEventRecord(j->end, j->stream));
    SPIPE_CHECK(cudaMemcpyAsync(j->host, j->y, BYTES, cudaMemcpyDefault, j->stream));
    if (++queued % THREADS == 0) pthread_cond_broadcast(&all_queued);
    while (queued % THREADS != 0) pthread_cond_wait(&all_queued, &queueing);
    pthread_mutex_unlock(&queueing);
    SPIPE_CHECK(cudaStreamSynchronize(j->stream));
    return NULL;
}

/* Eight threads after a kernel of 5 ms in the legacy stream; 1 if the order promised was kept. */
static int run(const char *name, int kind, job_t *jobs, cudaEvent_t *legacy) {
    float begin[THREADS], end[THREADS], free_at, first = 1e30f, soonest = 1e30f, last = 0;
    int right = 1, overlaps = 0;
    for (job_t *j = jobs; j < jobs + THREADS; ++j) memset(j->host, 0, BYTES);
    SPIPE_CHECK(cudaEventRecord(legacy[0], cudaStreamLegacy));
    SPIPE_CHECK(ex_busy(x + SMALL, x + SMALL, 5 * steps, 5 * SMALL, cudaStreamLegacy));
    SPIPE_CHECK(cudaEventRecord(legacy[1], cudaStreamLegacy));
    for (job_t *j = jobs; j < jobs + THREADS; ++j) {
        if (pthread_create(&j->thread, NULL, launch_one, j) != 0) exit(1);
    }
    for (job_t *j = jobs; j < jobs + THREADS; ++j) pthread_join(j->thread, NULL);
    SPIPE_CHECK(cudaDeviceSynchronize());
    SPIPE_CHECK(cudaEventElapsedTime(&free_at, legacy[0], legacy[1]));
    for (int k = 0; k < THREADS; ++k) {
        SPIPE_CHECK(cudaEventElapsedTime(&begin[k], legacy[0], jobs[k].begin));
        SPIPE_CHECK(cudaEventElapsedTime(&end[k], legacy[0], jobs[k].end));
        if (begin[k] < first) first = begin[k];
        if (end[k] < soonest) soonest = end[k];
        if (end[k] > last) last = end[k];
        for (int i = 0; i < k; ++i) overlaps += begin[i] < end[k] && begin[k] < end[i];
        right &= ex_busy_right(jobs[k].host, steps, SMALL);
    }
    const int waits = soonest > free_at; /* else the kernels of 1 ms end before that of 5 ms */
    if (waits) first = free_at;
    printf("    %-36s %6.2f ms          %s\n", name, (double)(last - first), waits ? "yes" : "no");
    return right && (kind != LEGACY || !overlaps) && (kind == NON_BLOCKING || waits);
}

int main(void) {
    job_t jobs[THREADS];
    cudaEvent_t legacy[2];
    ex_begin();
    SPIPE_CHECK(cudaMalloc((void **)&x, 6 * BYTES));
    SPIPE_CHECK(cudaMemset(x, 0, 6 * BYTES));
    steps = ex_busy_steps(x + SMALL, SMALL, 1.0);
    for (cudaEvent_t &e : legacy) SPIPE_CHECK(cudaEventCreate(&e));
    for (job_t &j : jobs) {
        SPIPE_CHECK(spipe_pinned_alloc((void **)&j.host, BYTES));
        SPIPE_CHECK(cudaMalloc((void **)&j.y, BYTES));
        SPIPE_CHECK(spipe_stream_create(&j.own, SPIPE_PRIORITY_DEFAULT));
        for (cudaEvent_t *e : {&j.begin, &j.end}) SPIPE_CHECK(cudaEventCreate(e));
    }
    ex_fill(jobs->host, SMALL);
    SPIPE_CHECK(cudaMemcpy(x, jobs->host, BYTES, cudaMemcpyHostToDevice));
    printf("%38s8 kernels of 1 ms   wait for the legacy stream\n", "");
    for (job_t &j : jobs) j.stream = NULL;
    const char *what = stream_0 == LEGACY ? "stream 0: the legacy one" : "stream 0: the thread's";
    int right = run(what, stream_0, jobs, legacy);
    for (job_t &j : jobs) j.stream = cudaStreamLegacy;
    right &= run("cudaStreamLegacy", LEGACY, jobs, legacy);
    for (job_t &j : jobs) j.stream = cudaStreamPerThread;
    right &= run("cudaStreamPerThread", PER_THREAD, jobs, legacy);
    for (job_t &j : jobs) j.stream = j.own;
    right &= run("a non-blocking stream each", NON_BLOCKING, jobs, legacy);
    for (job_t &j : jobs) {
        SPIPE_CHECK(cudaEventDestroy(j.end));
        SPIPE_CHECK(cudaEventDestroy(j.begin));
        SPIPE_CHECK(cudaStreamDestroy(j.own));
        SPIPE_CHECK(cudaFree(j.y));
        SPIPE_CHECK(spipe_pinned_free(j.host));
    }
    for (cudaEvent_t e : legacy) SPIPE_CHECK(cudaEventDestroy(e));
    SPIPE_CHECK(cudaFree(x));
    return ex_verdict(right);
}
