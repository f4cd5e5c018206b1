/*  test_costs.cu -- a machine's costs: figures as a line of text and back, lines of another
    machine, the table by name, and figures that are measured here and used for planning. */
#include "pipe_common.h"
#include "streampipe_measure.h"

#include <math.h>

/* A kernel on the CPU takes ThreadSanitizer a second for 6 MB, and 3 MB go the same ways. */
#if defined(__SANITIZE_THREAD__)
enum {
    COUNT = 3000007
};
#else
enum {
    COUNT = 6000007
};
#endif
enum {
    NUM = SPIPE_PRIV_NUM_COSTS
};

/* Each figure another number, none of them a round one. */
static spipe_costs_t odd_costs(void) {
    spipe_costs_t c;
    memset(&c, 0, sizeof c);
    (void)snprintf(c.name, sizeof c.name, "a machine");
    for (size_t i = 0; i < NUM; ++i) {
        *spipe_priv_cost_figure(&c, i) =
            pow(10.0, (double)(i % 19) - 7.0) * (1.0 + 0.0377123456789 * (double)i);
    }
    return c;
}

/* The largest relative difference of a figure. */
static double differ(spipe_costs_t a, spipe_costs_t b) {
    double worst = 0.0;
    for (size_t i = 0; i < NUM; ++i) {
        const double x = *spipe_priv_cost_figure(&a, i), y = *spipe_priv_cost_figure(&b, i);
        const double d = fabs(y / x - 1.0);
        if (!(d <= worst)) worst = d;
    }
    return worst;
}

static int all_zero(const spipe_costs_t *c) {
    spipe_costs_t zero;
    memset(&zero, 0, sizeof zero);
    return memcmp(c, &zero, sizeof zero) == 0;
}

/* A line with its first `from` replaced by `to`. */
static void replace(char *to_line, const char *line, const char *from, const char *to) {
    const char *at = strstr(line, from);
    if (!at) exit(99);
    (void)snprintf(to_line, SPIPE_COSTS_LINE_BYTES, "%.*s%s%s", (int)(at - line), line, to,
                   at + strlen(from));
}

static void test_round_trip(void) {
    const spipe_costs_t c = odd_costs();
    spipe_costs_t back;
    char line[SPIPE_COSTS_LINE_BYTES];
    const cudaError_t w = spipe_costs_write(&c, -1, line, sizeof line);
    const cudaError_t r = spipe_costs_read(&back, -1, line);
    tap_ok(w == cudaSuccess && r == cudaSuccess && differ(c, back) < 1e-5 &&
               strcmp(back.name, c.name) == 0,
           "%d figures and the name come back from a line, to 1e-5: worst %.1e", (int)NUM,
           differ(c, back));
    tap_ok(strchr(line, '\n') == NULL && strlen(line) < SPIPE_COSTS_LINE_BYTES / 2,
           "a line has no line feed and half of its room suffices: %zu bytes", strlen(line));
    (void)strcat(line, "\r\n");
    tap_ok(spipe_costs_read(&back, -1, line) == cudaSuccess && differ(c, back) < 1e-5,
           "a line as fgets gives it is read, too");
}

static void stale(const char *line, const char *what, const char *from, const char *to) {
    char other[SPIPE_COSTS_LINE_BYTES];
    const char ending[] = " (stale line ignored)";
    spipe_costs_t row, c;
    SPIPE_CHECK(spipe_costs_get(&row, -1));
    replace(other, line, from, to);
    const cudaError_t e = spipe_costs_read(&c, -1, other);
    const size_t n = strlen(c.name), m = strlen(ending);
    tap_ok(e == cudaErrorNotSupported && n > m && strcmp(c.name + n - m, ending) == 0 &&
               differ(row, c) == 0.0,
           "a line of another %s is not used: the row of the device is, as \"%s\"", what, c.name);
}

static void test_stale(void) {
    const spipe_costs_t c = odd_costs();
    char line[SPIPE_COSTS_LINE_BYTES], driver[32], cpus[32];
    struct cudaDeviceProp p;
    int version = 0;
    SPIPE_CHECK(cudaGetDeviceProperties(&p, 0));
    SPIPE_CHECK(cudaDriverGetVersion(&version));
    SPIPE_CHECK(spipe_costs_write(&c, 0, line, sizeof line));
    (void)snprintf(driver, sizeof driver, "driver %d;", version);
    (void)snprintf(cpus, sizeof cpus, " %zu CPUs;", spipe_priv_num_cpus());
    stale(line, "version", "costs ", "costs 9");
    stale(line, "device", p.name, "Another GPU");
    stale(line, "driver", driver, "driver 1;");
    stale(line, "number of CPUs", cpus, " 4099 CPUs;");
}

static void refused(const char *what, const char *line) {
    spipe_costs_t c = odd_costs();
    const cudaError_t e = spipe_costs_read(&c, -1, line);
    tap_ok(e == cudaErrorInvalidValue && all_zero(&c), "%s is refused: %s, and nothing is set",
           what, cudaGetErrorName(e));
}

