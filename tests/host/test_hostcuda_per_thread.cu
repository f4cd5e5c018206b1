/*  test_hostcuda_per_thread.cu -- stream 0 as each thread's own. The Makefile compiles this file
    with CUDA_API_PER_THREAD_DEFAULT_STREAM, as --default-stream per-thread does. */
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "hostcuda.h"
#include "tap.h"

static const size_t BYTES = 4096;

static __global__ void set(char *p, char v) { *p = v; }

/* Holds a stream until opened. */
struct gate_t {
    std::atomic<bool> open;

    gate_t() : open(false) {}

    static void wait(void *self) {
        while (!static_cast<gate_t *>(self)->open.load()) std::this_thread::yield();
    }
};

static cudaError_t launch(char *p, char v, cudaStream_t s) {
    cudaLaunchConfig_t c = {};
    c.gridDim = c.blockDim = dim3(1);
    c.stream = s;
    return cudaLaunchKernelEx(&c, set, p, v);
}

static unsigned long long id_of(cudaStream_t s) {
    unsigned long long id = 0;
    cudaStreamGetId(s, &id);
    return id;
}

static void test_names() {
    unsigned long long other = 0;
    tap_ok(id_of(nullptr) == id_of(cudaStreamPerThread), "stream 0 is the thread's own");
    tap_ok(id_of(nullptr) != id_of(cudaStreamLegacy), "and not the legacy stream");
    std::thread([&] { other = id_of(nullptr); }).join();
    tap_ok(other != id_of(nullptr), "each thread has another");
    hostcuda_calls_reset();
    char *p;
    cudaMalloc(&p, BYTES);
    cudaMemset(p, 0, BYTES);
    tap_ok(hostcuda_calls("cudaMemset") == 1, "calls are counted by their names");
    cudaFree(p);
}

/* Each kind of call goes to stream 0 while another thread's stream 0 is held. */
static void test_apart() {
    gate_t gate, queued;
    char *p, *host;
    cudaMalloc(&p, BYTES);
    cudaMallocHost(&host, BYTES);
    std::thread held([&] {
        cudaLaunchHostFunc(nullptr, gate_t::wait, &gate);
        cudaMemsetAsync(p, 1, BYTES);
        queued.open = true;
        cudaStreamSynchronize(nullptr);
    });
    gate_t::wait(&queued);
    cudaEvent_t e;
    cudaEventCreate(&e);
    launch(host, 3, nullptr);
    cudaEventRecord(e);
    tap_ok(cudaEventSynchronize(e) == cudaSuccess && host[0] == 3,
           "a launch without a stream, and an event, wait for no other thread");
    cudaMemcpy(host + 1, host, 1, cudaMemcpyHostToHost);
    tap_ok(host[1] == 3, "nor does cudaMemcpy");
    cudaMemset(host + 2, 4, 1);
    cudaStreamSynchronize(nullptr);
    tap_ok(host[2] == 4, "nor cudaMemset");
    tap_ok(cudaStreamQuery(cudaStreamPerThread) == cudaSuccess, "and all of it is done");
    gate.open = true;
    held.join();
    cudaMemcpy(host, p, BYTES, cudaMemcpyDeviceToHost);
    tap_ok(host[9] == 1, "the other thread's work was done in its turn");
    cudaEventDestroy(e);
    cudaFree(p);
    cudaFreeHost(host);
}

static void test_legacy() {
    gate_t gate;
    char *host;
    cudaMallocHost(&host, BYTES);
    host[0] = 0;
    cudaLaunchHostFunc(cudaStreamLegacy, gate_t::wait, &gate);
    launch(host, 5, nullptr);
    tap_ok(cudaStreamQuery(nullptr) == cudaErrorNotReady && host[0] == 0,
           "the thread's stream waits for the legacy stream");
    gate.open = true;
    cudaDeviceSynchronize();
    tap_ok(host[0] == 5, "until it is done");
    cudaFreeHost(host);
}

static void test_capture() {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    char *host;
    cudaMallocHost(&host, BYTES);
    host[0] = 0;
    tap_ok(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) == cudaSuccess,
           "stream 0 can be captured, as a stream of one's own can");
    launch(host, 6, nullptr);
    cudaStreamEndCapture(nullptr, &graph);
    cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphLaunch(exec, nullptr);
    cudaStreamSynchronize(nullptr);
    tap_ok(host[0] == 6, "and a graph be launched into it");
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaFreeHost(host);
}

static void test_many_threads() {
    std::vector<std::thread> threads;
    std::atomic<int> wrong(0);
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&wrong, t] {
            char *p = nullptr, back = 0;
            cudaMallocAsync(&p, BYTES, nullptr);
            for (int i = 0; i < 20; i++) launch(p, static_cast<char>(10 * t + i % 5), nullptr);
            cudaMemcpyAsync(&back, p, 1, cudaMemcpyDeviceToHost);
            wrong += back != 10 * t + 4;
            cudaFreeAsync(p, nullptr);
            cudaStreamSynchronize(nullptr);
        });
    for (std::thread &t : threads) t.join();
    tap_ok(wrong == 0, "threads do their work side by side, each in order");
}

int main() {
    test_names();
    test_apart();
    test_legacy();
    test_capture();
    test_many_threads();
    return tap_done();
}
