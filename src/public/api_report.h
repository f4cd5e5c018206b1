/* ---- 12 >>report ---------------------------------------------------------------------------
   What a run did, as numbers and as a table. Filled whole on success and on failure. */
typedef struct spipe_report {
    spipe_failure_t failure; /* failure.error is cudaSuccess when all went well */
    char device[64];
    size_t total, count_done; /* elements asked for (0 = not known) and done */
    size_t num_chunks, chunks_done;
    size_t chunk, depth; /* as chosen */
    spipe_schedule_t schedule;
    int staged; /* 1 = pageable arrays went through pinned slots */
    const char *why_chunk, *why_schedule, *why_staging; /* why so: constant strings */
    size_t threads;                                     /* the larger of the next two */
    size_t fill_threads, drain_threads;                 /* host threads that staged, as started */
    size_t host_threads;                                /* and those that ran host stages */
    int num_stages, num_streams;
    int replayed;                      /* 1 = as a CUDA graph */
    int trying;                        /* 1 = candidates are still being compared */
    double predicted_ms;               /* what the plan expected for wall_ms */
    char costs[64];                    /* name of the costs it was planned with */
    size_t bytes_in, bytes_out;        /* moved host to device, device to host */
    size_t device_bytes, pinned_bytes; /* memory taken */
    size_t runs_beside;                /* with resources: runs under way when this one began */
    double waited_ms;                  /* and how long it waited for their memory */
    double setup_ms;                   /* streams, events and memory; 0 when kept */
    double start_ms;                   /* of it: until CUDA had started, if it had not */
    double wall_ms;                    /* first byte to last, set-up apart */
    double first_calls_ms; /* of it: by which the stages' first calls took longer than the next;
                              a kernel's first launch in a process loads it */
    size_t new_page_bytes; /* of a run that stages: pages that the system made meanwhile, as for
                              outputs that nobody has written before; 0 = none, or not known */
    int num_devices, device_numbers[SPIPE_MAX_DEVICES]; /* 0: the current one */
    unsigned devices_failed;                            /* SPIPE_BIT of each place in these lists */
    size_t device_chunks[SPIPE_MAX_DEVICES];            /* that each of them did */
    /* Only of a run with a timeline. Arrays: host threads that fill, copies in, stages, host
       stages, copies out, host threads that drain. */
    double timed_ms;               /* first operation to last; 0 = no timeline */
    double busy_ms[6], idle_ms[6]; /* idle: between its first and last operation */
    double stage_ms[SPIPE_MAX_STAGES];
    const char *stage_names[SPIPE_MAX_STAGES];
    double serial_ms;   /* the same work one after another, estimated */
    double bound_ms;    /* the busiest engine's work: none can be faster */
    double overlap;     /* hidden time / time that could be hidden */
    double sync_us;     /* from a step's turn to its begin, on average */
    unsigned causes;    /* SPIPE_CAUSE_... of streampipe_timeline.h */
    char verdict[1600]; /* the limit, then each cause and its cure: lines */
} spipe_report_t;

/*  spipe_report_print -- a compact table for a terminal; of a failed run, why it failed.
    spipe_schedule_name -- "engines", "serial", ... ; "auto" for anything else.

    report     in      filled by a run.
    to         in      an open file.
    schedule   in      one of spipe_schedule_t.
    Returns    print: cudaSuccess; cudaErrorInvalidValue; cudaErrorOperatingSystem (cannot be
               written). name: a constant string.
    Blocks     as long as the file does.
    Threads    any.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API cudaError_t spipe_report_print(const spipe_report_t *report, FILE *to);
SPIPE_API const char *spipe_schedule_name(spipe_schedule_t schedule);
