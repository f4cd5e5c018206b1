/*  streampipe_measure.h 0.2.0 -- measures what copies, launches and threads cost on this machine.

    The planner of streampipe.h knows a few machines by name and takes cautious values for all
    others. This header measures the machine that the program runs on, in less than a second, so
    that runs are planned with that machine's figures. For C99, C++11 and CUDA C++. MIT licence.
    Optional: programs that do not measure need only streampipe.h.

    USE IT   copy it beside streampipe.h and #include it. There is nothing to define or to link.

    A COMPLETE PROGRAM       gcc -std=c99 measured.c -lcudart -lpthread
BEGIN EXAMPLE measured.c
    #include "streampipe_measure.h"

    static cudaError_t keep(const spipe_chunk_t *c, void *user) {
        (void)user;   // a stage without a kernel: the output is the input
        return cudaMemcpyAsync(c->data[1], c->data[0], c->count, cudaMemcpyDeviceToDevice,
                               c->stream);
    }
    int main(void) {
        static char x[1 << 20], y[1 << 20], line[SPIPE_COSTS_LINE_BYTES];
        spipe_costs_t costs;
        spipe_report_t report;
        spipe_desc_t d = spipe_desc_default();
        FILE *file = fopen("costs.txt", "r");
        int known = file && fgets(line, sizeof line, file) &&
                    spipe_costs_read(&costs, -1, line) == cudaSuccess;
        if (file) fclose(file);
        if (!known) {   // the first time, and on another machine, driver or release
            SPIPE_CHECK(spipe_costs_measure(&costs));
            SPIPE_CHECK(spipe_costs_write(&costs, -1, line, sizeof line));
            file = fopen("costs.txt", "w");
            if (file) fprintf(file, "%s\n", line);
            if (file) fclose(file);
        }
        d.count = sizeof x;
        d.costs = &costs;
        spipe_add_input(&d, x, 1);
        spipe_add_output(&d, y, 1);
        spipe_add_stage(&d, "keep", keep, NULL);
        SPIPE_CHECK_RUN(&d, &report);
        spipe_report_print(&report, stdout);   // "costs of measured"
        return 0;
    }
END EXAMPLE

    CONTENTS (search for the anchor)
      1  >>measure   the costs of the current device and this machine
*/
#ifndef STREAMPIPE_MEASURE_H
#define STREAMPIPE_MEASURE_H

#include "streampipe.h"
#if SPIPE_VERSION != 200
#error "streampipe_measure.h 0.2.0 needs streampipe.h 0.2.0: copy both from the same release"
#endif

/* ============================================================================================
   >>api    every public type and function
   ============================================================================================ */

/* ---- 1 >>measure --------------------------------------------------------------------------- */
/*  spipe_costs_measure -- measure the costs of the current device and this machine, in less than a
    second. Assign &costs to desc.costs to plan with them; spipe_costs_write makes text of them.

    costs      out     every figure, and "measured" for a name. fill and drain are what a thread
                       copies while half of the CPUs, at most 7, copy each way. Four figures are
                       not measured: zero_copy is 0.8 x link_both, because only a kernel could
                       measure it; launch_s is 2 x call_s, because a launch takes the time of two
                       calls, or twice what a cudaMemsetAsync adds to a chain, if that is longer;
                       latency_s is launch_s, or what an event between two streams adds to a chain,
                       if that is longer; staged_s is what spipe_costs_get gives, because only
                       pipelined runs show it. If there are no threads, or memory cannot be pinned
                       in place, those figures are spipe_costs_get's, too; on an error all are.
    Returns    cudaSuccess; cudaErrorInvalidValue (NULL); cudaErrorMemoryAllocation; the first
               error of the CUDA calls made, or one left by earlier work.
    Blocks     yes, for less than a second; the first CUDA call of a process takes longer.
    Threads    any, one at a time: two at once disturb each other. A quiet machine measures best.
    Callback   no.   Capture  no: cudaMemcpy and cudaMalloc are measured.
    Allocates  96 MiB of pinned memory, 96 MiB of pageable, 48 MiB of device memory, two streams,
               ten events and up to 14 threads; all freed before return. */
SPIPE_API cudaError_t spipe_costs_measure(spipe_costs_t *costs);

/* ============================================================================================
   >>impl   the same, as code. Names beginning spipe_priv_ are not for callers.
   ============================================================================================ */
/* ---- 1 measure: what it works with --------------------------------------------------------- */
enum {
    SPIPE_PRIV_MEASURE_MIB = 1 << 20,
    SPIPE_PRIV_MEASURE_COPY = 16 << 20,      /* bytes of a long copy */
    SPIPE_PRIV_MEASURE_AREA = 24 << 20,      /* bytes of each of four areas of pinned memory */
    SPIPE_PRIV_MEASURE_RING = 4 << 20,       /* bytes of a ring that the last-level cache holds */
    SPIPE_PRIV_MEASURE_PAGES_IN = 72 << 20,  /* pageable bytes that are read, */
    SPIPE_PRIV_MEASURE_PAGES_OUT = 24 << 20, /* and that are written */
    SPIPE_PRIV_MEASURE_FRESH = 32 << 20, /* malloc maps blocks beyond this size anew: untouched */
    SPIPE_PRIV_MEASURE_SLOTS = 4,        /* of a ring of chunks */
    SPIPE_PRIV_MEASURE_HOPS = 64,        /* operations of a chain */
    SPIPE_PRIV_MEASURE_HANDS = 14,       /* threads that copy, half of them each way */
    SPIPE_PRIV_MEASURE_TOUCHERS = 6,     /* threads that touch new memory */
    SPIPE_PRIV_MEASURE_STARTS = 8,       /* threads started and joined in a go */
    SPIPE_PRIV_MEASURE_WAKES = 20
};

#define SPIPE_PRIV_MEASURE_REPEAT_S 0.025 /* a measurement is not begun again after this time */
#define SPIPE_PRIV_MEASURE_WARM_S   0.003 /* until threads and copy engines are under way */
#define SPIPE_PRIV_MEASURE_COPY_S   0.020 /* of copying by threads and by the device at once */
#define SPIPE_PRIV_MEASURE_PAUSE_S  0.001 /* before a parked thread is woken */

/* Host memory from a boundary of huge pages on; base NULL = CUDA allocated it, pinned. */
typedef struct spipe_priv_block {
    void *base;
    unsigned char *at;
    size_t bytes;
    int pinned;
} spipe_priv_block_t;

