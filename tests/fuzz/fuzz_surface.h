/*  fuzz_surface.h -- scenes of fuzz_scene.h by all ways that the library can be used: loops that
    take chunks and hold several of them, split sources, different GPUs, a call of CUDA that fails,
    and threads whose pipelines share resources. The first bytes of an input say which; the rest is
    the scene, or one for each thread. What must come out is compared as in fuzz_pipeline.h. */
#ifndef FUZZ_SURFACE_H
#define FUZZ_SURFACE_H

#include "fuzz_pipeline.h"

#include <thread>

enum {
    FUZZ_DEVICES = 3,
    FUZZ_MAX_THREADS = 4,
    FUZZ_MAX_FAULTS = 48 /* calls of a function, of which one fails */
};

/* Functions that may fail. Those that free are not among them: what they keep stays (torture.h). */
static const char *const fuzz_faults[] = {"cudaGetDevice",
                                          "cudaSetDevice",
                                          "cudaMalloc",
                                          "cudaHostRegister",
                                          "cudaHostAlloc",
                                          "cudaHostGetDevicePointer",
                                          "cudaStreamCreateWithPriority",
                                          "cudaEventCreateWithFlags",
                                          "cudaEventRecord",
                                          "cudaStreamWaitEvent",
                                          "cudaMemcpyAsync",
                                          "cudaMemcpyBatchAsync",
                                          "cudaMemsetAsync",
                                          "cudaLaunchKernelExC",
                                          "cudaEventSynchronize",
                                          "cudaStreamSynchronize",
                                          "cudaEventQuery",
                                          "cudaPointerGetAttributes",
                                          "cudaGetDeviceProperties",
                                          "cudaDeviceGetStreamPriorityRange",
                                          "cudaStreamIsCapturing",
                                          "cudaStreamBeginCapture",
                                          "cudaStreamEndCapture",
                                          "cudaGraphInstantiateWithFlags",
                                          "cudaGraphLaunch",
                                          "cudaMemGetInfo"};

static inline int fuzz_has_carry(const fuzz_scene_t *s) {
    int i, k, carries = 0;
    for (i = 0; i < s->num_stages; ++i) {
        for (k = 0; k < s->stages[i].num_ops; ++k) carries |= s->stages[i].ops[k].carry >= 0;
    }
    return carries;
}

/* A loop in place of a run: its stages are kernels that the caller launches, in their order. */
static inline void fuzz_make_pulled(fuzz_scene_t *s, fuzz_bytes_t *b) {
    int i;
    s->way = FUZZ_PULLED;
    s->count_then = s->count;
    s->progress = 0;
    s->stop_at = 0;
    s->held = 1 + fuzz_pick(b, 6);
    s->num_streams = fuzz_has_carry(s) ? 1 : 1 + fuzz_pick(b, 2);
    s->end_at = fuzz_one_in(b, 3) ? 1 + fuzz_pick(b, 12) : 0;
    for (i = 0; i < s->num_stages; ++i) s->stages[i].host = 0;
}

static inline void fuzz_make_split(fuzz_scene_t *s, fuzz_bytes_t *b) {
    int i;
    for (i = 0; i < s->num_buffers; ++i) {
        fuzz_buffer_t *f = &s->buffers[i];
        if (f->kind != SPIPE_SOURCE || f->positioned || f->before + f->after > 0) continue;
        f->split = fuzz_one_in(b, 2);
    }
}

/* Not where a stage does nothing, which a checked run refuses. */
static inline void fuzz_make_checked(fuzz_scene_t *s) {
    int i;
    s->checked = 1;
    for (i = 0; i < s->num_stages; ++i) s->checked &= s->stages[i].num_ops > 0;
}

static inline void fuzz_make_surface(fuzz_scene_t *s, fuzz_bytes_t *b) {
    const int accepted = !s->damage && !s->refused;
    fuzz_make_split(s, b);
    if (fuzz_one_in(b, 6)) fuzz_make_checked(s);
    s->own_devices = s->devices && !fuzz_one_in(b, 3);
    if (accepted && !s->devices && fuzz_one_in(b, 3)) fuzz_make_pulled(s, b);
    if (!accepted || s->way == FUZZ_ENQUEUED || !fuzz_one_in(b, 3)) return;
    s->fault = fuzz_faults[fuzz_pick(b, sizeof fuzz_faults / sizeof *fuzz_faults)];
    s->fault_call = 1 + (long)fuzz_pick(b, fuzz_one_in(b, 2) ? FUZZ_MAX_FAULTS : 6);
}

/* ---- threads that share resources ------------------------------------------------------------ */
/* A scene that may run beside others: nothing in it fails but what is the user's. */
static inline fuzz_world_t *fuzz_world_beside(const unsigned char *data, size_t size,
                                              fuzz_bytes_t *b) {
    fuzz_world_t *w = fuzz_world_new(data, size);
    fuzz_scene_t *s = w->scene;
    fuzz_make_surface(s, b);
    s->fault = NULL;
    if (s->way == FUZZ_ENQUEUED) { /* it keeps its memory until it is destroyed */
        s->chunk = 16;
        s->depth = 2;
    }
    if (!s->damage && !s->refused && !s->devices) return w;
    fuzz_world_end(w);
    return NULL;
}

static inline void fuzz_run_beside(fuzz_world_t *w, spipe_resources_t *r) {
    spipe_desc_t d = fuzz_describe(w);
    d.resources = r;
    fuzz_run_scene(w, &d);
}

static inline void fuzz_threads(const unsigned char *data, size_t size, fuzz_bytes_t *b) {
    const size_t num = 2 + fuzz_pick(b, FUZZ_MAX_THREADS - 1), part = size / num;
    spipe_resources_limits_t l = spipe_resources_limits_default();
    fuzz_world_t *worlds[FUZZ_MAX_THREADS];
    std::vector<std::thread> threads;
    spipe_resources_t *r = NULL;
    fuzz_world_t *any = NULL;
    size_t k;
    for (k = 0; k < num; ++k) {
        worlds[k] = fuzz_world_beside(data + k * part, part, b);
        if (worlds[k]) any = worlds[k];
    }
    if (!any) return;
    l.device_bytes = l.pinned_bytes = (size_t)8 << 20;
    l.threads = 1 + fuzz_pick(b, 8);
    SPIPE_CHECK(spipe_resources_create(&r, &l, NULL));
    for (k = 0; k < num; ++k) {
        if (worlds[k]) threads.push_back(std::thread(fuzz_run_beside, worlds[k], r));
    }
    for (std::thread &thread : threads) thread.join();
    SPIPE_CHECK(cudaDeviceSynchronize());
    fuzz_resources_end(any, r);
    for (k = 0; k < num; ++k) {
        if (worlds[k]) fuzz_world_end(worlds[k]);
    }
}

/* One input from its bytes to its end. */
static inline void fuzz_surface(const unsigned char *data, size_t size) {
    static const int have_devices = hostcuda_set_devices(FUZZ_DEVICES) == cudaSuccess;
    const size_t head = size < 32 ? size / 2 : 16;
    fuzz_bytes_t b = {data, head};
    if (!have_devices) abort();
    if (fuzz_one_in(&b, 5)) {
        fuzz_threads(data + head, size - head, &b);
        return;
    }
    fuzz_world_t *w = fuzz_world_new(data + head, size - head);
    fuzz_make_surface(w->scene, &b);
    fuzz_one_scene(w);
    fuzz_world_end(w);
}

#endif
