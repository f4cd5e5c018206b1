/*  test_async_failures.cu -- errors on the device itself: a kernel that writes out of bounds,
    one that traps, an impossible launch, no memory. Each ends the run soon, without hanging,
    with an error that says where. Each is in a process of its own, because some errors end
    CUDA's work in the process. (A reset of the device in the middle of a run is not tested:
    CUDA itself crashes then, on the streams that it made before.) */
#include "pipe_common.h"
#if !defined(_WIN32)
#include <sys/wait.h>
#include <unistd.h>
#endif

enum {
    CHUNK = 64 << 10,
    CHUNKS = 64,
    N = CHUNK * CHUNKS,
    BAD = 41
};

enum {
    WELL,
    OUT_OF_BOUNDS,
    TRAP,
    IMPOSSIBLE
};

static __global__ void add_one(const unsigned char *x, unsigned char *y, size_t n, int what) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
#if defined(__CUDA_ARCH__)
    if (what == TRAP && i == 0) __trap();
#endif
    if (what == OUT_OF_BOUNDS && i == 0) y[sizeof(size_t) > 4 ? SIZE_MAX >> 18 : 0] = 1;
    if (i < n) y[i] = (unsigned char)(x[i] + 1);
}

static cudaError_t add_stage(const spipe_chunk_t *c, void *user) {
    const int asked = *(const int *)user, what = c->index == BAD ? asked : WELL;
    const unsigned threads = what == IMPOSSIBLE ? 4096 : 256;
    return SPIPE_LAUNCH(add_one, spipe_blocks(c->count, 256), threads, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned char), SPIPE_BUF(c, 1, unsigned char),
                        c->count, what);
}

/* What a case found; the child hands it to the parent. */
typedef struct found {
    spipe_failure_t f;
    cudaError_t e;
    double seconds;
    int whole_right, again_right;
} found_t;

static int is_right(const unsigned char *x, const unsigned char *y, size_t n) {
    size_t i, wrong = 0;
    for (i = 0; i < n; ++i) wrong += y[i] != (unsigned char)(x[i] + 1);
    return wrong == 0;
}

static void run_case(int what, int memory, int checked, found_t *out) {
    pipe_array_t x = pipe_array_new(N, memory), y = pipe_array_new(N, memory);
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    double began;
    pipe_randomise(x);
    pipe_poison(y);
    d.count = N;
    d.chunk = CHUNK;
    d.checked = checked;
    d.staging = SPIPE_STAGING_COPY;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "fine", add_stage, &out->again_right); /* 0: does well */
    spipe_add_stage(&d, "bad", add_stage, &what);
    out->again_right = WELL;
    (void)cudaFree(NULL);
    began = spipe_priv_seconds();
    out->e = spipe_run(&d, &r);
    out->seconds = spipe_priv_seconds() - began;
    out->f = r.failure;
    /* How many are seen whole before the error shows is chance, but in a checked run, of which
       test_sticky asks for all; tests/test_chunks_whole.cu holds the GPU back until it is not. */
    out->whole_right =
        r.failure.chunks_whole <= BAD && is_right(x.at, y.at, r.failure.chunks_whole * CHUNK);
    what = WELL;
    pipe_poison(y);
    out->again_right = spipe_run(&d, &r) == cudaSuccess && is_right(x.at, y.at, N);
    if (out->again_right) { /* else CUDA may be at its end, and the process will be */
        pipe_free(&x);
        pipe_free(&y);
    }
}

static int tell(const found_t *f, int held) {
    printf("# %.3f s, stage %d, chunk %zu, whole %zu: %s\n", f->seconds, f->f.stage, f->f.chunk,
           f->f.chunks_whole, f->f.message);
    return held;
}

#if !defined(__HOSTCUDA__)
/* Runs a case in a child; 0 when it did not come back within 20 s or died. */
static int try_case(int what, int memory, int checked, found_t *out) {
    memset(out, 0, sizeof *out);
#if defined(_WIN32)
    run_case(what, memory, checked, out);
    return 1;
#else
    {
        int ends[2], status = 0;
        pid_t child;
        if (pipe(ends) != 0) exit(99);
        fflush(stdout);
        child = fork();
        if (child == 0) {
            (void)alarm(20);
            run_case(what, memory, checked, out);
            if (write(ends[1], out, sizeof *out) != (ssize_t)sizeof *out) _exit(98);
            _exit(0); /* CUDA's own clean-up may not survive what was done to it */
        }
        (void)close(ends[1]);
        if (read(ends[0], out, sizeof *out) != (ssize_t)sizeof *out) out->e = cudaErrorUnknown;
        (void)close(ends[0]);
        if (waitpid(child, &status, 0) != child || status != 0) {
            printf("# the child's status is %#x\n", (unsigned)status);
            return 0;
        }
        return 1;
    }
#endif
}

