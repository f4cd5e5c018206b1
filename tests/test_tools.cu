/*  test_tools.cu -- pictures show what a timeline holds, whatever it holds; files are there whole
    or not at all; the doctor tells good from bad.

    With a folder as argument it only writes pictures there, for tests/cli/timeline.sh to look at.*/
#include "streampipe_tools.h"
#include "tap.h"

#include <locale.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static double not_a_number, infinite;
static char folder[] = "/tmp/spipe_tools_XXXXXX";
static const char *hostile = "a<b>&\"c'\\\x01\x1b[31m\xff\xc3\xa9\xed\xa0\x80</script>]]>";

static spipe_span_t span(spipe_span_kind_t kind, int stage, int stream, size_t chunk, double begin,
                         double end) {
    spipe_span_t s;
    s.kind = kind;
    s.stage = stage;
    s.stream = stream;
    s.chunk = chunk;
    s.begin_ms = begin;
    s.end_ms = end;
    return s;
}

/* A run of two stages, the second without a name: each step of a chunk after the one before, and
   after the same step of the chunk before. spans has room for all. */
static spipe_timeline_t modelled(size_t chunks, spipe_span_t *spans, size_t capacity) {
    static const double ms[] = {0.08, 0.05, 0.02, 0.08};
    spipe_timeline_t t = spipe_timeline_default();
    double ended[4] = {0.0};
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
        double end = 0.0;
        for (int step = 0; step < 4; ++step) {
            const double begin = end > ended[step] ? end : ended[step];
            spipe_span_kind_t kind = step == 0 ? SPIPE_SPAN_IN : SPIPE_SPAN_OUT;
            if (step == 1 || step == 2) kind = SPIPE_SPAN_STAGE;
            end = ended[step] = begin + ms[step];
            spans[t.num_spans++] =
                span(kind, kind == SPIPE_SPAN_STAGE ? step - 1 : -1, 0, chunk, begin, end);
        }
    }
    t.spans = spans;
    t.capacity = capacity;
    t.num_stages = 2;
    t.stage_names[0] = "blur";
    t.modelled = 1;
    t.wall_ms = ended[3];
    snprintf(t.device, sizeof t.device, "h200");
    return t;
}

/* What no run should give: every sort of wrong number, overlaps, odd names. */
static spipe_timeline_t odd(spipe_span_t *s, size_t capacity) {
    spipe_timeline_t t = spipe_timeline_default();
    size_t n = 0;
    s[n++] = span(SPIPE_SPAN_IN, -1, 0, 0, 0.0, 1.0);
    s[n++] = span(SPIPE_SPAN_IN, -1, 0, 1, 0.9995, 2.0); /* clocks that disagree */
    s[n++] = span(SPIPE_SPAN_IN, -1, 0, 2, not_a_number, 3.0);
    s[n++] = span(SPIPE_SPAN_IN, -1, 0, 3, 2.0, infinite);
    s[n++] = span(SPIPE_SPAN_IN, -1, 0, 4, -infinite, 2.5);
    s[n++] = span(SPIPE_SPAN_IN, -1, 0, 5, -5.0, -4.0);
    s[n++] = span(SPIPE_SPAN_STAGE, 0, 1, 1, 2.5, 4.0); /* beside the next */
    s[n++] = span(SPIPE_SPAN_STAGE, 0, 0, 0, 1.5, 3.0);
    s[n++] = span(SPIPE_SPAN_STAGE, 1, 0, 0, 3.5, 3.0); /* ends before it begins */
    s[n++] = span(SPIPE_SPAN_HOST, 2, 0, 0, 3.0, 3.0);
    s[n++] = span(SPIPE_SPAN_STAGE, 99, 0, 0, 3.0, 3.5); /* no such stage */
    s[n++] = span((spipe_span_kind_t)7, 0, 0, 0, 0.0, 1.0);
    s[n++] = span(SPIPE_SPAN_OUT, -1, 0, (size_t)1 << (5 * sizeof(size_t)), 4.0, 5.0);
    t.spans = s;
    t.capacity = capacity;
    t.num_spans = n;
    t.num_lost = 3;
    t.wall_ms = not_a_number;
    t.num_stages = 3;
    t.stage_names[0] = hostile;
    t.stage_names[1] = "";
    memset(t.device, '<', sizeof t.device); /* no end */
    t.title = hostile;
    snprintf(t.verdict, sizeof t.verdict, "the limit is %s\n%s\n", hostile, hostile);
    return t;
}

