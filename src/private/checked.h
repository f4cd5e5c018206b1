/* ---- 4 execute: checked runs ---------------------------------------------------------------
   What a checked run (desc.checked) checks besides errors of the GPU: that a stage puts its work on
   its stream, stays within its buffers, and keeps its promises. It is slow; other runs do none of
   this. */
enum {
    SPIPE_PRIV_GUARD_BYTE = 0xA5
};

/* Compares the bytes at `at`, in host or device memory, with `with` or, if that is NULL, with the
   guards' byte; or writes that byte (look = 0). It uses the stage's stream, because the default
   stream would wait for others. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_look(unsigned char *at, size_t bytes,
                                            const unsigned char *with, int look,
                                            cudaStream_t stream, int *same) {
    const unsigned char guard = SPIPE_PRIV_GUARD_BYTE;
    unsigned char *seen = (unsigned char *)malloc(bytes + 1);
    cudaError_t e;
    size_t n = 0;
    if (!seen) return cudaErrorMemoryAllocation;
    memset(seen, guard, bytes);
    if (look)
        e = cudaMemcpyAsync(seen, at, bytes, cudaMemcpyDefault, stream);
    else
        e = cudaMemcpyAsync(at, seen, bytes, cudaMemcpyDefault, stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(stream);
    while (n < bytes && seen[n] == (with ? with[n] : guard)) ++n;
    *same = n == bytes;
    free(seen);
    return e;
}

/* What a stage must not change. With zero-copy inputs are the user's own arrays; a stage that
   promised to be elementwise may get zero-copy in other runs, so it must not change any input
   either. Inputs in device memory are not compared, because the CPU cannot read them. What a host
   stage declared only to read is not brought back to the device, so it must be as it is there. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_inputs(spipe_priv_pipeline_t *p,
                                                    const spipe_priv_op_t *op,
                                                    const spipe_priv_at_t *at) {
    const spipe_stage_desc_t *s = &p->request.desc.stages[op->stage];
    int i, same;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        const unsigned char *with;
        if (s->host) {
            if (!at->slot->dev[i] || !(s->reads & ~s->writes & SPIPE_BIT(i))) continue;
            with = at->slot->mirror[op->stage][i];
        } else {
            if (!spipe_priv_is_input(b->kind) || p->request.arrays[i].type == SPIPE_PRIV_DEVICE)
                continue;
            if (!s->elementwise && !spipe_priv_used_in_place(&p->request, &p->plan, i)) continue;
            with = (const unsigned char *)b->host + at->first * b->elem_bytes;
        }
        SPIPE_TRY(
            spipe_priv_look(s->host ? at->slot->dev[i] : (unsigned char *)at->slot->view.data[i],
                            at->count * b->elem_bytes, with, 1, op->stream, &same));
        if (same) continue;
        return spipe_priv_fail(p, NULL, cudaErrorInvalidValue, op->stage, at->chunk,
                               s->host ? "host stage '%s' wrote into buffer %d at chunk %zu; add "
                                         "SPIPE_BIT(%d) to what it writes"
                                       : "stage '%s' wrote into buffer %d, an input, at chunk %zu; "
                                         "zero-copy would change your array: make it in/out",
                               s->name, i, at->chunk, i);
    }
    return cudaSuccess;
}

/* Fills the guards of the buffers that a stage sees before the stage, or compares them after it.
   One guard is before the halo, one after the last element; in the last chunk, which may be
   shorter, the second includes the rest of the slot. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_guards(spipe_priv_pipeline_t *p, const spipe_priv_op_t *op,
                                              const spipe_priv_at_t *at, int look) {
    const spipe_stage_desc_t *stage = &p->request.desc.stages[op->stage];
    const size_t guard = p->memory.guard, left = p->plan.chunk - at->count;
    int i, k, whole;
    for (i = 0; i < p->request.desc.num_buffers && guard > 0; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        const size_t size = b->elem_bytes;
        const int resident = spipe_priv_kind(b->kind)->once;
        unsigned char *data = resident ? p->memory.resident[i] : at->slot->dev[i];
        if (!data && at->slot->pin_in[i]) data = at->slot->pin_in[i]; /* with zero-copy */
        if (!data) data = at->slot->pin_out[i];
        if (stage->host) data = at->slot->mirror[op->stage][i];
        if (p->request.apart && !stage->host && (resident || at->slot->dev[i])) {
            continue; /* the tool sees accesses past an allocation */
        }
        for (k = 0; k < 2 && data; ++k) {
            unsigned char *from = data - b->halo_before * size - guard;
            size_t bytes = guard;
            if (k == 1) {
                from = data + (resident ? 1 : at->count + b->halo_after) * size;
                bytes += resident ? 0 : left * size;
            }
            SPIPE_TRY(spipe_priv_look(from, bytes, NULL, look, op->stream, &whole));
            if (whole) continue;
            return spipe_priv_fail(p, NULL, cudaErrorInvalidValue, op->stage, at->chunk,
                                   "stage '%s' wrote %s buffer %d (%s) at chunk %zu, which has "
                                   "%zu elements; does it compare its index with count?",
                                   stage->name, k ? "past the end of" : "before the beginning of",
                                   i, spipe_priv_kind(b->kind)->name, at->chunk, at->count);
        }
    }
    return cudaSuccess;
}

