/*  multicopy_sample.cu -- the work of NVIDIA's simpleMultiCopy, by its variants and by streampipe.

    nvcc -O3 -std=c++17 -arch=sm_90 -I. -Itests -Xcompiler -pthread \
         tests/bench/multicopy_sample.cu -o multicopy_sample && ./multicopy_sample --targets

    Ten frames of 16 MiB of ints, pinned in and out; a tiny kernel adds one to each. The variants:
    each frame on one stream after the other; frames taking turns on four streams and four device
    buffers, the next frame's copy in issued before this one's copy out. To streampipe the frames
    are one array. Written anew: only the work is the same. The data are random here and checked,
    and beside the times stand the two limits: the slower of the two directions alone (the
    sample's), and both directions at once.                                                       */
#include "sample_common.h"

enum {
    FRAMES = 10,
    STREAMS = 4,
    REPEATS = 5,
    BLOCK = 512
};

static __global__ void increment_kernel(const int *in, int *out, size_t n, int repeats) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int r = 0; r < repeats; ++r) out[i] = in[i] + 1;
}

static cudaError_t increment(const int *in, int *out, size_t n, cudaStream_t stream) {
    return SPIPE_LAUNCH(increment_kernel, spipe_blocks(n, BLOCK), BLOCK, 0, stream, in, out, n,
                        REPEATS);
}

static cudaError_t increment_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return increment(SPIPE_BUF(c, 0, const int), SPIPE_BUF(c, 1, int), c->count, c->stream);
}

typedef struct work {
    int *in, *out; /* FRAMES frames, pinned */
    int *device_in[STREAMS], *device_out[STREAMS];
    size_t n; /* ints in a frame */
    cudaStream_t streams[STREAMS];
    cudaEvent_t done[STREAMS]; /* this stream's frame has gone out */
} work_t;

static cudaError_t copy_in(const work_t *w, size_t frame, size_t s) {
    return cudaMemcpyAsync(w->device_in[s], w->in + frame * w->n, w->n * sizeof(int),
                           cudaMemcpyHostToDevice, w->streams[s]);
}

static cudaError_t copy_out(const work_t *w, size_t frame, size_t s) {
    return cudaMemcpyAsync(w->out + frame * w->n, w->device_out[s], w->n * sizeof(int),
                           cudaMemcpyDeviceToHost, w->streams[s]);
}

/* The host waits for a stream's last frame before it reuses that stream's buffers. */
static cudaError_t run_frames(const work_t *w, size_t streams) {
    SPIPE_TRY(copy_in(w, 0, 0));
    for (size_t frame = 0; frame < FRAMES; ++frame) {
        const size_t now = frame % streams, next = (frame + 1) % streams;
        SPIPE_TRY(increment(w->device_in[now], w->device_out[now], w->n, w->streams[now]));
        if (frame + 1 < FRAMES) {
            SPIPE_TRY(cudaEventSynchronize(w->done[next]));
            SPIPE_TRY(copy_in(w, frame + 1, next));
        }
        SPIPE_TRY(copy_out(w, frame, now));
        SPIPE_TRY(cudaEventRecord(w->done[now], w->streams[now]));
    }
    for (size_t s = 0; s < streams; ++s) SPIPE_TRY(cudaStreamSynchronize(w->streams[s]));
    return cudaSuccess;
}

/* All frames in, or out, or both at once, with no kernel: the limits. */
static cudaError_t run_copies(const work_t *w, int in, int out) {
    for (size_t frame = 0; frame < FRAMES; ++frame) {
        if (in) SPIPE_TRY(copy_in(w, frame, 0));
        if (out) SPIPE_TRY(copy_out(w, frame, 1));
    }
    SPIPE_TRY(cudaStreamSynchronize(w->streams[0]));
    return cudaStreamSynchronize(w->streams[1]);
}

static double median_ms(const work_t *w, int in, int out, int rounds) {
    std::vector<double> ms;
    for (int r = 0; r < rounds; ++r) {
        const double begin = bench_now_ms();
        SPIPE_CHECK(run_copies(w, in, out));
        ms.push_back(bench_now_ms() - begin);
    }
    return bench_median(ms);
}

