/*  13_picture_files.h -- grey pictures from files and to files, for 13_picture.cu: PNG where libpng
    is linked (-DUSE_PNG ... -lpng), PPM and PGM always.                                          */
#ifndef PICTURE_FILES_H
#define PICTURE_FILES_H

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef USE_PNG
#include <png.h>
#define PICTURE_KINDS "PNG, PPM (P6) or PGM (P5) of 8 bits"
#else
#define PICTURE_KINDS "PPM (P6) or PGM (P5) of 8 bits; build with -DUSE_PNG and -lpng for PNG"
#endif

typedef struct picture {
    size_t width, rows;
    unsigned char *pixels; /* width x rows, from malloc */
} picture_t;

#ifdef USE_PNG
static inline int picture_read_png(picture_t *p, const char *path) {
    png_image image;
    memset(&image, 0, sizeof image);
    image.version = PNG_IMAGE_VERSION;
    if (!png_image_begin_read_from_file(&image, path)) return 0;
    image.format = PNG_FORMAT_GRAY; /* libpng turns colours into grey */
    p->width = image.width;
    p->rows = image.height;
    p->pixels = (unsigned char *)malloc(PNG_IMAGE_SIZE(image));
    if (p->pixels && png_image_finish_read(&image, NULL, p->pixels, 0, NULL)) return 1;
    png_image_free(&image);
    return 0;
}

static inline int picture_write_png(const picture_t *p, const char *path) {
    png_image image;
    memset(&image, 0, sizeof image);
    image.version = PNG_IMAGE_VERSION;
    image.width = (png_uint_32)p->width;
    image.height = (png_uint_32)p->rows;
    image.format = PNG_FORMAT_GRAY;
    return png_image_write_to_file(&image, path, 0, p->pixels, 0, NULL);
}
#endif

/* The next number of a PPM's or PGM's header, behind spaces and comments; 0 if there is none. */
static inline size_t picture_number(FILE *f) {
    unsigned n;
    char comment[2];
    while (fscanf(f, " %1[#]", comment) == 1) {
        if (fscanf(f, "%*[^\n]") == EOF) return 0;
    }
    return fscanf(f, "%u", &n) == 1 ? n : 0;
}

/* P6 is RGB, P5 grey, of 8 bits each. */
static inline int picture_read_ppm(picture_t *p, FILE *f) {
    const int colours = fgetc(f) == 'P' ? fgetc(f) : EOF;
    const size_t bytes = colours == '6' ? 3 : 1;
    if (colours != '5' && colours != '6') return 0;
    p->width = picture_number(f);
    p->rows = picture_number(f);
    if (picture_number(f) != 255 || isspace(fgetc(f)) == 0) return 0;
    if (p->width == 0 || p->rows == 0 || p->width > 1u << 20 || p->rows > 1u << 20) return 0;
    const size_t n = p->width * p->rows;
    p->pixels = (unsigned char *)malloc(n * bytes);
    if (!p->pixels || fread(p->pixels, bytes, n, f) != n) return 0;
    for (size_t i = 0; i < n && bytes == 3; ++i) { /* grey as PNG's viewers have it: Rec. 709 */
        const unsigned char *c = p->pixels + 3 * i;
        p->pixels[i] = (unsigned char)((54 * c[0] + 183 * c[1] + 19 * c[2] + 128) / 256);
    }
    return 1;
}

static inline int picture_is_png(const char *path) {
    const size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".png") == 0;
}

/* Returns 1 with the picture in p->pixels, to be freed; or 0, after saying why on stderr. */
static inline int picture_read(picture_t *p, const char *path) {
    int read = 0;
    p->pixels = NULL;
    FILE *f = fopen(path, "rb");
#ifdef USE_PNG
    if (f && picture_is_png(path)) read = picture_read_png(p, path);
#endif
    if (f && !read && !picture_is_png(path)) read = picture_read_ppm(p, f);
    if (f) fclose(f);
    if (read) return 1;
    free(p->pixels);
    p->pixels = NULL;
    fprintf(stderr, "%s: %s\n", path,
            f ? "it is no picture that this program reads: " PICTURE_KINDS : strerror(errno));
    return 0;
}

/* 1 = written; 0 = a sentence on stderr says why not. */
static inline int picture_write(const picture_t *p, const char *path) {
    int written = 0;
#ifdef USE_PNG
    if (picture_is_png(path)) {
        written = picture_write_png(p, path);
        if (!written) fprintf(stderr, "%s: libpng cannot write it\n", path);
        return written;
    }
#endif
    FILE *f = fopen(path, "wb");
    if (f) {
        fprintf(f, "P5\n%zu %zu\n255\n", p->width, p->rows);
        written = fwrite(p->pixels, p->width, p->rows, f) == p->rows;
        written &= fclose(f) == 0;
    }
    if (!written) fprintf(stderr, "%s: %s\n", path, strerror(errno));
    return written;
}

#endif /* PICTURE_FILES_H */
