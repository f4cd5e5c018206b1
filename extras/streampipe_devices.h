/*  streampipe_devices.h 0.2.0 -- one run of streampipe.h on several GPUs of one host.

    Whichever GPU has a free slot takes the next chunk, so a slower or busier GPU takes fewer. Any
    GPU can do any chunk of an array; sources are read and sinks are called in order. For C99, C++11
    and CUDA C++. MIT licence. Optional: programs for one GPU need only streampipe.h.

    USE IT   Copy it beside streampipe.h and #include it. There is nothing to define, and nothing
             more to link.

    A COMPLETE PROGRAM       nvcc -O3 -o all all.cu
BEGIN EXAMPLE all.cu
    #include "streampipe_devices.h"

    static __global__ void halve(const float *x, float *y, size_t n) {
        size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[i] * 0.5f;
    }
    SPIPE_MAP_STAGE(halve_stage, halve, float, float)

    int main(void) {
        static float x[1000000], y[1000000];
        for (int i = 0; i < 1000000; ++i) x[i] = (float)i;

        spipe_report_t report;
        spipe_desc_t d = spipe_desc_default();
        d.count = 1000000;
        spipe_add_input (&d, x, sizeof *x);
        spipe_add_output(&d, y, sizeof *y);
        spipe_add_stage (&d, "halve", halve_stage, NULL);
        spipe_devices_all(&d);                            // the only new line
        SPIPE_CHECK_RUN(&d, &report);
        spipe_report_print(&report, stdout);              // and what each GPU did
        return y[999999] == 999999.0f * 0.5f ? 0 : 1;
    }
END EXAMPLE

    RULES
      Stages      One thread per GPU calls the stage functions, with its GPU as the current device;
                  the threads run at the same time. Slot numbers are per GPU. What a stage's user
                  pointer points to must allow that. Several threads of each GPU call host stages at
                  once, in any order of chunks.
      Resident    Each GPU has its own copy of a resident buffer, uploaded or zeroed at the start.
                  One that is downloaded needs spipe_devices_reduce, to combine the copies.
      Ordered     Ordered stages are refused, because chunk k+1 may be on another GPU than chunk k.
                  So are sources with a halo.
      Failures    If a GPU fails, the run fails. The other GPUs complete the chunks that they have
                  begun, as far as sinks in order allow; the report says which GPU failed, at which
                  chunk, and how many chunks are whole.
      Timeline    Only runs on one GPU fill it.
      Resources   For a run on several GPUs desc.resources must come from
                  spipe_devices_resources_create; then nothing is set up or freed for a run. A run
                  takes its memory on all its GPUs at once, or waits without any, so runs never wait
                  for each other's part.
      Memory      All GPUs share the host's memory bandwidth: two that copy both ways can use all of
                  it (docs/SCALE.md). Pin memory with spipe_pin or spipe_pinned_alloc, which pin for
                  all GPUs, or with cudaHostRegister and cudaHostRegisterPortable.

    WORDS IN THE CODE   The team is all GPUs of a run, a member is one of them, with its thread and
    its pipeline. All members take their chunks from one counter.

    CONTENTS (search for the anchor)
      1  >>devices   which GPUs a run may use
*/
#ifndef STREAMPIPE_DEVICES_H
#define STREAMPIPE_DEVICES_H

#include "streampipe.h"
#if SPIPE_VERSION != 200
#error "streampipe_devices.h 0.2.0 needs streampipe.h 0.2.0: copy both from the same release"
#endif

/* ============================================================================================
   >>api    every public type and function
   ============================================================================================ */

/* ---- 1 >>devices --------------------------------------------------------------------------- */
/*  spipe_devices_all, spipe_devices_list -- make runs of this description use all GPUs, or those of
    a list.
    spipe_devices_reduce -- say how the GPUs' copies of a downloaded resident buffer are combined.

    d          in/out  from spipe_desc_default.
    list       in      device numbers; a device listed twice gets two pipelines.
    num        in      1 .. SPIPE_MAX_DEVICES. With 1 the run is an ordinary run on that GPU.
    reduce     in      adds the values of one GPU's buffer (from) to another's (into), both in host
                       memory, in any order of GPUs. An uploaded buffer starts with the same values
                       on every GPU.
    user       in      passed to reduce.
    Returns    0, or -1 on a mistake, which the run then reports in words, so you need not check it.
    Blocks     no.   Threads  one.   Callback  yes.   Capture  yes.   Allocates  nothing. The run
               allocates what spipe_run does on each GPU, and starts a thread for each. */
SPIPE_API int spipe_devices_all(spipe_desc_t *d);
SPIPE_API int spipe_devices_list(spipe_desc_t *d, const int *list, int num);
SPIPE_API int spipe_devices_reduce(spipe_desc_t *d, spipe_reduce_fn reduce, void *user);

/*  spipe_devices_resources_create -- resources on several GPUs, made together: on each GPU what
    spipe_resources_create makes.

    Assign them to desc.resources of runs on all or some of these GPUs (spipe_devices_all, _list),
    and of runs and pipelines on one GPU, which use the part on the current device. All else is as
    with resources of one device. spipe_resources_destroy frees the parts on all GPUs;
    spipe_resources_usage gives the part on the current device.

    r          out     the resources, NULL on error; free them with spipe_resources_destroy.
    list       in      device numbers, each once; NULL for all devices.
    num        in      1 .. SPIPE_MAX_DEVICES; 0 with NULL.
    limits     in      NULL for the default. device_bytes and pinned_bytes are per GPU, threads are
                       for all GPUs together. On a host with several NUMA nodes a process for each
                       node, bound to it (numactl), may be faster.
    failure    out     what is wrong, in words; may be NULL.
    Returns    as spipe_resources_create, for the first GPU on which it fails; then all is freed.
               cudaErrorInvalidValue for a bad list, cudaErrorInvalidDevice for no such device.
    Blocks     for the time of pinning.
    Threads    any.   Callback  no.   Capture  no.
    Allocates  both memories, on each GPU; spipe_resources_destroy frees them. */
SPIPE_API_RESULT cudaError_t spipe_devices_resources_create(spipe_resources_t **r, const int *list,
                                                            int num,
                                                            const spipe_resources_limits_t *limits,
                                                            spipe_failure_t *failure);

/* ============================================================================================
   >>impl   the same, as code. Names beginning spipe_priv_ are not for callers.
   ============================================================================================ */
#if SPIPE_PRIV_CODE

struct spipe_priv_team;

/* A list of chunk indices that grows. */
typedef struct spipe_priv_list {
    size_t *at;
    size_t num, capacity;
} spipe_priv_list_t;

/* The user pointer of a wrapped source, sink or host stage: the member, and the index of the buffer
   or stage. */
typedef struct spipe_priv_part {
    struct spipe_priv_member *member;
    int number;
} spipe_priv_part_t;

/* One GPU of a run. Members not marked "lock" are used by its own thread only. */
typedef struct spipe_priv_member {
    struct spipe_priv_team *team;
    int place, device;
    spipe_desc_t desc;
    spipe_priv_hooks_t hooks;
    spipe_priv_pipeline_t *p;
    spipe_report_t report;
    spipe_priv_list_t chunks; /* lock; that it has taken, in order */
    size_t done;              /* lock; how many of them are whole */
    size_t refused; /* lock; 1 + the chunk that could not be given to its sink; 0 = none */
    int closed;     /* lock; 1 = it gets no more chunks */
    int reading;    /* lock; 1 = it is reading the sources */
    int failed;     /* lock */
    int arrived;    /* lock; its set-up has failed, or knows what memory it wants */
    size_t bytes_in, bytes_out;
    spipe_priv_part_t parts[SPIPE_MAX_BUFFERS], stages[SPIPE_MAX_STAGES];
    void *copies[SPIPE_MAX_BUFFERS]; /* its copies of downloaded resident buffers */
    spipe_resources_t *resources;    /* resources of its device, or NULL */
} spipe_priv_member_t;

