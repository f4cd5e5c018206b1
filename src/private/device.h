/* ---- 7 device ------------------------------------------------------------------------------
   Facts of a GPU, and making it the current one for a while. */
/* Only the facts that a run needs; the others take longer to ask for. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_device_facts(spipe_device_t *facts, int device) {
    struct cudaDeviceProp properties;
    memset(facts, 0, sizeof *facts);
    SPIPE_TRY(spipe_priv_take_error(cudaGetDeviceProperties(&properties, device)));
    memcpy(facts->name, properties.name, sizeof facts->name - 1);
    facts->memory_bytes = properties.totalGlobalMem;
    facts->device = device;
    facts->compute_major = properties.major;
    facts->compute_minor = properties.minor;
    facts->num_sms = properties.multiProcessorCount;
    facts->copy_engines = properties.asyncEngineCount;
    facts->concurrent_kernels = properties.concurrentKernels;
    facts->map_host_memory = properties.canMapHostMemory;
    facts->pageable_access = properties.pageableMemoryAccess;
    facts->host_page_tables = properties.pageableMemoryAccessUsesHostPageTables;
    facts->integrated = properties.integrated;
    (void)spipe_priv_take_error(cudaDriverGetVersion(&facts->driver_version));
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_device_get(spipe_device_t *facts, int device) {
    if (!facts) return cudaErrorInvalidValue;
    memset(facts, 0, sizeof *facts);
    if (device < 0) SPIPE_TRY(spipe_priv_take_error(cudaGetDevice(&device)));
    SPIPE_TRY(spipe_priv_device_facts(facts, device));
    (void)spipe_priv_take_error(
        cudaDeviceGetStreamPriorityRange(&facts->priority_least, &facts->priority_greatest));
    (void)spipe_priv_take_error(cudaRuntimeGetVersion(&facts->runtime_version));
    return cudaSuccess;
}

/* Afterwards cudaSetDevice(before), always: a stage may have left another device current. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_use_device(int device, int *before) {
    SPIPE_TRY(cudaGetDevice(before));
    return *before == device ? cudaSuccess : cudaSetDevice(device);
}

/* While any thread captures a stream in the global mode, which is CUDA's default, calls that may
   wait or allocate fail on every thread, and break that capture. With this thread in another mode
   they do not: thread-local (spipe_priv_own_calls) if this thread captures nothing itself; relaxed
   even then, for freeing. Returns the mode before, which is restored before a function of the
   user's is called, and when the library's call ends. */
SPIPE_PRIV_LOCAL enum cudaStreamCaptureMode spipe_priv_set_mode(enum cudaStreamCaptureMode mode) {
    if (cudaThreadExchangeStreamCaptureMode(&mode) != cudaSuccess) (void)cudaGetLastError();
    return mode;
}

SPIPE_PRIV_LOCAL enum cudaStreamCaptureMode spipe_priv_own_calls(void) {
    return spipe_priv_set_mode(cudaStreamCaptureModeThreadLocal);
}

/* What a thread had when it called the library, and has again when the call ends. */
typedef struct spipe_priv_visit {
    enum cudaStreamCaptureMode mode;
    cudaError_t found; /* CUDA's last error */
    int arrived;       /* 0 = nothing was changed yet */
    void *thrown;      /* a C++ exception of a function of the user's, to be thrown then; or NULL */
} spipe_priv_visit_t;

SPIPE_PRIV_LOCAL spipe_priv_visit_t spipe_priv_arrive(enum cudaStreamCaptureMode mode) {
    spipe_priv_visit_t c;
    c.found = cudaPeekAtLastError();
    c.mode = spipe_priv_set_mode(mode);
    c.arrived = 1;
    c.thrown = NULL;
    return c;
}

SPIPE_PRIV_LOCAL void spipe_priv_depart(const spipe_priv_visit_t *c) {
    if (!c->arrived) return;
    (void)spipe_priv_set_mode(c->mode);
    spipe_priv_leave_error(c->found);
}
