/*  test_arguments.c -- what cannot be meant is refused, everywhere and by the same codes: NULL,
   dead objects, numbers out of range, descriptions written to by hand. Nothing of it touches
   memory. */
#include "pipe_common.h"

#include <sys/wait.h>
#include <unistd.h>

static cudaError_t nothing(const spipe_chunk_t *c, void *user) {
    return c && !user ? cudaSuccess : cudaErrorUnknown;
}

static cudaError_t no_source(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    *count = 0;
    return dst && max_count && !user ? cudaSuccess : cudaErrorUnknown;
}

static cudaError_t no_sink(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    return src && count > first && !user ? cudaSuccess : cudaErrorUnknown;
}

static char bytes[64];
static volatile int beyond = SPIPE_MAX_BUFFERS; /* or gcc sees through it and warns */

static int invalid(cudaError_t e) { return e == cudaErrorInvalidValue; }

static void test_streams(void) {
    spipe_stream_pool_t pool;
    cudaStream_t s = NULL;
    int value;
    tap_ok(invalid(spipe_priority_value((spipe_priority_t)-1, &value)) &&
               invalid(spipe_priority_value((spipe_priority_t)9, &value)) &&
               invalid(spipe_priority_value(SPIPE_PRIORITY_HIGH, NULL)),
           "priorities that there are not");
    tap_ok(invalid(spipe_stream_create(NULL, SPIPE_PRIORITY_DEFAULT)) &&
               invalid(spipe_stream_create(&s, (spipe_priority_t)9)) && s == NULL,
           "a stream without a place or of no priority");
    tap_ok(invalid(spipe_event_create(NULL)) && invalid(spipe_device_get(NULL, -1)),
           "an event or facts without a place");
    tap_ok(invalid(spipe_stream_pool_create(NULL, 2, SPIPE_PRIORITY_DEFAULT)) &&
               invalid(spipe_stream_pool_create(&pool, 0, SPIPE_PRIORITY_DEFAULT)) &&
               invalid(spipe_stream_pool_create(&pool, SPIPE_MAX_STREAMS + 1,
                                                SPIPE_PRIORITY_DEFAULT)) &&
               invalid(spipe_stream_pool_create(&pool, 2, (spipe_priority_t)9)),
           "pools of no streams, of too many, of no priority");
    memset(&pool, 0, sizeof pool);
    tap_ok(invalid(spipe_stream_acquire(&pool, &s)) && invalid(spipe_stream_acquire(NULL, &s)) &&
               invalid(spipe_stream_try_acquire(&pool, &s)) &&
               invalid(spipe_stream_next(&pool, &s)) && invalid(spipe_stream_next(NULL, &s)) &&
               invalid(spipe_stream_release(&pool, NULL)) &&
               invalid(spipe_stream_release(NULL, NULL)),
           "a dead pool lends nothing and takes nothing back");
    tap_ok(spipe_stream_pool_destroy(&pool) == cudaSuccess &&
               spipe_stream_pool_destroy(NULL) == cudaSuccess,
           "destroying a dead pool is fine");
    SPIPE_CHECK(spipe_stream_pool_create(&pool, 1, SPIPE_PRIORITY_DEFAULT));
    tap_ok(invalid(spipe_stream_acquire(&pool, NULL)) &&
               invalid(spipe_stream_try_acquire(&pool, NULL)) &&
               invalid(spipe_stream_next(&pool, NULL)),
           "a pool that lives wants a place for the stream");
    SPIPE_CHECK(spipe_stream_pool_destroy(&pool));
    tap_ok(invalid(spipe_host_call(NULL, NULL, NULL)), "a host call of no function");
}

static void test_memory(void) {
    void *device = NULL, *p = bytes;
    int pinned = -1;
    SPIPE_CHECK(cudaMalloc(&device, 64));
    tap_ok(invalid(spipe_pinned_alloc(NULL, 1)) && invalid(spipe_pin(NULL, 1)) &&
               invalid(spipe_unpin(NULL)) && invalid(spipe_is_pinned(bytes, 1, NULL)),
           "memory without a place");
    tap_ok(spipe_pinned_alloc(&p, 0) == cudaSuccess && p == NULL &&
               spipe_pinned_free(NULL) == cudaSuccess,
           "0 bytes are NULL, and freeing that is fine");
    tap_ok(spipe_is_pinned(bytes, 1, &pinned) == cudaSuccess && pinned == 0 &&
               spipe_is_pinned(device, 1, &pinned) == cudaSuccess && pinned == 1 &&
               spipe_is_pinned(device, 64, &pinned) == cudaSuccess && pinned == 1,
           "one byte has a kind, too; device memory counts as pinned");
    SPIPE_CHECK(cudaFree(device));
}

