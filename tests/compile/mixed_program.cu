/*  The CUDA part of a program made of C, C++ and CUDA, each of which includes the header whole.
    Right if it links, and if the three see the same number of functions where they should.   */
#include "streampipe.h"
#if defined(WITH_KERNELS)
#include "streampipe_kernels.cuh"
#endif
#include <stdio.h>

extern "C" size_t num_functions_c(void);
extern "C" size_t num_functions_c2(void);
extern "C" size_t num_functions_cpp(void);
extern "C" size_t num_functions_cu(void);

int main() {
    const size_t c = num_functions_c(), c2 = num_functions_c2();
    const size_t cpp = num_functions_cpp(), cu = num_functions_cu();
    printf("functions: C %zu and %zu, C++ %zu, CUDA %zu\n", c, c2, cpp, cu);
    return c == 0 || c != c2 || cpp < c || cu < cpp;
}
