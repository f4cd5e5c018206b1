/*  test_costs.c -- the costs that plans are made with: they go through a line of text and come
    back, a line of another machine is told and not used, and a machine that no row knows runs
    right. */
#include "pipe_common.h"

#define FIGURE_NAME(member, unit, si) #member,
static const char *const figure_names[] = {SPIPE_PRIV_COST_FIGURES(FIGURE_NAME)};
#undef FIGURE_NAME

enum {
    NUM_FIGURES = (int)(sizeof figure_names / sizeof *figure_names)
};

static int is_invalid(cudaError_t e) { return e == cudaErrorInvalidValue; }

/* Every figure a positive number, and a name. */
static int are_whole(const spipe_costs_t *costs) {
    spipe_costs_t c = *costs;
    size_t i, whole = c.name[0] != 0;
    for (i = 0; i < NUM_FIGURES; ++i) {
        const double figure = *spipe_priv_cost_figure(&c, i);
        whole += figure > 0.0 && figure < 1e15;
    }
    return whole == NUM_FIGURES + 1;
}

static int are_zero(const spipe_costs_t *costs) {
    spipe_costs_t zero;
    memset(&zero, 0, sizeof zero);
    return memcmp(costs, &zero, sizeof zero) == 0;
}

/* The largest part by which a figure differs; 1 where the names do. */
static double difference(const spipe_costs_t *a, const spipe_costs_t *b) {
    spipe_costs_t x = *a, y = *b;
    double most = strcmp(a->name, b->name) == 0 ? 0.0 : 1.0;
    size_t i;
    for (i = 0; i < NUM_FIGURES; ++i) {
        const double p = *spipe_priv_cost_figure(&x, i), q = *spipe_priv_cost_figure(&y, i);
        const double d = p > q ? p / q - 1.0 : q / p - 1.0;
        if (d > most) most = d;
    }
    return most;
}

/* ---- The table ------------------------------------------------------------------------------- */

static void test_rows(void) {
    static const char *const devices[] = {"NVIDIA H200", "NVIDIA H100 80GB HBM3",
                                          "nvidia h200 nvl"};
    static const char *const rows[] = {"H200", "H100", "H200"};
    spipe_costs_t c, other;
    size_t i, good = 1, num = 0;
    const spipe_priv_cost_row_t *row = spipe_priv_cost_rows(&num);
    for (i = 0; i < sizeof devices / sizeof *devices; ++i) {
        c = spipe_priv_costs_for(devices[i]);
        good &= strcmp(c.name, rows[i]) == 0;
    }
    tap_ok(good, "a row is found by a part of the device's name, in capital or small letters");
    c = spipe_priv_costs_for("Some GPU of 2031");
    other = spipe_priv_costs_for("");
    tap_ok(strcmp(c.name, "unknown") == 0 && difference(&c, &other) <= 0.0 && are_whole(&c),
           "of a device that no row knows there are costs, and their name says so");
    for (i = 0; i < num; ++i) {
        c = spipe_priv_costs_for(row[i].name);
        good &= are_whole(&c) && strcmp(c.name, row[i].name) == 0;
        good &= c.link_in > 1e8 && c.link_in < 1e13 && c.copy_s > 1e-8 && c.copy_s < 1e-3;
        good &= c.link_both <= c.link_in && c.link_both <= c.link_out;
        good &= c.memory_uncached <= c.memory;
    }
    tap_ok(good && num >= 2, "every row is whole, in seconds and bytes a second");
}

static void test_get(void) {
    spipe_costs_t c, first;
    int device = 0;
    SPIPE_CHECK(cudaGetDevice(&device));
    memset(&c, 0xEE, sizeof c);
    tap_ok(spipe_costs_get(&c, -1) == cudaSuccess && are_whole(&c), "this machine has costs: %s",
           c.name);
    tap_ok(spipe_costs_get(&first, device) == cudaSuccess && difference(&c, &first) <= 0.0,
           "-1 is the current device");
    tap_ok(is_invalid(spipe_costs_get(NULL, -1)), "there must be a place for them");
    tap_ok(spipe_costs_get(&c, 77) != cudaSuccess && are_zero(&c),
           "of a device that is not there are none");
    (void)cudaGetLastError();
}

/* ---- A line of text -------------------------------------------------------------------------- */

static spipe_costs_t measured(void) {
    spipe_costs_t c;
    size_t i;
    SPIPE_CHECK(spipe_costs_get(&c, -1));
    snprintf(c.name, sizeof c.name, "measured");
    for (i = 0; i < NUM_FIGURES; ++i) *spipe_priv_cost_figure(&c, i) *= 1.0 + 0.0123 * (double)i;
    return c;
}

