/* hostcuda: managed memory. Host and device read the same bytes, so what moves is only modelled:
 * each piece of it is at one place, and a kernel that is given a pointer to it, or a prefetch,
 * moves what is elsewhere. What the host touches moves nothing, since no call tells of it. */
#include <algorithm>
#include <cstring>

#include "hostcuda_internal.h"

/* The linker puts all __managed__ variables in one section and knows its ends. */
#if defined(__APPLE__)
extern char hostcuda_managed_begin __asm("section$start$__DATA$hostcuda_mgd");
extern char hostcuda_managed_end __asm("section$end$__DATA$hostcuda_mgd");
#define MANAGED_BEGIN (&hostcuda_managed_begin)
#define MANAGED_END   (&hostcuda_managed_end)
#elif defined(__ELF__)
extern "C" char __start_hostcuda_managed[] __attribute__((weak));
extern "C" char __stop_hostcuda_managed[] __attribute__((weak));
#define MANAGED_BEGIN __start_hostcuda_managed
#define MANAGED_END   __stop_hostcuda_managed
#else
#define MANAGED_BEGIN (static_cast<char *>(nullptr))
#define MANAGED_END   (static_cast<char *>(nullptr))
#endif

namespace hc {

static const size_t PIECE = 64 * 1024; /* as the driver moves them, at least */

static std::shared_ptr<Managed> new_managed(size_t size) {
    const auto m = std::make_shared<Managed>();
    m->at.assign((size + PIECE - 1) / PIECE, cudaCpuDeviceId);
    return m;
}

void add_managed_variables(State &s) {
    const char *begin = MANAGED_BEGIN, *end = MANAGED_END;
    if (begin == end) return;
    Block b;
    b.size = static_cast<size_t>(end - begin);
    b.number = ++s.last_block;
    b.managed = new_managed(b.size);
    b.variable = true;
    s.blocks_there.insert(b.number);
    s.device_blocks[~reinterpret_cast<uintptr_t>(begin)] = b;
}

static bool may_access_at_once(int i) { return device(i).profile.cc_major >= 6; }

/* Moves the pieces of [offset, offset + count); returns how many bytes were elsewhere. */
static size_t move(const Block &b, size_t offset, size_t count, int to) {
    size_t moved = 0;
    for (size_t i = offset / PIECE; i * PIECE < offset + count; ++i) {
        if (b.managed->at[i] == to) continue;
        b.managed->at[i] = to;
        const size_t begin = std::max(offset, i * PIECE);
        moved += std::min(offset + count, (i + 1) * PIECE) - begin;
    }
    return moved;
}

double migrate(const void *p, int i) {
    const auto at = block_of(state().device_blocks, p);
    if (at == state().device_blocks.end() || !at->second.managed) return 0;
    const Managed &m = *at->second.managed;
    if (m.accessed_by.count(i) || m.preferred == cudaCpuDeviceId) return 0; /* read where it is */
    const size_t bytes = move(at->second, 0, at->second.size, i);
    return static_cast<double>(bytes) / device(i).profile.pageable_h2d;
}

/* The device of a location, cudaCpuDeviceId for the host. */
static cudaError_t place_of(cudaMemLocation location, int *place) {
    switch (location.type) {
    case cudaMemLocationTypeHost:
    case cudaMemLocationTypeHostNumaCurrent: *place = cudaCpuDeviceId; return cudaSuccess;
    case cudaMemLocationTypeHostNuma:
        *place = cudaCpuDeviceId;
        return location.id >= 0 ? cudaSuccess : cudaErrorInvalidValue;
    case cudaMemLocationTypeDevice:
        *place = location.id;
        if (!is_device(location.id) || !may_access_at_once(location.id))
            return cudaErrorInvalidDevice;
        return cudaSuccess;
    default: return cudaErrorInvalidValue;
    }
}

/* The managed block that holds all of the range, or NULL. */
static Block *managed_around(const void *p, size_t count, size_t *offset) {
    const auto at = block_of(state().device_blocks, p);
    if (!p || count == 0 || at == state().device_blocks.end()) return nullptr;
    *offset = reinterpret_cast<uintptr_t>(p) - ~at->first;
    return at->second.managed && count <= at->second.size - *offset ? &at->second : nullptr;
}

static int same_place(const Block &b, size_t offset, size_t count) {
    const std::vector<int> &at = b.managed->at;
    for (size_t i = offset / PIECE; i * PIECE < offset + count; ++i)
        if (at[i] != at[offset / PIECE]) return cudaInvalidDeviceId;
    return at[offset / PIECE];
}

static void price_prefetch(Op &op, size_t bytes, int from, int to) {
    const hostcuda_profile_t &p = device(op.device).profile;
    op.label = "prefetch";
    op.bytes = bytes;
    if (bytes == 0) return;
    const bool down = to == cudaCpuDeviceId && from != cudaCpuDeviceId;
    op.kind = down ? HOSTCUDA_D2H : HOSTCUDA_H2D;
    op.engine = down && p.copy_engines > 1 ? HOSTCUDA_COPY1 : HOSTCUDA_COPY0;
    op.held = p.copy_lost;
    op.span = static_cast<double>(bytes) / (down ? p.d2h : p.h2d);
}

static cudaError_t advise(Managed &m, cudaMemoryAdvise advice, cudaMemLocation location) {
    const bool ignored = advice == cudaMemAdviseSetReadMostly ||
                         advice == cudaMemAdviseUnsetReadMostly ||
                         advice == cudaMemAdviseUnsetPreferredLocation;
    int place = cudaCpuDeviceId;
    const cudaError_t e = ignored ? cudaSuccess : place_of(location, &place);
    if (e != cudaSuccess) return e;
    switch (advice) {
    case cudaMemAdviseSetReadMostly: m.read_mostly = true; return cudaSuccess;
    case cudaMemAdviseUnsetReadMostly: m.read_mostly = false; return cudaSuccess;
    case cudaMemAdviseSetPreferredLocation: m.preferred = place; return cudaSuccess;
    case cudaMemAdviseUnsetPreferredLocation: m.preferred = cudaInvalidDeviceId; return cudaSuccess;
    case cudaMemAdviseSetAccessedBy: m.accessed_by.insert(place); return cudaSuccess;
    case cudaMemAdviseUnsetAccessedBy: m.accessed_by.erase(place); return cudaSuccess;
    }
    return cudaErrorInvalidValue;
}

} /* namespace hc */

