/*  test_torture.cu -- everything that a pipeline asks of the system fails once: each call of the
    CUDA runtime, each operation on the GPU, each malloc and realloc, each thread, each of the
    user's own functions. Each time the first error comes back with a sentence and, where there is
    one, stage and chunk; what is called whole is whole; nothing is left over; and the same pipeline
    runs right again. (Failing to pin, to start a thread or to capture is no error: then the run is
    right.)

    usage: test_torture [--all] [--case NAME]     without --all every so many-th fault is tried   */
#include "torture_faults.h"

enum {
    OTHER_DEVICE = 1
}; /* kept pipelines are of this one, and 0 is current when they run */

/* ---- one attempt --------------------------------------------------------------------------- */
/* After one step of a scenario; the value says whether the scenario can go on. */
static int judge(fuzz_world_t *w, const fault_t &f, cudaError_t e, const spipe_report_t *r, int ran,
                 int may_swallow) {
    const fuzz_scene_t *s = w->scene;
    const spipe_failure_t *why = &r->failure;
    const long fired = hostcuda_fail_fired() + torture_fired.load();
    size_t whole = ran && r->chunk ? why->chunks_whole * r->chunk : 0, chunks = 0;
    int i;
    if (r->chunk) chunks = (w->count + r->chunk - 1) / r->chunk;
    if (e == cudaSuccess) {
        FUZZ_CHECK(w, !fired || may_pass(f) || may_swallow, "a fault that nobody heard of");
    } else {
        /* an attribute that cannot be read counts as one that the device has not */
        const int lacks = f.what == "cudaDeviceGetAttribute" && e == cudaErrorNotSupported;
        FUZZ_CHECK(w, fired && (e == f.error || lacks), "not the error given: %s",
                   cudaGetErrorName(e));
        FUZZ_CHECK(w, why->error == e && why->message[0], "no sentence: '%s' (%s)", why->message,
                   cudaGetErrorName(why->error));
        FUZZ_CHECK(w, why->stage >= -1 && why->stage < s->num_stages, "stage %d", why->stage);
        FUZZ_CHECK(w, why->stage < 0 || strstr(why->message, s->stages[why->stage].name),
                   "the stage is not named: %s", why->message);
        FUZZ_CHECK(w, why->chunk == SPIPE_AUTO || why->chunk <= chunks, "chunk %zu of %zu: %s",
                   why->chunk, chunks, why->message);
        if (w->refused_stage >= 0 && f.sort == FAULT_CALL && why->stage >= 0) {
            FUZZ_CHECK(w, why->stage == w->refused_stage && why->chunk == w->refused_chunk,
                       "it was stage %d of chunk %zu: %s", w->refused_stage, w->refused_chunk,
                       why->message);
        }
        const int copies = f.what == "cudaMemcpyAsync" || f.what == "cudaMemcpyBatchAsync" ||
                           f.what == "cudaLaunchKernelExC";
        const int before_all = strstr(why->message, "enqueuing failed") != NULL;
        FUZZ_CHECK(
            w, !(ran && f.sort == FAULT_CALL && copies) || why->chunk != SPIPE_AUTO || before_all,
            "no chunk is named: %s", why->message);
        if (f.sort == FAULT_WORK) broken = 1;
    }
    if (!ran) return e == cudaSuccess;
    /* what was freed after the run does not make the run undone */
    const int done = e == cudaSuccess || strstr(why->message, "freeing after") != NULL;
    FUZZ_CHECK(w, !done || why->chunks_whole == chunks, "%zu of %zu whole: %s", why->chunks_whole,
               chunks, why->message);
    if (whole > w->count) whole = w->count;
    fuzz_snapshot(w);
    for (i = 0; i < s->num_buffers; ++i) {
        /* it may have been on its way when the wait for it failed */
        if (s->buffers[i].kind == SPIPE_RESIDENT && !done) continue;
        fuzz_check_values(w, i, whole, done);
    }
    return !broken;
}

/* Whether a kept pipeline may have taken a fault without a word: it goes on without a graph, and
   with the best setting where another cannot be arranged; then its climb is over. */
