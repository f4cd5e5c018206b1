/*  bench.cu -- streampipe beside hand-written CUDA on the same work, as fractions of what the
    hardware allows.

    nvcc -O3 -std=c++17 -arch=sm_90 -I. -Itests -Xcompiler -pthread tests/bench/bench.cu -o bench
    ./bench --quick --json bench.json        what there is to choose: ./bench --help
    ./bench --charts                         what docs/PERFORMANCE.md shows, for import_results

    THE WORK     A float array (or triples of floats, of which one float comes out) goes in, one
                 or three kernels, and out. The kernels' length is set to a multiple of the time
                 that the pinned copy in takes; it grows with the element count and does not
                 depend on the data.
    THE BOUND    max(both arrays copied whole at once, one each way; whole-array kernels), both
                 from pinned memory and timed like everything else. Single launches make it, so
                 chunks whose kernels overlap may pass it.
    BY HAND      serial: cudaMemcpy, kernels, cudaMemcpy. 4-str: four streams, a quarter each.
                 ring: a stream each way, two kernel streams taken in turn, untimed events, 4 slots,
                 best chunk of a sweep. mapped: one launch on mapped pinned memory.
    STREAMPIPE   run: spipe_run, set-up included; -setup: the same without it. kept:
                 spipe_pipeline_run. Both with nothing tuned. own sweep: the best of chunk x
                 schedule, or of ways to stage pageable memory, asked for by hand.
    HOW          Host clock, everything idle before and after. Each round runs every variant once,
                 in random order; a ratio is taken within a round, then its median and quartiles.
                 Kept pipelines over pageable memory are made anew for each round. A sweep's best is
                 the best plan that is not the library's own over again.
                 Every run's output is compared with a reference, bit by bit, and then poisoned;
                 the reference itself is compared with the CPU in places.                        */
#include "bench_common.h"
#include "streampipe_kernels.cuh"

#include <atomic>
#include <math.h>
#include <memory>

#define NUM_SLOTS 4
#define MAX_CHUNK (16 * BENCH_MIB)

/* ---- The work ------------------------------------------------------------------------------- */

typedef struct work {           /* what is measured: one row of the table */
    size_t bytes;               /* of the input */
    double kernel;              /* all kernels together, in units of the pinned copy in */
    int pinned, floats, stages; /* floats: read for each one written */
    int body;                   /* of the kernels: BODY_THREAD, ... */
} work_t;

enum {
    BODY_THREAD,
    BODY_PACKS,
    BODY_STRIDE
};

typedef struct busy { /* one kernel's settings; buffers 0 in, 1 out, 2 between stages */
    int from, to, floats, body;
    unsigned steps;
} busy_t;

typedef struct job { /* the same for every variant of a row */
    size_t count;
    int floats, stages;
    busy_t stage[3];
} job_t;

static const float BUSY_FACTOR = 0.9999f, BUSY_TERM = 0.0001f;

/* One element a thread: the most threads that the elements allow, so that a quarter of them takes
   a quarter of the time even where the whole is small. */
static __global__ void busy_kernel(const float *in, float *out, size_t n, int floats,
                                   unsigned steps) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float *at = in + i * (size_t)floats;
    float x = floats == 1 ? at[0] : fmaf(at[2], 0.25f, fmaf(at[1], 0.25f, at[0] * 0.5f));
    for (unsigned k = 0; k < steps; k++) x = fmaf(x, 0.9999f, 0.0001f);
    out[i] = x;
}

/* The same with as many blocks as the device holds at once, each thread taking many elements. One
   launch of it leaves multiprocessors idle at its end; two chunks side by side do not. */
static __global__ void stride_kernel(const float *in, float *out, size_t n, unsigned steps) {
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += stride) {
        float x = in[i];
        for (unsigned k = 0; k < steps; k++) x = fmaf(x, 0.9999f, 0.0001f);
        out[i] = x;
    }
}

static __global__ void diff_kernel(const unsigned *a, const unsigned *b, size_t n,
                                   unsigned *num_differ) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n && a[i] != b[i]) atomicAdd(num_differ, 1u);
}

static float busy_cpu(const job_t *j, const float *in) {
    float x = j->floats == 1 ? in[0] : fmaf(in[2], 0.25f, fmaf(in[1], 0.25f, in[0] * 0.5f));
    for (int s = 0; s < j->stages; ++s) {
        if (j->stage[s].body == BODY_PACKS) {
            spipe_busy_cpu(&x, &x, j->stage[s].steps, 1);
            continue;
        }
        for (unsigned k = 0; k < j->stage[s].steps; k++) x = fmaf(x, BUSY_FACTOR, BUSY_TERM);
    }
    return x;
}

static int rig_sms(void) {
    static int sms = 0;
    int device = 0;
    if (sms == 0) SPIPE_CHECK(cudaGetDevice(&device));
    if (sms == 0) SPIPE_CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
    return sms;
}

static cudaError_t launch(const busy_t *b, const float *in, float *out, size_t n, cudaStream_t s) {
    if (b->body == BODY_STRIDE) {
        const unsigned most = 8 * (unsigned)rig_sms(), blocks = spipe_blocks(n, 256);
        return SPIPE_LAUNCH(stride_kernel, blocks < most ? blocks : most, 256, 0, s, in, out, n,
                            b->steps);
    }
    if (b->body == BODY_PACKS) {
        return SPIPE_LAUNCH(spipe_busy_kernel, spipe_priv_spread_blocks(n), SPIPE_PRIV_THREADS, 0,
                            s, out, in, b->steps, n);
    }
    return SPIPE_LAUNCH(busy_kernel, spipe_blocks(n, 256), 256, 0, s, in, out, n, b->floats,
                        b->steps);
}

static cudaError_t launch_all(const job_t *j, const float *in, float *out, float *between, size_t n,
                              cudaStream_t s) {
    float *const to[3] = {between, between, out};
    if (j->stages == 1) return launch(&j->stage[0], in, out, n, s);
    for (int k = 0; k < 3; ++k) SPIPE_TRY(launch(&j->stage[k], k ? between : in, to[k], n, s));
    return cudaSuccess;
}

static cudaError_t busy_stage(const spipe_chunk_t *c, void *user) {
    const busy_t *b = (const busy_t *)user;
    return launch(b, SPIPE_BUF_ROW(c, b->from, const float, b->floats), SPIPE_BUF(c, b->to, float),
                  c->count, c->stream);
}

static job_t job_of(const work_t *w) {
    job_t j = job_t();
    j.floats = w->floats;
    j.stages = w->stages;
    j.count = w->bytes / sizeof(float) / (size_t)w->floats;
    for (int s = 0; s < j.stages; ++s) {
        const int first = s == 0, last = s == j.stages - 1;
        j.stage[s].from = first ? 0 : 2;
        j.stage[s].to = last ? 1 : 2;
        j.stage[s].floats = first ? w->floats : 1;
        j.stage[s].body = j.stage[s].floats == 1 ? w->body : BODY_THREAD;
    }
    return j;
}

static void set_steps(job_t *j, double steps) {
    const unsigned all = (unsigned)(std::min(std::max(steps, 0.0), 4e6) + 0.5);
    const unsigned each = all / (unsigned)j->stages;
    for (int s = 0; s < j->stages; ++s) j->stage[s].steps = each;
    j->stage[0].steps += all % (unsigned)j->stages;
}

static size_t in_bytes(const job_t *j) { return j->count * sizeof(float) * (size_t)j->floats; }

static size_t out_bytes(const job_t *j) { return j->count * sizeof(float); }

/* ---- What the hand-written variants run on -------------------------------------------------- */

typedef struct slot {
    float *in, *out, *between;
    cudaEvent_t in_done, stages_done, out_done;
} slot_t;

static struct rig {
    float *in, *out, *reference, *scratch; /* whole arrays on the device */
    unsigned *num_differ;
    slot_t slots[NUM_SLOTS];
    cudaStream_t streams[4]; /* ring: in, kernels, kernels, out */
    cudaEvent_t begin, end;  /* timed, for calibration */
    bench_array_t pin_in, pin_out, page_in, page_out, page_reference;
    std::mt19937 rng;
    int fixed_steps;
} rig;

static float *host_in(int pinned) { return (float *)(pinned ? rig.pin_in : rig.page_in).at; }

static float *host_out(int pinned) { return (float *)(pinned ? rig.pin_out : rig.page_out).at; }

static cudaError_t new_event(cudaEvent_t *e) {
    return cudaEventCreateWithFlags(e, cudaEventDisableTiming);
}

static cudaError_t rig_create_slots() {
    for (slot_t &s : rig.slots) {
        SPIPE_TRY(cudaMalloc((void **)&s.in, MAX_CHUNK));
        SPIPE_TRY(cudaMalloc((void **)&s.out, MAX_CHUNK));
        SPIPE_TRY(cudaMalloc((void **)&s.between, MAX_CHUNK));
        SPIPE_TRY(new_event(&s.in_done));
        SPIPE_TRY(new_event(&s.stages_done));
        SPIPE_TRY(new_event(&s.out_done));
    }
    for (cudaStream_t &s : rig.streams) SPIPE_TRY(spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT));
    SPIPE_TRY(cudaEventCreate(&rig.begin));
    return cudaEventCreate(&rig.end);
}

