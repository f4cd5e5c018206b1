/*  streampipe_tools.h 0.1.0 -- look at CUDA stream pipelines while you build them.

    An optional companion of streampipe.h: timelines as pictures, reports as JSON, a doctor that
    says why nothing overlaps, and a search for the fastest settings. It brings streampipe_model.h
    along, which says how long a pipeline will take before there is one. Programs that only run
    pipelines need neither. C99, C++11 and CUDA C++ alike. MIT licence.

    USE IT   copy both beside streampipe.h and #include this one: nothing to define or to link.

    A COMPLETE PROGRAM       gcc -std=c99 picture.c -lcudart -lpthread
BEGIN EXAMPLE picture.c
    #include "streampipe_tools.h"

    int main(void) {
        static spipe_span_t spans[1000];
        spipe_timeline_t    t = spipe_timeline_default();
        spipe_model_t       m = spipe_model_default();
        double              ms;
        t.spans = spans;
        t.capacity = 1000;
        m.device = spipe_model_preset("h200");
        m.count = 64 << 20;                    // elements
        m.chunk = 8 << 20;                     // elements in a chunk: 8 chunks
        m.in_bytes = m.out_bytes = 32 << 20;   // of a chunk: an element is a float
        m.num_stages = 1;
        m.stage_ms[0] = 0.6;                   // a kernel, for one chunk
        SPIPE_CHECK(spipe_model_run(&m, &t, &ms));
        SPIPE_CHECK(spipe_timeline_print(&t, stdout, 100));
        SPIPE_CHECK(spipe_timeline_write_svg(&t, "timeline.svg"));
        SPIPE_CHECK(spipe_timeline_write_html(&t, "timeline.html"));   // zooms
        SPIPE_CHECK(spipe_timeline_write_trace(&t, "timeline.json"));  // for ui.perfetto.dev
        SPIPE_CHECK(spipe_doctor(NULL, NULL, stdout));                 // why nothing overlaps
        return 0;
    }
END EXAMPLE

    CONTENTS (search for the anchor; the second half repeats the order as code)
      1  >>pictures  a chart for the terminal, SVG, HTML, Chrome trace
      2  >>json      the report as JSON
      3  >>doctor    what keeps work from overlapping on this machine
      4  >>tune      what a run would choose and why; what is fastest here

    READING THE PICTURES   A row is an engine: host threads that fill, the copy engine in, each
    stage, the copy engine out, host threads that drain. Work of one row that overlaps takes more
    rows. A colour (a digit on the terminal) is a chunk, or a group of chunks where there are too
    many; gaps show the background. At the right stands how much of the time the row is busy.
    Times that come from a model and not from a clock are labelled "modelled" everywhere.

    FILES are written beside their place and renamed when whole, so a file is there whole or not
    at all (devices and pipes are written as they are). They name no outside resource.
*/
#ifndef STREAMPIPE_TOOLS_H
#define STREAMPIPE_TOOLS_H

#include "streampipe_model.h"
#include <errno.h>
#include <sys/stat.h>

/* ============================================================================================
   >>api    every public type and function, tool by tool
   ============================================================================================ */

/* ---- 1 >>pictures -------------------------------------------------------------------------- */
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

/* ---- 2 >>json ------------------------------------------------------------------------------ */
/*  spipe_report_write_json -- a report as one JSON object, a member for each of its fields.

    report     in      filled by a run. Times that are not numbers become null; units are in the
                       members' names, as in the struct.
    path       in      the file; replaced when there is one.
    Returns    cudaSuccess; cudaErrorInvalidValue; cudaErrorMemoryAllocation;
               cudaErrorOperatingSystem (cannot be written whole; the file is as it was before).
    Blocks     as long as the file does.   Threads  any; one path, one thread at a time.
    Callback   yes.   Capture  yes.   Allocates  a file name, freed before return. */
SPIPE_API cudaError_t spipe_report_write_json(const spipe_report_t *report, const char *path);

/* ---- 3 >>doctor ---------------------------------------------------------------------------- */
typedef cudaError_t (*spipe_launch_fn)(cudaStream_t stream, void *user);

