/*  streampipe_model.h 0.2.0 -- predicts how long a CUDA stream pipeline takes, without running it.

    Simulates a pipeline on a described device: copies in, stages, copies out, the host threads that
    stage pageable memory; slots, schedules, copy engines, hardware queues. Simulating 1,000 chunks
    takes about 0.2 ms and allocates nothing, so a program can try many settings. For C99, C++11 and
    CUDA C++. MIT licence. Optional: programs that only run pipelines need only streampipe.h.

    USE IT   Copy it and streampipe_timeline.h, which draws its timelines, beside streampipe.h and
             #include it. There is nothing to define or to link.

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
#error "streampipe_model.h 0.2.0 needs streampipe.h 0.2.0: copy both from the same release"
#endif

/* ============================================================================================
   >>api    every public type and function
   ============================================================================================ */

/* ---- 1 >>model ----------------------------------------------------------------------------- */
/* The properties of a device that decide what overlaps. Measure yours and set what differs. */
typedef struct spipe_model_device {
    char name[32];
    int copy_engines;          /* 2: one for each direction; 1: both share it */
    int hardware_queues;       /* 1: each engine works strictly in the order of issue (before
                                  Kepler); more: each engine takes whatever is ready */
    int late_signal;           /* 1: when kernels are issued back to back, all of them count as done
                                  only when the last one is (Fermi) */
    int concurrent_kernels;    /* 1: a kernel may start while another is still running */
    double h2d_gbps, d2h_gbps; /* GB/s of pinned memory, one direction alone */
    double both_ways;          /* factor on either rate while both directions are busy */
    double copy_lost_us;       /* fixed time of a copy, in addition to its bytes */
    double launch_latency_us;  /* from a kernel being ready to its first block */
    double copy_latency_us;    /* from the end of the operation in another stream that a copy waits
                                  for, to its first byte */
    double kernel_fill;    /* share of the device that one large kernel uses on average: its last
                                  blocks leave some idle, for a kernel of another stream */
    double call_copy_us;   /* host time of a call of cudaMemcpyAsync */
    double call_launch_us; /* host time of a kernel launch */
    double call_event_us;  /* host time of recording an event, or of a stream wait */
    double return_us;      /* from the end of the last operation until the run returns */
} spipe_model_device_t;

/* A pipeline and a device. Get one from spipe_model_default and set what should differ. */
typedef struct spipe_model {
    size_t count, chunk;                  /* elements in total and per chunk */
    size_t depth;                         /* slots, 1 .. SPIPE_MAX_DEPTH (default: 4) */
    spipe_schedule_t schedule;            /* (default: SPIPE_ENGINES, which AUTO means too) */
    int kernel_streams;                   /* for SPIPE_ENGINES; set 1 for ordered stages
                                             (default: 2) */
    double in_bytes, out_bytes;           /* copied per full chunk; 0 = no such copy */
    int copies_in, copies_out;            /* copy calls per chunk, one per buffer (default: 1) */
    int num_stages;                       /* each stage reads the output of the one before */
    double stage_ms[SPIPE_MAX_STAGES];    /* time for a full chunk, alone on the device */
    double stage_share[SPIPE_MAX_STAGES]; /* share of the device that its kernel fills, so that
                                             others can run beside it (default: 1) */
    int stage_host[SPIPE_MAX_STAGES];     /* 1 = a host stage (default: 0) */
    const char *stage_names[SPIPE_MAX_STAGES]; /* for the timeline; pointers are kept */
    double fill_gbps, drain_gbps;    /* GB/s of one host thread that stages pageable memory; 0 = no
                                        staging in that direction (default) */
    int fill_threads, drain_threads; /* host threads that stage (default: 1); both 0: the calling
                                        thread stages, between its CUDA calls */
    spipe_model_device_t device;     /* (default: "ideal") */
} spipe_model_t;