/* With no description, and with one whose buffers or stages are used up or damaged. */
static void test_adding(void) {
    spipe_desc_t d = spipe_desc_default();
    int i, refused = 0;
    refused += spipe_add_input(NULL, bytes, 1) == -1;
    refused += spipe_add_resident(NULL, bytes, 1, SPIPE_ZERO) == -1;
    refused += spipe_add_source(NULL, no_source, NULL, 1, SPIPE_IN_ORDER) == -1;
    refused += spipe_add_sink(NULL, no_sink, NULL, 1, SPIPE_IN_ORDER) == -1;
    refused += spipe_set_halo(NULL, 0, 1, 1, SPIPE_EDGE_ZERO) == -1;
    refused += spipe_add_stage(NULL, "s", nothing, NULL) == -1;
    refused += spipe_add_host_stage(NULL, "s", nothing, NULL, 0, 0) == -1;
    refused += spipe_stage_after(NULL, 0, "s") == -1;
    refused += spipe_stage_elementwise(&d, 0) == -1 && spipe_stage_replayable(&d, -1) == -1;
    refused +=
        spipe_stage_ordered(&d, 3) == -1 && spipe_set_halo(&d, 0, 1, 1, SPIPE_EDGE_ZERO) == -1;
    tap_ok(refused == 10,
           "adding to no description, or to a stage or buffer that is not there: -1");
    d = spipe_desc_default();
    for (i = 0; i < SPIPE_MAX_BUFFERS; ++i) refused += spipe_add_temp(&d, 1) == i;
    refused += spipe_add_source(&d, no_source, NULL, 1, SPIPE_IN_ORDER) == -1;
    refused += spipe_add_sink(&d, no_sink, NULL, 1, SPIPE_IN_ORDER) == -1;
    refused += spipe_add_resident(&d, NULL, 1, SPIPE_ZERO) == -1;
    refused += spipe_set_halo(&d, beyond, 1, 1, SPIPE_EDGE_ZERO) == -1;
    d.num_buffers = -1;
    refused += spipe_add_input(&d, bytes, 1) == -1;
    tap_ok(refused == 15 + SPIPE_MAX_BUFFERS, "more buffers than there can be, or fewer than none");
    d = spipe_desc_default();
    for (i = 0; i < SPIPE_MAX_STAGES; ++i) refused += spipe_add_stage(&d, "s", nothing, NULL) == i;
    refused += spipe_add_stage(&d, "s", nothing, NULL) == -1;
    refused += spipe_add_host_stage(&d, "s", nothing, NULL, 0, 0) == -1;
    for (i = 0; i < SPIPE_MAX_STAGES; ++i) refused += spipe_stage_after(&d, 0, "s") == 0;
    refused += spipe_stage_after(&d, 0, "s") == -1;
    d.num_stages = -1;
    refused += spipe_add_stage(&d, "s", nothing, NULL) == -1;
    tap_ok(refused == 19 + SPIPE_MAX_BUFFERS + 2 * SPIPE_MAX_STAGES,
           "more stages than there can be, more to wait for, or fewer than none");
}

static spipe_desc_t good(void) {
    spipe_desc_t d = spipe_desc_default();
    d.count = 64;
    d.chunk = 16;
    spipe_add_input(&d, bytes, 1);
    spipe_add_stage(&d, "nothing", nothing, NULL);
    return d;
}

static void refuse(const char *rule, spipe_desc_t d, const char *word) {
    spipe_failure_t f;
    const cudaError_t e = spipe_desc_check(&d, &f);
    if (!invalid(e) || !strstr(f.message, word)) {
        tap_note("%s: %s", cudaGetErrorName(e), f.message);
    }
    tap_ok(invalid(e) && strstr(f.message, word) != NULL, "refused: %s", rule);
}

