/* hostcuda: streams and events, the threads that do their operations, and waiting for those. */
#include <algorithm>
#include <limits>

#include "hostcuda_internal.h"

namespace hc {

static StreamP new_stream(unsigned id, unsigned flags, int priority) {
    const StreamP s = std::make_shared<Stream>();
    s->id = id;
    s->device = self.device;
    s->flags = flags;
    s->priority = priority;
    return s;
}

StreamP find_stream(cudaStream_t handle) {
    if (!handle || handle == cudaStreamLegacy) return current().legacy;
    if (handle == cudaStreamPerThread) {
        StreamP &s = self.streams[self.device];
        /* numbers of their own, so that others' hardware queues do not depend on them */
        if (!s) s = new_stream(0x80000000u + ++state().own_stream_ids, cudaStreamDefault, 0);
        return s;
    }
    return find(state().streams, handle);
}

/* ---- waking threads -------------------------------------------------------------------------- */

void ring(const Bell &bell) { self.ringing.push_back(bell); }

void Lock::unlock() {
    held.unlock();
    for (const Bell &bell : self.ringing) bell->notify_one();
    self.ringing.clear();
}

/* Rings, if there is something to ring; then the caller looks again at what it waits for. */
bool Lock::rang() {
    if (self.ringing.empty()) return false;
    unlock();
    lock();
    return true;
}

void Lock::wait(std::condition_variable &on) {
    if (!rang()) on.wait(held);
}

void Lock::wait_for(std::condition_variable &on, std::chrono::milliseconds most) {
    if (!rang()) (void)on.wait_for(held, most);
}

/* ---- the stream's thread --------------------------------------------------------------------- */

/* Only those who wait for an operation are woken at its end: with one condition for all, each of
 * many streams would wake for each operation of the others. */
void wait_real(Lock &lock, Op &op) {
    if (op.done) return;
    op.sleepers.push_back(self.woken);
    while (!op.done) lock.wait(*self.woken);
}

static void sleep_a_little(unsigned seed) {
    thread_local unsigned x = 0;
    if (x == 0) x = seed * 2654435761u ^ static_cast<unsigned>(thread_key() >> 4) ^ 1u;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    if (x % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(x / 3 % 500));
}

void resolve(Op &op, double ns) {
    if (op.resolved) return;
    op.resolved = true;
    op.span = ns;
    state().changed.notify_all();
}

/* Does the operation's work, which the sanitizer sees. */
static cudaError_t execute(Op &op, bool skip, unsigned jitter) {
    const Shown shown;
    acquire(&op.issued);
    for (const OpP &d : op.deps) acquire(&d->finished);
    if (jitter) sleep_a_little(jitter);
    const cudaError_t e = skip || !op.work ? cudaSuccess : op.work();
    release(&op.finished);
    return e;
}

static const char *async_name(int kind);

const char *noun_of(const Op &op) { return op.parts.empty() ? async_name(op.kind) : "graph"; }

/* Does an operation; those that it waits for are done. */
static void run_op(Lock &lock, const OpP &op) {
    State &s = state();
    Device &d = device(op->device);
    if (op->fail == cudaSuccess && d.failed == cudaSuccess && !has_memory(*op)) {
        fprintf(stderr,
                "hostcuda: a %s uses memory that has been freed or unregistered, or that "
                "its stream has not allocated yet\n",
                noun_of(*op));
        op->fail = cudaErrorIllegalAddress;
    }
    if (op->fail != cudaSuccess && d.failed == cudaSuccess) d.failed = op->fail;
    const bool skip = d.failed != cudaSuccess && !op->always;
    const unsigned jitter = s.jitter;
    self.host_ns = 0;
    if (op->host) s.running_hosts[op.get()] = Steady::now();
    lock.unlock();
    cudaError_t e = execute(*op, skip, jitter);
    lock.lock();
    s.running_hosts.erase(op.get());
    if (e == cudaSuccess) e = op->fail; /* its memory was freed meanwhile */
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
    for (const Bell &sleeper : op->sleepers) ring(sleeper);
    op->sleepers.clear();
    s.changed.notify_all();
}

static double seen(const Op &op);

/* Keeps the last operation of a stream that is destroyed: its work has really been done, but may
 * still be in the future of the modelled clock. */
static void leave(Device &d, const Stream &s) {
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

/* Whether a stream's first operation waits for another stream's. Then the end of that one wakes the
 * stream's thread, and nothing before it needs to. */
static bool is_blocked(Stream &s) {
    if (s.awaited && !s.awaited->done) return true;
    s.awaited.reset();
    if (s.queue.empty()) return false;
    for (const OpP &d : s.queue.front()->deps) {
        if (d->done) continue;
        s.awaited = d;
        d->sleepers.push_back(s.wake);
        return true;
    }
    return false;
}

static void stream_thread(StreamP stream) {
    const Hidden hidden;
    Lock lock(state().mutex);
    for (;;) {
        while (is_blocked(*stream) || (stream->queue.empty() && !stream->closing)) {
            lock.wait(*stream->wake);
        }
        if (stream->queue.empty()) break;
        const OpP op = stream->queue.front();
        stream->queue.pop_front();
        stream->running = op;
        run_op(lock, op);
        stream->running.reset();
    }
    auto &list = device(stream->device).streams;
    list.erase(std::remove(list.begin(), list.end(), stream), list.end());
    if (stream->tail) leave(device(stream->device), *stream);
    if (stream->thread.joinable()) state().finished.push_back(std::move(stream->thread));
    state().changed.notify_all();
    stream.reset();
}

/* Joins them without the lock, since a finished thread may still hold it. */
void join_finished(Lock &lock) {
    std::vector<std::thread> threads;
    threads.swap(state().finished);
    lock.unlock();
    for (std::thread &t : threads) t.join();
    lock.lock();
}

void close_stream(const StreamP &s) {
    s->closing = true;
    ring(s->wake);
    auto &list = device(s->device).streams;
    if (!s->started) list.erase(std::remove(list.begin(), list.end(), s), list.end());
}

Thread::~Thread() {
    if (streams.empty()) return;
    const Hidden hidden;
    const Lock lock(state().mutex);
    for (auto &s : streams) close_stream(s.second);
    streams.clear();
}

/* ---- issuing --------------------------------------------------------------------------------- */

static const char *async_name(int kind) {
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

cudaError_t injected_async(int kind) {
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

OpP new_op(const Stream &s, int kind) {
    const OpP op = std::make_shared<Op>();
    op->kind = kind;
    op->device = s.device;
    op->stream = s.id;
    op->priority = s.priority;
    return op;
}

/* The legacy stream waits for all blocking streams, and they wait for it. */
void add_legacy_deps(const Stream &s, std::vector<OpP> &deps) {
    Device &d = device(s.device);
    if (is_blocking(s) && d.legacy->tail) deps.push_back(d.legacy->tail);
    if (!is_legacy(s)) return;
    for (const StreamP &other : d.streams)
        if (is_blocking(*other) && other->tail) deps.push_back(other->tail);
    for (const auto &l : d.left)
        if (l.second) deps.push_back(l.first);
}

void stamp(const OpP &op) {
    op->issue = clock_of_thread();
    op->seq = state().seq++;
    op->epoch = state().epoch;
}

/* Passes a complete operation to the model (with the operations that it follows) and to the
 * stream's thread. */
void enqueue(const StreamP &s, const OpP &op, const std::vector<OpP> &after) {
    model_add(op, after);
    op->fail = op->fail != cudaSuccess ? op->fail : injected_async(op->kind);
    if (op->fail != cudaSuccess) device(op->device).doomed = op;
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
    if (!s->running && !is_blocked(*s)) ring(s->wake);
}

void submit(const StreamP &s, const OpP &op) {
    std::vector<OpP> after;
    add_legacy_deps(*s, op->deps);
    after = op->deps;
    if (s->tail) after.push_back(s->tail);
    stamp(op);
    enqueue(s, op, after);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Returns a failure of the device's work: at synchronisations and at successful queries. */
cudaError_t surface(Device &d) {
    if (d.failed != cudaSuccess) d.sticky = d.failed;
    return d.sticky;
}

/* A host function that has run for long may be waiting for the thread that calls this. */
bool host_function_hangs(std::chrono::milliseconds patience) {
    const auto now = Steady::now();
    for (const auto &h : state().running_hosts)
        if (now - h.second > patience) return true;
    return false;
}

bool run_model(Lock &lock, double until, const Op *op, std::chrono::milliseconds patience,
               bool insist) {
    State &s = state();
    while (model_run(until, op) == Ran::STALLED) {
        if (!host_function_hangs(patience)) {
            lock.wait_for(s.changed, std::chrono::milliseconds(1));
            continue;
        }
        if (!insist) return false;
        for (const OpP &u : s.unresolved) u->running_free = true;
        if (model_run(until, op) == Ran::STALLED)
            lock.wait_for(s.changed, std::chrono::milliseconds(1));
    }
    return true;
}

/* When the followers of a modelled operation see that it has ended; 0 if the clock was reset
 * since. */
static double seen(const Op &op) { return op.epoch == state().epoch ? op.seen : 0; }

/* Advances this thread's clock to the modelled end of an operation. */
void clock_to(Lock &lock, const Op &op) {
    if (self.unmodelled) return;
    run_model(lock, NEVER, &op, std::chrono::milliseconds(1000), true);
    const double behind = seen(op) - clock_of_thread();
    if (behind > 0) clock_advance(behind);
}

static void see_results_of(Op &op) {
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

std::vector<OpP> tails(const Device &d) {
    std::vector<OpP> all;
    for (const auto &l : d.left) all.push_back(l.first);
    for (const StreamP &s : d.streams)
        if (s->tail) all.push_back(s->tail);
    return all;
}

void let_device_end(Call &call, Device &d) {
    for (const OpP &op : tails(d)) {
        wait_real(call.lock, *op);
        clock_to(call.lock, *op);
    }
}

void wait_for_device(Call &call, Device &d) {
    for (const OpP &op : tails(d)) wait_for(call, op);
}

/* cudaSuccess or cudaErrorNotReady. Ready means done on the modelled clock; then it also waits
 * until the operation has really been done. */
static cudaError_t query(Call &call, OpP op) /* by value: see wait_for; NOLINT */
{
    if (!op) return cudaSuccess;
    if (self.unmodelled) {
        if (op->done) see_results_of(*op);
        return op->done ? cudaSuccess : cudaErrorNotReady;
    }
    const std::chrono::milliseconds patience(100);
    if (!run_model(call.lock, clock_of_thread(), op.get(), patience, false))
        return cudaErrorNotReady;
    if (op->model != Model::DONE || seen(*op) > clock_of_thread()) {
        /* Where a query costs nothing, a polling loop would never end: go to the next event. */
        const double next = op->model == Model::DONE ? seen(*op) : model_next();
        if (!(current().profile.call_query > 0) && next < NEVER)
            clock_advance(std::max(0.0, next - clock_of_thread()));
        return cudaErrorNotReady;
    }
    while (!op->done) {
        if (host_function_hangs(patience)) return cudaErrorNotReady;
        call.lock.wait_for(state().changed, std::chrono::milliseconds(1));
    }
    see_results_of(*op);
    return cudaSuccess;
}

} /* namespace hc */

using namespace hc;

extern "C" {

/* ---- streams --------------------------------------------------------------------------------- */

static cudaError_t create_stream(Call &call, cudaStream_t *out, unsigned flags, int priority) {
    REFUSE_IF(!out || flags > cudaStreamNonBlocking, cudaErrorInvalidValue);
    join_finished(call.lock);
    const hostcuda_profile_t &p = current().profile;
    const int clamped = std::min(p.priority_least, std::max(p.priority_greatest, priority));
    *out = new_handle<cudaStream_t>();
    put(state().streams, *out, new_stream(++state().stream_ids, flags, clamped));
    return call.done(cudaSuccess);
}

cudaError_t cudaStreamCreate(cudaStream_t *out) {
    ENTER(PLAIN, &P::call_stream);
    return create_stream(call, out, cudaStreamDefault, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    ENTER(PLAIN, &P::call_stream);
    return create_stream(call, out, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
    ENTER(PLAIN, &P::call_stream);
    return create_stream(call, out, flags, priority);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    ENTER(RELEASE, &P::call_stream);
    const StreamP s = find(state().streams, handle);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    if (s->capture) return call.done(invalidate(*s->capture, cudaErrorStreamCaptureUnsupported));
    take(state().streams, handle);
    close_stream(s);
    return call.done(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
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
    trim_pools();
    return call.done(surface(device(s->device)));
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
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

static void join(const StreamP &s, const Event &e, const CaptureP &c) {
    if (!s->capture) {
        s->capture = c;
        s->capture_deps.clear();
        c->joined.push_back(s);
    }
    for (size_t d : e.capture_deps)
        if (std::find(s->capture_deps.begin(), s->capture_deps.end(), d) == s->capture_deps.end())
            s->capture_deps.push_back(d);
}

static cudaError_t wait_captured(const StreamP &s, const Event &e) {
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

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    ENTER(PLAIN, &P::call_wait);
    const StreamP s = find_stream(stream);
    const EventP e = find(state().events, event);
    REFUSE_IF(!s || !e, cudaErrorInvalidResourceHandle);
    REFUSE_IF(flags != cudaEventWaitDefault, cudaErrorInvalidValue);
    if (e->captured) return call.done(wait_captured(s, *e));
    if (!e->record) return call.done(cudaSuccess); /* no wait, in a capture either */
    if (s->capture) return call.done(invalidate(*s->capture, cudaErrorStreamCaptureIsolation));
    const OpP op = new_op(*s, HOSTCUDA_WAIT);
    op->deps.push_back(e->record);
    return call.done(submit_or_capture(s, op));
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority) {
    ENTER(PLAIN);
    const StreamP s = find_stream(handle);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!priority, cudaErrorInvalidValue);
    *priority = s->priority;
    return call.done(cudaSuccess);
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned *flags) {
    ENTER(PLAIN);
    const StreamP s = find_stream(handle);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!flags, cudaErrorInvalidValue);
    *flags = s->flags;
    return call.done(cudaSuccess);
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *out) {
    ENTER(PLAIN);
    const StreamP s = find_stream(handle);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!out, cudaErrorInvalidValue);
    /* As CUDA 13.0 does, in every mode. */
    if (s->capture) return call.done(invalidate(*s->capture, cudaErrorStreamCaptureUnsupported));
    *out = s->device;
    return call.done(cudaSuccess);
}

cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long *id) {
    ENTER(PLAIN);
    const StreamP s = find_stream(handle);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!id, cudaErrorInvalidValue);
    *id = s->id;
    return call.done(cudaSuccess);
}

static OpP host_op(const Stream &s) {
    const OpP op = new_op(s, HOSTCUDA_HOST_FUNC);
    op->host = true;
    op->resolved = false;
    op->latency = device(s.device).profile.host_func_latency;
    return op;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *user) {
    ENTER(PLAIN, &P::call_host_func);
    const StreamP s = find_stream(stream);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!fn, cudaErrorInvalidValue);
    const OpP op = host_op(*s);
    op->work = [fn, user] {
        self.in_host = true;
        fn(user);
        self.in_host = false;
        return cudaSuccess;
    };
    return call.done(submit_or_capture(s, op));
}

/* Unlike a host function it runs after a failure, too, and is told of it. */
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t fn, void *user,
                                  unsigned flags) {
    ENTER(PLAIN, &P::call_host_func);
    const StreamP s = find_stream(stream);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!fn || flags != 0, cudaErrorInvalidValue);
    if (s->capture) return call.done(invalidate(*s->capture, cudaErrorStreamCaptureUnsupported));
    const OpP op = host_op(*s);
    const int on = s->device;
    op->always = true;
    op->work = [fn, user, stream, on] {
        cudaError_t status;
        {
            const Hidden hidden;
            const Lock lock(state().mutex);
            status = device(on).failed;
        }
        self.in_host = true;
        fn(stream, status, user);
        self.in_host = false;
        return cudaSuccess;
    };
    return call.done(submit_or_capture(s, op));
}

/* ---- events ---------------------------------------------------------------------------------- */

static cudaError_t create_event(Call &call, cudaEvent_t *out, unsigned flags) {
    const unsigned known = cudaEventBlockingSync | cudaEventDisableTiming;
    REFUSE_IF(!out || (flags & ~known), cudaErrorInvalidValue);
    const EventP e = std::make_shared<Event>();
    e->flags = flags;
    e->device = self.device;
    *out = new_handle<cudaEvent_t>();
    put(state().events, *out, e);
    return call.done(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *out) {
    ENTER(PLAIN, &P::call_event);
    return create_event(call, out, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    ENTER(PLAIN, &P::call_event);
    return create_event(call, out, flags);
}

static cudaError_t record(Call &call, cudaEvent_t event, cudaStream_t stream) {
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

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    ENTER(PLAIN, &P::call_record);
    return record(call, event, stream);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    ENTER(PLAIN, &P::call_record);
    REFUSE_IF(flags != cudaEventRecordDefault, cudaErrorInvalidValue);
    return record(call, event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    ENTER(UNSAFE, &P::call_query);
    const EventP e = find(state().events, event);
    REFUSE_IF(!e, cudaErrorInvalidResourceHandle);
    REFUSE_IF(e->captured, cudaErrorCapturedEvent);
    const cudaError_t error = query(call, e->record);
    REFUSE_IF(error != cudaSuccess, error);
    return call.done(surface(device(e->device)));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    ENTER(UNSAFE, &P::call_sync);
    const EventP e = find(state().events, event);
    REFUSE_IF(!e, cudaErrorInvalidResourceHandle);
    REFUSE_IF(e->captured, cudaErrorCapturedEvent);
    const OpP record = e->record; /* the most recent at the call */
    wait_for(call, record);
    trim_pools();
    return call.done(surface(device(e->device)));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
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

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    ENTER(RELEASE, &P::call_event);
    return call.done(take(state().events, event) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

} /* extern "C" */
