/*  streampipe_devices.h 0.1.0 -- one run of streampipe.h on several GPUs of one host.

    The chunks of a run are handed out one by one to whichever GPU has a free slot, so a slower or a
    busier GPU takes fewer. Arrays are read and written where they are, whichever GPU does a chunk;
    sources are read and sinks are called in order. C99, C++11 and CUDA C++ alike. MIT licence.
    Optional: programs for one GPU need streampipe.h alone.

    USE IT   copy it beside streampipe.h and #include it: nothing to define, nothing more to link.

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
      Stages      are called by several threads at once, one for each GPU, which is the current
                  device. Slot numbers are each GPU's own. So what user points to must bear that.
                  Host stages are called by one thread at a time, but not in the order of chunks.
      Resident    buffers are each GPU's own: uploaded to, or zeroed on, all of them. One that is
                  copied out needs spipe_devices_reduce, which makes one result of several.
      Ordered     stages are refused: chunk k+1 may be on another GPU than chunk k. So are sources
                  with a halo.
      Failures    A GPU that fails leaves: its unfinished chunks go to the others, and the report
                  says so. Sources are still read once, sinks get each chunk once, both in order:
                  stages may do one twice. That cannot be where the error ends CUDA's work in this
                  process, where a source or sink itself failed or comes beside buffers to reduce,
                  or where an in/out array may be half written: then the run fails, and says where
                  and what is whole.
      Timeline    is filled where there is one GPU; runs of several are not watched.
      Memory      of the host is shared by all GPUs: two that copy both ways can take all of it
                  (docs/SCALE.md). Pin it with spipe_pin or spipe_pinned_alloc, which pin for all
                  GPUs; with cudaHostRegister take cudaHostRegisterPortable.

    CONTENTS (search for the anchor)
      1  >>devices   which GPUs a run may use
*/
#ifndef STREAMPIPE_DEVICES_H
#define STREAMPIPE_DEVICES_H

#include "streampipe.h"
#if SPIPE_VERSION != 200
#error "extras/streampipe_devices.h 0.2.0 needs streampipe.h 0.2.0: copy both from the same release"
#endif

/* ============================================================================================
   >>api    every public type and function
   ============================================================================================ */

/* ---- 1 >>devices --------------------------------------------------------------------------- */
/*  spipe_devices_all, spipe_devices_list -- spipe_run of this description uses all GPUs, or these.
    spipe_devices_reduce -- how resident buffers that are copied out become one.

    d          in/out  from spipe_desc_default.
    list       in      device numbers; one that is named twice gets two pipelines.
    num        in      1 .. SPIPE_MAX_DEVICES. With one GPU the run is as without devices, there.
    reduce     in      changes into, one GPU's buffer, such that it holds what from, another's, has
                       to add; any order of GPUs must do. Both are in host memory. A buffer that
                       is uploaded starts with the same values on every GPU.
    user       in      handed to reduce.
    Returns    0, or -1 on a mistake, which the run then reports in words. So results need no check.
    Blocks     no.   Threads  one.   Callback  yes.   Capture  yes.   Allocates  nothing. The run
               takes what spipe_run does, on each GPU, and a thread for each. */
SPIPE_API int spipe_devices_all(spipe_desc_t *d);
SPIPE_API int spipe_devices_list(spipe_desc_t *d, const int *list, int num);
SPIPE_API int spipe_devices_reduce(spipe_desc_t *d, spipe_reduce_fn reduce, void *user);

/* ============================================================================================
   >>impl   the same, as code. Names beginning spipe_priv_ are not for callers.
   ============================================================================================ */

struct spipe_priv_team;

/* Numbers of pieces, as many as come. */
typedef struct spipe_priv_list {
    size_t *at, num, room;
} spipe_priv_list_t;

/* What sources gave of a piece that is not whole, for the GPU that will do it. */
typedef struct spipe_priv_given {
    struct spipe_priv_given *next;
    size_t                   piece, count;
    unsigned char           *at[SPIPE_MAX_BUFFERS]; /* each source's elements, in this block */
} spipe_priv_given_t;

/* A buffer as a wrapped source or sink knows it, and a host stage: whose, and its number. */
typedef struct spipe_priv_part {
    struct spipe_priv_member *member;
    int                       number;
} spipe_priv_part_t;

/* One GPU of a run. What is not under the team's lock is its own thread's. */
typedef struct spipe_priv_member {
    struct spipe_priv_team *team;
    int                place, device;
    spipe_desc_t       desc;
    spipe_pipeline_t  *p;
    spipe_report_t     report;
    spipe_priv_list_t  pieces;     /* had in this round, in this order; under the lock */
    size_t             done, told; /* whole in rounds before; in this one; under the lock */
    int                closed, reading, running, failed; /* under the lock */
    int                interrupted; /* it waited for a piece of one that failed; under the lock */
    size_t             bytes_in, bytes_out;
    spipe_priv_given_t *given;     /* of the piece that is read now, or NULL: the sources have it */
    size_t             given_at[SPIPE_MAX_BUFFERS]; /* elements of it that were read */
    spipe_priv_part_t  parts[SPIPE_MAX_BUFFERS], stages[SPIPE_MAX_STAGES];
    void              *copies[SPIPE_MAX_BUFFERS]; /* its resident buffers that are copied out */
} spipe_priv_member_t;

