/*  streampipe_model.h 0.1.0 -- how long a CUDA stream pipeline will take, without one.

    Simulates the steps of a pipeline on a described device: copies in, stages, copies out, the host
    threads of staging; slots, schedules, copy engines, hardware queues. A run of 1,000 chunks takes
    about 0.2 ms and no memory, so a program may try many. C99, C++11 and CUDA C++ alike. MIT
    licence. Optional: programs that only run pipelines need streampipe.h alone.

    USE IT   copy both beside streampipe.h and #include this: nothing to define or to link.
             It includes streampipe_timeline.h, which draws its timelines.

    A COMPLETE PROGRAM       gcc -std=c99 chunks.c -lcudart -lpthread
BEGIN EXAMPLE chunks.c
    #include "streampipe_model.h"

    int main(void) {
        spipe_model_t m = spipe_model_default();
        double        ms;
        m.device = spipe_model_preset("h200");
        m.count = 64 << 20;                            // elements: floats
        m.num_stages = 1;
        for (m.chunk = 64 << 10; m.chunk <= m.count; m.chunk *= 4) {
            m.in_bytes = m.out_bytes = 4.0 * (double)m.chunk;
            m.stage_ms[0] = (double)m.chunk * 5e-8;    // a kernel's time for one chunk
            SPIPE_CHECK(spipe_model_run(&m, NULL, &ms));
            printf("%6.2f MiB a chunk: %.3f ms, modelled\n", m.in_bytes / 1048576.0, ms);
        }
        return 0;
    }
END EXAMPLE

    CONTENTS (search for the anchor)
      1  >>model     the device, the pipeline, the simulation
*/
#ifndef STREAMPIPE_MODEL_H
#define STREAMPIPE_MODEL_H

#include "streampipe_timeline.h"
#if SPIPE_VERSION != 200
#error "extras/streampipe_model.h 0.2.0 needs streampipe.h 0.2.0: copy both from the same release"
#endif

/* ============================================================================================
   >>api    every public type and function
   ============================================================================================ */

/* ---- 1 >>model ----------------------------------------------------------------------------- */
/* A device, as far as it decides what overlaps. Measure yours and assign what differs. */
typedef struct spipe_model_device {
    char   name[32];
    int    copy_engines;       /* 2: one for each direction; 1: both share it */
    int    hardware_queues;    /* 1: each engine takes its work in the order of issue, ready or
                                  not (before Kepler); more: whatever is ready */
    int    late_signal;        /* 1: of kernels issued back to back none is known to be done
                                  before the last is (Fermi) */
    int    concurrent_kernels; /* 1: a kernel may start while another has not ended */
    double h2d_gbps, d2h_gbps; /* pinned memory, one direction alone */
    double both_ways;          /* each direction's rate while both are busy: times this */
    double copy_lost_us;       /* a copy holds its engine so long beside its bytes */
    double launch_latency_us;  /* between a kernel being free to run and its first block */
    double copy_latency_us;    /* between what a copy waits for in another stream being done and
                                  its first byte */
    double kernel_fill;        /* of the device that one large kernel keeps busy over its time: its
                                  last blocks leave a rest, for a kernel of another stream */
    double call_copy_us;       /* host time of a call: cudaMemcpyAsync ... */
    double call_launch_us;     /* ... a kernel launch ... */
    double call_event_us;      /* ... recording or waiting for an event */
    double return_us;          /* from the end of the last operation to the host's going on */
} spipe_model_device_t;

/* A pipeline and a device. Get one from spipe_model_default, assign what you want different. */
typedef struct spipe_model {
    size_t           count, chunk;        /* elements in the whole and in a chunk */
    size_t           depth;               /* slots, 1 .. SPIPE_MAX_DEPTH (default: 4) */
    spipe_schedule_t schedule;            /* (default: SPIPE_ENGINES, which AUTO means too) */
    int              kernel_streams;      /* of ENGINES; 1 with an ordered stage (default: 2) */
    double           in_bytes, out_bytes; /* copied for a full chunk; 0 = no such copy */
    int              copies_in, copies_out;         /* calls they take: buffers (default: 1) */
    int              num_stages;                    /* in a chain */
    double           stage_ms[SPIPE_MAX_STAGES];    /* of a full chunk, with the device to itself */
    double           stage_share[SPIPE_MAX_STAGES]; /* of the device that its kernel fills, so that
                                                       others run beside it (default: 1) */
    int              stage_host[SPIPE_MAX_STAGES];  /* 1 = a host stage (default: 0) */
    const char      *stage_names[SPIPE_MAX_STAGES]; /* for the timeline; kept, not copied */
    double           fill_gbps, drain_gbps; /* of one host thread that stages pageable memory; 0 =
                                               no staging that way (default) */
    int              fill_threads, drain_threads; /* of the host (default: 1); none of either: the
                                               caller's alone, between its calls */
    spipe_model_device_t device;          /* (default: "ideal") */
} spipe_model_t;