static int right(const work_t *w) {
    std::vector<char> wrong(16, 0);
    char *flag = wrong.data();
    bench_parallel(w->n * FRAMES, BENCH_MIB, [=](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) {
            if (w->out[i] != w->in[i] + 1) flag[begin * 16 / (w->n * FRAMES)] = 1;
        }
    });
    return std::count(wrong.begin(), wrong.end(), 0) == 16;
}

static void poison(const work_t *w) {
    bench_parallel(w->n * FRAMES, BENCH_MIB, [=](size_t begin, size_t end) {
        memset(w->out + begin, 0x80, (end - begin) * sizeof(int));
    });
}

static void fill(const work_t *w) {
    bench_parallel(w->n * FRAMES, BENCH_MIB, [=](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) w->in[i] = (int)(1e6f * bench_random_float(i));
    });
}

static cudaError_t create(work_t *w) {
    for (size_t s = 0; s < STREAMS; ++s) {
        SPIPE_TRY(cudaMalloc((void **)&w->device_in[s], w->n * sizeof(int)));
        SPIPE_TRY(cudaMalloc((void **)&w->device_out[s], w->n * sizeof(int)));
        SPIPE_TRY(cudaStreamCreate(&w->streams[s]));
        SPIPE_TRY(cudaEventCreateWithFlags(&w->done[s], cudaEventDisableTiming));
    }
    return cudaSuccess;
}

static void destroy(work_t *w) {
    for (size_t s = 0; s < STREAMS; ++s) {
        (void)cudaFree(w->device_in[s]);
        (void)cudaFree(w->device_out[s]);
        (void)cudaStreamDestroy(w->streams[s]);
        (void)cudaEventDestroy(w->done[s]);
    }
}

static sample_t sample_of(const work_t *w, spipe_pipeline_t *p) {
    sample_t s;
    s.reset = [w] {
        poison(w);
    };
    s.right = [w] {
        return right(w);
    };
    s.variants.push_back({"serial, one stream", [w] { return run_frames(w, 1); }, {}});
    s.variants.push_back({"four streams", [w] { return run_frames(w, STREAMS); }, {}});
    s.variants.push_back(
        {"streampipe, nothing tuned", [p] { return spipe_pipeline_run(p, NULL); }, {}});
    return s;
}

int main(int argc, char **argv) {
    const sample_options_t o = sample_parse(argc, argv);
    const bench_machine_t m = bench_machine_or_skip(o.smoke);
    work_t w = work_t();
    bench_array_t in = bench_array_t(), out = bench_array_t();
    spipe_pipeline_t *p = NULL;
    spipe_desc_t d = spipe_desc_default();
    bench_machine_print(&m, stdout);
    w.n = (o.smoke ? BENCH_MIB / 16 : 16 * BENCH_MIB) / sizeof(int);
    SPIPE_CHECK(bench_array_need(&in, FRAMES * w.n * sizeof(int), 1));
    SPIPE_CHECK(bench_array_need(&out, FRAMES * w.n * sizeof(int), 1));
    w.in = (int *)in.at;
    w.out = (int *)out.at;
    fill(&w);
    SPIPE_CHECK(create(&w));

    d.count = FRAMES * w.n;
    spipe_add_input(&d, w.in, sizeof(int));
    spipe_add_output(&d, w.out, sizeof(int));
    spipe_add_stage(&d, "increment", increment_stage, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));

    sample_t sample = sample_of(&w, p);
    sample_measure(&sample, 3, o.rounds);
    const double ratio = sample_print(&sample, "simpleMultiCopy's work: 10 frames of 16 MiB");
    const double alone = std::max(median_ms(&w, 1, 0, o.rounds), median_ms(&w, 0, 1, o.rounds));
    const double both = median_ms(&w, 1, 1, o.rounds);
    const double own = bench_median(sample.variants.back().ms);
    printf("  streampipe: %.4f ms a frame, %.3f of the one-way limit, %.3f of both ways at once\n",
           own / (double)FRAMES, alone / own, both / own);

    SPIPE_CHECK(spipe_pipeline_destroy(p));
    destroy(&w);
    bench_array_free(&in);
    bench_array_free(&out);
    return sample_verdict(&o, ratio);
}