/* The chunks of the whole. */
typedef struct spipe_priv_dealt {
    size_t elems;      /* elements per chunk */
    size_t next;       /* the next chunk that no GPU has taken */
    size_t num;        /* SIZE_MAX = not known yet */
    size_t first_lost; /* the first chunk that a GPU took and will not complete; SIZE_MAX = none */
} spipe_priv_dealt_t;

/* Sources, which are read once, and sinks, which are called in order. */
typedef struct spipe_priv_in_turn {
    int has_source;
    int reading;                    /* 1 = a member is reading the sources */
    size_t total;                   /* elements that the sources gave, after they have ended */
    size_t sunk[SPIPE_MAX_BUFFERS]; /* the chunk whose turn it is at each sink */
} spipe_priv_in_turn_t;

/* How many members there are, and how far they have come. */
typedef struct spipe_priv_counts {
    int expected; /* members that have a thread */
    int arrived;  /* members that know what memory they want, or want none */
    int ready;    /* members that are set up, or have failed to be */
} spipe_priv_counts_t;

/* Why members get no more chunks. */
typedef struct spipe_priv_ending {
    int closed;  /* 1 = no more chunks are given out */
    int stopped; /* 1 = the progress callback stopped the run */
    int over;    /* 1 = the run fails */
} spipe_priv_ending_t;

/* The memory of resources, which is taken for all members at once. */
typedef struct spipe_priv_gathering {
    spipe_priv_pipeline_t *parts[SPIPE_MAX_DEVICES]; /* members that want some */
    int num_parts;
    int taking, taken;   /* 1 = a member is taking it for all; 1 = it has */
    cudaError_t without; /* why there was no memory */
    size_t beside;       /* runs that were under way on the same resources */
} spipe_priv_gathering_t;

/* Downloaded resident buffers, combined. */
typedef struct spipe_priv_reduced {
    int any;                     /* 1 = there are some */
    int merged;                  /* 1 = a GPU's values have been added */
    void *at[SPIPE_MAX_BUFFERS]; /* NULL = the buffer is none of these */
} spipe_priv_reduced_t;

/* How the run went. */
typedef struct spipe_priv_outcome {
    double called, began, wall_ms, setup_ms;
    spipe_failure_t failure; /* the first one */
    spipe_failure_t freed;   /* the first failure of freeing, after the work was done */
    void *thrown;            /* a C++ exception of the user's, or NULL */
} spipe_priv_outcome_t;

/* What the GPUs of a run share. Everything that changes during the run is under the lock. */
typedef struct spipe_priv_team {
    spipe_desc_t d;
    spipe_priv_sync_t *sync;
    int num;
    spipe_priv_dealt_t chunks;
    spipe_priv_in_turn_t in_turn;
    spipe_priv_counts_t counts;
    spipe_priv_ending_t ending;
    spipe_priv_gathering_t memory;
    spipe_priv_reduced_t reduced;
    spipe_priv_outcome_t outcome;
    int pinned[SPIPE_MAX_BUFFERS]; /* 1 = the run has pinned this array */
    const char *why_chunk;
    uintptr_t starter;        /* the thread that called spipe_run */
    spipe_priv_visit_t visit; /* of that thread, for stages on all threads */
    spipe_priv_member_t members[SPIPE_MAX_DEVICES];
} spipe_priv_team_t;

/* Appends a chunk; 0 = no memory. */
SPIPE_PRIV_LOCAL int spipe_priv_list_add(spipe_priv_list_t *l, size_t chunk) {
    if (l->num == l->capacity) {
        const size_t capacity = l->capacity > 0 ? 2 * l->capacity : 256;
        size_t *more = (size_t *)realloc((void *)l->at, capacity * sizeof *more);
        if (!more) return 0;
        l->at = more;
        l->capacity = capacity;
    }
    l->at[l->num++] = chunk;
    return 1;
}

/* Keeps the first failure; under the lock. */
SPIPE_PRIV_LOCAL void spipe_priv_team_fail(spipe_priv_team_t *t, int device,
                                           const spipe_failure_t *f) {
    if (t->outcome.failure.error != cudaSuccess) return;
    t->outcome.failure = *f;
    (void)snprintf(t->outcome.failure.message, sizeof t->outcome.failure.message,
                   "device %d: %.300s", device, f->message);
    spipe_priv_make_printable(t->outcome.failure.message); /* it may be cut within a character */
}

/* The run fails: no GPU gets another chunk. Under the lock. */
SPIPE_PRIV_LOCAL void spipe_priv_team_over(spipe_priv_team_t *t, int device,
                                           const spipe_failure_t *f) {
    spipe_priv_team_fail(t, device, f);
    t->ending.closed = 1;
    t->ending.over = 1;
    spipe_priv_wake(t->sync);
}

/* ---- 1 devices: which GPU does which chunk -------------------------------------------------- */
/* The next chunk for a member, or SPIPE_AUTO. Under the lock. */
SPIPE_PRIV_LOCAL size_t spipe_priv_team_deal(spipe_priv_team_t *t, spipe_priv_member_t *m) {
    spipe_failure_t f;
    if (m->closed || t->ending.closed || t->chunks.next >= t->chunks.num) return SPIPE_AUTO;
    if (spipe_priv_list_add(&m->chunks, t->chunks.next)) return t->chunks.next++;
    (void)spipe_priv_refuse(&f, cudaErrorMemoryAllocation, "no memory to note a chunk");
    spipe_priv_team_over(t, m->device, &f);
    return SPIPE_AUTO;
}

/* The sources were read for a member's newest chunk, or were not. A chunk beyond the end is none.
   Under the lock. */
SPIPE_PRIV_LOCAL void spipe_priv_team_sources_read(spipe_priv_team_t *t, spipe_priv_member_t *m,
                                                   int read) {
    spipe_priv_pipeline_t *p = m->p;
    const size_t chunk = m->chunks.at[m->chunks.num - 1];
    const int none = read && spipe_priv_count_of(p, chunk) == 0;
    int i, ended = 0;
    for (i = 0; i < p->request.desc.num_buffers; ++i) ended |= read && p->run.sources[i].ended;
    if (ended) t->chunks.num = chunk + !none;
    if (ended) t->in_turn.total = spipe_priv_total(p);
    if (!read) t->ending.closed = 1; /* whoever read on would leave its elements out */
    if (!read || none) m->closed = 1;
    if (!none) return;
    --m->chunks.num;
    --t->chunks.next;
}

/* Called by a member's pipeline one after the other: the number of its next chunk, or
   SPIPE_AUTO. Where there are sources, only one GPU at a time reads them. */
SPIPE_PRIV_LOCAL size_t spipe_priv_team_next(spipe_priv_pipeline_t *p) {
    spipe_priv_member_t *m = (spipe_priv_member_t *)p->request.desc.hooks->user;
    spipe_priv_team_t *t = m->team;
    size_t chunk;
    if (t->d.hooks->turn) t->d.hooks->turn(m->place, 0);
    spipe_priv_lock(t->sync);
    while (t->in_turn.reading) spipe_priv_wait(t->sync);
    chunk = spipe_priv_team_deal(t, m);
    m->closed = chunk == SPIPE_AUTO;
    m->reading = t->in_turn.has_source && !m->closed;
    t->in_turn.reading = m->reading;
    spipe_priv_wake(t->sync);
    spipe_priv_unlock(t->sync);
    if (chunk == SPIPE_AUTO && t->d.hooks->turn) t->d.hooks->turn(m->place, 1);
    return chunk;
}

