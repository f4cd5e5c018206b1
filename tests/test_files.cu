/*  test_files.cu -- files as inputs and outputs: every byte arrives, whatever the way to read,
    the size of an element, short reads and interrupted calls; a file is there whole or not at
    all; errors have the path and the byte. */
#ifndef _WIN32
#include "replaced.h"

#include "pipe_common.h"
#if defined(__HOSTCUDA__)
#include "hostcuda.h"
#endif
#include "streampipe_devices.h"

#include <atomic>

#include <dirent.h>
#include <errno.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* ---- What the system does to reads and writes ------------------------------------------------ */
static size_t bad_byte = (size_t)-1; /* a call that touches it fails ... */
static int bad_errno;                /* ... with this */
static int is_short;                 /* 1 = calls do a part, and are interrupted now and then */
static std::atomic<int> num_reads;   /* of more than a byte */
static int no_nameless;              /* 1 = the system has no nameless files */
static std::atomic<int> in_blocks, in_slots; /* reads past the page cache, of a MiB and of more */

static int fail_with(int number) {
    errno = number;
    return -1;
}

/* -1: the call fails; 0: it may do *n bytes. */
static int shortened(size_t *n, off_t at) {
    static __thread unsigned calls;
    const size_t from = (size_t)at;
    if (bad_byte >= from && bad_byte < from + *n) {
        if (bad_byte == from || !is_short) return fail_with(bad_errno);
        *n = bad_byte - from; /* what lies before it still comes */
    }
    if (is_short && ++calls % 3 == 0) return fail_with(EINTR);
    if (is_short && *n > 1) *n = *n / 2 + 1;
    return 0;
}

static ssize_t test_pread(int fd, void *to, size_t n, off_t at) {
    const ssize_t got = shortened(&n, at) ? -1 : pread(fd, to, n, at);
    num_reads += n > 1;
    if (got >= 1 << 20 && (fcntl(fd, F_GETFL) & O_DIRECT))
        ++(got == 1 << 20 ? in_blocks : in_slots);
    return got;
}

static ssize_t test_pwrite(int fd, const void *from, size_t n, off_t at) {
    return shortened(&n, at) ? -1 : pwrite(fd, from, n, at);
}

/* The library asks whether a nameless file could be given its name. */
static int test_access(const char *path, int mode) {
    return no_nameless ? fail_with(ENOENT) : access(path, mode);
}

static int no_direct; /* 1 = the file system refuses O_DIRECT */

static int test_open(const char *path, int flags, int mode) {
    return no_direct && (flags & O_DIRECT) ? fail_with(EINVAL) : open(path, flags, mode);
}

static int bad_close; /* the next close fails with this */

static int test_close(int fd) {
    const int number = bad_close, failed = close(fd);
    bad_close = 0;
    return number ? fail_with(number) : failed;
}

static char folder[] = "/tmp/streampipe_files.XXXXXX", in_name[128], out_name[128];

static unsigned char data[5 << 19], seen[5 << 19];

static void write_file(const char *name, size_t bytes) {
    FILE *f = fopen(name, "wb");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0) exit(99);
}

/* Bytes of a file, which are then in seen; -1 = it is not there. */
static long read_file(const char *name) {
    FILE *f = fopen(name, "rb");
    long n;
    if (!f) return -1;
    n = (long)fread(seen, 1, sizeof seen, f);
    fclose(f);
    return n;
}

static int num_in_folder(void) {
    DIR *dir = opendir(folder);
    int n = 0;
    while (dir && readdir(dir)) ++n;
    if (dir) closedir(dir);
    return n - 2; /* . and .. */
}

/* The output is the input with every byte turned round; user: another buffer comes first. */
static __global__ void turn(const unsigned char *x, unsigned char *y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = (unsigned char)~x[i];
}

static cudaError_t turn_stage(const spipe_chunk_t *c, void *user) {
    const int in = user != NULL;
    const size_t n = c->count * c->elem_bytes[in];
    return SPIPE_LAUNCH(turn, spipe_blocks(n, 256), 256, 0, c->stream,
                        (const unsigned char *)c->data[in], (unsigned char *)c->data[in + 1], n);
}

typedef struct world {
    spipe_file_t in, out;
    spipe_desc_t d;
    spipe_report_t r;
    spipe_failure_t f;
} world_t;

static cudaError_t begin(world_t *w, const char *from, const char *to) {
    w->d = spipe_desc_default();
    memset((void *)&w->in, 0, sizeof w->in);
    memset((void *)&w->out, 0, sizeof w->out);
    memset(&w->r, 0, sizeof w->r);
    SPIPE_TRY(spipe_file_open(&w->in, from, &w->f));
    return spipe_file_create(&w->out, to, &w->f);
}

static void add(world_t *w, size_t elem) {
    spipe_add_file_input(&w->d, &w->in, elem);
    spipe_add_file_output(&w->d, &w->out, elem);
    spipe_add_stage(&w->d, "turn", turn_stage, NULL);
}

static void end(world_t *w) {
    spipe_file_close(&w->in);
    spipe_file_close(&w->out);
}

static int turned(size_t from, size_t bytes) {
    size_t i;
    for (i = 0; i < bytes; ++i) {
        if (seen[i] != (unsigned char)~data[from + i]) return 0;
    }
    return 1;
}

static int says(const char *text, const char *a, const char *b) {
    return text && strstr(text, a) && strstr(text, b);
}

