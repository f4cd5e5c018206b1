/*  ddp_train.cu -- a small network trained on two GPUs, gradients summed in buckets while backward
    runs.

    make build/cuda/examples/systems/ddp_train BACKEND=cuda        (NCCL_HOME=... if need be)

    What it is  each GPU has all parameters and half of each batch. Backward makes gradients from
                the last layer to the first; when those of a bucket's layers are there, NCCL adds
                them up over the GPUs on a stream of its own, while backward goes on. Then each
                GPU makes the same step. The loss falls, and the parameters equal those of one GPU
                that does the same sums, to the bit: a sum of two does not depend on their order.
    With, and   if the reduction comes after backward, all of the communication is added to the
    without     step. In buckets, only the last bucket's is; backward hides the rest. One bucket for
                all is the first case again; a bucket per layer starts soonest, with more calls.
    Mind        one process and one thread issue for both GPUs here. PyTorch's DDP has a process for
                each GPU, because Python runs one thread at a time, and that thread issues; the
                calls to NCCL are the same. Its buckets have 25 MB; those here suit a small model.
    On a GPU    two H100s take 8.2 ms a step, one 16.0; buckets gain 1 % only, since NVLink adds up
                all gradients in the time of a hundredth of a step (2026-11-25, CUDA 13.0). Where
                sums take longer, see ddp_buckets: 1.38 times as fast on the same machine.
    Expect      (hostcuda)
                6 layers of 96 x 96, 41 steps of 32 samples
                one GPU                          0.378 ms a step          loss 0.5826 -> 0.0058
                two GPUs, sums after backward    0.253 ms a step   1.00 x loss 0.5826 -> 0.0058
                two GPUs, buckets of 3 layers    0.230 ms a step   1.10 x loss 0.5826 -> 0.0058
                two GPUs, buckets of 2 layers    0.223 ms a step   1.13 x loss 0.5826 -> 0.0058
                two GPUs, buckets of 1 layer     0.232 ms a step   1.09 x loss 0.5826 -> 0.0058
                right: the CPU finds the same                                                     */
#include "../ex_common.h"

#include <math.h>

#if !defined(__has_include) || !__has_include(<nccl.h>)
int main(void) {
    fprintf(stderr, "built without NCCL: pip install nvidia-nccl-cu13, or make NCCL_HOME=FOLDER, "
                    "which has include and lib; then make this again\n");
    return 77;
}
#else
#include <nccl.h>
#include <vector>

#define NCCL_CHECK(call)                                                                           \
    do {                                                                                           \
        const ncclResult_t nccl_r_ = (call);                                                       \
        if (nccl_r_ != ncclSuccess) {                                                              \
            fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, (int)nccl_r_);           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum {
    GPUS = 2,
    LAYERS = EX_HOSTCUDA ? 6 : 12,
    WIDTH = EX_HOSTCUDA ? 96 : 1024,
    SAMPLES = EX_HOSTCUDA ? 16 : 128, /* per GPU */
    LAYER = WIDTH * WIDTH + WIDTH,    /* parameters: weights, then biases */
    ALL = LAYERS * LAYER,
    STEPS = 41,
    BATCHES = 4,             /* repeated in turn */
    VALUES = SAMPLES * WIDTH /* numbers that a layer makes on one GPU */
};

/* Where layer l begins: the last layer is first, as backward makes the gradients. */
static size_t at(int l) { return (size_t)(LAYERS - 1 - l) * LAYER; }

static const float RATE = 1.92f / WIDTH; /* wider layers add up more */

typedef struct gpu {
    int device;
    cudaStream_t compute, comm;
    cudaEvent_t ready, summed;
    float *parameters, *gradients[2]; /* [1]: if one GPU does both halves */
    float *values[LAYERS + 1];        /* inputs, and what each layer makes of them */
    float *deltas[2], *data, *targets, *errors;
    ncclComm_t nccl;
} gpu_t;

/* ---- Kernels: a thread for each number that is made ------------------------------------------ */

static __global__ void forward(float *out, const float *in, const float *p, int linear) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= VALUES) return;
    const float *x = in + i / WIDTH * WIDTH, *w = p + i % WIDTH * WIDTH;
    float sum = p[WIDTH * WIDTH + i % WIDTH];
    for (int k = 0; k < WIDTH; ++k) sum += w[k] * x[k];
    out[i] = linear || sum > 0.0f ? sum : 0.0f;
}

