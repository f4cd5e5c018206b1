/* hostcuda's own controls: the modelled clock, device profiles, faults, leaks. See ../README.md. */
#ifndef HOSTCUDA_H
#define HOSTCUDA_H

#include <stdio.h>

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- device profiles: the times of the modelled clock ---------------------------------------- */

typedef struct hostcuda_profile_s {
    char name[32];
    /* scheduling */
    int copy_engines;       /* 1: both directions share it; 2: one per direction */
    int async_engine_count; /* value of the attribute asyncEngineCount */
    int queues;             /* hardware queues; 1: one in-order queue per engine (before Kepler) */
    int concurrent_kernels; /* 0: one kernel at a time */
    int late_signal; /* 1: a kernel signals only when those queued right behind it are done */
    /* size */
    int sm_count, threads_per_sm, max_threads_per_block, cc_major, cc_minor;
    int priority_least, priority_greatest;
    size_t memory, shared_per_block, shared_optin, l2_bytes;
    int pageable_access;  /* 0: a kernel that is given a pointer to pageable memory fails with
                            cudaErrorIllegalAddress; 1: the attribute pageableMemoryAccess, too */
    int host_page_tables; /* 1: the GPU reads host memory through the host's page tables: copies of
                             pageable memory do not block, and run at the rate of pinned memory;
                             the attribute pageableMemoryAccessUsesHostPageTables, too */
    int integrated;       /* 1: CPU and GPU share one memory: the attribute integrated */
    /* rates, in bytes per ns = GB/s */
    double h2d, d2h, d2d; /* pinned, one direction alone */
    double pageable_h2d, pageable_d2h;
    double file_pages;      /* with host_page_tables: copies from pages of a mapped file; 0: as of
                               other memory */
    double both_ways;       /* factor on each direction's rate while both are busy */
    double pin, reg, unreg; /* cudaMallocHost, cudaHostRegister, cudaHostUnregister */
    /* times in ns */
    double copy_lost;            /* fixed time of a copy, in addition to its bytes */
    double kernel_latency;       /* between a kernel being ready and its first block running */
    double kernel_ns_per_thread; /* a kernel without a set time, with the device full */
    double host_func_latency;    /* between a host function being ready and its running */
    /* host time a call costs, in ns */
    double call_launch, call_copy, call_host_func, call_record, call_wait, call_query, call_sync;
    double call_event, call_stream;     /* creating or destroying one */
    double call_graph, call_graph_node; /* cudaGraphLaunch: once, and for each node */
    double call_malloc;                 /* cudaMalloc, cudaFree, and the fixed part of pinning */
    /* host threads that copy, decode, compute */
    double host_fill, host_drain; /* GB/s of one thread: into a pinned slot, out of it */
    double host_memory;           /* GB/s of all threads together */
    double host_wake, host_start; /* ns until a parked thread begins; ns to start a thread */
    double host_task;             /* ns of the thread that waits for a task, to hand it over */
    double pageable_lost;         /* ns, fixed time of a copy of pageable memory */
} hostcuda_profile_t;

/* "c1060", "c2050", "k20c", "h200", "gh200", "gb10", "ideal", "ideal1"; an unknown name gives one
 * with name[0] == 0. */
hostcuda_profile_t hostcuda_profile(const char *name);
/* To be called before the device has work. Env HOSTCUDA_PROFILE=name sets it for all devices
 * (default h200). */
cudaError_t hostcuda_set_profile(int device, const hostcuda_profile_t *profile);
hostcuda_profile_t hostcuda_get_profile(int device);
/* Number of devices, 1..16; env HOSTCUDA_DEVICES. Before any is used. */
cudaError_t hostcuda_set_devices(int count);
/* Sets the memory size of the current device. */
cudaError_t hostcuda_set_memory(size_t bytes);
/* Limits the host memory that the process may have pinned at once, registered memory included:
 * beyond it pinning fails with cudaErrorMemoryAllocation, as under a system's limit; 0 = none at
 * all. Memory that is pinned already stays pinned. Env HOSTCUDA_PINNED_LIMIT=bytes. */
void hostcuda_set_pinned_limit(size_t bytes);
/* Sets the time of a kernel alone on the device: fixed_ns + threads * ns_per_thread. */
void hostcuda_kernel_time(const void *func, double fixed_ns, double ns_per_thread);
/* Sets the name of a kernel in traces. */
void hostcuda_kernel_name(const void *func, const char *name);

/* ---- the modelled clock ---------------------------------------------------------------------- */

/* This host thread's modelled time, ns. Inside a host function it is not known: -1. */
double hostcuda_now_ns(void);
/* Declares that this thread computes for ns; inside a host function, that function takes ns
 * longer. */
