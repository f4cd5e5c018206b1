/* ---- 2 >>errors ----------------------------------------------------------------------------
   Checking macros and the sentence that explains a failure. Uses only config. */
/*  SPIPE_TRY(expr) returns expr's cudaError_t from the enclosing function unless it is cudaSuccess.
    SPIPE_CHECK(expr) prints file:line, expr and the error on stderr and exits (for programs).
    SPIPE_CHECK_RUN(desc, report) is SPIPE_CHECK(spipe_run(desc, report)), and on failure it also
    prints the sentence of failure.message. Each macro evaluates its arguments once.            */
#define SPIPE_TRY(expr)                                                                            \
    do {                                                                                           \
        const cudaError_t spipe_priv_try_ = (expr);                                                \
        if (spipe_priv_try_ != cudaSuccess) return spipe_priv_try_;                                \
    } while (0)
#define SPIPE_CHECK(expr)             spipe_priv_check((expr), #expr, NULL, __FILE__, __LINE__)
#define SPIPE_CHECK_RUN(desc, report) spipe_priv_check_run((desc), (report), __FILE__, __LINE__)

/* What a call returns where no error of CUDA's says it: nothing is broken, but what was asked for
   was not done. */
#define SPIPE_STOPPED       ((cudaError_t)9001) /* the progress callback stopped the run */
#define SPIPE_WOULD_WAIT    ((cudaError_t)9002) /* a run with no_wait would wait for memory */
#define SPIPE_ALL_HELD      ((cudaError_t)9003) /* you hold all chunks that can be taken */
#define SPIPE_CHANNEL_FULL  ((cudaError_t)9004) /* receive first */
#define SPIPE_CHANNEL_EMPTY ((cudaError_t)9005) /* send first */
#define SPIPE_ALL_LEASED    ((cudaError_t)9006) /* all streams of a pool are leased */

/*  spipe_error_string, spipe_error_name -- the words, or the name, of one of these values, or of an
    error of CUDA's.

    e          in      what a function returned.
    Returns    a constant string, as cudaGetErrorString and cudaGetErrorName do.
    Blocks     no.   Threads  any.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API const char *spipe_error_string(cudaError_t e);
SPIPE_API const char *spipe_error_name(cudaError_t e);

/* Why a pipeline failed: more than a cudaError_t can say. */
typedef struct spipe_failure {
    cudaError_t error;   /* the first error; cudaSuccess = no failure */
    int stage;           /* number of the stage, -1 where no stage is to blame */
    size_t chunk;        /* number of the chunk, SPIPE_AUTO where none is to blame */
    size_t chunks_whole; /* chunks 0 .. chunks_whole-1 of every output are complete */
    char message[320];   /* one sentence: what is wrong and the cure */
} spipe_failure_t;