/* What the doctor is to look at, beside the current device. Get one from spipe_doctor_default. */
typedef struct spipe_doctor_desc {
    const void         *pointer;     /* host memory that you copy from or to (default: NULL) */
    size_t              bytes;       /* length of it; 0 = look at the first byte only */
    const cudaStream_t *streams;     /* the streams that you use (default: NULL) */
    size_t              num_streams;
    spipe_launch_fn     launch;      /* launches a kernel of yours on a stream, so that two can be
                                        tried side by side (default: NULL) */
    void               *user;        /* handed to launch */
    size_t              probe_bytes; /* copied each way to measure (default: 16 MiB); 0 = do not */
} spipe_doctor_desc_t;

typedef enum spipe_finding {
    SPIPE_FIND_DRIVER = 0,     /* is the driver as new as the runtime? */
    SPIPE_FIND_COPY_ENGINES,   /* are there two, so that both directions can run at once? */
    SPIPE_FIND_KERNELS,        /* can kernels of different streams run at once? */
    SPIPE_FIND_PRIORITIES,     /* are there stream priorities? */
    SPIPE_FIND_MEMORY,         /* does the device have memory of its own? */
    SPIPE_FIND_NUMA,           /* is this thread on the NUMA node that the GPU hangs on? */
    SPIPE_FIND_LAUNCHES,       /* is CUDA_LAUNCH_BLOCKING unset? */
    SPIPE_FIND_WATCHERS,       /* is no profiler or sanitizer attached? */
    SPIPE_FIND_CONNECTIONS,    /* is there a hardware connection for each stream? */
    SPIPE_FIND_PINNED,         /* seeds' checklist 1: do transfers use pinned memory? */
    SPIPE_FIND_NON_BLOCKING,   /* 2: are streams non-blocking? */
    SPIPE_FIND_DIFFERENT,      /* 3: is work put on different streams? */
    SPIPE_FIND_DEFERRED,       /* 4: does a copy return at once, so that waiting can be deferred? */
    SPIPE_FIND_BOTH_WAYS,      /* 5: do copies both ways overlap, as measured? */
    SPIPE_FIND_ISSUE_ORDER,    /* does work wait only for what it needs, as measured? */
    SPIPE_FIND_TWO_KERNELS,    /* do two of your kernels overlap, as measured? */
    SPIPE_NUM_FINDINGS
} spipe_finding_t;

typedef enum spipe_verdict {
    SPIPE_VERDICT_NONE = 0,
    SPIPE_VERDICT_OK,
    SPIPE_VERDICT_LOOK
} spipe_verdict_t;

/* What the doctor found. Overlap: 1 = the shorter of two operations is wholly hidden, 0 = one
   waits for the other; -1 = not measured. */
typedef struct spipe_checkup {
    spipe_device_t  device;
    spipe_verdict_t verdict[SPIPE_NUM_FINDINGS];
    int             num_look;                  /* how many are _LOOK */
    double          in_ms, out_ms, both_ms;    /* probe_bytes copied alone and both ways */
    double          copies_overlap;
    double          order_overlap; /* a copy, with the copy that one issued before it waits for */
    double          kernel_ms, kernels_overlap;
} spipe_checkup_t;

/*  spipe_doctor_default -- look at the device only, and measure with 16 MiB each way.
    spipe_doctor -- look at the current device, at memory and streams; measure what overlaps; say
    what to change.

    d          in      NULL = spipe_doctor_default. Its first two streams, where there are two, are
                       those measured with.
    checkup    out     what was found; may be NULL.
    to         in      an open file for the text, a line for each finding and a cure where one is
                       needed; may be NULL.
    Returns    cudaSuccess, whatever is found; cudaErrorInvalidValue; cudaErrorOperatingSystem
               (to cannot be written); any error of the CUDA calls made, of launch, or left by
               earlier work.
    Blocks     yes: a few milliseconds, and until the streams' earlier work has ended.
    Threads    any; a quiet device measures best.   Callback  no.   Capture  no.
    Allocates  2 x probe_bytes of device and of pinned memory, two streams and some events, freed
               before return. */
SPIPE_API spipe_doctor_desc_t spipe_doctor_default(void);
SPIPE_API cudaError_t spipe_doctor(const spipe_doctor_desc_t *d, spipe_checkup_t *checkup,
                                   FILE *to);