static __global__ void compare(float *delta, float *error, const float *out, const float *want) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= VALUES) return;
    const float off = out[i] - want[i];
    error[i] = off * off;
    delta[i] = off / (float)(GPUS * SAMPLES);
}

static __global__ void gradient(float *g, const float *delta, const float *in) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= LAYER) return;
    const size_t bias = WIDTH * WIDTH, o = i < bias ? i / WIDTH : i - bias, k = i % WIDTH;
    float sum = 0.0f;
    for (int s = 0; s < SAMPLES; ++s)
        sum += delta[s * WIDTH + o] * (i < bias ? in[s * WIDTH + k] : 1.0f);
    g[i] = sum;
}

static __global__ void back(float *before, const float *delta, const float *p, const float *in) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= VALUES) return;
    float sum = 0.0f;
    for (int o = 0; o < WIDTH; ++o) sum += delta[i / WIDTH * WIDTH + o] * p[o * WIDTH + i % WIDTH];
    before[i] = in[i] > 0.0f ? sum : 0.0f;
}

static __global__ void add(float *a, const float *b) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < ALL) a[i] += b[i];
}

static __global__ void learn(float *p, const float *g, float rate) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < ALL) p[i] -= rate * g[i];
}

#define RUN(gpu, kernel, n, ...)                                                                   \
    SPIPE_CHECK(SPIPE_LAUNCH(kernel, spipe_blocks(n, 256), 256, 0, (gpu)->compute, __VA_ARGS__))

/* ---- One step -------------------------------------------------------------------------------- */

static void forward_all(gpu_t *g, size_t first) {
    g->values[0] = g->data + first * VALUES;
    for (int l = 0; l < LAYERS; ++l)
        RUN(g, forward, VALUES, g->values[l + 1], (const float *)g->values[l],
            (const float *)g->parameters + at(l), (int)(l + 1 == LAYERS));
    RUN(g, compare, VALUES, g->deltas[LAYERS % 2], g->errors, (const float *)g->values[LAYERS],
        (const float *)g->targets + first * VALUES);
}

static void backward_layer(gpu_t *g, int l, float *gradients) {
    const float *delta = g->deltas[(l + 1) % 2], *in = g->values[l];
    RUN(g, gradient, LAYER, gradients + at(l), delta, in);
    if (l > 0)
        RUN(g, back, VALUES, g->deltas[l % 2], delta, (const float *)g->parameters + at(l), in);
}

static int bucket_layers, bucket_from; /* per bucket; last layer not summed yet */

/* Sums the bucket of layers l to bucket_from over the GPUs, once they are there. */
static void sum_bucket(gpu_t *gpus, int l) {
    const size_t count = (size_t)(bucket_from - l + 1) * LAYER;
    if (l > 0 && bucket_from - l + 1 < bucket_layers) return;
    for (int k = 0; k < GPUS; ++k) {
        SPIPE_CHECK(cudaSetDevice(k));
        SPIPE_CHECK(cudaEventRecord(gpus[k].ready, gpus[k].compute));
        SPIPE_CHECK(cudaStreamWaitEvent(gpus[k].comm, gpus[k].ready, 0));
    }
    NCCL_CHECK(ncclGroupStart());
    for (int k = 0; k < GPUS; ++k) {
        float *g = gpus[k].gradients[0] + at(bucket_from);
        NCCL_CHECK(ncclAllReduce(g, g, count, ncclFloat, ncclSum, gpus[k].nccl, gpus[k].comm));
    }
    NCCL_CHECK(ncclGroupEnd());
    bucket_from = l - 1;
}

static void step_on_two(gpu_t *gpus, int step) {
    bucket_from = LAYERS - 1;
    for (int k = 0; k < GPUS; ++k) {
        SPIPE_CHECK(cudaSetDevice(k));
        forward_all(&gpus[k], (size_t)step % BATCHES);
    }
    for (int l = LAYERS - 1; l >= 0; --l) {
        for (int k = 0; k < GPUS; ++k) {
            SPIPE_CHECK(cudaSetDevice(k));
            backward_layer(&gpus[k], l, gpus[k].gradients[0]);
        }
        sum_bucket(gpus, l);
    }
    for (int k = 0; k < GPUS; ++k) {
        SPIPE_CHECK(cudaSetDevice(k));
        SPIPE_CHECK(cudaEventRecord(gpus[k].summed, gpus[k].comm));
        SPIPE_CHECK(cudaStreamWaitEvent(gpus[k].compute, gpus[k].summed, 0));
        RUN(&gpus[k], learn, ALL, gpus[k].parameters, (const float *)gpus[k].gradients[0], RATE);
    }
}

