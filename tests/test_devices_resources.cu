/*  test_devices_resources.cu -- resources of several GPUs: made together, taken on all GPUs of
    a run at once or on none, given back by a GPU that fails; no run waits for another's part.
    If there is only one GPU it is listed three times, and the resources are of that one. */
#include "resources_common.h"
#include "streampipe_devices.h"

#include <atomic>
#include <pthread.h>
#include <thread>
#include <unistd.h>
#include <vector>
#if !defined(_WIN32)
#include <sys/wait.h>
#endif
#if defined(__HOSTCUDA__)
#include "hostcuda.h"
#endif

enum {
    COUNT = RESOURCES_COUNT,
    CHUNK = 500,
    THREADS = 6,
    LITTLE = 64 << 10
};

static int devices[3], num_there;

/* ---- A run ---------------------------------------------------------------------------------- */
/* What one thread runs, and what its stage does beside its work. */
typedef struct world {
    spipe_desc_t d;
    spipe_report_t r;
    spipe_failure_t f;
    unsigned *x, *y, sum;
    size_t taken;
    kind_t kind;
    int fails_on;                    /* device; -1 = none */
    void (*during)(struct world *w); /* called once, or NULL */
    std::atomic<int> called;
    cudaError_t got, inner;
} world_t;

static cudaError_t add(const spipe_chunk_t *c, void *user) {
    world_t *w = (world_t *)user;
    int device = -1;
    SPIPE_TRY(cudaGetDevice(&device));
    if (device == w->fails_on) return cudaErrorNotSupported;
    if (w->during && w->called.exchange(1) == 0) w->during(w);
    return SPIPE_LAUNCH(resources_kernel, spipe_blocks(c->count, 64), 64, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned), SPIPE_BUF(c, 1, unsigned), c->count,
                        c->first, w->kind == RESIDENT ? SPIPE_BUF(c, 2, unsigned) : NULL);
}

static cudaError_t give(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t most = part->count;
    size_t *count = &part->count;
    world_t *w = (world_t *)user;
    *count = COUNT - w->taken < most ? COUNT - w->taken : most;
    memcpy(dst, w->x + w->taken, *count * 4);
    w->taken += *count;
    return cudaSuccess;
}

static cudaError_t take(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    memcpy(((world_t *)user)->y + first, src, count * 4);
    return cudaSuccess;
}

static cudaError_t add_sums(void *into, const void *from, size_t bytes, void *user) {
    (void)user;
    *(unsigned *)into += *(const unsigned *)from;
    return bytes == 4 ? cudaSuccess : cudaErrorInvalidValue;
}

/* The chunks are small enough for all GPUs to have some, and the slots of one GPU take 16,000 bytes
   on the device. */
static void world_new(world_t *w, spipe_resources_t *r, kind_t kind) {
    memset((void *)w, 0, sizeof *w);
    w->kind = kind;
    w->fails_on = -1;
    resources_arrays_new(kind, &w->x, &w->y);
    w->d = spipe_desc_default();
    w->d.resources = r;
    w->d.chunk = CHUNK;
    w->d.depth = 4;
    w->d.threads = pipe_threads() ? 2 : SPIPE_AUTO;
    w->d.count = COUNT;
    if (kind == HOSTED) {
        spipe_add_source(&w->d, give, w, 4, SPIPE_IN_ORDER);
        spipe_add_sink(&w->d, take, w, 4, SPIPE_IN_ORDER);
    } else {
        spipe_add_input(&w->d, w->x, 4);
        spipe_add_output(&w->d, w->y, 4);
    }
    if (kind == RESIDENT) spipe_add_resident(&w->d, &w->sum, 4, SPIPE_DOWNLOAD);
    spipe_add_stage(&w->d, "add", add, w);
    spipe_devices_list(&w->d, devices, 3);
    spipe_devices_reduce(&w->d, add_sums, NULL);
}

/* So that a run takes 64,000 bytes of each GPU, or all its parts on one: all that LITTLE has. */
static void wants_all(world_t *w, int parts) {
    w->d.chunk = num_there == 1 ? 4000 / (size_t)parts - 33 * (size_t)parts : 4000;
    w->d.depth = 2;
}

static void world_free(world_t *w) { resources_arrays_free(w->kind, w->x, w->y); }

/* Whether the output is right, and poisons it for the next run. */
static int right(world_t *w) {
    size_t wrong = resources_wrong(w->x, w->y, COUNT);
    if (w->kind == RESIDENT) wrong += w->sum != resources_sum(w->x, COUNT);
    w->sum = 0;
    w->taken = 0;
    w->called = 0;
    return wrong == 0;
}

/* ---- Resources ------------------------------------------------------------------------------ */
static spipe_resources_t *resources_new(size_t device, size_t pinned) {
    spipe_resources_limits_t l = spipe_resources_limits_default();
    spipe_resources_t *r = NULL;
    spipe_failure_t f;
    l.device_bytes = device;
    l.pinned_bytes = pinned;
    l.threads = 12;
    if (spipe_devices_resources_create(&r, NULL, 0, &l, &f) != cudaSuccess) {
        printf("# %s\n", f.message);
        exit(99);
    }
    return r;
}

