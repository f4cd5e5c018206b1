/*  streampipe_timeline.h 0.2.0 -- records when each operation of a run happened, and says why the
    run was not faster.

    An optional companion of streampipe.h. It times every operation of a run, adds figures and a
    verdict (causes and cures) to the run's report, and draws the run as a chart for the terminal,
    SVG, HTML and Chrome trace. For C99, C++11 and CUDA C++. MIT licence.

    USE IT   Copy it beside streampipe.h and #include it. There is nothing to define, and nothing
             more to link. streampipe_tools.h includes it.

    A COMPLETE PROGRAM       nvcc -O3 -o why why.cu
BEGIN EXAMPLE why.cu
    #include "streampipe_timeline.h"

    static __global__ void halve(const float *x, float *y, size_t n) {
        size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[i] * 0.5f;
    }
    SPIPE_MAP_STAGE(halve_stage, halve, float, float)

    int main(void) {
        size_t n = 4000000;
        float *x = (float *)calloc(n, sizeof *x), *y = (float *)malloc(n * sizeof *y);
        static spipe_span_t spans[4000];                  // one entry per operation, for pictures
        spipe_timeline_t t = spipe_timeline_default();
        spipe_report_t   report;
        spipe_desc_t     d = spipe_desc_default();
        t.spans = spans;
        t.capacity = 4000;
        d.timeline = &t;                                  // record this run
        d.count = n;
        spipe_add_input (&d, x, sizeof *x);
        spipe_add_output(&d, y, sizeof *y);
        spipe_add_stage (&d, "halve", halve_stage, NULL);
        SPIPE_CHECK_RUN(&d, &report);
        spipe_report_print(&report, stdout);              // figures, causes, cures
        SPIPE_CHECK(spipe_timeline_print(&t, stdout, 100));
        SPIPE_CHECK(spipe_timeline_write_html(&t, "timeline.html"));   // zooms
        SPIPE_CHECK(spipe_timeline_write_trace(&t, "timeline.json"));  // for ui.perfetto.dev
        free(x); free(y);
        return 0;
    }
END EXAMPLE

    CONTENTS (search for the anchor; the second half of the file has the code in the same order)
      1  >>timeline  the types, and how a run fills them
      2  >>verdict   the causes that a report can name
      3  >>pictures  a chart for the terminal, SVG, HTML, Chrome trace
      4  >>json      the report as JSON

    WHAT IS MEASURED   A CUDA event is recorded before and after every operation, so the GPU's work
    is timed by the GPU's clock; work of host threads is timed by the host's clock. A recorded run
    needs two events per operation, created before it begins. Other runs need none.

    MACRO   Define SPIPE_NVTX before including this file, and a recorded run also opens an NVTX
    range around the issue of each operation, which Nsight Systems shows beside the GPU's work.

    READING THE PICTURES   A row is an engine: host threads that fill pinned slots, the copy engine
    in, each stage, the copy engine out, host threads that drain pinned slots. Operations of one
    engine that overlap get a row each. A colour (a digit on the terminal) is a chunk, or a group of
    chunks if there are too many; gaps show the background. The percentage at the right says how
    much of the time from the first bar on the row is busy, as the report and its verdict do. Times
    that come from a model and not from a clock are labelled "modelled" everywhere, the others
    "measured". The HTML page has the run's verdict below the chart.

    FILES are written under a temporary name (.part is appended, or .part1 .. if there is such a
    file or link) and renamed when complete, so a reader never sees half a file. Devices and pipes
    are written directly. The files load nothing from the network.
*/
#ifndef STREAMPIPE_TIMELINE_H
#define STREAMPIPE_TIMELINE_H

#include "streampipe.h"
#if SPIPE_VERSION != 200
#error "streampipe_timeline.h 0.2.0 needs streampipe.h 0.2.0: copy both from the same release"
#endif
#include <errno.h>
#include <sys/stat.h>
#if defined(_WIN32)
#include <fcntl.h>
#include <io.h>
#endif
#if defined(SPIPE_NVTX)
#include <nvtx3/nvToolsExt.h>
#endif

/* ============================================================================================
   >>api    every public type and function
   ============================================================================================ */

/* ---- 1 >>timeline -------------------------------------------------------------------------- */
typedef enum spipe_span_kind {
    SPIPE_SPAN_FILL = 0, /* host threads fill a pinned slot (staging, sources) */
    SPIPE_SPAN_IN,       /* copy host to device */
    SPIPE_SPAN_STAGE,    /* a stage on the device */
    SPIPE_SPAN_HOST,     /* a host stage */
    SPIPE_SPAN_OUT,      /* copy device to host */
    SPIPE_SPAN_DRAIN     /* host threads empty a pinned slot (staging, sinks) */
} spipe_span_kind_t;

/* One operation on one engine. */
typedef struct spipe_span {
    spipe_span_kind_t kind;
    int stage;  /* index of the stage; -1 for copies, fill, drain */
    int stream; /* index of the stream it ran in, from 0 */
    size_t chunk;
    double begin_ms, end_ms; /* since the run began */
} spipe_span_t;

/* A record of what a run did and when. Get one from spipe_timeline_default, set spans and capacity
   if you want the spans, and set desc.timeline to its address. */
typedef struct spipe_timeline {
    spipe_priv_watcher_t watch;           /* private; must be first */
    struct spipe_priv_recorder *recorder; /* private; NULL unless a run is being recorded */
    spipe_span_t *spans; /* the user's array (default: NULL, only the report is filled) */
    size_t capacity;     /* entries of spans */
    size_t num_spans;    /* entries filled by the run */
    size_t num_lost;     /* operations that are not in spans, because it was full */
    double wall_ms;      /* end of the last span */
    int modelled;        /* 1 = times come from a model, not a clock; shown as "modelled" */
    int num_stages;
    const char *stage_names[SPIPE_MAX_STAGES];
    char device[64];
    const char *title;  /* yours: which run it is, for the pictures (default: NULL, not said) */
    char verdict[1600]; /* as in the run's report; empty where the caller filled the rest */
} spipe_timeline_t;

/*  spipe_timeline_default -- an empty timeline, for desc.timeline to fill.

    Each run overwrites it with its spans, sorted by begin, and fills timed_ms and all fields after
    it in the run's report. A run that fails fills in what was done until then. Runs with a timeline
    are not replayed as a graph. spipe_pipeline_enqueue fills it only if the run has host work, so
    that it runs before the call returns.

    Returns    the timeline; its spans are NULL.
    Blocks     no.
    Threads    any; one timeline, one run at a time: a second returns cudaErrorNotPermitted.
    Callback   yes.   Capture  yes.
    Allocates  nothing. A recorded run: two events for each operation, freed before it returns. */
SPIPE_API spipe_timeline_t spipe_timeline_default(void);

/* ---- 2 >>verdict --------------------------------------------------------------------------- */
/* Why a run was not faster: bits of report.causes. report.verdict says the same in words, with the
   cure. */
typedef enum spipe_cause {
    SPIPE_CAUSE_PAGEABLE = 1,           /* arrays that are not pinned */
    SPIPE_CAUSE_LEGACY_STREAM = 2,      /* a stage used the legacy default stream, which
                                           synchronises with all blocking streams */
    SPIPE_CAUSE_OTHER_STREAM = 4,       /* a stage enqueued nothing on chunk->stream */
    SPIPE_CAUSE_STAGE_WAITS = 8,        /* a stage returned only when its work was done */
    SPIPE_CAUSE_ONE_COPY_ENGINE = 16,   /* the device copies in one direction at a time */
    SPIPE_CAUSE_BOTH_WAYS = 32,         /* copies slow each other down */
    SPIPE_CAUSE_SMALL_CHUNKS = 64,      /* much is lost between operations */
    SPIPE_CAUSE_LARGE_CHUNKS = 128,     /* the first and the last chunk run alone for long */
    SPIPE_CAUSE_DEPTH = 256,            /* copies in wait for a slot while nothing is busy */
    SPIPE_CAUSE_CONNECTIONS = 512,      /* more streams than hardware connections */
    SPIPE_CAUSE_LAUNCH_BLOCKING = 1024, /* CUDA_LAUNCH_BLOCKING is set */
    SPIPE_CAUSE_WATCHED = 2048,         /* a profiler or sanitizer is attached */
    SPIPE_CAUSE_SERIAL = 4096,          /* SPIPE_SCHEDULE_SERIAL or a checked run was asked for */
    SPIPE_CAUSE_HOST_WORK = 8192        /* host stages, sources or sinks take longest */
} spipe_cause_t;

/* ---- 3 >>pictures -------------------------------------------------------------------------- */
/*  spipe_timeline_print -- a chart of the timeline for a terminal.

    timeline   in      filled by a run, or by the caller; spans in any order. Spans whose times
                       are not numbers are left out and counted.
    to         in      an open file.
    columns    in      width of the chart in characters; at least 40 and at most 400 are used.
    Returns    cudaSuccess; cudaErrorInvalidValue; cudaErrorMemoryAllocation;
               cudaErrorOperatingSystem (cannot be written).
    Blocks     while it writes the file.   Threads  any.   Callback  yes.   Capture  yes.
    Allocates  host memory for a copy of the spans, freed before return. */
SPIPE_API cudaError_t spipe_timeline_print(const spipe_timeline_t *timeline, FILE *to, int columns);

/*  spipe_timeline_write_svg -- a picture for a page or a document, in light and dark.
    spipe_timeline_write_html -- a page that zooms and pans, and shows the chunk, stage, start and
    length of the operation under the pointer. Opened as page.html#0.5 it shows at least 0.5 ms, so
    that you can compare two runs on one scale.
    spipe_timeline_write_trace -- a Chrome trace for Perfetto, chrome://tracing and speedscope.

    timeline   in      filled by a run, or by the caller; spans in any order. Spans whose times
                       are not numbers are left out and counted.
    path       in      the file; an old one is replaced.
    Returns    cudaSuccess; cudaErrorInvalidValue; cudaErrorMemoryAllocation;
               cudaErrorOperatingSystem (cannot be written whole: errno says why, and an old file
               stays unchanged).
    Blocks     while it writes the file.   Threads  any; one path, one thread at a time.
    Callback   yes.   Capture  yes.
    Allocates  host memory for a copy of the spans, freed before return. */
SPIPE_API cudaError_t spipe_timeline_write_svg(const spipe_timeline_t *timeline, const char *path);
SPIPE_API cudaError_t spipe_timeline_write_html(const spipe_timeline_t *timeline, const char *path);
SPIPE_API cudaError_t spipe_timeline_write_trace(const spipe_timeline_t *timeline,
                                                 const char *path);

/* ---- 4 >>json ------------------------------------------------------------------------------ */
/*  spipe_report_write_json -- a report as one JSON object, a member for each of its fields.

    report     in      filled by a run. Times that are not numbers become null; units are in the
                       members' names, as in the struct.
    path       in      the file; an old one is replaced.
    Returns    cudaSuccess; cudaErrorInvalidValue; cudaErrorMemoryAllocation;
               cudaErrorOperatingSystem (cannot be written whole; an old file stays unchanged).
    Blocks     while it writes the file.   Threads  any; one path, one thread at a time.
    Callback   yes.   Capture  yes.   Allocates  a file name, freed before return. */
SPIPE_API cudaError_t spipe_report_write_json(const spipe_report_t *report, const char *path);

/* ============================================================================================
   >>impl   the same, as code. Names beginning spipe_priv_ are not for callers.
   ============================================================================================ */
#if SPIPE_PRIV_CODE
/* Whether v is between least and most; false for NaN. */
SPIPE_PRIV_LOCAL int spipe_priv_is_number(double v, double least, double most) {
    return v >= least && v <= most;
}

/* ---- 1 timeline: recording a run ----------------------------------------------------------- */
enum {
    SPIPE_PRIV_MAX_TIMED_OPS = 1 << 16, /* most operations of a run that are timed by events */
    SPIPE_PRIV_KINDS = SPIPE_SPAN_DRAIN + 1
};

/* An operation on the device that is timed by two events. */
typedef struct spipe_priv_timed_op {
    cudaEvent_t begin, end;
    size_t span;  /* index of its span */
    size_t chunk; /* that it belongs to */
    int slot;
    int again;  /* 1 = the slot was used before in this run */
    int stream; /* index in the pipeline's streams */
} spipe_priv_timed_op_t;

/* Observations of the first calls of a stage, which show whether it uses its stream and whether it
   waits for its own work. */
typedef struct spipe_priv_stage_probe {
    size_t calls;
    size_t busy;   /* calls made while the stream had work, */
    size_t waited; /* and of these the calls after which it had none: the stage waited */
    size_t probes; /* calls made on a stream that was synchronised just before, */
    size_t idle;   /* and of these the calls after which it was idle: nothing was enqueued */
    size_t legacy; /* calls after which the legacy default stream had work */
    int was_busy;  /* of the call under way: the stream had work, */
    int probing;   /* or was synchronised before it */
} spipe_priv_stage_probe_t;

/* How long the copies of full chunks in a direction took. */
typedef struct spipe_priv_copy_times {
    size_t num;
    double ms, least_ms; /* all together; the fastest of them */
} spipe_priv_copy_times_t;

