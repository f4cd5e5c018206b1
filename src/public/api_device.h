/* ---- 7 >>device ----------------------------------------------------------------------------
   What a GPU can do at the same time. Reads the device; changes nothing. */
/* The facts that decide whether and how work overlaps on a device. */
typedef struct spipe_device {
    int device;
    char name[64];
    int compute_major, compute_minor, num_sms;
    int copy_engines;                    /* asyncEngineCount: 1 = one direction at a time */
    int concurrent_kernels;              /* 1 = kernels of different streams may run at once */
    int priority_least;                  /* numerically largest; 0 on today's GPUs */
    int priority_greatest;               /* numerically smallest; -5 on today's GPUs */
    int map_host_memory;                 /* kernels can read and write pinned host memory */
    int pageable_access;                 /* the GPU can read pageable host memory by itself ... */
    int host_page_tables;                /* ... through the host's page tables, at full speed */
    int integrated;                      /* shares its memory with the CPU */
    size_t memory_bytes;                 /* device memory in all */
    int runtime_version, driver_version; /* 1000 x major + 10 x minor */
} spipe_device_t;

/*  spipe_device_get -- read the facts of one device.

    facts      out     filled whole; zeroed on error.
    device     in      device number, or -1 for the current one.
    Returns    cudaSuccess; cudaErrorInvalidValue; cudaErrorInvalidDevice; cudaErrorNoDevice.
    Blocks     no (may create the context on first use).   Threads  any.   Callback  no.
    Capture    yes.   Allocates  nothing. */
SPIPE_API cudaError_t spipe_device_get(spipe_device_t *facts, int device);
