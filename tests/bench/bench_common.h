/*  bench_common.h -- what the benchmarks share: clock, host arrays, and the facts of the machine
    that every table begins with. C++14, CUDA or hostcuda. */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#include "bench_numbers.h"
#include "streampipe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>
#if defined(__linux__)
#include <sched.h>
#endif

enum {
    BENCH_SKIP = 77
}; /* the exit status of "cannot be measured here" */

static const size_t BENCH_KIB = 1024, BENCH_MIB = 1024 * BENCH_KIB, BENCH_GIB = 1024 * BENCH_MIB;

static inline double bench_now_ms() {
    typedef std::chrono::duration<double, std::milli> ms_t;
    return ms_t(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static inline std::string bench_size_text(size_t bytes) {
    if (bytes % BENCH_GIB == 0) return std::to_string(bytes / BENCH_GIB) + "GiB";
    if (bytes % BENCH_MIB == 0) return std::to_string(bytes / BENCH_MIB) + "MiB";
    return std::to_string(bytes / BENCH_KIB) + "KiB";
}

static inline void bench_read(int fd, void *to, size_t n, size_t at) {
    for (size_t done = 0; done < n;) {
        const ssize_t got = pread(fd, (char *)to + done, n - done, (off_t)(at + done));
        if (got <= 0) exit(1);
        done += (size_t)got;
    }
}

/* ---- Host work on all processors ------------------------------------------------------------ */

/* Runs work(begin, end) on pieces of 0 .. n-1; small work stays on this thread. */
template <typename Work>
static inline void bench_parallel(size_t n, size_t least, Work work) {
    const size_t cores = std::max(1u, std::thread::hardware_concurrency());
    const size_t pieces = std::max((size_t)1, std::min(std::min(cores, (size_t)16), n / least));
    std::vector<std::thread> threads;
    for (size_t p = 1; p < pieces; ++p) {
        threads.emplace_back([=] { work(n * p / pieces, n * (p + 1) / pieces); });
    }
    work((size_t)0, n / pieces);
    for (std::thread &t : threads) t.join();
}

/* A float in [-1, 1) that depends on i alone, so that any part of an array can be made again. */
static inline float bench_random_float(uint64_t i) {
    uint64_t z = (i + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (float)(int32_t)(uint32_t)(z >> 32) * (1.0f / 2147483648.0f);
}

static inline void bench_fill_random(float *at, size_t n) {
    bench_parallel(n, BENCH_MIB, [=](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) at[i] = bench_random_float(i);
    });
}

static inline void bench_copy(void *to, const void *from, size_t bytes) {
    bench_parallel(bytes, 4 * BENCH_MIB, [=](size_t begin, size_t end) {
        memcpy((char *)to + begin, (const char *)from + begin, end - begin);
    });
}

/* Threads that never wait, as on a machine that other programs use, too. */
typedef struct bench_busy {
    std::vector<std::thread> threads;
    std::atomic<int> end;
} bench_busy_t;

static inline void bench_busy_begin(bench_busy_t *b, int num) {
    b->end = 0;
    for (int k = 0; k < num; ++k) {
        b->threads.emplace_back([b] {
            while (!b->end.load(std::memory_order_relaxed)) continue;
        });
    }
}

static inline void bench_busy_end(bench_busy_t *b) {
    b->end = 1;
    for (std::thread &t : b->threads) t.join();
    b->threads.clear();
}

/* ---- Host arrays --------------------------------------------------------------------------- */

typedef struct bench_array {
    void *at;
    size_t bytes;
    int pinned, registered;
} bench_array_t;

/* Pinned memory beyond this is made by touching and registering, which is ten times faster. */
static const size_t BENCH_REGISTER_FROM = BENCH_GIB;

static inline void bench_array_free(bench_array_t *a) {
    if (a->registered) (void)cudaHostUnregister(a->at);
    if (a->pinned && !a->registered)
        (void)cudaFreeHost(a->at);
    else
        free(a->at);
    *a = bench_array_t();
}

static inline cudaError_t bench_touch(void *at, size_t bytes) {
    if (!at) return cudaErrorMemoryAllocation;
    bench_parallel(bytes, 4 * BENCH_MIB,
                   [=](size_t begin, size_t end) { memset((char *)at + begin, 0, end - begin); });
    return cudaSuccess;
}

/* Makes *a hold at least `bytes`; what it held before may be gone. */
static inline cudaError_t bench_array_need(bench_array_t *a, size_t bytes, int pinned) {
    if (a->bytes >= bytes) return cudaSuccess;
    bench_array_free(a);
    a->pinned = pinned;
    if (pinned && bytes < BENCH_REGISTER_FROM) {
        SPIPE_TRY(cudaHostAlloc(&a->at, bytes, cudaHostAllocDefault));
    } else {
        a->at = aligned_alloc(4 * BENCH_KIB, (bytes + 4 * BENCH_KIB - 1) / 4096 * 4096);
    }
    SPIPE_TRY(bench_touch(a->at, bytes));
    if (pinned && bytes >= BENCH_REGISTER_FROM) {
        SPIPE_TRY(cudaHostRegister(a->at, bytes, cudaHostRegisterPortable));
        a->registered = 1;
    }
    a->bytes = bytes;
    return cudaSuccess;
}

/* ---- The machine --------------------------------------------------------------------------- */

typedef struct bench_machine {
    spipe_device_t gpu;
    std::string driver, date;
    unsigned cores;
    int hostcuda;
} bench_machine_t;

static inline std::string bench_first_line(const char *command) {
    char line[128] = "";
    FILE *pipe = popen(command, "r");
    if (!pipe) return "";
    if (!fgets(line, sizeof line, pipe)) line[0] = 0;
    (void)pclose(pipe);
    line[strcspn(line, "\r\n")] = 0;
    return line;
}

static inline std::string bench_version(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

static inline std::string bench_date() {
    char text[32];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    (void)strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc);
    return text;
}

static inline cudaError_t bench_machine_get(bench_machine_t *m) {
    *m = bench_machine_t();
#ifdef __HOSTCUDA__
    m->hostcuda = 1;
#endif
    m->date = bench_date();
    m->cores = std::thread::hardware_concurrency();
    SPIPE_TRY(spipe_device_get(&m->gpu, -1));
    if (!m->hostcuda) {
        m->driver = bench_first_line(
            "nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null");
    }
    if (m->driver.empty()) m->driver = "CUDA " + bench_version(m->gpu.driver_version);
    return cudaSuccess;
}

static inline void bench_machine_print(const bench_machine_t *m, FILE *to) {
    fprintf(to, "%s, driver %s, runtime %s, %u cores, %s%s\n", m->gpu.name, m->driver.c_str(),
            bench_version(m->gpu.runtime_version).c_str(), m->cores, m->date.c_str(),
            m->hostcuda ? " (hostcuda: no figure below means anything)" : "");
}

/* Members of a JSON object, the first ones. */
static inline void bench_machine_json(const bench_machine_t *m, FILE *to) {
    fprintf(to,
            "\"gpu\": \"%s\", \"driver\": \"%s\", \"runtime\": \"%s\", \"cores\": %u, "
            "\"date\": \"%s\"",
            m->gpu.name, m->driver.c_str(), bench_version(m->gpu.runtime_version).c_str(), m->cores,
            m->date.c_str());
}

static inline void bench_numbers_json(const std::vector<double> &x, FILE *to) {
    for (size_t k = 0; k < x.size(); ++k) fprintf(to, "%s%.5f", k ? ", " : "", x[k]);
}

/* The machine, or the reason why nothing can be measured on it and exit. */
static inline bench_machine_t bench_machine_or_skip(int allow_hostcuda) {
    bench_machine_t m;
    const cudaError_t e = bench_machine_get(&m);
    if (e != cudaSuccess) {
        fprintf(stderr, "bench: no GPU to measure on: %s\n", cudaGetErrorString(e));
        exit(BENCH_SKIP);
    }
    if (m.hostcuda && !allow_hostcuda) {
        fprintf(stderr, "bench: this build runs on hostcuda, whose times say nothing about a GPU; "
                        "build it with nvcc, or try its logic with --smoke\n");
        exit(BENCH_SKIP);
    }
    return m;
}

/* Runs this thread, and every thread made from now on, on the first n processors allowed. */
static inline int bench_use_cores(unsigned n) {
#if defined(__linux__)
    cpu_set_t allowed, chosen;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 0;
    CPU_ZERO(&chosen);
    for (size_t i = 0; i < CPU_SETSIZE && n > 0; ++i) {
        if (!CPU_ISSET(i, &allowed)) continue;
        CPU_SET(i, &chosen);
        n--;
    }
    return n == 0 && sched_setaffinity(0, sizeof chosen, &chosen) == 0;
#else
    (void)n;
    return 0;
#endif
}

/* ---- Targets -------------------------------------------------------------------------------- */
typedef struct bench_target {
    std::string name;
    double got, want; /* got >= want, or <= where at_most; want NAN: not measured, name says why */
    int at_most;
} bench_target_t;

static inline int bench_target_met(const bench_target_t &t) { /* not, where got is NAN */
    return t.at_most ? t.got <= t.want : t.got >= t.want;
}

/* A target with what came out of it. */
static inline void bench_target_print(const bench_target_t &t) {
    if (std::isnan(t.want))
        printf("  %-6s %s\n", "-", t.name.c_str());
    else
        printf("  %-6s %-66s %.3f (%s %.2f)\n", bench_target_met(t) ? "met" : "MISSED",
               t.name.c_str(), t.got, t.at_most ? "<=" : ">=", t.want);
    fflush(stdout);
}

/* All of them (all = 0: those that were missed). Returns how many were missed. */
static inline int bench_targets_print(const std::vector<bench_target_t> &targets, int all) {
    int missed = 0, measured = 0;
    for (const bench_target_t &t : targets) {
        const int met = bench_target_met(t), skipped = std::isnan(t.want);
        measured += !skipped;
        missed += !skipped && !met;
        if (skipped || all || !met) bench_target_print(t);
    }
    printf("  %d of %zu targets measured, %d missed\n", measured, targets.size(), missed);
    return missed;
}

static inline void bench_targets_json(const std::vector<bench_target_t> &targets, FILE *to) {
    fprintf(to, "\"targets\": [");
    for (size_t k = 0; k < targets.size(); ++k) {
        const bench_target_t *t = &targets[k];
        fprintf(to,
                "%s  {\"name\": \"%s\", \"got\": %.5f, \"want\": %g, \"at_most\": %d, "
                "\"met\": %d}",
                k ? ",\n" : "\n", t->name.c_str(), t->got, t->want, t->at_most,
                bench_target_met(*t));
    }
    fprintf(to, "]");
}

#endif /* BENCH_COMMON_H */
