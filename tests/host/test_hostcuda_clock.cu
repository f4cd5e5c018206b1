/*  test_hostcuda_clock.cu -- the modelled clock: closed forms, profiles, traces, and that
    programs which poll come to an end. No figure here is measured; all are modelled. */
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "hostcuda.h"
#include "tap.h"

static __global__ void stage(char *p) { (void)p; }

static const double CHUNK_NS =
    1000.0; /* on the ideal profiles a chunk of 10,000 bytes copies in this */
static const size_t CHUNK = 10000;

static bool near(double a, double b) { return std::fabs(a - b) < 1e-3; }

static void use(const char *name) {
    const hostcuda_profile_t p = hostcuda_profile(name);
    if (hostcuda_set_profile(0, &p) != cudaSuccess) printf("# profile %s was not set\n", name);
    hostcuda_kernel_time(stage, CHUNK_NS, 0.0);
    hostcuda_clock_reset();
}

struct bench_t {
    int chunks;
    char *host, *dev;
    std::vector<cudaStream_t> streams;
    cudaEvent_t start, stop;

    explicit bench_t(int n)
        : chunks(n), host(), dev(), streams(static_cast<size_t>(n)), start(), stop() {
        cudaMallocHost(&host, CHUNK * static_cast<size_t>(n));
        cudaMalloc(&dev, CHUNK * static_cast<size_t>(n));
        for (cudaStream_t &s : streams) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
        cudaEventCreate(&start);
        cudaEventCreate(&stop);
        hostcuda_clock_reset();
    }

    ~bench_t() {
        for (cudaStream_t s : streams) cudaStreamDestroy(s);
        cudaEventDestroy(start);
        cudaEventDestroy(stop);
        cudaFree(dev);
        cudaFreeHost(host);
    }

    bench_t(const bench_t &) = delete;
    bench_t &operator=(const bench_t &) = delete;

    size_t at(int i) const { return CHUNK * static_cast<size_t>(i); }

    void in(int i, cudaStream_t s) {
        cudaMemcpyAsync(dev + at(i), host + at(i), CHUNK, cudaMemcpyHostToDevice, s);
    }

    void kernel(int i, cudaStream_t s, unsigned blocks = 1) {
        cudaLaunchConfig_t c = {};
        c.gridDim = dim3(blocks);
        c.blockDim = dim3(1);
        c.stream = s;
        cudaLaunchKernelEx(&c, stage, dev + at(i));
    }

    void out(int i, cudaStream_t s) {
        cudaMemcpyAsync(host + at(i), dev + at(i), CHUNK, cudaMemcpyDeviceToHost, s);
    }

    cudaStream_t stream(int i) const { return streams[static_cast<size_t>(i)]; }

    double wait() {
        cudaDeviceSynchronize();
        return hostcuda_now_ns();
    }

    double depth_first() {
        hostcuda_clock_reset();
        for (int i = 0; i < chunks; i++) {
            in(i, stream(i));
            kernel(i, stream(i));
            out(i, stream(i));
        }
        return wait();
    }

    double breadth_first() {
        hostcuda_clock_reset();
        for (int i = 0; i < chunks; i++) in(i, stream(i));
        for (int i = 0; i < chunks; i++) kernel(i, stream(i));
        for (int i = 0; i < chunks; i++) out(i, stream(i));
        return wait();
    }

    double serial() {
        hostcuda_clock_reset();
        for (int i = 0; i < chunks; i++) {
            in(i, stream(0));
            kernel(i, stream(0));
            out(i, stream(0));
        }
        return wait();
    }

    double engines() { /* a stream for each stage, joined by events */
        std::vector<cudaEvent_t> e(static_cast<size_t>(2 * chunks));
        for (cudaEvent_t &x : e) cudaEventCreateWithFlags(&x, cudaEventDisableTiming);
        hostcuda_clock_reset();
        for (int i = 0; i < chunks; i++) {
            const size_t k = static_cast<size_t>(2 * i);
            in(i, stream(0));
            cudaEventRecord(e[k], stream(0));
            cudaStreamWaitEvent(stream(1), e[k], 0);
            kernel(i, stream(1));
            cudaEventRecord(e[k + 1], stream(1));
            cudaStreamWaitEvent(stream(2), e[k + 1], 0);
            out(i, stream(2));
        }
        const double t = wait();
        for (cudaEvent_t x : e) cudaEventDestroy(x);
        return t;
    }
};

