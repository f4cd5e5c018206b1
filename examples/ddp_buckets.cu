/*  ddp_buckets.cu -- gradients reduced over several GPUs while the backward pass still runs.

    make build/cuda/examples/ddp_buckets BACKEND=cuda ARCH=sm_90        (NCCL_HOME=... if need be)
    build/cuda/examples/ddp_buckets --mb 25 --trace ddp.json            (for ui.perfetto.dev)
    You learn   how data-parallel training hides communication: gradients go into buckets in the
                order in which the backward pass makes them, and a bucket's all-reduce starts on its
                own stream as soon as its last gradient is there. Small buckets start early but need
                more calls; one bucket for everything is the naive way, all-reduce after backward.
    Mind        one event per bucket joins the two streams. The communication stream has the higher
                priority, because its few blocks must run among those of a kernel that fills the
                GPU. Backward loses their multiprocessors: eight, as the program sets NCCL_MAX_CTAS
                if you do not. The last bucket cannot be hidden: nothing is left to compute.
    Options     --mb SIZE of a bucket, --layers N, --backward MS (else twice the all-reduce).
    Expect      (hostcuda)
                backward alone 2.482 ms, all-reduce alone 1.287 ms, one after the other 3.760 ms
                    bucket  calls        ms   speedup   communication hidden
                right: the CPU finds the same                                                     */
#include "ex_common.h"
#include "streampipe_tools.h"

#if !defined(__has_include) || !__has_include(<nccl.h>)
int main(void) {
    fprintf(stderr, "built without NCCL: pip install nvidia-nccl-cu13, or make NCCL_HOME=FOLDER, "
                    "which has include and lib; then make this again\n");
    return 77;
}
#else
#include <algorithm>
#include <nccl.h>
#include <vector>

#define NCCL_CHECK(call)                                                                           \
    do {                                                                                           \
        const ncclResult_t nccl_r_ = (call);                                                       \
        if (nccl_r_ != ncclSuccess) {                                                              \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                          \
                    ncclGetErrorString(nccl_r_));                                                  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum {
    MAX_GPUS = 16,
    MAX_LAYERS = 256
};

/* A layer's backward pass: some arithmetic, and a gradient for each parameter. */
static __global__ void backward(float *gradient, size_t n, size_t first, int rank, unsigned steps) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = (float)((first + i) % 1021 + (size_t)rank);
    for (unsigned k = 0; k < steps; ++k) x = x * 0.5f + (float)rank;
    gradient[i] = x;
}

static float backward_cpu(size_t i, int rank, unsigned steps) {
    float x = (float)(i % 1021 + (size_t)rank), before = -1.0f;
    for (unsigned k = 0; k < steps && x != before; ++k) { /* until x is fixed */
        before = x;
        x = x * 0.5f + (float)rank;
    }
    return x;
}

typedef struct gpu {
    cudaStream_t compute, comm;
    cudaEvent_t ready, done;
    float *gradients; /* of all layers, in the order in which backward makes them */
    ncclComm_t nccl;
} gpu_t;

static struct job {
    int num_gpus, layers;
    size_t per_layer; /* parameters */
    unsigned steps;
    gpu_t gpus[MAX_GPUS];
} job;

/* Timed events on the first GPU, for the timeline. */
typedef struct marks {
    std::vector<cudaEvent_t> at; /* begin and end of each operation */
    std::vector<int> stage;      /* 0 backward, 1 all-reduce */
    cudaEvent_t begin;
} marks_t;

static void mark(marks_t *m, int stage, cudaStream_t stream) {
    cudaEvent_t e;
    if (!m) return;
    SPIPE_CHECK(cudaEventCreate(&e));
    SPIPE_CHECK(cudaEventRecord(e, stream));
    m->at.push_back(e);
    m->stage.push_back(stage);
}

enum {
    BACKWARD = 1,
    REDUCE = 2
};

