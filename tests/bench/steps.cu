/*  steps.cu -- how much of the CPU's work in a run is the library's: every instruction of the
    thread that runs a pipeline, counted one at a time, the CUDA runtime's and driver's, too.

    make bench-steps             or: nvcc -O3 -std=c++17 -arch=native -cudart shared -I. -Itests ...

    A child process makes the pipeline and runs it until nothing is tried any more; then this one
    lets it go on step by step (ptrace) through one run, and looks each time whose code it is in.
    That needs no counters, which many machines do not show, and is exact; but under it the GPU is
    always done before the host looks, so the runtime hardly waits, and the library's share here is
    the largest that it can be. Functions of the C library count for whoever called them.

    Exit status 1 if the library's share is over 5 %; 77 where nothing can be counted.           */
#include "bench_common.h"

#if defined(__linux__) && defined(__x86_64__) && !defined(__HOSTCUDA__)

#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- The child: what is counted -------------------------------------------------------------- */

#define USER_TEXT __attribute__((noinline, section("user_text")))
extern char __start_user_text[], __stop_user_text[];

static __global__ void add_kernel(const float *in, float *out, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] + 1.0f;
}

/* The user's, so in a section of its own. Not declared `once`: copies and kernels by chunks. */
USER_TEXT static cudaError_t add_stage(const spipe_chunk_t *c, void *user) {
    cudaLaunchConfig_t config = cudaLaunchConfig_t();
    void *in = c->data[0], *out = c->data[1], *args[3];
    size_t count = c->count;
    (void)user;
    args[0] = &in;
    args[1] = &out;
    args[2] = &count;
    config.gridDim = dim3(spipe_blocks(count, 256));
    config.blockDim = dim3(256);
    config.stream = c->stream;
    return cudaLaunchKernelExC(&config, (const void *)add_kernel, args);
}

/* Stops before the run and after it, so that the other process can begin and end to count. */
static int child(size_t chunk, size_t num_chunks, int stages) {
    static const char *const names[] = {"first", "second", "third"};
    const size_t count = chunk * num_chunks / sizeof(float);
    float *in = NULL, *out = NULL;
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    spipe_report_t r;
    size_t wrong = 0;
    SPIPE_CHECK(cudaMallocHost((void **)&in, count * sizeof(float)));
    SPIPE_CHECK(cudaMallocHost((void **)&out, count * sizeof(float)));
    bench_fill_random(in, count);
    d.count = count;
    d.chunk = chunk / sizeof(float);
    d.depth = 4; /* so that no chunks are copied together */
    spipe_add_input(&d, in, sizeof(float));
    spipe_add_output(&d, out, sizeof(float));
    for (int k = 0; k < stages; ++k) spipe_add_stage(&d, names[k], add_stage, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (int k = 0; k < 8; ++k) SPIPE_CHECK(spipe_pipeline_run(p, &r));
    memset(out, 0xFF, count * sizeof(float));
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) return 1; /* else nobody ends the stop */
    (void)raise(SIGSTOP);
    const cudaError_t e = spipe_pipeline_run(p, &r);
    (void)raise(SIGSTOP);
    for (size_t i = 0; i < count; ++i) wrong += out[i] != in[i] + 1.0f;
    if (e != cudaSuccess || wrong || r.num_chunks != num_chunks || r.replayed) return 1;
    (void)spipe_pipeline_destroy(p);
    return 0;
}

/* ---- This process: the counting -------------------------------------------------------------- */

enum {
    LIBRARY,
    USER,
    RUNTIME,
    DRIVER,
    OTHER,
    NUM_OWNERS,
    NOBODY = NUM_OWNERS
};

typedef struct range {
    unsigned long begin, end;
    int owner;
} range_t;

/* Whose code a line of /proc/PID/maps is; `self` is the program's own file. */
static int owner_of(const char *line, const char *self) {
    if (self[0] && strstr(line, self)) return LIBRARY;
    if (strstr(line, "libcudart")) return RUNTIME;
    if (strstr(line, "libcuda.so")) return DRIVER;
    for (const char *nobodys : {"/libc", "/ld-", "[vdso]", "/libm", "/libpthread"}) {
        if (strstr(line, nobodys)) return NOBODY;
    }
    return OTHER;
}

