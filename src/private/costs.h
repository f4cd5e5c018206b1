/* ---- 10 costs ------------------------------------------------------------------------------
   Every tuned number of the planner: the table of machines, and the planner's own limits. No other
   file of the planner holds a number above 2; a check of tests/lint sees to that. */

/* The figures of spipe_costs_t: member, unit it is written in, that unit in SI units. */
#define SPIPE_PRIV_COST_FIGURES(X)                                                                 \
    X(link_in, "GB/s", 1e9)                                                                        \
    X(link_out, "GB/s", 1e9)                                                                       \
    X(link_both, "GB/s", 1e9)                                                                      \
    X(copy_s, "us", 1e-6)                                                                          \
    X(latency_s, "us", 1e-6)                                                                       \
    X(call_s, "us", 1e-6)                                                                          \
    X(launch_s, "us", 1e-6)                                                                        \
    X(zero_copy, "GB/s", 1e9)                                                                      \
    X(pageable_in, "GB/s", 1e9)                                                                    \
    X(pageable_out, "GB/s", 1e9)                                                                   \
    X(pageable_s, "us", 1e-6)                                                                      \
    X(fill, "GB/s", 1e9)                                                                           \
    X(drain, "GB/s", 1e9)                                                                          \
    X(memory, "GB/s", 1e9)                                                                         \
    X(memory_uncached, "GB/s", 1e9)                                                                \
    X(wake_s, "us", 1e-6)                                                                          \
    X(start_s, "us", 1e-6)                                                                         \
    X(staged_s, "us", 1e-6)                                                                        \
    X(pin, "GB/s", 1e9)                                                                            \
    X(pin_s, "us", 1e-6)                                                                           \
    X(pin_arrays, "GB/s", 1e9)                                                                     \
    X(setup_s, "us", 1e-6)                                                                         \
    X(malloc_s, "us", 1e-6)                                                                        \
    X(malloc_bytes, "GB/s", 1e9)

enum {
    SPIPE_PRIV_NUM_COSTS =
        sizeof(spipe_costs_t) / sizeof(double) - offsetof(spipe_costs_t, link_in) / sizeof(double)
};

/* A row a machine kind; the name is looked for in the device's name. Values in the units above. */
typedef struct spipe_priv_cost_row {
    const char *name;
    double figures[SPIPE_PRIV_NUM_COSTS];
} spipe_priv_cost_row_t;

SPIPE_PRIV_RARE const spipe_priv_cost_row_t *spipe_priv_cost_rows(size_t *num) {
    /* clang-format off */
    static const spipe_priv_cost_row_t rows[] = {
        /* H200, PCIe 5.0 x16, 16 CPUs, driver 580.159, CUDA 13.0, 2026-11-23: `make bench-costs`.
           link_both and copy_s fit a ring of slots, latency_s runs of 1 MiB (NOTES). pageable_*,
           pin_s and setup_s are of arrays that no cache holds, in a program with other pinned
           memory; pin is of one-shot runs, with touching the slots and freeing them: like start_s
           it fits `make bench-versus` of 2026-11-24. fill, drain, the memory's rates and staged_s
           fit 458 kept runs of 16 MiB to 4 GiB (NOTES), 2026-11-26. malloc_bytes is a line through
           blocks of up to 64 MiB, 2026-11-28 (NOTES). */
        {"H200",
         /* link_in  link_out  link_both  copy_s  latency_s  call_s  launch_s  zero_copy */
         {  55.3,    55.2,     51.5,      3.6,    4.0,       1.9,    4.0,      42.0,
         /* pageable_in  pageable_out  pageable_s */
            7.0,         9.0,          90.0,
         /* fill  drain  memory  memory_uncached  wake_s  start_s  staged_s */
            7.4,  10.4,  98.0,   65.0,            22.0,   50.0,    12.0,
         /* pin   pin_s   pin_arrays  setup_s  malloc_s  malloc_bytes */
            12.0, 190.0,  17.0,       50.0,    30.0,     1000.0}},
        /* H100, PCIe 5.0 x16, 16 CPUs, the same driver and toolkit, 2026-11-23. pin and start_s fit
           one-shot runs of `make bench-versus`, 2026-11-24; call_s fits `make bench-sweep
           BENCH_ARGS="--only chunks"`, and pin_arrays `make bench-versus`, 2026-11-25; fill, drain,
           the memory's rates and staged_s 420 kept runs of 16 MiB to 4 GiB (NOTES), 2026-11-26.
           malloc_bytes is the H200's: one-shot runs with 1,000 and 1,300 take the same time. */
        {"H100",
         {  55.3,    55.2,     46.0,      3.6,    4.0,       2.3,    4.0,      40.8,
            7.0,         9.0,          90.0,
            6.9,  9.2,   90.0,   58.0,            22.0,   60.0,    8.0,
            10.0, 190.0,  14.0,       50.0,    30.0,     1000.0}},
        /* Any other: PCIe 4.0 x16 and a desktop's memory, by their specifications, not measured;
           staged_s is near those above. */
        {"unknown",
         {  25.0,    25.0,     22.0,      3.6,    4.0,       1.9,    4.0,      19.0,
            6.0,         6.0,          90.0,
            5.0,  5.0,   36.0,   28.0,            15.0,   130.0,   10.0,
            9.0,  190.0,  15.0,       50.0,    30.0,     1000.0}},
    };
    /* clang-format on */
    *num = sizeof rows / sizeof *rows;
    return rows;
}

