/*  entropy_map.cu -- a picture of the entropy of every part of a file.

    nvcc -O3 -I.. -I../extras -o entropy_map entropy_map.cu
    entropy_map FILE [-o map.pgm] [--block BYTES] [--width PIXELS] [--check]      FILE - = stdin

    Each pixel is a block of 4096 bytes. Black: all bytes are equal (0 bits per byte). White: random
    bytes (8 bits), compressed or encrypted. Text, code and tables lie between.

    What it shows: a file of any size goes through three stages and two sinks, in slots of a few
    MiB, so the memory does not grow with the file. All threads read the file at once, each at its
    own place; standard input is read in order.
        blocks -> histogram -> entropy -> quantise -> pixels to the map, entropies to the facts

    --check computes every entropy again on the CPU, and fails if one differs by more than 1e-5; it
    keeps 4 bytes per block. The map gets its name when it is complete; a program that is
    interrupted leaves nothing behind.
 */
#include "streampipe_files.h"
#include "streampipe_kernels.cuh"

#include <math.h>
#include <signal.h>

typedef struct job {
    const char *in_name, *out_name;
    spipe_file_t in, map;
    size_t block, width, lengths_given, num_blocks;
    unsigned long long counts[256];
    double sum;
    float least, most, *kept; /* kept: with --check, else NULL */
    size_t room_kept;
    int check;
} job_t;

enum {
    HEADER = 39 /* bytes of the map's header, whatever its height */
};

static int complain(const char *what, const char *name, const char *why) {
    fprintf(stderr, "entropy_map: %s %s: %s\n", what, name, why);
    return 1;
}

static int complain_in_words(const char *words) {
    fprintf(stderr, "entropy_map: %s\n", words);
    return 1;
}

/* Buffer 1: how many bytes of each block are data: all, except in the last block of a file. */
static cudaError_t lengths_at(spipe_part_t *part, void *user) {
    const job_t *j = (const job_t *)user;
    uint32_t *lengths = (uint32_t *)part->data;
    size_t i;
    for (i = 0; i < part->count; ++i) {
        const size_t left = j->in.bytes - (part->first + i) * j->block;
        lengths[i] = (uint32_t)(left < j->block ? left : j->block);
    }
    return cudaSuccess;
}

/* The same for standard input, which was just read for the same blocks. */
static cudaError_t give_lengths(spipe_part_t *part, void *user) {
    job_t *j = (job_t *)user;
    const size_t there = (j->in.bytes + j->block - 1) / j->block - j->lengths_given;
    if (part->count > there) part->count = there;
    j->lengths_given += part->count;
    return lengths_at(part, user);
}

static cudaError_t take_entropies(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    const float *h = (const float *)src;
    job_t *j = (job_t *)user;
    size_t i;
    for (i = 0; i < count; ++i) {
        j->sum += h[i];
        if (j->num_blocks++ == 0) j->least = j->most = h[i];
        if (h[i] < j->least) j->least = h[i];
        if (h[i] > j->most) j->most = h[i];
    }
    if (!j->check) return cudaSuccess;
    if (first + count > j->room_kept) {
        float *more = (float *)realloc(j->kept, 2 * (first + count) * sizeof *more);
        if (!more) return cudaErrorMemoryAllocation;
        j->kept = more;
        j->room_kept = 2 * (first + count);
    }
    memcpy(j->kept + first, h, count * sizeof *h);
    return cudaSuccess;
}

static int show_progress(const spipe_progress_t *p, void *user) {
    const job_t *j = (const job_t *)user;
    const double mib = (double)p->elements_done * (double)j->block / 1048576.0;
    fprintf(stderr, "\r%10.1f MiB  %8.1f MiB/s ", mib, p->seconds > 0 ? mib / p->seconds : 0.0);
    if (p->total > 0) { /* the file's size is known: a bar */
        char bar[41] = "........................................";
        const size_t done = (size_t)(40.0 * (double)p->elements_done / (double)p->total);
        memset(bar, '#', done < 40 ? done : 40);
        fprintf(stderr, "[%s]", bar);
    }
    return 0;
}