static void test_ways(spipe_file_way_t way, int shortened_calls) {
    static const char *const names[] = {"chosen", "cached", "direct", "in order", "cuFile"};
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 70000, (1 << 20) + 3};
    static const size_t elems[] = {1, 7, 4096};
    size_t k, wrong = 0;
    is_short = shortened_calls;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    const size_t step = 5; /* a run takes ten times as long */
#else
    const size_t step = 1;
#endif
    for (k = 0; k < 7 * 3 * 3; k += step) {
        const size_t bytes = sizes[k % 7], elem = elems[k / 7 % 3];
        const size_t part = k / 21, skip = part == 1 && bytes > 10 ? 5 : 0;
        const size_t used = part == 2 ? bytes / 2 : bytes - skip;
        world_t w;
        write_file(in_name, bytes);
        SPIPE_CHECK(begin(&w, in_name, out_name));
        w.in.way = way;
        w.in.offset = skip;
        w.in.length = used;
        if (elem * 16 < used) w.d.chunk = used / elem / 16;
        add(&w, elem);
        const cudaError_t e = spipe_run(&w.d, &w.r);
        const size_t last = used == 0 ? 0 : (used - 1) % elem + 1;
        const int good = e == cudaSuccess && w.in.bytes == used && w.in.last_bytes == last &&
                         read_file(out_name) == -1 &&
                         spipe_file_commit(&w.out, w.in.bytes, &w.f) == cudaSuccess &&
                         read_file(out_name) == (long)used && turned(skip, used);
        if (!good && wrong++ == 0) {
            tap_note("%zu bytes, elements of %zu, part %zu: %s %s", bytes, elem, part,
                     w.r.failure.message, w.f.message);
        }
        end(&w);
        (void)remove(out_name);
    }
    is_short = 0;
    tap_ok(wrong == 0 && num_in_folder() == 1, "%s%s: every byte arrives, nothing else is left",
           names[way], shortened_calls ? ", short and interrupted calls" : "");
}

/* ---- Parts of files -------------------------------------------------------------------------- */
/* Adds a part of a file of 1000 bytes, with what the user assigned; SIZE_MAX = nothing. */
static void test_part(spipe_file_way_t way, size_t offset, size_t bytes, size_t used,
                      const char *wrong) {
    world_t w;
    int again, good = 1;
    write_file(in_name, 1000);
    SPIPE_CHECK(begin(&w, in_name, out_name));
    for (again = 0; again < 2 && !wrong; ++again) { /* added anew it is read again */
        w.d = spipe_desc_default();
        w.in.way = way;
        if (offset != SIZE_MAX) w.in.offset = offset;
        if (bytes != SIZE_MAX) w.in.length = bytes;
        add(&w, 10);
        good &= spipe_run(&w.d, &w.r) == cudaSuccess && w.in.bytes == used;
    }
    if (!wrong) {
        good = good && spipe_file_commit(&w.out, used, NULL) == cudaSuccess;
        good = good && read_file(out_name) == (long)used && turned(w.in.offset, used);
        tap_ok(good, "way %d: from %zu on are %zu bytes, also if it is added again: %s", (int)way,
               w.in.offset, used, w.r.failure.message);
    } else {
        w.in.way = way;
        w.in.offset = offset;
        if (bytes != SIZE_MAX) w.in.length = bytes;
        const int added = spipe_add_file_input(&w.d, &w.in, 10);
        tap_ok(added == -1 && says(w.d.problem, in_name, wrong), "%s",
               w.d.problem ? w.d.problem : "");
    }
    end(&w);
    (void)remove(out_name);
}

static void test_parts(void) {
    static const spipe_file_way_t ways[] = {SPIPE_FILE_CACHED, SPIPE_FILE_ORDERED};
    size_t k;
    for (k = 0; k < 2; ++k) {
        test_part(ways[k], SIZE_MAX, SIZE_MAX, 1000, NULL);
        test_part(ways[k], 300, SIZE_MAX, 700, NULL);
        test_part(ways[k], SIZE_MAX, 77, 77, NULL);
        test_part(ways[k], 300, 77, 77, NULL);
        test_part(ways[k], 1000, SIZE_MAX, 0, NULL);
        test_part(ways[k], 1001, SIZE_MAX, 0, "ends before the offset");
        test_part(ways[k], 300, 701, 0, "ends before the last");
        test_part(ways[k], 300, SIZE_MAX - 5, 0, "ends before the last");
    }
}

