/* ---- 6 plan: the work ----------------------------------------------------------------------
   What the guess has to know of a request: bytes of an element, and what the description allows.
   Taken from the description, the device's facts and the kinds of memory. Reads only. */

/* The kind of memory of a host array; not set for other buffers. */
typedef struct spipe_priv_array {
    int type;              /* SPIPE_PRIV_PAGEABLE, _PINNED or _DEVICE */
    int pins;              /* 1 = each run pins it in place, and unpins it when it ends */
    int registered;        /* 1 = it is pinned so now */
    unsigned char *mapped; /* where kernels find it, or NULL */
} spipe_priv_array_t;

/* What the description allows or forbids. */
enum {
    SPIPE_PRIV_MAY_ZERO_COPY = 1, /* all stages are elementwise, on memory that can be mapped */
    SPIPE_PRIV_MAY_CLIMB = 2,     /* runs may divide the whole differently */
    SPIPE_PRIV_MAY_REPLAY = 4,    /* all stages are replayable and there is no host work */
    SPIPE_PRIV_IN_TURN = 8,       /* filling may wait for what only the caller issues */
    SPIPE_PRIV_AT_ONCE = 16,      /* several threads may fill or drain at once */
    SPIPE_PRIV_SPLIT = 32         /* so may a split source's work, whose time is not known */
};

/* Bytes are of one element. */
typedef struct spipe_priv_work {
    size_t count;                     /* elements; of an unknown total an assumed number */
    unsigned flags;                   /* SPIPE_PRIV_MAY_... */
    double in, out;                   /* copied each way */
    double pageable_in, pageable_out; /* part of in, out: pageable arrays */
    double hosted_in, hosted_out;     /* part of in, out: sources and sinks, always staged */
    double held;                      /* device memory in a slot */
    double temps;                     /* part of held: temporaries */
    double halo;                      /* bytes of a slot besides its own elements */
    size_t least_chunk;               /* elements of the widest halo */
    int num_segments;                 /* 1 + rounds of host stages */
    size_t host_calls;                /* calls of host stages that may be under way at once */
} spipe_priv_work_t;

/* What the stages and the callbacks decide. */
SPIPE_PRIV_RARE unsigned spipe_priv_work_flags(const spipe_desc_t *d, const spipe_device_t *facts) {
    const int watched = d->checked || d->progress != NULL;
    unsigned flags = SPIPE_PRIV_MAY_ZERO_COPY | SPIPE_PRIV_MAY_REPLAY | SPIPE_PRIV_MAY_CLIMB;
    int i;
    if (d->num_stages == 0) return 0; /* the caller takes chunks and works on them itself */
    if (!facts->map_host_memory || d->chunk != SPIPE_AUTO || d->checked || spipe_priv_endless(d)) {
        flags &= ~(unsigned)SPIPE_PRIV_MAY_ZERO_COPY; /* a checked run compares inputs */
    }
    if (watched || d->count == 0) flags &= ~(unsigned)SPIPE_PRIV_MAY_REPLAY;
    if (watched || d->count == 0 || spipe_priv_endless(d)) flags &= ~(unsigned)SPIPE_PRIV_MAY_CLIMB;
    for (i = 0; i < d->num_stages; ++i) {
        const spipe_stage_desc_t *s = &d->stages[i];
        if (!s->elementwise || s->host) flags &= ~(unsigned)SPIPE_PRIV_MAY_ZERO_COPY;
        if (!s->replayable || s->host) flags &= ~(unsigned)SPIPE_PRIV_MAY_REPLAY;
    }
    return flags;
}

SPIPE_PRIV_RARE void spipe_priv_work_halo(spipe_priv_work_t *w, const spipe_buffer_desc_t *b) {
    if (b->halo_before == 0 && b->halo_after == 0) return;
    w->halo += (double)(b->halo_before + b->halo_after) * (double)b->elem_bytes;
    if (w->least_chunk < b->halo_before) w->least_chunk = b->halo_before;
    if (w->least_chunk < b->halo_after) w->least_chunk = b->halo_after;
    w->flags &= ~(unsigned)SPIPE_PRIV_MAY_ZERO_COPY;
}

SPIPE_PRIV_RARE void spipe_priv_work_buffer(spipe_priv_work_t *w, const spipe_buffer_desc_t *b,
                                            const spipe_priv_array_t *a) {
    const double bytes = (double)b->elem_bytes;
    const spipe_priv_kind_t *k = spipe_priv_kind(b->kind);
    const int pageable = k->array && b->host && a->type == SPIPE_PRIV_PAGEABLE;
    if (k->once) {
        w->flags &= ~(unsigned)(SPIPE_PRIV_MAY_CLIMB | SPIPE_PRIV_MAY_REPLAY);
        return;
    }
    spipe_priv_work_halo(w, b);
    w->held += bytes;
    if (!k->in && !k->out) {
        w->temps += bytes;
        return;
    }
    if (k->in) {
        w->in += bytes;
        if (pageable) w->pageable_in += bytes;
        if (k->hosted) w->hosted_in += bytes;
    }
    if (k->out) {
        w->out += bytes;
        if (pageable) w->pageable_out += bytes;
        if (k->hosted) w->hosted_out += bytes;
    }
    if (pageable || (k->hosted && !k->in_order)) w->flags |= SPIPE_PRIV_AT_ONCE;
    if (b->filler) w->flags |= SPIPE_PRIV_SPLIT;
    if (spipe_priv_in_order(b, 0)) w->flags |= SPIPE_PRIV_IN_TURN;
    if (k->hosted || pageable) w->flags &= ~(unsigned)SPIPE_PRIV_MAY_REPLAY;
    if (k->in_order) w->flags &= ~(unsigned)SPIPE_PRIV_MAY_CLIMB; /* it sees chunks */
    if (k->hosted || pageable || !a->mapped) w->flags &= ~(unsigned)SPIPE_PRIV_MAY_ZERO_COPY;
}