/* What the planner considers. */
enum {
    SPIPE_PRIV_LEAST_CHUNK = 128 << 10, /* bytes of the smallest chunk it proposes */
    SPIPE_PRIV_MOST_CHUNK = 16 << 20,   /* bytes of the largest chunk */
    SPIPE_PRIV_PIECE = 256 << 10,       /* bytes that the calling thread reads and copies at once: 1
                                           and 2 MiB are fastest so (H100, 2026-11-26) */
    SPIPE_PRIV_BLOCK = 1280 << 10,      /* bytes of device memory that are allocated fast: what is
                                           larger takes whole blocks of CUDA's, of 2 MiB each */
    SPIPE_PRIV_ALIGN_ELEMS = 32,        /* chunks are multiples of so many elements, so that each
                                           begins as aligned as the array ... */
    SPIPE_PRIV_ALIGN_FROM = 64,         /* ... from so many times that on: rounding costs 1.6 % */
    SPIPE_PRIV_ASK_CACHE = 8 << 20,     /* bytes to stage from which the cache's size matters:
                                             asking for it takes 30 us in a virtual machine */
    SPIPE_PRIV_COPY_SLOTS = 4,          /* slots without staging: one for each copy, two kernels */
    SPIPE_PRIV_FEWER_SLOTS = 6,         /* so many fewer than the threads can use are compared */
    SPIPE_PRIV_FEW_CPUS = 4,            /* fewer than these: one staging thread each way */
    SPIPE_PRIV_SPARE_CPUS = 8,          /* one CPU of so many is left to the calling thread; if
                                           there are fewer CPUs, it drains what is little: */
    SPIPE_PRIV_LITTLE_OUT = 64,         /* so many times fewer bytes than are filled */
    SPIPE_PRIV_FEW_BYTES = 1 << 10,     /* for each multiprocessor: a float for each of 256 threads.
                                           A kernel takes longer than its share of the whole by the
                                           fourth power of (so many / the bytes of its chunk), but
                                           at most by UNDERFILLED of its time (rings by hand, H100
                                           and H200, 2026-11-27, tests/bench/NOTES.md) */
    SPIPE_PRIV_MAX_PARTS = 4,           /* parts of a zero-copy run */
    SPIPE_PRIV_REFINE_DOWN = 4,         /* chunks near the best: from three quarters as many ... */
    SPIPE_PRIV_REFINE_UP = 3,           /* ... to a third more, up to the next sizes, */
    SPIPE_PRIV_REFINE_STEPS = 8,        /* in steps of a sixteenth */
    SPIPE_PRIV_CANDIDATES = 5,          /* ways that a kept pipeline tries */
    SPIPE_PRIV_TRIES = 4,               /* the most runs of each of them */
    SPIPE_PRIV_TRY_EVERY = 5,           /* unstaged: of so many runs, one tries another way */
    SPIPE_PRIV_TRY_FROM = 8,            /* calls of a kind before such calls try candidates */
    SPIPE_PRIV_IDLE_PIPELINES = 32,     /* that resources keep between calls */
    SPIPE_PRIV_MAX_REPLAY = 1024,       /* chunks of a run that may be replayed as a graph */
    SPIPE_PRIV_BISECTIONS = 40,         /* steps of solving the law for the kernels' time */
    SPIPE_PRIV_ASSUMED_BYTES = 256 << 20, /* assumed if a run's total is not known */
    SPIPE_PRIV_LENT_DEVICE = 512 << 20, /* bytes of device memory that resources have by default */
    SPIPE_PRIV_LENT_PINNED = 128 << 20, /* bytes of pinned memory, likewise */
    SPIPE_PRIV_LEAST_SHARE = 16,        /* of what resources hold, a plan may always take 1/16 */
    SPIPE_PRIV_RUNS_AT_ONCE = 7,        /* that keep a link busy (`make bench-many`, H200,
                                           2026-11-26); of more, each plans for 1/7 of the device
                                           memory, and some wait, if they may */
    SPIPE_PRIV_HUGE_PAGE = 2 << 20,     /* bytes: 512 times fewer pages to touch and to pin */
    SPIPE_PRIV_SMALL_REST = 8,          /* a ring that needs less than 1/8 of its last huge page
                                           ends in pages of 4 KiB instead */
    SPIPE_PRIV_LONG_RUN = 32,   /* chunks for each staging thread; from so many on, it calls CUDA */
    SPIPE_PRIV_SPLIT_PARTS = 4, /* least chunks of a split source for each thread */
    SPIPE_PRIV_LATE_ADDS = 8,   /* for each worker late for its task; each wait takes 1 off again */
    SPIPE_PRIV_MOST_LATE = 256, /* beyond this sum, workers without a task sleep at once ... */
    SPIPE_PRIV_LATE_REST = 4096, /* ... for as many waits as take this sum back to MOST_LATE (kept
                                    runs beside 12 and 16 busy threads, H100, 2026-11-28, NOTES) */
    SPIPE_PRIV_ARENA_SLACK =
        128 << 10 /* bytes beyond the plan's, for the alignment of other plans */
};