/* What is recorded of a run. Arrays of 2 are for copies in and out. */
typedef struct spipe_priv_recorder {
    spipe_priv_timed_op_t *ops;
    size_t max_ops, num_ops;
    size_t lost; /* operations not recorded, because ops or spans was full */
    spipe_span_t *spans;
    size_t capacity, num_spans;
    int op_open;      /* 1 = the begin event of ops[num_ops] has been recorded */
    cudaEvent_t zero; /* recorded before the run, */
    double zero_s;    /* when the host's clock showed this */
    spipe_priv_stage_probe_t stages[SPIPE_MAX_STAGES];
    double wall_ms;
    double head_ms[SPIPE_PRIV_KINDS]; /* from the run's first operation to the first of this kind */
    double last_ms[SPIPE_PRIV_KINDS]; /* end of the last operation of this kind */
    spipe_priv_copy_times_t copies[2];
    double sync_ms; /* sum of the gaps between an operation being ready and its begin, */
    size_t steps;   /* over this many operations */
    double slot_ms; /* time in which a copy in waited only for its slot, */
    size_t slot_waits;
} spipe_priv_recorder_t;

#if defined(SPIPE_NVTX)
/* Opens an NVTX range before an operation, and closes it after. */
SPIPE_PRIV_LOCAL void spipe_priv_range(const char *name, size_t chunk, int after) {
    char text[96];
    if (after) {
        (void)nvtxRangePop();
        return;
    }
    snprintf(text, sizeof text, "%.64s %zu", name, chunk);
    spipe_priv_make_printable(text);
    (void)nvtxRangePushA(text);
}
#endif

/* The kind of span of an operation; -1 = it takes no time on the device. */
SPIPE_PRIV_LOCAL int spipe_priv_op_kind(const spipe_priv_op_t *op) {
    switch (op->what & (SPIPE_PRIV_OP_WATCHED - 1)) {
    case SPIPE_PRIV_OP_CALL:
    case SPIPE_PRIV_OP_CHECKED_CALL: return SPIPE_SPAN_STAGE;
    case SPIPE_PRIV_OP_COPY: return op->out ? SPIPE_SPAN_OUT : SPIPE_SPAN_IN;
    case SPIPE_PRIV_OP_COPIES: return op[1].out ? SPIPE_SPAN_OUT : SPIPE_SPAN_IN;
    case SPIPE_PRIV_OP_HALO: return SPIPE_SPAN_IN;
    default: return -1;
    }
}

SPIPE_PRIV_LOCAL const char *spipe_priv_span_name(spipe_span_kind_t kind) {
    static const char *const names[] = {"fill", "copy in", "stage", "host", "copy out", "drain"};
    return names[kind];
}

SPIPE_PRIV_LOCAL int spipe_priv_stream_number(const spipe_priv_pipeline_t *p, cudaStream_t stream) {
    int i = 0;
    while (i < p->streams.num && p->streams.streams[i] != stream) ++i;
    return i;
}

/* Adds a span, or returns NULL where there is no capacity left; its stage is -1. */
SPIPE_PRIV_LOCAL spipe_span_t *spipe_priv_new_span(spipe_priv_recorder_t *rec, int kind,
                                                   size_t chunk) {
    spipe_span_t *s = &rec->spans[rec->num_spans];
    if (rec->num_spans == rec->capacity) {
        ++rec->lost;
        return NULL;
    }
    ++rec->num_spans;
    memset(s, 0, sizeof *s);
    s->kind = (spipe_span_kind_t)kind;
    s->stage = -1;
    s->chunk = chunk;
    return s;
}

/* Whether three of the first spans of a stage are so short that they may contain no work. In a busy
   stream two events with nothing between them are mostly 3 to 8 us apart on an H200. */
SPIPE_PRIV_LOCAL int spipe_priv_stage_seems_empty(spipe_priv_recorder_t *rec, int stage) {
    size_t k, seen = 0;
    for (k = 0; k < rec->num_ops && seen < 3; ++k) {
        float ms = 0.0f;
        const spipe_priv_timed_op_t *timed = &rec->ops[k];
        if (rec->spans[timed->span].stage != stage) continue;
        if (!spipe_priv_reached(cudaEventQuery(timed->end))) break;
        if (cudaEventElapsedTime(&ms, timed->begin, timed->end) != cudaSuccess) break;
        seen += (double)ms < 0.012;
    }
    return seen > 2;
}

/* Called before and after a stage's first 16 calls, to see whether its work is on chunk->stream and
   still running when the stage returns. Where its spans seem empty, two calls are made on an idle
   stream: if it is idle after them too, the stage enqueued nothing there. */
SPIPE_PRIV_LOCAL void spipe_priv_probe_stage(spipe_priv_recorder_t *rec, const spipe_priv_op_t *op,
                                             int after) {
    spipe_priv_stage_probe_t *s = &rec->stages[op->stage];
    int idle;
    if (s->calls >= 16) return;
    if (!after) {
        s->probing = s->calls >= 8 && s->probes < 2 && spipe_priv_stage_seems_empty(rec, op->stage);
        if (s->probing && cudaStreamSynchronize(op->stream) != cudaSuccess) s->probing = 0;
        s->was_busy = !s->probing && !spipe_priv_reached(cudaStreamQuery(op->stream));
        return;
    }
    idle = spipe_priv_reached(cudaStreamQuery(op->stream));
    ++s->calls;
    s->busy += (size_t)s->was_busy;
    s->waited += (size_t)(s->was_busy && idle);
    s->probes += (size_t)s->probing;
    s->idle += (size_t)(s->probing && idle);
    s->legacy += !spipe_priv_reached(cudaStreamQuery(cudaStreamLegacy));
}

/* Called before and after an operation is issued: records its events. */
SPIPE_PRIV_LOCAL void spipe_priv_record_op(spipe_priv_recorder_t *rec,
                                           const spipe_priv_pipeline_t *p,
                                           const spipe_priv_op_t *op, const spipe_priv_slot_t *slot,
                                           int after) {
    const int kind = spipe_priv_op_kind(op);
    spipe_priv_timed_op_t *timed = &rec->ops[rec->num_ops];
    if (kind < 0 || !rec->ops) return;
    if (!after) {
        rec->op_open = 0;
        if (kind == SPIPE_SPAN_STAGE) spipe_priv_probe_stage(rec, op, 0);
        if (rec->num_ops == rec->max_ops)
            ++rec->lost;
        else
            rec->op_open = cudaEventRecord(timed->begin, op->stream) == cudaSuccess;
    } else {
        spipe_span_t *s;
        spipe_priv_lock(p->sync);
        s = rec->op_open ? spipe_priv_new_span(rec, kind, slot->chunk) : NULL;
        if (s && kind == SPIPE_SPAN_STAGE) s->stage = op->stage;
        timed->span = rec->num_spans - 1;
        spipe_priv_unlock(p->sync);
        timed->chunk = slot->chunk;
        timed->slot = slot->view.slot;
        timed->again = slot->used;
        timed->stream = spipe_priv_stream_number(p, op->stream);
        if (kind == SPIPE_SPAN_STAGE) spipe_priv_probe_stage(rec, op, 1);
        if (s && cudaEventRecord(timed->end, op->stream) == cudaSuccess) ++rec->num_ops;
    }
#if defined(SPIPE_NVTX)
    spipe_priv_range(kind == SPIPE_SPAN_STAGE ? p->request.desc.stages[op->stage].name
                                              : spipe_priv_span_name((spipe_span_kind_t)kind),
                     slot->chunk, after);
#endif
}

/* Called before and after a worker's task (fill, drain, host stage): adds its span. */
SPIPE_PRIV_LOCAL void spipe_priv_record_task(spipe_priv_recorder_t *rec,
                                             const spipe_priv_pipeline_t *p,
                                             const spipe_priv_task_t *t, int after) {
    static const spipe_span_kind_t kinds[] = {/* in the order of tasks */
                                              SPIPE_SPAN_DRAIN, SPIPE_SPAN_FILL, SPIPE_SPAN_HOST};
    const double now = spipe_priv_seconds();
    spipe_span_t *s;
    if (t->what == SPIPE_PRIV_TOUCH) return;
#if defined(SPIPE_NVTX)
    spipe_priv_range(t->what == SPIPE_PRIV_HOST ? p->request.desc.stages[t->stage].name
                                                : spipe_priv_span_name(kinds[t->what]),
                     t->chunk, after);
#endif
    if (!after) return;
    spipe_priv_lock(p->sync);
    s = spipe_priv_new_span(rec, (int)kinds[t->what], t->chunk);
    if (s) {
        if (t->what == SPIPE_PRIV_HOST) s->stage = t->stage;
        s->begin_ms = 1e3 * (t->began - rec->zero_s);
        s->end_ms = 1e3 * (now - rec->zero_s);
    }
    spipe_priv_unlock(p->sync);
}

/* The numbers of operations and tasks per chunk. */
SPIPE_PRIV_LOCAL void spipe_priv_count_timed(const spipe_priv_pipeline_t *p, size_t *ops,
                                             size_t *tasks) {
    size_t k;
    int i;
    *ops = 0;
    *tasks = (size_t)(p->route.fills != 0) + (size_t)(p->route.drains != 0);
    for (k = 0; k < p->program.num_ops; k += 1 + (size_t)p->program.ops[k].num) {
        *ops += spipe_priv_op_kind(&p->program.ops[k]) >= 0;
    }
    for (i = 0; i < p->request.desc.num_stages; ++i)
        *tasks += (size_t)p->request.desc.stages[i].host;
}

/* Allocates for all operations of the run, but for no more than the user's spans can hold and for
   no more than SPIPE_PRIV_MAX_TIMED_OPS. */
SPIPE_PRIV_LOCAL void spipe_priv_recorder_reserve(spipe_priv_recorder_t *rec,
                                                  const spipe_priv_pipeline_t *p,
                                                  const spipe_timeline_t *t) {
    const size_t most = SPIPE_PRIV_MAX_TIMED_OPS;
    size_t ops, tasks, spans = most;
    spipe_priv_count_timed(p, &ops, &tasks);
    if (p->run.num_chunks < most / (ops + tasks + 1)) spans = p->run.num_chunks * (ops + tasks);
    rec->max_ops = p->run.num_chunks < most / (ops + 1) ? p->run.num_chunks * ops : most;
    if (t->spans && t->capacity > 0) {
        rec->spans = t->spans;
        rec->capacity = t->capacity;
    } else {
        rec->spans = (spipe_span_t *)malloc((spans + 1) * sizeof *rec->spans);
        rec->capacity = rec->spans ? spans : 0;
    }
    if (rec->max_ops > rec->capacity) rec->max_ops = rec->capacity;
    rec->ops = (spipe_priv_timed_op_t *)calloc(rec->max_ops + 1, sizeof *rec->ops);
    if (!rec->ops) rec->max_ops = 0;
}

/* Milliseconds between two events; -1 if one of them was not reached. */
SPIPE_PRIV_LOCAL double spipe_priv_between(cudaEvent_t begin, cudaEvent_t end) {
    float ms = 0.0f;
    return cudaEventElapsedTime(&ms, begin, end) == cudaSuccess ? (double)ms : -1.0;
}

/* Creates the events, and reads the host's clock at the moment that the event `zero` is reached. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_recorder_create_events(spipe_priv_recorder_t *rec,
                                                               const spipe_priv_pipeline_t *p) {
    const cudaStream_t stream = p->streams.streams[0];
    size_t k, num = 0;
    SPIPE_TRY(cudaEventCreate(&rec->zero));
    for (k = 0; k < rec->max_ops; ++k) {
        if (cudaEventCreate(&rec->ops[k].begin) != cudaSuccess ||
            cudaEventCreate(&rec->ops[k].end) != cudaSuccess) {
            (void)cudaGetLastError();
            break;
        }
        ++num;
    }
    rec->max_ops = num;
    SPIPE_TRY(cudaEventRecord(rec->zero, stream));
    SPIPE_TRY(cudaEventSynchronize(rec->zero));
    rec->zero_s = spipe_priv_clock();
    return cudaSuccess;
}

/* Clears the report and the timeline, and prepares recording. Without memory for it the run goes on
   unrecorded. */
SPIPE_PRIV_LOCAL void spipe_priv_recorder_begin(spipe_timeline_t *t, spipe_priv_pipeline_t *p) {
    spipe_report_t *r = &p->report;
    spipe_priv_recorder_t *rec = (spipe_priv_recorder_t *)calloc(1, sizeof *rec);
    int i;
    memset(r->busy_ms, 0, sizeof r->busy_ms);
    memset(r->idle_ms, 0, sizeof r->idle_ms);
    memset(r->stage_ms, 0, sizeof r->stage_ms);
    for (i = 0; i < p->request.desc.num_stages; ++i)
        r->stage_names[i] = p->request.desc.stages[i].name;
    r->serial_ms = 0.0;
    r->bound_ms = 0.0;
    r->overlap = 0.0;
    r->sync_us = 0.0;
    r->causes = 0;
    r->verdict[0] = 0;
    t->recorder = rec;
    t->num_spans = 0;
    t->num_lost = 0;
    t->modelled = 0;
    t->wall_ms = 0.0;
    t->verdict[0] = 0;
    t->num_stages = p->request.desc.num_stages;
    memcpy(t->device, p->request.facts.name, sizeof t->device);
    for (i = 0; i < t->num_stages; ++i) t->stage_names[i] = p->request.desc.stages[i].name;
    if (!rec) return;
    spipe_priv_recorder_reserve(rec, p, t);
    if (spipe_priv_recorder_create_events(rec, p) == cudaSuccess) return;
    (void)cudaGetLastError();
    rec->max_ops = 0;
}