static void test_descriptions(void) {
    spipe_desc_t d = good();
    tap_ok(spipe_desc_check(&d, NULL) == cudaSuccess,
           "the description that is damaged below is right");
    d.buffers[0].kind = (spipe_kind_t)0;
    refuse("a kind below the first", d, "kind");
    d.buffers[0].kind = (spipe_kind_t)99;
    refuse("a kind beyond the last", d, "kind");
    d = good();
    d.buffers[0].elem_bytes = 0;
    refuse("an element of 0 bytes", d, "0 bytes");
    d = good();
    d.buffers[0].host = NULL;
    refuse("an input without an array", d, "buffer 0");
    d = good();
    d.buffers[0].edge = (spipe_edge_t)7;
    refuse("an edge of no kind", d, "edge");
    d = good();
    d.buffers[0].halo_before = 17;
    refuse("a halo before, larger than a chunk", d, "halo");
    d = good();
    d.buffers[0].halo_after = 17;
    refuse("a halo after, larger than a chunk", d, "halo");
    d = good();
    d.chunk = SIZE_MAX / 4;
    refuse("a chunk of too many bytes", d, "too many bytes");
    d = good();
    d.chunk = d.buffers[0].halo_after = SIZE_MAX / 2;
    refuse("a halo after of too many bytes", d, "too many bytes");
    d = good();
    d.chunk = d.buffers[0].halo_before = SIZE_MAX / 2;
    refuse("a halo before of too many bytes", d, "too many bytes");
    d = good();
    d.buffers[0].elem_bytes = SIZE_MAX / 64;
    refuse("an element so large that a chunk is too many bytes", d, "too many bytes");
    d = good();
    d.num_buffers = -1;
    refuse("fewer buffers than none", d, "damaged");
    d = good();
    d.num_buffers = 99;
    refuse("more buffers than there can be", d, "damaged");
    d = good();
    d.num_stages = -1;
    refuse("fewer stages than none", d, "damaged");
    d = good();
    d.num_stages = 99;
    refuse("more stages than there can be", d, "damaged");
    d = good();
    d.schedule = (spipe_schedule_t)-1;
    refuse("no such schedule: -1", d, "schedule");
    d = good();
    d.schedule = (spipe_schedule_t)99;
    refuse("no such schedule: 99", d, "schedule");
    d = good();
    d.staging = (spipe_staging_t)-1;
    refuse("no such staging: -1", d, "staging");
    d = good();
    d.staging = (spipe_staging_t)99;
    refuse("no such staging: 99", d, "staging");
    d = good();
    d.priority = (spipe_priority_t)-1;
    refuse("no such priority: -1", d, "priority");
    d = good();
    d.priority = (spipe_priority_t)99;
    refuse("no such priority: 99", d, "priority");
    d = good();
    d.stages[0].name = "";
    refuse("a stage with an empty name", d, "name");
    d = good();
    d.stages[0].name = NULL;
    refuse("a stage without a name", d, "name");
    tap_ok(strcmp(spipe_schedule_name((spipe_schedule_t)99),
                  spipe_schedule_name((spipe_schedule_t)-1)) == 0,
           "what is no schedule has one name");
}

