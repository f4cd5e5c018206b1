/*  streampipe.h 0.2.0 -- CUDA stream pipelines in one header.

    Cuts any array, file or endless source into chunks and runs them through your kernels while
    copies in, kernels and copies out overlap. Also the parts it is made of: streams by priority,
    stream pools, events, timers, pinned memory, host calls, workers and channels.
    C99, C++11 and CUDA C++ alike. MIT licence: see the end of this file.

    USE IT   copy this file beside your program and #include it: nothing to define, nothing to
             link but the CUDA runtime (and pthreads).

    CHANGE IT   this file is made: `make amalgamate` joins the short files of src/ in the order
             of src/order. Edit those; a line `---- src/...` says where each part comes from.

    A COMPLETE PROGRAM       nvcc -O3 -o first first.cu
BEGIN EXAMPLE first.cu
    #include "streampipe.h"

    static __global__ void square(const float *x, float *y, size_t n) {
        size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[i] * x[i];
    }
    static cudaError_t square_stage(const spipe_chunk_t *c, void *user) {
        (void)user;                          // SPIPE_MAP_STAGE writes this function in a line
        return SPIPE_LAUNCH(square, spipe_blocks(c->count, 256), 256, 0, c->stream,
                            SPIPE_BUF(c, 0, const float), SPIPE_BUF(c, 1, float), c->count);
    }
    int main(void) {
        size_t n = 10000000;
        float *x = (float *)malloc(n * sizeof *x), *y = (float *)malloc(n * sizeof *y);
        if (!x || !y) return 1;
        for (size_t i = 0; i < n; ++i) x[i] = (float)(i % 1000);

        spipe_report_t report;
        spipe_desc_t d = spipe_desc_default();
        d.count = n;                                      // elements in the whole
        spipe_add_input (&d, x, sizeof *x);               // buffer 0: any host memory
        spipe_add_output(&d, y, sizeof *y);               // buffer 1
        spipe_add_stage (&d, "square", square_stage, NULL);
        SPIPE_CHECK_RUN(&d, &report);                     // prints why and stops on failure
        spipe_report_print(&report, stdout);

        for (size_t i = 0; i < n; ++i) if (y[i] != x[i] * x[i]) return 1;
        free(x); free(y);
        return 0;
    }
END EXAMPLE

    CONTENTS (search for the anchor; the second half repeats the order as code)
      1  >>config     version, limits, macros you may define
      2  >>errors     SPIPE_TRY, SPIPE_CHECK, spipe_failure_t
      3  >>device     copy engines, priorities, pageable access, NUMA node
      4  >>streams    streams by priority name, waiting, pools, leases, scopes
      5  >>events     untimed events, event pools, timers
      6  >>memory     pinned allocation, pinning in place, "is this pinned?"
      7  >>hostcalls  host functions in a stream's order, workers that may call CUDA
      8  >>channels   values handed from one stream to another
      9  >>describe   buffers, stages, sizes: the description of a pipeline
     10  >>costs      what copies, launches and threads cost on a machine
     11  >>plan       what a run will choose, and why
     12  >>report     what happened
     13  >>execute    spipe_run, the kept pipeline, runs in a stream's order, chunk by chunk
     14  >>resources  what many runs share: memory, streams, threads
     15  >>launch     SPIPE_LAUNCH and stage macros (C++ and .cu only)

    WORDS
      element      the unit that count and chunk count: a float, a pixel, an image row, a record
      chunk        consecutive elements that travel together; the last one may be shorter
      batch        several small chunks that are copied in one piece
      buffer       an array cut into chunks, or one block for the whole run (resident)
      stage        a C function that enqueues work on the stream it is given, for one chunk
      slot         the device memory (and pinned memory, where staged) of one batch in flight
      depth        the number of slots: memory used = depth x chunk, whatever the total
      staging      copying pageable memory through pinned slots, by worker threads
      zero-copy    kernels read and write pinned host memory themselves; nothing is copied
      one-shot     a run by spipe_run, which sets up and frees everything
      kept         a pipeline made once by spipe_pipeline_create and run many times
      plan         the choices for a run: chunk, depth, schedule, staging, threads

    HOW A CHUNK TRAVELS    host buffer -> (pinned slot) -> device slot -> stages -> ... -> host
      copy in  |0|1|2|3|4|          a slot is used again when its copy out has ended;
      stages     |0|1|2|3|4|        an event joins each step to the next; chunks take turns
      copy out     |0|1|2|3|4|      on two kernel streams unless a stage is marked ordered

    RULES
      Ownership  arrays you pass stay yours and must live until the run returns (enqueue: until
                 the stream has passed it). A pipeline is a pointer made by
                 spipe_pipeline_create. Pools, timers and the like are structs of yours: zeroed =
                 dead, made by *_create, freed by *_destroy, never moved or copied while alive.
                 Destroying twice, or a zeroed one, is fine.
      Errors     every function returns cudaError_t, prints nothing, never exits (the SPIPE_CHECK
                 macros apart), and leaves the current device as it was. A run that fails says
                 which stage and chunk, and how many chunks are whole, in a spipe_failure_t.
      Threads    two threads may use two objects; one object is for one thread at a time unless
                 its comment says "any". Host stages, sources and sinks run on library threads.

    WHEN IT WILL NOT OVERLAP
      Copies in the same direction never run at once, and both directions at once are each slower
      than alone. Stream priority orders kernels, not copies. A stage that synchronises, allocates,
      or uses another stream than its own stops the pipeline.
*/
