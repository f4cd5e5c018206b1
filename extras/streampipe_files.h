/*  streampipe_files.h 0.2.0 -- files as inputs and outputs of a pipeline.

    All threads of a run read and write a regular file, each at its own place, so that the data
    reach the GPU as fast as memory and disk allow. A pipe, a terminal or a device is read or
    written in order. For C99 (with POSIX names: -std=gnu99), C++11 and CUDA C++. MIT licence.
    Optional: programs without files need only streampipe.h.

    USE IT   copy it beside streampipe.h and #include it. There is nothing to define or to link.

    A COMPLETE PROGRAM       gcc -std=gnu99 copyfile.c -lcudart -lpthread
BEGIN EXAMPLE copyfile.c
    #include "streampipe_files.h"

    static cudaError_t keep(const spipe_chunk_t *c, void *user) {
        (void)user;   // a stage without a kernel: the output is the input
        return cudaMemcpyAsync(c->data[1], c->data[0], c->count * c->elem_bytes[0],
                               cudaMemcpyDeviceToDevice, c->stream);
    }
    int main(int argc, char **argv) {
        spipe_file_t in, out;
        spipe_report_t report;
        spipe_failure_t failure;
        spipe_desc_t d = spipe_desc_default();
        cudaError_t e = spipe_file_open(&in, argc > 1 ? argv[1] : argv[0], &failure);
        if (e == cudaSuccess)
            e = spipe_file_create(&out, argc > 2 ? argv[2] : "a_copy", &failure);
        if (e != cudaSuccess) {
            fprintf(stderr, "%s\n", failure.message);
            return 1;
        }
        spipe_add_file_input(&d, &in, 4096);   // how many follows from the file
        spipe_add_file_output(&d, &out, 4096);
        spipe_add_stage(&d, "keep", keep, NULL);
        SPIPE_CHECK_RUN(&d, &report);
        SPIPE_CHECK(spipe_file_commit(&out, in.bytes, NULL));   // now it is there, and whole
        spipe_file_close(&in);
        spipe_file_close(&out);
        spipe_report_print(&report, stdout);
        return 0;
    }
END EXAMPLE

    RULES
      Elements    The file is a sequence of elements. If its end is too short for a whole element,
                  the rest is zeros, and last_bytes says how many bytes are the file's. A count
                  that needs more elements is refused.
      Count       Without d.count as many elements run as the file has. Two files of different
                  lengths, or an array beside a file, need d.count.
      Members     Assign way, offset and length before you add the file. Adding it reads them, and
                  the run keeps what they were: with other values add it to another description.
      Runs        Each run reads from offset on, also in order; a pipe can be read by one run only.
                  Any number of runs at once may read the same part of a file that has places.
                  Other runs at once are refused: what one writes or reads in order, or two parts
                  of one open file.
      Outputs     The file appears under its name when you commit it, whole, and replaces an old
                  one. Until then it has no name or, on systems without nameless files, that name
                  with ".part". So an output may replace the file that is read. commit refuses if
                  the run that wrote it failed. A name that cannot be replaced, as it is a mount, is
                  written over at the commit. "-", and a name of a descriptor of this process, such
                  as /dev/stdout or /dev/fd/5, is written in order, at its place, during the run.
      Cold files  A part that is not in the page cache is read past it (O_DIRECT), which takes less
                  CPU time; a part that is there is copied from it. Assign way to choose. In C,
                  O_DIRECT needs _GNU_SOURCE. If offset and chunk are whole pages, the file is read
                  straight into pinned memory; else it is copied once more.
      cuFile      With way = SPIPE_FILE_GPU, cuFile (GPUDirect Storage) reads an input into device
                  memory, without pinned memory and copies; such an input cannot have a halo. The
                  library is looked for when you add the file. If it is missing or refuses the file,
                  another way is chosen, and the report says so. cuFile is never chosen
                  automatically, because disk and driver decide whether it is faster.
      Failures    If a file becomes shorter or ends too early, a disk fills up or a device has an
                  error, the run fails with a sentence that has the path and the byte.

    CONTENTS (search for the anchor)
      1  >>files   open, create, add, write, commit, close
*/
#ifndef STREAMPIPE_FILES_H
#define STREAMPIPE_FILES_H

#include "streampipe.h"
#if SPIPE_VERSION != 200
#error "streampipe_files.h 0.2.0 needs streampipe.h 0.2.0: copy both from the same release"
#endif

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#if !defined(SPIPE_NO_THREADS)
#include <pthread.h>
#endif
#if !defined(_WIN32)
#include <poll.h>
#endif
#if defined(__linux__)
#include <dlfcn.h>
#include <sys/mman.h> /* mincore */
#include <sys/uio.h>  /* preadv2 */
#endif

/* ============================================================================================
   >>api    every public type and function
   ============================================================================================ */

/* ---- 1 >>files ----------------------------------------------------------------------------- */
/* How a file is read or written. */
typedef enum spipe_file_way {
    SPIPE_FILE_AUTO = 0,
    SPIPE_FILE_CACHED,  /* through the page cache, by all threads, each at its own place */
    SPIPE_FILE_DIRECT,  /* inputs: past the page cache, likewise */
    SPIPE_FILE_ORDERED, /* front to back: pipes, terminals, devices */
    SPIPE_FILE_GPU      /* inputs: into device memory, by cuFile; see RULES */
} spipe_file_way_t;

/* The functions of cuFile that are used, and cuFile's handle for the file. */
typedef struct spipe_priv_cufile_error {
    int error, cuda;
} spipe_priv_cufile_error_t;

typedef struct spipe_priv_cufile_file {
    int type;

    union {
        int fd;
        void *other;
    } handle;

    const void *operations;
} spipe_priv_cufile_file_t;

typedef struct spipe_priv_cufile {
    spipe_priv_cufile_error_t (*open)(void);
    spipe_priv_cufile_error_t (*enter)(void **handle, spipe_priv_cufile_file_t *file);
    void (*leave)(void *handle);
    ssize_t (*read)(void *handle, void *base, size_t bytes, off_t at, off_t from_base);
    void *handle; /* NULL = the file is not registered with cuFile */
} spipe_priv_cufile_t;

/* Why a thread's last call failed; each thread writes and reads its own. */
typedef struct spipe_priv_file_words {
    struct spipe_priv_file_words *next;
#if !defined(SPIPE_NO_THREADS)
    pthread_t thread;
#endif
    char text[256];
} spipe_priv_file_words_t;

/* For reading past the page cache. */
typedef struct spipe_priv_direct {
    int fd;       /* another descriptor; -1 = none */
    size_t align; /* alignment of offsets, lengths and memory, in bytes */
    void *bounce; /* a list of aligned memory */
} spipe_priv_direct_t;

/* The part of a file that the runs under way have. */
typedef struct spipe_priv_file_run {
    size_t offset, bytes, elem_bytes; /* bytes SPIPE_AUTO = to its end, which is not known */
    size_t got;                       /* bytes that were read in order */
    int num;                          /* runs under way */
    int alone;                        /* 1 = no other run may begin */
    int ended;                        /* 1 = its end was met */
    int used;                         /* 1 = a run has read in order, or this one has written */
} spipe_priv_file_run_t;

/* A part of an output: what runs of all descriptions with one offset write. */
typedef struct spipe_priv_file_written {
    struct spipe_priv_file_written *next;
    size_t offset, end; /* where it begins, and where the last run ended */
    int written;        /* 1 = a run has written it to its end */
    int failed;         /* 1 = the last run that wrote it failed */
} spipe_priv_file_written_t;

/* What an output holds. */
typedef struct spipe_priv_file_out {
    struct spipe_priv_file_written *parts; /* that of the last run first */
    size_t own;                            /* where what spipe_file_write wrote ends */
    size_t reserved; /* bytes from the beginning on for which there is room on the disk */
    char *target;    /* its name: path with links followed */
} spipe_priv_file_out_t;

/* What the user was told. */
typedef struct spipe_priv_file_said {
    size_t bytes;                         /* what the library wrote into bytes */
    char words[256];                      /* what is wrong with the description */
    struct spipe_priv_file_words *errors; /* one for each thread that met an error */
} spipe_priv_file_said_t;