static int write_all(const char *to) {
    static spipe_span_t spans[8000];
    static const size_t sizes[] = {8, 1000};
    static const char *const names[] = {"8", "1000", "odd", "empty"};
    char path[4096];
    size_t i;
    for (i = 0; i < 4; ++i) {
        const char *name = names[i];
        spipe_timeline_t t = spipe_timeline_default();
        FILE *f;
        if (i < 2) t = modelled(sizes[i], spans, 8000);
        if (i == 2) t = odd(spans, 8000);
        snprintf(path, sizeof path, "%s/%s.svg", to, name);
        SPIPE_CHECK(spipe_timeline_write_svg(&t, path));
        snprintf(path, sizeof path, "%s/%s.html", to, name);
        SPIPE_CHECK(spipe_timeline_write_html(&t, path));
        snprintf(path, sizeof path, "%s/%s.json", to, name);
        SPIPE_CHECK(spipe_timeline_write_trace(&t, path));
        snprintf(path, sizeof path, "%s/%s.txt", to, name);
        f = fopen(path, "w");
        if (!f) return 1;
        SPIPE_CHECK(spipe_timeline_print(&t, f, 100));
        fclose(f);
    }
    spipe_report_t report;
    memset(&report, 0, sizeof report);
    report.failure.error = cudaErrorInvalidValue;
    report.failure.chunk = SPIPE_AUTO;
    report.wall_ms = 1.5;
    report.setup_ms = not_a_number;
    report.schedule = SPIPE_SCHEDULE_ENGINES;
    snprintf(report.failure.message, sizeof report.failure.message, "stage '%s' failed", hostile);
    snprintf(path, sizeof path, "%s/report.json", to);
    SPIPE_CHECK(spipe_report_write_json(&report, path));
    return 0;
}

/* The file's text, with a zero behind it. */
static char *slurp(FILE *f) {
    char *text;
    size_t n;
    fseek(f, 0, SEEK_END);
    n = (size_t)ftell(f);
    rewind(f);
    text = (char *)calloc(n + 1, 1);
    if (!text || fread(text, 1, n, f) != n) exit(99);
    fclose(f);
    return text;
}

static char *printed(const spipe_timeline_t *t, int columns) {
    FILE *f = tmpfile();
    if (!f) exit(99);
    SPIPE_CHECK(spipe_timeline_print(t, f, columns));
    return slurp(f);
}

