/*  torture_alloc.h -- malloc, calloc, realloc, free and pthread_create of the code that is compiled
    after this: counted, and made to fail. Include it before streampipe.h, in one file only: what
    the runtime itself allocates is not touched, because it was compiled elsewhere. */
#ifndef TORTURE_ALLOC_H
#define TORTURE_ALLOC_H

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <dirent.h>
#include <malloc.h>
#include <pthread.h>

/* Which one fails: the k-th from now, and all after it where that lasts; 0 = none. */
static std::atomic<long> torture_malloc_fails, torture_thread_fails, torture_fired, torture_lasts;
static std::atomic<long> torture_live_blocks, torture_live_bytes;

static int torture_due(std::atomic<long> *countdown) {
    if (countdown->load() <= 0 || countdown->fetch_sub(1) != 1) return 0;
    if (torture_lasts) *countdown = 1;
    ++torture_fired;
    return 1;
}

/* All blocks, so that a leak checker finds one that is left on purpose. Never destroyed. */
static std::mutex *torture_blocks_lock = new std::mutex;
static std::set<void *> *torture_blocks = new std::set<void *>;

static void *torture_kept(void *p) {
    if (!p) return p;
    const std::lock_guard<std::mutex> guard(*torture_blocks_lock);
    torture_blocks->insert(p);
    ++torture_live_blocks;
    torture_live_bytes += (long)malloc_usable_size(p);
    return p;
}

static void torture_given_back(void *p) {
    if (!p) return;
    const std::lock_guard<std::mutex> guard(*torture_blocks_lock);
    torture_blocks->erase(p);
    --torture_live_blocks;
    torture_live_bytes -= (long)malloc_usable_size(p);
}

static void *torture_malloc(size_t bytes) {
    return torture_due(&torture_malloc_fails) ? NULL : torture_kept(malloc(bytes));
}

static inline void *torture_calloc(size_t num, size_t bytes) {
    return torture_due(&torture_malloc_fails) ? NULL : torture_kept(calloc(num, bytes));
}

static void *torture_realloc(void *before, size_t bytes) {
    if (torture_due(&torture_malloc_fails)) return NULL;
    torture_given_back(before);
    return torture_kept(realloc(before, bytes)); /* of a few bytes: it does not fail by itself */
}

static void torture_free(void *p) {
    torture_given_back(p);
    free(p);
}

static int torture_thread_create(pthread_t *id, const pthread_attr_t *how, void *(*fn)(void *),
                                 void *arg) {
    return torture_due(&torture_thread_fails) ? EAGAIN : pthread_create(id, how, fn, arg);
}

/* Threads of this process. */
static int torture_num_threads(void) {
    DIR *dir = opendir("/proc/self/task");
    int n = 0;
    while (const struct dirent *entry = dir ? readdir(dir) : NULL) n += entry->d_name[0] != '.';
    if (dir) closedir(dir);
    return n;
}

#define malloc(bytes)                    torture_malloc(bytes)
#define calloc(num, bytes)               torture_calloc(num, bytes)
#define realloc(before, bytes)           torture_realloc(before, bytes)
#define free(p)                          torture_free(p)
#define pthread_create(id, how, fn, arg) torture_thread_create(id, how, fn, arg)

#endif
