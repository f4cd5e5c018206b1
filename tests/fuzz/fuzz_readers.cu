/*  fuzz_readers.cu -- any bytes as what the examples read: a Y4M stream for 18_y4m_filter.cu, a
    file for entropy_map.cu. Both are included as they are; what they make of the bytes is held
    against a reading of them that knows nothing of files, chunks or pipelines. */
#include "hostcuda.h" /* all that the two include, before it would be in their namespaces */
#include "streampipe_files.h"
#include "streampipe_kernels.cuh"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#define main y4m_main

namespace y4m {
#include "../../examples/18_y4m_filter.cu"
}

#undef main
#define main entropy_main

namespace entropy {
#include "../../examples/entropy_map.cu"
}

#undef main

#define READERS_CHECK(cond, ...)                                                                   \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "fuzz: %s:%d: %s\n  ", __FILE__, __LINE__, #cond);                     \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fprintf(stderr, "\n");                                                                 \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

typedef std::vector<unsigned char> bytes_t;

static FILE *open_bytes(const bytes_t &b) {
    FILE *f = b.empty() ? fopen("/dev/null", "rb") : fmemopen((void *)b.data(), b.size(), "rb");
    if (!f) exit(99);
    return f;
}

/* ---- Y4M ----------------------------------------------------------------------------------- */
/* The frames that a stream holds up to the first that is not whole, each at its place. */
static std::vector<size_t> frames_of(const bytes_t &b, size_t at, size_t frame_bytes) {
    std::vector<size_t> frames;
    while (at < b.size()) {
        size_t end = at;
        while (end < b.size() && b[end] != '\n' && b[end] != 0) ++end;
        /* a line has 511 characters at most, its end among them, and begins with FRAME */
        if (end == b.size() || b[end] != '\n' || end - at > 510 || end - at < 5) break;
        if (memcmp(&b[at], "FRAME", 5) != 0 || b.size() - end - 1 < frame_bytes) break;
        frames.push_back(end + 1);
        at = end + 1 + frame_bytes;
    }
    return frames;
}

static void check_video(const bytes_t &b, const y4m::video_t &v, const char *name, const char *out,
                        size_t out_bytes) {
    const size_t header = strlen(v.header), frame = v.layout.at[3];
    const std::vector<size_t> frames = frames_of(b, header, frame);
    y4m::filter_t f[2];
    const int steps = y4m::filter_make(f, name, &v.layout);
    std::vector<unsigned> once(frame);
    size_t n, i;
    READERS_CHECK(out_bytes == header + frames.size() * (frame + 6) && v.num_read == frames.size(),
                  "%zu bytes of %zu frames, not %zu frames of %zu", out_bytes, v.num_read,
                  frames.size(), frame);
    for (n = 0; n < frames.size(); ++n) {
        const unsigned char *is = (const unsigned char *)out + header + n * (frame + 6) + 6;
        for (i = 0; i < frame; ++i) once[i] = y4m::filter_at(f[0], &b[frames[n]], i);
        for (i = 0; i < frame; ++i) {
            const unsigned want = steps == 2 ? y4m::filter_at(f[1], once.data(), i) : once[i];
            READERS_CHECK(is[i] == want, "byte %zu of frame %zu is %d, not %u", i, n, is[i], want);
        }
    }
}

/* The source alone, asked for a frame at a time as the library does. */
static void check_frames(const bytes_t &b, y4m::video_t *v) {
    const size_t frame = v->layout.at[3];
    const std::vector<size_t> frames = frames_of(b, strlen(v->header), frame);
    bytes_t got(frame);
    size_t n, count = 1;
    for (n = 0; count == 1; ++n) {
        spipe_part_t part = {got.data(), n, 3};
        READERS_CHECK(y4m::y4m_read(&part, v) == cudaSuccess, "reading failed");
        count = part.count;
        READERS_CHECK(count == (n < frames.size() ? 1 : 0), "%zu at frame %zu of %zu", count, n,
                      frames.size());
        READERS_CHECK(count == 0 || memcmp(got.data(), &b[frames[n]], frame) == 0, "frame %zu", n);
    }
    READERS_CHECK(v->num_read == frames.size(), "%zu frames", v->num_read);
}

