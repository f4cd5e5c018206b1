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
                without resources: 60 batches, 0.308 ms each to set up
                  urgent  p50 ~0.634 ms, p95 ~0.927, p99 ~1.183
                  others  p50 ~3.641 ms, p95 ~5.128, p99 ~5.236
                with resources: 60 batches, 0.000 ms each to set up
                  urgent  p50 ~0.220 ms, p95 ~0.508, p99 ~0.595
                  others  p50 ~0.341 ms, p95 ~0.604, p99 ~0.655
                at most ~3072 KiB of device memory
                right: the CPU finds the same                                                     */
#include "25_clients.h" /* request_t, answer_stage, the clocks of threads */

#include <atomic>

enum {
    REQUESTS = EX_HOSTCUDA ? 480 : 2400, /* every third one is urgent */
    WORKERS = 2,
    BACKGROUND = WORKERS, /* number of the background thread */
    BATCH = 8
};

static const double DEADLINE_MS = 0.5;
static const double GAP_MS = EX_HOSTCUDA ? 0.03 : 0.1; /* between two requests, on average */

typedef struct job : request_t {
    int urgent, taken;
} job_t;

typedef struct server {
    turns_t turns;
    std::mutex lock;
    std::vector<job_t> requests;
    size_t first; /* first request not taken yet */
    double zero_ms, setup_ms;
    int batches;
    std::atomic<int> workers;     /* workers that still serve */
    spipe_resources_t *resources; /* NULL = none */
} server_t;

/* ---- Batches: the rows of the requests that wait together ------------------------------------ */
typedef std::vector<job_t *> batch_t;

static cudaError_t fetch(spipe_part_t *part, void *user) {
    const batch_t *batch = (const batch_t *)user;
    for (size_t i = 0; i < part->count; ++i)
        memcpy((float *)part->data + i * ROW, (*batch)[part->first + i]->question,
               ROW * sizeof(float));
    return cudaSuccess;
}

static cudaError_t hand_back(const spipe_part_t *part, void *user) {
    const batch_t *batch = (const batch_t *)user;
    for (size_t i = 0; i < part->count; ++i) {
        job_t *r = (*batch)[part->first + i];
        memcpy(r->reply, (const float *)part->data + i * ROW, ROW * sizeof(float));
        clients_note_time(&r->answered_ns);
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
    std::stable_partition(waiting.begin(), waiting.end(), [](job_t *r) { return r->urgent; });
    waiting.resize(std::min(waiting.size(), (size_t)BATCH));
    for (job_t *r : waiting) r->taken = 1;
    *batch = waiting;
    return 1;
}

static void work(server_t *s, size_t who) {
    batch_t batch;
    double until;
    for (turns_take(&s->turns, who); take_batch(s, &batch, &until); turns_take(&s->turns, who)) {
        if (batch.empty()) {
            clients_sleep_until(until);
            continue;
        }
        spipe_report_t report;
        spipe_desc_t d = spipe_desc_default();
        d.count = batch.size();
        d.resources = s->resources;
        d.priority = SPIPE_PRIORITY_HIGH;
        spipe_add_source(&d, fetch, &batch, ROW * sizeof(float), SPIPE_ANY_ORDER);
        spipe_add_sink(&d, hand_back, &batch, ROW * sizeof(float), SPIPE_ANY_ORDER);
        spipe_add_stage(&d, "answer", answer_stage, NULL);
        SPIPE_CHECK_RUN(&d, &report);
        batch.clear();
        const std::lock_guard<std::mutex> hold(s->lock);
        s->setup_ms += report.setup_ms;
        ++s->batches;
    }
    --s->workers;
}

/* The background job: whole passes over a large array, as long as there are workers. */
static void background(server_t *s, spipe_pipeline_t *p) {
    turns_t *t = &s->turns;
    for (turns_take(t, BACKGROUND); s->workers > 0; turns_take(t, BACKGROUND))
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
    for (const job_t &r : s->requests) {
        if (r.urgent == urgent) ms.push_back(r.answered_ns * 1e-6 - s->zero_ms - r.asked_ms);
    }
    clients_print(urgent ? "urgent" : "others", ms);
}

static long serve(spipe_resources_t *resources) {
    server_t s;
    std::vector<float> x((size_t)1 << (EX_HOSTCUDA ? 18 : 24), 1.0f), y(x.size());
    spipe_pipeline_t *beside = make_background(&x, &y, resources);
    long wrong = 0;
    clients_make(&s.requests, REQUESTS, GAP_MS);
    for (size_t k = 0; k < REQUESTS; ++k) {
        s.requests[k].urgent = k % 3 == 0;
        s.requests[k].taken = 0;
    }
    s.first = 0;
    s.batches = 0;
    s.workers = WORKERS;
    s.setup_ms = 0.0;
    s.resources = resources;
    s.zero_ms = ex_now_ms();
    turns_run(&s.turns, WORKERS + 1, [&](size_t who) {
        if (who == BACKGROUND)
            background(&s, beside);
        else
            work(&s, who);
    });
    SPIPE_CHECK(spipe_pipeline_destroy(beside));
    for (const job_t &r : s.requests) wrong += clients_wrong(&r);
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
