/* ---- 3 >>describe --------------------------------------------------------------------------
   What you ask for: buffers, stages, sizes. A run never changes a description. */
typedef enum spipe_kind {
    SPIPE_INPUT = 1, /* host array, copied in */
    SPIPE_OUTPUT,    /* host array, copied out */
    SPIPE_INOUT,     /* host array, copied in and out */
    SPIPE_TEMP,      /* device only, one per slot */
    SPIPE_RESIDENT,  /* device only, one for the whole run */
    SPIPE_SOURCE,    /* a host function fills it, in order, copied in */
    SPIPE_SINK,      /* copied out, a host function drains it, in order */
    SPIPE_SOURCE_AT, /* a host function fills any part of it at any time, copied in */
    SPIPE_SINK_AT,   /* copied out, a host function drains any part of it at any time */
    SPIPE_PRIV_ROWS  /* private: rows of the table of kinds; the last */
} spipe_kind_t;

/* What a stage is given: one chunk, in device memory (a host stage: in host memory). */
typedef struct spipe_chunk {
    size_t index;        /* number of this chunk, from 0 */
    size_t first;        /* number of its first element in the whole */
    size_t count;        /* elements in it, 1 or more; the last chunk may have fewer */
    size_t total;        /* elements in the whole; SPIPE_AUTO while not known (a source without
                            count), so that an index is below it */
    cudaStream_t stream; /* enqueue on this stream and no other; NULL in a host stage */
    int slot;            /* 0 .. depth-1: the slot that the chunk is in */
    int num_buffers;
    void *data[SPIPE_MAX_BUFFERS];        /* buffer i: this chunk's first element (resident: the
                                             start). With a halo, elements -before .. count+after-1
                                             are readable. Host stage: NULL unless declared. */
    size_t elem_bytes[SPIPE_MAX_BUFFERS]; /* of one element of buffer i (resident: of all of it) */
    spipe_kind_t kind[SPIPE_MAX_BUFFERS]; /* of buffer i; 0 where data is NULL */
    struct spipe_priv_note *note;         /* private: what the stage does wrong, in words */
} spipe_chunk_t;

/*  SPIPE_BUF(chunk, i, type) is buffer i of a chunk as a pointer to type, for elements of one type.
    SPIPE_BUF_ROW(chunk, i, type, length) is the same for elements of `length` values of type: a row
    of floats, a pixel of three bytes.
    A buffer that does not exist, or has elements of another size, ends the run with a sentence that
    names the stage and the buffer. So does an input that the stage must not write, if type is not
    const (in C only with gcc and clang): any input of an elementwise stage, and with zero-copy any
    pinned input. In C++ the stage then ends by an exception of the library's, which the run
    catches. In C, and without exceptions, the stage goes on with memory that it may write into.
    chunk->data[i] is the pointer without these checks.                                         */
#define SPIPE_BUF(chunk, i, type) SPIPE_BUF_ROW(chunk, i, type, 1)
#define SPIPE_BUF_ROW(chunk, i, type, length)                                                      \
    ((type *)spipe_priv_buf((chunk), (i), (size_t)(length) * sizeof(type),                         \
                            SPIPE_PRIV_IS_CONST(type) + SPIPE_PRIV_LEAVES))
/* Buffer i in the masks of spipe_add_host_stage. */
#define SPIPE_BIT(i) (1u << (i))

/*  spipe_chunk_fail -- a stage ends the run, with its own sentence for failure.message.

    chunk      in      the chunk that the stage was called with.
    format     in      as for printf; cut after 190 characters.
    Returns    cudaErrorUnknown, for the stage to return; it may return another error instead. The
               run fails whatever the stage returns.
    Blocks     no.   Threads  the one the stage runs on.   Callback  yes.   Capture  yes.
    Allocates  nothing. */
SPIPE_API cudaError_t spipe_chunk_fail(const spipe_chunk_t *chunk, const char *format, ...)
    SPIPE_PRIV_ATTRIBUTE((format(printf, 2, 3)));

