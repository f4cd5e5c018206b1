/*  mpi_stream.cu -- ranks share one large file: each streams its part through its GPU.

    make build/cuda/examples/mpi_stream BACKEND=cuda ARCH=sm_90
    mpirun -n 4 build/cuda/examples/mpi_stream big.bin scrambled.bin --check
    You learn   a part of a file is a source and a sink at an offset. MPI-IO reads and writes there
                independently, so no rank waits for another. Each GPU keeps counts in a resident
                buffer, and MPI_Reduce adds them up. Rank r of a host takes GPU r modulo the number
                of GPUs.
    Mind        sources and sinks run on library threads, so this needs MPI_THREAD_MULTIPLE or
                threads = 0. After the run all ranks agree on whether it succeeded. A rank that has
                failed takes part, too: if it left, the others would wait for ever.
    Options     --chunk BYTES, --parts 3,1,0,2 (weights, one a rank; equal without), --check: every
                rank compares its part with the CPU. For tests: --fail RANK, --die RANK.
    Expect      (hostcuda; reading and writing the disk takes no modelled time)
                1 ranks, 16 chunks of 65536 bytes: 1048573 bytes, entropy 7.9998 bits a byte
                1.068 ms, 0.98 GB/s each way, on GPUs 0 to 0 of a host; times are modelled
                right: the CPU finds the same                                                     */
#include "ex_common.h"

#if !defined(__has_include) || !__has_include(<mpi.h>)
int main(void) {
    fprintf(stderr, "built without MPI: there is no mpicc (Debian: libopenmpi-dev), or this is an "
                    "instrumented build, which MPI is not\n");
    return 77;
}
#else
#define OMPI_SKIP_MPICXX  1
#define MPICH_SKIP_MPICXX 1
#include <math.h>
#include <mpi.h>
#include <unistd.h>
#include <vector>

typedef struct part { /* the part of the file that one rank does */
    MPI_File in, out;
    MPI_Offset first, at, count;
    int rank, ranks, fail, die, calls;
    char why[MPI_MAX_ERROR_STRING + 64];
} part_t;

typedef struct options {
    const char *in, *out;
    size_t chunk;
    std::vector<double> weights;
    const char *why; /* why this rank cannot run; NULL = it can */
    int check, fail, die;
} options_t;

static __global__ void scramble(const unsigned char *x, unsigned char *y,
                                unsigned long long *counts, size_t n) {
    const size_t step = (size_t)blockDim.x * gridDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += step) {
        y[i] = (unsigned char)(x[i] * 167u + 13u);
        atomicAdd(&counts[x[i]], 1ull);
    }
}

static cudaError_t scramble_stage(const spipe_chunk_t *c, void *user) {
    const unsigned blocks = spipe_blocks(c->count, 256);
    (void)user;
    return SPIPE_LAUNCH(scramble, blocks < 2048 ? blocks : 2048u, 256, 0, c,
                        SPIPE_BUF(c, 0, const unsigned char), SPIPE_BUF(c, 1, unsigned char),
                        SPIPE_BUF(c, 2, unsigned long long), c->count);
}

/* Keeps MPI's message, for the sentence on failure. */
static cudaError_t mpi_did(part_t *p, int e, const char *what) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    if (e == MPI_SUCCESS) return cudaSuccess;
    (void)MPI_Error_string(e, text, &n);
    snprintf(p->why, sizeof p->why, "%s: %s", what, text);
    return cudaErrorOperatingSystem;
}

static cudaError_t read_part(spipe_part_t *part, void *user) {
    part_t *p = (part_t *)user;
    const MPI_Offset left = p->first + p->count - p->at, room = (MPI_Offset)part->count;
    const MPI_Offset most = left < room ? left : room;
    MPI_Status status;
    int n = 0;
    part->count = 0;
    if (most == 0) return cudaSuccess;
    SPIPE_TRY(mpi_did(p,
                      MPI_File_read_at(p->in, p->at, part->data,
                                       most < INT_MAX ? (int)most : INT_MAX, MPI_BYTE, &status),
                      "reading"));
    SPIPE_TRY(mpi_did(p, MPI_Get_count(&status, MPI_BYTE, &n), "reading"));
    p->at += n;
    part->count = (size_t)n; /* 0 too early: the file became shorter, and the run says so */
    return cudaSuccess;
}

