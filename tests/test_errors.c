/*  test_errors.c -- a bad description fails before anything is allocated, with a sentence that
   names what is wrong; also what C99 sees of the header. Runs no kernel. */
#include "streampipe.h"
#include "tap.h"

/* Nothing worth computing: the output is zeros, if there is one. */
static cudaError_t nothing(const spipe_chunk_t *c, void *user) {
    (void)user;
    if (c->num_buffers < 2) return cudaSuccess;
    return cudaMemsetAsync(c->data[1], 0, c->count * sizeof(int), c->stream);
}

static cudaError_t no_source(spipe_part_t *part, void *user) {
    size_t *count = &part->count;
    (void)user;
    *count = 0;
    return cudaSuccess;
}

static cudaError_t greedy_source(spipe_part_t *part, void *user) {
    const size_t max_count = part->count;
    size_t *count = &part->count;
    (void)user;
    *count = max_count + 1;
    return cudaSuccess;
}

static cudaError_t broken_source(spipe_part_t *part, void *user) {
    (void)part;
    (void)user;
    return cudaErrorOperatingSystem;
}

static cudaError_t no_sink(const spipe_part_t *part, void *user) {
    (void)part;
    (void)user;
    return cudaSuccess;
}

static int array[100];
static int result[100];
static const size_t some = 100;

static spipe_desc_t good(void) {
    spipe_desc_t d = spipe_desc_default();
    d.count = some;
    spipe_add_input(&d, array, sizeof *array);
    spipe_add_output(&d, result, sizeof *result);
    spipe_add_stage(&d, "nothing", nothing, NULL);
    return d;
}

static size_t device_memory_free(void) {
    size_t left = 0, total = 0;
    SPIPE_CHECK(cudaMemGetInfo(&left, &total));
    return left;
}

/* An array is not there, or may not be where it is: refused by the check and by a run. A pipeline
   that is kept is made, as it may be given another array, and refuses to run until then. */
static void refused_array(const spipe_desc_t *d, const char *word, const char *rule) {
    spipe_failure_t f;
    spipe_report_t r, r2;
    spipe_pipeline_t *p = NULL;
    const cudaError_t e = spipe_desc_check(d, &f), e2 = spipe_run(d, &r);
    cudaError_t e3;
    SPIPE_CHECK(spipe_pipeline_create(&p, d, NULL));
    e3 = spipe_pipeline_run(p, &r2);
    tap_ok(e == cudaErrorInvalidValue && e2 == e && e3 == e && strstr(f.message, word) &&
               strcmp(f.message, r.failure.message) == 0 &&
               strcmp(f.message, r2.failure.message) == 0 &&
               strcmp(f.message, spipe_pipeline_failure(p)->message) == 0,
           "%s is refused: %s", rule, f.message);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
}

/* The description is refused by the check, by a run and by create, with this word in the sentence,
   and no device memory has gone. */
static void refused(const spipe_desc_t *d, const char *word, const char *rule) {
    spipe_failure_t f;
    spipe_report_t r;
    spipe_pipeline_t *p = NULL;
    const size_t before = device_memory_free();
    const cudaError_t e = spipe_desc_check(d, &f), e2 = spipe_run(d, &r);
    spipe_failure_t f3;
    const cudaError_t e3 = spipe_pipeline_create(&p, d, &f3);
    tap_ok(e == cudaErrorInvalidValue && e2 == e && e3 == e && strstr(f.message, word) &&
               strcmp(f.message, r.failure.message) == 0 && strcmp(f.message, f3.message) == 0 &&
               !p && device_memory_free() == before,
           "%s is refused: %s", rule, f.message);
}

static void test_buffers(void) {
    spipe_desc_t d = good();
    int i;
    d.buffers[0].host = NULL;
    refused_array(&d, "buffer 0 (input)", "a NULL array");
    d = good();
    d.buffers[1].elem_bytes = 0;
    refused(&d, "0 bytes", "an element of no bytes");
    d = good();
    for (i = 0; i < SPIPE_MAX_BUFFERS; ++i) spipe_add_temp(&d, 4);
    refused(&d, "too many buffers", "one buffer too many");
    d = good();
    d.count = SIZE_MAX / 2;
    refused(&d, "SIZE_MAX", "count x element size past SIZE_MAX");
    d = good();
    d.chunk = 4;
    spipe_set_halo(&d, 0, 5, 0, SPIPE_EDGE_CLAMP);
    refused(&d, "larger than a chunk", "a halo larger than a chunk");
    d = good();
    spipe_set_halo(&d, 1, 1, 1, SPIPE_EDGE_CLAMP);
    refused(&d, "buffer 1 (output)", "a halo of an output");
    d = good();
    spipe_set_halo(&d, 9, 1, 1, SPIPE_EDGE_CLAMP);
    refused(&d, "no such buffer", "a halo of a buffer that is not there");
    d = good();
    d.chunk = SIZE_MAX / 2;
    refused(&d, "too many bytes", "a chunk past SIZE_MAX");
    d = good();
    spipe_add_source(&d, NULL, NULL, 4, SPIPE_IN_ORDER);
    refused(&d, "function is NULL", "a source without a function");
    d = good();
    spipe_add_sink(&d, NULL, NULL, 4, SPIPE_IN_ORDER);
    refused(&d, "function is NULL", "a sink without a function");
    d = good();
    spipe_add_resident(&d, NULL, 100, SPIPE_UPLOAD);
    refused_array(&d, "resident", "a resident buffer uploaded from NULL");
    d = good();
    spipe_add_resident(&d, array, 100, 77);
    refused(&d, "SPIPE_UPLOAD", "a resident buffer used in an unknown way");
    d = good();
    d.buffers[0].kind = (spipe_kind_t)0;
    refused(&d, "kind", "a buffer of no kind");
}