/* What the GPUs of a run share; all that changes is under the lock. */
typedef struct spipe_priv_team {
    spipe_desc_t        d;
    spipe_priv_sync_t  *sync;
    int                 num, num_expected, num_ready, num_running, num_alive;
    size_t              load, next, num_pieces; /* elements of a piece; SIZE_MAX = not known */
    spipe_priv_list_t   returned;   /* pieces of GPUs that failed, or waited for one of those */
    spipe_priv_given_t *given;      /* of those, where there are sources */
    size_t              forgotten;  /* the first one that nobody could note; SIZE_MAX = none */
    size_t              total;      /* elements that sources gave, when they have ended */
    int                 has_source, has_sink, may_retry, reduces;
    int                 closed;     /* no more pieces */
    int                 halted;     /* none in this round: sinks need one first that is back */
    int                 over;       /* a piece is lost: nobody need wait for its turn */
    int                 reading, hosting; /* somebody has a source, a host stage */
    size_t              sunk[SPIPE_MAX_BUFFERS];
    void               *merged[SPIPE_MAX_BUFFERS];
    int                 has_merged, pinned[SPIPE_MAX_BUFFERS];
    double              began, wall_ms, setup_ms;
    const char         *why_chunk, *why_staging;
    spipe_failure_t     failure;    /* the first one */
    spipe_failure_t     freed;      /* of freeing after the run, which does not make it undone */
    spipe_priv_member_t members[SPIPE_MAX_DEVICES];
} spipe_priv_team_t;

SPIPE_API int spipe_priv_list_add(spipe_priv_list_t *l, size_t piece) {
    if (l->num == l->room) {
        const size_t room = l->room > 0 ? 2 * l->room : 256;
        size_t      *more = (size_t *)realloc((void *)l->at, room * sizeof *more);
        if (!more) return 0;
        l->at = more;
        l->room = room;
    }
    l->at[l->num++] = piece;
    return 1;
}
/* Keeps the first failure; under the lock. */
SPIPE_API void spipe_priv_team_fail(spipe_priv_team_t *t, int device, const spipe_failure_t *f) {
    if (t->failure.error != cudaSuccess) return;
    t->failure = *f;
    (void)snprintf(t->failure.message, sizeof t->failure.message, "device %d: %.300s", device,
                   f->message);
}
/* A piece that cannot be noted is lost, and nothing from it on may be called whole. */
SPIPE_API void spipe_priv_team_no_memory(spipe_priv_team_t *t, int device, size_t piece) {
    spipe_failure_t f;
    if (piece < t->forgotten) t->forgotten = piece;
    (void)spipe_priv_refuse(&f, cudaErrorMemoryAllocation, "no memory to keep a chunk for others");
    spipe_priv_team_fail(t, device, &f);
    t->closed = t->over = 1;
    spipe_priv_wake(t->sync);
}

/* ---- 1 devices: what sources gave once, and will not again ---------------------------------- */
/* Under the lock; NULL where it has never been read. */
SPIPE_API spipe_priv_given_t *spipe_priv_given_take(spipe_priv_team_t *t, size_t piece) {
    spipe_priv_given_t **at = &t->given, *g;
    while (*at && (*at)->piece != piece) at = &(*at)->next;
    g = *at;
    if (g) *at = g->next;
    return g;
}
SPIPE_API void spipe_priv_given_put(spipe_priv_team_t *t, spipe_priv_given_t *g) {
    g->next = t->given;
    t->given = g;
}
/* A copy of what lies in the slot of a load; NULL = no memory. */
SPIPE_API spipe_priv_given_t *spipe_priv_given_new(spipe_pipeline_t *p, size_t load) {
    const spipe_priv_slot_t *slot = &p->slots[load % p->desc.depth];
    const size_t             count = spipe_priv_count_of(p, load);
    spipe_priv_given_t      *g;
    size_t                   bytes = sizeof *g;
    int                      i;
    for (i = 0; i < p->desc.num_buffers; ++i) {
        if (p->desc.buffers[i].kind == SPIPE_SOURCE) bytes += count * p->desc.buffers[i].elem_bytes;
    }
    g = (spipe_priv_given_t *)malloc(bytes);
    if (!g) return NULL;
    g->piece = spipe_priv_piece(p, load);
    g->count = count;
    for (bytes = sizeof *g, i = 0; i < p->desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->desc.buffers[i];
        g->at[i] = (unsigned char *)g + bytes;
        if (b->kind != SPIPE_SOURCE) continue;
        memcpy(g->at[i], slot->pin_in[i], count * b->elem_bytes);
        bytes += count * b->elem_bytes;
    }
    return g;
}
/* When a round is over: keeps the pieces that are not whole, which their slots still hold, and says
   how many are whole, for more may be than were counted: slots are filled again only then. */
SPIPE_API size_t spipe_priv_given_keep(spipe_priv_team_t *t, spipe_priv_member_t *m,
                                       size_t completed) {
    size_t k;
    if (!t->has_source || t->over || m->pieces.num == 0) return completed;
    if (completed < m->p->polled_in) completed = m->p->polled_in;
    for (k = completed; k < m->pieces.num; ++k) {
        spipe_priv_given_t *g = spipe_priv_given_new(m->p, k);
        if (g) spipe_priv_given_put(t, g);
        else spipe_priv_team_no_memory(t, m->device, m->pieces.at[k]);
    }
    return completed;
}
/* Gives what another GPU had from the source, or asks the source. */
SPIPE_API cudaError_t spipe_priv_team_source(void *dst, size_t max_count, size_t *count,
                                             void *user) {
    const spipe_priv_part_t   *part = (const spipe_priv_part_t *)user;
    const int                  i = part->number;
    const spipe_buffer_desc_t *b = &part->member->team->d.buffers[i];
    const spipe_priv_given_t  *g = part->member->given;
    size_t                    *at = &part->member->given_at[i];
    if (!g) return b->source(dst, max_count, count, b->user);
    *count = g->count - *at < max_count ? g->count - *at : max_count;
    memcpy(dst, g->at[i] + *at * b->elem_bytes, *count * b->elem_bytes);
    *at += *count;
    return cudaSuccess;
}