/*  spipe_model_default -- no work, four slots, SPIPE_ENGINES on the device "ideal".
    spipe_model_preset -- a device by name.

    name       in      "h200": measured on one (PCIe 5.0 x16). "ideal": nothing costs anything but
                       bytes, 10 GB/s each way, and stages. "c1060", "c2050", "k20c": Teslas on
                       PCIe 2.0, for the published table.
    Returns    model: the description. device: the device; with name[0] == 0 when it is not known.
    Blocks     no.   Threads  any.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API spipe_model_t spipe_model_default(void);
SPIPE_API spipe_model_device_t spipe_model_preset(const char *name);

/*  spipe_model_run -- simulate a run by events: from the first byte in to the last byte out.

    m          in      SPIPE_SERIAL, DEPTH_FIRST, BREADTH_FIRST or ENGINES. Stages form a chain; the
                       copies that a host stage adds are not modelled; the last chunk's bytes and
                       times are in proportion to its elements.
    timeline   out     what would happen when, marked as modelled; may be NULL. Its spans and
                       capacity are the caller's; what has no room is counted in num_lost.
    ms         out     modelled time of the run, the host's return included; may be NULL.
    Returns    cudaSuccess; cudaErrorInvalidValue (a member out of range or not a number);
               cudaErrorNotSupported (SPIPE_MAPPED, which has no steps to model).
    Blocks     for about a quarter of a microsecond an operation.
    Threads    any.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API cudaError_t spipe_model_run(const spipe_model_t *m, spipe_timeline_t *timeline,
                                      double *ms);

/* ============================================================================================
   >>impl   the same, as code. Names beginning spipe_priv_ are not for callers.
   ============================================================================================ */
/* ---- 1 model ------------------------------------------------------------------------------- */
/* Costs nothing but bytes; d's other members on top of it make a real device. */
SPIPE_API spipe_model_device_t spipe_priv_device(const char *name, double h2d, double d2h) {
    spipe_model_device_t d;
    memset(&d, 0, sizeof d);
    snprintf(d.name, sizeof d.name, "%s", name);
    d.copy_engines = 2;
    d.hardware_queues = 8;
    d.concurrent_kernels = 1;
    d.h2d_gbps = h2d;
    d.d2h_gbps = d2h;
    d.both_ways = d.kernel_fill = 1.0;
    return d;
}
/* PCIe 2.0 x16 carries 8 GB/s each way: 76 % of that as payload of reads (64 bytes a packet), 84 %
   of writes (128 bytes), less acknowledgements. The requests and acknowledgements of the other
   direction take 5 % more. Starting a copy took about 10 us then, a launch 5-7 us. */
SPIPE_API spipe_model_device_t spipe_priv_device_tesla(const char *name, int copy_engines,
                                                       int hardware_queues, int late_signal) {
    spipe_model_device_t d = spipe_priv_device(name, 5.7, 6.2);
    d.copy_engines = copy_engines;
    d.hardware_queues = hardware_queues;
    d.late_signal = late_signal;
    d.concurrent_kernels = copy_engines > 1; /* from Fermi on */
    d.both_ways = 0.95;
    d.copy_lost_us = 8.0;
    d.launch_latency_us = d.call_launch_us = 5.0;
    d.call_copy_us = 4.0;
    d.call_event_us = 0.27;
    return d;
}
SPIPE_API spipe_model_device_t spipe_model_preset(const char *name) {
    spipe_model_device_t d = spipe_priv_device("", 10.0, 10.0);
    if (!name) return d;
    if (strcmp(name, "ideal") == 0) return spipe_priv_device(name, 10.0, 10.0);
    if (strcmp(name, "c1060") == 0) return spipe_priv_device_tesla(name, 1, 1, 0);
    if (strcmp(name, "c2050") == 0) return spipe_priv_device_tesla(name, 2, 1, 1);
    if (strcmp(name, "k20c") == 0) return spipe_priv_device_tesla(name, 2, 32, 0);
    if (strcmp(name, "h200") != 0) return d;
    d = spipe_priv_device(name, 55.4, 55.3); /* all measured */
    d.both_ways = 50.7 / 55.4;
    d.kernel_fill = 0.94; /* two kernel streams take 1 / 1.06 of the time of one whole launch */
    d.copy_lost_us = 2.6; /* in 2.7, out 1.9, both at once 2.8 */
    /* A kernel and a copy that wait for each other take 7.9 us more than by themselves. */
    d.launch_latency_us = d.copy_latency_us = 4.0;
    d.call_copy_us = 1.9;
    d.call_launch_us = 3.8;
    d.call_event_us = 0.27;
    d.return_us = 6.0; /* wall_ms - timed_ms of watched runs of 16 MiB to 2 GiB: 5.3 to 6.6 */
    return d;
}
SPIPE_API spipe_model_t spipe_model_default(void) {
    spipe_model_t m;
    int           s;
    memset(&m, 0, sizeof m);
    m.depth = 4;
    m.schedule = SPIPE_ENGINES;
    m.kernel_streams = 2;
    m.copies_in = m.copies_out = m.fill_threads = m.drain_threads = 1;
    for (s = 0; s < SPIPE_MAX_STAGES; ++s) m.stage_share[s] = 1.0;
    m.device = spipe_model_preset("ideal");
    return m;
}
/* Engines. Host threads are engines too: so many as fill and drain, and one for host stages. */
enum { SPIPE_PRIV_ON_COPY0 = 0, SPIPE_PRIV_ON_COPY1, SPIPE_PRIV_ON_SMS, SPIPE_PRIV_ON_FILL,
       SPIPE_PRIV_ON_HOST, SPIPE_PRIV_ON_DRAIN, SPIPE_PRIV_NUM_ENGINES };

