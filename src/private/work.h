/* ---- 11 plan: the work ---------------------------------------------------------------------
   What the planner has to know of a request, as numbers: taken from the description, the device's
   facts and the kinds of memory. Reads only; nothing here depends on a choice. */

/* Sizes in the law's numbers and back. Sizes are below 2^63, so one instruction converts them. */
SPIPE_PRIV_OFTEN double spipe_priv_real(size_t size) { return (double)(int64_t)size; }

SPIPE_PRIV_OFTEN size_t spipe_priv_whole(double number) { return (size_t)(int64_t)number; }

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
    SPIPE_PRIV_MAY_BATCH = 2,     /* no function sees single chunks, and memory is not limited */
    SPIPE_PRIV_MAY_TRY = 4,       /* runs may divide the whole differently */
    SPIPE_PRIV_MAY_REPLAY = 8,    /* all stages are replayable and there is no host work */
    SPIPE_PRIV_MAY_REGISTER = 16, /* arrays may be pinned in place */
    SPIPE_PRIV_PAGE_TABLES = 32,  /* the GPU reads pageable memory at full speed */
    SPIPE_PRIV_KEPT = 64,         /* set up once for many runs */
    SPIPE_PRIV_IN_TURN = 128,     /* filling may wait for what only the caller issues */
    SPIPE_PRIV_FEW_PINS = 256,    /* the system refused to pin a ring */
    SPIPE_PRIV_NO_PINS = 512,     /* it refused smaller rings, too, so nothing is pinned */
    SPIPE_PRIV_POSITIONED = 1024, /* a source or sink is called by several threads at once */
    SPIPE_PRIV_SPLIT = 2048,      /* so is a split source's work, whose time is not known */
    SPIPE_PRIV_LENT = 4096,       /* memory, streams and threads are lent, so set-up is nothing */
    SPIPE_PRIV_PAID = SPIPE_PRIV_KEPT | SPIPE_PRIV_LENT
};

struct spipe_priv_work;
struct spipe_priv_way;

/* What a run may use of the machine that it is on. */
typedef struct spipe_priv_machine {
    size_t cpus;
    double cache;     /* bytes of the last-level cache; 0 = not known */
    double memory;    /* bytes of device memory that slots may take */
    double few_bytes; /* a chunk of so few does not fill the GPU; 0 = not known */
    size_t runs;      /* runs that share the machine, this one included; 0 = not known */
    /* The time of a way beside other runs, or NULL; in beside.h. */
    double (*beside)(const struct spipe_priv_work *w, const spipe_costs_t *c,
                     const struct spipe_priv_way *y, double alone);
} spipe_priv_machine_t;

/* Bytes are of one element unless said otherwise. */
typedef struct spipe_priv_work {
    size_t count;                     /* elements; of an unknown total an assumed number */
    unsigned flags;                   /* SPIPE_PRIV_MAY_... */
    double in, out;                   /* copied each way */
    double pageable_in, pageable_out; /* part of in, out: pageable arrays */
    double hosted_in, hosted_out;     /* part of in, out: sources and sinks, always staged */
    double held;                      /* device memory in a slot */
    double temps;                     /* part of held: temporaries */
    double halo;                      /* bytes copied in for each chunk besides its elements */
    size_t least_chunk;               /* elements of the widest halo */
    int copies[2];                    /* buffers copied in and out: calls for each chunk */
    int num_stages, num_segments;     /* segments: 1 + rounds of host stages */
    size_t host_calls;                /* calls of host stages that may be under way at once */
    int zero_copy_passes; /* times that zero-copy stages cross the link with the output */
    double kernel_s;      /* seconds of all kernels for the whole */
    spipe_priv_machine_t machine;
} spipe_priv_work_t;

SPIPE_PRIV_RARE unsigned spipe_priv_stage_flags(const spipe_desc_t *d,
                                                const spipe_device_t *facts) {
    unsigned flags = SPIPE_PRIV_MAY_ZERO_COPY | SPIPE_PRIV_MAY_REPLAY;
    int i, chains = 0;
    if (d->num_stages == 0) return 0; /* the caller takes chunks and works on them itself */
    if (!facts->map_host_memory || d->chunk != SPIPE_AUTO)
        flags &= ~(unsigned)SPIPE_PRIV_MAY_ZERO_COPY;
    for (i = 0; i < d->num_stages; ++i) {
        const spipe_stage_desc_t *s = &d->stages[i];
        const unsigned after = spipe_priv_stage_deps(d, i);
        if (!s->elementwise || s->host) flags &= ~(unsigned)SPIPE_PRIV_MAY_ZERO_COPY;
        if (!s->replayable || s->host) flags &= ~(unsigned)SPIPE_PRIV_MAY_REPLAY;
        chains += i > 0 && after != SPIPE_BIT(i - 1);
        if (s->ordered || s->host || chains) flags &= ~(unsigned)SPIPE_PRIV_MAY_BATCH;
    }
    return flags;
}