/* Adds up elements first .. last-1 over all GPUs, on their communication streams. */
static void reduce(size_t first, size_t last, marks_t *m) {
    for (int g = 0; g < job.num_gpus; ++g) {
        SPIPE_CHECK(cudaSetDevice(g));
        SPIPE_CHECK(cudaEventRecord(job.gpus[g].ready, job.gpus[g].compute));
        SPIPE_CHECK(cudaStreamWaitEvent(job.gpus[g].comm, job.gpus[g].ready, 0));
    }
    SPIPE_CHECK(cudaSetDevice(0));
    mark(m, 1, job.gpus[0].comm);
    NCCL_CHECK(ncclGroupStart());
    for (int g = 0; g < job.num_gpus; ++g) {
        float *at = job.gpus[g].gradients + first;
        NCCL_CHECK(ncclAllReduce(at, at, last - first, ncclFloat, ncclSum, job.gpus[g].nccl,
                                 job.gpus[g].comm));
    }
    NCCL_CHECK(ncclGroupEnd());
    SPIPE_CHECK(cudaSetDevice(0));
    mark(m, 1, job.gpus[0].comm);
}

/* One training step's backward pass and reduction; returns how many all-reduces there were. */
static int issue(size_t bucket, int what, marks_t *m) {
    const size_t all = job.per_layer * (size_t)job.layers;
    size_t begun = 0;
    int calls = 0;
    for (int layer = 0; layer < job.layers; ++layer) {
        const size_t first = job.per_layer * (size_t)layer, end = first + job.per_layer;
        for (int g = 0; g < job.num_gpus && (what & BACKWARD); ++g) {
            SPIPE_CHECK(cudaSetDevice(g));
            if (g == 0) mark(m, 0, job.gpus[g].compute);
            SPIPE_CHECK(SPIPE_LAUNCH(backward, spipe_blocks(job.per_layer, 256), 256, 0,
                                     job.gpus[g].compute, job.gpus[g].gradients + first,
                                     job.per_layer, first, g, job.steps));
            if (g == 0) mark(m, 0, job.gpus[g].compute);
        }
        if (!(what & REDUCE) || (end - begun < bucket && end < all)) continue;
        reduce(begun, end, m);
        begun = end;
        ++calls;
    }
    return calls;
}

/* Milliseconds from the first kernel to the last GPU's end. */
static double step_ms(size_t bucket, int what, int *calls, marks_t *m) {
    for (int g = 0; g < job.num_gpus; ++g) {
        SPIPE_CHECK(cudaSetDevice(g));
        SPIPE_CHECK(cudaDeviceSynchronize());
    }
    const double start = ex_now_ms();
    const int n = issue(bucket, what, m);
    for (int g = 0; g < job.num_gpus; ++g) {
        SPIPE_CHECK(cudaSetDevice(g));
        SPIPE_CHECK(cudaStreamSynchronize(job.gpus[g].compute));
        SPIPE_CHECK(cudaStreamSynchronize(job.gpus[g].comm));
    }
    if (calls) *calls = n;
    return ex_now_ms() - start;
}

static double best_ms(size_t bucket, int what, int *calls) {
    double best = 0;
    for (int k = 0; k < (EX_HOSTCUDA ? 1 : 7); ++k) {
        const double ms = step_ms(bucket, what, calls, NULL);
        if (k == 0 || ms < best) best = ms;
    }
    return best;
}

