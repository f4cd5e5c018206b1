/*  test_costs_odd.c -- damaged costs are refused, whichever figure is damaged; with costs that
    are nonsense, or of another machine, runs are right, and their reports name the costs. */
#include "pipe_common.h"

enum {
    NUM_FIGURES = SPIPE_PRIV_NUM_COSTS
};

static int is_invalid(cudaError_t e) { return e == cudaErrorInvalidValue; }

static int are_zero(const spipe_costs_t *costs) {
    spipe_costs_t zero;
    memset(&zero, 0, sizeof zero);
    return memcmp(costs, &zero, sizeof zero) == 0;
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

int main(void) {
    test_damaged();
    test_runs();
    return tap_done();
}
