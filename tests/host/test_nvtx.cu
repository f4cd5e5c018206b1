/*  test_nvtx.cu -- with SPIPE_NVTX a recorded run opens a range for each operation, on the
    thread that does it, and closes each. */
#define SPIPE_NVTX
#include "../pipe_common.h"
#include "streampipe_timeline.h"

enum {
    N = 10000,
    CHUNK = 1000,
    CHUNKS = N / CHUNK
};

int main(void) {
    pipe_array_t x = pipe_array_new(N, PIPE_PAGEABLE), y = pipe_array_new(N, PIPE_PAGEABLE);
    pipe_mix_args_t args;
    spipe_timeline_t t = spipe_timeline_default();
    spipe_report_t r;
    spipe_desc_t d = spipe_desc_default();
    size_t before;
    memset(&args, 0, sizeof args);
    args.out = 1;
    args.elem_bytes = 1;
    pipe_randomise(x);
    pipe_poison(y);
    d.count = N;
    d.chunk = CHUNK;
    d.staging = SPIPE_STAGING_COPY;
    spipe_add_input(&d, x.at, 1);
    spipe_add_output(&d, y.at, 1);
    spipe_add_stage(&d, "mix", pipe_mix_stage, &args);
    SPIPE_CHECK_RUN(&d, &r);
    tap_ok(hostcuda_ranges(NULL) == 0, "a run that nobody watches opens no range");
    d.timeline = &t;
    SPIPE_CHECK_RUN(&d, &r);
    tap_ok(hostcuda_ranges(NULL) == 5 * CHUNKS,
           "a chunk is filled, copied in, worked on, copied "
           "out and drained: %zu ranges",
           hostcuda_ranges(NULL));
    tap_ok(hostcuda_ranges("mix 0") == 1 && hostcuda_ranges("mix 9") == 1 &&
               hostcuda_ranges("copy in 3") == 1 && hostcuda_ranges("copy out 9") == 1 &&
               hostcuda_ranges("fill 0") == 1 && hostcuda_ranges("drain 9") == 1,
           "their names tell what and which chunk");
    tap_ok(hostcuda_ranges_open() == 0, "all of them are closed");
    before = hostcuda_ranges(NULL);
    d.stages[0].name = "a name that is longer than anybody would want to read in a row of a "
                       "profiler's window, and then some";
    SPIPE_CHECK_RUN(&d, &r);
    tap_ok(hostcuda_ranges(NULL) == before + 5 * CHUNKS && hostcuda_ranges_open() == 0,
           "a long name is cut");
    pipe_free(&x);
    pipe_free(&y);
    return tap_done();
}