static void test_print(void) {
    spipe_span_t s[4];
    spipe_timeline_t t = spipe_timeline_default();
    size_t widest = 0;
    char *text, *line;
    s[0] = span(SPIPE_SPAN_IN, -1, 0, 0, 0.0, 1.0);
    s[1] = span(SPIPE_SPAN_IN, -1, 0, 1, 1.0, 2.0);
    s[2] = span(SPIPE_SPAN_STAGE, 0, 0, 0, 1.0, 2.0);
    s[3] = span(SPIPE_SPAN_STAGE, 0, 1, 1, 2.0, 4.0);
    t.spans = s;
    t.capacity = t.num_spans = 4;
    t.wall_ms = 4.0;
    t.stage_names[0] = "blur";
    snprintf(t.device, sizeof t.device, "Some GPU");
    text = printed(&t, 64);
    tap_ok(strstr(text, "copy in         |00000000001111111111....................|  50 %") != NULL,
           "a row shows chunks by their digits, gaps by dots, and how busy it is");
    tap_ok(strstr(text, "stage 'blur'    |..........000000000011111111111111111111|  75 %") != NULL,
           "stages that do not overlap share a row, whatever their streams");
    tap_ok(strstr(text, "timeline: Some GPU, 2 chunks, 4.000 ms, measured\n") != NULL,
           "the title says what ran where, and that it was measured");
    tap_ok(strstr(text, "modelled") == NULL, "measured times are not called modelled");
    free(text);
    s[3].begin_ms = 1.5;
    snprintf(t.device, sizeof t.device, "a GPU (modelled)");
    t.title = "the second run";
    text = printed(&t, 64);
    tap_ok(strstr(text, "timeline: the second run: a GPU (modelled), 2 chunks, 4.000 ms\n") != NULL,
           "the title says which run, and of a device that is a model not that it was measured");
    free(text);
    t.modelled = 1;
    text = printed(&t, 64);
    tap_ok(strstr(text, "stage 'blur' #2 |...............1111") != NULL,
           "what overlaps has two rows");
    tap_ok(strstr(text, "ms, modelled\n") != NULL, "modelled times are called so");
    free(text);
    text = printed(&t, 100000);
    for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (strlen(line) > widest) widest = strlen(line);
    }
    tap_ok(widest <= 400, "a chart is at most 400 columns wide: %zu", widest);
    free(text);
}

static void test_odd(void) {
    static spipe_span_t spans[8000];
    spipe_timeline_t t = odd(spans, 8000);
    char *text = printed(&t, 80), *at;
    int control = 0;
    for (at = text; *at; ++at) control += (*at > 0 && *at < 32 && *at != '\n') || *at == 127;
    tap_ok(control == 0, "no control character of a name reaches the terminal");
    tap_ok(strstr(text, "7 operations not shown") != NULL,
           "spans without numbers or of no kind are left out and counted with the lost ones");
    tap_ok(strstr(text, "nan") == NULL && strstr(text, "inf") == NULL, "no nan, no inf");
    tap_ok(strstr(text, "copy in #2") == NULL, "clocks that disagree by half a us are no overlap");
    free(text);
    t = spipe_timeline_default();
    text = printed(&t, 80);
    tap_ok(strstr(text, "0 chunks") != NULL, "an empty timeline has an axis and no row");
    free(text);
    t.num_spans = 1;
    tap_ok(spipe_timeline_print(&t, stdout, 80) == cudaErrorInvalidValue &&
               spipe_timeline_print(NULL, stdout, 80) == cudaErrorInvalidValue &&
               spipe_timeline_print(&t, NULL, 80) == cudaErrorInvalidValue,
           "more spans than there is room for, no timeline and no file are refused");
    t = modelled(1000, spans, 8000);
    text = printed(&t, 100);
    tap_ok(strstr(text, "####") != NULL, "chunks too many to tell apart show as #");
    free(text);
}

typedef cudaError_t (*writer_t)(const spipe_timeline_t *t, const char *path);

static cudaError_t write_report(const spipe_timeline_t *t, const char *path) {
    static spipe_report_t report;
    (void)t;
    return spipe_report_write_json(&report, path);
}

static const struct {
    writer_t write;
    const char *what;
} writers[] = {{spipe_timeline_write_svg, "SVG"},
               {spipe_timeline_write_html, "HTML"},
               {spipe_timeline_write_trace, "trace"},
               {write_report, "report"}};

static int exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

/* A disk that fills up half way, as a limit on the size of files. */
static int leaves_nothing(writer_t write, const spipe_timeline_t *t, const char *path) {
    struct rlimit before, limit;
    char part[4200];
    FILE *f = fopen(path, "w");
    cudaError_t e;
    char *text;
    int good;
    if (!f) return 0;
    fputs("old", f);
    fclose(f);
    (void)signal(SIGXFSZ, SIG_IGN);
    if (getrlimit(RLIMIT_FSIZE, &before) != 0) return 0;
    limit = before;
    limit.rlim_cur = 100;
    (void)setrlimit(RLIMIT_FSIZE, &limit);
    errno = 0;
    e = write(t, path);
    good = e == cudaErrorOperatingSystem && errno == EFBIG;
    (void)setrlimit(RLIMIT_FSIZE, &before);
    snprintf(part, sizeof part, "%s.part", path);
    text = slurp(fopen(path, "r"));
    good = good && strcmp(text, "old") == 0 && !exists(part);
    free(text);
    (void)remove(path);
    return good;
}

