/*  14_loader.cu -- a data loader: workers decode pictures, ahead of a training loop of your own.

    nvcc -O3 -I.. -o 14_loader 14_loader.cu && ./14_loader          (without a GPU: make examples)
    14_loader FOLDER      paints the pictures there, or uses those that it finds there
    You learn   a split source is a loader. `next` says, in order, which picture comes next; `work`
                decodes pictures into pinned memory, on as many threads as you want workers. Both
                run ahead of the loop that takes the batches: spipe_pipeline_next, a kernel in a
                stream of your own, spipe_pipeline_release. All epochs are one run: no worker stops.
    Mind        `next` is called by one thread at a time, so its shuffle needs no lock. `work` is
                called by all workers at once, so it writes nothing that they share. A batch stays
                as it is until the kernels before spipe_pipeline_release are done.
    Expect      (hostcuda)
                0 workers     910 ms   1.00 x
                1 workers     909 ms   1.00 x
                2 workers     456 ms   1.99 x
                4 workers     228 ms   3.99 x
                right: the CPU finds the same                                                     */
#include "14_pictures.h" /* files, decoding, shuffling */
static const unsigned EPOCHS = 3, ITEMS = EPOCHS * PICTURES, BATCH = 4; /* the last is smaller */

typedef struct loader {
    pictures_t files;
    unsigned order[PICTURES]; /* of the epoch whose pictures `next` hands out */
    size_t given;
} loader_t;

/* Writes the tickets of a part, the numbers of the next pictures; none after the last epoch. */
static cudaError_t next(spipe_part_t *part, void *user) {
    loader_t *l = (loader_t *)user;
    if (part->count > ITEMS - l->given) part->count = ITEMS - l->given;
    for (size_t n = 0; n < part->count; ++n, ++l->given) {
        const unsigned place = (unsigned)(l->given % PICTURES);
        if (place == 0) pictures_shuffle(l->order, (unsigned)(l->given / PICTURES));
        ((unsigned *)part->data)[n] = l->order[place];
    }
    return cudaSuccess;
}

static thread_local char words[256]; /* why a file was refused; one per worker */

static const char *why(void *) { return words; } /* called on the thread where work failed */

/* Reads and decodes the pictures that the tickets name. */
static cudaError_t work(const spipe_part_t *part, const void *tickets, void *user) {
    const loader_t *l = (const loader_t *)user;
    sample_t *s = (sample_t *)part->data;
    for (size_t k = 0; k < part->count; ++k) { /* an error ends the loop of the caller, too */
        s[k].picture = ((const unsigned *)tickets)[k];
        if (!picture_load(&l->files, s[k].picture, s[k].pixels, words))
            return cudaErrorOperatingSystem;
    }
    return cudaSuccess;
}

/* The loop: nothing in it knows of files, threads or copies. */
static cudaError_t train(spipe_pipeline_t *p, unsigned *sums, cudaStream_t stream) {
    for (spipe_chunk_t batch;;) {
        SPIPE_TRY(spipe_pipeline_next(p, stream, &batch));
        if (batch.count == 0) return cudaStreamSynchronize(stream);
        SPIPE_TRY(step(SPIPE_BUF(&batch, 0, const sample_t), batch.count, sums, stream));
        SPIPE_TRY(spipe_pipeline_release(p, stream));
    }
}

/* The same without the library: read, decode, copy, compute, one after another. */
static cudaError_t train_plainly(loader_t *l, sample_t *dev, unsigned *sums) {
    static sample_t host[BATCH];
    unsigned numbers[BATCH];
    for (spipe_part_t t = {numbers, 0, BATCH};; t.count = BATCH) {
        SPIPE_TRY(next(&t, l));
        if (t.count == 0) return cudaDeviceSynchronize();
        const spipe_part_t batch = {host, 0, t.count};
        SPIPE_TRY(work(&batch, numbers, l));
        SPIPE_TRY(cudaMemcpy(dev, host, t.count * sizeof *dev, cudaMemcpyHostToDevice));
        SPIPE_TRY(step(dev, t.count, sums, NULL));
    }
}

/* Trains with so many workers (0 = without the library). Returns milliseconds, or -1. */
static double train_ms(loader_t *l, unsigned workers, sample_t *dev, unsigned *sums) {
    spipe_pipeline_t *p = NULL;
    spipe_desc_t d = spipe_desc_default();
    const int b = spipe_add_split_source(&d, next, work, l, sizeof(unsigned), sizeof(sample_t));
    d.buffers[b].why = why;
    d.count = ITEMS;
    d.chunk = BATCH;
    d.threads = workers;
    if (workers > 0) SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(cudaMemset(sums, 0, PICTURES * sizeof *sums));
    l->given = 0;
    const double start = ex_now_ms();
    const cudaError_t e = p ? train(p, sums, cudaStreamPerThread) : train_plainly(l, dev, sums);
    const double ms = ex_now_ms() - start;
    if (e != cudaSuccess) fprintf(stderr, "%s\n", p ? spipe_pipeline_failure(p)->message : words);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    return e == cudaSuccess ? ms : -1.0;
}

int main(int argc, char **argv) {
    static const unsigned workers[] = {0, 1, 2, 4};
    static loader_t l;
    unsigned sums[PICTURES], *dev_sums, right = 1;
    sample_t *dev;
    double ms = 0.0, plain = 0.0;
    ex_begin();
    if (!pictures_make(&l.files, argc > 1 ? argv[1] : NULL)) return 1;
    SPIPE_CHECK(cudaMalloc((void **)&dev, BATCH * sizeof *dev));
    SPIPE_CHECK(cudaMalloc((void **)&dev_sums, sizeof sums));
    for (unsigned k = 0; k < 4 && ms >= 0.0; ++k) {
        ms = train_ms(&l, workers[k], dev, dev_sums);
        if (k == 0) plain = ms; /* without the library */
        if (ms >= 0.0) printf("%u workers%8.0f ms%7.2f x\n", workers[k], ms, plain / ms);
        SPIPE_CHECK(cudaMemcpy(sums, dev_sums, sizeof sums, cudaMemcpyDeviceToHost));
        for (unsigned i = 0; i < PICTURES; ++i) right &= sums[i] == EPOCHS * l.files.sums[i];
    }
    pictures_remove(&l.files);
    SPIPE_CHECK(cudaFree(dev_sums));
    SPIPE_CHECK(cudaFree(dev));
    return ms < 0.0 ? 1 : ex_verdict(right);
}