static void test_sticky(int what, const char *name) {
    found_t f;
    int back = try_case(what, PIPE_PINNED, 0, &f);
    size_t from = 0, to = 0;
    const char *range = strstr(f.f.message, "in one of the chunks ");
    tap_ok(tell(&f, back && f.e != cudaSuccess && f.seconds < 1.0 && range &&
                        sscanf(range, "in one of the chunks %zu to %zu", &from, &to) == 2 &&
                        from <= BAD && BAD <= to && f.whole_right),
           "%s: pinned, the run ends within a second and says between which chunks", name);
    back = try_case(what, PIPE_PAGEABLE, 0, &f);
    tap_ok(tell(&f, back && f.e != cudaSuccess && f.seconds < 1.0),
           "%s: the run ends with an error within a second", name);
    tap_ok(f.f.error == f.e && strstr(f.f.message, "a checked run tells which") != NULL,
           "%s: it says in which chunks, and how to learn which stage", name);
    tap_ok(f.whole_right, "%s: the chunks said to be whole are", name);
    back = try_case(what, PIPE_PAGEABLE, 1, &f);
    tap_ok(tell(&f, back && f.e != cudaSuccess && f.f.stage == 1 && f.f.chunk == BAD),
           "%s: in a checked run stage and chunk are exact", name);
    tap_ok(f.whole_right && f.f.chunks_whole == BAD, "%s: and all chunks before it are whole",
           name);
}

#endif

static void test_impossible(void) {
    found_t f; /* nothing that ends CUDA's work, so here */
    memset(&f, 0, sizeof f);
    run_case(IMPOSSIBLE, PIPE_PAGEABLE, 0, &f);
    tap_ok(tell(&f, f.e != cudaSuccess && f.f.stage == 1 && f.f.chunk == BAD && f.seconds < 5.0),
           "a launch that cannot be ends the run at its stage and chunk");
    tap_ok(f.whole_right && f.f.chunks_whole == BAD && f.again_right,
           "what is whole is right, and the next run is");
}

static cudaError_t nothing(const spipe_chunk_t *c, void *user) {
    (void)c;
    (void)user;
    return cudaSuccess;
}

static void test_no_memory(void) {
    unsigned char one = 7, back = 0;
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    size_t left = 0, total = 0;
    cudaError_t e;
    SPIPE_CHECK(cudaMemGetInfo(&left, &total));
    d.count = 1;
    d.chunk = 1;
    d.depth = 2;
    spipe_add_input(&d, &one, 1);
    spipe_add_output(&d, &back, 1);
    spipe_add_temp(&d, total);
    spipe_add_stage(&d, "nothing", nothing, NULL);
    e = spipe_run(&d, &r);
    if (sizeof(size_t) < 8) {
        tap_skip("more memory than there is: refused in words", "a chunk is below 4 MiB here");
    } else {
        tap_ok(e == cudaErrorMemoryAllocation && strstr(r.failure.message, "no room for ") &&
                   strstr(r.failure.message, "lower chunk or depth"),
               "more memory than there is: refused in words, %s", r.failure.message);
    }
    d.buffers[2].elem_bytes = 16;
    tap_ok(spipe_run(&d, &r) == cudaSuccess, "and the next run has what it needs");
}

int main(void) {
    if (pipe_sanitized()) {
        tap_skip("what goes wrong on the device is told", "compute-sanitizer would report it");
        SPIPE_CHECK(cudaFree(NULL)); /* it wants to see CUDA used */
        return tap_done();
    }
#if defined(__HOSTCUDA__)
    tap_skip("what goes wrong on the device is told", "tests/host/test_failures.cu injects it");
#else
    test_sticky(OUT_OF_BOUNDS, "a kernel that writes where it may not"); /* in processes without */
    test_sticky(TRAP, "a kernel that stops");                            /* CUDA until then */
#endif
    test_impossible();
    test_no_memory();
    return tap_done();
}
