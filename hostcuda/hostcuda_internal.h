/* hostcuda: what its source files share, one section for each file.
 *
 * One mutex guards everything here, and the data work (copies, kernels, host functions) runs
 * outside it. ThreadSanitizer shall see exactly the orders that CUDA promises. So all bookkeeping
 * is hidden from it (Hidden), and each promised order is shown to it by a release and an acquire on
 * a token: issuing call -> operation, record -> wait, operation -> synchronisation that covers it.
 * Operations of one stream run on one thread, so their order needs no token. With
 * -DHOSTCUDA_CHECK_ITSELF nothing is hidden, and the sanitizer checks hostcuda itself. */
#ifndef HOSTCUDA_INTERNAL_H
#define HOSTCUDA_INTERNAL_H

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "hostcuda.h"

#if defined(__SANITIZE_THREAD__)
#define HOSTCUDA_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HOSTCUDA_TSAN 1
#endif
#endif

#ifdef HOSTCUDA_TSAN
extern "C" {
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
void __tsan_acquire(void *address);
void __tsan_release(void *address);
}
#endif

namespace hc {

#if defined(HOSTCUDA_TSAN) && !defined(HOSTCUDA_CHECK_ITSELF)
inline void hide() {
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

inline void show() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
}

/* Of large work ThreadSanitizer sees samples only, which is enough: two unordered operations that
 * conflict usually conflict in much of their memory. Call overlook and look in pairs, on one
 * fiber. */
inline void overlook() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

inline void look() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

const bool SAMPLES = true;

inline void release(void *token) { __tsan_release(token); }

inline void acquire(void *token) { __tsan_acquire(token); }
#else
inline void hide() {}

inline void show() {}

inline void overlook() {}

inline void look() {}

const bool SAMPLES = false;

inline void release(void *) {}

inline void acquire(void *) {}
#endif

struct Hidden {
    Hidden() { hide(); }

    ~Hidden() { show(); }

    Hidden(const Hidden &) = delete;
    Hidden &operator=(const Hidden &) = delete;
};

/* Inside a Hidden: accesses to the user's data, and orders to show to ThreadSanitizer. */
struct Shown {
    Shown() { show(); }

    ~Shown() { hide(); }

    Shown(const Shown &) = delete;
    Shown &operator=(const Shown &) = delete;
};

/* What a thread sleeps on. Shared, because it may be rung when the sleeper has already gone on. */
typedef std::shared_ptr<std::condition_variable> Bell;

/* Holds the mutex. Bells ring when it is let go: a thread that woke before would at once have to
 * wait for the mutex. */
class Lock {
    std::unique_lock<std::mutex> held;

    bool rang();

  public:
    explicit Lock(std::mutex &mutex) : held(mutex) {}

    ~Lock() {
        if (held.owns_lock()) unlock();
    }

    Lock(const Lock &) = delete;
    Lock &operator=(const Lock &) = delete;

    void lock() { held.lock(); }

    void unlock();
    /* These two may return at once, so call them in a loop. */
    void wait(std::condition_variable &on);
    void wait_for(std::condition_variable &on, std::chrono::milliseconds most);
};

/* Has the thread that sleeps on a bell wake when the calling thread lets the mutex go. */
void ring(const Bell &bell);

typedef std::chrono::steady_clock Steady;
const double NEVER = std::numeric_limits<double>::infinity();

/* ---- operations ------------------------------------------------------------------------------ */

struct Op;
typedef std::shared_ptr<Op> OpP;

enum class Model {
    WAITING,
    READY,
    RUNNING,
    EXECUTED,
    DONE
};

/* What a captured operation was asked for; cudaGraph...NodeGetParams tell it. */
struct NodeParams {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    cudaKernelNodeParams kernel = cudaKernelNodeParams();
    cudaMemcpy3DParms copy = cudaMemcpy3DParms();
    cudaMemsetParams set = cudaMemsetParams();
    std::shared_ptr<void> arguments; /* that kernel.kernelParams points to */
};

struct Op {
    /* what it is */
    int kind = HOSTCUDA_OTHER;
    int device = 0;
    unsigned stream = 0;
    long seq = 0, epoch = 0;
    size_t bytes = 0;
    std::string label;