/* A stream that may well be one: its header and most beginnings of frames are right. */
static bytes_t likely_video(const bytes_t &b, unsigned choice) {
    static const char *const formats[] = {"420jpeg", "422", "444", "411", "mono", "420", "410", ""};
    char header[64];
    const unsigned width = 1 + choice % 9, height = 1 + choice / 9 % 5;
    bytes_t all;
    size_t at = 1, n;
    const int length = snprintf(header, sizeof header, "YUV4MPEG2 W%u H%u C%s\n", width, height,
                                formats[b.empty() ? 0 : b[0] % 8]);
    all.assign(header, header + length);
    for (; at < b.size(); at += n) {
        const char *begin = b[at] % 16 == 15 ? "FRAMES\n" : "FRAME\n";
        n = 1 + b[at] % (3 * width * height);
        if (n > b.size() - at) n = b.size() - at;
        all.insert(all.end(), begin, begin + strlen(begin));
        all.insert(all.end(), &b[at], &b[at] + n);
    }
    return all;
}

static void fuzz_y4m(const bytes_t &b, unsigned choice, int whole) {
    static const char *const names[] = {"negate", "sobel", "gblur"};
    y4m::video_t *v = new y4m::video_t();
    char *out = NULL;
    size_t out_bytes = 0;
    const char *name = names[choice % 3];
    v->in = open_bytes(b);
    if (y4m::y4m_read_header(v) != 0) {
        READERS_CHECK(v->problem[0], "a header is refused without a word");
    } else if (!whole && v->layout.at[3] <= 1000000) {
        check_frames(b, v);
    } else if (v->layout.at[3] <= 4096) {
        v->out = open_memstream(&out, &out_bytes);
        (void)y4m::filter_video(v, name);
        fclose(v->out);
        READERS_CHECK(!v->write_error, "writing failed");
        check_video(b, *v, name, out, out_bytes);
        free(out);
    }
    fclose(v->in);
    delete v;
}

/* ---- the file reader of entropy_map -------------------------------------------------------- */
/* The bytes as a file, whose name is that of its descriptor. */
typedef struct reading {
    entropy::job_t j;
    char name[32];
    int fd;
} reading_t;

static void start_reading(reading_t *r, const bytes_t &b, size_t block) {
    memset((void *)r, 0, sizeof *r);
    r->fd = memfd_create("input", 0);
    if (r->fd < 0 || write(r->fd, b.data(), b.size()) != (ssize_t)b.size()) exit(99);
    snprintf(r->name, sizeof r->name, "/proc/self/fd/%d", r->fd);
    r->j.in_name = r->name;
    r->j.block = block;
    r->j.width = 16;
    SPIPE_CHECK(spipe_file_open(&r->j.in, r->name, NULL));
}

static void end_reading(reading_t *r) {
    spipe_file_close(&r->j.in);
    close(r->fd);
    free(r->j.kept);
}

/* What was read for n blocks from number first on. */
static void check_blocks(const bytes_t &b, const bytes_t &data,
                         const std::vector<uint32_t> &lengths, size_t block, size_t first,
                         size_t n) {
    for (size_t i = 0; i < n; ++i) {
        const size_t at = (first + i) * block, left = b.size() - at;
        const size_t want = left < block ? left : block;
        READERS_CHECK(at < b.size() && lengths[i] == want, "a length is %u, not %zu", lengths[i],
                      want);
        for (size_t k = 0; k < block; ++k) {
            READERS_CHECK(data[i * block + k] == (k < want ? b[at + k] : 0),
                          "byte %zu of the block at %zu", k, at);
        }
    }
}

/* Asked as a pipeline asks: blocks, then as many lengths, so many at a time; in order, or each part
   by itself, from the last one on. */
