/* ---- 4 execute: in a forked process --------------------------------------------------------
   Frees a pipeline where CUDA does not work, threads are missing and locks may be held for ever. */
SPIPE_PRIV_RARE void spipe_priv_forget(spipe_priv_pipeline_t *p) {
    size_t k;
    for (k = 0; k < p->workers.num_threads && !p->provider; ++k) free(p->workers.threads[k]);
    free((void *)p->memory.apart);
    free(p->memory.pinned_base);
    free((void *)p->program.ops);
    if (p->memory.slots != &p->memory.single) free((void *)p->memory.slots);
    spipe_priv_drop_thrown(&p->thrown);
    spipe_priv_sync_destroy(p->sync);
    free(p);
}
