/* ---- 12 execute: issuing -------------------------------------------------------------------
   The loop that puts a slot's program into the streams for one batch. It has no modes: the program
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
SPIPE_API cudaError_t spipe_priv_issue_halo(spipe_priv_pipeline_t *p, const spipe_priv_at_t *at,
                                            int i, cudaStream_t stream) {
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
    const size_t batches = at->batch + 1;
    if (p->run.mode == SPIPE_PRIV_CAPTURED) return cudaSuccess;
    SPIPE_TRY(cudaStreamSynchronize(op->stream));
    SPIPE_TRY(spipe_priv_check_after(p, op, at));
    switch (op->counts) {
    case SPIPE_PRIV_COUNTS_COPIED_IN: spipe_priv_count_polled(p, SPIPE_PRIV_FILL, batches); break;
    case SPIPE_PRIV_COUNTS_DRAINABLE: spipe_priv_count_polled(p, SPIPE_PRIV_DRAIN, batches); break;
    case SPIPE_PRIV_COUNTS_WHOLE:
        if (p->run.mode == SPIPE_PRIV_WAITED_FOR) spipe_priv_set(p, &p->run.at.completed, batches);
        break;
    default: break;
    }
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_host_begin(spipe_priv_pipeline_t *p,
                                                        const spipe_priv_op_t *op,
                                                        const spipe_priv_at_t *at) {
    SPIPE_TRY(spipe_priv_guards(p, op, at, 0));
    SPIPE_TRY(cudaEventRecord(at->slot->stage_done[op->stage], op->stream));
    SPIPE_TRY(spipe_priv_await_work(p, op->stage, at->batch, 1));
    spipe_priv_post_host(p, op->stage, at->batch);
    return cudaSuccess;
}

/* The rarer operations; kept out of the loop that issues, which stays small. */
SPIPE_PRIV_ATTRIBUTE((cold))

SPIPE_API cudaError_t spipe_priv_issue_other(spipe_priv_pipeline_t *p, const spipe_priv_op_t *op,
                                             spipe_priv_at_t *at) {
    cudaError_t e = cudaSuccess;
    switch (op->what & (SPIPE_PRIV_OP_WATCHED - 1)) {
    case SPIPE_PRIV_OP_COPY: return spipe_priv_issue_copy(p, op, at);
    case SPIPE_PRIV_OP_CALL: return spipe_priv_issue_call(p, op, at);
    case SPIPE_PRIV_OP_COPIES: return spipe_priv_issue_copies(p, op, at);
    case SPIPE_PRIV_OP_HALO: return spipe_priv_issue_halo(p, at, op->stage, op->stream);
    case SPIPE_PRIV_OP_SYNC: return spipe_priv_issue_sync(p, op, at);
    case SPIPE_PRIV_OP_CHECKED_CALL: return spipe_priv_issue_checked(p, op, at);
    case SPIPE_PRIV_OP_HOST_BEGIN: return spipe_priv_issue_host_begin(p, op, at);
    case SPIPE_PRIV_OP_FILLED:
        e = spipe_priv_await(p, &at->slot->filled, at->batch + 1, at->batch);
        if (e == cudaSuccess) at->count = spipe_priv_count_of(p, at->batch);
        if (SPIPE_PRIV_LOAD(p->run.stop_asked)) at->count = 0; /* it may not have been read */
        if (e == cudaSuccess) spipe_priv_model_await(p, SPIPE_PRIV_FILL, -1, at->batch);
        return e;
    case SPIPE_PRIV_OP_DRAINED: /* a copy or a stage writes the pinned slot next: wait */
        if (at->batch < p->plan.depth) return cudaSuccess;
        e = spipe_priv_await(p, &at->slot->drained, at->batch - p->plan.depth + 1, at->batch);
        if (e != cudaSuccess) return e;
        spipe_priv_model_await(p, SPIPE_PRIV_DRAIN, -1, at->batch - p->plan.depth);
        return e;
    case SPIPE_PRIV_OP_HOST_END:
        e = spipe_priv_await(p, &at->slot->host_done[op->stage], at->batch + 1, at->batch);
        if (e != cudaSuccess) return e;
        spipe_priv_model_await(p, SPIPE_PRIV_HOST, op->stage, at->batch);
        return e;
    default: /* IN_END */
        if (op->counts) spipe_priv_count_polled(p, SPIPE_PRIV_FILL, at->batch + 1);
        if (p->route.refill != SPIPE_PRIV_REFILL_COPIED_IN) return cudaSuccess;
        spipe_priv_post_after(p, SPIPE_PRIV_FILL, -1, at->batch + p->plan.depth,
                              &p->run.at.issued_in);
        return cudaSuccess;
    }
}

