/*  test_pinned_limit.cu -- hostcuda's limit of pinned memory, as a container has one: each way
    to pin fails beyond it, and no other call does. */
#include <stdlib.h>
#include <string.h>

#include "hostcuda.h"
#include "tap.h"

#if defined(_WIN32)
#define putenv _putenv
#endif

enum {
    LIMIT = 10000
};

static char mine[LIMIT + 1], other[LIMIT];

static cudaError_t by_malloc(void **p, size_t bytes) { return cudaMallocHost(p, bytes); }

static cudaError_t by_alloc(void **p, size_t bytes) { return cudaHostAlloc(p, bytes, 0); }

static cudaError_t by_register(void **p, size_t bytes) {
    *p = mine;
    return cudaHostRegister(mine, bytes, cudaHostRegisterDefault);
}

static void give_back(void *p) {
    if (p == mine)
        (void)cudaHostUnregister(p);
    else
        (void)cudaFreeHost(p);
}

/* With so many bytes pinned already, which stay so. */
static void test(const char *name, cudaError_t (*pin)(void **p, size_t bytes), size_t already) {
    void *first = NULL, *p = NULL;
    const cudaError_t before = cudaHostAlloc(&first, already, 0);
    const cudaError_t beyond = pin(&p, LIMIT - already + 1), last = cudaGetLastError();
    const int alive = hostcuda_leaks(NULL);
    const cudaError_t all = pin(&p, LIMIT - already);
    void *more = NULL;
    tap_ok(before == cudaSuccess && beyond == cudaErrorMemoryAllocation && last == beyond &&
               alive == (already > 0),
           "%s: a byte beyond the limit is refused, %zu are pinned", name, already);
    tap_ok(all == cudaSuccess && cudaHostAlloc(&more, 1, 0) == cudaErrorMemoryAllocation && !more &&
               cudaHostRegister(other, 1, 0) == cudaErrorMemoryAllocation,
           "and what the limit allows is not, but nothing after it");
    (void)cudaGetLastError();
    give_back(p);
    give_back(first);
    tap_ok(pin(&p, LIMIT) == cudaSuccess, "and what was given back may be pinned again");
    give_back(p);
}

int main(void) {
    char text[] = "HOSTCUDA_PINNED_LIMIT=10000";
    char back = 0;
    void *dev = NULL, *p = NULL;
    (void)putenv(text); /* before the first call, which reads it */
    test("cudaMallocHost", by_malloc, 0);
    test("cudaHostAlloc", by_alloc, 3000);
    test("cudaHostRegister", by_register, 3000);
    hostcuda_set_pinned_limit(0);
    mine[5] = 7;
    tap_ok(cudaHostAlloc(&p, 1, 0) == cudaErrorMemoryAllocation &&
               cudaHostRegister(mine, 1, 0) == cudaErrorMemoryAllocation &&
               cudaHostAlloc(&p, 0, 0) == cudaSuccess,
           "of a limit of 0 bytes nothing can be pinned");
    tap_ok(cudaMalloc(&dev, LIMIT) == cudaSuccess &&
               cudaMemcpy(dev, mine, LIMIT, cudaMemcpyHostToDevice) == cudaSuccess &&
               cudaMemcpy(&back, (char *)dev + 5, 1, cudaMemcpyDeviceToHost) == cudaSuccess &&
               back == 7,
           "and pageable memory is copied as ever");
    (void)cudaFree(dev);
    hostcuda_set_pinned_limit((size_t)-1);
    tap_ok(cudaHostAlloc(&p, LIMIT + 1, 0) == cudaSuccess, "without a limit there is none");
    (void)cudaFreeHost(p);
    tap_ok(hostcuda_leaks(stderr) == 0, "all is released");
    return tap_done();
}