/* ---- 4 >>tune ------------------------------------------------------------------------------ */
/*  spipe_plan -- what a run of a description would choose, and why, without running it.
    spipe_tune -- the fastest settings for a description, found by running it on this machine.

    d          in      checked first. tune: with arrays only, as every run reads and writes them
                       anew: no in/out array, source, sink, or resident buffer both ways.
    kept       in      1 = for spipe_pipeline_create, which may take longer to set up; 0 = for
                       spipe_run.
    report     out     plan: chunk, depth, schedule, threads and memory as they would be, and why_*
                       in words. tune: of the best settings' last run; may be NULL. Both: on failure
                       why, in report->failure.
    best       out     d with chunk, depth, threads, schedule and staging filled in: keep it, or
                       write its numbers into your program. They hold for this total and machine.
    Returns    cudaSuccess; cudaErrorInvalidValue (a bad description; tune: one that cannot be run
               again and again); cudaErrorMemoryAllocation; tune: what its first run returned.
    Blocks     plan: no. tune: for some hundred runs.
    Threads    any.   Callback  no.   Capture  no.
    Allocates  plan: nothing that stays. tune: as spipe_pipeline_create, freed before return. */
SPIPE_API cudaError_t spipe_plan(const spipe_desc_t *d, int kept, spipe_report_t *report);
SPIPE_API cudaError_t spipe_tune(const spipe_desc_t *d, spipe_desc_t *best,
                                 spipe_report_t *report);

/* ============================================================================================
   >>impl   the same tools, as code. Names beginning spipe_priv_ are not for callers.
   ============================================================================================ */

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

/* ---- 1 pictures: the rows ------------------------------------------------------------------ */
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
SPIPE_API const char *spipe_priv_span_name(spipe_span_kind_t kind) {
    static const char *const names[] = {"fill", "copy in", "stage", "host", "copy out", "drain"};
    return names[kind];
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

/* ---- 1 pictures: for the terminal ---------------------------------------------------------- */
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

/* ---- 1 pictures: SVG ----------------------------------------------------------------------- */
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

/* ---- 1 pictures: HTML ---------------------------------------------------------------------- */
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

/* ---- 1 pictures: Chrome trace -------------------------------------------------------------- */
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

/* ---- 2 json -------------------------------------------------------------------------------- */
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
    SPIPE_PRIV_MEMBER(size, threads); SPIPE_PRIV_MEMBER(int, num_stages);
    SPIPE_PRIV_MEMBER(int, num_streams); SPIPE_PRIV_MEMBER(int, replayed);
    SPIPE_PRIV_MEMBER(text, why_chunk); SPIPE_PRIV_MEMBER(text, why_schedule);
    SPIPE_PRIV_MEMBER(text, why_staging); SPIPE_PRIV_MEMBER(size, bytes_in);
    SPIPE_PRIV_MEMBER(size, bytes_out); SPIPE_PRIV_MEMBER(size, device_bytes);
    SPIPE_PRIV_MEMBER(size, pinned_bytes); SPIPE_PRIV_MEMBER(double, setup_ms);
    SPIPE_PRIV_MEMBER(double, wall_ms); SPIPE_PRIV_MEMBER(int, failure.stage);
    SPIPE_PRIV_MEMBER(size, failure.chunk); SPIPE_PRIV_MEMBER(size, failure.chunks_whole);
    SPIPE_PRIV_MEMBER(text, failure.message); SPIPE_PRIV_MEMBER(int, num_devices);
    SPIPE_PRIV_MEMBER(size, devices_failed);
#undef SPIPE_PRIV_MEMBER
}
SPIPE_API cudaError_t spipe_report_write_json(const spipe_report_t *report, const char *path) {
    spipe_priv_file_t file;
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
    fputs("\n}\n", file.f);
    return spipe_priv_file_close(&file);
}

/* ---- 3 doctor ------------------------------------------------------------------------------ */
typedef struct spipe_priv_doctor {
    const spipe_doctor_desc_t *d;
    spipe_checkup_t           *c;
    FILE                      *to; /* may be NULL */
} spipe_priv_doctor_t;

