/* hostcuda: memory that is allocated and freed in a stream's order, and the pools it comes from.
 *
 * An allocation is there when its stream gets to it: work of another stream that nothing orders
 * after that fails, or is reported by ThreadSanitizer. Freed memory goes back to the process at
 * once, so that AddressSanitizer sees its use; what a pool keeps is only counted. */
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hostcuda_internal.h"

namespace hc {

struct Pool {
    int device = 0;
    bool of_device = false; /* the default one */
    size_t limit = SIZE_MAX;
    uint64_t threshold = 0, used = 0, used_high = 0, reserved = 0, reserved_high = 0;
    int reuse[3] = {1, 1, 1};
};

typedef std::shared_ptr<Pool> PoolP;

static cudaMemPool_t add_pool(const PoolP &pool) {
    const cudaMemPool_t handle = new_handle<cudaMemPool_t>();
    put(state().pools, handle, pool);
    return handle;
}

static cudaMemPool_t default_pool(int i) {
    Device &d = device(i);
    if (!d.default_pool) {
        const auto pool = std::make_shared<Pool>();
        pool->device = i;
        pool->of_device = true;
        d.default_pool = add_pool(pool);
    }
    return d.default_pool;
}

static cudaMemPool_t pool_of(int i) { return device(i).pool ? device(i).pool : default_pool(i); }

static void trim(Pool &pool, uint64_t keep) {
    pool.reserved = std::max(pool.used, std::min(pool.reserved, keep));
}

void trim_pools() {
    for (const auto &p : state().pools) trim(*p.second, p.second->threshold);
}

void leave_pool(const Block &b) {
    if (b.pool) b.pool->used -= b.size;
}

void reset_pools(int i) {
    auto &pools = state().pools;
    for (auto p = pools.begin(); p != pools.end();)
        p = p->second->device == i ? pools.erase(p) : std::next(p);
    device(i).default_pool = device(i).pool = nullptr;
}

int pools_made() {
    int count = 0;
    for (const auto &p : state().pools) count += !p.second->of_device;
    return count;
}

static void fill(char *p, size_t size) {
    const size_t page = 4096;
    const Shown shown;
    memset(p, 0xA5, std::min(size, page));
    if (size <= page) return;
    overlook();
    memset(p + page, 0xA5, size - page);
    look();
    p[size - 1] = static_cast<char>(0xA5);
}

/* The stream gets to the allocation: its memory is there, and written, for ThreadSanitizer. */
static cudaError_t begin_use(char *p, size_t size, long number) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    if (!state().blocks_coming.erase(number)) {
        fprintf(stderr, "hostcuda: memory is freed before its stream has allocated it\n");
        return cudaErrorIllegalAddress;
    }
    fill(p, size);
    state().blocks_there.insert(number);
    return cudaSuccess;
}

static cudaError_t allocate_in_stream(Call &call, void **p, size_t size, const PoolP &pool,
                                      const StreamP &s) {
    REFUSE_IF(!p || !pool, cudaErrorInvalidValue);
    REFUSE_IF(pool->device != s->device, cudaErrorInvalidValue);
    if (s->capture) return call.done(invalidate(*s->capture, cudaErrorStreamCaptureUnsupported));
    Device &d = device(pool->device);
    *p = nullptr;
    REFUSE_IF(size == 0, cudaSuccess);
    REFUSE_IF(size > d.profile.memory - d.used || size > pool->limit - pool->used,
              cudaErrorMemoryAllocation);
    char *const memory = static_cast<char *>(allocate(256, size, false));
    REFUSE_IF(!memory, cudaErrorMemoryAllocation);
    Block b;
    b.size = size;
    b.device = pool->device;
    b.counted = true;
    b.pool = pool;
    remember(state().device_blocks, memory, b, false);
    d.used += size;
    pool->used += size;
    pool->used_high = std::max(pool->used_high, pool->used);
    pool->reserved = std::max(pool->reserved, pool->used);
    pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
    const OpP op = new_op(*s, HOSTCUDA_OTHER);
    const long number = state().last_block;
    op->label = "allocate";
    op->work = [memory, size, number] {
        return begin_use(memory, size, number);
    };
    *p = memory;
    return call.done(submit_or_capture(s, op));
}

} /* namespace hc */

using namespace hc;