/* Both halves one after another: data holds the second half's samples behind the first's. */
static void step_on_one(gpu_t *gpus, int step) {
    gpu_t *g = &gpus[0];
    SPIPE_CHECK(cudaSetDevice(0));
    for (int half = 1; half >= 0; --half) {
        forward_all(g, (size_t)(half * BATCHES + step % BATCHES));
        for (int l = LAYERS - 1; l >= 0; --l) backward_layer(g, l, g->gradients[half]);
    }
    RUN(g, add, ALL, g->gradients[0], (const float *)g->gradients[1]);
    RUN(g, learn, ALL, g->parameters, (const float *)g->gradients[0], RATE);
}

/* ---- Training -------------------------------------------------------------------------------- */

static std::vector<float> data, targets, start; /* both halves; first parameters */

static float uniform(unsigned *state) {
    *state = EX_NEXT(*state);
    return (float)(*state >> 8) / (1 << 23) - 1.0f;
}

/* Samples of four kinds, with noise; the target is one pattern for each kind. */
static void make_data(void) {
    static float kinds[4][2][WIDTH];
    unsigned state = 5;
    data.resize(2 * BATCHES * VALUES);
    targets.resize(data.size());
    start.resize(ALL);
    for (auto &kind : kinds)
        for (auto &pattern : kind)
            for (float &x : pattern) x = uniform(&state);
    for (size_t i = 0; i < data.size(); ++i) {
        const size_t kind = i / WIDTH * 7 % 4, k = i % WIDTH;
        data[i] = kinds[kind][0][k] + 0.3f * uniform(&state);
        targets[i] = kinds[kind][1][k];
    }
    for (float &p : start) p = uniform(&state) * 2.2f / sqrtf((float)WIDTH);
}

static float *on_device(size_t count, const float *from) {
    float *p;
    SPIPE_CHECK(cudaMalloc((void **)&p, count * sizeof *p));
    if (from) SPIPE_CHECK(cudaMemcpy(p, from, count * sizeof *p, cudaMemcpyHostToDevice));
    return p;
}

static void create(gpu_t *gpus) {
    const int devices[GPUS] = {0, 1};
    ncclComm_t comms[GPUS];
    NCCL_CHECK(ncclCommInitAll(comms, GPUS, devices));
    for (int k = GPUS - 1; k >= 0; --k) {
        gpu_t *g = &gpus[k];
        g->device = k;
        g->nccl = comms[k];
        SPIPE_CHECK(cudaSetDevice(k));
        SPIPE_CHECK(spipe_stream_create(&g->compute, SPIPE_PRIORITY_LOW));
        SPIPE_CHECK(spipe_stream_create(&g->comm, SPIPE_PRIORITY_HIGH));
        SPIPE_CHECK(spipe_event_create(&g->ready));
        SPIPE_CHECK(spipe_event_create(&g->summed));
        g->parameters = on_device(ALL, NULL);
        for (float *&p : g->gradients) p = on_device(ALL, NULL);
        for (int l = 1; l <= LAYERS; ++l) g->values[l] = on_device(VALUES, NULL);
        for (float *&p : g->deltas) p = on_device(VALUES, NULL);
        g->errors = on_device(VALUES, NULL);
        g->data = on_device((size_t)(2 - k) * BATCHES * VALUES, data.data() + k * BATCHES * VALUES);
        g->targets =
            on_device((size_t)(2 - k) * BATCHES * VALUES, targets.data() + k * BATCHES * VALUES);
    }
}

static void destroy(gpu_t *gpus) {
    for (int k = 0; k < GPUS; ++k) {
        gpu_t *g = &gpus[k];
        SPIPE_CHECK(cudaSetDevice(k));
        NCCL_CHECK(ncclCommDestroy(g->nccl));
        for (int l = 1; l <= LAYERS; ++l) SPIPE_CHECK(cudaFree(g->values[l]));
        for (float *p : {g->parameters, g->gradients[0], g->gradients[1], g->deltas[0],
                         g->deltas[1], g->errors, g->data, g->targets})
            SPIPE_CHECK(cudaFree(p));
        SPIPE_CHECK(cudaEventDestroy(g->summed));
        SPIPE_CHECK(cudaEventDestroy(g->ready));
        SPIPE_CHECK(cudaStreamDestroy(g->comm));
        SPIPE_CHECK(cudaStreamDestroy(g->compute));
    }
}