/* Room for the largest work, all of it taken before anything is measured. */
static cudaError_t rig_create(size_t bytes, size_t pageable_bytes) {
    SPIPE_TRY(cudaMalloc((void **)&rig.in, bytes));
    SPIPE_TRY(cudaMalloc((void **)&rig.out, bytes));
    SPIPE_TRY(cudaMalloc((void **)&rig.reference, bytes));
    SPIPE_TRY(cudaMalloc((void **)&rig.scratch, bytes));
    SPIPE_TRY(cudaMalloc((void **)&rig.num_differ, sizeof *rig.num_differ));
    SPIPE_TRY(rig_create_slots());
    SPIPE_TRY(bench_array_need(&rig.pin_in, bytes, 1));
    SPIPE_TRY(bench_array_need(&rig.pin_out, bytes, 1));
    SPIPE_TRY(bench_array_need(&rig.page_in, pageable_bytes, 0));
    SPIPE_TRY(bench_array_need(&rig.page_out, pageable_bytes, 0));
    SPIPE_TRY(bench_array_need(&rig.page_reference, pageable_bytes, 0));
    bench_fill_random(host_in(1), bytes / sizeof(float));
    bench_fill_random(host_in(0), pageable_bytes / sizeof(float));
    return cudaSuccess;
}

static void rig_destroy() {
    for (slot_t &s : rig.slots) {
        (void)cudaFree(s.in);
        (void)cudaFree(s.out);
        (void)cudaFree(s.between);
        (void)cudaEventDestroy(s.in_done);
        (void)cudaEventDestroy(s.stages_done);
        (void)cudaEventDestroy(s.out_done);
    }
    for (cudaStream_t s : rig.streams) (void)cudaStreamDestroy(s);
    (void)cudaEventDestroy(rig.begin);
    (void)cudaEventDestroy(rig.end);
    (void)cudaFree(rig.in);
    (void)cudaFree(rig.out);
    (void)cudaFree(rig.reference);
    (void)cudaFree(rig.scratch);
    (void)cudaFree(rig.num_differ);
    bench_array_free(&rig.pin_in);
    bench_array_free(&rig.pin_out);
    bench_array_free(&rig.page_in);
    bench_array_free(&rig.page_out);
    bench_array_free(&rig.page_reference);
}

/* ---- The variants by hand ------------------------------------------------------------------- */

/* Both arrays whole, one each way: what any pipeline must move. Takes the reference out. */
static cudaError_t run_both_ways(const job_t *j) {
    SPIPE_TRY(
        cudaMemcpyAsync(rig.in, host_in(1), in_bytes(j), cudaMemcpyHostToDevice, rig.streams[0]));
    SPIPE_TRY(cudaMemcpyAsync(host_out(1), rig.reference, out_bytes(j), cudaMemcpyDeviceToHost,
                              rig.streams[3]));
    SPIPE_TRY(cudaStreamSynchronize(rig.streams[0]));
    return cudaStreamSynchronize(rig.streams[3]);
}

static cudaError_t run_kernels(const job_t *j) {
    SPIPE_TRY(launch_all(j, rig.in, rig.out, rig.scratch, j->count, rig.streams[1]));
    return cudaStreamSynchronize(rig.streams[1]);
}

static cudaError_t run_serial(const job_t *j, int pinned) {
    SPIPE_TRY(cudaMemcpy(rig.in, host_in(pinned), in_bytes(j), cudaMemcpyHostToDevice));
    SPIPE_TRY(launch_all(j, rig.in, rig.out, rig.scratch, j->count, NULL));
    return cudaMemcpy(host_out(pinned), rig.out, out_bytes(j), cudaMemcpyDeviceToHost);
}

/* The same by a program that does it once: it needs device memory, too. */
static cudaError_t run_serial_once(const job_t *j, int pinned) {
    float *in = NULL, *out = NULL;
    SPIPE_TRY(cudaMalloc((void **)&in, in_bytes(j)));
    SPIPE_TRY(cudaMalloc((void **)&out, out_bytes(j)));
    SPIPE_TRY(cudaMemcpy(in, host_in(pinned), in_bytes(j), cudaMemcpyHostToDevice));
    SPIPE_TRY(launch_all(j, in, out, rig.scratch, j->count, NULL));
    SPIPE_TRY(cudaMemcpy(host_out(pinned), out, out_bytes(j), cudaMemcpyDeviceToHost));
    SPIPE_TRY(cudaFree(in));
    return cudaFree(out);
}

static cudaError_t run_four_streams(const job_t *j, int pinned) {
    for (size_t s = 0; s < 4; ++s) {
        const size_t first = j->count * s / 4, n = j->count * (s + 1) / 4 - first;
        const size_t at = first * (size_t)j->floats;
        SPIPE_TRY(cudaMemcpyAsync(rig.in + at, host_in(pinned) + at,
                                  n * (size_t)j->floats * sizeof(float), cudaMemcpyHostToDevice,
                                  rig.streams[s]));
        SPIPE_TRY(
            launch_all(j, rig.in + at, rig.out + first, rig.scratch + first, n, rig.streams[s]));
        SPIPE_TRY(cudaMemcpyAsync(host_out(pinned) + first, rig.out + first, n * sizeof(float),
                                  cudaMemcpyDeviceToHost, rig.streams[s]));
    }
    for (cudaStream_t s : rig.streams) SPIPE_TRY(cudaStreamSynchronize(s));
    return cudaSuccess;
}

/* A slot is used again when its copy out has ended. */
static cudaError_t ring_chunk(const job_t *j, size_t c, size_t chunk) {
    const size_t first = c * chunk, n = std::min(chunk, j->count - first);
    const size_t floats = (size_t)j->floats;
    const slot_t *slot = &rig.slots[c % NUM_SLOTS];
    const cudaStream_t in = rig.streams[0], kernels = rig.streams[1 + c % 2], out = rig.streams[3];
    if (c >= NUM_SLOTS) SPIPE_TRY(cudaStreamWaitEvent(in, slot->out_done, 0));
    SPIPE_TRY(cudaMemcpyAsync(slot->in, host_in(1) + first * floats, n * floats * sizeof(float),
                              cudaMemcpyHostToDevice, in));
    SPIPE_TRY(cudaEventRecord(slot->in_done, in));
    SPIPE_TRY(cudaStreamWaitEvent(kernels, slot->in_done, 0));
    SPIPE_TRY(launch_all(j, slot->in, slot->out, slot->between, n, kernels));
    SPIPE_TRY(cudaEventRecord(slot->stages_done, kernels));
    SPIPE_TRY(cudaStreamWaitEvent(out, slot->stages_done, 0));
    SPIPE_TRY(cudaMemcpyAsync(host_out(1) + first, slot->out, n * sizeof(float),
                              cudaMemcpyDeviceToHost, out));
    return cudaEventRecord(slot->out_done, out);
}

/* Every chunk starts as aligned as the array does. */
static size_t chunk_elements(const job_t *j, size_t chunk_bytes) {
    if (chunk_bytes >= in_bytes(j)) return j->count;
    return chunk_bytes / sizeof(float) / (size_t)j->floats / 64 * 64;
}

static cudaError_t run_ring(const job_t *j, size_t chunk_bytes) {
    const size_t chunk = chunk_elements(j, chunk_bytes);
    for (size_t c = 0; c * chunk < j->count; ++c) SPIPE_TRY(ring_chunk(j, c, chunk));
    return cudaStreamSynchronize(rig.streams[3]);
}

static cudaError_t run_mapped(const job_t *j) {
    void *in = NULL, *out = NULL;
    SPIPE_TRY(cudaHostGetDevicePointer(&in, host_in(1), 0));
    SPIPE_TRY(cudaHostGetDevicePointer(&out, host_out(1), 0));
    SPIPE_TRY(
        launch_all(j, (const float *)in, (float *)out, rig.scratch, j->count, rig.streams[1]));
    return cudaStreamSynchronize(rig.streams[1]);
}

/* ---- The variants by streampipe ------------------------------------------------------------- */

enum {
    NO_THREADS = 1 << 16
}; /* of settings_t, where zero is taken */

typedef struct settings { /* what a sweep sets; zero: left to the library */
    size_t chunk_bytes, threads;
    spipe_schedule_t schedule;
    spipe_staging_t staging;
    int fixed; /* every body is, but then a kept pipeline may replay */
} settings_t;

static spipe_desc_t describe(job_t *j, int pinned, const settings_t *s) {
    static const char *const names[] = {"first", "second", "third"};
    spipe_desc_t d = spipe_desc_default();
    d.count = j->count;
    d.schedule = s->schedule;
    d.staging = s->staging;
    if (s->chunk_bytes) d.chunk = chunk_elements(j, s->chunk_bytes);
    if (s->threads) d.threads = s->threads == NO_THREADS ? 0 : s->threads;
    spipe_add_input(&d, host_in(pinned), sizeof(float) * (size_t)j->floats);
    spipe_add_output(&d, host_out(pinned), sizeof(float));
    if (j->stages > 1) spipe_add_temp(&d, sizeof(float));
    for (int k = 0; k < j->stages; ++k) {
        const int stage = spipe_add_stage(&d, names[k], busy_stage, &j->stage[k]);
        spipe_stage_elementwise(&d, stage); /* true of every body */
        if (s->fixed) spipe_stage_replayable(&d, stage);
    }
    return d;
}

typedef std::shared_ptr<spipe_pipeline_t> pipeline_t;

/* NULL, with the library's sentence on stderr, where it refuses. */
static pipeline_t new_pipeline(job_t *j, int pinned, const settings_t *s) {
    spipe_failure_t why;
    const spipe_desc_t d = describe(j, pinned, s);
    spipe_pipeline_t *p = NULL;
    if (spipe_pipeline_create(&p, &d, &why) == cudaSuccess) {
        return pipeline_t(p, [](spipe_pipeline_t *dead) { (void)spipe_pipeline_destroy(dead); });
    }
    fprintf(stderr, "bench: a setting was refused: %s\n", why.message);
    (void)cudaGetLastError();
    return pipeline_t();
}

/* ---- Measuring ------------------------------------------------------------------------------ */

typedef enum checks {
    CHECK_PINNED,
    CHECK_PAGEABLE,
    CHECK_DEVICE
} checks_t;

