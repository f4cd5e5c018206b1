/* ---- 10 >>memory ---------------------------------------------------------------------------
   Page-locked (pinned) host memory. */
/*  spipe_pinned_alloc, spipe_pinned_free -- page-locked host memory, mapped for the GPU.
    spipe_pin, spipe_unpin -- page-lock memory that is allocated already, in place.
    spipe_is_pinned -- whether a copy from or to this range can be asynchronous.

    ptr        in/out  alloc: at least bytes long; NULL for 0 bytes and on error. Freeing NULL is
                       fine. pin: the first byte, need not be page-aligned; unpin: the same.
    bytes      bytes   pinning runs at 1-2 GB/s: pin a small amount once and keep it; pin an array
                       in place if it is sent several times. is_pinned looks at the first and the
                       last byte.
    pinned     out     1 = pinned (or device or managed memory), 0 = pageable.
    Returns    cudaSuccess; cudaErrorInvalidValue; cudaErrorMemoryAllocation;
               cudaErrorHostMemoryAlreadyRegistered; cudaErrorHostMemoryNotRegistered;
               cudaErrorNotSupported where the system refuses (WSL2, limits): use it unpinned.
    Blocks     yes, for the time of pinning; free and unpin wait for the device. is_pinned: no.
    Threads    any.   Callback  no.   Capture  is_pinned: yes. The others: no.
    Allocates  alloc: pinned host memory. */
SPIPE_API cudaError_t spipe_pinned_alloc(void **ptr, size_t bytes);
SPIPE_API cudaError_t spipe_pinned_free(void *ptr);
SPIPE_API cudaError_t spipe_pin(void *ptr, size_t bytes);
SPIPE_API cudaError_t spipe_unpin(void *ptr);
SPIPE_API cudaError_t spipe_is_pinned(const void *ptr, size_t bytes, int *pinned);