static int may_give_up(const spipe_pipeline_t *pipeline, int way) {
    const spipe_priv_pipeline_t *p = (const spipe_priv_pipeline_t *)(const void *)pipeline;
    if (!p) return 0;
    return (way == WAY_REPLAYED && p->program.replay.graph_failed) || p->climb.settled;
}

/* Runs of a pipeline that is there; 0 when the scenario cannot go on. */
static int run_some(fuzz_world_t *w, spipe_pipeline_t *p, const fault_t &f, int way, int runs,
                    size_t count) {
    spipe_report_t r;
    int k, going = 1;
    for (k = 0; k < runs && going; ++k) {
        const long before = hostcuda_fail_fired() + torture_fired.load();
        fuzz_start(w, count);
        poison(&r);
        const cudaError_t e = spipe_pipeline_run(p, &r);
        /* after a failed run one more, at once */
        going = judge(w, f, e, &r, 1, before > 0 || may_give_up(p, way));
        if (e != cudaSuccess && !broken && k + 1 == runs) ++runs;
    }
    return going;
}

/* The array of buffer 0 gives way to another; both are there before anything fails. */
static int move_host(fuzz_world_t *w, spipe_pipeline_t *p, const fault_t &f, fuzz_array_t *other) {
    const fuzz_array_t before = w->arrays[0];
    cudaError_t e = spipe_pipeline_set_host(p, 0, other->at);
    w->arrays[0] = *other;
    *other = before;
    FUZZ_CHECK(w, e == cudaSuccess || (e == f.error && hostcuda_fail_fired() + torture_fired > 0),
               "set_host: %s", cudaGetErrorName(e));
    if (e == cudaSuccess) return 1;
    spipe_report_t r;
    fuzz_start(w, COUNT);
    poison(&r);
    e = spipe_pipeline_run(p, &r);
    FUZZ_CHECK(w,
               e == cudaErrorInvalidResourceHandle && r.failure.error == e &&
                   strstr(r.failure.message, "set it again"),
               "after a failed set_host: %s", cudaGetErrorName(e));
    e = broken ? f.error : spipe_pipeline_set_host(p, 0, w->arrays[0].at);
    FUZZ_CHECK(w, e == cudaSuccess || broken, "set_host again: %s", cudaGetErrorName(e));
    return !broken;
}

/* Made once, run several times. */
static void kept(fuzz_world_t *w, const spipe_desc_t *d, const fault_t &f, int way) {
    spipe_pipeline_t *p;
    spipe_report_t r;
    fuzz_array_t others[2];
    int i, going, runs = way >= WAY_REPLAYED ? 5 : 2;
    if (way == WAY_CHANGED) runs = 1;
    fuzz_start(w, COUNT);
    poison(&r);
    for (i = 0; i < 2; ++i) {
        fuzz_array_make(&others[i], w->scene->buffers[0].given.size(), i);
    }
    SPIPE_CHECK(cudaSetDevice(OTHER_DEVICE));
    arm(f);
    cudaError_t e = spipe_pipeline_create(&p, d, &r.failure);
    while (cudaSetDevice(0) != cudaSuccess) (void)cudaGetLastError(); /* the fault was this one's */
    going = judge(w, f, e, &r, 0, may_give_up(p, way)) && run_some(w, p, f, way, runs, COUNT);
    for (i = 0; i < 2 && going && way == WAY_CHANGED; ++i) {
        going = move_host(w, p, f, &others[i]) && run_some(w, p, f, way, 1, COUNT);
    }
    if (going && way == WAY_CHANGED) {
        /* a count that cannot be had leaves the one before */
        e = spipe_pipeline_set_count(p, COUNT - 47);
        FUZZ_CHECK(w,
                   e == cudaSuccess || (e == f.error && hostcuda_fail_fired() + torture_fired > 0),
                   "set_count: %s", cudaGetErrorName(e));
        if (e == cudaSuccess || !broken) {
            (void)run_some(w, p, f, way, 1, e == cudaSuccess ? COUNT - 47 : COUNT);
        }
    }
    const long before = hostcuda_fail_fired();
    e = spipe_pipeline_destroy(p);
    const int in_it = hostcuda_fail_fired() > before; /* this is where it happened */
    FUZZ_CHECK(w, e == cudaSuccess ? !in_it || may_pass(f) : e == f.error, "destroy: %s",
               cudaGetErrorName(e));
    disarm_now();
    for (i = 0; i < 2; ++i) (void)fuzz_array_free(&others[i]);
}

