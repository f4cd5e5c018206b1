/* ---- 4 execute: filling slots ---------------------------------------------------------------
   Host arrays and sources into pinned slots, with the edges of halos. None of it knows which
   thread it is on. */

/* How many elements of a chunk's window lie before the first and after the last of the whole. */
SPIPE_PRIV_RARE void spipe_priv_outside(const spipe_buffer_desc_t *b, size_t first, size_t count,
                                        size_t total, size_t *left, size_t *right) {
    const size_t end = first + count + b->halo_after;
    *left = first < b->halo_before ? b->halo_before - first : 0;
    *right = total != SPIPE_AUTO && end > total ? end - total : 0;
}

SPIPE_PRIV_RARE void spipe_priv_repeat(unsigned char *dst, size_t times,
                                       const unsigned char *element, const spipe_buffer_desc_t *b) {
    for (; times > 0; --times, dst += b->elem_bytes) {
        if (b->edge == SPIPE_EDGE_ZERO)
            memset(dst, 0, b->elem_bytes);
        else
            memcpy(dst, element, b->elem_bytes);
    }
}

/* Writes what lies beyond the ends into a window in host memory; data is its own first element. */
SPIPE_PRIV_RARE void spipe_priv_fill_edges(const spipe_buffer_desc_t *b, unsigned char *data,
                                           size_t first, size_t count, size_t total) {
    unsigned char *past;
    size_t left, right;
    spipe_priv_outside(b, first, count, total, &left, &right);
    spipe_priv_repeat(data - b->halo_before * b->elem_bytes, left, data, b);
    if (right == 0) return;
    past = data + (total - first) * b->elem_bytes;
    spipe_priv_repeat(past, right, past - b->elem_bytes, b);
}

/* memcpy by stores that pass the caches: memory need not read what is overwritten. */
SPIPE_PRIV_LOCAL void spipe_priv_copy(unsigned char *to, const unsigned char *from, size_t n) {
#if SPIPE_PRIV_STREAM_STORES
    const size_t head = (16 - ((uintptr_t)to & 15)) & 15;
    if (n >= 65536) {
        memcpy(to, from, head);
        for (to += head, from += head, n -= head; n >= 16; to += 16, from += 16, n -= 16) {
            const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)from);
            _mm_stream_si128((__m128i *)(void *)to, a);
        }
        _mm_sfence();
    }
#endif
    memcpy(to, from, n);
}

/* The part of a chunk's window that lies in the whole: n elements from number low on. */
SPIPE_PRIV_RARE void spipe_priv_inside(const spipe_buffer_desc_t *b, const spipe_priv_at_t *at,
                                       size_t total, size_t *low, size_t *n) {
    size_t left, right;
    spipe_priv_outside(b, at->first, at->count, total, &left, &right);
    *low = at->first - (b->halo_before - left);
    *n = at->first + at->count + b->halo_after - right - *low;
}

/* Fills a slot from an array; through the caches, from which the copy engine then reads. */
SPIPE_PRIV_RARE void spipe_priv_fill_array(const spipe_buffer_desc_t *b, unsigned char *data,
                                           const spipe_priv_at_t *at, size_t total) {
    const unsigned char *host = (const unsigned char *)b->host;
    size_t low, n;
    spipe_priv_inside(b, at, total, &low, &n);
    data -= (at->first - low) * b->elem_bytes;
    memcpy(data, host + low * b->elem_bytes, n * b->elem_bytes);
    SPIPE_PRIV_COPIED(n * b->elem_bytes, 0);
    data += (at->first - low) * b->elem_bytes;
    spipe_priv_fill_edges(b, data, at->first, at->count, total);
}

/* What a function of the user's is handed in place of a slot's memory: in a checked run a block of
   its own, so that AddressSanitizer sees what it does outside of it, or when it has returned. */
SPIPE_PRIV_RARE void *spipe_priv_hand_out(const spipe_priv_pipeline_t *p, void *slot,
                                          size_t bytes) {
    void *block = p->request.desc.checked ? malloc(bytes + 1) : NULL;
    if (!block) return slot;
    memcpy(block, slot, bytes);
    return block;
}

/* Takes it back; to: where it is copied to, or NULL. */
SPIPE_PRIV_RARE void spipe_priv_take_back(void *block, const void *slot, void *to, size_t bytes) {
    if (block == slot) return;
    if (to) memcpy(to, block, bytes);
    free(block);
}

