/* ---- 2 errors ------------------------------------------------------------------------------
   Sentences for failures, and keeping the first error of a sequence. */
SPIPE_API void spipe_priv_check(cudaError_t error, const char *what, const char *why,
                                const char *file, int line) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s:%d: %s: %s (%s)\n", file, line, what,
            why && why[0] ? why : cudaGetErrorString(error), cudaGetErrorName(error));
    exit(EXIT_FAILURE);
}

SPIPE_API void spipe_priv_check_run(const spipe_desc_t *d, spipe_report_t *report, const char *file,
                                    int line) {
    spipe_report_t own;
    if (!report) report = &own;
    spipe_priv_check(spipe_run(d, report), "spipe_run", report->failure.message, file, line);
}

/* Keeps the first error of a sequence that must go on, as when freeing. */
SPIPE_API void spipe_priv_keep_error(cudaError_t *first, cudaError_t e) {
    if (*first == cudaSuccess) *first = e;
}

SPIPE_API void spipe_priv_failure_clear(spipe_failure_t *f) {
    memset(f, 0, sizeof *f);
    f->stage = -1;
    f->chunk = SPIPE_AUTO;
}

SPIPE_API cudaError_t spipe_priv_refuse(spipe_failure_t *f, cudaError_t e, const char *text, ...) {
    va_list args;
    if (!f) return e;
    spipe_priv_failure_clear(f);
    f->error = e;
    va_start(args, text);
    vsnprintf(f->message, sizeof f->message, text, args);
    va_end(args);
    return e;
}