/* ---- 1 devices: who does which piece ------------------------------------------------------- */
/* The next piece for a member, or SPIPE_AUTO; under the lock. With sinks each one is greater than
   all before it in this round, so that none waits for what its own GPU has queued behind it. */
SPIPE_API size_t spipe_priv_next_piece(spipe_priv_team_t *t, spipe_priv_member_t *m) {
    size_t piece = SPIPE_AUTO;
    if (m->closed || t->closed || t->halted) return piece;
    if (t->returned.num == 0 && t->next >= t->num_pieces) return piece;
    piece = t->returned.num > 0 ? t->returned.at[--t->returned.num] : t->next++;
    if (!spipe_priv_list_add(&m->pieces, piece)) {
        spipe_priv_team_no_memory(t, m->device, piece);
        return SPIPE_AUTO;
    }
    m->given = spipe_priv_given_take(t, piece);
    memset(m->given_at, 0, sizeof m->given_at);
    return piece;
}
/* The sources of a member's newest piece have been read (1), or were not (2), or that failed (3);
   under the lock. What was not read, or lies beyond the end, was never its own: it goes back. */
SPIPE_API void spipe_priv_has_read(spipe_priv_team_t *t, spipe_priv_member_t *m, int have) {
    spipe_pipeline_t *p = m->p;
    const size_t      piece = m->pieces.at[m->pieces.num - 1];
    const int         none = have == 1 && spipe_priv_count_of(p, p->num_claimed - 1) == 0;
    int               i, ended = 0;
    for (i = 0; i < p->desc.num_buffers; ++i) ended |= have == 1 && p->source_ended[i];
    if (have == 3) t->may_retry = 0; /* a source is not called again after it failed */
    t->closed |= have == 3;
    if (ended) t->num_pieces = piece + !none;
    if (ended) t->total = spipe_priv_total(p);
    if (have == 2 || none) {
        m->closed = 1;
        --m->pieces.num;
    }
    if (none) --t->next;
    if (have == 2 && !spipe_priv_list_add(&t->returned, piece)) { /* and read before any other */
        spipe_priv_team_no_memory(t, m->device, piece);
    }
    if (m->given && have == 2) spipe_priv_given_put(t, m->given);
    else free(m->given);
    m->given = NULL;
}
/* Called by a pipeline in the order of its loads: for the number of the next piece, and (have) when
   its sources need no more reading, which only one GPU does at a time. */
SPIPE_API size_t spipe_priv_hand_out(spipe_pipeline_t *p, int have) {
    spipe_priv_member_t *m = (spipe_priv_member_t *)p->desc.devices.claim_arg;
    spipe_priv_team_t   *t = m->team;
    size_t               piece = SPIPE_AUTO;
    if (have) {
        if (!m->reading) return 0;
        spipe_priv_lock(t->sync);
        spipe_priv_has_read(t, m, have);
        m->reading = t->reading = 0;
    } else {
        if (t->d.devices.queue) t->d.devices.queue(m->place, 0);
        spipe_priv_lock(t->sync);
        while (t->reading) spipe_priv_wait(t->sync);
        piece = spipe_priv_next_piece(t, m);
        m->closed = piece == SPIPE_AUTO;
        m->reading = t->reading = t->has_source && !m->closed;
    }
    spipe_priv_wake(t->sync);
    spipe_priv_unlock(t->sync);
    if (!have && piece == SPIPE_AUTO && t->d.devices.queue) t->d.devices.queue(m->place, 1);
    return piece;
}

/* ---- 1 devices: what must happen in order, or by one at a time ----------------------------- */
/* Whether it is nobody's in this round, because who had it failed or was interrupted. */
SPIPE_API int spipe_priv_is_back(const spipe_priv_team_t *t, size_t piece) {
    size_t k;
    for (k = 0; t->halted && k < t->returned.num; ++k) {
        if (t->returned.at[k] == piece) return 1;
    }
    return 0;
}
/* Waits for the piece's turn. It never comes where a piece before it is lost, and not in this round
   where that whose turn it is came back: then the pipeline stops. As long as somebody has that one
   the turn may come, and is waited for: what one sink was given, another gets in the same round. */
