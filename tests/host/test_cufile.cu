/*  test_cufile.cu -- files read by cuFile, here a stand-in for it that reads into hostcuda's device
    memory: every byte arrives, in every schedule, on several GPUs and in a loop that pulls; a slot
    is read into only when its batch is done; errors have path and byte. Where the library, its
    driver or the file is not to be had, the file is read as without, and the report says why. */
#ifndef _WIN32
#include "replaced.h"

#include "hostcuda.h"
#include "pipe_common.h"
#include "streampipe_devices.h"

#include <atomic>

#include <errno.h>

#if defined(__SANITIZE_THREAD__)
/* A stream whose destroying was made to fail keeps its thread, as asked for. */
extern "C" const char *__tsan_default_options() { return "report_thread_leaks=0"; }
#endif

enum {
    MOST = 300000,
    NEVER = MOST + 1
};

static unsigned char data[MOST], seen[MOST];

/* ---- The stand-in ---------------------------------------------------------------------------- */

/* What it does. */
static struct {
    int missing;            /* the library (1), or one of its functions (2) */
    int opens, takes;       /* what these calls return */
    int is_short;           /* 1 = reads do a part, and are interrupted */
    int trusts;             /* 1 = it does not look at what it is given */
    size_t bad, cut;        /* a read of this byte fails; the file ends here */
    int bad_errno, bad_own; /* with this errno, or this error of cuFile's */
    std::atomic<int> known, reads, wrong;
} fake;

static spipe_priv_cufile_error_t fake_open(void) { return {fake.opens, 0}; }

static spipe_priv_cufile_error_t fake_enter(void **handle, spipe_priv_cufile_file_t *file) {
    fake.wrong += file->type != 1 || fcntl(file->handle.fd, F_GETFL) < 0 || file->operations;
    if (fake.takes == 0) ++fake.known;
    if (fake.takes == 0) *handle = &fake;
    return {fake.takes, 0};
}

static void fake_leave(void *handle) {
    fake.wrong += handle != &fake;
    --fake.known;
}

