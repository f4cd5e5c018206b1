/*  streampipe_tools.h 0.2.0 -- why nothing overlaps here.

    An optional companion of streampipe.h: a doctor that examines a device, a pointer and streams.
    It includes streampipe_timeline.h, which says what a run did. For C99, C++11 and CUDA C++. MIT
    licence.

    USE IT   copy both headers beside streampipe.h and #include this one. There is nothing to define
             or to link.

    A COMPLETE PROGRAM       gcc -std=c99 doctor.c -lcudart -lpthread
BEGIN EXAMPLE doctor.c
    #include "streampipe_tools.h"

    int main(void) {
        SPIPE_CHECK(spipe_doctor(NULL, NULL, stdout));
        return 0;
    }
END EXAMPLE

    CONTENTS (search for the anchor; the second half of the file has the code in the same order)
      1  >>doctor    finds what keeps work from overlapping on this machine
*/
#ifndef STREAMPIPE_TOOLS_H
#define STREAMPIPE_TOOLS_H

#include "streampipe_timeline.h"
#if SPIPE_VERSION != 200
#error "streampipe_tools.h 0.2.0 needs streampipe.h 0.2.0: copy both from the same release"
#endif

/* ============================================================================================
   >>api    every public type and function, tool by tool
   ============================================================================================ */

/* ---- 1 >>doctor ---------------------------------------------------------------------------- */
typedef cudaError_t (*spipe_launch_fn)(cudaStream_t stream, void *user);

/* What the doctor examines besides the current device. Get one from spipe_doctor_default. */
typedef struct spipe_doctor_desc {
    const void *pointer;         /* host memory that you copy from or to (default: NULL) */
    size_t bytes;                /* its length; 0 = examine the first byte only */
    const cudaStream_t *streams; /* the streams that you use (default: NULL) */
    size_t num_streams;
    spipe_launch_fn launch; /* launches a kernel of yours on a stream, to measure whether two
                                    of them overlap (default: NULL, not measured) */
    void *user;             /* passed to launch */
    size_t probe_bytes;     /* copied each way to measure (default: 16 MiB); 0 = no measurement */
} spipe_doctor_desc_t;

/* What the doctor examines; the numbers 1 to 5 are those of the checklist that it prints. */
typedef enum spipe_finding {
    SPIPE_FIND_DRIVER = 0,   /* is the driver as new as the runtime? */
    SPIPE_FIND_COPY_ENGINES, /* are there two, so that both directions can run at once? */
    SPIPE_FIND_KERNELS,      /* can kernels of different streams run at once? */
    SPIPE_FIND_PRIORITIES,   /* are there stream priorities? */
    SPIPE_FIND_MEMORY,       /* does the device have memory of its own? */
    SPIPE_FIND_LAUNCHES,     /* is CUDA_LAUNCH_BLOCKING unset? */
    SPIPE_FIND_WATCHERS,     /* is no profiler or sanitizer attached? */
    SPIPE_FIND_CONNECTIONS,  /* is there a hardware connection for each stream? */
    SPIPE_FIND_PINNED,       /* 1: is the memory pinned? */
    SPIPE_FIND_NON_BLOCKING, /* 2: are the streams non-blocking? */
    SPIPE_FIND_DIFFERENT,    /* 3: are the streams different? */
    SPIPE_FIND_DEFERRED,     /* 4: does an asynchronous copy return before it is done? (measured) */
    SPIPE_FIND_BOTH_WAYS,    /* 5: do copies in and out overlap? (measured) */
    SPIPE_FIND_ISSUE_ORDER,  /* does an operation wait only for what it needs? (measured) */
    SPIPE_FIND_TWO_KERNELS,  /* do two of your kernels overlap? (measured) */
    SPIPE_NUM_FINDINGS
} spipe_finding_t;

