/*  test_exceptions.cu -- functions of the user's that throw, on the calling thread and on the
    library's, in one run, in kept pipelines, enqueued, and on several GPUs: the exception leaves
    the call that began the run, nothing is left behind, and the next run is right. */
#include "pipe_common.h"
#include "streampipe_devices.h"

#include <stdexcept>
#include <string>

#if defined(__HOSTCUDA__)
#include "hostcuda.h"
#endif

enum {
    CHUNK = 1000,
    CHUNKS = 40,
    N = CHUNK * CHUNKS,
    BAD = 7
};

enum {
    NOBODY,
    STAGE,
    HOST_STAGE,
    SOURCE,
    SINK,
    PROGRESS,
    NUM_THROWERS
};

static const char *const throwers[] = {"nobody",   "a stage", "a host stage",
                                       "a source", "a sink",  "the progress callback"};

/* One pipeline: source -> copy -> host stage -> sink. */
typedef struct world {
    int thrower, what;
    size_t given, taken;
    unsigned char out[N];
} world_t;

/* what: 0 = an exception of the standard library, 1 = of a type of its own */
static void may_throw(const world_t *w, int who, size_t chunk) {
    if (w->thrower != who || chunk < BAD) return;
    if (w->what == 1) throw 42;
    throw std::runtime_error(throwers[who]);
}

static cudaError_t copy_stage(const spipe_chunk_t *c, void *user) {
    may_throw((const world_t *)user, STAGE, c->index);
    return cudaMemcpyAsync(c->data[1], c->data[0], c->count, cudaMemcpyDefault, c->stream);
}

static cudaError_t host_stage(const spipe_chunk_t *c, void *user) {
    unsigned char *at = (unsigned char *)c->data[1];
    size_t i;
    may_throw((const world_t *)user, HOST_STAGE, c->index);
    for (i = 0; i < c->count; ++i) at[i] = (unsigned char)(at[i] + 1);
    return cudaSuccess;
}

static cudaError_t give(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t want = part->count;
    size_t *n = &part->count;
    world_t *w = (world_t *)user;
    unsigned char *to = (unsigned char *)dst;
    size_t i;
    may_throw(w, SOURCE, w->given / CHUNK);
    *n = N - w->given < want ? N - w->given : want;
    for (i = 0; i < *n; ++i) to[i] = (unsigned char)((w->given + i) * 7);
    w->given += *n;
    return cudaSuccess;
}

static cudaError_t take(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, n = part->count;
    world_t *w = (world_t *)user;
    may_throw(w, SINK, first / CHUNK);
    memcpy(w->out + first, src, n);
    w->taken += n;
    return cudaSuccess;
}

static int progress(const spipe_progress_t *p, void *user) {
    may_throw((const world_t *)user, PROGRESS, p->chunks_done);
    return 0;
}

static spipe_desc_t describe(world_t *w, int thrower, int what, size_t threads) {
    spipe_desc_t d = spipe_desc_default();
    memset((void *)w, 0, sizeof *w);
    w->thrower = thrower;
    w->what = what;
    d.count = N;
    d.chunk = CHUNK;
    d.threads = threads;
    spipe_add_source(&d, give, w, 1, SPIPE_IN_ORDER);
    spipe_add_sink(&d, take, w, 1, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "copy", copy_stage, w);
    spipe_add_host_stage(&d, "add", host_stage, w, SPIPE_BIT(1), SPIPE_BIT(1));
    if (thrower == PROGRESS) {
        d.progress = progress;
        d.progress_user = w;
    }
    return d;
}

static int is_right(const world_t *w) {
    size_t i, wrong = 0;
    for (i = 0; i < N; ++i) wrong += w->out[i] != (unsigned char)(i * 7 + 1);
    return wrong == 0 && w->taken == N;
}

