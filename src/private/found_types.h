/* ---- 4 execute: what runs find out ----------------------------------------------------------
   What a pipeline keeps of the runs before: what fits into memory, how many threads were needed,
   which settings were fast. No code. */

/* What was found to fit into the memory that is free; 0 = all was given that was asked for. */
typedef struct spipe_priv_fit {
    size_t elems, slots; /* the most elements of a slot; the most slots */
} spipe_priv_fit_t;

/* What a part of a run shows about its threads. */
typedef struct spipe_priv_window {
    size_t threads;
    double waited; /* part of the time in which no slot was ready to be issued: 0 to 1 */
    double idle;   /* threads without a task, on average */
} spipe_priv_window_t;

/* steer: what the windows of a run show; see steer.h. */
typedef struct spipe_priv_steer {
    size_t found;              /* threads that runs of this pipeline found; 0 = none yet */
    size_t from, num_windows;  /* chunks that were issued when the window began; windows so far */
    double began;              /* when it began; 0 = there is none yet */
    double last, waited;       /* when a thread last ended issuing; seconds until it began again */
    double idle_s, idle_since; /* seconds of idle workers, summed; up to when */
    double idle_from;          /* their sum when the window began */
    spipe_priv_window_t now, other; /* the last window; the last with another number of threads */
} spipe_priv_steer_t;

/* What a climb may change; zeros: as guessed. */
typedef struct spipe_priv_setting {
    size_t chunk, threads; /* elements; threads that fill and drain */
    int replay;
} spipe_priv_setting_t;

/* climb: the settings that runs of a kept pipeline have tried. Times are in seconds. */
typedef struct spipe_priv_climb {
    int may_climb;
    size_t count; /* of the work that was planned for */
    unsigned flags;
    spipe_priv_setting_t best, now; /* now: of the next run */
    spipe_priv_setting_t taken;     /* of the plan in use ... */
    int arranged;                   /* ... and 1 = all is arranged for it */
    double best_least, best_most;   /* times of the best; 0 = not measured yet */
    double least, most;             /* times of the present setting ... */
    int turns;                      /* ... and how many runs it had */
    int judged;                     /* 1 = the next setting is to be chosen */
    int num_runs, tried;            /* runs, and settings, since the climb began */
    int move, came;                 /* what is tried; the move that led to the best, or -1 */
    int failed;                     /* moves in a row that gained nothing */
    int settled, outside;           /* the climb is over; runs in a row of another time since */
} spipe_priv_climb_t;