static void test_closed_forms() {
    use("ideal");
    for (int n : {4, 16, 64}) {
        bench_t b(n);
        const double serial = b.serial(), bound = (n + 2) / (3.0 * n);
        tap_ok(near(serial, 3 * n * CHUNK_NS), "%d chunks, serial: the sum of all stages", n);
        tap_ok(near(b.engines() / serial, bound),
               "%d chunks on three streams with events: (N+2)/(3N)", n);
        if (n <= 32)
            tap_ok(near(b.depth_first() / serial, bound), "%d chunks depth-first: (N+2)/(3N)", n);
    }
    use("ideal1");
    bench_t b(8);
    const double serial = b.serial();
    tap_ok(near(b.depth_first(), serial), "one engine, one queue: depth-first gains nothing");
    tap_ok(b.breadth_first() < 0.75 * serial, "one engine, one queue: breadth-first gains");
}

static void test_sharing() {
    use("ideal");
    bench_t b(2);
    b.kernel(0, b.stream(0));
    b.kernel(1, b.stream(1));
    tap_ok(near(b.wait(), CHUNK_NS), "small kernels on two streams run side by side");
    hostcuda_clock_reset();
    hostcuda_profile_t p = hostcuda_profile("ideal");
    const unsigned full = static_cast<unsigned>(p.sm_count * p.threads_per_sm);
    b.kernel(0, b.stream(0), full);
    b.kernel(1, b.stream(1), full);
    tap_ok(near(b.wait(), 2 * CHUNK_NS), "full kernels on two streams run one after another");
    hostcuda_clock_reset();
    b.kernel(0, b.stream(0), full / 4 * 3);
    b.kernel(1, b.stream(1), full / 2);
    tap_ok(near(b.wait(), 1.5 * CHUNK_NS), "a kernel moves in as shares come free");
    p.both_ways = 0.5;
    hostcuda_set_profile(0, &p);
    hostcuda_clock_reset();
    b.in(0, b.stream(0));
    b.out(1, b.stream(1));
    tap_ok(near(b.wait(), 2 * CHUNK_NS),
           "copies both ways slow each other by the profile's factor");
}

static void test_priority() {
    use("ideal");
    bench_t b(2);
    cudaStream_t urgent;
    cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, -5);
    const hostcuda_profile_t p = hostcuda_profile("ideal");
    const unsigned full = static_cast<unsigned>(p.sm_count * p.threads_per_sm);
    hostcuda_trace_start();
    b.kernel(0, b.stream(0), full);
    b.kernel(0, b.stream(1), full);
    b.kernel(1, urgent, full);
    b.wait();
    hostcuda_op_t ops[8];
    const size_t n = hostcuda_trace(ops, 8);
    tap_ok(n == 3 && near(ops[2].end_ns, CHUNK_NS), "an urgent kernel goes first");
    cudaStreamDestroy(urgent);
}

static void test_late_signal() {
    hostcuda_profile_t p = hostcuda_profile("ideal");
    p.queues = 1;
    hostcuda_set_profile(0, &p);
    bench_t b(3);
    const double prompt = b.breadth_first();
    p.late_signal = 1;
    hostcuda_set_profile(0, &p);
    const double late = b.breadth_first(), deep = b.depth_first();
    tap_ok(near(prompt, 5 * CHUNK_NS),
           "prompt signals: breadth-first on two engines is (N+2) stages");
    tap_ok(near(late, 7 * CHUNK_NS),
           "late signal: downloads wait for the last of the kernels in a row");
    tap_ok(near(deep, 5 * CHUNK_NS), "late signal: depth-first is not touched");
}

static void test_trace() {
    use("ideal");
    bench_t b(1);
    hostcuda_kernel_name(stage, "stage");
    hostcuda_trace_start();
    b.serial();
    hostcuda_op_t ops[4];
    const size_t n = hostcuda_trace(ops, 4);
    tap_ok(n == 3 && ops[0].kind == HOSTCUDA_H2D && ops[1].kind == HOSTCUDA_KERNEL &&
               ops[2].kind == HOSTCUDA_D2H,
           "the trace lists the operations in issue order");
    tap_ok(n == 3 && near(ops[1].start_ns, 1000) && near(ops[1].end_ns, 2000), "with exact times");
    tap_ok(n == 3 && strcmp(ops[1].label, "stage") == 0 && ops[0].bytes == CHUNK &&
               ops[2].engine == HOSTCUDA_COPY1,
           "with label, bytes and engine");
}