/* What an actor's present step is at: something before it is not done; the host has still to issue
   it, or it has a latency to wait; free to run; running; done, but not known to be (Fermi); all of
   its chunks are done. */
enum { SPIPE_PRIV_BLOCKED = 0, SPIPE_PRIV_TIMED, SPIPE_PRIV_READY, SPIPE_PRIV_RUNNING,
       SPIPE_PRIV_HELD, SPIPE_PRIV_OVER };

/* A step that every chunk goes through. Times in ms, of a full chunk. */
typedef struct spipe_priv_step {
    spipe_span_kind_t kind;
    int               stage, engine;
    int               run_end;            /* the last of the stages that share a stream with it */
    double            lost, span, share;  /* held beside its bytes; its bytes or work */
    double            latency;            /* of a copy, from its turn in its slot on */
    double            call, calls_before; /* host time to issue it, and the steps before it */
} spipe_priv_step_t;

/* Does steps first .. last of the chunks of one slot, one after another. A slot has three at most:
   what happens on the device, its fill, and its drain, since pinned memory is free earlier. */
typedef struct spipe_priv_actor {
    size_t chunk, slot, seq; /* seq: where in the order of issue its step stands */
    int    state, first, last, step, in_bytes;
    double turn, ready, begin, left, since, rate, until;
} spipe_priv_actor_t;

typedef struct spipe_priv_sim {
    const spipe_model_t *m;
    spipe_timeline_t    *timeline;
    spipe_priv_step_t    steps[SPIPE_MAX_STAGES + 4];
    spipe_priv_actor_t   actors[3 * SPIPE_MAX_DEPTH]; /* the first depth: the device's work */
    size_t               num_chunks, depth, wave; /* wave: chunks issued step by step together */
    int                  num_steps, num_actors, engines; /* engines: the schedule is that one */
    int                  device_first, device_last;
    double               now, calls, last_fraction;
    int                  num_running[SPIPE_PRIV_NUM_ENGINES];
    int                  running[SPIPE_PRIV_NUM_ENGINES][3 * SPIPE_MAX_DEPTH]; /* as started */
} spipe_priv_sim_t;