/* An open file; it must not be moved or copied. */
typedef struct spipe_file {
    const char *path; /* as given; kept, not copied */
    /* Yours: assign them before you add the file; the library never does but when it is opened. */
    spipe_file_way_t way; /* (default: SPIPE_FILE_AUTO; ORDERED for what has no places) */
    size_t offset;        /* where the elements begin (default: 0) */
    size_t length;        /* input: bytes from there on (default: SPIPE_AUTO, to the end) */
    /* The library's: only read them. */
    size_t size;                   /* input: bytes when it was opened; 0 = not known */
    size_t bytes;                  /* input: bytes of the part that was added last; after a run that
                                  read in order, the bytes read. Output: where it ends so far */
    size_t last_bytes;             /* input: bytes of the last element that are the file's */
    size_t count;                  /* input: elements of that part; SPIPE_AUTO = not known */
    spipe_file_way_t way_used;     /* as decided when it was added last */
    int regular;                   /* 1 = it has places, and an input's size is known */
    int fd;                        /* the descriptor; -1 = none */
    const struct spipe_file *self; /* private, as all below: where it was opened */
    spipe_priv_file_run_t run;
    spipe_priv_file_said_t said;
    spipe_priv_direct_t direct;
    spipe_priv_cufile_t cufile;
    spipe_priv_file_out_t out;
    int nameless;
    char *part;              /* an output's name until it is committed */
    spipe_priv_sync_t *sync; /* guards bytes, last_bytes, run, errors, out, and what reads need */
} spipe_file_t;

/*  spipe_file_open -- open a file for reading.
    spipe_file_create -- create a file for writing, in the folder where it will be.

    file       out     zeroed on error; free it with spipe_file_close.
    path       in      "-" is standard input or output. create: an old file is not touched before
                       the commit; a pipe, terminal or device is written to, as is a descriptor of
                       this process, such as /dev/stdout. Links are followed.
    failure    out     the sentence with path and reason; may be NULL.
    Returns    cudaSuccess; cudaErrorInvalidValue (a NULL); cudaErrorOperatingSystem;
               cudaErrorMemoryAllocation.
    Blocks     as the file system does.   Threads  any.   Callback  no.   Capture  yes.
    Allocates  a lock, a name. */
SPIPE_API_RESULT cudaError_t spipe_file_open(spipe_file_t *file, const char *path,
                                             spipe_failure_t *failure);
SPIPE_API_RESULT cudaError_t spipe_file_create(spipe_file_t *file, const char *path,
                                               spipe_failure_t *failure);

/*  spipe_add_file_input -- add an open file as an input. If its size is known and d->count is not
    set, a run has as many elements as the file; see RULES.
    spipe_add_file_output -- add a created file as an output. If the number of elements is known, a
    run reserves its room on the disk when it begins.

    d          in/out  from spipe_desc_default.
    file       in/out  kept: must live, and stay open, as long as pipelines of d run. It may be
                       added to several descriptions, with other values of way, offset and length.
    elem_bytes bytes   of one element, 1 or more.
    Returns    the buffer's number; -1 on a mistake, which the run then reports in words.
    Blocks     no.   Threads  one.   Callback  no.   Capture  yes.
    Allocates  output: 40 bytes for each other offset; spipe_file_close frees them. */
SPIPE_API int spipe_add_file_input(spipe_desc_t *d, spipe_file_t *file, size_t elem_bytes);
SPIPE_API int spipe_add_file_output(spipe_desc_t *d, spipe_file_t *file, size_t elem_bytes);

/*  spipe_file_write -- write bytes of your own into an output, such as a header before the
    elements: assign offset to leave room for it.

    file       in/out  a regular file that create gave.
    data       in      the bytes.
    bytes      bytes   how many.
    at         bytes   where, from the file's beginning.
    failure    out     as above.
    Returns    cudaSuccess; cudaErrorInvalidValue (not such a file); cudaErrorOperatingSystem.
    Blocks     as the file system does.   Threads  any.   Callback  no.   Capture  yes.
    Allocates  nothing. */
SPIPE_API_RESULT cudaError_t spipe_file_write(spipe_file_t *file, const void *data, size_t bytes,
                                              size_t at, spipe_failure_t *failure);

/*  spipe_file_commit -- after a successful run: give the output its name, and replace an old file.
    It does not wait for the disk: after a loss of power the file may be incomplete, as any file.
    spipe_file_close -- close a file; an output that was not committed is removed (in a process that
    was forked since, it is left to the other).

    file       in/out  opened or created; closing it twice is fine, and closing a copy does nothing.
    bytes      bytes   the file's length, if less than was written; SPIPE_AUTO = all of it.
    failure    out     as above.
    Returns    commit: cudaSuccess; cudaErrorInvalidValue (an input); cudaErrorNotPermitted (a run
               is writing it, or the last one failed, or none has written it);
               cudaErrorOperatingSystem, after which you may commit again.
    Blocks     as the file system does.   Threads  one.   Callback  no.   Capture  yes.
    Allocates  nothing. */
SPIPE_API_RESULT cudaError_t spipe_file_commit(spipe_file_t *file, size_t bytes,
                                               spipe_failure_t *failure);
SPIPE_API void spipe_file_close(spipe_file_t *file);

/* ============================================================================================
   >>impl   the same, as code. Names beginning spipe_priv_ are not for callers.
   ============================================================================================ */
#if SPIPE_PRIV_CODE

/* ---- 1 files: the system ------------------------------------------------------------------- */
enum {
    SPIPE_PRIV_FILE_ALIGN = 4096,          /* largest alignment of direct reads */
    SPIPE_PRIV_FILE_DIRECT_READ = 1 << 20, /* bytes of one direct read into a block */
    SPIPE_PRIV_FILE_STRAIGHT = 1 << 14,    /* from so many bytes on, read straight */
    SPIPE_PRIV_FILE_SMALL = 1 << 20,       /* up to so many bytes, do not ask the cache */
    SPIPE_PRIV_FILE_SAMPLES = 64,          /* places where it is asked */
    SPIPE_PRIV_FILE_MOST = 1 << 30         /* bytes of one call: Linux reads at most 2 GiB */
};

/* Some C libraries have dlopen in -ldl: a program linked without it has no cuFile. */
#if defined(__linux__) && defined(__GNUC__)
#define SPIPE_PRIV_CUFILE 1
#pragma weak dlopen
#pragma weak dlsym
#else
#define SPIPE_PRIV_CUFILE 0
#endif

/* Limits the bytes of one call. */
SPIPE_PRIV_LOCAL size_t spipe_priv_file_most(size_t n) {
    const size_t most = SPIPE_PRIV_FILE_MOST;
    return n < most ? n : most;
}

/* gnu99 and C++ declare pread and pwrite; elsewhere lseek sets the place, under the file's lock. */
#if defined(_WIN32) || (defined(_POSIX_C_SOURCE) && _POSIX_C_SOURCE >= 200809L)
#define SPIPE_PRIV_POSIX_NAMES 1
#else
#define SPIPE_PRIV_POSIX_NAMES 0
extern int ftruncate(int fd, off_t length);
#endif
#if SPIPE_PRIV_POSIX_NAMES && !defined(_WIN32)
SPIPE_PRIV_LOCAL long long spipe_priv_read_at(spipe_file_t *f, int fd, void *to, size_t n,
                                              size_t at) {
    (void)f;
    return (long long)pread(fd, to, n, (off_t)at);
}

SPIPE_PRIV_LOCAL long long spipe_priv_write_at(spipe_file_t *f, const void *from, size_t n,
                                               size_t at) {
    return (long long)pwrite(f->fd, from, n, (off_t)at);
}
#else
SPIPE_PRIV_LOCAL long long spipe_priv_read_at(spipe_file_t *f, int fd, void *to, size_t n,
                                              size_t at) {
    long long got = -1;
    spipe_priv_lock(f->sync);
    if (lseek(fd, (off_t)at, SEEK_SET) >= 0) got = (long long)read(fd, to, (unsigned)n);
    spipe_priv_unlock(f->sync);
    return got;
}

SPIPE_PRIV_LOCAL long long spipe_priv_write_at(spipe_file_t *f, const void *from, size_t n,
                                               size_t at) {
    long long put = -1;
    spipe_priv_lock(f->sync);
    if (lseek(f->fd, (off_t)at, SEEK_SET) >= 0) put = (long long)write(f->fd, from, (unsigned)n);
    spipe_priv_unlock(f->sync);
    return put;
}
#endif
#if !defined(O_BINARY) /* only Windows has O_BINARY, and needs it */
#define SPIPE_PRIV_O_BINARY 0
#else
#define SPIPE_PRIV_O_BINARY O_BINARY
#endif

/* After a call that failed: 1 = call again, as it was interrupted, or would have had to wait on a
   descriptor that does not block, and need not any more. */
SPIPE_PRIV_LOCAL int spipe_priv_file_again(int fd, int writing) {
#if !defined(_WIN32)
    struct pollfd ready;
    if (errno == EAGAIN) {
        ready.fd = fd;
        ready.events = writing ? POLLOUT : POLLIN;
        return poll(&ready, 1, -1) > 0 || errno == EINTR;
    }
#else
    (void)fd;
    (void)writing;
#endif
    return errno == EINTR;
}

