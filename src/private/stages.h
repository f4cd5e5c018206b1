/* ---- 9 describe: what follows from a description --------------------------------------------
   Kinds of buffers, which way they are copied, and the graph of stages. Reads descriptions only. */
SPIPE_PRIV_RARE int spipe_priv_is_array(const spipe_buffer_desc_t *b) {
    return b->kind == SPIPE_INPUT || b->kind == SPIPE_OUTPUT || b->kind == SPIPE_INOUT;
}

/* Whether a function of the user's fills or drains it; and whether that sees chunks in order. */
SPIPE_PRIV_RARE int spipe_priv_is_hosted(const spipe_buffer_desc_t *b) {
    return b->kind >= SPIPE_SOURCE && b->kind <= SPIPE_SINK_AT;
}

SPIPE_PRIV_RARE int spipe_priv_is_sequential(const spipe_buffer_desc_t *b) {
    return b->kind == SPIPE_SOURCE || b->kind == SPIPE_SINK;
}

SPIPE_PRIV_RARE int spipe_priv_goes_in(const spipe_buffer_desc_t *b) {
    if (b->kind == SPIPE_SOURCE || b->kind == SPIPE_SOURCE_AT) return 1;
    return b->kind == SPIPE_INPUT || b->kind == SPIPE_INOUT;
}

SPIPE_PRIV_RARE int spipe_priv_goes_out(const spipe_buffer_desc_t *b) {
    if (b->kind == SPIPE_SINK || b->kind == SPIPE_SINK_AT) return 1;
    return b->kind == SPIPE_OUTPUT || b->kind == SPIPE_INOUT;
}

/* Bytes of a buffer's host array; 0 where there is none. */
SPIPE_PRIV_RARE size_t spipe_priv_array_bytes(const spipe_desc_t *d, int i) {
    const spipe_buffer_desc_t *b = &d->buffers[i];
    if (!b->host) return 0;
    return spipe_priv_is_array(b) ? d->count * b->elem_bytes : b->elem_bytes;
}

SPIPE_PRIV_RARE int spipe_priv_endless(const spipe_desc_t *d) {
    int i, sources = 0;
    for (i = 0; i < d->num_buffers; ++i) sources += d->buffers[i].kind == SPIPE_SOURCE;
    return d->count == SPIPE_AUTO || (d->count == 0 && sources > 0);
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
