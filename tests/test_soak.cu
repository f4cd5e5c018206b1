/*  test_soak.cu -- threads make, run, fail, stop and destroy pipelines of random shapes on shared
    resources of all devices, while signals arrive, threads end and processes are forked. Every
    result is compared, and what is in use does not grow. Some seconds; --minutes N for long (make
    soak MINUTES=N). */
#include "pipe_common.h"
#include "streampipe_devices.h"

#include <atomic>
#include <chrono>
#include <signal.h>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>
#if defined(__HOSTCUDA__)
#include "hostcuda.h"
#endif

enum {
    COUNT = 20000,
    THREADS = 9,           /* more than seven runs at once plan otherwise than few */
    ROUNDS = 40,           /* then the thread ends, and another takes its place */
    MOST_STREAMS = 4 + 16, /* of a pipeline: with a stream for each slot */
    MOST_EVENTS = 18 + 16 * 3,
    MANY_STREAMS = 512 /* on each device; five threads had 205 at most in six minutes */
};

static __global__ void mix_kernel(const unsigned *x, unsigned *y, size_t n, size_t first,
                                  unsigned salt) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = 5 * x[i] + (unsigned)(first + i) * salt;
}

typedef struct world {
    unsigned seed, salt;
    unsigned *x, *y;
    size_t count, taken, fail_at, stop_at;
    int throws, pinned, hosted;
    int enqueues; /* such a pipeline keeps its memory, so few may */
    spipe_desc_t d;
} world_t;

static int num_devices;
static std::atomic<int> over(0);
static std::atomic<long> num_runs(0), num_wrong(0), num_signals(0);

static unsigned pick(world_t *w, unsigned n) {
    w->seed = w->seed * 1664525u + 1013904223u;
    return (w->seed >> 8) % n;
}

static cudaError_t mix(const spipe_chunk_t *c, void *user) {
    const world_t *w = (const world_t *)user;
    if (c->index == w->fail_at && w->throws) throw std::runtime_error("the stage gave up");
    if (c->index == w->fail_at) return spipe_chunk_fail(c, "the stage gave up");
    return SPIPE_LAUNCH(mix_kernel, spipe_blocks(c->count, 128), 128, 0, c->stream,
                        SPIPE_BUF(c, 0, const unsigned), SPIPE_BUF(c, 1, unsigned), c->count,
                        c->first, w->salt);
}

static cudaError_t give(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t most = part->count;
    size_t *count = &part->count;
    world_t *w = (world_t *)user;
    *count = w->count - w->taken < most ? w->count - w->taken : most;
    memcpy(dst, w->x + w->taken, *count * 4);
    w->taken += *count;
    return cudaSuccess;
}

static cudaError_t take_at(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    memcpy(((world_t *)user)->y + first, src, count * 4);
    return cudaSuccess;
}

static int stop(const spipe_progress_t *progress, void *user) {
    return progress->chunks_done >= ((const world_t *)user)->stop_at;
}

/* A description of a random shape. */
static void describe(world_t *w, spipe_resources_t *r) {
    w->count = pick(w, COUNT);
    w->taken = 0;
    w->salt = pick(w, 1000);
    w->fail_at = pick(w, 6) == 0 ? pick(w, 4) : SIZE_MAX;
    w->throws = (int)pick(w, 2);
    w->hosted = pick(w, 4) == 0;
    w->d = spipe_desc_default();
    w->d.resources = r;
    w->d.count = w->count;
    w->d.priority = (spipe_priority_t)pick(w, 4);
    if (pick(w, 2)) w->d.chunk = 200 + pick(w, 4000);
    if (pick(w, 3) == 0) w->d.depth = 1 + pick(w, 6);
    if (pick(w, 4) == 0) w->d.schedule = (spipe_schedule_t)(1 + pick(w, 3));
    if (pick(w, 8) == 0) {
        w->stop_at = pick(w, 5);
        w->d.progress = stop;
        w->d.progress_user = w;
    }
    if (w->hosted) {
        spipe_add_source(&w->d, give, w, 4, SPIPE_IN_ORDER);
        spipe_add_sink(&w->d, take_at, w, 4, SPIPE_ANY_ORDER);
    } else {
        spipe_add_input(&w->d, w->x, 4);
        spipe_add_output(&w->d, w->y, 4);
    }
}