/* Threads that copy pieces of pageable memory into a pinned ring, or out of it. */
typedef struct spipe_priv_flow {
    unsigned char *ring, *pages;
    size_t piece;      /* bytes copied at a time */
    size_t num_pieces; /* of the ring, at most 32 */
    size_t num_pages;  /* pieces of pageable memory: a multiple of num_pieces */
    size_t next, done; /* pieces begun and copied */
    unsigned busy;     /* a bit for each piece of the ring that a thread copies now */
    int out;           /* 1 = out of the ring */
    int stream_stores; /* 1 = by spipe_priv_copy, 0 = by memcpy */
} spipe_priv_flow_t;

struct spipe_priv_measure;
typedef void (*spipe_priv_job_fn)(struct spipe_priv_measure *m, size_t number);

/* Threads that rest until they are given a job, and all do it once. */
typedef struct spipe_priv_measure_team {
    spipe_priv_sync_t *sync;
    void *threads[SPIPE_PRIV_MEASURE_HANDS];
    size_t num;     /* threads */
    size_t begun;   /* threads that have taken their number */
    size_t turn;    /* jobs given so far */
    size_t at_work; /* threads that have not ended the last one */
    spipe_priv_job_fn job;
    spipe_priv_block_t *touched; /* memory for the job of touching */
    double woke;                 /* when a thread began the last job */
    int node;                    /* the device's NUMA node, -1 = not known */
    int stop;                    /* 1 = the job of copying ends */
    int quit;
} spipe_priv_measure_team_t;

/* The whole measurement. The pinned block has four areas: two rings that threads copy into and out
   of, and two that only the device copies. */
typedef struct spipe_priv_measure {
    spipe_costs_t *costs; /* the row of the device, in which figure after figure is replaced */
    double effort;        /* share of the usual times; 1, less in tests */
    double until;         /* what is measured now is not begun again after this time */
    int cannot_pin;       /* 1 = memory cannot be pinned in place here */
    spipe_priv_block_t pinned, pages;
    unsigned char *device;
    cudaStream_t in, out;
    cudaEvent_t begin, end; /* with time stamps */
    cudaEvent_t in_done[SPIPE_PRIV_MEASURE_SLOTS], out_done[SPIPE_PRIV_MEASURE_SLOTS];
    spipe_priv_measure_team_t team;
    spipe_priv_flow_t flows[2]; /* in, out */
} spipe_priv_measure_t;

/* Enqueues what is measured; size says which of its sizes. */
typedef cudaError_t (*spipe_priv_span_fn)(spipe_priv_measure_t *m, size_t size);

/* ---- 1 measure: repeating, solving --------------------------------------------------------- */
SPIPE_API void spipe_priv_measure_allow(spipe_priv_measure_t *m) {
    m->until = spipe_priv_seconds() + SPIPE_PRIV_MEASURE_REPEAT_S * m->effort;
}

/* Whether to measure once more: at least once, then as long as the time lasts. */
SPIPE_API int spipe_priv_measure_again(const spipe_priv_measure_t *m, int done, int times) {
    return done < 1 || (done < times && spipe_priv_seconds() < m->until);
}

/* A figure takes a measured value, within bounds; what is not a positive number is the least. */
SPIPE_API void spipe_priv_measure_set(double *figure, double value, double least, double most) {
    if (!(value > 0.0)) value = least;
    *figure = spipe_priv_min(spipe_priv_max(value, least), most);
}

SPIPE_API void spipe_priv_measure_set_rate(double *figure, double bytes, double seconds) {
    spipe_priv_measure_set(figure, bytes / spipe_priv_max(seconds, 1e-9), 1e7, 1e13);
}

/* The fixed time and the rate at which two sizes take their times. */
SPIPE_API void spipe_priv_measure_solve(double small_bytes, double small_s, double large_bytes,
                                        double large_s, double *fixed, double *rate) {
    const double slope = (large_s - small_s) / (large_bytes - small_bytes);
    *rate = slope > 0.0 ? 1.0 / slope : large_bytes / spipe_priv_max(large_s, 1e-9);
    *fixed = small_s - small_bytes / *rate;
}

/* The median; the times are sorted. */
SPIPE_API double spipe_priv_measure_median(double *times, size_t num) {
    size_t i, k;
    for (i = 1; i < num; ++i) {
        const double x = times[i];
        for (k = i; k > 0 && times[k - 1] > x; --k) times[k] = times[k - 1];
        times[k] = x;
    }
    return num > 0 ? times[num / 2] : 0.0;
}

SPIPE_API void spipe_priv_measure_keep_least(double *least, double value, int done) {
    if (done == 0 || value < *least) *least = value;
}

/* ---- 1 measure: threads -------------------------------------------------------------------- */
SPIPE_API void *spipe_priv_measure_team_thread(void *arg) {
    spipe_priv_measure_t *m = (spipe_priv_measure_t *)arg;
    spipe_priv_measure_team_t *team = &m->team;
    size_t number, turn = 0;
    spipe_priv_stay_on_node(team->node);
    spipe_priv_lock(team->sync);
    number = team->begun++;
    while (!team->quit) {
        if (team->turn == turn) {
            spipe_priv_wait(team->sync);
            continue;
        }
        turn = team->turn;
        team->woke = spipe_priv_seconds();
        spipe_priv_unlock(team->sync);
        team->job(m, number);
        spipe_priv_lock(team->sync);
        if (--team->at_work == 0) spipe_priv_wake(team->sync);
    }
    spipe_priv_unlock(team->sync);
    return NULL;
}

/* Starts up to num threads; where none can be had there are none. */
SPIPE_API void spipe_priv_measure_team_start(spipe_priv_measure_t *m, size_t num) {
    spipe_priv_measure_team_t *team = &m->team;
    const int node = team->node;
    memset(team, 0, sizeof *team);
    team->node = node;
    team->sync = spipe_priv_sync_create();
    while (team->sync && team->num < num) {
        void *thread = spipe_priv_thread_start(spipe_priv_measure_team_thread, m);
        if (!thread) return;
        team->threads[team->num++] = thread;
    }
}

