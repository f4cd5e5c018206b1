/*  versus_side.cu -- one version of streampipe.h as a side of versus.cu. The Makefile compiles it
    twice, with the old header's folder before the new one's and without, into two shared objects
    that export the same names. Where the two versions' interfaces differ is said here, once. */
#include "versus_side.h"
#include "streampipe.h"

#include <new>
#include <stdio.h>

#define VERSUS_EXPORT extern "C" __attribute__((visibility("default")))

/* A stage's settings must outlive the pipeline that points at them. */
typedef struct stage {
    const versus_work_t *work;
    int number, from, to;
} stage_t;

typedef struct side {
    versus_work_t work;
    stage_t stages[VERSUS_STAGES];
    spipe_pipeline_t *pipeline;
} side_t;

static cudaError_t run_stage(const spipe_chunk_t *c, void *user) {
    const stage_t *s = (const stage_t *)user;
    /* as bytes: elements may be three floats */
    return versus_launch(s->work, s->number, (const float *)c->data[s->from],
                         (float *)c->data[s->to], c->count, c->stream);
}

/* side: where the stages' settings are kept; its work is set. */
static spipe_desc_t describe(side_t *side) {
    static const char *const names[VERSUS_STAGES] = {"first", "second", "third"};
    const versus_work_t *w = &side->work;
    spipe_desc_t d = spipe_desc_default();
    d.count = w->count;
    (void)spipe_add_input(&d, w->in, sizeof(float) * (size_t)w->floats);
    (void)spipe_add_output(&d, w->out, sizeof(float));
    if (w->stages > 1) (void)spipe_add_temp(&d, sizeof(float));
    for (int s = 0; s < w->stages; ++s) {
        stage_t *stage = &side->stages[s];
        stage->work = w;
        stage->number = s;
        stage->from = s == 0 ? 0 : 2;
        stage->to = s == w->stages - 1 ? 1 : 2;
        const int number = spipe_add_stage(&d, names[s], run_stage, stage);
        if (w->elementwise) (void)spipe_stage_elementwise(&d, number);
    }
    return d;
}

static int tell(const versus_work_t *w, cudaError_t e, const spipe_failure_t *failure,
                const spipe_report_t *from, versus_report_t *to) {
    *to = versus_report_t();
    if (e != cudaSuccess) {
        const char *why = failure->message[0] ? failure->message : cudaGetErrorString(e);
        (void)snprintf(to->message, sizeof to->message, "%s", why);
    }
    if (!from) return (int)e;
    to->chunk_bytes = from->chunk * sizeof(float) * (size_t)w->floats;
    to->num_chunks = from->num_chunks;
    to->depth = from->depth;
    to->fill = from->fill_threads;
    to->drain = from->drain_threads;
    to->staged = from->staged;
    to->wall_ms = from->wall_ms;
    (void)snprintf(to->schedule, sizeof to->schedule, "%s", spipe_schedule_name(from->schedule));
    return (int)e;
}

VERSUS_EXPORT int versus_version(void) { return SPIPE_VERSION; }

VERSUS_EXPORT int versus_create(const versus_work_t *w, void **kept, versus_report_t *r) {
    spipe_failure_t failure = spipe_failure_t();
    side_t *side = new (std::nothrow) side_t();
    *kept = NULL;
    if (!side) return (int)cudaErrorMemoryAllocation;
    side->work = *w;
    const spipe_desc_t d = describe(side);
    const cudaError_t e = spipe_pipeline_create(&side->pipeline, &d, &failure);
    if (e == cudaSuccess)
        *kept = side;
    else
        delete side;
    return tell(w, e, &failure, NULL, r);
}

VERSUS_EXPORT int versus_run(void *kept, versus_report_t *r) {
    side_t *side = (side_t *)kept;
    spipe_report_t report = spipe_report_t();
    const cudaError_t e = spipe_pipeline_run(side->pipeline, &report);
    return tell(&side->work, e, &report.failure, &report, r);
}

VERSUS_EXPORT int versus_destroy(void *kept) {
    side_t *side = (side_t *)kept;
    const cudaError_t e = spipe_pipeline_destroy(side->pipeline);
    delete side;
    return (int)e;
}

VERSUS_EXPORT int versus_once(const versus_work_t *w, versus_report_t *r) {
    side_t side = side_t();
    side.work = *w;
    spipe_report_t report = spipe_report_t();
    const spipe_desc_t d = describe(&side);
    const cudaError_t e = spipe_run(&d, &report);
    return tell(w, e, &report.failure, &report, r);
}
