/* ---- 2 errors ------------------------------------------------------------------------------
   Sentences for failures, fit to be printed, and keeping the first error of a sequence. */

/* The next character of a UTF-8 text; advances past it. For a control character, and a byte that is
   not UTF-8, 0xFFFD. */
SPIPE_PRIV_RARE unsigned spipe_priv_next_char(const char **at) {
    const unsigned char *s = (const unsigned char *)*at;
    unsigned c = *s++;
    const int more = (c >= 0xC2) + (c >= 0xE0) + (c >= 0xF0); /* bytes that follow the first */
    int left = more;
    if (more > 0) c &= 0x7Fu >> more;
    for (; left > 0 && (*s & 0xC0) == 0x80; --left) c = c << 6 | (*s++ & 0x3Fu);
    ++*at;
    if (left > 0 || c < 0x20 || (c >= 0x7F && (c < 0xA0 || more == 0))) return 0xFFFD;
    if (c < 2u << 5 * more || c >> 11 == 0x1B || c > 0x10FFFF) return 0xFFFD;
    *at = (const char *)s;
    return c;
}

/* Replaces by question marks what must not reach a terminal: a name that the user gave may move the
   cursor, and a name that was cut to length may end within a character. */
SPIPE_PRIV_RARE void spipe_priv_make_printable(char *text) {
    const char *from = text;
    while (*from) {
        const char *c = from;
        const int bad = spipe_priv_next_char(&from) == 0xFFFD;
        if (bad) *text++ = '?';
        while (!bad && c < from) *text++ = *c++;
    }
    *text = 0;
}

/* Names and words of the library's own values, in their order from SPIPE_STOPPED on. */
static const char *const spipe_priv_own_errors[][2] = {
    {"SPIPE_STOPPED", "the progress callback stopped the run"},
    {"SPIPE_WOULD_WAIT", "the run would have to wait for memory that other runs have"},
    {"SPIPE_ALL_HELD", "all chunks that can be taken are held; release one first"},
    {"SPIPE_CHANNEL_FULL", "the channel is full; receive first"},
    {"SPIPE_CHANNEL_EMPTY", "the channel is empty; send first"},
    {"SPIPE_ALL_LEASED", "all streams of the pool are leased"}};

/* The row of an own value; NULL = it is not one. */
SPIPE_PRIV_RARE const char *const *spipe_priv_own_error(cudaError_t e) {
    const int row = (int)e - (int)SPIPE_STOPPED;
    const int num = (int)(sizeof spipe_priv_own_errors / sizeof *spipe_priv_own_errors);
    return row >= 0 && row < num ? spipe_priv_own_errors[row] : NULL;
}

SPIPE_API const char *spipe_error_string(cudaError_t e) {
    const char *const *own = spipe_priv_own_error(e);
    return own ? own[1] : cudaGetErrorString(e);
}

SPIPE_API const char *spipe_error_name(cudaError_t e) {
    const char *const *own = spipe_priv_own_error(e);
    return own ? own[0] : cudaGetErrorName(e);
}

SPIPE_API SPIPE_PRIV_ATTRIBUTE((cold)) void spipe_priv_check(cudaError_t error, const char *what,
                                                             const char *why, const char *file,
                                                             int line) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s:%d: %s: %s (%s)\n", file, line, what,
            why && why[0] ? why : spipe_error_string(error), spipe_error_name(error));
    exit(EXIT_FAILURE);
}

SPIPE_API SPIPE_PRIV_ATTRIBUTE((cold)) void spipe_priv_check_run(const spipe_desc_t *d,
                                                                 spipe_report_t *report,
                                                                 const char *file, int line) {
    spipe_report_t own;
    if (!report) report = &own;
    spipe_priv_check(spipe_run(d, report), "spipe_run", report->failure.message, file, line);
}

/* Keeps the first error of a sequence that must go on, as when freeing. */
SPIPE_PRIV_RARE void spipe_priv_keep_error(cudaError_t *first, cudaError_t e) {
    if (*first == cudaSuccess) *first = e;
}

/* What a call returns is not left as CUDA's last error: the user's next check would meet it again.
   An error that was there before stays. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_take_error(cudaError_t e) {
    if (e != cudaSuccess && e == cudaPeekAtLastError()) (void)cudaGetLastError();
    return e;
}

/* The same where calls of CUDA may have failed that are not told of. found: CUDA's last error when
   the call began. */
SPIPE_PRIV_RARE void spipe_priv_leave_error(cudaError_t found) {
    if (cudaPeekAtLastError() != found) (void)cudaGetLastError();
}

SPIPE_PRIV_RARE void spipe_priv_failure_clear(spipe_failure_t *f) {
    memset(f, 0, sizeof *f);
    f->stage = -1;
    f->chunk = SPIPE_AUTO;
}

SPIPE_PRIV_RARE void spipe_priv_say(spipe_failure_t *f, const char *format, va_list args) {
    vsnprintf(f->message, sizeof f->message, format, args);
    spipe_priv_make_printable(f->message);
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_refuse(spipe_failure_t *f, cudaError_t e, const char *text,
                                              ...) {
    va_list args;
    if (!f) return e;
    spipe_priv_failure_clear(f);
    f->error = e;
    va_start(args, text);
    spipe_priv_say(f, text, args);
    va_end(args);
    return e;
}
