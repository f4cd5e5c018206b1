/*  test_hostcuda_host_pages.cu -- GPUs that read host pages by themselves (profiles gh200 and
    gb10): what they say of themselves, how long copies of malloc's memory and of mapped files take,
    and that the h200 is as before. No figure here is measured; all are modelled. */
#ifdef __linux__
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* MAP_ANONYMOUS */
#endif
#include <sys/mman.h>
#include <unistd.h>
#endif
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "hostcuda.h"
#include "tap.h"

static const size_t BYTES = static_cast<size_t>(1) << 20;

static hostcuda_profile_t use(const char *name) {
    const hostcuda_profile_t p = hostcuda_profile(name);
    if (hostcuda_set_profile(0, &p) != cudaSuccess) printf("# profile %s was not set\n", name);
    hostcuda_clock_reset();
    return p;
}

static bool near(double a, double b) { return std::fabs(a - b) < 1.0 + 1e-9 * b; }

/* ---- what the devices say -------------------------------------------------------------------- */

static int attribute(cudaDeviceAttr attr) {
    int value = -1;
    cudaDeviceGetAttribute(&value, attr, 0);
    return value;
}

static void test_attributes() {
    const struct {
        const char *name;
        int reads_pages, integrated;
    } of[] = {{"h200", 0, 0}, {"gh200", 1, 0}, {"gb10", 1, 1}, {"ideal", 0, 0}};

    for (const auto &d : of) {
        use(d.name);
        tap_ok(attribute(cudaDevAttrPageableMemoryAccess) == d.reads_pages &&
                   attribute(cudaDevAttrPageableMemoryAccessUsesHostPageTables) == d.reads_pages &&
                   attribute(cudaDevAttrIntegrated) == d.integrated,
               "%s: reads host pages by itself: %d, is integrated: %d", d.name, d.reads_pages,
               d.integrated);
        cudaDeviceProp prop;
        cudaGetDeviceProperties(&prop, 0);
        tap_ok(prop.pageableMemoryAccess == d.reads_pages &&
                   prop.pageableMemoryAccessUsesHostPageTables == d.reads_pages &&
                   prop.integrated == d.integrated,
               "%s: cudaGetDeviceProperties says the same", d.name);
    }
}

/* ---- how long copies take -------------------------------------------------------------------- */

struct times_t {
    double call_ns, copy_ns; /* of the host, of the engine */
    bool right;
};

/* One asynchronous copy to the device, or back from it. */
static times_t time_copy(char *host, bool in) {
    times_t t = {};
    char *dev = nullptr;
    cudaMalloc(&dev, BYTES);
    cudaMemset(dev, 7, BYTES);
    cudaDeviceSynchronize();
    hostcuda_trace_start();
    const double before = hostcuda_now_ns();
    if (in)
        cudaMemcpyAsync(dev, host, BYTES, cudaMemcpyHostToDevice, nullptr);
    else
        cudaMemcpyAsync(host, dev, BYTES, cudaMemcpyDeviceToHost, nullptr);
    t.call_ns = hostcuda_now_ns() - before;
    cudaDeviceSynchronize();
    hostcuda_op_t op;
    memset(&op, 0, sizeof op);
    hostcuda_trace(&op, 1);
    t.copy_ns = op.end_ns - op.start_ns;
    std::vector<char> back(BYTES);
    cudaMemcpy(back.data(), dev, BYTES, cudaMemcpyDeviceToHost);
    t.right = op.bytes == BYTES && memcmp(back.data(), host, BYTES) == 0;
    cudaFree(dev);
    return t;
}

static double at_rate(const hostcuda_profile_t &p, double bytes, double rate) {
    return p.copy_lost + bytes / rate;
}

static void test_malloc(const char *name) {
    const hostcuda_profile_t p = use(name);
    const double bytes = static_cast<double>(BYTES);
    std::vector<char> host(BYTES, 3);
    const times_t in = time_copy(host.data(), true), out = time_copy(host.data(), false);
    tap_ok(in.right && out.right, "%s: what is copied is right", name);
    tap_ok(near(in.copy_ns, at_rate(p, bytes, p.h2d)),
           "%s: a copy from malloc's memory runs at the link's rate", name);
    tap_ok(near(out.copy_ns, at_rate(p, bytes, p.d2h)), "%s: and so does one to it", name);
    tap_ok(near(in.call_ns, p.call_copy) && near(out.call_ns, p.call_copy),
           "%s: neither keeps the host: each call takes as long as of pinned memory", name);
    char *pinned = nullptr;
    cudaMallocHost(&pinned, BYTES);
    memset(pinned, 5, BYTES);
    tap_ok(near(time_copy(pinned, true).copy_ns, in.copy_ns), "%s: pinned memory is as fast", name);
    cudaFreeHost(pinned);

    char *dev = nullptr;
    cudaMalloc(&dev, BYTES);
    const double before = hostcuda_now_ns();
    cudaMemcpy(dev, host.data(), BYTES, cudaMemcpyHostToDevice);
    tap_ok(hostcuda_now_ns() - before >= bytes / p.h2d, "%s: cudaMemcpy still waits", name);
    cudaFree(dev);
}