static spipe_resources_usage_t usage_of(spipe_resources_t *r, int device) {
    spipe_resources_usage_t u;
    int before;
    SPIPE_CHECK(cudaGetDevice(&before));
    SPIPE_CHECK(cudaSetDevice(device));
    SPIPE_CHECK(spipe_resources_usage(r, &u));
    SPIPE_CHECK(cudaSetDevice(before));
    return u;
}

static int idle(spipe_resources_t *r) {
    int all = 1;
    for (int i = 0; i < num_there; ++i) {
        const spipe_resources_usage_t u = usage_of(r, i);
        all &= u.runs == 0 && u.waiting == 0 && u.pipelines == 0 && u.device_bytes == 0 &&
               u.pinned_bytes == 0;
    }
    return all;
}

static void resources_end(spipe_resources_t *r) {
    spipe_failure_t f;
    const int was_idle = idle(r);
    const cudaError_t e = spipe_resources_destroy(r, &f);
    tap_ok(was_idle && e == cudaSuccess, "all was given back, and they are freed: %s", f.message);
}

/* What is alive on all devices; 0 with a real runtime. */
static int num_alive(void) {
#if defined(__HOSTCUDA__)
    return hostcuda_leaks(NULL);
#else
    return 0;
#endif
}

/* ---- Made ----------------------------------------------------------------------------------- */
static void test_made(void) {
    const int twice[2] = {0, 0}, absent[2] = {0, 99};
    spipe_resources_limits_t l = spipe_resources_limits_default();
    spipe_resources_t *r = NULL;
    spipe_failure_t f;
    const int alive = num_alive();
    int before = -1, after = -2;
    SPIPE_CHECK(cudaSetDevice(num_there - 1));
    SPIPE_CHECK(cudaGetDevice(&before));
    r = resources_new(1 << 20, 1 << 20);
    SPIPE_CHECK(cudaGetDevice(&after));
    tap_ok(before == after, "made of %d devices; the current device is as it was", num_there);
    resources_end(r);
    SPIPE_CHECK(cudaGetDevice(&after));
    tap_ok(before == after && num_alive() == alive, "destroyed of all; nothing is left");
    SPIPE_CHECK(cudaSetDevice(0));
    tap_ok(spipe_devices_resources_create(NULL, NULL, 0, NULL, &f) == cudaErrorInvalidValue, "%s",
           f.message);
    tap_ok(spipe_devices_resources_create(&r, twice, 2, NULL, &f) == cudaErrorInvalidValue && !r,
           "%s", f.message);
    tap_ok(spipe_devices_resources_create(&r, absent, 2, NULL, &f) == cudaErrorInvalidDevice && !r,
           "%s", f.message);
    tap_ok(spipe_devices_resources_create(&r, twice, 0, NULL, &f) == cudaErrorInvalidValue && !r,
           "%s", f.message);
    tap_ok(spipe_devices_resources_create(&r, NULL, 2, NULL, &f) == cudaErrorInvalidValue && !r,
           "%s", f.message);
    l.threads = 0;
    tap_ok(spipe_devices_resources_create(&r, NULL, 0, &l, &f) == cudaErrorInvalidValue && !r, "%s",
           f.message);
    l = spipe_resources_limits_default();
    l.device_bytes = SIZE_MAX - SIZE_MAX / 16;
    tap_ok(spipe_devices_resources_create(&r, NULL, 0, &l, &f) == cudaErrorMemoryAllocation && !r &&
               num_alive() == alive,
           "%s", f.message);
}

#if defined(__HOSTCUDA__)
/* One call of making them fails after the other: all or nothing, and nothing is left. */
static void test_each_call(void) {
    spipe_resources_limits_t l = spipe_resources_limits_default();
    const int alive = num_alive();
    long k, made = 0, refused = 0;
    int good = 1, fired = 1;
    l.device_bytes = l.pinned_bytes = 4096;
    for (k = 1; fired && k < 300; ++k) {
        spipe_resources_t *r = NULL;
        spipe_failure_t f;
        hostcuda_fail_clear();
        hostcuda_fail(NULL, k, cudaErrorLaunchOutOfResources);
        const cudaError_t e = spipe_devices_resources_create(&r, NULL, 0, &l, &f);
        fired = hostcuda_fail_fired() > 0;
        hostcuda_fail_clear();
        (void)cudaGetLastError();
        good &= (e == cudaSuccess) == (r != NULL) && (e == cudaSuccess || f.message[0]);
        made += r != NULL;
        refused += e != cudaSuccess;
        if (r) SPIPE_CHECK(spipe_resources_destroy(r, NULL));
        good &= num_alive() == alive;
    }
    SPIPE_CHECK(cudaSetDevice(0));
    tap_ok(good && refused > num_there && k < 300,
           "%ld calls failed one by one: made %ld times, refused %ld times, nothing left", k - 1,
           made, refused);
}
#endif