/* Places behind 4 GiB, in files that hold nearly nothing. */
static void test_behind_4_gib(spipe_file_way_t way) {
    const uint64_t behind = ((uint64_t)1 << 32) - 5000;
    const size_t place = (size_t)behind, bytes = 20000;
    const int fd = open(in_name, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    world_t w;
    if (sizeof(off_t) < 8 || place != behind ||
        pwrite(fd, data, bytes, (off_t)place) != (ssize_t)bytes) {
        tap_skip("places behind 4 GiB", "the file system has no such files");
        (void)close(fd);
        return;
    }
    (void)close(fd);
    SPIPE_CHECK(begin(&w, in_name, out_name));
    const size_t whole = w.in.bytes;
    w.in.way = way;
    w.in.offset = place;
    w.out.offset = place + 1;
    add(&w, 10);
    const int right = spipe_run(&w.d, &w.r) == cudaSuccess && w.out.bytes == place + 1 + bytes &&
                      pread(w.out.fd, seen, bytes, (off_t)place + 1) == (ssize_t)bytes;
    tap_ok(right && whole == place + bytes && w.in.bytes == bytes && turned(0, bytes),
           "way %d: from byte %zu on of a file of %zu: %s", (int)way, place, whole,
           w.r.failure.message);
    end(&w);
}

/* One that says another length than it has, and a terminal's. */
static void test_of_the_system(void) {
    static const char *const names[] = {"/proc/self/status",
                                        "/sys/kernel/mm/transparent_hugepage/enabled",
                                        "/sys/class/net/lo/mtu"};
    size_t k;
    for (k = 0; k < 3; ++k) {
        const long bytes = read_file(names[k]);
        world_t w;
        if (bytes < 0) {
            tap_skip("a file of the system's", names[k]);
            continue;
        }
        SPIPE_CHECK(begin(&w, names[k], out_name));
        add(&w, 10);
        const cudaError_t e = spipe_run(&w.d, &w.r);
        tap_ok(e == cudaSuccess && w.in.bytes > 0 && (k == 0 || w.in.bytes == (size_t)bytes),
               "%s: %zu bytes, read in order: %s", names[k], w.in.bytes, w.r.failure.message);
        end(&w);
    }
}

/* ---- Pipes ----------------------------------------------------------------------------------- */
static void *feed_pipe(void *arg) {
    const size_t bytes = *(const size_t *)arg;
    FILE *f = fopen(in_name, "wb");
    if (f) (void)fwrite(data, 1, bytes, f);
    if (f) fclose(f);
    return NULL;
}

static void *drain_pipe(void *arg) {
    *(long *)arg = read_file(out_name);
    return NULL;
}

static void test_pipes(size_t bytes, size_t elem) {
    pthread_t feeder, drainer;
    long got = -2;
    world_t w;
    cudaError_t e;
    (void)remove(in_name);
    if (mkfifo(in_name, 0600) != 0 || mkfifo(out_name, 0600) != 0) exit(99);
    pthread_create(&feeder, NULL, feed_pipe, &bytes);
    pthread_create(&drainer, NULL, drain_pipe, &got);
    SPIPE_CHECK(begin(&w, in_name, out_name));
    add(&w, elem);
    tap_ok(w.d.count == SPIPE_AUTO && w.in.way == SPIPE_FILE_ORDERED, "a pipe has no length");
    w.in.offset = w.out.offset = 1;
    spipe_desc_t d = spipe_desc_default();
    const int in = spipe_add_file_input(&d, &w.in, 1);
    d = spipe_desc_default();
    const int out = spipe_add_file_output(&d, &w.out, 1);
    tap_ok(in == -1 && out == -1 && strstr(d.problem, "an offset"), "nor places: %s",
           d.problem ? d.problem : "");
    w.in.offset = w.out.offset = 0;
    e = spipe_run(&w.d, &w.r);
    if (e == cudaSuccess) e = spipe_file_commit(&w.out, SPIPE_AUTO, NULL);
    end(&w);
    pthread_join(feeder, NULL);
    pthread_join(drainer, NULL);
    tap_ok(e == cudaSuccess && w.in.bytes == bytes && turned(0, bytes) &&
               got == (long)((bytes + elem - 1) / elem * elem),
           "%zu bytes through two pipes: %ld come, %zu of the last element are the file's: %s",
           bytes, got, w.in.last_bytes, w.r.failure.message);
    (void)remove(in_name);
    (void)remove(out_name);
}

/* ---- Errors ---------------------------------------------------------------------------------- */
static void test_errors(int number, int writing, int short_calls) {
    static const size_t bytes[] = {0, 1, 9999, 10000, 65432, 99999};
    int k, good = 0;
    for (k = 0; k < 6; ++k) {
        char at[64];
        world_t w;
        write_file(in_name, 100000);
        SPIPE_CHECK(begin(&w, in_name, out_name));
        w.in.way = SPIPE_FILE_CACHED;
        w.d.chunk = 1000;
        add(&w, 10);
        if (writing) {
            const spipe_buffer_desc_t out = w.d.buffers[1];
            w.d.num_buffers = 0; /* only the output meets the error */
            spipe_add_input(&w.d, data, 10);
            w.d.buffers[w.d.num_buffers++] = out;
            w.d.count = 10000;
        }
        bad_byte = bytes[k];
        bad_errno = number;
        is_short = short_calls;
        /* Where calls do a part, all before the byte comes; else the chunk's call fails whole. */
        snprintf(at, sizeof at, "at byte %zu: %s",
                 short_calls ? bad_byte : bad_byte / 10000 * 10000, strerror(number));
        const cudaError_t e = spipe_run(&w.d, &w.r);
        bad_byte = (size_t)-1;
        is_short = 0;
        end(&w);
        const int ok = e == cudaErrorOperatingSystem && says(w.r.failure.message, at, folder) &&
                       w.r.failure.chunk == bytes[k] / 10000 &&
                       w.r.failure.chunks_whole == bytes[k] / 10000 && num_in_folder() == 1;
        if (!ok && good == k) tap_note("wanted %s: %s", at, w.r.failure.message);
        good += ok;
    }
    const char *doing = writing ? "writing" : "reading";
    tap_ok(good == k, "%s, %s%s: path and byte are said, and the file is not there", doing,
           strerror(number), short_calls ? ", short calls" : "");
}

static cudaError_t cut_stage(const spipe_chunk_t *c, void *user) {
    if (c->index == 0 && truncate(in_name, 50000) != 0) return cudaErrorUnknown;
    return turn_stage(c, user);
}

static void test_shrinks(spipe_file_way_t way) {
    world_t w;
    write_file(in_name, 100000);
    SPIPE_CHECK(begin(&w, in_name, out_name));
    w.in.way = way;
    w.d.chunk = 1000;
    w.d.depth = 2;
    add(&w, 10);
    w.d.stages[0].fn = cut_stage;
    const cudaError_t e = spipe_run(&w.d, &w.r);
    tap_ok(e == cudaErrorOperatingSystem && says(w.r.failure.message, "became shorter", in_name) &&
               says(w.r.failure.message, "at byte 50000", "chunk 5") &&
               w.r.failure.chunks_whole == 5,
           "a file that becomes shorter: %s", w.r.failure.message);
    end(&w);
}

static void test_limit(void) {
    struct rlimit was, least;
    world_t w;
    write_file(in_name, 100000);
    SPIPE_CHECK(begin(&w, in_name, out_name));
    getrlimit(RLIMIT_FSIZE, &was);
    least = was;
    least.rlim_cur = 30000;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &least);
    w.d.chunk = 1000;
    add(&w, 10);
    const cudaError_t e = spipe_run(&w.d, &w.r);
    setrlimit(RLIMIT_FSIZE, &was);
    tap_ok(e == cudaErrorOperatingSystem && says(w.r.failure.message, "writing", out_name) &&
               says(w.r.failure.message, "at byte 30000", strerror(EFBIG)),
           "no more may be written: %s", w.r.failure.message);
    end(&w);
    tap_ok(num_in_folder() == 1, "and nothing is left");
}

