/*  ring_by_hand.h -- the work that rings.cu does, and a ring for it as an expert writes it by hand,
    with a fixed number of threads and fixed chunks. C++14, CUDA or hostcuda. */
#ifndef RING_BY_HAND_H
#define RING_BY_HAND_H

#include "bench_common.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum {
    BLOCK = 256,
    MOST_BLOCKS = 1024
};

typedef struct work {
    const char *name;
    size_t bytes;                 /* each way */
    const char *x;                /* pageable */
    int fd;                       /* of the file to read instead; -1 = none */
    char *y;                      /* pageable; NULL: only the sum */
    unsigned long long want, got; /* the sum */
} work_t;

/* ---- What is done on the GPU ----------------------------------------------------------------- */
static __global__ void add_words(const uint4 *x, size_t n, unsigned long long *sum) {
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    unsigned long long own = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += stride) {
        const uint4 v = x[i];
        own += (unsigned long long)v.x + v.y + v.z + v.w;
    }
    for (int k = 16; k > 0; k /= 2) own += __shfl_down_sync(0xffffffffu, own, k);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, own);
}

static __global__ void square(const float *x, float *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}

/* to: the results, or the sum. */
static cudaError_t launch(const work_t *w, const void *x, void *to, size_t bytes, cudaStream_t s) {
    const unsigned blocks = std::min(spipe_blocks(bytes / 16, BLOCK), (unsigned)MOST_BLOCKS);
    if (!w->y) {
        return SPIPE_LAUNCH(add_words, blocks, BLOCK, 0, s, (const uint4 *)x, bytes / 16,
                            (unsigned long long *)to);
    }
    return SPIPE_LAUNCH(square, spipe_blocks(bytes / 4, BLOCK), BLOCK, 0, s, (const float *)x,
                        (float *)to, bytes / 4);
}

/* ---- A ring by hand -------------------------------------------------------------------------- */
typedef struct slot {
    char *in, *out, *x, *y; /* pinned, pinned, on the device, likewise */
    cudaEvent_t copied, computed, done;
    size_t at, bytes; /* the chunk that it holds; 0 bytes: none */
} slot_t;

typedef struct lanes {
    cudaStream_t in, kernels, out;
} lanes_t;

/* Threads with two slots each. The rings of so many threads take turns with it. */
typedef struct team {
    std::vector<slot_t> slots;
    std::vector<lanes_t> lanes; /* of each thread, its own; then those that all share */
    char *pinned, *device;
    unsigned long long *sum;
    std::vector<std::thread> threads;
    std::mutex mutex; /* guards what follows */
    std::condition_variable begun, ended;
    std::deque<slot_t *> waiting; /* the one issued the longest ago first */
    work_t *work;                 /* NULL: there is no more */
    size_t chunk, next, at_work;
    int own_streams, runs;
} team_t;

typedef struct ring {
    team_t *team;
    size_t chunk;
    int own_streams;
} ring_t;

/* Past the cache: nobody reads it soon, and its lines need not be read before they are written. */
static void copy_out(char *to, const char *from, size_t bytes) {
#if defined(__SSE2__)
    for (; bytes >= 16; bytes -= 16, to += 16, from += 16) {
        _mm_stream_si128((__m128i *)(void *)to, _mm_load_si128((const __m128i *)(void *)from));
    }
    _mm_sfence();
#endif
    memcpy(to, from, bytes);
}

static void copy_in(const work_t *w, slot_t *s) {
    if (w->fd < 0)
        memcpy(s->in, w->x + s->at, s->bytes);
    else
        bench_read(w->fd, s->in, s->bytes, s->at);
}

static void follow(cudaStream_t next, cudaStream_t before, cudaEvent_t e) {
    if (next == before) return;
    SPIPE_CHECK(cudaEventRecord(e, before));
    SPIPE_CHECK(cudaStreamWaitEvent(next, e, 0));
}

static void issue(const team_t *t, const slot_t *s, const lanes_t *l) {
    const work_t *w = t->work;
    SPIPE_CHECK(cudaMemcpyAsync(s->x, s->in, s->bytes, cudaMemcpyHostToDevice, l->in));
    follow(l->kernels, l->in, s->copied);
    SPIPE_CHECK(launch(w, s->x, w->y ? (void *)s->y : t->sum, s->bytes, l->kernels));
    if (w->y) {
        follow(l->out, l->kernels, s->computed);
        SPIPE_CHECK(cudaMemcpyAsync(s->out, s->y, s->bytes, cudaMemcpyDeviceToHost, l->out));
    }
    SPIPE_CHECK(cudaEventRecord(s->done, w->y ? l->out : l->kernels));
}

/* The next slot and where the next chunk begins; NULL: all is done, or held by other threads. */
static slot_t *take(team_t *t, size_t *at) {
    const std::lock_guard<std::mutex> lock(t->mutex);
    if (t->waiting.empty()) return NULL;
    slot_t *s = t->waiting.front();
    t->waiting.pop_front();
    *at = t->next;
    t->next = std::min(t->next + t->chunk, t->work->bytes);
    return s;
}

