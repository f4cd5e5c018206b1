/*  stf_pipeline.cu -- bench.cu's balanced work as a user of CUDASTF would pipeline it.

    make bench CCCL_HOME=FOLDER     FOLDER: the sources of NVIDIA/cccl, whose cudax has CUDASTF
    usage: stf_pipeline [--mib N] [--kernel X] [--rounds N] [--sweep-rounds N] [--json FILE]
    A chunk is two logical data, for its part of the input and of the output, and one task, which
    launches the kernel. CUDASTF makes device memory, copies in before the task, and copies out when
    the output's logical data is destroyed. So some chunks are alive at once, and the oldest is
    destroyed before the next is made; how many, and the chunk: the best of a sweep. All runs share
    one stream_ctx, which keeps device memory, and end with a fence; one row makes a context for
    each run. Memory that is not pinned is registered by CUDASTF where a logical data of it is made,
    and unregistered where that is destroyed: in each run.
    Rounds, random order and the lines printed are those of peer_common.py.                      */
#include <cuda/experimental/stf.cuh>

#include "../bench_common.h"

#include <atomic>
#include <deque>
#include <math.h>

namespace stf = cuda::experimental::stf;

typedef struct options {
    size_t mib;
    double kernel;
    int rounds, sweep_rounds;
    const char *json;
} options_t;

static struct work {
    size_t n; /* elements each way */
    unsigned steps;
    bench_array_t pinned_in, pinned_out, pageable_in, pageable_out, reference;
    float *in, *out; /* whole arrays on the device */
    cudaStream_t streams[2];
    cudaEvent_t begin, end;
} work;

/* Milliseconds of each round, and the output that a run must have written; NULL: none. */
typedef struct variant {
    std::string name;
    std::function<void()> run;
    bench_array_t *out;
    std::vector<double> ms;
} variant_t;

typedef struct shape {
    size_t chunk, at_once; /* elements; chunks alive */
} shape_t;

/* bench.cu's. */
static __global__ void busy(const float *in, float *out, size_t n, unsigned steps) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i];
    for (unsigned k = 0; k < steps; k++) x = fmaf(x, 0.9999f, 0.0001f);
    out[i] = x;
}

static void launch(const float *in, float *out, size_t n, cudaStream_t stream) {
    SPIPE_CHECK(SPIPE_LAUNCH(busy, spipe_blocks(n, 256), 256, 0, stream, in, out, n, work.steps));
}

/* ---- The ways ------------------------------------------------------------------------------- */

typedef struct part {
    stf::logical_data<stf::slice<float>> x, y;
} part_t;

/* Returns when everything is queued. */
static void queue_chunks(stf::stream_ctx ctx, float *in, float *out, shape_t shape) {
    std::deque<part_t> alive;
    for (size_t at = 0; at < work.n; at += shape.chunk) {
        const size_t n = std::min(shape.chunk, work.n - at);
        if (alive.size() == shape.at_once) alive.pop_front();
        alive.push_back({ctx.logical_data(stf::make_slice(in + at, n)),
                         ctx.logical_data(stf::make_slice(out + at, n))});
        ctx.task(alive.back().x.read(), alive.back().y.write())
                ->*[](cudaStream_t stream, auto x, auto y) {
                        launch(x.data_handle(), y.data_handle(), x.size(), stream);
                    };
    }
    while (!alive.empty()) alive.pop_front();
}

static variant_t kept(const std::string &name, stf::stream_ctx ctx, bench_array_t *in,
                      bench_array_t *out, shape_t shape) {
    return {name,
            [=] {
                stf::stream_ctx same = ctx;
                queue_chunks(same, (float *)in->at, (float *)out->at, shape);
                SPIPE_CHECK(cudaStreamSynchronize(same.fence()));
            },
            out,
            {}};
}

static variant_t once(const std::string &name, shape_t shape) {
    return {name,
            [=] {
                stf::stream_ctx ctx;
                queue_chunks(ctx, (float *)work.pinned_in.at, (float *)work.pinned_out.at, shape);
                ctx.finalize();
            },
            &work.pinned_out,
            {}};
}

static void copy_both_ways() {
    const size_t bytes = work.n * sizeof(float);
    SPIPE_CHECK(cudaMemcpyAsync(work.in, work.pinned_in.at, bytes, cudaMemcpyHostToDevice,
                                work.streams[0]));
    SPIPE_CHECK(cudaMemcpyAsync(work.pinned_out.at, work.out, bytes, cudaMemcpyDeviceToHost,
                                work.streams[1]));
    for (cudaStream_t s : work.streams) SPIPE_CHECK(cudaStreamSynchronize(s));
}

static void compute_all() {
    launch(work.in, work.out, work.n, work.streams[0]);
    SPIPE_CHECK(cudaStreamSynchronize(work.streams[0]));
}

