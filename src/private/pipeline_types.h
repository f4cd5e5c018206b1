/* ---- 4 execute: what a pipeline is ----------------------------------------------------------
   The structs that a pipeline is made of, each owned by one of the files that follow. No code. */

/* How long a pipeline lives; for one run if it is not kept. */
enum {
    SPIPE_PRIV_ONE_RUN = 0,
    SPIPE_PRIV_KEPT_BY_USER,
    SPIPE_PRIV_KEPT_FOR_CALLS /* of spipe_run with resources, which have it between two calls */
};

/* request: what the user asked for, and facts about it. Written by create, set_host, set_count. */
typedef struct spipe_priv_request {
    spipe_desc_t desc; /* the user's, with the current arrays and count; AUTO stays */
    spipe_device_t facts;
    spipe_priv_array_t arrays[SPIPE_MAX_BUFFERS];
    int device;
    int kept;            /* SPIPE_PRIV_ONE_RUN, ... */
    int other_arrays;    /* 1 = the program names other arrays than the description */
    int may_register;    /* 0 = the system refused to pin an array */
    int sanitized;       /* 1 = under compute-sanitizer, which misses copies that are in one call */
    int apart;           /* 1 = a tool checks memory, so each buffer is an allocation */
    int incomplete;      /* 1 = an array could not be set, so nothing may run */
    int arrays_known;    /* 1 = all arrays are set, and none overlaps a written one */
    int pin_refusals;    /* rings that the system refused to pin; from 3 on nothing is pinned */
    size_t pin_limit;    /* bytes that a ring may have after that; 0 = as many as it wants */
    size_t cpus;         /* CPUs that may be used; 0 = not asked yet */
    size_t device_limit; /* bytes of device memory that slots may take; 0 = what there is */
    spipe_priv_fit_t fit;
    size_t runs;     /* runs on the resources when it was planned, with this one */
    int reads_pages; /* 1 = the GPU reads the pageable arrays by itself, and fast */
} spipe_priv_request_t;

typedef struct spipe_priv_provider spipe_priv_provider_t; /* in provider.h */

/* How a buffer's elements get to the device and back. */
typedef enum spipe_priv_path {
    SPIPE_PRIV_PATH_NONE,     /* not at all: temporary, resident */
    SPIPE_PRIV_PATH_COPIED,   /* copied from and to the user's array */
    SPIPE_PRIV_PATH_STAGED,   /* through pinned slots that host threads fill and drain */
    SPIPE_PRIV_PATH_ZERO_COPY /* used where it is */
} spipe_priv_path_t;

/* The steps of a chunk. */
typedef enum spipe_priv_step {
    SPIPE_PRIV_STEP_IN,
    SPIPE_PRIV_STEP_OUT,
    SPIPE_PRIV_STEP_STAGE,
    SPIPE_PRIV_STEP_HOST_BEGIN,
    SPIPE_PRIV_STEP_HOST_END
} spipe_priv_step_t;

enum {
    SPIPE_PRIV_MAX_STEPS = 2 * SPIPE_MAX_STAGES + 2,
    SPIPE_PRIV_MAX_PIPELINE_STREAMS = 2 + 2 * SPIPE_MAX_STAGES,
    SPIPE_PRIV_CHECKPOINTS = 16, /* checkpoint events: the host is so many ahead of the GPU ... */
    SPIPE_PRIV_CHECKPOINT_EVERY = 16, /* ... each standing for so many chunks, or for one where
                                         progress is reported */
    SPIPE_PRIV_MAX_EVENTS = 2 + SPIPE_MAX_DEPTH * (3 + SPIPE_MAX_STAGES),
    SPIPE_PRIV_GUARD = 256, /* bytes */
    SPIPE_PRIV_MOST_WORKERS = 3 * SPIPE_MAX_THREADS
};