/* Bytes of a random-looking pattern, from number `from` on. Elements of an output carry it before
   the stages; where they still do after them, no stage has written. */
SPIPE_PRIV_RARE void spipe_priv_pattern(unsigned char *to, size_t from, size_t bytes) {
    for (; bytes > 0; --bytes, ++from) {
        uint32_t x = (uint32_t)from * 2654435761u;
        x = (x ^ x >> 15) * 739982445u;
        *to++ = (unsigned char)((x ^ x >> 12) >> 24);
    }
}

/* Elements in a row that carry the pattern, and the first of them; 0: there are none. By chance a
   stage writes 8 bytes of it once in 2^64 times; at a chunk's ends, where a kernel that does too
   little stops, 4 bytes are enough. */
SPIPE_PRIV_RARE size_t spipe_priv_unwritten(const unsigned char *seen, const unsigned char *pattern,
                                            size_t count, size_t size, size_t *first) {
    size_t i, n;
    for (i = 0; i < count; i += n + 1) {
        for (n = 0; i + n < count; ++n) {
            if (memcmp(seen + (i + n) * size, pattern + (i + n) * size, size) != 0) break;
        }
        *first = i;
        if (n * size >= (i == 0 || i + n == count ? 4u : 8u)) return n;
    }
    return 0;
}

