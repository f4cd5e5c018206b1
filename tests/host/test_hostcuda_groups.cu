/*  test_hostcuda_groups.cu -- cooperative groups on hostcuda: the block, tiles of a warp and what
    they exchange, reductions; a kernel that ends itself by an assert or a trap; and small things
    that NVIDIA's samples use: products of 24 bits, shifts, matches, limits, occupancy. */
#undef NDEBUG
#include <assert.h>

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "hostcuda.h"
#include "tap.h"

namespace cg = cooperative_groups;

enum {
    THREADS = 96,
    BLOCKS = 3
};

/* A row of numbers for each thread of the grid. */
struct row_t {
    int rank, size, tile_rank, meta_rank, meta_size, next, last, partner, sum, most, votes, any,
        all;
    int quarter_rank, quarter_size, nested_meta_rank;
    unsigned long long grid_rank, grid_size;
};

static __global__ void ask(row_t *rows, int *sums) {
    __shared__ int block_sum;
    const cg::thread_block block = cg::this_thread_block();
    const cg::grid_group grid = cg::this_grid();
    const cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    const auto half = cg::tiled_partition<4>(tile);
    const cg::thread_group quarter = cg::tiled_partition(cg::tiled_partition(block, 16), 4);
    const int rank = static_cast<int>(block.thread_rank());
    row_t &r = rows[grid.thread_rank()];
    r.rank = rank;
    r.size = static_cast<int>(block.size() + block.group_index().x * 1000);
    r.tile_rank = static_cast<int>(tile.thread_rank());
    r.meta_rank = static_cast<int>(tile.meta_group_rank());
    r.meta_size = static_cast<int>(tile.meta_group_size());
    r.next = tile.shfl_down(rank, 1);
    r.last = tile.shfl(rank, 7);
    const int4 large = tile.shfl_xor(make_int4(rank, 1, 2, 3 * rank), 2);
    r.partner = large.w == 3 * large.x ? large.x : -1;
    r.sum = cg::reduce(tile, rank, cg::plus<int>());
    r.most = cg::reduce(half, rank, cg::greater<int>());
    r.votes = static_cast<int>(tile.ballot(rank % 3 == 0));
    r.any = tile.any(rank == 17);
    r.all = tile.all(rank < 90);
    r.quarter_rank = static_cast<int>(cg::thread_rank(quarter));
    r.quarter_size = static_cast<int>(cg::group_size(quarter));
    r.nested_meta_rank = static_cast<int>(half.meta_group_rank());
    r.grid_rank = grid.thread_rank();
    r.grid_size = grid.size();
    if (rank == 0) block_sum = 0;
    cg::sync(block);
    if (tile.thread_rank() == 0) atomicAdd_block(&block_sum, r.sum);
    block.sync();
    if (rank == THREADS - 1) atomicAdd_system(sums, block_sum);
    cg::sync(quarter);
}

static int right(const row_t &r, int block, int rank) {
    const int first = rank / 8 * 8;
    int votes = 0;
    for (int k = 0; k < 8; ++k) votes |= ((first + k) % 3 == 0) << k;
    return r.rank == rank && r.size == THREADS + 1000 * block && r.tile_rank == rank % 8 &&
           r.meta_rank == rank / 8 && r.meta_size == THREADS / 8 &&
           r.next == (rank % 8 == 7 ? rank : rank + 1) && r.last == first + 7 &&
           r.partner == (rank ^ 2) && r.sum == 8 * first + 28 && r.most == (rank | 3) &&
           r.votes == votes && r.any == (first == 16) && r.all == (first + 7 < 90) &&
           r.quarter_rank == rank % 4 && r.quarter_size == 4 && r.nested_meta_rank == rank / 4 % 2;
}

static void test_groups() {
    row_t *rows;
    int *sums, good = 1, numbered = 1;
    cudaMallocHost(&rows, THREADS * BLOCKS * sizeof *rows);
    cudaMallocHost(&sums, sizeof *sums);
    *sums = 0;
    cudaLaunchConfig_t c = {};
    c.gridDim = BLOCKS;
    c.blockDim = THREADS;
    const cudaError_t e = cudaLaunchKernelEx(&c, ask, rows, sums);
    good &= e == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
    for (int i = 0; i < THREADS * BLOCKS && good; ++i) {
        good &= right(rows[i], i / THREADS, i % THREADS);
        numbered &=
            rows[i].grid_rank == static_cast<unsigned>(i) && rows[i].grid_size == THREADS * BLOCKS;
    }
    tap_ok(good, "a block and its tiles: numbers, exchanges, votes, reductions, nested tiles");
    tap_ok(good && numbered, "the numbers of the grid");
    tap_ok(*sums == BLOCKS * THREADS * (THREADS - 1) / 2,
           "the block waits at its barrier, a tile at its own; scoped atomics");
    cudaFreeHost(sums);
    cudaFreeHost(rows);
}

static __global__ void must_be_less(int *done, int n) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (threadIdx.x % 2) __syncthreads(); /* some wait when another thread ends the kernel */
    assert(i < n);
    atomicAdd(done, 1);
}

static __global__ void trapped() {
    __syncthreads(); /* so that the others are ready to go on when the last one ends the kernel */
    if (threadIdx.x == blockDim.x - 1) __trap();
    __syncthreads();
}