/* One finding: a sentence, and where something is to be done the cure. good: 1, 0, -1 = unknown. */
SPIPE_API void spipe_priv_doctor_say(const spipe_priv_doctor_t *doc, spipe_finding_t finding,
                                     int good, const char *cure, const char *format, ...) {
    va_list args;
    doc->c->verdict[finding] = good > 0    ? SPIPE_VERDICT_OK
                               : good == 0 ? SPIPE_VERDICT_LOOK
                                           : SPIPE_VERDICT_NONE;
    doc->c->num_look += good == 0;
    if (!doc->to) return;
    fprintf(doc->to, "  %-10s", good > 0 ? "ok" : good == 0 ? "LOOK HERE" : "-");
    va_start(args, format);
    vfprintf(doc->to, format, args);
    va_end(args);
    fputc('\n', doc->to);
    if (good == 0) fprintf(doc->to, "            cure: %s\n", cure);
}
SPIPE_API void spipe_priv_doctor_device(const spipe_priv_doctor_t *doc) {
    const spipe_device_t *f = &doc->c->device;
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
                          "none on this device: copy all in before all out "
                          "(SPIPE_BREADTH_FIRST), and copy less", "%d copy engine%s: %s",
                          f->copy_engines, f->copy_engines == 1 ? "" : "s",
                          f->copy_engines >= 2 ? "both directions can run at once"
                                               : "one direction at a time");
    spipe_priv_doctor_say(doc, SPIPE_FIND_KERNELS, f->concurrent_kernels != 0,
                          "give each kernel enough blocks to fill the device by itself",
                          "kernels of different streams %s run at once",
                          f->concurrent_kernels ? "can" : "cannot");
    spipe_priv_doctor_say(doc, SPIPE_FIND_PRIORITIES, f->priority_greatest < f->priority_least,
                          "keep urgent kernels short and issue them first",
                          "stream priorities %d .. %d (of kernels; copies have none)",
                          f->priority_least, f->priority_greatest);
    spipe_priv_doctor_say(doc, SPIPE_FIND_MEMORY, !f->integrated,
                          "leave the copies out: SPIPE_MAPPED on pinned memory", "%s",
                          f->integrated         ? "it shares the CPU's memory: copies gain nothing"
                          : f->host_page_tables ? "own memory; it reads pageable memory as fast"
                                                : "own memory, reached by copies");
    spipe_priv_doctor_say(doc, SPIPE_FIND_NUMA, f->numa_node < 0 ? -1 : 1, "",
                          f->numa_node < 0 ? "NUMA node: not known, or there is only one"
                                           : "NUMA node %d: pinned memory and threads belong there "
                                             "(numactl --cpunodebind --membind)", f->numa_node);
}
SPIPE_API void spipe_priv_doctor_environment(const spipe_priv_doctor_t *doc) {
    const char  *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    const char  *watcher = getenv("CUDA_INJECTION64_PATH");
    const char  *limit = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    const int    blocks = blocking && blocking[0] && strcmp(blocking, "0") != 0;
    const long   given = limit ? strtol(limit, NULL, 10) : 8;
    const size_t connections = given < 1 ? 8 : given > 32 ? 32 : (size_t)given;
    const size_t streams = doc->d->num_streams;
    if (!watcher) watcher = getenv("NSYS_PROFILING_SESSION_ID");
    if (!watcher) watcher = getenv("NV_SANITIZER_INJECTION_TRANSPORT_TYPE"); /* compute-sanitizer */
    if (doc->to) fputs("The environment\n", doc->to);
    spipe_priv_doctor_say(doc, SPIPE_FIND_LAUNCHES, !blocks,
                          "unset it; sync_each finds the stage at fault without it",
                          "CUDA_LAUNCH_BLOCKING is %s",
                          blocks ? "set: every launch waits for its kernel" : "not set");
    spipe_priv_doctor_say(doc, SPIPE_FIND_WATCHERS, !watcher, "measure without it",
                          "%s profiler or sanitizer is attached%s", watcher ? "a" : "no",
                          watcher ? ": some make all work run one after another" : "");
    spipe_priv_doctor_say(doc, SPIPE_FIND_CONNECTIONS, streams <= connections,
                          "use fewer streams (4 are plenty), or set CUDA_DEVICE_MAX_CONNECTIONS, "
                          "at most 32, before the program starts",
                          "%zu streams on %zu hardware connections%s", streams, connections,
                          streams > connections ? ": some wait for each other" : "");
}
SPIPE_API cudaError_t spipe_priv_doctor_pointer(const spipe_priv_doctor_t *doc) {
    int type = SPIPE_PRIV_PAGEABLE, pinned = 0, good = -1;
    if (doc->d->pointer) {
        SPIPE_TRY(spipe_priv_memory_type(doc->d->pointer, &type, NULL));
        SPIPE_TRY(spipe_is_pinned(doc->d->pointer, doc->d->bytes, &pinned));
        good = pinned || doc->c->device.host_page_tables;
    }
    spipe_priv_doctor_say(doc, SPIPE_FIND_PINNED, good,
                          "let streampipe stage it (the default); spipe_pin it if it is sent often",
                          "1 pinned memory for transfers? %s",
                          !doc->d->pointer               ? "no pointer was given"
                          : type == SPIPE_PRIV_DEVICE    ? "it is device memory"
                          : pinned                       ? "it is pinned"
                          : type == SPIPE_PRIV_PINNED    ? "only its beginning is"
                          : good                         ? "pageable, which is as good here"
                                : "it is pageable: an \"asynchronous\" copy of it blocks");
    return cudaSuccess;
}
SPIPE_API cudaError_t spipe_priv_doctor_streams(const spipe_priv_doctor_t *doc) {
    const spipe_doctor_desc_t *d = doc->d;
    const int                  some = d->num_streams > 0;
    size_t                     i, j, legacy = 0, blocking = 0, twice = 0;
    for (i = 0; i < d->num_streams; ++i) {
        const cudaStream_t s = d->streams[i];
        unsigned           flags = 0;
        for (j = 0; j < i && d->streams[j] != s;) ++j;
        twice += j < i;
        legacy += !s || s == cudaStreamLegacy;
        if (!s || s == cudaStreamLegacy || s == cudaStreamPerThread) continue;
        SPIPE_TRY(cudaStreamGetFlags(s, &flags));
        blocking += !(flags & cudaStreamNonBlocking);
    }
    spipe_priv_doctor_say(doc, SPIPE_FIND_NON_BLOCKING, some ? !legacy && !blocking : -1,
                          "spipe_stream_create, or cudaStreamNonBlocking",
                          "2 non-blocking streams? of %zu, %zu the legacy default stream; %zu "
                          "blocking: these wait for that one and it for them", d->num_streams,
                          legacy, blocking);
    spipe_priv_doctor_say(doc, SPIPE_FIND_DIFFERENT, some ? d->num_streams > 1 && !twice : -1,
                          "a stream for each thing that is to run beside others",
                          "3 different streams? %zu, %zu of them named twice", d->num_streams,
                          twice);
    for (i = 0; i < d->num_streams && doc->to; ++i) {
        int priority = 0;
        if (!d->streams[i] || d->streams[i] == cudaStreamLegacy) continue;
        SPIPE_TRY(cudaStreamGetPriority(d->streams[i], &priority));
        fprintf(doc->to, "            stream %zu has priority %d\n", i, priority);
    }
    return cudaSuccess;
}