/* ---- Runs ----------------------------------------------------------------------------------- */
static void test_right(void) {
    spipe_resources_t *r = resources_new(1 << 20, 1 << 20);
    for (int kind = 0; kind < NUM_KINDS; ++kind) {
        int wrong = 0;
        for (int k = 0; k < 12; ++k) {
            world_t w;
            world_new(&w, r, (kind_t)kind);
            if (k % 3 == 1) w.d.chunk = w.d.depth = SPIPE_AUTO;
            if (k % 4 == 3 && kind != HOSTED) w.d.schedule = SPIPE_SCHEDULE_ZERO_COPY;
            w.d.checked = k == 11;
            SPIPE_CHECK_RUN(&w.d, &w.r);
            wrong += !right(&w) || w.r.waited_ms > 0.0 || w.r.runs_beside != 0 || !idle(r);
            wrong += w.r.num_devices != 3 || w.r.devices_failed != 0;
            world_free(&w);
        }
        tap_ok(wrong == 0, "%s: right, and all is given back", kind_names[kind]);
    }
    resources_end(r);
}

/* After the first runs nothing is allocated, created or started any more. */
static void test_sets_up_nothing(void) {
#if defined(__HOSTCUDA__)
    static const char *const calls[] = {"cudaMalloc",        "cudaFree",
                                        "cudaHostRegister",  "cudaHostUnregister",
                                        "cudaHostAlloc",     "cudaStreamCreateWithPriority",
                                        "cudaStreamDestroy", "cudaEventCreateWithFlags",
                                        "cudaEventDestroy",  "cudaGetDeviceProperties"};
    spipe_resources_t *r = resources_new(1 << 20, 1 << 20);
    spipe_resources_usage_t before[3], after[3];
    long made = 0;
    int wrong = 0, grown = 0, odd = 0;
    world_t w;
    memset((void *)after, 0, sizeof after);
    world_new(&w, r, PAGEABLE);
    for (int k = 0; k < 3; ++k) {
        SPIPE_CHECK_RUN(&w.d, &w.r);
        wrong += !right(&w);
    }
    for (int i = 0; i < num_there; ++i) before[i] = usage_of(r, i);
    hostcuda_calls_reset();
    for (int k = 0; k < 5; ++k) {
        hostcuda_host_work(5e6);
        SPIPE_CHECK_RUN(&w.d, &w.r);
        wrong += !right(&w);
        odd += w.r.setup_ms < 0.0 || w.r.setup_ms > 1.0;
    }
    for (const char *call : calls) made += hostcuda_calls(call);
    for (int i = 0; i < num_there; ++i) {
        after[i] = usage_of(r, i);
        grown += after[i].threads != before[i].threads || after[i].streams != before[i].streams ||
                 after[i].events != before[i].events;
    }
    tap_ok(wrong == 0 && made == 0, "a run sets nothing up: %ld calls that make things", made);
    tap_ok(odd == 0, "and its set-up takes no time: a lent thread's clock goes on to the caller's");
    tap_ok(grown == 0 && (!pipe_threads() || after[0].threads > 0),
           "nor more threads (%zu), streams (%zu) or events (%zu) on any device", after[0].threads,
           after[0].streams, after[0].events);
    world_free(&w);
    resources_end(r);
    r = resources_new(1 << 20, 1 << 20);
    world_new(&w, r, PINNED);
    for (int k = 0; k < 5; ++k) SPIPE_CHECK_RUN(&w.d, &w.r);
    for (int i = 0; i < num_there; ++i)
        wrong += usage_of(r, i).threads != (pipe_threads() ? 3u / (unsigned)num_there : 0u);
    tap_ok(wrong == 0, "the thread that issues for a device is lent, too");
    world_free(&w);
    resources_end(r);
#else
    tap_skip("a run sets nothing up", "counting calls needs hostcuda");
#endif
}

/* Runs and pipelines on one device take those of the current one. */
static void test_on_one(void) {
    spipe_resources_t *r = resources_new(1 << 20, 1 << 20);
    int wrong = 0;
    for (int i = 0; i < num_there; ++i) {
        world_t w;
        spipe_pipeline_t *p;
        const int last = num_there - 1 - i;
        world_new(&w, r, i % 2 ? PINNED : PAGEABLE);
        spipe_devices_list(&w.d, &last, 1); /* whatever the current one is */
        SPIPE_CHECK_RUN(&w.d, &w.r);
        wrong += !right(&w) || usage_of(r, last).most_device_bytes == 0;
        w.d.hooks = NULL;
        SPIPE_CHECK(cudaSetDevice(i));
        SPIPE_CHECK_RUN(&w.d, &w.r);
        wrong += !right(&w) || usage_of(r, i).most_device_bytes == 0;
        SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, &w.f));
        SPIPE_CHECK(cudaSetDevice(0));
        wrong += usage_of(r, i).pipelines != 1;
        for (int k = 0; k < 3; ++k) {
            SPIPE_CHECK(spipe_pipeline_run(p, &w.r));
            wrong += !right(&w);
        }
        SPIPE_CHECK(spipe_pipeline_destroy(p));
        world_free(&w);
    }
    tap_ok(wrong == 0 && idle(r), "runs and pipelines on one device take what is of that device");
    resources_end(r);
}

