/* ---- 12 execute: in a forked process -------------------------------------------------------
   Frees a pipeline where CUDA does not work, threads are missing and locks may be held for ever. */
SPIPE_PRIV_RARE void spipe_priv_forget(spipe_priv_pipeline_t *p) {
    size_t k;
    int i;
    for (i = 0; i < SPIPE_PRIV_NUM_QUEUES && !p->provider; ++i) {
        const spipe_priv_queue_t *q = &p->workers.queues[i];
        for (k = 0; k < q->num_threads; ++k) free(q->threads[k]);
    }
    free(p->workers.block);
    free((void *)p->memory.apart);
    free(p->memory.pinned_base);
    free((void *)p->program.ops);
    free((void *)p->run.positions);
    if (p->memory.slots != &p->memory.single) free((void *)p->memory.slots);
    spipe_priv_drop_thrown(&p->thrown);
    spipe_priv_sync_destroy(p->sync);
    free(p);
}
