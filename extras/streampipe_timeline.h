/*  streampipe_timeline.h 0.1.0 -- what a run did and when, and why it was not faster.

    An optional companion of streampipe.h: watches a run, puts figures and a verdict with causes and
    cures into its report, and draws what ran when, for the terminal, as SVG, HTML and Chrome trace.
    C99, C++11 and CUDA C++ alike. MIT licence.

    USE IT   copy it beside streampipe.h and #include it: nothing to define, nothing more to link.
             streampipe_model.h and streampipe_tools.h include it.

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
        static spipe_span_t spans[4000];                  // room for what ran, if wanted
        spipe_timeline_t t = spipe_timeline_default();
        spipe_report_t   report;
        spipe_desc_t     d = spipe_desc_default();
        t.spans = spans;
        t.capacity = 4000;
        d.timeline = &t;                                  // watch this run
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

    CONTENTS (search for the anchor; the second half repeats the order as code)
      1  >>timeline  what it consists of, and how a run fills it
      2  >>verdict   the causes that a run can be told
      3  >>pictures  a chart for the terminal, SVG, HTML, Chrome trace
      4  >>json      the report as JSON

    WHAT IS MEASURED   An event is recorded before and after every operation, so times of the GPU's
    work are by its own clock; host threads' work is by the host's. Watching costs two events an
    operation, made before the run begins; a run that is not watched pays nothing.

    MACRO   SPIPE_NVTX, defined before including: a watched run also opens an NVTX range around what
    it does for each chunk, which Nsight Systems shows beside the GPU's work.

    READING THE PICTURES   A row is an engine: host threads that fill, the copy engine in, each
    stage, the copy engine out, host threads that drain. Work of one row that overlaps takes more
    rows. A colour (a digit on the terminal) is a chunk, or a group of chunks where there are too
    many; gaps show the background. At the right stands how much of the time the row is busy.
    Times that come from a model and not from a clock are labelled "modelled" everywhere.

    FILES are written beside their place and renamed when whole, so a file is there whole or not
    at all (devices and pipes are written as they are). They name no outside resource.
*/
#ifndef STREAMPIPE_TIMELINE_H
#define STREAMPIPE_TIMELINE_H

#include "streampipe.h"
#if SPIPE_VERSION != 200
#error "extras/streampipe_timeline.h 0.2.0 needs streampipe.h 0.2.0: copy both from the same release"
#endif
#include <errno.h>
#include <sys/stat.h>
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

/* One piece of work on one engine. */
typedef struct spipe_span {
    spipe_span_kind_t kind;
    int    stage;               /* number of the stage; -1 for copies, fill, drain */
    int    lane;                /* which of the streams that do this kind of work, from 0 */
    size_t chunk;
    double begin_ms, end_ms;    /* since the run began; the GPU's by its own clock */
} spipe_span_t;

/* What a run did and when, in memory of the user's. Get one from spipe_timeline_default, assign
   spans and capacity where you want the spans, and desc.timeline = &it. */
typedef struct spipe_timeline {
    spipe_priv_watch_t watch;   /* private, first */
    struct spipe_priv_looker *looker; /* private: while a run is watched */
    spipe_span_t *spans;        /* the user's array (default: NULL, only the report is filled) */
    size_t        capacity;     /* room in it */
    size_t        num_spans;    /* filled */
    size_t        num_lost;     /* spans for which there was no room */
    double        wall_ms;      /* to the end of the last span */
    int           modelled;     /* 1 = times come from a model, not a clock; shown as "modelled" */
    int           num_stages;
    const char   *stage_names[SPIPE_MAX_STAGES];
    char          device[64];
} spipe_timeline_t;

/*  spipe_timeline_default -- a timeline that a run or spipe_model_run may fill: desc.timeline.

    A run fills it anew, the spans in the order of their begin, and of its report timed_ms and all
    that follows. One that fails fills in what was done until then. Runs with a timeline are not
    replayed as a graph; spipe_enqueue fills it where it runs at once, and else leaves it alone.

    Returns    the timeline, with no room for spans yet.
    Blocks     no.   Threads  any; one timeline, one run at a time.   Callback  yes.   Capture  yes.
    Allocates  nothing. A watched run: two timed events for each operation, freed before return. */
SPIPE_API spipe_timeline_t spipe_timeline_default(void);

/* ---- 2 >>verdict --------------------------------------------------------------------------- */
/* Why a run was not faster: bits of report.causes. report.verdict has words and the cure. */
typedef enum spipe_cause {
    SPIPE_CAUSE_PAGEABLE = 1,          /* arrays that are not pinned */
    SPIPE_CAUSE_LEGACY_STREAM = 2,     /* a stage used the legacy default stream, which waits for
                                          blocking streams and they for it */
    SPIPE_CAUSE_OTHER_STREAM = 4,      /* a stage put nothing on the stream that it was given */
    SPIPE_CAUSE_STAGE_WAITS = 8,       /* a stage came back only when its work was done */
    SPIPE_CAUSE_ONE_COPY_ENGINE = 16,  /* the device copies in one direction at a time */
    SPIPE_CAUSE_BOTH_WAYS = 32,        /* copies slow each other down */
    SPIPE_CAUSE_SMALL_CHUNKS = 64,     /* much is lost between operations */
    SPIPE_CAUSE_LARGE_CHUNKS = 128,    /* the first and the last chunk run alone for long */
    SPIPE_CAUSE_DEPTH = 256,           /* copies in wait for a slot while nothing is busy */
    SPIPE_CAUSE_CONNECTIONS = 512,     /* more streams than hardware connections */
    SPIPE_CAUSE_LAUNCH_BLOCKING = 1024, /* CUDA_LAUNCH_BLOCKING is set */
    SPIPE_CAUSE_WATCHED = 2048,        /* a profiler or sanitizer is attached */
    SPIPE_CAUSE_SERIAL = 4096,         /* SPIPE_SERIAL or sync_each was asked for */
    SPIPE_CAUSE_HOST_WORK = 8192       /* host stages, sources or sinks take longest */
} spipe_cause_t;

/* ---- 3 >>pictures -------------------------------------------------------------------------- */
/*  spipe_timeline_print -- a chart of the timeline for a terminal.

    timeline   in      filled by a run or by spipe_model_run; spans in any order. Spans whose times
                       are not numbers are left out and counted.
    to         in      an open file.
    columns    in      width of the chart in characters; below 40 and above 400 those are taken.
    Returns    cudaSuccess; cudaErrorInvalidValue; cudaErrorMemoryAllocation;
               cudaErrorOperatingSystem (cannot be written).
    Blocks     as long as the file does.   Threads  any.   Callback  yes.   Capture  yes.
    Allocates  host memory for a copy of the spans, freed before return. */
SPIPE_API cudaError_t spipe_timeline_print(const spipe_timeline_t *timeline, FILE *to,
                                           int columns);

/*  spipe_timeline_write_svg -- a picture for a page or a document, in light and dark.
    spipe_timeline_write_html -- a page that zooms and pans, and tells each operation's chunk,
    stage, start and length under the pointer.
    spipe_timeline_write_trace -- a Chrome trace for Perfetto, chrome://tracing and speedscope.

    timeline   in      filled by a run or by spipe_model_run; spans in any order. Spans whose times
                       are not numbers are left out and counted.
    path       in      the file; replaced when there is one.
    Returns    cudaSuccess; cudaErrorInvalidValue; cudaErrorMemoryAllocation;
               cudaErrorOperatingSystem (cannot be written whole: errno says why, and the file is
               as it was before).
    Blocks     as long as the file does.   Threads  any; one path, one thread at a time.
    Callback   yes.   Capture  yes.
    Allocates  host memory for a copy of the spans, freed before return. */
SPIPE_API cudaError_t spipe_timeline_write_svg(const spipe_timeline_t *timeline, const char *path);
SPIPE_API cudaError_t spipe_timeline_write_html(const spipe_timeline_t *timeline,
                                                const char *path);
SPIPE_API cudaError_t spipe_timeline_write_trace(const spipe_timeline_t *timeline,
                                                 const char *path);

/* ---- 4 >>json ------------------------------------------------------------------------------ */
/*  spipe_report_write_json -- a report as one JSON object, a member for each of its fields.

    report     in      filled by a run. Times that are not numbers become null; units are in the
                       members' names, as in the struct.
    path       in      the file; replaced when there is one.
    Returns    cudaSuccess; cudaErrorInvalidValue; cudaErrorMemoryAllocation;
               cudaErrorOperatingSystem (cannot be written whole; the file is as it was before).
    Blocks     as long as the file does.   Threads  any; one path, one thread at a time.
    Callback   yes.   Capture  yes.   Allocates  a file name, freed before return. */
SPIPE_API cudaError_t spipe_report_write_json(const spipe_report_t *report, const char *path);

/* ============================================================================================
   >>impl   the same, as code. Names beginning spipe_priv_ are not for callers.
   ============================================================================================ */
/* False for infinities and what is not a number too. */
SPIPE_API int spipe_priv_is_number(double v, double least, double most) {
    return v >= least && v <= most;
}/* ---- 1 spans ------------------------------------------------------------------------------- */

/* ---- 1 timeline: watching a run ------------------------------------------------------------ */
enum {
    SPIPE_PRIV_MAX_LOOKS = 1 << 16, /* operations that a run keeps two events for */
    SPIPE_PRIV_KINDS = SPIPE_SPAN_DRAIN + 1
};

/* An operation on the device that is being timed. */
typedef struct spipe_priv_look {
    cudaEvent_t begin, end;
    size_t      span, load;
    int         stream; /* number of the pipeline's */
} spipe_priv_look_t;