/* ---- 1 timeline: figures ------------------------------------------------------------------- */
/* If the CUDA runtime models the work of host threads, its times replace those of this CPU. */
SPIPE_PRIV_LOCAL void spipe_priv_recorder_read_model(spipe_priv_recorder_t *rec,
                                                     const spipe_priv_pipeline_t *p) {
    size_t k;
    for (k = 0; k < rec->num_spans; ++k) {
        spipe_span_t *s = &rec->spans[k];
        double begin = 0.0, end = 0.0;
        int what = SPIPE_PRIV_FILL;
        if (s->kind == SPIPE_SPAN_DRAIN) what = SPIPE_PRIV_DRAIN;
        if (s->kind == SPIPE_SPAN_HOST) what = SPIPE_PRIV_HOST;
        if (what == SPIPE_PRIV_FILL && s->kind != SPIPE_SPAN_FILL) continue;
        if (!spipe_priv_model_times(p, what, s->stage, s->chunk, &begin, &end)) continue;
        s->begin_ms = 1e3 * (begin - rec->zero_s);
        s->end_ms = 1e3 * (end - rec->zero_s);
    }
}

/* Reads the events' times into the spans, with 0 at the run's begin; spans without times get an end
   of -1 and count as lost. began_ms is when the run began on the host's clock. The device's clock
   may show an operation before that, because a modelled clock stands still while the device is
   idle; then the run begins with that operation. */
SPIPE_PRIV_LOCAL void spipe_priv_recorder_read_times(spipe_priv_recorder_t *rec, double began_ms) {
    size_t k, kept = 0;
    for (k = 0; k < rec->num_ops; ++k) {
        const spipe_priv_timed_op_t *timed = &rec->ops[k];
        spipe_span_t *s = &rec->spans[timed->span];
        s->begin_ms = spipe_priv_between(rec->zero, timed->begin);
        s->end_ms = s->begin_ms < 0.0 ? -1.0 : spipe_priv_between(rec->zero, timed->end);
        s->stream = timed->stream;
        if (s->begin_ms >= 0.0 && s->begin_ms < began_ms) began_ms = s->begin_ms;
    }
    (void)cudaGetLastError(); /* in a run that failed, some events were never reached */
    for (k = 0; k < rec->num_spans; ++k) {
        spipe_span_t *s = &rec->spans[k];
        if (s->end_ms < s->begin_ms || s->end_ms <= 0.0) s->end_ms = -1.0;
        s->begin_ms -= began_ms;
        if (s->end_ms >= 0.0) s->end_ms -= began_ms;
        if (s->begin_ms < 0.0) s->begin_ms = 0.0; /* the clocks differ by microseconds */
        kept += s->end_ms >= 0.0;
    }
    rec->lost += rec->num_spans - kept;
}

/* Sums up two kinds of gaps. An operation is ready when the operations before it in its slot and in
   its stream have ended: the gap from there to its begin is synchronisation overhead. And where a
   copy in had only its slot to wait for, more slots would have helped. */
SPIPE_PRIV_LOCAL void spipe_priv_recorder_sum_waits(spipe_priv_recorder_t *rec,
                                                    const spipe_priv_pipeline_t *p) {
    double slot_end[SPIPE_MAX_DEPTH] = {0};
    double stream_end[SPIPE_PRIV_MAX_PIPELINE_STREAMS + 1] = {0};
    size_t k;
    for (k = 0; k < rec->num_ops; ++k) {
        const spipe_priv_timed_op_t *timed = &rec->ops[k];
        const spipe_span_t *s = &rec->spans[timed->span];
        double *slot = &slot_end[timed->slot];
        double *stream = &stream_end[timed->stream];
        const double ready = *slot > *stream ? *slot : *stream;
        const int in = s->kind == SPIPE_SPAN_IN;
        const int stage = s->kind == SPIPE_SPAN_STAGE;
        if (s->end_ms < 0.0) continue;
        if (ready > 0.0 && (stage ? p->route.num_segments == 1 : !p->route.host_work)) {
            if (s->begin_ms > ready) rec->sync_ms += s->begin_ms - ready;
            ++rec->steps;
        }
        if (in && timed->again && *slot > *stream + 0.004 && !p->route.host_work) {
            ++rec->slot_waits;
            rec->slot_ms += *slot - *stream;
        }
        *slot = s->end_ms;
        *stream = s->end_ms;
    }
}

/* The duration of copies of full chunks: all together, and the fastest, which stands for a copy
   that has the bus to itself. */
SPIPE_PRIV_LOCAL void spipe_priv_recorder_sum_copies(spipe_priv_recorder_t *rec,
                                                     const spipe_priv_pipeline_t *p) {
    size_t k;
    for (k = 0; k < rec->num_ops; ++k) {
        const spipe_span_t *s = &rec->spans[rec->ops[k].span];
        const int out = s->kind == SPIPE_SPAN_OUT;
        const double ms = s->end_ms - s->begin_ms;
        spipe_priv_copy_times_t *t = &rec->copies[out];
        if ((!out && s->kind != SPIPE_SPAN_IN) || s->end_ms < 0.0) continue;
        /* The last chunk may be shorter. */
        if (p->run.num_chunks > 1 && rec->ops[k].chunk + 1 >= p->run.num_chunks) continue;
        if (t->num++ == 0 || ms < t->least_ms) t->least_ms = ms;
        t->ms += ms;
    }
}

/* Sorts by begin, then by kind. */
SPIPE_PRIV_LOCAL int spipe_priv_span_order(const void *left, const void *right) {
    const spipe_span_t *a = (const spipe_span_t *)left;
    const spipe_span_t *b = (const spipe_span_t *)right;
    if (a->begin_ms != b->begin_ms) return a->begin_ms < b->begin_ms ? -1 : 1;
    return a->kind < b->kind ? -1 : a->kind > b->kind;
}

/* The time in which at least one operation of each kind, and of each stage, was running. The spans
   are sorted by begin. */
SPIPE_PRIV_LOCAL void spipe_priv_recorder_sum_busy(spipe_priv_recorder_t *rec, spipe_report_t *r) {
    double end[SPIPE_PRIV_KINDS];
    double stage_end[SPIPE_MAX_STAGES] = {0};
    double begin = -1.0, last = 0.0;
    size_t k;
    int i;
    for (i = 0; i < SPIPE_PRIV_KINDS; ++i) {
        end[i] = -1.0;
        rec->head_ms[i] = -1.0;
    }
    for (k = 0; k < rec->num_spans; ++k) {
        const spipe_span_t *s = &rec->spans[k];
        double *e = &end[s->kind];
        double *se = &stage_end[s->stage < 0 ? 0 : s->stage];
        if (begin < 0.0) begin = s->begin_ms;
        if (*e < 0.0) {
            *e = s->begin_ms;
            rec->head_ms[s->kind] = s->begin_ms;
        }
        if (s->begin_ms > *e) r->idle_ms[s->kind] += s->begin_ms - *e;
        if (s->end_ms > *e) {
            r->busy_ms[s->kind] += s->end_ms - (s->begin_ms > *e ? s->begin_ms : *e);
            *e = s->end_ms;
        }
        if (s->end_ms > last) last = s->end_ms;
        if (s->stage < 0 || s->end_ms <= *se) continue;
        r->stage_ms[s->stage] += s->end_ms - (s->begin_ms > *se ? s->begin_ms : *se);
        *se = s->end_ms;
    }
    for (i = 0; i < SPIPE_PRIV_KINDS; ++i) rec->last_ms[i] = end[i];
    for (i = 0; i < SPIPE_PRIV_KINDS; ++i) rec->head_ms[i] -= begin;
    rec->wall_ms = last;
    r->timed_ms = begin < 0.0 ? 0.0 : last - begin;
}

/* Estimates how long the same work would take with nothing overlapping: the sum of all engines'
   times, with copies at the rate that they reach alone; from it the share of the possible overlap
   that was reached. */
SPIPE_PRIV_LOCAL void spipe_priv_recorder_estimate_serial(const spipe_priv_recorder_t *rec,
                                                          const spipe_priv_pipeline_t *p,
                                                          spipe_report_t *r) {
    double most = 0.0;
    int i;
    for (i = 0; i < SPIPE_PRIV_KINDS; ++i) {
        const int out = i == SPIPE_SPAN_OUT;
        const int copy = out || i == SPIPE_SPAN_IN;
        const spipe_priv_copy_times_t *t = &rec->copies[out];
        double ms = r->busy_ms[i];
        if (copy && t->num > 1 && t->ms > 0.0) {
            ms *= (double)t->num * t->least_ms / t->ms;
        }
        if (ms > most) most = ms;
        if (r->busy_ms[i] > r->bound_ms) r->bound_ms = r->busy_ms[i];
        if (i != SPIPE_SPAN_STAGE && i != SPIPE_SPAN_HOST) r->serial_ms += ms;
    }
    for (i = 0; i < p->request.desc.num_stages; ++i) r->serial_ms += r->stage_ms[i];
    if (r->serial_ms < r->timed_ms && p->run.num_chunks <= 1) r->serial_ms = r->timed_ms;
    if (r->serial_ms - most > 0.0) {
        r->overlap = (r->serial_ms - r->timed_ms) / (r->serial_ms - most);
    }
    if (r->overlap < 0.0) r->overlap = 0.0;
    if (r->overlap > 1.0) r->overlap = 1.0;
    r->sync_us = rec->steps > 0 ? 1e3 * rec->sync_ms / (double)rec->steps : 0.0;
}

/* ---- 2 verdict ----------------------------------------------------------------------------- */
SPIPE_PRIV_LOCAL int spipe_priv_env_is_set(const char *name) {
    const char *value = getenv(name);
    return value && value[0] && strcmp(value, "0") != 0;
}

/* Returns 1 if a profiler or compute-sanitizer runs this program. */
SPIPE_PRIV_LOCAL int spipe_priv_env_profiler(void) {
    return getenv("CUDA_INJECTION64_PATH") || getenv("NSYS_PROFILING_SESSION_ID") ||
           getenv("NV_SANITIZER_INJECTION_TRANSPORT_TYPE");
}

/* The number of hardware connections (queues) that streams are spread over. */
SPIPE_PRIV_LOCAL size_t spipe_priv_env_connections(void) {
    const char *limit = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    const long given = limit ? strtol(limit, NULL, 10) : 8;
    if (given < 1) return 8;
    return given > 32 ? 32 : (size_t)given;
}

/* Adds a cause, and a line that explains it to the verdict. */
SPIPE_PRIV_LOCAL void spipe_priv_add_cause(spipe_report_t *r, unsigned cause, const char *format,
                                           ...) {
    const size_t at = strlen(r->verdict);
    va_list args;
    r->causes |= cause;
    if (at + 2 >= sizeof r->verdict) return;
    if (at > 0) memcpy(r->verdict + at, "\n", 2);
    va_start(args, format);
    vsnprintf(r->verdict + at + (at > 0), sizeof r->verdict - at - (at > 0), format, args);
    va_end(args);
    spipe_priv_make_printable(r->verdict + at + (at > 0));
}

/* The busiest engine, as a kind of span. */
SPIPE_PRIV_LOCAL int spipe_priv_busiest(const spipe_report_t *r) {
    int i, most = 0;
    for (i = 1; i < SPIPE_PRIV_KINDS; ++i) {
        if (r->busy_ms[i] > r->busy_ms[most]) most = i;
    }
    return most;
}

/* Names the busiest engine, and of several stages the longest. */
SPIPE_PRIV_LOCAL void spipe_priv_judge_limit(spipe_report_t *r, const spipe_priv_pipeline_t *p,
                                             int limit) {
    static const char *const names[] = {"the host threads that fill pinned slots",
                                        "copies in",
                                        "the stages",
                                        "the host stages",
                                        "copies out",
                                        "the host threads that drain pinned slots"};
    const double used = r->bound_ms / r->timed_ms;
    const char *end = used >= 0.9 ? ": speeding up anything else would gain nothing" : "";
    int i, s = 0;
    for (i = 1; i < p->request.desc.num_stages; ++i) {
        if (r->stage_ms[i] > r->stage_ms[s]) s = i;
    }
    if (limit == SPIPE_SPAN_STAGE && p->request.desc.num_stages > 1) {
        spipe_priv_add_cause(r, 0,
                             "the limit is %s, most of it '%.64s', busy %.0f %% of the time%s",
                             names[limit], p->request.desc.stages[s].name, 100.0 * used, end);
    } else {
        spipe_priv_add_cause(r, 0, "the limit is %s, busy %.0f %% of the time%s", names[limit],
                             100.0 * used, end);
    }
}

