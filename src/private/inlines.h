/* ============================================================================================
   >>impl   the same layers, as code. Names beginning spipe_priv_ are not for callers.
   ============================================================================================ */

/* ---- 3 describe: what every file has -------------------------------------------------------
   Also with SPIPE_DECLARATIONS: the functions behind the public macros, templates, and what other
   headers of the library have in their public structs. Uses the public half alone. */
SPIPE_API void spipe_priv_check(cudaError_t error, const char *what, const char *why,
                                const char *file, int line);
SPIPE_API void spipe_priv_check_run(const spipe_desc_t *d, spipe_report_t *report, const char *file,
                                    int line);
SPIPE_API void *spipe_priv_buf(const spipe_chunk_t *c, int i, size_t size, int how);
SPIPE_API void spipe_priv_check_map(const spipe_chunk_t *c, int how);

/* 1 = this file is compiled with exceptions. */
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
#define SPIPE_PRIV_CATCHES 1
#else
#define SPIPE_PRIV_CATCHES 0
#endif

/* How a stage takes a buffer: bits. Its file says whether an exception may leave it, as the code
   may be in a file of another language. */
enum {
    SPIPE_PRIV_READS = 1,
    SPIPE_PRIV_MAY_LEAVE = 2
};

#define SPIPE_PRIV_LEAVES (SPIPE_PRIV_CATCHES * SPIPE_PRIV_MAY_LEAVE)

/* Whether a stage that takes a buffer of this type cannot write into it. */
#ifdef __cplusplus
template <typename T>
struct spipe_priv_constness {
    enum {
        value = 0
    };
};

template <typename T>
struct spipe_priv_constness<const T> {
    enum {
        value = 1
    };
};

#define SPIPE_PRIV_IS_CONST(type) (spipe_priv_constness<type>::value)
#elif defined(__GNUC__)
/* A type that is const already stays the same when const is added. */
#define SPIPE_PRIV_IS_CONST(type)                                                                  \
    __builtin_types_compatible_p(__typeof__(type) *, const __typeof__(type) *)
#else
#define SPIPE_PRIV_IS_CONST(type) 1 /* other C compilers cannot tell */
#endif

#ifdef __cplusplus
/* With the size of an element taken from the pointer; memory without a type must say it. */
template <typename T>
SPIPE_PRIV_LOCAL int spipe_add_input(spipe_desc_t *d, const T *host) {
    return spipe_add_input(d, host, sizeof(T));
}

template <typename T>
SPIPE_PRIV_LOCAL int spipe_add_output(spipe_desc_t *d, T *host) {
    return spipe_add_output(d, host, sizeof(T));
}

template <typename T>
SPIPE_PRIV_LOCAL int spipe_add_inout(spipe_desc_t *d, T *host) {
    return spipe_add_inout(d, host, sizeof(T));
}

int spipe_add_input(spipe_desc_t *d, const void *host) = delete;
int spipe_add_output(spipe_desc_t *d, void *host) = delete;
int spipe_add_inout(spipe_desc_t *d, void *host) = delete;
#endif

struct spipe_priv_pipeline;
struct spipe_priv_slot;

/* What spipe_timeline_t begins with: it is notified of each run, operation and task, before
   (after = 0) and after (1). about: a spipe_priv_op_t or a spipe_priv_task_t. */
enum {
    SPIPE_PRIV_WATCH_RUN,
    SPIPE_PRIV_WATCH_OP,
    SPIPE_PRIV_WATCH_TASK
};

typedef struct spipe_priv_watcher {
    size_t stamp; /* SPIPE_PRIV_STAMP */
    int taken;    /* 1 = a run notifies it */
    void (*notify)(struct spipe_timeline *timeline, struct spipe_priv_pipeline *p, int what,
                   const void *about, const struct spipe_priv_slot *slot, int after);
} spipe_priv_watcher_t;