/* Enqueues a stage's work for one chunk on chunk->stream; does not wait. If it returns anything but
   cudaSuccess, the run stops and returns that. A host stage does the work itself, on host memory.
   Stages on the GPU are called by one thread at a time. Where host threads fill or drain slots that
   is not always the same thread (desc.stages_on_caller: the one that called run), and a chunk that
   is ready may come before an older one, unless a stage is ordered.
   In C++ this function and those below may throw, on any thread: the run ends as after an error,
   and the call that began the run throws the exception again. (Not if this header is compiled as C
   or without exceptions.) These functions must return or throw; they must not be left by longjmp
   or end their thread. If one fails, the chunks before its chunk are still completed; if several
   fail, the failure of the first chunk is reported. */
typedef cudaError_t (*spipe_stage_fn)(const spipe_chunk_t *chunk, void *user);

/* A stretch of a buffer's elements: what a source fills and a sink takes. */
typedef struct spipe_part {
    void *data;   /* host memory of the library's: count elements */
    size_t first; /* number of the first of them in the whole */
    size_t count; /* how many; a source in order writes how many it gave */
} spipe_part_t;

/* Fills a part. In order (SPIPE_IN_ORDER): the chunks' parts one after another, on one thread at a
   time. It may give fewer elements than part->count, if it sets that to how many; 0 = the end. If
   it gives fewer, it is called again for the rest, until the chunk is full or it gives 0: so a
   chunk is never short but at the end, and a source that has nothing yet must wait. It is not asked
   for more than desc.count, and after the end not again.
   In any order (SPIPE_ANY_ORDER): all of the part, or it returns an error. Called on several
   threads at once, for any part; if the buffer has a halo, also for the elements around a chunk.
   It must not wait for another part. An I/O error: return cudaErrorOperatingSystem. */
typedef cudaError_t (*spipe_source_fn)(spipe_part_t *part, void *user);
/* Takes a part: in order, one thread at a time; or in any order, on several threads at once. */
typedef cudaError_t (*spipe_sink_fn)(const spipe_part_t *part, void *user);

/* Fills a part from as many tickets, which `next` (a spipe_source_fn) wrote: one ticket for each
   element. Called on several threads at once, each for other elements, in any order. It must not
   wait for another call. */
typedef cudaError_t (*spipe_work_fn)(const spipe_part_t *part, const void *tickets, void *user);

/* In which order a source or sink is called. */
typedef enum spipe_order {
    SPIPE_IN_ORDER, /* chunk after chunk, one call at a time */
    SPIPE_ANY_ORDER /* all threads at once, each for another part */
} spipe_order_t;

/* Says why a source or sink failed, in words for failure.message. It is called right after that
   function returned its error, on the same thread. Assign it to buffers[i].why. */
typedef const char *(*spipe_why_fn)(void *user);

/* Ends the waiting of a source or sink: for data, a queue, a socket. It is called once a run ends
   early: by spipe_pipeline_end and spipe_pipeline_destroy, after a failure, and when the progress
   callback has stopped the run. Calls under way, and those that begin after it, must return soon,
   with an error, or with what they have; what they return is not reported. Without it the run ends
   when they return. It is called on any thread, while calls may be under way on others. With
   several GPUs it may be called more than once. It must not wait and must not throw. Assign it to
   buffers[i].stop. */
typedef void (*spipe_stop_fn)(void *user);

/* How far a run has come. The progress callback gets it, and returns 1 to stop the run, else 0. */
typedef struct spipe_progress {
    size_t chunks_done, num_chunks; /* num_chunks 0 while not known */
    size_t elements_done, total;    /* total 0 while not known */
    double seconds;                 /* since the run began */
} spipe_progress_t;

typedef int (*spipe_progress_fn)(const spipe_progress_t *progress, void *user);

/* What lies beyond the first and the last element of a buffer with a halo. */
typedef enum spipe_edge {
    SPIPE_EDGE_CLAMP = 0, /* copies of the first / last element */
    SPIPE_EDGE_ZERO       /* zero bytes */
} spipe_edge_t;

/* Priorities order waiting kernels, never copies. On today's GPUs the range is 0 .. -5 and CUDA's
   default 0 is the least, so LOW equals DEFAULT there. */
