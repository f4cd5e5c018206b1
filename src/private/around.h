/* ---- 13 execute: around a run ---------------------------------------------------------------
   What comes before the first chunk and after the last one in the streams: resident buffers, and
   the work that is on other streams. */

/* Copies resident buffers in, before the first chunk, or out, after the last one. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_move_resident(spipe_priv_pipeline_t *p, int out,
                                                     cudaStream_t base) {
    int i;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        const int copied = b->resident & (out ? SPIPE_DOWNLOAD : SPIPE_UPLOAD);
        void *dev = p->memory.resident[i];
        if (!spipe_priv_kind(b->kind)->once || (out && !copied)) continue;
        if (!copied) {
            SPIPE_TRY(cudaMemsetAsync(dev, 0, b->elem_bytes, base));
            continue;
        }
        p->run.moved[out] += b->elem_bytes;
        if (out)
            SPIPE_TRY(spipe_priv_copy_array(b->host, dev, b->elem_bytes, base));
        else
            SPIPE_TRY(spipe_priv_copy_array(dev, b->host, b->elem_bytes, base));
    }
    return cudaSuccess;
}

/* Where a wait for the only stream ends the run, resident buffers are copied out before that wait,
   which is then for both. An error that the copy returns is kept until after the wait: if it is a
   chunk's, the wait reports it with the chunk. */
SPIPE_PRIV_RARE void spipe_priv_resident_behind(spipe_priv_pipeline_t *p) {
    const int waited = !spipe_priv_needs_events(p) && !p->route.out_blocks && !p->route.drains;
    if (!waited || p->run.at.issued == 0 || p->request.desc.progress) return;
    if (!spipe_priv_has_resident(&p->request.desc) || p->run.failed || p->run.stop_asked) return;
    p->run.resident = spipe_priv_move_resident(p, 1, p->streams.streams[0]);
}

/* Makes all streams wait for what is on base. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_fork(spipe_priv_streams_t *s, cudaStream_t base) {
    int i;
    if (s->num == 1 && s->streams[0] == base) return cudaSuccess;
    SPIPE_TRY(cudaEventRecord(s->sync_event, base));
    for (i = 0; i < s->num; ++i) {
        if (s->streams[i] != base) {
            SPIPE_TRY(cudaStreamWaitEvent(s->streams[i], s->sync_event, 0));
        }
    }
    return cudaSuccess;
}

/* Makes base wait for all streams. One event is enough: a wait keeps the record that it found. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_join(spipe_priv_streams_t *s, cudaStream_t base) {
    int i;
    for (i = 0; i < s->num; ++i) {
        if (s->streams[i] == base) continue;
        SPIPE_TRY(cudaEventRecord(s->sync_event, s->streams[i]));
        SPIPE_TRY(cudaStreamWaitEvent(base, s->sync_event, 0));
    }
    return cudaSuccess;
}

/* Whether a kernel or a copy on the default stream may still write or read a host array that the
   GPU reaches: pinned, on the device, or copied by CUDA where the GPU reads host pages. */
SPIPE_PRIV_RARE int spipe_priv_gpu_reaches(const spipe_priv_pipeline_t *p, int i) {
    const spipe_priv_array_t *a = &p->request.arrays[i];
    if (!p->request.desc.buffers[i].host || a->pins) return 0;
    if (a->type != SPIPE_PRIV_PAGEABLE) return 1;
    return p->request.facts.pageable_access && p->route.path[i] == SPIPE_PRIV_PATH_COPIED;
}

/* Makes streams wait for the work that is on the current device's default stream: the first one, or
   all; or, with num 0, this thread. By an event on the thread's own stream, which does nothing
   before that work is done: an event on the default stream itself would join all streams of the
   process that are not non-blocking, and made runs of 4 KiB on 16 threads 7 times as slow. While
   that stream is being captured, there is nothing to wait for. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_wait_default(spipe_priv_streams_t *s, int num) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    int i;
    SPIPE_TRY(cudaStreamIsCapturing(cudaStreamPerThread, &status));
    if (status != cudaStreamCaptureStatusNone) return cudaSuccess;
    SPIPE_TRY(cudaEventRecord(s->sync_event, cudaStreamPerThread));
    if (num == 0) return cudaEventSynchronize(s->sync_event);
    for (i = 0; i < num; ++i) SPIPE_TRY(cudaStreamWaitEvent(s->streams[i], s->sync_event, 0));
    return cudaSuccess;
}

/* The run starts after the work that is on the default stream now, as the cudaMemcpy does that it
   replaces. If host threads copy such an array, this waits for that work. Where all chunks begin
   with copies in, it is enough that the stream for those waits. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_follow_default(spipe_priv_pipeline_t *p) {
    spipe_priv_streams_t *s = &p->streams;
    cudaError_t e;
    int i, reached = 0, host_work = 0, copies_in = 0, num = s->num, before;
    if (p->request.desc.ignore_default_stream) return cudaSuccess;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        if (!spipe_priv_gpu_reaches(p, i)) continue;
        reached = 1;
        host_work |= p->route.path[i] == SPIPE_PRIV_PATH_STAGED;
        copies_in |= spipe_priv_kind(p->request.desc.buffers[i].kind)->in;
    }
    if (!reached) return cudaSuccess;
    if (!s->sync_event) SPIPE_TRY(spipe_priv_new_event(p, &s->sync_event));
    if (p->run.one_stream || (p->plan.schedule == SPIPE_SCHEDULE_ENGINES && copies_in)) num = 1;
    before = spipe_priv_model_pause(1);
    e = spipe_priv_wait_default(s, host_work ? 0 : num);
    (void)spipe_priv_model_pause(before);
    return e;
}
