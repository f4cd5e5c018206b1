/* ---- 12 execute: a run ---------------------------------------------------------------------
   From the first batch to the last: begin, issue in the schedule's order, let everything end, count
   what is whole. Writes spipe_priv_run_t. */

/* How many batches there are, and whether one stream will do. */
SPIPE_PRIV_RARE void spipe_priv_measure(spipe_priv_pipeline_t *p) {
    spipe_priv_run_t *run = &p->run;
    const spipe_desc_t *d = &p->request.desc;
    const size_t size = p->plan.chunk;
    const int shared = d->hooks && d->hooks->next_batch;
    run->batch_elems = size;
    run->endless = spipe_priv_endless(d);
    run->total = run->endless ? SPIPE_AUTO : d->count;
    run->full_batches = run->endless ? 0 : d->count / size;
    run->num_batches = run->full_batches + (d->count % size != 0);
    if (run->endless || shared) run->num_batches = SIZE_MAX;
    run->one_stream = p->plan.schedule == SPIPE_SERIAL;
    if (run->num_batches <= 1 || (p->plan.pageable_slots && p->plan.depth == 1)) {
        run->one_stream |= p->route.num_chains == 1 && p->route.num_segments == 1;
    }
}

SPIPE_API void spipe_priv_begin(spipe_priv_pipeline_t *p) {
    spipe_priv_run_t *run = &p->run;
    size_t k;
    if (!p->workers.started) p->sync->single_threaded = p->workers.block == NULL;
    spipe_priv_failure_clear(&p->failure);
    p->note.error = cudaSuccess;
    p->note.catches = SPIPE_PRIV_CATCHES;
    run->failed = SPIPE_PRIV_NOT_FAILED;
    run->stop_asked = run->cut_from = 0;
    run->told.stop = 0;
    run->resident = cudaErrorNotReady;
    run->failed_batch = SPIPE_AUTO;
    spipe_priv_measure(p);
    spipe_priv_model_run(p);
    if (!spipe_priv_program_fits(p)) spipe_priv_write_program(p);
    memset(&run->at, 0, sizeof run->at);
    run->at.reported = SIZE_MAX;
    run->moved[0] = run->moved[1] = 0;
    p->report.wall_ms = 0.0;
    for (k = 0; k < p->plan.depth; ++k) {
        spipe_priv_slot_t *slot = &p->memory.slots[k];
        slot->filled = slot->drained = slot->whole = 0;
        memset(slot->host_done, 0, sizeof slot->host_done);
    }
}

SPIPE_PRIV_OFTEN cudaError_t spipe_priv_issue_steps(spipe_priv_pipeline_t *p, int from, int last,
                                                    size_t batch) {
    const spipe_priv_program_t *g = &p->program;
    const size_t *start = g->step_start;
    if (batch >= p->run.num_batches) return cudaSuccess;
    SPIPE_TRY(spipe_priv_issue(p, start[from], start[last], batch));
    if (last == p->route.num_steps && batch < p->run.num_batches) {
        if ((batch & g->checkpoint_mask) >= g->checkpoint_from) {
            const cudaError_t e = spipe_priv_checkpoint(p, batch);
            if (e != cudaSuccess) {
                return spipe_priv_check_step(p, e, -1, batch, "recording its end");
            }
        }
        /* after its checkpoint, which shows that it is whole */
        if (p->route.drains)
            spipe_priv_post_drain(p, batch);
        else
            p->run.at.issued_out = batch + 1;
    }
    if (!p->sync->single_threaded) spipe_priv_poll(p);
    if (p->request.desc.progress) spipe_priv_report_progress(p);
    return cudaSuccess;
}

/* Once the run is to stop, no further batch is issued. */
SPIPE_PRIV_OFTEN void spipe_priv_stop_at(spipe_priv_pipeline_t *p, size_t batch) {
    if (!p->run.stop_asked || batch >= p->run.num_batches) return;
    spipe_priv_set(p, &p->run.num_batches, batch);
}

/* Step by step over depth batches at a time. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_issue_breadth(spipe_priv_pipeline_t *p) {
    const size_t depth = p->plan.depth;
    size_t at, k;
    int i;
    for (at = 0; at < p->run.num_batches; at += depth) {
        for (i = 0; i < p->route.num_steps; ++i) {
            for (k = at; k < at + depth; ++k) {
                if (i == 0) spipe_priv_stop_at(p, k);
                SPIPE_TRY(spipe_priv_issue_steps(p, i, i + 1, k));
            }
        }
    }
    return cudaSuccess;
}

/* Batch by batch. A batch's later segments are issued stage_distance batches after the one before,
   so that the host stage between them has time while the GPU has work. */