/* Opens a file; a FIFO waits for its other end, which a signal may interrupt. */
SPIPE_PRIV_LOCAL int spipe_priv_file_open_fd(const char *path, int flags) {
    int fd;
    do fd = open(path, flags, 0666);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* The calling thread's message; if it has none: with make, a new one, else NULL. */
SPIPE_PRIV_LOCAL spipe_priv_file_words_t *spipe_priv_file_own_words(spipe_file_t *f, int make) {
    spipe_priv_file_words_t *w;
    spipe_priv_lock(f->sync);
#if defined(SPIPE_NO_THREADS)
    w = f->said.errors;
#else
    for (w = f->said.errors; w && !pthread_equal(w->thread, pthread_self()); w = w->next) continue;
#endif
    if (!w && make) w = (spipe_priv_file_words_t *)calloc(1, sizeof *w);
    if (w && !w->text[0]) {
#if !defined(SPIPE_NO_THREADS)
        w->thread = pthread_self();
#endif
        w->text[0] = ' ';
        w->next = f->said.errors;
        f->said.errors = w;
    }
    spipe_priv_unlock(f->sync);
    return w;
}

/* Notes an error at a byte of the file. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_file_bad(spipe_file_t *f, const char *doing, size_t at,
                                                 const char *why) {
    spipe_priv_file_words_t *w = spipe_priv_file_own_words(f, 1);
    if (w) snprintf(w->text, sizeof w->text, "%s %.120s at byte %zu: %s", doing, f->path, at, why);
    return cudaErrorOperatingSystem;
}

/* Whether a file is open, and no copy of one. */
SPIPE_PRIV_LOCAL int spipe_priv_file_is_open(const spipe_file_t *f) {
    return f && f->self == f && f->sync && f->fd >= 0;
}

/* Why a file that was added is not there for a run; NULL = it is. */
SPIPE_PRIV_LOCAL const char *spipe_priv_file_gone(const spipe_file_t *f) {
    if (!spipe_priv_file_is_open(f)) {
        return "the file was closed before the run; close it after the last one";
    }
    if (!f->out.target || f->part) return NULL;
    return "the file is committed already; create it anew, and add that, for another run";
}

/* The library calls it right after a call that failed, on the same thread. */
SPIPE_PRIV_LOCAL const char *spipe_priv_file_why(void *user) {
    spipe_file_t *f = (spipe_file_t *)user;
    const char *gone = spipe_priv_file_gone(f);
    const spipe_priv_file_words_t *w = gone ? NULL : spipe_priv_file_own_words(f, 0);
    if (gone) return gone;
    return w ? w->text : "no memory for the reason";
}

/* Says how many bytes an input has, and how many are in its last element. */
SPIPE_PRIV_LOCAL void spipe_priv_file_tell(spipe_file_t *f, size_t bytes, size_t elem_bytes) {
    f->bytes = f->said.bytes = bytes;
    f->last_bytes = bytes > 0 ? (bytes - 1) % elem_bytes + 1 : 0;
}

/* ---- 1 files: reading ---------------------------------------------------------------------- */
/* Why there are no more bytes where there were some when the file was opened. */
SPIPE_PRIV_LOCAL const char *spipe_priv_file_short(const spipe_file_t *f) {
    struct stat now;
    if (fstat(f->fd, &now) == 0 && now.st_size < (off_t)f->size)
        return "it became shorter while it was read";
    return "no more bytes come, though it is as long as it was";
}

/* Reads n bytes at a place through the page cache. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_file_read(spipe_file_t *f, unsigned char *to, size_t n,
                                                  size_t at) {
    while (n > 0) {
        const size_t want = spipe_priv_file_most(n);
        const long long got = spipe_priv_read_at(f, f->fd, to, want, at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return spipe_priv_file_bad(f, "reading", at, strerror(errno));
        if (got == 0) return spipe_priv_file_bad(f, "reading", at, spipe_priv_file_short(f));
        to += got;
        at += (size_t)got;
        n -= (size_t)got;
    }
    return cudaSuccess;
}

/* Takes a block of aligned memory of SPIPE_PRIV_FILE_DIRECT_READ bytes; free blocks are linked by
   their first bytes. NULL = no memory. */
SPIPE_PRIV_LOCAL unsigned char *spipe_priv_file_take(spipe_file_t *f) {
    const size_t page = SPIPE_PRIV_FILE_ALIGN, header = 2 * sizeof(void *);
    unsigned char *base, *block;
    spipe_priv_lock(f->sync);
    block = (unsigned char *)f->direct.bounce;
    if (block) memcpy((void *)&f->direct.bounce, block - sizeof(void *), sizeof f->direct.bounce);
    spipe_priv_unlock(f->sync);
    if (block) return block;
    base = (unsigned char *)malloc(SPIPE_PRIV_FILE_DIRECT_READ + 2 * page);
    if (!base) return NULL;
    block = base + header;
    block += (page - ((uintptr_t)block & (page - 1))) & (page - 1);
    memcpy(block - header, (void *)&base, sizeof base);
    return block;
}

SPIPE_PRIV_LOCAL void spipe_priv_file_give_back(spipe_file_t *f, unsigned char *block) {
    spipe_priv_lock(f->sync);
    memcpy(block - sizeof(void *), (void *)&f->direct.bounce, sizeof f->direct.bounce);
    f->direct.bounce = block;
    spipe_priv_unlock(f->sync);
}

SPIPE_PRIV_LOCAL void spipe_priv_file_free_blocks(spipe_file_t *f) {
    while (f->direct.bounce) {
        unsigned char *block = (unsigned char *)f->direct.bounce, *base;
        memcpy((void *)&f->direct.bounce, block - sizeof(void *), sizeof f->direct.bounce);
        memcpy((void *)&base, block - 2 * sizeof(void *), sizeof base);
        free(base);
    }
}

/* Reads n bytes at a place past the page cache. If memory and place have the same offset within an
   aligned block, it reads straight to dst; the ends, and everything else, go through a block of
   aligned memory. What a direct read does not give, as at the end of the file, is read through the
   page cache. Reading straight takes half of the CPU time or less (tests/bench/NOTES.md). */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_file_read_direct(spipe_file_t *f, unsigned char *to,
                                                         size_t n, size_t at) {
    const size_t align = f->direct.align, most = SPIPE_PRIV_FILE_DIRECT_READ;
    const int alike = ((uintptr_t)to & (align - 1)) == (at & (align - 1));
    const int straight = alike && n >= SPIPE_PRIV_FILE_STRAIGHT;
    unsigned char *block = NULL;
    while (n > 0) {
        const size_t skip = at % align;
        const int own = straight && skip == 0 && n >= align;
        size_t want = spipe_priv_file_most(n) / align * align, part;
        long long got;
        if (!own) {
            want = straight ? align : (skip + n + align - 1) / align * align;
            if (want > most) want = most;
            if (!block) block = spipe_priv_file_take(f);
            if (!block) break;
        }
        got = spipe_priv_read_at(f, f->direct.fd, own ? to : block, want, at - skip);
        if (got < 0 && errno == EINTR) continue;
        if (got <= (long long)skip) break;
        part = (size_t)got - skip < n ? (size_t)got - skip : n;
        if (!own) memcpy(to, block + skip, part);
        to += part;
        at += part;
        n -= part;
        if ((size_t)got < want) break;
    }
    if (block) spipe_priv_file_give_back(f, block);
    return n > 0 ? spipe_priv_file_read(f, to, n, at) : cudaSuccess;
}

/* The bytes of the file's that are in count elements from number first on; a run needs no element
   beyond the last. *at: where they begin in the part. */
SPIPE_PRIV_LOCAL size_t spipe_priv_file_has(const spipe_file_t *f, size_t first, size_t count,
                                            size_t *at) {
    const size_t all = count * f->run.elem_bytes;
    *at = first * f->run.elem_bytes;
    return f->run.bytes - *at < all ? f->run.bytes - *at : all;
}

/* The positioned sources of a regular file: through the page cache, and past it. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_file_source_at(spipe_part_t *part, void *user) {
    spipe_file_t *f = (spipe_file_t *)user;
    unsigned char *to = (unsigned char *)part->data;
    size_t at, n;
    if (spipe_priv_file_gone(f)) return cudaErrorInvalidValue;
    n = spipe_priv_file_has(f, part->first, part->count, &at);
    memset(to + n, 0, part->count * f->run.elem_bytes - n);
    return spipe_priv_file_read(f, to, n, f->run.offset + at);
}

SPIPE_PRIV_LOCAL cudaError_t spipe_priv_file_source_past(spipe_part_t *part, void *user) {
    spipe_file_t *f = (spipe_file_t *)user;
    unsigned char *to = (unsigned char *)part->data;
    size_t at, n;
    if (spipe_priv_file_gone(f)) return cudaErrorInvalidValue;
    n = spipe_priv_file_has(f, part->first, part->count, &at);
    memset(to + n, 0, part->count * f->run.elem_bytes - n);
    return spipe_priv_file_read_direct(f, to, n, f->run.offset + at);
}

/* Writes zeros after the file's bytes, on the device. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_file_zeros(unsigned char *to, size_t n) {
    if (n == 0) return cudaSuccess;
    SPIPE_TRY(cudaMemsetAsync(to, 0, n, cudaStreamPerThread));
    return cudaStreamSynchronize(cudaStreamPerThread);
}

/* Makes the device that has the memory the current one. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_file_on_device(const void *memory) {
    struct cudaPointerAttributes found;
    SPIPE_TRY(cudaPointerGetAttributes(&found, memory));
    return cudaSetDevice(found.device);
}

/* The positioned source that reads by cuFile; part->data is on the device. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_file_source_gpu(spipe_part_t *part, void *user) {
    spipe_file_t *f = (spipe_file_t *)user;
    unsigned char *to = (unsigned char *)part->data;
    size_t at, n, done = 0;
    char why[64];
    cudaError_t e;
    if (spipe_priv_file_gone(f)) return cudaErrorInvalidValue;
    n = spipe_priv_file_has(f, part->first, part->count, &at);
    e = spipe_priv_file_on_device(to);
    while (e == cudaSuccess && done < n) {
        const size_t want = spipe_priv_file_most(n - done), place = f->run.offset + at + done;
        const ssize_t got = f->cufile.read(f->cufile.handle, to, want, (off_t)place, (off_t)done);
        if (got == -1 && errno == EINTR) continue;
        if (got == -1) return spipe_priv_file_bad(f, "reading", place, strerror(errno));
        snprintf(why, sizeof why, "cuFile error %ld", (long)-got);
        if (got == 0) snprintf(why, sizeof why, "%s", spipe_priv_file_short(f));
        if (got <= 0) return spipe_priv_file_bad(f, "reading", place, why);
        done += (size_t)got;
    }
    if (e == cudaSuccess) e = spipe_priv_file_zeros(to + n, part->count * f->run.elem_bytes - n);
    if (e != cudaSuccess) {
        (void)spipe_priv_file_bad(f, "reading", f->run.offset + at, cudaGetErrorString(e));
    }
    return e;
}

/* The source of a file that is read in order. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_file_source(spipe_part_t *part, void *user) {
    spipe_file_t *f = (spipe_file_t *)user;
    spipe_priv_file_run_t *r = &f->run;
    unsigned char *to = (unsigned char *)part->data;
    const size_t room = part->count * r->elem_bytes, left = r->bytes - r->got;
    const size_t all = room < left ? room : left;
    size_t n = 0;
    if (spipe_priv_file_gone(f)) return cudaErrorInvalidValue;
    r->used = 1;
    while (n < all && !r->ended) {
        const size_t want = spipe_priv_file_most(all - n), at = r->offset + r->got + n;
        const long long got = (long long)read(f->fd, to + n, (unsigned)want);
        if (got < 0 && spipe_priv_file_again(f->fd, 0)) continue;
        if (got < 0) return spipe_priv_file_bad(f, "reading", at, strerror(errno));
        if (got == 0 && f->regular) {
            return spipe_priv_file_bad(f, "reading", at, spipe_priv_file_short(f));
        }
        if (got == 0 && r->bytes != SPIPE_AUTO) {
            return spipe_priv_file_bad(f, "reading", at, "it ends there, and length is more");
        }
        r->ended = got == 0;
        n += (size_t)got;
    }
    part->count = n / r->elem_bytes + (n % r->elem_bytes != 0);
    memset(to + n, 0, part->count * r->elem_bytes - n);
    r->got += n;
    spipe_priv_file_tell(f, r->got, r->elem_bytes);
    return cudaSuccess;
}

/* ---- 1 files: writing ---------------------------------------------------------------------- */
/* Says how far an output goes. Under the lock, as those that follow. */
SPIPE_PRIV_LOCAL void spipe_priv_file_tell_end(spipe_file_t *f) {
    const spipe_priv_file_written_t *w;
    f->bytes = f->out.own;
    for (w = f->out.parts; w; w = w->next) {
        if (f->bytes < w->end) f->bytes = w->end;
    }
}

/* Notes that a run writes its part up to a byte. A run that begins to write it writes it anew. */
SPIPE_PRIV_LOCAL void spipe_priv_file_wrote(spipe_file_t *f, size_t end) {
    spipe_priv_file_written_t *w = f->out.parts;
    if (!f->run.used) w->end = 0;
    f->run.used = 1;
    if (w->end < end) w->end = end;
    spipe_priv_file_tell_end(f);
}

/* Puts an output's part first; 0 = it has none at this offset. */
SPIPE_PRIV_LOCAL int spipe_priv_file_find(spipe_file_t *f, size_t offset) {
    spipe_priv_file_written_t **at = &f->out.parts, *w;
    while (*at && (*at)->offset != offset) at = &(*at)->next;
    w = *at;
    if (!w) return 0;
    *at = w->next;
    w->next = f->out.parts;
    f->out.parts = w;
    return 1;
}

/* Writes n bytes at a place. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_file_write(spipe_file_t *f, const unsigned char *from,
                                                   size_t n, size_t at) {
    while (n > 0) {
        const long long put = spipe_priv_write_at(f, from, spipe_priv_file_most(n), at);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return spipe_priv_file_bad(f, "writing", at, strerror(put ? errno : ENOSPC));
        from += put;
        at += (size_t)put;
        n -= (size_t)put;
    }
    return cudaSuccess;
}

SPIPE_PRIV_LOCAL cudaError_t spipe_priv_file_sink_at(const spipe_part_t *part, void *user) {
    spipe_file_t *f = (spipe_file_t *)user;
    size_t at, bytes;
    if (spipe_priv_file_gone(f)) return cudaErrorInvalidValue;
    bytes = part->count * f->run.elem_bytes;
    at = f->run.offset + part->first * f->run.elem_bytes;
    spipe_priv_lock(f->sync);
    spipe_priv_file_wrote(f, at + bytes);
    spipe_priv_unlock(f->sync);
    return spipe_priv_file_write(f, (const unsigned char *)part->data, bytes, at);
}

SPIPE_PRIV_LOCAL cudaError_t spipe_priv_file_sink(const spipe_part_t *part, void *user) {
    spipe_file_t *f = (spipe_file_t *)user;
    const unsigned char *from = (const unsigned char *)part->data;
    size_t n, at;
    if (spipe_priv_file_gone(f)) return cudaErrorInvalidValue;
    n = part->count * f->run.elem_bytes;
    at = f->run.offset + part->first * f->run.elem_bytes;
    spipe_priv_lock(f->sync);
    spipe_priv_file_wrote(f, at + n);
    spipe_priv_unlock(f->sync);
    while (n > 0) {
        const size_t want = spipe_priv_file_most(n);
        const long long put = (long long)write(f->fd, from, (unsigned)want);
        if (put < 0 && spipe_priv_file_again(f->fd, 1)) continue;
        if (put < 0) return spipe_priv_file_bad(f, "writing", at, strerror(errno));
        from += put;
        at += (size_t)put;
        n -= (size_t)put;
    }
    return cudaSuccess;
}

/* ---- 1 files: runs ------------------------------------------------------------------------- */
/* Whether a file is another one than that which was added: closed since, and opened anew. */
SPIPE_PRIV_LOCAL int spipe_priv_file_is_other(const spipe_file_t *f, const spipe_buffer_desc_t *b) {
    const spipe_priv_file_written_t *w = f->out.parts;
    if (spipe_priv_kind(b->kind)->out) {
        while (w && w->offset != b->place) w = w->next;
        return !w;
    }
    if (b->source == spipe_priv_file_source_past && f->direct.fd < 0) return 1;
    if (b->source == spipe_priv_file_source_gpu && !f->cufile.handle) return 1;
    return f->regular && (b->place > f->size || b->bytes > f->size - b->place);
}

/* Refuses a file that is not there, and elements beyond the end of an input. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_file_check(const spipe_desc_t *d, int i, spipe_file_t *f,
                                                   spipe_failure_t *failure) {
    const spipe_buffer_desc_t *b = &d->buffers[i];
    const size_t count = spipe_priv_desc_count(d), has = spipe_priv_length(b);
    const char *gone = spipe_priv_file_gone(f);
    int other = 0;
    if (gone) return spipe_priv_refuse(failure, cudaErrorInvalidValue, "buffer %d: %s", i, gone);
    spipe_priv_lock(f->sync);
    other = spipe_priv_file_is_other(f, b);
    spipe_priv_unlock(f->sync);
    if (other) {
        return spipe_priv_refuse(failure, cudaErrorInvalidValue,
                                 "file %.120s: it was opened after it was added; add it again",
                                 f->path);
    }
    if (count == SPIPE_AUTO || has == SPIPE_AUTO || count <= has) return cudaSuccess;
    return spipe_priv_refuse(failure, cudaErrorInvalidValue,
                             "file %.120s: %s at byte %zu, and %zu elements of %zu bytes need it "
                             "up to byte %.0f; make count %zu or less",
                             f->path, b->place + b->bytes < f->size ? "its part ends" : "it ends",
                             b->place + b->bytes, count, b->elem_bytes,
                             (double)b->place + (double)count * (double)b->elem_bytes, has);
}

/* Why a run may not begin; NULL = it may. Under the lock. */
SPIPE_PRIV_LOCAL const char *spipe_priv_file_busy(const spipe_file_t *f,
                                                  const spipe_buffer_desc_t *b, int alone) {
    const spipe_priv_file_run_t *r = &f->run;
    const int other =
        r->offset != b->place || r->bytes != b->bytes || r->elem_bytes != b->elem_bytes;
    if (r->num > 0 && (alone || r->alone)) {
        if (spipe_priv_kind(b->kind)->out)
            return "another run writes it now; create a file for each";
        return "another run has it now, and one of the two reads it in order; open it once more";
    }
    if (r->num > 0 && other) return "another run reads another part of it now; open it once more";
    if (f->regular || spipe_priv_kind(b->kind)->out || !r->used) return NULL;
    return "it can be read only once, and a run before has read of it; open it again";
}

/* Lets a run have its part of a file. */
SPIPE_PRIV_LOCAL const char *spipe_priv_file_take_part(spipe_file_t *f,
                                                       const spipe_buffer_desc_t *b) {
    const int alone = spipe_priv_kind(b->kind)->in_order || spipe_priv_kind(b->kind)->out;
    spipe_priv_file_run_t *r = &f->run;
    const char *busy;
    spipe_priv_lock(f->sync);
    busy = spipe_priv_file_busy(f, b, alone);
    if (!busy && r->num == 0) {
        r->offset = b->place;
        r->bytes = b->bytes;
        r->elem_bytes = b->elem_bytes;
        r->got = 0;
        r->ended = r->used = 0;
        r->alone = alone;
        if (alone && spipe_priv_kind(b->kind)->in) spipe_priv_file_tell(f, 0, b->elem_bytes);
        if (spipe_priv_kind(b->kind)->out) (void)spipe_priv_file_find(f, b->place);
    }
    r->num += busy == NULL;
    spipe_priv_unlock(f->sync);
    return busy;
}

/* Reserves room for an output at once, so that a disk that is full says so before the run. */
SPIPE_PRIV_LOCAL int spipe_priv_file_reserve(spipe_file_t *f, size_t place, size_t count,
                                             size_t elem) {
#if defined(FALLOC_FL_KEEP_SIZE)
    const size_t most = (size_t)PTRDIFF_MAX;
    if (!f->part || count == SPIPE_AUTO || count == 0) return 1;
    if (place > most || count > (most - place) / elem) return 1; /* writing will say so */
    if (place + count * elem <= f->out.reserved) return 1;
    if (fallocate(f->fd, 0, (off_t)place, (off_t)(count * elem)) != 0 && errno == ENOSPC) return 0;
    f->out.reserved = place + count * elem;
#else
    (void)f;
    (void)place;
    (void)count;
    (void)elem;
#endif
    return 1;
}

SPIPE_PRIV_LOCAL cudaError_t spipe_priv_file_run_begins(const spipe_desc_t *d, int i,
                                                        spipe_file_t *f, spipe_failure_t *failure) {
    const spipe_buffer_desc_t *b = &d->buffers[i];
    const char *why = spipe_priv_file_take_part(f, b);
    cudaError_t e = why ? cudaErrorNotPermitted : cudaErrorOperatingSystem;
    if (why) return spipe_priv_refuse(failure, e, "file %.120s: %s", f->path, why);
    if (spipe_priv_kind(b->kind)->out &&
        !spipe_priv_file_reserve(f, b->place, spipe_priv_desc_count(d), b->elem_bytes)) {
        why = "there is no space left for it on the disk";
    }
    if (!why && f->regular && spipe_priv_kind(b->kind)->in_order &&
        lseek(f->fd, (off_t)b->place, SEEK_SET) < 0) {
        why = strerror(errno);
    }
    if (!why) return cudaSuccess;
    spipe_priv_lock(f->sync);
    --f->run.num;
    spipe_priv_unlock(f->sync);
    return spipe_priv_refuse(failure, e, "file %.120s: %s", f->path, why);
}

/* An output remembers whether its run succeeded. One that wrote nothing and failed left it as it
   was. */
SPIPE_PRIV_LOCAL void spipe_priv_file_run_ended(spipe_file_t *f, const spipe_buffer_desc_t *b,
                                                cudaError_t result) {
    if (!spipe_priv_file_is_open(f)) return;
    spipe_priv_lock(f->sync);
    --f->run.num;
    if (spipe_priv_kind(b->kind)->out && result == cudaSuccess) {
        spipe_priv_file_wrote(f, 0);
        f->out.parts->written = 1;
        f->out.parts->failed = 0;
    } else if (spipe_priv_kind(b->kind)->out && f->run.used) {
        f->out.parts->failed = 1;
    }
    spipe_priv_unlock(f->sync);
}

/* The description's check, and the runs' begin and end. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_file_on_run(const spipe_desc_t *d, int i,
                                                    spipe_priv_moment_t what, cudaError_t result,
                                                    spipe_failure_t *failure) {
    spipe_file_t *f = (spipe_file_t *)d->buffers[i].user;
    if (what == SPIPE_PRIV_ENDED) {
        spipe_priv_file_run_ended(f, &d->buffers[i], result);
        return cudaSuccess;
    }
    SPIPE_TRY(spipe_priv_file_check(d, i, f, failure));
    return what == SPIPE_PRIV_BEGINS ? spipe_priv_file_run_begins(d, i, f, failure) : cudaSuccess;
}

/* ---- 1 files: opening ---------------------------------------------------------------------- */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_file_refuse(spipe_file_t *f, spipe_failure_t *failure,
                                                    const char *doing, const char *path,
                                                    int error) {
    spipe_file_close(f);
    return spipe_priv_refuse(failure, cudaErrorOperatingSystem, "%s %s: %s", doing, path,
                             strerror(error));
}

SPIPE_PRIV_LOCAL cudaError_t spipe_priv_file_begin(spipe_file_t *f, const char *path,
                                                   spipe_failure_t *failure) {
    if (failure) spipe_priv_failure_clear(failure);
    if (!f) return spipe_priv_refuse(failure, cudaErrorInvalidValue, "the file is NULL");
    memset((void *)f, 0, sizeof *f);
    f->fd = f->direct.fd = -1;
    f->self = f;
    f->length = SPIPE_AUTO;
    if (!path) return spipe_priv_refuse(failure, cudaErrorInvalidValue, "the path is NULL");
    f->path = path;
    f->sync = spipe_priv_sync_create();
    if (f->sync) return cudaSuccess;
    return spipe_priv_refuse(failure, cudaErrorMemoryAllocation, "no memory for a lock");
}

/* Returns 1 if a file's size is true. Files of /proc claim no bytes, and cannot be mapped; those of
   /sys claim a page, and have no blocks. */
SPIPE_PRIV_LOCAL int spipe_priv_file_is_long(int fd, const struct stat *st) {
#if SPIPE_PRIV_POSIX_NAMES && !defined(_WIN32)
    char byte;
#if defined(__linux__)
    if (st->st_size == 0) {
        void *map = mmap(NULL, 1, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED) return 0; /* reading a byte might take it away */
        (void)munmap(map, 1);
    }
#endif
    if (st->st_size == 0) return pread(fd, &byte, 1, 0) == 0;
    if (st->st_blocks == 0 && pread(fd, &byte, 1, st->st_size - 1) == 0) return 0;
    return 1;
#else
    (void)fd;
    return st->st_size > 0;
#endif
}

SPIPE_API cudaError_t spipe_file_open(spipe_file_t *file, const char *path,
                                      spipe_failure_t *failure) {
    struct stat st;
    SPIPE_TRY(spipe_priv_file_begin(file, path, failure));
    if (strcmp(path, "-") == 0) {
        file->path = "standard input";
        file->fd = dup(0);
    } else {
        file->fd = spipe_priv_file_open_fd(path, O_RDONLY | SPIPE_PRIV_O_BINARY);
    }
    if (file->fd < 0 || fstat(file->fd, &st) != 0) {
        return spipe_priv_file_refuse(file, failure, "cannot read", file->path, errno);
    }
    if (S_ISDIR(st.st_mode)) {
        return spipe_priv_file_refuse(file, failure, "cannot read", file->path, EISDIR);
    }
    if ((off_t)(size_t)st.st_size != st.st_size) {
        return spipe_priv_file_refuse(file, failure, "cannot read", file->path, EFBIG);
    }
    file->regular = S_ISREG(st.st_mode) && spipe_priv_file_is_long(file->fd, &st);
    file->way = file->regular ? SPIPE_FILE_AUTO : SPIPE_FILE_ORDERED;
    if (file->regular) file->size = (size_t)st.st_size;
    if (file->regular && strcmp(path, "-") == 0) { /* it may have been read from already */
        const off_t at = lseek(file->fd, 0, SEEK_CUR);
        file->offset = at > 0 && at <= st.st_size ? (size_t)at : 0;
    }
    file->bytes = file->said.bytes = file->size - file->offset;
    return cudaSuccess;
}

/* Opens the output: without a name if the system can, else under the name part, which must be
   new. */
SPIPE_PRIV_LOCAL int spipe_priv_file_make(spipe_file_t *f) {
    int tries, fd = -1;
#if defined(O_TMPFILE)
    char *slash = strrchr(f->part, '/'), kept = 0;
    if (access("/proc/self/fd", X_OK) == 0) {
        const char *folder = slash ? f->part : ".";
        if (slash) kept = slash[1];
        if (slash) slash[1] = '\0';
        fd = spipe_priv_file_open_fd(folder, O_TMPFILE | O_RDWR);
        if (slash) slash[1] = kept;
    }
    f->nameless = fd >= 0;
    if (f->nameless) return fd;
#endif
    for (tries = 0; tries < 100 && fd < 0; ++tries) {
        snprintf(f->part + strlen(f->out.target), 32, ".%ld.%d.part", (long)getpid(), tries);
        fd = spipe_priv_file_open_fd(f->part, O_CREAT | O_EXCL | O_RDWR | SPIPE_PRIV_O_BINARY);
        if (fd < 0 && errno != EEXIST) return fd;
    }
    return fd;
}

/* A path with links followed, in memory of its own; NULL = no memory. */
SPIPE_PRIV_LOCAL char *spipe_priv_file_target(const char *path) {
    const size_t bytes = strlen(path) + 1;
    char *target = NULL;
#if SPIPE_PRIV_POSIX_NAMES && !defined(_WIN32)
    target = realpath(path, NULL);
    if (target) return target;
#endif
    target = (char *)malloc(bytes);
    if (target) memcpy(target, path, bytes);
    return target;
}

/* The descriptor of this process that a path names, as /dev/stdout and /dev/fd/5 do; -1 = none.
   Links are followed one by one, because what such a name links to has another name, too. */
SPIPE_PRIV_LOCAL int spipe_priv_file_named(const char *path) {
#if SPIPE_PRIV_POSIX_NAMES && !defined(_WIN32)
    char name[1024], link[512], *fds = realpath("/dev/fd", NULL);
    int links = 0, fd = -1, over = !fds || strlen(path) >= sizeof name;
    if (!over) snprintf(name, sizeof name, "%s", path);
    for (; !over && links < 40; ++links) {
        char *slash = strrchr(name, '/'), *folder;
        const char *last = slash ? slash + 1 : name;
        ssize_t n = readlink(name, link, sizeof link - 1);
        if (n < 0) break;
        link[n] = 0;
        if (slash) slash[slash == name] = 0; /* the root is its own folder */
        folder = realpath(!slash ? "." : name, NULL);
        if (folder && strcmp(folder, fds) == 0) fd = atoi(last);
        over = fd >= 0 || !folder || strlen(folder) + (size_t)n + 2 > sizeof name;
        if (!over && link[0] == '/') snprintf(name, sizeof name, "%s", link);
        if (!over && link[0] != '/') snprintf(name, sizeof name, "%s/%s", folder, link);
        free(folder);
    }
    free(fds);
    return fd;
#else
    (void)path;
    return -1;
#endif
}

SPIPE_API cudaError_t spipe_file_create(spipe_file_t *file, const char *path,
                                        spipe_failure_t *failure) {
    struct stat st;
    int there, named;
    SPIPE_TRY(spipe_priv_file_begin(file, path, failure));
    named = strcmp(path, "-") == 0 ? 1 : spipe_priv_file_named(path);
    there = named < 0 && stat(path, &st) == 0;
    file->regular = named < 0 && (!there || S_ISREG(st.st_mode));
    if (strcmp(path, "-") == 0) file->path = "standard output";
    if (!file->regular) {
        file->way = SPIPE_FILE_ORDERED;
        file->fd =
            named >= 0 ? dup(named) : spipe_priv_file_open_fd(path, O_WRONLY | SPIPE_PRIV_O_BINARY);
        if (file->fd >= 0) return cudaSuccess;
        return spipe_priv_file_refuse(file, failure, "cannot write", file->path, errno);
    }
    file->out.target = spipe_priv_file_target(path);
    if (file->out.target) file->part = (char *)malloc(strlen(file->out.target) + 32);
    if (!file->out.target || !file->part) {
        spipe_file_close(file);
        return spipe_priv_refuse(failure, cudaErrorMemoryAllocation, "no memory for a name");
    }
    memcpy(file->part, file->out.target, strlen(file->out.target) + 1);
    file->fd = spipe_priv_file_make(file);
    if (file->fd < 0) {
        free(file->part);
        file->part = NULL;
        return spipe_priv_file_refuse(file, failure, "cannot write", path, errno);
    }
#if SPIPE_PRIV_POSIX_NAMES && !defined(_WIN32)
    if (there) (void)fchmod(file->fd, st.st_mode & 07777);
#endif
    return cudaSuccess;
}

/* ---- 1 files: adding ----------------------------------------------------------------------- */
/* Returns 1 if the page cache holds one byte of a file, 0 if not, -1 = past its end or not known.
   A read that must not wait (RWF_NOWAIT) makes the system read a missing page ahead, so asking
   changes the answer. mincore changes nothing, but always says "yes" for another user's file. So
   mincore is asked first, and only its "yes" is checked by a read. `map`: the file, mapped; NULL
   if it cannot be. */
#if defined(RWF_NOWAIT)
SPIPE_PRIV_LOCAL int spipe_priv_file_asked(int fd, unsigned char *map, size_t at, size_t page) {
    unsigned char there = 1;
    char byte;
    struct iovec v;
    ssize_t got;
    v.iov_base = &byte;
    v.iov_len = 1;
    if (map && mincore(map + at / page * page, 1, &there) == 0 && !(there & 1)) return 0;
    got = preadv2(fd, &v, 1, (off_t)at, RWF_NOWAIT);
    if (got > 0) return 1;
    return got < 0 && errno == EAGAIN ? 0 : -1;
}
#endif

/* Returns 1 if the page cache holds most of a part: some places are asked, without waiting; also if
   they cannot be asked. */
SPIPE_PRIV_LOCAL int spipe_priv_file_is_cached(const spipe_file_t *f, size_t offset, size_t bytes) {
#if defined(RWF_NOWAIT)
    const size_t most = SPIPE_PRIV_FILE_SAMPLES, wanted = (bytes >> 20) + 1;
    const size_t samples = wanted < most ? wanted : most, step = bytes / samples;
    const size_t end = offset + bytes, page = (size_t)sysconf(_SC_PAGESIZE);
    void *map = end > 0 ? mmap(NULL, end, PROT_READ, MAP_SHARED, f->fd, 0) : MAP_FAILED;
    unsigned char *mapped = map != MAP_FAILED ? (unsigned char *)map : NULL;
    size_t k;
    int there = 0, cold = 0;
    for (k = 0; k < samples && bytes > 0; ++k) {
        const int has = spipe_priv_file_asked(f->fd, mapped, offset + step * k, page);
        there += has == 1;
        cold += has == 0;
    }
    if (mapped) (void)munmap(map, end);
    return cold <= there;
#else
    (void)f;
    (void)offset;
    (void)bytes;
    return 1;
#endif
}

/* The alignment of direct reads: what the system says, else a page; 0 = no direct reads. */
SPIPE_PRIV_LOCAL size_t spipe_priv_file_align(int fd) {
    size_t align = SPIPE_PRIV_FILE_ALIGN;
#if defined(STATX_DIOALIGN)
    struct statx told;
    memset(&told, 0, sizeof told);
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &told) == 0 &&
        (told.stx_mask & STATX_DIOALIGN)) {
        const size_t memory = told.stx_dio_mem_align, place = told.stx_dio_offset_align;
        if (memory == 0 || place == 0) return 0;
        if (memory <= align && place <= align) align = memory > place ? memory : place;
    }