/* route: paths of buffers, and the stages as steps on streams. Follows from request and plan. */
typedef struct spipe_priv_route {
    spipe_priv_path_t path[SPIPE_MAX_BUFFERS];
    int fills;           /* 1 = host work fills slots */
    int drains;          /* 1 = host work drains them */
    int until_done;      /* 1 = a slot is free only when its chunk is done, else when it is copied
                            in, where that is enough */
    int sequential;      /* 1 = there is a source or a sink */
    int host_work;       /* 1 = host threads have work: staging, sources, sinks, host stages */
    int pageable_copies; /* 1 = CUDA copies pageable memory ... */
    int blocks;          /* ... which blocks, as the GPU cannot read that memory itself */
    int out_blocks;      /* 1 = a chunk's last copy out returns when all before it is done */
    int no_copies;       /* 1 = zero-copy: stages work on the user's arrays alone */
    int num_chains;      /* chains of stages; each has a pair of kernel streams */
    int chain[SPIPE_MAX_STAGES];
    unsigned after[SPIPE_MAX_STAGES]; /* stages that stage i waits for, as bits */
    unsigned leaves;                  /* stages that no other waits for, as bits */
    unsigned awaited; /* stages for which another stream or the host waits, as bits */
    int num_steps, num_segments;

    struct {
        spipe_priv_step_t what;
        int stage; /* -1 for copies */
    } steps[SPIPE_PRIV_MAX_STEPS];

    struct {
        int start;      /* its first step */
        unsigned waits; /* host stages that must end before the next segment */
    } segments[SPIPE_MAX_STAGES + 2];

    int in_order; /* 1 = a stage on the device is ordered */
} spipe_priv_route_t;

/* What a stage says of itself while it runs, for the sentence of the failure. */
typedef struct spipe_priv_note {
    cudaError_t error;      /* cudaSuccess = the stage noted nothing */
    int catches;            /* 1 = the caller of the stage catches exceptions */
    void *scratch;          /* a list of memory in place of buffers that do not exist */
    void *thrown;           /* a C++ exception that left the call, or NULL */
    unsigned never_written; /* inputs that the stage may not write into */
    char text[192];
} spipe_priv_note_t;

/* What happens to a slot. */
typedef enum spipe_priv_state {
    SPIPE_PRIV_EMPTY,
    SPIPE_PRIV_FILLING,
    SPIPE_PRIV_FILLED, /* its next segment can be issued */
    SPIPE_PRIV_ISSUING,
    SPIPE_PRIV_ON_HOST,   /* host stages have it, or the caller of spipe_pipeline_next */
    SPIPE_PRIV_ON_DEVICE, /* all is issued */
    SPIPE_PRIV_OUT,       /* it can be drained */
    SPIPE_PRIV_DRAINING
} spipe_priv_state_t;

/* In a slot's `waits`: the caller of spipe_pipeline_next has the chunk. */
#define SPIPE_PRIV_CALLERS (1u << SPIPE_MAX_STAGES)

/* A chunk's memory, and how far the chunk has come. The states are under the lock; runs without
   host work take slots in turn and do without states. */
typedef struct spipe_priv_slot {
    unsigned char *dev[SPIPE_MAX_BUFFERS];       /* the chunk's first element on the device */
    unsigned char *pin_in[SPIPE_MAX_BUFFERS];    /* pinned twin that is filled, or NULL */
    unsigned char *pin_out[SPIPE_MAX_BUFFERS];   /* pinned twin that is drained, or NULL */
    unsigned char *(*mirror)[SPIPE_MAX_BUFFERS]; /* what each host stage sees, or NULL */
    cudaEvent_t in_done, out_done;
    cudaEvent_t stage_done[SPIPE_MAX_STAGES]; /* NULL if nothing waits for the stage */
    spipe_priv_state_t state;
    size_t chunk;                   /* its number in the whole */
    size_t order;                   /* how many were issued before it in this run */
    size_t before;                  /* the chunk that was in it and whose end was not seen yet;
                                       SPIPE_AUTO = none */
    struct spipe_priv_slot *behind; /* the slot that was issued before it, or NULL */
    int segment;                    /* the part of the program that is issued next */
    int used;                       /* 1 = in this run it was issued before */
    int sunk;                       /* 1 = sinks that are called in order have had the chunk */
    unsigned waits, reached, busy;  /* host stages that have not left it; those whose work on the
                                       device has ended; those that run */
    spipe_chunk_t view;             /* what a stage on the device sees */
} spipe_priv_slot_t;