/*  spipe_model_default -- a pipeline without work: four slots, SPIPE_ENGINES, the device "ideal".
    spipe_model_preset -- a device by name.

    name       in      "h200", "h100": measured (PCIe 5.0 x16). "ideal": only bytes (10 GB/s each
                       way) and stages take time. "c1060", "c2050", "k20c": Tesla GPUs on PCIe 2.0,
                       for the published table (28_published_table.cu).
    Returns    spipe_model_default: the model. spipe_model_preset: the device; name[0] == 0 if there
               is none of that name.
    Blocks     no.   Threads  any.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API spipe_model_t spipe_model_default(void);
SPIPE_API spipe_model_device_t spipe_model_preset(const char *name);

/*  spipe_model_run -- simulate a run, from the first byte in to the last byte out.

    m          in      SPIPE_SERIAL, DEPTH_FIRST, BREADTH_FIRST or ENGINES. Stages form a chain. The
                       copies that a host stage adds are not modelled. A shorter last chunk has
                       bytes and times in proportion to its elements.
    timeline   out     the modelled operations, marked as modelled; may be NULL. Its spans and
                       capacity are the caller's; operations that do not fit count in num_lost.
    ms         out     modelled time of the run, until it has returned; may be NULL.
    Returns    cudaSuccess; cudaErrorInvalidValue (a member out of range or not a number);
               cudaErrorNotSupported (SPIPE_ZERO_COPY, which has no copies to overlap).
    Blocks     for about a quarter of a microsecond per operation.
    Threads    any.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API cudaError_t spipe_model_run(const spipe_model_t *m, spipe_timeline_t *timeline,
                                      double *ms);

/* ============================================================================================
   >>impl   the same, as code. Names beginning spipe_priv_ are not for callers.
   ============================================================================================ */
/* ---- 1 model ------------------------------------------------------------------------------- */
/* A device on which only bytes take time; setting the other members makes it a real one. */
SPIPE_API spipe_model_device_t spipe_priv_device(const char *name, double h2d, double d2h) {
    spipe_model_device_t d;
    memset(&d, 0, sizeof d);
    snprintf(d.name, sizeof d.name, "%s", name);
    d.copy_engines = 2;
    d.hardware_queues = 8;
    d.concurrent_kernels = 1;
    d.h2d_gbps = h2d;
    d.d2h_gbps = d2h;
    d.both_ways = 1.0;
    d.kernel_fill = 1.0;
    return d;
}

/* A Tesla of 2008 to 2012. PCIe 2.0 x16 carries 8 GB/s each way, of which the payload of reads (64
   bytes a packet) is 76 % and that of writes (128 bytes) 84 %, less acknowledgements. Requests and
   acknowledgements of the other direction take another 5 %. Starting a copy took about 10 us then,
   a launch 5 to 7 us. */
SPIPE_API spipe_model_device_t spipe_priv_device_tesla(const char *name, int copy_engines,
                                                       int hardware_queues, int late_signal) {
    spipe_model_device_t d = spipe_priv_device(name, 5.7, 6.2);
    d.copy_engines = copy_engines;
    d.hardware_queues = hardware_queues;
    d.late_signal = late_signal;
    d.concurrent_kernels = copy_engines > 1; /* from Fermi on */
    d.both_ways = 0.95;
    d.copy_lost_us = 8.0;
    d.launch_latency_us = 5.0;
    d.call_launch_us = 5.0;
    d.call_copy_us = 4.0;
    d.call_event_us = 0.27;
    return d;
}

SPIPE_API spipe_model_device_t spipe_model_preset(const char *name) {
    spipe_model_device_t d = spipe_priv_device("", 10.0, 10.0);
    spipe_costs_t costs;
    if (!name) return d;
    if (strcmp(name, "ideal") == 0) return spipe_priv_device(name, 10.0, 10.0);
    if (strcmp(name, "c1060") == 0) return spipe_priv_device_tesla(name, 1, 1, 0);
    if (strcmp(name, "c2050") == 0) return spipe_priv_device_tesla(name, 2, 1, 1);
    if (strcmp(name, "k20c") == 0) return spipe_priv_device_tesla(name, 2, 32, 0);
    if (strcmp(name, "h200") != 0 && strcmp(name, "h100") != 0) return d;
    costs = spipe_priv_costs_for(name); /* the row that the planner reads */
    d = spipe_priv_device(name, costs.link_in * 1e-9, costs.link_out * 1e-9);
    d.both_ways = costs.link_both / costs.link_in;
    d.copy_lost_us = costs.copy_s * 1e6;
    d.launch_latency_us = costs.launch_s * 1e6;
    d.copy_latency_us = costs.latency_s * 1e6;
    d.call_copy_us = costs.call_s * 1e6;
    d.kernel_fill = 0.94; /* chunks in two kernel streams take 1 / 1.06 of the time of one launch */
    d.call_launch_us = 3.8;
    d.call_event_us = 0.27;
    d.return_us = 6.0; /* wall_ms - timed_ms of recorded runs of 16 MiB to 2 GiB: 5.3 to 6.6 */
    return d;
}