/* The same, with the timeline's watcher around it. */
SPIPE_PRIV_ATTRIBUTE((cold))

SPIPE_API cudaError_t spipe_priv_issue_watched(spipe_priv_pipeline_t *p, const spipe_priv_op_t *op,
                                               spipe_priv_at_t *at) {
    cudaError_t e;
    spipe_priv_notify(p, SPIPE_PRIV_WATCH_OP, op, at->batch, 0);
    e = spipe_priv_issue_other(p, op, at);
    spipe_priv_notify(p, SPIPE_PRIV_WATCH_OP, op, at->batch, 1);
    return e;
}

/* Several GPUs: a batch's position is known before it is issued. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_await_position(spipe_priv_pipeline_t *p, size_t batch) {
    const size_t *filled = &p->memory.slots[batch % p->plan.depth].filled;
    if (!p->run.positions) return cudaSuccess;
    if (p->route.refill != SPIPE_PRIV_REFILL_NEVER) {
        return spipe_priv_await(p, filled, batch + 1, batch);
    }
    if (batch == p->run.at.num_positions) spipe_priv_take_position(p, batch);
    return cudaSuccess;
}

/* After a failure of a user's function: nothing is issued from that batch on, and the batches
   before it are completed. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_end_early(spipe_priv_pipeline_t *p, cudaError_t e) {
    const size_t end = SPIPE_PRIV_LOAD(p->run.failed_batch);
    if (p->run.mode != SPIPE_PRIV_WAITED_FOR) return e;
    if (SPIPE_PRIV_LOAD(p->run.failed) != SPIPE_PRIV_FAILED_IN_CALL) return e;
    if (p->run.cut_from == 0) p->run.cut_from = p->run.num_batches;
    if (end < p->run.num_batches) spipe_priv_set(p, &p->run.num_batches, end);
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_failed(spipe_priv_pipeline_t *p,
                                                    const spipe_priv_op_t *op, size_t batch,
                                                    cudaError_t e) {
    const int copies = op->step == SPIPE_PRIV_STEP_IN || op->step == SPIPE_PRIV_STEP_OUT;
    const char *way = op->step == SPIPE_PRIV_STEP_IN ? "copying in" : "copying out";
    if (copies)
        e = spipe_priv_check_step(p, e, -1, batch, way);
    else
        e = spipe_priv_check_step(p, e, op->stage, batch, NULL);
    return spipe_priv_end_early(p, e);
}

/* A batch of no elements: the sources ended before it. If count is not set, the sources are asked
   once more at that batch, because only that shows a source that is longer; this waits for it. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_end(spipe_priv_pipeline_t *p, size_t batch) {
    const size_t *filled = &p->memory.slots[batch % p->plan.depth].filled;
    if (p->run.endless && !p->run.positions) {
        const cudaError_t e = spipe_priv_await(p, filled, batch + 1, batch);
        if (e != cudaSuccess) return spipe_priv_end_early(p, e);
    }
    spipe_priv_set(p, &p->run.num_batches, batch);
    return cudaSuccess;
}

/* Issues operations first .. last-1 of a batch's program. */
SPIPE_PRIV_OFTEN cudaError_t spipe_priv_issue(spipe_priv_pipeline_t *p, size_t first, size_t last,
                                              size_t batch) {
    spipe_priv_at_t at;
    const spipe_priv_op_t *op, *end;
    cudaError_t e = cudaSuccess;
    if (p->run.positions) e = spipe_priv_await_position(p, batch);
    if (e != cudaSuccess) return spipe_priv_end_early(p, e);
    op = p->program.ops + spipe_priv_locate(p, batch, &at) * p->program.num_ops;
    end = at.count > 0 ? op + last : op;
    for (op += first; op < end; ++op) {
        if (op->wait && batch >= op->since) {
            e = cudaStreamWaitEvent(op->stream, op->wait, 0);
            if (e != cudaSuccess) break;
        }
        if (op->what == SPIPE_PRIV_OP_COPY) {
            e = spipe_priv_issue_copy(p, op, &at);
        } else if (op->what == SPIPE_PRIV_OP_CALL) {
            e = spipe_priv_issue_call(p, op, &at);
        } else if (op->what != SPIPE_PRIV_OP_NONE) {
            e = spipe_priv_issue_watched(p, op, &at);
            if (e == cudaSuccess && at.count == 0) break; /* the sources have ended */
            op += op->num; /* the last of several copies has what is recorded after them */
        }
        if (e == cudaSuccess && op->done) e = cudaEventRecord(op->done, op->stream);
        if (e != cudaSuccess) break;
    }
    if (e != cudaSuccess) return spipe_priv_issue_failed(p, op, batch, e);
    if (at.count == 0) return spipe_priv_issue_end(p, batch);
    return cudaSuccess;
}