static void test_pipelines(void) {
    const cudaError_t dead = cudaErrorInvalidResourceHandle;
    spipe_pipeline_t *p = NULL;
    spipe_desc_t d = good();
    spipe_report_t r;
    spipe_failure_t f;
    tap_ok(spipe_pipeline_run(NULL, NULL) == dead && spipe_pipeline_run(NULL, &r) == dead &&
               r.failure.error == dead && strstr(r.failure.message, "NULL") &&
               spipe_pipeline_wait(NULL, NULL) == dead && spipe_pipeline_wait(NULL, &r) == dead &&
               spipe_pipeline_enqueue(NULL, NULL) == dead &&
               spipe_pipeline_set_host(NULL, 0, bytes) == dead &&
               spipe_pipeline_set_count(NULL, 1) == dead &&
               spipe_pipeline_set_timeline(NULL, NULL) == dead,
           "a NULL pipeline does nothing, and says so");
    tap_ok(!spipe_pipeline_plan(NULL) && !spipe_pipeline_failure(NULL),
           "it has no plan and no failure");
    tap_ok(spipe_pipeline_destroy(NULL) == cudaSuccess, "destroying a NULL pipeline is fine");
    tap_ok(invalid(spipe_pipeline_create(NULL, &d, &f)) &&
               invalid(spipe_pipeline_create(NULL, &d, NULL)) &&
               spipe_run(NULL, NULL) != cudaSuccess,
           "a pipeline without a place or a description");
    p = (spipe_pipeline_t *)(void *)bytes;
    tap_ok(invalid(spipe_pipeline_create(&p, NULL, NULL)) && !p,
           "a pipeline that could not be made is NULL");
    spipe_add_temp(&d, 1);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    tap_ok(invalid(spipe_pipeline_set_host(p, 0, NULL)) &&
               invalid(spipe_pipeline_set_host(p, -1, bytes)) &&
               invalid(spipe_pipeline_set_host(p, 2, bytes)) &&
               invalid(spipe_pipeline_set_host(p, 1, bytes)),
           "a host array for no buffer, or for one without an array");
    tap_ok(spipe_pipeline_set_host(p, 0, bytes) == cudaSuccess &&
               spipe_pipeline_run(p, &r) == cudaSuccess && r.count_done == 64,
           "the refusals left the pipeline as it was");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    d = good();
    d.buffers[0].elem_bytes = 2;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    tap_ok(invalid(spipe_pipeline_set_count(p, SIZE_MAX - 1)), "a count of more bytes than can be");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    d = good();
    d.count = 0;
    d.buffers[0].host = NULL;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    tap_ok(spipe_pipeline_run(p, NULL) == cudaSuccess, "no elements need no array");
    tap_ok(spipe_pipeline_set_count(p, 1) == cudaSuccess && invalid(spipe_pipeline_run(p, &r)) &&
               strstr(r.failure.message, "buffer 0 (input): the host array is NULL"),
           "some do: %s", r.failure.message);
    tap_ok(spipe_pipeline_set_host(p, 0, bytes) == cudaSuccess &&
               spipe_pipeline_run(p, &r) == cudaSuccess && r.count_done == 1,
           "an array may be set after the pipeline was made");
    SPIPE_CHECK(spipe_pipeline_destroy(p));
}

/* Sources that break their contract: user says how. */
typedef struct bad_source {
    size_t left;
    cudaError_t error; /* returned once all is given */
    int boast;         /* 1 = says that it gave more than there was room for */
} bad_source_t;

static cudaError_t give(spipe_part_t *part, void *user) {
    void *dst = part->data;
    const size_t max_count = part->count;
    size_t *count = &part->count;
    bad_source_t *s = (bad_source_t *)user;
    *count = s->left < max_count ? s->left : max_count;
    memset(dst, 1, *count);
    s->left -= *count;
    if (s->boast) *count = max_count + 1;
    return *count > 0 ? cudaSuccess : s->error;
}

static void run_sources(const char *rule, bad_source_t a, bad_source_t b, cudaError_t want,
                        const char *word) {
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    cudaError_t e;
    d.chunk = 16;
    spipe_add_source(&d, give, &a, 1, SPIPE_IN_ORDER);
    spipe_add_source(&d, give, &b, 1, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "nothing", nothing, NULL);
    e = spipe_run(&d, &r);
    if (!strstr(r.failure.message, word)) tap_note("%s", r.failure.message);
    tap_ok(e == want && r.failure.error == want && strstr(r.failure.message, word) != NULL, "%s",
           rule);
}

static void test_sources(void) {
    const bad_source_t good_one = {40, cudaSuccess, 0}, shorter = {24, cudaSuccess, 0};
    const bad_source_t broken = {20, cudaErrorOperatingSystem, 0}, boasts = {40, cudaSuccess, 1};
    run_sources("two sources of one length are right", good_one, good_one, cudaSuccess, "");
    run_sources("sources of two lengths disagree", good_one, shorter, cudaErrorInvalidValue,
                "disagree");
    run_sources("the other way round, too", shorter, good_one, cudaErrorInvalidValue, "disagree");
    run_sources("a source that fails is named, with the element", broken, good_one,
                cudaErrorOperatingSystem, "buffer 0 failed at chunk 1 (12 elements from 20)");
    run_sources("a source that says it gave more than it had room for", good_one, boasts,
                cudaErrorInvalidValue, "buffer 1 said that it gave 17 elements");
}

