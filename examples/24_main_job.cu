/*  24_main_job.cu -- a file of any size goes through three kernels and becomes a picture.

    nvcc -O3 -I.. -I../extras -o main_job 24_main_job.cu && ./main_job
    main_job FILE map.pgm              without arguments: a sample, which it makes and removes
    You learn   a file is a buffer like any other. All threads read it at once, each at its own
                place, straight into the slots, and the picture is written in the same way. So
                reading, three kernels and writing overlap, and the memory is that of a few chunks.
    Mind        an element is a block of 4096 bytes, and becomes a pixel: black where all bytes are
                the same, white where they are random. Beyond the file's end the last block has
                zeros. The picture has its name when it is complete, and not before.
    Expect      (hostcuda) 4001 blocks in 34 chunks, ~4.9 MiB of device memory, ~2.301 ms
                0 of 4001 pixels are wrong
                right: the CPU finds the same                                                     */
#include "ex_common.h"
#include "streampipe_files.h"
#include "streampipe_kernels.cuh"

#include <string>

enum {
    BLOCK = 4096,
    WIDTH = 64,                 /* pixels of a row */
    SAMPLE = 4000 * BLOCK + 100 /* bytes */
};

/* Files fail for reasons that only a sentence can tell. */
static void or_end(cudaError_t e, const spipe_failure_t *failure) {
    if (e == cudaSuccess) return;
    fprintf(stderr, "%s\n", failure->message);
    exit(1);
}

/* The picture's header, and black to the end of its last row. The pixels come between them. */
static void begin_picture(spipe_file_t *map, size_t blocks) {
    static const char black[WIDTH] = {0};
    const size_t rows = (blocks + WIDTH - 1) / WIDTH;
    char header[64];
    spipe_failure_t failure;
    map->offset = (size_t)snprintf(header, sizeof header, "P5 %d %zu 255\n", WIDTH, rows);
    or_end(spipe_file_write(map, header, map->offset, 0, &failure), &failure);
    or_end(spipe_file_write(map, black, rows * WIDTH - blocks, map->offset + blocks, &failure),
           &failure);
}

static void run(spipe_file_t *in, spipe_file_t *map) {
    static spipe_bytes_t bytes = {0, -1, 1, 2, -1, BLOCK}; /* numbers of the buffers below */
    static spipe_quantise_t grey = {2, 3, 0.0f, 8.0f};     /* 0 to 8 bits a byte: 0 to 255 */
    spipe_report_t report;
    spipe_desc_t d = spipe_desc_default();
    spipe_add_file_input(&d, in, BLOCK);        /* 0: as many as the file has */
    spipe_add_temp(&d, 256 * sizeof(uint32_t)); /* 1: how often each byte value occurs */
    spipe_add_temp(&d, sizeof(float));          /* 2: the entropy */
    spipe_add_file_output(&d, map, 1);          /* 3: the pixel */
    spipe_add_stage(&d, "histogram", spipe_histogram_stage, &bytes);
    spipe_add_stage(&d, "entropy", spipe_entropy_stage, &bytes);
    spipe_add_stage(&d, "quantise", spipe_quantise_stage, &grey);
    or_end(spipe_run(&d, &report), &report.failure);
    printf("%zu blocks in %zu chunks, %.1f MiB of device memory, %.3f ms\n", report.count_done,
           report.num_chunks, (double)report.device_bytes / 1048576.0, report.wall_ms);
}

/* Block after block on the CPU, compared with the picture. */
static int check(const char *from, const char *to, size_t at, size_t blocks) {
    FILE *in = fopen(from, "rb"), *map = fopen(to, "rb");
    size_t wrong = 0, n = 0;
    if (in && map && fseek(map, (long)at, SEEK_SET) == 0) {
        unsigned char block[BLOCK] = {0}, want;
        for (; fread(block, 1, BLOCK, in) > 0; ++n, memset(block, 0, BLOCK)) {
            float entropy;
            spipe_byte_entropy_cpu(&entropy, block, NULL, BLOCK, 1);
            spipe_quantise_cpu(&want, &entropy, 0.0f, 8.0f, 1);
            wrong += abs(getc(map) - want) > 1; /* logarithms differ in the last place */
        }
    }
    if (in) fclose(in);
    if (map) fclose(map);
    printf("%zu of %zu pixels are wrong\n", wrong, n);
    return n == blocks && wrong == 0;
}

/* Blocks of random bytes with 0 to 8 random bits each. */
static int make_sample(const char *path) {
    FILE *f = fopen(path, "wb");
    unsigned random = 1;
    for (size_t i = 0; f && i < SAMPLE; ++i) {
        random = EX_NEXT(random);
        putc((int)(random >> 24) >> i / BLOCK % 9, f);
    }
    return f && fclose(f) == 0;
}

int main(int argc, char **argv) {
    char folder[] = "/tmp/main_job.XXXXXX";
    spipe_file_t in, map;
    spipe_failure_t failure;
    ex_begin();
    if (argc != 3 && argc != 1) fprintf(stderr, "usage: %s [FILE map.pgm]\n", argv[0]);
    if (argc != 3 && (argc != 1 || !mkdtemp(folder))) return 1;
    const std::string sample = std::string(folder) + "/sample", drawn = sample + ".pgm";
    const char *from = argc == 3 ? argv[1] : sample.c_str();
    const char *to = argc == 3 ? argv[2] : drawn.c_str();
    if (argc < 3 && !make_sample(from)) return 1;
    or_end(spipe_file_open(&in, from, &failure), &failure);
    if (!in.regular) fprintf(stderr, "%s has no size; entropy_map reads pipes, too\n", from);
    if (!in.regular) return 1;
    or_end(spipe_file_create(&map, to, &failure), &failure);
    const size_t blocks = (in.bytes + BLOCK - 1) / BLOCK;
    begin_picture(&map, blocks);
    run(&in, &map);
    or_end(spipe_file_commit(&map, SPIPE_AUTO, &failure), &failure);
    const int right = check(from, to, map.offset, blocks);
    spipe_file_close(&map);
    spipe_file_close(&in);
    if (argc < 3) {
        remove(from);
        remove(to);
        rmdir(folder);
    }
    return ex_verdict(right);
}