typedef enum spipe_verdict {
    SPIPE_VERDICT_NONE = 0, /* unknown, or not measured */
    SPIPE_VERDICT_OK,
    SPIPE_VERDICT_LOOK /* a problem */
} spipe_verdict_t;

/* What the doctor found. Overlap: 1 = the shorter of two operations is completely hidden, 0 = they
   run one after the other, -1 = not measured. */
typedef struct spipe_checkup {
    spipe_device_t device;
    spipe_verdict_t verdict[SPIPE_NUM_FINDINGS];
    int num_look;                  /* how many findings are SPIPE_VERDICT_LOOK */
    double in_ms, out_ms, both_ms; /* probe_bytes copied in, out, and both at once */
    double copies_overlap;         /* overlap of a copy in and a copy out */
    double order_overlap;          /* of a copy out with the two dependent copies issued before it
                                      on another stream */
    double kernel_ms, kernels_overlap;
} spipe_checkup_t;

/*  spipe_doctor_default -- a description that examines the device only, with copies of 16 MiB.
    spipe_doctor -- examine the device of the first stream (without streams: the current device),
    memory and streams, measure what overlaps, and say what to change.

    d          in      NULL = spipe_doctor_default. If it has two streams or more, the first two are
                       used to measure.
    checkup    out     the findings; may be NULL.
    to         in      an open file for the text: a line for each finding, and the cure if one is
                       needed; may be NULL.
    Returns    cudaSuccess, whatever it finds; cudaErrorInvalidValue; cudaErrorOperatingSystem
               (to cannot be written); any error of the CUDA calls made, of launch, or left by
               earlier work.
    Blocks     yes: a few milliseconds, and until the streams' earlier work has ended.
    Threads    any; a quiet device measures best.   Callback  no.   Capture  no.
    Allocates  2 x probe_bytes of device and of pinned memory, two streams and some events, freed
               before return. */
SPIPE_API spipe_doctor_desc_t spipe_doctor_default(void);
SPIPE_API cudaError_t spipe_doctor(const spipe_doctor_desc_t *d, spipe_checkup_t *checkup,
                                   FILE *to);

/* ============================================================================================
   >>impl   the same tools, as code. Names beginning spipe_priv_ are not for callers.
   ============================================================================================ */
#if SPIPE_PRIV_CODE

/* ---- 1 doctor ------------------------------------------------------------------------------ */
typedef struct spipe_priv_doctor {
    const spipe_doctor_desc_t *d;
    spipe_checkup_t *c;
    FILE *to; /* may be NULL */
} spipe_priv_doctor_t;

/* Reports one finding: a sentence, and the cure if it is bad. good: 1 = good, 0 = bad, -1 =
   unknown. */
SPIPE_PRIV_LOCAL void spipe_priv_doctor_say(const spipe_priv_doctor_t *doc, spipe_finding_t finding,
                                            int good, const char *cure, const char *format, ...) {
    va_list args;
    const char *mark = "-";
    spipe_verdict_t verdict = SPIPE_VERDICT_NONE;
    if (good > 0) {
        mark = "ok";
        verdict = SPIPE_VERDICT_OK;
    } else if (good == 0) {
        mark = "LOOK HERE";
        verdict = SPIPE_VERDICT_LOOK;
    }
    doc->c->verdict[finding] = verdict;
    doc->c->num_look += good == 0;
    if (!doc->to) return;
    fprintf(doc->to, "  %-10s", mark);
    va_start(args, format);
    vfprintf(doc->to, format, args);
    va_end(args);
    fputc('\n', doc->to);
    if (good == 0) fprintf(doc->to, "            cure: %s\n", cure);
}