    /* its real run */
    std::function<cudaError_t()> work;
    std::vector<OpP> deps;          /* in other streams */
    std::vector<OpP> parts;         /* of a graph launch, for the model */
    cudaError_t fail = cudaSuccess; /* raised when it runs: injected, or an illegal address */
    std::vector<long> uses;         /* Block::number of memory that must be there when it runs */
    bool host = false;              /* runs the user's host function */
    bool always = false;            /* also after a failure: a callback, a free */
    std::shared_ptr<NodeParams> params; /* where it was captured */
    bool done = false;
    std::vector<Bell> sleepers;    /* of threads that wait until it is */
    char issued = 0, finished = 0; /* tokens for ThreadSanitizer */

    /* its modelled run */
    Model model = Model::WAITING;
    int engine = HOSTCUDA_NO_ENGINE;
    bool queued = true; /* goes through its stream's hardware queue */
    int queue = 0;
    int priority = 0;
    int waits_for = 0; /* modelled predecessors not done */
    double issue = 0, start = 0, end = 0;
    double seen = 0;    /* when its followers see that it has ended (late signal) */
    double latency = 0; /* from ready to dispatch, engine not held */
    double held = 0;    /* time on the engine before the bytes move */
    double span = 0;    /* time of the work alone on the device */
    double share = 0;   /* of the device's threads */
    double block = 0;   /* time of one of its blocks; 0: it gives way at once */
    double got = 0;     /* of share, by now */
    double round = 0;   /* when the blocks that run now end: until then it keeps what it got */
    bool latency_paid = false, in_bytes = false;
    bool resolved = true; /* false: a host function that has not really run */
    bool running_free = false;
    double rate = 0, last = 0, left = 0, until = 0;
    std::vector<OpP> followers; /* modelled successors */
    OpP next_kernel;            /* late signal: queued right behind this one */
    OpP held_by;                /* late signal: executed, but waits for this one's signal */
    std::vector<OpP> signals;   /* late signal: these wait for this one */
};

/* ---- streams, events, graphs ----------------------------------------------------------------- */

struct Capture;
struct Node;

struct Stream {
    unsigned id = 0;
    int device = 0;
    unsigned flags = 0;
    int priority = 0;
    bool closing = false, started = false;
    std::deque<OpP> queue;
    OpP running; /* taken off the queue */
    OpP awaited; /* the first one of the queue waits for it */
    Bell wake = std::make_shared<std::condition_variable>(); /* for its thread */
    std::thread thread;
    OpP tail;
    std::shared_ptr<Capture> capture;
    std::vector<size_t> capture_deps; /* nodes that the next one follows */
    std::vector<cudaGraphNode_t> reported_deps;
};

typedef std::shared_ptr<Stream> StreamP;

struct Node {
    cudaGraphNode_t handle;
    OpP shape; /* what it is and takes; copied at each launch */
    std::vector<size_t> deps;
    bool leaf = true;
};

struct Graph {
    int device = 0;
    std::vector<Node> nodes;
    OpP last_launch; /* of an executable graph: one launch at a time */
};

typedef std::shared_ptr<Graph> GraphP;

struct Capture {
    unsigned long long id = 0;
    cudaGraph_t handle = nullptr;
    GraphP graph;
    StreamP origin;
    std::vector<std::weak_ptr<Stream>> joined;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    uintptr_t thread = 0;
    bool invalid = false;
};

typedef std::shared_ptr<Capture> CaptureP;

struct Event {
    unsigned flags = 0;
    int device = 0;
    OpP record;
    std::weak_ptr<Capture> capture;
    std::vector<size_t> capture_deps;
    bool captured = false;
};

typedef std::shared_ptr<Event> EventP;

/* ---- devices --------------------------------------------------------------------------------- */

struct ReadyLess { /* priority first (a lower number is more urgent), then order of dispatch */