SPIPE_API void spipe_priv_measure_team_end(spipe_priv_measure_t *m) {
    spipe_priv_measure_team_t *team = &m->team;
    if (!team->sync) return;
    spipe_priv_lock(team->sync);
    team->quit = 1;
    spipe_priv_wake(team->sync);
    spipe_priv_unlock(team->sync);
    while (team->num > 0) spipe_priv_thread_join(team->threads[--team->num]);
    spipe_priv_sync_destroy(team->sync);
    team->sync = NULL;
}

/* Gives all threads a job; returns the time when it did. */
SPIPE_API double spipe_priv_measure_team_give(spipe_priv_measure_t *m, spipe_priv_job_fn job) {
    spipe_priv_measure_team_t *team = &m->team;
    double given;
    spipe_priv_lock(team->sync);
    team->job = job;
    team->stop = 0;
    team->at_work = team->num;
    ++team->turn;
    given = spipe_priv_seconds();
    spipe_priv_wake(team->sync);
    spipe_priv_unlock(team->sync);
    return given;
}

/* Waits until all threads have ended the job, and tells one that goes on and on to stop. */
SPIPE_API void spipe_priv_measure_team_finish(spipe_priv_measure_t *m) {
    spipe_priv_lock(m->team.sync);
    m->team.stop = 1;
    while (m->team.at_work > 0) spipe_priv_wait(m->team.sync);
    spipe_priv_unlock(m->team.sync);
}

SPIPE_API void spipe_priv_job_rest(spipe_priv_measure_t *m, size_t number) {
    (void)m;
    (void)number;
}

SPIPE_API void *spipe_priv_empty_thread(void *arg) { return arg; }

/* From the signal to a parked thread until it runs. */
SPIPE_API cudaError_t spipe_priv_measure_wake(spipe_priv_measure_t *m) {
    double took[SPIPE_PRIV_MEASURE_WAKES];
    size_t n = 0;
    spipe_priv_measure_team_start(m, 1);
    spipe_priv_measure_allow(m);
    while (m->team.num > 0 && spipe_priv_measure_again(m, (int)n, (int)SPIPE_PRIV_MEASURE_WAKES)) {
        const double until = spipe_priv_seconds() + SPIPE_PRIV_MEASURE_PAUSE_S * m->effort;
        double given;
        while (spipe_priv_seconds() < until) continue;
        given = spipe_priv_measure_team_give(m, spipe_priv_job_rest);
        spipe_priv_measure_team_finish(m);
        took[n++] = m->team.woke - given;
    }
    spipe_priv_measure_team_end(m);
    if (n == 0) return cudaSuccess;
    spipe_priv_measure_set(&m->costs->wake_s, spipe_priv_measure_median(took, n), 5e-7, 1e-2);
    return cudaSuccess;
}

/* Starting and joining a thread, as the calling thread pays it. */
SPIPE_API cudaError_t spipe_priv_measure_start(spipe_priv_measure_t *m) {
    void *threads[SPIPE_PRIV_MEASURE_STARTS];
    double least = 0.0;
    int done;
    spipe_priv_measure_allow(m);
    for (done = 0; spipe_priv_measure_again(m, done, 5); ++done) {
        const double began = spipe_priv_seconds();
        size_t n = 0, k;
        for (k = 0; k < SPIPE_PRIV_MEASURE_STARTS; ++k) {
            threads[n] = spipe_priv_thread_start(spipe_priv_empty_thread, NULL);
            if (threads[n]) ++n;
        }
        for (k = 0; k < n; ++k) spipe_priv_thread_join(threads[k]);
        if (n == 0) return cudaSuccess;
        spipe_priv_measure_keep_least(&least, (spipe_priv_seconds() - began) / (double)n, done);
    }
    spipe_priv_measure_set(&m->costs->start_s, least, 1e-6, 1e-2);
    return cudaSuccess;
}

/* ---- 1 measure: host memory ---------------------------------------------------------------- */
/* Every 4 KiB of a thread's share, as far as so many threads touch. */
SPIPE_API void spipe_priv_job_touch(spipe_priv_measure_t *m, size_t number) {
    spipe_priv_block_t *b = m->team.touched;
    size_t num_threads = m->team.num, end, at;
    if (num_threads > SPIPE_PRIV_MEASURE_TOUCHERS) num_threads = SPIPE_PRIV_MEASURE_TOUCHERS;
    if (num_threads == 0) num_threads = 1; /* the calling thread */
    if (number >= num_threads) return;
    end = b->bytes / num_threads * (number + 1);
    if (number + 1 == num_threads) end = b->bytes;
    for (at = b->bytes / num_threads * number; at < end; at += 4096) b->at[at] = 1;
}

SPIPE_API void spipe_priv_block_touch(spipe_priv_measure_t *m, spipe_priv_block_t *b) {
    m->team.touched = b;
    if (m->team.num == 0) {
        spipe_priv_job_touch(m, 0);
        return;
    }
    (void)spipe_priv_measure_team_give(m, spipe_priv_job_touch);
    spipe_priv_measure_team_finish(m);
}

/* Memory that nobody has touched; huge: in huge pages where the system has them, as the slots of
   a pipeline are. */
