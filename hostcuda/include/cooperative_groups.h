/* hostcuda: cooperative groups within a block (see ../README.md): the block, tiles of a warp, and
 * of the grid the numbers. No group spans blocks, as these run one after another, and there are no
 * coalesced groups, as nothing tells which threads took a branch. */
#ifndef HOSTCUDA_COOPERATIVE_GROUPS_H
#define HOSTCUDA_COOPERATIVE_GROUPS_H

#include "cuda_runtime.h"

namespace cooperative_groups {

/* The block (width 0), or a part of a warp of `width` threads, a power of 2. */
class thread_group {
  public:
    unsigned num_threads() const { return width ? width : hostcuda::cursor.total; }

    unsigned size() const { return num_threads(); }

    unsigned thread_rank() const {
        return width ? hostcuda::cursor.current & (width - 1) : hostcuda::cursor.current;
    }

    void sync() const {
        if (width)
            __syncwarp(lanes());
        else
            __syncthreads();
    }

  protected:
    explicit thread_group(unsigned width_) : width(width_) {}

    /* Of the warp, those of this group. */
    unsigned lanes() const {
        return width == 32 ? 0xffffffffu : ((1u << width) - 1u) << first_lane();
    }

    unsigned first_lane() const { return hostcuda::cursor.current & 31u & ~(width - 1); }

    friend thread_group tiled_partition(const thread_group &parent, unsigned width);

    unsigned width;
};

class thread_block : public thread_group {
  public:
    static dim3 group_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }

    static dim3 thread_index() { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }

    static dim3 group_dim() { return blockDim; }

    static dim3 dim_threads() { return blockDim; }

  private:
    thread_block() : thread_group(0) {}

    friend thread_block this_thread_block();
};

inline thread_block this_thread_block() { return thread_block(); }

/* Width threads that follow each other, in a warp. */
template <unsigned Width, typename Parent = void>
class thread_block_tile : public thread_group {
    static_assert(Width > 0 && Width <= 32 && (Width & (Width - 1)) == 0,
                  "hostcuda has tiles of 1, 2, 4, 8, 16 and 32 threads");

  public:
    /* thread_block_tile<32> holds a tile of any group. */
    template <typename Other>
    thread_block_tile(const thread_block_tile<Width, Other> &tile)
        : thread_group(Width), parent_threads(tile.parent_threads) {}

    static constexpr unsigned num_threads() { return Width; }

    static constexpr unsigned size() { return Width; }

    unsigned meta_group_rank() const { return hostcuda::cursor.current % parent_threads / Width; }

    unsigned meta_group_size() const { return (parent_threads + Width - 1) / Width; }

    template <typename T>
    T shfl(T value, unsigned rank) const {
        return in_pieces(value, [&](unsigned long long v) {
            return __shfl_sync(lanes(), v, static_cast<int>(rank), static_cast<int>(Width));
        });
    }

    template <typename T>
    T shfl_up(T value, unsigned by) const {
        return in_pieces(value, [&](unsigned long long v) {
            return __shfl_up_sync(lanes(), v, by, static_cast<int>(Width));
        });
    }

    template <typename T>
    T shfl_down(T value, unsigned by) const {
        return in_pieces(value, [&](unsigned long long v) {
            return __shfl_down_sync(lanes(), v, by, static_cast<int>(Width));
        });
    }

    template <typename T>
    T shfl_xor(T value, unsigned bits) const {
        return in_pieces(value, [&](unsigned long long v) {
            return __shfl_xor_sync(lanes(), v, static_cast<int>(bits), static_cast<int>(Width));
        });
    }

    int any(int predicate) const { return __any_sync(lanes(), predicate); }

    int all(int predicate) const { return __all_sync(lanes(), predicate); }

    unsigned ballot(int predicate) const {
        return __ballot_sync(lanes(), predicate) >> first_lane();
    }

  private:
    /* A shuffle takes 8 bytes, a tile's 32. */
    template <typename T, typename F>
    static T in_pieces(T value, F shuffle) {
        static_assert(sizeof(T) <= 32, "shuffles of a tile take types of up to 32 bytes");
        unsigned long long pieces[(sizeof(T) + 7) / 8] = {};
        memcpy(pieces, &value, sizeof value);
        for (unsigned long long &piece : pieces) piece = shuffle(piece);
        memcpy(&value, pieces, sizeof value);
        return value;
    }

    explicit thread_block_tile(unsigned parent) : thread_group(Width), parent_threads(parent) {}

    template <unsigned W, typename P>
    friend thread_block_tile<W, P> tiled_partition(const P &parent);
    template <unsigned W, typename P>
    friend class thread_block_tile;

    unsigned parent_threads;
};

template <unsigned Width, typename Parent>
inline thread_block_tile<Width, Parent> tiled_partition(const Parent &parent) {
    return thread_block_tile<Width, Parent>(parent.size());
}

inline thread_group tiled_partition(const thread_group &parent, unsigned width) {
    return thread_group(parent.width && parent.width < width ? parent.width : width);
}

/* Its numbers. A kernel that waits for all blocks of a grid needs a cooperative launch. */
class grid_group {
  public:
    static unsigned long long num_threads() { return num_blocks() * hostcuda::cursor.total; }

    static unsigned long long size() { return num_threads(); }

    static unsigned long long thread_rank() {
        return block_rank() * hostcuda::cursor.total + hostcuda::cursor.current;
    }

    static unsigned long long num_blocks() {
        return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z;
    }

    static unsigned long long block_rank() {
        return (static_cast<unsigned long long>(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x +
               blockIdx.x;
    }

    static dim3 group_dim() { return gridDim; }

    static dim3 dim_blocks() { return gridDim; }

    static dim3 block_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }

    static bool is_valid() { return false; }

    template <typename T = void>
    static void sync() {
        static_assert(sizeof(T *) == 0, "hostcuda runs blocks one after another: they cannot wait "
                                        "for each other, and there is no grid.sync()");
    }
};

inline grid_group this_grid() { return grid_group(); }

template <typename Group>
inline void sync(const Group &g) {
    g.sync();
}

template <typename Group>
inline auto thread_rank(const Group &g) -> decltype(g.thread_rank()) {
    return g.thread_rank();
}

template <typename Group>
inline auto group_size(const Group &g) -> decltype(g.size()) {
    return g.size();
}

} /* namespace cooperative_groups */

#endif