static void test_line(void) {
    char line[SPIPE_COSTS_LINE_BYTES], small[SPIPE_COSTS_LINE_BYTES];
    spipe_costs_t c = measured(), back;
    size_t bytes, refused = 0;
    memset(line, 'x', sizeof line);
    tap_ok(spipe_costs_write(&c, -1, line, sizeof line) == cudaSuccess && !strchr(line, '\n') &&
               strlen(line) < sizeof line,
           "costs are one line of text");
    tap_ok(spipe_costs_read(&back, -1, line) == cudaSuccess && difference(&c, &back) < 1e-5,
           "and are what they were when it is read");
    for (bytes = 0; bytes <= strlen(line); ++bytes) {
        memset(small, 'x', sizeof small);
        refused += is_invalid(spipe_costs_write(&c, -1, small, bytes)) &&
                   (bytes == 0 || small[0] == 0) && small[bytes] == 'x';
    }
    tap_ok(refused == strlen(line) + 1 &&
               spipe_costs_write(&c, -1, small, strlen(line) + 1) == cudaSuccess &&
               strcmp(small, line) == 0,
           "a line that has no room is not begun");
    tap_ok(is_invalid(spipe_costs_write(NULL, -1, line, sizeof line)) &&
               is_invalid(spipe_costs_write(&c, -1, NULL, 10)) &&
               is_invalid(spipe_costs_read(NULL, -1, line)) &&
               is_invalid(spipe_costs_read(&back, -1, NULL)) && are_zero(&back),
           "NULLs are refused");
    (void)cudaGetLastError();
}

/* A line with figure number i changed to a text. */
static void with_figure(char *to, const char *line, int i, const char *text) {
    const char *at = strrchr(line, ';') + 1, *end;
    for (; i > 0; --i) at = strchr(at + 1, ' ');
    end = strchr(at + 1, ' ');
    snprintf(to, SPIPE_COSTS_LINE_BYTES, "%.*s%s%s", (int)(at - line), line, text, end ? end : "");
}

static void test_damaged(void) {
    static const char *const texts[] = {" 0", " -1", " nan", " inf", " 1e300", " x", " "};
    char line[SPIPE_COSTS_LINE_BYTES], bad[SPIPE_COSTS_LINE_BYTES];
    spipe_costs_t c = measured(), back;
    size_t n, refused = 0, tried = 0;
    int i, k;
    SPIPE_CHECK(spipe_costs_write(&c, -1, line, sizeof line));
    for (i = 0; i < NUM_FIGURES; ++i) {
        for (k = 0; k < (int)(sizeof texts / sizeof *texts); ++k) {
            with_figure(bad, line, i, texts[k]);
            ++tried;
            refused += is_invalid(spipe_costs_read(&back, -1, bad)) && are_zero(&back);
        }
    }
    tap_ok(refused == tried, "a figure that is not a positive number is refused (%d of %d)",
           (int)refused, (int)tried);
    for (n = 0, refused = 0; n < strlen(line) - 12; ++n) { /* 12: within the last figure */
        memcpy(bad, line, n);
        bad[n] = 0;
        refused += spipe_costs_read(&back, -1, bad) != cudaSuccess;
    }
    tap_ok(refused == strlen(line) - 12, "and so is a line that was cut off");
    tap_ok(is_invalid(spipe_costs_read(&back, -1, "")) &&
               is_invalid(spipe_costs_read(&back, -1, "{\"link_in\": 1}")),
           "and a text that is no such line");
}

/* ---- A line of another machine --------------------------------------------------------------- */

/* The line with the first of a word changed to another. */
static void replaced(char *to, const char *line, const char *word, const char *by) {
    const char *at = strstr(line, word);
    if (!at) exit(99);
    snprintf(to, SPIPE_COSTS_LINE_BYTES, "%.*s%s%s", (int)(at - line), line, by, at + strlen(word));
}

static int is_stale(const char *line) {
    static const char end[] = " (stale line ignored)";
    spipe_costs_t c, plain;
    size_t n;
    const cudaError_t e = spipe_costs_read(&c, -1, line);
    SPIPE_CHECK(spipe_costs_get(&plain, -1));
    n = strlen(c.name);
    if (n < sizeof end || strcmp(c.name + n - (sizeof end - 1), end) != 0) return 0;
    c.name[n - (sizeof end - 1)] = 0;
    return e == cudaErrorNotSupported && strncmp(plain.name, c.name, strlen(c.name)) == 0 &&
           strcmp(strcpy(c.name, plain.name), plain.name) == 0 && difference(&c, &plain) <= 0.0;
}

static void test_stale(void) {
    char line[SPIPE_COSTS_LINE_BYTES], other[SPIPE_COSTS_LINE_BYTES], text[64];
    struct cudaDeviceProp properties;
    spipe_costs_t c = measured();
    int device = 0, driver = 0;
    SPIPE_CHECK(cudaGetDevice(&device));
    SPIPE_CHECK(cudaGetDeviceProperties(&properties, device));
    SPIPE_CHECK(cudaDriverGetVersion(&driver));
    SPIPE_CHECK(spipe_costs_write(&c, -1, line, sizeof line));
    replaced(other, line, properties.name, "Another GPU");
    tap_ok(is_stale(other), "a line of another device is not used, and the costs' name says so");
    snprintf(text, sizeof text, "%d.%d.%d;", SPIPE_VERSION_MAJOR, SPIPE_VERSION_MINOR,
             SPIPE_VERSION_PATCH);
    replaced(other, line, text, "99.0.0;");
    tap_ok(is_stale(other), "nor one of another release");
    snprintf(text, sizeof text, "driver %d;", driver);
    replaced(other, line, text, "driver 1;");
    tap_ok(is_stale(other), "nor one of another driver");
    snprintf(text, sizeof text, "%d CPUs;", (int)spipe_priv_num_cpus());
    replaced(other, line, text, "9999 CPUs;");
    tap_ok(is_stale(other), "nor one of another number of CPUs");
    tap_ok(!is_stale(line), "its own line is not stale");
}

