/*  server.cu -- a request server: many clients, batches up to a deadline, two priorities, beside
    a background job; with resources that all runs share, and without.

    nvcc -O3 -I.. -o server server.cu && ./server         (without a GPU: make examples)
    You learn   requests that wait together are one run: a positioned source fetches each client's
                row, a positioned sink hands it back. spipe_run makes streams and memory each time
                and frees them; with d.resources it borrows them.
    Mind        d.priority orders kernels, and decides which run gets memory first; copies keep
                their order. A batch waits for at most DEADLINE_MS, so a single request does not
                wait long. Requests arrive at fixed times, whether or not a worker is free: clients
                that ask only after an answer would hide the queue of a server that is too slow.
    Expect      (hostcuda) 480 requests, one each 0.03 ms, every third one urgent
                without resources: 60 batches, 0.103 ms each to set up
                  urgent  p50 0.503 ms, p95 0.637, p99 0.844
                  others  p50 1.103 ms, p95 2.309, p99 2.447
                with resources: 60 batches, 0.000 ms each to set up
                  urgent  p50 0.250 ms, p95 0.523, p99 0.639
                  others  p50 0.401 ms, p95 0.610, p99 0.663
                at most 2176 KiB of device memory
                right: the CPU finds the same                                                     */
#include "ex_common.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <math.h>
#include <mutex>
#include <thread>
#include <vector>

enum {
    REQUESTS = EX_HOSTCUDA ? 480 : 2400, /* every third one is urgent */
    WORKERS = 2,
    BACKGROUND = WORKERS, /* number of the background thread */
    THREADS,
    BATCH = 8,
    ROW = 4096 /* floats per request */
};

static const double DEADLINE_MS = 0.5;
static const double GAP_MS = EX_HOSTCUDA ? 0.03 : 0.1; /* between two requests, on average */

static __global__ void answer(const float *x, float *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i] + 1.0f;
}

static cudaError_t answer_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(answer, spipe_blocks(c->count * ROW, 256), 256, 0, c->stream,
                        SPIPE_BUF_ROW(c, 0, const float, ROW), SPIPE_BUF_ROW(c, 1, float, ROW),
                        c->count * ROW);
}

typedef struct request {
    float question[ROW], reply[ROW];
    int urgent, taken;
    double asked_ms, answered_ns; /* ms since zero_ms; ns on the clock of ex_now_ms */
} request_t;

typedef struct server {
    std::mutex lock;
    std::condition_variable turn;
    double clock_ms[THREADS]; /* of each thread */
    std::vector<request_t> requests;
    size_t first; /* first request not taken yet */
    double zero_ms, setup_ms;
    int batches;
    std::atomic<int> workers;     /* workers that still serve */
    spipe_resources_t *resources; /* NULL = none */
} server_t;

/* ---- Threads and clocks ---------------------------------------------------------------------- */
/* On hostcuda each thread has a modelled clock, and no lock of a program moves it on. So the thread
   whose clock is behind all others' goes on while they wait: then a batch is taken by whoever is
   free first by the model, and every run is the same. On a GPU threads run as they like. */
static void take_turn(server_t *s, int who) {
    if (!EX_HOSTCUDA) return;
    std::unique_lock<std::mutex> hold(s->lock);
    s->clock_ms[who] = ex_now_ms();
    s->turn.notify_all();
    s->turn.wait(hold, [=] {
        return std::min_element(s->clock_ms, s->clock_ms + THREADS) == s->clock_ms + who;
    });
}

/* From now on thread `who` waits for no turn, and no thread waits for it. */
static void end_turns(server_t *s, int who) {
    const std::lock_guard<std::mutex> hold(s->lock);
    s->clock_ms[who] = INFINITY;
    --s->workers;
    s->turn.notify_all();
}

static void sleep_until(double ms) {
#if EX_HOSTCUDA
    hostcuda_host_until(ms * 1e6 + 1.0); /* 1 ns later, so never too early */
#else
    typedef std::chrono::duration<double, std::milli> ms_t;
    std::this_thread::sleep_for(ms_t(std::max(0.0, ms - ex_now_ms())));
#endif
}