SPIPE_API spipe_model_t spipe_model_default(void) {
    spipe_model_t m;
    int s;
    memset(&m, 0, sizeof m);
    m.depth = 4;
    m.schedule = SPIPE_ENGINES;
    m.kernel_streams = 2;
    m.copies_in = 1;
    m.copies_out = 1;
    m.fill_threads = 1;
    m.drain_threads = 1;
    for (s = 0; s < SPIPE_MAX_STAGES; ++s) m.stage_share[s] = 1.0;
    m.device = spipe_model_preset("ideal");
    return m;
}

/* Engines. Host threads are engines too: those that fill, those that drain, and one for host
   stages. */
enum {
    SPIPE_PRIV_ON_COPY0 = 0,
    SPIPE_PRIV_ON_COPY1,
    SPIPE_PRIV_ON_SMS,
    SPIPE_PRIV_ON_FILL,
    SPIPE_PRIV_ON_HOST,
    SPIPE_PRIV_ON_DRAIN,
    SPIPE_PRIV_NUM_ENGINES
};

/* The state of an actor's current step. */
enum {
    SPIPE_PRIV_BLOCKED = 0, /* something that it waits for is not done */
    SPIPE_PRIV_TIMED,       /* not issued yet by the host, or waiting for a latency to pass */
    SPIPE_PRIV_READY,       /* could run when its engine is free */
    SPIPE_PRIV_RUNNING,
    SPIPE_PRIV_HELD, /* done, but its completion is signalled later (Fermi) */
    SPIPE_PRIV_OVER  /* all of the actor's chunks are done */
};

/* A step of every chunk. Times are in ms, for a full chunk. */
typedef struct spipe_priv_phase {
    spipe_span_kind_t kind;
    int stage, engine;
    int run_end;         /* the last of the consecutive stages that share a stream with it */
    double lost;         /* fixed time */
    double span;         /* time of its bytes or its work */
    double share;        /* share of the device that a kernel fills */
    double latency;      /* latency of a copy, after the step before it in its slot */
    double call;         /* host time to issue it */
    double calls_before; /* host time to issue all steps before it */
} spipe_priv_phase_t;

/* Does steps first .. last of the chunks of one slot, one after another. A slot has up to three
   actors: its work on the device, its fill and its drain. They are separate because a slot's pinned
   memory becomes free before its device memory does. */
typedef struct spipe_priv_actor {
    size_t chunk, slot;
    size_t seq; /* position of its current step in the order of issue */
    int state, first, last, step;
    int in_bytes; /* 0 = in the step's fixed time, 1 = in its bytes or work */
    double turn;  /* when the step before it in its slot ended */
    double ready; /* when it can run */
    double begin;
    double left, since, rate; /* work left at the time `since`, and work per ms from then on */
    double until;             /* when it ends */
} spipe_priv_actor_t;

/* The state of a simulation. */
typedef struct spipe_priv_sim {
    const spipe_model_t *m;
    spipe_timeline_t *timeline;
    spipe_priv_phase_t steps[SPIPE_MAX_STAGES + 4];
    spipe_priv_actor_t actors[3 * SPIPE_MAX_DEPTH]; /* the first `depth` are for the device */
    size_t num_chunks, depth;
    size_t wave; /* chunks issued together: each step for all of them, then the next step */
    int num_steps, num_actors;
    int engines;                   /* 1 = SPIPE_ENGINES */
    int device_first, device_last; /* steps on the device */
    double now;
    double calls;         /* host time to issue a chunk */
    double last_fraction; /* size of the last chunk, as a fraction of a full one */
    int num_running[SPIPE_PRIV_NUM_ENGINES];
    int running[SPIPE_PRIV_NUM_ENGINES][3 * SPIPE_MAX_DEPTH]; /* actors, in the order of start */
} spipe_priv_sim_t;