/* The last figure of a good line made another text. */
static void refused_figure(const char *line, const char *what, const char *text) {
    char other[SPIPE_COSTS_LINE_BYTES];
    const char *at = strrchr(line, ' ');
    (void)snprintf(other, sizeof other, "%.*s %s", (int)(at - line), line, text);
    refused(what, other);
}

static void test_bad_lines(void) {
    const spipe_costs_t c = odd_costs();
    char line[SPIPE_COSTS_LINE_BYTES], other[SPIPE_COSTS_LINE_BYTES];
    SPIPE_CHECK(spipe_costs_write(&c, -1, line, sizeof line));
    refused("no line", NULL);
    refused("an empty line", "");
    refused("garbage", "25 GB/s or so");
    refused_figure(line, "a line without its last figure", "");
    refused_figure(line, "a negative figure", "-1.5");
    refused_figure(line, "a figure of zero", "0");
    refused_figure(line, "a figure that is not a number", "nan");
    refused_figure(line, "an infinite figure", "inf");
    refused_figure(line, "a word for a figure", "fast");
    replace(other, line, " a machine;", " ");
    refused("a line without a name", other);
    replace(other, line, " a machine;", " a machine whose name is much too long for costs;");
    refused("a name that is too long", other);
}

static void test_bad_arguments(void) {
    const spipe_costs_t c = odd_costs();
    spipe_costs_t none;
    char line[SPIPE_COSTS_LINE_BYTES];
    size_t room, n, wrong = 0;
    SPIPE_CHECK(spipe_costs_write(&c, -1, line, sizeof line));
    n = strlen(line);
    for (room = 0; room <= n; ++room) {
        char *small = (char *)malloc(room + 1); /* its end is where a sanitizer looks */
        if (!small) exit(99);
        wrong += spipe_costs_write(&c, -1, small, room) != cudaErrorInvalidValue;
        wrong += room > 0 && small[0] != 0;
        free(small);
    }
    tap_ok(wrong == 0 && spipe_costs_write(&c, -1, line, n + 1) == cudaSuccess,
           "room for %zu bytes is enough, and for no less: then the line is empty", n + 1);
    tap_ok(spipe_costs_get(NULL, -1) == cudaErrorInvalidValue &&
               spipe_costs_write(NULL, -1, line, sizeof line) == cudaErrorInvalidValue &&
               spipe_costs_write(&c, -1, NULL, 100) == cudaErrorInvalidValue &&
               spipe_costs_read(NULL, -1, line) == cudaErrorInvalidValue &&
               spipe_costs_print(NULL, stdout) == cudaErrorInvalidValue &&
               spipe_costs_print(&c, NULL) == cudaErrorInvalidValue &&
               spipe_costs_measure(NULL) == cudaErrorInvalidValue,
           "NULL is refused by every function");
    tap_ok(spipe_costs_get(&none, 1000) != cudaSuccess && all_zero(&none),
           "a device that is not there is refused");
    (void)cudaGetLastError();
}

static char *text_of(FILE *file, char *text, size_t room) {
    rewind(file);
    text[fread(text, 1, room - 1, file)] = 0;
    return text;
}

/* How many lines of a text begin with this word. */
static int lines_of(const char *text, const char *word) {
    const size_t n = strlen(word);
    int found = 0;
    for (; text; text = strchr(text, '\n')) {
        while (*text == '\n' || *text == ' ') ++text;
        if (!*text) break;
        found += strncmp(text, word, n) == 0 && text[n] == ' ';
    }
    return found;
}

static void test_print(void) {
    static const char *const names[] = {
#define FIGURE_NAME(member, unit, si) #member,
        SPIPE_PRIV_COST_FIGURES(FIGURE_NAME)
#undef FIGURE_NAME
    };
    const spipe_costs_t c = odd_costs();
    static char text[8192];
    FILE *file = tmpfile();
    size_t i, once = 0;
    if (!file) exit(99);
    const cudaError_t e = spipe_costs_print(&c, file);
    (void)text_of(file, text, sizeof text);
    (void)fclose(file);
    for (i = 0; i < sizeof names / sizeof *names; ++i) once += lines_of(text, names[i]) == 1;
    tap_ok(e == cudaSuccess && once == NUM && sizeof names / sizeof *names == NUM &&
               strncmp(text, "costs of a machine\n", 19) == 0,
           "the table has %zu of %d figures in a line of their own", once, (int)NUM);
    file = fopen("/dev/full", "w");
    if (!file) {
        tap_skip("a table that cannot be written is an error", "there is no /dev/full");
        return;
    }
    (void)setvbuf(file, NULL, _IONBF, 0);
    tap_ok(spipe_costs_print(&c, file) == cudaErrorOperatingSystem,
           "a table that cannot be written is an error");
    (void)fclose(file);
}

