/*  direct_reads.c -- how fast is a file read past the page cache? No GPU, nothing of the library.

    usage: direct_reads FOLDER [MIB [RUNS]]        make bench-direct FOLDER=/mnt/disk
    Writes a file of MIB MiB (1024) into FOLDER and reads it with 1 to 16 reads at once, by three
    ways in turn; a table of GB/s and, in brackets, seconds of CPU time a GB, medians of RUNS (5).
      block      threads read into a block of 1 MiB each, and copy from there
      straight   threads read straight into memory of their own
      io_uring   one thread has as many reads under way, where liburing is installed              */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_URING
#include <liburing.h>
#endif

enum {
    ALIGN = 4096,
    BLOCK = 1 << 20,
    SLOT = 4 << 20,
    MOST = 16, /* reads at once */
    MOST_RUNS = 99
};

enum {
    BY_BLOCK,
    STRAIGHT,
    URING,
    NUM_WAYS
};

static struct {
    int fd, block;
    size_t bytes, request; /* of one read */
    int depth;             /* reads at once */
    char *slots;           /* MOST of them */
    size_t next;           /* slot of the file */
    pthread_mutex_t lock;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double cpu_seconds(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

static char *aligned(size_t bytes) {
    void *p;
    if (posix_memalign(&p, 2 << 20, bytes) != 0) fail("memory");
    memset(p, 1, bytes);
    return (char *)p;
}

/* Reads one part of the file after another, whichever is next, into a slot of its own. */
static void *reader(void *slot) {
    char *block = all.block ? aligned(BLOCK) : NULL;
    for (;;) {
        size_t at, done;
        pthread_mutex_lock(&all.lock);
        at = SLOT * all.next++;
        pthread_mutex_unlock(&all.lock);
        if (at >= all.bytes) break;
        for (done = 0; done < SLOT; done += all.request) {
            char *to = (char *)slot + done;
            const ssize_t got = pread(all.fd, block ? block : to, all.request, (off_t)(at + done));
            if (got != (ssize_t)all.request) fail("pread");
            if (block) memcpy(to, block, all.request);
        }
    }
    free(block);
    return NULL;
}

static void read_by_threads(void) {
    pthread_t threads[MOST];
    int i;
    all.next = 0;
    for (i = 0; i < all.depth; ++i) {
        if (pthread_create(&threads[i], NULL, reader, all.slots + (size_t)i * SLOT)) fail("thread");
    }
    for (i = 0; i < all.depth; ++i) pthread_join(threads[i], NULL);
}

#ifdef WITH_URING
static void read_by_uring(void) {
    struct io_uring ring;
    size_t at = 0, done = 0;
    int under_way = 0;
    if (io_uring_queue_init(MOST, &ring, 0) != 0) fail("io_uring");
    while (done < all.bytes) {
        struct io_uring_cqe *ended;
        for (; under_way < all.depth && at < all.bytes; at += all.request, ++under_way) {
            char *to = all.slots + at % ((size_t)all.depth * SLOT);
            io_uring_prep_read(io_uring_get_sqe(&ring), all.fd, to, (unsigned)all.request, at);
        }
        io_uring_submit_and_wait(&ring, 1);
        for (; io_uring_peek_cqe(&ring, &ended) == 0; --under_way) {
            if (ended->res != (int)all.request) fail("io_uring read");
            done += all.request;
            io_uring_cqe_seen(&ring, ended);
        }
    }
    io_uring_queue_exit(&ring);
}
#else
static void read_by_uring(void) {}
#endif

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times, int n) {
    qsort(times, (size_t)n, sizeof *times, by_size);
    return times[n / 2];
}

static int has_way(int way) {
#ifndef WITH_URING
    if (way == URING) return 0;
#endif
    return way != BY_BLOCK || all.request <= BLOCK;
}

static void row(int runs) {
    static double took[NUM_WAYS][MOST_RUNS], used[NUM_WAYS][MOST_RUNS];
    const double gb = 1e-9 * (double)all.bytes;
    int k, w;
    for (k = 0; k < runs * NUM_WAYS; ++k) {
        const int way = (k + k / NUM_WAYS) % NUM_WAYS, run = k / NUM_WAYS;
        const double began = seconds(), cpu = cpu_seconds();
        if (!has_way(way)) continue;
        all.block = way == BY_BLOCK;
        if (way == URING)
            read_by_uring();
        else
            read_by_threads();
        took[way][run] = seconds() - began;
        used[way][run] = cpu_seconds() - cpu;
    }
    printf("| %zu MiB | %d |", all.request >> 20, all.depth);
    for (w = 0; w < NUM_WAYS; ++w) {
        if (has_way(w))
            printf(" %.2f (%.3f) |", gb / median(took[w], runs), median(used[w], runs) / gb);
        else
            printf(" - |");
    }
    printf("\n");
    fflush(stdout);
}

static void write_file(const char *path) {
    size_t at;
    const int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (fd < 0) fail(path);
    for (at = 0; at < all.bytes; at += SLOT) {
        if (write(fd, all.slots, SLOT) != SLOT) fail(path);
    }
    if (fsync(fd) != 0) fail(path);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

int main(int argc, char **argv) {
    const int runs = argc > 3 ? atoi(argv[3]) : 5;
    char path[4096];
    if (argc < 2 || runs < 1 || runs > MOST_RUNS) {
        fprintf(stderr, "usage: direct_reads FOLDER [MIB [RUNS]]\n");
        return 2;
    }
    all.bytes = (size_t)(argc > 2 ? atol(argv[2]) : 1024) << 20;
    all.bytes -= all.bytes % SLOT;
    all.slots = aligned((size_t)MOST * SLOT);
    (void)snprintf(path, sizeof path, "%s/direct_reads.tmp", argv[1]);
    write_file(path);
    all.fd = open(path, O_RDONLY | O_DIRECT);
    (void)unlink(path);
    if (all.fd < 0) fail("O_DIRECT");
    printf("GB/s (seconds of CPU time a GB), %zu MiB, medians of %d, %ld CPUs\n\n"
           "| a read | reads at once | block | straight | io_uring |\n"
           "| --- | --- | --- | --- | --- |\n",
           all.bytes >> 20, runs, sysconf(_SC_NPROCESSORS_ONLN));
    for (all.request = BLOCK; all.request <= SLOT; all.request *= SLOT / BLOCK) {
        for (all.depth = 1; all.depth <= MOST; all.depth *= 2) row(runs);
    }
    free(all.slots);
    close(all.fd);
    return 0;
}
