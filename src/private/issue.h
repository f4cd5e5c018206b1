/* ---- 4 execute: issuing --------------------------------------------------------------------
   The loop that puts a slot's program into the streams for one chunk. It has no modes: the program
   says what to do. */

/* Copies what CUDA has refused to copy in one piece: half by half, down to one byte. Not if it is
   all in device memory: there the user's array ends within the copy. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_copy_halves(unsigned char *to, const unsigned char *from,
                                                   size_t n, cudaStream_t stream) {
    const size_t half = n / 2;
    cudaError_t e = cudaErrorInvalidValue;
    int in = SPIPE_PRIV_DEVICE, out = SPIPE_PRIV_DEVICE;
    if (n < 2 || spipe_priv_memory_type(from, &in, NULL) != cudaSuccess ||
        spipe_priv_memory_type(to, &out, NULL) != cudaSuccess ||
        (in == SPIPE_PRIV_DEVICE && out == SPIPE_PRIV_DEVICE)) {
        return e;
    }
    e = cudaMemcpyAsync(to, from, half, cudaMemcpyDefault, stream);
    if (e == cudaErrorInvalidValue) e = spipe_priv_copy_halves(to, from, half, stream);
    if (e != cudaSuccess) return e;
    e = cudaMemcpyAsync(to + half, from + half, n - half, cudaMemcpyDefault, stream);
    if (e != cudaErrorInvalidValue) return e;
    return spipe_priv_copy_halves(to + half, from + half, n - half, stream);
}

/* Copies from or to the user's memory. CUDA refuses a copy across the end of what is pinned, as in
   an array that others have pinned in pieces, and then has copied nothing. */
SPIPE_PRIV_OFTEN cudaError_t spipe_priv_copy_array(void *to, const void *from, size_t n,
                                                   cudaStream_t stream) {
    cudaError_t e = cudaMemcpyAsync(to, from, n, cudaMemcpyDefault, stream);
    if (e != cudaErrorInvalidValue) return e;
    e = spipe_priv_copy_halves((unsigned char *)to, (const unsigned char *)from, n, stream);
    if (e == cudaSuccess) (void)cudaGetLastError(); /* of the pieces that were refused */
    return e;
}

