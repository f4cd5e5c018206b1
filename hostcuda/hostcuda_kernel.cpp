/* hostcuda: launching kernels, and running their blocks. Fibers let the threads of a block wait for
 * each other.
 *
 * A fiber runs the threads of a block one after another. When a thread has to wait (barrier, warp
 * exchange), its fiber is parked, with the thread's stack frames, and another fiber continues: one
 * whose wait is over, or a new one that starts the next thread. A kernel without waits never leaves
 * its first fiber. */
#ifdef __APPLE__ /* has ucontext_t for those who ask so, and calls it deprecated */
#define _XOPEN_SOURCE    700
#define _DARWIN_C_SOURCE 1
#pragma clang diagnostic ignored "-Wdeprecated-declarations"
#endif
#ifdef _WIN32
#include <windows.h> /* has fibers of its own */
#else
#include <sys/mman.h>
#include <ucontext.h>
#include <setjmp.h>
#endif

#include <assert.h>
#include <errno.h>

#include "cuda_runtime.h"
#include "hostcuda_internal.h"

#if defined(__SANITIZE_ADDRESS__)
#define HOSTCUDA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HOSTCUDA_ASAN 1
#endif
#endif

#ifdef HOSTCUDA_ASAN
extern "C" {
void __sanitizer_start_switch_fiber(void **save, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *save, const void **bottom_old, size_t *size_old);
void __asan_poison_memory_region(void const volatile *p, size_t size);
void __asan_unpoison_memory_region(void const volatile *p, size_t size);
}
#endif
#ifdef HOSTCUDA_TSAN
extern "C" {
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
}
#endif
#if defined(HOSTCUDA_ASAN) || defined(HOSTCUDA_TSAN)
#define HOSTCUDA_SANITIZED 1
#endif

#ifdef __GLIBC__
/* _longjmp by a name of its own. Where _FORTIFY_SOURCE is defined, as Ubuntu's compilers do, the
 * header has _longjmp call a function that ends the program if the stack is another one, which is
 * the point here. To undefine it helps only before the first header of all. */
extern "C" void jump_to(struct __jmp_buf_tag *place, int value) __asm__("_longjmp")
    __attribute__((noreturn));
#elif !defined(_WIN32)
#define jump_to _longjmp
#endif

__thread uint3 threadIdx;
__thread uint3 blockIdx;
__thread dim3 blockDim;
__thread dim3 gridDim;

namespace hostcuda {

__thread Cursor cursor;

} /* namespace hostcuda */

#if !defined(MAP_ANONYMOUS) && defined(MAP_ANON)
#define MAP_ANONYMOUS MAP_ANON
#endif

namespace hc {
namespace {

using hostcuda::cursor;

#ifdef HOSTCUDA_SANITIZED
const size_t STACK_BYTES = 256 * 1024; /* sanitizers' frames are larger */
#else
const size_t STACK_BYTES = 64 * 1024;
#endif
const size_t KEPT_FIBERS = 256; /* kept between kernels; ThreadSanitizer's fibers are expensive */

struct Fiber {
#ifdef _WIN32
    void *handle = nullptr;
#else
    ucontext_t context;
    jmp_buf jump;
    bool jumpable = false;
    char *stack = nullptr;
#endif
    const void *bottom = nullptr; /* of the stack, for AddressSanitizer */
    size_t size = 0;
    void *fake = nullptr, *tsan = nullptr;
    bool borrows = false;   /* its ThreadSanitizer context is that of the thread */
    bool overlooks = false; /* it runs a block that is hidden from ThreadSanitizer */
    uint3 index;            /* the thread it carries while parked */
    unsigned current = 0;
    unsigned long long result = 0;
};

struct WarpState {
    unsigned waiting = 0;
    unsigned mask[32];
    unsigned long long value[32];
    int source[32];
    hostcuda::WarpOp op[32];
    Fiber *fiber[32];
};

/* The kernel running on this OS thread. */
struct Grid {
    const void *func = nullptr;
    hostcuda::Invoker invoker = nullptr;
    void *const *args = nullptr;
    dim3 grid;
    bool started = false, stuck = false;
    cudaError_t stopped = cudaSuccess; /* a thread of it ended it by an assert or a trap ... */
    Fiber *given_up = nullptr;         /* ... and the stack that it was on */
    size_t block = 0, num_blocks = 0;
    Fiber home, *running = nullptr;
    bool lends = false; /* a fiber borrows home's ThreadSanitizer context */
    std::vector<Fiber *> idle;
    std::deque<Fiber *> ready;
    std::vector<Fiber *> at_barrier;
    unsigned count = 0, all = 0; /* threads at the barrier: with a true predicate; all */
    WarpState warps[32];
    void *shared = nullptr; /* of a block: as large as the launch says, so that no access beyond it
                               goes unseen by AddressSanitizer */
    size_t shared_bytes = 0;

