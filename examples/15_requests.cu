/*  15_requests.cu -- many independent requests over a few streams, leased from a pool.

    nvcc -O3 -I.. -o 15_requests 15_requests.cu && ./15_requests    (without a GPU: make examples)
    You learn   a scope branches a stream off yours and joins it again; a pool limits how many there
                are. 32 requests need neither 32 streams nor 32 buffers: requests on one stream run
                one after another and share its buffer.
    Mind        a new stream is ordered after nothing, so it may read data that is not there yet. A
                scope makes both streams wait, by events. Begin all scopes first: a scope that ends
                before the next begins serialises them. There may be any number of streams, but
                those beyond 8 (CUDA_DEVICE_MAX_CONNECTIONS: up to 32) share the GPU's queues.
    Expect      (hostcuda) 32 requests of 32 to 512 KiB
                one stream, first call   0.661 ms
                one stream               0.661 ms
                a fifth lease: SPIPE_ALL_LEASED: all streams of the pool are leased
                4 leased streams         0.316 ms
                right: the CPU finds the same                                                     */
#include "ex_common.h"

#include <math.h>

enum {
    REQUESTS = 32,
    STREAMS = 4,
    LARGEST = 1 << 17,
    STEPS = 16
};

static const float WEIGHT[2] = {0.99f, 0.01f};

typedef struct service {
    float *question, *answer; /* LARGEST floats per request, pinned so that copies do not block */
    float *scratch, *weight;  /* device memory: LARGEST floats per stream; the weights */
} service_t;

static size_t count_of(size_t request) { return LARGEST / 16 * (request * 7 % 16 + 1); }

static __global__ void answer(float *x, const float *weight, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float y = x[i];
    for (int k = 0; k < STEPS; ++k) y = y * weight[0] + weight[1];
    x[i] = y;
}

/* Queues the work of one request on one stream, in the scratch memory of that stream. */
static cudaError_t queue_request(const service_t *s, size_t i, float *scratch, cudaStream_t on) {
    const size_t n = count_of(i), bytes = n * sizeof(float), at = i * LARGEST;
    SPIPE_TRY(cudaMemcpyAsync(scratch, s->question + at, bytes, cudaMemcpyHostToDevice, on));
    SPIPE_TRY(SPIPE_LAUNCH(answer, spipe_blocks(n, 256), 256, 0, on, scratch, s->weight, n));
    return cudaMemcpyAsync(s->answer + at, scratch, bytes, cudaMemcpyDeviceToHost, on);
}

/* Queues all requests: after what is on parent now, before what is queued on it later. */
static cudaError_t serve(const service_t *s, spipe_stream_pool_t *pool, cudaStream_t parent) {
    spipe_scope_t scope[STREAMS];
    cudaStream_t fifth;
    size_t i, k;
    for (k = 0; k < STREAMS; ++k) SPIPE_TRY(spipe_scope_begin(&scope[k], pool, parent));
    for (i = 0; i < REQUESTS; ++i) {
        k = i % STREAMS;
        SPIPE_TRY(queue_request(s, i, s->scratch + k * LARGEST, scope[k].stream));
    }
    const cudaError_t e = spipe_stream_try_acquire(pool, &fifth); /* acquire would wait here */
    for (k = 0; k < STREAMS; ++k) SPIPE_TRY(spipe_scope_end(&scope[k]));
    printf("a fifth lease: %s: %s\n", spipe_error_name(e), spipe_error_string(e));
    return e == SPIPE_ALL_LEASED ? cudaSuccess : cudaErrorUnknown;
}

/* Returns how many numbers of the answers are wrong, and wipes them for the next round. */
static size_t count_wrong(const service_t *s) {
    size_t i, k, wrong = 0;
    for (i = 0; i < REQUESTS * LARGEST; ++i) {
        double y = s->question[i];
        if (i % LARGEST >= count_of(i / LARGEST)) continue;
        for (k = 0; k < STEPS; ++k) y = y * WEIGHT[0] + WEIGHT[1];
        wrong += !(fabs(s->answer[i] - y) < 1e-4);
        s->answer[i] = -1.0f;
    }
    return wrong;
}

int main(void) {
    static const char *names[] = {"one stream, first call", "one stream", "4 leased streams"};
    service_t s;
    spipe_stream_pool_t pool;
    spipe_timer_t timer;
    cudaStream_t stream;
    float ms;
    size_t i, k, wrong = 0;
    ex_begin();
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_stream_pool_create(&pool, STREAMS, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_timer_create(&timer));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&s.question, 2 * REQUESTS * LARGEST * sizeof(float)));
    s.answer = s.question + REQUESTS * LARGEST;
    SPIPE_CHECK(cudaMalloc((void **)&s.scratch, STREAMS * LARGEST * sizeof(float)));
    SPIPE_CHECK(cudaMalloc((void **)&s.weight, sizeof WEIGHT));
    for (i = 0; i < REQUESTS * LARGEST; ++i) s.question[i] = (float)(i % 1000) / 100.0f;
    printf("%d requests of 32 to 512 KiB\n", REQUESTS);
    for (k = 0; k < 3; ++k) {
        SPIPE_CHECK(spipe_timer_start(&timer, stream));
        /* All requests wait for these weights; the next memset waits for all requests. */
        SPIPE_CHECK(cudaMemcpyAsync(s.weight, WEIGHT, sizeof WEIGHT, cudaMemcpyDefault, stream));
        for (i = 0; i < REQUESTS && k < 2; ++i)
            SPIPE_CHECK(queue_request(&s, i, s.scratch, stream));
        if (k == 2) SPIPE_CHECK(serve(&s, &pool, stream));
        SPIPE_CHECK(cudaMemsetAsync(s.weight, 0xFF, sizeof WEIGHT, stream));
        SPIPE_CHECK(spipe_timer_stop(&timer, stream));
        SPIPE_CHECK(spipe_timer_ms(&timer, &ms)); /* the one wait of the host */
        wrong += count_wrong(&s);
        printf("%-22s %7.3f ms\n", names[k], ms);
    }
    SPIPE_CHECK(cudaFree(s.weight));
    SPIPE_CHECK(cudaFree(s.scratch));
    SPIPE_CHECK(spipe_pinned_free(s.question));
    SPIPE_CHECK(spipe_timer_destroy(&timer));
    SPIPE_CHECK(spipe_stream_pool_destroy(&pool));
    SPIPE_CHECK(cudaStreamDestroy(stream));
    return ex_verdict(wrong == 0);
}