/* What is known of a stage's calls: how many, how many of the first were made while its stream had
   work, and of these came back when it had none; how many were made on an idle stream, and of
   these left it so. */
typedef struct spipe_priv_stage_look {
    size_t calls, busy, waited, probes, idle, legacy;
    int    was_busy, probing;
} spipe_priv_stage_look_t;

/* What is known of a run beside its spans. */
typedef struct spipe_priv_looker {
    spipe_priv_look_t *looks;
    size_t             room, num_looks, lost;
    spipe_span_t      *spans;
    size_t             capacity, num_spans;
    int                looking; /* 1 = between an operation's two events */
    cudaEvent_t        zero;
    double             zero_s; /* on the host's clock */
    spipe_priv_stage_look_t stages[SPIPE_MAX_STAGES];
    double             wall_ms, head_ms[SPIPE_PRIV_KINDS], last_ms[SPIPE_PRIV_KINDS];
    double             copy_ms[2], least_ms[2]; /* in, out: of all full loads together, of one */
    size_t             copies[2];
    double             sync_ms, slot_ms; /* from turn to begin; waited for a slot */
    size_t             steps, slot_waits;
} spipe_priv_looker_t;

#if defined(SPIPE_NVTX)
SPIPE_API void spipe_priv_range(const spipe_pipeline_t *p, const char *name, size_t load,
                                int after) {
    char text[96];
    if (after) {
        (void)nvtxRangePop();
        return;
    }
    snprintf(text, sizeof text, "%.64s %zu", name, load * p->batch);
    (void)nvtxRangePushA(text);
}
#endif
/* What an operation does, as a kind of span; -1 = nothing that takes the device's time. */
SPIPE_API int spipe_priv_look_kind(const spipe_priv_op_t *op) {
    switch (op->what & (SPIPE_PRIV_OP_WATCHED - 1)) {
    case SPIPE_PRIV_OP_CALL:
    case SPIPE_PRIV_OP_BATCH: return SPIPE_SPAN_STAGE;
    case SPIPE_PRIV_OP_COPY: return op->out ? SPIPE_SPAN_OUT : SPIPE_SPAN_IN;
    case SPIPE_PRIV_OP_COPIES: return op[1].out ? SPIPE_SPAN_OUT : SPIPE_SPAN_IN;
    case SPIPE_PRIV_OP_HALO: return SPIPE_SPAN_IN;
    default: return -1;
    }
}
SPIPE_API const char *spipe_priv_span_name(spipe_span_kind_t kind) {
    static const char *const names[] = {"fill", "copy in", "stage", "host", "copy out", "drain"};
    return names[kind];
}
SPIPE_API int spipe_priv_stream_number(const spipe_pipeline_t *p, cudaStream_t stream) {
    int i = 0;
    while (i < p->num_streams && p->streams[i] != stream) ++i;
    return i;
}
/* A span more, or NULL where there is no room; its stage is -1. */
SPIPE_API spipe_span_t *spipe_priv_new_span(spipe_priv_looker_t *l, int kind, size_t chunk) {
    spipe_span_t *s = &l->spans[l->num_spans];
    if (l->num_spans == l->capacity) {
        ++l->lost;
        return NULL;
    }
    ++l->num_spans;
    memset(s, 0, sizeof *s);
    s->kind = (spipe_span_kind_t)kind;
    s->stage = -1;
    s->chunk = chunk;
    return s;
}
/* Whether some of the first spans of a stage are so short that there may be nothing in them: in a
   busy stream two events with nothing between them are mostly 3 to 8 us apart on an H200. */
SPIPE_API int spipe_priv_looks_empty(spipe_priv_looker_t *l, int stage) {
    size_t k, seen = 0;
    for (k = 0; k < l->num_looks && seen < 3; ++k) {
        float                    ms = 0.0f;
        const spipe_priv_look_t *look = &l->looks[k];
        if (l->spans[look->span].stage != stage) continue;
        if (!spipe_priv_reached(cudaEventQuery(look->end))) break;
        if (cudaEventElapsedTime(&ms, look->begin, look->end) != cudaSuccess) break;
        seen += (double)ms < 0.012;
    }
    return seen > 2;
}
/* Before a stage is called, and after: is its work under way where it belongs? The first calls
   tell. Where spans look empty two calls are made on an idle stream: are they empty? */