/* Causes outside the pipeline: the environment, the request, the device. */
SPIPE_PRIV_LOCAL void spipe_priv_judge_environment(spipe_report_t *r,
                                                   const spipe_priv_pipeline_t *p) {
    const size_t connections = spipe_priv_env_connections();
    if (spipe_priv_env_is_set("CUDA_LAUNCH_BLOCKING")) {
        spipe_priv_add_cause(
            r, SPIPE_CAUSE_LAUNCH_BLOCKING,
            "CUDA_LAUNCH_BLOCKING is set, so every launch waits for its kernel: unset it (to find "
            "the stage that fails, use a checked run instead (desc.checked))");
    }
    if (spipe_priv_env_profiler()) {
        spipe_priv_add_cause(r, SPIPE_CAUSE_WATCHED,
                             "a profiler or sanitizer is attached and may serialise the work: "
                             "measure without it");
    }
    if (p->request.desc.checked ||
        (p->plan.schedule == SPIPE_SCHEDULE_SERIAL && p->run.num_chunks > 1)) {
        spipe_priv_add_cause(
            r, SPIPE_CAUSE_SERIAL, "%s was requested, so nothing overlaps: remove it",
            p->request.desc.checked ? "a checked run" : "the schedule SPIPE_SCHEDULE_SERIAL");
    }
    if ((size_t)p->streams.num > connections) {
        spipe_priv_add_cause(
            r, SPIPE_CAUSE_CONNECTIONS,
            "%d streams share %zu hardware connections, so some wait for each other: use fewer "
            "parallel stages, or set CUDA_DEVICE_MAX_CONNECTIONS before the program starts",
            p->streams.num, connections);
    }
    if (p->request.facts.copy_engines < 2 && p->run.moved[0] > 0 && p->run.moved[1] > 0) {
        spipe_priv_add_cause(r, SPIPE_CAUSE_ONE_COPY_ENGINE,
                             "the device has %d copy engine, so copies in and out take turns: copy "
                             "less, or keep data on the device",
                             p->request.facts.copy_engines);
    }
}

/* Names the first buffer in pageable memory. */
SPIPE_PRIV_LOCAL void spipe_priv_judge_memory(spipe_report_t *r, const spipe_priv_pipeline_t *p) {
    int i, which = -1;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        int type = SPIPE_PRIV_PINNED;
        if (which >= 0 || !b->host || p->request.arrays[i].pins ||
            p->request.facts.host_page_tables)
            continue;
        if (spipe_priv_memory_type(b->host, &type, NULL) != cudaSuccess) (void)cudaGetLastError();
        if (type == SPIPE_PRIV_PAGEABLE && !spipe_priv_kind(b->kind)->once) which = i;
    }
    if (which < 0) return;
    spipe_priv_add_cause(
        r, SPIPE_CAUSE_PAGEABLE,
        p->route.pageable_copies
            ? "buffer %d is pageable and copied by CUDA, which blocks the issuing thread: pin it "
              "(spipe_pin, spipe_pinned_alloc) if it is used often, or let it be staged"
            : "buffer %d is pageable and goes through pinned slots, which takes host threads and "
              "memory bandwidth: pin it (spipe_pin, spipe_pinned_alloc) if it is used often",
        which);
}

/* Stages that use another stream or wait for their own work. */
SPIPE_PRIV_LOCAL void spipe_priv_judge_stages(spipe_report_t *r, const spipe_priv_pipeline_t *p,
                                              const spipe_priv_recorder_t *rec) {
    int i;
    for (i = 0; i < p->request.desc.num_stages; ++i) {
        const spipe_priv_stage_probe_t *s = &rec->stages[i];
        const char *name = p->request.desc.stages[i].name;
        const int waited = s->busy >= 4 && s->waited * 10 >= s->busy * 9;
        if (s->legacy > 0) {
            spipe_priv_add_cause(
                r, SPIPE_CAUSE_LEGACY_STREAM,
                "the legacy default stream is in use around stage '%.64s': it and all blocking "
                "streams wait for each other; enqueue on chunk->stream, and create other streams "
                "with cudaStreamNonBlocking",
                name);
        }
        if (s->probes > 0 && s->idle == s->probes && waited) {
            spipe_priv_add_cause(
                r, SPIPE_CAUSE_OTHER_STREAM | SPIPE_CAUSE_STAGE_WAITS,
                "stage '%.64s' enqueued nothing on chunk->stream, or returned only when its work "
                "was done: enqueue all of it on chunk->stream, and remove calls that synchronise",
                name);
        } else if (s->probes > 0 && s->idle == s->probes) {
            spipe_priv_add_cause(
                r, SPIPE_CAUSE_OTHER_STREAM,
                "stage '%.64s' enqueued nothing on chunk->stream, so its work is not ordered with "
                "the copies: enqueue all of it on chunk->stream",
                name);
        } else if (waited && !spipe_priv_env_is_set("CUDA_LAUNCH_BLOCKING") &&
                   !p->request.desc.checked) {
            spipe_priv_add_cause(
                r, SPIPE_CAUSE_STAGE_WAITS,
                "stage '%.64s' returned only when its work was done, so nothing else was issued "
                "meanwhile: remove calls that synchronise (cudaDeviceSynchronize, cudaMemcpy, "
                "cudaFree, ...)",
                name);
        }
    }
}

/* Copies in both directions that slow each other down. */
SPIPE_PRIV_LOCAL void spipe_priv_judge_copies(spipe_report_t *r, const spipe_priv_pipeline_t *p,
                                              const spipe_priv_recorder_t *rec, int limit) {
    const int out = limit == SPIPE_SPAN_OUT;
    const spipe_priv_copy_times_t *t = &rec->copies[out];
    double slower;
    if (limit != SPIPE_SPAN_IN && !out) return;
    if (p->request.facts.copy_engines < 2 || rec->copies[0].num < 4 || rec->copies[1].num < 4)
        return;
    slower = t->ms / (double)t->num / t->least_ms;
    if (slower < 1.02) return;
    spipe_priv_add_cause(
        r, SPIPE_CAUSE_BOTH_WAYS,
        "copies %s take %.2f x as long as alone, because both directions share the bus and the "
        "host's memory: only fewer bytes would help",
        out ? "out" : "in", slower);
}

/* Chunks that are too small or too large, and too few slots. */
SPIPE_PRIV_LOCAL void spipe_priv_judge_chunks(spipe_report_t *r, const spipe_priv_pipeline_t *p,
                                              const spipe_priv_recorder_t *rec, int limit) {
    const double ends = rec->head_ms[limit] + (rec->wall_ms - rec->last_ms[limit]);
    const double used = r->bound_ms / r->timed_ms;
    const int asked = !strncmp(p->plan.why_chunk, "as asked", 8);
    const char *cure = "a larger total would make it matter less";
    const int serial = p->request.desc.checked || p->run.one_stream;
    const double moved =
        (double)(p->run.moved[0] > p->run.moved[1] ? p->run.moved[0] : p->run.moved[1]);
    const double bytes = moved / (double)(p->run.num_chunks > 0 ? p->run.num_chunks : 1);
    if (used >= 0.9 || serial) return;
    if (ends > 0.12 * r->timed_ms && bytes >= 262144.0) {
        spipe_priv_add_cause(r, SPIPE_CAUSE_LARGE_CHUNKS,
                             "for %.0f %% of the time the pipeline fills and drains, with only the "
                             "first or the last of %zu chunks in work: %s",
                             100.0 * ends / r->timed_ms, p->run.num_chunks,
                             asked ? "make chunks smaller, or leave desc.chunk at SPIPE_AUTO"
                                   : cure);
    } else if (bytes < 131072.0 && p->run.num_chunks >= 16) {
        spipe_priv_add_cause(
            r, SPIPE_CAUSE_SMALL_CHUNKS,
            "copies of %.1f KiB are too small: each operation begins %.1f us after "
            "it could, on average: %s",
            bytes / 1024.0, r->sync_us,
            asked ? "make chunks larger, or leave desc.chunk at SPIPE_AUTO" : cure);
    }
    if (rec->slot_ms > 0.1 * r->timed_ms && !p->route.fills) {
        spipe_priv_add_cause(r, SPIPE_CAUSE_DEPTH,
                             "copies in waited %zu time%s for a free slot, %.0f %% of the time in "
                             "all: use a depth of more than %zu",
                             rec->slot_waits, rec->slot_waits == 1 ? "" : "s",
                             100.0 * rec->slot_ms / r->timed_ms, p->plan.depth);
    }
}

/* What helps where host work is the limit. */
SPIPE_PRIV_LOCAL const char *spipe_priv_host_cure(const spipe_priv_pipeline_t *p, int limit) {
    const int source = spipe_priv_first_in_order(&p->request.desc, 0);
    if (limit == SPIPE_SPAN_HOST) return "do less in host stages, or move work to the device";
    if (limit == SPIPE_SPAN_FILL && source >= 0 && p->request.desc.buffers[source].filler) {
        return "do less in the split source, or give it more threads";
    }
    return "one thread calls the source or sink; add it with SPIPE_ANY_ORDER, split "
           "(spipe_add_split_source), or faster";
}

/* Writes the verdict: the limit first, then all causes. */
SPIPE_PRIV_LOCAL void spipe_priv_judge(spipe_report_t *r, const spipe_priv_pipeline_t *p,
                                       const spipe_priv_recorder_t *rec) {
    const int limit = spipe_priv_busiest(r);
    if (!(r->timed_ms > 0.0)) return;
    spipe_priv_judge_limit(r, p, limit);
    spipe_priv_judge_environment(r, p);
    spipe_priv_judge_memory(r, p);
    spipe_priv_judge_stages(r, p, rec);
    spipe_priv_judge_copies(r, p, rec, limit);
    spipe_priv_judge_chunks(r, p, rec, limit);
    if (limit == SPIPE_SPAN_HOST ||
        (spipe_priv_first_in_order(&p->request.desc, 0) >= 0 && limit == SPIPE_SPAN_FILL) ||
        (spipe_priv_first_in_order(&p->request.desc, 1) >= 0 && limit == SPIPE_SPAN_DRAIN)) {
        spipe_priv_add_cause(r, SPIPE_CAUSE_HOST_WORK, "the device waits for host work: %s",
                             spipe_priv_host_cure(p, limit));
    }
    if (rec->lost > 0) {
        spipe_priv_add_cause(
            r, 0, "%zu operations did not fit into the timeline and are not in these figures",
            rec->lost);
    }
}

/* ---- 1 timeline: the end of a run ---------------------------------------------------------- */
/* Computes all figures, hands the spans to the timeline, and frees the recorder. */
SPIPE_PRIV_LOCAL void spipe_priv_recorder_end(spipe_timeline_t *t, spipe_priv_pipeline_t *p) {
    spipe_priv_recorder_t *rec = t->recorder;
    spipe_report_t *r = &p->report;
    size_t k, kept = 0;
    spipe_priv_recorder_read_model(rec, p);
    spipe_priv_recorder_read_times(rec, 1e3 * (p->run.began - rec->zero_s));
    spipe_priv_recorder_sum_waits(rec, p);
    spipe_priv_recorder_sum_copies(rec, p);
    for (k = 0; k < rec->num_spans; ++k) {
        if (rec->spans[k].end_ms >= 0.0) rec->spans[kept++] = rec->spans[k];
    }
    rec->num_spans = kept;
    if (kept > 0) qsort(rec->spans, kept, sizeof *rec->spans, spipe_priv_span_order);
    spipe_priv_recorder_sum_busy(rec, r);
    spipe_priv_recorder_estimate_serial(rec, p, r);
    spipe_priv_judge(r, p, rec);
    memcpy(t->verdict, r->verdict, sizeof t->verdict);
    t->wall_ms = rec->wall_ms;
    t->num_lost = rec->lost;
    t->num_spans = rec->spans == t->spans ? kept : 0;
    if (rec->spans != t->spans) free(rec->spans);
    for (k = 0; k < rec->num_ops || (rec->ops && rec->ops[k].begin); ++k) {
        if (rec->ops[k].begin) (void)cudaEventDestroy(rec->ops[k].begin);
        if (rec->ops[k].end) (void)cudaEventDestroy(rec->ops[k].end);
    }
    if (rec->zero) (void)cudaEventDestroy(rec->zero);
    free(rec->ops);
    free(rec);
    t->recorder = NULL;
}

/* The pipeline calls this before and after a run, an operation and a worker's task, from the thread
   that runs it or from a worker. */
SPIPE_PRIV_LOCAL void spipe_priv_timeline_notify(spipe_timeline_t *t, spipe_priv_pipeline_t *p,
                                                 int what, const void *about,
                                                 const spipe_priv_slot_t *slot, int after) {
    if (what == SPIPE_PRIV_WATCH_RUN && !after) spipe_priv_recorder_begin(t, p);
    if (!t->recorder) return;
    if (what == SPIPE_PRIV_WATCH_RUN && after) {
        spipe_priv_recorder_end(t, p);
    } else if (what == SPIPE_PRIV_WATCH_OP) {
        spipe_priv_record_op(t->recorder, p, (const spipe_priv_op_t *)about, slot, after);
    } else if (what == SPIPE_PRIV_WATCH_TASK) {
        spipe_priv_record_task(t->recorder, p, (const spipe_priv_task_t *)about, after);
    }
}

