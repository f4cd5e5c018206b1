/*  model.cu -- what spipe_model_run predicts beside what a run takes on this GPU.

    make bench-model      a row for each workload; status 1 if one is off by more than 5 %, or the
                          clocks of GPU and host, from 16 MiB on, by more than 2 %

    Nothing is fitted to the runs: of the device come the rates of copies of 64 MiB, alone and both
    at once; of the kernels the time of one chunk, one after another in one stream and in two; of
    staging, and of a host's calls for 1 MiB, what runs of that size without a kernel say; all else
    is the preset's.
    Each row is the median of the runs of several kept pipelines with nothing tuned. Its last column
    is what measuring foretells: the median of every second pipeline against the others'. */
#include "bench_common.h"
#include "streampipe_kernels.cuh"
#include "streampipe_tools.h"

typedef struct busy {
    unsigned steps;
    int from, to, floats; /* floats: read for each one written */
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
    return launch(b, SPIPE_BUF_ROW(c, b->from, const float, b->floats), SPIPE_BUF(c, b->to, float),
                  c->count, c->stream);
}

/* ---- What the model is told ------------------------------------------------------------------ */

static float *dev[2], *host[2];
static cudaStream_t streams[2];

/* GB/s of copies of 64 MiB: what 1 = in, 2 = out, 3 = both, each. */
static double rate(int what) {
    const size_t bytes = 64 * BENCH_MIB;
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
        float took = 0;
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

/* Runs of one more kept pipeline, without the first few; then some that are watched, and what
   their spans say. */
static void add_runs(spipe_desc_t *d, std::vector<double> *ms, std::vector<spipe_model_t> *seen) {
    static spipe_span_t spans[1 << 14];
    spipe_timeline_t t = spipe_timeline_default();
    spipe_pipeline_t *p = NULL;
    spipe_report_t r;
    t.spans = spans;
    t.capacity = sizeof spans / sizeof *spans;
    SPIPE_CHECK(spipe_pipeline_create(&p, d, NULL));
    for (int k = 0; k < 15; ++k) {
        SPIPE_CHECK(spipe_pipeline_run(p, &r));
        if (k >= 4) ms->push_back(r.wall_ms);
    }
    SPIPE_CHECK(spipe_pipeline_set_timeline(p, d->timeline = &t));
    for (int k = 0; k < 3 && seen; ++k) {
        SPIPE_CHECK(spipe_pipeline_run(p, &r));
        seen->push_back(spipe_plan_model(d, spipe_pipeline_plan(p), &r));
    }
    d->timeline = NULL;
    SPIPE_CHECK(spipe_pipeline_destroy(p));
}

static double model_ms(const spipe_model_t *m) {
    double ms = 0;
    SPIPE_CHECK(spipe_model_run(m, NULL, &ms));
    return ms;
}

/* Finds how much faster than told something is, such that the model of a run with as good as no
   kernel takes as long as such runs did. */
template <class Tell>
static void tell(spipe_model_t *m, double none_ms, Tell &&faster) {
    const busy_t none = {0, 0, 1, 1};
    const double ms = kernel_ms(&none, m->chunk);
    double low = 0.25, high = 4.0;
    for (int k = 0; k < 30; ++k) {
        const double middle = sqrt(low * high);
        faster(m, middle);
        spipe_model_t plain = *m;
        plain.stage_ms[0] = ms;
        (model_ms(&plain) > none_ms ? low : high) = middle;
    }
}

/* How fast host threads, and copies beside them, are comes from watched runs; how much faster all
   of them are while nobody watches, from runs that nobody watched. */
static void tell_staging(spipe_model_t *m, std::vector<spipe_model_t> seen, double none_ms) {
    const int alone = !m->fill_threads && !m->drain_threads; /* copies are as fast as elsewhere */
    auto order = [&](const spipe_model_t &x) {
        return alone ? x.fill_gbps / x.drain_gbps : x.device.h2d_gbps;
    };
    std::sort(seen.begin(), seen.end(),
              [&](const spipe_model_t &x, const spipe_model_t &y) { return order(x) < order(y); });
    const spipe_model_t &middle = seen[seen.size() / 2];
    if (!alone) {
        m->device.both_ways = 1.0; /* these are in those rates */
        m->device.copy_lost_us = 0.0;
    }
    tell(m, none_ms, [&](spipe_model_t *to, double faster) {
        to->fill_gbps = middle.fill_gbps * faster;
        to->drain_gbps = middle.drain_gbps * faster;
        if (alone) return;
        to->device.h2d_gbps = middle.device.h2d_gbps * faster;
        to->device.d2h_gbps = middle.device.d2h_gbps * faster;
    });
}

/* The smallest runs are latencies and calls, which differ from host to host. */
static void tell_host(spipe_model_t *m, double none_ms) {
    const spipe_model_device_t preset = m->device;
    tell(m, none_ms, [&](spipe_model_t *to, double faster) {
        to->device.launch_latency_us = preset.launch_latency_us / faster;
        to->device.copy_latency_us = preset.copy_latency_us / faster;
        to->device.call_copy_us = preset.call_copy_us / faster;
        to->device.call_launch_us = preset.call_launch_us / faster;
        to->device.call_event_us = preset.call_event_us / faster;
        to->device.return_us = preset.return_us / faster;
    });
}

/* ---- A row ----------------------------------------------------------------------------------- */

/* bytes in; kernels together take `kernel` times the copy in. Gives model / measured - 1. */
static double row(size_t bytes, double kernel, int stages, int floats, float *const *arrays,
                  const spipe_model_device_t *gpu) {
    const size_t n = bytes / sizeof(float) / (size_t)floats;
    spipe_desc_t d = describe(n, arrays, floats);
    busy_t busy[3] = {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}};
    static const char *const names[] = {"one", "two", "three"};
    for (int s = 0; s < stages; ++s) {
        busy[s].from = s == 0 ? 0 : 2;
        busy[s].to = s == stages - 1 ? 1 : 2;
        busy[s].floats = s == 0 ? floats : 1;
        spipe_add_stage(&d, names[s], busy_stage, &busy[s]);
    }
    spipe_plan_t r;
    SPIPE_CHECK(spipe_plan(&d, 1, &r, NULL));
    spipe_model_t m = spipe_plan_model(&d, &r, NULL);
    const bool staged = r.staging == SPIPE_STAGING_COPY;
    m.device = *gpu;
    const double copy = (double)(r.chunk * (size_t)floats) * 4.0 / gpu->h2d_gbps * 1e-6;
    for (int s = 0; s < stages; ++s) {
        busy[s].steps = steps_for(kernel * copy / stages, r.chunk, busy[s].floats);
        m.stage_ms[s] = kernel_ms(&busy[s], r.chunk);
        m.stage_share[s] = std::min(1.0, kernel_ms(&busy[s], r.chunk, 2) / m.stage_ms[s]);
    }
    m.device.kernel_fill = 1.0; /* stage_share has it */
    busy_t nothing = {0, 0, 1, 1};
    spipe_desc_t none = describe(n, arrays, floats);
    none.chunk = r.chunk;
    none.depth = r.depth;
    if (staged) none.threads = std::max(r.fill_threads, r.drain_threads);
    spipe_add_stage(&none, "none", busy_stage, &nothing);
    const bool small = bytes < 4 * BENCH_MIB;
    int pipelines = bytes > 1024 * BENCH_MIB ? 4 : 10;
    if (small || (staged && bytes < 256 * BENCH_MIB)) pipelines = 40;
    std::vector<double> ms, once[2], none_ms;
    std::vector<spipe_model_t> seen;
    bench_spread_t took = {0, 0, 0};
    for (int again = 0; again < 3; ++again) {
        ms.clear();
        once[0].clear();
        once[1].clear();
        for (int k = 0; k < pipelines; ++k) { /* one may be faster than another */
            add_runs(&d, &once[k % 2], NULL);
            if (staged || small) add_runs(&none, &none_ms, staged ? &seen : NULL);
        }
        for (const std::vector<double> &some : once) ms.insert(ms.end(), some.begin(), some.end());
        took = bench_spread(ms);
        if (staged || small || took.q3 < 1.03 * took.q1) break; /* or others were on the link */
    }
    if (staged)
        tell_staging(&m, seen, bench_median(none_ms));
    else if (small)
        tell_host(&m, bench_median(none_ms));
    const double predicted = model_ms(&m);
    printf("%7.0f MiB %5.1f x  %d stage%s %d:1  %6.0f KiB  %9.3f ms (%.3f-%.3f)  %9.3f ms  "
           "%+5.1f %% %+5.1f %%\n",
           (double)bytes / (double)BENCH_MIB, kernel, stages, stages > 1 ? "s" : " ", floats,
           (double)r.chunk * floats * 4.0 / 1024.0, took.median, took.q1, took.q3, predicted,
           100.0 * (predicted / took.median - 1.0),
           100.0 * (bench_median(once[1]) / bench_median(once[0]) - 1.0));
    fflush(stdout);
    return predicted / took.median - 1.0;
}