/* Whose code is where. The program itself is the library, its `main` apart, which does not run. */
static std::vector<range_t> ranges_of(pid_t pid) {
    std::vector<range_t> ranges;
    const std::string name = "/proc/" + std::to_string(pid);
    char self[PATH_MAX] = "", line[PATH_MAX + 128];
    const ssize_t length = readlink((name + "/exe").c_str(), self, sizeof self - 1);
    FILE *maps = fopen((name + "/maps").c_str(), "r");
    if (length > 0) self[length] = 0;
    ranges.push_back({(unsigned long)__start_user_text, (unsigned long)__stop_user_text, USER});
    while (maps && fgets(line, sizeof line, maps)) {
        range_t r;
        char rights[8] = "";
        if (sscanf(line, "%lx-%lx %7s", &r.begin, &r.end, rights) != 3) continue;
        if (rights[2] != 'x') continue;
        r.owner = owner_of(line, self);
        ranges.push_back(r);
    }
    if (maps) (void)fclose(maps);
    return ranges;
}

/* The range that holds an address; a step most often stays in the one before. */
static const range_t *range_at(const std::vector<range_t> &ranges, unsigned long at) {
    static const range_t nowhere = {0, 0, OTHER};
    static const range_t *last = &nowhere;
    if (last->owner != LIBRARY && at >= last->begin && at < last->end) return last;
    last = &nowhere;
    for (const range_t &r : ranges) {
        if (last == &nowhere && at >= r.begin && at < r.end) last = &r;
    }
    return last;
}

/* Instructions of the child's run by owner; fewer than none where that cannot be had. */
static std::vector<double> count_run(pid_t pid) {
    std::vector<double> counts(NUM_OWNERS, 0.0);
    std::vector<range_t> ranges;
    int status = 0, owner = LIBRARY;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) return {-1.0};
    ranges = ranges_of(pid);
    for (int begun = 0;;) {
        if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0) return {-1.0};
        if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) return {-1.0};
        if (begun && WSTOPSIG(status) == SIGSTOP) break;
        begun = 1;
        const long at = ptrace(PTRACE_PEEKUSER, pid, offsetof(struct user, regs.rip), NULL);
        const int here = range_at(ranges, (unsigned long)at)->owner;
        if (here != NOBODY) owner = here;
        counts[(size_t)owner] += 1.0;
    }
    if (ptrace(PTRACE_DETACH, pid, NULL, NULL) != 0) return {-1.0};
    if (waitpid(pid, &status, 0) != pid) return {-1.0};
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? counts : std::vector<double>{-2.0};
}

int main(void) {
    static const struct {
        size_t chunk, num_chunks;
        int stages;
    } runs[] = {{64, 64, 1}, {1024, 64, 1}, {64, 64, 3}}; /* 16 us a step: half a minute each */

    int missed = 0;
    printf("instructions per chunk of the thread that runs a pipeline, one at a time\n");
    printf("%8s%8s%8s |%9s%9s%9s%9s%9s |%9s\n", "chunk", "chunks", "stages", "library", "user's",
           "runtime", "driver", "other", "library's");
    for (const auto &w : runs) {
        const double began = bench_now_ms();
        const pid_t pid = fork();
        if (pid == 0) _exit(child(w.chunk << 10, w.num_chunks, w.stages));
        const std::vector<double> n = count_run(pid);
        double all = 0.0;
        if (n.size() < NUM_OWNERS) {
            if (pid > 0) (void)kill(pid, SIGKILL); /* it may stand still for ever */
            fprintf(stderr, "steps: %s\n",
                    n[0] < -1.0 ? "the run went wrong" : "no GPU, or no process may be traced");
            return n[0] < -1.0 ? 1 : BENCH_SKIP;
        }
        for (double x : n) all += x;
        printf("%6zu K%8zu%8d |", w.chunk, w.num_chunks, w.stages);
        for (double x : n) printf("%9.0f", x / (double)w.num_chunks);
        printf(" |%7.2f %%%s  (%.0f s)\n", 100.0 * n[LIBRARY] / all,
               n[LIBRARY] > 0.05 * all ? " MISSED 5 %" : "", 1e-3 * (bench_now_ms() - began));
        fflush(stdout);
        missed |= n[LIBRARY] > 0.05 * all;
    }
    return missed;
}

#else
int main(void) {
    fprintf(stderr, "steps: counts on Linux and x86-64, beside the real CUDA runtime\n");
    return BENCH_SKIP;
}
#endif