static void test_files(void) {
    static spipe_span_t spans[8000];
    spipe_timeline_t t = modelled(1000, spans, 8000);
    char path[4096], part[4200];
    struct stat st;
    for (size_t i = 0; i < sizeof writers / sizeof *writers; ++i) {
        const writer_t write = writers[i].write;
        snprintf(path, sizeof path, "%s/file", folder);
        snprintf(part, sizeof part, "%s.part", path);
        tap_ok(write(&t, path) == cudaSuccess && exists(path) && !exists(part),
               "%s: the file is there and nothing beside it", writers[i].what);
        tap_ok(write(&t, path) == cudaSuccess, "%s: an older file is replaced", writers[i].what);
        (void)remove(path);
        snprintf(part, sizeof part, "%s.part", folder);
        tap_ok(write(&t, folder) == cudaErrorOperatingSystem && !exists(part),
               "%s: a folder is no file", writers[i].what);
        snprintf(part, sizeof part, "%s/none/file", folder);
        tap_ok(write(&t, part) == cudaErrorOperatingSystem && errno == ENOENT,
               "%s: a folder that is not there is an error", writers[i].what);
        tap_ok(write(&t, NULL) == cudaErrorInvalidValue && write(&t, "") == cudaErrorInvalidValue,
               "%s: no path is refused", writers[i].what);
        /* By a link: if a writer renames onto it after all, it is the link that goes. */
        snprintf(part, sizeof part, "%s/full", folder);
        if (exists("/dev/full") && symlink("/dev/full", part) == 0) {
            tap_ok(write(&t, part) == cudaErrorOperatingSystem && errno == ENOSPC &&
                       stat(part, &st) == 0 && S_ISCHR(st.st_mode),
                   "%s: a full device is an error, and stays a device", writers[i].what);
            (void)remove(part);
        } else {
            tap_skip("a full device is an error", "there is no /dev/full");
        }
        tap_ok(leaves_nothing(write, &t, path),
               "%s: a disk that fills up half way leaves the old file and no half one",
               writers[i].what);
    }
}

static int holds(const char *path, const char *text) {
    FILE *f = fopen(path, "r");
    char *there = f ? slurp(f) : NULL;
    const int same = there && strcmp(there, text) == 0;
    free(there);
    return same;
}

static void put(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    if (f) fputs(text, f);
    if (f) fclose(f);
}

/* What lies where a writer would put its temporary file is somebody else's. */
static void test_temporary_names(void) {
    static spipe_span_t spans[8000];
    spipe_timeline_t t = modelled(1000, spans, 8000);
    char path[4096], part[4200], other[4200], name[4300];
    struct stat st;
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    for (size_t i = 0; i < sizeof writers / sizeof *writers; ++i) {
        snprintf(part, sizeof part, "%s.part", path);
        put(other, "precious");
        tap_ok(symlink(other, part) == 0 && writers[i].write(&t, path) == cudaSuccess &&
                   holds(other, "precious") && lstat(part, &st) == 0 && S_ISLNK(st.st_mode) &&
                   lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 100,
               "%s: a link at the temporary name is not followed", writers[i].what);
        (void)remove(part);
        (void)remove(path);
        (void)remove(other); /* a link to nothing */
        tap_ok(symlink(other, part) == 0 && writers[i].write(&t, path) == cudaSuccess &&
                   !exists(other) && exists(path),
               "%s: nor is one that leads nowhere", writers[i].what);
        (void)remove(part);
        put(path, "old");
        put(part, "mine");
        for (int k = 1; k < 100; ++k) {
            snprintf(name, sizeof name, "%s%d", part, k);
            put(name, "mine");
        }
        int good = writers[i].write(&t, path) == cudaErrorOperatingSystem && errno == EEXIST &&
                   holds(path, "old") && holds(part, "mine");
        for (int k = 1; k < 100; ++k) {
            snprintf(name, sizeof name, "%s%d", part, k);
            good &= holds(name, "mine");
            (void)remove(name);
        }
        snprintf(name, sizeof name, "%s1", part);
        good &= writers[i].write(&t, path) == cudaSuccess && holds(part, "mine") &&
                !holds(path, "old") && !exists(name);
        tap_ok(good, "%s: files at temporary names stay; when all are taken it is an error",
               writers[i].what);
        (void)remove(part);
        (void)remove(path);
    }
}