SPIPE_API int spipe_priv_model_check(const spipe_model_t *m) {
    const spipe_model_device_t *d = &m->device;
    const double values[] = {m->in_bytes, m->out_bytes, m->fill_gbps, m->drain_gbps,
                             d->copy_lost_us, d->launch_latency_us, d->copy_latency_us,
                             d->call_copy_us, d->call_launch_us, d->call_event_us, d->return_us};
    size_t       i;
    int          s, good;
    good = m->depth >= 1 && m->depth <= SPIPE_MAX_DEPTH && m->num_stages >= 0 &&
           m->num_stages <= SPIPE_MAX_STAGES && (m->chunk > 0 || m->count == 0) &&
           m->kernel_streams >= 1 && m->copies_in >= 0 && m->copies_out >= 0 &&
           m->fill_threads >= 0 && m->drain_threads >= 0 && d->copy_engines >= 1 &&
           d->hardware_queues >= 1 &&
           spipe_priv_is_number(d->h2d_gbps, 1e-9, 1e9) &&
           spipe_priv_is_number(d->d2h_gbps, 1e-9, 1e9) &&
           spipe_priv_is_number(d->both_ways, 1e-3, 1.0) &&
           spipe_priv_is_number(d->kernel_fill, 1e-3, 1.0);
    for (i = 0; i < sizeof values / sizeof *values; ++i) {
        good = good && spipe_priv_is_number(values[i], 0.0, 1e15);
    }
    for (s = 0; good && s < m->num_stages; ++s) {
        good = spipe_priv_is_number(m->stage_ms[s], 0.0, 1e9) &&
               spipe_priv_is_number(m->stage_share[s], 1e-6, 1.0);
    }
    return good;
}
/* A copy: it holds its engine a little beside its bytes, and takes a call for each buffer. */
SPIPE_API void spipe_priv_sim_copy(const spipe_model_t *m, spipe_priv_step_t *step, int copies) {
    step->lost = copies * m->device.copy_lost_us * 1e-3;
    step->latency = m->device.copy_latency_us * 1e-3;
}
SPIPE_API spipe_priv_step_t *spipe_priv_sim_step(spipe_priv_sim_t *sim, spipe_span_kind_t kind,
                                                 int engine, double span, double call_us) {
    spipe_priv_step_t *step = &sim->steps[sim->num_steps++];
    memset(step, 0, sizeof *step);
    step->kind = kind;
    step->stage = -1;
    step->engine = engine;
    step->span = span;
    step->share = 1.0;
    step->call = call_us * 1e-3;
    step->calls_before = sim->calls;
    sim->calls += step->call;
    return step;
}
/* Beside a step's own call, the host records an event behind the step before it and, with ENGINES,
   lets this one's stream wait for that; the first step of a chunk waits for its slot. */