SPIPE_API spipe_timeline_t spipe_timeline_default(void) {
    spipe_timeline_t t;
    memset(&t, 0, sizeof t);
    t.watch.stamp = SPIPE_PRIV_STAMP;
    t.watch.notify = spipe_priv_timeline_notify;
    return t;
}

/* ---- numbers, text and files -------------------------------------------------------------- */
SPIPE_PRIV_LOCAL unsigned long long spipe_priv_round(double v) {
    const unsigned long long n = (unsigned long long)v;
    return n + (v - (double)n >= 0.5);
}

/* Prints a number with a decimal point in every locale, which printf does not. |v| is at most
   1e12. */
SPIPE_PRIV_LOCAL void spipe_priv_put(FILE *f, double v, int decimals) {
    unsigned long long scale = 1, n;
    int i;
    for (i = 0; i < decimals; ++i) scale *= 10;
    if (v < 0.0) fputc('-', f);
    n = spipe_priv_round((v < 0.0 ? -v : v) * (double)scale);
    fprintf(f, "%llu", n / scale);
    if (decimals > 0) fprintf(f, ".%0*llu", decimals, n % scale);
}

enum {
    SPIPE_PRIV_PLAIN,
    SPIPE_PRIV_XML,
    SPIPE_PRIV_JSON
};

/* Writes at most max characters of a name, escaped for the format, and returns how many. Control
   characters, and what is not UTF-8, become question marks or U+FFFD, because they would move a
   terminal's cursor or be refused by an XML reader. "<" is escaped in JSON too: that JSON is also
   placed in an HTML script, which "</" or "<!--" would end. */
SPIPE_PRIV_LOCAL int spipe_priv_put_text(FILE *f, const char *text, int form, int max) {
    const char *at = text ? text : "";
    int n = 0;
    for (; *at && n < max; ++n) {
        const char *from = at;
        unsigned c = spipe_priv_next_char(&at);
        if (c == 0xFFFE || c == 0xFFFF) c = 0xFFFD; /* XML has no such characters */
        if (c == 0x2028 || c == 0x2029) c = ' ';    /* ends a line of JavaScript */
        if (c == 0xFFFD) {
            fputs(form == SPIPE_PRIV_PLAIN ? "?" : "\xEF\xBF\xBD", f);
        } else if (c >= 0x80) {
            (void)fwrite(from, 1, (size_t)(at - from), f);
        } else if (form == SPIPE_PRIV_PLAIN || !strchr("<>&\"'\\", (int)c)) {
            fputc((int)c, f);
        } else if (form == SPIPE_PRIV_XML) {
            fprintf(f, "&#%u;", c);
        } else {
            fprintf(f, "\\u%04x", c);
        }
    }
    return n;
}

/* A file that is written under a temporary name and renamed when it is complete. */
typedef struct spipe_priv_file {
    FILE *f;
    const char *path;
    char *part; /* the temporary name; NULL where path is a device or a pipe */
} spipe_priv_file_t;

/* Creates a file; NULL where there is one of that name already, or a link. */
SPIPE_PRIV_LOCAL FILE *spipe_priv_create_file(const char *name) {
#if defined(_WIN32)
    const int number = _open(name, _O_WRONLY | _O_CREAT | _O_EXCL | _O_BINARY, _S_IWRITE);
    return number < 0 ? NULL : _fdopen(number, "wb");
#else
    return fopen(name, "wbx");
#endif
}

SPIPE_PRIV_LOCAL cudaError_t spipe_priv_file_open(spipe_priv_file_t *file, const char *path) {
    int plain = 1, k;
#if defined(S_ISREG)
    struct stat st;
    plain = !path || stat(path, &st) != 0 || S_ISREG(st.st_mode);
#endif
    file->f = NULL;
    file->path = path;
    file->part = NULL;
    if (!path || !path[0]) return cudaErrorInvalidValue;
    if (plain) {
        const size_t bytes = strlen(path) + sizeof ".part99";
        file->part = (char *)malloc(bytes);
        if (!file->part) return cudaErrorMemoryAllocation;
        errno = EEXIST;
        for (k = 0; k < 100 && !file->f && errno == EEXIST; ++k) { /* into no old file or link */
            (void)snprintf(file->part, bytes, k > 0 ? "%s.part%d" : "%s.part", path, k);
            file->f = spipe_priv_create_file(file->part);
        }
    } else {
        file->f = fopen(path, "wb");
    }
    if (file->f) return cudaSuccess;
    free(file->part);
    return cudaErrorOperatingSystem;
}

/* Closes and renames the file. A full disk may show only here, when the last bytes are flushed. On
   failure errno is that of the first call that failed. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_file_close(spipe_priv_file_t *file) {
    int bad = ferror(file->f);
    int why;
    bad |= fflush(file->f) != 0;
    why = errno;
    if (fclose(file->f) != 0 && !bad) {
        bad = 1;
        why = errno;
    }
    if (file->part) {
#if defined(_WIN32)
        if (!bad) (void)remove(file->path); /* rename does not replace a file on Windows */
#endif
        if (!bad && rename(file->part, file->path) != 0) {
            bad = 1;
            why = errno;
        }
        if (bad) (void)remove(file->part);
        free(file->part);
    }
    if (bad) errno = why;
    return bad ? cudaErrorOperatingSystem : cudaSuccess;
}

/* ---- 3 pictures: the rows ------------------------------------------------------------------ */
enum {
    SPIPE_PRIV_MAX_ROWS = 64,
    SPIPE_PRIV_MAX_COLUMNS = 400,
    SPIPE_PRIV_HUES = 8
};

typedef struct spipe_priv_row {
    spipe_span_kind_t kind;
    int stage;
    int number; /* number among the rows of this kind and stage, from 0 */
    int stream;
    size_t first, num_bars;
    double end_ms, busy_ms;
} spipe_priv_row_t;

typedef struct spipe_priv_bar {
    spipe_span_t span; /* first, so that a bar can be sorted as a span */
    int row;
} spipe_priv_bar_t;

/* A timeline as all pictures show it: only valid numbers, sorted by row and time, no overlap within
   a row. */
typedef struct spipe_priv_chart {
    const spipe_timeline_t *timeline;
    spipe_priv_bar_t *bars;
    size_t num_bars, num_chunks, num_left_out;
    size_t per_hue;           /* chunks that share a colour */
    double first_ms, wall_ms; /* when the first bar begins, and when the last one ends */
    int num_rows;
    spipe_priv_row_t rows[SPIPE_PRIV_MAX_ROWS];
} spipe_priv_chart_t;

/* Sorts by row, kind, stage, time and chunk. */
SPIPE_PRIV_LOCAL int spipe_priv_bar_order(const void *left, const void *right) {
    const spipe_priv_bar_t *a = (const spipe_priv_bar_t *)left;
    const spipe_priv_bar_t *b = (const spipe_priv_bar_t *)right;
    if (a->row != b->row) return a->row < b->row ? -1 : 1;
    if (a->span.kind != b->span.kind) return a->span.kind < b->span.kind ? -1 : 1;
    if (a->span.stage != b->span.stage) return a->span.stage < b->span.stage ? -1 : 1;
    if (a->span.begin_ms != b->span.begin_ms) return a->span.begin_ms < b->span.begin_ms ? -1 : 1;
    if (a->span.end_ms != b->span.end_ms) return a->span.end_ms < b->span.end_ms ? -1 : 1;
    return a->span.chunk < b->span.chunk ? -1 : a->span.chunk > b->span.chunk;
}

/* Copies the spans that can be drawn: times of at most 1e12 ms, which every format can hold to the
   nanosecond. */
SPIPE_PRIV_LOCAL void spipe_priv_chart_take(spipe_priv_chart_t *c) {
    const spipe_timeline_t *t = c->timeline;
    const double most = 1e12;
    size_t i;
    for (i = 0; i < t->num_spans; ++i) {
        spipe_priv_bar_t *bar = &c->bars[c->num_bars];
        spipe_span_t *s = &bar->span;
        *s = t->spans[i];
        bar->row = 0;
        if (!spipe_priv_is_number(s->begin_ms, -most, most) ||
            !spipe_priv_is_number(s->end_ms, -most, most) || (int)s->kind < SPIPE_SPAN_FILL ||
            s->kind > SPIPE_SPAN_DRAIN) {
            ++c->num_left_out;
            continue;
        }
        if (s->begin_ms < 0.0) s->begin_ms = 0.0;
        if (s->end_ms < s->begin_ms) s->end_ms = s->begin_ms;
        if (s->kind != SPIPE_SPAN_STAGE && s->kind != SPIPE_SPAN_HOST) s->stage = -1;
        if (s->chunk >= c->num_chunks) c->num_chunks = s->chunk + 1;
        if (c->num_bars == 0 || s->begin_ms < c->first_ms) c->first_ms = s->begin_ms;
        if (s->end_ms > c->wall_ms) c->wall_ms = s->end_ms;
        ++c->num_bars;
    }
}

/* A row that is free when the span begins: preferably the one of its own stream, else the first,
   else a new one. The clocks differ by a microsecond or two, which does not count as overlap. */
SPIPE_PRIV_LOCAL int spipe_priv_chart_row(spipe_priv_chart_t *c, int first, const spipe_span_t *s) {
    const double half = (s->end_ms - s->begin_ms) / 2.0;
    const double slack = half < 0.002 ? half : 0.002;
    int r, found = -1;
    for (r = first; r < c->num_rows; ++r) {
        if (c->rows[r].end_ms > s->begin_ms + slack) continue;
        if (found < 0 || (c->rows[r].stream == s->stream && c->rows[found].stream != s->stream))
            found = r;
    }
    if (found < 0 && c->num_rows < SPIPE_PRIV_MAX_ROWS) {
        found = c->num_rows++;
        memset(&c->rows[found], 0, sizeof c->rows[found]);
        c->rows[found].kind = s->kind;
        c->rows[found].stage = s->stage;
        c->rows[found].number = found - first;
    }
    if (found >= 0) c->rows[found].stream = s->stream;
    return found;
}

/* Gives every bar a row, and sorts the bars by row. */
SPIPE_PRIV_LOCAL void spipe_priv_chart_rows(spipe_priv_chart_t *c) {
    size_t i, kept = 0;
    int first = 0;
    for (i = 0; i < c->num_bars; ++i) {
        spipe_priv_bar_t bar = c->bars[i];
        spipe_priv_row_t *row;
        if (i > 0 && (c->bars[i - 1].span.kind != bar.span.kind ||
                      c->bars[i - 1].span.stage != bar.span.stage)) {
            first = c->num_rows;
        }
        bar.row = spipe_priv_chart_row(c, first, &bar.span);
        if (bar.row < 0) {
            ++c->num_left_out;
            c->bars[i].row = SPIPE_PRIV_MAX_ROWS; /* sorts it behind all others */
            continue;
        }
        row = &c->rows[bar.row];
        if (bar.span.begin_ms < row->end_ms) bar.span.begin_ms = row->end_ms;
        if (bar.span.end_ms < bar.span.begin_ms) bar.span.end_ms = bar.span.begin_ms;
        row->end_ms = bar.span.end_ms;
        row->busy_ms += bar.span.end_ms - bar.span.begin_ms;
        ++row->num_bars;
        ++kept;
        c->bars[i] = bar;
    }
    qsort(c->bars, c->num_bars, sizeof *c->bars, spipe_priv_bar_order);
    c->num_bars = kept;
    for (first = 1; first < c->num_rows; ++first) {
        c->rows[first].first = c->rows[first - 1].first + c->rows[first - 1].num_bars;
    }
}

SPIPE_PRIV_LOCAL cudaError_t spipe_priv_chart_create(spipe_priv_chart_t *c,
                                                     const spipe_timeline_t *t) {
    if (!t || t->num_spans > t->capacity || (t->num_spans > 0 && !t->spans)) {
        return cudaErrorInvalidValue;
    }
    memset(c, 0, sizeof *c);
    c->timeline = t;
    c->bars = (spipe_priv_bar_t *)malloc((t->num_spans + 1) * sizeof *c->bars);
    if (!c->bars) return cudaErrorMemoryAllocation;
    if (spipe_priv_is_number(t->wall_ms, 0.0, 1e12)) c->wall_ms = t->wall_ms;
    spipe_priv_chart_take(c);
    if (!(c->wall_ms > 0.0)) c->wall_ms = 1e-3; /* nothing ran: draw an axis nevertheless */
    qsort(c->bars, c->num_bars, sizeof *c->bars, spipe_priv_bar_order);
    spipe_priv_chart_rows(c);
    c->per_hue = (c->num_chunks + 63) / 64;
    if (c->per_hue < 1) c->per_hue = 1;
    return cudaSuccess;
}

/* How much of the time between the first operation and the last one a row is busy, in percent: the
   same time as in the report and its verdict. */
