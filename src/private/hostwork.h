/* ---- 4 execute: draining slots and host stages ----------------------------------------------
   Pinned slots into host arrays and sinks; host stages; touching fresh memory. None of it knows
   which thread it is on. */

/* Hands a chunk to a sink, in turn, or to a positioned one, which several threads may call at once.
 */
SPIPE_PRIV_RARE cudaError_t spipe_priv_drain_sink(spipe_priv_pipeline_t *p, int i,
                                                  const spipe_priv_at_t *at) {
    const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
    const size_t bytes = at->count * b->elem_bytes;
    void *lent = spipe_priv_hand_out(p, at->slot->pin_out[i], bytes);
    spipe_part_t part;
    spipe_priv_note_t note;
    cudaError_t e;
    memset(&note, 0, sizeof note);
    part.data = lent;
    part.first = at->first;
    part.count = at->count;
    SPIPE_PRIV_CALL(NULL, &note.thrown, &note, e, b->sink(&part, b->user), cudaErrorUnknown);
    spipe_priv_take_back(lent, at->slot->pin_out[i], NULL, bytes);
    SPIPE_PRIV_COPIED(at->count * b->elem_bytes, 1);
    if (e == cudaSuccess) return e;
    return spipe_priv_function_failed(p, i, &note, e, at->chunk, "sink of buffer", at->first,
                                      at->count);
}

/* Drains all outputs of a chunk except those that sinks get in turn (in_turn = 0), or only those
   (1). Returns whether they are whole. */
SPIPE_PRIV_RARE int spipe_priv_drain_some(spipe_priv_pipeline_t *p, const spipe_priv_at_t *at,
                                          int in_turn) {
    int i;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        if (!at->slot->pin_out[i] || spipe_priv_in_order(b, 1) != in_turn) continue;
        if (b->caller && b->caller(p, i, at) != cudaSuccess) return 0;
        if (b->caller) continue;
        spipe_priv_copy((unsigned char *)b->host + at->first * b->elem_bytes, at->slot->pin_out[i],
                        at->count * b->elem_bytes);
        SPIPE_PRIV_COPIED(at->count * b->elem_bytes, 1);
    }
    return 1;
}

/* Drains a chunk, first into the sinks whose turn it is. Returns whether it is whole. */
SPIPE_PRIV_RARE int spipe_priv_drain(spipe_priv_pipeline_t *p, spipe_priv_slot_t *s) {
    spipe_priv_at_t at;
    int ok = 1;
    spipe_priv_locate(p, s, &at);
    if (spipe_priv_first_in_order(&p->request.desc, 1) >= 0) {
        ok = spipe_priv_drain_some(p, &at, 1);
        spipe_priv_lock(p->sync);
        s->sunk = 1;
        spipe_priv_tell(p);
        spipe_priv_unlock(p->sync);
    }
    return ok && !spipe_priv_is_lost(p, at.chunk) && spipe_priv_drain_some(p, &at, 0);
}

SPIPE_PRIV_RARE void spipe_priv_call_host_stage(spipe_priv_pipeline_t *p,
                                                const spipe_priv_task_t *t) {
    const spipe_stage_desc_t *s = &p->request.desc.stages[t->stage];
    spipe_priv_at_t at;
    spipe_priv_note_t note;
    spipe_chunk_t c;
    cudaError_t e;
    const char *why;
    int i;
    memset(&c, 0, sizeof c);
    memset(&note, 0, sizeof note);
    note.catches = SPIPE_PRIV_CATCHES;
    c.note = &note;
    spipe_priv_locate(p, t->slot, &at);
    spipe_priv_view(p, &at, &c);
    c.slot = t->slot->view.slot;
    c.num_buffers = p->request.desc.num_buffers;
    memcpy((void *)c.data, (void *)at.slot->mirror[t->stage], sizeof c.data);
    for (i = 0; i < c.num_buffers; ++i) {
        if (!c.data[i]) continue;
        c.kind[i] = p->request.desc.buffers[i].kind;
        c.elem_bytes[i] = p->request.desc.buffers[i].elem_bytes;
    }
    SPIPE_PRIV_CALL(NULL, &note.thrown, &note, e, s->fn(&c, s->user), cudaErrorUnknown);
    spipe_priv_free_scratch(&note);
    if (e == cudaSuccess && note.error == cudaSuccess) return;
    why = spipe_priv_why(&note, &e);
    (void)spipe_priv_fail(p, &note, e, t->stage, at.chunk,
                          "host stage '%s' failed at chunk %zu: %s", s->name, at.chunk, why);
}

/* Bytes of a task that touches new memory, so that several threads share the work. */
#define SPIPE_PRIV_TOUCH_PAGE ((size_t)2 << 20)

/* Writes one byte of each page, of the smallest size that the system may have used. */
SPIPE_PRIV_RARE void spipe_priv_touch_one(spipe_priv_pipeline_t *p, size_t page_number) {
    const size_t bytes = p->memory.pinned_bytes, page = SPIPE_PRIV_TOUCH_PAGE;
    const size_t end = bytes - page_number * page < page ? bytes : (page_number + 1) * page;
    size_t at;
    for (at = page_number * page; at < end; at += SPIPE_PRIV_TOUCH_STEP) p->memory.pinned[at] = 0;
}

/* Does a task, without the lock. Returns whether its slot goes on to the next state; else there is
   nothing in it, or it has failed. */
SPIPE_PRIV_RARE int spipe_priv_do_task(spipe_priv_pipeline_t *p, spipe_priv_task_t *t) {
    int goes_on = 1;
    if (p->watcher) t->began = spipe_priv_seconds();
    spipe_priv_notify(p, SPIPE_PRIV_WATCH_TASK, t, t->slot, 0);
    spipe_priv_model_begin(p, t);
    switch (t->what) {
    case SPIPE_PRIV_FILL: goes_on = spipe_priv_fill(p, t->slot); break;
    case SPIPE_PRIV_DRAIN: goes_on = spipe_priv_drain(p, t->slot); break;
    case SPIPE_PRIV_HOST: spipe_priv_call_host_stage(p, t); break;
    default: spipe_priv_touch_one(p, t->chunk); break;
    }
    spipe_priv_model_end();
    t->chunk = t->slot ? t->slot->chunk : t->chunk;
    spipe_priv_notify(p, SPIPE_PRIV_WATCH_TASK, t, t->slot, 1);
    return goes_on;
}