    bool operator()(const std::pair<std::pair<int, long>, OpP> &a,
                    const std::pair<std::pair<int, long>, OpP> &b) const {
        return a.first < b.first;
    }
};

struct Device {
    hostcuda_profile_t profile;
    size_t used = 0;
    cudaError_t failed = cudaSuccess; /* work is skipped */
    cudaError_t sticky = cudaSuccess; /* ... and calls return it */
    OpP doomed;                       /* the last operation issued that is to fail */
    StreamP legacy;
    std::vector<StreamP> streams;           /* all that may have work, destroyed ones too */
    std::vector<std::pair<OpP, bool>> left; /* last operations of those gone; blocking? */
    /* model */
    std::vector<std::deque<OpP>> queues;
    std::set<std::pair<std::pair<int, long>, OpP>, ReadyLess> ready[4]; /* by engine */
    OpP copying[2];
    std::vector<OpP> kernels; /* running, most urgent first */
    double round = NEVER;     /* when blocks end for which a more urgent kernel waits */
    OpP last_queued;
    cudaMemPool_t default_pool = nullptr, pool = nullptr; /* until asked for */
    unsigned flags = 0;                                   /* cudaSetDeviceFlags */
    size_t limits[3] = {1024, 1 << 20, 8 << 20};          /* cudaDeviceSetLimit */
    cudaFuncCache cache = cudaFuncCachePreferNone;
    std::set<int> peers; /* devices whose memory its kernels may use */
};

/* Of managed memory: where its pages are and should be, by pieces of PIECE bytes. */
struct Managed {
    std::vector<int> at; /* of each piece: the device, or cudaCpuDeviceId */
    bool read_mostly = false;
    int preferred = cudaInvalidDeviceId, prefetched = cudaInvalidDeviceId;
    std::set<int> accessed_by;
};

struct Pool;

/* Addresses are kept inverted so that LeakSanitizer does not take the registry for a user. */
struct Block {
    size_t size = 0;
    int device = 0;
    unsigned flags = 0;
    long number = 0;         /* from 1, never used again, as addresses are */
    bool registered = false; /* cudaHostRegister, else allocated */
    bool counted = false;    /* in Device::used */
    bool variable = false;   /* __managed__ ones, all in one block, or a symbol: never freed */
    std::shared_ptr<Managed> managed;
    std::shared_ptr<Pool> pool;
};

typedef std::map<uintptr_t, Block> Blocks; /* key: ~address */

struct Task; /* of a host thread: hostcuda_tasks.cpp */
typedef std::shared_ptr<Task> TaskP;

struct Thread {
    int device = 0;
    bool started = false; /* it has called something that starts CUDA in a thread */
    cudaError_t last = cudaSuccess;
    double clock = 0;
    long epoch = -1; /* of the clock */
    bool in_host = false;
    double host_ns = 0;
    TaskP task;              /* that it does */
    bool unmodelled = false; /* its calls take no modelled time */
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    std::map<int, StreamP> streams;                           /* cudaStreamPerThread, by device */
    Bell woken = std::make_shared<std::condition_variable>(); /* an operation is done */
    std::vector<Bell> ringing;                                /* when it lets the mutex go */
    ~Thread();
};
#ifdef _WIN32
/* MinGW frees a thread's variables before it destroys them, so this one is never freed. */
Thread &self_here();
#define self self_here()
#else
extern thread_local Thread self;
#endif

struct KernelInfo {
    void (*invoker)(const void *, void *const *) = nullptr;
    std::vector<size_t> sizes;
    std::vector<bool> pointers; /* parameters that point to data */
    bool timed = false;
    double fixed_ns = 0, ns_per_thread = 0;
    std::string name;
    int max_dynamic = 0;
};

struct Fault {
    std::string what; /* empty: any */
    bool async;
    long left;
    cudaError_t error;
};

struct State {
    std::mutex mutex;
    std::condition_variable changed; /* an operation or host function ended */
    std::vector<std::unique_ptr<Device>> devices;
    bool used = false;
    bool forked = false; /* from a process that had used CUDA: every call fails */
    long seq = 0;
    uintptr_t handles = 0x10000;
    unsigned long long captures = 0;
    unsigned stream_ids = 0, own_stream_ids = 0; /* own: the threads' default streams */
    std::unordered_map<uintptr_t, StreamP> streams;
    std::unordered_map<uintptr_t, EventP> events;
    std::unordered_map<uintptr_t, GraphP> graphs, execs;
    std::unordered_map<uintptr_t, std::shared_ptr<Pool>> pools; /* default ones, too */
    std::vector<std::thread> finished; /* threads of destroyed streams, to be joined */
    std::vector<std::weak_ptr<Capture>> capturing;
    Blocks device_blocks, host_blocks;
    long last_block = 0;
    std::set<long> blocks_there;    /* also those that a call still waits to free */
    std::set<long> blocks_coming;   /* their streams have not allocated them yet */
    size_t pinned_limit = SIZE_MAX; /* hostcuda_set_pinned_limit */
    bool prompt = false;            /* hostcuda_set_prompt_errors */
    std::unordered_map<const void *, KernelInfo> kernels;
    std::vector<Fault> faults;
    long fired = 0;
    std::map<std::string, long> calls;
    long all_calls = 0;
    unsigned jitter = 0;
    std::map<const Op *, std::chrono::steady_clock::time_point> running_hosts;

