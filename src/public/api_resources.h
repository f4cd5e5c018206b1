/* ---- 14 >>resources ------------------------------------------------------------------------
   What many runs on a device share: memory, streams, events and threads, made once. For servers
   that run from many threads, and for programs that make and drop pipelines all day. */
typedef struct spipe_resources spipe_resources_t;

/* Begin with spipe_resources_limits_default, then assign what you want different. */
typedef struct spipe_resources_limits {
    size_t device_bytes;             /* device memory for slots and resident buffers
                                        (default: 512 MiB, a quarter of the device's at the most) */
    size_t pinned_bytes;             /* pinned memory for staging; where the system refuses to pin
                                        it, runs do without (default: 128 MiB) */
    size_t threads;                  /* host threads that fill, drain and run host stages at the
                                        same time, of all runs (default: SPIPE_AUTO, the CPUs) */
    const struct spipe_costs *costs; /* of this machine (default: NULL, by device); copied */
    size_t stamp;                    /* private: it was begun with _default */
} spipe_resources_limits_t;

/* What is in use now, and was at the most. */
typedef struct spipe_resources_in_use {
    size_t runs, most_runs;                 /* under way at once */
    size_t waiting;                         /* of them, those that wait for memory */
    size_t pipelines;                       /* kept ones, and runs */
    size_t device_bytes, most_device_bytes; /* lent to runs */
    size_t pinned_bytes, most_pinned_bytes;
    size_t threads, streams, events; /* made so far; they stay until destroy */
} spipe_resources_usage_t;

/*  spipe_resources_limits_default -- the limits that create takes for NULL.
    spipe_resources_create, spipe_resources_destroy -- resources of the current device.
    spipe_resources_usage -- how much of them is in use.

    Assign them to desc.resources: then spipe_run sets nothing up and frees nothing, and a kept
    pipeline has memory only while it runs. A run plans with as much of the memory as each run
    under way may have, half of what is free at the most, so that there is always some for the next.
    Where that is less than a sixteenth of all, the run waits until others have ended: in the order
    in which they came, those of a higher desc.priority first. With desc.no_wait it returns
    cudaErrorNotReady instead. Host threads are shared equally by the runs that have work for
    them. Each plan knows how many runs are under way, and a kept pipeline is planned anew when they
    are half as many more, or two thirds of what they were. Runs take turns on the copy engines,
    chunk by chunk: each with those of its own or a higher priority, so the chunks of a run that is
    more urgent than all others go first. All of that is so that all runs together take the least;
    one of SPIPE_PRIORITY_HIGH is planned as if it were alone, for its own time. A pipeline that
    was enqueued keeps its memory and its plan until it is destroyed; nobody waits for that.

    A thread that is cancelled (pthread_cancel) ends when its run has. Where one ends in the middle
    of a loop that takes chunks, those who wait for the memory are told (not with MinGW, where they
    wait); another thread may go on with the loop, or end it. A stage must not end its thread.

    For several GPUs there is spipe_devices_resources_create (streampipe_devices.h).

    r          out/in  create: the resources, NULL on error; free them with destroy, which takes
                       NULL, too. They must live as long as descriptions that name them are run.
    limits     in      NULL for the default.
    failure    out     why not, in words; may be NULL.
    usage      out     at this moment; where they are of several GPUs, on the current one.
    Returns    cudaSuccess; create: cudaErrorInvalidValue, cudaErrorMemoryAllocation, any error of
               asking about the device; destroy: cudaErrorNotPermitted (pipelines or runs use them,
               and nothing is freed), cudaErrorInvalidValue (no resources, or another process's);
               usage: cudaErrorInvalidValue; cudaErrorInvalidDevice (they are of others). A run:
               cudaErrorMemoryAllocation where it does not fit
               though it is alone; cudaErrorNotPermitted where it would wait for the run around it,
               or for a run whose thread has ended;
               cudaErrorInvalidValue in a process that was forked.
    Blocks     create: for the time of pinning. destroy: until the threads have ended. usage: no.
    Threads    any. A run that a stage begins goes before those who wait. Set no_wait in one that a
               host stage begins: it is on another thread, so nobody sees that it would wait for
               the run around it.
    Callback   no.   Capture  no.
    Allocates  create: both memories. Later: streams, events, threads, as runs need them; all freed
               by destroy. */
SPIPE_API spipe_resources_limits_t spipe_resources_limits_default(void);
SPIPE_API_RESULT cudaError_t spipe_resources_create(spipe_resources_t **r,
                                                    const spipe_resources_limits_t *limits,
                                                    spipe_failure_t *failure);
SPIPE_API cudaError_t spipe_resources_destroy(spipe_resources_t *r, spipe_failure_t *failure);
SPIPE_API cudaError_t spipe_resources_usage(spipe_resources_t *r, spipe_resources_usage_t *usage);
