/* hostcuda: where memory comes from, the device's and pinned memory, and which pages are of files.
 * New memory is filled with a pattern, so that it holds no zeros to rely on. */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#ifdef __linux__
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "hostcuda_internal.h"

namespace hc {

static const size_t LARGE_PAGE_BYTES = static_cast<size_t>(2) << 20;

/* Large pages for large memory: all of it is written at once, and a page fault for each 4 KiB takes
 * longer. */
static void use_large_pages(void *p, size_t size) {
#ifdef MADV_HUGEPAGE
    const size_t page = LARGE_PAGE_BYTES;
    const uintptr_t at = reinterpret_cast<uintptr_t>(p), first = (at + page - 1) / page * page;
    const uintptr_t end = (at + size) / page * page;
    if (end > first) (void)madvise(reinterpret_cast<void *>(first), end - first, MADV_HUGEPAGE);
#else
    (void)p;
    (void)size;
#endif
}

/* ---- Huge blocks -----------------------------------------------------------------------------
 * Programs allocate far more device memory than they use, because on a GPU that costs nothing. So a
 * page of a huge block takes memory from its first write on: until then it is a page of a small
 * file that holds the pattern. A page before the block and one behind it cannot be read or
 * written. */
#if defined(__linux__) && defined(MFD_CLOEXEC)

static const size_t HUGE_BLOCK = static_cast<size_t>(256) << 20;

static std::mutex huge_lock;

/* Their addresses and sizes. */
static std::map<void *, size_t> &huge_blocks() {
    static auto *const all = new std::map<void *, size_t>; /* used until the process ends */
    return *all;
}

static size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

/* Bytes of the pattern's file: so that a block is mapped in at most 256 pieces. */
static size_t pattern_bytes(size_t size) {
    return (size / 256 + LARGE_PAGE_BYTES - 1) / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
}

static int open_pattern(size_t bytes) {
    const int file = memfd_create("hostcuda", MFD_CLOEXEC);
    if (file < 0) return file;
    void *at = MAP_FAILED;
    if (posix_fallocate(file, 0, static_cast<off_t>(bytes)) == 0)
        at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) {
        close(file);
        return -1;
    }
    memset(at, 0xA5, bytes);
    munmap(at, bytes);
    return file;
}

static bool map_pattern(char *to, size_t size, size_t piece, int file) {
    for (size_t at = 0; at < size; at += piece) {
        const size_t bytes = size - at < piece ? size - at : piece;
        if (mmap(to + at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
                 file, 0) == MAP_FAILED)
            return false;
    }
    return true;
}

/* The rest of the last page, which is not part of the block. */
static void hide_rest(char *end, size_t bytes, bool hidden) {
#ifdef __SANITIZE_ADDRESS__
    if (hidden)
        __asan_poison_memory_region(end, bytes);
    else
        __asan_unpoison_memory_region(end, bytes);
#else
    (void)end;
    (void)bytes;
    (void)hidden;
#endif
}

static void *allocate_huge(size_t size) {
    const size_t page = page_bytes(), piece = pattern_bytes(size);
    const size_t pages = (size + page - 1) / page * page, all = pages + 2 * page;
    void *const start =
        mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return nullptr;
    char *const p = static_cast<char *>(start) + page;
    const int file = open_pattern(piece);
    const bool mapped = file >= 0 && map_pattern(p, pages, piece, file);
    if (file >= 0) close(file);
    if (!mapped) {
        munmap(start, all);
        return nullptr;
    }
    hide_rest(p + size, pages - size, true);
    const std::lock_guard<std::mutex> lock(huge_lock);
    huge_blocks()[p] = size;
    return p;
}

static bool free_huge(void *p) {
    const std::lock_guard<std::mutex> lock(huge_lock);
    const auto i = huge_blocks().find(p);
    if (i == huge_blocks().end()) return false;
    const size_t size = i->second, page = page_bytes(), pages = (size + page - 1) / page * page;
    char *const at = static_cast<char *>(p);
    hide_rest(at + size, pages - size, false);
    munmap(at - page, pages + 2 * page);
    huge_blocks().erase(i);
    return true;
}
#else
static const size_t HUGE_BLOCK = SIZE_MAX;

static void *allocate_huge(size_t) { return nullptr; }

static bool free_huge(void *) { return false; }
#endif

/* ---- All blocks ------------------------------------------------------------------------------ */

void *allocate(size_t align, size_t size, bool filled) {
    void *p = nullptr;
    if (filled && size >= HUGE_BLOCK) p = allocate_huge(size); /* of whole pages: aligned enough */
    if (p) return p;
#ifdef _WIN32
    p = _aligned_malloc(size, align);
    if (!p) return nullptr;
#else
    if (posix_memalign(&p, align, size) != 0) return nullptr;
#endif
    use_large_pages(p, size);
    if (filled) memset(p, 0xA5, size);
    return p;
}

void free_allocated(void *p) {
    if (free_huge(p)) return;
#ifdef _WIN32
    _aligned_free(p);
#else
    free(p);
#endif
}

/* ---- Pages of files --------------------------------------------------------------------------
 * Each call reads the list of the process's mappings, which Linux keeps in order of addresses: what
 * an earlier call found may be unmapped by now. A mapping with an inode is of a file; that counts
 * also files in memory, and the variables of the program and its libraries. */
#ifdef __linux__

/* Reads a line to its end; keeps what fits. */
static bool read_line(FILE *f, char *line, int size) {
    if (!fgets(line, size, f)) return false;
    if (strchr(line, '\n')) return true;
    for (int c = fgetc(f); c != '\n' && c != EOF;) c = fgetc(f);
    return true;
}

size_t file_bytes(const void *p, size_t size) {
    const unsigned long long first = reinterpret_cast<uintptr_t>(p), last = first + size;
    FILE *const f = fopen("/proc/self/maps", "re");
    if (!f) return 0;
    unsigned long long begin = 0, end = 0, inode = 0, found = 0;
    char line[256];
    while (begin < last && read_line(f, line, sizeof line)) {
        /* begin-end permissions offset device inode path */
        if (sscanf(line, "%llx-%llx %*s %*s %*s %llu", &begin, &end, &inode) != 3) continue;
        if (inode == 0 || begin >= last || end <= first) continue;
        found += std::min(end, last) - std::max(begin, first);
    }
    fclose(f);
    return static_cast<size_t>(found);
}
#else
size_t file_bytes(const void *, size_t) { return 0; }
#endif

} /* namespace hc */