    /* model */
    double now = 0;    /* simulated up to here */
    double latest = 0; /* of all host clocks: where a new thread starts */
    long epoch = 0, dispatched = 0;

    struct Due {
        double time;
        long seq;
        OpP op;

        bool operator<(const Due &o) const { return time != o.time ? time < o.time : seq < o.seq; }
    };

    std::multiset<Due> due;             /* ready in order, not yet issued or still in latency */
    std::vector<OpP> timed, unresolved; /* host functions and other work without an engine */
    bool tracing = false;
    std::vector<OpP> trace;
};

State &state();

/* ---- every call (hostcuda.cpp) --------------------------------------------------------------- */

inline uintptr_t thread_key() { return reinterpret_cast<uintptr_t>(&self); }

inline Device &device(int i) { return *state().devices[static_cast<size_t>(i)]; }

inline Device &current() { return device(self.device); }

inline bool is_device(int i) { return i >= 0 && static_cast<size_t>(i) < state().devices.size(); }

enum Flags : unsigned {
    PLAIN = 0,
    NO_STICKY = 1, /* works on a broken device; does not start CUDA in a thread */
    UNSAFE = 2,    /* forbidden while a capture forbids unsafe calls */
    RELEASE = 4,   /* on a broken device: does its work, then returns the error */
    NO_START = 8   /* does not start CUDA in a thread */
};

struct Call {
    Hidden hidden;
    Lock lock;
    cudaError_t refused = cudaSuccess; /* return done() at once */
    cudaError_t sticky = cudaSuccess;  /* RELEASE: returned in the end */

    Call(const char *function, unsigned flags, double hostcuda_profile_t::*cost = nullptr);