/* Every entropy once more, serially, on the CPU. */
static int check(job_t *j) {
    unsigned char *data = (unsigned char *)malloc(j->block);
    FILE *in = fopen(j->in_name, "rb");
    double worst = 0.0;
    size_t i, n;
    for (i = 0; data && in && (n = fread(data, 1, j->block, in)) > 0; ++i) {
        const uint32_t valid = (uint32_t)n;
        float h = 0.0f;
        memset(data + n, 0, j->block - n);
        spipe_byte_entropy_cpu(&h, data, &valid, j->block, 1);
        if (i < j->num_blocks) worst = fmax(worst, fabs((double)h - j->kept[i]));
    }
    free(data);
    if (in) fclose(in);
    printf("check: %zu of %zu blocks on the CPU, largest difference %.2g bits\n", i, j->num_blocks,
           worst);
    return i == j->num_blocks && worst <= 1e-5
               ? 0
               : complain("check of", j->in_name, "the entropies are not those of the CPU");
}

static void print_facts(const job_t *j, double ms) {
    const double n = (double)j->in.bytes;
    double whole = 0.0, printable = 0.0;
    int v, distinct = 0, top = 0;
    for (v = 0; v < 256; ++v) {
        const double p = n > 0 ? (double)j->counts[v] / n : 0.0;
        if (p > 0) whole -= p * log2(p);
        distinct += j->counts[v] > 0;
        if (j->counts[v] > j->counts[top]) top = v;
        if ((v >= 32 && v < 127) || v == '\n' || v == '\t' || v == '\r') printable += p;
    }
    printf("%s: %zu bytes in %zu blocks of %zu\n", j->in.path, j->in.bytes, j->num_blocks,
           j->block);
    printf("  whole file  %.4f bits a byte, %d byte values, %.1f %% printable, %.1f %% zero\n",
           whole, distinct, 100.0 * printable, n > 0 ? 100.0 * (double)j->counts[0] / n : 0.0);
    if (n > 0) {
        printf("  most often  0x%02X, %.2f %%\n", top, 100.0 * (double)j->counts[top] / n);
        printf("  blocks      %.4f to %.4f bits a byte, mean %.4f\n", j->least, j->most,
               j->sum / (double)j->num_blocks);
    }
    printf("  throughput  %.1f MiB/s\n", ms > 0 ? n / 1048576.0 / (ms * 1e-3) : 0.0);
}

/* On systems without nameless files the unfinished map has a name: remove it. */
static const char *part_name;

