/* ---- 14 launch -----------------------------------------------------------------------------
   The launch behind SPIPE_LAUNCH, in every C++ file that launches. */
#ifdef __cplusplus
/* Says what is wrong with the sizes of a launch; 0: nothing. */
SPIPE_PRIV_RARE int spipe_priv_wrong_sizes(const dim3 &g, const dim3 &b, char *text, size_t bytes) {
    const double threads = (double)b.x * b.y * b.z;
    const int grid = !g.x || !g.y || !g.z || g.x > (unsigned)INT_MAX || g.y > 65535 || g.z > 65535;
    if (!grid && threads > 0.0 && threads <= 1024.0 && b.z <= 64) return 0;
    if (grid)
        snprintf(text, bytes,
                 "a kernel was launched with a grid of %u x %u x %u blocks; there may be 1 to "
                 "2147483647 x 65535 x 65535",
                 g.x, g.y, g.z);
    else
        snprintf(text, bytes,
                 "a kernel was launched with blocks of %u x %u x %u threads; a block may have 1 to "
                 "1024, at most 64 in z",
                 b.x, b.y, b.z);
    return 1;
}

/* The error of a launch that failed; wrong sizes are one error, whatever the driver. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_launch_failed(cudaError_t e, const dim3 &grid,
                                                     const dim3 &block) {
    char text[192];
    if (e != cudaErrorInvalidValue || !spipe_priv_wrong_sizes(grid, block, text, sizeof text)) {
        return e;
    }
    return cudaErrorInvalidConfiguration;
}

template <typename... Expected, typename... Actual>
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_launch(dim3 grid, dim3 block, size_t shared_bytes,
                                               void (*kernel)(Expected...), cudaStream_t stream,
                                               Actual... args) {
    static_assert(sizeof...(Expected) == sizeof...(Actual),
                  "SPIPE_LAUNCH: the kernel takes more or fewer arguments than it is given");
    cudaLaunchConfig_t config = cudaLaunchConfig_t();
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    const cudaError_t e = cudaLaunchKernelEx(&config, kernel, static_cast<Expected>(args)...);
    return e == cudaSuccess ? e : spipe_priv_launch_failed(e, grid, block);
}

/* The same for a chunk, on its stream; what is wrong is noted in it. Only a pointer to a chunk is
   one, so that NULL is a stream. */
template <typename Chunk>
struct spipe_priv_of_chunk;

template <>
struct spipe_priv_of_chunk<spipe_chunk_t> {
    typedef cudaError_t error;
};

template <typename Chunk, typename... Expected, typename... Actual>
SPIPE_PRIV_LOCAL typename spipe_priv_of_chunk<Chunk>::error
spipe_priv_launch(dim3 grid, dim3 block, size_t shared_bytes, void (*kernel)(Expected...),
                  const Chunk *c, Actual... args) {
    const cudaError_t e = spipe_priv_launch(grid, block, shared_bytes, kernel, c->stream, args...);
    char text[192];
    if (e == cudaErrorInvalidConfiguration &&
        spipe_priv_wrong_sizes(grid, block, text, sizeof text)) {
        (void)spipe_chunk_fail(c, "%s", text);
    }
    return e;
}
#endif

/* From here on the code, up to the licence. */
#if SPIPE_PRIV_CODE