SPIPE_API void spipe_priv_sim_steps(spipe_priv_sim_t *sim) {
    const spipe_model_t        *m = sim->m;
    const spipe_model_device_t *d = &m->device;
    const double events = sim->engines ? 2.0 * d->call_event_us : d->call_event_us;
    const int    alone = m->fill_threads == 0 && m->drain_threads == 0;
    int          s;
    if (m->in_bytes > 0.0 && m->fill_gbps > 0.0) {
        spipe_priv_sim_step(sim, SPIPE_SPAN_FILL, SPIPE_PRIV_ON_FILL,
                            m->in_bytes / (m->fill_gbps * 1e6), 0.0);
    }
    sim->device_first = sim->num_steps;
    if (m->in_bytes > 0.0) {
        spipe_priv_step_t *step = spipe_priv_sim_step(
            sim, SPIPE_SPAN_IN, SPIPE_PRIV_ON_COPY0, m->in_bytes / (d->h2d_gbps * 1e6),
            m->copies_in * d->call_copy_us);
        spipe_priv_sim_copy(m, step, m->copies_in);
    }
    for (s = 0; s < m->num_stages; ++s) {
        const int          host = m->stage_host[s];
        spipe_priv_step_t *step = spipe_priv_sim_step(
            sim, host ? SPIPE_SPAN_HOST : SPIPE_SPAN_STAGE,
            host ? SPIPE_PRIV_ON_HOST : SPIPE_PRIV_ON_SMS, m->stage_ms[s],
            host ? 0.0 : d->call_launch_us + events);
        step->stage = s;
        step->share = m->stage_share[s] * d->kernel_fill;
    }
    if (m->out_bytes > 0.0) {
        spipe_priv_step_t *step = spipe_priv_sim_step(
            sim, SPIPE_SPAN_OUT, d->copy_engines > 1 ? SPIPE_PRIV_ON_COPY1 : SPIPE_PRIV_ON_COPY0,
            m->out_bytes / (d->d2h_gbps * 1e6), m->copies_out * d->call_copy_us + events);
        spipe_priv_sim_copy(m, step, m->copies_out);
    }
    sim->device_last = sim->num_steps - 1;
    sim->calls += events * 1e-3;
    if (alone && sim->device_first > 0) sim->steps[0].lost = sim->calls;
    if (m->out_bytes > 0.0 && m->drain_gbps > 0.0) {
        spipe_priv_sim_step(sim, SPIPE_SPAN_DRAIN,
                            alone ? SPIPE_PRIV_ON_FILL : SPIPE_PRIV_ON_DRAIN,
                            m->out_bytes / (m->drain_gbps * 1e6), 0.0);
    }
    for (s = sim->num_steps - 1; s >= 0; --s) { /* stages in a row on the device share a stream */
        const int on = s + 1 < sim->num_steps && sim->steps[s].kind == SPIPE_SPAN_STAGE &&
                       sim->steps[s + 1].kind == SPIPE_SPAN_STAGE;
        sim->steps[s].run_end = on ? sim->steps[s + 1].run_end : s;
    }
}
SPIPE_API void spipe_priv_sim_actors(spipe_priv_sim_t *sim, int first, int last) {
    size_t slot;
    for (slot = 0; slot < sim->depth && first <= last; ++slot) {
        spipe_priv_actor_t *a = &sim->actors[sim->num_actors++];
        a->chunk = a->slot = slot;
        a->turn = -1e300; /* nothing was waited for */
        a->first = a->step = first;
        a->last = last;
        if (slot >= sim->num_chunks) a->state = SPIPE_PRIV_OVER;
    }
}
SPIPE_API void spipe_priv_sim_begin(spipe_priv_sim_t *sim, const spipe_model_t *m,
                                    spipe_timeline_t *timeline) {
    const size_t last = (m->count - 1) % m->chunk + 1;
    memset(sim, 0, offsetof(spipe_priv_sim_t, running));
    sim->m = m;
    sim->timeline = timeline;
    sim->engines = m->schedule == SPIPE_ENGINES || m->schedule == SPIPE_SCHEDULE_AUTO;
    sim->depth = m->schedule == SPIPE_SERIAL ? 1 : m->depth;
    sim->wave = m->schedule == SPIPE_BREADTH_FIRST ? sim->depth : 1;
    sim->num_chunks = (m->count - 1) / m->chunk + 1;
    sim->last_fraction = last == m->chunk ? 1.0 : (double)last / (double)m->chunk;
    spipe_priv_sim_steps(sim);
    spipe_priv_sim_actors(sim, sim->device_first, sim->device_last);
    spipe_priv_sim_actors(sim, 0, sim->device_first - 1);
    spipe_priv_sim_actors(sim, sim->device_last + 1, sim->num_steps - 1);
}
/* How many chunks are issued together with this one, and the first of them. */
SPIPE_API size_t spipe_priv_sim_wave(const spipe_priv_sim_t *sim, size_t chunk, size_t *first) {
    *first = sim->wave == 1 ? chunk : chunk - chunk % sim->wave;
    return sim->wave < sim->num_chunks - *first ? sim->wave : sim->num_chunks - *first;
}
/* Where a step of a chunk stands in the order of issue, and when the host has issued it. */
SPIPE_API double spipe_priv_sim_issue(const spipe_priv_sim_t *sim, size_t chunk, int step,
                                      size_t *seq) {
    const size_t num = (size_t)sim->device_last + 1 - (size_t)sim->device_first;
    size_t       first, together = spipe_priv_sim_wave(sim, chunk, &first);
    *seq = first * num + (size_t)(step - sim->device_first) * together + (chunk - first);
    return (double)first * sim->calls + (double)together * sim->steps[step].calls_before +
           (double)(chunk - first + 1) * sim->steps[step].call;
}
/* Whether the device is past a step of the chunk so many before this one, if there is one. */
SPIPE_API int spipe_priv_sim_past(const spipe_priv_sim_t *sim, size_t chunk, size_t back,
                                  int step) {
    const spipe_priv_actor_t *a = &sim->actors[(chunk - back) % sim->depth];
    return chunk < back || a->chunk > chunk - back || (a->chunk == chunk - back && a->step > step);
}
/* Whether a caller makes its calls after the bytes: the first of them starts the copy in. */
SPIPE_API int spipe_priv_sim_calls_after(const spipe_priv_sim_t *sim, const spipe_priv_actor_t *a) {
    return sim->steps[a->step].kind == SPIPE_SPAN_FILL && sim->steps[a->step].lost > 0.0;
}
SPIPE_API int spipe_priv_sim_filled(const spipe_priv_sim_t *sim, const spipe_priv_actor_t *a) {
    const spipe_priv_actor_t *fill = &sim->actors[sim->depth + a->slot];
    return fill->chunk > a->chunk ||
           (fill->chunk == a->chunk && fill->state == SPIPE_PRIV_RUNNING && !fill->in_bytes);
}
/* Whether all that an actor's step waits for is done: what is before it in its stream, what it
   reads, and the memory that it writes. Within a slot the order of steps sees to that. */
