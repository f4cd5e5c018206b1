/*  test_chunks_whole.cu -- a kernel fails while the host is far ahead: chunks_whole counts the
    chunks that were seen whole before it, and the message names a range that has the failed
    chunk. With several hundred chunks, for each schedule, each in a process of its own, because
    the error ends CUDA's work. */
#include "pipe_common.h"

#if defined(__HOSTCUDA__)
#include "hostcuda.h"
#endif
#if defined(_WIN32)
int main(void) {
    tap_skip("chunks_whole is exact when a kernel fails", "needs fork");
    return tap_done();
}
#else
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CHUNK = 1000,
    CHUNKS = 400,
    N = CHUNK * CHUNKS,
    BAD = 30
};

/* The bad chunk's kernel waits for the flag, and fails then. */
static volatile int *flag;
static size_t called; /* chunks that the stage was called for; atomic */

static __host__ __device__ int raised(volatile int *wait) {
#if defined(__CUDA_ARCH__)
    return *wait;
#else
    return __atomic_load_n(wait, __ATOMIC_SEQ_CST);
#endif
}

static __global__ void add_one(const unsigned char *x, unsigned char *y, size_t n,
                               volatile int *wait) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    while (wait && !raised(wait)) continue;
#if defined(__CUDA_ARCH__)
    if (wait) __trap();
#endif
    if (i < n) y[i] = (unsigned char)(x[i] + 1);
}

static cudaError_t launch(const spipe_chunk_t *c, volatile int *wait) {
    return SPIPE_LAUNCH(add_one, spipe_blocks(c->count, 256), 256, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned char), SPIPE_BUF(c, 1, unsigned char),
                        c->count, wait);
}

static cudaError_t add_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    __atomic_store_n(&called, c->index + 1, __ATOMIC_SEQ_CST);
    /* So that no run waits for ever. */
    if (c->index == CHUNKS - 1) __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
    return launch(c, c->index == BAD ? flag : NULL);
}

static cudaError_t again_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
#if defined(__HOSTCUDA__)
    if (c->index == BAD) hostcuda_fail_async("kernel", 1, cudaErrorIllegalAddress);
#endif
    return launch(c, NULL);
}

/* Raises the flag once the host does not get any further: it waits for the bad chunk. The system
   may hold it up as well, but hardly for 200 ms. */
static void *raise_flag(void *user) {
    size_t before = 0, now = 1;
    int looks = 0; /* at an unchanged number */
    while (looks < 4 || now <= BAD) {
        const struct timespec pause = {0, 50000000};
        nanosleep(&pause, NULL);
        before = now;
        now = __atomic_load_n(&called, __ATOMIC_SEQ_CST);
        looks = now == before ? looks + 1 : 0;
    }
    __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
    return user;
}

/* Chunks from the first on that are as they should be. */
static size_t count_whole(const unsigned char *x, const unsigned char *y) {
    size_t i;
    for (i = 0; i < N && y[i] == (unsigned char)(x[i] + 1); ++i) continue;
    return i / CHUNK;
}

static int run_once(spipe_schedule_t schedule, size_t depth, int progress) {
    pipe_array_t x = pipe_array_new(N, PIPE_PINNED), y = pipe_array_new(N, PIPE_PINNED);
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    pthread_t raiser;
    void *at = NULL;
    size_t from = 0, to = 0, whole;
    const char *range;
    cudaError_t e;
    SPIPE_CHECK(spipe_pinned_alloc(&at, sizeof *flag));
    flag = (volatile int *)at;
    *flag = 0;
    pipe_randomise(x);
    pipe_poison(y);
    d.count = N;
    d.chunk = CHUNK;
    d.depth = depth;
    d.schedule = schedule;
    if (progress)
        d.progress = [](const spipe_progress_t *, void *) {
            return 0;
        };
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "add", add_stage, NULL);
    spipe_add_stage(&d, "again", again_stage, NULL);
    if (pthread_create(&raiser, NULL, raise_flag, NULL) != 0) exit(99);
    e = spipe_run(&d, &r);
    (void)pthread_join(raiser, NULL);
    whole = count_whole(x.at, y.at);
    range = strstr(r.failure.message, "in one of the chunks ");
    if (range) (void)!sscanf(range, "in one of the chunks %zu to %zu", &from, &to);
    printf("# whole %zu, said %zu; %s\n", whole, r.failure.chunks_whole, r.failure.message);
    pipe_free(&x);
    pipe_free(&y);
    (void)spipe_pinned_free(at); /* which may report the error once more */
    if (e == cudaSuccess || !range || from > BAD || to < BAD || whole > BAD) return 0;
    if (r.chunks_done != r.failure.chunks_whole) return 0;
    if (r.count_done != r.chunks_done * CHUNK) return 0;
    /* Where nobody asks for progress, the ends of 16 chunks are recorded at once. */
    return r.chunks_done == (progress ? BAD : BAD / 16 * 16);
}

static int in_child(spipe_schedule_t schedule, size_t depth, int progress) {
    int status = 0;
    pid_t child;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        int good;
        (void)alarm(60);
        good = run_once(schedule, depth, progress);
        fflush(stdout);
#if defined(__HOSTCUDA__)
        exit(!good);
#else
        _exit(!good); /* CUDA's own clean-up may not survive the error */
#endif
    }
    return waitpid(child, &status, 0) == child && status == 0;
}

int main(void) {
    static const spipe_schedule_t schedules[] = {SPIPE_SCHEDULE_ENGINES, SPIPE_SCHEDULE_SERIAL};
    static const size_t depths[] = {2, 3, 4, 16};
    size_t s, k;
    if (pipe_sanitized()) {
        tap_skip("chunks_whole is exact when a kernel fails", "compute-sanitizer would report it");
        SPIPE_CHECK(cudaFree(NULL)); /* it wants to see CUDA used */
        return tap_done();
    }
    for (s = 0; s < sizeof schedules / sizeof *schedules; ++s) {
        for (k = 0; k < sizeof depths / sizeof *depths; ++k) {
            tap_ok(
                in_child(schedules[s], depths[k], 0),
                "%s, %zu slots: chunks_whole is exact, and the range holds the chunk that failed",
                spipe_schedule_name(schedules[s]), depths[k]);
        }
        tap_ok(in_child(schedules[s], 4, 1), "%s: the same with a progress callback",
               spipe_schedule_name(schedules[s]));
    }
    return tap_done();
}
#endif