/* Reports what the device can do. */
SPIPE_PRIV_LOCAL void spipe_priv_doctor_device(const spipe_priv_doctor_t *doc) {
    const spipe_device_t *f = &doc->c->device;
    const char *memory = "own memory, reached by copies";
    if (f->host_page_tables) memory = "own memory; it reads pageable memory at the same speed";
    if (f->integrated) memory = "it shares the CPU's memory: copies gain nothing";
    if (doc->to) {
        fputs("streampipe doctor: ", doc->to);
        spipe_priv_put_text(doc->to, f->name, SPIPE_PRIV_PLAIN, 64);
        fprintf(doc->to, ", compute %d.%d, %d multiprocessors, %.1f GiB\nThe device\n",
                f->compute_major, f->compute_minor, f->num_sms,
                (double)f->memory_bytes / 1073741824.0);
    }
    spipe_priv_doctor_say(doc, SPIPE_FIND_DRIVER, f->driver_version >= f->runtime_version,
                          "update the driver, or build with an older toolkit",
                          "driver for CUDA %d.%d, runtime %d.%d", f->driver_version / 1000,
                          f->driver_version % 1000 / 10, f->runtime_version / 1000,
                          f->runtime_version % 1000 / 10);
    spipe_priv_doctor_say(doc, SPIPE_FIND_COPY_ENGINES, f->copy_engines >= 2,
                          "none on this device; copy less", "%d copy engine%s", f->copy_engines,
                          f->copy_engines >= 2 ? "s: both directions can run at once"
                                               : ": one direction at a time");
    spipe_priv_doctor_say(doc, SPIPE_FIND_KERNELS, f->concurrent_kernels != 0,
                          "give each kernel enough blocks to fill the device by itself",
                          "kernels of different streams %s run at once",
                          f->concurrent_kernels ? "can" : "cannot");
    spipe_priv_doctor_say(doc, SPIPE_FIND_PRIORITIES, f->priority_greatest < f->priority_least,
                          "keep urgent kernels short and issue them first",
                          "stream priorities %d .. %d (of kernels; copies have none)",
                          f->priority_least, f->priority_greatest);
    spipe_priv_doctor_say(doc, SPIPE_FIND_MEMORY, !f->integrated,
                          "do without copies: SPIPE_SCHEDULE_ZERO_COPY on pinned memory", "%s",
                          memory);
}

/* Reports environment variables that serialise work. */
SPIPE_PRIV_LOCAL void spipe_priv_doctor_environment(const spipe_priv_doctor_t *doc) {
    const int blocks = spipe_priv_env_is_set("CUDA_LAUNCH_BLOCKING");
    const int profiler = spipe_priv_env_profiler();
    const size_t connections = spipe_priv_env_connections(), streams = doc->d->num_streams;
    if (doc->to) fputs("The environment\n", doc->to);
    spipe_priv_doctor_say(
        doc, SPIPE_FIND_LAUNCHES, !blocks,
        "unset it; to find the stage that fails, use a checked run instead (desc.checked)",
        "CUDA_LAUNCH_BLOCKING is %s",
        blocks ? "set: every launch waits for its kernel" : "not set");
    spipe_priv_doctor_say(doc, SPIPE_FIND_WATCHERS, !profiler, "measure without it",
                          profiler ? "a profiler or sanitizer is attached: some serialise all work"
                                   : "no profiler or sanitizer is attached");
    spipe_priv_doctor_say(doc, SPIPE_FIND_CONNECTIONS, streams <= connections,
                          "use fewer streams (4 are plenty), or set CUDA_DEVICE_MAX_CONNECTIONS, "
                          "at most 32, before the program starts",
                          "%zu streams on %zu hardware connections%s", streams, connections,
                          streams > connections ? ": some wait for each other" : "");
}

/* The kind of memory at the user's pointer, in words. */
SPIPE_PRIV_LOCAL const char *spipe_priv_doctor_memory(const spipe_priv_doctor_t *doc, int type,
                                                      int pinned) {
    if (!doc->d->pointer) return "no pointer was given";
    if (type == SPIPE_PRIV_DEVICE) return "it is device memory";
    if (pinned) return "it is pinned";
    if (type == SPIPE_PRIV_PINNED) return "only its beginning is";
    if (doc->c->device.host_page_tables) return "pageable, which is as good on this device";
    return "it is pageable: an \"asynchronous\" copy of it blocks";
}