SPIPE_API int spipe_priv_sim_may(const spipe_priv_sim_t *sim, const spipe_priv_actor_t *a) {
    const size_t depth = sim->depth, drain = sim->device_first > 0 ? 2 * depth : depth;
    const spipe_priv_step_t *step = &sim->steps[a->step];
    switch (step->kind) {
    case SPIPE_SPAN_FILL: return spipe_priv_sim_past(sim, a->chunk, depth, sim->device_first);
    case SPIPE_SPAN_DRAIN: return spipe_priv_sim_past(sim, a->chunk, 0, sim->device_last);
    case SPIPE_SPAN_HOST: return 1;
    case SPIPE_SPAN_STAGE:
        return !sim->engines || spipe_priv_sim_past(sim, a->chunk, (size_t)sim->m->kernel_streams,
                                                    step->run_end);
    case SPIPE_SPAN_IN:
        if (sim->device_first > 0 && !spipe_priv_sim_filled(sim, a)) return 0;
        break;
    case SPIPE_SPAN_OUT:
        if (sim->device_last + 1 == sim->num_steps) break;
        if (sim->actors[drain + a->slot].chunk < a->chunk) return 0;
        break;
    }
    return !sim->engines || spipe_priv_sim_past(sim, a->chunk, 1, a->step);
}
SPIPE_API void spipe_priv_sim_ready(spipe_priv_sim_t *sim) {
    int i;
    for (i = 0; i < sim->num_actors; ++i) {
        spipe_priv_actor_t *a = &sim->actors[i];
        if (a->state == SPIPE_PRIV_BLOCKED && spipe_priv_sim_may(sim, a)) {
            double issued = 0.0;
            a->state = SPIPE_PRIV_TIMED;
            a->seq = a->chunk; /* host threads take chunks in order */
            if (a->first == sim->device_first) {
                issued = spipe_priv_sim_issue(sim, a->chunk, a->step, &a->seq);
            }
            a->ready = issued > sim->now ? issued : sim->now;
            if (sim->steps[a->step].kind == SPIPE_SPAN_STAGE) {
                a->ready += sim->m->device.launch_latency_us * 1e-3;
            } else if (a->ready < a->turn + sim->steps[a->step].latency) { /* hidden by a queue */
                a->ready = a->turn + sim->steps[a->step].latency;
            }
        }
        if (a->state == SPIPE_PRIV_TIMED && a->ready <= sim->now) a->state = SPIPE_PRIV_READY;
    }
}
/* A new rate. The end is worked out anew only when the rate changes, so that sums stay exact. */
SPIPE_API void spipe_priv_sim_rate(const spipe_priv_sim_t *sim, spipe_priv_actor_t *a,
                                   double rate) {
    if (rate == a->rate) return;
    a->left -= (sim->now - a->since) * a->rate;
    a->since = sim->now;
    a->rate = rate;
    a->until = rate > 0.0 ? sim->now + a->left / rate : 1e300;
}
SPIPE_API void spipe_priv_sim_span(const spipe_priv_sim_t *sim, spipe_priv_actor_t *a) {
    const spipe_priv_step_t *step = &sim->steps[a->step];
    const int                short_one = a->chunk + 1 == sim->num_chunks;
    a->left = !a->in_bytes ? step->lost : short_one ? step->span * sim->last_fraction : step->span;
    a->since = sim->now;
    a->rate = 0.0;
    spipe_priv_sim_rate(sim, a, 1.0);
}
/* With one hardware queue: whether no step issued earlier still waits for the same engine. */
SPIPE_API int spipe_priv_sim_is_next(const spipe_priv_sim_t *sim, const spipe_priv_actor_t *a) {
    const int engine = sim->steps[a->step].engine;
    size_t    i, seq;
    for (i = 0; i < sim->depth; ++i) {
        const spipe_priv_actor_t *b = &sim->actors[i];
        size_t                    chunk = b->chunk;
        int                       s = b->step + (b->state >= SPIPE_PRIV_RUNNING);
        while (s <= b->last && sim->steps[s].engine != engine) ++s;
        if (s > b->last) {
            chunk += sim->depth;
            for (s = b->first; sim->steps[s].engine != engine;) ++s;
        }
        if (chunk >= sim->num_chunks) continue;
        (void)spipe_priv_sim_issue(sim, chunk, s, &seq);
        if (seq < a->seq) return 0;
    }
    return 1;
}
/* The one that an engine takes: ready first, issued first. */
SPIPE_API spipe_priv_actor_t *spipe_priv_sim_pick(spipe_priv_sim_t *sim, int engine) {
    const int strict = sim->m->device.hardware_queues == 1 && engine <= SPIPE_PRIV_ON_SMS;
    spipe_priv_actor_t *best = NULL;
    int                 i;
    for (i = 0; i < sim->num_actors; ++i) {
        spipe_priv_actor_t *a = &sim->actors[i];
        if (a->state != SPIPE_PRIV_READY || sim->steps[a->step].engine != engine) continue;
        if (strict && !spipe_priv_sim_is_next(sim, a)) continue;
        if (!best || a->ready < best->ready || (a->ready <= best->ready && a->seq < best->seq)) {
            best = a;
        }
    }
    return best;
}
/* Kernels share the device in the order they started: each gets the share it can fill, as far as
   there is one. Gives what is left. */