/* Whether all members are numbers and in range. */
SPIPE_API int spipe_priv_model_check(const spipe_model_t *m) {
    const spipe_model_device_t *d = &m->device;
    const double values[] = {m->in_bytes,        m->out_bytes,    m->fill_gbps,
                             m->drain_gbps,      d->copy_lost_us, d->launch_latency_us,
                             d->copy_latency_us, d->call_copy_us, d->call_launch_us,
                             d->call_event_us,   d->return_us};
    size_t i;
    int s, good;
    good = m->depth >= 1 && m->depth <= SPIPE_MAX_DEPTH && m->num_stages >= 0 &&
           m->num_stages <= SPIPE_MAX_STAGES && (m->chunk > 0 || m->count == 0) &&
           m->kernel_streams >= 1 && m->copies_in >= 0 && m->copies_out >= 0 &&
           m->fill_threads >= 0 && m->drain_threads >= 0 && d->copy_engines >= 1 &&
           d->hardware_queues >= 1 && spipe_priv_is_number(d->h2d_gbps, 1e-9, 1e9) &&
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

/* Adds a copy step's fixed time, once per buffer, and its latency. */
SPIPE_API void spipe_priv_sim_copy(const spipe_model_t *m, spipe_priv_phase_t *step, int copies) {
    step->lost = copies * m->device.copy_lost_us * 1e-3;
    step->latency = m->device.copy_latency_us * 1e-3;
}

/* Appends a step. */
SPIPE_API spipe_priv_phase_t *spipe_priv_sim_step(spipe_priv_sim_t *sim, spipe_span_kind_t kind,
                                                  int engine, double span, double call_us) {
    spipe_priv_phase_t *step = &sim->steps[sim->num_steps++];
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

/* Makes the list of steps. Besides a step's own call the host records an event after the step
   before it and, with SPIPE_ENGINES, makes the step's stream wait for that event; the first step of
   a chunk waits for its slot. */
SPIPE_API void spipe_priv_sim_steps(spipe_priv_sim_t *sim) {
    const spipe_model_t *m = sim->m;
    const spipe_model_device_t *d = &m->device;
    const double events = sim->engines ? 2.0 * d->call_event_us : d->call_event_us;
    const int alone = m->fill_threads == 0 && m->drain_threads == 0;
    int s;
    if (m->in_bytes > 0.0 && m->fill_gbps > 0.0) {
        spipe_priv_sim_step(sim, SPIPE_SPAN_FILL, SPIPE_PRIV_ON_FILL,
                            m->in_bytes / (m->fill_gbps * 1e6), 0.0);
    }
    sim->device_first = sim->num_steps;
    if (m->in_bytes > 0.0) {
        spipe_priv_phase_t *step =
            spipe_priv_sim_step(sim, SPIPE_SPAN_IN, SPIPE_PRIV_ON_COPY0,
                                m->in_bytes / (d->h2d_gbps * 1e6), m->copies_in * d->call_copy_us);
        spipe_priv_sim_copy(m, step, m->copies_in);
    }
    for (s = 0; s < m->num_stages; ++s) {
        spipe_priv_phase_t *step;
        if (m->stage_host[s]) {
            step =
                spipe_priv_sim_step(sim, SPIPE_SPAN_HOST, SPIPE_PRIV_ON_HOST, m->stage_ms[s], 0.0);
        } else {
            step = spipe_priv_sim_step(sim, SPIPE_SPAN_STAGE, SPIPE_PRIV_ON_SMS, m->stage_ms[s],
                                       d->call_launch_us + events);
        }
        step->stage = s;
        step->share = m->stage_share[s] * d->kernel_fill;
    }
    if (m->out_bytes > 0.0) {
        spipe_priv_phase_t *step = spipe_priv_sim_step(
            sim, SPIPE_SPAN_OUT, d->copy_engines > 1 ? SPIPE_PRIV_ON_COPY1 : SPIPE_PRIV_ON_COPY0,
            m->out_bytes / (d->d2h_gbps * 1e6), m->copies_out * d->call_copy_us + events);
        spipe_priv_sim_copy(m, step, m->copies_out);
    }
    sim->device_last = sim->num_steps - 1;
    sim->calls += events * 1e-3;
    if (alone && sim->device_first > 0) sim->steps[0].lost = sim->calls;
    if (m->out_bytes > 0.0 && m->drain_gbps > 0.0) {
        spipe_priv_sim_step(sim, SPIPE_SPAN_DRAIN, alone ? SPIPE_PRIV_ON_FILL : SPIPE_PRIV_ON_DRAIN,
                            m->out_bytes / (m->drain_gbps * 1e6), 0.0);
    }
    /* Consecutive stages on the device share a stream. */
    for (s = sim->num_steps - 1; s >= 0; --s) {
        const int on = s + 1 < sim->num_steps && sim->steps[s].kind == SPIPE_SPAN_STAGE &&
                       sim->steps[s + 1].kind == SPIPE_SPAN_STAGE;
        sim->steps[s].run_end = on ? sim->steps[s + 1].run_end : s;
    }
}

/* Adds an actor per slot for the steps first .. last. */
SPIPE_API void spipe_priv_sim_actors(spipe_priv_sim_t *sim, int first, int last) {
    size_t slot;
    for (slot = 0; slot < sim->depth && first <= last; ++slot) {
        spipe_priv_actor_t *a = &sim->actors[sim->num_actors++];
        a->chunk = slot;
        a->slot = slot;
        a->turn = -1e300; /* no step before it */
        a->first = first;
        a->step = first;
        a->last = last;
        if (slot >= sim->num_chunks) a->state = SPIPE_PRIV_OVER;
    }
}

/* Prepares a simulation of m. */
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

/* Returns how many chunks are issued together with this one; *first becomes the first of them. */
SPIPE_API size_t spipe_priv_sim_wave(const spipe_priv_sim_t *sim, size_t chunk, size_t *first) {
    *first = sim->wave == 1 ? chunk : chunk - chunk % sim->wave;
    return sim->wave < sim->num_chunks - *first ? sim->wave : sim->num_chunks - *first;
}

/* Returns when the host has issued a step of a chunk; *seq becomes its position in the order of
   issue. */
SPIPE_API double spipe_priv_sim_issue(const spipe_priv_sim_t *sim, size_t chunk, int step,
                                      size_t *seq) {
    const size_t num = (size_t)sim->device_last + 1 - (size_t)sim->device_first;
    size_t first;
    const size_t together = spipe_priv_sim_wave(sim, chunk, &first);
    *seq = first * num + (size_t)(step - sim->device_first) * together + (chunk - first);
    return (double)first * sim->calls + (double)together * sim->steps[step].calls_before +
           (double)(chunk - first + 1) * sim->steps[step].call;
}

/* Whether chunk - back has finished a step on the device; true if there is no such chunk. */
SPIPE_API int spipe_priv_sim_past(const spipe_priv_sim_t *sim, size_t chunk, size_t back,
                                  int step) {
    const spipe_priv_actor_t *a = &sim->actors[(chunk - back) % sim->depth];
    return chunk < back || a->chunk > chunk - back || (a->chunk == chunk - back && a->step > step);
}

/* Whether an actor's fixed time comes after its bytes. It does for a calling thread that stages: it
   fills the slot, then makes the CUDA calls, of which the first starts the copy in. */
SPIPE_API int spipe_priv_sim_calls_after(const spipe_priv_sim_t *sim, const spipe_priv_actor_t *a) {
    return sim->steps[a->step].kind == SPIPE_SPAN_FILL && sim->steps[a->step].lost > 0.0;
}

/* Whether the slot of a copy in has been filled. */
SPIPE_API int spipe_priv_sim_filled(const spipe_priv_sim_t *sim, const spipe_priv_actor_t *a) {
    const spipe_priv_actor_t *fill = &sim->actors[sim->depth + a->slot];
    return fill->chunk > a->chunk ||
           (fill->chunk == a->chunk && fill->state == SPIPE_PRIV_RUNNING && !fill->in_bytes);
}

/* Whether everything that an actor's step waits for is done: the work before it in its stream, what
   it reads, and whoever used the memory that it writes. Within a slot the order of steps is
   enough. */
SPIPE_API int spipe_priv_sim_may(const spipe_priv_sim_t *sim, const spipe_priv_actor_t *a) {
    const size_t depth = sim->depth;
    const size_t drain = sim->device_first > 0 ? 2 * depth : depth; /* the first drain actor */
    const spipe_priv_phase_t *step = &sim->steps[a->step];
    switch (step->kind) {
    case SPIPE_SPAN_FILL: return spipe_priv_sim_past(sim, a->chunk, depth, sim->device_first);
    case SPIPE_SPAN_DRAIN: return spipe_priv_sim_past(sim, a->chunk, 0, sim->device_last);
    case SPIPE_SPAN_HOST: return 1;
    case SPIPE_SPAN_STAGE:
        return !sim->engines ||
               spipe_priv_sim_past(sim, a->chunk, (size_t)sim->m->kernel_streams, step->run_end);
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

/* Finds the steps that have become ready. */
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
            } else if (a->ready < a->turn + sim->steps[a->step].latency) {
                a->ready = a->turn + sim->steps[a->step].latency;
            }
        }
        if (a->state == SPIPE_PRIV_TIMED && a->ready <= sim->now) a->state = SPIPE_PRIV_READY;
    }
}