static void test_locale(void) {
    static spipe_span_t spans[64];
    const char *name = setlocale(LC_ALL, "de_DE.UTF-8");
    if (!name) name = setlocale(LC_ALL, "fr_FR.UTF-8");
    if (!name) {
        tap_skip("numbers have a point in every locale", "no locale with a comma here");
        return;
    }
    spipe_timeline_t t = modelled(8, spans, 64);
    char *text = printed(&t, 80);
    tap_ok(strstr(text, ",") == strstr(text, ", 8 chunks"), "numbers have a point in every locale");
    free(text);
    setlocale(LC_ALL, "C");
}

/* ---- The doctor, on whatever runtime this is ------------------------------------------------- */
static spipe_checkup_t examine(const spipe_doctor_desc_t *d) {
    spipe_checkup_t c;
    FILE *f = tmpfile();
    char *text;
    size_t cures = 0;
    if (!f) exit(99);
    SPIPE_CHECK(spipe_doctor(d, &c, f));
    text = slurp(f);
    for (char *at = text; (at = strstr(at, "cure: ")) != NULL; ++at) ++cures;
    if (cures != (size_t)c.num_look) tap_note("%zu cures for %d findings", cures, c.num_look);
    if (cures != (size_t)c.num_look) c.num_look = -1;
    free(text);
    return c;
}

static void test_doctor_memory(void) {
    static char pageable[64];
    spipe_doctor_desc_t d = spipe_doctor_default();
    void *pinned = NULL, *device = NULL;
    spipe_device_t facts;
    SPIPE_CHECK(spipe_pinned_alloc(&pinned, 4096));
    SPIPE_CHECK(cudaMalloc(&device, 4096));
    SPIPE_CHECK(spipe_device_get(&facts, -1));
    d.probe_bytes = 0;
    d.pointer = pageable;
    d.bytes = sizeof pageable;
    tap_ok(examine(&d).verdict[SPIPE_FIND_PINNED] ==
               (facts.host_page_tables ? SPIPE_VERDICT_OK : SPIPE_VERDICT_LOOK),
           "pageable memory is found");
    d.pointer = pinned;
    tap_ok(examine(&d).verdict[SPIPE_FIND_PINNED] == SPIPE_VERDICT_OK, "pinned memory is fine");
    d.pointer = device;
    tap_ok(examine(&d).verdict[SPIPE_FIND_PINNED] == SPIPE_VERDICT_OK, "so is device memory");
    tap_ok(examine(&d).copies_overlap < 0.0, "what was not to be measured is not");
    SPIPE_CHECK(spipe_pinned_free(pinned));
    SPIPE_CHECK(cudaFree(device));
}

