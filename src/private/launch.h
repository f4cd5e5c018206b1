/* ---- 15 launch -----------------------------------------------------------------------------
   Grid sizes, and the launch behind SPIPE_LAUNCH. */
SPIPE_API unsigned spipe_blocks(size_t count, unsigned threads) {
    const size_t t = threads > 0 ? threads : 1;
    const size_t blocks = count / t + (count % t != 0);
    if (blocks == 0) return 1;
    return blocks < (size_t)INT_MAX ? (unsigned)blocks : (unsigned)INT_MAX;
}
#ifdef __cplusplus
template <typename... Expected, typename... Actual>
SPIPE_API cudaError_t spipe_priv_launch(dim3 grid, dim3 block, size_t shared_bytes,
                                        void (*kernel)(Expected...), cudaStream_t stream,
                                        Actual... args) {
    static_assert(sizeof...(Expected) == sizeof...(Actual),
                  "SPIPE_LAUNCH: the kernel takes more or fewer arguments than it is given");
    cudaLaunchConfig_t config = cudaLaunchConfig_t();
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, static_cast<Expected>(args)...);
}
#endif
