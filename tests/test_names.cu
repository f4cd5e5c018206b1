/*  test_names.cu -- names that the user gave are made printable in messages, reports and on the
    terminal: a character that moves a cursor, and a byte that is not UTF-8, becomes a question
    mark; all others stay. */
#include "pipe_common.h"
#include "streampipe_devices.h"
#include "streampipe_timeline.h"

/* ---- Text ----------------------------------------------------------------------------------- */
/* Bytes of the well-formed UTF-8 character that text begins with, by the table 3-7 of the Unicode
   standard; 0 = none. */
static size_t well_formed(const unsigned char *s) {
    static const unsigned char table[][6] = {
        /* first byte, second byte, how many follow, but C1 control characters */
        {0x20, 0x7E, 0, 0, 0},       {0xC2, 0xC2, 0xA0, 0xBF, 1}, {0xC3, 0xDF, 0x80, 0xBF, 1},
        {0xE0, 0xE0, 0xA0, 0xBF, 2}, {0xE1, 0xEC, 0x80, 0xBF, 2}, {0xED, 0xED, 0x80, 0x9F, 2},
        {0xEE, 0xEF, 0x80, 0xBF, 2}, {0xF0, 0xF0, 0x90, 0xBF, 3}, {0xF1, 0xF3, 0x80, 0xBF, 3},
        {0xF4, 0xF4, 0x80, 0x8F, 3}};
    for (const unsigned char *row : table) {
        size_t i = 1;
        if (s[0] < row[0] || s[0] > row[1]) continue;
        if (row[4] == 0) return 1;
        if (s[1] < row[2] || s[1] > row[3]) return 0;
        while (i < row[4] && s[i + 1] >= 0x80 && s[i + 1] <= 0xBF) ++i;
        return i == row[4] ? i + 1 : 0;
    }
    return 0;
}

static void expect(char *to, const char *text) {
    while (*text) {
        const size_t n = well_formed((const unsigned char *)text);
        if (n == 0) *to++ = '?';
        for (size_t i = 0; i < n; ++i) *to++ = text[i];
        text += n > 0 ? n : 1;
    }
    *to = 0;
}

static int as_expected(const char *text) {
    char made[64], want[64];
    strcpy(made, text);
    expect(want, text);
    spipe_priv_make_printable(made);
    return strcmp(made, want) == 0;
}

static void test_text(void) {
    static const unsigned char second[] = {0x00, 0x1B, 0x41, 0x7F, 0x80, 0x8F,
                                           0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF};
    const int n = (int)sizeof second;
    int good = 1;
    size_t tried = 0;
    for (int first = 1; first < 256; ++first) {
        for (int k = 0; k < n * n * n; ++k, ++tried) {
            const unsigned char bytes[] = {(unsigned char)first, second[k % n], second[k / n % n],
                                           second[k / n / n], 0};
            good &= as_expected((const char *)bytes);
        }
    }
    tap_ok(good && tried == 255 * 1728, "%zu sequences of bytes: UTF-8 stays, else question marks",
           tried);
}

/* ---- Messages ------------------------------------------------------------------------------- */
static const struct {
    const char *raw, *printed;
} names[] = {{"plain", "plain"},
             {"clear\033[2J", "clear?[2J"},
             {"line\nline\ttab\r", "line?line?tab?"},
             {"\xC2\x9B"
              "31m\x7F",
              "??31m?"},
             {"cut \xE2\x82", "cut ??"},
             {"gr\xC3\xB6\xC3\x9F"
              "e \xE2\x82\xAC \xF0\x9F\x98\x80",
              "gr\xC3\xB6\xC3\x9F"
              "e \xE2\x82\xAC \xF0\x9F\x98\x80"},
             {"\xFF\xC0\x80\xED\xA0\x80", "??????"},
             {"%s%n", "%s%n"}};

enum {
    NUM_NAMES = sizeof names / sizeof *names,
    N = 4000
};

static unsigned char x[N], y[N];

static cudaError_t zeros_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return cudaMemsetAsync(c->data[1], 0, c->count, c->stream);
}

static cudaError_t fail_stage(const spipe_chunk_t *c, void *user) {
    return c->index == 3 ? cudaErrorAssert : zeros_stage(c, user);
}

static spipe_desc_t describe(const char *name, spipe_stage_fn fn) {
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.chunk = 500;
    spipe_add_input(&d, x, 1);
    spipe_add_output(&d, y, 1);
    spipe_add_stage(&d, name, fn, NULL);
    return d;
}

static int says(const spipe_desc_t *d, const char *format, const char *name) {
    char want[400];
    spipe_report_t r;
    snprintf(want, sizeof want, format, name);
    const cudaError_t e = spipe_run(d, &r);
    if (e != cudaSuccess && strcmp(r.failure.message, want) == 0) return 1;
    tap_note("%s: \"%s\", not \"%s\"", cudaGetErrorName(e), r.failure.message, want);
    return 0;
}

