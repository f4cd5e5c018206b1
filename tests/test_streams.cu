/*  test_streams.cu -- the parts below the pipeline: device facts, streams, pools, scopes, events,
    timers, pinned memory, host calls, the worker, channels. */
#include "pipe_common.h"

static __global__ void add_kernel(int *x, int v, int times, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int k = 0; k < times; ++k) x[i] = (int)((unsigned)x[i] * 3u + (unsigned)v);
}

static cudaError_t add(cudaStream_t s, int *x, int v, size_t n) {
    return SPIPE_LAUNCH(add_kernel, spipe_blocks(n, 128), 128, 0, s, x, v, 1, n);
}

/* A value that is none of the enumeration's, as a damaged description would hold. */
static spipe_priority_t no_priority(void) {
    const int none = 7;
    spipe_priority_t p;
    memcpy(&p, &none, sizeof p);
    return p;
}

static void test_device(void) {
    spipe_device_t f;
    int before = -1, low = 1, medium = 1, high = 1, normal = 1, k;
    tap_ok(spipe_device_get(&f, -1) == cudaSuccess && f.name[0] && f.num_sms > 0 &&
               f.memory_bytes > 0 && f.copy_engines >= 1 && f.priority_greatest <= f.priority_least,
           "the current device has a name, SMs, memory and copy engines: %s", f.name);
    tap_ok(spipe_device_get(NULL, 0) == cudaErrorInvalidValue, "facts NULL is refused");
    tap_ok(spipe_device_get(&f, 4711) != cudaSuccess && f.name[0] == 0,
           "so is a device that is not");
    (void)cudaGetLastError();
    SPIPE_CHECK(cudaGetDevice(&before));
    SPIPE_CHECK(spipe_device_get(&f, before));
    SPIPE_CHECK(spipe_priority_value(SPIPE_PRIORITY_LOW, &low));
    SPIPE_CHECK(spipe_priority_value(SPIPE_PRIORITY_MEDIUM, &medium));
    SPIPE_CHECK(spipe_priority_value(SPIPE_PRIORITY_HIGH, &high));
    SPIPE_CHECK(spipe_priority_value(SPIPE_PRIORITY_DEFAULT, &normal));
    tap_ok(low == f.priority_least && high == f.priority_greatest && high <= medium &&
               medium <= low && normal == 0,
           "priority names are the ends and the middle of the range");
    tap_ok(spipe_priority_value(no_priority(), &k) == cudaErrorInvalidValue &&
               spipe_priority_value(SPIPE_PRIORITY_LOW, NULL) == cudaErrorInvalidValue,
           "a priority that is not one is refused");
}

static void test_stream(void) {
    cudaStream_t s = NULL;
    unsigned flags = 0;
    int priority = 99, high = 0;
    SPIPE_CHECK(spipe_priority_value(SPIPE_PRIORITY_HIGH, &high));
    tap_ok(spipe_stream_create(&s, SPIPE_PRIORITY_HIGH) == cudaSuccess && s, "a stream is made");
    SPIPE_CHECK(cudaStreamGetFlags(s, &flags));
    SPIPE_CHECK(cudaStreamGetPriority(s, &priority));
    tap_ok(flags == cudaStreamNonBlocking, "it does not wait for the legacy default stream");
    tap_ok(priority == high, "it has the priority asked for");
    SPIPE_CHECK(cudaStreamDestroy(s));
    tap_ok(spipe_stream_create(NULL, SPIPE_PRIORITY_LOW) == cudaErrorInvalidValue &&
               spipe_stream_create(&s, no_priority()) == cudaErrorInvalidValue && !s,
           "NULL and a priority that is none are refused");
}

