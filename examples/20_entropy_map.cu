/*  20_entropy_map.cu -- a picture of the entropy of every part of a file.

    nvcc -O3 -I.. -o entropy_map 20_entropy_map.cu
    entropy_map FILE [-o map.pgm] [--block BYTES] [--width PIXELS] [--check]      FILE - = stdin

    Each pixel is a block of 4096 bytes. Black: all bytes are equal (0 bits per byte). White: random
    bytes (8 bits), compressed or encrypted. Text, code and tables lie between.

    What it shows: a file of any size goes through a source, three stages and two sinks, in slots of
    a few MiB, so the memory used does not grow with the file.
        blocks -> histogram -> entropy -> quantise -> pixels to the map, entropies to the facts

    --check computes every entropy again on the CPU, and fails if one differs by more than 1e-5; it
    keeps 4 bytes per block. The map is written under a temporary name and renamed when complete; a
    program that is interrupted leaves nothing behind.
 */
#include "streampipe.h"
#include "streampipe_kernels.cuh"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct job {
    const char *in_name, *out_name;
    FILE *in, *out;
    size_t block, width, bytes_read, lengths_given, num_blocks;
    unsigned long long counts[256];
    double sum;
    float least, most, *kept; /* kept: only with --check */
    size_t room_kept;
    int error, check; /* error: errno of the first file that failed */
} job_t;

static char part_name[4096]; /* the map's, until it is complete */

static int complain(const char *what, const char *name, const char *why) {
    fprintf(stderr, "entropy_map: %s %s: %s\n", what, name, why);
    return 1;
}

static cudaError_t io_failed(job_t *j) {
    if (!j->error) j->error = errno ? errno : EIO;
    return cudaErrorOperatingSystem;
}

/* Buffer 0: blocks; the last one is filled up with zeros that do not count. */
static cudaError_t read_blocks(void *dst, size_t max_count, size_t *count, void *user) {
    job_t *j = (job_t *)user;
    const size_t n = fread(dst, 1, max_count * j->block, j->in);
    if (ferror(j->in)) return io_failed(j);
    *count = (n + j->block - 1) / j->block;
    memset((char *)dst + n, 0, *count * j->block - n);
    j->bytes_read += n;
    return cudaSuccess;
}

/* Buffer 1: how many bytes of each block count. Asked after buffer 0, for the same blocks. */
static cudaError_t give_lengths(void *dst, size_t max_count, size_t *count, void *user) {
    job_t *j = (job_t *)user;
    size_t i;
    for (i = 0; i < max_count && j->lengths_given * j->block < j->bytes_read; ++i) {
        const size_t left = j->bytes_read - j->lengths_given++ * j->block;
        ((uint32_t *)dst)[i] = (uint32_t)(left < j->block ? left : j->block);
    }
    *count = i;
    return cudaSuccess;
}

static cudaError_t take_pixels(const void *src, size_t count, size_t first, void *user) {
    job_t *j = (job_t *)user;
    (void)first;
    if (j->out && fwrite(src, 1, count, j->out) != count) return io_failed(j);
    return cudaSuccess;
}

static cudaError_t take_entropies(const void *src, size_t count, size_t first, void *user) {
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
    if (j->room_kept > 0 && !j->kept) { /* the file's size is known: a bar */
        char bar[41] = "........................................";
        size_t done = (size_t)(40.0 * mib * 1048576.0 / (double)j->room_kept);
        memset(bar, '#', done < 40 ? done : 40);
        fprintf(stderr, "[%s]", bar);
    }
    return 0;
}

/* Every entropy once more, serially, on the CPU. */
static int check(job_t *j) {
    unsigned char *data = (unsigned char *)malloc(j->block);
    double worst = 0.0;
    size_t i, n;
    rewind(j->in);
    for (i = 0; data && (n = fread(data, 1, j->block, j->in)) > 0; ++i) {
        const uint32_t valid = (uint32_t)n;
        float h = 0.0f;
        memset(data + n, 0, j->block - n);
        spipe_byte_entropy_cpu(&h, data, &valid, j->block, 1);
        if (i < j->num_blocks) worst = fmax(worst, fabs((double)h - j->kept[i]));
    }
    free(data);
    printf("check: %zu of %zu blocks on the CPU, largest difference %.2g bits\n", i, j->num_blocks,
           worst);
    return i == j->num_blocks && worst <= 1e-5
               ? 0
               : complain("check of", j->in_name, "the entropies are not those of the CPU");
}

