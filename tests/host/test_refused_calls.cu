/*  test_refused_calls.cu -- each CUDA call that a public function makes fails once. A function that
    returns an error says why, where there is a place for a sentence: in its report, in its failure,
    or in spipe_pipeline_failure. And no error is left as CUDA's last one, where the caller's next
    check would meet it. */
#include "hostcuda.h"
#include "pipe_common.h"
#include "streampipe_devices.h"
#include "streampipe_timeline.h"
#include "streampipe_tools.h"

#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
/* A stream whose destroying was made to fail keeps its thread: hostcuda's, and asked for. */
extern "C" const char *__tsan_default_options() { return "report_thread_leaks=0"; }
#endif

enum {
    N = 900,
    CHUNK = 100
};

#define FAULT cudaErrorLaunchOutOfResources /* nothing here returns it by itself */

/* ---- what a call left ---------------------------------------------------------------------- */
static int num_left, num_silent;
static char who_left[96], who_is_silent[96];

static cudaError_t after(cudaError_t e, const char *call, const spipe_failure_t *f) {
    if (cudaPeekAtLastError() != cudaSuccess) {
        if (num_left++ == 0) snprintf(who_left, sizeof who_left, "%s", call);
        (void)cudaGetLastError();
    }
    if (f && e != cudaSuccess && (!f->message[0] || (f->error != e && f->error != FAULT))) {
        if (num_silent++ == 0) snprintf(who_is_silent, sizeof who_is_silent, "%s", call);
    }
    return e;
}

#define CALL(call)         after((call), #call, NULL)
#define SAYS(call, f)      after((call), #call, (f))
#define KEPT(p, call)      after((call), #call, spipe_pipeline_failure(p))
#define REPORTS(call, rep) after((call), #call, &(rep).failure)

/* A call of the test's own, which may be the one that fails. */
static void own(cudaError_t e) {
    if (e != cudaSuccess) (void)cudaGetLastError();
}

/* ---- the public functions, in the order of a program ---------------------------------------- */
static pipe_array_t pageable[2], pinned[2], other;
static pipe_mix_args_t mix = {0, 1, 1};
static size_t given;

static void nothing(void *) {}

static void nothing_after(cudaError_t, void *) {}

static void try_streams(void) {
    spipe_stream_pool_t pool;
    cudaStream_t a = NULL, b = NULL;
    int value;
    (void)CALL(spipe_priority_value(SPIPE_PRIORITY_HIGH, &value));
    if (CALL(spipe_stream_create(&a, SPIPE_PRIORITY_HIGH)) == cudaSuccess) {
        (void)CALL(spipe_host_call(a, nothing, NULL));
        (void)CALL(spipe_stream_wait(a, NULL));
        own(cudaStreamDestroy(a));
    }
    if (CALL(spipe_stream_pool_create(&pool, 3, SPIPE_PRIORITY_DEFAULT)) != cudaSuccess) return;
    (void)CALL(spipe_stream_next(&pool, &b));
    (void)CALL(spipe_stream_pool_destroy(&pool));
}

static void try_events(void) {
    spipe_event_pool_t pool;
    spipe_timer_t timer;
    cudaEvent_t a = NULL;
    float ms;
    if (CALL(spipe_event_create(&a)) == cudaSuccess) own(cudaEventDestroy(a));
    if (CALL(spipe_event_pool_create(&pool)) == cudaSuccess) {
        if (CALL(spipe_event_acquire(&pool, &a)) == cudaSuccess) {
            (void)CALL(spipe_event_release(&pool, a));
        }
        (void)CALL(spipe_event_pool_destroy(&pool));
    }
    if (CALL(spipe_timer_create(&timer)) != cudaSuccess) return;
    (void)CALL(spipe_timer_start(&timer, NULL));
    (void)CALL(spipe_timer_stop(&timer, NULL));
    (void)CALL(spipe_timer_ms(&timer, &ms));
    (void)CALL(spipe_timer_destroy(&timer));
}