typedef enum spipe_priority {
    SPIPE_PRIORITY_DEFAULT = 0, /* CUDA's own default, 0 */
    SPIPE_PRIORITY_LOW,         /* the least of the device */
    SPIPE_PRIORITY_MEDIUM,      /* halfway */
    SPIPE_PRIORITY_HIGH         /* the greatest of the device */
} spipe_priority_t;

/* What happens to a resident buffer when a run begins and ends; may be or-ed. */
enum {
    SPIPE_ZERO = 0,    /* zero bytes at the start of each run */
    SPIPE_UPLOAD = 1,  /* copied from the host array at the start of each run */
    SPIPE_DOWNLOAD = 2 /* copied to the host array at the end of each run that succeeds */
};

typedef enum spipe_schedule {
    SPIPE_SCHEDULE_AUTO = 0,
    SPIPE_SCHEDULE_ENGINES,  /* a stream per direction, two for kernels in turn, joined by events */
    SPIPE_SCHEDULE_SERIAL,   /* one stream, one slot: nothing overlaps; the baseline */
    SPIPE_SCHEDULE_ZERO_COPY /* no copies: kernels read and write pinned host memory themselves */
} spipe_schedule_t;

/* What is done about pageable host arrays. */
typedef enum spipe_staging {
    SPIPE_STAGING_AUTO = 0,
    SPIPE_STAGING_COPY,     /* through pinned slots, copied by worker threads */
    SPIPE_STAGING_REGISTER, /* pinned in place for each run; COPY where that is refused */
    SPIPE_STAGING_DIRECT    /* left to CUDA, which blocks; best if the GPU can read host pages */
} spipe_staging_t;

/* Private: calls a function of the user's for a chunk. Its pointer is in the description, so that
   a program contains the code of only those kinds of buffers that it adds. */
struct spipe_priv_pipeline;
struct spipe_priv_at;
typedef cudaError_t (*spipe_priv_caller_t)(struct spipe_priv_pipeline *p, int buffer,
                                           const struct spipe_priv_at *at);

/* Private: a buffer that must know its runs, such as a file, is told that its description is
   checked, that a run begins, and that the run has ended, with its result. */
struct spipe_desc;

typedef enum spipe_priv_moment {
    SPIPE_PRIV_CHECKED,
    SPIPE_PRIV_BEGINS,
    SPIPE_PRIV_ENDED
} spipe_priv_moment_t;

typedef cudaError_t (*spipe_priv_on_run_t)(const struct spipe_desc *d, int buffer,
                                           spipe_priv_moment_t what, cudaError_t result,
                                           spipe_failure_t *failure);

typedef struct spipe_buffer_desc {
    spipe_kind_t kind;
    size_t elem_bytes;              /* bytes of one element; resident: of the whole buffer */
    void *host;                     /* host array; an input is never written */
    size_t halo_before, halo_after; /* elements readable around a chunk (default: 0) */
    spipe_edge_t edge;
    int resident; /* SPIPE_ZERO, SPIPE_UPLOAD, SPIPE_DOWNLOAD or both */
    spipe_source_fn source;
    spipe_sink_fn sink;
    spipe_work_fn work;         /* of a split source; its `next` is the member source */
    size_t ticket_bytes;        /* of a split source; else 0 */
    void *user;                 /* handed to the functions above */
    spipe_why_fn why;           /* says why that function failed (default: NULL) */
    spipe_stop_fn stop;         /* ends that function's waiting (default: NULL) */
    const char *how;            /* what that function does, for the report (default: NULL) */
    spipe_priv_caller_t caller; /* private: calls the function; set by whoever adds the buffer */
    spipe_priv_caller_t filler; /* private: calls work; NULL without work */
    int on_device; /* private: 1 = the source is given the slot's memory on the device */
    spipe_priv_on_run_t on_run; /* private: NULL, or told of each run */
    size_t place, bytes; /* private, with on_run: its part of a file; SPIPE_AUTO = to an end that is
                            not known */
} spipe_buffer_desc_t;

