/* ---- 5 >>report ----------------------------------------------------------------------------
   What a run did, as numbers and as a table. All members are set on success and on failure. */
struct spipe_report {
    spipe_failure_t failure; /* failure.error is cudaSuccess when all went well */
    char device[64];
    size_t total, count_done; /* elements asked for (0 = not known) and done */
    size_t num_chunks, chunks_done;
    size_t chunk, depth; /* as chosen */
    spipe_schedule_t schedule;
    int staged; /* 1 = pageable arrays went through pinned slots */
    const char *why_chunk, *why_schedule, *why_staging; /* the reasons: constant strings */
    size_t threads;                                     /* the larger of the next two */
    size_t fill_threads, drain_threads;                 /* host threads started for staging */
    size_t host_threads;                                /* host threads started for host stages */
    /* What long runs saw of these threads: the last part [0], and the last with another number of
       threads [1]. waited: part of the time in which no chunk was ready to be issued, 0 to 1. idle:
       threads without work, on average. seen_threads 0 = nothing. */
    size_t seen_threads[2];
    double seen_waited[2], seen_idle[2];
    int num_stages, num_streams;
    int replayed;                      /* 1 = the run was a replay of a CUDA graph */
    int trying;                        /* 1 = runs of the pipeline still try other settings */
    int found;                         /* 0 = a first guess; else found in so many runs */
    size_t bytes_in, bytes_out;        /* moved host to device, device to host */
    size_t device_bytes, pinned_bytes; /* memory taken */
    size_t runs_beside;                /* with resources: runs under way when this one began */
    double waited_ms;                  /* with resources: time that it waited for memory */
    double setup_ms;                   /* for streams, events and memory; 0 when kept */
    double start_ms;                   /* part of setup_ms: CUDA's start, if this run started it */
    double wall_ms;                    /* from the start of its threads to the last byte */
    size_t new_page_bytes; /* if the run stages: pages that the system made during it, as when an
                              output is written for the first time; 0 = none, or not known */
    int num_devices, device_numbers[SPIPE_MAX_DEVICES]; /* num 0: the current device */
    unsigned devices_failed;                            /* bit i: device_numbers[i] failed */
    size_t device_chunks[SPIPE_MAX_DEVICES];            /* chunks that each of them did */
    /* The rest is set only by a run with a timeline. The arrays of 6: host threads that fill,
       copies in, stages, host stages, copies out, host threads that drain. */
    double timed_ms;               /* first operation to last; 0 = no timeline */
    double busy_ms[6], idle_ms[6]; /* idle: gaps between first and last operation */
    double stage_ms[SPIPE_MAX_STAGES];
    const char *stage_names[SPIPE_MAX_STAGES];
    double serial_ms;   /* estimated time of the same work without overlap */
    double bound_ms;    /* the busiest engine's time: no run can be faster */
    double overlap;     /* hidden time / time that could be hidden */
    double sync_us;     /* average delay from when an operation could begin to its begin */
    unsigned causes;    /* SPIPE_CAUSE_... of streampipe_timeline.h */
    char verdict[1600]; /* lines: the limit, then each cause and its cure */
};

/*  spipe_report_print -- a compact table for a terminal; for a failed run, why it failed.
    spipe_schedule_name -- "engines", "serial", ... ; "auto" for anything else.

    report     in      filled by a run.
    to         in      an open file.
    schedule   in      one of spipe_schedule_t.
    Returns    print: cudaSuccess; cudaErrorInvalidValue; cudaErrorOperatingSystem (cannot be
               written). name: a constant string.
    Blocks     while it writes the file.
    Threads    any.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API cudaError_t spipe_report_print(const spipe_report_t *report, FILE *to);
SPIPE_API const char *spipe_schedule_name(spipe_schedule_t schedule);
