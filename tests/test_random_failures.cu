/*  test_random_failures.cu -- the fuzz target of long runs that fail on the device, or are stopped,
    for a few seconds: what they say was done is what was done. On a GPU, too: each run has a
    process of its own, as the error ends CUDA's work in it. `make fuzz` goes on for longer.

    usage: test_random_failures [SEED [RUNS]]    run i of a seed is always the same */
#include "tap.h"

#if defined(_WIN32)
int main(void) {
    tap_skip("long runs that fail say what was done", "needs fork");
    return tap_done();
}
#else
#include "fuzz/fuzz_failures.h"

#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
/* What a failed run used is left to the end of its process, with the streams' threads. */
extern "C" const char *__tsan_default_options() { return "report_thread_leaks=0"; }
#endif

enum {
    SIZE = 64,
    AT_SCHEDULE = 0, /* the bytes that choose these (fails_make) */
    AT_WHAT = 1,
    LEAST = 3 /* runs for each schedule, and what happens; thorough, for a second */
};

static void make_bytes(unsigned char *data, unsigned long seed, unsigned long run) {
    unsigned long long x = (seed + 1) * 0x9E3779B97F4A7C15ull ^ (run + 1) * 0xBF58476D1CE4E5B9ull;
    int i;
    for (i = -4; i < SIZE; ++i) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        if (i >= 0) data[i] = (unsigned char)(x >> 24);
    }
}

static int in_child(const unsigned char *data) {
    int status = 0;
    pid_t child;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        (void)alarm(60);
        fuzz_failures(data, SIZE);
        _exit(0); /* CUDA's own clean-up may not survive the error */
    }
    return waitpid(child, &status, 0) == child && status == 0;
}

static void test_some(int schedule, int what, unsigned long seed, unsigned long runs) {
    const time_t began = time(NULL);
    unsigned char data[SIZE];
    unsigned long i, wrong = 0;
    for (i = 0; i < runs && (i < LEAST || (tap_thorough() && difftime(time(NULL), began) < 1.0));
         ++i) {
        make_bytes(data, seed, i);
        data[AT_SCHEDULE] = (unsigned char)schedule;
        data[AT_WHAT] = what == FAILS_STOPPED ? 2 : 0;
        if (in_child(data)) continue;
        tap_note("run %lu of seed %lu", i, seed);
        ++wrong;
    }
    tap_ok(wrong == 0, "%s: %lu random runs that %s say what was done",
           spipe_schedule_name((spipe_schedule_t)(SPIPE_SCHEDULE_ENGINES + schedule)), i,
           what == FAILS_STOPPED ? "are stopped" : "fail on the device");
}

int main(int argc, char **argv) {
    const unsigned long seed = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
    const unsigned long runs = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000;
    int schedule;
    /* hardware queues: streams that share one with the kernel that waits would wait, too */
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    for (schedule = 0; schedule < 5; ++schedule) {
        test_some(schedule, FAILS_ON_DEVICE, seed, runs);
        test_some(schedule, FAILS_STOPPED, seed, runs);
    }
    return tap_done();
}
#endif