/* Called by a member's pipeline when it has read the sources for that chunk, or has given up. */
SPIPE_PRIV_LOCAL void spipe_priv_team_chunk_read(spipe_priv_pipeline_t *p, int read) {
    spipe_priv_member_t *m = (spipe_priv_member_t *)p->request.desc.hooks->user;
    spipe_priv_team_t *t = m->team;
    if (!m->reading) return;
    spipe_priv_lock(t->sync);
    spipe_priv_team_sources_read(t, m, read);
    m->reading = 0;
    t->in_turn.reading = 0;
    spipe_priv_wake(t->sync);
    spipe_priv_unlock(t->sync);
}

/* ---- 1 devices: what must happen in order, or by one GPU at a time ------------------------- */
/* A source in order for one GPU, one at a time: what it throws passes here. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_team_source(spipe_part_t *elements, void *user) {
    const spipe_priv_part_t *part = (const spipe_priv_part_t *)user;
    const spipe_buffer_desc_t *b = &part->member->team->d.buffers[part->number];
    return b->source(elements, b->user);
}

/* A sink for one GPU: waits for the chunk's turn, then calls the user's sink. The pipeline stops if
   the turn cannot come, because no GPU has the chunk whose turn it is. As long as a GPU has it, the
   others wait, even after the run has failed elsewhere: chunks before a failure are completed. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_team_sink(const spipe_part_t *elements, void *user) {
    const spipe_priv_part_t *part = (const spipe_priv_part_t *)user;
    spipe_priv_team_t *t = part->member->team;
    const spipe_buffer_desc_t *b = &t->d.buffers[part->number];
    size_t *turn = &t->in_turn.sunk[part->number];
    const size_t chunk = elements->first / t->chunks.elems;
    cudaError_t e;
    int mine;
    spipe_priv_lock(t->sync);
    while (*turn != chunk && *turn < t->chunks.first_lost) spipe_priv_wait(t->sync);
    mine = *turn == chunk;
    if (!mine) part->member->refused = chunk + 1;
    spipe_priv_unlock(t->sync);
    if (!mine) return SPIPE_STOPPED;
    SPIPE_PRIV_CALL(t->sync, &t->outcome.thrown, NULL, e, b->sink(elements, b->user),
                    cudaErrorUnknown);
    spipe_priv_lock(t->sync);
    if (e == cudaSuccess) *turn = chunk + 1;
    spipe_priv_wake(t->sync);
    spipe_priv_unlock(t->sync);
    return e;
}

/* Why a source or sink failed: asks the user's function. */
SPIPE_PRIV_LOCAL const char *spipe_priv_team_why(void *user) {
    const spipe_priv_part_t *part = (const spipe_priv_part_t *)user;
    const spipe_buffer_desc_t *b = &part->member->team->d.buffers[part->number];
    return b->why(b->user);
}

/* Whether a failure only says that a chunk could not be given to its sink (spipe_priv_team_sink).
   A stage may return the same error, so the chunk tells. Under the lock. */
SPIPE_PRIV_LOCAL int spipe_priv_is_interruption(const spipe_priv_member_t *m,
                                                const spipe_failure_t *f) {
    return m->refused > 0 && f->stage < 0 && f->chunk == m->refused - 1;
}

/* Ends the waiting of a user's function when a GPU has failed. What this GPU failed of is the
   cause, and is noted first: the function that was told to stop may now fail on another GPU. */
SPIPE_PRIV_LOCAL void spipe_priv_team_stop(void *user) {
    const spipe_priv_part_t *part = (const spipe_priv_part_t *)user;
    spipe_priv_member_t *m = part->member;
    spipe_priv_team_t *t = m->team;
    const spipe_buffer_desc_t *b = &t->d.buffers[part->number];
    spipe_failure_t f;
    spipe_priv_lock(m->p->sync);
    f = m->p->failure;
    spipe_priv_unlock(m->p->sync);
    spipe_priv_lock(t->sync);
    if (f.error != cudaSuccess && !spipe_priv_is_interruption(m, &f))
        spipe_priv_team_fail(t, m->device, &f);
    t->ending.closed = 1;
    spipe_priv_unlock(t->sync);
    b->stop(b->user);
}

/* Positioned sources and sinks for one GPU; all GPUs call the user's function as they come. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_team_source_at(spipe_part_t *elements, void *user) {
    const spipe_priv_part_t *part = (const spipe_priv_part_t *)user;
    spipe_priv_team_t *t = part->member->team;
    const spipe_buffer_desc_t *b = &t->d.buffers[part->number];
    cudaError_t e;
    SPIPE_PRIV_CALL(t->sync, &t->outcome.thrown, NULL, e, b->source(elements, b->user),
                    cudaErrorUnknown);
    return e;
}

SPIPE_PRIV_LOCAL cudaError_t spipe_priv_team_work(const spipe_part_t *elements, const void *tickets,
                                                  void *user) {
    const spipe_priv_part_t *part = (const spipe_priv_part_t *)user;
    spipe_priv_team_t *t = part->member->team;
    const spipe_buffer_desc_t *b = &t->d.buffers[part->number];
    cudaError_t e;
    SPIPE_PRIV_CALL(t->sync, &t->outcome.thrown, NULL, e, b->work(elements, tickets, b->user),
                    cudaErrorUnknown);
    return e;
}

SPIPE_PRIV_LOCAL cudaError_t spipe_priv_team_sink_at(const spipe_part_t *elements, void *user) {
    const spipe_priv_part_t *part = (const spipe_priv_part_t *)user;
    spipe_priv_team_t *t = part->member->team;
    const spipe_buffer_desc_t *b = &t->d.buffers[part->number];
    cudaError_t e;
    SPIPE_PRIV_CALL(t->sync, &t->outcome.thrown, NULL, e, b->sink(elements, b->user),
                    cudaErrorUnknown);
    return e;
}

/* A host stage for one GPU; all GPUs call the user's function as they come. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_team_host_stage(const spipe_chunk_t *c, void *user) {
    const spipe_priv_part_t *part = (const spipe_priv_part_t *)user;
    spipe_priv_team_t *t = part->member->team;
    const spipe_stage_desc_t *s = &t->d.stages[part->number];
    cudaError_t e;
    SPIPE_PRIV_CALL(t->sync, &t->outcome.thrown, c->note, e, s->fn(c, s->user), cudaErrorUnknown);
    return e;
}

/* The progress callback of each GPU: reports the progress of all to the user's callback, under the
   lock, so that it is called by one thread at a time. */
SPIPE_PRIV_LOCAL int spipe_priv_team_progress(const spipe_progress_t *own, void *user) {
    spipe_priv_member_t *m = (spipe_priv_member_t *)user;
    spipe_priv_team_t *t = m->team;
    spipe_progress_t all = *own;
    int i, stop;
    spipe_priv_lock(t->sync);
    m->done = own->chunks_done;
    all.chunks_done = 0;
    for (i = 0; i < t->num; ++i) all.chunks_done += t->members[i].done;
    all.elements_done = all.chunks_done * t->chunks.elems;
    if (all.total == 0) all.total = t->in_turn.total; /* once the sources have ended */
    if (all.total > 0 && all.elements_done > all.total) all.elements_done = all.total;
    all.seconds = spipe_priv_clock() - t->outcome.began;
    SPIPE_PRIV_CALL(NULL, &t->outcome.thrown, NULL, stop, t->d.progress(&all, t->d.progress_user),
                    1);
    t->ending.closed |= stop != 0;
    spipe_priv_unlock(t->sync);
    return stop;
}

