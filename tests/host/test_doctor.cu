/*  test_doctor.cu -- the doctor finds what keeps work from overlapping, on devices made so. */
#include "hostcuda.h"
#include "streampipe_tools.h"
#include "tap.h"

static __global__ void work(int *x) { (void)x; }

static unsigned blocks = 1;

static cudaError_t launch(cudaStream_t stream, void *user) {
    return SPIPE_LAUNCH(work, blocks, 256, 0, stream, (int *)user);
}

/* Less than the default is copied: every byte is copied for real, which sanitizers make slow. */
static spipe_doctor_desc_t small_probe(size_t bytes) {
    spipe_doctor_desc_t d = spipe_doctor_default();
    d.probe_bytes = bytes;
    return d;
}

static spipe_checkup_t examine(const hostcuda_profile_t *p, const spipe_doctor_desc_t *given) {
    const spipe_doctor_desc_t small = small_probe((size_t)2 << 20);
    spipe_checkup_t c;
    SPIPE_CHECK(hostcuda_set_profile(0, p));
    hostcuda_kernel_time(work, 1e6, 0.0);
    SPIPE_CHECK(spipe_doctor(given ? given : &small, &c, NULL));
    return c;
}

static int looks(const spipe_checkup_t *c, spipe_finding_t f) {
    return c->verdict[f] == SPIPE_VERDICT_LOOK;
}

static void test_devices(void) {
    hostcuda_profile_t p = hostcuda_profile("h200");
    spipe_checkup_t c = examine(&p, NULL);
    tap_ok(c.num_look == 0 && c.copies_overlap > 0.85 && c.order_overlap > 0.85 && c.in_ms > 0.03,
           "h200: nothing to look at; %.0f %% of a copy is hidden", 100.0 * c.copies_overlap);
    tap_ok(c.kernels_overlap < 0.0 && c.verdict[SPIPE_FIND_TWO_KERNELS] == SPIPE_VERDICT_NONE,
           "without a kernel none is tried");
    p.copy_engines = p.async_engine_count = 1;
    c = examine(&p, NULL);
    tap_ok(looks(&c, SPIPE_FIND_COPY_ENGINES) && looks(&c, SPIPE_FIND_BOTH_WAYS) &&
               c.copies_overlap < 0.2,
           "one copy engine: found, and measured that nothing overlaps");
    p = hostcuda_profile("h200");
    p.both_ways = 0.5;
    c = examine(&p, NULL);
    tap_ok(looks(&c, SPIPE_FIND_BOTH_WAYS) && !looks(&c, SPIPE_FIND_COPY_ENGINES),
           "a link that halves when both ways are busy: measured, though the device has engines");
    p = hostcuda_profile("h200");
    p.queues = 1;
    c = examine(&p, NULL);
    tap_ok(looks(&c, SPIPE_FIND_ISSUE_ORDER) && !looks(&c, SPIPE_FIND_BOTH_WAYS) &&
               c.order_overlap < 0.2,
           "one hardware queue: a copy waits for one issued before it in another stream");
    p = hostcuda_profile("h200");
    p.call_query = 5e6; /* the host is so slow that the copy ends before it can look */
    c = examine(&p, NULL);
    tap_ok(looks(&c, SPIPE_FIND_DEFERRED), "a copy whose call comes back when it is done: found");
    p = hostcuda_profile("h200");
    p.queues = 1;
    p.concurrent_kernels = 0;
    p.priority_greatest = 0;
    c = examine(&p, NULL);
    tap_ok(looks(&c, SPIPE_FIND_KERNELS) && looks(&c, SPIPE_FIND_PRIORITIES) && c.num_look == 3,
           "kernels one at a time, and no priorities: found");
}