/* Fills an edge on the device with zeros, or with an element: copied in once, then doubled. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_copy_edge(const spipe_buffer_desc_t *b, unsigned char *dev,
                                                 size_t times, const unsigned char *element,
                                                 cudaStream_t stream) {
    const size_t all = times * b->elem_bytes;
    size_t done = b->elem_bytes;
    if (times == 0) return cudaSuccess;
    if (b->edge == SPIPE_EDGE_ZERO) return cudaMemsetAsync(dev, 0, all, stream);
    SPIPE_TRY(spipe_priv_copy_array(dev, element, done, stream));
    for (; done < all; done *= 2) {
        const size_t n = all - done < done ? all - done : done;
        SPIPE_TRY(cudaMemcpyAsync(dev + done, dev, n, cudaMemcpyDefault, stream));
    }
    return cudaSuccess;
}

/* Copies a window in from the user's array; the edges beyond its ends are made on the device. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_issue_halo(spipe_priv_pipeline_t *p,
                                                   const spipe_priv_at_t *at, int i,
                                                   cudaStream_t stream) {
    const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
    const size_t bytes = b->elem_bytes;
    const unsigned char *host = (const unsigned char *)b->host;
    unsigned char *dev = at->slot->dev[i] - b->halo_before * bytes;
    size_t left, right, low, n;
    spipe_priv_outside(b, at->first, at->count, p->run.total, &left, &right);
    low = at->first - (b->halo_before - left);
    n = at->first + at->count + b->halo_after - right - low;
    p->run.moved[0] += n * bytes;
    SPIPE_TRY(spipe_priv_copy_edge(b, dev, left, host, stream));
    SPIPE_TRY(spipe_priv_copy_array(dev + left * bytes, host + low * bytes, n * bytes, stream));
    return spipe_priv_copy_edge(b, dev + (left + n) * bytes, right,
                                host + (p->run.total - 1) * bytes, stream);
}

SPIPE_PRIV_OFTEN cudaError_t spipe_priv_issue_copy(spipe_priv_pipeline_t *p,
                                                   const spipe_priv_op_t *op,
                                                   const spipe_priv_at_t *at) {
    const size_t n = at->count * op->elem_bytes + op->more;
    p->run.moved[op->out] += n;
    return spipe_priv_copy_array(op->to + at->first * op->to_elem,
                                 op->from + at->first * op->from_elem, n, op->stream);
}

#if CUDART_VERSION >= 12080
SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_together(spipe_priv_pipeline_t *p,
                                                      const spipe_priv_op_t *op,
                                                      const spipe_priv_at_t *at) {
    void *to[SPIPE_MAX_BUFFERS];
    const void *from[SPIPE_MAX_BUFFERS];
    size_t bytes[SPIPE_MAX_BUFFERS], n = (size_t)op->num, first = 0, k;
    struct cudaMemcpyAttributes in_order;
    memset(&in_order, 0, sizeof in_order);
    in_order.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    for (k = 0; k < n; ++k) {
        const spipe_priv_op_t *c = &op[1 + k];
        to[k] = c->to + at->first * c->to_elem;
        from[k] = c->from + at->first * c->from_elem;
        bytes[k] = at->count * c->elem_bytes + c->more;
        p->run.moved[c->out] += bytes[k];
    }
#if CUDART_VERSION >= 13000
    return cudaMemcpyBatchAsync(to, from, bytes, n, &in_order, &first, 1, op->stream);
#else
    return cudaMemcpyBatchAsync(to, (void **)from, bytes, n, &in_order, &first, 1, &n, op->stream);
#endif
}
#endif

/* Issues the copies that follow op, in one call if toolkit and driver have such a call. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_copies(spipe_priv_pipeline_t *p,
                                                    const spipe_priv_op_t *op,
                                                    const spipe_priv_at_t *at) {
    int k;
#if CUDART_VERSION >= 12080
    if (p->program.copies_together && p->run.mode != SPIPE_PRIV_CAPTURED) {
        const size_t in = p->run.moved[0], out = p->run.moved[1];
        const cudaError_t e = spipe_priv_issue_together(p, op, at);
        if (e != cudaErrorInvalidValue) return e;
        (void)cudaGetLastError(); /* an array may be pinned in pieces: see spipe_priv_copy_array */
        p->run.moved[0] = in;
        p->run.moved[1] = out;
    }
#endif
    for (k = 0; k < op->num; ++k) SPIPE_TRY(spipe_priv_issue_copy(p, &op[1 + k], at));
    return cudaSuccess;
}

/* A checked run waits, so that an error of the GPU is found at the step that made it. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_sync(spipe_priv_pipeline_t *p,
                                                  const spipe_priv_op_t *op,
                                                  const spipe_priv_at_t *at) {
    if (p->run.mode == SPIPE_PRIV_CAPTURED) return cudaSuccess;
    SPIPE_TRY(cudaStreamSynchronize(op->stream));
    return spipe_priv_check_after(p, op, at);
}

/* Marks where the work before a host stage ends. A checked run waits for it here, before anything
   is issued whose error would be taken for that of this work. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_host_begin(spipe_priv_pipeline_t *p,
                                                        const spipe_priv_op_t *op,
                                                        const spipe_priv_at_t *at) {
    const cudaEvent_t event = at->slot->stage_done[op->stage];
    SPIPE_TRY(spipe_priv_guards(p, op, at, 0));
    SPIPE_TRY(cudaEventRecord(event, op->stream));
    if (!p->request.desc.checked) return cudaSuccess;
    return spipe_priv_check_step(p, cudaEventSynchronize(event), op->stage, at->chunk,
                                 "work before host stage '");
}

/* An ordered stage waits for the chunk that was issued before. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_in_order(const spipe_priv_op_t *op,
                                                      const spipe_priv_at_t *at) {
    const spipe_priv_slot_t *behind = at->slot->behind;
    if (!behind) return cudaSuccess;
    return cudaStreamWaitEvent(op->stream, behind->stage_done[op->stage], 0);
}

/* The rarer operations; kept out of the loop that issues, which stays small. */
SPIPE_PRIV_ATTRIBUTE((cold))

