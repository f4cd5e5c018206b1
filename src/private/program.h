/* ---- 4 execute: the program ----------------------------------------------------------------
   The operations of each slot, written down once from plan and route: what a choice means is
   decided here, so issuing asks nothing. Writes spipe_priv_program_t. */
enum {
    SPIPE_PRIV_OP_NONE,       /* only a wait or a record */
    SPIPE_PRIV_OP_COPY,       /* one copy */
    SPIPE_PRIV_OP_CALL,       /* a stage is called */
    SPIPE_PRIV_OP_COPIES,     /* the num copies that follow, in one call */
    SPIPE_PRIV_OP_IN_ORDER,   /* wait for the same stage of the chunk that was issued before */
    SPIPE_PRIV_OP_HALO,       /* a copy in with the edges of a halo */
    SPIPE_PRIV_OP_HOST_BEGIN, /* a host stage can begin when the work before it has ended */
    SPIPE_PRIV_OP_SYNC,       /* a checked run: wait for the stream, and look at what a stage did */
    SPIPE_PRIV_OP_CHECKED_CALL, /* a checked run: a stage is called, guards around its buffers */
    SPIPE_PRIV_OP_WATCHED = 32  /* or-ed if a timeline watches, so that other runs do not ask */
};

/* Where operations are written to; beyond capacity they are only counted. */
typedef struct spipe_priv_writer {
    spipe_priv_pipeline_t *p;
    size_t number, parity, num_ops; /* of the slot, of its order; operations so far */
    spipe_priv_slot_t *slot;
    spipe_priv_op_t *last; /* the last operation of this step, or NULL */
    spipe_priv_op_t spare;
    int step;
} spipe_priv_writer_t;

/* Writes an action; it takes over a wait that stands alone before it in its stream. */
SPIPE_PRIV_RARE spipe_priv_op_t *spipe_priv_write(spipe_priv_writer_t *w, int what, int stage,
                                                  cudaStream_t stream) {
    spipe_priv_program_t *g = &w->p->program;
    spipe_priv_op_t *op = w->last;
    const int only_wait = op && op->what == SPIPE_PRIV_OP_NONE && op->stream == stream && !op->done;
    if (!only_wait || what == SPIPE_PRIV_OP_NONE) {
        op = w->num_ops < g->capacity ? &g->ops[w->num_ops] : &w->spare;
        memset(op, 0, sizeof *op);
        ++w->num_ops;
    }
    op->what = what && g->watched ? what | SPIPE_PRIV_OP_WATCHED : what;
    op->step = w->step;
    op->stage = stage;
    op->stream = stream;
    w->last = op;
    return op;
}

/* Writes that a stream waits for another's event, perhaps only in a slot that was used before; not
   within one stream, which keeps its order. */
SPIPE_PRIV_RARE void spipe_priv_write_wait(spipe_priv_writer_t *w, int stage, cudaStream_t stream,
                                           cudaStream_t other, cudaEvent_t event, int again) {
    spipe_priv_op_t *op;
    if (stream == other) return;
    op = spipe_priv_write(w, SPIPE_PRIV_OP_NONE, stage, stream);
    op->wait = event;
    op->again = again;
}

SPIPE_PRIV_RARE void spipe_priv_write_record(spipe_priv_writer_t *w, int stage, cudaStream_t stream,
                                             cudaEvent_t event) {
    if (!event) return;
    if (!w->last || w->last->stream != stream || w->last->done) {
        (void)spipe_priv_write(w, SPIPE_PRIV_OP_NONE, stage, stream);
    }
    w->last->done = event;
}

/* Writes a copy between the buffer that stages see and its pinned twin (pin), or else the user's
   own array. A twin that is copied to the device, or read by a host stage, has the halo, too; a
   twin that a host stage only writes has only its own elements. */