static void test_table(void) {
    size_t num, k, good = 0;
    const spipe_priv_cost_row_t *rows = spipe_priv_cost_rows(&num);
    for (k = 0; k < num; ++k) {
        spipe_costs_t c = spipe_priv_costs_for(rows[k].name);
        size_t positive = 0;
        for (size_t i = 0; i < NUM; ++i) positive += *spipe_priv_cost_figure(&c, i) > 0.0;
        good += positive == NUM && strcmp(c.name, rows[k].name) == 0;
    }
    tap_ok(good == num, "each of the %zu rows has %d positive figures and is found by its name",
           num, (int)NUM);
    tap_ok(strcmp(spipe_priv_costs_for("Quadro K6000").name, "unknown") == 0 &&
               strcmp(spipe_priv_costs_for("").name, "unknown") == 0,
           "a device without a row has the row \"unknown\"");
    tap_ok(strcmp(spipe_priv_costs_for("NVIDIA h100 PCIe").name, "H100") == 0 &&
               strcmp(spipe_priv_costs_for("NVIDIA H200").name, "H200") == 0,
           "a row is found in capital and in small letters");
}

/* Runs a mix of bytes with these costs; the report says their name. */
static int runs_right(const spipe_costs_t *c, int memory, spipe_staging_t staging) {
    pipe_array_t x = pipe_array_new(COUNT, memory), y = pipe_array_new(COUNT, memory);
    pipe_mix_args_t args = {0, 1, 1};
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    static char text[8192], of[64];
    size_t i, right = 0;
    FILE *file = tmpfile();
    if (!file) exit(99);
    pipe_randomise(x);
    pipe_poison(y);
    d.count = COUNT;
    d.costs = c;
    d.staging = staging;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    const cudaError_t e = spipe_run(&d, &r);
    for (i = 0; i < COUNT; ++i) right += y.at[i] == pipe_mix(x.at[i], i);
    if (e != cudaSuccess) tap_note("%s", r.failure.message);
    tap_note("%zu chunks of %zu, %zu + %zu threads, staged %d", r.num_chunks, r.chunk,
             r.fill_threads, r.drain_threads, r.staged);
    (void)spipe_report_print(&r, file);
    (void)text_of(file, text, sizeof text);
    (void)snprintf(of, sizeof of, "costs of %s\n", c->name);
    const int said = strcmp(r.costs, c->name) == 0 && strstr(text, of) != NULL;
    const int whole = e == cudaSuccess && right == COUNT && pipe_guard_whole(y);
    (void)fclose(file);
    pipe_free(&x);
    pipe_free(&y);
    return whole + 2 * said;
}

static void test_measured(void) {
    const size_t each = spipe_priv_measure_num_threads() / 2;
    spipe_costs_t c, row;
    size_t i, good = 0;
    const double began = spipe_priv_seconds();
    const cudaError_t e = spipe_costs_measure(&c);
    const double took = spipe_priv_seconds() - began;
    for (i = 0; i < NUM; ++i) {
        const double figure = *spipe_priv_cost_figure(&c, i);
        good += figure > 0.0 && figure < 1e14;
    }
    tap_ok(e == cudaSuccess && good == NUM && strcmp(c.name, "measured") == 0,
           "measuring this machine gives %zu positive, finite figures of %d", good, (int)NUM);
    tap_ok(c.memory_uncached <= c.memory, "a ring that no cache holds is not the faster one");
    tap_ok(c.launch_s >= 2.0 * c.call_s * (1.0 - 1e-9) && c.latency_s >= c.launch_s,
           "a launch takes two calls or longer, and to wait for an engine as long or longer");
    SPIPE_CHECK(spipe_costs_get(&row, -1)); /* whose figures stay if no thread copied a piece */
    const double least = 1e7; /* bytes a second: the lower bound, where threads hardly run */
    const int bounded = c.fill == row.fill || c.fill == least || c.drain == least;
    tap_note("%zu threads each way: %.3g + %.3g, memory %.3g", each, c.fill, c.drain, c.memory);
    tap_ok(bounded || fabs(c.memory / (c.fill + c.drain) / (double)each - 1.0) < 1e-6,
           "memory is the sum of what each thread fills and drains while all do");
    tap_ok(took < (double)tap_every(5, 20), "measuring takes under 5 s even on two cores: %.2f s",
           took);
    for (int memory = 0; memory < PIPE_NUM_MEMORIES; ++memory) {
        const int is = runs_right(&c, memory, SPIPE_STAGING_AUTO);
        tap_ok((is & 1) == 1, "a run planned with measured costs is right (%s)",
               pipe_memory_names[memory]);
        tap_ok((is & 2) == 2, "its report names the costs (%s)", pipe_memory_names[memory]);
    }
    tap_ok(runs_right(&c, PIPE_UNALIGNED, SPIPE_STAGING_COPY) == 3,
           "so is one whose threads copy through pinned slots");
}

int main(void) {
    test_round_trip();
    test_stale();
    test_bad_lines();
    test_bad_arguments();
    test_print();
    test_table();
    test_measured();
    const spipe_costs_t mine = odd_costs();
    tap_ok(runs_right(&mine, PIPE_PAGEABLE, SPIPE_STAGING_AUTO) == 3,
           "a run with any costs is right and names them");
    return tap_done();
}