SPIPE_PRIV_OFTEN cudaError_t spipe_priv_issue_depth(spipe_priv_pipeline_t *p) {
    const spipe_priv_route_t *t = &p->route;
    const size_t behind = t->stage_distance * (size_t)(t->num_segments - 1);
    size_t at, back;
    int s;
    for (at = 0;; ++at) {
        spipe_priv_stop_at(p, at);
        if (at >= p->run.num_batches && at - p->run.num_batches >= behind) break;
        for (s = 0, back = 0; s < t->num_segments && back <= at; ++s, back += t->stage_distance) {
            SPIPE_TRY(
                spipe_priv_issue_steps(p, t->segment_start[s], t->segment_start[s + 1], at - back));
        }
    }
    return cudaSuccess;
}

SPIPE_PRIV_OFTEN cudaError_t spipe_priv_issue_all(spipe_priv_pipeline_t *p) {
    return p->plan.schedule == SPIPE_BREADTH_FIRST ? spipe_priv_issue_breadth(p)
                                                   : spipe_priv_issue_depth(p);
}

/* Copies resident buffers in, before the first batch, or out, after the last one. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_move_resident(spipe_priv_pipeline_t *p, int out,
                                                     cudaStream_t base) {
    int i;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        const int copied = b->resident & (out ? SPIPE_DOWNLOAD : SPIPE_UPLOAD);
        void *dev = p->memory.resident[i];
        if (b->kind != SPIPE_RESIDENT || (out && !copied)) continue;
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
   batch's, the wait reports it with the batch. */
SPIPE_PRIV_RARE void spipe_priv_resident_behind(spipe_priv_pipeline_t *p) {
    const int waited = !spipe_priv_needs_events(p) && !p->route.out_blocks && !p->route.drains;
    if (!waited || p->run.at.issued_out == 0 || p->request.desc.progress) return;
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
   replaces. If host threads copy such an array, this waits for that work. Where all batches begin
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
        copies_in |= spipe_priv_goes_in(&p->request.desc.buffers[i]);
    }
    if (!reached) return cudaSuccess;
    if (!s->sync_event) SPIPE_TRY(spipe_priv_new_event(p, &s->sync_event));
    if (p->run.one_stream || (p->plan.schedule == SPIPE_ENGINES && copies_in)) num = 1;
    before = spipe_priv_model_pause(1);
    e = spipe_priv_wait_default(s, host_work ? 0 : num);
    (void)spipe_priv_model_pause(before);
    return e;
}

/* Waits until issued work has ended, whatever happened, and counts the batches that are whole. The
   last copy out of each slot is the end of everything that was issued for whole chunks. */
SPIPE_PRIV_RARE void spipe_priv_let_end(spipe_priv_pipeline_t *p) {
    const size_t depth = p->plan.depth, n = p->run.at.issued_out;
    cudaError_t e = cudaSuccess;
    size_t k;
    spipe_priv_finish_host_work(p);
    for (k = n < depth ? 0 : n - depth; k < n && p->route.drains && !p->run.failed; ++k) {
        spipe_priv_model_await(p, SPIPE_PRIV_DRAIN, -1, k);
    }
    while (!p->route.drains && p->request.desc.progress && p->run.at.completed < n &&
           e == cudaSuccess) {
        e = spipe_priv_complete_checkpoint(p);
        spipe_priv_report_progress(p);
    }
    for (k = n < depth ? 0 : n - depth; k < n && !p->route.drains && e == cudaSuccess; ++k) {
        e = spipe_priv_complete(p, p->memory.slots[k % depth].out_done, k + 1 == n ? n : 0);
    }
    if (p->route.drains) spipe_priv_report_progress(p);
    if (!p->run.failed) return;
    e = cudaSuccess;
    spipe_priv_sync_streams(&p->streams, &e);
    (void)spipe_priv_take_error(p->failure.error);
}