    ~Grid();
};

#ifdef _WIN32
Grid &grid_here() /* as self_here */
{
    static thread_local Grid *grid = nullptr;
    if (!grid) grid = new Grid;
    return *grid;
}

#define grid_of_thread grid_here()
#else
thread_local Grid grid_of_thread;
#endif

void fiber_main();

#ifdef _WIN32
void CALLBACK fiber_start(void *) { fiber_main(); }

void delete_fiber(Fiber *f) {
    DeleteFiber(f->handle);
    delete f;
}

Fiber *new_fiber() {
    Fiber *f = new Fiber;
    f->handle = CreateFiberEx(STACK_BYTES, STACK_BYTES, 0, fiber_start, nullptr);
    if (!f->handle) {
        fprintf(stderr, "hostcuda: no memory for a fiber's stack\n");
        abort();
    }
    return f;
}
#else
void delete_fiber(Fiber *f) {
#ifdef HOSTCUDA_TSAN
    if (f->borrows)
        grid_of_thread.lends = false;
    else
        __tsan_destroy_fiber(f->tsan);
#endif
#ifdef HOSTCUDA_ASAN
    __asan_unpoison_memory_region(f->stack, STACK_BYTES);
#endif
    munmap(f->stack, STACK_BYTES);
    delete f;
}

Fiber *new_fiber() {
    Fiber *f = new Fiber;
    void *stack =
        mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) {
        fprintf(stderr, "hostcuda: no memory for a fiber's stack\n");
        abort();
    }
    f->stack = static_cast<char *>(stack);
    f->bottom = stack;
    f->size = STACK_BYTES;
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = stack;
    f->context.uc_stack.ss_size = STACK_BYTES;
    f->context.uc_link = nullptr;
    makecontext(&f->context, fiber_main, 0);
#ifdef HOSTCUDA_TSAN
    /* ThreadSanitizer takes 2 ms to make a context. So one fiber of each thread uses the thread's
     * own context: home runs only before and after a kernel. Kernels without barriers need no
     * other fiber. */
    Grid &g = grid_of_thread;
    f->borrows = !g.lends;
    g.lends = true;
    f->tsan = f->borrows ? g.home.tsan : __tsan_create_fiber(0);
#endif
    return f;
}

#endif

Grid::~Grid() {
    for (Fiber *f : idle) delete_fiber(f);
    free_allocated(shared);
}

Fiber *take_idle(Grid &g) {
    if (g.idle.empty()) return new_fiber();
    Fiber *f = g.idle.back();
    g.idle.pop_back();
    return f;
}

/* Called after a switch, on the new stack. */
void arrived(Fiber *from) {
#ifdef HOSTCUDA_ASAN
    Fiber *me = grid_of_thread.running;
    __sanitizer_finish_switch_fiber(me->fake, &from->bottom, &from->size);
#else
    (void)from;
#endif
}

thread_local Fiber *came_from;

void switch_to(Fiber *to) {
    Grid &g = grid_of_thread;
    Fiber *from = g.running;
    if (to == from) return;
    g.running = to;
    came_from = from;
#ifdef HOSTCUDA_ASAN
    __sanitizer_start_switch_fiber(&from->fake, to->bottom, to->size);
#endif
#ifdef HOSTCUDA_TSAN
    if (to->tsan != from->tsan) __tsan_switch_to_fiber(to->tsan, 0);
#endif
#ifdef _WIN32
    if (!from->handle) /* the thread itself, for the first time */
        from->handle = IsThreadAFiber() ? GetCurrentFiber() : ConvertThreadToFiber(nullptr);
    SwitchToFiber(to->handle);
#elif defined(HOSTCUDA_SANITIZED)
    swapcontext(&from->context, &to->context);
#else
    /* swapcontext changes the signal mask, a system call, so it only makes the first switch to
     * a fiber. */
    if (_setjmp(from->jump) == 0) {
        from->jumpable = true;
        if (to->jumpable)
            jump_to(to->jump, 1);
        else
            setcontext(&to->context);
    }
#endif
    arrived(came_from);
}

/* Hides the running fiber from ThreadSanitizer, or shows it. Called by the fiber itself; a fiber
 * that does not run is never hidden. */
void set_overlooks(Fiber *me, bool overlooks) {
    if (me->overlooks == overlooks) return;
    me->overlooks = overlooks;
    if (overlooks)
        overlook();
    else
        look();
}

/* Parks the running thread until its fiber is put into g.ready. */
unsigned long long park() {
    Grid &g = grid_of_thread;
    Fiber *me = g.running;
    set_overlooks(me, false);
    me->index = threadIdx;
    me->current = cursor.current;
    ++cursor.blocked;
    Fiber *to;
    if (!g.ready.empty()) {
        to = g.ready.front();
        g.ready.pop_front();
    } else {
        to = take_idle(g);
    }
    switch_to(to);
    --cursor.blocked;
    threadIdx = me->index;
    cursor.current = me->current;
    return me->result;
}

bool start_block(Grid &g) {
    if (g.started) {
        if (++blockIdx.x == g.grid.x) {
            blockIdx.x = 0;
            if (++blockIdx.y == g.grid.y) {
                blockIdx.y = 0;
                if (++blockIdx.z == g.grid.z) return false;
            }
        }
        ++g.block;
        set_overlooks(g.running,
                      SAMPLES && g.block >= 4 && g.block % 8 != 0 && g.block + 4 < g.num_blocks);
    }
    g.started = true;
    cursor.next = cursor.done = cursor.blocked = 0;
    cursor.index = uint3();
    memset(cursor.exited, 0, sizeof cursor.exited);
    if (g.shared_bytes) memset(g.shared, 0xA5, g.shared_bytes);
    return true;
}

void fiber_main() {
    Grid &g = grid_of_thread;
    arrived(came_from);
    for (;;) {
        if (cursor.next < cursor.total) {
            g.invoker(g.func, g.args);
            continue;
        }
        Fiber *to = &g.home;
        if (!g.ready.empty()) {
            to = g.ready.front();
            g.ready.pop_front();
        } else if (cursor.done == cursor.total) {
            if (start_block(g)) continue;
        } else {
            g.stuck = true;
        }
        set_overlooks(g.running, false);
        g.idle.push_back(g.running);
        switch_to(to);
    }
}

/* ---- barrier --------------------------------------------------------------------------------- */

unsigned long long barrier_result(unsigned count, unsigned arrived_threads, int how) {
    if (how == 0) return count;
    return how == 1 ? count == arrived_threads : count != 0;
}

/* The barrier opens when all threads that have not exited wait at it. */
bool open_barrier(Grid &g, int how) {
    if (g.all != cursor.total - cursor.done) return false;
    const unsigned long long result = barrier_result(g.count, g.all, how);
    for (Fiber *f : g.at_barrier) {
        f->result = result;
        g.ready.push_back(f);
    }
    g.at_barrier.clear();
    return true;
}

thread_local int barrier_how;

/* ---- warps ----------------------------------------------------------------------------------- */

unsigned alive_in(unsigned w) {
    const unsigned first = w * 32u;
    const unsigned lanes = cursor.total - first;
    const unsigned exist = lanes >= 32u ? 0xffffffffu : (1u << lanes) - 1u;
    return exist & ~cursor.exited[w];
}

unsigned long long combine(hostcuda::WarpOp op, unsigned a, unsigned b) {
    const int ia = static_cast<int>(a), ib = static_cast<int>(b);
    switch (op) {
    case hostcuda::WARP_ADD: return a + b;
    case hostcuda::WARP_MIN: return a < b ? a : b;
    case hostcuda::WARP_MAX: return a > b ? a : b;
    case hostcuda::WARP_IMIN: return ia < ib ? a : b;
    case hostcuda::WARP_IMAX: return ia > ib ? a : b;
    case hostcuda::WARP_AND: return a & b;
    case hostcuda::WARP_OR: return a | b;
    default: return a ^ b;
    }
}

unsigned long long warp_result(const WarpState &w, unsigned group, unsigned lane) {
    const hostcuda::WarpOp op = w.op[lane];
    if (op == hostcuda::WARP_SYNC || op == hostcuda::WARP_ALIVE) return group;
    if (op == hostcuda::WARP_SHUFFLE) {
        const int source = w.source[lane];
        const bool there = source >= 0 && source < 32 && ((group >> source) & 1u);
        return w.value[there ? static_cast<unsigned>(source) : lane];
    }
    unsigned long long result = 0;
    bool first = true;
    for (unsigned i = 0; i < 32; ++i) {
        if (!((group >> i) & 1u)) continue;
        if (op == hostcuda::WARP_BALLOT) {
            if (w.value[i])
                result |= 1ull << i; /* gcc 12's UBSan miscompiles (a[i] ? 1 : 0) << i */
        } else {
            const unsigned v = static_cast<unsigned>(w.value[i]);
            result = first ? v : combine(op, static_cast<unsigned>(result), v);
        }
        first = false;
    }
    return result;
}

/* Lets the lanes go for which `lane` waits, if all of them that have not exited wait for the
   same. */
bool open_warp(Grid &g, unsigned warp, unsigned lane, Fiber *me, unsigned long long *mine) {
    WarpState &w = g.warps[warp];
    const unsigned group = w.mask[lane] & alive_in(warp);
    for (unsigned i = 0; i < 32; ++i)
        if (((group >> i) & 1u) && (!((w.waiting >> i) & 1u) || w.mask[i] != w.mask[lane]))
            return false;
    unsigned long long results[32];
    for (unsigned i = 0; i < 32; ++i)
        if ((group >> i) & 1u) results[i] = warp_result(w, group, i);
    for (unsigned i = 0; i < 32; ++i) {
        if (!((group >> i) & 1u)) continue;
        if (w.fiber[i] == me) {
            *mine = results[i];
        } else {
            w.fiber[i]->result = results[i];
            g.ready.push_back(w.fiber[i]);
        }
    }
    w.waiting &= ~group;
    return true;
}

void report_stuck(const Grid &g) {
    unsigned in_warps = 0;
    for (const WarpState &w : g.warps)
        in_warps += static_cast<unsigned>(__builtin_popcount(w.waiting));
    fprintf(stderr,
            "hostcuda: kernel stuck in block (%u,%u,%u): of %u threads %u ended, %u wait at "
            "__syncthreads and %u in warp functions, for threads that never come\n",
            blockIdx.x, blockIdx.y, blockIdx.z, cursor.total, cursor.done, g.all, in_warps);
}

void drop_parked(Grid &g) {
    for (Fiber *f : g.at_barrier) delete_fiber(f);
    g.at_barrier.clear();
    for (WarpState &w : g.warps) {
        for (unsigned i = 0; i < 32; ++i)
            if ((w.waiting >> i) & 1u) delete_fiber(w.fiber[i]);
        w.waiting = 0;
    }
    for (Fiber *f : g.ready) delete_fiber(f);
    g.ready.clear();
    if (g.given_up) delete_fiber(g.given_up);
    g.given_up = nullptr;
}

bool make_block_memory(Grid &g, size_t bytes) {
    if (g.shared && g.shared_bytes == bytes) return true;
    free_allocated(g.shared);
    g.shared = allocate(128, bytes, false);
    g.shared_bytes = bytes;
    return g.shared || bytes == 0;
}

cudaError_t run_grid(const void *func, void (*invoker)(const void *, void *const *), dim3 grid,
                     dim3 block, size_t shared, void *const *args) {
    Grid &g = grid_of_thread;
    g.func = func;
    g.invoker = invoker;
    g.args = args;
    g.grid = grid;
    g.started = g.stuck = false;
    g.stopped = cudaSuccess;
    g.block = 0;
    g.num_blocks = static_cast<size_t>(grid.x) * grid.y * grid.z;
    g.count = g.all = 0;
    if (!make_block_memory(g, shared)) return cudaErrorMemoryAllocation;
    gridDim = grid;
    blockDim = block;
    blockIdx = uint3();
    cursor.total = block.x * block.y * block.z;
    start_block(g);
#ifdef HOSTCUDA_TSAN
    g.home.tsan = __tsan_get_current_fiber();
#endif
    g.running = &g.home;
    switch_to(take_idle(g));
    if (g.stuck) report_stuck(g);
    if (g.stuck || g.stopped != cudaSuccess) drop_parked(g);
    while (g.idle.size() > KEPT_FIBERS) {
        delete_fiber(g.idle.back());
        g.idle.pop_back();
    }
    return g.stuck ? cudaErrorLaunchTimeout : g.stopped;
}

bool in_kernel() {
    const Grid &g = grid_of_thread;
    return g.running && g.running != &g.home;
}

} /* namespace */
} /* namespace hc */