/* ---- Measuring ------------------------------------------------------------------------------ */

static double event_ms(const std::function<void()> &queue) {
    std::vector<double> all;
    for (int k = 0; k < 3; ++k) {
        float ms = 0;
        SPIPE_CHECK(cudaEventRecord(work.begin, work.streams[0]));
        queue();
        SPIPE_CHECK(cudaEventRecord(work.end, work.streams[0]));
        SPIPE_CHECK(cudaEventSynchronize(work.end));
        SPIPE_CHECK(cudaEventElapsedTime(&ms, work.begin, work.end));
        all.push_back(ms);
    }
    return bench_median(all);
}

static double kernel_ms(double steps) {
    work.steps = (unsigned)(std::max(0.0, steps) + 0.5);
    return event_ms([] { launch(work.in, work.out, work.n, work.streams[0]); });
}

/* Sets the steps so that the whole-array kernel takes `want` ms; says what it does take. */
static double calibrate(double want) {
    const double few = 64, many = 1024;
    (void)kernel_ms(many); /* to the clock that it will have */
    const double at_few = kernel_ms(few), slope = (kernel_ms(many) - at_few) / (many - few);
    double steps = few, ms = at_few;
    for (int k = 0; k < 3 && slope > 0; ++k) {
        steps = std::max(0.0, steps + (want - ms) / slope);
        ms = kernel_ms(steps);
    }
    return ms;
}

static void poison(bench_array_t *a) {
    bench_parallel(a->bytes, BENCH_MIB, [=](size_t begin, size_t end) {
        memset((char *)a->at + begin, 0xFF, end - begin);
    });
}

static int is_right(const bench_array_t *a) {
    std::atomic<int> differ(0);
    const char *is = (const char *)a->at, *must = (const char *)work.reference.at;
    bench_parallel(a->bytes, BENCH_MIB, [=, &differ](size_t begin, size_t end) {
        if (memcmp(is + begin, must + begin, end - begin) != 0) differ = 1;
    });
    return !differ;
}

/* Each once a round, in random order; the first round is not counted. */
static void measure(std::vector<variant_t> *variants, int rounds) {
    static std::mt19937 random(1);
    std::vector<variant_t *> order;
    for (variant_t &v : *variants) order.push_back(&v);
    for (int round = -1; round < rounds; ++round) {
        std::shuffle(order.begin(), order.end(), random);
        for (variant_t *v : order) {
            if (v->out) poison(v->out);
            const double began = bench_now_ms();
            v->run();
            const double ms = bench_now_ms() - began;
            if (v->out && !is_right(v->out)) {
                fprintf(stderr, "wrong output: %s\n", v->name.c_str());
                exit(1);
            }
            if (round >= 0) v->ms.push_back(ms);
        }
    }
}

/* ---- The rows ------------------------------------------------------------------------------- */

static std::string shape_name(shape_t s) {
    return std::to_string(s.at_once) + " at once, " +
           std::to_string(s.chunk * sizeof(float) / BENCH_MIB) + " MiB chunks";
}

static shape_t best_shape(stf::stream_ctx ctx, int rounds) {
    std::vector<variant_t> candidates;
    std::vector<shape_t> shapes;
    for (size_t at_once : {3, 4, 8}) {
        for (size_t mib = 1; mib <= 64; mib *= 2) {
            const shape_t s = {mib * BENCH_MIB / sizeof(float), at_once};
            if (s.chunk >= work.n) continue;
            shapes.push_back(s);
            candidates.push_back(kept(shape_name(s), ctx, &work.pinned_in, &work.pinned_out, s));
        }
    }
    if (shapes.empty()) return {work.n, 1};
    measure(&candidates, rounds);
    size_t best = 0;
    for (size_t k = 1; k < shapes.size(); ++k) {
        if (bench_median(candidates[k].ms) < bench_median(candidates[best].ms)) best = k;
    }
    return shapes[best];
}

static void report(const std::string &title, const std::vector<variant_t> &rows,
                   const options_t *o) {
    std::vector<double> bound;
    for (size_t k = 0; k < rows[0].ms.size(); ++k) {
        bound.push_back(std::max(rows[0].ms[k], rows[1].ms[k]));
    }
    printf("%s: %zu MiB each way, %d rounds\n", title.c_str(), o->mib, o->rounds);
    for (const variant_t &v : rows) {
        const bench_spread_t of = bench_spread(bench_ratio(bound, v.ms));
        printf("  %-34s %9.3f ms   %.3f of the bound [%.3f %.3f]\n", v.name.c_str(),
               bench_median(v.ms), of.median, of.q1, of.q3);
    }
}