/* Writes the pattern into what stages are to write of a buffer: memory on the device, or the slot
   where there is none, and the mirrors of host stages that write without reading. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_mark_output(const spipe_priv_pipeline_t *p, int i,
                                                   const spipe_priv_op_t *op,
                                                   const spipe_priv_at_t *at,
                                                   const unsigned char *pattern, size_t bytes) {
    const spipe_priv_slot_t *slot = at->slot;
    unsigned char *data = slot->dev[i] ? slot->dev[i] : slot->pin_out[i];
    int s;
    SPIPE_TRY(cudaMemcpyAsync(data, pattern, bytes, cudaMemcpyDefault, op->stream));
    for (s = 0; s < p->request.desc.num_stages && slot->mirror; ++s) {
        const spipe_stage_desc_t *stage = &p->request.desc.stages[s];
        if (!stage->host || !(stage->writes & ~stage->reads & SPIPE_BIT(i))) continue;
        memcpy(slot->mirror[s][i], pattern, bytes);
    }
    return cudaStreamSynchronize(op->stream);
}

/* Looks whether anything has written all of a buffer. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_output(spipe_priv_pipeline_t *p, int i,
                                                    const spipe_priv_op_t *op,
                                                    const spipe_priv_at_t *at,
                                                    unsigned char *pattern, size_t bytes) {
    const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
    const spipe_priv_slot_t *slot = at->slot;
    const unsigned char *data = slot->dev[i] ? slot->dev[i] : slot->pin_out[i];
    const int pulled = p->request.desc.num_stages == 0;
    unsigned char *seen = pattern + bytes;
    size_t n, first = 0;
    SPIPE_TRY(cudaMemcpyAsync(seen, data, bytes, cudaMemcpyDefault, op->stream));
    SPIPE_TRY(cudaStreamSynchronize(op->stream));
    n = spipe_priv_unwritten(seen, pattern, at->count, b->elem_bytes, &first);
    if (n == 0) return cudaSuccess;
    return spipe_priv_fail(p, NULL, cudaErrorInvalidValue, -1, at->chunk,
                           "%s wrote elements %zu to %zu of buffer %d (%s), at chunk %zu, which "
                           "has %zu from %zu; %s",
                           pulled ? "nothing" : "no stage", at->first + first,
                           at->first + first + n - 1, i, spipe_priv_kind(b->kind)->name, at->chunk,
                           at->count, at->first,
                           pulled ? "was it released before the work on it, or is a grid too small?"
                                  : "is the grid too small?");
}

/* Marks the outputs before the stages, or looks for the mark after them. An in/out buffer has
   elements to keep; an output that is used in place may be an input, too. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_outputs(spipe_priv_pipeline_t *p, const spipe_priv_op_t *op,
                                               const spipe_priv_at_t *at) {
    int i;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        const size_t bytes = at->count * b->elem_bytes;
        unsigned char *pattern;
        cudaError_t e;
        if (spipe_priv_kind(b->kind)->in || !spipe_priv_kind(b->kind)->out) continue;
        if (!at->slot->dev[i] && !at->slot->pin_out[i]) continue;
        pattern = (unsigned char *)malloc(2 * bytes + 1);
        if (!pattern) return cudaErrorMemoryAllocation;
        spipe_priv_pattern(pattern, at->first * b->elem_bytes, bytes);
        if (op->step == SPIPE_PRIV_STEP_IN)
            e = spipe_priv_mark_output(p, i, op, at, pattern, bytes);
        else
            e = spipe_priv_check_output(p, i, op, at, pattern, bytes);
        free(pattern);
        if (e != cudaSuccess) return e;
    }
    return cudaSuccess;
}

/* Checks what a step did, after it was waited for. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_check_after(spipe_priv_pipeline_t *p,
                                                   const spipe_priv_op_t *op,
                                                   const spipe_priv_at_t *at) {
    if (op->step == SPIPE_PRIV_STEP_IN || op->step == SPIPE_PRIV_STEP_OUT) {
        return spipe_priv_outputs(p, op, at);
    }
    if (op->step != SPIPE_PRIV_STEP_STAGE && op->step != SPIPE_PRIV_STEP_HOST_END) {
        return cudaSuccess;
    }
    SPIPE_TRY(spipe_priv_guards(p, op, at, 1));
    return spipe_priv_check_inputs(p, op, at);
}

/* Adds bytes to a hash (FNV-1a). */
SPIPE_PRIV_RARE void spipe_priv_hash(uint64_t *hash, const void *data, size_t bytes) {
    const unsigned char *at = (const unsigned char *)data;
    for (; bytes > 0; --bytes, ++at) *hash = (*hash ^ *at) * (uint64_t)1099511628211;
}

SPIPE_PRIV_RARE void spipe_priv_hash_kernel(uint64_t *hash, cudaGraphNode_t node) {
    struct cudaKernelNodeParams k;
#if CUDART_VERSION >= 12040 /* older toolkits do not tell how large arguments are */
    size_t i, offset, bytes;
#endif
    memset((void *)&k, 0, sizeof k);
    if (cudaGraphKernelNodeGetParams(node, &k) != cudaSuccess) return;
    spipe_priv_hash(hash, &k.func, sizeof k.func);
    spipe_priv_hash(hash, &k.gridDim, sizeof k.gridDim);
    spipe_priv_hash(hash, &k.blockDim, sizeof k.blockDim);
    spipe_priv_hash(hash, &k.sharedMemBytes, sizeof k.sharedMemBytes);
#if CUDART_VERSION >= 12040
    for (i = 0; k.kernelParams; ++i) {
        if (cudaFuncGetParamInfo(k.func, i, &offset, &bytes) != cudaSuccess) break;
        if (bytes > sizeof(void *)) continue; /* a struct: its padding may differ */
        spipe_priv_hash(hash, k.kernelParams[i], bytes);
    }
#endif
}