typedef struct variant {
    std::string name, family;
    checks_t where; /* its output is */
    std::function<cudaError_t(spipe_report_t *)> run;
    std::vector<double> ms, inner_ms; /* inner: the report's wall_ms */
    spipe_report_t report;            /* of the last run */
    std::function<int()> anew;        /* makes its pipeline again; 0: cannot */
} variant_t;

typedef std::vector<variant_t> variants_t;

static void fail(const std::string &name, const char *what) {
    fprintf(stderr, "bench: %s: %s\n", name.c_str(), what);
    exit(1);
}

static size_t count_differing(const float *device, size_t n) {
    unsigned differ = 0;
    SPIPE_CHECK(cudaMemset(rig.num_differ, 0, sizeof differ));
    SPIPE_CHECK(SPIPE_LAUNCH(diff_kernel, spipe_blocks(n, 256), 256, 0, NULL,
                             (const unsigned *)device, (const unsigned *)rig.reference, n,
                             rig.num_differ));
    SPIPE_CHECK(cudaMemcpy(&differ, rig.num_differ, sizeof differ, cudaMemcpyDeviceToHost));
    return differ;
}

static size_t check_host(const job_t *j) {
    std::atomic<size_t> wrong(0);
    std::atomic<size_t> *wrong_pieces = &wrong;
    const char *got = (const char *)host_out(0), *want = (const char *)rig.page_reference.at;
    bench_parallel(out_bytes(j), BENCH_MIB, [=](size_t begin, size_t end) {
        if (memcmp(got + begin, want + begin, end - begin) != 0) ++*wrong_pieces;
    });
    return wrong;
}

/* All bits one: a NaN that no kernel here makes. */
static void poison(const job_t *j, checks_t where) {
    const size_t bytes = out_bytes(j);
    if (where == CHECK_PAGEABLE) {
        char *at = (char *)host_out(0);
        bench_parallel(bytes, BENCH_MIB,
                       [=](size_t begin, size_t end) { memset(at + begin, 0xFF, end - begin); });
        return;
    }
    SPIPE_CHECK(cudaMemset(where == CHECK_DEVICE ? rig.out : rig.scratch, 0xFF, bytes));
    if (where == CHECK_DEVICE) return;
    SPIPE_CHECK(cudaMemcpy(host_out(1), rig.scratch, bytes, cudaMemcpyDeviceToHost));
}

/* Not timed. Pinned outputs go back to the GPU for it, which is quicker than the CPU. */
static void check(const job_t *j, const variant_t *v) {
    size_t wrong = 0;
    SPIPE_CHECK(cudaDeviceSynchronize());
    if (v->where == CHECK_PINNED) {
        SPIPE_CHECK(cudaMemcpy(rig.scratch, host_out(1), out_bytes(j), cudaMemcpyHostToDevice));
        wrong = count_differing(rig.scratch, j->count);
    }
    if (v->where == CHECK_PAGEABLE) wrong = check_host(j);
    if (v->where == CHECK_DEVICE) wrong = count_differing(rig.out, j->count);
    if (wrong) fail(v->name, "wrong output");
    poison(j, v->where);
}

/* The GPU is awake and at its clock when a run begins, whatever the host did before. */
static void wake(const job_t *j) {
    busy_t busy = busy_t();
    busy.floats = 1;
    busy.steps = rig.fixed_steps ? 1 : 4096;
    SPIPE_CHECK(
        launch(&busy, rig.scratch, rig.scratch, std::min(j->count, BENCH_MIB), rig.streams[1]));
    SPIPE_CHECK(cudaDeviceSynchronize());
}

static void run_once(const job_t *j, variant_t *v, int keep) {
    wake(j);
    v->report = spipe_report_t();
    const double begin = bench_now_ms();
    const cudaError_t e = v->run(&v->report);
    const double ms = bench_now_ms() - begin;
    if (e != cudaSuccess) {
        fail(v->name,
             v->report.failure.message[0] ? v->report.failure.message : cudaGetErrorString(e));
    }
    check(j, v);
    if (!keep) return;
    v->ms.push_back(ms);
    v->inner_ms.push_back(v->report.wall_ms);
}

/* Two pipelines of one setting over pageable memory differ by more than settings do, by where their
   memory and their threads are. So each round of the last comparison has pipelines of its own. */
static void renew(const job_t *j, variants_t *all) {
    int any = 0;
    for (size_t k : bench_order(all->size(), &rig.rng)) {
        variant_t *v = &(*all)[k];
        if (v->where != CHECK_PAGEABLE || !v->anew) continue;
        if (!v->anew()) fail(v->name, "its pipeline could not be made again");
        for (int warm = 0; warm < 2 || v->report.trying; ++warm) { /* to the way that it keeps */
            wake(j);
            SPIPE_CHECK(v->run(&v->report));
        }
        any = 1;
    }
    if (any) poison(j, CHECK_PAGEABLE);
}

/* When --charts has taken its time: from then on three rounds of a row are enough, and no other row
   begins. */
static double deadline_ms = HUGE_VAL;

/* Every variant once a round, in random order; the first rounds only warm up, and pipelines that
   try several ways by turns come to the one that they keep. */
static void measure(const job_t *j, variants_t *all, int warm, int rounds, int renewed) {
    for (int r = -warm; r < rounds; ++r) {
        if (r >= 3 && bench_now_ms() > deadline_ms) break;
        if (r >= 0 && renewed) renew(j, all);
        for (size_t k : bench_order(all->size(), &rig.rng)) run_once(j, &(*all)[k], r >= 0);
        for (variant_t &v : *all) {
            while (r < 0 && v.report.trying) run_once(j, &v, 0);
        }
    }
}

/* ---- How long the kernels are --------------------------------------------------------------- */

/* The time on the GPU of one of several back to back. */
template <typename Work>
static double gpu_ms(int times, cudaStream_t s, Work work) {
    float ms = 0;
    SPIPE_CHECK(cudaEventRecord(rig.begin, s));
    for (int k = 0; k < times; ++k) SPIPE_CHECK(work());
    SPIPE_CHECK(cudaEventRecord(rig.end, s));
    SPIPE_CHECK(cudaEventSynchronize(rig.end));
    SPIPE_CHECK(cudaEventElapsedTime(&ms, rig.begin, rig.end));
    return (double)ms / times;
}

static int times_for(const job_t *j) {
    if (in_bytes(j) <= 64 * BENCH_MIB) return 20;
    return in_bytes(j) < BENCH_GIB ? 4 : 1;
}

static double copy_in_ms(const job_t *j) {
    std::vector<double> ms;
    for (int k = 0; k < 5; ++k) {
        ms.push_back(gpu_ms(times_for(j), rig.streams[0], [=] {
            return cudaMemcpyAsync(rig.in, host_in(1), in_bytes(j), cudaMemcpyHostToDevice,
                                   rig.streams[0]);
        }));
    }
    return bench_median(ms);
}

static double kernels_ms(job_t *j, double steps) {
    std::vector<double> ms;
    set_steps(j, steps);
    for (int k = 0; k < 3; ++k) {
        ms.push_back(gpu_ms(times_for(j), rig.streams[1], [=] {
            return launch_all(j, rig.in, rig.out, rig.scratch, j->count, rig.streams[1]);
        }));
    }
    return bench_median(ms);
}

/* Sets the steps so that the whole-array kernels take `want` ms; says what they do take. */
static double calibrate(job_t *j, double want) {
    const double few = 64, many = 1024;
    if (rig.fixed_steps) return kernels_ms(j, rig.fixed_steps);
    (void)kernels_ms(j, many); /* to the clock that it will have */
    const double at_few = kernels_ms(j, few), slope = (kernels_ms(j, many) - at_few) / (many - few);
    double steps = few, ms = at_few;
    for (int k = 0; k < 3 && slope > 0; ++k) {
        steps = std::max(0.0, steps + (want - ms) / slope);
        ms = kernels_ms(j, steps);
    }
    return ms;
}

/* The right output, computed whole and looked at on the CPU in places. */
static void make_reference(const job_t *j, int pinned) {
    const size_t places = std::min(j->count, (size_t)1024);
    const float *in = host_in(1), *out = host_out(1);
    SPIPE_CHECK(cudaMemcpy(rig.in, in, in_bytes(j), cudaMemcpyHostToDevice));
    SPIPE_CHECK(launch_all(j, rig.in, rig.reference, rig.scratch, j->count, NULL));
    SPIPE_CHECK(cudaMemcpy(host_out(1), rig.reference, out_bytes(j), cudaMemcpyDeviceToHost));
    for (size_t k = 0; k < places; ++k) {
        const size_t i = (size_t)((double)(j->count - 1) * (double)k / (double)places);
        if (out[i] != busy_cpu(j, in + i * (size_t)j->floats)) fail("reference", "not the CPU's");
    }
    if (!pinned) bench_copy(rig.page_reference.at, out, out_bytes(j));
    poison(j, CHECK_PINNED);
    poison(j, CHECK_DEVICE);
    if (!pinned) poison(j, CHECK_PAGEABLE);
}

/* ---- Sweeps --------------------------------------------------------------------------------- */

static std::string size_text(size_t bytes) {
    if (bytes % BENCH_GIB == 0) return std::to_string(bytes / BENCH_GIB) + "G";
    if (bytes % BENCH_MIB == 0) return std::to_string(bytes / BENCH_MIB) + "M";
    return std::to_string(bytes / BENCH_KIB) + "K";
}

static variant_t variant_of(const std::string &name, const char *family, checks_t where,
                            std::function<cudaError_t(spipe_report_t *)> run) {
    variant_t v;
    v.name = name;
    v.family = family;
    v.where = where;
    v.run = run;
    v.report = spipe_report_t();
    return v;
}

