/*  ablate_side.cu -- streampipe.h as it is, or without one mechanism, as a side of ablate.cu. */
#include "ablate.h"
#include "streampipe.h"
#include "streampipe_files.h"

#define ABLATE_EXPORT extern "C" __attribute__((visibility("default")))

struct ablate_kept {
    spipe_desc_t d;
    spipe_pipeline_t *pipeline;
    spipe_file_t file;
    int has_file, inputs;
};

static cudaError_t run_stage(const spipe_chunk_t *c, void *user) {
    const int out = ((const ablate_kept_t *)user)->inputs;
    return ablate_launch((const float *)c->data[0], (float *)c->data[out], c->count, c->stream);
}

ABLATE_EXPORT int ablate_create(const ablate_work_t *w, ablate_kept_t **kept) {
    ablate_kept_t *k = new ablate_kept_t();
    int e = cudaSuccess;
    *kept = k;
    k->d = spipe_desc_default();
    k->d.count = w->count;
    if (w->chunk > 0) k->d.chunk = w->chunk;
    k->has_file = w->path != NULL;
    k->inputs = w->inputs;
    if (w->path) {
        e = spipe_file_open(&k->file, w->path, NULL);
        if (e != cudaSuccess) return e;
        k->file.length = w->count * sizeof(float);
        (void)spipe_add_file_input(&k->d, &k->file, sizeof(float));
    } else {
        for (int i = 0; i < w->inputs; ++i) (void)spipe_add_input(&k->d, w->in, sizeof(float));
    }
    (void)spipe_add_output(&k->d, w->out, sizeof(float));
    (void)spipe_stage_elementwise(&k->d, spipe_add_stage(&k->d, "work", run_stage, k));
    (void)spipe_stage_replayable(&k->d, 0);
    return w->kept ? spipe_pipeline_create(&k->pipeline, &k->d, NULL) : cudaSuccess;
}

ABLATE_EXPORT int ablate_run(ablate_kept_t *k) {
    return k->pipeline ? spipe_pipeline_run(k->pipeline, NULL) : spipe_run(&k->d, NULL);
}

ABLATE_EXPORT int ablate_destroy(ablate_kept_t *k) {
    const int e = spipe_pipeline_destroy(k->pipeline);
    if (k->has_file) (void)spipe_file_close(&k->file);
    delete k;
    return e;
}