static void test_host() {
    use("ideal");
    bench_t b(1);
    float ms = 0;
    cudaEventRecord(b.start, b.stream(0));
    hostcuda_host_work(5000);
    b.in(0, b.stream(0));
    cudaEventRecord(b.stop, b.stream(0));
    tap_ok(cudaEventElapsedTime(&ms, b.start, b.stop) == cudaErrorNotReady,
           "elapsed time of a pending event is not ready");
    cudaEventSynchronize(b.stop);
    tap_ok(cudaEventElapsedTime(&ms, b.start, b.stop) == cudaSuccess && near(ms * 1e6, 6000),
           "an operation starts no earlier than it was issued, and event times are modelled");
    hostcuda_clock_reset();
    cudaLaunchHostFunc(
        b.stream(0), [](void *) { hostcuda_host_work(7000); }, nullptr);
    b.in(0, b.stream(0));
    tap_ok(near(b.wait(), 8000), "work inside a host function lengthens it");
    for (const char *name : {"ideal", "h200", "c2050"}) {
        use(name);
        b.in(0, b.stream(0));
        int polls = 0;
        while (cudaStreamQuery(b.stream(0)) == cudaErrorNotReady) polls++;
        tap_ok(polls > 0, "%s: polling comes to an end, after %d polls", name, polls);
    }
    (void)cudaGetLastError();
    const double before = hostcuda_now_ns();
    std::vector<char> pageable(1 << 20);
    char *d;
    cudaMalloc(&d, pageable.size());
    const double t0 = hostcuda_now_ns();
    cudaMemcpyAsync(d, pageable.data(), pageable.size(), cudaMemcpyHostToDevice, b.stream(0));
    const double pageable_ns = hostcuda_now_ns() - t0;
    cudaStreamSynchronize(b.stream(0));
    const hostcuda_profile_t p = hostcuda_get_profile(0);
    tap_ok(pageable_ns > static_cast<double>(pageable.size()) / p.pageable_h2d && t0 > before,
           "an \"asynchronous\" copy from pageable memory keeps the host");
    cudaFree(d);
}

static void test_repeat() {
    use("h200");
    bench_t b(8);
    const double first = b.depth_first(), second = b.depth_first();
    tap_ok(first > 0 && near(first, second), "the same calls take the same modelled time");
    for (const char *name : {"c1060", "c2050", "k20c", "h200", "gh200", "gb10", "ideal", "ideal1"})
        tap_ok(strcmp(hostcuda_profile(name).name, name) == 0, "profile %s exists", name);
    tap_ok(hostcuda_profile("none").name[0] == 0, "an unknown profile is told");
}

static void test_graph() {
    use("ideal");
    bench_t b(4);
    cudaGraph_t g;
    cudaGraphExec_t exec;
    cudaStreamBeginCapture(b.stream(0), cudaStreamCaptureModeThreadLocal);
    cudaEventRecord(b.start, b.stream(0));
    for (int i = 1; i < 4; i++) cudaStreamWaitEvent(b.stream(i), b.start, 0);
    for (int i = 0; i < 4; i++) {
        b.in(i, b.stream(i));
        b.kernel(i, b.stream(i));
        b.out(i, b.stream(i));
    }
    std::vector<cudaEvent_t> e(3);
    for (int i = 1; i < 4; i++) {
        cudaEvent_t &x = e[static_cast<size_t>(i - 1)];
        cudaEventCreateWithFlags(&x, cudaEventDisableTiming);
        cudaEventRecord(x, b.stream(i));
        cudaStreamWaitEvent(b.stream(0), x, 0);
    }
    tap_ok(cudaStreamEndCapture(b.stream(0), &g) == cudaSuccess,
           "a forked and joined capture ends well");
    cudaGraphInstantiate(&exec, g, 0);
    hostcuda_clock_reset();
    cudaGraphLaunch(exec, b.stream(0));
    tap_ok(near(b.wait(), 6 * CHUNK_NS), "a graph's branches overlap on the modelled clock");
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(g);
    for (cudaEvent_t x : e) cudaEventDestroy(x);
}

static void test_streams_gone() {
    bench_t b(1);
    cudaStream_t gone;
    cudaStreamCreateWithFlags(&gone, cudaStreamNonBlocking);
    hostcuda_clock_reset();
    b.kernel(0, gone);
    cudaEventRecord(b.stop, gone);
    cudaStreamDestroy(gone);
    /* long enough for the stream's thread to end: its work was then forgotten */
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    cudaDeviceSynchronize();
    tap_ok(cudaEventQuery(b.stop) == cudaSuccess && near(hostcuda_now_ns(), CHUNK_NS),
           "waiting for the device waits for streams that were destroyed, too");
    cudaStreamCreate(&gone); /* a blocking one */
    hostcuda_clock_reset();
    b.kernel(0, gone);
    cudaStreamDestroy(gone);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    b.kernel(0, nullptr);
    cudaStreamSynchronize(nullptr);
    tap_ok(near(hostcuda_now_ns(), 2 * CHUNK_NS), "and so does the legacy stream");
}

int main() {
    test_closed_forms();
    test_sharing();
    test_priority();
    test_late_signal();
    test_trace();
    test_host();
    test_repeat();
    test_graph();
    test_streams_gone();
    tap_ok(hostcuda_leaks(stderr) == 0, "all is released");
    return tap_done();
}
