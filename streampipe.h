/*  streampipe.h 0.1.0 -- CUDA stream pipelines in one header.

    Cuts any array, file or endless source into chunks and runs them through your kernels while
    copies in, kernels and copies out overlap. Also the parts it is made of: streams by priority,
    stream pools, events, pinned memory, host calls (leases and more in streampipe_parts.h).
    C99, C++11 and CUDA C++ alike. MIT licence: see the end of this file.

    USE IT   copy this file beside your program and #include it: nothing to define, nothing to
             link but the CUDA runtime (and pthreads).

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
      4  >>streams    streams by priority name, waiting, pools
      5  >>events     untimed events
      6  >>memory     pinned allocation, pinning in place, "is this pinned?"
      7  >>hostcalls  host functions in a stream's order
      8  >>describe   buffers, stages, sizes: the description of a pipeline
      9  >>execute    spipe_run, the persistent pipeline, spipe_enqueue
     10  >>report     what happened
     11  >>launch     SPIPE_LAUNCH and stage macros (C++ and .cu only)

    WORDS
      element  the unit that count and chunk count: a float, a pixel, an image row, a record
      chunk    consecutive elements that travel together; the last one may be shorter
      buffer   an array cut into chunks, or one block for the whole run (resident)
      stage    a C function that enqueues work on the stream it is given, for one chunk
      slot     the device memory (and pinned memory, where staged) of one chunk in flight
      depth    the number of slots: memory used = depth x chunk, whatever the total

    HOW A CHUNK TRAVELS    host buffer -> (pinned slot) -> device slot -> stages -> ... -> host
      copy in  |0|1|2|3|4|          a slot is used again when its copy out has ended;
      stages     |0|1|2|3|4|        an event joins each step to the next; chunks take turns
      copy out     |0|1|2|3|4|      on two kernel streams unless a stage is marked ordered

    RULES
      Ownership  arrays you pass stay yours and must live until the run returns (enqueue: until
                 the stream has passed it). Objects are structs of yours: zeroed = dead, made by
                 *_create, freed by *_destroy, never moved or copied while alive. Destroying
                 twice, or a zeroed one, is fine.
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
#ifndef STREAMPIPE_H
#define STREAMPIPE_H

#include <cuda_runtime_api.h>
#ifdef __cplusplus
#include <cuda_runtime.h> /* cudaLaunchKernelEx for SPIPE_LAUNCH */
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
#if defined(__linux__)
#include <sys/mman.h> /* madvise, where the language standard lets it show */
#endif
#if !defined(SPIPE_NO_THREADS)
#include <pthread.h>
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
   Define before including, in any file that wants it; none changes a public struct:
     SPIPE_NO_THREADS   no worker threads: host work is the calling thread's, worker_create returns
                        cudaErrorNotSupported (MSVC: always); in no file or in all that share data
     SPIPE_API          linkage of every function (default: static inline)                     */
#define SPIPE_VERSION_MAJOR 0
#define SPIPE_VERSION_MINOR 1
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

#define SPIPE_MAX_BUFFERS 16
#define SPIPE_MAX_STAGES 16
#define SPIPE_MAX_DEPTH 16
#define SPIPE_MAX_THREADS 32
#define SPIPE_MAX_STREAMS 32 /* of a pool: as many as CUDA can keep apart */
#define SPIPE_MAX_DEVICES 16
/* For count, chunk, depth and threads: the library chooses (count: until the sources end). */
#define SPIPE_AUTO ((size_t)-1)

/* ---- 2 >>errors ---------------------------------------------------------------------------- */
/*  SPIPE_TRY(expr) returns expr's cudaError_t from the enclosing function unless it is cudaSuccess.
    SPIPE_CHECK(expr) prints file:line, expr and the error on stderr and exits (for programs).
    SPIPE_CHECK_RUN(desc, report) is spipe_run, checked: on failure it prints the sentence too.
    Each evaluates its argument once.                                                           */
#define SPIPE_TRY(expr)                                                                            \
    do {                                                                                           \
        const cudaError_t spipe_priv_try_ = (expr);                                                \
        if (spipe_priv_try_ != cudaSuccess) return spipe_priv_try_;                                \
    } while (0)
#define SPIPE_CHECK(expr) spipe_priv_check((expr), #expr, NULL, __FILE__, __LINE__)
#define SPIPE_CHECK_RUN(desc, report) spipe_priv_check_run((desc), (report), __FILE__, __LINE__)

/* What the progress callback's wish to stop comes back as: the work is not finished. */
#define SPIPE_STOPPED cudaErrorNotReady

/* Why a pipeline failed, where a cudaError_t is too poor. */
typedef struct spipe_failure {
    cudaError_t error;        /* the first error; cudaSuccess = no failure */
    int         stage;        /* number of the stage, -1 where no stage is to blame */
    size_t      chunk;        /* number of the chunk, SPIPE_AUTO where none is to blame */
    size_t      chunks_whole; /* chunks 0 .. chunks_whole-1 of every output are complete */
    char        message[320]; /* one sentence: what is wrong and the cure */
} spipe_failure_t;

/* ---- 3 >>device ---------------------------------------------------------------------------- */
/* What decides whether and how work overlaps on a device. */
typedef struct spipe_device {
    int    device;
    char   name[64];
    int    compute_major, compute_minor, num_sms;
    int    copy_engines;          /* asyncEngineCount: 1 = one direction at a time */
    int    concurrent_kernels;    /* 1 = kernels of different streams may run at once */
    int    priority_least;        /* numerically largest; 0 on today's GPUs */
    int    priority_greatest;     /* numerically smallest; -5 on today's GPUs */
    int    map_host_memory;       /* kernels can read and write pinned host memory */
    int    pageable_access;       /* the GPU can read pageable host memory by itself ... */
    int    host_page_tables;      /* ... through the host's page tables, at full speed */
    int    integrated;            /* shares its memory with the CPU */
    int    numa_node;             /* host NUMA node the GPU hangs on, -1 = not known */
    size_t memory_bytes;          /* device memory in all */
    int    runtime_version, driver_version; /* 1000 x major + 10 x minor */
} spipe_device_t;

/*  spipe_device_get -- read the facts of one device.

    facts      out     filled whole; zeroed on error.
    device     in      device number, or -1 for the current one.
    Returns    cudaSuccess; cudaErrorInvalidValue; cudaErrorInvalidDevice; cudaErrorNoDevice.
    Blocks     no (may create the context on first use).   Threads  any.   Callback  no.
    Capture    yes.   Allocates  nothing. */
SPIPE_API cudaError_t spipe_device_get(spipe_device_t *facts, int device);

/* ---- 4 >>streams --------------------------------------------------------------------------- */
/* Priorities order waiting kernels, never copies. On today's GPUs the range is 0 .. -5 and CUDA's
   default 0 is the least, so LOW equals DEFAULT there. */
typedef enum spipe_priority {
    SPIPE_PRIORITY_DEFAULT = 0, /* CUDA's own default, 0 */
    SPIPE_PRIORITY_LOW,         /* the least of the device */
    SPIPE_PRIORITY_MEDIUM,      /* halfway */
    SPIPE_PRIORITY_HIGH         /* the greatest of the device */
} spipe_priority_t;

typedef struct spipe_priv_sync spipe_priv_sync_t; /* a mutex and a condition variable */