/* Hashes a kernel with its arguments, a copy or a memset; of other nodes only the kind. Arguments
   that CUDA does not give, as of kernels from libraries, count as equal. */
SPIPE_PRIV_RARE void spipe_priv_hash_node(uint64_t *hash, cudaGraphNode_t node) {
    struct cudaMemcpy3DParms copy;
    struct cudaMemsetParams set;
    enum cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    memset((void *)&copy, 0, sizeof copy);
    memset((void *)&set, 0, sizeof set);
    (void)cudaGraphNodeGetType(node, &type);
    spipe_priv_hash(hash, &type, sizeof type);
    if (type == cudaGraphNodeTypeKernel) spipe_priv_hash_kernel(hash, node);
    if (type == cudaGraphNodeTypeMemcpy && !cudaGraphMemcpyNodeGetParams(node, &copy)) {
        spipe_priv_hash(hash, &copy, sizeof copy);
    }
    if (type == cudaGraphNodeTypeMemset && !cudaGraphMemsetNodeGetParams(node, &set)) {
        spipe_priv_hash(hash, &set, sizeof set);
    }
}

/* A stage that promised to be replayable must enqueue what it did in the run before. Compared for
   the first chunk of each run of a kept pipeline, where the stage saw the same chunk: what depends
   on its length or its memory may differ with them. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_compare_work(spipe_priv_pipeline_t *p, int stage,
                                                    const spipe_chunk_t *c, cudaGraph_t graph,
                                                    size_t num) {
    cudaGraphNode_t *nodes = (cudaGraphNode_t *)malloc(num * sizeof *nodes);
    uint64_t hash = (uint64_t)14695981039346656037u, seen = hash;
    const uint64_t saw = p->program.replay.work[stage].seen,
                   before = p->program.replay.work[stage].enqueued;
    cudaError_t e;
    size_t k;
    if (!nodes) return cudaErrorMemoryAllocation;
    e = cudaGraphGetNodes(graph, nodes, &num);
    for (k = 0; k < num && e == cudaSuccess; ++k) spipe_priv_hash_node(&hash, nodes[k]);
    free((void *)nodes);
    (void)cudaGetLastError(); /* clear the errors of unanswered queries */
    if (e != cudaSuccess || !p->request.desc.stages[stage].replayable) return e;
    spipe_priv_hash(&seen, &c->count, sizeof c->count);
    spipe_priv_hash(&seen, &c->total, sizeof c->total);
    spipe_priv_hash(&seen, (const void *)c->data, (size_t)c->num_buffers * sizeof c->data[0]);
    p->program.replay.work[stage].seen = seen;
    p->program.replay.work[stage].enqueued = hash;
    if (saw != seen || before == hash) return e;
    return spipe_priv_fail(p, NULL, cudaErrorInvalidValue, stage, 0,
                           "stage '%s' promised to be replayable, but enqueues other work than in "
                           "the run before, and a replay would repeat the old; do not promise it, "
                           "or let the kernel read from device memory what changes",
                           p->request.desc.stages[stage].name);
}