#else
    (void)fd;
#endif
    return align;
}

/* Returns 1 if a file can be read past the page cache; few file systems refuse that. The file is
   opened a second time by its name, which may be that of another file by now. */
SPIPE_PRIV_LOCAL int spipe_priv_file_is_direct(spipe_file_t *f) {
#if defined(O_DIRECT)
    struct stat first, again;
    if (f->direct.fd >= 0) return 1;
    f->direct.fd = spipe_priv_file_open_fd(f->path, O_RDONLY | O_DIRECT);
    if (f->direct.fd < 0) return 0;
    f->direct.align = spipe_priv_file_align(f->direct.fd);
    if (f->direct.align > 0 && fstat(f->fd, &first) == 0 && fstat(f->direct.fd, &again) == 0 &&
        first.st_dev == again.st_dev && first.st_ino == again.st_ino) {
        return 1;
    }
    (void)close(f->direct.fd);
    f->direct.fd = -1;
#else
    (void)f;
#endif
    return 0;
}

/* Registers a file with cuFile. Returns NULL, or why host threads read the file instead. cuFile's
   driver stays open until the process ends. */
SPIPE_PRIV_LOCAL const char *spipe_priv_file_cufile(spipe_file_t *f) {
#if SPIPE_PRIV_CUFILE
    static const char *const names[] = {"cuFileDriverOpen", "cuFileHandleRegister",
                                        "cuFileHandleDeregister", "cuFileRead"};
    void *functions[4] = {NULL, NULL, NULL, NULL}, *library = NULL;
    spipe_priv_cufile_t *c = &f->cufile;
    spipe_priv_cufile_file_t file;
    int i, there = 1;
    if (c->handle) return NULL;
    if (dlopen && dlsym) library = dlopen("libcufile.so.0", RTLD_NOW);
    for (i = 0; i < 4; ++i) {
        if (library) functions[i] = dlsym(library, names[i]);
        there &= functions[i] != NULL;
    }
    if (!there) return "file, all threads read: libcufile.so.0 was not found";
    memcpy((void *)&c->open, (void *)&functions[0], sizeof c->open);
    memcpy((void *)&c->enter, (void *)&functions[1], sizeof c->enter);
    memcpy((void *)&c->leave, (void *)&functions[2], sizeof c->leave);
    memcpy((void *)&c->read, (void *)&functions[3], sizeof c->read);
    if (c->open().error != 0) return "file, all threads read: cuFile's driver does not open";
    memset((void *)&file, 0, sizeof file);
    file.type = 1; /* a descriptor, for direct reads */
    file.handle.fd = spipe_priv_file_is_direct(f) ? f->direct.fd : f->fd;
    if (c->enter(&c->handle, &file).error == 0 && c->handle) return NULL;
    c->handle = NULL;
    return "file, all threads read: cuFile does not take this file";
#else
    (void)f;
    return "file, all threads read: cuFile is not for this system";
#endif
}