SPIPE_API void spipe_priv_look_at_stage(spipe_priv_looker_t *l, const spipe_priv_op_t *op,
                                        int after) {
    spipe_priv_stage_look_t *s = &l->stages[op->stage];
    int                      idle;
    if (s->calls >= 16) return;
    if (!after) {
        s->probing = s->calls >= 8 && s->probes < 2 && spipe_priv_looks_empty(l, op->stage);
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
SPIPE_API void spipe_priv_look_at_op(spipe_priv_looker_t *l, const spipe_pipeline_t *p,
                                     const spipe_priv_op_t *op, size_t load, int after) {
    const int          kind = spipe_priv_look_kind(op);
    spipe_priv_look_t *look = &l->looks[l->num_looks];
    if (kind < 0 || !l->looks) return;
    if (!after) {
        l->looking = 0;
        if (kind == SPIPE_SPAN_STAGE) spipe_priv_look_at_stage(l, op, 0);
        if (l->num_looks == l->room) ++l->lost;
        else l->looking = cudaEventRecord(look->begin, op->stream) == cudaSuccess;
    } else {
        spipe_span_t *s;
        spipe_priv_lock(p->sync);
        s = l->looking ? spipe_priv_new_span(l, kind, load * p->batch) : NULL;
        if (s && kind == SPIPE_SPAN_STAGE) s->stage = op->stage;
        look->span = l->num_spans - 1;
        spipe_priv_unlock(p->sync);
        look->load = load;
        look->stream = spipe_priv_stream_number(p, op->stream);
        if (kind == SPIPE_SPAN_STAGE) spipe_priv_look_at_stage(l, op, 1);
        if (s && cudaEventRecord(look->end, op->stream) == cudaSuccess) ++l->num_looks;
    }
#if defined(SPIPE_NVTX)
    spipe_priv_range(p, kind == SPIPE_SPAN_STAGE ? p->desc.stages[op->stage].name
                                                 : spipe_priv_span_name((spipe_span_kind_t)kind),
                     load, after);
#endif
}
SPIPE_API void spipe_priv_look_at_task(spipe_priv_looker_t *l, const spipe_pipeline_t *p,
                                       const spipe_priv_task_t *t, int after) {
    static const spipe_span_kind_t kinds[] = {SPIPE_SPAN_FILL, SPIPE_SPAN_DRAIN, SPIPE_SPAN_HOST};
    const double     now = spipe_priv_seconds();
    spipe_span_t    *s;
    if (t->what >= SPIPE_PRIV_NUM_CREWS) return;
#if defined(SPIPE_NVTX)
    spipe_priv_range(p, t->what == SPIPE_PRIV_HOST ? p->desc.stages[t->stage].name
                                                   : spipe_priv_span_name(kinds[t->what]), t->load,
                     after);
#endif
    if (!after) return;
    spipe_priv_lock(p->sync);
    s = spipe_priv_new_span(l, (int)kinds[t->what], t->load * p->batch);
    if (s) {
        if (t->what == SPIPE_PRIV_HOST) s->stage = t->stage;
        s->begin_ms = 1e3 * (t->began - l->zero_s);
        s->end_ms = 1e3 * (now - l->zero_s);
    }
    spipe_priv_unlock(p->sync);
}
/* How many operations and tasks a load has. */
SPIPE_API void spipe_priv_look_ahead(const spipe_pipeline_t *p, size_t *ops, size_t *tasks) {
    size_t k;
    int    i;
    *ops = 0;
    *tasks = (size_t)(p->needs_fill != 0) + (size_t)(p->needs_drain != 0);
    for (k = 0; k < p->num_ops; k += 1 + (size_t)p->ops[k].num) {
        *ops += spipe_priv_look_kind(&p->ops[k]) >= 0;
    }
    for (i = 0; i < p->desc.num_stages; ++i) *tasks += (size_t)p->desc.stages[i].host;
}
/* Room for the run's operations, and no more than the user's spans or the most can be. */
SPIPE_API void spipe_priv_look_reserve(spipe_priv_looker_t *l, const spipe_pipeline_t *p,
                                       const spipe_timeline_t *t) {
    const size_t most = SPIPE_PRIV_MAX_LOOKS;
    size_t       ops, tasks, spans = most;
    spipe_priv_look_ahead(p, &ops, &tasks);
    if (p->num_loads < most / (ops + tasks + 1)) spans = p->num_loads * (ops + tasks);
    l->room = p->num_loads < most / (ops + 1) ? p->num_loads * ops : most;
    if (t->spans && t->capacity > 0) {
        l->spans = t->spans;
        l->capacity = t->capacity;
    } else {
        l->spans = (spipe_span_t *)malloc((spans + 1) * sizeof *l->spans);
        l->capacity = l->spans ? spans : 0;
    }
    if (l->room > l->capacity) l->room = l->capacity;
    l->looks = (spipe_priv_look_t *)calloc(l->room + 1, sizeof *l->looks);
    if (!l->looks) l->room = 0;
}
SPIPE_API double spipe_priv_between(cudaEvent_t begin, cudaEvent_t end) {
    float ms = 0.0f;
    return cudaEventElapsedTime(&ms, begin, end) == cudaSuccess ? (double)ms : -1.0;
}
/* Makes the events, and finds out where the two clocks agree. */
SPIPE_API cudaError_t spipe_priv_look_prepare(spipe_priv_looker_t *l, const spipe_pipeline_t *p) {
    const cudaStream_t stream = p->streams[0];
    size_t             k, num = 0;
    SPIPE_TRY(cudaEventCreate(&l->zero));
    for (k = 0; k < l->room; ++k, ++num) {
        if (cudaEventCreate(&l->looks[k].begin) != cudaSuccess ||
            cudaEventCreate(&l->looks[k].end) != cudaSuccess) {
            (void)cudaGetLastError();
            break;
        }
    }
    l->room = num;
    SPIPE_TRY(cudaEventRecord(l->zero, stream));
    SPIPE_TRY(cudaEventSynchronize(l->zero));
    l->zero_s = spipe_priv_seconds();
    return cudaSuccess;
}
SPIPE_API void spipe_priv_look_begin(spipe_timeline_t *t, spipe_pipeline_t *p) {
    spipe_report_t      *r = &p->report;
    spipe_priv_looker_t *l = (spipe_priv_looker_t *)calloc(1, sizeof *l);
    int                  i;
    memset(r->busy_ms, 0, sizeof r->busy_ms);
    memset(r->idle_ms, 0, sizeof r->idle_ms);
    memset(r->stage_ms, 0, sizeof r->stage_ms);
    for (i = 0; i < p->desc.num_stages; ++i) r->stage_names[i] = p->desc.stages[i].name;
    r->serial_ms = r->bound_ms = r->overlap = r->sync_us = 0.0;
    r->causes = 0;
    r->verdict[0] = 0;
    t->looker = l;
    t->num_spans = t->num_lost = 0;
    t->modelled = 0;
    t->wall_ms = 0.0;
    t->num_stages = p->desc.num_stages;
    memcpy(t->device, p->facts.name, sizeof t->device);
    for (i = 0; i < t->num_stages; ++i) t->stage_names[i] = p->desc.stages[i].name;
    if (!l) return; /* the run is what matters */
    spipe_priv_look_reserve(l, p, t);
    if (spipe_priv_look_prepare(l, p) == cudaSuccess) return;
    (void)cudaGetLastError();
    l->room = 0;
}

/* ---- 1 timeline: figures ------------------------------------------------------------------- */
/* Takes over the times of what was measured; spans without are left out. The run began so long
   after the clocks agreed, and before its first operation: a device's clock that stands still while
   nothing happens, as a modelled one does, may say otherwise. */
SPIPE_API void spipe_priv_look_times(spipe_priv_looker_t *l, double began_ms) {
    size_t k, kept = 0;
    for (k = 0; k < l->num_looks; ++k) {
        const spipe_priv_look_t *look = &l->looks[k];
        spipe_span_t            *s = &l->spans[look->span];
        s->begin_ms = spipe_priv_between(l->zero, look->begin);
        s->end_ms = s->begin_ms < 0.0 ? -1.0 : spipe_priv_between(l->zero, look->end);
        s->lane = look->stream;
        if (s->begin_ms >= 0.0 && s->begin_ms < began_ms) began_ms = s->begin_ms;
    }
    (void)cudaGetLastError(); /* an event that was not reached, in a run that failed */
    for (k = 0; k < l->num_spans; ++k) {
        spipe_span_t *s = &l->spans[k];
        if (s->end_ms < s->begin_ms || s->end_ms <= 0.0) s->end_ms = -1.0;
        s->begin_ms -= began_ms;
        if (s->end_ms >= 0.0) s->end_ms -= began_ms;
        if (s->begin_ms < 0.0) s->begin_ms = 0.0; /* the clocks agree within microseconds */
        kept += s->end_ms >= 0.0;
    }
    l->lost += l->num_spans - kept;
}
/* From each step's turn - when the step before it of the same slot and what was in its stream have
   ended - to its begin; and how long copies in had only their slot to wait for. */
SPIPE_API void spipe_priv_look_turns(spipe_priv_looker_t *l, const spipe_pipeline_t *p) {
    double slot_end[SPIPE_MAX_DEPTH] = {0}, stream_end[SPIPE_PRIV_MAX_STREAMS + 1] = {0};
    size_t k;
    for (k = 0; k < l->num_looks; ++k) {
        const spipe_priv_look_t *look = &l->looks[k];
        const spipe_span_t      *s = &l->spans[look->span];
        double                  *slot = &slot_end[look->load % p->desc.depth];
        double                  *stream = &stream_end[look->stream];
        const double             turn = *slot > *stream ? *slot : *stream;
        const int in = s->kind == SPIPE_SPAN_IN, stage = s->kind == SPIPE_SPAN_STAGE;
        if (s->end_ms < 0.0) continue;
        if (turn > 0.0 && (stage ? p->num_segments == 1 : !p->host_work)) {
            if (s->begin_ms > turn) l->sync_ms += s->begin_ms - turn;
            ++l->steps;
        }
        if (in && look->load >= p->desc.depth && *slot > *stream + 0.004 && !p->host_work) {
            ++l->slot_waits;
            l->slot_ms += *slot - *stream;
        }
        *slot = *stream = s->end_ms;
    }
}
/* How long full copies take, and the fastest of them, which had the engine to itself. */
SPIPE_API void spipe_priv_look_copies(spipe_priv_looker_t *l, const spipe_pipeline_t *p) {
    size_t k;
    for (k = 0; k < l->num_looks; ++k) {
        const spipe_span_t *s = &l->spans[l->looks[k].span];
        const int           out = s->kind == SPIPE_SPAN_OUT;
        const double        ms = s->end_ms - s->begin_ms;
        if ((!out && s->kind != SPIPE_SPAN_IN) || s->end_ms < 0.0) continue;
        if (p->num_loads > 1 && l->looks[k].load + 1 >= p->num_loads) continue; /* maybe shorter */
        if (l->copies[out]++ == 0 || ms < l->least_ms[out]) l->least_ms[out] = ms;
        l->copy_ms[out] += ms;
    }
}
SPIPE_API int spipe_priv_span_order(const void *left, const void *right) {
    const spipe_span_t *a = (const spipe_span_t *)left, *b = (const spipe_span_t *)right;
    if (a->begin_ms != b->begin_ms) return a->begin_ms < b->begin_ms ? -1 : 1;
    return a->kind < b->kind ? -1 : a->kind > b->kind;
}
/* The time that at least one span of each kind, and of each stage, took; spans in order. */
SPIPE_API void spipe_priv_look_busy(spipe_priv_looker_t *l, spipe_report_t *r) {
    double end[SPIPE_PRIV_KINDS], stage_end[SPIPE_MAX_STAGES] = {0}, begin = -1.0, last = 0.0;
    size_t k;
    int    i;
    for (i = 0; i < SPIPE_PRIV_KINDS; ++i) end[i] = l->head_ms[i] = -1.0;
    for (k = 0; k < l->num_spans; ++k) {
        const spipe_span_t *s = &l->spans[k];
        double             *e = &end[s->kind], *se = &stage_end[s->stage < 0 ? 0 : s->stage];
        if (begin < 0.0) begin = s->begin_ms;
        if (*e < 0.0) l->head_ms[s->kind] = *e = s->begin_ms;
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
    for (i = 0; i < SPIPE_PRIV_KINDS; ++i) l->last_ms[i] = end[i];
    for (i = 0; i < SPIPE_PRIV_KINDS; ++i) l->head_ms[i] -= begin;
    l->wall_ms = last;
    r->timed_ms = begin < 0.0 ? 0.0 : last - begin;
}
/* One after another: each engine's time, copies at the rate that they have alone, stages each for
   itself. */
SPIPE_API void spipe_priv_look_serial(const spipe_priv_looker_t *l, const spipe_pipeline_t *p,
                                      spipe_report_t *r) {
    double most = 0.0;
    int    i;
    for (i = 0; i < SPIPE_PRIV_KINDS; ++i) {
        const int out = i == SPIPE_SPAN_OUT, copy = out || i == SPIPE_SPAN_IN;
        double    ms = r->busy_ms[i];
        if (copy && l->copies[out] > 1 && l->copy_ms[out] > 0.0) {
            ms *= (double)l->copies[out] * l->least_ms[out] / l->copy_ms[out];
        }
        if (ms > most) most = ms;
        if (r->busy_ms[i] > r->bound_ms) r->bound_ms = r->busy_ms[i];
        if (i != SPIPE_SPAN_STAGE && i != SPIPE_SPAN_HOST) r->serial_ms += ms;
    }
    for (i = 0; i < p->desc.num_stages; ++i) r->serial_ms += r->stage_ms[i];
    if (r->serial_ms < r->timed_ms && p->num_loads <= 1) r->serial_ms = r->timed_ms;
    if (r->serial_ms - most > 0.0) {
        r->overlap = (r->serial_ms - r->timed_ms) / (r->serial_ms - most);
    }
    r->overlap = r->overlap < 0.0 ? 0.0 : r->overlap > 1.0 ? 1.0 : r->overlap;
    r->sync_us = l->steps > 0 ? 1e3 * l->sync_ms / (double)l->steps : 0.0;
}

/* ---- 2 verdict ----------------------------------------------------------------------------- */
SPIPE_API int spipe_priv_env_is_set(const char *name) {
    const char *value = getenv(name);
    return value && value[0] && strcmp(value, "0") != 0;
}
/* Whether a profiler or compute-sanitizer runs this program. */
SPIPE_API int spipe_priv_env_watcher(void) {
    return getenv("CUDA_INJECTION64_PATH") || getenv("NSYS_PROFILING_SESSION_ID") ||
           getenv("NV_SANITIZER_INJECTION_TRANSPORT_TYPE");
}
/* Hardware queues that streams are spread over. */
SPIPE_API size_t spipe_priv_env_connections(void) {
    const char *limit = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    const long  given = limit ? strtol(limit, NULL, 10) : 8;
    return given < 1 ? 8 : given > 32 ? 32 : (size_t)given;
}
/* A line more of the verdict. */
SPIPE_API void spipe_priv_say(spipe_report_t *r, unsigned cause, const char *format, ...) {
    const size_t at = strlen(r->verdict);
    va_list      args;
    r->causes |= cause;
    if (at + 2 >= sizeof r->verdict) return;
    if (at > 0) memcpy(r->verdict + at, "\n", 2);
    va_start(args, format);
    vsnprintf(r->verdict + at + (at > 0), sizeof r->verdict - at - (at > 0), format, args);
    va_end(args);
}
/* The busiest engine, as a kind of span. */
SPIPE_API int spipe_priv_busiest(const spipe_report_t *r) {
    int i, most = 0;
    for (i = 1; i < SPIPE_PRIV_KINDS; ++i) {
        if (r->busy_ms[i] > r->busy_ms[most]) most = i;
    }
    return most;
}
SPIPE_API void spipe_priv_say_limit(spipe_report_t *r, const spipe_pipeline_t *p, int limit) {
    static const char *const names[] = {
        "the host threads that fill pinned slots", "copies in", "the stages", "the host stages",
        "copies out", "the host threads that drain pinned slots"};
    const double used = r->bound_ms / r->timed_ms;
    const int    which = limit == SPIPE_SPAN_STAGE && p->desc.num_stages > 1;
    int          i, s = 0;
    for (i = 1; i < p->desc.num_stages; ++i) {
        if (r->stage_ms[i] > r->stage_ms[s]) s = i;
    }
    spipe_priv_say(r, 0, "the limit is %s%s%.64s%s, busy %.0f %% of the time%s", names[limit],
                   which ? ", most of it '" : "", which ? p->desc.stages[s].name : "",
                   which ? "'" : "", 100.0 * used,
                   used >= 0.9 ? ": nothing around it can gain more" : "");
}
SPIPE_API void spipe_priv_say_surroundings(spipe_report_t *r, const spipe_pipeline_t *p) {
    const size_t connections = spipe_priv_env_connections();
    if (spipe_priv_env_is_set("CUDA_LAUNCH_BLOCKING")) {
        spipe_priv_say(r, SPIPE_CAUSE_LAUNCH_BLOCKING, "CUDA_LAUNCH_BLOCKING is set, so every "
                       "launch waits for its kernel: unset it (sync_each finds a stage at fault, "
                       "too)");
    }
    if (spipe_priv_env_watcher()) {
        spipe_priv_say(r, SPIPE_CAUSE_WATCHED, "a profiler or sanitizer is attached, and may run "
                       "work one after another: measure without it");
    }
    if (p->desc.sync_each || (p->desc.schedule == SPIPE_SERIAL && p->num_loads > 1)) {
        spipe_priv_say(r, SPIPE_CAUSE_SERIAL, "%s was asked for, so nothing overlaps: leave it out",
                       p->desc.sync_each ? "sync_each" : "the schedule SERIAL");
    }
    if ((size_t)p->num_streams > connections) {
        spipe_priv_say(r, SPIPE_CAUSE_CONNECTIONS, "%d streams share %zu hardware connections, and "
                       "some wait for each other: use fewer (SPIPE_ENGINES, fewer stages side by "
                       "side), or set CUDA_DEVICE_MAX_CONNECTIONS before the program starts",
                       p->num_streams, connections);
    }
    if (p->facts.copy_engines < 2 && p->moved[0] > 0 && p->moved[1] > 0) {
        spipe_priv_say(r, SPIPE_CAUSE_ONE_COPY_ENGINE, "the device has %d copy engine, so copies "
                       "in and out take turns: copy less, or keep data on the device",
                       p->facts.copy_engines);
    }
}
SPIPE_API void spipe_priv_say_memory(spipe_report_t *r, const spipe_pipeline_t *p) {
    int i, which = -1;
    for (i = 0; i < p->desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->desc.buffers[i];
        int                        type = SPIPE_PRIV_PINNED;
        if (which >= 0 || !b->host || p->registered[i] || p->facts.host_page_tables) continue;
        if (spipe_priv_memory_type(b->host, &type, NULL) != cudaSuccess) (void)cudaGetLastError();
        if (type == SPIPE_PRIV_PAGEABLE && b->kind != SPIPE_RESIDENT) which = i;
    }
    if (which < 0) return;
    spipe_priv_say(r, SPIPE_CAUSE_PAGEABLE, p->direct_pageable
                       ? "buffer %d is pageable and left to CUDA, whose copies of it block: pin it "
                         "(spipe_pin, spipe_pinned_alloc) if it is sent often, or let it be staged"
                       : "buffer %d is pageable and goes through pinned slots, which takes host "
                         "threads and memory bandwidth: pin it (spipe_pin, spipe_pinned_alloc) if "
                         "it is sent often", which);
}
SPIPE_API void spipe_priv_say_stages(spipe_report_t *r, const spipe_pipeline_t *p,
                                     const spipe_priv_looker_t *l) {
    int i;
    for (i = 0; i < p->desc.num_stages; ++i) {
        const spipe_priv_stage_look_t *s = &l->stages[i];
        const char                    *name = p->desc.stages[i].name;
        const int waited = s->busy >= 4 && s->waited * 10 >= s->busy * 9;
        if (s->legacy > 0) {
            spipe_priv_say(r, SPIPE_CAUSE_LEGACY_STREAM, "the legacy default stream is in use "
                           "around stage '%.64s': it and all blocking streams wait for each other; "
                           "enqueue on chunk->stream, create other streams with "
                           "cudaStreamNonBlocking", name);
        }
        if (s->probes > 0 && s->idle == s->probes && waited) {
            spipe_priv_say(r, SPIPE_CAUSE_OTHER_STREAM | SPIPE_CAUSE_STAGE_WAITS, "stage '%.64s' "
                           "put nothing on the stream that it was given, or came back when nothing "
                           "was left there: enqueue all of it on chunk->stream, and leave out what "
                           "synchronises", name);
        } else if (s->probes > 0 && s->idle == s->probes) {
            spipe_priv_say(r, SPIPE_CAUSE_OTHER_STREAM, "stage '%.64s' put nothing on the stream "
                           "that it was given: its work is not in order with the copies; enqueue "
                           "all of it on chunk->stream", name);
        } else if (waited && !spipe_priv_env_is_set("CUDA_LAUNCH_BLOCKING") && !p->desc.sync_each) {
            spipe_priv_say(r, SPIPE_CAUSE_STAGE_WAITS, "stage '%.64s' came back only when its "
                           "work was done, so nothing else was issued meanwhile: leave out what "
                           "synchronises (cudaDeviceSynchronize, cudaMemcpy, cudaFree, ...)", name);
        }
    }
}
SPIPE_API void spipe_priv_say_copies(spipe_report_t *r, const spipe_pipeline_t *p,
                                     const spipe_priv_looker_t *l, int limit) {
    const int    out = limit == SPIPE_SPAN_OUT;
    const double one = l->least_ms[out], all = l->copy_ms[out];
    double       slower;
    if (limit != SPIPE_SPAN_IN && !out) return;
    if (p->facts.copy_engines < 2 || l->copies[0] < 4 || l->copies[1] < 4) return;
    slower = all / (double)l->copies[out] / one;
    if (slower < 1.02) return;
    spipe_priv_say(r, SPIPE_CAUSE_BOTH_WAYS, "copies %s take %.2f x as long as alone, because both "
                   "directions share the bus and the host's memory: only fewer bytes would help",
                   out ? "out" : "in", slower);
}
/* Chunks that are too small or too large, and too few slots. */
SPIPE_API void spipe_priv_say_chunks(spipe_report_t *r, const spipe_pipeline_t *p,
                                     const spipe_priv_looker_t *l, int limit) {
    const double ends = l->head_ms[limit] + (l->wall_ms - l->last_ms[limit]);
    const double used = r->bound_ms / r->timed_ms;
    const int    asked = !strncmp(p->report.why_chunk, "as asked", 8);
    const char  *cure = "a larger total would hide it";
    const int    serial = p->desc.sync_each || p->one_stream;
    const double bytes = (double)p->elem_moved * (double)p->load;
    if (used >= 0.9 || serial) return;
    if (ends > 0.12 * r->timed_ms && bytes >= 262144.0) {
        spipe_priv_say(r, SPIPE_CAUSE_LARGE_CHUNKS, "for %.0f %% of the time the first and the "
                       "last of %zu chunks run alone (fill and drain): %s",
                       100.0 * ends / r->timed_ms, p->num_loads * p->batch,
                       asked ? "make chunks smaller, or leave chunk to the library" : cure);
    } else if (bytes < 131072.0 && p->num_loads >= 16) {
        spipe_priv_say(r, SPIPE_CAUSE_SMALL_CHUNKS, "copies of %.1f KiB are too small: each loses "
                       "about as much time as 120 KB take, and every call costs some: %s",
                       bytes / 1024.0,
                       asked ? "make chunks larger, or leave chunk to the library" : cure);
    }
    if (l->slot_ms > 0.1 * r->timed_ms && !p->needs_fill) {
        spipe_priv_say(r, SPIPE_CAUSE_DEPTH, "copies in waited %zu times for a free slot, %.0f "
                       "%% of the time in all: more depth than %zu", l->slot_waits,
                       100.0 * l->slot_ms / r->timed_ms, p->desc.depth);
    }
}
SPIPE_API void spipe_priv_print_timed(const spipe_report_t *r, FILE *to) {
    static const char *const names[] = {"fill", "copy in", "stages", "host", "copy out", "drain"};
    const char              *line = r->verdict;
    int                      i, n;
    fprintf(to, "  looked at %.3f ms, as busy as     %%     idle between\n", r->timed_ms);
    for (i = 0; i < 6; ++i) {
        if (!(r->busy_ms[i] > 0.0)) continue;
        fprintf(to, "  %-9s %16.3f ms %8.1f %11.3f ms\n", names[i], r->busy_ms[i],
                100.0 * r->busy_ms[i] / r->timed_ms, r->idle_ms[i]);
    }
    for (i = 0; i < r->num_stages && r->num_stages > 1; ++i) {
        fprintf(to, "    %-14.14s %9.3f ms %8.1f\n", r->stage_names[i], r->stage_ms[i],
                100.0 * r->stage_ms[i] / r->timed_ms);
    }
    fprintf(to, "  overlap   %.0f %% of what can be hidden; one after another %.3f ms (%.2f x)\n",
            100.0 * r->overlap, r->serial_ms, r->serial_ms / r->timed_ms);
    fprintf(to, "  bound     %.3f ms, the busiest engine's work: %.0f %% of it reached\n",
            r->bound_ms, 100.0 * r->bound_ms / r->timed_ms);
    fprintf(to, "  sync      %.2f us from a step's turn to its begin, on average\n", r->sync_us);
    for (; *line; line += n + (line[n] == '\n')) {
        n = (int)strcspn(line, "\n");
        fprintf(to, "  %-9s %.*s\n", line == r->verdict ? "verdict" : "", n, line);
    }
}
SPIPE_API void spipe_priv_look_judge(spipe_report_t *r, const spipe_pipeline_t *p,
                                     const spipe_priv_looker_t *l) {
    const int limit = spipe_priv_busiest(r);
    if (!(r->timed_ms > 0.0)) return;
    r->print_more = spipe_priv_print_timed;
    spipe_priv_say_limit(r, p, limit);
    spipe_priv_say_surroundings(r, p);
    spipe_priv_say_memory(r, p);
    spipe_priv_say_stages(r, p, l);
    spipe_priv_say_copies(r, p, l, limit);
    spipe_priv_say_chunks(r, p, l, limit);
    if (limit == SPIPE_SPAN_HOST || (p->has_source && limit == SPIPE_SPAN_FILL) ||
        (p->has_sink && limit == SPIPE_SPAN_DRAIN)) {
        spipe_priv_say(r, SPIPE_CAUSE_HOST_WORK, "the device waits for the host's own work: %s",
                       limit == SPIPE_SPAN_HOST ? "do less in host stages, or more on the device"
                                                : "sources and sinks are called by one thread");
    }
    if (l->lost > 0) {
        spipe_priv_say(r, 0, "%zu operations found no room and are not in these figures", l->lost);
    }
}

/* ---- 1 timeline: the end of a run ---------------------------------------------------------- */
SPIPE_API void spipe_priv_look_end(spipe_timeline_t *t, spipe_pipeline_t *p) {
    spipe_priv_looker_t *l = t->looker;
    spipe_report_t      *r = &p->report;
    size_t               k, kept = 0;
    spipe_priv_look_times(l, 1e3 * (p->began - l->zero_s));
    spipe_priv_look_turns(l, p);
    spipe_priv_look_copies(l, p);
    for (k = 0; k < l->num_spans; ++k) {
        if (l->spans[k].end_ms >= 0.0) l->spans[kept++] = l->spans[k];
    }
    l->num_spans = kept;
    if (kept > 0) qsort(l->spans, kept, sizeof *l->spans, spipe_priv_span_order);
    spipe_priv_look_busy(l, r);
    spipe_priv_look_serial(l, p, r);
    spipe_priv_look_judge(r, p, l);
    t->wall_ms = l->wall_ms;
    t->num_lost = l->lost;
    t->num_spans = l->spans == t->spans ? kept : 0;
    if (l->spans != t->spans) free(l->spans);
    for (k = 0; k < l->num_looks || (l->looks && l->looks[k].begin); ++k) {
        if (l->looks[k].begin) (void)cudaEventDestroy(l->looks[k].begin);
        if (l->looks[k].end) (void)cudaEventDestroy(l->looks[k].end);
    }
    if (l->zero) (void)cudaEventDestroy(l->zero);
    free(l->looks);
    free(l);
    t->looker = NULL;
}
/* What a run tells, from the thread that runs it or one of its crews. */
SPIPE_API void spipe_priv_look_told(spipe_timeline_t *t, spipe_pipeline_t *p, int what,
                                    const void *about, size_t load, int after) {
    if (what == SPIPE_PRIV_WATCH_RUN && !after) spipe_priv_look_begin(t, p);
    if (!t->looker) return;
    if (what == SPIPE_PRIV_WATCH_RUN && after) {
        spipe_priv_look_end(t, p);
    } else if (what == SPIPE_PRIV_WATCH_OP) {
        spipe_priv_look_at_op(t->looker, p, (const spipe_priv_op_t *)about, load, after);
    } else if (what == SPIPE_PRIV_WATCH_TASK) {
        spipe_priv_look_at_task(t->looker, p, (const spipe_priv_task_t *)about, after);
    }
}
SPIPE_API spipe_timeline_t spipe_timeline_default(void) {
    spipe_timeline_t t;
    memset(&t, 0, sizeof t);
    t.watch.tell = spipe_priv_look_told;
    return t;
}

/* ---- numbers, text and files -------------------------------------------------------------- */
SPIPE_API unsigned long long spipe_priv_round(double v) {
    const unsigned long long n = (unsigned long long)v;
    return n + (v - (double)n >= 0.5);
}
/* Printed by hand: printf would put a comma where the locale has one. v is within +-1e12. */
SPIPE_API void spipe_priv_put(FILE *f, double v, int decimals) {
    unsigned long long scale = 1, n;
    int                i;
    for (i = 0; i < decimals; ++i) scale *= 10;
    if (v < 0.0) fputc('-', f);
    n = spipe_priv_round((v < 0.0 ? -v : v) * (double)scale);
    fprintf(f, "%llu", n / scale);
    if (decimals > 0) fprintf(f, ".%0*llu", decimals, n % scale);
}

/* The next character of UTF-8; 0xFFFD, and one byte on, where the bytes are none. */
SPIPE_API unsigned long spipe_priv_next_char(const unsigned char **at) {
    static const unsigned long least[] = {0, 0x80, 0x800, 0x10000};
    const unsigned char       *s = *at;
    unsigned long              c = *s;
    int more = c < 0x80 ? 0 : c < 0xC0 ? -1 : c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3, i;
    *at = s + 1;
    if (more < 0 || c > 0xF4) return 0xFFFD;
    if (more == 0) return c;
    c &= 0x3FUL >> more;
    for (i = 1; i <= more; ++i) {
        if ((s[i] & 0xC0) != 0x80) return 0xFFFD;
        c = c << 6 | (s[i] & 0x3FUL);
    }
    if (c < least[more] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return 0xFFFD;
    *at = s + 1 + more;
    return c;
}

enum { SPIPE_PRIV_PLAIN, SPIPE_PRIV_XML, SPIPE_PRIV_JSON };

/* Writes at most max characters of a name so that it cannot be taken for anything else; gives how
   many. Control characters would move a cursor or end the XML: a question mark. JSON also stands
   inside an HTML script, which "</" or "<!--" would end. */
SPIPE_API int spipe_priv_put_text(FILE *f, const char *text, int form, int max) {
    const unsigned char *at = (const unsigned char *)(text ? text : "");
    int                  n = 0;
    for (; *at && n < max; ++n) {
        const unsigned char *from = at;
        unsigned long        c = spipe_priv_next_char(&at);
        if (c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0xFFFE || c == 0xFFFF) c = '?';
        if (c == 0x2028 || c == 0x2029) c = ' '; /* ends a line of JavaScript */
        if (c == 0xFFFD) {
            fputs(form == SPIPE_PRIV_PLAIN ? "?" : "\xEF\xBF\xBD", f);
        } else if (c >= 0x80) {
            (void)fwrite(from, 1, (size_t)(at - from), f);
        } else if (form == SPIPE_PRIV_PLAIN || !strchr("<>&\"'\\", (int)c)) {
            fputc((int)c, f);
        } else if (form == SPIPE_PRIV_XML) {
            fprintf(f, "&#%lu;", c);
        } else {
            fprintf(f, "\\u%04lx", c);
        }
    }
    return n;
}
/* A file that is there whole or not at all. */
typedef struct spipe_priv_file {
    FILE       *f;
    const char *path;
    char       *part; /* written first; NULL where path is a device or a pipe */
} spipe_priv_file_t;

SPIPE_API cudaError_t spipe_priv_file_open(spipe_priv_file_t *file, const char *path) {
    int plain = 1;
#if defined(S_ISREG)
    struct stat st;
    plain = !path || stat(path, &st) != 0 || S_ISREG(st.st_mode);
#endif
    file->f = NULL;
    file->path = path;
    file->part = NULL;
    if (!path || !path[0]) return cudaErrorInvalidValue;
    if (plain) {
        const size_t n = strlen(path);
        file->part = (char *)malloc(n + 6);
        if (!file->part) return cudaErrorMemoryAllocation;
        memcpy(file->part, path, n);
        memcpy(file->part + n, ".part", 6);
    }
    file->f = fopen(file->part ? file->part : path, "wb");
    if (file->f) return cudaSuccess;
    free(file->part);
    return cudaErrorOperatingSystem;
}
/* A full disk may show only when the last bytes are flushed. Keeps errno as the fault left it. */
SPIPE_API cudaError_t spipe_priv_file_close(spipe_priv_file_t *file) {
    int bad = ferror(file->f), why;
    bad |= fflush(file->f) != 0;
    why = errno;
    if (fclose(file->f) != 0 && !bad) bad = 1, why = errno;
    if (file->part) {
#if defined(_WIN32)
        if (!bad) (void)remove(file->path); /* rename does not replace there */
#endif
        if (!bad && rename(file->part, file->path) != 0) bad = 1, why = errno;
        if (bad) (void)remove(file->part);
        free(file->part);
    }
    if (bad) errno = why;
    return bad ? cudaErrorOperatingSystem : cudaSuccess;
}

/* ---- 3 pictures: the rows ------------------------------------------------------------------ */
enum { SPIPE_PRIV_MAX_ROWS = 64, SPIPE_PRIV_MAX_COLUMNS = 400, SPIPE_PRIV_HUES = 8 };

typedef struct spipe_priv_row {
    spipe_span_kind_t kind;
    int               stage, number, lane; /* number: of the rows of this kind and stage */
    size_t            first, num_bars;
    double            end_ms, busy_ms;
} spipe_priv_row_t;

typedef struct spipe_priv_bar {
    spipe_span_t span; /* first, so that both sort alike */
    int          row;
} spipe_priv_bar_t;

/* A timeline as all pictures show it: clean numbers, sorted by row and time, no overlap in rows. */
typedef struct spipe_priv_chart {
    const spipe_timeline_t *timeline;
    spipe_priv_bar_t       *bars;
    size_t                  num_bars, num_chunks, num_left_out;
    size_t                  per_hue; /* chunks that share a colour */
    double                  wall_ms;
    int                     num_rows;
    spipe_priv_row_t        rows[SPIPE_PRIV_MAX_ROWS];
} spipe_priv_chart_t;

SPIPE_API int spipe_priv_bar_order(const void *left, const void *right) {
    const spipe_priv_bar_t *a = (const spipe_priv_bar_t *)left;
    const spipe_priv_bar_t *b = (const spipe_priv_bar_t *)right;
    if (a->row != b->row) return a->row < b->row ? -1 : 1;
    if (a->span.kind != b->span.kind) return a->span.kind < b->span.kind ? -1 : 1;
    if (a->span.stage != b->span.stage) return a->span.stage < b->span.stage ? -1 : 1;
    if (a->span.begin_ms != b->span.begin_ms) return a->span.begin_ms < b->span.begin_ms ? -1 : 1;
    if (a->span.end_ms != b->span.end_ms) return a->span.end_ms < b->span.end_ms ? -1 : 1;
    return a->span.chunk < b->span.chunk ? -1 : a->span.chunk > b->span.chunk;
}
/* Takes over the spans that can be drawn: nanoseconds within 30 years, which all formats keep. */
SPIPE_API void spipe_priv_chart_take(spipe_priv_chart_t *c) {
    const spipe_timeline_t *t = c->timeline;
    const double            most = 1e12;
    size_t                  i;
    for (i = 0; i < t->num_spans; ++i) {
        spipe_priv_bar_t *bar = &c->bars[c->num_bars];
        spipe_span_t     *s = &bar->span;
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
        if (s->end_ms > c->wall_ms) c->wall_ms = s->end_ms;
        ++c->num_bars;
    }
}
/* The row that is free when the span begins: the one of its own lane, else the first. Clocks
   disagree by a microsecond or two; that is no overlap. */
SPIPE_API int spipe_priv_chart_row(spipe_priv_chart_t *c, int first, const spipe_span_t *s) {
    const double half = (s->end_ms - s->begin_ms) / 2.0, slack = half < 0.002 ? half : 0.002;
    int          r, found = -1;
    for (r = first; r < c->num_rows; ++r) {
        if (c->rows[r].end_ms > s->begin_ms + slack) continue;
        if (found < 0 || (c->rows[r].lane == s->lane && c->rows[found].lane != s->lane)) found = r;
    }
    if (found < 0 && c->num_rows < SPIPE_PRIV_MAX_ROWS) {
        found = c->num_rows++;
        memset(&c->rows[found], 0, sizeof c->rows[found]);
        c->rows[found].kind = s->kind;
        c->rows[found].stage = s->stage;
        c->rows[found].number = found - first;
    }
    if (found >= 0) c->rows[found].lane = s->lane;
    return found;
}
SPIPE_API void spipe_priv_chart_rows(spipe_priv_chart_t *c) {
    size_t i, kept = 0;
    int    first = 0;
    for (i = 0; i < c->num_bars; ++i) {
        spipe_priv_bar_t  bar = c->bars[i];
        spipe_priv_row_t *row;
        if (i > 0 && (c->bars[i - 1].span.kind != bar.span.kind ||
                      c->bars[i - 1].span.stage != bar.span.stage)) {
            first = c->num_rows;
        }
        bar.row = spipe_priv_chart_row(c, first, &bar.span);
        if (bar.row < 0) {
            ++c->num_left_out;
            c->bars[i].row = SPIPE_PRIV_MAX_ROWS; /* behind all others */
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
SPIPE_API cudaError_t spipe_priv_chart_create(spipe_priv_chart_t *c, const spipe_timeline_t *t) {
    if (!t || t->num_spans > t->capacity || (t->num_spans > 0 && !t->spans)) {
        return cudaErrorInvalidValue;
    }
    memset(c, 0, sizeof *c);
    c->timeline = t;
    c->bars = (spipe_priv_bar_t *)malloc((t->num_spans + 1) * sizeof *c->bars);
    if (!c->bars) return cudaErrorMemoryAllocation;
    if (spipe_priv_is_number(t->wall_ms, 0.0, 1e12)) c->wall_ms = t->wall_ms;
    spipe_priv_chart_take(c);
    if (!(c->wall_ms > 0.0)) c->wall_ms = 1e-3; /* nothing ran: an axis all the same */
    qsort(c->bars, c->num_bars, sizeof *c->bars, spipe_priv_bar_order);
    spipe_priv_chart_rows(c);
    c->per_hue = (c->num_chunks + 63) / 64;
    if (c->per_hue < 1) c->per_hue = 1;
    return cudaSuccess;
}
/* "copy in", "stage blur", "stage blur #2"; gives how many characters it took. */
SPIPE_API int spipe_priv_put_label(FILE *f, const spipe_priv_chart_t *c, const spipe_priv_row_t *r,
                                   int form, int max) {
    const char *name = NULL;
    char        number[32] = "";
    int         n;
    if (r->stage >= 0 && r->stage < SPIPE_MAX_STAGES) name = c->timeline->stage_names[r->stage];
    n = spipe_priv_put_text(f, spipe_priv_span_name(r->kind), form, max);
    if (r->kind == SPIPE_SPAN_STAGE || r->kind == SPIPE_SPAN_HOST) {
        if (!name || !name[0]) snprintf(number, sizeof number, "%d", r->stage);
        n += spipe_priv_put_text(f, " ", form, max - n);
        n += spipe_priv_put_text(f, number[0] ? number : name, form, max - n - (r->number ? 4 : 0));
    }
    snprintf(number, sizeof number, " #%d", r->number + 1);
    if (r->number > 0) n += spipe_priv_put_text(f, number, form, max - n);
    return n;
}
/* "NVIDIA H200, 8 chunks, 2.345 ms, modelled" */
SPIPE_API void spipe_priv_put_title(FILE *f, const spipe_priv_chart_t *c, int form) {
    const spipe_timeline_t *t = c->timeline;
    char                    device[sizeof t->device + 1];
    memcpy(device, t->device, sizeof t->device);
    device[sizeof t->device] = 0;
    spipe_priv_put_text(f, device[0] ? device : "no device", form, 40);
    fprintf(f, ", %zu chunk%s, ", c->num_chunks, c->num_chunks == 1 ? "" : "s");
    spipe_priv_put(f, c->wall_ms, c->wall_ms < 1.0 ? 5 : 3);
    fputs(" ms", f);
    if (t->modelled) fputs(", modelled", f);
    if (t->num_lost + c->num_left_out > 0) {
        fprintf(f, ", %zu operations not shown", t->num_lost + c->num_left_out);
    }
}
/* Distance of the marks on a time axis of about num marks: 1, 2 or 5 times a power of ten. */
SPIPE_API double spipe_priv_tick(double wall_ms, int num, int *decimals) {
    double step = 1e-6;
    int    i = 0;
    while (step * num < wall_ms) {
        step *= i % 3 == 1 ? 2.5 : 2.0;
        ++i;
    }
    *decimals = i / 3 < 6 ? 6 - i / 3 : 0;
    return step;
}

/* ---- 3 pictures: for the terminal ---------------------------------------------------------- */
typedef struct spipe_priv_cell {
    double busy_ms, most_ms; /* of all chunks, of the one that has most of it */
    size_t chunk;
} spipe_priv_cell_t;

SPIPE_API char spipe_priv_cell_char(const spipe_priv_cell_t *cell, double cell_ms) {
    if (cell->busy_ms < 0.02 * cell_ms) return '.';
    if (cell->busy_ms < 0.5 * cell_ms) return ':';
    return cell->most_ms < 0.499 * cell_ms ? '#' : (char)('0' + cell->chunk % 10);
}
SPIPE_API void spipe_priv_print_row(FILE *to, const spipe_priv_chart_t *c,
                                    const spipe_priv_row_t *row, int columns) {
    spipe_priv_cell_t cells[SPIPE_PRIV_MAX_COLUMNS];
    const double      cell_ms = c->wall_ms / columns;
    size_t            i;
    int               k;
    memset(cells, 0, sizeof cells);
    for (i = row->first; i < row->first + row->num_bars; ++i) {
        const spipe_span_t *s = &c->bars[i].span;
        for (k = (int)(s->begin_ms / cell_ms); k < columns && k * cell_ms < s->end_ms; ++k) {
            const double from = k * cell_ms, end = from + cell_ms;
            const double ms = (s->end_ms < end ? s->end_ms : end) -
                              (s->begin_ms > from ? s->begin_ms : from);
            cells[k].busy_ms += ms;
            if (ms > cells[k].most_ms) cells[k].most_ms = ms, cells[k].chunk = s->chunk;
        }
    }
    for (k = 0; k < columns; ++k) fputc(spipe_priv_cell_char(&cells[k], cell_ms), to);
}
/* The marks, and below them their times. */
SPIPE_API void spipe_priv_print_axis(FILE *to, const spipe_priv_chart_t *c, int indent,
                                     int columns) {
    int          decimals, k, mark = 0, at = 0;
    const double step = spipe_priv_tick(c->wall_ms, columns / 12, &decimals);
    fprintf(to, "%*s ", indent, "");
    for (k = 0; k < columns; ++k) {
        const int here = (int)spipe_priv_round(mark * step / c->wall_ms * columns) == k;
        fputc(here ? '+' : '-', to);
        mark += here;
    }
    fprintf(to, "\n%*s ", indent, "");
    for (k = 0; k < mark; ++k) {
        const int          column = (int)spipe_priv_round(k * step / c->wall_ms * columns);
        unsigned long long whole = (unsigned long long)(k * step + 1e-9);
        fprintf(to, "%*s", column - at, "");
        spipe_priv_put(to, k * step, decimals);
        for (at = column + 1 + (decimals > 0) + decimals; whole >= 10; whole /= 10) ++at;
    }
    fputs(" ms\n", to);
}
SPIPE_API cudaError_t spipe_timeline_print(const spipe_timeline_t *timeline, FILE *to,
                                           int columns) {
    enum { LABEL = 16, USE = 8 };
    spipe_priv_chart_t c;
    int                r;
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
        fprintf(to, "|%4.0f %%\n", 100.0 * c.rows[r].busy_ms / c.wall_ms);
    }
    spipe_priv_print_axis(to, &c, LABEL, columns);
    fputs("a digit: the last of a chunk's number; # several chunks, : busy for less than half, "
          ". idle\n", to);
    free(c.bars);
    return ferror(to) ? cudaErrorOperatingSystem : cudaSuccess;
}

/* ---- 3 pictures: SVG ----------------------------------------------------------------------- */
enum { SPIPE_PRIV_LEFT = 150, SPIPE_PRIV_WIDE = 840, SPIPE_PRIV_TOP = 62, SPIPE_PRIV_STEP = 34,
       SPIPE_PRIV_HIGH = 26 };

SPIPE_API void spipe_priv_svg_head(FILE *f, const spipe_priv_chart_t *c) {
    static const char *const hues[SPIPE_PRIV_HUES] = {"5b8fd6", "f2a03d", "62b46a", "e8717a",
                                                      "4fbcb5", "dcc13f", "b48ad0", "a98267"};
    int                      i;
    fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1060 %d\" "
               "font-family=\"system-ui,sans-serif\" font-size=\"13\">\n<title>",
            SPIPE_PRIV_TOP + c->num_rows * SPIPE_PRIV_STEP + 34);
    spipe_priv_put_title(f, c, SPIPE_PRIV_XML);
    fputs("</title>\n<style>\nsvg{background:#fff}.l{fill:#eef0f3}.t{fill:#1d2430}"
          ".s{fill:#5c6675}.n{fill:#10151d}.g{stroke:#c9ced6}\n", f);
    for (i = 0; i < SPIPE_PRIV_HUES; ++i) fprintf(f, ".h%d{fill:#%s}", i, hues[i]);
    fputs("\n@media (prefers-color-scheme:dark){\nsvg{background:#14181f}.l{fill:#222934}"
          ".t{fill:#e6e9ee}.s{fill:#9aa4b2}.g{stroke:#3a4351}}\n</style>\n"
          "<text class=\"t\" x=\"12\" y=\"24\" font-size=\"16\">", f);
    spipe_priv_put_title(f, c, SPIPE_PRIV_XML);
    fputs("</text>\n<text class=\"s\" x=\"12\" y=\"45\">A row is an engine; a colour is ", f);
    if (c->per_hue == 1) fputs("a chunk", f);
    else fprintf(f, "%zu neighbouring chunks", c->per_hue);
    fputs("; at the right, how much of the time it is busy.</text>\n", f);
}
/* The rows' grounds, their labels, and the time axis, all behind the bars. */
SPIPE_API void spipe_priv_svg_ground(FILE *f, const spipe_priv_chart_t *c) {
    const int    bottom = SPIPE_PRIV_TOP + c->num_rows * SPIPE_PRIV_STEP;
    int          decimals, k, y = SPIPE_PRIV_TOP;
    const double step = spipe_priv_tick(c->wall_ms, 10, &decimals);
    for (k = 0; k < c->num_rows; ++k, y += SPIPE_PRIV_STEP) {
        fprintf(f, "<rect class=\"l\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>"
                   "<text class=\"t\" x=\"12\" y=\"%d\">",
                SPIPE_PRIV_LEFT, y, SPIPE_PRIV_WIDE, SPIPE_PRIV_HIGH, y + 18);
        spipe_priv_put_label(f, c, &c->rows[k], SPIPE_PRIV_XML, 18);
        fprintf(f, "</text><text class=\"s\" text-anchor=\"end\" x=\"1048\" y=\"%d\">%.0f %%"
                   "</text>\n", y + 18, 100.0 * c->rows[k].busy_ms / c->wall_ms);
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
/* One rectangle: a bar with its number and a hint, or many that touch and have one colour. */
SPIPE_API void spipe_priv_svg_bar(FILE *f, const spipe_priv_chart_t *c, const spipe_priv_bar_t *bar,
                                  double end_ms) {
    const spipe_span_t *s = &bar->span;
    const int           y = SPIPE_PRIV_TOP + bar->row * SPIPE_PRIV_STEP;
    const double        scale = (double)SPIPE_PRIV_WIDE / c->wall_ms;
    const double        x = (double)SPIPE_PRIV_LEFT + s->begin_ms * scale;
    const double        w = (end_ms - s->begin_ms) * scale;
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
SPIPE_API void spipe_priv_svg(FILE *f, const spipe_priv_chart_t *c) {
    const double seam = 0.02 * c->wall_ms / (double)SPIPE_PRIV_WIDE; /* a gap nobody could see */
    size_t       i, j;
    spipe_priv_svg_head(f, c);
    spipe_priv_svg_ground(f, c);
    for (i = 0; i < c->num_bars; i = j) {
        const spipe_priv_bar_t *bar = &c->bars[i];
        const size_t            hue = bar->span.chunk / c->per_hue;
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
/* The page's parts, line by line: a C string may be no longer than 4,095 characters. */
SPIPE_API void spipe_priv_put_lines(FILE *f, const char *const *lines) {
    for (; *lines; ++lines) fprintf(f, "%s\n", *lines);
}
SPIPE_API void spipe_priv_html_style(FILE *f) {
    static const char *const lines[] = {
        "<style>",
        ":root{color-scheme:light dark;--p:#fff;--l:#eef0f3;--t:#1d2430;--s:#5c6675;--g:#c9ced6}",
        "@media (prefers-color-scheme:dark){",
        ":root{--p:#14181f;--l:#222934;--t:#e6e9ee;--s:#9aa4b2;--g:#3a4351}}",
        "body{margin:0;padding:12px 16px;background:var(--p);color:var(--t);",
        "font:14px system-ui,sans-serif}",
        "h1{font-size:17px;font-weight:600;margin:0 0 4px}p{margin:0 0 10px;color:var(--s)}",
        "canvas{display:block;width:100%;cursor:grab;touch-action:none;outline-offset:2px}",
        "canvas:active{cursor:grabbing}",
        "#tip{position:fixed;display:none;padding:6px 9px;border-radius:5px;background:var(--t);",
        "color:var(--p);font-size:13px;white-space:pre;pointer-events:none}",
        "</style></head><body>", NULL};
    spipe_priv_put_lines(f, lines);
}
SPIPE_API void spipe_priv_html_draw(FILE *f) {
    static const char *const lines[] = {
        "const hues=['#5b8fd6','#f2a03d','#62b46a','#e8717a','#4fbcb5','#dcc13f','#b48ad0',",
        "'#a98267'],cv=document.querySelector('canvas'),tip=document.querySelector('#tip'),",
        "L=150,R=58,T=8,S=34,H=26,W=D.wall;let a=0,b=W,mx=-1,my=-1;",
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
SPIPE_API void spipe_priv_html_move(FILE *f) {
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
        "</script></body></html>", NULL};
    spipe_priv_put_lines(f, lines);
}
/* D: what the script draws. A row: label, busy %; a span: row, chunk, begin, end. */
SPIPE_API void spipe_priv_html_data(FILE *f, const spipe_priv_chart_t *c) {
    size_t i;
    int    r;
    fputs("const D={wall:", f);
    spipe_priv_put(f, c->wall_ms, 6);
    fprintf(f, ",modelled:%d,rows:[", c->timeline->modelled != 0);
    for (r = 0; r < c->num_rows; ++r) {
        fputs(r > 0 ? ",[\"" : "[\"", f);
        spipe_priv_put_label(f, c, &c->rows[r], SPIPE_PRIV_JSON, 40);
        fprintf(f, "\",%.0f]", 100.0 * c->rows[r].busy_ms / c->wall_ms);
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
SPIPE_API void spipe_priv_html(FILE *f, const spipe_priv_chart_t *c) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width\">\n<title>", f);
    spipe_priv_put_title(f, c, SPIPE_PRIV_XML);
    fputs("</title>\n", f);
    spipe_priv_html_style(f);
    fputs("<h1>", f);
    spipe_priv_put_title(f, c, SPIPE_PRIV_XML);
    fputs("</h1>\n<p>A row is an engine; a colour is <span id=\"per\"></span>. Wheel or + and - "
          "zoom, drag or arrows move, 0 shows all; point at an operation to see its chunk and "
          "times.</p>\n<canvas tabindex=\"0\" role=\"img\" aria-label=\"timeline: ", f);
    spipe_priv_put_title(f, c, SPIPE_PRIV_XML);
    fputs("\"></canvas>\n<div id=\"tip\"></div>\n<script>\n", f);
    spipe_priv_html_data(f, c);
    spipe_priv_html_draw(f);
    spipe_priv_html_move(f);
}

/* ---- 3 pictures: Chrome trace -------------------------------------------------------------- */
/* Microseconds, in steps of 1/1024: readers add start and length in binary, and neighbours that
   touch must not overlap by a rounding (speedscope would take one for the caller of the next). */
SPIPE_API void spipe_priv_trace_time(FILE *f, unsigned long long v) {
    fprintf(f, "%llu.%010llu", v / 1024, v % 1024 * 9765625);
}
/* The name gives the colour, so it is the chunk's. */
SPIPE_API void spipe_priv_trace_span(FILE *f, const spipe_priv_chart_t *c,
                                     const spipe_priv_bar_t *bar) {
    const unsigned long long begin = spipe_priv_round(bar->span.begin_ms * 1024e3);
    const unsigned long long end = spipe_priv_round(bar->span.end_ms * 1024e3);
    fprintf(f, ",\n{\"ph\":\"X\",\"name\":\"chunk %zu\",\"cat\":\"%s%s\",\"pid\":1,\"tid\":%d,"
               "\"ts\":", bar->span.chunk, spipe_priv_span_name(bar->span.kind),
            c->timeline->modelled ? ",modelled" : "", bar->row + 1);
    spipe_priv_trace_time(f, begin);
    fputs(",\"dur\":", f);
    spipe_priv_trace_time(f, end - begin);
    fprintf(f, ",\"args\":{\"chunk\":%zu}}", bar->span.chunk);
}
SPIPE_API void spipe_priv_trace(FILE *f, const spipe_priv_chart_t *c) {
    size_t i;
    int    r;
    fprintf(f, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"producer\":\"streampipe\","
               "\"modelled\":%s},\n\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"process_name\","
               "\"pid\":1,\"tid\":0,\"args\":{\"name\":\"streampipe: ",
            c->timeline->modelled ? "true" : "false");
    spipe_priv_put_title(f, c, SPIPE_PRIV_JSON);
    fputs("\"}}", f);
    for (r = 0; r < c->num_rows; ++r) {
        fprintf(f, ",\n{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":1,\"tid\":%d,"
                   "\"args\":{\"sort_index\":%d}},\n{\"ph\":\"M\",\"name\":\"thread_name\","
                   "\"pid\":1,\"tid\":%d,\"args\":{\"name\":\"", r + 1, r + 1, r + 1);
        spipe_priv_put_label(f, c, &c->rows[r], SPIPE_PRIV_JSON, 80);
        fputs("\"}}", f);
    }
    for (i = 0; i < c->num_bars; ++i) spipe_priv_trace_span(f, c, &c->bars[i]);
    fputs("\n]}\n", f);
}
SPIPE_API cudaError_t spipe_priv_chart_write(const spipe_timeline_t *timeline, const char *path,
                                             void (*put)(FILE *f, const spipe_priv_chart_t *c)) {
    spipe_priv_chart_t c;
    spipe_priv_file_t  file;
    cudaError_t        e;
    SPIPE_TRY(spipe_priv_chart_create(&c, timeline));
    e = spipe_priv_file_open(&file, path);
    if (e == cudaSuccess) {
        put(file.f, &c);
        e = spipe_priv_file_close(&file);
    }
    free(c.bars);
    return e;
}
SPIPE_API cudaError_t spipe_timeline_write_svg(const spipe_timeline_t *timeline,
                                               const char *path) {
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
/* One member; the comma before it is the caller's, as the first has none. */
SPIPE_API void spipe_priv_json_size(FILE *f, const char *name, size_t v) {
    if (v == SPIPE_AUTO) fprintf(f, "\"%s\": null", name); /* none, or not known */
    else fprintf(f, "\"%s\": %zu", name, v);
}
SPIPE_API void spipe_priv_json_int(FILE *f, const char *name, int v) {
    fprintf(f, "\"%s\": %d", name, v);
}
SPIPE_API void spipe_priv_json_double(FILE *f, const char *name, double v) {
    fprintf(f, "\"%s\": ", name);
    if (spipe_priv_is_number(v, -1e12, 1e12)) spipe_priv_put(f, v, 6);
    else fputs("null", f);
}
SPIPE_API void spipe_priv_json_text(FILE *f, const char *name, const char *text) {
    fprintf(f, "\"%s\": \"", name);
    spipe_priv_put_text(f, text, SPIPE_PRIV_JSON, INT_MAX);
    fputc('"', f);
}
SPIPE_API void spipe_priv_json_doubles(FILE *f, const char *name, const double *v, int num) {
    int i;
    fprintf(f, "\"%s\": [", name);
    for (i = 0; i < num; ++i) {
        if (i > 0) fputs(", ", f);
        if (spipe_priv_is_number(v[i], -1e12, 1e12)) spipe_priv_put(f, v[i], 6);
        else fputs("null", f);
    }
    fputc(']', f);
}
SPIPE_API void spipe_priv_json_six(FILE *f, const char *name, const double *v) {
    spipe_priv_json_doubles(f, name, v, SPIPE_PRIV_KINDS);
}
/* A list with a value for each device. */
SPIPE_API void spipe_priv_json_devices(FILE *f, const char *name, const spipe_report_t *r,
                                       int chunks) {
    int i;
    fprintf(f, ",\n  \"%s\": [", name);
    for (i = 0; i < r->num_devices; ++i) {
        fprintf(f, "%s%zu", i > 0 ? ", " : "",
                chunks ? r->device_chunks[i] : (size_t)r->device_numbers[i]);
    }
    fputc(']', f);
}
/* A field of the report is one line here. */
SPIPE_API void spipe_priv_report_members(FILE *f, const spipe_report_t *r) {
#define SPIPE_PRIV_MEMBER(kind, field)                                                             \
    fputs(",\n  ", f), spipe_priv_json_##kind(f, #field, r->field)
    SPIPE_PRIV_MEMBER(text, device); SPIPE_PRIV_MEMBER(size, total);
    SPIPE_PRIV_MEMBER(size, count_done); SPIPE_PRIV_MEMBER(size, num_chunks);
    SPIPE_PRIV_MEMBER(size, chunks_done); SPIPE_PRIV_MEMBER(size, chunk);
    SPIPE_PRIV_MEMBER(size, depth); SPIPE_PRIV_MEMBER(int, staged);
    SPIPE_PRIV_MEMBER(size, threads); SPIPE_PRIV_MEMBER(size, fill_threads);
    SPIPE_PRIV_MEMBER(size, drain_threads); SPIPE_PRIV_MEMBER(int, num_stages);
    SPIPE_PRIV_MEMBER(int, num_streams); SPIPE_PRIV_MEMBER(int, replayed);
    SPIPE_PRIV_MEMBER(int, trying); SPIPE_PRIV_MEMBER(text, why_chunk);
    SPIPE_PRIV_MEMBER(text, why_schedule);
    SPIPE_PRIV_MEMBER(text, why_staging); SPIPE_PRIV_MEMBER(size, bytes_in);
    SPIPE_PRIV_MEMBER(size, bytes_out); SPIPE_PRIV_MEMBER(size, device_bytes);
    SPIPE_PRIV_MEMBER(size, pinned_bytes); SPIPE_PRIV_MEMBER(double, setup_ms);
    SPIPE_PRIV_MEMBER(double, wall_ms); SPIPE_PRIV_MEMBER(int, failure.stage);
    SPIPE_PRIV_MEMBER(size, failure.chunk); SPIPE_PRIV_MEMBER(size, failure.chunks_whole);
    SPIPE_PRIV_MEMBER(text, failure.message); SPIPE_PRIV_MEMBER(double, timed_ms);
    SPIPE_PRIV_MEMBER(six, busy_ms); SPIPE_PRIV_MEMBER(six, idle_ms);
    SPIPE_PRIV_MEMBER(double, serial_ms); SPIPE_PRIV_MEMBER(double, bound_ms);
    SPIPE_PRIV_MEMBER(double, overlap); SPIPE_PRIV_MEMBER(double, sync_us);
    SPIPE_PRIV_MEMBER(size, causes); SPIPE_PRIV_MEMBER(text, verdict);
    SPIPE_PRIV_MEMBER(int, num_devices); SPIPE_PRIV_MEMBER(size, devices_failed);
#undef SPIPE_PRIV_MEMBER
}
SPIPE_API cudaError_t spipe_report_write_json(const spipe_report_t *report, const char *path) {
    spipe_priv_file_t file;
    int               i;
    if (!report) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_file_open(&file, path));
    fprintf(file.f, "{\n  \"streampipe\": \"%d.%d.%d\",\n  ", SPIPE_VERSION_MAJOR,
            SPIPE_VERSION_MINOR, SPIPE_VERSION_PATCH);
    spipe_priv_json_text(file.f, "error", cudaGetErrorName(report->failure.error));
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

#endif /* STREAMPIPE_TIMELINE_H */

/*  MIT License: see the end of streampipe.h. Copyright (c) 2026 The streampipe authors. */
