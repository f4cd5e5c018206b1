/* ---- 10 >>costs ----------------------------------------------------------------------------
   What the planner knows about a machine: measured seconds, and bytes per second. */
/* spipe_costs_measure of streampipe_measure.h measures them in under a second. The library has a
   row for each machine it was measured on; an unknown machine gets cautious values, and a kept
   pipeline then measures its best candidates and keeps the fastest. */
typedef struct spipe_costs {
    char name[32]; /* part of the device's name, as "H100"; "measured"; "unknown" */
    /* Copies of pinned memory. */
    double link_in;   /* bytes a second, host to device alone */
    double link_out;  /* bytes a second, device to host alone */
    double link_both; /* bytes a second each way while both directions copy */
    double copy_s;    /* seconds that a copy engine loses between two copies */
    double latency_s; /* seconds from one engine's end to another's start, joined by an event */
    double call_s;    /* seconds of the calling thread for each call that enqueues work */
    double launch_s;  /* seconds that each kernel adds to a chain besides its own work */
    double zero_copy; /* bytes a second each way, by a kernel that works on pinned memory */
    /* Copies of pageable memory. */
    double pageable_in;  /* bytes a second of cudaMemcpy to the device */
    double pageable_out; /* bytes a second of cudaMemcpy from the device */
    double pageable_s;   /* seconds of each such call besides its bytes */
    /* Staging by host threads. */
    double fill;            /* bytes a second of each thread that fills pinned slots */
    double drain;           /* bytes a second of each thread that drains them */
    double memory;          /* bytes a second of all staging threads together, both ways added, with
                            a ring of slots that fits into the last-level cache */
    double memory_uncached; /* the same with a ring that does not fit */
    double wake_s;          /* seconds until a parked thread runs */
    double start_s;         /* seconds to start a thread, paid by the calling thread */
    double staged_s; /* seconds of the calling thread for each staged chunk: posting, polling */
    /* Setting up. */
    double pin;          /* bytes a second of pinning memory, first touch included */
    double pin_s;        /* seconds of each call that pins or unpins */
    double pin_arrays;   /* bytes a second of pinning and unpinning arrays that are in use */
    double setup_s;      /* seconds to make and free streams and events of a one-shot run */
    double malloc_s;     /* seconds of cudaMalloc and cudaFree */
    double malloc_bytes; /* bytes a second of the same for large blocks */
} spipe_costs_t;

/*  spipe_costs_get -- the costs that a run on a device is planned with.
    spipe_costs_print -- print costs as a table, one figure with its unit in each line.
    spipe_costs_write, spipe_costs_read -- costs as one line of text, to keep them in a file.

    costs      out/in  the figures. Assign &costs to desc.costs to plan with them.
    device     in      device number, or -1 for the current one.
    to         in      an open file.
    line       out/in  zero-terminated text without a line feed. It begins with the version of this
                       header, the device's name, the driver and the number of CPUs, so that a line
                       from another machine, driver or release is not used by mistake.
    bytes      bytes   room at line; SPIPE_COSTS_LINE_BYTES is enough.
    Returns    cudaSuccess; cudaErrorInvalidValue (a NULL, no room, text that is not such a line, a
               figure that is not a positive number); read: cudaErrorNotSupported (a line of another
               release, device, driver or number of CPUs; costs is then what spipe_costs_get gives,
               and its name ends in " (stale line ignored)", which the report shows); print:
               cudaErrorOperatingSystem; any error of reading the device's name.
    Blocks     no.   Threads  any.   Callback  no.   Capture  yes.   Allocates  nothing. */
#define SPIPE_COSTS_LINE_BYTES 1024
SPIPE_API cudaError_t spipe_costs_get(spipe_costs_t *costs, int device);
SPIPE_API cudaError_t spipe_costs_print(const spipe_costs_t *costs, FILE *to);
SPIPE_API cudaError_t spipe_costs_write(const spipe_costs_t *costs, int device, char *line,
                                        size_t bytes);
SPIPE_API cudaError_t spipe_costs_read(spipe_costs_t *costs, int device, const char *line);
