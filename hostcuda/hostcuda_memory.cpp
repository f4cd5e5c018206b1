/* hostcuda: device memory, pinned and registered memory, copies. */
#include <algorithm>
#include <cstring>
#include <new>

#include "cuda_runtime.h"
#include "hostcuda_internal.h"

namespace hc {

/* ---- memory ---------------------------------------------------------------------------------- */

static uintptr_t key_of(const void *p) { return ~reinterpret_cast<uintptr_t>(p); }

/* Keys fall as addresses rise. */
Blocks::iterator block_of(Blocks &blocks, const void *p) {
    const auto i = blocks.lower_bound(key_of(p));
    if (i == blocks.end()) return i;
    const uintptr_t offset = reinterpret_cast<uintptr_t>(p) - ~i->first;
    return offset < i->second.size ? i : blocks.end();
}

static bool overlaps(Blocks &blocks, const void *p, size_t size) {
    if (block_of(blocks, p) != blocks.end()) return true;
    const char *last = static_cast<const char *>(p) + (size - 1);
    return block_of(blocks, last) != blocks.end() || [&] {
        const auto i = blocks.lower_bound(key_of(last));
        return i != blocks.end() && ~i->first >= reinterpret_cast<uintptr_t>(p);
    }();
}

enum class Where {
    DEVICE,
    MANAGED,
    PINNED,
    PAGEABLE,
    WRONG
};

static Where where_in(Blocks &blocks, const void *p, size_t size, Where inside) {
    const auto i = block_of(blocks, p);
    if (i == blocks.end()) return overlaps(blocks, p, size) ? Where::WRONG : Where::PAGEABLE;
    const uintptr_t offset = reinterpret_cast<uintptr_t>(p) - ~i->first;
    if (size > i->second.size - offset) return Where::WRONG;
    return i->second.managed ? Where::MANAGED : inside;
}

/* What kind of memory a range is; WRONG if it crosses the end of a block. */
static Where where_is(const void *p, size_t size) {
    if (!p) return Where::WRONG;
    const Where d = where_in(state().device_blocks, p, size, Where::DEVICE);
    return d != Where::PAGEABLE ? d : where_in(state().host_blocks, p, size, Where::PINNED);
}

static long number_around(const void *p) {
    State &s = state();
    for (Blocks *blocks : {&s.device_blocks, &s.host_blocks}) {
        const auto i = block_of(*blocks, p);
        if (i != blocks->end()) return i->second.number;
    }
    return 0;
}

long block_number(const void *p) {
    const long number = number_around(p);
    return number ? number : number_around(static_cast<const char *>(p) - 1);
}

/* The device whose memory it is; -1 for memory of the host or of a pool, managed memory and
 * variables. */
int owner_of(const void *p) {
    Blocks &blocks = state().device_blocks;
    const auto i = block_of(blocks, p);
    if (i == blocks.end()) return -1;
    const Block &b = i->second;
    return b.managed || b.pool || b.variable ? -1 : b.device;
}

bool has_memory(const Op &op) {
    for (long number : op.uses)
        if (!state().blocks_there.count(number)) return false;
    for (const OpP &part : op.parts)
        if (!has_memory(*part)) return false;
    return true;
}

static int device_holding(const void *p, int otherwise) {
    const auto i = block_of(state().device_blocks, p);
    return i == state().device_blocks.end() ? otherwise : i->second.device;
}

void remember(Blocks &blocks, const void *p, Block b, bool there) {
    b.number = ++state().last_block;
    (there ? state().blocks_there : state().blocks_coming).insert(b.number);
    blocks[key_of(p)] = b;
}

static cudaError_t allocate_device(void **out, size_t size) {
    Device &d = current();
    *out = nullptr;
    if (size == 0) return cudaSuccess;
    if (size > d.profile.memory - d.used) return cudaErrorMemoryAllocation;
    void *p = allocate(256, size, true);
    if (!p) return cudaErrorMemoryAllocation;
    Block b;
    b.size = size;
    b.device = self.device;
    b.counted = true;
    remember(state().device_blocks, p, b);
    d.used += size;
    *out = p;
    return cudaSuccess;
}

bool forget(Blocks &blocks, const void *p, bool registered, Block *was) {
    const auto i = blocks.find(key_of(p));
    if (i == blocks.end() || i->second.registered != registered || i->second.variable) return false;
    *was = i->second;
    blocks.erase(i);
    return true;
}

void gone(const Block &b) {
    state().blocks_there.erase(b.number);
    state().blocks_coming.erase(b.number);
}

static bool uses_block(const Op &op, long number) {
    if (std::find(op.uses.begin(), op.uses.end(), number) != op.uses.end()) return true;
    for (const OpP &part : op.parts)
        if (uses_block(*part, number)) return true;
    return false;
}

/* For calls of which CUDA does not say that they wait: work under way that uses the block fails,
 * also where it would have ended in time. */
static void fail_users(const char *function, const Block &b) {
    for (const auto &d : state().devices) {
        if (d->failed != cudaSuccess) continue; /* its work is skipped */
        for (const StreamP &s : d->streams) {
            std::vector<OpP> ops(s->queue.begin(), s->queue.end());
            if (s->running) ops.push_back(s->running);
            for (const OpP &op : ops) {
                if (op->fail != cudaSuccess || !uses_block(*op, b.number)) continue;
                fprintf(stderr, "hostcuda: %s while a %s that uses the memory is under way\n",
                        function, noun_of(*op));
                op->fail = cudaErrorIllegalAddress;
                d->doomed = op;
            }
        }
    }
}

void really_free(void *p) {
    const Shown shown;
    free_allocated(p);
}

/* ---- copies ---------------------------------------------------------------------------------- */

struct Copy {
    void *dst;
    const void *src;
    size_t dpitch, spitch, width, height;
    int kind; /* HOSTCUDA_H2D ... */
    bool pageable;
};

static size_t extent(size_t pitch, size_t width, size_t height) {
    return height ? pitch * (height - 1) + width : 0;
}

/* Managed memory is both: it serves as what the direction asks for. */
static bool serves(Where where, bool as_device) {
    return where == Where::MANAGED || (where == Where::DEVICE) == as_device;
}

static bool resolve_kind(cudaMemcpyKind wanted, Where dst, Where src, int *kind) {
    bool to = dst == Where::DEVICE || dst == Where::MANAGED;
    bool from = src == Where::DEVICE || src == Where::MANAGED;
    if (wanted != cudaMemcpyDefault) {
        to = wanted == cudaMemcpyHostToDevice || wanted == cudaMemcpyDeviceToDevice;
        from = wanted == cudaMemcpyDeviceToHost || wanted == cudaMemcpyDeviceToDevice;
    }
    if (from)
        *kind = to ? HOSTCUDA_D2D : HOSTCUDA_D2H;
    else
        *kind = to ? HOSTCUDA_H2D : HOSTCUDA_H2H;
    return serves(dst, to) && serves(src, from);
}

static void explain_end(const char *which, const void *p, size_t bytes) {
    if (!p) return explain("a copy is refused: its %s is NULL", which);
    explain("a copy is refused: its %s has fewer than the %zu bytes to copy", which, bytes);
}

static void explain_direction(cudaMemcpyKind wanted, Where dst, Where src) {
    const char *const kinds[] = {"HostToHost", "HostToDevice", "DeviceToHost", "DeviceToDevice"};
    const char *to = dst == Where::DEVICE ? "the device" : "the host";
    const char *from = src == Where::DEVICE ? "the device" : "the host";
    explain("a copy is refused: cudaMemcpy%s, but it is from memory of %s to memory of %s",
            kinds[wanted], from, to);
}

static cudaError_t check_copy(Copy &c, cudaMemcpyKind wanted) {
    if (static_cast<int>(wanted) < 0 || static_cast<int>(wanted) > 4)
        return cudaErrorInvalidMemcpyDirection;
    if (c.height > 1 && (c.width > c.dpitch || c.width > c.spitch))
        return cudaErrorInvalidPitchValue;
    const Where dst = where_is(c.dst, extent(c.dpitch, c.width, c.height));
    const Where src = where_is(c.src, extent(c.spitch, c.width, c.height));
    if (dst == Where::WRONG) explain_end("destination", c.dst, c.width * c.height);
    if (src == Where::WRONG) explain_end("source", c.src, c.width * c.height);
    if (dst == Where::WRONG || src == Where::WRONG) return cudaErrorInvalidValue;
    if (!resolve_kind(wanted, dst, src, &c.kind)) {
        explain_direction(wanted, dst, src);
        return cudaErrorInvalidValue;
    }
    c.pageable = dst == Where::PAGEABLE || src == Where::PAGEABLE;
    return cudaSuccess;
}

/* Copies. ThreadSanitizer sees the first and the last page of every sixteen, and the very last. */
static void copy_bytes(char *dst, const char *src, size_t n) {
    const size_t page = 4096, some = 16 * page;
    const bool apart = dst + n <= src || src + n <= dst;
    for (; SAMPLES && apart && n > some; dst += some, src += some, n -= some) {
        memcpy(dst, src, page);
        overlook();
        memcpy(dst + page, src + page, some - 2 * page);
        look();
        memcpy(dst + some - page, src + some - page, page);
    }
    memmove(dst, src, n);
}

static void copy_rows(const Copy &c) {
    if (c.dpitch == c.width && c.spitch == c.width) {
        copy_bytes(static_cast<char *>(c.dst), static_cast<const char *>(c.src),
                   c.width * c.height);
        return;
    }
    for (size_t i = 0; i < c.height; ++i)
        memmove(static_cast<char *>(c.dst) + i * c.dpitch,
                static_cast<const char *>(c.src) + i * c.spitch, c.width);
}

enum {
    SMALL = 64 << 10 /* bytes of pageable memory that travel with the call */
};

/* Whether CUDA copies pageable memory through memory of its own, and blocks meanwhile. Else the
 * copy engine reads the host's pages itself. */
static bool staged(const hostcuda_profile_t &p, const Copy &c) {
    return c.pageable && !p.host_page_tables;
}

/* The time in which the copy engine reads host memory itself. */
static double read_pages(const hostcuda_profile_t &p, const Copy &c, double bytes) {
    if (!c.pageable || p.file_pages <= 0) return bytes / p.h2d;
    const size_t all = extent(c.spitch, c.width, c.height);
    const double of_files =
        bytes * static_cast<double>(file_bytes(c.src, all)) / static_cast<double>(all);
    return of_files / p.file_pages + (bytes - of_files) / p.h2d;
}

/* The modelled engine and time of a copy. */
static void price_copy(Op &op, const Copy &c) {
    const hostcuda_profile_t &p = device(op.device).profile;
    op.bytes = c.width * c.height;
    const double bytes = static_cast<double>(op.bytes);
    op.held = p.copy_lost;
    switch (c.kind) {
    case HOSTCUDA_H2D:
        op.engine = HOSTCUDA_COPY0;
        op.span = staged(p, c) ? bytes / p.pageable_h2d : read_pages(p, c, bytes);
        break;
    case HOSTCUDA_D2H:
        op.engine = p.copy_engines > 1 ? HOSTCUDA_COPY1 : HOSTCUDA_COPY0;
        op.span = bytes / (staged(p, c) ? p.pageable_d2h : p.d2h);
        break;
    case HOSTCUDA_D2D:
        op.engine = HOSTCUDA_COMPUTE;
        op.span = bytes / p.d2d;
        op.share = 1.0;
        break;
    default: /* host to host: no engine works on it */
        op.held = 0;
        op.span = bytes / p.pageable_h2d;
    }
    if (staged(p, c) && op.bytes > SMALL && op.engine >= HOSTCUDA_COPY0 &&
        op.engine <= HOSTCUDA_COPY1)
        op.held = std::max(op.held, p.pageable_lost);
}

/* Pageable memory that CUDA stages is read during the call, before the stream reaches the copy. */
static void stage_now(Copy &c, std::shared_ptr<char> *staging) {
    void *p = allocate(64, c.width * c.height, false);
    if (!p) throw std::bad_alloc();
    staging->reset(static_cast<char *>(p), free_allocated);
    Copy to = c;
    to.dst = staging->get();
    to.dpitch = c.width;
    {
        const Shown shown;
        copy_rows(to);
    }
    c.src = staging->get();
    c.spitch = c.width;
}

static cudaError_t issue_copy(Call &call, const StreamP &s, Copy c, bool synchronous) {
    const OpP op = new_op(*s, c.kind);
    price_copy(*op, c);
    const bool blocks = c.kind == HOSTCUDA_H2H || staged(device(s->device).profile, c);
    if (c.pageable && s->capture) return invalidate(*s->capture, cudaErrorStreamCaptureUnsupported);
    if (s->capture) {
        op->params = std::make_shared<NodeParams>();
        op->params->type = cudaGraphNodeTypeMemcpy;
        cudaMemcpy3DParms &to = op->params->copy;
        to.dstPtr = cudaPitchedPtr{c.dst, c.dpitch, c.width, c.height};
        to.srcPtr = cudaPitchedPtr{const_cast<void *>(c.src), c.spitch, c.width, c.height};
        to.extent = cudaExtent{c.width, c.height, 1};
        to.kind = cudaMemcpyDefault;
    }
    for (const void *end : {static_cast<const void *>(c.dst), c.src})
        if (const long block = block_number(end)) op->uses.push_back(block);
    std::shared_ptr<char> staging;
    if (blocks && c.kind == HOSTCUDA_H2D) stage_now(c, &staging);
    op->work = [c, staging] {
        copy_rows(c);
        return cudaSuccess;
    };
    const cudaError_t e = submit_or_capture(s, op);
    if (e != cudaSuccess) return e;
    const bool to_host = c.kind == HOSTCUDA_D2H || c.kind == HOSTCUDA_H2H;
    if (synchronous || (c.pageable && blocks && to_host)) {
        wait_for(call, op);
        return surface(device(s->device));
    }
    if (staging) clock_to(call.lock, *op); /* only the modelled host is busy for that time */
    return cudaSuccess;
}

/* Such a copy goes over the bus, or what else is between the two. */
static bool between_devices(const Copy &c) {
    if (c.kind != HOSTCUDA_D2D) return false;
    const int to = owner_of(c.dst), from = owner_of(c.src);
    return to >= 0 && from >= 0 && to != from;
}

static cudaError_t copy(Call &call, Copy c, cudaMemcpyKind kind, cudaStream_t stream,
                        bool synchronous) {
    const StreamP s = find_stream(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (c.width == 0 || c.height == 0) return cudaSuccess;
    const cudaError_t e = check_copy(c, kind);
    if (e != cudaSuccess) return e;
    /* a synchronous copy from device to device returns before it has run, as CUDA's does */
    const bool waits = synchronous && c.kind != HOSTCUDA_D2D;
    if (between_devices(c)) c.kind = HOSTCUDA_D2H;
    return issue_copy(call, s, c, waits);
}

static Copy flat(void *dst, const void *src, size_t count) {
    return Copy{dst, src, count, count, count, 1, 0, false};
}

static cudaError_t set_memory(void *p, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
    const StreamP s = find_stream(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (width == 0 || height == 0) return cudaSuccess;
    if (height > 1 && width > pitch) return cudaErrorInvalidPitchValue;
    const Where where = where_is(p, extent(pitch, width, height));
    if (where == Where::PAGEABLE || where == Where::WRONG) {
        explain("a memset is refused: %s", where == Where::PAGEABLE
                                               ? "it is for memory of the device, not of malloc"
                                               : "it goes beyond the end of its memory");
        return cudaErrorInvalidValue;
    }
    const OpP op = new_op(*s, HOSTCUDA_MEMSET);
    op->bytes = width * height;
    op->engine = HOSTCUDA_COMPUTE;
    op->share = 1.0;
    op->uses.push_back(block_number(p));
    op->span = static_cast<double>(op->bytes) / device(s->device).profile.d2d;
    if (s->capture) {
        op->params = std::make_shared<NodeParams>();
        op->params->type = cudaGraphNodeTypeMemset;
        op->params->set =
            cudaMemsetParams{p, pitch, static_cast<unsigned>(value & 255), 1, width, height};
    }
    op->work = [p, pitch, value, width, height] {
        for (size_t i = 0; i < height; ++i)
            memset(static_cast<char *>(p) + i * pitch, value, width);
        return cudaSuccess;
    };
    return submit_or_capture(s, op);
}

/* A symbol counts as device memory. Of the other side, the direction says what it is. */
static cudaError_t copy_symbol(Call &call, const hostcuda_symbol_copy_t &c) {
    char *const at = static_cast<char *>(c.symbol) + c.offset;
    if (!c.symbol) return cudaErrorInvalidSymbol;
    if (c.offset > c.size || c.count > c.size - c.offset) return cudaErrorInvalidValue;
    const StreamP s = find_stream(c.stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (c.count == 0) return cudaSuccess;
    const Where other = where_is(c.other, c.count);
    if (other == Where::WRONG) return cudaErrorInvalidValue;
    Where dst = Where::DEVICE, src = other;
    Copy copy = flat(at, c.other, c.count);
    if (!c.to_symbol) {
        std::swap(dst, src);
        copy.dst = c.other;
        copy.src = at;
    }
    int kind = 0;
    if (!resolve_kind(c.kind, dst, src, &kind)) return cudaErrorInvalidMemcpyDirection;
    copy.kind = kind;
    copy.pageable = other == Where::PAGEABLE;
    return issue_copy(call, s, copy, c.wait && kind != HOSTCUDA_D2D);
}

} /* namespace hc */

using namespace hc;

extern "C" {

/* ---- memory ---------------------------------------------------------------------------------- */

cudaError_t cudaMalloc(void **p, size_t size) {
    ENTER(UNSAFE, &P::call_malloc);
    REFUSE_IF(!p, cudaErrorInvalidValue);
    return call.done(allocate_device(p, size));
}

cudaError_t cudaFree(void *p) {
    ENTER(RELEASE | UNSAFE, &P::call_malloc);
    REFUSE_IF(!p, cudaSuccess);
    Block was;
    if (!forget(state().device_blocks, p, false, &was)) {
        explain("cudaFree: no memory that is still allocated on a device begins at %p", p);
        return call.done(cudaErrorInvalidValue);
    }
    wait_for_device(call, device(was.device));
    gone(was);
    leave_pool(was);
    if (was.counted) device(was.device).used -= was.size;
    really_free(p);
    return call.done(surface(device(was.device)));
}

static bool may_pin(size_t size) {
    size_t left = state().pinned_limit;
    for (const auto &b : state().host_blocks) left -= std::min(left, b.second.size);
    return size <= left;
}

static cudaError_t pin(Call &call, void **p, size_t size, unsigned flags) {
    const unsigned known = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    REFUSE_IF(!p || (flags & ~known), cudaErrorInvalidValue);
    *p = nullptr;
    REFUSE_IF(size == 0, cudaSuccess);
    REFUSE_IF(!may_pin(size), cudaErrorMemoryAllocation);
    *p = allocate(4096, size, true);
    REFUSE_IF(!*p, cudaErrorMemoryAllocation);
    Block b;
    b.size = size;
    b.device = self.device;
    b.flags = flags;
    remember(state().host_blocks, *p, b);
    clock_advance(static_cast<double>(size) / current().profile.pin);
    return call.done(cudaSuccess);
}

cudaError_t cudaMallocHost(void **p, size_t size) {
    ENTER(UNSAFE, &P::call_malloc);
    return pin(call, p, size, cudaHostAllocDefault);
}

cudaError_t cudaHostAlloc(void **p, size_t size, unsigned flags) {
    ENTER(UNSAFE, &P::call_malloc);
    return pin(call, p, size, flags);
}

cudaError_t cudaFreeHost(void *p) {
    ENTER(RELEASE | UNSAFE, &P::call_malloc);
    REFUSE_IF(!p, cudaSuccess);
    Block was;
    REFUSE_IF(!forget(state().host_blocks, p, false, &was), cudaErrorInvalidValue);
    fail_users(__func__, was);
    let_device_end(call, current());
    gone(was);
    really_free(p);
    return call.done(surface(current()));
}

cudaError_t cudaHostRegister(void *p, size_t size, unsigned flags) {
    ENTER(UNSAFE, &P::call_malloc);
    const unsigned known =
        cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterReadOnly;
    REFUSE_IF(!p || size == 0 || (flags & ~known), cudaErrorInvalidValue);
    State &s = state();
    REFUSE_IF(overlaps(s.device_blocks, p, size), cudaErrorInvalidValue);
    REFUSE_IF(overlaps(s.host_blocks, p, size), cudaErrorHostMemoryAlreadyRegistered);
    REFUSE_IF(!may_pin(size), cudaErrorMemoryAllocation);
    Block b;
    b.size = size;
    b.device = self.device;
    b.flags = flags | cudaHostAllocMapped;
    b.registered = true;
    remember(s.host_blocks, p, b);
    clock_advance(static_cast<double>(size) / current().profile.reg);
    return call.done(cudaSuccess);
}

cudaError_t cudaHostUnregister(void *p) {
    ENTER(RELEASE | UNSAFE, &P::call_malloc);
    REFUSE_IF(!p, cudaErrorInvalidValue);
    Block was;
    REFUSE_IF(!forget(state().host_blocks, p, true, &was), cudaErrorHostMemoryNotRegistered);
    fail_users(__func__, was);
    let_device_end(call, current());
    gone(was);
    clock_advance(static_cast<double>(was.size) / current().profile.unreg);
    return call.done(surface(current()));
}

cudaError_t cudaHostGetDevicePointer(void **d, void *h, unsigned flags) {
    ENTER(PLAIN);
    REFUSE_IF(!d || !h || flags != 0, cudaErrorInvalidValue);
    REFUSE_IF(block_of(state().host_blocks, h) == state().host_blocks.end(), cudaErrorInvalidValue);
    *d = h;
    return call.done(cudaSuccess);
}

cudaError_t cudaHostGetFlags(unsigned *flags, void *h) {
    ENTER(PLAIN);
    REFUSE_IF(!flags || !h, cudaErrorInvalidValue);
    const auto i = block_of(state().host_blocks, h);
    REFUSE_IF(i == state().host_blocks.end(), cudaErrorInvalidValue);
    *flags = i->second.flags;
    return call.done(cudaSuccess);
}

/* As on a GPU (H100, driver 580): where nothing has started CUDA in the calling thread, it does not
   say where the device sees pinned memory. */
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *a, const void *p) {
    ENTER(NO_START);
    REFUSE_IF(!a || !p, cudaErrorInvalidValue);
    State &s = state();
    memset(a, 0, sizeof *a);
    void *const pointer = const_cast<void *>(p);
    const auto d = block_of(s.device_blocks, p), h = block_of(s.host_blocks, p);
    a->type = cudaMemoryTypeUnregistered;
    a->device = cudaInvalidDeviceId;
    a->hostPointer = pointer;
    if (d != s.device_blocks.end()) {
        const bool managed = d->second.managed != nullptr;
        a->type = managed ? cudaMemoryTypeManaged : cudaMemoryTypeDevice;
        a->device = d->second.device;
        a->devicePointer = pointer;
        a->hostPointer = managed ? pointer : nullptr;
    } else if (h != s.host_blocks.end()) {
        a->type = cudaMemoryTypeHost;
        a->device = h->second.device;
        a->devicePointer = self.started ? pointer : nullptr;
    }
    return call.done(cudaSuccess);
}

/* name: of the function, also where it works in the thread's own stream. */
static cudaError_t copy_and_wait(const char *name, const Copy &c, cudaMemcpyKind kind,
                                 cudaStream_t stream) {
    Call call(name, UNSAFE, &P::call_copy);
    REFUSE_IF(call.refused != cudaSuccess, cudaSuccess);
    return call.done(copy(call, c, kind, stream, true));
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, cudaMemcpyKind kind) {
    return copy_and_wait(__func__, flat(dst, src, count), kind, cudaStreamLegacy);
}

cudaError_t cudaMemcpy_ptds(void *dst, const void *src, size_t count, cudaMemcpyKind kind) {
    return copy_and_wait("cudaMemcpy", flat(dst, src, count), kind, cudaStreamPerThread);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    ENTER(PLAIN, &P::call_copy);
    return call.done(copy(call, flat(dst, src, count), kind, stream, false));
}

/* Between two devices the copy is modelled as a download from the source: it holds that engine
 * of the stream's device. */
cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device,
                                size_t count, cudaStream_t stream) {
    ENTER(PLAIN, &P::call_copy);
    const StreamP s = find_stream(stream);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!is_device(dst_device) || !is_device(src_device), cudaErrorInvalidDevice);
    REFUSE_IF(count == 0, cudaSuccess);
    Copy c = flat(dst, src, count);
    const cudaError_t e = check_copy(c, cudaMemcpyDeviceToDevice);
    REFUSE_IF(e != cudaSuccess, e);
    REFUSE_IF(device_holding(dst, -1) != dst_device || device_holding(src, -1) != src_device,
              cudaErrorInvalidValue);
    if (dst_device != src_device) c.kind = HOSTCUDA_D2H;
    return call.done(issue_copy(call, s, c, false));
}

cudaError_t cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                         size_t height, cudaMemcpyKind kind) {
    const Copy c = {dst, src, dpitch, spitch, width, height, 0, false};
    return copy_and_wait(__func__, c, kind, cudaStreamLegacy);
}