/* Chosen by the library, a run fits where the least is free: on the last device a graph may be
   launched at any time. */
static void test_least_free(void) {
    spipe_resources_t *r = resources_new(512 << 10, 512 << 10);
    spipe_pipeline_t *p;
    cudaStream_t stream;
    world_t w, v;
    world_new(&w, r, PINNED);
    world_new(&v, r, PINNED);
    v.d.hooks = NULL;
    v.d.chunk = 14900;
    v.d.depth = 4; /* 476,800 bytes: 47,000 are free */
    w.d.chunk = w.d.depth = SPIPE_AUTO;
    SPIPE_CHECK(cudaSetDevice(devices[2]));
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_pipeline_create(&p, &v.d, NULL));
    SPIPE_CHECK(spipe_pipeline_enqueue(p, stream));
    SPIPE_CHECK(spipe_pipeline_wait(p, NULL));
    SPIPE_CHECK(cudaSetDevice(0));
    w.d.no_wait = 1;
    w.got = spipe_run(&w.d, &w.r);
    tap_ok(right(&v) && w.got == cudaSuccess && right(&w) && w.r.devices_failed == 0,
           "a plan fits where the least is free: %zu slots of %zu elements; %s", w.r.depth,
           w.r.chunk, w.r.failure.message);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(cudaStreamDestroy(stream));
    world_free(&w);
    world_free(&v);
    resources_end(r);
}

/* ---- Refused -------------------------------------------------------------------------------- */
static void test_refused(void) {
    spipe_resources_limits_t l = spipe_resources_limits_default();
    spipe_resources_t *r = NULL;
    spipe_resources_usage_t u;
    spipe_failure_t f;
    world_t w;
    l.device_bytes = l.pinned_bytes = 1 << 20;
    SPIPE_CHECK(spipe_resources_create(&r, &l, NULL));
    world_new(&w, r, PAGEABLE);
    if (num_there < 3) {
        SPIPE_CHECK_RUN(&w.d, &w.r);
        tap_ok(right(&w), "resources of one device do for one that is listed three times");
    } else {
        const int two[2] = {0, 2};
        tap_ok(spipe_run(&w.d, &w.r) == cudaErrorInvalidValue &&
                   strstr(w.r.failure.message, "not of device 1"),
               "%s", w.r.failure.message);
        SPIPE_CHECK(spipe_resources_destroy(r, NULL));
        SPIPE_CHECK(spipe_devices_resources_create(&r, two, 2, &l, NULL));
        w.d.resources = r;
        w.d.hooks = NULL;
        SPIPE_CHECK(cudaSetDevice(1));
        tap_ok(spipe_run(&w.d, &w.r) == cudaErrorInvalidValue &&
                   strstr(w.r.failure.message, "device 0 and others"),
               "%s", w.r.failure.message);
        tap_ok(spipe_resources_usage(r, &u) == cudaErrorInvalidDevice,
               "nor do they have a usage there");
        SPIPE_CHECK(cudaSetDevice(0));
        spipe_devices_list(&w.d, two, 2);
        SPIPE_CHECK_RUN(&w.d, &w.r);
        tap_ok(right(&w), "a run on those that they are of");
    }
    SPIPE_CHECK(spipe_resources_destroy(r, NULL));
    r = resources_new(LITTLE, 0);
    w.d = spipe_desc_default();
    world_free(&w);
    world_new(&w, r, PAGEABLE);
    w.d.chunk = 10000;
    tap_ok(spipe_run(&w.d, &w.r) == cudaErrorMemoryAllocation && idle(r) &&
               strstr(w.r.failure.message, "do not fit into resources") && w.r.devices_failed == 0,
           "%s", w.r.failure.message);
    w.d.chunk = CHUNK;
    SPIPE_CHECK_RUN(&w.d, &w.r);
    tap_ok(right(&w) && w.r.pinned_bytes == 0, "and the next one runs, with nothing pinned: %s",
           w.r.why_staging);
    SPIPE_CHECK(spipe_resources_destroy(r, NULL));
    r = resources_new(1 << 20, 0);
    w.d.resources = r;
    w.d.hooks = NULL;
    SPIPE_CHECK(cudaSetDevice(num_there - 1));
    spipe_pipeline_t *p;
    SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
    SPIPE_CHECK(cudaSetDevice(0));
    tap_ok(spipe_resources_destroy(r, &f) == cudaErrorNotPermitted,
           "in use on the last device, they are freed on none: %s", f.message);
    SPIPE_CHECK(spipe_pipeline_run(p, &w.r));
    tap_ok(right(&w), "and that goes on");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    world_free(&w);
    resources_end(r);
}

