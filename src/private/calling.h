/* ---- 4 execute: calling stages -------------------------------------------------------------
   Calls a stage's function for a chunk, and words its failure. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_stage_failed(spipe_priv_pipeline_t *p, cudaError_t e, int s,
                                                    const spipe_chunk_t *c) {
    const char *why = spipe_priv_why(&p->note, &e);
    spipe_priv_leave_error(p->run.at.found);
    if (p->note.error == cudaSuccess && spipe_priv_stays(p, e)) {
        return spipe_priv_check_step(p, e, s, c->index, NULL);
    }
    e = spipe_priv_fail(p, &p->note, e, s, c->index, "stage '%s' failed at chunk %zu: %s",
                        p->request.desc.stages[s].name, c->index, why);
    p->note.error = cudaSuccess; /* stages of earlier chunks may follow */
    return e;
}

/* Inputs that a stage may not write: all of an elementwise stage, and the user's arrays. */
SPIPE_PRIV_OFTEN unsigned spipe_priv_never_written(const spipe_priv_pipeline_t *p,
                                                   const spipe_stage_desc_t *stage) {
    return stage->elementwise ? ~0u : p->memory.in_place;
}

SPIPE_PRIV_OFTEN cudaError_t spipe_priv_call_stage(spipe_priv_pipeline_t *p, int s,
                                                   const spipe_chunk_t *c) {
    const spipe_stage_desc_t *stage = &p->request.desc.stages[s];
    cudaError_t e, left;
    p->note.never_written = spipe_priv_never_written(p, stage);
    SPIPE_PRIV_CALL(NULL, &p->note.thrown, &p->note, e, stage->fn(c, stage->user),
                    cudaErrorUnknown);
    left = cudaPeekAtLastError(); /* an error of a launch that the stage did not check */
    if (e == cudaSuccess && left != p->run.at.found && left != cudaErrorNotReady) e = left;
    if (e == cudaSuccess && p->note.error == cudaSuccess) return e;
    return spipe_priv_stage_failed(p, e, s, c);
}

SPIPE_PRIV_OFTEN cudaError_t spipe_priv_issue_call(spipe_priv_pipeline_t *p,
                                                   const spipe_priv_op_t *op,
                                                   const spipe_priv_at_t *at) {
    cudaError_t e;
    spipe_priv_view(p, at, &at->slot->view);
    at->slot->view.stream = op->stream;
    (void)spipe_priv_set_mode(p->visit.mode);
    e = spipe_priv_call_stage(p, op->stage, &at->slot->view);
    (void)spipe_priv_own_calls();
    return e;
}