SPIPE_PRIV_RARE void spipe_priv_write_copy(spipe_priv_writer_t *w, int stage, int i,
                                           unsigned char *pin, int out, cudaStream_t stream) {
    const spipe_priv_request_t *r = &w->p->request;
    const spipe_buffer_desc_t *b = &r->desc.buffers[i];
    spipe_priv_op_t *op = spipe_priv_write(w, SPIPE_PRIV_OP_COPY, stage, stream);
    const int zero_copy = w->p->route.path[i] == SPIPE_PRIV_PATH_ZERO_COPY;
    const unsigned reads = stage >= 0 ? r->desc.stages[stage].reads >> i & 1 : !out;
    const int window = pin && reads;
    const size_t bytes = b->elem_bytes, before = window ? b->halo_before * bytes : 0;
    unsigned char *dev = zero_copy ? r->arrays[i].mapped : (unsigned char *)w->slot->view.data[i];
    unsigned char *host = pin ? pin : (unsigned char *)b->host;
    const size_t host_moves = pin ? 0 : bytes;
    const size_t dev_moves = zero_copy ? bytes : 0;
    op->out = out;
    op->elem_bytes = bytes;
    op->more = window ? (b->halo_before + b->halo_after) * bytes : 0;
    op->to = out ? host : dev;
    op->from = out ? dev : host;
    if (before > 0) { /* else one may be NULL, from which C subtracts nothing, not even 0 */
        op->to -= before;
        op->from -= before;
    }
    op->to_elem = out ? host_moves : dev_moves;
    op->from_elem = out ? dev_moves : host_moves;
}

/* How a buffer is copied this way. */
enum {
    SPIPE_PRIV_NOT_COPIED,
    SPIPE_PRIV_ONE_COPY,
    SPIPE_PRIV_COPY_WITH_EDGES
};

SPIPE_PRIV_RARE int spipe_priv_how_copied(const spipe_priv_writer_t *w, int i, int out) {
    const spipe_buffer_desc_t *b = &w->p->request.desc.buffers[i];
    if (!w->slot->dev[i]) return SPIPE_PRIV_NOT_COPIED;
    if (out) return spipe_priv_kind(b->kind)->out ? SPIPE_PRIV_ONE_COPY : SPIPE_PRIV_NOT_COPIED;
    if (!spipe_priv_kind(b->kind)->in || b->on_device) return SPIPE_PRIV_NOT_COPIED;
    if (w->slot->pin_in[i] || !(b->halo_before || b->halo_after)) return SPIPE_PRIV_ONE_COPY;
    return SPIPE_PRIV_COPY_WITH_EDGES;
}

/* All copies of one direction. Several in one call lose less time between them: 1.5 x as fast for
   two of 64 KiB, 1.1 x for 1 MiB (H200, tests/bench/NOTES.md). */
SPIPE_PRIV_RARE void spipe_priv_write_copies(spipe_priv_writer_t *w, int out, cudaStream_t stream) {
    unsigned char **twins = out ? w->slot->pin_out : w->slot->pin_in;
    int i, num = 0;
    for (i = 0; i < w->p->request.desc.num_buffers; ++i) {
        const int how = spipe_priv_how_copied(w, i, out);
        if (how == SPIPE_PRIV_COPY_WITH_EDGES) spipe_priv_write(w, SPIPE_PRIV_OP_HALO, i, stream);
        num += how == SPIPE_PRIV_ONE_COPY;
    }
    if (num > 1) spipe_priv_write(w, SPIPE_PRIV_OP_COPIES, -1, stream)->num = num;
    for (i = 0; i < w->p->request.desc.num_buffers; ++i) {
        if (spipe_priv_how_copied(w, i, out) != SPIPE_PRIV_ONE_COPY) continue;
        spipe_priv_write_copy(w, -1, i, twins[i], out, stream);
    }
}

SPIPE_PRIV_RARE cudaStream_t spipe_priv_writers_stream(const spipe_priv_writer_t *w, int on) {
    return spipe_priv_stream_for(w->p, w->parity, on);
}

SPIPE_PRIV_RARE cudaStream_t spipe_priv_stage_stream(const spipe_priv_writer_t *w, int s) {
    return spipe_priv_writers_stream(w, SPIPE_PRIV_ON_CHAIN + w->p->route.chain[s]);
}

SPIPE_PRIV_RARE void spipe_priv_write_in(spipe_priv_writer_t *w) {
    spipe_priv_pipeline_t *p = w->p;
    const cudaStream_t in = spipe_priv_writers_stream(w, SPIPE_PRIV_ON_IN);
    const cudaStream_t out = spipe_priv_writers_stream(w, SPIPE_PRIV_ON_OUT);
    spipe_priv_write_wait(w, -1, in, out, w->slot->out_done, 1);
    spipe_priv_write_copies(w, 0, in);
    if (!p->run.one_stream || p->route.fills) spipe_priv_write_record(w, -1, in, w->slot->in_done);
}

