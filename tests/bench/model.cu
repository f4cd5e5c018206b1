/*  model.cu -- what spipe_model_run predicts beside what a run takes on this GPU.

    make bench-model      a row for each workload; status 1 if one in pinned memory, from 16 MiB on,
                          is off by more than 5 %, or the clocks of GPU and host by more than 2 %

    Nothing is fitted to the runs: of the device come the rates of copies of 64 MiB, alone, both at
    once, and beside the threads of staging; and of the kernels the time of one chunk, one after
    another in one stream and in two; all else is the preset's.
    Each row is the median of runs of five kept pipelines with nothing tuned. */
#include "bench_common.h"
#include "streampipe_kernels.cuh"
#include "streampipe_tools.h"

enum { PIPELINES = 5 };
static const size_t MOST = (size_t)1 << 30; /* bytes of a pageable array */

typedef struct busy {
    unsigned steps;
    int      from, to, floats; /* floats: read for each one written */
} busy_t;

static __global__ void busy_kernel(const float *in, float *out, size_t n, int floats,
                                   unsigned steps) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i * (size_t)floats];
    for (unsigned k = 0; k < steps; k++) x = fmaf(x, 0.9999f, 0.0001f);
    out[i] = x;
}
static cudaError_t launch(const busy_t *b, const float *in, float *out, size_t n, cudaStream_t s) {
    return SPIPE_LAUNCH(busy_kernel, spipe_blocks(n, 256), 256, 0, s, in, out, n, b->floats,
                        b->steps);
}
static cudaError_t busy_stage(const spipe_chunk_t *c, void *user) {
    const busy_t *b = (const busy_t *)user;
    return launch(b, SPIPE_BUF(c, b->from, const float), SPIPE_BUF(c, b->to, float), c->count,
                  c->stream);
}

/* ---- What the model is told ------------------------------------------------------------------ */

static float       *dev[2], *host[2];
static cudaStream_t streams[2];

/* GB/s of copies of 64 MiB: what 1 = in, 2 = out, 3 = both, each. */
static double rate(int what) {
    const size_t        bytes = 64 * BENCH_MIB;
    std::vector<double> ms;
    for (int round = 0; round < 9; ++round) {
        SPIPE_CHECK(cudaDeviceSynchronize());
        const double begin = bench_now_ms();
        for (int k = 0; k < 4; ++k) {
            const cudaMemcpyKind any = cudaMemcpyDefault;
            if (what & 1) SPIPE_CHECK(cudaMemcpyAsync(dev[0], host[0], bytes, any, streams[0]));
            if (what & 2) SPIPE_CHECK(cudaMemcpyAsync(host[1], dev[1], bytes, any, streams[1]));
        }
        SPIPE_CHECK(cudaDeviceSynchronize());
        ms.push_back(bench_now_ms() - begin);
    }
    return 4.0 * (double)bytes / bench_median(ms) * 1e-6;
}

/* ms of one kernel over n elements: of a hundred one after another, in one stream or in two; all
   are issued behind one that takes longer than that, so that the host is not what is timed. */
static double kernel_ms(const busy_t *b, size_t n, int num_streams = 1) {
    std::vector<double> ms;
    for (int round = 0; round < 5; ++round) {
        cudaEvent_t begin, end;
        float       took = 0;
        SPIPE_CHECK(cudaEventCreate(&begin));
        SPIPE_CHECK(cudaEventCreate(&end));
        const busy_t first = {1000000, 0, 1, 1};
        SPIPE_CHECK(launch(&first, dev[0], dev[1], 32, streams[0]));
        SPIPE_CHECK(cudaEventRecord(begin, streams[0]));
        SPIPE_CHECK(spipe_stream_wait(streams[1], streams[0]));
        for (int k = 0; k < 100; ++k) {
            SPIPE_CHECK(launch(b, dev[0], dev[1], n, streams[k % num_streams]));
        }
        SPIPE_CHECK(spipe_stream_wait(streams[0], streams[1]));
        SPIPE_CHECK(cudaEventRecord(end, streams[0]));
        SPIPE_CHECK(cudaEventSynchronize(end));
        SPIPE_CHECK(cudaEventElapsedTime(&took, begin, end));
        SPIPE_CHECK(cudaEventDestroy(begin));
        SPIPE_CHECK(cudaEventDestroy(end));
        ms.push_back((double)took / 100.0);
    }
    return bench_median(ms);
}