SPIPE_API cudaError_t spipe_priv_team_sink(const void *src, size_t count, size_t first,
                                           void *user) {
    const spipe_priv_part_t   *part = (const spipe_priv_part_t *)user;
    spipe_priv_team_t         *t = part->member->team;
    const spipe_buffer_desc_t *b = &t->d.buffers[part->number];
    size_t                    *turn = &t->sunk[part->number];
    const size_t               piece = first / t->load;
    cudaError_t                e;
    int                        mine;
    spipe_priv_lock(t->sync);
    while (*turn != piece && !t->over && !spipe_priv_is_back(t, *turn)) {
        spipe_priv_wait(t->sync);
    }
    mine = *turn == piece;
    part->member->interrupted |= !mine && !t->over;
    spipe_priv_unlock(t->sync);
    if (!mine) return SPIPE_STOPPED;
    e = b->sink(src, count, first, b->user);
    spipe_priv_lock(t->sync);
    if (e == cudaSuccess) *turn = piece + 1;
    else t->may_retry = 0; /* it is not called twice with one chunk */
    spipe_priv_wake(t->sync);
    spipe_priv_unlock(t->sync);
    return e;
}
SPIPE_API cudaError_t spipe_priv_team_host_stage(const spipe_chunk_t *c, void *user) {
    const spipe_priv_part_t  *part = (const spipe_priv_part_t *)user;
    spipe_priv_team_t        *t = part->member->team;
    const spipe_stage_desc_t *s = &t->d.stages[part->number];
    cudaError_t               e;
    spipe_priv_lock(t->sync);
    while (t->hosting & (1 << part->number)) spipe_priv_wait(t->sync);
    t->hosting |= 1 << part->number;
    spipe_priv_unlock(t->sync);
    e = s->fn(c, s->user);
    spipe_priv_lock(t->sync);
    t->hosting &= ~(1 << part->number);
    spipe_priv_wake(t->sync);
    spipe_priv_unlock(t->sync);
    return e;
}
/* The progress of all, told by whichever GPU has news; under the lock, so one at a time. */
SPIPE_API int spipe_priv_team_progress(const spipe_progress_t *own, void *user) {
    spipe_priv_member_t *m = (spipe_priv_member_t *)user;
    spipe_priv_team_t   *t = m->team;
    spipe_progress_t     all = *own;
    int                  i, stop;
    spipe_priv_lock(t->sync);
    m->told = own->chunks_done;
    for (all.chunks_done = 0, i = 0; i < t->num; ++i) {
        all.chunks_done += t->members[i].done + t->members[i].told;
    }
    all.elements_done = all.chunks_done * t->load;
    if (all.total > 0 && all.elements_done > all.total) all.elements_done = all.total;
    all.seconds = spipe_priv_seconds() - t->began;
    stop = t->d.progress(&all, t->d.progress_user);
    t->closed |= stop != 0;
    spipe_priv_unlock(t->sync);
    return stop;
}

/* ---- 1 devices: one GPU's thread ----------------------------------------------------------- */
/* A round's resident buffers join those of the rounds before; a further round starts again from
   what the user gave, or it would add this one's results once more. Under the lock. */
SPIPE_API cudaError_t spipe_priv_team_merge(spipe_priv_team_t *t, spipe_priv_member_t *m) {
    int i;
    for (i = 0; i < t->d.num_buffers; ++i) {
        const size_t bytes = t->d.buffers[i].elem_bytes;
        if (!t->merged[i]) continue;
        if (!t->has_merged) memcpy(t->merged[i], m->copies[i], bytes);
        else SPIPE_TRY(t->d.devices.reduce(t->merged[i], m->copies[i], bytes, t->d.devices.user));
        memcpy(m->copies[i], t->d.buffers[i].host, bytes);
    }
    t->has_merged = 1;
    return cudaSuccess;
}
/* Whether CUDA works on the current device after an error. */
SPIPE_API int spipe_priv_still_works(void) {
    int i;
    for (i = 0; i < 2; ++i) { /* the first may still bring the error that we know */
        if (cudaDeviceSynchronize() == cudaSuccess) return 1;
        (void)cudaGetLastError();
    }
    return 0;
}
SPIPE_API int spipe_priv_later_first(const void *a, const void *b) {
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x < y) - (x > y);
}
/* A GPU's round is over: its first pieces are whole, the others are for the next round. Where sinks
   have to have them first this one halts, and the next begins, smallest piece first, when all have
   left: who did such a piece now would do it behind its own that wait for it. Under the lock. */
SPIPE_API void spipe_priv_leave_round(spipe_priv_team_t *t, spipe_priv_member_t *m,
                                      size_t completed) {
    size_t k;
    t->num_running -= m->running;
    m->running = 0;
    completed = spipe_priv_given_keep(t, m, completed);
    m->done += completed;
    m->told = 0;
    for (k = completed; k < m->pieces.num; ++k) {
        if (!spipe_priv_list_add(&t->returned, m->pieces.at[k])) {
            spipe_priv_team_no_memory(t, m->device, m->pieces.at[k]);
        }
    }
    t->halted |= t->has_sink && completed < m->pieces.num;
    m->pieces.num = 0;
    if (t->halted && t->num_running == 0) {
        t->halted = 0;
        if (t->returned.num > 1) {
            qsort((void *)t->returned.at, t->returned.num, sizeof *t->returned.at,
                  spipe_priv_later_first);
        }
    }
    spipe_priv_wake(t->sync);
}
/* A GPU leaves. Its unfinished pieces, or all of them where its resident buffers held what they
   gave, go to the others if that is possible. */
