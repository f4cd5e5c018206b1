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
        spipe_add_file_input(&d, &in, 4096);   // sets d.count where the size is known
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
                  the rest is zeros, and last_bytes says how many bytes are the file's.
      Outputs     The file appears under its name when you commit it, whole, and replaces an old
                  one. Until then it has no name or, on systems without nameless files, that name
                  with ".part". So an output may replace the file that is read.
      Cold files  A part that is not in the page cache is read past it (O_DIRECT), which takes less
                  CPU time; a part that is there is copied from it. Assign way to choose. In C,
                  O_DIRECT needs _GNU_SOURCE. If offset and chunk are whole pages, the file is read
                  straight into pinned memory; else it is copied once more.
      cuFile      With way = SPIPE_FILE_GPU, cuFile (GPUDirect Storage) reads an input into device
                  memory, without pinned memory and copies; such an input cannot have a halo. The
                  library is looked for when you add the file. If it is missing or refuses the file,
                  another way is chosen, and the report says so. cuFile is never chosen
                  automatically, because disk and driver decide whether it is faster.
      Failures    If a file becomes shorter, a disk fills up or a device has an error, the run fails
                  with a sentence that has the path and the byte.

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

/* An open file. Before you add it, you may assign way, offset and bytes; only read the others. */
typedef struct spipe_file {
    const char *path;     /* as given; kept, not copied */
    spipe_file_way_t way; /* (default: SPIPE_FILE_AUTO; adding the file decides) */
    size_t offset;        /* where the elements begin (default: 0) */
    size_t bytes;         /* input: bytes from there on (default: all); after a run that read in
                             order, the bytes read. Output: where it ends so far */
    size_t last_bytes;    /* input: bytes of the last element that are the file's */
    size_t elem_bytes;    /* as added */
    int fd;               /* the descriptor; -1 = none */
    size_t size, most;    /* private, as all below: size when opened; most bytes to read in order */
    spipe_priv_direct_t direct;
    spipe_priv_cufile_t cufile;
    int regular, nameless, ended;
    int end_given;                        /* 1 = a run has read it to its end */
    char *part;                           /* the output's name until it is committed */
    char *target;                         /* its name from then on: path with links followed */
    char words[256];                      /* what is wrong with the description */
    struct spipe_priv_file_words *errors; /* one for each thread that met an error */
    spipe_priv_sync_t *sync;              /* guards the members from bytes on */
} spipe_file_t;

/*  spipe_file_open -- open a file for reading.
    spipe_file_create -- create a file for writing, in the folder where it will be.

    file       out     zeroed on error; free it with spipe_file_close.
    path       in      "-" is standard input or output. create: an old file is not touched before
                       the commit; a pipe, terminal or device is written to. Links are followed.
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
    set, this sets d->count.
    spipe_add_file_output -- add a created file as an output. If d->count is set, this reserves its
    room on the disk, so add it after the inputs.

    d          in/out  from spipe_desc_default.
    file       in/out  kept: must live, and stay open, as long as pipelines of d run. An input that
                       is read in order serves one run only; a regular file may be added again.
    elem_bytes bytes   of one element, 1 or more.
    Returns    the buffer's number; -1 on a mistake, which the run then reports in words.
    Blocks     output: as the file system does.   Threads  one.   Callback  no.   Capture  yes.
    Allocates  nothing. */
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

    file       in/out  opened or created; closing it twice is fine.
    bytes      bytes   the file's length, if less than was written; SPIPE_AUTO = all of it.
    failure    out     as above.
    Returns    commit: cudaSuccess; cudaErrorInvalidValue (an input); cudaErrorOperatingSystem.
    Blocks     as the file system does.   Threads  one.   Callback  no.   Capture  yes.
    Allocates  nothing. */
SPIPE_API_RESULT cudaError_t spipe_file_commit(spipe_file_t *file, size_t bytes,
                                               spipe_failure_t *failure);
SPIPE_API void spipe_file_close(spipe_file_t *file);

