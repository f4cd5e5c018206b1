/* ---- 3 describe: what follows from a description --------------------------------------------
   Lengths, bytes, and the graph of stages. Reads descriptions only. */
/* Elements of a buffer that knows its length, as a file does; SPIPE_AUTO = it does not. */
SPIPE_PRIV_RARE size_t spipe_priv_length(const spipe_buffer_desc_t *b) {
    if (!b->on_run || b->bytes == SPIPE_AUTO || b->elem_bytes == 0) return SPIPE_AUTO;
    return b->bytes / b->elem_bytes + (b->bytes % b->elem_bytes != 0);
}

/* Whether the number of elements was stated; 0 beside a source without a length states nothing. */
SPIPE_PRIV_RARE int spipe_priv_is_stated(const spipe_desc_t *d) {
    int i, open = 0;
    for (i = 0; i < d->num_buffers && d->count == 0; ++i) {
        const spipe_buffer_desc_t *b = &d->buffers[i];
        open |= spipe_priv_in_order(b, 0) && spipe_priv_length(b) == SPIPE_AUTO;
    }
    return d->count != SPIPE_AUTO && !open;
}

/* Elements in the whole: as stated, else what all buffers that know their length agree on.
   SPIPE_AUTO = not known. How long an array is only the user knows, so beside one the number must
   be stated, unless it is 0. */
SPIPE_PRIV_LOCAL size_t spipe_priv_desc_count(const spipe_desc_t *d) {
    size_t whole = SPIPE_AUTO;
    int i, arrays = 0;
    if (spipe_priv_is_stated(d)) return d->count;
    for (i = 0; i < d->num_buffers; ++i) {
        const size_t n = spipe_priv_length(&d->buffers[i]);
        arrays |= spipe_priv_kind(d->buffers[i].kind)->array;
        if (n == SPIPE_AUTO) continue;
        if (whole != SPIPE_AUTO && whole != n) return SPIPE_AUTO; /* which the check refuses */
        whole = n;
    }
    return arrays && whole > 0 ? SPIPE_AUTO : whole;
}

/* Bytes of a buffer's host array; 0 where there is none. */
SPIPE_PRIV_RARE size_t spipe_priv_array_bytes(const spipe_desc_t *d, int i) {
    const spipe_buffer_desc_t *b = &d->buffers[i];
    if (!b->host) return 0;
    return b->elem_bytes * (spipe_priv_kind(b->kind)->array ? spipe_priv_desc_count(d) : 1);
}

SPIPE_PRIV_RARE int spipe_priv_endless(const spipe_desc_t *d) {
    return spipe_priv_desc_count(d) == SPIPE_AUTO;
}

/* Tells the first num buffers of a run that it has ended. */
SPIPE_PRIV_LOCAL void spipe_priv_tell_end(const spipe_desc_t *d, int num, cudaError_t result) {
    int i;
    for (i = 0; i < num; ++i) {
        const spipe_buffer_desc_t *b = &d->buffers[i];
        if (b->on_run) (void)b->on_run(d, i, SPIPE_PRIV_ENDED, result, NULL);
    }
}

/* Tells the buffers that a run begins. If one refuses it, none has begun. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_tell_begin(const spipe_desc_t *d, spipe_failure_t *f) {
    int i;
    for (i = 0; i < d->num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &d->buffers[i];
        cudaError_t e;
        if (!b->on_run) continue;
        e = b->on_run(d, i, SPIPE_PRIV_BEGINS, cudaSuccess, f);
        if (e == cudaSuccess) continue;
        spipe_priv_tell_end(d, i, e);
        return e;
    }
    return cudaSuccess;
}

/* Bytes that a source's function gives per element; for a split source those of a ticket. */
SPIPE_PRIV_RARE size_t spipe_priv_given_bytes(const spipe_buffer_desc_t *b) {
    return b->filler ? b->ticket_bytes : b->elem_bytes;
}

/* Bytes of a chunk with its halo and tickets; 0 when they do not fit a size_t. */
SPIPE_PRIV_RARE size_t spipe_priv_window_bytes(const spipe_buffer_desc_t *b, size_t chunk) {
    const size_t most = SIZE_MAX / 4 / SPIPE_MAX_DEPTH / SPIPE_MAX_BUFFERS;
    if (b->halo_before > most || b->halo_after > most || chunk > most) return 0;
    if (b->ticket_bytes > most || b->elem_bytes > most) return 0;
    if (b->halo_before + chunk + b->halo_after > most / (b->elem_bytes + b->ticket_bytes)) return 0;
    return (b->halo_before + chunk + b->halo_after) * (b->elem_bytes + b->ticket_bytes);
}

SPIPE_PRIV_RARE int spipe_priv_find_stage(const spipe_desc_t *d, const char *name) {
    int i;
    for (i = 0; i < d->num_stages; ++i) {
        if (d->stages[i].name && strcmp(d->stages[i].name, name) == 0) return i;
    }
    return -1;
}

/* The stages that stage i waits for, as bits: the one added before it, unless after was given. */
SPIPE_PRIV_RARE unsigned spipe_priv_stage_deps(const spipe_desc_t *d, int i) {
    const spipe_stage_desc_t *s = &d->stages[i];
    unsigned deps = 0;
    int j;
    if (!s->after_given) return i > 0 ? SPIPE_BIT(i - 1) : 0;
    for (j = 0; j < s->num_after; ++j) {
        const int before = spipe_priv_find_stage(d, s->after[j]);
        if (before >= 0) deps |= SPIPE_BIT(before);
    }
    return deps;
}

/* Writes the stages to order so that each comes after those it waits for. Returns how many could be
   placed: fewer than num_stages means that some wait for each other in a circle. */
SPIPE_PRIV_RARE int spipe_priv_sort_stages(const spipe_desc_t *d, int *order) {
    unsigned done = 0;
    int n = 0, i, before = -1;
    while (n != before) {
        for (before = n, i = 0; i < d->num_stages; ++i) {
            if ((done & SPIPE_BIT(i)) || (spipe_priv_stage_deps(d, i) & ~done)) continue;
            done |= SPIPE_BIT(i);
            order[n++] = i;
        }
    }
    return n;
}