/* Rounds of host stages: a chunk leaves the GPU once for each, so its steps come in segments. */
SPIPE_PRIV_RARE int spipe_priv_num_segments(const spipe_desc_t *d) {
    int order[SPIPE_MAX_STAGES] = {0}, round[SPIPE_MAX_STAGES] = {0};
    int n, j, most = 0;
    (void)spipe_priv_sort_stages(d, order);
    for (n = 0; n < d->num_stages; ++n) {
        const unsigned after = spipe_priv_stage_deps(d, order[n]);
        for (j = 0; j < d->num_stages; ++j) {
            if ((after & SPIPE_BIT(j)) && round[order[n]] < round[j]) round[order[n]] = round[j];
        }
        round[order[n]] += d->stages[order[n]].host != 0;
        if (most < round[order[n]]) most = round[order[n]];
    }
    return most + 1;
}

/* Calls of host stages that may be under way at once: only one of an ordered stage. */
SPIPE_PRIV_RARE size_t spipe_priv_host_calls(const spipe_desc_t *d) {
    size_t calls = 0;
    int i;
    for (i = 0; i < d->num_stages; ++i) {
        if (d->stages[i].host && !d->stages[i].ordered) return SPIPE_MAX_THREADS;
        calls += d->stages[i].host != 0;
    }
    return calls;
}

/* Bytes of an element in the busier direction; without copies those in a slot. */
SPIPE_PRIV_RARE double spipe_priv_busier(const spipe_priv_work_t *w) {
    const double most = w->in > w->out ? w->in : w->out;
    if (most > 0.0) return most;
    return w->held > 0.0 ? w->held : 1.0;
}

SPIPE_PRIV_RARE spipe_priv_work_t spipe_priv_work_of(const spipe_desc_t *d,
                                                     const spipe_device_t *facts,
                                                     const spipe_priv_array_t *arrays) {
    const int shared = d->hooks && d->hooks->next_chunk; /* by several GPUs */
    spipe_priv_work_t w;
    int i;
    memset(&w, 0, sizeof w);
    w.flags = spipe_priv_work_flags(d, facts);
    w.num_segments = spipe_priv_num_segments(d);
    w.host_calls = spipe_priv_host_calls(d);
    w.count = d->count;
    for (i = 0; i < d->num_buffers; ++i) {
        spipe_priv_work_buffer(&w, &d->buffers[i], &arrays[i]);
        if (shared && spipe_priv_kind(d->buffers[i].kind)->in_order) w.flags |= SPIPE_PRIV_IN_TURN;
    }
    return w;
}

/* The square root, for which a program in C would have to link libm. */
SPIPE_PRIV_RARE double spipe_priv_root(double x) {
    double r = x > 1.0 ? x : 1.0;
    while (r > 1.001 * x / r && r > 1.0) r = 0.5 * (r + x / r);
    return r;
}

SPIPE_PRIV_RARE double spipe_priv_within(double x, double least, double most) {
    if (x > most) return most;
    return x < least ? least : x;
}

/* Bytes of an element that host threads copy into slots (out = 0), or out of them. */
SPIPE_PRIV_RARE double spipe_priv_staged(const spipe_priv_work_t *w, const spipe_plan_t *plan,
                                         int out) {
    const int copied = plan->staging == SPIPE_STAGING_COPY;
    if (out) return w->hosted_out + (copied ? w->pageable_out : 0.0);
    return w->hosted_in + (copied ? w->pageable_in : 0.0);
}

/* Bytes of the whole in the busier direction; very many if its length is not known. */
SPIPE_PRIV_RARE double spipe_priv_whole_bytes(const spipe_priv_work_t *w) {
    return (double)w->count * spipe_priv_busier(w);
}

/* Directions that are staged. */
SPIPE_PRIV_RARE size_t spipe_priv_num_ways(const spipe_priv_work_t *w, const spipe_plan_t *plan) {
    return (size_t)(spipe_priv_staged(w, plan, 0) > 0.0) +
           (size_t)(spipe_priv_staged(w, plan, 1) > 0.0);
}

/* Elements of a chunk of about so many bytes: all of one length but the last, which is short, since
   nothing overlaps what is left of it; a multiple of 32, so that each begins as aligned as the
   array, unless that rounds much; never fewer than the halo. */
SPIPE_PRIV_RARE size_t spipe_priv_chunk_of(const spipe_priv_work_t *w, double bytes) {
    size_t chunk = (size_t)(bytes / spipe_priv_busier(w));
    const size_t num = w->count == SIZE_MAX || chunk == 0 ? 0 : (w->count - 1) / chunk + 1;
    if (chunk > w->count) chunk = w->count;
    if (num > 1) chunk = (w->count - 1) / num + 1;
    if (num > 3) chunk = (size_t)((double)w->count / ((double)num - 0.75)) + 1;
    if (chunk < w->count && chunk > 2048) chunk += (32 - chunk % 32) % 32;
    if (chunk < w->least_chunk) chunk = w->least_chunk;
    return chunk > 0 ? chunk : 1;
}