/* ============================================================================================
   >>impl   the same, as code. Names beginning spipe_priv_ are not for callers.
   ============================================================================================ */

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
SPIPE_API size_t spipe_priv_file_most(size_t n) {
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
SPIPE_API long long spipe_priv_read_at(spipe_file_t *f, int fd, void *to, size_t n, size_t at) {
    (void)f;
    return (long long)pread(fd, to, n, (off_t)at);
}

SPIPE_API long long spipe_priv_write_at(spipe_file_t *f, const void *from, size_t n, size_t at) {
    return (long long)pwrite(f->fd, from, n, (off_t)at);
}
#else
SPIPE_API long long spipe_priv_read_at(spipe_file_t *f, int fd, void *to, size_t n, size_t at) {
    long long got = -1;
    spipe_priv_lock(f->sync);
    if (lseek(fd, (off_t)at, SEEK_SET) >= 0) got = (long long)read(fd, to, (unsigned)n);
    spipe_priv_unlock(f->sync);
    return got;
}

SPIPE_API long long spipe_priv_write_at(spipe_file_t *f, const void *from, size_t n, size_t at) {
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

/* The calling thread's message; if it has none: with make, a new one, else NULL. */
SPIPE_API spipe_priv_file_words_t *spipe_priv_file_own_words(spipe_file_t *f, int make) {
    spipe_priv_file_words_t *w;
    spipe_priv_lock(f->sync);
#if defined(SPIPE_NO_THREADS)
    w = f->errors;
#else
    for (w = f->errors; w && !pthread_equal(w->thread, pthread_self()); w = w->next) continue;
#endif
    if (!w && make) w = (spipe_priv_file_words_t *)calloc(1, sizeof *w);
    if (w && !w->text[0]) {
#if !defined(SPIPE_NO_THREADS)
        w->thread = pthread_self();
#endif
        w->text[0] = ' ';
        w->next = f->errors;
        f->errors = w;
    }
    spipe_priv_unlock(f->sync);
    return w;
}

/* Notes an error at a byte of the file. */
SPIPE_API cudaError_t spipe_priv_file_bad(spipe_file_t *f, const char *doing, size_t at,
                                          const char *why) {
    spipe_priv_file_words_t *w = spipe_priv_file_own_words(f, 1);
    if (w) snprintf(w->text, sizeof w->text, "%s %.120s at byte %zu: %s", doing, f->path, at, why);
    return cudaErrorOperatingSystem;
}

/* Why a file that was added is not there for a run; NULL = it is. */
SPIPE_API const char *spipe_priv_file_gone(const spipe_file_t *f) {
    if (!f->sync) return "the file was closed before the run; close it after the last one";
    if (!f->target || f->part) return NULL;
    return "the file is committed already; create it anew, and add that, for another run";
}

/* The library calls it right after a call that failed, on the same thread. */
SPIPE_API const char *spipe_priv_file_why(void *user) {
    spipe_file_t *f = (spipe_file_t *)user;
    const char *gone = spipe_priv_file_gone(f);
    const spipe_priv_file_words_t *w = gone ? NULL : spipe_priv_file_own_words(f, 0);
    if (gone) return gone;
    return w ? w->text : "no memory for the reason";
}

/* ---- 1 files: reading ---------------------------------------------------------------------- */
/* Reads n bytes at a place through the page cache. */
SPIPE_API cudaError_t spipe_priv_file_read(spipe_file_t *f, unsigned char *to, size_t n,
                                           size_t at) {
    while (n > 0) {
        const size_t want = spipe_priv_file_most(n);
        const long long got = spipe_priv_read_at(f, f->fd, to, want, at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return spipe_priv_file_bad(f, "reading", at, strerror(errno));
        if (got == 0) {
            return spipe_priv_file_bad(f, "reading", at, "it became shorter while it was read");
        }
        to += got;
        at += (size_t)got;
        n -= (size_t)got;
    }
    return cudaSuccess;
}

/* Takes a block of aligned memory of SPIPE_PRIV_FILE_DIRECT_READ bytes; free blocks are linked by
   their first bytes. NULL = no memory. */
SPIPE_API unsigned char *spipe_priv_file_take(spipe_file_t *f) {
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

SPIPE_API void spipe_priv_file_give_back(spipe_file_t *f, unsigned char *block) {
    spipe_priv_lock(f->sync);
    memcpy(block - sizeof(void *), (void *)&f->direct.bounce, sizeof f->direct.bounce);
    f->direct.bounce = block;
    spipe_priv_unlock(f->sync);
}

SPIPE_API void spipe_priv_file_free_blocks(spipe_file_t *f) {
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
SPIPE_API cudaError_t spipe_priv_file_read_direct(spipe_file_t *f, unsigned char *to, size_t n,
                                                  size_t at) {
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

/* The positioned source of a regular file. */
SPIPE_API cudaError_t spipe_priv_file_source_at(void *dst, size_t first, size_t count, void *user) {
    spipe_file_t *f = (spipe_file_t *)user;
    unsigned char *to = (unsigned char *)dst;
    const size_t at = first * f->elem_bytes, all = count * f->elem_bytes;
    const size_t n = f->bytes - at < all ? f->bytes - at : all;
    if (spipe_priv_file_gone(f)) return cudaErrorInvalidValue;
    if (n < all) memset(to + n, 0, all - n);
    if (f->way == SPIPE_FILE_DIRECT && f->direct.fd >= 0) {
        return spipe_priv_file_read_direct(f, to, n, f->offset + at);
    }
    return spipe_priv_file_read(f, to, n, f->offset + at);
}

/* Writes zeros after the file's bytes, on the device. */
SPIPE_API cudaError_t spipe_priv_file_zeros(unsigned char *to, size_t n) {
    if (n == 0) return cudaSuccess;
    SPIPE_TRY(cudaMemsetAsync(to, 0, n, cudaStreamPerThread));
    return cudaStreamSynchronize(cudaStreamPerThread);
}

/* Makes the device that has the memory the current one. */
SPIPE_API cudaError_t spipe_priv_file_on_device(const void *memory) {
    struct cudaPointerAttributes found;
    SPIPE_TRY(cudaPointerGetAttributes(&found, memory));
    return cudaSetDevice(found.device);
}

/* The positioned source that reads by cuFile; dst is on the device. */
SPIPE_API cudaError_t spipe_priv_file_source_gpu(void *dst, size_t first, size_t count,
                                                 void *user) {
    spipe_file_t *f = (spipe_file_t *)user;
    unsigned char *to = (unsigned char *)dst;
    const size_t at = first * f->elem_bytes, all = count * f->elem_bytes;
    const size_t n = f->bytes - at < all ? f->bytes - at : all;
    size_t done = 0;
    char why[64];
    cudaError_t e;
    if (spipe_priv_file_gone(f)) return cudaErrorInvalidValue;
    e = spipe_priv_file_on_device(dst);
    while (e == cudaSuccess && done < n) {
        const size_t want = spipe_priv_file_most(n - done), place = f->offset + at + done;
        const ssize_t got = f->cufile.read(f->cufile.handle, to, want, (off_t)place, (off_t)done);
        if (got == -1 && errno == EINTR) continue;
        if (got == -1) return spipe_priv_file_bad(f, "reading", place, strerror(errno));
        snprintf(why, sizeof why, "cuFile error %ld", (long)-got);
        if (got == 0) snprintf(why, sizeof why, "it became shorter while it was read");
        if (got <= 0) return spipe_priv_file_bad(f, "reading", place, why);
        done += (size_t)got;
    }
    if (e == cudaSuccess) e = spipe_priv_file_zeros(to + n, all - n);
    if (e != cudaSuccess) {
        (void)spipe_priv_file_bad(f, "reading", f->offset + at, cudaGetErrorString(e));
    }
    return e;
}

/* The source of a file that can only be read in order. */
SPIPE_API cudaError_t spipe_priv_file_source(void *dst, size_t max_count, size_t *count,
                                             void *user) {
    spipe_file_t *f = (spipe_file_t *)user;
    unsigned char *to = (unsigned char *)dst;
    const size_t room = max_count * f->elem_bytes, left = f->most - f->bytes;
    const size_t all = room < left ? room : left;
    size_t n = 0;
    if (spipe_priv_file_gone(f)) return cudaErrorInvalidValue;
    if (f->end_given) {
        return spipe_priv_file_bad(f, "reading", f->offset + f->bytes,
                                   "a run before read it to its end; open it again for another");
    }
    while (n < all && !f->ended) {
        const size_t want = spipe_priv_file_most(all - n);
        const long long got = (long long)read(f->fd, to + n, (unsigned)want);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 || (got == 0 && f->regular)) {
            return spipe_priv_file_bad(f, "reading", f->offset + f->bytes + n,
                                       got < 0 ? strerror(errno)
                                               : "it became shorter while it was read");
        }
        f->ended = got == 0;
        n += (size_t)got;
    }
    *count = (n + f->elem_bytes - 1) / f->elem_bytes;
    memset(to + n, 0, *count * f->elem_bytes - n);
    f->end_given = n == 0;
    f->bytes += n;
    if (n > 0) f->last_bytes = (n - 1) % f->elem_bytes + 1;
    return cudaSuccess;
}

/* ---- 1 files: writing ---------------------------------------------------------------------- */
/* Writes n bytes at a place. */
SPIPE_API cudaError_t spipe_priv_file_write(spipe_file_t *f, const unsigned char *from, size_t n,
                                            size_t at) {
    while (n > 0) {
        const long long put = spipe_priv_write_at(f, from, spipe_priv_file_most(n), at);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return spipe_priv_file_bad(f, "writing", at, strerror(put ? errno : ENOSPC));
        from += put;
        at += (size_t)put;
        n -= (size_t)put;
    }
    spipe_priv_lock(f->sync);
    if (at > f->bytes) f->bytes = at;
    spipe_priv_unlock(f->sync);
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_priv_file_sink_at(const void *src, size_t first, size_t count,
                                              void *user) {
    spipe_file_t *f = (spipe_file_t *)user;
    if (spipe_priv_file_gone(f)) return cudaErrorInvalidValue;
    return spipe_priv_file_write(f, (const unsigned char *)src, count * f->elem_bytes,
                                 f->offset + first * f->elem_bytes);
}

SPIPE_API cudaError_t spipe_priv_file_sink(const void *src, size_t count, size_t first,
                                           void *user) {
    spipe_file_t *f = (spipe_file_t *)user;
    const unsigned char *from = (const unsigned char *)src;
    size_t n = count * f->elem_bytes;
    if (spipe_priv_file_gone(f)) return cudaErrorInvalidValue;
    if (first == 0 && f->regular) { /* a new run begins */
        f->bytes = f->offset;
        if (lseek(f->fd, (off_t)f->offset, SEEK_SET) < 0)
            return spipe_priv_file_bad(f, "writing", f->offset, strerror(errno));
    }
    while (n > 0) {
        const size_t want = spipe_priv_file_most(n);
        const long long put = (long long)write(f->fd, from, (unsigned)want);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return spipe_priv_file_bad(f, "writing", f->bytes, strerror(errno));
        from += put;
        f->bytes += (size_t)put;
        n -= (size_t)put;
    }
    return cudaSuccess;
}

/* ---- 1 files: opening ---------------------------------------------------------------------- */
SPIPE_API cudaError_t spipe_priv_file_refuse(spipe_file_t *f, spipe_failure_t *failure,
                                             const char *doing, const char *path, int error) {
    spipe_file_close(f);
    return spipe_priv_refuse(failure, cudaErrorOperatingSystem, "%s %s: %s", doing, path,
                             strerror(error));
}

SPIPE_API cudaError_t spipe_priv_file_begin(spipe_file_t *f, const char *path,
                                            spipe_failure_t *failure) {
    if (failure) spipe_priv_failure_clear(failure);
    if (!f) return spipe_priv_refuse(failure, cudaErrorInvalidValue, "the file is NULL");
    memset((void *)f, 0, sizeof *f);
    f->fd = f->direct.fd = -1;
    if (!path) return spipe_priv_refuse(failure, cudaErrorInvalidValue, "the path is NULL");
    f->path = path;
    f->sync = spipe_priv_sync_create();
    if (f->sync) return cudaSuccess;
    return spipe_priv_refuse(failure, cudaErrorMemoryAllocation, "no memory for a lock");
}

/* Returns 1 if a file's size is true. Files of /sys claim a page, and have no blocks. */
SPIPE_API int spipe_priv_file_is_long(int fd, const struct stat *st) {
#if SPIPE_PRIV_POSIX_NAMES && !defined(_WIN32)
    char last;
    if (st->st_blocks == 0 && pread(fd, &last, 1, st->st_size - 1) == 0) return 0;
#else
    (void)fd;
    (void)st;
#endif
    return 1;
}

SPIPE_API cudaError_t spipe_file_open(spipe_file_t *file, const char *path,
                                      spipe_failure_t *failure) {
    struct stat st;
    SPIPE_TRY(spipe_priv_file_begin(file, path, failure));
    if (strcmp(path, "-") == 0) {
        file->path = "standard input";
        file->fd = dup(0);
    } else {
        file->fd = open(path, O_RDONLY | SPIPE_PRIV_O_BINARY);
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
    file->regular = S_ISREG(st.st_mode) && st.st_size > 0; /* files of /proc claim size 0 */
    if (file->regular && !spipe_priv_file_is_long(file->fd, &st)) file->regular = 0;
    if (file->regular) file->bytes = file->size = (size_t)st.st_size;
    if (file->regular && strcmp(path, "-") == 0) { /* it may have been read from already */
        const off_t at = lseek(file->fd, 0, SEEK_CUR);
        file->offset = at > 0 && at <= st.st_size ? (size_t)at : 0;
        file->bytes -= file->offset;
    }
    return cudaSuccess;
}

/* Opens the output: without a name if the system can, else under the name part, which must be
   new. */
SPIPE_API int spipe_priv_file_make(spipe_file_t *f) {
    int tries, fd = -1;
#if defined(O_TMPFILE)
    char *slash = strrchr(f->part, '/'), kept = 0;
    if (access("/proc/self/fd", X_OK) == 0) {
        const char *folder = slash ? f->part : ".";
        if (slash) kept = slash[1];
        if (slash) slash[1] = '\0';
        fd = open(folder, O_TMPFILE | O_RDWR, 0666);
        if (slash) slash[1] = kept;
    }
    f->nameless = fd >= 0;
    if (f->nameless) return fd;
#endif
    for (tries = 0; tries < 100 && fd < 0; ++tries) {
        snprintf(f->part + strlen(f->target), 32, ".%ld.%d.part", (long)getpid(), tries);
        fd = open(f->part, O_CREAT | O_EXCL | O_RDWR | SPIPE_PRIV_O_BINARY, 0666);
        if (fd < 0 && errno != EEXIST) return fd;
    }
    return fd;
}

/* A path with links followed, in memory of its own; NULL = no memory. */
SPIPE_API char *spipe_priv_file_target(const char *path) {
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

SPIPE_API cudaError_t spipe_file_create(spipe_file_t *file, const char *path,
                                        spipe_failure_t *failure) {
    struct stat st;
    int there, to_stdout;
    SPIPE_TRY(spipe_priv_file_begin(file, path, failure));
    to_stdout = strcmp(path, "-") == 0;
    there = !to_stdout && stat(path, &st) == 0;
    file->regular = !to_stdout && (!there || S_ISREG(st.st_mode));
    if (to_stdout) file->path = "standard output";
    if (!file->regular) {
        file->fd = to_stdout ? dup(1) : open(path, O_WRONLY | SPIPE_PRIV_O_BINARY);
        if (file->fd >= 0) return cudaSuccess;
        return spipe_priv_file_refuse(file, failure, "cannot write", file->path, errno);
    }
    file->target = spipe_priv_file_target(path);
    if (file->target) file->part = (char *)malloc(strlen(file->target) + 32);
    if (!file->target || !file->part) {
        spipe_file_close(file);
        return spipe_priv_refuse(failure, cudaErrorMemoryAllocation, "no memory for a name");
    }
    memcpy(file->part, file->target, strlen(file->target) + 1);
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
SPIPE_API int spipe_priv_file_asked(int fd, unsigned char *map, size_t at, size_t page) {
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

/* Returns 1 if the page cache holds most of a file: some places are asked, without waiting; also if
   they cannot be asked. */
SPIPE_API int spipe_priv_file_is_cached(const spipe_file_t *f) {
#if defined(RWF_NOWAIT)
    const size_t most = SPIPE_PRIV_FILE_SAMPLES, wanted = (f->bytes >> 20) + 1;
    const size_t samples = wanted < most ? wanted : most, step = f->bytes / samples;
    const size_t end = f->offset + f->bytes, page = (size_t)sysconf(_SC_PAGESIZE);
    void *map = end > 0 ? mmap(NULL, end, PROT_READ, MAP_SHARED, f->fd, 0) : MAP_FAILED;
    unsigned char *bytes = map != MAP_FAILED ? (unsigned char *)map : NULL;
    size_t k;
    int there = 0, cold = 0;
    for (k = 0; k < samples && f->bytes > 0; ++k) {
        const int has = spipe_priv_file_asked(f->fd, bytes, f->offset + step * k, page);
        there += has == 1;
        cold += has == 0;
    }
    if (bytes) (void)munmap(map, end);
    return cold <= there;
#else
    (void)f;
    return 1;
#endif
}

/* The alignment of direct reads: what the system says, else a page; 0 = no direct reads. */
SPIPE_API size_t spipe_priv_file_align(int fd) {
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

/* Returns 1 if a file shall be read past the page cache and can be; few file systems refuse that.
   The file is opened a second time by its name, which may be that of another file by now. */
SPIPE_API int spipe_priv_file_is_direct(spipe_file_t *f) {
#if defined(O_DIRECT)
    struct stat first, again;
    if ((f->way != SPIPE_FILE_DIRECT && f->way != SPIPE_FILE_GPU) || f->direct.fd >= 0) {
        return f->direct.fd >= 0;
    }
    f->direct.fd = open(f->path, O_RDONLY | O_DIRECT);
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
SPIPE_API const char *spipe_priv_file_cufile(spipe_file_t *f) {
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

/* Decides how a regular file is read; returns the words for the report. */
SPIPE_API const char *spipe_priv_file_choose(spipe_file_t *f) {
    const char *refused = NULL;
    if (f->way == SPIPE_FILE_GPU) {
        refused = spipe_priv_file_cufile(f);
        if (!refused) return "file, into device memory by cuFile: all threads read";
        f->way = SPIPE_FILE_AUTO;
    }
    if (f->way == SPIPE_FILE_AUTO) {
        /* asking takes 15 us, which does not pay for a small file */
        const int cached = f->bytes <= SPIPE_PRIV_FILE_SMALL || spipe_priv_file_is_cached(f);
        f->way = cached ? SPIPE_FILE_CACHED : SPIPE_FILE_DIRECT;
    }
    if (!spipe_priv_file_is_direct(f)) f->way = SPIPE_FILE_CACHED;
    if (refused) return refused;
    if (f->way == SPIPE_FILE_CACHED) return "file, page cache: all threads read";
    return "file, not in the page cache: all threads read past it (O_DIRECT)";
}

SPIPE_API int spipe_priv_file_mistake(spipe_desc_t *d, spipe_file_t *f, const char *words) {
    if (!f || !f->sync) {
        return spipe_priv_mistake(d, "a file is not open; look at what spipe_file_open or "
                                     "spipe_file_create returned");
    }
    snprintf(f->words, sizeof f->words, "file %.120s: %s", f->path, words);
    return spipe_priv_mistake(d, f->words);
}

/* Whether a file is a buffer already: its element, and where it is in it, are noted once. */
SPIPE_API int spipe_priv_file_added(const spipe_desc_t *d, const spipe_file_t *f) {
    int i;
    for (i = 0; i < d->num_buffers; ++i) {
        if (d->buffers[i].user == f && d->buffers[i].why == spipe_priv_file_why) return 1;
    }
    return 0;
}

/* Returns what is wrong with offset and bytes of an input; NULL = nothing. If only offset was
   assigned, bytes becomes the rest of the file after it. */
SPIPE_API const char *spipe_priv_file_part(spipe_file_t *f) {
    if (!f->regular) {
        f->most = f->bytes > 0 ? f->bytes : SIZE_MAX;
        return f->offset > 0 ? "an offset is only for a file that has places, and is not empty"
                             : NULL;
    }
    if (f->offset > f->size) return "it ends before the offset";
    if (f->bytes == f->size) f->bytes -= f->offset;
    if (f->bytes > f->size - f->offset) return "it ends before the last of these bytes";
    f->most = f->bytes;
    return NULL;
}

SPIPE_API int spipe_add_file_input(spipe_desc_t *d, spipe_file_t *file, size_t elem_bytes) {
    const size_t elem = elem_bytes > 0 ? elem_bytes : 1;
    const char *wrong, *how = "file, in order: one thread reads";
    size_t count;
    int i;
    if (!spipe_priv_begun(d)) return -1;
    if (!file || file->fd < 0 || !file->sync) return spipe_priv_file_mistake(d, NULL, NULL);
    if (file->part) {
        return spipe_priv_file_mistake(d, file,
                                       "it was created to be written; open one to be read");
    }
    if (spipe_priv_file_added(d, file)) {
        return spipe_priv_file_mistake(d, file, "it is a buffer already; open it once more");
    }
    wrong = spipe_priv_file_part(file);
    if (wrong) return spipe_priv_file_mistake(d, file, wrong);
    file->elem_bytes = elem;
    if (!file->regular) file->way = SPIPE_FILE_ORDERED;
    if (file->way == SPIPE_FILE_ORDERED) {
        if (file->regular) (void)lseek(file->fd, (off_t)file->offset, SEEK_SET);
        if (file->regular) file->ended = file->end_given = 0;
        file->bytes = 0;
        i = spipe_add_source(d, spipe_priv_file_source, file, elem_bytes);
    } else {
        how = spipe_priv_file_choose(file);
        count = file->bytes / elem + (file->bytes % elem != 0);
        file->last_bytes = file->bytes > 0 ? (file->bytes - 1) % elem + 1 : 0;
        if (d->count == SPIPE_AUTO) d->count = count;
        if (d->count > count) {
            return spipe_priv_file_mistake(d, file, "it has fewer elements than count says");
        }
        i = spipe_add_source_at(d, spipe_priv_file_source_at, file, elem_bytes);
    }
    if (i < 0) return i;
    d->buffers[i].why = spipe_priv_file_why;
    d->buffers[i].how = how;
    if (file->way == SPIPE_FILE_GPU) {
        d->buffers[i].source_at = spipe_priv_file_source_gpu;
        d->buffers[i].on_device = 1;
    }
    return i;
}

/* Whether another output of a description has this path. */
SPIPE_API int spipe_priv_file_target_taken(const spipe_desc_t *d, const spipe_file_t *f) {
    int i;
    for (i = 0; i < d->num_buffers && f->target; ++i) {
        const spipe_file_t *other = (const spipe_file_t *)d->buffers[i].user;
        if (d->buffers[i].why != spipe_priv_file_why || !other->target) continue;
        if (strcmp(other->target, f->target) == 0) return 1;
    }
    return 0;
}

SPIPE_API int spipe_add_file_output(spipe_desc_t *d, spipe_file_t *file, size_t elem_bytes) {
    int i;
    if (!spipe_priv_begun(d)) return -1;
    if (!file || file->fd < 0 || !file->sync) return spipe_priv_file_mistake(d, NULL, NULL);
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
    file->elem_bytes = elem_bytes;
    if (!file->regular) file->way = SPIPE_FILE_ORDERED;
    if (file->way == SPIPE_FILE_ORDERED) {
        i = spipe_add_sink(d, spipe_priv_file_sink, file, elem_bytes);
    } else {
        file->way = SPIPE_FILE_CACHED;
        i = spipe_add_sink_at(d, spipe_priv_file_sink_at, file, elem_bytes);
    }
    if (i < 0) return i;
    d->buffers[i].why = spipe_priv_file_why;
#if defined(FALLOC_FL_KEEP_SIZE) /* room at once: a disk that is full says so before the run */
    if (file->part && d->count != SPIPE_AUTO && d->count > 0 && elem_bytes > 0 &&
        d->count <= (size_t)PTRDIFF_MAX / elem_bytes &&
        fallocate(file->fd, 0, (off_t)file->offset, (off_t)(d->count * elem_bytes)) != 0 &&
        errno == ENOSPC) {
        return spipe_priv_file_mistake(d, file, "there is no space left for it on the disk");
    }
#endif
    return i;
}

SPIPE_API cudaError_t spipe_file_write(spipe_file_t *file, const void *data, size_t bytes,
                                       size_t at, spipe_failure_t *failure) {
    cudaError_t e;
    if (failure) spipe_priv_failure_clear(failure);
    if (!file || !file->part || !data) {
        return spipe_priv_refuse(failure, cudaErrorInvalidValue,
                                 "there is no regular file that was created, or no data");
    }
    e = spipe_priv_file_write(file, (const unsigned char *)data, bytes, at);
    return e == cudaSuccess ? e : spipe_priv_refuse(failure, e, "%s", spipe_priv_file_why(file));
}

/* ---- 1 files: the end ---------------------------------------------------------------------- */
/* Gives a nameless output its temporary name, part. */
SPIPE_API int spipe_priv_file_name(spipe_file_t *f) {
#if defined(O_TMPFILE)
    char link[64];
    int tries, failed = -1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", f->fd);
    for (tries = 0; tries < 100 && failed; ++tries) {
        snprintf(f->part + strlen(f->target), 32, ".%ld.%d.part", (long)getpid(), tries);
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

SPIPE_API cudaError_t spipe_file_commit(spipe_file_t *file, size_t bytes,
                                        spipe_failure_t *failure) {
    int failed;
    if (failure) spipe_priv_failure_clear(failure);
    if (!file || file->fd < 0 || !file->sync) {
        return spipe_priv_refuse(failure, cudaErrorInvalidValue, "the file is not open");
    }
    if (file->regular && !file->part) {
        return spipe_priv_refuse(failure, cudaErrorInvalidValue,
                                 "%s was opened to be read, or is committed", file->path);
    }
    if (!file->part) return cudaSuccess;
    if (bytes > file->bytes) bytes = file->bytes;
    failed = ftruncate(file->fd, (off_t)bytes);
#if !defined(_WIN32)
    /* A file system that writes later, such as NFS, reports errors at close. */
    if (!failed) failed = close(dup(file->fd));
#endif
    if (!failed && file->nameless) failed = spipe_priv_file_name(file);
#if defined(_WIN32)
    if (!failed) failed = close(file->fd);
    if (!failed) file->fd = -1;
    if (!failed) (void)remove(file->target); /* on Windows rename does not replace */
#endif
    if (!failed) failed = rename(file->part, file->target);
    if (failed) return spipe_priv_file_refuse(file, failure, "cannot write", file->path, errno);
    free(file->part);
    file->part = NULL;
    file->bytes = bytes;
    return cudaSuccess;
}

SPIPE_API void spipe_file_close(spipe_file_t *file) {
    const int error = errno; /* keep errno for the caller */
    int forked;
    if (!file || !file->sync) return;
    forked = spipe_priv_sync_is_forked(file->sync); /* then the part is the other's */
    if (file->cufile.handle && !forked) file->cufile.leave(file->cufile.handle);
    if (file->fd >= 0) (void)close(file->fd);
    if (file->direct.fd >= 0) (void)close(file->direct.fd);
    if (file->part && !file->nameless && !forked) (void)remove(file->part);
    free(file->part);
    free(file->target);
    spipe_priv_file_free_blocks(file);
    while (file->errors) {
        spipe_priv_file_words_t *w = file->errors;
        file->errors = w->next;
        free(w);
    }
    spipe_priv_sync_destroy(file->sync);
    file->part = file->target = NULL;
    file->sync = NULL;
    file->cufile.handle = NULL;
    file->fd = file->direct.fd = -1;
    errno = error;
}

#endif /* STREAMPIPE_FILES_H */