/* What SPIPE_CHECK prints, in a process of its own: it exits. */
static void test_check(void) {
    char text[512] = "";
    int ends[2], status = 0;
    pid_t child;
    fflush(stdout);
    if (pipe(ends) != 0 || (child = fork()) < 0) exit(99);
    if (child == 0) {
        (void)dup2(ends[1], 2);
        spipe_priv_check(cudaErrorInvalidValue, "a call", NULL, "file.c", 12);
        _exit(0);
    }
    close(ends[1]);
    for (size_t n = 0; n < sizeof text - 1;) {
        const ssize_t got = read(ends[0], text + n, sizeof text - 1 - n);
        if (got <= 0) break;
        n += (size_t)got;
    }
    close(ends[0]);
    (void)waitpid(child, &status, 0);
    tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FAILURE &&
               strstr(text, "file.c:12: a call: ") && strstr(text, "cudaErrorInvalidValue"),
           "SPIPE_CHECK says where and what, and ends the program with a failure");
}

/* A failed run and a report of nothing, printed. */
static void test_report(void) {
    spipe_report_t r;
    char text[4096] = "";
    FILE *to = tmpfile();
    if (!to) exit(99);
    memset(&r, 0, sizeof r);
    r.failure.error = cudaErrorInvalidValue;
    r.failure.chunks_whole = 3;
    snprintf(r.failure.message, sizeof r.failure.message, "stage 'x' failed");
    tap_ok(invalid(spipe_report_print(NULL, to)) && invalid(spipe_report_print(&r, NULL)),
           "a report of nothing, or to nowhere");
    tap_ok(spipe_report_print(&r, to) == cudaSuccess, "a report of a run that failed is printed");
    rewind(to);
    (void)!fread(text, 1, sizeof text - 1, to);
    fclose(to);
    tap_ok(strstr(text, "stage 'x' failed (cudaErrorInvalidValue)") && strstr(text, "3 chunks") &&
               strstr(text, "no device"),
           "it says why, how much is whole, and that there was no device");
}

/* In C: copies its input to its output. It asks for the input as memory to write where the user's
   int is 1, else as const memory. */
static cudaError_t asking_stage(const spipe_chunk_t *c, void *user) {
    const float *in =
        *(const int *)user ? SPIPE_BUF(c, 0, float) : (float *)SPIPE_BUF(c, 0, const float);
    float *out = SPIPE_BUF(c, 1, float);
    if (!in || !out) return cudaErrorInvalidValue;
    return cudaMemcpyAsync(out, in, c->count * sizeof *in, cudaMemcpyDefault, c->stream);
}

/* A small pinned array is worked on in place: so no elementwise stage may write into its input. */
static void test_input_to_write(int to_write) {
#if defined(__GNUC__)
    const int refused = to_write;
#else
    const int refused = 0; /* other C compilers cannot say whether a type is const */
#endif
    const char *as = to_write ? "memory to write" : "const memory";
    void *x, *y;
    cudaError_t e;
    spipe_report_t r;
    spipe_desc_t d = spipe_desc_default();
    SPIPE_CHECK(spipe_pinned_alloc(&x, 1000 * sizeof(float)));
    SPIPE_CHECK(spipe_pinned_alloc(&y, 1000 * sizeof(float)));
    memset(x, 0, 1000 * sizeof(float));
    d.count = 1000;
    spipe_add_input(&d, x, sizeof(float));
    spipe_add_output(&d, y, sizeof(float));
    spipe_stage_elementwise(&d, spipe_add_stage(&d, "asks", asking_stage, &to_write));
    e = spipe_run(&d, &r);
    tap_ok(refused ? invalid(e) && strstr(r.failure.message, "as if to write") : e == cudaSuccess,
           "in C, an elementwise stage that takes its input as %s is %s", as,
           refused ? "refused" : "allowed");
    SPIPE_CHECK(spipe_pinned_free(x));
    SPIPE_CHECK(spipe_pinned_free(y));
}

int main(void) {
    test_check(); /* first: CUDA does not outlive a fork */
    test_streams();
    test_memory();
    test_adding();
    test_descriptions();
    test_pipelines();
    test_sources();
    test_report();
    test_input_to_write(0);
    test_input_to_write(1);
    return tap_done();
}