static double loss_of(const gpu_t *g) {
    std::vector<float> errors(VALUES);
    double sum = 0.0;
    SPIPE_CHECK(cudaSetDevice(0));
    SPIPE_CHECK(cudaMemcpy(errors.data(), g->errors, VALUES * sizeof(float), cudaMemcpyDefault));
    for (float e : errors) sum += (double)e;
    return sum / VALUES;
}

/* Trains from the start; returns milliseconds a step, and the losses of first and last step. */
static double train(gpu_t *gpus, int layers_a_bucket, double loss[2]) {
    double begin = 0.0;
    bucket_layers = layers_a_bucket;
    for (int k = 0; k < GPUS; ++k) {
        SPIPE_CHECK(cudaSetDevice(k));
        SPIPE_CHECK(
            cudaMemcpy(gpus[k].parameters, start.data(), ALL * sizeof(float), cudaMemcpyDefault));
    }
    for (int step = 0; step < STEPS; ++step) {
        if (layers_a_bucket > 0)
            step_on_two(gpus, step);
        else
            step_on_one(gpus, step);
        if (step == 0 || step == STEPS - 1) {
            for (int k = 0; k < GPUS; ++k) {
                SPIPE_CHECK(cudaSetDevice(k));
                SPIPE_CHECK(cudaDeviceSynchronize());
            }
            if (step > 0) begin = (ex_now_ms() - begin) / (STEPS - 1);
            loss[step > 0] = loss_of(&gpus[0]);
            if (step == 0) begin = ex_now_ms(); /* the first step sets up */
        }
    }
    return begin;
}

/* Returns 1 if both GPUs have these parameters, to the bit. If empty, takes GPU 0's. */
static int same(const gpu_t *gpus, int num, std::vector<float> *want) {
    std::vector<float> got(ALL);
    int right = 1;
    for (int k = 0; k < num; ++k) {
        SPIPE_CHECK(cudaSetDevice(k));
        SPIPE_CHECK(
            cudaMemcpy(got.data(), gpus[k].parameters, ALL * sizeof(float), cudaMemcpyDefault));
        if (want->empty()) *want = got;
        right &= memcmp(got.data(), want->data(), ALL * sizeof(float)) == 0;
    }
    return right;
}

int main(void) {
    gpu_t gpus[GPUS];
    std::vector<float> one_gpus;
    double loss[2], naive = 0.0;
    int have, right;
#if EX_HOSTCUDA /* times as for large layers: gradients take longer than sums */
    SPIPE_CHECK(hostcuda_set_devices(GPUS));
    hostcuda_kernel_time(forward, 5e3, 0);
    hostcuda_kernel_time(gradient, 12e3, 0);
    hostcuda_kernel_time(back, 6e3, 0);
#endif
    ex_begin();
    SPIPE_CHECK(cudaGetDeviceCount(&have));
    if (have < GPUS) {
        fprintf(stderr, "needs %d GPUs, there is %d\n", (int)GPUS, have);
        return 77;
    }
    memset((void *)gpus, 0, sizeof gpus);
    make_data();
    create(gpus);
    printf("%d layers of %d x %d, %d steps of %d samples\n", (int)LAYERS, (int)WIDTH, (int)WIDTH,
           (int)STEPS, (int)(GPUS * SAMPLES));
    const double alone = train(gpus, 0, loss);
    right = same(gpus, 1, &one_gpus);
    printf("%-30s %7.3f ms a step          loss %.4f -> %.4f\n", "one GPU", alone, loss[0],
           loss[1]);
    right &= loss[1] < 0.5 * loss[0];
    for (const int layers : {(int)LAYERS, 3, 2, 1}) {
        char name[64] = "two GPUs, sums after backward";
        if (layers < LAYERS)
            snprintf(name, sizeof name, "two GPUs, buckets of %d layer%s", layers,
                     layers > 1 ? "s" : "");
        const double ms = train(gpus, layers, loss);
        right &= same(gpus, GPUS, &one_gpus);
        if (layers == LAYERS) naive = ms;
        printf("%-30s %7.3f ms a step %6.2f x loss %.4f -> %.4f\n", name, ms, naive / ms, loss[0],
               loss[1]);
        if (EX_HOSTCUDA && layers > 1 && layers < LAYERS) right &= ms < naive;
    }
    destroy(gpus);
    SPIPE_CHECK(cudaSetDevice(0));
    return ex_verdict(right);
}
#endif