/* Reports whether the user's memory is pinned. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_doctor_pointer(const spipe_priv_doctor_t *doc) {
    int type = SPIPE_PRIV_PAGEABLE, pinned = 0, good = -1;
    if (doc->d->pointer) {
        SPIPE_TRY(spipe_priv_memory_type(doc->d->pointer, &type, NULL));
        SPIPE_TRY(spipe_is_pinned(doc->d->pointer, doc->d->bytes, &pinned));
        good = pinned || doc->c->device.host_page_tables;
    }
    spipe_priv_doctor_say(doc, SPIPE_FIND_PINNED, good,
                          "let streampipe stage it (the default); spipe_pin it if it is used often",
                          "1 pinned memory for transfers? %s",
                          spipe_priv_doctor_memory(doc, type, pinned));
    return cudaSuccess;
}

/* Reports whether the user's streams are non-blocking and different. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_doctor_streams(const spipe_priv_doctor_t *doc) {
    const spipe_doctor_desc_t *d = doc->d;
    const int some = d->num_streams > 0;
    size_t i, j, legacy = 0, blocking = 0, twice = 0;
    for (i = 0; i < d->num_streams; ++i) {
        const cudaStream_t s = d->streams[i];
        unsigned flags = 0;
        for (j = 0; j < i && d->streams[j] != s;) ++j;
        twice += j < i;
        legacy += !s || s == cudaStreamLegacy;
        if (!s || s == cudaStreamLegacy || s == cudaStreamPerThread) continue;
        SPIPE_TRY(cudaStreamGetFlags(s, &flags));
        blocking += !(flags & cudaStreamNonBlocking);
    }
    spipe_priv_doctor_say(doc, SPIPE_FIND_NON_BLOCKING, some ? !legacy && !blocking : -1,
                          "create them with spipe_stream_create, or with cudaStreamNonBlocking",
                          "2 non-blocking streams? of %zu: legacy default stream %zu, blocking %zu "
                          "(these two kinds wait for each other)",
                          d->num_streams, legacy, blocking);
    spipe_priv_doctor_say(doc, SPIPE_FIND_DIFFERENT, some ? d->num_streams > 1 && !twice : -1,
                          "use a different stream for each operation that should overlap",
                          "3 different streams? %zu, %zu of them given twice", d->num_streams,
                          twice);
    for (i = 0; i < d->num_streams && doc->to; ++i) {
        int priority = 0;
        if (!d->streams[i] || d->streams[i] == cudaStreamLegacy) continue;
        SPIPE_TRY(cudaStreamGetPriority(d->streams[i], &priority));
        fprintf(doc->to, "            stream %zu has priority %d\n", i, priority);
    }
    return cudaSuccess;
}

/* ---- 1 doctor: measuring ------------------------------------------------------------------- */
enum {
    SPIPE_PRIV_TRY_IN = 1,
    SPIPE_PRIV_TRY_BACK = 2,
    SPIPE_PRIV_TRY_OUT = 4,
    SPIPE_PRIV_TRY_KERNEL = 8,
    SPIPE_PRIV_TRY_OTHER = 16
};

typedef struct spipe_priv_probe {
    const spipe_doctor_desc_t *d;
    cudaStream_t streams[2], own[2];
    cudaEvent_t begin, end, join;
    void *host[2], *device[2];
    int returned; /* 1 = a copy was still running when its call returned */
} spipe_priv_probe_t;