static void test_fork(void) {
#if defined(_WIN32)
    tap_skip("a forked process is told that it cannot use them", "no fork here");
#else
    spipe_resources_t *r = resources_new(1 << 20, 1 << 20);
    int status = -1;
    world_t w;
    world_new(&w, r, PAGEABLE);
    SPIPE_CHECK_RUN(&w.d, &w.r);
    const pid_t child = fork();
    if (child == 0) {
        const cudaError_t e = spipe_run(&w.d, &w.r);
        const int told =
            e == cudaErrorInitializationError && strstr(w.r.failure.message, "process");
        _exit(told && spipe_resources_destroy(r, NULL) == e ? 0 : 1);
    }
    (void)waitpid(child, &status, 0);
    tap_ok(status == 0 && right(&w), "a forked process is told that it cannot use them");
    world_free(&w);
    resources_end(r);
#endif
}

/* ---- Waiting -------------------------------------------------------------------------------- */
#if !defined(SPIPE_NO_THREADS)
/* A run on the last device alone that has all its memory; meanwhile others come. */
static std::atomic<int> go_on;

static void hold(world_t *w) {
    (void)w;
    while (!go_on) usleep(200);
}

static void holder_new(world_t *w, spipe_resources_t *r) {
    const int last = devices[2];
    world_new(w, r, PINNED);
    wants_all(w, 1);
    w->during = hold;
    spipe_devices_list(&w->d, &last, 1);
}

static void run_world(world_t *w) { w->got = spipe_run(&w->d, &w->r); }

static void test_waits(void) {
    spipe_resources_t *r = resources_new(LITTLE, LITTLE);
    world_t first, w, v;
    int took_none = 1;
    const int zero = 0;
    go_on = 0;
    holder_new(&first, r);
    world_new(&w, r, PINNED);
    world_new(&v, r, PINNED);
    wants_all(&w, 3);
    std::thread holder(run_world, &first);
    while (usage_of(r, devices[2]).device_bytes == 0) usleep(200);
    w.d.no_wait = 1;
    run_world(&w);
    tap_ok(w.got == SPIPE_WOULD_WAIT && strstr(w.r.failure.message, "no_wait") &&
               w.r.devices_failed == 0,
           "a run that would have to wait on one device, and may not: %s", w.r.failure.message);
    w.d.no_wait = 0;
    std::thread waiter(run_world, &w);
    while (usage_of(r, devices[2]).waiting == 0) usleep(200);
    for (int k = 0; k < 50; ++k) {
        usleep(200);
        took_none &= num_there == 1 || usage_of(r, 0).device_bytes == 0;
    }
    tap_ok(took_none, "one that may takes nothing on the others meanwhile");
    v.d.no_wait = 1;
    spipe_devices_list(&v.d, &zero, 1);
    run_world(&v);
    tap_ok(v.got == SPIPE_WOULD_WAIT, "whoever comes is behind it there, too: %s",
           v.r.failure.message);
    go_on = 1;
    holder.join();
    waiter.join();
    tap_ok(first.got == cudaSuccess && w.got == cudaSuccess && right(&first) && right(&w),
           "then it has all, and is right: %s", w.r.failure.message);
    tap_ok(w.r.waited_ms > 0.0 && w.r.runs_beside == 1, "%.3f ms waited, %zu run beside it",
           w.r.waited_ms, w.r.runs_beside);
    world_free(&first);
    world_free(&w);
    world_free(&v);
    resources_end(r);
}

/* A thread that waits for all parts of its run is cancelled. */
static void *run_and_end(void *arg) {
    run_world((world_t *)arg);
    pthread_testcancel();
    return NULL;
}

static void test_cancelled(void) {
    spipe_resources_t *r = resources_new(LITTLE, LITTLE);
    pthread_t thread;
    void *how = NULL;
    world_t first, w;
    go_on = 0;
    holder_new(&first, r);
    world_new(&w, r, PINNED);
    wants_all(&w, 3);
    std::thread holder(run_world, &first);
    while (usage_of(r, devices[2]).device_bytes == 0) usleep(200);
    if (pthread_create(&thread, NULL, run_and_end, &w) != 0) exit(99);
    while (usage_of(r, devices[2]).waiting == 0) usleep(200);
    pthread_cancel(thread);
    usleep(2000);
    go_on = 1;
    holder.join();
    pthread_join(thread, &how);
    tap_ok(how == PTHREAD_CANCELED && w.got == cudaSuccess && right(&w) && idle(r),
           "a thread that is cancelled ends when its run on all devices has");
    world_free(&first);
    world_free(&w);
    resources_end(r);
}

/* Those of a higher priority first, on all devices. */
static std::atomic<int> num_ended;
static int order[THREADS];

static void note_order(world_t *w) { order[num_ended++] = (int)w->d.priority; }

