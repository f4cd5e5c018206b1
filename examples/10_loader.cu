/*  10_loader.cu -- a prefetching loader: reads files a few ahead, delivers every batch once.

    nvcc -O3 -I.. -o 10_loader 10_loader.cu && ./10_loader          (without a GPU: make examples)
    You learn   the source is the loader, the stage is the loop body. While the GPU works, a thread
                of the library reads up to `depth` files ahead, from file to pinned slot to device.
    Mind        a loader of many tutorials (MultiStreamDataLoader) yields buffer i, refills it with
                the batch just fetched, and at the end empties buffers i .. n-1. But all n are full
                then, and those before i are lost: `files % n` batches. It also refills a buffer
                that the GPU may still read. Here there is no second loop for the rest, and a slot
                is refilled only when an event shows that the stages have finished with it.
    Expect      (hostcuda) files  serial  4 ahead    that loop
                     4       4        4        4   0 lost
                     5       5        5        4   1 lost
                     7       7        7        4   3 lost
                     8       8        8        8   0 lost
                right: the CPU finds the same                                                     */
#include "ex_common.h"

#include <unistd.h>

static const unsigned AHEAD = 4, MAX_FILES = 13, WORDS = 1 << 16; /* a batch: 256 KiB, one file */

typedef struct loader {
    char folder[32], name[64];
    unsigned next, num_files;
} loader_t;

typedef struct state {
    unsigned delivered[MAX_FILES];    /* how often each file came */
    unsigned num_batches, order, sum; /* order differs when two batches are swapped */
} state_t;

static const char *name_of(loader_t *l, unsigned number) {
    snprintf(l->name, sizeof l->name, "%s/batch%u", l->folder, number);
    return l->name;
}

/* The source: up to max_count batches, one file each; *count = 0 says that there are no more. */
static cudaError_t load(void *dst, size_t max_count, size_t *count, void *user) {
    loader_t *l = (loader_t *)user;
    for (*count = 0; *count < max_count && l->next < l->num_files; ++*count) {
        FILE *f = fopen(name_of(l, l->next++), "rb");
        const size_t got = f ? fread((unsigned *)dst + *count * WORDS, 4, WORDS, f) : 0;
        if (f) fclose(f);
        if (got != WORDS) return cudaErrorOperatingSystem; /* the run stops and says where */
    }
    return cudaSuccess;
}

/* The loop body, say a training step: it carries state from batch to batch. */
static __global__ void step(const unsigned *batch, state_t *s) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, number = batch[0];
    atomicAdd(&s->sum, batch[i]);
    if (i > 0) return;
    s->delivered[number % MAX_FILES] += 1;
    s->order = 31 * s->order + number;
    s->num_batches += 1;
}

static cudaError_t step_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return SPIPE_LAUNCH(step, WORDS / 256, 256, 0, c->stream,
                        SPIPE_BUF_ROW(c, 0, const unsigned, WORDS), SPIPE_BUF(c, 1, state_t));
}

static state_t train(loader_t *l, spipe_schedule_t schedule) {
    state_t s;
    spipe_report_t report;
    spipe_desc_t d = spipe_desc_default();          /* no count: until the source ends */
    d.chunk = 1;                                    /* one batch is one chunk ... */
    d.depth = schedule == SPIPE_SERIAL ? 1 : AHEAD; /* ... and so many are under way */
    d.schedule = schedule;
    l->next = 0;
    spipe_add_source(&d, load, l, WORDS * sizeof(unsigned));
    spipe_add_resident(&d, &s, sizeof s, SPIPE_ZERO | SPIPE_DOWNLOAD);
    spipe_stage_ordered(&d, spipe_add_stage(&d, "step", step_stage, NULL));
    SPIPE_CHECK_RUN(&d, &report);
    return s;
}

/* How many of num_files batches that loop yields from n buffers. */
static unsigned ring_loop(unsigned num_files, unsigned n) {
    unsigned fetched = n, yielded = 0, i = 0;
    if (num_files < n) return num_files;
    for (; fetched < num_files; ++fetched, ++yielded) i = (i + 1) % n;
    return yielded + (n - i); /* for j in range(i, n) */
}

int main(void) {
    static const unsigned counts[] = {0, 1, 3, 4, 5, 7, 8, 9, MAX_FILES}; /* around the depth */
    static unsigned batch[WORDS];
    loader_t l = {"/tmp/loader.XXXXXX", "", 0, 0};
    state_t want;
    unsigned k, i, wrong = 0;
    ex_begin();
    if (!mkdtemp(l.folder)) return 1;
    memset(&want, 0, sizeof want);
    printf("%10s%8s%9s%13s\n", "files", "serial", "4 ahead", "that loop");
    for (k = 0; k < sizeof counts / sizeof counts[0]; ++k) {
        for (; l.num_files < counts[k]; ++l.num_files) { /* the CPU's state, batch by batch */
            for (i = 0; i < WORDS; ++i) want.sum += batch[i] = l.num_files + 77 * i;
            want.order = 31 * want.order + l.num_files;
            want.delivered[l.num_files] = 1;
            want.num_batches += 1;
            FILE *f = fopen(name_of(&l, l.num_files), "wb");
            if (!f || fwrite(batch, 4, WORDS, f) != WORDS || fclose(f) != 0) return 1;
        }
        const state_t serial = train(&l, SPIPE_SERIAL), ahead = train(&l, SPIPE_SCHEDULE_AUTO);
        const unsigned ring = ring_loop(l.num_files, AHEAD), lost = l.num_files - ring;
        printf("%10u%8u%9u%9u   %u lost\n", l.num_files, serial.num_batches, ahead.num_batches,
               ring, lost);
        wrong += memcmp(&serial, &want, sizeof want) || memcmp(&ahead, &want, sizeof want);
    }
    for (i = 0; i < l.num_files; ++i) remove(name_of(&l, i));
    rmdir(l.folder);
    return ex_verdict(wrong == 0); /* every batch once, whole, and in order */
}