/* A stage's stream waits for the stages before it, or the copies in; an ordered stage waits for
   the chunk before, too. */
SPIPE_PRIV_RARE void spipe_priv_write_waits(spipe_priv_writer_t *w, int s, cudaStream_t stream) {
    spipe_priv_pipeline_t *p = w->p;
    int i;
    if (p->route.after[s] == 0) {
        spipe_priv_write_wait(w, s, stream, spipe_priv_writers_stream(w, SPIPE_PRIV_ON_IN),
                              w->slot->in_done, 0);
    }
    for (i = 0; i < p->request.desc.num_stages; ++i) {
        if (!(p->route.after[s] & SPIPE_BIT(i))) continue;
        spipe_priv_write_wait(w, s, stream, spipe_priv_stage_stream(w, i), w->slot->stage_done[i],
                              0);
    }
    if (p->request.desc.stages[s].ordered && !p->run.one_stream) {
        spipe_priv_write(w, SPIPE_PRIV_OP_IN_ORDER, s, stream);
    }
}

/* Copies the buffers that a host stage reads to its mirror, or those that it wrote back. */
SPIPE_PRIV_RARE void spipe_priv_write_mirror(spipe_priv_writer_t *w, int s, unsigned mask, int out,
                                             cudaStream_t stream) {
    int i;
    for (i = 0; mask; ++i, mask >>= 1) {
        if (mask & 1) spipe_priv_write_copy(w, s, i, w->slot->mirror[s][i], out, stream);
    }
}

SPIPE_PRIV_RARE void spipe_priv_write_stage(spipe_priv_writer_t *w, int s) {
    spipe_priv_pipeline_t *p = w->p;
    const cudaStream_t stream = spipe_priv_stage_stream(w, s);
    const int checked = p->request.desc.checked;
    spipe_priv_write_waits(w, s, stream);
    spipe_priv_write(w, checked ? SPIPE_PRIV_OP_CHECKED_CALL : SPIPE_PRIV_OP_CALL, s, stream);
    if (!p->run.one_stream) spipe_priv_write_record(w, s, stream, w->slot->stage_done[s]);
}

SPIPE_PRIV_RARE void spipe_priv_write_host_begin(spipe_priv_writer_t *w, int s) {
    const cudaStream_t stream = spipe_priv_stage_stream(w, s);
    spipe_priv_write_waits(w, s, stream);
    spipe_priv_write_mirror(w, s, w->p->request.desc.stages[s].reads, 1, stream);
    spipe_priv_write(w, SPIPE_PRIV_OP_HOST_BEGIN, s, stream);
}

SPIPE_PRIV_RARE void spipe_priv_write_host_end(spipe_priv_writer_t *w, int s) {
    const cudaStream_t stream = spipe_priv_stage_stream(w, s);
    spipe_priv_write_mirror(w, s, w->p->request.desc.stages[s].writes, 0, stream);
    spipe_priv_write_record(w, s, stream, w->slot->stage_done[s]);
}

SPIPE_PRIV_RARE void spipe_priv_write_out(spipe_priv_writer_t *w) {
    spipe_priv_pipeline_t *p = w->p;
    const cudaStream_t out = spipe_priv_writers_stream(w, SPIPE_PRIV_ON_OUT);
    int i;
    for (i = 0; i < p->request.desc.num_stages; ++i) {
        if (!(p->route.leaves & SPIPE_BIT(i))) continue;
        spipe_priv_write_wait(w, -1, out, spipe_priv_stage_stream(w, i), w->slot->stage_done[i], 0);
    }
    spipe_priv_write_copies(w, 1, out);
    spipe_priv_write_record(w, -1, out, w->slot->out_done);
}

SPIPE_PRIV_RARE void spipe_priv_write_step(spipe_priv_writer_t *w, int s) {
    switch (w->step) {
    case SPIPE_PRIV_STEP_IN: spipe_priv_write_in(w); break;
    case SPIPE_PRIV_STEP_OUT: spipe_priv_write_out(w); break;
    case SPIPE_PRIV_STEP_STAGE: spipe_priv_write_stage(w, s); break;
    case SPIPE_PRIV_STEP_HOST_BEGIN: spipe_priv_write_host_begin(w, s); break;
    default: spipe_priv_write_host_end(w, s); break;
    }
}

