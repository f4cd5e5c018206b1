/* ---- 13 execute: checked runs --------------------------------------------------------------
   What a run with sync_each looks at beside the errors of the GPU: that a stage puts its work on
   its stream, keeps within its buffers, and keeps its promises. Slow; other runs do none of it. */
enum {
    SPIPE_PRIV_GUARD_BYTE = 0xA5
};

/* Copies what a stage has to do with, on its own stream: the default one would wait for others. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_look(void *to, const void *from, size_t bytes,
                                            cudaStream_t stream) {
    SPIPE_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
    return cudaStreamSynchronize(stream);
}

/* A stage that promised to be elementwise must leave inputs as they are, because with
   zero-copy they are the user's own arrays. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_inputs(spipe_priv_pipeline_t *p, int stage,
                                                    const spipe_priv_at_t *at,
                                                    cudaStream_t stream) {
    int i;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        const size_t bytes = at->count * b->elem_bytes;
        const int copied = p->route.path[i] != SPIPE_PRIV_PATH_ZERO_COPY;
        unsigned char *seen;
        cudaError_t e;
        int same;
        if (b->kind != SPIPE_INPUT || !copied || bytes == 0) continue;
        if (p->request.arrays[i].type == SPIPE_PRIV_DEVICE)
            continue; /* which the CPU cannot read */
        seen = (unsigned char *)malloc(bytes);
        if (!seen) return cudaErrorMemoryAllocation;
        e = spipe_priv_look(seen, at->slot->view.data[i], bytes, stream);
        same = memcmp(seen, (unsigned char *)b->host + at->first * b->elem_bytes, bytes) == 0;
        free(seen);
        SPIPE_TRY(e);
        if (same) continue;
        return spipe_priv_fail(p, cudaErrorInvalidValue, stage, at->batch,
                               "stage '%s' wrote into buffer %d, an input, at chunk %zu; it "
                               "promised to be elementwise, and with zero-copy that changes your "
                               "array: make the buffer in/out",
                               p->request.desc.stages[stage].name, i, at->slot->view.index);
    }
    return cudaSuccess;
}

/* A stretch of memory that no stage may write. */
typedef struct spipe_priv_stretch {
    unsigned char *at;
    size_t bytes;
} spipe_priv_stretch_t;

/* The guards of a buffer whose first element is at data: before its halo, and from its last element
   on. In the last chunk, which may be short, what is left of the slot belongs to the second. */
SPIPE_PRIV_RARE void spipe_priv_guards_of(const spipe_priv_pipeline_t *p, int i, size_t count,
                                          unsigned char *data, spipe_priv_stretch_t *of) {
    const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
    const size_t guard = p->memory.guard, size = b->elem_bytes;
    const int resident = b->kind == SPIPE_RESIDENT;
    const size_t own = resident ? size : (count + b->halo_after) * size;
    const size_t left = resident ? 0 : (p->run.batch_elems - count) * size;
    of[0].at = data - b->halo_before * size - guard;
    of[0].bytes = guard;
    of[1].at = data + own;
    of[1].bytes = left + guard;
}

SPIPE_PRIV_RARE unsigned char *spipe_priv_guarded(const spipe_priv_pipeline_t *p,
                                                  const spipe_priv_slot_t *slot, int i) {
    const int resident = p->request.desc.buffers[i].kind == SPIPE_RESIDENT;
    return resident ? p->memory.resident[i] : slot->dev[i];
}

/* Before a stage on the device: fills the guards of all that it sees. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_guard_device(spipe_priv_pipeline_t *p,
                                                    const spipe_priv_at_t *at,
                                                    cudaStream_t stream) {
    spipe_priv_stretch_t of[2];
    int i, k;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        unsigned char *data = spipe_priv_guarded(p, at->slot, i);
        if (!data) continue;
        spipe_priv_guards_of(p, i, at->count, data, of);
        for (k = 0; k < 2; ++k) {
            SPIPE_TRY(cudaMemsetAsync(of[k].at, SPIPE_PRIV_GUARD_BYTE, of[k].bytes, stream));
        }
    }
    return cudaSuccess;
}

/* The same before a host stage. */
SPIPE_PRIV_RARE void spipe_priv_guard_mirrors(spipe_priv_pipeline_t *p, int stage,
                                              const spipe_priv_at_t *at) {
    spipe_priv_stretch_t of[2];
    int i, k;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        unsigned char *data = at->slot->mirror[stage][i];
        if (!data) continue;
        spipe_priv_guards_of(p, i, at->count, data, of);
        for (k = 0; k < 2; ++k) memset(of[k].at, SPIPE_PRIV_GUARD_BYTE, of[k].bytes);
    }
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_say_written(spipe_priv_pipeline_t *p, int stage, int i,
                                                   int after, const spipe_priv_at_t *at) {
    return spipe_priv_fail(
        p, cudaErrorInvalidValue, stage, at->batch,
        "stage '%s' wrote %s buffer %d (%s) at chunk %zu, which has %zu "
        "elements; does it compare its index with count?",
        p->request.desc.stages[stage].name, after ? "past the end of" : "before the beginning of",
        i, spipe_priv_kind_name(p->request.desc.buffers[i].kind), at->position, at->count);
}

SPIPE_PRIV_RARE int spipe_priv_is_whole(const spipe_priv_stretch_t *s) {
    size_t n = 0;
    while (n < s->bytes && s->at[n] == SPIPE_PRIV_GUARD_BYTE) ++n;
    return n == s->bytes;
}