/* Why a source or sink failed, in words for the failure. */
SPIPE_PRIV_RARE const char *spipe_priv_reason(const spipe_buffer_desc_t *b, spipe_priv_note_t *note,
                                              cudaError_t *e) {
    const char *why = b->why && note->error == cudaSuccess ? b->why(b->user) : NULL;
    return why ? why : spipe_priv_why(note, e);
}

/* Records that the function of a source or sink failed for n elements from number first on. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_function_failed(spipe_priv_pipeline_t *p, int i,
                                                       spipe_priv_note_t *note, cudaError_t e,
                                                       size_t chunk, const char *what, size_t first,
                                                       size_t n) {
    const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
    const char *why;
    if (spipe_priv_was_stopped(p, b)) return spipe_priv_cut(p, note, chunk);
    why = spipe_priv_reason(b, note, &e);
    return spipe_priv_fail(p, note, e, -1, chunk,
                           "the %s %d failed at chunk %zu (%zu elements from %zu): %s", what, i,
                           chunk, n, first, why);
}

/* Calls a positioned source for a chunk and its halo, as far as they lie in the whole. One that
   fills memory on the device has none. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_fill_part(spipe_priv_pipeline_t *p, int i,
                                                 const spipe_priv_at_t *at) {
    const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
    const size_t total = SPIPE_PRIV_LOAD(p->run.total), size = b->elem_bytes;
    unsigned char *data = b->on_device ? at->slot->dev[i] : at->slot->pin_in[i];
    unsigned char *to;
    spipe_part_t part;
    void *lent;
    size_t low, n;
    spipe_priv_note_t note;
    cudaError_t e;
    memset(&note, 0, sizeof note);
    spipe_priv_inside(b, at, total, &low, &n);
    to = data - (at->first - low) * size;
    lent = b->on_device ? to : spipe_priv_hand_out(p, to, n * size);
    part.data = lent;
    part.first = low;
    part.count = n;
    SPIPE_PRIV_CALL(NULL, &note.thrown, &note, e, b->source(&part, b->user), cudaErrorUnknown);
    spipe_priv_take_back(lent, to, to, n * size);
    SPIPE_PRIV_COPIED(n * size, 0);
    if (e != cudaSuccess)
        return spipe_priv_function_failed(p, i, &note, e, at->chunk, "source of buffer", low, n);
    spipe_priv_fill_edges(b, data, at->first, at->count, total);
    return e;
}

/* Calls a split source's work for the elements of a chunk, whose tickets were read in turn. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_fill_work(spipe_priv_pipeline_t *p, int i,
                                                 const spipe_priv_at_t *at) {
    const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
    const size_t bytes = at->count * b->elem_bytes, ticket_bytes = at->count * b->ticket_bytes;
    unsigned char *data = at->slot->pin_in[i], *tickets = spipe_priv_tickets(p, at->slot, i);
    void *lent = spipe_priv_hand_out(p, data, bytes);
    void *lent_tickets = spipe_priv_hand_out(p, tickets, ticket_bytes);
    spipe_part_t part;
    spipe_priv_note_t note;
    cudaError_t e;
    memset(&note, 0, sizeof note);
    part.data = lent;
    part.first = at->first;
    part.count = at->count;
    SPIPE_PRIV_CALL(NULL, &note.thrown, &note, e, b->work(&part, lent_tickets, b->user),
                    cudaErrorUnknown);
    spipe_priv_take_back(lent, data, data, bytes);
    spipe_priv_take_back(lent_tickets, tickets, NULL, ticket_bytes);
    SPIPE_PRIV_COPIED(at->count * b->elem_bytes, 0);
    if (e == cudaSuccess) return e;
    return spipe_priv_function_failed(p, i, &note, e, at->chunk, "work of split source", at->first,
                                      at->count);
}

/* Reads up to want elements of a source, or tickets of a split one; fewer only at its end. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_read(spipe_priv_pipeline_t *p, int i, unsigned char *dst,
                                            size_t want, size_t chunk) {
    const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
    const int endless = spipe_priv_endless(&p->request.desc);
    size_t *got = &p->run.sources[i].got;
    spipe_priv_note_t note;
    memset(&note, 0, sizeof note);
    if (!endless && want > p->run.total - *got) want = p->run.total - *got;
    while (want > 0 && !p->run.sources[i].ended) {
        const size_t bytes = want * spipe_priv_given_bytes(b);
        void *lent = spipe_priv_hand_out(p, dst, bytes);
        spipe_part_t part;
        size_t n;
        cudaError_t e;
        part.data = lent;
        part.first = *got;
        part.count = want;
        SPIPE_PRIV_CALL(NULL, &note.thrown, &note, e, b->source(&part, b->user), cudaErrorUnknown);
        n = part.count;
        spipe_priv_take_back(lent, dst, dst, bytes);
        if (e != cudaSuccess) {
            return spipe_priv_function_failed(p, i, &note, e, chunk, "source of buffer", *got,
                                              want);
        }
        if (n > want) {
            return spipe_priv_fail(p, &note, cudaErrorInvalidValue, -1, chunk,
                                   "the source of buffer %d said that it gave %zu elements where "
                                   "there was room for %zu",
                                   i, n, want);
        }
        if (n == 0 && spipe_priv_was_stopped(p, b)) return spipe_priv_cut(p, &note, chunk);
        if (n == 0) p->run.sources[i].ended = 1;
        SPIPE_PRIV_COPIED(n * spipe_priv_given_bytes(b), 0);
        *got += n;
        dst += n * spipe_priv_given_bytes(b);
        want -= n;
    }
    if (want == 0 || endless) return cudaSuccess;
    return spipe_priv_fail(p, &note, cudaErrorInvalidValue, -1, chunk,
                           "the source of buffer %d ended after %zu of %zu elements; leave count "
                           "SPIPE_AUTO to run until the end",
                           i, *got, p->request.desc.count);
}

/* Fills a source's window; elements that the window before has, too, are copied from there: from
   the slot that was read into last, whose memory nobody has written since. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_fill_source(spipe_priv_pipeline_t *p, int i,
                                                   const spipe_priv_at_t *at) {
    const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
    const size_t size = p->plan.chunk;
    const spipe_priv_slot_t *slot = at->slot;
    unsigned char *data = b->filler ? spipe_priv_tickets(p, slot, i) : slot->pin_in[i];
    const size_t shared = (b->halo_before + b->halo_after) * b->elem_bytes;
    unsigned char *base = data - b->halo_before * b->elem_bytes, *before;
    if (at->chunk == 0 || p->run.shared) {
        p->run.sources[i].got = at->first;
        p->run.sources[i].ended = 0;
        return spipe_priv_read(p, i, data, size + b->halo_after, at->chunk);
    }
    before = p->run.at.read->pin_in[i];
    if (shared > 0) {
        memmove(base, before - b->halo_before * b->elem_bytes + size * b->elem_bytes, shared);
    }
    return spipe_priv_read(p, i, base + shared, size, at->chunk);
}

/* When a source has ended, all must have given as many elements; a source may have given fewer only
   if the others read ahead for a wider halo. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_compare_sources(spipe_priv_pipeline_t *p, size_t chunk,
                                                       size_t total) {
    spipe_priv_note_t note;
    int i;
    memset(&note, 0, sizeof note);
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        const size_t got = p->run.sources[i].got;
        if (!spipe_priv_in_order(&p->request.desc.buffers[i], 0) || got == total) continue;
        if (got < total && !p->run.sources[i].ended) continue;
        return spipe_priv_fail(p, &note, cudaErrorInvalidValue, -1, chunk,
                               "the sources disagree: one ended after %zu elements, buffer %d gave "
                               "%zu",
                               total, i, got);
    }
    return cudaSuccess;
}

/* The sources have this many elements. If they end with a full chunk, they are asked once more, as
   only that shows one that is longer. */