SPIPE_PRIV_RARE void spipe_priv_write_row(spipe_priv_writer_t *w) {
    spipe_priv_pipeline_t *p = w->p;
    spipe_priv_program_t *g = &p->program;
    const size_t before = w->num_ops;
    int i;
    for (i = 0; i < p->route.num_steps; ++i) {
        const int s = p->route.steps[i].stage, what = (int)p->route.steps[i].what;
        const int on = s >= 0 ? SPIPE_PRIV_ON_CHAIN + p->route.chain[s]
                              : what == SPIPE_PRIV_STEP_OUT; /* ON_IN, ON_OUT */
        g->step_start[i] = w->num_ops - before;
        w->last = NULL;
        w->step = what;
        spipe_priv_write_step(w, s);
        if (!p->request.desc.checked) continue;
        spipe_priv_write(w, SPIPE_PRIV_OP_SYNC, s, spipe_priv_writers_stream(w, on));
    }
    g->num_ops = g->step_start[i] = w->num_ops - before;
}

/* Whether CUDA can issue several copies in one call, and no tool is there that would miss them. */
SPIPE_PRIV_RARE int spipe_priv_has_one_call(const spipe_priv_request_t *r) {
    return r->facts.driver_version >= 12080 && !r->sanitized;
}

/* Whether the copies of one direction may go in one call. Pageable memory gains nothing by it. For
   slots that host threads fill or drain such a call takes the calling thread longer than all its
   other calls (CUDA 13.0, tests/bench/NOTES.md). */
SPIPE_PRIV_RARE int spipe_priv_copies_together(const spipe_priv_pipeline_t *p) {
    if (p->route.host_work || p->route.pageable_copies) return 0;
    return spipe_priv_has_one_call(&p->request);
}

/* Whether a slot's order may be even and odd, and that makes a difference. */
SPIPE_PRIV_RARE size_t spipe_priv_parities(const spipe_priv_pipeline_t *p) {
    if (p->run.one_stream) return 1;
    return p->route.host_work || p->plan.depth % 2 != 0 ? 2 : 1;
}

/* Writes the program for the streams in use. */
SPIPE_PRIV_RARE void spipe_priv_write_program(spipe_priv_pipeline_t *p) {
    spipe_priv_program_t *g = &p->program;
    spipe_priv_writer_t w;
    memset(&w, 0, sizeof w);
    w.p = p;
    g->one_stream = p->run.one_stream;
    g->watched = p->request.desc.timeline != NULL;
    g->copies_together = spipe_priv_copies_together(p);
    g->turns = p->plan.schedule == SPIPE_SCHEDULE_ENGINES && !p->run.one_stream && !p->route.fills;
    g->checkpoint_mask = p->request.desc.progress ? 0 : SPIPE_PRIV_CHECKPOINT_EVERY - 1;
    g->parities = spipe_priv_parities(p);
    for (w.number = 0; w.number < p->plan.depth; ++w.number) {
        w.slot = &p->memory.slots[w.number];
        for (w.parity = 0; w.parity < 2; ++w.parity) {
            if (g->parities == 2 || (w.number & 1) == w.parity) spipe_priv_write_row(&w);
        }
        if (w.num_ops > g->capacity) return; /* there is no memory for so many yet */
    }
}

/* Memory for the operations of the most streams there can be, so that a run need not ask for
   more. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_arrange_program(spipe_priv_pipeline_t *p) {
    spipe_priv_program_t *g = &p->program;
    const int one_stream = p->run.one_stream;
    size_t num;
    if (p->request.kept) p->run.one_stream = p->plan.schedule == SPIPE_SCHEDULE_SERIAL;
    spipe_priv_write_program(p);
    p->run.one_stream = one_stream;
    num = g->num_ops * g->parities * p->plan.depth; /* all rows have as many operations */
    if (num > g->capacity) {
        spipe_priv_op_t *more = (spipe_priv_op_t *)realloc((void *)g->ops, num * sizeof *more);
        if (!more) return cudaErrorMemoryAllocation;
        g->ops = more;
        g->capacity = num;
    }
    spipe_priv_write_program(p);
    return cudaSuccess;
}

/* Whether the program was written for this kind of run. */
SPIPE_PRIV_RARE int spipe_priv_program_fits(const spipe_priv_pipeline_t *p) {
    return p->program.one_stream == p->run.one_stream &&
           p->program.watched == (p->request.desc.timeline != NULL);
}