/* memory: device and pinned arenas, and the slots laid out in them. */
typedef struct spipe_priv_memory {
    unsigned char *device, *pinned;
    unsigned char *pinned_base;  /* from malloc, if the library pinned it in place */
    unsigned char *pinned_alias; /* the address of pinned in kernels */
    size_t device_bytes, pinned_bytes;
    size_t refused; /* bytes that could not be pinned when memory was last asked for */
    int lacks;      /* 1 = then there was too little device memory, or of resources */
    int pageable;   /* 1 = the pinned arena is pageable, since nothing can be pinned */
    size_t guard;   /* guard bytes around each buffer; 0 = not a checked run */
    void **apart;   /* instead of the device arena, if a tool checks memory */
    size_t num_apart, apart_bytes;
    unsigned in_place; /* buffers that kernels find in the user's array itself */
    unsigned char *resident[SPIPE_MAX_BUFFERS];
    spipe_priv_slot_t *slots;
    size_t num_slots;
    spipe_priv_slot_t single; /* the slot of a run with one, so that none is allocated */
} spipe_priv_memory_t;

/* streams: streams and events, all of them to be destroyed but for a borrowed stream 0. */
typedef struct spipe_priv_streams {
    int num, first_owned, num_events;
    size_t num_slot_events; /* slots that have events */
    cudaEvent_t sync_event; /* lets streams wait for each other at the ends of a run */
    cudaEvent_t end;        /* end of an enqueued run */
    cudaEvent_t checkpoints[SPIPE_MAX_DEPTH]; /* 16; with progress one for each chunk in a slot */
    cudaStream_t streams[SPIPE_PRIV_MAX_PIPELINE_STREAMS]; /* large arrays last: they */
    cudaEvent_t events[SPIPE_PRIV_MAX_EVENTS];             /* are never cleared */
} spipe_priv_streams_t;

/* One operation of a slot's program: a wait, an action and a record in one stream. */
typedef struct spipe_priv_op {
    cudaStream_t stream;
    cudaEvent_t wait, done; /* or NULL */
    int again;              /* 1 = it waits only if the slot was used before in this run */
    int what;               /* SPIPE_PRIV_OP_... */
    int step, stage;        /* for messages: a spipe_priv_step_t; a stage, or -1 */
    int out, num;           /* out: 1 = from the device; num: copies in one call */
    unsigned char *to;      /* a copy of count x elem_bytes + more bytes */
    const unsigned char *from;
    size_t to_elem, from_elem; /* bytes to the next element of an array; 0 in a slot */
    size_t elem_bytes, more;
} spipe_priv_op_t;

/* replay: a run as a graph; and what checked runs compare. */
typedef struct spipe_priv_replay {
    cudaGraphExec_t graph; /* the run as a graph, or NULL */
    size_t graph_moved[2];
    size_t graph_chunk;                               /* chunk of the plan that the graph replays */
    int graph_failed;                                 /* 1 = it cannot be captured */
    void (*run_graph)(struct spipe_priv_pipeline *p); /* replays it */

    struct { /* checked runs: of each stage's first chunk, as hashes; 0 = unknown */
        uint64_t seen, enqueued;
    } work[SPIPE_MAX_STAGES];

    cudaError_t (*compare_work)(struct spipe_priv_pipeline *p, int stage, const spipe_chunk_t *c,
                                cudaGraph_t graph, size_t num); /* NULL in a one-shot run */
} spipe_priv_replay_t;

/* program: the operations of each slot on each of two kernel streams, written down once. The row of
   a slot is slot x parities + order % parities. */