SPIPE_PRIV_LOCAL double spipe_priv_row_busy(const spipe_priv_chart_t *c,
                                            const spipe_priv_row_t *r) {
    const double ms = c->wall_ms - c->first_ms;
    return ms > 0.0 ? 100.0 * r->busy_ms / ms : 0.0;
}

/* Writes "copy in", "stage 'blur'" or "stage 'blur' #2", and returns the number of characters. The
   quotes tell a name from what the stage does: a stage may be called "busy". */
SPIPE_PRIV_LOCAL int spipe_priv_put_label(FILE *f, const spipe_priv_chart_t *c,
                                          const spipe_priv_row_t *r, int form, int max) {
    const char *name = NULL;
    char number[32] = "";
    int n;
    if (r->stage >= 0 && r->stage < SPIPE_MAX_STAGES) name = c->timeline->stage_names[r->stage];
    n = spipe_priv_put_text(f, spipe_priv_span_name(r->kind), form, max);
    if (r->kind == SPIPE_SPAN_STAGE || r->kind == SPIPE_SPAN_HOST) {
        const int kept = r->number > 0 ? 4 : 1; /* for a quote, or for a quote and " #2" */
        const int named = name && name[0];
        if (!named) snprintf(number, sizeof number, "%d", r->stage);
        n += spipe_priv_put_text(f, named ? " '" : " ", form, max - n);
        n += spipe_priv_put_text(f, named ? name : number, form, max - kept - n);
        if (named) n += spipe_priv_put_text(f, "'", form, max - n);
    }
    snprintf(number, sizeof number, " #%d", r->number + 1);
    if (r->number > 0) n += spipe_priv_put_text(f, number, form, max - n);
    return n;
}

SPIPE_PRIV_LOCAL int spipe_priv_has_title(const spipe_priv_chart_t *c) {
    return c->timeline->title && c->timeline->title[0];
}

/* Writes "NVIDIA H200, 8 chunks, 2.345 ms, measured"; a device that is a model has that in its
   name. */
SPIPE_PRIV_LOCAL void spipe_priv_put_machine(FILE *f, const spipe_priv_chart_t *c, int form) {
    const spipe_timeline_t *t = c->timeline;
    char device[sizeof t->device + 1];
    memcpy(device, t->device, sizeof t->device);
    device[sizeof t->device] = 0;
    spipe_priv_put_text(f, device[0] ? device : "no device", form, 40);
    fprintf(f, ", %zu chunk%s, ", c->num_chunks, c->num_chunks == 1 ? "" : "s");
    spipe_priv_put(f, c->wall_ms, c->wall_ms < 1.0 ? 5 : 3);
    fputs(" ms", f);
    if (t->modelled)
        fputs(", modelled", f);
    else if (!strstr(device, "modelled"))
        fputs(", measured", f);
    if (t->num_lost + c->num_left_out > 0) {
        fprintf(f, ", %zu operations not shown", t->num_lost + c->num_left_out);
    }
}

/* The same, after the run's title if there is one. */
SPIPE_PRIV_LOCAL void spipe_priv_put_title(FILE *f, const spipe_priv_chart_t *c, int form) {
    if (spipe_priv_has_title(c)) {
        spipe_priv_put_text(f, c->timeline->title, form, 60);
        fputs(": ", f);
    }
    spipe_priv_put_machine(f, c, form);
}

/* The distance of the marks on a time axis of about num marks: 1, 2 or 5 times a power of ten. */
SPIPE_PRIV_LOCAL double spipe_priv_tick(double wall_ms, int num, int *decimals) {
    double step = 1e-6;
    int i = 0;
    while (step * num < wall_ms) {
        step *= i % 3 == 1 ? 2.5 : 2.0;
        ++i;
    }
    *decimals = i / 3 < 6 ? 6 - i / 3 : 0;
    return step;
}

/* ---- 3 pictures: for the terminal ---------------------------------------------------------- */
typedef struct spipe_priv_cell {
    double busy_ms; /* time of all chunks in the cell */
    double most_ms; /* time of the chunk that has most of the cell */
    size_t chunk;   /* number of that chunk */
} spipe_priv_cell_t;

SPIPE_PRIV_LOCAL char spipe_priv_cell_char(const spipe_priv_cell_t *cell, double cell_ms) {
    if (cell->busy_ms < 0.02 * cell_ms) return '.';
    if (cell->busy_ms < 0.5 * cell_ms) return ':';
    return cell->most_ms < 0.499 * cell_ms ? '#' : (char)('0' + cell->chunk % 10);
}

SPIPE_PRIV_LOCAL void spipe_priv_print_row(FILE *to, const spipe_priv_chart_t *c,
                                           const spipe_priv_row_t *row, int columns) {
    spipe_priv_cell_t cells[SPIPE_PRIV_MAX_COLUMNS];
    const double cell_ms = c->wall_ms / columns;
    size_t i;
    int k;
    memset(cells, 0, sizeof cells);
    for (i = row->first; i < row->first + row->num_bars; ++i) {
        const spipe_span_t *s = &c->bars[i].span;
        for (k = (int)(s->begin_ms / cell_ms); k < columns && k * cell_ms < s->end_ms; ++k) {
            const double cell_end = (k + 1) * cell_ms;
            const double from = s->begin_ms > k * cell_ms ? s->begin_ms : k * cell_ms;
            const double ms = (s->end_ms < cell_end ? s->end_ms : cell_end) - from;
            cells[k].busy_ms += ms;
            if (ms > cells[k].most_ms) {
                cells[k].most_ms = ms;
                cells[k].chunk = s->chunk;
            }
        }
    }
    for (k = 0; k < columns; ++k) fputc(spipe_priv_cell_char(&cells[k], cell_ms), to);
}

/* Prints the axis: its marks, and their times on the line below. */
SPIPE_PRIV_LOCAL void spipe_priv_print_axis(FILE *to, const spipe_priv_chart_t *c, int indent,
                                            int columns) {
    int decimals, k, mark = 0, at = 0;
    const double step = spipe_priv_tick(c->wall_ms, columns / 12, &decimals);
    fprintf(to, "%*s ", indent, "");
    for (k = 0; k < columns; ++k) {
        const int here = (int)spipe_priv_round(mark * step / c->wall_ms * columns) == k;
        fputc(here ? '+' : '-', to);
        mark += here;
    }
    fprintf(to, "\n%*s ", indent, "");
    for (k = 0; k < mark; ++k) {
        const int column = (int)spipe_priv_round(k * step / c->wall_ms * columns);
        unsigned long long whole = (unsigned long long)(k * step + 1e-9);
        fprintf(to, "%*s", column - at, "");
        spipe_priv_put(to, k * step, decimals);
        for (at = column + 1 + (decimals > 0) + decimals; whole >= 10; whole /= 10) ++at;
    }
    fputs(" ms\n", to);
}

SPIPE_API cudaError_t spipe_timeline_print(const spipe_timeline_t *timeline, FILE *to,
                                           int columns) {
    enum {
        LABEL = 16, /* columns left of a row */
        USE = 8     /* columns right of a row */
    };

    spipe_priv_chart_t c;
    int r;
    if (!to) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_chart_create(&c, timeline));
    if (columns < 40) columns = 40;
    if (columns > SPIPE_PRIV_MAX_COLUMNS) columns = SPIPE_PRIV_MAX_COLUMNS;
    columns -= LABEL + USE;
    fputs("timeline: ", to);
    spipe_priv_put_title(to, &c, SPIPE_PRIV_PLAIN);
    fputc('\n', to);
    for (r = 0; r < c.num_rows; ++r) {
        const int n = spipe_priv_put_label(to, &c, &c.rows[r], SPIPE_PRIV_PLAIN, LABEL - 1);
        fprintf(to, "%*s|", LABEL - n, "");
        spipe_priv_print_row(to, &c, &c.rows[r], columns);
        fprintf(to, "|%4.0f %%\n", spipe_priv_row_busy(&c, &c.rows[r]));
    }
    spipe_priv_print_axis(to, &c, LABEL, columns);
    fputs("a digit is the last one of the chunk's number; # = several chunks, : = busy for less "
          "than half, . = idle\n",
          to);
    free(c.bars);
    return ferror(to) ? cudaErrorOperatingSystem : cudaSuccess;
}

/* ---- 3 pictures: SVG ----------------------------------------------------------------------- */
/* Lengths in the picture's units. */
enum {
    SPIPE_PRIV_LEFT = 150,
    SPIPE_PRIV_WIDE = 840,
    SPIPE_PRIV_TOP = 62,
    SPIPE_PRIV_STEP = 34,
    SPIPE_PRIV_HIGH = 26
};

/* With a title, the title is above the machine, and the legend is below the axis. */
SPIPE_PRIV_LOCAL void spipe_priv_svg_head(FILE *f, const spipe_priv_chart_t *c) {
    static const char *const hues[SPIPE_PRIV_HUES] = {"5b8fd6", "f2a03d", "62b46a", "e8717a",
                                                      "4fbcb5", "dcc13f", "b48ad0", "a98267"};
    const int titled = spipe_priv_has_title(c);
    const int high = SPIPE_PRIV_TOP + c->num_rows * SPIPE_PRIV_STEP + (titled ? 58 : 34);
    int i;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1060 %d\" "
            "font-family=\"system-ui,sans-serif\" font-size=\"13\">\n<title>",
            high);
    spipe_priv_put_title(f, c, SPIPE_PRIV_XML);
    fputs("</title>\n<style>\nsvg{background:#fff}.l{fill:#eef0f3}.t{fill:#1d2430}"
          ".s{fill:#5c6675}.n{fill:#10151d}.g{stroke:#c9ced6}\n",
          f);
    for (i = 0; i < SPIPE_PRIV_HUES; ++i) fprintf(f, ".h%d{fill:#%s}", i, hues[i]);
    fputs("\n@media (prefers-color-scheme:dark){\nsvg{background:#14181f}.l{fill:#222934}"
          ".t{fill:#e6e9ee}.s{fill:#9aa4b2}.g{stroke:#3a4351}}\n</style>\n"
          "<text class=\"t\" x=\"12\" y=\"24\" font-size=\"16\">",
          f);
    if (titled) {
        spipe_priv_put_text(f, c->timeline->title, SPIPE_PRIV_XML, 60);
        fputs("</text>\n<text class=\"s\" x=\"12\" y=\"45\">", f);
    }
    spipe_priv_put_machine(f, c, SPIPE_PRIV_XML);
    fprintf(f, "</text>\n<text class=\"s\" x=\"12\" y=\"%d\">A row is an engine, a colour is ",
            titled ? high - 10 : 45);
    if (c->per_hue == 1)
        fputs("a chunk", f);
    else
        fprintf(f, "%zu neighbouring chunks", c->per_hue);
    fputs("; what is in one column runs at once. At the right: how busy a row is from "
          "the first bar on.</text>\n",
          f);
}

/* Draws what lies behind the bars: the rows' backgrounds, their labels, and the time axis. */
SPIPE_PRIV_LOCAL void spipe_priv_svg_ground(FILE *f, const spipe_priv_chart_t *c) {
    const int bottom = SPIPE_PRIV_TOP + c->num_rows * SPIPE_PRIV_STEP;
    int decimals, k;
    const double step = spipe_priv_tick(c->wall_ms, 10, &decimals);
    for (k = 0; k < c->num_rows; ++k) {
        const int y = SPIPE_PRIV_TOP + k * SPIPE_PRIV_STEP;
        fprintf(f,
                "<rect class=\"l\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>"
                "<text class=\"t\" x=\"12\" y=\"%d\">",
                SPIPE_PRIV_LEFT, y, SPIPE_PRIV_WIDE, SPIPE_PRIV_HIGH, y + 18);
        spipe_priv_put_label(f, c, &c->rows[k], SPIPE_PRIV_XML, 18);
        fprintf(f,
                "</text><text class=\"s\" text-anchor=\"end\" x=\"1048\" y=\"%d\">%.0f %%"
                "</text>\n",
                y + 18, spipe_priv_row_busy(c, &c->rows[k]));
    }
    for (k = 0; k * step <= c->wall_ms; ++k) {
        const double at = k * step / c->wall_ms;
        const double x = (double)SPIPE_PRIV_LEFT + (double)SPIPE_PRIV_WIDE * at;
        fputs("<path class=\"g\" d=\"M", f);
        spipe_priv_put(f, x, 1);
        fprintf(f, " %dV%d\"/><text class=\"s\" text-anchor=\"middle\" x=\"", SPIPE_PRIV_TOP - 6,
                bottom + 4);
        spipe_priv_put(f, x, 1);
        fprintf(f, "\" y=\"%d\">", bottom + 20);
        spipe_priv_put(f, k * step, decimals);
        fputs(k == 0 ? " ms</text>\n" : "</text>\n", f);
    }
}

/* Draws one rectangle: a bar with its chunk's number and a tooltip, or several adjacent bars of one
   colour. */