/* Decides how a part of a regular file is read by all threads: *way. Returns the words for the
   report. */
SPIPE_PRIV_LOCAL const char *spipe_priv_file_choose(spipe_file_t *f, size_t bytes,
                                                    spipe_file_way_t *way) {
    const char *refused = NULL;
    *way = f->way;
    if (*way == SPIPE_FILE_GPU) {
        refused = spipe_priv_file_cufile(f);
        if (!refused) return "file, into device memory by cuFile: all threads read";
        *way = SPIPE_FILE_AUTO;
    }
    if (*way == SPIPE_FILE_AUTO) {
        /* asking takes 15 us, which does not pay for a small part */
        const int cached =
            bytes <= SPIPE_PRIV_FILE_SMALL || spipe_priv_file_is_cached(f, f->offset, bytes);
        *way = cached ? SPIPE_FILE_CACHED : SPIPE_FILE_DIRECT;
    }
    if (*way == SPIPE_FILE_DIRECT && !spipe_priv_file_is_direct(f)) *way = SPIPE_FILE_CACHED;
    if (refused) return refused;
    if (*way == SPIPE_FILE_CACHED) return "file, page cache: all threads read";
    return "file, not in the page cache: all threads read past it (O_DIRECT)";
}

SPIPE_PRIV_LOCAL int spipe_priv_file_not_open(spipe_desc_t *d) {
    return spipe_priv_mistake(d, "a file is not open, or a copy of one; look at what "
                                 "spipe_file_open or spipe_file_create returned");
}

