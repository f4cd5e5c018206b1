/* hostcuda: the modelled clock.
 *
 * An event simulation. An operation becomes ready when the operations before it are done and the
 * host has issued it. It then passes its hardware queue, waits for its engine, and occupies it for
 * its time:
 * - copies: one at a time on each copy engine; both directions at once slow each other
 *   (both_ways);
 * - kernels, memsets, copies within the device: share the compute engine by threads. The most
 *   urgent, then the first started, takes the share it can use and leaves the rest to the next;
 *   a kernel starts only when there is a rest. So small kernels run side by side and full ones
 *   one after another, the next one moving in as shares come free. A kernel of more threads than
 *   the device has runs in rounds of blocks; the blocks that run end before a more urgent kernel
 *   gets their place.
 * Host functions hold no engine. Records and waits take no time. With one hardware queue (before
 * Kepler) each engine takes its operations strictly in issue order, so one that is not ready
 * blocks those behind it. With several, streams share them in turn. */
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "hostcuda_internal.h"

namespace hc {
namespace {

/* ---- profiles -------------------------------------------------------------------------------- */

/* n GiB, or as much as a size_t can hold where it has 32 bits. */
size_t gib(size_t n) {
    const size_t most = std::numeric_limits<size_t>::max();
    return n > most >> 30 ? most : n << 30;
}

/* A figure without a named source is from the vendor's data sheet, or a round number of the right
 * size. None is fitted to the published asynchronous times of any program. */
hostcuda_profile_t ideal() {
    hostcuda_profile_t p;
    memset(&p, 0, sizeof p);
    strcpy(p.name, "ideal");
    p.copy_engines = p.async_engine_count = 2;
    p.queues = 32;
    p.concurrent_kernels = 1;
    p.sm_count = 16;
    p.threads_per_sm = 2048;
    p.max_threads_per_block = 1024;
    p.cc_major = 9;
    p.priority_least = 0;
    p.priority_greatest = -5;
    p.memory = gib(16);
    p.shared_per_block = 48 * 1024;
    p.shared_optin = 227 * 1024;
    p.l2_bytes = static_cast<size_t>(4) << 20;
    p.h2d = p.d2h = p.pageable_h2d = p.pageable_d2h =
        10.0; /* 1 byte takes 0.1 ns, for simple arithmetic */
    p.d2d = 100.0;
    p.both_ways = 1.0;
    p.pin = p.reg = p.unreg = 1e30; /* pinning takes no time */
    p.host_fill = p.host_drain = 10.0;
    p.host_memory = 1e30;
    p.kernel_ns_per_thread = 0.4; /* one float per thread: as long as its copy */
    return p;
}

hostcuda_profile_t ideal1() {
    hostcuda_profile_t p = ideal();
    strcpy(p.name, "ideal1");
    p.copy_engines = p.async_engine_count = 1;
    p.queues = 1;
    return p;
}

hostcuda_profile_t h200() {
    hostcuda_profile_t p = ideal();
    strcpy(p.name, "h200");
    p.async_engine_count = 3; /* as an H200 reports; one per direction does host copies */
    p.queues = 8;             /* the driver's default CUDA_DEVICE_MAX_CONNECTIONS */
    p.sm_count = 132;
    p.memory = gib(139);
    p.l2_bytes = static_cast<size_t>(50) << 20;
    /* Measured: H200, PCIe 5.0 x16, 16 CPUs, driver 580.159, CUDA 13.0, 2026-11-23. both_ways and
     * copy_lost are those of a ring of slots; the pageable figures are of arrays that no cache
     * holds, in a program with other pinned memory. */
    p.h2d = 55.3;
    p.d2h = 55.2;
    p.both_ways = 51.5 / 55.3; /* 51.5 GB/s each way */
    p.copy_lost = 3600.0;
    p.pageable_h2d = 7.0;
    p.pageable_d2h = 9.0;
    p.pageable_lost = 90000.0;
    p.host_wake = 22000.0;
    /* fits one-shot runs, 2026-11-24 */
    p.host_start = 50000.0;
    /* fit 458 kept runs over pageable memory, 16 MiB to 4 GiB, 2026-11-26 */
    p.host_fill = 7.4;
    p.host_drain = 10.4;
    p.host_memory = 98.0;
    p.host_task = 6000.0; /* 12 us a chunk, which is handed over twice: filled, drained */
    /* measured on the same machines, 2026-11-22 to 24 */
    p.pin = 2.4;
    p.reg = 27.0;
    p.unreg = 69.0;
    p.call_launch = 3800.0;
    p.call_copy = 1900.0;
    p.call_host_func = 1900.0;
    p.call_record = 270.0;
    p.call_wait = 260.0;
    p.call_query = 340.0;
    p.call_event = 210.0;   /* create + destroy 420 */
    p.call_stream = 2350.0; /* create + destroy 4700 */
    p.call_graph = 3300.0;  /* with 1100 per node: 3.3 us per chunk of three nodes when replayed */
    p.call_graph_node = 1100.0;
    /* not measured */
    p.d2d = 2000.0;                 /* 4.8 TB/s of memory, read and written, less some */
    p.kernel_latency = 3000.0;      /* a launch on an idle stream takes a few us to begin */
    p.kernel_ns_per_thread = 0.002; /* 8 bytes a thread at 4 TB/s */
    p.host_func_latency = 100000.0; /* velox#6096: about 100 us */
    p.call_sync = 2000.0;
    p.call_malloc = 100000.0;
    return p;
}

/* ---- GPUs that read host pages by themselves: not measured, after public reports ----
 * What no report says is as on the H200 and its host: what calls take, pinning, starting and waking
 * threads. README.md has links to the reports. */

/* Grace Hopper: a GPU with memory of its own, coherent with the CPU's over NVLink-C2C. */
hostcuda_profile_t gh200() {
    hostcuda_profile_t p = h200();
    strcpy(p.name, "gh200");
    p.memory = gib(96);
    p.pageable_access = p.host_page_tables = 1;
    /* 97.4 GiB/s of pinned and 93.0 of pageable memory (vortex#7815). The other direction and both
     * at once: not reported, as the first one alone. */
    p.h2d = p.d2h = p.pageable_h2d = p.pageable_d2h = 104.6;
    p.both_ways = 1.0;
    /* 0.1 to 0.25 GB/s on GPUs of this kind; no report is of this one, the nearest of a GB300
     * (cosmos-framework#150) */
    p.file_pages = 0.25;
    /* 10.5 GiB/s of one thread, 94.3 of 32, from the page cache (kvikio#629) */
    p.host_fill = p.host_drain = 11.3;
    p.host_memory = 101.0;
    return p;
}

/* GB10 (DGX Spark); Jetson Thor is of the same kind: CPU and GPU share one memory. */
hostcuda_profile_t gb10() {
    hostcuda_profile_t p = h200();
    strcpy(p.name, "gb10");
    p.cc_major = 12;
    p.cc_minor = 1;
    p.sm_count = 48;
    p.threads_per_sm = 1536;
    p.memory = gib(121); /* usable, of 128 GB (llmfit#872) */
    p.shared_optin = 99 * 1024;
    p.l2_bytes = static_cast<size_t>(24) << 20;
    p.pageable_access = p.host_page_tables = p.integrated = 1;
    /* Its memory is read at 231 GB/s (ds4#773). A copy reads and writes it, so it has half of that;
     * two copies at once have a quarter each. */
    p.h2d = p.d2h = p.d2d = p.pageable_h2d = p.pageable_d2h = 115.0;
    p.both_ways = 0.5;
    p.file_pages = 0.1; /* GLM-5.3-Flash-EXL3-2x-DGX-Sparks#230, driver 580.173.02 */
    p.host_memory = 115.0;
    p.kernel_ns_per_thread = 0.035; /* 8 bytes a thread at 231 GB/s */
    return p;
}

/* What the three older cards have in common: PCIe 2.0 x16 and the drivers of their time. */
hostcuda_profile_t older(const char *name) {
    hostcuda_profile_t p = h200();
    strcpy(p.name, name);
    /* PCIe 2.0 x16 carries 8 GB/s each way. Copies in are reads, answered in packets of 64 bytes
     * with 20 of frame: 6.1 GB/s; copies out are writes of 128 bytes with 24: 6.7. Acknowledgements
     * and credits take some 7 % of either; 5.7 and 6.2 were usual readings. */
    p.h2d = 5.7;
    p.d2h = 6.2;
    /* Both ways at once, the link out also carries the requests for what comes in (24 bytes for
     * each 512: 0.27 GB/s) and its acknowledgements (8 bytes for four packets: 0.18), together
     * 5.6 % of 8 GB/s; the link in carries those of what goes out, 2.4 %. */
    p.both_ways = 0.95;
    p.copy_lost = 8000.0; /* about 10 us to start a copy over PCIe 2.0 */
    p.pageable_h2d = 3.0;
    p.pageable_d2h = 2.5;
    p.pageable_lost = p.copy_lost;
    p.host_fill = p.host_drain = 3.0; /* of the memory of their time: not measured */
    p.host_memory = 12.0;
    p.pin = 1.5;
    p.reg = 10.0;
    p.unreg = 30.0;
    p.kernel_latency = 5000.0; /* launch overheads of 5-7 us were usual */
    p.call_launch = 5000.0;
    p.call_copy = 4000.0;
    p.shared_optin = 48 * 1024;
    p.priority_least = p.priority_greatest = 0;
    return p;
}

hostcuda_profile_t c1060() {
    hostcuda_profile_t p = older("c1060");
    p.copy_engines = p.async_engine_count = 1;
    p.queues = 1;
    p.concurrent_kernels = 0;
    p.sm_count = 30;
    p.threads_per_sm = 1024;
    p.max_threads_per_block = 512;
    p.cc_major = 1;
    p.cc_minor = 3;
    p.memory = gib(4);
    p.shared_per_block = p.shared_optin = 16 * 1024;
    p.l2_bytes = 0;
    p.d2d = 36.0;                  /* 102 GB/s of memory, read and written, at 70 % */
    p.kernel_ns_per_thread = 0.11; /* 8 bytes a thread at the same 72 GB/s */
    return p;
}

hostcuda_profile_t c2050() {
    hostcuda_profile_t p = older("c2050");
    p.copy_engines = p.async_engine_count = 2;
    p.queues = 1;
    p.late_signal = 1;
    p.sm_count = 14;
    p.threads_per_sm = 1536;
    p.cc_major = 2;
    p.memory = gib(3);
    p.l2_bytes = 768 * 1024;
    p.d2d = 50.0;                  /* 144 GB/s of memory, read and written, at 70 % */
    p.kernel_ns_per_thread = 0.08; /* 8 bytes a thread at the same 100 GB/s */
    return p;
}

hostcuda_profile_t k20c() {
    hostcuda_profile_t p = older("k20c");
    p.copy_engines = p.async_engine_count = 2;
    p.queues = 32; /* Hyper-Q */
    p.sm_count = 13;
    p.threads_per_sm = 2048;
    p.cc_major = 3;
    p.cc_minor = 5;
    p.priority_greatest = -1;
    p.memory = gib(5);
    p.l2_bytes = 1280 * 1024;
    p.d2d = 73.0;                   /* 208 GB/s of memory, read and written, at 70 % */
    p.kernel_ns_per_thread = 0.055; /* 8 bytes a thread at the same 146 GB/s */
    return p;
}

/* ---- readiness and dispatch ------------------------------------------------------------------ */

bool on_compute(const Op &op) { return op.engine == HOSTCUDA_COMPUTE; }

void schedule(double time, const OpP &op) { state().due.insert(State::Due{time, op->seq, op}); }

/* Sets the rate at which an operation progresses. Its end is computed again only when the rate
 * changes, to avoid rounding errors. */
void set_rate(Op &op, double rate) {
    const double now = state().now;
    if (rate == op.rate) return;
    op.left -= (now - op.last) * op.rate;
    op.last = now;
    op.rate = rate;
    op.until = rate > 0 ? now + op.left / rate : NEVER;
}

void begin_span(Op &op, double span) {
    op.left = span;
    op.last = state().now;
    op.rate = -1; /* forces set_rate to compute the end */
    op.until = NEVER;
}

void follow_up(const OpP &op);

void finish(const OpP &op, double end) {
    op->model = Model::DONE;
    op->end = end;
    op->seen = state().now;
    if (state().tracing) state().trace.push_back(op);
    follow_up(op);
}

void follow_up(const OpP &op) {
    std::vector<OpP> followers;
    followers.swap(op->followers);
    for (const OpP &f : followers)
        if (--f->waits_for == 0) schedule(std::max(f->issue, state().now), f);
}

bool depends(const Op &who, const Op &on) {
    std::set<const Op *> seen;
    std::vector<const Op *> todo(1, &on);
    while (!todo.empty()) {
        const Op *op = todo.back();
        todo.pop_back();
        for (const OpP &f : op->followers) {
            if (f.get() == &who) return true;
            if (seen.insert(f.get()).second) todo.push_back(f.get());
        }
    }
    return false;
}

/* Whether a kernel that `next` holds back, or that holds back `next`, would wait for itself. */
bool circular(const OpP &op, const OpP &next) {
    std::vector<OpP> held(1, op);
    for (size_t i = 0; i < held.size(); ++i) {
        const std::vector<OpP> more = held[i]->signals;
        held.insert(held.end(), more.begin(), more.end());
        for (const Op *by = next.get(); by; by = by->held_by.get())
            if (depends(*by, *held[i])) return true;
    }
    return false;
}

/* Late signal (Fermi): kernels issued back to back in different streams are reported as done only
 * when the last one is, unless the later one waits for the earlier. */
void executed(const OpP &op) {
    op->model = Model::EXECUTED;
    op->end = state().now;
    const OpP next = op->next_kernel;
    op->next_kernel.reset();
    if (next && next->model != Model::DONE && next->issue <= state().now && !circular(op, next)) {
        op->held_by = next;
        next->signals.push_back(op);
        return;
    }
    std::vector<OpP> all(1, op);
    while (!all.empty()) {
        const OpP done = all.back();
        all.pop_back();
        all.insert(all.end(), done->signals.begin(), done->signals.end());
        done->signals.clear();
        done->held_by.reset();
        finish(done, done->end);
    }
}

Device &device_of(const Op &op) { return *state().devices[static_cast<size_t>(op.device)]; }

void dispatch(const OpP &op) {
    Device &d = device_of(*op);
    const bool by_priority = on_compute(*op) && d.profile.queues > 1;
    const std::pair<int, long> key(by_priority ? op->priority : 0, state().dispatched++);
    d.ready[op->engine].insert(std::make_pair(key, op));
}

/* Operations leave a hardware queue in the order in which they entered it. */
void drain_queue(std::deque<OpP> &queue) {
    while (!queue.empty() && queue.front()->model == Model::READY) {
        const OpP op = queue.front();
        queue.pop_front();
        dispatch(op);
    }
}

void start_free(const OpP &op) {
    op->model = Model::RUNNING;
    op->start = state().now;
    if (!op->resolved) {
        state().unresolved.push_back(op);
    } else if (op->span > 0) {
        begin_span(*op, op->span);
        set_rate(*op, 1.0);
        state().timed.push_back(op);
    } else {
        finish(op, state().now);
    }
}

/* Everything before the operation is done and the host has issued it: its latency begins. */
void became_ready(const OpP &op) {
    if (op->latency > 0 && !op->latency_paid) {
        op->latency_paid = true;
        schedule(state().now + op->latency, op);
        return;
    }
    op->model = Model::READY;
    if (op->engine == HOSTCUDA_NO_ENGINE)
        start_free(op);
    else if (op->queued)
        drain_queue(device_of(*op).queues[static_cast<size_t>(op->queue)]);
    else
        dispatch(op);
}

/* ---- engines --------------------------------------------------------------------------------- */

void start_on_engine(const OpP &op) {
    op->model = Model::RUNNING;
    op->start = state().now;
    op->in_bytes = op->held <= 0;
    begin_span(*op, op->in_bytes ? op->span : op->held);
}

void start_copies(Device &d) {
    for (int e = 0; e < 2; ++e) {
        auto &ready = d.ready[HOSTCUDA_COPY0 + e];
        if (d.copying[e] || ready.empty()) continue;
        d.copying[e] = ready.begin()->second;
        ready.erase(ready.begin());
        start_on_engine(d.copying[e]);
    }
}

/* Running blocks are never preempted: what a kernel keeps until they end. */
double kept_by(Op &k) {
    const double now = state().now;
    if (k.block <= 0 || k.got <= 0) return 0;
    if (k.round < now) k.round += k.block * std::ceil((now - k.round) / k.block);
    return now < k.round ? k.got : 0;
}

void give_share(Op &k, double got) {
    if (k.got <= 0 || k.round <= state().now) k.round = state().now + k.block;
    k.got = got;
    set_rate(k, k.share > 0 ? got / k.share : 1.0);
}

/* Gives kernels their shares in order of urgency, out of what running blocks leave. Returns what is
 * left for the kernel `next`, or nothing: where that or a running one wants more, and less urgent
 * blocks run, d.round is when these end. */
double share_out(Device &d, const Op *next) {
    double free = 1.0, left = 0;
    bool wanting = false, counted = false;
    for (const OpP &k : d.kernels) free -= kept_by(*k);
    if (free < 1e-12) free = 0;
    left = free;
    d.round = NEVER;
    for (const OpP &k : d.kernels) {
        const bool behind = next && d.profile.queues > 1 && k->priority > next->priority;
        const double kept = kept_by(*k);
        const double got = behind ? kept : std::min(k->share, kept + free);
        if (behind && !counted) wanting |= left < next->share;
        counted |= behind;
        if (wanting && kept > 0) d.round = std::min(d.round, k->round);
        free -= got - kept;
        if (free < 1e-12) free = 0;
        if (!behind) left = free;
        wanting |= got < k->share;
        give_share(*k, got);
    }
    return left;
}

void start_kernels(Device &d) {
    auto &ready = d.ready[HOSTCUDA_COMPUTE];
    for (;;) {
        const Op *next = ready.empty() ? nullptr : ready.begin()->second.get();
        const double free = share_out(d, next);
        if (!next || free <= 0) return;
        if (!d.profile.concurrent_kernels && !d.kernels.empty()) return;
        const OpP op = ready.begin()->second;
        ready.erase(ready.begin());
        start_on_engine(op);
        op->got = 0;
        auto place = d.kernels.end();
        if (d.profile.queues > 1)
            while (place != d.kernels.begin() && (*(place - 1))->priority > op->priority) --place;
        d.kernels.insert(place, op);
    }
}

void set_copy_rates(Device &d) {
    const bool both =
        d.copying[0] && d.copying[1] && d.copying[0]->in_bytes && d.copying[1]->in_bytes;
    for (const OpP &op : d.copying)
        if (op) set_rate(*op, op->in_bytes && both ? d.profile.both_ways : 1.0);
}

/* Does everything that can happen at the current time. */
void settle() {
    State &s = state();
    for (size_t i = 0; i < s.unresolved.size();) {
        const OpP op = s.unresolved[i];
        if (!op->resolved) {
            ++i;
            continue;
        }
        s.unresolved.erase(s.unresolved.begin() + static_cast<std::ptrdiff_t>(i));
        begin_span(*op, std::max(0.0, op->start + op->span - s.now));
        set_rate(*op, 1.0);
        s.timed.push_back(op);
    }
    while (!s.due.empty() && s.due.begin()->time <= s.now) {
        const OpP op = s.due.begin()->op;
        s.due.erase(s.due.begin());
        became_ready(op);
    }
    for (const auto &d : s.devices) {
        start_copies(*d);
        start_kernels(*d);
        set_copy_rates(*d);
    }
}

void end_copies(Device &d, double time) {
    for (OpP &op : d.copying) {
        if (!op || op->until > time) continue;
        if (!op->in_bytes) {
            op->in_bytes = true;
            begin_span(*op, op->span);
        } else {
            const OpP done = op;
            op.reset();
            finish(done, time);
        }
    }
}

void end_kernels(Device &d, double time) {
    for (size_t i = 0; i < d.kernels.size();) {
        const OpP op = d.kernels[i];
        if (op->until > time) {
            ++i;
            continue;
        }
        d.kernels.erase(d.kernels.begin() + static_cast<std::ptrdiff_t>(i));
        if (d.profile.late_signal)
            executed(op);
        else
            finish(op, time);
    }
}

/* Ends the operations that end at `time`. */
void end_at(double time) {
    State &s = state();
    s.now = time;
    for (size_t i = 0; i < s.timed.size();) {
        const OpP op = s.timed[i];
        if (op->until > time) {
            ++i;
            continue;
        }
        s.timed.erase(s.timed.begin() + static_cast<std::ptrdiff_t>(i));
        finish(op, time);
    }
    for (const auto &d : s.devices) {
        end_copies(*d, time);
        end_kernels(*d, time);
    }
}

bool host_function_unknown() {
    for (const OpP &op : state().unresolved)
        if (!op->running_free) return true;
    return false;
}

} /* namespace */

hostcuda_profile_t profile_named(const char *name) {
    hostcuda_profile_t (*const all[])() = {c1060, c2050, k20c, h200, gh200, gb10, ideal, ideal1};
    for (auto make : all) {
        const hostcuda_profile_t p = make();
        if (strcmp(p.name, name) == 0) return p;
    }
    hostcuda_profile_t none = ideal();
    none.name[0] = 0;
    return none;
}

void model_device(Device &d) {
    const size_t queues = d.profile.queues == 1 ? 4 : static_cast<size_t>(d.profile.queues);
    if (d.queues.size() < queues) d.queues.resize(queues);
}

void model_add(const OpP &op, const std::vector<OpP> &after) {
    Device &d = device_of(*op);
    if (op->engine != HOSTCUDA_NO_ENGINE && (op->queued || d.profile.queues == 1)) {
        op->queued = true;
        op->queue = d.profile.queues == 1
                        ? op->engine
                        : static_cast<int>(op->stream % static_cast<unsigned>(d.profile.queues));
        d.queues[static_cast<size_t>(op->queue)].push_back(op);
    }
    if (op->engine != HOSTCUDA_NO_ENGINE) {
        const bool pair = d.last_queued && d.last_queued->kind == HOSTCUDA_KERNEL &&
                          op->kind == HOSTCUDA_KERNEL && d.last_queued->stream != op->stream;
        if (d.profile.late_signal && pair && d.last_queued->model != Model::DONE)
            d.last_queued->next_kernel = op;
        d.last_queued = op;
    }
    for (const OpP &before : after) {
        if (!before || before->model == Model::DONE) continue;
        before->followers.push_back(op);
        ++op->waits_for;
    }
    if (op->waits_for == 0) schedule(std::max(op->issue, state().now), op);
}

double model_next() {
    const State &s = state();
    double next = s.due.empty() ? NEVER : s.due.begin()->time;
    for (const OpP &op : s.timed) next = std::min(next, op->until);
    for (const auto &d : s.devices) {
        for (const OpP &op : d->copying)
            if (op) next = std::min(next, op->until);
        for (const OpP &op : d->kernels) next = std::min(next, op->until);
        if (d->round > s.now) next = std::min(next, d->round);
    }
    return next;
}

Ran model_run(double until, const Op *op) {
    State &s = state();
    for (;;) {
        settle();
        if (op && op->model == Model::DONE) return Ran::REACHED;
        const double next = model_next();
        if (next <= s.now) {
            end_at(s.now);
            continue;
        }
        if (host_function_unknown() && (until > s.now)) return Ran::STALLED;
        if (next > until || next == NEVER) {
            if (op && next == NEVER && !s.unresolved.empty()) return Ran::STALLED;
            if (until != NEVER) s.now = std::max(s.now, until);
            return Ran::REACHED;
        }
        end_at(next);
    }
}

double &clock_of_thread() {
    State &s = state();
    if (self.epoch != s.epoch) {
        self.epoch = s.epoch;
        self.clock = s.latest;
    }
    return self.clock;
}

void clock_advance(double ns) {
    double &clock = clock_of_thread();
    clock += ns;
    state().latest = std::max(state().latest, clock);
}

} /* namespace hc */
