/*  test_array_pinning.cu -- arrays that a run pins in place are not pinned after it, whatever ends
    it; arrays that others have pinned in pieces are copied like any other. */
#include "pipe_common.h"

#include <sys/mman.h>

enum {
    N = 1 << 20,
    CHUNK = 1 << 17
};

static pipe_mix_args_t args = {0, 1, 1};

static unsigned char *map(unsigned char *at, unsigned char seed) {
    const int fixed = at ? MAP_FIXED : 0;
    size_t i;
    at = (unsigned char *)mmap(at, N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed,
                               -1, 0);
    if (at == MAP_FAILED) exit(99);
    for (i = 0; i < N; ++i) at[i] = (unsigned char)(seed + i * 11u);
    return at;
}

static size_t num_wrong(const unsigned char *x, const unsigned char *y, size_t n) {
    size_t i, wrong = 0;
    for (i = 0; i < n; ++i) wrong += y[i] != pipe_mix(x[i], i);
    return wrong;
}

static int is_pinned(const unsigned char *at) {
    int pinned = 0;
    SPIPE_CHECK(spipe_is_pinned(at, N, &pinned));
    return pinned;
}

/* ---- pinned for a run ------------------------------------------------------------------------ */
typedef enum how {
    RUN,
    ENQUEUE,
    PULL,
    PULL_AND_LEAVE,
    NUM_HOWS
} how_t;

static const char *const how_names[] = {"a run", "an enqueued run", "a loop",
                                        "a loop that is left"};

static cudaError_t do_run(spipe_pipeline_t *p, how_t how, spipe_report_t *r) {
    cudaStream_t s = NULL;
    spipe_chunk_t c;
    cudaError_t e = spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT);
    if (how == RUN) e = spipe_pipeline_run(p, r);
    if (how == ENQUEUE) {
        e = spipe_pipeline_enqueue(p, s);
        if (e == cudaSuccess) e = spipe_pipeline_wait(p, r);
    }
    while (how >= PULL && e == cudaSuccess && (e = spipe_pipeline_next(p, s, &c)) == cudaSuccess) {
        if (c.count == 0 || how == PULL_AND_LEAVE) break;
        c.stream = s;
        e = pipe_mix_stage(&c, &args);
        if (e == cudaSuccess) e = spipe_pipeline_release(p, s);
    }
    if (how >= PULL && e == cudaSuccess) e = spipe_pipeline_end(p, r);
    SPIPE_CHECK(cudaStreamDestroy(s));
    return e;
}

static spipe_desc_t describe(unsigned char *x, unsigned char *y, how_t how) {
    spipe_desc_t d = spipe_desc_default();
    d.count = N;
    d.chunk = CHUNK;
    d.staging = SPIPE_STAGING_REGISTER;
    spipe_add_input(&d, x, 1);
    spipe_add_output(&d, y, 1);
    if (how < PULL) spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    return d;
}

/* Between runs the array goes, and another comes at its address. On a GPU an old registration would
   show the old pages. */
static void test_registered(how_t how) {
    unsigned char *x = map(NULL, 1), *y = map(NULL, 2);
    const spipe_desc_t d = describe(x, y, how);
    spipe_pipeline_t *p;
    spipe_report_t r;
    cudaError_t e;
    size_t wrong = 0;
    int k, pinned;
    memset(&r, 0, sizeof r);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    pinned = is_pinned(x) || is_pinned(y);
    tap_ok(!pinned, "no array is pinned before the first run: %s", how_names[how]);
    for (k = 0, e = cudaSuccess; k < 3 && e == cudaSuccess; ++k) {
        e = do_run(p, how, &r);
        pinned |= is_pinned(x) || is_pinned(y);
        if (how != PULL_AND_LEAVE) wrong += num_wrong(x, y, N);
        munmap(x, N);
        munmap(y, N);
        (void)map(x, (unsigned char)(50 * k));
        (void)map(y, 3);
    }
    tap_ok(e == cudaSuccess && wrong == 0,
           "%s sees the array that is at the address now: %zu wrong; %s", how_names[how], wrong,
           r.failure.message);
    tap_ok(!pinned, "and leaves nothing pinned");
    SPIPE_CHECK(spipe_pipeline_set_count(p, N / 2));
    memset(y, 9, N);
    e = do_run(p, how, &r);
    pinned = is_pinned(x) || is_pinned(y);
    wrong = how == PULL_AND_LEAVE ? 0 : num_wrong(x, y, N / 2);
    for (k = N / 2; k < N; ++k) wrong += y[k] != 9;
    tap_ok(e == cudaSuccess && wrong == 0 && !pinned, "another count is run in place, too");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    tap_ok(!is_pinned(x) && !is_pinned(y), "nothing is pinned after destroy");
    munmap(x, N);
    munmap(y, N);
}

