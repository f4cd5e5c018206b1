/*  test_large.cu -- more than 4 GiB and more than 2^32 elements: no size is cut to 32 bits on
    the way. The array is address space: a file of 16 MiB of zeros, mapped again and again. */
#include "pipe_common.h"

#include <sys/mman.h>
#include <unistd.h>

#if SIZE_MAX < 0x100001388
int main(void) { tap_skip_all("size_t has 32 bits here: no array is that large"); }
#else
static const size_t N = ((size_t)1 << 32) + 5000;

/* The marks, at places that 32 bits would confuse, and one at the very end. */
static size_t mark_place(int k) {
    static const size_t places[] = {0,
                                    4999,
                                    ((size_t)1 << 31) + 7,
                                    ((size_t)1 << 32) - 1,
                                    (size_t)1 << 32,
                                    ((size_t)1 << 32) + 4999};
    return places[k];
}

typedef struct seen {
    size_t total, wrong;
    int marks;
} seen_t;

static cudaError_t look(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    static const unsigned char zeros[65536] = {0};
    const unsigned char *at = (const unsigned char *)src;
    seen_t *s = (seen_t *)user;
    unsigned char *plain = (unsigned char *)(uintptr_t)at; /* a slot: may be cleared */
    s->wrong += first != s->total;
    for (int k = 0; k < 6; ++k) {
        const size_t place = mark_place(k);
        if (place < first || place - first >= count) continue;
        s->marks += at[place - first] == 100 + k;
        plain[place - first] = 0;
    }
    for (size_t i = 0; i < count; i += sizeof zeros) {
        const size_t n = count - i < sizeof zeros ? count - i : sizeof zeros;
        s->wrong += memcmp(at + i, zeros, n) != 0;
    }
    s->total += count;
    return cudaSuccess;
}

static cudaError_t copy_stage(const spipe_chunk_t *c, void *user) {
    size_t *sum = (size_t *)user;
    *sum += c->count;
    if (c->first != c->index * ((size_t)16 << 20) || c->total != N) return cudaErrorInvalidValue;
    return cudaMemcpyAsync(c->data[1], c->data[0], c->count, cudaMemcpyDeviceToDevice, c->stream);
}

/* N bytes of zeros; NULL if they are not to be had. What is written stays apart from the file. */
static unsigned char *map_zeros(void) {
    const size_t piece = (size_t)16 << 20;
    const int flags = MAP_PRIVATE | MAP_NORESERVE, rights = PROT_READ | PROT_WRITE;
    FILE *file = tmpfile();
    void *map = mmap(NULL, N + piece, rights, flags | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || !file || ftruncate(fileno(file), (off_t)piece) != 0) return NULL;
    for (size_t at = 0; at < N; at += piece) {
        void *to = (char *)map + at;
        if (mmap(to, piece, rights, flags | MAP_FIXED, fileno(file), 0) != to) return NULL;
    }
    (void)fclose(file); /* the mappings keep it */
    return (unsigned char *)map;
}

int main(void) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    tap_skip_all("4 GiB are too slow under a sanitizer; the same code runs on small arrays there");
#endif
    unsigned char *x = map_zeros();
    if (!x) tap_skip_all("4 GiB of address space are not to be had");
    seen_t s = {0, 0, 0};
    size_t staged = 0;
    spipe_report_t r;
    spipe_desc_t d = spipe_desc_default();
    for (int k = 0; k < 6; ++k) x[mark_place(k)] = (unsigned char)(100 + k);
    d.count = N;
    d.chunk = (size_t)16 << 20;
    d.depth = 4;
    spipe_add_input(&d, x, 1);
    spipe_add_sink(&d, look, &s, 1, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "copy", copy_stage, &staged);
    const cudaError_t e = spipe_run(&d, &r);
    if (e != cudaSuccess) tap_note("%s", r.failure.message);
    tap_ok(e == cudaSuccess && staged == N, "2^32 + 5000 elements pass through the stages");
    tap_ok(s.total == N && s.wrong == 0, "the sink gets all of them, in order");
    tap_ok(s.marks == 6, "each mark arrives at its place, those beyond 4 GiB too");
    tap_ok(r.count_done == N && r.bytes_in == N && r.bytes_out == N, "the report counts them all");
    tap_ok(r.device_bytes < ((size_t)256 << 20), "in %zu MiB of device memory",
           r.device_bytes >> 20);
    munmap(x, N);
    return tap_done();
}
#endif