/* What a file system that writes later could not write. */
static void test_late_error(void) {
    world_t w;
    write_file(in_name, 100000);
    SPIPE_CHECK(begin(&w, in_name, out_name));
    add(&w, 10);
    SPIPE_CHECK(spipe_run(&w.d, &w.r));
    bad_close = EDQUOT;
    const cudaError_t e = spipe_file_commit(&w.out, SPIPE_AUTO, &w.f);
    tap_ok(e == cudaErrorOperatingSystem && says(w.f.message, out_name, strerror(EDQUOT)) &&
               read_file(out_name) == -1 && num_in_folder() == 1,
           "an error that is told late: %s", w.f.message);
    end(&w);
}

/* A disk that has no room, as its size is known before the run, or in the middle. */
static void test_small_disk(void) {
    char disk[128], small[160];
    world_t w;
    snprintf(disk, sizeof disk, "%s/disk", folder);
    snprintf(small, sizeof small, "%s/out", disk);
    write_file(in_name, 100000);
    if (mkdir(disk, 0700) != 0 || mount("none", disk, "tmpfs", 0, "size=64k") != 0) {
        tap_skip("a disk that fills", "no small file system can be mounted");
        (void)rmdir(disk);
        return;
    }
    SPIPE_CHECK(begin(&w, in_name, small));
    add(&w, 10);
    cudaError_t e = spipe_run(&w.d, &w.r);
    tap_ok(e == cudaErrorOperatingSystem && says(w.r.failure.message, "no space left", small),
           "a disk without room: %s", w.r.failure.message);
    end(&w);
    SPIPE_CHECK(begin(&w, in_name, small));
    w.d.chunk = 100;
    add(&w, 10);
    w.out.out.reserved = SIZE_MAX; /* as on a file system that reserves nothing */
    e = spipe_run(&w.d, &w.r);
    tap_ok(e == cudaErrorOperatingSystem && says(w.r.failure.message, small, strerror(ENOSPC)) &&
               w.r.failure.chunk == 65 && w.r.failure.chunks_whole == 65,
           "a disk that fills: %s", w.r.failure.message);
    end(&w);
    tap_ok(rmdir(small) != 0 && errno == ENOENT, "and nothing is left there");
    if (umount(disk) != 0 || rmdir(disk) != 0) exit(99);
}

static void test_full(void) {
    world_t w;
    write_file(in_name, 100000);
    SPIPE_CHECK(begin(&w, in_name, "/dev/full"));
    add(&w, 10);
    const cudaError_t e = spipe_run(&w.d, &w.r);
    tap_ok(e == cudaErrorOperatingSystem &&
               says(w.r.failure.message, "/dev/full", strerror(ENOSPC)),
           "a device that is full: %s", w.r.failure.message);
    end(&w);
}