/* Steps with which a kernel over n elements takes so long. */
static unsigned steps_for(double ms, size_t n, int floats) {
    const busy_t none = {0, 0, 1, floats}, many = {4000, 0, 1, floats};
    const double least = kernel_ms(&none, n), a_step = (kernel_ms(&many, n) - least) / 4000.0;
    return ms > least ? (unsigned)((ms - least) / a_step) : 0;
}

static spipe_desc_t describe(size_t count, float *const *arrays, int floats) {
    spipe_desc_t d = spipe_desc_default();
    d.count = count;
    spipe_add_input(&d, arrays[0], sizeof(float) * (size_t)floats);
    spipe_add_output(&d, arrays[1], sizeof(float));
    spipe_add_temp(&d, sizeof(float));
    return d;
}
/* What the spans of a kept pipeline's watched runs say: of nine the one with the middle rate in. */
static spipe_model_t watched(spipe_pipeline_t *p, spipe_desc_t *d) {
    static spipe_span_t        spans[1 << 14];
    std::vector<spipe_model_t> seen;
    spipe_timeline_t           t = spipe_timeline_default();
    spipe_report_t             r;
    t.spans = spans;
    t.capacity = sizeof spans / sizeof *spans;
    p->desc.timeline = d->timeline = &t;
    for (int k = 0; k < 9; ++k) {
        SPIPE_CHECK(spipe_pipeline_run(p, &r));
        seen.push_back(spipe_plan_model(d, &r));
    }
    p->desc.timeline = d->timeline = NULL;
    std::sort(seen.begin(), seen.end(), [](const spipe_model_t &x, const spipe_model_t &y) {
        return x.device.h2d_gbps < y.device.h2d_gbps;
    });
    return seen[seen.size() / 2];
}
/* How much faster copies beside the threads of staging are while nobody watches: with MOST bytes,
   as good as no kernel, and a plan's chunks and threads. */
static double unwatched(const spipe_report_t *plan, float *const *arrays) {
    busy_t              none = {0, 0, 1, 1};
    spipe_desc_t        d = describe(MOST / sizeof(float), arrays, 1);
    spipe_report_t      r;
    std::vector<double> ms;
    spipe_pipeline_t   *p = (spipe_pipeline_t *)malloc(sizeof *p);
    d.chunk = plan->chunk;
    d.depth = plan->depth;
    d.threads = plan->threads;
    spipe_add_stage(&d, "none", busy_stage, &none);
    SPIPE_CHECK(spipe_pipeline_create(p, &d, NULL));
    for (int k = 0; k < 12; ++k) {
        SPIPE_CHECK(spipe_pipeline_run(p, &r));
        if (k >= 3) ms.push_back(r.wall_ms);
    }
    const spipe_model_t m = watched(p, &d);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    free(p);
    return (double)MOST / bench_median(ms) * 1e-6 / m.device.h2d_gbps;
}
/* What a plan does not know of staging: how fast host threads, and copies beside them, are. */
static void stage_beside(spipe_desc_t *d, const spipe_report_t *plan, float *const *arrays,
                         spipe_model_t *m) {
    spipe_pipeline_t *p = (spipe_pipeline_t *)malloc(sizeof *p);
    const double      faster = unwatched(plan, arrays);
    SPIPE_CHECK(spipe_pipeline_create(p, d, NULL));
    for (int k = 0; k < 3; ++k) SPIPE_CHECK(spipe_pipeline_run(p, NULL));
    const spipe_model_t seen = watched(p, d);
    m->fill_gbps = seen.fill_gbps;
    m->drain_gbps = seen.drain_gbps;
    m->device.h2d_gbps = seen.device.h2d_gbps * faster;
    m->device.d2h_gbps = seen.device.d2h_gbps * faster;
    m->device.both_ways = 1.0;
    m->device.copy_lost_us = 0.0; /* it is in those rates */
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    free(p);
}