/* On GPUs with a staging buffer of CUDA's nothing changes. */
static void test_staged(const char *name, char *host, const char *what) {
    const hostcuda_profile_t p = use(name);
    const double bytes = static_cast<double>(BYTES);
    const times_t t = time_copy(host, true);
    tap_ok(t.right &&
               near(t.copy_ns, std::fmax(p.copy_lost, p.pageable_lost) + bytes / p.pageable_h2d),
           "%s: a copy from %s runs at the rate of pageable memory", name, what);
    tap_ok(t.call_ns >= t.copy_ns, "%s: and keeps the host", name);
}

/* ---- mapped files ---------------------------------------------------------------------------- */

#ifdef __linux__
static const size_t HALF = BYTES / 2;

/* Memory of which the last `bytes` are those of a file; NULL where there can be none. */
static char *map_file(size_t bytes) {
    char path[] = "/tmp/host_pages.XXXXXX";
    const int file = mkstemp(path);
    if (file < 0) return nullptr;
    unlink(path);
    const std::vector<char> contents(bytes, 9);
    const bool written = write(file, contents.data(), bytes) == static_cast<ssize_t>(bytes);
    void *p = MAP_FAILED;
    if (written)
        p = mmap(nullptr, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *const all = static_cast<char *>(p);
    if (p != MAP_FAILED && mmap(all + BYTES - bytes, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED,
                                file, 0) == MAP_FAILED) {
        munmap(p, BYTES);
        p = MAP_FAILED;
    }
    close(file);
    if (p == MAP_FAILED) return nullptr;
    memset(all, 4, BYTES - bytes);
    return all;
}

static void test_file(const char *name, char *file, char *half) {
    const hostcuda_profile_t p = use(name);
    const double bytes = static_cast<double>(BYTES);
    const times_t all = time_copy(file, true);
    tap_ok(all.right && near(all.copy_ns, at_rate(p, bytes, p.file_pages)),
           "%s: a copy from a mapped file runs at %.2f GB/s", name, p.file_pages);
    tap_ok(near(all.call_ns, p.call_copy), "%s: and does not keep the host", name);
    const times_t mixed = time_copy(half, true);
    tap_ok(mixed.right &&
               near(mixed.copy_ns, at_rate(p, bytes / 2, p.file_pages) + bytes / 2 / p.h2d),
           "%s: of a range that is half a file's, that half is slow", name);
    hostcuda_profile_t same = p;
    same.file_pages = 0;
    hostcuda_set_profile(0, &same);
    tap_ok(near(time_copy(file, true).copy_ns, at_rate(p, bytes, p.h2d)),
           "%s: with file_pages = 0 files are as fast as other memory", name);
}

/* Rows of 512 bytes, 1024 apart: as much of a row is the file's as of the range. */
static void test_rows(const char *name, char *file) {
    const hostcuda_profile_t p = use(name);
    char *dev = nullptr;
    cudaMalloc(&dev, HALF);
    hostcuda_trace_start();
    cudaMemcpy2DAsync(dev, 512, file, 1024, 512, BYTES / 1024, cudaMemcpyHostToDevice, nullptr);
    cudaDeviceSynchronize();
    hostcuda_op_t op;
    memset(&op, 0, sizeof op);
    hostcuda_trace(&op, 1);
    tap_ok(near(op.end_ns - op.start_ns, at_rate(p, static_cast<double>(HALF), p.file_pages)),
           "%s: so are rows of a mapped file", name);
    cudaFree(dev);
}

static void test_files() {
    char *const file = map_file(BYTES), *const half = map_file(HALF);
    if (!file || !half) {
        tap_skip("copies from mapped files are slow", "no file in /tmp can be mapped");
        return;
    }
    for (const char *name : {"gh200", "gb10"}) {
        test_file(name, file, half);
        test_rows(name, file);
    }
    test_staged("h200", file, "a mapped file");
    munmap(file, BYTES);
    munmap(half, BYTES);
}
#else
static void test_files() {
    tap_skip("copies from mapped files are slow", "hostcuda asks Linux which pages are of files");
}
#endif

/* ---- kernels --------------------------------------------------------------------------------- */

static __global__ void add_one(int *p) { ++*p; }

static cudaError_t run_on(int *p) {
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3(1);
    c.blockDim = dim3(1);
    cudaLaunchKernelEx(&c, add_one, p);
    return cudaDeviceSynchronize();
}

static void test_kernels() {
    for (const char *name : {"gh200", "gb10"}) {
        use(name);
        std::vector<int> one(1, 41);
        tap_ok(run_on(one.data()) == cudaSuccess && one[0] == 42,
               "%s: a kernel reads and writes malloc's memory", name);
    }
}

int main() {
    test_attributes();
    for (const char *name : {"gh200", "gb10"}) test_malloc(name);
    std::vector<char> host(BYTES, 3);
    test_staged("h200", host.data(), "malloc's memory");
    test_files();
    test_kernels();
    tap_ok(hostcuda_leaks(nullptr) == 0, "all is released");
    return tap_done();
}
