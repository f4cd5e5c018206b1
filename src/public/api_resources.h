/* ---- 13 >>resources ------------------------------------------------------------------------
   What many runs on a device share: memory, streams, events and threads, made once. For servers
   that run from many threads, and for programs that often make and destroy pipelines. */
typedef struct spipe_resources spipe_resources_t;

/* Begin with spipe_resources_limits_default, then assign what should differ. */
typedef struct spipe_resources_limits {
    size_t device_bytes; /* device memory for slots and resident buffers
                                        (default: 512 MiB, at most a quarter of the device's) */
    size_t pinned_bytes; /* pinned memory for staging; if the system refuses to pin
                                        it, runs do without (default: 128 MiB) */
    size_t threads;      /* host threads of all runs together that fill, drain and run
                                        host stages (default: SPIPE_AUTO, one per CPU) */
    size_t stamp;        /* private: set by spipe_resources_limits_default */
} spipe_resources_limits_t;

/* What is in use now, and the most that was in use at once. */
typedef struct spipe_resources_in_use {
    size_t runs, most_runs;                 /* runs under way */
    size_t waiting;                         /* runs among them that wait for memory */
    size_t pipelines;                       /* kept pipelines, and runs by spipe_run */
    size_t device_bytes, most_device_bytes; /* lent to runs */
    size_t pinned_bytes, most_pinned_bytes;
    size_t threads, streams, events; /* made so far; they stay until destroy */
} spipe_resources_usage_t;

/*  spipe_resources_limits_default -- the limits that create takes for NULL.
    spipe_resources_create, spipe_resources_destroy -- resources of the current device.
    spipe_resources_usage -- how much of them is in use.

    Assign them to desc.resources: then spipe_run sets nothing up and frees nothing, and a kept
    pipeline has memory only while it runs.

    Memory: a run plans with an equal share of the memory; of more than seven runs that may
    wait, each plans with a seventh of the device memory. Beside fewer it plans with at most
    half of what is free (a kept pipeline: half of all), so that some is left for the next
    run. It always plans with at least a sixteenth of all.
    If there is no room for it, it waits until others have ended. Runs wait in the order in
    which they came, but those of a higher desc.priority go first. With desc.no_wait a run that
    would wait returns SPIPE_WOULD_WAIT. A pipeline that was enqueued keeps its memory and plan
    until it is destroyed; no run waits for it.

    Sharing: host threads are shared equally by the runs that have work for them. A kept pipeline
    is planned anew when there are more than 1.5 times, or less than two thirds, as many runs as it
    was planned for; a run of SPIPE_PRIORITY_HIGH is planned as if it were alone. No run tries other
    settings here, because the times would depend on the others. Runs take turns on the copy
    engines, chunk by chunk, each with those of its own or a higher priority, so the chunks of the
    most urgent run go first.

    Calls that come again: from the second one on, calls of spipe_run that ask for the same are
    run by a kept pipeline that the resources hold between calls, so they set nothing up. Calls ask
    for the same if the number of elements, the buffers' sizes and kinds of memory, the
    functions of the stages and what the description fixes are; arrays and user pointers may be
    others. The 32 that were last used are held. Checked runs, those with a timeline, and
    SPIPE_STAGING_REGISTER are set up by themselves.

    Threads that end: a thread that is cancelled (pthread_cancel) ends when its run has ended. If a
    thread ends in the middle of a loop that takes chunks, runs that wait for its memory return an
    error (with MinGW they go on waiting); another thread may continue the loop, or end it. A stage
    must not end its thread.

    For several GPUs there is spipe_devices_resources_create (streampipe_devices.h).

    r          out/in  create: the resources, NULL on error; free them with destroy, which takes
                       NULL, too. They must live as long as descriptions that name them are run.
    limits     in      NULL for the default.
    failure    out     what is wrong, in words; may be NULL.
    usage      out     at this moment; of resources of several GPUs, the part on the current one.
    Returns    cudaSuccess; create: cudaErrorInvalidValue, cudaErrorMemoryAllocation, any error of
               asking about the device; destroy: cudaErrorNotPermitted (pipelines or runs use them,
               and nothing is freed), cudaErrorInvalidValue (no resources); usage:
               cudaErrorInvalidValue; cudaErrorInvalidDevice (they are not of the current
               device). A run with resources: cudaErrorMemoryAllocation if it does not fit though
               it is alone; cudaErrorNotPermitted if it would wait for the run around it, or for a
               run whose thread has ended.
    Blocks     create: for the time of pinning. destroy: until the threads have ended. usage: no.
    Threads    any. A run that a stage begins goes before runs that wait. Set no_wait in a run that
               a host stage begins: it is on another thread, so the library cannot see that it would
               wait for the run around it.
    Callback   no.   Capture  no.
    Allocates  create: both memories. Later: streams, events, threads, as runs need them; all freed
               by destroy. */
SPIPE_API spipe_resources_limits_t spipe_resources_limits_default(void);
SPIPE_API_RESULT cudaError_t spipe_resources_create(spipe_resources_t **r,
                                                    const spipe_resources_limits_t *limits,
                                                    spipe_failure_t *failure);
SPIPE_API cudaError_t spipe_resources_destroy(spipe_resources_t *r, spipe_failure_t *failure);
SPIPE_API cudaError_t spipe_resources_usage(spipe_resources_t *r, spipe_resources_usage_t *usage);
