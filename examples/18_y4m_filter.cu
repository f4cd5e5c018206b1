/*  18_y4m_filter.cu -- a video filter: Y4M from standard input to standard output, of any length.

    nvcc -O3 -I.. -o y4m_filter 18_y4m_filter.cu && ./y4m_filter    (without a GPU: make examples)
    ffmpeg -v error -i in.mp4 -f yuv4mpegpipe - | y4m_filter sobel | ffmpeg -v error -i - out.mp4
    y4m_filter negate|sobel|gblur        without an argument it checks itself against the CPU
    You learn   a source and a sink make an endless pipeline in fixed memory. The element is a whole
                frame, because a filter reads neighbouring pixels: with pixels or rows as elements,
                the neighbours of a chunk's last row would be in the next chunk, plane or frame. At
                the border of a plane its pixels are repeated. (For one picture larger than a chunk
                there is spipe_set_halo.)
    Mind        gblur is ffmpeg's gblur=sigma=1.5:steps=6, six exponentials that come near a
                Gaussian. All sums are whole numbers, the same on every machine.
                tests/cli/y4m_filter.sh compares all three filters with ffmpeg's.
    Expect      (hostcuda) negate W61 H47 C420jpeg  5 frames, 0 bytes wrong
                negate W33 H18 C444      5 frames, 0 bytes wrong
                gblur  W1 H1 Cmono       5 frames, 0 bytes wrong
                right: the CPU finds the same                                                     */
#include "18_filters.cuh" /* filter_stage, and what it does to a pixel */
#include "18_y4m.h"       /* y4m_read, the source, and y4m_write, the sink */
#include "ex_common.h"

#include <signal.h>

enum {
    LARGEST = 61 * 47 * 2
}; /* bytes of a frame in the check */

/* 0 = all frames went out; 1 = v->problem says why not. The header has been read. */
static int filter_video(video_t *v, const char *name) {
    filter_t f[2];
    spipe_report_t report;
    spipe_desc_t d = spipe_desc_default(); /* no count: until the source ends; for live video, */
    const int num_steps = filter_make(f, name, &v->layout); /* d.chunk = 1: no frame waits */
    spipe_add_source(&d, y4m_read, v, v->layout.at[3], SPIPE_IN_ORDER);
    spipe_add_sink(&d, y4m_write, v, v->layout.at[3], SPIPE_IN_ORDER);
    if (num_steps == 2) spipe_add_temp(&d, v->layout.at[3] * sizeof(unsigned));
    spipe_add_stage(&d, num_steps == 2 ? "down" : name, filter_stage, &f[0]);
    if (num_steps == 2) spipe_add_stage(&d, "across", filter_stage, &f[1]);
    fputs(v->header, v->out);
    const cudaError_t e = spipe_run(&d, &report);
    if (e == cudaSuccess && fflush(v->out) == EOF) v->write_error = errno;
    if (v->write_error) return y4m_refuse(v, "cannot write: ", strerror(v->write_error));
    if (v->problem[0]) return 1; /* from the source: all frames before were written */
    return e == cudaSuccess ? 0 : y4m_refuse(v, "", report.failure.message);
}

/* Five frames of noise through a filter, and each again on the CPU. How many bytes differ. */
static size_t count_wrong(const char *name, const char *sizes) {
    static unsigned char frames[5 * LARGEST], got[LARGEST];
    static unsigned once[LARGEST], x = 1;
    video_t v, back;
    filter_t f[2];
    size_t n, i, wrong = 0;
    memset(&v, 0, sizeof v);
    if (!(v.in = tmpfile()) || !(v.out = tmpfile())) return 1;
    fprintf(v.in, "YUV4MPEG2 %s F25:1\n", sizes);
    rewind(v.in);
    if (y4m_read_header(&v) != 0) return 1;
    const size_t bytes = v.layout.at[3];
    const int num_steps = filter_make(f, name, &v.layout);
    for (i = 0; i < 5 * bytes; ++i) frames[i] = (unsigned char)((x = x * 69069 + 1) >> 24);
    back = v;
    back.out = v.in;
    fseek(v.in, 0, SEEK_CUR); /* from reading to writing */
    const spipe_part_t all = {frames, 0, 5};
    if (y4m_write(&all, &back) != cudaSuccess) return 1;
    fseek(v.in, (long)strlen(v.header), SEEK_SET);
    wrong += filter_video(&v, name) != 0;
    back.in = v.out;
    rewind(v.out);
    wrong += y4m_read_header(&back) != 0 || strcmp(v.header, back.header) != 0;
    for (n = 0; n < 5; ++n) {
        spipe_part_t frame = {got, n, 1};
        wrong += y4m_read(&frame, &back) != cudaSuccess || frame.count != 1;
        for (i = 0; i < bytes; ++i) once[i] = filter_at(f[0], frames + n * bytes, i);
        for (i = 0; i < bytes; ++i)
            wrong += got[i] != (num_steps == 2 ? filter_at(f[1], once, i) : once[i]);
    }
    wrong += getc(v.out) != EOF;
    fclose(v.in);
    fclose(v.out);
    return wrong;
}

int main(int argc, char **argv) {
    static const char *const names[] = {"negate", "sobel", "gblur"};
    static const char *const sizes[] = {"W61 H47 C420jpeg", "W33 H18 C444", "W50 H9 C411",
                                        "W1 H1 Cmono"};
    static video_t v;
    filter_t f[2];
    size_t all = 0;
    if (argc > 1) {
        signal(SIGPIPE, SIG_IGN); /* if the reader is gone, fwrite returns an error */
        v.in = stdin;
        v.out = stdout;
        if (filter_make(f, argv[1], &v.layout) == 0)
            y4m_refuse(&v, "the filters are ", "negate, sobel and gblur");
        else if (y4m_read_header(&v) == 0 && filter_video(&v, argv[1]) == 0)
            return 0;
        fprintf(stderr, "y4m_filter: %s\n", v.problem);
        return 1;
    }
    ex_begin();
    for (int i = 0; i < 12; ++i) {
        const size_t wrong = count_wrong(names[i / 4], sizes[i % 4]);
        printf("%-6s %-16s  5 frames, %zu bytes wrong\n", names[i / 4], sizes[i % 4], wrong);
        all += wrong;
    }
    return ex_verdict(all == 0);
}