/* ---- 1 devices: one GPU's thread ----------------------------------------------------------- */
/* Adds a member's resident buffers to those merged so far. Under the lock. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_team_merge(spipe_priv_team_t *t, spipe_priv_member_t *m) {
    const spipe_devices_t *d = &t->d.devices;
    cudaError_t e;
    int i;
    for (i = 0; i < t->d.num_buffers; ++i) {
        const size_t bytes = t->d.buffers[i].elem_bytes;
        if (!t->reduced.at[i]) continue;
        if (t->reduced.merged) {
            SPIPE_PRIV_CALL(NULL, &t->outcome.thrown, NULL, e,
                            d->reduce(t->reduced.at[i], m->copies[i], bytes, d->user),
                            cudaErrorUnknown);
            SPIPE_TRY(e);
        } else {
            memcpy(t->reduced.at[i], m->copies[i], bytes);
        }
    }
    t->reduced.merged = 1;
    return cudaSuccess;
}

/* Whether a chunk is not whole: a slot still has it. */
SPIPE_PRIV_LOCAL int spipe_priv_slot_has(const spipe_priv_pipeline_t *p, size_t chunk) {
    size_t k;
    for (k = 0; k < p->plan.depth; ++k) {
        const spipe_priv_slot_t *s = &p->memory.slots[k];
        if (s->state != SPIPE_PRIV_EMPTY && s->chunk == chunk) return 1;
    }
    return 0;
}

/* Counts the chunks of a member that are whole, and notes the first that is not. With host work
   they are those that no slot has any more, else the first `completed`. Under the lock. */
SPIPE_PRIV_LOCAL void spipe_priv_member_count(spipe_priv_team_t *t, spipe_priv_member_t *m,
                                              size_t completed) {
    const int by_slots = m->p && m->p->route.host_work;
    size_t k;
    m->done = 0;
    for (k = 0; k < m->chunks.num; ++k) {
        const size_t chunk = m->chunks.at[k];
        if (completed == m->chunks.num ||
            (by_slots ? !spipe_priv_slot_has(m->p, chunk) : k < completed)) {
            ++m->done;
        } else if (chunk < t->chunks.first_lost) {
            t->chunks.first_lost = chunk;
        }
    }
    spipe_priv_wake(t->sync);
}

/* A GPU has failed, was stopped, or could not give a chunk to its sink: the run fails. */
SPIPE_PRIV_LOCAL void spipe_priv_member_failed(spipe_priv_member_t *m, const spipe_failure_t *f,
                                               size_t completed) {
    spipe_priv_team_t *t = m->team;
    const int asked = m->p && m->p->run.stop_asked; /* by the progress callback */
    spipe_priv_lock(t->sync);
    m->failed =
        !asked && !t->ending.over && !(m->p && spipe_priv_is_interruption(m, &m->p->failure));
    t->ending.stopped |= asked && !t->ending.over;
    spipe_priv_team_over(t, m->device, f);
    spipe_priv_member_count(t, m, completed);
    spipe_priv_unlock(t->sync);
    if (t->d.hooks->turn) t->d.hooks->turn(m->place, 1);
}

/* A member has done all its chunks. */
SPIPE_PRIV_LOCAL void spipe_priv_member_ended(spipe_priv_member_t *m) {
    spipe_priv_team_t *t = m->team;
    cudaError_t e = cudaSuccess;
    spipe_failure_t f;
    spipe_priv_lock(t->sync);
    if (t->reduced.any && m->chunks.num > 0) e = spipe_priv_team_merge(t, m);
    if (e != cudaSuccess) {
        (void)spipe_priv_refuse(&f, e, "reducing the resident buffers failed: %s",
                                cudaGetErrorString(e));
        spipe_priv_team_over(t, m->device, &f);
    }
    spipe_priv_member_count(t, m, m->chunks.num);
    spipe_priv_unlock(t->sync);
}

/* The last GPU to arrive takes the memory for all. If there is none, the whole run fails. Called,
   and returns, with the lock held. */
SPIPE_PRIV_LOCAL void spipe_priv_team_take(spipe_priv_team_t *t, spipe_priv_take_fn take) {
    cudaError_t e;
    int i;
    t->memory.taking = 1;
    spipe_priv_unlock(t->sync);
    e = take(t->memory.parts, (size_t)t->memory.num_parts);
    spipe_priv_lock(t->sync);
    t->memory.taken = 1;
    t->memory.without = e;
    for (i = 0; i < t->memory.num_parts && e != cudaSuccess; ++i) {
        const spipe_failure_t *why = &t->memory.parts[i]->failure;
        spipe_priv_team_over(t, t->memory.parts[i]->request.device, why);
    }
    spipe_priv_wake(t->sync);
}

/* Called when a GPU's part of the run knows what memory it wants from the resources. When all parts
   do, or have failed, the memory is taken for all of them or for none: two runs that each had some,
   and waited for what the other has, would wait for ever. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_team_gather(spipe_priv_pipeline_t *p,
                                                    spipe_priv_take_fn take) {
    spipe_priv_member_t *m = (spipe_priv_member_t *)p->request.desc.hooks->user;
    spipe_priv_team_t *t = m->team;
    cudaError_t e;
    p->lent.starter = p->lent.thread != t->starter ? t->starter : 0;
    spipe_priv_lock(t->sync);
    t->memory.parts[t->memory.num_parts++] = p;
    ++t->counts.arrived;
    m->arrived = 1;
    spipe_priv_wake(t->sync);
    while (!t->memory.taken) {
        if (t->counts.arrived < t->counts.expected || t->memory.taking)
            spipe_priv_wait(t->sync);
        else
            spipe_priv_team_take(t, take);
    }
    e = t->memory.without;
    spipe_priv_unlock(t->sync);
    return e;
}

/* Waits until all GPUs are set up, so that one that takes longer to set up gets its share too. */
SPIPE_PRIV_LOCAL void spipe_priv_team_begin(spipe_priv_member_t *m) {
    spipe_priv_team_t *t = m->team;
    spipe_priv_lock(t->sync);
    ++t->counts.ready;
    t->counts.arrived += !m->arrived; /* it wants no memory */
    m->arrived = 1;
    if (t->counts.ready >= t->counts.expected) t->outcome.began = spipe_priv_clock();
    spipe_priv_wake(t->sync);
    while (t->counts.ready < t->counts.expected) spipe_priv_wait(t->sync);
    spipe_priv_unlock(t->sync);
}

/* Keeps the first error of freeing. This GPU's results are complete and others may still be
   running, so the run continues and returns the error at its end. */
SPIPE_PRIV_LOCAL void spipe_priv_team_freed(spipe_priv_team_t *t, int device, cudaError_t e,
                                            int ran) {
    if (e == cudaSuccess) return;
    (void)cudaGetLastError();
    spipe_priv_lock(t->sync);
    if (ran && t->outcome.freed.error == cudaSuccess) {
        (void)spipe_priv_refuse(&t->outcome.freed, e, "device %d: freeing after the run failed: %s",
                                device, cudaGetErrorString(e));
    }
    spipe_priv_unlock(t->sync);
}

/* Throws what a user's function threw on this GPU, else returns the run's result. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_member_throws(spipe_priv_member_t *m, cudaError_t e) {
    spipe_priv_rethrow(&m->p->thrown);
    return e;
}

/* Creates a member's pipeline and runs it. */
SPIPE_PRIV_LOCAL void spipe_priv_member_run(spipe_priv_member_t *m) {
    spipe_failure_t failure;
    cudaError_t e = cudaErrorMemoryAllocation;
    spipe_priv_failure_clear(&failure);
    m->p = (spipe_priv_pipeline_t *)malloc(sizeof *m->p);
    if (m->p) {
        e = spipe_priv_create(m->p, &m->desc, SPIPE_PRIV_ONE_RUN, &failure);
        m->p->visit.mode = m->team->visit.mode; /* for stages, as on the thread that called */
        m->p->visit.found = cudaPeekAtLastError();
    } else {
        (void)spipe_priv_refuse(&failure, e, "no memory for the pipeline");
    }
    spipe_priv_team_begin(m);
    if (e != cudaSuccess) {
        spipe_priv_member_failed(m, &failure, 0);
    } else {
        e = spipe_priv_run_plan(m->p);
        m->bytes_in = m->p->run.moved[0];
        m->bytes_out = m->p->run.moved[1];
        if (e == cudaSuccess)
            spipe_priv_member_ended(m);
        else
            spipe_priv_member_failed(m, &m->p->failure, m->p->run.at.completed);
        spipe_priv_report(m->p, &m->report);
        SPIPE_PRIV_CALL(m->team->sync, &m->team->outcome.thrown, NULL, e,
                        spipe_priv_member_throws(m, e), e);
        spipe_priv_team_freed(m->team, m->device, spipe_priv_free(m->p), e == cudaSuccess);
    }
    free(m->p);
    m->p = NULL;
}