/* ---- A row ----------------------------------------------------------------------------------- */

/* bytes in; kernels together take `kernel` times the copy in. Gives model / measured - 1. */
static double row(size_t bytes, double kernel, int stages, int floats, float *const *arrays,
                  const spipe_model_device_t *gpu) {
    const size_t n = bytes / sizeof(float) / (size_t)floats;
    spipe_desc_t d = describe(n, arrays, floats);
    busy_t       busy[3] = {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}};
    static const char *const names[] = {"one", "two", "three"};
    for (int s = 0; s < stages; ++s) {
        busy[s].from = s == 0 ? 0 : 2;
        busy[s].to = s == stages - 1 ? 1 : 2;
        busy[s].floats = s == 0 ? floats : 1;
        spipe_add_stage(&d, names[s], busy_stage, &busy[s]);
    }
    spipe_report_t r;
    spipe_failure_t why;
    SPIPE_CHECK(spipe_plan(&d, 1, &r));
    spipe_model_t m = spipe_plan_model(&d, &r);
    m.device = *gpu;
    const double  copy = (double)(r.chunk * (size_t)floats) * 4.0 / gpu->h2d_gbps * 1e-6;
    for (int s = 0; s < stages; ++s) {
        busy[s].steps = steps_for(kernel * copy / stages, r.chunk, busy[s].floats);
        m.stage_ms[s] = kernel_ms(&busy[s], r.chunk);
        m.stage_share[s] = std::min(1.0, kernel_ms(&busy[s], r.chunk, 2) / m.stage_ms[s]);
    }
    m.device.kernel_fill = 1.0; /* stage_share has it */
    if (r.staged) stage_beside(&d, &r, arrays, &m);
    double predicted = 0;
    SPIPE_CHECK(spipe_model_run(&m, NULL, &predicted));

    spipe_pipeline_t *p = (spipe_pipeline_t *)malloc(sizeof *p);
    std::vector<double> ms;
    for (int k = 0; k < 15 * PIPELINES; ++k) { /* one pipeline may be faster than another */
        if (k % 15 == 0) SPIPE_CHECK(spipe_pipeline_create(p, &d, &why));
        SPIPE_CHECK(spipe_pipeline_run(p, &r));
        if (k % 15 >= 4) ms.push_back(r.wall_ms);
        if (k % 15 == 14) SPIPE_CHECK(spipe_pipeline_destroy(p));
    }
    free(p);
    const bench_spread_t took = bench_spread(ms);
    printf("%7.0f MiB %5.1f x  %d stage%s %d:1  %6.0f KiB  %9.3f ms (%.3f-%.3f)  %9.3f ms  "
           "%+5.1f %%\n",
           (double)bytes / (double)BENCH_MIB, kernel, stages, stages > 1 ? "s" : " ", floats,
           (double)r.chunk * floats * 4.0 / 1024.0, took.median, took.q1, took.q3, predicted,
           100.0 * (predicted / took.median - 1.0));
    fflush(stdout);
    return predicted / took.median - 1.0;
}