static void test_streams(void) {
    const hostcuda_profile_t p = hostcuda_profile("h200");
    spipe_doctor_desc_t d = small_probe((size_t)2 << 20);
    cudaStream_t s[2] = {NULL, NULL};
    SPIPE_CHECK(hostcuda_set_profile(0, &p));
    d.streams = s;
    d.num_streams = 2;
    SPIPE_CHECK(cudaStreamCreate(&s[1]));
    spipe_checkup_t c = examine(&p, &d);
    tap_ok(looks(&c, SPIPE_FIND_NON_BLOCKING) && looks(&c, SPIPE_FIND_BOTH_WAYS) &&
               c.copies_overlap < 0.2,
           "the legacy default stream and a blocking one: nothing overlaps, as measured on them");
    SPIPE_CHECK(cudaStreamDestroy(s[1]));
    SPIPE_CHECK(spipe_stream_create(&s[0], SPIPE_PRIORITY_DEFAULT));
    s[1] = s[0];
    c = examine(&p, &d);
    tap_ok(looks(&c, SPIPE_FIND_DIFFERENT) && looks(&c, SPIPE_FIND_BOTH_WAYS),
           "one stream twice: nothing overlaps");
    SPIPE_CHECK(spipe_stream_create(&s[1], SPIPE_PRIORITY_HIGH));
    c = examine(&p, &d);
    tap_ok(c.num_look == 0, "two non-blocking streams of the caller's are measured and fine");
    SPIPE_CHECK(cudaStreamDestroy(s[0]));
    SPIPE_CHECK(cudaStreamDestroy(s[1]));
}

static void test_kernels(void) {
    hostcuda_profile_t p = hostcuda_profile("h200");
    spipe_doctor_desc_t d = small_probe((size_t)2 << 20);
    p.sm_count = 4;
    d.launch = launch;
    spipe_checkup_t c = examine(&p, &d);
    tap_ok(c.kernels_overlap > 0.9 && c.verdict[SPIPE_FIND_TWO_KERNELS] == SPIPE_VERDICT_OK,
           "two small kernels run side by side");
    blocks = 4 * 8;
    c = examine(&p, &d);
    tap_ok(looks(&c, SPIPE_FIND_TWO_KERNELS) && c.kernels_overlap < 0.2,
           "two kernels that each fill the device do not: found");
}

static void test_failures(void) {
    static const char *const calls[] = {"cudaMalloc",
                                        "cudaHostAlloc",
                                        "cudaEventCreate",
                                        "cudaMemcpyAsync",
                                        "cudaStreamCreateWithPriority",
                                        "cudaEventElapsedTime",
                                        "cudaGetDeviceProperties"};
    const hostcuda_profile_t p = hostcuda_profile("h200");
    const spipe_doctor_desc_t d = small_probe((size_t)64 << 10);
    SPIPE_CHECK(hostcuda_set_profile(0, &p));
    for (const char *call : calls) {
        for (long k = 1; k <= 2; ++k) {
            spipe_checkup_t c;
            hostcuda_fail(call, k, cudaErrorMemoryAllocation);
            const cudaError_t e = spipe_doctor(&d, &c, NULL);
            if (hostcuda_fail_fired() > 0) {
                tap_ok(e == cudaErrorMemoryAllocation, "call %ld of %s fails: its error comes back",
                       k, call);
            }
            hostcuda_fail_clear();
        }
    }
    tap_ok(hostcuda_leaks(stderr) == 0, "nothing is left behind");
}

static void test_text(void) {
    hostcuda_profile_t p = hostcuda_profile("ideal1");
    spipe_doctor_desc_t d = small_probe((size_t)1 << 20);
    char text[8192] = "";
    FILE *f = tmpfile();
    if (!f) exit(99);
    SPIPE_CHECK(hostcuda_set_profile(0, &p));
    SPIPE_CHECK(spipe_doctor(&d, NULL, f));
    rewind(f);
    (void)!fread(text, 1, sizeof text - 1, f);
    fclose(f);
    tap_ok(strstr(text, "LOOK HERE 1 copy engine: one direction at a time") != NULL &&
               strstr(text, "cure: ") != NULL && strstr(text, "(modelled)") != NULL,
           "the text says what, and what to do; the device is named as modelled");
    for (const char *question :
         {"1 pinned", "2 non-blocking", "3 different", "4 synchronisation", "5 overlap?"}) {
        tap_ok(strstr(text, question) != NULL, "the checklist asks: %s ...", question);
    }
    f = fopen("/dev/full", "w");
    if (f) {
        setvbuf(f, NULL, _IONBF, 0);
        tap_ok(spipe_doctor(&d, NULL, f) == cudaErrorOperatingSystem, "a full device is an error");
        fclose(f);
    } else {
        tap_skip("a full device is an error", "there is no /dev/full");
    }
}

int main(void) {
    test_devices();
    test_streams();
    test_kernels();
    test_failures();
    test_text();
    return tap_done();
}