static void print_facts(const job_t *j, double ms) {
    const double n = (double)j->bytes_read;
    double whole = 0.0, printable = 0.0;
    int v, distinct = 0, top = 0;
    for (v = 0; v < 256; ++v) {
        const double p = n > 0 ? (double)j->counts[v] / n : 0.0;
        if (p > 0) whole -= p * log2(p);
        distinct += j->counts[v] > 0;
        if (j->counts[v] > j->counts[top]) top = v;
        if ((v >= 32 && v < 127) || v == '\n' || v == '\t' || v == '\r') printable += p;
    }
    printf("%s: %zu bytes in %zu blocks of %zu\n", j->in_name, j->bytes_read, j->num_blocks,
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

/* The unfinished map goes, and the program ends as it would have without this. */
static void interrupted(int number) {
    (void)unlink(part_name);
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* Opens the map: beside its place if that is (or will be) a plain file, so that it appears whole.
   There it is a new file (x), not what somebody has put there. */
static int open_map(job_t *j) {
    static const int signals[] = {SIGHUP, SIGINT, SIGTERM};
    struct stat in, out;
    const int there = stat(j->out_name, &out) == 0, plain = !there || S_ISREG(out.st_mode);
    const int known = there && plain && fstat(fileno(j->in), &in) == 0;
    if (known && in.st_dev == out.st_dev && in.st_ino == out.st_ino) {
        return complain("cannot write", j->out_name, "it is the file to be mapped");
    }
    snprintf(part_name, sizeof part_name, "%s", j->out_name);
    if (plain) snprintf(part_name, sizeof part_name, "%s.%d.part", j->out_name, (int)getpid());
    for (int number : signals) { /* one that is ignored, as under nohup, stays so */
        if (plain && signal(number, interrupted) == SIG_IGN) (void)signal(number, SIG_IGN);
    }
    j->out = fopen(part_name, plain ? "wbx" : "wb");
    if (!j->out) return complain("cannot write", part_name, strerror(errno));
    /* the height is known at the end: leave room for it */
    if (fprintf(j->out, "P5\n%-10zu %-20d\n255\n", j->width, 0) < 0) return 1;
    return 0;
}

/* Fills the last row, writes the height, and puts the map in its place; or removes what there is.
 */
static int close_map(job_t *j, int good) {
    const size_t rows = (j->num_blocks + j->width - 1) / j->width;
    size_t i;
    if (!j->out) return 0;
    for (i = j->num_blocks; i < rows * j->width && good; ++i) good = fputc(0, j->out) == 0;
    good = good && fseek(j->out, 0, SEEK_SET) == 0;
    good = good && fprintf(j->out, "P5\n%-10zu %-20zu\n255\n", j->width, rows) > 0;
    if (!good && !j->error) j->error = errno;
    if (fclose(j->out) != 0) {
        good = 0;
        if (!j->error) j->error = errno;
    }
    if (strcmp(part_name, j->out_name) == 0) return good ? 0 : 1;
    if (good && rename(part_name, j->out_name) == 0) return 0;
    (void)remove(part_name);
    return 1;
}

static int run(job_t *j) {
    spipe_bytes_t bytes = {0, 1, 2, 3, 4, j->block};
    spipe_quantise_t quantise = {3, 5, 0.0f, 8.0f};
    spipe_desc_t d = spipe_desc_default();
    spipe_report_t report;
    spipe_add_source(&d, read_blocks, j, j->block);
    spipe_add_source(&d, give_lengths, j, sizeof(uint32_t));
    spipe_add_temp(&d, 256 * sizeof(uint32_t));
    spipe_add_sink(&d, take_entropies, j, sizeof(float));
    spipe_add_resident(&d, j->counts, sizeof j->counts, SPIPE_DOWNLOAD);
    spipe_add_sink(&d, take_pixels, j, 1);
    spipe_add_stage(&d, "histogram", spipe_histogram_stage, &bytes);
    spipe_add_stage(&d, "entropy", spipe_entropy_stage, &bytes);
    spipe_add_stage(&d, "quantise", spipe_quantise_stage, &quantise);
    d.progress = isatty(2) ? show_progress : NULL;
    d.progress_user = j;
    const cudaError_t e = spipe_run(&d, &report);
    if (d.progress) fprintf(stderr, "\n");
    if (close_map(j, e == cudaSuccess) != 0 && e == cudaSuccess) {
        return complain("cannot write", j->out_name, strerror(j->error));
    }
    if (e != cudaSuccess) {
        if (!j->error) return complain("cannot map", j->in_name, report.failure.message);
        return complain(ferror(j->in) ? "cannot read" : "cannot write",
                        ferror(j->in) ? j->in_name : j->out_name, strerror(j->error));
    }
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

/* A number of at least lo and at most hi, or 0. */
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
    struct stat st;
    job_t j;
    memset(&j, 0, sizeof j);
    j.block = 4096;
    if (parse(&j, argc, argv) != 0) return 2;
    const int from_stdin = strcmp(j.in_name, "-") == 0;
    j.in = from_stdin ? stdin : fopen(j.in_name, "rb");
    if (from_stdin) j.in_name = "standard input";
    if (!j.in) return complain("cannot read", j.in_name, strerror(errno));
    int result = 1;
    if (fstat(fileno(j.in), &st) == 0 && S_ISDIR(st.st_mode)) {
        (void)complain("cannot read", j.in_name, "it is a directory");
    } else {
        const int regular = S_ISREG(st.st_mode);
        if (regular && !j.check) j.room_kept = (size_t)st.st_size; /* for the bar */
        for (size_t w = 16; !j.width; w *= 2) { /* about square, where the size is known */
            if (!regular)
                j.width = 256;
            else if (w >= 4096 || w * w * j.block >= (size_t)st.st_size)
                j.width = w;
        }
        if (!j.out_name || open_map(&j) == 0) result = run(&j);
    }
    free(j.kept);
    if (!from_stdin) fclose(j.in);
    return result;
}