typedef struct spipe_stage_desc {
    const char *name;
    spipe_stage_fn fn;
    void *user;
    int host;                   /* 1 = runs on the CPU, on a worker thread */
    int ordered;                /* 1 = chunk k+1 enters after chunk k has left (default: 0) */
    int elementwise;            /* 1 = see spipe_stage_elementwise (default: 0) */
    int replayable;             /* 1 = see spipe_stage_replayable (default: 0) */
    unsigned reads, writes;     /* host stage: SPIPE_BIT of each buffer it reads and writes */
    int after_given, num_after; /* 0, 0 = after the stage added before it */
    const char *after[SPIPE_MAX_STAGES];
} spipe_stage_desc_t;

/* Several GPUs for one run, set by streampipe_devices.h; zeroed = the current device. */
typedef cudaError_t (*spipe_reduce_fn)(void *into, const void *from, size_t bytes, void *user);

typedef struct spipe_devices {
    int num;                     /* 0 = all */
    int list[SPIPE_MAX_DEVICES]; /* device numbers */
    spipe_reduce_fn reduce;      /* adds one device's resident buffer to another's */
    void *user;                  /* handed to reduce */
} spipe_devices_t;

/* The description of a pipeline. Get one from spipe_desc_default, assign what should differ, add
   buffers and stages. Names, arrays and user pointers are kept, not copied. */
typedef struct spipe_desc {
    size_t count;               /* elements in the whole (default: SPIPE_AUTO, until sources end;
                                   if there are files of known length and no arrays, theirs) */
    size_t chunk;               /* elements in a chunk (default: SPIPE_AUTO) */
    size_t depth;               /* slots, 1 .. SPIPE_MAX_DEPTH (default: SPIPE_AUTO) */
    size_t threads;             /* host threads for each direction of staging, and as many for
                                   host stages; 0 = the calling thread does everything
                                   (default: SPIPE_AUTO) */
    spipe_schedule_t schedule;  /* (default: SPIPE_SCHEDULE_AUTO) */
    spipe_staging_t staging;    /* (default: SPIPE_STAGING_AUTO) */
    spipe_priority_t priority;  /* of the kernel streams (default: SPIPE_PRIORITY_DEFAULT) */
    int checked;                /* 1 = a checked run: waits after every step and looks at
                                   what it did, see below; slow (default: 0) */
    spipe_progress_fn progress; /* called on the thread that called run (default: NULL) */
    void *progress_user;
    struct spipe_resources *resources; /* shared with other runs, see >>resources (default: NULL) */
    int no_wait;                       /* with resources: 1 = a run that would have to wait for
                                        others returns SPIPE_WOULD_WAIT at once (default: 0) */
    struct spipe_timeline *timeline;   /* see streampipe_timeline.h (default: NULL) */
    int blocking; /* 1 = while a run waits, for the GPU or for host work, its threads sleep and
                             use no CPU; it may take longer (default: 0) */
    int stages_on_caller; /* 1 = stages on the GPU are called by the thread that called run and by
                             no other (default: 0) */
    int ignore_default_stream;            /* 1 = a run does not wait for the work that is on the
                                        default stream when it begins, see RULES (default: 0) */
    spipe_devices_t devices;              /* (default: the current one) */
    const struct spipe_priv_hooks *hooks; /* private: other headers of the library, tests */
    int num_buffers, num_stages;
    spipe_buffer_desc_t buffers[SPIPE_MAX_BUFFERS];
    spipe_stage_desc_t stages[SPIPE_MAX_STAGES];
    const char *problem; /* first mistake made while adding; the check reports it */
    size_t stamp;        /* private: set by spipe_desc_default */
} spipe_desc_t;