/* Runs a member on the calling thread, with its GPU as the current device. */
SPIPE_PRIV_LOCAL void spipe_priv_member_main(void *arg) {
    spipe_priv_member_t *m = (spipe_priv_member_t *)arg;
    int before = m->device;
    cudaError_t e;
    (void)cudaGetDevice(&before);
    e = cudaSetDevice(m->device);
    if (e == cudaSuccess) {
        spipe_priv_member_run(m);
    } else {
        spipe_failure_t failure;
        (void)cudaGetLastError();
        (void)spipe_priv_refuse(&failure, e, "the device cannot be used: %s",
                                cudaGetErrorString(e));
        spipe_priv_team_begin(m);
        spipe_priv_member_failed(m, &failure, 0);
    }
    (void)cudaSetDevice(before);
}

/* The same as a thread's function. */
SPIPE_PRIV_LOCAL void *spipe_priv_member_thread(void *arg) {
    spipe_priv_model_issuer();
    (void)spipe_priv_own_calls();
    spipe_priv_model_until(((spipe_priv_member_t *)arg)->team->outcome.called);
    spipe_priv_member_main(arg);
    return NULL;
}

/* ---- 1 devices: before and after ----------------------------------------------------------- */
/* Refuses descriptions that several GPUs cannot run. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_team_check(spipe_priv_team_t *t, spipe_failure_t *f) {
    const spipe_desc_t *d = &t->d;
    cudaError_t e;
    int i;
    int there = 0;
    SPIPE_TRY(spipe_desc_check(d, f));
    for (i = 0; i < d->num_stages; ++i) {
        SPIPE_PRIV_REFUSE_IF(
            d->stages[i].ordered,
            "stage '%s' is ordered, but several GPUs process chunks in no particular order; remove "
            "spipe_stage_ordered, or list one GPU",
            d->stages[i].name);
    }
    for (i = 0; i < d->num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &d->buffers[i];
        SPIPE_PRIV_REFUSE_IF(
            spipe_priv_in_order(b, 0) && (b->halo_before || b->halo_after),
            "buffer %d (source): with several GPUs a source cannot have a halo, because its "
            "neighbours may be on another GPU; read into an array first, or list one GPU",
            i);
        SPIPE_PRIV_REFUSE_IF(
            spipe_priv_kind(b->kind)->once && (b->resident & SPIPE_DOWNLOAD) && !d->devices.reduce,
            "buffer %d (resident) is downloaded, and every GPU has its own copy; say with "
            "spipe_devices_reduce how to combine them",
            i);
    }
    e = cudaGetDeviceCount(&there);
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        return spipe_priv_refuse(f, e, "the devices cannot be counted: %s", cudaGetErrorString(e));
    }
    for (i = 0; i < t->num; ++i) {
        if (t->members[i].device >= 0 && t->members[i].device < there) continue;
        return spipe_priv_refuse(f, cudaErrorInvalidDevice, "there is no device %d: there are %d",
                                 t->members[i].device, there);
    }
    for (i = 0; i < t->num && d->resources; ++i) {
        spipe_priv_member_t *m = &t->members[i];
        m->resources = spipe_priv_resources_on(d->resources, m->device);
        SPIPE_PRIV_REFUSE_IF(!m->resources,
                             "the resources are not of device %d; make them of all devices of the "
                             "run with spipe_devices_resources_create",
                             m->device);
    }
    return cudaSuccess;
}

/* If the user asked for arrays to be pinned, pins them once for all GPUs; those that cannot be
   pinned are staged. */
SPIPE_PRIV_LOCAL void spipe_priv_team_pin(spipe_priv_team_t *t) {
    int i;
    for (i = 0; i < t->d.num_buffers && t->d.staging == SPIPE_STAGING_REGISTER; ++i) {
        const spipe_buffer_desc_t *b = &t->d.buffers[i];
        int type = SPIPE_PRIV_DEVICE;
        if (!spipe_priv_kind(b->kind)->array || !b->host || t->d.count == 0) continue;
        if (spipe_priv_memory_type(b->host, &type, NULL) != cudaSuccess) continue;
        if (type != SPIPE_PRIV_PAGEABLE) continue;
        t->pinned[i] = spipe_pin(b->host, t->d.count * b->elem_bytes) == cudaSuccess;
        if (!t->pinned[i]) (void)cudaGetLastError();
    }
    if (t->d.staging == SPIPE_STAGING_REGISTER) t->d.staging = SPIPE_STAGING_AUTO;
}

/* Unpins them after all threads have ended. A failure is reported, because memory that stays pinned
   must not be freed. */
SPIPE_PRIV_LOCAL void spipe_priv_team_unpin(spipe_priv_team_t *t) {
    int i;
    for (i = 0; i < t->d.num_buffers; ++i) {
        cudaError_t e;
        if (!t->pinned[i]) continue;
        t->pinned[i] = 0;
        e = spipe_unpin(t->d.buffers[i].host);
        if (e == cudaSuccess) continue;
        (void)cudaGetLastError();
        if (t->outcome.freed.error != cudaSuccess) continue;
        (void)spipe_priv_refuse(&t->outcome.freed, e,
                                "unpinning buffer %d after the run failed: %s", i,
                                cudaGetErrorString(e));
    }
}

/* Writes the plan's choices into the description of every GPU's pipeline. */
SPIPE_PRIV_LOCAL void spipe_priv_team_take_plan(spipe_priv_team_t *t, const spipe_plan_t *plan) {
    const size_t fill = plan->fill_threads, drain = plan->drain_threads;
    const size_t staging = fill > drain ? fill : drain, host = plan->host_threads;
    t->d.chunk = plan->chunk;
    t->chunks.elems = plan->chunk;
    t->d.depth = plan->depth;
    if (t->d.threads == SPIPE_AUTO) t->d.threads = staging > host ? staging : host;
    t->why_chunk = plan->why_chunk;
}

