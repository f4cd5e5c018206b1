/*  test_host_pages.cu -- GPUs that read host pages by themselves, as two of hostcuda's profiles
    model them (not measured, after public reports): what the first bytes of the arrays show decides
    whether they are left to the GPU or staged, and a mapped file is never slower than staged. */
#include "hostcuda.h"
#include "pipe_common.h"

#include <fcntl.h>
#include <sys/mman.h>

enum {
    N = 16 << 20 /* bytes */
};

static cudaError_t copy_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return cudaMemcpyAsync(c->data[1], c->data[0], c->count, cudaMemcpyDeviceToDevice, c->stream);
}

/* N bytes of a mapped file, or from malloc. */
static unsigned char *bytes_of(int mapped) {
    unsigned char *at;
    size_t i;
    if (mapped) {
        FILE *f = tmpfile();
        if (!f || ftruncate(fileno(f), N) != 0) exit(99);
        at = (unsigned char *)mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(f), 0);
        if (at == (unsigned char *)MAP_FAILED) exit(99);
        fclose(f);
    } else {
        at = (unsigned char *)malloc(N);
        if (!at) exit(99);
    }
    for (i = 0; i < N; ++i) at[i] = (unsigned char)(i * 7 + i / 4096);
    return at;
}

typedef struct ran {
    spipe_staging_t staging;
    double ms;
    int right;
} ran_t;

static ran_t run_on(const char *profile, int mapped, int kept, spipe_staging_t asked) {
    const hostcuda_profile_t machine = hostcuda_profile(profile);
    unsigned char *x = bytes_of(mapped), *y = (unsigned char *)calloc(1, N);
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p;
    spipe_report_t r;
    spipe_plan_t plan;
    ran_t ran;
    if (!y) exit(99);
    SPIPE_CHECK(hostcuda_set_profile(0, &machine));
    d.count = N;
    d.staging = asked;
    spipe_add_input(&d, x, 1);
    spipe_add_output(&d, y, 1);
    spipe_add_stage(&d, "copy", copy_stage, NULL);
    SPIPE_CHECK(spipe_plan(&d, kept, &plan, NULL));
    if (kept) {
        SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
        SPIPE_CHECK(spipe_pipeline_run(p, &r));
        SPIPE_CHECK(spipe_pipeline_destroy(p));
    } else {
        SPIPE_CHECK_RUN(&d, &r);
    }
    ran.staging = plan.staging;
    ran.ms = r.wall_ms;
    ran.right = memcmp(x, y, N) == 0 && r.staged == (plan.staging == SPIPE_STAGING_COPY);
    if (mapped)
        munmap(x, N);
    else
        free(x);
    free(y);
    return ran;
}

static void test_chosen(const char *profile, int kept) {
    const ran_t memory = run_on(profile, 0, kept, SPIPE_STAGING_AUTO);
    const ran_t file = run_on(profile, 1, kept, SPIPE_STAGING_AUTO);
    const ran_t staged = run_on(profile, 1, kept, SPIPE_STAGING_COPY);
    const ran_t direct = run_on(profile, 1, kept, SPIPE_STAGING_DIRECT);
    const char *how = kept ? "kept" : "once";
    tap_ok(memory.right && memory.staging == SPIPE_STAGING_DIRECT,
           "%s, %s: the GPU reads memory that was written by itself (%.3f ms)", profile, how,
           memory.ms);
    tap_ok(file.right && file.staging == SPIPE_STAGING_COPY,
           "%s, %s: pages of a mapped file are staged (%.3f ms)", profile, how, file.ms);
    tap_ok(staged.right && direct.right && file.ms < 1.1 * staged.ms && direct.ms > 3.0 * staged.ms,
           "%s, %s: which is faster than to let the GPU read them (%.3f ms, modelled)", profile,
           how, direct.ms);
}

/* Where CPU and GPU share one memory, elementwise stages work on pinned arrays in place. */
static void test_integrated(void) {
    const size_t n = (size_t)40 << 20;
    static const char *const profiles[] = {"gb10", "h200"};
    int k;
    for (k = 0; k < 2; ++k) {
        const hostcuda_profile_t machine = hostcuda_profile(profiles[k]);
        unsigned char *x, *y;
        spipe_desc_t d = spipe_desc_default();
        spipe_plan_t plan;
        SPIPE_CHECK(hostcuda_set_profile(0, &machine));
        SPIPE_CHECK(spipe_pinned_alloc((void **)&x, n));
        SPIPE_CHECK(spipe_pinned_alloc((void **)&y, n));
        d.count = n;
        spipe_add_input(&d, x, 1);
        spipe_add_output(&d, y, 1);
        spipe_stage_elementwise(&d, spipe_add_stage(&d, "copy", copy_stage, NULL));
        SPIPE_CHECK(spipe_plan(&d, 1, &plan, NULL));
        tap_ok((plan.schedule == SPIPE_SCHEDULE_ZERO_COPY) == (k == 0),
               "%s: 40 MiB of pinned arrays are %s", profiles[k],
               k == 0 ? "worked on in place" : "copied, on both engines");
        SPIPE_CHECK(spipe_pinned_free(x));
        SPIPE_CHECK(spipe_pinned_free(y));
    }
}

int main(void) {
    static const char *const profiles[] = {"gh200", "gb10"};
    const ran_t h200 = run_on("h200", 0, 1, SPIPE_STAGING_AUTO);
    int k;
    for (k = 0; k < 4; ++k) test_chosen(profiles[k / 2], k % 2);
    tap_ok(h200.right && h200.staging == SPIPE_STAGING_COPY,
           "h200: a GPU that cannot read them has them staged");
    test_integrated();
    return tap_done();
}