typedef struct spipe_priv_program {
    spipe_priv_op_t *ops;
    size_t capacity;
    size_t parities; /* 2 = a slot may change its kernel streams */
    size_t num_ops;  /* operations in a row */
    size_t step_start[SPIPE_PRIV_MAX_STEPS + 1];
    int one_stream, watched; /* the kind of run it was written for */
    int copies_together;     /* 1 = copies of one direction may go in one call (not in a capture) */
    int turns;               /* 1 = it gives other runs a turn between two chunks */
    size_t checkpoint_mask;  /* chunks of a checkpoint - 1, a power of two - 1 */
    spipe_priv_replay_t replay;
} spipe_priv_program_t;

/* Host work for one chunk. */
enum {
    SPIPE_PRIV_DRAIN = 0,
    SPIPE_PRIV_FILL,
    SPIPE_PRIV_HOST,
    SPIPE_PRIV_TOUCH /* touch new pinned pages, before the first run */
};

typedef struct spipe_priv_task {
    int what, stage;
    size_t chunk; /* TOUCH: the number of the page */
    spipe_priv_slot_t *slot;
    double began; /* with a timeline only */
} spipe_priv_task_t;

/* A thread of a run: the one that called run, or a worker. */
typedef struct spipe_priv_hand {
    int caller;
    int idle;          /* 1 = it is counted as idle */
    int asks;          /* 1 = it is the one that asks CUDA while it waits */
    int on_device;     /* 1 = it has made the run's device current */
    unsigned seen;     /* the news that it knows */
    double since;      /* when it began to wait; 0 = it does not */
    cudaError_t found; /* CUDA's last error on this thread before the run */
} spipe_priv_hand_t;

/* workers: the threads that fill, drain, run host stages, and issue. All under the lock. */
typedef struct spipe_priv_workers {
    void *threads[SPIPE_PRIV_MOST_WORKERS];
    size_t num_threads;           /* started */
    size_t active;                /* threads that may take part in this run */
    size_t planned[3];            /* of each kind, as the plan says: drain, fill, host */
    size_t taking, idle, asleep;  /* workers that take part; of these, without a task; asleep */
    int caller_asleep, asker;     /* asker: 1 = an idle thread asks CUDA */
    unsigned news;                /* changes with every state; read without the lock */
    spipe_priv_cond_t work, rest; /* idle workers; workers beyond `active` */
    int made;                     /* 1 = these conditions exist */
    int quit;
    int started;              /* 1 = threads were asked for */
    size_t beside;            /* runs that shared the threads at the last start */
    int shares;               /* 1 = this run has work for threads, so it is one of them */
    int all_cpus;             /* 1 = they take all CPUs, so a waiting caller should help */
    spipe_priv_hand_t caller; /* the thread that called run */
    spipe_priv_steer_t steer;
} spipe_priv_workers_t;

/* How far a run is. All of it is under the lock where there are states. */
typedef struct spipe_priv_progress_counts {
    size_t next;         /* chunks that were given a slot */
    size_t end;          /* no more than so many are */
    size_t issued;       /* chunks whose first segment was issued */
    size_t completed;    /* without states: chunks whose outputs are whole */
    size_t checkpoints;  /* likewise: checkpoints that were reached */
    size_t issued_out;   /* likewise: chunks that are issued to their end */
    size_t reported;     /* chunks reported to the progress callback */
    size_t touched;      /* pages that were touched, or are being touched, ... */
    size_t pages;        /* ... of so many */
    int reading;         /* 1 = a thread reads the sources, in turn */
    int broken;          /* 1 = in a checked run the GPU has failed, at a chunk that is known */
    int asking, issuing; /* 1 = a thread asks CUDA; a thread has the role of issuing */
    size_t busy;         /* threads that do either, or a task */
    cudaError_t found;   /* CUDA's last error on the thread that issues, before the run */
    spipe_priv_slot_t *read, *last; /* the slot that was read into, or issued, last */
    spipe_priv_slot_t *chosen;      /* on a modelled clock: the slot that is issued next */
} spipe_priv_progress_counts_t;

/* How a run ends for its caller. */
typedef enum spipe_priv_mode {
    SPIPE_PRIV_WAITED_FOR, /* the call returns when all is done, and counts what is whole */
    SPIPE_PRIV_ENQUEUED,   /* in a stream's order */
    SPIPE_PRIV_CAPTURED    /* into a graph */
} spipe_priv_mode_t;