#define SPIPE_PRIV_KERNEL_GAP  0.05 /* of launch_s, between kernels of two streams in turns */
#define SPIPE_PRIV_UNDERFILLED 0.5  /* at most; FEW_BYTES says of what */
#define SPIPE_PRIV_EQUALS_LOSE 0.19 /* of staging and issuing, where both take the same time */
#define SPIPE_PRIV_SLOTS_LOSE                                                                      \
    0.07                             /* of the busiest engine, where the slots just suffice:
                                        threads fill chunks out of order (NOTES) */
#define SPIPE_PRIV_THREAD_COST 0.004 /* of staged_s that each staging thread adds to it */
#define SPIPE_PRIV_LESS_KERNEL                                                                     \
    0.2                               /* of a run: the candidates are listed again if it leaves the
                                         kernels so much less than runs before */
#define SPIPE_PRIV_ASSUMED_KERNEL 0.5 /* kernels' time, as a share of the copies', until measured */
/* Added to the time to fill or drain, as a share of it: where sources and sinks do it, since a
   thread reads 5.0 to 6.6 GB/s of a file; where the ring that sources write is larger than
   CACHE_SHARE of the cache, 1.2 by reading alone, and more from file to file, where rings of 18 MiB
   were faster than of 87 (`make bench-files`, H100 and H200, 2026-11-26); and where threads copy
   arrays, for what the ring misses (NOTES). */
#define SPIPE_PRIV_SOURCE       0.15
#define SPIPE_PRIV_SINK         0.30
#define SPIPE_PRIV_LARGE_SOURCE 1.9
#define SPIPE_PRIV_MISSED_ARRAY 0.5
#define SPIPE_PRIV_CACHE_SHARE  0.125
#define SPIPE_PRIV_HELD_RING    0.10 /* rings up to this share of the cache stay in it ... */
#define SPIPE_PRIV_MISSED_RING  0.60 /* ... and from this share on none of them does */
#define SPIPE_PRIV_BLOCK_S                                                                         \
    60e-6                             /* to allocate a further block of device memory, where slots
                                         are pageable (`make bench-files`, H100, 2026-11-26) */
