/*  pgm_to_png IN.pgm OUT.png -- a grey picture in a format that every browser and viewer opens.

    Small pictures are enlarged, each pixel to a square, until they are 512 pixels wide. The PNG is
    not compressed: its deflate blocks are stored ones (RFC 1950, 1951, 2083). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t crc;      /* of the chunk that is being written */
static uint32_t a = 1, b; /* Adler-32 of the picture's bytes */

static void put(FILE *f, const unsigned char *bytes, size_t n) {
    size_t i;
    int k;
    for (i = 0; i < n; ++i) {
        crc ^= bytes[i];
        for (k = 0; k < 8; ++k) crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
    }
    (void)fwrite(bytes, 1, n, f);
}

static void put_number(FILE *f, uint32_t v) {
    const unsigned char bytes[4] = {(unsigned char)(v >> 24), (unsigned char)(v >> 16),
                                    (unsigned char)(v >> 8), (unsigned char)v};
    put(f, bytes, 4);
}

static void begin_chunk(FILE *f, const char *type, uint32_t bytes) {
    put_number(f, bytes);
    crc = 0xFFFFFFFFu;
    put(f, (const unsigned char *)type, 4);
}

static void end_chunk(FILE *f) { put_number(f, ~crc); }

/* A row of the enlarged picture, as one stored block: a filter byte (none) and the pixels. */
static void put_row(FILE *f, const unsigned char *row, uint32_t bytes, int last) {
    const unsigned char head[5] = {(unsigned char)last, (unsigned char)bytes,
                                   (unsigned char)(bytes >> 8), (unsigned char)~bytes,
                                   (unsigned char)(~bytes >> 8)};
    uint32_t i;
    put(f, head, 5);
    put(f, row, bytes);
    for (i = 0; i < bytes; ++i) {
        a = (a + row[i]) % 65521u;
        b = (b + a) % 65521u;
    }
}

static void write_png(FILE *f, const unsigned char *pixels, uint32_t width, uint32_t height) {
    static const unsigned char zlib[2] = {0x78, 0x01}, kind[5] = {8, 0, 0, 0, 0}; /* 8 bits, grey */
    static unsigned char row[65535];
    const uint32_t times = width < 512 ? (511 + width) / width : 1;
    const uint32_t w = width * times, h = height * times;
    uint32_t x, y;
    (void)fwrite("\x89PNG\r\n\x1A\n", 1, 8, f);
    begin_chunk(f, "IHDR", 13);
    put_number(f, w);
    put_number(f, h);
    put(f, kind, 5);
    end_chunk(f);
    begin_chunk(f, "IDAT", 2 + h * (5 + 1 + w) + 4);
    put(f, zlib, 2);
    for (y = 0; y < h; ++y) {
        for (x = 0; x < w; ++x) row[1 + x] = pixels[y / times * width + x / times];
        put_row(f, row, 1 + w, y + 1 == h);
    }
    put_number(f, b << 16 | a);
    end_chunk(f);
    begin_chunk(f, "IEND", 0);
    end_chunk(f);
}

static int complain(const char *name, const char *why) {
    fprintf(stderr, "pgm_to_png: %s %s\n", name, why);
    return 1;
}

int main(int argc, char **argv) {
    unsigned long width = 0, height = 0, most = 0;
    unsigned char *pixels;
    FILE *in, *out;
    int bad;
    if (argc != 3) return complain("IN.pgm OUT.png", "is what it takes");
    in = fopen(argv[1], "rb");
    if (!in) return complain(argv[1], "cannot be read");
    if (fscanf(in, "P5 %lu %lu %lu", &width, &height, &most) != 3 || fgetc(in) == EOF ||
        most != 255 || width < 1 || width > 16384 || height < 1 || height > 100000) {
        return complain(argv[1], "is no PGM of at most 16384 x 100000 pixels of a byte");
    }
    pixels = (unsigned char *)malloc(width * height);
    if (!pixels || fread(pixels, 1, width * height, in) != width * height) {
        return complain(argv[1], "is shorter than it says");
    }
    (void)fclose(in);
    out = fopen(argv[2], "wb");
    if (!out) return complain(argv[2], "cannot be written");
    write_png(out, pixels, (uint32_t)width, (uint32_t)height);
    bad = ferror(out);
    bad |= fclose(out) != 0;
    free(pixels);
    return bad ? complain(argv[2], "cannot be written whole") : 0;
}
