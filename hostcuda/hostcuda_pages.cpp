/* hostcuda: where memory comes from, the device's and pinned memory. New memory is filled with a
 * pattern, so that it holds no zeros to rely on. */
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "hostcuda_internal.h"

namespace hc {

static const size_t PAGE_BYTES = 4096, LARGE_PAGE_BYTES = static_cast<size_t>(2) << 20;

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
 * Programs allocate far more than they use, as on a GPU it costs nothing. So pages of a huge block
 * exist from their first write on: until then all are those of one small file that holds the
 * pattern. A page that nobody may use lies before and behind the block. */
#if defined(__linux__) && defined(MFD_CLOEXEC)

static const size_t HUGE_BLOCK = static_cast<size_t>(256) << 20;

struct Huge {
    char *start; /* of all, with both guards */
    size_t bytes;
};

static std::mutex huge_lock;

static std::map<void *, Huge> &huge_blocks() {
    static auto *const all = new std::map<void *, Huge>; /* used until the process ends */
    return *all;
}

/* Bytes of the pattern's file: so that a block is mapped in at most 256 pieces. */
static size_t pattern_bytes(size_t size) {
    return (size / 256 + LARGE_PAGE_BYTES - 1) / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
}

static int open_pattern(size_t bytes) {
    const int file = memfd_create("hostcuda", MFD_CLOEXEC);
    if (file < 0) return file;
    void *at = MAP_FAILED;
    if (ftruncate(file, static_cast<off_t>(bytes)) == 0)
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
    const size_t pages = (size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES,
                 piece = pattern_bytes(size);
    const Huge h = {static_cast<char *>(mmap(nullptr, pages + 2 * PAGE_BYTES, PROT_NONE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
                    pages + 2 * PAGE_BYTES};
    if (h.start == MAP_FAILED) return nullptr;
    char *const p = h.start + PAGE_BYTES;
    const int file = open_pattern(piece);
    const bool mapped = file >= 0 && map_pattern(p, pages, piece, file);
    if (file >= 0) close(file);
    if (!mapped) {
        munmap(h.start, h.bytes);
        return nullptr;
    }
    hide_rest(p + size, pages - size, true);
    const std::lock_guard<std::mutex> lock(huge_lock);
    huge_blocks()[p] = h;
    return p;
}

static bool free_huge(void *p) {
    const std::lock_guard<std::mutex> lock(huge_lock);
    const auto i = huge_blocks().find(p);
    if (i == huge_blocks().end()) return false;
    const Huge &h = i->second;
    hide_rest(h.start + h.bytes - 2 * PAGE_BYTES, 2 * PAGE_BYTES, false);
    munmap(h.start, h.bytes);
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
    if (filled && size >= HUGE_BLOCK && align <= PAGE_BYTES) p = allocate_huge(size);
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

} /* namespace hc */