static void interrupted(int number) {
    (void)unlink(part_name);
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

static int open_map(job_t *j) {
    static const int signals[] = {SIGHUP, SIGINT, SIGTERM};
    spipe_failure_t failure;
    struct stat in, out;
    if (!j->out_name) return 0;
    if (stat(j->out_name, &out) == 0 && fstat(j->in.fd, &in) == 0 && in.st_dev == out.st_dev &&
        in.st_ino == out.st_ino) {
        return complain("cannot write", j->out_name, "it is the file to be mapped");
    }
    if (spipe_file_create(&j->map, j->out_name, &failure) != cudaSuccess) {
        return complain_in_words(failure.message);
    }
    if (!j->map.regular) {
        return complain("cannot write", j->out_name,
                        "a map's height is known at the end, so it "
                        "needs a file that can seek");
    }
    j->map.offset = HEADER;
    part_name = j->map.part;
    for (int number : signals) { /* an ignored one, as under nohup, stays ignored */
        if (!part_name || j->map.nameless) continue;
        if (signal(number, interrupted) == SIG_IGN) (void)signal(number, SIG_IGN);
    }
    return 0;
}

/* Fills the last row, writes the header, and puts the map in its place. */
static int close_map(job_t *j) {
    const size_t rows = (j->num_blocks + j->width - 1) / j->width, bytes = rows * j->width;
    unsigned char *rest = (unsigned char *)calloc(j->width, 1);
    char header[HEADER + 1];
    spipe_failure_t failure;
    cudaError_t e = rest ? cudaSuccess : cudaErrorMemoryAllocation;
    snprintf(header, sizeof header, "P5\n%-10zu %-20zu\n255\n", j->width, rows);
    memset(&failure, 0, sizeof failure);
    if (e == cudaSuccess) {
        e = spipe_file_write(&j->map, rest, bytes - j->num_blocks, HEADER + j->num_blocks,
                             &failure);
    }
    if (e == cudaSuccess) e = spipe_file_write(&j->map, header, HEADER, 0, &failure);
    if (e == cudaSuccess) e = spipe_file_commit(&j->map, SPIPE_AUTO, &failure);
    free(rest);
    return e == cudaSuccess ? 0 : complain_in_words(failure.message);
}

static cudaError_t drop_pixels(const spipe_part_t *part, void *user) {
    (void)part;
    (void)user;
    return cudaSuccess;
}

static int run(job_t *j) {
    spipe_bytes_t bytes = {0, 1, 2, 3, 4, j->block};
    spipe_quantise_t quantise = {3, 5, 0.0f, 8.0f};
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t report;
    spipe_add_file_input(&d, &j->in, j->block);
    if (j->in.way == SPIPE_FILE_ORDERED)
        spipe_add_source(&d, give_lengths, j, sizeof(uint32_t), SPIPE_IN_ORDER);
    else
        spipe_add_source(&d, lengths_at, j, sizeof(uint32_t), SPIPE_ANY_ORDER);
    spipe_add_temp(&d, 256 * sizeof(uint32_t));
    spipe_add_sink(&d, take_entropies, j, sizeof(float), SPIPE_IN_ORDER);
    spipe_add_resident(&d, j->counts, sizeof j->counts, SPIPE_DOWNLOAD);
    if (j->out_name)
        spipe_add_file_output(&d, &j->map, 1);
    else
        spipe_add_sink(&d, drop_pixels, NULL, 1, SPIPE_ANY_ORDER);
    spipe_add_stage(&d, "histogram", spipe_histogram_stage, &bytes);
    spipe_add_stage(&d, "entropy", spipe_entropy_stage, &bytes);
    spipe_add_stage(&d, "quantise", spipe_quantise_stage, &quantise);
    d.progress = isatty(2) ? show_progress : NULL;
    d.progress_user = j;
    const cudaError_t e = spipe_run(&d, &report);
    if (d.progress) fprintf(stderr, "\n");
    if (e != cudaSuccess) return complain_in_words(report.failure.message);
    if (j->out_name && close_map(j) != 0) return 1;
    print_facts(j, report.wall_ms);
    spipe_report_print(&report, stdout);
    return j->check ? check(j) : 0;
}

static int usage(const char *why) {
    fprintf(stderr,
            "entropy_map: %s\nusage: entropy_map FILE [-o map.pgm] [--block BYTES] "
            "[--width PIXELS] [--check]\n       FILE - is standard input\n",
            why);
    return 2;
}

/* Reads a number from lo to hi; 0 if it is none. */
static size_t number(const char *text, size_t lo, size_t hi) {
    char *end;
    unsigned long long n = strtoull(text, &end, 10);
    return *text == '-' || *end || n < lo || n > hi ? 0 : (size_t)n;
}

static int parse(job_t *j, int argc, char **argv) {
    int i;
    for (i = 1; i < argc; ++i) {
        const char *a = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(a, "--check") == 0) {
            j->check = 1;
        } else if (strcmp(a, "-o") == 0 && *value) {
            j->out_name = argv[++i];
        } else if (strcmp(a, "--block") == 0) {
            j->block = number(argv[i++ + 1 < argc ? i : i - 1], 64, (size_t)1 << 28);
            if (!j->block) return usage("--block wants 64 to 268435456 bytes");
        } else if (strcmp(a, "--width") == 0) {
            j->width = number(argv[i++ + 1 < argc ? i : i - 1], 1, 65536);
            if (!j->width) return usage("--width wants 1 to 65536 pixels");
        } else if ((a[0] == '-' && a[1]) || j->in_name) {
            return usage("it takes one file and the options below");
        } else {
            j->in_name = a;
        }
    }
    if (!j->in_name) j->in_name = "-";
    if (j->check && strcmp(j->in_name, "-") == 0) return usage("--check reads FILE twice");
    return 0;
}

int main(int argc, char **argv) {
    spipe_failure_t failure;
    job_t j;
    memset((void *)&j, 0, sizeof j);
    j.block = 4096;
    if (parse(&j, argc, argv) != 0) return 2;
    if (spipe_file_open(&j.in, j.in_name, &failure) != cudaSuccess) {
        return complain_in_words(failure.message);
    }
    for (size_t w = 16; !j.width; w *= 2) { /* about square, where the size is known */
        if (!j.in.regular)
            j.width = 256;
        else if (w >= 4096 || w * w * j.block >= j.in.bytes)
            j.width = w;
    }
    int result = open_map(&j) == 0 ? run(&j) : 1;
    if (fflush(stdout) != 0) result = complain("cannot write", "standard output", strerror(errno));
    free(j.kept);
    spipe_file_close(&j.map);
    spipe_file_close(&j.in);
    return result;
}
