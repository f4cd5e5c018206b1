/*  torture_files.h -- what the system does to the reads and writes of streampipe_files.h: calls do
    a part, are interrupted, fail at a byte, find a file shorter than it was. Include it
    behind replaced.h. All of it follows from a seed, but for which thread meets it. */
#ifndef TORTURE_FILES_H
#define TORTURE_FILES_H

#include "replaced.h"

#include <atomic>
#include <mutex>

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    READING,
    WRITING
};

typedef struct torture_system {
    int is_short;          /* 1 = a call does a part, or is interrupted */
    int cold;              /* 1 = the page cache is said to hold nothing */
    int bad_errno[2];      /* a call for this byte fails; 0 = none does */
    size_t bad_at[2], cut; /* that byte of the file; where the file ends now; SIZE_MAX = nowhere */
    int lasts;             /* 1 = so do all calls for later bytes */
    std::atomic<size_t> least; /* byte at which the first call for it failed */
    std::atomic<long> parts, interrupts, errors;
    std::atomic<unsigned> random;
} torture_system_t;

static torture_system_t torture_system;

static unsigned torture_random(void) {
    unsigned x = torture_system.random += 0x9E3779B9u;
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
    x = (x ^ (x >> 13)) * 0xC2B2AE35u;
    return x ^ (x >> 16);
}

static void torture_system_mend(void) {
    torture_system_t *s = &torture_system;
    s->is_short = s->cold = s->lasts = 0;
    s->bad_errno[READING] = s->bad_errno[WRITING] = 0;
    s->cut = s->least = SIZE_MAX;
}

/* The least byte that a call failed at. direct: the call is made again, through the cache. */
static void torture_failed_at(size_t at, int direct) {
    size_t least = torture_system.least;
    ++torture_system.errors;
    while (!direct && at < least && !torture_system.least.compare_exchange_weak(least, at))
        continue;
}

/* -1: the call fails; else it may do *n bytes from there on. */
static int torture_call(int what, size_t at, size_t *n, int direct) {
    torture_system_t *s = &torture_system;
    const size_t bad = s->bad_at[what];
    if (s->is_short && torture_random() % 4 == 0) {
        ++s->interrupts;
        errno = EINTR;
        return -1;
    }
    if (s->bad_errno[what] && at + *n > bad && (at <= bad || s->lasts)) {
        /* what lies before it may still come */
        if (at >= bad || torture_random() % 2) {
            torture_failed_at(at, direct);
            errno = s->bad_errno[what];
            return -1;
        }
        *n = bad - at;
    }
    if (s->is_short && *n > 1 && torture_random() % 2) {
        ++s->parts;
        *n = 1 + torture_random() % *n;
    }
    if (what == WRITING || at + *n <= s->cut) return 0;
    *n = at < s->cut ? s->cut - at : 0;
    if (*n == 0) torture_failed_at(at, direct);
    return 0;
}

/* Direct calls have pages of a place and of memory. */
static ssize_t torture_pread(int fd, void *to, size_t n, off_t at) {
    const int direct = (fcntl(fd, F_GETFL) & O_DIRECT) != 0;
    size_t part = n;
    if (torture_call(READING, (size_t)at, &part, direct)) return -1;
    const ssize_t got = pread(fd, to, direct ? n : part, at); /* itself it must be of whole pages */
    return got > (ssize_t)part ? (ssize_t)part : got;
}

static ssize_t torture_pwrite(int fd, const void *from, size_t n, off_t at) {
    if (torture_call(WRITING, (size_t)at, &n, 0)) return -1;
    return pwrite(fd, from, n, at);
}

static ssize_t torture_read(int fd, void *to, size_t n) {
    if (torture_call(READING, (size_t)lseek(fd, 0, SEEK_CUR), &n, 0)) return -1;
    return read(fd, to, n);
}

static ssize_t torture_write(int fd, const void *from, size_t n) {
    if (torture_call(WRITING, (size_t)lseek(fd, 0, SEEK_CUR), &n, 0)) return -1;
    return write(fd, from, n);
}

/* Asked only whether the page cache holds a byte. */
static ssize_t torture_preadv2(int fd, const struct iovec *v, int num, off_t at, int flags) {
    if (!torture_system.cold) return preadv2(fd, v, num, at, flags);
    errno = EAGAIN;
    return -1;
}

/* From here on the library's calls are these. */
static void torture_system_begin(void) {
    replaced.pread = torture_pread;
    replaced.pwrite = torture_pwrite;
    replaced.read = torture_read;
    replaced.write = torture_write;
    replaced.preadv2 = torture_preadv2;
}

#endif
