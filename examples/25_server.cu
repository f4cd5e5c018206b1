/*  25_server.cu -- a server: requests of many clients are gathered into batches up to a deadline.

    nvcc -O3 -I.. -o server 25_server.cu && ./server         (without a GPU: make examples)
    You learn   a batch is a run: a positioned source fetches each client's row, a positioned sink
                hands it back. A batch begins when it is full or when its first request has waited
                for DEADLINE_MS. spipe_run makes streams and memory and frees them; with
                d.resources all threads borrow them from one place, and nothing is made.
    Mind        requests arrive at fixed times, whether or not a worker is free. Clients that ask
                again only after an answer would hide the queue of a server that is too slow.
    Expect      (hostcuda)
                without resources: 60 batches, 0.308 ms each to set up
                  answers p50 1.770 ms, p95 3.909, p99 4.085
                with resources: 60 batches, 0.000 ms each to set up
                  answers p50 0.299 ms, p95 0.553, p99 0.553
                right: the CPU finds the same                                                     */
#include "25_clients.h" /* request_t, answer_stage, the clocks of threads */

enum {
    REQUESTS = EX_HOSTCUDA ? 480 : 2400,
    WORKERS = 2,
    BATCH = 8
};

static const double DEADLINE_MS = 0.5, GAP_MS = EX_HOSTCUDA ? 0.03 : 0.1; /* between requests */

typedef struct server {
    turns_t turns;
    std::mutex lock; /* guards first, setup_ms, batches */
    std::vector<request_t> requests;
    size_t first = 0; /* not taken yet */
    double zero_ms, setup_ms = 0.0;
    int batches = 0;
    spipe_resources_t *resources; /* NULL = none */
} server_t;

static cudaError_t fetch(spipe_part_t *part, void *user) {
    const request_t *batch = (const request_t *)user + part->first;
    for (size_t i = 0; i < part->count; ++i)
        memcpy((float *)part->data + i * ROW, batch[i].question, ROW * sizeof(float));
    return cudaSuccess;
}

static cudaError_t hand_back(const spipe_part_t *part, void *user) {
    request_t *batch = (request_t *)user + part->first;
    for (size_t i = 0; i < part->count; ++i) {
        memcpy(batch[i].reply, (const float *)part->data + i * ROW, ROW * sizeof(float));
        clients_note_time(&batch[i].answered_ns);
    }
    return cudaSuccess;
}

/* Takes the next batch: *count requests, from the one that is returned. If it is too early for a
   batch, *count is 0 and *until is when to look again. Returns NULL if all requests are taken. */
static request_t *take_batch(server_t *s, size_t who, size_t *count, double *until) {
    turns_take(&s->turns, who); /* on hostcuda: in the order of the modelled clocks */
    const std::lock_guard<std::mutex> hold(s->lock);
    const double now = ex_now_ms() - s->zero_ms;
    const size_t most = std::min((size_t)BATCH, REQUESTS - s->first);
    if (most == 0) return NULL;
    request_t *r = &s->requests[s->first];
    for (*count = 0; *count < most && r[*count].asked_ms <= now; ++*count) continue;
    *until = s->zero_ms + r->asked_ms + (*count > 0 ? DEADLINE_MS : 0.0);
    if (*count < BATCH && now < r->asked_ms + DEADLINE_MS) *count = 0;
    s->first += *count;
    return r;
}

static void run_batch(server_t *s, request_t *batch, size_t count) {
    spipe_report_t report;
    spipe_desc_t d = spipe_desc_default();
    d.count = count;
    d.resources = s->resources;
    spipe_add_source(&d, fetch, batch, ROW * sizeof(float), SPIPE_ANY_ORDER);
    spipe_add_sink(&d, hand_back, batch, ROW * sizeof(float), SPIPE_ANY_ORDER);
    spipe_add_stage(&d, "answer", answer_stage, NULL);
    SPIPE_CHECK_RUN(&d, &report);
    const std::lock_guard<std::mutex> hold(s->lock);
    s->setup_ms += report.setup_ms;
    ++s->batches;
}

static void work(server_t *s, size_t who) {
    request_t *batch;
    size_t count;
    double until;
    while ((batch = take_batch(s, who, &count, &until)) != NULL) {
        if (count == 0) clients_sleep_until(until);
        if (count > 0) run_batch(s, batch, count);
    }
}

/* Returns how many numbers of the replies are wrong. */
static long serve(spipe_resources_t *resources) {
    server_t s;
    std::vector<double> ms;
    long wrong = 0;
    clients_make(&s.requests, REQUESTS, GAP_MS);
    s.resources = resources;
    s.zero_ms = ex_now_ms();
    turns_run(&s.turns, WORKERS, [&](size_t who) { work(&s, who); });
    for (const request_t &r : s.requests) {
        wrong += clients_wrong(&r);
        ms.push_back(r.answered_ns * 1e-6 - s.zero_ms - r.asked_ms);
    }
    printf("%s resources: %d batches, %.3f ms each to set up\n", resources ? "with" : "without",
           s.batches, s.setup_ms / s.batches);
    clients_print("answers", ms);
    return wrong;
}

int main(void) {
    spipe_resources_t *shared;
    ex_begin();
    SPIPE_CHECK(spipe_resources_create(&shared, NULL, NULL));
    long wrong = serve(NULL);
    wrong += serve(shared);
    SPIPE_CHECK(spipe_resources_destroy(shared, NULL));
    return ex_verdict(wrong == 0);
}
