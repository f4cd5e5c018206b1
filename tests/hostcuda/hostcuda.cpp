/* hostcuda: the runtime API. Calls check and issue; a thread for each stream does the work in
 * order. */
#include "hostcuda.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#ifdef __GLIBC__
#include <unistd.h>
#endif

#include "hostcuda_internal.h"

namespace hc {

#ifdef _WIN32
Thread &self_here()
{
    static thread_local Thread *thread = nullptr;
    if (!thread) thread = new Thread;
    return *thread;
}
#else
thread_local Thread self;
#endif

namespace {

const double NEVER = std::numeric_limits<double>::infinity();
typedef std::chrono::steady_clock Steady;

/* ---- start and end --------------------------------------------------------------------------- */

void arm(State &s, const std::string &what, long k, cudaError_t e, bool async)
{
    s.faults.push_back(Fault{what, async, k, e});
}

/* "cudaMalloc:3:2,kernel:1:700" */
void arm_from_environment(State &s)
{
    const char *text = getenv("HOSTCUDA_FAIL");
    std::string rest = text ? text : "";
    while (!rest.empty()) {
        const std::string item = rest.substr(0, rest.find(','));
        rest = item.size() < rest.size() ? rest.substr(item.size() + 1) : "";
        const size_t a = item.find(':'), b = item.find(':', a == std::string::npos ? a : a + 1);
        if (a == std::string::npos || b == std::string::npos) {
            fprintf(stderr, "hostcuda: HOSTCUDA_FAIL: \"%s\" is not function:k:error\n",
                    item.c_str());
            exit(2);
        }
        const std::string what = item.substr(0, a);
        arm(s, what, atol(item.c_str() + a + 1),
            static_cast<cudaError_t>(atoi(item.c_str() + b + 1)), what.compare(0, 4, "cuda") != 0);
    }
}

void at_exit(int status);

#ifdef __GLIBC__
void on_exit_hook(int status, void *) { at_exit(status); }
#else
void atexit_hook() { at_exit(1); }
#endif

void add_device(State &s, const hostcuda_profile_t &profile)
{
    std::unique_ptr<Device> d(new Device);
    d->profile = profile;
    d->legacy = std::make_shared<Stream>();
    d->legacy->device = static_cast<int>(s.devices.size());
    model_device(*d);
    s.devices.push_back(std::move(d));
}

State *make_state()
{
    State *s = new State; /* never deleted: the streams' threads may outlive main */
    const char *name = getenv("HOSTCUDA_PROFILE"), *count = getenv("HOSTCUDA_DEVICES");
    const hostcuda_profile_t profile = profile_named(name ? name : "h200");
    if (!profile.name[0]) {
        fprintf(stderr, "hostcuda: HOSTCUDA_PROFILE: no profile \"%s\"\n", name);
        exit(2);
    }
    const int devices = std::min(16, std::max(1, count ? atoi(count) : 1));
    for (int i = 0; i < devices; ++i) add_device(*s, profile);
    if (const char *seed = getenv("HOSTCUDA_JITTER")) s->jitter = static_cast<unsigned>(atoi(seed));
    arm_from_environment(*s);
#ifdef __GLIBC__
    on_exit(on_exit_hook, nullptr);
#else
    atexit(atexit_hook);
#endif
    return s;
}

uintptr_t thread_key() { return reinterpret_cast<uintptr_t>(&self); }

} /* namespace */

State &state()
{
    static State *s = make_state();
    return *s;
}

namespace {

Device &device(int i) { return *state().devices[static_cast<size_t>(i)]; }
Device &current() { return device(self.device); }

/* ---- every call ------------------------------------------------------------------------------ */

enum Flags : unsigned {
    PLAIN = 0,
    NO_STICKY = 1, /* works on a broken device */
    UNSAFE = 2,    /* forbidden while a capture forbids unsafe calls */
    RELEASE = 4    /* on a broken device: does its work, then returns the error */
};

cudaError_t invalidate(Capture &c, cudaError_t e)
{
    c.invalid = true;
    return e;
}

/* Captures forbid unsafe calls to all threads (global) or to the thread that began them
 * (thread-local). */
bool forbidden_by_capture()
{
    bool forbidden = false;
    auto &list = state().capturing;
    for (const auto &weak : list) {
        const CaptureP c = weak.lock();
        if (!c || self.mode == cudaStreamCaptureModeRelaxed) continue;
        const bool mine = c->thread == thread_key();
        const bool global =
            c->mode == cudaStreamCaptureModeGlobal && self.mode == cudaStreamCaptureModeGlobal;
        if (global || (mine && c->mode != cudaStreamCaptureModeRelaxed)) {
            forbidden = true;
            c->invalid = true;
        }
    }
    return forbidden;
}

cudaError_t injected(const char *function)
{
    State &s = state();
    cudaError_t e = cudaSuccess;
    for (size_t i = 0; i < s.faults.size();) {
        Fault &f = s.faults[i];
        if (f.async || (!f.what.empty() && f.what != function) || --f.left > 0) {
            ++i;
            continue;
        }
        e = f.error;
        ++s.fired;
        s.faults.erase(s.faults.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return e;
}

struct Call {
    Hidden hidden;
    Lock lock;
    cudaError_t refused = cudaSuccess; /* return done() at once */
    cudaError_t sticky = cudaSuccess;  /* RELEASE: returned in the end */

    Call(const char *function, unsigned flags, double hostcuda_profile_t::*cost = nullptr)
        : lock(state().mutex)
    {
        State &s = state();
        s.used = true;
        if (self.in_host) {
            refused = cudaErrorNotPermitted;
            return;
        }
        ++s.calls[function];
        ++s.all_calls;
        refused = injected(function);
        if (refused == cudaSuccess && !(flags & NO_STICKY)) sticky = current().sticky;
        if (refused == cudaSuccess && !(flags & RELEASE)) refused = sticky;
        if (refused == cudaSuccess && (flags & UNSAFE) && forbidden_by_capture())
            refused = cudaErrorStreamCaptureUnsupported;
        if (refused == cudaSuccess && cost) clock_advance(current().profile.*cost);
    }
    cudaError_t done(cudaError_t e)
    {
        if (refused != cudaSuccess)
            e = refused;
        else if (sticky != cudaSuccess)
            e = sticky;
        if (e != cudaSuccess) self.last = e;
        return e;
    }
};

#define ENTER(...)                                                                                 \
    Call call(__func__, __VA_ARGS__);                                                              \
    if (call.refused != cudaSuccess) return call.done(cudaSuccess)
#define REFUSE_IF(condition, error)                                                                \
    if (condition) return call.done(error)

typedef hostcuda_profile_t P;

/* ---- handles --------------------------------------------------------------------------------- */

/* Handles are numbers that are never used again, so a dead one is always known. */
template <typename H> H new_handle()
{
    state().handles += 16;
    return reinterpret_cast<H>(state().handles);
}

template <typename H, typename T> T find(const std::unordered_map<uintptr_t, T> &map, H handle)
{
    const auto i = map.find(reinterpret_cast<uintptr_t>(handle));
    return i == map.end() ? T() : i->second;
}

template <typename H, typename T>
void put(std::unordered_map<uintptr_t, T> &map, H handle, const T &value)
{
    map[reinterpret_cast<uintptr_t>(handle)] = value;
}

template <typename H, typename T> T take(std::unordered_map<uintptr_t, T> &map, H handle)
{
    const T value = find(map, handle);
    map.erase(reinterpret_cast<uintptr_t>(handle));
    return value;
}

StreamP new_stream(unsigned flags, int priority)
{
    const StreamP s = std::make_shared<Stream>();
    s->id = ++state().stream_ids;
    s->device = self.device;
    s->flags = flags;
    s->priority = priority;
    return s;
}

StreamP find_stream(cudaStream_t handle)
{
    if (!handle || handle == cudaStreamLegacy) return current().legacy;
    if (handle == cudaStreamPerThread) {
        StreamP &s = self.streams[self.device];
        if (!s) s = new_stream(cudaStreamDefault, 0);
        return s;
    }
    return find(state().streams, handle);
}

bool is_legacy(const Stream &s) { return s.id == 0; }
bool is_blocking(const Stream &s) { return !is_legacy(s) && !(s.flags & cudaStreamNonBlocking); }

/* ---- the stream's thread --------------------------------------------------------------------- */

void wait_real(Lock &lock, const Op &op)
{
    while (!op.done) state().changed.wait(lock);
}

void sleep_a_little(unsigned seed)
{
    thread_local unsigned x = 0;
    if (x == 0) x = seed * 2654435761u ^ static_cast<unsigned>(thread_key() >> 4) ^ 1u;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    if (x % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(x / 3 % 500));
}

void resolve(Op &op, double ns)
{
    if (op.resolved) return;
    op.resolved = true;
    op.span = ns;
    state().changed.notify_all();
}

/* The work, where the sanitizer looks; the operation itself holds it. */
cudaError_t execute(Op &op, bool skip, unsigned jitter)
{
    const Shown shown;
    acquire(&op.issued);
    for (const OpP &d : op.deps) acquire(&d->finished);
    if (jitter) sleep_a_little(jitter);
    const cudaError_t e = skip || !op.work ? cudaSuccess : op.work();
    release(&op.finished);
    return e;
}

void run_op(Lock &lock, const OpP &op)
{
    State &s = state();
    for (const OpP &d : op->deps) wait_real(lock, *d);
    Device &d = device(op->device);
    if (op->fail != cudaSuccess && d.failed == cudaSuccess) d.failed = op->fail;
    const bool skip = d.failed != cudaSuccess;
    const unsigned jitter = s.jitter;
    self.host_ns = 0;
    if (op->host) s.running_hosts[op.get()] = Steady::now();
    lock.unlock();
    const cudaError_t e = execute(*op, skip, jitter);
    lock.lock();
    s.running_hosts.erase(op.get());
    if (e != cudaSuccess && d.failed == cudaSuccess) d.failed = e;
    op->work = nullptr;
    op->deps.clear();
    resolve(*op, self.host_ns);
    for (const OpP &part : op->parts) {
        part->work = nullptr;
        resolve(*part, 0);
    }
    op->parts.clear();
    op->done = true;
    s.changed.notify_all();
}

double seen(const Op &op);

/* The work of a stream that is gone has really been done, but may not be on the modelled clock. Of
 * what is, the last is enough. */
void leave(Device &d, const Stream &s)
{
    OpP last;
    d.left.emplace_back(s.tail, is_blocking(s));
    for (const auto &l : d.left)
        if (l.first->model == Model::DONE && (!last || seen(*l.first) > seen(*last)))
            last = l.first;
    const auto over = [&](const std::pair<OpP, bool> &l) {
        return l.first->model == Model::DONE && l.first != last;
    };
    d.left.erase(std::remove_if(d.left.begin(), d.left.end(), over), d.left.end());
}

void stream_thread(StreamP stream)
{
    const Hidden hidden;
    Lock lock(state().mutex);
    for (;;) {
        while (stream->queue.empty() && !stream->closing) stream->wake.wait(lock);
        if (stream->queue.empty()) break;
        const OpP op = stream->queue.front();
        stream->queue.pop_front();
        stream->busy = true;
        run_op(lock, op);
        stream->busy = false;
    }
    auto &list = device(stream->device).streams;
    list.erase(std::remove(list.begin(), list.end(), stream), list.end());
    if (stream->tail) leave(device(stream->device), *stream);
    if (stream->thread.joinable()) state().finished.push_back(std::move(stream->thread));
    state().changed.notify_all();
    stream.reset();
}

/* Outside the lock, since a finished thread may still hold it. */
void join_finished(Lock &lock)
{
    std::vector<std::thread> threads;
    threads.swap(state().finished);
    lock.unlock();
    for (std::thread &t : threads) t.join();
    lock.lock();
}

void close_stream(const StreamP &s)
{
    s->closing = true;
    s->wake.notify_all();
    auto &list = device(s->device).streams;
    if (!s->started) list.erase(std::remove(list.begin(), list.end(), s), list.end());
}

} /* namespace */

Thread::~Thread()
{
    if (streams.empty()) return;
    const Hidden hidden;
    const Lock lock(state().mutex);
    for (auto &s : streams) close_stream(s.second);
    streams.clear();
}

namespace {

/* ---- issuing --------------------------------------------------------------------------------- */

const char *async_name(int kind)
{
    switch (kind) {
    case HOSTCUDA_KERNEL: return "kernel";
    case HOSTCUDA_MEMSET: return "memset";
    case HOSTCUDA_HOST_FUNC: return "host";
    case HOSTCUDA_H2D:
    case HOSTCUDA_D2H:
    case HOSTCUDA_D2D:
    case HOSTCUDA_H2H: return "copy";
    default: return "";
    }
}

cudaError_t injected_async(int kind)
{
    State &s = state();
    const std::string name = async_name(kind);
    if (name.empty()) return cudaSuccess;
    for (size_t i = 0; i < s.faults.size(); ++i) {
        Fault &f = s.faults[i];
        if (!f.async || (!f.what.empty() && f.what != name) || --f.left > 0) continue;
        const cudaError_t e = f.error;
        ++s.fired;
        s.faults.erase(s.faults.begin() + static_cast<std::ptrdiff_t>(i));
        return e;
    }
    return cudaSuccess;
}

OpP new_op(const Stream &s, int kind)
{
    const OpP op = std::make_shared<Op>();
    op->kind = kind;
    op->device = s.device;
    op->stream = s.id;
    op->priority = s.priority;
    return op;
}

/* The legacy stream waits for all blocking streams and they for it. */
void add_legacy_deps(const Stream &s, std::vector<OpP> &deps)
{
    Device &d = device(s.device);
    if (is_blocking(s) && d.legacy->tail) deps.push_back(d.legacy->tail);
    if (!is_legacy(s)) return;
    for (const StreamP &other : d.streams)
        if (is_blocking(*other) && other->tail) deps.push_back(other->tail);
    for (const auto &l : d.left)
        if (l.second) deps.push_back(l.first);
}

void stamp(const OpP &op)
{
    op->issue = clock_of_thread();
    op->seq = state().seq++;
    op->epoch = state().epoch;
}

/* Hands a finished description to the model (after those it follows) and to the stream's thread. */
void enqueue(const StreamP &s, const OpP &op, const std::vector<OpP> &after)
{
    model_add(op, after);
    op->fail = op->fail != cudaSuccess ? op->fail : injected_async(op->kind);
    {
        const Shown shown;
        release(&op->issued);
    }
    s->queue.push_back(op);
    s->tail = op;
    if (!s->started) {
        s->started = true;
        auto &list = device(s->device).streams;
        if (std::find(list.begin(), list.end(), s) == list.end()) list.push_back(s);
        s->thread = std::thread(stream_thread, s);
    }
    s->wake.notify_one();
}

void submit(const StreamP &s, const OpP &op)
{
    std::vector<OpP> after;
    add_legacy_deps(*s, op->deps);
    after = op->deps;
    if (s->tail) after.push_back(s->tail);
    stamp(op);
    enqueue(s, op, after);
}

/* ---- capture --------------------------------------------------------------------------------- */

/* An operation goes into the graph that its stream captures. */
void capture_op(Stream &s, const OpP &op)
{
    Graph &g = *s.capture->graph;
    Node n;
    n.shape = op;
    n.deps = s.capture_deps;
    for (size_t d : n.deps) g.nodes[d].leaf = false;
    g.nodes.push_back(n);
    s.capture_deps.assign(1, g.nodes.size() - 1);
}

/* Legacy work while a blocking stream captures would have to wait for what does not run. */
cudaError_t check_implicit(const Stream &s)
{
    if (!is_legacy(s)) return cudaSuccess;
    for (const auto &weak : state().capturing) {
        const CaptureP c = weak.lock();
        if (c && is_blocking(*c->origin) && c->origin->device == s.device)
            return invalidate(*c, cudaErrorStreamCaptureImplicit);
    }
    return cudaSuccess;
}

cudaError_t submit_or_capture(const StreamP &s, const OpP &op)
{
    if (s->capture) {
        if (s->capture->invalid) return cudaErrorStreamCaptureInvalidated;
        capture_op(*s, op);
        return cudaSuccess;
    }
    const cudaError_t e = check_implicit(*s);
    if (e == cudaSuccess) submit(s, op);
    return e;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* A failure of the device's work comes to light at synchronisations and successful queries. */
cudaError_t surface(Device &d)
{
    if (d.failed != cudaSuccess) d.sticky = d.failed;
    return d.sticky;
}

/* A host function that has run for long may be waiting for the very thread that asks. */
bool host_function_hangs(std::chrono::milliseconds patience)
{
    const auto now = Steady::now();
    for (const auto &h : state().running_hosts)
        if (now - h.second > patience) return true;
    return false;
}

bool run_model(Lock &lock, double until, const Op *op, std::chrono::milliseconds patience,
               bool insist)
{
    State &s = state();
    while (model_run(until, op) == Ran::STALLED) {
        if (!host_function_hangs(patience)) {
            s.changed.wait_for(lock, std::chrono::milliseconds(1));
            continue;
        }
        if (!insist) return false;
        for (const OpP &u : s.unresolved) u->running_free = true;
        if (model_run(until, op) == Ran::STALLED)
            s.changed.wait_for(lock, std::chrono::milliseconds(1));
    }
    return true;
}

/* When those that follow a modelled operation know of it; before all times if the clock was
 * reset since. */
double seen(const Op &op) { return op.epoch == state().epoch ? op.seen : 0; }

/* The modelled end of an operation, on this thread's clock. */
void clock_to(Lock &lock, const Op &op)
{
    run_model(lock, NEVER, &op, std::chrono::milliseconds(1000), true);
    const double behind = seen(op) - clock_of_thread();
    if (behind > 0) clock_advance(behind);
}

void see_results_of(Op &op)
{
    const Shown shown;
    acquire(&op.finished);
}

/* By value: while this waits, another thread may give the stream or event a newer operation. */
void wait_for(Call &call, OpP op) /* NOLINT */
{
    if (!op) return;
    wait_real(call.lock, *op);
    clock_to(call.lock, *op);
    see_results_of(*op);
}

std::vector<OpP> tails(const Device &d)
{
    std::vector<OpP> all;
    for (const auto &l : d.left) all.push_back(l.first);
    for (const StreamP &s : d.streams)
        if (s->tail) all.push_back(s->tail);
    return all;
}

void wait_for_device(Call &call, Device &d)
{
    for (const OpP &op : tails(d)) wait_for(call, op);
}

/* cudaSuccess or cudaErrorNotReady. Ready means: done on the modelled clock, and then really
 * waited for. */
cudaError_t query(Call &call, OpP op) /* by value: see wait_for; NOLINT */
{
    if (!op) return cudaSuccess;
    const std::chrono::milliseconds patience(100);
    if (!run_model(call.lock, clock_of_thread(), op.get(), patience, false))
        return cudaErrorNotReady;
    if (op->model != Model::DONE || seen(*op) > clock_of_thread()) {
        /* Where a query costs nothing a polling loop would stand still: go to the next event. */
        const double next = op->model == Model::DONE ? seen(*op) : model_next();
        if (!(current().profile.call_query > 0) && next < NEVER)
            clock_advance(std::max(0.0, next - clock_of_thread()));
        return cudaErrorNotReady;
    }
    while (!op->done) {
        if (host_function_hangs(patience)) return cudaErrorNotReady;
        state().changed.wait_for(call.lock, std::chrono::milliseconds(1));
    }
    see_results_of(*op);
    return cudaSuccess;
}

/* ---- memory ---------------------------------------------------------------------------------- */

uintptr_t key_of(const void *p) { return ~reinterpret_cast<uintptr_t>(p); }

/* The block that holds p, or end(). Keys fall as addresses rise. */
Blocks::iterator block_of(Blocks &blocks, const void *p)
{
    const auto i = blocks.lower_bound(key_of(p));
    if (i == blocks.end()) return i;
    const uintptr_t offset = reinterpret_cast<uintptr_t>(p) - ~i->first;
    return offset < i->second.size ? i : blocks.end();
}

bool overlaps(Blocks &blocks, const void *p, size_t size)
{
    if (block_of(blocks, p) != blocks.end()) return true;
    const char *last = static_cast<const char *>(p) + (size - 1);
    return block_of(blocks, last) != blocks.end() || [&] {
        const auto i = blocks.lower_bound(key_of(last));
        return i != blocks.end() && ~i->first >= reinterpret_cast<uintptr_t>(p);
    }();
}

enum class Where { DEVICE, PINNED, PAGEABLE, WRONG };

Where where_in(Blocks &blocks, const void *p, size_t size, Where inside)
{
    const auto i = block_of(blocks, p);
    if (i == blocks.end()) return overlaps(blocks, p, size) ? Where::WRONG : Where::PAGEABLE;
    const uintptr_t offset = reinterpret_cast<uintptr_t>(p) - ~i->first;
    return size <= i->second.size - offset ? inside : Where::WRONG;
}

/* What a range is, and WRONG if it runs over an edge. */
Where where_is(const void *p, size_t size)
{
    if (!p) return Where::WRONG;
    const Where d = where_in(state().device_blocks, p, size, Where::DEVICE);
    return d != Where::PAGEABLE ? d : where_in(state().host_blocks, p, size, Where::PINNED);
}

int device_holding(const void *p, int otherwise)
{
    const auto i = block_of(state().device_blocks, p);
    return i == state().device_blocks.end() ? otherwise : i->second.device;
}

void *allocate(size_t align, size_t size)
{
    void *p = nullptr;
#ifdef _WIN32
    p = _aligned_malloc(size, align);
    if (!p) return nullptr;
#else
    if (posix_memalign(&p, align, size) != 0) return nullptr;
#endif
    memset(p, 0xA5, size); /* new memory holds no zeros to rely on */
    return p;
}

void free_allocated(void *p)
{
#ifdef _WIN32
    _aligned_free(p);
#else
    free(p);
#endif
}

cudaError_t allocate_device(void **out, size_t size)
{
    Device &d = current();
    *out = nullptr;
    if (size == 0) return cudaSuccess;
    if (size > d.profile.memory - d.used) return cudaErrorMemoryAllocation;
    void *p = allocate(256, size);
    if (!p) return cudaErrorMemoryAllocation;
    Block b;
    b.size = size;
    b.device = self.device;
    state().device_blocks[key_of(p)] = b;
    d.used += size;
    *out = p;
    return cudaSuccess;
}

/* Forgets the block that starts at p; false if there is none. */
bool forget(Blocks &blocks, const void *p, bool registered, Block *was)
{
    const auto i = blocks.find(key_of(p));
    if (i == blocks.end() || i->second.registered != registered) return false;
    *was = i->second;
    blocks.erase(i);
    return true;
}

void really_free(void *p)
{
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

size_t extent(size_t pitch, size_t width, size_t height)
{
    return height ? pitch * (height - 1) + width : 0;
}

bool resolve_kind(cudaMemcpyKind wanted, Where dst, Where src, int *kind)
{
    const bool to = dst == Where::DEVICE, from = src == Where::DEVICE;
    *kind = from ? (to ? HOSTCUDA_D2D : HOSTCUDA_D2H) : (to ? HOSTCUDA_H2D : HOSTCUDA_H2H);
    switch (wanted) {
    case cudaMemcpyHostToHost: return *kind == HOSTCUDA_H2H;
    case cudaMemcpyHostToDevice: return *kind == HOSTCUDA_H2D;
    case cudaMemcpyDeviceToHost: return *kind == HOSTCUDA_D2H;
    case cudaMemcpyDeviceToDevice: return *kind == HOSTCUDA_D2D;
    case cudaMemcpyDefault: return true;
    }
    return false;
}

cudaError_t check_copy(Copy &c, cudaMemcpyKind wanted)
{
    if (static_cast<int>(wanted) < 0 || static_cast<int>(wanted) > 4)
        return cudaErrorInvalidMemcpyDirection;
    if (c.height > 1 && (c.width > c.dpitch || c.width > c.spitch))
        return cudaErrorInvalidPitchValue;
    const Where dst = where_is(c.dst, extent(c.dpitch, c.width, c.height));
    const Where src = where_is(c.src, extent(c.spitch, c.width, c.height));
    if (dst == Where::WRONG || src == Where::WRONG) return cudaErrorInvalidValue;
    if (!resolve_kind(wanted, dst, src, &c.kind)) return cudaErrorInvalidValue;
    c.pageable = dst == Where::PAGEABLE || src == Where::PAGEABLE;
    return cudaSuccess;
}

/* For ThreadSanitizer the first and the last page of every sixteen, and the last of all. */
void copy_bytes(char *dst, const char *src, size_t n)
{
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

void copy_rows(const Copy &c)
{
    if (c.dpitch == c.width && c.spitch == c.width) {
        copy_bytes(static_cast<char *>(c.dst), static_cast<const char *>(c.src),
                   c.width * c.height);
        return;
    }
    for (size_t i = 0; i < c.height; ++i)
        memmove(static_cast<char *>(c.dst) + i * c.dpitch,
                static_cast<const char *>(c.src) + i * c.spitch, c.width);
}

/* The modelled engine and time of a copy. */
void price_copy(Op &op, const Copy &c)
{
    const hostcuda_profile_t &p = device(op.device).profile;
    op.bytes = c.width * c.height;
    const double bytes = static_cast<double>(op.bytes);
    op.held = p.copy_lost;
    switch (c.kind) {
    case HOSTCUDA_H2D:
        op.engine = HOSTCUDA_COPY0;
        op.span = bytes / (c.pageable ? p.pageable_h2d : p.h2d);
        break;
    case HOSTCUDA_D2H:
        op.engine = p.copy_engines > 1 ? HOSTCUDA_COPY1 : HOSTCUDA_COPY0;
        op.span = bytes / (c.pageable ? p.pageable_d2h : p.d2h);
        break;
    case HOSTCUDA_D2D:
        op.engine = HOSTCUDA_COMPUTE;
        op.span = bytes / p.d2d;
        op.share = 1.0;
        break;
    default: op.held = 0; op.span = bytes / p.pageable_h2d;
    }
}

/* Pageable memory on the way to the device is read during the call, before the stream gets
 * there. */
void stage_now(Copy &c, std::shared_ptr<std::vector<char>> *staging)
{
    *staging = std::make_shared<std::vector<char>>(c.width * c.height);
    Copy to = c;
    to.dst = (*staging)->data();
    to.dpitch = c.width;
    {
        const Shown shown;
        copy_rows(to);
    }
    c.src = (*staging)->data();
    c.spitch = c.width;
}

cudaError_t issue_copy(Call &call, const StreamP &s, Copy c, bool synchronous)
{
    const OpP op = new_op(*s, c.kind);
    price_copy(*op, c);
    if (c.pageable && s->capture) return invalidate(*s->capture, cudaErrorStreamCaptureUnsupported);
    std::shared_ptr<std::vector<char>> staging;
    if (c.pageable && c.kind == HOSTCUDA_H2D) stage_now(c, &staging);
    op->work = [c, staging] {
        copy_rows(c);
        return cudaSuccess;
    };
    const cudaError_t e = submit_or_capture(s, op);
    if (e != cudaSuccess) return e;
    const bool to_host = c.kind == HOSTCUDA_D2H || c.kind == HOSTCUDA_H2H;
    if (synchronous || (c.pageable && to_host)) {
        wait_for(call, op);
        return surface(device(s->device));
    }
    if (staging) clock_to(call.lock, *op); /* the modelled host is busy, the real one need not be */
    return cudaSuccess;
}

cudaError_t copy(Call &call, Copy c, cudaMemcpyKind kind, cudaStream_t stream, bool synchronous)
{
    const StreamP s = find_stream(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (c.width == 0 || c.height == 0) return cudaSuccess;
    const cudaError_t e = check_copy(c, kind);
    if (e != cudaSuccess) return e;
    /* a synchronous copy within the device returns before it has run, as CUDA's does */
    return issue_copy(call, s, c, synchronous && c.kind != HOSTCUDA_D2D);
}

Copy flat(void *dst, const void *src, size_t count)
{
    return Copy{dst, src, count, count, count, 1, 0, false};
}

cudaError_t set_memory(void *p, size_t pitch, int value, size_t width, size_t height,
                       cudaStream_t stream)
{
    const StreamP s = find_stream(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (width == 0 || height == 0) return cudaSuccess;
    if (height > 1 && width > pitch) return cudaErrorInvalidPitchValue;
    const Where where = where_is(p, extent(pitch, width, height));
    if (where != Where::DEVICE && where != Where::PINNED) return cudaErrorInvalidValue;
    const OpP op = new_op(*s, HOSTCUDA_MEMSET);
    op->bytes = width * height;
    op->engine = HOSTCUDA_COMPUTE;
    op->share = 1.0;
    op->span = static_cast<double>(op->bytes) / device(s->device).profile.d2d;
    op->work = [p, pitch, value, width, height] {
        for (size_t i = 0; i < height; ++i)
            memset(static_cast<char *>(p) + i * pitch, value, width);
        return cudaSuccess;
    };
    return submit_or_capture(s, op);
}

/* ---- kernels --------------------------------------------------------------------------------- */

struct Arguments { /* the values at the launch */
    std::vector<char> bytes;
    std::vector<void *> pointers;
};

std::shared_ptr<Arguments> copy_arguments(const KernelInfo &k, void **args)
{
    const size_t align = 32; /* enough for any vector type */
    auto a = std::make_shared<Arguments>();
    size_t total = align;
    for (size_t size : k.sizes) total += (size + align - 1) / align * align;
    a->bytes.resize(total);
    const uintptr_t start = reinterpret_cast<uintptr_t>(a->bytes.data());
    char *p = a->bytes.data() + (align - start % align) % align;
    for (size_t i = 0; i < k.sizes.size(); ++i) {
        memcpy(p, args[i], k.sizes[i]);
        a->pointers.push_back(p);
        p += (k.sizes[i] + align - 1) / align * align;
    }
    return a;
}

cudaError_t check_launch(const hostcuda_profile_t &p, const KernelInfo &k,
                         const cudaLaunchConfig_t &c)
{
    const dim3 g = c.gridDim, b = c.blockDim;
    const unsigned max_threads = static_cast<unsigned>(p.max_threads_per_block);
    const unsigned max_x = p.cc_major < 3 ? 65535u : 2147483647u;
    if (!g.x || !g.y || !g.z || !b.x || !b.y || !b.z) return cudaErrorInvalidConfiguration;
    if (g.x > max_x || g.y > 65535u || g.z > 65535u) return cudaErrorInvalidConfiguration;
    if (b.x > max_threads || b.y > max_threads || b.z > 64u) return cudaErrorInvalidConfiguration;
    if (static_cast<unsigned long long>(b.x) * b.y * b.z > max_threads)
        return cudaErrorInvalidConfiguration;
    const size_t limit = std::max(p.shared_per_block, static_cast<size_t>(k.max_dynamic));
    return c.dynamicSmemBytes > limit ? cudaErrorInvalidValue : cudaSuccess;
}

void price_kernel(Op &op, const KernelInfo &k, const cudaLaunchConfig_t &c)
{
    const hostcuda_profile_t &p = device(op.device).profile;
    const double threads = static_cast<double>(c.gridDim.x) * c.gridDim.y * c.gridDim.z *
                           static_cast<double>(c.blockDim.x * c.blockDim.y * c.blockDim.z);
    const double capacity = static_cast<double>(p.sm_count) * p.threads_per_sm;
    op.engine = HOSTCUDA_COMPUTE;
    op.latency = p.kernel_latency;
    op.share = std::min(1.0, threads / capacity);
    op.span = k.timed ? k.fixed_ns + threads * k.ns_per_thread : threads * p.kernel_ns_per_thread;
    op.label = k.name.empty() ? "kernel" : k.name;
}

cudaError_t launch(const cudaLaunchConfig_t &c, const void *func, void **args)
{
    const auto known = state().kernels.find(func);
    if (known == state().kernels.end() || !known->second.invoker)
        return cudaErrorInvalidDeviceFunction;
    const KernelInfo &k = known->second;
    const StreamP s = find_stream(c.stream);
    if (!s || s->device != self.device) return cudaErrorInvalidResourceHandle;
    const cudaError_t e = check_launch(current().profile, k, c);
    if (e != cudaSuccess) return e;
    if (!k.sizes.empty() && !args) return cudaErrorInvalidValue;
    const OpP op = new_op(*s, HOSTCUDA_KERNEL);
    for (unsigned i = 0; i < c.numAttrs; ++i)
        if (c.attrs[i].id == cudaLaunchAttributePriority) op->priority = c.attrs[i].val.priority;
    price_kernel(*op, k, c);
    const auto values = copy_arguments(k, args);
    const auto invoker = k.invoker;
    op->work = [c, func, invoker, values] {
        return run_grid(func, invoker, c.gridDim, c.blockDim, c.dynamicSmemBytes,
                        values->pointers.data());
    };
    return submit_or_capture(s, op);
}

} /* namespace */
} /* namespace hc */

using namespace hc;

namespace hostcuda
{ /* declared in cuda_runtime.h, which this file does not need otherwise */

void register_kernel(const void *func, void (*invoker)(const void *, void *const *),
                     const size_t *sizes, unsigned count)
{
    const Hidden hidden;
    const Lock lock(state().mutex);
    KernelInfo &k = state().kernels[func];
    if (k.invoker) return;
    k.invoker = invoker;
    k.sizes.assign(sizes, sizes + count);
}

} /* namespace hostcuda */

/* ======== the API ============================================================================= */

extern "C" {

/* ---- errors ---------------------------------------------------------------------------------- */

struct ErrorText {
    cudaError_t error;
    const char *name, *text;
};

static const ErrorText error_texts[] = {
#define E(name, text)                                                                              \
    {                                                                                              \
        name, #name, text                                                                          \
    }
    E(cudaSuccess, "no error"),
    E(cudaErrorInvalidValue, "invalid argument"),
    E(cudaErrorMemoryAllocation, "out of memory"),
    E(cudaErrorInitializationError, "initialization error"),
    E(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    E(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    E(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    E(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    E(cudaErrorInvalidDeviceFunction, "invalid device function"),
    E(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    E(cudaErrorInvalidDevice, "invalid device ordinal"),
    E(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    E(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    E(cudaErrorNotReady, "device not ready"),
    E(cudaErrorOperatingSystem, "OS call failed or operation not supported on this OS"),
    E(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    E(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    E(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    E(cudaErrorAssert, "device-side assert triggered"),
    E(cudaErrorHostMemoryAlreadyRegistered,
      "part or all of the requested memory range is already mapped"),
    E(cudaErrorHostMemoryNotRegistered,
      "pointer does not correspond to a registered memory region"),
    E(cudaErrorMisalignedAddress, "misaligned address"),
    E(cudaErrorLaunchFailure, "unspecified launch failure"),
    E(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    E(cudaErrorNotPermitted, "operation not permitted"),
    E(cudaErrorNotSupported, "operation not supported"),
    E(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    E(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    E(cudaErrorStreamCaptureMerge,
      "operation would result in a merge of separate capture sequences"),
    E(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    E(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    E(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    E(cudaErrorStreamCaptureImplicit,
      "operation would make the legacy stream depend on a capturing stream"),
    E(cudaErrorCapturedEvent,
      "operation not permitted on an event last recorded in a capturing stream"),
    E(cudaErrorStreamCaptureWrongThread,
      "attempt to terminate a thread-local capture from another thread"),
    E(cudaErrorUnknown, "unknown error"),
#undef E
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (const ErrorText &t : error_texts)
        if (t.error == error) return t.name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (const ErrorText &t : error_texts)
        if (t.error == error) return t.text;
    return "unrecognized error code";
}

static cudaError_t last_error(bool clear)
{
    const Hidden hidden;
    const Lock lock(state().mutex);
    const cudaError_t sticky = current().sticky;
    const cudaError_t e = sticky != cudaSuccess ? sticky : self.last;
    if (clear) self.last = cudaSuccess;
    return e;
}

cudaError_t cudaGetLastError(void) { return last_error(true); }
cudaError_t cudaPeekAtLastError(void) { return last_error(false); }

cudaError_t cudaRuntimeGetVersion(int *version)
{
    ENTER(NO_STICKY);
    REFUSE_IF(!version, cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return call.done(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    ENTER(NO_STICKY);
    REFUSE_IF(!version, cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return call.done(cudaSuccess);
}

/* ---- devices --------------------------------------------------------------------------------- */

static bool is_device(int i) { return i >= 0 && static_cast<size_t>(i) < state().devices.size(); }

cudaError_t cudaGetDeviceCount(int *count)
{
    ENTER(NO_STICKY);
    REFUSE_IF(!count, cudaErrorInvalidValue);
    *count = static_cast<int>(state().devices.size());
    return call.done(cudaSuccess);
}

cudaError_t cudaGetDevice(int *out)
{
    ENTER(NO_STICKY);
    REFUSE_IF(!out, cudaErrorInvalidValue);
    *out = self.device;
    return call.done(cudaSuccess);
}

cudaError_t cudaSetDevice(int i)
{
    ENTER(NO_STICKY);
    REFUSE_IF(!is_device(i), cudaErrorInvalidDevice);
    self.device = i;
    return call.done(cudaSuccess);
}

static bool attribute(const hostcuda_profile_t &p, cudaDeviceAttr attr, int dev, int *value)
{
    const int old = p.cc_major < 3;
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = p.max_threads_per_block; return true;
    case cudaDevAttrMaxBlockDimZ: *value = 64; return true;
    case cudaDevAttrMaxGridDimX: *value = old ? 65535 : INT_MAX; return true;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; return true;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = static_cast<int>(p.shared_per_block);
        return true;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = static_cast<int>(p.shared_optin);
        return true;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = static_cast<int>(p.shared_optin);
        return true;
    case cudaDevAttrTotalConstantMemory: *value = 65536; return true;
    case cudaDevAttrWarpSize: *value = 32; return true;
    case cudaDevAttrMaxPitch: *value = INT_MAX; return true;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; return true;
    case cudaDevAttrGpuOverlap: *value = p.async_engine_count > 0; return true;
    case cudaDevAttrMultiProcessorCount: *value = p.sm_count; return true;
    case cudaDevAttrKernelExecTimeout:
    case cudaDevAttrIntegrated:
    case cudaDevAttrComputeMode:
    case cudaDevAttrTccDriver:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrIsMultiGpuBoard:
    case cudaDevAttrMultiGpuBoardGroupID:
    case cudaDevAttrHostNativeAtomicSupported:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables:
    case cudaDevAttrDirectManagedMemAccessFromHost:
    case cudaDevAttrClusterLaunch:
    case cudaDevAttrGPUDirectRDMASupported:
    case cudaDevAttrPciDomainId:
    case cudaDevAttrPciDeviceId: *value = 0; return true;
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem: *value = 1; return true;
    case cudaDevAttrConcurrentKernels: *value = p.concurrent_kernels; return true;
    case cudaDevAttrPciBusId: *value = 16 + dev; return true;
    case cudaDevAttrL2CacheSize: *value = static_cast<int>(p.l2_bytes); return true;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.threads_per_sm; return true;
    case cudaDevAttrAsyncEngineCount: *value = p.async_engine_count; return true;
    case cudaDevAttrComputeCapabilityMajor: *value = p.cc_major; return true;
    case cudaDevAttrComputeCapabilityMinor: *value = p.cc_minor; return true;
    case cudaDevAttrStreamPrioritiesSupported:
        *value = p.priority_least != p.priority_greatest;
        return true;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = 32; return true;
    case cudaDevAttrMemoryPoolsSupported: *value = !old; return true;
    case cudaDevAttrHostNumaId: *value = -1; return true;
    case cudaDevAttrClockRate: *value = 1000000; return true;
    case cudaDevAttrMemoryClockRate: *value = 1000000; return true;
    case cudaDevAttrGlobalMemoryBusWidth: *value = 4096; return true;
    default: return false;
    }
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attr, int i)
{
    ENTER(NO_STICKY);
    REFUSE_IF(!value, cudaErrorInvalidValue);
    REFUSE_IF(!is_device(i), cudaErrorInvalidDevice);
    return call.done(attribute(device(i).profile, attr, i, value) ? cudaSuccess
                                                                  : cudaErrorInvalidValue);
}

static int attribute_of(int i, cudaDeviceAttr attr)
{
    int value = 0;
    attribute(device(i).profile, attr, i, &value);
    return value;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int i)
{
    ENTER(NO_STICKY);
    REFUSE_IF(!prop, cudaErrorInvalidValue);
    REFUSE_IF(!is_device(i), cudaErrorInvalidDevice);
    const hostcuda_profile_t &p = device(i).profile;
    memset(prop, 0, sizeof *prop);
    snprintf(prop->name, sizeof prop->name, "hostcuda %s (modelled)", p.name);
    prop->totalGlobalMem = p.memory;
    prop->sharedMemPerBlock = p.shared_per_block;
    prop->sharedMemPerBlockOptin = prop->sharedMemPerMultiprocessor = p.shared_optin;
    prop->regsPerBlock = prop->regsPerMultiprocessor = 65536;
    prop->warpSize = 32;
    prop->memPitch = INT_MAX;
    prop->maxThreadsPerBlock = prop->maxThreadsDim[0] = prop->maxThreadsDim[1] =
        p.max_threads_per_block;
    prop->maxThreadsDim[2] = 64;
    prop->maxGridSize[0] = attribute_of(i, cudaDevAttrMaxGridDimX);
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->totalConstMem = 65536;
    prop->major = p.cc_major;
    prop->minor = p.cc_minor;
    prop->multiProcessorCount = p.sm_count;
    prop->canMapHostMemory = prop->unifiedAddressing = prop->hostRegisterSupported = 1;
    prop->canUseHostPointerForRegisteredMem = 1;
    prop->concurrentKernels = p.concurrent_kernels;
    prop->pciBusID = attribute_of(i, cudaDevAttrPciBusId);
    prop->asyncEngineCount = p.async_engine_count;
    prop->memoryBusWidth = attribute_of(i, cudaDevAttrGlobalMemoryBusWidth);
    prop->l2CacheSize = static_cast<int>(p.l2_bytes);
    prop->maxThreadsPerMultiProcessor = p.threads_per_sm;
    prop->streamPrioritiesSupported = attribute_of(i, cudaDevAttrStreamPrioritiesSupported);
    prop->maxBlocksPerMultiProcessor = 32;
    prop->integrated = attribute_of(i, cudaDevAttrIntegrated);
    prop->pageableMemoryAccess = attribute_of(i, cudaDevAttrPageableMemoryAccess);
    prop->pageableMemoryAccessUsesHostPageTables =
        attribute_of(i, cudaDevAttrPageableMemoryAccessUsesHostPageTables);
    prop->memoryPoolsSupported = attribute_of(i, cudaDevAttrMemoryPoolsSupported);
    prop->hostNumaId = -1;
    return call.done(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int i)
{
    ENTER(NO_STICKY);
    REFUSE_IF(!id || len < 13, cudaErrorInvalidValue);
    REFUSE_IF(!is_device(i), cudaErrorInvalidDevice);
    snprintf(id, static_cast<size_t>(len), "0000:%02x:00.0", static_cast<unsigned>(16 + i));
    return call.done(cudaSuccess);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER(PLAIN);
    if (least) *least = current().profile.priority_least;
    if (greatest) *greatest = current().profile.priority_greatest;
    return call.done(cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void)
{
    ENTER(UNSAFE, &P::call_sync);
    wait_for_device(call, current());
    return call.done(surface(current()));
}

static void reset_memory(Blocks &blocks, int of_device)
{
    for (auto i = blocks.begin(); i != blocks.end();) {
        if (i->second.device != of_device) {
            ++i;
            continue;
        }
        if (!i->second.registered) really_free(reinterpret_cast<void *>(~i->first));
        i = blocks.erase(i);
    }
}

/* Everything of the device goes, as in CUDA; a broken one works again. */
cudaError_t cudaDeviceReset(void)
{
    ENTER(NO_STICKY | UNSAFE);
    Device &d = current();
    wait_for_device(call, d);
    State &s = state();
    for (auto i = s.streams.begin(); i != s.streams.end();) {
        const bool gone = i->second->device == self.device;
        if (gone) close_stream(i->second);
        i = gone ? s.streams.erase(i) : std::next(i);
    }
    for (auto i = s.events.begin(); i != s.events.end();)
        i = i->second->device == self.device ? s.events.erase(i) : std::next(i);
    reset_memory(s.device_blocks, self.device);
    reset_memory(s.host_blocks, self.device);
    d.used = 0;
    d.failed = d.sticky = cudaSuccess;
    self.last = cudaSuccess;
    return call.done(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    ENTER(PLAIN);
    REFUSE_IF(!free_bytes || !total, cudaErrorInvalidValue);
    *total = current().profile.memory;
    *free_bytes = *total - current().used;
    return call.done(cudaSuccess);
}

/* ---- streams --------------------------------------------------------------------------------- */

static cudaError_t create_stream(Call &call, cudaStream_t *out, unsigned flags, int priority)
{
    REFUSE_IF(!out || flags > cudaStreamNonBlocking, cudaErrorInvalidValue);
    join_finished(call.lock);
    const hostcuda_profile_t &p = current().profile;
    const int clamped = std::min(p.priority_least, std::max(p.priority_greatest, priority));
    *out = new_handle<cudaStream_t>();
    put(state().streams, *out, new_stream(flags, clamped));
    return call.done(cudaSuccess);
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    ENTER(PLAIN, &P::call_stream);
    return create_stream(call, out, cudaStreamDefault, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    ENTER(PLAIN, &P::call_stream);
    return create_stream(call, out, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    ENTER(PLAIN, &P::call_stream);
    return create_stream(call, out, flags, priority);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    ENTER(RELEASE, &P::call_stream);
    const StreamP s = find(state().streams, handle);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    if (s->capture) return call.done(invalidate(*s->capture, cudaErrorStreamCaptureUnsupported));
    take(state().streams, handle);
    close_stream(s);
    return call.done(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    ENTER(PLAIN, &P::call_sync);
    const StreamP s = find_stream(handle);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    if (s->capture) return call.done(invalidate(*s->capture, cudaErrorStreamCaptureUnsupported));
    REFUSE_IF(forbidden_by_capture(), cudaErrorStreamCaptureUnsupported);
    std::vector<OpP> before;
    add_legacy_deps(*s, before);
    if (is_legacy(*s))
        for (const OpP &op : before) wait_for(call, op);
    wait_for(call, s->tail);
    return call.done(surface(device(s->device)));
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    ENTER(PLAIN, &P::call_query);
    const StreamP s = find_stream(handle);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    if (s->capture) return call.done(invalidate(*s->capture, cudaErrorStreamCaptureUnsupported));
    REFUSE_IF(forbidden_by_capture(), cudaErrorStreamCaptureUnsupported);
    std::vector<OpP> ops;
    if (is_legacy(*s)) add_legacy_deps(*s, ops);
    ops.push_back(s->tail);
    for (const OpP &op : ops) {
        const cudaError_t e = query(call, op);
        REFUSE_IF(e != cudaSuccess, e);
    }
    return call.done(surface(device(s->device)));
}

static void join(const StreamP &s, const Event &e, const CaptureP &c)
{
    if (!s->capture) {
        s->capture = c;
        s->capture_deps.clear();
        c->joined.push_back(s);
    }
    for (size_t d : e.capture_deps)
        if (std::find(s->capture_deps.begin(), s->capture_deps.end(), d) == s->capture_deps.end())
            s->capture_deps.push_back(d);
}

static cudaError_t wait_captured(const StreamP &s, const Event &e)
{
    const CaptureP c = e.capture.lock();
    if (!c) return cudaErrorCapturedEvent; /* the capture has ended */
    if (c->invalid) return cudaErrorStreamCaptureInvalidated;
    if (is_legacy(*s)) return invalidate(*c, cudaErrorStreamCaptureImplicit);
    if (s->capture && s->capture != c) {
        s->capture->invalid = true;
        return invalidate(*c, cudaErrorStreamCaptureMerge);
    }
    join(s, e, c);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    ENTER(PLAIN, &P::call_wait);
    const StreamP s = find_stream(stream);
    const EventP e = find(state().events, event);
    REFUSE_IF(!s || !e, cudaErrorInvalidResourceHandle);
    REFUSE_IF(flags != cudaEventWaitDefault, cudaErrorInvalidValue);
    if (e->captured) return call.done(wait_captured(s, *e));
    if (s->capture) return call.done(invalidate(*s->capture, cudaErrorStreamCaptureIsolation));
    if (!e->record) return call.done(cudaSuccess);
    const OpP op = new_op(*s, HOSTCUDA_WAIT);
    op->deps.push_back(e->record);
    return call.done(submit_or_capture(s, op));
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority)
{
    ENTER(PLAIN);
    const StreamP s = find_stream(handle);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!priority, cudaErrorInvalidValue);
    *priority = s->priority;
    return call.done(cudaSuccess);
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned *flags)
{
    ENTER(PLAIN);
    const StreamP s = find_stream(handle);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!flags, cudaErrorInvalidValue);
    *flags = s->flags;
    return call.done(cudaSuccess);
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *out)
{
    ENTER(PLAIN);
    const StreamP s = find_stream(handle);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!out, cudaErrorInvalidValue);
    *out = s->device;
    return call.done(cudaSuccess);
}

cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long *id)
{
    ENTER(PLAIN);
    const StreamP s = find_stream(handle);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!id, cudaErrorInvalidValue);
    *id = s->id;
    return call.done(cudaSuccess);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *user)
{
    ENTER(PLAIN, &P::call_host_func);
    const StreamP s = find_stream(stream);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!fn, cudaErrorInvalidValue);
    const OpP op = new_op(*s, HOSTCUDA_HOST_FUNC);
    op->host = true;
    op->resolved = false;
    op->latency = device(s->device).profile.host_func_latency;
    op->work = [fn, user] {
        self.in_host = true;
        fn(user);
        self.in_host = false;
        return cudaSuccess;
    };
    return call.done(submit_or_capture(s, op));
}

/* ---- events ---------------------------------------------------------------------------------- */

static cudaError_t create_event(Call &call, cudaEvent_t *out, unsigned flags)
{
    const unsigned known = cudaEventBlockingSync | cudaEventDisableTiming;
    REFUSE_IF(!out || (flags & ~known), cudaErrorInvalidValue);
    const EventP e = std::make_shared<Event>();
    e->flags = flags;
    e->device = self.device;
    *out = new_handle<cudaEvent_t>();
    put(state().events, *out, e);
    return call.done(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    ENTER(PLAIN, &P::call_event);
    return create_event(call, out, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    ENTER(PLAIN, &P::call_event);
    return create_event(call, out, flags);
}

static cudaError_t record(Call &call, cudaEvent_t event, cudaStream_t stream)
{
    const StreamP s = find_stream(stream);
    const EventP e = find(state().events, event);
    REFUSE_IF(!s || !e || s->device != e->device, cudaErrorInvalidResourceHandle);
    if (s->capture) {
        REFUSE_IF(s->capture->invalid, cudaErrorStreamCaptureInvalidated);
        e->captured = true;
        e->capture = s->capture;
        e->capture_deps = s->capture_deps;
        return call.done(cudaSuccess);
    }
    const OpP op = new_op(*s, HOSTCUDA_RECORD);
    const cudaError_t error = submit_or_capture(s, op);
    REFUSE_IF(error != cudaSuccess, error);
    e->captured = false;
    e->record = op;
    return call.done(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ENTER(PLAIN, &P::call_record);
    return record(call, event, stream);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    ENTER(PLAIN, &P::call_record);
    REFUSE_IF(flags != cudaEventRecordDefault, cudaErrorInvalidValue);
    return record(call, event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    ENTER(UNSAFE, &P::call_query);
    const EventP e = find(state().events, event);
    REFUSE_IF(!e, cudaErrorInvalidResourceHandle);
    REFUSE_IF(e->captured, cudaErrorCapturedEvent);
    const cudaError_t error = query(call, e->record);
    REFUSE_IF(error != cudaSuccess, error);
    return call.done(surface(device(e->device)));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ENTER(UNSAFE, &P::call_sync);
    const EventP e = find(state().events, event);
    REFUSE_IF(!e, cudaErrorInvalidResourceHandle);
    REFUSE_IF(e->captured, cudaErrorCapturedEvent);
    const OpP record = e->record; /* the most recent at the call */
    wait_for(call, record);
    return call.done(surface(device(e->device)));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    ENTER(PLAIN);
    const EventP a = find(state().events, start), b = find(state().events, end);
    REFUSE_IF(!ms, cudaErrorInvalidValue);
    REFUSE_IF(!a || !b || a->device != b->device, cudaErrorInvalidResourceHandle);
    REFUSE_IF((a->flags | b->flags) & cudaEventDisableTiming, cudaErrorInvalidResourceHandle);
    REFUSE_IF(a->captured || b->captured, cudaErrorCapturedEvent);
    REFUSE_IF(!a->record || !b->record, cudaErrorInvalidResourceHandle);
    const OpP first = a->record, second = b->record;
    const cudaError_t e1 = query(call, first);
    REFUSE_IF(e1 != cudaSuccess, e1);
    const cudaError_t e2 = query(call, second);
    REFUSE_IF(e2 != cudaSuccess, e2);
    *ms = static_cast<float>((second->end - first->end) * 1e-6);
    return call.done(cudaSuccess);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    ENTER(RELEASE, &P::call_event);
    return call.done(take(state().events, event) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

/* ---- memory ---------------------------------------------------------------------------------- */

cudaError_t cudaMalloc(void **p, size_t size)
{
    ENTER(UNSAFE, &P::call_malloc);
    REFUSE_IF(!p, cudaErrorInvalidValue);
    return call.done(allocate_device(p, size));
}

cudaError_t cudaFree(void *p)
{
    ENTER(RELEASE | UNSAFE, &P::call_malloc);
    REFUSE_IF(!p, cudaSuccess);
    Block was;
    REFUSE_IF(!forget(state().device_blocks, p, false, &was), cudaErrorInvalidValue);
    wait_for_device(call, device(was.device));
    device(was.device).used -= was.size;
    really_free(p);
    return call.done(surface(device(was.device)));
}

cudaError_t cudaMallocAsync(void **p, size_t size, cudaStream_t stream)
{
    ENTER(PLAIN, &P::call_launch);
    const StreamP s = find_stream(stream);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!p, cudaErrorInvalidValue);
    REFUSE_IF(s->device != self.device, cudaErrorInvalidResourceHandle);
    if (s->capture) return call.done(invalidate(*s->capture, cudaErrorStreamCaptureUnsupported));
    return call.done(allocate_device(p, size));
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t stream)
{
    ENTER(PLAIN, &P::call_launch);
    const StreamP s = find_stream(stream);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    if (s->capture) return call.done(invalidate(*s->capture, cudaErrorStreamCaptureUnsupported));
    REFUSE_IF(!p, cudaSuccess);
    Block was;
    REFUSE_IF(!forget(state().device_blocks, p, false, &was), cudaErrorInvalidValue);
    device(was.device).used -= was.size;
    const OpP op = new_op(*s, HOSTCUDA_OTHER);
    op->work = [p] {
        free_allocated(p);
        return cudaSuccess;
    };
    return call.done(submit_or_capture(s, op));
}

static cudaError_t pin(Call &call, void **p, size_t size, unsigned flags)
{
    const unsigned known = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    REFUSE_IF(!p || (flags & ~known), cudaErrorInvalidValue);
    *p = nullptr;
    REFUSE_IF(size == 0, cudaSuccess);
    *p = allocate(4096, size);
    REFUSE_IF(!*p, cudaErrorMemoryAllocation);
    Block b;
    b.size = size;
    b.device = self.device;
    b.flags = flags;
    state().host_blocks[key_of(*p)] = b;
    clock_advance(static_cast<double>(size) / current().profile.pin);
    return call.done(cudaSuccess);
}

cudaError_t cudaMallocHost(void **p, size_t size)
{
    ENTER(UNSAFE, &P::call_malloc);
    return pin(call, p, size, cudaHostAllocDefault);
}

cudaError_t cudaHostAlloc(void **p, size_t size, unsigned flags)
{
    ENTER(UNSAFE, &P::call_malloc);
    return pin(call, p, size, flags);
}

cudaError_t cudaFreeHost(void *p)
{
    ENTER(RELEASE | UNSAFE, &P::call_malloc);
    REFUSE_IF(!p, cudaSuccess);
    Block was;
    REFUSE_IF(!forget(state().host_blocks, p, false, &was), cudaErrorInvalidValue);
    wait_for_device(call, current());
    really_free(p);
    return call.done(surface(current()));
}

cudaError_t cudaHostRegister(void *p, size_t size, unsigned flags)
{
    ENTER(UNSAFE, &P::call_malloc);
    const unsigned known =
        cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterReadOnly;
    REFUSE_IF(!p || size == 0 || (flags & ~known), cudaErrorInvalidValue);
    State &s = state();
    REFUSE_IF(overlaps(s.device_blocks, p, size), cudaErrorInvalidValue);
    REFUSE_IF(overlaps(s.host_blocks, p, size), cudaErrorHostMemoryAlreadyRegistered);
    Block b;
    b.size = size;
    b.device = self.device;
    b.flags = flags | cudaHostAllocMapped;
    b.registered = true;
    s.host_blocks[key_of(p)] = b;
    clock_advance(static_cast<double>(size) / current().profile.reg);
    return call.done(cudaSuccess);
}

cudaError_t cudaHostUnregister(void *p)
{
    ENTER(RELEASE | UNSAFE, &P::call_malloc);
    REFUSE_IF(!p, cudaErrorInvalidValue);
    Block was;
    REFUSE_IF(!forget(state().host_blocks, p, true, &was), cudaErrorHostMemoryNotRegistered);
    wait_for_device(call, current());
    clock_advance(static_cast<double>(was.size) / current().profile.unreg);
    return call.done(surface(current()));
}

cudaError_t cudaHostGetDevicePointer(void **d, void *h, unsigned flags)
{
    ENTER(PLAIN);
    REFUSE_IF(!d || !h || flags != 0, cudaErrorInvalidValue);
    REFUSE_IF(block_of(state().host_blocks, h) == state().host_blocks.end(), cudaErrorInvalidValue);
    *d = h;
    return call.done(cudaSuccess);
}

cudaError_t cudaHostGetFlags(unsigned *flags, void *h)
{
    ENTER(PLAIN);
    REFUSE_IF(!flags || !h, cudaErrorInvalidValue);
    const auto i = block_of(state().host_blocks, h);
    REFUSE_IF(i == state().host_blocks.end(), cudaErrorInvalidValue);
    *flags = i->second.flags;
    return call.done(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *a, const void *p)
{
    ENTER(PLAIN);
    REFUSE_IF(!a || !p, cudaErrorInvalidValue);
    State &s = state();
    memset(a, 0, sizeof *a);
    void *const pointer = const_cast<void *>(p);
    const auto d = block_of(s.device_blocks, p), h = block_of(s.host_blocks, p);
    a->type = cudaMemoryTypeUnregistered;
    a->device = cudaInvalidDeviceId;
    a->hostPointer = pointer;
    if (d != s.device_blocks.end()) {
        a->type = cudaMemoryTypeDevice;
        a->device = d->second.device;
        a->devicePointer = pointer;
        a->hostPointer = nullptr;
    } else if (h != s.host_blocks.end()) {
        a->type = cudaMemoryTypeHost;
        a->device = h->second.device;
        a->devicePointer = pointer;
    }
    return call.done(cudaSuccess);
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, cudaMemcpyKind kind)
{
    ENTER(UNSAFE, &P::call_copy);
    return call.done(copy(call, flat(dst, src, count), kind, cudaStreamLegacy, true));
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    ENTER(PLAIN, &P::call_copy);
    return call.done(copy(call, flat(dst, src, count), kind, stream, false));
}

/* Between two devices the copy is modelled as a download from the source: it holds that engine
 * of the stream's device. */
cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device,
                                size_t count, cudaStream_t stream)
{
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
                         size_t height, cudaMemcpyKind kind)
{
    ENTER(UNSAFE, &P::call_copy);
    const Copy c = {dst, src, dpitch, spitch, width, height, 0, false};
    return call.done(copy(call, c, kind, cudaStreamLegacy, true));
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream)
{
    ENTER(PLAIN, &P::call_copy);
    const Copy c = {dst, src, dpitch, spitch, width, height, 0, false};
    return call.done(copy(call, c, kind, stream, false));
}

static bool attributes_fit(const cudaMemcpyAttributes *attrs, const size_t *first, size_t count,
                           size_t copies)
{
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
                                 size_t attr_count, cudaStream_t stream)
{
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

cudaError_t cudaMemset(void *p, int value, size_t count)
{
    ENTER(UNSAFE, &P::call_copy);
    return call.done(set_memory(p, count, value, count, 1, cudaStreamLegacy));
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t count, cudaStream_t stream)
{
    ENTER(PLAIN, &P::call_copy);
    return call.done(set_memory(p, count, value, count, 1, stream));
}

cudaError_t cudaMemset2DAsync(void *p, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream)
{
    ENTER(PLAIN, &P::call_copy);
    return call.done(set_memory(p, pitch, value, width, height, stream));
}

/* ---- launches -------------------------------------------------------------------------------- */

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *func, void **args)
{
    ENTER(PLAIN, &P::call_launch);
    REFUSE_IF(!config || (config->numAttrs && !config->attrs), cudaErrorInvalidValue);
    return call.done(launch(*config, func, args));
}

cudaError_t cudaLaunchKernel(const void *func, dim3 grid, dim3 block, void **args, size_t shared,
                             cudaStream_t stream)
{
    ENTER(PLAIN, &P::call_launch);
    cudaLaunchConfig_t config;
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = nullptr;
    config.numAttrs = 0;
    return call.done(launch(config, func, args));
}

static KernelInfo *known_kernel(const void *func)
{
    const auto i = state().kernels.find(func);
    return i == state().kernels.end() || !i->second.invoker ? nullptr : &i->second;
}

cudaError_t cudaFuncSetAttribute(const void *func, cudaFuncAttribute attr, int value)
{
    ENTER(PLAIN);
    KernelInfo *k = known_kernel(func);
    REFUSE_IF(!k, cudaErrorInvalidDeviceFunction);
    REFUSE_IF(attr == cudaFuncAttributePreferredSharedMemoryCarveout, cudaSuccess);
    REFUSE_IF(attr != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0,
              cudaErrorInvalidValue);
    REFUSE_IF(static_cast<size_t>(value) > current().profile.shared_optin, cudaErrorInvalidValue);
    k->max_dynamic = value;
    return call.done(cudaSuccess);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *func)
{
    ENTER(PLAIN);
    const KernelInfo *k = known_kernel(func);
    REFUSE_IF(!k, cudaErrorInvalidDeviceFunction);
    REFUSE_IF(!a, cudaErrorInvalidValue);
    const hostcuda_profile_t &p = current().profile;
    memset(a, 0, sizeof *a);
    a->maxThreadsPerBlock = p.max_threads_per_block;
    a->numRegs = 32;
    a->ptxVersion = a->binaryVersion = 10 * p.cc_major + p.cc_minor;
    a->maxDynamicSharedSizeBytes = std::max(static_cast<int>(p.shared_per_block), k->max_dynamic);
    a->preferredShmemCarveout = -1;
    return call.done(cudaSuccess);
}

/* By threads and dynamic shared memory alone: registers are not known here. */
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *func,
                                                          int block_size, size_t shared)
{
    ENTER(PLAIN);
    REFUSE_IF(!known_kernel(func), cudaErrorInvalidDeviceFunction);
    const hostcuda_profile_t &p = current().profile;
    REFUSE_IF(!blocks || block_size < 1, cudaErrorInvalidValue);
    const int rounded = (block_size + 31) / 32 * 32;
    int n = block_size > p.max_threads_per_block ? 0 : std::min(32, p.threads_per_sm / rounded);
    if (shared) n = std::min(n, static_cast<int>(p.shared_optin / shared));
    *blocks = n;
    return call.done(cudaSuccess);
}

/* ---- capture and graphs ---------------------------------------------------------------------- */

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode)
{
    ENTER(PLAIN);
    REFUSE_IF(!mode || static_cast<int>(*mode) < 0 || *mode > cudaStreamCaptureModeRelaxed,
              cudaErrorInvalidValue);
    std::swap(*mode, self.mode);
    return call.done(cudaSuccess);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode)
{
    ENTER(PLAIN);
    const StreamP s = find_stream(handle);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(static_cast<int>(mode) < 0 || mode > cudaStreamCaptureModeRelaxed,
              cudaErrorInvalidValue);
    REFUSE_IF(is_legacy(*s), cudaErrorStreamCaptureUnsupported);
    REFUSE_IF(s->capture, cudaErrorIllegalState);
    const CaptureP c = std::make_shared<Capture>();
    c->id = ++state().captures;
    c->graph = std::make_shared<Graph>();
    c->graph->device = s->device;
    c->handle = new_handle<cudaGraph_t>();
    c->origin = s;
    c->mode = mode;
    c->thread = thread_key();
    s->capture = c;
    s->capture_deps.clear();
    state().capturing.push_back(c);
    return call.done(cudaSuccess);
}

/* All leaves must be behind the origin's last operations. */
static bool all_joined(const Capture &c)
{
    const std::vector<size_t> &deps = c.origin->capture_deps;
    for (size_t i = 0; i < c.graph->nodes.size(); ++i)
        if (c.graph->nodes[i].leaf && std::find(deps.begin(), deps.end(), i) == deps.end())
            return false;
    return true;
}

static void leave_capture(const CaptureP &c)
{
    for (const auto &weak : c->joined)
        if (const StreamP s = weak.lock()) s->capture.reset();
    c->origin->capture.reset();
    c->origin.reset();
    auto &list = state().capturing;
    for (size_t i = 0; i < list.size();) {
        const CaptureP other = list[i].lock();
        if (!other || other == c)
            list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
        else
            ++i;
    }
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *out)
{
    Call call(__func__, PLAIN);
    const StreamP s = find_stream(handle);
    if (call.refused != cudaSuccess) { /* an injected fault, too, ends the capture */
        const CaptureP cut = s && !self.in_host ? s->capture : CaptureP();
        if (cut && cut->origin == s) leave_capture(cut);
        return call.done(cudaSuccess);
    }
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!out, cudaErrorInvalidValue);
    *out = nullptr;
    REFUSE_IF(!s->capture, cudaErrorIllegalState);
    const CaptureP c = s->capture;
    if (c->origin != s) return call.done(invalidate(*c, cudaErrorStreamCaptureUnmatched));
    REFUSE_IF(c->mode != cudaStreamCaptureModeRelaxed && c->thread != thread_key(),
              cudaErrorStreamCaptureWrongThread);
    const bool joined = all_joined(*c);
    leave_capture(c);
    REFUSE_IF(c->invalid, cudaErrorStreamCaptureInvalidated);
    REFUSE_IF(!joined, cudaErrorStreamCaptureUnjoined);
    *out = c->handle;
    put(state().graphs, *out, c->graph);
    return call.done(cudaSuccess);
}

static cudaStreamCaptureStatus status_of(const Stream &s)
{
    if (!s.capture) return cudaStreamCaptureStatusNone;
    return s.capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus *status)
{
    ENTER(PLAIN);
    const StreamP s = find_stream(handle);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!status, cudaErrorInvalidValue);
    *status = status_of(*s);
    return call.done(cudaSuccess);
}

/* Nodes are told apart by number within their graph. */
static cudaGraphNode_t node_handle(size_t i)
{
    return reinterpret_cast<cudaGraphNode_t>((i + 1) * 16);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **deps, const cudaGraphEdgeData **edges,
                                     size_t *count)
{
    ENTER(PLAIN);
    const StreamP s = find_stream(handle);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!status, cudaErrorInvalidValue);
    *status = status_of(*s);
    REFUSE_IF(*status != cudaStreamCaptureStatusActive, cudaSuccess);
    s->reported_deps.clear();
    for (size_t d : s->capture_deps) s->reported_deps.push_back(node_handle(d));
    if (id) *id = s->capture->id;
    if (graph) *graph = s->capture->handle;
    if (deps) *deps = s->reported_deps.data();
    if (edges) *edges = nullptr;
    if (count) *count = s->reported_deps.size();
    return call.done(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t handle, unsigned long long flags)
{
    ENTER(PLAIN);
    const GraphP g = find(state().graphs, handle);
    REFUSE_IF(!out || !g || flags != 0, cudaErrorInvalidValue);
    *out = new_handle<cudaGraphExec_t>();
    put(state().execs, *out, std::make_shared<Graph>(*g));
    return call.done(cudaSuccess);
}

/* The name that means the same in every version from 11.4. */
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t handle,
                                          unsigned long long flags)
{
    ENTER(PLAIN);
    const GraphP g = find(state().graphs, handle);
    REFUSE_IF(!out || !g || flags != 0, cudaErrorInvalidValue);
    *out = new_handle<cudaGraphExec_t>();
    put(state().execs, *out, std::make_shared<Graph>(*g));
    return call.done(cudaSuccess);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t handle, cudaStream_t stream)
{
    ENTER(PLAIN, &P::call_graph);
    REFUSE_IF(!find_stream(stream), cudaErrorInvalidResourceHandle);
    return call.done(find(state().execs, handle) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t *nodes, size_t *count)
{
    ENTER(PLAIN);
    const GraphP g = find(state().graphs, handle);
    REFUSE_IF(!g || !count, cudaErrorInvalidValue);
    const size_t total = g->nodes.size();
    for (size_t i = 0; nodes && i < *count; ++i) nodes[i] = i < total ? node_handle(i) : nullptr;
    *count = nodes ? std::min(*count, total) : total;
    return call.done(cudaSuccess);
}

/* A node of a launch on the stream's thread; of host functions the model learns the time. */
static cudaError_t run_node(Op &node)
{
    if (node.host) {
        const Hidden hidden;
        const Lock lock(state().mutex);
        state().running_hosts[&node] = Steady::now();
        self.host_ns = 0;
    }
    const cudaError_t e = node.fail != cudaSuccess ? node.fail : node.work();
    if (node.host) {
        const Hidden hidden;
        const Lock lock(state().mutex);
        state().running_hosts.erase(&node);
        resolve(node, self.host_ns);
    }
    return e;
}

/* Really the nodes run in captured order on the stream's thread; in the model, by their
 * dependencies. */
static void launch_graph(const StreamP &s, Graph &g)
{
    const OpP start = new_op(*s, HOSTCUDA_OTHER), end = new_op(*s, HOSTCUDA_OTHER);
    add_legacy_deps(*s, end->deps);
    if (g.last_launch) end->deps.push_back(g.last_launch);
    std::vector<OpP> before = end->deps, leaves(1, start), *const parts = &end->parts;
    if (s->tail) before.push_back(s->tail);
    stamp(start);
    model_add(start, before);
    for (const Node &n : g.nodes) {
        const OpP op = std::make_shared<Op>(*n.shape);
        op->stream = s->id;
        op->queued = false;
        op->fail = injected_async(op->kind);
        std::vector<OpP> after(1, start);
        for (size_t d : n.deps) after.push_back((*parts)[d]);
        stamp(op);
        model_add(op, after);
        if (n.leaf) leaves.push_back(op);
        parts->push_back(op);
    }
    Op *const self_op = end.get();
    end->work = [self_op] {
        cudaError_t e = cudaSuccess;
        for (size_t i = 0; i < self_op->parts.size() && e == cudaSuccess; ++i)
            e = run_node(*self_op->parts[i]);
        return e;
    };
    stamp(end);
    enqueue(s, end, leaves);
    g.last_launch = end;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream)
{
    ENTER(PLAIN, &P::call_graph);
    const StreamP s = find_stream(stream);
    const GraphP g = find(state().execs, handle);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!g, cudaErrorInvalidValue);
    REFUSE_IF(s->device != g->device, cudaErrorInvalidResourceHandle);
    if (s->capture) return call.done(invalidate(*s->capture, cudaErrorStreamCaptureUnsupported));
    const cudaError_t e = check_implicit(*s);
    REFUSE_IF(e != cudaSuccess, e);
    clock_advance(current().profile.call_graph_node * static_cast<double>(g->nodes.size()));
    launch_graph(s, *g);
    return call.done(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle)
{
    ENTER(RELEASE);
    return call.done(take(state().graphs, handle) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle)
{
    ENTER(RELEASE);
    return call.done(take(state().execs, handle) ? cudaSuccess : cudaErrorInvalidValue);
}

/* ======== hostcuda's own ====================================================================== */

hostcuda_profile_t hostcuda_profile(const char *name) { return profile_named(name ? name : ""); }

cudaError_t hostcuda_set_profile(int i, const hostcuda_profile_t *profile)
{
    const Hidden hidden;
    const Lock lock(state().mutex);
    if (!is_device(i)) return cudaErrorInvalidDevice;
    if (!profile || !profile->name[0] || profile->copy_engines < 1 || profile->copy_engines > 2 ||
        profile->queues < 1)
        return cudaErrorInvalidValue;
    Device &d = device(i);
    model_run(NEVER, nullptr);
    for (const auto &q : d.queues)
        if (!q.empty()) return cudaErrorNotReady;
    d.profile = *profile;
    model_device(d);
    return cudaSuccess;
}

hostcuda_profile_t hostcuda_get_profile(int i)
{
    const Hidden hidden;
    const Lock lock(state().mutex);
    return is_device(i) ? device(i).profile : profile_named("");
}

cudaError_t hostcuda_set_devices(int count)
{
    const Hidden hidden;
    const Lock lock(state().mutex);
    State &s = state();
    if (count < 1 || count > 16) return cudaErrorInvalidValue;
    if (static_cast<size_t>(count) < s.devices.size()) return cudaErrorInvalidValue;
    while (s.devices.size() < static_cast<size_t>(count)) {
        const hostcuda_profile_t p = s.devices[0]->profile;
        add_device(s, p);
    }
    return cudaSuccess;
}

cudaError_t hostcuda_set_memory(size_t bytes)
{
    const Hidden hidden;
    const Lock lock(state().mutex);
    if (bytes < current().used) return cudaErrorInvalidValue;
    current().profile.memory = bytes;
    return cudaSuccess;
}

void hostcuda_kernel_time(const void *func, double fixed_ns, double ns_per_thread)
{
    const Hidden hidden;
    const Lock lock(state().mutex);
    KernelInfo &k = state().kernels[func];
    k.timed = true;
    k.fixed_ns = fixed_ns;
    k.ns_per_thread = ns_per_thread;
}

void hostcuda_kernel_name(const void *func, const char *name)
{
    const Hidden hidden;
    const Lock lock(state().mutex);
    state().kernels[func].name = name ? name : "";
}

double hostcuda_now_ns(void)
{
    if (self.in_host) return -1;
    const Hidden hidden;
    const Lock lock(state().mutex);
    return clock_of_thread();
}

void hostcuda_host_work(double ns)
{
    if (!(ns > 0)) return;
    if (self.in_host) {
        self.host_ns += ns;
        return;
    }
    const Hidden hidden;
    const Lock lock(state().mutex);
    clock_advance(ns);
}

void hostcuda_clock_reset(void)
{
    const Hidden hidden;
    Lock lock(state().mutex);
    State &s = state();
    for (const auto &d : s.devices)
        for (const OpP &op : tails(*d)) wait_real(lock, *op);
    run_model(lock, NEVER, nullptr, std::chrono::milliseconds(1000), true);
    s.now = s.latest = 0;
    ++s.epoch;
}

void hostcuda_trace_start(void)
{
    const Hidden hidden;
    const Lock lock(state().mutex);
    state().tracing = true;
    state().trace.clear();
}

static void describe(const Op &op, hostcuda_op_t *out)
{
    memset(out, 0, sizeof *out);
    out->kind = op.kind;
    out->engine = op.engine;
    out->device = op.device;
    out->stream = op.stream;
    out->bytes = op.bytes;
    const std::string label = op.label.empty() ? hostcuda_kind_name(op.kind) : op.label;
    label.copy(out->label, sizeof out->label - 1);
    out->issue_ns = op.issue;
    out->start_ns = op.start;
    out->end_ns = op.end;
}

size_t hostcuda_trace(hostcuda_op_t *out, size_t max)
{
    const Hidden hidden;
    const Lock lock(state().mutex);
    std::vector<OpP> ops = state().trace;
    std::sort(ops.begin(), ops.end(), [](const OpP &a, const OpP &b) { return a->seq < b->seq; });
    for (size_t i = 0; out && i < ops.size() && i < max; ++i) describe(*ops[i], &out[i]);
    return ops.size();
}

void hostcuda_trace_print(FILE *f)
{
    static const char *const engines[] = {"-", "copy0", "copy1", "compute"};
    std::vector<hostcuda_op_t> ops(hostcuda_trace(nullptr, 0));
    hostcuda_trace(ops.data(), ops.size());
    fprintf(f,
            "modelled, us:   issue       start         end  dev stream engine   bytes      what\n");
    for (const hostcuda_op_t &op : ops)
        fprintf(f, "%21.3f %11.3f %11.3f %4d %6u %-8s %-10zu %s\n", op.issue_ns * 1e-3,
                op.start_ns * 1e-3, op.end_ns * 1e-3, op.device, op.stream, engines[op.engine],
                op.bytes, op.label);
}

const char *hostcuda_kind_name(int kind)
{
    static const char *const names[] = {"h2d",    "d2h",           "d2d",    "h2h",  "memset",
                                        "kernel", "host function", "record", "wait", "other"};
    return kind >= 0 && kind <= HOSTCUDA_OTHER ? names[kind] : "?";
}

void hostcuda_fail(const char *function, long k, cudaError_t e)
{
    const Hidden hidden;
    const Lock lock(state().mutex);
    arm(state(), function ? function : "", k, e, false);
}

void hostcuda_fail_async(const char *what, long k, cudaError_t e)
{
    const Hidden hidden;
    const Lock lock(state().mutex);
    arm(state(), what ? what : "", k, e, true);
}

void hostcuda_fail_clear(void)
{
    const Hidden hidden;
    const Lock lock(state().mutex);
    state().faults.clear();
    state().fired = 0;
}

long hostcuda_fail_fired(void)
{
    const Hidden hidden;
    const Lock lock(state().mutex);
    return state().fired;
}

long hostcuda_calls(const char *function)
{
    const Hidden hidden;
    const Lock lock(state().mutex);
    if (!function) return state().all_calls;
    const auto i = state().calls.find(function);
    return i == state().calls.end() ? 0 : i->second;
}

void hostcuda_calls_reset(void)
{
    const Hidden hidden;
    const Lock lock(state().mutex);
    state().calls.clear();
    state().all_calls = 0;
}

const char *hostcuda_called(size_t i)
{
    const Hidden hidden;
    const Lock lock(state().mutex);
    for (const auto &c : state().calls)
        if (i-- == 0) return c.first.c_str();
    return nullptr;
}

void hostcuda_break_device(cudaError_t e)
{
    const Hidden hidden;
    const Lock lock(state().mutex);
    current().failed = e;
}

void hostcuda_set_jitter(unsigned seed)
{
    const Hidden hidden;
    const Lock lock(state().mutex);
    state().jitter = seed;
}

int hostcuda_leaks(FILE *f) { return report_leaks(f); }

} /* extern "C" */

namespace hc {

static int list_blocks(const Blocks &blocks, FILE *f, bool on_device)
{
    for (const auto &b : blocks) {
        const char *what = on_device             ? "device memory"
                           : b.second.registered ? "registered host memory"
                                                 : "pinned memory";
        if (f)
            fprintf(f, "hostcuda:   %s: %zu bytes (device %d)\n", what, b.second.size,
                    b.second.device);
    }
    return static_cast<int>(blocks.size());
}

static int list_count(size_t count, const char *what, FILE *f)
{
    if (f && count) fprintf(f, "hostcuda:   %s: %zu\n", what, count);
    return static_cast<int>(count);
}

namespace {

bool any_closing()
{
    for (const auto &d : state().devices)
        for (const StreamP &s : d->streams)
            if (s->closing) return true;
    return false;
}

/* Threads of destroyed streams end, with a bound on the wait; those of live ones are left to
 * idle. */
void let_threads_end()
{
    if (self.in_host) return;
    const Hidden hidden;
    Lock lock(state().mutex);
    state().changed.wait_for(lock, std::chrono::seconds(2), [] { return !any_closing(); });
    for (const auto &d : state().devices)
        for (const StreamP &s : d->streams)
            if (s->thread.joinable()) s->thread.detach();
    join_finished(lock);
}

void at_exit(int status)
{
    let_threads_end();
    if (report_leaks(nullptr) == 0) return;
    fprintf(stderr, "hostcuda: alive at exit:\n");
    report_leaks(stderr);
    const char *mode = getenv("HOSTCUDA_LEAKS");
    if (status != 0 || (mode && strcmp(mode, "0") == 0)) return;
#ifdef __GLIBC__
    fflush(nullptr);
    _exit(97);
#endif
}

} /* namespace */

int report_leaks(FILE *f)
{
    const Hidden hidden;
    const Lock lock(state().mutex);
    const State &s = state();
    return list_count(s.streams.size(), "streams", f) + list_count(s.events.size(), "events", f) +
           list_count(s.graphs.size(), "graphs", f) +
           list_count(s.execs.size(), "executable graphs", f) +
           list_blocks(s.device_blocks, f, true) + list_blocks(s.host_blocks, f, false);
}

} /* namespace hc */
