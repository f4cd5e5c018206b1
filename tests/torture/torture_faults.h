/*  torture_faults.h -- what the tortures share: a fault, how it is armed, which ones a run may take
    without a word, and what must be left over after it: nothing. Include it before streampipe.h. */
#ifndef TORTURE_FAULTS_H
#define TORTURE_FAULTS_H

#include "torture_alloc.h"

#include "torture_cases.h"

#include "tap.h"

#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
/* A stream whose destroying was made to fail keeps its thread: hostcuda's, and asked for. */
extern "C" const char *__tsan_default_options() { return "report_thread_leaks=0"; }
#endif

enum {
    FAULT_NONE,
    FAULT_CALL,
    FAULT_WORK,
    FAULT_MALLOC,
    FAULT_THREAD,
    FAULT_USER,
    NUM_SORTS
};

static const char *const sort_names[] = {"none", "call", "GPU", "malloc", "thread", "user"};

typedef struct fault {
    int sort;
    std::string what; /* the function, or the sort of work */
    long k;
    cudaError_t error;
    int lasts = 0; /* malloc, thread: all after the k-th fail, too */
} fault_t;

static const cudaError_t CALL_ERROR = cudaErrorLaunchOutOfResources;
static const cudaError_t WORK_ERROR = cudaErrorIllegalAddress; /* sticky, as on a GPU */
static std::string what_now;                                   /* for whoever reads a failure */
static int broken;      /* the GPU's error has surfaced: only a reset helps */
static int last_device; /* of those that are used, the first being 0 */

static void arm(const fault_t &f) {
    hostcuda_fail_clear();
    hostcuda_calls_reset();
    torture_fired = 0;
    torture_lasts = f.lasts;
    if (f.sort == FAULT_CALL) hostcuda_fail(f.what.c_str(), f.k, f.error);
    if (f.sort == FAULT_WORK) hostcuda_fail_async(f.what.c_str(), f.k, f.error);
    if (f.sort == FAULT_MALLOC) torture_malloc_fails = f.k;
    if (f.sort == FAULT_THREAD) torture_thread_fails = f.k;
}

/* From here on the calls are the test's own, and must not fail. */
static void disarm_now(void) {
    torture_fired += hostcuda_fail_fired();
    torture_malloc_fails = torture_thread_fails = torture_lasts = 0;
    hostcuda_fail_clear();
}

static long disarm(void) {
    disarm_now();
    if (cudaPeekAtLastError() == CALL_ERROR) {
        tap_ok(0, "no error is left as CUDA's last one:%s", what_now.c_str());
    }
    (void)cudaGetLastError();
    return torture_fired;
}

/* Faults that a run may take without a word, because there is another way or nobody needs it. */
static int may_pass(const fault_t &f) {
    static const char *const calls[] = {
        "cudaHostRegister", /* failing to pin is never fatal */
        "cudaDeviceGetAttribute",
        "cudaDeviceGetStreamPriorityRange",
        "cudaRuntimeGetVersion",
        "cudaDriverGetVersion",
        "cudaDeviceGetPCIBusId", /* facts that are only told */
        "cudaSetDevice",
        "cudaGetDevice",                       /* of a helper thread; on the way out */
        "cudaEventQuery",                      /* asked again */
        "cudaThreadExchangeStreamCaptureMode", /* matters beside captures only */
        "cudaStreamBeginCapture",
        "cudaStreamEndCapture",
        "cudaGraphInstantiate",
        "cudaGraphUpload",
        "cudaGraphDestroy"};
    if (f.sort == FAULT_MALLOC || f.sort == FAULT_THREAD) return 1;
    for (const char *name : calls) {
        if (f.sort == FAULT_CALL && f.what == name) return 1;
    }
    return 0;
}

/* What a failed one of these keeps is the one thing that may be left over. */
static int frees(const fault_t &f) {
    return f.sort == FAULT_CALL &&
           (f.what == "cudaFree" || f.what == "cudaFreeHost" || f.what == "cudaHostUnregister" ||
            f.what == "cudaStreamDestroy" || f.what == "cudaEventDestroy" ||
            f.what == "cudaGraphDestroy" || f.what == "cudaGraphExecDestroy");
}

static void poison(spipe_report_t *r) {
    memset(r, 0xEE, sizeof *r); /* whoever does not fill it in is seen */
    r->chunk = 0;
    r->failure.message[0] = 0;
}

/* ---- what is left over --------------------------------------------------------------------- */
static int num_threads_idle, num_alive_idle; /* when nothing is under way */

static void do_nothing(void *user) { (void)user; }

/* Starts what stays: a sanitizer's thread beside the first, and those of this thread's own streams,
   behind which runs begin. */
static void begin_counting_threads(int devices) {
    std::thread([] {}).join();
    for (int i = devices; i-- > 0;) {
        SPIPE_CHECK(cudaSetDevice(i));
        SPIPE_CHECK(spipe_host_call(cudaStreamPerThread, do_nothing, NULL));
        SPIPE_CHECK(cudaStreamSynchronize(cudaStreamPerThread));
    }
    num_threads_idle = torture_num_threads();
}

static void check_clean(const torture_case_t *c, const fault_t &f, long fired) {
    fuzz_scene_t s = fuzz_scene_t();
    fuzz_world_t w = fuzz_world_t(), *at = &w;
    int device = -1, wait, alive, threads;
    w.scene = &s;
    torture_scene(&s, c);
    SPIPE_CHECK(cudaGetDevice(&device));
    FUZZ_CHECK(at, device == 0 || f.what == "cudaSetDevice", "the current device is %d", device);
    for (device = last_device; device >= 0; --device) {
        (void)cudaSetDevice(device);
        (void)cudaDeviceSynchronize(); /* a destroyed stream is gone when its work is */
    }
    alive = hostcuda_leaks(NULL) - num_alive_idle;
    FUZZ_CHECK(at, alive == 0 || (alive == 1 && frees(f) && fired), "%d things are left alive",
               hostcuda_leaks(stderr));
    /* What was not unpinned is not given back either. */
    if (alive == 1 && fired && f.what == "cudaHostUnregister" && torture_live_blocks == 1) {
        torture_live_blocks = 0;
        torture_live_bytes = 0;
    }
    FUZZ_CHECK(at, torture_live_blocks == 0 && torture_live_bytes == 0,
               "%ld blocks, %ld bytes of host memory are left", torture_live_blocks.load(),
               torture_live_bytes.load());
    for (device = last_device; device >= 0 && (broken || alive > 0); --device) {
        (void)cudaSetDevice(device);
        SPIPE_CHECK(cudaDeviceReset());
    }
    num_alive_idle = hostcuda_leaks(NULL); /* a reset does not end graphs */
    (void)cudaGetLastError();
    broken = 0;
    threads = torture_num_threads();
    for (wait = 0; wait < 8000 && threads > num_threads_idle; ++wait) {
        const struct timespec a_little = {0, 250000};
        nanosleep(&a_little, NULL);
        threads = torture_num_threads();
    }
    FUZZ_CHECK(at, threads <= num_threads_idle || frees(f), "%d threads, %d before", threads,
               num_threads_idle);
    if (threads > num_threads_idle) num_threads_idle = threads; /* a stream that was kept */
}

/* Where case number k begins to count if every step-th fault is tried: not the same faults of every
   case, and one at least, because a short run makes few calls. */
static long torture_first_turn(long k, long calls, long step) {
    return -(k * 13 % (calls < 2 * step ? calls / 2 + 1 : step));
}

#endif
