/*  missing_event.cu -- one pipeline step with and without the event that orders it.

    usage: missing_event missing|correct
    A copy stream fills a device buffer, a kernel stream reads it. With `missing` nothing makes the
    kernel wait for the copy. Built against hostcuda with -fsanitize=thread, `missing` must be
    reported and `correct` must be silent.                                                     */
#include <cstdio>
#include <cstring>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const cudaError_t check_error = (call);                                                    \
        if (check_error != cudaSuccess) {                                                          \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorName(check_error));                     \
            return 2;                                                                              \
        }                                                                                          \
    } while (0)

static const int N = 4096;

static __global__ void twice(const int *in, int *out, int n) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) out[i] = 2 * in[i];
}

static cudaError_t launch(const int *in, int *out, cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(N / 256);
    config.blockDim = dim3(256);
    config.stream = stream;
    return cudaLaunchKernelEx(&config, twice, in, out, N);
}

int main(int argc, char **argv) {
    const bool correct = argc == 2 && strcmp(argv[1], "correct") == 0;
    if (!correct && (argc != 2 || strcmp(argv[1], "missing") != 0)) {
        fprintf(stderr, "usage: missing_event missing|correct\n");
        return 2;
    }
    const size_t bytes = static_cast<size_t>(N) * sizeof(int);
    int *host, *in, *out;
    cudaStream_t copies, kernels;
    cudaEvent_t copied, done;
    CHECK(cudaMallocHost(&host, bytes));
    CHECK(cudaMalloc(&in, bytes));
    CHECK(cudaMalloc(&out, bytes));
    CHECK(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&kernels, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    for (int i = 0; i < N; i++) host[i] = i;

    CHECK(cudaMemcpyAsync(in, host, bytes, cudaMemcpyHostToDevice, copies));
    CHECK(cudaEventRecord(copied, copies));
    if (correct) CHECK(cudaStreamWaitEvent(kernels, copied, 0));
    CHECK(launch(in, out, kernels));
    CHECK(cudaEventRecord(done, kernels));
    CHECK(cudaStreamWaitEvent(copies, done, 0));
    CHECK(cudaMemcpyAsync(host, out, bytes, cudaMemcpyDeviceToHost, copies));
    CHECK(cudaStreamSynchronize(copies));

    int wrong = 0;
    for (int i = 0; i < N; i++) wrong += host[i] != 2 * i;
    if (correct) printf("%d wrong\n", wrong);
    CHECK(cudaEventDestroy(copied));
    CHECK(cudaEventDestroy(done));
    CHECK(cudaStreamDestroy(copies));
    CHECK(cudaStreamDestroy(kernels));
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    CHECK(cudaFreeHost(host));
    return correct && wrong != 0;
}