static checks_t where_of(int pinned) { return pinned ? CHECK_PINNED : CHECK_PAGEABLE; }

/* A kept pipeline as a variant; nothing is added where the settings are refused. */
static void add_kept(variants_t *to, job_t *j, int pinned, const std::string &name,
                     const char *family, const settings_t &s) {
    const std::shared_ptr<pipeline_t> p(new pipeline_t(new_pipeline(j, pinned, &s)));
    if (!*p) return;
    to->push_back(variant_of(name, family, where_of(pinned), [p](spipe_report_t *report) {
        return spipe_pipeline_run(p->get(), report);
    }));
    to->back().anew = [=] {
        p->reset();
        *p = new_pipeline(j, pinned, &s);
        return *p != NULL;
    };
}

static void add_ring(variants_t *to, const job_t *j, size_t chunk) {
    to->push_back(variant_of("ring " + size_text(chunk), "hand", CHECK_PINNED,
                             [=](spipe_report_t *) { return run_ring(j, chunk); }));
}

/* Chunk sizes worth trying: at most the whole, at most 1024 chunks. */
static std::vector<size_t> sweep_chunks(size_t bytes) {
    std::vector<size_t> chunks;
    for (size_t c = 128 * BENCH_KIB; c <= std::min(bytes, MAX_CHUNK); c *= 2) {
        if (bytes / c <= 1024) chunks.push_back(c);
    }
    return chunks;
}

/* Totals where kernels that read and write host memory themselves have a chance. */
static int small(const job_t *j) { return in_bytes(j) <= 64 * BENCH_MIB; }

static void add_own_pinned(variants_t *to, job_t *j) {
    for (size_t c : sweep_chunks(in_bytes(j))) {
        add_kept(to, j, 1, "engines " + size_text(c), "own", {c, 0, SPIPE_SCHEDULE_ENGINES, {}, 0});
    }
    if (small(j)) add_kept(to, j, 1, "mapped auto", "own", {0, 0, SPIPE_SCHEDULE_ZERO_COPY, {}, 0});
    for (size_t percent : {50, 47, 25}) { /* of the whole at a time, side by side */
        if (!small(j)) break;
        add_kept(to, j, 1, "mapped " + std::to_string(percent) + " %", "own",
                 {in_bytes(j) * percent / 100, 0, SPIPE_SCHEDULE_ZERO_COPY, {}, 0});
    }
}

static void add_own_pageable(variants_t *to, job_t *j) {
    const spipe_schedule_t any = SPIPE_SCHEDULE_AUTO;
    for (size_t c : sweep_chunks(in_bytes(j))) {
        if (c < 512 * BENCH_KIB && in_bytes(j) > 16 * BENCH_MIB) continue;
        add_kept(to, j, 0, "staged " + size_text(c), "own", {c, 0, any, SPIPE_STAGING_COPY, 0});
    }
    for (const size_t t : {1u, 2u, 4u, 6u, 8u}) {
        if (t > std::thread::hardware_concurrency()) break;
        add_kept(to, j, 0, std::to_string(t) + "+" + std::to_string(t) + " threads", "own",
                 {0, t, any, SPIPE_STAGING_COPY, 0});
    }
    if (in_bytes(j) <= 4 * BENCH_MIB) {
        add_kept(to, j, 0, "no threads", "own", {0, NO_THREADS, any, SPIPE_STAGING_COPY, 0});
    }
    add_kept(to, j, 0, "direct", "own", {0, 0, any, SPIPE_STAGING_DIRECT, 0});
}

static void add_run(variants_t *to, job_t *j, int pinned, const std::string &name,
                    const char *family, const settings_t &s) {
    to->push_back(variant_of(name, family, where_of(pinned), [=](spipe_report_t *report) {
        const spipe_desc_t d = describe(j, pinned, &s);
        return spipe_run(&d, report);
    }));
}

/* Never kept: a pipeline that keeps arrays registered makes them pinned for all the others. */
static void add_own_runs(variants_t *to, job_t *j) {
    const spipe_schedule_t any = SPIPE_SCHEDULE_AUTO;
    add_run(to, j, 0, "run staged", "own run", {0, 0, any, SPIPE_STAGING_COPY, 0});
    add_run(to, j, 0, "run registered", "own run", {0, 0, any, SPIPE_STAGING_REGISTER, 0});
    add_run(to, j, 0, "run direct", "own run", {0, 0, any, SPIPE_STAGING_DIRECT, 0});
}

/* Then two pipelines differ by chance only. For alignment chunks may be some elements longer. */
static int is_same_plan(const spipe_report_t *a, const spipe_report_t *b) {
    const size_t least = std::min(a->chunk, b->chunk), most = std::max(a->chunk, b->chunk);
    return most - least <= least / 100 && a->depth == b->depth && a->threads == b->threads &&
           a->schedule == b->schedule && a->staged == b->staged && a->replayed == b->replayed;
}

/* Measures the candidates, keeps the best `keep` of them in `finals` and says what all took. Of
   pipelines it is the setting that is kept, not the one that had the best place in memory; none
   that is the library's plan over again, which would be compared with itself. Says whether the
   best was such a one. */
static int sweep(const job_t *j, variants_t *candidates, int rounds, size_t keep,
                 const variant_t *plan, variants_t *finals, variants_t *all) {
    int best_is_plan = 0;
    if (rounds <= 0) candidates->clear();
    measure(j, candidates, 1, rounds, 0);
    std::sort(candidates->begin(), candidates->end(), [](const variant_t &a, const variant_t &b) {
        return bench_median(a.ms) < bench_median(b.ms);
    });
    for (size_t k = 0, kept_of_them = 0; k < candidates->size(); ++k) {
        variant_t v = (*candidates)[k];
        const int same = plan && is_same_plan(&v.report, &plan->report) &&
                         (v.anew || v.report.staged); /* unstaged runs: the report cannot tell */
        all->push_back(v);
        all->back().run = nullptr;
        all->back().anew = nullptr; /* lets its pipeline go */
        best_is_plan |= same && k == 0;
        v.ms.clear();
        v.inner_ms.clear();
        if (same || kept_of_them == keep || (v.anew && !v.anew())) continue;
        finals->push_back(v);
        ++kept_of_them;
    }
    candidates->clear();
    return best_is_plan;
}

/* ---- One row -------------------------------------------------------------------------------- */

typedef struct options {
    std::vector<size_t> sizes;
    std::vector<double> kernels;
    std::vector<int> memories, shapes, stages; /* memories: 1 = pinned */
    std::vector<std::string> sections;
    int rounds, large_rounds, sweep_rounds, warm;
    int quick, list, smoke, charts, targets, body, axes_given;
    unsigned seed, cores;
    size_t stream_bytes;
    double limit_s; /* of --charts */
    std::string json;
} options_t;

typedef struct row {
    work_t work;
    job_t job;
    double copy_in_ms, kernel; /* kernel: as calibrated, in units of the copy in */
    int rounds, best_is_plan;  /* the best of the sweep is what the library chose */
    variants_t finals, swept;
} row_t;

static const variant_t *find(const row_t *r, const char *name) {
    for (const variant_t &v : r->finals) {
        if (v.name == name) return &v;
    }
    return NULL;
}

static const variant_t *best_of(const row_t *r, const char *family) {
    const variant_t *best = NULL;
    for (const variant_t &v : r->finals) {
        if (v.family != family) continue;
        if (!best || bench_median(v.ms) < bench_median(best->ms)) best = &v;
    }
    return best;
}

/* A family's times for comparing with: see bench_fastest. */
static std::vector<double> best_ms(const row_t *r, const char *family) {
    std::vector<std::vector<double>> ways;
    for (const variant_t &v : r->finals) {
        if (v.family == family) ways.push_back(v.ms);
    }
    return bench_fastest(ways);
}

static std::vector<double> bound_of(const row_t *r) {
    std::vector<double> bound = find(r, "both ways")->ms;
    const std::vector<double> &kernels = find(r, "kernels")->ms;
    for (size_t k = 0; k < bound.size(); ++k) bound[k] = std::max(bound[k], kernels[k]);
    return bound;
}

/* How many times as fast v is as the other; zeros where one is missing. */
static bench_spread_t faster(const std::vector<double> &other, const variant_t *v) {
    return bench_spread(v ? bench_ratio(other, v->ms) : std::vector<double>());
}

static bench_spread_t faster(const variant_t *other, const variant_t *v) {
    return faster(other ? other->ms : std::vector<double>(), v);
}

/* Large arrays take seconds a round; fewer rounds, and the row says so. */
static const size_t LARGE = 2 * BENCH_GIB;

static int rounds_for(const options_t *o, size_t bytes) {
    if (o->charts && bytes > 64 * BENCH_MIB && bytes < LARGE) return std::min(o->rounds, 11);
    return bytes >= LARGE ? std::min(o->rounds, o->large_rounds) : o->rounds;
}

static int sweep_rounds_for(const options_t *o, size_t bytes) {
    return bytes >= LARGE ? std::min(o->sweep_rounds, 1) : o->sweep_rounds;
}

