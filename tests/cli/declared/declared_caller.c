/*  The C file of a program of three, with prototypes alone: tests/cli/declared.sh builds and runs
    it. Its argument is the language of the file that has the code, c or c++.                    */
#define SPIPE_DECLARATIONS
#include "streampipe.h"
#include "streampipe_devices.h"
#include "streampipe_files.h"
#include "streampipe_timeline.h"
#include "streampipe_tools.h"

enum {
    COUNT = 10000
};

cudaError_t twice_stage(const spipe_chunk_t *c, void *user);
cudaError_t plus_stage(const spipe_chunk_t *c, void *user);
cudaError_t wrong_cpp_stage(const spipe_chunk_t *c, void *left);
int exception_is_caught(void);

static float x[COUNT], y[COUNT], z[COUNT];

static cudaError_t halve_stage(const spipe_chunk_t *c, void *user) {
    float *p = SPIPE_BUF(c, 1, float);
    size_t i;
    (void)user;
    for (i = 0; i < c->count; ++i) p[i] *= 0.5f;
    return cudaSuccess;
}

/* A stage in C is not left by an exception, also where the code is C++. */
static cudaError_t wrong_c_stage(const spipe_chunk_t *c, void *went_on) {
    double *p = SPIPE_BUF(c, 1, double);
    *(int *)went_on += p != NULL;
    return cudaSuccess;
}

/* y = (2 x + 1) / 2 */
static spipe_desc_t described(void) {
    spipe_desc_t d = spipe_desc_default();
    d.count = COUNT;
    d.chunk = 1000;
    SPIPE_ADD_INPUT(&d, x);
    SPIPE_ADD_OUTPUT(&d, y);
    spipe_add_stage(&d, "twice", twice_stage, NULL);
    spipe_add_stage(&d, "plus", plus_stage, NULL);
    spipe_add_host_stage(&d, "halve", halve_stage, NULL, SPIPE_BIT(1), SPIPE_BIT(1));
    return d;
}

static int is_computed(void) {
    size_t i;
    for (i = 0; i < COUNT && y[i] == x[i] + 0.5f; ++i) continue;
    memset(y, 0, sizeof y);
    return i == COUNT;
}

static int runs(void) {
    spipe_desc_t d = described();
    spipe_timeline_t timeline = spipe_timeline_default();
    spipe_report_t report;
    d.timeline = &timeline;
    SPIPE_CHECK_RUN(&d, &report);
    if (!is_computed() || !report.verdict[0]) return 0;
    d.timeline = NULL;
    spipe_devices_all(&d);
    SPIPE_CHECK_RUN(&d, &report);
    return is_computed();
}

static int files_work(const char *path) {
    spipe_desc_t out = spipe_desc_default(), in = spipe_desc_default();
    spipe_file_t file;
    SPIPE_CHECK(spipe_file_create(&file, path, NULL));
    out.count = COUNT;
    SPIPE_ADD_INPUT(&out, x);
    spipe_add_file_output(&out, &file, sizeof *x);
    spipe_add_stage(&out, "twice", twice_stage, NULL);
    SPIPE_CHECK_RUN(&out, NULL);
    SPIPE_CHECK(spipe_file_commit(&file, SPIPE_AUTO, NULL));
    spipe_file_close(&file);
    SPIPE_CHECK(spipe_file_open(&file, path, NULL));
    in.count = COUNT;
    spipe_add_file_input(&in, &file, sizeof *x);
    SPIPE_ADD_OUTPUT(&in, z);
    spipe_add_stage(&in, "twice", twice_stage, NULL);
    SPIPE_CHECK_RUN(&in, NULL);
    spipe_file_close(&file);
    return z[COUNT - 1] == 4.0f * x[COUNT - 1];
}

static int is_refused(spipe_stage_fn stage, int on_host, int *told) {
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t report;
    d.count = COUNT;
    SPIPE_ADD_INPUT(&d, x);
    SPIPE_ADD_OUTPUT(&d, y);
    if (on_host) spipe_add_host_stage(&d, "wrong", stage, told, SPIPE_BIT(0), SPIPE_BIT(1));
    if (!on_host) spipe_add_stage(&d, "wrong", stage, told);
    return spipe_run(&d, &report) == cudaErrorInvalidValue &&
           strstr(report.failure.message, "elements of 8 bytes") != NULL;
}

static int result_of(const char *what, int right) {
    if (!right) printf("wrong: %s\n", what);
    return !right;
}

int main(int argc, char **argv) {
    const int is_cpp = argc > 2 && strcmp(argv[1], "c++") == 0;
    int went_on = 0, not_left = 0, wrong = 0;
    size_t i;
    if (argc < 3) return 2;
    for (i = 0; i < COUNT; ++i) x[i] = (float)(i % 1000);
    wrong += result_of("a run", runs());
    wrong += result_of("files", files_work(argv[2]));
    wrong += result_of("a wrong buffer in C", is_refused(wrong_c_stage, 1, &went_on) && went_on);
    wrong += result_of("a wrong buffer in C++",
                       is_refused(wrong_cpp_stage, 0, &not_left) && not_left == !is_cpp);
    if (is_cpp) wrong += result_of("an exception", exception_is_caught());
    wrong += result_of("the doctor", spipe_doctor(NULL, NULL, stdout) == cudaSuccess);
    return wrong > 0;
}