/* With resources: limits the plan to the least memory of any of the GPUs, and sets the number of
   runs beside it. The request is that of the first GPU. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_team_limits(spipe_priv_team_t *t, spipe_priv_request_t *r,
                                                    spipe_failure_t *f) {
    size_t device = SIZE_MAX, pinned = SIZE_MAX, runs = 0;
    int i, k;
    for (i = t->num - 1; i >= 0; --i) {
        size_t listed = 1;
        for (k = 0; k < i; ++k) listed += t->members[k].device == t->members[i].device;
        r->desc = t->d;
        r->device = t->members[i].device;
        r->pin_limit = 0;
        SPIPE_TRY(t->d.resources->shared.provider->facts(r, f));
        if (device > r->device_limit / listed) device = r->device_limit / listed;
        if (pinned > r->pin_limit / listed) pinned = r->pin_limit / listed;
        if (runs < r->runs) runs = r->runs;
    }
    t->memory.beside = runs - 1;
    r->device_limit = device > 0 ? device : 1;
    r->pin_limit = pinned;
    return cudaSuccess;
}

/* Plans for all GPUs at once, as for one pipeline with half of a GPU's share of the elements: that
   gives more chunks, so that the GPUs end at about the same time. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_team_plan(spipe_priv_team_t *t, spipe_failure_t *f) {
    const size_t n = (size_t)t->num;
    spipe_priv_hooks_t shared;
    spipe_priv_request_t r;
    const spipe_priv_setting_t nothing = {0, 0, 0};
    spipe_priv_work_t w;
    spipe_plan_t plan;
    spipe_priv_team_pin(t);
    if (t->d.threads != SPIPE_AUTO && t->d.threads > 0) {
        t->d.threads = t->d.threads > n ? t->d.threads / n : 1;
    }
    if (t->d.schedule == SPIPE_SCHEDULE_AUTO) t->d.schedule = SPIPE_SCHEDULE_ENGINES;
    memset(&r, 0, sizeof r);
    memset(&shared, 0, sizeof shared);
    shared.next_chunk = spipe_priv_team_next;
    r.device = t->members[0].device;
    SPIPE_TRY(spipe_priv_request_begin(&r, &t->d, SPIPE_PRIV_ONE_RUN, f));
    if (t->d.resources) SPIPE_TRY(spipe_priv_team_limits(t, &r, f));
    SPIPE_TRY(spipe_priv_refuse_zero_copy(&r, f));
    r.desc.hooks = &shared;
    if (!spipe_priv_endless(&t->d)) r.desc.count = (t->d.count + 2 * n - 1) / (2 * n);
    r.cpus = spipe_priv_num_cpus() / n;
    w = spipe_priv_request_work(&r);
    spipe_priv_make_plan(&r, &w, &nothing, &plan);
    spipe_priv_explain(&r, &w, &plan);
    spipe_priv_team_take_plan(t, &plan);
    return cudaSuccess;
}

/* Makes a member's description from the user's: sources, sinks, host stages, progress and
   downloaded resident buffers are replaced by the team's. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_member_describe(spipe_priv_team_t *t,
                                                        spipe_priv_member_t *m) {
    int i;
    m->desc = t->d;
    m->desc.timeline = NULL; /* only one run at a time may fill it */
    memset(&m->hooks, 0, sizeof m->hooks);
    m->hooks.next_chunk = spipe_priv_team_next;
    m->hooks.chunk_read = spipe_priv_team_chunk_read;
    m->hooks.user = m;
    if (m->resources) m->hooks.gather = spipe_priv_team_gather;
    m->desc.hooks = &m->hooks;
    if (t->d.progress) m->desc.progress = spipe_priv_team_progress;
    m->desc.progress_user = m;
    for (i = 0; i < t->d.num_stages; ++i) {
        m->stages[i].member = m;
        m->stages[i].number = i;
        if (!t->d.stages[i].host) continue;
        m->desc.stages[i].fn = spipe_priv_team_host_stage;
        m->desc.stages[i].user = &m->stages[i];
    }
    for (i = 0; i < t->d.num_buffers; ++i) {
        spipe_buffer_desc_t *b = &m->desc.buffers[i];
        const int in_order = spipe_priv_kind(b->kind)->in_order;
        m->parts[i].member = m;
        m->parts[i].number = i;
        if (b->source) b->source = in_order ? spipe_priv_team_source : spipe_priv_team_source_at;
        if (b->sink) b->sink = in_order ? spipe_priv_team_sink : spipe_priv_team_sink_at;
        if (b->work) b->work = spipe_priv_team_work;
        if (b->why) b->why = spipe_priv_team_why;
        if (b->stop) b->stop = spipe_priv_team_stop;
        b->on_run = NULL; /* the run is the team's */
        if (spipe_priv_kind(b->kind)->hosted) b->user = &m->parts[i];
        if (!t->reduced.at[i]) continue;
        m->copies[i] = malloc(b->elem_bytes);
        if (!m->copies[i]) return cudaErrorMemoryAllocation;
        memcpy(m->copies[i], b->host, b->elem_bytes);
        b->host = m->copies[i];
    }
    return cudaSuccess;
}

/* Makes all members' descriptions. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_team_describe(spipe_priv_team_t *t) {
    const size_t count = t->d.count;
    int i, k;
    for (i = 0; i < t->d.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &t->d.buffers[i];
        t->in_turn.has_source |= spipe_priv_in_order(b, 0);
        if (!spipe_priv_kind(b->kind)->once || !(b->resident & SPIPE_DOWNLOAD)) continue;
        t->reduced.any = 1;
        t->reduced.at[i] = calloc(1, b->elem_bytes);
        if (!t->reduced.at[i]) return cudaErrorMemoryAllocation;
    }
    t->chunks.num = spipe_priv_endless(&t->d)
                        ? SIZE_MAX
                        : count / t->chunks.elems + (count % t->chunks.elems != 0);
    for (k = 0; k < t->num; ++k) SPIPE_TRY(spipe_priv_member_describe(t, &t->members[k]));
    return cudaSuccess;
}

/* Starts a member's thread, or borrows one from the resources; NULL: there is none. */
SPIPE_PRIV_LOCAL void *spipe_priv_member_start(spipe_priv_member_t *m) {
    spipe_resources_t *r = m->resources;
    if (!r) return spipe_priv_thread_start(spipe_priv_member_thread, m);
    return r->shared.provider->start_thread(r, spipe_priv_member_thread, m);
}

SPIPE_PRIV_LOCAL void spipe_priv_member_join(spipe_priv_member_t *m, void *thread) {
    spipe_resources_t *r = m->resources;
    if (thread && r) r->shared.provider->join_thread(r, thread);
    if (thread && !r) spipe_priv_thread_join(thread);
}

/* Runs every member on a thread of its own; if no thread can be started, the first member on the
   calling thread. */
SPIPE_PRIV_LOCAL void spipe_priv_team_run(spipe_priv_team_t *t) {
    const int cancels = spipe_priv_hold_off_cancel();
    void *threads[SPIPE_MAX_DEVICES] = {NULL};
    int i;
    int started = 0;
    t->outcome.called = spipe_priv_clock();
    t->counts.expected = t->num;
    t->starter = spipe_priv_this_thread();
    for (i = 0; i < t->num; ++i) {
        threads[i] = spipe_priv_member_start(&t->members[i]);
        started += threads[i] != NULL;
    }
    spipe_priv_lock(t->sync);
    t->counts.expected = started > 0 ? started : 1;
    if (t->outcome.began == 0.0 && t->counts.ready >= t->counts.expected)
        t->outcome.began = spipe_priv_clock();
    spipe_priv_wake(t->sync);
    spipe_priv_unlock(t->sync);
    if (started == 0) spipe_priv_member_main(&t->members[0]);
    for (i = 0; i < t->num; ++i) {
        spipe_priv_member_join(&t->members[i], threads[i]);
    }
    spipe_priv_model_joined();
    t->outcome.wall_ms = 1e3 * (spipe_priv_clock() - t->outcome.began);
    t->outcome.setup_ms = 1e3 * (t->outcome.began - t->outcome.called);
    spipe_priv_let_cancel(cancels);
}