/* What came out of a call: the text of an exception, "42", or "" for none. */
template <typename Call>
static std::string thrown_by(Call call) {
    try {
        call();
    } catch (const std::exception &e) {
        return e.what();
    } catch (int number) {
        return std::to_string(number);
    }
    return "";
}

static std::string expected(const world_t &w) {
    return w.what == 1 ? std::string("42") : std::string(throwers[w.thrower]);
}

static int nothing_left(void) {
#if defined(__HOSTCUDA__)
    return hostcuda_leaks(NULL) == 0 && cudaGetLastError() == cudaSuccess;
#else
    return cudaGetLastError() == cudaSuccess;
#endif
}

/* The chunks before the one that threw are brought to their end. The progress callback throws once
   that many are whole; those that were begun by then follow, and how many is chance. */
static int whole_is_exact(const world_t *w, const spipe_report_t *r) {
    const size_t whole = r->failure.chunks_whole;
    if (w->taken != whole * CHUNK || r->count_done != w->taken) return 0;
    if (w->thrower == PROGRESS) return whole >= BAD && whole < CHUNKS;
    return whole == BAD && r->failure.chunk == BAD;
}

static void test_one_run(int thrower, int what, size_t threads) {
    static world_t w;
    const spipe_desc_t d = describe(&w, thrower, what, threads);
    spipe_report_t r;
    const std::string text = thrown_by([&] { (void)spipe_run(&d, &r); });
    tap_ok(text == expected(w) && r.failure.error != cudaSuccess && r.failure.message[0] &&
               whole_is_exact(&w, &r) && nothing_left(),
           "%s throws, %zu threads: spipe_run throws it on, with a report and nothing left: %s",
           throwers[thrower], threads, r.failure.message);
}

static void test_kept(int thrower, size_t threads) {
    static world_t w;
    const spipe_desc_t d = describe(&w, thrower, 0, threads);
    spipe_pipeline_t *p = NULL;
    spipe_report_t r;
    std::string text;
    int again;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    text = thrown_by([&] { (void)spipe_pipeline_run(p, &r); });
    w.thrower = NOBODY;
    w.given = w.taken = 0;
    again = spipe_pipeline_run(p, &r) == cudaSuccess && is_right(&w);
    w.thrower = thrower;
    w.given = w.taken = 0;
    if (thrower != PROGRESS) { /* which an enqueued run does not call */
        again &= thrown_by([&] { (void)spipe_pipeline_enqueue(p, NULL); }) == text;
        (void)spipe_pipeline_wait(p, NULL);
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    tap_ok(text == throwers[thrower] && again && nothing_left(),
           "%s throws, %zu threads: a kept pipeline throws it on, and its next run is right",
           throwers[thrower], threads);
}

static void test_devices(int thrower) {
    static world_t w;
    spipe_desc_t d = describe(&w, thrower, 0, 1);
    spipe_report_t r;
    std::string text;
    spipe_devices_all(&d);
    text = thrown_by([&] { (void)spipe_run(&d, &r); });
    tap_ok(text == throwers[thrower] && nothing_left(),
           "%s throws on one of %d GPUs: spipe_run throws it on: %s", throwers[thrower],
           r.num_devices, r.failure.message);
}

int main(void) {
    static world_t w;
    spipe_desc_t d = describe(&w, NOBODY, 0, 2);
    int who, num = 1;
    size_t threads;
    tap_ok(spipe_run(&d, NULL) == cudaSuccess && is_right(&w), "nobody throws: the run is right");
    for (who = STAGE; who < NUM_THROWERS; ++who) {
        for (threads = 0; threads <= 2; ++threads) {
            test_one_run(who, 0, threads);
            test_one_run(who, 1, threads);
            test_kept(who, threads);
        }
    }
#if defined(__HOSTCUDA__)
    SPIPE_CHECK(hostcuda_set_devices(3));
#endif
    SPIPE_CHECK(cudaGetDeviceCount(&num));
    for (who = STAGE; who < NUM_THROWERS; ++who) test_devices(who);
    return tap_done();
}