static void test_sizes(void) {
    spipe_desc_t d = good();
    d.chunk = 0;
    refused(&d, "chunk is 0", "a chunk of 0 elements and no source");
    d = good();
    d.depth = 0;
    refused(&d, "depth is 0", "a depth of 0");
    d.depth = SPIPE_MAX_DEPTH + 1;
    refused(&d, "depth is 33", "a depth of 33");
    d = good();
    d.threads = SPIPE_MAX_THREADS + 1;
    refused(&d, "threads", "too many threads");
    d = good();
    d.count = SPIPE_AUTO;
    refused(&d, "needs a length", "an array without a count");
    d = spipe_desc_default();
    spipe_add_temp(&d, 4);
    spipe_add_stage(&d, "nothing", nothing, NULL);
    refused(&d, "count was not set", "no count and no source");
    d = spipe_desc_default();
    d.count = 0;
    spipe_add_source(&d, no_source, NULL, 4, SPIPE_IN_ORDER);
    spipe_add_output(&d, result, 4);
    spipe_add_stage(&d, "nothing", nothing, NULL);
    refused(&d, "needs a length", "an output array beside a source without a count");
}

static void test_stages(void) {
    spipe_desc_t d = good();
    char names[SPIPE_MAX_STAGES][8];
    int i, s;
    d.num_stages = 0;
    refused_array(&d, "no stage", "no stage");
    d = good();
    spipe_add_stage(&d, "nothing", nothing, NULL);
    refused(&d, "two stages", "two stages of one name");
    d = good();
    spipe_add_stage(&d, NULL, nothing, NULL);
    refused(&d, "no name", "a stage without a name");
    d = good();
    spipe_add_stage(&d, "void", NULL, NULL);
    refused(&d, "'void'", "a stage without a function");
    d = good();
    s = spipe_add_stage(&d, "late", nothing, NULL);
    spipe_stage_after(&d, s, "never");
    refused(&d, "'never'", "waiting for a stage that is not there");
    d = good();
    spipe_stage_after(&d, 0, "b");
    s = spipe_add_stage(&d, "b", nothing, NULL);
    spipe_stage_after(&d, s, "nothing");
    refused(&d, "circle", "two stages that wait for each other");
    d = good();
    spipe_stage_after(&d, 5, "nothing");
    refused(&d, "no such stage", "spipe_stage_after of a stage that is not there");
    d = good();
    spipe_stage_ordered(&d, -1);
    refused(&d, "no such stage", "spipe_stage_ordered of a stage that is not there");
    d = good();
    spipe_add_host_stage(&d, "host", nothing, NULL, SPIPE_BIT(7), 0);
    refused(&d, "buffer 7", "a host stage of a buffer that is not there");
    d = good();
    spipe_add_resident(&d, NULL, 4, SPIPE_ZERO);
    spipe_add_host_stage(&d, "host", nothing, NULL, 0, SPIPE_BIT(2));
    refused(&d, "resident", "a host stage of a resident buffer");
    d = good();
    for (i = 0; i < SPIPE_MAX_STAGES; ++i) {
        snprintf(names[i], sizeof names[i], "s%d", i % 100);
        spipe_add_stage(&d, names[i], nothing, NULL);
    }
    refused(&d, "too many stages", "one stage too many");
    d = good();
    d.num_buffers = -3;
    refused(&d, "damaged", "a damaged description");
}