/*  A checked run (desc.checked) is for tests. It is many times slower, because it waits after every
    step, and says which stage, chunk and buffer is wrong. Besides errors of the GPU it finds
      - a stage that puts nothing on its stream, in the first chunk. There the stream is captured
        while the stage is called; a stage that does what a capture forbids is called twice;
      - a stage that writes before or past a buffer, or past the last chunk's elements: guard bytes
        show that. Under AddressSanitizer, and in any run under compute-sanitizer, each buffer of
        each slot is an allocation of its own instead, so that these tools see reads, too;
      - elements of an output or a sink that no stage wrote, 8 bytes of them or more, at the ends of
        a chunk 4: before the stages they are filled with a pattern;
      - under AddressSanitizer, a source or sink that works beyond the memory that it was handed, or
        when it has returned: in a checked run that is a block from malloc, freed afterwards;
      - an elementwise stage that writes into an input;
      - a host stage that writes into a buffer that it declared only to read;
      - a replayable stage that enqueues other work than in the pipeline's run before: other
        kernels, copies or, from CUDA 12.4 on, arguments (numbers and pointers, not structs, whose
        padding may differ);
      - with zero-copy, any stage that writes into a pinned input, which would be changed.
    A checked run never replays a graph. It uses zero-copy only if desc.schedule asks for it, and
    then on pinned copies of the arrays, so it cannot be captured.                              */

/*  spipe_desc_default -- an empty description, with every choice left to the library.
    spipe_desc_check -- find the first mistake of a description, without touching the device.

    d          in      the description.
    failure    out     the sentence that names the buffer or stage and the cure; may be NULL.
    Returns    default: the description. check: cudaSuccess; cudaErrorInvalidValue;
               cudaErrorInitializationError (its resources are of the process that this one was
               forked from).
    Blocks     no.   Threads  any.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API spipe_desc_t spipe_desc_default(void);
SPIPE_API cudaError_t spipe_desc_check(const spipe_desc_t *d, spipe_failure_t *failure);

/*  spipe_add_input, spipe_add_output, spipe_add_inout, spipe_add_temp, spipe_add_resident,
    spipe_add_source, spipe_add_sink, spipe_add_split_source, spipe_set_halo -- the buffers of a
    pipeline.

    d          in/out  from spipe_desc_default.
    host       in      host array of count elements, pinned or not (device memory works too);
                       yours. resident: an array of that many bytes, NULL for SPIPE_ZERO.
    elem_bytes bytes   of one element, 1 or more; may differ between buffers.
    bytes      bytes   of a resident buffer, 1 or more.
    how        in      SPIPE_ZERO, SPIPE_UPLOAD, SPIPE_DOWNLOAD, or the last two or-ed.
    source, sink in    see spipe_source_fn, spipe_sink_fn; user is handed to it. They may run on
                       library threads, and may not call CUDA.
    order      in      SPIPE_IN_ORDER: for data that comes in order: a pipe, a decoder.
                       SPIPE_ANY_ORDER: all threads call it at once, so that a file is read and
                       written at the speed of all of them. Set count, or add a source in order,
                       whose end gives the length.
    next, work in      a source in two parts, for a loader with many decoders. next is a
                       spipe_source_fn in order that fills in tickets instead of elements, and gives
                       0 at the end. A ticket says what its element is made from (the number of a
                       picture, where a record lies); next should be quick. work, see
                       spipe_work_fn, makes the elements of a chunk from their tickets, on all
                       threads at once. user is handed to both.
    ticket_bytes bytes of one ticket, 1 or more; the library keeps them until work has had them.
    buffer     in      number of an input, or of a source that is not split.
    before, after in   elements readable around each chunk, at most a chunk each.
    edge       in      what is beyond the ends: SPIPE_EDGE_CLAMP or SPIPE_EDGE_ZERO.
    Returns    the buffer's number, from 0 in the order of adding; -1 on a mistake, which the run
               then reports in words, so you need not check the result.
    Blocks     no.   Threads  one.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API int spipe_add_input(spipe_desc_t *d, const void *host, size_t elem_bytes);
SPIPE_API int spipe_add_output(spipe_desc_t *d, void *host, size_t elem_bytes);
SPIPE_API int spipe_add_inout(spipe_desc_t *d, void *host, size_t elem_bytes);
SPIPE_API int spipe_add_temp(spipe_desc_t *d, size_t elem_bytes);
SPIPE_API int spipe_add_resident(spipe_desc_t *d, void *host, size_t bytes, int how);
SPIPE_API int spipe_add_source(spipe_desc_t *d, spipe_source_fn source, void *user,
                               size_t elem_bytes, spipe_order_t order);
SPIPE_API int spipe_add_sink(spipe_desc_t *d, spipe_sink_fn sink, void *user, size_t elem_bytes,
                             spipe_order_t order);
SPIPE_API int spipe_add_split_source(spipe_desc_t *d, spipe_source_fn next, spipe_work_fn work,
                                     void *user, size_t ticket_bytes, size_t elem_bytes);
SPIPE_API int spipe_set_halo(spipe_desc_t *d, int buffer, size_t before, size_t after,
                             spipe_edge_t edge);

/*  SPIPE_ADD_INPUT(desc, array), SPIPE_ADD_OUTPUT(desc, array), SPIPE_ADD_INOUT(desc, array) and
    SPIPE_ADD_TEMP(desc, type) are the same, with the size of an element taken from the pointer's
    type. In C++ the functions do so themselves: spipe_add_input(&d, array).                    */