static cudaError_t write_part(const spipe_part_t *part, void *user) {
    part_t *p = (part_t *)user;
    MPI_Status status;
    if (++p->calls > 1 && p->rank == p->die) abort();
    if (p->calls > 1 && p->rank == p->fail) {
        snprintf(p->why, sizeof p->why, "told to fail");
        return cudaErrorOperatingSystem;
    }
    return mpi_did(p,
                   MPI_File_write_at(p->out, p->first + (MPI_Offset)part->first, part->data,
                                     (int)part->count, MPI_BYTE, &status),
                   "writing");
}

/* Shares out whole chunks by weight, in the order of the ranks; some may get none. */
static void choose_part(part_t *p, MPI_Offset bytes, const options_t *o) {
    const MPI_Offset size = (MPI_Offset)o->chunk, chunks = (bytes + size - 1) / size;
    double all = 0, before = 0, own = 0;
    for (int r = 0; r < p->ranks; ++r) {
        const double w = o->weights.empty() ? 1.0 : o->weights[(size_t)r];
        if (r < p->rank) before += w;
        if (r == p->rank) own = w;
        all += w;
    }
    const MPI_Offset first = (MPI_Offset)((double)chunks * (before / all) + 0.5);
    const MPI_Offset end = (MPI_Offset)((double)chunks * ((before + own) / all) + 0.5);
    p->first = p->at = first * size < bytes ? first * size : bytes;
    p->count = (end * size < bytes ? end * size : bytes) - p->first;
}

static cudaError_t stream_part(part_t *p, const options_t *o, int threaded,
                               unsigned long long *counts, spipe_report_t *r) {
    spipe_desc_t d = spipe_desc_default();
    memset(r, 0, sizeof *r);
    memset(counts, 0, 256 * sizeof *counts);
    if (p->count == 0) return cudaSuccess; /* more ranks than chunks */
    d.count = (size_t)p->count;
    d.chunk = o->chunk;
    if (!threaded) d.threads = 0;
    spipe_add_source(&d, read_part, p, 1, SPIPE_IN_ORDER);
    spipe_add_sink(&d, write_part, p, 1, SPIPE_IN_ORDER);
    spipe_add_resident(&d, counts, 256 * sizeof *counts, SPIPE_DOWNLOAD);
    spipe_add_stage(&d, "scramble", scramble_stage, NULL);
    return spipe_run(&d, r);
}

/* Reads the part back and does it again on the CPU. */
static int is_right(part_t *p, const unsigned long long *counts) {
    unsigned long long again[256] = {0};
    std::vector<unsigned char> x(1 << 20), y(1 << 20);
    for (MPI_Offset at = p->first; at < p->first + p->count; at += 1 << 20) {
        const MPI_Offset left = p->first + p->count - at;
        const int n = left < 1 << 20 ? (int)left : 1 << 20;
        MPI_Status s;
        if (MPI_File_read_at(p->in, at, x.data(), n, MPI_BYTE, &s) != MPI_SUCCESS) return 0;
        if (MPI_File_read_at(p->out, at, y.data(), n, MPI_BYTE, &s) != MPI_SUCCESS) return 0;
        for (int i = 0; i < n; ++i) {
            if (y[(size_t)i] != (unsigned char)(x[(size_t)i] * 167u + 13u)) return 0;
            ++again[x[(size_t)i]];
        }
    }
    return memcmp(again, counts, sizeof again) == 0;
}