/* Sets a new rate. The end is computed again only when the rate changes, to avoid rounding
   errors. */
SPIPE_API void spipe_priv_sim_rate(const spipe_priv_sim_t *sim, spipe_priv_actor_t *a,
                                   double rate) {
    if (rate == a->rate) return;
    a->left -= (sim->now - a->since) * a->rate;
    a->since = sim->now;
    a->rate = rate;
    a->until = rate > 0.0 ? sim->now + a->left / rate : 1e300;
}

/* Starts the step's fixed time, or its bytes or work. */
SPIPE_API void spipe_priv_sim_span(const spipe_priv_sim_t *sim, spipe_priv_actor_t *a) {
    const spipe_priv_phase_t *step = &sim->steps[a->step];
    const double fraction = a->chunk + 1 == sim->num_chunks ? sim->last_fraction : 1.0;
    a->left = a->in_bytes ? step->span * fraction : step->lost;
    a->since = sim->now;
    a->rate = 0.0;
    spipe_priv_sim_rate(sim, a, 1.0);
}

/* For one hardware queue: whether no step issued earlier is still waiting for the same engine. */
SPIPE_API int spipe_priv_sim_is_next(const spipe_priv_sim_t *sim, const spipe_priv_actor_t *a) {
    const int engine = sim->steps[a->step].engine;
    size_t i, seq;
    for (i = 0; i < sim->depth; ++i) {
        const spipe_priv_actor_t *b = &sim->actors[i];
        size_t chunk = b->chunk;
        int s = b->step + (b->state >= SPIPE_PRIV_RUNNING);
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

/* The actor that an engine takes next: the one that was ready first, or of those issued first. */
SPIPE_API spipe_priv_actor_t *spipe_priv_sim_pick(spipe_priv_sim_t *sim, int engine) {
    const int strict = sim->m->device.hardware_queues == 1 && engine <= SPIPE_PRIV_ON_SMS;
    spipe_priv_actor_t *best = NULL;
    int i;
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

/* Kernels share the device in the order in which they started: each gets the share that it can
   fill, or what is left. Returns the share left over. */
SPIPE_API double spipe_priv_sim_share(spipe_priv_sim_t *sim) {
    double left = 1.0;
    int i;
    for (i = 0; i < sim->num_running[SPIPE_PRIV_ON_SMS]; ++i) {
        spipe_priv_actor_t *a = &sim->actors[sim->running[SPIPE_PRIV_ON_SMS][i]];
        const double want = sim->steps[a->step].share;
        const double got = want < left ? want : left;
        spipe_priv_sim_rate(sim, a, got / want);
        left = left - got < 1e-12 ? 0.0 : left - got;
    }
    return left;
}

/* Whether an engine can start another step. */
SPIPE_API int spipe_priv_sim_can_start(spipe_priv_sim_t *sim, int engine) {
    const int running = sim->num_running[engine];
    if (running == 0) return 1;
    if (engine == SPIPE_PRIV_ON_FILL) return running < sim->m->fill_threads;
    if (engine == SPIPE_PRIV_ON_DRAIN) return running < sim->m->drain_threads;
    return engine == SPIPE_PRIV_ON_SMS && sim->m->device.concurrent_kernels &&
           spipe_priv_sim_share(sim) > 0.0;
}

/* Starts whatever can start now, and sets the rates. */
SPIPE_API void spipe_priv_sim_start(spipe_priv_sim_t *sim) {
    int e, both = 1;
    for (e = 0; e < SPIPE_PRIV_NUM_ENGINES; ++e) {
        while (spipe_priv_sim_can_start(sim, e)) {
            spipe_priv_actor_t *a = spipe_priv_sim_pick(sim, e);
            if (!a) break;
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

/* Adds the step that has ended to the timeline. */
SPIPE_API void spipe_priv_sim_record(spipe_priv_sim_t *sim, const spipe_priv_actor_t *a) {
    const spipe_priv_phase_t *step = &sim->steps[a->step];
    spipe_timeline_t *t = sim->timeline;
    spipe_span_t *s;
    if (!t) return;
    if (t->num_spans >= t->capacity) {
        ++t->num_lost;
        return;
    }
    s = &t->spans[t->num_spans++];
    s->kind = step->kind;
    s->stage = step->stage;
    /* A stream per slot; with SPIPE_ENGINES one for each kind of copy, and some for kernels. */
    s->stream = (int)a->slot;
    if (sim->engines && step->engine < SPIPE_PRIV_ON_SMS) s->stream = 0;
    if (sim->engines && step->engine == SPIPE_PRIV_ON_SMS) {
        s->stream = (int)(a->chunk % (size_t)sim->m->kernel_streams);
    }
    s->chunk = a->chunk;
    s->begin_ms = a->begin;
    s->end_ms = sim->now - (spipe_priv_sim_calls_after(sim, a) ? step->lost : 0.0);
}

/* Goes on to the next step, or to the slot's next chunk. */
SPIPE_API void spipe_priv_sim_advance(spipe_priv_sim_t *sim, spipe_priv_actor_t *a) {
    a->state = SPIPE_PRIV_BLOCKED;
    a->turn = sim->now;
    if (++a->step <= a->last) return;
    a->step = a->first;
    a->chunk += sim->depth;
    if (a->chunk >= sim->num_chunks) a->state = SPIPE_PRIV_OVER;
}

/* Whether a kernel's completion is not signalled yet, because the kernel issued right after it is
   not done (late_signal). */
SPIPE_API int spipe_priv_sim_holds(const spipe_priv_sim_t *sim, const spipe_priv_actor_t *a) {
    size_t first, together, seq;
    if (!sim->m->device.late_signal || sim->steps[a->step].kind != SPIPE_SPAN_STAGE) return 0;
    together = spipe_priv_sim_wave(sim, a->chunk, &first);
    return a->chunk + 1 < first + together && !spipe_priv_sim_past(sim, a->chunk + 1, 0, a->step) &&
           spipe_priv_sim_issue(sim, a->chunk + 1, a->step, &seq) <= sim->now;
}

/* Ends an actor's step, and those before it whose completion was held back by it. */
SPIPE_API void spipe_priv_sim_finish(spipe_priv_sim_t *sim, spipe_priv_actor_t *a) {
    const size_t chunk = a->chunk;
    const int step = a->step;
    size_t c = chunk;
    spipe_priv_sim_record(sim, a);
    if (spipe_priv_sim_holds(sim, a)) {
        a->state = SPIPE_PRIV_HELD;
        return;
    }
    spipe_priv_sim_advance(sim, a);
    while (sim->m->device.late_signal && c % sim->wave != 0) {
        a = &sim->actors[--c % sim->depth];
        if (a->state != SPIPE_PRIV_HELD || a->chunk != c || a->step != step) break;
        spipe_priv_sim_advance(sim, a);
    }
}

/* Ends the steps of one engine that end now. */
SPIPE_API void spipe_priv_sim_end(spipe_priv_sim_t *sim, int engine) {
    int i, kept = 0;
    for (i = 0; i < sim->num_running[engine]; ++i) {
        const int which = sim->running[engine][i];
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

/* The time of the next event; 1e300 = there is none. */
SPIPE_API double spipe_priv_sim_next(const spipe_priv_sim_t *sim) {
    double next = 1e300;
    int i;
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
    int e;
    if (ms) *ms = 0.0;
    if (!m || (timeline && timeline->capacity > 0 && !timeline->spans)) {
        return cudaErrorInvalidValue;
    }
    if (m->schedule == SPIPE_ZERO_COPY) return cudaErrorNotSupported;
    if (!spipe_priv_model_check(m)) return cudaErrorInvalidValue;
    if (timeline) {
        timeline->num_spans = 0;
        timeline->num_lost = 0;
        timeline->modelled = 1;
        timeline->wall_ms = 0.0;
        timeline->verdict[0] = 0;
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
        if (sim.actors[e].state != SPIPE_PRIV_OVER) return cudaErrorUnknown; /* a deadlock */
    }
    if (timeline) timeline->wall_ms = sim.now;
    if (ms) *ms = sim.now + m->device.return_us * 1e-3;
    return cudaSuccess;
}

#endif /* STREAMPIPE_MODEL_H */

/*  MIT License: see the end of streampipe.h. Copyright (c) 2026 The streampipe authors. */