static void test_priority(void) {
    static const spipe_priority_t priorities[THREADS] = {
        SPIPE_PRIORITY_LOW,  SPIPE_PRIORITY_HIGH,   SPIPE_PRIORITY_DEFAULT,
        SPIPE_PRIORITY_HIGH, SPIPE_PRIORITY_MEDIUM, SPIPE_PRIORITY_LOW};
    spipe_resources_t *r = resources_new(LITTLE, LITTLE);
    std::vector<std::thread> threads;
    world_t first, w[THREADS];
    int wrong = 0;
    num_ended = go_on = 0;
    holder_new(&first, r);
    std::thread holder(run_world, &first);
    while (usage_of(r, devices[2]).device_bytes == 0) usleep(200);
    for (int k = 0; k < THREADS; ++k) {
        world_new(&w[k], r, PINNED);
        wants_all(&w[k], 3);
        w[k].d.priority = priorities[k];
        w[k].during = note_order;
        threads.emplace_back(run_world, &w[k]);
    }
    while (usage_of(r, devices[2]).waiting < (num_there == 1 ? 3 : 1) * THREADS) usleep(200);
    go_on = 1;
    holder.join();
    for (std::thread &t : threads) t.join();
    for (int k = 0; k < THREADS; ++k) {
        wrong += w[k].got != cudaSuccess || !right(&w[k]);
        world_free(&w[k]);
    }
    tap_ok(wrong == 0 && order[0] == SPIPE_PRIORITY_HIGH && order[1] == SPIPE_PRIORITY_HIGH &&
               order[2] == SPIPE_PRIORITY_MEDIUM,
           "of runs that wait, those of a higher priority are first");
    world_free(&first);
    resources_end(r);
}

/* ---- Many at once --------------------------------------------------------------------------- */
/* Runs on all devices, on two in either order, on one, with memory for one or two of them. */
static void run_many(spipe_resources_t *r, unsigned seed, int kept_too, std::atomic<long> *wrong) {
    for (int k = 0; k < (tap_thorough() ? 40 : 8); ++k) {
        world_t w;
        seed = seed * 1664525u + 1013904223u;
        const int a = (int)((seed >> 9) % 3), b = (a + 1 + (int)((seed >> 13) % 2)) % 3;
        const int two[2] = {devices[a], devices[b]};
        world_new(&w, r, (kind_t)((seed >> 20) % NUM_KINDS));
        w.d.priority = (spipe_priority_t)((seed >> 24) % 4);
        w.d.chunk = 600 + 100 * ((seed >> 17) % 4);
        if (seed & 64) spipe_devices_list(&w.d, two, 2);
        if (seed & 128) spipe_devices_list(&w.d, two, 1);
        if (w.kind != RESIDENT && (seed & 0x300) == 0) w.fails_on = two[0];
        if (kept_too && (seed & 128) && w.fails_on < 0) {
            spipe_pipeline_t *p;
            w.d.hooks = NULL;
            SPIPE_CHECK(cudaSetDevice(two[0]));
            SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
            SPIPE_CHECK(spipe_pipeline_run(p, &w.r));
            *wrong += !right(&w);
            w.got = spipe_pipeline_run(p, &w.r);
            SPIPE_CHECK(spipe_pipeline_destroy(p));
        } else {
            w.got = spipe_run(&w.d, &w.r);
        }
        if (w.got == cudaSuccess && !right(&w)) ++*wrong;
        if (w.got != cudaSuccess && w.fails_on < 0) {
            printf("# %s\n", w.r.failure.message);
            ++*wrong;
        }
        world_free(&w);
    }
}

static void test_many(void) {
    enum {
        FOR_ONE = LITTLE + LITTLE / 2 /* or two small ones */
    };

    spipe_resources_t *r = resources_new(FOR_ONE, FOR_ONE);
    std::vector<std::thread> threads;
    std::atomic<long> wrong(0);
    for (int k = 0; k < THREADS; ++k) {
        threads.emplace_back(run_many, r, 7u * (unsigned)k + pipe_random(), k % 2, &wrong);
    }
    for (std::thread &t : threads) t.join();
    tap_ok(
        wrong == 0 && usage_of(r, 0).most_device_bytes <= FOR_ONE,
        "%d threads run on all devices, on two, on one, and fail: none waits for ever, all right",
        (int)THREADS);
    resources_end(r);
}

/* ---- In a stage ----------------------------------------------------------------------------- */
static int inner_takes_all;

static void run_inner(world_t *w) {
    world_t v;
    world_new(&v, w->d.resources, PINNED);
    if (inner_takes_all) wants_all(&v, 1);
    run_world(&v);
    w->inner = v.got;
    w->f = v.r.failure;
    if (v.got == cudaSuccess && !right(&v)) w->inner = cudaErrorUnknown;
    world_free(&v);
}