static ssize_t fake_read(void *handle, void *base, size_t n, off_t at, off_t from_base) {
    struct cudaPointerAttributes where;
    const size_t from = (size_t)at;
    int current = -1;
    const int call = ++fake.reads;
    if (!fake.trusts) { /* these calls are not the library's */
        fake.wrong += cudaPointerGetAttributes(&where, base) != cudaSuccess ||
                      where.type != cudaMemoryTypeDevice || handle != &fake ||
                      cudaGetDevice(&current) != cudaSuccess || current != where.device;
    }
    if (fake.is_short && call % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    if (fake.is_short && n > 1) n = n / 2 + 1;
    if (from <= fake.bad && fake.bad < from + n) {
        n = fake.bad - from;
        errno = fake.bad_errno;
        if (n == 0) return fake.bad_own ? -fake.bad_own : -1;
    }
    if (from + n > fake.cut) n = from < fake.cut ? fake.cut - from : 0;
    memcpy((char *)base + from_base, data + from, n);
    return (ssize_t)n;
}

static void *test_dlopen(const char *name, int) {
    fake.wrong += strcmp(name, "libcufile.so.0") != 0;
    return fake.missing == 1 ? NULL : &fake;
}

template <typename Function>
static void *address(Function function) {
    void *p;
    memcpy(&p, &function, sizeof p);
    return p;
}

static void *test_dlsym(void *library, const char *name) {
    fake.wrong += library != &fake;
    if (strcmp(name, "cuFileDriverOpen") == 0) return address(fake_open);
    if (strcmp(name, "cuFileHandleRegister") == 0) return address(fake_enter);
    if (strcmp(name, "cuFileHandleDeregister") == 0) return address(fake_leave);
    return strcmp(name, "cuFileRead") == 0 && fake.missing != 2 ? address(fake_read) : NULL;
}

static void fake_mend(void) {
    fake.missing = fake.opens = fake.takes = fake.is_short = fake.trusts = fake.bad_errno =
        fake.bad_own = 0;
    fake.bad = fake.cut = NEVER;
    fake.reads = 0;
}

/* ---- A run ----------------------------------------------------------------------------------- */
static char name[] = "/tmp/streampipe_cufile.XXXXXX";

static __global__ void turn(const unsigned char *x, unsigned char *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = (unsigned char)~x[i];
}

static cudaError_t turn_stage(const spipe_chunk_t *c, void *) {
    const size_t n = c->count * c->elem_bytes[0];
    return SPIPE_LAUNCH(turn, spipe_blocks(n, 64), 64, 0, c->stream,
                        (const unsigned char *)c->data[0], (unsigned char *)c->data[1], n);
}

typedef struct world {
    spipe_file_t in;
    spipe_desc_t d;
    spipe_report_t r;
    size_t used, elem, skip;
} world_t;

static void begin(world_t *w, size_t used, size_t skip, size_t elem) {
    w->used = used;
    w->elem = elem;
    w->skip = skip;
    memset(seen, 0xEE, sizeof seen);
    memset(&w->r, 0, sizeof w->r);
    SPIPE_CHECK(spipe_file_open(&w->in, name, NULL));
    w->in.way = SPIPE_FILE_GPU;
    w->in.offset = skip;
    w->in.length = used;
    w->d = spipe_desc_default();
    spipe_add_file_input(&w->d, &w->in, elem);
    w->d.count = w->in.count;
    spipe_add_output(&w->d, seen, elem);
    spipe_add_stage(&w->d, "turn", turn_stage, NULL);
}

/* Whether the output is the input turned round, and behind it zeros turned round. */
static int right(const world_t *w) {
    const size_t whole = (w->used + w->elem - 1) / w->elem * w->elem;
    size_t i, wrong = 0;
    for (i = 0; i < whole; ++i) {
        const unsigned char is = i < w->used ? data[w->skip + i] : 0;
        wrong += seen[i] != (unsigned char)~is;
    }
    return wrong == 0 && fake.wrong == 0;
}

static void test_runs(spipe_schedule_t schedule) {
    static const size_t sizes[] = {1, 4097, 50000}, elems[] = {1, 16, 4096};
    static const size_t threads[] = {SPIPE_AUTO, 0, 1, 4};
    static const int list[3] = {0, 1, 2};
    size_t k, wrong = 0, runs = 0;
    const size_t step = tap_every(5, 13); /* no divisor of 216: all values of everything */
    for (k = 0; k < 3 * 3 * 4 * 6; k += step) {
        const size_t kind = k / 36;
        world_t w;
        fake_mend();
        fake.is_short = (int)(k % 2);
        begin(&w, sizes[k % 3], kind % 2 ? 77 : 0, elems[k / 3 % 3]);
        w.d.schedule = schedule;
        w.d.threads = threads[k / 9 % 4];
        w.d.checked = kind == 2;
        if (kind != 0) w.d.chunk = w.d.count / 17 + 1;
        if (kind == 3) spipe_devices_list(&w.d, list, schedule == SPIPE_SCHEDULE_ZERO_COPY ? 1 : 3);
        if (kind == 4) w.d.depth = 2;
        cudaError_t e = spipe_run(&w.d, &w.r);
        const int good = e == cudaSuccess && right(&w) && w.in.way_used == SPIPE_FILE_GPU &&
                         fake.reads > 0 && w.in.last_bytes == (w.used - 1) % w.elem + 1;
        if (!good && wrong++ == 0) {
            tap_note("%zu bytes, elements of %zu, kind %zu, threads %zd: %s", w.used, w.elem, kind,
                     (ssize_t)w.d.threads, w.r.failure.message);
        }
        spipe_file_close(&w.in);
        ++runs;
    }
    tap_ok(wrong == 0 && fake.known == 0, "%s: %zu runs are right, and cuFile forgets the file",
           spipe_schedule_name(schedule), runs);
}

static void test_no_copy(void) {
    unsigned sum = 0;
    world_t w;
    fake_mend();
    begin(&w, 50000, 0, 16);
    w.d.num_buffers = 1;
    w.d.num_stages = 0;
    spipe_add_temp(&w.d, 16);
    spipe_add_resident(&w.d, &sum, sizeof sum, SPIPE_ZERO);
    w.d.buffers[2].host = NULL;
    w.d.chunk = 500;
    spipe_add_stage(&w.d, "turn", turn_stage, NULL);
    const long before = hostcuda_calls("cudaMemcpyAsync") + hostcuda_calls("cudaHostRegister");
    SPIPE_CHECK_RUN(&w.d, &w.r);
    tap_ok(w.r.pinned_bytes == 0 && strstr(w.r.why_staging, "by cuFile") && fake.reads == 7 &&
               hostcuda_calls("cudaMemcpyAsync") + hostcuda_calls("cudaHostRegister") == before,
           "nothing is pinned or copied: %s", w.r.why_staging);
    spipe_file_close(&w.in);
}

static void test_kept(void) {
    spipe_pipeline_t *p;
    spipe_chunk_t c;
    cudaStream_t stream;
    world_t w;
    int k, good = 1;
    fake_mend();
    begin(&w, 200000, 0, 100);
    SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
    for (k = 0; k < 25; ++k) {
        memset(seen, 0, sizeof seen);
        good &= spipe_pipeline_run(p, &w.r) == cudaSuccess && right(&w);
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    tap_ok(good, "a kept pipeline, 25 runs: right");
    SPIPE_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    w.d.num_stages = 0;
    w.d.chunk = 150;
    SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
    for (k = 0; k < 3; ++k) {
        memset(seen, 0, sizeof seen);
        for (;;) {
            SPIPE_CHECK(spipe_pipeline_next(p, stream, &c));
            if (c.count == 0) break;
            SPIPE_CHECK(turn_stage(&c, NULL));
            SPIPE_CHECK(spipe_pipeline_release(p, stream));
        }
        good &= right(&w);
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(cudaStreamDestroy(stream));
    tap_ok(good, "a loop that pulls: right");
    spipe_file_close(&w.in);
}

/* ---- What goes wrong ------------------------------------------------------------------------- */
static void test_fails(int number, int own, size_t threads) {
    static const size_t bytes[] = {0, 1, 9999, 10000, 65432, 99999};
    int k, good = 0;
    for (k = 0; k < 6; ++k) {
        char at[100], why[64];
        world_t w;
        fake_mend();
        begin(&w, 100000, 0, 10);
        w.d.chunk = 1000;
        w.d.threads = threads;
        fake.is_short = k % 2;
        fake.bad = bytes[k];
        fake.bad_errno = number;
        fake.bad_own = own;
        if (number == 0 && own == 0) {
            fake.cut = bytes[k];
            fake.bad = NEVER;
        }
        snprintf(why, sizeof why, "cuFile error %d", own);
        if (number) snprintf(why, sizeof why, "%s", strerror(number));
        if (!number && !own) snprintf(why, sizeof why, "no more bytes come");
        snprintf(at, sizeof at, "at byte %zu: %s", bytes[k], why);
        const cudaError_t e = spipe_run(&w.d, &w.r);
        const int ok = e == cudaErrorOperatingSystem && strstr(w.r.failure.message, at) &&
                       strstr(w.r.failure.message, name) && w.r.failure.chunk == bytes[k] / 10000 &&
                       w.r.failure.chunks_whole == bytes[k] / 10000;
        if (!ok && good == k) tap_note("wanted %s: %s", at, w.r.failure.message);
        good += ok;
        spipe_file_close(&w.in);
    }
    const char *what = own ? "an error of cuFile's" : "a file that becomes shorter";
    tap_ok(good == k && fake.known == 0, "%s: path and byte are said",
           number ? strerror(number) : what);
}

/* What is alive; a stream that was destroyed is gone when its last work has ended. */
static int num_alive(void) {
    (void)cudaDeviceSynchronize(); /* all is on device 0 */
    return hostcuda_leaks(NULL);
}

/* Each CUDA call of a run fails once. */
static void test_calls_fail(void) {
    size_t k, wrong = 0, failed = 0;
    long fired = 1;
    for (k = 1; fired > 0 && k < 1000; ++k) {
        world_t w;
        const int alive = num_alive();
        spipe_report_t again;
        cudaError_t e;
        fake_mend();
        fake.trusts = 1;
        begin(&w, 4321, 0, 100);
        w.d.chunk = 10;
        w.d.threads = k % 2 ? 2 : 0;
        hostcuda_fail(NULL, (long)k, cudaErrorNotSupported);
        e = spipe_run(&w.d, &w.r);
        fired = hostcuda_fail_fired();
        hostcuda_fail_clear();
        failed += e != cudaSuccess;
        int bad = e == cudaSuccess ? !right(&w) : w.r.failure.message[0] == 0;
        (void)cudaGetLastError();
        bad |= 2 * (spipe_run(&w.d, &again) != cudaSuccess || !right(&w));
        spipe_file_close(&w.in);
        const int stuck = strstr(w.r.failure.message, "freeing") != NULL; /* that stays alive */
        if (!stuck) bad |= 4 * (num_alive() > alive); /* fewer: what was late to go */
        if (bad && wrong++ == 0) {
            tap_note("call %zu, %d: %s; %s", k, bad, w.r.failure.message, again.failure.message);
        }
    }
    tap_ok(wrong == 0 && failed > 20 && k < 1000,
           "each of %zu calls fails once: %zu runs fail, and the next is right", k - 2, failed);
}

static void test_without(int missing, int opens, int takes, const char *says) {
    world_t w;
    fake_mend();
    fake.missing = missing;
    fake.opens = opens;
    fake.takes = takes;
    begin(&w, 100000, 5, 10);
    const cudaError_t e = spipe_run(&w.d, &w.r);
    tap_ok(e == cudaSuccess && right(&w) && fake.reads == 0 && fake.known == 0 &&
               w.in.way_used != SPIPE_FILE_GPU && strstr(w.r.why_staging, says),
           "%s", w.r.why_staging);
    spipe_file_close(&w.in);
}

static void test_halo(void) {
    world_t w;
    fake_mend();
    begin(&w, 100000, 0, 10);
    spipe_set_halo(&w.d, 0, 1, 0, SPIPE_EDGE_CLAMP);
    tap_ok(spipe_run(&w.d, &w.r) == cudaErrorInvalidValue && strstr(w.r.failure.message, "halo"),
           "%s", w.r.failure.message);
    spipe_file_close(&w.in);
}

int main(void) {
    static const spipe_schedule_t schedules[] = {SPIPE_SCHEDULE_AUTO, SPIPE_SCHEDULE_SERIAL,
                                                 SPIPE_SCHEDULE_ZERO_COPY};
    const int fd = mkstemp(name);
    size_t i;
    replaced.dlopen = test_dlopen;
    replaced.dlsym = test_dlsym;
    for (i = 0; i < sizeof data; ++i) data[i] = (unsigned char)pipe_random();
    if (fd < 0 || write(fd, data, sizeof data) != (ssize_t)sizeof data || close(fd)) exit(99);
    SPIPE_CHECK(hostcuda_set_devices(3));
    for (i = 0; i < 3; ++i) test_runs(schedules[i]);
    test_no_copy();
    test_kept();
    for (i = 0; i < 6; i += 3) {
        test_fails(EIO, 0, i);
        test_fails(0, 5011, i);
        test_fails(0, 0, i);
    }
    test_without(1, 0, 0, "not found");
    test_without(2, 0, 0, "not found");
    test_without(0, 5001, 0, "driver does not open");
    test_without(0, 0, 5008, "does not take this file");
    test_halo();
    test_calls_fail();
    (void)remove(name);
    (void)tap_done();
    fflush(stdout);
    _exit(tap_failed != 0); /* what failed frees kept is no leak of ours */
}
#else
#include "tap.h"

int main(void) {
    tap_skip("files", "cuFile is a library of Linux");
    return tap_done();
}
#endif