SPIPE_PRIV_LOCAL int spipe_priv_file_mistake(spipe_desc_t *d, spipe_file_t *f, const char *words) {
    snprintf(f->said.words, sizeof f->said.words, "file %.120s: %s", f->path, words);
    return spipe_priv_mistake(d, f->said.words);
}

/* Whether a file is a buffer already: its element, and where it is in it, are noted once. */
SPIPE_PRIV_LOCAL int spipe_priv_file_added(const spipe_desc_t *d, const spipe_file_t *f) {
    int i;
    for (i = 0; i < d->num_buffers; ++i) {
        if (d->buffers[i].user == f && d->buffers[i].why == spipe_priv_file_why) return 1;
    }
    return 0;
}

/* Returns what is wrong with the members that were assigned for an input; NULL = nothing. *bytes:
   those of its part; SPIPE_AUTO = not known. */
SPIPE_PRIV_LOCAL const char *spipe_priv_file_part(const spipe_file_t *f, size_t *bytes) {
    *bytes = f->length;
    if (f->bytes != f->said.bytes) return "bytes was assigned; to read a part, assign length";
    if (!f->regular) {
        return f->offset > 0 ? "an offset is only for a file that has places" : NULL;
    }
    if (f->offset > f->size) return "it ends before the offset";
    if (*bytes == SPIPE_AUTO) *bytes = f->size - f->offset;
    return *bytes > f->size - f->offset ? "it ends before the last of these bytes" : NULL;
}