/* Sets the calling thread's modelled clock to the latest of the threads that it has joined. */
static void catch_up(void) {
#if EX_HOSTCUDA
    hostcuda_catch_up();
#endif
}

/* Notes the time at which a reply is handed back. */
static void note_time(double *ns) {
#if EX_HOSTCUDA
    hostcuda_when_done(ns);
#else
    *ns = ex_now_ms() * 1e6;
#endif
}

/* ---- Batches: the rows of the requests that wait together ------------------------------------ */
typedef std::vector<request_t *> batch_t;

static cudaError_t fetch(void *dst, size_t first, size_t count, void *user) {
    const batch_t *batch = (const batch_t *)user;
    for (size_t i = 0; i < count; ++i)
        memcpy((float *)dst + i * ROW, (*batch)[first + i]->question, ROW * sizeof(float));
    return cudaSuccess;
}

static cudaError_t hand_back(const void *src, size_t first, size_t count, void *user) {
    const batch_t *batch = (const batch_t *)user;
    for (size_t i = 0; i < count; ++i) {
        request_t *r = (*batch)[first + i];
        memcpy(r->reply, (const float *)src + i * ROW, ROW * sizeof(float));
        note_time(&r->answered_ns);
    }
    return cudaSuccess;
}

/* Takes the requests for one run, urgent ones first, if there are enough or the first has waited
   long enough; else *until is when to look again. Returns whether any is left to wait for. */
static int take_batch(server_t *s, batch_t *batch, double *until) {
    const std::lock_guard<std::mutex> hold(s->lock);
    const double now = ex_now_ms() - s->zero_ms;
    batch_t waiting;
    while (s->first < REQUESTS && s->requests[s->first].taken) ++s->first;
    if (s->first == REQUESTS) return 0;
    const double asked = s->requests[s->first].asked_ms;
    for (size_t i = s->first; i < REQUESTS && s->requests[i].asked_ms <= now; ++i)
        if (!s->requests[i].taken) waiting.push_back(&s->requests[i]);
    *until = s->zero_ms + asked + (waiting.empty() ? 0.0 : DEADLINE_MS);
    if (waiting.size() < BATCH && now < asked + DEADLINE_MS) return 1;
    std::stable_partition(waiting.begin(), waiting.end(), [](request_t *r) { return r->urgent; });
    waiting.resize(std::min(waiting.size(), (size_t)BATCH));
    for (request_t *r : waiting) r->taken = 1;
    *batch = waiting;
    return 1;
}

static void work(server_t *s, int who) {
    batch_t batch;
    double until;
    for (take_turn(s, who); take_batch(s, &batch, &until); take_turn(s, who)) {
        if (batch.empty()) {
            sleep_until(until);
            continue;
        }
        spipe_report_t report;
        spipe_desc_t d = spipe_desc_default();
        d.count = batch.size();
        d.resources = s->resources;
        d.priority = SPIPE_PRIORITY_HIGH;
        spipe_add_source_at(&d, fetch, &batch, ROW * sizeof(float));
        spipe_add_sink_at(&d, hand_back, &batch, ROW * sizeof(float));
        spipe_add_stage(&d, "answer", answer_stage, NULL);
        SPIPE_CHECK_RUN(&d, &report);
        batch.clear();
        const std::lock_guard<std::mutex> hold(s->lock);
        s->setup_ms += report.setup_ms;
        ++s->batches;
    }
    end_turns(s, who);
}

/* The background job: whole passes over a large array, as long as there are workers. */
static void background(server_t *s, spipe_pipeline_t *p) {
    for (take_turn(s, BACKGROUND); s->workers > 0; take_turn(s, BACKGROUND))
        SPIPE_CHECK(spipe_pipeline_run(p, NULL));
}

