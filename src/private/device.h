/* ---- 3 device ------------------------------------------------------------------------------
   Facts of a GPU, its NUMA node, and making it the current one for a while. */
SPIPE_API int spipe_priv_numa_node(int device) {
#if defined(__linux__)
    char id[32], path[96];
    int node = -1, i;
    FILE *f;
    if (cudaDeviceGetPCIBusId(id, (int)sizeof id, device) != cudaSuccess) {
        (void)cudaGetLastError();
        return -1;
    }
    for (i = 0; id[i]; ++i) id[i] = (char)(id[i] >= 'A' ? id[i] | 32 : id[i]); /* lower case */
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", id);
    f = fopen(path, "r");
    if (f && fscanf(f, "%d", &node) != 1) node = -1;
    if (f) fclose(f);
    return node;
#else
    (void)device;
    return -1;
#endif
}

/* Keeps this thread, and so the memory that it touches first, on a NUMA node of Linux. */
SPIPE_API void spipe_priv_stay_on_node(int node) {
#if defined(__linux__) && defined(CPU_SET) /* which strict C99 hides */
    char path[64], comma = ',';
    int first, last;
    cpu_set_t cpus, allowed;
    FILE *f;
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    f = node >= 0 ? fopen(path, "r") : NULL;
    if (!f) return;
    CPU_ZERO(&cpus);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) CPU_ZERO(&allowed);
    while (comma == ',' && fscanf(f, "%d", &first) == 1) { /* as in 0-7,16-23 */
        last = first;
        if (fscanf(f, "-%d", &last) < 0) last = first;
        for (; first <= last && first < CPU_SETSIZE; ++first) {
            if (CPU_ISSET((size_t)first, &allowed)) CPU_SET((size_t)first, &cpus);
        }
        if (fscanf(f, "%c", &comma) != 1) comma = 0;
    }
    fclose(f);
    if (CPU_COUNT(&cpus) > 0) (void)sched_setaffinity(0, sizeof cpus, &cpus);
#else
    (void)node;
#endif
}

/* Only the facts that a run needs; the others take longer to ask for. */
SPIPE_API cudaError_t spipe_priv_device_facts(spipe_device_t *facts, int device) {
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
    facts->numa_node = -1;
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
    facts->numa_node = spipe_priv_numa_node(device);
    return cudaSuccess;
}

/* Afterwards cudaSetDevice(before), always: a stage may have left another device current. */
SPIPE_API cudaError_t spipe_priv_use_device(int device, int *before) {
    SPIPE_TRY(cudaGetDevice(before));
    return *before == device ? cudaSuccess : cudaSetDevice(device);
}

/* While any thread captures a stream in the global mode, which is CUDA's default, calls that may
   wait or allocate fail on every thread, and break that capture. With this thread in another mode
   they do not: thread-local (spipe_priv_own_calls) if this thread captures nothing itself; relaxed
   even then, for freeing. Returns the mode before, which is restored before a function of the
   user's is called, and when the library's call ends. */
SPIPE_API enum cudaStreamCaptureMode spipe_priv_set_mode(enum cudaStreamCaptureMode mode) {
    if (cudaThreadExchangeStreamCaptureMode(&mode) != cudaSuccess) (void)cudaGetLastError();
    return mode;
}

SPIPE_API enum cudaStreamCaptureMode spipe_priv_own_calls(void) {
    return spipe_priv_set_mode(cudaStreamCaptureModeThreadLocal);
}

/* What a thread had when it called the library, and has again when the call ends. */
typedef struct spipe_priv_visit {
    enum cudaStreamCaptureMode mode;
    cudaError_t found; /* CUDA's last error */
    int arrived;       /* 0 = nothing was changed yet */
    void *thrown;      /* a C++ exception of a function of the user's, to be thrown then; or NULL */
} spipe_priv_visit_t;

SPIPE_API spipe_priv_visit_t spipe_priv_arrive(enum cudaStreamCaptureMode mode) {
    spipe_priv_visit_t c;
    c.found = cudaPeekAtLastError();
    c.mode = spipe_priv_set_mode(mode);
    c.arrived = 1;
    c.thrown = NULL;
    return c;
}

SPIPE_API void spipe_priv_depart(const spipe_priv_visit_t *c) {
    if (!c->arrived) return;
    (void)spipe_priv_set_mode(c->mode);
    spipe_priv_leave_error(c->found);
}