static void test_running(void) {
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t r;
    tap_ok(spipe_run(NULL, &r) == cudaErrorInvalidValue && r.failure.message[0],
           "a NULL description is refused: %s", r.failure.message);
    tap_ok(spipe_desc_check(NULL, NULL) == cudaErrorInvalidValue &&
               spipe_pipeline_create(NULL, &d, NULL) == cudaErrorInvalidValue &&
               spipe_pipeline_destroy(NULL) == cudaSuccess,
           "so is a NULL pipeline, but for destroying");
    spipe_add_source(&d, greedy_source, NULL, 4, SPIPE_IN_ORDER);
    spipe_add_sink(&d, no_sink, NULL, 4, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "nothing", nothing, NULL);
    tap_ok(spipe_run(&d, &r) == cudaErrorInvalidValue && strstr(r.failure.message, "room for"),
           "a source that overfills is found out: %s", r.failure.message);
    d.buffers[0].source = broken_source;
    tap_ok(spipe_run(&d, &r) == cudaErrorOperatingSystem && r.failure.chunk == 0 &&
               r.failure.chunks_whole == 0 && strstr(r.failure.message, "source of buffer 0"),
           "a source's own error comes back: %s", r.failure.message);
    d = good();
    d.chunk = (size_t)1 << (8 * sizeof(size_t) - 19); /* 2^45 */
    if (sizeof(size_t) < 8) {
        tap_skip("a chunk larger than the device is a sentence", "with 32 bits none is");
    } else {
        tap_ok(spipe_run(&d, &r) == cudaErrorMemoryAllocation &&
                   strstr(r.failure.message, "no room"),
               "a chunk larger than the device is a sentence: %s", r.failure.message);
    }
    tap_ok(cudaGetLastError() == cudaSuccess, "and leaves no error behind");
}

static void test_names(void) {
    tap_ok(strcmp(spipe_schedule_name(SPIPE_SCHEDULE_ENGINES), "engines") == 0 &&
               strcmp(spipe_schedule_name(SPIPE_SCHEDULE_ZERO_COPY), "zero-copy") == 0 &&
               strcmp(spipe_schedule_name(SPIPE_SCHEDULE_AUTO), "auto") == 0,
           "schedules have names");
    tap_ok(spipe_blocks(0, 256) == 1 && spipe_blocks(1, 256) == 1 && spipe_blocks(256, 256) == 1 &&
               spipe_blocks(257, 256) == 2 && spipe_blocks(SIZE_MAX, 1) == 2147483647u &&
               spipe_blocks(10, 0) == 10,
           "spipe_blocks covers all elements and never is 0");
}

static void test_print(void) {
    spipe_report_t r;
    spipe_desc_t d = good();
    FILE *full = fopen("/dev/full", "w");
    SPIPE_CHECK(spipe_run(&d, &r));
    tap_ok(spipe_report_print(&r, NULL) == cudaErrorInvalidValue &&
               spipe_report_print(NULL, stdout) == cudaErrorInvalidValue,
           "printing needs both arguments");
    if (!full) {
        tap_skip("a report that cannot be written says so", "no /dev/full here");
        return;
    }
    setvbuf(full, NULL, _IONBF, 0);
    tap_ok(spipe_report_print(&r, full) == cudaErrorOperatingSystem,
           "a report that cannot be written says so");
    fclose(full);
}

/* The library's own values are no error of CUDA's, differ, and have a name and words. */
static void test_own_values(void) {
    static const cudaError_t own[] = {SPIPE_STOPPED,      SPIPE_WOULD_WAIT,    SPIPE_ALL_HELD,
                                      SPIPE_CHANNEL_FULL, SPIPE_CHANNEL_EMPTY, SPIPE_ALL_LEASED};
    static const char *const names[] = {"SPIPE_STOPPED",       "SPIPE_WOULD_WAIT",
                                        "SPIPE_ALL_HELD",      "SPIPE_CHANNEL_FULL",
                                        "SPIPE_CHANNEL_EMPTY", "SPIPE_ALL_LEASED"};
    const char *none = cudaGetErrorString((cudaError_t)8999);
    size_t k, j, wrong = 0;
    for (k = 0; k < sizeof own / sizeof *own; ++k) {
        wrong += strcmp(cudaGetErrorString(own[k]), none) != 0;
        wrong += strcmp(spipe_error_name(own[k]), names[k]) != 0;
        wrong += strcmp(spipe_error_string(own[k]), none) == 0;
        for (j = 0; j < k; ++j) wrong += own[j] == own[k];
    }
    wrong += strcmp(spipe_error_string(cudaErrorInvalidValue),
                    cudaGetErrorString(cudaErrorInvalidValue)) != 0;
    wrong += strcmp(spipe_error_name(cudaSuccess), "cudaSuccess") != 0;
    wrong += strcmp(spipe_error_string((cudaError_t)9000), none) != 0;
    wrong += strcmp(spipe_error_string((cudaError_t)9007), none) != 0;
    tap_ok(wrong == 0, "each of the library's own values has a name and words of its own");
}

int main(void) {
    test_own_values();
    test_buffers();
    test_sizes();
    test_stages();
    test_running();
    test_names();
    test_print();
    return tap_done();
}
