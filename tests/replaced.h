/*  replaced.h -- the library with calls of the system that a test answers itself. Include it before
    the library's headers; what main sets in `replaced` is called instead, and what is NULL there
    the system does. Tests that include it are compiled as one program (tests/tools/join), which
    they could not be if each defined such names for itself: streampipe.h is compiled once. */
#ifndef REPLACED_H
#define REPLACED_H

#include <cuda_runtime.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifndef _WIN32
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>
#endif

typedef struct replaced {
    void *(*malloc)(size_t bytes);
    void *(*calloc)(size_t n, size_t bytes);
    void *(*realloc)(void *p, size_t bytes);
    void (*free)(void *p);
    int (*pthread_create)(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
    int (*pthread_cond_signal)(pthread_cond_t *condition);
    int (*sched_yield)(void);
    int (*clock_gettime)(struct timespec *now);
    cudaError_t (*cudaEventQuery)(cudaEvent_t event);
#if defined(__linux__)
    int (*sched_getaffinity)(pid_t who, size_t bytes, cpu_set_t *cpus);
#endif
#ifndef _WIN32
    int (*access)(const char *path, int mode);
    int (*open)(const char *path, int flags, int mode);
    int (*close)(int fd);
    ssize_t (*pread)(int fd, void *to, size_t n, off_t at);
    ssize_t (*pwrite)(int fd, const void *from, size_t n, off_t at);
    ssize_t (*read)(int fd, void *to, size_t n);
    ssize_t (*write)(int fd, const void *from, size_t n);
    void *(*dlopen)(const char *name, int mode);
    void *(*dlsym)(void *library, const char *name);
#endif
#if defined(RWF_NOWAIT)
    ssize_t (*preadv2)(int fd, const struct iovec *v, int num, off_t at, int flags);
#endif
} replaced_t;

static replaced_t replaced;

static inline void *replaced_malloc(size_t bytes) {
    return replaced.malloc ? replaced.malloc(bytes) : malloc(bytes);
}

static inline void *replaced_calloc(size_t n, size_t bytes) {
    return replaced.calloc ? replaced.calloc(n, bytes) : calloc(n, bytes);
}

static inline void *replaced_realloc(void *p, size_t bytes) {
    return replaced.realloc ? replaced.realloc(p, bytes) : realloc(p, bytes);
}

static inline void replaced_free(void *p) { replaced.free ? replaced.free(p) : free(p); }

static inline int replaced_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *),
                                  void *arg) {
    return replaced.pthread_create ? replaced.pthread_create(t, a, fn, arg)
                                   : pthread_create(t, a, fn, arg);
}

static inline int replaced_signal(pthread_cond_t *condition) {
    return replaced.pthread_cond_signal ? replaced.pthread_cond_signal(condition)
                                        : pthread_cond_signal(condition);
}

static inline int replaced_yield(void) {
    return replaced.sched_yield ? replaced.sched_yield() : sched_yield();
}

static inline int replaced_gettime(clockid_t clock, struct timespec *now) {
    return replaced.clock_gettime ? replaced.clock_gettime(now) : clock_gettime(clock, now);
}

static inline cudaError_t replaced_query(cudaEvent_t event) {
    return replaced.cudaEventQuery ? replaced.cudaEventQuery(event) : cudaEventQuery(event);
}

#if defined(__linux__)
static inline int replaced_affinity(pid_t who, size_t bytes, cpu_set_t *cpus) {
    return replaced.sched_getaffinity ? replaced.sched_getaffinity(who, bytes, cpus)
                                      : sched_getaffinity(who, bytes, cpus);
}

#define sched_getaffinity replaced_affinity
#endif

#ifndef _WIN32
static inline int replaced_access(const char *path, int mode) {
    return replaced.access ? replaced.access(path, mode) : access(path, mode);
}

static inline int replaced_open(const char *path, int flags, int mode = 0) {
    return replaced.open ? replaced.open(path, flags, mode) : open(path, flags, mode);
}

static inline int replaced_close(int fd) { return replaced.close ? replaced.close(fd) : close(fd); }

static inline ssize_t replaced_pread(int fd, void *to, size_t n, off_t at) {
    return replaced.pread ? replaced.pread(fd, to, n, at) : pread(fd, to, n, at);
}

static inline ssize_t replaced_pwrite(int fd, const void *from, size_t n, off_t at) {
    return replaced.pwrite ? replaced.pwrite(fd, from, n, at) : pwrite(fd, from, n, at);
}

static inline ssize_t replaced_read(int fd, void *to, size_t n) {
    return replaced.read ? replaced.read(fd, to, n) : read(fd, to, n);
}

static inline ssize_t replaced_write(int fd, const void *from, size_t n) {
    return replaced.write ? replaced.write(fd, from, n) : write(fd, from, n);
}

static inline void *replaced_dlopen(const char *name, int mode) {
    return replaced.dlopen ? replaced.dlopen(name, mode) : dlopen(name, mode);
}

static inline void *replaced_dlsym(void *library, const char *name) {
    return replaced.dlsym ? replaced.dlsym(library, name) : dlsym(library, name);
}

#define access replaced_access
#define open   replaced_open
#define close  replaced_close
#define pread  replaced_pread
#define pwrite replaced_pwrite
#define read   replaced_read
#define write  replaced_write
#define dlopen replaced_dlopen
#define dlsym  replaced_dlsym
#endif

#if defined(RWF_NOWAIT)
static inline ssize_t replaced_preadv2(int fd, const struct iovec *v, int num, off_t at,
                                       int flags) {
    return replaced.preadv2 ? replaced.preadv2(fd, v, num, at, flags)
                            : preadv2(fd, v, num, at, flags);
}

#define preadv2 replaced_preadv2
#endif

#define malloc(bytes)       replaced_malloc(bytes)
#define calloc(n, bytes)    replaced_calloc(n, bytes)
#define realloc(p, bytes)   replaced_realloc(p, bytes)
#define free(p)             replaced_free(p)
#define pthread_create      replaced_create
#define pthread_cond_signal replaced_signal
#define sched_yield         replaced_yield
#define clock_gettime       replaced_gettime
#define cudaEventQuery      replaced_query

/* The library asks whether there is a dlopen; here there always is. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Waddress"
#include "streampipe_files.h"
#include "streampipe_tools.h"
#pragma GCC diagnostic pop

#undef malloc
#undef calloc
#undef realloc
#undef free
#undef pthread_create
#undef pthread_cond_signal
#undef sched_yield
#undef clock_gettime
#undef cudaEventQuery
#undef sched_getaffinity
#undef access
#undef open
#undef close
#undef pread
#undef pwrite
#undef read
#undef write
#undef preadv2
#undef dlopen
#undef dlsym

#endif