/* Before the first batch: slots are filled, and resident buffers are on the device. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_start_streams(spipe_priv_pipeline_t *p) {
    const cudaStream_t base = p->streams.streams[0];
    const int fills = p->route.refill != SPIPE_PRIV_REFILL_NEVER;
    cudaError_t e = spipe_priv_follow_default(p);
    size_t k;
    for (k = 0; k < p->plan.depth && fills; ++k) spipe_priv_post(p, SPIPE_PRIV_FILL, -1, k);
    if (e == cudaSuccess) e = spipe_priv_move_resident(p, 0, base);
    if (e == cudaSuccess && spipe_priv_has_resident(&p->request.desc)) {
        e = spipe_priv_fork(&p->streams, base);
    }
    if (e == cudaSuccess) return e;
    return spipe_priv_fail(p, NULL, e, -1, 0, "starting the run failed: %s", cudaGetErrorString(e));
}

SPIPE_PRIV_RARE void spipe_priv_run_streams(spipe_priv_pipeline_t *p) {
    if (spipe_priv_start_streams(p) == cudaSuccess && spipe_priv_issue_all(p) == cudaSuccess) {
        spipe_priv_resident_behind(p);
    }
    spipe_priv_let_end(p);
}

/* Before the first batch. An error: the run has failed, and nothing is to be issued. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_begin_run(spipe_priv_pipeline_t *p) {
    spipe_failure_t why;
    cudaError_t e;
    p->run.began = spipe_priv_clock();
    spipe_priv_start_workers(p);
    spipe_priv_begin(p);
    e = spipe_priv_tell_begin(&p->request.desc, &why);
    p->run.told.begin = e == cudaSuccess;
    if (e == cudaSuccess) return e;
    return spipe_priv_fail(p, NULL, e, -1, SPIPE_AUTO, "%s", why.message);
}

/* After the last batch: resident buffers out, and the failure completed. */
SPIPE_PRIV_RARE void spipe_priv_finish(spipe_priv_pipeline_t *p) {
    const cudaStream_t base = p->streams.streams[0];
    cudaError_t e;
    if (p->run.failed) {
        p->run.stop_asked = 0;     /* the stop is not why the run ended */
        if (p->run.cut_from > 0) { /* a worker that ends may read it */
            spipe_priv_set(p, &p->run.num_batches, p->run.cut_from);
        }
    } else if (p->run.stop_asked) {
        (void)spipe_priv_fail(p, NULL, SPIPE_STOPPED, -1, p->run.at.completed,
                              "stopped by the progress callback after %zu chunks",
                              p->run.at.completed);
    }
    if (!p->run.failed && spipe_priv_has_resident(&p->request.desc)) {
        e = p->run.resident;
        if (e == cudaErrorNotReady) {
            e = spipe_priv_move_resident(p, 1, base);
            if (e == cudaSuccess) e = cudaStreamSynchronize(base);
        }
        if (e != cudaSuccess) {
            cudaError_t again = cudaSuccess;
            spipe_priv_sync_streams(&p->streams, &again); /* a copy may be under way */
            (void)spipe_priv_fail(p, NULL, e, -1, p->run.at.completed,
                                  "copying a resident buffer out failed: %s",
                                  cudaGetErrorString(e));
        }
    }
    e = p->request.kept ? spipe_priv_unregister(&p->request) : cudaSuccess;
    if (e != cudaSuccess) {
        (void)spipe_priv_fail(p, NULL, e, -1, SPIPE_AUTO, "freeing after the run failed: %s",
                              cudaGetErrorString(e));
    }
    p->failure.chunks_whole = p->run.at.completed;
    if (p->run.told.begin) {
        spipe_priv_tell_end(&p->request.desc, p->request.desc.num_buffers, p->failure.error);
    }
    p->run.told.begin = 0;
}

/* Bytes of the pages that this process has been given; 0 = not known, or nothing is staged. */
SPIPE_PRIV_RARE size_t spipe_priv_page_bytes(const spipe_plan_t *plan) {
#if defined(_SC_PAGESIZE) && !defined(_WIN32)
    struct rusage usage;
    if (plan->staging != SPIPE_STAGING_COPY || getrusage(RUSAGE_SELF, &usage) != 0) return 0;
    return (size_t)usage.ru_minflt * (size_t)sysconf(_SC_PAGESIZE);
#else
    (void)plan;
    return 0;
#endif
}

/* Takes the timeline for this run, which another may be filling. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_take_watcher(spipe_priv_pipeline_t *p) {
    spipe_priv_watcher_t *w = (spipe_priv_watcher_t *)(void *)p->request.desc.timeline;
    if (w && !spipe_priv_exchange_if(&w->taken, 0, 1)) {
        spipe_priv_begin(p);
        p->report.wall_ms = p->report.timed_ms = 0.0;
        return spipe_priv_fail(p, NULL, cudaErrorNotPermitted, -1, SPIPE_AUTO,
                               "another run is filling the timeline; give each run its own");
    }
    p->watcher = w;
    return cudaSuccess;
}

/* Makes one run with the plan in use; replays it if the plan says so and no timeline watches. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_run_plan(spipe_priv_pipeline_t *p) {
    const spipe_desc_t *d = &p->request.desc;
    const int replayed = p->plan.replay && p->program.replay.graph && !d->timeline;
    int begun;
    SPIPE_TRY(spipe_priv_take_watcher(p));
    begun = spipe_priv_begin_run(p) == cudaSuccess;
    p->report.new_page_bytes = 0 - spipe_priv_page_bytes(&p->plan);
    p->report.timed_ms = 0.0;
    spipe_priv_notify(p, SPIPE_PRIV_WATCH_RUN, NULL, 0, 0);
    if (begun && replayed)
        p->program.replay.run_graph(p);
    else if (begun)
        spipe_priv_run_streams(p);
    spipe_priv_finish(p);
    p->report.wall_ms = 1e3 * (spipe_priv_clock() - p->run.began);
    p->report.new_page_bytes += spipe_priv_page_bytes(&p->plan);
    spipe_priv_notify(p, SPIPE_PRIV_WATCH_RUN, NULL, 0, 1);
    if (p->watcher) SPIPE_PRIV_STORE(p->watcher->taken, 0);
    p->watcher = NULL;
    p->report.replayed = replayed;
    return p->failure.error;
}