static void test_wait(void) {
    enum {
        N = 2000,
        ROUNDS = 20
    };

    cudaStream_t a, b;
    int *x, k, wrong = 0;
    static int host[N];
    int expect = 0;
    SPIPE_CHECK(spipe_stream_create(&a, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_stream_create(&b, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(cudaMalloc((void **)&x, sizeof host));
    SPIPE_CHECK(cudaMemsetAsync(x, 0, sizeof host, a));
    for (k = 0; k < ROUNDS; ++k) {
        SPIPE_CHECK(add(a, x, k, N));
        SPIPE_CHECK(spipe_stream_wait(b, a));
        SPIPE_CHECK(add(b, x, -k, N));
        SPIPE_CHECK(spipe_stream_wait(a, b));
        expect = (int)(((unsigned)expect * 3u + (unsigned)k) * 3u - (unsigned)k);
    }
    SPIPE_CHECK(cudaMemcpyAsync(host, x, sizeof host, cudaMemcpyDeviceToHost, a));
    SPIPE_CHECK(cudaStreamSynchronize(a));
    for (k = 0; k < N; ++k) wrong += host[k] != expect;
    tap_ok(wrong == 0, "one stream waits for another, back and forth");
    SPIPE_CHECK(cudaFree(x));
    SPIPE_CHECK(cudaStreamDestroy(a));
    SPIPE_CHECK(cudaStreamDestroy(b));
}

/* A wait for a capturing stream joins its capture, and the wait back leaves it. */
static void test_wait_captured(void) {
    cudaStream_t a, b;
    cudaGraph_t graph = NULL;
    size_t nodes = 0;
    cudaError_t e;
    int *x;
    SPIPE_CHECK(spipe_stream_create(&a, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_stream_create(&b, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(cudaMalloc((void **)&x, 64));
    SPIPE_CHECK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    e = spipe_stream_wait(b, a);
    if (e == cudaSuccess) e = cudaMemsetAsync(x, 0, 64, b);
    if (e == cudaSuccess) e = spipe_stream_wait(a, b);
    spipe_priv_keep_error(&e, cudaStreamEndCapture(a, &graph));
    if (e == cudaSuccess) e = cudaGraphGetNodes(graph, NULL, &nodes);
    tap_ok(e == cudaSuccess && nodes == 1, "a wait for a capturing stream joins its capture");
    (void)cudaGetLastError();
    if (graph) SPIPE_CHECK(cudaGraphDestroy(graph));
    SPIPE_CHECK(cudaFree(x));
    SPIPE_CHECK(cudaStreamDestroy(a));
    SPIPE_CHECK(cudaStreamDestroy(b));
}

static void test_pool(void) {
    spipe_stream_pool_t pool, dead;
    cudaStream_t s[3], t;
    spipe_scope_t scope;
    int k;
    memset(&dead, 0, sizeof dead);
    tap_ok(spipe_stream_pool_create(&pool, 0, SPIPE_PRIORITY_LOW) == cudaErrorInvalidValue &&
               spipe_stream_pool_create(NULL, 1, SPIPE_PRIORITY_LOW) == cudaErrorInvalidValue,
           "a pool of no stream is refused");
    SPIPE_CHECK(spipe_stream_pool_create(&pool, 3, SPIPE_PRIORITY_LOW));
    for (k = 0; k < 3; ++k) SPIPE_CHECK(spipe_stream_acquire(&pool, &s[k]));
    tap_ok(s[0] != s[1] && s[1] != s[2] && s[0] != s[2], "leases are exclusive");
    tap_ok(spipe_stream_try_acquire(&pool, &t) == SPIPE_ALL_LEASED && !t,
           "try_acquire does not wait when all are leased");
    tap_ok(spipe_stream_release(&pool, s[1]) == cudaSuccess &&
               spipe_stream_release(&pool, s[1]) == cudaErrorInvalidResourceHandle &&
               spipe_stream_release(&pool, NULL) == cudaErrorInvalidResourceHandle,
           "a stream is given back once");
    tap_ok(spipe_stream_try_acquire(&pool, &t) == cudaSuccess && t == s[1], "and lent again");
    for (k = 0; k < 3; ++k) SPIPE_CHECK(spipe_stream_release(&pool, s[k]));
    SPIPE_CHECK(spipe_stream_next(&pool, &s[0]));
    SPIPE_CHECK(spipe_stream_next(&pool, &s[1]));
    SPIPE_CHECK(spipe_stream_next(&pool, &s[2]));
    SPIPE_CHECK(spipe_stream_next(&pool, &t));
    tap_ok(s[0] != s[1] && s[1] != s[2] && s[0] != s[2] && t == s[0], "round robin goes round");
    tap_ok(spipe_stream_acquire(&dead, &t) == cudaErrorInvalidValue &&
               spipe_stream_release(&dead, t) == cudaErrorInvalidValue &&
               spipe_stream_next(&dead, &t) == cudaErrorInvalidValue,
           "a dead pool is refused");
    SPIPE_CHECK(spipe_scope_begin(&scope, &pool, s[0]));
    tap_ok(scope.stream != NULL, "a scope leases a stream");
    tap_ok(spipe_scope_end(&scope) == cudaSuccess && spipe_scope_end(&scope) == cudaSuccess,
           "a scope may end twice");
    tap_ok(spipe_stream_pool_destroy(&pool) == cudaSuccess &&
               spipe_stream_pool_destroy(&pool) == cudaSuccess &&
               spipe_stream_pool_destroy(NULL) == cudaSuccess,
           "a pool may be destroyed twice");
}

/* Leases idle streams first: one with work on it is lent last. */
static void block_until(void *user) {
    spipe_priv_sync_t *s = (spipe_priv_sync_t *)((void **)user)[0];
    int *go = (int *)((void **)user)[1];
    spipe_priv_lock(s);
    while (!*go) spipe_priv_wait(s);
    spipe_priv_unlock(s);
}

static void test_idle_first(void) {
    spipe_stream_pool_t pool;
    cudaStream_t first, second, third;
    int go = 0;
    void *gate[2];
    SPIPE_CHECK(spipe_stream_pool_create(&pool, 2, SPIPE_PRIORITY_DEFAULT));
    gate[0] = spipe_priv_sync_create();
    gate[1] = &go;
    SPIPE_CHECK(spipe_stream_acquire(&pool, &first));
    SPIPE_CHECK(spipe_host_call(first, block_until, gate));
    SPIPE_CHECK(spipe_stream_release(&pool, first));
    SPIPE_CHECK(spipe_stream_acquire(&pool, &second));
    SPIPE_CHECK(spipe_stream_acquire(&pool, &third));
    tap_ok(second != first && third == first, "an idle stream is lent before a busy one");
    spipe_priv_lock((spipe_priv_sync_t *)gate[0]);
    go = 1;
    spipe_priv_wake((spipe_priv_sync_t *)gate[0]);
    spipe_priv_unlock((spipe_priv_sync_t *)gate[0]);
    SPIPE_CHECK(cudaStreamSynchronize(first));
    spipe_priv_sync_destroy((spipe_priv_sync_t *)gate[0]);
    SPIPE_CHECK(spipe_stream_release(&pool, second));
    tap_ok(spipe_stream_pool_destroy(&pool) == cudaErrorNotPermitted &&
               spipe_stream_release(&pool, third) == cudaSuccess &&
               spipe_stream_pool_destroy(&pool) == cudaSuccess,
           "a pool is not destroyed while one of its streams is leased");
}

/* Many threads share a pool of two; a counter a stream shows that nobody else had it. */
typedef struct user {
    spipe_stream_pool_t *pool;
    int *holders; /* one a stream */
    int rounds, clashes;
} user_t;

static int stream_number(const spipe_stream_pool_t *pool, cudaStream_t s) {
    return s == pool->streams[0] ? 0 : 1;
}

static void *use_pool(void *arg) {
    user_t *u = (user_t *)arg;
    int k;
    for (k = 0; k < u->rounds; ++k) {
        cudaStream_t s;
        if (spipe_stream_acquire(u->pool, &s) != cudaSuccess) ++u->clashes;
        if (++u->holders[stream_number(u->pool, s)] != 1) ++u->clashes; /* a race if shared */
        --u->holders[stream_number(u->pool, s)];
        if (spipe_stream_release(u->pool, s) != cudaSuccess) ++u->clashes;
    }
    return NULL;
}

static void test_pool_threads(void) {
    enum {
        THREADS = 6
    };

    spipe_stream_pool_t pool;
    user_t users[THREADS];
    void *threads[THREADS];
    int holders[2] = {0, 0}, k, clashes = 0;
    SPIPE_CHECK(spipe_stream_pool_create(&pool, 2, SPIPE_PRIORITY_DEFAULT));
    for (k = 0; k < THREADS; ++k) {
        const user_t u = {&pool, holders, 500, 0};
        users[k] = u;
        threads[k] = spipe_priv_thread_start(use_pool, &users[k]);
    }
    for (k = 0; k < THREADS; ++k) {
        spipe_priv_thread_join(threads[k]);
        clashes += users[k].clashes;
    }
    tap_ok(clashes == 0, "six threads share a pool of two streams, one holder each at a time");
    SPIPE_CHECK(spipe_stream_pool_destroy(&pool));
}

static void test_events(void) {
    spipe_event_pool_t pool;
    cudaEvent_t e[20], timed;
    spipe_timer_t timer, dead;
    cudaStream_t s;
    float ms = -1.0f, same = 0.0f;
    int *x, k, distinct = 1;
    memset(&dead, 0, sizeof dead);
    SPIPE_CHECK(spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(cudaMalloc((void **)&x, 1 << 20));
    SPIPE_CHECK(cudaMemset(x, 0, 1 << 20));
    SPIPE_CHECK(cudaDeviceSynchronize()); /* cudaMemset does not wait, s does not wait for it */
    SPIPE_CHECK(spipe_event_create(&timed));
    SPIPE_CHECK(cudaEventRecord(timed, s));
    SPIPE_CHECK(cudaEventSynchronize(timed));
    tap_ok(cudaEventElapsedTime(&ms, timed, timed) != cudaSuccess, "events have no time stamp");
    (void)cudaGetLastError();
    SPIPE_CHECK(cudaEventDestroy(timed));
    SPIPE_CHECK(spipe_event_pool_create(&pool));
    for (k = 0; k < 20; ++k) {
        SPIPE_CHECK(spipe_event_acquire(&pool, &e[k]));
        distinct &= k == 0 || e[k] != e[k - 1];
    }
    tap_ok(distinct, "an event pool grows as needed");
    for (k = 0; k < 20; ++k) SPIPE_CHECK(spipe_event_release(&pool, e[k]));
    tap_ok(spipe_event_release(&pool, e[0]) == cudaErrorInvalidValue,
           "more events than it gave are not taken back");
    SPIPE_CHECK(spipe_event_acquire(&pool, &e[0]));
    tap_ok(pool.num_total == 20, "released events are used again");
    SPIPE_CHECK(spipe_event_release(&pool, e[0]));
    tap_ok(spipe_event_pool_destroy(&pool) == cudaSuccess &&
               spipe_event_pool_destroy(&pool) == cudaSuccess,
           "an event pool may be destroyed twice");
    SPIPE_CHECK(spipe_timer_create(&timer));
    SPIPE_CHECK(spipe_timer_start(&timer, s));
    for (k = 0; k < 10; ++k) SPIPE_CHECK(add(s, x, 1, (1 << 20) / sizeof *x));
    SPIPE_CHECK(spipe_timer_stop(&timer, s));
    SPIPE_CHECK(spipe_timer_ms(&timer, &ms));
    SPIPE_CHECK(spipe_timer_ms(&timer, &same));
    tap_ok(ms > 0.0f && same == ms, "a timer measures what lies between start and stop");
    tap_ok(spipe_timer_start(&dead, s) == cudaErrorInvalidValue &&
               spipe_timer_ms(&dead, &ms) == cudaErrorInvalidValue,
           "a dead timer is refused");
    tap_ok(spipe_timer_destroy(&timer) == cudaSuccess && spipe_timer_destroy(&timer) == cudaSuccess,
           "a timer may be destroyed twice");
    SPIPE_CHECK(cudaFree(x));
    SPIPE_CHECK(cudaStreamDestroy(s));
}

/* Stop may be reached before start: on another stream, or by a start that came after it. */
static void test_no_time(void) {
    spipe_timer_t timer;
    cudaStream_t a, b;
    float ms = -1.0f;
    int go = 0, *x;
    void *gate[2];
    cudaError_t e;
    SPIPE_CHECK(spipe_stream_create(&a, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_stream_create(&b, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(cudaMalloc((void **)&x, 1 << 20));
    SPIPE_CHECK(spipe_timer_create(&timer));
    gate[0] = spipe_priv_sync_create();
    gate[1] = &go;
    tap_ok(spipe_timer_ms(&timer, &ms) == cudaErrorInvalidResourceHandle && !(ms > 0.0f),
           "a timer that was not started has no time");
    (void)cudaGetLastError();
    SPIPE_CHECK(spipe_host_call(a, block_until, gate));
    SPIPE_CHECK(add(a, x, 1, (1 << 20) / sizeof *x));
    SPIPE_CHECK(spipe_timer_start(&timer, a));
    SPIPE_CHECK(spipe_timer_stop(&timer, b));
    SPIPE_CHECK(cudaStreamSynchronize(b));
    spipe_priv_lock((spipe_priv_sync_t *)gate[0]);
    go = 1;
    spipe_priv_wake((spipe_priv_sync_t *)gate[0]);
    spipe_priv_unlock((spipe_priv_sync_t *)gate[0]);
    e = spipe_timer_ms(&timer, &ms);
    tap_ok(e == cudaErrorInvalidResourceHandle && !(ms < 0.0f) && !(ms > 0.0f),
           "nor has one whose stop was reached before its start, on another stream");
    SPIPE_CHECK(spipe_timer_start(&timer, b));
    SPIPE_CHECK(spipe_timer_stop(&timer, b));
    SPIPE_CHECK(add(b, x, 1, (1 << 20) / sizeof *x));
    SPIPE_CHECK(spipe_timer_start(&timer, b));
    e = spipe_timer_ms(&timer, &ms);
    tap_ok(e == cudaErrorInvalidResourceHandle && !(ms < 0.0f) && !(ms > 0.0f),
           "nor has one that was started again, and not stopped since");
    SPIPE_CHECK(spipe_timer_stop(&timer, b));
    tap_ok(spipe_timer_ms(&timer, &ms) == cudaSuccess && ms >= 0.0f, "until it is");
    spipe_priv_sync_destroy((spipe_priv_sync_t *)gate[0]);
    SPIPE_CHECK(spipe_timer_destroy(&timer));
    SPIPE_CHECK(cudaFree(x));
    SPIPE_CHECK(cudaStreamDestroy(a));
    SPIPE_CHECK(cudaStreamDestroy(b));
}

static void test_memory(void) {
    void *p = (void *)1, *m = malloc(100000);
    int pinned = -1;
    tap_ok(spipe_pinned_alloc(&p, 0) == cudaSuccess && !p && spipe_pinned_free(NULL) == cudaSuccess,
           "no bytes are no memory, and freeing nothing is fine");
    SPIPE_CHECK(spipe_pinned_alloc(&p, 100000));
    SPIPE_CHECK(spipe_is_pinned(p, 100000, &pinned));
    tap_ok(pinned == 1, "pinned memory is known as pinned");
    SPIPE_CHECK(spipe_is_pinned((char *)p + 5000, 10, &pinned));
    tap_ok(pinned == 1, "so is its inside");
    SPIPE_CHECK(spipe_pinned_free(p));
    SPIPE_CHECK(spipe_is_pinned(m, 100000, &pinned));
    tap_ok(pinned == 0, "malloc gives pageable memory");
    SPIPE_CHECK(spipe_pin(m, 100000));
    SPIPE_CHECK(spipe_is_pinned(m, 100000, &pinned));
    tap_ok(pinned == 1 && spipe_pin(m, 100000) != cudaSuccess,
           "which can be pinned in place, once");
    (void)cudaGetLastError();
    SPIPE_CHECK(spipe_unpin(m));
    SPIPE_CHECK(spipe_is_pinned(m, 100000, &pinned));
    tap_ok(pinned == 0 && spipe_unpin(m) != cudaSuccess, "and unpinned, once");
    (void)cudaGetLastError();
    tap_ok(spipe_is_pinned(NULL, 1, &pinned) == cudaErrorInvalidValue &&
               spipe_pin(NULL, 1) == cudaErrorInvalidValue &&
               spipe_pin(m, 0) == cudaErrorInvalidValue,
           "NULL and no bytes are refused");
    free(m);
}

static void count_up(void *user) { ++*(int *)user; }

/* A chain: the end of one batch queues the next, from the worker. */
typedef struct chain {
    spipe_worker_t *worker;
    cudaStream_t stream;
    int *x, left;
    cudaError_t error;
} chain_t;

static void next_batch(cudaError_t status, void *user) {
    chain_t *c = (chain_t *)user;
    if (status != cudaSuccess) c->error = status;
    if (--c->left == 0 || c->error != cudaSuccess) return;
    c->error = add(c->stream, c->x, 1, 100);
    if (c->error == cudaSuccess) c->error = spipe_worker_call(c->worker, c->stream, next_batch, c);
}

static void count_worker(cudaError_t status, void *user) {
    int *order = (int *)user;
    if (status == cudaSuccess) ++order[0];
}

typedef struct within {
    spipe_worker_t *worker;
    cudaError_t wait, destroy;
} within_t;

static void wait_within(cudaError_t status, void *user) {
    within_t *w = (within_t *)user;
    (void)status;
    w->wait = spipe_worker_wait(w->worker);
    w->destroy = spipe_worker_destroy(w->worker);
}

static void test_host_calls(void) {
    spipe_worker_t worker, dead;
    cudaStream_t s;
    int count = 0, order[1] = {0}, host[100], *x, k, expect = 0;
    chain_t chain = {&worker, NULL, NULL, 50, cudaSuccess};
    within_t within = {&worker, cudaSuccess, cudaSuccess};
    memset(&dead, 0, sizeof dead);
    SPIPE_CHECK(spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT));
    for (k = 0; k < 10; ++k) SPIPE_CHECK(spipe_host_call(s, count_up, &count));
    SPIPE_CHECK(cudaStreamSynchronize(s));
    tap_ok(count == 10 && spipe_host_call(s, NULL, NULL) == cudaErrorInvalidValue,
           "host functions run in a stream's order");
    SPIPE_CHECK(cudaMalloc((void **)&x, sizeof host));
    SPIPE_CHECK(cudaMemset(x, 0, sizeof host));
    SPIPE_CHECK(cudaDeviceSynchronize());
    SPIPE_CHECK(spipe_worker_create(&worker));
    chain.stream = s;
    chain.x = x;
    SPIPE_CHECK(spipe_worker_call(&worker, s, next_batch, &chain));
    SPIPE_CHECK(spipe_worker_wait(&worker));
    SPIPE_CHECK(cudaStreamSynchronize(s));
    SPIPE_CHECK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    for (k = 0; k < 49; ++k) expect = (int)((unsigned)expect * 3u + 1u);
    tap_ok(chain.left == 0 && chain.error == cudaSuccess && host[99] == expect,
           "a worker's function may call CUDA: the end of a batch queues the next");
    SPIPE_CHECK(spipe_worker_call(&worker, s, wait_within, &within));
    SPIPE_CHECK(spipe_worker_wait(&worker));
    tap_ok(within.wait == cudaErrorNotPermitted && within.destroy == cudaErrorNotPermitted,
           "a worker's function may neither wait for the worker nor destroy it, and is told so");
    for (k = 0; k < 100; ++k) SPIPE_CHECK(spipe_worker_call(&worker, s, count_worker, order));
    tap_ok(spipe_worker_destroy(&worker) == cudaSuccess && order[0] == 100,
           "every call is made, however many wait, before destroy returns");
    tap_ok(spipe_worker_destroy(&worker) == cudaSuccess &&
               spipe_worker_call(&dead, s, count_worker, order) == cudaErrorInvalidValue &&
               spipe_worker_wait(&dead) == cudaErrorInvalidValue,
           "a dead worker is refused");
    SPIPE_CHECK(cudaFree(x));
    SPIPE_CHECK(cudaStreamDestroy(s));
}

static void test_channel(void) {
    enum {
        N = 300,
        VALUES = 40
    };

    spipe_channel_t ch;
    cudaStream_t a, b;
    int *from, *to, *pinned, k, i, wrong = 0, expect = 0;
    SPIPE_CHECK(spipe_stream_create(&a, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_stream_create(&b, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(cudaMalloc((void **)&from, N * sizeof(int)));
    SPIPE_CHECK(cudaMalloc((void **)&to, N * sizeof(int)));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&pinned, VALUES * N * sizeof(int)));
    SPIPE_CHECK(cudaMemsetAsync(from, 0, N * sizeof(int), a));
    SPIPE_CHECK(spipe_channel_create(&ch, N * sizeof(int), 3));
    tap_ok(spipe_channel_recv(&ch, b, to) == SPIPE_CHANNEL_EMPTY,
           "nothing sent, nothing to receive");
    for (k = 0; k < VALUES; ++k) {
        SPIPE_CHECK(add(a, from, k, N));
        SPIPE_CHECK(spipe_channel_send(&ch, a, from));
        if (k < 2) continue;
        if (k == 2) {
            tap_ok(spipe_channel_send(&ch, a, from) == SPIPE_CHANNEL_FULL,
                   "a full channel says so");
        }
        SPIPE_CHECK(spipe_channel_recv(&ch, b, to));
        SPIPE_CHECK(
            cudaMemcpyAsync(pinned + (k - 2) * N, to, N * sizeof(int), cudaMemcpyDeviceToHost, b));
    }
    SPIPE_CHECK(cudaStreamSynchronize(b));
    for (k = 0; k < VALUES - 2; ++k) {
        expect = (int)((unsigned)expect * 3u + (unsigned)k);
        for (i = 0; i < N; ++i) wrong += pinned[k * N + i] != expect;
    }
    tap_ok(wrong == 0, "values go from one stream to another, first in first out");
    tap_ok(spipe_channel_destroy(&ch) == cudaSuccess && spipe_channel_destroy(&ch) == cudaSuccess,
           "a channel may be destroyed twice");
    tap_ok(spipe_channel_create(&ch, 0, 1) == cudaErrorInvalidValue &&
               spipe_channel_create(&ch, 1, 0) == cudaErrorInvalidValue &&
               spipe_channel_create(&ch, SIZE_MAX / 4, 1000) == cudaErrorInvalidValue &&
               spipe_channel_send(&ch, a, from) == cudaErrorInvalidValue,
           "a channel of nothing, of too much, and a dead one are refused");
    SPIPE_CHECK(spipe_pinned_free(pinned));
    SPIPE_CHECK(cudaFree(from));
    SPIPE_CHECK(cudaFree(to));
    SPIPE_CHECK(cudaStreamDestroy(a));
    SPIPE_CHECK(cudaStreamDestroy(b));
}

int main(void) {
    test_device();
    test_stream();
    test_wait();
    test_wait_captured();
    test_pool();
    test_idle_first();
    test_pool_threads();
    test_events();
    test_no_time();
    test_memory();
    test_host_calls();
    test_channel();
    return tap_done();
}