SPIPE_PRIV_LOCAL void spipe_priv_svg_bar(FILE *f, const spipe_priv_chart_t *c,
                                         const spipe_priv_bar_t *bar, double end_ms) {
    const spipe_span_t *s = &bar->span;
    const int y = SPIPE_PRIV_TOP + bar->row * SPIPE_PRIV_STEP;
    const double scale = (double)SPIPE_PRIV_WIDE / c->wall_ms;
    const double x = (double)SPIPE_PRIV_LEFT + s->begin_ms * scale;
    const double w = (end_ms - s->begin_ms) * scale;
    fprintf(f, "<rect class=\"h%d\" y=\"%d\" height=\"%d\" x=\"",
            (int)(s->chunk / c->per_hue % SPIPE_PRIV_HUES), y, SPIPE_PRIV_HIGH);
    spipe_priv_put(f, x, 3);
    fputs("\" width=\"", f);
    spipe_priv_put(f, w, 3);
    if (c->per_hue > 1) {
        fputs("\"/>\n", f);
        return;
    }
    fprintf(f, "\"><title>chunk %zu, ", s->chunk);
    spipe_priv_put_label(f, c, &c->rows[bar->row], SPIPE_PRIV_XML, 40);
    fputs(": ", f);
    spipe_priv_put(f, s->begin_ms, 5);
    fputs(" ms + ", f);
    spipe_priv_put(f, end_ms - s->begin_ms, 5);
    fputs(" ms</title></rect>\n", f);
    if (w < 22.0) return;
    fputs("<text class=\"n\" text-anchor=\"middle\" x=\"", f);
    spipe_priv_put(f, x + w / 2, 2);
    fprintf(f, "\" y=\"%d\">%zu</text>\n", y + 18, s->chunk);
}

SPIPE_PRIV_LOCAL void spipe_priv_svg(FILE *f, const spipe_priv_chart_t *c) {
    const double seam = 0.02 * c->wall_ms / (double)SPIPE_PRIV_WIDE; /* an invisible gap */
    size_t i, j;
    spipe_priv_svg_head(f, c);
    spipe_priv_svg_ground(f, c);
    for (i = 0; i < c->num_bars; i = j) {
        const spipe_priv_bar_t *bar = &c->bars[i];
        const size_t hue = bar->span.chunk / c->per_hue;
        for (j = i + 1; c->per_hue > 1 && j < c->num_bars; ++j) {
            const spipe_span_t *next = &c->bars[j].span;
            if (c->bars[j].row != bar->row || next->chunk / c->per_hue != hue) break;
            if (next->begin_ms > c->bars[j - 1].span.end_ms + seam) break;
        }
        spipe_priv_svg_bar(f, c, bar, c->bars[j - 1].span.end_ms);
    }
    fputs("</svg>\n", f);
}

/* ---- 3 pictures: HTML ---------------------------------------------------------------------- */
/* Writes a part of the page line by line, because C99 compilers need not accept a string of more
   than 4,095 characters. */
SPIPE_PRIV_LOCAL void spipe_priv_put_lines(FILE *f, const char *const *lines) {
    for (; *lines; ++lines) fprintf(f, "%s\n", *lines);
}

SPIPE_PRIV_LOCAL void spipe_priv_html_style(FILE *f) {
    static const char *const lines[] = {
        "<style>",
        ":root{color-scheme:light dark;--p:#fff;--l:#eef0f3;--t:#1d2430;--s:#5c6675;--g:#c9ced6}",
        "@media (prefers-color-scheme:dark){",
        ":root{--p:#14181f;--l:#222934;--t:#e6e9ee;--s:#9aa4b2;--g:#3a4351}}",
        "body{margin:0;padding:12px 16px;background:var(--p);color:var(--t);",
        "font:14px system-ui,sans-serif}",
        "h1{font-size:17px;font-weight:600;margin:0 0 4px}p{margin:0 0 10px;color:var(--s)}",
        "h2{font-size:15px;font-weight:600;margin:14px 0 4px}ul{margin:0;padding-left:20px}",
        "li,h2+p{max-width:46em;margin:0 0 6px;line-height:1.4;color:var(--t)}",
        "canvas{display:block;width:100%;cursor:grab;touch-action:none;outline-offset:2px}",
        "canvas:active{cursor:grabbing}",
        "#tip{position:fixed;display:none;padding:6px 9px;border-radius:5px;background:var(--t);",
        "color:var(--p);font-size:13px;white-space:pre;pointer-events:none}",
        "</style></head><body>",
        NULL};
    spipe_priv_put_lines(f, lines);
}

SPIPE_PRIV_LOCAL void spipe_priv_html_draw(FILE *f) {
    static const char *const lines[] = {
        "const hues=['#5b8fd6','#f2a03d','#62b46a','#e8717a','#4fbcb5','#dcc13f','#b48ad0',",
        "'#a98267'],cv=document.querySelector('canvas'),tip=document.querySelector('#tip'),",
        "L=150,R=58,T=8,S=34,H=26,W=Math.max(D.wall,+location.hash.slice(1)||0);",
        "let a=0,b=W,mx=-1,my=-1;",
        "const css=n=>getComputedStyle(document.documentElement).getPropertyValue(n);",
        "const wide=()=>Math.max(50,cv.clientWidth-L-R),X=t=>L+(t-a)/(b-a)*wide();",
        "function step(){let s=1e-6,i=0;while(s<(b-a)*90/wide()){s*=i%3==1?2.5:2;i++}",
        "return[s,Math.max(0,6-Math.floor(i/3))]}",
        "function draw(){",
        "const q=devicePixelRatio||1,w=cv.clientWidth,h=T+D.rows.length*S+30;",
        "cv.style.height=h+'px';cv.width=w*q;cv.height=h*q;",
        "const g=cv.getContext('2d');g.scale(q,q);g.font='13px system-ui,sans-serif';",
        "g.textBaseline='middle';const text=css('--t'),soft=css('--s');",
        "let lo=Infinity,hi=0;for(const s of D.spans)if(s[3]>a&&s[2]<b){",
        "lo=Math.min(lo,s[1]);hi=Math.max(hi,s[1])}",
        "const per=Math.max(1,Math.ceil((hi-lo+1)/64)),hue=s=>Math.floor(s[1]/per);",
        "D.rows.forEach((r,i)=>{const y=T+i*S;g.fillStyle=css('--l');g.fillRect(L,y,wide(),H);",
        "g.fillStyle=text;g.textAlign='left';g.fillText(r[0],0,y+H/2,L-8);",
        "g.fillStyle=soft;g.textAlign='right';g.fillText(r[1]+' %',w-2,y+H/2)});",
        "const[d,n]=step(),first=Math.ceil(a/d);g.strokeStyle=css('--g');g.textAlign='center';",
        "for(let k=first;k*d<=b;k++){const x=X(k*d);g.beginPath();g.moveTo(x,T-6);",
        "g.lineTo(x,h-24);g.stroke();g.fillText((k*d).toFixed(n)+(k==first?' ms':''),x,h-12)}",
        "g.save();g.beginPath();g.rect(L,0,wide(),h);g.clip();",
        "const n_=D.spans.length,seam=.02*(b-a)/wide();for(let i=0,j;i<n_;i=j){",
        "const s=D.spans[i];let e=s;for(j=i+1;per>1&&j<n_;e=D.spans[j++]){const z=D.spans[j];",
        "if(z[0]!=s[0]||hue(z)!=hue(s)||z[2]>e[3]+seam)break}",
        "if(e[3]<a||s[2]>b)continue;const x=X(s[2]),m=X(e[3]),y=T+s[0]*S;",
        "g.fillStyle=hues[hue(s)%hues.length];g.fillRect(x,y,m-x,H);",
        "const l=Math.max(x,L),r=Math.min(m,L+wide());if(per==1&&r-l>9+8*(''+s[1]).length){",
        "g.fillStyle='#10151d';g.fillText(s[1],(l+r)/2,y+H/2)}}g.restore();",
        "document.querySelector('#per').textContent=per==1?'a chunk':per+' neighbouring chunks'}",
        NULL};
    spipe_priv_put_lines(f, lines);
}

SPIPE_PRIV_LOCAL void spipe_priv_html_move(FILE *f) {
    static const char *const lines[] = {
        "function view(x,y){const n=Math.min(Math.max(y-x,W*1e-6,1e-6),W);",
        "a=Math.min(Math.max(x,0),W-n);b=a+n;draw();hover()}",
        "function zoom(k,t){view(t-(t-a)*k,t+(b-t)*k)}",
        "const at=x=>a+(x-L)/wide()*(b-a);",
        "function hover(){let hit=null,best=(b-a)/wide()*3;const r=Math.floor((my-T)/S),t=at(mx);",
        "if(mx>=L&&mx<=L+wide()&&my-T-r*S<=H)for(const s of D.spans){if(s[0]!=r)continue;",
        "const d=Math.max(s[2]-t,t-s[3],0);if(d<best){best=d;hit=s}if(d==0)break}",
        "tip.style.display=hit?'block':'none';if(!hit)return;",
        "tip.textContent='chunk '+hit[1]+'\\n'+D.rows[hit[0]][0]+'\\nstart  '+hit[2].toFixed(6)+",
        "' ms\\nlength '+(hit[3]-hit[2]).toFixed(6)+' ms'+(D.modelled?'\\nmodelled':'');",
        "const o=cv.getBoundingClientRect(),x=o.left+mx+14,y=o.top+my+14;",
        "tip.style.left=Math.min(x,innerWidth-tip.offsetWidth-4)+'px';",
        "tip.style.top=Math.min(y,innerHeight-tip.offsetHeight-4)+'px'}",
        "cv.addEventListener('wheel',e=>{e.preventDefault();",
        "if(Math.abs(e.deltaX)>Math.abs(e.deltaY)){const d=e.deltaX/wide()*(b-a);view(a+d,b+d)}",
        "else zoom(Math.exp(e.deltaY*.002),at(e.offsetX))},{passive:false});",
        "let grab=null;cv.addEventListener('pointerdown',e=>{grab=[e.offsetX,a,b];",
        "cv.setPointerCapture(e.pointerId)});cv.addEventListener('pointerup',()=>grab=null);",
        "cv.addEventListener('pointermove',e=>{mx=e.offsetX;my=e.offsetY;if(grab){",
        "const d=(grab[0]-mx)/wide()*(grab[2]-grab[1]);view(grab[1]+d,grab[2]+d)}hover()});",
        "cv.addEventListener('pointerleave',()=>{mx=-1;hover()});",
        "cv.addEventListener('dblclick',()=>view(0,W));",
        "addEventListener('keydown',e=>{const d=(b-a)/8,m=(a+b)/2,k={",
        "ArrowLeft:()=>view(a-d,b-d),ArrowRight:()=>view(a+d,b+d),ArrowUp:()=>zoom(.7,m),",
        "ArrowDown:()=>zoom(1/.7,m),'+':()=>zoom(.7,m),'=':()=>zoom(.7,m),'-':()=>zoom(1/.7,m),",
        "'0':()=>view(0,W),Home:()=>view(0,b-a),End:()=>view(W-b+a,W)}[e.key];",
        "if(k&&!e.ctrlKey&&!e.metaKey&&!e.altKey){e.preventDefault();k()}});",
        "addEventListener('resize',draw);matchMedia('(prefers-color-scheme:dark)')",
        ".addEventListener('change',draw);draw();",
        "</script></body></html>",
        NULL};
    spipe_priv_put_lines(f, lines);
}

/* Writes D, the data that the script draws. A row is [label, busy %], a span is [row, chunk, begin,
   end]. */
SPIPE_PRIV_LOCAL void spipe_priv_html_data(FILE *f, const spipe_priv_chart_t *c) {
    size_t i;
    int r;
    fputs("const D={wall:", f);
    spipe_priv_put(f, c->wall_ms, 6);
    fprintf(f, ",modelled:%d,rows:[", c->timeline->modelled != 0);
    for (r = 0; r < c->num_rows; ++r) {
        fputs(r > 0 ? ",[\"" : "[\"", f);
        spipe_priv_put_label(f, c, &c->rows[r], SPIPE_PRIV_JSON, 40);
        fprintf(f, "\",%.0f]", spipe_priv_row_busy(c, &c->rows[r]));
    }
    fputs("],spans:[", f);
    for (i = 0; i < c->num_bars; ++i) {
        fprintf(f, "%s\n[%d,%zu,", i > 0 ? "," : "", c->bars[i].row, c->bars[i].span.chunk);
        spipe_priv_put(f, c->bars[i].span.begin_ms, 6);
        fputc(',', f);
        spipe_priv_put(f, c->bars[i].span.end_ms, 6);
        fputc(']', f);
    }
    fputs("]};\n", f);
}

/* Writes the verdict below the chart: the limit, and a list item for each cause and its cure. */
SPIPE_PRIV_LOCAL void spipe_priv_html_verdict(FILE *f, const char *line) {
    const char *begin = line;
    if (!line[0]) return;
    fputs("<h2>Why was it not faster?</h2>\n<p>", f);
    while (*line) {
        const int n = (int)strcspn(line, "\n");
        char text[sizeof((spipe_timeline_t *)0)->verdict];
        snprintf(text, sizeof text, "%.*s", n, line);
        if (line != begin) fputs("<li>", f);
        spipe_priv_put_text(f, text, SPIPE_PRIV_XML, INT_MAX);
        fputs(line == begin ? "</p>\n<ul>\n" : "</li>\n", f);
        line += n + (line[n] == '\n');
    }
    fputs("</ul>\n", f);
}