/* What the inner run wants on the other devices they have who wait for its chunk. */
static void test_inside(void) {
    spipe_resources_t *r = resources_new(num_there == 1 ? 3 * LITTLE : LITTLE, LITTLE);
    world_t w;
    world_new(&w, r, PINNED);
    w.during = run_inner;
    for (inner_takes_all = 0; inner_takes_all < 2; ++inner_takes_all) {
        const cudaError_t want = inner_takes_all ? cudaErrorNotPermitted : cudaSuccess;
        SPIPE_CHECK_RUN(&w.d, &w.r);
        tap_ok(w.inner == want && right(&w), "a run on all devices in a stage of another: %s",
               inner_takes_all ? w.f.message : "right");
    }
    world_free(&w);
    resources_end(r);
}

/* Two runs on all devices, each with such a run in a stage, and one on a device in that. */
static std::atomic<int> num_inside, num_deep;

static void run_deep(world_t *w) {
    const int one = devices[1];
    world_t v;
    ++num_deep;
    while (num_deep < 2) usleep(100);
    world_new(&v, w->d.resources, PAGEABLE);
    spipe_devices_list(&v.d, &one, 1);
    v.d.chunk = num_there == 1 ? 600 : 380; /* so there is no room before another has ended */
    run_world(&v);
    w->inner = v.got == cudaSuccess && !right(&v) ? cudaErrorUnknown : v.got;
    world_free(&v);
}

static void run_both(world_t *w) {
    world_t v;
    ++num_inside;
    while (num_inside < 2) usleep(100);
    world_new(&v, w->d.resources, PINNED);
    v.d.chunk = 400;
    v.during = run_deep;
    run_world(&v);
    w->inner = v.got;
    if (v.got == cudaSuccess && !right(&v)) w->inner = cudaErrorUnknown;
    if (v.got == cudaSuccess && v.inner != cudaSuccess) w->inner = v.inner;
    world_free(&v);
}

static void test_each_other(void) {
    spipe_resources_t *r = resources_new(num_there == 1 ? 3 * LITTLE : LITTLE, LITTLE);
    int refused = 0, wrong = 0;
    for (int round = 0; round < 6; ++round) {
        world_t w[2];
        num_inside = num_deep = 0;
        for (world_t &v : w) {
            world_new(&v, r, PINNED);
            v.during = run_both;
        }
        std::thread other(run_world, &w[1]);
        run_world(&w[0]);
        other.join();
        for (world_t &v : w) {
            wrong += v.got != cudaSuccess || !right(&v);
            wrong += v.inner != cudaSuccess && v.inner != cudaErrorNotPermitted;
            refused += v.inner == cudaErrorNotPermitted;
            world_free(&v);
        }
    }
    tap_ok(wrong == 0 && refused <= 6, /* at most one of the two: a GPU may have ended its part */
           "runs in stages of runs in stages: %d refused, none waits "
           "for who waits for it",
           refused);
    resources_end(r);
}

/* ---- Threads -------------------------------------------------------------------------------- */
static void test_threads(void) {
    spipe_resources_t *r = resources_new(1 << 20, 1 << 20);
    world_t w;
    world_new(&w, r, PAGEABLE);
    w.d.threads = 24;
    w.d.depth = 16;
    SPIPE_CHECK_RUN(&w.d, &w.r);
    if (pipe_threads()) {
        /* more than 2 once another GPU has ended its part */
        tap_ok(right(&w) && w.r.fill_threads >= 2 && w.r.fill_threads <= 6 &&
                   w.r.drain_threads == w.r.fill_threads,
               "of 12 threads of all devices each of three has %zu to fill, %zu to drain",
               w.r.fill_threads, w.r.drain_threads);
    }
    world_free(&w);
    resources_end(r);
}
#endif

/* ---- Failures ------------------------------------------------------------------------------- */
static void test_one_fails(void) {
    spipe_resources_t *r = resources_new(1 << 20, 1 << 20);
    int wrong = 0, seen = 0;
    for (int kind = 0; kind < NUM_KINDS; ++kind) {
        for (int k = 0; k < (int)tap_every(6, 2); ++k) {
            world_t w;
            if (kind == RESIDENT && k > 0) continue;
            world_new(&w, r, (kind_t)kind);
            w.fails_on = devices[1];
            w.got = spipe_run(&w.d, &w.r);
            seen += w.r.devices_failed != 0;
            if (num_there > 1 && w.got == cudaSuccess) wrong += !right(&w); /* it had no chunk */
            if (num_there > 1 && w.got != cudaSuccess) wrong += w.r.devices_failed != SPIPE_BIT(1);
            wrong += !idle(r);
            w.fails_on = -1;
            memset(w.y, 0xA5, COUNT * 4);
            w.taken = 0;
            w.sum = 0;
            SPIPE_CHECK_RUN(&w.d, &w.r);
            wrong += !right(&w);
            world_free(&w);
        }
    }
    tap_ok(wrong == 0 && seen > 0, "a GPU fails, the run says so, the next run has all");
    resources_end(r);
}