/* How far the clocks of GPU (events) and host are apart over a watched run, as a part of it. */
static double clocks_apart(size_t bytes) {
    spipe_desc_t        d = spipe_desc_default();
    spipe_timeline_t    t = spipe_timeline_default();
    busy_t              busy = {100, 0, 1, 1};
    std::vector<double> apart, watched, plain;
    spipe_report_t      r;
    spipe_pipeline_t   *p = (spipe_pipeline_t *)malloc(sizeof *p);
    d.count = bytes / sizeof(float);
    spipe_add_input(&d, host[0], sizeof(float));
    spipe_add_output(&d, host[1], sizeof(float));
    spipe_add_stage(&d, "busy", busy_stage, &busy);
    SPIPE_CHECK(spipe_pipeline_create(p, &d, NULL));
    for (int k = 0; k < 30; ++k) {
        p->desc.timeline = k % 2 ? &t : NULL;
        SPIPE_CHECK(spipe_pipeline_run(p, &r));
        if (k < 8) continue;
        (k % 2 ? watched : plain).push_back(r.wall_ms);
        if (k % 2) apart.push_back((r.wall_ms - r.timed_ms) / r.wall_ms);
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    free(p);
    const double worst = *std::max_element(apart.begin(), apart.end());
    printf("%7.0f MiB watched: %.3f x as long as not; the clocks are %.2f %% apart at most\n",
           (double)bytes / (double)BENCH_MIB, bench_median(watched) / bench_median(plain),
           100.0 * worst);
    return worst;
}

int main(void) {
    static const size_t sizes[] = {16, 64, 512, 4096};
    static const double kernels[] = {0.1, 0.5, 1.0, 1.2, 3.0};
    const size_t        most = 4096 * BENCH_MIB;
    spipe_device_t      facts;
    if (spipe_device_get(&facts, -1) != cudaSuccess) {
        printf("there is no GPU\n");
        return BENCH_SKIP;
    }
    for (int i = 0; i < 2; ++i) {
        SPIPE_CHECK(spipe_pinned_alloc((void **)&host[i], most));
        memset(host[i], 0, most);
        SPIPE_CHECK(cudaMalloc((void **)&dev[i], 256 * BENCH_MIB));
        SPIPE_CHECK(cudaMemset(dev[i], 0, 256 * BENCH_MIB));
        SPIPE_CHECK(spipe_stream_create(&streams[i], SPIPE_PRIORITY_DEFAULT));
    }
    spipe_model_device_t gpu = spipe_model_preset("h200");
    gpu.h2d_gbps = rate(1);
    gpu.d2h_gbps = rate(2);
    gpu.both_ways = rate(3) / std::min(gpu.h2d_gbps, gpu.d2h_gbps);
    printf("%s: in %.1f GB/s, out %.1f, both at once %.1f each\n", facts.name, gpu.h2d_gbps,
           gpu.d2h_gbps, rate(3));
    printf("     bytes in kernel              chunk           measured (quartiles)       model\n");
    double worst = 0;
    for (size_t bytes : sizes) {
        const size_t n = bytes * BENCH_MIB;
        for (double kernel : kernels) {
            worst = std::max(worst, fabs(row(n, kernel, 1, 1, host, &gpu)));
        }
        worst = std::max(worst, fabs(row(n, 1.0, 3, 1, host, &gpu)));
        worst = std::max(worst, fabs(row(n, 1.0, 1, 3, host, &gpu)));
    }
    printf("worst: %.1f %%; beyond that promise, 1 MiB, and pageable memory:\n", 100.0 * worst);
    for (double kernel : kernels) (void)row(BENCH_MIB, kernel, 1, 1, host, &gpu);
    float *pageable[2] = {(float *)malloc(MOST), (float *)malloc(MOST)};
    for (float *a : pageable) memset(a, 0, MOST);
    for (size_t bytes : {16, 64, 512}) {
        const size_t n = bytes * BENCH_MIB;
        for (double kernel : kernels) (void)row(n, kernel, 1, 1, pageable, &gpu);
    }
    for (float *a : pageable) free(a);
    double apart = 0;
    for (size_t bytes : sizes) apart = std::max(apart, clocks_apart(bytes * BENCH_MIB));
    for (int i = 0; i < 2; ++i) {
        SPIPE_CHECK(spipe_pinned_free(host[i]));
        SPIPE_CHECK(cudaFree(dev[i]));
        SPIPE_CHECK(cudaStreamDestroy(streams[i]));
    }
    return worst > 0.05 || apart > 0.02;
}
