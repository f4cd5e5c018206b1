/*  18_y4m.h -- video in Y4M (YUV4MPEG2), 8 bits, for 18_y4m_filter.cu: its header, a source that
    reads frames and a sink that writes them. What goes wrong ends as a sentence in `problem`.

    A frame is its planes one after the other, luma first. Rows have no padding; chroma of an odd
    size is rounded up. Parameters of single frames are not kept.                                */
#ifndef EX_14_Y4M_H
#define EX_14_Y4M_H

#include "streampipe.h"

#include <errno.h>

typedef struct layout {
    size_t at[4], width[3]; /* plane k is bytes at[k] .. at[k + 1]; rows of width[k]; at[3] = all */
} layout_t;

typedef struct video {
    FILE *in, *out;
    char header[512]; /* the first line, written unchanged */
    layout_t layout;
    size_t num_read;
    char problem[512]; /* found in the header or by the source; empty = none */
    int write_error;   /* errno of the sink, which runs on another thread than the source */
} video_t;

/* The stream's own words may be in the sentence, so only what a terminal shows is let through. */
static int y4m_refuse(video_t *v, const char *what, const char *why) {
    snprintf(v->problem, sizeof v->problem, "%s%s", what, why);
    for (char *c = v->problem; *c; ++c)
        if (*c < ' ' || *c > '~') *c = '?';
    return 1;
}

/* 0 = it can be filtered; 1 = v->problem says why not. */
static int y4m_read_header(video_t *v) {
    static const struct {
        const char *name;
        size_t across, down; /* luma samples per chroma sample */
    } formats[] = {{"420jpeg", 2, 2}, {"420mpeg2", 2, 2}, {"420paldv", 2, 2}, {"420", 2, 2},
                   {"422", 2, 1},     {"444", 1, 1},      {"411", 4, 1},      {"mono", 0, 0}};

    char format[32] = "420";
    size_t width = 0, height = 0, k = 0;
    char *word;
    if (!fgets(v->header, sizeof v->header, v->in) || strncmp(v->header, "YUV4MPEG2 ", 10) != 0)
        return y4m_refuse(v, "this is no Y4M stream: ", "it does not begin with YUV4MPEG2");
    if (!strchr(v->header, '\n')) return y4m_refuse(v, "the header ", "does not end");
    for (word = strchr(v->header, ' '); word; word = strchr(word + 1, ' ')) {
        if (word[1] == 'W') width = strtoul(word + 2, NULL, 10);
        if (word[1] == 'H') height = strtoul(word + 2, NULL, 10);
        if (word[1] == 'C') sscanf(word + 2, "%31s", format);
    }
    if (width < 1 || height < 1 || width > 65535 || height > 65535)
        return y4m_refuse(v, "the header ", "gives no width and height of 1 to 65535");
    while (k < sizeof formats / sizeof *formats && strcmp(format, formats[k].name) != 0) ++k;
    if (k == sizeof formats / sizeof *formats)
        return y4m_refuse(v, "the format is none of 420, 422, 444, 411 and mono, 8 bits: ", format);
    const size_t across = formats[k].across, down = formats[k].down;
    v->layout.width[0] = width;
    v->layout.width[1] = v->layout.width[2] = across ? (width + across - 1) / across : 1;
    v->layout.at[1] = width * height;
    for (k = 2; k < 4; ++k)
        v->layout.at[k] =
            v->layout.at[k - 1] + (across ? v->layout.width[1] * ((height + down - 1) / down) : 0);
    return 0;
}

/* The source: one frame a call, and the library asks until a chunk is full. A frame that is cut
   short ends the stream as well, so those before it still come out. */
static cudaError_t y4m_read(spipe_part_t *part, void *user) {
    video_t *v = (video_t *)user;
    const char *why = "the stream ends inside it";
    char line[512] = "";
    part->count = 0;
    if (!fgets(line, sizeof line, v->in) && feof(v->in)) return cudaSuccess;
    part->count = strncmp(line, "FRAME", 5) == 0 && strchr(line, '\n') &&
                  fread(part->data, 1, v->layout.at[3], v->in) == v->layout.at[3];
    if (part->count == 1) {
        ++v->num_read;
        return cudaSuccess;
    }
    if (line[0] != 'F' || (strncmp(line, "FRAME", 5) != 0 && !feof(v->in)))
        why = "it does not begin with FRAME";
    if (ferror(v->in)) why = strerror(errno);
    snprintf(v->problem, sizeof v->problem, "frame %zu: %s", v->num_read, why);
    return cudaSuccess;
}

/* The sink. A reader that has gone away is an error here like any other (SIGPIPE is ignored). */
static cudaError_t y4m_write(const spipe_part_t *part, void *user) {
    video_t *v = (video_t *)user;
    for (size_t i = 0; i < part->count; ++i) {
        const char *frame = (const char *)part->data + i * v->layout.at[3];
        if (fputs("FRAME\n", v->out) == EOF ||
            fwrite(frame, 1, v->layout.at[3], v->out) != v->layout.at[3]) {
            v->write_error = errno;
            return cudaErrorOperatingSystem;
        }
    }
    return cudaSuccess;
}

#endif