SPIPE_API cudaError_t spipe_priv_block_get(spipe_priv_block_t *b, size_t bytes, int huge) {
    const size_t page = (size_t)2 << 20;
    b->base = malloc(bytes + page + SPIPE_PRIV_MEASURE_FRESH);
    if (!b->base) return cudaErrorMemoryAllocation;
    b->at = (unsigned char *)b->base + (page - ((uintptr_t)b->base & (page - 1)));
    b->bytes = bytes;
#if defined(MADV_HUGEPAGE)
    if (huge) (void)madvise(b->at, bytes, MADV_HUGEPAGE);
#else
    (void)huge;
#endif
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_priv_block_free(spipe_priv_block_t *b) {
    cudaError_t e = cudaSuccess;
    if (b->pinned && b->base)
        e = spipe_priv_unpin_and_free(b->at, b->base);
    else if (b->pinned)
        e = spipe_pinned_free(b->at);
    else
        free(b->base);
    memset(b, 0, sizeof *b);
    return e;
}

/* Seconds to pin and to unpin the first bytes of a block. */
SPIPE_API cudaError_t spipe_priv_pin_once(spipe_priv_block_t *b, size_t bytes, double *seconds) {
    const double began = spipe_priv_seconds();
    SPIPE_TRY(spipe_pin(b->at, bytes));
    b->pinned = 1;
    SPIPE_TRY(spipe_unpin(b->at));
    b->pinned = 0;
    *seconds = spipe_priv_seconds() - began;
    return cudaSuccess;
}

/* The least of several. */
SPIPE_API cudaError_t spipe_priv_pin_seconds(spipe_priv_measure_t *m, spipe_priv_block_t *b,
                                             size_t bytes, double *least) {
    double seconds = 0.0;
    int done;
    spipe_priv_measure_allow(m);
    for (done = 0; spipe_priv_measure_again(m, done, 5); ++done) {
        SPIPE_TRY(spipe_priv_pin_once(b, bytes, &seconds));
        spipe_priv_measure_keep_least(least, seconds, done);
    }
    return cudaSuccess;
}

/* The fixed time of pinning; whether memory can be pinned in place at all. */
SPIPE_API cudaError_t spipe_priv_measure_pin_calls(spipe_priv_measure_t *m) {
    const size_t little = (size_t)64 << 10;
    spipe_priv_block_t b;
    double least = 0.0;
    cudaError_t e;
    memset(&b, 0, sizeof b);
    SPIPE_TRY(spipe_priv_block_get(&b, little, 0));
    spipe_priv_block_touch(m, &b);
    e = spipe_priv_pin_seconds(m, &b, little, &least);
    (void)spipe_priv_block_free(&b);
    if (e == cudaErrorNotSupported) {
        (void)cudaGetLastError();
        m->cannot_pin = 1;
        return cudaSuccess;
    }
    if (e != cudaSuccess) return e;
    spipe_priv_measure_set(&m->costs->pin_s, 0.5 * least, 1e-6, 1e-2);
    return cudaSuccess;
}

/* New memory for slots: touched by threads, pinned, unpinned; less the two calls' fixed time, which
   the planner adds. */
SPIPE_API cudaError_t spipe_priv_measure_pin(spipe_priv_measure_t *m) {
    const size_t bytes = SPIPE_PRIV_MEASURE_COPY;
    double least = 0.0;
    int done;
    SPIPE_TRY(spipe_priv_measure_pin_calls(m));
    spipe_priv_measure_allow(m);
    for (done = 0; !m->cannot_pin && spipe_priv_measure_again(m, done, 3); ++done) {
        const double began = spipe_priv_seconds();
        double seconds = 0.0, both;
        spipe_priv_block_t b;
        cudaError_t e;
        memset(&b, 0, sizeof b);
        SPIPE_TRY(spipe_priv_block_get(&b, bytes, 1));
        spipe_priv_block_touch(m, &b);
        e = spipe_priv_pin_once(&b, bytes, &seconds);
        both = spipe_priv_seconds() - began;
        (void)spipe_priv_block_free(&b);
        if (e != cudaSuccess) return e;
        spipe_priv_measure_keep_least(&least, both, done);
    }
    if (m->cannot_pin) return cudaSuccess;
    least = spipe_priv_max(least - 2.0 * m->costs->pin_s, 0.5 * least);
    spipe_priv_measure_set_rate(&m->costs->pin, (double)bytes, least);
    return cudaSuccess;
}

/* Arrays of a program, in the pages that malloc gives, which the program has touched. */
SPIPE_API cudaError_t spipe_priv_measure_pin_arrays(spipe_priv_measure_t *m) {
    const size_t bytes = SPIPE_PRIV_MEASURE_COPY;
    double least = 0.0;
    if (m->cannot_pin) return cudaSuccess;
    SPIPE_TRY(spipe_priv_pin_seconds(m, &m->pages, bytes, &least));
    least = spipe_priv_max(least - 2.0 * m->costs->pin_s, 0.5 * least);
    spipe_priv_measure_set_rate(&m->costs->pin_arrays, (double)bytes, least);
    return cudaSuccess;
}

/* ---- 1 measure: setting up ----------------------------------------------------------------- */
/* The streams and events of a one-shot run. */
SPIPE_API cudaError_t spipe_priv_setup_once(void) {
    cudaStream_t streams[4];
    cudaEvent_t events[20];
    size_t num_streams = 0, num_events = 0;
    cudaError_t e = cudaSuccess;
    while (e == cudaSuccess && num_streams < sizeof streams / sizeof *streams) {
        e = spipe_stream_create(&streams[num_streams], SPIPE_PRIORITY_DEFAULT);
        if (e == cudaSuccess) ++num_streams;
    }
    while (e == cudaSuccess && num_events < sizeof events / sizeof *events) {
        e = spipe_event_create(&events[num_events]);
        if (e == cudaSuccess) ++num_events;
    }
    while (num_events > 0) spipe_priv_keep_error(&e, cudaEventDestroy(events[--num_events]));
    while (num_streams > 0) spipe_priv_keep_error(&e, cudaStreamDestroy(streams[--num_streams]));
    return e;
}

SPIPE_API cudaError_t spipe_priv_measure_setup(spipe_priv_measure_t *m) {
    double least = 0.0;
    int done;
    spipe_priv_measure_allow(m);
    for (done = 0; spipe_priv_measure_again(m, done, 5); ++done) {
        const double began = spipe_priv_seconds();
        SPIPE_TRY(spipe_priv_setup_once());
        spipe_priv_measure_keep_least(&least, spipe_priv_seconds() - began, done);
    }
    spipe_priv_measure_set(&m->costs->setup_s, least, 1e-6, 1e-1);
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_priv_malloc_seconds(spipe_priv_measure_t *m, size_t bytes,
                                                double *least) {
    int done;
    spipe_priv_measure_allow(m);
    for (done = 0; spipe_priv_measure_again(m, done, 5); ++done) {
        const double began = spipe_priv_seconds();
        void *at = NULL;
        SPIPE_TRY(cudaMalloc(&at, bytes));
        SPIPE_TRY(cudaFree(at));
        spipe_priv_measure_keep_least(least, spipe_priv_seconds() - began, done);
    }
    return cudaSuccess;
}

/* cudaMalloc and cudaFree: a fixed time, and a rate for large blocks. */
SPIPE_API cudaError_t spipe_priv_measure_malloc(spipe_priv_measure_t *m) {
    const size_t little = (size_t)8 << 20, large = (size_t)48 << 20;
    double small_s = 0.0, large_s = 0.0, fixed, rate;
    SPIPE_TRY(spipe_priv_malloc_seconds(m, little, &small_s));
    SPIPE_TRY(spipe_priv_malloc_seconds(m, large, &large_s));
    spipe_priv_measure_solve((double)little, small_s, (double)large, large_s, &fixed, &rate);
    spipe_priv_measure_set(&m->costs->malloc_s, fixed, 1e-6, 1e-2);
    spipe_priv_measure_set(&m->costs->malloc_bytes, rate, 5e10, 5e12);
    return cudaSuccess;
}

/* ---- 1 measure: what copies need ----------------------------------------------------------- */
SPIPE_API cudaError_t spipe_priv_measure_get_memory(spipe_priv_measure_t *m) {
    const size_t pinned = (size_t)4 * SPIPE_PRIV_MEASURE_AREA;
    const size_t pages = (size_t)SPIPE_PRIV_MEASURE_PAGES_IN + SPIPE_PRIV_MEASURE_PAGES_OUT;
    SPIPE_TRY(spipe_priv_block_get(&m->pages, pages, 0));
    spipe_priv_block_touch(m, &m->pages);
    SPIPE_TRY(cudaMalloc((void **)&m->device, (size_t)2 * SPIPE_PRIV_MEASURE_AREA));
    if (m->cannot_pin) {
        SPIPE_TRY(spipe_pinned_alloc((void **)&m->pinned.at, pinned));
    } else {
        SPIPE_TRY(spipe_priv_block_get(&m->pinned, pinned, 1));
        spipe_priv_block_touch(m, &m->pinned);
        SPIPE_TRY(spipe_pin(m->pinned.at, pinned));
    }
    m->pinned.pinned = 1;
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_priv_measure_get_streams(spipe_priv_measure_t *m) {
    int k;
    SPIPE_TRY(spipe_stream_create(&m->in, SPIPE_PRIORITY_DEFAULT));
    SPIPE_TRY(spipe_stream_create(&m->out, SPIPE_PRIORITY_DEFAULT));
    SPIPE_TRY(cudaEventCreate(&m->begin));
    SPIPE_TRY(cudaEventCreate(&m->end));
    for (k = 0; k < SPIPE_PRIV_MEASURE_SLOTS; ++k) {
        SPIPE_TRY(spipe_event_create(&m->in_done[k]));
        SPIPE_TRY(spipe_event_create(&m->out_done[k]));
    }
    return cudaSuccess;
}

SPIPE_API void spipe_priv_measure_end_event(cudaError_t *e, cudaEvent_t event) {
    if (event) spipe_priv_keep_error(e, cudaEventDestroy(event));
}

SPIPE_API void spipe_priv_measure_end_stream(cudaError_t *e, cudaStream_t stream) {
    if (stream) spipe_priv_keep_error(e, cudaStreamDestroy(stream));
}

/* Frees whatever there is, after what still runs on it. */
SPIPE_API cudaError_t spipe_priv_measure_free(spipe_priv_measure_t *m) {
    cudaError_t e = cudaSuccess;
    int k;
    spipe_priv_measure_team_end(m);
    if (m->in) spipe_priv_keep_error(&e, cudaStreamSynchronize(m->in));
    if (m->out) spipe_priv_keep_error(&e, cudaStreamSynchronize(m->out));
    for (k = 0; k < SPIPE_PRIV_MEASURE_SLOTS; ++k) {
        spipe_priv_measure_end_event(&e, m->in_done[k]);
        spipe_priv_measure_end_event(&e, m->out_done[k]);
    }
    spipe_priv_measure_end_event(&e, m->begin);
    spipe_priv_measure_end_event(&e, m->end);
    spipe_priv_measure_end_stream(&e, m->in);
    spipe_priv_measure_end_stream(&e, m->out);
    if (m->device) spipe_priv_keep_error(&e, cudaFree(m->device));
    spipe_priv_keep_error(&e, spipe_priv_block_free(&m->pinned));
    spipe_priv_keep_error(&e, spipe_priv_block_free(&m->pages));
    return e;
}

/* Area 0 and 1 of the device and of the pinned memory are for copies in and out. */
SPIPE_API cudaError_t spipe_priv_measure_in(spipe_priv_measure_t *m, size_t at, size_t bytes) {
    return cudaMemcpyAsync(m->device + at, m->pinned.at + at, bytes, cudaMemcpyHostToDevice, m->in);
}

SPIPE_API cudaError_t spipe_priv_measure_out(spipe_priv_measure_t *m, size_t at, size_t bytes) {
    at += SPIPE_PRIV_MEASURE_AREA;
    return cudaMemcpyAsync(m->pinned.at + at, m->device + at, bytes, cudaMemcpyDeviceToHost,
                           m->out);
}

/* ---- 1 measure: the device's clock --------------------------------------------------------- */
/* The least time of what work enqueues, from its begin in one stream to its end in another. A long
   copy goes before it, so that the calls are queued when it begins: they are measured apart. */
SPIPE_API cudaError_t spipe_priv_measure_span(spipe_priv_measure_t *m, spipe_priv_span_fn work,
                                              size_t size, cudaStream_t first, cudaStream_t last,
                                              double *least) {
    float ms = 0.0f;
    int done;
    spipe_priv_measure_allow(m);
    for (done = 0; spipe_priv_measure_again(m, done, 5); ++done) {
        if (first == m->in)
            SPIPE_TRY(spipe_priv_measure_in(m, 0, SPIPE_PRIV_MEASURE_COPY));
        else
            SPIPE_TRY(spipe_priv_measure_out(m, 0, SPIPE_PRIV_MEASURE_COPY));
        SPIPE_TRY(cudaEventRecord(m->begin, first));
        SPIPE_TRY(work(m, size));
        SPIPE_TRY(cudaEventRecord(m->end, last));
        SPIPE_TRY(cudaEventSynchronize(m->end));
        SPIPE_TRY(cudaEventElapsedTime(&ms, m->begin, m->end));
        spipe_priv_measure_keep_least(least, 1e-3 * (double)ms, done);
    }
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_priv_span_in(spipe_priv_measure_t *m, size_t bytes) {
    return spipe_priv_measure_in(m, 0, bytes);
}

SPIPE_API cudaError_t spipe_priv_span_out(spipe_priv_measure_t *m, size_t bytes) {
    return spipe_priv_measure_out(m, 0, bytes);
}

/* Twice as much, so that the begin and the end, where one direction is alone, count for less. */
SPIPE_API cudaError_t spipe_priv_span_both(spipe_priv_measure_t *m, size_t bytes) {
    int k;
    SPIPE_TRY(cudaStreamWaitEvent(m->out, m->begin, 0));
    for (k = 0; k < 2; ++k) {
        SPIPE_TRY(spipe_priv_measure_in(m, 0, bytes));
        SPIPE_TRY(spipe_priv_measure_out(m, 0, bytes));
    }
    SPIPE_TRY(cudaEventRecord(m->out_done[0], m->out));
    return cudaStreamWaitEvent(m->in, m->out_done[0], 0);
}

/* As a run with the schedule SPIPE_ENGINES copies its chunks, without kernels. */
SPIPE_API cudaError_t spipe_priv_span_ring(spipe_priv_measure_t *m, size_t chunk) {
    const size_t num = SPIPE_PRIV_MEASURE_COPY / chunk;
    size_t c;
    for (c = 0; c < num; ++c) {
        const size_t slot = c % SPIPE_PRIV_MEASURE_SLOTS;
        if (c >= SPIPE_PRIV_MEASURE_SLOTS) {
            SPIPE_TRY(cudaStreamWaitEvent(m->in, m->out_done[slot], 0));
        }
        SPIPE_TRY(spipe_priv_measure_in(m, c * chunk, chunk));
        SPIPE_TRY(cudaEventRecord(m->in_done[slot], m->in));
        SPIPE_TRY(cudaStreamWaitEvent(m->out, m->in_done[slot], 0));
        SPIPE_TRY(spipe_priv_measure_out(m, c * chunk, chunk));
        SPIPE_TRY(cudaEventRecord(m->out_done[slot], m->out));
    }
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_priv_span_chain(spipe_priv_measure_t *m, size_t hops) {
    for (; hops > 0; --hops) SPIPE_TRY(cudaMemsetAsync(m->device, 0, 4, m->in));
    return cudaSuccess;
}

/* The same, each in the other stream than the one before; an even number ends where it began. */
SPIPE_API cudaError_t spipe_priv_span_hops(spipe_priv_measure_t *m, size_t hops) {
    size_t k;
    for (k = 0; k < hops; ++k) {
        const cudaStream_t from = k % 2 ? m->out : m->in;
        const cudaStream_t to = k % 2 ? m->in : m->out;
        const cudaEvent_t event = m->in_done[k % SPIPE_PRIV_MEASURE_SLOTS];
        SPIPE_TRY(cudaMemsetAsync(m->device, 0, 4, from));
        SPIPE_TRY(cudaEventRecord(event, from));
        SPIPE_TRY(cudaStreamWaitEvent(to, event, 0));
    }
    return cudaSuccess;
}

/* Each direction alone, and both at once. */
SPIPE_API cudaError_t spipe_priv_measure_link(spipe_priv_measure_t *m) {
    const size_t bytes = SPIPE_PRIV_MEASURE_COPY;
    spipe_costs_t *c = m->costs;
    double in = 0.0, out = 0.0, both = 0.0;
    SPIPE_TRY(spipe_priv_measure_span(m, spipe_priv_span_in, bytes, m->in, m->in, &in));
    SPIPE_TRY(spipe_priv_measure_span(m, spipe_priv_span_out, bytes, m->out, m->out, &out));
    SPIPE_TRY(spipe_priv_measure_span(m, spipe_priv_span_both, bytes, m->in, m->in, &both));
    spipe_priv_measure_set_rate(&c->link_in, (double)bytes, in);
    spipe_priv_measure_set_rate(&c->link_out, (double)bytes, out);
    spipe_priv_measure_set_rate(&c->link_both, 2.0 * (double)bytes, both);
    c->zero_copy = 0.8 * c->link_both;
    return cudaSuccess;
}

/* A ring of n chunks takes (n + 1) x (copy_s + chunk / rate): two sizes give both. */
SPIPE_API cudaError_t spipe_priv_measure_ring(spipe_priv_measure_t *m) {
    const size_t bytes = SPIPE_PRIV_MEASURE_COPY;
    const size_t little = (size_t)256 << 10, num_small = bytes / little;
    const size_t large = (size_t)2 << 20, num_large = bytes / large;
    double small_s = 0.0, large_s = 0.0, fixed, rate;
    SPIPE_TRY(spipe_priv_measure_span(m, spipe_priv_span_ring, little, m->in, m->out, &small_s));
    SPIPE_TRY(spipe_priv_measure_span(m, spipe_priv_span_ring, large, m->in, m->out, &large_s));
    small_s /= (double)(num_small + 1);
    large_s /= (double)(num_large + 1);
    spipe_priv_measure_solve((double)little, small_s, (double)large, large_s, &fixed, &rate);
    spipe_priv_measure_set(&m->costs->copy_s, fixed, 0.2e-6, 50e-6);
    return cudaSuccess;
}

/* ---- 1 measure: the host's clock ----------------------------------------------------------- */
/* The calling thread's time for a copy of pinned memory, while the stream is busy. */
SPIPE_API cudaError_t spipe_priv_measure_call(spipe_priv_measure_t *m) {
    const size_t bytes = (size_t)64 << 10;
    double least = 0.0, began, took;
    int done, k;
    spipe_priv_measure_allow(m);
    for (done = 0; spipe_priv_measure_again(m, done, 3); ++done) {
        SPIPE_TRY(spipe_priv_measure_in(m, 0, SPIPE_PRIV_MEASURE_COPY));
        began = spipe_priv_seconds();
        for (k = 0; k < SPIPE_PRIV_MEASURE_HOPS; ++k) {
            SPIPE_TRY(spipe_priv_measure_in(m, (size_t)k * bytes, bytes));
        }
        took = spipe_priv_seconds() - began;
        SPIPE_TRY(cudaStreamSynchronize(m->in));
        spipe_priv_measure_keep_least(&least, took / (double)SPIPE_PRIV_MEASURE_HOPS, done);
    }
    spipe_priv_measure_set(&m->costs->call_s, least, 1e-7, 1e-3);
    return cudaSuccess;
}

/* What a kernel adds to a chain, and what an event between two streams adds. In a short run the
   device waits for the calls, and a call that launches a kernel takes about as long as two that
   copy. In a long run a kernel adds about twice what a cudaMemsetAsync of 4 bytes adds. The longer
   time counts. In the table of machines latency_s equals launch_s; if an event adds more than that,
   its time counts. */
SPIPE_API cudaError_t spipe_priv_measure_launch(spipe_priv_measure_t *m) {
    const size_t hops = SPIPE_PRIV_MEASURE_HOPS;
    spipe_costs_t *c = m->costs;
    double chain = 0.0, hop = 0.0;
    SPIPE_TRY(spipe_priv_measure_span(m, spipe_priv_span_chain, hops, m->in, m->in, &chain));
    SPIPE_TRY(spipe_priv_measure_span(m, spipe_priv_span_hops, hops, m->in, m->in, &hop));
    chain /= (double)hops;
    hop /= (double)hops;
    spipe_priv_measure_set(&c->launch_s, 2.0 * spipe_priv_max(chain, c->call_s), 0.5e-6, 1e-3);
    spipe_priv_measure_set(&c->latency_s, hop - chain, c->launch_s, 1e-3);
    return cudaSuccess;
}

/* The least time of CUDA's own copy of pageable memory. */
SPIPE_API cudaError_t spipe_priv_pageable_seconds(spipe_priv_measure_t *m, int out, size_t bytes,
                                                  double *least) {
    unsigned char *at = m->pages.at + (out ? SPIPE_PRIV_MEASURE_PAGES_IN : 0);
    int done;
    spipe_priv_measure_allow(m);
    for (done = 0; spipe_priv_measure_again(m, done, 3); ++done) {
        const double began = spipe_priv_seconds();
        if (out)
            SPIPE_TRY(cudaMemcpy(at, m->device, bytes, cudaMemcpyDeviceToHost));
        else
            SPIPE_TRY(cudaMemcpy(m->device, at, bytes, cudaMemcpyHostToDevice));
        spipe_priv_measure_keep_least(least, spipe_priv_seconds() - began, done);
    }
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_priv_measure_pageable(spipe_priv_measure_t *m) {
    const size_t little = (size_t)64 << 10, large = (size_t)4 << 20;
    double *rates[2], fixed[2];
    int out;
    rates[0] = &m->costs->pageable_in;
    rates[1] = &m->costs->pageable_out;
    for (out = 0; out < 2; ++out) {
        double small_s = 0.0, large_s = 0.0;
        SPIPE_TRY(spipe_priv_pageable_seconds(m, out, little, &small_s));
        SPIPE_TRY(spipe_priv_pageable_seconds(m, out, large, &large_s));
        spipe_priv_measure_set_rate(rates[out], (double)large, large_s);
        fixed[out] = small_s - (double)little / *rates[out];
    }
    spipe_priv_measure_set(&m->costs->pageable_s, 0.5 * (fixed[0] + fixed[1]), 1e-6, 1e-3);
    return cudaSuccess;
}

/* ---- 1 measure: copying by threads --------------------------------------------------------- */
/* Copies both ways in memory of the device's own, as much of it as the ring has, for some time. */
SPIPE_API cudaError_t spipe_priv_measure_feed(spipe_priv_measure_t *m, double seconds,
                                              size_t ring) {
    const double until = spipe_priv_seconds() + seconds * m->effort;
    const size_t piece = SPIPE_PRIV_MEASURE_MIB;
    size_t turn, at = 0;
    int k;
    for (turn = 0; turn == 0 || spipe_priv_seconds() < until; ++turn) {
        if (turn >= 2) SPIPE_TRY(cudaEventSynchronize(m->in_done[turn % 2]));
        if (turn >= 2) SPIPE_TRY(cudaEventSynchronize(m->out_done[turn % 2]));
        for (k = 0; k < 4; ++k) {
            SPIPE_TRY(spipe_priv_measure_in(m, at, piece));
            SPIPE_TRY(spipe_priv_measure_out(m, at, piece));
            at = (at + piece) % ring;
        }
        SPIPE_TRY(cudaEventRecord(m->in_done[turn % 2], m->in));
        SPIPE_TRY(cudaEventRecord(m->out_done[turn % 2], m->out));
    }
    SPIPE_TRY(cudaStreamSynchronize(m->in));
    return cudaStreamSynchronize(m->out);
}

SPIPE_API void spipe_priv_flow_set(spipe_priv_measure_t *m, int out, size_t ring, size_t piece) {
    const size_t in_bytes = SPIPE_PRIV_MEASURE_PAGES_IN, out_bytes = SPIPE_PRIV_MEASURE_PAGES_OUT;
    spipe_priv_flow_t *f = &m->flows[out];
    memset(f, 0, sizeof *f);
    f->ring = m->pinned.at + (size_t)(2 + out) * SPIPE_PRIV_MEASURE_AREA;
    f->pages = m->pages.at + (out ? in_bytes : 0);
    f->piece = piece;
    f->num_pieces = ring / piece;
    f->num_pages = (out ? out_bytes : in_bytes) / ring * f->num_pieces;
    f->out = out;
    f->stream_stores = out || ring > SPIPE_PRIV_MEASURE_RING;
}

/* The next piece that no thread copies now; there are more pieces than threads. */
SPIPE_API size_t spipe_priv_flow_claim(spipe_priv_flow_t *f) {
    size_t k = f->next++;
    while (f->busy >> (k % f->num_pieces) & 1u) k = f->next++;
    f->busy |= 1u << (k % f->num_pieces);
    return k;
}

SPIPE_API void spipe_priv_flow_copy(const spipe_priv_flow_t *f, unsigned char *ring,
                                    unsigned char *pages) {
    unsigned char *to = f->out ? pages : ring;
    const unsigned char *from = f->out ? ring : pages;
    if (f->stream_stores)
        spipe_priv_copy(to, from, f->piece);
    else
        memcpy(to, from, f->piece);
}

SPIPE_API void spipe_priv_job_copy(spipe_priv_measure_t *m, size_t number) {
    const size_t each = m->team.num / 2;
    spipe_priv_flow_t *f = &m->flows[number < each ? 0 : 1];
    if (number >= 2 * each) return;
    spipe_priv_lock(m->team.sync);
    while (!m->team.stop) {
        const size_t k = spipe_priv_flow_claim(f);
        spipe_priv_unlock(m->team.sync);
        spipe_priv_flow_copy(f, f->ring + k % f->num_pieces * f->piece,
                             f->pages + k % f->num_pages * f->piece);
        spipe_priv_lock(m->team.sync);
        f->busy &= ~(1u << (k % f->num_pieces));
        ++f->done;
    }
    spipe_priv_unlock(m->team.sync);
}

/* Bytes that the threads of each direction have copied so far. */
SPIPE_API void spipe_priv_flow_bytes(spipe_priv_measure_t *m, double bytes[2]) {
    int out;
    spipe_priv_lock(m->team.sync);
    for (out = 0; out < 2; ++out) {
        bytes[out] = (double)m->flows[out].done * (double)m->flows[out].piece;
    }
    spipe_priv_unlock(m->team.sync);
}

/* Bytes a second that half of the threads copy into a ring, and that the others copy out of one,
   while the device copies both ways; 0 = not one piece was copied in that time. */
SPIPE_API cudaError_t spipe_priv_measure_flows(spipe_priv_measure_t *m, size_t ring, size_t piece,
                                               double rates[2]) {
    double before[2], after[2], began, took;
    cudaError_t e;
    int out;
    for (out = 0; out < 2; ++out) spipe_priv_flow_set(m, out, ring, piece);
    (void)spipe_priv_measure_team_give(m, spipe_priv_job_copy);
    e = spipe_priv_measure_feed(m, SPIPE_PRIV_MEASURE_WARM_S, ring);
    spipe_priv_flow_bytes(m, before);
    began = spipe_priv_seconds();
    if (e == cudaSuccess) e = spipe_priv_measure_feed(m, SPIPE_PRIV_MEASURE_COPY_S, ring);
    spipe_priv_flow_bytes(m, after);
    took = spipe_priv_max(spipe_priv_seconds() - began, 1e-9);
    for (out = 0; out < 2; ++out) rates[out] = (after[out] - before[out]) / took;
    spipe_priv_measure_team_finish(m);
    return e;
}

/* All threads at once: fill and drain are what one of them then copies, because in a run it is not
   alone either. A cache that holds the larger ring, too, does not show what a ring beyond it costs:
   then the proportion of the row's figures is a bound. */
SPIPE_API cudaError_t spipe_priv_measure_memory(spipe_priv_measure_t *m) {
    const size_t each = m->team.num / 2;
    const size_t area = SPIPE_PRIV_MEASURE_AREA, little = (size_t)256 << 10;
    spipe_costs_t *c = m->costs;
    const double share = c->memory_uncached / c->memory;
    double cached[2], uncached[2], all, most;
    if (each == 0) return cudaSuccess;
    SPIPE_TRY(spipe_priv_measure_flows(m, SPIPE_PRIV_MEASURE_RING, little, cached));
    SPIPE_TRY(spipe_priv_measure_flows(m, area, SPIPE_PRIV_MEASURE_MIB, uncached));
    if (!(cached[0] > 0.0 && cached[1] > 0.0 && uncached[0] + uncached[1] > 0.0)) {
        return cudaSuccess;
    }
    all = cached[0] + cached[1];
    most = spipe_priv_cache_bytes() > 4 * area ? share * all : all;
    spipe_priv_measure_set(&c->fill, cached[0] / (double)each, 1e7, 1e12);
    spipe_priv_measure_set(&c->drain, cached[1] / (double)each, 1e7, 1e12);
    spipe_priv_measure_set(&c->memory, all, 1e7, 1e13);
    spipe_priv_measure_set(&c->memory_uncached, uncached[0] + uncached[1], 1e7,
                           spipe_priv_max(most, 1e7));
    return cudaSuccess;
}

/* ---- 1 measure: all of it ------------------------------------------------------------------ */
/* Half of the CPUs each way, but at most seven, as the planner takes. */
SPIPE_API size_t spipe_priv_measure_num_threads(void) {
    const size_t each = spipe_priv_num_cpus() / 2, most = SPIPE_PRIV_MEASURE_HANDS / 2;
    if (each == 0) return 2;
    return 2 * (each < most ? each : most);
}

/* What needs little memory comes first. Before copies are measured, some bring the device and the
   link to their speed. */
SPIPE_API cudaError_t spipe_priv_measure_all(spipe_priv_measure_t *m) {
    SPIPE_TRY(spipe_priv_measure_setup(m));
    SPIPE_TRY(spipe_priv_measure_malloc(m));
    SPIPE_TRY(spipe_priv_measure_wake(m));
    SPIPE_TRY(spipe_priv_measure_start(m));
    spipe_priv_measure_team_start(m, spipe_priv_measure_num_threads());
    SPIPE_TRY(spipe_priv_measure_pin(m));
    SPIPE_TRY(spipe_priv_measure_get_memory(m));
    SPIPE_TRY(spipe_priv_measure_get_streams(m));
    SPIPE_TRY(spipe_priv_measure_pin_arrays(m));
    SPIPE_TRY(spipe_priv_measure_feed(m, SPIPE_PRIV_MEASURE_COPY_S, SPIPE_PRIV_MEASURE_AREA));
    SPIPE_TRY(spipe_priv_measure_link(m));
    SPIPE_TRY(spipe_priv_measure_ring(m));
    SPIPE_TRY(spipe_priv_measure_call(m));
    SPIPE_TRY(spipe_priv_measure_launch(m));
    SPIPE_TRY(spipe_priv_measure_pageable(m));
    return spipe_priv_measure_memory(m);
}

/* The same with a share of the usual times: a hundredth is enough to see that it works. */
SPIPE_API cudaError_t spipe_priv_costs_measure(spipe_costs_t *costs, double effort) {
    spipe_priv_measure_t m;
    const cudaError_t found = cudaPeekAtLastError();
    spipe_costs_t row;
    cudaError_t e;
    int device = 0;
    SPIPE_TRY(spipe_costs_get(costs, -1)); /* which refuses NULL */
    SPIPE_TRY(spipe_priv_take_error(cudaGetDevice(&device)));
    row = *costs;
    memset(&m, 0, sizeof m);
    m.costs = costs;
    m.effort = effort;
    m.team.node = spipe_priv_numa_node(device);
    e = spipe_priv_measure_all(&m);
    spipe_priv_keep_error(&e, spipe_priv_measure_free(&m));
    if (e != cudaSuccess)
        *costs = row;
    else
        (void)snprintf(costs->name, sizeof costs->name, "measured");
    spipe_priv_leave_error(found);
    return e;
}

SPIPE_API cudaError_t spipe_costs_measure(spipe_costs_t *costs) {
    const spipe_priv_visit_t visit = spipe_priv_arrive(cudaStreamCaptureModeThreadLocal);
    const cudaError_t e = spipe_priv_costs_measure(costs, 1.0);
    spipe_priv_depart(&visit);
    return e;
}

#endif /* STREAMPIPE_MEASURE_H */