cudaError_t cudaMemcpy2D_ptds(void *dst, size_t dpitch, const void *src, size_t spitch,
                              size_t width, size_t height, cudaMemcpyKind kind) {
    const Copy c = {dst, src, dpitch, spitch, width, height, 0, false};
    return copy_and_wait("cudaMemcpy2D", c, kind, cudaStreamPerThread);
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
    ENTER(PLAIN, &P::call_copy);
    const Copy c = {dst, src, dpitch, spitch, width, height, 0, false};
    return call.done(copy(call, c, kind, stream, false));
}

static bool attributes_fit(const cudaMemcpyAttributes *attrs, const size_t *first, size_t count,
                           size_t copies) {
    if (!attrs || !first || count == 0 || count > copies || first[0] != 0) return false;
    for (size_t i = 0; i < count; ++i) {
        const int order = static_cast<int>(attrs[i].srcAccessOrder);
        if (order < cudaMemcpySrcAccessOrderStream || order > cudaMemcpySrcAccessOrderAny)
            return false;
        if (i > 0 && (first[i] <= first[i - 1] || first[i] >= copies)) return false;
    }
    return true;
}

/* All copies are checked before any is issued. They run one after another in the stream. */
cudaError_t cudaMemcpyBatchAsync(void *const *dsts, const void *const *srcs, const size_t *sizes,
                                 size_t count, cudaMemcpyAttributes *attrs, size_t *first,
                                 size_t attr_count, cudaStream_t stream) {
    ENTER(PLAIN, &P::call_copy);
    const StreamP s = find_stream(stream);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(is_legacy(*s) || !dsts || !srcs || !sizes || count == 0, cudaErrorInvalidValue);
    REFUSE_IF(!attributes_fit(attrs, first, attr_count, count), cudaErrorInvalidValue);
    if (s->capture) return call.done(invalidate(*s->capture, cudaErrorStreamCaptureUnsupported));
    std::vector<Copy> copies;
    for (size_t i = 0; i < count; ++i) {
        Copy c = flat(dsts[i], srcs[i], sizes[i]);
        REFUSE_IF(sizes[i] == 0, cudaErrorInvalidValue);
        const cudaError_t e = check_copy(c, cudaMemcpyDefault);
        REFUSE_IF(e != cudaSuccess, e);
        copies.push_back(c);
    }
    for (const Copy &c : copies) {
        const cudaError_t e = issue_copy(call, s, c, false);
        REFUSE_IF(e != cudaSuccess, e);
    }
    return call.done(cudaSuccess);
}

