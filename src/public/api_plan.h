/* ---- 6 >>plan ------------------------------------------------------------------------------
   How a run is made and why: a first guess, or what earlier runs of a kept pipeline found. */
struct spipe_run_plan {
    size_t count; /* elements planned for; SPIPE_AUTO = not known */
    size_t chunk; /* elements in a chunk */
    size_t depth; /* slots, each for one chunk */
    spipe_schedule_t schedule;
    spipe_staging_t staging; /* of pageable arrays; AUTO = there are none */
    size_t fill_threads;     /* host threads that copy into pinned slots */
    size_t drain_threads;    /* host threads that copy out of them */
    size_t host_threads;     /* host threads that run host stages */
    int caller_helps;        /* 1 = the calling thread copies, too, when it would wait */
    int pageable_slots;      /* 1 = slots are in pageable memory, since none can be pinned */
    int replay;              /* 1 = the run is replayed as a CUDA graph */
    int found;               /* 0 = a first guess; else found in so many runs */
    const char *why_chunk;   /* constant sentences, as are the next two */
    const char *why_schedule;
    const char *why_staging;
};

/*  spipe_plan -- what the library would guess for a first run, and why, without running anything.
    spipe_plan_print -- a plan as a few lines of text.

    d          in      checked first.
    kept       in      1 = for spipe_pipeline_create, which may take longer to set up; 0 = for
                       spipe_run.
    plan       out/in  of the first run; later runs of a kept pipeline may be made otherwise
                       (spipe_pipeline_plan). Zeroed on error.
    failure    out     why there is no plan; may be NULL.
    to         in      an open file.
    Returns    cudaSuccess; cudaErrorInvalidValue (a bad description, NULL); any error of reading
               the device's facts; print: cudaErrorOperatingSystem.
    Blocks     no.   Threads  any.   Callback  no.   Capture  no.
    Allocates  nothing; on a GPU that reads host pages 1 MiB of device memory, freed again. */
SPIPE_API cudaError_t spipe_plan(const spipe_desc_t *d, int kept, spipe_plan_t *plan,
                                 spipe_failure_t *failure);
SPIPE_API cudaError_t spipe_plan_print(const spipe_plan_t *plan, FILE *to);