void hostcuda_host_work(double ns);
/* Declares that this thread copies so many bytes, into a slot or out of one (out = 1). */
void hostcuda_host_copy(size_t bytes, int out);
/* Declares that this thread waits until this modelled time, as for a request that arrives then. Not
 * in a host function. */
void hostcuda_host_until(double ns);
/* Sets *ns to the modelled time at which this thread has finished its present work: at once, or, in
 * a source, sink or host stage of a pipeline, before its run returns. */
void hostcuda_when_done(double *ns);
/* Declares that this thread has waited for others without a CUDA call, as by joining them: its
 * clock advances to the latest of all. */
void hostcuda_catch_up(void);
/* Waits for all work and sets every modelled clock to 0. */
void hostcuda_clock_reset(void);

enum hostcuda_kind {
    HOSTCUDA_H2D,
    HOSTCUDA_D2H,
    HOSTCUDA_D2D,
    HOSTCUDA_H2H,
    HOSTCUDA_MEMSET,
    HOSTCUDA_KERNEL,
    HOSTCUDA_HOST_FUNC,
    HOSTCUDA_RECORD,
    HOSTCUDA_WAIT,
    HOSTCUDA_OTHER
};

enum hostcuda_engine {
    HOSTCUDA_NO_ENGINE,
    HOSTCUDA_COPY0,
    HOSTCUDA_COPY1,
    HOSTCUDA_COMPUTE
};

typedef struct hostcuda_op_s {
    int kind;   /* enum hostcuda_kind */
    int engine; /* enum hostcuda_engine */
    int device;
    unsigned stream; /* cudaStreamGetId(), 0 = legacy */
    size_t bytes;
    char label[32]; /* of a kernel: hostcuda_kernel_name, else "kernel" */
    double issue_ns, start_ns, end_ns;
} hostcuda_op_t;

void hostcuda_trace_start(void);
/* The operations completed on the modelled clock since, in issue order; returns how many. */
size_t hostcuda_trace(hostcuda_op_t *out, size_t max);
/* The same as a table headed "modelled". */
void hostcuda_trace_print(FILE *f);
const char *hostcuda_kind_name(int kind);

/* ---- faults, checks -------------------------------------------------------------------------- */

/* Makes the k-th call from now (1 = the next) of this runtime function (NULL = of any) return e and
 * do nothing. Several such faults may be set. Env HOSTCUDA_FAIL="cudaMalloc:3:2,kernel:1:700"
 * (operations have the names below). */
void hostcuda_fail(const char *function, long k, cudaError_t e);
/* Makes the k-th operation of this kind from now ("kernel", "copy", "memset", "host", NULL = any)
 * fail when it runs: e is sticky, and a later synchronisation returns it. */
void hostcuda_fail_async(const char *what, long k, cudaError_t e);
void hostcuda_fail_clear(void);
/* How many of the faults that were set have happened since hostcuda_fail_clear(). */
long hostcuda_fail_fired(void);
/* Calls of a function (NULL: of all) since hostcuda_calls_reset(). */
long hostcuda_calls(const char *function);
void hostcuda_calls_reset(void);
/* The i-th of the functions called since then, by name; NULL past the last. */
const char *hostcuda_called(size_t i);
/* 1: the next call of any kind returns an error of the device's work, as with a fast GPU (CUDA does
 * not say which call returns it); 0: the next synchronisation or successful query does. Env
 * HOSTCUDA_PROMPT_ERRORS. */
void hostcuda_set_prompt_errors(int prompt);
/* Makes the device behave as after an illegal address: work is skipped, and calls fail with e from
 * the next synchronisation on. */
void hostcuda_break_device(cudaError_t e);
/* Adds short random sleeps before operations, so that missing waits show; 0 = none. Env
 * HOSTCUDA_JITTER. */
void hostcuda_set_jitter(unsigned seed);
/* Returns how many objects are alive (streams, events, memory, registrations, graphs); lists them
 * to f if it is not NULL. */
int hostcuda_leaks(FILE *f);

#ifdef __cplusplus
} /* extern "C" */

template <typename... P>
inline void hostcuda_kernel_time(void (*kernel)(P...), double fixed_ns, double ns_per_thread) {
    hostcuda_kernel_time(reinterpret_cast<const void *>(kernel), fixed_ns, ns_per_thread);
}

template <typename... P>
inline void hostcuda_kernel_name(void (*kernel)(P...), const char *name) {
    hostcuda_kernel_name(reinterpret_cast<const void *>(kernel), name);
}
#endif

#endif
