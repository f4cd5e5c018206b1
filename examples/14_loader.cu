/*  14_loader.cu -- a data loader: workers decode pictures, ahead of a training loop of your own.

    nvcc -O3 -I.. -o 14_loader 14_loader.cu && ./14_loader          (without a GPU: make examples)
    14_loader FOLDER      makes the pictures in FOLDER and leaves them there; if there is a FOLDER,
                          takes what it holds: damage a file, and see what is said of it

    You learn   a split source is a loader. `next` says, in order, which picture comes next; `work`
                decodes pictures into pinned memory, on as many threads as you want workers. Both
                run ahead of the loop that takes the batches: spipe_next, a kernel in a stream of
                your own, spipe_release. All epochs are one run, so no worker stops between them.
    Mind        `next` is called by one thread at a time, so its shuffle needs no lock. `work` is
                called by all workers at once, so it writes nothing that they share. Where workers
                take all processors, the loop's thread decodes too while it has no batch. A batch
                stays as it is until the kernels are done that were on the stream at spipe_release.
                After the last batch nobody has waited for your stream: that is for you to do.
    Expect      (hostcuda) 101 pictures of 32 x 32, 3 epochs in batches of 4
                decoding is modelled, 3 ms of waiting for each picture; the seconds are real
                1 worker      ?0.92 s   1.00 x
                2 workers     ?0.47 s  ?1.96 x
                4 workers     ?0.24 s  ?3.85 x
                no pipeline   ?0.92 s  ?1.00 x
                epoch 0 begins with the pictures 88 5 6 49
                epoch 1 begins with the pictures 55 92 37 8
                epoch 2 begins with the pictures 44 18 43 1
                right: the CPU finds the same                                                     */
#include "14_pictures.h"

#include <chrono>
#include <thread>

enum {
    EPOCHS = 3,
    ITEMS = EPOCHS * PICTURES,
    BATCH = 4, /* ITEMS is no multiple of it: the last batch is smaller */
    /* Without a GPU there may be few processors. There pictures are small, and a decoder waits
       instead of working, so long for each: waits overlap on any number of processors. */
    WAIT_MS = EX_HOSTCUDA ? 3 : 0
};

typedef struct sample { /* one element of the source */
    unsigned picture;
    unsigned char pixels[PIXELS];
} sample_t;

typedef struct arrival { /* what the GPU saw as its first, second, ... item */
    unsigned picture, sum;
} arrival_t;

typedef struct loader {
    pictures_t files;
    unsigned order[PICTURES]; /* of the epoch that next hands out */
    size_t given;
} loader_t;

/* ---- The source ------------------------------------------------------------------------------ */
/* An order of all pictures, another one in each epoch: picture i goes to any place up to i. */
static void shuffle(unsigned order[PICTURES], unsigned epoch) {
    unsigned random = 1 + epoch;
    for (unsigned i = 0; i < PICTURES; ++i) {
        random = EX_NEXT(random);
        const unsigned place = (random >> 8) % (i + 1);
        order[i] = order[place];
        order[place] = i;
    }
}

/* Up to max_count tickets, the pictures that come next; none after the last epoch. */
static cudaError_t next(void *tickets, size_t max_count, size_t *count, void *user) {
    loader_t *l = (loader_t *)user;
    for (*count = 0; *count < max_count && l->given < ITEMS; ++*count, ++l->given) {
        const unsigned place = (unsigned)(l->given % PICTURES);
        if (place == 0) shuffle(l->order, (unsigned)(l->given / PICTURES));
        ((unsigned *)tickets)[*count] = l->order[place];
    }
    return cudaSuccess;
}

static thread_local char words[256]; /* why a file was refused; each worker has its own */

static const char *why(void *) { return words; } /* asked on the thread on which work failed */

/* Reads and decodes the pictures that the tickets name. */
static cudaError_t work(void *dst, const void *tickets, size_t, size_t count, void *user) {
    sample_t *s = (sample_t *)dst;
    for (size_t k = 0; k < count; ++k) {
        char name[160];
        s[k].picture = ((const unsigned *)tickets)[k];
        picture_name(&((const loader_t *)user)->files, s[k].picture, name);
        FILE *f = fopen(name, "rb");
        const int whole = f && picture_decode(f, s[k].pixels);
        if (!f) snprintf(words, sizeof words, "%s: %s", name, strerror(errno));
        if (f && !whole) snprintf(words, sizeof words, "%s: it is not one whole picture", name);
        if (f) fclose(f);
        if (!whole) return cudaErrorOperatingSystem; /* the loop ends, and says why */
    }
    if (WAIT_MS > 0) std::this_thread::sleep_for(std::chrono::milliseconds(WAIT_MS * count));
    return cudaSuccess;
}

/* ---- Training -------------------------------------------------------------------------------- */
/* Stands for a training step: a sum over each picture; a block has one of them. */
static __global__ void step_kernel(const sample_t *batch, arrival_t *arrived) {
    const sample_t *s = &batch[blockIdx.x];
    unsigned sum = 0;
    for (unsigned i = threadIdx.x; i < PIXELS; i += blockDim.x) sum += PICTURE_SUM(s->pixels, i);
    atomicAdd(&arrived[blockIdx.x].sum, sum);
    if (threadIdx.x == 0) arrived[blockIdx.x].picture = s->picture;
}

static cudaError_t step(const sample_t *batch, size_t count, arrival_t *arrived, cudaStream_t s) {
    return SPIPE_LAUNCH(step_kernel, (unsigned)count, 64, 0, s, batch, arrived);
}