/* Flags that sizes and callbacks decide. */
SPIPE_PRIV_RARE unsigned spipe_priv_size_flags(const spipe_desc_t *d, unsigned flags) {
    const int watched = d->checked || d->progress != NULL;
    const int shared = d->hooks && d->hooks->next_chunk;
    if (watched || shared || d->depth != SPIPE_AUTO || spipe_priv_endless(d)) {
        flags &= ~(unsigned)SPIPE_PRIV_MAY_BATCH;
    }
    if (watched || d->count == 0) flags &= ~(unsigned)SPIPE_PRIV_MAY_REPLAY;
    if (d->checked) flags &= ~(unsigned)SPIPE_PRIV_MAY_ZERO_COPY; /* it compares inputs */
    if (!watched && d->num_stages > 0 && d->count > 0 && !spipe_priv_endless(d)) {
        flags |= SPIPE_PRIV_MAY_TRY;
    }
    return flags;
}

SPIPE_PRIV_RARE void spipe_priv_work_halo(spipe_priv_work_t *w, const spipe_buffer_desc_t *b) {
    if (b->halo_before == 0 && b->halo_after == 0) return;
    w->halo += spipe_priv_real(b->halo_before + b->halo_after) * spipe_priv_real(b->elem_bytes);
    if (w->least_chunk < b->halo_before) w->least_chunk = b->halo_before;
    if (w->least_chunk < b->halo_after) w->least_chunk = b->halo_after;
    w->flags &= ~(unsigned)SPIPE_PRIV_MAY_ZERO_COPY;
}

SPIPE_PRIV_RARE void spipe_priv_work_buffer(spipe_priv_work_t *w, const spipe_buffer_desc_t *b,
                                            const spipe_priv_array_t *a) {
    const double bytes = spipe_priv_real(b->elem_bytes);
    const int hosted = spipe_priv_is_hosted(b), sequential = spipe_priv_is_sequential(b);
    const int pageable = spipe_priv_is_array(b) && b->host && a->type == SPIPE_PRIV_PAGEABLE;
    if (b->kind == SPIPE_RESIDENT) {
        w->flags &= ~(unsigned)(SPIPE_PRIV_MAY_TRY | SPIPE_PRIV_MAY_REPLAY);
        return;
    }
    w->held += bytes;
    if (b->kind == SPIPE_TEMP) {
        w->zero_copy_passes = 0;
        w->temps += bytes;
    }
    if (spipe_priv_goes_in(b)) {
        w->in += bytes;
        ++w->copies[0];
        if (pageable) w->pageable_in += bytes;
        if (hosted) w->hosted_in += bytes;
    }
    if (spipe_priv_goes_out(b)) {
        w->out += bytes;
        ++w->copies[1];
        if (pageable) w->pageable_out += bytes;
        if (hosted) w->hosted_out += bytes;
    }
    if (hosted && !sequential) w->flags |= SPIPE_PRIV_POSITIONED;
    if (b->filler) w->flags |= SPIPE_PRIV_SPLIT;
    if (hosted || pageable) w->flags &= ~(unsigned)(SPIPE_PRIV_MAY_BATCH | SPIPE_PRIV_MAY_REPLAY);
    if (sequential) w->flags &= ~(unsigned)SPIPE_PRIV_MAY_TRY;
    if (b->kind == SPIPE_TEMP) return;
    if (hosted || pageable || !a->mapped) w->flags &= ~(unsigned)SPIPE_PRIV_MAY_ZERO_COPY;
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
                                                     const spipe_priv_array_t *arrays, int kept,
                                                     size_t cpus) {
    const int shared = d->hooks && d->hooks->next_chunk; /* by several GPUs */
    spipe_priv_work_t w;
    int i;
    memset(&w, 0, sizeof w);
    w.flags = spipe_priv_size_flags(d, spipe_priv_stage_flags(d, facts));
    w.flags |= SPIPE_PRIV_MAY_REGISTER;
    if (facts->host_page_tables) w.flags |= SPIPE_PRIV_PAGE_TABLES;
    if (kept) w.flags |= SPIPE_PRIV_KEPT;
    if (d->resources) w.flags |= SPIPE_PRIV_LENT;
    w.num_stages = d->num_stages;
    w.num_segments = spipe_priv_num_segments(d);
    w.host_calls = spipe_priv_host_calls(d);
    w.zero_copy_passes = d->num_stages;
    w.machine.cpus = cpus;
    w.machine.few_bytes = (double)facts->num_sms * (double)SPIPE_PRIV_FEW_BYTES;
    w.machine.memory = SPIPE_PRIV_MEMORY_SHARE * spipe_priv_real(facts->memory_bytes);
    for (i = 0; i < d->num_buffers; ++i) {
        spipe_priv_work_halo(&w, &d->buffers[i]);
        spipe_priv_work_buffer(&w, &d->buffers[i], &arrays[i]);
        if (d->buffers[i].kind == SPIPE_SOURCE) w.flags |= SPIPE_PRIV_IN_TURN;
        if (shared && spipe_priv_is_sequential(&d->buffers[i])) w.flags |= SPIPE_PRIV_IN_TURN;
    }
    w.count = d->count;
    if (spipe_priv_endless(d)) {
        w.count = spipe_priv_whole((double)SPIPE_PRIV_ASSUMED_BYTES / spipe_priv_busier(&w)) + 1;
    }
    return w;
}