static void write_json(const std::string &title, const std::vector<variant_t> &rows,
                       const options_t *o) {
    FILE *f = o->json ? fopen(o->json, "w") : NULL;
    if (!f) return;
    fprintf(f, "{\"peer\": \"%s\", \"mib\": %zu, \"kernel\": %g, \"ms\": {", title.c_str(), o->mib,
            o->kernel);
    for (const variant_t &v : rows) {
        fprintf(f, "%s\"%s\": [", &v == &rows[0] ? "" : ", ", v.name.c_str());
        for (size_t k = 0; k < v.ms.size(); ++k) fprintf(f, "%s%.5f", k ? ", " : "", v.ms[k]);
        fprintf(f, "]");
    }
    fprintf(f, "}}\n");
    (void)fclose(f);
}

/* Arrays, and the steps that make the kernel as long as asked. Returns that, in copies in. */
static double make_work(const options_t *o) {
    const size_t bytes = o->mib * BENCH_MIB;
    work.n = bytes / sizeof(float);
    SPIPE_CHECK(bench_array_need(&work.pinned_in, bytes, 1));
    SPIPE_CHECK(bench_array_need(&work.pinned_out, bytes, 1));
    SPIPE_CHECK(bench_array_need(&work.pageable_in, bytes, 0));
    SPIPE_CHECK(bench_array_need(&work.pageable_out, bytes, 0));
    SPIPE_CHECK(bench_array_need(&work.reference, bytes, 0));
    SPIPE_CHECK(cudaMalloc((void **)&work.in, bytes));
    SPIPE_CHECK(cudaMalloc((void **)&work.out, bytes));
    for (cudaStream_t &s : work.streams) {
        SPIPE_CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    }
    SPIPE_CHECK(cudaEventCreate(&work.begin));
    SPIPE_CHECK(cudaEventCreate(&work.end));
    bench_fill_random((float *)work.pinned_in.at, work.n);
    bench_copy(work.pageable_in.at, work.pinned_in.at, bytes);
    const double copy_ms = event_ms([=] {
        SPIPE_CHECK(cudaMemcpyAsync(work.in, work.pinned_in.at, bytes, cudaMemcpyHostToDevice,
                                    work.streams[0]));
    });
    const double ms = calibrate(o->kernel * copy_ms);
    compute_all();
    SPIPE_CHECK(cudaMemcpy(work.reference.at, work.out, bytes, cudaMemcpyDeviceToHost));
    return ms / copy_ms;
}

/* The reference, on the CPU in places. */
static void check_reference() {
    const float *in = (const float *)work.pinned_in.at, *out = (const float *)work.reference.at;
    for (size_t i = 0; i < work.n; i += work.n / 1024 + 1) {
        float x = in[i];
        for (unsigned k = 0; k < work.steps; ++k) x = fmaf(x, 0.9999f, 0.0001f);
        if (x == out[i]) continue;
        fprintf(stderr, "the reference is wrong at %zu\n", i);
        exit(1);
    }
}

static options_t parse(int argc, char **argv) {
    options_t o = {512, 1.0, 15, 3, NULL};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--mib") == 0) o.mib = (size_t)atoi(argv[i + 1]);
        if (strcmp(argv[i], "--kernel") == 0) o.kernel = atof(argv[i + 1]);
        if (strcmp(argv[i], "--rounds") == 0) o.rounds = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--sweep-rounds") == 0) o.sweep_rounds = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--json") == 0) o.json = argv[i + 1];
    }
    return o;
}

int main(int argc, char **argv) {
    const options_t o = parse(argc, argv);
    const bench_machine_t machine = bench_machine_or_skip(0);
    const double actual = make_work(&o);
    const std::string title = "CUDASTF of CCCL " + std::to_string(CCCL_MAJOR_VERSION) + "." +
                              std::to_string(CCCL_MINOR_VERSION);
    check_reference();
    printf("%s, %s, kernel %.2f x the copy in\n", machine.gpu.name, title.c_str(), actual);
    stf::stream_ctx ctx;
    const shape_t whole = {work.n, 1}, shape = best_shape(ctx, o.sweep_rounds);
    std::vector<variant_t> rows = {
        {"both ways", copy_both_ways, NULL, {}},
        {"kernel", compute_all, NULL, {}},
        kept("pinned serial", ctx, &work.pinned_in, &work.pinned_out, whole),
        kept("pinned " + shape_name(shape), ctx, &work.pinned_in, &work.pinned_out, shape),
        once("pinned, a context each run", shape),
        kept("pageable plain", ctx, &work.pageable_in, &work.pageable_out, whole),
        kept("pageable in chunks", ctx, &work.pageable_in, &work.pageable_out, shape),
    };
    measure(&rows, o.rounds);
    report(title, rows, &o);
    write_json(title, rows, &o);
    ctx.finalize();
    return 0;
}