static void enqueued(fuzz_world_t *w, const spipe_desc_t *d, const fault_t &f) {
    spipe_pipeline_t *p;
    spipe_report_t r;
    cudaStream_t stream;
    int k, going = 1;
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    poison(&r);
    fuzz_start(w, COUNT);
    arm(f);
    cudaError_t e = spipe_pipeline_create(&p, d, &r.failure);
    going = judge(w, f, e, &r, 0, may_give_up(p, WAY_ENQUEUED));
    for (k = 0; k < 3 && going; ++k) {
        const long before = hostcuda_fail_fired() + torture_fired.load();
        fuzz_start(w, COUNT);
        poison(&r);
        e = spipe_pipeline_enqueue(p, stream);
        const cudaError_t waited = spipe_pipeline_wait(p, &r);
        FUZZ_CHECK(w,
                   e == cudaSuccess || waited == e || f.sort == FAULT_WORK ||
                       f.what == "cudaGetDevice" || f.what == "cudaStreamIsCapturing" ||
                       f.what == "cudaStreamSynchronize",
                   "enqueue: %s, wait: %s", cudaGetErrorName(e), cudaGetErrorName(waited));
        if (e != cudaSuccess && waited == cudaSuccess) continue;        /* nothing was enqueued */
        if (waited != cudaSuccess) (void)cudaStreamSynchronize(stream); /* it has not waited */
        going = judge(w, f, waited, &r, 1, before > 0);
    }
    e = spipe_pipeline_destroy(p);
    FUZZ_CHECK(w, e == cudaSuccess || e == f.error, "destroy: %s", cudaGetErrorName(e));
    disarm_now();
    (void)cudaStreamDestroy(stream);
}

/* 1 = memory, streams and threads come from resources; the faults then hit what these take when a
   run first needs it. */
static int lent;

static void lend(spipe_desc_t *d, int device) {
    spipe_resources_limits_t l = spipe_resources_limits_default();
    l.device_bytes = l.pinned_bytes = (size_t)1 << 18;
    l.threads = 8;
    if (!lent) return;
    SPIPE_CHECK(cudaSetDevice(device));
    SPIPE_CHECK(spipe_resources_create(&d->resources, &l, NULL));
    SPIPE_CHECK(cudaSetDevice(0));
}

/* Once no fault is armed any more. */
static void take_back(const fuzz_world_t *w, const spipe_desc_t *d) {
    spipe_resources_usage_t u;
    if (!d->resources) return;
    SPIPE_CHECK(spipe_resources_usage(d->resources, &u));
    FUZZ_CHECK(w, u.runs + u.waiting + u.pipelines + u.device_bytes + u.pinned_bytes == 0,
               "%zu runs, %zu pipelines, %zu bytes were left in the resources", u.runs, u.pipelines,
               u.device_bytes + u.pinned_bytes);
    const cudaError_t e = spipe_resources_destroy(d->resources, NULL);
    FUZZ_CHECK(w, e == cudaSuccess || broken, "resources: %s", cudaGetErrorName(e));
}

static void attempt_one(const torture_case_t *c, const fault_t &f, long *fired) {
    static fuzz_world_t fresh;
    fuzz_scene_t s = fuzz_scene_t();
    fuzz_world_t w(fresh);
    spipe_report_t r;
    int i;
    w.scene = &s;
    torture_scene(&s, c);
    spipe_desc_t d = fuzz_describe(&w);
    lend(&d, c->way == WAY_RUN || c->way == WAY_ENQUEUED ? 0 : OTHER_DEVICE);
    if (c->way == WAY_RUN) {
        /* with resources the second call makes a pipeline, which the third one finds; but for
           single ones, such as checked ones */
        const int runs = d.resources && !spipe_priv_is_single(&d) ? 3 : 1;
        int going = 1;
        arm(f);
        for (int k = 0; k < runs && going; ++k) {
            const long before = hostcuda_fail_fired() + torture_fired.load();
            fuzz_start(&w, COUNT);
            poison(&r);
            const cudaError_t e = spipe_run(&d, &r);
            going = judge(&w, f, e, &r, 1, before > 0);
        }
    } else if (c->way == WAY_ENQUEUED) {
        enqueued(&w, &d, f);
    } else {
        kept(&w, &d, f, c->way);
    }
    *fired = disarm();
    take_back(&w, &d);
    for (i = 0; i < s.num_buffers; ++i) {
        if (w.arrays[i].base) (void)fuzz_array_free(&w.arrays[i]);
    }
}