#define SPIPE_PRIV_HELD_SLOT     1.60 /* of pageable_in, if just filled (files, H100, 2026-11-25) */
#define SPIPE_PRIV_ALONE_SHARE   0.05 /* of its time alone, added to a way's time beside others */
#define SPIPE_PRIV_MEMORY_SHARE  0.25 /* of the device's memory that slots may take */
#define SPIPE_PRIV_WORTH_TRYING  1.20 /* candidates predicted within this of the best are tried */
#define SPIPE_PRIV_SIDE_BY_SIDE  0.90 /* of reading, then writing: parts of zero-copy do both */
#define SPIPE_PRIV_ONE_STREAM    0.2  /* of setup_s, where one stream and no events are made */
#define SPIPE_PRIV_ONE_BATCH     0.5  /* of setup_s, saved where no batch waits for another */
#define SPIPE_PRIV_CHANCE        0.98 /* a challenger must take less than this of the best's time */
#define SPIPE_PRIV_STAGED_CHANCE 0.90 /* the same of staged runs, whose times vary more */
#define SPIPE_PRIV_OTHER_CHUNK   1.60 /* two candidates differ by so much in chunk size ... */
#define SPIPE_PRIV_OTHER_THREADS 1.25 /* ... or by so much in threads */
#define SPIPE_PRIV_DOES_NOT_FIT  1e9  /* seconds added to a way whose slots exceed the memory */

/* Member number i, counted from link_in. */
SPIPE_PRIV_RARE double *spipe_priv_cost_figure(spipe_costs_t *costs, size_t i) {
    return &costs->link_in + i;
}

SPIPE_PRIV_RARE int spipe_priv_same_letter(char a, char b) {
    const char lower_a = (char)(a >= 'A' && a <= 'Z' ? a | 32 : a);
    const char lower_b = (char)(b >= 'A' && b <= 'Z' ? b | 32 : b);
    return lower_a == lower_b;
}

/* Whether a name contains a word, in capital or small letters. */
SPIPE_PRIV_RARE int spipe_priv_names(const char *name, const char *word) {
    for (; *name; ++name) {
        size_t i = 0;
        while (word[i] && spipe_priv_same_letter(name[i], word[i])) ++i;
        if (!word[i]) return 1;
    }
    return 0;
}