static void add_fixed(row_t *r) {
    job_t *j = &r->job;
    const int pinned = r->work.pinned;
    const checks_t where = where_of(pinned);
    const settings_t none = settings_t();
    variants_t *to = &r->finals;
    to->push_back(variant_of("both ways", "bound", CHECK_PINNED,
                             [j](spipe_report_t *) { return run_both_ways(j); }));
    to->push_back(variant_of("kernels", "bound", CHECK_DEVICE,
                             [j](spipe_report_t *) { return run_kernels(j); }));
    to->push_back(variant_of("serial", "plain", where,
                             [j, pinned](spipe_report_t *) { return run_serial(j, pinned); }));
    to->push_back(variant_of("serial once", "plain", where,
                             [j, pinned](spipe_report_t *) { return run_serial_once(j, pinned); }));
    to->push_back(variant_of("4 streams", "hand", where, [j, pinned](spipe_report_t *) {
        return run_four_streams(j, pinned);
    }));
    add_run(to, j, pinned, "run", "default", none);
    if (!pinned && small(j)) add_run(to, j, 0, "run fixed", "fixed", {0, 0, {}, {}, 1});
    add_kept(to, j, pinned, "kept", "default", none);
    if (!find(r, "kept")) fail("kept", "the default settings were refused");
    if (!pinned) add_kept(to, j, 1, "kept pinned", "pinned", none);
    if (!pinned || !small(j)) return;
    to->push_back(variant_of("mapped", "hand", CHECK_PINNED,
                             [j](spipe_report_t *) { return run_mapped(j); }));
    add_kept(to, j, 1, "mapped whole", "own", {in_bytes(j), 0, SPIPE_SCHEDULE_ZERO_COPY, {}, 0});
}

/* What the charts show: the default settings beside what is by hand. */
static void add_for_charts(row_t *r) {
    job_t *j = &r->job;
    const int pinned = r->work.pinned;
    const settings_t none = settings_t();
    variants_t *to = &r->finals;
    to->push_back(variant_of("both ways", "bound", CHECK_PINNED,
                             [j](spipe_report_t *) { return run_both_ways(j); }));
    to->push_back(variant_of("kernels", "bound", CHECK_DEVICE,
                             [j](spipe_report_t *) { return run_kernels(j); }));
    add_run(to, j, pinned, "run", "default", none);
    add_kept(to, j, pinned, "kept", "default", none);
    if (!find(r, "kept")) fail("kept", "the default settings were refused");
    if (pinned && r->work.bytes < LARGE) {
        to->push_back(variant_of("4 streams", "hand", CHECK_PINNED,
                                 [j](spipe_report_t *) { return run_four_streams(j, 1); }));
    }
    if (pinned && small(j)) {
        to->push_back(variant_of("mapped", "hand", CHECK_PINNED,
                                 [j](spipe_report_t *) { return run_mapped(j); }));
    }
    if (pinned) return;
    if (small(j)) add_run(to, j, 0, "run fixed", "fixed", {0, 0, {}, {}, 1});
    to->push_back(variant_of("serial", "plain", CHECK_PAGEABLE,
                             [j](spipe_report_t *) { return run_serial(j, 0); }));
    to->push_back(variant_of("serial once", "plain", CHECK_PAGEABLE,
                             [j](spipe_report_t *) { return run_serial_once(j, 0); }));
}

/* The default settings by themselves: a pipeline, until it knows what it keeps, and a run. */
static variants_t settled(job_t *j, int pinned) {
    variants_t plans;
    add_kept(&plans, j, pinned, "kept", "default", settings_t());
    if (plans.empty()) fail("kept", "the default settings were refused");
    add_run(&plans, j, pinned, "run", "default", settings_t());
    measure(j, &plans, 1, 0, 0);
    for (variant_t &v : plans) {
        v.run = nullptr;
        v.anew = nullptr;
    }
    return plans;
}

static void sweep_rings(const options_t *o, row_t *r) {
    variants_t by_hand;
    for (size_t c : sweep_chunks(in_bytes(&r->job))) {
        if (r->work.pinned) add_ring(&by_hand, &r->job, c);
    }
    sweep(&r->job, &by_hand, sweep_rounds_for(o, r->work.bytes), 2, NULL, &r->finals, &r->swept);
}

static void run_sweeps(const options_t *o, row_t *r) {
    job_t *j = &r->job;
    variants_t own;
    const int rounds = sweep_rounds_for(o, r->work.bytes);
    const variants_t plans = settled(j, r->work.pinned);
    sweep_rings(o, r);
    if (r->work.pinned)
        add_own_pinned(&own, j);
    else
        add_own_pageable(&own, j);
    r->best_is_plan = sweep(j, &own, rounds, 2, &plans[0], &r->finals, &r->swept);
    if (!r->work.pinned) add_own_runs(&own, j);
    sweep(j, &own, rounds, 1, &plans[1], &r->finals, &r->swept);
}

static void prepare(row_t *r, const work_t *w) {
    r->work = *w;
    r->job = job_of(w);
    r->copy_in_ms = copy_in_ms(&r->job);
    r->kernel = calibrate(&r->job, w->kernel * r->copy_in_ms) / r->copy_in_ms;
    make_reference(&r->job, w->pinned);
}

static void run_row(const options_t *o, row_t *r, const work_t *w) {
    prepare(r, w);
    r->rounds = rounds_for(o, w->bytes);
    if (o->charts) {
        sweep_rings(o, r);
        add_for_charts(r);
    } else {
        run_sweeps(o, r);
        add_fixed(r);
    }
    measure(&r->job, &r->finals, w->bytes >= LARGE ? 1 : o->warm, r->rounds, 1);
    r->rounds = (int)r->finals[0].ms.size();
    for (variant_t &v : r->finals) {
        v.run = nullptr;
        v.anew = nullptr;
    }
}

/* ---- Targets -------------------------------------------------------------------------------- */

static std::vector<bench_target_t> targets;

static std::string number_text(double x) {
    char text[32];
    (void)snprintf(text, sizeof text, "%.3g", x);
    return text;
}

static std::string work_text(const work_t *w) {
    std::string all = (w->pinned ? "pinned " : "pageable ") + size_text(w->bytes);
    if (w->floats == 3) all += " 3:1";
    if (w->stages == 3) all += " 3 stages";
    all += " kernel " + number_text(w->kernel);
    if (w->body == BODY_STRIDE) all += " stride";
    return all;
}

static void at_least(const row_t *r, const char *what, double got, double want) {
    targets.push_back({work_text(&r->work) + ": " + what, got, want, 0});
}

/* The best by hand of the project's size table (issue 3), pinned, one stage, kept. */
static void judge_small(const row_t *r, double fraction) {
    static const struct {
        size_t mib;
        double light, balanced;
    } least[] = {{1, 0.69, 0.69}, {4, 0.76, 0.72}, {16, 0.83, 0.85}, {64, 0.91, 0.87}};

    if (r->work.floats != 1 || r->work.stages != 1) return;
    for (const auto &cell : least) {
        if (cell.mib * BENCH_MIB != r->work.bytes) continue;
        if (r->work.kernel == 0.1) at_least(r, "of the bound, kept", fraction, cell.light);
        if (r->work.kernel == 1.0) at_least(r, "of the bound, kept", fraction, cell.balanced);
    }
}

static void judge_pinned(const row_t *r) {
    const std::vector<double> bound = bound_of(r);
    const variant_t *run = find(r, "run");
    const double kept = faster(bound, find(r, "kept")).median;
    judge_small(r, kept);
    if (r->work.bytes >= 512 * BENCH_MIB) {
        const double want = r->work.body == BODY_STRIDE ? 1.03 : 0.97;
        at_least(r, "of the bound, kept", kept, want);
        at_least(r, "of the bound, spipe_run, set-up apart",
                 bench_median(bench_ratio(bound, run->inner_ms)), want);
    }
    if (r->work.bytes == 16 * BENCH_MIB && r->work.floats == 1 && r->work.stages == 1) {
        std::vector<double> apart;
        for (size_t k = 0; k < run->ms.size(); ++k) apart.push_back(run->ms[k] - run->inner_ms[k]);
        targets.push_back({work_text(&r->work) + ": spipe_run's set-up and tear-down, ms",
                           bench_median(apart), 2.0, 1});
    }
}

static void judge_pageable(const row_t *r, unsigned cores) {
    const variant_t *kept = find(r, "kept"), *serial = find(r, "serial");
    const double run = faster(find(r, "serial once"), find(r, "run")).median;
    const size_t mib = r->work.bytes / BENCH_MIB;
    if (best_of(r, "own run")) {
        at_least(r, "of its own sweep's best, spipe_run",
                 faster(best_ms(r, "own run"), find(r, "run")).median, 0.98);
    }
    if (mib <= 256) {
        const double small = mib == 64 ? 1.5 : 1.0;
        at_least(r, "x plain, once, with set-up", run, mib == 256 ? 3.0 : small);
    }
    if (mib != 512) return;
    if (cores >= 16) {
        if (r->work.kernel <= 1) { /* a longer kernel is most of both */
            at_least(r, "x plain, kept", faster(serial, kept).median, 6.0);
        }
        at_least(r, "of the pinned pipeline, kept", faster(find(r, "kept pinned"), kept).median,
                 0.6);
    } else if (cores == 4) {
        at_least(r, "x plain with 4 cores, kept", faster(serial, kept).median, 3.0);
    }
}

static void judge(const row_t *r, unsigned cores) {
    if (best_of(r, "own")) {
        at_least(r, "of its own sweep's best, kept",
                 faster(best_ms(r, "own"), find(r, "kept")).median, 0.98);
    }
    if (r->work.pinned)
        judge_pinned(r);
    else
        judge_pageable(r, cores);
}

static int print_targets(int all) {
    printf("\ntargets\n");
    return bench_targets_print(targets, all);
}

/* ---- The table ------------------------------------------------------------------------------ */

static void print_heading() {
    printf("\nAs a fraction of the bound (1 = perfect); [quartiles]; x = times as fast as\n");
    printf("%-8s%5s %-5s%-2s%7s%4s%10s |%7s%7s%12s%7s %-9s |%7s%7s |%6s %-13s |%9s%7s  %s\n",
           "memory", "size", "elem", "st", "kernel", "n", "bound ms", "serial", "4-str",
           "mapped/own", "best", "by hand", "run", "-setup", "kept", "", "x serial", "x hand",
           "x own sweep; chosen");
}