static void try_memory(void) {
    void *at = NULL;
    int is;
    if (CALL(spipe_pinned_alloc(&at, N)) == cudaSuccess) (void)CALL(spipe_pinned_free(at));
    if (CALL(spipe_pin(other.at, N)) == cudaSuccess) {
        (void)CALL(spipe_is_pinned(other.at, N, &is));
        (void)CALL(spipe_unpin(other.at));
    }
}

static void try_worker(void) {
    spipe_worker_t worker;
    if (CALL(spipe_worker_create(&worker)) != cudaSuccess) return;
    (void)CALL(spipe_worker_call(&worker, NULL, nothing_after, NULL));
    (void)CALL(spipe_worker_wait(&worker));
    (void)CALL(spipe_worker_destroy(&worker));
}

static void try_channel(void) {
    spipe_channel_t c;
    int value = 1;
    if (CALL(spipe_channel_create(&c, sizeof value, 2)) != cudaSuccess) return;
    (void)CALL(spipe_channel_send(&c, NULL, &value));
    (void)CALL(spipe_channel_recv(&c, NULL, &value));
    own(cudaDeviceSynchronize());
    (void)CALL(spipe_channel_destroy(&c));
}

static spipe_desc_t describe(const pipe_array_t *arrays) {
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.chunk = CHUNK;
    d.threads = 1;
    spipe_add_input(&d, arrays[0].at, 1);
    spipe_add_output(&d, arrays[1].at, 1);
    spipe_add_resident(&d, NULL, 64, SPIPE_ZERO);
    return d;
}

static spipe_desc_t with_stage(const pipe_array_t *arrays) {
    spipe_desc_t d = describe(arrays);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &mix);
    return d;
}

static void try_facts(void) {
    const spipe_desc_t d = with_stage(pinned);
    spipe_device_t facts;
    spipe_plan_t plan;
    spipe_failure_t f;
    (void)CALL(spipe_device_get(&facts, -1));
    (void)SAYS(spipe_plan(&d, 1, &plan, &f), &f);
}

static cudaError_t source(spipe_part_t *part, void *) {
    void *dst = part->data;
    const size_t most = part->count;
    size_t *count = &part->count;
    *count = N - given < most ? N - given : most;
    memset(dst, 1, *count);
    given += *count;
    return cudaSuccess;
}

static cudaError_t sink(const spipe_part_t *part, void *) {
    (void)part;
    return cudaSuccess;
}

static cudaError_t host_stage(const spipe_chunk_t *, void *) { return cudaSuccess; }

static void try_runs(void) {
    int k;
    for (k = 0; k < 5; ++k) {
        spipe_desc_t d = with_stage(k % 2 ? pageable : pinned);
        spipe_report_t r;
        d.checked = k == 2;
        if (k == 3) d.staging = SPIPE_STAGING_REGISTER;
        if (k == 4) d.schedule = SPIPE_SCHEDULE_ZERO_COPY;
        (void)REPORTS(spipe_run(&d, &r), r);
    }
}

static void try_hosted(void) {
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    given = 0;
    d.chunk = CHUNK;
    spipe_add_source(&d, source, NULL, 1, SPIPE_IN_ORDER);
    spipe_add_sink(&d, sink, NULL, 1, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &mix);
    spipe_add_host_stage(&d, "host", host_stage, NULL, SPIPE_BIT(1), SPIPE_BIT(1));
    (void)REPORTS(spipe_run(&d, &r), r);
}