/* The same in device memory. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_see_whole(const spipe_priv_stretch_t *s, cudaStream_t stream,
                                                 int *whole) {
    spipe_priv_stretch_t seen;
    cudaError_t e;
    seen.bytes = s->bytes;
    seen.at = (unsigned char *)malloc(s->bytes);
    if (!seen.at) return cudaErrorMemoryAllocation;
    e = spipe_priv_look(seen.at, s->at, s->bytes, stream);
    *whole = e != cudaSuccess || spipe_priv_is_whole(&seen);
    free(seen.at);
    return e;
}

/* After a stage has ended: looks at the guards of a buffer, in host or device memory. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_guards(spipe_priv_pipeline_t *p,
                                                    const spipe_priv_op_t *op, int i,
                                                    unsigned char *data,
                                                    const spipe_priv_at_t *at) {
    const int host = p->request.desc.stages[op->stage].host;
    spipe_priv_stretch_t of[2];
    int k, whole = 1;
    spipe_priv_guards_of(p, i, at->count, data, of);
    for (k = 0; k < 2; ++k) {
        if (host)
            whole = spipe_priv_is_whole(&of[k]);
        else
            SPIPE_TRY(spipe_priv_see_whole(&of[k], op->stream, &whole));
        if (!whole) return spipe_priv_say_written(p, op->stage, i, k, at);
    }
    return cudaSuccess;
}

/* After a step that was waited for. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_after(spipe_priv_pipeline_t *p,
                                                   const spipe_priv_op_t *op,
                                                   const spipe_priv_at_t *at) {
    const int host = op->step == SPIPE_PRIV_STEP_HOST_END;
    int i;
    if (op->step != SPIPE_PRIV_STEP_STAGE && !host) return cudaSuccess;
    for (i = 0; i < p->request.desc.num_buffers && p->memory.guard > 0; ++i) {
        unsigned char *data =
            host ? at->slot->mirror[op->stage][i] : spipe_priv_guarded(p, at->slot, i);
        if (data) SPIPE_TRY(spipe_priv_check_guards(p, op, i, data, at));
    }
    if (host || !p->request.desc.stages[op->stage].elementwise) return cudaSuccess;
    return spipe_priv_check_inputs(p, op->stage, at, op->stream);
}

/* Runs what a stage put into a graph; nothing there means that it used another stream. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_run_captured(spipe_priv_pipeline_t *p,
                                                    const spipe_priv_op_t *op,
                                                    const spipe_priv_at_t *at, cudaGraph_t graph) {
    cudaGraphExec_t exec = NULL;
    size_t nodes = 0;
    cudaError_t e = cudaGraphGetNodes(graph, NULL, &nodes);
    if (e == cudaSuccess && nodes == 0) {
        return spipe_priv_fail(p, cudaErrorInvalidValue, op->stage, at->batch,
                               "stage '%s' put nothing on its stream; enqueue on chunk->stream, "
                               "not on the default stream or one of your own",
                               p->request.desc.stages[op->stage].name);
    }
    if (e == cudaSuccess) e = cudaGraphInstantiateWithFlags(&exec, graph, 0);
    if (e == cudaSuccess) e = cudaGraphLaunch(exec, op->stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(op->stream);
    if (exec) spipe_priv_keep_error(&e, cudaGraphExecDestroy(exec));
    return e;
}

/* The first chunk: the stage is called while its stream is captured, which shows whether it uses
   it. One that does what cannot be captured is called again, without. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_call_captured(spipe_priv_pipeline_t *p,
                                                     const spipe_priv_op_t *op,
                                                     const spipe_priv_at_t *at) {
    const spipe_stage_desc_t *stage = &p->request.desc.stages[op->stage];
    const spipe_chunk_t *c = &at->slot->view;
    cudaGraph_t graph = NULL;
    cudaError_t e, captured;
    if (cudaStreamBeginCapture(op->stream, cudaStreamCaptureModeRelaxed) != cudaSuccess) {
        (void)cudaGetLastError();
        return spipe_priv_call_stage(p, at->batch, op->stage, c);
    }
    SPIPE_PRIV_CALL(p->sync, &p->thrown, &p->note, e, stage->fn(c, stage->user), cudaErrorUnknown);
    captured = cudaStreamEndCapture(op->stream, &graph);
    if (p->note.error != cudaSuccess) {
        if (graph) (void)cudaGraphDestroy(graph);
        return spipe_priv_stage_failed(p, e, at->batch, op->stage, c);
    }
    if (e != cudaSuccess || captured != cudaSuccess) {
        (void)cudaGetLastError();
        if (graph) (void)cudaGraphDestroy(graph);
        return spipe_priv_call_stage(p, at->batch, op->stage, c);
    }
    e = spipe_priv_run_captured(p, op, at, graph);
    spipe_priv_keep_error(&e, cudaGraphDestroy(graph));
    return e;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_checked(spipe_priv_pipeline_t *p,
                                                     const spipe_priv_op_t *op,
                                                     const spipe_priv_at_t *at) {
    if (p->memory.guard > 0 && !p->run.capturing) {
        SPIPE_TRY(spipe_priv_guard_device(p, at, op->stream));
    }
    if (at->batch > 0 || p->run.capturing) return spipe_priv_issue_call(p, op, at);
    spipe_priv_view(p, at, &at->slot->view);
    at->slot->view.stream = op->stream;
    return spipe_priv_call_captured(p, op, at);
}
