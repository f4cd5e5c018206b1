/*  server.cu -- a request server: many clients, batches up to a deadline, two priorities, beside
    a background job; with resources that all runs share, and without.

    nvcc -O3 -I.. -o server server.cu && ./server         (without a GPU: make examples)
    You learn   requests that wait together are one run: a positioned source fetches each client's
                row, a positioned sink hands it back. spipe_run makes streams and memory each time
                and frees them, which stops the others; with d.resources they are there.
    Mind        d.priority orders kernels, and who gets memory first; copies keep their order. A
                batch waits for DEADLINE_MS at the most, so a lonely request is not kept for long.
                On hostcuda making streams and memory costs next to nothing, so nothing is gained.
    Expect      (hostcuda; these times are this CPU's)
                without resources: 480 answers, 2124 a second, 0.217 ms a batch to set up
                  urgent  p50 3.579 ms, p95 12.960, p99 13.983
                  others  p50 4.046 ms, p95 11.656, p99 15.053
                with resources: 480 answers, 1589 a second, 0.096 ms a batch to set up
                  urgent  p50 6.374 ms, p95 16.188, p99 19.088
                  others  p50 6.051 ms, p95 16.113, p99 19.490
                right: the CPU finds the same                                                     */
#include "ex_common.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

enum {
    CLIENTS = 12, /* every third one is urgent */
    WORKERS = 2,
    BATCH = 8,
    REQUESTS = 40, /* of each client */
    ROW = 4096     /* floats of a request */
};

static const double DEADLINE_MS = 0.5;

/* On hostcuda, too: its own clock knows nothing of threads that wait for each other. */
static double now_ms(void) {
    typedef std::chrono::duration<double, std::milli> ms_t;
    return ms_t(std::chrono::steady_clock::now().time_since_epoch()).count();
}

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
    int urgent, done;
    double asked_ms;
} request_t;

typedef struct server {
    std::mutex lock;
    std::condition_variable asked, replied;
    std::vector<request_t *> urgent, others;
    int closed;
    double setup_ms; /* of all batches */
    int batches;
    spipe_resources_t *resources; /* or NULL */
} server_t;

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
    for (size_t i = 0; i < count; ++i)
        memcpy((*batch)[first + i]->reply, (const float *)src + i * ROW, ROW * sizeof(float));
    return cudaSuccess;
}

/* Requests for one run: urgent ones first; as many as there are once the first has waited. None:
   the server is closed. */
static batch_t next_batch(server_t *s) {
    const auto patience = std::chrono::duration<double, std::milli>(DEADLINE_MS);
    std::unique_lock<std::mutex> hold(s->lock);
    const auto waiting = [s] {
        return s->urgent.size() + s->others.size();
    };
    batch_t batch;
    while (waiting() == 0 && !s->closed) {
        s->asked.wait(hold);
        (void)s->asked.wait_for(hold, patience, [&] { return s->closed || waiting() >= BATCH; });
    }
    for (std::vector<request_t *> *from : {&s->urgent, &s->others}) {
        const size_t n = std::min(from->size(), BATCH - batch.size());
        batch.insert(batch.end(), from->begin(), from->begin() + (ptrdiff_t)n);
        from->erase(from->begin(), from->begin() + (ptrdiff_t)n);
    }
    return batch;
}

static void work(server_t *s) {
    for (batch_t batch = next_batch(s); !batch.empty(); batch = next_batch(s)) {
        spipe_report_t report;
        spipe_desc_t d = spipe_desc_default();
        d.count = batch.size();
        d.resources = s->resources;
        d.priority = SPIPE_PRIORITY_HIGH;
        spipe_add_source_at(&d, fetch, &batch, ROW * sizeof(float));
        spipe_add_sink_at(&d, hand_back, &batch, ROW * sizeof(float));
        spipe_add_stage(&d, "answer", answer_stage, NULL);
        SPIPE_CHECK_RUN(&d, &report);
        std::lock_guard<std::mutex> hold(s->lock);
        s->setup_ms += report.setup_ms;
        ++s->batches;
        for (request_t *r : batch) r->done = 1;
        s->replied.notify_all();
    }
}