namespace hostcuda {

void *dynamic_shared() { return hc::grid_of_thread.shared; }

void fence(void *room, size_t size, bool up) {
#ifdef HOSTCUDA_ASAN
    if (up)
        __asan_poison_memory_region(room, size);
    else
        __asan_unpoison_memory_region(room, size);
#else
    (void)room;
    (void)size;
    (void)up;
#endif
}

int barrier(int predicate, int how) {
    hc::Grid &g = hc::grid_of_thread;
    hc::barrier_how = how;
    g.count += predicate != 0;
    ++g.all;
    if (g.all == cursor.total - cursor.done) {
        const int result = static_cast<int>(hc::barrier_result(g.count, g.all, how));
        hc::open_barrier(g, how);
        g.count = g.all = 0;
        return result;
    }
    g.at_barrier.push_back(g.running);
    return static_cast<int>(hc::park());
}

unsigned long long warp(unsigned mask, WarpOp op, unsigned long long value, int source_lane) {
    hc::Grid &g = hc::grid_of_thread;
    const unsigned w = cursor.current >> 5, lane = cursor.current & 31u;
    hc::WarpState &s = g.warps[w];
    s.mask[lane] = mask | (1u << lane);
    s.op[lane] = op;
    s.value[lane] = value;
    s.source[lane] = source_lane;
    s.fiber[lane] = g.running;
    s.waiting |= 1u << lane;
    unsigned long long mine = 0;
    if (hc::open_warp(g, w, lane, g.running, &mine)) return mine;
    return hc::park();
}

unsigned alive_lanes() { return hc::alive_in(cursor.current >> 5); }

/* A thread ended while others wait: it may have been the last one they waited for. */
void thread_exit_slow() {
    hc::Grid &g = hc::grid_of_thread;
    if (g.all && hc::open_barrier(g, hc::barrier_how)) g.count = g.all = 0;
    const unsigned w = cursor.current >> 5;
    for (unsigned lane = 0; lane < 32; ++lane) {
        unsigned long long unused = 0;
        if ((g.warps[w].waiting >> lane) & 1u) hc::open_warp(g, w, lane, nullptr, &unused);
    }
}

/* The other threads of the kernel do not go on, and no block follows. */
void stop_kernel(cudaError_t e) {
    if (!hc::in_kernel()) abort();
    hc::Grid &g = hc::grid_of_thread;
    hc::set_overlooks(g.running, false);
    g.stopped = e;
    g.given_up = g.running;
    hc::switch_to(&g.home);
    abort(); /* nobody comes back to it */
}

long long device_clock() {
    const auto t = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(t).count();
}

} /* namespace hostcuda */