/* What is whole must be right; a run that went well is whole. */
static void judge(world_t *w, cudaError_t e, const spipe_report_t *r, const char *how) {
    size_t whole = e == cudaSuccess ? w->count : r->failure.chunks_whole * r->chunk, i, at = 0;
    long wrong = 0;
    if (whole > w->count) whole = w->count;
    for (i = whole; i > 0; --i) {
        if (w->y[i - 1] == 5 * w->x[i - 1] + (unsigned)(i - 1) * w->salt) continue;
        at = i - 1;
        ++wrong;
    }
    if (wrong) {
        const char *arrays = w->pinned ? "pinned" : "pageable";
        printf("# %ld of %zu elements are wrong, the first is %zu: %#x, not %#x (%s, %zu x %zu "
               "elements in %zu slots, %s, %s)\n",
               wrong, whole, at, w->y[at], 5 * w->x[at] + (unsigned)at * w->salt,
               spipe_schedule_name(r->schedule), r->num_chunks, r->chunk, r->depth,
               w->hosted ? "hosted" : arrays, how);
    }
    wrong += e != cudaSuccess && !r->failure.message[0];
    wrong += e != cudaSuccess && w->fail_at == SIZE_MAX && e != SPIPE_STOPPED;
    if (wrong) printf("# %s: %s\n", cudaGetErrorName(e), r->failure.message);
    num_wrong += wrong;
    ++num_runs;
    memset(w->y, 0xA5, COUNT * 4);
    w->taken = 0;
}

static void one_run(world_t *w, spipe_pipeline_t *p) {
    spipe_report_t r;
    cudaError_t e;
    try {
        e = p ? spipe_pipeline_run(p, &r) : spipe_run(&w->d, &r);
    } catch (const std::runtime_error &) {
        num_wrong += w->fail_at == SIZE_MAX || !w->throws;
        ++num_runs;
        w->taken = 0;
        return;
    }
    judge(w, e, &r, p ? "kept" : "once");
}

/* Chunk by chunk, to the end or not; or destroyed with chunks held. */
static void pull(world_t *w, spipe_pipeline_t *p, cudaStream_t stream) {
    const unsigned most = pick(w, 3) == 0 ? pick(w, 4) : ~0u;
    spipe_report_t r;
    spipe_chunk_t c;
    unsigned k;
    w->fail_at = SIZE_MAX;
    for (k = 0; k < most; ++k) {
        SPIPE_CHECK(spipe_pipeline_next(p, stream, &c));
        if (c.count == 0) break;
        c.stream = stream;
        SPIPE_CHECK(mix(&c, w));
        SPIPE_CHECK(spipe_pipeline_release(p, stream));
    }
    if (k == most && pick(w, 2)) return; /* destroy ends it */
    if (spipe_pipeline_end(p, &r) == cudaSuccess && k < most) judge(w, cudaSuccess, &r, "pulled");
    SPIPE_CHECK(cudaStreamSynchronize(stream));
}

