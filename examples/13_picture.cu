/*  13_picture.cu -- the edges and a blurred copy of a picture of yours, computed in chunks of rows.

    nvcc -O3 -I.. -DUSE_PNG -o 13_picture 13_picture.cu -lpng   (PPM only: no -DUSE_PNG, no -lpng)
    ../hostcuda/hcc -O2 -DUSE_PNG 13_picture.cu -o 13_picture -lpng             (without a GPU)
    ./13_picture in.png edges.png blurred.png      with no argument it paints a picture and checks
    You learn   the element of a picture is a row. A filter reads the rows above and below, and some
                of these are in other chunks: spipe_set_halo has them copied along. The stages of
                two results from one input need not wait for each other.
    Mind        the halo is copied for each chunk, so with small chunks many rows are copied twice.
                Only an input can have a halo: a stage computes its own chunk only. So the blur goes
                down the input's columns first, and along the rows afterwards, without a halo.
    Expect      (hostcuda) a picture of 640 x 480: edges in 168956 bytes, the brightest 255
                0 bytes of the edges differ, 0 of the blur by more than 1
                right: the CPU finds the same                                                     */
#include "13_picture_files.h" /* picture_read, picture_write */
#include "ex_common.h"
#include "streampipe_kernels.cuh"

enum {
    IN,
    EDGES,
    MIDDLE,
    BLURRED
}; /* the buffers; an element is a row */

static const int RADIUS = 6;

static void *need(size_t bytes) {
    void *p = calloc(bytes, 1);
    if (!p) exit(1);
    return p;
}

/* Both filters over all rows of a picture. */
static void filter(const picture_t *in, unsigned char *edges, unsigned char *blurred,
                   const spipe_sobel_t *sobel, const spipe_blur_t *blur) {
    spipe_report_t report;
    spipe_desc_t d = spipe_desc_default();
    d.count = in->rows;
    d.chunk = in->rows < 64 ? in->rows : 64; /* left out, the library chooses */
    spipe_add_input(&d, in->pixels, in->width);
    spipe_set_halo(&d, IN, RADIUS, RADIUS, SPIPE_EDGE_CLAMP); /* beyond the picture: its border */
    spipe_add_output(&d, edges, in->width);
    spipe_add_temp(&d, in->width * sizeof(float));
    spipe_add_output(&d, blurred, in->width);
    spipe_add_stage(&d, "sobel", spipe_sobel_stage, (void *)sobel);
    const int down = spipe_add_stage(&d, "down", spipe_blur_down_stage, (void *)blur);
    spipe_stage_after(&d, down, NULL); /* waits for the copy in only, not for sobel */
    spipe_add_stage(&d, "across", spipe_blur_across_stage, (void *)blur);
    SPIPE_CHECK_RUN(&d, &report);
}

/* The same by one CPU thread; prints how many bytes differ. */
static int compare(const picture_t *in, const unsigned char *edges, const unsigned char *blurred,
                   const spipe_sobel_t *sobel, const spipe_blur_t *blur) {
    const size_t n = in->width * in->rows;
    size_t wrong_edges = 0, wrong_blur = 0;
    unsigned char *want = (unsigned char *)need(n);
    float *middle = (float *)need(n * sizeof *middle);
    spipe_sobel_cpu(want, in->pixels, sobel->width, in->rows);
    for (size_t i = 0; i < n; ++i) wrong_edges += edges[i] != want[i];
    spipe_blur_down_cpu(middle, in->pixels, blur, in->rows);
    spipe_blur_across_cpu(want, middle, blur, in->rows);
    for (size_t i = 0; i < n; ++i) wrong_blur += abs(blurred[i] - want[i]) > 1;
    printf("%zu bytes of the edges differ, %zu of the blur by more than 1\n", wrong_edges,
           wrong_blur);
    free(middle);
    free(want);
    return wrong_edges + wrong_blur == 0;
}

/* Rings, a disc and a grid: edges in all directions. */
static int paint(picture_t *p) {
    p->width = 640;
    p->rows = 480;
    p->pixels = (unsigned char *)malloc(p->width * p->rows);
    for (int i = 0; p->pixels && i < 640 * 480; ++i) {
        const int x = i % 640, y = i / 640, u = x - 200, v = y - 240, far = u * u + v * v;
        int grey = far / 640 % 2 ? 200 : 90;
        if (x > 400) grey = x / 40 % 2 == y / 40 % 2 ? 230 : 40;
        if ((x - 480) * (x - 480) + (y - 300) * (y - 300) < 6400) grey = 128;
        p->pixels[i] = (unsigned char)grey;
    }
    return p->pixels != NULL;
}

int main(int argc, char **argv) {
    picture_t in, edges, blurred;
    size_t lit = 0;
    int brightest = 0;
    ex_begin();
    if (argc == 2 || argc > 4) {
        fprintf(stderr, "usage: %s [in edges [blurred]], files of " PICTURE_KINDS "\n", argv[0]);
        return 1;
    }
    if (argc > 1 ? !picture_read(&in, argv[1]) : !paint(&in)) return 1;
    edges = blurred = in; /* same size and format */
    edges.pixels = (unsigned char *)need(in.width * in.rows);
    blurred.pixels = (unsigned char *)need(in.width * in.rows);
    const spipe_sobel_t sobel = {IN, EDGES, in.width};
    const spipe_blur_t blur = {IN, MIDDLE, BLURRED, in.width, RADIUS, 2.5f};
    filter(&in, edges.pixels, blurred.pixels, &sobel, &blur);
    for (size_t i = 0; i < in.width * in.rows; ++i) {
        lit += edges.pixels[i] != 0;
        if (edges.pixels[i] > brightest) brightest = edges.pixels[i];
    }
    printf("a picture of %zu x %zu: edges in %zu bytes, the brightest %d\n", in.width, in.rows, lit,
           brightest);
    const int right = compare(&in, edges.pixels, blurred.pixels, &sobel, &blur);
    if (argc > 2 && !picture_write(&edges, argv[2])) return 1;
    if (argc > 3 && !picture_write(&blurred, argv[3])) return 1;
    free(blurred.pixels);
    free(edges.pixels);
    free(in.pixels);
    return ex_verdict(right);
}