SPIPE_API void spipe_priv_member_failed(spipe_priv_member_t *m, const spipe_failure_t *f,
                                        size_t completed) {
    spipe_priv_team_t *t = m->team;
    const int          works = f->error != SPIPE_STOPPED && spipe_priv_still_works();
    int                began;
    spipe_priv_lock(t->sync);
    began = m->pieces.num > 0;
    m->failed = !t->over && f->error != SPIPE_STOPPED; /* or it was told to stop */
    spipe_priv_team_fail(t, m->device, f);
    --t->num_alive;
    if (!works || t->num_alive == 0 || (began && !t->may_retry)) t->closed = t->over = 1;
    spipe_priv_leave_round(t, m, t->reduces ? 0 : completed);
    spipe_priv_unlock(t->sync);
    if (t->d.devices.queue) t->d.devices.queue(m->place, 1);
}
/* Whether there is a piece that nobody has; under the lock. */
SPIPE_API int spipe_priv_team_has_work(const spipe_priv_team_t *t) {
    return t->returned.num > 0 || t->next < t->num_pieces;
}
/* Whether a round ended well, or because it waited for a piece that is back: that is no failure. */
SPIPE_API int spipe_priv_member_goes_on(spipe_priv_member_t *m, cudaError_t e) {
    spipe_priv_team_t *t = m->team;
    int                goes_on;
    spipe_priv_lock(t->sync);
    goes_on = e == cudaSuccess || (e == SPIPE_STOPPED && m->interrupted && !t->closed);
    spipe_priv_unlock(t->sync);
    return goes_on;
}
/* After such a round; waits until there are pieces of another GPU to do (1) or all is done. */
SPIPE_API int spipe_priv_member_next_round(spipe_priv_member_t *m, size_t completed) {
    spipe_priv_team_t *t = m->team;
    cudaError_t        e = cudaSuccess;
    int                again;
    spipe_priv_lock(t->sync);
    if (!m->interrupted) completed = m->pieces.num;
    if (t->reduces && m->pieces.num > 0) e = spipe_priv_team_merge(t, m);
    if (e != cudaSuccess) {
        spipe_failure_t f;
        (void)spipe_priv_refuse(&f, e, "reducing the resident buffers failed: %s",
                                cudaGetErrorString(e));
        spipe_priv_team_fail(t, m->device, &f);
        t->closed = t->over = 1;
    }
    spipe_priv_leave_round(t, m, completed);
    while (!t->closed && (t->halted || !spipe_priv_team_has_work(t)) && t->num_running > 0) {
        spipe_priv_wait(t->sync);
    }
    again = !t->closed && spipe_priv_team_has_work(t);
    t->num_running += again;
    m->running = again;
    m->closed = !again;
    m->interrupted = 0;
    spipe_priv_unlock(t->sync);
    return again;
}
/* All GPUs begin together, so that one that is set up late gets its share, too. */
SPIPE_API void spipe_priv_team_begin(spipe_priv_member_t *m, int running) {
    spipe_priv_team_t *t = m->team;
    spipe_priv_lock(t->sync);
    m->running = running;
    t->num_running += running;
    ++t->num_ready;
    if (t->num_ready >= t->num_expected) t->began = spipe_priv_seconds();
    spipe_priv_wake(t->sync);
    while (t->num_ready < t->num_expected) spipe_priv_wait(t->sync);
    spipe_priv_unlock(t->sync);
}
/* Keeps the first error of freeing. Others may still be running, and what this GPU did is whole: so
   the run goes on, and the error comes back in the end. */
SPIPE_API void spipe_priv_team_freed(spipe_priv_team_t *t, int device, cudaError_t e, int ran) {
    if (e == cudaSuccess) return;
    (void)cudaGetLastError();
    spipe_priv_lock(t->sync);
    if (ran && t->freed.error == cudaSuccess) {
        (void)spipe_priv_refuse(&t->freed, e, "device %d: freeing after the run failed: %s", device,
                                cudaGetErrorString(e));
    }
    spipe_priv_unlock(t->sync);
}
SPIPE_API void spipe_priv_member_run(spipe_priv_member_t *m) {
    spipe_failure_t failure;
    cudaError_t     e = cudaErrorMemoryAllocation;
    int             again = 1;
    spipe_priv_failure_clear(&failure);
    m->p = (spipe_pipeline_t *)malloc(sizeof *m->p);
    if (m->p) e = spipe_priv_create(m->p, &m->desc, 1, &failure);
    else (void)spipe_priv_refuse(&failure, e, "no memory for the pipeline");
    spipe_priv_team_begin(m, e == cudaSuccess);
    if (e != cudaSuccess) {
        spipe_priv_member_failed(m, &failure, 0);
    } else {
        while (again) {
            e = spipe_priv_run(m->p);
            m->bytes_in += m->p->moved[0];
            m->bytes_out += m->p->moved[1];
            again = spipe_priv_member_goes_on(m, e);
            if (again) e = cudaSuccess;
            else spipe_priv_member_failed(m, &m->p->failure, m->p->completed);
            again = again && spipe_priv_member_next_round(m, m->p->completed);
        }
        spipe_priv_report(m->p, &m->report);
        spipe_priv_team_freed(m->team, m->device, spipe_priv_free(m->p), e == cudaSuccess);
    }
    free(m->p);
    m->p = NULL;
}
SPIPE_API void spipe_priv_member_main(void *arg) {
    spipe_priv_member_t *m = (spipe_priv_member_t *)arg;
    int                  before = m->device;
    cudaError_t          e;
    (void)cudaGetDevice(&before);
    e = cudaSetDevice(m->device);
    if (e == cudaSuccess) {
        spipe_priv_member_run(m);
    } else {
        spipe_failure_t failure;
        (void)cudaGetLastError();
        (void)spipe_priv_refuse(&failure, e, "the device cannot be used: %s",
                                cudaGetErrorString(e));
        spipe_priv_team_begin(m, 0);
        spipe_priv_member_failed(m, &failure, 0);
    }
    (void)cudaSetDevice(before);
}
/* The same on a thread of its own, which stays near its GPU. */
SPIPE_API void *spipe_priv_member_thread(void *arg) {
    spipe_priv_stay_on_node(spipe_priv_numa_node(((spipe_priv_member_t *)arg)->device));
    spipe_priv_member_main(arg);
    return NULL;
}