static void kept_runs(world_t *w, cudaStream_t stream) {
    const int pulls = pick(w, 4) == 0 && !w->d.progress;
    spipe_pipeline_t *p;
    spipe_failure_t f;
    spipe_report_t r;
    unsigned k, runs = 1 + pick(w, 4);
    if (!pulls) spipe_add_stage(&w->d, "mix", mix, w);
    const cudaError_t e = spipe_pipeline_create(&p, &w->d, &f);
    if (e != cudaSuccess) {
        printf("# create: %s\n", f.message);
        ++num_wrong;
        return;
    }
    for (k = 0; k < runs; ++k) {
        if (k > 0 && pick(w, 3) == 0 && !w->hosted) {
            w->count = pick(w, COUNT);
            SPIPE_CHECK(spipe_pipeline_set_count(p, w->count));
        }
        if (pulls) {
            pull(w, p, stream);
            break;
        }
        if (w->enqueues && pick(w, 3) == 0 && w->fail_at == SIZE_MAX && !w->d.progress) {
            SPIPE_CHECK(spipe_pipeline_enqueue(p, stream));
            judge(w, spipe_pipeline_wait(p, &r), &r, "enqueued");
        } else {
            one_run(w, p);
        }
        w->fail_at = SIZE_MAX;
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(cudaStreamSynchronize(stream));
}

static void soak(spipe_resources_t *r, unsigned seed, unsigned round) {
    world_t w;
    cudaStream_t stream;
    size_t i;
    memset((void *)&w, 0, sizeof w);
    w.seed = seed + 7919u * round;
    w.pinned = seed % 2;
    w.enqueues = seed < 1000;
    if (w.pinned) {
        SPIPE_CHECK(spipe_pinned_alloc((void **)&w.x, COUNT * 4));
        SPIPE_CHECK(spipe_pinned_alloc((void **)&w.y, COUNT * 4));
    } else {
        w.x = (unsigned *)malloc(COUNT * 4);
        w.y = (unsigned *)malloc(COUNT * 4);
        if (!w.x || !w.y) exit(99);
    }
    for (i = 0; i < COUNT; ++i) w.x[i] = pick(&w, ~0u);
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    for (int k = 0; k < ROUNDS && !over; ++k) {
        describe(&w, r);
        if (pick(&w, 2)) {
            kept_runs(&w, stream);
        } else {
            spipe_add_stage(&w.d, "mix", mix, &w);
            if (pick(&w, 3) == 0) spipe_devices_all(&w.d);
            one_run(&w, NULL);
        }
        SPIPE_CHECK(cudaSetDevice((int)pick(&w, (unsigned)num_devices)));
        SPIPE_CHECK(cudaStreamDestroy(stream));
        SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    }
    SPIPE_CHECK(cudaStreamDestroy(stream));
    if (w.pinned) {
        SPIPE_CHECK(spipe_pinned_free(w.x));
        SPIPE_CHECK(spipe_pinned_free(w.y));
    } else {
        free(w.x);
        free(w.y);
    }
}

/* Threads one after the other, always one. */
static void soak_on(spipe_resources_t *r, unsigned seed) {
    for (unsigned k = 0; !over; ++k) std::thread(soak, r, seed, k).join();
}

/* ---- What is in use ------------------------------------------------------------------------- */
typedef struct sample {
    long resident_kib, threads, files;
    size_t device_free;
    spipe_resources_usage_t lent; /* of all devices */
} sample_t;

static long entries(const char *folder) {
    char command[64], line[32] = "";
    FILE *pipe;
    snprintf(command, sizeof command, "ls /proc/%ld/%s 2>/dev/null | wc -l", (long)getpid(),
             folder);
    pipe = popen(command, "r");
    if (pipe && !fgets(line, sizeof line, pipe)) line[0] = 0;
    if (pipe) (void)pclose(pipe);
    return atol(line);
}

/* Bytes free on all devices: the most that was seen in a fifth of a second, because runs under way
   take some. */
static size_t device_free(void) {
    size_t most = 0, here, all;
    for (int k = 0; k < 20; ++k) {
        size_t sum = 0;
        for (int i = 0; i < num_devices; ++i) {
            SPIPE_CHECK(cudaSetDevice(i));
            SPIPE_CHECK(cudaMemGetInfo(&here, &all));
            sum += here;
        }
        if (sum > most) most = sum;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return most;
}

static sample_t look(spipe_resources_t *r) {
    sample_t s;
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    s.resident_kib = pages * (sysconf(_SC_PAGESIZE) / 1024);
    s.threads = entries("task");
    s.files = entries("fd");
    s.device_free = device_free();
    memset(&s.lent, 0, sizeof s.lent);
    for (int i = 0; i < num_devices; ++i) {
        spipe_resources_usage_t u;
        SPIPE_CHECK(cudaSetDevice(i));
        SPIPE_CHECK(spipe_resources_usage(r, &u));
        s.lent.streams += u.streams;
        s.lent.events += u.events;
        s.lent.threads += u.threads;
        if (s.lent.most_device_bytes < u.most_device_bytes)
            s.lent.most_device_bytes = u.most_device_bytes;
        if (s.lent.most_pinned_bytes < u.most_pinned_bytes)
            s.lent.most_pinned_bytes = u.most_pinned_bytes;
    }
    return s;
}

/* A line a minute of a long soak, which shows what grows steadily. */
static void print_minute(int minute, const sample_t *s) {
    tap_note("minute %d: %ld runs; host %ld KiB, %ld files, %ld threads; device %zu MiB free; lent "
             "%zu streams, %zu events, %zu threads",
             minute, num_runs.load(), s->resident_kib, s->files, s->threads, s->device_free >> 20,
             s->lent.streams, s->lent.events, s->lent.threads);
    fflush(stdout);
}

/* CUDA takes 0.5 MiB of a device's memory for each stream and keeps it when the stream is destroyed
   (H100, driver 580). How many exist at once is chance. So more than ever are needed exist before
   the first look, and what is missing later is not theirs. */
static void create_many_streams(void) {
    std::vector<cudaStream_t> streams(MANY_STREAMS);
    for (int i = 0; i < num_devices; ++i) {
        SPIPE_CHECK(cudaSetDevice(i));
        for (cudaStream_t &s : streams) {
            SPIPE_CHECK(spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT));
        }
        for (cudaStream_t s : streams) SPIPE_CHECK(cudaStreamDestroy(s));
    }
}

static void on_signal(int number) {
    (void)number;
    ++num_signals;
}

/* In a forked process a run ends at once, with words. */
static int forked(spipe_resources_t *r) {
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        static unsigned x[4], y[4];
        spipe_report_t report;
        spipe_desc_t d = spipe_desc_default();
        d.count = 4;
        d.resources = r;
        spipe_add_input(&d, x, 4);
        spipe_add_output(&d, y, 4);
        spipe_add_stage(&d, "mix", mix, NULL);
        _exit(spipe_run(&d, &report) != cudaSuccess && report.failure.message[0] ? 0 : 1);
    }
    (void)waitpid(child, &status, 0);
    return status == 0;
}