/* The row for a device's name; the last row is for names that no other row has. */
SPIPE_PRIV_RARE spipe_costs_t spipe_priv_costs_for(const char *device) {
    static const char is_time[] = {/* in us; the others are in GB/s */
#define SPIPE_PRIV_COST_IS_TIME(member, unit, si) (si) < 1.0,
                                   SPIPE_PRIV_COST_FIGURES(SPIPE_PRIV_COST_IS_TIME)
#undef SPIPE_PRIV_COST_IS_TIME
    };
    spipe_costs_t costs;
    size_t num, k = 0, i;
    const spipe_priv_cost_row_t *rows = spipe_priv_cost_rows(&num);
    while (k + 1 < num && !spipe_priv_names(device, rows[k].name)) ++k;
    memset(&costs, 0, sizeof costs);
    memcpy(costs.name, rows[k].name, strlen(rows[k].name)); /* all are short; the rest is zeros */
    for (i = 0; i < SPIPE_PRIV_NUM_COSTS; ++i) {
        *spipe_priv_cost_figure(&costs, i) = rows[k].figures[i] * (is_time[i] ? 1e-6 : 1e9);
    }
    return costs;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_device_name(char *name, size_t bytes, int *device,
                                                   int *driver) {
    struct cudaDeviceProp properties;
    if (*device < 0) SPIPE_TRY(spipe_priv_take_error(cudaGetDevice(device)));
    SPIPE_TRY(spipe_priv_take_error(cudaGetDeviceProperties(&properties, *device)));
    SPIPE_TRY(spipe_priv_take_error(cudaDriverGetVersion(driver)));
    (void)snprintf(name, bytes, "%s", properties.name);
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_costs_get(spipe_costs_t *costs, int device) {
    char name[256];
    int driver = 0;
    if (!costs) return cudaErrorInvalidValue;
    memset(costs, 0, sizeof *costs);
    SPIPE_TRY(spipe_priv_device_name(name, sizeof name, &device, &driver));
    *costs = spipe_priv_costs_for(name);
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_costs_print(const spipe_costs_t *costs, FILE *to) {
    char name[sizeof costs->name];
    if (!costs || !to) return cudaErrorInvalidValue;
    (void)snprintf(name, sizeof name, "%.31s", costs->name);
    spipe_priv_make_printable(name);
    fprintf(to, "costs of %s\n", name);
#define SPIPE_PRIV_COST_PRINT(member, unit, si)                                                    \
    fprintf(to, "  %-16s %10.3f %s\n", #member, costs->member / (si), unit);
    SPIPE_PRIV_COST_FIGURES(SPIPE_PRIV_COST_PRINT)
#undef SPIPE_PRIV_COST_PRINT
    return ferror(to) ? cudaErrorOperatingSystem : cudaSuccess;
}

/* The name of the first figure that is not a positive number, or NULL. */
SPIPE_PRIV_RARE const char *spipe_priv_bad_cost(const spipe_costs_t *costs) {
    static const char *const names[] = {
#define SPIPE_PRIV_COST_NAME(member, unit, si) #member,
        SPIPE_PRIV_COST_FIGURES(SPIPE_PRIV_COST_NAME)
#undef SPIPE_PRIV_COST_NAME
    };
    spipe_costs_t copy;
    size_t i;
    if (!costs) return "costs";
    copy = *costs;
    for (i = 0; i < SPIPE_PRIV_NUM_COSTS; ++i) {
        const double figure = *spipe_priv_cost_figure(&copy, i);
        if (!(figure > 0.0) || figure > 1e15) return names[i];
    }
    return NULL;
}

/* The begin of a line: version, device, driver and CPUs that its figures are for. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_costs_stamp(char *stamp, size_t bytes, int device) {
    char name[256];
    int driver = 0;
    SPIPE_TRY(spipe_priv_device_name(name, sizeof name, &device, &driver));
    (void)snprintf(stamp, bytes, "streampipe costs %d.%d.%d; %s; driver %d; %zu CPUs;",
                   SPIPE_VERSION_MAJOR, SPIPE_VERSION_MINOR, SPIPE_VERSION_PATCH, name, driver,
                   spipe_priv_num_cpus());
    return cudaSuccess;
}

SPIPE_API cudaError_t spipe_costs_write(const spipe_costs_t *costs, int device, char *line,
                                        size_t bytes) {
    spipe_costs_t copy;
    char stamp[400];
    size_t used, i;
    if (!line || bytes == 0) return cudaErrorInvalidValue;
    *line = 0;
    if (spipe_priv_bad_cost(costs) || strchr(costs->name, ';')) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_costs_stamp(stamp, sizeof stamp, device));
    copy = *costs;
    used = (size_t)snprintf(line, bytes, "%s %.31s;", stamp, costs->name);
    for (i = 0; i < SPIPE_PRIV_NUM_COSTS && used < bytes; ++i) {
        used +=
            (size_t)snprintf(line + used, bytes - used, " %.6g", *spipe_priv_cost_figure(&copy, i));
    }
    if (used < bytes) return cudaSuccess;
    *line = 0;
    return cudaErrorInvalidValue;
}

/* Reads the figures after the stamp and the name; 0 = there are no such figures. */
SPIPE_PRIV_RARE int spipe_priv_costs_parse(spipe_costs_t *costs, const char *text) {
    const char *end = strchr(text, ';');
    size_t i;
    memset(costs, 0, sizeof *costs);
    while (*text == ' ') ++text;
    if (!end || (size_t)(end - text) >= sizeof costs->name) return 0;
    memcpy(costs->name, text, (size_t)(end - text));
    spipe_priv_make_printable(costs->name); /* it is from a file, and goes into reports */
    for (text = end + 1, i = 0; i < SPIPE_PRIV_NUM_COSTS; ++i) {
        char *after = NULL;
        const double figure = strtod(text, &after);
        if (after == text || !(figure > 0.0) || figure > 1e15) return 0;
        *spipe_priv_cost_figure(costs, i) = figure;
        text = after;
    }
    return 1;
}

SPIPE_API cudaError_t spipe_costs_read(spipe_costs_t *costs, int device, const char *line) {
    static const char first[] = "streampipe costs ";
    spipe_costs_t read;
    char stamp[400], row[sizeof read.name];
    if (!costs) return cudaErrorInvalidValue;
    memset(costs, 0, sizeof *costs);
    if (!line || strncmp(line, first, sizeof first - 1) != 0) return cudaErrorInvalidValue;
    SPIPE_TRY(spipe_priv_costs_stamp(stamp, sizeof stamp, device));
    if (strncmp(line, stamp, strlen(stamp)) == 0) {
        if (!spipe_priv_costs_parse(&read, line + strlen(stamp))) return cudaErrorInvalidValue;
        *costs = read;
        return cudaSuccess;
    }
    SPIPE_TRY(spipe_costs_get(costs, device));
    memcpy(row, costs->name, sizeof row);
    (void)snprintf(costs->name, sizeof costs->name, "%.8s (stale line ignored)", row);
    return cudaErrorNotSupported;
}