static void print_mapped(const row_t *r, const std::vector<double> &bound) {
    const variant_t *hand = find(r, "mapped"), *own = find(r, "mapped whole");
    if (!hand || !own)
        printf("%12s", "-");
    else
        printf("%7.3f/%.2f", faster(bound, hand).median, faster(bound, own).median);
}

static const char *shape_text(const work_t *w) {
    if (w->floats == 3) return "3:1";
    return w->body == BODY_STRIDE ? "1:1s" : "1:1";
}

static void print_row(const row_t *r) {
    const std::vector<double> bound = bound_of(r);
    const variant_t *kept = find(r, "kept"), *run = find(r, "run"), *serial = find(r, "serial");
    const variant_t *hand = best_of(r, "hand"), *own = best_of(r, "own");
    const bench_spread_t s = faster(bound, kept), of_own = faster(best_ms(r, "own"), kept);
    const spipe_report_t *p = &kept->report;
    printf("%-8s%5s %-5s%-2d%7.2f%4d%10.3f |%7.3f%7.3f", r->work.pinned ? "pinned" : "pageable",
           size_text(r->work.bytes).c_str(), shape_text(&r->work), r->work.stages, r->kernel,
           r->rounds, bench_median(bound), faster(bound, serial).median,
           faster(bound, find(r, "4 streams")).median);
    print_mapped(r, bound);
    printf("%7.3f %-9s |%7.3f%7.3f |%6.3f [%.3f %.3f] |%9.2f%7.3f  ", faster(bound, hand).median,
           hand->name.c_str(), faster(bound, run).median,
           bench_median(bench_ratio(bound, run->inner_ms)), s.median, s.q1, s.q3,
           faster(serial, kept).median, faster(best_ms(r, "hand"), kept).median);
    if (own) {
        printf("%.3f [%.3f %.3f] %s%s; ", of_own.median, of_own.q1, of_own.q3, own->name.c_str(),
               r->best_is_plan ? " (the sweep's best is the plan)" : "");
    }
    printf("%s %s x %zu%s", spipe_schedule_name(p->schedule),
           size_text(p->chunk * sizeof(float) * (size_t)r->work.floats).c_str(), p->depth,
           p->staged ? " staged" : "");
    if (!r->work.pinned) {
        printf("; once x plain %.2f, kept %.3f of pinned, ",
               faster(find(r, "serial once"), run).median,
               faster(find(r, "kept pinned"), kept).median);
        if (find(r, "run fixed")) {
            printf("fixed x plain %.2f, ",
                   faster(find(r, "serial once"), find(r, "run fixed")).median);
        }
        if (best_of(r, "own run")) printf("best run: %s", best_of(r, "own run")->name.c_str() + 4);
    }
    printf("\n");
    fflush(stdout);
}

/* Of --charts: one line a row, which import_results reads. */
static void print_chart_heading() {
    printf(
        "\nmedian [quartiles]; without a unit: share of the bound; x: times as fast as; by hand: "
        "the best of rings, 4 streams and mapped;\nplain: cudaMemcpy, kernel, cudaMemcpy; "
        "fixed: one call, the stage declared replayable\n");
}

static void print_spread(const char *name, const bench_spread_t s) {
    printf(" | %s %.3f [%.3f %.3f]", name, s.median, s.q1, s.q3);
}

static void print_chart_row(const row_t *r) {
    const std::vector<double> bound = bound_of(r);
    const variant_t *kept = find(r, "kept"), *run = find(r, "run");
    printf("%-8s%5s k %g (%.2f) n %d bound %.3f ms kept %.3f ms once %.3f ms",
           r->work.pinned ? "pinned" : "pageable", size_text(r->work.bytes).c_str(), r->work.kernel,
           r->kernel, r->rounds, bench_median(bound), bench_median(kept->ms),
           bench_median(run->ms));
    print_spread("kept", faster(bound, kept));
    print_spread("once", faster(bound, run));
    if (r->work.pinned) {
        print_spread("by hand", bench_spread(bench_ratio(bound, best_ms(r, "hand"))));
        print_spread("kept x by hand", faster(best_ms(r, "hand"), kept));
        printf(" %s", best_of(r, "hand")->name.c_str());
    } else {
        print_spread("kept x plain", faster(find(r, "serial"), kept));
        print_spread("once x plain", faster(find(r, "serial once"), run));
        if (find(r, "run fixed")) {
            print_spread("fixed x plain", faster(find(r, "serial once"), find(r, "run fixed")));
        }
    }
    printf("\n");
    fflush(stdout);
}

/* ---- Sections beside the table -------------------------------------------------------------- */

/* 256 chunks of 64 KiB: what issuing costs. */
static void run_small_chunks(const options_t *o, std::vector<row_t> *rows, double kernel) {
    const size_t chunk = o->smoke ? 16 * BENCH_KIB : 64 * BENCH_KIB;
    const work_t w = {256 * chunk, kernel, 1, 1, 1, BODY_THREAD};
    rows->emplace_back();
    row_t *r = &rows->back();
    prepare(r, &w);
    r->rounds = o->rounds;
    job_t *j = &r->job;
    add_ring(&r->finals, j, chunk);
    add_kept(&r->finals, j, 1, "kept", "default", {chunk, 0, SPIPE_SCHEDULE_AUTO, {}, 0});
    if (!find(r, "kept")) fail("kept", "256 chunks were refused");
    measure(j, &r->finals, o->warm, r->rounds, 0);
    for (variant_t &v : r->finals) {
        v.run = nullptr;
        v.anew = nullptr;
    }
    const variant_t *ring = best_of(r, "hand"), *kept = find(r, "kept");
    const bench_spread_t s = faster(ring, kept);
    printf("256 chunks of %s, kernel %.2f: plain stream loop %.3f ms, kept %.3f ms, %.2f x "
           "[%.2f %.2f]\n",
           size_text(chunk).c_str(), r->kernel, bench_median(ring->ms), bench_median(kept->ms),
           s.median, s.q1, s.q3);
    targets.push_back({"256 chunks of 64K, kernel " + number_text(kernel) + ": x stream loop, kept",
                       s.median, 1.5, 0});
}

/* Endless data: a source that repeats one array and a sink that compares with one reference. */
typedef struct feed {
    const char *in, *reference;
    size_t period, total, given, taken; /* elements */
} feed_t;

/* Does work(at, n, done) for the pieces of `n` elements from `first` on, period by period. */
template <typename Work>
static cudaError_t each_period(const feed_t *f, size_t first, size_t n, Work work) {
    for (size_t done = 0; done < n;) {
        const size_t at = (first + done) % f->period;
        const size_t piece = std::min(n - done, f->period - at);
        if (!work(at * sizeof(float), piece * sizeof(float), done * sizeof(float))) {
            return cudaErrorInvalidValue;
        }
        done += piece;
    }
    return cudaSuccess;
}

static cudaError_t feed_source(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    feed_t *f = (feed_t *)user;
    const size_t n = std::min(max_count, f->total - f->given), first = f->given;
    f->given += n;
    *count = n;
    return each_period(f, first, n, [=](size_t at, size_t bytes, size_t done) {
        memcpy((char *)dst + done, f->in + at, bytes);
        return 1;
    });
}

static cudaError_t feed_sink(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    feed_t *f = (feed_t *)user;
    f->taken += count;
    return each_period(f, first, count, [=](size_t at, size_t bytes, size_t done) {
        return memcmp((const char *)src + done, f->reference + at, bytes) == 0;
    });
}

/* GB/s each way of `bytes` streamed through; the report of it. */
static double stream_rate(feed_t *f, const job_t *j, size_t bytes, spipe_report_t *report) {
    busy_t stage = j->stage[0];
    spipe_desc_t d = spipe_desc_default();
    f->total = bytes / sizeof(float);
    f->given = f->taken = 0;
    spipe_add_source(&d, feed_source, f, sizeof(float), SPIPE_IN_ORDER);
    spipe_add_sink(&d, feed_sink, f, sizeof(float), SPIPE_IN_ORDER);
    spipe_add_stage(&d, "busy", busy_stage, &stage);
    const double begin = bench_now_ms();
    const cudaError_t e = spipe_run(&d, report);
    const double ms = bench_now_ms() - begin;
    if (e != cudaSuccess) fail("stream", report->failure.message);
    if (f->taken != f->total) fail("stream", "elements were lost");
    return (double)bytes / ms / 1e6;
}

typedef struct streamed {
    size_t bytes, small_bytes;
    double rate, small_rate;
    spipe_report_t report;
} streamed_t;