/* Combines the members' reports; lost: 1 = the run failed. */
SPIPE_PRIV_LOCAL void spipe_priv_team_report(const spipe_priv_team_t *t, int lost,
                                             spipe_report_t *r) {
    int i;
    int k = 0; /* the first member that was set up */
    for (i = t->num - 1; i >= 0; --i) k = t->members[i].report.depth > 0 ? i : k;
    *r = t->members[k].report;
    r->failure = t->outcome.failure;
    r->total = 0;
    r->count_done = 0;
    r->num_chunks = 0;
    r->chunks_done = 0;
    r->bytes_in = 0;
    r->bytes_out = 0;
    r->device_bytes = 0;
    r->pinned_bytes = 0;
    r->num_devices = t->num;
    r->runs_beside = t->memory.beside;
    r->wall_ms = t->outcome.wall_ms;
    r->setup_ms = t->outcome.setup_ms;
    if (r->depth > 0) r->why_chunk = t->why_chunk;
    if (r->depth > 0) r->why_schedule = "each GPU has its own streams and slots";
    for (i = 0; i < t->num; ++i) {
        const spipe_priv_member_t *m = &t->members[i];
        r->device_numbers[i] = m->device;
        r->device_chunks[i] = m->done;
        r->devices_failed |= m->failed ? SPIPE_BIT(i) : 0;
        r->chunks_done += m->done;
        r->bytes_in += m->bytes_in;
        r->bytes_out += m->bytes_out;
        r->device_bytes += m->report.device_bytes;
        r->pinned_bytes += m->report.pinned_bytes;
        if (m->report.total > r->total) r->total = m->report.total;
        if (m->report.waited_ms > r->waited_ms) r->waited_ms = m->report.waited_ms;
    }
    if (t->in_turn.total > r->total) r->total = t->in_turn.total;
    if (t->chunks.num != SIZE_MAX)
        r->num_chunks = t->chunks.num;
    else if (!lost)
        r->num_chunks = r->chunks_done;
    r->count_done = r->chunks_done * t->chunks.elems;
    if (!lost || (r->total > 0 && r->count_done > r->total)) r->count_done = r->total;
    r->failure.chunks_whole = r->num_chunks;
    if (lost) {
        const size_t next = t->chunks.next, first = t->chunks.first_lost;
        r->failure.chunks_whole = first < next ? first : next;
    }
}

/* Frees the team. */
SPIPE_PRIV_LOCAL void spipe_priv_team_free(spipe_priv_team_t *t) {
    int i, k;
    spipe_priv_team_unpin(t); /* if the run did not begin */
    for (i = 0; i < SPIPE_MAX_BUFFERS; ++i) {
        free(t->reduced.at[i]);
        for (k = 0; k < t->num; ++k) free(t->members[k].copies[i]);
    }
    for (k = 0; k < t->num; ++k) free((void *)t->members[k].chunks.at);
    spipe_priv_sync_destroy(t->sync);
    free(t);
}

/* After all threads have ended: writes the results and the report. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_team_end(spipe_priv_team_t *t, spipe_report_t *r) {
    const int lost = t->ending.over || t->chunks.next < t->chunks.num;
    cudaError_t e = lost ? t->outcome.failure.error : cudaSuccess;
    int i;
    for (i = 0; i < t->d.num_buffers && !lost; ++i) {
        const spipe_buffer_desc_t *b = &t->d.buffers[i];
        /* Without any chunk it keeps its first values: those uploaded, or zeros as in merged. */
        if (!t->reduced.at[i] || (!t->reduced.merged && (b->resident & SPIPE_UPLOAD))) continue;
        memcpy(b->host, t->reduced.at[i], b->elem_bytes);
    }
    spipe_priv_team_report(t, lost, r);
    if (t->ending.stopped) {
        (void)snprintf(r->failure.message, sizeof r->failure.message,
                       "stopped by the progress callback after %zu chunks", r->chunks_done);
    }
    if (!lost && t->outcome.freed.error != cudaSuccess) {
        e = t->outcome.freed.error;
        r->failure = t->outcome.freed;
        r->failure.chunks_whole = r->num_chunks;
    }
    return e;
}

/* A run with one GPU: an ordinary run on it. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_devices_one(const spipe_desc_t *d, int device,
                                                    spipe_report_t *r, spipe_priv_visit_t *visit) {
    spipe_desc_t own = *d;
    int before = device;
    cudaError_t e = cudaGetDevice(&before);
    cudaError_t back;
    memset(&own.devices, 0, sizeof own.devices);
    own.hooks = NULL;
    if (e == cudaSuccess && before != device) e = cudaSetDevice(device);
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        return spipe_priv_refuse(&r->failure, e, "device %d cannot be used: %s", device,
                                 cudaGetErrorString(e));
    }
    e = spipe_priv_run_once(&own, r, visit);
    back = before != device ? cudaSetDevice(before) : cudaSuccess;
    if (e == cudaSuccess && back != cudaSuccess) {
        e = spipe_priv_refuse(&r->failure, back,
                              "after the run device %d cannot be made current again: %s", before,
                              cudaGetErrorString(back));
        r->failure.chunks_whole = r->num_chunks;
    }
    r->num_devices = 1;
    r->device_numbers[0] = device;
    r->device_chunks[0] = r->chunks_done;
    r->devices_failed = r->failure.error != cudaSuccess;
    return e;
}

/* A run with several GPUs: check, plan, run, report. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_devices_many(spipe_priv_team_t *t, spipe_report_t *r) {
    int before = 0;
    cudaError_t e;
    SPIPE_TRY(spipe_priv_team_check(t, &r->failure));
    t->sync = spipe_priv_sync_create();
    spipe_priv_failure_clear(&t->outcome.failure);
    t->chunks.first_lost = SIZE_MAX;
    t->d.count = spipe_priv_desc_count(&t->d);
    e = spipe_priv_use_device(t->members[0].device, &before);
    if (e == cudaSuccess) {
        e = spipe_priv_team_plan(t, &r->failure);
        (void)cudaSetDevice(before);
    }
    if (e == cudaSuccess) {
        e = t->sync ? spipe_priv_team_describe(t) : cudaErrorMemoryAllocation;
    }
    if (e != cudaSuccess) {
        if (r->failure.error != cudaSuccess) return e;
        return spipe_priv_refuse(&r->failure, e, "setting up failed: %s", cudaGetErrorString(e));
    }
    SPIPE_TRY(spipe_priv_tell_begin(&t->d, &r->failure));
    spipe_priv_team_run(t);
    spipe_priv_team_unpin(t);
    e = spipe_priv_team_end(t, r);
    spipe_priv_tell_end(&t->d, t->d.num_buffers, e);
    return e;
}

/* What a run on one GPU does at its beginning for the default stream of its own device, this does
   for that of the caller, whose work may write an array that all GPUs read. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_team_follow_default(const spipe_desc_t *d) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaError_t e;
    int i, reached = 0;
    for (i = 0; i < d->num_buffers && !d->ignore_default_stream; ++i) {
        int type = SPIPE_PRIV_PAGEABLE;
        if (!d->buffers[i].host) continue;
        SPIPE_TRY(spipe_priv_memory_type(d->buffers[i].host, &type, NULL));
        reached |= type != SPIPE_PRIV_PAGEABLE;
    }
    if (!reached) return cudaSuccess;
    e = cudaStreamIsCapturing(0, &status);
    if (e == cudaErrorStreamCaptureImplicit) { /* nothing can be there */
        (void)cudaGetLastError();
        return cudaSuccess;
    }
    if (e != cudaSuccess || status != cudaStreamCaptureStatusNone) return e;
    return cudaStreamSynchronize(0);
}