SPIPE_PRIV_LOCAL void spipe_priv_html(FILE *f, const spipe_priv_chart_t *c) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width\">\n<title>",
          f);
    spipe_priv_put_title(f, c, SPIPE_PRIV_XML);
    fputs("</title>\n", f);
    spipe_priv_html_style(f);
    fputs("<h1>", f);
    spipe_priv_put_title(f, c, SPIPE_PRIV_XML);
    fputs(
        "</h1>\n<p>A row is an engine, a colour is <span id=\"per\"></span>; at the right: how "
        "busy a row is from the first bar on. Wheel or + and - zoom, drag or arrows move, 0 shows "
        "all; point at an operation to see its chunk and times.</p>\n<canvas tabindex=\"0\" "
        "role=\"img\" aria-label=\"timeline: ",
        f);
    spipe_priv_put_title(f, c, SPIPE_PRIV_XML);
    fputs("\"></canvas>\n", f);
    spipe_priv_html_verdict(f, c->timeline->verdict);
    fputs("<div id=\"tip\"></div>\n<script>\n", f);
    spipe_priv_html_data(f, c);
    spipe_priv_html_draw(f);
    spipe_priv_html_move(f);
}

/* ---- 3 pictures: Chrome trace -------------------------------------------------------------- */
/* Writes microseconds in steps of 1/1024, which are exact in binary. Readers add start and length,
   and two operations that touch must not overlap by a rounding error: speedscope would show one as
   the caller of the other. */
SPIPE_PRIV_LOCAL void spipe_priv_trace_time(FILE *f, unsigned long long v) {
    fprintf(f, "%llu.%010llu", v / 1024, v % 1024 * 9765625);
}

/* Trace viewers choose the colour by the name, so the name is that of the chunk. */
SPIPE_PRIV_LOCAL void spipe_priv_trace_span(FILE *f, const spipe_priv_chart_t *c,
                                            const spipe_priv_bar_t *bar) {
    const unsigned long long begin = spipe_priv_round(bar->span.begin_ms * 1024e3);
    const unsigned long long end = spipe_priv_round(bar->span.end_ms * 1024e3);
    fprintf(f,
            ",\n{\"ph\":\"X\",\"name\":\"chunk %zu\",\"cat\":\"%s%s\",\"pid\":1,\"tid\":%d,"
            "\"ts\":",
            bar->span.chunk, spipe_priv_span_name(bar->span.kind),
            c->timeline->modelled ? ",modelled" : "", bar->row + 1);
    spipe_priv_trace_time(f, begin);
    fputs(",\"dur\":", f);
    spipe_priv_trace_time(f, end - begin);
    fprintf(f, ",\"args\":{\"chunk\":%zu}}", bar->span.chunk);
}

SPIPE_PRIV_LOCAL void spipe_priv_trace(FILE *f, const spipe_priv_chart_t *c) {
    size_t i;
    int r;
    fprintf(f,
            "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"producer\":\"streampipe\","
            "\"modelled\":%s},\n\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"process_name\","
            "\"pid\":1,\"tid\":0,\"args\":{\"name\":\"streampipe: ",
            c->timeline->modelled ? "true" : "false");
    spipe_priv_put_title(f, c, SPIPE_PRIV_JSON);
    fputs("\"}}", f);
    for (r = 0; r < c->num_rows; ++r) {
        fprintf(f,
                ",\n{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":1,\"tid\":%d,"
                "\"args\":{\"sort_index\":%d}},\n{\"ph\":\"M\",\"name\":\"thread_name\","
                "\"pid\":1,\"tid\":%d,\"args\":{\"name\":\"",
                r + 1, r + 1, r + 1);
        spipe_priv_put_label(f, c, &c->rows[r], SPIPE_PRIV_JSON, 80);
        fputs("\"}}", f);
    }
    for (i = 0; i < c->num_bars; ++i) spipe_priv_trace_span(f, c, &c->bars[i]);
    fputs("\n]}\n", f);
}

SPIPE_PRIV_LOCAL cudaError_t spipe_priv_chart_write(const spipe_timeline_t *timeline,
                                                    const char *path,
                                                    void (*put)(FILE *f,
                                                                const spipe_priv_chart_t *c)) {
    spipe_priv_chart_t c;
    spipe_priv_file_t file;
    cudaError_t e;
    SPIPE_TRY(spipe_priv_chart_create(&c, timeline));
    e = spipe_priv_file_open(&file, path);
    if (e == cudaSuccess) {
        put(file.f, &c);
        e = spipe_priv_file_close(&file);
    }
    free(c.bars);
    return e;
}

SPIPE_API cudaError_t spipe_timeline_write_svg(const spipe_timeline_t *timeline, const char *path) {
    return spipe_priv_chart_write(timeline, path, spipe_priv_svg);
}

SPIPE_API cudaError_t spipe_timeline_write_html(const spipe_timeline_t *timeline,
                                                const char *path) {
    return spipe_priv_chart_write(timeline, path, spipe_priv_html);
}

SPIPE_API cudaError_t spipe_timeline_write_trace(const spipe_timeline_t *timeline,
                                                 const char *path) {
    return spipe_priv_chart_write(timeline, path, spipe_priv_trace);
}

/* ---- 4 json -------------------------------------------------------------------------------- */
/* Each writes one member. The caller writes the comma before it, because the first has none. */
SPIPE_PRIV_LOCAL void spipe_priv_json_size(FILE *f, const char *name, size_t v) {
    if (v == SPIPE_AUTO)
        fprintf(f, "\"%s\": null", name); /* none or unknown */
    else
        fprintf(f, "\"%s\": %zu", name, v);
}

SPIPE_PRIV_LOCAL void spipe_priv_json_int(FILE *f, const char *name, int v) {
    fprintf(f, "\"%s\": %d", name, v);
}

SPIPE_PRIV_LOCAL void spipe_priv_json_double(FILE *f, const char *name, double v) {
    fprintf(f, "\"%s\": ", name);
    if (spipe_priv_is_number(v, -1e12, 1e12))
        spipe_priv_put(f, v, 6);
    else
        fputs("null", f);
}

SPIPE_PRIV_LOCAL void spipe_priv_json_text(FILE *f, const char *name, const char *text) {
    fprintf(f, "\"%s\": \"", name);
    spipe_priv_put_text(f, text, SPIPE_PRIV_JSON, INT_MAX);
    fputc('"', f);
}

SPIPE_PRIV_LOCAL void spipe_priv_json_doubles(FILE *f, const char *name, const double *v, int num) {
    int i;
    fprintf(f, "\"%s\": [", name);
    for (i = 0; i < num; ++i) {
        if (i > 0) fputs(", ", f);
        if (spipe_priv_is_number(v[i], -1e12, 1e12))
            spipe_priv_put(f, v[i], 6);
        else
            fputs("null", f);
    }
    fputc(']', f);
}

SPIPE_PRIV_LOCAL void spipe_priv_json_six(FILE *f, const char *name, const double *v) {
    spipe_priv_json_doubles(f, name, v, SPIPE_PRIV_KINDS);
}

SPIPE_PRIV_LOCAL void spipe_priv_json_pair(FILE *f, const char *name, const double *v) {
    spipe_priv_json_doubles(f, name, v, 2);
}

SPIPE_PRIV_LOCAL void spipe_priv_json_sizes(FILE *f, const char *name, const size_t *v) {
    fprintf(f, "\"%s\": [%zu, %zu]", name, v[0], v[1]);
}

/* Writes a list with one value per device: its chunks, or its number. */
SPIPE_PRIV_LOCAL void spipe_priv_json_devices(FILE *f, const char *name, const spipe_report_t *r,
                                              int chunks) {
    int i;
    fprintf(f, ",\n  \"%s\": [", name);
    for (i = 0; i < r->num_devices; ++i) {
        const size_t value = chunks ? r->device_chunks[i] : (size_t)r->device_numbers[i];
        fprintf(f, "%s%zu", i > 0 ? ", " : "", value);
    }
    fputc(']', f);
}

/* One line for each field of the report. */
SPIPE_PRIV_LOCAL void spipe_priv_report_members(FILE *f, const spipe_report_t *r) {
#define SPIPE_PRIV_MEMBER(kind, field)                                                             \
    do {                                                                                           \
        fputs(",\n  ", f);                                                                         \
        spipe_priv_json_##kind(f, #field, r->field);                                               \
    } while (0)
    SPIPE_PRIV_MEMBER(text, device);
    SPIPE_PRIV_MEMBER(size, total);
    SPIPE_PRIV_MEMBER(size, count_done);
    SPIPE_PRIV_MEMBER(size, num_chunks);
    SPIPE_PRIV_MEMBER(size, chunks_done);
    SPIPE_PRIV_MEMBER(size, chunk);
    SPIPE_PRIV_MEMBER(size, depth);
    SPIPE_PRIV_MEMBER(int, staged);
    SPIPE_PRIV_MEMBER(size, threads);
    SPIPE_PRIV_MEMBER(size, fill_threads);
    SPIPE_PRIV_MEMBER(size, drain_threads);
    SPIPE_PRIV_MEMBER(size, host_threads);
    SPIPE_PRIV_MEMBER(sizes, seen_threads);
    SPIPE_PRIV_MEMBER(pair, seen_waited);
    SPIPE_PRIV_MEMBER(pair, seen_idle);
    SPIPE_PRIV_MEMBER(int, num_stages);
    SPIPE_PRIV_MEMBER(int, num_streams);
    SPIPE_PRIV_MEMBER(int, replayed);
    SPIPE_PRIV_MEMBER(int, trying);
    SPIPE_PRIV_MEMBER(text, why_chunk);
    SPIPE_PRIV_MEMBER(text, why_schedule);
    SPIPE_PRIV_MEMBER(text, why_staging);
    SPIPE_PRIV_MEMBER(size, bytes_in);
    SPIPE_PRIV_MEMBER(size, bytes_out);
    SPIPE_PRIV_MEMBER(size, device_bytes);
    SPIPE_PRIV_MEMBER(size, pinned_bytes);
    SPIPE_PRIV_MEMBER(int, found);
    SPIPE_PRIV_MEMBER(size, runs_beside);
    SPIPE_PRIV_MEMBER(double, waited_ms);
    SPIPE_PRIV_MEMBER(double, setup_ms);
    SPIPE_PRIV_MEMBER(double, start_ms);
    SPIPE_PRIV_MEMBER(double, wall_ms);
    SPIPE_PRIV_MEMBER(size, new_page_bytes);
    SPIPE_PRIV_MEMBER(int, failure.stage);
    SPIPE_PRIV_MEMBER(size, failure.chunk);
    SPIPE_PRIV_MEMBER(size, failure.chunks_whole);
    SPIPE_PRIV_MEMBER(text, failure.message);
    SPIPE_PRIV_MEMBER(double, timed_ms);
    SPIPE_PRIV_MEMBER(six, busy_ms);
    SPIPE_PRIV_MEMBER(six, idle_ms);
    SPIPE_PRIV_MEMBER(double, serial_ms);
    SPIPE_PRIV_MEMBER(double, bound_ms);
    SPIPE_PRIV_MEMBER(double, overlap);
    SPIPE_PRIV_MEMBER(double, sync_us);
    SPIPE_PRIV_MEMBER(size, causes);
    SPIPE_PRIV_MEMBER(text, verdict);
    SPIPE_PRIV_MEMBER(int, num_devices);
    SPIPE_PRIV_MEMBER(size, devices_failed);
#undef SPIPE_PRIV_MEMBER
}

SPIPE_API cudaError_t spipe_report_write_json(const spipe_report_t *report, const char *path) {
    spipe_priv_file_t file;
    int i;
    if (!report) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_file_open(&file, path));
    fprintf(file.f, "{\n  \"streampipe\": \"%d.%d.%d\",\n  ", SPIPE_VERSION_MAJOR,
            SPIPE_VERSION_MINOR, SPIPE_VERSION_PATCH);
    spipe_priv_json_text(file.f, "error", spipe_error_name(report->failure.error));
    fputs(",\n  ", file.f);
    spipe_priv_json_text(file.f, "schedule", spipe_schedule_name(report->schedule));
    spipe_priv_report_members(file.f, report);
    spipe_priv_json_devices(file.f, "device_numbers", report, 0);
    spipe_priv_json_devices(file.f, "device_chunks", report, 1);
    fputs(",\n  ", file.f);
    spipe_priv_json_doubles(file.f, "stage_ms", report->stage_ms, report->num_stages);
    fputs(",\n  \"stage_names\": [", file.f);
    for (i = 0; i < report->num_stages; ++i) {
        fputs(i > 0 ? ", \"" : "\"", file.f);
        spipe_priv_put_text(file.f, report->stage_names[i], SPIPE_PRIV_JSON, INT_MAX);
        fputc('"', file.f);
    }
    fputc(']', file.f);
    fputs("\n}\n", file.f);
    return spipe_priv_file_close(&file);
}

#endif /* SPIPE_PRIV_CODE */
#endif /* STREAMPIPE_TIMELINE_H */

/*  MIT License: see the end of streampipe.h. Copyright (c) 2026 The streampipe authors. */
