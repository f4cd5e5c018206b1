/* ---- 4 >>execute ---------------------------------------------------------------------------
   Running a description: once, many times, in a stream's order, or chunk by chunk. */
typedef struct spipe_report spipe_report_t; /* see >>report */
typedef struct spipe_run_plan spipe_plan_t; /* see >>plan */

/* A pipeline made once and run many times: a pointer, whose memory the library owns. */
typedef struct spipe_pipeline spipe_pipeline_t;

/*  spipe_run -- run a description from the first element to the last.

    d          in      checked first; not kept.
    report     out     what happened, filled on failure too; may be NULL.
    Returns    cudaSuccess; cudaErrorInvalidValue for a bad description (nothing was allocated);
               SPIPE_STOPPED when the progress callback asked for it; what a stage, source or
               sink returned; or the CUDA error met. report->failure says where and why.
    Blocks     yes, until every output is whole, or the work begun has drained.
    Threads    any; runs do not share anything.   Callback  no.   Capture  no.
    Allocates  depth x chunk of device memory, as much pinned memory when staging, some streams
               and events, threads for host work; all freed before return. 24 KB of stack. */
SPIPE_API_RESULT cudaError_t spipe_run(const spipe_desc_t *d, spipe_report_t *report);

/*  spipe_pipeline_create, spipe_pipeline_run, spipe_pipeline_destroy -- a kept pipeline: set up
    once, run many times.
    spipe_pipeline_set_host, spipe_pipeline_set_count -- another array, another length from now on;
    the run is planned anew.
    spipe_pipeline_plan, spipe_pipeline_failure -- how the next run is made: as guessed, or as runs
    before it have found; why the last call that failed did.

    p          out/in  create: a pipeline on the current device, NULL on error; free it with
                       destroy. The others: one that create made; destroy takes NULL, too. After
                       destroy the pointer must not be used, as after free.
    d          in      copied; names, arrays and user pointers are kept and stay yours. A host
                       array may be NULL until set_host sets it, before the first run.
    report, failure out what happened; either may be NULL.
    buffer     in      number of an input, output, in/out or resident buffer.
    host       in      the new array.
    count      in      elements in the whole; 0 or more.
    Returns    as spipe_run. After a failed run the pipeline may be run again (unless the error
               is one that ends the context). set_host, set_count: cudaErrorInvalidValue, and the
               pipeline stays as it was; after another error it must be set again before it runs.
               cudaErrorInvalidResourceHandle: the pipeline is NULL, or must be set again.
               cudaErrorNotPermitted, and nothing is done: another call on the pipeline, or a run
               of one of its files, is under way, on another thread or around the stage that calls
               (destroy, too); the sentence is in the report alone. plan, failure: valid until the
               next call; NULL for NULL.
    Blocks     run: yes. create, plan, failure: no. The others: until work under way has ended.
    Threads    one at a time.   Callback  no.   Capture  no.
    Allocates  create: memory, streams, events, and threads if there are arrays to stage. Runs that
               try another setting (report.trying): memory, threads, a graph for replayable stages;
               other runs nothing. set_host, set_count: memory, if the new plan needs more. */
SPIPE_API_RESULT cudaError_t spipe_pipeline_create(spipe_pipeline_t **p, const spipe_desc_t *d,
                                                   spipe_failure_t *failure);
SPIPE_API_RESULT cudaError_t spipe_pipeline_run(spipe_pipeline_t *p, spipe_report_t *report);
SPIPE_API cudaError_t spipe_pipeline_destroy(spipe_pipeline_t *p);
SPIPE_API_RESULT cudaError_t spipe_pipeline_set_host(spipe_pipeline_t *p, int buffer, void *host);
SPIPE_API_RESULT cudaError_t spipe_pipeline_set_count(spipe_pipeline_t *p, size_t count);
SPIPE_API const spipe_plan_t *spipe_pipeline_plan(const spipe_pipeline_t *p);
SPIPE_API const spipe_failure_t *spipe_pipeline_failure(const spipe_pipeline_t *p);