static void run_stream(const options_t *o, streamed_t *s) {
    const size_t period = o->smoke ? 256 * BENCH_KIB : 64 * BENCH_MIB;
    const work_t w = {period, 0.1, 1, 1, 1, BODY_THREAD};
    std::vector<double> rates;
    row_t r = row_t();
    prepare(&r, &w);
    SPIPE_CHECK(cudaMemcpy(host_out(1), rig.reference, period, cudaMemcpyDeviceToHost));
    feed_t f = {
        (const char *)host_in(1), (const char *)host_out(1), period / sizeof(float), 0, 0, 0};
    s->small_bytes = o->smoke ? BENCH_MIB : 4 * BENCH_GIB;
    s->bytes = o->smoke ? 4 * BENCH_MIB : o->stream_bytes;
    for (int k = 0; k < 3; ++k) {
        rates.push_back(stream_rate(&f, &r.job, s->small_bytes, &s->report));
    }
    s->small_rate = bench_median(rates);
    s->rate = stream_rate(&f, &r.job, s->bytes, &s->report);
    const std::string name = size_text(s->bytes) + " streamed through: ";
    const double device = (double)s->report.device_bytes / (double)BENCH_MIB;
    const double pinned = (double)s->report.pinned_bytes / (double)BENCH_MIB;
    printf("%sdevice %.1f MiB, pinned %.1f MiB, %.1f GB/s each way, %.3f of the rate at %s; source "
           "and sink are one memcpy and one memcmp\n",
           name.c_str(), device, pinned, s->rate, s->rate / s->small_rate,
           size_text(s->small_bytes).c_str());
    targets.push_back({name + "device memory, MiB", device, 256, 1});
    targets.push_back({name + "pinned memory, MiB", pinned, 256, 1});
    targets.push_back({name + "rate, of the rate at 4G", s->rate / s->small_rate, 0.95, 0});
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void json_variant(FILE *f, const variant_t *v, const std::vector<double> &bound) {
    const bench_spread_t ms = bench_spread(v->ms), part = faster(bound, v);
    fprintf(f,
            "      {\"name\": \"%s\", \"family\": \"%s\", \"median_ms\": %.5f, \"q1_ms\": %.5f, "
            "\"q3_ms\": %.5f",
            v->name.c_str(), v->family.c_str(), ms.median, ms.q1, ms.q3);
    if (!bound.empty()) {
        fprintf(f, ", \"of_bound\": [%.4f, %.4f, %.4f]", part.q1, part.median, part.q3);
    }
    if (v->report.num_stages > 0) {
        const spipe_report_t *p = &v->report;
        fprintf(f,
                ", \"schedule\": \"%s\", \"chunk\": %zu, \"depth\": %zu, \"threads\": %zu, "
                "\"staged\": %d, \"device_bytes\": %zu, \"pinned_bytes\": %zu, "
                "\"inner_median_ms\": %.5f",
                spipe_schedule_name(p->schedule), p->chunk, p->depth, p->threads, p->staged,
                p->device_bytes, p->pinned_bytes, bench_median(v->inner_ms));
    }
    fprintf(f, ", \"ms\": [");
    bench_numbers_json(v->ms, f);
    fprintf(f, "]}");
}

static void json_variants(FILE *f, const char *key, const variants_t &all,
                          const std::vector<double> &bound) {
    fprintf(f, ",\n     \"%s\": [", key);
    for (size_t k = 0; k < all.size(); ++k) {
        fprintf(f, k ? ",\n" : "\n");
        json_variant(f, &all[k], bound);
    }
    fprintf(f, "]");
}

static void json_row(FILE *f, const row_t *r) {
    const int has_bound = find(r, "both ways") && find(r, "kernels");
    fprintf(f,
            "    {\"memory\": \"%s\", \"bytes\": %zu, \"floats_in\": %d, \"stages\": %d, "
            "\"body\": %d, \"kernel_asked\": %g, \"kernel\": %.4f, \"copy_in_ms\": %.5f, "
            "\"rounds\": %d",
            r->work.pinned ? "pinned" : "pageable", r->work.bytes, r->work.floats, r->work.stages,
            r->work.body, r->work.kernel, r->kernel, r->copy_in_ms, r->rounds);
    json_variants(f, "variants", r->finals, has_bound ? bound_of(r) : std::vector<double>());
    json_variants(f, "swept", r->swept, std::vector<double>());
    fprintf(f, "}");
}

/* Written anew after each row, so that a run cut short leaves what it had. */
static void write_json(const options_t *o, const bench_machine_t *m, const std::vector<row_t> &rows,
                       const streamed_t *s) {
    if (o->json.empty()) return;
    FILE *f = fopen(o->json.c_str(), "w");
    if (!f) fail(o->json, "cannot be written");
    fprintf(f, "{");
    bench_machine_json(m, f);
    fprintf(f, ", \"seed\": %u,\n \"rows\": [", o->seed);
    for (size_t k = 0; k < rows.size(); ++k) {
        fprintf(f, k ? ",\n" : "\n");
        json_row(f, &rows[k]);
    }
    fprintf(f,
            "],\n \"streamed\": {\"bytes\": %zu, \"gb_per_s\": %.3f, \"small_bytes\": %zu, "
            "\"small_gb_per_s\": %.3f, \"device_bytes\": %zu, \"pinned_bytes\": %zu},\n ",
            s->bytes, s->rate, s->small_bytes, s->small_rate, s->report.device_bytes,
            s->report.pinned_bytes);
    bench_targets_json(targets, f);
    fprintf(f, "}\n");
    if (fclose(f) != 0) fail(o->json, "cannot be written");
}

/* ---- What to measure ------------------------------------------------------------------------ */

static const char *const USAGE =
    "bench [--quick | --smoke | --charts] [options]\n"
    "  --quick            pinned 16M 512M, pageable 64M 512M, kernels 0.1 1 1.2 3; 7 rounds\n"
    "  --smoke            tiny sizes, every variant: does it work at all (on hostcuda too)\n"
    "  --charts           only what docs/PERFORMANCE.md shows, the most important rows first\n"
    "  --limit S          150: of --charts; after S seconds no row begins\n"
    "  --size LIST        input sizes, as 64K,16M,4G     --kernel LIST   as 0.1,1,3 (x copy in)\n"
    "  --memory LIST      pinned,pageable                --shape LIST    1:1,3:1\n"
    "  --stages LIST      1,3                            --section LIST  table,chunks,stream\n"
    "  --rounds N         15                             --large-rounds N  15, from 2 GiB on\n"
    "  --sweep-rounds N   3; 0: no sweeps                --warm N        3 unmeasured rounds\n"
    "  --stream SIZE      64G                            --cores N       use only N processors\n"
    "  --body NAME        thread: one element a thread; packs: spipe_busy_kernel; stride: as many\n"
    "                     blocks as the device holds, many elements a thread\n"
    "  --json FILE        all samples                    --seed N        order of the variants\n"
    "  --targets          show the targets met too; exit status 1 when one is missed\n"
    "  --list             what would be measured, and about how long it takes\n";

static void usage_error(const std::string &what) {
    fprintf(stderr, "bench: %s\n%s", what.c_str(), USAGE);
    exit(2);
}

static std::vector<std::string> split(const std::string &list) {
    std::vector<std::string> parts;
    for (size_t at = 0; at <= list.size();) {
        const size_t comma = std::min(list.find(',', at), list.size());
        if (comma > at) parts.push_back(list.substr(at, comma - at));
        at = comma + 1;
    }
    if (parts.empty()) usage_error("an empty list");
    return parts;
}

static double parse_number(const std::string &text, char **end) {
    const double x = strtod(text.c_str(), end);
    if (*end == text.c_str() || !(x >= 0)) usage_error(text + " is no number");
    return x;
}

static double parse_plain(const std::string &text) {
    char *end;
    const double x = parse_number(text, &end);
    if (*end) usage_error(text + " is no number");
    return x;
}

static size_t parse_size(const std::string &text) {
    char *end;
    const double x = parse_number(text, &end);
    size_t unit = BENCH_GIB;
    if (*end == 'K') unit = BENCH_KIB;
    if (*end == 'M') unit = BENCH_MIB;
    if (!*end || !strchr("KMG", *end) || end[1]) usage_error(text + " is no size; 64K, 4G are");
    return (size_t)(x * (double)unit);
}

/* The place of each name in a list of those allowed, through `values`. */
static std::vector<int> parse_names(const std::string &list, const std::vector<std::string> &names,
                                    const std::vector<int> &values) {
    std::vector<int> result;
    for (const std::string &part : split(list)) {
        const size_t k = (size_t)(std::find(names.begin(), names.end(), part) - names.begin());
        if (k == names.size()) usage_error(part + " is not one of the choices");
        result.push_back(values[k]);
    }
    return result;
}

static int parse_axis(options_t *o, const std::string &name, const std::string &value) {
    if (name == "--size") {
        o->sizes.clear();
        for (const std::string &s : split(value)) o->sizes.push_back(parse_size(s));
    } else if (name == "--kernel") {
        o->kernels.clear();
        for (const std::string &s : split(value)) o->kernels.push_back(parse_plain(s));
    } else if (name == "--memory") {
        o->memories = parse_names(value, {"pinned", "pageable"}, {1, 0});
    } else if (name == "--shape") {
        o->shapes = parse_names(value, {"1:1", "3:1"}, {1, 3});
    } else if (name == "--stages") {
        o->stages = parse_names(value, {"1", "3"}, {1, 3});
    } else
        return 0;
    o->axes_given = 1;
    return 1;
}

static int parse_value(options_t *o, const std::string &name, const std::string &value) {
    if (parse_axis(o, name, value)) return 1;
    if (name == "--section") {
        o->sections = split(value);
        (void)parse_names(value, {"table", "chunks", "stream"}, {0, 0, 0});
    } else if (name == "--rounds")
        o->rounds = std::max(1, (int)parse_plain(value));
    else if (name == "--large-rounds")
        o->large_rounds = std::max(1, (int)parse_plain(value));
    else if (name == "--sweep-rounds")
        o->sweep_rounds = (int)parse_plain(value);
    else if (name == "--warm")
        o->warm = (int)parse_plain(value);
    else if (name == "--stream")
        o->stream_bytes = parse_size(value);
    else if (name == "--cores")
        o->cores = (unsigned)parse_plain(value);
    else if (name == "--limit")
        o->limit_s = parse_plain(value);
    else if (name == "--seed")
        o->seed = (unsigned)parse_plain(value);
    else if (name == "--json")
        o->json = value;
    else if (name == "--body")
        o->body = parse_names(value, {"thread", "packs", "stride"}, {0, 1, 2})[0];
    else
        return 0;
    return 1;
}

static options_t default_options() {
    options_t o = options_t();
    o.kernels = {0.1, 0.5, 1, 1.2, 3};
    o.memories = {1, 0};
    o.shapes = o.stages = {1};
    o.sections = {"table", "chunks", "stream"};
    o.rounds = o.large_rounds = 15;
    o.sweep_rounds = 3;
    o.warm = 3;
    o.stream_bytes = 64 * BENCH_GIB;
    o.seed = 1;
    o.limit_s = 150;
    for (size_t mib : {1u, 4u, 16u, 64u, 256u, 512u, 4096u}) o.sizes.push_back(mib * BENCH_MIB);
    return o;
}

static void apply_presets(options_t *o) {
    if (o->quick) {
        o->kernels = {0.1, 1, 1.2, 3};
        o->rounds = 7;
        o->sweep_rounds = 2;
        o->warm = 2;
        o->sections = {"table", "chunks"};
    }
    if (o->charts) {
        o->rounds = 21;
        o->large_rounds = 3;
        o->sweep_rounds = o->warm = 2;
        o->sections = {"table"};
    }
    if (o->smoke) {
        o->sizes = {64 * BENCH_KIB, 256 * BENCH_KIB};
        o->kernels = {1};
        if (!o->charts) o->shapes = o->stages = {1, 3};
        if (o->charts) o->kernels = {0.1, 1, 3};
        o->rounds = 2;
        o->sweep_rounds = 1;
        o->warm = 1;
        o->axes_given = 1;
    }
}

/* Presets first, whatever the order of the arguments, so that options refine them. */
static options_t parse(int argc, char **argv) {
    options_t o = default_options();
    for (int pass = 0; pass < 2; ++pass) {
        for (int k = 1; k < argc; ++k) {
            const std::string a = argv[k];
            if (a == "--help" || a == "-h") {
                printf("%s", USAGE);
                exit(0);
            }
            if (a == "--quick")
                o.quick = 1;
            else if (a == "--smoke")
                o.smoke = 1;
            else if (a == "--charts")
                o.charts = 1;
            else if (a == "--list")
                o.list = 1;
            else if (a == "--targets")
                o.targets = 1;
            else if (k + 1 >= argc)
                usage_error(a + " is no option, or lacks its value");
            else if (pass == 0)
                ++k;
            else if (!parse_value(&o, a, argv[++k]))
                usage_error(a + " is no option");
        }
        if (pass == 0) apply_presets(&o);
    }
    return o;
}

static void add_cross(std::vector<work_t> *to, const options_t *o) {
    for (int memory : o->memories)
        for (int floats : o->shapes)
            for (int stages : o->stages)
                for (size_t bytes : o->sizes)
                    for (double kernel : o->kernels) {
                        to->push_back({bytes, kernel, memory, floats, stages, o->body});
                        if (o->body == BODY_THREAD && memory && floats == 1 && kernel > 1 &&
                            !o->charts)
                            to->push_back({bytes, kernel, memory, floats, stages, BODY_STRIDE});
                    }
}

static options_t with(const options_t *o, std::vector<size_t> mib, std::vector<double> kernels,
                      int memory) {
    options_t x = *o;
    x.sizes.clear();
    for (size_t m : mib) x.sizes.push_back(m * BENCH_MIB);
    if (!kernels.empty()) x.kernels = kernels;
    x.memories = {memory};
    return x;
}

/* The most important first, so that a run that is cut short has them. */
static void add_charts(std::vector<work_t> *works, const options_t *o) {
    const std::vector<double> kernels = {0.1, 1}, all = {0.1, 1, 3};
    const options_t parts[] = {with(o, {512}, all, 1),          with(o, {512}, kernels, 0),
                               with(o, {1, 4, 16, 64}, all, 1), with(o, {1, 4, 16, 64}, kernels, 0),
                               with(o, {4096}, kernels, 1),     with(o, {256}, kernels, 0),
                               with(o, {4096}, {1}, 0)};
    for (size_t kib : {64, 256}) {
        for (double kernel : kernels) works->push_back({kib * BENCH_KIB, kernel, 0, 1, 1, 0});
    }
    for (const options_t &part : parts) add_cross(works, &part);
}

/* With no axis given: every size and kernel as one stage of floats, and the other shapes with fewer
   of them; an axis given makes it the plain cross product of the axes. */
static std::vector<work_t> choose_works(const options_t *o) {
    std::vector<work_t> works;
    if (o->axes_given) {
        add_cross(&works, o);
        return works;
    }
    if (o->charts) {
        add_charts(&works, o);
        return works;
    }
    options_t pinned = with(o, {1, 4, 16, 64, 512, 4096}, {}, 1);
    options_t pageable = with(o, {1, 4, 16, 64, 256, 512, 4096}, {0.1, 1, 3}, 0);
    if (o->quick) {
        pinned = with(o, {16, 512}, {}, 1);
        pageable = with(o, {64, 512}, {}, 0);
    }
    add_cross(&works, &pinned);
    add_cross(&works, &pageable);
    if (o->quick) return works;
    for (int memory : {1, 0}) {
        for (size_t mib : {1, 16, 512, 4096}) {
            options_t shapes =
                with(o, {mib},
                     mib == 4096 ? std::vector<double>{1} : std::vector<double>{0.1, 1, 3}, memory);
            shapes.shapes = {3};
            shapes.stages = {1, 3};
            add_cross(&works, &shapes);
            shapes.shapes = {1};
            shapes.stages = {3};
            add_cross(&works, &shapes);
        }
    }
    return works;
}

/* A guess, to choose by: runs x (what one takes at some 50 GB/s pinned, 10 pageable, + check). */
static double guess_seconds(const options_t *o, const work_t *w) {
    const double gb = (double)w->bytes / 1e9, kernel = std::max(1.0, w->kernel) * gb / 50;
    const double run = w->pinned ? kernel + 2.5 * gb / 50 : kernel + gb * 0.15;
    const double rounds = rounds_for(o, w->bytes) + (w->bytes >= LARGE ? 1 : o->warm);
    const double swept = 1 + sweep_rounds_for(o, w->bytes);
    if (!o->charts) return 0.3 + (20 * swept + 10 * rounds) * (run + 0.001);
    /* Pipelines that are made anew each round run 22 times before it. */
    if (!w->pinned) return 0.3 + rounds * (7 * (run + 0.001) + 22 * (kernel + gb / 50 + 0.001));
    const double rings = (double)sweep_chunks(w->bytes).size();
    return 0.3 + (rings * swept + 8 * rounds) * (run + 0.001);
}

static int chosen(const options_t *o, const char *section) {
    return std::find(o->sections.begin(), o->sections.end(), section) != o->sections.end();
}

static int print_list(const options_t *o, const std::vector<work_t> &works) {
    double seconds = 0;
    if (chosen(o, "table")) {
        for (const work_t &w : works) {
            printf("%-40s about %4.0f s\n", work_text(&w).c_str(), guess_seconds(o, &w));
            seconds += guess_seconds(o, &w);
        }
    }
    if (chosen(o, "chunks")) printf("256 chunks of 64K\n");
    if (chosen(o, "stream")) {
        printf("%s streamed through\n", size_text(o->stream_bytes).c_str());
        seconds += (double)o->stream_bytes / 5e9;
    }
    printf("in all about %.0f s\n", seconds);
    return 0;
}

static void create_rig(const options_t *o, const std::vector<work_t> &works) {
    size_t most = o->smoke ? 4 * BENCH_MIB : 64 * BENCH_MIB, pageable = 0;
    for (const work_t &w : works) {
        most = std::max(most, w.bytes);
        if (!w.pinned) pageable = std::max(pageable, w.bytes);
    }
    rig.rng.seed(o->seed);
    SPIPE_CHECK(rig_create(most, pageable));
}

static void run_table(const options_t *o, const bench_machine_t *machine,
                      const std::vector<work_t> &works, std::vector<row_t> *rows) {
    const streamed_t none = streamed_t();
    if (o->charts)
        print_chart_heading();
    else
        print_heading();
    for (const work_t &w : works) {
        if (bench_now_ms() > deadline_ms) {
            printf("left out, because %.0f s are over: %s\n", o->limit_s, work_text(&w).c_str());
            continue;
        }
        rows->emplace_back();
        row_t *r = &rows->back();
        run_row(o, r, &w);
        if (o->charts) {
            print_chart_row(r);
        } else {
            print_row(r);
            judge(r, o->cores ? o->cores : machine->cores);
        }
        write_json(o, machine, *rows, &none);
    }
}

int main(int argc, char **argv) {
    const double began = bench_now_ms();
    const options_t o = parse(argc, argv);
    const std::vector<work_t> works = choose_works(&o);
    std::vector<row_t> rows;
    streamed_t streamed = streamed_t();
    if (o.list) return print_list(&o, works);
    if (o.cores && !bench_use_cores(o.cores)) usage_error("this many cores cannot be had here");
    const bench_machine_t machine = bench_machine_or_skip(o.smoke);
    bench_machine_print(&machine, stdout);
    rig.fixed_steps = machine.hostcuda ? 3 : 0;
    create_rig(&o, chosen(&o, "table") ? works : std::vector<work_t>());
    rows.reserve(works.size() + 2); /* a row's variants hold its address */
    if (o.charts) deadline_ms = began + o.limit_s * 1e3;
    if (chosen(&o, "table")) run_table(&o, &machine, works, &rows);
    printf("\n");
    if (chosen(&o, "chunks")) {
        for (double kernel : {0.1, 1.0}) run_small_chunks(&o, &rows, kernel);
    }
    if (chosen(&o, "stream")) run_stream(&o, &streamed);
    write_json(&o, &machine, rows, &streamed);
    rig_destroy();
    printf("took %.0f s\n", (bench_now_ms() - began) / 1e3);
    if (o.smoke || o.charts) return 0;
    const int missed = print_targets(o.targets);
    return o.targets && missed ? 1 : 0;
}
