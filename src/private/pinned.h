/* ---- 10 memory -----------------------------------------------------------------------------
   Pinned memory, and what kind of memory a pointer is. Uses errors. */
SPIPE_API cudaError_t spipe_pinned_alloc(void **ptr, size_t bytes) {
    spipe_priv_visit_t visit;
    cudaError_t e;
    if (!ptr) return cudaErrorInvalidValue;
    *ptr = NULL;
    if (bytes == 0) return cudaSuccess;
    visit = spipe_priv_arrive(cudaStreamCaptureModeThreadLocal);
    e = cudaHostAlloc(ptr, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
    spipe_priv_depart(&visit);
    return e;
}

SPIPE_API cudaError_t spipe_pinned_free(void *ptr) {
    spipe_priv_visit_t visit;
    cudaError_t e;
    if (!ptr) return cudaSuccess;
    visit = spipe_priv_arrive(cudaStreamCaptureModeRelaxed);
    e = cudaFreeHost(ptr);
    spipe_priv_depart(&visit);
    return e;
}

SPIPE_API cudaError_t spipe_pin(void *ptr, size_t bytes) {
    spipe_priv_visit_t visit;
    cudaError_t e;
    if (!ptr || bytes == 0) return cudaErrorInvalidValue;
    visit = spipe_priv_arrive(cudaStreamCaptureModeThreadLocal);
    e = cudaHostRegister(ptr, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    spipe_priv_depart(&visit);
    return e;
}

SPIPE_API cudaError_t spipe_unpin(void *ptr) {
    spipe_priv_visit_t visit;
    cudaError_t e;
    if (!ptr) return cudaErrorInvalidValue;
    visit = spipe_priv_arrive(cudaStreamCaptureModeRelaxed);
    e = cudaHostUnregister(ptr);
    spipe_priv_depart(&visit);
    return e;
}

/* Pageable, pinned, or device (managed counts as device: any copy from it may be asynchronous). */
enum {
    SPIPE_PRIV_PAGEABLE,
    SPIPE_PRIV_PINNED,
    SPIPE_PRIV_DEVICE
};

static const char *const spipe_priv_memory_names[] = {"pageable", "pinned", "device"};

SPIPE_PRIV_LOCAL cudaError_t spipe_priv_memory_type(const void *ptr, int *type,
                                                    void **device_pointer) {
    struct cudaPointerAttributes a;
    cudaError_t e;
    int least, greatest;
    memset(&a, 0, sizeof a);
    *type = SPIPE_PRIV_PAGEABLE;
    e = cudaPointerGetAttributes(&a, ptr);
    (void)spipe_priv_take_error(e);
    if (e == cudaErrorInvalidValue) return cudaSuccess; /* toolkits before 11, of a pageable one */
    if (e != cudaSuccess) return e;
    if (a.type == cudaMemoryTypeHost)
        *type = SPIPE_PRIV_PINNED;
    else if (a.type != cudaMemoryTypeUnregistered)
        *type = SPIPE_PRIV_DEVICE;
    if (!device_pointer) return cudaSuccess;
    if (*type == SPIPE_PRIV_PINNED && !a.devicePointer) {
        /* The first calls of a thread do not start CUDA in it, and then CUDA does not say where the
           device sees the memory. This one starts it. */
        SPIPE_TRY(spipe_priv_take_error(cudaDeviceGetStreamPriorityRange(&least, &greatest)));
        SPIPE_TRY(spipe_priv_take_error(cudaPointerGetAttributes(&a, ptr)));
    }
    *device_pointer = a.devicePointer;
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_is_pinned(const void *ptr, size_t bytes, int *pinned) {
    int first = 0, last = 0;
    if (!pinned) return cudaErrorInvalidValue;
    *pinned = 0;
    if (!ptr) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_memory_type(ptr, &first, NULL));
    if (bytes > 1) ptr = (const unsigned char *)ptr + bytes - 1;
    SPIPE_TRY(spipe_priv_memory_type(ptr, &last, NULL));
    *pinned = first != SPIPE_PRIV_PAGEABLE && last != SPIPE_PRIV_PAGEABLE;
    return cudaSuccess;
}

/* Frees memory that was pinned in place. If CUDA did not unpin it, it is left: malloc would give it
   out again, and CUDA refuses to copy an array of which a part is pinned. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_unpin_and_free(void *pinned, void *base) {
    const cudaError_t e = spipe_unpin(pinned);
    int type = SPIPE_PRIV_PAGEABLE;
    if (e != cudaSuccess && spipe_priv_memory_type(pinned, &type, NULL) == cudaSuccess &&
        type == SPIPE_PRIV_PINNED) {
        return e;
    }
    free(base);
    return e;
}