/* ---- Runs ------------------------------------------------------------------------------------ */

enum {
    N = 100003
};

static cudaError_t copy_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return cudaMemcpyAsync(c->data[1], c->data[0], c->count, cudaMemcpyDefault, c->stream);
}

/* Once and kept, with these costs; their name as it is reported, or "" where anything is wrong. */
static const char *runs_with(const spipe_costs_t *costs, int memory) {
    static char name[64];
    pipe_array_t x = pipe_array_new(N, memory), y = pipe_array_new(N, memory);
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p = NULL;
    spipe_report_t r;
    size_t wrong = 0;
    int k;
    d.count = N;
    d.costs = costs;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "copy", copy_stage, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (k = 0; k < 6; ++k) {
        pipe_randomise(x);
        pipe_poison(y);
        memset(&r, 0, sizeof r);
        if (k == 0)
            wrong += spipe_run(&d, &r) != cudaSuccess;
        else
            wrong += spipe_pipeline_run(p, &r) != cudaSuccess;
        wrong += memcmp(x.at, y.at, N) != 0 || !pipe_guard_whole(y) || r.count_done != N;
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    pipe_free(&x);
    pipe_free(&y);
    snprintf(name, sizeof name, "%s", wrong ? "" : r.costs);
    return name;
}

static void test_runs(void) {
    char line[SPIPE_COSTS_LINE_BYTES], other[SPIPE_COSTS_LINE_BYTES];
    spipe_costs_t c = spipe_priv_costs_for("a GPU that no row knows"), get;
    int memory, k, good = 1;
    size_t i;
    SPIPE_CHECK(spipe_costs_get(&get, -1));
    tap_ok(strcmp(runs_with(NULL, PIPE_PINNED), get.name) == 0,
           "a report names the costs that a run was planned with");
    for (memory = PIPE_PAGEABLE; memory <= PIPE_PINNED; ++memory) {
        good &= strcmp(runs_with(&c, memory), "unknown") == 0;
    }
    tap_ok(good, "a machine that no row knows runs right");
    for (k = 0; k < 40; ++k) { /* each figure a thousand times what it is, or a thousandth */
        snprintf(c.name, sizeof c.name, "made up %d", k);
        for (i = 0; i < NUM_FIGURES; ++i) {
            const unsigned way = pipe_random() % 3;
            if (way == 0) *spipe_priv_cost_figure(&c, i) = 1e3 * *spipe_priv_cost_figure(&get, i);
            if (way == 1) *spipe_priv_cost_figure(&c, i) = 1e-3 * *spipe_priv_cost_figure(&get, i);
            if (way == 2) *spipe_priv_cost_figure(&c, i) = *spipe_priv_cost_figure(&get, i);
        }
        good &= strcmp(runs_with(&c, k % 2 ? PIPE_PINNED : PIPE_PAGEABLE), c.name) == 0;
    }
    tap_ok(good, "and one whose figures are nonsense");
    c = measured();
    SPIPE_CHECK(spipe_costs_write(&c, -1, line, sizeof line));
    replaced(other, line, " CPUs;", "1 CPUs;");
    (void)spipe_costs_read(&c, -1, other);
    tap_ok(strstr(runs_with(&c, PIPE_PINNED), "(stale line ignored)") != NULL,
           "the report of a run says that a stale line was ignored");
}

static void test_print(void) {
    spipe_costs_t c = measured();
    char text[8192] = "";
    FILE *to = tmpfile(), *full = fopen("/dev/full", "w");
    size_t i, named = 0;
    if (!to) exit(99);
    tap_ok(is_invalid(spipe_costs_print(NULL, to)) && is_invalid(spipe_costs_print(&c, NULL)),
           "printing needs both arguments");
    SPIPE_CHECK(spipe_costs_print(&c, to));
    rewind(to);
    (void)!fread(text, 1, sizeof text - 1, to);
    fclose(to);
    for (i = 0; i < NUM_FIGURES; ++i) named += strstr(text, figure_names[i]) != NULL;
    tap_ok(named == NUM_FIGURES && strstr(text, "measured") && strstr(text, "GB/s"),
           "printed costs have a name, and each figure its name and unit");
    if (!full) {
        tap_skip("costs that cannot be written say so", "no /dev/full here");
        return;
    }
    setvbuf(full, NULL, _IONBF, 0);
    tap_ok(spipe_costs_print(&c, full) == cudaErrorOperatingSystem,
           "costs that cannot be written say so");
    fclose(full);
}

int main(void) {
    test_rows();
    test_get();
    test_line();
    test_damaged();
    test_stale();
    test_runs();
    test_print();
    return tap_done();
}
