/*  21_several_gpus.cu -- all GPUs of a host count the bytes of one array.

    nvcc -O3 -I.. -I../extras -o several_gpus 21_several_gpus.cu && ./several_gpus
                                                                     (without a GPU: make examples)
    You learn   spipe_devices_all is the only new line: whichever GPU has a free slot takes the next
                chunk, so a slower one takes fewer. A kernel that gathers a result over all chunks
                keeps it in a resident buffer, one on each GPU: spipe_devices_reduce says how to
                join two. A program with many runs makes memory, streams and threads only once.
    Mind        all GPUs share the host's memory: two that copy both ways can use all of it
                (docs/SCALE.md). Pin with spipe_pinned_alloc, which pins for all of them. An ordered
                stage is refused, since the chunk before may be on another GPU.
    Expect      (hostcuda) 2 GPUs
                on GPU 0 alone: 262144 bytes counted, 0 of 256 counts are wrong
                on all GPUs: 262144 bytes counted, 0 of 256 counts are wrong
                again, nothing set up: 262144 bytes counted, 0 of 256 counts are wrong
                right: the CPU finds the same                                                     */
#include "ex_common.h"
#include "streampipe_devices.h"
#include "streampipe_kernels.cuh"

enum {
    BLOCK = 4096,
    BLOCKS = EX_HOSTCUDA ? 64 : 1 << 16,
    VALUES = 256
};

static const size_t BYTES = (size_t)BLOCK * BLOCKS;

/* Called with host memory: adds the counts of one GPU to those of another. */
static cudaError_t add_counts(void *into, const void *from, size_t bytes, void *user) {
    unsigned long long *sum = (unsigned long long *)into;
    const unsigned long long *more = (const unsigned long long *)from;
    (void)user;
    for (size_t i = 0; i < bytes / sizeof *sum; ++i) sum[i] += more[i];
    return cudaSuccess;
}

static int count(const char *where, const unsigned char *x, const unsigned long long *want,
                 const int *gpu, spipe_resources_t *resources) {
    static const spipe_bytes_t bytes = {0, -1, -1, -1, 1, BLOCK};
    static unsigned long long got[VALUES];
    spipe_report_t report;
    spipe_desc_t d = spipe_desc_default();
    unsigned long long all = 0;
    int wrong = 0;
    d.count = BLOCKS; /* an element is a block of 4096 bytes */
    d.chunk = BLOCKS / 16;
    d.resources = resources;
    spipe_add_input(&d, x, BLOCK);
    spipe_add_resident(&d, got, sizeof got, SPIPE_ZERO | SPIPE_DOWNLOAD);
    spipe_add_stage(&d, "count", spipe_total_histogram_stage, (void *)&bytes);
    if (gpu)
        spipe_devices_list(&d, gpu, 1);
    else
        spipe_devices_all(&d);
    spipe_devices_reduce(&d, add_counts, NULL);
    SPIPE_CHECK_RUN(&d, &report);
    for (int v = 0; v < VALUES; ++v) {
        all += got[v];
        wrong += got[v] != want[v];
    }
    printf("%s: %llu bytes counted, %d of %d counts are wrong\n", where, all, wrong, VALUES);
    return wrong == 0;
}

int main(void) {
    static unsigned long long want[VALUES];
    spipe_resources_t *shared;
    const int first = 0;
    unsigned char *x;
    unsigned random = 1;
    int gpus;
#if EX_HOSTCUDA
    SPIPE_CHECK(hostcuda_set_devices(2));
#endif
    ex_begin();
    SPIPE_CHECK(cudaGetDeviceCount(&gpus));
    printf("%d GPU%s\n", gpus, gpus == 1 ? "" : "s");
    SPIPE_CHECK(spipe_pinned_alloc((void **)&x, BYTES));
    for (size_t i = 0; i < BYTES; ++i) {
        random = EX_NEXT(random);
        x[i] = (unsigned char)(random >> 24 & random >> 16);
        want[x[i]]++;
    }
    int right = count("on GPU 0 alone", x, want, &first, NULL);
    right &= count("on all GPUs", x, want, NULL, NULL);
    SPIPE_CHECK(spipe_devices_resources_create(&shared, NULL, 0, NULL, NULL));
    right &= count("again, nothing set up", x, want, NULL, shared);
    SPIPE_CHECK(spipe_resources_destroy(shared, NULL));
    SPIPE_CHECK(spipe_pinned_free(x));
    return ex_verdict(right);
}