static void fuzz_blocks(const bytes_t &b, size_t block, size_t at_once, spipe_file_way_t way) {
    const size_t num = (b.size() + block - 1) / block;
    spipe_desc_t d = spipe_desc_default();
    bytes_t data(at_once * block, 0xEE);
    std::vector<uint32_t> lengths(at_once);
    size_t n = 1, m = 0, first;
    reading_t r;
    start_reading(&r, b, block);
    r.j.in.way = way;
    spipe_add_file_input(&d, &r.j.in, block);
    READERS_CHECK(d.buffers[0].on_run(&d, 0, SPIPE_PRIV_BEGINS, cudaSuccess, NULL) == cudaSuccess,
                  "no run may begin");
    if (r.j.in.way_used == SPIPE_FILE_ORDERED) {
        for (first = 0; n > 0; first += n) {
            spipe_part_t blocks = {data.data(), first, at_once};
            spipe_part_t their = {lengths.data(), first, at_once};
            READERS_CHECK(d.buffers[0].source(&blocks, d.buffers[0].user) == cudaSuccess &&
                              entropy::give_lengths(&their, &r.j) == cudaSuccess,
                          "reading failed");
            n = blocks.count;
            m = their.count;
            READERS_CHECK(n == m && n <= at_once, "%zu blocks, %zu lengths", n, m);
            check_blocks(b, data, lengths, block, first, n);
        }
        READERS_CHECK(first == num, "%zu of %zu blocks", first, num);
    } else {
        READERS_CHECK(r.j.in.count == num, "%zu of %zu blocks", r.j.in.count, num);
        for (first = num; first > 0; first -= n) {
            n = first < at_once ? first : at_once;
            spipe_part_t blocks = {data.data(), first - n, n};
            spipe_part_t their = {lengths.data(), first - n, n};
            READERS_CHECK(d.buffers[0].source(&blocks, d.buffers[0].user) == cudaSuccess &&
                              entropy::lengths_at(&their, &r.j) == cudaSuccess,
                          "reading failed");
            check_blocks(b, data, lengths, block, first - n, n);
        }
    }
    READERS_CHECK(r.j.in.bytes == b.size(), "%zu of %zu bytes", r.j.in.bytes, b.size());
    end_reading(&r);
}

/* The whole program but for its command line, checked by itself as well (--check). */
static void fuzz_map(const bytes_t &b, size_t block) {
    static FILE *nowhere = fopen("/dev/null", "w");
    FILE *before = stdout;
    unsigned long long counts[256] = {0};
    reading_t r;
    start_reading(&r, b, block);
    r.j.check = 1;
    stdout = nowhere; /* what it tells is not looked at */
    const int status = entropy::run(&r.j);
    stdout = before;
    for (unsigned char byte : b) ++counts[byte];
    READERS_CHECK(status == 0, "status %d", status);
    READERS_CHECK(memcmp(counts, r.j.counts, sizeof counts) == 0, "the histogram differs");
    READERS_CHECK(r.j.num_blocks == (b.size() + block - 1) / block, "%zu blocks", r.j.num_blocks);
    end_reading(&r);
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    if (size < 2) return 0;
    const bytes_t b(data + 2, data + size);
    const unsigned choice = data[1];
    /* the whole programs are rare: their slots take 100 ms to make */
    if (data[0] == 255)
        fuzz_y4m(b, choice, 1);
    else if (data[0] == 254 && !b.empty())
        fuzz_map(b, 64 + choice); /* of nothing: no check */
    else if (data[0] % 4 == 0)
        fuzz_blocks(b, 64 + choice % 64, 1 + choice / 64,
                    data[0] % 8 ? SPIPE_FILE_AUTO : SPIPE_FILE_ORDERED);
    else if (data[0] % 4 == 1)
        fuzz_y4m(b, choice, 0);
    else
        fuzz_y4m(likely_video(b, choice), choice, 0);
    return 0;
}
