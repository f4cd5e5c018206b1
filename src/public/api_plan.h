/* ---- 11 >>plan -----------------------------------------------------------------------------
   What was chosen for a run and why. The planner makes it; nothing reads it back. */
typedef struct spipe_run_plan {
    size_t count; /* elements planned for; SPIPE_AUTO = not known */
    size_t chunk; /* elements in a chunk */
    size_t batch; /* chunks copied in one piece; 1 = each chunk by itself */
    size_t depth; /* slots, each for one batch */
    spipe_schedule_t schedule;
    spipe_staging_t staging; /* of pageable arrays; AUTO = there are none */
    size_t fill_threads;     /* host threads that copy into pinned slots */
    size_t drain_threads;    /* host threads that copy out of them */
    size_t host_threads;     /* host threads that run host stages */
    int caller_helps;        /* 1 = the calling thread copies, too, when it would wait */
    int pageable_slots;      /* 1 = the slots of sources and sinks are in pageable memory */
    int replay;              /* 1 = the run is replayed as a CUDA graph */
    double predicted_ms;     /* of the run; with set-up if it is one-shot */
    double kernel_ms;        /* of all kernels: assumed, or the most they can take */
    int kernel_known;        /* 1 = an earlier run showed that they take no more */
    int num_candidates;      /* number of ways to run that were compared */
    const char *why_chunk;   /* constant sentences, as are the next two */
    const char *why_schedule;
    const char *why_staging;
    char costs[64]; /* name of the costs it was planned with */
} spipe_plan_t;

/*  spipe_plan -- what the library would choose for a run, and why, without running anything.
    spipe_plan_print -- a plan as a few lines of text.

    d          in      checked first.
    kept       in      1 = for spipe_pipeline_create, which may take longer to set up; 0 = for
                       spipe_run.
    plan       out/in  of the first run; a kept pipeline may move to another candidate after
                       measuring. Zeroed on error.
    failure    out     why there is no plan; may be NULL.
    to         in      an open file.
    Returns    cudaSuccess; cudaErrorInvalidValue (a bad description, NULL); any error of reading
               the device's facts; print: cudaErrorOperatingSystem.
    Blocks     no.   Threads  any.   Callback  no.   Capture  no.   Allocates  nothing. */
SPIPE_API cudaError_t spipe_plan(const spipe_desc_t *d, int kept, spipe_plan_t *plan,
                                 spipe_failure_t *failure);
SPIPE_API cudaError_t spipe_plan_print(const spipe_plan_t *plan, FILE *to);