/* What the functions of buffers were told of a run. */
typedef struct spipe_priv_told {
    int begin; /* 1 = that there is one; they shall be told its end */
    int stop;  /* 1 = that it ends early */
} spipe_priv_told_t;

/* run: state of the run under way. */
typedef struct spipe_priv_run {
    spipe_priv_progress_counts_t at;
    spipe_priv_mode_t mode;
    int endless, one_stream;
    cudaError_t resident;   /* of copying resident buffers out; cudaErrorNotReady = not yet */
    int running_enqueued;   /* 1 = an enqueued run has not been waited for */
    int ran_now;            /* 1 = an enqueued run ran at once, and wait was not called since */
    size_t failed;          /* a flag, read without the lock */
    size_t stop_asked;      /* likewise */
    spipe_priv_told_t told; /* likewise */
    int states;             /* 1 = slots have states: there is host work */
    int in_turn;            /* 1 = slots are used in turn, and issued in the order of chunks */
    int shared;             /* 1 = several GPUs share the whole */
    size_t total;           /* elements; SPIPE_AUTO = not known yet */
    size_t full_chunks, num_chunks;
    size_t limit;    /* chunks from here on are not worked on: the first that failed */
    size_t moved[2]; /* bytes to the device, bytes from it */

    struct {
        size_t got; /* elements that each source gave */
        int ended;
    } sources[SPIPE_MAX_BUFFERS];

    double began;
} spipe_priv_run_t;

/* pull: a run whose chunks the caller takes one by one, counted from its begin. */
typedef struct spipe_priv_pull {
    int active;
    size_t issued, taken, released;
} spipe_priv_pull_t;

/* lent: a pipeline's part in resources. */
typedef struct spipe_priv_lent {
    int attached;         /* 1 = the resources count it among their pipelines */
    int entered;          /* 1 = a run is under way: checked in, not yet out */
    int stays;            /* 1 = it never checks out: enqueued runs may come at any time */
    uintptr_t thread;     /* the thread that has the run */
    int ended;            /* 1 = that thread has ended, in the middle of the run */
    int holds_off;        /* 1 = that thread cannot be cancelled until the run checks out */
    int cancels;          /* the state for pthread_setcancelstate after that */
    size_t streams_ahead; /* streams, and events, taken ahead: they lie behind those in use */
    size_t events_ahead;
    uintptr_t starter; /* of a part on one of several GPUs: the thread that waits for all parts;
                          else 0 */
    struct spipe_priv_pipeline *next_holder; /* next in the list of pipelines that have memory */
    struct spipe_priv_pipeline *next_idle;   /* next in the list of idle pipelines of calls */
    int loses_threads;                       /* 1 = idle, and its threads are being taken back */
    int plan_is_old;                         /* 1 = this run must be planned anew */
} spipe_priv_lent_t;

/* A pipeline. Each part is written by the file of its name. */
typedef struct spipe_priv_pipeline {
    spipe_priv_request_t request;
    spipe_plan_t plan;
    spipe_priv_route_t route;
    spipe_priv_program_t program;
    spipe_priv_workers_t workers;
    spipe_priv_climb_t climb;
    spipe_priv_run_t run;
    spipe_priv_pull_t pull;
    spipe_failure_t failure;
    spipe_report_t report;
    spipe_priv_sync_t *sync;
    spipe_priv_owner_t owner; /* of a kept pipeline */
    spipe_priv_visit_t visit; /* of the call under way */
    spipe_priv_lent_t lent;
    const spipe_priv_provider_t *provider;
    spipe_priv_watcher_t *watcher; /* the watcher of the run under way, or NULL */
    void *thrown;                  /* a C++ exception of the user's, or NULL */
    spipe_priv_note_t note;        /* the note of the stage that is being called */
    spipe_priv_memory_t memory;
    spipe_priv_streams_t streams; /* last: its large arrays are never cleared */
} spipe_priv_pipeline_t;