static double entropy(const unsigned long long *counts, double all) {
    double bits = 0;
    for (int i = 0; i < 256; ++i) {
        if (counts[i]) bits -= (double)counts[i] / all * log2((double)counts[i] / all);
    }
    return bits;
}

/* The GPU for this rank: by its number among the ranks of its host. */
static cudaError_t choose_gpu(void) {
    MPI_Comm host;
    int local = 0, gpus = 0;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &local);
    MPI_Comm_free(&host);
    SPIPE_TRY(cudaGetDeviceCount(&gpus));
    return gpus > 0 ? cudaSetDevice(local % gpus) : cudaErrorNoDevice;
}

/* 0 when all ranks say so. */
static int agree(int bad) {
    int any = 0;
    MPI_Allreduce(&bad, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return any;
}

static int open_files(part_t *p, const options_t *o, MPI_Offset *bytes) {
    int bad = MPI_File_open(MPI_COMM_WORLD, (char *)o->in, MPI_MODE_RDONLY, MPI_INFO_NULL, &p->in);
    if (agree(bad != MPI_SUCCESS)) {
        if (p->rank == 0) fprintf(stderr, "mpi_stream: %s cannot be read\n", o->in);
        return 0;
    }
    bad = MPI_File_open(MPI_COMM_WORLD, (char *)o->out, MPI_MODE_RDWR | MPI_MODE_CREATE,
                        MPI_INFO_NULL, &p->out);
    if (agree(bad != MPI_SUCCESS)) {
        if (p->rank == 0) fprintf(stderr, "mpi_stream: %s cannot be written\n", o->out);
        return 0;
    }
    return MPI_File_get_size(p->in, bytes) == MPI_SUCCESS &&
           MPI_File_set_size(p->out, *bytes) == MPI_SUCCESS;
}

static int work(part_t *p, const options_t *o, int threaded) {
    unsigned long long counts[256], all[256];
    MPI_Offset bytes = 0;
    spipe_report_t r;
    double begin = 0, all_ms = 0;
    int bad = choose_gpu() != cudaSuccess, gpu = -1;
    if (agree(bad)) {
        if (bad) fprintf(stderr, "mpi_stream: rank %d has no GPU to use\n", p->rank);
        return 1;
    }
    if (!open_files(p, o, &bytes)) return 1;
    choose_part(p, bytes, o);
    SPIPE_CHECK(cudaFree(NULL)); /* CUDA's own beginning is not what is timed */
    SPIPE_CHECK(cudaGetDevice(&gpu));
    MPI_Barrier(MPI_COMM_WORLD);
    begin = ex_now_ms();
    bad = stream_part(p, o, threaded, counts, &r) != cudaSuccess;
    if (bad) {
        fprintf(stderr, "mpi_stream: rank %d: %s%s%s; bytes %lld to %lld of the output are whole\n",
                p->rank, r.failure.message, p->why[0] ? ": " : "", p->why, (long long)p->first,
                (long long)p->first + (long long)(r.failure.chunks_whole * o->chunk));
    }
    all_ms = ex_now_ms() - begin;
    bad = agree(bad); /* before the first call that all ranks make */
    MPI_Allreduce(MPI_IN_PLACE, &all_ms, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &gpu, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Reduce(counts, all, 256, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (!bad && o->check) bad = agree(!is_right(p, counts)) ? 2 : 0;
    if (p->rank == 0 && !bad) {
        printf("%d ranks, %lld chunks of %zu bytes: %lld bytes, entropy %.4f bits a byte\n",
               p->ranks, ((long long)bytes + (long long)o->chunk - 1) / (long long)o->chunk,
               o->chunk, (long long)bytes, bytes > 0 ? entropy(all, (double)bytes) : 0.0);
        printf("%.3f ms, %.2f GB/s each way, on GPUs 0 to %d of a host; times are " EX_TIMES "\n",
               all_ms, (double)bytes / all_ms * 1e-6, gpu);
    }
    if (p->rank == 0 && bad == 1) fprintf(stderr, "mpi_stream: the output is not whole\n");
    if (p->rank == 0 && o->check && bad != 1) (void)ex_verdict(!bad);
    MPI_File_close(&p->in);
    MPI_File_close(&p->out);
    return bad != 0;
}

/* A file to try it with, made by the first rank. */
static void make_file(const char *path) {
    FILE *f = fopen(path, "wb");
    unsigned x = 1;
    for (int i = 0; f && i < 1048573; ++i) {
        x = x * 1664525u + 1013904223u;
        fputc((int)(x >> 24), f);
    }
    if (!f || fclose(f) != 0) fprintf(stderr, "mpi_stream: %s cannot be made\n", path);
}

/* Numbers, a comma between two; 0 = not a weight for each rank, or nothing to divide by. */
static int read_weights(const char *at, size_t ranks, std::vector<double> *weights) {
    double all = 0;
    for (weights->clear();; ++at) {
        char *end;
        const double weight = strtod(at, &end);
        if (end == at || !(weight >= 0)) return 0; /* NaN is not >= 0 */
        weights->push_back(weight);
        all += weight;
        at = end;
        if (*at != ',') return !*at && weights->size() == ranks && all > 0 && all < HUGE_VAL;
    }
}

static int arguments(int argc, char **argv, options_t *o, int ranks) {
    for (int i = 1; i < argc; ++i) {
        const char *a = argv[i];
        if (!strcmp(a, "--check"))
            o->check = 1;
        else if (a[0] != '-' && !o->in)
            o->in = a;
        else if (a[0] != '-' && !o->out)
            o->out = a;
        else if (a[0] != '-' || ++i == argc)
            return 0;
        else if (!strcmp(a, "--chunk"))
            o->chunk = (size_t)strtoull(argv[i], NULL, 10);
        else if (!strcmp(a, "--fail"))
            o->fail = atoi(argv[i]);
        else if (!strcmp(a, "--die"))
            o->die = atoi(argv[i]);
        else if (strcmp(a, "--parts") != 0)
            return 0;
        else if (!read_weights(argv[i], (size_t)ranks, &o->weights)) {
            o->why = "--parts wants a finite weight for each rank: 0 or more, and one above 0";
            return 0;
        }
    }
    return (!o->in || o->out) && o->chunk > 0 && o->chunk <= INT_MAX;
}

int main(int argc, char **argv) {
    static char in[512], out[512];
    part_t p = part_t();
    options_t o = options_t();
    int provided = MPI_THREAD_SINGLE, status;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &p.ranks);
    o.chunk = (size_t)8 << 20;
    o.fail = o.die = -1;
    if (!arguments(argc, argv, &o, p.ranks)) {
        if (p.rank == 0) {
            if (o.why) fprintf(stderr, "mpi_stream: %s\n", o.why);
            fprintf(stderr, "usage: mpi_stream [in out] [--chunk bytes] [--parts 3,1,0,2] "
                            "[--check]\n");
        }
        MPI_Finalize();
        return 2;
    }
    p.fail = o.fail;
    p.die = o.die;
    if (!o.in) { /* no arguments: make a small file */
        const char *folder = getenv("TMPDIR");
        int pid = (int)getpid();
        MPI_Bcast(&pid, 1, MPI_INT, 0, MPI_COMM_WORLD);
        snprintf(in, sizeof in, "%.400s/mpi_stream.%d.in", folder ? folder : "/tmp", pid);
        snprintf(out, sizeof out, "%.400s/mpi_stream.%d.out", folder ? folder : "/tmp", pid);
        o.in = in;
        o.out = out;
        o.chunk = o.chunk == (size_t)8 << 20 ? 65536 : o.chunk;
        o.check = 1;
        if (p.rank == 0) make_file(in);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    status = work(&p, &o, provided == MPI_THREAD_MULTIPLE);
    if (in[0] && p.rank == 0) {
        (void)remove(in);
        (void)remove(out);
    }
    MPI_Finalize();
    return status;
}
#endif