/* ---- 3 doctor: measuring ------------------------------------------------------------------- */
enum { SPIPE_PRIV_TRY_IN = 1, SPIPE_PRIV_TRY_BACK = 2, SPIPE_PRIV_TRY_OUT = 4,
       SPIPE_PRIV_TRY_KERNEL = 8, SPIPE_PRIV_TRY_OTHER = 16 };

typedef struct spipe_priv_probe {
    const spipe_doctor_desc_t *d;
    cudaStream_t               streams[2], own[2];
    cudaEvent_t                begin, end, join;
    void                      *host[2], *device[2];
    int                        returned; /* 1 = a copy was under way when its call came back */
} spipe_priv_probe_t;

/* In, back out and a kernel on the first stream; out and a kernel on the other, which need none of
   those and so should not wait for them. */
SPIPE_API cudaError_t spipe_priv_probe_issue(spipe_priv_probe_t *p, int what) {
    const size_t n = p->d->probe_bytes;
    if (what & SPIPE_PRIV_TRY_IN) {
        SPIPE_TRY(cudaMemcpyAsync(p->device[0], p->host[0], n, cudaMemcpyHostToDevice,
                                  p->streams[0]));
        p->returned = cudaStreamQuery(p->streams[0]) == cudaErrorNotReady;
        (void)cudaGetLastError(); /* older runtimes keep cudaErrorNotReady */
    }
    if (what & SPIPE_PRIV_TRY_BACK) {
        SPIPE_TRY(cudaMemcpyAsync(p->host[0], p->device[0], n, cudaMemcpyDeviceToHost,
                                  p->streams[0]));
    }
    if (what & SPIPE_PRIV_TRY_OUT) {
        SPIPE_TRY(cudaMemcpyAsync(p->host[1], p->device[1], n, cudaMemcpyDeviceToHost,
                                  p->streams[1]));
    }
    if (what & SPIPE_PRIV_TRY_KERNEL) SPIPE_TRY(p->d->launch(p->streams[0], p->d->user));
    if (what & SPIPE_PRIV_TRY_OTHER) SPIPE_TRY(p->d->launch(p->streams[1], p->d->user));
    return cudaSuccess;
}
/* The time of some work by the GPU's clock: the best of four, of which the first warms up. */
SPIPE_API cudaError_t spipe_priv_probe_time(spipe_priv_probe_t *p, int what, double *ms) {
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
SPIPE_API cudaError_t spipe_priv_probe_create(spipe_priv_probe_t *p,
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
        memset(p->host[i], 0, d->probe_bytes);
        SPIPE_TRY(cudaMalloc(&p->device[i], d->probe_bytes));
        SPIPE_TRY(cudaMemsetAsync(p->device[i], 0, d->probe_bytes, p->streams[i]));
    }
    SPIPE_TRY(cudaEventCreate(&p->begin));
    SPIPE_TRY(cudaEventCreate(&p->end));
    return spipe_event_create(&p->join);
}
SPIPE_API void spipe_priv_probe_destroy(spipe_priv_probe_t *p) {
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
/* How much of the shorter of two times was hidden: 1 = all of it. */
SPIPE_API double spipe_priv_hidden(double a, double b, double together) {
    const double less = a < b ? a : b, hidden = less > 0.0 ? (a + b - together) / less : 0.0;
    return hidden < 0.0 ? 0.0 : hidden > 1.0 ? 1.0 : hidden;
}
SPIPE_API void spipe_priv_doctor_judge(const spipe_priv_doctor_t *doc, int returned) {
    const spipe_checkup_t *c = doc->c;
    const double           bytes = (double)doc->d->probe_bytes * 1e-6;
    spipe_priv_doctor_say(doc, SPIPE_FIND_DEFERRED, returned,
                          "look for CUDA_LAUNCH_BLOCKING, profilers and sanitizers",
                          "4 synchronisation deferred? the call of a pinned copy came back %s",
                          returned ? "while it ran" : "only when it was done");
    spipe_priv_doctor_say(doc, SPIPE_FIND_BOTH_WAYS, c->copies_overlap >= 0.5,
                          "two copy engines, pinned memory and different non-blocking streams are "
                          "what it takes: see above",
                          "5 overlap? in %.1f GB/s alone, out %.1f, both at once %.1f each: "
                          "%.0f %% of the shorter is hidden", bytes / c->in_ms, bytes / c->out_ms,
                          bytes / c->both_ms, 100.0 * c->copies_overlap);
    spipe_priv_doctor_say(doc, SPIPE_FIND_ISSUE_ORDER, c->order_overlap >= 0.5,
                          "issue step by step (SPIPE_BREADTH_FIRST): streams share a hardware "
                          "queue or a copy engine",
                          "order of issue: a copy issued behind one that is not ready %s",
                          c->order_overlap >= 0.5 ? "does not wait for it" : "waits for it");
}
SPIPE_API cudaError_t spipe_priv_doctor_probe(const spipe_priv_doctor_t *doc,
                                              spipe_priv_probe_t *p) {
    spipe_checkup_t *c = doc->c;
    double           ordered = 0.0, two = 0.0;
    SPIPE_TRY(spipe_priv_probe_time(p, SPIPE_PRIV_TRY_OUT, &c->out_ms));
    SPIPE_TRY(spipe_priv_probe_time(p, SPIPE_PRIV_TRY_IN | SPIPE_PRIV_TRY_OUT, &c->both_ms));
    SPIPE_TRY(spipe_priv_probe_time(
        p, SPIPE_PRIV_TRY_IN | SPIPE_PRIV_TRY_BACK | SPIPE_PRIV_TRY_OUT, &ordered));
    SPIPE_TRY(spipe_priv_probe_time(p, SPIPE_PRIV_TRY_IN, &c->in_ms));
    c->copies_overlap = spipe_priv_hidden(c->in_ms, c->out_ms, c->both_ms);
    c->order_overlap = spipe_priv_hidden(c->in_ms, c->out_ms, ordered - c->out_ms);
    spipe_priv_doctor_judge(doc, p->returned);
    if (!doc->d->launch) return cudaSuccess;
    SPIPE_TRY(spipe_priv_probe_time(p, SPIPE_PRIV_TRY_KERNEL, &c->kernel_ms));
    SPIPE_TRY(spipe_priv_probe_time(p, SPIPE_PRIV_TRY_KERNEL | SPIPE_PRIV_TRY_OTHER, &two));
    c->kernels_overlap = spipe_priv_hidden(c->kernel_ms, c->kernel_ms, two);
    spipe_priv_doctor_say(doc, SPIPE_FIND_TWO_KERNELS, c->kernels_overlap >= 0.1,
                          "none is needed where one fills the device; else fewer threads or "
                          "registers a block let them run side by side",
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
SPIPE_API cudaError_t spipe_doctor(const spipe_doctor_desc_t *d, spipe_checkup_t *checkup,
                                   FILE *to) {
    const spipe_doctor_desc_t plain = spipe_doctor_default();
    spipe_checkup_t           unseen;
    spipe_priv_doctor_t       doc;
    spipe_priv_probe_t        probe;
    cudaError_t               e = cudaSuccess;
    memset(&unseen, 0, sizeof unseen);
    doc.d = d ? d : &plain;
    doc.c = checkup ? checkup : &unseen;
    doc.to = to;
    memset(doc.c, 0, sizeof *doc.c);
    doc.c->copies_overlap = doc.c->order_overlap = doc.c->kernels_overlap = -1.0;
    if (doc.d->num_streams > 0 && !doc.d->streams) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_device_get(&doc.c->device, -1));
    spipe_priv_doctor_device(&doc);
    spipe_priv_doctor_environment(&doc);
    if (to) fputs("The checklist\n", to);
    SPIPE_TRY(spipe_priv_doctor_pointer(&doc));
    SPIPE_TRY(spipe_priv_doctor_streams(&doc));
    if (doc.d->probe_bytes > 0) {
        e = spipe_priv_probe_create(&probe, doc.d);
        if (e == cudaSuccess) e = spipe_priv_doctor_probe(&doc, &probe);
        spipe_priv_probe_destroy(&probe);
    }
    if (to) fprintf(to, "%d to look at\n", doc.c->num_look);
    return e == cudaSuccess && to && ferror(to) ? cudaErrorOperatingSystem : e;
}

/* ---- 4 tune -------------------------------------------------------------------------------- */
SPIPE_API cudaError_t spipe_plan(const spipe_desc_t *d, int kept, spipe_report_t *report) {
    spipe_pipeline_t *p;
    size_t            device = 0, pinned = 0;
    cudaError_t       e;
    int               i;
    if (!report) return cudaErrorInvalidValue;
    memset(report, 0, sizeof *report);
    SPIPE_TRY(spipe_desc_check(d, &report->failure));
    p = (spipe_pipeline_t *)calloc(1, sizeof *p);
    if (!p) return spipe_priv_refuse(&report->failure, cudaErrorMemoryAllocation, "no memory");
    spipe_priv_failure_clear(&p->failure);
    p->desc = *d;
    p->one_shot = !kept;
    e = cudaGetDevice(&p->device);
    if (e == cudaSuccess) e = spipe_priv_device_facts(&p->facts, p->device);
    if (e == cudaSuccess) e = spipe_priv_plan(p);
    if (e == cudaSuccess) spipe_priv_layout(p, &device, &pinned);
    if (e != cudaSuccess && p->failure.error == cudaSuccess) {
        (void)spipe_priv_refuse(&p->failure, e, "planning failed: %s", cudaGetErrorString(e));
    }
    spipe_priv_report(p, report);
    report->chunks_done = report->count_done = 0;
    report->device_bytes = device;
    report->pinned_bytes = pinned;
    report->threads = p->needs_fill || p->needs_drain ? p->desc.threads : 0;
    for (i = 0; i < p->desc.num_buffers; ++i) (void)spipe_priv_unregister(p, i);
    free(p);
    return e;
}

/* The best of a few runs of some settings, in ms; a negative number where they are refused. */
SPIPE_API double spipe_priv_try(const spipe_desc_t *d, spipe_report_t *report) {
    enum { WARM = 5, RUNS = 7 }; /* warm: also a replay has been tried by then */
    spipe_pipeline_t *p = (spipe_pipeline_t *)malloc(sizeof *p);
    spipe_report_t    r;
    double            best = -1.0;
    cudaError_t       e = cudaErrorMemoryAllocation;
    int               k;
    memset(&r, 0, sizeof r);
    if (p) e = spipe_pipeline_create(p, d, &r.failure);
    for (k = 0; k < WARM + RUNS && e == cudaSuccess; ++k) {
        e = spipe_pipeline_run(p, &r);
        if (k >= WARM && (best < 0.0 || r.wall_ms < best)) best = r.wall_ms;
    }
    if (p && p->alive) (void)spipe_pipeline_destroy(p);
    free(p);
    (void)cudaGetLastError();
    r.failure.error = e;
    if (report) *report = r;
    return e == cudaSuccess ? best : -1.0;
}
/* Takes other settings when they are faster by more than chance. */
SPIPE_API void spipe_priv_better(spipe_desc_t *best, double *best_ms, const spipe_desc_t *other,
                                 spipe_report_t *report) {
    spipe_report_t r;
    spipe_failure_t f;
    double         ms;
    if (spipe_desc_check(other, &f) != cudaSuccess) return;
    ms = spipe_priv_try(other, &r);
    if (ms < 0.0 || ms > 0.98 * *best_ms) return;
    *best = *other;
    *best_ms = ms;
    *report = r;
}
/* One setting at a time, from the library's own choice on. */
SPIPE_API void spipe_priv_search(spipe_desc_t *best, double *best_ms, spipe_report_t *report) {
    static const double          chunks[] = {0.25, 0.5, 2.0, 4.0}, others[] = {0.5, 2.0};
    static const spipe_staging_t stagings[] = {SPIPE_STAGING_REGISTER, SPIPE_STAGING_DIRECT};
    spipe_desc_t                 from = *best, d;
    const int                    staged = report->staged;
    int                          i;
    for (i = 0; i < 4; ++i) {
        d = from;
        d.chunk = (size_t)((double)from.chunk * chunks[i]);
        spipe_priv_better(best, best_ms, &d, report);
    }
    for (from = *best, i = 0; i < 2; ++i) {
        d = from;
        d.depth = (size_t)((double)from.depth * others[i]);
        spipe_priv_better(best, best_ms, &d, report);
    }
    for (from = *best, i = 0; i < 2 && staged; ++i) {
        d = from;
        d.threads = (size_t)((double)from.threads * others[i]);
        spipe_priv_better(best, best_ms, &d, report);
    }
    for (from = *best, i = 0; i < 2 && staged; ++i) {
        d = from;
        d.staging = stagings[i];
        spipe_priv_better(best, best_ms, &d, report);
    }
    d = *best;
    d.schedule = SPIPE_DEPTH_FIRST;
    spipe_priv_better(best, best_ms, &d, report);
    d.schedule = SPIPE_MAPPED;
    d.chunk = SPIPE_AUTO;
    spipe_priv_better(best, best_ms, &d, report);
}

SPIPE_API cudaError_t spipe_tune(const spipe_desc_t *d, spipe_desc_t *best,
                                 spipe_report_t *report) {
    spipe_report_t own;
    double         best_ms;
    int            i;
    if (!report) report = &own;
    memset(report, 0, sizeof *report);
    if (!best) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_desc_check(d, &report->failure));
    *best = *d;
    for (i = 0; i < d->num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &d->buffers[i];
        if (b->kind != SPIPE_INOUT && b->kind != SPIPE_SOURCE && b->kind != SPIPE_SINK &&
            !(b->kind == SPIPE_RESIDENT && b->resident == (SPIPE_UPLOAD | SPIPE_DOWNLOAD))) {
            continue;
        }
        return spipe_priv_refuse(&report->failure, cudaErrorInvalidValue, "buffer %d (%s): tuning "
                                 "runs again and again, which this buffer would notice; tune with "
                                 "an input and an output array", i, spipe_priv_kind_name(b->kind));
    }
    best_ms = spipe_priv_try(d, report);
    if (best_ms < 0.0) return report->failure.error;
    best->chunk = report->chunk;
    best->depth = report->depth;
    best->schedule = report->schedule;
    if (report->threads > 0) best->threads = report->threads;
    best_ms = spipe_priv_try(best, report); /* asked for by hand the same may do less by itself */
    if (best_ms < 0.0) return report->failure.error;
    {
        spipe_report_t r;
        const double   ms = spipe_priv_try(d, &r);
        if (ms > 0.0 && ms < 0.98 * best_ms) { /* as with small chunks copied several at a time */
            *best = *d;
            *report = r;
            best_ms = ms;
            if (d->chunk != SPIPE_AUTO) return cudaSuccess;
            best->chunk = r.chunk;
        }
    }
    spipe_priv_search(best, &best_ms, report);
    return cudaSuccess;
}

#endif /* STREAMPIPE_TOOLS_H */

/*  MIT License: see the end of streampipe.h. Copyright (c) 2026 The streampipe authors. */