#ifdef __GLIBC__
/* An assert of a kernel ends the kernel, as on a GPU; any other one ends the program. */
extern "C" void __assert_fail(const char *assertion, const char *file, unsigned line,
                              const char *function) noexcept {
    if (hc::in_kernel()) {
        fprintf(stderr,
                "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] "
                "Assertion `%s` failed.\n",
                file, line, function, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y,
                threadIdx.z, assertion);
        hostcuda::stop_kernel(cudaErrorAssert);
    }
    fprintf(stderr, "%s: %s:%u: %s: Assertion `%s' failed.\n", program_invocation_short_name, file,
            line, function, assertion);
    abort();
}
#endif

namespace hc {
namespace {

/* ---- launching ------------------------------------------------------------------------------- */

struct Arguments { /* the values at the launch */
    std::vector<char> bytes;
    std::vector<void *> pointers;
};

std::shared_ptr<Arguments> copy_arguments(const KernelInfo &k, void **args) {
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

/* Why a launch is refused; "" if it is not. */
std::string what_is_wrong(const hostcuda_profile_t &p, const KernelInfo &k,
                          const cudaLaunchConfig_t &c) {
    const dim3 g = c.gridDim, b = c.blockDim;
    const unsigned max_threads = static_cast<unsigned>(p.max_threads_per_block);
    const unsigned max_x = p.cc_major < 3 ? 65535u : 2147483647u;
    const auto sizes = [](const dim3 &d) {
        return std::to_string(d.x) + " x " + std::to_string(d.y) + " x " + std::to_string(d.z);
    };
    if (!g.x || !g.y || !g.z) return "a grid of " + sizes(g) + " blocks has none";
    if (!b.x || !b.y || !b.z) return "a block of " + sizes(b) + " threads has none";
    if (g.x > max_x || g.y > 65535u || g.z > 65535u)
        return "a grid has at most " + std::to_string(max_x) + " x 65535 x 65535 blocks, not " +
               sizes(g);
    if (b.x > max_threads || b.y > max_threads || b.z > 64u ||
        static_cast<unsigned long long>(b.x) * b.y * b.z > max_threads)
        return "a block has at most " + std::to_string(max_threads) + " threads (64 in z), not " +
               sizes(b);
    const size_t limit = std::max(p.shared_per_block, static_cast<size_t>(k.max_dynamic));
    if (c.dynamicSmemBytes <= limit) return "";
    return "its blocks may have " + std::to_string(limit) +
           " bytes of dynamic shared memory, not " + std::to_string(c.dynamicSmemBytes) +
           " (cudaFuncSetAttribute allows up to " + std::to_string(p.shared_optin) + ")";
}

/* What CUDA 13.0 with driver 580 answers; older ones answer cudaErrorInvalidConfiguration. */
cudaError_t check_launch(const hostcuda_profile_t &p, const KernelInfo &k,
                         const cudaLaunchConfig_t &c) {
    const std::string what = what_is_wrong(p, k, c);
    if (what.empty()) return cudaSuccess;
    explain("%s is not launched: %s", k.name.empty() ? "the kernel" : k.name.c_str(), what.c_str());
    return cudaErrorInvalidValue;
}

void price_kernel(Op &op, const KernelInfo &k, const cudaLaunchConfig_t &c) {
    const hostcuda_profile_t &p = device(op.device).profile;
    const double threads = static_cast<double>(c.gridDim.x) * c.gridDim.y * c.gridDim.z *
                           static_cast<double>(c.blockDim.x * c.blockDim.y * c.blockDim.z);
    const double capacity = static_cast<double>(p.sm_count) * p.threads_per_sm;
    op.engine = HOSTCUDA_COMPUTE;
    op.latency = p.kernel_latency;
    op.share = std::min(1.0, threads / capacity);
    op.span = k.timed ? k.fixed_ns + threads * k.ns_per_thread : threads * p.kernel_ns_per_thread;
    op.block = op.span / std::max(1.0, std::ceil(threads / capacity));
    op.label = k.name.empty() ? "kernel" : k.name;
}

/* The memory behind the pointers that the kernel is given. NULL is no use of memory: most kernels
 * have parameters that may be NULL. Pageable memory makes the kernel fail when it runs, and so does
 * memory of another device without access to it. Managed memory moves to the device first, unless
 * the kernel is only captured. */
void note_pointers(Op &op, const KernelInfo &k, const Arguments &values, bool moves) {
    const bool may_read_all = device(op.device).profile.pageable_access != 0;
    for (size_t i = 0; i < k.pointers.size(); ++i) {
        const void *p = nullptr;
        if (k.pointers[i]) memcpy(&p, values.pointers[i], sizeof p);
        if (!p) continue;
        const long block = block_number(p);
        const int owner = owner_of(p);
        if (owner >= 0 && owner != op.device && !device(op.device).peers.count(owner)) {
            fprintf(stderr,
                    "hostcuda: parameter %zu of a kernel (%s) on device %d points to memory of "
                    "device %d: cudaDeviceEnablePeerAccess lets it\n",
                    i + 1, op.label.c_str(), op.device, owner);
            op.fail = cudaErrorIllegalAddress;
        }
        if (block) {
            op.uses.push_back(block);
            if (moves) op.span += migrate(p, op.device);
        } else if (!may_read_all) {
            fprintf(stderr,
                    "hostcuda: parameter %zu of a kernel (%s) points to %p, which is pageable host "
                    "memory or none: this device cannot access it\n",
                    i + 1, op.label.c_str(), p);
            op.fail = cudaErrorIllegalAddress;
        }
    }
}

cudaError_t launch(const cudaLaunchConfig_t &c, const void *func, void **args) {
    const auto known = state().kernels.find(func);
    if (known == state().kernels.end() || !known->second.invoker)
        return cudaErrorInvalidDeviceFunction;
    const KernelInfo &k = known->second;
    const StreamP s = find_stream(c.stream);
    if (!s || s->device != self.device) return cudaErrorInvalidResourceHandle;
    const cudaError_t e = check_launch(current().profile, k, c);
    if (e != cudaSuccess) return s->capture ? invalidate(*s->capture, e) : e; /* as on an H100 */
    if (!k.sizes.empty() && !args) return cudaErrorInvalidValue;
    const OpP op = new_op(*s, HOSTCUDA_KERNEL);
    for (unsigned i = 0; i < c.numAttrs; ++i)
        if (c.attrs[i].id == cudaLaunchAttributePriority) op->priority = c.attrs[i].val.priority;
    price_kernel(*op, k, c);
    const auto values = copy_arguments(k, args);
    note_pointers(*op, k, *values, !s->capture);
    const auto invoker = k.invoker;
    op->work = [c, func, invoker, values] {
        return run_grid(func, invoker, c.gridDim, c.blockDim, c.dynamicSmemBytes,
                        values->pointers.data());
    };
    if (s->capture) {
        op->params = std::make_shared<NodeParams>();
        op->params->type = cudaGraphNodeTypeKernel;
        op->params->kernel.func = const_cast<void *>(func);
        op->params->kernel.gridDim = c.gridDim;
        op->params->kernel.blockDim = c.blockDim;
        op->params->kernel.sharedMemBytes = static_cast<unsigned>(c.dynamicSmemBytes);
        op->params->kernel.kernelParams = values->pointers.data();
        op->params->arguments = values;
    }
    return submit_or_capture(s, op);
}

} /* namespace */
} /* namespace hc */

using namespace hc;

namespace hostcuda {

void register_kernel(const void *func, void (*invoker)(const void *, void *const *),
                     const size_t *sizes, const bool *pointers, unsigned count, const char *name) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    KernelInfo &k = state().kernels[func];
    if (name && k.name.empty()) k.name = name;
    if (k.invoker) return;
    k.invoker = invoker;
    k.sizes.assign(sizes, sizes + count);
    k.pointers.assign(pointers, pointers + count);
}

} /* namespace hostcuda */