static cudaError_t set_now(void *p, int value, size_t count, cudaStream_t stream) {
    Call call("cudaMemset", UNSAFE, &P::call_copy);
    REFUSE_IF(call.refused != cudaSuccess, cudaSuccess);
    return call.done(set_memory(p, count, value, count, 1, stream));
}

cudaError_t cudaMemset(void *p, int value, size_t count) {
    return set_now(p, value, count, cudaStreamLegacy);
}

cudaError_t cudaMemset_ptds(void *p, int value, size_t count) {
    return set_now(p, value, count, cudaStreamPerThread);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t count, cudaStream_t stream) {
    ENTER(PLAIN, &P::call_copy);
    return call.done(set_memory(p, count, value, count, 1, stream));
}

cudaError_t cudaMemset2DAsync(void *p, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
    ENTER(PLAIN, &P::call_copy);
    return call.done(set_memory(p, pitch, value, width, height, stream));
}

cudaError_t cudaMemset2D(void *p, size_t pitch, int value, size_t width, size_t height) {
    ENTER(UNSAFE, &P::call_copy);
    return call.done(set_memory(p, pitch, value, width, height, cudaStreamLegacy));
}

cudaError_t cudaMallocPitch(void **p, size_t *pitch, size_t width, size_t height) {
    ENTER(UNSAFE, &P::call_malloc);
    REFUSE_IF(!p || !pitch, cudaErrorInvalidValue);
    const size_t align = 512;
    *pitch = (width + align - 1) / align * align;
    return call.done(allocate_device(p, *pitch * height));
}

cudaError_t hostcuda_copy_symbol(const char *name, const hostcuda_symbol_copy_t *c) {
    Call call(name, c->wait ? UNSAFE : PLAIN, &P::call_copy);
    REFUSE_IF(call.refused != cudaSuccess, cudaSuccess);
    return call.done(copy_symbol(call, *c));
}

/* From now on its address may be given to kernels and copies. */
cudaError_t hostcuda_symbol_address(void **p, void *symbol, size_t size) {
    Call call("cudaGetSymbolAddress", PLAIN);
    REFUSE_IF(call.refused != cudaSuccess, cudaSuccess);
    REFUSE_IF(!p, cudaErrorInvalidValue);
    if (block_of(state().device_blocks, symbol) == state().device_blocks.end()) {
        Block b;
        b.size = size;
        b.device = self.device;
        b.variable = true;
        remember(state().device_blocks, symbol, b);
    }
    *p = symbol;
    return call.done(cudaSuccess);
}

} /* extern "C" */
