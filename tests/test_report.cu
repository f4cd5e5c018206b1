/*  test_report.cu -- a report separates the time that only a first run takes, CUDA's start and
    new pages, from the time of every run. */
#include "pipe_common.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

static cudaError_t copy_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return cudaMemcpyAsync(c->data[1], c->data[0], c->count, cudaMemcpyDeviceToDevice, c->stream);
}

static char x[4000], y[4000];

static spipe_desc_t describe(void) {
    spipe_desc_t d = spipe_desc_default();
    d.count = sizeof x;
    d.chunk = 1000;
    spipe_add_input(&d, x, 1);
    spipe_add_output(&d, y, 1);
    spipe_add_stage(&d, "copy", copy_stage, NULL);
    return d;
}

/* Whether the printed report has such words. */
static int says(const spipe_report_t *r, const char *words) {
    char text[4000];
    FILE *f = tmpfile();
    size_t n;
    if (!f) return 0;
    SPIPE_CHECK(spipe_report_print(r, f));
    rewind(f);
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    fclose(f);
    return strstr(text, words) != NULL;
}

static void test_first(void) {
    spipe_desc_t d = describe();
    spipe_pipeline_t *p;
    spipe_report_t r;
    SPIPE_CHECK_RUN(&d, &r);
#ifdef __HOSTCUDA__ /* which takes no modelled time to start */
    tap_ok(r.start_ms >= 0.0 && r.start_ms <= r.setup_ms, "CUDA's start is part of the set-up");
#else
    tap_ok(r.start_ms > 0.0 && r.start_ms <= r.setup_ms, "CUDA's start is part of the set-up");
#endif
    r.start_ms = r.setup_ms = 100.0;
    r.wall_ms = 7.0;
    r.new_page_bytes = 0; /* a sanitizer makes some for itself */
    tap_ok(says(&r, "100.0 ms of that CUDA took to start: a second run takes about 7.0 ms"),
           "the report says what a second run takes");
    r.start_ms = 4.0;
    tap_ok(!says(&r, "a second run takes"), "not where CUDA had started");
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_run(p, &r));
    SPIPE_CHECK(spipe_pipeline_run(p, &r));
    tap_ok(r.start_ms == 0.0 && !says(&r, "a second run takes"),
           "a later run of a kept pipeline says nothing of it");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
}

/* An output that nobody has written yet costs the system's time, in the first run over it. */
static void test_new_pages(void) {
#if defined(MADV_NOHUGEPAGE) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    const size_t n = (size_t)16 << 20;
    char *in = (char *)malloc(n), *written = (char *)malloc(n);
    void *out = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    spipe_report_t r;
    if (!in || !written || out == MAP_FAILED || madvise(out, n, MADV_NOHUGEPAGE) != 0) exit(99);
    memset(in, 1, n);
    memset(written, 1, n);
    d.count = n;
    d.chunk = 1 << 20;
    d.depth = 4;
    d.staging = SPIPE_STAGING_COPY;
    spipe_add_input(&d, in, 1);
    spipe_add_output(&d, written, 1);
    spipe_add_stage(&d, "copy", copy_stage, NULL);
    /* The pipeline's own memory is new in the first run; on hostcuda the device's is, too. */
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_run(p, &r));
    SPIPE_CHECK(spipe_pipeline_set_host(p, 1, out));
    SPIPE_CHECK(spipe_pipeline_run(p, &r));
    tap_ok(r.new_page_bytes >= n && r.new_page_bytes < n + n / 8 && says(&r, "\n  pages     16."),
           "the report tells how much of the arrays was never written before: %zu bytes",
           r.new_page_bytes);
    SPIPE_CHECK(spipe_pipeline_run(p, &r));
    tap_ok(r.new_page_bytes < n / 8 && !says(&r, "\n  pages "),
           "and not in the next run: %zu bytes", r.new_page_bytes);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    munmap(out, n);
    free(written);
    free(in);
#else
    tap_skip("the report tells of pages that are new", "no MADV_NOHUGEPAGE, or a sanitizer");
#endif
}

/* Lines of a report that has this verdict: the longest, and whether all of its words are there. */
static void test_wrapped(void) {
    static spipe_report_t r;
    char text[8000];
    size_t longest = 0, i, n;
    int words = 0;
    FILE *f = tmpfile();
    if (!f) exit(99);
    r.timed_ms = 1.0;
    for (i = 0; i < 60; ++i) strcat(r.verdict, i % 20 == 19 ? "wording\n" : "wording ");
    memset(r.verdict + strlen(r.verdict), 'x', 200); /* a word that fits into no line */
    SPIPE_CHECK(spipe_report_print(&r, f));
    rewind(f);
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    fclose(f);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        for (char *w = strstr(line, "wording"); w; w = strstr(w + 1, "wording")) ++words;
        if (strlen(line) > longest && !strstr(line, "xx")) longest = strlen(line);
        if (strstr(line, "xx")) words += 100 * (strlen(line) == 200 + 12);
    }
    tap_ok(longest <= 100 && longest > 90 && words == 160,
           "a verdict's lines are at most 100 columns wide and have every word");
}

int main(void) {
    test_first();
    test_new_pages();
    test_wrapped();
    return tap_done();
}