SPIPE_PRIV_RARE void spipe_priv_set_total(spipe_priv_pipeline_t *p, size_t total) {
    const size_t num = total / p->plan.chunk + (total % p->plan.chunk != 0);
    const size_t end = total % p->plan.chunk == 0 ? num + 1 : num;
    spipe_priv_lock(p->sync);
    SPIPE_PRIV_STORE(p->run.total, total);
    if (!p->run.shared) {
        p->run.num_chunks = num;
        if (end < p->run.at.end) p->run.at.end = end;
        spipe_priv_model_cut(p, end);
    }
    spipe_priv_tell(p);
    spipe_priv_unlock(p->sync);
}

/* Reads all sources for a chunk, from buffer i on, finds the end, and writes their edges; in turn.
   If a source that reads ahead has found the end, the others are asked whether they end there, too.
 */
SPIPE_PRIV_RARE cudaError_t spipe_priv_fill_sources(spipe_priv_pipeline_t *p, int i,
                                                    const spipe_priv_at_t *at) {
    const size_t chunk = at->chunk, first = at->first;
    size_t total = SPIPE_PRIV_LOAD(p->run.total), count;
    int ended = -1;
    if (spipe_priv_count_of(p, chunk) == 0 && (first != total || p->run.shared)) {
        return cudaSuccess;
    }
    for (; i < p->request.desc.num_buffers; ++i) {
        if (!spipe_priv_in_order(&p->request.desc.buffers[i], 0)) continue;
        SPIPE_TRY(spipe_priv_fill_source(p, i, at));
        if (p->run.sources[i].ended) ended = i;
    }
    p->run.at.read = at->slot;
    if (ended >= 0) {
        if (total == SPIPE_AUTO) total = p->run.sources[ended].got;
        SPIPE_TRY(spipe_priv_compare_sources(p, chunk, total));
        spipe_priv_set_total(p, total);
    }
    count = spipe_priv_count_of(p, chunk);
    for (i = 0; i < p->request.desc.num_buffers && count > 0; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        if (spipe_priv_in_order(b, 0))
            spipe_priv_fill_edges(b, at->slot->pin_in[i], first, count, total);
    }
    return cudaSuccess;
}