/*  spipe_pipeline_set_timeline -- record the runs from now on, or no longer.

    p          in/out  made by spipe_pipeline_create.
    timeline   in      begun with spipe_timeline_default of streampipe_timeline.h; NULL = do not
                       record. Yours; must live until it is replaced.
    Returns    cudaSuccess; cudaErrorInvalidValue (a timeline that was not begun);
               cudaErrorInvalidResourceHandle (p is NULL). spipe_pipeline_failure says why.
    Blocks     until work under way has ended.   Threads  one at a time.   Callback  no.
    Capture    no.   Allocates  nothing. */
SPIPE_API cudaError_t spipe_pipeline_set_timeline(spipe_pipeline_t *p,
                                                  struct spipe_timeline *timeline);

/*  spipe_pipeline_next -- take the next chunk, in a loop of your own: training, decoding.
    spipe_pipeline_release -- give back the oldest chunk that you took: after the work that is on
    stream now, its outputs are copied out and its memory is used again.
    spipe_pipeline_end -- end the loop before the last chunk.

    p          in/out  made by spipe_pipeline_create, of a description without stages.
    stream     in      next: the stream to use the chunk on; work put on it from now on starts after
                       the copies in. release: the stream that the chunk was used on.
    chunk      out     its buffers in device memory, as a stage gets them; count 0: there are no
                       more, and every output is whole. You may hold several, up to depth.
    report     out     what happened since the first chunk; may be NULL.
    Returns    next: cudaSuccess; SPIPE_ALL_HELD (you hold all slots or, after the last chunk, some:
               release them); else as spipe_run, and spipe_pipeline_failure has the sentence:
               then you hold no chunk any more, and the next call begins with the first chunk again.
               release: cudaSuccess; cudaErrorNotPermitted (you hold no chunk); else as next. end:
               the last error.
    Blocks     next: until the chunk's copies are issued; after the last chunk, until the outputs
               are whole. release: no. end: until the copies and the calls of sources under way
               have ended, no other source being asked; with desc.resources, and while you hold
               chunks, until the device has done all its work.
    Threads    one at a time.   Callback  no.   Capture  no.
    Allocates  next: threads, the first time. */
SPIPE_API_RESULT cudaError_t spipe_pipeline_next(spipe_pipeline_t *p, cudaStream_t stream,
                                                 spipe_chunk_t *chunk);
SPIPE_API_RESULT cudaError_t spipe_pipeline_release(spipe_pipeline_t *p, cudaStream_t stream);
SPIPE_API cudaError_t spipe_pipeline_end(spipe_pipeline_t *p, spipe_report_t *report);

/*  spipe_pipeline_enqueue, spipe_pipeline_wait -- a run in a stream's order; wait for its result.

    p          in/out  made by spipe_pipeline_create.
    stream     in      the run starts after the work that is on it; work queued on it afterwards,
                       kernels or cuBLAS calls, starts after the run.
    report     out     may be NULL; wall_ms is not measured for enqueued runs.
    Returns    enqueue: errors met while queuing (then what was queued drains first). wait: as
               spipe_run, for all enqueued runs since the last wait.
    Blocks     enqueue: no; but if the host has work to do (pageable arrays, also those that each
               run pins in place, sources, sinks, host stages), until stream has reached the run and
               the run has ended. wait: yes.
    Threads    one at a time; runs follow each other, whatever their streams.   Callback  no.
    Capture    enqueue: yes, if all stages can be captured and the host has no work to do. The
               pipeline must outlive the graph, and its arrays must stay where they are.
    Allocates  nothing. */
SPIPE_API_RESULT cudaError_t spipe_pipeline_enqueue(spipe_pipeline_t *p, cudaStream_t stream);
SPIPE_API_RESULT cudaError_t spipe_pipeline_wait(spipe_pipeline_t *p, spipe_report_t *report);