/* spipe_run calls this for a description with devices. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_devices_run(const spipe_desc_t *d, spipe_report_t *report,
                                                    spipe_priv_visit_t *visit) {
    spipe_priv_team_t *t;
    spipe_report_t own, *r;
    cudaError_t e;
    int i, there = d->devices.num;
    memset(&own, 0, sizeof own);
    r = report ? report : &own;
    *r = own;
    SPIPE_TRY(spipe_desc_check(d, &r->failure));
    t = (spipe_priv_team_t *)calloc(1, sizeof *t);
    if (!t) return spipe_priv_refuse(&r->failure, cudaErrorMemoryAllocation, "no memory");
    if (there == 0 && (e = cudaGetDeviceCount(&there)) != cudaSuccess) {
        (void)cudaGetLastError();
        free(t);
        return spipe_priv_refuse(&r->failure, e, "there is no device to run on: %s",
                                 cudaGetErrorString(e));
    }
    t->d = *d;
    t->num = there > SPIPE_MAX_DEVICES ? SPIPE_MAX_DEVICES : there;
    for (i = 0; i < t->num; ++i) {
        t->members[i].team = t;
        t->members[i].place = i;
        t->members[i].device = d->devices.num > 0 ? d->devices.list[i] : i;
    }
    t->visit = *visit;
    e = spipe_priv_team_follow_default(d);
    if (e != cudaSuccess) {
        (void)spipe_priv_refuse(&r->failure, e, "waiting for the default stream failed: %s",
                                cudaGetErrorString(e));
    } else if (t->num == 1) {
        e = spipe_priv_devices_one(d, t->members[0].device, r, visit);
    } else {
        e = spipe_priv_devices_many(t, r);
        visit->thrown = t->outcome.thrown;
    }
    spipe_priv_team_free(t);
    return e;
}

/* Makes spipe_run use the GPUs of d. */
SPIPE_PRIV_LOCAL const spipe_priv_hooks_t *spipe_priv_devices_hooks(void) {
    static const spipe_priv_hooks_t hooks = {spipe_priv_devices_run, NULL, NULL, NULL, NULL, NULL};
    return &hooks;
}

SPIPE_API int spipe_devices_all(spipe_desc_t *d) {
    if (!d) return -1;
    d->devices.num = 0;
    d->hooks = spipe_priv_devices_hooks();
    return 0;
}

SPIPE_API int spipe_devices_list(spipe_desc_t *d, const int *list, int num) {
    if (!d) return -1;
    if (!list || num < 1 || num > SPIPE_MAX_DEVICES) {
        return spipe_priv_mistake(d, "spipe_devices_list: give a list of 1 to 16 devices");
    }
    memcpy(d->devices.list, list, (size_t)num * sizeof *list);
    d->devices.num = num;
    d->hooks = spipe_priv_devices_hooks();
    return 0;
}

SPIPE_API int spipe_devices_reduce(spipe_desc_t *d, spipe_reduce_fn reduce, void *user) {
    if (!d) return -1;
    if (!reduce) return spipe_priv_mistake(d, "spipe_devices_reduce: the function is NULL");
    d->devices.reduce = reduce;
    d->devices.user = user;
    return 0;
}

/* ---- 1 devices: resources -------------------------------------------------------------------- */
/* Makes the resources of one device; a thread's argument. */
typedef struct spipe_priv_making {
    const spipe_resources_limits_t *limits;
    spipe_resources_t *made;
    spipe_failure_t failure;
    cudaError_t error;
    int device;
} spipe_priv_making_t;

SPIPE_PRIV_LOCAL void spipe_priv_make_resources(spipe_priv_making_t *m) {
    m->error = cudaSetDevice(m->device);
    if (m->error != cudaSuccess) {
        (void)cudaGetLastError();
        (void)spipe_priv_refuse(&m->failure, m->error, "it cannot be used: %s",
                                cudaGetErrorString(m->error));
        return;
    }
    m->error = spipe_resources_create(&m->made, m->limits, &m->failure);
}

SPIPE_PRIV_LOCAL void *spipe_priv_making_thread(void *arg) {
    spipe_priv_making_t *m = (spipe_priv_making_t *)arg;
    (void)spipe_priv_own_calls();
    spipe_priv_make_resources(m);
    return NULL;
}

/* Joins them into a ring with the lock of the first one. No run uses them yet. */
SPIPE_PRIV_LOCAL void spipe_priv_join_resources(spipe_resources_t *first, spipe_resources_t *r) {
    spipe_priv_sync_destroy(r->lending.sync);
    r->lending.sync = first->lending.sync;
    r->others = first->others;
    first->others = r;
}

/* Returns cudaSuccess if every device of the list exists and is listed once. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_check_list(const int *list, int num, spipe_failure_t *f) {
    cudaError_t e;
    int i, k, there = 0;
    SPIPE_PRIV_REFUSE_IF(num < 1 || num > SPIPE_MAX_DEVICES,
                         "resources of %d devices: give a list of 1 to %d, or NULL and 0 for all",
                         num, SPIPE_MAX_DEVICES);
    e = cudaGetDeviceCount(&there);
    if (e != cudaSuccess) return spipe_priv_no_device(f, e);
    for (i = 0; i < num; ++i) {
        if (list[i] < 0 || list[i] >= there) {
            return spipe_priv_refuse(f, cudaErrorInvalidDevice,
                                     "there is no device %d: there are %d", list[i], there);
        }
        for (k = 0; k < i; ++k) {
            SPIPE_PRIV_REFUSE_IF(list[k] == list[i],
                                 "device %d is listed twice; one resources object is enough",
                                 list[i]);
        }
    }
    return cudaSuccess;
}

/* Makes the resources of each device, at the same time. */
SPIPE_PRIV_LOCAL void spipe_priv_make_all(spipe_priv_making_t *all, const int *list, int num,
                                          const spipe_resources_limits_t *limits) {
    void *threads[SPIPE_MAX_DEVICES];
    int i, before = 0;
    (void)cudaGetDevice(&before);
    for (i = 0; i < num; ++i) {
        all[i].device = list[i];
        all[i].limits = limits;
        threads[i] = spipe_priv_thread_start(spipe_priv_making_thread, &all[i]);
    }
    for (i = 0; i < num; ++i) {
        if (threads[i])
            spipe_priv_thread_join(threads[i]);
        else
            spipe_priv_make_resources(&all[i]);
    }
    spipe_priv_model_joined();
    (void)cudaSetDevice(before);
}

SPIPE_API cudaError_t spipe_devices_resources_create(spipe_resources_t **resources, const int *list,
                                                     int num,
                                                     const spipe_resources_limits_t *limits,
                                                     spipe_failure_t *failure) {
    spipe_priv_making_t all[SPIPE_MAX_DEVICES];
    int every[SPIPE_MAX_DEVICES] = {0};
    const cudaError_t found = cudaPeekAtLastError();
    cudaError_t e = cudaSuccess;
    int i, there = 0;
    if (failure) spipe_priv_failure_clear(failure);
    if (!resources) {
        return spipe_priv_refuse(failure, cudaErrorInvalidValue,
                                 "there is no pointer to put the resources into");
    }
    *resources = NULL;
    memset((void *)all, 0, sizeof all);
    if (!list && num == 0) {
        e = cudaGetDeviceCount(&there);
        if (e != cudaSuccess) return spipe_priv_no_device(failure, e);
        num = there < SPIPE_MAX_DEVICES ? there : SPIPE_MAX_DEVICES;
        for (i = 0; i < num; ++i) every[i] = i;
        list = every;
    }
    if (!list) num = 0; /* which is refused */
    SPIPE_TRY(spipe_priv_check_list(list, num, failure));
    spipe_priv_make_all(all, list, num, limits);
    for (i = num - 1; i >= 0; --i) {
        if (all[i].error == cudaSuccess) continue;
        e = spipe_priv_refuse(failure, all[i].error, "device %d: %.300s", list[i],
                              all[i].failure.message);
    }
    for (i = 0; i < num; ++i) {
        if (e != cudaSuccess)
            (void)spipe_resources_destroy(all[i].made, NULL);
        else if (i > 0)
            spipe_priv_join_resources(all[0].made, all[i].made);
    }
    if (e == cudaSuccess) *resources = all[0].made;
    spipe_priv_leave_error(found);
    return e;
}

#endif /* SPIPE_PRIV_CODE */
#endif /* STREAMPIPE_DEVICES_H */

/*  MIT License: see the end of streampipe.h. Copyright (c) 2026 The streampipe authors. */
