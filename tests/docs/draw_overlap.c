/*  draw_overlap FILE.svg -- the picture at the top of README.md: 64 MiB in, one kernel, 64 MiB
    out on an H200, in chunks, as streampipe_model.h predicts. The same bytes everywhere. */
#include "streampipe_model.h"

int main(int argc, char **argv) {
    static spipe_span_t spans[1000];
    spipe_timeline_t t = spipe_timeline_default();
    spipe_model_t m = spipe_model_default();
    if (argc != 2) {
        fprintf(stderr, "draw_overlap: name the file to write\n");
        return 2;
    }
    m.device = spipe_model_preset("h200");
    m.count = 16 << 20; /* floats */
    m.chunk = m.count / 8;
    m.in_bytes = m.out_bytes = (double)m.chunk * sizeof(float);
    m.num_stages = 1;
    m.stage_names[0] = "square";
    m.stage_ms[0] = 0.14; /* about as long as a copy */
    t.spans = spans;
    t.capacity = sizeof spans / sizeof *spans;
    t.title = "64 MiB in, a kernel, 64 MiB out";
    SPIPE_CHECK(spipe_model_run(&m, &t, NULL));
    snprintf(t.device, sizeof t.device, "H200");
    SPIPE_CHECK(spipe_timeline_write_svg(&t, argv[1]));
    return 0;
}