static void test_opening(void) {
    char name[160];
    spipe_file_t f;
    spipe_failure_t why;
    cudaError_t e = spipe_file_open(&f, "/no/such/file", &why);
    tap_ok(e == cudaErrorOperatingSystem && says(why.message, "/no/such/file", strerror(ENOENT)),
           "%s", why.message);
    e = spipe_file_open(&f, folder, &why);
    tap_ok(e == cudaErrorOperatingSystem && says(why.message, folder, strerror(EISDIR)), "%s",
           why.message);
    e = spipe_file_create(&f, "/no/such/file", &why);
    tap_ok(e == cudaErrorOperatingSystem && says(why.message, "/no/such/file", strerror(ENOENT)),
           "%s", why.message);
    e = spipe_file_create(&f, folder, &why);
    tap_ok(e == cudaErrorOperatingSystem && says(why.message, folder, strerror(EISDIR)), "%s",
           why.message);
    tap_ok(spipe_file_open(&f, NULL, &why) == cudaErrorInvalidValue &&
               spipe_file_open(NULL, "x", &why) == cudaErrorInvalidValue,
           "NULL: %s", why.message);
    spipe_file_close(&f);
    spipe_file_close(&f);
    snprintf(name, sizeof name, "%s/closed", folder);
    spipe_desc_t d = spipe_desc_default();
    tap_ok(spipe_add_file_input(&d, &f, 1) == -1 && strstr(d.problem, "not open"), "closed: %s",
           d.problem ? d.problem : "");
    d = spipe_desc_default();
    SPIPE_CHECK(spipe_file_create(&f, name, NULL));
    tap_ok(spipe_add_file_input(&d, &f, 1) == -1 && strstr(d.problem, "to be written"), "%s",
           d.problem ? d.problem : "");
    spipe_file_close(&f);
    write_file(in_name, 100);
    SPIPE_CHECK(spipe_file_open(&f, in_name, NULL));
    d = spipe_desc_default();
    tap_ok(spipe_add_file_output(&d, &f, 1) == -1 && strstr(d.problem, "to be read"), "%s",
           d.problem ? d.problem : "");
    d = spipe_desc_default();
    d.count = 101;
    spipe_add_file_input(&d, &f, 1);
    spipe_add_stage(&d, "turn", turn_stage, NULL);
    tap_ok(spipe_desc_check(&d, &why) == cudaErrorInvalidValue &&
               says(why.message, "ends at byte 100", "up to byte 101"),
           "%s", why.message);
    tap_ok(spipe_file_commit(&f, SPIPE_AUTO, &why) == cudaErrorInvalidValue, "%s", why.message);
    spipe_file_close(&f);
}

/* A file that was closed or committed before a run, or is added twice: the run says so. */
static void test_gone(spipe_file_way_t way) {
    const char *told;
    world_t w;
    spipe_desc_t d;
    int k;
    write_file(in_name, 1 << 16);
    for (k = 0; k < 3; ++k) {
        spipe_pipeline_t *p;
        SPIPE_CHECK(begin(&w, in_name, out_name));
        w.in.way = w.out.way = way;
        add(&w, 16);
        d = w.d;
        d.num_stages = 0;
        spipe_add_stage(&d, "turn", turn_stage, NULL);
        spipe_add_file_input(&d, &w.in, 8);
        tap_ok(spipe_run(&d, &w.r) == cudaErrorInvalidValue &&
                   strstr(w.r.failure.message, "is a buffer already"),
               "added twice: %s", w.r.failure.message);
        SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
        if (k == 0) spipe_file_close(&w.in);
        if (k == 1) spipe_file_close(&w.out);
        if (k == 2) SPIPE_CHECK(spipe_pipeline_run(p, &w.r));
        if (k == 2) SPIPE_CHECK(spipe_file_commit(&w.out, SPIPE_AUTO, NULL));
        told = k < 2 ? "closed before" : "committed";
        tap_ok(spipe_pipeline_run(p, &w.r) != cudaSuccess && strstr(w.r.failure.message, told),
               "%s", w.r.failure.message);
        SPIPE_CHECK(spipe_pipeline_destroy(p));
        end(&w);
    }
    tap_ok(read_file(out_name) == 1 << 16 && turned(0, 1 << 16), "what was committed stays");
    (void)remove(out_name);
    memset((void *)&w.in, 0, sizeof w.in);
    d = spipe_desc_default();
    tap_ok(spipe_add_file_input(&d, &w.in, 1) == -1 && strstr(d.problem, "not open") &&
               spipe_file_commit(&w.in, 0, &w.f) == cudaErrorInvalidValue,
           "zeroed: %s; %s", d.problem ? d.problem : "", w.f.message);
}

/* A loop that pulls takes every chunk of a file; where the file ends too early, next has the
   sentence, and the chunks before are whole. */