/* What all files have in common in a description. */
SPIPE_PRIV_LOCAL int spipe_priv_file_add(spipe_desc_t *d, int i, size_t place, size_t bytes,
                                         const char *how) {
    if (i < 0) return i;
    d->buffers[i].why = spipe_priv_file_why;
    d->buffers[i].how = how;
    d->buffers[i].on_run = spipe_priv_file_on_run;
    d->buffers[i].place = place;
    d->buffers[i].bytes = bytes;
    return i;
}

SPIPE_API int spipe_add_file_input(spipe_desc_t *d, spipe_file_t *file, size_t elem_bytes) {
    const char *wrong, *how = "file, in order: one thread reads";
    spipe_source_fn source_at = spipe_priv_file_source_at;
    size_t bytes;
    int i;
    if (!spipe_priv_begun(d)) return -1;
    if (!spipe_priv_file_is_open(file)) return spipe_priv_file_not_open(d);
    if (file->out.target) {
        return spipe_priv_file_mistake(d, file,
                                       "it was created to be written; open one to be read");
    }
    if (spipe_priv_file_added(d, file)) {
        return spipe_priv_file_mistake(d, file, "it is a buffer already; open it once more");
    }
    wrong = spipe_priv_file_part(file, &bytes);
    if (wrong) return spipe_priv_file_mistake(d, file, wrong);
    file->way_used = SPIPE_FILE_ORDERED;
    if (file->regular && file->way != SPIPE_FILE_ORDERED) {
        how = spipe_priv_file_choose(file, bytes, &file->way_used);
    }
    if (file->way_used == SPIPE_FILE_DIRECT) source_at = spipe_priv_file_source_past;
    if (file->way_used == SPIPE_FILE_GPU) source_at = spipe_priv_file_source_gpu;
    if (file->way_used == SPIPE_FILE_ORDERED)
        i = spipe_add_source(d, spipe_priv_file_source, file, elem_bytes, SPIPE_IN_ORDER);
    else
        i = spipe_add_source(d, source_at, file, elem_bytes, SPIPE_ANY_ORDER);
    i = spipe_priv_file_add(d, i, file->offset, bytes, how);
    if (i < 0) return i;
    d->buffers[i].on_device = file->way_used == SPIPE_FILE_GPU;
    file->count = spipe_priv_length(&d->buffers[i]);
    if (bytes == SPIPE_AUTO) bytes = 0;
    spipe_priv_file_tell(file, bytes, elem_bytes > 0 ? elem_bytes : 1);
    return i;
}

/* Whether another output of a description has this path. */
SPIPE_PRIV_LOCAL int spipe_priv_file_target_taken(const spipe_desc_t *d, const spipe_file_t *f) {
    int i;
    for (i = 0; i < d->num_buffers && f->out.target; ++i) {
        const spipe_file_t *other = (const spipe_file_t *)d->buffers[i].user;
        if (d->buffers[i].why != spipe_priv_file_why || !other->out.target) continue;
        if (strcmp(other->out.target, f->out.target) == 0) return 1;
    }
    return 0;
}

/* Notes the part that is added of an output; 0 = no memory. */
SPIPE_PRIV_LOCAL int spipe_priv_file_note(spipe_file_t *f) {
    spipe_priv_file_written_t **at = &f->out.parts, *w;
    spipe_priv_lock(f->sync);
    while (*at && (*at)->offset != f->offset) at = &(*at)->next;
    w = *at ? *at : (spipe_priv_file_written_t *)calloc(1, sizeof *w);
    if (w && !*at) { /* behind those that a run may be writing */
        w->offset = f->offset;
        *at = w;
    }
    spipe_priv_unlock(f->sync);
    return w != NULL;
}

