/*  test_fits_memory.cu -- what is left to the library fits itself into the device memory that is
    free: down to one slot of one element. Only what cannot fit even so is refused. */
#include "hostcuda.h"
#include "pipe_common.h"

static const size_t KiB = 1 << 10, MiB = 1 << 20;

static cudaError_t keep(const spipe_chunk_t *c, void *user) {
    (void)user;
    return cudaMemcpyAsync(c->data[1], c->data[0], c->count * c->elem_bytes[0],
                           cudaMemcpyDeviceToDevice, c->stream);
}

typedef struct fit {
    const char *name;
    size_t free_bytes, elem_bytes, count, chunk, depth;
    int kept, memory;
    size_t temp; /* bytes of an element of a temporary buffer; 0 = there is none */
} fit_t;

/* Runs a description while all but so many bytes of the GPU are taken. */
static void test_fit(const fit_t *f) {
    const size_t bytes = f->count * f->elem_bytes;
    pipe_array_t x = pipe_array_new(bytes, f->memory), y = pipe_array_new(bytes, f->memory);
    spipe_desc_t d = spipe_desc_default();
    spipe_pipeline_t *p = NULL;
    spipe_report_t r;
    size_t there = 0, all = 0;
    void *taken = NULL;
    cudaError_t e;
    int right;
    memset(&r, 0, sizeof r);
    pipe_randomise(x);
    pipe_poison(y);
    SPIPE_CHECK(cudaMemGetInfo(&there, &all));
    SPIPE_CHECK(cudaMalloc(&taken, there - f->free_bytes));
    d.count = f->count;
    d.chunk = f->chunk;
    d.depth = f->depth;
    spipe_add_input(&d, x.at, f->elem_bytes);
    spipe_add_output(&d, y.at, f->elem_bytes);
    if (f->temp) spipe_add_temp(&d, f->temp);
    spipe_add_stage(&d, "keep", keep, NULL);
    if (f->kept) {
        e = spipe_pipeline_create(&p, &d, &r.failure);
        for (int k = 0; k < 12 && e == cudaSuccess; ++k) e = spipe_pipeline_run(p, &r);
        SPIPE_CHECK(spipe_pipeline_destroy(p));
    } else {
        e = spipe_run(&d, &r);
    }
    (void)cudaGetLastError();
    right = e == cudaSuccess && memcmp(x.at, y.at, bytes) == 0 && pipe_guard_whole(y);
    right = right && r.device_bytes <= f->free_bytes;
    if (!right) tap_note("%s", r.failure.message);
    tap_ok(right, "%s: %zu slots of %zu elements", f->name, r.depth, r.chunk);
    SPIPE_CHECK(cudaFree(taken));
    pipe_free(&x);
    pipe_free(&y);
}

int main(void) {
    const size_t a = SPIPE_AUTO;
    const fit_t fits[] = {
        {"1 MiB is free, small elements", MiB, 4, 4 * MiB, a, a, 0, PIPE_PAGEABLE, 0},
        {"1 MiB is free, kept", MiB, 4, 4 * MiB, a, a, 1, PIPE_PAGEABLE, 0},
        {"1 MiB is free, pinned and kept", MiB, 4, 4 * MiB, a, a, 1, PIPE_PINNED, 0},
        {"20 KiB are free", 20 * KiB, 4, MiB, a, a, 0, PIPE_PAGEABLE, 0},
        {"4 MiB are free, a temporary of 200 bytes an element", 4 * MiB, 4, MiB, a, a, 0,
         PIPE_PAGEABLE, 200},
        {"elements of 100 KiB, 1 MiB is free", MiB, 100 * KiB, 100, a, a, 0, PIPE_PAGEABLE, 0},
        {"elements of 400 KiB, 1 MiB is free", MiB, 400 * KiB, 40, a, a, 0, PIPE_PAGEABLE, 0},
        {"one element in and out is 90 % of what is free", MiB, 460 * KiB, 8, a, a, 0,
         PIPE_PAGEABLE, 0},
        {"the same, kept and pinned", MiB, 460 * KiB, 8, a, a, 1, PIPE_PINNED, 0},
        {"the chunk is given, the depth shrinks", MiB, 460 * KiB, 8, 1, a, 0, PIPE_PAGEABLE, 0},
        {"the depth is given, the chunk shrinks", MiB, 100 * KiB, 80, a, 1, 0, PIPE_PAGEABLE, 0},
        {"both are given, and fit", MiB, 460 * KiB, 8, 1, 1, 0, PIPE_PAGEABLE, 0}};
    spipe_desc_t d = spipe_desc_default();
    spipe_failure_t f;
    spipe_pipeline_t *p;
    unsigned char *x = (unsigned char *)malloc(2 * MiB);
    size_t k;
    hostcuda_set_memory(64 * MiB);
    for (k = 0; k < sizeof fits / sizeof *fits; ++k) test_fit(&fits[k]);
    d.count = 2;
    spipe_add_input(&d, x, 65 * MiB); /* it is refused before the array is read */
    spipe_add_stage(&d, "keep", keep, NULL);
    tap_ok(spipe_pipeline_create(&p, &d, &f) == cudaErrorMemoryAllocation &&
               strstr(f.message, "1 slots of 1 elements"),
           "what does not fit even so is refused: %s", f.message);
    free(x);
    return tap_done();
}
