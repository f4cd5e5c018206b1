SPIPE_API const char *spipe_schedule_name(spipe_schedule_t schedule) {
    static const char *const names[] = {"auto",        "engines",       "serial",
                                        "depth-first", "breadth-first", "mapped"};
    return names[schedule >= SPIPE_ENGINES && schedule <= SPIPE_MAPPED ? (int)schedule : 0];
}
SPIPE_API double spipe_priv_gbps(size_t bytes, double ms) {
    return ms > 0.0 ? (double)bytes / ms * 1e-6 : 0.0;
}
SPIPE_API const char *spipe_priv_s(size_t n) { return n == 1 ? "" : "s"; }
SPIPE_API cudaError_t spipe_report_print(const spipe_report_t *r, FILE *to) {
    if (!r || !to) return cudaErrorInvalidValue;
    fprintf(to, "streampipe on %s\n", r->device[0] ? r->device : "no device");
    if (r->failure.error != cudaSuccess) {
        fprintf(to, "  FAILED    %s (%s)\n  whole     %zu chunks\n", r->failure.message,
                cudaGetErrorName(r->failure.error), r->failure.chunks_whole);
    }
    if (r->depth > 0) {
        fprintf(to, "  work      %zu elements in %zu chunk%s of %zu, %d stage%s\n  chunk     %s\n",
                r->count_done, r->chunks_done, spipe_priv_s(r->chunks_done), r->chunk,
                r->num_stages, spipe_priv_s((size_t)r->num_stages), r->why_chunk);
        fprintf(to, "  schedule  %s, %zu slot%s, %d stream%s%s: %s\n  staging   %s\n",
                spipe_schedule_name(r->schedule), r->depth, spipe_priv_s(r->depth), r->num_streams,
                spipe_priv_s((size_t)r->num_streams), r->replayed ? ", replayed" : r->trying
                ? ", trying" : "", r->why_schedule, r->why_staging);
        fprintf(to, "  host      %zu thread%s to fill, %zu to drain\n  memory    %.1f MiB device, "
                "%.1f MiB pinned\n", r->fill_threads, spipe_priv_s(r->fill_threads),
                r->drain_threads, (double)r->device_bytes / SPIPE_PRIV_MIB,
                (double)r->pinned_bytes / SPIPE_PRIV_MIB);
        fprintf(to, "  in        %.1f MiB, %.2f GB/s\n  out       %.1f MiB, %.2f GB/s\n",
                (double)r->bytes_in / SPIPE_PRIV_MIB, spipe_priv_gbps(r->bytes_in, r->wall_ms),
                (double)r->bytes_out / SPIPE_PRIV_MIB, spipe_priv_gbps(r->bytes_out, r->wall_ms));
        fprintf(to, "  time      %.3f ms, and %.3f ms to set up\n", r->wall_ms, r->setup_ms);
    }
    if (r->print_more) r->print_more(r, to);
    return ferror(to) ? cudaErrorOperatingSystem : cudaSuccess;
}