/* Runs what a stage put into a graph; nothing there means that it used another stream. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_run_captured(spipe_priv_pipeline_t *p,
                                                    const spipe_priv_op_t *op,
                                                    const spipe_priv_at_t *at, cudaGraph_t graph) {
    cudaGraphExec_t exec = NULL;
    size_t nodes = 0;
    cudaError_t e = cudaGraphGetNodes(graph, NULL, &nodes);
    if (e == cudaSuccess && nodes == 0) {
        return spipe_priv_fail(p, NULL, cudaErrorInvalidValue, op->stage, at->chunk,
                               "stage '%s' put nothing on its stream; enqueue on chunk->stream, "
                               "not on another",
                               p->request.desc.stages[op->stage].name);
    }
    if (e == cudaSuccess && p->program.replay.compare_work) {
        e = p->program.replay.compare_work(p, op->stage, &at->slot->view, graph, nodes);
    }
    if (e == cudaSuccess) e = cudaGraphInstantiateWithFlags(&exec, graph, 0);
    if (e == cudaSuccess) e = cudaGraphLaunch(exec, op->stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(op->stream);
    if (exec) spipe_priv_keep_error(&e, cudaGraphExecDestroy(exec));
    return e;
}

SPIPE_PRIV_RARE int spipe_priv_of_capture(cudaError_t e) {
    return e >= cudaErrorStreamCaptureUnsupported && e <= cudaErrorStreamCaptureWrongThread;
}

/* Whether a stage failed because its stream is captured. e: what the stage returned; left: CUDA's
   last error after it; captured: what cudaStreamEndCapture returned. CUDA's last error decides if
   there is one: a wrong launch is the stage's own error, although it breaks the capture, too. */
SPIPE_PRIV_RARE int spipe_priv_is_uncapturable(cudaError_t e, cudaError_t left,
                                               cudaError_t captured) {
    if (left != cudaSuccess) return spipe_priv_of_capture(left);
    return captured != cudaSuccess || spipe_priv_of_capture(e);
}

/* For the first chunk the stage is called while its stream is captured, which shows whether it uses
   that stream. A stage that does what a capture forbids is called again without capture. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_call_captured(spipe_priv_pipeline_t *p,
                                                     const spipe_priv_op_t *op,
                                                     const spipe_priv_at_t *at) {
    const spipe_stage_desc_t *stage = &p->request.desc.stages[op->stage];
    const spipe_chunk_t *c = &at->slot->view;
    cudaGraph_t graph = NULL;
    cudaError_t e, left, captured;
    if (cudaStreamBeginCapture(op->stream, cudaStreamCaptureModeRelaxed) != cudaSuccess) {
        (void)cudaGetLastError();
        return spipe_priv_issue_call(p, op, at);
    }
    p->note.never_written = spipe_priv_never_written(p, stage);
    (void)spipe_priv_set_mode(p->visit.mode);
    SPIPE_PRIV_CALL(NULL, &p->note.thrown, &p->note, e, stage->fn(c, stage->user),
                    cudaErrorUnknown);
    (void)spipe_priv_own_calls();
    left = cudaPeekAtLastError(); /* of a launch that the stage did not check */
    if (left == p->run.at.found || left == cudaErrorNotReady) left = cudaSuccess;
    if (e == cudaSuccess) e = left;
    captured = cudaStreamEndCapture(op->stream, &graph);
    if (p->note.error == cudaSuccess && spipe_priv_is_uncapturable(e, left, captured)) {
        (void)cudaGetLastError();
        if (graph) (void)cudaGraphDestroy(graph);
        return spipe_priv_issue_call(p, op, at);
    }
    if (e != cudaSuccess || p->note.error != cudaSuccess) {
        if (graph) (void)cudaGraphDestroy(graph);
        return spipe_priv_stage_failed(p, e, op->stage, c);
    }
    e = spipe_priv_run_captured(p, op, at, graph);
    spipe_priv_keep_error(&e, cudaGraphDestroy(graph));
    return e;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_checked(spipe_priv_pipeline_t *p,
                                                     const spipe_priv_op_t *op,
                                                     const spipe_priv_at_t *at) {
    if (p->run.mode != SPIPE_PRIV_CAPTURED) SPIPE_TRY(spipe_priv_guards(p, op, at, 0));
    spipe_priv_view(p, at, &at->slot->view);
    at->slot->view.stream = op->stream;
    if (at->chunk == 0 && p->run.mode != SPIPE_PRIV_CAPTURED)
        return spipe_priv_call_captured(p, op, at);
    return spipe_priv_issue_call(p, op, at);
}
