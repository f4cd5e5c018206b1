/* ---- 3 describe: the check -----------------------------------------------------------------
   All that can be wrong in a description, as sentences. Allocates nothing. */
/* One rule each; the first broken rule is the one that is reported. */
#define SPIPE_PRIV_REFUSE_IF(broken, ...)                                                          \
    do {                                                                                           \
        if (broken) return spipe_priv_refuse(f, cudaErrorInvalidValue, __VA_ARGS__);               \
    } while (0)

SPIPE_PRIV_RARE cudaError_t spipe_priv_check_split(const spipe_desc_t *d, int i,
                                                   spipe_failure_t *f) {
    const spipe_buffer_desc_t *b = &d->buffers[i];
    if (!b->filler) return cudaSuccess;
    SPIPE_PRIV_REFUSE_IF(!b->work, "buffer %d (split source): its work is NULL", i);
    SPIPE_PRIV_REFUSE_IF(b->ticket_bytes == 0,
                         "buffer %d (split source): a ticket is 0 bytes; give its size", i);
    SPIPE_PRIV_REFUSE_IF(b->halo_before || b->halo_after,
                         "buffer %d (split source): it cannot have a halo", i);
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_check_buffer(const spipe_desc_t *d, int i,
                                                    spipe_failure_t *f) {
    const spipe_buffer_desc_t *b = &d->buffers[i];
    const spipe_priv_kind_t *k = spipe_priv_kind(b->kind);
    const int resident = k->once, halo = b->halo_before || b->halo_after;
    const size_t chunk = d->chunk == SPIPE_AUTO ? 1 : d->chunk, count = spipe_priv_desc_count(d);
    SPIPE_PRIV_REFUSE_IF(k == spipe_priv_kinds, "buffer %d: its kind is not one of spipe_kind_t",
                         i);
    SPIPE_PRIV_REFUSE_IF(b->elem_bytes == 0, "buffer %d (%s): %s is 0 bytes; give its size", i,
                         k->name, resident ? "the buffer" : "an element");
    SPIPE_PRIV_REFUSE_IF(k->array && count == SPIPE_AUTO,
                         "buffer %d (%s): an array needs a length; "
                         "set count to its number of elements",
                         i, k->name);
    SPIPE_PRIV_REFUSE_IF(k->array && count > SIZE_MAX / b->elem_bytes,
                         "buffer %d (%s): %zu elements of %zu bytes are more than SIZE_MAX bytes",
                         i, k->name, count, b->elem_bytes);
    SPIPE_PRIV_REFUSE_IF(k->hosted && (!b->caller || !(b->source || b->sink)),
                         "buffer %d (%s): its function is NULL", i, k->name);
    SPIPE_TRY(spipe_priv_check_split(d, i, f));
    SPIPE_PRIV_REFUSE_IF(resident && b->resident == SPIPE_ZERO && b->host,
                         "buffer %d (resident): SPIPE_ZERO alone does not use its host array; "
                         "pass NULL, or add SPIPE_UPLOAD",
                         i);
    SPIPE_PRIV_REFUSE_IF(
        resident && (b->resident & ~(SPIPE_UPLOAD | SPIPE_DOWNLOAD)) != 0,
        "buffer %d (resident): how is not SPIPE_ZERO, SPIPE_UPLOAD, SPIPE_DOWNLOAD or both", i);
    SPIPE_PRIV_REFUSE_IF(halo && !k->halo,
                         "buffer %d (%s): only an input or a source can have a halo", i, k->name);
    SPIPE_PRIV_REFUSE_IF(halo && b->on_device,
                         "buffer %d (%s): read into device memory it cannot have a halo", i,
                         k->name);
    SPIPE_PRIV_REFUSE_IF(halo && k->hosted && !k->in_order && count == SPIPE_AUTO,
                         "buffer %d (%s): with a halo it needs a length; set count", i, k->name);
    SPIPE_PRIV_REFUSE_IF(b->edge != SPIPE_EDGE_CLAMP && b->edge != SPIPE_EDGE_ZERO,
                         "buffer %d (%s): edge is not SPIPE_EDGE_CLAMP or SPIPE_EDGE_ZERO", i,
                         k->name);
    SPIPE_PRIV_REFUSE_IF(
        d->chunk != SPIPE_AUTO && (b->halo_before > chunk || b->halo_after > chunk),
        "buffer %d (%s): its halo of %zu before and %zu after is larger than a chunk of %zu "
        "elements; make chunk larger",
        i, k->name, b->halo_before, b->halo_after, chunk);
    SPIPE_PRIV_REFUSE_IF(spipe_priv_window_bytes(b, resident ? 1 : chunk) == 0,
                         "buffer %d (%s): %s is too many bytes; make it smaller", i, k->name,
                         resident ? "the buffer" : "a chunk with its halo");
    return b->on_run ? b->on_run(d, i, SPIPE_PRIV_CHECKED, cudaSuccess, f) : cudaSuccess;
}

/* Lengths that were not stated must agree. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_lengths(const spipe_desc_t *d, spipe_failure_t *f) {
    size_t first = SPIPE_AUTO;
    int i, of = 0;
    for (i = 0; i < d->num_buffers && !spipe_priv_is_stated(d); ++i) {
        const size_t n = spipe_priv_length(&d->buffers[i]);
        if (n == SPIPE_AUTO) continue;
        SPIPE_PRIV_REFUSE_IF(first != SPIPE_AUTO && first != n,
                             "buffer %d has %zu elements and buffer %d has %zu, and count is not "
                             "set; set it to as many as shall be taken of each",
                             of, first, i, n);
        first = n;
        of = i;
    }
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_check_stage(const spipe_desc_t *d, int i,
                                                   spipe_failure_t *f) {
    const spipe_stage_desc_t *s = &d->stages[i];
    int j;
    SPIPE_PRIV_REFUSE_IF(!s->name || !s->name[0], "stage %d: it has no name; give it one", i);
    SPIPE_PRIV_REFUSE_IF(!s->fn, "stage '%s': its function is NULL", s->name);
    SPIPE_PRIV_REFUSE_IF(spipe_priv_find_stage(d, s->name) != i,
                         "stage '%s': two stages have this name; rename one", s->name);
    for (j = 0; j < s->num_after; ++j) {
        SPIPE_PRIV_REFUSE_IF(spipe_priv_find_stage(d, s->after[j]) < 0,
                             "stage '%s': waits for '%s', and there is no stage of that name",
                             s->name, s->after[j]);
    }
    SPIPE_PRIV_REFUSE_IF(s->host && (s->reads | s->writes) == 0,
                         "host stage '%s': it reads no buffer and writes none; say which with "
                         "SPIPE_BIT(buffer)",
                         s->name);
    for (j = 0; j < SPIPE_MAX_BUFFERS; ++j) {
        if (((s->reads | s->writes) & SPIPE_BIT(j)) == 0) continue;
        SPIPE_PRIV_REFUSE_IF(j >= d->num_buffers || spipe_priv_kind(d->buffers[j].kind)->once,
                             "host stage '%s': buffer %d is %s; name buffers that travel in chunks",
                             s->name, j, j >= d->num_buffers ? "not there" : "resident");
    }
    return cudaSuccess;
}

/* Whether a host array that the run needs is NULL. */
SPIPE_PRIV_LOCAL int spipe_priv_lacks_array(const spipe_desc_t *d, int i) {
    const spipe_buffer_desc_t *b = &d->buffers[i];
    if (b->host) return 0;
    if (spipe_priv_kind(b->kind)->once) return b->resident != SPIPE_ZERO;
    return spipe_priv_kind(b->kind)->array && spipe_priv_desc_count(d) > 0;
}

SPIPE_PRIV_LOCAL int spipe_priv_is_written(const spipe_buffer_desc_t *b) {
    const spipe_priv_kind_t *k = spipe_priv_kind(b->kind);
    return k->once ? (b->resident & SPIPE_DOWNLOAD) != 0 : k->array && k->out;
}

/* Whether buffers j and i, whose arrays overlap, change each other's data. Resident arrays are read
   before the first chunk and written after the last. Of other arrays, chunk k may be read and then
   written if it lies in the same place in both: same array, same size, no halo. */
SPIPE_PRIV_RARE int spipe_priv_overlap_harms(const spipe_buffer_desc_t *a,
                                             const spipe_buffer_desc_t *b) {
    const int written = spipe_priv_is_written(a) + spipe_priv_is_written(b);
    const int halo = a->halo_before || a->halo_after || b->halo_before || b->halo_after;
    if (written != 1) return written == 2;
    if (spipe_priv_kind(a->kind)->once || spipe_priv_kind(b->kind)->once) return 0;
    return halo || a->host != b->host || a->elem_bytes != b->elem_bytes;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_check_overlaps(const spipe_desc_t *d, int i,
                                                      spipe_failure_t *f) {
    const spipe_buffer_desc_t *b = &d->buffers[i];
    const size_t bytes = spipe_priv_array_bytes(d, i);
    const uintptr_t at = (uintptr_t)b->host;
    int j;
    for (j = 0; j < i && bytes > 0; ++j) {
        const spipe_buffer_desc_t *a = &d->buffers[j];
        const uintptr_t other = (uintptr_t)a->host;
        const size_t other_bytes = spipe_priv_array_bytes(d, j);
        if (at >= other ? at - other >= other_bytes : other - at >= bytes) continue;
        SPIPE_PRIV_REFUSE_IF(spipe_priv_overlap_harms(a, b),
                             "buffers %d (%s) and %d (%s): their arrays overlap, and one is "
                             "written; give each its own, or make one in/out buffer",
                             j, spipe_priv_kind(a->kind)->name, i, spipe_priv_kind(b->kind)->name);
    }
    return cudaSuccess;
}

/* Rules that must hold when a run begins. Between runs of a kept pipeline arrays may be missing, or
   overlap while the user exchanges them. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_arrays(const spipe_desc_t *d, spipe_failure_t *f) {
    int i;
    for (i = 0; i < d->num_buffers; ++i) {
        const spipe_priv_kind_t *k = spipe_priv_kind(d->buffers[i].kind);
        SPIPE_PRIV_REFUSE_IF(spipe_priv_lacks_array(d, i),
                             "buffer %d (%s): the host array is NULL; pass the array%s", i, k->name,
                             k->once ? ", or SPIPE_ZERO" : "");
        SPIPE_TRY(spipe_priv_check_overlaps(d, i, f));
    }
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_check_timeline(const struct spipe_timeline *timeline,
                                                      spipe_failure_t *f) {
    SPIPE_PRIV_REFUSE_IF(
        timeline && !spipe_priv_watches(timeline),
        "the timeline is not ready to be filled; begin with spipe_timeline_default()");
    return cudaSuccess;
}

/* Checks all that does not depend on where arrays are. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_desc(const spipe_desc_t *d, spipe_failure_t *f) {
    int order[SPIPE_MAX_STAGES], i;
    if (f) spipe_priv_failure_clear(f);
    SPIPE_PRIV_REFUSE_IF(!d, "the description is NULL");
    SPIPE_PRIV_REFUSE_IF(!spipe_priv_begun(d),
                         "the description was not begun, or by another version; "
                         "begin with spipe_desc_default()");
    SPIPE_PRIV_REFUSE_IF(d->problem, "%s", d->problem);
    SPIPE_PRIV_REFUSE_IF(
        d->num_buffers < 0 || d->num_buffers > SPIPE_MAX_BUFFERS || d->num_stages < 0 ||
            d->num_stages > SPIPE_MAX_STAGES,
        "the description is damaged: %d buffers and %d stages; begin with spipe_desc_default()",
        d->num_buffers, d->num_stages);
    SPIPE_PRIV_REFUSE_IF(d->chunk == 0,
                         "chunk is 0 elements; leave it SPIPE_AUTO, or give 1 or more");
    SPIPE_PRIV_REFUSE_IF(d->depth != SPIPE_AUTO && (d->depth == 0 || d->depth > SPIPE_MAX_DEPTH),
                         "depth is %zu slots; leave it SPIPE_AUTO, or give 1 to %d", d->depth,
                         SPIPE_MAX_DEPTH);
    SPIPE_PRIV_REFUSE_IF(d->threads != SPIPE_AUTO && d->threads > SPIPE_MAX_THREADS,
                         "threads is %zu; leave it SPIPE_AUTO, or give 0 to %d", d->threads,
                         SPIPE_MAX_THREADS);
    SPIPE_PRIV_REFUSE_IF((int)d->schedule < 0 || d->schedule > SPIPE_SCHEDULE_ZERO_COPY ||
                             (int)d->staging < 0 || d->staging > SPIPE_STAGING_DIRECT ||
                             (int)d->priority < 0 || d->priority > SPIPE_PRIORITY_HIGH,
                         "schedule, staging or priority is out of range");
    SPIPE_TRY(spipe_priv_check_timeline(d->timeline, f));
    if (d->resources) SPIPE_TRY(spipe_priv_check_resources(d->resources, f));
    SPIPE_TRY(spipe_priv_check_lengths(d, f));
    for (i = 0; i < d->num_buffers; ++i) SPIPE_TRY(spipe_priv_check_buffer(d, i, f));
    SPIPE_PRIV_REFUSE_IF(spipe_priv_endless(d) && spipe_priv_first_in_order(d, 0) < 0,
                         "count was not set, and there is "
                         "no source to end it; set it to the number of elements");
    for (i = 0; i < d->num_stages; ++i) SPIPE_TRY(spipe_priv_check_stage(d, i, f));
    SPIPE_PRIV_REFUSE_IF(spipe_priv_sort_stages(d, order) < d->num_stages,
                         "some stages wait for each other in a circle; look at spipe_stage_after");
    return cudaSuccess;
}

/* A kept pipeline may have no stages: then its chunks are taken with spipe_pipeline_next. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_stages(const spipe_desc_t *d, spipe_failure_t *f) {
    SPIPE_PRIV_REFUSE_IF(d->num_stages == 0, "there is no stage; add one with spipe_add_stage, or "
                                             "take the chunks with spipe_pipeline_next");
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_desc_check(const spipe_desc_t *d, spipe_failure_t *failure) {
    SPIPE_TRY(spipe_priv_check_desc(d, failure));
    SPIPE_TRY(spipe_priv_check_stages(d, failure));
    return spipe_priv_check_arrays(d, failure);
}