/* Streams made once, to take in turn or to lease. Members are private. */
typedef struct spipe_stream_pool {
    size_t             num_streams, next;
    cudaStream_t       streams[SPIPE_MAX_STREAMS];
    unsigned char      leased[SPIPE_MAX_STREAMS];
    int                device;
    spipe_priv_sync_t *sync;
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
    Returns    cudaSuccess; cudaErrorInvalidValue; cudaErrorMemoryAllocation; any error of stream
               creation (then the pool is zeroed and nothing is kept).
    Blocks     create: no. destroy: no; work still queued on the streams completes.
    Threads    one; nobody may hold or wait for a lease when destroy is called.
    Callback   no.   Capture  no.
    Allocates  num_streams streams and a little host memory, until destroy. */
SPIPE_API cudaError_t spipe_stream_pool_create(spipe_stream_pool_t *pool, size_t num_streams,
                                               spipe_priority_t priority);
SPIPE_API cudaError_t spipe_stream_pool_destroy(spipe_stream_pool_t *pool);

/*  spipe_stream_next -- the next stream of a pool, round robin.

    pool       in      made by spipe_stream_pool_create.
    stream     out     shared; to have one to oneself: spipe_stream_acquire of streampipe_parts.h.
    Returns    cudaSuccess; cudaErrorInvalidValue (a dead pool).
    Blocks     no.   Threads  any.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API cudaError_t spipe_stream_next(spipe_stream_pool_t *pool, cudaStream_t *stream);

/* ---- 5 >>events ---------------------------------------------------------------------------- */
/*  spipe_event_create -- an event for ordering, without a time stamp (about ten times cheaper).

    event      out     yours; free it with cudaEventDestroy. NULL on error.
    Returns    cudaSuccess; cudaErrorInvalidValue; any error of event creation.
    Blocks     no.   Threads  any.   Callback  no.   Capture  yes.   Allocates  an event. */
SPIPE_API cudaError_t spipe_event_create(cudaEvent_t *event);

/* ---- 6 >>memory ---------------------------------------------------------------------------- */
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

/* ---- 7 >>hostcalls ------------------------------------------------------------------------- */
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

/* ---- 8 >>describe -------------------------------------------------------------------------- */
/* What a stage is given: one chunk, in device memory (a host stage: in host memory). */
typedef struct spipe_chunk {
    size_t       index;      /* number of this chunk, from 0 */
    size_t       first;      /* number of its first element in the whole */
    size_t       count;      /* elements in it, 1 or more; the last chunk may have fewer */
    size_t       total;      /* elements in the whole; 0 while not known (a source without count) */
    cudaStream_t stream;     /* enqueue on this stream and no other; NULL in a host stage */
    int          slot;       /* 0 .. depth-1: whose memory this is */
    int          num_buffers;
    void        *data[SPIPE_MAX_BUFFERS]; /* buffer i: this chunk's first element (resident: the
                                             start). With a halo, elements -before .. count+after-1
                                             are readable. Host stage: NULL unless declared. */
} spipe_chunk_t;

/* Buffer i of a chunk as a pointer to type. */
#define SPIPE_BUF(chunk, i, type) ((type *)(chunk)->data[i])
/* Buffer i in the masks of spipe_add_host_stage. */
#define SPIPE_BIT(i) (1u << (i))

/* Enqueues a stage's work for one chunk on chunk->stream; does not wait. Any value but cudaSuccess
   stops the run and is what the run returns. A host stage does the work itself, on host memory. */
typedef cudaError_t (*spipe_stage_fn)(const spipe_chunk_t *chunk, void *user);
/* Fills up to max_count elements at dst and says how many in *count; 0 = the end. Called with
   chunks in order. An I/O error: return cudaErrorOperatingSystem. */
typedef cudaError_t (*spipe_source_fn)(void *dst, size_t max_count, size_t *count, void *user);
/* Takes count elements at src, of which the first is number first in the whole; chunks in order. */
typedef cudaError_t (*spipe_sink_fn)(const void *src, size_t count, size_t first, void *user);

/* How far a run is, for the progress callback; return 1 to stop the run, 0 to go on. */
typedef struct spipe_progress {
    size_t chunks_done, num_chunks;   /* num_chunks 0 while not known */
    size_t elements_done, total;      /* total 0 while not known */
    double seconds;                   /* since the run began */
} spipe_progress_t;
typedef int (*spipe_progress_fn)(const spipe_progress_t *progress, void *user);

typedef enum spipe_kind {
    SPIPE_INPUT = 1, /* host array, copied in */
    SPIPE_OUTPUT,    /* host array, copied out */
    SPIPE_INOUT,     /* host array, copied in and out */
    SPIPE_TEMP,      /* device only, one a slot */
    SPIPE_RESIDENT,  /* device only, one for the whole run */
    SPIPE_SOURCE,    /* a host function fills it, copied in */
    SPIPE_SINK       /* copied out, a host function drains it */
} spipe_kind_t;

/* What lies beyond the first and the last element of a buffer with a halo. */
typedef enum spipe_edge {
    SPIPE_EDGE_CLAMP = 0, /* copies of the first / last element */
    SPIPE_EDGE_ZERO       /* zero bytes */
} spipe_edge_t;

/* What happens to a resident buffer at the ends of a run; may be or-ed. */
enum {
    SPIPE_ZERO = 0,     /* zero bytes at the start of each run */
    SPIPE_UPLOAD = 1,   /* copied from the host array at the start of each run */
    SPIPE_DOWNLOAD = 2  /* copied to the host array at the end of each run that succeeds */
};

typedef enum spipe_schedule {
    SPIPE_SCHEDULE_AUTO = 0,
    SPIPE_ENGINES,       /* a stream per direction, two kernel streams taken in turn, events */
    SPIPE_SERIAL,        /* one stream, one slot: nothing overlaps; the baseline */
    SPIPE_DEPTH_FIRST,   /* a stream per slot, chunk by chunk */
    SPIPE_BREADTH_FIRST, /* a stream per slot, step by step over depth chunks at a time */
    SPIPE_MAPPED         /* no copies: kernels read and write pinned host memory themselves */
} spipe_schedule_t;

/* What is done about pageable host arrays. */
typedef enum spipe_staging {
    SPIPE_STAGING_AUTO = 0,
    SPIPE_STAGING_COPY,     /* through pinned slots, copied by worker threads */
    SPIPE_STAGING_REGISTER, /* pinned in place for the run; COPY where that is refused */
    SPIPE_STAGING_DIRECT    /* left to CUDA, which blocks; right where the GPU reads host pages */
} spipe_staging_t;

typedef struct spipe_buffer_desc {
    spipe_kind_t    kind;
    size_t          elem_bytes;  /* bytes of one element; resident: of the whole buffer */
    void           *host;        /* host array; an input is never written */
    size_t          halo_before, halo_after; /* elements readable around a chunk (default: 0) */
    spipe_edge_t    edge;
    int             resident;    /* SPIPE_ZERO, SPIPE_UPLOAD, SPIPE_DOWNLOAD or both */
    spipe_source_fn source;
    spipe_sink_fn   sink;
    void           *user;        /* handed to source or sink */
} spipe_buffer_desc_t;

typedef struct spipe_stage_desc {
    const char    *name;
    spipe_stage_fn fn;
    void          *user;
    int            host;         /* 1 = runs on the CPU, on a worker thread */
    int            ordered;      /* 1 = chunk k+1 enters after chunk k has left (default: 0) */
    int            once, fixed;  /* see spipe_stage_once and spipe_stage_fixed (default: 0) */
    unsigned       reads, writes; /* host stage: SPIPE_BIT of each buffer it reads and writes */
    int            after_given, num_after; /* 0, 0 = after the stage added before it */
    const char    *after[SPIPE_MAX_STAGES];
} spipe_stage_desc_t;

/* Several GPUs for one run, as streampipe_devices.h sets them; zeroed = the current device. */
struct spipe_desc; struct spipe_report; struct spipe_pipeline;
typedef cudaError_t (*spipe_reduce_fn)(void *into, const void *from, size_t bytes, void *user);
typedef struct spipe_devices {
    int             num, list[SPIPE_MAX_DEVICES]; /* num 0 = all */
    spipe_reduce_fn reduce; /* adds one device's resident buffer to another's */
    void           *user;   /* handed to reduce */
    cudaError_t   (*run)(const struct spipe_desc *d, struct spipe_report *report);
    size_t        (*claim)(struct spipe_pipeline *p, int have); /* private, with its argument */
    void           *claim_arg;
    void          (*queue)(int place, int last); /* for tests: who may ask next; NULL = anybody */
} spipe_devices_t;

/* The description of a pipeline. Get one from spipe_desc_default, assign what you want different,
   add buffers and stages. Names, arrays and user pointers are kept, not copied. */
typedef struct spipe_desc {
    size_t            count;    /* elements in the whole (default: SPIPE_AUTO, until sources end) */
    size_t            chunk;    /* elements in a chunk (default: SPIPE_AUTO) */
    size_t            depth;    /* slots, 1 .. SPIPE_MAX_DEPTH (default: SPIPE_AUTO; a slot may
                                   then hold several chunks of less than 256 KiB) */
    size_t            threads;  /* of the host, each way; 0 = the caller's alone (default: AUTO) */
    spipe_schedule_t  schedule; /* (default: SPIPE_SCHEDULE_AUTO) */
    spipe_staging_t   staging;  /* (default: SPIPE_STAGING_AUTO) */
    spipe_priority_t  priority; /* of the kernel streams (default: SPIPE_PRIORITY_DEFAULT) */
    int               sync_each; /* 1 = wait after every step: errors of the GPU name it; slow */
    spipe_progress_fn progress; /* called on the thread that runs (default: NULL) */
    void             *progress_user;
    struct spipe_timeline *timeline; /* see streampipe_timeline.h (default: NULL) */
    spipe_devices_t   devices;  /* (default: the current one) */
    int               num_buffers, num_stages;
    spipe_buffer_desc_t buffers[SPIPE_MAX_BUFFERS];
    spipe_stage_desc_t  stages[SPIPE_MAX_STAGES];
    const char       *problem;  /* first mistake made while adding; found again by the check */
} spipe_desc_t;

/*  spipe_desc_default -- a description with nothing in it and every choice left to the library.
    spipe_desc_check -- find the first mistake of one, without touching the device.

    d          in      the description.
    failure    out     the sentence that names the buffer or stage and the cure; may be NULL.
    Returns    default: the description. check: cudaSuccess or cudaErrorInvalidValue.
    Blocks     no.   Threads  any.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API spipe_desc_t spipe_desc_default(void);
SPIPE_API cudaError_t spipe_desc_check(const spipe_desc_t *d, spipe_failure_t *failure);

/*  spipe_add_input, spipe_add_output, spipe_add_inout, spipe_add_temp, spipe_add_resident,
    spipe_add_source, spipe_add_sink, spipe_set_halo -- the buffers of a pipeline.

    d          in/out  from spipe_desc_default.
    host       in      host array of count elements, pinned or not (device memory works too);
                       yours. resident: bytes bytes, NULL for SPIPE_ZERO.
    elem_bytes bytes   of one element, 1 or more; differs between buffers as you like.
    bytes      bytes   of a resident buffer, 1 or more.
    how        in      SPIPE_ZERO, SPIPE_UPLOAD, SPIPE_DOWNLOAD, or the last two or-ed.
    source, sink in    see spipe_source_fn, spipe_sink_fn; user is handed to it. They may run on
                       a library thread, one call at a time, and may not call CUDA.
    buffer     in      number of an input, in/out or source buffer.
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
SPIPE_API int spipe_set_halo(spipe_desc_t *d, int buffer, size_t before, size_t after,
                             spipe_edge_t edge);

/*  spipe_add_stage, spipe_add_host_stage, spipe_stage_after, spipe_stage_ordered -- the stages.
    spipe_stage_once, spipe_stage_fixed -- what a stage promises, so that the library can do better.

    d          in/out  from spipe_desc_default.
    name       in      short and unique; appears in messages and reports; kept, not copied.
    fn, user   in      see spipe_stage_fn. A stage follows the one added before it.
    reads, writes in   host stage: SPIPE_BIT(i) or-ed for each buffer (not resident) that is
                       brought to host memory for it, and taken back to the device after it.
    stage      in      number of a stage.
    after      in      name of a stage that this one waits for instead, added before or after it;
                       call again for more; NULL: none but the copies in. Stages that do not wait
                       for each other run at the same time.
    ordered    chunk k+1 enters after chunk k has left: it may carry state in a resident buffer.
    once       it touches each element once, neighbours by neighbouring threads: small totals in
               pinned memory are then worked on where they are, without copies, and the first runs
               of a kept pipeline try two ways of cutting the whole.
    fixed      it enqueues the same work in every run, arguments and all, from the thread it is in:
               a kept pipeline may replay a run as a CUDA graph, without calling it, where that is
               faster; spipe_run may take a small total through cudaStreamPerThread.
    Returns    the stage's number, from 0 as added; -1 on a mistake, which the run tells in words.
    Blocks     no.   Threads  one.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API int spipe_add_stage(spipe_desc_t *d, const char *name, spipe_stage_fn fn, void *user);
SPIPE_API int spipe_add_host_stage(spipe_desc_t *d, const char *name, spipe_stage_fn fn,
                                   void *user, unsigned reads, unsigned writes);
SPIPE_API int spipe_stage_after(spipe_desc_t *d, int stage, const char *after);
SPIPE_API int spipe_stage_ordered(spipe_desc_t *d, int stage);
SPIPE_API int spipe_stage_once(spipe_desc_t *d, int stage);
SPIPE_API int spipe_stage_fixed(spipe_desc_t *d, int stage);

/* ---- 9 >>execute --------------------------------------------------------------------------- */
/* What a run did; see >>report. Filled whole on success and on failure. */
typedef struct spipe_report {
    spipe_failure_t  failure;     /* failure.error is cudaSuccess when all went well */
    char             device[64];
    size_t           total, count_done;        /* elements asked for (0 = not known) and done */
    size_t           num_chunks, chunks_done;
    size_t           chunk, depth;             /* as chosen */
    spipe_schedule_t schedule;
    int              staged;                   /* 1 = pageable arrays went through pinned slots */
    const char      *why_chunk, *why_schedule, *why_staging; /* why so: constant strings */
    size_t           threads;                  /* of the host, each way, as chosen */
    size_t           fill_threads, drain_threads; /* of them; more fill if most goes in */
    int              num_stages, num_streams;
    int              replayed, trying;         /* by a CUDA graph; to find the fastest way */
    size_t           bytes_in, bytes_out;      /* moved host to device, device to host */
    size_t           device_bytes, pinned_bytes; /* memory taken */
    double           setup_ms;                 /* streams, events and memory; 0 when kept */
    double           wall_ms;                  /* first byte to last, set-up apart */
    int              num_devices, device_numbers[SPIPE_MAX_DEVICES]; /* 0: the current one */
    unsigned         devices_failed;           /* SPIPE_BIT of each place in these lists */
    size_t           device_chunks[SPIPE_MAX_DEVICES]; /* that each of them did */
    /* Only of a run with a timeline. Arrays: host threads that fill, copies in, stages, host
       stages, copies out, host threads that drain. */
    double           timed_ms;                 /* first operation to last; 0 = nobody looked */
    double           busy_ms[6], idle_ms[6];   /* idle: between its first and last operation */
    double           stage_ms[SPIPE_MAX_STAGES];
    const char      *stage_names[SPIPE_MAX_STAGES];
    double           serial_ms;                /* the same work one after another, estimated */
    double           bound_ms;                 /* the busiest engine's work: none can be faster */
    double           overlap;                  /* hidden time / time that could be hidden */
    double           sync_us;                  /* from a step's turn to its begin, on average */
    unsigned         causes;                   /* SPIPE_CAUSE_... of streampipe_timeline.h */
    char             verdict[1600];            /* the limit, then each cause and its cure: lines */
    void (*print_more)(const struct spipe_report *report, FILE *to); /* private */
} spipe_report_t;

/* A run tells who watches when it begins and ends, and each action of a load (about: its
   spipe_priv_op_t) and each task of a crew (its spipe_priv_task_t), before and after. */
enum { SPIPE_PRIV_WATCH_RUN, SPIPE_PRIV_WATCH_OP, SPIPE_PRIV_WATCH_TASK };
typedef struct spipe_priv_watch { /* what a spipe_timeline_t begins with */
    void (*tell)(struct spipe_timeline *timeline, struct spipe_pipeline *p, int what,
                 const void *about, size_t load, int after);
} spipe_priv_watch_t;
typedef struct spipe_priv_slot {
    unsigned char *dev[SPIPE_MAX_BUFFERS];     /* the chunk's first element on the device */
    unsigned char *pin_in[SPIPE_MAX_BUFFERS];  /* pinned twin that is filled, or NULL */
    unsigned char *pin_out[SPIPE_MAX_BUFFERS]; /* pinned twin that is drained, or NULL */
    unsigned char *mirror[SPIPE_MAX_STAGES][SPIPE_MAX_BUFFERS]; /* what each host stage sees */
    cudaEvent_t    in_done, out_done;
    cudaEvent_t    stage_done[SPIPE_MAX_STAGES];
    size_t         filled, drained, whole;     /* load number + 1, when so */
    size_t         host_done[SPIPE_MAX_STAGES];
    spipe_chunk_t  view;                       /* what a stage on the device sees */
} spipe_priv_slot_t;
typedef struct spipe_priv_task {
    int    what, stage;
    size_t load;
    double began; /* where somebody watches */
} spipe_priv_task_t;
/* What is to be issued in one stream, the same for every load: a wait, an action, a record. */
typedef struct spipe_priv_op {
    cudaStream_t         stream;
    cudaEvent_t          wait, done;        /* or NULL */
    size_t               since;             /* waits from this load on */
    int                  what, step, stage; /* step: the kind it belongs to, for messages */
    int                  out, num;          /* 1 = from the device; copies to issue as one */
    unsigned char       *to;                /* a copy of count x elem_bytes + more bytes: */
    const unsigned char *from;
    size_t               to_elem, from_elem, elem_bytes, more; /* an array's bytes an element, */
} spipe_priv_op_t;                                             /* 0 for a slot: it stays */
enum {
    SPIPE_PRIV_FILL = 0, /* also the numbers of the crews that do each task */
    SPIPE_PRIV_DRAIN, SPIPE_PRIV_HOST, SPIPE_PRIV_NUM_CREWS,
    SPIPE_PRIV_TOUCH = SPIPE_PRIV_NUM_CREWS, /* by any crew */
    SPIPE_PRIV_RING = 512,   /* > tasks that can wait at once: depth x (host stages + 1) */
    SPIPE_PRIV_WINDOW = 16,  /* marks that the host may be ahead of the GPU, a mark being ... */
    SPIPE_PRIV_MARK = 16,    /* ... so many loads, or one where progress is told */
    SPIPE_PRIV_CLAIMS = 512, /* loads that can be looked back at: > WINDOW x MARK + depth */
    SPIPE_PRIV_MAX_REPLAY = 1024, /* chunks of a run that is worth a graph */
    SPIPE_PRIV_MAX_STEPS = 2 * SPIPE_MAX_STAGES + 2,
    SPIPE_PRIV_MAX_STREAMS = 4 + 2 * SPIPE_MAX_STAGES + SPIPE_MAX_STAGES * SPIPE_MAX_DEPTH,
    SPIPE_PRIV_MAX_EVENTS = 2 + SPIPE_PRIV_WINDOW + SPIPE_MAX_DEPTH * (4 + SPIPE_MAX_STAGES)
};
typedef struct spipe_priv_crew {
    struct spipe_pipeline *pipeline;
    size_t                 head, num_tasks, num_busy, num_threads, num_begun;
    void                  *threads[SPIPE_MAX_THREADS];
    struct spipe_priv_hand *resting; /* those without a task, the last one first */
} spipe_priv_crew_t;

/* A pipeline made once and run many times. desc holds what was chosen, failure what went wrong
   last; the rest is private. Must not be moved or copied while alive. */
typedef struct spipe_pipeline {
    spipe_desc_t       desc;
    spipe_failure_t    failure;
    spipe_device_t     facts;
    spipe_priv_sync_t *sync;
    int                device, alive, one_shot, running_async, ran_now, capturing, quit, unset;
    /* the plan */
    size_t             elem_moved, elem_both, elem_held; /* bytes: busier way, ways, in a slot */
    size_t             staged_in, staged_out; /* of its bytes, those that arrays are staged with */
    double             bytes;                 /* of the whole, the busier way */
    int                path[SPIPE_MAX_BUFFERS], registered[SPIPE_MAX_BUFFERS];
    int                needs_fill, needs_drain, has_source, has_sink, has_resident, host_work;
    int                direct_pageable, had_threads, ring_cached, all_help, watched, halves;
    int                out_blocks, small; /* a chunk's last copy out; 1: little, 2: as asked */
    int                num_lanes, num_segments, num_steps;
    size_t             lag, batch, load; /* a load: batch chunks that a slot carries together */
    size_t             parts;            /* of little, with the caller's help; 0: without */
    int                lane[SPIPE_MAX_STAGES], segment_start[SPIPE_MAX_STAGES + 2];
    unsigned           deps[SPIPE_MAX_STAGES], leaves;
    spipe_priv_task_t  steps[SPIPE_PRIV_MAX_STEPS]; /* of every load */
    int                num_in_place; /* buffers that need no copies */
    spipe_priv_op_t   *ops;          /* what is issued for a load, num_ops for each row: a slot, */
    size_t             num_rows;     /* and one of two streams where their number is odd */
    size_t             num_ops, room_ops, step_start[SPIPE_PRIV_MAX_STEPS + 1];
    /* what it owns */
    int                num_streams, num_events, own; /* own: the first of the streams that is */
    cudaEvent_t        fork, end, done[SPIPE_PRIV_WINDOW];
    unsigned char     *device_memory, *pinned_memory, *pinned_base;
    unsigned char     *pinned_alias; /* pinned_memory as kernels see it */
    void              *resident[SPIPE_MAX_BUFFERS];
    unsigned char     *mapped[SPIPE_MAX_BUFFERS];
    spipe_priv_crew_t  crews[SPIPE_PRIV_NUM_CREWS];
    /* what a kept pipeline tries by turns with the plan, and keeps where it is faster */
    int                trying, num_runs; /* a cut, a graph or nothing; for so many runs */
    double             best_ms[2];       /* without it, with it */
    struct { spipe_schedule_t schedule; size_t chunk; } cuts[4]; /* chunk 0: there is none */
    const char        *why_planned[2];   /* chunk, schedule */
    int                cut, held, rival; /* in use; the best of those tried; tried beside it */
    int                replays;          /* 1 = the graph is in use */
    cudaGraphExec_t    replay;           /* a run as a graph, or NULL */
    size_t             replay_moved[2];
    /* the run */
    int                async, endless, one_stream, written_for;
    size_t             failed, drain_failed, stop_asked; /* flags, under the lock */
    cudaError_t        stale_error;
    size_t             total, full_loads, num_loads, failed_load, completed, told;
    size_t             fill_turn, drain_turn, issued_in, issued_out, polled_in, polled_out;
    size_t             num_claimed, source_got[SPIPE_MAX_BUFFERS];
    int                source_ended[SPIPE_MAX_BUFFERS];
    size_t             moved[2]; /* bytes to the device, from it */
    double             began;
    const spipe_priv_watch_t *watch; /* or NULL */
    spipe_report_t     report;
    /* one piece of memory, as large as is needed */
    spipe_priv_slot_t *slots;                    /* depth of them */
    spipe_priv_task_t (*rings)[SPIPE_PRIV_RING]; /* each crew's tasks */
    size_t            *claimed;                  /* which piece a load is, where devices share */
    struct spipe_priv_hand *hands;               /* one for each thread that there may be */
    /* large, and written only as far as it is needed */
    cudaStream_t       streams[SPIPE_PRIV_MAX_STREAMS];
    cudaEvent_t        events[SPIPE_PRIV_MAX_EVENTS]; /* all of them, to be destroyed */
    spipe_priv_slot_t  single; /* the only one of the least run */
} spipe_pipeline_t;

/*  spipe_run -- run a description from the first element to the last.

    d          in      checked first; not kept.
    report     out     what happened, filled on failure too; may be NULL.
    Returns    cudaSuccess; cudaErrorInvalidValue for a bad description (nothing was allocated);
               SPIPE_STOPPED when the progress callback asked for it; what a stage, source or
               sink returned; or the CUDA error met. report->failure says where and why.
    Blocks     yes, until every output is whole, or the work begun has drained.
    Threads    any; runs do not share anything.   Callback  no.   Capture  no.
    Allocates  depth x chunk of device memory, as much pinned memory when staging, some streams
               and events, threads for host work; all freed before return. 20 KB of stack. */
SPIPE_API cudaError_t spipe_run(const spipe_desc_t *d, spipe_report_t *report);

/*  spipe_pipeline_create, spipe_pipeline_run, spipe_pipeline_destroy -- the same, run many times.
    spipe_pipeline_set_host, spipe_pipeline_set_count -- other arrays, another length from now on.

    p          out/in  of the current device at create; must not move until destroyed.
    d          in      kept as p->desc, with chunk, depth, schedule and staging as chosen.
    report, failure out what happened; either may be NULL.
    buffer     in      number of an input, output, in/out or resident buffer.
    host       in      the new array.
    count      in      elements in the whole; 0 or more.
    Returns    as spipe_run. After a failed run the pipeline may be run again (unless the error
               is one that ends the context). Using a destroyed or zeroed pipeline, but for
               destroying it: cudaErrorInvalidResourceHandle; so too a run after set_host failed.
    Blocks     run: yes. create: no. The others: until work under way has ended.
    Threads    one at a time.   Callback  no.   Capture  no.
    Allocates  create: memory, streams, events, and threads where there are arrays to stage. run:
               other threads, and a graph for fixed stages, the first time; then nothing.
               set_host: pinned slots, when the first pageable array comes. */
SPIPE_API cudaError_t spipe_pipeline_create(spipe_pipeline_t *p, const spipe_desc_t *d,
                                            spipe_failure_t *failure);
SPIPE_API cudaError_t spipe_pipeline_run(spipe_pipeline_t *p, spipe_report_t *report);
SPIPE_API cudaError_t spipe_pipeline_destroy(spipe_pipeline_t *p);
SPIPE_API cudaError_t spipe_pipeline_set_host(spipe_pipeline_t *p, int buffer, void *host);
SPIPE_API cudaError_t spipe_pipeline_set_count(spipe_pipeline_t *p, size_t count);

/*  spipe_enqueue, spipe_pipeline_wait -- a run in a stream's order, and its outcome.

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
SPIPE_API cudaError_t spipe_enqueue(spipe_pipeline_t *p, cudaStream_t stream);
SPIPE_API cudaError_t spipe_pipeline_wait(spipe_pipeline_t *p, spipe_report_t *report);

/* ---- 10 >>report --------------------------------------------------------------------------- */
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

/* ---- 11 >>launch --------------------------------------------------------------------------- */
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
#define SPIPE_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                               \
    spipe_priv_launch((grid), (block), (shared_bytes), (stream), kernel, __VA_ARGS__)

/*  SPIPE_MAP_STAGE(name, kernel, in_type, out_type) defines a stage function for a kernel
    (const in_type *in, out_type *out, size_t n) with one thread an element, from buffer 0 to 1. */
#define SPIPE_MAP_STAGE(name, kernel, in_type, out_type)                                           \
    SPIPE_API cudaError_t name(const spipe_chunk_t *c, void *user) {                               \
        (void)user;                                                                                \
        return SPIPE_LAUNCH(kernel, spipe_blocks(c->count, 256), 256, 0, c->stream,                \
                            SPIPE_BUF(c, 0, const in_type), SPIPE_BUF(c, 1, out_type), c->count);  \
    }
#endif

/* ============================================================================================
   >>impl   the same layers, as code. Names beginning spipe_priv_ are not for callers.
   ============================================================================================ */

/* ---- 1 config: threads and clock ----------------------------------------------------------- */
#if defined(SPIPE_NO_THREADS)
typedef int spipe_priv_mutex_t, spipe_priv_cond_t, spipe_priv_thread_t;
#define SPIPE_PRIV_PTHREAD(call) ((void)s)
#else
typedef pthread_mutex_t spipe_priv_mutex_t;
typedef pthread_cond_t  spipe_priv_cond_t;
typedef pthread_t       spipe_priv_thread_t;
#define SPIPE_PRIV_PTHREAD(call) ((void)(call))
#endif
struct spipe_priv_sync {
    spipe_priv_mutex_t lock;
    spipe_priv_cond_t  changed;
    int                lone; /* 1 = there is no second thread, so nothing to lock */
    double             busy; /* until when other programs are taken to want all processors */
};
SPIPE_API void spipe_priv_lock(spipe_priv_sync_t *s) {
    if (!s->lone) SPIPE_PRIV_PTHREAD(pthread_mutex_lock(&s->lock));
}
SPIPE_API void spipe_priv_unlock(spipe_priv_sync_t *s) {
    if (!s->lone) SPIPE_PRIV_PTHREAD(pthread_mutex_unlock(&s->lock));
}
SPIPE_API void spipe_priv_wait(spipe_priv_sync_t *s) {
    SPIPE_PRIV_PTHREAD(pthread_cond_wait(&s->changed, &s->lock));
}
SPIPE_API void spipe_priv_wake(spipe_priv_sync_t *s) {
    SPIPE_PRIV_PTHREAD(pthread_cond_broadcast(&s->changed));
}
/* A thread that has work now and then. Who came to rest last is roused first, and nobody else: with
   one condition for all, who signals at times waits for those that were signalled before. */
typedef struct spipe_priv_hand {
    spipe_priv_cond_t       work;
    int                     roused;
    struct spipe_priv_hand *next; /* that rests, too */
} spipe_priv_hand_t;
SPIPE_API void spipe_priv_rest(spipe_priv_sync_t *s, spipe_priv_hand_t **resting,
                               spipe_priv_hand_t *hand) {
    hand->roused = 0, hand->next = *resting, *resting = hand;
    while (!hand->roused) SPIPE_PRIV_PTHREAD(pthread_cond_wait(&hand->work, &s->lock));
}
SPIPE_API void spipe_priv_rouse(spipe_priv_hand_t **resting) {
    spipe_priv_hand_t *s = *resting;
    if (!s) return;
    *resting = s->next, s->roused = 1;
    SPIPE_PRIV_PTHREAD(pthread_cond_signal(&s->work));
}
SPIPE_API spipe_priv_sync_t *spipe_priv_sync_create(void) {
    spipe_priv_sync_t *s = (spipe_priv_sync_t *)calloc(1, sizeof *s);
    if (!s) return NULL;
    SPIPE_PRIV_PTHREAD(pthread_mutex_init(&s->lock, NULL));
    SPIPE_PRIV_PTHREAD(pthread_cond_init(&s->changed, NULL));
    return s;
}
SPIPE_API void spipe_priv_sync_destroy(spipe_priv_sync_t *s) {
    if (!s) return;
    SPIPE_PRIV_PTHREAD(pthread_cond_destroy(&s->changed));
    SPIPE_PRIV_PTHREAD(pthread_mutex_destroy(&s->lock));
    free(s);
}
SPIPE_API void *spipe_priv_thread_start(void *(*fn)(void *arg), void *arg) {
    spipe_priv_thread_t *t = (spipe_priv_thread_t *)malloc(sizeof *t);
#if !defined(SPIPE_NO_THREADS)
    if (t && pthread_create(t, NULL, fn, arg) == 0) return t;
#endif
    free(t);
    (void)fn, (void)arg;
    return NULL;
}
SPIPE_API void spipe_priv_thread_join(void *thread) {
    spipe_priv_thread_t *s = (spipe_priv_thread_t *)thread;
    SPIPE_PRIV_PTHREAD(pthread_join(*s, NULL));
    free(s);
}
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
/* Lets other threads run: the issuing thread polls, which must not keep a core from the workers.
   Where that takes long other programs want every core, and runs that went on yielding among them
   took 60 times as long (Linux 6.18; tests/bench), so then there are no more for a while. */
SPIPE_API void spipe_priv_yield(spipe_priv_sync_t *s) {
    const double began = spipe_priv_seconds();
    double       took;
    if (began < s->busy) return;
    SPIPE_PRIV_PTHREAD(sched_yield());
    took = spipe_priv_seconds() - began;
    if (took > 1e-3) s->busy = began + 32.0 * took;
}
/* ---- 2 errors ------------------------------------------------------------------------------ */
SPIPE_API void spipe_priv_check(cudaError_t error, const char *what, const char *why,
                                const char *file, int line) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s:%d: %s: %s (%s)\n", file, line, what,
            why && why[0] ? why : cudaGetErrorString(error), cudaGetErrorName(error));
    exit(EXIT_FAILURE);
}
SPIPE_API void spipe_priv_check_run(const spipe_desc_t *d, spipe_report_t *report,
                                    const char *file, int line) {
    spipe_report_t own;
    if (!report) report = &own;
    spipe_priv_check(spipe_run(d, report), "spipe_run", report->failure.message, file, line);
}
/* Keeps the first error of a sequence that must go on, as when freeing. */
SPIPE_API void spipe_priv_keep(cudaError_t *first, cudaError_t e) {
    if (*first == cudaSuccess) *first = e;
}
SPIPE_API void spipe_priv_failure_clear(spipe_failure_t *f) {
    memset(f, 0, sizeof *f);
    f->stage = -1;
    f->chunk = SPIPE_AUTO;
}
SPIPE_API cudaError_t spipe_priv_refuse(spipe_failure_t *f, cudaError_t e, const char *text, ...) {
    va_list args;
    if (!f) return e;
    spipe_priv_failure_clear(f);
    f->error = e;
    va_start(args, text);
    vsnprintf(f->message, sizeof f->message, text, args);
    va_end(args);
    return e;
}
/* ---- 3 device ------------------------------------------------------------------------------ */
SPIPE_API int spipe_priv_numa_node(int device) {
#if defined(__linux__)
    char   id[32], path[96];
    int    node = -1, i;
    FILE  *f;
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
    char      path[64], comma = ',';
    int       first, last;
    cpu_set_t cpus, allowed;
    FILE     *f;
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
SPIPE_API cudaError_t spipe_priv_enter(int device, int *before) {
    SPIPE_TRY(cudaGetDevice(before));
    return *before == device ? cudaSuccess : cudaSetDevice(device);
}
SPIPE_API void spipe_priv_leave(int device, int before) {
    if (before != device) (void)cudaSetDevice(before);
}
/* ---- 4 streams ----------------------------------------------------------------------------- */
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
    spipe_priv_keep(&e, cudaEventDestroy(event)); /* a wait already queued stays valid */
    return e;
}
SPIPE_API cudaError_t spipe_stream_pool_destroy(spipe_stream_pool_t *pool) {
    cudaError_t e = cudaSuccess;
    size_t      i;
    if (!pool) return cudaSuccess;
    for (i = 0; i < pool->num_streams; ++i) {
        if (pool->streams[i]) spipe_priv_keep(&e, cudaStreamDestroy(pool->streams[i]));
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
    if (!pool || !pool->sync) return cudaErrorInvalidValue;
    spipe_priv_lock(pool->sync);
    *stream = pool->streams[pool->next];
    pool->next = (pool->next + 1) % pool->num_streams;
    spipe_priv_unlock(pool->sync);
    return cudaSuccess;
}
/* ---- 5 events ------------------------------------------------------------------------------ */
SPIPE_API cudaError_t spipe_event_create(cudaEvent_t *event) {
    if (!event) return cudaErrorInvalidValue;
    *event = NULL;
    return cudaEventCreateWithFlags(event, cudaEventDisableTiming);
}
/* ---- 6 memory ------------------------------------------------------------------------------ */
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
enum { SPIPE_PRIV_PAGEABLE, SPIPE_PRIV_PINNED, SPIPE_PRIV_DEVICE };
SPIPE_API cudaError_t spipe_priv_memory_type(const void *ptr, int *type, void **device_pointer) {
    struct cudaPointerAttributes a;
    cudaError_t                  e;
    memset(&a, 0, sizeof a);
    *type = SPIPE_PRIV_PAGEABLE;
    e = cudaPointerGetAttributes(&a, ptr);
    /* so toolkits before 11 called a pageable pointer */
    if (e == cudaErrorInvalidValue) return (void)cudaGetLastError(), cudaSuccess;
    if (e != cudaSuccess) return e;
    if (a.type == cudaMemoryTypeHost) *type = SPIPE_PRIV_PINNED;
    else if (a.type != cudaMemoryTypeUnregistered) *type = SPIPE_PRIV_DEVICE;
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
/* ---- 7 host calls -------------------------------------------------------------------------- */
SPIPE_API cudaError_t spipe_host_call(cudaStream_t stream, spipe_host_fn fn, void *user) {
    return fn ? cudaLaunchHostFunc(stream, (cudaHostFn_t)fn, user) : cudaErrorInvalidValue;
}
/* ---- 8 describe ---------------------------------------------------------------------------- */
SPIPE_API spipe_desc_t spipe_desc_default(void) {
    spipe_desc_t d;
    memset(&d, 0, sizeof d);
    d.count = d.chunk = d.depth = d.threads = SPIPE_AUTO;
    return d;
}
SPIPE_API int spipe_priv_mistake(spipe_desc_t *d, const char *problem) {
    if (d && !d->problem) d->problem = problem;
    return -1;
}
SPIPE_API int spipe_priv_add_buffer(spipe_desc_t *d, spipe_kind_t kind, void *host, size_t bytes) {
    spipe_buffer_desc_t *b;
    if (!d) return -1;
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
SPIPE_API int spipe_add_source(spipe_desc_t *d, spipe_source_fn source, void *user,
                               size_t elem_bytes) {
    const int i = spipe_priv_add_buffer(d, SPIPE_SOURCE, NULL, elem_bytes);
    if (i >= 0) d->buffers[i].source = source, d->buffers[i].user = user;
    return i;
}
SPIPE_API int spipe_add_sink(spipe_desc_t *d, spipe_sink_fn sink, void *user, size_t elem_bytes) {
    const int i = spipe_priv_add_buffer(d, SPIPE_SINK, NULL, elem_bytes);
    if (i >= 0) d->buffers[i].sink = sink, d->buffers[i].user = user;
    return i;
}
SPIPE_API int spipe_set_halo(spipe_desc_t *d, int buffer, size_t before, size_t after,
                             spipe_edge_t edge) {
    if (!d) return -1;
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
    if (!d) return -1;
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
SPIPE_API int spipe_add_host_stage(spipe_desc_t *d, const char *name, spipe_stage_fn fn,
                                   void *user, unsigned reads, unsigned writes) {
    const int i = spipe_add_stage(d, name, fn, user);
    if (i < 0) return i;
    d->stages[i].host = 1;
    d->stages[i].reads = reads;
    d->stages[i].writes = writes;
    return i;
}
SPIPE_API spipe_stage_desc_t *spipe_priv_stage_at(spipe_desc_t *d, int stage) {
    if (d && stage >= 0 && stage < d->num_stages) return &d->stages[stage];
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
    return s ? (s->ordered = 1, stage) : -1;
}
SPIPE_API int spipe_stage_once(spipe_desc_t *d, int stage) {
    spipe_stage_desc_t *s = spipe_priv_stage_at(d, stage);
    return s ? (s->once = 1, stage) : -1;
}
SPIPE_API int spipe_stage_fixed(spipe_desc_t *d, int stage) {
    spipe_stage_desc_t *s = spipe_priv_stage_at(d, stage);
    return s ? (s->fixed = 1, stage) : -1;
}
SPIPE_API const char *spipe_priv_kind_name(spipe_kind_t kind) {
    static const char *const names[] = {"unknown", "input",    "output", "in/out",
                                        "temp",    "resident", "source", "sink"};
    return names[kind >= SPIPE_INPUT && kind <= SPIPE_SINK ? (int)kind : 0];
}
SPIPE_API int spipe_priv_is_array(const spipe_buffer_desc_t *b) {
    return b->kind == SPIPE_INPUT || b->kind == SPIPE_OUTPUT || b->kind == SPIPE_INOUT;
}
SPIPE_API int spipe_priv_goes_in(const spipe_buffer_desc_t *b) {
    return b->kind == SPIPE_INPUT || b->kind == SPIPE_INOUT || b->kind == SPIPE_SOURCE;
}
SPIPE_API int spipe_priv_goes_out(const spipe_buffer_desc_t *b) {
    return b->kind == SPIPE_OUTPUT || b->kind == SPIPE_INOUT || b->kind == SPIPE_SINK;
}
SPIPE_API int spipe_priv_endless(const spipe_desc_t *d) {
    int i, sources = 0;
    for (i = 0; i < d->num_buffers; ++i) sources += d->buffers[i].kind == SPIPE_SOURCE;
    return d->count == SPIPE_AUTO || (d->count == 0 && sources > 0);
}
/* Bytes of a chunk with its halo; 0 when they do not fit a size_t. */
SPIPE_API size_t spipe_priv_window_bytes(const spipe_buffer_desc_t *b, size_t chunk) {
    const size_t most = SIZE_MAX / 4 / SPIPE_MAX_DEPTH / SPIPE_MAX_BUFFERS;
    if (b->halo_before > most || b->halo_after > most || chunk > most) return 0;
    if (b->halo_before + chunk + b->halo_after > most / b->elem_bytes) return 0;
    return (b->halo_before + chunk + b->halo_after) * b->elem_bytes;
}
/* One rule a paragraph; the first one broken is the one told. */
#define SPIPE_PRIV_REFUSE_IF(broken, ...)                                                          \
    do {                                                                                           \
        if (broken) return spipe_priv_refuse(f, cudaErrorInvalidValue, __VA_ARGS__);               \
    } while (0)
SPIPE_API cudaError_t spipe_priv_check_buffer(const spipe_desc_t *d, int i, spipe_failure_t *f) {
    const spipe_buffer_desc_t *b = &d->buffers[i];
    const char                *kind = spipe_priv_kind_name(b->kind);
    const int                  array = spipe_priv_is_array(b), resident = b->kind == SPIPE_RESIDENT;
    const int                  halo = b->halo_before || b->halo_after;
    const size_t               chunk = d->chunk == SPIPE_AUTO ? 1 : d->chunk;
    SPIPE_PRIV_REFUSE_IF(b->kind < SPIPE_INPUT || b->kind > SPIPE_SINK,
        "buffer %d: its kind is not one of spipe_kind_t", i);
    SPIPE_PRIV_REFUSE_IF(b->elem_bytes == 0, "buffer %d (%s): %s is 0 bytes; give its size", i,
        kind, resident ? "the buffer" : "an element");
    SPIPE_PRIV_REFUSE_IF(array && !b->host && d->count > 0,
        "buffer %d (%s): the host array is NULL; pass the array", i, kind);
    SPIPE_PRIV_REFUSE_IF(array && spipe_priv_endless(d), "buffer %d (%s): an array needs a length; "
        "set count to the number of its elements", i, kind);
    SPIPE_PRIV_REFUSE_IF(array && d->count > SIZE_MAX / b->elem_bytes, "buffer %d (%s): %zu "
        "elements of %zu bytes are more than SIZE_MAX bytes", i, kind, d->count, b->elem_bytes);
    SPIPE_PRIV_REFUSE_IF((b->kind == SPIPE_SOURCE && !b->source) ||
                         (b->kind == SPIPE_SINK && !b->sink),
        "buffer %d (%s): its function is NULL", i, kind);
    SPIPE_PRIV_REFUSE_IF(resident && b->resident != SPIPE_ZERO && !b->host, "buffer %d (resident): "
        "the host array to upload from or download to is NULL; pass it, or SPIPE_ZERO", i);
    SPIPE_PRIV_REFUSE_IF(resident && (b->resident & ~(SPIPE_UPLOAD | SPIPE_DOWNLOAD)) != 0,
        "buffer %d (resident): how is not SPIPE_ZERO, SPIPE_UPLOAD, SPIPE_DOWNLOAD or both", i);
    SPIPE_PRIV_REFUSE_IF(halo && b->kind != SPIPE_INPUT && b->kind != SPIPE_SOURCE,
        "buffer %d (%s): only an input or a source can have a halo: neighbours written by other "
        "chunks are not there yet", i, kind);
    SPIPE_PRIV_REFUSE_IF(b->edge != SPIPE_EDGE_CLAMP && b->edge != SPIPE_EDGE_ZERO,
        "buffer %d (%s): edge is not SPIPE_EDGE_CLAMP or SPIPE_EDGE_ZERO", i, kind);
    SPIPE_PRIV_REFUSE_IF(d->chunk != SPIPE_AUTO &&
                         (b->halo_before > chunk || b->halo_after > chunk),
        "buffer %d (%s): its halo of %zu before and %zu after is larger than a chunk of %zu "
        "elements; make chunk larger", i, kind, b->halo_before, b->halo_after, chunk);
    SPIPE_PRIV_REFUSE_IF(!resident && spipe_priv_window_bytes(b, chunk) == 0, "buffer %d (%s): a "
        "chunk with its halo is too many bytes; make chunk smaller", i, kind);
    return cudaSuccess;
}
SPIPE_API int spipe_priv_find_stage(const spipe_desc_t *d, const char *name) {
    int i;
    for (i = 0; i < d->num_stages; ++i) {
        if (d->stages[i].name && strcmp(d->stages[i].name, name) == 0) return i;
    }
    return -1;
}
SPIPE_API cudaError_t spipe_priv_check_stage(const spipe_desc_t *d, int i, spipe_failure_t *f) {
    const spipe_stage_desc_t *s = &d->stages[i];
    int                       j;
    SPIPE_PRIV_REFUSE_IF(!s->name || !s->name[0], "stage %d: it has no name; give it one", i);
    SPIPE_PRIV_REFUSE_IF(!s->fn, "stage '%s': its function is NULL", s->name);
    SPIPE_PRIV_REFUSE_IF(spipe_priv_find_stage(d, s->name) != i,
        "stage '%s': two stages have this name; rename one", s->name);
    for (j = 0; j < s->num_after; ++j) {
        SPIPE_PRIV_REFUSE_IF(spipe_priv_find_stage(d, s->after[j]) < 0,
            "stage '%s': waits for '%s', and there is no stage of that name", s->name, s->after[j]);
    }
    for (j = 0; j < SPIPE_MAX_BUFFERS; ++j) {
        if (((s->reads | s->writes) & SPIPE_BIT(j)) == 0) continue;
        SPIPE_PRIV_REFUSE_IF(j >= d->num_buffers || d->buffers[j].kind == SPIPE_RESIDENT,
            "host stage '%s': buffer %d is %s; name buffers that travel in chunks", s->name, j,
            j >= d->num_buffers ? "not there" : "resident");
    }
    return cudaSuccess;
}
/* Which stages each one waits for, as bits; a stage follows the one before it unless told. */
SPIPE_API unsigned spipe_priv_stage_deps(const spipe_desc_t *d, int i) {
    const spipe_stage_desc_t *s = &d->stages[i];
    unsigned                  deps = 0;
    int                       j;
    if (!s->after_given) return i > 0 ? SPIPE_BIT(i - 1) : 0;
    for (j = 0; j < s->num_after; ++j) deps |= SPIPE_BIT(spipe_priv_find_stage(d, s->after[j]));
    return deps;
}
/* Puts the stages into an order in which each comes after those it waits for; returns how many
   there are of them: fewer than num_stages means that some wait for each other in a circle. */
SPIPE_API int spipe_priv_sort_stages(const spipe_desc_t *d, int *order) {
    unsigned done = 0;
    int      n = 0, i, before = -1;
    while (n != before) {
        for (before = n, i = 0; i < d->num_stages; ++i) {
            if ((done & SPIPE_BIT(i)) || (spipe_priv_stage_deps(d, i) & ~done)) continue;
            done |= SPIPE_BIT(i);
            order[n++] = i;
        }
    }
    return n;
}
SPIPE_API cudaError_t spipe_desc_check(const spipe_desc_t *d, spipe_failure_t *failure) {
    spipe_failure_t *f = failure;
    int              order[SPIPE_MAX_STAGES], i, sources = 0;
    if (f) spipe_priv_failure_clear(f);
    SPIPE_PRIV_REFUSE_IF(!d, "the description is NULL");
    SPIPE_PRIV_REFUSE_IF(d->problem, "%s", d->problem);
    SPIPE_PRIV_REFUSE_IF(d->num_buffers < 0 || d->num_buffers > SPIPE_MAX_BUFFERS ||
                         d->num_stages < 0 || d->num_stages > SPIPE_MAX_STAGES,
        "the description is damaged: %d buffers and %d stages; begin with spipe_desc_default()",
        d->num_buffers, d->num_stages);
    SPIPE_PRIV_REFUSE_IF(d->num_stages == 0, "there is no stage; add one with spipe_add_stage");
    SPIPE_PRIV_REFUSE_IF(d->chunk == 0, "chunk is 0 elements; leave it SPIPE_AUTO and the library "
        "chooses, or give 1 or more");
    SPIPE_PRIV_REFUSE_IF(d->depth != SPIPE_AUTO && (d->depth == 0 || d->depth > SPIPE_MAX_DEPTH),
        "depth is %zu slots; leave it SPIPE_AUTO, or give 1 to %d", d->depth, SPIPE_MAX_DEPTH);
    SPIPE_PRIV_REFUSE_IF(d->threads != SPIPE_AUTO && d->threads > SPIPE_MAX_THREADS,
        "threads is %zu; leave it SPIPE_AUTO, or give 0 to %d", d->threads, SPIPE_MAX_THREADS);
    SPIPE_PRIV_REFUSE_IF((int)d->schedule < 0 || d->schedule > SPIPE_MAPPED ||
                         (int)d->staging < 0 || d->staging > SPIPE_STAGING_DIRECT ||
                         (int)d->priority < 0 || d->priority > SPIPE_PRIORITY_HIGH,
        "schedule, staging or priority is none of its enumeration's values");
    SPIPE_PRIV_REFUSE_IF(d->timeline && !*(void *const *)(const void *)d->timeline,
        "the timeline is not ready to be filled; begin with spipe_timeline_default()");
    for (i = 0; i < d->num_buffers; ++i) {
        sources += d->buffers[i].kind == SPIPE_SOURCE;
        SPIPE_TRY(spipe_priv_check_buffer(d, i, f));
    }
    SPIPE_PRIV_REFUSE_IF(d->count == SPIPE_AUTO && sources == 0, "count was not set, and there is "
        "no source whose end would tell; set it to the number of elements");
    for (i = 0; i < d->num_stages; ++i) SPIPE_TRY(spipe_priv_check_stage(d, i, f));
    SPIPE_PRIV_REFUSE_IF(spipe_priv_sort_stages(d, order) < d->num_stages, "some stages wait for "
        "each other in a circle; look at the names given to spipe_stage_after");
    return cudaSuccess;
}
/* ---- 9 execute: the plan ------------------------------------------------------------------- */
/* How a buffer's elements get from the host to the device and back: not at all; copied from and
   to the user's array; through a pinned slot that host threads fill and drain; used in place. */
enum { SPIPE_PRIV_NONE, SPIPE_PRIV_DIRECT, SPIPE_PRIV_STAGED, SPIPE_PRIV_IN_PLACE };
/* The steps of a load; the first two are routes as well. */
enum { SPIPE_PRIV_IN, SPIPE_PRIV_OUT, SPIPE_PRIV_STAGE, SPIPE_PRIV_BEGIN, SPIPE_PRIV_END };
SPIPE_API int spipe_priv_is_mapped(const spipe_pipeline_t *p) {
    return p->desc.schedule == SPIPE_MAPPED;
}
SPIPE_API cudaError_t spipe_priv_choose_path(spipe_pipeline_t *p, int i) {
    spipe_buffer_desc_t *b = &p->desc.buffers[i];
    const int            halo = b->halo_before || b->halo_after;
    spipe_staging_t      staging = p->desc.staging;
    int                  type = SPIPE_PRIV_PAGEABLE;
    void                *device_pointer = NULL;
    p->path[i] = SPIPE_PRIV_NONE;
    p->mapped[i] = NULL;
    if (b->kind == SPIPE_SOURCE || b->kind == SPIPE_SINK) p->path[i] = SPIPE_PRIV_STAGED;
    if (b->kind == SPIPE_RESIDENT && b->host) {
        SPIPE_TRY(spipe_priv_memory_type(b->host, &type, NULL));
        if (type == SPIPE_PRIV_PAGEABLE) p->path[i] = SPIPE_PRIV_STAGED;
    }
    if (!spipe_priv_is_array(b)) return cudaSuccess;
    p->path[i] = SPIPE_PRIV_DIRECT;
    if (!b->host) return cudaSuccess; /* no elements, so nothing will be copied */
    SPIPE_TRY(spipe_priv_memory_type(b->host, &type, &device_pointer));
    if (type == SPIPE_PRIV_PAGEABLE && staging == SPIPE_STAGING_REGISTER && p->desc.count > 0) {
        if (spipe_pin(b->host, p->desc.count * b->elem_bytes) == cudaSuccess) {
            p->registered[i] = 1;
            SPIPE_TRY(spipe_priv_memory_type(b->host, &type, &device_pointer));
        } else {
            (void)cudaGetLastError(); /* failing to pin is never fatal: stage instead */
        }
    }
    if (type == SPIPE_PRIV_PAGEABLE) {
        if (staging == SPIPE_STAGING_DIRECT || p->small) p->direct_pageable = 1;
        else p->path[i] = SPIPE_PRIV_STAGED;
    }
    if (spipe_priv_goes_out(b)) { /* CUDA comes back from such a copy when it is done */
        p->out_blocks = type == SPIPE_PRIV_PAGEABLE && !p->facts.pageable_access;
    }
    if (spipe_priv_is_mapped(p)) {
        const int in_place = type != SPIPE_PRIV_PAGEABLE && !halo && device_pointer;
        p->path[i] = in_place ? SPIPE_PRIV_IN_PLACE : SPIPE_PRIV_STAGED;
        p->mapped[i] = (unsigned char *)device_pointer;
    }
    return cudaSuccess;
}
SPIPE_API cudaError_t spipe_priv_unregister(spipe_pipeline_t *p, int i) {
    if (!p->registered[i]) return cudaSuccess;
    p->registered[i] = 0;
    return spipe_unpin(p->desc.buffers[i].host);
}
SPIPE_API cudaError_t spipe_priv_choose_paths(spipe_pipeline_t *p) {
    int i;
    p->needs_fill = p->needs_drain = p->has_source = p->has_sink = p->has_resident = 0;
    p->direct_pageable = p->host_work = p->out_blocks = 0, p->staged_in = p->staged_out = 0;
    for (i = 0; i < p->desc.num_stages; ++i) p->host_work |= p->desc.stages[i].host;
    for (i = 0; i < p->desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->desc.buffers[i];
        SPIPE_TRY(spipe_priv_unregister(p, i));
        SPIPE_TRY(spipe_priv_choose_path(p, i));
        p->has_source |= b->kind == SPIPE_SOURCE;
        p->has_sink |= b->kind == SPIPE_SINK;
        p->has_resident |= b->kind == SPIPE_RESIDENT;
        if (p->path[i] != SPIPE_PRIV_STAGED) continue;
        p->host_work = 1;
        p->needs_fill |= spipe_priv_goes_in(b);
        p->needs_drain |= spipe_priv_goes_out(b);
        if (!spipe_priv_is_array(b)) continue;
        if (spipe_priv_goes_in(b)) p->staged_in += b->elem_bytes;
        if (spipe_priv_goes_out(b)) p->staged_out += b->elem_bytes;
    }
    return cudaSuccess;
}
/* Whether stages work on the user's own memory and nothing is copied; 2: with memory in between. */
SPIPE_API int spipe_priv_all_in_place(const spipe_pipeline_t *p) {
    int i, others = 0, temps = 0;
    for (i = 0; i < p->desc.num_buffers; ++i) {
        const spipe_kind_t kind = p->desc.buffers[i].kind;
        others |= p->path[i] != SPIPE_PRIV_IN_PLACE && kind != SPIPE_RESIDENT && kind != SPIPE_TEMP;
        temps |= kind == SPIPE_TEMP;
    }
    return spipe_priv_is_mapped(p) && !others ? 1 + temps : 0;
}
/* Bytes one element moves in the busier direction, in both, and what it takes in a slot. */
SPIPE_API void spipe_priv_element_bytes(spipe_pipeline_t *p) {
    size_t in = 0, out = 0, held = 0;
    int    i;
    for (i = 0; i < p->desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->desc.buffers[i];
        if (b->kind == SPIPE_RESIDENT) continue;
        held += b->elem_bytes;
        if (spipe_priv_goes_in(b)) in += b->elem_bytes;
        if (spipe_priv_goes_out(b)) out += b->elem_bytes;
    }
    p->elem_moved = in > out ? in : out > 0 ? out : held > 0 ? held : 1;
    p->elem_both = in + out;
    p->elem_held = held;
}
#define SPIPE_PRIV_MIB 1048576.0
#define SPIPE_PRIV_LITTLE (1.5 * SPIPE_PRIV_MIB) /* few threads do; for a quarter of it none */
/* Each copy loses about 120 KB worth of time and the first and last chunk run alone, so the best
   chunk of a total is near sqrt(total x 120 KB / 2), more for short kernels, less for long ones. 1,
   1.5, 2, 3, ... : within 2 % of a sweep's best on an H200, 16 MiB to 4 GiB (tests/bench). */
SPIPE_API size_t spipe_priv_best_bytes(double total) {
    size_t bytes = (size_t)128 << 10;
    while (bytes < (size_t)16 << 20 && 0.6 * (double)bytes * (double)bytes < 60e3 * total) {
        bytes += (bytes & (bytes - 1)) ? bytes / 3 : bytes / 2;
    }
    return bytes;
}
SPIPE_API size_t spipe_priv_part(const spipe_pipeline_t *p, double part) {
    const size_t chunk = (size_t)((double)(p->desc.count - 1) * part) + 1;
    return chunk > 64 ? (chunk + 31) & ~(size_t)31 : chunk;
}
/* In place two side by side: one reads while another writes, and a small third fills the end. */
SPIPE_API size_t spipe_priv_side_by_side(const spipe_pipeline_t *p) {
    return spipe_priv_part(p, p->bytes < 3 * SPIPE_PRIV_MIB || p->desc.num_stages > 1 ? 0.5 : 0.47);
}
/* Slots that the cache holds, in a single run such as are soon pinned; larger if a way is light. */
SPIPE_API size_t spipe_priv_staged_bytes(const spipe_pipeline_t *p) {
    const double all = p->bytes / SPIPE_PRIV_MIB;
    double       mib = all <= 100.0 ? 1.0 : all <= 1000.0 ? 1.5 : 2.0;
    if (p->one_shot && all < 150.0) mib = all < 20.0 ? 0.375 : all < 32.0 ? 0.5 : 1.0;
    if (all > 40.0 && 2 * p->elem_both <= 3 * p->elem_moved) mib *=
        p->elem_both > p->elem_moved ? 1.5 : all > 100.0 && !p->one_shot ? 2.0 : 1.0;
    while (mib > 0.25 && mib > all / 8.0) mib /= 2.0;
    return (size_t)(mib * SPIPE_PRIV_MIB);
}
SPIPE_API size_t spipe_priv_choose_chunk(spipe_pipeline_t *p) {
    const spipe_desc_t *d = &p->desc;
    const size_t        mib = (size_t)1 << 20;
    const double        all = p->bytes / SPIPE_PRIV_MIB;
    const int           in_place = spipe_priv_all_in_place(p);
    size_t              bytes = 4 * mib, chunk;
    int                 i;
    if (d->count > 0 && (in_place == 1 || (in_place && all <= 2.0))) {
        const int whole = p->one_shot || all < 0.5 || (in_place == 1 && all > 1.25 && all < 5.0);
        p->report.why_chunk = whole ? "the whole: without copies nothing is to overlap"
                                    : "without copies, a few side by side";
        return whole ? d->count : spipe_priv_side_by_side(p);
    }
    p->report.why_chunk = "no total is known";
    if (d->count != SPIPE_AUTO) {
        p->report.why_chunk = "the whole: CUDA would wait between chunks";
        if (p->small && p->direct_pageable && d->count > 0) return d->count;
        bytes = spipe_priv_best_bytes(p->bytes);
        if (d->num_stages > 1 && all >= 3.0 && bytes < mib) bytes = mib;
        p->report.why_chunk = "least lost to copies' ends and to the first and the last chunk";
        if (p->staged_in + p->staged_out > 0) {
            p->report.why_chunk = "pinned slots that the cache holds";
            bytes = spipe_priv_staged_bytes(p);
            if (d->count > 0 && (p->parts > 0 || (!d->threads && p->bytes < SPIPE_PRIV_LITTLE))) {
                bytes = spipe_priv_part(p, p->parts > 0 ? 1.0 / (double)p->parts
                                           : p->bytes < 49152.0 ? 1.0 : 0.5) * p->elem_moved;
            }
        }
    }
    chunk = bytes / p->elem_moved;
    while (chunk > 1 && (double)chunk * (double)p->elem_held * (double)d->depth >
                            0.25 * (double)p->facts.memory_bytes) {
        chunk /= 2;
    }
    if (chunk > 64) chunk &= ~(size_t)31; /* so that every chunk starts as aligned as the array */
    for (i = 0; i < d->num_buffers; ++i) {
        if (chunk < d->buffers[i].halo_before) chunk = d->buffers[i].halo_before;
        if (chunk < d->buffers[i].halo_after) chunk = d->buffers[i].halo_after;
    }
    return chunk > 0 ? chunk : 1;
}
/* Chunks that somebody wants far smaller than a copy is worth are copied several at a time, unless
   something looks at each of them, or depth says how much memory there may be. */
SPIPE_API size_t spipe_priv_choose_batch(const spipe_pipeline_t *p) {
    const spipe_desc_t *d = &p->desc;
    size_t              bytes, batch, mib = (size_t)1 << 20;
    int                 i, ordered = 0;
    for (i = 0; i < d->num_stages; ++i) ordered |= d->stages[i].ordered;
    if (ordered || d->depth != SPIPE_AUTO || d->sync_each || d->progress || spipe_priv_endless(d) ||
        d->schedule != SPIPE_ENGINES || p->num_lanes > 1 || p->num_segments > 1 || p->needs_fill ||
        p->needs_drain || d->chunk > mib / 4 / p->elem_moved || d->devices.claim) {
        return 1;
    }
    bytes = spipe_priv_best_bytes(p->bytes);
    batch = (bytes < mib ? bytes : mib) / (d->chunk * p->elem_moved);
    if (batch > d->count / d->chunk / 8) batch = d->count / d->chunk / 8; /* 8 loads to overlap */
    return batch > 0 ? batch : 1;
}
/* Small totals in pinned memory are worked on in place where all stages allow that: one that reads
   and writes it ends before copies would up to 16 MiB, several up to 2, long ones far above. */
SPIPE_API cudaError_t spipe_priv_choose_schedule(spipe_pipeline_t *p) {
    spipe_desc_t *d = &p->desc;
    const double  most = (d->num_stages == 1 ? 16 : 2) * SPIPE_PRIV_MIB;
    const int     kept = !p->one_shot && d->staging != SPIPE_STAGING_REGISTER;
    const double  far = !kept ? most : d->num_stages == 1 ? 16.0 * most : 3.0 * most;
    int           i, once = d->chunk == SPIPE_AUTO && p->facts.map_host_memory;
    const spipe_buffer_desc_t *b = d->buffers;
    for (i = 0; i < d->num_stages; ++i) once = once && d->stages[i].once && !d->stages[i].host;
    for (i = 0; i < d->num_buffers; ++i) once = once && !b[i].halo_before && !b[i].halo_after;
    p->report.why_schedule = "as asked";
    if (d->schedule != SPIPE_SCHEDULE_AUTO) return spipe_priv_choose_paths(p);
    if (once && kept) p->cuts[1].schedule = SPIPE_ENGINES;
    if (once && p->bytes <= far) {
        p->report.why_schedule = "a small total, touched once: copies would take longer";
        d->schedule = SPIPE_MAPPED;
        SPIPE_TRY(spipe_priv_choose_paths(p));
        if (kept && spipe_priv_all_in_place(p)) p->cuts[1].schedule = SPIPE_MAPPED;
        if (spipe_priv_all_in_place(p) && p->bytes <= most) return cudaSuccess;
    }
    p->report.why_schedule = NULL; /* the report knows how many chunks there were */
    d->schedule = SPIPE_ENGINES;
    return spipe_priv_choose_paths(p);
}
/* A stage continues the lane (its kernel streams) of the first stage it waits for whose lane
   nobody has continued; otherwise, and for a host stage, it opens a new one. */
SPIPE_API void spipe_priv_choose_lanes(spipe_pipeline_t *p, const int *order) {
    const int serial = p->desc.schedule == SPIPE_SERIAL;
    int       continued[SPIPE_MAX_STAGES] = {0}, n, j;
    p->num_lanes = serial;
    for (n = 0; n < p->desc.num_stages; ++n) {
        const int s = order[n];
        p->lane[s] = -1;
        for (j = 0; j < p->desc.num_stages && p->lane[s] < 0 && !p->desc.stages[s].host; ++j) {
            if (!(p->deps[s] & SPIPE_BIT(j)) || continued[j] || p->desc.stages[j].host) continue;
            continued[j] = 1;
            p->lane[s] = p->lane[j];
        }
        if (p->lane[s] < 0) p->lane[s] = serial ? 0 : p->num_lanes++;
    }
}
SPIPE_API void spipe_priv_add_step(spipe_pipeline_t *p, int what, int stage) {
    p->steps[p->num_steps].what = what;
    p->steps[p->num_steps++].stage = stage;
}
/* The steps of a chunk in order: in, stages, out. The end of a host stage comes as late as
   possible and opens a new segment, so that other chunks are issued while the host works. */
SPIPE_API void spipe_priv_choose_steps(spipe_pipeline_t *p, const int *order) {
    unsigned begun = 0, done = 0;
    int      n, ended = 1;
    p->num_segments = 1;
    spipe_priv_add_step(p, SPIPE_PRIV_IN, -1);
    while (ended) {
        for (n = 0; n < p->desc.num_stages; ++n) {
            const int s = order[n], host = p->desc.stages[s].host;
            if ((begun & SPIPE_BIT(s)) || (p->deps[s] & ~done)) continue;
            begun |= SPIPE_BIT(s);
            if (!host) done |= SPIPE_BIT(s);
            spipe_priv_add_step(p, host ? SPIPE_PRIV_BEGIN : SPIPE_PRIV_STAGE, s);
        }
        for (ended = 0, n = 0; n < p->desc.num_stages; ++n) {
            const int s = order[n];
            if (!(begun & SPIPE_BIT(s)) || (done & SPIPE_BIT(s))) continue;
            if (!ended) p->segment_start[p->num_segments++] = p->num_steps;
            ended = 1;
            done |= SPIPE_BIT(s);
            spipe_priv_add_step(p, SPIPE_PRIV_END, s);
        }
    }
    spipe_priv_add_step(p, SPIPE_PRIV_OUT, -1);
    p->segment_start[p->num_segments] = p->num_steps;
}
SPIPE_API void spipe_priv_measure(spipe_pipeline_t *p) {
    const size_t n = p->desc.count, size = p->load;
    p->endless = spipe_priv_endless(&p->desc);
    p->total = p->endless ? SPIPE_AUTO : n;
    p->full_loads = p->endless ? 0 : n / size;
    p->num_loads = p->endless || p->desc.devices.claim ? SIZE_MAX : p->full_loads + (n % size != 0);
    p->one_stream = p->desc.schedule == SPIPE_SERIAL ||
                    (p->num_loads <= 1 && p->num_lanes == 1 && p->num_segments == 1);
}
/* What a kept pipeline tries beside its plan. Planned with copies: in place where it can be, else
   chunks of half the size. In place: whole or in parts, the other one; from 12 MiB on copies. Then,
   beside the faster of the two: of parts in place half, of copies 2/3, for long kernels; if half a
   copy has lost, and little is to be done, a stream for each slot, for short ones in a row. */
SPIPE_API void spipe_priv_choose_others(spipe_pipeline_t *p) {
    const int    parts = spipe_priv_is_mapped(p) && p->desc.chunk < p->desc.count;
    const int    copies = parts && p->bytes >= 12 * SPIPE_PRIV_MIB;
    const int    few = p->bytes <= 32 * SPIPE_PRIV_MIB && p->num_lanes * (int)p->desc.depth <= 4;
    const size_t n = copies ? spipe_priv_best_bytes(p->bytes) / p->elem_moved : p->desc.chunk / 2;
    int          i;
    p->halves = p->staged_in + p->staged_out > 0 && !p->parts && p->desc.threads > 0 &&
                p->bytes < 100 * SPIPE_PRIV_MIB && !p->has_source && !p->has_sink;
    if (copies) p->cuts[1].schedule = SPIPE_ENGINES;
    p->cuts[1].chunk = parts ? p->desc.count : spipe_priv_side_by_side(p);
    if (p->cuts[1].schedule == SPIPE_ENGINES) p->cuts[1].chunk = n & ~(size_t)31;
    for (i = 0; i < 2; ++i) {
        const size_t chunk = p->cuts[i].chunk, in_place = p->cuts[i].schedule == SPIPE_MAPPED;
        p->cuts[2 + i] = p->cuts[i];
        p->cuts[2 + i].chunk = (in_place ? chunk / 2 : chunk / 3 * 2) & ~(size_t)31;
        if (in_place && chunk >= p->desc.count) p->cuts[2 + i].chunk = 0;
    }
    if (p->cuts[2].schedule == SPIPE_MAPPED || p->cuts[3].schedule == SPIPE_MAPPED) return;
    p->cuts[2].schedule = SPIPE_DEPTH_FIRST;
    p->cuts[2].chunk = few ? p->desc.chunk : 0;
}
SPIPE_API void spipe_priv_choose_staging(spipe_pipeline_t *p) {
    const int        little = p->one_shot && p->bytes < 7 * SPIPE_PRIV_MIB;
    spipe_staging_t *staging = &p->desc.staging;
    p->report.why_staging = "as asked";
    p->small = *staging == SPIPE_STAGING_DIRECT && little && !p->facts.host_page_tables ? 2 : 0;
    if (*staging != SPIPE_STAGING_AUTO) return;
    p->report.why_staging = "through pinned slots by threads: CUDA's own way blocks";
    if (p->facts.host_page_tables) {
        p->report.why_staging = "the GPU reads the host's pages at full speed";
        *staging = SPIPE_STAGING_DIRECT;
    } else if (p->one_shot && p->bytes < 12 * SPIPE_PRIV_MIB) {
        p->report.why_staging = "pinned in place: for so little, setting up to stage takes longer";
        p->small = 1;
        *staging = little ? SPIPE_STAGING_DIRECT : SPIPE_STAGING_REGISTER;
    }
}
/* Half fill, half drain; three quarters if arrays go one way only. More than 7 each, 6 where a way
   is light or up to 100 MiB, gain nothing; once, what is worth its start: from[k] MiB for k + 2.
   Kept, up to 12 MiB the caller copies, too, where it would wait: waking one more takes longer. */
SPIPE_API void spipe_priv_choose_threads(spipe_pipeline_t *p) {
    static const int from[] = {9, 20, 32, 150, 400, 400};
    const size_t cpus = p->host_work || !p->one_shot ? spipe_priv_num_cpus() : 1;
    const int    lone = !p->one_shot && p->num_segments == 1 && !p->has_source && !p->has_sink;
    const int    ways = (p->staged_in > 0) + (p->staged_out > 0);
    const int    light = ways == 2 && 2 * p->elem_both <= 3 * p->elem_moved;
    const size_t n = cpus < 4 ? 1 : ways == 1 ? cpus * 3 / 4 : cpus / 2;
    size_t       most = light || p->bytes <= 100 * SPIPE_PRIV_MIB ? 6 : 7;
    while (p->one_shot && most > 1 && from[most - 2] * SPIPE_PRIV_MIB > p->bytes) --most;
    if (lone && p->bytes < SPIPE_PRIV_LITTLE) most = n > 1 && p->bytes >= 393216.0 ? 3 : 0;
    if (p->desc.threads == SPIPE_AUTO) p->desc.threads = n > most ? most : n;
    if (!lone || !ways || !p->desc.threads || p->bytes >= 12 * SPIPE_PRIV_MIB) return;
    p->parts = p->bytes < SPIPE_PRIV_LITTLE ? 4 : p->bytes < 6 * SPIPE_PRIV_MIB ? 8 : 16;
}
/* Even, for two kernel streams. What 2, 4, 6, 7 threads a way do best with; once, less to pin. */
SPIPE_API void spipe_priv_choose_depth(spipe_pipeline_t *p) {
    const size_t t = p->desc.threads, kept = p->parts ? p->parts : t < 3 ? 10 : t == 7 ? 14 : 16;
    const size_t n = p->one_shot || !t ? (t == 6 ? 12 : t + t % 2 + 4) : kept;
    size_t depth = (p->has_source && p->desc.devices.claim ? 6 : 4) * (size_t)p->num_segments;
    if (p->staged_in + p->staged_out > 0 && depth < n) depth = n;
    p->desc.depth = depth > SPIPE_MAX_DEPTH ? SPIPE_MAX_DEPTH : depth;
}
SPIPE_API cudaError_t spipe_priv_plan(spipe_pipeline_t *p) {
    spipe_desc_t *d = &p->desc;
    int           order[SPIPE_MAX_STAGES], i;
    size_t        n;
    if (spipe_priv_is_mapped(p) && !p->facts.map_host_memory) return spipe_priv_refuse(
            &p->failure, cudaErrorNotSupported, "the MAPPED schedule needs a device that can map "
            "host memory; leave schedule to the library");
    spipe_priv_element_bytes(p);
    p->bytes = (double)d->count * (double)p->elem_moved;
    spipe_priv_choose_staging(p);
    SPIPE_TRY(spipe_priv_choose_schedule(p));
    (void)spipe_priv_sort_stages(d, order);
    p->leaves = (1u << d->num_stages) - 1;
    for (i = 0; i < d->num_stages; ++i) {
        p->deps[i] = spipe_priv_stage_deps(d, i);
        p->leaves &= ~p->deps[i];
    }
    spipe_priv_choose_lanes(p, order);
    spipe_priv_choose_steps(p, order);
    spipe_priv_choose_threads(p);
    if (d->schedule == SPIPE_SERIAL) d->depth = 1;
    p->batch = d->chunk == SPIPE_AUTO ? 1 : spipe_priv_choose_batch(p);
    if (d->depth == SPIPE_AUTO) spipe_priv_choose_depth(p);
    p->report.why_chunk = p->batch == 1 ? "as asked" : "as asked; several are copied at once";
    if (d->chunk == SPIPE_AUTO) d->chunk = spipe_priv_choose_chunk(p);
    p->cuts[0].schedule = d->schedule, p->cuts[0].chunk = d->chunk;
    p->why_planned[0] = p->report.why_chunk, p->why_planned[1] = p->report.why_schedule;
    if (p->cuts[1].schedule) spipe_priv_choose_others(p);
    p->load = d->chunk * p->batch;
    n = d->count > 0 ? (d->count - 1) / p->load + 1 : 1;
    /* no slot for a load that will not come: CUDA is slow to give a second two MiB */
    if (p->one_shot && !spipe_priv_endless(d) && d->depth > n) d->depth = n;
    p->lag = p->num_segments > 1 ? (d->depth - 1) / (size_t)(p->num_segments - 1) : 0;
    p->num_rows = d->depth << (d->depth % 2);
    spipe_priv_measure(p);
    return cudaSuccess;
}
/* ---- 9 execute: what a pipeline owns ------------------------------------------------------- */
/* Inside, loads are counted: a load is one chunk, or a batch of small ones that a slot carries. */
/* Which stream carries a load's copies in, copies out and lanes: all that schedules differ in. */
enum { SPIPE_PRIV_ROUTE_IN, SPIPE_PRIV_ROUTE_OUT, SPIPE_PRIV_ROUTE_LANE };
SPIPE_API int spipe_priv_by_slot(const spipe_pipeline_t *p) {
    return p->desc.schedule == SPIPE_DEPTH_FIRST || p->desc.schedule == SPIPE_BREADTH_FIRST;
}
SPIPE_API cudaStream_t spipe_priv_route(const spipe_pipeline_t *p, size_t row, int route) {
    const int lane = route < SPIPE_PRIV_ROUTE_LANE ? 0 : route - SPIPE_PRIV_ROUTE_LANE;
    const int slot = (int)(row % p->desc.depth);
    if (p->one_stream) return p->streams[0];
    if (spipe_priv_by_slot(p)) return p->streams[slot * p->num_lanes + lane];
    if (route == SPIPE_PRIV_ROUTE_OUT) return p->streams[route]; /* the ends, in order */
    if (route == SPIPE_PRIV_ROUTE_IN && !spipe_priv_all_in_place(p)) return p->streams[route];
    return p->streams[2 + 2 * lane + (int)(row & 1)];
}
/* A small run goes through the stream that this thread has anyway, which saves 10 us, where its
   stages are fixed: no other thread uses the handle, which would be another stream there. */
SPIPE_API int spipe_priv_borrows(const spipe_pipeline_t *p) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    int                          i, may = p->small && p->one_stream && !p->desc.priority;
    for (i = 0; i < p->desc.num_stages; ++i) may = may && p->desc.stages[i].fixed;
    return may && cudaStreamIsCapturing(cudaStreamPerThread, &status) == cudaSuccess &&
           status == cudaStreamCaptureStatusNone;
}
/* All of the pipeline's priority: copies do not care. */
SPIPE_API cudaError_t spipe_priv_create_streams(spipe_pipeline_t *p) {
    int total = p->num_lanes * (int)p->desc.depth;
    p->own = spipe_priv_borrows(p);
    p->streams[0] = cudaStreamPerThread;
    if (!spipe_priv_by_slot(p)) total = 2 + 2 * p->num_lanes;
    if (p->desc.schedule == SPIPE_SERIAL || (p->one_shot && p->one_stream)) total = 1;
    for (p->num_streams = p->own; p->num_streams < total; ++p->num_streams) {
        SPIPE_TRY(spipe_stream_create(&p->streams[p->num_streams], p->desc.priority));
    }
    return cudaSuccess;
}
SPIPE_API cudaError_t spipe_priv_new_event(spipe_pipeline_t *p, cudaEvent_t *event) {
    SPIPE_TRY(spipe_event_create(event));
    p->events[p->num_events++] = *event;
    return cudaSuccess;
}
SPIPE_API cudaError_t spipe_priv_create_events(spipe_pipeline_t *p) {
    const int few = p->one_shot && p->num_loads < SPIPE_PRIV_MARK && !p->desc.progress;
    const int lone = p->one_shot && p->one_stream && !p->host_work && !p->desc.devices.claim;
    size_t    k;
    int       s;
    if (!p->one_shot || p->has_resident) SPIPE_TRY(spipe_priv_new_event(p, &p->fork));
    if (!p->one_shot) SPIPE_TRY(spipe_priv_new_event(p, &p->end));
    for (k = 0; k < SPIPE_PRIV_WINDOW && !few; ++k) SPIPE_TRY(spipe_priv_new_event(p, &p->done[k]));
    for (k = 0; k < p->desc.depth && !lone; ++k) { /* a lone stream tells when all is done */
        spipe_priv_slot_t *slot = &p->slots[k];
        cudaEvent_t       *done = slot->stage_done;
        SPIPE_TRY(spipe_priv_new_event(p, &slot->out_done));
        SPIPE_TRY(spipe_priv_new_event(p, &slot->in_done));
        for (s = 0; s < p->desc.num_stages; ++s) SPIPE_TRY(spipe_priv_new_event(p, &done[s]));
    }
    return cudaSuccess;
}
/* A window of a load from an arena, its first own element aligned; base NULL only counts. */
SPIPE_API unsigned char *spipe_priv_take(unsigned char *base, size_t *used,
                                         const spipe_buffer_desc_t *b, size_t load) {
    const size_t before = b->halo_before * b->elem_bytes;
    const size_t at = (*used + before + 255) & ~(size_t)255;
    *used = at - before + spipe_priv_window_bytes(b, load);
    return base ? base + at : NULL;
}
/* Slots for the plan, and what crews and several devices need; the least run needs no memory. */
SPIPE_API cudaError_t spipe_priv_make_slots(spipe_pipeline_t *p) {
    const size_t depth = p->desc.depth, bytes = depth * sizeof *p->slots;
    const size_t more = SPIPE_PRIV_CLAIMS * sizeof depth + SPIPE_PRIV_NUM_CREWS *
                        (sizeof *p->rings + SPIPE_MAX_THREADS * sizeof *p->hands);
    const int    least = p->one_shot && depth == 1 && !p->host_work && !p->desc.devices.claim;
    p->slots = least ? &p->single : (spipe_priv_slot_t *)malloc(bytes + more);
    if (!p->slots) return cudaErrorMemoryAllocation;
    memset((void *)p->slots, 0, bytes);
    p->rings = (spipe_priv_task_t (*)[SPIPE_PRIV_RING])(void *)(p->slots + depth);
    p->claimed = (size_t *)(void *)(p->rings + SPIPE_PRIV_NUM_CREWS);
    p->hands = (spipe_priv_hand_t *)(void *)(p->claimed + SPIPE_PRIV_CLAIMS);
    return cudaSuccess;
}
/* Lays out device and pinned memory; called once to count and once to hand out. */
SPIPE_API void spipe_priv_layout(spipe_pipeline_t *p, size_t *device, size_t *pinned) {
    size_t k;
    int    i, s;
    *device = *pinned = 0;
    for (i = 0; i < p->desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->desc.buffers[i];
        if (b->kind != SPIPE_RESIDENT) continue;
        p->resident[i] = p->device_memory ? p->device_memory + *device : NULL;
        *device = (*device + b->elem_bytes + 255) & ~(size_t)255;
    }
    for (k = 0; k < p->desc.depth; ++k) {
        spipe_priv_slot_t *slot = &p->slots[k];
        for (i = 0; i < p->desc.num_buffers; ++i) {
            const spipe_buffer_desc_t *b = &p->desc.buffers[i];
            const int staged = p->path[i] == SPIPE_PRIV_STAGED, mapped = spipe_priv_is_mapped(p);
            slot->dev[i] = slot->pin_in[i] = slot->pin_out[i] = NULL;
            if (b->kind == SPIPE_RESIDENT) continue;
            if (!mapped || b->kind == SPIPE_TEMP) {
                slot->dev[i] = spipe_priv_take(p->device_memory, device, b, p->load);
            }
            if (staged && spipe_priv_goes_in(b)) {
                slot->pin_in[i] = spipe_priv_take(p->pinned_memory, pinned, b, p->load);
            }
            if (staged && spipe_priv_goes_out(b)) {
                slot->pin_out[i] = mapped && slot->pin_in[i] ? slot->pin_in[i]
                                 : spipe_priv_take(p->pinned_memory, pinned, b, p->load);
            }
            for (s = 0; s < p->desc.num_stages; ++s) { /* its own: two may run side by side */
                const spipe_stage_desc_t *st = &p->desc.stages[s];
                slot->mirror[s][i] = NULL;
                if (!st->host || !((st->reads | st->writes) & SPIPE_BIT(i))) continue;
                slot->mirror[s][i] = spipe_priv_take(p->pinned_memory, pinned, b, p->load);
            }
        }
    }
}
/* Where a load lies in the whole: loads follow each other, unless several devices share them. */
SPIPE_API size_t spipe_priv_piece(const spipe_pipeline_t *p, size_t load) {
    return p->desc.devices.claim ? p->claimed[load % SPIPE_PRIV_CLAIMS] : load;
}
/* Takes the next piece for a load whose slot is free, so that a slow device takes fewer. */
SPIPE_API void spipe_priv_claim(spipe_pipeline_t *p, size_t load) {
    const size_t depth = p->desc.depth;
    if (load >= depth && !p->needs_fill &&
        cudaEventSynchronize(p->slots[load % depth].out_done) != cudaSuccess) {
        (void)cudaGetLastError(); /* an error of the GPU: what comes next will meet it */
    }
    p->claimed[load % SPIPE_PRIV_CLAIMS] = p->desc.devices.claim(p, 0);
    p->num_claimed = load + 1;
}
/* ---- 9 execute: failures ------------------------------------------------------------------- */
/* Records the first failure of a run; every thread looks at p->failed and winds down. */
SPIPE_API cudaError_t spipe_priv_fail(spipe_pipeline_t *p, cudaError_t e, int stage, size_t load,
                                      const char *format, ...) {
    va_list args;
    spipe_priv_lock(p->sync);
    if (!p->failed) {
        p->failed = 1;
        spipe_priv_failure_clear(&p->failure);
        p->failure.error = e;
        p->failure.stage = stage;
        p->failure.chunk = load == SPIPE_AUTO ? load : spipe_priv_piece(p, load) * p->batch;
        va_start(args, format);
        vsnprintf(p->failure.message, sizeof p->failure.message, format, args);
        va_end(args);
    }
    if (load < p->failed_load) p->failed_load = load; /* a later failure at an earlier chunk */
    spipe_priv_wake(p->sync);
    spipe_priv_unlock(p->sync);
    return e;
}
SPIPE_API size_t spipe_priv_locked_get(spipe_pipeline_t *p, const size_t *of) {
    size_t value;
    spipe_priv_lock(p->sync);
    value = *of;
    spipe_priv_unlock(p->sync);
    return value;
}
/* Passes on the outcome of a step; what is NULL for a stage itself, whose name follows. */
SPIPE_API cudaError_t spipe_priv_did(spipe_pipeline_t *p, cudaError_t e, int stage, size_t load,
                                     const char *what) {
    if (e == cudaSuccess) return e;
    if (e == cudaPeekAtLastError()) (void)cudaGetLastError();
    return spipe_priv_fail(p, e, stage, load, "%s%s%s failed at chunk %zu: %s",
                           what ? what : "stage '", stage < 0 ? "" : p->desc.stages[stage].name,
                           stage < 0 ? "" : "'", spipe_priv_piece(p, load) * p->batch,
                           cudaGetErrorString(e));
}
/* ---- 9 execute: host work, one task a function; none of it knows which thread it is on ------ */
SPIPE_API void spipe_priv_locked_set(spipe_pipeline_t *p, size_t *flag, size_t value) {
    spipe_priv_lock(p->sync);
    *flag = value;
    spipe_priv_wake(p->sync);
    spipe_priv_unlock(p->sync);
}
SPIPE_API size_t spipe_priv_total(spipe_pipeline_t *p) {
    return p->endless ? spipe_priv_locked_get(p, &p->total) : p->total;
}
/* Elements of a load: all are full but the last, and that one is read after the total is known. */
SPIPE_API size_t spipe_priv_count_at(spipe_pipeline_t *p, size_t piece) {
    const size_t size = p->load;
    size_t       total;
    if (piece < p->full_loads) return size;
    total = spipe_priv_total(p);
    if (total == SPIPE_AUTO) return piece == SPIPE_AUTO ? 0 : size;
    if (total / size < piece || piece * size >= total) return 0;
    return total - piece * size < size ? total - piece * size : size;
}
SPIPE_API size_t spipe_priv_count_of(spipe_pipeline_t *p, size_t load) {
    return spipe_priv_count_at(p, spipe_priv_piece(p, load));
}
/* How many elements of a window lie before the first and after the last of the whole. */
SPIPE_API void spipe_priv_outside(const spipe_buffer_desc_t *b, size_t first, size_t count,
                                  size_t total, size_t *left, size_t *right) {
    const size_t end = first + count + b->halo_after;
    *left = first < b->halo_before ? b->halo_before - first : 0;
    *right = total != SPIPE_AUTO && end > total ? end - total : 0;
}
SPIPE_API void spipe_priv_repeat(unsigned char *dst, size_t times,
                                 const unsigned char *element, const spipe_buffer_desc_t *b) {
    for (; times > 0; --times, dst += b->elem_bytes) {
        if (b->edge == SPIPE_EDGE_ZERO) memset(dst, 0, b->elem_bytes);
        else memcpy(dst, element, b->elem_bytes);
    }
}
/* Writes what lies beyond the ends into a window in host memory; data is its own first element. */
SPIPE_API void spipe_priv_fill_edges(const spipe_buffer_desc_t *b, unsigned char *data,
                                     size_t first, size_t count, size_t total) {
    size_t left, right;
    spipe_priv_outside(b, first, count, total, &left, &right);
    spipe_priv_repeat(data - b->halo_before * b->elem_bytes, left, data, b);
    if (right > 0) {
        unsigned char *past = data + (total - first) * b->elem_bytes;
        spipe_priv_repeat(past, right, past - b->elem_bytes, b);
    }
}
SPIPE_API size_t spipe_priv_cache_bytes(void) {
    long n = 0;
#if defined(_SC_LEVEL3_CACHE_SIZE)
    n = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    return n > 0 ? (size_t)n : 0;
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
/* A ring that the cache holds is filled and read by the GPU there: half as long (tests/bench). */
SPIPE_API void spipe_priv_fill_array(const spipe_buffer_desc_t *b, unsigned char *data,
                                     size_t first, size_t count, size_t total, int cached) {
    const unsigned char *host = (const unsigned char *)b->host;
    size_t                   left, right, lo, n;
    spipe_priv_outside(b, first, count, total, &left, &right);
    lo = first - (b->halo_before - left);
    n = first + count + b->halo_after - right - lo;
    data -= (first - lo) * b->elem_bytes;
    if (cached) memcpy(data, host + lo * b->elem_bytes, n * b->elem_bytes);
    else spipe_priv_copy(data, host + lo * b->elem_bytes, n * b->elem_bytes);
    data += (first - lo) * b->elem_bytes;
    spipe_priv_fill_edges(b, data, first, count, total);
}
SPIPE_API cudaError_t spipe_priv_read(spipe_pipeline_t *p, int i, unsigned char *dst,
                                      size_t want, size_t load, size_t total) {
    const spipe_buffer_desc_t *b = &p->desc.buffers[i];
    if (total != SPIPE_AUTO && want > total - p->source_got[i]) want = total - p->source_got[i];
    while (want > 0 && !p->source_ended[i]) {
        size_t            n = 0;
        const cudaError_t e = b->source(dst, want, &n, b->user);
        if (e != cudaSuccess) return spipe_priv_fail(p, e, -1, load, "the source of buffer %d "
                                                     "failed at chunk %zu (element %zu): %s", i,
                                                     spipe_priv_piece(p, load), p->source_got[i],
                                                     cudaGetErrorString(e));
        if (n > want) return spipe_priv_fail(p, cudaErrorInvalidValue, -1, load, "the source of "
                                             "buffer %d said that it gave %zu elements where "
                                             "there was room for %zu", i, n, want);
        if (n == 0) p->source_ended[i] = 1;
        p->source_got[i] += n;
        dst += n * b->elem_bytes;
        want -= n;
    }
    if (want > 0 && !spipe_priv_endless(&p->desc)) {
        return spipe_priv_fail(p, cudaErrorInvalidValue, -1, load, "the source of buffer %d ended "
                               "after %zu of %zu elements; leave count SPIPE_AUTO to run until the "
                               "end", i, p->source_got[i], p->desc.count);
    }
    return cudaSuccess;
}
/* A source's window: what it shares with the window before it is taken from there. */
SPIPE_API cudaError_t spipe_priv_fill_source(spipe_pipeline_t *p, int i, size_t load, size_t end) {
    const spipe_buffer_desc_t *b = &p->desc.buffers[i];
    const size_t               size = p->load, depth = p->desc.depth;
    unsigned char         *data = p->slots[load % depth].pin_in[i];
    const size_t               shared = (b->halo_before + b->halo_after) * b->elem_bytes;
    unsigned char         *base = data - b->halo_before * b->elem_bytes, *before;
    if (load == 0 || p->desc.devices.claim) {
        p->source_got[i] = spipe_priv_piece(p, load) * size;
        p->source_ended[i] = 0;
        return spipe_priv_read(p, i, data, size + b->halo_after, load, end);
    }
    before = p->slots[(load - 1) % depth].pin_in[i];
    if (shared > 0) {
        memmove(base, before - b->halo_before * b->elem_bytes + size * b->elem_bytes, shared);
    }
    return spipe_priv_read(p, i, base + shared, size, load, end);
}
/* Reads all sources for a load, finds the end, and writes their edges; in turn. */
SPIPE_API cudaError_t spipe_priv_fill_sources(spipe_pipeline_t *p, size_t load) {
    const size_t first = spipe_priv_piece(p, load) * p->load;
    size_t       total = spipe_priv_locked_get(p, &p->total), count;
    int          i, ended = -1;
    if (spipe_priv_count_of(p, load) == 0) return cudaSuccess;
    for (i = 0; i < p->desc.num_buffers; ++i) {
        if (p->desc.buffers[i].kind != SPIPE_SOURCE) continue;
        SPIPE_TRY(spipe_priv_fill_source(p, i, load, total));
        if (p->source_ended[i]) ended = i;
    }
    if (total == SPIPE_AUTO && ended >= 0) total = p->source_got[ended];
    for (i = 0; i < p->desc.num_buffers && ended >= 0; ++i) {
        const size_t got = p->source_got[i]; /* less, where another's wider halo is read ahead */
        if (p->desc.buffers[i].kind != SPIPE_SOURCE || got == total) continue;
        if (got < total && !p->source_ended[i]) continue;
        return spipe_priv_fail(p, cudaErrorInvalidValue, -1, load, "the sources disagree: one "
                               "ended after %zu elements, buffer %d gave %zu", total, i, got);
    }
    if (ended >= 0) spipe_priv_locked_set(p, &p->total, total);
    count = spipe_priv_count_of(p, load);
    for (i = 0; i < p->desc.num_buffers && count > 0; ++i) {
        if (p->desc.buffers[i].kind != SPIPE_SOURCE) continue;
        spipe_priv_fill_edges(&p->desc.buffers[i], p->slots[load % p->desc.depth].pin_in[i],
                              first, count, total);
    }
    return cudaSuccess;
}
/* Waits until it is this load's turn: sources and sinks see chunks in order. */
SPIPE_API void spipe_priv_take_turn(spipe_pipeline_t *p, const size_t *turn, size_t load) {
    spipe_priv_lock(p->sync);
    while (*turn != load) spipe_priv_wait(p->sync);
    spipe_priv_unlock(p->sync);
}
/* Whether the run has failed at this load or one before it; those before may still be finished. */
SPIPE_API int spipe_priv_is_lost(spipe_pipeline_t *p, size_t load) {
    return spipe_priv_locked_get(p, &p->failed_load) <= load;
}
SPIPE_API int spipe_priv_is_idle(spipe_pipeline_t *p, size_t load) {
    return spipe_priv_is_lost(p, load) || spipe_priv_locked_get(p, &p->stop_asked);
}
SPIPE_API void spipe_priv_fill(spipe_pipeline_t *p, size_t load) {
    spipe_priv_slot_t *slot = &p->slots[load % p->desc.depth];
    const int          claim = p->desc.devices.claim != NULL;
    size_t             first, total, count;
    int                i, have = 1; /* 2: not read, 3: reading failed */
    if (p->has_source || claim) {
        spipe_priv_take_turn(p, &p->fill_turn, load);
        if (claim) spipe_priv_claim(p, load);
        if (p->has_source && spipe_priv_is_idle(p, load)) have = 2;
        else if (p->has_source && spipe_priv_fill_sources(p, load) != cudaSuccess) have = 3;
        if (claim) (void)p->desc.devices.claim(p, have);
        spipe_priv_locked_set(p, &p->fill_turn, load + 1);
    }
    first = spipe_priv_piece(p, load) * p->load;
    total = spipe_priv_locked_get(p, &p->total);
    count = spipe_priv_count_of(p, load);
    for (i = 0; i < p->desc.num_buffers && count > 0 && !spipe_priv_is_idle(p, load); ++i) {
        const spipe_buffer_desc_t *b = &p->desc.buffers[i];
        if (!slot->pin_in[i] || b->kind == SPIPE_SOURCE) continue;
        spipe_priv_fill_array(b, slot->pin_in[i], first, count, total, p->ring_cached);
    }
    spipe_priv_locked_set(p, &slot->filled, load + 1);
}
/* Hands a load's staged outputs to arrays and sinks; 1 when all of it arrived. */
SPIPE_API int spipe_priv_drain_buffers(spipe_pipeline_t *p, size_t load, int sinks) {
    const spipe_priv_slot_t *slot = &p->slots[load % p->desc.depth];
    const size_t             first = spipe_priv_piece(p, load) * p->load;
    const size_t             count = spipe_priv_count_of(p, load);
    int                      i;
    if (spipe_priv_is_lost(p, load) || spipe_priv_locked_get(p, &p->drain_failed)) return 0;
    for (i = 0; i < p->desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->desc.buffers[i];
        cudaError_t                e;
        if (!slot->pin_out[i] || sinks != (b->kind == SPIPE_SINK)) continue;
        if (!sinks) {
            spipe_priv_copy((unsigned char *)b->host + first * b->elem_bytes, slot->pin_out[i],
                            count * b->elem_bytes);
            continue;
        }
        e = b->sink(slot->pin_out[i], count, first, b->user);
        if (e == cudaSuccess) continue;
        (void)spipe_priv_fail(p, e, -1, load, "the sink of buffer %d failed at chunk %zu "
                              "(element %zu): %s", i, spipe_priv_piece(p, load), first,
                              cudaGetErrorString(e));
        return 0;
    }
    return 1;
}
SPIPE_API void spipe_priv_drain(spipe_pipeline_t *p, size_t load) {
    spipe_priv_slot_t *slot = &p->slots[load % p->desc.depth];
    int ok = spipe_priv_drain_buffers(p, load, 0);
    if (p->has_sink) spipe_priv_take_turn(p, &p->drain_turn, load);
    ok = ok && spipe_priv_drain_buffers(p, load, 1);
    spipe_priv_lock(p->sync);
    if (ok) slot->whole = load + 1;
    else p->drain_failed = 1;
    while (p->slots[p->completed % p->desc.depth].whole == p->completed + 1) ++p->completed;
    p->drain_turn = load + 1;
    slot->drained = load + 1;
    spipe_priv_wake(p->sync);
    spipe_priv_unlock(p->sync);
}
/* A load on its way: where it lies in the whole, and its slot. */
typedef struct spipe_priv_at {
    size_t             load, piece, first, count;
    spipe_priv_slot_t *slot;
} spipe_priv_at_t;
SPIPE_API size_t spipe_priv_locate(spipe_pipeline_t *p, size_t load, spipe_priv_at_t *at) {
    const size_t row = load % p->num_rows, depth = p->desc.depth;
    at->load = load;
    at->piece = spipe_priv_piece(p, load);
    at->first = at->piece * p->load;
    at->count = spipe_priv_count_at(p, at->piece);
    at->slot = &p->slots[row < depth ? row : row - depth];
    return row;
}
/* What a stage sees of a load, in a slot whose memory is known since it was laid out. */
SPIPE_API void spipe_priv_view(spipe_pipeline_t *p, const spipe_priv_at_t *at, spipe_chunk_t *c) {
    int i;
    c->index = at->piece * p->batch;
    c->first = at->first, c->count = at->count;
    c->total = p->desc.count;
    if (p->endless) c->total = spipe_priv_total(p) == SPIPE_AUTO ? 0 : spipe_priv_total(p);
    for (i = 0; i < p->desc.num_buffers && p->num_in_place > 0; ++i) {
        if (p->path[i] != SPIPE_PRIV_IN_PLACE) continue;
        c->data[i] = p->mapped[i] + c->first * p->desc.buffers[i].elem_bytes;
    }
}
SPIPE_API void spipe_priv_tell_watch(spipe_pipeline_t *p, int what, const void *about, size_t load,
                                     int after) {
    if (p->watch) p->watch->tell(p->desc.timeline, p, what, about, load, after);
}
SPIPE_API void spipe_priv_host_stage(spipe_pipeline_t *p, spipe_priv_task_t *t) {
    const size_t              load = t->load;
    const int                 stage = t->stage;
    const spipe_stage_desc_t *s = &p->desc.stages[stage];
    spipe_priv_slot_t        *slot = &p->slots[load % p->desc.depth];
    cudaError_t e = spipe_priv_did(p, cudaEventSynchronize(slot->stage_done[stage]), stage, load,
                                   "work before host stage '");
    if (p->watch) t->began = spipe_priv_seconds();
    if (e == cudaSuccess && !spipe_priv_is_lost(p, load)) {
        spipe_priv_at_t at;
        spipe_chunk_t   c;
        memset(&c, 0, sizeof c);
        spipe_priv_locate(p, load, &at);
        spipe_priv_view(p, &at, &c);
        c.slot = (int)(load % p->desc.depth);
        c.num_buffers = p->desc.num_buffers;
        memcpy((void *)c.data, (void *)slot->mirror[stage], sizeof c.data);
        e = s->fn(&c, s->user);
        if (e != cudaSuccess) (void)spipe_priv_fail(p, e, stage, load, "host stage '%s' failed at "
                                                    "chunk %zu: %s", s->name, at.piece,
                                                    cudaGetErrorString(e));
    }
    spipe_priv_locked_set(p, &slot->host_done[stage], load + 1);
}
/* Pinned slots are touched a huge page at a time, so that several threads can. */
SPIPE_API size_t spipe_priv_touch_bytes(const spipe_pipeline_t *p) {
    return ((size_t)2 << 20) * (1 + (p->report.pinned_bytes >> 30));
}
SPIPE_API void spipe_priv_touch_page(spipe_pipeline_t *p, size_t page) {
    const size_t bytes = spipe_priv_touch_bytes(p), at = page * bytes;
    const size_t left = p->report.pinned_bytes - at;
    memset(p->pinned_memory + at, 0, left < bytes ? left : bytes);
}
SPIPE_API void spipe_priv_do(spipe_pipeline_t *p, spipe_priv_task_t t) {
    if (p->watch) t.began = spipe_priv_seconds();
    spipe_priv_tell_watch(p, SPIPE_PRIV_WATCH_TASK, &t, t.load, 0);
    switch (t.what) {
    case SPIPE_PRIV_FILL: spipe_priv_fill(p, t.load); break;
    case SPIPE_PRIV_DRAIN: spipe_priv_drain(p, t.load); break;
    case SPIPE_PRIV_HOST: spipe_priv_host_stage(p, &t); break;
    default: spipe_priv_touch_page(p, t.load); break;
    }
    spipe_priv_tell_watch(p, SPIPE_PRIV_WATCH_TASK, &t, t.load, 1);
}
/* ---- 9 execute: crews, the threads that do host work --------------------------------------- */
/* A caller who helps does the first load to fill and the last to drain: nobody comes sooner. */
SPIPE_API void spipe_priv_post(spipe_pipeline_t *p, int what, int stage, size_t load) {
    const int         number = what == SPIPE_PRIV_TOUCH ? (int)(load % 2) : what;
    const int         own = (what == SPIPE_PRIV_FILL && load == 0) ||
                            (what == SPIPE_PRIV_DRAIN && load + 1 == p->num_loads);
    spipe_priv_crew_t *crew = &p->crews[number];
    spipe_priv_task_t *t;
    spipe_priv_lock(p->sync);
    if (what != SPIPE_PRIV_FILL || load < p->num_loads) {
        t = &p->rings[number][(crew->head + crew->num_tasks++) % SPIPE_PRIV_RING];
        t->what = what, t->stage = stage, t->load = load;
        if (!own || p->parts == 0) spipe_priv_rouse(&crew->resting);
    }
    spipe_priv_unlock(p->sync);
}
/* Does the oldest task of a crew; called and returns with the lock held. */
SPIPE_API void spipe_priv_do_next(spipe_pipeline_t *p, spipe_priv_crew_t *crew) {
    const spipe_priv_task_t t = p->rings[crew - p->crews][crew->head];
    crew->head = (crew->head + 1) % SPIPE_PRIV_RING;
    --crew->num_tasks;
    ++crew->num_busy;
    spipe_priv_unlock(p->sync);
    spipe_priv_do(p, t);
    spipe_priv_lock(p->sync);
    --crew->num_busy;
}
SPIPE_API void *spipe_priv_crew_main(void *arg) {
    spipe_priv_crew_t *crew = (spipe_priv_crew_t *)arg;
    spipe_pipeline_t  *p = crew->pipeline;
    spipe_priv_hand_t *s;
    spipe_priv_stay_on_node(p->facts.numa_node);
    (void)cudaSetDevice(p->device);
    spipe_priv_lock(p->sync);
    s = &p->hands[(size_t)(crew - p->crews) * SPIPE_MAX_THREADS + crew->num_begun++];
    SPIPE_PRIV_PTHREAD(pthread_cond_init(&s->work, NULL));
    while (!p->quit) {
        if (crew->num_tasks > 0) spipe_priv_do_next(p, crew);
        else spipe_priv_rest(p->sync, &crew->resting, s);
    }
    spipe_priv_unlock(p->sync);
    SPIPE_PRIV_PTHREAD(pthread_cond_destroy(&s->work));
    return NULL;
}
/* Filling is slower: where most goes in, a third of those that would drain fill instead. */
SPIPE_API void spipe_priv_crew_sizes(const spipe_pipeline_t *p, size_t sizes[]) {
    const size_t n = p->desc.threads, one = n > 0;
    const size_t third = p->staged_out > 0 && p->staged_in / 2 >= p->staged_out ? n / 3 : 0;
    sizes[SPIPE_PRIV_FILL] = p->staged_in > 0 ? n + third : p->needs_fill ? one : 0;
    sizes[SPIPE_PRIV_DRAIN] = p->staged_out > 0 ? n - third : p->needs_drain ? one : 0;
    sizes[SPIPE_PRIV_HOST] = p->num_segments > 1 ? one : 0;
}
/* Starts threads where there is host work and none yet; fewer, down to none, will do. */
SPIPE_API void spipe_priv_crews_start(spipe_pipeline_t *p) {
    size_t wanted[SPIPE_PRIV_NUM_CREWS], k;
    int    i;
    spipe_priv_crew_sizes(p, wanted);
    if (!p->had_threads && p->sync) p->sync->lone = 0; /* before there is a second thread */
    if (wanted[0] + wanted[1] + wanted[2] > 0 && !p->had_threads) {
        p->had_threads = 1;
        p->facts.numa_node = spipe_priv_numa_node(p->device);
        p->all_help = wanted[0] + wanted[1] >= spipe_priv_num_cpus();
    }
    for (i = 0; i < SPIPE_PRIV_NUM_CREWS; ++i) {
        spipe_priv_crew_t *crew = &p->crews[i];
        if (crew->num_threads == 0) crew->pipeline = p;
        for (k = crew->num_threads; k < wanted[i] && k < p->desc.depth; ++k) {
            void *thread = spipe_priv_thread_start(spipe_priv_crew_main, crew);
            if (!thread) break;
            spipe_priv_lock(p->sync);
            crew->threads[crew->num_threads++] = thread;
            spipe_priv_unlock(p->sync);
        }
    }
}
SPIPE_API void spipe_priv_crews_stop(spipe_pipeline_t *p) {
    size_t k;
    int    i;
    for (i = 0; i < SPIPE_PRIV_NUM_CREWS && p->sync; ++i) {
        spipe_priv_lock(p->sync);
        p->quit = 1;
        while (p->crews[i].resting) spipe_priv_rouse(&p->crews[i].resting);
        spipe_priv_unlock(p->sync);
        for (k = p->crews[i].num_threads; k > 0;) spipe_priv_thread_join(p->crews[i].threads[--k]);
        p->crews[i].num_threads = 0;
    }
}
/* A crew that whoever waits should help: no threads, no processor left, or little to do, but then
   to drain only when CUDA need not be asked about more. Host stages take one. */
SPIPE_API spipe_priv_crew_t *spipe_priv_crew_in_need(spipe_pipeline_t *p) {
    int i;
    for (i = 0; i < SPIPE_PRIV_NUM_CREWS; ++i) {
        const int all_asked = i == SPIPE_PRIV_FILL || p->polled_out >= p->num_loads;
        const int help = p->parts > 0 ? all_asked : p->all_help && i != SPIPE_PRIV_HOST;
        if ((help || !p->crews[i].num_threads) && p->crews[i].num_tasks > 0) return &p->crews[i];
    }
    return NULL;
}
/* Whether what goes before an event of a load has ended; -1: with an error, and so has the run. */
SPIPE_API int spipe_priv_poll_event(spipe_pipeline_t *p, cudaEvent_t event, size_t load) {
    const cudaError_t e = cudaEventQuery(event);
    if (spipe_priv_reached(e) || e == cudaErrorNotReady) return e == cudaSuccess;
    (void)spipe_priv_did(p, e, -1, load, "a stage or copy (sync_each tells which)");
    return -1;
}
/* Looks whether the oldest copies under way have ended, and posts what may follow: filling the slot
   again (once whole, where stages or another GPU may read it), draining it. Workers ask no CUDA. */
SPIPE_API void spipe_priv_poll(spipe_pipeline_t *p) {
    const int keeps = spipe_priv_is_mapped(p) || (p->has_source && p->desc.devices.claim);
    size_t   *in = &p->polled_in, *out = &p->polled_out;
    while (p->needs_drain && *out < p->issued_out) {
        const int ended = spipe_priv_poll_event(p, p->slots[*out % p->desc.depth].out_done, *out);
        if (ended < 0) p->issued_out = *out; /* what is there now is not worth draining */
        if (ended <= 0) break;
        spipe_priv_post(p, SPIPE_PRIV_DRAIN, -1, (*out)++);
    }
    while (p->needs_fill && *in < (keeps ? p->issued_out : p->issued_in)) {
        const spipe_priv_slot_t *slot = &p->slots[*in % p->desc.depth];
        if (keeps && p->needs_drain && spipe_priv_locked_get(p, &slot->whole) <= *in) break;
        if (spipe_priv_poll_event(p, keeps ? slot->out_done : slot->in_done, *in) <= 0) break;
        spipe_priv_post(p, SPIPE_PRIV_FILL, -1, p->desc.depth + (*in)++);
    }
}
/* Waits until *flag is at least value; the run's error when this load is lost. */
SPIPE_API cudaError_t spipe_priv_await(spipe_pipeline_t *p, const size_t *flag, size_t value,
                                       size_t load) {
    while (!spipe_priv_is_lost(p, load) && spipe_priv_locked_get(p, flag) < value) {
        spipe_priv_crew_t *crew;
        spipe_priv_lock(p->sync);
        crew = spipe_priv_crew_in_need(p);
        if (crew) spipe_priv_do_next(p, crew);
        spipe_priv_unlock(p->sync);
        if (crew) continue;
        spipe_priv_poll(p);
        spipe_priv_yield(p->sync);
    }
    return spipe_priv_is_lost(p, load) ? p->failure.error : cudaSuccess;
}
SPIPE_API void spipe_priv_crews_finish(spipe_pipeline_t *p) {
    int i, busy = 1;
    while (busy) {
        spipe_priv_crew_t *crew;
        spipe_priv_poll(p);
        busy = p->needs_drain && p->polled_out < p->issued_out;
        spipe_priv_lock(p->sync);
        crew = spipe_priv_crew_in_need(p);
        for (i = 0; i < SPIPE_PRIV_NUM_CREWS; ++i) {
            busy |= p->crews[i].num_tasks > 0 || p->crews[i].num_busy > 0;
        }
        if (crew) spipe_priv_do_next(p, crew);
        spipe_priv_unlock(p->sync);
        if (busy) spipe_priv_yield(p->sync);
    }
}
/* ---- 9 execute: what is issued for a load -------------------------------------------------- */
/* A slot's operations are written down once; a run issues them for every load. */
enum {
    SPIPE_PRIV_OP_NONE, SPIPE_PRIV_OP_COPY, SPIPE_PRIV_OP_CALL, SPIPE_PRIV_OP_BATCH,
    SPIPE_PRIV_OP_COPIES, SPIPE_PRIV_OP_FILLED, SPIPE_PRIV_OP_DRAINED, SPIPE_PRIV_OP_HALO,
    SPIPE_PRIV_OP_HOST_BEGIN, SPIPE_PRIV_OP_HOST_END, SPIPE_PRIV_OP_IN_END, SPIPE_PRIV_OP_SYNC,
    SPIPE_PRIV_OP_WATCHED = 32 /* or-ed where somebody may watch, so that others need not ask */
};
/* Where operations are written to; without room they are only counted. */
typedef struct spipe_priv_writer {
    spipe_pipeline_t *p;
    size_t            k, num_ops, room; /* k: the row, which is a slot for one of two streams */
    spipe_priv_slot_t *slot;
    spipe_priv_op_t   *ops, *last, spare; /* last: of this step, or NULL */
    int               step;
} spipe_priv_writer_t;
/* An action; it takes over a wait that stands alone before it in its stream. */
SPIPE_API spipe_priv_op_t *spipe_priv_write(spipe_priv_writer_t *w, int what, int stage,
                                            cudaStream_t stream) {
    spipe_priv_op_t *op = w->last;
    if (!op || op->what != SPIPE_PRIV_OP_NONE || op->stream != stream || op->done ||
        what == SPIPE_PRIV_OP_NONE) {
        op = w->num_ops < w->room ? &w->ops[w->num_ops] : &w->spare;
        memset(op, 0, sizeof *op);
        ++w->num_ops;
    }
    op->what = what && w->p->desc.timeline ? what | SPIPE_PRIV_OP_WATCHED : what;
    op->step = w->step;
    op->stage = stage;
    op->stream = stream;
    w->last = op;
    return op;
}
/* A stream waits for an event of another; in one stream order is there already. */
SPIPE_API void spipe_priv_write_wait(spipe_priv_writer_t *w, int stage, cudaStream_t stream,
                                     cudaStream_t other, cudaEvent_t event, size_t since) {
    spipe_priv_op_t *op;
    if (stream == other) return;
    op = spipe_priv_write(w, SPIPE_PRIV_OP_NONE, stage, stream);
    op->wait = event;
    op->since = since;
}
SPIPE_API void spipe_priv_write_record(spipe_priv_writer_t *w, int stage, cudaStream_t stream,
                                       cudaEvent_t event) {
    if (!event) return;
    if (!w->last || w->last->stream != stream || w->last->done) {
        (void)spipe_priv_write(w, SPIPE_PRIV_OP_NONE, stage, stream);
    }
    w->last->done = event;
}
/* A copy between a slot's device memory and a pinned twin of it, or else the user's own array. */
SPIPE_API void spipe_priv_write_copy(spipe_priv_writer_t *w, int stage, int i, unsigned char *pin,
                                     int out, cudaStream_t stream) {
    const spipe_pipeline_t    *p = w->p;
    const spipe_buffer_desc_t *b = &p->desc.buffers[i];
    spipe_priv_op_t           *op = spipe_priv_write(w, SPIPE_PRIV_OP_COPY, stage, stream);
    const int    in_place = p->path[i] == SPIPE_PRIV_IN_PLACE, window = pin && (!out || stage >= 0);
    const size_t eb = b->elem_bytes, before = window ? b->halo_before * eb : 0;
    unsigned char *dev = in_place ? p->mapped[i] : (unsigned char *)w->slot->view.data[i];
    unsigned char *host = pin ? pin : (unsigned char *)b->host;
    op->out = out;
    op->elem_bytes = eb;
    op->more = window ? (b->halo_before + b->halo_after) * eb : 0;
    op->to = (out ? host : dev) - before;
    op->from = (out ? dev : host) - before;
    *(out ? &op->to_elem : &op->from_elem) = pin ? 0 : eb;
    *(out ? &op->from_elem : &op->to_elem) = in_place ? eb : 0;
}
/* Whether a buffer is copied this way: 0 no, 1 in one piece, 2 with the edges of a halo. */
SPIPE_API int spipe_priv_copied(const spipe_priv_writer_t *w, int i, int out) {
    const spipe_buffer_desc_t *b = &w->p->desc.buffers[i];
    if (!w->slot->dev[i] || !(out ? spipe_priv_goes_out(b) : spipe_priv_goes_in(b))) return 0;
    return !out && !w->slot->pin_in[i] && (b->halo_before || b->halo_after) ? 2 : 1;
}
/* All copies of one direction. Several in one call lose less time between them: 1.5 x as fast for
   two of 64 KiB, 1.1 x for 1 MiB on an H200 (tests/bench). */
SPIPE_API void spipe_priv_write_copies(spipe_priv_writer_t *w, int out, cudaStream_t stream) {
    int                      i, num = 0;
    for (i = 0; i < w->p->desc.num_buffers; ++i) {
        const int how = spipe_priv_copied(w, i, out);
        if (how == 2) spipe_priv_write(w, SPIPE_PRIV_OP_HALO, i, stream);
        num += how == 1;
    }
    if (num > 1) spipe_priv_write(w, SPIPE_PRIV_OP_COPIES, -1, stream)->num = num;
    for (i = 0; i < w->p->desc.num_buffers; ++i) {
        if (spipe_priv_copied(w, i, out) != 1) continue;
        spipe_priv_write_copy(w, -1, i, (out ? w->slot->pin_out : w->slot->pin_in)[i], out, stream);
    }
}
SPIPE_API void spipe_priv_write_in(spipe_priv_writer_t *w) {
    spipe_pipeline_t        *p = w->p;
    const cudaStream_t       in = spipe_priv_route(p, w->k, SPIPE_PRIV_ROUTE_IN);
    const cudaStream_t       out = spipe_priv_route(p, w->k, SPIPE_PRIV_ROUTE_OUT);
    if (p->needs_fill) spipe_priv_write(w, SPIPE_PRIV_OP_FILLED, -1, in);
    spipe_priv_write_wait(w, -1, in, out, w->slot->out_done, p->desc.depth);
    if (p->needs_drain && spipe_priv_is_mapped(p)) {
        spipe_priv_write(w, SPIPE_PRIV_OP_DRAINED, -1, in);
    }
    spipe_priv_write_copies(w, 0, in);
    if (!p->one_stream || p->needs_fill) spipe_priv_write_record(w, -1, in, w->slot->in_done);
    if (p->needs_fill) spipe_priv_write(w, SPIPE_PRIV_OP_IN_END, -1, in);
}
/* A stage's stream waits for the stages before it, or the copies in; ordered, a load, too. */
SPIPE_API void spipe_priv_write_waits(spipe_priv_writer_t *w, int s, cudaStream_t stream) {
    spipe_pipeline_t        *p = w->p;
    const size_t             before = (w->k + p->desc.depth - 1) % p->desc.depth;
    int                      i;
    if (p->deps[s] == 0) {
        spipe_priv_write_wait(w, s, stream, spipe_priv_route(p, w->k, SPIPE_PRIV_ROUTE_IN),
                              w->slot->in_done, 0);
    }
    for (i = 0; i < p->desc.num_stages; ++i) {
        const cudaStream_t of = spipe_priv_route(p, w->k, SPIPE_PRIV_ROUTE_LANE + p->lane[i]);
        if (!(p->deps[s] & SPIPE_BIT(i))) continue;
        spipe_priv_write_wait(w, s, stream, of, w->slot->stage_done[i], 0);
    }
    if (p->desc.stages[s].ordered) {
        spipe_priv_write_wait(w, s, stream, NULL, p->slots[before].stage_done[s], 1);
    }
}
SPIPE_API void spipe_priv_write_mirror(spipe_priv_writer_t *w, int s, unsigned mask, int out,
                                       cudaStream_t stream) {
    int i;
    for (i = 0; mask; ++i, mask >>= 1) {
        if (mask & 1) spipe_priv_write_copy(w, s, i, w->slot->mirror[s][i], out, stream);
    }
}
SPIPE_API void spipe_priv_write_stage(spipe_priv_writer_t *w, int s) {
    spipe_pipeline_t         *p = w->p;
    const spipe_stage_desc_t *st = &p->desc.stages[s];
    const cudaEvent_t         done = w->slot->stage_done[s];
    const cudaStream_t stream = spipe_priv_route(p, w->k, SPIPE_PRIV_ROUTE_LANE + p->lane[s]);
    if (w->step != SPIPE_PRIV_END) spipe_priv_write_waits(w, s, stream);
    if (w->step == SPIPE_PRIV_BEGIN) {
        spipe_priv_write_mirror(w, s, st->reads, 1, stream);
        spipe_priv_write(w, SPIPE_PRIV_OP_HOST_BEGIN, s, stream);
        return;
    }
    if (w->step == SPIPE_PRIV_END) {
        spipe_priv_write(w, SPIPE_PRIV_OP_HOST_END, s, stream);
        spipe_priv_write_mirror(w, s, st->writes, 0, stream);
    } else if (p->batch == 1) {
        spipe_priv_write(w, SPIPE_PRIV_OP_CALL, s, stream);
    } else if (s == p->steps[1].stage) {
        spipe_priv_write(w, SPIPE_PRIV_OP_BATCH, s, stream);
    }
    if (!p->one_stream || st->host) spipe_priv_write_record(w, s, stream, done);
}
SPIPE_API void spipe_priv_write_out(spipe_priv_writer_t *w) {
    spipe_pipeline_t        *p = w->p;
    const cudaStream_t       out = spipe_priv_route(p, w->k, SPIPE_PRIV_ROUTE_OUT);
    int                      i;
    if (p->needs_drain && !spipe_priv_is_mapped(p)) {
        spipe_priv_write(w, SPIPE_PRIV_OP_DRAINED, -1, out);
    }
    for (i = 0; i < p->desc.num_stages; ++i) {
        const cudaStream_t of = spipe_priv_route(p, w->k, SPIPE_PRIV_ROUTE_LANE + p->lane[i]);
        if (!(p->leaves & SPIPE_BIT(i))) continue;
        spipe_priv_write_wait(w, -1, out, of, w->slot->stage_done[i], 0);
    }
    spipe_priv_write_copies(w, 1, out);
    spipe_priv_write_record(w, -1, out, w->slot->out_done);
}
SPIPE_API void spipe_priv_write_slot(spipe_priv_writer_t *w) {
    spipe_pipeline_t *p = w->p;
    const size_t      before = w->num_ops;
    int               i;
    for (i = 0; i < p->num_steps; ++i) {
        const int s = p->steps[i].stage;
        const int route = s >= 0 ? SPIPE_PRIV_ROUTE_LANE + p->lane[s] : p->steps[i].what;
        p->step_start[i] = w->num_ops - before;
        w->last = NULL;
        w->step = p->steps[i].what;
        if (w->step == SPIPE_PRIV_IN) spipe_priv_write_in(w);
        else if (w->step == SPIPE_PRIV_OUT) spipe_priv_write_out(w);
        else spipe_priv_write_stage(w, s);
        if (!p->desc.sync_each) continue;
        spipe_priv_write(w, SPIPE_PRIV_OP_SYNC, s, spipe_priv_route(p, w->k, route));
    }
    p->num_ops = p->step_start[i] = w->num_ops - before;
}
/* All slots have the same number of operations. Returns how many there are in all. */
SPIPE_API size_t spipe_priv_write_ops(spipe_pipeline_t *p) {
    spipe_priv_writer_t w;
    memset(&w, 0, sizeof w);
    w.p = p;
    w.ops = p->ops;
    w.room = p->room_ops;
    for (w.k = 0; w.k < p->num_rows; ++w.k) {
        w.slot = &p->slots[w.k % p->desc.depth];
        spipe_priv_write_slot(&w);
    }
    p->written_for = p->one_stream + 2 * (p->desc.timeline != NULL);
    return w.num_ops;
}
/* Room for the operations of the most streams there can be, so that a run need not ask for more. */
SPIPE_API cudaError_t spipe_priv_reserve_ops(spipe_pipeline_t *p) {
    const int one_stream = p->one_stream;
    size_t    n;
    if (!p->one_shot) p->one_stream = p->desc.schedule == SPIPE_SERIAL;
    n = spipe_priv_write_ops(p);
    if (n > p->room_ops) {
        spipe_priv_op_t *more = (spipe_priv_op_t *)realloc((void *)p->ops, n * sizeof *more);
        if (!more) return cudaErrorMemoryAllocation;
        p->ops = more;
        p->room_ops = n;
    }
    p->one_stream = one_stream;
    (void)spipe_priv_write_ops(p);
    return cudaSuccess;
}
/* ---- 9 execute: memory --------------------------------------------------------------------- */
/* One thread takes ten times as long to touch a ring as the crews do. */
SPIPE_API void spipe_priv_touch(spipe_pipeline_t *p) {
    const size_t page = spipe_priv_touch_bytes(p);
    size_t       k;
    p->issued_in = p->issued_out = p->polled_in = p->polled_out = 0;
    spipe_priv_crews_start(p);
    for (k = 0; k * page < p->report.pinned_bytes; ++k) spipe_priv_post(p, SPIPE_PRIV_TOUCH, -1, k);
    spipe_priv_crews_finish(p);
}
/* Pinned memory for the slots. Memory that was touched before is pinned in place about ten times
   faster than CUDA allocates pinned memory; where the system refuses, CUDA allocates it. */
SPIPE_API cudaError_t spipe_priv_pin_slots(spipe_pipeline_t *p, size_t bytes) {
    const size_t page = (size_t)2 << 20; /* a huge one: 512 times fewer to touch and to pin */
    p->pinned_base = bytes > 0 ? (unsigned char *)malloc(bytes + page) : NULL;
    if (p->pinned_base) {
        p->pinned_memory = p->pinned_base + (page - ((uintptr_t)p->pinned_base & (page - 1)));
#if defined(MADV_HUGEPAGE)
        (void)madvise(p->pinned_memory, bytes, MADV_HUGEPAGE);
#endif
        spipe_priv_touch(p);
        if (spipe_pin(p->pinned_memory, bytes) == cudaSuccess) return cudaSuccess;
        (void)cudaGetLastError();
        free(p->pinned_base);
        p->pinned_base = NULL;
    }
    return spipe_pinned_alloc((void **)&p->pinned_memory, bytes);
}
SPIPE_API cudaError_t spipe_priv_free_memory(spipe_pipeline_t *p) {
    cudaError_t e = cudaSuccess;
    if (p->device_memory) spipe_priv_keep(&e, cudaFree(p->device_memory));
    if (p->pinned_base) spipe_priv_keep(&e, spipe_unpin(p->pinned_memory));
    else spipe_priv_keep(&e, spipe_pinned_free(p->pinned_memory));
    free(p->pinned_base);
    p->device_memory = p->pinned_memory = p->pinned_base = NULL;
    p->report.device_bytes = p->report.pinned_bytes = 0;
    return e;
}
SPIPE_API cudaError_t spipe_priv_no_room(spipe_pipeline_t *p, cudaError_t e, size_t bytes,
                                         const char *of) {
    (void)cudaGetLastError();
    p->report.pinned_bytes = 0;
    return spipe_priv_refuse(&p->failure, e, "no room for %zu bytes of %s memory (%zu slots of %zu "
                             "elements); lower chunk or depth", bytes, of, p->desc.depth, p->load);
}
SPIPE_API void spipe_priv_prepare(spipe_pipeline_t *p) {
    size_t k;
    int    i;
    p->num_in_place = 0;
    for (i = 0; i < p->desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->desc.buffers[i];
        p->num_in_place += p->path[i] == SPIPE_PRIV_IN_PLACE;
        for (k = 0; k < p->desc.depth; ++k) {
            const spipe_priv_slot_t *slot = &p->slots[k];
            const unsigned char *pin = slot->pin_in[i] ? slot->pin_in[i] : slot->pin_out[i];
            unsigned char       *at = slot->dev[i];
            if (!at && pin) at = p->pinned_alias + (pin - p->pinned_memory);
            if (b->kind == SPIPE_RESIDENT) at = (unsigned char *)p->resident[i];
            p->slots[k].view.data[i] = at;
            p->slots[k].view.slot = (int)k, p->slots[k].view.num_buffers = p->desc.num_buffers;
        }
    }
}
SPIPE_API cudaError_t spipe_priv_take_memory(spipe_pipeline_t *p) {
    size_t      device, pinned;
    cudaError_t e = cudaSuccess;
    spipe_priv_layout(p, &device, &pinned);
    if (device > p->report.device_bytes || pinned > p->report.pinned_bytes) {
        SPIPE_TRY(spipe_priv_free_memory(p));
        if (device > 0) e = cudaMalloc((void **)&p->device_memory, device);
        if (e != cudaSuccess) return spipe_priv_no_room(p, e, device, "device");
        p->report.device_bytes = device;
        p->report.pinned_bytes = pinned;
        p->ring_cached = pinned > 0 && pinned <= spipe_priv_cache_bytes() / 2;
        e = spipe_priv_pin_slots(p, pinned);
        if (e != cudaSuccess) return spipe_priv_no_room(p, e, pinned, "pinned host");
    }
    p->pinned_alias = p->pinned_memory;
    if (p->pinned_memory && spipe_priv_is_mapped(p)) {
        SPIPE_TRY(cudaHostGetDevicePointer((void **)&p->pinned_alias, p->pinned_memory, 0));
    }
    spipe_priv_layout(p, &device, &pinned);
    spipe_priv_prepare(p);
    return spipe_priv_reserve_ops(p);
}
/* ---- 9 execute: issuing a load, step by step ---------------------------------------------- */
SPIPE_API cudaError_t spipe_priv_copy_edge(const spipe_buffer_desc_t *b, unsigned char *dev,
                                           size_t times, const unsigned char *element,
                                           cudaStream_t stream) {
    if (times == 0) return cudaSuccess;
    if (b->edge == SPIPE_EDGE_ZERO) return cudaMemsetAsync(dev, 0, times * b->elem_bytes, stream);
    for (; times > 0; --times, dev += b->elem_bytes) {
        SPIPE_TRY(cudaMemcpyAsync(dev, element, b->elem_bytes, cudaMemcpyDefault, stream));
    }
    return cudaSuccess;
}
SPIPE_API cudaError_t spipe_priv_copy_in_halo(spipe_pipeline_t *p, const spipe_priv_at_t *at, int i,
                                              cudaStream_t stream) {
    const spipe_buffer_desc_t *b = &p->desc.buffers[i];
    const size_t               eb = b->elem_bytes;
    const unsigned char       *host = (const unsigned char *)b->host;
    unsigned char             *dev = at->slot->dev[i] - b->halo_before * eb;
    size_t                     left, right, lo, n;
    spipe_priv_outside(b, at->first, at->count, p->total, &left, &right);
    lo = at->first - (b->halo_before - left);
    n = at->first + at->count + b->halo_after - right - lo;
    p->moved[0] += n * eb;
    SPIPE_TRY(spipe_priv_copy_edge(b, dev, left, host, stream));
    SPIPE_TRY(cudaMemcpyAsync(dev + left * eb, host + lo * eb, n * eb, cudaMemcpyDefault, stream));
    return spipe_priv_copy_edge(b, dev + (left + n) * eb, right, host + (p->total - 1) * eb,
                                stream);
}
SPIPE_API cudaError_t spipe_priv_call_stage(spipe_pipeline_t *p, size_t load, int s,
                                            const spipe_chunk_t *c) {
    const spipe_stage_desc_t *stage = &p->desc.stages[s];
    cudaError_t               e = stage->fn(c, stage->user);
    const cudaError_t left = cudaPeekAtLastError(); /* of a launch that the stage did not look at */
    if (e == cudaSuccess && left != p->stale_error) e = left;
    if (e == cudaSuccess) return e;
    if (left != p->stale_error) (void)cudaGetLastError();
    (void)spipe_priv_fail(p, e, s, load, "stage '%s' failed at chunk %zu: %s", stage->name,
                          c->index, cudaGetErrorString(e));
    if (p->batch > 1) p->failure.chunk = c->index; /* then there are no other threads */
    return e;
}
SPIPE_API cudaError_t spipe_priv_call(spipe_pipeline_t *p, const spipe_priv_op_t *op,
                                      const spipe_priv_at_t *at) {
    spipe_priv_view(p, at, &at->slot->view);
    at->slot->view.stream = op->stream;
    return spipe_priv_call_stage(p, at->load, op->stage, &at->slot->view);
}
/* All stages for one chunk of a batch after the other: so a chunk's stages may hand each other what
   belongs to its slot. There is one lane, so all of it is in one stream. */
SPIPE_API cudaError_t spipe_priv_issue_batch(spipe_pipeline_t *p, const spipe_priv_op_t *op,
                                             const spipe_priv_at_t *at) {
    spipe_chunk_t c = at->slot->view;
    size_t        left = at->count;
    int           i;
    spipe_priv_view(p, at, &c);
    c.stream = op->stream;
    for (; left > 0; left -= c.count, ++c.index, c.first += c.count) {
        c.count = left < p->desc.chunk ? left : p->desc.chunk;
        for (i = 1; i + 1 < p->num_steps; ++i) {
            SPIPE_TRY(spipe_priv_call_stage(p, at->load, p->steps[i].stage, &c));
        }
        for (i = 0; i < p->desc.num_buffers; ++i) {
            const spipe_buffer_desc_t *b = &p->desc.buffers[i];
            if (b->kind == SPIPE_RESIDENT) continue;
            c.data[i] = (unsigned char *)c.data[i] + c.count * b->elem_bytes;
        }
    }
    return cudaSuccess;
}
/* Where nothing has to be drained: waits for an event and counts the chunks up to it as whole. */
SPIPE_API cudaError_t spipe_priv_complete(spipe_pipeline_t *p, cudaEvent_t event, size_t chunks) {
    const cudaError_t e = event           ? cudaEventSynchronize(event)
                          : p->out_blocks ? cudaSuccess : cudaStreamSynchronize(p->streams[0]);
    if (e == cudaSuccess && p->completed < chunks) p->completed = chunks;
    if (e == cudaSuccess) return e;
    (void)cudaGetLastError();
    return spipe_priv_fail(p, e, -1, p->completed, "the GPU reported an error in one of the chunks "
                           "%zu to %zu: %s; set sync_each to learn which stage",
                           spipe_priv_piece(p, p->completed) * p->batch, p->issued_out == 0 ? 0
                           : (spipe_priv_piece(p, p->issued_out - 1) + 1) * p->batch - 1,
                           cudaGetErrorString(e));
}
SPIPE_API size_t spipe_priv_chunks(const spipe_pipeline_t *p, size_t loads) {
    const size_t all = p->total / p->desc.chunk + (p->total % p->desc.chunk != 0);
    return p->batch > 1 && loads * p->batch > all ? all : loads * p->batch;
}
SPIPE_API cudaError_t spipe_priv_complete_mark(spipe_pipeline_t *p) {
    const size_t every = p->desc.progress ? 1 : SPIPE_PRIV_MARK, mark = p->completed / every;
    return spipe_priv_complete(p, p->done[mark % SPIPE_PRIV_WINDOW], (mark + 1) * every);
}
/* Marks the end of some chunks, and keeps the host from running too far ahead of the GPU. */
SPIPE_API cudaError_t spipe_priv_mark(spipe_pipeline_t *p, size_t load) {
    const size_t       every = p->desc.progress ? 1 : SPIPE_PRIV_MARK, mark = load / every;
    const cudaStream_t out = spipe_priv_route(p, load % p->desc.depth, SPIPE_PRIV_ROUTE_OUT);
    if ((load + 1) % every != 0 || p->async || p->needs_drain) return cudaSuccess;
    if (mark >= p->completed / every + SPIPE_PRIV_WINDOW) SPIPE_TRY(spipe_priv_complete_mark(p));
    return cudaEventRecord(p->done[mark % SPIPE_PRIV_WINDOW], out);
}
SPIPE_API cudaError_t spipe_priv_issue_copy(spipe_pipeline_t *p, const spipe_priv_op_t *op,
                                            const spipe_priv_at_t *at) {
    const size_t n = at->count * op->elem_bytes + op->more;
    p->moved[op->out] += n;
    return cudaMemcpyAsync(op->to + at->first * op->to_elem, op->from + at->first * op->from_elem,
                           n, cudaMemcpyDefault, op->stream);
}
/* The copies that follow op, in one call where toolkit and driver have it; a capture does not. */
SPIPE_API cudaError_t spipe_priv_issue_copies(spipe_pipeline_t *p, const spipe_priv_op_t *op,
                                              const spipe_priv_at_t *at) {
    int k;
#if CUDART_VERSION >= 12080
    if (!p->capturing && !p->direct_pageable && !p->watched && p->facts.driver_version >= 12080) {
        void       *to[SPIPE_MAX_BUFFERS];
        const void *from[SPIPE_MAX_BUFFERS];
        size_t      bytes[SPIPE_MAX_BUFFERS], n = (size_t)op->num, first = 0;
        struct cudaMemcpyAttributes in_order;
        memset(&in_order, 0, sizeof in_order);
        in_order.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
        for (k = 0; k < op->num; ++k) {
            const spipe_priv_op_t *c = &op[1 + k];
            to[k] = c->to + at->first * c->to_elem;
            from[k] = c->from + at->first * c->from_elem;
            bytes[k] = at->count * c->elem_bytes + c->more;
            p->moved[c->out] += bytes[k];
        }
#if CUDART_VERSION >= 13000
        return cudaMemcpyBatchAsync(to, from, bytes, n, &in_order, &first, 1, op->stream);
#else
        return cudaMemcpyBatchAsync(to, (void **)from, bytes, n, &in_order, &first, 1, &n,
                                    op->stream);
#endif
    }
#endif
    for (k = 0; k < op->num; ++k) SPIPE_TRY(spipe_priv_issue_copy(p, &op[1 + k], at));
    return cudaSuccess;
}
/* What one operation is there for, between what it waits for and what is recorded after it. */
SPIPE_PRIV_ATTRIBUTE((cold)) /* out of the loop that issues, which stays small */
SPIPE_API cudaError_t spipe_priv_act(spipe_pipeline_t *p, const spipe_priv_op_t *op,
                                     spipe_priv_at_t *at) {
    cudaError_t e = cudaSuccess;
    spipe_priv_tell_watch(p, SPIPE_PRIV_WATCH_OP, op, at->load, 0);
    switch (op->what & (SPIPE_PRIV_OP_WATCHED - 1)) {
    case SPIPE_PRIV_OP_COPY: e = spipe_priv_issue_copy(p, op, at); break;
    case SPIPE_PRIV_OP_CALL: e = spipe_priv_call(p, op, at); break;
    case SPIPE_PRIV_OP_BATCH: e = spipe_priv_issue_batch(p, op, at); break;
    case SPIPE_PRIV_OP_FILLED:
        e = spipe_priv_await(p, &at->slot->filled, at->load + 1, at->load);
        if (e == cudaSuccess) at->count = spipe_priv_count_of(p, at->load);
        break;
    case SPIPE_PRIV_OP_DRAINED: /* before a pinned slot is written again, by a copy or a stage */
        if (at->load < p->desc.depth) break;
        e = spipe_priv_await(p, &at->slot->drained, at->load - p->desc.depth + 1, at->load);
        break;
    case SPIPE_PRIV_OP_HALO: e = spipe_priv_copy_in_halo(p, at, op->stage, op->stream); break;
    case SPIPE_PRIV_OP_COPIES: e = spipe_priv_issue_copies(p, op, at); break;
    case SPIPE_PRIV_OP_HOST_BEGIN:
        e = cudaEventRecord(at->slot->stage_done[op->stage], op->stream);
        if (e == cudaSuccess) spipe_priv_post(p, SPIPE_PRIV_HOST, op->stage, at->load);
        break;
    case SPIPE_PRIV_OP_HOST_END:
        e = spipe_priv_await(p, &at->slot->host_done[op->stage], at->load + 1, at->load);
        break;
    case SPIPE_PRIV_OP_IN_END: p->issued_in = at->load + 1; break;
    default: /* sync_each */
        if (p->capturing) break;
        e = cudaStreamSynchronize(op->stream);
        if (e != cudaSuccess || op->step != SPIPE_PRIV_OUT || p->needs_drain || p->async) break;
        p->completed = at->load + 1;
    }
    spipe_priv_tell_watch(p, SPIPE_PRIV_WATCH_OP, op, at->load, 1);
    return e;
}
SPIPE_API cudaError_t spipe_priv_issue(spipe_pipeline_t *p, size_t from, size_t last, size_t load) {
    spipe_priv_at_t        at;
    cudaError_t            e = cudaSuccess;
    const spipe_priv_op_t *op, *end;
    const size_t          *filled = &p->slots[load % p->desc.depth].filled;
    const int              claim = p->desc.devices.claim != NULL;
    if (claim && p->needs_fill) SPIPE_TRY(spipe_priv_await(p, filled, load + 1, load));
    else if (claim && load == p->num_claimed) spipe_priv_claim(p, load);
    op = p->ops + spipe_priv_locate(p, load, &at) * p->num_ops;
    end = at.count > 0 ? op + last : op;
    for (op += from; op < end; ++op) {
        if (op->wait && load >= op->since) e = cudaStreamWaitEvent(op->stream, op->wait, 0);
        if (e == cudaSuccess) {
            if (op->what == SPIPE_PRIV_OP_COPY) {
                e = spipe_priv_issue_copy(p, op, &at);
            } else if (op->what == SPIPE_PRIV_OP_CALL) {
                e = spipe_priv_call(p, op, &at);
            } else if (op->what != SPIPE_PRIV_OP_NONE) {
                e = spipe_priv_act(p, op, &at);
                if (e == cudaSuccess && at.count == 0) break; /* the sources have ended */
                op += op->num; /* the last of several copies has what is recorded after them */
            }
        }
        if (e == cudaSuccess && op->done) e = cudaEventRecord(op->done, op->stream);
        if (e == cudaSuccess) continue;
        if (op->step == SPIPE_PRIV_IN) return spipe_priv_did(p, e, -1, load, "copying in");
        if (op->step == SPIPE_PRIV_OUT) return spipe_priv_did(p, e, -1, load, "copying out");
        return spipe_priv_did(p, e, op->stage, load, NULL);
    }
    if (at.count == 0) spipe_priv_locked_set(p, &p->num_loads, load);
    return cudaSuccess;
}
/* ---- 9 execute: the run -------------------------------------------------------------------- */
SPIPE_API void spipe_priv_tell(spipe_pipeline_t *p) {
    spipe_progress_t progress;
    size_t           completed, total;
    if (!p->desc.progress || p->async) return;
    while (!p->needs_drain && p->completed < p->issued_out) {
        const cudaEvent_t done = p->done[p->completed % SPIPE_PRIV_WINDOW];
        const int         far = p->issued_out - p->completed >= p->desc.depth;
        if (!spipe_priv_reached(cudaEventQuery(done)) && !far) break;
        if (spipe_priv_complete_mark(p) != cudaSuccess) return;
    }
    completed = spipe_priv_locked_get(p, &p->completed);
    total = spipe_priv_locked_get(p, &p->total);
    if (completed == p->told) return;
    p->told = completed;
    progress.chunks_done = completed;
    progress.total = total == SPIPE_AUTO ? 0 : total;
    progress.num_chunks = (progress.total + p->load - 1) / p->load;
    progress.elements_done = completed * p->load;
    if (progress.elements_done > total) progress.elements_done = total;
    progress.seconds = spipe_priv_seconds() - p->began;
    if (!p->desc.progress(&progress, p->desc.progress_user)) return;
    spipe_priv_locked_set(p, &p->stop_asked, 1);
}
SPIPE_API cudaError_t spipe_priv_issue_steps(spipe_pipeline_t *p, int from, int last, size_t load) {
    if (load >= p->num_loads) return cudaSuccess;
    SPIPE_TRY(spipe_priv_issue(p, p->step_start[from], p->step_start[last], load));
    if (last == p->num_steps && load < p->num_loads) {
        if (p->desc.progress || (load + 1) % SPIPE_PRIV_MARK == 0) {
            SPIPE_TRY(spipe_priv_did(p, spipe_priv_mark(p, load), -1, load, "marking its end"));
        }
        p->issued_out = load + 1; /* with its mark, or nobody could tell when it is whole */
    }
    if (!p->sync->lone) spipe_priv_poll(p);
    if (p->desc.progress) spipe_priv_tell(p);
    return cudaSuccess;
}
SPIPE_API cudaError_t spipe_priv_issue_breadth(spipe_pipeline_t *p) {
    size_t at, k;
    int    i;
    for (at = 0; at < p->num_loads; at += p->desc.depth) {
        for (i = 0; i < p->num_steps; ++i) {
            for (k = at; k < at + p->desc.depth; ++k) { /* once it is to stop nothing is filled */
                const int ends = p->stop_asked && i == 0 && k < p->num_loads;
                if (ends) spipe_priv_locked_set(p, &p->num_loads, k);
                SPIPE_TRY(spipe_priv_issue_steps(p, i, i + 1, k));
            }
        }
    }
    return cudaSuccess;
}
/* Load by load. A load's later segments are issued lag loads after its first, so that the host
   stage between them has time while the GPU has work. */
SPIPE_API cudaError_t spipe_priv_issue_all(spipe_pipeline_t *p) {
    const size_t behind = p->lag * (size_t)(p->num_segments - 1);
    size_t       at, back;
    int          s;
    if (p->desc.schedule == SPIPE_BREADTH_FIRST) return spipe_priv_issue_breadth(p);
    for (at = 0;; ++at) {
        if (p->stop_asked && at < p->num_loads) spipe_priv_locked_set(p, &p->num_loads, at);
        if (at >= p->num_loads && at - p->num_loads >= behind) break;
        for (s = 0, back = 0; s < p->num_segments && back <= at; ++s, back += p->lag) {
            SPIPE_TRY(spipe_priv_issue_steps(p, p->segment_start[s], p->segment_start[s + 1],
                                             at - back));
        }
    }
    return cudaSuccess;
}
/* Resident buffers in, before any load, or out, after all: on the stream that the rest follows. */
SPIPE_API cudaError_t spipe_priv_move_resident(spipe_pipeline_t *p, int out, cudaStream_t base) {
    int i;
    for (i = 0; i < p->desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->desc.buffers[i];
        const int copied = b->resident & (out ? SPIPE_DOWNLOAD : SPIPE_UPLOAD);
        if (b->kind != SPIPE_RESIDENT || (out && !copied)) continue;
        if (!copied) {
            SPIPE_TRY(cudaMemsetAsync(p->resident[i], 0, b->elem_bytes, base));
            continue;
        }
        p->moved[out] += b->elem_bytes;
        SPIPE_TRY(cudaMemcpyAsync(out ? b->host : p->resident[i], out ? p->resident[i] : b->host,
                                  b->elem_bytes, cudaMemcpyDefault, base));
    }
    return cudaSuccess;
}
/* Everything starts after what is on base ... */
SPIPE_API cudaError_t spipe_priv_fork(spipe_pipeline_t *p, cudaStream_t base) {
    int i;
    SPIPE_TRY(cudaEventRecord(p->fork, base));
    for (i = 0; i < p->num_streams; ++i) {
        if (p->streams[i] != base) SPIPE_TRY(cudaStreamWaitEvent(p->streams[i], p->fork, 0));
    }
    return cudaSuccess;
}
/* ... and base goes on after everything. One event does: a wait keeps the record it met. */
SPIPE_API cudaError_t spipe_priv_join(spipe_pipeline_t *p, cudaStream_t base) {
    int i;
    for (i = 0; i < p->num_streams; ++i) {
        if (p->streams[i] == base) continue;
        SPIPE_TRY(cudaEventRecord(p->fork, p->streams[i]));
        SPIPE_TRY(cudaStreamWaitEvent(base, p->fork, 0));
    }
    return cudaSuccess;
}
SPIPE_API void spipe_priv_begin(spipe_pipeline_t *p) {
    size_t k;
    if (!p->had_threads) p->sync->lone = !(p->needs_fill || p->needs_drain || p->num_segments > 1);
    spipe_priv_failure_clear(&p->failure);
    p->failed = p->drain_failed = p->stop_asked = 0;
    p->failed_load = SPIPE_AUTO;
    spipe_priv_measure(p);
    if (p->written_for != p->one_stream + 2 * (p->desc.timeline != NULL)) spipe_priv_write_ops(p);
    p->completed = p->fill_turn = p->drain_turn = p->num_claimed = 0;
    p->issued_in = p->issued_out = p->polled_in = p->polled_out = 0;
    p->told = SIZE_MAX;
    p->moved[0] = p->moved[1] = 0;
    p->report.wall_ms = 0.0;
    p->stale_error = cudaPeekAtLastError();
    for (k = 0; k < p->desc.depth; ++k) {
        spipe_priv_slot_t *slot = &p->slots[k];
        slot->filled = slot->drained = slot->whole = 0;
        memset(slot->host_done, 0, sizeof slot->host_done);
    }
}
/* Lets what was issued come to its end, whatever happened, and counts what is whole. The last
   copy out of each slot is the end of everything that was issued for whole chunks. */
SPIPE_API void spipe_priv_drain_all(spipe_pipeline_t *p) {
    const size_t depth = p->desc.depth, n = p->issued_out;
    cudaError_t  e = cudaSuccess;
    size_t       k;
    int          i;
    spipe_priv_crews_finish(p);
    while (!p->needs_drain && p->desc.progress && p->completed < n && e == cudaSuccess) {
        e = spipe_priv_complete_mark(p);
        spipe_priv_tell(p);
    }
    for (k = n < depth ? 0 : n - depth; k < n && !p->needs_drain && e == cudaSuccess; ++k) {
        e = spipe_priv_complete(p, p->slots[k % depth].out_done, k + 1 == n ? n : 0);
    }
    if (p->needs_drain) spipe_priv_tell(p);
    for (i = 0; i < p->num_streams && p->failed; ++i) (void)cudaStreamSynchronize(p->streams[i]);
    if (p->failed && p->failure.error == cudaPeekAtLastError()) (void)cudaGetLastError();
}
SPIPE_API cudaError_t spipe_priv_enqueue(spipe_pipeline_t *p, cudaStream_t stream) {
    cudaError_t e = cudaSuccess;
    int         i;
    if (!p->capturing && p->running_async) e = cudaStreamWaitEvent(stream, p->end, 0);
    if (e == cudaSuccess) e = spipe_priv_move_resident(p, 0, stream);
    if (e == cudaSuccess) e = spipe_priv_fork(p, stream);
    if (e == cudaSuccess) e = spipe_priv_issue_all(p);
    spipe_priv_keep(&e, spipe_priv_join(p, stream));
    if (e == cudaSuccess) e = spipe_priv_move_resident(p, 1, stream);
    if (e == cudaSuccess && !p->capturing) e = cudaEventRecord(p->end, stream);
    if (e == cudaSuccess && !p->capturing) p->running_async = 1;
    for (i = 0; i < p->num_streams && e != cudaSuccess && !p->capturing; ++i) {
        (void)cudaStreamSynchronize(p->streams[i]);
    }
    return e;
}
/* ---- 9 execute: another way of doing the same ---------------------------------------------- */
enum { SPIPE_PRIV_CUT = 1, SPIPE_PRIV_GRAPH };
SPIPE_API cudaError_t spipe_priv_use_cut(spipe_pipeline_t *p, int cut) {
    p->cut = cut;
    p->desc.schedule = p->cuts[cut].schedule, p->desc.chunk = p->cuts[cut].chunk;
    p->load = p->desc.chunk * p->batch;
    p->report.why_chunk = cut ? "tried beside the plan; kept where faster" : p->why_planned[0];
    p->report.why_schedule = cut ? p->report.why_chunk : p->why_planned[1];
    spipe_priv_measure(p);
    return spipe_priv_choose_paths(p);
}
/* Allocates nothing after each cut was arranged once. */
SPIPE_API cudaError_t spipe_priv_arrange(spipe_pipeline_t *p, int cut) {
    p->unset = 1; /* until all is well */
    SPIPE_TRY(spipe_priv_use_cut(p, cut));
    SPIPE_TRY(spipe_priv_take_memory(p));
    p->unset = 0;
    return cudaSuccess;
}
/* Where only the GPU works on a run, or halves are worth trying, and nobody looks at its chunks. */
SPIPE_API int spipe_priv_can_vary(const spipe_pipeline_t *p, int how) {
    const int staged = (p->needs_fill || p->needs_drain) && (how == SPIPE_PRIV_GRAPH || !p->halves);
    int       i, can = !p->has_resident && !staged && !p->direct_pageable && !p->desc.progress &&
                       !p->desc.sync_each;
    if (how == SPIPE_PRIV_CUT) return can && p->cuts[1].chunk > 0 && p->desc.count > 0;
    for (i = 0; i < p->desc.num_stages; ++i) {
        can = can && p->desc.stages[i].fixed && !p->desc.stages[i].host;
    }
    return can && p->num_loads > 1 && p->num_loads * p->batch <= SPIPE_PRIV_MAX_REPLAY;
}
SPIPE_API cudaError_t spipe_priv_forget(spipe_pipeline_t *p) {
    const cudaError_t e = p->replay ? cudaGraphExecDestroy(p->replay) : cudaSuccess;
    p->replay = NULL;
    p->rival = 1, p->num_runs = p->replays = p->held = 0;
    p->trying = p->one_shot ? 0 : SPIPE_PRIV_GRAPH;
    return e;
}
/* Captures a run after the first. A stage that cannot be captured is no failure: no replay then. */
SPIPE_API void spipe_priv_record_replay(spipe_pipeline_t *p) {
    const spipe_failure_t failure = p->failure; /* of the run, not of the capture */
    const cudaStream_t    base = p->streams[0];
    cudaGraph_t           graph = NULL;
    cudaError_t           e;
    if (p->trying != SPIPE_PRIV_GRAPH || p->num_runs != 1 || p->replay || p->desc.timeline) return;
    spipe_priv_begin(p);
    e = cudaStreamBeginCapture(base, cudaStreamCaptureModeThreadLocal);
    if (e == cudaSuccess) {
        p->capturing = p->async = 1;
        e = spipe_priv_enqueue(p, base);
        p->capturing = p->async = 0;
        spipe_priv_keep(&e, cudaStreamEndCapture(base, &graph));
    }
    if (e == cudaSuccess) e = cudaGraphInstantiateWithFlags(&p->replay, graph, 0);
    if (e == cudaSuccess) e = cudaGraphUpload(p->replay, base);
    if (graph) (void)cudaGraphDestroy(graph);
    memcpy(p->replay_moved, p->moved, sizeof p->moved);
    p->completed = p->num_loads;
    p->failure = failure;
    if (e == cudaSuccess) return;
    (void)cudaGetLastError();
    if (p->replay) (void)cudaGraphExecDestroy(p->replay);
    p->replay = NULL;
}
/* How the run to come is done: as planned and by a graph in turn, then the faster of them and the
   other cut in turn, until that is clear or often enough, then the winner and what is to be tried
   beside it; then by what gains more than chance. */
SPIPE_API cudaError_t spipe_priv_take_way(spipe_pipeline_t *p) {
    const double gain = p->num_runs < 4 ? 1.0 : p->best_ms[0] / p->best_ms[1];
    int          cut, over, want;
    if (!p->trying || p->desc.timeline) return cudaSuccess;
    spipe_priv_measure(p);
    cut = p->trying == SPIPE_PRIV_CUT ||
          (p->num_runs == 0 ? !spipe_priv_can_vary(p, SPIPE_PRIV_GRAPH) : !p->replay);
    if (cut) p->trying = spipe_priv_can_vary(p, SPIPE_PRIV_CUT) ? SPIPE_PRIV_CUT : 0;
    if (!p->trying) return cudaSuccess;
    over = p->num_runs >= (cut ? 12 : 4) || gain > 1.15 || gain < 0.85;
    want = over ? gain > 1.005 : p->num_runs % 2;
    if (over) p->num_runs = 0, p->trying = cut ? 0 : SPIPE_PRIV_CUT;
    if (!cut) p->replays = want;
    want = !cut ? 0 : want ? p->rival : p->held;
    if (over && cut && p->rival == 1 && p->cuts[2 + want].chunk > 0) {
        p->held = want, p->rival = 2 + want, p->trying = SPIPE_PRIV_CUT;
    }
    if (want == p->cut || spipe_priv_arrange(p, want) == cudaSuccess) return cudaSuccess;
    (void)cudaGetLastError(); /* failing to try is no failure */
    p->trying = 0;
    return spipe_priv_arrange(p, 0);
}
SPIPE_API void spipe_priv_run_replay(spipe_pipeline_t *p) {
    cudaError_t e = cudaGraphLaunch(p->replay, p->streams[0]);
    if (e == cudaSuccess) e = cudaStreamSynchronize(p->streams[0]);
    if (e == cudaSuccess) memcpy(p->moved, p->replay_moved, sizeof p->moved);
    if (e == cudaSuccess) p->completed = p->num_loads;
    else (void)cudaGetLastError(), (void)spipe_priv_fail(
            p, e, -1, SPIPE_AUTO, "the GPU reported an error in a replayed run: %s; set sync_each "
            "to learn which stage", cudaGetErrorString(e));
}
/* ---- 9 execute: a run -------------------------------------------------------------------- */
SPIPE_API void spipe_priv_run_streams(spipe_pipeline_t *p) {
    const cudaStream_t base = p->streams[0];
    cudaError_t        e;
    size_t             k;
    for (k = 0; k < p->desc.depth && p->needs_fill; ++k) spipe_priv_post(p, SPIPE_PRIV_FILL, -1, k);
    e = spipe_priv_move_resident(p, 0, base);
    if (e == cudaSuccess && p->has_resident) e = spipe_priv_fork(p, base);
    if (e == cudaSuccess) (void)spipe_priv_issue_all(p);
    else (void)spipe_priv_fail(p, e, -1, 0, "starting the run failed: %s", cudaGetErrorString(e));
    spipe_priv_drain_all(p);
}
SPIPE_API void spipe_priv_finish(spipe_pipeline_t *p) {
    const cudaStream_t base = p->streams[0];
    cudaError_t        e;
    if (!p->failed && p->stop_asked) (void)spipe_priv_fail(
            p, SPIPE_STOPPED, -1, p->completed, "stopped by the progress callback after %zu chunks",
            p->completed);
    if (!p->failed && p->has_resident) {
        e = spipe_priv_move_resident(p, 1, base);
        if (e == cudaSuccess) e = cudaStreamSynchronize(base);
        if (e != cudaSuccess) (void)spipe_priv_fail(p, e, -1, p->completed, "copying a resident "
                                                    "buffer out failed: %s", cudaGetErrorString(e));
    }
    p->failure.chunks_whole = spipe_priv_chunks(p, p->completed);
}
SPIPE_API cudaError_t spipe_priv_run(spipe_pipeline_t *p) {
    const cudaError_t e = spipe_priv_take_way(p);
    const int         replays = p->replays && !p->cut && !p->desc.timeline;
    spipe_priv_crews_start(p);
    spipe_priv_begin(p);
    p->report.trying = p->trying > 0;
    p->report.timed_ms = 0.0;
    p->report.print_more = NULL;
    p->watch = (const spipe_priv_watch_t *)(const void *)p->desc.timeline;
    spipe_priv_tell_watch(p, SPIPE_PRIV_WATCH_RUN, NULL, 0, 0);
    p->began = spipe_priv_seconds();
    if (e != cudaSuccess) (void)spipe_priv_fail(p, e, -1, SPIPE_AUTO, "the arrays cannot be looked "
                                                "at: %s", cudaGetErrorString(e));
    else if (replays) spipe_priv_run_replay(p);
    else spipe_priv_run_streams(p);
    spipe_priv_finish(p);
    p->report.wall_ms = 1e3 * (spipe_priv_seconds() - p->began);
    spipe_priv_tell_watch(p, SPIPE_PRIV_WATCH_RUN, NULL, 0, 1);
    p->watch = NULL;
    p->report.replayed = replays;
    if (p->trying && !p->failed && !p->desc.timeline) {
        double *best = &p->best_ms[p->num_runs % 2];
        if (p->num_runs < 2 || p->report.wall_ms < *best) *best = p->report.wall_ms;
        ++p->num_runs;
    }
    return p->failure.error;
}
/* ---- 9 execute: making, running, enqueuing, destroying ------------------------------------- */
SPIPE_API void spipe_priv_report(spipe_pipeline_t *p, spipe_report_t *to) {
    spipe_report_t *r = &p->report;
    const int       blocks = p->direct_pageable && !p->facts.host_page_tables;
    int             i, in_place = 0; /* pinned there */
    r->failure = p->failure, r->bytes_in = p->moved[0], r->bytes_out = p->moved[1];
    memcpy(r->device, p->facts.name, sizeof r->device);
    r->total = p->total == SPIPE_AUTO ? 0 : p->total;
    r->chunks_done = spipe_priv_chunks(p, p->completed);
    r->num_chunks = p->num_loads == SIZE_MAX ? 0 : spipe_priv_chunks(p, p->num_loads);
    r->count_done = p->completed * p->load;
    if (r->count_done > p->total) r->count_done = p->total;
    r->chunk = p->desc.chunk, r->depth = p->desc.depth, r->schedule = p->desc.schedule;
    r->num_stages = p->desc.num_stages, r->num_streams = p->num_streams;
    r->fill_threads = p->crews[SPIPE_PRIV_FILL].num_threads;
    r->drain_threads = p->crews[SPIPE_PRIV_DRAIN].num_threads;
    r->threads = r->fill_threads > r->drain_threads ? r->fill_threads : r->drain_threads;
    if (r->threads > p->desc.threads) r->threads = p->desc.threads;
    r->staged = p->staged_in + p->staged_out > 0;
    for (i = 0; i < p->desc.num_buffers; ++i) in_place |= p->registered[i];
    if (!r->staged && !p->direct_pageable && !in_place) r->why_staging = "no pageable array";
    if (p->small == 1 && p->direct_pageable) r->why_staging = "left to CUDA: all else takes longer";
    if (!to) return;
    *to = *r;
    if (r->why_schedule) return;
    to->why_schedule = "both copy engines and the kernels work at once";
    if (blocks) to->why_schedule = "little overlaps: CUDA's copies of pageable memory block";
    if (p->num_loads == 1) to->why_schedule = "one copy carries all chunks, so nothing overlaps";
    if (r->num_chunks == 1) to->why_schedule = "one chunk, so nothing overlaps";
}
SPIPE_API cudaError_t spipe_priv_free(spipe_pipeline_t *p) {
    cudaError_t e = cudaSuccess;
    int         i, before = 0;
    if (spipe_priv_enter(p->device, &before) != cudaSuccess) before = p->device;
    for (i = 0; i < p->num_streams && (p->failed || !p->one_shot); ++i) {
        spipe_priv_keep(&e, cudaStreamSynchronize(p->streams[i]));
    }
    spipe_priv_crews_stop(p);
    spipe_priv_keep(&e, spipe_priv_forget(p));
    spipe_priv_keep(&e, spipe_priv_free_memory(p)); /* before streams: these end faster after it */
    for (i = 0; i < p->num_events; ++i) spipe_priv_keep(&e, cudaEventDestroy(p->events[i]));
    for (i = p->own; i < p->num_streams; ++i) spipe_priv_keep(&e, cudaStreamDestroy(p->streams[i]));
    for (i = 0; i < p->desc.num_buffers; ++i) spipe_priv_keep(&e, spipe_priv_unregister(p, i));
    free((void *)p->ops);
    if (p->slots != &p->single) free((void *)p->slots);
    spipe_priv_sync_destroy(p->sync);
    spipe_priv_leave(p->device, before);
    memset(p, 0, offsetof(spipe_pipeline_t, streams));
    return e;
}
SPIPE_API cudaError_t spipe_priv_make(spipe_pipeline_t *p, const char **what) {
    int cut;
    *what = "making a lock";
    p->sync = spipe_priv_sync_create();
    if (!p->sync) return cudaErrorMemoryAllocation;
    *what = "reading the device's facts";
    SPIPE_TRY(spipe_priv_device_facts(&p->facts, p->device));
    *what = "choosing a plan";
    SPIPE_TRY(spipe_priv_plan(p));
    p->watched = !(p->one_shot && p->direct_pageable) && /* by what is blind to batches */
                 getenv("NV_SANITIZER_INJECTION_TRANSPORT_TYPE") != NULL;
    SPIPE_TRY(spipe_priv_make_slots(p));
    *what = "creating streams";
    SPIPE_TRY(spipe_priv_create_streams(p));
    *what = "creating events";
    SPIPE_TRY(spipe_priv_create_events(p));
    *what = "taking memory";
    SPIPE_TRY(spipe_priv_take_memory(p));
    SPIPE_TRY(spipe_priv_forget(p));
    for (cut = spipe_priv_can_vary(p, SPIPE_PRIV_CUT) ? 3 : -1; cut >= 0; --cut) { /* memory */
        if (p->cuts[cut].chunk > 0) SPIPE_TRY(spipe_priv_arrange(p, cut));
    }
    return cudaSuccess;
}
SPIPE_API cudaError_t spipe_priv_create(spipe_pipeline_t *p, const spipe_desc_t *d, int one_shot,
                                        spipe_failure_t *failure) {
    const double began = spipe_priv_seconds();
    const char  *what = NULL;
    cudaError_t  e;
    memset(p, 0, offsetof(spipe_pipeline_t, streams));
    if (failure) spipe_priv_failure_clear(failure);
    SPIPE_TRY(spipe_desc_check(d, failure));
    if (d->devices.run) return spipe_priv_refuse(failure, cudaErrorNotSupported, "several devices "
                                                 "are for spipe_run; of pipelines that are kept, "
                                                 "make one on each device");
    spipe_priv_failure_clear(&p->failure);
    p->desc = *d;
    p->one_shot = one_shot;
    e = cudaGetDevice(&p->device);
    if (e != cudaSuccess) {
        return spipe_priv_refuse(failure, e, "there is no device: %s", cudaGetErrorString(e));
    }
    e = spipe_priv_make(p, &what);
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
    if (!one_shot) spipe_priv_begin(p);
    p->alive = 1;
    p->report.setup_ms = 1e3 * (spipe_priv_seconds() - began);
    return cudaSuccess;
}
SPIPE_API cudaError_t spipe_run(const spipe_desc_t *d, spipe_report_t *report) {
    spipe_pipeline_t p;
    spipe_failure_t  failure;
    cudaError_t      e, freed;
    if (d && d->devices.run) return d->devices.run(d, report);
    e = spipe_priv_create(&p, d, 1, &failure);
    if (e != cudaSuccess && report) memset(report, 0, sizeof *report), report->failure = failure;
    if (e != cudaSuccess) return e;
    e = spipe_priv_run(&p);
    spipe_priv_report(&p, report);
    freed = spipe_priv_free(&p);
    if (e == cudaSuccess && freed != cudaSuccess) {
        e = spipe_priv_refuse(report ? &report->failure : NULL, freed, "freeing after the run "
                              "failed: %s", cudaGetErrorString(freed));
        if (report) report->failure.chunks_whole = report->num_chunks;
    }
    return e;
}
SPIPE_API cudaError_t spipe_pipeline_create(spipe_pipeline_t *p, const spipe_desc_t *d,
                                            spipe_failure_t *failure) {
    return p ? spipe_priv_create(p, d, 0, failure)
             : spipe_priv_refuse(failure, cudaErrorInvalidValue, "the pipeline is NULL");
}
SPIPE_API cudaError_t spipe_pipeline_destroy(spipe_pipeline_t *p) {
    return p && p->alive ? spipe_priv_free(p) : cudaSuccess;
}
SPIPE_API cudaError_t spipe_priv_reach(spipe_pipeline_t *p, int *before, spipe_report_t *report) {
    const int         alive = p && p->alive;
    const cudaError_t e = alive && !p->unset ? spipe_priv_enter(p->device, before)
                                             : cudaErrorInvalidResourceHandle;
    if (e == cudaSuccess) return e;
    if (report) memset(report, 0, sizeof *report);
    return spipe_priv_refuse(report ? &report->failure : NULL, e, "%s",
                             alive && p->unset ? "an array could not be set; set it again" : alive
                             ? "the device of the pipeline cannot be made the current one"
                             : "the pipeline was never created, or has been destroyed");
}
SPIPE_API cudaError_t spipe_pipeline_wait(spipe_pipeline_t *p, spipe_report_t *report) {
    int         before;
    cudaError_t e;
    SPIPE_TRY(spipe_priv_reach(p, &before, report));
    if (!p->running_async && !p->ran_now) spipe_priv_failure_clear(&p->failure);
    e = p->running_async ? cudaEventSynchronize(p->end) : cudaSuccess;
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        (void)spipe_priv_fail(p, e, -1, SPIPE_AUTO, "the GPU reported an error in an enqueued run: "
                              "%s; set sync_each to learn which stage", cudaGetErrorString(e));
    }
    if (p->running_async && !p->failed) p->completed = p->num_loads;
    p->failure.chunks_whole = spipe_priv_chunks(p, p->completed);
    p->running_async = p->ran_now = p->async = 0;
    e = p->failure.error;
    spipe_priv_report(p, report);
    spipe_priv_leave(p->device, before);
    return e;
}
SPIPE_API cudaError_t spipe_pipeline_run(spipe_pipeline_t *p, spipe_report_t *report) {
    int         before;
    cudaError_t e;
    if (p && (p->running_async || p->ran_now)) SPIPE_TRY(spipe_pipeline_wait(p, report));
    SPIPE_TRY(spipe_priv_reach(p, &before, report));
    e = spipe_priv_run(p);
    spipe_priv_report(p, report);
    if (e == cudaSuccess) spipe_priv_record_replay(p);
    p->report.setup_ms = 0.0;
    spipe_priv_leave(p->device, before);
    return e;
}
SPIPE_API cudaError_t spipe_pipeline_set_host(spipe_pipeline_t *p, int buffer, void *host) {
    int         before;
    cudaError_t e;
    if (!p || !p->alive) return cudaErrorInvalidResourceHandle;
    if (!host || buffer < 0 || buffer >= p->desc.num_buffers) return cudaErrorInvalidValue;
    if (!p->desc.buffers[buffer].host) return cudaErrorInvalidValue; /* a kind without an array */
    (void)spipe_pipeline_wait(p, NULL);
    p->unset = 1; /* what would be issued may name the array before */
    SPIPE_TRY(spipe_priv_enter(p->device, &before));
    e = spipe_priv_unregister(p, buffer);
    p->desc.buffers[buffer].host = host;
    if (e == cudaSuccess) e = spipe_priv_arrange(p, 0);
    spipe_priv_keep(&e, spipe_priv_forget(p));
    spipe_priv_leave(p->device, before);
    return e;
}
SPIPE_API cudaError_t spipe_pipeline_set_count(spipe_pipeline_t *p, size_t count) {
    int i;
    if (!p || !p->alive) return cudaErrorInvalidResourceHandle;
    for (i = 0; i < p->desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->desc.buffers[i];
        if (!spipe_priv_is_array(b)) continue;
        if (count > SIZE_MAX / b->elem_bytes || p->registered[i]) return cudaErrorInvalidValue;
        if (count > 0 && !b->host) return cudaErrorInvalidValue;
    }
    (void)spipe_pipeline_wait(p, NULL);
    p->desc.count = count;
    return spipe_priv_forget(p);
}
/* The order of the stream is kept by waiting where host threads have work to do, and where CUDA
   copies pageable memory, which it may read when it is called. */
SPIPE_API cudaError_t spipe_priv_run_now(spipe_pipeline_t *p, cudaStream_t stream) {
    if (p->capturing) return spipe_priv_refuse(&p->failure, cudaErrorStreamCaptureUnsupported,
                                               "a captured run takes pinned arrays only; no "
                                               "sources, sinks or host stages");
    if (p->ran_now && p->failed) return p->failure.error; /* until somebody has heard of it */
    if (p->running_async) SPIPE_TRY(cudaEventSynchronize(p->end));
    SPIPE_TRY(cudaStreamSynchronize(stream));
    p->ran_now = 1;
    return spipe_priv_run(p);
}
SPIPE_API cudaError_t spipe_enqueue(spipe_pipeline_t *p, cudaStream_t stream) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    int                          before;
    cudaError_t                  e;
    SPIPE_TRY(spipe_priv_reach(p, &before, NULL));
    e = stream ? cudaStreamIsCapturing(stream, &status) : cudaSuccess;
    p->capturing = status != cudaStreamCaptureStatusNone;
    if (e == cudaSuccess && (p->host_work || (p->direct_pageable && !p->facts.host_page_tables))) {
        e = spipe_priv_run_now(p, stream);
    } else if (e == cudaSuccess) {
        if (!p->running_async) spipe_priv_begin(p);
        p->async = 1;
        e = spipe_priv_enqueue(p, stream);
        p->async = p->running_async;
        p->ran_now |= e != cudaSuccess && !p->capturing; /* so that wait tells it */
        if (e != cudaSuccess) (void)spipe_priv_fail(p, e, -1, SPIPE_AUTO, "enqueuing failed: %s",
                                                    cudaGetErrorString(e));
    }
    p->capturing = 0;
    spipe_priv_leave(p->device, before);
    return e;
}
/* ---- 10 report ----------------------------------------------------------------------------- */
SPIPE_API const char *spipe_schedule_name(spipe_schedule_t schedule) {
    static const char *const names[] = {"auto",        "engines",       "serial",
                                        "depth-first", "breadth-first", "mapped"};
    return names[schedule >= SPIPE_ENGINES && schedule <= SPIPE_MAPPED ? (int)schedule : 0];
}
SPIPE_API double spipe_priv_gbps(size_t bytes, double ms) {
    return ms > 0.0 ? (double)bytes / ms * 1e-6 : 0.0;
}
SPIPE_API const char *spipe_priv_s(size_t n) { return n == 1 ? "" : "s"; }
SPIPE_API cudaError_t spipe_report_print(const spipe_report_t *r, FILE *to) {
    if (!r || !to) return cudaErrorInvalidValue;
    fprintf(to, "streampipe on %s\n", r->device[0] ? r->device : "no device");
    if (r->failure.error != cudaSuccess) {
        fprintf(to, "  FAILED    %s (%s)\n  whole     %zu chunks\n", r->failure.message,
                cudaGetErrorName(r->failure.error), r->failure.chunks_whole);
    }
    if (r->depth > 0) {
        fprintf(to, "  work      %zu elements in %zu chunk%s of %zu, %d stage%s\n  chunk     %s\n",
                r->count_done, r->chunks_done, spipe_priv_s(r->chunks_done), r->chunk,
                r->num_stages, spipe_priv_s((size_t)r->num_stages), r->why_chunk);
        fprintf(to, "  schedule  %s, %zu slot%s, %d stream%s%s: %s\n  staging   %s\n",
                spipe_schedule_name(r->schedule), r->depth, spipe_priv_s(r->depth), r->num_streams,
                spipe_priv_s((size_t)r->num_streams), r->replayed ? ", replayed" : r->trying
                ? ", trying" : "", r->why_schedule, r->why_staging);
        fprintf(to, "  host      %zu thread%s to fill, %zu to drain\n  memory    %.1f MiB device, "
                "%.1f MiB pinned\n", r->fill_threads, spipe_priv_s(r->fill_threads),
                r->drain_threads, (double)r->device_bytes / SPIPE_PRIV_MIB,
                (double)r->pinned_bytes / SPIPE_PRIV_MIB);
        fprintf(to, "  in        %.1f MiB, %.2f GB/s\n  out       %.1f MiB, %.2f GB/s\n",
                (double)r->bytes_in / SPIPE_PRIV_MIB, spipe_priv_gbps(r->bytes_in, r->wall_ms),
                (double)r->bytes_out / SPIPE_PRIV_MIB, spipe_priv_gbps(r->bytes_out, r->wall_ms));
        fprintf(to, "  time      %.3f ms, and %.3f ms to set up\n", r->wall_ms, r->setup_ms);
    }
    if (r->print_more) r->print_more(r, to);
    return ferror(to) ? cudaErrorOperatingSystem : cudaSuccess;
}
/* ---- 11 launch ----------------------------------------------------------------------------- */
SPIPE_API unsigned spipe_blocks(size_t count, unsigned threads) {
    const size_t t = threads > 0 ? threads : 1;
    const size_t blocks = count / t + (count % t != 0);
    return blocks == 0 ? 1 : blocks < (size_t)INT_MAX ? (unsigned)blocks : (unsigned)INT_MAX;
}
#ifdef __cplusplus
template <typename... Expected, typename... Actual>
SPIPE_API cudaError_t spipe_priv_launch(dim3 grid, dim3 block, size_t shared_bytes,
                                        cudaStream_t stream, void (*kernel)(Expected...),
                                        Actual... args) {
    cudaLaunchConfig_t config = cudaLaunchConfig_t();
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, static_cast<Expected>(args)...);
}
#endif

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