/* How far the clocks of GPU (events) and host are apart over a watched run, as a part of it. */
static double clocks_apart(size_t bytes) {
    spipe_desc_t d = spipe_desc_default();
    spipe_timeline_t t = spipe_timeline_default();
    busy_t busy = {100, 0, 1, 1};
    std::vector<double> apart, watched, plain;
    spipe_report_t r;
    spipe_pipeline_t *p = NULL;
    d.count = bytes / sizeof(float);
    spipe_add_input(&d, host[0], sizeof(float));
    spipe_add_output(&d, host[1], sizeof(float));
    spipe_add_stage(&d, "busy", busy_stage, &busy);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (int k = 0; k < 30; ++k) {
        SPIPE_CHECK(spipe_pipeline_set_timeline(p, k % 2 ? &t : NULL));
        SPIPE_CHECK(spipe_pipeline_run(p, &r));
        if (k < 8) continue;
        (k % 2 ? watched : plain).push_back(r.wall_ms);
        if (k % 2) apart.push_back((r.wall_ms - r.timed_ms) / r.wall_ms);
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    const double worst = *std::max_element(apart.begin(), apart.end());
    printf("%7.0f MiB watched: %.3f x as long as not; the clocks are %.2f %% apart at most\n",
           (double)bytes / (double)BENCH_MIB, bench_median(watched) / bench_median(plain),
           100.0 * worst);
    return worst;
}

int main(void) {
    static const size_t sizes[] = {1, 16, 64, 512, 4096};
    static const double kernels[] = {0.1, 0.5, 1.0, 1.2, 3.0};
    const size_t most = 4096 * BENCH_MIB;
    spipe_device_t facts;
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
    printf("     bytes in kernel              chunk           measured (quartiles)       model"
           "           itself\n");
    double worst = 0;
    for (size_t bytes : sizes) {
        const size_t n = bytes * BENCH_MIB;
        for (double kernel : kernels) {
            worst = std::max(worst, fabs(row(n, kernel, 1, 1, host, &gpu)));
        }
        if (bytes == 1) continue;
        worst = std::max(worst, fabs(row(n, 1.0, 3, 1, host, &gpu)));
        worst = std::max(worst, fabs(row(n, 1.0, 1, 3, host, &gpu)));
    }
    printf("pageable:\n");
    float *pageable[2] = {(float *)malloc(most), (float *)malloc(most)};
    for (float *a : pageable) memset(a, 0, most);
    for (size_t bytes : sizes) {
        for (double kernel : kernels) {
            worst = std::max(worst, fabs(row(bytes * BENCH_MIB, kernel, 1, 1, pageable, &gpu)));
        }
    }
    for (float *a : pageable) free(a);
    printf("worst: %.1f %%\n", 100.0 * worst);
    double apart = 0;
    for (size_t bytes : sizes) {
        const double part = clocks_apart(bytes * BENCH_MIB);
        if (bytes > 1) apart = std::max(apart, part); /* or the host's return is seen, 7 us */
    }
    for (int i = 0; i < 2; ++i) {
        SPIPE_CHECK(spipe_pinned_free(host[i]));
        SPIPE_CHECK(cudaFree(dev[i]));
        SPIPE_CHECK(cudaStreamDestroy(streams[i]));
    }
    return worst > 0.05 || apart > 0.02;
}