using namespace hc;

extern "C" {

cudaError_t cudaMallocManaged(void **p, size_t size, unsigned flags) {
    ENTER(UNSAFE, &P::call_malloc);
    REFUSE_IF(!p || size == 0, cudaErrorInvalidValue);
    REFUSE_IF(flags != cudaMemAttachGlobal && flags != cudaMemAttachHost, cudaErrorInvalidValue);
    Device &d = current();
    *p = nullptr;
    REFUSE_IF(d.profile.cc_major < 3, cudaErrorNotSupported);
    /* Devices that cannot fault pages in keep all of it; others may have more than their memory. */
    const bool counted = !may_access_at_once(self.device);
    REFUSE_IF(counted && size > d.profile.memory - d.used, cudaErrorMemoryAllocation);
    *p = allocate(4096, size, true);
    REFUSE_IF(!*p, cudaErrorMemoryAllocation);
    Block b;
    b.size = size;
    b.device = self.device;
    b.flags = flags;
    b.counted = counted;
    b.managed = new_managed(size);
    if (counted) d.used += size;
    remember(state().device_blocks, *p, b);
    return call.done(cudaSuccess);
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void *p, size_t length, unsigned flags) {
    ENTER(PLAIN, &P::call_record);
    const StreamP s = find_stream(stream);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    size_t offset = 0;
    Block *const b = managed_around(p, std::max<size_t>(length, 1), &offset);
    REFUSE_IF(!b || offset != 0 || (length && length != b->size), cudaErrorInvalidValue);
    const bool known =
        flags == cudaMemAttachGlobal || flags == cudaMemAttachHost || flags == cudaMemAttachSingle;
    REFUSE_IF(!known || (flags == cudaMemAttachSingle && is_legacy(*s)), cudaErrorInvalidValue);
    if (s->capture) return call.done(invalidate(*s->capture, cudaErrorStreamCaptureUnsupported));
    const OpP op = new_op(*s, HOSTCUDA_OTHER);
    op->uses.push_back(b->number);
    return call.done(submit_or_capture(s, op));
}

cudaError_t cudaMemPrefetchAsync(const void *p, size_t count, cudaMemLocation location,
                                 unsigned flags, cudaStream_t stream) {
    ENTER(PLAIN, &P::call_copy);
    const StreamP s = find_stream(stream);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    int to = cudaCpuDeviceId;
    size_t offset = 0;
    const cudaError_t e = place_of(location, &to);
    REFUSE_IF(e != cudaSuccess, e);
    const Block *const b = managed_around(p, count, &offset);
    REFUSE_IF(!b || flags != 0, cudaErrorInvalidValue);
    if (s->capture) return call.done(invalidate(*s->capture, cudaErrorStreamCaptureUnsupported));
    const OpP op = new_op(*s, HOSTCUDA_OTHER);
    op->uses.push_back(b->number);
    const int from = same_place(*b, offset, count);
    price_prefetch(*op, move(*b, offset, count, to), from, to);
    b->managed->prefetched = to;
    return call.done(submit_or_capture(s, op));
}

cudaError_t cudaMemAdvise(const void *p, size_t count, cudaMemoryAdvise advice,
                          cudaMemLocation location) {
    ENTER(PLAIN);
    size_t offset = 0;
    const Block *const b = managed_around(p, count, &offset);
    REFUSE_IF(!b, cudaErrorInvalidValue);
    return call.done(advise(*b->managed, advice, location));
}

/* Advice is kept for the whole allocation, and so it is told. */
cudaError_t cudaMemRangeGetAttribute(void *data, size_t size, cudaMemRangeAttribute attribute,
                                     const void *p, size_t count) {
    ENTER(PLAIN);
    size_t offset = 0;
    const Block *const b = managed_around(p, count, &offset);
    REFUSE_IF(!b || !data || size == 0 || size % sizeof(int) != 0, cudaErrorInvalidValue);
    const Managed &m = *b->managed;
    int *const out = static_cast<int *>(data);
    if (attribute == cudaMemRangeAttributeAccessedBy) {
        std::fill(out, out + size / sizeof(int), static_cast<int>(cudaInvalidDeviceId));
        size_t i = 0;
        for (int place : m.accessed_by)
            if (i < size / sizeof(int)) out[i++] = place;
        return call.done(cudaSuccess);
    }
    REFUSE_IF(size != sizeof(int), cudaErrorInvalidValue);
    switch (attribute) {
    case cudaMemRangeAttributeReadMostly: *out = m.read_mostly; break;
    case cudaMemRangeAttributePreferredLocation: *out = m.preferred; break;
    case cudaMemRangeAttributeLastPrefetchLocation: *out = m.prefetched; break;
    default: return call.done(cudaErrorInvalidValue);
    }
    return call.done(cudaSuccess);
}

} /* extern "C" */
