/*  test_reads_past.cu -- a checked run under AddressSanitizer: each buffer of each slot is an
    allocation of its own, so a kernel that reads past a chunk is found, which guards around the
    buffers cannot do. */
#include "pipe_common.h"

#if defined(__SANITIZE_ADDRESS__) && defined(__HOSTCUDA__)
#include <string>
#include <sys/wait.h>
#include <unistd.h>

enum {
    COUNT = 1000,
    CHUNK = 100
};

static __global__ void sum_kernel(const int *x, int *y, size_t n, size_t ahead) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + x[i + ahead];
}

static cudaError_t sum_ahead(const spipe_chunk_t *c, void *user) {
    return SPIPE_LAUNCH(sum_kernel, spipe_blocks(c->count, 32), 32, 0, c->stream,
                        SPIPE_BUF(c, 0, const int), SPIPE_BUF(c, 1, int), c->count,
                        *(const size_t *)user);
}

static int x[COUNT], y[COUNT];

static void run(spipe_schedule_t schedule, size_t ahead) {
    spipe_desc_t d = spipe_desc_default();
    d.count = COUNT;
    d.chunk = CHUNK;
    d.schedule = schedule;
    d.checked = 1;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "sum", sum_ahead, &ahead);
    SPIPE_CHECK(spipe_run(&d, NULL));
}

/* What a process says that does so, and whether it came to its end. */
static std::string words_of(spipe_schedule_t schedule, size_t ahead, int *ended) {
    std::string words;
    char some[512];
    int ends[2], status = -1;
    ssize_t n;
    pid_t child;
    if (pipe(ends) != 0) exit(99);
    child = fork();
    if (child == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        run(schedule, ahead);
        _exit(0);
    }
    (void)close(ends[1]);
    while ((n = read(ends[0], some, sizeof some)) > 0) words.append(some, (size_t)n);
    (void)close(ends[0]);
    (void)waitpid(child, &status, 0);
    *ended = status == 0;
    return words;
}

static void test_reads(spipe_schedule_t schedule) {
    const char *name = spipe_schedule_name(schedule);
    int ended;
    std::string words = words_of(schedule, 0, &ended);
    tap_ok(ended && words.find("ERROR") == std::string::npos,
           "%s: reads within the chunk are right", name);
    words = words_of(schedule, 1, &ended);
    tap_ok(!ended && words.find("heap-buffer-overflow") != std::string::npos &&
               words.find("READ of size 4") != std::string::npos &&
               words.find("sum_kernel") != std::string::npos,
           "%s: a read of one element past the chunk is found, in its kernel", name);
}

int main(void) {
    test_reads(SPIPE_SCHEDULE_ENGINES);
    return tap_done();
}
#else
int main(void) {
    tap_skip("a read past a chunk is found", "needs AddressSanitizer, and kernels on the CPU");
    return tap_done();
}
#endif
