/*  14_pictures.h -- the files that 14_loader loads: small pictures, compressed without loss;
    how one is read and decoded, and in which order.

    A file holds the pixels from top to bottom, 3 bytes each. For each byte it has the difference to
    what PNG's Paeth filter predicts from its neighbours; a difference of 0 is followed by how many
    there are in a row, 1 to 255. Unlike PNG it does not compress that once more.                 */
#ifndef PICTURES_H
#define PICTURES_H

#include "ex_common.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PICTURES = 101,
    SIDE = EX_HOSTCUDA ? 32 : 256, /* 256 x 256 take 1 to 3 ms to decode */
    ROW = 3 * SIDE,
    PIXELS = ROW * SIDE /* bytes */
};

typedef struct pictures {
    char folder[128];
    int ours;                /* the folder goes with the program */
    unsigned sums[PICTURES]; /* check sum of each picture when it was painted */
} pictures_t;

/* A check sum that depends on the place of each byte. */
#define PICTURE_SUM(pixels, i) ((pixels)[i] * (2u * (i) + 1u))

static inline unsigned char picture_predict(const unsigned char *pixels, int i) {
    const int has_left = i % ROW >= 3, has_up = i >= ROW;
    const int left = has_left ? pixels[i - 3] : 0;
    const int up = has_up ? pixels[i - ROW] : 0;
    const int corner = has_left && has_up ? pixels[i - ROW - 3] : 0;
    const int a = abs(up - corner), b = abs(left - corner), c = abs(left + up - 2 * corner);
    if (a <= b && a <= c) return (unsigned char)left;
    return (unsigned char)(b <= c ? up : corner);
}

static inline void picture_encode(FILE *f, const unsigned char *pixels) {
    for (int i = 0, run = 1; i < PIXELS; i += run) {
        const unsigned char code = (unsigned char)(pixels[i] - picture_predict(pixels, i));
        putc(code, f);
        for (run = 1; code == 0 && run < 255 && i + run < PIXELS; ++run) {
            if (pixels[i + run] != picture_predict(pixels, i + run)) break;
        }
        if (code == 0) putc(run, f);
    }
}

/* Returns 1 if the file had all the pixels and nothing else. */
static inline int picture_decode(FILE *f, unsigned char *pixels) {
    int i = 0, code;
    while (i < PIXELS && (code = getc(f)) != EOF) {
        int run = code == 0 ? getc(f) : 1;
        for (; run > 0 && i < PIXELS; --run, ++i) {
            pixels[i] = (unsigned char)(code + picture_predict(pixels, i));
        }
    }
    return i == PIXELS && getc(f) == EOF;
}

/* A picture that is smooth in places and grainy in others. */
static inline void picture_paint(unsigned picture, unsigned char *pixels) {
    unsigned random = picture;
    for (unsigned i = 0; i < PIXELS; ++i) {
        const unsigned x = i % ROW / 3, y = i / ROW;
        random = EX_NEXT(random);
        const unsigned grain = (x + y + picture) / 8 % 2 ? random >> 28 : 0;
        pixels[i] = (unsigned char)(37 * picture + x / 4 * (1 + i % 3) + y / 4 + grain);
    }
}

static inline void picture_name(const pictures_t *p, unsigned picture, char name[160]) {
    snprintf(name, 160, "%s/picture%03u", p->folder, picture);
}

/* Paints all pictures, and writes them into a new folder: that of this name, which stays, or NULL
   for one that goes with the program. A folder that is there is left as it is. Returns 0 and says
   why where they could not be written. */
static inline int pictures_make(pictures_t *p, const char *folder) {
    static unsigned char pixels[PIXELS];
    const char *temporary = getenv("TMPDIR");
    int made = 0;
    memset(p, 0, sizeof *p);
    if (!temporary) temporary = "/tmp";
    const int length = snprintf(p->folder, sizeof p->folder, "%s%s", folder ? folder : temporary,
                                folder ? "" : "/loader.XXXXXX");
    errno = ENAMETOOLONG;
    if (length < (int)sizeof p->folder) {
        p->ours = !folder && mkdtemp(p->folder);
        made = p->ours || (folder && mkdir(folder, 0777) == 0);
    }
    int whole = made || (folder && errno == EEXIST);
    if (whole && !made) { /* the folder was there: pictures, or an empty one */
        char first[160];
        picture_name(p, 0, first);
        made = access(first, F_OK) != 0;
    }
    for (unsigned k = 0; k < PICTURES && whole; ++k) {
        char name[160];
        picture_name(p, k, name);
        picture_paint(k, pixels);
        for (unsigned i = 0; i < PIXELS; ++i) p->sums[k] += PICTURE_SUM(pixels, i);
        if (!made) continue;
        FILE *f = fopen(name, "wb");
        if (f) picture_encode(f, pixels);
        whole &= f && fclose(f) == 0;
    }
    if (!whole) fprintf(stderr, "cannot write pictures to %s: %s\n", p->folder, strerror(errno));
    return whole;
}

/* Reads and decodes one. Where its file is not one whole picture it returns 0, and why in words;
   each thread has words of its own. */
static inline int picture_load(const pictures_t *p, unsigned picture, unsigned char *pixels,
                               char words[256]) {
    char name[160];
    picture_name(p, picture, name);
    FILE *f = fopen(name, "rb");
    const int whole = f && picture_decode(f, pixels);
    if (!f) snprintf(words, 256, "%s: %s", name, strerror(errno));
    if (f && !whole) snprintf(words, 256, "%s: it is not one whole picture", name);
    if (f) fclose(f);
#if EX_HOSTCUDA
    hostcuda_host_work(3e6); /* small pictures: by the model each takes as long as a large one */
#endif
    return whole;
}

/* Shuffles all pictures, differently in each epoch: picture i goes to any place up to i. */
static inline void pictures_shuffle(unsigned order[PICTURES], unsigned epoch) {
    unsigned random = 1 + epoch;
    for (unsigned i = 0; i < PICTURES; ++i) {
        random = EX_NEXT(random);
        const unsigned place = (random >> 8) % (i + 1);
        order[i] = order[place];
        order[place] = i;
    }
}

typedef struct sample { /* one element, as the loader fills it */
    unsigned picture;
    unsigned char pixels[PIXELS];
} sample_t;

/* In place of a training step: adds each picture's check sum to its total; a block a picture. */
static __global__ void step_kernel(const sample_t *batch, unsigned *sums) {
    const sample_t *s = &batch[blockIdx.x];
    unsigned sum = 0;
    for (unsigned i = threadIdx.x; i < PIXELS; i += blockDim.x) sum += PICTURE_SUM(s->pixels, i);
    atomicAdd(&sums[s->picture], sum);
}

static inline cudaError_t step(const sample_t *batch, size_t count, unsigned *sums,
                               cudaStream_t stream) {
    return SPIPE_LAUNCH(step_kernel, (unsigned)count, 64, 0, stream, batch, sums);
}

static inline void pictures_remove(const pictures_t *p) {
    char name[160];
    for (unsigned k = 0; k < PICTURES && p->ours; ++k) {
        picture_name(p, k, name);
        remove(name);
    }
    if (p->ours) rmdir(p->folder);
}

#endif /* PICTURES_H */