/* The loop. Nothing in it knows of files, threads or copies. */
static cudaError_t train(spipe_pipeline_t *p, arrival_t *arrived, cudaStream_t stream) {
    spipe_chunk_t batch;
    for (;;) {
        SPIPE_TRY(spipe_next(p, stream, &batch));
        if (batch.count == 0) return cudaStreamSynchronize(stream);
        SPIPE_TRY(
            step(SPIPE_BUF(&batch, 0, const sample_t), batch.count, arrived + batch.first, stream));
        SPIPE_TRY(spipe_release(p, stream));
    }
}

/* The same without the library: read, decode, copy, compute, one after another. */
static cudaError_t train_plainly(loader_t *l, arrival_t *arrived, cudaStream_t stream) {
    unsigned tickets[BATCH];
    sample_t *host, *dev;
    cudaError_t e = cudaSuccess;
    SPIPE_CHECK(spipe_pinned_alloc((void **)&host, BATCH * sizeof *host));
    SPIPE_CHECK(cudaMalloc((void **)&dev, BATCH * sizeof *dev));
    for (size_t first = 0, n = 0; first < ITEMS && e == cudaSuccess; first += n) {
        SPIPE_CHECK(next(tickets, BATCH, &n, l));
        e = work(host, tickets, first, n, l);
        if (e != cudaSuccess) break;
        SPIPE_CHECK(cudaMemcpyAsync(dev, host, n * sizeof *dev, cudaMemcpyHostToDevice, stream));
        SPIPE_CHECK(step(dev, n, arrived + first, stream));
        SPIPE_CHECK(cudaStreamSynchronize(stream));
    }
    SPIPE_CHECK(spipe_pinned_free(host));
    SPIPE_CHECK(cudaFree(dev));
    return e;
}

/* Trains with some workers, 0 = without the library; the seconds, or -1 where it failed. */
static double seconds_of(loader_t *l, unsigned workers, arrival_t *arrived, cudaStream_t stream) {
    spipe_pipeline_t *p = NULL;
    spipe_desc_t d = spipe_desc_default();
    const int b = spipe_add_source_split(&d, next, work, l, sizeof(unsigned), sizeof(sample_t));
    d.buffers[b].why = why;
    d.count = ITEMS;
    d.chunk = BATCH;
    d.threads = workers;
    if (workers > 0) SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(cudaMemsetAsync(arrived, 0, ITEMS * sizeof *arrived, stream));
    l->given = 0;
    const auto start = std::chrono::steady_clock::now();
    const cudaError_t e = p ? train(p, arrived, stream) : train_plainly(l, arrived, stream);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const char *said = p ? spipe_pipeline_failure(p)->message : words;
    if (e != cudaSuccess) fprintf(stderr, "%s\n", said[0] ? said : cudaGetErrorString(e));
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    return e == cudaSuccess ? took.count() : -1.0;
}

/* Whether each picture came whole, once an epoch, and no epoch has the order of the one before. */
static int all_right(const loader_t *l, const arrival_t *a) {
    int right = 1;
    for (unsigned epoch = 0; epoch < EPOCHS; ++epoch, a += PICTURES) {
        unsigned came[PICTURES] = {0}, moved = 0;
        for (unsigned i = 0; i < PICTURES; ++i) {
            const unsigned n = a[i].picture;
            right &= n < PICTURES && ++came[n] == 1 && a[i].sum == l->files.sums[n];
            moved += epoch == 0 || n != a[(int)i - PICTURES].picture;
        }
        right &= moved > PICTURES / 2;
    }
    return right;
}

/* Trains with several numbers of workers, and prints the table; 1 = right, -1 = it failed. */
static int compare(loader_t *l, arrival_t *a, arrival_t *arrived, cudaStream_t stream) {
    const unsigned all = std::thread::hardware_concurrency();
    const unsigned workers[] = {1, 2, 4, all, 0}; /* 0: no pipeline */
    double one = 0.0;
    for (unsigned k = 0; k < 5; ++k) {
        if (k == 3 && all <= 4) continue;
        const double took = seconds_of(l, workers[k], arrived, stream);
        if (took < 0.0) return -1;
        if (k == 0) one = took;
        SPIPE_CHECK(cudaMemcpy(a, arrived, ITEMS * sizeof *a, cudaMemcpyDeviceToHost));
        char what[32] = "no pipeline";
        if (workers[k]) snprintf(what, sizeof what, "%u worker%s", workers[k], k ? "s" : "");
        printf("%-13s%6.2f s%7.2f x\n", what, took, one / took);
        if (!all_right(l, a)) return 0;
    }
    return 1;
}

int main(int argc, char **argv) {
    static loader_t l;
    static arrival_t a[ITEMS];
    arrival_t *arrived;
    cudaStream_t stream;
    ex_begin();
    if (!pictures_make(&l.files, argc > 1 ? argv[1] : NULL)) return 1;
    SPIPE_CHECK(cudaMalloc((void **)&arrived, sizeof a));
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    printf("%d pictures of %d x %d, %d epochs in batches of %d\n", (int)PICTURES, (int)SIDE,
           (int)SIDE, (int)EPOCHS, (int)BATCH);
    if (WAIT_MS > 0)
        printf("decoding is modelled, %d ms of waiting for each picture; the seconds are real\n",
               (int)WAIT_MS);
    const int right = compare(&l, a, arrived, stream);
    for (unsigned e = 0; e < EPOCHS && right >= 0; ++e) {
        const arrival_t *at = a + e * PICTURES;
        printf("epoch %u begins with the pictures %u %u %u %u\n", e, at[0].picture, at[1].picture,
               at[2].picture, at[3].picture);
    }
    pictures_remove(&l.files);
    SPIPE_CHECK(cudaStreamDestroy(stream));
    SPIPE_CHECK(cudaFree(arrived));
    return right < 0 ? 1 : ex_verdict(right);
}