/* ---- 1 devices: before and after ----------------------------------------------------------- */
SPIPE_API cudaError_t spipe_priv_team_check(spipe_priv_team_t *t, spipe_failure_t *f) {
    const spipe_desc_t *d = &t->d;
    cudaError_t         e;
    int                 i, there = 0;
    SPIPE_TRY(spipe_desc_check(d, f));
    for (i = 0; i < d->num_stages; ++i) {
        SPIPE_PRIV_REFUSE_IF(d->stages[i].ordered, "stage '%s' is ordered, and several GPUs have "
            "no order between them; leave spipe_stage_ordered out, or name one GPU",
            d->stages[i].name);
    }
    for (i = 0; i < d->num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &d->buffers[i];
        SPIPE_PRIV_REFUSE_IF(b->kind == SPIPE_SOURCE && (b->halo_before || b->halo_after),
            "buffer %d (source): with several GPUs a source cannot have a halo: the neighbours are "
            "on another GPU; read into an array first, or name one GPU", i);
        SPIPE_PRIV_REFUSE_IF(b->kind == SPIPE_RESIDENT && (b->resident & SPIPE_DOWNLOAD) &&
                             !d->devices.reduce,
            "buffer %d (resident): it is copied out, and every GPU has one of its own; say with "
            "spipe_devices_reduce how they become one", i);
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
    return cudaSuccess;
}
/* Pins arrays once for all GPUs where that is asked for; where it is refused they are staged. */
SPIPE_API void spipe_priv_team_pin(spipe_priv_team_t *t) {
    int i;
    for (i = 0; i < t->d.num_buffers && t->d.staging == SPIPE_STAGING_REGISTER; ++i) {
        const spipe_buffer_desc_t *b = &t->d.buffers[i];
        int                        type = SPIPE_PRIV_DEVICE;
        if (!spipe_priv_is_array(b) || !b->host || t->d.count == 0) continue;
        if (spipe_priv_memory_type(b->host, &type, NULL) != cudaSuccess) continue;
        if (type != SPIPE_PRIV_PAGEABLE) continue;
        t->pinned[i] = spipe_pin(b->host, t->d.count * b->elem_bytes) == cudaSuccess;
        if (!t->pinned[i]) (void)cudaGetLastError();
    }
    if (t->d.staging == SPIPE_STAGING_REGISTER) t->d.staging = SPIPE_STAGING_COPY;
}
/* After all threads. What stays pinned must be known to whoever frees it. */
SPIPE_API void spipe_priv_team_unpin(spipe_priv_team_t *t) {
    int i;
    for (i = 0; i < t->d.num_buffers; ++i) {
        cudaError_t e;
        if (!t->pinned[i]) continue;
        t->pinned[i] = 0;
        e = spipe_unpin(t->d.buffers[i].host);
        if (e == cudaSuccess) continue;
        (void)cudaGetLastError();
        if (t->freed.error != cudaSuccess) continue;
        (void)spipe_priv_refuse(&t->freed, e, "unpinning buffer %d after the run failed: %s", i,
                                cudaGetErrorString(e));
    }
}
/* Chooses for all GPUs at once, as one pipeline would with half of its share of the whole. */
SPIPE_API cudaError_t spipe_priv_team_plan(spipe_priv_team_t *t, spipe_failure_t *f) {
    const size_t      n = (size_t)t->num, cpus = spipe_priv_num_cpus() / n;
    spipe_pipeline_t *p = (spipe_pipeline_t *)calloc(1, sizeof *p);
    cudaError_t       e;
    if (!p) return spipe_priv_refuse(f, cudaErrorMemoryAllocation, "no memory for the pipeline");
    spipe_priv_team_pin(t);
    if (t->d.threads == SPIPE_AUTO) t->d.threads = cpus < 4 ? 1 : cpus > 14 ? 7 : cpus / 2;
    else if (t->d.threads > 0) t->d.threads = t->d.threads > n ? t->d.threads / n : 1;
    if (t->d.schedule == SPIPE_SCHEDULE_AUTO) t->d.schedule = SPIPE_ENGINES;
    p->desc = t->d;
    p->one_shot = 1;
    p->desc.devices.claim = spipe_priv_hand_out;
    p->desc.timeline = NULL;
    if (!spipe_priv_endless(&t->d)) { /* half a share: the more chunks the evener the end */
        p->desc.count = t->d.count / (2 * n) + (t->d.count % (2 * n) != 0);
    }
    e = spipe_priv_device_facts(&p->facts, t->members[0].device);
    if (t->d.staging == SPIPE_STAGING_AUTO && !p->facts.host_page_tables) {
        t->d.staging = p->desc.staging = SPIPE_STAGING_COPY;
    }
    if (e == cudaSuccess) e = spipe_priv_plan(p);
    t->d.chunk = t->load = p->desc.chunk;
    t->d.depth = p->desc.depth;
    t->d.staging = p->desc.staging;
    t->why_chunk = p->report.why_chunk;
    t->why_staging = p->report.why_staging;
    if (e != cudaSuccess && p->failure.error != cudaSuccess) *f = p->failure;
    else if (e != cudaSuccess) (void)spipe_priv_refuse(f, e, "choosing a plan failed");
    free(p);
    return e;
}
/* One GPU's description: the user's, with what is shared in the team's hands. */
SPIPE_API cudaError_t spipe_priv_member_describe(spipe_priv_team_t *t, spipe_priv_member_t *m) {
    int i;
    m->desc = t->d;
    m->desc.devices.run = NULL;
    m->desc.timeline = NULL; /* one run at a time fills it */
    m->desc.devices.claim = spipe_priv_hand_out;
    m->desc.devices.claim_arg = m;
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
        m->parts[i].member = m;
        m->parts[i].number = i;
        if (b->kind == SPIPE_SOURCE) b->source = spipe_priv_team_source;
        if (b->kind == SPIPE_SINK) b->sink = spipe_priv_team_sink;
        if (b->kind == SPIPE_SOURCE || b->kind == SPIPE_SINK) b->user = &m->parts[i];
        if (!t->merged[i]) continue;
        m->copies[i] = malloc(b->elem_bytes);
        if (!m->copies[i]) return cudaErrorMemoryAllocation;
        memcpy(m->copies[i], b->host, b->elem_bytes);
        b->host = m->copies[i];
    }
    return cudaSuccess;
}
/* Each GPU's description, and whether others may do what one of them leaves. */
SPIPE_API cudaError_t spipe_priv_team_describe(spipe_priv_team_t *t) {
    const size_t count = t->d.count;
    int          i, k, in_place = 0;
    for (i = 0; i < t->d.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &t->d.buffers[i];
        t->has_source |= b->kind == SPIPE_SOURCE;
        t->has_sink |= b->kind == SPIPE_SINK;
        in_place |= b->kind == SPIPE_INOUT;
        if (b->kind != SPIPE_RESIDENT || !(b->resident & SPIPE_DOWNLOAD)) continue;
        t->reduces = 1;
        t->merged[i] = calloc(1, b->elem_bytes);
        if (!t->merged[i]) return cudaErrorMemoryAllocation;
    }
    /* an in/out array may be half written; what was counted of chunks that are whole is lost with
       its GPU, but a sink has had them, or what a source gave of them is gone */
    t->may_retry = !in_place && !((t->has_source || t->has_sink) && t->reduces);
    t->num_pieces = spipe_priv_endless(&t->d) ? SIZE_MAX : count / t->load + (count % t->load != 0);
    for (k = 0; k < t->num; ++k) SPIPE_TRY(spipe_priv_member_describe(t, &t->members[k]));
    return cudaSuccess;
}
/* Every GPU on its thread; where there are no threads to be had, the first one here. */
SPIPE_API void spipe_priv_team_run(spipe_priv_team_t *t) {
    const double began = spipe_priv_seconds();
    void        *threads[SPIPE_MAX_DEVICES];
    int          i, started = 0;
    t->num_expected = t->num_alive = t->num;
    for (i = 0; i < t->num; ++i) {
        threads[i] = spipe_priv_thread_start(spipe_priv_member_thread, &t->members[i]);
        started += threads[i] != NULL;
    }
    spipe_priv_lock(t->sync);
    t->num_expected = started > 0 ? started : 1;
    t->num_alive -= t->num - t->num_expected;
    if (t->began == 0.0 && t->num_ready >= t->num_expected) t->began = spipe_priv_seconds();
    spipe_priv_wake(t->sync);
    spipe_priv_unlock(t->sync);
    if (started == 0) spipe_priv_member_main(&t->members[0]);
    for (i = 0; i < t->num; ++i) {
        if (threads[i]) spipe_priv_thread_join(threads[i]);
    }
    t->wall_ms = 1e3 * (spipe_priv_seconds() - t->began);
    t->setup_ms = 1e3 * (t->began - began);
}
/* Pieces 0 .. value-1 are whole. */
SPIPE_API size_t spipe_priv_team_whole(const spipe_priv_team_t *t) {
    size_t whole = t->next < t->forgotten ? t->next : t->forgotten, k;
    for (k = 0; k < t->returned.num; ++k) {
        if (t->returned.at[k] < whole) whole = t->returned.at[k];
    }
    return whole;
}
SPIPE_API void spipe_priv_print_devices(const spipe_report_t *r, FILE *to) {
    int i;
    for (i = 0; i < r->num_devices; ++i) {
        fprintf(to, "  device %-2d %zu chunks%s\n", r->device_numbers[i], r->device_chunks[i],
                r->devices_failed & SPIPE_BIT(i) ? ", then it failed" : "");
    }
}
SPIPE_API void spipe_priv_team_report(const spipe_priv_team_t *t, int lost, spipe_report_t *r) {
    int i, k = 0;
    for (i = t->num - 1; i >= 0; --i) k = t->members[i].report.depth > 0 ? i : k;
    *r = t->members[k].report; /* the first that was set up */
    r->failure = t->failure;
    r->total = r->count_done = r->num_chunks = r->chunks_done = 0;
    r->bytes_in = r->bytes_out = r->device_bytes = r->pinned_bytes = 0;
    r->num_devices = t->num;
    r->print_more = spipe_priv_print_devices;
    r->wall_ms = t->wall_ms;
    r->setup_ms = t->setup_ms;
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
    }
    if (t->total > r->total) r->total = t->total; /* who met the end may have begun another round */
    if (t->num_pieces != SIZE_MAX) r->num_chunks = t->num_pieces;
    else if (!lost) r->num_chunks = r->chunks_done;
    r->count_done = r->chunks_done * t->load;
    if (!lost || (r->total > 0 && r->count_done > r->total)) r->count_done = r->total;
    r->failure.chunks_whole = lost ? spipe_priv_team_whole(t) : r->num_chunks;
}
SPIPE_API void spipe_priv_team_free(spipe_priv_team_t *t) {
    int i, k;
    spipe_priv_team_unpin(t); /* where it did not come to a run */
    for (i = 0; i < SPIPE_MAX_BUFFERS; ++i) {
        free(t->merged[i]);
        for (k = 0; k < t->num; ++k) free(t->members[k].copies[i]);
    }
    for (k = 0; k < t->num; ++k) free((void *)t->members[k].pieces.at);
    for (k = 0; k < t->num; ++k) free(t->members[k].given);
    while (t->given) free(spipe_priv_given_take(t, t->given->piece));
    free((void *)t->returned.at);
    spipe_priv_sync_destroy(t->sync);
    free(t);
}
/* After all threads: the result, and the sentence about a GPU that others stood in for. */
SPIPE_API cudaError_t spipe_priv_team_end(spipe_priv_team_t *t, spipe_report_t *r) {
    const int   stopped = t->failure.error == SPIPE_STOPPED;
    const int   lost = t->over || stopped || spipe_priv_team_has_work(t);
    cudaError_t e = lost ? t->failure.error : cudaSuccess;
    int         i;
    for (i = 0; i < t->d.num_buffers && !lost; ++i) {
        const spipe_buffer_desc_t *b = &t->d.buffers[i];
        /* without a chunk it is what it began as: what was uploaded, or zeros, as merged is */
        if (!t->merged[i] || (!t->has_merged && (b->resident & SPIPE_UPLOAD))) continue;
        memcpy(b->host, t->merged[i], b->elem_bytes);
    }
    spipe_priv_team_report(t, lost, r);
    if (!lost && t->failure.error != cudaSuccess) {
        r->failure.error = cudaSuccess;
        r->failure.stage = -1;
        r->failure.chunk = SPIPE_AUTO;
        (void)snprintf(r->failure.message, sizeof r->failure.message, "%.260s; the other devices "
                       "did its chunks", t->failure.message);
    }
    if (stopped) {
        (void)snprintf(r->failure.message, sizeof r->failure.message, "stopped by the progress "
                       "callback after %zu chunks", r->chunks_done);
    }
    if (!lost && t->freed.error != cudaSuccess) {
        e = t->freed.error;
        r->failure = t->freed;
        r->failure.chunks_whole = r->num_chunks;
    }
    return e;
}
/* With one GPU: the plain run, there. */
SPIPE_API cudaError_t spipe_priv_devices_one(const spipe_desc_t *d, int device,
                                             spipe_report_t *r) {
    spipe_desc_t own = *d;
    int          before = device;
    cudaError_t  e = cudaGetDevice(&before), back;
    memset(&own.devices, 0, sizeof own.devices);
    if (e == cudaSuccess && before != device) e = cudaSetDevice(device);
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        return spipe_priv_refuse(&r->failure, e, "device %d cannot be used: %s", device,
                                 cudaGetErrorString(e));
    }
    e = spipe_run(&own, r);
    back = before != device ? cudaSetDevice(before) : cudaSuccess;
    if (e == cudaSuccess && back != cudaSuccess) {
        e = spipe_priv_refuse(&r->failure, back, "after the run device %d cannot be made current "
                              "again: %s", before, cudaGetErrorString(back));
        r->failure.chunks_whole = r->num_chunks;
    }
    r->num_devices = 1;
    if (!r->print_more) r->print_more = spipe_priv_print_devices;
    r->device_numbers[0] = device;
    r->device_chunks[0] = r->chunks_done;
    r->devices_failed = r->failure.error != cudaSuccess;
    return e;
}
SPIPE_API cudaError_t spipe_priv_devices_many(spipe_priv_team_t *t, spipe_report_t *r) {
    int         before = 0;
    cudaError_t e;
    SPIPE_TRY(spipe_priv_team_check(t, &r->failure));
    t->sync = spipe_priv_sync_create();
    spipe_priv_failure_clear(&t->failure);
    t->forgotten = SIZE_MAX;
    e = spipe_priv_enter(t->members[0].device, &before);
    if (e == cudaSuccess) {
        e = spipe_priv_team_plan(t, &r->failure);
        spipe_priv_leave(t->members[0].device, before);
    }
    if (e == cudaSuccess) {
        e = t->sync ? spipe_priv_team_describe(t) : cudaErrorMemoryAllocation;
    }
    if (e != cudaSuccess) {
        if (r->failure.error != cudaSuccess) return e;
        return spipe_priv_refuse(&r->failure, e, "setting up failed: %s", cudaGetErrorString(e));
    }
    spipe_priv_team_run(t);
    spipe_priv_team_unpin(t);
    return spipe_priv_team_end(t, r);
}
SPIPE_API cudaError_t spipe_priv_devices_run(const spipe_desc_t *d, spipe_report_t *report) {
    spipe_priv_team_t *t = (spipe_priv_team_t *)calloc(1, sizeof *t);
    spipe_report_t     own, *r;
    cudaError_t        e;
    int                i, there = d->devices.num;
    memset(&own, 0, sizeof own);
    r = report ? report : &own;
    *r = own;
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
    e = t->num == 1 ? spipe_priv_devices_one(d, t->members[0].device, r)
                    : spipe_priv_devices_many(t, r);
    spipe_priv_team_free(t);
    return e;
}

SPIPE_API int spipe_devices_all(spipe_desc_t *d) {
    if (!d) return -1;
    d->devices.num = 0;
    d->devices.run = spipe_priv_devices_run;
    return 0;
}
SPIPE_API int spipe_devices_list(spipe_desc_t *d, const int *list, int num) {
    if (!d) return -1;
    if (!list || num < 1 || num > SPIPE_MAX_DEVICES) {
        return spipe_priv_mistake(d, "spipe_devices_list: give a list of 1 to 16 devices");
    }
    memcpy(d->devices.list, list, (size_t)num * sizeof *list);
    d->devices.num = num;
    d->devices.run = spipe_priv_devices_run;
    return 0;
}
SPIPE_API int spipe_devices_reduce(spipe_desc_t *d, spipe_reduce_fn reduce, void *user) {
    if (!d) return -1;
    if (!reduce) return spipe_priv_mistake(d, "spipe_devices_reduce: the function is NULL");
    d->devices.reduce = reduce;
    d->devices.user = user;
    return 0;
}

#endif /* STREAMPIPE_DEVICES_H */

/*  MIT License: see the end of streampipe.h. Copyright (c) 2026 The streampipe authors. */
