/* hostcuda: cooperative_groups::reduce over a tile, and what it combines by. */
#ifndef HOSTCUDA_COOPERATIVE_GROUPS_REDUCE_H
#define HOSTCUDA_COOPERATIVE_GROUPS_REDUCE_H

#include <algorithm>

#include "../cooperative_groups.h"

namespace cooperative_groups {

#define HOSTCUDA_OPERATION(name, result)                                                           \
    template <typename T>                                                                          \
    struct name {                                                                                  \
        T operator()(T a, T b) const { return static_cast<T>(result); }                            \
    };
HOSTCUDA_OPERATION(plus, a + b)
HOSTCUDA_OPERATION(less, std::min(a, b))
HOSTCUDA_OPERATION(greater, std::max(a, b))
HOSTCUDA_OPERATION(bit_and, a &b)
HOSTCUDA_OPERATION(bit_or, a | b)
HOSTCUDA_OPERATION(bit_xor, a ^ b)
#undef HOSTCUDA_OPERATION

/* Every thread of the tile gets the result, for which all of them have to come. */
template <unsigned Width, typename Parent, typename T, typename F>
inline T reduce(const thread_block_tile<Width, Parent> &tile, T value, F operation) {
    for (unsigned bits = Width / 2; bits > 0; bits /= 2)
        value = operation(value, tile.shfl_xor(value, bits));
    return value;
}

} /* namespace cooperative_groups */

#endif