/* Every GPU has the sum over all of them, to rounding: the order of adding is NCCL's own. */
static int is_right(void) {
    const size_t all = job.per_layer * (size_t)job.layers;
    std::vector<float> there(all);
    for (int g = 0; g < job.num_gpus; ++g) {
        SPIPE_CHECK(cudaSetDevice(g));
        SPIPE_CHECK(cudaMemcpy(there.data(), job.gpus[g].gradients, all * sizeof(float),
                               cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < all; i += 1 + i % 997) {
            double sum = 0.0, off;
            for (int r = 0; r < job.num_gpus; ++r) sum += backward_cpu(i, r, job.steps);
            off = (double)there[i] - sum;
            if ((off < 0 ? -off : off) > 1e-6 * job.num_gpus * (sum + 1.0)) return 0;
        }
    }
    return 1;
}

/* Chooses the steps with which all of backward takes `ms`. */
static void calibrate(double ms) {
    double a, b;
#if EX_HOSTCUDA
    (void)ms;
    (void)a;
    (void)b;
    hostcuda_kernel_time(backward, 100e3, 0);
    return;
#else
    job.steps = 64;
    a = best_ms(SIZE_MAX, BACKWARD, NULL);
    job.steps = 1088;
    b = best_ms(SIZE_MAX, BACKWARD, NULL);
    const double steps = (ms - a) / ((b - a) / 1024.0) + 64.0;
    job.steps = steps < 8 ? 8u : (unsigned)std::min(steps, 1e6);
#endif
}

static void write_trace(size_t bucket, const char *path) {
    std::vector<spipe_span_t> spans;
    spipe_timeline_t t = spipe_timeline_t();
    marks_t m;
    SPIPE_CHECK(cudaSetDevice(0));
    SPIPE_CHECK(cudaEventCreate(&m.begin));
    SPIPE_CHECK(cudaEventRecord(m.begin, job.gpus[0].compute));
    t.wall_ms = step_ms(bucket, BACKWARD | REDUCE, NULL, &m);
    SPIPE_CHECK(cudaSetDevice(0));
    for (size_t k = 0; k + 1 < m.at.size(); k += 2) {
        float begin = 0, end = 0;
        spipe_span_t s = spipe_span_t();
        SPIPE_CHECK(cudaEventElapsedTime(&begin, m.begin, m.at[k]));
        SPIPE_CHECK(cudaEventElapsedTime(&end, m.begin, m.at[k + 1]));
        s.kind = SPIPE_SPAN_STAGE;
        s.stage = m.stage[k];
        for (const spipe_span_t &o : spans) s.chunk += o.stage == s.stage;
        s.begin_ms = begin;
        s.end_ms = end;
        spans.push_back(s);
    }
    t.spans = spans.data();
    t.capacity = t.num_spans = spans.size();
    t.num_stages = 2;
    t.stage_names[0] = "backward";
    t.stage_names[1] = "all-reduce";
    t.modelled = EX_HOSTCUDA;
    SPIPE_CHECK(spipe_timeline_write_trace(&t, path));
    for (cudaEvent_t e : m.at) SPIPE_CHECK(cudaEventDestroy(e));
    SPIPE_CHECK(cudaEventDestroy(m.begin));
    printf("%s has the first GPU's timeline\n", path);
}

static void create(void) {
    int devices[MAX_GPUS];
    ncclComm_t comms[MAX_GPUS];
    for (int g = 0; g < job.num_gpus; ++g) devices[g] = g;
    NCCL_CHECK(ncclCommInitAll(comms, job.num_gpus, devices));
    for (int g = 0; g < job.num_gpus; ++g) {
        gpu_t *gpu = &job.gpus[g];
        gpu->nccl = comms[g];
        SPIPE_CHECK(cudaSetDevice(g));
        SPIPE_CHECK(spipe_stream_create(&gpu->compute, SPIPE_PRIORITY_LOW));
        SPIPE_CHECK(spipe_stream_create(&gpu->comm, SPIPE_PRIORITY_HIGH));
        SPIPE_CHECK(spipe_event_create(&gpu->ready));
        SPIPE_CHECK(cudaMalloc((void **)&gpu->gradients,
                               job.per_layer * (size_t)job.layers * sizeof(float)));
    }
}

static void destroy(void) {
    for (int g = 0; g < job.num_gpus; ++g) {
        gpu_t *gpu = &job.gpus[g];
        SPIPE_CHECK(cudaSetDevice(g));
        NCCL_CHECK(ncclCommDestroy(gpu->nccl));
        SPIPE_CHECK(cudaFree(gpu->gradients));
        SPIPE_CHECK(cudaEventDestroy(gpu->ready));
        SPIPE_CHECK(cudaStreamDestroy(gpu->comm));
        SPIPE_CHECK(cudaStreamDestroy(gpu->compute));
    }
}

static int compare(double mb, double backward_ms) {
    const double tries[] = {1, 5, 10, 25, 50, 100, 400};
    const size_t all = job.per_layer * (size_t)job.layers;
    int right = 1, calls = 0;
    (void)step_ms(SIZE_MAX, BACKWARD | REDUCE, NULL, NULL); /* NCCL sets up on first use */
    const double comm = best_ms(SIZE_MAX, REDUCE, NULL);
    calibrate(backward_ms > 0 ? backward_ms : 2.0 * comm); /* as of a model on NVLink */
    const double back = best_ms(SIZE_MAX, BACKWARD, NULL);
    const double naive = best_ms(SIZE_MAX, BACKWARD | REDUCE, NULL);
    right &= is_right();
    printf("%d GPUs, %d layers, %.1f MB of gradients\n", job.num_gpus, job.layers,
           (double)all * 4e-6);
    printf("backward alone %.3f ms, all-reduce alone %.3f ms, one after the other %.3f ms\n", back,
           comm, naive);
    printf("    bucket  calls        ms   speedup   communication hidden\n");
    const double unit = EX_HOSTCUDA ? 1.0 / 64 : 1.0; /* the model is small */
    for (int k = -1; k < (int)(sizeof tries / sizeof *tries); ++k) {
        const double size = k < 0 ? mb : tries[k] * unit;
        const double ms = best_ms((size_t)(size * 1e6 / 4), BACKWARD | REDUCE, &calls);
        right &= is_right();
        printf("%7.2f MB %6d %9.3f %8.2f x %10.0f %%%s\n", size, calls, ms, naive / ms,
               100.0 * (naive - ms) / (naive - back), k < 0 ? "   as asked" : "");
    }
    return right;
}

int main(int argc, char **argv) {
    double mb = EX_HOSTCUDA ? 25.0 / 64 : 25.0, backward_ms = 0;
    const char *trace = NULL;
    job.layers = 24;
    job.per_layer = EX_HOSTCUDA ? 65536 - 3 : (size_t)4 << 20; /* 16 MiB a layer */
    job.steps = 8;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--mb"))
            mb = atof(argv[i + 1]);
        else if (!strcmp(argv[i], "--layers"))
            job.layers = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--backward"))
            backward_ms = atof(argv[i + 1]);
        else if (!strcmp(argv[i], "--trace"))
            trace = argv[i + 1];
        else
            argc = 0;
    }
    if (argc % 2 == 0 || mb <= 0 || job.layers < 1 || job.layers > MAX_LAYERS) {
        fprintf(stderr, "usage: ddp_buckets [--mb 25] [--layers 24] [--backward ms] "
                        "[--trace file.json]\n");
        return 2;
    }
#if EX_HOSTCUDA
    SPIPE_CHECK(hostcuda_set_devices(2));
#endif
    ex_begin();
    SPIPE_CHECK(cudaGetDeviceCount(&job.num_gpus));
    if (job.num_gpus < 2) {
        fprintf(stderr, "needs 2 GPUs or more, there is %d\n", job.num_gpus);
        return 77;
    }
    if (job.num_gpus > MAX_GPUS) job.num_gpus = MAX_GPUS;
    (void)setenv("NCCL_MAX_CTAS", "8", 0); /* before NCCL begins; 0: what the user set stays */
    (void)setenv("NCCL_MIN_CTAS", "1", 0);
    create();
    const int right = compare(mb, backward_ms);
    if (trace) write_trace((size_t)(mb * 1e6 / 4), trace);
    destroy();
    SPIPE_CHECK(cudaSetDevice(0));
    return ex_verdict(right);
}
#endif