/* Issues the operations of `what`: in, back and a kernel on the first stream; out and another
   kernel on the second stream, which depend on none of the former and so should not wait for
   them. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_probe_issue(spipe_priv_probe_t *p, int what) {
    const size_t n = p->d->probe_bytes;
    if (what & SPIPE_PRIV_TRY_IN) {
        SPIPE_TRY(
            cudaMemcpyAsync(p->device[0], p->host[0], n, cudaMemcpyHostToDevice, p->streams[0]));
        p->returned = cudaStreamQuery(p->streams[0]) == cudaErrorNotReady;
        (void)cudaGetLastError(); /* older runtimes keep cudaErrorNotReady */
    }
    if (what & SPIPE_PRIV_TRY_BACK) {
        SPIPE_TRY(
            cudaMemcpyAsync(p->host[0], p->device[0], n, cudaMemcpyDeviceToHost, p->streams[0]));
    }
    if (what & SPIPE_PRIV_TRY_OUT) {
        SPIPE_TRY(
            cudaMemcpyAsync(p->host[1], p->device[1], n, cudaMemcpyDeviceToHost, p->streams[1]));
    }
    if (what & SPIPE_PRIV_TRY_KERNEL) SPIPE_TRY(p->d->launch(p->streams[0], p->d->user));
    if (what & SPIPE_PRIV_TRY_OTHER) SPIPE_TRY(p->d->launch(p->streams[1], p->d->user));
    return cudaSuccess;
}

/* The time of some operations by the GPU's clock: the shortest of three, after one to warm up. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_probe_time(spipe_priv_probe_t *p, int what, double *ms) {
    int i;
    *ms = 1e300;
    for (i = 0; i < 4; ++i) {
        float took = 0.0f;
        SPIPE_TRY(cudaStreamSynchronize(p->streams[0]));
        SPIPE_TRY(cudaStreamSynchronize(p->streams[1]));
        SPIPE_TRY(cudaEventRecord(p->begin, p->streams[0]));
        SPIPE_TRY(cudaStreamWaitEvent(p->streams[1], p->begin, 0));
        SPIPE_TRY(spipe_priv_probe_issue(p, what));
        SPIPE_TRY(cudaEventRecord(p->join, p->streams[1]));
        SPIPE_TRY(cudaStreamWaitEvent(p->streams[0], p->join, 0));
        SPIPE_TRY(cudaEventRecord(p->end, p->streams[0]));
        SPIPE_TRY(cudaEventSynchronize(p->end));
        SPIPE_TRY(cudaEventElapsedTime(&took, p->begin, p->end));
        if (i > 0 && (double)took < *ms) *ms = (double)took;
    }
    return cudaSuccess;
}

SPIPE_PRIV_LOCAL cudaError_t spipe_priv_probe_create(spipe_priv_probe_t *p,
                                                     const spipe_doctor_desc_t *d) {
    int i;
    memset(p, 0, sizeof *p);
    p->d = d;
    for (i = 0; i < 2; ++i) {
        if (d->num_streams < 2) {
            SPIPE_TRY(spipe_stream_create(&p->own[i], SPIPE_PRIORITY_DEFAULT));
        }
        p->streams[i] = d->num_streams < 2 ? p->own[i] : d->streams[i];
        SPIPE_TRY(spipe_pinned_alloc(&p->host[i], d->probe_bytes));
        if (!p->host[i]) return cudaErrorInvalidValue;
        memset(p->host[i], 0, d->probe_bytes);
        SPIPE_TRY(cudaMalloc(&p->device[i], d->probe_bytes));
        SPIPE_TRY(cudaMemsetAsync(p->device[i], 0, d->probe_bytes, p->streams[i]));
    }
    SPIPE_TRY(cudaEventCreate(&p->begin));
    SPIPE_TRY(cudaEventCreate(&p->end));
    return spipe_event_create(&p->join);
}

SPIPE_PRIV_LOCAL void spipe_priv_probe_destroy(spipe_priv_probe_t *p) {
    int i;
    (void)cudaDeviceSynchronize();
    for (i = 0; i < 2; ++i) {
        if (p->own[i]) (void)cudaStreamDestroy(p->own[i]);
        if (p->device[i]) (void)cudaFree(p->device[i]);
        (void)spipe_pinned_free(p->host[i]);
    }
    if (p->begin) (void)cudaEventDestroy(p->begin);
    if (p->end) (void)cudaEventDestroy(p->end);
    if (p->join) (void)cudaEventDestroy(p->join);
}

/* The share of the shorter of two times that was hidden: 1 = all of it. */
SPIPE_PRIV_LOCAL double spipe_priv_hidden(double a, double b, double together) {
    const double less = a < b ? a : b;
    const double hidden = less > 0.0 ? (a + b - together) / less : 0.0;
    if (hidden < 0.0) return 0.0;
    return hidden > 1.0 ? 1.0 : hidden;
}