#if defined(__HOSTCUDA__)
/* Whichever call of a run fails, on whichever device: nothing is lost for the next run. */
static void test_calls_fail(void) {
    spipe_resources_t *r = resources_new(1 << 20, 1 << 20);
    const long every = (long)tap_every(7, 23);
    long k, failed = 0;
    int good = 1, quiet = 0;
    for (k = 1; good && quiet < 9 && k < 2000; k += every) {
        world_t w;
        world_new(&w, r, k % 2 ? PAGEABLE : PINNED);
        w.d.chunk = 4000;
        hostcuda_fail_clear();
        hostcuda_fail(NULL, k, cudaErrorLaunchOutOfResources);
        w.got = spipe_run(&w.d, &w.r);
        quiet = hostcuda_fail_fired() > 0 ? 0 : quiet + 1;
        hostcuda_fail_clear();
        (void)cudaGetLastError();
        failed += w.got != cudaSuccess || w.r.devices_failed;
        good &= w.got == cudaSuccess ? right(&w) : w.r.failure.message[0] != 0;
        good &= idle(r);
        if (!good) tap_note("call %ld: %s", k, w.r.failure.message);
        memset(w.y, 0xA5, COUNT * 4);
        SPIPE_CHECK_RUN(&w.d, &w.r);
        good &= right(&w);
        world_free(&w);
    }
    tap_ok(good && failed > 0, "%ld calls failed one by one: all is given back, the next is right",
           failed);
    resources_end(r);
}

#if !defined(SPIPE_NO_THREADS) && !defined(__SANITIZE_THREAD__)
/* A device is lost while threads run, and wait: each run ends, and says why; what is on the others
   is freed, too. Not under ThreadSanitizer: a call that finds the device broken waits for nothing,
   so it orders nothing. */
static void break_last(world_t *w) {
    int before;
    (void)w;
    SPIPE_CHECK(cudaGetDevice(&before));
    SPIPE_CHECK(cudaSetDevice(devices[2]));
    hostcuda_break_device(cudaErrorIllegalAddress);
    (void)cudaSetDevice(before);
}

static void run_until_lost(world_t *w) {
    do {
        run_world(w);
    } while (w->got == cudaSuccess && w->r.devices_failed == 0);
}

static void test_lost(void) {
    const int alive = num_alive();
    spipe_resources_t *r = resources_new(LITTLE, LITTLE);
    std::vector<std::thread> threads;
    world_t w[THREADS], first;
    spipe_failure_t f;
    int wrong = 0;
    for (world_t &v : w) {
        world_new(&v, r, PAGEABLE);
        v.d.chunk = 1000;
        threads.emplace_back(run_until_lost, &v);
    }
    world_new(&first, r, PAGEABLE);
    first.during = break_last;
    run_until_lost(&first);
    for (std::thread &t : threads) t.join();
    for (world_t &v : w) {
        wrong += v.got != cudaSuccess && v.got != cudaErrorIllegalAddress;
        wrong += !v.r.failure.message[0];
    }
    tap_ok(wrong == 0 && idle(r), "a device that is lost: each run ends: %s",
           w[0].r.failure.message);
    const cudaError_t e = spipe_resources_destroy(r, &f);
    tap_ok(e == cudaErrorIllegalAddress, "%s", f.message);
    SPIPE_CHECK(cudaSetDevice(devices[2]));
    SPIPE_CHECK(cudaDeviceReset());
    SPIPE_CHECK(cudaSetDevice(0));
    tap_ok(num_alive() == alive, "and what was on the others is freed: %d alive, %d before",
           num_alive(), alive);
    for (world_t &v : w) world_free(&v);
    world_free(&first);
}
#endif
#endif

static void find_devices(void) {
    SPIPE_CHECK(cudaGetDeviceCount(&num_there));
    if (num_there > 3) num_there = 3;
    if (num_there < 3) num_there = 1;
    for (int i = 0; i < 3; ++i) devices[i] = i % num_there;
}

int main(void) {
    pipe_needs_lending();
#if defined(__HOSTCUDA__)
#if !defined(SPIPE_NO_THREADS)
    /* As on a machine with one GPU, which has all three parts of a run. */
    SPIPE_CHECK(hostcuda_set_devices(1));
    find_devices();
    test_waits();
    test_cancelled();
    test_priority();
#endif
    SPIPE_CHECK(hostcuda_set_devices(3));
#endif
    find_devices();
    test_made();
#if defined(__HOSTCUDA__)
    test_each_call();
#endif
    test_right();
    test_sets_up_nothing();
    test_on_one();
    test_least_free();
    test_refused();
    test_fork();
    test_one_fails();
#if !defined(SPIPE_NO_THREADS)
    test_waits();
    test_cancelled();
    test_priority();
    test_inside();
    test_each_other();
    test_threads();
    test_many();
#endif
#if defined(__HOSTCUDA__)
    test_calls_fail();
#if !defined(SPIPE_NO_THREADS) && !defined(__SANITIZE_THREAD__)
    test_lost(); /* last */
#endif
#endif
    return tap_done();
}