/* One fault, what it leaves, and the same pipeline once more without. 0: there is no such fault. */
static int attempt(const torture_case_t *c, const fault_t &f) {
    const fault_t none = {FAULT_NONE, "", 0, cudaSuccess};
    long fired, again;
    what_now = std::string("\n  ") + c->name + (lent ? ", lent: " : ": ") + sort_names[f.sort] +
               " " + f.what + " number " + std::to_string(f.k);
    fuzz_what = what_now.c_str();
    attempt_one(c, f, &fired);
    check_clean(c, f, fired);
    if (!fired) return 0;
    what_now += ", and once more without";
    fuzz_what = what_now.c_str();
    attempt_one(c, none, &again);
    check_clean(c, none, 0);
    return 1;
}

/* ---- all of them --------------------------------------------------------------------------- */
static long num_faults, step = 1, turn; /* every step-th fault is tried, in turn over all cases */

static long try_all(const torture_case_t *c, int sort, const char *what, cudaError_t error,
                    long most) {
    fault_t f = {sort, what, 1, error};
    long tried = 0;
    for (; f.k <= most; ++f.k) {
        if (turn++ % step != 0) continue;
        if (!attempt(c, f)) {
            --turn; /* the call is the test's own: then the next one */
            break;
        }
        ++tried;
    }
    return tried;
}

/* One of the user's own functions fails at one chunk; fuzz_check knows what must come of it. */
static void attempt_user(const torture_case_t *c, int number, size_t at) {
    static fuzz_world_t fresh;
    fuzz_scene_t s = fuzz_scene_t();
    fuzz_world_t w(fresh);
    int i;
    w.scene = &s;
    torture_scene(&s, c);
    if (number < s.num_stages) {
        s.stages[number].fails = 1;
        s.stages[number].fails_at = at;
    } else {
        s.buffers[number - s.num_stages].fails = 1;
        s.buffers[number - s.num_stages].fails_at = at;
        if (s.buffers[number - s.num_stages].positioned) { /* any of the chunk's elements */
            const size_t first = at * (s.chunk == SPIPE_AUTO ? 0 : s.chunk);
            const size_t bad = first + (7 * (size_t)turn + 13 * at) % CHUNK;
            s.buffers[number - s.num_stages].fails_at = bad < COUNT ? bad : COUNT - 1;
        }
    }
    s.num_runs = 2; /* the second is right */
    s.fixed = 0;    /* a stage that fails at times is not fixed */
    spipe_desc_t d = fuzz_describe(&w);
    lend(&d, 0);
    if (c->way == WAY_RUN)
        fuzz_one_shot(&w, &d);
    else if (c->way == WAY_ENQUEUED)
        fuzz_enqueued(&w, &d);
    else
        fuzz_kept(&w, &d);
    take_back(&w, &d);
    for (i = 0; i < s.num_buffers; ++i) {
        if (w.arrays[i].base) SPIPE_CHECK(fuzz_array_free(&w.arrays[i]));
    }
}