/* The error is there until the device is reset, which frees the memory, too. */
static void test_asserts() {
    int *done;
    cudaMallocHost(&done, sizeof *done);
    *done = 0;
    cudaLaunchConfig_t c = {};
    c.gridDim = 2;
    c.blockDim = 32;
    cudaLaunchKernelEx(&c, must_be_less, done, 64);
    tap_ok(cudaDeviceSynchronize() == cudaSuccess && *done == 64,
           "an assert that holds does nothing");
#ifndef __GLIBC__
    tap_skip("one that fails ends the kernel, not the program", "it needs glibc's assert");
#else
    cudaLaunchKernelEx(&c, must_be_less, done, 40);
    tap_ok(cudaDeviceSynchronize() == cudaErrorAssert,
           "one that fails ends the kernel, not the program");
    tap_ok(*done >= 64 + 32 && *done < 64 + 40,
           "the block before it is whole, no later thread runs");
    tap_ok(cudaGetLastError() == cudaErrorAssert && cudaGetLastError() == cudaErrorAssert,
           "the error stays");
    cudaDeviceReset();
#endif
    cudaLaunchKernelEx(&c, trapped);
    tap_ok(cudaDeviceSynchronize() == cudaErrorLaunchFailure,
           "__trap: an unspecified launch failure");
    cudaDeviceReset();
}

static __global__ void numbers(int *out) {
    out[0] = __mul24(-3, 5);
    out[1] = __mul24(0x1000002, 7); /* 24 bits of each */
    out[2] = static_cast<int>(__umul24(0x1000003u, 5u));
    out[3] = static_cast<int>(umin(3u, 0xffffffffu));
    out[4] = umax(3u, 0xffffffffu) == 0xffffffffu;
    out[5] = static_cast<int>(__funnelshift_l(0x80000001u, 5u, 1));
    out[6] = static_cast<int>(__funnelshift_r(0x80000001u, 5u, 1));
    out[7] = static_cast<int>(__sad(-3, 4, 10u) + __usad(9u, 4u, 100u));
    out[8] = __hadd(2147483647, 2147483645);
    out[9] = static_cast<int>(1000 * (normcdff(0.0f) + rcbrtf(8.0f) + norm3df(1, 2, 2)));
}

/* Lanes 0, 3, 6, ... have one value, and so on; then all have one. Lane 31 is not asked. */
static __global__ void matches(unsigned *out) {
    const unsigned lane = threadIdx.x, mask = 0x7fffffffu;
    int all[2];
    if (lane == 31) return;
    out[lane] = __match_any_sync(mask, lane % 3);
    const unsigned no = __match_all_sync(mask, lane % 3, &all[0]);
    const unsigned yes = __match_all_sync(mask, 2.5, &all[1]);
    out[lane] |= no == 0 && yes == mask && !all[0] && all[1] ? 0u : 0x80000000u;
}

static void test_limits() {
    size_t stack = 0, heap = 0;
    cudaFuncCache cache = cudaFuncCachePreferNone;
    tap_ok(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 1 << 20) == cudaSuccess &&
               cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize) == cudaSuccess &&
               cudaDeviceGetLimit(&stack, cudaLimitStackSize) == cudaSuccess && heap == 1 << 20 &&
               stack == 1024,
           "limits are kept");
    tap_ok(cudaDeviceSetLimit(cudaLimitMaxL2FetchGranularity, 1) == cudaErrorUnsupportedLimit,
           "others are refused");
    tap_ok(cudaDeviceSetCacheConfig(cudaFuncCachePreferL1) == cudaSuccess &&
               cudaDeviceGetCacheConfig(&cache) == cudaSuccess && cache == cudaFuncCachePreferL1 &&
               cudaFuncSetCacheConfig(trapped, cudaFuncCachePreferShared) == cudaSuccess,
           "so is the division of the cache");
    (void)cudaGetLastError();
}

static void test_small_things() {
    int *out, blocks = 0, threads = 0, small = 0;
    unsigned *same, right_ones = 0;
    cudaMallocHost(&out, 10 * sizeof *out);
    cudaMallocHost(&same, 32 * sizeof *same);
    cudaLaunchConfig_t c = {};
    c.gridDim = c.blockDim = 1;
    cudaLaunchKernelEx(&c, numbers, out);
    cudaDeviceSynchronize();
    tap_ok(out[0] == -15 && out[1] == 14 && out[2] == 15 && out[3] == 3 && out[4] == 1,
           "products of 24 bits, the lesser and the greater of unsigned");
    tap_ok(out[5] == 11 && out[6] == static_cast<int>(0xc0000000u) && out[7] == 17 + 105 &&
               out[8] == 2147483646 && out[9] == 4000,
           "shifts of two words, sums of differences, a mean, less common functions");
    c.blockDim = 32;
    cudaLaunchKernelEx(&c, matches, same);
    cudaDeviceSynchronize();
    for (unsigned i = 0; i < 31; ++i) {
        unsigned want = 0;
        for (unsigned k = i % 3; k < 31; k += 3) want |= 1u << k;
        right_ones += same[i] == want;
    }
    tap_ok(right_ones == 31, "lanes with the same value find each other");
    cudaFreeHost(same);
    cudaFreeHost(out);
    const cudaError_t e = cudaOccupancyMaxPotentialBlockSize(&blocks, &threads, ask);
    const hostcuda_profile_t p = hostcuda_get_profile(0);
    tap_ok(e == cudaSuccess && threads == p.max_threads_per_block &&
               blocks == p.sm_count * (p.threads_per_sm / threads),
           "the block size that fills the device, the largest of several");
    tap_ok(cudaOccupancyMaxPotentialBlockSize(&blocks, &small, ask, 0, 96) == cudaSuccess &&
               small <= 96 && small * (blocks / p.sm_count) == p.threads_per_sm,
           "with a limit");
}

int main() {
    test_groups();
    test_small_things();
    test_limits();
    test_asserts();
    test_groups(); /* as ever, after the device was reset */
    tap_ok(hostcuda_leaks(stderr) == 0, "all is released");
    return tap_done();
}