static void test_pull(spipe_file_way_t way, int cut) {
    size_t taken = 0;
    spipe_pipeline_t *p;
    cudaStream_t stream;
    spipe_chunk_t c;
    world_t w;
    cudaError_t e;
    write_file(in_name, 100000);
    SPIPE_CHECK(begin(&w, in_name, out_name));
    w.in.way = way;
    w.d.chunk = 1000;
    w.d.depth = 2;
    add(&w, 10);
    w.d.num_stages = 0;
    SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
    SPIPE_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (;;) {
        e = spipe_pipeline_next(p, stream, &c);
        if (e != cudaSuccess || c.count == 0) break;
        SPIPE_CHECK(turn_stage(&c, NULL));
        SPIPE_CHECK(spipe_pipeline_release(p, stream));
        if (cut && taken == 0 && truncate(in_name, 50000) != 0) exit(99);
        ++taken;
    }
    const spipe_failure_t f = *spipe_pipeline_failure(p);
    if (cut) {
        tap_ok(e == cudaErrorOperatingSystem && taken <= 5 && f.chunk == 5 &&
                   f.chunks_whole == taken && says(f.message, "at byte 50000", in_name),
               "a loop that pulls, %zu chunks before the file ends: %s", taken, f.message);
    } else {
        const int right = e == cudaSuccess && taken == 10 &&
                          spipe_file_commit(&w.out, SPIPE_AUTO, NULL) == cudaSuccess &&
                          read_file(out_name) == 100000 && turned(0, 100000);
        tap_ok(right, "a loop that pulls a file, way %d: right", (int)way);
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(cudaStreamDestroy(stream));
    end(&w);
    (void)remove(out_name);
}

/* ---- Headers --------------------------------------------------------------------------------- */
static void test_header(void) {
    spipe_failure_t why;
    world_t w;
    int good;
    write_file(in_name, 50000);
    SPIPE_CHECK(begin(&w, in_name, out_name));
    w.out.offset = 13;
    add(&w, 10);
    SPIPE_CHECK(spipe_run(&w.d, &w.r));
    SPIPE_CHECK(spipe_file_write(&w.out, "thirteen byte", 13, 0, NULL));
    tap_ok(w.out.bytes == 50013, "an output with a header ends after it: %zu", w.out.bytes);
    SPIPE_CHECK(spipe_file_commit(&w.out, SPIPE_AUTO, NULL));
    good = read_file(out_name) == 50013 && memcmp(seen, "thirteen byte", 13) == 0;
    memmove(seen, seen + 13, 50000);
    tap_ok(good && turned(0, 50000), "and has both");
    tap_ok(spipe_file_write(&w.out, "x", 1, 0, &why) == cudaErrorInvalidValue &&
               spipe_file_write(&w.in, "x", 1, 0, NULL) == cudaErrorInvalidValue,
           "%s", why.message);
    end(&w);
    (void)remove(out_name);
}

/* Single small runs, shorter than a page, and longer. */
static void test_small(void) {
    static const size_t sizes[] = {1, 4097, 65536, 1 << 20};
    size_t k, wrong = 0;
    for (k = 0; k < 4; ++k) {
        world_t w;
        write_file(in_name, sizes[k]);
        SPIPE_CHECK(begin(&w, in_name, out_name));
        add(&w, 16);
        SPIPE_CHECK_RUN(&w.d, &w.r);
        SPIPE_CHECK(spipe_file_commit(&w.out, w.in.bytes, NULL));
        wrong += read_file(out_name) != (long)sizes[k] || !turned(0, sizes[k]);
        end(&w);
        (void)remove(out_name);
    }
    tap_ok(wrong == 0, "small files, once: right");
}

/* What was written to the disk and dropped from memory is read past the page cache. */
static void test_chosen(void) {
    world_t w;
    int fd, direct, k, cached = 0;
    write_file(in_name, sizeof data);
    SPIPE_CHECK(begin(&w, in_name, out_name));
    add(&w, 16);
    tap_ok(w.in.way_used == SPIPE_FILE_CACHED,
           "a file that was just written is read from the cache");
    end(&w);
    fd = open(in_name, O_RDONLY);
    (void)fsync(fd);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    SPIPE_CHECK(begin(&w, in_name, out_name));
    direct = open(in_name, O_RDONLY | O_DIRECT);
    if (direct < 0 || spipe_priv_file_is_cached(&w.in, 0, w.in.bytes)) {
        tap_skip("a cold file is read past the cache", "this file system keeps it, or has no such");
    } else {
        for (k = 0; k < 20; ++k) {
            usleep(2000);
            cached += spipe_priv_file_is_cached(&w.in, 0, w.in.bytes);
        }
        tap_ok(cached == 0, "asking about a cold file leaves it cold: cached %d times", cached);
        add(&w, 16);
        SPIPE_CHECK(spipe_run(&w.d, &w.r));
        tap_ok(w.in.way_used == SPIPE_FILE_DIRECT && strstr(w.r.why_staging, "O_DIRECT"),
               "a cold file is read past the cache: %s", w.r.why_staging);
    }
    if (direct >= 0) close(direct);
    close(fd);
    end(&w);
}

/* Past the cache: straight into the slot, where memory and place lie alike; else by way of a block,
   as both ends are. */
static void test_straight(size_t offset, size_t halo, size_t elem, size_t chunk, int wanted) {
    static unsigned beside[sizeof data / 64]; /* its part of a slot lies before the file's */
    const size_t used = sizeof data - offset - 77;
    world_t w;
    int right;
    write_file(in_name, sizeof data);
    SPIPE_CHECK(begin(&w, in_name, out_name));
    w.in.way = SPIPE_FILE_DIRECT;
    w.in.offset = offset;
    w.in.length = used;
    w.d.chunk = chunk; /* more than a block has */
    w.d.staging = SPIPE_STAGING_COPY;
    w.d.depth = 4;
    in_blocks = in_slots = 0;
    if (elem == 64) spipe_add_input(&w.d, beside, sizeof *beside);
    w.d.count = (used + elem - 1) / elem;
    add(&w, elem);
    w.d.stages[0].user = elem == 64 ? &w : NULL;
    if (halo > 0) spipe_set_halo(&w.d, 0, halo, halo, SPIPE_EDGE_CLAMP);
    right = spipe_run(&w.d, &w.r) == cudaSuccess;
    right = right && spipe_file_commit(&w.out, used, NULL) == cudaSuccess;
    right = right && read_file(out_name) == (long)used && turned(offset, used);
    if (w.in.way_used != SPIPE_FILE_DIRECT)
        tap_skip("read past the cache", "this file system keeps it, or has no such");
    else
        tap_ok(right &&
                   (w.in.direct.align > 512 || (in_slots == wanted && in_blocks >= 1 - wanted / 2)),
               "from byte %zu, elements of %zu, halo %zu: right, %d of 2 chunks straight into "
               "their slots",
               offset, elem, halo, wanted);
    end(&w);
    (void)remove(out_name);
}

static void test_no_direct(void) {
    world_t w;
    write_file(in_name, 100000);
    SPIPE_CHECK(begin(&w, in_name, out_name));
    w.in.way = SPIPE_FILE_DIRECT;
    no_direct = 1;
    add(&w, 10);
    no_direct = 0;
    const int right = spipe_run(&w.d, &w.r) == cudaSuccess &&
                      spipe_file_commit(&w.out, SPIPE_AUTO, NULL) == cudaSuccess &&
                      read_file(out_name) == 100000 && turned(0, 100000);
    tap_ok(right && w.in.way_used == SPIPE_FILE_CACHED, "a file system without O_DIRECT: %s",
           w.r.why_staging);
    end(&w);
    (void)remove(out_name);
}

/* Reading past the cache opens the file by its name again. */
static void test_other_file_of_that_name(void) {
    char moved[160];
    world_t w;
    FILE *other;
    int right;
    write_file(in_name, sizeof data);
    snprintf(moved, sizeof moved, "%s.moved", in_name);
    SPIPE_CHECK(begin(&w, in_name, out_name));
    (void)rename(in_name, moved);
    other = fopen(in_name, "wb");
    for (size_t k = 0; k < sizeof data; ++k) (void)fputc(7, other);
    fclose(other);
    w.in.way = SPIPE_FILE_DIRECT;
    add(&w, 16);
    right = spipe_run(&w.d, &w.r) == cudaSuccess;
    right = right && spipe_file_commit(&w.out, sizeof data, NULL) == cudaSuccess;
    right = right && read_file(out_name) == (long)sizeof data && turned(0, sizeof data);
    tap_ok(right && w.in.way_used == SPIPE_FILE_CACHED,
           "a file that was renamed while it was open is read from the cache: %s", w.r.why_staging);
    end(&w);
    (void)remove(moved);
    (void)remove(out_name);
}

/* ---- Names ----------------------------------------------------------------------------------- */
static void test_names(void) {
    char name[160];
    struct stat st;
    world_t w;
    /* The output is the input. */
    write_file(in_name, 100000);
    (void)chmod(in_name, 0640);
    SPIPE_CHECK(begin(&w, in_name, in_name));
    add(&w, 10);
    SPIPE_CHECK(spipe_run(&w.d, &w.r));
    tap_ok(read_file(in_name) == 100000 && memcmp(seen, data, 100000) == 0,
           "before the commit the input is as it was");
    SPIPE_CHECK(spipe_file_commit(&w.out, SPIPE_AUTO, NULL));
    tap_ok(read_file(in_name) == 100000 && turned(0, 100000) && stat(in_name, &st) == 0 &&
               (st.st_mode & 07777) == 0640 && num_in_folder() == 1,
           "after it, it is the output, with the mode it had");
    end(&w);
    /* A link stays a link. */
    write_file(in_name, 100000);
    snprintf(name, sizeof name, "%s/link", folder);
    write_file(out_name, 10);
    if (symlink(out_name, name) != 0) exit(99);
    SPIPE_CHECK(begin(&w, in_name, name));
    add(&w, 10);
    SPIPE_CHECK(spipe_run(&w.d, &w.r));
    SPIPE_CHECK(spipe_file_commit(&w.out, 99999, NULL));
    end(&w);
    tap_ok(lstat(name, &st) == 0 && S_ISLNK(st.st_mode) && read_file(out_name) == 99999 &&
               turned(0, 99999),
           "a link stays a link, and what it points to is written, cut to the length asked for");
    (void)remove(name);
    (void)remove(out_name);
}

/* Without nameless files an output has a temporary name. What lies there is somebody else's: a link
   is not followed, and the next name is taken. */
static void test_temporary_name(void) {
    char part[192], other[128];
    struct stat st;
    world_t w;
    int k, good;
    snprintf(part, sizeof part, "%s.%ld.0.part", out_name, (long)getpid());
    snprintf(other, sizeof other, "%s/other", folder);
    no_nameless = 1;
    for (k = 0; k < 2; ++k) { /* a link to a file, and one that leads nowhere */
        write_file(in_name, 100000);
        if (k == 0) write_file(other, 10);
        if (symlink(other, part) != 0) exit(99);
        SPIPE_CHECK(begin(&w, in_name, out_name));
        add(&w, 10);
        SPIPE_CHECK(spipe_run(&w.d, &w.r));
        good = !w.out.nameless && read_file(out_name) == -1;
        SPIPE_CHECK(spipe_file_commit(&w.out, SPIPE_AUTO, NULL));
        end(&w);
        good &= read_file(out_name) == 100000 && turned(0, 100000);
        good &= lstat(part, &st) == 0 && S_ISLNK(st.st_mode);
        good &=
            k == 0 ? read_file(other) == 10 && memcmp(seen, data, 10) == 0 : read_file(other) == -1;
        (void)remove(out_name);
        (void)remove(other);
        SPIPE_CHECK(begin(&w, in_name, out_name));
        end(&w);
        (void)remove(part);
        tap_ok(good && num_in_folder() == 1,
               "a temporary name: a link to %s there is not followed, and no part is left",
               k == 0 ? "a file" : "nothing");
    }
    no_nameless = 0;
}

/* A program that is killed while it writes leaves no file behind, where the system has nameless
   ones. */
static void test_killed(void) {
    int status;
    const pid_t child = fork();
    if (child == 0) {
        spipe_file_t f;
        if (spipe_file_create(&f, out_name, NULL) != cudaSuccess) _exit(1);
        if (!f.nameless) spipe_file_close(&f);
        if (f.fd < 0) _exit(2);
        kill(getpid(), SIGKILL);
    }
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
        tap_skip("a program that is killed leaves nothing", "the system has no nameless files");
    else
        tap_ok(WIFSIGNALED(status) && num_in_folder() == 1,
               "a program that is killed leaves nothing");
}

static void test_again(void) {
    static const int list[3] = {0, 0, 0};
    spipe_pipeline_t *p;
    world_t w;
    int k, good = 1;
    write_file(in_name, 1 << 20);
    SPIPE_CHECK(begin(&w, in_name, out_name));
    add(&w, 16);
    SPIPE_CHECK(spipe_pipeline_create(&p, &w.d, NULL));
    for (k = 0; k < 12; ++k) good &= spipe_pipeline_run(p, &w.r) == cudaSuccess;
    tap_ok(good && strstr(w.r.why_staging, "page cache"), "read twelve times: %s", w.r.why_staging);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(spipe_file_commit(&w.out, SPIPE_AUTO, NULL));
    end(&w);
    tap_ok(read_file(out_name) == 1 << 20 && turned(0, 1 << 20), "and written");
    SPIPE_CHECK(begin(&w, in_name, out_name));
    spipe_devices_list(&w.d, list, 3);
    w.d.chunk = 1000;
    w.in.way = SPIPE_FILE_CACHED;
    add(&w, 16);
    num_reads = 0;
    SPIPE_CHECK(spipe_run(&w.d, &w.r));
    SPIPE_CHECK(spipe_file_commit(&w.out, SPIPE_AUTO, NULL));
    end(&w);
    tap_ok(read_file(out_name) == 1 << 20 && turned(0, 1 << 20) && num_reads == 66,
           "three GPUs share a file, and each of 66 chunks is read once: %d reads",
           num_reads.load());
    (void)remove(out_name);
}

int main(void) {
    size_t i;
    replaced.access = test_access;
    replaced.close = test_close;
    replaced.open = test_open;
    replaced.pread = test_pread;
    replaced.pwrite = test_pwrite;
    if (!mkdtemp(folder)) exit(99);
    snprintf(in_name, sizeof in_name, "%s/in", folder);
    snprintf(out_name, sizeof out_name, "%s/out", folder);
    for (i = 0; i < sizeof data; ++i) data[i] = (unsigned char)pipe_random();
    test_ways(SPIPE_FILE_AUTO, 0);
    test_ways(SPIPE_FILE_CACHED, 1);
    test_ways(SPIPE_FILE_DIRECT, 0);
    test_ways(SPIPE_FILE_ORDERED, 0);
#if !defined(__HOSTCUDA__) /* cuFile knows no memory of hostcuda's; see tests/host/test_cufile.cu */
    if (pipe_sanitized())  /* memcheck would report 64 KiB that NVIDIA's library keeps */
        tap_skip("files by cuFile", "compute-sanitizer looks at NVIDIA's library, too");
    else
        test_ways(SPIPE_FILE_GPU, 0);
#endif
    test_header();
    test_parts();
    test_behind_4_gib(SPIPE_FILE_CACHED);
    test_behind_4_gib(SPIPE_FILE_DIRECT);
    test_behind_4_gib(SPIPE_FILE_ORDERED);
    test_of_the_system();
    test_small();
    test_chosen();
    test_straight(0, 0, 64, 20544, 2);
    test_straight(8192, 0, 1, 5 << 18, 2);
    test_straight(0, 3, 4096, 320, 2);    /* a halo of whole pages */
    test_straight(100, 0, 128, 10240, 0); /* places that are not of whole pages */
    test_straight(0, 5, 1000, 1310, 1);   /* in the first chunk, no other */
    test_no_direct();
    test_other_file_of_that_name();
    test_names();
    test_temporary_name();
    test_killed();
    test_again();
    test_errors(EIO, 0, 0);
    test_errors(EIO, 0, 1);
    test_errors(ENOSPC, 1, 0);
    test_errors(ENOSPC, 1, 1);
    test_shrinks(SPIPE_FILE_CACHED);
    test_shrinks(SPIPE_FILE_DIRECT);
    test_pull(SPIPE_FILE_CACHED, 0);
    test_pull(SPIPE_FILE_DIRECT, 0);
    test_pull(SPIPE_FILE_ORDERED, 0);
    test_pull(SPIPE_FILE_CACHED, 1);
    test_limit();
    test_late_error();
    test_small_disk();
    test_full();
    test_opening();
    test_gone(SPIPE_FILE_CACHED);
    test_gone(SPIPE_FILE_DIRECT);
    test_gone(SPIPE_FILE_ORDERED);
    test_pipes(100000, 1);
    test_pipes(12345, 100);
    (void)rmdir(folder);
    return tap_done();
}
#else
#include "tap.h"

int main(void) {
    tap_skip("files", "this test makes its files with POSIX calls");
    return tap_done();
}
#endif