    cudaError_t done(cudaError_t e) {
        if (refused != cudaSuccess)
            e = refused;
        else if (sticky != cudaSuccess)
            e = sticky;
        if (e != cudaSuccess) self.last = e;
        return e;
    }
};

/* Captures forbid unsafe calls to all threads (global) or to the thread that began them
 * (thread-local). */
bool forbidden_by_capture();

/* Says why a call is refused: "invalid argument" does not say which one. Only the first ones of a
 * program are said. */
void explain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define ENTER(...)                                                                                 \
    Call call(__func__, __VA_ARGS__);                                                              \
    if (call.refused != cudaSuccess) return call.done(cudaSuccess)
#define REFUSE_IF(condition, error)                                                                \
    if (condition) return call.done(error)

typedef hostcuda_profile_t P;

/* ---- handles --------------------------------------------------------------------------------- */

/* Handles are numbers that are never reused, so a destroyed handle is always recognised. */
template <typename H>
H new_handle() {
    state().handles += 16;
    return reinterpret_cast<H>(state().handles);
}

template <typename H, typename T>
T find(const std::unordered_map<uintptr_t, T> &map, H handle) {
    const auto i = map.find(reinterpret_cast<uintptr_t>(handle));
    return i == map.end() ? T() : i->second;
}

template <typename H, typename T>
void put(std::unordered_map<uintptr_t, T> &map, H handle, const T &value) {
    map[reinterpret_cast<uintptr_t>(handle)] = value;
}

template <typename H, typename T>
T take(std::unordered_map<uintptr_t, T> &map, H handle) {
    const T value = find(map, handle);
    map.erase(reinterpret_cast<uintptr_t>(handle));
    return value;
}

/* ---- streams and their operations (hostcuda_stream.cpp) -------------------------------------- */

inline bool is_legacy(const Stream &s) { return s.id == 0; }

inline bool is_blocking(const Stream &s) {
    return !is_legacy(s) && !(s.flags & cudaStreamNonBlocking);
}

StreamP find_stream(cudaStream_t handle);
void close_stream(const StreamP &s);
void join_finished(Lock &lock);
void wait_real(Lock &lock, Op &op);
void resolve(Op &op, double ns); /* a host function has run for ns */
OpP new_op(const Stream &s, int kind);
void add_legacy_deps(const Stream &s, std::vector<OpP> &deps);
void stamp(const OpP &op);
/* Passes a complete operation to the model (with the operations that it follows) and to the
 * stream's thread. */
void enqueue(const StreamP &s, const OpP &op, const std::vector<OpP> &after);
void submit(const StreamP &s, const OpP &op);
cudaError_t injected_async(int kind); /* the error injected into an operation of this kind */
/* Whether a host function has run for so long that it may be waiting for the calling thread. */
bool host_function_hangs(std::chrono::milliseconds patience);
/* "kernel", "copy", ...: what an operation is called in messages. */
const char *noun_of(const Op &op);
/* Returns a failure of the device's work: at synchronisations and at successful queries. */
cudaError_t surface(Device &d);
/* Advances this thread's clock to the modelled end of an operation. */
void clock_to(Lock &lock, const Op &op);
bool run_model(Lock &lock, double until, const Op *op, std::chrono::milliseconds patience,
               bool insist);
/* By value: while this waits, another thread may give the stream or event a newer operation. */
void wait_for(Call &call, OpP op);
void wait_for_device(Call &call, Device &d);
/* The same, but what the work wrote is not shown to ThreadSanitizer as safe to read. */
void let_device_end(Call &call, Device &d);
std::vector<OpP> tails(const Device &d); /* the last operations of its streams */

/* ---- captures (hostcuda_graph.cpp) ----------------------------------------------------------- */

inline cudaError_t invalidate(Capture &c, cudaError_t e) {
    c.invalid = true;
    return e;
}

cudaError_t submit_or_capture(const StreamP &s, const OpP &op);

/* ---- the clock (hostcuda_clock.cpp) ---------------------------------------------------------- */

hostcuda_profile_t profile_named(const char *name);
void model_device(Device &d); /* sizes the queues after a profile change */
void model_add(const OpP &op, const std::vector<OpP> &after);
enum class Ran {
    REACHED,
    STALLED
};
/* Simulates to `until`, or until op is done. STALLED: a host function has not ended yet. */
Ran model_run(double until, const Op *op);
double model_next(); /* the next event, or infinity */
double &clock_of_thread();
void clock_advance(double ns);

/* ---- work of host threads (hostcuda_tasks.cpp) ----------------------------------------------- */

void add_work(Task &task, double ns);
void forget_tasks();

/* ---- where memory comes from (hostcuda_pages.cpp) -------------------------------------------- */

/* From the process; filled with a pattern or as it comes. NULL if there is none. */
void *allocate(size_t align, size_t size, bool filled);
void free_allocated(void *p);

/* How many bytes of a range lie in pages of mapped files; 0 where the system does not tell. */
size_t file_bytes(const void *p, size_t size);

/* ---- memory (hostcuda_memory.cpp) ------------------------------------------------------------ */

void really_free(void *p);
/* Makes p known as the block b; p is there at once, or when it has been said to be. */
void remember(Blocks &blocks, const void *p, Block b, bool there = true);
/* Calls no longer know the block that starts at p; false if there is none. Until it is gone, work
 * that was issued before may use it. */
bool forget(Blocks &blocks, const void *p, bool registered, Block *was);
void gone(const Block &b);
/* The block that holds p, or end(). */
Blocks::iterator block_of(Blocks &blocks, const void *p);
/* The number of the block that holds p or, as kernels are given ends of arrays, ends at p; 0: of
 * neither, so pageable memory, or freed. */
long block_number(const void *p);
int owner_of(const void *p);
/* Whether the memory that the operation and its parts use has not been freed or unregistered. */
bool has_memory(const Op &op);

/* ---- managed memory (hostcuda_managed.cpp) --------------------------------------------------- */

void add_managed_variables(State &s);
/* How long a kernel of this device waits for the managed memory around p, which is there then. */
double migrate(const void *p, int device);

/* ---- pools (hostcuda_pool.cpp) --------------------------------------------------------------- */

/* A synchronisation: pools give back what they keep beyond their thresholds. */
void trim_pools();
/* A block of a pool was freed without the stream's order. */
void leave_pool(const Block &b);
void reset_pools(int device);
int pools_made(); /* by cudaMemPoolCreate, and not destroyed */

} /* namespace hc */

#endif