static spipe_pipeline_t *make_background(std::vector<float> *x, std::vector<float> *y,
                                         spipe_resources_t *resources) {
    spipe_pipeline_t *p;
    spipe_desc_t d = spipe_desc_default();
    d.count = x->size() / ROW;
    d.resources = resources;
    d.priority = SPIPE_PRIORITY_LOW;
    spipe_add_input(&d, x->data(), ROW * sizeof(float));
    spipe_add_output(&d, y->data(), ROW * sizeof(float));
    spipe_add_stage(&d, "answer", answer_stage, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_run(p, NULL)); /* warms up */
    return p;
}

/* ---- What came of it ------------------------------------------------------------------------- */
static void print_latencies(const server_t *s, int urgent) {
    std::vector<double> ms;
    for (const request_t &r : s->requests) {
        if (r.urgent == urgent) ms.push_back(r.answered_ns * 1e-6 - s->zero_ms - r.asked_ms);
    }
    std::sort(ms.begin(), ms.end());
    const size_t n = ms.size() - 1;
    printf("  %-7s p50 %.3f ms, p95 %.3f, p99 %.3f\n", urgent ? "urgent" : "others", ms[n / 2],
           ms[n * 95 / 100], ms[n * 99 / 100]);
}

static void make_requests(std::vector<request_t> *requests) {
    unsigned state = 1;
    double at = 0.0;
    for (size_t k = 0; k < REQUESTS; ++k) {
        request_t *r = &(*requests)[k];
        for (int i = 0; i < ROW; ++i) r->question[i] = (float)((i + k * 7) % 100);
        r->urgent = k % 3 == 0;
        r->taken = 0;
        state = EX_NEXT(state);
        at -= GAP_MS * log(((state >> 16) + 1) / 65536.0);
        r->asked_ms = at;
    }
}

static long serve(spipe_resources_t *resources) {
    server_t s;
    std::vector<std::thread> threads;
    std::vector<float> x((size_t)1 << (EX_HOSTCUDA ? 18 : 24), 1.0f), y(x.size());
    spipe_pipeline_t *beside = make_background(&x, &y, resources);
    long wrong = 0;
    s.requests.resize(REQUESTS);
    make_requests(&s.requests);
    s.first = 0;
    s.batches = 0;
    s.workers = WORKERS;
    s.setup_ms = 0.0;
    s.resources = resources;
    for (double &clock : s.clock_ms) clock = -INFINITY; /* no thread goes on before all are there */
    s.zero_ms = ex_now_ms();
    threads.emplace_back(background, &s, beside);
    for (int k = 0; k < WORKERS; ++k) threads.emplace_back(work, &s, k);
    for (std::thread &t : threads) t.join();
    catch_up();
    SPIPE_CHECK(spipe_pipeline_destroy(beside));
    for (const request_t &r : s.requests) {
        for (int i = 0; i < ROW; ++i) wrong += r.reply[i] != r.question[i] * r.question[i] + 1.0f;
    }
    printf("%s resources: %d batches, %.3f ms each to set up\n", resources ? "with" : "without",
           s.batches, s.setup_ms / s.batches);
    print_latencies(&s, 1);
    print_latencies(&s, 0);
    return wrong;
}

int main(void) {
    spipe_resources_t *shared;
    spipe_resources_usage_t usage;
    spipe_failure_t failure;
    spipe_resources_limits_t limits = spipe_resources_limits_default();
    ex_begin();
    limits.device_bytes = 64 << 20; /* all runs together; one that finds no room waits its turn */
    if (spipe_resources_create(&shared, &limits, &failure) != cudaSuccess) {
        fprintf(stderr, "%s\n", failure.message);
        return 1;
    }
    printf("%d requests, one each %.2f ms, every third one urgent\n", (int)REQUESTS, GAP_MS);
    long wrong = serve(NULL);
    wrong += serve(shared);
    SPIPE_CHECK(spipe_resources_usage(shared, &usage));
    printf("at most %zu KiB of device memory\n", usage.most_device_bytes >> 10);
    SPIPE_CHECK(spipe_resources_destroy(shared, NULL));
    return ex_verdict(wrong == 0);
}