/* Reports what was measured of the copies. */
SPIPE_PRIV_LOCAL void spipe_priv_doctor_judge(const spipe_priv_doctor_t *doc, int returned) {
    const spipe_checkup_t *c = doc->c;
    const double bytes = (double)doc->d->probe_bytes * 1e-6;
    spipe_priv_doctor_say(doc, SPIPE_FIND_DEFERRED, returned,
                          "look for CUDA_LAUNCH_BLOCKING, profilers and sanitizers",
                          "4 synchronisation deferred? a call to copy pinned memory returned %s",
                          returned ? "while the copy ran" : "only when the copy was done");
    spipe_priv_doctor_say(
        doc, SPIPE_FIND_BOTH_WAYS, c->copies_overlap >= 0.5,
        "overlap needs two copy engines, pinned memory and different non-blocking "
        "streams: see above",
        "5 overlap? in %.1f GB/s alone, out %.1f, both at once %.1f each: "
        "%.0f %% of the shorter is hidden",
        bytes / c->in_ms, bytes / c->out_ms, bytes / c->both_ms, 100.0 * c->copies_overlap);
    spipe_priv_doctor_say(doc, SPIPE_FIND_ISSUE_ORDER, c->order_overlap >= 0.5,
                          "issue each step for all chunks before the next step, as lesson 9 does: "
                          "streams share a hardware queue or a copy engine",
                          "order of issue: a copy issued after one that is not ready %s",
                          c->order_overlap >= 0.5 ? "does not wait for it" : "waits for it");
}