int main(int argc, char **argv) {
    double seconds = 3.0, began = spipe_priv_seconds();
    spipe_resources_limits_t l = spipe_resources_limits_default();
    spipe_resources_t *r;
    spipe_failure_t f;
    std::vector<std::thread> threads;
    sample_t first, last;
    size_t before;
    int k, forks = 0, bad_forks = 0, minute = 1;
    if (argc > 2 && strcmp(argv[1], "--minutes") == 0) seconds = 60.0 * atof(argv[2]);
    l.device_bytes = 4 << 20; /* what is kept may lie in the middle */
    l.pinned_bytes = 1 << 20;
    l.threads = 4;
#if defined(__HOSTCUDA__)
    SPIPE_CHECK(hostcuda_set_devices(2));
#endif
    SPIPE_CHECK(cudaGetDeviceCount(&num_devices));
    if (num_devices > SPIPE_MAX_DEVICES) num_devices = SPIPE_MAX_DEVICES;
    create_many_streams();
    before = device_free();
    SPIPE_CHECK(spipe_devices_resources_create(&r, NULL, 0, &l, NULL));
    (void)signal(SIGUSR1, on_signal);
    began = spipe_priv_seconds(); /* CUDA has started */
    for (k = 0; k < THREADS; ++k) threads.emplace_back(soak_on, r, 1000u * (unsigned)k + 7u);
    std::this_thread::sleep_for(
        std::chrono::duration<double>(seconds * 0.4 < 60.0 ? seconds * 0.4 : 60.0));
    first = look(r);
    do {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        (void)kill(getpid(), SIGUSR1);
        if (++forks % 8 == 1) bad_forks += !forked(r);
        if (spipe_priv_seconds() - began < 60.0 * minute) continue;
        last = look(r);
        print_minute(minute++, &last);
    } while (spipe_priv_seconds() - began < seconds);
    last = look(r);
    over = 1;
    for (std::thread &t : threads) t.join();
    tap_ok(num_wrong == 0, "%ld runs on %d threads: all right, or failed as they were to",
           num_runs.load(), (int)THREADS);
    tap_ok(num_signals > 0 && bad_forks == 0, "%ld signals and %d forks in the middle",
           num_signals.load(), (forks + 7) / 8);
    tap_ok(last.lent.most_device_bytes <= l.device_bytes &&
               last.lent.most_pinned_bytes <= l.pinned_bytes,
           "no more memory was lent than there is: %zu and %zu", last.lent.most_device_bytes,
           last.lent.most_pinned_bytes);
    /* runs with a part on a device, and idle pipelines there */
    const size_t most = (size_t)num_devices * (THREADS + SPIPE_PRIV_IDLE_PIPELINES);
    tap_ok(last.lent.streams <= most * 4 * MOST_STREAMS && last.lent.events <= most * MOST_EVENTS &&
               last.lent.threads <= most * 5,
           "%zu streams, then %zu; %zu events, then %zu; %zu threads, then %zu", first.lent.streams,
           last.lent.streams, first.lent.events, last.lent.events, first.lent.threads,
           last.lent.threads);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    tap_ok(last.resident_kib <= first.resident_kib + first.resident_kib / 4 + 8192,
           "memory of the host does not grow: %ld KiB, then %ld", first.resident_kib,
           last.resident_kib);
#endif
    tap_ok(last.files <= first.files + 2, "nor do open files: %ld, then %ld", first.files,
           last.files);
    /* CUDA takes memory 2 MiB at a time */
    tap_ok(last.device_free >= first.device_free ||
               first.device_free - last.device_free <= (size_t)4 << 20,
           "nor memory of the device: %zu bytes free, then %zu", first.device_free,
           last.device_free);
    k = spipe_resources_destroy(r, &f) == cudaSuccess;
    tap_note("device memory free before the resources %zu MiB, after them %zu", before >> 20,
             device_free() >> 20);
    tap_ok(k, "at the end nothing is in use: %s", f.message);
    return tap_done();
}