#define SPIPE_ADD_INPUT(desc, array)  spipe_add_input((desc), (array), sizeof *(array))
#define SPIPE_ADD_OUTPUT(desc, array) spipe_add_output((desc), (array), sizeof *(array))
#define SPIPE_ADD_INOUT(desc, array)  spipe_add_inout((desc), (array), sizeof *(array))
#define SPIPE_ADD_TEMP(desc, type)    spipe_add_temp((desc), sizeof(type))

/*  spipe_add_stage, spipe_add_host_stage, spipe_stage_after, spipe_stage_ordered -- the stages.
    spipe_stage_elementwise, spipe_stage_replayable -- promises about a stage, which let the library
    use zero-copy or replay a graph.

    d          in/out  from spipe_desc_default.
    name       in      short and unique; appears in messages and reports; kept, not copied.
    fn, user   in      see spipe_stage_fn. A stage follows the one added before it.
    reads, writes in   host stage: SPIPE_BIT(i) or-ed for each buffer (not resident) that is copied
                       to host memory for the stage, and back to the device after it. The stage
                       runs on library threads, for several chunks at once and in any order of
                       chunks, so what user points to must allow that; mark it ordered if it keeps
                       state. There are desc.threads of these threads, and as many slots are needed.
    stage      in      number of a stage.
    after      in      name of a stage that this one waits for instead, added before or after it;
                       call again for more; NULL: none but the copies in. Stages that do not wait
                       for each other run at the same time.
    ordered    chunk k+1 enters after chunk k has left. So the stage may keep state: on the device
               in a resident buffer; a host stage behind user, since calls come one at a time.
    elementwise   every thread reads and writes its own elements, coalesced, each once, and writes
               into no input. Small pinned arrays may then be processed in place (zero-copy),
               without copies. A checked run copies, and refuses a stage that wrote into an
               input.
    replayable    the stage enqueues the same work in every run, with the same arguments, on the
               thread that calls it. A kept pipeline may then record a run as a CUDA graph and
               replay it without calling the stage, so with the recorded arguments: what changes
               from run to run belongs into device memory. A checked run calls the stage and
               compares. spipe_run may use cudaStreamPerThread for a small total.
    Returns    the stage's number, from 0 as added; -1 on a mistake, which the run then reports.
    Blocks     no.   Threads  one.   Callback  yes.   Capture  yes.   Allocates  nothing. */
SPIPE_API int spipe_add_stage(spipe_desc_t *d, const char *name, spipe_stage_fn fn, void *user);
SPIPE_API int spipe_add_host_stage(spipe_desc_t *d, const char *name, spipe_stage_fn fn, void *user,
                                   unsigned reads, unsigned writes);
SPIPE_API int spipe_stage_after(spipe_desc_t *d, int stage, const char *after);
SPIPE_API int spipe_stage_ordered(spipe_desc_t *d, int stage);
SPIPE_API int spipe_stage_elementwise(spipe_desc_t *d, int stage);
SPIPE_API int spipe_stage_replayable(spipe_desc_t *d, int stage);