extern "C" {

/* ---- launches -------------------------------------------------------------------------------- */

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *func, void **args) {
    ENTER(PLAIN, &P::call_launch);
    REFUSE_IF(!config || (config->numAttrs && !config->attrs), cudaErrorInvalidValue);
    return call.done(launch(*config, func, args));
}

cudaError_t cudaLaunchKernel(const void *func, dim3 grid, dim3 block, void **args, size_t shared,
                             cudaStream_t stream) {
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

static KernelInfo *known_kernel(const void *func) {
    const auto i = state().kernels.find(func);
    return i == state().kernels.end() || !i->second.invoker ? nullptr : &i->second;
}

cudaError_t cudaFuncSetAttribute(const void *func, cudaFuncAttribute attr, int value) {
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

cudaError_t cudaFuncSetCacheConfig(const void *func, cudaFuncCache config) {
    ENTER(PLAIN);
    REFUSE_IF(!known_kernel(func), cudaErrorInvalidDeviceFunction);
    REFUSE_IF(static_cast<unsigned>(config) > cudaFuncCachePreferEqual, cudaErrorInvalidValue);
    return call.done(cudaSuccess);
}

cudaError_t cudaFuncGetParamInfo(const void *func, size_t index, size_t *offset, size_t *size) {
    ENTER(PLAIN);
    const KernelInfo *k = known_kernel(func);
    REFUSE_IF(!k, cudaErrorInvalidDeviceFunction);
    REFUSE_IF(index >= k->sizes.size() || !offset, cudaErrorInvalidValue);
    size_t at = 0;
    for (size_t i = 0; i <= index; ++i) { /* aligned as a GPU does scalars and small vectors */
        const size_t bytes = k->sizes[i];
        size_t align = 8;
        while (bytes % align != 0) align /= 2;
        at = (at + align - 1) / align * align;
        if (i < index) at += bytes;
    }
    *offset = at;
    if (size) *size = k->sizes[index];
    return call.done(cudaSuccess);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *func) {
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

/* From threads and dynamic shared memory only, since registers are unknown here. */
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *func,
                                                          int block_size, size_t shared) {
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

} /* extern "C" */