static void try_kept(const pipe_array_t *arrays, int replayed) {
    spipe_desc_t d = with_stage(arrays);
    spipe_pipeline_t *p;
    spipe_report_t r;
    spipe_failure_t f;
    int k;
    if (replayed) spipe_stage_replayable(&d, 0);
    if (replayed) d.chunk = SPIPE_AUTO;
    if (SAYS(spipe_pipeline_create(&p, &d, &f), &f) != cudaSuccess) return;
    for (k = 0; k < 3; ++k) {
        const cudaError_t e = REPORTS(spipe_pipeline_run(p, &r), r);
        (void)after(e, "spipe_pipeline_run", spipe_pipeline_failure(p));
    }
    (void)KEPT(p, spipe_pipeline_set_timeline(p, NULL));
    (void)KEPT(p, spipe_pipeline_set_count(p, N / 2));
    (void)KEPT(p, spipe_pipeline_set_host(p, 0, other.at));
    (void)KEPT(p, spipe_pipeline_enqueue(p, NULL));
    (void)REPORTS(spipe_pipeline_wait(p, &r), r);
    (void)KEPT(p, spipe_pipeline_wait(p, NULL));
    (void)CALL(spipe_pipeline_destroy(p));
}

static void try_pinned_kept(void) { try_kept(pinned, 0); }

static void try_staged_kept(void) { try_kept(pageable, 0); }

static void try_replayed(void) { try_kept(pinned, 1); }

static void try_loop(const pipe_array_t *arrays) {
    const spipe_desc_t d = describe(arrays);
    spipe_pipeline_t *p;
    spipe_report_t r;
    spipe_chunk_t c;
    spipe_failure_t f;
    int k;
    if (SAYS(spipe_pipeline_create(&p, &d, &f), &f) != cudaSuccess) return;
    for (k = 0; k < 2 + N / CHUNK; ++k) {
        if (KEPT(p, spipe_pipeline_next(p, NULL, &c)) != cudaSuccess || c.count == 0) break;
        if (k % 3 == 2) (void)KEPT(p, spipe_pipeline_set_count(p, 5)); /* refused */
        if (KEPT(p, spipe_pipeline_release(p, NULL)) != cudaSuccess) break;
    }
    (void)REPORTS(spipe_pipeline_end(p, &r), r);
    (void)CALL(spipe_pipeline_destroy(p));
}

static void try_pinned_loop(void) { try_loop(pinned); }

static void try_staged_loop(void) { try_loop(pageable); }

static void try_resources(void) {
    spipe_resources_limits_t l = spipe_resources_limits_default();
    spipe_resources_usage_t u;
    spipe_resources_t *res;
    spipe_failure_t f;
    spipe_report_t r;
    int k;
    l.device_bytes = l.pinned_bytes = 1 << 20;
    if (SAYS(spipe_resources_create(&res, &l, &f), &f) != cudaSuccess) return;
    for (k = 0; k < 4; ++k) {
        spipe_desc_t d = with_stage(k % 2 ? pageable : pinned);
        d.resources = res;
        (void)REPORTS(spipe_run(&d, &r), r);
        (void)REPORTS(spipe_run(&d, &r), r);
        (void)REPORTS(spipe_run(&d, &r), r);
    }
    (void)CALL(spipe_resources_usage(res, &u));
    (void)SAYS(spipe_resources_destroy(res, &f), &f);
}

static void try_devices(void) {
    static const int both[] = {0, 1};
    spipe_desc_t d = with_stage(pageable);
    spipe_report_t r;
    (void)spipe_devices_list(&d, both, 2);
    (void)REPORTS(spipe_run(&d, &r), r);
}

static void try_devices_resources(void) {
    static const int both[] = {0, 1};
    spipe_resources_limits_t l = spipe_resources_limits_default();
    spipe_resources_t *res;
    spipe_failure_t f;
    l.device_bytes = l.pinned_bytes = 1 << 20;
    if (SAYS(spipe_devices_resources_create(&res, both, 2, &l, &f), &f) != cudaSuccess) return;
    (void)SAYS(spipe_resources_destroy(res, &f), &f);
}

static void try_doctor(void) {
    spipe_doctor_desc_t d = spipe_doctor_default();
    d.probe_bytes = 4096;
    (void)CALL(spipe_doctor(&d, NULL, NULL));
}