static long try_user(const torture_case_t *c) {
    const fault_t none = {FAULT_NONE, "", 0, cudaSuccess};
    fuzz_scene_t s = fuzz_scene_t();
    long tried = 0;
    int i;
    torture_scene(&s, c);
    const size_t chunk = s.chunk == SPIPE_AUTO ? (size_t)COUNT : s.chunk;
    const size_t chunks = (COUNT + chunk - 1) / chunk;
    for (i = 0; i < s.num_stages + s.num_buffers; ++i) {
        const int kind = i < s.num_stages ? (int)SPIPE_SOURCE : s.buffers[i - s.num_stages].kind;
        if (kind != SPIPE_SOURCE && kind != SPIPE_SINK) continue;
        for (size_t at = 0; at < chunks; ++at) {
            if (turn++ % step != 0) continue;
            what_now = std::string("\n  ") + c->name + ": user's function " + std::to_string(i) +
                       " at chunk " + std::to_string(at);
            fuzz_what = what_now.c_str();
            attempt_user(c, i, at);
            check_clean(c, none, 0);
            ++tried;
        }
    }
    return tried;
}

static void torture(const torture_case_t *c) {
    static const char *const work[] = {"kernel", "copy", "memset", "host"};
    const fault_t none = {FAULT_NONE, "", 0, cudaSuccess};
    long tried[NUM_SORTS] = {0}, fired, all = 0, calls = 0, i;
    std::vector<std::string> names;
    std::vector<long> counts;
    attempt_one(c, none, &fired); /* counts the calls */
    check_clean(c, none, 0);
    for (i = 0; hostcuda_called((size_t)i); ++i) {
        names.push_back(hostcuda_called((size_t)i));
        counts.push_back(hostcuda_calls(names.back().c_str()));
        calls += counts.back();
    }
    turn = torture_first_turn(c - torture_cases, calls, step);
    for (i = 0; i < (long)names.size(); ++i) {
        /* how often it polls is a matter of time; beyond what was counted there may be more */
        const int polls = names[(size_t)i] == "cudaEventQuery";
        const long seen = step > 1 ? counts[(size_t)i] : 99999;
        const long most = polls ? 40 : seen;
        tried[FAULT_CALL] += try_all(c, FAULT_CALL, names[(size_t)i].c_str(), CALL_ERROR, most);
    }
    for (const char *name : work) {
#if defined(__SANITIZE_THREAD__)
        break; /* a call that finds the GPU broken waits for nothing, and so orders nothing */
#endif
        tried[FAULT_WORK] += try_all(c, FAULT_WORK, name, WORK_ERROR, step > 1 ? 30 : 99999);
    }
    tried[FAULT_MALLOC] = try_all(c, FAULT_MALLOC, "", cudaErrorMemoryAllocation, 100);
    tried[FAULT_THREAD] = try_all(c, FAULT_THREAD, "", cudaSuccess, 100);
    tried[FAULT_USER] = try_user(c);
    for (long n : tried) all += n;
    num_faults += all;
    /* calls that were not made to fail are the test's own: its arrays, its waiting */
    tap_ok(all > 0,
           "%s%s: %ld faults (%ld of %ld calls of %zu functions, %ld on the GPU, "
           "%ld mallocs, %ld threads, %ld of the user's)",
           c->name, lent ? ", lent" : "", all, tried[FAULT_CALL], calls, names.size(),
           tried[FAULT_WORK], tried[FAULT_MALLOC], tried[FAULT_THREAD], tried[FAULT_USER]);
}

int main(int argc, char **argv) {
    const char *only = NULL;
    int i;
    step = tap_thorough() ? 8 : (long)tap_every(16, 96);
    for (i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--all") == 0)
            step = 1;
        else if (strcmp(argv[i], "--case") == 0 && i + 1 < argc)
            only = argv[++i];
    }
    last_device = OTHER_DEVICE;
    SPIPE_CHECK(hostcuda_set_devices(OTHER_DEVICE + 1));
    SPIPE_CHECK(cudaFree(0));
    begin_counting_threads(OTHER_DEVICE + 1);
    for (i = 0; i < 2 * NUM_CASES; ++i) {
        const torture_case_t *c = &torture_cases[i / 2];
        lent = i % 2;
        if (lent && step > 1 && i % 5) continue;
        if (!only || strcmp(only, c->name) == 0) torture(c);
    }
    tap_note("%ld faults in all, and after each of them the same pipeline ran right", num_faults);
    (void)tap_done();
    fflush(stdout);
    _exit(tap_failed != 0); /* what failed frees kept is no leak of ours */
}