static void test_messages(void) {
    const int twice[2] = {0, 0};
    int good = 1;
    for (int k = 0; k < NUM_NAMES; ++k) {
        spipe_desc_t d = describe(names[k].raw, fail_stage);
        good &= says(&d, "stage '%s' failed at chunk 3: device-side assert triggered",
                     names[k].printed);
        spipe_add_stage(&d, names[k].raw, zeros_stage, NULL);
        good &= says(&d, "stage '%s': two stages have this name; rename one", names[k].printed);
        d.num_stages = 1;
        d.stages[0].name = "after";
        spipe_stage_after(&d, 0, names[k].raw);
        good &= says(&d, "stage 'after': waits for '%s', and there is no stage of that name",
                     names[k].printed);
        d = describe(names[k].raw, zeros_stage);
        spipe_stage_ordered(&d, 0);
        spipe_devices_list(&d, twice, 2);
        good &= says(&d,
                     "stage '%s' is ordered, but several GPUs process chunks in no particular "
                     "order; remove spipe_stage_ordered, or list one GPU",
                     names[k].printed);
    }
    tap_ok(good, "names in failure messages are printable");
}

/* A name of 4-byte characters fills a message to its end. */
static void test_cut_message(void) {
    const int twice[2] = {0, 0};
    int good = 1;
    for (size_t ascii = 0; ascii < 4; ++ascii) {
        char name[800] = "", want[800];
        spipe_report_t r;
        for (size_t i = 0; i < ascii; ++i) name[i] = 'a';
        for (size_t i = ascii; i + 5 < sizeof name; i += 4) memcpy(name + i, "\xF0\x9F\x98\x80", 4);
        spipe_desc_t d = describe(name, fail_stage);
        for (int several = 0; several < 2; ++several) {
            if (several) spipe_devices_list(&d, twice, 2);
            good &= spipe_run(&d, &r) == cudaErrorAssert && strlen(r.failure.message) > 280;
            expect(want, r.failure.message);
            good &= strcmp(r.failure.message, want) == 0 &&
                    strstr(r.failure.message, "\xF0\x9F\x98\x80") != NULL;
        }
    }
    tap_ok(good, "a message that is cut does not end within a character");
}

/* ---- Reports -------------------------------------------------------------------------------- */
static char text[20000];

static FILE *text_begin(void) {
    FILE *f = tmpfile();
    if (!f) exit(1);
    return f;
}

static void text_end(FILE *f) {
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
}

static int columns(const char *name) {
    int n = 0;
    for (; *name; ++name) n += (*name & 0xC0) != 0x80;
    return n;
}

/* Every line is printable; the text has at least this many. */
static int lines_are_printable(int least) {
    int lines = 0;
    for (char *line = text, *end; *line; line = end + 1, ++lines) {
        char want[2000];
        end = strchr(line, '\n');
        if (!end || end - line >= (int)sizeof want) return 0;
        *end = 0;
        expect(want, line);
        if (strcmp(line, want) != 0) {
            tap_note("%s", want);
            return 0;
        }
    }
    return lines >= least;
}

static void test_reports(void) {
    static spipe_span_t spans[4000];
    spipe_timeline_t t = spipe_timeline_default();
    spipe_report_t r;
    spipe_plan_t plan;
    char row[64];
    int good = 1;
    spipe_desc_t d = describe(names[0].raw, zeros_stage);
    for (int k = 1; k < NUM_NAMES; ++k) spipe_add_stage(&d, names[k].raw, zeros_stage, NULL);
    d.timeline = &t;
    t.spans = spans;
    t.capacity = sizeof spans / sizeof *spans;
    SPIPE_CHECK_RUN(&d, &r);
    FILE *f = text_begin();
    good = spipe_report_print(&r, f) == cudaSuccess;
    text_end(f);
    for (int k = 0; k < NUM_NAMES; ++k) {
        snprintf(row, sizeof row, "\n    %s%*s ", names[k].printed, 14 - columns(names[k].printed),
                 "");
        if (!strstr(text, row)) tap_note("no line with \"%s\"", row + 1);
        good &= strstr(text, row) != NULL;
    }
    tap_ok(good && lines_are_printable(20), "a printed report: names and verdict");
    f = text_begin();
    good = spipe_timeline_print(&t, f, 80) == cudaSuccess;
    text_end(f);
    good &=
        strstr(text, "\nstage 'clear?[' |") != NULL && strstr(text, "\nstage 'cut ?\?'  |") != NULL;
    tap_ok(good && lines_are_printable(10), "a timeline on the terminal");
    f = text_begin();
    good =
        spipe_plan(&d, 0, &plan, NULL) == cudaSuccess && spipe_plan_print(&plan, f) == cudaSuccess;
    text_end(f);
    tap_ok(good && lines_are_printable(5), "a printed plan");
}

int main(void) {
    test_text();
    test_messages();
    test_cut_message();
    test_reports();
    return tap_done();
}