static void try_timeline(void) {
    spipe_timeline_t t = spipe_timeline_default();
    spipe_desc_t d = with_stage(pinned);
    spipe_report_t r;
    d.timeline = &t;
    (void)REPORTS(spipe_run(&d, &r), r);
}

/* ---- each of them, with each call failing once ----------------------------------------------- */
typedef struct attempt {
    const char *what;
    void (*make)(void);
    long step; /* every so many calls, where one is like another */
} attempt_t;

static const attempt_t attempts[] = {{"streams and their pools", try_streams, 1},
                                     {"events, their pools, timers", try_events, 1},
                                     {"pinned memory", try_memory, 1},
                                     {"workers", try_worker, 1},
                                     {"channels", try_channel, 1},
                                     {"facts and plans", try_facts, 1},
                                     {"one-shot runs", try_runs, 2},
                                     {"sources, sinks, host stages", try_hosted, 2},
                                     {"a kept pipeline", try_pinned_kept, 2},
                                     {"a kept pipeline that stages", try_staged_kept, 2},
                                     {"a kept pipeline that is replayed", try_replayed, 2},
                                     {"a loop of chunks", try_pinned_loop, 1},
                                     {"a loop of chunks that are staged", try_staged_loop, 1},
                                     {"resources", try_resources, 5},
                                     {"two GPUs", try_devices, 5},
                                     {"resources of two GPUs", try_devices_resources, 1},
                                     {"the checklist", try_doctor, 5},
                                     {"a timeline", try_timeline, 5}};

static long calls_of(const attempt_t *a) {
    hostcuda_calls_reset();
    a->make();
    return hostcuda_calls(NULL);
}

static void test(const attempt_t *a) {
    const long step = a->step * (long)tap_every(1, 7), calls = calls_of(a);
    long k, fired = 0;
    num_left = num_silent = 0;
    for (k = 1; k <= calls; k += step) {
        hostcuda_fail_clear();
        hostcuda_fail(NULL, k, FAULT);
        a->make();
        fired += hostcuda_fail_fired();
        hostcuda_fail_clear();
        (void)cudaDeviceSynchronize();
        (void)cudaGetLastError();
        (void)cudaSetDevice(0);
    }
    tap_ok(fired > 0 && num_left == 0,
           "%s: no error is left as CUDA's last one, %ld of %ld calls failing", a->what, fired,
           calls);
    if (num_left) tap_note("left first by %s", who_left);
    tap_ok(num_silent == 0, "%s: what is refused or fails leaves a sentence", a->what);
    if (num_silent) tap_note("none by %s", who_is_silent);
}

/* A description that is wrong is refused before anything in it is used. */
static void test_wrong(int num_devices) {
    spipe_desc_t d = with_stage(pinned);
    spipe_report_t r;
    if (num_devices > 0) spipe_devices_all(&d);
    d.num_buffers = 1000;
    hostcuda_calls_reset();
    const cudaError_t e = spipe_run(&d, &r);
    tap_ok(e == cudaErrorInvalidValue && hostcuda_calls("cudaPointerGetAttributes") == 0,
           "1000 buffers, %d GPUs: refused, and no array is looked at: %s", num_devices,
           r.failure.message);
}

int main(int argc, char **argv) {
    size_t k;
    int i;
    SPIPE_CHECK(hostcuda_set_devices(2));
    for (i = 0; i < 2; ++i) {
        pageable[i] = pipe_array_new(N, PIPE_PAGEABLE);
        pinned[i] = pipe_array_new(N, PIPE_PINNED);
    }
    other = pipe_array_new(N, PIPE_PAGEABLE);
    for (k = 0; k < sizeof attempts / sizeof *attempts; ++k) {
        if (argc < 2 || strstr(attempts[k].what, argv[1])) test(&attempts[k]);
    }
    test_wrong(0);
    test_wrong(2);
    (void)tap_done();
    fflush(stdout);
    _exit(tap_failed != 0); /* what failed frees kept is no leak of ours */
}
