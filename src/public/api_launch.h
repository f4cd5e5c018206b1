/* ---- 14 >>launch ---------------------------------------------------------------------------
   Launching kernels from a stage. All but spipe_blocks is for C++ and .cu files only. */
/*  spipe_blocks -- how many blocks cover count elements with threads each.

    count      in      elements; 0 gives 1 block, so that a launch is always valid.
    threads    in      threads per block, 1 or more.
    Returns    the number of blocks, at most 2^31 - 1 (if that is too few, the kernel must loop).
    Blocks     no.   Threads  any.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API unsigned spipe_blocks(size_t count, unsigned threads);

#ifdef __cplusplus
/*  SPIPE_LAUNCH(kernel, grid, block, shared_bytes, stream, args...) launches a kernel and gives
    this launch's own cudaError_t; the arguments are converted to the kernel's parameter types. A
    stage gives its chunk in place of the chunk's stream: then a grid or block that is too large
    ends the run with a sentence that names it and the limit. Such sizes are
    cudaErrorInvalidConfiguration, also where the driver says cudaErrorInvalidValue. A template
    with commas goes in parentheses: SPIPE_LAUNCH((k<float, 4>), ...).                          */
#define SPIPE_LAUNCH(kernel, grid, block, shared_bytes, ...) /* chunk or stream, and arguments */  \
    spipe_priv_launch((grid), (block), (shared_bytes), kernel, __VA_ARGS__)

/*  SPIPE_MAP_STAGE(name, kernel, in_type, out_type) defines a stage function for a kernel
    (const in_type *in, out_type *out, size_t n), one thread per element, from buffer 0 to 1.   */
#define SPIPE_MAP_STAGE(name, kernel, in_type, out_type)                                           \
    SPIPE_PRIV_LOCAL cudaError_t name(const spipe_chunk_t *c, void *user) {                        \
        (void)user;                                                                                \
        if (c->index == 0) spipe_priv_check_map(c, SPIPE_PRIV_LEAVES);                             \
        return SPIPE_LAUNCH(kernel, spipe_blocks(c->count, 256), 256, 0, c,                        \
                            SPIPE_BUF(c, 0, const in_type), SPIPE_BUF(c, 1, out_type), c->count);  \
    }
#else
#define SPIPE_LAUNCH(...)                                                                          \
    SPIPE_PRIV_RENAMED("SPIPE_LAUNCH needs C++: put kernel and stage into a .cu file for nvcc")
#define SPIPE_MAP_STAGE(name, ...)                                                                 \
    SPIPE_PRIV_RENAMED("SPIPE_MAP_STAGE needs C++: put kernel and stage into a .cu file for nvcc")
#endif