static void carry(team_t *t, const lanes_t *lanes) {
    const work_t *w = t->work;
    slot_t *s;
    size_t at;
    while ((s = take(t, &at)) != NULL) {
        if (s->bytes > 0) SPIPE_CHECK(cudaEventSynchronize(s->done));
        if (s->bytes > 0 && w->y) copy_out(w->y + s->at, s->out, s->bytes);
        s->at = at;
        s->bytes = std::min(t->chunk, w->bytes - at);
        if (s->bytes == 0) continue; /* no chunk is left for it */
        copy_in(w, s);
        issue(t, s, lanes);
        const std::lock_guard<std::mutex> lock(t->mutex);
        t->waiting.push_back(s);
    }
}

static void team_thread(team_t *t, size_t k) {
    for (int seen = 0;; ++seen) {
        {
            std::unique_lock<std::mutex> lock(t->mutex);
            t->begun.wait(lock, [=] { return t->runs != seen; });
        }
        if (!t->work) return;
        carry(t, t->own_streams ? &t->lanes[k] : &t->lanes.back());
        const std::lock_guard<std::mutex> lock(t->mutex);
        if (--t->at_work == 0) t->ended.notify_one();
    }
}

static void team_run(team_t *t, size_t chunk, int own_streams, work_t *w) {
    std::unique_lock<std::mutex> lock(t->mutex);
    for (size_t k = 0; w && k < t->slots.size(); ++k) {
        slot_t *s = &t->slots[k];
        s->in = t->pinned + 2 * k * chunk;
        s->x = t->device + 2 * k * chunk;
        s->out = s->in + chunk;
        s->y = s->x + chunk;
        t->waiting.push_back(s);
    }
    t->work = w;
    t->chunk = chunk;
    t->own_streams = own_streams;
    t->next = 0;
    t->at_work = t->threads.size();
    ++t->runs;
    t->begun.notify_all();
    if (w) t->ended.wait(lock, [=] { return t->at_work == 0; });
}

static double ring_ms(const ring_t *r, work_t *w) {
    team_t *t = r->team;
    const double began = bench_now_ms();
    if (!w->y) {
        SPIPE_CHECK(cudaMemsetAsync(t->sum, 0, sizeof *t->sum, t->lanes.back().kernels));
        SPIPE_CHECK(cudaStreamSynchronize(t->lanes.back().kernels));
    }
    team_run(t, r->chunk, r->own_streams, w);
    if (!w->y) SPIPE_CHECK(cudaMemcpy(&w->got, t->sum, sizeof w->got, cudaMemcpyDeviceToHost));
    return bench_now_ms() - began;
}

static team_t *team_new(size_t threads, size_t chunk) {
    team_t *t = new team_t();
    const size_t bytes = 2 * 2 * threads * chunk;
    t->slots.resize(2 * threads);
    SPIPE_CHECK(cudaHostAlloc((void **)&t->pinned, bytes, cudaHostAllocDefault));
    SPIPE_CHECK(cudaMalloc((void **)&t->device, bytes));
    SPIPE_CHECK(cudaMalloc((void **)&t->sum, sizeof *t->sum));
    for (slot_t &s : t->slots) {
        for (cudaEvent_t *e : {&s.copied, &s.computed, &s.done}) {
            SPIPE_CHECK(cudaEventCreateWithFlags(e, cudaEventDisableTiming));
        }
    }
    for (size_t k = 0; k < threads + 3; ++k) {
        cudaStream_t s;
        SPIPE_CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
        t->lanes.push_back({s, s, s});
    }
    t->lanes.push_back({t->lanes[threads].in, t->lanes[threads + 1].in, t->lanes[threads + 2].in});
    for (size_t k = 0; k < threads; ++k) t->threads.emplace_back([=] { team_thread(t, k); });
    return t;
}

static void team_free(team_t *t) {
    team_run(t, 0, 0, NULL);
    for (std::thread &thread : t->threads) thread.join();
    for (const slot_t &s : t->slots) {
        for (cudaEvent_t e : {s.copied, s.computed, s.done}) SPIPE_CHECK(cudaEventDestroy(e));
    }
    t->lanes.pop_back(); /* it is made of the three before */
    for (const lanes_t &l : t->lanes) SPIPE_CHECK(cudaStreamDestroy(l.in));
    SPIPE_CHECK(cudaFreeHost(t->pinned));
    SPIPE_CHECK(cudaFree(t->device));
    SPIPE_CHECK(cudaFree(t->sum));
    delete t;
}

static std::string ring_text(const ring_t *r) {
    return std::to_string(r->team->threads.size()) + " threads, " + bench_size_text(r->chunk) +
           (r->own_streams ? ", a stream each" : ", shared streams");
}

#endif /* RING_BY_HAND_H */