/* ---- Clients: ask, wait for the answer, look at it, ask again -------------------------------- */
static void ask(server_t *s, int number, std::vector<double> *ms, std::atomic<long> *wrong) {
    std::vector<request_t> mine(1);
    request_t *r = &mine[0];
    for (int k = 0; k < REQUESTS; ++k) {
        for (int i = 0; i < ROW; ++i) r->question[i] = (float)((i + k * 7 + number) % 100);
        r->urgent = number % 3 == 0;
        r->done = 0;
        const double began = now_ms();
        std::unique_lock<std::mutex> hold(s->lock);
        (r->urgent ? s->urgent : s->others).push_back(r);
        s->asked.notify_all();
        s->replied.wait(hold, [&] { return r->done; });
        hold.unlock();
        ms->push_back(now_ms() - began);
        for (int i = 0; i < ROW; ++i) {
            *wrong += r->reply[i] != r->question[i] * r->question[i] + 1.0f;
        }
    }
}

/* What else the GPU does: whole passes over a large array, again and again. */
static void background(server_t *s, const std::atomic<int> *stop) {
    std::vector<float> x((size_t)1 << (EX_HOSTCUDA ? 16 : 24), 1.0f), y(x.size());
    spipe_pipeline_t *p;
    spipe_desc_t d = spipe_desc_default();
    d.count = x.size() / ROW;
    d.resources = s->resources;
    d.priority = SPIPE_PRIORITY_LOW;
    spipe_add_input(&d, x.data(), ROW * sizeof(float));
    spipe_add_output(&d, y.data(), ROW * sizeof(float));
    spipe_add_stage(&d, "answer", answer_stage, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    while (!*stop) SPIPE_CHECK(spipe_pipeline_run(p, NULL));
    SPIPE_CHECK(spipe_pipeline_destroy(p));
}

static void print_latencies(const char *who, std::vector<double> ms) {
    std::sort(ms.begin(), ms.end());
    const size_t n = ms.size() - 1;
    printf("  %-7s p50 %.3f ms, p95 %.3f, p99 %.3f\n", who, ms[n / 2], ms[n * 95 / 100],
           ms[n * 99 / 100]);
}

static long serve(spipe_resources_t *resources) {
    server_t s;
    std::vector<double> ms[CLIENTS], all[2];
    std::vector<std::thread> workers, clients;
    std::atomic<long> wrong(0);
    std::atomic<int> stop(0);
    s.closed = s.batches = 0;
    s.setup_ms = 0.0;
    s.resources = resources;
    std::thread beside(background, &s, &stop);
    for (int k = 0; k < WORKERS; ++k) workers.emplace_back(work, &s);
    const double began = now_ms();
    for (int k = 0; k < CLIENTS; ++k) clients.emplace_back(ask, &s, k, &ms[k], &wrong);
    for (std::thread &t : clients) t.join();
    const double took = now_ms() - began;
    {
        std::lock_guard<std::mutex> hold(s.lock);
        s.closed = 1;
        s.asked.notify_all();
    }
    for (std::thread &t : workers) t.join();
    stop = 1;
    beside.join();
    for (int k = 0; k < CLIENTS; ++k) {
        all[k % 3 == 0].insert(all[k % 3 == 0].end(), ms[k].begin(), ms[k].end());
    }
    printf("%s resources: %d answers, %.0f a second, %.3f ms a batch to set up\n",
           resources ? "with" : "without", CLIENTS * REQUESTS, 1e3 * CLIENTS * REQUESTS / took,
           s.setup_ms / s.batches);
    print_latencies("urgent", all[1]);
    print_latencies("others", all[0]);
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
    long wrong = serve(NULL);
    wrong += serve(shared);
    SPIPE_CHECK(spipe_resources_usage(shared, &usage));
    printf("at most %zu runs at once, %zu KiB of device memory\n", usage.most_runs,
           usage.most_device_bytes >> 10);
    SPIPE_CHECK(spipe_resources_destroy(shared, NULL));
    return ex_verdict(wrong == 0);
}
