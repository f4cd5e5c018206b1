/*  25_clients.h -- what is around a server, for 25_server.cu and server.cu: requests that clients
    make by a clock, what is computed for one, how long answers took, and the clocks of threads.  */
#ifndef CLIENTS_H
#define CLIENTS_H

#include "ex_common.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <math.h>
#include <mutex>
#include <thread>
#include <vector>

enum {
    ROW = 4096 /* floats per request */
};

typedef struct request {
    float question[ROW], reply[ROW];
    double asked_ms, answered_ns; /* ms since the server began; ns on the clock of ex_now_ms */
} request_t;

/* n requests, one each `gap_ms` on average: many short gaps and few long ones, as where many
   clients ask and none knows of the others. */
template <class request>
static void clients_make(std::vector<request> *requests, size_t n, double gap_ms) {
    unsigned random = 1;
    double at_ms = 0.0;
    requests->resize(n);
    for (size_t k = 0; k < n; ++k) {
        request *r = &(*requests)[k];
        for (size_t i = 0; i < ROW; ++i) r->question[i] = (float)((i + k * 7) % 100);
        random = EX_NEXT(random);
        at_ms -= gap_ms * log(((random >> 16) + 1) / 65536.0);
        r->asked_ms = at_ms;
    }
}

static __global__ void answer(const float *x, float *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i] + 1.0f;
}

/* Buffer 0 has questions, buffer 1 replies; an element is a row. */
static cudaError_t answer_stage(const spipe_chunk_t *c, void *) {
    const size_t n = c->count * ROW;
    return SPIPE_LAUNCH(answer, spipe_blocks(n, 256), 256, 0, c,
                        SPIPE_BUF_ROW(c, 0, const float, ROW), SPIPE_BUF_ROW(c, 1, float, ROW), n);
}

/* Returns how many numbers of a reply are wrong. */
static inline long clients_wrong(const request_t *r) {
    long wrong = 0;
    for (int i = 0; i < ROW; ++i) wrong += r->reply[i] != r->question[i] * r->question[i] + 1.0f;
    return wrong;
}

/* Half of the answers took no longer than p50, and so on. */
static inline void clients_print(const char *name, std::vector<double> ms) {
    std::sort(ms.begin(), ms.end());
    const size_t n = ms.size() - 1;
    printf("  %-7s p50 %.3f ms, p95 %.3f, p99 %.3f\n", name, ms[n / 2], ms[n * 95 / 100],
           ms[n * 99 / 100]);
}

/* ---- Clocks ---------------------------------------------------------------------------------- */
/* On hostcuda each thread has a modelled clock, and no lock of a program moves it on. So the thread
   whose clock is behind all others' goes on while they wait: then a batch is taken by whoever is
   free first by the model, and every run is the same. On a GPU threads run as they like. */
typedef struct turns {
    std::mutex lock;
    std::condition_variable changed;
    std::vector<double> clock_ms; /* of each thread */
} turns_t;

static inline void turns_take(turns_t *t, size_t who) {
    if (!EX_HOSTCUDA) return;
    std::unique_lock<std::mutex> hold(t->lock);
    t->clock_ms[who] = ex_now_ms();
    t->changed.notify_all();
    t->changed.wait(hold, [=] {
        const std::vector<double> &clocks = t->clock_ms;
        return std::min_element(clocks.begin(), clocks.end()) - clocks.begin() == (long)who;
    });
}

/* From now on thread `who` waits for no turn, and no thread waits for it. */
static inline void turns_end(turns_t *t, size_t who) {
    const std::lock_guard<std::mutex> hold(t->lock);
    t->clock_ms[who] = INFINITY;
    t->changed.notify_all();
}

static inline void clients_sleep_until(double ms) {
#if EX_HOSTCUDA
    hostcuda_host_until(ms * 1e6 + 1.0); /* 1 ns later, so never too early */
#else
    typedef std::chrono::duration<double, std::milli> ms_t;
    std::this_thread::sleep_for(ms_t(std::max(0.0, ms - ex_now_ms())));
#endif
}

/* Notes the time at which an answer is handed back, in ns on the clock of ex_now_ms. */
static inline void clients_note_time(double *ns) {
#if EX_HOSTCUDA
    hostcuda_when_done(ns);
#else
    *ns = ex_now_ms() * 1e6;
#endif
}

/* Runs work(0), work(1) and so on, each in a thread of its own, and waits for all. */
template <class work_t>
static void turns_run(turns_t *t, size_t num_threads, work_t work) {
    std::vector<std::thread> threads;
    t->clock_ms.assign(num_threads, -INFINITY); /* no thread goes on before all are there */
    for (size_t who = 0; who < num_threads; ++who) {
        threads.emplace_back([=] {
            work(who);
            turns_end(t, who);
        });
    }
    for (std::thread &thread : threads) thread.join();
#if EX_HOSTCUDA
    hostcuda_catch_up(); /* the modelled clock of this thread, to the latest of theirs */
#endif
}

#endif /* CLIENTS_H */