SPIPE_PRIV_LOCAL cudaError_t spipe_priv_issue_other(spipe_priv_pipeline_t *p,
                                                    const spipe_priv_op_t *op,
                                                    const spipe_priv_at_t *at) {
    switch (op->what & (SPIPE_PRIV_OP_WATCHED - 1)) {
    case SPIPE_PRIV_OP_COPY: return spipe_priv_issue_copy(p, op, at);
    case SPIPE_PRIV_OP_CALL: return spipe_priv_issue_call(p, op, at);
    case SPIPE_PRIV_OP_COPIES: return spipe_priv_issue_copies(p, op, at);
    case SPIPE_PRIV_OP_HALO: return spipe_priv_issue_halo(p, at, op->stage, op->stream);
    case SPIPE_PRIV_OP_IN_ORDER: return spipe_priv_issue_in_order(op, at);
    case SPIPE_PRIV_OP_SYNC: return spipe_priv_issue_sync(p, op, at);
    case SPIPE_PRIV_OP_CHECKED_CALL: return spipe_priv_issue_checked(p, op, at);
    default: return spipe_priv_issue_host_begin(p, op, at);
    }
}

/* The same, with the timeline's watcher around it. */
SPIPE_PRIV_ATTRIBUTE((cold))

SPIPE_PRIV_LOCAL cudaError_t spipe_priv_issue_watched(spipe_priv_pipeline_t *p,
                                                      const spipe_priv_op_t *op,
                                                      const spipe_priv_at_t *at) {
    cudaError_t e;
    spipe_priv_notify(p, SPIPE_PRIV_WATCH_OP, op, at->slot, 0);
    e = spipe_priv_issue_other(p, op, at);
    spipe_priv_notify(p, SPIPE_PRIV_WATCH_OP, op, at->slot, 1);
    return e;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_failed(spipe_priv_pipeline_t *p,
                                                    const spipe_priv_op_t *op, size_t chunk,
                                                    cudaError_t e) {
    const int copies = op->step == SPIPE_PRIV_STEP_IN || op->step == SPIPE_PRIV_STEP_OUT;
    const char *way = op->step == SPIPE_PRIV_STEP_IN ? "copying in" : "copying out";
    if (spipe_priv_is_lost(p, chunk)) { /* the function of that step has recorded it */
        (void)spipe_priv_take_error(e);
        return e;
    }
    if (copies) return spipe_priv_check_step(p, e, -1, chunk, way);
    return spipe_priv_check_step(p, e, op->stage, chunk, NULL);
}

/* Issues operations first .. last-1 of a slot's program. */
SPIPE_PRIV_OFTEN cudaError_t spipe_priv_issue(spipe_priv_pipeline_t *p, size_t first, size_t last,
                                              spipe_priv_slot_t *slot) {
    const spipe_priv_program_t *g = &p->program;
    const size_t row = (size_t)slot->view.slot * g->parities + (slot->order & (g->parities - 1));
    const spipe_priv_op_t *op = g->ops + row * g->num_ops, *end = op + last;
    spipe_priv_at_t at;
    cudaError_t e = cudaSuccess;
    spipe_priv_locate(p, slot, &at);
    for (op += first; op < end; ++op) {
        if (op->wait && (slot->used || !op->again)) {
            e = cudaStreamWaitEvent(op->stream, op->wait, 0);
            if (e != cudaSuccess) break;
        }
        if (op->what == SPIPE_PRIV_OP_COPY) {
            e = spipe_priv_issue_copy(p, op, &at);
        } else if (op->what == SPIPE_PRIV_OP_CALL) {
            e = spipe_priv_issue_call(p, op, &at);
        } else if (op->what != SPIPE_PRIV_OP_NONE) {
            e = spipe_priv_issue_watched(p, op, &at);
            op += op->num; /* the last of several copies has what is recorded after them */
        }
        if (e == cudaSuccess && op->done) e = cudaEventRecord(op->done, op->stream);
        if (e != cudaSuccess) return spipe_priv_issue_failed(p, op, at.chunk, e);
    }
    return e == cudaSuccess ? e : spipe_priv_issue_failed(p, op, at.chunk, e);
}