static void test_doctor_streams(void) {
    spipe_doctor_desc_t d = spipe_doctor_default();
    cudaStream_t streams[11];
    spipe_checkup_t c;
    for (int i = 0; i < 10; ++i)
        SPIPE_CHECK(spipe_stream_create(&streams[i], SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(cudaStreamCreate(&streams[10]));
    d.probe_bytes = 0;
    d.streams = streams;
    d.num_streams = 4;
    c = examine(&d);
    tap_ok(c.verdict[SPIPE_FIND_NON_BLOCKING] == SPIPE_VERDICT_OK &&
               c.verdict[SPIPE_FIND_DIFFERENT] == SPIPE_VERDICT_OK &&
               c.verdict[SPIPE_FIND_CONNECTIONS] == SPIPE_VERDICT_OK,
           "four non-blocking streams are fine");
    d.num_streams = 10;
    (void)unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    tap_ok(examine(&d).verdict[SPIPE_FIND_CONNECTIONS] == SPIPE_VERDICT_LOOK,
           "more streams than hardware connections are found");
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "16", 1);
    tap_ok(examine(&d).verdict[SPIPE_FIND_CONNECTIONS] == SPIPE_VERDICT_OK,
           "CUDA_DEVICE_MAX_CONNECTIONS counts");
    (void)unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    d.num_streams = 11;
    tap_ok(examine(&d).verdict[SPIPE_FIND_NON_BLOCKING] == SPIPE_VERDICT_LOOK,
           "a blocking stream is found");
    cudaStream_t others[3] = {streams[0], NULL, streams[0]}; /* NULL: the legacy default stream */
    d.streams = others;
    d.num_streams = 2;
    tap_ok(examine(&d).verdict[SPIPE_FIND_NON_BLOCKING] == SPIPE_VERDICT_LOOK,
           "the legacy default stream is found");
    d.num_streams = 3;
    tap_ok(examine(&d).verdict[SPIPE_FIND_DIFFERENT] == SPIPE_VERDICT_LOOK,
           "a stream named twice is found");
    d.num_streams = 1;
    tap_ok(examine(&d).verdict[SPIPE_FIND_DIFFERENT] == SPIPE_VERDICT_LOOK,
           "a single stream is found");
    d.streams = NULL;
    tap_ok(spipe_doctor(&d, NULL, NULL) == cudaErrorInvalidValue,
           "streams without an array are refused");
    for (cudaStream_t s : streams) SPIPE_CHECK(cudaStreamDestroy(s));
}

static void test_doctor_environment(void) {
    spipe_doctor_desc_t d = spipe_doctor_default();
    d.probe_bytes = 0;
    (void)unsetenv("CUDA_LAUNCH_BLOCKING");
    tap_ok(examine(&d).verdict[SPIPE_FIND_LAUNCHES] == SPIPE_VERDICT_OK, "launches do not block");
    (void)setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    tap_ok(examine(&d).verdict[SPIPE_FIND_LAUNCHES] == SPIPE_VERDICT_LOOK,
           "CUDA_LAUNCH_BLOCKING is found");
    (void)setenv("CUDA_LAUNCH_BLOCKING", "0", 1);
    tap_ok(examine(&d).verdict[SPIPE_FIND_LAUNCHES] == SPIPE_VERDICT_OK, "but not when it is 0");
    (void)unsetenv("CUDA_LAUNCH_BLOCKING");
    const char *watcher = getenv("CUDA_INJECTION64_PATH");
    if (watcher) {
        tap_ok(examine(&d).verdict[SPIPE_FIND_WATCHERS] == SPIPE_VERDICT_LOOK,
               "a profiler is found");
        return;
    }
    (void)setenv("NSYS_PROFILING_SESSION_ID", "1", 1);
    tap_ok(examine(&d).verdict[SPIPE_FIND_WATCHERS] == SPIPE_VERDICT_LOOK, "a profiler is found");
    (void)unsetenv("NSYS_PROFILING_SESSION_ID");
}

int main(int argc, char **argv) {
    not_a_number = strtod("nan", NULL);
    infinite = strtod("inf", NULL);
    if (argc > 1) return write_all(argv[1]);
    if (!mkdtemp(folder)) return 99;
    test_print();
    test_odd();
    test_files();
    test_temporary_names();
    test_locale();
    tap_ok(rmdir(folder) == 0, "no file is left behind");
    test_doctor_memory();
    test_doctor_streams();
    test_doctor_environment();
    return tap_done();
}