extern "C" {

cudaError_t cudaMallocAsync(void **p, size_t size, cudaStream_t stream) {
    ENTER(PLAIN, &P::call_launch);
    const StreamP s = find_stream(stream);
    REFUSE_IF(!s || s->device != self.device, cudaErrorInvalidResourceHandle);
    return allocate_in_stream(call, p, size, find(state().pools, pool_of(s->device)), s);
}

cudaError_t cudaMallocFromPoolAsync(void **p, size_t size, cudaMemPool_t pool,
                                    cudaStream_t stream) {
    ENTER(PLAIN, &P::call_launch);
    const StreamP s = find_stream(stream);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    return allocate_in_stream(call, p, size, find(state().pools, pool), s);
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t stream) {
    ENTER(PLAIN, &P::call_launch);
    const StreamP s = find_stream(stream);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    if (s->capture) return call.done(invalidate(*s->capture, cudaErrorStreamCaptureUnsupported));
    REFUSE_IF(!p, cudaSuccess);
    const auto at = block_of(state().device_blocks, p);
    REFUSE_IF(at == state().device_blocks.end() || at->second.managed, cudaErrorInvalidValue);
    Block was;
    REFUSE_IF(!forget(state().device_blocks, p, false, &was), cudaErrorInvalidValue);
    device(was.device).used -= was.size;
    leave_pool(was);
    const OpP op = new_op(*s, HOSTCUDA_OTHER);
    op->always = true;
    op->work = [p, was] {
        {
            const Hidden hidden;
            const Lock lock(state().mutex);
            gone(was);
        }
        free_allocated(p);
        return cudaSuccess;
    };
    return call.done(submit_or_capture(s, op));
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int i) {
    ENTER(PLAIN);
    REFUSE_IF(!pool, cudaErrorInvalidValue);
    REFUSE_IF(!is_device(i), cudaErrorInvalidDevice);
    *pool = default_pool(i);
    return call.done(cudaSuccess);
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int i) {
    ENTER(PLAIN);
    REFUSE_IF(!pool, cudaErrorInvalidValue);
    REFUSE_IF(!is_device(i), cudaErrorInvalidDevice);
    *pool = pool_of(i);
    return call.done(cudaSuccess);
}

cudaError_t cudaDeviceSetMemPool(int i, cudaMemPool_t handle) {
    ENTER(PLAIN);
    REFUSE_IF(!is_device(i), cudaErrorInvalidDevice);
    const PoolP pool = find(state().pools, handle);
    REFUSE_IF(!pool || pool->device != i, cudaErrorInvalidValue);
    device(i).pool = handle;
    return call.done(cudaSuccess);
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *out, const cudaMemPoolProps *props) {
    ENTER(PLAIN);
    REFUSE_IF(!out || !props, cudaErrorInvalidValue);
    REFUSE_IF(props->allocType == cudaMemAllocationTypeManaged, cudaErrorNotSupported);
    REFUSE_IF(props->allocType != cudaMemAllocationTypePinned, cudaErrorInvalidValue);
    REFUSE_IF(props->handleTypes != cudaMemHandleTypeNone, cudaErrorNotSupported);
    REFUSE_IF(props->location.type != cudaMemLocationTypeDevice, cudaErrorNotSupported);
    REFUSE_IF(!is_device(props->location.id), cudaErrorInvalidValue);
    const auto pool = std::make_shared<Pool>();
    pool->device = props->location.id;
    if (props->maxSize) pool->limit = props->maxSize;
    *out = add_pool(pool);
    return call.done(cudaSuccess);
}

/* What was allocated from it stays until it is freed. */
cudaError_t cudaMemPoolDestroy(cudaMemPool_t handle) {
    ENTER(RELEASE);
    const PoolP pool = find(state().pools, handle);
    REFUSE_IF(!pool || pool->of_device, cudaErrorInvalidValue);
    if (device(pool->device).pool == handle) device(pool->device).pool = nullptr;
    take(state().pools, handle);
    return call.done(cudaSuccess);
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t handle, size_t keep) {
    ENTER(PLAIN);
    const PoolP pool = find(state().pools, handle);
    REFUSE_IF(!pool, cudaErrorInvalidValue);
    trim(*pool, keep);
    return call.done(cudaSuccess);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attr, void *value) {
    ENTER(PLAIN);
    const PoolP pool = find(state().pools, handle);
    REFUSE_IF(!pool || !value, cudaErrorInvalidValue);
    if (attr >= cudaMemPoolReuseFollowEventDependencies &&
        attr <= cudaMemPoolReuseAllowInternalDependencies) {
        pool->reuse[attr - 1] = *static_cast<int *>(value) != 0;
        return call.done(cudaSuccess);
    }
    const uint64_t given = *static_cast<uint64_t *>(value);
    switch (attr) {
    case cudaMemPoolAttrReleaseThreshold: pool->threshold = given; return call.done(cudaSuccess);
    case cudaMemPoolAttrReservedMemHigh:
        REFUSE_IF(given != 0, cudaErrorInvalidValue);
        pool->reserved_high = pool->reserved;
        return call.done(cudaSuccess);
    case cudaMemPoolAttrUsedMemHigh:
        REFUSE_IF(given != 0, cudaErrorInvalidValue);
        pool->used_high = pool->used;
        return call.done(cudaSuccess);
    default: return call.done(cudaErrorInvalidValue);
    }
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attr, void *value) {
    ENTER(PLAIN);
    const PoolP pool = find(state().pools, handle);
    REFUSE_IF(!pool || !value, cudaErrorInvalidValue);
    if (attr >= cudaMemPoolReuseFollowEventDependencies &&
        attr <= cudaMemPoolReuseAllowInternalDependencies) {
        *static_cast<int *>(value) = pool->reuse[attr - 1];
        return call.done(cudaSuccess);
    }
    uint64_t *const out = static_cast<uint64_t *>(value);
    switch (attr) {
    case cudaMemPoolAttrReleaseThreshold: *out = pool->threshold; break;
    case cudaMemPoolAttrReservedMemCurrent: *out = pool->reserved; break;
    case cudaMemPoolAttrReservedMemHigh: *out = pool->reserved_high; break;
    case cudaMemPoolAttrUsedMemCurrent: *out = pool->used; break;
    case cudaMemPoolAttrUsedMemHigh: *out = pool->used_high; break;
    default: return call.done(cudaErrorInvalidValue);
    }
    return call.done(cudaSuccess);
}

} /* extern "C" */