SPIPE_API int spipe_add_file_output(spipe_desc_t *d, spipe_file_t *file, size_t elem_bytes) {
    int i;
    if (!spipe_priv_begun(d)) return -1;
    if (!spipe_priv_file_is_open(file)) return spipe_priv_file_not_open(d);
    if (file->regular && !file->part) {
        return spipe_priv_file_mistake(d, file, "it was opened to be read, or is committed");
    }
    if (spipe_priv_file_added(d, file)) {
        return spipe_priv_file_mistake(d, file, "it is a buffer already; create another file");
    }
    if (spipe_priv_file_target_taken(d, file)) {
        return spipe_priv_file_mistake(d, file,
                                       "another output has this path, and the last commit would "
                                       "replace the other; give each its own");
    }
    if (!file->regular && file->offset > 0) {
        return spipe_priv_file_mistake(d, file, "an offset is only for a file that has places");
    }
    if (!spipe_priv_file_note(file)) {
        return spipe_priv_file_mistake(d, file, "there is no memory to note its part");
    }
    file->way_used = SPIPE_FILE_CACHED;
    if (!file->regular || file->way == SPIPE_FILE_ORDERED) file->way_used = SPIPE_FILE_ORDERED;
    if (file->way_used == SPIPE_FILE_ORDERED)
        i = spipe_add_sink(d, spipe_priv_file_sink, file, elem_bytes, SPIPE_IN_ORDER);
    else
        i = spipe_add_sink(d, spipe_priv_file_sink_at, file, elem_bytes, SPIPE_ANY_ORDER);
    return spipe_priv_file_add(d, i, file->offset, SPIPE_AUTO, NULL);
}

SPIPE_API cudaError_t spipe_file_write(spipe_file_t *file, const void *data, size_t bytes,
                                       size_t at, spipe_failure_t *failure) {
    cudaError_t e;
    if (failure) spipe_priv_failure_clear(failure);
    if (!spipe_priv_file_is_open(file) || !file->part || !data) {
        return spipe_priv_refuse(failure, cudaErrorInvalidValue,
                                 "there is no regular file that was created, or no data");
    }
    e = spipe_priv_file_write(file, (const unsigned char *)data, bytes, at);
    spipe_priv_lock(file->sync);
    if (e == cudaSuccess && bytes > 0 && file->out.own < at + bytes) file->out.own = at + bytes;
    spipe_priv_file_tell_end(file);
    spipe_priv_unlock(file->sync);
    return e == cudaSuccess ? e : spipe_priv_refuse(failure, e, "%s", spipe_priv_file_why(file));
}

/* ---- 1 files: the end ---------------------------------------------------------------------- */
/* Gives a nameless output its temporary name, part. */
SPIPE_PRIV_LOCAL int spipe_priv_file_name(spipe_file_t *f) {
#if defined(O_TMPFILE)
    char link[64];
    int tries, failed = -1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", f->fd);
    for (tries = 0; tries < 100 && failed; ++tries) {
        snprintf(f->part + strlen(f->out.target), 32, ".%ld.%d.part", (long)getpid(), tries);
        failed = linkat(AT_FDCWD, link, AT_FDCWD, f->part, AT_SYMLINK_FOLLOW);
        if (failed && errno != EEXIST) return failed;
    }
    f->nameless = failed;
    return failed;
#else
    (void)f;
    return 0;
#endif
}

/* Writes bytes of an output, which it has read, to another descriptor. 0 = done. */
SPIPE_PRIV_LOCAL int spipe_priv_file_pass_on(int fd, const unsigned char *from, size_t n) {
    while (n > 0) {
        const long long put = (long long)write(fd, from, (unsigned)n);
        if (put < 0 && spipe_priv_file_again(fd, 1)) continue;
        if (put < 0) return -1;
        from += put;
        n -= (size_t)put;
    }
    return 0;
}

/* Writes the output over a file that cannot be replaced, because it is a mount. 0 = done. */
SPIPE_PRIV_LOCAL int spipe_priv_file_copy(spipe_file_t *f, size_t bytes) {
    const size_t most = SPIPE_PRIV_FILE_DIRECT_READ;
    unsigned char *block = (unsigned char *)malloc(most);
    const int fd = block ? spipe_priv_file_open_fd(f->out.target, O_WRONLY | O_TRUNC) : -1;
    int failed = fd < 0 ? -1 : 0;
    size_t at = 0;
    while (!failed && at < bytes) {
        const size_t want = bytes - at < most ? bytes - at : most;
        const long long got = spipe_priv_read_at(f, f->fd, block, want, at);
        if (got < 0 && errno == EINTR) continue;
        failed = got <= 0 ? -1 : spipe_priv_file_pass_on(fd, block, (size_t)got);
        if (got > 0) at += (size_t)got;
    }
    free(block);
    if (fd >= 0 && close(fd) != 0) failed = -1;
    if (!failed) (void)remove(f->part);
    return failed;
}

/* Gives the output its length and its name. 0 = done; else errno says why not. */
SPIPE_PRIV_LOCAL int spipe_priv_file_put(spipe_file_t *f, size_t bytes) {
    int failed = ftruncate(f->fd, (off_t)bytes);
#if !defined(_WIN32)
    /* A file system that writes later, such as NFS, reports errors at close. */
    if (!failed) failed = close(dup(f->fd));
#endif
    if (!failed && f->nameless) failed = spipe_priv_file_name(f);
#if defined(_WIN32)
    if (!failed) failed = close(f->fd);
    if (!failed) f->fd = -1;
    if (!failed) (void)remove(f->out.target); /* on Windows rename does not replace */
#endif
    if (!failed) failed = rename(f->part, f->out.target);
    if (failed && errno == EBUSY) failed = spipe_priv_file_copy(f, bytes);
    return failed;
}

/* Why an output must not be committed; NULL = it may be. Under the lock. */
SPIPE_PRIV_LOCAL const char *spipe_priv_file_unfit(const spipe_file_t *f) {
    const spipe_priv_file_written_t *w;
    int written = !f->out.parts || f->out.own > 0;
    if (f->run.num > 0) return "a run is writing it; commit it when the run has ended";
    for (w = f->out.parts; w; w = w->next) {
        if (w->failed) return "the run that wrote it failed; let one write it again, or close it";
        written |= w->written;
    }
    return written ? NULL : "no run has written it";
}

SPIPE_API cudaError_t spipe_file_commit(spipe_file_t *file, size_t bytes,
                                        spipe_failure_t *failure) {
    const char *unfit;
    if (failure) spipe_priv_failure_clear(failure);
    if (!spipe_priv_file_is_open(file)) {
        return spipe_priv_refuse(failure, cudaErrorInvalidValue, "the file is not open, or a copy");
    }
    if (file->regular && !file->part) {
        return spipe_priv_refuse(failure, cudaErrorInvalidValue,
                                 "%s was opened to be read, or is committed", file->path);
    }
    spipe_priv_lock(file->sync);
    unfit = spipe_priv_file_unfit(file);
    spipe_priv_unlock(file->sync);
    if (unfit) {
        return spipe_priv_refuse(failure, cudaErrorNotPermitted, "cannot commit %.120s: %s",
                                 file->path, unfit);
    }
    if (!file->part) return cudaSuccess;
    if (bytes > file->bytes) bytes = file->bytes;
    if (spipe_priv_file_put(file, bytes) != 0) {
        return spipe_priv_refuse(failure, cudaErrorOperatingSystem, "cannot write %s: %s",
                                 file->path, strerror(errno));
    }
    free(file->part);
    file->part = NULL;
    file->bytes = bytes;
    return cudaSuccess;
}

SPIPE_API void spipe_file_close(spipe_file_t *file) {
    const int error = errno; /* keep errno for the caller */
    int forked;
    if (!file || file->self != file || !file->sync) return;
    forked = spipe_priv_sync_is_forked(file->sync); /* then the part is the other's */
    if (file->cufile.handle && !forked) file->cufile.leave(file->cufile.handle);
    if (file->fd >= 0) (void)close(file->fd);
    if (file->direct.fd >= 0) (void)close(file->direct.fd);
    if (file->part && !file->nameless && !forked) (void)remove(file->part);
    free(file->part);
    free(file->out.target);
    spipe_priv_file_free_blocks(file);
    while (file->out.parts) {
        spipe_priv_file_written_t *w = file->out.parts;
        file->out.parts = w->next;
        free(w);
    }
    while (file->said.errors) {
        spipe_priv_file_words_t *w = file->said.errors;
        file->said.errors = w->next;
        free(w);
    }
    spipe_priv_sync_destroy(file->sync);
    file->part = file->out.target = NULL;
    file->sync = NULL;
    file->cufile.handle = NULL;
    file->fd = file->direct.fd = -1;
    errno = error;
}

#endif /* SPIPE_PRIV_CODE */
#endif /* STREAMPIPE_FILES_H */
