/*  good.h -- what the lint must accept; the bad_*.h beside it are this with one fault each. */
#define SPIPE_API static inline
/* >>api */

/*  spipe_scale, spipe_shift -- multiply, or move, every element.

    first      in      the elements.
    count      elements; 0 is fine.
    done       callback, may be NULL;  user  is handed to it.

    Returns    cudaSuccess; cudaErrorInvalidValue.
    Blocks     no.
    Threads    any.
    Callback   no.
    Capture    yes.        Allocates  nothing.                    */
typedef int between_t;
SPIPE_API cudaError_t spipe_scale(const float *first, size_t count,
                                  void (*done)(void *user, int status), void *user);
SPIPE_API cudaError_t spipe_shift(const float first[3], size_t count);
SPIPE_API int spipe_priv_helper(int no_contract_needed);
/* >>impl */

SPIPE_API cudaError_t spipe_shift(const float first[3], size_t count) {
    return cudaSuccess;
}