static cudaError_t failing(const spipe_chunk_t *c, void *user) {
    (void)user;
    return c->index == 2 ? cudaErrorUnknown : pipe_mix_stage(c, &args);
}

/* A run that fails, and one that is captured, which takes no arrays that a run would pin. */
static void test_ends(void) {
    unsigned char *x = map(NULL, 1), *y = map(NULL, 2);
    spipe_desc_t d = describe(x, y, PULL);
    spipe_pipeline_t *p;
    cudaGraph_t graph = NULL;
    cudaStream_t s;
    cudaError_t e;
    spipe_add_stage(&d, "fails", failing, NULL);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    e = spipe_pipeline_run(p, NULL);
    tap_ok(e == cudaErrorUnknown && !is_pinned(x) && !is_pinned(y),
           "a run that fails leaves nothing pinned");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    d = describe(x, y, RUN);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    e = spipe_pipeline_enqueue(p, s);
    (void)cudaStreamEndCapture(s, &graph);
    (void)cudaGetLastError();
    if (graph) SPIPE_CHECK(cudaGraphDestroy(graph));
    tap_ok(e == cudaErrorStreamCaptureUnsupported && !is_pinned(x),
           "a capture is refused where a run pins its arrays: %s",
           spipe_pipeline_failure(p)->message);
    e = spipe_pipeline_run(p, NULL);
    tap_ok(e == cudaSuccess && num_wrong(x, y, N) == 0, "and the next run is right");
    SPIPE_CHECK(cudaStreamDestroy(s));
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    munmap(x, N);
    munmap(y, N);
}

/* ---- pinned in pieces ------------------------------------------------------------------------ */
typedef struct pieces {
    const char *name;
    size_t at[2], bytes[2]; /* in pages of 4096 bytes */
} pieces_t;

static const pieces_t pieces[] = {{"two pieces side by side", {0, 128}, {128, 128}},
                                  {"two pieces with a gap", {0, 150}, {100, 106}},
                                  {"a piece in the middle", {100, 0}, {7, 0}},
                                  {"the first page", {0, 0}, {1, 0}},
                                  {"the last page", {255, 0}, {1, 0}}};

static void pin(unsigned char *x, const pieces_t *s, int on) {
    int k;
    for (k = 0; k < 2; ++k) {
        unsigned char *at = x + 4096 * s->at[k];
        if (s->bytes[k] == 0) continue;
        SPIPE_CHECK(on ? cudaHostRegister(at, 4096 * s->bytes[k], cudaHostRegisterDefault)
                       : cudaHostUnregister(at));
    }
}

/* In every staging, as input, as output and as a resident buffer: right, or refused at the start
   with a sentence that says so. */
static void test_pieces(const pieces_t *s, spipe_staging_t staging, int what) {
    static const char *const roles[] = {"input", "input with a halo", "output", "resident"};
    unsigned char *x = map(NULL, 1), *y = map(NULL, 2), *table = map(NULL, 7);
    unsigned char *mine = what == 3 ? table : x;
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    cudaError_t e;
    size_t wrong;
    int refused;
    if (what == 2) mine = y;
    d.count = N;
    d.chunk = CHUNK;
    d.staging = staging;
    spipe_add_input(&d, x, 1);
    spipe_add_output(&d, y, 1);
    if (what == 1) spipe_set_halo(&d, 0, 3, 5, SPIPE_EDGE_CLAMP);
    if (what == 3) spipe_add_resident(&d, table, N, SPIPE_UPLOAD | SPIPE_DOWNLOAD);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    pin(mine, s, 1);
    e = spipe_run(&d, &r);
    wrong = e == cudaSuccess ? num_wrong(x, y, N) : 0;
    refused = e == cudaErrorInvalidValue && strstr(r.failure.message, "pinned only in part");
    if (e == cudaSuccess && what == 3) {
        for (size_t i = 0; i < N; ++i) wrong += table[i] != (unsigned char)(7 + i * 11u);
    }
    pin(mine, s, 0);
    tap_ok((e == cudaSuccess || refused) && wrong == 0 && cudaPeekAtLastError() == cudaSuccess,
           "%s of an %s, staging %d: %s", s->name, roles[what], (int)staging,
           e == cudaSuccess ? "right" : r.failure.message);
    munmap(x, N);
    munmap(y, N);
    munmap(table, N);
}

int main(void) {
    size_t k;
    int how, staging, what;
    if (pipe_few_pins()) tap_skip_all("needs to pin as much as it likes");
    for (how = 0; how < NUM_HOWS; ++how) test_registered((how_t)how);
    test_ends();
    for (k = 0; k < sizeof pieces / sizeof *pieces; ++k) {
        for (staging = SPIPE_STAGING_AUTO; staging <= SPIPE_STAGING_DIRECT; ++staging) {
            for (what = 0; what < 4; ++what) {
                test_pieces(&pieces[k], (spipe_staging_t)staging, what);
            }
        }
    }
    return tap_done();
}