/* Measures what overlaps, and reports it. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_doctor_probe(const spipe_priv_doctor_t *doc,
                                                     spipe_priv_probe_t *p) {
    spipe_checkup_t *c = doc->c;
    double ordered = 0.0, two = 0.0;
    SPIPE_TRY(spipe_priv_probe_time(p, SPIPE_PRIV_TRY_OUT, &c->out_ms));
    SPIPE_TRY(spipe_priv_probe_time(p, SPIPE_PRIV_TRY_IN | SPIPE_PRIV_TRY_OUT, &c->both_ms));
    SPIPE_TRY(spipe_priv_probe_time(p, SPIPE_PRIV_TRY_IN | SPIPE_PRIV_TRY_BACK | SPIPE_PRIV_TRY_OUT,
                                    &ordered));
    SPIPE_TRY(spipe_priv_probe_time(p, SPIPE_PRIV_TRY_IN, &c->in_ms));
    c->copies_overlap = spipe_priv_hidden(c->in_ms, c->out_ms, c->both_ms);
    c->order_overlap = spipe_priv_hidden(c->in_ms, c->out_ms, ordered - c->out_ms);
    spipe_priv_doctor_judge(doc, p->returned);
    if (!doc->d->launch) return cudaSuccess;
    SPIPE_TRY(spipe_priv_probe_time(p, SPIPE_PRIV_TRY_KERNEL, &c->kernel_ms));
    SPIPE_TRY(spipe_priv_probe_time(p, SPIPE_PRIV_TRY_KERNEL | SPIPE_PRIV_TRY_OTHER, &two));
    c->kernels_overlap = spipe_priv_hidden(c->kernel_ms, c->kernel_ms, two);
    spipe_priv_doctor_say(doc, SPIPE_FIND_TWO_KERNELS, c->kernels_overlap >= 0.1,
                          "none is needed if one kernel fills the device; otherwise use fewer "
                          "threads or registers per block",
                          "two kernels: %.3f ms alone, %.3f ms for two: %.0f %% of one is hidden",
                          c->kernel_ms, two, 100.0 * c->kernels_overlap);
    return cudaSuccess;
}

SPIPE_API spipe_doctor_desc_t spipe_doctor_default(void) {
    spipe_doctor_desc_t d;
    memset(&d, 0, sizeof d);
    d.probe_bytes = (size_t)16 << 20;
    return d;
}

/* Makes the device of the first stream the current one, if there is a stream. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_doctor_begin(const spipe_doctor_desc_t *d, int *before) {
    cudaEvent_t event;
    int device;
    SPIPE_TRY(cudaGetDevice(before));
    if (d->num_streams == 0) return cudaSuccess;
    if (!d->streams) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_event_behind(d->streams[0], cudaEventDisableTiming, &event, &device));
    (void)cudaEventDestroy(event);
    return *before == device ? cudaSuccess : cudaSetDevice(device);
}

SPIPE_PRIV_LOCAL cudaError_t spipe_priv_doctor_examine(const spipe_priv_doctor_t *doc) {
    spipe_priv_probe_t probe;
    cudaError_t e = cudaSuccess;
    SPIPE_TRY(spipe_device_get(&doc->c->device, -1));
    spipe_priv_doctor_device(doc);
    spipe_priv_doctor_environment(doc);
    if (doc->to) fputs("The checklist\n", doc->to);
    SPIPE_TRY(spipe_priv_doctor_pointer(doc));
    SPIPE_TRY(spipe_priv_doctor_streams(doc));
    if (doc->d->probe_bytes == 0) return e;
    e = spipe_priv_probe_create(&probe, doc->d);
    if (e == cudaSuccess) e = spipe_priv_doctor_probe(doc, &probe);
    spipe_priv_probe_destroy(&probe);
    return e;
}

SPIPE_PRIV_LOCAL cudaError_t spipe_priv_doctor_all(const spipe_doctor_desc_t *d,
                                                   spipe_checkup_t *checkup, FILE *to) {
    const spipe_doctor_desc_t plain = spipe_doctor_default();
    spipe_checkup_t unseen;
    spipe_priv_doctor_t doc;
    cudaError_t e;
    int before;
    memset(&unseen, 0, sizeof unseen);
    doc.d = d ? d : &plain;
    doc.c = checkup ? checkup : &unseen;
    doc.to = to;
    memset(doc.c, 0, sizeof *doc.c);
    doc.c->copies_overlap = -1.0;
    doc.c->order_overlap = -1.0;
    doc.c->kernels_overlap = -1.0;
    SPIPE_TRY(spipe_priv_doctor_begin(doc.d, &before));
    e = spipe_priv_doctor_examine(&doc);
    (void)cudaSetDevice(before);
    if (to && e == cudaSuccess)
        fprintf(to, "%d problem%s\n", doc.c->num_look, doc.c->num_look == 1 ? "" : "s");
    return e == cudaSuccess && to && ferror(to) ? cudaErrorOperatingSystem : e;
}

SPIPE_API cudaError_t spipe_doctor(const spipe_doctor_desc_t *d, spipe_checkup_t *checkup,
                                   FILE *to) {
    const spipe_priv_visit_t visit = spipe_priv_arrive(cudaStreamCaptureModeThreadLocal);
    const cudaError_t e = spipe_priv_doctor_all(d, checkup, to);
    spipe_priv_depart(&visit);
    return e;
}

#endif /* SPIPE_PRIV_CODE */
#endif /* STREAMPIPE_TOOLS_H */

/*  MIT License: see the end of streampipe.h. Copyright (c) 2026 The streampipe authors. */