/* Whether nothing has to be read for a chunk any more. */
SPIPE_PRIV_LOCAL int spipe_priv_is_idle(spipe_priv_pipeline_t *p, size_t chunk) {
    return spipe_priv_is_lost(p, chunk) || SPIPE_PRIV_LOAD(p->run.stop_asked);
}

/* Several GPUs: asks for the number of the chunk that a slot was taken for. 0: there is none. */
SPIPE_PRIV_RARE int spipe_priv_ask_chunk(spipe_priv_pipeline_t *p, spipe_priv_slot_t *s) {
    const size_t chunk = p->request.desc.hooks->next_chunk(p);
    spipe_priv_lock(p->sync);
    s->chunk = chunk;
    if (chunk == SPIPE_AUTO) {
        p->run.at.end = --p->run.at.next;
        s->state = SPIPE_PRIV_EMPTY;
        spipe_priv_model_cut(p, p->run.at.end);
    }
    spipe_priv_unlock(p->sync);
    return chunk != SPIPE_AUTO;
}

/* Returns whether the sources were read for a chunk. */
SPIPE_PRIV_RARE int spipe_priv_read_sources(spipe_priv_pipeline_t *p, int source,
                                            spipe_priv_slot_t *s) {
    spipe_priv_at_t at;
    if (source < 0) return 1;
    if (spipe_priv_is_idle(p, s->chunk)) return 0;
    spipe_priv_locate(p, s, &at);
    return p->request.desc.buffers[source].caller(p, source, &at) == cudaSuccess;
}

/* Work that one thread at a time does, in the order of chunks: reads sources; on several GPUs asks
   which chunk it is. Returns whether there is one. */
SPIPE_PRIV_RARE int spipe_priv_fill_in_turn(spipe_priv_pipeline_t *p, spipe_priv_slot_t *s) {
    const int source = spipe_priv_first_in_order(&p->request.desc, 0);
    const int shared = p->run.shared, there = !shared || spipe_priv_ask_chunk(p, s);
    int read;
    if (!there || !p->run.at.reading) return there;
    read = spipe_priv_read_sources(p, source, s);
    if (shared) p->request.desc.hooks->chunk_read(p, read);
    return spipe_priv_count_of(p, s->chunk) > 0;
}

/* Whether chunks are given out one after another, each when the one before it was read. */
SPIPE_PRIV_RARE int spipe_priv_reads_in_turn(const spipe_priv_pipeline_t *p) {
    return p->run.shared || spipe_priv_first_in_order(&p->request.desc, 0) >= 0;
}

/* Fills a slot that was taken. Returns whether there is anything in it. */
SPIPE_PRIV_RARE int spipe_priv_fill(spipe_priv_pipeline_t *p, spipe_priv_slot_t *slot) {
    const int in_turn = spipe_priv_reads_in_turn(p);
    const int there = !in_turn || spipe_priv_fill_in_turn(p, slot);
    spipe_priv_at_t at;
    size_t total;
    int i;
    if (in_turn) {
        spipe_priv_lock(p->sync);
        p->run.at.reading = 0;
        spipe_priv_tell(p);
        spipe_priv_unlock(p->sync);
    }
    if (!there) return 0;
    spipe_priv_locate(p, slot, &at);
    total = SPIPE_PRIV_LOAD(p->run.total);
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        unsigned char *data = slot->pin_in[i];
        if (!data && !b->on_device) continue;
        if (spipe_priv_in_order(b, 0) && !b->filler) continue;
        if (spipe_priv_is_idle(p, at.chunk)) break;
        if (b->filler)
            (void)b->filler(p, i, &at);
        else if (b->caller)
            (void)b->caller(p, i, &at);
        else if (data)
            spipe_priv_fill_array(b, data, &at, total);
    }
    return 1;
}