SPIPE_API double spipe_priv_sim_share(spipe_priv_sim_t *sim) {
    double left = 1.0;
    int    i;
    for (i = 0; i < sim->num_running[SPIPE_PRIV_ON_SMS]; ++i) {
        spipe_priv_actor_t *a = &sim->actors[sim->running[SPIPE_PRIV_ON_SMS][i]];
        const double        want = sim->steps[a->step].share, got = want < left ? want : left;
        spipe_priv_sim_rate(sim, a, got / want);
        left = left - got < 1e-12 ? 0.0 : left - got;
    }
    return left;
}
SPIPE_API int spipe_priv_sim_has_room(spipe_priv_sim_t *sim, int engine) {
    const int running = sim->num_running[engine];
    if (running == 0) return 1;
    if (engine == SPIPE_PRIV_ON_FILL) return running < sim->m->fill_threads;
    if (engine == SPIPE_PRIV_ON_DRAIN) return running < sim->m->drain_threads;
    return engine == SPIPE_PRIV_ON_SMS && sim->m->device.concurrent_kernels &&
           spipe_priv_sim_share(sim) > 0.0;
}
SPIPE_API void spipe_priv_sim_start(spipe_priv_sim_t *sim) {
    int e, both = 1;
    for (e = 0; e < SPIPE_PRIV_NUM_ENGINES; ++e) {
        spipe_priv_actor_t *a;
        while (spipe_priv_sim_has_room(sim, e) && (a = spipe_priv_sim_pick(sim, e)) != NULL) {
            a->state = SPIPE_PRIV_RUNNING;
            a->begin = sim->now;
            a->in_bytes = !(sim->steps[a->step].lost > 0.0) || spipe_priv_sim_calls_after(sim, a);
            spipe_priv_sim_span(sim, a);
            sim->running[e][sim->num_running[e]++] = (int)(a - sim->actors);
        }
    }
    (void)spipe_priv_sim_share(sim);
    for (e = SPIPE_PRIV_ON_COPY0; e <= SPIPE_PRIV_ON_COPY1; ++e) {
        both = both && sim->num_running[e] && sim->actors[sim->running[e][0]].in_bytes;
    }
    for (e = SPIPE_PRIV_ON_COPY0; e <= SPIPE_PRIV_ON_COPY1; ++e) {
        if (sim->num_running[e] == 0) continue;
        spipe_priv_sim_rate(sim, &sim->actors[sim->running[e][0]],
                            both ? sim->m->device.both_ways : 1.0);
    }
}
SPIPE_API void spipe_priv_sim_record(spipe_priv_sim_t *sim, const spipe_priv_actor_t *a) {
    const spipe_priv_step_t *step = &sim->steps[a->step];
    spipe_timeline_t        *t = sim->timeline;
    spipe_span_t            *s;
    if (!t) return;
    if (t->num_spans >= t->capacity) {
        ++t->num_lost;
        return;
    }
    s = &t->spans[t->num_spans++];
    s->kind = step->kind;
    s->stage = step->stage;
    s->lane = (int)a->slot; /* but with ENGINES: one stream for copies, some for kernels */
    if (sim->engines && step->engine < SPIPE_PRIV_ON_SMS) s->lane = 0;
    if (sim->engines && step->engine == SPIPE_PRIV_ON_SMS) {
        s->lane = (int)(a->chunk % (size_t)sim->m->kernel_streams);
    }
    s->chunk = a->chunk;
    s->begin_ms = a->begin;
    s->end_ms = sim->now - (spipe_priv_sim_calls_after(sim, a) ? step->lost : 0.0);
}
/* On to the next step, or to the slot's next chunk. */
SPIPE_API void spipe_priv_sim_advance(spipe_priv_sim_t *sim, spipe_priv_actor_t *a) {
    a->state = SPIPE_PRIV_BLOCKED;
    a->turn = sim->now;
    if (++a->step <= a->last) return;
    a->step = a->first;
    a->chunk += sim->depth;
    if (a->chunk >= sim->num_chunks) a->state = SPIPE_PRIV_OVER;
}
/* Late signal (Fermi): while the kernel issued right behind it is not done, nobody is told. */
SPIPE_API int spipe_priv_sim_holds(const spipe_priv_sim_t *sim, const spipe_priv_actor_t *a) {
    size_t first, together, seq;
    if (!sim->m->device.late_signal || sim->steps[a->step].kind != SPIPE_SPAN_STAGE) return 0;
    together = spipe_priv_sim_wave(sim, a->chunk, &first);
    return a->chunk + 1 < first + together && !spipe_priv_sim_past(sim, a->chunk + 1, 0, a->step) &&
           spipe_priv_sim_issue(sim, a->chunk + 1, a->step, &seq) <= sim->now;
}
SPIPE_API void spipe_priv_sim_finish(spipe_priv_sim_t *sim, spipe_priv_actor_t *a) {
    const size_t chunk = a->chunk;
    const int    step = a->step;
    size_t       c = chunk;
    spipe_priv_sim_record(sim, a);
    if (spipe_priv_sim_holds(sim, a)) {
        a->state = SPIPE_PRIV_HELD;
        return;
    }
    spipe_priv_sim_advance(sim, a);
    while (sim->m->device.late_signal && c % sim->wave != 0) { /* those that it held back */
        a = &sim->actors[--c % sim->depth];
        if (a->state != SPIPE_PRIV_HELD || a->chunk != c || a->step != step) break;
        spipe_priv_sim_advance(sim, a);
    }
}
/* Ends what ends now on one engine. */
SPIPE_API void spipe_priv_sim_end(spipe_priv_sim_t *sim, int engine) {
    int i, kept = 0;
    for (i = 0; i < sim->num_running[engine]; ++i) {
        const int           which = sim->running[engine][i];
        spipe_priv_actor_t *a = &sim->actors[which];
        if (a->until <= sim->now && a->in_bytes != spipe_priv_sim_calls_after(sim, a)) {
            spipe_priv_sim_finish(sim, a);
            continue;
        }
        sim->running[engine][kept++] = which;
        if (a->until > sim->now) continue;
        a->in_bytes = !a->in_bytes;
        spipe_priv_sim_span(sim, a);
    }
    sim->num_running[engine] = kept;
}
/* When something happens next; 1e300 = never. */
SPIPE_API double spipe_priv_sim_next(const spipe_priv_sim_t *sim) {
    double next = 1e300;
    int    i;
    for (i = 0; i < sim->num_actors; ++i) {
        const spipe_priv_actor_t *a = &sim->actors[i];
        if (a->state == SPIPE_PRIV_RUNNING && a->until < next) next = a->until;
        if (a->state == SPIPE_PRIV_TIMED && a->ready < next) next = a->ready;
    }
    return next;
}
SPIPE_API cudaError_t spipe_model_run(const spipe_model_t *m, spipe_timeline_t *timeline,
                                      double *ms) {
    spipe_priv_sim_t sim;
    int              e;
    if (ms) *ms = 0.0;
    if (!m || (timeline && timeline->capacity > 0 && !timeline->spans)) {
        return cudaErrorInvalidValue;
    }
    if (m->schedule == SPIPE_MAPPED) return cudaErrorNotSupported;
    if (!spipe_priv_model_check(m)) return cudaErrorInvalidValue;
    if (timeline) {
        timeline->num_spans = timeline->num_lost = 0;
        timeline->modelled = 1;
        timeline->wall_ms = 0.0;
        timeline->num_stages = m->num_stages;
        memcpy(timeline->stage_names, m->stage_names, sizeof timeline->stage_names);
        snprintf(timeline->device, sizeof timeline->device, "%.31s", m->device.name);
    }
    if (m->count == 0 || (m->num_stages == 0 && m->in_bytes <= 0.0 && m->out_bytes <= 0.0)) {
        return cudaSuccess;
    }
    spipe_priv_sim_begin(&sim, m, timeline);
    for (;;) {
        double next;
        spipe_priv_sim_ready(&sim);
        spipe_priv_sim_start(&sim);
        next = spipe_priv_sim_next(&sim);
        if (next >= 1e300) break;
        sim.now = next;
        for (e = 0; e < SPIPE_PRIV_NUM_ENGINES; ++e) spipe_priv_sim_end(&sim, e);
    }
    for (e = 0; e < sim.num_actors; ++e) {
        if (sim.actors[e].state != SPIPE_PRIV_OVER) return cudaErrorUnknown; /* a ring of waits */
    }
    if (timeline) timeline->wall_ms = sim.now;
    if (ms) *ms = sim.now + m->device.return_us * 1e-3;
    return cudaSuccess;
}

#endif /* STREAMPIPE_MODEL_H */

/*  MIT License: see the end of streampipe.h. Copyright (c) 2026 The streampipe authors. */
