/*  streampipe.h 0.2.0 -- CUDA stream pipelines in one header.

    Cuts any array, file or endless source into chunks and runs them through your kernels while
    copies in, kernels and copies out overlap. Also the parts it is made of: streams by priority,
    stream pools, events, timers, pinned memory, host calls, workers and channels.
    C99, C++11 and CUDA C++ alike. MIT licence: see the end of this file.

    USE IT   copy this file beside your program and #include it: nothing to define, nothing to
             link but the CUDA runtime (and pthreads).

    CHANGE IT   this file is made: `make amalgamate` joins the short files of src/ in the order
             of src/order. Edit those; a line `---- src/...` says where each part comes from.

    A COMPLETE PROGRAM       nvcc -O3 -o first first.cu
BEGIN EXAMPLE first.cu
    #include "streampipe.h"

    static __global__ void square(const float *x, float *y, size_t n) {
        size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[i] * x[i];
    }
    static cudaError_t square_stage(const spipe_chunk_t *c, void *user) {
        (void)user;                          // SPIPE_MAP_STAGE writes this function in a line
        return SPIPE_LAUNCH(square, spipe_blocks(c->count, 256), 256, 0, c->stream,
                            SPIPE_BUF(c, 0, const float), SPIPE_BUF(c, 1, float), c->count);
    }
    int main(void) {
        size_t n = 10000000;
        float *x = (float *)malloc(n * sizeof *x), *y = (float *)malloc(n * sizeof *y);
        if (!x || !y) return 1;
        for (size_t i = 0; i < n; ++i) x[i] = (float)(i % 1000);

        spipe_report_t report;
        spipe_desc_t d = spipe_desc_default();
        d.count = n;                                      // elements in the whole
        spipe_add_input (&d, x, sizeof *x);               // buffer 0: any host memory
        spipe_add_output(&d, y, sizeof *y);               // buffer 1
        spipe_add_stage (&d, "square", square_stage, NULL);
        SPIPE_CHECK_RUN(&d, &report);                     // prints why and stops on failure
        spipe_report_print(&report, stdout);

        for (size_t i = 0; i < n; ++i) if (y[i] != x[i] * x[i]) return 1;
        free(x); free(y);
        return 0;
    }
END EXAMPLE

    CONTENTS (search for the anchor; the second half repeats the order as code)
      1  >>config     version, limits, macros you may define
      2  >>errors     SPIPE_TRY, SPIPE_CHECK, spipe_failure_t
      3  >>device     copy engines, priorities, pageable access, NUMA node
      4  >>streams    streams by priority name, waiting, pools, leases, scopes
      5  >>events     untimed events, event pools, timers
      6  >>memory     pinned allocation, pinning in place, "is this pinned?"
      7  >>hostcalls  host functions in a stream's order, workers that may call CUDA
      8  >>channels   values handed from one stream to another
      9  >>describe   buffers, stages, sizes: the description of a pipeline
     10  >>costs      what copies, launches and threads cost on a machine
     11  >>plan       what a run will choose, and why
     12  >>report     what happened
     13  >>execute    spipe_run, the kept pipeline, runs in a stream's order, chunk by chunk
     14  >>resources  what many runs share: memory, streams, threads
     15  >>launch     SPIPE_LAUNCH and stage macros (C++ and .cu only)

    WORDS
      element      the unit that count and chunk count: a float, a pixel, an image row, a record
      chunk        consecutive elements that travel together; the last one may be shorter
      batch        several small chunks that are copied in one piece
      buffer       an array cut into chunks, or one block for the whole run (resident)
      stage        a C function that enqueues work on the stream it is given, for one chunk
      slot         the device memory (and pinned memory, where staged) of one batch in flight
      depth        the number of slots: memory used = depth x chunk, whatever the total
      staging      copying pageable memory through pinned slots, by worker threads
      zero-copy    kernels read and write pinned host memory themselves; nothing is copied
      one-shot     a run by spipe_run, which sets up and frees everything
      kept         a pipeline made once by spipe_pipeline_create and run many times
      plan         the choices for a run: chunk, depth, schedule, staging, threads

    HOW A CHUNK TRAVELS    host buffer -> (pinned slot) -> device slot -> stages -> ... -> host
      copy in  |0|1|2|3|4|          a slot is used again when its copy out has ended;
      stages     |0|1|2|3|4|        an event joins each step to the next; chunks take turns
      copy out     |0|1|2|3|4|      on two kernel streams unless a stage is marked ordered

    RULES
      Ownership  arrays you pass stay yours and must live until the run returns (enqueue: until
                 the stream has passed it). A pipeline is a pointer made by
                 spipe_pipeline_create. Pools, timers and the like are structs of yours: zeroed =
                 dead, made by *_create, freed by *_destroy, never moved or copied while alive.
                 Destroying twice, or a zeroed one, is fine.
      Errors     every function returns cudaError_t, prints nothing, never exits (the SPIPE_CHECK
                 macros apart), and leaves the current device as it was. A run that fails says
                 which stage and chunk, and how many chunks are whole, in a spipe_failure_t.
      Threads    two threads may use two objects; one object is for one thread at a time unless
                 its comment says "any". Host stages, sources and sinks run on library threads.

    WHEN IT WILL NOT OVERLAP
      Copies in the same direction never run at once, and both directions at once are each slower
      than alone. Stream priority orders kernels, not copies. A stage that synchronises, allocates,
      or uses another stream than its own stops the pipeline.
*/

/* ---- src/public/api_config.h ---- */
/* ---- The include guard, and what the library includes: the CUDA runtime, C, pthreads -------- */
#ifndef STREAMPIPE_H
#define STREAMPIPE_H

#include <cuda_runtime_api.h>
#ifdef __cplusplus
#include <cuda_runtime.h> /* cudaLaunchKernelEx for SPIPE_LAUNCH */
#include <exception>
#include <new>
#endif
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if !defined(_MSC_VER)
#include <sys/time.h>
#include <unistd.h>
#elif !defined(SPIPE_NO_THREADS)
#define SPIPE_NO_THREADS /* no pthreads there; MinGW has them */
#endif
#if !defined(_WIN32)
#include <sys/resource.h>
#endif
#if defined(__linux__)
#include <sys/mman.h> /* madvise, where the language standard lets it show */
#endif
#if !defined(SPIPE_NO_THREADS)
#include <pthread.h>
#include <signal.h>
#endif
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#include <emmintrin.h> /* streaming stores; sanitizers do not see those */
#define SPIPE_PRIV_STREAM_STORES 1
#else
#define SPIPE_PRIV_STREAM_STORES 0
#endif

/* ============================================================================================
   >>api    every public type and function, layer by layer
   ============================================================================================ */

/* ---- 1 >>config ----------------------------------------------------------------------------
   Version, limits, linkage, and the names of earlier versions. Uses nothing of the library.

   Define before including, in any file that wants it; none changes a public struct:
     SPIPE_NO_THREADS   no worker threads: host work is the calling thread's, worker_create returns
                        cudaErrorNotSupported (MSVC: always); in no file or in all that share data
     SPIPE_API          linkage of every function (default: static inline)                     */
#define SPIPE_VERSION_MAJOR 0
#define SPIPE_VERSION_MINOR 2
#define SPIPE_VERSION_PATCH 0
#define SPIPE_VERSION                                                                              \
    (SPIPE_VERSION_MAJOR * 10000 + SPIPE_VERSION_MINOR * 100 + SPIPE_VERSION_PATCH)
#if defined(__GNUC__) || defined(__clang__)
#define SPIPE_PRIV_ATTRIBUTE(list) __attribute__(list)
#else
#define SPIPE_PRIV_ATTRIBUTE(list)
#endif
#ifndef SPIPE_API
#define SPIPE_API static inline SPIPE_PRIV_ATTRIBUTE((unused))
#endif
/* Linkage of what returns an error that must not be ignored: the work may not be done. */
#if defined(__cplusplus) && __cplusplus >= 201703L
#define SPIPE_API_RESULT [[nodiscard]] SPIPE_API
#elif defined(__clang__) || !defined(__cplusplus)
#define SPIPE_API_RESULT SPIPE_PRIV_ATTRIBUTE((warn_unused_result)) SPIPE_API
#else /* g++ would warn of (void)spipe_run(...), too */
#define SPIPE_API_RESULT SPIPE_API
#endif
/* Private functions off the loop that issues are compiled to be small, those in it to be fast. */
#define SPIPE_PRIV_RARE  SPIPE_PRIV_ATTRIBUTE((cold)) SPIPE_API
#define SPIPE_PRIV_OFTEN SPIPE_PRIV_ATTRIBUTE((hot)) SPIPE_API

#define SPIPE_MAX_BUFFERS 16
#define SPIPE_MAX_STAGES  16
#define SPIPE_MAX_DEPTH   16
#define SPIPE_MAX_THREADS 32
#define SPIPE_MAX_STREAMS 32 /* of a pool: as many as CUDA can keep apart */
#define SPIPE_MAX_DEVICES 16
/* For count, chunk, depth and threads: the library chooses (count: until the sources end). */
#define SPIPE_AUTO ((size_t)-1)

/* 1 = AddressSanitizer watches memory */
#if defined(__SANITIZE_ADDRESS__)
#define SPIPE_PRIV_ASAN 1
#elif defined(__has_feature)
#define SPIPE_PRIV_ASAN __has_feature(address_sanitizer)
#else
#define SPIPE_PRIV_ASAN 0
#endif

/* Stands in what was begun with a _default function of this version. */
#define SPIPE_PRIV_STAMP ((size_t)0x53700000u + SPIPE_VERSION)

/* Names of version 0.1 do not compile; the message gives the new name. */
#if defined(__GNUC__) || defined(__clang__)
#define SPIPE_PRIV_PRAGMA(text)     _Pragma(#text)
#define SPIPE_PRIV_RENAMED(message) SPIPE_PRIV_PRAGMA(GCC error message)
#else
#define SPIPE_PRIV_RENAMED(message) spipe_this_name_has_changed_see_the_changelog
#endif
#define spipe_stage_once  SPIPE_PRIV_RENAMED("spipe_stage_once is now spipe_stage_elementwise")
#define spipe_stage_fixed SPIPE_PRIV_RENAMED("spipe_stage_fixed is now spipe_stage_replayable")
#define spipe_enqueue     SPIPE_PRIV_RENAMED("spipe_enqueue is now spipe_pipeline_enqueue")
#define SPIPE_MAPPED      SPIPE_PRIV_RENAMED("SPIPE_MAPPED is now SPIPE_ZERO_COPY")

/* ---- src/public/api_errors.h ---- */
/* ---- 2 >>errors ----------------------------------------------------------------------------
   Checking macros and the sentence that explains a failure. Uses only config. */
/*  SPIPE_TRY(expr) returns expr's cudaError_t from the enclosing function unless it is cudaSuccess.
    SPIPE_CHECK(expr) prints file:line, expr and the error on stderr and exits (for programs).
    SPIPE_CHECK_RUN(desc, report) is spipe_run, checked: on failure it prints the sentence too.
    Each evaluates its argument once.                                                           */
#define SPIPE_TRY(expr)                                                                            \
    do {                                                                                           \
        const cudaError_t spipe_priv_try_ = (expr);                                                \
        if (spipe_priv_try_ != cudaSuccess) return spipe_priv_try_;                                \
    } while (0)
#define SPIPE_CHECK(expr)             spipe_priv_check((expr), #expr, NULL, __FILE__, __LINE__)
#define SPIPE_CHECK_RUN(desc, report) spipe_priv_check_run((desc), (report), __FILE__, __LINE__)

/* A run that the progress callback stopped returns this: the work is not finished. */
#define SPIPE_STOPPED cudaErrorNotReady

/* Why a pipeline failed, where a cudaError_t is too poor. */
typedef struct spipe_failure {
    cudaError_t error;   /* the first error; cudaSuccess = no failure */
    int stage;           /* number of the stage, -1 where no stage is to blame */
    size_t chunk;        /* number of the chunk, SPIPE_AUTO where none is to blame */
    size_t chunks_whole; /* chunks 0 .. chunks_whole-1 of every output are complete */
    char message[320];   /* one sentence: what is wrong and the cure */
} spipe_failure_t;

/* ---- src/public/api_device.h ---- */
/* ---- 3 >>device ----------------------------------------------------------------------------
   What a GPU can do at the same time. Reads the device; changes nothing. */
/* What decides whether and how work overlaps on a device. */
typedef struct spipe_device {
    int device;
    char name[64];
    int compute_major, compute_minor, num_sms;
    int copy_engines;                    /* asyncEngineCount: 1 = one direction at a time */
    int concurrent_kernels;              /* 1 = kernels of different streams may run at once */
    int priority_least;                  /* numerically largest; 0 on today's GPUs */
    int priority_greatest;               /* numerically smallest; -5 on today's GPUs */
    int map_host_memory;                 /* kernels can read and write pinned host memory */
    int pageable_access;                 /* the GPU can read pageable host memory by itself ... */
    int host_page_tables;                /* ... through the host's page tables, at full speed */
    int integrated;                      /* shares its memory with the CPU */
    int numa_node;                       /* host NUMA node the GPU hangs on, -1 = not known */
    size_t memory_bytes;                 /* device memory in all */
    int runtime_version, driver_version; /* 1000 x major + 10 x minor */
} spipe_device_t;

/*  spipe_device_get -- read the facts of one device.

    facts      out     filled whole; zeroed on error.
    device     in      device number, or -1 for the current one.
    Returns    cudaSuccess; cudaErrorInvalidValue; cudaErrorInvalidDevice; cudaErrorNoDevice.
    Blocks     no (may create the context on first use).   Threads  any.   Callback  no.
    Capture    yes.   Allocates  nothing. */
SPIPE_API cudaError_t spipe_device_get(spipe_device_t *facts, int device);

/* ---- src/public/api_streams.h ---- */
/* ---- 4 >>streams ---------------------------------------------------------------------------
   Streams by priority, pools of them, leases and scopes. */
/* Priorities order waiting kernels, never copies. On today's GPUs the range is 0 .. -5 and CUDA's
   default 0 is the least, so LOW equals DEFAULT there. */
typedef enum spipe_priority {
    SPIPE_PRIORITY_DEFAULT = 0, /* CUDA's own default, 0 */
    SPIPE_PRIORITY_LOW,         /* the least of the device */
    SPIPE_PRIORITY_MEDIUM,      /* halfway */
    SPIPE_PRIORITY_HIGH         /* the greatest of the device */
} spipe_priority_t;

typedef struct spipe_priv_sync spipe_priv_sync_t; /* a lock, and a condition to wait for */

/* Streams made once, to take in turn or to lease. Members are private. */
typedef struct spipe_stream_pool {
    size_t num_streams, next;
    cudaStream_t streams[SPIPE_MAX_STREAMS];
    unsigned char leased[SPIPE_MAX_STREAMS];
    int device;
    spipe_priv_sync_t *sync;
    const void *self; /* where it was made: what was copied or never made is refused */
} spipe_stream_pool_t;

/*  spipe_priority_value, spipe_stream_create, spipe_stream_wait -- CUDA's number for a priority
    name; a non-blocking stream of it, free of the legacy default stream; a stream waits for one.

    priority   in      one of spipe_priority_t, on the current device.
    value      out     for cudaStreamCreateWithPriority; lower is more urgent.
    stream     out     yours; free it with cudaStreamDestroy. NULL on error.
    waiter     in      what is queued on it from now on starts after all that is on other by now.
    other      in      may be of another device.
    Returns    cudaSuccess; cudaErrorInvalidValue; any error of the CUDA calls they are made of.
    Blocks     no.   Threads  any.   Callback  no.   Capture  yes: waiter joins other's capture.
    Allocates  create: one stream. wait: one untimed event, freed before return; where that
               matters, keep an event and use cudaEventRecord + cudaStreamWaitEvent. */
SPIPE_API cudaError_t spipe_priority_value(spipe_priority_t priority, int *value);
SPIPE_API cudaError_t spipe_stream_create(cudaStream_t *stream, spipe_priority_t priority);
SPIPE_API cudaError_t spipe_stream_wait(cudaStream_t waiter, cudaStream_t other);

/*  spipe_stream_pool_create, spipe_stream_pool_destroy -- num_streams streams, made once.

    pool       out     made on the current device; must not move until destroyed.
    num_streams in     1 .. SPIPE_MAX_STREAMS; beyond 8 they share hardware queues unless
                       CUDA_DEVICE_MAX_CONNECTIONS says more, so 2-8 is plenty.
    priority   in      of all of them.
    Returns    cudaSuccess; cudaErrorInvalidValue (destroy: a pool that was moved, copied or never
               made); cudaErrorMemoryAllocation; any error of stream creation (then the pool is
               zeroed and nothing is kept).
    Blocks     create: no. destroy: no; work still queued on the streams completes.
    Threads    one; nobody may hold or wait for a lease when destroy is called.
    Callback   no.   Capture  no.
    Allocates  num_streams streams and a little host memory, until destroy. */
SPIPE_API cudaError_t spipe_stream_pool_create(spipe_stream_pool_t *pool, size_t num_streams,
                                               spipe_priority_t priority);
SPIPE_API cudaError_t spipe_stream_pool_destroy(spipe_stream_pool_t *pool);

/*  spipe_stream_next -- the next stream of a pool, round robin.

    pool       in      made by spipe_stream_pool_create.
    stream     out     shared; to have one to yourself: spipe_stream_acquire.
    Returns    cudaSuccess; cudaErrorInvalidValue (a dead pool, a copy).
    Blocks     no.   Threads  any.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API cudaError_t spipe_stream_next(spipe_stream_pool_t *pool, cudaStream_t *stream);

/*  spipe_stream_acquire, spipe_stream_try_acquire, spipe_stream_release -- lease and give back.

    pool       in      made by spipe_stream_pool_create.
    stream     out/in  acquire: a stream nobody else has leased, an idle one if there is one.
                       release: one that acquire gave; work may still be queued on it.
    Returns    cudaSuccess; try_acquire: cudaErrorNotReady when all are leased; release:
               cudaErrorInvalidResourceHandle for a stream that is not leased from this pool;
               cudaErrorInvalidValue for a dead pool.
    Blocks     acquire: the calling thread, until another releases. The others: no.
    Threads    any.
    Callback   release: yes. acquire and try_acquire: no (they query streams).
    Capture    release: yes. The others: no.   Allocates  nothing. */
SPIPE_API cudaError_t spipe_stream_acquire(spipe_stream_pool_t *pool, cudaStream_t *stream);
SPIPE_API cudaError_t spipe_stream_try_acquire(spipe_stream_pool_t *pool, cudaStream_t *stream);
SPIPE_API cudaError_t spipe_stream_release(spipe_stream_pool_t *pool, cudaStream_t stream);

/* A stream leased for a while: use stream; the other members are private. */
typedef struct spipe_scope {
    cudaStream_t stream;
    cudaStream_t parent;
    spipe_stream_pool_t *pool;
} spipe_scope_t;

/*  spipe_scope_begin, spipe_scope_end -- a side stream for a stretch of code.

    scope      out/in  scope->stream is the leased stream. It starts after what is on parent at
                       begin; what is put on parent after end starts after all that is on it.
    pool       in      where the stream is leased from, between begin and end.
    parent     in      the stream to fork from and join.
    Returns    cudaSuccess; any error of acquire, release and spipe_stream_wait. end gives the
               stream back whatever happens; ending a zeroed or ended scope is fine.
    Blocks     begin: until a stream is free. end: no.
    Threads    one scope, one thread; a pool serves many.   Callback  no.
    Capture    end: yes. begin: no (it queries streams).   Allocates  nothing that stays. */
SPIPE_API cudaError_t spipe_scope_begin(spipe_scope_t *scope, spipe_stream_pool_t *pool,
                                        cudaStream_t parent);
SPIPE_API cudaError_t spipe_scope_end(spipe_scope_t *scope);

/* ---- src/public/api_events.h ---- */
/* ---- 5 >>events ----------------------------------------------------------------------------
   Events for ordering, pools of them, and a stopwatch. */
/*  spipe_event_create -- an event for ordering, without a time stamp (about ten times cheaper).

    event      out     yours; free it with cudaEventDestroy. NULL on error.
    Returns    cudaSuccess; cudaErrorInvalidValue; any error of event creation.
    Blocks     no.   Threads  any.   Callback  no.   Capture  yes.   Allocates  an event. */
SPIPE_API cudaError_t spipe_event_create(cudaEvent_t *event);

/* Untimed events kept for reuse. Members are private. */
typedef struct spipe_event_pool {
    size_t num_free, num_total;
    cudaEvent_t *free_events;
    int device;
    spipe_priv_sync_t *sync;
    const void *self; /* where it was made: what was copied or never made is refused */
} spipe_event_pool_t;

/*  spipe_event_pool_create, spipe_event_pool_destroy, spipe_event_acquire, spipe_event_release
    -- untimed events, made when first needed and kept.

    pool       out/in  of the current device at create; must not move until destroyed.
    event      out/in  acquire: one nobody else holds. release: one that acquire gave; waits
                       queued on it stay valid.
    Returns    cudaSuccess; cudaErrorInvalidValue (a dead pool, a copy, NULL, or an event
               released twice); cudaErrorMemoryAllocation; any error of event creation. destroy
               returns cudaErrorInvalidValue when events are still out; those stay the holder's.
    Blocks     no.
    Threads    create, destroy: one. The others: any.
    Callback   release: yes. The others: no.   Capture  yes.
    Allocates  an event when none is free, and a little host memory. */
SPIPE_API cudaError_t spipe_event_pool_create(spipe_event_pool_t *pool);
SPIPE_API cudaError_t spipe_event_acquire(spipe_event_pool_t *pool, cudaEvent_t *event);
SPIPE_API cudaError_t spipe_event_release(spipe_event_pool_t *pool, cudaEvent_t event);
SPIPE_API cudaError_t spipe_event_pool_destroy(spipe_event_pool_t *pool);

/* A stopwatch on a stream. Members are private. */
typedef struct spipe_timer {
    cudaEvent_t begin, end;
    const void *self; /* where it was made: what was copied or never made is refused */
} spipe_timer_t;

/*  spipe_timer_create, spipe_timer_destroy, spipe_timer_start, spipe_timer_stop, spipe_timer_ms
    -- time what lies between start and stop on a stream, by the GPU's clock.

    timer      out/in  of the current device at create; may be started again and again.
    stream     in      start and stop may name different streams of the same device.
    ms         out     milliseconds between the two, resolution about half a microsecond.
    Returns    cudaSuccess; cudaErrorInvalidValue; cudaErrorInvalidResourceHandle (a dead timer,
               a copy, or ms before start and stop); any error of the event calls.
    Blocks     ms: until stop's point is reached. The others: no.
    Threads    one.   Callback  no.   Capture  no.
    Allocates  create: two timed events, until destroy. */
SPIPE_API cudaError_t spipe_timer_create(spipe_timer_t *timer);
SPIPE_API cudaError_t spipe_timer_start(spipe_timer_t *timer, cudaStream_t stream);
SPIPE_API cudaError_t spipe_timer_stop(spipe_timer_t *timer, cudaStream_t stream);
SPIPE_API cudaError_t spipe_timer_ms(spipe_timer_t *timer, float *ms);
SPIPE_API cudaError_t spipe_timer_destroy(spipe_timer_t *timer);

/* ---- src/public/api_memory.h ---- */
/* ---- 6 >>memory ----------------------------------------------------------------------------
   Page-locked (pinned) host memory. */
/*  spipe_pinned_alloc, spipe_pinned_free -- page-locked host memory, mapped for the GPU.
    spipe_pin, spipe_unpin -- page-lock memory that is there already, in place.
    spipe_is_pinned -- whether a copy from or to this range can be asynchronous.

    ptr        in/out  alloc: at least bytes long; NULL for 0 bytes and on error. Freeing NULL is
                       fine. pin: the first byte, need not be page-aligned; unpin: the same.
    bytes      bytes   pinning runs at 1-2 GB/s: take little, once, and keep it; pin in place what
                       is sent several times. is_pinned looks at the first and the last byte.
    pinned     out     1 = pinned (or device or managed memory), 0 = pageable.
    Returns    cudaSuccess; cudaErrorInvalidValue; cudaErrorMemoryAllocation;
               cudaErrorHostMemoryAlreadyRegistered; cudaErrorHostMemoryNotRegistered;
               cudaErrorNotSupported where the system will not (WSL2, limits): it works unpinned.
    Blocks     yes, for the time of pinning; free and unpin wait for the device. is_pinned: no.
    Threads    any.   Callback  no.   Capture  is_pinned: yes. The others: no.
    Allocates  alloc: pinned host memory. */
SPIPE_API cudaError_t spipe_pinned_alloc(void **ptr, size_t bytes);
SPIPE_API cudaError_t spipe_pinned_free(void *ptr);
SPIPE_API cudaError_t spipe_pin(void *ptr, size_t bytes);
SPIPE_API cudaError_t spipe_unpin(void *ptr);
SPIPE_API cudaError_t spipe_is_pinned(const void *ptr, size_t bytes, int *pinned);

/* ---- src/public/api_hostcalls.h ---- */
/* ---- 7 >>hostcalls -------------------------------------------------------------------------
   Host functions that run when a stream reaches them. */
typedef void (*spipe_host_fn)(void *user);

/*  spipe_host_call -- CUDA calls fn(user) on a thread of its own when stream gets there.

    stream     in      work queued after it waits until fn returns.
    fn         in      must not call CUDA, directly or by waiting for a thread that does; must
                       not throw. NOT called after an error in the context: no cleanup hook.
    user       in      handed to fn; must live until it has run.
    Returns    cudaSuccess; cudaErrorInvalidValue; any error of cudaLaunchHostFunc.
    Blocks     no.   Threads  any.   Callback  no.   Capture  yes: a host node.
    Allocates  nothing. */
SPIPE_API cudaError_t spipe_host_call(cudaStream_t stream, spipe_host_fn fn, void *user);

typedef void (*spipe_worker_fn)(cudaError_t status, void *user);

/* A host thread that runs functions when streams reach them. Members are private. */
typedef struct spipe_worker {
    struct spipe_priv_job *first, *last; /* the calls that wait */
    int running, quit, busy, device;
    spipe_priv_sync_t *sync;
    void *thread;
    const void *self; /* where it was made: what was copied or never made is refused */
} spipe_worker_t;

/*  spipe_worker_create, spipe_worker_call, spipe_worker_wait, spipe_worker_destroy -- a host
    thread that runs fn(status, user) when a stream gets there, and MAY call CUDA: so the end of
    one batch can queue the next.

    worker     out/in  of the current device at create, which is current in fn; must not move.
    stream     in      fn runs after all that is on stream at the call; the stream goes on
                       without waiting for fn.
    fn         in      called exactly once, in the order of the calls, whatever happens: status
                       is cudaSuccess or the error found on reaching it. May call
                       spipe_worker_call (a chain), not wait or destroy.
    user       in      handed to fn; must live until it has run.
    Returns    cudaSuccess; cudaErrorInvalidValue; cudaErrorMemoryAllocation;
               cudaErrorNotSupported (no thread can be had); any error of event calls: then fn
               was not taken and will not be called.
    Blocks     create, call: no. wait: until no call is left. destroy: likewise.
    Threads    call, wait: any. create, destroy: one.
    Callback   from fn: call only. From a spipe_host_call function: no.
    Capture    no.
    Allocates  create: a thread. call: one untimed event and host memory until fn has run. */
SPIPE_API cudaError_t spipe_worker_create(spipe_worker_t *worker);
SPIPE_API cudaError_t spipe_worker_call(spipe_worker_t *worker, cudaStream_t stream,
                                        spipe_worker_fn fn, void *user);
SPIPE_API cudaError_t spipe_worker_wait(spipe_worker_t *worker);
SPIPE_API cudaError_t spipe_worker_destroy(spipe_worker_t *worker);

/* ---- src/public/api_channels.h ---- */
/* ---- 8 >>channels --------------------------------------------------------------------------
   Values handed from one stream to another without the host waiting. */
/* A queue of values between two streams, in device memory. Members are private. */
typedef struct spipe_channel {
    size_t bytes, stride, capacity, num_sent, num_received;
    unsigned char *device_memory;
    cudaEvent_t *full, *empty; /* one pair a place */
    int device;
    spipe_priv_sync_t *sync;
    const void *self; /* where it was made: what was copied or never made is refused */
} spipe_channel_t;

/*  spipe_channel_create, spipe_channel_send, spipe_channel_recv, spipe_channel_destroy -- hand
    values from one stream to another, first in first out, without the host waiting.

    c          out/in  of the current device at create; must not move.
    bytes      bytes   size of one value, 1 or more.
    capacity   in      values under way at most, 1 or more.
    stream     in      send: value is read in this stream's order. recv: what is queued on it
                       after the call sees the value.
    value      in      send: device (or pinned host) memory to read.
    into       out     recv: device (or pinned host) memory to write.
    Returns    cudaSuccess; cudaErrorNotReady (send: full; recv: nothing sent yet; try again
               after the other side's call); cudaErrorInvalidValue; any error of the copy.
    Blocks     no. destroy waits for the device.
    Threads    send, recv: any. create, destroy: one.   Callback  no.   Capture  no.
    Allocates  create: capacity values of device memory and 2 x capacity events, until destroy. */
SPIPE_API cudaError_t spipe_channel_create(spipe_channel_t *c, size_t bytes, size_t capacity);
SPIPE_API cudaError_t spipe_channel_send(spipe_channel_t *c, cudaStream_t stream,
                                         const void *value);
SPIPE_API cudaError_t spipe_channel_recv(spipe_channel_t *c, cudaStream_t stream, void *into);
SPIPE_API cudaError_t spipe_channel_destroy(spipe_channel_t *c);

/* ---- src/public/api_describe.h ---- */
/* ---- 9 >>describe --------------------------------------------------------------------------
   What the user asks for: buffers, stages, sizes. The library never writes into it. */
typedef enum spipe_kind {
    SPIPE_INPUT = 1, /* host array, copied in */
    SPIPE_OUTPUT,    /* host array, copied out */
    SPIPE_INOUT,     /* host array, copied in and out */
    SPIPE_TEMP,      /* device only, one a slot */
    SPIPE_RESIDENT,  /* device only, one for the whole run */
    SPIPE_SOURCE,    /* a host function fills it, in order, copied in */
    SPIPE_SINK,      /* copied out, a host function drains it, in order */
    SPIPE_SOURCE_AT, /* a host function fills any part of it at any time, copied in */
    SPIPE_SINK_AT    /* copied out, a host function drains any part of it at any time */
} spipe_kind_t;

/* What a stage is given: one chunk, in device memory (a host stage: in host memory). */
typedef struct spipe_chunk {
    size_t index;        /* number of this chunk, from 0 */
    size_t first;        /* number of its first element in the whole */
    size_t count;        /* elements in it, 1 or more; the last chunk may have fewer */
    size_t total;        /* elements in the whole; 0 while not known (a source without count) */
    cudaStream_t stream; /* enqueue on this stream and no other; NULL in a host stage */
    int slot;            /* 0 .. depth-1: whose memory this is */
    int num_buffers;
    void *data[SPIPE_MAX_BUFFERS];        /* buffer i: this chunk's first element (resident: the
                                             start). With a halo, elements -before .. count+after-1
                                             are readable. Host stage: NULL unless declared. */
    size_t elem_bytes[SPIPE_MAX_BUFFERS]; /* of one element of buffer i (resident: of all of it) */
    spipe_kind_t kind[SPIPE_MAX_BUFFERS]; /* of buffer i; 0 where data is NULL */
    struct spipe_priv_note *note;         /* private: what the stage does wrong, in words */
} spipe_chunk_t;

/*  SPIPE_BUF(chunk, i, type) is buffer i of a chunk as a pointer to type, one an element.
    SPIPE_BUF_ROW(chunk, i, type, length) is the same where an element is length of type: a row of
    floats, a pixel of three bytes.
    A buffer that is not there, or whose elements are not of this size, ends the run with a sentence
    that names the stage and the buffer. So does an input that the stage must not write, if type is
    not const (in C with gcc and clang alone): any input of an elementwise stage, and with
    SPIPE_ZERO_COPY any pinned one. In C++ the stage does not go on: an exception of the library's
    leaves it, which the run catches. In C, and without exceptions, it goes on with memory that it
    may write into. chunk->data[i] is the pointer without the question.                         */
#define SPIPE_BUF(chunk, i, type) SPIPE_BUF_ROW(chunk, i, type, 1)
#define SPIPE_BUF_ROW(chunk, i, type, length)                                                      \
    ((type *)spipe_priv_buf((chunk), (i), (size_t)(length) * sizeof(type),                         \
                            SPIPE_PRIV_IS_CONST(type)))
/* Buffer i in the masks of spipe_add_host_stage. */
#define SPIPE_BIT(i) (1u << (i))

/*  spipe_chunk_fail -- why a stage gives up, in its own words: for failure.message.

    chunk      in      what the stage was called with.
    format     in      as for printf; cut after 190 characters.
    Returns    cudaErrorUnknown, for the stage to return; it may return another error instead. The
               run fails whatever the stage returns.
    Blocks     no.   Threads  the one the stage runs on.   Callback  yes.   Capture  yes.
    Allocates  nothing. */
SPIPE_API cudaError_t spipe_chunk_fail(const spipe_chunk_t *chunk, const char *format, ...)
    SPIPE_PRIV_ATTRIBUTE((format(printf, 2, 3)));

/* Enqueues a stage's work for one chunk on chunk->stream; does not wait. Any value but cudaSuccess
   stops the run and is what the run returns. A host stage does the work itself, on host memory.
   In C++ this function and those below may throw, on any thread: the run ends as after an error,
   and the call that began it throws the exception on. Not where this header is compiled as C or
   without exceptions. They must return or throw: neither longjmp nor the end of their thread may
   leave them. Where one fails, the chunks before are still brought to their end; of several that
   fail, the first chunk's is reported. */
typedef cudaError_t (*spipe_stage_fn)(const spipe_chunk_t *chunk, void *user);
/* Fills up to max_count elements at dst and says how many in *count; 0 = the end. Called with
   chunks in order. An I/O error: return cudaErrorOperatingSystem. */
typedef cudaError_t (*spipe_source_fn)(void *dst, size_t max_count, size_t *count, void *user);
/* Takes count elements at src, of which the first is number first in the whole; chunks in order. */
typedef cudaError_t (*spipe_sink_fn)(const void *src, size_t count, size_t first, void *user);

/* Fills count elements at dst, of which the first is number first in the whole: all of them, or it
   returns an error. Called on several threads at once, for any part, in any order; with a halo for
   the elements around a chunk, too. It must not wait for another part. */
typedef cudaError_t (*spipe_source_at_fn)(void *dst, size_t first, size_t count, void *user);
/* Takes count elements at src, of which the first is number first in the whole; as above. */
typedef cudaError_t (*spipe_sink_at_fn)(const void *src, size_t first, size_t count, void *user);

/* Fills count elements at dst, of which the first is number first in the whole, from as many
   tickets: what next, a spipe_source_fn, wrote for them, one ticket an element. Called on several
   threads at once, for other elements each, in any order. It must not wait for others. */
typedef cudaError_t (*spipe_work_fn)(void *dst, const void *tickets, size_t first, size_t count,
                                     void *user);

/* Why a source or sink failed, in words for failure.message; asked right after it returned its
   error, on the same thread. Assign it to buffers[i].why. */
typedef const char *(*spipe_why_fn)(void *user);

/* How far a run has come. The progress callback returns 1 to stop the run, 0 to go on. */
typedef struct spipe_progress {
    size_t chunks_done, num_chunks; /* num_chunks 0 while not known */
    size_t elements_done, total;    /* total 0 while not known */
    double seconds;                 /* since the run began */
} spipe_progress_t;

typedef int (*spipe_progress_fn)(const spipe_progress_t *progress, void *user);

/* What lies beyond the first and the last element of a buffer with a halo. */
typedef enum spipe_edge {
    SPIPE_EDGE_CLAMP = 0, /* copies of the first / last element */
    SPIPE_EDGE_ZERO       /* zero bytes */
} spipe_edge_t;

/* What happens to a resident buffer at the ends of a run; may be or-ed. */
enum {
    SPIPE_ZERO = 0,    /* zero bytes at the start of each run */
    SPIPE_UPLOAD = 1,  /* copied from the host array at the start of each run */
    SPIPE_DOWNLOAD = 2 /* copied to the host array at the end of each run that succeeds */
};

typedef enum spipe_schedule {
    SPIPE_SCHEDULE_AUTO = 0,
    SPIPE_ENGINES,       /* a stream per direction, two kernel streams taken in turn, events */
    SPIPE_SERIAL,        /* one stream, one slot: nothing overlaps; the baseline */
    SPIPE_DEPTH_FIRST,   /* a stream per slot, chunk by chunk */
    SPIPE_BREADTH_FIRST, /* a stream per slot, step by step over depth chunks at a time */
    SPIPE_ZERO_COPY      /* no copies: kernels read and write pinned host memory themselves */
} spipe_schedule_t;

/* What is done about pageable host arrays. */
typedef enum spipe_staging {
    SPIPE_STAGING_AUTO = 0,
    SPIPE_STAGING_COPY,     /* through pinned slots, copied by worker threads */
    SPIPE_STAGING_REGISTER, /* pinned in place for the run; COPY where that is refused */
    SPIPE_STAGING_DIRECT    /* left to CUDA, which blocks; right where the GPU reads host pages */
} spipe_staging_t;

/* Private: calls a function of the user's for a chunk. Kept in the description, so that a program
   has the code of only those kinds of buffers that it adds. */
struct spipe_priv_pipeline;
struct spipe_priv_at;
typedef cudaError_t (*spipe_priv_caller_t)(struct spipe_priv_pipeline *p, int buffer,
                                           const struct spipe_priv_at *at);

typedef struct spipe_buffer_desc {
    spipe_kind_t kind;
    size_t elem_bytes;              /* bytes of one element; resident: of the whole buffer */
    void *host;                     /* host array; an input is never written */
    size_t halo_before, halo_after; /* elements readable around a chunk (default: 0) */
    spipe_edge_t edge;
    int resident; /* SPIPE_ZERO, SPIPE_UPLOAD, SPIPE_DOWNLOAD or both */
    spipe_source_fn source;
    spipe_sink_fn sink;
    spipe_source_at_fn source_at;
    spipe_sink_at_fn sink_at;
    spipe_work_fn work;         /* of a split source, whose source is next */
    size_t ticket_bytes;        /* of such a source; 0 of others */
    void *user;                 /* handed to the functions above */
    spipe_why_fn why;           /* says why that function failed (default: NULL) */
    const char *how;            /* what that function does, for the report (default: NULL) */
    spipe_priv_caller_t caller; /* private: calls the function; set by whoever adds the buffer */
    spipe_priv_caller_t filler; /* private: calls work; NULL of others */
    int on_device; /* private: 1 = source_at is given the slot's memory on the device */
} spipe_buffer_desc_t;

typedef struct spipe_stage_desc {
    const char *name;
    spipe_stage_fn fn;
    void *user;
    int host;                   /* 1 = runs on the CPU, on a worker thread */
    int ordered;                /* 1 = chunk k+1 enters after chunk k has left (default: 0) */
    int elementwise;            /* 1 = see spipe_stage_elementwise (default: 0) */
    int replayable;             /* 1 = see spipe_stage_replayable (default: 0) */
    unsigned reads, writes;     /* host stage: SPIPE_BIT of each buffer it reads and writes */
    int after_given, num_after; /* 0, 0 = after the stage added before it */
    const char *after[SPIPE_MAX_STAGES];
} spipe_stage_desc_t;

/* Several GPUs for one run, set by streampipe_devices.h; zeroed = the current device. */
typedef cudaError_t (*spipe_reduce_fn)(void *into, const void *from, size_t bytes, void *user);

typedef struct spipe_devices {
    int num;                     /* 0 = all */
    int list[SPIPE_MAX_DEVICES]; /* device numbers */
    spipe_reduce_fn reduce;      /* adds one device's resident buffer to another's */
    void *user;                  /* handed to reduce */
} spipe_devices_t;

/* The description of a pipeline. Get one from spipe_desc_default, assign what you want different,
   add buffers and stages. Names, arrays and user pointers are kept, not copied. */
typedef struct spipe_desc {
    size_t count;               /* elements in the whole (default: SPIPE_AUTO, until sources end) */
    size_t chunk;               /* elements in a chunk (default: SPIPE_AUTO) */
    size_t depth;               /* slots, 1 .. SPIPE_MAX_DEPTH (default: SPIPE_AUTO; a slot may
                                   then hold several chunks of less than 256 KiB) */
    size_t threads;             /* host threads for each direction of staging, and as many for
                                   host stages; 0 = the calling thread does it all (default: AUTO)
                                   */
    spipe_schedule_t schedule;  /* (default: SPIPE_SCHEDULE_AUTO) */
    spipe_staging_t staging;    /* (default: SPIPE_STAGING_AUTO) */
    spipe_priority_t priority;  /* of the kernel streams (default: SPIPE_PRIORITY_DEFAULT) */
    int checked;                /* 1 = a checked run: waits after every step and looks at
                                   what it did, see below; slow (default: 0) */
    spipe_progress_fn progress; /* called on the thread that runs (default: NULL) */
    void *progress_user;
    struct spipe_resources *resources; /* shared with other runs, see >>resources (default: NULL) */
    int no_wait;                       /* with resources: 1 = a run that would have to wait for
                                        others returns cudaErrorNotReady at once (default: 0) */
    const struct spipe_costs *costs;   /* of this machine, see >>costs (default: NULL, by device) */
    struct spipe_timeline *timeline;   /* see streampipe_timeline.h (default: NULL) */
    spipe_devices_t devices;           /* (default: the current one) */
    const struct spipe_priv_hooks *hooks; /* private: other headers of the library, tests */
    int num_buffers, num_stages;
    spipe_buffer_desc_t buffers[SPIPE_MAX_BUFFERS];
    spipe_stage_desc_t stages[SPIPE_MAX_STAGES];
    const char *problem; /* first mistake made while adding; the check reports it */
    size_t stamp;        /* private: it was begun with spipe_desc_default */
} spipe_desc_t;

/*  A checked run (desc.checked) is for tests: many times slower, it waits after every step and says
    which stage, which chunk and which buffer is wrong. Beside the errors of the GPU it finds
      - a stage that puts nothing on its stream, in the first chunk. There the stream is captured
        while the stage is called; one that does what a capture cannot have is called twice;
      - a stage that writes before or past a buffer, or past the last chunk's elements, by guard
        bytes. Under AddressSanitizer, and in any run under compute-sanitizer, each buffer of each
        slot is an allocation of its own instead, so that these see reads, too;
      - an elementwise stage that writes into an input;
      - a replayable stage that enqueues other work than in the run of the pipeline before: other
        kernels, copies or, from CUDA 12.4 on, arguments (numbers and pointers, not structs, whose
        padding may differ).
      - with SPIPE_ZERO_COPY, any stage that writes into a pinned input, which would be changed.
    It never replays a graph, uses zero-copy only where the schedule says so, and then on pinned
    copies of the arrays, so that it cannot be captured.                                        */

/*  spipe_desc_default -- a description with nothing in it and every choice left to the library.
    spipe_desc_check -- find the first mistake of one, without touching the device.

    d          in      the description.
    failure    out     the sentence that names the buffer or stage and the cure; may be NULL.
    Returns    default: the description. check: cudaSuccess or cudaErrorInvalidValue.
    Blocks     no.   Threads  any.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API spipe_desc_t spipe_desc_default(void);
SPIPE_API cudaError_t spipe_desc_check(const spipe_desc_t *d, spipe_failure_t *failure);

/*  spipe_add_input, spipe_add_output, spipe_add_inout, spipe_add_temp, spipe_add_resident,
    spipe_add_source, spipe_add_sink, spipe_add_source_at, spipe_add_sink_at,
    spipe_add_source_split, spipe_set_halo -- the buffers of a pipeline.

    d          in/out  from spipe_desc_default.
    host       in      host array of count elements, pinned or not (device memory works too);
                       yours. resident: bytes bytes, NULL for SPIPE_ZERO.
    elem_bytes bytes   of one element, 1 or more; differs between buffers as you like.
    bytes      bytes   of a resident buffer, 1 or more.
    how        in      SPIPE_ZERO, SPIPE_UPLOAD, SPIPE_DOWNLOAD, or the last two or-ed.
    source, sink in    see spipe_source_fn, spipe_sink_fn; user is handed to it. They may run on
                       a library thread, one call at a time, and may not call CUDA. For data that
                       comes in order: a pipe, a decoder.
    source_at, sink_at in  see spipe_source_at_fn, spipe_sink_at_fn: the same, but as many calls at
                       once as there are threads, so that a file is read and written at the speed
                       of all of them. count must be set, or a source be there whose end tells.
    next, work in      a source in two parts, for a loader with many decoders. next is a
                       spipe_source_fn that fills up to max_count tickets instead of elements, one
                       call at a time, in order, and gives 0 at the end: it says what each element
                       is to be made of (the number of a picture, where a record lies) and should be
                       quick. work, see spipe_work_fn, makes the elements of a chunk from their
                       tickets, as many calls at once as there are threads. user is handed to both.
    ticket_bytes bytes of one ticket, 1 or more; the library keeps them until work has had them.
    buffer     in      number of an input, or of a source that is not split.
    before, after in   elements readable around each chunk, at most a chunk each.
    edge       in      what is beyond the ends: SPIPE_EDGE_CLAMP or SPIPE_EDGE_ZERO.
    Returns    the buffer's number, from 0 in the order of adding; -1 on a mistake, which the run
               then reports in words. So results need no check.
    Blocks     no.   Threads  one.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API int spipe_add_input(spipe_desc_t *d, const void *host, size_t elem_bytes);
SPIPE_API int spipe_add_output(spipe_desc_t *d, void *host, size_t elem_bytes);
SPIPE_API int spipe_add_inout(spipe_desc_t *d, void *host, size_t elem_bytes);
SPIPE_API int spipe_add_temp(spipe_desc_t *d, size_t elem_bytes);
SPIPE_API int spipe_add_resident(spipe_desc_t *d, void *host, size_t bytes, int how);
SPIPE_API int spipe_add_source(spipe_desc_t *d, spipe_source_fn source, void *user,
                               size_t elem_bytes);
SPIPE_API int spipe_add_sink(spipe_desc_t *d, spipe_sink_fn sink, void *user, size_t elem_bytes);
SPIPE_API int spipe_add_source_at(spipe_desc_t *d, spipe_source_at_fn source_at, void *user,
                                  size_t elem_bytes);
SPIPE_API int spipe_add_sink_at(spipe_desc_t *d, spipe_sink_at_fn sink_at, void *user,
                                size_t elem_bytes);
SPIPE_API int spipe_add_source_split(spipe_desc_t *d, spipe_source_fn next, spipe_work_fn work,
                                     void *user, size_t ticket_bytes, size_t elem_bytes);
SPIPE_API int spipe_set_halo(spipe_desc_t *d, int buffer, size_t before, size_t after,
                             spipe_edge_t edge);

/*  SPIPE_ADD_INPUT(desc, array), SPIPE_ADD_OUTPUT(desc, array), SPIPE_ADD_INOUT(desc, array) and
    SPIPE_ADD_TEMP(desc, type) are the same, with the size of an element taken from the pointer's
    type. In C++ the functions do so themselves: spipe_add_input(&d, array).                    */
#define SPIPE_ADD_INPUT(desc, array)  spipe_add_input((desc), (array), sizeof *(array))
#define SPIPE_ADD_OUTPUT(desc, array) spipe_add_output((desc), (array), sizeof *(array))
#define SPIPE_ADD_INOUT(desc, array)  spipe_add_inout((desc), (array), sizeof *(array))
#define SPIPE_ADD_TEMP(desc, type)    spipe_add_temp((desc), sizeof(type))

/*  spipe_add_stage, spipe_add_host_stage, spipe_stage_after, spipe_stage_ordered -- the stages.
    spipe_stage_elementwise, spipe_stage_replayable -- what a stage promises, so that the library
    has more ways to choose from.

    d          in/out  from spipe_desc_default.
    name       in      short and unique; appears in messages and reports; kept, not copied.
    fn, user   in      see spipe_stage_fn. A stage follows the one added before it.
    reads, writes in   host stage: SPIPE_BIT(i) or-ed for each buffer (not resident) that is
                       brought to host memory for it, and taken back to the device after it. It
                       runs on library threads, for several chunks at once and in any order of
                       chunks, so what user points to must allow that; mark it ordered if it keeps
                       state. There are desc.threads of them, and as many slots are needed.
    stage      in      number of a stage.
    after      in      name of a stage that this one waits for instead, added before or after it;
                       call again for more; NULL: none but the copies in. Stages that do not wait
                       for each other run at the same time.
    ordered    chunk k+1 enters after chunk k has left: it may carry state, on the device in a
               resident buffer, a host stage behind user, which one call at a time then sees.
    elementwise   every thread reads and writes its own elements, coalesced, each once, and writes
               into no input. Small pinned arrays may then be processed in place (zero-copy),
               without copies. A checked run copies, and refuses a stage that wrote into an
               input.
    replayable    it enqueues the same work in every run, with the same arguments, on the thread
               that calls it. A kept pipeline may then record a run as a CUDA graph and replay it
               without calling the stage, so with that run's arguments: what changes from run to
               run belongs into device memory. A checked run calls the stage and compares.
               spipe_run may use cudaStreamPerThread for a small total.
    Returns    the stage's number, from 0 as added; -1 on a mistake, which the run then reports.
    Blocks     no.   Threads  one.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API int spipe_add_stage(spipe_desc_t *d, const char *name, spipe_stage_fn fn, void *user);
SPIPE_API int spipe_add_host_stage(spipe_desc_t *d, const char *name, spipe_stage_fn fn, void *user,
                                   unsigned reads, unsigned writes);
SPIPE_API int spipe_stage_after(spipe_desc_t *d, int stage, const char *after);
SPIPE_API int spipe_stage_ordered(spipe_desc_t *d, int stage);
SPIPE_API int spipe_stage_elementwise(spipe_desc_t *d, int stage);
SPIPE_API int spipe_stage_replayable(spipe_desc_t *d, int stage);

/* ---- src/public/api_costs.h ---- */
/* ---- 10 >>costs ----------------------------------------------------------------------------
   What the planner knows about a machine: measured facts, in seconds and bytes a second. */
/* spipe_costs_measure of streampipe_measure.h measures them in under a second. The library has a
   row for each machine it was measured on; an unknown machine gets cautious values, and a kept
   pipeline then measures its best candidates and keeps the fastest. */
typedef struct spipe_costs {
    char name[32]; /* part of the device's name, as "H100"; "measured"; "unknown" */
    /* Copies of pinned memory. */
    double link_in;   /* bytes a second, host to device alone */
    double link_out;  /* bytes a second, device to host alone */
    double link_both; /* bytes a second each way while both directions copy */
    double copy_s;    /* seconds a copy engine loses for each copy between chunks */
    double latency_s; /* seconds from one engine's end to the next engine's start, by an event */
    double call_s;    /* seconds of the calling thread for each call that enqueues work */
    double launch_s;  /* seconds a kernel adds to a chain beside its own work */
    double zero_copy; /* bytes a second each way, by a kernel that works on pinned memory */
    /* Copies of pageable memory. */
    double pageable_in;  /* bytes a second of cudaMemcpy to the device */
    double pageable_out; /* bytes a second of cudaMemcpy from the device */
    double pageable_s;   /* seconds of each such call beside its bytes */
    /* Staging by host threads. */
    double fill;   /* bytes a second of one thread that fills pinned slots */
    double drain;  /* bytes a second of one thread that drains them */
    double memory; /* bytes a second of all staging threads together, both ways counted, with
                            a ring of slots that the last-level cache holds */
    double memory_uncached; /* the same with a ring that it does not hold */
    double wake_s;          /* seconds until a parked thread runs */
    double start_s;         /* seconds to start a thread, paid by the calling thread */
    double staged_s; /* seconds of the calling thread for each staged chunk: posting, polling */
    /* Setting up. */
    double pin;          /* bytes a second of pinning memory, first touch included */
    double pin_s;        /* seconds of each call that pins or unpins */
    double pin_arrays;   /* bytes a second of pinning and unpinning arrays that are in use */
    double setup_s;      /* seconds to make and free streams and events of a one-shot run */
    double malloc_s;     /* seconds of cudaMalloc and cudaFree */
    double malloc_bytes; /* bytes a second of the same for large blocks */
} spipe_costs_t;

/*  spipe_costs_get -- the costs that a run on a device is planned with.
    spipe_costs_print -- them as a table, a figure a line with its unit.
    spipe_costs_write, spipe_costs_read -- as one line of text, to keep measured costs in a file.

    costs      out/in  the figures. Assign &costs to desc.costs to plan with them.
    device     in      device number, or -1 for the current one.
    to         in      an open file.
    line       out/in  zero-terminated text without a line feed. It begins with the version of this
                       header, the device's name, the driver and the number of CPUs, so that a line
                       from another machine, driver or release is not used by mistake.
    bytes      bytes   room at line; SPIPE_COSTS_LINE_BYTES is enough.
    Returns    cudaSuccess; cudaErrorInvalidValue (a NULL, no room, text that is not such a line, a
               figure that is not a positive number); read: cudaErrorNotSupported (a line of another
               release, device, driver or number of CPUs: costs is then what get gives, and its
               name ends in " (stale line ignored)", which the report shows); print:
               cudaErrorOperatingSystem; any error of reading the device's name.
    Blocks     no.   Threads  any.   Callback  no.   Capture  yes.   Allocates  nothing. */
#define SPIPE_COSTS_LINE_BYTES 1024
SPIPE_API cudaError_t spipe_costs_get(spipe_costs_t *costs, int device);
SPIPE_API cudaError_t spipe_costs_print(const spipe_costs_t *costs, FILE *to);
SPIPE_API cudaError_t spipe_costs_write(const spipe_costs_t *costs, int device, char *line,
                                        size_t bytes);
SPIPE_API cudaError_t spipe_costs_read(spipe_costs_t *costs, int device, const char *line);

/* ---- src/public/api_plan.h ---- */
/* ---- 11 >>plan -----------------------------------------------------------------------------
   What was chosen for a run and why. Made by one pure function; printable; never an input. */
typedef struct spipe_run_plan {
    size_t count; /* elements planned for; SPIPE_AUTO = not known */
    size_t chunk; /* elements in a chunk */
    size_t batch; /* chunks copied in one piece; 1 = each by itself */
    size_t depth; /* slots, each for one batch */
    spipe_schedule_t schedule;
    spipe_staging_t staging; /* of pageable arrays; AUTO = there are none */
    size_t fill_threads;     /* host threads that copy into pinned slots */
    size_t drain_threads;    /* host threads that copy out of them */
    size_t host_threads;     /* host threads that run host stages */
    int caller_helps;        /* 1 = the calling thread copies, too, where it would wait */
    int pageable_slots;      /* 1 = the slots of sources and sinks are in pageable memory */
    int replay;              /* 1 = the run is replayed as a CUDA graph */
    double predicted_ms;     /* by the law, set-up included for a one-shot run */
    double kernel_ms;        /* of all kernels: assumed, or the most they can take */
    int kernel_known;        /* 1 = an earlier run showed that they take no more */
    int num_candidates;      /* ways that were compared */
    const char *why_chunk;   /* constant sentences */
    const char *why_schedule;
    const char *why_staging;
    char costs[64]; /* name of the costs it was planned with */
} spipe_plan_t;

/*  spipe_plan -- what a run of a description would choose, and why, without running it.
    spipe_plan_print -- a plan as a few lines of text.

    d          in      checked first.
    kept       in      1 = for spipe_pipeline_create, which may take longer to set up; 0 = for
                       spipe_run.
    plan       out/in  of the first run; a kept pipeline may move to another candidate after
                       measuring. Zeroed on error.
    failure    out     why there is none; may be NULL.
    to         in      an open file.
    Returns    cudaSuccess; cudaErrorInvalidValue (a bad description, NULL); any error of reading
               the device's facts; print: cudaErrorOperatingSystem.
    Blocks     no.   Threads  any.   Callback  no.   Capture  no.   Allocates  nothing. */
SPIPE_API cudaError_t spipe_plan(const spipe_desc_t *d, int kept, spipe_plan_t *plan,
                                 spipe_failure_t *failure);
SPIPE_API cudaError_t spipe_plan_print(const spipe_plan_t *plan, FILE *to);

/* ---- src/public/api_report.h ---- */
/* ---- 12 >>report ---------------------------------------------------------------------------
   What a run did, as numbers and as a table. Filled whole on success and on failure. */
typedef struct spipe_report {
    spipe_failure_t failure; /* failure.error is cudaSuccess when all went well */
    char device[64];
    size_t total, count_done; /* elements asked for (0 = not known) and done */
    size_t num_chunks, chunks_done;
    size_t chunk, depth; /* as chosen */
    spipe_schedule_t schedule;
    int staged; /* 1 = pageable arrays went through pinned slots */
    const char *why_chunk, *why_schedule, *why_staging; /* why so: constant strings */
    size_t threads;                                     /* the larger of the next two */
    size_t fill_threads, drain_threads;                 /* host threads that staged, as started */
    size_t host_threads;                                /* and those that ran host stages */
    int num_stages, num_streams;
    int replayed;                      /* 1 = as a CUDA graph */
    int trying;                        /* 1 = candidates are still being compared */
    double predicted_ms;               /* what the plan expected for wall_ms */
    char costs[64];                    /* name of the costs it was planned with */
    size_t bytes_in, bytes_out;        /* moved host to device, device to host */
    size_t device_bytes, pinned_bytes; /* memory taken */
    size_t runs_beside;                /* with resources: runs under way when this one began */
    double waited_ms;                  /* and how long it waited for their memory */
    double setup_ms;                   /* streams, events and memory; 0 when kept */
    double start_ms;                   /* of it: until CUDA had started, if it had not */
    double wall_ms;                    /* first byte to last, set-up apart */
    size_t new_page_bytes; /* of a run that stages: pages that the system made meanwhile, as for
                              outputs that nobody has written before; 0 = none, or not known */
    int num_devices, device_numbers[SPIPE_MAX_DEVICES]; /* 0: the current one */
    unsigned devices_failed;                            /* SPIPE_BIT of each place in these lists */
    size_t device_chunks[SPIPE_MAX_DEVICES];            /* that each of them did */
    /* Only of a run with a timeline. Arrays: host threads that fill, copies in, stages, host
       stages, copies out, host threads that drain. */
    double timed_ms;               /* first operation to last; 0 = no timeline */
    double busy_ms[6], idle_ms[6]; /* idle: between its first and last operation */
    double stage_ms[SPIPE_MAX_STAGES];
    const char *stage_names[SPIPE_MAX_STAGES];
    double serial_ms;   /* the same work one after another, estimated */
    double bound_ms;    /* the busiest engine's work: none can be faster */
    double overlap;     /* hidden time / time that could be hidden */
    double sync_us;     /* from a step's turn to its begin, on average */
    unsigned causes;    /* SPIPE_CAUSE_... of streampipe_timeline.h */
    char verdict[1600]; /* the limit, then each cause and its cure: lines */
} spipe_report_t;

/*  spipe_report_print -- a compact table for a terminal; of a failed run, why it failed.
    spipe_schedule_name -- "engines", "serial", ... ; "auto" for anything else.

    report     in      filled by a run.
    to         in      an open file.
    schedule   in      one of spipe_schedule_t.
    Returns    print: cudaSuccess; cudaErrorInvalidValue; cudaErrorOperatingSystem (cannot be
               written). name: a constant string.
    Blocks     as long as the file does.
    Threads    any.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API cudaError_t spipe_report_print(const spipe_report_t *report, FILE *to);
SPIPE_API const char *spipe_schedule_name(spipe_schedule_t schedule);

/* ---- src/public/api_execute.h ---- */
/* ---- 13 >>execute --------------------------------------------------------------------------
   Running a description: once, again and again, or in the order of a stream. */
/* A pipeline made once and run many times: a pointer, whose memory the library owns. */
typedef struct spipe_pipeline spipe_pipeline_t;

/*  spipe_run -- run a description from the first element to the last.

    d          in      checked first; not kept.
    report     out     what happened, filled on failure too; may be NULL.
    Returns    cudaSuccess; cudaErrorInvalidValue for a bad description (nothing was allocated);
               SPIPE_STOPPED when the progress callback asked for it; what a stage, source or
               sink returned; or the CUDA error met. report->failure says where and why.
    Blocks     yes, until every output is whole, or the work begun has drained.
    Threads    any; runs do not share anything.   Callback  no.   Capture  no.
    Allocates  depth x chunk of device memory, as much pinned memory when staging, some streams
               and events, threads for host work; all freed before return. 24 KB of stack. */
SPIPE_API_RESULT cudaError_t spipe_run(const spipe_desc_t *d, spipe_report_t *report);

/*  spipe_pipeline_create, spipe_pipeline_run, spipe_pipeline_destroy -- the same, run many times.
    spipe_pipeline_set_host, spipe_pipeline_set_count -- other arrays, another length from now on;
    the run is planned anew.
    spipe_pipeline_plan, spipe_pipeline_failure -- what is chosen for the next run; what went wrong
    last.

    p          out/in  create: a pipeline on the current device, NULL on error; free it with
                       destroy. The others: one that create gave; destroy takes NULL, too.
    d          in      copied; names, arrays and user pointers are kept and stay yours. A host
                       array may be NULL until set_host sets it, before the first run.
    report, failure out what happened; either may be NULL.
    buffer     in      number of an input, output, in/out or resident buffer.
    host       in      the new array.
    count      in      elements in the whole; 0 or more.
    Returns    as spipe_run. After a failed run the pipeline may be run again (unless the error
               is one that ends the context). A pipeline that is NULL or destroyed, and a run after
               set_host failed: cudaErrorInvalidResourceHandle. While another call on the pipeline
               is under way, from another thread or around the stage that calls, destroy too:
               cudaErrorNotPermitted, and nothing is done. plan, failure: valid until the next
               call; NULL for NULL.
    Blocks     run: yes. create, plan, failure: no. The others: until work under way has ended.
    Threads    one at a time.   Callback  no.   Capture  no.
    Allocates  create: memory, streams, events, and threads where there are arrays to stage. run:
               other threads, and a graph for replayable stages, the first time; then nothing.
               set_host, set_count: memory, where the new plan needs more. */
SPIPE_API_RESULT cudaError_t spipe_pipeline_create(spipe_pipeline_t **p, const spipe_desc_t *d,
                                                   spipe_failure_t *failure);
SPIPE_API_RESULT cudaError_t spipe_pipeline_run(spipe_pipeline_t *p, spipe_report_t *report);
SPIPE_API cudaError_t spipe_pipeline_destroy(spipe_pipeline_t *p);
SPIPE_API_RESULT cudaError_t spipe_pipeline_set_host(spipe_pipeline_t *p, int buffer, void *host);
SPIPE_API_RESULT cudaError_t spipe_pipeline_set_count(spipe_pipeline_t *p, size_t count);
SPIPE_API const spipe_plan_t *spipe_pipeline_plan(const spipe_pipeline_t *p);
SPIPE_API const spipe_failure_t *spipe_pipeline_failure(const spipe_pipeline_t *p);

/*  spipe_pipeline_set_timeline -- watch the runs from now on, or no longer.

    p          in/out  made by spipe_pipeline_create.
    timeline   in      begun with spipe_timeline_default of streampipe_timeline.h; NULL = do not
                       watch. Yours; must live until it is replaced.
    Returns    cudaSuccess; cudaErrorInvalidValue (a timeline that was not begun);
               cudaErrorInvalidResourceHandle (p is NULL).
    Blocks     until work under way has ended.   Threads  one at a time.   Callback  no.
    Capture    no.   Allocates  nothing. */
SPIPE_API cudaError_t spipe_pipeline_set_timeline(spipe_pipeline_t *p,
                                                  struct spipe_timeline *timeline);

/*  spipe_next -- the next chunk, for a loop of the caller's own: training, decoding, rendering.
    spipe_release -- the oldest chunk that was taken goes back: its outputs are copied out, and its
    memory is used again, after what is on stream by now.
    spipe_end -- the end before the last chunk.

    p          in/out  made by spipe_pipeline_create, of a description without stages.
    stream     in      next: work put on it from now on starts after the chunk is there. The chunk
                       is for this stream. release: the stream that the chunk was used on.
    chunk      out     its buffers in device memory, as a stage gets them; count 0: there are no
                       more, and every output is whole. Several may be held at once, up to depth.
    report     out     what happened since the first chunk; may be NULL.
    Returns    next: cudaSuccess; as spipe_run, and spipe_pipeline_failure has the sentence: then
               nothing is held any more, and the next call begins with the first chunk again;
               cudaErrorNotReady (all slots are held). release: cudaSuccess; cudaErrorNotPermitted
               (nothing is held); as next. end: the last error.
    Blocks     next: until the chunk's copies are issued; for the last, until the outputs are whole.
               release: no. end: until the copies under way have ended; with desc.resources and
               chunks that are held, until the device has done all its work.
    Threads    one at a time.   Callback  no.   Capture  no.
    Allocates  next: threads, the first time. */
SPIPE_API_RESULT cudaError_t spipe_next(spipe_pipeline_t *p, cudaStream_t stream,
                                        spipe_chunk_t *chunk);
SPIPE_API_RESULT cudaError_t spipe_release(spipe_pipeline_t *p, cudaStream_t stream);
SPIPE_API cudaError_t spipe_end(spipe_pipeline_t *p, spipe_report_t *report);

/*  spipe_pipeline_enqueue, spipe_pipeline_wait -- a run in a stream's order, and its outcome.

    p          in/out  made by spipe_pipeline_create.
    stream     in      the run starts after what is on it; what is queued on it afterwards, kernels
                       or cuBLAS calls, starts after the run.
    report     out     may be NULL; wall_ms is not measured for enqueued runs.
    Returns    enqueue: errors met while queuing (then what was queued drains first). wait: as
               spipe_run, for all enqueued runs since the last wait.
    Blocks     enqueue: no; but where the host has work to do (pageable arrays, sources, sinks,
               host stages) until stream has come so far and the run has ended. wait: yes.
    Threads    one at a time; runs follow each other, whatever their streams.   Callback  no.
    Capture    enqueue: yes, when all stages can be captured and the host has no work to do: the
               pipeline must outlive the graph and its arrays stay as they are.
    Allocates  nothing. */
SPIPE_API_RESULT cudaError_t spipe_pipeline_enqueue(spipe_pipeline_t *p, cudaStream_t stream);
SPIPE_API_RESULT cudaError_t spipe_pipeline_wait(spipe_pipeline_t *p, spipe_report_t *report);

/* ---- src/public/api_resources.h ---- */
/* ---- 14 >>resources ------------------------------------------------------------------------
   What many runs on a device share: memory, streams, events and threads, made once. For servers
   that run from many threads, and for programs that make and drop pipelines all day. */
typedef struct spipe_resources spipe_resources_t;

/* Begin with spipe_resources_limits_default, then assign what you want different. */
typedef struct spipe_resources_limits {
    size_t device_bytes;             /* device memory for slots and resident buffers
                                        (default: 512 MiB, a quarter of the device's at the most) */
    size_t pinned_bytes;             /* pinned memory for staging; where the system refuses to pin
                                        it, runs do without (default: 128 MiB) */
    size_t threads;                  /* host threads that fill, drain and run host stages at the
                                        same time, of all runs (default: SPIPE_AUTO, the CPUs) */
    const struct spipe_costs *costs; /* of this machine (default: NULL, by device); copied */
    size_t stamp;                    /* private: it was begun with _default */
} spipe_resources_limits_t;

/* What is in use now, and was at the most. */
typedef struct spipe_resources_in_use {
    size_t runs, most_runs;                 /* under way at once */
    size_t waiting;                         /* of them, those that wait for memory */
    size_t pipelines;                       /* kept ones, and runs */
    size_t device_bytes, most_device_bytes; /* lent to runs */
    size_t pinned_bytes, most_pinned_bytes;
    size_t threads, streams, events; /* made so far; they stay until destroy */
} spipe_resources_usage_t;

/*  spipe_resources_limits_default -- the limits that create takes for NULL.
    spipe_resources_create, spipe_resources_destroy -- resources of the current device.
    spipe_resources_usage -- how much of them is in use.

    Assign them to desc.resources: then spipe_run sets nothing up and frees nothing, and a kept
    pipeline has memory only while it runs. A run plans with as much of the memory as each run
    under way may have, half of what is free at the most, so that there is always some for the next.
    Where that is less than a sixteenth of all, the run waits until others have ended: in the order
    in which they came, those of a higher desc.priority first. With desc.no_wait it returns
    cudaErrorNotReady instead. Host threads are shared equally by the runs that have work for
    them. Each plan knows how many runs are under way, and a kept pipeline is planned anew when they
    are half as many more, or two thirds of what they were. Runs take turns on the copy engines,
    chunk by chunk: each with those of its own or a higher priority, so the chunks of a run that is
    more urgent than all others go first. All of that is so that all runs together take the least;
    one of SPIPE_PRIORITY_HIGH is planned as if it were alone, for its own time. A pipeline that
    was enqueued keeps its memory and its plan until it is destroyed; nobody waits for that.

    A thread that is cancelled (pthread_cancel) ends when its run has. Where one ends in the middle
    of a loop that takes chunks, those who wait for the memory are told (not with MinGW, where they
    wait); another thread may go on with the loop, or end it. A stage must not end its thread.

    For several GPUs there is spipe_devices_resources_create (streampipe_devices.h).

    r          out/in  create: the resources, NULL on error; free them with destroy, which takes
                       NULL, too. They must live as long as descriptions that name them are run.
    limits     in      NULL for the default.
    failure    out     why not, in words; may be NULL.
    usage      out     at this moment; where they are of several GPUs, on the current one.
    Returns    cudaSuccess; create: cudaErrorInvalidValue, cudaErrorMemoryAllocation, any error of
               asking about the device; destroy: cudaErrorNotPermitted (pipelines or runs use them,
               and nothing is freed), cudaErrorInvalidValue (no resources, or another process's);
               usage: cudaErrorInvalidValue; cudaErrorInvalidDevice (they are of others). A run:
               cudaErrorMemoryAllocation where it does not fit
               though it is alone; cudaErrorNotPermitted where it would wait for the run around it,
               or for a run whose thread has ended;
               cudaErrorInvalidValue in a process that was forked.
    Blocks     create: for the time of pinning. destroy: until the threads have ended. usage: no.
    Threads    any. A run that a stage begins goes before those who wait. Set no_wait in one that a
               host stage begins: it is on another thread, so nobody sees that it would wait for
               the run around it.
    Callback   no.   Capture  no.
    Allocates  create: both memories. Later: streams, events, threads, as runs need them; all freed
               by destroy. */
SPIPE_API spipe_resources_limits_t spipe_resources_limits_default(void);
SPIPE_API_RESULT cudaError_t spipe_resources_create(spipe_resources_t **r,
                                                    const spipe_resources_limits_t *limits,
                                                    spipe_failure_t *failure);
SPIPE_API cudaError_t spipe_resources_destroy(spipe_resources_t *r, spipe_failure_t *failure);
SPIPE_API cudaError_t spipe_resources_usage(spipe_resources_t *r, spipe_resources_usage_t *usage);

/* ---- src/public/api_launch.h ---- */
/* ---- 15 >>launch ---------------------------------------------------------------------------
   Launching kernels from a stage. C++ and .cu only, but for spipe_blocks. */
/*  spipe_blocks -- how many blocks cover count elements with threads each.

    count      in      elements; 0 gives 1 block, so that a launch is always valid.
    threads    in      threads a block, 1 or more.
    Returns    the number, at most 2^31 - 1 (then the kernel must loop).
    Blocks     no.   Threads  any.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API unsigned spipe_blocks(size_t count, unsigned threads);

#ifdef __cplusplus
/*  SPIPE_LAUNCH(kernel, grid, block, shared_bytes, stream, args...) launches a kernel and gives
    this launch's own cudaError_t; the arguments are converted to the kernel's parameter types. A
    template with commas goes in parentheses: SPIPE_LAUNCH((k<float, 4>), ...).                 */
#define SPIPE_LAUNCH(kernel, grid, block, shared_bytes, ...) /* stream, and arguments */           \
    spipe_priv_launch((grid), (block), (shared_bytes), kernel, __VA_ARGS__)

/*  SPIPE_MAP_STAGE(name, kernel, in_type, out_type) defines a stage function for a kernel
    (const in_type *in, out_type *out, size_t n) with one thread an element, from buffer 0 to 1. */
#define SPIPE_MAP_STAGE(name, kernel, in_type, out_type)                                           \
    SPIPE_API cudaError_t name(const spipe_chunk_t *c, void *user) {                               \
        (void)user;                                                                                \
        if (c->index == 0) spipe_priv_check_map(c);                                                \
        return SPIPE_LAUNCH(kernel, spipe_blocks(c->count, 256), 256, 0, c->stream,                \
                            SPIPE_BUF(c, 0, const in_type), SPIPE_BUF(c, 1, out_type), c->count);  \
    }
#else
#define SPIPE_LAUNCH(...)                                                                          \
    SPIPE_PRIV_RENAMED("SPIPE_LAUNCH needs C++: put kernel and stage into a .cu file for nvcc")
#define SPIPE_MAP_STAGE(name, ...)                                                                 \
    SPIPE_PRIV_RENAMED("SPIPE_MAP_STAGE needs C++: put kernel and stage into a .cu file for nvcc")
#endif

/* ---- src/private/threads.h ---- */
/* ============================================================================================
   >>impl   the same layers, as code. Names beginning spipe_priv_ are not for callers.
   ============================================================================================ */

/* ---- 1 config: threads and clock -----------------------------------------------------------
   Locks, conditions, threads, CPUs and time. Knows pthreads; knows nothing of CUDA. */
#if defined(SPIPE_NO_THREADS)
typedef int spipe_priv_mutex_t;
typedef int spipe_priv_cond_t;

SPIPE_API void spipe_priv_mutex_create(spipe_priv_mutex_t *m) { *m = 0; }

SPIPE_API void spipe_priv_mutex_destroy(spipe_priv_mutex_t *m) { *m = 0; }

SPIPE_API void spipe_priv_mutex_lock(spipe_priv_mutex_t *m) { (void)m; }

SPIPE_API void spipe_priv_mutex_unlock(spipe_priv_mutex_t *m) { (void)m; }

SPIPE_API void spipe_priv_cond_create(spipe_priv_cond_t *c) { *c = 0; }

SPIPE_API void spipe_priv_cond_destroy(spipe_priv_cond_t *c) { *c = 0; }

SPIPE_API void spipe_priv_cond_wait(spipe_priv_cond_t *c, spipe_priv_mutex_t *m) {
    (void)c;
    (void)m;
}

SPIPE_API void spipe_priv_cond_signal(spipe_priv_cond_t *c) { (void)c; }

SPIPE_API void spipe_priv_cond_broadcast(spipe_priv_cond_t *c) { (void)c; }

SPIPE_API void spipe_priv_give_up_cpu(void) {}

/* NULL: there are no threads. */
SPIPE_API void *spipe_priv_thread_start(void *(*fn)(void *arg), void *arg) {
    (void)fn;
    (void)arg;
    return NULL;
}

SPIPE_API void spipe_priv_thread_join(void *thread) { (void)thread; }
#else
typedef pthread_mutex_t spipe_priv_mutex_t;
typedef pthread_cond_t spipe_priv_cond_t;

SPIPE_API void spipe_priv_mutex_create(spipe_priv_mutex_t *m) { (void)pthread_mutex_init(m, NULL); }

SPIPE_API void spipe_priv_mutex_destroy(spipe_priv_mutex_t *m) { (void)pthread_mutex_destroy(m); }

SPIPE_API void spipe_priv_mutex_lock(spipe_priv_mutex_t *m) { (void)pthread_mutex_lock(m); }

SPIPE_API void spipe_priv_mutex_unlock(spipe_priv_mutex_t *m) { (void)pthread_mutex_unlock(m); }

SPIPE_API void spipe_priv_cond_create(spipe_priv_cond_t *c) { (void)pthread_cond_init(c, NULL); }

SPIPE_API void spipe_priv_cond_destroy(spipe_priv_cond_t *c) { (void)pthread_cond_destroy(c); }

SPIPE_API void spipe_priv_cond_wait(spipe_priv_cond_t *c, spipe_priv_mutex_t *m) {
    (void)pthread_cond_wait(c, m);
}

SPIPE_API void spipe_priv_cond_signal(spipe_priv_cond_t *c) { (void)pthread_cond_signal(c); }

SPIPE_API void spipe_priv_cond_broadcast(spipe_priv_cond_t *c) { (void)pthread_cond_broadcast(c); }

SPIPE_API void spipe_priv_give_up_cpu(void) { (void)sched_yield(); }

/* A thread that leaves the process's signals, but those of its own faults, to the user's threads:
   their handlers expect to interrupt those. NULL: no thread can be had. */
SPIPE_PRIV_RARE void *spipe_priv_thread_start(void *(*fn)(void *arg), void *arg) {
    pthread_t *t = (pthread_t *)malloc(sizeof *t);
    int failed;
#if defined(SIG_SETMASK) && !defined(_WIN32) /* strict C99 hides it */
    static const unsigned char own[] = {SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS};
    sigset_t others, before;
    size_t i;
    (void)sigfillset(&others);
    for (i = 0; i < sizeof own; ++i) (void)sigdelset(&others, own[i]);
    (void)pthread_sigmask(SIG_SETMASK, &others, &before);
#endif
    failed = !t || pthread_create(t, NULL, fn, arg) != 0;
#if defined(SIG_SETMASK) && !defined(_WIN32)
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
#endif
    if (!failed) return t;
    free(t);
    return NULL;
}

SPIPE_API void spipe_priv_thread_join(void *thread) {
    pthread_t *t = (pthread_t *)thread;
    if (!t) return;
    (void)pthread_join(*t, NULL);
    free(t);
}
#endif

/* One lock, and one condition for "something changed". */
struct spipe_priv_sync {
    spipe_priv_mutex_t lock;
    spipe_priv_cond_t changed;
    int single_threaded; /* 1 = no second thread exists, so locking is skipped */
    double busy_until;   /* of the calling thread's yields */
};

SPIPE_API void spipe_priv_lock(spipe_priv_sync_t *s) {
    if (!s->single_threaded) spipe_priv_mutex_lock(&s->lock);
}

SPIPE_API void spipe_priv_unlock(spipe_priv_sync_t *s) {
    if (!s->single_threaded) spipe_priv_mutex_unlock(&s->lock);
}

/* Until somebody calls spipe_priv_wake; called with the lock held. */
SPIPE_API void spipe_priv_wait(spipe_priv_sync_t *s) {
    spipe_priv_cond_wait(&s->changed, &s->lock);
}

SPIPE_API void spipe_priv_wake(spipe_priv_sync_t *s) { spipe_priv_cond_broadcast(&s->changed); }

SPIPE_API spipe_priv_sync_t *spipe_priv_sync_create(void) {
    spipe_priv_sync_t *s = (spipe_priv_sync_t *)calloc(1, sizeof *s);
    if (!s) return NULL;
    spipe_priv_mutex_create(&s->lock);
    spipe_priv_cond_create(&s->changed);
    return s;
}

SPIPE_API void spipe_priv_sync_destroy(spipe_priv_sync_t *s) {
    if (!s) return;
    spipe_priv_cond_destroy(&s->changed);
    spipe_priv_mutex_destroy(&s->lock);
    free(s);
}

/* CPUs that this thread may run on. */
SPIPE_API size_t spipe_priv_num_cpus(void) {
    long n = 0;
#if defined(__linux__) && defined(CPU_SET) /* which strict C99 hides */
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) n = CPU_COUNT(&cpus);
#endif
#if defined(_SC_NPROCESSORS_ONLN)
    if (n == 0) n = sysconf(_SC_NPROCESSORS_ONLN); /* reads a file: 3 us */
#elif defined(_WIN32)
    if (getenv("NUMBER_OF_PROCESSORS")) n = atol(getenv("NUMBER_OF_PROCESSORS"));
#endif
    return n > 0 ? (size_t)n : 1;
}

/* Bytes of the last-level cache; 0 = not known. */
SPIPE_API size_t spipe_priv_cache_bytes(void) {
    long n = 0;
#if defined(_SC_LEVEL3_CACHE_SIZE)
    n = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    return n > 0 ? (size_t)n : 0;
}

/* Seconds from an arbitrary start. Strict C99 hides the monotonic clock; then the time of day. */
SPIPE_API double spipe_priv_seconds(void) {
#if defined(CLOCK_MONOTONIC)
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#elif defined(_MSC_VER)
    return (double)clock() / CLOCKS_PER_SEC; /* the wall clock there */
#else
    struct timeval now;
    gettimeofday(&now, NULL);
    return (double)now.tv_sec + 1e-6 * (double)now.tv_usec;
#endif
}

/* Lets other threads run: who polls must not keep a CPU from those that work. Where yielding takes
   more than a millisecond, other programs want every CPU. Runs that kept yielding among them took
   60 times as long (Linux 6.18), so then this stops for 32 times as long as the yield took:
   *busy_until is the time until which it does, 0 at first. */
SPIPE_API void spipe_priv_yield(double *busy_until) {
    const double began = spipe_priv_seconds();
    double took;
    if (began < *busy_until) return;
    spipe_priv_give_up_cpu();
    took = spipe_priv_seconds() - began;
    if (took > 1e-3) *busy_until = began + 32.0 * took;
}

/* ---- src/private/errors.h ---- */
/* ---- 2 errors ------------------------------------------------------------------------------
   Sentences for failures, fit to be printed, and keeping the first error of a sequence. */

/* The next character of a UTF-8 text; advances past it. For a control character, and a byte that is
   not UTF-8, 0xFFFD. */
SPIPE_PRIV_RARE unsigned spipe_priv_next_char(const char **at) {
    const unsigned char *s = (const unsigned char *)*at;
    unsigned c = *s++;
    const int more = (c >= 0xC2) + (c >= 0xE0) + (c >= 0xF0); /* bytes that follow */
    int left = more;
    if (more > 0) c &= 0x7Fu >> more;
    for (; left > 0 && (*s & 0xC0) == 0x80; --left) c = c << 6 | (*s++ & 0x3Fu);
    ++*at;
    if (left > 0 || c < 0x20 || (c >= 0x7F && (c < 0xA0 || more == 0))) return 0xFFFD;
    if (c < 2u << 5 * more || c >> 11 == 0x1B || c > 0x10FFFF) return 0xFFFD;
    *at = (const char *)s;
    return c;
}

/* Puts a question mark for what must not reach a terminal: a name that the user gave may move the
   cursor, and one that was cut to length may end within a character. */
SPIPE_PRIV_RARE void spipe_priv_make_printable(char *text) {
    const char *from = text;
    while (*from) {
        const char *c = from;
        const int bad = spipe_priv_next_char(&from) == 0xFFFD;
        if (bad) *text++ = '?';
        while (!bad && c < from) *text++ = *c++;
    }
    *text = 0;
}

SPIPE_PRIV_RARE void spipe_priv_check(cudaError_t error, const char *what, const char *why,
                                      const char *file, int line) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s:%d: %s: %s (%s)\n", file, line, what,
            why && why[0] ? why : cudaGetErrorString(error), cudaGetErrorName(error));
    exit(EXIT_FAILURE);
}

SPIPE_PRIV_RARE void spipe_priv_check_run(const spipe_desc_t *d, spipe_report_t *report,
                                          const char *file, int line) {
    spipe_report_t own;
    if (!report) report = &own;
    spipe_priv_check(spipe_run(d, report), "spipe_run", report->failure.message, file, line);
}

/* Whether an object of the user's may be freed: made where it is, and not freed. What is zeroed, or
   never was made, has nothing to free; a copy must leave it to the original. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_may_free(const void *object, const void *self) {
    return self && self != object ? cudaErrorInvalidValue : cudaSuccess;
}

/* Keeps the first error of a sequence that must go on, as when freeing. */
SPIPE_PRIV_RARE void spipe_priv_keep_error(cudaError_t *first, cudaError_t e) {
    if (*first == cudaSuccess) *first = e;
}

SPIPE_PRIV_RARE void spipe_priv_failure_clear(spipe_failure_t *f) {
    memset(f, 0, sizeof *f);
    f->stage = -1;
    f->chunk = SPIPE_AUTO;
}

SPIPE_PRIV_RARE void spipe_priv_say(spipe_failure_t *f, const char *format, va_list args) {
    vsnprintf(f->message, sizeof f->message, format, args);
    spipe_priv_make_printable(f->message);
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_refuse(spipe_failure_t *f, cudaError_t e, const char *text,
                                              ...) {
    va_list args;
    if (!f) return e;
    spipe_priv_failure_clear(f);
    f->error = e;
    va_start(args, text);
    spipe_priv_say(f, text, args);
    va_end(args);
    return e;
}

/* ---- src/private/device.h ---- */
/* ---- 3 device ------------------------------------------------------------------------------
   Facts of a GPU, its NUMA node, and making it the current one for a while. */
SPIPE_API int spipe_priv_numa_node(int device) {
#if defined(__linux__)
    char id[32], path[96];
    int node = -1, i;
    FILE *f;
    if (cudaDeviceGetPCIBusId(id, (int)sizeof id, device) != cudaSuccess) {
        (void)cudaGetLastError();
        return -1;
    }
    for (i = 0; id[i]; ++i) id[i] = (char)(id[i] >= 'A' ? id[i] | 32 : id[i]); /* lower case */
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", id);
    f = fopen(path, "r");
    if (f && fscanf(f, "%d", &node) != 1) node = -1;
    if (f) fclose(f);
    return node;
#else
    (void)device;
    return -1;
#endif
}

/* Keeps this thread, and so the memory that it touches first, on a NUMA node of Linux. */
SPIPE_API void spipe_priv_stay_on_node(int node) {
#if defined(__linux__) && defined(CPU_SET) /* which strict C99 hides */
    char path[64], comma = ',';
    int first, last;
    cpu_set_t cpus, allowed;
    FILE *f;
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    f = node >= 0 ? fopen(path, "r") : NULL;
    if (!f) return;
    CPU_ZERO(&cpus);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) CPU_ZERO(&allowed);
    while (comma == ',' && fscanf(f, "%d", &first) == 1) { /* as in 0-7,16-23 */
        last = first;
        if (fscanf(f, "-%d", &last) < 0) last = first;
        for (; first <= last && first < CPU_SETSIZE; ++first) {
            if (CPU_ISSET((size_t)first, &allowed)) CPU_SET((size_t)first, &cpus);
        }
        if (fscanf(f, "%c", &comma) != 1) comma = 0;
    }
    fclose(f);
    if (CPU_COUNT(&cpus) > 0) (void)sched_setaffinity(0, sizeof cpus, &cpus);
#else
    (void)node;
#endif
}

/* What a run needs to know; the rest takes longer to find. */
SPIPE_API cudaError_t spipe_priv_device_facts(spipe_device_t *facts, int device) {
    struct cudaDeviceProp properties;
    memset(facts, 0, sizeof *facts);
    SPIPE_TRY(cudaGetDeviceProperties(&properties, device));
    memcpy(facts->name, properties.name, sizeof facts->name - 1);
    facts->memory_bytes = properties.totalGlobalMem;
    facts->device = device;
    facts->compute_major = properties.major;
    facts->compute_minor = properties.minor;
    facts->num_sms = properties.multiProcessorCount;
    facts->copy_engines = properties.asyncEngineCount;
    facts->concurrent_kernels = properties.concurrentKernels;
    facts->map_host_memory = properties.canMapHostMemory;
    facts->pageable_access = properties.pageableMemoryAccess;
    facts->host_page_tables = properties.pageableMemoryAccessUsesHostPageTables;
    facts->integrated = properties.integrated;
    facts->numa_node = -1;
    (void)cudaDriverGetVersion(&facts->driver_version);
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_device_get(spipe_device_t *facts, int device) {
    if (!facts) return cudaErrorInvalidValue;
    memset(facts, 0, sizeof *facts);
    if (device < 0) SPIPE_TRY(cudaGetDevice(&device));
    SPIPE_TRY(spipe_priv_device_facts(facts, device));
    (void)cudaDeviceGetStreamPriorityRange(&facts->priority_least, &facts->priority_greatest);
    (void)cudaRuntimeGetVersion(&facts->runtime_version);
    facts->numa_node = spipe_priv_numa_node(device);
    return cudaSuccess;
}

/* Afterwards cudaSetDevice(before), always: a stage may have left another device current. */
SPIPE_API cudaError_t spipe_priv_use_device(int device, int *before) {
    SPIPE_TRY(cudaGetDevice(before));
    return *before == device ? cudaSuccess : cudaSetDevice(device);
}

/* ---- src/private/streams.h ---- */
/* ---- 4 streams -----------------------------------------------------------------------------
   Streams by priority and pools of them. Uses threads, errors. */
SPIPE_API cudaError_t spipe_priority_value(spipe_priority_t priority, int *value) {
    int least = 0, greatest = 0;
    if (!value) return cudaErrorInvalidValue;
    *value = 0;
    if ((int)priority < 0 || priority > SPIPE_PRIORITY_HIGH) return cudaErrorInvalidValue;
    SPIPE_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    if (priority == SPIPE_PRIORITY_LOW) *value = least;
    if (priority == SPIPE_PRIORITY_MEDIUM) *value = (least + greatest) / 2;
    if (priority == SPIPE_PRIORITY_HIGH) *value = greatest;
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_stream_create(cudaStream_t *stream, spipe_priority_t priority) {
    int value = 0;
    if (!stream) return cudaErrorInvalidValue;
    *stream = NULL;
    SPIPE_TRY(spipe_priority_value(priority, &value));
    return cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, value);
}

SPIPE_API cudaError_t spipe_stream_wait(cudaStream_t waiter, cudaStream_t other) {
    cudaEvent_t event = NULL;
    cudaError_t e;
    SPIPE_TRY(spipe_event_create(&event));
    e = cudaEventRecord(event, other);
    if (e == cudaSuccess) e = cudaStreamWaitEvent(waiter, event, 0);
    spipe_priv_keep_error(&e, cudaEventDestroy(event)); /* a wait already queued stays valid */
    return e;
}

SPIPE_API cudaError_t spipe_stream_pool_destroy(spipe_stream_pool_t *pool) {
    cudaError_t e = cudaSuccess;
    size_t i;
    if (!pool || pool->self != pool) {
        return pool ? spipe_priv_may_free(pool, pool->self) : cudaSuccess;
    }
    for (i = 0; i < pool->num_streams; ++i) {
        if (pool->streams[i]) spipe_priv_keep_error(&e, cudaStreamDestroy(pool->streams[i]));
    }
    spipe_priv_sync_destroy(pool->sync);
    memset(pool, 0, sizeof *pool);
    return e;
}

SPIPE_API cudaError_t spipe_stream_pool_create(spipe_stream_pool_t *pool, size_t num_streams,
                                               spipe_priority_t priority) {
    cudaError_t e = cudaSuccess;
    if (!pool) return cudaErrorInvalidValue;
    memset(pool, 0, sizeof *pool);
    if (num_streams == 0 || num_streams > SPIPE_MAX_STREAMS) return cudaErrorInvalidValue;
    SPIPE_TRY(cudaGetDevice(&pool->device));
    pool->sync = spipe_priv_sync_create();
    if (!pool->sync) return cudaErrorMemoryAllocation;
    pool->self = pool;
    for (; pool->num_streams < num_streams && e == cudaSuccess; ++pool->num_streams) {
        e = spipe_stream_create(&pool->streams[pool->num_streams], priority);
    }
    if (e != cudaSuccess) (void)spipe_stream_pool_destroy(pool);
    return e;
}

/* Whether a query said so. "Not ready" is no error, but CUDA may keep it as the last one. */
SPIPE_API int spipe_priv_reached(cudaError_t query) {
    if (query == cudaErrorNotReady && cudaPeekAtLastError() == query) (void)cudaGetLastError();
    return query == cudaSuccess;
}

SPIPE_API cudaError_t spipe_stream_next(spipe_stream_pool_t *pool, cudaStream_t *stream) {
    if (!stream) return cudaErrorInvalidValue;
    *stream = NULL;
    if (!pool || pool->self != pool) return cudaErrorInvalidValue;
    spipe_priv_lock(pool->sync);
    *stream = pool->streams[pool->next];
    pool->next = (pool->next + 1) % pool->num_streams;
    spipe_priv_unlock(pool->sync);
    return cudaSuccess;
}

/* ---- src/private/leases.h ---- */
/* ---- 4 streams: leases and scopes ----------------------------------------------------------
   A pool's stream for one thread, an idle one first. Uses streams. */
/* An unleased stream, an idle one if there is one; under the lock. A stream whose query fails is
   lent last: the error is the context's and will surface in the holder's own calls. */
SPIPE_API int spipe_priv_pool_pick(spipe_stream_pool_t *pool, size_t *pick) {
    size_t i;
    int found = 0;
    for (i = 0; i < pool->num_streams; ++i) {
        if (pool->leased[i]) continue;
        if (spipe_priv_reached(cudaStreamQuery(pool->streams[i]))) {
            *pick = i;
            return 1;
        }
        if (!found) *pick = i;
        found = 1;
    }
    return found;
}

SPIPE_API cudaError_t spipe_priv_pool_lease(spipe_stream_pool_t *pool, cudaStream_t *stream,
                                            int may_wait) {
    size_t pick = 0;
    cudaError_t e = cudaSuccess;
    if (!stream) return cudaErrorInvalidValue;
    *stream = NULL;
    if (!pool || pool->self != pool) return cudaErrorInvalidValue;
    spipe_priv_lock(pool->sync);
    while (!spipe_priv_pool_pick(pool, &pick)) {
#if defined(SPIPE_NO_THREADS)
        may_wait = 0; /* nobody else could release one */
#endif
        if (!may_wait) {
            e = cudaErrorNotReady;
            break;
        }
        spipe_priv_wait(pool->sync);
    }
    if (e == cudaSuccess) {
        pool->leased[pick] = 1;
        *stream = pool->streams[pick];
    }
    spipe_priv_unlock(pool->sync);
    return e;
}

SPIPE_API cudaError_t spipe_stream_acquire(spipe_stream_pool_t *pool, cudaStream_t *stream) {
    return spipe_priv_pool_lease(pool, stream, 1);
}

SPIPE_API cudaError_t spipe_stream_try_acquire(spipe_stream_pool_t *pool, cudaStream_t *stream) {
    return spipe_priv_pool_lease(pool, stream, 0);
}

SPIPE_API cudaError_t spipe_stream_release(spipe_stream_pool_t *pool, cudaStream_t stream) {
    cudaError_t e = cudaErrorInvalidResourceHandle;
    size_t i;
    if (!pool || pool->self != pool) return cudaErrorInvalidValue;
    spipe_priv_lock(pool->sync);
    for (i = 0; i < pool->num_streams; ++i) {
        if (pool->streams[i] != stream || !pool->leased[i]) continue;
        pool->leased[i] = 0;
        e = cudaSuccess;
    }
    spipe_priv_wake(pool->sync);
    spipe_priv_unlock(pool->sync);
    return e;
}

SPIPE_API cudaError_t spipe_scope_begin(spipe_scope_t *scope, spipe_stream_pool_t *pool,
                                        cudaStream_t parent) {
    cudaError_t e;
    if (!scope) return cudaErrorInvalidValue;
    memset(scope, 0, sizeof *scope);
    SPIPE_TRY(spipe_stream_acquire(pool, &scope->stream));
    scope->parent = parent;
    scope->pool = pool;
    e = spipe_stream_wait(scope->stream, parent);
    if (e != cudaSuccess) {
        (void)spipe_stream_release(pool, scope->stream);
        memset(scope, 0, sizeof *scope);
    }
    return e;
}

SPIPE_API cudaError_t spipe_scope_end(spipe_scope_t *scope) {
    cudaError_t e;
    if (!scope || !scope->pool) return cudaSuccess;
    e = spipe_stream_wait(scope->parent, scope->stream);
    spipe_priv_keep_error(&e, spipe_stream_release(scope->pool, scope->stream));
    memset(scope, 0, sizeof *scope);
    return e;
}

/* ---- src/private/events.h ---- */
/* ---- 5 events ------------------------------------------------------------------------------
   Untimed events, pools of them, timers. Uses threads. */
SPIPE_API cudaError_t spipe_event_create(cudaEvent_t *event) {
    if (!event) return cudaErrorInvalidValue;
    *event = NULL;
    return cudaEventCreateWithFlags(event, cudaEventDisableTiming);
}

SPIPE_API cudaError_t spipe_event_pool_create(spipe_event_pool_t *pool) {
    if (!pool) return cudaErrorInvalidValue;
    memset(pool, 0, sizeof *pool);
    SPIPE_TRY(cudaGetDevice(&pool->device));
    pool->sync = spipe_priv_sync_create();
    if (!pool->sync) return cudaErrorMemoryAllocation;
    pool->self = pool;
    return cudaSuccess;
}

/* Makes one more; with room for every event there is, release cannot fail for want of memory. */
SPIPE_API cudaError_t spipe_priv_event_pool_grow(spipe_event_pool_t *pool, cudaEvent_t *event) {
    const size_t room = (pool->num_total + 1) * sizeof *pool->free_events;
    cudaEvent_t *grown = (cudaEvent_t *)realloc((void *)pool->free_events, room);
    if (!grown) return cudaErrorMemoryAllocation;
    pool->free_events = grown;
    SPIPE_TRY(spipe_event_create(event));
    ++pool->num_total;
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_event_acquire(spipe_event_pool_t *pool, cudaEvent_t *event) {
    cudaError_t e = cudaSuccess;
    if (!event) return cudaErrorInvalidValue;
    *event = NULL;
    if (!pool || pool->self != pool) return cudaErrorInvalidValue;
    spipe_priv_lock(pool->sync);
    if (pool->num_free > 0)
        *event = pool->free_events[--pool->num_free];
    else
        e = spipe_priv_event_pool_grow(pool, event);
    spipe_priv_unlock(pool->sync);
    return e;
}

SPIPE_API cudaError_t spipe_event_release(spipe_event_pool_t *pool, cudaEvent_t event) {
    cudaError_t e = cudaErrorInvalidValue;
    size_t i = 0;
    if (!pool || pool->self != pool || !event) return e;
    spipe_priv_lock(pool->sync);
    while (i < pool->num_free && pool->free_events[i] != event) ++i;
    if (i == pool->num_free && i < pool->num_total) {
        pool->free_events[pool->num_free++] = event;
        e = cudaSuccess;
    }
    spipe_priv_unlock(pool->sync);
    return e;
}

SPIPE_API cudaError_t spipe_event_pool_destroy(spipe_event_pool_t *pool) {
    cudaError_t e = cudaSuccess;
    size_t i;
    if (!pool || pool->self != pool) {
        return pool ? spipe_priv_may_free(pool, pool->self) : cudaSuccess;
    }
    if (pool->num_free != pool->num_total) e = cudaErrorInvalidValue;
    for (i = 0; i < pool->num_free; ++i) {
        spipe_priv_keep_error(&e, cudaEventDestroy(pool->free_events[i]));
    }
    free((void *)pool->free_events);
    spipe_priv_sync_destroy(pool->sync);
    memset(pool, 0, sizeof *pool);
    return e;
}

SPIPE_API cudaError_t spipe_timer_destroy(spipe_timer_t *timer) {
    cudaError_t e = cudaSuccess;
    if (!timer || timer->self != timer) {
        return timer ? spipe_priv_may_free(timer, timer->self) : cudaSuccess;
    }
    if (timer->begin) spipe_priv_keep_error(&e, cudaEventDestroy(timer->begin));
    if (timer->end) spipe_priv_keep_error(&e, cudaEventDestroy(timer->end));
    memset(timer, 0, sizeof *timer);
    return e;
}

SPIPE_API cudaError_t spipe_timer_create(spipe_timer_t *timer) {
    cudaError_t e;
    if (!timer) return cudaErrorInvalidValue;
    memset(timer, 0, sizeof *timer);
    timer->self = timer;
    e = cudaEventCreateWithFlags(&timer->begin, cudaEventDefault);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&timer->end, cudaEventDefault);
    if (e != cudaSuccess) (void)spipe_timer_destroy(timer);
    return e;
}

SPIPE_API cudaError_t spipe_timer_start(spipe_timer_t *timer, cudaStream_t stream) {
    if (!timer || timer->self != timer) return cudaErrorInvalidResourceHandle;
    return cudaEventRecord(timer->begin, stream);
}

SPIPE_API cudaError_t spipe_timer_stop(spipe_timer_t *timer, cudaStream_t stream) {
    if (!timer || timer->self != timer) return cudaErrorInvalidResourceHandle;
    return cudaEventRecord(timer->end, stream);
}

SPIPE_API cudaError_t spipe_timer_ms(spipe_timer_t *timer, float *ms) {
    if (!ms) return cudaErrorInvalidValue;
    *ms = 0.0f;
    if (!timer || timer->self != timer) return cudaErrorInvalidResourceHandle;
    SPIPE_TRY(cudaEventSynchronize(timer->end));
    return cudaEventElapsedTime(ms, timer->begin, timer->end);
}

/* ---- src/private/pinned.h ---- */
/* ---- 6 memory ------------------------------------------------------------------------------
   Pinned memory, and what kind of memory a pointer is. Uses the CUDA runtime only. */
SPIPE_API cudaError_t spipe_pinned_alloc(void **ptr, size_t bytes) {
    if (!ptr) return cudaErrorInvalidValue;
    *ptr = NULL;
    if (bytes == 0) return cudaSuccess;
    return cudaHostAlloc(ptr, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
}

SPIPE_API cudaError_t spipe_pinned_free(void *ptr) { return ptr ? cudaFreeHost(ptr) : cudaSuccess; }

SPIPE_API cudaError_t spipe_pin(void *ptr, size_t bytes) {
    if (!ptr || bytes == 0) return cudaErrorInvalidValue;
    return cudaHostRegister(ptr, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
}

SPIPE_API cudaError_t spipe_unpin(void *ptr) {
    return ptr ? cudaHostUnregister(ptr) : cudaErrorInvalidValue;
}

/* Pageable, pinned, or device (managed counts as device: any copy from it may be asynchronous). */
enum {
    SPIPE_PRIV_PAGEABLE,
    SPIPE_PRIV_PINNED,
    SPIPE_PRIV_DEVICE
};

static const char *const spipe_priv_memory_names[] = {"pageable", "pinned", "device"};

SPIPE_API cudaError_t spipe_priv_memory_type(const void *ptr, int *type, void **device_pointer) {
    struct cudaPointerAttributes a;
    cudaError_t e;
    memset(&a, 0, sizeof a);
    *type = SPIPE_PRIV_PAGEABLE;
    e = cudaPointerGetAttributes(&a, ptr);
    if (e == cudaErrorInvalidValue) { /* so toolkits before 11 called a pageable pointer */
        (void)cudaGetLastError();
        return cudaSuccess;
    }
    if (e != cudaSuccess) return e;
    if (a.type == cudaMemoryTypeHost)
        *type = SPIPE_PRIV_PINNED;
    else if (a.type != cudaMemoryTypeUnregistered)
        *type = SPIPE_PRIV_DEVICE;
    if (device_pointer) *device_pointer = a.devicePointer;
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_is_pinned(const void *ptr, size_t bytes, int *pinned) {
    int first = 0, last = 0;
    if (!pinned) return cudaErrorInvalidValue;
    *pinned = 0;
    if (!ptr) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_memory_type(ptr, &first, NULL));
    if (bytes > 1) ptr = (const unsigned char *)ptr + bytes - 1;
    SPIPE_TRY(spipe_priv_memory_type(ptr, &last, NULL));
    *pinned = first != SPIPE_PRIV_PAGEABLE && last != SPIPE_PRIV_PAGEABLE;
    return cudaSuccess;
}

/* ---- src/private/hostcalls.h ---- */
/* ---- 7 host calls --------------------------------------------------------------------------
   Host functions in a stream's order; a worker thread that may call CUDA. */
SPIPE_API cudaError_t spipe_host_call(cudaStream_t stream, spipe_host_fn fn, void *user) {
    return fn ? cudaLaunchHostFunc(stream, (cudaHostFn_t)fn, user) : cudaErrorInvalidValue;
}

struct spipe_priv_job {
    struct spipe_priv_job *next;
    cudaEvent_t reached;
    spipe_worker_fn fn;
    void *user;
};

SPIPE_API void *spipe_priv_worker_main(void *arg) {
    spipe_worker_t *w = (spipe_worker_t *)arg;
    (void)cudaSetDevice(w->device);
    spipe_priv_lock(w->sync);
    while (w->first || !w->quit) {
        struct spipe_priv_job *job = w->first;
        if (!job) {
            spipe_priv_wait(w->sync);
            continue;
        }
        w->first = job->next;
        w->busy = 1;
        spipe_priv_unlock(w->sync);
        job->fn(cudaEventSynchronize(job->reached), job->user);
        (void)cudaEventDestroy(job->reached);
        free(job);
        spipe_priv_lock(w->sync);
        w->busy = 0;
        spipe_priv_wake(w->sync);
    }
    spipe_priv_unlock(w->sync);
    return NULL;
}

SPIPE_API cudaError_t spipe_worker_create(spipe_worker_t *worker) {
    if (!worker) return cudaErrorInvalidValue;
    memset(worker, 0, sizeof *worker);
    SPIPE_TRY(cudaGetDevice(&worker->device));
    worker->sync = spipe_priv_sync_create();
    if (!worker->sync) return cudaErrorMemoryAllocation;
    worker->self = worker;
    worker->thread = spipe_priv_thread_start(spipe_priv_worker_main, worker);
    if (!worker->thread) {
        (void)spipe_worker_destroy(worker);
        return cudaErrorNotSupported;
    }
    worker->running = 1;
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_worker_call(spipe_worker_t *worker, cudaStream_t stream,
                                        spipe_worker_fn fn, void *user) {
    struct spipe_priv_job *job;
    cudaError_t e;
    if (!worker || worker->self != worker || !fn) return cudaErrorInvalidValue;
    job = (struct spipe_priv_job *)calloc(1, sizeof *job);
    if (!job) return cudaErrorMemoryAllocation;
    job->fn = fn;
    job->user = user;
    /* blocking sync: the worker sleeps instead of burning a core while it waits */
    e = cudaEventCreateWithFlags(&job->reached, cudaEventDisableTiming | cudaEventBlockingSync);
    if (e == cudaSuccess) e = cudaEventRecord(job->reached, stream);
    if (e != cudaSuccess) {
        if (job->reached) (void)cudaEventDestroy(job->reached);
        free(job);
        return e;
    }
    spipe_priv_lock(worker->sync);
    if (worker->first)
        worker->last->next = job;
    else
        worker->first = job;
    worker->last = job;
    spipe_priv_wake(worker->sync);
    spipe_priv_unlock(worker->sync);
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_worker_wait(spipe_worker_t *worker) {
    if (!worker || worker->self != worker) return cudaErrorInvalidValue;
    spipe_priv_lock(worker->sync);
    while (worker->first || worker->busy) spipe_priv_wait(worker->sync);
    spipe_priv_unlock(worker->sync);
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_worker_destroy(spipe_worker_t *worker) {
    if (!worker || worker->self != worker) {
        return worker ? spipe_priv_may_free(worker, worker->self) : cudaSuccess;
    }
    if (worker->running) {
        (void)spipe_worker_wait(worker);
        spipe_priv_lock(worker->sync);
        worker->quit = 1;
        spipe_priv_wake(worker->sync);
        spipe_priv_unlock(worker->sync);
        spipe_priv_thread_join(worker->thread);
    }
    spipe_priv_sync_destroy(worker->sync);
    memset(worker, 0, sizeof *worker);
    return cudaSuccess;
}

/* ---- src/private/channels.h ---- */
/* ---- 8 channels ----------------------------------------------------------------------------
   Values between two streams, in device memory. Uses events. */
SPIPE_API cudaError_t spipe_channel_destroy(spipe_channel_t *c) {
    cudaError_t e = cudaSuccess;
    size_t i;
    if (!c || c->self != c) {
        return c ? spipe_priv_may_free(c, c->self) : cudaSuccess;
    }
    for (i = 0; c->full && i < 2 * c->capacity; ++i) { /* full, then empty */
        if (c->full[i]) spipe_priv_keep_error(&e, cudaEventDestroy(c->full[i]));
    }
    if (c->device_memory) spipe_priv_keep_error(&e, cudaFree(c->device_memory));
    free((void *)c->full);
    spipe_priv_sync_destroy(c->sync);
    memset(c, 0, sizeof *c);
    return e;
}

SPIPE_API cudaError_t spipe_channel_create(spipe_channel_t *c, size_t bytes, size_t capacity) {
    cudaError_t e = cudaErrorMemoryAllocation;
    size_t i;
    if (!c) return cudaErrorInvalidValue;
    memset(c, 0, sizeof *c);
    if (bytes == 0 || capacity == 0 || bytes > SIZE_MAX / 2 - 256) return cudaErrorInvalidValue;
    c->bytes = bytes;
    c->stride = (bytes + 255) & ~(size_t)255;
    c->capacity = capacity;
    if (capacity > SIZE_MAX / c->stride / 4) return cudaErrorInvalidValue;
    SPIPE_TRY(cudaGetDevice(&c->device));
    c->self = c;
    c->full = (cudaEvent_t *)calloc(2 * capacity, sizeof *c->full);
    c->sync = spipe_priv_sync_create();
    if (c->full && c->sync) {
        c->empty = c->full + capacity;
        e = cudaMalloc((void **)&c->device_memory, c->stride * capacity);
        for (i = 0; i < 2 * capacity && e == cudaSuccess; ++i) {
            e = spipe_event_create(&c->full[i]);
        }
    }
    if (e != cudaSuccess) (void)spipe_channel_destroy(c);
    return e;
}

SPIPE_API cudaError_t spipe_channel_send(spipe_channel_t *c, cudaStream_t stream,
                                         const void *value) {
    cudaError_t e = cudaErrorNotReady;
    if (!c || c->self != c || !value) return cudaErrorInvalidValue;
    spipe_priv_lock(c->sync);
    if (c->num_sent - c->num_received < c->capacity) {
        const size_t place = c->num_sent % c->capacity;
        unsigned char *at = c->device_memory + place * c->stride;
        e = cudaStreamWaitEvent(stream, c->empty[place], 0); /* never recorded: no wait */
        if (e == cudaSuccess) {
            e = cudaMemcpyAsync(at, value, c->bytes, cudaMemcpyDefault, stream);
        }
        if (e == cudaSuccess) e = cudaEventRecord(c->full[place], stream);
        if (e == cudaSuccess) ++c->num_sent;
    }
    spipe_priv_unlock(c->sync);
    return e;
}

SPIPE_API cudaError_t spipe_channel_recv(spipe_channel_t *c, cudaStream_t stream, void *into) {
    cudaError_t e = cudaErrorNotReady;
    if (!c || c->self != c || !into) return cudaErrorInvalidValue;
    spipe_priv_lock(c->sync);
    if (c->num_sent != c->num_received) {
        const size_t place = c->num_received % c->capacity;
        const unsigned char *at = c->device_memory + place * c->stride;
        e = cudaStreamWaitEvent(stream, c->full[place], 0);
        if (e == cudaSuccess) {
            e = cudaMemcpyAsync(into, at, c->bytes, cudaMemcpyDefault, stream);
        }
        if (e == cudaSuccess) e = cudaEventRecord(c->empty[place], stream);
        if (e == cudaSuccess) ++c->num_received;
    }
    spipe_priv_unlock(c->sync);
    return e;
}

/* ---- src/private/hooks.h ---- */
/* ---- 9 describe: hooks ---------------------------------------------------------------------
   What other headers of the library, and tests, may hang into a run. */
struct spipe_priv_pipeline;

/* Takes the memory of all parts of a run from resources, or none. */
typedef cudaError_t (*spipe_priv_take_fn)(struct spipe_priv_pipeline *const *parts, size_t num);

/* Behind desc.hooks; any member may be NULL. */
typedef struct spipe_priv_hooks {
    /* Takes the place of spipe_run (several GPUs). */
    cudaError_t (*run)(const spipe_desc_t *d, spipe_report_t *report);
    /* Several GPUs: position in the whole of the next batch that this GPU does; with have > 0 the
       outcome of reading the sources of the newest one (spipe_priv_reading_t). */
    size_t (*next_batch)(struct spipe_priv_pipeline *p, int have);
    void *user;
    /* Tests: called before a GPU asks for a batch (last = 0) and after its last one (1). */
    void (*turn)(int place, int last);
    /* Several GPUs with resources: has `take` take the memory of all of them at once. */
    cudaError_t (*gather)(struct spipe_priv_pipeline *p, spipe_priv_take_fn take);
} spipe_priv_hooks_t;

/* What spipe_timeline_t begins with: it is notified of each run, operation and task, before
   (after = 0) and after (1). about: a spipe_priv_op_t or a spipe_priv_task_t. */
enum {
    SPIPE_PRIV_WATCH_RUN,
    SPIPE_PRIV_WATCH_OP,
    SPIPE_PRIV_WATCH_TASK
};

typedef struct spipe_priv_watcher {
    size_t stamp; /* SPIPE_PRIV_STAMP */
    void (*notify)(struct spipe_timeline *timeline, struct spipe_priv_pipeline *p, int what,
                   const void *about, size_t batch, int after);
} spipe_priv_watcher_t;

/* Whether a timeline was begun, so that its watcher may be called. */
SPIPE_API int spipe_priv_watches(const struct spipe_timeline *timeline) {
    const spipe_priv_watcher_t *w = (const spipe_priv_watcher_t *)(const void *)timeline;
    return w->stamp == SPIPE_PRIV_STAMP;
}

/* What resources begin with. */
typedef struct spipe_priv_shared {
    const struct spipe_priv_provider *provider;
    size_t stamp; /* SPIPE_PRIV_STAMP */
    long process; /* what CUDA made cannot be used in a process that was forked */
} spipe_priv_shared_t;

/* A number of this process. */
SPIPE_API long spipe_priv_process(void) {
#if defined(_WIN32)
    return 0;
#else
    return (long)getpid();
#endif
}

/* Whether resources were made here, and not destroyed. */
SPIPE_API int spipe_priv_lends(const struct spipe_resources *resources) {
    const spipe_priv_shared_t *s = (const spipe_priv_shared_t *)(const void *)resources;
    return s->stamp == SPIPE_PRIV_STAMP && s->process == spipe_priv_process();
}

/* ---- src/private/describe.h ---- */
/* ---- 9 describe ----------------------------------------------------------------------------
   Adding buffers and stages to a description; mistakes are kept for the check. */
SPIPE_API spipe_desc_t spipe_desc_default(void) {
    spipe_desc_t d;
    memset(&d, 0, sizeof d);
    d.count = d.chunk = d.depth = d.threads = SPIPE_AUTO;
    d.stamp = SPIPE_PRIV_STAMP;
    return d;
}

/* Of one that was not, nothing is read or written: it may be garbage. */
SPIPE_PRIV_RARE int spipe_priv_begun(const spipe_desc_t *d) {
    return d && d->stamp == SPIPE_PRIV_STAMP;
}

SPIPE_PRIV_RARE int spipe_priv_mistake(spipe_desc_t *d, const char *problem) {
    if (spipe_priv_begun(d) && !d->problem) d->problem = problem;
    return -1;
}

SPIPE_PRIV_RARE int spipe_priv_add_buffer(spipe_desc_t *d, spipe_kind_t kind, void *host,
                                          size_t bytes) {
    spipe_buffer_desc_t *b;
    if (!spipe_priv_begun(d)) return -1;
    if (d->num_buffers < 0 || d->num_buffers >= SPIPE_MAX_BUFFERS) {
        return spipe_priv_mistake(d, "too many buffers: at most 16; put several fields into one");
    }
    b = &d->buffers[d->num_buffers];
    memset(b, 0, sizeof *b);
    b->kind = kind;
    b->host = host;
    b->elem_bytes = bytes;
    return d->num_buffers++;
}

SPIPE_API int spipe_add_input(spipe_desc_t *d, const void *host, size_t elem_bytes) {
    return spipe_priv_add_buffer(d, SPIPE_INPUT, (void *)host, elem_bytes); /* never written */
}

SPIPE_API int spipe_add_output(spipe_desc_t *d, void *host, size_t elem_bytes) {
    return spipe_priv_add_buffer(d, SPIPE_OUTPUT, host, elem_bytes);
}

SPIPE_API int spipe_add_inout(spipe_desc_t *d, void *host, size_t elem_bytes) {
    return spipe_priv_add_buffer(d, SPIPE_INOUT, host, elem_bytes);
}

SPIPE_API int spipe_add_temp(spipe_desc_t *d, size_t elem_bytes) {
    return spipe_priv_add_buffer(d, SPIPE_TEMP, NULL, elem_bytes);
}

SPIPE_API int spipe_add_resident(spipe_desc_t *d, void *host, size_t bytes, int how) {
    const int i = spipe_priv_add_buffer(d, SPIPE_RESIDENT, host, bytes);
    if (i >= 0) d->buffers[i].resident = how;
    return i;
}

/* Callers of the user's functions: the first three in filling.h, the others in hostwork.h. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_fill_sources(struct spipe_priv_pipeline *p, int buffer,
                                                    const struct spipe_priv_at *at);
SPIPE_PRIV_RARE cudaError_t spipe_priv_fill_part(struct spipe_priv_pipeline *p, int buffer,
                                                 const struct spipe_priv_at *at);
SPIPE_PRIV_RARE cudaError_t spipe_priv_fill_work(struct spipe_priv_pipeline *p, int buffer,
                                                 const struct spipe_priv_at *at);
SPIPE_PRIV_RARE cudaError_t spipe_priv_drain_sink(struct spipe_priv_pipeline *p, int buffer,
                                                  const struct spipe_priv_at *at);
SPIPE_PRIV_RARE cudaError_t spipe_priv_drain_part(struct spipe_priv_pipeline *p, int buffer,
                                                  const struct spipe_priv_at *at);

SPIPE_API int spipe_add_source(spipe_desc_t *d, spipe_source_fn source, void *user,
                               size_t elem_bytes) {
    const int i = spipe_priv_add_buffer(d, SPIPE_SOURCE, NULL, elem_bytes);
    if (i < 0) return i;
    d->buffers[i].source = source;
    d->buffers[i].user = user;
    d->buffers[i].caller = spipe_priv_fill_sources;
    return i;
}

SPIPE_API int spipe_add_sink(spipe_desc_t *d, spipe_sink_fn sink, void *user, size_t elem_bytes) {
    const int i = spipe_priv_add_buffer(d, SPIPE_SINK, NULL, elem_bytes);
    if (i < 0) return i;
    d->buffers[i].sink = sink;
    d->buffers[i].user = user;
    d->buffers[i].caller = spipe_priv_drain_sink;
    return i;
}

SPIPE_API int spipe_add_source_at(spipe_desc_t *d, spipe_source_at_fn source_at, void *user,
                                  size_t elem_bytes) {
    const int i = spipe_priv_add_buffer(d, SPIPE_SOURCE_AT, NULL, elem_bytes);
    if (i < 0) return i;
    d->buffers[i].source_at = source_at;
    d->buffers[i].user = user;
    d->buffers[i].caller = spipe_priv_fill_part;
    return i;
}

SPIPE_API int spipe_add_sink_at(spipe_desc_t *d, spipe_sink_at_fn sink_at, void *user,
                                size_t elem_bytes) {
    const int i = spipe_priv_add_buffer(d, SPIPE_SINK_AT, NULL, elem_bytes);
    if (i < 0) return i;
    d->buffers[i].sink_at = sink_at;
    d->buffers[i].user = user;
    d->buffers[i].caller = spipe_priv_drain_part;
    return i;
}

SPIPE_API int spipe_add_source_split(spipe_desc_t *d, spipe_source_fn next, spipe_work_fn work,
                                     void *user, size_t ticket_bytes, size_t elem_bytes) {
    const int i = spipe_add_source(d, next, user, elem_bytes);
    if (i < 0) return i;
    d->buffers[i].work = work;
    d->buffers[i].ticket_bytes = ticket_bytes;
    d->buffers[i].filler = spipe_priv_fill_work;
    return i;
}

SPIPE_API int spipe_set_halo(spipe_desc_t *d, int buffer, size_t before, size_t after,
                             spipe_edge_t edge) {
    if (!spipe_priv_begun(d)) return -1;
    if (buffer < 0 || buffer >= d->num_buffers) {
        return spipe_priv_mistake(d, "spipe_set_halo: no such buffer; take what adding it gave");
    }
    d->buffers[buffer].halo_before = before;
    d->buffers[buffer].halo_after = after;
    d->buffers[buffer].edge = edge;
    return buffer;
}

SPIPE_API int spipe_add_stage(spipe_desc_t *d, const char *name, spipe_stage_fn fn, void *user) {
    spipe_stage_desc_t *s;
    if (!spipe_priv_begun(d)) return -1;
    if (d->num_stages < 0 || d->num_stages >= SPIPE_MAX_STAGES) {
        return spipe_priv_mistake(d, "too many stages: at most 16; enqueue several kernels in one");
    }
    s = &d->stages[d->num_stages];
    memset(s, 0, sizeof *s);
    s->name = name;
    s->fn = fn;
    s->user = user;
    return d->num_stages++;
}

SPIPE_API int spipe_add_host_stage(spipe_desc_t *d, const char *name, spipe_stage_fn fn, void *user,
                                   unsigned reads, unsigned writes) {
    const int i = spipe_add_stage(d, name, fn, user);
    if (i < 0) return i;
    d->stages[i].host = 1;
    d->stages[i].reads = reads;
    d->stages[i].writes = writes;
    return i;
}

SPIPE_PRIV_RARE spipe_stage_desc_t *spipe_priv_stage_at(spipe_desc_t *d, int stage) {
    if (spipe_priv_begun(d) && stage >= 0 && stage < d->num_stages) return &d->stages[stage];
    (void)spipe_priv_mistake(d, "no such stage; use the number that spipe_add_stage returned");
    return NULL;
}

SPIPE_API int spipe_stage_after(spipe_desc_t *d, int stage, const char *after) {
    spipe_stage_desc_t *s = spipe_priv_stage_at(d, stage);
    if (!s) return -1;
    s->after_given = 1;
    if (after && s->num_after >= SPIPE_MAX_STAGES) {
        return spipe_priv_mistake(d, "a stage waits for more stages than there can be");
    }
    if (after) s->after[s->num_after++] = after;
    return stage;
}

SPIPE_API int spipe_stage_ordered(spipe_desc_t *d, int stage) {
    spipe_stage_desc_t *s = spipe_priv_stage_at(d, stage);
    if (!s) return -1;
    s->ordered = 1;
    return stage;
}

SPIPE_API int spipe_stage_elementwise(spipe_desc_t *d, int stage) {
    spipe_stage_desc_t *s = spipe_priv_stage_at(d, stage);
    if (!s) return -1;
    s->elementwise = 1;
    return stage;
}

SPIPE_API int spipe_stage_replayable(spipe_desc_t *d, int stage) {
    spipe_stage_desc_t *s = spipe_priv_stage_at(d, stage);
    if (!s) return -1;
    s->replayable = 1;
    return stage;
}

SPIPE_PRIV_RARE const char *spipe_priv_kind_name(spipe_kind_t kind) {
    static const char *const names[] = {"unknown",        "input", "output",
                                        "in/out",         "temp",  "resident",
                                        "source",         "sink",  "positioned source",
                                        "positioned sink"};
    return names[kind >= SPIPE_INPUT && kind <= SPIPE_SINK_AT ? (int)kind : 0];
}

#ifdef __cplusplus
/* With the size of an element taken from the pointer; memory without a type must say it. */
template <typename T>
SPIPE_API int spipe_add_input(spipe_desc_t *d, const T *host) {
    return spipe_add_input(d, host, sizeof(T));
}

template <typename T>
SPIPE_API int spipe_add_output(spipe_desc_t *d, T *host) {
    return spipe_add_output(d, host, sizeof(T));
}

template <typename T>
SPIPE_API int spipe_add_inout(spipe_desc_t *d, T *host) {
    return spipe_add_inout(d, host, sizeof(T));
}

int spipe_add_input(spipe_desc_t *d, const void *host) = delete;
int spipe_add_output(spipe_desc_t *d, void *host) = delete;
int spipe_add_inout(spipe_desc_t *d, void *host) = delete;
#endif

/* ---- src/private/stages.h ---- */
/* ---- 9 describe: what follows from a description --------------------------------------------
   Kinds of buffers, which way they are copied, and the graph of stages. Reads descriptions only. */
SPIPE_PRIV_RARE int spipe_priv_is_array(const spipe_buffer_desc_t *b) {
    return b->kind == SPIPE_INPUT || b->kind == SPIPE_OUTPUT || b->kind == SPIPE_INOUT;
}

/* Whether a function of the user's fills or drains it; and whether that sees chunks in order. */
SPIPE_PRIV_RARE int spipe_priv_is_hosted(const spipe_buffer_desc_t *b) {
    return b->kind >= SPIPE_SOURCE && b->kind <= SPIPE_SINK_AT;
}

SPIPE_PRIV_RARE int spipe_priv_is_sequential(const spipe_buffer_desc_t *b) {
    return b->kind == SPIPE_SOURCE || b->kind == SPIPE_SINK;
}

SPIPE_PRIV_RARE int spipe_priv_goes_in(const spipe_buffer_desc_t *b) {
    if (b->kind == SPIPE_SOURCE || b->kind == SPIPE_SOURCE_AT) return 1;
    return b->kind == SPIPE_INPUT || b->kind == SPIPE_INOUT;
}

SPIPE_PRIV_RARE int spipe_priv_goes_out(const spipe_buffer_desc_t *b) {
    if (b->kind == SPIPE_SINK || b->kind == SPIPE_SINK_AT) return 1;
    return b->kind == SPIPE_OUTPUT || b->kind == SPIPE_INOUT;
}

/* Bytes of a buffer's host array; 0 where there is none. */
SPIPE_PRIV_RARE size_t spipe_priv_array_bytes(const spipe_desc_t *d, int i) {
    const spipe_buffer_desc_t *b = &d->buffers[i];
    if (!b->host) return 0;
    return spipe_priv_is_array(b) ? d->count * b->elem_bytes : b->elem_bytes;
}

SPIPE_PRIV_RARE int spipe_priv_endless(const spipe_desc_t *d) {
    int i, sources = 0;
    for (i = 0; i < d->num_buffers; ++i) sources += d->buffers[i].kind == SPIPE_SOURCE;
    return d->count == SPIPE_AUTO || (d->count == 0 && sources > 0);
}

/* Bytes of what a source's function gives for an element: of a split one those of a ticket. */
SPIPE_PRIV_RARE size_t spipe_priv_given_bytes(const spipe_buffer_desc_t *b) {
    return b->filler ? b->ticket_bytes : b->elem_bytes;
}

/* Bytes of a chunk with its halo and tickets; 0 when they do not fit a size_t. */
SPIPE_PRIV_RARE size_t spipe_priv_window_bytes(const spipe_buffer_desc_t *b, size_t chunk) {
    const size_t most = SIZE_MAX / 4 / SPIPE_MAX_DEPTH / SPIPE_MAX_BUFFERS;
    if (b->halo_before > most || b->halo_after > most || chunk > most) return 0;
    if (b->ticket_bytes > most || b->elem_bytes > most) return 0;
    if (b->halo_before + chunk + b->halo_after > most / (b->elem_bytes + b->ticket_bytes)) return 0;
    return (b->halo_before + chunk + b->halo_after) * (b->elem_bytes + b->ticket_bytes);
}

SPIPE_PRIV_RARE int spipe_priv_find_stage(const spipe_desc_t *d, const char *name) {
    int i;
    for (i = 0; i < d->num_stages; ++i) {
        if (d->stages[i].name && strcmp(d->stages[i].name, name) == 0) return i;
    }
    return -1;
}

/* The stages that stage i waits for, as bits: the one added before it, unless after was given. */
SPIPE_PRIV_RARE unsigned spipe_priv_stage_deps(const spipe_desc_t *d, int i) {
    const spipe_stage_desc_t *s = &d->stages[i];
    unsigned deps = 0;
    int j;
    if (!s->after_given) return i > 0 ? SPIPE_BIT(i - 1) : 0;
    for (j = 0; j < s->num_after; ++j) {
        const int before = spipe_priv_find_stage(d, s->after[j]);
        if (before >= 0) deps |= SPIPE_BIT(before);
    }
    return deps;
}

/* Writes the stages to order so that each comes after those it waits for. Returns how many could be
   placed: fewer than num_stages means that some wait for each other in a circle. */
SPIPE_PRIV_RARE int spipe_priv_sort_stages(const spipe_desc_t *d, int *order) {
    unsigned done = 0;
    int n = 0, i, before = -1;
    while (n != before) {
        for (before = n, i = 0; i < d->num_stages; ++i) {
            if ((done & SPIPE_BIT(i)) || (spipe_priv_stage_deps(d, i) & ~done)) continue;
            done |= SPIPE_BIT(i);
            order[n++] = i;
        }
    }
    return n;
}

/* ---- src/private/costs.h ---- */
/* ---- 10 costs ------------------------------------------------------------------------------
   Every tuned number of the planner: the table of machines, and the planner's own limits. No other
   file of the planner holds a number above 2; a check of tests/lint sees to that. */

/* The figures of spipe_costs_t: member, unit it is written in, that unit in SI units. */
#define SPIPE_PRIV_COST_FIGURES(X)                                                                 \
    X(link_in, "GB/s", 1e9)                                                                        \
    X(link_out, "GB/s", 1e9)                                                                       \
    X(link_both, "GB/s", 1e9)                                                                      \
    X(copy_s, "us", 1e-6)                                                                          \
    X(latency_s, "us", 1e-6)                                                                       \
    X(call_s, "us", 1e-6)                                                                          \
    X(launch_s, "us", 1e-6)                                                                        \
    X(zero_copy, "GB/s", 1e9)                                                                      \
    X(pageable_in, "GB/s", 1e9)                                                                    \
    X(pageable_out, "GB/s", 1e9)                                                                   \
    X(pageable_s, "us", 1e-6)                                                                      \
    X(fill, "GB/s", 1e9)                                                                           \
    X(drain, "GB/s", 1e9)                                                                          \
    X(memory, "GB/s", 1e9)                                                                         \
    X(memory_uncached, "GB/s", 1e9)                                                                \
    X(wake_s, "us", 1e-6)                                                                          \
    X(start_s, "us", 1e-6)                                                                         \
    X(staged_s, "us", 1e-6)                                                                        \
    X(pin, "GB/s", 1e9)                                                                            \
    X(pin_s, "us", 1e-6)                                                                           \
    X(pin_arrays, "GB/s", 1e9)                                                                     \
    X(setup_s, "us", 1e-6)                                                                         \
    X(malloc_s, "us", 1e-6)                                                                        \
    X(malloc_bytes, "GB/s", 1e9)

enum {
    SPIPE_PRIV_NUM_COSTS =
        sizeof(spipe_costs_t) / sizeof(double) - offsetof(spipe_costs_t, link_in) / sizeof(double)
};

/* A row a machine kind; the name is looked for in the device's name. Values in the units above. */
typedef struct spipe_priv_cost_row {
    const char *name;
    double figures[SPIPE_PRIV_NUM_COSTS];
} spipe_priv_cost_row_t;

SPIPE_PRIV_RARE const spipe_priv_cost_row_t *spipe_priv_cost_rows(size_t *num) {
    /* clang-format off */
    static const spipe_priv_cost_row_t rows[] = {
        /* H200, PCIe 5.0 x16, 16 CPUs, driver 580.159, CUDA 13.0, 2026-11-23: `make bench-costs`.
           link_both and copy_s fit a ring of slots. pageable_*, pin_s and setup_s are of arrays
           that no cache holds, in a program with other pinned memory; pin is of one-shot runs,
           with touching the slots and freeing them: like start_s it fits `make bench-versus` of
           2026-11-24. memory_uncached fits `make bench-sweep`; staged_s fits `make bench-versus`
           and `make bench`. */
        {"H200",
         /* link_in  link_out  link_both  copy_s  latency_s  call_s  launch_s  zero_copy */
         {  55.3,    55.2,     51.5,      3.6,    4.0,       1.9,    4.0,      42.0,
         /* pageable_in  pageable_out  pageable_s */
            7.0,         9.0,          90.0,
         /* fill  drain  memory  memory_uncached  wake_s  start_s  staged_s */
            7.2,  7.2,   88.0,   58.0,            22.0,   50.0,    30.0,
         /* pin   pin_s   pin_arrays  setup_s  malloc_s  malloc_bytes */
            12.0, 190.0,  17.0,       50.0,    30.0,     800.0}},
        /* H100, PCIe 5.0 x16, 16 CPUs, the same driver and toolkit, 2026-11-23. fill, drain and the
           memory's rates fit `make bench-sweep`; pin and start_s fit one-shot runs of
           `make bench-versus`, 2026-11-24. */
        {"H100",
         {  55.3,    55.2,     46.0,      3.6,    4.0,       1.9,    4.0,      40.8,
            7.0,         9.0,          90.0,
            5.8,  5.8,   78.0,   50.0,            22.0,   60.0,    30.0,
            10.0, 190.0,  16.0,       50.0,    30.0,     800.0}},
        /* Any other: PCIe 4.0 x16 and a desktop's memory, by their specifications, not measured. */
        {"unknown",
         {  25.0,    25.0,     22.0,      3.6,    4.0,       1.9,    4.0,      19.0,
            6.0,         6.0,          90.0,
            5.0,  5.0,   36.0,   28.0,            15.0,   130.0,   30.0,
            9.0,  190.0,  15.0,       50.0,    30.0,     800.0}},
    };
    /* clang-format on */
    *num = sizeof rows / sizeof *rows;
    return rows;
}

/* What the planner considers. */
enum {
    SPIPE_PRIV_LEAST_CHUNK = 128 << 10, /* bytes of the smallest chunk it proposes */
    SPIPE_PRIV_MOST_CHUNK = 16 << 20,   /* and of the largest */
    SPIPE_PRIV_BESIDE_CHUNK = 4 << 20,  /* and beside other runs, which wait for it */
    SPIPE_PRIV_ALIGN_ELEMS = 32,        /* chunks are multiples of so many elements, so that each
                                           begins as aligned as the array ... */
    SPIPE_PRIV_ALIGN_FROM = 64,         /* ... from so many times that on: rounding costs 1.6 % */
    SPIPE_PRIV_ASK_CACHE = 8 << 20,     /* bytes to stage from which the cache's size matters:
                                             asking for it takes 30 us in a virtual machine */
    SPIPE_PRIV_COPY_SLOTS = 4,          /* slots without staging: one for each copy, two kernels */
    SPIPE_PRIV_FEW_CPUS = 4,            /* fewer than these: one staging thread each way */
    SPIPE_PRIV_SPARE_CPUS = 8,          /* of so many CPUs one is left to the calling thread */
    SPIPE_PRIV_MAX_PARTS = 4,           /* of a zero-copy run */
    SPIPE_PRIV_REFINE_DOWN = 4,         /* chunks near the best: from three quarters as many ... */
    SPIPE_PRIV_REFINE_UP = 3,           /* ... to a third more, the next rungs of the ladder, */
    SPIPE_PRIV_REFINE_STEPS = 8,        /* in steps of a sixteenth */
    SPIPE_PRIV_CANDIDATES = 5,          /* ways that a kept pipeline tries */
    SPIPE_PRIV_TRIES = 4,               /* runs of each of them */
    SPIPE_PRIV_MAX_REPLAY = 1024,       /* chunks of a run that may be replayed as a graph */
    SPIPE_PRIV_BISECTIONS = 40,         /* steps of solving the law for the kernels' time */
    SPIPE_PRIV_ASSUMED_BYTES = 256 << 20, /* of a run whose total is not known */
    SPIPE_PRIV_LENT_DEVICE = 512 << 20, /* bytes of device memory that resources have by default */
    SPIPE_PRIV_LENT_PINNED = 128 << 20, /* and of pinned memory */
    SPIPE_PRIV_LEAST_SHARE = 16,        /* a plan may take one part of so many, at the least */
    SPIPE_PRIV_HUGE_PAGE = 2 << 20,     /* bytes: 512 times fewer pages to touch and to pin */
    SPIPE_PRIV_SMALL_REST = 8,          /* a ring ends in pages of 4 KiB if it needs less than one
                                           part of so many of its last huge page */
    SPIPE_PRIV_LONG_RUN = 32,   /* chunks of each staging thread until it calls CUDA itself */
    SPIPE_PRIV_SPLIT_PARTS = 4, /* chunks of a split source for each thread, at the least */
    SPIPE_PRIV_ARENA_SLACK =
        128 << 10 /* bytes beyond the plan's, for the alignment of other plans */
};

#define SPIPE_PRIV_THREAD_COST 0.004 /* of staged_s that each staging thread adds to it */
#define SPIPE_PRIV_LESS_KERNEL                                                                     \
    0.2                               /* of a run: the candidates are listed again if it leaves the
                                         kernels so much less than runs before */
#define SPIPE_PRIV_ASSUMED_KERNEL 0.5 /* kernels' time, as a share of the copies', until measured */
#define SPIPE_PRIV_CACHE_SHARE    0.125 /* of the cache, that a ring written by sources may take */
#define SPIPE_PRIV_HELD_RING      0.25  /* rings up to this share of the cache stay in it ... */
#define SPIPE_PRIV_MISSED_RING    0.75  /* ... and from this share on none of them does */
#define SPIPE_PRIV_UNCACHED_FILL                                                                   \
    0.50                             /* of the fill rate, where sources write a ring that the cache
                                        does not hold (tests/bench/files.cu --sweep) */
#define SPIPE_PRIV_ALONE_SHARE  0.05 /* of its time alone, added to a way's time beside others */
#define SPIPE_PRIV_MEMORY_SHARE 0.25 /* of the device's memory that slots may take */
#define SPIPE_PRIV_WORTH_TRYING 1.20 /* candidates predicted within this of the best are tried */
#define SPIPE_PRIV_SIDE_BY_SIDE                                                                    \
    0.90                             /* of reading and writing one after another: parts of zero-copy
                                        runs whose first kernels read while last ones write */
#define SPIPE_PRIV_ONE_STREAM    0.2 /* of setup_s, where one stream and no events are made */
#define SPIPE_PRIV_ONE_BATCH     0.5 /* of setup_s, saved where no batch waits for another */
#define SPIPE_PRIV_CHANCE        0.95 /* a challenger's time / that of the predicted best */
#define SPIPE_PRIV_STAGED_CHANCE 0.90 /* the same of staged runs, whose times vary more */
#define SPIPE_PRIV_CLEARLY_WORSE 1.08 /* and no longer after two runs that took so much longer */
#define SPIPE_PRIV_OTHER_CHUNK   1.90 /* two candidates differ by so much in chunk size ... */
#define SPIPE_PRIV_OTHER_THREADS 1.25 /* ... or by so much in threads */
#define SPIPE_PRIV_DOES_NOT_FIT  1e9  /* seconds added to a way whose slots exceed the memory */

/* The member number i, counted from link_in. */
SPIPE_PRIV_RARE double *spipe_priv_cost_figure(spipe_costs_t *costs, size_t i) {
    return &costs->link_in + i;
}

SPIPE_PRIV_RARE int spipe_priv_same_letter(char a, char b) {
    const char lower_a = (char)(a >= 'A' && a <= 'Z' ? a | 32 : a);
    const char lower_b = (char)(b >= 'A' && b <= 'Z' ? b | 32 : b);
    return lower_a == lower_b;
}

/* Whether a name contains a word, in capital or small letters. */
SPIPE_PRIV_RARE int spipe_priv_names(const char *name, const char *word) {
    for (; *name; ++name) {
        size_t i = 0;
        while (word[i] && spipe_priv_same_letter(name[i], word[i])) ++i;
        if (!word[i]) return 1;
    }
    return 0;
}

/* The row for a device's name; the last row is for names that no other row has. */
SPIPE_PRIV_RARE spipe_costs_t spipe_priv_costs_for(const char *device) {
    static const double scale[] = {
#define SPIPE_PRIV_COST_SCALE(member, unit, si) si,
        SPIPE_PRIV_COST_FIGURES(SPIPE_PRIV_COST_SCALE)
#undef SPIPE_PRIV_COST_SCALE
    };
    spipe_costs_t costs;
    size_t num, k = 0, i;
    const spipe_priv_cost_row_t *rows = spipe_priv_cost_rows(&num);
    while (k + 1 < num && !spipe_priv_names(device, rows[k].name)) ++k;
    memset(&costs, 0, sizeof costs);
    (void)snprintf(costs.name, sizeof costs.name, "%s", rows[k].name);
    for (i = 0; i < SPIPE_PRIV_NUM_COSTS; ++i) {
        *spipe_priv_cost_figure(&costs, i) = rows[k].figures[i] * scale[i];
    }
    return costs;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_device_name(char *name, size_t bytes, int *device,
                                                   int *driver) {
    struct cudaDeviceProp properties;
    if (*device < 0) SPIPE_TRY(cudaGetDevice(device));
    SPIPE_TRY(cudaGetDeviceProperties(&properties, *device));
    SPIPE_TRY(cudaDriverGetVersion(driver));
    (void)snprintf(name, bytes, "%s", properties.name);
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_costs_get(spipe_costs_t *costs, int device) {
    char name[256];
    int driver = 0;
    if (!costs) return cudaErrorInvalidValue;
    memset(costs, 0, sizeof *costs);
    SPIPE_TRY(spipe_priv_device_name(name, sizeof name, &device, &driver));
    *costs = spipe_priv_costs_for(name);
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_costs_print(const spipe_costs_t *costs, FILE *to) {
    char name[sizeof costs->name];
    if (!costs || !to) return cudaErrorInvalidValue;
    (void)snprintf(name, sizeof name, "%.31s", costs->name);
    spipe_priv_make_printable(name);
    fprintf(to, "costs of %s\n", name);
#define SPIPE_PRIV_COST_PRINT(member, unit, si)                                                    \
    fprintf(to, "  %-16s %10.3f %s\n", #member, costs->member / (si), unit);
    SPIPE_PRIV_COST_FIGURES(SPIPE_PRIV_COST_PRINT)
#undef SPIPE_PRIV_COST_PRINT
    return ferror(to) ? cudaErrorOperatingSystem : cudaSuccess;
}

/* The name of the first figure that is not a positive number, or NULL. */
SPIPE_PRIV_RARE const char *spipe_priv_bad_cost(const spipe_costs_t *costs) {
    static const char *const names[] = {
#define SPIPE_PRIV_COST_NAME(member, unit, si) #member,
        SPIPE_PRIV_COST_FIGURES(SPIPE_PRIV_COST_NAME)
#undef SPIPE_PRIV_COST_NAME
    };
    spipe_costs_t copy;
    size_t i;
    if (!costs) return "costs";
    copy = *costs;
    for (i = 0; i < SPIPE_PRIV_NUM_COSTS; ++i) {
        const double figure = *spipe_priv_cost_figure(&copy, i);
        if (!(figure > 0.0) || figure > 1e15) return names[i];
    }
    return NULL;
}

/* What a line begins with: whom its figures are for. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_costs_stamp(char *stamp, size_t bytes, int device) {
    char name[256];
    int driver = 0;
    SPIPE_TRY(spipe_priv_device_name(name, sizeof name, &device, &driver));
    (void)snprintf(stamp, bytes, "streampipe costs %d.%d.%d; %s; driver %d; %zu CPUs;",
                   SPIPE_VERSION_MAJOR, SPIPE_VERSION_MINOR, SPIPE_VERSION_PATCH, name, driver,
                   spipe_priv_num_cpus());
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_costs_write(const spipe_costs_t *costs, int device, char *line,
                                        size_t bytes) {
    spipe_costs_t copy;
    char stamp[400];
    size_t used, i;
    if (!line || bytes == 0) return cudaErrorInvalidValue;
    *line = 0;
    if (spipe_priv_bad_cost(costs) || strchr(costs->name, ';')) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_costs_stamp(stamp, sizeof stamp, device));
    copy = *costs;
    used = (size_t)snprintf(line, bytes, "%s %.31s;", stamp, costs->name);
    for (i = 0; i < SPIPE_PRIV_NUM_COSTS && used < bytes; ++i) {
        used +=
            (size_t)snprintf(line + used, bytes - used, " %.6g", *spipe_priv_cost_figure(&copy, i));
    }
    if (used < bytes) return cudaSuccess;
    *line = 0;
    return cudaErrorInvalidValue;
}

/* The figures after the stamp and the name; 0 = that is not what stands there. */
SPIPE_PRIV_RARE int spipe_priv_costs_parse(spipe_costs_t *costs, const char *text) {
    const char *end = strchr(text, ';');
    size_t i;
    memset(costs, 0, sizeof *costs);
    while (*text == ' ') ++text;
    if (!end || (size_t)(end - text) >= sizeof costs->name) return 0;
    memcpy(costs->name, text, (size_t)(end - text));
    for (text = end + 1, i = 0; i < SPIPE_PRIV_NUM_COSTS; ++i) {
        char *after = NULL;
        const double figure = strtod(text, &after);
        if (after == text || !(figure > 0.0) || figure > 1e15) return 0;
        *spipe_priv_cost_figure(costs, i) = figure;
        text = after;
    }
    return 1;
}

SPIPE_API cudaError_t spipe_costs_read(spipe_costs_t *costs, int device, const char *line) {
    static const char first[] = "streampipe costs ";
    spipe_costs_t read;
    char stamp[400], row[sizeof read.name];
    if (!costs) return cudaErrorInvalidValue;
    memset(costs, 0, sizeof *costs);
    if (!line || strncmp(line, first, sizeof first - 1) != 0) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_costs_stamp(stamp, sizeof stamp, device));
    if (strncmp(line, stamp, strlen(stamp)) == 0) {
        if (!spipe_priv_costs_parse(&read, line + strlen(stamp))) return cudaErrorInvalidValue;
        *costs = read;
        return cudaSuccess;
    }
    SPIPE_TRY(spipe_costs_get(costs, device));
    memcpy(row, costs->name, sizeof row);
    (void)snprintf(costs->name, sizeof costs->name, "%.8s (stale line ignored)", row);
    return cudaErrorNotSupported;
}

/* ---- src/private/check.h ---- */
/* ---- 9 describe: the check -----------------------------------------------------------------
   All that can be wrong in a description, as sentences. Allocates nothing. */
/* One rule each; the first broken rule is the one that is reported. */
#define SPIPE_PRIV_REFUSE_IF(broken, ...)                                                          \
    do {                                                                                           \
        if (broken) return spipe_priv_refuse(f, cudaErrorInvalidValue, __VA_ARGS__);               \
    } while (0)

SPIPE_PRIV_RARE cudaError_t spipe_priv_check_split(const spipe_desc_t *d, int i,
                                                   spipe_failure_t *f) {
    const spipe_buffer_desc_t *b = &d->buffers[i];
    if (!b->filler) return cudaSuccess;
    SPIPE_PRIV_REFUSE_IF(!b->work, "buffer %d (split source): its work is NULL", i);
    SPIPE_PRIV_REFUSE_IF(b->ticket_bytes == 0,
                         "buffer %d (split source): a ticket is 0 bytes; give its size", i);
    SPIPE_PRIV_REFUSE_IF(b->halo_before || b->halo_after,
                         "buffer %d (split source): it cannot have a halo", i);
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_check_buffer(const spipe_desc_t *d, int i,
                                                    spipe_failure_t *f) {
    const spipe_buffer_desc_t *b = &d->buffers[i];
    const char *kind = spipe_priv_kind_name(b->kind);
    const int array = spipe_priv_is_array(b), resident = b->kind == SPIPE_RESIDENT;
    const int halo = b->halo_before || b->halo_after, hosted = spipe_priv_is_hosted(b);
    const size_t chunk = d->chunk == SPIPE_AUTO ? 1 : d->chunk;
    SPIPE_PRIV_REFUSE_IF(b->kind < SPIPE_INPUT || b->kind > SPIPE_SINK_AT,
                         "buffer %d: its kind is not one of spipe_kind_t", i);
    SPIPE_PRIV_REFUSE_IF(b->elem_bytes == 0, "buffer %d (%s): %s is 0 bytes; give its size", i,
                         kind, resident ? "the buffer" : "an element");
    SPIPE_PRIV_REFUSE_IF(array && spipe_priv_endless(d),
                         "buffer %d (%s): an array needs a length; "
                         "set count to the number of its elements",
                         i, kind);
    SPIPE_PRIV_REFUSE_IF(array && d->count > SIZE_MAX / b->elem_bytes,
                         "buffer %d (%s): %zu "
                         "elements of %zu bytes are more than SIZE_MAX bytes",
                         i, kind, d->count, b->elem_bytes);
    SPIPE_PRIV_REFUSE_IF(hosted &&
                             (!b->caller || !(b->source || b->sink || b->source_at || b->sink_at)),
                         "buffer %d (%s): its function is NULL", i, kind);
    SPIPE_TRY(spipe_priv_check_split(d, i, f));
    SPIPE_PRIV_REFUSE_IF(resident && b->resident == SPIPE_ZERO && b->host,
                         "buffer %d (resident): SPIPE_ZERO alone does not use its host array; "
                         "pass NULL, or SPIPE_UPLOAD or SPIPE_DOWNLOAD",
                         i);
    SPIPE_PRIV_REFUSE_IF(
        resident && (b->resident & ~(SPIPE_UPLOAD | SPIPE_DOWNLOAD)) != 0,
        "buffer %d (resident): how is not SPIPE_ZERO, SPIPE_UPLOAD, SPIPE_DOWNLOAD or both", i);
    SPIPE_PRIV_REFUSE_IF(halo && (b->kind == SPIPE_INOUT || !spipe_priv_goes_in(b)),
                         "buffer %d (%s): only an input or a source can have a halo", i, kind);
    SPIPE_PRIV_REFUSE_IF(halo && b->on_device,
                         "buffer %d (%s): read into device memory it cannot have a halo", i, kind);
    SPIPE_PRIV_REFUSE_IF(halo && b->kind == SPIPE_SOURCE_AT && spipe_priv_endless(d),
                         "buffer %d (%s): with a halo it needs a length; set count", i, kind);
    SPIPE_PRIV_REFUSE_IF(b->edge != SPIPE_EDGE_CLAMP && b->edge != SPIPE_EDGE_ZERO,
                         "buffer %d (%s): edge is not SPIPE_EDGE_CLAMP or SPIPE_EDGE_ZERO", i,
                         kind);
    SPIPE_PRIV_REFUSE_IF(
        d->chunk != SPIPE_AUTO && (b->halo_before > chunk || b->halo_after > chunk),
        "buffer %d (%s): its halo of %zu before and %zu after is larger than a chunk of %zu "
        "elements; make chunk larger",
        i, kind, b->halo_before, b->halo_after, chunk);
    SPIPE_PRIV_REFUSE_IF(
        d->count > 0 && (b->halo_before > d->count || b->halo_after > d->count),
        "buffer %d (%s): its halo of %zu before and %zu after is larger than the whole of %zu "
        "elements; make it smaller",
        i, kind, b->halo_before, b->halo_after, d->count);
    SPIPE_PRIV_REFUSE_IF(spipe_priv_window_bytes(b, resident ? 1 : chunk) == 0,
                         "buffer %d (%s): %s is too many bytes; make it smaller", i, kind,
                         resident ? "the buffer" : "a chunk with its halo");
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_check_stage(const spipe_desc_t *d, int i,
                                                   spipe_failure_t *f) {
    const spipe_stage_desc_t *s = &d->stages[i];
    int j;
    SPIPE_PRIV_REFUSE_IF(!s->name || !s->name[0], "stage %d: it has no name; give it one", i);
    SPIPE_PRIV_REFUSE_IF(!s->fn, "stage '%s': its function is NULL", s->name);
    SPIPE_PRIV_REFUSE_IF(spipe_priv_find_stage(d, s->name) != i,
                         "stage '%s': two stages have this name; rename one", s->name);
    for (j = 0; j < s->num_after; ++j) {
        SPIPE_PRIV_REFUSE_IF(spipe_priv_find_stage(d, s->after[j]) < 0,
                             "stage '%s': waits for '%s', and there is no stage of that name",
                             s->name, s->after[j]);
    }
    SPIPE_PRIV_REFUSE_IF(s->host && (s->reads | s->writes) == 0,
                         "host stage '%s': it reads no buffer and writes none; say which with "
                         "SPIPE_BIT(buffer)",
                         s->name);
    for (j = 0; j < SPIPE_MAX_BUFFERS; ++j) {
        if (((s->reads | s->writes) & SPIPE_BIT(j)) == 0) continue;
        SPIPE_PRIV_REFUSE_IF(j >= d->num_buffers || d->buffers[j].kind == SPIPE_RESIDENT,
                             "host stage '%s': buffer %d is %s; name buffers that travel in chunks",
                             s->name, j, j >= d->num_buffers ? "not there" : "resident");
    }
    return cudaSuccess;
}

/* Whether a host array lacks that the run would need. */
SPIPE_API int spipe_priv_lacks_array(const spipe_desc_t *d, int i) {
    const spipe_buffer_desc_t *b = &d->buffers[i];
    if (b->host) return 0;
    if (b->kind == SPIPE_RESIDENT) return b->resident != SPIPE_ZERO;
    return spipe_priv_is_array(b) && d->count > 0;
}

SPIPE_API int spipe_priv_is_written(const spipe_buffer_desc_t *b) {
    if (b->kind == SPIPE_RESIDENT) return (b->resident & SPIPE_DOWNLOAD) != 0;
    return b->kind == SPIPE_OUTPUT || b->kind == SPIPE_INOUT;
}

/* Whether buffers j and i, whose arrays overlap, change each other's data. Resident arrays are read
   before the first chunk and written after the last. Of others, chunk k of one array may be read
   and then written, if it lies in the same place: same array, same size, no halo. */
SPIPE_PRIV_RARE int spipe_priv_overlap_harms(const spipe_buffer_desc_t *a,
                                             const spipe_buffer_desc_t *b) {
    const int written = spipe_priv_is_written(a) + spipe_priv_is_written(b);
    const int halo = a->halo_before || a->halo_after || b->halo_before || b->halo_after;
    if (written != 1) return written == 2;
    if (a->kind == SPIPE_RESIDENT || b->kind == SPIPE_RESIDENT) return 0;
    return halo || a->host != b->host || a->elem_bytes != b->elem_bytes;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_check_overlaps(const spipe_desc_t *d, int i,
                                                      spipe_failure_t *f) {
    const spipe_buffer_desc_t *b = &d->buffers[i];
    const size_t bytes = spipe_priv_array_bytes(d, i);
    const uintptr_t at = (uintptr_t)b->host;
    int j;
    for (j = 0; j < i && bytes > 0; ++j) {
        const spipe_buffer_desc_t *a = &d->buffers[j];
        const uintptr_t other = (uintptr_t)a->host;
        const size_t other_bytes = spipe_priv_array_bytes(d, j);
        if (at >= other ? at - other >= other_bytes : other - at >= bytes) continue;
        SPIPE_PRIV_REFUSE_IF(spipe_priv_overlap_harms(a, b),
                             "buffers %d (%s) and %d (%s): their arrays overlap, and one is "
                             "written; give each its own, or make one in/out buffer",
                             j, spipe_priv_kind_name(a->kind), i, spipe_priv_kind_name(b->kind));
    }
    return cudaSuccess;
}

/* What only a run needs to hold: of a kept pipeline arrays may be missing, or overlap while they
   change places. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_arrays(const spipe_desc_t *d, spipe_failure_t *f) {
    int i;
    for (i = 0; i < d->num_buffers; ++i) {
        SPIPE_PRIV_REFUSE_IF(spipe_priv_lacks_array(d, i),
                             "buffer %d (%s): the host array is NULL; pass the array%s", i,
                             spipe_priv_kind_name(d->buffers[i].kind),
                             d->buffers[i].kind == SPIPE_RESIDENT ? ", or SPIPE_ZERO" : "");
        SPIPE_TRY(spipe_priv_check_overlaps(d, i, f));
    }
    return cudaSuccess;
}

/* All that does not depend on where arrays are. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_desc(const spipe_desc_t *d, spipe_failure_t *f) {
    int order[SPIPE_MAX_STAGES], i, sources = 0;
    if (f) spipe_priv_failure_clear(f);
    SPIPE_PRIV_REFUSE_IF(!d, "the description is NULL");
    SPIPE_PRIV_REFUSE_IF(!spipe_priv_begun(d),
                         "the description was not begun, or by another version; "
                         "begin with spipe_desc_default()");
    SPIPE_PRIV_REFUSE_IF(d->problem, "%s", d->problem);
    SPIPE_PRIV_REFUSE_IF(
        d->num_buffers < 0 || d->num_buffers > SPIPE_MAX_BUFFERS || d->num_stages < 0 ||
            d->num_stages > SPIPE_MAX_STAGES,
        "the description is damaged: %d buffers and %d stages; begin with spipe_desc_default()",
        d->num_buffers, d->num_stages);
    SPIPE_PRIV_REFUSE_IF(d->chunk == 0, "chunk is 0 elements; leave it SPIPE_AUTO and the library "
                                        "chooses, or give 1 or more");
    SPIPE_PRIV_REFUSE_IF(d->depth != SPIPE_AUTO && (d->depth == 0 || d->depth > SPIPE_MAX_DEPTH),
                         "depth is %zu slots; leave it SPIPE_AUTO, or give 1 to %d", d->depth,
                         SPIPE_MAX_DEPTH);
    SPIPE_PRIV_REFUSE_IF(d->threads != SPIPE_AUTO && d->threads > SPIPE_MAX_THREADS,
                         "threads is %zu; leave it SPIPE_AUTO, or give 0 to %d", d->threads,
                         SPIPE_MAX_THREADS);
    SPIPE_PRIV_REFUSE_IF((int)d->schedule < 0 || d->schedule > SPIPE_ZERO_COPY ||
                             (int)d->staging < 0 || d->staging > SPIPE_STAGING_DIRECT ||
                             (int)d->priority < 0 || d->priority > SPIPE_PRIORITY_HIGH,
                         "schedule, staging or priority is none of its enumeration's values");
    SPIPE_PRIV_REFUSE_IF(
        d->timeline && !spipe_priv_watches(d->timeline),
        "the timeline is not ready to be filled; begin with spipe_timeline_default()");
    SPIPE_PRIV_REFUSE_IF(d->resources && !spipe_priv_lends(d->resources),
                         "the resources are not made, were destroyed, or are another process's");
    SPIPE_PRIV_REFUSE_IF(d->costs && spipe_priv_bad_cost(d->costs),
                         "costs: %s is not a positive number; begin with spipe_costs_get or "
                         "spipe_costs_measure",
                         spipe_priv_bad_cost(d->costs));
    for (i = 0; i < d->num_buffers; ++i) {
        sources += d->buffers[i].kind == SPIPE_SOURCE;
        SPIPE_TRY(spipe_priv_check_buffer(d, i, f));
    }
    SPIPE_PRIV_REFUSE_IF(d->count == SPIPE_AUTO && sources == 0,
                         "count was not set, and there is "
                         "no source to end it; set it to the number of elements");
    for (i = 0; i < d->num_stages; ++i) SPIPE_TRY(spipe_priv_check_stage(d, i, f));
    SPIPE_PRIV_REFUSE_IF(spipe_priv_sort_stages(d, order) < d->num_stages,
                         "some stages wait for "
                         "each other in a circle; look at the names given to spipe_stage_after");
    return cudaSuccess;
}

/* A kept pipeline may have no stages: then its chunks are taken with spipe_next. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_stages(const spipe_desc_t *d, spipe_failure_t *f) {
    SPIPE_PRIV_REFUSE_IF(d->num_stages == 0, "there is no stage; add one with spipe_add_stage, or "
                                             "take the chunks with spipe_next");
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_desc_check(const spipe_desc_t *d, spipe_failure_t *failure) {
    SPIPE_TRY(spipe_priv_check_desc(d, failure));
    SPIPE_TRY(spipe_priv_check_stages(d, failure));
    return spipe_priv_check_arrays(d, failure);
}

/* ---- src/private/work.h ---- */
/* ---- 11 plan: the work ---------------------------------------------------------------------
   What the planner has to know of a request, as numbers: taken from the description, the device's
   facts and the kinds of memory. Reads only; nothing here depends on a choice. */

/* Sizes in the law's numbers and back. Sizes are below 2^63, so one instruction converts them. */
SPIPE_PRIV_OFTEN double spipe_priv_real(size_t size) { return (double)(int64_t)size; }

SPIPE_PRIV_OFTEN size_t spipe_priv_whole(double number) { return (size_t)(int64_t)number; }

/* What kind of memory a host array is; of other buffers nothing is known. */
typedef struct spipe_priv_array {
    int type;              /* SPIPE_PRIV_PAGEABLE, _PINNED or _DEVICE */
    int registered;        /* 1 = this run pinned it, and will unpin it */
    unsigned char *mapped; /* where kernels find it, or NULL */
} spipe_priv_array_t;

/* Promises and wishes that rule ways out. */
enum {
    SPIPE_PRIV_MAY_ZERO_COPY = 1, /* all stages are elementwise, on memory that can be mapped */
    SPIPE_PRIV_MAY_BATCH = 2,     /* nobody looks at single chunks, and memory is not limited */
    SPIPE_PRIV_MAY_TRY = 4,       /* runs may divide the whole differently */
    SPIPE_PRIV_MAY_REPLAY = 8,    /* all stages are replayable and there is no host work */
    SPIPE_PRIV_MAY_REGISTER = 16, /* arrays may be pinned in place */
    SPIPE_PRIV_PAGE_TABLES = 32,  /* the GPU reads pageable memory at full speed */
    SPIPE_PRIV_KEPT = 64,         /* set up once for many runs */
    SPIPE_PRIV_SEQUENTIAL = 128,  /* a source or sink sees chunks in order */
    SPIPE_PRIV_FEW_PINS = 256,    /* the system refused to pin a ring */
    SPIPE_PRIV_NO_PINS = 512,     /* and less of it, so nothing is pinned */
    SPIPE_PRIV_POSITIONED = 1024, /* a source or sink is called by several threads at once */
    SPIPE_PRIV_SPLIT = 2048,      /* and so is the work of a split source, however long it takes */
    SPIPE_PRIV_LENT = 4096,       /* memory, streams and threads are lent, so set-up is nothing */
    SPIPE_PRIV_PAID = SPIPE_PRIV_KEPT | SPIPE_PRIV_LENT
};

struct spipe_priv_work;
struct spipe_priv_way;

/* What a run may use of the machine that it is on. */
typedef struct spipe_priv_machine {
    size_t cpus;
    double cache;  /* bytes of the last-level cache; 0 = not known */
    double memory; /* bytes of device memory that slots may take */
    size_t runs;   /* that share the machine, with this one; 0 = not known */
    /* What a way takes beside them, or NULL; in beside.h. */
    double (*beside)(const struct spipe_priv_work *w, const spipe_costs_t *c,
                     const struct spipe_priv_way *y, double alone);
} spipe_priv_machine_t;

/* Bytes are of one element unless said otherwise. */
typedef struct spipe_priv_work {
    size_t count;                     /* elements; of an unknown total an assumed number */
    unsigned flags;                   /* SPIPE_PRIV_MAY_... */
    double in, out;                   /* copied each way */
    double pageable_in, pageable_out; /* of these, from and to pageable arrays */
    double hosted_in, hosted_out;     /* of these, from sources and to sinks: always staged */
    double held;                      /* device memory in a slot */
    double temps;                     /* of these, for temporaries */
    double halo;                      /* bytes copied in for each chunk beside its own elements */
    size_t least_chunk;               /* elements of the widest halo */
    int copies[2];                    /* buffers copied in and out: calls for each chunk */
    int num_stages, num_segments;     /* segments: 1 + rounds of host stages */
    size_t host_calls;                /* of host stages that may be under way at once */
    int zero_copy_passes; /* times that zero-copy stages cross the link with the output */
    double kernel_s;      /* of all kernels for the whole */
    spipe_priv_machine_t machine;
} spipe_priv_work_t;

SPIPE_PRIV_RARE unsigned spipe_priv_stage_flags(const spipe_desc_t *d,
                                                const spipe_device_t *facts) {
    unsigned flags = SPIPE_PRIV_MAY_ZERO_COPY | SPIPE_PRIV_MAY_REPLAY | SPIPE_PRIV_MAY_BATCH;
    int i, chains = 0;
    if (d->num_stages == 0) return 0; /* the caller takes chunks and works on them by itself */
    if (!facts->map_host_memory || d->chunk != SPIPE_AUTO)
        flags &= ~(unsigned)SPIPE_PRIV_MAY_ZERO_COPY;
    for (i = 0; i < d->num_stages; ++i) {
        const spipe_stage_desc_t *s = &d->stages[i];
        const unsigned after = spipe_priv_stage_deps(d, i);
        if (!s->elementwise || s->host) flags &= ~(unsigned)SPIPE_PRIV_MAY_ZERO_COPY;
        if (!s->replayable || s->host) flags &= ~(unsigned)SPIPE_PRIV_MAY_REPLAY;
        chains += i > 0 && after != SPIPE_BIT(i - 1);
        if (s->ordered || s->host || chains) flags &= ~(unsigned)SPIPE_PRIV_MAY_BATCH;
    }
    return flags;
}

/* Flags that sizes and callbacks decide. */
SPIPE_PRIV_RARE unsigned spipe_priv_size_flags(const spipe_desc_t *d, unsigned flags) {
    const int watched = d->checked || d->progress != NULL;
    const int shared = d->hooks && d->hooks->next_batch;
    if (watched || shared || d->depth != SPIPE_AUTO || spipe_priv_endless(d)) {
        flags &= ~(unsigned)SPIPE_PRIV_MAY_BATCH;
    }
    if (watched || d->count == 0) flags &= ~(unsigned)SPIPE_PRIV_MAY_REPLAY;
    if (d->checked) flags &= ~(unsigned)SPIPE_PRIV_MAY_ZERO_COPY; /* inputs are looked at */
    if (!watched && d->num_stages > 0 && d->count > 0 && !spipe_priv_endless(d)) {
        flags |= SPIPE_PRIV_MAY_TRY;
    }
    return flags;
}

SPIPE_PRIV_RARE void spipe_priv_work_halo(spipe_priv_work_t *w, const spipe_buffer_desc_t *b) {
    if (b->halo_before == 0 && b->halo_after == 0) return;
    w->halo += spipe_priv_real(b->halo_before + b->halo_after) * spipe_priv_real(b->elem_bytes);
    if (w->least_chunk < b->halo_before) w->least_chunk = b->halo_before;
    if (w->least_chunk < b->halo_after) w->least_chunk = b->halo_after;
    w->flags &= ~(unsigned)SPIPE_PRIV_MAY_ZERO_COPY;
}

SPIPE_PRIV_RARE void spipe_priv_work_buffer(spipe_priv_work_t *w, const spipe_buffer_desc_t *b,
                                            const spipe_priv_array_t *a) {
    const double bytes = spipe_priv_real(b->elem_bytes);
    const int hosted = spipe_priv_is_hosted(b), sequential = spipe_priv_is_sequential(b);
    const int pageable = spipe_priv_is_array(b) && b->host && a->type == SPIPE_PRIV_PAGEABLE;
    if (b->kind == SPIPE_RESIDENT) {
        w->flags &= ~(unsigned)(SPIPE_PRIV_MAY_TRY | SPIPE_PRIV_MAY_REPLAY);
        return;
    }
    w->held += bytes;
    if (b->kind == SPIPE_TEMP) {
        w->zero_copy_passes = 0;
        w->temps += bytes;
    }
    if (spipe_priv_goes_in(b)) {
        w->in += bytes;
        ++w->copies[0];
        if (pageable) w->pageable_in += bytes;
        if (hosted) w->hosted_in += bytes;
    }
    if (spipe_priv_goes_out(b)) {
        w->out += bytes;
        ++w->copies[1];
        if (pageable) w->pageable_out += bytes;
        if (hosted) w->hosted_out += bytes;
    }
    if (sequential) w->flags |= SPIPE_PRIV_SEQUENTIAL;
    if (hosted && !sequential) w->flags |= SPIPE_PRIV_POSITIONED;
    if (b->filler) w->flags |= SPIPE_PRIV_SPLIT;
    if (hosted || pageable) w->flags &= ~(unsigned)(SPIPE_PRIV_MAY_BATCH | SPIPE_PRIV_MAY_REPLAY);
    if (sequential) w->flags &= ~(unsigned)SPIPE_PRIV_MAY_TRY;
    if (b->kind == SPIPE_TEMP) return;
    if (hosted || pageable || !a->mapped) w->flags &= ~(unsigned)SPIPE_PRIV_MAY_ZERO_COPY;
}

/* Rounds of host stages: a chunk leaves the GPU once for each, so its steps come in segments. */
SPIPE_PRIV_RARE int spipe_priv_num_segments(const spipe_desc_t *d) {
    int order[SPIPE_MAX_STAGES] = {0}, round[SPIPE_MAX_STAGES] = {0};
    int n, j, most = 0;
    (void)spipe_priv_sort_stages(d, order);
    for (n = 0; n < d->num_stages; ++n) {
        const unsigned after = spipe_priv_stage_deps(d, order[n]);
        for (j = 0; j < d->num_stages; ++j) {
            if ((after & SPIPE_BIT(j)) && round[order[n]] < round[j]) round[order[n]] = round[j];
        }
        round[order[n]] += d->stages[order[n]].host != 0;
        if (most < round[order[n]]) most = round[order[n]];
    }
    return most + 1;
}

/* Calls of host stages that may be under way at once: one of each that is ordered. */
SPIPE_PRIV_RARE size_t spipe_priv_host_calls(const spipe_desc_t *d) {
    size_t calls = 0;
    int i;
    for (i = 0; i < d->num_stages; ++i) {
        if (d->stages[i].host && !d->stages[i].ordered) return SPIPE_MAX_THREADS;
        calls += d->stages[i].host != 0;
    }
    return calls;
}

/* Bytes of an element in the busier direction; without copies those in a slot. */
SPIPE_PRIV_RARE double spipe_priv_busier(const spipe_priv_work_t *w) {
    const double most = w->in > w->out ? w->in : w->out;
    if (most > 0.0) return most;
    return w->held > 0.0 ? w->held : 1.0;
}

SPIPE_PRIV_RARE spipe_priv_work_t spipe_priv_work_of(const spipe_desc_t *d,
                                                     const spipe_device_t *facts,
                                                     const spipe_priv_array_t *arrays, int kept,
                                                     size_t cpus) {
    spipe_priv_work_t w;
    int i;
    memset(&w, 0, sizeof w);
    w.flags = spipe_priv_size_flags(d, spipe_priv_stage_flags(d, facts));
    w.flags |= SPIPE_PRIV_MAY_REGISTER;
    if (facts->host_page_tables) w.flags |= SPIPE_PRIV_PAGE_TABLES;
    if (kept) w.flags |= SPIPE_PRIV_KEPT;
    if (d->resources) w.flags |= SPIPE_PRIV_LENT;
    w.num_stages = d->num_stages;
    w.num_segments = spipe_priv_num_segments(d);
    w.host_calls = spipe_priv_host_calls(d);
    w.zero_copy_passes = d->num_stages;
    w.machine.cpus = cpus;
    w.machine.memory = SPIPE_PRIV_MEMORY_SHARE * spipe_priv_real(facts->memory_bytes);
    for (i = 0; i < d->num_buffers; ++i) {
        spipe_priv_work_halo(&w, &d->buffers[i]);
        spipe_priv_work_buffer(&w, &d->buffers[i], &arrays[i]);
    }
    w.count = d->count;
    if (spipe_priv_endless(d)) {
        w.count = spipe_priv_whole((double)SPIPE_PRIV_ASSUMED_BYTES / spipe_priv_busier(&w)) + 1;
    }
    return w;
}

/* ---- src/private/predict.h ---- */
/* ---- 11 plan: the law ----------------------------------------------------------------------
   How long one way of doing the work takes: arithmetic on costs and work; no choice is made. */

/* A ring of slots is a chain of engines: host threads that fill, the copy engine in, the kernels,
   the copy engine out, host threads that drain, and the calling thread that issues. So a run takes

       set-up + the time of one batch through all engines + (n - 1) x the busiest engine's time

   and no more than depth batches may be under way at once: each of those beyond depth takes at
   least the time of one batch through all engines / depth. */

/* One way of doing the work: what the planner varies, what the law says, what runs measured. */
typedef struct spipe_priv_way {
    spipe_schedule_t schedule;
    spipe_staging_t staging;
    size_t chunk, batch, depth; /* elements, chunks, slots */
    size_t fill_threads, drain_threads;
    int caller_helps;
    int pageable_slots; /* nothing is pinned; CUDA's copies of the slots block */
    int replay;
    int tries; /* runs measured */
    double predicted_s;
    double best_s; /* the least time measured; 0 = not run yet */
} spipe_priv_way_t;

/* Seconds of each engine for one batch. */
typedef struct spipe_priv_engines {
    double in, out; /* copy engines, both busy */
    double alone;   /* both together, one after the other: the first copy in, the last out */
    double kernel;
    double launches;    /* what those of all chunks of a batch add to a chain of engines */
    double fill, drain; /* one thread's time for a batch */
    double staging;     /* all threads, with the host memory's rate; 0 = nothing is staged */
    double issue;       /* the calling thread */
    double wakes;       /* of a batch's threads, where they were parked */
    double saved;       /* of the ends, where the caller helps: nobody has to be woken */
    double busiest;
    double slots; /* what a batch takes that waits for a slot, where that is longer */
} spipe_priv_engines_t;

SPIPE_PRIV_OFTEN double spipe_priv_max(double a, double b) { return a > b ? a : b; }

SPIPE_PRIV_OFTEN double spipe_priv_min(double a, double b) { return a < b ? a : b; }

/* How many batches a way makes of the whole. */
SPIPE_PRIV_OFTEN double spipe_priv_num_batches(const spipe_priv_work_t *w,
                                               const spipe_priv_way_t *y) {
    const size_t batch = y->chunk * y->batch;
    const size_t full = w->count == 0 ? 0 : (w->count - 1) / batch;
    return spipe_priv_real(full) + 1.0;
}

SPIPE_PRIV_OFTEN int spipe_priv_is_staged(const spipe_priv_work_t *w, const spipe_priv_way_t *y) {
    const double pageable = w->pageable_in + w->pageable_out;
    return w->hosted_in + w->hosted_out > 0.0 ||
           (pageable > 0.0 && y->staging == SPIPE_STAGING_COPY);
}

/* Bytes of an element that host threads copy into slots, and out of them. */
SPIPE_PRIV_OFTEN double spipe_priv_filled(const spipe_priv_work_t *w, const spipe_priv_way_t *y) {
    return w->hosted_in + (y->staging == SPIPE_STAGING_COPY ? w->pageable_in : 0.0);
}

SPIPE_PRIV_OFTEN double spipe_priv_drained(const spipe_priv_work_t *w, const spipe_priv_way_t *y) {
    return w->hosted_out + (y->staging == SPIPE_STAGING_COPY ? w->pageable_out : 0.0);
}

/* Bytes of pinned memory that the slots take. */
SPIPE_PRIV_OFTEN double spipe_priv_ring_bytes(const spipe_priv_work_t *w,
                                              const spipe_priv_way_t *y) {
    const double elements = spipe_priv_real(y->chunk) * spipe_priv_real(y->batch);
    return spipe_priv_real(y->depth) * elements *
           (spipe_priv_filled(w, y) + spipe_priv_drained(w, y));
}

/* The copy engines: both directions are slower while both are busy. */
SPIPE_PRIV_RARE void spipe_priv_copy_times(const spipe_costs_t *c, const spipe_priv_work_t *w,
                                           double in, double out, spipe_priv_engines_t *e) {
    const double both = spipe_priv_min(in, out) / c->link_both;
    const double shared = spipe_priv_min(in, out);
    e->in = in > 0.0 ? both + (in - shared) / c->link_in + c->copy_s * w->copies[0] : 0.0;
    e->out = out > 0.0 ? both + (out - shared) / c->link_out + c->copy_s * w->copies[1] : 0.0;
    e->alone = in / c->link_in + out / c->link_out;
    e->alone += c->copy_s * (w->copies[0] + w->copies[1]);
}

/* Seconds for which a staged byte takes the host memory. What the cache does not hold of the rings
   is written to memory and read again, and that is more of it the larger they are. */
SPIPE_PRIV_RARE double spipe_priv_memory_s(const spipe_costs_t *c, const spipe_priv_work_t *w,
                                           double rings) {
    const double span = SPIPE_PRIV_MISSED_RING - SPIPE_PRIV_HELD_RING;
    double missed = (rings / w->machine.cache - SPIPE_PRIV_HELD_RING) / span; /* of no cache: all */
    missed = spipe_priv_min(spipe_priv_max(missed, 0.0), 1.0);
    return (1.0 - missed) / c->memory + missed / c->memory_uncached;
}

/* Staging: threads share the host memory's rate; a caller that helps is half a thread each way. */
SPIPE_PRIV_RARE void spipe_priv_staging_times(const spipe_costs_t *c, const spipe_priv_work_t *w,
                                              const spipe_priv_way_t *y, double elements,
                                              spipe_priv_engines_t *e) {
    const double in = elements * spipe_priv_filled(w, y);
    const double out = elements * spipe_priv_drained(w, y);
    const double help = y->caller_helps ? 0.5 : 0.0, n = spipe_priv_num_batches(w, y);
    const double ring = spipe_priv_ring_bytes(w, y);
    const int written = ring <= SPIPE_PRIV_CACHE_SHARE * w->machine.cache;
    const double threads = spipe_priv_real(y->fill_threads + y->drain_threads);
    const double wake = threads > 0.0 ? c->wake_s : 0.0;
    const double slower = written ? 0.0 : 1.0 / SPIPE_PRIV_UNCACHED_FILL - 1.0;
    double fill, drain;
    e->fill = in > 0.0 ? (in + slower * elements * w->hosted_in) / c->fill + wake : 0.0;
    e->drain = out > 0.0 ? out / c->drain + wake : 0.0;
    e->staging = (in + out) * spipe_priv_memory_s(c, w, ring);
    if (!(threads > 0.0)) {
        e->issue += e->fill + e->drain;
        return;
    }
    e->wakes = wake * ((in > 0.0) + (out > 0.0));
    if (y->caller_helps) e->saved = e->wakes;
    e->issue += c->staged_s * (1.0 + SPIPE_PRIV_THREAD_COST * threads);
    fill = spipe_priv_min(spipe_priv_real(y->fill_threads) + help, n);
    drain = spipe_priv_min(spipe_priv_real(y->drain_threads) + help, n);
    if (in > 0.0) e->staging = spipe_priv_max(e->staging, e->fill / fill);
    if (out > 0.0) e->staging = spipe_priv_max(e->staging, e->drain / drain);
}

/* One batch's time through all engines, with so many seconds of its copies. */
SPIPE_PRIV_RARE double spipe_priv_latency(const spipe_costs_t *c, const spipe_priv_engines_t *e,
                                          double copies) {
    const double links = c->latency_s * ((e->in > 0.0) + (e->out > 0.0));
    return e->fill + copies + e->kernel + e->launches + e->drain + links - e->saved;
}

SPIPE_PRIV_RARE spipe_priv_engines_t spipe_priv_engines_of(const spipe_costs_t *c,
                                                           const spipe_priv_work_t *w,
                                                           const spipe_priv_way_t *y) {
    const double n = spipe_priv_num_batches(w, y);
    const double elements = spipe_priv_real(w->count) / n;
    const double calls = (double)(w->copies[0] + w->copies[1] + w->num_stages * 2);
    spipe_priv_engines_t e;
    double limit; /* one batch through all engines, in a long run: threads are awake */
    memset(&e, 0, sizeof e);
    spipe_priv_copy_times(c, w, elements * w->in + w->halo, elements * w->out, &e);
    e.launches = c->launch_s * w->num_stages * spipe_priv_real(y->batch);
    e.kernel = w->kernel_s / n + 0.5 * e.launches; /* two kernel streams */
    e.issue = c->call_s *
              (y->replay ? 1.0 : calls + spipe_priv_real((y->batch - 1) * (size_t)w->num_stages));
    if (spipe_priv_is_staged(w, y)) spipe_priv_staging_times(c, w, y, elements, &e);
    e.busiest = spipe_priv_max(spipe_priv_max(e.in, e.out), spipe_priv_max(e.kernel, e.issue));
    e.busiest = spipe_priv_max(e.busiest, e.staging);
    limit = spipe_priv_latency(c, &e, e.in + e.out) + e.saved - e.wakes;
    if (y->caller_helps) limit += e.fill;   /* nothing is issued while the caller copies a batch */
    if (w->flags & SPIPE_PRIV_POSITIONED) { /* reads end in another order than chunks are copied */
        limit += c->wake_s * spipe_priv_real(y->fill_threads + y->drain_threads);
    }
    e.slots = spipe_priv_max(e.busiest, limit / spipe_priv_real(y->depth));
    if (y->schedule == SPIPE_SERIAL) e.slots = spipe_priv_latency(c, &e, e.alone);
    return e;
}

/* A one-shot run's set-up for a ring; a kept pipeline has paid for it. */
SPIPE_PRIV_RARE double spipe_priv_setup(const spipe_costs_t *c, const spipe_priv_work_t *w,
                                        const spipe_priv_way_t *y) {
    const double ring = spipe_priv_ring_bytes(w, y);
    const double arrays = spipe_priv_real(w->count) * (w->pageable_in + w->pageable_out);
    const double held = w->held * spipe_priv_real(y->depth) * spipe_priv_real(y->chunk * y->batch);
    double s = c->setup_s + c->malloc_s + held / c->malloc_bytes;
    if (w->flags & SPIPE_PRIV_PAID) return 0.0;
    if (y->chunk * y->batch >= w->count) s -= SPIPE_PRIV_ONE_BATCH * c->setup_s;
    if (ring > 0.0 && !y->pageable_slots) s += 2.0 * c->pin_s + ring / c->pin;
    s += c->start_s * spipe_priv_real(y->fill_threads + y->drain_threads);
    if (y->staging == SPIPE_STAGING_REGISTER) {
        s += 2.0 * c->pin_s * ((w->pageable_in > 0.0) + (w->pageable_out > 0.0));
        s += arrays / c->pin_arrays;
    }
    return s;
}

/* CUDA's own copies of pageable memory: they block, so nothing overlaps. */
SPIPE_PRIV_RARE double spipe_priv_predict_direct(const spipe_costs_t *c, const spipe_priv_work_t *w,
                                                 const spipe_priv_way_t *y) {
    const double n = spipe_priv_num_batches(w, y), count = spipe_priv_real(w->count);
    const int slots = y->pageable_slots;
    const double in = w->pageable_in > 0.0 || slots ? c->pageable_in : c->link_in;
    const double out = w->pageable_out > 0.0 || slots ? c->pageable_out : c->link_out;
    const double staged = count * w->hosted_in / c->fill + count * w->hosted_out / c->drain;
    const double held = w->held * spipe_priv_real(y->depth) * spipe_priv_real(y->chunk);
    double once = SPIPE_PRIV_ONE_STREAM * c->setup_s + c->malloc_s + held / c->malloc_bytes;
    if (w->flags & SPIPE_PRIV_PAID) once = 0.0;
    return once + staged + count * w->in / in + count * w->out / out + w->kernel_s +
           n * (c->pageable_s * (w->copies[0] + w->copies[1]) + c->launch_s * w->num_stages);
}

/* Kernels that cross the link themselves. With temporaries the first stage reads and the last one
   writes; without them every stage reads and writes the output across the link. */
SPIPE_PRIV_RARE double spipe_priv_predict_zero_copy(const spipe_costs_t *c,
                                                    const spipe_priv_work_t *w,
                                                    const spipe_priv_way_t *y) {
    const double n = spipe_priv_num_batches(w, y), part = spipe_priv_real(w->count) / n;
    const double in = part * w->in / c->zero_copy, out = part * w->out / c->zero_copy;
    const double kernel = w->kernel_s / n, launches = c->launch_s * w->num_stages;
    double one, busiest, setup = n > 1.0 ? c->setup_s : SPIPE_PRIV_ONE_STREAM * c->setup_s;
    if (w->flags & SPIPE_PRIV_PAID) setup = 0.0;
    if (w->zero_copy_passes > 0) {
        one = spipe_priv_max(in, out) + (w->zero_copy_passes - 1) * out;
        one = spipe_priv_max(one, kernel);
        busiest = one;
    } else {
        one = in + kernel + out;
        busiest = spipe_priv_max(SPIPE_PRIV_SIDE_BY_SIDE * (in + out), kernel);
    }
    return setup + launches + one + (n - 1.0) * (busiest + c->launch_s);
}

/* Seconds that a way takes, as far as the costs are right. */
SPIPE_PRIV_OFTEN double spipe_priv_predict(const spipe_costs_t *c, const spipe_priv_work_t *w,
                                           const spipe_priv_way_t *y) {
    const int direct = y->staging == SPIPE_STAGING_DIRECT && !(w->flags & SPIPE_PRIV_PAGE_TABLES);
    const double n = spipe_priv_num_batches(w, y);
    const double at_once = spipe_priv_min(n, spipe_priv_real(y->depth));
    spipe_priv_engines_t e;
    if (w->count == 0) return 0.0;
    if (y->schedule == SPIPE_ZERO_COPY && !spipe_priv_is_staged(w, y)) {
        return spipe_priv_predict_zero_copy(c, w, y);
    }
    if (direct || y->pageable_slots) return spipe_priv_predict_direct(c, w, y);
    e = spipe_priv_engines_of(c, w, y);
    return spipe_priv_setup(c, w, y) + spipe_priv_latency(c, &e, e.alone) +
           (at_once - 1.0) * e.busiest + (n - at_once) * e.slots;
}

/* The kernels' time that makes the law agree with a measured run; 0 where copies explain it. */
SPIPE_PRIV_OFTEN double spipe_priv_solve_kernel(const spipe_costs_t *c, const spipe_priv_work_t *w,
                                                const spipe_priv_way_t *y, double measured_s) {
    spipe_priv_work_t trial = *w;
    double low = 0.0, high = measured_s;
    int i;
    for (i = 0; i < SPIPE_PRIV_BISECTIONS; ++i) {
        trial.kernel_s = 0.5 * (low + high);
        if (spipe_priv_predict(c, &trial, y) > measured_s)
            high = trial.kernel_s;
        else
            low = trial.kernel_s;
    }
    return low;
}

/* The same of the rates at which a thread fills and drains slots: costs with which the law agrees
   with a measured run of work whose kernels take no longer than its copies. */
SPIPE_PRIV_OFTEN spipe_costs_t spipe_priv_solve_host(const spipe_costs_t *c,
                                                     const spipe_priv_work_t *w,
                                                     const spipe_priv_way_t *y, double measured_s) {
    spipe_costs_t trial = *c;
    double low = 0.0, high = 1.0; /* of the rates in the table */
    int i;
    for (i = 0; i < SPIPE_PRIV_BISECTIONS; ++i) {
        const double share = 0.5 * (low + high);
        trial.fill = share * c->fill;
        trial.drain = share * c->drain;
        if (spipe_priv_predict(&trial, w, y) > measured_s)
            low = share;
        else
            high = share;
    }
    return trial;
}

/* ---- src/private/slots.h ---- */
/* ---- 11 plan: chunks, threads, slots --------------------------------------------------------
   How large a chunk of some bytes is, how many threads there may be, and how many slots they need.
   Pure arithmetic; compares nothing. */
/* Elements in a chunk that has about this many bytes in the busier direction: a multiple of 32, and
   never fewer than the halo. */
SPIPE_PRIV_RARE size_t spipe_priv_chunk_of(const spipe_priv_work_t *w, double bytes) {
    const size_t align = SPIPE_PRIV_ALIGN_ELEMS;
    size_t chunk = spipe_priv_whole(bytes / spipe_priv_busier(w));
    if (chunk > SPIPE_PRIV_ALIGN_FROM * align) chunk -= chunk % align;
    if (chunk < w->least_chunk) chunk = w->least_chunk;
    return chunk > 0 ? chunk : 1;
}

/* Elements in a chunk when the whole is divided into this many parts, rounded up to a multiple. */
SPIPE_PRIV_RARE size_t spipe_priv_part_of(const spipe_priv_work_t *w, size_t parts) {
    const size_t align = SPIPE_PRIV_ALIGN_ELEMS;
    size_t chunk = w->count == 0 ? 1 : (w->count - 1) / parts + 1;
    if (parts > 1 && chunk > SPIPE_PRIV_ALIGN_FROM * align) {
        chunk += (align - chunk % align) % align;
    }
    return chunk < w->least_chunk ? w->least_chunk : chunk;
}

/* Threads for host stages: as many as the user wants, else as many as there are CPUs beside the
   staging threads, or half of the CPUs, as staging waits where host stages take longest. */
SPIPE_PRIV_RARE size_t spipe_priv_host_threads(const spipe_desc_t *d, const spipe_priv_work_t *w,
                                               const spipe_priv_way_t *y) {
    const size_t staging = y->fill_threads + y->drain_threads;
    const size_t cpus = w->machine.cpus, half = (cpus + 1) / 2;
    size_t most = cpus > staging + half ? cpus - staging : half;
    if (d->threads != SPIPE_AUTO) most = d->threads;
    return most < w->host_calls ? most : w->host_calls;
}

/* Slots that keep threads busy whose work takes nobody knows how long: one for each that runs host
   stages or does the work of a split source, beside those that are copied. */
SPIPE_PRIV_RARE size_t spipe_priv_least_depth(const spipe_desc_t *d, const spipe_priv_work_t *w,
                                              const spipe_priv_way_t *y) {
    const size_t segments = (size_t)SPIPE_PRIV_COPY_SLOTS * (size_t)w->num_segments;
    size_t busy = spipe_priv_host_threads(d, w, y);
    if ((w->flags & SPIPE_PRIV_SPLIT) && busy < y->fill_threads) busy = y->fill_threads;
    busy += SPIPE_PRIV_COPY_SLOTS;
    return busy > segments ? busy : segments;
}

/* Slots, in even number because chunks alternate between two kernel streams: one for each staging
   thread and two that are being copied; and two for each thread of the direction that has more, as
   a chunk that is filled waits for those before it. */
SPIPE_PRIV_RARE size_t spipe_priv_depth_for(const spipe_desc_t *d, const spipe_priv_work_t *w,
                                            const spipe_priv_way_t *y) {
    const size_t least = spipe_priv_least_depth(d, w, y);
    const size_t busier = y->fill_threads > y->drain_threads ? y->fill_threads : y->drain_threads;
    size_t depth = y->fill_threads + y->drain_threads + 2;
    if (d->schedule == SPIPE_SERIAL) return 1;
    if (d->depth != SPIPE_AUTO) return d->depth;
    if (depth < 2 * busier) depth = 2 * busier;
    depth += depth % 2;
    if (depth < least || !spipe_priv_is_staged(w, y)) depth = least;
    return depth < SPIPE_MAX_DEPTH ? depth : SPIPE_MAX_DEPTH;
}

/* Shares threads between filling and draining by the time that each takes. */
SPIPE_PRIV_RARE void spipe_priv_share_threads(const spipe_costs_t *c, const spipe_priv_work_t *w,
                                              spipe_priv_way_t *y, size_t threads) {
    const double elements = spipe_priv_real(y->chunk) * spipe_priv_real(y->batch), wake = c->wake_s;
    const double in = elements * spipe_priv_filled(w, y);
    const double out = elements * spipe_priv_drained(w, y);
    const double fill = in > 0.0 ? in / c->fill + wake : 0.0;
    const double drain = out > 0.0 ? out / c->drain + wake : 0.0;
    const double share = fill / (fill + drain);
    y->fill_threads = 0;
    if (fill > 0.0) { /* the nearest whole number */
        y->fill_threads = (spipe_priv_whole(2.0 * spipe_priv_real(threads) * share) + 1) / 2;
    }
    if (y->fill_threads == 0 && fill > 0.0) y->fill_threads = 1;
    if (y->fill_threads > SPIPE_MAX_THREADS) y->fill_threads = SPIPE_MAX_THREADS;
    y->drain_threads = threads > y->fill_threads ? threads - y->fill_threads : 0;
    if (y->drain_threads == 0) y->drain_threads = 1;
    if (!(drain > 0.0)) y->drain_threads = 0;
    if (y->drain_threads > SPIPE_MAX_THREADS) y->drain_threads = SPIPE_MAX_THREADS;
}

/* The most staging threads: seven of eight CPUs, or three quarters when data moves one way only.
   The others are left to the calling thread and the stages. Positioned sources may have all CPUs
   but one: the table of costs does not know how fast they are. */
SPIPE_PRIV_RARE size_t spipe_priv_most_threads(const spipe_priv_work_t *w,
                                               const spipe_priv_way_t *y) {
    const int both = spipe_priv_filled(w, y) > 0.0 && spipe_priv_drained(w, y) > 0.0;
    const size_t cpus = w->machine.cpus;
    size_t most;
    if (cpus < SPIPE_PRIV_FEW_CPUS) return both ? 2 : 1;
    if (!both && (w->flags & SPIPE_PRIV_POSITIONED)) return cpus - 1;
    if (!both) return cpus - cpus / SPIPE_PRIV_FEW_CPUS;
    most = cpus - cpus / SPIPE_PRIV_SPARE_CPUS;
    return most - most % 2;
}

/* Elements in a chunk at most: other runs wait for a chunk's copy; a split source's work takes
   nobody knows how long, so each thread gets a few chunks of it. */
SPIPE_PRIV_RARE size_t spipe_priv_most_chunk(const spipe_desc_t *d, const spipe_priv_work_t *w,
                                             const spipe_priv_way_t *y) {
    size_t threads = spipe_priv_most_threads(w, y);
    if (!(w->flags & SPIPE_PRIV_SPLIT)) {
        return w->machine.beside ? spipe_priv_chunk_of(w, SPIPE_PRIV_BESIDE_CHUNK) : SIZE_MAX;
    }
    if (d->threads != SPIPE_AUTO) threads = d->threads > 0 ? d->threads : 1;
    return spipe_priv_part_of(w, threads * SPIPE_PRIV_SPLIT_PARTS);
}

/* ---- src/private/rings.h ---- */
/* ---- 11 plan: rings of slots ----------------------------------------------------------------
   Compares rings by the law: sizes of chunks, numbers of threads and of slots; keeps the best few
   ways. Pure: no state, no allocation, no CUDA call. */
typedef struct spipe_priv_planner {
    const spipe_costs_t *costs;
    const spipe_priv_work_t *work;
    const spipe_desc_t *desc; /* what the user fixed */
    spipe_priv_way_t *best;   /* the best ways so far, best first */
    size_t num, capacity;
    size_t device_bytes; /* memory there is, 0 = take what is needed */
    size_t pinned_bytes;
    int num_compared;
    double to_beat; /* seconds of the best way with another staging; 0 = there is none */
    int fine;       /* 1 = near the best so far every number of threads and of slots is compared */
} spipe_priv_planner_t;

/* Whether two numbers of threads are so close that one run of them is enough. */
SPIPE_API int spipe_priv_close(size_t a, size_t b) {
    const double x = spipe_priv_real(a), y = spipe_priv_real(b);
    return spipe_priv_max(x, y) <= SPIPE_PRIV_OTHER_THREADS * spipe_priv_min(x, y);
}

/* Whether two ways are so alike that only one is worth running. */
SPIPE_PRIV_RARE int spipe_priv_alike(const spipe_priv_way_t *a, const spipe_priv_way_t *b) {
    const double x = spipe_priv_real(a->chunk * a->batch), y = spipe_priv_real(b->chunk * b->batch);
    const double ratio = spipe_priv_max(x, y) / spipe_priv_min(x, y);
    if (a->schedule != b->schedule || a->staging != b->staging || a->replay != b->replay) return 0;
    if (a->pageable_slots != b->pageable_slots) return 0;
    if (a->replay) return 1; /* one graph is enough */
    return ratio < SPIPE_PRIV_OTHER_CHUNK && a->caller_helps == b->caller_helps &&
           spipe_priv_close(a->fill_threads, b->fill_threads) &&
           spipe_priv_close(a->drain_threads, b->drain_threads);
}

/* Whether the slots of a way fit into the memory there is. */
SPIPE_PRIV_RARE int spipe_priv_fits(const spipe_priv_planner_t *p, const spipe_priv_way_t *y) {
    const double slots = spipe_priv_real(y->depth) * spipe_priv_real(y->chunk * y->batch);
    const int in_place = y->schedule == SPIPE_ZERO_COPY && !spipe_priv_is_staged(p->work, y);
    const double halos = in_place ? 0.0 : spipe_priv_real(y->depth) * p->work->halo;
    const double device = slots * (in_place ? p->work->temps : p->work->held) + halos;
    if (device > p->work->machine.memory) return 0;
    if (p->device_bytes > 0 && device > spipe_priv_real(p->device_bytes)) return 0;
    if (p->pinned_bytes == 0 || y->pageable_slots) return 1;
    return spipe_priv_ring_bytes(p->work, y) <= spipe_priv_real(p->pinned_bytes);
}

/* Puts a way among the best, in order; of two that are alike the better one stays. Returns what it
   is predicted to take. */
SPIPE_PRIV_RARE double spipe_priv_consider(spipe_priv_planner_t *p, spipe_priv_way_t *y) {
    size_t k = 0;
    y->predicted_s = spipe_priv_predict(p->costs, p->work, y);
    if (p->work->machine.beside) {
        y->predicted_s = p->work->machine.beside(p->work, p->costs, y, y->predicted_s);
    }
    if (!spipe_priv_fits(p, y)) y->predicted_s += SPIPE_PRIV_DOES_NOT_FIT;
    ++p->num_compared;
    while (k < p->num && !spipe_priv_alike(&p->best[k], y)) ++k;
    if (k == p->capacity) --k;
    if (k < p->num && p->best[k].predicted_s <= y->predicted_s) return y->predicted_s;
    if (k == p->num) ++p->num;
    for (; k > 0 && p->best[k - 1].predicted_s > y->predicted_s; --k) p->best[k] = p->best[k - 1];
    p->best[k] = *y;
    return y->predicted_s;
}

/* Whether fewer slots than the threads can use may be better: a one-shot run pays for pinning
   each. */
SPIPE_PRIV_RARE int spipe_priv_may_have_fewer(const spipe_priv_planner_t *p,
                                              const spipe_priv_way_t *y) {
    const spipe_priv_work_t *w = p->work;
    if (p->desc->depth != SPIPE_AUTO || (w->flags & SPIPE_PRIV_SPLIT)) return 0;
    if (spipe_priv_host_threads(p->desc, w, y) > 1) return 0;
    return !(w->flags & SPIPE_PRIV_PAID) || (w->flags & SPIPE_PRIV_FEW_PINS);
}

/* Completes a way whose chunk and threads are known, and compares it. */
SPIPE_PRIV_RARE double spipe_priv_consider_ring(spipe_priv_planner_t *p, spipe_priv_way_t *y) {
    const spipe_priv_work_t *w = p->work;
    double took;
    int fewer;
    y->depth = spipe_priv_depth_for(p->desc, w, y);
    if ((w->flags & SPIPE_PRIV_PAID) != SPIPE_PRIV_KEPT && p->desc->count != SPIPE_AUTO) {
        const double n = spipe_priv_num_batches(w, y);
        if (spipe_priv_real(y->depth) > n)
            y->depth = spipe_priv_whole(n); /* no slot for a batch that does not come */
    }
    took = spipe_priv_consider(p, y);
    if (!p->fine || !spipe_priv_may_have_fewer(p, y)) return took;
    for (fewer = 0; fewer < 2 && y->depth > SPIPE_PRIV_COPY_SLOTS; ++fewer) {
        y->depth -= y->depth / SPIPE_PRIV_COPY_SLOTS;
        y->depth -= y->depth % 2;
        took = spipe_priv_min(took, spipe_priv_consider(p, y));
    }
    return took;
}

/* The fewest threads to compare: two each way fewer than the best ring so far has. Another size of
   chunk hardly ever needs fewer than that. */
SPIPE_PRIV_RARE size_t spipe_priv_threads_from(const spipe_priv_planner_t *p, size_t ways) {
    const size_t best = p->num > 0 ? p->best[0].fill_threads + p->best[0].drain_threads : 0;
    const size_t from = best - best % ways;
    return from > 2 * ways ? from - 2 * ways : 0;
}

/* So many threads for a staged way whose chunk is known, shared between both directions. */
SPIPE_PRIV_RARE spipe_priv_way_t spipe_priv_with_threads(const spipe_priv_planner_t *p,
                                                         spipe_priv_way_t y, size_t threads) {
    const size_t asked = p->desc->threads;
    y.fill_threads = y.drain_threads = 0;
    if (threads > 0) spipe_priv_share_threads(p->costs, p->work, &y, threads);
    if (asked != SPIPE_AUTO && y.fill_threads > 0) y.fill_threads = asked;
    if (asked != SPIPE_AUTO && y.drain_threads > 0) y.drain_threads = asked;
    y.caller_helps = threads == 0;
    return y;
}

/* Whether a ring that takes so many seconds is so much slower than the best way with another
   staging that comparing more rings like it is a waste of time. */
SPIPE_PRIV_RARE int spipe_priv_is_beaten(const spipe_priv_planner_t *p, double seconds) {
    return p->to_beat > 0.0 && seconds > SPIPE_PRIV_WORTH_TRYING * p->to_beat;
}

/* Compares numbers of threads for a staged way whose chunk is known. Both directions get one more
   as long as that gains something; near the best ring every number is compared, up to two more each
   way than it has. A one-shot run compares fewer slots and a caller that helps for the best number
   only, because planning is part of its time; a kept pipeline does so for each. */
SPIPE_PRIV_RARE void spipe_priv_consider_staged(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const spipe_priv_work_t *w = p->work;
    const int both = spipe_priv_filled(w, &y) > 0.0 && spipe_priv_drained(w, &y) > 0.0;
    const size_t ways = both ? 2 : 1;
    const int may_help = w->num_segments == 1 && !(w->flags & SPIPE_PRIV_SEQUENTIAL);
    const int all_help = p->fine || p->capacity > 1;
    const size_t reach = 2 * ways;
    size_t most = spipe_priv_most_threads(w, &y), threads = spipe_priv_threads_from(p, ways);
    size_t best = 0;
    double took, least = SPIPE_PRIV_DOES_NOT_FIT;
    int more = 0;
    if (threads == 0 && !may_help) threads = ways;
    if (p->fine && most > threads + 2 * reach) most = threads + 2 * reach;
    if (w->flags & SPIPE_PRIV_SPLIT)
        threads = most = spipe_priv_most_threads(w, &y); /* nobody knows what their work takes */
    else if (w->pageable_in + w->pageable_out <= 0.0 && !(w->flags & SPIPE_PRIV_POSITIONED))
        threads = most = ways; /* sources and sinks see chunks in order */
    if (p->desc->threads != SPIPE_AUTO) threads = most = ways * p->desc->threads;
    for (; threads <= most && (p->fine || more < 2); threads += p->fine ? 1 : ways) {
        y = spipe_priv_with_threads(p, y, threads);
        took = spipe_priv_consider_ring(p, &y);
        if (all_help && threads > 0 && may_help) {
            y.caller_helps = 1;
            took = spipe_priv_min(took, spipe_priv_consider_ring(p, &y));
        }
        more = took < least ? 0 : more + 1;
        if (took < least) best = threads;
        least = spipe_priv_min(least, took);
    }
    if (all_help || spipe_priv_is_beaten(p, least)) return;
    p->fine = 1;
    y = spipe_priv_with_threads(p, y, best);
    spipe_priv_consider_ring(p, &y);
    if (best == 0 && most > 0) y = spipe_priv_with_threads(p, y, ways);
    y.caller_helps = 1;
    if (may_help) spipe_priv_consider_ring(p, &y);
    p->fine = 0;
}

/* Chunks that the user made far smaller than a copy is worth are copied several at a time. */
SPIPE_PRIV_RARE void spipe_priv_consider_batches(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const spipe_priv_work_t *w = p->work;
    const double chunk = spipe_priv_real(y.chunk) * spipe_priv_busier(w);
    const double most = SPIPE_PRIV_MOST_CHUNK;
    const size_t chunks = w->count == 0 ? 1 : (w->count - 1) / y.chunk + 1;
    y.batch = 1;
    spipe_priv_consider_ring(p, &y);
    if (!(w->flags & SPIPE_PRIV_MAY_BATCH) || y.schedule != SPIPE_ENGINES) return;
    for (y.batch = 2; y.batch < chunks && chunk * spipe_priv_real(y.batch) <= most; y.batch *= 2) {
        spipe_priv_consider_ring(p, &y);
    }
    y.batch = chunks;
    if (chunks > 1 && chunk * spipe_priv_real(chunks) <= most) spipe_priv_consider_ring(p, &y);
}

/* A way whose chunk is known: staged by some threads, or copied as it is, or in batches. */
SPIPE_PRIV_RARE void spipe_priv_consider_chunk(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const size_t most = spipe_priv_most_chunk(p->desc, p->work, &y);
    if (p->desc->chunk == SPIPE_AUTO && y.chunk > most) y.chunk = most;
    if (spipe_priv_is_staged(p->work, &y))
        spipe_priv_consider_staged(p, y);
    else if (p->desc->chunk != SPIPE_AUTO)
        spipe_priv_consider_batches(p, y);
    else
        spipe_priv_consider_ring(p, &y);
    if (!(p->work->flags & SPIPE_PRIV_MAY_REPLAY) || !(p->work->flags & SPIPE_PRIV_KEPT)) return;
    if (spipe_priv_num_batches(p->work, &y) > (double)SPIPE_PRIV_MAX_REPLAY) return;
    if (spipe_priv_num_batches(p->work, &y) < 2.0) return;
    y.replay = 1;
    spipe_priv_consider_ring(p, &y);
}

/* Below the ladder: halves the chunk until some way fits into the memory there is. */
SPIPE_PRIV_RARE void spipe_priv_shrink(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    y.chunk = spipe_priv_chunk_of(p->work, SPIPE_PRIV_LEAST_CHUNK);
    while (p->best[0].predicted_s >= SPIPE_PRIV_DOES_NOT_FIT && y.chunk > 1) {
        y.chunk /= 2;
        if (y.chunk < p->work->least_chunk) return;
        spipe_priv_consider_chunk(p, y);
    }
}

/* A chunk near the best so far, with its threads, and with one more. */
SPIPE_PRIV_RARE void spipe_priv_consider_near(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const size_t threads = y.fill_threads + y.drain_threads + 1;
    if (p->capacity > 1 && spipe_priv_is_staged(p->work, &y)) {
        spipe_priv_consider_staged(p, y);
        return;
    }
    spipe_priv_consider_ring(p, &y);
    if (threads == 1 || p->desc->threads != SPIPE_AUTO) return;
    if (threads > spipe_priv_most_threads(p->work, &y)) return;
    spipe_priv_share_threads(p->costs, p->work, &y, threads);
    spipe_priv_consider_ring(p, &y);
}

/* Near the best so far: every number of threads and of slots, and chunks between the rungs of the
   ladder, which divide the whole evenly; then threads and slots again for the best of those. */
SPIPE_PRIV_RARE void spipe_priv_refine(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const int staged = spipe_priv_is_staged(p->work, &y);
    const size_t least = spipe_priv_chunk_of(p->work, SPIPE_PRIV_LEAST_CHUNK);
    size_t n, parts, chunk;
    if (p->best[0].schedule != y.schedule || p->best[0].staging != y.staging) return;
    if (spipe_priv_is_beaten(p, p->best[0].predicted_s)) return;
    p->fine = 1;
    if (staged) spipe_priv_consider_staged(p, p->best[0]);
    y = p->best[0];
    chunk = y.chunk;
    n = spipe_priv_whole(spipe_priv_num_batches(p->work, &y));
    parts = n - n / SPIPE_PRIV_REFINE_DOWN;
    for (; parts <= n + n / SPIPE_PRIV_REFINE_UP + 1; parts += n / SPIPE_PRIV_REFINE_STEPS + 1) {
        y.chunk = spipe_priv_part_of(p->work, parts);
        if (parts == n || y.chunk > spipe_priv_most_chunk(p->desc, p->work, &y)) continue;
        if (parts > n && y.chunk < least) continue;
        spipe_priv_consider_near(p, y);
    }
    if (staged && p->best[0].chunk != chunk) spipe_priv_consider_staged(p, p->best[0]);
    p->fine = 0;
}

/* The ladder of chunk sizes: the whole, 128 KiB, 192, 256, 384, ... 16 MiB. */
SPIPE_PRIV_RARE void spipe_priv_consider_chunks(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const spipe_priv_work_t *w = p->work;
    const double total = spipe_priv_real(w->count) * spipe_priv_busier(w);
    const int compared = p->num_compared;
    size_t parts, bytes;
    y.chunk = p->desc->chunk;
    if (y.chunk != SPIPE_AUTO) {
        p->fine = 1;
        spipe_priv_consider_chunk(p, y);
        p->fine = 0;
        return;
    }
    for (parts = 1; parts <= SPIPE_MAX_DEPTH; parts *= 2) {
        if (total > spipe_priv_real(parts) * (double)SPIPE_PRIV_MOST_CHUNK) continue;
        y.chunk = spipe_priv_part_of(w, parts);
        spipe_priv_consider_chunk(p, y);
    }
    for (bytes = SPIPE_PRIV_LEAST_CHUNK; bytes <= SPIPE_PRIV_MOST_CHUNK; bytes *= 2) {
        y.chunk = spipe_priv_chunk_of(w, spipe_priv_real(bytes));
        if (y.chunk < w->count) spipe_priv_consider_chunk(p, y);
        y.chunk = spipe_priv_chunk_of(w, 1.5 * spipe_priv_real(bytes));
        if (y.chunk < w->count) spipe_priv_consider_chunk(p, y);
    }
    if (p->num_compared == compared) { /* one element, or its halo, exceeds the ladder */
        y.chunk = spipe_priv_part_of(w, 1);
        spipe_priv_consider_chunk(p, y);
    }
    spipe_priv_refine(p, y);
    spipe_priv_shrink(p, y);
}

/* ---- src/private/plan.h ---- */
/* ---- 11 plan: choosing ---------------------------------------------------------------------
   Lists the ways to do the work: rings with each way to stage, zero-copy, CUDA's own copies. Pure,
   so it runs again whenever the work changes. */

/* Zero-copy: the whole in one launch of each stage, or a few parts side by side. */
SPIPE_PRIV_RARE void spipe_priv_consider_zero_copy(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const int one_shot = !(p->work->flags & SPIPE_PRIV_KEPT);
    size_t parts;
    y.schedule = SPIPE_ZERO_COPY;
    y.depth = SPIPE_PRIV_COPY_SLOTS;
    if (p->desc->depth != SPIPE_AUTO) y.depth = p->desc->depth;
    for (parts = 1; parts <= SPIPE_PRIV_MAX_PARTS; parts *= 2) {
        y.chunk = spipe_priv_part_of(p->work, parts);
        if (one_shot && p->desc->depth == SPIPE_AUTO) y.depth = parts;
        spipe_priv_consider(p, &y);
    }
}

/* The least that any ring can take: its set-up, the smallest batch's way through all engines, and
   the link for the rest. */
SPIPE_PRIV_RARE double spipe_priv_least_time(const spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const spipe_priv_work_t *w = p->work;
    const size_t ladder = spipe_priv_chunk_of(w, SPIPE_PRIV_LEAST_CHUNK);
    spipe_priv_engines_t e;
    double rest;
    y.depth = y.batch = 1;
    y.chunk = spipe_priv_part_of(w, SPIPE_MAX_DEPTH);
    if (y.chunk > ladder) y.chunk = ladder;
    e = spipe_priv_engines_of(p->costs, w, &y);
    rest = spipe_priv_real(w->count) - spipe_priv_real(y.chunk);
    rest *= spipe_priv_max(w->in / p->costs->link_in, w->out / p->costs->link_out);
    if (!(w->flags & SPIPE_PRIV_PAID)) rest -= SPIPE_PRIV_ONE_BATCH * p->costs->setup_s;
    return spipe_priv_setup(p->costs, w, &y) + spipe_priv_latency(p->costs, &e, e.alone) + rest;
}

/* Considers rings with a way to stage unless the least that they can take is longer than the best
   way so far: planning small runs must not take long itself. */
SPIPE_PRIV_RARE void spipe_priv_consider_staging(spipe_priv_planner_t *p,
                                                 const spipe_priv_way_t *y) {
    const spipe_priv_work_t *w = p->work;
    const spipe_priv_way_t best = p->best[0];
    const double least = spipe_priv_least_time(p, *y);
    const size_t num = p->num;
    if (num == p->capacity && !w->machine.beside && least >= best.predicted_s) return;
    if (p->capacity == 1) p->num = 0; /* so that its own best is looked at closely */
    p->to_beat = p->capacity == 1 && num > 0 ? best.predicted_s : 0.0;
    spipe_priv_consider_chunks(p, *y);
    p->to_beat = 0.0;
    if (p->capacity > 1 || num == 0 || p->best[0].predicted_s < best.predicted_s) return;
    p->best[0] = best;
}

/* Little data through sources and sinks: pinning a slot takes longer than CUDA's own copies of a
   pageable one, which the calling thread fills and drains. */
SPIPE_PRIV_RARE void spipe_priv_consider_pageable_slots(spipe_priv_planner_t *p,
                                                        spipe_priv_way_t y) {
    const spipe_priv_work_t *w = p->work;
    const unsigned never = SPIPE_PRIV_PAID | SPIPE_PRIV_SPLIT | SPIPE_PRIV_NO_PINS;
    if (w->hosted_in + w->hosted_out <= 0.0 || w->pageable_in + w->pageable_out > 0.0) return;
    if ((w->flags & never) || w->num_segments > 1 || p->desc->count == SPIPE_AUTO) return;
    if (p->desc->schedule != SPIPE_SCHEDULE_AUTO || p->desc->threads != SPIPE_AUTO) return;
    if (p->desc->depth != SPIPE_AUTO || p->desc->chunk != SPIPE_AUTO) return;
    y.chunk = spipe_priv_part_of(w, 1);
    if (spipe_priv_real(y.chunk) * spipe_priv_busier(w) > (double)SPIPE_PRIV_MOST_CHUNK) return;
    y.depth = 1;
    y.pageable_slots = 1;
    spipe_priv_consider(p, &y);
}

/* What may be done about pageable arrays. */
SPIPE_PRIV_RARE void spipe_priv_consider_stagings(spipe_priv_planner_t *p, spipe_priv_way_t y) {
    const spipe_priv_work_t *w = p->work;
    const int few = (w->flags & SPIPE_PRIV_FEW_PINS) != 0;
    const int shared = p->desc->hooks && p->desc->hooks->next_batch; /* several GPUs at once */
    const int paid = (w->flags & SPIPE_PRIV_PAID) || shared;
    if (w->pageable_in + w->pageable_out <= 0.0) {
        y.staging = SPIPE_STAGING_AUTO;
    } else if (p->desc->staging != SPIPE_STAGING_AUTO) {
        y.staging = p->desc->staging;
    } else if (w->flags & (SPIPE_PRIV_PAGE_TABLES | SPIPE_PRIV_NO_PINS)) {
        y.staging = SPIPE_STAGING_DIRECT;
    } else {
        y.staging = SPIPE_STAGING_COPY;
    }
    if (y.staging == SPIPE_STAGING_REGISTER && !(w->flags & SPIPE_PRIV_MAY_REGISTER)) {
        y.staging = SPIPE_STAGING_COPY; /* the system refused to pin the arrays */
        if (w->flags & SPIPE_PRIV_NO_PINS) y.staging = SPIPE_STAGING_DIRECT;
    }
    if ((paid && !few) || p->desc->staging != SPIPE_STAGING_AUTO ||
        y.staging != SPIPE_STAGING_COPY) {
        if (!paid) spipe_priv_consider_pageable_slots(p, y);
        spipe_priv_consider_staging(p, &y);
        return;
    }
    y.staging = SPIPE_STAGING_DIRECT;
    spipe_priv_consider_chunks(p, y);
    y.staging = SPIPE_STAGING_REGISTER;
    if (w->flags & SPIPE_PRIV_MAY_REGISTER) spipe_priv_consider_staging(p, &y);
    y.staging = SPIPE_STAGING_COPY;
    spipe_priv_consider_staging(p, &y);
}

/* Drops ways that do not fit into the memory there is; where none does, the best one stays, and
   allocating will say how much is missing. */
SPIPE_PRIV_RARE size_t spipe_priv_drop_unfit(spipe_priv_planner_t *p) {
    while (p->num > 1 && p->best[p->num - 1].predicted_s >= SPIPE_PRIV_DOES_NOT_FIT) --p->num;
    if (p->best[0].predicted_s >= SPIPE_PRIV_DOES_NOT_FIT) {
        p->best[0].predicted_s = spipe_priv_predict(p->costs, p->work, &p->best[0]);
    }
    return p->num;
}

/* Lists the best ways, best first; returns how many, 1 at the least. */
SPIPE_PRIV_RARE size_t spipe_priv_list_ways(spipe_priv_planner_t *p) {
    const spipe_schedule_t asked = p->desc->schedule;
    spipe_priv_way_t y;
    memset(&y, 0, sizeof y);
    y.batch = 1;
    y.schedule = asked == SPIPE_SCHEDULE_AUTO ? SPIPE_ENGINES : asked;
    p->num = 0;
    p->num_compared = 0;
    if (asked == SPIPE_ZERO_COPY && p->desc->chunk == SPIPE_AUTO &&
        p->work->pageable_in + p->work->pageable_out <= 0.0 && p->work->halo <= 0.0) {
        spipe_priv_consider_zero_copy(p, y);
        return spipe_priv_drop_unfit(p);
    }
    if (asked == SPIPE_SCHEDULE_AUTO && (p->work->flags & SPIPE_PRIV_MAY_ZERO_COPY)) {
        spipe_priv_consider_zero_copy(p, y);
    }
    spipe_priv_consider_stagings(p, y);
    return spipe_priv_drop_unfit(p);
}

/* ---- src/private/explain.h ---- */
/* ---- 11 plan: saying why -------------------------------------------------------------------
   A way as a spipe_plan_t, with a sentence for each choice. Pure. */
SPIPE_PRIV_RARE const char *spipe_priv_why_chunk(const spipe_desc_t *d, const spipe_priv_work_t *w,
                                                 const spipe_priv_way_t *y) {
    const int whole = y->chunk >= w->count;
    if (d->chunk != SPIPE_AUTO)
        return y->batch > 1 ? "as asked; several are copied at once" : "as asked";
    if (spipe_priv_endless(d)) return "no total is known, so for a long run";
    if (y->schedule == SPIPE_ZERO_COPY && !spipe_priv_is_staged(w, y)) {
        return whole ? "the whole: without copies there is nothing to overlap"
                     : "without copies, a few parts side by side";
    }
    if (whole && y->staging == SPIPE_STAGING_DIRECT)
        return "the whole: CUDA would wait between chunks";
    if (whole && !w->machine.beside)
        return "the whole: for so little, overlapping costs more than it saves";
    return w->machine.beside
               ? "beside other runs, which overlap this one"
               : "balances per-copy overhead (and halos) against pipeline fill and drain";
}

/* NULL: the report knows how many chunks there were, and says what overlapped. */
SPIPE_PRIV_RARE const char *spipe_priv_why_schedule(const spipe_desc_t *d,
                                                    const spipe_priv_way_t *y) {
    if (d->schedule != SPIPE_SCHEDULE_AUTO) return "as asked";
    if (y->schedule == SPIPE_ZERO_COPY) {
        return "elementwise stages on pinned memory: copies would take longer";
    }
    return NULL;
}

SPIPE_PRIV_RARE const char *spipe_priv_why_staging(const spipe_desc_t *d,
                                                   const spipe_priv_work_t *w,
                                                   const spipe_priv_way_t *y) {
    const int few = (w->flags & SPIPE_PRIV_FEW_PINS) != 0;
    const int slots = w->hosted_in + w->hosted_out > 0.0 || w->num_segments > 1;
    int i;
    for (i = 0; i < d->num_buffers && !few; ++i) {
        if (d->buffers[i].how) return d->buffers[i].how;
    }
    if (w->pageable_in + w->pageable_out <= 0.0) {
        if (y->pageable_slots)
            return "slots in pageable memory: too little data for pinning to pay";
        if (!few || !slots) return "no pageable array";
        return w->flags & SPIPE_PRIV_NO_PINS ? "slots in pageable memory: no room to pin a ring"
                                             : "smaller or fewer slots: no room to pin more";
    }
    if (d->staging != SPIPE_STAGING_AUTO) {
        return d->staging == y->staging ? "as asked"
                                        : "the system refused to pin the arrays in place";
    }
    if (w->flags & SPIPE_PRIV_PAGE_TABLES) return "the GPU reads the host's pages at full speed";
    switch (y->staging) {
    case SPIPE_STAGING_DIRECT:
        return few ? "CUDA copies by itself: no room to pin a ring"
                   : "plain cudaMemcpy: too little data for staging to pay";
    case SPIPE_STAGING_REGISTER: return "pinned in place: setting up staging would take longer";
    default:
        return few ? "through pinned slots by host threads: no room to pin more of them"
                   : "through pinned slots by host threads: CUDA's own copies block";
    }
}

SPIPE_PRIV_RARE spipe_plan_t spipe_priv_explain(const spipe_desc_t *d, const spipe_costs_t *costs,
                                                const spipe_priv_work_t *w,
                                                const spipe_priv_way_t *y) {
    spipe_plan_t plan;
    memset(&plan, 0, sizeof plan);
    plan.count = d->count;
    plan.chunk = y->chunk;
    plan.batch = y->batch;
    plan.depth = y->depth;
    plan.schedule = y->schedule;
    plan.staging = y->staging;
    plan.fill_threads = y->fill_threads;
    plan.drain_threads = y->drain_threads;
    plan.host_threads = spipe_priv_host_threads(d, w, y);
    if (plan.host_threads > y->depth) plan.host_threads = y->depth;
    plan.caller_helps = y->caller_helps;
    plan.pageable_slots = y->pageable_slots || (w->flags & SPIPE_PRIV_NO_PINS) != 0;
    plan.replay = y->replay;
    plan.predicted_ms = 1e3 * y->predicted_s;
    plan.kernel_ms = 1e3 * w->kernel_s;
    plan.why_chunk = spipe_priv_why_chunk(d, w, y);
    plan.why_schedule = spipe_priv_why_schedule(d, y);
    plan.why_staging = spipe_priv_why_staging(d, w, y);
    memcpy(plan.costs, costs->name, sizeof costs->name);
    spipe_priv_make_printable(plan.costs);
    return plan;
}

/* Kernels' time while nobody has measured it. */
SPIPE_PRIV_RARE double spipe_priv_assumed_kernel(const spipe_costs_t *c,
                                                 const spipe_priv_work_t *w) {
    return SPIPE_PRIV_ASSUMED_KERNEL * spipe_priv_real(w->count) * spipe_priv_busier(w) /
           c->link_both;
}

SPIPE_API cudaError_t spipe_plan_print(const spipe_plan_t *plan, FILE *to) {
    if (!plan || !to) return cudaErrorInvalidValue;
    fprintf(to, "  plan      chunk %zu (elements), batch %zu (chunks), depth %zu (slots)\n",
            plan->chunk, plan->batch, plan->depth);
    fprintf(to, "  chunk     %s\n", plan->why_chunk ? plan->why_chunk : "");
    fprintf(to, "  schedule  %s%s", spipe_schedule_name(plan->schedule),
            plan->replay ? ", replayed" : "");
    if (plan->why_schedule) fprintf(to, ": %s", plan->why_schedule);
    fprintf(to, "\n");
    fprintf(to, "  staging   %s\n", plan->why_staging ? plan->why_staging : "");
    fprintf(to, "  host      %zu to fill, %zu to drain", plan->fill_threads, plan->drain_threads);
    if (plan->host_threads > 0) fprintf(to, ", %zu for host stages", plan->host_threads);
    fprintf(to, "%s\n", plan->caller_helps ? ", and the calling thread" : "");
    fprintf(to,
            "  time      %.3f ms predicted, kernels %.3f ms %s; costs of %s; %d ways compared\n",
            plan->predicted_ms, plan->kernel_ms, plan->kernel_known ? "at most" : "assumed",
            plan->costs, plan->num_candidates);
    return ferror(to) ? cudaErrorOperatingSystem : cudaSuccess;
}

/* ---- src/private/pipeline_types.h ---- */
/* ---- 13 execute: what a pipeline is ---------------------------------------------------------
   The structs that a pipeline is made of, each owned by one of the files that follow. No code. */

/* request: what the user asked for, and facts about it. Written by create, set_host, set_count. */
typedef struct spipe_priv_request {
    spipe_desc_t desc; /* the user's, with his arrays and count of today; choices stay AUTO */
    spipe_device_t facts;
    spipe_costs_t costs;
    spipe_priv_array_t arrays[SPIPE_MAX_BUFFERS];
    int device;
    int kept;            /* 0 = a one-shot run */
    int may_register;    /* 0 = the system refused to pin an array */
    int sanitized;       /* 1 = compute-sanitizer watches, which does not see copies in one call */
    int apart;           /* 1 = a tool watches memory, by allocations */
    int incomplete;      /* 1 = an array could not be set, so nothing may run */
    int arrays_known;    /* 1 = they are there, and none overlaps another that is written */
    int pin_refusals;    /* rings that the system refused to pin; from 3 on nothing is pinned */
    size_t pin_limit;    /* bytes that a ring may have after that; 0 = as many as it wants */
    size_t cpus;         /* that may be used; 0 = not asked yet */
    size_t cache;        /* bytes of the last-level cache; 0 = not known, or not asked */
    size_t device_limit; /* bytes of device memory that slots may take; 0 = what there is */
    size_t runs;         /* that shared the resources when it was planned, with this one */
    double (*beside)(const spipe_priv_work_t *w, const spipe_costs_t *c, const spipe_priv_way_t *y,
                     double alone); /* what a way takes beside them; NULL = it runs alone */
} spipe_priv_request_t;

/* Where a pipeline gets what it needs that is lent by resources, which it shares with others. Where
   there is no provider, CUDA and the system make it for this pipeline alone. */
typedef struct spipe_priv_provider {
    /* What is known of the device, its costs, and how much a plan may take. */
    cudaError_t (*facts)(spipe_priv_request_t *r, spipe_failure_t *f);
    cudaError_t (*stream)(struct spipe_priv_pipeline *p, cudaStream_t *stream);
    cudaError_t (*event)(struct spipe_priv_pipeline *p, cudaEvent_t *event);
    void (*end_streams)(struct spipe_priv_pipeline *p, cudaError_t *e); /* and events */
    cudaError_t (*arenas)(struct spipe_priv_pipeline *p, size_t device, size_t pinned);
    cudaError_t (*free_arenas)(struct spipe_priv_pipeline *p);
    void *(*start_thread)(struct spipe_resources *r, void *(*fn)(void *arg), void *arg);
    void (*join_thread)(struct spipe_resources *r, void *thread);
    /* Before a run's first operation and after its last one. */
    cudaError_t (*enter)(struct spipe_priv_pipeline *p);
    void (*leave)(struct spipe_priv_pipeline *p);
    /* It is not going to leave, before it is destroyed. */
    void (*stay)(struct spipe_priv_pipeline *p);
    /* Whether a kept pipeline's plan is for a far smaller or larger number of runs. */
    int (*outdated)(struct spipe_priv_pipeline *p);
    /* Lowers the threads wanted of each kind to the run's share. */
    void (*share)(struct spipe_priv_pipeline *p, size_t wanted[]);
    /* Between two batches: follows a share that has changed, lets other runs have their turn. */
    void (*between)(struct spipe_priv_pipeline *p);
} spipe_priv_provider_t;

/* How a buffer's elements get to the device and back. */
typedef enum spipe_priv_path {
    SPIPE_PRIV_PATH_NONE,     /* not at all: temporary, resident */
    SPIPE_PRIV_PATH_COPIED,   /* copied from and to the user's array */
    SPIPE_PRIV_PATH_STAGED,   /* through pinned slots that host threads fill and drain */
    SPIPE_PRIV_PATH_ZERO_COPY /* used where it is */
} spipe_priv_path_t;

/* When a staged slot may be filled again. */
typedef enum spipe_priv_refill {
    SPIPE_PRIV_REFILL_NEVER,      /* nothing is filled */
    SPIPE_PRIV_REFILL_COPIED_IN,  /* when it was copied to the device */
    SPIPE_PRIV_REFILL_CHUNK_DONE, /* when the stages, which read it in place, are done */
    SPIPE_PRIV_REFILL_DRAINED     /* when it was drained, too */
} spipe_priv_refill_t;

/* What one batch goes through. */
typedef enum spipe_priv_step {
    SPIPE_PRIV_STEP_IN,
    SPIPE_PRIV_STEP_OUT,
    SPIPE_PRIV_STEP_STAGE,
    SPIPE_PRIV_STEP_HOST_BEGIN,
    SPIPE_PRIV_STEP_HOST_END
} spipe_priv_step_t;

enum {
    SPIPE_PRIV_MAX_STEPS = 2 * SPIPE_MAX_STAGES + 2,
    SPIPE_PRIV_MAX_PIPELINE_STREAMS = 4 + 2 * SPIPE_MAX_STAGES + SPIPE_MAX_STAGES * SPIPE_MAX_DEPTH,
    SPIPE_PRIV_CHECKPOINTS = 16, /* checkpoint events: the host is so many ahead of the GPU ... */
    SPIPE_PRIV_CHECKPOINT_EVERY = 16, /* ... each standing for so many batches, or for one where
                                         progress is reported */
    SPIPE_PRIV_MAX_EVENTS = 2 + SPIPE_PRIV_CHECKPOINTS + SPIPE_MAX_DEPTH * (2 + SPIPE_MAX_STAGES),
    SPIPE_PRIV_GUARD = 256,    /* bytes */
    SPIPE_PRIV_QUEUE = 512,    /* > tasks that can wait at once: depth x (host stages + 1) */
    SPIPE_PRIV_POSITIONS = 512 /* batches whose position is kept: > CHECKPOINTS x EVERY + depth */
};

/* route: paths of buffers, and the stages as steps on streams. Follows from request and plan. */
typedef struct spipe_priv_route {
    spipe_priv_path_t path[SPIPE_MAX_BUFFERS];
    spipe_priv_refill_t refill;
    int drains;          /* 1 = staged slots are drained by host work */
    int sequential;      /* 1 = there is a source or a sink */
    int host_work;       /* 1 = host threads have work: staging, sources, sinks, host stages */
    int pageable_copies; /* 1 = CUDA copies pageable memory, which blocks */
    int out_blocks;      /* 1 = a batch's last copy out returns when all before it is done */
    int no_copies;       /* 1 = zero-copy: stages work on the user's arrays alone */
    int num_chains;      /* chains of stages; each has a pair of kernel streams */
    int chain[SPIPE_MAX_STAGES];
    unsigned after[SPIPE_MAX_STAGES]; /* stages that stage i waits for, as bits */
    unsigned leaves;                  /* stages that no other waits for, as bits */
    int num_steps, num_segments;

    struct {
        spipe_priv_step_t what;
        int stage; /* -1 for copies */
    } steps[SPIPE_PRIV_MAX_STEPS];

    int segment_start[SPIPE_MAX_STAGES + 2];
    size_t stage_distance; /* batches that a segment is issued behind the one before it */
} spipe_priv_route_t;

/* What a stage says of itself while it runs, for the sentence of the failure. */
typedef struct spipe_priv_note {
    cudaError_t error; /* cudaSuccess = nothing was said */
    int catches;       /* 1 = whoever called the stage catches exceptions */
    void *scratch;     /* a list of memory that takes the place of a buffer that is not there */
    void *thrown;      /* a C++ exception that left the call, or NULL */
    unsigned never_written; /* inputs that the stage may not write into */
    char text[192];
} spipe_priv_note_t;

/* One batch's place in memory, and how far it is. */
typedef struct spipe_priv_slot {
    unsigned char *dev[SPIPE_MAX_BUFFERS];       /* the batch's first element on the device */
    unsigned char *pin_in[SPIPE_MAX_BUFFERS];    /* pinned twin that is filled, or NULL */
    unsigned char *pin_out[SPIPE_MAX_BUFFERS];   /* pinned twin that is drained, or NULL */
    unsigned char *(*mirror)[SPIPE_MAX_BUFFERS]; /* what each host stage sees, or NULL */
    cudaEvent_t in_done, out_done;
    cudaEvent_t stage_done[SPIPE_MAX_STAGES];
    size_t filled, drained, whole; /* batch number + 1, when so */
    size_t host_done[SPIPE_MAX_STAGES];
    spipe_chunk_t view; /* what a stage on the device sees */
} spipe_priv_slot_t;

/* memory: device and pinned arenas, and the slots laid out in them. */
typedef struct spipe_priv_memory {
    unsigned char *device, *pinned;
    unsigned char *pinned_base;  /* what malloc gave, where the library pinned it */
    unsigned char *pinned_alias; /* pinned as kernels see it */
    size_t device_bytes, pinned_bytes;
    size_t refused; /* bytes that could not be pinned when memory was last asked for */
    int pageable;   /* 1 = the pinned arena is not pinned, as nothing can be */
    size_t guard;   /* bytes around each buffer that a checked run watches; 0 = it is not one */
    void **apart;   /* instead of the device arena, where a tool watches memory */
    size_t num_apart, apart_bytes;
    int ring_cached;   /* 1 = the last-level cache holds the pinned slots */
    unsigned in_place; /* buffers that kernels find in the user's array itself */
    unsigned char *resident[SPIPE_MAX_BUFFERS];
    spipe_priv_slot_t *slots;
    size_t num_slots;
    spipe_priv_slot_t single; /* the only slot of a run that needs no other, so no allocation */
} spipe_priv_memory_t;

/* streams: streams and events, all of them to be destroyed but for a borrowed stream 0. */
typedef struct spipe_priv_streams {
    int num, first_owned, num_events;
    size_t num_slot_events; /* slots that have theirs */
    cudaEvent_t sync_event; /* lets streams wait for each other at the ends of a run */
    cudaEvent_t end;        /* of an enqueued run */
    cudaEvent_t checkpoints[SPIPE_PRIV_CHECKPOINTS];
    cudaStream_t streams[SPIPE_PRIV_MAX_PIPELINE_STREAMS]; /* the large arrays last: they are */
    cudaEvent_t events[SPIPE_PRIV_MAX_EVENTS];             /* never cleared */
} spipe_priv_streams_t;

/* One operation of a slot's program: a wait, an action and a record in one stream. */
typedef struct spipe_priv_op {
    cudaStream_t stream;
    cudaEvent_t wait, done; /* or NULL */
    size_t since;           /* waits from this batch on */
    int what;               /* SPIPE_PRIV_OP_... */
    int step, stage;        /* for messages: spipe_priv_step_t, and a stage or -1 */
    int out, num;           /* 1 = from the device; copies to issue as one */
    int counts;             /* of a checked run: SPIPE_PRIV_COUNTS_... */
    unsigned char *to;      /* a copy of count x elem_bytes + more bytes */
    const unsigned char *from;
    size_t to_elem, from_elem; /* bytes that an element moves on: of an array; 0 in a slot */
    size_t elem_bytes, more;
} spipe_priv_op_t;

/* program: the operations of each slot on each of two kernel streams, written down once. */
typedef struct spipe_priv_program {
    spipe_priv_op_t *ops;
    size_t capacity;
    size_t num_rows; /* slots, twice if their number is odd: then slots change streams */
    size_t num_ops;  /* of a row */
    size_t step_start[SPIPE_PRIV_MAX_STEPS + 1];
    int one_stream, watched; /* what it was written for */
    int copies_together;     /* copies of one direction may go in one call, but for a capture */
    int turns;               /* runs beside it have their turn between two batches */
    size_t checkpoint_width; /* events of a checkpoint: where each slot has streams of its own, one
                                for each, as the end of a batch says nothing of other slots */
    size_t checkpoint_mask;  /* batches of a checkpoint - 1, a power of two - 1 */
    size_t checkpoint_from;  /* of these batches, the first that records an event */
} spipe_priv_program_t;

/* Host work for one batch. */
enum {
    SPIPE_PRIV_FILL = 0, /* also the numbers of the queues of each kind */
    SPIPE_PRIV_DRAIN,
    SPIPE_PRIV_HOST,
    SPIPE_PRIV_NUM_QUEUES,
    SPIPE_PRIV_TOUCH = SPIPE_PRIV_NUM_QUEUES /* pinned pages, by the workers of any queue */
};

typedef struct spipe_priv_task {
    int what, stage;
    size_t batch;
    double began; /* only where a timeline watches */
} spipe_priv_task_t;

/* A thread that has work now and then. The one that parked last is woken first, by a condition of
   its own: with one condition for all, whoever signals at times waits for threads signalled
   before. */
typedef struct spipe_priv_worker {
    spipe_priv_cond_t work;
    int woken;
    int asked;                      /* 1 = it has called CUDA */
    struct spipe_priv_worker *next; /* that is parked, too */
} spipe_priv_worker_t;

/* Tasks of one kind, and the threads that do them. */
typedef struct spipe_priv_queue {
    struct spipe_priv_pipeline *pipeline;
    spipe_priv_task_t *tasks; /* a ring of SPIPE_PRIV_QUEUE */
    size_t head, num_tasks, num_busy;
    size_t num_threads; /* started */
    size_t num_begun;   /* of these, those that took a worker struct */
    size_t limit;       /* of these, those that may take tasks in this run */
    int polling;        /* 1 = one of them asks whether the copy has ended that the oldest task
                           waits for */
    double busy_until;  /* of its yields */
    void *threads[SPIPE_MAX_THREADS];
    spipe_priv_worker_t *workers; /* SPIPE_MAX_THREADS of them */
    spipe_priv_worker_t *parked;  /* a list, the one that parked last first */
    spipe_priv_worker_t *barred;  /* those beyond the limit, which must not be woken for a task */
} spipe_priv_queue_t;

/* workers: the threads that fill, drain and run host stages. */
typedef struct spipe_priv_workers {
    spipe_priv_queue_t queues[SPIPE_PRIV_NUM_QUEUES];
    void *block; /* memory of the queues' rings and worker structs */
    int quit;
    int started;   /* threads were asked for once */
    size_t beside; /* runs that shared the threads when they were started last, */
    int shares;    /* this one, too: it has work for some */
    int all_cpus;  /* they take all CPUs, so a waiting caller should help */
} spipe_priv_workers_t;

/* trial: the candidates of a kept pipeline, and what runs of them took. */
typedef struct spipe_priv_trial {
    spipe_priv_way_t ways[SPIPE_PRIV_CANDIDATES];
    size_t num, current;
    int num_runs;          /* measured since the work was planned */
    int over;              /* 1 = the fastest is known, or nothing may be tried */
    int arranged;          /* 1 = the plan in use is that of candidate current */
    double kernel_s;       /* least time of the kernels that a run showed; negative = unknown */
    cudaGraphExec_t graph; /* a run as a graph, or NULL */
    size_t graph_moved[2];
    size_t graph_chunk;                               /* of the plan that it replays */
    int graph_failed;                                 /* 1 = it cannot be captured */
    void (*run_graph)(struct spipe_priv_pipeline *p); /* replays it */
    uint64_t
        work[SPIPE_MAX_STAGES]; /* checked runs: what replayable stages enqueued; 0 = unknown */
    cudaError_t (*compare_work)(struct spipe_priv_pipeline *p, int stage, size_t batch,
                                cudaGraph_t graph, size_t num); /* or NULL, in a one-shot run */
} spipe_priv_trial_t;

/* How far a run is. What several threads touch is under the lock. */
typedef struct spipe_priv_progress_counts {
    size_t completed;                    /* batches whose outputs are whole */
    size_t fill_turn, drain_turn;        /* whose turn it is at sources and sinks */
    size_t issued_in, issued_out;        /* batches whose copies are in the streams */
    size_t polled_in, polled_out;        /* and seen to have ended */
    size_t reported;                     /* to the progress callback */
    size_t num_positions;                /* batches that were handed a position */
    size_t host_begun[SPIPE_MAX_STAGES]; /* batches that the host stage may enter */
    size_t host_left[SPIPE_MAX_STAGES];  /* of an ordered one: batches that have left it */
} spipe_priv_progress_counts_t;

/* How a run goes. */
typedef enum spipe_priv_mode {
    SPIPE_PRIV_WAITED_FOR, /* the call returns when all is done, and counts what is whole */
    SPIPE_PRIV_ENQUEUED,   /* in a stream's order */
    SPIPE_PRIV_CAPTURED    /* into a graph */
} spipe_priv_mode_t;

/* Whether a run failed. */
enum {
    SPIPE_PRIV_NOT_FAILED = 0,
    SPIPE_PRIV_FAILED,        /* nothing more is issued */
    SPIPE_PRIV_FAILED_IN_CALL /* of a function of the user's: the batches before it are finished */
};

/* run: state of the run under way. */
typedef struct spipe_priv_run {
    spipe_priv_progress_counts_t at;
    spipe_priv_mode_t mode;
    int endless, one_stream;
    int running_enqueued;    /* an enqueued run has not been waited for */
    int ran_now;             /* an enqueued run that had to be run at once, and nobody has asked */
    size_t failed;           /* under the lock: SPIPE_PRIV_NOT_FAILED, ... */
    size_t stop_asked;       /* a flag under the lock */
    cudaError_t stale_error; /* the thread's last error when the run began */
    size_t total;            /* elements; SPIPE_AUTO = not known yet */
    size_t batch_elems, full_batches, num_batches;
    size_t failed_batch; /* the first that failed; SPIPE_AUTO = none */
    size_t cut_from;     /* num_batches before a failure made it fewer; 0 = none did */
    size_t moved[2];     /* bytes to the device, from it */

    struct {
        size_t got; /* elements that a source gave */
        int ended;
    } sources[SPIPE_MAX_BUFFERS];

    double began;
    size_t *positions; /* where batches lie in the whole, where several GPUs share it */
} spipe_priv_run_t;

/* pull: a run whose chunks the caller takes one by one. Batches, counted from its begin. */
typedef struct spipe_priv_pull {
    int active;
    size_t issued, taken, released;
} spipe_priv_pull_t;

/* lent: a pipeline as one of those that share resources. */
typedef struct spipe_priv_lent {
    int attached;      /* 1 = the resources count it among their pipelines */
    int entered;       /* 1 = it has checked in, and not out: a run is under way */
    int stays;         /* 1 = it never checks out: enqueued runs may be under way at any time */
    uintptr_t thread;  /* that has the run */
    int ended;         /* 1 = that thread has ended, in the middle of the run */
    int holds_off;     /* 1 = that thread may not be cancelled before the run has checked out; */
    int cancels;       /* what pthread_setcancelstate is given then */
    uintptr_t starter; /* of a part on one of several GPUs: the thread that waits for all parts;
                          else 0 */
    struct spipe_priv_pipeline *next_holder; /* in the list of those that have memory */
} spipe_priv_lent_t;

/* A pipeline. Each member belongs to the file named like it. */
typedef struct spipe_priv_pipeline {
    spipe_priv_request_t request;
    spipe_plan_t plan;
    spipe_priv_route_t route;
    spipe_priv_program_t program;
    spipe_priv_workers_t workers;
    spipe_priv_trial_t trial;
    spipe_priv_run_t run;
    spipe_priv_pull_t pull;
    spipe_failure_t failure;
    spipe_report_t report;
    spipe_priv_sync_t *sync;
    const void *self; /* of a kept pipeline: where it was made */
    int in_use;       /* 1 = a call is at work on it; under sync's lock */
    spipe_priv_lent_t lent;
    const spipe_priv_provider_t *provider;
    const spipe_priv_watcher_t *watcher; /* of the run under way, or NULL */
    void *thrown;                        /* a C++ exception of the user's, or NULL */
    spipe_priv_note_t note;              /* of the stage that is being called */
    spipe_priv_memory_t memory;
    spipe_priv_streams_t streams; /* last: its large arrays are never cleared */
} spipe_priv_pipeline_t;

/* ---- src/private/modelled.h ---- */
/* ---- 13 execute: the clock of a model -------------------------------------------------------
   Says to a CUDA runtime that models time (hostcuda, which defines HOSTCUDA_TASKS) which tasks the
   workers have and what they take, so that a run there has one clock. With a runtime that measures
   time nothing is said: all of it is empty. */
#if defined(HOSTCUDA_TASKS)
#define SPIPE_PRIV_TIMES       " (modelled)" /* behind times in a report */
#define SPIPE_PRIV_OWN_FIGURES " (of this CPU, not modelled)"

/* Bytes between those that are touched in memory that will be pinned, which is only modelled. */
#define SPIPE_PRIV_TOUCH_STEP ((size_t)2 << 20)

/* Bytes that the calling thread has copied into a slot, or out of one. */
#define SPIPE_PRIV_COPIED(bytes, out) hostcuda_host_copy(bytes, out)

/* Seconds on the calling thread's clock. */
SPIPE_API double spipe_priv_clock(void) { return 1e-9 * hostcuda_now_ns(); }

/* Tasks are numbered by batches, those of host stages by stages, too. */
SPIPE_API size_t spipe_priv_task_number(int what, int stage, size_t batch) {
    return what == SPIPE_PRIV_HOST ? batch * SPIPE_MAX_STAGES + (size_t)stage : batch;
}

SPIPE_API unsigned spipe_priv_model_threads(const spipe_priv_queue_t *q) {
    return (unsigned)(q->num_threads < q->limit ? q->num_threads : q->limit);
}

/* A run begins. */
SPIPE_API void spipe_priv_model_run(spipe_priv_pipeline_t *p) {
    const spipe_priv_queue_t *q = p->workers.queues;
    const unsigned copying = spipe_priv_model_threads(&q[SPIPE_PRIV_FILL]) +
                             spipe_priv_model_threads(&q[SPIPE_PRIV_DRAIN]);
    int i;
    for (i = 0; i < SPIPE_PRIV_NUM_QUEUES && p->workers.block; ++i) {
        hostcuda_pool_begin(&q[i], spipe_priv_model_threads(&q[i]), copying);
    }
}

SPIPE_API void spipe_priv_model_free(spipe_priv_pipeline_t *p) {
    int i;
    for (i = 0; i < SPIPE_PRIV_NUM_QUEUES; ++i) hostcuda_pool_end(&p->workers.queues[i]);
}

/* Whether batches of these tasks pass one after another: sources, sinks, ordered host stages. */
SPIPE_API int spipe_priv_model_in_turn(const spipe_priv_pipeline_t *p, int what, int stage) {
    const spipe_desc_t *d = &p->request.desc;
    int i;
    if (what == SPIPE_PRIV_HOST) return d->stages[stage].ordered;
    for (i = 0; i < d->num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &d->buffers[i];
        if (what == SPIPE_PRIV_FILL && b->kind == SPIPE_SOURCE && !b->filler) return 1;
        if (what == SPIPE_PRIV_DRAIN && b->kind == SPIPE_SINK) return 1;
    }
    return 0;
}

/* A task is posted: what it waits for, and whether the caller does it. */
SPIPE_API void spipe_priv_model_post(spipe_priv_pipeline_t *p, int what, int stage, size_t batch) {
    const size_t depth = p->plan.depth;
    const spipe_priv_slot_t *slot = &p->memory.slots[batch % depth];
    const spipe_priv_queue_t *q = p->workers.queues, *before = NULL;
    cudaEvent_t event = NULL;
    size_t number = 0;
    int callers = p->plan.caller_helps;
    if (what >= SPIPE_PRIV_NUM_QUEUES) return;
    if (batch > 0 && spipe_priv_model_in_turn(p, what, stage)) {
        before = &q[what];
        number = spipe_priv_task_number(what, stage, batch - 1);
    }
    if (what == SPIPE_PRIV_HOST) {
        event = slot->stage_done[stage];
    } else if (what == SPIPE_PRIV_DRAIN) {
        event = slot->out_done;
    } else if (batch >= depth && p->route.refill == SPIPE_PRIV_REFILL_DRAINED) {
        before = &q[SPIPE_PRIV_DRAIN];
        number = batch - depth;
    } else if (batch >= depth) {
        event = p->route.refill == SPIPE_PRIV_REFILL_COPIED_IN ? slot->in_done : slot->out_done;
    }
    callers &= (what == SPIPE_PRIV_FILL && batch == 0) ||
               (what == SPIPE_PRIV_DRAIN && batch + 1 == p->run.num_batches);
    hostcuda_task_post(&q[what], spipe_priv_task_number(what, stage, batch), event, before, number,
                       callers);
}

SPIPE_API void spipe_priv_model_begin(const spipe_priv_pipeline_t *p, const spipe_priv_task_t *t) {
    if (t->what >= SPIPE_PRIV_NUM_QUEUES) return;
    hostcuda_task_begin(&p->workers.queues[t->what],
                        spipe_priv_task_number(t->what, t->stage, t->batch));
}

SPIPE_API void spipe_priv_model_end(void) { hostcuda_task_end(); }

/* The calling thread has seen that a task is done: by its clock it has waited for that. */
SPIPE_API void spipe_priv_model_await(const spipe_priv_pipeline_t *p, int what, int stage,
                                      size_t batch) {
    hostcuda_task_await(&p->workers.queues[what], spipe_priv_task_number(what, stage, batch));
}

/* Whether a slot has not been filled by now; and whether that can only be told once it has been. */
SPIPE_API int spipe_priv_model_unfilled(const spipe_priv_pipeline_t *p, size_t batch) {
    return hostcuda_task_is_done(&p->workers.queues[SPIPE_PRIV_FILL], batch) == 0;
}

SPIPE_API int spipe_priv_model_unsure(const spipe_priv_pipeline_t *p, size_t batch) {
    return hostcuda_task_is_done(&p->workers.queues[SPIPE_PRIV_FILL], batch) < 0;
}

/* A thread was started; and it is a worker, whose calls to CUDA only serve the tasks. */
SPIPE_API void spipe_priv_model_started(void) { hostcuda_thread_started(); }

SPIPE_API void spipe_priv_model_worker(void) { (void)hostcuda_unmodelled(1); }

/* A thread that may have been a worker issues work of its own now. */
SPIPE_API void spipe_priv_model_issuer(void) { (void)hostcuda_unmodelled(0); }

/* The calling thread has waited for threads that model time: it is as late as the latest of all. */
SPIPE_API void spipe_priv_model_joined(void) { hostcuda_catch_up(); }

/* Whether an event has been reached, for those who post tasks: how often they ask is chance. */
SPIPE_API cudaError_t spipe_priv_query(cudaEvent_t event) {
    const int before = hostcuda_unmodelled(1);
    const cudaError_t e = cudaEventQuery(event);
    (void)hostcuda_unmodelled(before);
    return e;
}

/* When a task was done, in seconds on the clock of spipe_priv_clock; 0 = not known. */
SPIPE_API int spipe_priv_model_times(const spipe_priv_pipeline_t *p, int what, int stage,
                                     size_t batch, double *begin, double *end) {
    if (!hostcuda_task_times(&p->workers.queues[what], spipe_priv_task_number(what, stage, batch),
                             begin, end)) {
        return 0;
    }
    *begin *= 1e-9;
    *end *= 1e-9;
    return 1;
}
#else
#define SPIPE_PRIV_TIMES                              ""
#define SPIPE_PRIV_OWN_FIGURES                        ""
#define SPIPE_PRIV_TOUCH_STEP                         4096
#define SPIPE_PRIV_COPIED(bytes, out)                 ((void)0)
#define spipe_priv_clock()                            spipe_priv_seconds()
#define spipe_priv_query(event)                       cudaEventQuery(event)
#define spipe_priv_model_run(p)                       ((void)0)
#define spipe_priv_model_free(p)                      ((void)0)
#define spipe_priv_model_post(p, what, stage, batch)  ((void)0)
#define spipe_priv_model_begin(p, t)                  ((void)0)
#define spipe_priv_model_end()                        ((void)0)
#define spipe_priv_model_await(p, what, stage, batch) ((void)0)
#define spipe_priv_model_unfilled(p, batch)           0
#define spipe_priv_model_unsure(p, batch)             0
#define spipe_priv_model_started()                    ((void)0)
#define spipe_priv_model_worker()                     ((void)0)
#define spipe_priv_model_issuer()                     ((void)0)
#define spipe_priv_model_joined()                     ((void)0)

SPIPE_API int spipe_priv_model_times(const spipe_priv_pipeline_t *p, int what, int stage,
                                     size_t batch, const double *begin, const double *end) {
    (void)p;
    (void)what;
    (void)stage;
    (void)batch;
    (void)begin;
    (void)end;
    return 0;
}
#endif

/* ---- src/private/exceptions.h ---- */
/* ---- 13 execute: exceptions ----------------------------------------------------------------
   In C++ a function of the user's may throw, on whatever thread it runs. The run then ends as after
   an error, and the call that began it throws the exception on. In C nothing is caught. */
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
enum {
    SPIPE_PRIV_CATCHES = 1
};

/* Leaves a stage that took a wrong buffer; what is wrong stands in the chunk's note. */
struct spipe_priv_refused : public std::exception {
    explicit spipe_priv_refused(const char *why) : why_(why) {}

    const char *what() const noexcept override { return why_; }

  private:
    const char *why_;
};

SPIPE_PRIV_RARE void spipe_priv_leave_stage(const spipe_priv_note_t *note) {
    if (note->catches) throw spipe_priv_refused(note->text);
}

/* result = call; where that throws, the first exception is kept in *thrown, what it says of itself
   in *note (or NULL), and result = instead. sync: the lock to take for that; NULL = it is held. */
#define SPIPE_PRIV_CALL(sync, thrown, note, result, call, instead)                                 \
    do {                                                                                           \
        try {                                                                                      \
            result = call;                                                                         \
        } catch (const spipe_priv_refused &) {                                                     \
            result = instead;                                                                      \
        } catch (...) {                                                                            \
            spipe_priv_caught(sync, thrown, note);                                                 \
            result = instead;                                                                      \
        }                                                                                          \
    } while (0)

SPIPE_PRIV_RARE void spipe_priv_note_exception(spipe_priv_note_t *note) {
    note->error = cudaErrorUnknown;
    snprintf(note->text, sizeof note->text, "an exception");
    try {
        throw;
    } catch (const std::exception &x) {
        snprintf(note->text, sizeof note->text, "an exception: %s", x.what());
    } catch (...) { /* which says nothing of itself */
    }
}

SPIPE_PRIV_RARE void spipe_priv_caught(spipe_priv_sync_t *sync, void **thrown,
                                       spipe_priv_note_t *note) {
    std::exception_ptr *e = new (std::nothrow) std::exception_ptr(std::current_exception());
    if (!e) std::terminate();
    if (note) spipe_priv_note_exception(note);
    if (sync) spipe_priv_lock(sync);
    if (!*thrown) {
        *thrown = e;
        e = NULL;
    }
    if (sync) spipe_priv_unlock(sync);
    delete e;
}

/* Frees what was kept, if anything was. */
SPIPE_PRIV_RARE void spipe_priv_drop_thrown(void **thrown) {
    delete (std::exception_ptr *)*thrown;
    *thrown = NULL;
}

/* Throws what was kept, if anything was. The last that a function does. */
SPIPE_PRIV_RARE void spipe_priv_rethrow(void **thrown) {
    std::exception_ptr *e = (std::exception_ptr *)*thrown;
    std::exception_ptr copy;
    if (!e) return;
    *thrown = NULL;
    copy = *e;
    delete e;
    std::rethrow_exception(copy);
}

#else
enum {
    SPIPE_PRIV_CATCHES = 0
};

SPIPE_PRIV_RARE void spipe_priv_leave_stage(const spipe_priv_note_t *note) { (void)note; }

#define SPIPE_PRIV_CALL(sync, thrown, note, result, call, instead)                                 \
    do {                                                                                           \
        (void)(note);                                                                              \
        (void)(thrown);                                                                            \
        result = call;                                                                             \
    } while (0)

SPIPE_PRIV_RARE void spipe_priv_drop_thrown(void **thrown) { (void)thrown; }

SPIPE_PRIV_RARE void spipe_priv_rethrow(void **thrown) { (void)thrown; }
#endif

/* ---- src/private/chunks.h ---- */
/* ---- 13 execute: what a stage asks of its chunk --------------------------------------------
   Buffers as pointers, and why a stage gives up. What is wrong is noted in words; the run fails
   with them when the stage returns. */
SPIPE_PRIV_RARE void spipe_priv_note_down(const spipe_chunk_t *c, cudaError_t error,
                                          const char *format, va_list args) {
    spipe_priv_note_t *n = c->note;
    if (!n || n->error != cudaSuccess) return;
    n->error = error;
    vsnprintf(n->text, sizeof n->text, format, args);
}

SPIPE_API cudaError_t spipe_chunk_fail(const spipe_chunk_t *chunk, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (chunk) spipe_priv_note_down(chunk, cudaErrorUnknown, format, args);
    va_end(args);
    return cudaErrorUnknown;
}

/* Why a call of the user's failed, in words; its error is e, or what was noted. */
SPIPE_PRIV_RARE const char *spipe_priv_why(const spipe_priv_note_t *n, cudaError_t *e) {
    if (n->error == cudaSuccess) return cudaGetErrorString(*e);
    if (*e == cudaSuccess || n->error == cudaErrorInvalidValue) *e = n->error;
    return n->text;
}

/* Memory for a host stage that goes on though the buffer it asks for is not there. */
SPIPE_PRIV_RARE void *spipe_priv_scratch(const spipe_chunk_t *c, size_t size) {
    void **block = (void **)calloc(c->count + 1, size > sizeof *block ? size : sizeof *block);
    if (!block) return NULL;
    *block = c->note->scratch;
    c->note->scratch = (void *)block;
    return (void *)(block + 1);
}

SPIPE_PRIV_RARE void spipe_priv_free_scratch(spipe_priv_note_t *n) {
    while (n->scratch) {
        void **block = (void **)n->scratch;
        n->scratch = *block;
        free((void *)block);
    }
}

/* Notes what is wrong with buffer i, and does not return where the caller catches exceptions. */
SPIPE_PRIV_RARE void *spipe_priv_wrong_buf(const spipe_chunk_t *c, int i, size_t size,
                                           const char *format, ...) {
    va_list args;
    va_start(args, format);
    spipe_priv_note_down(c, cudaErrorInvalidValue, format, args);
    va_end(args);
    spipe_priv_leave_stage(c->note);
    if (i >= 0 && i < c->num_buffers && c->data[i]) return c->data[i];
    return c->stream ? NULL : spipe_priv_scratch(c, size);
}

/* A buffer that is not there, or has elements of another size. A chunk that somebody made by hand
   has no note, and is taken as it is. */
SPIPE_PRIV_RARE void *spipe_priv_other_buf(const spipe_chunk_t *c, int i, size_t size) {
    const int there = i >= 0 && i < c->num_buffers && i < SPIPE_MAX_BUFFERS;
    if (!c->note) return i >= 0 && i < SPIPE_MAX_BUFFERS ? c->data[i] : NULL;
    if (!there) {
        return spipe_priv_wrong_buf(
            c, i, size, "it takes buffer %d, and the pipeline has %d, from 0", i, c->num_buffers);
    }
    if (!c->kind[i]) {
        return spipe_priv_wrong_buf(c, i, size,
                                    "it takes buffer %d and did not declare it; add SPIPE_BIT(%d) "
                                    "to what it reads or writes (resident buffers stay on the GPU)",
                                    i, i);
    }
    return spipe_priv_wrong_buf(c, i, size,
                                "it takes buffer %d (%s) for elements of %zu bytes, and they have "
                                "%zu; give both one type (of several values: SPIPE_BUF_ROW)",
                                i, spipe_priv_kind_name(c->kind[i]), size, c->elem_bytes[i]);
}

/* Whether a stage that takes a buffer of this type cannot write into it. */
#ifdef __cplusplus
template <typename T>
struct spipe_priv_constness {
    enum {
        value = 0
    };
};

template <typename T>
struct spipe_priv_constness<const T> {
    enum {
        value = 1
    };
};

#define SPIPE_PRIV_IS_CONST(type) (spipe_priv_constness<type>::value)
#elif defined(__GNUC__)
/* A type that is const already stays the same when const is added. */
#define SPIPE_PRIV_IS_CONST(type)                                                                  \
    __builtin_types_compatible_p(__typeof__(type) *, const __typeof__(type) *)
#else
#define SPIPE_PRIV_IS_CONST(type) 1 /* other C compilers cannot say */
#endif

/* An input as memory that is not const, so that the stage may write into it. */
SPIPE_PRIV_RARE void *spipe_priv_input_to_write(const spipe_chunk_t *c, int i, size_t size) {
    if (!c->note || !(c->note->never_written & SPIPE_BIT(i))) return c->data[i];
    return spipe_priv_wrong_buf(c, i, size,
                                "it takes buffer %d (input) as if to write into it, which an "
                                "elementwise stage never does, nor any with SPIPE_ZERO_COPY; take "
                                "const elements, or add the buffer as in/out",
                                i);
}

SPIPE_PRIV_OFTEN void *spipe_priv_buf(const spipe_chunk_t *c, int i, size_t size, int is_const) {
    if (i >= 0 && i < SPIPE_MAX_BUFFERS) {
        if (c->elem_bytes[i] == size || c->kind[i] == SPIPE_RESIDENT) {
            if (is_const || c->kind[i] != SPIPE_INPUT) return c->data[i];
            return spipe_priv_input_to_write(c, i, size);
        }
    }
    return spipe_priv_other_buf(c, i, size);
}

/* SPIPE_MAP_STAGE reads buffer 0 and writes buffer 1; asked in the first chunk. */
SPIPE_PRIV_RARE void spipe_priv_check_map(const spipe_chunk_t *c) {
    const spipe_kind_t from = c->kind[0], to = c->kind[1];
    if (!c->note || c->num_buffers < 2) return; /* SPIPE_BUF says what is not there */
    if (from != SPIPE_OUTPUT && from != SPIPE_SINK && from != SPIPE_SINK_AT && to != SPIPE_INPUT &&
        to != SPIPE_SOURCE && to != SPIPE_SOURCE_AT) {
        return;
    }
    (void)spipe_priv_wrong_buf(c, 0, 1,
                               "SPIPE_MAP_STAGE reads buffer 0 and writes buffer 1, and they are "
                               "%s and %s; add the input first, or write the stage out",
                               spipe_priv_kind_name(from), spipe_priv_kind_name(to));
}

/* ---- src/private/provider.h ---- */
/* ---- 13 execute: the provider --------------------------------------------------------------
   Where a pipeline's memory, streams and threads come from: NULL = from CUDA and the system, for
   this pipeline alone; else from what runs share (lent.h). */
SPIPE_PRIV_RARE const spipe_priv_provider_t *spipe_priv_provider_of(const spipe_desc_t *d) {
    const spipe_priv_shared_t *shared = (const spipe_priv_shared_t *)(const void *)d->resources;
    return shared ? shared->provider : NULL;
}

/* Takes part in what is shared, until check_out; may wait for others. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_in(spipe_priv_pipeline_t *p) {
    if (p->lent.entered || !p->provider) return cudaSuccess;
    SPIPE_TRY(p->provider->enter(p));
    p->lent.entered = 1;
    return cudaSuccess;
}

SPIPE_PRIV_RARE void spipe_priv_check_out(spipe_priv_pipeline_t *p) {
    if (!p->provider || !p->lent.entered || p->lent.stays) return;
    p->lent.entered = 0;
    p->provider->leave(p);
}

/* ---- src/private/request.h ---- */
/* ---- 13 execute: the request ---------------------------------------------------------------
   The description as it is kept, what kind of memory its arrays are, and planning it. The one place
   that asks CUDA about arrays. Writes spipe_priv_request_t and nothing else. */
/* What kind of memory an array is. Its first and its last byte must be of one kind: CUDA refuses a
   copy across the end of what is pinned, in the middle of a run. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_look_at_array(spipe_priv_request_t *r, int i,
                                                     spipe_failure_t *f) {
    const unsigned char *host = (const unsigned char *)r->desc.buffers[i].host;
    const size_t bytes = spipe_priv_array_bytes(&r->desc, i);
    spipe_priv_array_t *a = &r->arrays[i];
    void *mapped = NULL;
    int last;
    a->type = SPIPE_PRIV_PAGEABLE;
    a->mapped = NULL;
    if (bytes == 0) return cudaSuccess;
    SPIPE_TRY(spipe_priv_memory_type(host + bytes - 1, &last, NULL));
    SPIPE_TRY(spipe_priv_memory_type(host, &a->type, &mapped));
    SPIPE_PRIV_REFUSE_IF(last != a->type,
                         "buffer %d: the first of its %zu bytes is in %s memory, the last is not; "
                         "is it too short, or pinned only in part?",
                         i, bytes, spipe_priv_memory_names[a->type]);
    if (a->type != SPIPE_PRIV_PAGEABLE) a->mapped = (unsigned char *)mapped;
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_unregister(spipe_priv_request_t *r, int i) {
    if (!r->arrays[i].registered) return cudaSuccess;
    r->arrays[i].registered = 0;
    return spipe_unpin(r->desc.buffers[i].host);
}

/* Pins the pageable arrays in place. 0: the system refuses, which is no failure. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_register(spipe_priv_request_t *r, int *done) {
    int i;
    *done = 1;
    for (i = 0; i < r->desc.num_buffers && r->desc.count > 0; ++i) {
        const spipe_buffer_desc_t *b = &r->desc.buffers[i];
        if (!spipe_priv_is_array(b) || !b->host) continue;
        if (r->arrays[i].type != SPIPE_PRIV_PAGEABLE) continue;
        if (spipe_pin(b->host, r->desc.count * b->elem_bytes) != cudaSuccess) {
            (void)cudaGetLastError();
            *done = 0;
            continue;
        }
        r->arrays[i].registered = 1;
        SPIPE_TRY(spipe_priv_look_at_array(r, i, NULL));
    }
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_look_at_arrays(spipe_priv_request_t *r, spipe_failure_t *f) {
    int i;
    for (i = 0; i < r->desc.num_buffers; ++i) SPIPE_TRY(spipe_priv_look_at_array(r, i, f));
    return cudaSuccess;
}

/* The device's facts, its costs, and the arrays: all that planning needs. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_request_begin(spipe_priv_request_t *r, const spipe_desc_t *d,
                                                     int kept, spipe_failure_t *f) {
    const spipe_priv_provider_t *from = spipe_priv_provider_of(d);
    cudaError_t e;
    r->desc = *d;
    r->kept = kept;
    r->arrays_known = !kept;
    r->may_register = 1;
    r->sanitized = getenv("NV_SANITIZER_INJECTION_TRANSPORT_TYPE") != NULL;
    r->apart = r->sanitized || (SPIPE_PRIV_ASAN && d->checked);
    e = from ? from->facts(r, f) : spipe_priv_device_facts(&r->facts, r->device);
    if (!from) r->costs = spipe_priv_costs_for(r->facts.name);
    if (d->costs) r->costs = *d->costs;
    if (e == cudaSuccess) e = spipe_priv_look_at_arrays(r, f);
    if (e == cudaSuccess || (f && f->error == e)) return e;
    (void)cudaGetLastError();
    return spipe_priv_refuse(f, e, "asking about the device and the arrays failed: %s",
                             cudaGetErrorString(e));
}

/* Asks for the number of CPUs and the size of the cache, once, where staging may want to know. */
SPIPE_PRIV_RARE void spipe_priv_request_host(spipe_priv_request_t *r, double staged_bytes) {
    if (r->cpus == 0) r->cpus = spipe_priv_num_cpus();
    if (r->cache > 0 || (!r->kept && staged_bytes < (double)SPIPE_PRIV_ASK_CACHE)) return;
    r->cache = spipe_priv_cache_bytes();
}

/* Bytes of the whole that are in pageable arrays, or pass through sources and sinks. */
SPIPE_PRIV_RARE double spipe_priv_staged_bytes(const spipe_priv_work_t *w) {
    return spipe_priv_real(w->count) *
           (w->pageable_in + w->pageable_out + w->hosted_in + w->hosted_out);
}

/* 1 = the system refused to pin a ring, and a quarter of it. */
SPIPE_PRIV_RARE int spipe_priv_no_pins(const spipe_priv_request_t *r) {
    return r->pin_refusals > 2;
}

/* The work with the kernels' time, where it is known (kernel_s >= 0), or assumed. */
SPIPE_PRIV_RARE spipe_priv_work_t spipe_priv_request_work(const spipe_priv_request_t *r,
                                                          double kernel_s) {
    spipe_priv_work_t w =
        spipe_priv_work_of(&r->desc, &r->facts, r->arrays, r->kept, r->cpus > 0 ? r->cpus : 1);
    if (!r->may_register || r->pin_refusals > 0) w.flags &= ~(unsigned)SPIPE_PRIV_MAY_REGISTER;
    if (r->pin_refusals > 0) w.flags |= SPIPE_PRIV_FEW_PINS;
    if (spipe_priv_no_pins(r)) w.flags |= SPIPE_PRIV_NO_PINS;
    if (r->device_limit > 0 && w.machine.memory > spipe_priv_real(r->device_limit)) {
        w.machine.memory = spipe_priv_real(r->device_limit);
    }
    w.machine.cache = spipe_priv_real(r->cache);
    w.machine.runs = r->runs;
    w.machine.beside = r->beside;
    w.kernel_s = kernel_s >= 0.0 ? kernel_s : spipe_priv_assumed_kernel(&r->costs, &w);
    return w;
}

/* Lists the best ways, best first, and explains the first one. */
SPIPE_PRIV_RARE size_t spipe_priv_request_plan(const spipe_priv_request_t *r,
                                               const spipe_priv_work_t *w, spipe_priv_way_t *ways,
                                               size_t capacity, spipe_plan_t *plan) {
    spipe_priv_planner_t planner;
    size_t num;
    memset(&planner, 0, sizeof planner);
    planner.costs = &r->costs;
    planner.work = w;
    planner.desc = &r->desc;
    planner.best = ways;
    planner.capacity = capacity;
    planner.pinned_bytes = r->pin_limit;
    num = spipe_priv_list_ways(&planner);
    *plan = spipe_priv_explain(&r->desc, &r->costs, w, &ways[0]);
    plan->num_candidates = planner.num_compared;
    return num;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_refuse_zero_copy(const spipe_priv_request_t *r,
                                                        spipe_failure_t *f) {
    if (r->desc.schedule != SPIPE_ZERO_COPY || r->facts.map_host_memory) return cudaSuccess;
    return spipe_priv_refuse(f, cudaErrorNotSupported,
                             "SPIPE_ZERO_COPY needs a device that can map host "
                             "memory; leave schedule to the library");
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_no_device(spipe_failure_t *f, cudaError_t e) {
    (void)cudaGetLastError();
    return spipe_priv_refuse(f, e, "there is no device: %s", cudaGetErrorString(e));
}

SPIPE_API cudaError_t spipe_plan(const spipe_desc_t *d, int kept, spipe_plan_t *plan,
                                 spipe_failure_t *failure) {
    spipe_priv_request_t r;
    spipe_priv_way_t ways[SPIPE_PRIV_CANDIDATES];
    spipe_priv_work_t w;
    cudaError_t e;
    if (!plan) return spipe_priv_refuse(failure, cudaErrorInvalidValue, "the plan is NULL");
    memset(plan, 0, sizeof *plan);
    SPIPE_TRY(kept ? spipe_priv_check_desc(d, failure) : spipe_desc_check(d, failure));
    memset(&r, 0, sizeof r);
    e = cudaGetDevice(&r.device);
    if (e != cudaSuccess) return spipe_priv_no_device(failure, e);
    SPIPE_TRY(spipe_priv_request_begin(&r, d, kept, failure));
    SPIPE_TRY(spipe_priv_refuse_zero_copy(&r, failure));
    w = spipe_priv_request_work(&r, -1.0);
    spipe_priv_request_host(&r, spipe_priv_staged_bytes(&w));
    w = spipe_priv_request_work(&r, -1.0);
    (void)spipe_priv_request_plan(&r, &w, ways, kept ? SPIPE_PRIV_CANDIDATES : 1, plan);
    return cudaSuccess;
}

/* ---- src/private/failures.h ---- */
/* ---- 13 execute: failures ------------------------------------------------------------------
   The first failure of a run, for any thread to record; and where a batch lies in the whole. */

/* Batches follow each other, unless several GPUs share the whole. */
SPIPE_PRIV_OFTEN size_t spipe_priv_position(const spipe_priv_pipeline_t *p, size_t batch) {
    return p->run.positions ? p->run.positions[batch % SPIPE_PRIV_POSITIONS] : batch;
}

/* The number of a batch's first chunk. */
SPIPE_API size_t spipe_priv_chunk_index(const spipe_priv_pipeline_t *p, size_t batch) {
    return spipe_priv_position(p, batch) * p->plan.batch;
}

/* Chunks in so many batches; where there are several in one, the total is known. */
SPIPE_PRIV_RARE size_t spipe_priv_chunks(const spipe_priv_pipeline_t *p, size_t batches) {
    const size_t n = batches * p->plan.batch;
    size_t all;
    if (p->plan.batch == 1) return batches;
    all = p->run.total / p->plan.chunk + (p->run.total % p->plan.chunk != 0);
    return n < all ? n : all;
}

/* Records a failure; every thread looks at run.failed and winds down. The first one is reported,
   and a later one may still be at an earlier batch. note: of a function of the user's, or NULL. The
   batches before one that such a function failed at are brought to their end, and of several that
   fail, on several threads at once, the one at the earliest batch is reported, with what it threw.
   Called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_record(spipe_priv_pipeline_t *p, spipe_priv_note_t *note,
                                       cudaError_t e, int stage, size_t batch, const char *format,
                                       va_list args) {
    const size_t how = note ? SPIPE_PRIV_FAILED_IN_CALL : SPIPE_PRIV_FAILED;
    const int earlier = how == p->run.failed && batch < p->run.failed_batch;
    void *thrown = p->thrown;
    if (!p->run.failed || (note && earlier)) {
        if (note && (note->thrown || p->run.failed)) {
            p->thrown = note->thrown;
            note->thrown = thrown;
        }
        p->run.failed = how;
        spipe_priv_failure_clear(&p->failure);
        p->failure.error = e;
        p->failure.stage = stage;
        p->failure.chunk = batch == SPIPE_AUTO ? batch : spipe_priv_chunk_index(p, batch);
        spipe_priv_say(&p->failure, format, args);
    }
    if (batch < p->run.failed_batch) p->run.failed_batch = batch;
    spipe_priv_wake(p->sync);
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_fail(spipe_priv_pipeline_t *p, cudaError_t e, int stage,
                                            size_t batch, const char *format, ...) {
    va_list args;
    spipe_priv_lock(p->sync);
    va_start(args, format);
    spipe_priv_record(p, NULL, e, stage, batch, format, args);
    va_end(args);
    spipe_priv_unlock(p->sync);
    return e;
}

/* A function of the user's failed; what is not reported of the exception in the note is freed. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_fail_call(spipe_priv_pipeline_t *p, spipe_priv_note_t *note,
                                                 cudaError_t e, int stage, size_t batch,
                                                 const char *format, ...) {
    va_list args;
    spipe_priv_lock(p->sync);
    va_start(args, format);
    spipe_priv_record(p, note, e, stage, batch, format, args);
    va_end(args);
    spipe_priv_unlock(p->sync);
    spipe_priv_drop_thrown(&note->thrown);
    return e;
}

SPIPE_PRIV_RARE size_t spipe_priv_locked_get(const spipe_priv_pipeline_t *p, const size_t *of) {
    size_t value;
    spipe_priv_lock(p->sync);
    value = *of;
    spipe_priv_unlock(p->sync);
    return value;
}

SPIPE_PRIV_RARE void spipe_priv_locked_set(spipe_priv_pipeline_t *p, size_t *to, size_t value) {
    spipe_priv_lock(p->sync);
    *to = value;
    spipe_priv_wake(p->sync);
    spipe_priv_unlock(p->sync);
}

/* Several GPUs: the position behind all that this one was handed, from a batch on; those beyond the
   end have none. */
SPIPE_PRIV_RARE size_t spipe_priv_after_handed(const spipe_priv_pipeline_t *p, size_t batch) {
    const size_t end = spipe_priv_locked_get(p, &p->run.at.num_positions);
    size_t after = 1;
    for (; batch < end; ++batch) {
        const size_t next = spipe_priv_position(p, batch) + 1;
        if (next > after) after = next;
    }
    return after;
}

/* An error of the GPU is of a batch that is not whole. Where the host still waits for one, none is
   issued 2 x depth batches after it. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_fail_between(spipe_priv_pipeline_t *p, cudaError_t e,
                                                    size_t batch) {
    const size_t end = spipe_priv_locked_get(p, &p->run.num_batches);
    const size_t first = spipe_priv_locked_get(p, &p->run.at.completed);
    size_t after = batch + 2 * p->plan.depth;
    if (after > end) after = end;
    if (p->run.positions) after = spipe_priv_after_handed(p, first);
    return spipe_priv_fail(p, e, -1, first,
                           "the GPU reported an error in one of the chunks %zu to %zu (a checked "
                           "run tells which stage): %s",
                           spipe_priv_chunk_index(p, first), spipe_priv_chunks(p, after) - 1,
                           cudaGetErrorString(e));
}

/* Whether an error is one of the GPU: it stays, and any call may be the first to return it. */
SPIPE_PRIV_RARE int spipe_priv_stays(const spipe_priv_pipeline_t *p, cudaError_t e) {
    enum cudaStreamCaptureStatus status;
    if (cudaStreamIsCapturing(p->streams.streams[0], &status) != e) return 0;
    (void)cudaGetLastError();
    return 1;
}

/* Passes on the outcome of a step; what = NULL names the stage itself. In a checked run nothing
   else is under way, so an error of the GPU is this step's, too. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_step(spipe_priv_pipeline_t *p, cudaError_t e,
                                                  int stage, size_t batch, const char *what) {
    size_t chunk;
    if (e == cudaSuccess) return e;
    if (e == cudaPeekAtLastError()) (void)cudaGetLastError();
    if (!p->request.desc.checked && spipe_priv_stays(p, e)) {
        return spipe_priv_fail_between(p, e, batch);
    }
    chunk = spipe_priv_chunk_index(p, batch);
    if (stage < 0) {
        return spipe_priv_fail(p, e, stage, batch, "%s failed at chunk %zu: %s", what, chunk,
                               cudaGetErrorString(e));
    }
    return spipe_priv_fail(p, e, stage, batch, "%s%s' failed at chunk %zu: %s",
                           what ? what : "stage '", p->request.desc.stages[stage].name, chunk,
                           cudaGetErrorString(e));
}

/* Whether the run has failed at this batch or before it. Batches before may still be finished. */
SPIPE_PRIV_RARE int spipe_priv_is_lost(const spipe_priv_pipeline_t *p, size_t batch) {
    return spipe_priv_locked_get(p, &p->run.failed_batch) <= batch;
}

/* The run's error where it has failed at this batch or before it. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_error_at(const spipe_priv_pipeline_t *p, size_t batch) {
    cudaError_t e;
    spipe_priv_lock(p->sync);
    e = p->run.failed_batch <= batch ? p->failure.error : cudaSuccess;
    spipe_priv_unlock(p->sync);
    return e;
}

/* Elements in the whole; SPIPE_AUTO while the sources have not ended. */
SPIPE_PRIV_OFTEN size_t spipe_priv_total(const spipe_priv_pipeline_t *p) {
    return p->run.endless ? spipe_priv_locked_get(p, &p->run.total) : p->run.total;
}

/* Elements of the batch at a position: all are full but the last, and that one is read after the
   total is known. */
SPIPE_PRIV_OFTEN size_t spipe_priv_count_at(const spipe_priv_pipeline_t *p, size_t position) {
    const size_t size = p->run.batch_elems;
    size_t total;
    if (position < p->run.full_batches) return size;
    total = spipe_priv_total(p);
    if (total == SPIPE_AUTO) return position == SPIPE_AUTO ? 0 : size;
    if (total / size < position || position * size >= total) return 0;
    return total - position * size < size ? total - position * size : size;
}

SPIPE_PRIV_RARE size_t spipe_priv_count_of(const spipe_priv_pipeline_t *p, size_t batch) {
    return spipe_priv_count_at(p, spipe_priv_position(p, batch));
}

/* A batch on its way: where it lies in the whole, and its slot. */
typedef struct spipe_priv_at {
    size_t batch, position, first, count;
    spipe_priv_slot_t *slot;
} spipe_priv_at_t;

/* Finds a batch; returns its row of the program. */
SPIPE_PRIV_OFTEN size_t spipe_priv_locate(spipe_priv_pipeline_t *p, size_t batch,
                                          spipe_priv_at_t *at) {
    const size_t row = batch % p->program.num_rows, depth = p->plan.depth;
    at->batch = batch;
    at->position = spipe_priv_position(p, batch);
    at->first = at->position * p->run.batch_elems;
    at->count = spipe_priv_count_at(p, at->position);
    at->slot = &p->memory.slots[row < depth ? row : row - depth];
    return row;
}

/* What a stage sees of a batch, in a slot whose memory is known since it was laid out. */
SPIPE_PRIV_OFTEN void spipe_priv_view(spipe_priv_pipeline_t *p, const spipe_priv_at_t *at,
                                      spipe_chunk_t *c) {
    int i;
    c->index = at->position * p->plan.batch;
    c->first = at->first;
    c->count = at->count;
    c->total = spipe_priv_total(p);
    if (c->total == SPIPE_AUTO) c->total = 0;
    if (p->plan.schedule != SPIPE_ZERO_COPY) return;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        if (p->route.path[i] != SPIPE_PRIV_PATH_ZERO_COPY) continue;
        c->data[i] = p->request.arrays[i].mapped + c->first * p->request.desc.buffers[i].elem_bytes;
    }
}

SPIPE_PRIV_RARE void spipe_priv_notify(spipe_priv_pipeline_t *p, int what, const void *about,
                                       size_t batch, int after) {
    if (!p->watcher) return;
    p->watcher->notify(p->request.desc.timeline, p, what, about, batch, after);
}

/* ---- src/private/route.h ---- */
/* ---- 13 execute: the route -----------------------------------------------------------------
   From request and plan: how each buffer travels, and the stages as steps on streams. Pure; writes
   spipe_priv_route_t. */
/* Whether stages work on the user's own array. */
SPIPE_PRIV_RARE int spipe_priv_used_in_place(const spipe_priv_request_t *r,
                                             const spipe_plan_t *plan, int i) {
    const spipe_buffer_desc_t *b = &r->desc.buffers[i];
    const spipe_priv_array_t *a = &r->arrays[i];
    if (plan->schedule != SPIPE_ZERO_COPY || b->halo_before || b->halo_after) return 0;
    return b->host && a->type != SPIPE_PRIV_PAGEABLE && a->mapped;
}

/* Whether a pinned array must be copied though it could be used in place: in a checked run, because
   there is no room for guards around it, and an input that a host stage writes. */
SPIPE_PRIV_RARE int spipe_priv_needs_copy(const spipe_priv_request_t *r, int i) {
    unsigned written = 0;
    int s;
    if (r->arrays[i].type != SPIPE_PRIV_PINNED) return 0;
    for (s = 0; s < r->desc.num_stages; ++s) written |= r->desc.stages[s].writes;
    return r->desc.checked || (r->desc.buffers[i].kind == SPIPE_INPUT && (written >> i & 1));
}

SPIPE_PRIV_RARE spipe_priv_path_t spipe_priv_path_of(const spipe_priv_request_t *r,
                                                     const spipe_plan_t *plan, int i) {
    const spipe_buffer_desc_t *b = &r->desc.buffers[i];
    const spipe_priv_array_t *a = &r->arrays[i];
    const int pageable = a->type == SPIPE_PRIV_PAGEABLE;
    if (b->kind == SPIPE_TEMP || b->on_device) return SPIPE_PRIV_PATH_NONE;
    if (spipe_priv_is_hosted(b)) return SPIPE_PRIV_PATH_STAGED;
    if (b->kind == SPIPE_RESIDENT) {
        return b->host && pageable ? SPIPE_PRIV_PATH_STAGED : SPIPE_PRIV_PATH_NONE;
    }
    if (plan->schedule == SPIPE_ZERO_COPY && b->host) {
        const int in_place = spipe_priv_used_in_place(r, plan, i) && !spipe_priv_needs_copy(r, i);
        return in_place ? SPIPE_PRIV_PATH_ZERO_COPY : SPIPE_PRIV_PATH_STAGED;
    }
    if (!b->host || !pageable) return SPIPE_PRIV_PATH_COPIED;
    return plan->staging == SPIPE_STAGING_DIRECT ? SPIPE_PRIV_PATH_COPIED : SPIPE_PRIV_PATH_STAGED;
}

/* What a buffer's path means for the run as a whole. */
SPIPE_PRIV_RARE void spipe_priv_route_buffer(spipe_priv_route_t *t, const spipe_priv_request_t *r,
                                             const spipe_plan_t *plan, int i) {
    const spipe_buffer_desc_t *b = &r->desc.buffers[i];
    const int pageable = b->host && r->arrays[i].type == SPIPE_PRIV_PAGEABLE;
    const int array = spipe_priv_is_array(b);
    if (array && pageable && t->path[i] == SPIPE_PRIV_PATH_COPIED) t->pageable_copies = 1;
    if (array && b->host && spipe_priv_goes_out(b)) {
        t->out_blocks = pageable && !r->facts.pageable_access;
    }
    if (t->path[i] != SPIPE_PRIV_PATH_STAGED && !b->on_device) return;
    t->host_work = 1;
    t->pageable_copies |= plan->pageable_slots && b->kind != SPIPE_RESIDENT;
    t->sequential |= spipe_priv_is_sequential(b);
    if (spipe_priv_goes_in(b)) t->refill = SPIPE_PRIV_REFILL_COPIED_IN;
    t->drains |= spipe_priv_goes_out(b);
}

/* Where stages read what was filled in place, or another GPU may need what a source gave, a slot is
   filled again only when its batch is done. */
SPIPE_PRIV_RARE void spipe_priv_route_refill(spipe_priv_route_t *t, const spipe_priv_request_t *r,
                                             const spipe_plan_t *plan) {
    const int shared = r->desc.hooks && r->desc.hooks->next_batch;
    int i, until_done = 0;
    if (t->refill == SPIPE_PRIV_REFILL_NEVER) return;
    for (i = 0; i < r->desc.num_buffers; ++i) {
        until_done |= shared && r->desc.buffers[i].kind == SPIPE_SOURCE;
        until_done |= r->desc.buffers[i].on_device;
    }
    if (plan->schedule != SPIPE_ZERO_COPY && !until_done) return;
    t->refill = t->drains ? SPIPE_PRIV_REFILL_DRAINED : SPIPE_PRIV_REFILL_CHUNK_DONE;
}

SPIPE_PRIV_RARE void spipe_priv_route_buffers(spipe_priv_route_t *t, const spipe_priv_request_t *r,
                                              const spipe_plan_t *plan) {
    int i;
    t->refill = SPIPE_PRIV_REFILL_NEVER;
    t->drains = 0;
    t->host_work = 0;
    t->sequential = 0;
    t->pageable_copies = 0;
    t->out_blocks = 0;
    for (i = 0; i < r->desc.num_stages; ++i) t->host_work |= r->desc.stages[i].host;
    if (t->host_work && plan->pageable_slots) t->pageable_copies = 1;
    for (i = 0; i < r->desc.num_buffers; ++i) {
        t->path[i] = spipe_priv_path_of(r, plan, i);
        spipe_priv_route_buffer(t, r, plan, i);
    }
    spipe_priv_route_refill(t, r, plan);
}

/* The chain that a stage continues: that of the first stage it waits for whose chain nobody has
   continued; -1 = none. Host stages begin chains of their own. */
SPIPE_PRIV_RARE int spipe_priv_chain_before(const spipe_priv_route_t *t, const spipe_desc_t *d,
                                            int s, int *continued) {
    int j;
    if (d->stages[s].host) return -1;
    for (j = 0; j < d->num_stages; ++j) {
        if (!(t->after[s] & SPIPE_BIT(j)) || continued[j] || d->stages[j].host) continue;
        continued[j] = 1;
        return t->chain[j];
    }
    return -1;
}

SPIPE_PRIV_RARE void spipe_priv_route_chains(spipe_priv_route_t *t, const spipe_desc_t *d,
                                             const int *order) {
    const int serial = d->schedule == SPIPE_SERIAL;
    int continued[SPIPE_MAX_STAGES] = {0}, n;
    t->num_chains = serial;
    for (n = 0; n < d->num_stages; ++n) {
        const int s = order[n];
        t->chain[s] = spipe_priv_chain_before(t, d, s, continued);
        if (t->chain[s] < 0) t->chain[s] = serial ? 0 : t->num_chains++;
    }
    if (t->num_chains == 0) t->num_chains = 1; /* without stages; streams are counted by chains */
}

SPIPE_PRIV_RARE void spipe_priv_add_step(spipe_priv_route_t *t, spipe_priv_step_t what, int stage) {
    t->steps[t->num_steps].what = what;
    t->steps[t->num_steps++].stage = stage;
}

/* Begins every stage that may; returns those whose work is done in this segment. */
SPIPE_PRIV_RARE unsigned spipe_priv_begin_stages(spipe_priv_route_t *t, const spipe_desc_t *d,
                                                 const int *order, unsigned *begun, unsigned done) {
    int n;
    for (n = 0; n < d->num_stages; ++n) {
        const int s = order[n], host = d->stages[s].host;
        if ((*begun & SPIPE_BIT(s)) || (t->after[s] & ~done)) continue;
        *begun |= SPIPE_BIT(s);
        if (!host) done |= SPIPE_BIT(s);
        spipe_priv_add_step(t, host ? SPIPE_PRIV_STEP_HOST_BEGIN : SPIPE_PRIV_STEP_STAGE, s);
    }
    return done;
}

/* The steps of a chunk in order: in, stages, out. A host stage ends as late as possible, and its
   end opens a new segment, so that other chunks are issued while the host works. */
SPIPE_PRIV_RARE void spipe_priv_route_steps(spipe_priv_route_t *t, const spipe_desc_t *d,
                                            const int *order) {
    unsigned begun = 0, done = 0;
    int n, ended = 1;
    t->num_steps = 0;
    t->num_segments = 1;
    t->segment_start[0] = 0;
    spipe_priv_add_step(t, SPIPE_PRIV_STEP_IN, -1);
    while (ended) {
        done = spipe_priv_begin_stages(t, d, order, &begun, done);
        for (ended = 0, n = 0; n < d->num_stages; ++n) {
            const int s = order[n];
            if (!(begun & SPIPE_BIT(s)) || (done & SPIPE_BIT(s))) continue;
            if (!ended) t->segment_start[t->num_segments++] = t->num_steps;
            ended = 1;
            done |= SPIPE_BIT(s);
            spipe_priv_add_step(t, SPIPE_PRIV_STEP_HOST_END, s);
        }
    }
    spipe_priv_add_step(t, SPIPE_PRIV_STEP_OUT, -1);
    t->segment_start[t->num_segments] = t->num_steps;
}

/* The stages' part of the route, which no choice changes. */
SPIPE_PRIV_RARE void spipe_priv_route_stages(spipe_priv_route_t *t, const spipe_desc_t *d) {
    int order[SPIPE_MAX_STAGES] = {0}, i;
    (void)spipe_priv_sort_stages(d, order);
    t->leaves = (1u << d->num_stages) - 1;
    for (i = 0; i < d->num_stages; ++i) {
        t->after[i] = spipe_priv_stage_deps(d, i);
        t->leaves &= ~t->after[i];
    }
    spipe_priv_route_chains(t, d, order);
    spipe_priv_route_steps(t, d, order);
}

/* Stages work on the user's own memory, and nothing is copied either way. */
SPIPE_PRIV_RARE int spipe_priv_no_copies(const spipe_priv_request_t *r, const spipe_priv_route_t *t,
                                         const spipe_plan_t *plan) {
    int i, copied = 0;
    for (i = 0; i < r->desc.num_buffers; ++i) {
        const spipe_kind_t kind = r->desc.buffers[i].kind;
        if (kind == SPIPE_RESIDENT || kind == SPIPE_TEMP) continue;
        copied |= t->path[i] != SPIPE_PRIV_PATH_ZERO_COPY;
    }
    return plan->schedule == SPIPE_ZERO_COPY && !copied;
}

SPIPE_PRIV_RARE void spipe_priv_route_plan(spipe_priv_route_t *t, const spipe_priv_request_t *r,
                                           const spipe_plan_t *plan) {
    spipe_priv_route_buffers(t, r, plan);
    t->no_copies = spipe_priv_no_copies(r, t, plan);
    t->stage_distance = t->num_segments > 1 ? (plan->depth - 1) / (size_t)(t->num_segments - 1) : 0;
}

/* ---- src/private/pipeline_streams.h ---- */
/* ---- 13 execute: streams and events --------------------------------------------------------
   Which stream carries a batch's copies and stages; making the streams and events of a pipeline.
   Writes spipe_priv_streams_t. */
enum {
    SPIPE_PRIV_ON_IN,   /* copies in */
    SPIPE_PRIV_ON_OUT,  /* copies out */
    SPIPE_PRIV_ON_CHAIN /* + the number of a chain of stages */
};

SPIPE_PRIV_RARE int spipe_priv_stream_a_slot(const spipe_plan_t *plan) {
    return plan->schedule == SPIPE_DEPTH_FIRST || plan->schedule == SPIPE_BREADTH_FIRST;
}

/* All that schedules differ in: the stream of one kind of work, for a row of the program. */
SPIPE_PRIV_RARE cudaStream_t spipe_priv_stream_for(const spipe_priv_pipeline_t *p, size_t row,
                                                   int on) {
    const int chain = on < SPIPE_PRIV_ON_CHAIN ? 0 : on - SPIPE_PRIV_ON_CHAIN;
    const int slot = (int)(row % p->plan.depth);
    const cudaStream_t *streams = p->streams.streams;
    if (p->run.one_stream) return streams[0];
    if (spipe_priv_stream_a_slot(&p->plan)) return streams[slot * p->route.num_chains + chain];
    if (on == SPIPE_PRIV_ON_OUT) return streams[on]; /* zero-copy: the ends, in order */
    if (on == SPIPE_PRIV_ON_IN && !p->route.no_copies) return streams[on];
    return streams[2 + 2 * chain + (int)(row & 1)];
}

/* A small run may go through the stream that this thread has anyway, which saves 10 us, where all
   stages are replayable: a stage that keeps the handle for another thread would mean another
   stream there. */
SPIPE_PRIV_RARE int spipe_priv_may_borrow(const spipe_priv_pipeline_t *p) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const int direct = p->plan.staging == SPIPE_STAGING_DIRECT && !p->request.kept;
    int i;
    if (p->request.desc.resources) return 0;
    if (!direct || !p->run.one_stream || p->request.desc.priority) return 0;
    for (i = 0; i < p->request.desc.num_stages; ++i) {
        if (!p->request.desc.stages[i].replayable) return 0;
    }
    return cudaStreamIsCapturing(cudaStreamPerThread, &status) == cudaSuccess &&
           status == cudaStreamCaptureStatusNone;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_new_stream(spipe_priv_pipeline_t *p, cudaStream_t *stream) {
    if (p->provider) return p->provider->stream(p, stream);
    return spipe_stream_create(stream, p->request.desc.priority);
}

/* The streams that the plan needs and that are not there yet. All have the pipeline's priority:
   copies do not care. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_create_streams(spipe_priv_pipeline_t *p) {
    spipe_priv_streams_t *s = &p->streams;
    int total = 2 + 2 * p->route.num_chains;
    if (spipe_priv_stream_a_slot(&p->plan)) total = p->route.num_chains * (int)p->plan.depth;
    if (p->plan.schedule == SPIPE_SERIAL) total = 1;
    if (p->run.one_stream && !p->request.kept) total = 1;
    if (s->num == 0 && spipe_priv_may_borrow(p)) {
        s->streams[s->num++] = cudaStreamPerThread;
        s->first_owned = 1;
    }
    for (; s->num < total; ++s->num) SPIPE_TRY(spipe_priv_new_stream(p, &s->streams[s->num]));
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_new_event(spipe_priv_pipeline_t *p, cudaEvent_t *event) {
    SPIPE_TRY(p->provider ? p->provider->event(p, event) : spipe_event_create(event));
    p->streams.events[p->streams.num_events++] = *event;
    return cudaSuccess;
}

/* Events of slots that have none yet. Slots keep theirs when the plan changes. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_create_slot_events(spipe_priv_pipeline_t *p) {
    spipe_priv_streams_t *s = &p->streams;
    int i;
    for (; s->num_slot_events < p->plan.depth; ++s->num_slot_events) {
        spipe_priv_slot_t *slot = &p->memory.slots[s->num_slot_events];
        SPIPE_TRY(spipe_priv_new_event(p, &slot->out_done));
        SPIPE_TRY(spipe_priv_new_event(p, &slot->in_done));
        for (i = 0; i < p->request.desc.num_stages; ++i) {
            SPIPE_TRY(spipe_priv_new_event(p, &slot->stage_done[i]));
        }
    }
    return cudaSuccess;
}

/* A one-shot run in one stream without host work needs no event: the stream says when all is
   done. */
SPIPE_PRIV_RARE int spipe_priv_needs_events(const spipe_priv_pipeline_t *p) {
    const int shared = p->request.desc.hooks && p->request.desc.hooks->next_batch;
    return p->request.kept || !p->run.one_stream || p->route.host_work || shared;
}

SPIPE_PRIV_RARE int spipe_priv_has_resident(const spipe_desc_t *d) {
    int i;
    for (i = 0; i < d->num_buffers; ++i) {
        if (d->buffers[i].kind == SPIPE_RESIDENT) return 1;
    }
    return 0;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_create_events(spipe_priv_pipeline_t *p) {
    spipe_priv_streams_t *s = &p->streams;
    const int many =
        p->run.num_batches >= SPIPE_PRIV_CHECKPOINT_EVERY || spipe_priv_stream_a_slot(&p->plan);
    size_t k;
    if (p->request.kept || spipe_priv_has_resident(&p->request.desc)) {
        SPIPE_TRY(spipe_priv_new_event(p, &s->sync_event));
    }
    if (p->request.kept) SPIPE_TRY(spipe_priv_new_event(p, &s->end));
    if (p->request.kept || many || p->request.desc.progress) {
        for (k = 0; k < SPIPE_PRIV_CHECKPOINTS; ++k) {
            SPIPE_TRY(spipe_priv_new_event(p, &s->checkpoints[k]));
        }
    }
    return cudaSuccess;
}

SPIPE_PRIV_RARE void spipe_priv_sync_streams(const spipe_priv_streams_t *s, cudaError_t *e) {
    int i;
    for (i = 0; i < s->num; ++i) spipe_priv_keep_error(e, cudaStreamSynchronize(s->streams[i]));
}

/* Destroys streams and events, or gives them back. */
SPIPE_PRIV_RARE void spipe_priv_end_streams(spipe_priv_pipeline_t *p, cudaError_t *e) {
    const spipe_priv_streams_t *s = &p->streams;
    int i;
    if (p->provider) {
        p->provider->end_streams(p, e);
        return;
    }
    for (i = 0; i < s->num_events; ++i) spipe_priv_keep_error(e, cudaEventDestroy(s->events[i]));
    for (i = s->first_owned; i < s->num; ++i) {
        spipe_priv_keep_error(e, cudaStreamDestroy(s->streams[i]));
    }
}

/* ---- src/private/memory.h ---- */
/* ---- 13 execute: memory --------------------------------------------------------------------
   Device and pinned arenas, and the slots laid out in them from the plan. Writes
   spipe_priv_memory_t. */

/* A buffer's part of a slot from an arena, its first own element aligned, with a guard before and
   after it; base NULL only counts. */
SPIPE_PRIV_RARE unsigned char *spipe_priv_carve(unsigned char *base, size_t *used,
                                                const spipe_buffer_desc_t *b, size_t elements,
                                                size_t guard) {
    const size_t before = b->halo_before * b->elem_bytes + guard;
    const size_t at = (*used + before + 511) & ~(size_t)511;
    *used = at + (elements + b->halo_after) * b->elem_bytes + guard;
    return base ? base + at : NULL;
}

/* How many slots a pipeline keeps structs for: a kept one may change its plan. */
SPIPE_PRIV_RARE size_t spipe_priv_num_slots(const spipe_priv_pipeline_t *p) {
    return p->request.kept ? SPIPE_MAX_DEPTH : p->plan.depth;
}

SPIPE_PRIV_RARE int spipe_priv_has_host_stage(const spipe_desc_t *d) {
    int i;
    for (i = 0; i < d->num_stages; ++i) {
        if (d->stages[i].host) return 1;
    }
    return 0;
}

/* The slots' structs in one block; the smallest run needs none but its own. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_create_slots(spipe_priv_pipeline_t *p) {
    spipe_priv_memory_t *m = &p->memory;
    const size_t num = spipe_priv_num_slots(p), stages = (size_t)p->request.desc.num_stages;
    const size_t mirror = stages * sizeof *m->slots->mirror;
    const int mirrors = spipe_priv_has_host_stage(&p->request.desc);
    const size_t bytes = num * (sizeof *m->slots + (mirrors ? mirror : 0));
    size_t k;
    m->num_slots = num;
    if (num == 1 && !spipe_priv_needs_events(p)) {
        memset((void *)&m->single, 0, sizeof m->single);
        m->slots = &m->single;
        return cudaSuccess;
    }
    m->slots = (spipe_priv_slot_t *)calloc(1, bytes);
    if (!m->slots) return cudaErrorMemoryAllocation;
    for (k = 0; k < num && mirrors; ++k) {
        unsigned char *at = (unsigned char *)(m->slots + num) + k * mirror;
        m->slots[k].mirror = (unsigned char *(*)[SPIPE_MAX_BUFFERS])(void *)at;
    }
    return cudaSuccess;
}

SPIPE_PRIV_RARE void spipe_priv_layout_resident(spipe_priv_pipeline_t *p, size_t *device) {
    int i;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        if (b->kind != SPIPE_RESIDENT) continue;
        p->memory.resident[i] = spipe_priv_carve(p->memory.device, device, b, 1, p->memory.guard);
    }
}

/* What host stages see of a buffer, each its own: two may run side by side. */
SPIPE_PRIV_RARE void spipe_priv_layout_mirrors(spipe_priv_pipeline_t *p, spipe_priv_slot_t *slot,
                                               int i, size_t elements, size_t *pinned) {
    int s;
    if (!slot->mirror) return;
    for (s = 0; s < p->request.desc.num_stages; ++s) {
        const spipe_stage_desc_t *st = &p->request.desc.stages[s];
        slot->mirror[s][i] = NULL;
        if (!st->host || !((st->reads | st->writes) & SPIPE_BIT(i))) continue;
        slot->mirror[s][i] = spipe_priv_carve(p->memory.pinned, pinned, &p->request.desc.buffers[i],
                                              elements, p->memory.guard);
    }
}

/* Whether each slot has memory on the device for a buffer. */
SPIPE_PRIV_RARE int spipe_priv_is_on_device(const spipe_priv_pipeline_t *p, int i) {
    const spipe_kind_t kind = p->request.desc.buffers[i].kind;
    if (kind == SPIPE_RESIDENT) return 0;
    if (p->request.desc.buffers[i].on_device) return 1;
    return p->plan.schedule != SPIPE_ZERO_COPY || kind == SPIPE_TEMP;
}

/* The tickets of a split source lie behind its elements, and their guard, in the slot. */
SPIPE_PRIV_RARE size_t spipe_priv_ticket_place(size_t end) { return (end + 15) & ~(size_t)15; }

SPIPE_PRIV_RARE unsigned char *spipe_priv_tickets(const spipe_priv_pipeline_t *p,
                                                  const spipe_priv_slot_t *slot, int i) {
    const size_t bytes = p->plan.chunk * p->plan.batch * p->request.desc.buffers[i].elem_bytes;
    return slot->pin_in[i] + spipe_priv_ticket_place(bytes + p->memory.guard);
}

SPIPE_PRIV_RARE void spipe_priv_layout_slot(spipe_priv_pipeline_t *p, spipe_priv_slot_t *slot,
                                            size_t *device, size_t *pinned) {
    const size_t elements = p->plan.chunk * p->plan.batch;
    const int zero_copy = p->plan.schedule == SPIPE_ZERO_COPY;
    int i;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        const int staged = p->route.path[i] == SPIPE_PRIV_PATH_STAGED;
        slot->dev[i] = slot->pin_in[i] = slot->pin_out[i] = NULL;
        if (b->kind == SPIPE_RESIDENT) continue;
        if (spipe_priv_is_on_device(p, i)) {
            slot->dev[i] = spipe_priv_carve(p->memory.device, device, b, elements, p->memory.guard);
        }
        if (staged && spipe_priv_goes_in(b)) {
            slot->pin_in[i] =
                spipe_priv_carve(p->memory.pinned, pinned, b, elements, p->memory.guard);
            *pinned = spipe_priv_ticket_place(*pinned) + elements * b->ticket_bytes;
        }
        if (staged && spipe_priv_goes_out(b)) {
            slot->pin_out[i] = slot->pin_in[i];
            if (!zero_copy || !slot->pin_in[i]) {
                slot->pin_out[i] =
                    spipe_priv_carve(p->memory.pinned, pinned, b, elements, p->memory.guard);
            }
        }
        spipe_priv_layout_mirrors(p, slot, i, elements, pinned);
    }
}

/* Lays everything out; called once to count and once to hand out. */
SPIPE_PRIV_RARE void spipe_priv_layout(spipe_priv_pipeline_t *p, size_t *device, size_t *pinned) {
    size_t k;
    *device = *pinned = 0;
    spipe_priv_layout_resident(p, device);
    for (k = 0; k < p->plan.depth; ++k) {
        spipe_priv_layout_slot(p, &p->memory.slots[k], device, pinned);
    }
}

/* Where a tool watches memory, each buffer of each slot is an allocation of its own, so that it
   sees what lies outside. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_place_apart(spipe_priv_pipeline_t *p) {
    spipe_priv_memory_t *m = &p->memory;
    const int num = p->request.desc.num_buffers;
    const size_t elements = p->plan.chunk * p->plan.batch;
    size_t k;
    int i;
    m->apart = (void **)calloc((p->plan.depth + 1) * SPIPE_MAX_BUFFERS, sizeof *m->apart);
    if (!m->apart) return cudaErrorMemoryAllocation;
    for (k = 0; k <= p->plan.depth; ++k) { /* the last one has what is resident */
        for (i = 0; i < num; ++i) {
            const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
            const int resident = b->kind == SPIPE_RESIDENT;
            const size_t before = b->halo_before * b->elem_bytes;
            const size_t own = resident ? 1 : elements;
            unsigned char **at = resident ? &m->resident[i] : &m->slots[k % m->num_slots].dev[i];
            const size_t bytes = before + (own + b->halo_after) * b->elem_bytes;
            if (k < p->plan.depth ? !spipe_priv_is_on_device(p, i) : !resident) continue;
            SPIPE_TRY(cudaMalloc(&m->apart[m->num_apart], bytes));
            m->apart_bytes += bytes;
            *at = (unsigned char *)m->apart[m->num_apart++] + before;
        }
    }
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_free_apart(spipe_priv_memory_t *m) {
    cudaError_t e = cudaSuccess;
    while (m->num_apart > 0) spipe_priv_keep_error(&e, cudaFree(m->apart[--m->num_apart]));
    free((void *)m->apart);
    m->apart = NULL;
    m->apart_bytes = 0;
    return e;
}

/* Frees both arenas, or gives them back. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_free_arenas(spipe_priv_pipeline_t *p) {
    spipe_priv_memory_t *m = &p->memory;
    cudaError_t e = cudaSuccess;
    if (p->provider) return p->provider->free_arenas(p);
    e = spipe_priv_free_apart(m);
    if (m->device) spipe_priv_keep_error(&e, cudaFree(m->device));
    if (!m->pinned_base)
        spipe_priv_keep_error(&e, spipe_pinned_free(m->pinned));
    else if (!m->pageable)
        spipe_priv_keep_error(&e, spipe_unpin(m->pinned));
    free(m->pinned_base);
    m->device = m->pinned = m->pinned_base = NULL;
    m->device_bytes = m->pinned_bytes = 0;
    return e;
}

/* Touches the pinned arena: one thread takes ten times as long as the workers. In waiting.h. */
SPIPE_PRIV_RARE void spipe_priv_touch(spipe_priv_pipeline_t *p);

/* So many bytes, at the beginning of a page, a huge one where there is room for one; *base: what to
   free. NULL: there is no memory. */
SPIPE_PRIV_RARE unsigned char *spipe_priv_new_pages(size_t bytes, unsigned char **base) {
    const size_t huge = (size_t)SPIPE_PRIV_HUGE_PAGE;
    const size_t page = bytes < huge ? 4096 : huge;
    unsigned char *at;
    *base = bytes > 0 ? (unsigned char *)malloc(bytes + page) : NULL;
    if (!*base) return NULL;
    at = *base + (page - ((uintptr_t)*base & (page - 1)));
#if defined(MADV_HUGEPAGE) && !defined(HOSTCUDA_TASKS) /* modelled pinning has no use for them */
    if (page == huge) (void)madvise(at, bytes, MADV_HUGEPAGE);
#endif
    return at;
}

/* Pinned memory for the slots. Memory that was touched before is pinned in place about ten times
   faster than CUDA allocates pinned memory; where the system refuses, CUDA allocates it. Once it
   has refused less and less, slots are pageable: CUDA's copies are in the streams' order all the
   same. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_pin_ring(spipe_priv_pipeline_t *p, size_t bytes) {
    spipe_priv_memory_t *m = &p->memory;
    m->pinned = spipe_priv_new_pages(bytes, &m->pinned_base);
    if (m->pinned) {
        m->pageable = p->plan.pageable_slots;
        if (!m->pageable) spipe_priv_touch(p);
        if (m->pageable || spipe_pin(m->pinned, bytes) == cudaSuccess) return cudaSuccess;
        (void)cudaGetLastError();
        free(m->pinned_base);
        m->pinned_base = NULL;
    }
    return spipe_pinned_alloc((void **)&m->pinned, bytes);
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_no_memory(spipe_priv_pipeline_t *p, cudaError_t e,
                                                 size_t bytes, const char *of, const char *also) {
    (void)cudaGetLastError();
    return spipe_priv_refuse(&p->failure, e,
                             "no room for %zu bytes of %s memory (%zu slots of %zu elements); "
                             "lower chunk or depth%s",
                             bytes, of, p->plan.depth, p->plan.chunk * p->plan.batch, also);
}

/* Allocates both arenas. The pinned one is a whole number of huge pages: touching and pinning a
   rest in pages of 4 KiB took up to 1 ms (H100 and H200, 2026-11-24), unless it is a small one. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_allocate_arenas(spipe_priv_pipeline_t *p, size_t device,
                                                       size_t pinned) {
    const size_t huge = (size_t)SPIPE_PRIV_HUGE_PAGE, rest = pinned % huge;
    spipe_priv_memory_t *m = &p->memory;
    cudaError_t e = cudaSuccess;
    if (p->provider) return p->provider->arenas(p, device, pinned);
    if (pinned > huge && rest > huge / SPIPE_PRIV_SMALL_REST) pinned += huge - rest;
    if (device > 0) e = cudaMalloc((void **)&m->device, device);
    if (e != cudaSuccess) return spipe_priv_no_memory(p, e, device, "device", "");
    m->device_bytes = device;
    m->pinned_bytes = pinned;
    e = spipe_priv_pin_ring(p, pinned);
    if (e == cudaSuccess) return e;
    m->pinned_bytes = 0;
    m->refused = pinned;
    return spipe_priv_no_memory(p, e, pinned, "pinned host",
                                ", or leave staging and schedule to the library");
}

/* Makes the arenas as large as the plan needs; they never shrink. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_grow_arenas(spipe_priv_pipeline_t *p, size_t device,
                                                   size_t pinned) {
    spipe_priv_memory_t *m = &p->memory;
    const size_t wanted = pinned;
    cudaError_t e;
    m->refused = 0;
    if (device <= m->device_bytes && pinned <= m->pinned_bytes) return cudaSuccess;
    if (p->request.kept && device > 0) device += SPIPE_PRIV_ARENA_SLACK;
    if (p->request.kept && pinned > 0) pinned += SPIPE_PRIV_ARENA_SLACK;
    if (device < m->device_bytes) device = m->device_bytes;
    if (pinned < m->pinned_bytes) pinned = m->pinned_bytes;
    SPIPE_TRY(spipe_priv_free_arenas(p));
    if (pinned > 0) spipe_priv_request_host(&p->request, SPIPE_PRIV_ASK_CACHE);
    e = spipe_priv_allocate_arenas(p, device, pinned);
    if (m->refused > 0) m->refused = wanted;
    return e;
}

/* What stages on the device see of each slot; only count and position change from batch to batch.
 */
SPIPE_PRIV_RARE void spipe_priv_prepare_views(spipe_priv_pipeline_t *p) {
    spipe_priv_memory_t *m = &p->memory;
    size_t k;
    int i;
    m->in_place = 0;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        if (p->route.path[i] == SPIPE_PRIV_PATH_ZERO_COPY) m->in_place |= SPIPE_BIT(i);
    }
    for (k = 0; k < p->plan.depth; ++k) {
        spipe_priv_slot_t *slot = &m->slots[k];
        slot->view.slot = (int)k;
        slot->view.num_buffers = p->request.desc.num_buffers;
        slot->view.note = &p->note;
        for (i = 0; i < p->request.desc.num_buffers; ++i) {
            const unsigned char *pin = slot->pin_in[i] ? slot->pin_in[i] : slot->pin_out[i];
            unsigned char *at = slot->dev[i];
            if (!at && pin) at = m->pinned_alias + (pin - m->pinned);
            if (p->request.desc.buffers[i].kind == SPIPE_RESIDENT) at = m->resident[i];
            slot->view.data[i] = at;
            slot->view.kind[i] = p->request.desc.buffers[i].kind;
            slot->view.elem_bytes[i] = p->request.desc.buffers[i].elem_bytes;
        }
    }
}

/* Memory for the plan in use. Allocates nothing where the arenas are large enough. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_arrange_memory(spipe_priv_pipeline_t *p) {
    spipe_priv_memory_t *m = &p->memory;
    size_t device, pinned;
    m->guard = p->request.desc.checked ? SPIPE_PRIV_GUARD : 0;
    spipe_priv_layout(p, &device, &pinned);
    SPIPE_TRY(spipe_priv_free_apart(m));
    SPIPE_TRY(spipe_priv_grow_arenas(p, p->request.apart ? 0 : device, pinned));
    m->ring_cached = pinned > 0 && pinned <= p->request.cache / 2; /* of this plan's slots */
    m->pinned_alias = m->pinned;
    if (m->pinned && p->plan.schedule == SPIPE_ZERO_COPY) {
        SPIPE_TRY(cudaHostGetDevicePointer((void **)&m->pinned_alias, m->pinned, 0));
    }
    spipe_priv_layout(p, &device, &pinned);
    if (p->request.apart) {
        const cudaError_t e = spipe_priv_place_apart(p);
        if (e != cudaSuccess) return spipe_priv_no_memory(p, e, device, "device", "");
    }
    spipe_priv_prepare_views(p);
    return cudaSuccess;
}

/* ---- src/private/program.h ---- */
/* ---- 13 execute: the program ---------------------------------------------------------------
   The operations of each slot, written down once from plan and route: what a choice means is
   decided here, so issuing asks nothing. Writes spipe_priv_program_t. */
enum {
    SPIPE_PRIV_OP_NONE,       /* only a wait or a record */
    SPIPE_PRIV_OP_COPY,       /* one copy */
    SPIPE_PRIV_OP_CALL,       /* a stage is called */
    SPIPE_PRIV_OP_BATCH,      /* all stages are called for each chunk of a batch */
    SPIPE_PRIV_OP_COPIES,     /* the num copies that follow, in one call */
    SPIPE_PRIV_OP_FILLED,     /* the calling thread waits until the slot is filled */
    SPIPE_PRIV_OP_DRAINED,    /* ... until the slot's batch before is drained */
    SPIPE_PRIV_OP_HALO,       /* a copy in with the edges of a halo */
    SPIPE_PRIV_OP_HOST_BEGIN, /* a host stage may begin */
    SPIPE_PRIV_OP_HOST_END,   /* the calling thread waits until it has ended */
    SPIPE_PRIV_OP_IN_END,     /* the copies in are issued */
    SPIPE_PRIV_OP_SYNC,       /* a checked run: wait for the stream, and look at what a stage did */
    SPIPE_PRIV_OP_CHECKED_CALL, /* a checked run: a stage is called, guards around its buffers */
    SPIPE_PRIV_OP_WATCHED = 32  /* or-ed where a timeline watches, so that others need not ask */
};

/* What a checked run counts when it has waited for a step. */
enum {
    SPIPE_PRIV_COUNTS_NOTHING,
    SPIPE_PRIV_COUNTS_COPIED_IN, /* the slot may be filled again */
    SPIPE_PRIV_COUNTS_DRAINABLE, /* the slot may be drained */
    SPIPE_PRIV_COUNTS_WHOLE      /* the batch is whole */
};

/* Where operations are written to; beyond capacity they are only counted. */
typedef struct spipe_priv_writer {
    spipe_priv_pipeline_t *p;
    size_t row, num_ops;
    spipe_priv_slot_t *slot;
    spipe_priv_op_t *last; /* of this step, or NULL */
    spipe_priv_op_t spare;
    int step;
} spipe_priv_writer_t;

/* An action; it takes over a wait that stands alone before it in its stream. */
SPIPE_PRIV_RARE spipe_priv_op_t *spipe_priv_write(spipe_priv_writer_t *w, int what, int stage,
                                                  cudaStream_t stream) {
    spipe_priv_program_t *g = &w->p->program;
    spipe_priv_op_t *op = w->last;
    const int only_wait = op && op->what == SPIPE_PRIV_OP_NONE && op->stream == stream && !op->done;
    if (!only_wait || what == SPIPE_PRIV_OP_NONE) {
        op = w->num_ops < g->capacity ? &g->ops[w->num_ops] : &w->spare;
        memset(op, 0, sizeof *op);
        ++w->num_ops;
    }
    op->what = what && g->watched ? what | SPIPE_PRIV_OP_WATCHED : what;
    op->step = w->step;
    op->stage = stage;
    op->stream = stream;
    w->last = op;
    return op;
}

/* A stream waits for an event of another, from a batch on; within one stream order does it. */
SPIPE_PRIV_RARE void spipe_priv_write_wait(spipe_priv_writer_t *w, int stage, cudaStream_t stream,
                                           cudaStream_t other, cudaEvent_t event, size_t since) {
    spipe_priv_op_t *op;
    if (stream == other) return;
    op = spipe_priv_write(w, SPIPE_PRIV_OP_NONE, stage, stream);
    op->wait = event;
    op->since = since;
}

SPIPE_PRIV_RARE void spipe_priv_write_record(spipe_priv_writer_t *w, int stage, cudaStream_t stream,
                                             cudaEvent_t event) {
    if (!event) return;
    if (!w->last || w->last->stream != stream || w->last->done) {
        (void)spipe_priv_write(w, SPIPE_PRIV_OP_NONE, stage, stream);
    }
    w->last->done = event;
}

/* A copy between what stages see and a pinned twin of it (pin), or else the user's own array. A
   twin that is read for the device, or by a host stage, has the halo, too; one that a host stage
   only writes has its own elements. */
SPIPE_PRIV_RARE void spipe_priv_write_copy(spipe_priv_writer_t *w, int stage, int i,
                                           unsigned char *pin, int out, cudaStream_t stream) {
    const spipe_priv_request_t *r = &w->p->request;
    const spipe_buffer_desc_t *b = &r->desc.buffers[i];
    spipe_priv_op_t *op = spipe_priv_write(w, SPIPE_PRIV_OP_COPY, stage, stream);
    const int zero_copy = w->p->route.path[i] == SPIPE_PRIV_PATH_ZERO_COPY;
    const unsigned reads = stage >= 0 ? r->desc.stages[stage].reads >> i & 1 : !out;
    const int window = pin && reads;
    const size_t bytes = b->elem_bytes, before = window ? b->halo_before * bytes : 0;
    unsigned char *dev = zero_copy ? r->arrays[i].mapped : (unsigned char *)w->slot->view.data[i];
    unsigned char *host = pin ? pin : (unsigned char *)b->host;
    const size_t host_moves = pin ? 0 : bytes;
    const size_t dev_moves = zero_copy ? bytes : 0;
    op->out = out;
    op->elem_bytes = bytes;
    op->more = window ? (b->halo_before + b->halo_after) * bytes : 0;
    op->to = (out ? host : dev) - before;
    op->from = (out ? dev : host) - before;
    op->to_elem = out ? host_moves : dev_moves;
    op->from_elem = out ? dev_moves : host_moves;
}

/* How a buffer is copied this way. */
enum {
    SPIPE_PRIV_NOT_COPIED,
    SPIPE_PRIV_ONE_COPY,
    SPIPE_PRIV_COPY_WITH_EDGES
};

SPIPE_PRIV_RARE int spipe_priv_how_copied(const spipe_priv_writer_t *w, int i, int out) {
    const spipe_buffer_desc_t *b = &w->p->request.desc.buffers[i];
    if (!w->slot->dev[i]) return SPIPE_PRIV_NOT_COPIED;
    if (out) return spipe_priv_goes_out(b) ? SPIPE_PRIV_ONE_COPY : SPIPE_PRIV_NOT_COPIED;
    if (!spipe_priv_goes_in(b) || b->on_device) return SPIPE_PRIV_NOT_COPIED;
    if (w->slot->pin_in[i] || !(b->halo_before || b->halo_after)) return SPIPE_PRIV_ONE_COPY;
    return SPIPE_PRIV_COPY_WITH_EDGES;
}

/* All copies of one direction. Several in one call lose less time between them: 1.5 x as fast for
   two of 64 KiB, 1.1 x for 1 MiB (H200, tests/bench/NOTES.md). */
SPIPE_PRIV_RARE void spipe_priv_write_copies(spipe_priv_writer_t *w, int out, cudaStream_t stream) {
    unsigned char **twins = out ? w->slot->pin_out : w->slot->pin_in;
    int i, num = 0;
    for (i = 0; i < w->p->request.desc.num_buffers; ++i) {
        const int how = spipe_priv_how_copied(w, i, out);
        if (how == SPIPE_PRIV_COPY_WITH_EDGES) spipe_priv_write(w, SPIPE_PRIV_OP_HALO, i, stream);
        num += how == SPIPE_PRIV_ONE_COPY;
    }
    if (num > 1) spipe_priv_write(w, SPIPE_PRIV_OP_COPIES, -1, stream)->num = num;
    for (i = 0; i < w->p->request.desc.num_buffers; ++i) {
        if (spipe_priv_how_copied(w, i, out) != SPIPE_PRIV_ONE_COPY) continue;
        spipe_priv_write_copy(w, -1, i, twins[i], out, stream);
    }
}

SPIPE_PRIV_RARE cudaStream_t spipe_priv_stage_stream(const spipe_priv_writer_t *w, int s) {
    return spipe_priv_stream_for(w->p, w->row, SPIPE_PRIV_ON_CHAIN + w->p->route.chain[s]);
}

SPIPE_PRIV_RARE void spipe_priv_write_in(spipe_priv_writer_t *w) {
    spipe_priv_pipeline_t *p = w->p;
    const cudaStream_t in = spipe_priv_stream_for(p, w->row, SPIPE_PRIV_ON_IN);
    const cudaStream_t out = spipe_priv_stream_for(p, w->row, SPIPE_PRIV_ON_OUT);
    const int fills = p->route.refill != SPIPE_PRIV_REFILL_NEVER;
    if (fills) spipe_priv_write(w, SPIPE_PRIV_OP_FILLED, -1, in);
    spipe_priv_write_wait(w, -1, in, out, w->slot->out_done, p->plan.depth);
    if (p->route.drains && p->plan.schedule == SPIPE_ZERO_COPY) {
        spipe_priv_write(w, SPIPE_PRIV_OP_DRAINED, -1, in);
    }
    spipe_priv_write_copies(w, 0, in);
    if (!p->run.one_stream || fills) spipe_priv_write_record(w, -1, in, w->slot->in_done);
    if (fills) spipe_priv_write(w, SPIPE_PRIV_OP_IN_END, -1, in);
}

/* A stage's stream waits for the stages before it, or the copies in; an ordered stage waits for
   the batch before, too. */
SPIPE_PRIV_RARE void spipe_priv_write_waits(spipe_priv_writer_t *w, int s, cudaStream_t stream) {
    spipe_priv_pipeline_t *p = w->p;
    const size_t before = (w->row + p->program.num_rows - 1) % p->program.num_rows;
    int i;
    if (p->route.after[s] == 0) {
        spipe_priv_write_wait(w, s, stream, spipe_priv_stream_for(p, w->row, SPIPE_PRIV_ON_IN),
                              w->slot->in_done, 0);
    }
    for (i = 0; i < p->request.desc.num_stages; ++i) {
        if (!(p->route.after[s] & SPIPE_BIT(i))) continue;
        spipe_priv_write_wait(w, s, stream, spipe_priv_stage_stream(w, i), w->slot->stage_done[i],
                              0);
    }
    if (p->request.desc.stages[s].ordered) {
        spipe_priv_write_wait(
            w, s, stream, spipe_priv_stream_for(p, before, SPIPE_PRIV_ON_CHAIN + p->route.chain[s]),
            p->memory.slots[before % p->plan.depth].stage_done[s], 1);
    }
}

/* The buffers that a host stage reads are brought to its mirror, or those it wrote back. */
SPIPE_PRIV_RARE void spipe_priv_write_mirror(spipe_priv_writer_t *w, int s, unsigned mask, int out,
                                             cudaStream_t stream) {
    int i;
    for (i = 0; mask; ++i, mask >>= 1) {
        if (mask & 1) spipe_priv_write_copy(w, s, i, w->slot->mirror[s][i], out, stream);
    }
}

SPIPE_PRIV_RARE void spipe_priv_write_stage(spipe_priv_writer_t *w, int s) {
    spipe_priv_pipeline_t *p = w->p;
    const cudaStream_t stream = spipe_priv_stage_stream(w, s);
    const int checked = p->request.desc.checked;
    spipe_priv_write_waits(w, s, stream);
    if (p->plan.batch == 1)
        spipe_priv_write(w, checked ? SPIPE_PRIV_OP_CHECKED_CALL : SPIPE_PRIV_OP_CALL, s, stream);
    else if (s == p->route.steps[1].stage)
        spipe_priv_write(w, SPIPE_PRIV_OP_BATCH, s, stream);
    if (!p->run.one_stream) spipe_priv_write_record(w, s, stream, w->slot->stage_done[s]);
}

SPIPE_PRIV_RARE void spipe_priv_write_host_begin(spipe_priv_writer_t *w, int s) {
    const cudaStream_t stream = spipe_priv_stage_stream(w, s);
    spipe_priv_write_waits(w, s, stream);
    spipe_priv_write_mirror(w, s, w->p->request.desc.stages[s].reads, 1, stream);
    spipe_priv_write(w, SPIPE_PRIV_OP_HOST_BEGIN, s, stream);
}

SPIPE_PRIV_RARE void spipe_priv_write_host_end(spipe_priv_writer_t *w, int s) {
    const cudaStream_t stream = spipe_priv_stage_stream(w, s);
    spipe_priv_write(w, SPIPE_PRIV_OP_HOST_END, s, stream);
    spipe_priv_write_mirror(w, s, w->p->request.desc.stages[s].writes, 0, stream);
    spipe_priv_write_record(w, s, stream, w->slot->stage_done[s]);
}

SPIPE_PRIV_RARE void spipe_priv_write_out(spipe_priv_writer_t *w) {
    spipe_priv_pipeline_t *p = w->p;
    const cudaStream_t out = spipe_priv_stream_for(p, w->row, SPIPE_PRIV_ON_OUT);
    int i;
    if (p->route.drains && p->plan.schedule != SPIPE_ZERO_COPY) {
        spipe_priv_write(w, SPIPE_PRIV_OP_DRAINED, -1, out);
    }
    for (i = 0; i < p->request.desc.num_stages; ++i) {
        if (!(p->route.leaves & SPIPE_BIT(i))) continue;
        spipe_priv_write_wait(w, -1, out, spipe_priv_stage_stream(w, i), w->slot->stage_done[i], 0);
    }
    spipe_priv_write_copies(w, 1, out);
    spipe_priv_write_record(w, -1, out, w->slot->out_done);
}

SPIPE_PRIV_RARE void spipe_priv_write_step(spipe_priv_writer_t *w, int s) {
    switch (w->step) {
    case SPIPE_PRIV_STEP_IN: spipe_priv_write_in(w); break;
    case SPIPE_PRIV_STEP_OUT: spipe_priv_write_out(w); break;
    case SPIPE_PRIV_STEP_STAGE: spipe_priv_write_stage(w, s); break;
    case SPIPE_PRIV_STEP_HOST_BEGIN: spipe_priv_write_host_begin(w, s); break;
    default: spipe_priv_write_host_end(w, s); break;
    }
}

SPIPE_PRIV_RARE int spipe_priv_counts_after(const spipe_priv_pipeline_t *p, int step) {
    const int refills = p->route.refill == SPIPE_PRIV_REFILL_COPIED_IN;
    if (step == SPIPE_PRIV_STEP_IN && refills) return SPIPE_PRIV_COUNTS_COPIED_IN;
    if (step != SPIPE_PRIV_STEP_OUT) return SPIPE_PRIV_COUNTS_NOTHING;
    return p->route.drains ? SPIPE_PRIV_COUNTS_DRAINABLE : SPIPE_PRIV_COUNTS_WHOLE;
}

SPIPE_PRIV_RARE void spipe_priv_write_row(spipe_priv_writer_t *w) {
    spipe_priv_pipeline_t *p = w->p;
    spipe_priv_program_t *g = &p->program;
    const size_t before = w->num_ops;
    int i;
    for (i = 0; i < p->route.num_steps; ++i) {
        const int s = p->route.steps[i].stage, what = (int)p->route.steps[i].what;
        const int on = s >= 0 ? SPIPE_PRIV_ON_CHAIN + p->route.chain[s]
                              : what == SPIPE_PRIV_STEP_OUT; /* ON_IN, ON_OUT */
        g->step_start[i] = w->num_ops - before;
        w->last = NULL;
        w->step = what;
        spipe_priv_write_step(w, s);
        if (!p->request.desc.checked) continue;
        spipe_priv_write(w, SPIPE_PRIV_OP_SYNC, s, spipe_priv_stream_for(p, w->row, on))->counts =
            spipe_priv_counts_after(p, what);
    }
    g->num_ops = g->step_start[i] = w->num_ops - before;
}

/* Whether the copies of one direction may go in one call: pageable memory gains nothing, and a
   sanitizer does not see them. */
SPIPE_PRIV_RARE int spipe_priv_copies_together(const spipe_priv_pipeline_t *p) {
    if (p->route.pageable_copies || p->request.sanitized) return 0;
    return p->request.facts.driver_version >= 12080;
}

/* Writes the program for the streams in use; all rows have the same number of operations. Returns
   how many there are in all. */
SPIPE_PRIV_RARE size_t spipe_priv_write_program(spipe_priv_pipeline_t *p) {
    spipe_priv_program_t *g = &p->program;
    spipe_priv_writer_t w;
    memset(&w, 0, sizeof w);
    w.p = p;
    g->one_stream = p->run.one_stream;
    g->watched = p->request.desc.timeline != NULL;
    g->copies_together = spipe_priv_copies_together(p);
    g->turns = p->plan.schedule == SPIPE_ENGINES && !p->run.one_stream &&
               p->route.refill == SPIPE_PRIV_REFILL_NEVER;
    g->checkpoint_width = 1;
    if (spipe_priv_stream_a_slot(&p->plan) && !p->request.desc.progress) {
        g->checkpoint_width = p->plan.depth;
    }
    g->checkpoint_mask = p->request.desc.progress ? 0 : SPIPE_PRIV_CHECKPOINT_EVERY - 1;
    g->checkpoint_from = g->checkpoint_mask + 1 - g->checkpoint_width;
    g->num_rows = p->plan.depth << (p->plan.depth % 2);
    for (w.row = 0; w.row < g->num_rows; ++w.row) {
        w.slot = &p->memory.slots[w.row % p->plan.depth];
        spipe_priv_write_row(&w);
    }
    return w.num_ops;
}

/* Memory for the operations of the most streams there can be, so that a run need not ask for
   more. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_arrange_program(spipe_priv_pipeline_t *p) {
    spipe_priv_program_t *g = &p->program;
    const int one_stream = p->run.one_stream;
    size_t num;
    if (p->request.kept) p->run.one_stream = p->plan.schedule == SPIPE_SERIAL;
    num = spipe_priv_write_program(p);
    p->run.one_stream = one_stream;
    if (num > g->capacity) {
        spipe_priv_op_t *more = (spipe_priv_op_t *)realloc((void *)g->ops, num * sizeof *more);
        if (!more) return cudaErrorMemoryAllocation;
        g->ops = more;
        g->capacity = num;
    }
    (void)spipe_priv_write_program(p);
    return cudaSuccess;
}

/* Whether the program is written for the run to come. */
SPIPE_PRIV_RARE int spipe_priv_program_fits(const spipe_priv_pipeline_t *p) {
    return p->program.one_stream == p->run.one_stream &&
           p->program.watched == (p->request.desc.timeline != NULL);
}

/* ---- src/private/workers.h ---- */
/* ---- 13 execute: workers -------------------------------------------------------------------
   The threads that fill slots, drain them and run host stages; posting tasks to them. Knows tasks
   only by number; what they do is in hostwork.h. Writes spipe_priv_workers_t. */

/* Does a task; in hostwork.h. */
SPIPE_PRIV_RARE void spipe_priv_do_task(spipe_priv_pipeline_t *p, spipe_priv_task_t t);

/* Lies down until there is work; called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_park(spipe_priv_sync_t *s, spipe_priv_worker_t **list,
                                     spipe_priv_worker_t *w) {
    w->woken = 0;
    w->next = *list;
    *list = w;
    while (!w->woken) spipe_priv_cond_wait(&w->work, &s->lock);
}

/* Wakes the worker that parked last; called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_wake_one(spipe_priv_worker_t **list) {
    spipe_priv_worker_t *w = *list;
    if (!w) return;
    *list = w->next;
    w->woken = 1;
    spipe_priv_cond_signal(&w->work);
}

SPIPE_PRIV_RARE void spipe_priv_wake_all(spipe_priv_queue_t *q) {
    while (q->parked) spipe_priv_wake_one(&q->parked);
    while (q->barred) spipe_priv_wake_one(&q->barred);
}

/* Whether the oldest task of a queue can be done now: a slot is filled again once its copy in has
   ended, and drained once its copy out has. Called with the lock held. */
SPIPE_PRIV_RARE int spipe_priv_is_ready(const spipe_priv_pipeline_t *p,
                                        const spipe_priv_queue_t *q) {
    const spipe_priv_task_t *t = &q->tasks[q->head];
    if (q->num_tasks == 0) return 0; /* between runs the plan may be changing */
    if (t->what == SPIPE_PRIV_DRAIN) return t->batch < p->run.at.polled_out;
    if (t->what != SPIPE_PRIV_FILL || p->route.refill != SPIPE_PRIV_REFILL_COPIED_IN) return 1;
    return t->batch < p->plan.depth + p->run.at.polled_in;
}

/* 1 = what goes before an event of batch number *polled has ended; -1 = with an error, and so has
   the run. That number is read again for the error: while a thread that asks is held up, others go
   on, and CUDA returns an error of the GPU for any event. */
SPIPE_PRIV_RARE int spipe_priv_poll_event(spipe_priv_pipeline_t *p, cudaEvent_t event,
                                          const size_t *polled) {
    const cudaError_t e = spipe_priv_query(event);
    if (spipe_priv_reached(e)) return 1;
    if (e == cudaErrorNotReady) return 0;
    (void)spipe_priv_check_step(p, e, -1, spipe_priv_locked_get(p, polled),
                                "a stage or copy (a checked run tells which)");
    return -1;
}

/* A caller who helps does the first batch to fill and the last one to drain himself: nobody comes
   sooner. */
SPIPE_PRIV_RARE int spipe_priv_is_callers(const spipe_priv_pipeline_t *p,
                                          const spipe_priv_task_t *t) {
    if (!p->plan.caller_helps) return 0;
    return (t->what == SPIPE_PRIV_FILL && t->batch == 0) ||
           (t->what == SPIPE_PRIV_DRAIN && t->batch + 1 == p->run.num_batches);
}

/* Wakes a worker for the oldest task of a queue, if it can be done now. Called with the lock
   held. */
SPIPE_PRIV_RARE void spipe_priv_wake_if_ready(const spipe_priv_pipeline_t *p,
                                              spipe_priv_queue_t *q) {
    if (!spipe_priv_is_ready(p, q) || spipe_priv_is_callers(p, &q->tasks[q->head])) return;
    spipe_priv_wake_one(&q->parked);
}

/* Counts batches whose copies have ended that tasks of a kind wait for. Who asked among the workers
   does the task that may follow himself. */
SPIPE_PRIV_RARE void spipe_priv_count_polled(spipe_priv_pipeline_t *p, int what, size_t batches) {
    size_t *polled = what == SPIPE_PRIV_FILL ? &p->run.at.polled_in : &p->run.at.polled_out;
    spipe_priv_queue_t *q = &p->workers.queues[what];
    spipe_priv_lock(p->sync);
    if (*polled < batches) *polled = batches;
    if (!q->polling) spipe_priv_wake_if_ready(p, q);
    spipe_priv_unlock(p->sync);
}

/* Asks whether these copies have ended of one batch more; after an error, too, as then nobody
   drains. Returns whether they have. In a checked run the calling thread waits for each step
   itself, and meets its errors: before one, nobody asks. */
SPIPE_PRIV_RARE int spipe_priv_ask(spipe_priv_pipeline_t *p, int what) {
    const int in = what == SPIPE_PRIV_FILL;
    const size_t *issued = in ? &p->run.at.issued_in : &p->run.at.issued_out;
    const size_t *polled = in ? &p->run.at.polled_in : &p->run.at.polled_out;
    const size_t batch = spipe_priv_locked_get(p, polled);
    const spipe_priv_slot_t *slot = &p->memory.slots[batch % p->plan.depth];
    if (batch >= spipe_priv_locked_get(p, issued)) return 0;
    if (p->request.desc.checked && !spipe_priv_locked_get(p, &p->run.failed)) return 0;
    if (spipe_priv_poll_event(p, in ? slot->in_done : slot->out_done, polled) == 0) return 0;
    spipe_priv_count_polled(p, what, batch + 1);
    return 1;
}

/* Whether workers ask, or the calling thread does: CUDA takes long over a thread's first call,
   which only a long run repays. Called with the lock held. */
SPIPE_PRIV_RARE int spipe_priv_workers_ask(const spipe_priv_pipeline_t *p,
                                           const spipe_priv_queue_t *q) {
    const int in = q == &p->workers.queues[SPIPE_PRIV_FILL];
    const size_t polled = in ? p->run.at.polled_in : p->run.at.polled_out;
    if (p->request.desc.resources) return 1; /* lent threads have called it before */
    return p->request.kept || polled >= SPIPE_PRIV_LONG_RUN * q->num_threads;
}

/* One worker at a time asks for the oldest task of its queue, so that the calling thread need not
   and others can sleep; before it does that task it wakes the next one to ask. *asked: whether it
   ever did. Called and returns with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_poll_copy(spipe_priv_pipeline_t *p, spipe_priv_queue_t *q,
                                          int *asked) {
    const int what = q->tasks[q->head].what;
    q->polling = 1;
    spipe_priv_unlock(p->sync);
    if (!*asked) (void)cudaSetDevice(p->request.device); /* or a call would start another one */
    *asked = 1;
    if (!spipe_priv_ask(p, what)) spipe_priv_yield(&q->busy_until);
    spipe_priv_lock(p->sync);
    q->polling = 0;
    if (spipe_priv_is_ready(p, q) && q->num_tasks > 1) spipe_priv_wake_one(&q->parked);
}

/* Does the oldest task of a queue; called and returns with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_do_next(spipe_priv_pipeline_t *p, spipe_priv_queue_t *q) {
    const spipe_priv_task_t t = q->tasks[q->head];
    q->head = (q->head + 1) % SPIPE_PRIV_QUEUE;
    --q->num_tasks;
    ++q->num_busy;
    spipe_priv_unlock(p->sync);
    spipe_priv_do_task(p, t);
    spipe_priv_lock(p->sync);
    --q->num_busy;
}

SPIPE_PRIV_RARE void *spipe_priv_worker_thread(void *arg) {
    spipe_priv_queue_t *q = (spipe_priv_queue_t *)arg;
    spipe_priv_pipeline_t *p = q->pipeline;
    spipe_priv_worker_t *w;
    size_t number;
    spipe_priv_model_worker();
    spipe_priv_stay_on_node(p->request.facts.numa_node);
    if (q == &p->workers.queues[SPIPE_PRIV_HOST]) (void)cudaSetDevice(p->request.device);
    spipe_priv_lock(p->sync);
    number = q->num_begun++;
    w = &q->workers[number];
    spipe_priv_cond_create(&w->work);
    while (!p->workers.quit) {
        if (number >= q->limit) {
            spipe_priv_wake_one(&q->parked); /* to ask, which this one may have done until now */
            spipe_priv_park(p->sync, &q->barred, w);
        } else if (spipe_priv_is_ready(p, q))
            spipe_priv_do_next(p, q);
        else if (q->num_tasks > 0 && !q->polling && spipe_priv_workers_ask(p, q))
            spipe_priv_poll_copy(p, q, &w->asked);
        else
            spipe_priv_park(p->sync, &q->parked, w);
    }
    spipe_priv_unlock(p->sync);
    spipe_priv_cond_destroy(&w->work);
    return NULL;
}

/* Hands out a task. Where it has to wait for a copy, a worker is woken only to ask for that. */
SPIPE_PRIV_RARE void spipe_priv_post(spipe_priv_pipeline_t *p, int what, int stage, size_t batch) {
    const int number = what == SPIPE_PRIV_TOUCH ? (int)(batch % 2) : what;
    spipe_priv_queue_t *q = &p->workers.queues[number];
    spipe_priv_task_t *t;
    int ask;
    spipe_priv_lock(p->sync);
    if (what != SPIPE_PRIV_FILL || batch < p->run.num_batches) {
        if (what != SPIPE_PRIV_HOST) spipe_priv_model_post(p, what, stage, batch);
        t = &q->tasks[(q->head + q->num_tasks++) % SPIPE_PRIV_QUEUE];
        t->what = what;
        t->stage = stage;
        t->batch = batch;
        ask = !q->polling && spipe_priv_workers_ask(p, q);
        if ((ask || spipe_priv_is_ready(p, q)) && !spipe_priv_is_callers(p, t)) {
            spipe_priv_wake_one(&q->parked);
        }
    }
    spipe_priv_unlock(p->sync);
}

/* Once its copies out are issued. */
SPIPE_PRIV_RARE void spipe_priv_post_drain(spipe_priv_pipeline_t *p, size_t batch) {
    spipe_priv_locked_set(p, &p->run.at.issued_out, batch + 1);
    spipe_priv_post(p, SPIPE_PRIV_DRAIN, -1, batch);
}

/* Posts a host stage for a batch. An ordered one is posted when the batch before has left it, so no
   worker ever waits for a turn while there is other work. */
SPIPE_PRIV_RARE void spipe_priv_post_host(spipe_priv_pipeline_t *p, int stage, size_t batch) {
    int ready;
    spipe_priv_model_post(p, SPIPE_PRIV_HOST, stage, batch);
    spipe_priv_lock(p->sync);
    p->run.at.host_begun[stage] = batch + 1;
    ready = !p->request.desc.stages[stage].ordered || p->run.at.host_left[stage] == batch;
    spipe_priv_unlock(p->sync);
    if (ready) spipe_priv_post(p, SPIPE_PRIV_HOST, stage, batch);
}

/* A batch has left a host stage. */
SPIPE_PRIV_RARE void spipe_priv_left_host(spipe_priv_pipeline_t *p, int stage, size_t batch) {
    int next;
    spipe_priv_lock(p->sync);
    p->memory.slots[batch % p->plan.depth].host_done[stage] = batch + 1;
    p->run.at.host_left[stage] = batch + 1;
    next = p->request.desc.stages[stage].ordered && p->run.at.host_begun[stage] > batch + 1;
    spipe_priv_wake(p->sync);
    spipe_priv_unlock(p->sync);
    if (next) spipe_priv_post(p, SPIPE_PRIV_HOST, stage, batch + 1);
}

/* Threads of each kind: what the plan wants, or the run's share of them. */
SPIPE_PRIV_RARE void spipe_priv_wanted_threads(spipe_priv_pipeline_t *p, size_t wanted[]) {
    wanted[SPIPE_PRIV_FILL] = p->plan.fill_threads;
    wanted[SPIPE_PRIV_DRAIN] = p->plan.drain_threads;
    wanted[SPIPE_PRIV_HOST] = p->plan.host_threads;
    if (p->provider) p->provider->share(p, wanted);
}

/* Memory for the queues, once there is host work. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_create_queues(spipe_priv_pipeline_t *p) {
    const size_t ring = SPIPE_PRIV_QUEUE * sizeof(spipe_priv_task_t);
    const size_t workers = SPIPE_MAX_THREADS * sizeof(spipe_priv_worker_t);
    unsigned char *at;
    int i;
    if (p->workers.block || !p->route.host_work) return cudaSuccess;
    at = (unsigned char *)calloc(SPIPE_PRIV_NUM_QUEUES, ring + workers);
    if (!at) return cudaErrorMemoryAllocation;
    p->workers.block = at;
    for (i = 0; i < SPIPE_PRIV_NUM_QUEUES; ++i, at += ring + workers) {
        spipe_priv_queue_t *q = &p->workers.queues[i];
        q->pipeline = p;
        q->tasks = (spipe_priv_task_t *)(void *)at;
        q->workers = (spipe_priv_worker_t *)(void *)(at + ring);
    }
    return cudaSuccess;
}

SPIPE_PRIV_RARE void spipe_priv_start_queue(spipe_priv_pipeline_t *p, spipe_priv_queue_t *q,
                                            size_t wanted) {
    size_t k;
    if (wanted > p->plan.depth) wanted = p->plan.depth;
    for (k = q->num_threads; k < wanted; ++k) {
        void *thread = p->provider ? p->provider->start_thread(p->request.desc.resources,
                                                               spipe_priv_worker_thread, q)
                                   : spipe_priv_thread_start(spipe_priv_worker_thread, q);
        if (!thread) break;
        spipe_priv_model_started();
        spipe_priv_lock(p->sync);
        q->threads[q->num_threads++] = thread;
        spipe_priv_unlock(p->sync);
    }
    spipe_priv_lock(p->sync);
    if (q->limit != wanted) {
        q->limit = wanted;
        spipe_priv_wake_all(q); /* each looks on which side of the limit it is */
    }
    spipe_priv_unlock(p->sync);
}

/* Starts the threads that the plan wants and that do not run yet; fewer, down to none, will do. */
SPIPE_PRIV_RARE void spipe_priv_start_workers(spipe_priv_pipeline_t *p) {
    size_t wanted[SPIPE_PRIV_NUM_QUEUES];
    int i;
    spipe_priv_wanted_threads(p, wanted);
    if (!p->workers.block || wanted[0] + wanted[1] + wanted[2] == 0) return;
    if (p->sync->single_threaded) p->sync->single_threaded = 0; /* there is no other thread yet */
    if (!p->workers.started) {
        p->workers.started = 1;
        if (!p->request.desc.resources) {
            p->request.facts.numa_node = spipe_priv_numa_node(p->request.device);
        }
    }
    if (p->request.cpus == 0) p->request.cpus = spipe_priv_num_cpus();
    p->workers.all_cpus = wanted[0] + wanted[1] >= p->request.cpus;
    for (i = 0; i < SPIPE_PRIV_NUM_QUEUES; ++i) {
        spipe_priv_start_queue(p, &p->workers.queues[i], wanted[i]);
    }
}

SPIPE_PRIV_RARE void spipe_priv_stop_workers(spipe_priv_pipeline_t *p) {
    size_t k;
    int i;
    for (i = 0; i < SPIPE_PRIV_NUM_QUEUES && p->workers.block; ++i) {
        spipe_priv_queue_t *q = &p->workers.queues[i];
        spipe_priv_lock(p->sync);
        p->workers.quit = 1;
        spipe_priv_wake_all(q);
        spipe_priv_unlock(p->sync);
        for (k = q->num_threads; k > 0;) {
            void *thread = q->threads[--k];
            if (p->provider)
                p->provider->join_thread(p->request.desc.resources, thread);
            else
                spipe_priv_thread_join(thread);
        }
        q->num_threads = 0;
    }
    spipe_priv_model_free(p);
    free(p->workers.block);
    p->workers.block = NULL;
}

/* Workers that may take tasks of this queue in this run. */
SPIPE_PRIV_RARE size_t spipe_priv_num_workers(const spipe_priv_queue_t *q) {
    return q->num_threads < q->limit ? q->num_threads : q->limit;
}

/* Whether a waiting caller should help with a queue: its workers are missing or take all CPUs, or
   the plan says so, but then it drains only when CUDA need not be asked about more. Where one
   thread at a time is let in, to host stages, sources and sinks, the caller comes only if there is
   no worker: a source may wait for what a sink has had, and nobody else issues. Called with the
   lock held. */
SPIPE_PRIV_RARE int spipe_priv_may_help(const spipe_priv_pipeline_t *p, int i) {
    const int all_polled = p->run.at.polled_out >= p->run.num_batches;
    int help = p->workers.all_cpus && i != SPIPE_PRIV_HOST && !p->route.sequential;
    if (p->plan.caller_helps && i != SPIPE_PRIV_HOST) help = i == SPIPE_PRIV_FILL || all_polled;
    return help || spipe_priv_num_workers(&p->workers.queues[i]) == 0;
}

/* A queue that it should help, and can; or NULL. */
SPIPE_PRIV_RARE spipe_priv_queue_t *spipe_priv_queue_to_help(spipe_priv_pipeline_t *p) {
    int i;
    for (i = 0; i < SPIPE_PRIV_NUM_QUEUES && p->workers.block; ++i) {
        spipe_priv_queue_t *q = &p->workers.queues[i];
        if (spipe_priv_may_help(p, i) && spipe_priv_is_ready(p, q)) return q;
    }
    return NULL;
}

/* Does a task where one should be helped with; returns 0 where there is none. */
SPIPE_PRIV_RARE int spipe_priv_help(spipe_priv_pipeline_t *p) {
    spipe_priv_queue_t *q;
    spipe_priv_lock(p->sync);
    q = spipe_priv_queue_to_help(p);
    if (q) spipe_priv_do_next(p, q);
    spipe_priv_unlock(p->sync);
    return q != NULL;
}

SPIPE_PRIV_RARE int spipe_priv_workers_busy(spipe_priv_pipeline_t *p) {
    int i, busy = 0;
    spipe_priv_lock(p->sync);
    for (i = 0; i < SPIPE_PRIV_NUM_QUEUES && p->workers.block; ++i) {
        const spipe_priv_queue_t *q = &p->workers.queues[i];
        busy |= q->num_tasks > 0 || q->num_busy > 0 || q->polling;
    }
    spipe_priv_unlock(p->sync);
    return busy;
}

/* ---- src/private/filling.h ---- */
/* ---- 13 execute: filling slots --------------------------------------------------------------
   Host arrays and sources into pinned slots, with the edges of halos. None of it knows which
   thread it is on. */

/* How many elements of a batch's window lie before the first and after the last of the whole. */
SPIPE_PRIV_RARE void spipe_priv_outside(const spipe_buffer_desc_t *b, size_t first, size_t count,
                                        size_t total, size_t *left, size_t *right) {
    const size_t end = first + count + b->halo_after;
    *left = first < b->halo_before ? b->halo_before - first : 0;
    *right = total != SPIPE_AUTO && end > total ? end - total : 0;
}

SPIPE_PRIV_RARE void spipe_priv_repeat(unsigned char *dst, size_t times,
                                       const unsigned char *element, const spipe_buffer_desc_t *b) {
    for (; times > 0; --times, dst += b->elem_bytes) {
        if (b->edge == SPIPE_EDGE_ZERO)
            memset(dst, 0, b->elem_bytes);
        else
            memcpy(dst, element, b->elem_bytes);
    }
}

/* Writes what lies beyond the ends into a window in host memory; data is its own first element. */
SPIPE_PRIV_RARE void spipe_priv_fill_edges(const spipe_buffer_desc_t *b, unsigned char *data,
                                           size_t first, size_t count, size_t total) {
    unsigned char *past;
    size_t left, right;
    spipe_priv_outside(b, first, count, total, &left, &right);
    spipe_priv_repeat(data - b->halo_before * b->elem_bytes, left, data, b);
    if (right == 0) return;
    past = data + (total - first) * b->elem_bytes;
    spipe_priv_repeat(past, right, past - b->elem_bytes, b);
}

/* memcpy by stores that pass the caches: memory need not read what is overwritten. */
SPIPE_API void spipe_priv_copy(unsigned char *to, const unsigned char *from, size_t n) {
#if SPIPE_PRIV_STREAM_STORES
    const size_t head = (16 - ((uintptr_t)to & 15)) & 15;
    if (n >= 65536) {
        memcpy(to, from, head);
        for (to += head, from += head, n -= head; n >= 16; to += 16, from += 16, n -= 16) {
            const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)from);
            _mm_stream_si128((__m128i *)(void *)to, a);
        }
        _mm_sfence();
    }
#endif
    memcpy(to, from, n);
}

/* The part of a batch's window that lies in the whole: n elements from number low on. */
SPIPE_PRIV_RARE void spipe_priv_inside(const spipe_buffer_desc_t *b, const spipe_priv_at_t *at,
                                       size_t total, size_t *low, size_t *n) {
    size_t left, right;
    spipe_priv_outside(b, at->first, at->count, total, &left, &right);
    *low = at->first - (b->halo_before - left);
    *n = at->first + at->count + b->halo_after - right - *low;
}

/* A ring that the cache holds is filled, and read by the GPU, there: in half the time. */
SPIPE_PRIV_RARE void spipe_priv_fill_array(const spipe_buffer_desc_t *b, unsigned char *data,
                                           const spipe_priv_at_t *at, size_t total, int cached) {
    const unsigned char *host = (const unsigned char *)b->host;
    size_t low, n;
    spipe_priv_inside(b, at, total, &low, &n);
    data -= (at->first - low) * b->elem_bytes;
    if (cached)
        memcpy(data, host + low * b->elem_bytes, n * b->elem_bytes);
    else
        spipe_priv_copy(data, host + low * b->elem_bytes, n * b->elem_bytes);
    SPIPE_PRIV_COPIED(n * b->elem_bytes, 0);
    data += (at->first - low) * b->elem_bytes;
    spipe_priv_fill_edges(b, data, at->first, at->count, total);
}

/* What to say of a source or sink that failed. */
SPIPE_PRIV_RARE const char *spipe_priv_reason(const spipe_buffer_desc_t *b,
                                              const spipe_priv_note_t *note, cudaError_t *e) {
    const char *why = b->why && note->error == cudaSuccess ? b->why(b->user) : NULL;
    return why ? why : spipe_priv_why(note, e);
}

/* Calls a positioned source for a chunk and its halo, as far as they lie in the whole. One that
   fills memory on the device has none. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_fill_part(spipe_priv_pipeline_t *p, int i,
                                                 const spipe_priv_at_t *at) {
    const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
    const size_t total = spipe_priv_locked_get(p, &p->run.total);
    unsigned char *data = b->on_device ? at->slot->dev[i] : at->slot->pin_in[i];
    size_t low, n;
    spipe_priv_note_t note;
    const char *why;
    cudaError_t e;
    memset(&note, 0, sizeof note);
    spipe_priv_inside(b, at, total, &low, &n);
    SPIPE_PRIV_CALL(NULL, &note.thrown, &note, e,
                    b->source_at(data - (at->first - low) * b->elem_bytes, low, n, b->user),
                    cudaErrorUnknown);
    SPIPE_PRIV_COPIED(n * b->elem_bytes, 0);
    if (e == cudaSuccess) {
        spipe_priv_fill_edges(b, data, at->first, at->count, total);
        return e;
    }
    why = spipe_priv_reason(b, &note, &e);
    return spipe_priv_fail_call(
        p, &note, e, -1, at->batch,
        "the source of buffer %d failed at chunk %zu (%zu elements from %zu): "
        "%s",
        i, at->position, n, low, why);
}

/* Calls a split source's work for the elements of a chunk, whose tickets were read in turn. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_fill_work(spipe_priv_pipeline_t *p, int i,
                                                 const spipe_priv_at_t *at) {
    const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
    spipe_priv_note_t note;
    const char *why;
    cudaError_t e;
    memset(&note, 0, sizeof note);
    SPIPE_PRIV_CALL(NULL, &note.thrown, &note, e,
                    b->work(at->slot->pin_in[i], spipe_priv_tickets(p, at->slot, i), at->first,
                            at->count, b->user),
                    cudaErrorUnknown);
    SPIPE_PRIV_COPIED(at->count * b->elem_bytes, 0);
    if (e == cudaSuccess) return e;
    why = spipe_priv_reason(b, &note, &e);
    return spipe_priv_fail_call(p, &note, e, -1, at->batch,
                                "the work of split source %d failed at chunk %zu (%zu elements "
                                "from %zu): %s",
                                i, at->position, at->count, at->first, why);
}

/* Reads up to want elements of a source, or tickets of a split one; fewer only at its end. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_read(spipe_priv_pipeline_t *p, int i, unsigned char *dst,
                                            size_t want, size_t batch) {
    const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
    const int endless = spipe_priv_endless(&p->request.desc);
    size_t *got = &p->run.sources[i].got;
    spipe_priv_note_t note;
    memset(&note, 0, sizeof note);
    if (!endless && want > p->run.total - *got) want = p->run.total - *got;
    while (want > 0 && !p->run.sources[i].ended) {
        size_t n = SIZE_MAX; /* not set yet */
        cudaError_t e;
        SPIPE_PRIV_CALL(NULL, &note.thrown, &note, e, b->source(dst, want, &n, b->user),
                        cudaErrorUnknown);
        if (e != cudaSuccess) {
            const char *why = spipe_priv_reason(b, &note, &e);
            return spipe_priv_fail_call(
                p, &note, e, -1, batch,
                "the source of buffer %d failed at chunk %zu (element %zu): %s", i,
                spipe_priv_position(p, batch), *got, why);
        }
        if (n == SIZE_MAX) {
            return spipe_priv_fail_call(p, &note, cudaErrorInvalidValue, -1, batch,
                                        "the source of buffer %d did not set *count; set it to the "
                                        "number of elements it gave, 0 at the end",
                                        i);
        }
        if (n > want) {
            return spipe_priv_fail_call(
                p, &note, cudaErrorInvalidValue, -1, batch,
                "the source of buffer %d said that it gave %zu elements where "
                "there was room for %zu",
                i, n, want);
        }
        if (n == 0) p->run.sources[i].ended = 1;
        SPIPE_PRIV_COPIED(n * spipe_priv_given_bytes(b), 0);
        *got += n;
        dst += n * spipe_priv_given_bytes(b);
        want -= n;
    }
    if (want == 0 || endless) return cudaSuccess;
    return spipe_priv_fail_call(
        p, &note, cudaErrorInvalidValue, -1, batch,
        "the source of buffer %d ended after %zu of %zu elements; leave count "
        "SPIPE_AUTO to run until the end",
        i, *got, p->request.desc.count);
}

/* A source's window: what it shares with the window before it is taken from there. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_fill_source(spipe_priv_pipeline_t *p, int i, size_t batch) {
    const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
    const size_t size = p->run.batch_elems, depth = p->plan.depth;
    const spipe_priv_slot_t *slot = &p->memory.slots[batch % depth];
    unsigned char *data = b->filler ? spipe_priv_tickets(p, slot, i) : slot->pin_in[i];
    const size_t shared = (b->halo_before + b->halo_after) * b->elem_bytes;
    unsigned char *base = data - b->halo_before * b->elem_bytes, *before;
    if (batch == 0 || p->run.positions) {
        p->run.sources[i].got = spipe_priv_position(p, batch) * size;
        p->run.sources[i].ended = 0;
        return spipe_priv_read(p, i, data, size + b->halo_after, batch);
    }
    before = p->memory.slots[(batch - 1) % depth].pin_in[i];
    if (shared > 0) {
        memmove(base, before - b->halo_before * b->elem_bytes + size * b->elem_bytes, shared);
    }
    return spipe_priv_read(p, i, base + shared, size, batch);
}

/* Where a source ended, all must have given as much; less only where the others' wider halo is
   read ahead. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_compare_sources(spipe_priv_pipeline_t *p, size_t batch,
                                                       size_t total) {
    spipe_priv_note_t note;
    int i;
    memset(&note, 0, sizeof note);
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        const size_t got = p->run.sources[i].got;
        if (p->request.desc.buffers[i].kind != SPIPE_SOURCE || got == total) continue;
        if (got < total && !p->run.sources[i].ended) continue;
        return spipe_priv_fail_call(
            p, &note, cudaErrorInvalidValue, -1, batch,
            "the sources disagree: one ended after %zu elements, buffer %d gave "
            "%zu",
            total, i, got);
    }
    return cudaSuccess;
}

/* Reads all sources for a batch, from buffer i on, finds the end, and writes their edges; in turn.
   Where a source that reads ahead told the end, the others are asked whether theirs is there, too.
 */
SPIPE_PRIV_RARE cudaError_t spipe_priv_fill_sources(spipe_priv_pipeline_t *p, int i,
                                                    const spipe_priv_at_t *at) {
    const size_t batch = at->batch, first = at->first;
    size_t total = spipe_priv_locked_get(p, &p->run.total), count;
    int ended = -1;
    if (spipe_priv_count_of(p, batch) == 0 && (first != total || p->run.positions)) {
        return cudaSuccess;
    }
    for (; i < p->request.desc.num_buffers; ++i) {
        if (p->request.desc.buffers[i].kind != SPIPE_SOURCE) continue;
        SPIPE_TRY(spipe_priv_fill_source(p, i, batch));
        if (p->run.sources[i].ended) ended = i;
    }
    if (ended >= 0) {
        if (total == SPIPE_AUTO) total = p->run.sources[ended].got;
        SPIPE_TRY(spipe_priv_compare_sources(p, batch, total));
        spipe_priv_locked_set(p, &p->run.total, total);
    }
    count = spipe_priv_count_of(p, batch);
    for (i = 0; i < p->request.desc.num_buffers && count > 0; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        if (b->kind != SPIPE_SOURCE) continue;
        spipe_priv_fill_edges(b, at->slot->pin_in[i], first, count, total);
    }
    return cudaSuccess;
}

/* Waits until it is this batch's turn: sources and sinks see chunks in order. */
SPIPE_PRIV_RARE void spipe_priv_take_turn(spipe_priv_pipeline_t *p, const size_t *turn,
                                          size_t batch) {
    spipe_priv_lock(p->sync);
    while (*turn != batch) spipe_priv_wait(p->sync);
    spipe_priv_unlock(p->sync);
}

/* Whether nothing need be read for a batch any more. */
SPIPE_API int spipe_priv_is_idle(spipe_priv_pipeline_t *p, size_t batch) {
    return spipe_priv_is_lost(p, batch) || spipe_priv_locked_get(p, &p->run.stop_asked);
}

/* The first buffer of a kind; -1 = there is none. */
SPIPE_PRIV_RARE int spipe_priv_first_of(const spipe_desc_t *d, spipe_kind_t kind) {
    int i;
    for (i = 0; i < d->num_buffers; ++i) {
        if (d->buffers[i].kind == kind) return i;
    }
    return -1;
}

/* Several GPUs: takes the next position for a batch whose slot is free, so that a slow GPU takes
   fewer. */
SPIPE_PRIV_RARE void spipe_priv_take_position(spipe_priv_pipeline_t *p, size_t batch) {
    const size_t depth = p->plan.depth;
    const int fills = p->route.refill != SPIPE_PRIV_REFILL_NEVER;
    if (batch >= depth && !fills &&
        cudaEventSynchronize(p->memory.slots[batch % depth].out_done) != cudaSuccess) {
        (void)cudaGetLastError(); /* an error of the GPU: what comes next will meet it */
    }
    p->run.positions[batch % SPIPE_PRIV_POSITIONS] = p->request.desc.hooks->next_batch(p, 0);
    spipe_priv_locked_set(p, &p->run.at.num_positions, batch + 1);
}

/* What became of reading the sources for a batch, for those who share them. */
enum {
    SPIPE_PRIV_READ_OK = 1,
    SPIPE_PRIV_NOT_READ,
    SPIPE_PRIV_READ_FAILED
};

SPIPE_PRIV_RARE int spipe_priv_read_sources(spipe_priv_pipeline_t *p, int source, size_t batch) {
    spipe_priv_at_t at;
    if (source < 0) return SPIPE_PRIV_READ_OK;
    if (spipe_priv_is_idle(p, batch)) return SPIPE_PRIV_NOT_READ;
    spipe_priv_locate(p, batch, &at);
    if (p->request.desc.buffers[source].caller(p, source, &at) == cudaSuccess) {
        return SPIPE_PRIV_READ_OK;
    }
    return SPIPE_PRIV_READ_FAILED;
}

/* What happens in turn: sources are read; several GPUs ask where the batch lies. */
SPIPE_PRIV_RARE void spipe_priv_fill_in_turn(spipe_priv_pipeline_t *p, size_t batch) {
    const int shared = p->run.positions != NULL;
    const int source = spipe_priv_first_of(&p->request.desc, SPIPE_SOURCE);
    int outcome;
    if (!shared && source < 0) return;
    spipe_priv_take_turn(p, &p->run.at.fill_turn, batch);
    if (shared) spipe_priv_take_position(p, batch);
    outcome = spipe_priv_read_sources(p, source, batch);
    if (shared) (void)p->request.desc.hooks->next_batch(p, outcome);
    spipe_priv_locked_set(p, &p->run.at.fill_turn, batch + 1);
}

SPIPE_PRIV_RARE void spipe_priv_fill(spipe_priv_pipeline_t *p, size_t batch) {
    spipe_priv_slot_t *slot = &p->memory.slots[batch % p->plan.depth];
    spipe_priv_at_t at;
    size_t total;
    int i;
    spipe_priv_fill_in_turn(p, batch);
    spipe_priv_locate(p, batch, &at);
    total = spipe_priv_locked_get(p, &p->run.total);
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        if (!slot->pin_in[i] && (b->kind != SPIPE_SOURCE_AT || !b->on_device)) continue;
        if (b->kind == SPIPE_SOURCE && !b->filler) continue;
        if (at.count == 0 || spipe_priv_is_idle(p, batch)) break;
        if (b->filler)
            (void)b->filler(p, i, &at);
        else if (b->kind == SPIPE_SOURCE_AT)
            (void)b->caller(p, i, &at);
        else
            spipe_priv_fill_array(b, slot->pin_in[i], &at, total, p->memory.ring_cached);
    }
    spipe_priv_locked_set(p, &slot->filled, batch + 1);
}

/* ---- src/private/hostwork.h ---- */
/* ---- 13 execute: draining slots and host stages ---------------------------------------------
   Pinned slots into host arrays and sinks; host stages; touching fresh memory. None of it knows
   which thread it is on. */

/* Hands a batch to a sink, in turn. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_drain_sink(spipe_priv_pipeline_t *p, int i,
                                                  const spipe_priv_at_t *at) {
    const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
    spipe_priv_note_t note;
    const char *why;
    cudaError_t e;
    memset(&note, 0, sizeof note);
    SPIPE_PRIV_CALL(NULL, &note.thrown, &note, e,
                    b->sink(at->slot->pin_out[i], at->count, at->first, b->user), cudaErrorUnknown);
    SPIPE_PRIV_COPIED(at->count * b->elem_bytes, 1);
    if (e == cudaSuccess) return e;
    why = spipe_priv_reason(b, &note, &e);
    return spipe_priv_fail_call(p, &note, e, -1, at->batch,
                                "the sink of buffer %d failed at chunk %zu (element %zu): %s", i,
                                at->position, at->first, why);
}

/* The same for a positioned sink, which may be called by several threads at once. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_drain_part(spipe_priv_pipeline_t *p, int i,
                                                  const spipe_priv_at_t *at) {
    const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
    spipe_priv_note_t note;
    const char *why;
    cudaError_t e;
    memset(&note, 0, sizeof note);
    SPIPE_PRIV_CALL(NULL, &note.thrown, &note, e,
                    b->sink_at(at->slot->pin_out[i], at->first, at->count, b->user),
                    cudaErrorUnknown);
    SPIPE_PRIV_COPIED(at->count * b->elem_bytes, 1);
    if (e == cudaSuccess) return e;
    why = spipe_priv_reason(b, &note, &e);
    return spipe_priv_fail_call(
        p, &note, e, -1, at->batch,
        "the sink of buffer %d failed at chunk %zu (%zu elements from %zu): %s", i, at->position,
        at->count, at->first, why);
}

/* All outputs of a batch but those that sinks get in turn (in_turn = 0), or these (1). Returns
   whether they are whole. */
SPIPE_PRIV_RARE int spipe_priv_drain_some(spipe_priv_pipeline_t *p, const spipe_priv_at_t *at,
                                          int in_turn) {
    int i;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        if (!at->slot->pin_out[i] || (b->kind == SPIPE_SINK) != in_turn) continue;
        if (b->caller && b->caller(p, i, at) != cudaSuccess) return 0;
        if (b->caller) continue;
        spipe_priv_copy((unsigned char *)b->host + at->first * b->elem_bytes, at->slot->pin_out[i],
                        at->count * b->elem_bytes);
        SPIPE_PRIV_COPIED(at->count * b->elem_bytes, 1);
    }
    return 1;
}

/* Nothing is drained after a failure at this batch or before it. */
SPIPE_PRIV_RARE void spipe_priv_drain(spipe_priv_pipeline_t *p, size_t batch) {
    const size_t depth = p->plan.depth;
    spipe_priv_at_t at;
    int ok = !spipe_priv_is_lost(p, batch);
    spipe_priv_locate(p, batch, &at);
    if (ok) ok = spipe_priv_drain_some(p, &at, 0);
    if (spipe_priv_first_of(&p->request.desc, SPIPE_SINK) >= 0) {
        spipe_priv_take_turn(p, &p->run.at.drain_turn, batch);
        ok = ok && !spipe_priv_is_lost(p, batch) && spipe_priv_drain_some(p, &at, 1);
    }
    spipe_priv_lock(p->sync);
    if (ok) at.slot->whole = batch + 1;
    while (p->memory.slots[p->run.at.completed % depth].whole == p->run.at.completed + 1) {
        ++p->run.at.completed;
    }
    p->run.at.drain_turn = batch + 1;
    at.slot->drained = batch + 1;
    spipe_priv_wake(p->sync);
    spipe_priv_unlock(p->sync);
}

SPIPE_PRIV_RARE void spipe_priv_call_host_stage(spipe_priv_pipeline_t *p,
                                                const spipe_priv_task_t *t) {
    const spipe_stage_desc_t *s = &p->request.desc.stages[t->stage];
    spipe_priv_at_t at;
    spipe_priv_note_t note;
    spipe_chunk_t c;
    cudaError_t e;
    const char *why;
    int i;
    memset(&c, 0, sizeof c);
    memset(&note, 0, sizeof note);
    note.catches = SPIPE_PRIV_CATCHES;
    c.note = &note;
    spipe_priv_locate(p, t->batch, &at);
    spipe_priv_view(p, &at, &c);
    c.slot = (int)(t->batch % p->plan.depth);
    c.num_buffers = p->request.desc.num_buffers;
    memcpy((void *)c.data, (void *)at.slot->mirror[t->stage], sizeof c.data);
    for (i = 0; i < c.num_buffers; ++i) {
        if (!c.data[i]) continue;
        c.kind[i] = p->request.desc.buffers[i].kind;
        c.elem_bytes[i] = p->request.desc.buffers[i].elem_bytes;
    }
    SPIPE_PRIV_CALL(NULL, &note.thrown, &note, e, s->fn(&c, s->user), cudaErrorUnknown);
    spipe_priv_free_scratch(&note);
    if (e == cudaSuccess && note.error == cudaSuccess) return;
    why = spipe_priv_why(&note, &e);
    (void)spipe_priv_fail_call(p, &note, e, t->stage, t->batch,
                               "host stage '%s' failed at chunk %zu: %s", s->name, at.position,
                               why);
}

SPIPE_PRIV_RARE void spipe_priv_host_stage(spipe_priv_pipeline_t *p, spipe_priv_task_t *t) {
    spipe_priv_slot_t *slot = &p->memory.slots[t->batch % p->plan.depth];
    const cudaError_t e = spipe_priv_check_step(p, cudaEventSynchronize(slot->stage_done[t->stage]),
                                                t->stage, t->batch, "work before host stage '");
    if (p->watcher) t->began = spipe_priv_seconds();
    if (e == cudaSuccess && !spipe_priv_is_lost(p, t->batch)) spipe_priv_call_host_stage(p, t);
    spipe_priv_left_host(p, t->stage, t->batch);
}

/* Fresh memory is touched by the page of 2 MiB, so that several threads can; pages grow with the
   ring so that their tasks fit into a queue. */
SPIPE_API size_t spipe_priv_touch_page(size_t bytes) {
    return ((size_t)2 << 20) * (1 + (bytes >> 30));
}

/* One byte of each page, as large as the system may have made it. */
SPIPE_PRIV_RARE void spipe_priv_touch_one(spipe_priv_pipeline_t *p, size_t page_number) {
    const size_t bytes = p->memory.pinned_bytes, page = spipe_priv_touch_page(bytes);
    const size_t end = bytes - page_number * page < page ? bytes : (page_number + 1) * page;
    size_t at;
    for (at = page_number * page; at < end; at += SPIPE_PRIV_TOUCH_STEP) p->memory.pinned[at] = 0;
}

SPIPE_PRIV_RARE void spipe_priv_do_task(spipe_priv_pipeline_t *p, spipe_priv_task_t t) {
    if (p->watcher) t.began = spipe_priv_seconds();
    spipe_priv_notify(p, SPIPE_PRIV_WATCH_TASK, &t, t.batch, 0);
    spipe_priv_model_begin(p, &t);
    switch (t.what) {
    case SPIPE_PRIV_FILL: spipe_priv_fill(p, t.batch); break;
    case SPIPE_PRIV_DRAIN: spipe_priv_drain(p, t.batch); break;
    case SPIPE_PRIV_HOST: spipe_priv_host_stage(p, &t); break;
    default: spipe_priv_touch_one(p, t.batch); break;
    }
    spipe_priv_model_end();
    spipe_priv_notify(p, SPIPE_PRIV_WATCH_TASK, &t, t.batch, 1);
}

/* ---- src/private/waiting.h ---- */
/* ---- 13 execute: waiting -------------------------------------------------------------------
   What the calling thread does while it waits: it helps the workers, and does what they would do
   where there are none. */

/* Whether the slot of a batch may be filled again. What is drained has ended; asking CUDA again
   would blame a later error of the GPU on it. */
SPIPE_PRIV_RARE int spipe_priv_may_refill(spipe_priv_pipeline_t *p, size_t batch) {
    const spipe_priv_slot_t *slot = &p->memory.slots[batch % p->plan.depth];
    if (batch >= p->run.at.issued_out) return 0;
    if (p->route.refill == SPIPE_PRIV_REFILL_DRAINED) {
        return spipe_priv_locked_get(p, &slot->whole) > batch;
    }
    return spipe_priv_poll_event(p, slot->out_done, &p->run.at.polled_in) > 0;
}

/* Asks CUDA for the workers of a kind where they are missing, or need help: a caller who helps
   drains the last batch himself. */
SPIPE_PRIV_RARE void spipe_priv_help_ask(spipe_priv_pipeline_t *p, int what) {
    spipe_priv_queue_t *q = &p->workers.queues[what];
    int help;
    spipe_priv_lock(p->sync);
    help = p->plan.caller_helps || spipe_priv_may_help(p, what) || !spipe_priv_workers_ask(p, q);
    spipe_priv_unlock(p->sync);
    if (help) (void)spipe_priv_ask(p, what);
}

/* Asks for the workers that are missing which copies have ended, and posts the filling of slots
   that are free when their batch is done. */
SPIPE_PRIV_RARE void spipe_priv_poll(spipe_priv_pipeline_t *p) {
    size_t batch;
    if (p->provider) p->provider->between(p);
    if (p->route.drains) spipe_priv_help_ask(p, SPIPE_PRIV_DRAIN);
    if (p->route.refill == SPIPE_PRIV_REFILL_NEVER) return;
    if (p->route.refill == SPIPE_PRIV_REFILL_COPIED_IN) {
        spipe_priv_help_ask(p, SPIPE_PRIV_FILL);
        return;
    }
    batch = spipe_priv_locked_get(p, &p->run.at.polled_in);
    for (; spipe_priv_may_refill(p, batch); ++batch) {
        spipe_priv_post(p, SPIPE_PRIV_FILL, -1, p->plan.depth + batch);
        spipe_priv_locked_set(p, &p->run.at.polled_in, batch + 1);
    }
}

/* Waits until *flag is at least value; the run's error when this batch is lost. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_await(spipe_priv_pipeline_t *p, const size_t *flag,
                                             size_t value, size_t batch) {
    while (!spipe_priv_is_lost(p, batch) && spipe_priv_locked_get(p, flag) < value) {
        if (spipe_priv_help(p)) continue;
        spipe_priv_poll(p);
        spipe_priv_yield(&p->sync->busy_until);
    }
    return spipe_priv_error_at(p, batch);
}

/* Whether the slot of a batch has been filled; by a modelled clock, if there is one. */
SPIPE_PRIV_RARE int spipe_priv_is_filled(spipe_priv_pipeline_t *p, size_t batch) {
    const size_t *filled = &p->memory.slots[batch % p->plan.depth].filled;
    while (spipe_priv_model_unsure(p, batch) && !spipe_priv_is_lost(p, batch)) {
        if (spipe_priv_help(p)) continue;
        spipe_priv_poll(p);
        spipe_priv_yield(&p->sync->busy_until);
    }
    return !spipe_priv_model_unfilled(p, batch) && spipe_priv_locked_get(p, filled) > batch;
}

/* Waits until the workers have nothing left to do, and nothing will follow. */
SPIPE_PRIV_RARE void spipe_priv_finish_host_work(spipe_priv_pipeline_t *p) {
    int busy = p->workers.block != NULL;
    while (busy) {
        spipe_priv_poll(p);
        busy = spipe_priv_workers_busy(p);
        if (!spipe_priv_help(p) && busy) spipe_priv_yield(&p->sync->busy_until);
    }
}

SPIPE_PRIV_RARE void spipe_priv_touch(spipe_priv_pipeline_t *p) {
    const size_t bytes = p->memory.pinned_bytes, page = spipe_priv_touch_page(bytes);
    size_t k;
    memset(&p->run.at, 0, sizeof p->run.at);
    spipe_priv_start_workers(p);
    for (k = 0; k * page < bytes; ++k) {
        if (p->workers.block)
            spipe_priv_post(p, SPIPE_PRIV_TOUCH, -1, k);
        else
            spipe_priv_touch_one(p, k);
    }
    spipe_priv_finish_host_work(p);
}

/* Where nothing has to be drained: waits for an event, or (NULL) for stream 0, and counts the
   batches up to it as whole. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_complete(spipe_priv_pipeline_t *p, cudaEvent_t event,
                                                size_t batches) {
    cudaError_t e = cudaSuccess;
    if (event)
        e = cudaEventSynchronize(event);
    else if (!p->route.out_blocks)
        e = cudaStreamSynchronize(p->streams.streams[0]);
    if (e == cudaSuccess && p->run.at.completed < batches) {
        spipe_priv_locked_set(p, &p->run.at.completed, batches);
    }
    if (e == cudaSuccess) return e;
    (void)cudaGetLastError();
    return spipe_priv_fail_between(p, e, p->run.at.issued_out);
}

/* The events of a checkpoint; there are as many checkpoints at once as there are events for. */
SPIPE_PRIV_RARE cudaEvent_t *spipe_priv_checkpoint_events(spipe_priv_pipeline_t *p, size_t number) {
    const size_t width = p->program.checkpoint_width;
    return &p->streams.checkpoints[number % (SPIPE_PRIV_CHECKPOINTS / width) * width];
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_complete_checkpoint(spipe_priv_pipeline_t *p) {
    const size_t every = p->program.checkpoint_mask + 1, width = p->program.checkpoint_width;
    const size_t number = p->run.at.completed / every;
    const cudaEvent_t *events = spipe_priv_checkpoint_events(p, number);
    size_t k;
    for (k = 0; k < width; ++k) {
        SPIPE_TRY(spipe_priv_complete(p, events[k], number * every + (k + 1 == width) * every));
    }
    return cudaSuccess;
}

/* Records the end of some batches, and keeps the host from running too far ahead of the GPU. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_checkpoint(spipe_priv_pipeline_t *p, size_t batch) {
    const size_t every = p->program.checkpoint_mask + 1, width = p->program.checkpoint_width;
    const size_t number = batch / every, row = batch % p->plan.depth;
    const size_t event = batch % every - p->program.checkpoint_from;
    if (p->run.mode != SPIPE_PRIV_WAITED_FOR || p->route.drains) return cudaSuccess;
    if (number >= p->run.at.completed / every + SPIPE_PRIV_CHECKPOINTS / width) {
        SPIPE_TRY(spipe_priv_complete_checkpoint(p));
    }
    return cudaEventRecord(spipe_priv_checkpoint_events(p, number)[event],
                           spipe_priv_stream_for(p, row, SPIPE_PRIV_ON_OUT));
}

/* Counts what is whole by now, where copies out tell. */
SPIPE_PRIV_RARE int spipe_priv_complete_some(spipe_priv_pipeline_t *p) {
    while (!p->route.drains && p->run.at.completed < p->run.at.issued_out) {
        const size_t number = p->run.at.completed % SPIPE_PRIV_CHECKPOINTS;
        const int far = p->run.at.issued_out - p->run.at.completed >= p->plan.depth;
        if (!spipe_priv_reached(cudaEventQuery(p->streams.checkpoints[number])) && !far) return 1;
        if (spipe_priv_complete_checkpoint(p) != cudaSuccess) return 0;
    }
    return 1;
}

/* Calls the progress callback when more is whole than it knows. */
SPIPE_PRIV_RARE void spipe_priv_report_progress(spipe_priv_pipeline_t *p) {
    const spipe_desc_t *d = &p->request.desc;
    spipe_progress_t progress;
    size_t completed, total;
    int stop;
    if (!d->progress || p->run.mode != SPIPE_PRIV_WAITED_FOR) return;
    if (!spipe_priv_complete_some(p)) return;
    completed = spipe_priv_locked_get(p, &p->run.at.completed);
    total = spipe_priv_locked_get(p, &p->run.total);
    if (completed == p->run.at.reported) return;
    p->run.at.reported = completed;
    progress.chunks_done = completed;
    progress.total = total == SPIPE_AUTO ? 0 : total;
    progress.num_chunks = (progress.total + p->run.batch_elems - 1) / p->run.batch_elems;
    progress.elements_done = completed * p->run.batch_elems;
    if (progress.elements_done > total) progress.elements_done = total;
    progress.seconds = spipe_priv_clock() - p->run.began;
    SPIPE_PRIV_CALL(p->sync, &p->thrown, NULL, stop, d->progress(&progress, d->progress_user), 1);
    if (!stop) return;
    spipe_priv_locked_set(p, &p->run.stop_asked, 1);
}

/* ---- src/private/calling.h ---- */
/* ---- 13 execute: calling stages ------------------------------------------------------------
   A stage's function for one chunk, or all of them for each chunk of a batch; and what it says when
   it fails. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_stage_failed(spipe_priv_pipeline_t *p, cudaError_t e,
                                                    size_t batch, int s, const spipe_chunk_t *c) {
    const char *why = spipe_priv_why(&p->note, &e);
    if (cudaPeekAtLastError() != p->run.stale_error) (void)cudaGetLastError();
    if (p->note.error == cudaSuccess && spipe_priv_stays(p, e)) {
        return spipe_priv_check_step(p, e, s, batch, NULL);
    }
    (void)spipe_priv_fail_call(p, &p->note, e, s, batch, "stage '%s' failed at chunk %zu: %s",
                               p->request.desc.stages[s].name, c->index, why);
    p->note.error = cudaSuccess;                        /* stages of chunks before may follow */
    if (p->plan.batch > 1) p->failure.chunk = c->index; /* then there are no other threads */
    return e;
}

/* Inputs that a stage may not write into: all that an elementwise one reads, and user's arrays. */
SPIPE_PRIV_OFTEN unsigned spipe_priv_never_written(const spipe_priv_pipeline_t *p,
                                                   const spipe_stage_desc_t *stage) {
    return stage->elementwise ? ~0u : p->memory.in_place;
}

SPIPE_PRIV_OFTEN cudaError_t spipe_priv_call_stage(spipe_priv_pipeline_t *p, size_t batch, int s,
                                                   const spipe_chunk_t *c) {
    const spipe_stage_desc_t *stage = &p->request.desc.stages[s];
    cudaError_t e, left;
    p->note.never_written = spipe_priv_never_written(p, stage);
    SPIPE_PRIV_CALL(NULL, &p->note.thrown, &p->note, e, stage->fn(c, stage->user),
                    cudaErrorUnknown);
    left = cudaPeekAtLastError(); /* of a launch that the stage did not check */
    if (e == cudaSuccess && left != p->run.stale_error) e = left;
    if (e == cudaSuccess && p->note.error == cudaSuccess) return e;
    return spipe_priv_stage_failed(p, e, batch, s, c);
}

SPIPE_PRIV_OFTEN cudaError_t spipe_priv_issue_call(spipe_priv_pipeline_t *p,
                                                   const spipe_priv_op_t *op,
                                                   const spipe_priv_at_t *at) {
    spipe_priv_view(p, at, &at->slot->view);
    at->slot->view.stream = op->stream;
    return spipe_priv_call_stage(p, at->batch, op->stage, &at->slot->view);
}

/* All stages for one chunk of a batch after the other, so a chunk's stages may hand each other what
   belongs to its slot. There is one chain, so all of it is in one stream. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_batch(spipe_priv_pipeline_t *p,
                                                   const spipe_priv_op_t *op,
                                                   const spipe_priv_at_t *at) {
    spipe_chunk_t c = at->slot->view;
    size_t left = at->count;
    int i;
    spipe_priv_view(p, at, &c);
    c.stream = op->stream;
    for (; left > 0; left -= c.count, ++c.index, c.first += c.count) {
        c.count = left < p->plan.chunk ? left : p->plan.chunk;
        for (i = 1; i + 1 < p->route.num_steps; ++i) {
            SPIPE_TRY(spipe_priv_call_stage(p, at->batch, p->route.steps[i].stage, &c));
        }
        for (i = 0; i < p->request.desc.num_buffers; ++i) {
            const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
            if (b->kind == SPIPE_RESIDENT) continue;
            c.data[i] = (unsigned char *)c.data[i] + c.count * b->elem_bytes;
        }
    }
    return cudaSuccess;
}

/* ---- src/private/checked.h ---- */
/* ---- 13 execute: checked runs --------------------------------------------------------------
   What a checked run (desc.checked) looks at beside the errors of the GPU: that a stage puts its
   work on its stream, keeps within its buffers, and keeps its promises. Slow; other runs do none of
   it. */
enum {
    SPIPE_PRIV_GUARD_BYTE = 0xA5
};

/* Compares what is at `at`, in host or device memory, with `with` or, where that is NULL, with the
   guards' byte; or writes that byte (look = 0). In the stage's stream: the default one would wait
   for others. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_look(unsigned char *at, size_t bytes,
                                            const unsigned char *with, int look,
                                            cudaStream_t stream, int *same) {
    const unsigned char guard = SPIPE_PRIV_GUARD_BYTE;
    unsigned char *seen = (unsigned char *)malloc(bytes + 1);
    cudaError_t e;
    size_t n = 0;
    if (!seen) return cudaErrorMemoryAllocation;
    memset(seen, guard, bytes);
    if (look)
        e = cudaMemcpyAsync(seen, at, bytes, cudaMemcpyDefault, stream);
    else
        e = cudaMemcpyAsync(at, seen, bytes, cudaMemcpyDefault, stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(stream);
    while (n < bytes && seen[n] == (with ? with[n] : guard)) ++n;
    *same = n == bytes;
    free(seen);
    return e;
}

/* Inputs must stay as they are where they are the user's own arrays: with zero-copy. A stage that
   promised to be elementwise may be given that, so it must leave every input as it is. Those in
   device memory the CPU cannot read. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_inputs(spipe_priv_pipeline_t *p,
                                                    const spipe_priv_op_t *op,
                                                    const spipe_priv_at_t *at) {
    const int promised = p->request.desc.stages[op->stage].elementwise;
    int i, same;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        const unsigned char *host = (const unsigned char *)b->host;
        if (b->kind != SPIPE_INPUT || p->request.arrays[i].type == SPIPE_PRIV_DEVICE) continue;
        if (!promised && !spipe_priv_used_in_place(&p->request, &p->plan, i)) continue;
        host += at->first * b->elem_bytes;
        SPIPE_TRY(spipe_priv_look((unsigned char *)at->slot->view.data[i],
                                  at->count * b->elem_bytes, host, 1, op->stream, &same));
        if (same) continue;
        return spipe_priv_fail(p, cudaErrorInvalidValue, op->stage, at->batch,
                               "stage '%s' wrote into buffer %d, an input, at chunk %zu; zero-copy "
                               "would change your array: make it in/out",
                               p->request.desc.stages[op->stage].name, i, at->slot->view.index);
    }
    return cudaSuccess;
}

/* The guards of the buffers that a stage sees, filled before it or looked at after it: before the
   halo, and from the last element on. In the last chunk, which may be short, what is left of the
   slot belongs to the second. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_guards(spipe_priv_pipeline_t *p, const spipe_priv_op_t *op,
                                              const spipe_priv_at_t *at, int look) {
    const spipe_stage_desc_t *stage = &p->request.desc.stages[op->stage];
    const size_t guard = p->memory.guard, left = p->run.batch_elems - at->count;
    int i, k, whole;
    for (i = 0; i < p->request.desc.num_buffers && guard > 0; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        const size_t size = b->elem_bytes;
        const int resident = b->kind == SPIPE_RESIDENT;
        unsigned char *data = resident ? p->memory.resident[i] : at->slot->dev[i];
        if (!data && at->slot->pin_in[i]) data = at->slot->pin_in[i]; /* zero-copy: used there */
        if (!data) data = at->slot->pin_out[i];
        if (stage->host) data = at->slot->mirror[op->stage][i];
        if (p->request.apart && !stage->host && (resident || at->slot->dev[i])) {
            continue; /* the tool that watches memory sees what is past an allocation */
        }
        for (k = 0; k < 2 && data; ++k) {
            unsigned char *from = data - b->halo_before * size - guard;
            size_t bytes = guard;
            if (k == 1) {
                from = data + (resident ? 1 : at->count + b->halo_after) * size;
                bytes += resident ? 0 : left * size;
            }
            SPIPE_TRY(spipe_priv_look(from, bytes, NULL, look, op->stream, &whole));
            if (whole) continue;
            return spipe_priv_fail(p, cudaErrorInvalidValue, op->stage, at->batch,
                                   "stage '%s' wrote %s buffer %d (%s) at chunk %zu, which has "
                                   "%zu elements; does it compare its index with count?",
                                   stage->name, k ? "past the end of" : "before the beginning of",
                                   i, spipe_priv_kind_name(b->kind), at->position, at->count);
        }
    }
    return cudaSuccess;
}

/* After a step that was waited for. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_after(spipe_priv_pipeline_t *p,
                                                   const spipe_priv_op_t *op,
                                                   const spipe_priv_at_t *at) {
    if (op->step != SPIPE_PRIV_STEP_STAGE && op->step != SPIPE_PRIV_STEP_HOST_END) {
        return cudaSuccess;
    }
    SPIPE_TRY(spipe_priv_guards(p, op, at, 1));
    return spipe_priv_check_inputs(p, op, at);
}

/* Adds bytes to a hash (FNV-1a). */
SPIPE_PRIV_RARE void spipe_priv_hash(uint64_t *hash, const void *data, size_t bytes) {
    const unsigned char *at = (const unsigned char *)data;
    for (; bytes > 0; --bytes, ++at) *hash = (*hash ^ *at) * (uint64_t)1099511628211;
}

SPIPE_PRIV_RARE void spipe_priv_hash_kernel(uint64_t *hash, cudaGraphNode_t node) {
    struct cudaKernelNodeParams k;
#if CUDART_VERSION >= 12040 /* older toolkits do not tell how large arguments are */
    size_t i, offset, bytes;
#endif
    memset((void *)&k, 0, sizeof k);
    if (cudaGraphKernelNodeGetParams(node, &k) != cudaSuccess) return;
    spipe_priv_hash(hash, &k.func, sizeof k.func);
    spipe_priv_hash(hash, &k.gridDim, sizeof k.gridDim);
    spipe_priv_hash(hash, &k.blockDim, sizeof k.blockDim);
    spipe_priv_hash(hash, &k.sharedMemBytes, sizeof k.sharedMemBytes);
#if CUDART_VERSION >= 12040
    for (i = 0; k.kernelParams; ++i) {
        if (cudaFuncGetParamInfo(k.func, i, &offset, &bytes) != cudaSuccess) break;
        if (bytes > sizeof(void *)) continue; /* a struct: its padding may differ */
        spipe_priv_hash(hash, k.kernelParams[i], bytes);
    }
#endif
}

/* A kernel with its arguments, a copy, a memset; of other nodes the kind. What CUDA does not tell,
   of kernels from libraries, counts as equal. */
SPIPE_PRIV_RARE void spipe_priv_hash_node(uint64_t *hash, cudaGraphNode_t node) {
    struct cudaMemcpy3DParms copy;
    struct cudaMemsetParams set;
    enum cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    memset((void *)&copy, 0, sizeof copy);
    memset((void *)&set, 0, sizeof set);
    (void)cudaGraphNodeGetType(node, &type);
    spipe_priv_hash(hash, &type, sizeof type);
    if (type == cudaGraphNodeTypeKernel) spipe_priv_hash_kernel(hash, node);
    if (type == cudaGraphNodeTypeMemcpy && !cudaGraphMemcpyNodeGetParams(node, &copy)) {
        spipe_priv_hash(hash, &copy, sizeof copy);
    }
    if (type == cudaGraphNodeTypeMemset && !cudaGraphMemsetNodeGetParams(node, &set)) {
        spipe_priv_hash(hash, &set, sizeof set);
    }
}

/* A stage that promised to be replayable must enqueue what it did in the run before. Compared for
   the first chunk of each run of a kept pipeline with the same arrays and count. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_compare_work(spipe_priv_pipeline_t *p, int stage,
                                                    size_t batch, cudaGraph_t graph, size_t num) {
    cudaGraphNode_t *nodes = (cudaGraphNode_t *)malloc(num * sizeof *nodes);
    uint64_t hash = (uint64_t)14695981039346656037u;
    const uint64_t before = p->trial.work[stage];
    cudaError_t e;
    size_t k;
    if (!nodes) return cudaErrorMemoryAllocation;
    e = cudaGraphGetNodes(graph, nodes, &num);
    for (k = 0; k < num && e == cudaSuccess; ++k) spipe_priv_hash_node(&hash, nodes[k]);
    free((void *)nodes);
    (void)cudaGetLastError(); /* of what CUDA did not tell */
    if (e != cudaSuccess || !p->request.desc.stages[stage].replayable) return e;
    p->trial.work[stage] = hash;
    if (before == 0 || before == hash) return e;
    return spipe_priv_fail(p, cudaErrorInvalidValue, stage, batch,
                           "stage '%s' promised to be replayable, but enqueues other work than in "
                           "the run before, and a replay would repeat the old; do not promise it, "
                           "or let the kernel read from device memory what changes",
                           p->request.desc.stages[stage].name);
}

/* Runs what a stage put into a graph; nothing there means that it used another stream. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_run_captured(spipe_priv_pipeline_t *p,
                                                    const spipe_priv_op_t *op,
                                                    const spipe_priv_at_t *at, cudaGraph_t graph) {
    cudaGraphExec_t exec = NULL;
    size_t nodes = 0;
    cudaError_t e = cudaGraphGetNodes(graph, NULL, &nodes);
    if (e == cudaSuccess && nodes == 0) {
        return spipe_priv_fail(p, cudaErrorInvalidValue, op->stage, at->batch,
                               "stage '%s' put nothing on its stream; enqueue on chunk->stream, "
                               "not on another",
                               p->request.desc.stages[op->stage].name);
    }
    if (e == cudaSuccess && p->trial.compare_work) {
        e = p->trial.compare_work(p, op->stage, at->batch, graph, nodes);
    }
    if (e == cudaSuccess) e = cudaGraphInstantiateWithFlags(&exec, graph, 0);
    if (e == cudaSuccess) e = cudaGraphLaunch(exec, op->stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(op->stream);
    if (exec) spipe_priv_keep_error(&e, cudaGraphExecDestroy(exec));
    return e;
}

SPIPE_PRIV_RARE int spipe_priv_of_capture(cudaError_t e) {
    return e >= cudaErrorStreamCaptureUnsupported && e <= cudaErrorStreamCaptureWrongThread;
}

/* Whether a stage failed because its stream is captured. e: what the stage returned; left: CUDA's
   last error after it; captured: what cudaStreamEndCapture returned. CUDA's last error decides if
   there is one: a wrong launch is the stage's own error, although it breaks the capture, too. */
SPIPE_PRIV_RARE int spipe_priv_is_uncapturable(cudaError_t e, cudaError_t left,
                                               cudaError_t captured) {
    if (left != cudaSuccess) return spipe_priv_of_capture(left);
    return captured != cudaSuccess || spipe_priv_of_capture(e);
}

/* The first chunk: the stage is called while its stream is captured, which shows whether it uses
   it. One that does what cannot be captured is called again, without. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_call_captured(spipe_priv_pipeline_t *p,
                                                     const spipe_priv_op_t *op,
                                                     const spipe_priv_at_t *at) {
    const spipe_stage_desc_t *stage = &p->request.desc.stages[op->stage];
    const spipe_chunk_t *c = &at->slot->view;
    cudaGraph_t graph = NULL;
    cudaError_t e, left, captured;
    if (cudaStreamBeginCapture(op->stream, cudaStreamCaptureModeRelaxed) != cudaSuccess) {
        (void)cudaGetLastError();
        return spipe_priv_call_stage(p, at->batch, op->stage, c);
    }
    p->note.never_written = spipe_priv_never_written(p, stage);
    SPIPE_PRIV_CALL(NULL, &p->note.thrown, &p->note, e, stage->fn(c, stage->user),
                    cudaErrorUnknown);
    left = cudaPeekAtLastError(); /* of a launch that the stage did not check */
    if (left == p->run.stale_error) left = cudaSuccess;
    if (e == cudaSuccess) e = left;
    captured = cudaStreamEndCapture(op->stream, &graph);
    if (p->note.error == cudaSuccess && spipe_priv_is_uncapturable(e, left, captured)) {
        (void)cudaGetLastError();
        if (graph) (void)cudaGraphDestroy(graph);
        return spipe_priv_call_stage(p, at->batch, op->stage, c);
    }
    if (e != cudaSuccess || p->note.error != cudaSuccess) {
        if (graph) (void)cudaGraphDestroy(graph);
        return spipe_priv_stage_failed(p, e, at->batch, op->stage, c);
    }
    e = spipe_priv_run_captured(p, op, at, graph);
    spipe_priv_keep_error(&e, cudaGraphDestroy(graph));
    return e;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_checked(spipe_priv_pipeline_t *p,
                                                     const spipe_priv_op_t *op,
                                                     const spipe_priv_at_t *at) {
    if (p->run.mode != SPIPE_PRIV_CAPTURED) SPIPE_TRY(spipe_priv_guards(p, op, at, 0));
    spipe_priv_view(p, at, &at->slot->view);
    at->slot->view.stream = op->stream;
    if (at->batch == 0 && p->run.mode != SPIPE_PRIV_CAPTURED)
        return spipe_priv_call_captured(p, op, at);
    return spipe_priv_call_stage(p, at->batch, op->stage, &at->slot->view);
}

/* ---- src/private/issue.h ---- */
/* ---- 13 execute: issuing -------------------------------------------------------------------
   The loop that puts a slot's program into the streams for one batch. It asks nothing about modes:
   the program says what to do. */

/* Fills an edge on the device with zeros, or with an element: copied in once, then doubled. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_copy_edge(const spipe_buffer_desc_t *b, unsigned char *dev,
                                                 size_t times, const unsigned char *element,
                                                 cudaStream_t stream) {
    const size_t all = times * b->elem_bytes;
    size_t done = b->elem_bytes;
    if (times == 0) return cudaSuccess;
    if (b->edge == SPIPE_EDGE_ZERO) return cudaMemsetAsync(dev, 0, all, stream);
    SPIPE_TRY(cudaMemcpyAsync(dev, element, done, cudaMemcpyDefault, stream));
    for (; done < all; done *= 2) {
        const size_t n = all - done < done ? all - done : done;
        SPIPE_TRY(cudaMemcpyAsync(dev + done, dev, n, cudaMemcpyDefault, stream));
    }
    return cudaSuccess;
}

/* Copies a window in from the user's array; what lies beyond the ends is made on the device. */
SPIPE_API cudaError_t spipe_priv_issue_halo(spipe_priv_pipeline_t *p, const spipe_priv_at_t *at,
                                            int i, cudaStream_t stream) {
    const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
    const size_t bytes = b->elem_bytes;
    const unsigned char *host = (const unsigned char *)b->host;
    unsigned char *dev = at->slot->dev[i] - b->halo_before * bytes;
    size_t left, right, low, n;
    spipe_priv_outside(b, at->first, at->count, p->run.total, &left, &right);
    low = at->first - (b->halo_before - left);
    n = at->first + at->count + b->halo_after - right - low;
    p->run.moved[0] += n * bytes;
    SPIPE_TRY(spipe_priv_copy_edge(b, dev, left, host, stream));
    SPIPE_TRY(cudaMemcpyAsync(dev + left * bytes, host + low * bytes, n * bytes, cudaMemcpyDefault,
                              stream));
    return spipe_priv_copy_edge(b, dev + (left + n) * bytes, right,
                                host + (p->run.total - 1) * bytes, stream);
}

SPIPE_PRIV_OFTEN cudaError_t spipe_priv_issue_copy(spipe_priv_pipeline_t *p,
                                                   const spipe_priv_op_t *op,
                                                   const spipe_priv_at_t *at) {
    const size_t n = at->count * op->elem_bytes + op->more;
    p->run.moved[op->out] += n;
    return cudaMemcpyAsync(op->to + at->first * op->to_elem, op->from + at->first * op->from_elem,
                           n, cudaMemcpyDefault, op->stream);
}

#if CUDART_VERSION >= 12080
SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_together(spipe_priv_pipeline_t *p,
                                                      const spipe_priv_op_t *op,
                                                      const spipe_priv_at_t *at) {
    void *to[SPIPE_MAX_BUFFERS];
    const void *from[SPIPE_MAX_BUFFERS];
    size_t bytes[SPIPE_MAX_BUFFERS], n = (size_t)op->num, first = 0, k;
    struct cudaMemcpyAttributes in_order;
    memset(&in_order, 0, sizeof in_order);
    in_order.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    for (k = 0; k < n; ++k) {
        const spipe_priv_op_t *c = &op[1 + k];
        to[k] = c->to + at->first * c->to_elem;
        from[k] = c->from + at->first * c->from_elem;
        bytes[k] = at->count * c->elem_bytes + c->more;
        p->run.moved[c->out] += bytes[k];
    }
#if CUDART_VERSION >= 13000
    return cudaMemcpyBatchAsync(to, from, bytes, n, &in_order, &first, 1, op->stream);
#else
    return cudaMemcpyBatchAsync(to, (void **)from, bytes, n, &in_order, &first, 1, &n, op->stream);
#endif
}
#endif

/* The copies that follow op, in one call where toolkit and driver have it. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_copies(spipe_priv_pipeline_t *p,
                                                    const spipe_priv_op_t *op,
                                                    const spipe_priv_at_t *at) {
    int k;
#if CUDART_VERSION >= 12080
    if (p->program.copies_together && p->run.mode != SPIPE_PRIV_CAPTURED) {
        return spipe_priv_issue_together(p, op, at);
    }
#endif
    for (k = 0; k < op->num; ++k) SPIPE_TRY(spipe_priv_issue_copy(p, &op[1 + k], at));
    return cudaSuccess;
}

/* A checked run waits, so that an error of the GPU is found at the step that made it. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_sync(spipe_priv_pipeline_t *p,
                                                  const spipe_priv_op_t *op,
                                                  const spipe_priv_at_t *at) {
    const size_t batches = at->batch + 1;
    if (p->run.mode == SPIPE_PRIV_CAPTURED) return cudaSuccess;
    SPIPE_TRY(cudaStreamSynchronize(op->stream));
    SPIPE_TRY(spipe_priv_check_after(p, op, at));
    switch (op->counts) {
    case SPIPE_PRIV_COUNTS_COPIED_IN: spipe_priv_count_polled(p, SPIPE_PRIV_FILL, batches); break;
    case SPIPE_PRIV_COUNTS_DRAINABLE: spipe_priv_count_polled(p, SPIPE_PRIV_DRAIN, batches); break;
    case SPIPE_PRIV_COUNTS_WHOLE:
        if (p->run.mode == SPIPE_PRIV_WAITED_FOR) p->run.at.completed = batches;
        break;
    default: break;
    }
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_host_begin(spipe_priv_pipeline_t *p,
                                                        const spipe_priv_op_t *op,
                                                        const spipe_priv_at_t *at) {
    SPIPE_TRY(spipe_priv_guards(p, op, at, 0));
    SPIPE_TRY(cudaEventRecord(at->slot->stage_done[op->stage], op->stream));
    spipe_priv_post_host(p, op->stage, at->batch);
    return cudaSuccess;
}

/* The rarer operations; kept out of the loop that issues, which stays small. */
SPIPE_PRIV_ATTRIBUTE((cold))

SPIPE_API cudaError_t spipe_priv_issue_other(spipe_priv_pipeline_t *p, const spipe_priv_op_t *op,
                                             spipe_priv_at_t *at) {
    cudaError_t e = cudaSuccess;
    switch (op->what & (SPIPE_PRIV_OP_WATCHED - 1)) {
    case SPIPE_PRIV_OP_COPY: return spipe_priv_issue_copy(p, op, at);
    case SPIPE_PRIV_OP_CALL: return spipe_priv_issue_call(p, op, at);
    case SPIPE_PRIV_OP_BATCH: return spipe_priv_issue_batch(p, op, at);
    case SPIPE_PRIV_OP_COPIES: return spipe_priv_issue_copies(p, op, at);
    case SPIPE_PRIV_OP_HALO: return spipe_priv_issue_halo(p, at, op->stage, op->stream);
    case SPIPE_PRIV_OP_SYNC: return spipe_priv_issue_sync(p, op, at);
    case SPIPE_PRIV_OP_CHECKED_CALL: return spipe_priv_issue_checked(p, op, at);
    case SPIPE_PRIV_OP_HOST_BEGIN: return spipe_priv_issue_host_begin(p, op, at);
    case SPIPE_PRIV_OP_FILLED:
        e = spipe_priv_await(p, &at->slot->filled, at->batch + 1, at->batch);
        if (e == cudaSuccess) at->count = spipe_priv_count_of(p, at->batch);
        if (e == cudaSuccess) spipe_priv_model_await(p, SPIPE_PRIV_FILL, -1, at->batch);
        return e;
    case SPIPE_PRIV_OP_DRAINED: /* before a pinned slot is written again, by a copy or a stage */
        if (at->batch < p->plan.depth) return cudaSuccess;
        e = spipe_priv_await(p, &at->slot->drained, at->batch - p->plan.depth + 1, at->batch);
        if (e != cudaSuccess) return e;
        spipe_priv_model_await(p, SPIPE_PRIV_DRAIN, -1, at->batch - p->plan.depth);
        return e;
    case SPIPE_PRIV_OP_HOST_END:
        e = spipe_priv_await(p, &at->slot->host_done[op->stage], at->batch + 1, at->batch);
        if (e != cudaSuccess) return e;
        spipe_priv_model_await(p, SPIPE_PRIV_HOST, op->stage, at->batch);
        return e;
    default: /* IN_END */
        spipe_priv_locked_set(p, &p->run.at.issued_in, at->batch + 1);
        if (p->route.refill != SPIPE_PRIV_REFILL_COPIED_IN) return cudaSuccess;
        spipe_priv_post(p, SPIPE_PRIV_FILL, -1, at->batch + p->plan.depth);
        return cudaSuccess;
    }
}

/* The same, where a timeline may watch. */
SPIPE_PRIV_ATTRIBUTE((cold))

SPIPE_API cudaError_t spipe_priv_issue_watched(spipe_priv_pipeline_t *p, const spipe_priv_op_t *op,
                                               spipe_priv_at_t *at) {
    cudaError_t e;
    spipe_priv_notify(p, SPIPE_PRIV_WATCH_OP, op, at->batch, 0);
    e = spipe_priv_issue_other(p, op, at);
    spipe_priv_notify(p, SPIPE_PRIV_WATCH_OP, op, at->batch, 1);
    return e;
}

/* Several GPUs: a batch's position is known before it is issued. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_await_position(spipe_priv_pipeline_t *p, size_t batch) {
    const size_t *filled = &p->memory.slots[batch % p->plan.depth].filled;
    if (!p->run.positions) return cudaSuccess;
    if (p->route.refill != SPIPE_PRIV_REFILL_NEVER) {
        return spipe_priv_await(p, filled, batch + 1, batch);
    }
    if (batch == p->run.at.num_positions) spipe_priv_take_position(p, batch);
    return cudaSuccess;
}

/* After a failure: where a function of the user's failed, nothing is issued from that batch on, and
   those before it are brought to their end. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_end_early(spipe_priv_pipeline_t *p, cudaError_t e) {
    const size_t end = spipe_priv_locked_get(p, &p->run.failed_batch);
    if (p->run.mode != SPIPE_PRIV_WAITED_FOR) return e;
    if (spipe_priv_locked_get(p, &p->run.failed) != SPIPE_PRIV_FAILED_IN_CALL) return e;
    if (p->run.cut_from == 0) p->run.cut_from = p->run.num_batches;
    if (end < p->run.num_batches) spipe_priv_locked_set(p, &p->run.num_batches, end);
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_failed(spipe_priv_pipeline_t *p,
                                                    const spipe_priv_op_t *op, size_t batch,
                                                    cudaError_t e) {
    const int copies = op->step == SPIPE_PRIV_STEP_IN || op->step == SPIPE_PRIV_STEP_OUT;
    const char *way = op->step == SPIPE_PRIV_STEP_IN ? "copying in" : "copying out";
    if (copies)
        e = spipe_priv_check_step(p, e, -1, batch, way);
    else
        e = spipe_priv_check_step(p, e, op->stage, batch, NULL);
    return spipe_priv_end_early(p, e);
}

/* A batch of no elements: the sources ended before it. Where the end is not given they are asked
   once more at that batch, as only then a longer one shows, so that is waited for. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_end(spipe_priv_pipeline_t *p, size_t batch) {
    const size_t *filled = &p->memory.slots[batch % p->plan.depth].filled;
    if (p->run.endless && !p->run.positions) {
        const cudaError_t e = spipe_priv_await(p, filled, batch + 1, batch);
        if (e != cudaSuccess) return spipe_priv_end_early(p, e);
    }
    spipe_priv_locked_set(p, &p->run.num_batches, batch);
    return cudaSuccess;
}

/* Operations first .. last-1 of a batch's program. */
SPIPE_PRIV_OFTEN cudaError_t spipe_priv_issue(spipe_priv_pipeline_t *p, size_t first, size_t last,
                                              size_t batch) {
    spipe_priv_at_t at;
    const spipe_priv_op_t *op, *end;
    cudaError_t e = cudaSuccess;
    if (p->run.positions) e = spipe_priv_await_position(p, batch);
    if (e != cudaSuccess) return spipe_priv_end_early(p, e);
    op = p->program.ops + spipe_priv_locate(p, batch, &at) * p->program.num_ops;
    end = at.count > 0 ? op + last : op;
    for (op += first; op < end; ++op) {
        if (op->wait && batch >= op->since) {
            e = cudaStreamWaitEvent(op->stream, op->wait, 0);
            if (e != cudaSuccess) break;
        }
        if (op->what == SPIPE_PRIV_OP_COPY) {
            e = spipe_priv_issue_copy(p, op, &at);
        } else if (op->what == SPIPE_PRIV_OP_CALL) {
            e = spipe_priv_issue_call(p, op, &at);
        } else if (op->what != SPIPE_PRIV_OP_NONE) {
            e = spipe_priv_issue_watched(p, op, &at);
            if (e == cudaSuccess && at.count == 0) break; /* the sources have ended */
            op += op->num; /* the last of several copies has what is recorded after them */
        }
        if (e == cudaSuccess && op->done) e = cudaEventRecord(op->done, op->stream);
        if (e != cudaSuccess) break;
    }
    if (e != cudaSuccess) return spipe_priv_issue_failed(p, op, batch, e);
    if (at.count == 0) return spipe_priv_issue_end(p, batch);
    return cudaSuccess;
}

/* ---- src/private/running.h ---- */
/* ---- 13 execute: a run ---------------------------------------------------------------------
   From the first batch to the last: begin, issue in the schedule's order, let everything end, count
   what is whole. Writes spipe_priv_run_t. */

/* How many batches there are, and whether one stream will do. */
SPIPE_PRIV_RARE void spipe_priv_measure(spipe_priv_pipeline_t *p) {
    spipe_priv_run_t *run = &p->run;
    const spipe_desc_t *d = &p->request.desc;
    const size_t size = p->plan.chunk * p->plan.batch;
    const int shared = d->hooks && d->hooks->next_batch;
    run->batch_elems = size;
    run->endless = spipe_priv_endless(d);
    run->total = run->endless ? SPIPE_AUTO : d->count;
    run->full_batches = run->endless ? 0 : d->count / size;
    run->num_batches = run->full_batches + (d->count % size != 0);
    if (run->endless || shared) run->num_batches = SIZE_MAX;
    run->one_stream = p->plan.schedule == SPIPE_SERIAL;
    if (run->num_batches <= 1 && p->route.num_chains == 1 && p->route.num_segments == 1) {
        run->one_stream = 1;
    }
}

SPIPE_API void spipe_priv_begin(spipe_priv_pipeline_t *p) {
    spipe_priv_run_t *run = &p->run;
    size_t k;
    if (!p->workers.started) p->sync->single_threaded = p->workers.block == NULL;
    spipe_priv_failure_clear(&p->failure);
    p->note.error = cudaSuccess;
    p->note.catches = SPIPE_PRIV_CATCHES;
    run->failed = SPIPE_PRIV_NOT_FAILED;
    run->stop_asked = run->cut_from = 0;
    run->failed_batch = SPIPE_AUTO;
    spipe_priv_measure(p);
    spipe_priv_model_run(p);
    if (!spipe_priv_program_fits(p)) (void)spipe_priv_write_program(p);
    memset(&run->at, 0, sizeof run->at);
    run->at.reported = SIZE_MAX;
    run->moved[0] = run->moved[1] = 0;
    p->report.wall_ms = 0.0;
    run->stale_error = cudaPeekAtLastError();
    for (k = 0; k < p->plan.depth; ++k) {
        spipe_priv_slot_t *slot = &p->memory.slots[k];
        slot->filled = slot->drained = slot->whole = 0;
        memset(slot->host_done, 0, sizeof slot->host_done);
    }
}

SPIPE_PRIV_OFTEN cudaError_t spipe_priv_issue_steps(spipe_priv_pipeline_t *p, int from, int last,
                                                    size_t batch) {
    const spipe_priv_program_t *g = &p->program;
    const size_t *start = g->step_start;
    if (batch >= p->run.num_batches) return cudaSuccess;
    SPIPE_TRY(spipe_priv_issue(p, start[from], start[last], batch));
    if (last == p->route.num_steps && batch < p->run.num_batches) {
        if ((batch & g->checkpoint_mask) >= g->checkpoint_from) {
            const cudaError_t e = spipe_priv_checkpoint(p, batch);
            if (e != cudaSuccess) {
                return spipe_priv_check_step(p, e, -1, batch, "recording its end");
            }
        }
        /* with its checkpoint, or nobody could see it whole */
        if (p->route.drains)
            spipe_priv_post_drain(p, batch);
        else
            p->run.at.issued_out = batch + 1;
    }
    if (!p->sync->single_threaded) spipe_priv_poll(p);
    if (p->request.desc.progress) spipe_priv_report_progress(p);
    return cudaSuccess;
}

/* Once the run is to stop, no further batch is issued. */
SPIPE_PRIV_OFTEN void spipe_priv_stop_at(spipe_priv_pipeline_t *p, size_t batch) {
    if (!p->run.stop_asked || batch >= p->run.num_batches) return;
    spipe_priv_locked_set(p, &p->run.num_batches, batch);
}

/* Step by step over depth batches at a time. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_breadth(spipe_priv_pipeline_t *p) {
    const size_t depth = p->plan.depth;
    size_t at, k;
    int i;
    for (at = 0; at < p->run.num_batches; at += depth) {
        for (i = 0; i < p->route.num_steps; ++i) {
            for (k = at; k < at + depth; ++k) {
                if (i == 0) spipe_priv_stop_at(p, k);
                SPIPE_TRY(spipe_priv_issue_steps(p, i, i + 1, k));
            }
        }
    }
    return cudaSuccess;
}

/* Batch by batch. A batch's later segments are issued stage_distance batches after the one before,
   so that the host stage between them has time while the GPU has work. */
SPIPE_PRIV_OFTEN cudaError_t spipe_priv_issue_depth(spipe_priv_pipeline_t *p) {
    const spipe_priv_route_t *t = &p->route;
    const size_t behind = t->stage_distance * (size_t)(t->num_segments - 1);
    size_t at, back;
    int s;
    for (at = 0;; ++at) {
        spipe_priv_stop_at(p, at);
        if (at >= p->run.num_batches && at - p->run.num_batches >= behind) break;
        for (s = 0, back = 0; s < t->num_segments && back <= at; ++s, back += t->stage_distance) {
            SPIPE_TRY(
                spipe_priv_issue_steps(p, t->segment_start[s], t->segment_start[s + 1], at - back));
        }
    }
    return cudaSuccess;
}

SPIPE_PRIV_OFTEN cudaError_t spipe_priv_issue_all(spipe_priv_pipeline_t *p) {
    return p->plan.schedule == SPIPE_BREADTH_FIRST ? spipe_priv_issue_breadth(p)
                                                   : spipe_priv_issue_depth(p);
}

/* Resident buffers in, before any batch, or out, after all: on the stream that the rest follows. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_move_resident(spipe_priv_pipeline_t *p, int out,
                                                     cudaStream_t base) {
    int i;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        const int copied = b->resident & (out ? SPIPE_DOWNLOAD : SPIPE_UPLOAD);
        void *dev = p->memory.resident[i];
        if (b->kind != SPIPE_RESIDENT || (out && !copied)) continue;
        if (!copied) {
            SPIPE_TRY(cudaMemsetAsync(dev, 0, b->elem_bytes, base));
            continue;
        }
        p->run.moved[out] += b->elem_bytes;
        if (out)
            SPIPE_TRY(cudaMemcpyAsync(b->host, dev, b->elem_bytes, cudaMemcpyDefault, base));
        else
            SPIPE_TRY(cudaMemcpyAsync(dev, b->host, b->elem_bytes, cudaMemcpyDefault, base));
    }
    return cudaSuccess;
}

/* Everything starts after what is on base. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_fork(spipe_priv_streams_t *s, cudaStream_t base) {
    int i;
    SPIPE_TRY(cudaEventRecord(s->sync_event, base));
    for (i = 0; i < s->num; ++i) {
        if (s->streams[i] != base) {
            SPIPE_TRY(cudaStreamWaitEvent(s->streams[i], s->sync_event, 0));
        }
    }
    return cudaSuccess;
}

/* base goes on after everything. One event does: a wait keeps the record it met. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_join(spipe_priv_streams_t *s, cudaStream_t base) {
    int i;
    for (i = 0; i < s->num; ++i) {
        if (s->streams[i] == base) continue;
        SPIPE_TRY(cudaEventRecord(s->sync_event, s->streams[i]));
        SPIPE_TRY(cudaStreamWaitEvent(base, s->sync_event, 0));
    }
    return cudaSuccess;
}

/* Lets what was issued come to its end, whatever happened, and counts what is whole. The last copy
   out of each slot is the end of everything that was issued for whole chunks. */
SPIPE_PRIV_RARE void spipe_priv_let_end(spipe_priv_pipeline_t *p) {
    const size_t depth = p->plan.depth, n = p->run.at.issued_out;
    cudaError_t e = cudaSuccess;
    size_t k;
    spipe_priv_finish_host_work(p);
    for (k = n < depth ? 0 : n - depth; k < n && p->route.drains && !p->run.failed; ++k) {
        spipe_priv_model_await(p, SPIPE_PRIV_DRAIN, -1, k);
    }
    while (!p->route.drains && p->request.desc.progress && p->run.at.completed < n &&
           e == cudaSuccess) {
        e = spipe_priv_complete_checkpoint(p);
        spipe_priv_report_progress(p);
    }
    for (k = n < depth ? 0 : n - depth; k < n && !p->route.drains && e == cudaSuccess; ++k) {
        e = spipe_priv_complete(p, p->memory.slots[k % depth].out_done, k + 1 == n ? n : 0);
    }
    if (p->route.drains) spipe_priv_report_progress(p);
    if (!p->run.failed) return;
    e = cudaSuccess;
    spipe_priv_sync_streams(&p->streams, &e);
    if (p->failure.error == cudaPeekAtLastError()) (void)cudaGetLastError();
}

/* Before the first batch: slots are filled, and resident buffers are on the device. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_start_streams(spipe_priv_pipeline_t *p) {
    const cudaStream_t base = p->streams.streams[0];
    const int fills = p->route.refill != SPIPE_PRIV_REFILL_NEVER;
    cudaError_t e;
    size_t k;
    for (k = 0; k < p->plan.depth && fills; ++k) spipe_priv_post(p, SPIPE_PRIV_FILL, -1, k);
    e = spipe_priv_move_resident(p, 0, base);
    if (e == cudaSuccess && spipe_priv_has_resident(&p->request.desc)) {
        e = spipe_priv_fork(&p->streams, base);
    }
    if (e == cudaSuccess) return e;
    return spipe_priv_fail(p, e, -1, 0, "starting the run failed: %s", cudaGetErrorString(e));
}

SPIPE_PRIV_RARE void spipe_priv_run_streams(spipe_priv_pipeline_t *p) {
    if (spipe_priv_start_streams(p) == cudaSuccess) (void)spipe_priv_issue_all(p);
    spipe_priv_let_end(p);
}

/* After the last batch: resident buffers out, and the failure completed. */
SPIPE_PRIV_RARE void spipe_priv_finish(spipe_priv_pipeline_t *p) {
    const cudaStream_t base = p->streams.streams[0];
    cudaError_t e;
    if (p->run.failed) {
        p->run.stop_asked = 0; /* that is not why it ended */
        if (p->run.cut_from > 0) p->run.num_batches = p->run.cut_from;
    } else if (p->run.stop_asked) {
        (void)spipe_priv_fail(p, SPIPE_STOPPED, -1, p->run.at.completed,
                              "stopped by the progress callback after %zu chunks",
                              p->run.at.completed);
    }
    if (!p->run.failed && spipe_priv_has_resident(&p->request.desc)) {
        e = spipe_priv_move_resident(p, 1, base);
        if (e == cudaSuccess) e = cudaStreamSynchronize(base);
        if (e != cudaSuccess) {
            cudaError_t again = cudaSuccess;
            spipe_priv_sync_streams(&p->streams, &again); /* a copy may be on its way */
            (void)spipe_priv_fail(p, e, -1, p->run.at.completed,
                                  "copying a resident buffer out failed: %s",
                                  cudaGetErrorString(e));
        }
    }
    p->failure.chunks_whole = spipe_priv_chunks(p, p->run.at.completed);
}

/* Bytes of the pages that this process has been given; 0 = not known, or nothing is staged. */
SPIPE_PRIV_RARE size_t spipe_priv_page_bytes(const spipe_plan_t *plan) {
#if defined(_SC_PAGESIZE) && !defined(_WIN32)
    struct rusage usage;
    if (plan->staging != SPIPE_STAGING_COPY || getrusage(RUSAGE_SELF, &usage) != 0) return 0;
    return (size_t)usage.ru_minflt * (size_t)sysconf(_SC_PAGESIZE);
#else
    (void)plan;
    return 0;
#endif
}

/* One run of the plan in use; replayed where it says so and nobody watches. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_run_plan(spipe_priv_pipeline_t *p) {
    const spipe_desc_t *d = &p->request.desc;
    const int replayed = p->plan.replay && p->trial.graph && !d->timeline;
    spipe_priv_start_workers(p);
    spipe_priv_begin(p);
    p->report.new_page_bytes = 0 - spipe_priv_page_bytes(&p->plan);
    p->report.timed_ms = 0.0;
    p->watcher = (const spipe_priv_watcher_t *)(const void *)d->timeline;
    spipe_priv_notify(p, SPIPE_PRIV_WATCH_RUN, NULL, 0, 0);
    p->run.began = spipe_priv_clock();
    if (replayed)
        p->trial.run_graph(p);
    else
        spipe_priv_run_streams(p);
    spipe_priv_finish(p);
    p->report.wall_ms = 1e3 * (spipe_priv_clock() - p->run.began);
    p->report.new_page_bytes += spipe_priv_page_bytes(&p->plan);
    spipe_priv_notify(p, SPIPE_PRIV_WATCH_RUN, NULL, 0, 1);
    p->watcher = NULL;
    p->report.replayed = replayed;
    return p->failure.error;
}

/* ---- src/private/trial.h ---- */
/* ---- 13 execute: the trial -----------------------------------------------------------------
   A kept pipeline runs its best few candidates by turns and keeps the fastest. The first runs also
   tell how long the kernels take, and the candidates are listed anew. Writes spipe_priv_trial_t. */

/* Forgets the graph: it names arrays and sizes. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_drop_graph(spipe_priv_trial_t *t) {
    const cudaError_t e = t->graph ? cudaGraphExecDestroy(t->graph) : cudaSuccess;
    t->graph = NULL;
    return e;
}

/* Starts a new trial of num candidates. */
SPIPE_PRIV_RARE void spipe_priv_trial_reset(spipe_priv_trial_t *t, size_t num) {
    t->num = num;
    t->current = 0;
    t->num_runs = 0;
    t->over = 0;
    t->kernel_s = -1.0;
    t->graph_failed = 0;
    memset(t->work, 0, sizeof t->work);
}

/* Whether candidates may be compared by running them. Resident buffers, sources, sinks, checked
   runs and progress forbid it: what they see depends on how the work is divided; and so do runs
   beside it: what is measured depends on them. */
SPIPE_PRIV_RARE int spipe_priv_may_try(const spipe_priv_request_t *r) {
    const spipe_priv_work_t w = spipe_priv_request_work(r, 0.0);
    return r->kept && !r->beside && (w.flags & SPIPE_PRIV_MAY_TRY) && r->desc.count > 0;
}

/* Plans for the request as it is now. Returns the number of candidates. */
SPIPE_PRIV_RARE size_t spipe_priv_make_plan(spipe_priv_pipeline_t *p, double kernel_s) {
    spipe_priv_request_t *r = &p->request;
    spipe_priv_way_t ways[SPIPE_PRIV_CANDIDATES];
    spipe_priv_work_t w;
    size_t num, k;
    memset((void *)ways, 0, sizeof ways);
    w = spipe_priv_request_work(r, kernel_s);
    if (spipe_priv_staged_bytes(&w) > 0.0 || w.host_calls > 0) {
        spipe_priv_request_host(r, spipe_priv_staged_bytes(&w));
        w = spipe_priv_request_work(r, kernel_s);
    }
    num = spipe_priv_request_plan(r, &w, ways, r->kept ? SPIPE_PRIV_CANDIDATES : 1, &p->plan);
    p->plan.kernel_known = kernel_s >= 0.0;
    for (k = 1; k < num; ++k) {
        if (ways[k].predicted_s > SPIPE_PRIV_WORTH_TRYING * ways[0].predicted_s) break;
    }
    memcpy((void *)p->trial.ways, (void *)ways, sizeof ways);
    return k;
}

/* The plan of candidate number k, without arranging anything. */
SPIPE_PRIV_RARE void spipe_priv_take_way(spipe_priv_pipeline_t *p, size_t k) {
    const spipe_priv_work_t w = spipe_priv_request_work(&p->request, p->trial.kernel_s);
    const spipe_priv_way_t *way = &p->trial.ways[k];
    const int compared = p->plan.num_candidates;
    p->plan = spipe_priv_explain(&p->request.desc, &p->request.costs, &w, way);
    p->plan.num_candidates = compared;
    p->plan.kernel_known = p->trial.kernel_s >= 0.0;
    if (k > 0 && !p->trial.over) p->plan.why_chunk = "a candidate that is being measured";
    if (k > 0 && p->trial.over) p->plan.why_chunk = "the fastest of the candidates that were run";
    p->trial.current = k;
}

/* Route, memory, events and program for the plan in use. Allocates nothing once each candidate was
   arranged. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_arrange(spipe_priv_pipeline_t *p) {
    p->request.incomplete = 1; /* until all is well */
    spipe_priv_route_plan(&p->route, &p->request, &p->plan);
    spipe_priv_measure(p);
    SPIPE_TRY(spipe_priv_create_queues(p));
    SPIPE_TRY(spipe_priv_create_streams(p));
    if (spipe_priv_needs_events(p)) SPIPE_TRY(spipe_priv_create_slot_events(p));
    SPIPE_TRY(spipe_priv_arrange_memory(p));
    SPIPE_TRY(spipe_priv_arrange_program(p));
    p->request.incomplete = 0;
    return cudaSuccess;
}

/* Arenas for all candidates, so that trying them allocates nothing. Where there is no room for all
   the best one is enough. */
SPIPE_PRIV_RARE void spipe_priv_reserve(spipe_priv_pipeline_t *p) {
    size_t k, device, pinned, most_device = 0, most_pinned = 0;
    for (k = p->trial.num; k > 0; --k) {
        spipe_priv_take_way(p, k - 1);
        spipe_priv_route_plan(&p->route, &p->request, &p->plan);
        spipe_priv_layout(p, &device, &pinned);
        if (device > most_device) most_device = device;
        if (pinned > most_pinned) most_pinned = pinned;
    }
    if (spipe_priv_create_queues(p) == cudaSuccess &&
        spipe_priv_grow_arenas(p, most_device, most_pinned) == cudaSuccess) {
        return;
    }
    (void)cudaGetLastError();
    spipe_priv_failure_clear(&p->failure);
    p->trial.num = 1;
}

/* After there was no room to pin: whether to plan anew with half as much, the third time with none.
   Not where the user asked for what needs pinned slots. */
SPIPE_PRIV_RARE int spipe_priv_pin_less(spipe_priv_pipeline_t *p) {
    spipe_priv_request_t *r = &p->request;
    const int copy = p->plan.staging == SPIPE_STAGING_COPY;
    const int asked = copy && r->desc.staging == SPIPE_STAGING_COPY;
    if (p->memory.refused == 0 || asked || p->plan.schedule == SPIPE_ZERO_COPY) return 0;
    if (spipe_priv_no_pins(r)) return 0;
    ++r->pin_refusals;
    r->pin_limit = spipe_priv_no_pins(r) ? 0 : p->memory.refused / 2;
    return 1;
}

/* Plans for the request as it is now, and arranges what follows from it. In pipeline.h. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_plan_anew(spipe_priv_pipeline_t *p);

/* Takes part in what is shared before a kept pipeline's run; the plan follows the number of runs.
   Where its memory lies elsewhere than before, what names addresses is written anew. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_pick_up(spipe_priv_pipeline_t *p) {
    const unsigned char *device = p->memory.device, *pinned = p->memory.pinned;
    SPIPE_TRY(spipe_priv_check_in(p));
    if (p->provider && p->provider->outdated(p)) return spipe_priv_plan_anew(p);
    if (device == p->memory.device && pinned == p->memory.pinned) return cudaSuccess;
    SPIPE_TRY(spipe_priv_drop_graph(&p->trial));
    return spipe_priv_arrange(p);
}

/* Makes room for the candidates, and arranges the best one. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_arrange_all(spipe_priv_pipeline_t *p) {
    if (p->trial.num > 1) spipe_priv_reserve(p);
    if (p->trial.num > 0) spipe_priv_take_way(p, 0);
    return spipe_priv_arrange(p);
}

/* Captures a run. A stage that cannot be captured is no failure: then nothing is replayed. In
   enqueue.h. */
SPIPE_PRIV_RARE void spipe_priv_capture_run(spipe_priv_pipeline_t *p);

/* The fastest candidate that has run; the first in the list if none has. A candidate that was
   predicted to be slower replaces a better prediction only if it gains more than runs vary. */
SPIPE_PRIV_RARE size_t spipe_priv_fastest(const spipe_priv_trial_t *t) {
    size_t k, best = 0;
    for (k = 1; k < t->num; ++k) {
        const spipe_priv_way_t *way = &t->ways[k];
        const int staged = way->staging == SPIPE_STAGING_COPY;
        const double chance = staged ? SPIPE_PRIV_STAGED_CHANCE : SPIPE_PRIV_CHANCE;
        if (way->tries == 0) continue;
        if (t->ways[best].tries == 0 || way->best_s < chance * t->ways[best].best_s) best = k;
    }
    return best;
}

/* Whether another run of a candidate may change what is fastest. */
SPIPE_PRIV_RARE int spipe_priv_worth_a_run(const spipe_priv_trial_t *t, size_t k) {
    const spipe_priv_way_t *way = &t->ways[k], *best = &t->ways[spipe_priv_fastest(t)];
    if (way->tries >= SPIPE_PRIV_TRIES || (way->replay && t->graph_failed)) return 0;
    return way->tries < 2 || way->best_s < SPIPE_PRIV_CLEARLY_WORSE * best->best_s;
}

/* The candidate for the next run: the least tried that is worth a run, else the fastest. */
SPIPE_PRIV_RARE size_t spipe_priv_next_way(spipe_priv_trial_t *t) {
    size_t k, next = t->num;
    for (k = 0; k < t->num && !t->over; ++k) {
        if (!spipe_priv_worth_a_run(t, k)) continue;
        if (next == t->num || t->ways[k].tries < t->ways[next].tries) next = k;
    }
    if (next < t->num) return next;
    t->over = 1;
    return spipe_priv_fastest(t);
}

/* Makes a candidate the plan in use. If its memory cannot be allocated, the run does not fail: the
   first candidate is used instead and the trial ends. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_use_way(spipe_priv_pipeline_t *p, size_t next) {
    spipe_priv_trial_t *t = &p->trial;
    if (next == t->current && t->arranged) return cudaSuccess;
    spipe_priv_take_way(p, next);
    t->arranged = 1;
    if (spipe_priv_arrange(p) == cudaSuccess) return cudaSuccess;
    (void)cudaGetLastError();
    t->num = 1;
    t->over = 1;
    spipe_priv_take_way(p, 0);
    return spipe_priv_arrange(p);
}

/* Chooses the candidate for the next run. A run with a timeline takes the fastest one and is not
   measured, because recording slows it down. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_choose_way(spipe_priv_pipeline_t *p) {
    spipe_priv_trial_t *t = &p->trial;
    const int watched = p->request.desc.timeline != NULL;
    size_t next;
    if (t->num == 0) return cudaSuccess;
    next = watched ? spipe_priv_fastest(t) : spipe_priv_next_way(t);
    SPIPE_TRY(spipe_priv_use_way(p, next));
    if (!p->plan.replay || watched) return cudaSuccess;
    if (!t->graph || t->graph_chunk != p->plan.chunk) spipe_priv_capture_run(p);
    return t->graph_failed ? spipe_priv_use_way(p, spipe_priv_next_way(t)) : cudaSuccess;
}

/* Whether two ways are equal: a time measured with one then holds for the other. */
SPIPE_PRIV_RARE int spipe_priv_same_way(const spipe_priv_way_t *a, const spipe_priv_way_t *b) {
    if (a->schedule != b->schedule || a->staging != b->staging || a->replay != b->replay) return 0;
    return a->chunk == b->chunk && a->batch == b->batch && a->depth == b->depth &&
           a->fill_threads == b->fill_threads && a->drain_threads == b->drain_threads &&
           a->caller_helps == b->caller_helps;
}

/* Replaces the candidates by a new list, and copies the times measured for ways that are in both.
   The way in use stays a candidate: if the new list lacks it, it is added or replaces the last. */
SPIPE_PRIV_RARE void spipe_priv_keep_measured(spipe_priv_trial_t *t, spipe_priv_way_t *ways) {
    const spipe_priv_way_t ran = t->ways[t->current];
    size_t j, k;
    for (k = 0; k < t->num; ++k) {
        for (j = 0; j < SPIPE_PRIV_CANDIDATES; ++j) {
            if (!spipe_priv_same_way(&ways[k], &t->ways[j])) continue;
            ways[k].best_s = t->ways[j].best_s;
            ways[k].tries = t->ways[j].tries;
        }
    }
    for (k = 0; k < t->num && !spipe_priv_same_way(&ways[k], &ran); ++k) continue;
    if (k == t->num && t->num < SPIPE_PRIV_CANDIDATES) ++t->num;
    if (k == t->num) --k;
    ways[k] = ran;
    memcpy((void *)t->ways, (void *)ways, sizeof t->ways);
    t->current = k;
}

/* Lists ways with these costs and this work that fit into the memory that the pipeline has. */
SPIPE_PRIV_RARE size_t spipe_priv_list_fitting(const spipe_priv_pipeline_t *p,
                                               const spipe_costs_t *costs,
                                               const spipe_priv_work_t *w, spipe_priv_way_t *ways) {
    spipe_priv_planner_t planner;
    size_t num, k;
    memset(&planner, 0, sizeof planner);
    planner.costs = costs;
    planner.work = w;
    planner.desc = &p->request.desc;
    planner.best = ways;
    planner.capacity = SPIPE_PRIV_CANDIDATES;
    if (p->memory.device_bytes > 0) {
        planner.device_bytes = p->memory.device_bytes - SPIPE_PRIV_ARENA_SLACK;
    }
    planner.pinned_bytes = p->request.pin_limit;
    if (p->memory.pinned_bytes > 0) {
        planner.pinned_bytes = p->memory.pinned_bytes - SPIPE_PRIV_ARENA_SLACK;
    }
    num = spipe_priv_list_ways(&planner);
    for (k = 1; k < num; ++k) {
        if (ways[k].predicted_s > SPIPE_PRIV_WORTH_TRYING * ways[0].predicted_s) break;
    }
    return k;
}

/* Lists the candidates again after a run that took so many seconds. If that is longer than the
   copies explain, either the kernels or the host's threads took the rest: the best of each
   explanation is a candidate. Times measured before are kept. */
SPIPE_PRIV_RARE void spipe_priv_list_again(spipe_priv_pipeline_t *p, double took) {
    spipe_priv_trial_t *t = &p->trial;
    const spipe_priv_way_t ran = t->ways[t->current];
    spipe_priv_work_t w = spipe_priv_request_work(&p->request, t->kernel_s);
    spipe_priv_way_t ways[SPIPE_PRIV_CANDIDATES], others[SPIPE_PRIV_CANDIDATES];
    spipe_costs_t slower;
    size_t k;
    memset((void *)ways, 0, sizeof ways);
    memset((void *)others, 0, sizeof others);
    t->num = spipe_priv_list_fitting(p, &p->request.costs, &w, ways);
    if (ran.fill_threads + ran.drain_threads > 0 && t->kernel_s > 0.0) {
        w.kernel_s = 0.0;
        slower = spipe_priv_solve_host(&p->request.costs, &w, &ran, took);
        (void)spipe_priv_list_fitting(p, &slower, &w, others);
        for (k = 0; k < t->num && !spipe_priv_same_way(&ways[k], &others[0]); ++k) continue;
        if (k == t->num && t->num < SPIPE_PRIV_CANDIDATES) ++t->num;
        if (k == t->num) --k;
        for (; k > 1; --k) ways[k] = ways[k - 1]; /* second, as the last may have to go */
        if (k == 1) ways[1] = others[0];
    }
    spipe_priv_keep_measured(t, ways);
}

/* After a run that went well: notes what it took. The first runs of a process are slow, and what
   they leave for the kernels is too much: one soon after that leaves clearly less counts, too. */
SPIPE_PRIV_RARE void spipe_priv_note_run(spipe_priv_pipeline_t *p) {
    spipe_priv_trial_t *t = &p->trial;
    spipe_priv_way_t *way = &t->ways[t->current];
    const double took = 1e-3 * p->report.wall_ms;
    spipe_priv_work_t w;
    double kernel;
    if (t->num == 0 || t->over || p->request.desc.timeline) return;
    if (way->tries == 0 || took < way->best_s) way->best_s = took;
    ++way->tries;
    if (++t->num_runs > SPIPE_PRIV_CANDIDATES) return;
    w = spipe_priv_request_work(&p->request, 0.0);
    kernel = spipe_priv_solve_kernel(&p->request.costs, &w, way, took);
    if (t->kernel_s >= 0.0 && kernel >= t->kernel_s) return;
    if (t->num_runs > 2 && t->kernel_s - kernel < SPIPE_PRIV_LESS_KERNEL * took) return;
    t->kernel_s = kernel;
    spipe_priv_list_again(p, took);
}

/* ---- src/private/report.h ---- */
/* ---- 12 report -----------------------------------------------------------------------------
   What a run did, taken from its state and put into words. Reads a pipeline; writes its report. */
SPIPE_API const char *spipe_schedule_name(spipe_schedule_t schedule) {
    static const char *const names[] = {"auto",        "engines",       "serial",
                                        "depth-first", "breadth-first", "zero-copy"};
    return names[schedule >= SPIPE_ENGINES && schedule <= SPIPE_ZERO_COPY ? (int)schedule : 0];
}

/* What overlapped, where nobody asked for a schedule. */
SPIPE_PRIV_RARE const char *spipe_priv_what_overlapped(const spipe_priv_pipeline_t *p) {
    const int blocks = p->route.pageable_copies && !p->request.facts.host_page_tables;
    if (p->report.num_chunks == 1) return "one chunk, so nothing overlaps";
    if (p->run.num_batches == 1) return "one copy carries all chunks, so nothing overlaps";
    if (blocks) return "little overlaps: CUDA's copies of pageable memory block";
    return "both copy engines and the kernels work at once";
}

SPIPE_PRIV_RARE void spipe_priv_report_counts(spipe_priv_pipeline_t *p) {
    spipe_report_t *r = &p->report;
    const spipe_priv_run_t *run = &p->run;
    r->total = run->total == SPIPE_AUTO ? 0 : run->total;
    r->chunks_done = spipe_priv_chunks(p, run->at.completed);
    r->num_chunks = run->num_batches == SIZE_MAX ? 0 : spipe_priv_chunks(p, run->num_batches);
    r->count_done = run->at.completed * run->batch_elems;
    if (r->count_done > run->total) r->count_done = run->total;
    r->bytes_in = run->moved[0];
    r->bytes_out = run->moved[1];
}

SPIPE_PRIV_RARE void spipe_priv_report_plan(spipe_priv_pipeline_t *p) {
    spipe_report_t *r = &p->report;
    const spipe_plan_t *plan = &p->plan;
    r->chunk = plan->chunk;
    r->depth = plan->depth;
    r->schedule = plan->schedule;
    r->staged = plan->staging == SPIPE_STAGING_COPY;
    r->why_chunk = plan->why_chunk;
    r->why_schedule = plan->why_schedule;
    r->why_staging = plan->why_staging;
    r->predicted_ms = plan->predicted_ms;
    memcpy(r->costs, plan->costs, sizeof r->costs);
}

SPIPE_PRIV_RARE void spipe_priv_report(spipe_priv_pipeline_t *p, spipe_report_t *to) {
    spipe_report_t *r = &p->report;
    r->failure = p->failure;
    memcpy(r->device, p->request.facts.name, sizeof r->device);
    spipe_priv_report_counts(p);
    spipe_priv_report_plan(p);
    r->num_stages = p->request.desc.num_stages;
    r->num_streams = p->streams.num;
    r->fill_threads = spipe_priv_num_workers(&p->workers.queues[SPIPE_PRIV_FILL]);
    r->drain_threads = spipe_priv_num_workers(&p->workers.queues[SPIPE_PRIV_DRAIN]);
    r->host_threads = spipe_priv_num_workers(&p->workers.queues[SPIPE_PRIV_HOST]);
    r->threads = r->fill_threads > r->drain_threads ? r->fill_threads : r->drain_threads;
    r->device_bytes = p->memory.device_bytes + p->memory.apart_bytes;
    r->pinned_bytes = p->memory.pageable ? 0 : p->memory.pinned_bytes;
    if (!to) return;
    *to = *r;
    if (!to->why_schedule) to->why_schedule = spipe_priv_what_overlapped(p);
}

SPIPE_PRIV_RARE double spipe_priv_gbps(size_t bytes, double ms) {
    return ms > 0.0 ? (double)bytes / ms * 1e-6 : 0.0;
}

SPIPE_PRIV_RARE const char *spipe_priv_s(size_t n) { return n == 1 ? "" : "s"; }

SPIPE_PRIV_RARE void spipe_priv_print_choices(const spipe_report_t *r, FILE *to) {
    const char *how = r->trying ? ", trying candidates" : "";
    if (r->replayed) how = ", replayed";
    fprintf(to, "  work      %zu elements in %zu chunk%s of %zu, %d stage%s\n  chunk     %s\n",
            r->count_done, r->chunks_done, spipe_priv_s(r->chunks_done), r->chunk, r->num_stages,
            spipe_priv_s((size_t)r->num_stages), r->why_chunk);
    fprintf(to, "  schedule  %s, %zu slot%s, %d stream%s%s: %s\n  staging   %s\n",
            spipe_schedule_name(r->schedule), r->depth, spipe_priv_s(r->depth), r->num_streams,
            spipe_priv_s((size_t)r->num_streams), how, r->why_schedule, r->why_staging);
    fprintf(to, "  host      %zu thread%s to fill, %zu to drain", r->fill_threads,
            spipe_priv_s(r->fill_threads), r->drain_threads);
    if (r->host_threads > 0) fprintf(to, ", %zu for host stages", r->host_threads);
    fprintf(to, "\n");
}

enum {
    SPIPE_PRIV_COLUMNS = 88, /* of the verdict's lines, beside their label */
    SPIPE_PRIV_WORTH_SAYING_MS = 5,
    SPIPE_PRIV_WORTH_SAYING_BYTES = 1 << 20
};

/* What only the first run in a process pays, where that is a tenth of it; and pages that are new,
   where they are an eighth of what was moved: no later run over the same arrays pays for these. */
SPIPE_PRIV_RARE void spipe_priv_print_first(const spipe_report_t *r, FILE *to) {
    const double all = r->wall_ms + r->setup_ms;
    const size_t moved = r->bytes_in + r->bytes_out;
    const int new_pages =
        r->new_page_bytes > moved / 8 && r->new_page_bytes >= SPIPE_PRIV_WORTH_SAYING_BYTES;
    if (r->start_ms > 0.1 * all && r->start_ms >= (double)SPIPE_PRIV_WORTH_SAYING_MS) {
        fprintf(to,
                "  first     %.1f ms of that CUDA took to start: a second run takes %s %.1f ms\n",
                r->start_ms, new_pages ? "less than" : "about", all - r->start_ms);
    }
    if (!new_pages) return;
    fprintf(to,
            "  pages     %.1f MiB were new: the system makes memory when it is first written; over "
            "arrays\n            that were written before, a run takes less" SPIPE_PRIV_OWN_FIGURES
            "\n",
            (double)r->new_page_bytes / 1048576.0);
}

SPIPE_PRIV_RARE void spipe_priv_print_figures(const spipe_report_t *r, FILE *to) {
    const double mib = 1048576.0;
    fprintf(to, "  memory    %.1f MiB device, %.1f MiB pinned\n", (double)r->device_bytes / mib,
            (double)r->pinned_bytes / mib);
    fprintf(to, "  in        %.1f MiB, %.2f GB/s\n", (double)r->bytes_in / mib,
            spipe_priv_gbps(r->bytes_in, r->wall_ms));
    fprintf(to, "  out       %.1f MiB, %.2f GB/s\n", (double)r->bytes_out / mib,
            spipe_priv_gbps(r->bytes_out, r->wall_ms));
    fprintf(to, "  time      %.3f ms, and %.3f ms to set up" SPIPE_PRIV_TIMES "; costs of %s\n",
            r->wall_ms, r->setup_ms, r->costs);
    spipe_priv_print_first(r, to);
    if (r->runs_beside == 0) return;
    fprintf(to,
            "  beside    %zu run%s on the same resources; %.3f ms waited for "
            "memory" SPIPE_PRIV_OWN_FIGURES "\n",
            r->runs_beside, spipe_priv_s(r->runs_beside), r->waited_ms);
}

SPIPE_PRIV_RARE void spipe_priv_print_devices(const spipe_report_t *r, FILE *to) {
    int i;
    for (i = 0; i < r->num_devices; ++i) {
        fprintf(to, "  device %-2d %zu chunks%s\n", r->device_numbers[i], r->device_chunks[i],
                r->devices_failed & SPIPE_BIT(i) ? ", then it failed" : "");
    }
}

/* A name in so many columns, 14 at the most. */
SPIPE_PRIV_RARE void spipe_priv_print_name(const char *name, int columns, FILE *to) {
    char text[64];
    const char *end = text;
    (void)snprintf(text, sizeof text, "%s", name);
    spipe_priv_make_printable(text);
    for (; columns > 0 && *end; --columns) (void)spipe_priv_next_char(&end);
    fprintf(to, "%.*s%*s", (int)(end - text), text, columns, "");
}

/* What a timeline found: how busy each engine was, what that means, and the verdict's lines. */
SPIPE_PRIV_RARE void spipe_priv_print_engines(const spipe_report_t *r, FILE *to) {
    static const char *const names[] = {"fill", "copy in", "stages", "host", "copy out", "drain"};
    int i;
    fprintf(to, "  recorded  %16.3f ms   busy %%   idle between\n", r->timed_ms);
    for (i = 0; i < (int)(sizeof names / sizeof *names); ++i) {
        if (!(r->busy_ms[i] > 0.0)) continue;
        fprintf(to, "  %-9s %16.3f ms %8.1f %11.3f ms\n", names[i], r->busy_ms[i],
                100.0 * r->busy_ms[i] / r->timed_ms, r->idle_ms[i]);
    }
    for (i = 0; i < r->num_stages && r->num_stages > 1; ++i) {
        fputs("    ", to);
        spipe_priv_print_name(r->stage_names[i], 14, to);
        fprintf(to, " %9.3f ms %8.1f\n", r->stage_ms[i], 100.0 * r->stage_ms[i] / r->timed_ms);
    }
}

/* Prints n characters of a line behind a label, and goes on below where it gets too long. */
SPIPE_PRIV_RARE void spipe_priv_print_wrapped(const char *label, const char *line, int n,
                                              FILE *to) {
    int indent = 0;
    while (n > 0) {
        int here = n;
        if (here > SPIPE_PRIV_COLUMNS - indent) {
            for (here = SPIPE_PRIV_COLUMNS - indent; here > 0 && line[here] != ' ';) --here;
            if (here == 0) here = n; /* a word that fits nowhere */
        }
        fprintf(to, "  %-9s %*s%.*s\n", label, indent, "", here, line);
        here += here < n; /* the space */
        line += here;
        n -= here;
        label = "";
        indent = 2;
    }
}

SPIPE_PRIV_RARE void spipe_priv_print_verdict(const spipe_report_t *r, FILE *to) {
    const char *line = r->verdict;
    if (!(r->timed_ms > 0.0)) return;
    spipe_priv_print_engines(r, to);
    fprintf(to, "  overlap   %.0f %% of what can overlap; without any it takes %.3f ms (%.2f x)\n",
            100.0 * r->overlap, r->serial_ms, r->serial_ms / r->timed_ms);
    fprintf(to, "  bound     %.3f ms of work of the busiest engine, %.0f %% of the run\n",
            r->bound_ms, 100.0 * r->bound_ms / r->timed_ms);
    fprintf(to, "  sync      %.2f us on average from when an operation is ready to its begin\n",
            r->sync_us);
    while (*line) {
        const int n = (int)strcspn(line, "\n");
        spipe_priv_print_wrapped(line == r->verdict ? "verdict" : "", line, n, to);
        line += n + (line[n] == '\n');
    }
}

SPIPE_API cudaError_t spipe_report_print(const spipe_report_t *r, FILE *to) {
    if (!r || !to) return cudaErrorInvalidValue;
    fprintf(to, "streampipe on %s\n", r->device[0] ? r->device : "no device");
    if (r->failure.error != cudaSuccess) {
        fprintf(to, "  FAILED    %s (%s)\n  whole     %zu chunks\n", r->failure.message,
                cudaGetErrorName(r->failure.error), r->failure.chunks_whole);
    }
    if (r->depth > 0) {
        spipe_priv_print_choices(r, to);
        spipe_priv_print_figures(r, to);
    }
    spipe_priv_print_devices(r, to);
    spipe_priv_print_verdict(r, to);
    return ferror(to) ? cudaErrorOperatingSystem : cudaSuccess;
}

/* ---- src/private/enqueue.h ---- */
/* ---- 13 execute: in a stream's order -------------------------------------------------------
   A run that is enqueued, or captured into a graph: nobody waits, so nothing is counted. */

/* Puts a run into streams that start after stream and end before what follows on it. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_enqueue_run(spipe_priv_pipeline_t *p, cudaStream_t stream) {
    spipe_priv_run_t *run = &p->run;
    cudaError_t e = cudaSuccess, synced = cudaSuccess;
    if (run->mode == SPIPE_PRIV_ENQUEUED && run->running_enqueued) {
        e = cudaStreamWaitEvent(stream, p->streams.end, 0);
    }
    if (e == cudaSuccess) e = spipe_priv_move_resident(p, 0, stream);
    if (e == cudaSuccess) e = spipe_priv_fork(&p->streams, stream);
    if (e == cudaSuccess) e = spipe_priv_issue_all(p);
    spipe_priv_keep_error(&e, spipe_priv_join(&p->streams, stream));
    if (e == cudaSuccess) e = spipe_priv_move_resident(p, 1, stream);
    if (run->mode == SPIPE_PRIV_CAPTURED) return e;
    if (e == cudaSuccess) e = cudaEventRecord(p->streams.end, stream);
    if (e == cudaSuccess)
        run->running_enqueued = 1;
    else
        spipe_priv_sync_streams(&p->streams, &synced);
    return e;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_capture_into(spipe_priv_pipeline_t *p, cudaGraph_t *graph) {
    const cudaStream_t base = p->streams.streams[0];
    cudaError_t e;
    SPIPE_TRY(cudaStreamBeginCapture(base, cudaStreamCaptureModeThreadLocal));
    p->run.mode = SPIPE_PRIV_CAPTURED;
    e = spipe_priv_enqueue_run(p, base);
    p->run.mode = SPIPE_PRIV_WAITED_FOR;
    spipe_priv_keep_error(&e, cudaStreamEndCapture(base, graph));
    return e;
}

/* Replays a run that was captured. */
SPIPE_PRIV_RARE void spipe_priv_run_graph(spipe_priv_pipeline_t *p) {
    const cudaStream_t base = p->streams.streams[0];
    cudaError_t e = cudaGraphLaunch(p->trial.graph, base);
    if (e == cudaSuccess) e = cudaStreamSynchronize(base);
    if (e == cudaSuccess) {
        memcpy(p->run.moved, p->trial.graph_moved, sizeof p->run.moved);
        p->run.at.completed = p->run.num_batches;
        return;
    }
    (void)cudaGetLastError();
    (void)spipe_priv_fail(p, e, -1, SPIPE_AUTO,
                          "the GPU reported an error in a replayed run: %s; set checked to learn "
                          "which stage",
                          cudaGetErrorString(e));
}

SPIPE_PRIV_RARE void spipe_priv_capture_run(spipe_priv_pipeline_t *p) {
    spipe_priv_trial_t *t = &p->trial;
    const spipe_failure_t failure = p->failure; /* of the last run, not of the capture */
    const size_t completed = p->run.at.completed;
    cudaGraph_t graph = NULL;
    cudaError_t e = spipe_priv_drop_graph(t);
    spipe_priv_begin(p);
    if (e == cudaSuccess) e = spipe_priv_capture_into(p, &graph);
    if (e == cudaSuccess) e = cudaGraphInstantiateWithFlags(&t->graph, graph, 0);
    if (e == cudaSuccess) e = cudaGraphUpload(t->graph, p->streams.streams[0]);
    if (graph) (void)cudaGraphDestroy(graph);
    memcpy(t->graph_moved, p->run.moved, sizeof p->run.moved);
    t->graph_chunk = p->plan.chunk;
    p->run.at.completed = completed;
    p->failure = failure;
    t->run_graph = spipe_priv_run_graph;
    if (e == cudaSuccess) return;
    (void)cudaGetLastError();
    (void)spipe_priv_drop_graph(t);
    t->graph_failed = 1;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_refuse_call(spipe_report_t *report, cudaError_t e,
                                                   const char *why) {
    if (!report) return e;
    memset(report, 0, sizeof *report);
    return spipe_priv_refuse(&report->failure, e, "%s", why);
}

/* Every call on a pipeline begins so, or with claim, and ends with let_go: one at a time, whatever
   the thread. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_claim_any(spipe_priv_pipeline_t *p, spipe_report_t *report) {
    int in_use;
    if (!p) {
        return spipe_priv_refuse_call(report, cudaErrorInvalidResourceHandle,
                                      "the pipeline is NULL; make one with spipe_pipeline_create");
    }
    if (p->self != p) {
        return spipe_priv_refuse_call(report, cudaErrorInvalidResourceHandle,
                                      "this is no pipeline, or one that was destroyed; make one "
                                      "with spipe_pipeline_create");
    }
    spipe_priv_mutex_lock(&p->sync->lock);
    in_use = p->in_use;
    p->in_use = 1;
    spipe_priv_mutex_unlock(&p->sync->lock);
    if (!in_use) return cudaSuccess;
    return spipe_priv_refuse_call(report, cudaErrorNotPermitted,
                                  "the pipeline is in use by another thread, or by the run whose "
                                  "stage called; make a pipeline for each thread");
}

SPIPE_PRIV_RARE void spipe_priv_let_go(spipe_priv_pipeline_t *p) {
    spipe_priv_mutex_lock(&p->sync->lock);
    p->in_use = 0;
    spipe_priv_mutex_unlock(&p->sync->lock);
}

/* The same of calls that cannot be made while the caller takes chunks. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_claim(spipe_priv_pipeline_t *p, spipe_report_t *report) {
    SPIPE_TRY(spipe_priv_claim_any(p, report));
    if (!p->pull.active) return cudaSuccess;
    spipe_priv_let_go(p);
    return spipe_priv_refuse_call(report, cudaErrorNotPermitted,
                                  "chunks of the pipeline are being taken with spipe_next; take "
                                  "the last one, or end with spipe_end");
}

/* The same at the end of a call that may throw on what a function of the user's threw. */
SPIPE_PRIV_RARE void spipe_priv_let_go_throwing(spipe_priv_pipeline_t *p) {
    void *thrown = p->thrown;
    p->thrown = NULL;
    spipe_priv_let_go(p);
    spipe_priv_rethrow(&thrown);
}

/* Makes the pipeline's device current; refuses a pipeline that cannot run. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_enter(spipe_priv_pipeline_t *p, int *before,
                                             spipe_report_t *report) {
    cudaError_t e;
    *before = p->request.device;
    if (p->request.incomplete) {
        return spipe_priv_refuse_call(report, cudaErrorInvalidResourceHandle,
                                      "an array could not be set; set it again");
    }
    e = spipe_priv_use_device(p->request.device, before);
    if (e == cudaSuccess) return e;
    return spipe_priv_refuse_call(report, e,
                                  "the device of the pipeline cannot be made the current one");
}

/* The same before a run, where its arrays may have been set since the last. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_enter_run(spipe_priv_pipeline_t *p, int *before,
                                                 spipe_report_t *report) {
    cudaError_t e = cudaSuccess;
    SPIPE_TRY(spipe_priv_enter(p, before, report));
    if (p->request.arrays_known) return e;
    e = spipe_priv_check_arrays(&p->request.desc, &p->failure);
    p->request.arrays_known = e == cudaSuccess;
    if (e == cudaSuccess) return e;
    (void)cudaSetDevice(*before);
    return spipe_priv_refuse_call(report, e, p->failure.message);
}

/* Runs at once where host threads have work to do, and where CUDA copies pageable memory, which it
   may read when it is called: the order of the stream is kept by waiting for it. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_run_now(spipe_priv_pipeline_t *p, cudaStream_t stream) {
    if (p->run.mode == SPIPE_PRIV_CAPTURED) {
        return spipe_priv_refuse(&p->failure, cudaErrorStreamCaptureUnsupported,
                                 "a captured run takes pinned arrays only; no sources, sinks or "
                                 "host stages, and no zero-copy that is checked");
    }
    if (p->run.ran_now && p->run.failed) return p->failure.error; /* until somebody has asked */
    if (p->run.running_enqueued) SPIPE_TRY(cudaEventSynchronize(p->streams.end));
    SPIPE_TRY(cudaStreamSynchronize(stream));
    p->run.mode = SPIPE_PRIV_WAITED_FOR;
    p->run.ran_now = 1;
    SPIPE_TRY(spipe_priv_choose_way(p));
    return spipe_priv_run_plan(p);
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_run_later(spipe_priv_pipeline_t *p, cudaStream_t stream) {
    spipe_priv_run_t *run = &p->run;
    cudaError_t e;
    if (!run->running_enqueued) spipe_priv_begin(p);
    e = spipe_priv_enqueue_run(p, stream);
    if (e == cudaSuccess) return e;
    if (run->mode == SPIPE_PRIV_ENQUEUED) run->ran_now = 1; /* so that wait reports it */
    return spipe_priv_fail(p, e, -1, SPIPE_AUTO, "enqueuing failed: %s", cudaGetErrorString(e));
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_enqueue(spipe_priv_pipeline_t *p, cudaStream_t stream) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    int before, at_once;
    cudaError_t e;
    SPIPE_TRY(spipe_priv_check_stages(&p->request.desc, &p->failure));
    SPIPE_TRY(spipe_priv_enter_run(p, &before, NULL));
    e = spipe_priv_pick_up(p);
    if (p->lent.entered && !p->lent.stays && p->provider)
        p->provider->stay(p); /* a graph of it may run later */
    if (e == cudaSuccess) e = cudaStreamIsCapturing(stream, &status); /* 0 may be the thread's */
    p->run.mode = status == cudaStreamCaptureStatusNone ? SPIPE_PRIV_ENQUEUED : SPIPE_PRIV_CAPTURED;
    at_once = p->route.pageable_copies && !p->request.facts.host_page_tables;
    if (e == cudaSuccess && (at_once || p->route.host_work))
        e = spipe_priv_run_now(p, stream);
    else if (e == cudaSuccess)
        e = spipe_priv_run_later(p, stream);
    p->run.mode = SPIPE_PRIV_WAITED_FOR;
    (void)cudaSetDevice(before);
    return e;
}

SPIPE_API cudaError_t spipe_pipeline_enqueue(spipe_pipeline_t *pipeline, cudaStream_t stream) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)(void *)pipeline;
    cudaError_t e;
    SPIPE_TRY(spipe_priv_claim(p, NULL));
    e = spipe_priv_enqueue(p, stream);
    spipe_priv_let_go_throwing(p);
    return e;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_wait_enqueued(spipe_priv_pipeline_t *p,
                                                     spipe_report_t *report) {
    spipe_priv_run_t *run;
    int before;
    cudaError_t e = cudaSuccess;
    SPIPE_TRY(spipe_priv_enter(p, &before, report));
    run = &p->run;
    if (!run->running_enqueued && !run->ran_now) spipe_priv_failure_clear(&p->failure);
    if (run->running_enqueued) e = cudaEventSynchronize(p->streams.end);
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        (void)spipe_priv_fail(p, e, -1, SPIPE_AUTO,
                              "the GPU reported an error in an enqueued run: %s; set checked to "
                              "learn which stage",
                              cudaGetErrorString(e));
    }
    if (run->running_enqueued && !run->failed) run->at.completed = run->num_batches;
    p->failure.chunks_whole = spipe_priv_chunks(p, run->at.completed);
    run->running_enqueued = run->ran_now = 0;
    e = p->failure.error;
    spipe_priv_report(p, report);
    (void)cudaSetDevice(before);
    return e;
}

SPIPE_API cudaError_t spipe_pipeline_wait(spipe_pipeline_t *pipeline, spipe_report_t *report) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)(void *)pipeline;
    cudaError_t e;
    SPIPE_TRY(spipe_priv_claim(p, report));
    e = spipe_priv_wait_enqueued(p, report);
    spipe_priv_let_go(p);
    return e;
}

/* ---- src/private/pull.h ---- */
/* ---- 13 execute: chunk by chunk -------------------------------------------------------------
   A run whose chunks the caller takes, and works on in a stream of his own. Writes
   spipe_priv_pull_t. */

SPIPE_PRIV_RARE cudaError_t spipe_priv_pull_begin(spipe_priv_pipeline_t *p) {
    cudaError_t e;
    memset(&p->pull, 0, sizeof p->pull);
    SPIPE_TRY(spipe_priv_pick_up(p));
    e = spipe_priv_choose_way(p);
    if (e != cudaSuccess) {
        spipe_priv_check_out(p);
        return e;
    }
    spipe_priv_start_workers(p);
    spipe_priv_begin(p);
    p->run.began = spipe_priv_clock();
    p->pull.active = 1;
    return spipe_priv_start_streams(p);
}

/* Ends what is under way; the failure and the report then say what happened. */
SPIPE_PRIV_RARE void spipe_priv_pull_end(spipe_priv_pipeline_t *p) {
    cudaError_t e = cudaSuccess;
    spipe_priv_lock(p->sync); /* a worker may be recording that a chunk to come cannot be had */
    if (!p->run.failed) spipe_priv_failure_clear(&p->failure); /* of a call that was refused */
    spipe_priv_unlock(p->sync);
    if (!p->pull.active) return;
    if (p->pull.issued < p->run.num_batches) { /* no more slots are filled */
        spipe_priv_locked_set(p, &p->run.num_batches, p->pull.issued);
    }
    spipe_priv_let_end(p);
    if (p->pull.released < p->pull.issued) spipe_priv_sync_streams(&p->streams, &e);
    if (p->pull.released < p->pull.taken && p->provider) {
        spipe_priv_keep_error(&e, cudaDeviceSynchronize()); /* the caller's work on lent memory */
    }
    spipe_priv_finish(p);
    p->report.wall_ms = 1e3 * (spipe_priv_clock() - p->run.began);
    p->report.replayed = 0;
    p->pull.active = 0;
    spipe_priv_check_out(p);
}

/* Issues the copies in of the batches that follow, as far as slots are free and filled. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_pull_ahead(spipe_priv_pipeline_t *p) {
    const int fills = p->route.refill != SPIPE_PRIV_REFILL_NEVER;
    spipe_priv_pull_t *pull = &p->pull;
    while (pull->issued < pull->released + p->plan.depth && pull->issued < p->run.num_batches) {
        if (fills && !spipe_priv_is_filled(p, pull->issued)) break;
        SPIPE_TRY(spipe_priv_issue_steps(p, 0, p->route.num_steps - 1, pull->issued));
        ++pull->issued;
    }
    return cudaSuccess;
}

/* A stream waits for a batch's copies in. One stream has only one batch under way. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_pull_wait(spipe_priv_pipeline_t *p,
                                                 const spipe_priv_at_t *at, size_t row,
                                                 cudaStream_t stream) {
    cudaEvent_t event = at->slot->in_done;
    if (p->run.one_stream) {
        event = p->streams.sync_event;
        SPIPE_TRY(cudaEventRecord(event, spipe_priv_stream_for(p, row, SPIPE_PRIV_ON_IN)));
    }
    return cudaStreamWaitEvent(stream, event, 0);
}

/* Issues the copies in of the next batch, which may be found to be none. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_pull_fetch(spipe_priv_pipeline_t *p) {
    spipe_priv_pull_t *pull = &p->pull;
    if (!pull->active) SPIPE_TRY(spipe_priv_pull_begin(p));
    spipe_priv_stop_at(p, pull->taken);
    if (pull->issued > pull->taken || pull->taken >= p->run.num_batches) return cudaSuccess;
    SPIPE_TRY(spipe_priv_issue_steps(p, 0, p->route.num_steps - 1, pull->taken));
    if (pull->taken < p->run.num_batches) ++pull->issued;
    return cudaSuccess;
}

/* Gives it to the caller, or ends the run. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_pull_give(spipe_priv_pipeline_t *p, cudaStream_t stream,
                                                 spipe_chunk_t *chunk) {
    spipe_priv_pull_t *pull = &p->pull;
    spipe_priv_at_t at;
    size_t row;
    if (!chunk || pull->taken >= p->run.num_batches) {
        spipe_priv_pull_end(p);
        return p->failure.error;
    }
    SPIPE_TRY(spipe_priv_pull_ahead(p));
    row = spipe_priv_locate(p, pull->taken, &at);
    SPIPE_TRY(spipe_priv_pull_wait(p, &at, row, stream));
    spipe_priv_view(p, &at, &at.slot->view);
    *chunk = at.slot->view;
    chunk->stream = stream;
    chunk->note = NULL;
    ++pull->taken;
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_pull_release(spipe_priv_pipeline_t *p, cudaStream_t stream) {
    const int last = p->route.num_steps;
    spipe_priv_at_t at;
    const size_t row = spipe_priv_locate(p, p->pull.released, &at);
    const cudaStream_t out = spipe_priv_stream_for(p, row, SPIPE_PRIV_ON_OUT);
    SPIPE_TRY(cudaEventRecord(p->streams.sync_event, stream));
    SPIPE_TRY(cudaStreamWaitEvent(out, p->streams.sync_event, 0));
    SPIPE_TRY(spipe_priv_issue_steps(p, last - 1, last, p->pull.released));
    ++p->pull.released;
    return spipe_priv_pull_ahead(p);
}

/* After an error: the run ends, and its failure has a sentence. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_pull_failed(spipe_priv_pipeline_t *p, cudaError_t e) {
    if (e == cudaSuccess || !p->pull.active) return e;
    if (!spipe_priv_locked_get(p, &p->run.failed)) {
        (void)spipe_priv_fail(p, e, -1, p->pull.taken, "taking chunk %zu failed: %s", p->pull.taken,
                              cudaGetErrorString(e));
    }
    spipe_priv_pull_end(p);
    return p->failure.error;
}

/* Refuses a call. Where the loop has failed that stays its failure: a chunk to come cannot be had,
   which a worker may be recording. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_pull_refuse(spipe_priv_pipeline_t *p, cudaError_t e,
                                                   const char *why) {
    spipe_priv_lock(p->sync);
    if (!p->pull.active || !p->run.failed) (void)spipe_priv_refuse(&p->failure, e, "%s", why);
    spipe_priv_unlock(p->sync);
    return e;
}

/* Whether chunks may be taken from this pipeline now. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_pull_check(spipe_priv_pipeline_t *p, const void *chunk) {
    const size_t held = p->pull.taken - p->pull.released;
    char why[80];
    if (p->request.desc.num_stages > 0) {
        return spipe_priv_pull_refuse(p, cudaErrorInvalidValue,
                                      "the pipeline has stages, so run it; spipe_next is for one "
                                      "without");
    }
    if (!chunk)
        return spipe_priv_pull_refuse(p, cudaErrorInvalidValue, "there is no chunk to write to");
    if (!p->pull.active || held == 0) return cudaSuccess;
    if (p->pull.taken < p->run.num_batches && held < p->plan.depth) return cudaSuccess;
    snprintf(why, sizeof why, "%zu chunks that were taken are held; release them first", held);
    return spipe_priv_pull_refuse(p, cudaErrorNotReady, why);
}

/* The end of a call. What a source threw, for a chunk that is still to come, is thrown when the run
   ends. */
SPIPE_PRIV_RARE void spipe_priv_pull_let_go(spipe_priv_pipeline_t *p) {
    if (p->pull.active)
        spipe_priv_let_go(p);
    else
        spipe_priv_let_go_throwing(p);
}

SPIPE_API cudaError_t spipe_next(spipe_pipeline_t *pipeline, cudaStream_t stream,
                                 spipe_chunk_t *chunk) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)(void *)pipeline;
    cudaError_t e;
    int before = 0;
    if (chunk) memset((void *)chunk, 0, sizeof *chunk);
    SPIPE_TRY(spipe_priv_claim_any(p, NULL));
    e = spipe_priv_pull_check(p, chunk);
    if (e == cudaSuccess) e = spipe_priv_enter_run(p, &before, NULL);
    if (e == cudaSuccess) {
        e = spipe_priv_pull_failed(p, spipe_priv_pull_fetch(p));
        if (e == cudaSuccess) e = spipe_priv_pull_check(p, chunk); /* the end may be known now */
        if (e == cudaSuccess) e = spipe_priv_pull_failed(p, spipe_priv_pull_give(p, stream, chunk));
        (void)cudaSetDevice(before);
    }
    spipe_priv_pull_let_go(p);
    return e;
}

SPIPE_API cudaError_t spipe_release(spipe_pipeline_t *pipeline, cudaStream_t stream) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)(void *)pipeline;
    cudaError_t e;
    int before = 0;
    SPIPE_TRY(spipe_priv_claim_any(p, NULL));
    if (!p->pull.active || p->pull.released == p->pull.taken) {
        e = spipe_priv_pull_refuse(p, cudaErrorNotPermitted,
                                   "no chunk is held; take one with spipe_next first");
    } else {
        e = spipe_priv_enter(p, &before, NULL);
        if (e == cudaSuccess) {
            e = spipe_priv_pull_failed(p, spipe_priv_pull_release(p, stream));
            (void)cudaSetDevice(before);
        }
    }
    spipe_priv_pull_let_go(p);
    return e;
}

SPIPE_API cudaError_t spipe_end(spipe_pipeline_t *pipeline, spipe_report_t *report) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)(void *)pipeline;
    cudaError_t e;
    int before = 0;
    SPIPE_TRY(spipe_priv_claim_any(p, report));
    e = spipe_priv_enter(p, &before, report);
    if (e == cudaSuccess) {
        spipe_priv_pull_end(p);
        e = p->failure.error;
        spipe_priv_report(p, report);
        (void)cudaSetDevice(before);
    }
    spipe_priv_pull_let_go(p);
    return e;
}

/* ---- src/private/pipeline.h ---- */
/* ---- 13 execute: pipelines -----------------------------------------------------------------
   Making a pipeline from a description, running it, changing its arrays and length, freeing it. */

SPIPE_PRIV_RARE cudaError_t spipe_priv_free(spipe_priv_pipeline_t *p) {
    cudaError_t e = cudaSuccess;
    int i, before = 0;
    const int known = spipe_priv_use_device(p->request.device, &before) == cudaSuccess;
    if (p->run.failed || p->request.kept) spipe_priv_sync_streams(&p->streams, &e);
    spipe_priv_stop_workers(p);
    spipe_priv_keep_error(&e, spipe_priv_drop_graph(&p->trial));
    spipe_priv_keep_error(&e, spipe_priv_free_arenas(p)); /* streams end faster after it */
    spipe_priv_end_streams(p, &e);
    p->lent.stays = 0;
    spipe_priv_check_out(p);
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        spipe_priv_keep_error(&e, spipe_priv_unregister(&p->request, i));
    }
    free((void *)p->program.ops);
    free((void *)p->run.positions);
    if (p->memory.slots != &p->memory.single) free((void *)p->memory.slots);
    spipe_priv_sync_destroy(p->sync);
    if (known) (void)cudaSetDevice(before);
    return e;
}

/* Plans, and pins arrays in place where that is the plan; if the system refuses, plans anew. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_plan_request(spipe_priv_pipeline_t *p) {
    int may_try = spipe_priv_may_try(&p->request), pinned = 1;
    size_t num = spipe_priv_make_plan(p, -1.0);
    if (p->plan.staging == SPIPE_STAGING_REGISTER) {
        SPIPE_TRY(spipe_priv_register(&p->request, &pinned));
        if (!pinned) {
            p->request.may_register = 0;
            num = spipe_priv_make_plan(p, -1.0);
        }
        may_try = 0;
    }
    spipe_priv_trial_reset(&p->trial, may_try ? num : 0);
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_set_up(spipe_priv_pipeline_t *p, const spipe_desc_t *d,
                                              int kept, const char **what) {
    const int shared = d->hooks && d->hooks->next_batch;
    p->provider = spipe_priv_provider_of(d);
    SPIPE_TRY(spipe_priv_request_begin(&p->request, d, kept, &p->failure)); /* freeing needs it */
    *what = "making a lock";
    p->sync = spipe_priv_sync_create();
    if (!p->sync) return cudaErrorMemoryAllocation;
    SPIPE_TRY(spipe_priv_refuse_zero_copy(&p->request, &p->failure));
    SPIPE_TRY(spipe_priv_check_in(p));
    *what = "choosing a plan";
    SPIPE_TRY(spipe_priv_plan_request(p));
    spipe_priv_route_stages(&p->route, d);
    spipe_priv_route_plan(&p->route, &p->request, &p->plan);
    spipe_priv_measure(p);
    if (shared) {
        p->run.positions = (size_t *)calloc(SPIPE_PRIV_POSITIONS, sizeof *p->run.positions);
        if (!p->run.positions) return cudaErrorMemoryAllocation;
    }
    SPIPE_TRY(spipe_priv_create_slots(p));
    *what = "making events";
    SPIPE_TRY(spipe_priv_create_events(p));
    *what = "making streams and memory";
    return spipe_priv_arrange_all(p);
}

/* The same from the beginning, but that what is known of pinning stays. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_set_up_anew(spipe_priv_pipeline_t *p, const spipe_desc_t *d,
                                                   int kept, const char **what) {
    const int device = p->request.device, refusals = p->request.pin_refusals;
    const size_t limit = p->request.pin_limit;
    (void)spipe_priv_free(p);
    memset((void *)p, 0, offsetof(spipe_priv_pipeline_t, streams.streams));
    spipe_priv_failure_clear(&p->failure);
    p->request.device = device;
    p->request.pin_refusals = refusals;
    p->request.pin_limit = limit;
    return spipe_priv_set_up(p, d, kept, what);
}

/* Makes a pipeline in memory of the caller's; frees all on failure. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_create(spipe_priv_pipeline_t *p, const spipe_desc_t *d,
                                              int kept, spipe_failure_t *failure) {
    const double began = spipe_priv_clock();
    const char *what = NULL;
    cudaError_t e;
    double started;
    int least, greatest;
    memset((void *)p, 0, offsetof(spipe_priv_pipeline_t, streams.streams));
    if (failure) spipe_priv_failure_clear(failure);
    e = kept ? spipe_priv_check_desc(d, failure) : spipe_desc_check(d, failure);
    if (e != cudaSuccess || !d) return e;
    spipe_priv_failure_clear(&p->failure);
    e = cudaGetDevice(&p->request.device);
    if (e == cudaSuccess) e = cudaDeviceGetStreamPriorityRange(&least, &greatest); /* starts CUDA */
    if (e != cudaSuccess) return spipe_priv_no_device(failure, e);
    started = spipe_priv_clock();
    e = spipe_priv_set_up(p, d, kept, &what);
    while (e != cudaSuccess && spipe_priv_pin_less(p)) {
        e = spipe_priv_set_up_anew(p, d, kept, &what);
    }
    if (e != cudaSuccess) {
        if (p->failure.error == cudaSuccess) {
            (void)cudaGetLastError();
            (void)spipe_priv_refuse(&p->failure, e, "setting up failed at %s: %s", what,
                                    cudaGetErrorString(e));
        }
        if (failure) *failure = p->failure;
        (void)spipe_priv_free(p);
        return e;
    }
    if (kept) {
        spipe_priv_begin(p);
        spipe_priv_check_out(p);
    }
    p->report.start_ms = 1e3 * (started - began);
    p->report.setup_ms = 1e3 * (spipe_priv_clock() - began);
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_run(const spipe_desc_t *d, spipe_report_t *report) {
    spipe_priv_pipeline_t p;
    spipe_failure_t failure;
    cudaError_t e, freed;
    if (spipe_priv_begun(d) && d->hooks && d->hooks->run) return d->hooks->run(d, report);
    e = spipe_priv_create(&p, d, 0, &failure);
    if (e != cudaSuccess) {
        if (report) {
            memset(report, 0, sizeof *report);
            report->failure = failure;
        }
        return e;
    }
    e = spipe_priv_run_plan(&p);
    (void)cudaSetDevice(p.request.device); /* a stage may have left another one current */
    spipe_priv_report(&p, report);
    freed = spipe_priv_free(&p);
    spipe_priv_rethrow(&p.thrown);
    if (e != cudaSuccess || freed == cudaSuccess) return e;
    e = spipe_priv_refuse(report ? &report->failure : NULL, freed,
                          "freeing after the run failed: %s", cudaGetErrorString(freed));
    if (report) report->failure.chunks_whole = report->num_chunks;
    return e;
}

SPIPE_API cudaError_t spipe_pipeline_create(spipe_pipeline_t **pipeline, const spipe_desc_t *d,
                                            spipe_failure_t *failure) {
    spipe_priv_pipeline_t *p;
    cudaError_t e;
    if (!pipeline) {
        return spipe_priv_refuse(failure, cudaErrorInvalidValue,
                                 "there is no pointer to put the pipeline into");
    }
    *pipeline = NULL;
    if (spipe_priv_begun(d) && d->hooks && d->hooks->run) {
        return spipe_priv_refuse(failure, cudaErrorNotSupported,
                                 "several devices are for spipe_run; of pipelines that are kept, "
                                 "make one on each device");
    }
    p = (spipe_priv_pipeline_t *)malloc(sizeof *p);
    if (!p) {
        (void)spipe_priv_refuse(failure, cudaErrorMemoryAllocation, "no memory for the pipeline");
        return cudaErrorMemoryAllocation;
    }
    e = spipe_priv_create(p, d, 1, failure);
    if (e != cudaSuccess) {
        free(p);
        return e;
    }
    p->self = p;
    p->trial.compare_work = spipe_priv_compare_work; /* so that spipe_run alone does not carry it */
    *pipeline = (spipe_pipeline_t *)(void *)p;
    return e;
}

SPIPE_API cudaError_t spipe_pipeline_destroy(spipe_pipeline_t *pipeline) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)(void *)pipeline;
    cudaError_t e;
    if (!p) return cudaSuccess;
    SPIPE_TRY(spipe_priv_claim_any(p, NULL));
    spipe_priv_pull_end(p);
    p->self = NULL;
    e = spipe_priv_free(p);
    free(p);
    return e;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_run_kept(spipe_priv_pipeline_t *p, spipe_report_t *report) {
    int before;
    cudaError_t e;
    if (p->run.running_enqueued || p->run.ran_now) SPIPE_TRY(spipe_priv_wait_enqueued(p, report));
    if (p->request.desc.num_stages == 0) {
        e = spipe_priv_check_stages(&p->request.desc, &p->failure);
        return spipe_priv_refuse_call(report, e, p->failure.message);
    }
    SPIPE_TRY(spipe_priv_enter_run(p, &before, report));
    e = spipe_priv_pick_up(p);
    if (e == cudaSuccess) e = spipe_priv_choose_way(p);
    p->report.trying = p->trial.num > 1 && !p->trial.over;
    if (e == cudaSuccess)
        e = spipe_priv_run_plan(p);
    else if (p->failure.error != e)
        e = spipe_priv_refuse(&p->failure, e, "arranging the run failed: %s",
                              cudaGetErrorString(e));
    if (e == cudaSuccess) spipe_priv_note_run(p);
    spipe_priv_report(p, report);
    p->report.setup_ms = 0.0;
    p->report.start_ms = 0.0;
    spipe_priv_check_out(p);
    (void)cudaSetDevice(before);
    return e;
}

SPIPE_API cudaError_t spipe_pipeline_run(spipe_pipeline_t *pipeline, spipe_report_t *report) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)(void *)pipeline;
    cudaError_t e;
    SPIPE_TRY(spipe_priv_claim(p, report));
    e = spipe_priv_run_kept(p, report);
    spipe_priv_let_go_throwing(p);
    return e;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_plan_anew(spipe_priv_pipeline_t *p) {
    cudaError_t e;
    p->request.incomplete = 1;
    SPIPE_TRY(spipe_priv_drop_graph(&p->trial));
    do {
        e = spipe_priv_plan_request(p);
        if (e != cudaSuccess) break;
        p->trial.arranged = 0;
        e = spipe_priv_arrange_all(p);
    } while (e != cudaSuccess && spipe_priv_pin_less(p));
    return e;
}

/* Plans anew for other arrays, or another count. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_replan(spipe_priv_pipeline_t *p) {
    cudaError_t e;
    p->request.incomplete = 1;
    p->request.arrays_known = 0;
    SPIPE_TRY(spipe_priv_look_at_arrays(&p->request, &p->failure));
    SPIPE_TRY(spipe_priv_check_in(p));
    e = spipe_priv_plan_anew(p);
    spipe_priv_check_out(p);
    return e;
}

/* What would be wrong in a description with this array. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_other_host(spipe_priv_pipeline_t *p, int buffer,
                                                        void *host) {
    spipe_desc_t *d = &p->request.desc;
    void *before = d->buffers[buffer].host;
    cudaError_t e;
    d->buffers[buffer].host = host;
    e = spipe_priv_check_desc(d, &p->failure);
    d->buffers[buffer].host = before;
    return e;
}

/* What is wrong with another array for a buffer, in words. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_host(spipe_priv_pipeline_t *p, int buffer,
                                                  void *host) {
    const spipe_desc_t *d = &p->request.desc;
    spipe_failure_t *f = &p->failure;
    const int there = buffer >= 0 && buffer < d->num_buffers;
    SPIPE_PRIV_REFUSE_IF(!there, "there is no buffer %d; the pipeline has %d", buffer,
                         d->num_buffers);
    SPIPE_PRIV_REFUSE_IF(!d->buffers[buffer].host && !spipe_priv_lacks_array(d, buffer),
                         "buffer %d (%s) has no host array to replace", buffer,
                         spipe_priv_kind_name(d->buffers[buffer].kind));
    SPIPE_PRIV_REFUSE_IF(!host, "buffer %d: the host array is NULL; pass the array", buffer);
    return spipe_priv_check_other_host(p, buffer, host);
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_set_host(spipe_priv_pipeline_t *p, int buffer, void *host) {
    int before;
    cudaError_t e;
    (void)spipe_priv_wait_enqueued(p, NULL);
    SPIPE_TRY(spipe_priv_check_host(p, buffer, host));
    p->request.incomplete = 1; /* what would be issued may name the array before */
    SPIPE_TRY(spipe_priv_use_device(p->request.device, &before));
    e = spipe_priv_unregister(&p->request, buffer);
    p->request.desc.buffers[buffer].host = host;
    if (e == cudaSuccess) e = spipe_priv_replan(p);
    if (e == cudaSuccess) spipe_priv_begin(p);
    if (e != cudaSuccess && p->failure.error != e) {
        (void)spipe_priv_refuse(&p->failure, e, "another array for buffer %d failed: %s", buffer,
                                cudaGetErrorString(e));
    }
    (void)cudaSetDevice(before);
    return e;
}

SPIPE_API cudaError_t spipe_pipeline_set_host(spipe_pipeline_t *pipeline, int buffer, void *host) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)(void *)pipeline;
    cudaError_t e;
    SPIPE_TRY(spipe_priv_claim(p, NULL));
    e = spipe_priv_set_host(p, buffer, host);
    spipe_priv_let_go(p);
    return e;
}

/* Plans for another count. Where that cannot be had, the pipeline goes back to the count before. */
SPIPE_API cudaError_t spipe_priv_change_count(spipe_priv_pipeline_t *p, size_t count) {
    const size_t before = p->request.desc.count;
    spipe_failure_t why;
    cudaError_t e;
    p->request.desc.count = count;
    e = spipe_priv_replan(p);
    if (e == cudaSuccess) {
        spipe_priv_begin(p);
        return e;
    }
    (void)cudaGetLastError();
    why = p->failure;
    if (why.error != e) {
        (void)spipe_priv_refuse(&why, e, "another count failed: %s", cudaGetErrorString(e));
    }
    p->request.desc.count = before;
    if (spipe_priv_replan(p) == cudaSuccess) spipe_priv_begin(p);
    p->failure = why;
    return e;
}

/* What is wrong with another count, in words: what would be in a description, and arrays that are
   pinned in place at their length of now. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_count(spipe_priv_pipeline_t *p, size_t count) {
    spipe_desc_t *d = &p->request.desc;
    spipe_failure_t *f = &p->failure;
    const size_t before = d->count;
    cudaError_t e;
    int i;
    for (i = 0; i < d->num_buffers; ++i) {
        SPIPE_PRIV_REFUSE_IF(p->request.arrays[i].registered,
                             "buffer %d is pinned in place with %zu elements; make another "
                             "pipeline for another count",
                             i, before);
    }
    d->count = count;
    e = spipe_priv_check_desc(d, f);
    d->count = before;
    return e;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_set_count(spipe_priv_pipeline_t *p, size_t count) {
    cudaError_t e;
    int before;
    SPIPE_TRY(spipe_priv_enter(p, &before, NULL));
    if (p->run.running_enqueued || p->run.ran_now) (void)spipe_priv_wait_enqueued(p, NULL);
    e = spipe_priv_check_count(p, count);
    if (e == cudaSuccess && count != p->request.desc.count) e = spipe_priv_change_count(p, count);
    (void)cudaSetDevice(before);
    return e;
}

SPIPE_API cudaError_t spipe_pipeline_set_count(spipe_pipeline_t *pipeline, size_t count) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)(void *)pipeline;
    cudaError_t e;
    SPIPE_TRY(spipe_priv_claim(p, NULL));
    e = spipe_priv_set_count(p, count);
    spipe_priv_let_go(p);
    return e;
}

SPIPE_API const spipe_plan_t *spipe_pipeline_plan(const spipe_pipeline_t *pipeline) {
    const spipe_priv_pipeline_t *p = (const spipe_priv_pipeline_t *)(const void *)pipeline;
    return p ? &p->plan : NULL;
}

SPIPE_API const spipe_failure_t *spipe_pipeline_failure(const spipe_pipeline_t *pipeline) {
    const spipe_priv_pipeline_t *p = (const spipe_priv_pipeline_t *)(const void *)pipeline;
    return p ? &p->failure : NULL;
}

SPIPE_API cudaError_t spipe_pipeline_set_timeline(spipe_pipeline_t *pipeline,
                                                  struct spipe_timeline *timeline) {
    spipe_priv_pipeline_t *p = (spipe_priv_pipeline_t *)(void *)pipeline;
    if (timeline && !spipe_priv_watches(timeline)) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_claim(p, NULL));
    (void)spipe_priv_wait_enqueued(p, NULL);
    p->request.desc.timeline = timeline;
    spipe_priv_let_go(p);
    return cudaSuccess;
}

/* ---- src/private/space.h ---- */
/* ---- 14 resources: space -------------------------------------------------------------------
   Parts of a block of memory, lent and given back: the first gap that is large enough. Knows
   addresses only; nothing of CUDA or locks. */
typedef struct spipe_priv_span {
    size_t at, bytes;
} spipe_priv_span_t;

typedef struct spipe_priv_space {
    unsigned char *base; /* NULL = there is no block yet */
    size_t bytes, used, most;
    spipe_priv_span_t *spans; /* those lent, by address */
    size_t num, capacity;
} spipe_priv_space_t;

/* Puts a span before number k. 0: there is no memory to write that down. */
SPIPE_PRIV_RARE int spipe_priv_space_insert(spipe_priv_space_t *s, size_t k, size_t at,
                                            size_t bytes) {
    if (s->num == s->capacity) {
        const size_t capacity = s->capacity > 0 ? 2 * s->capacity : 16;
        void *more = realloc((void *)s->spans, capacity * sizeof *s->spans);
        if (!more) return 0;
        s->spans = (spipe_priv_span_t *)more;
        s->capacity = capacity;
    }
    memmove(&s->spans[k + 1], &s->spans[k], (s->num - k) * sizeof *s->spans);
    s->spans[k].at = at;
    s->spans[k].bytes = bytes;
    ++s->num;
    s->used += bytes;
    if (s->most < s->used) s->most = s->used;
    return 1;
}

/* Lends a part; NULL: there is no gap so large. The part that was had before, where it is free:
   what names its addresses stays right. */
SPIPE_PRIV_RARE unsigned char *spipe_priv_space_take(spipe_priv_space_t *s, size_t bytes,
                                                     const unsigned char *before) {
    const size_t align = 512, wanted = before ? (size_t)(before - s->base) : SIZE_MAX;
    size_t k, from = 0, at = SIZE_MAX, place = 0;
    bytes = (bytes + align - 1) / align * align;
    for (k = 0; k <= s->num; ++k) {
        const size_t to = k < s->num ? s->spans[k].at : s->bytes;
        const int fits = to - from >= bytes;
        if (fits && wanted >= from && wanted < to && to - wanted >= bytes) {
            at = wanted;
            place = k;
            break;
        }
        if (fits && at == SIZE_MAX) {
            at = from;
            place = k;
        }
        if (k < s->num) from = to + s->spans[k].bytes;
    }
    if (at == SIZE_MAX || !spipe_priv_space_insert(s, place, at, bytes)) return NULL;
    return s->base + at;
}

SPIPE_PRIV_RARE void spipe_priv_space_give(spipe_priv_space_t *s, const unsigned char *part) {
    size_t k = 0;
    while (k < s->num && s->base + s->spans[k].at != part) ++k;
    if (k == s->num) return;
    s->used -= s->spans[k].bytes;
    --s->num;
    memmove(&s->spans[k], &s->spans[k + 1], (s->num - k) * sizeof *s->spans);
}

/* ---- src/private/lending.h ---- */
/* ---- 14 resources: threads, streams and events ----------------------------------------------
   Made when a run needs more of them than are idle; afterwards they wait for the next run. */

/* A thread that runs one function after the other. */
typedef struct spipe_priv_lent_thread {
    struct spipe_priv_lending *owner;
    void *thread;
    void *(*fn)(void *arg); /* NULL = it has returned */
    void *arg;
    spipe_priv_cond_t work, done;
    struct spipe_priv_lent_thread *next_idle, *next;
} spipe_priv_lent_thread_t;

enum {
    SPIPE_PRIV_MOST_IDLE = 4096 /* of a kind; what more there is, is destroyed */
};

/* Streams of one priority, or events, that nobody uses. */
typedef struct spipe_priv_idle {
    size_t num, made;
    void *items[SPIPE_PRIV_MOST_IDLE];
} spipe_priv_idle_t;

enum {
    SPIPE_PRIV_NUM_PRIORITIES = SPIPE_PRIORITY_HIGH + 1
};

typedef struct spipe_priv_lending {
    spipe_priv_sync_t *sync; /* the resources' lock */
    spipe_priv_lent_thread_t *idle, *all;
    size_t num_threads;
    int quit;
    spipe_priv_idle_t streams[SPIPE_PRIV_NUM_PRIORITIES], events;
} spipe_priv_lending_t;

/* From now on a thread that is cancelled ends only when it is let: in the middle of a run, or of
   waiting, it would keep for ever what others wait for. Returns what to let it. */
SPIPE_PRIV_RARE int spipe_priv_hold_off_cancel(void) {
    int before = 0;
#if defined(PTHREAD_CANCEL_DISABLE)
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
#endif
    return before;
}

SPIPE_PRIV_RARE void spipe_priv_let_cancel(int before) {
#if defined(PTHREAD_CANCEL_DISABLE)
    int held_off;
    (void)pthread_setcancelstate(before, &held_off);
#else
    (void)before;
#endif
}

SPIPE_PRIV_RARE void *spipe_priv_lent_main(void *arg) {
    spipe_priv_lent_thread_t *t = (spipe_priv_lent_thread_t *)arg;
    spipe_priv_sync_t *s = t->owner->sync;
    spipe_priv_lock(s);
    while (!t->owner->quit) {
        if (!t->fn) {
            spipe_priv_cond_wait(&t->work, &s->lock);
            continue;
        }
        spipe_priv_unlock(s);
        (void)t->fn(t->arg); /* nobody writes these before it has returned */
        spipe_priv_lock(s);
        t->fn = NULL;
        spipe_priv_cond_signal(&t->done);
    }
    spipe_priv_unlock(s);
    return NULL;
}

/* Starts a thread. Called without the lock, as starting takes long and other runs need the lock. */
SPIPE_PRIV_RARE spipe_priv_lent_thread_t *spipe_priv_new_thread(spipe_priv_lending_t *l) {
    spipe_priv_lent_thread_t *t = (spipe_priv_lent_thread_t *)calloc(1, sizeof *t);
    if (!t) return NULL;
    t->owner = l;
    spipe_priv_cond_create(&t->work);
    spipe_priv_cond_create(&t->done);
    t->thread = spipe_priv_thread_start(spipe_priv_lent_main, t);
    if (t->thread) return t;
    spipe_priv_cond_destroy(&t->work);
    spipe_priv_cond_destroy(&t->done);
    free(t);
    return NULL;
}

/* Has a function run on an idle thread, or a new one; NULL: none can be had. */
SPIPE_PRIV_RARE void *spipe_priv_lend_thread(spipe_priv_lending_t *l, void *(*fn)(void *arg),
                                             void *arg) {
    spipe_priv_lent_thread_t *t, *made = NULL;
    spipe_priv_lock(l->sync);
    t = l->idle;
    if (t) l->idle = t->next_idle;
    if (!t) {
        spipe_priv_unlock(l->sync);
        t = made = spipe_priv_new_thread(l);
        spipe_priv_lock(l->sync);
    }
    if (made) {
        made->next = l->all;
        l->all = made;
        ++l->num_threads;
    }
    if (t) {
        t->arg = arg;
        t->fn = fn;
        spipe_priv_cond_signal(&t->work);
    }
    spipe_priv_unlock(l->sync);
    return t;
}

/* Waits until its function has returned. */
SPIPE_PRIV_RARE void spipe_priv_take_thread_back(spipe_priv_lending_t *l, void *thread) {
    spipe_priv_lent_thread_t *t = (spipe_priv_lent_thread_t *)thread;
    spipe_priv_lock(l->sync);
    while (t->fn) spipe_priv_cond_wait(&t->done, &l->sync->lock);
    t->next_idle = l->idle;
    l->idle = t;
    spipe_priv_unlock(l->sync);
}

SPIPE_PRIV_RARE void spipe_priv_end_threads(spipe_priv_lending_t *l) {
    spipe_priv_lent_thread_t *t;
    spipe_priv_lock(l->sync);
    l->quit = 1;
    for (t = l->all; t; t = t->next) spipe_priv_cond_signal(&t->work);
    spipe_priv_unlock(l->sync);
    while (l->all) {
        t = l->all;
        l->all = t->next;
        spipe_priv_thread_join(t->thread);
        spipe_priv_cond_destroy(&t->work);
        spipe_priv_cond_destroy(&t->done);
        free(t);
    }
    l->idle = NULL;
}

/* Takes one that is idle; NULL: one is to be made, and is counted. */
SPIPE_PRIV_RARE void *spipe_priv_take_idle(spipe_priv_lending_t *l, spipe_priv_idle_t *idle) {
    void *item = NULL;
    spipe_priv_lock(l->sync);
    if (idle->num > 0) item = idle->items[--idle->num];
    idle->made += item == NULL;
    spipe_priv_unlock(l->sync);
    return item;
}

/* Keeps one for the next run. 0: it has to be destroyed, and is not counted any more. */
SPIPE_PRIV_RARE int spipe_priv_put_idle(spipe_priv_lending_t *l, spipe_priv_idle_t *idle,
                                        void *item) {
    int kept;
    spipe_priv_lock(l->sync);
    kept = idle->num < SPIPE_PRIV_MOST_IDLE;
    if (kept)
        idle->items[idle->num++] = item;
    else
        --idle->made;
    spipe_priv_unlock(l->sync);
    return kept;
}

/* One could not be made, or was destroyed. */
SPIPE_PRIV_RARE void spipe_priv_one_less(spipe_priv_lending_t *l, spipe_priv_idle_t *idle) {
    spipe_priv_lock(l->sync);
    --idle->made;
    spipe_priv_unlock(l->sync);
}

SPIPE_PRIV_RARE void spipe_priv_end_lending(spipe_priv_lending_t *l, cudaError_t *e) {
    size_t k;
    int i;
    spipe_priv_end_threads(l);
    for (k = 0; k < l->events.num; ++k) {
        spipe_priv_keep_error(e, cudaEventDestroy((cudaEvent_t)l->events.items[k]));
    }
    for (i = 0; i < SPIPE_PRIV_NUM_PRIORITIES; ++i) {
        const spipe_priv_idle_t *idle = &l->streams[i];
        for (k = 0; k < idle->num; ++k) {
            spipe_priv_keep_error(e, cudaStreamDestroy((cudaStream_t)idle->items[k]));
        }
    }
}

/* ---- src/private/beside.h ---- */
/* ---- 14 resources: the law beside other runs -------------------------------------------------
   How long a way takes when other runs share the machine: arithmetic, like the law of one run. */

/* Seconds of all processors that a run's copying takes. Staging threads have the processors that
   the calling threads leave: that of each run keeps one busy while it waits for the GPU. */
SPIPE_PRIV_RARE double spipe_priv_processors(const spipe_priv_work_t *w, const spipe_priv_way_t *y,
                                             double copying) {
    const size_t threads = y->fill_threads + y->drain_threads;
    const size_t taken = threads > 0 ? w->machine.runs : 0;
    return copying / spipe_priv_real(w->machine.cpus > taken ? w->machine.cpus - taken : 1);
}

/* Seconds for which a run takes what it shares: the link, the kernels, the host's memory, the
   processors; the longest of them. */
SPIPE_PRIV_RARE double spipe_priv_shared_s(const spipe_priv_work_t *w, const spipe_costs_t *c,
                                           const spipe_priv_way_t *y) {
    const double n = spipe_priv_num_batches(w, y), count = spipe_priv_real(w->count);
    const double staged = count * (spipe_priv_filled(w, y) + spipe_priv_drained(w, y));
    const double rings = spipe_priv_real(w->machine.runs) * spipe_priv_ring_bytes(w, y);
    spipe_priv_engines_t e;
    double longest;
    if (y->schedule == SPIPE_ZERO_COPY && !spipe_priv_is_staged(w, y)) {
        longest = count * spipe_priv_max(w->in, w->out) / c->zero_copy;
        if (w->zero_copy_passes > 0) {
            longest += (w->zero_copy_passes - 1) * count * w->out / c->zero_copy;
        }
        return spipe_priv_max(longest, w->kernel_s);
    }
    e = spipe_priv_engines_of(c, w, y);
    longest = n * spipe_priv_max(spipe_priv_max(e.in, e.out), e.kernel);
    if (!spipe_priv_is_staged(w, y)) return longest;
    longest = spipe_priv_max(longest, staged * spipe_priv_memory_s(c, w, rings));
    return spipe_priv_max(longest, spipe_priv_processors(w, y, n * (e.fill + e.drain)));
}

/* What a way takes beside other runs: they overlap each other, so none needs to overlap itself. Of
   ways for which that is equal the one that takes the least alone is the best. */
SPIPE_PRIV_RARE double spipe_priv_beside(const spipe_priv_work_t *w, const spipe_costs_t *c,
                                         const spipe_priv_way_t *y, double alone) {
    const double runs = spipe_priv_real(w->machine.runs);
    const int direct = y->staging == SPIPE_STAGING_DIRECT || y->pageable_slots;
    if (direct && !(w->flags & SPIPE_PRIV_PAGE_TABLES)) return runs * alone; /* copies that block */
    return spipe_priv_max(alone, runs * spipe_priv_shared_s(w, c, y)) +
           SPIPE_PRIV_ALONE_SHARE * alone;
}

/* ---- src/private/lent_memory.h ---- */
/* ---- 14 resources: memory ------------------------------------------------------------------
   What resources are, and how runs have their memory in turn. Everything here is under one lock. */
#if defined(SPIPE_NO_THREADS)
#define SPIPE_PRIV_LOAD(x) (x)
#else
#define SPIPE_PRIV_LOAD(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#endif

#if defined(SPIPE_NO_THREADS)
typedef int spipe_priv_key_t;
#else
typedef pthread_key_t spipe_priv_key_t;
#endif

/* A run that waits for memory, at each device that it wants some of. */
typedef struct spipe_priv_waiter {
    int rank;
    uintptr_t thread;
    const void *run; /* all its waiters are equal in this */
    struct spipe_priv_waiter *next;
} spipe_priv_waiter_t;

enum {
    SPIPE_PRIV_RANKS = 3
};

struct spipe_resources {
    spipe_priv_shared_t shared;     /* first: it says whose provider to take */
    struct spipe_resources *others; /* those of other devices, made together: a ring, with one lock
                                       for all; these alone are a ring of one */
    spipe_device_t facts;
    spipe_costs_t costs;
    size_t limit_threads;
    size_t num_runs;                     /* under way, also those that wait for memory; */
    size_t num_active[SPIPE_PRIV_RANKS]; /* those that do not, by rank of their priority; */
    size_t num_sharing; /* of these, those that want threads; all are also read without the lock */
    size_t most_runs, num_pipelines;
    spipe_priv_pipeline_t *holders; /* runs that have memory, and give it back when they end */
    spipe_priv_space_t device, pinned;
    unsigned char *pinned_block;  /* what malloc gave; NULL where CUDA allocated it */
    spipe_priv_waiter_t *waiters; /* those who came first, and of a higher priority, first */
    spipe_priv_lending_t lending;
    spipe_priv_key_t key; /* of threads that have memory; where has_key */
    int has_key;
};

SPIPE_PRIV_RARE spipe_resources_t *spipe_priv_resources_of(const spipe_desc_t *d) {
    return d->resources;
}

/* One more, or less, of a number that is read without the lock, too. */
SPIPE_PRIV_RARE void spipe_priv_count_one(size_t *number, int one_more) {
#if defined(SPIPE_NO_THREADS)
    *number += one_more ? 1 : SIZE_MAX;
#else
    (void)__atomic_add_fetch(number, one_more ? 1 : SIZE_MAX, __ATOMIC_RELAXED);
#endif
}

/* A number of the calling thread. */
SPIPE_PRIV_RARE uintptr_t spipe_priv_this_thread(void) {
#if defined(SPIPE_NO_THREADS)
    return 0;
#else
    return (uintptr_t)pthread_self();
#endif
}

/* The rank of a priority; CUDA's default is its lowest. */
SPIPE_PRIV_RARE int spipe_priv_rank(spipe_priority_t priority) {
    return (priority == SPIPE_PRIORITY_MEDIUM) + 2 * (priority == SPIPE_PRIORITY_HIGH);
}

/* Of resources that were made together, those of a device; NULL: there are none. */
SPIPE_PRIV_RARE spipe_resources_t *spipe_priv_resources_on(spipe_resources_t *r, int device) {
    spipe_resources_t *s = r;
    while (s->facts.device != device) {
        s = s->others;
        if (s == r) return NULL;
    }
    return s;
}

/* Who waits for memory: those of a higher priority first, else in the order in which they came. */
SPIPE_PRIV_RARE void spipe_priv_queue_up(spipe_resources_t *r, spipe_priv_waiter_t *w,
                                         spipe_priority_t priority) {
    spipe_priv_waiter_t **at = &r->waiters;
    w->rank = spipe_priv_rank(priority);
    while (*at && (*at)->rank >= w->rank) at = &(*at)->next;
    w->next = *at;
    *at = w;
    spipe_priv_wake(r->lending.sync); /* some may have waited for a run of this thread */
}

SPIPE_PRIV_RARE void spipe_priv_step_out(spipe_resources_t *r, const spipe_priv_waiter_t *w) {
    spipe_priv_waiter_t **at = &r->waiters;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    spipe_priv_wake(r->lending.sync); /* the next one may be served */
}

/* Takes both memories of a pipeline, as many bytes as are noted in it, or none. Called with the
   lock held. */
SPIPE_PRIV_RARE int spipe_priv_take_both(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_memory_t *m = &p->memory;
    const size_t device = m->device_bytes;
    const size_t pinned = p->plan.pageable_slots || m->pinned_base ? 0 : m->pinned_bytes;
    unsigned char *dev = NULL, *pin = NULL;
    if (device > 0) dev = spipe_priv_space_take(&r->device, device, m->device);
    if (device > 0 && !dev) return 0;
    if (pinned > 0) pin = spipe_priv_space_take(&r->pinned, pinned, m->pinned);
    if (pinned > 0 && !pin) {
        if (dev) spipe_priv_space_give(&r->device, dev);
        return 0;
    }
    m->device = dev;
    if (!m->pinned_base) m->pinned = pin;
    return 1;
}

/* It is not one of those any more who have memory and will give it back. Called with the lock held.
 */
SPIPE_PRIV_RARE void spipe_priv_no_holder(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_pipeline_t **at = &r->holders;
    while (*at && *at != p) at = &(*at)->lent.next_holder;
    if (*at) *at = p->lent.next_holder;
    spipe_priv_wake(r->lending.sync);
}

/* Gives a pipeline's memory back; it remembers where that was. Called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_give_both(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    const spipe_priv_memory_t *m = &p->memory;
    if (m->device) spipe_priv_space_give(&r->device, m->device);
    if (m->pinned && !m->pinned_base) spipe_priv_space_give(&r->pinned, m->pinned);
    spipe_priv_no_holder(p);
}

/* Takes the memory of all parts, or none: who has a part and waits for another makes others wait
   for him. Returns the first part for which there is none, num where all have it. Called with the
   lock held. */
SPIPE_PRIV_RARE size_t spipe_priv_take_all(spipe_priv_pipeline_t *const *parts, size_t num) {
    size_t k, taken = 0;
    while (taken < num && spipe_priv_take_both(parts[taken])) ++taken;
    for (k = 0; k < taken && taken < num; ++k) spipe_priv_give_both(parts[k]);
    return taken;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_too_large(spipe_priv_pipeline_t *p) {
    const spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    const spipe_priv_memory_t *m = &p->memory;
    return spipe_priv_refuse(&p->failure, cudaErrorMemoryAllocation,
                             "%zu bytes of device memory and %zu of pinned memory (%zu slots of "
                             "%zu elements) do not fit into resources of %zu and %zu, of which %zu "
                             "and %zu are kept by others; lower chunk or depth, or make larger "
                             "resources",
                             m->device_bytes, m->pinned_bytes, p->plan.depth,
                             p->plan.chunk * p->plan.batch, r->device.bytes, r->pinned.bytes,
                             r->device.used, r->pinned.used);
}

/* Who waits for all parts of the run on several devices of which this thread runs one; 0: it does
   not. Called with the lock held. */
SPIPE_PRIV_RARE uintptr_t spipe_priv_starter_of(const spipe_resources_t *r, uintptr_t thread) {
    const spipe_resources_t *s = r;
    const spipe_priv_pipeline_t *h;
    do {
        for (h = s->holders; h; h = h->lent.next_holder) {
            if (h->lent.thread == thread && h->lent.starter) return h->lent.starter;
        }
        s = s->others;
    } while (s != r);
    return 0;
}

/* Whether a run cannot end while a thread waits: the thread runs it, or another part of it, or a
   part of a run in its stage. Called with the lock held. */
SPIPE_PRIV_RARE int spipe_priv_needs(const spipe_resources_t *r, const spipe_priv_pipeline_t *h,
                                     uintptr_t thread) {
    while (h->lent.thread != thread) {
        thread = spipe_priv_starter_of(r, thread);
        if (!thread) return 0;
        if (h->lent.starter == thread) return 1;
    }
    return 1;
}

/* Whether somebody waits without whom a run cannot end. Called with the lock held. */
SPIPE_PRIV_RARE int spipe_priv_is_stuck(const spipe_resources_t *r,
                                        const spipe_priv_pipeline_t *h) {
    const spipe_resources_t *s = r;
    const spipe_priv_waiter_t *w;
    do {
        for (w = s->waiters; w; w = w->next) {
            if (spipe_priv_needs(r, h, w->thread)) return 1;
        }
        s = s->others;
    } while (s != r);
    return 0;
}

/* Whether a thread has a run that has memory, so that what it runs now is in a stage. Called with
   the lock held. */
SPIPE_PRIV_RARE int spipe_priv_is_inside(const spipe_resources_t *r, uintptr_t thread) {
    const spipe_resources_t *s = r;
    const spipe_priv_pipeline_t *h;
    do {
        for (h = s->holders; h; h = h->lent.next_holder) {
            if (h->lent.thread == thread && !h->lent.ended) return 1;
        }
        s = s->others;
    } while (s != r);
    return 0;
}

/* Whether waiting can come to an end: somebody whose thread has not ended will give memory back.
   For a run in a stage that must be one who needs nobody that waits, or both would wait for each
   other. Called with the lock held. */
SPIPE_PRIV_RARE int spipe_priv_worth_waiting(const spipe_resources_t *r, int inside) {
    const spipe_priv_pipeline_t *h = r->holders;
    while (h && (h->lent.ended || (inside && spipe_priv_is_stuck(r, h)))) h = h->lent.next_holder;
    return h != NULL;
}

/* Why a run does not wait any longer. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_cannot_wait(spipe_priv_pipeline_t *p, int first) {
    const spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    const spipe_priv_pipeline_t *h = r->holders;
    if (p->request.desc.no_wait && !first) {
        return spipe_priv_refuse(&p->failure, cudaErrorNotReady,
                                 "other runs wait for the resources' memory already; leave no_wait "
                                 "0 to wait behind them");
    }
    if (p->request.desc.no_wait && r->holders) {
        return spipe_priv_refuse(&p->failure, cudaErrorNotReady,
                                 "other runs have the resources' memory: %zu of %zu bytes on the "
                                 "device, %zu of %zu pinned; leave no_wait 0 to wait for them",
                                 r->device.used, r->device.bytes, r->pinned.used, r->pinned.bytes);
    }
    while (h && !h->lent.ended) h = h->lent.next_holder;
    if (h) {
        return spipe_priv_refuse(&p->failure, cudaErrorNotPermitted,
                                 "a thread has ended in the middle of a run, which has the memory; "
                                 "call spipe_end, or destroy that pipeline");
    }
    if (r->holders) {
        return spipe_priv_refuse(&p->failure, cudaErrorNotPermitted,
                                 "a run in a stage wants memory that only runs around such runs "
                                 "have, so it would wait for itself; make larger resources, or "
                                 "give it others");
    }
    return spipe_priv_too_large(p);
}

/* A run waits, or ends to: at each device that it has a part on. Called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_count_waiting(spipe_priv_pipeline_t *const *parts, size_t num,
                                              int ends) {
    const int rank = spipe_priv_rank(parts[0]->request.desc.priority);
    size_t k;
    for (k = 0; k < num; ++k) {
        spipe_resources_t *r = spipe_priv_resources_of(&parts[k]->request.desc);
        spipe_priv_count_one(&r->num_active[rank], ends);
    }
}

/* The first part that others are before; num: none. Called with the lock held. */
SPIPE_PRIV_RARE size_t spipe_priv_behind(spipe_priv_pipeline_t *const *parts, size_t num,
                                         const void *run) {
    size_t k = 0;
    while (k < num && spipe_priv_resources_of(&parts[k]->request.desc)->waiters->run == run) ++k;
    return k;
}

/* Waits until there is memory for all parts of a run, if others who will end have it. It is in the
   queues of all its devices at once, so of two runs one is first in all that both are in. A run in
   a stage goes first: those who came before it may be waiting for the run around it. Called with
   the lock held. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_wait_turn(spipe_priv_pipeline_t *const *parts, size_t num,
                                                 const void *run, uintptr_t thread) {
    spipe_resources_t *r = spipe_priv_resources_of(&parts[0]->request.desc);
    const double began = spipe_priv_seconds();
    const int inside = spipe_priv_is_inside(r, thread);
    cudaError_t e = cudaErrorNotReady;
    int waits = 0;
    size_t k;
    for (;;) {
        size_t lacking = inside ? num : spipe_priv_behind(parts, num, run);
        const int first = lacking == num;
        if (first) lacking = spipe_priv_take_all(parts, num);
        if (lacking == num) {
            e = cudaSuccess;
            break;
        }
        r = spipe_priv_resources_of(&parts[lacking]->request.desc);
        if (parts[0]->request.desc.no_wait || (first && !spipe_priv_worth_waiting(r, inside))) {
            e = spipe_priv_cannot_wait(parts[lacking], first);
            break;
        }
        if (!waits) spipe_priv_count_waiting(parts, num, 0);
        waits = 1;
        spipe_priv_wait(r->lending.sync);
        for (k = 0; k < num; ++k) {
            parts[k]->report.waited_ms = 1e3 * (spipe_priv_seconds() - began);
        }
    }
    if (waits) spipe_priv_count_waiting(parts, num, 1);
    return e;
}

/* The same, and notes who has the memory. Whose failure says why not: that of the part for which
   there is none. Called with the lock held. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_wait_for_memory(spipe_priv_pipeline_t *const *parts,
                                                       size_t num) {
    const uintptr_t starter = parts[0]->lent.starter;
    spipe_priv_waiter_t me[SPIPE_MAX_DEVICES];
    cudaError_t e;
    size_t k;
    for (k = 0; k < num; ++k) {
        me[k].run = me;
        me[k].thread = starter ? starter : parts[0]->lent.thread;
        spipe_priv_queue_up(spipe_priv_resources_of(&parts[k]->request.desc), &me[k],
                            parts[0]->request.desc.priority);
    }
    e = spipe_priv_wait_turn(parts, num, me, me[0].thread);
    for (k = 0; k < num; ++k) {
        spipe_resources_t *r = spipe_priv_resources_of(&parts[k]->request.desc);
        spipe_priv_step_out(r, &me[k]);
        if (e != cudaSuccess || parts[k]->lent.stays) continue;
        parts[k]->lent.ended = 0;
        parts[k]->lent.next_holder = r->holders;
        r->holders = parts[k];
    }
    return e;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_take_memory(spipe_priv_pipeline_t *const *parts,
                                                   size_t num) {
    spipe_priv_sync_t *sync = spipe_priv_resources_of(&parts[0]->request.desc)->lending.sync;
    cudaError_t e;
    spipe_priv_lock(sync);
    e = spipe_priv_wait_for_memory(parts, num);
    spipe_priv_unlock(sync);
    return e;
}

/* Whether a pipeline has memory, or had when it ran last. */
SPIPE_PRIV_RARE int spipe_priv_has_memory(const spipe_priv_memory_t *m) {
    return m->device_bytes > 0 || m->pinned_bytes > 0;
}

/* Runs under way that want threads, on all devices of resources that were made together. */
SPIPE_PRIV_RARE size_t spipe_priv_all_sharing(const spipe_resources_t *r) {
    const spipe_resources_t *s = r;
    size_t all = 0;
    do {
        all += SPIPE_PRIV_LOAD(s->num_sharing);
        s = s->others;
    } while (s != r);
    return all;
}

/* ---- src/private/ended.h ---- */
/* ---- 14 resources: threads that end --------------------------------------------------------
   A thread may end in the middle of a loop that takes chunks, and its run keeps memory then. A key
   whose destructor the system calls at a thread's end tells, so that nobody waits for that. */

/* With MinGW ends are not seen: its pthread_key_delete takes the lock of keys and then that of
   threads, a thread that ends takes them the other way round, so both may wait for ever. */
#if !defined(SPIPE_NO_THREADS) && !defined(_WIN32)
#define SPIPE_PRIV_SEES_ENDS
#endif

#if defined(SPIPE_PRIV_SEES_ENDS)
/* The calling thread ends and has runs that have memory. */
SPIPE_PRIV_RARE void spipe_priv_thread_ends(void *arg) {
    spipe_resources_t *r = (spipe_resources_t *)arg;
    spipe_priv_pipeline_t *h;
    if (!spipe_priv_lends(r)) return; /* in a process that was forked */
    spipe_priv_lock(r->lending.sync);
    for (h = r->holders; h; h = h->lent.next_holder)
        h->lent.ended |= h->lent.thread == spipe_priv_this_thread();
    spipe_priv_wake(r->lending.sync);
    spipe_priv_unlock(r->lending.sync);
}
#endif

/* Where there is no key left, ends are not seen. */
SPIPE_PRIV_RARE void spipe_priv_watch_ends(spipe_resources_t *r) {
#if defined(SPIPE_PRIV_SEES_ENDS)
    r->has_key = pthread_key_create(&r->key, spipe_priv_thread_ends) == 0;
#else
    r->has_key = 0;
#endif
}

SPIPE_PRIV_RARE void spipe_priv_end_watch(spipe_resources_t *r) {
#if defined(SPIPE_PRIV_SEES_ENDS)
    if (r->has_key) (void)pthread_key_delete(r->key);
#endif
    r->has_key = 0;
}

/* Whether the calling thread's end is of interest: while it has runs that have memory. */
SPIPE_PRIV_RARE void spipe_priv_note_end(spipe_resources_t *r) {
#if defined(SPIPE_PRIV_SEES_ENDS)
    const spipe_priv_pipeline_t *h;
    if (!r->has_key) return;
    spipe_priv_lock(r->lending.sync);
    h = r->holders;
    while (h && h->lent.thread != spipe_priv_this_thread()) h = h->lent.next_holder;
    (void)pthread_setspecific(r->key, h ? r : NULL);
    spipe_priv_unlock(r->lending.sync);
#else
    (void)r;
#endif
}

/* Another thread goes on with a run. */
SPIPE_PRIV_RARE void spipe_priv_take_over(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_lock(r->lending.sync);
    p->lent.thread = spipe_priv_this_thread();
    p->lent.ended = 0;
    spipe_priv_unlock(r->lending.sync);
    p->lent.holds_off = 0; /* that was of the other one */
    spipe_priv_note_end(r);
}

/* ---- src/private/lent.h ---- */
/* ---- 14 resources: the provider -------------------------------------------------------------
   The provider of pipelines whose description names resources: memory, streams, events and threads
   are lent, not made. Everything here is under one lock. */
/* Bytes that a plan may take of a space: an equal part for each run under way, and not more than
   half of what is free, so that there is some for the next, but a sixteenth of all at the least. A
   kept pipeline runs later, when other memory is free. */
SPIPE_PRIV_RARE size_t spipe_priv_share_of(const spipe_priv_space_t *s, int kept, size_t parts) {
    const size_t least = s->bytes / SPIPE_PRIV_LEAST_SHARE;
    const size_t half = (kept ? s->bytes : s->bytes - s->used) / 2;
    const size_t share = half < s->bytes / parts ? half : s->bytes / parts;
    return share > least ? share : least;
}

/* Runs are planned so that all of them together take the least; one of the highest priority so that
   it does itself, as if it were alone. Those that wait count: they wait because rings are large. */
SPIPE_PRIV_RARE int spipe_priv_plans_alone(const spipe_priv_request_t *r) {
    return r->runs < 2 || r->desc.priority == SPIPE_PRIORITY_HIGH;
}

SPIPE_PRIV_RARE void spipe_priv_plan_for(spipe_priv_request_t *r) {
    r->beside = spipe_priv_plans_alone(r) ? NULL : spipe_priv_beside;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_lent_facts(spipe_priv_request_t *r, spipe_failure_t *f) {
    spipe_resources_t *s = spipe_priv_resources_of(&r->desc);
    const int several = s->others != s, of = s->facts.device;
    size_t resident = 0, share, pinned, parts;
    int i;
    s = spipe_priv_resources_on(s, r->device);
    SPIPE_PRIV_REFUSE_IF(!s, "the resources are of device %d%s, and device %d is the current one",
                         of, several ? " and others" : "", r->device);
    r->desc.resources = s;
    r->facts = s->facts;
    r->costs = s->costs;
    for (i = 0; i < r->desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &r->desc.buffers[i];
        if (b->kind == SPIPE_RESIDENT) resident += b->elem_bytes;
    }
    spipe_priv_lock(s->lending.sync);
    r->runs = s->num_runs + 1;
    parts = spipe_priv_plans_alone(r) ? 1 : r->runs;
    share = spipe_priv_share_of(&s->device, r->kept, parts);
    pinned = spipe_priv_share_of(&s->pinned, r->kept, parts);
    spipe_priv_unlock(s->lending.sync);
    spipe_priv_plan_for(r);
    r->device_limit = share > resident ? share - resident : 1;
    if (r->pin_refusals == 0 || r->pin_limit > pinned) r->pin_limit = pinned;
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_lent_arenas(spipe_priv_pipeline_t *p, size_t device,
                                                   size_t pinned) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_memory_t *m = &p->memory;
    const int own = p->plan.pageable_slots; /* nothing can be pinned */
    const spipe_priv_hooks_t *hooks = p->request.desc.hooks;
    cudaError_t e = cudaSuccess;
    if (device == 0 && pinned == 0) return e;
    m->device_bytes = device;
    m->pinned_bytes = pinned;
    p->lent.thread = spipe_priv_this_thread();
    if (pinned > r->pinned.bytes && !own) {
        m->refused = pinned;
        spipe_priv_lock(r->lending.sync);
        e = spipe_priv_too_large(p);
        spipe_priv_unlock(r->lending.sync);
    } else if (hooks && hooks->gather) {
        e = hooks->gather(p, spipe_priv_take_memory);
    } else {
        e = spipe_priv_take_memory(&p, 1);
    }
    if (e != cudaSuccess) {
        m->device_bytes = m->pinned_bytes = 0;
        return e;
    }
    spipe_priv_note_end(r);
    m->pageable = own;
    if (own && pinned > 0) e = spipe_priv_pin_ring(p, pinned);
    if (e == cudaSuccess) return e;
    return spipe_priv_no_memory(p, e, pinned, "host", "");
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_lent_free_arenas(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_memory_t *m = &p->memory;
    const cudaError_t e = spipe_priv_free_apart(m);
    if (p->lent.entered && spipe_priv_has_memory(m)) {
        spipe_priv_lock(r->lending.sync);
        spipe_priv_give_both(p);
        spipe_priv_unlock(r->lending.sync);
    }
    free(m->pinned_base);
    m->device = m->pinned = m->pinned_base = NULL;
    m->device_bytes = m->pinned_bytes = 0;
    return e;
}

/* One run more, or less, is under way. Called with the lock held. */
SPIPE_PRIV_RARE void spipe_priv_count_run(spipe_priv_pipeline_t *p, int one_more) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_count_one(&r->num_runs, one_more);
    if (r->most_runs < r->num_runs) r->most_runs = r->num_runs;
    spipe_priv_count_one(&r->num_active[spipe_priv_rank(p->request.desc.priority)], one_more);
}

/* Whether a run is one of those that share the threads. */
SPIPE_PRIV_RARE void spipe_priv_note_sharing(spipe_priv_pipeline_t *p, int shares) {
    if (p->workers.shares == shares) return;
    p->workers.shares = shares;
    spipe_priv_count_one(&spipe_priv_resources_of(&p->request.desc)->num_sharing, shares);
}

/* Its thread may be cancelled again; not from another thread. */
SPIPE_PRIV_RARE void spipe_priv_end_hold(spipe_priv_pipeline_t *p) {
    const int ends = p->lent.holds_off && p->lent.thread == spipe_priv_this_thread();
    p->lent.holds_off = 0;
    if (ends) spipe_priv_let_cancel(p->lent.cancels);
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_lent_enter(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    cudaError_t e = cudaSuccess;
    p->lent.cancels = spipe_priv_hold_off_cancel();
    p->lent.holds_off = 1;
    p->lent.thread = spipe_priv_this_thread();
    spipe_priv_lock(r->lending.sync);
    if (!p->lent.attached) ++r->num_pipelines;
    p->lent.attached = 1;
    p->report.runs_beside = r->num_runs;
    p->report.waited_ms = 0.0;
    spipe_priv_count_run(p, 1);
    if (spipe_priv_has_memory(&p->memory)) e = spipe_priv_wait_for_memory(&p, 1);
    if (e != cudaSuccess) spipe_priv_count_run(p, 0);
    spipe_priv_unlock(r->lending.sync);
    if (e == cudaSuccess && spipe_priv_has_memory(&p->memory)) spipe_priv_note_end(r);
    if (e != cudaSuccess) spipe_priv_end_hold(p);
    return e;
}

SPIPE_PRIV_RARE void spipe_priv_lent_leave(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_lock(r->lending.sync);
    if (spipe_priv_has_memory(&p->memory)) spipe_priv_give_both(p);
    spipe_priv_note_sharing(p, 0);
    spipe_priv_count_run(p, 0);
    spipe_priv_unlock(r->lending.sync);
    spipe_priv_note_end(r);
    spipe_priv_end_hold(p);
}

/* Nobody waits for the memory of a pipeline that keeps it. */
SPIPE_PRIV_RARE void spipe_priv_lent_stay(spipe_priv_pipeline_t *p) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    p->lent.stays = 1;
    spipe_priv_lock(r->lending.sync);
    spipe_priv_no_holder(p);
    spipe_priv_unlock(r->lending.sync);
    spipe_priv_note_end(r);
    spipe_priv_end_hold(p);
}

/* Where a graph of enqueued runs names its memory, or arrays are pinned in place, a pipeline keeps
   the plan it has. */
SPIPE_PRIV_RARE int spipe_priv_lent_outdated(spipe_priv_pipeline_t *p) {
    const size_t runs = SPIPE_PRIV_LOAD(spipe_priv_resources_of(&p->request.desc)->num_runs);
    const size_t planned = p->request.runs;
    if (p->lent.stays || p->plan.staging == SPIPE_STAGING_REGISTER) return 0;
    if (2 * runs <= 3 * planned && 3 * runs >= 2 * planned) return 0;
    if (spipe_priv_lent_facts(&p->request, NULL) != cudaSuccess) return 0;
    p->request.runs = runs;
    spipe_priv_plan_for(&p->request);
    return 1;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_lent_stream(spipe_priv_pipeline_t *p, cudaStream_t *stream) {
    const spipe_priority_t priority = p->request.desc.priority;
    spipe_priv_lending_t *l = &spipe_priv_resources_of(&p->request.desc)->lending;
    cudaError_t e;
    *stream = (cudaStream_t)spipe_priv_take_idle(l, &l->streams[priority]);
    if (*stream) return cudaSuccess;
    e = spipe_stream_create(stream, priority);
    if (e != cudaSuccess) spipe_priv_one_less(l, &l->streams[priority]);
    return e;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_lent_event(spipe_priv_pipeline_t *p, cudaEvent_t *event) {
    spipe_priv_lending_t *l = &spipe_priv_resources_of(&p->request.desc)->lending;
    cudaError_t e;
    *event = (cudaEvent_t)spipe_priv_take_idle(l, &l->events);
    if (*event) return cudaSuccess;
    e = spipe_event_create(event);
    if (e != cudaSuccess) spipe_priv_one_less(l, &l->events);
    return e;
}

/* Streams and events go back for the next run, but not those of a run that failed: a stage may have
   left a capture in a stream. */
SPIPE_PRIV_RARE int spipe_priv_take_back(spipe_priv_pipeline_t *p, spipe_priv_idle_t *idle,
                                         void *item) {
    spipe_priv_lending_t *l = &spipe_priv_resources_of(&p->request.desc)->lending;
    if (!p->run.failed) return spipe_priv_put_idle(l, idle, item);
    spipe_priv_one_less(l, idle);
    return 0;
}

SPIPE_PRIV_RARE void spipe_priv_lent_end_streams(spipe_priv_pipeline_t *p, cudaError_t *e) {
    spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    spipe_priv_lending_t *l = &r->lending;
    spipe_priv_idle_t *idle = &l->streams[p->request.desc.priority];
    const spipe_priv_streams_t *s = &p->streams;
    int i;
    for (i = 0; i < s->num_events; ++i) {
        if (spipe_priv_take_back(p, &l->events, (void *)s->events[i])) continue;
        spipe_priv_keep_error(e, cudaEventDestroy(s->events[i]));
    }
    for (i = s->first_owned; i < s->num; ++i) {
        if (spipe_priv_take_back(p, idle, (void *)s->streams[i])) continue;
        spipe_priv_keep_error(e, cudaStreamDestroy(s->streams[i]));
    }
    spipe_priv_lock(l->sync);
    if (p->lent.attached) --r->num_pipelines;
    spipe_priv_unlock(l->sync);
}

SPIPE_PRIV_RARE void *spipe_priv_lent_start(spipe_resources_t *r, void *(*fn)(void *arg),
                                            void *arg) {
    return spipe_priv_lend_thread(&r->lending, fn, arg);
}

SPIPE_PRIV_RARE void spipe_priv_lent_join(spipe_resources_t *r, void *thread) {
    spipe_priv_take_thread_back(&r->lending, thread);
}

/* The runs that want threads, on all devices, have equal shares of them, but each has one of each
   kind. */
SPIPE_PRIV_RARE void spipe_priv_lent_share(spipe_priv_pipeline_t *p, size_t wanted[]) {
    const spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    size_t all = 0, runs, share;
    int i;
    for (i = 0; i < SPIPE_PRIV_NUM_QUEUES; ++i) all += wanted[i];
    spipe_priv_note_sharing(p, all > 0);
    runs = spipe_priv_all_sharing(r);
    share = runs > 1 ? r->limit_threads / runs : r->limit_threads;
    p->workers.beside = runs;
    p->workers.started = 1; /* so between() is called even where a run has no threads */
    if (p->sync->single_threaded) p->sync->single_threaded = 0; /* there is no other thread yet */
    for (i = 0; i < SPIPE_PRIV_NUM_QUEUES && share < all; ++i) {
        if (wanted[i] > 0) wanted[i] = wanted[i] * share > all ? wanted[i] * share / all : 1;
    }
}

/* Lets other runs have their turn: while there are some, a batch is issued when the copy in before
   it has ended, as a copy engine goes on with a stream for as long as there is work in it. Batches
   that host threads fill come one by one anyway. */
SPIPE_PRIV_RARE void spipe_priv_take_turns(spipe_priv_pipeline_t *p) {
    const size_t issued = p->run.at.issued_out;
    const spipe_priv_run_t *run = &p->run;
    if (!p->program.turns || run->mode != SPIPE_PRIV_WAITED_FOR) return;
    if (issued == 0 || issued >= run->num_batches) return;
    (void)cudaEventSynchronize(p->memory.slots[(issued - 1) % p->plan.depth].in_done);
}

/* Whether there are runs that this one must give a turn: those of its own or a higher priority. */
SPIPE_PRIV_RARE int spipe_priv_has_rivals(const spipe_resources_t *r, spipe_priority_t priority) {
    size_t active = 0;
    int k;
    for (k = spipe_priv_rank(priority); k < SPIPE_PRIV_RANKS; ++k) {
        active += SPIPE_PRIV_LOAD(r->num_active[k]);
    }
    return active > 1;
}

/* The thread may be another one than before: a new one may have the number of one that ended. */
SPIPE_PRIV_RARE void spipe_priv_lent_between(spipe_priv_pipeline_t *p) {
    const spipe_resources_t *r = spipe_priv_resources_of(&p->request.desc);
    if (p->lent.thread != spipe_priv_this_thread() || p->lent.ended) spipe_priv_take_over(p);
    if (spipe_priv_all_sharing(r) != p->workers.beside) spipe_priv_start_workers(p);
    if (spipe_priv_has_rivals(r, p->request.desc.priority)) spipe_priv_take_turns(p);
}

SPIPE_PRIV_RARE const spipe_priv_provider_t *spipe_priv_lender(void) {
    static const spipe_priv_provider_t provider = {
        spipe_priv_lent_facts,       spipe_priv_lent_stream, spipe_priv_lent_event,
        spipe_priv_lent_end_streams, spipe_priv_lent_arenas, spipe_priv_lent_free_arenas,
        spipe_priv_lent_start,       spipe_priv_lent_join,   spipe_priv_lent_enter,
        spipe_priv_lent_leave,       spipe_priv_lent_stay,   spipe_priv_lent_outdated,
        spipe_priv_lent_share,       spipe_priv_lent_between};
    return &provider;
}

/* ---- src/private/resources.h ---- */
/* ---- 14 resources -------------------------------------------------------------------------
   Making, freeing and asking what runs share. */
SPIPE_API spipe_resources_limits_t spipe_resources_limits_default(void) {
    spipe_resources_limits_t l;
    memset(&l, 0, sizeof l);
    l.device_bytes = SPIPE_AUTO;
    l.pinned_bytes = SPIPE_PRIV_LENT_PINNED;
    l.threads = SPIPE_AUTO;
    l.stamp = SPIPE_PRIV_STAMP;
    return l;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_check_limits(const spipe_resources_limits_t *l,
                                                    spipe_failure_t *f) {
    SPIPE_PRIV_REFUSE_IF(l->stamp != SPIPE_PRIV_STAMP,
                         "the limits were not begun; begin with spipe_resources_limits_default()");
    SPIPE_PRIV_REFUSE_IF(l->device_bytes == 0, "resources need device_bytes of 1 or more");
    SPIPE_PRIV_REFUSE_IF(l->threads == 0, "resources need 1 thread or more");
    SPIPE_PRIV_REFUSE_IF(l->pinned_bytes == SPIPE_AUTO, "pinned_bytes is not a number of bytes");
    return cudaSuccess;
}

/* Memory that is touched and then pinned in place, ten times faster than CUDA allocates it; NULL:
   the system refuses. */
SPIPE_PRIV_RARE unsigned char *spipe_priv_pin_block(spipe_resources_t *r, size_t bytes) {
    unsigned char *at = spipe_priv_new_pages(bytes, &r->pinned_block);
    if (!at) return NULL;
    memset(at, 0, bytes);
    if (spipe_pin(at, bytes) == cudaSuccess) return at;
    (void)cudaGetLastError();
    free(r->pinned_block);
    r->pinned_block = NULL;
    return NULL;
}

/* Pinned memory for staging. Where the system refuses there is none, and runs do without. */
SPIPE_PRIV_RARE void spipe_priv_pin_space(spipe_resources_t *r, size_t bytes) {
    void *at;
    if (bytes == 0) return;
    at = spipe_priv_pin_block(r, bytes);
    if (!at && spipe_pinned_alloc(&at, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        return;
    }
    r->pinned.base = (unsigned char *)at;
    r->pinned.bytes = bytes;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_fill_resources(spipe_resources_t *r,
                                                      const spipe_resources_limits_t *l,
                                                      spipe_failure_t *failure) {
    size_t device = l->device_bytes;
    cudaError_t e = spipe_device_get(&r->facts, -1);
    if (e != cudaSuccess) return spipe_priv_no_device(failure, e);
    r->costs = l->costs ? *l->costs : spipe_priv_costs_for(r->facts.name);
    if (device == SPIPE_AUTO) {
        const size_t quarter = r->facts.memory_bytes / 4;
        device =
            quarter < (size_t)SPIPE_PRIV_LENT_DEVICE ? quarter : (size_t)SPIPE_PRIV_LENT_DEVICE;
    }
    r->limit_threads = l->threads == SPIPE_AUTO ? spipe_priv_num_cpus() : l->threads;
    r->shared.process = spipe_priv_process();
    e = cudaMalloc((void **)&r->device.base, device);
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        return spipe_priv_refuse(failure, e, "no room for resources of %zu bytes on the device",
                                 device);
    }
    r->device.bytes = device;
    r->lending.sync = spipe_priv_sync_create();
    if (!r->lending.sync) {
        (void)cudaFree(r->device.base);
        return spipe_priv_refuse(failure, cudaErrorMemoryAllocation, "no memory for a lock");
    }
    r->others = r;
    spipe_priv_watch_ends(r);
    r->shared.provider = spipe_priv_lender();
    r->shared.stamp = SPIPE_PRIV_STAMP;
    spipe_priv_pin_space(r, l->pinned_bytes);
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_resources_create(spipe_resources_t **resources,
                                             const spipe_resources_limits_t *limits,
                                             spipe_failure_t *failure) {
    const spipe_resources_limits_t own = spipe_resources_limits_default();
    const spipe_resources_limits_t *l = limits ? limits : &own;
    spipe_resources_t *r;
    cudaError_t e;
    if (failure) spipe_priv_failure_clear(failure);
    if (!resources) {
        return spipe_priv_refuse(failure, cudaErrorInvalidValue,
                                 "there is no pointer to put the resources into");
    }
    *resources = NULL;
    SPIPE_TRY(spipe_priv_check_limits(l, failure));
    r = (spipe_resources_t *)calloc(1, sizeof *r);
    if (!r) {
        return spipe_priv_refuse(failure, cudaErrorMemoryAllocation, "no memory for resources");
    }
    e = spipe_priv_fill_resources(r, l, failure);
    if (e == cudaSuccess)
        *resources = r;
    else
        free(r);
    return e;
}

/* Whether these are resources that nobody uses, those of other devices neither; then nobody may
   begin to. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_close_resources(spipe_resources_t *r, spipe_failure_t *f) {
    size_t runs = 0, pipelines = 0;
    spipe_resources_t *s = r;
    SPIPE_PRIV_REFUSE_IF(!spipe_priv_lends(r),
                         "these are no resources, were destroyed, or are another process's");
    spipe_priv_lock(r->lending.sync);
    do {
        runs += s->num_runs;
        pipelines += s->num_pipelines;
        s = s->others;
    } while (s != r);
    do {
        if (runs == 0 && pipelines == 0) s->shared.stamp = 0;
        s = s->others;
    } while (s != r);
    spipe_priv_unlock(r->lending.sync);
    if (runs == 0 && pipelines == 0) return cudaSuccess;
    return spipe_priv_refuse(f, cudaErrorNotPermitted,
                             "%zu pipelines and runs still use the resources; destroy them first",
                             pipelines);
}

/* Frees those of one device; the lock stays. */
SPIPE_PRIV_RARE void spipe_priv_free_resources(spipe_resources_t *r, cudaError_t *e) {
    spipe_priv_keep_error(e, cudaSetDevice(r->facts.device));
    spipe_priv_end_watch(r);
    spipe_priv_end_lending(&r->lending, e);
    spipe_priv_keep_error(e, cudaFree(r->device.base));
    if (r->pinned_block)
        spipe_priv_keep_error(e, spipe_unpin(r->pinned.base));
    else
        spipe_priv_keep_error(e, spipe_pinned_free(r->pinned.base));
    free(r->pinned_block);
    free((void *)r->device.spans);
    free((void *)r->pinned.spans);
    free(r);
}

SPIPE_API cudaError_t spipe_resources_destroy(spipe_resources_t *r, spipe_failure_t *failure) {
    cudaError_t e = cudaSuccess;
    spipe_priv_sync_t *sync;
    int before = 0;
    if (failure) spipe_priv_failure_clear(failure);
    if (!r) return e;
    SPIPE_TRY(spipe_priv_close_resources(r, failure));
    spipe_priv_keep_error(&e, cudaGetDevice(&before));
    sync = r->lending.sync;
    while (r->others != r) {
        spipe_resources_t *other = r->others;
        r->others = other->others;
        spipe_priv_free_resources(other, &e);
    }
    spipe_priv_free_resources(r, &e);
    spipe_priv_sync_destroy(sync);
    (void)cudaSetDevice(before);
    if (e == cudaSuccess) return e;
    (void)cudaGetLastError();
    return spipe_priv_refuse(failure, e, "freeing the resources failed: %s", cudaGetErrorString(e));
}

SPIPE_API cudaError_t spipe_resources_usage(spipe_resources_t *r, spipe_resources_usage_t *usage) {
    const spipe_priv_waiter_t *w;
    int i, device;
    if (!usage) return cudaErrorInvalidValue;
    memset(usage, 0, sizeof *usage);
    if (!r || !spipe_priv_lends(r)) return cudaErrorInvalidValue;
    if (r->others != r) {
        SPIPE_TRY(cudaGetDevice(&device));
        r = spipe_priv_resources_on(r, device);
        if (!r) return cudaErrorInvalidDevice;
    }
    spipe_priv_lock(r->lending.sync);
    usage->runs = r->num_runs;
    usage->most_runs = r->most_runs;
    for (w = r->waiters; w; w = w->next) ++usage->waiting;
    usage->pipelines = r->num_pipelines;
    usage->device_bytes = r->device.used;
    usage->most_device_bytes = r->device.most;
    usage->pinned_bytes = r->pinned.used;
    usage->most_pinned_bytes = r->pinned.most;
    usage->threads = r->lending.num_threads;
    for (i = 0; i < SPIPE_PRIV_NUM_PRIORITIES; ++i) usage->streams += r->lending.streams[i].made;
    usage->events = r->lending.events.made;
    spipe_priv_unlock(r->lending.sync);
    return cudaSuccess;
}

/* ---- src/private/launch.h ---- */
/* ---- 15 launch -----------------------------------------------------------------------------
   Grid sizes, and the launch behind SPIPE_LAUNCH. */
SPIPE_API unsigned spipe_blocks(size_t count, unsigned threads) {
    const size_t t = threads > 0 ? threads : 1;
    const size_t blocks = count / t + (count % t != 0);
    if (blocks == 0) return 1;
    return blocks < (size_t)INT_MAX ? (unsigned)blocks : (unsigned)INT_MAX;
}
#ifdef __cplusplus
template <typename... Expected, typename... Actual>
SPIPE_API cudaError_t spipe_priv_launch(dim3 grid, dim3 block, size_t shared_bytes,
                                        void (*kernel)(Expected...), cudaStream_t stream,
                                        Actual... args) {
    static_assert(sizeof...(Expected) == sizeof...(Actual),
                  "SPIPE_LAUNCH: the kernel takes more or fewer arguments than it is given");
    cudaLaunchConfig_t config = cudaLaunchConfig_t();
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, static_cast<Expected>(args)...);
}
#endif

/* ---- src/private/licence.h ---- */
/* ---- 15 launch: the end, and the licence ---------------------------------------------------- */
#endif /* STREAMPIPE_H */

/*  MIT License. Copyright (c) 2026 The streampipe authors.
    Permission is hereby granted, free of charge, to any person obtaining a copy of this software
    and associated documentation files (the "Software"), to deal in the Software without
    restriction, including without limitation the rights to use, copy, modify, merge, publish,
    distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the
    Software is furnished to do so, subject to the following conditions: The above copyright notice
    and this permission notice shall be included in all copies or substantial portions of the
    Software. THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED,
    INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE
    AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
    DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
    OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
