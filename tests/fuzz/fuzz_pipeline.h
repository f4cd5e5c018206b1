/*  fuzz_pipeline.h -- runs a scene of fuzz_scene.h through the library and holds the outcome
    against what the scene must give: values, guards, errors and their place, what is called whole,
    memory, leaks.
    A difference ends the program by abort(), after a sentence on stderr. */
#ifndef FUZZ_PIPELINE_H
#define FUZZ_PIPELINE_H

#include <mutex>

#include "fuzz_scene.h"
#include "hostcuda.h"
#include "streampipe_devices.h"

enum {
    FUZZ_GUARD = 32
};

typedef struct fuzz_array {
    unsigned char *base, *at;
    size_t bytes;
    int memory;
} fuzz_array_t;

struct fuzz_world;

typedef struct fuzz_part { /* what a callback is handed */
    struct fuzz_world *world;
    int number;
} fuzz_part_t;

typedef struct fuzz_world {
    fuzz_scene_t *scene;
    size_t count; /* elements of the run under way */
    size_t known; /* of these, how many do not depend on where sources that disagree end */
    fuzz_array_t arrays[FUZZ_MAX_BUFFERS];
    fuzz_part_t parts[FUZZ_MAX_BUFFERS], stages[FUZZ_MAX_STAGES];
    size_t got[FUZZ_MAX_BUFFERS], calls[FUZZ_MAX_BUFFERS];
    fuzz_data_t times[FUZZ_MAX_BUFFERS]; /* positioned: that each element was asked for */
    int redone;                          /* 1 = a GPU failed, and others did its chunks again */
    fuzz_data_t taken[FUZZ_MAX_BUFFERS]; /* what a sink was handed, or an array held */
    cudaError_t stage_hit[FUZZ_MAX_STAGES], part_hit[FUZZ_MAX_BUFFERS]; /* failed on purpose */
    int refused_stage; /* whose launch the runtime refused, or -1 */
    size_t refused_chunk;
    int faulty; /* 1 = a call of CUDA failed in this run */
} fuzz_world_t;

/* What they return when they fail on purpose: none is returned by anything else. */
#define FUZZ_STAGE_ERROR cudaErrorNotSupported
#define FUZZ_PART_ERROR  cudaErrorOperatingSystem
#define FUZZ_FAULT       cudaErrorLaunchOutOfResources

static const char *fuzz_what = ""; /* what a failed check prints after its own words */

static inline void fuzz_print(const fuzz_scene_t *s) {
    static const char *const hows[] = {"", " positioned", " split"};
    int i, k;
    fprintf(stderr,
            "count %zu%s then %zu chunk %zd depth %zd threads %zd %s staging %d way %d x %d"
            " sync %d progress %d stop %zu fixed %d once %d damage %d devices %d own %d"
            " held %zu streams %zu end %zu fault %s:%ld\n",
            s->count, s->open_ended ? " (open)" : "", s->count_then, (ssize_t)s->chunk,
            (ssize_t)s->depth, (ssize_t)s->threads, spipe_schedule_name(s->schedule),
            (int)s->staging, s->way, s->num_runs, s->checked, s->progress, s->stop_at, s->fixed,
            s->once, s->damage, s->devices, s->own_devices, s->held, s->num_streams, s->end_at,
            s->fault ? s->fault : "none", s->fault_call);
    for (i = 0; i < s->num_buffers; ++i) {
        const fuzz_buffer_t *f = &s->buffers[i];
        fprintf(stderr,
                "  buffer %d kind %d%s elem %zu memory %d halo %zu+%zu edge %d how %d"
                " gives %zu fails %d at %zu\n",
                i, f->kind, hows[f->positioned ? 1 : 2 * f->split], f->elem_bytes, f->memory,
                f->before, f->after, f->edge, f->how, f->gives, f->fails, f->fails_at);
    }
    for (i = 0; i < s->num_stages; ++i) {
        const fuzz_stage_t *st = &s->stages[i];
        fprintf(stderr, "  stage %d host %d ordered %d after %d:%x fails %d at %zu:", i, st->host,
                st->ordered, st->after_given, st->after, st->fails, st->fails_at);
        for (k = 0; k < st->num_ops; ++k) {
            fprintf(stderr, " %d->%d carry %d shared %d", st->ops[k].in, st->ops[k].out,
                    st->ops[k].carry, st->ops[k].shared);
        }
        fprintf(stderr, "\n");
    }
}

#define FUZZ_CHECK(w, cond, ...)                                                                   \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "fuzz: %s:%d: %s\n  ", __FILE__, __LINE__, #cond);                     \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fprintf(stderr, "%s\n", fuzz_what);                                                    \
            fuzz_print((w)->scene);                                                                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* ---- memory -------------------------------------------------------------------------------- */
static inline void fuzz_array_make(fuzz_array_t *a, size_t bytes, int memory) {
    void *p = NULL;
    a->bytes = bytes;
    a->memory = memory;
    if (memory == FUZZ_PINNED)
        SPIPE_CHECK(spipe_pinned_alloc(&p, bytes + 2 * FUZZ_GUARD));
    else if (memory == FUZZ_DEVICE)
        SPIPE_CHECK(cudaMalloc(&p, bytes + 2 * FUZZ_GUARD));
    else
        p = malloc(bytes + 2 * FUZZ_GUARD);
    a->base = (unsigned char *)p;
    a->at = a->base + (memory == FUZZ_UNALIGNED ? FUZZ_GUARD - 1 : FUZZ_GUARD);
    if (memory != FUZZ_DEVICE) memset(p, 0x5A, bytes + 2 * FUZZ_GUARD);
}

static inline cudaError_t fuzz_array_free(fuzz_array_t *a) {
    cudaError_t e = cudaSuccess;
    if (a->memory == FUZZ_PINNED)
        e = spipe_pinned_free(a->base);
    else if (a->memory == FUZZ_DEVICE)
        e = cudaFree(a->base);
    else
        free(a->base);
    a->base = NULL;
    return e;
}

static inline int fuzz_guards_whole(const fuzz_array_t *a) {
    const size_t front = (size_t)(a->at - a->base);
    const unsigned back = 2 * FUZZ_GUARD - (unsigned)front;
    size_t i, wrong = 0;
    if (a->memory == FUZZ_DEVICE) return 1;
    for (i = 0; i < front; ++i) wrong += a->base[i] != 0x5A;
    for (i = 0; i < back; ++i) wrong += a->at[a->bytes + i] != 0x5A;
    return wrong == 0;
}

/* The host arrays as they are before a run, and sources and sinks at their start. */
static void fuzz_prepare(void *user) {
    fuzz_world_t *w = (fuzz_world_t *)user;
    int i;
    for (i = 0; i < w->scene->num_buffers; ++i) {
        const fuzz_buffer_t *f = &w->scene->buffers[i];
        w->got[i] = w->calls[i] = 0;
        w->times[i].assign(f->positioned ? w->count : 0, 0);
        w->part_hit[i] = cudaSuccess;
        if (!w->arrays[i].base) {
            w->taken[i].assign(f->given.size(), 0);
        } else if (w->arrays[i].memory != FUZZ_DEVICE) {
            memcpy(w->arrays[i].at, f->given.data(), f->given.size());
        }
    }
}

/* Fills them with what must not come out. */
static inline void fuzz_spoil(fuzz_world_t *w) {
    int i;
    for (i = 0; i < w->scene->num_buffers; ++i) {
        const fuzz_array_t *a = &w->arrays[i];
        if (a->base && a->memory != FUZZ_DEVICE) memset(a->at, 0xEE, a->bytes);
    }
}

static inline void fuzz_prepare_device(fuzz_world_t *w) {
    int i;
    for (i = 0; i < w->scene->num_buffers; ++i) {
        const fuzz_data_t &given = w->scene->buffers[i].given;
        if (!w->arrays[i].base || w->arrays[i].memory != FUZZ_DEVICE) continue;
        SPIPE_CHECK(cudaMemcpy(w->arrays[i].at, given.data(), given.size(), cudaMemcpyDefault));
    }
}

/* What the host arrays hold now. */
static void fuzz_snapshot(void *user) {
    fuzz_world_t *w = (fuzz_world_t *)user;
    int i;
    for (i = 0; i < w->scene->num_buffers; ++i) {
        const fuzz_array_t *a = &w->arrays[i];
        if (a->base && a->memory != FUZZ_DEVICE) w->taken[i].assign(a->at, a->at + a->bytes);
    }
}

static inline void fuzz_snapshot_device(fuzz_world_t *w) {
    int i;
    for (i = 0; i < w->scene->num_buffers; ++i) {
        const fuzz_array_t *a = &w->arrays[i];
        if (!a->base || a->memory != FUZZ_DEVICE) continue;
        w->taken[i].resize(a->bytes);
        SPIPE_CHECK(cudaMemcpy(w->taken[i].data(), a->at, a->bytes, cudaMemcpyDefault));
    }
}

/* ---- callbacks ----------------------------------------------------------------------------- */
/* One operation on one chunk: all that the kernel needs. */
typedef struct fuzz_work {
    const unsigned char *in;
    unsigned char *out;
    unsigned *carry, *shared;
    size_t in_bytes, out_bytes, before, after, first, count;
    size_t salt; /* as wide as the others: a checked run compares padding, too */
} fuzz_work_t;

static inline void fuzz_do(const fuzz_work_t &w) {
    for (size_t e = 0; e < w.count; ++e) {
        const unsigned char *in = w.in + e * w.in_bytes;
        unsigned char *out = w.out + e * w.out_bytes;
        unsigned state = 0;
        if (w.carry) *w.carry = state = *w.carry * 33u + in[0];
        if (w.shared) atomicAdd(&w.shared[in[0] % FUZZ_SHARED], 1u);
        for (size_t k = 0; k < w.out_bytes; ++k) {
            const unsigned char *of = in + k % w.in_bytes;
            const unsigned left = w.before ? *(of - w.before * w.in_bytes) : 0;
            const unsigned right = w.after ? of[w.after * w.in_bytes] : 0;
            out[k] = (unsigned char)(fuzz_mix(*of, left, right, w.first + e, (unsigned)w.salt) +
                                     (state >> 3));
        }
    }
}

static __global__ void fuzz_kernel(fuzz_work_t w) { fuzz_do(w); }

/* Whether a chunk may have this total. Of open ends that disagree it may be any: a source that
   reads ahead for its halo may end first, and the run fails when another one ends elsewhere. */
static inline int fuzz_is_total(const fuzz_world_t *w, size_t total) {
    const fuzz_scene_t *s = w->scene;
    int i;
    if (total == w->count || (s->open_ended && total == SPIPE_AUTO)) return 1;
    for (i = 0; i < s->num_buffers && s->open_ended; ++i) {
        const fuzz_buffer_t *f = &s->buffers[i];
        if (f->kind == SPIPE_SOURCE && !f->positioned && f->gives == total) return 1;
    }
    return 0;
}

/* That a stage is given what it was promised. */
static inline void fuzz_check_chunk(const fuzz_world_t *w, const spipe_chunk_t *c, int stage) {
    const fuzz_scene_t *s = w->scene;
    FUZZ_CHECK(w, c->count > 0 && c->first + c->count <= w->count, "stage %d: %zu + %zu of %zu",
               stage, c->first, c->count, w->count);
    if (s->chunk != SPIPE_AUTO) {
        const size_t left = w->count - c->first;
        FUZZ_CHECK(
            w, c->first == c->index * s->chunk && c->count == (left < s->chunk ? left : s->chunk),
            "stage %d: chunk %zu is %zu + %zu", stage, c->index, c->first, c->count);
    }
    FUZZ_CHECK(w, fuzz_is_total(w, c->total), "stage %d: total %zu", stage, c->total);
    FUZZ_CHECK(w, c->num_buffers == s->num_buffers && c->slot >= 0 && c->slot < SPIPE_MAX_DEPTH,
               "stage %d: %d buffers, slot %d", stage, c->num_buffers, c->slot);
}

static cudaError_t fuzz_run_stage(const spipe_chunk_t *c, void *user) {
    fuzz_part_t *part = (fuzz_part_t *)user;
    fuzz_world_t *w = part->world;
    const fuzz_stage_t *st = &w->scene->stages[part->number];
    int k;
    fuzz_check_chunk(w, c, part->number);
    if (st->fails && c->index == st->fails_at) {
        w->stage_hit[part->number] = FUZZ_STAGE_ERROR;
        return FUZZ_STAGE_ERROR;
    }
    for (k = 0; k < st->num_ops; ++k) {
        const fuzz_op_t *op = &st->ops[k];
        const fuzz_buffer_t *in = &w->scene->buffers[op->in], *out = &w->scene->buffers[op->out];
        const fuzz_work_t work = {(const unsigned char *)c->data[op->in],
                                  (unsigned char *)c->data[op->out],
                                  op->carry < 0 ? NULL : (unsigned *)c->data[op->carry],
                                  op->shared < 0 ? NULL : (unsigned *)c->data[op->shared],
                                  in->elem_bytes,
                                  out->elem_bytes,
                                  in->before,
                                  in->after,
                                  c->first,
                                  c->count,
                                  w->scene->salt + 13u * (unsigned)part->number};
        const cudaError_t e = st->host ? (fuzz_do(work), cudaSuccess)
                                       : SPIPE_LAUNCH(fuzz_kernel, 1, 1, 0, c->stream, work);
        if (e == cudaSuccess) continue;
        w->refused_stage = part->number;
        w->refused_chunk = c->index;
        return e;
    }
    return cudaSuccess;
}

static cudaError_t fuzz_source(spipe_part_t *elements, void *user) {
    void *dst = elements->data;
    const size_t max_count = elements->count;
    size_t *count = &elements->count;
    fuzz_part_t *part = (fuzz_part_t *)user;
    fuzz_world_t *w = part->world;
    const int i = part->number;
    const fuzz_buffer_t *f = &w->scene->buffers[i];
    const unsigned at_once = f->pattern[w->calls[i] % 4];
    size_t n = f->gives - w->got[i];
    FUZZ_CHECK(w, max_count > 0, "source %d is asked for nothing", i);
    if (f->fails && w->calls[i] == f->fails_at) return w->part_hit[i] = FUZZ_PART_ERROR;
    ++w->calls[i];
    if (n > max_count) n = max_count;
    if (at_once && n > at_once) n = at_once;
    memcpy(dst, f->given.data() + w->got[i] * f->elem_bytes, n * f->elem_bytes);
    w->got[i] += n;
    *count = n;
    return cudaSuccess;
}

/* The same of a split source: a ticket is the number of its element. */
static cudaError_t fuzz_tickets(spipe_part_t *elements, void *user) {
    void *dst = elements->data;
    const size_t max_count = elements->count;
    size_t *count = &elements->count;
    fuzz_part_t *part = (fuzz_part_t *)user;
    fuzz_world_t *w = part->world;
    const int i = part->number;
    const fuzz_buffer_t *f = &w->scene->buffers[i];
    const unsigned at_once = f->pattern[w->calls[i] % 4];
    size_t n = f->gives - w->got[i], k;
    FUZZ_CHECK(w, max_count > 0, "split source %d is asked for nothing", i);
    if (f->fails && w->calls[i] == f->fails_at) return w->part_hit[i] = FUZZ_PART_ERROR;
    ++w->calls[i];
    if (n > max_count) n = max_count;
    if (at_once && n > at_once) n = at_once;
    for (k = 0; k < n; ++k) ((size_t *)dst)[k] = w->got[i]++;
    *count = n;
    return cudaSuccess;
}

static cudaError_t fuzz_do_tickets(const spipe_part_t *elements, const void *tickets, void *user) {
    const size_t first = elements->first, count = elements->count;
    const fuzz_part_t *part = (const fuzz_part_t *)user;
    const fuzz_buffer_t *f = &part->world->scene->buffers[part->number];
    const size_t *t = (const size_t *)tickets;
    size_t k;
    for (k = 0; k < count; ++k) {
        FUZZ_CHECK(part->world, t[k] == first + k, "split source %d: ticket %zu for element %zu",
                   part->number, t[k], first + k);
    }
    memcpy(elements->data, f->given.data() + first * f->elem_bytes, count * f->elem_bytes);
    return cudaSuccess;
}

static cudaError_t fuzz_sink(const spipe_part_t *elements, void *user) {
    const void *src = elements->data;
    const size_t first = elements->first, count = elements->count;
    fuzz_part_t *part = (fuzz_part_t *)user;
    fuzz_world_t *w = part->world;
    const int i = part->number;
    const fuzz_buffer_t *f = &w->scene->buffers[i];
    FUZZ_CHECK(w, count > 0 && first == w->got[i] && first + count <= w->count,
               "sink %d: %zu at %zu after %zu of %zu", i, count, first, w->got[i], w->count);
    if (f->fails && w->calls[i] == f->fails_at) return w->part_hit[i] = FUZZ_PART_ERROR;
    ++w->calls[i];
    FUZZ_CHECK(w, (first + count) * f->elem_bytes <= w->taken[i].size(), "sink %d: too much", i);
    memcpy(&w->taken[i][first * f->elem_bytes], src, count * f->elem_bytes);
    w->got[i] += count;
    return cudaSuccess;
}

/* Whether a positioned source or sink fails for these elements; under a lock, as several threads
   may ask. */
static inline cudaError_t fuzz_part_error(fuzz_world_t *w, int i, size_t first, size_t count) {
    static std::mutex lock;
    const std::lock_guard<std::mutex> hold(lock);
    const fuzz_buffer_t *f = &w->scene->buffers[i];
    size_t e;
    FUZZ_CHECK(w, count > 0 && first + count <= w->count,
               "buffer %d: asked for %zu from %zu of %zu", i, count, first, w->count);
    for (e = first; e < first + count; ++e) ++w->times[i][e];
    if (f->fails && first <= f->fails_at && f->fails_at < first + count) {
        return w->part_hit[i] = FUZZ_PART_ERROR;
    }
    w->got[i] += count;
    return cudaSuccess;
}

static cudaError_t fuzz_source_at(spipe_part_t *elements, void *user) {
    void *dst = elements->data;
    const size_t first = elements->first, count = elements->count;
    fuzz_part_t *part = (fuzz_part_t *)user;
    const fuzz_buffer_t *f = &part->world->scene->buffers[part->number];
    memcpy(dst, f->given.data() + first * f->elem_bytes, count * f->elem_bytes);
    return fuzz_part_error(part->world, part->number, first, count);
}

static cudaError_t fuzz_sink_at(const spipe_part_t *elements, void *user) {
    const void *src = elements->data;
    const size_t first = elements->first, count = elements->count;
    fuzz_part_t *part = (fuzz_part_t *)user;
    fuzz_world_t *w = part->world;
    const fuzz_buffer_t *f = &w->scene->buffers[part->number];
    SPIPE_TRY(fuzz_part_error(w, part->number, first, count));
    FUZZ_CHECK(w, (first + count) * f->elem_bytes <= w->taken[part->number].size(),
               "sink %d: too much", part->number);
    memcpy(&w->taken[part->number][first * f->elem_bytes], src, count * f->elem_bytes);
    return cudaSuccess;
}

/* What is told to be done is there: outputs that nobody has to drain, or has drained. */
static inline void fuzz_check_done(const fuzz_world_t *w, size_t elements) {
    int i;
    for (i = 0; i < w->scene->num_buffers; ++i) {
        const fuzz_buffer_t *f = &w->scene->buffers[i];
        const fuzz_array_t *a = &w->arrays[i];
        const unsigned char *is = f->kind == SPIPE_SINK ? w->taken[i].data() : a->at;
        if (!fuzz_goes_out(f) || !f->writers || elements > w->count) continue;
        if (f->kind != SPIPE_SINK && a->memory == FUZZ_DEVICE) continue;
        if (elements > w->known) elements = w->known;
        FUZZ_CHECK(w, memcmp(is, f->want.data(), elements * f->elem_bytes) == 0,
                   "buffer %d: not whole when %zu elements were told to be done", i, elements);
    }
}

static int fuzz_progress(const spipe_progress_t *p, void *user) {
    fuzz_world_t *w = (fuzz_world_t *)user;
    const fuzz_scene_t *s = w->scene;
    FUZZ_CHECK(w, p->elements_done <= w->count && (p->total == 0 || fuzz_is_total(w, p->total)),
               "progress: %zu of %zu, in truth %zu", p->elements_done, p->total, w->count);
    /* of several GPUs it is no more than a number */
    if (!s->devices) fuzz_check_done(w, p->elements_done);
    return s->stop_at > 0 && p->chunks_done >= s->stop_at;
}

/* ---- the description ----------------------------------------------------------------------- */
static inline void fuzz_add_buffer(fuzz_world_t *w, spipe_desc_t *d, int i) {
    const fuzz_buffer_t *f = &w->scene->buffers[i];
    fuzz_array_t *a = &w->arrays[i];
    w->parts[i].world = w;
    w->parts[i].number = i;
    if (fuzz_is_array(f) || f->kind == SPIPE_RESIDENT) {
        fuzz_array_make(a, f->given.size(), f->memory);
    }
    if (f->positioned && f->kind == SPIPE_SOURCE) {
        spipe_add_source(d, fuzz_source_at, &w->parts[i], f->elem_bytes, SPIPE_ANY_ORDER);
    } else if (f->positioned) {
        spipe_add_sink(d, fuzz_sink_at, &w->parts[i], f->elem_bytes, SPIPE_ANY_ORDER);
    }
    if (f->split) {
        spipe_add_split_source(d, fuzz_tickets, fuzz_do_tickets, &w->parts[i], sizeof(size_t),
                               f->elem_bytes);
    }
    switch (f->positioned || f->split ? 0 : f->kind) {
    case 0: break;
    case SPIPE_INPUT: spipe_add_input(d, a->at, f->elem_bytes); break;
    case SPIPE_OUTPUT: spipe_add_output(d, a->at, f->elem_bytes); break;
    case SPIPE_INOUT: spipe_add_inout(d, a->at, f->elem_bytes); break;
    case SPIPE_TEMP: spipe_add_temp(d, f->elem_bytes); break;
    case SPIPE_SOURCE:
        spipe_add_source(d, fuzz_source, &w->parts[i], f->elem_bytes, SPIPE_IN_ORDER);
        break;
    case SPIPE_SINK:
        spipe_add_sink(d, fuzz_sink, &w->parts[i], f->elem_bytes, SPIPE_IN_ORDER);
        break;
    default: spipe_add_resident(d, f->how ? a->at : NULL, f->elem_bytes, f->how); break;
    }
    if (f->before + f->after > 0) {
        spipe_set_halo(d, i, f->before, f->after, (spipe_edge_t)f->edge);
    }
}

static inline void fuzz_add_stage(fuzz_world_t *w, spipe_desc_t *d, int i) {
    const fuzz_stage_t *st = &w->scene->stages[i];
    unsigned reads = 0, writes = 0;
    int k, at;
    w->stages[i].world = w;
    w->stages[i].number = i;
    for (k = 0; k < st->num_ops; ++k) {
        reads |= SPIPE_BIT(st->ops[k].in) & ~writes; /* what it wrote itself is there */
        writes |= SPIPE_BIT(st->ops[k].out);
    }
    at = st->host ? spipe_add_host_stage(d, st->name, fuzz_run_stage, &w->stages[i], reads, writes)
                  : spipe_add_stage(d, st->name, fuzz_run_stage, &w->stages[i]);
    if (st->after_given) spipe_stage_after(d, at, NULL);
    for (k = 0; k < w->scene->num_stages; ++k) {
        if (st->after & SPIPE_BIT(k)) spipe_stage_after(d, at, w->scene->stages[k].name);
    }
    if (st->ordered) spipe_stage_ordered(d, at);
    if (w->scene->fixed) spipe_stage_replayable(d, at);
    if (w->scene->once) spipe_stage_elementwise(d, at);
}

/* Each of these breaks a rule that spipe_desc_check must know. */
static inline void fuzz_damage(spipe_desc_t *d, int how) {
    switch (how % 14) {
    case 0: d->buffers[0].kind = (spipe_kind_t)0; break;
    case 1: d->buffers[0].elem_bytes = 0; break;
    case 2: d->stages[0].name = NULL; break;
    case 3: d->stages[0].fn = NULL; break;
    case 4: d->chunk = 0; break;
    case 5: d->depth = SPIPE_MAX_DEPTH + 1; break;
    case 6: d->threads = SPIPE_MAX_THREADS + 1; break;
    case 7: d->num_stages = SPIPE_MAX_STAGES + 1; break;
    case 8: d->num_stages = 0; break;
    case 9: d->num_buffers = SPIPE_MAX_BUFFERS + how; break;
    case 10: spipe_stage_after(d, 0, d->stages[0].name); break; /* a circle */
    case 11: spipe_set_halo(d, d->num_buffers, 1, 1, SPIPE_EDGE_CLAMP); break;
    case 12: d->buffers[0].elem_bytes = (size_t)1 << 61; break;
    default: spipe_stage_after(d, 0, "nobody"); break;
    }
}

/* Counts are added; all start from what is uploaded, and one start remains. */
static cudaError_t fuzz_reduce(void *into, const void *from, size_t bytes, void *user) {
    const fuzz_buffer_t *f = (const fuzz_buffer_t *)user;
    unsigned *a = (unsigned *)into;
    const unsigned *b = (const unsigned *)from;
    size_t i;
    for (i = 0; i < bytes / sizeof *a; ++i) {
        a[i] += b[i] - (f->how & SPIPE_UPLOAD ? fuzz_word(f->given, i) : 0);
    }
    return cudaSuccess;
}

/* So many pipelines of one GPU share the run. */
static inline void fuzz_share(fuzz_world_t *w, spipe_desc_t *d) {
    static const int lists[2][3] = {{0, 0, 0}, {0, 1, 2}};
    int i;
    for (i = 0; i < w->scene->num_buffers; ++i) {
        const fuzz_buffer_t *f = &w->scene->buffers[i];
        if (f->kind == SPIPE_RESIDENT && (f->how & SPIPE_DOWNLOAD)) {
            spipe_devices_reduce(d, fuzz_reduce, &w->scene->buffers[i]);
        }
    }
    spipe_devices_list(d, lists[w->scene->own_devices], w->scene->devices);
}

static inline spipe_desc_t fuzz_describe(fuzz_world_t *w) {
    const fuzz_scene_t *s = w->scene;
    spipe_desc_t d = spipe_desc_default();
    int i;
    if (!s->open_ended) d.count = s->count;
    d.chunk = s->chunk;
    d.depth = s->depth;
    d.threads = s->threads;
    d.schedule = s->schedule;
    d.staging = s->staging;
    d.priority = s->priority;
    d.checked = s->checked;
    d.progress = s->progress ? fuzz_progress : NULL;
    d.progress_user = w;
    for (i = 0; i < s->num_buffers; ++i) fuzz_add_buffer(w, &d, i);
    for (i = 0; i < s->num_stages && s->way != FUZZ_PULLED; ++i) {
        fuzz_add_stage(w, &d, s->reversed ? s->num_stages - 1 - i : i);
    }
    for (i = 0; i < s->num_stages && s->way == FUZZ_PULLED; ++i) {
        w->stages[i].world = w;
        w->stages[i].number = i;
    }
    if (s->damage) fuzz_damage(&d, s->damage);
    if (s->devices) fuzz_share(w, &d);
    return d;
}

/* ---- the outcome --------------------------------------------------------------------------- */
/* Elements that a run of this scene has, and whether its sources let it come to its end. Of open
   ends that disagree it is the nearest: the others need not be read up to theirs. */
static inline size_t fuzz_true_count(const fuzz_scene_t *s, size_t count, int *ends_well) {
    size_t least = SPIPE_AUTO;
    int i;
    *ends_well = 1;
    for (i = 0; i < s->num_buffers; ++i) {
        const fuzz_buffer_t *f = &s->buffers[i];
        if (f->kind != SPIPE_SOURCE || f->positioned) continue;
        if (!s->open_ended)
            *ends_well &= f->gives >= count;
        else if (least != SPIPE_AUTO && f->gives != least)
            *ends_well = 0;
        if (f->gives < least) least = f->gives;
    }
    return s->open_ended ? least : count;
}

/* A positioned source or sink had each element that is whole; and each once, but for the halos, and
   where a GPU failed whose chunks others did. */
static inline void fuzz_check_times(const fuzz_world_t *w, int i, size_t upto) {
    const fuzz_buffer_t *f = &w->scene->buffers[i];
    const int once = f->before + f->after == 0 && !w->redone;
    size_t e;
    for (e = 0; e < w->times[i].size() && e < w->count; ++e) {
        const int times = w->times[i][e];
        FUZZ_CHECK(w, (times > 0 || e >= upto) && (times < 2 || !once),
                   "buffer %d: asked %d times for element %zu", i, times, e);
    }
}

static inline void fuzz_check_values(fuzz_world_t *w, int i, size_t whole, int success) {
    const fuzz_buffer_t *f = &w->scene->buffers[i];
    const size_t sure = whole < w->known ? whole : w->known;
    const size_t upto = (success ? w->count : sure) * f->elem_bytes;
    const size_t from = f->want.size();
    size_t at;
    if (w->arrays[i].base) {
        FUZZ_CHECK(w, fuzz_guards_whole(&w->arrays[i]), "buffer %d: its guard is broken", i);
    }
    if (f->positioned) fuzz_check_times(w, i, success ? w->count : whole);
    if (f->kind == SPIPE_TEMP || f->kind == SPIPE_SOURCE) return;
    if (f->kind == SPIPE_RESIDENT) {
        const fuzz_data_t &is = success ? f->want : f->given;
        if (f->how == 0 || (w->faulty && !success)) return; /* the copy out may be what failed */
        FUZZ_CHECK(w, w->taken[i] == is, "buffer %d: resident, wrong (%d)", i, success);
        return;
    }
    if (f->kind == SPIPE_INPUT) {
        FUZZ_CHECK(w, w->taken[i] == f->given, "buffer %d: the input was changed", i);
        return;
    }
    if (f->writers == 0 && f->kind != SPIPE_INOUT) return; /* nobody says what is in it */
    if (f->kind == SPIPE_SINK) {
        FUZZ_CHECK(w, success && !w->redone ? w->got[i] == w->count : w->got[i] >= whole,
                   "buffer %d: the sink had %zu of %zu, %zu whole", i, w->got[i], w->count, whole);
    }
    for (at = 0; at < upto; ++at) {
        FUZZ_CHECK(w, w->taken[i][at] == f->want[at],
                   "buffer %d: byte %zu of element %zu is %d, not %d (%zu whole, success %d)", i,
                   at % f->elem_bytes, at / f->elem_bytes, w->taken[i][at], f->want[at], whole,
                   success);
    }
    for (at = w->count * f->elem_bytes; at < from && f->kind != SPIPE_SINK; ++at) {
        FUZZ_CHECK(w, w->taken[i][at] == f->given[at], "buffer %d: written past its end", i);
    }
}

static inline int fuzz_num_failing(const fuzz_scene_t *s) {
    int i, n = 0;
    for (i = 0; i < s->num_stages; ++i) n += s->stages[i].fails;
    for (i = 0; i < s->num_buffers; ++i) n += s->buffers[i].fails;
    return n;
}

/* A positioned source or sink that alone fails is named, with the first chunk that has its bad
   element, in the halo or not; of several GPUs it may be another such chunk. */
static inline void fuzz_check_part(const fuzz_world_t *w, int i, const spipe_report_t *r) {
    const fuzz_buffer_t *f = &w->scene->buffers[i];
    const size_t bad = f->fails_at;
    const size_t first = (bad > f->after ? bad - f->after : 0) / r->chunk;
    const size_t last = w->scene->devices ? (bad + f->before) / r->chunk : first;
    const spipe_failure_t *why = &r->failure;
    char who[64];
    snprintf(who, sizeof who, "the %s of buffer %d failed at chunk %zu",
             f->kind == SPIPE_SOURCE ? "source" : "sink", i, why->chunk);
    FUZZ_CHECK(w,
               why->chunk >= first && why->chunk <= last && why->chunks_whole <= why->chunk &&
                   strstr(why->message, who),
               "buffer %d failed at element %zu, and it says chunk %zu, %zu whole: %s", i, bad,
               why->chunk, why->chunks_whole, why->message);
}

/* A checked run finds an output that no stage writes, of elements of so many bytes or more; but not
   one in device memory that is used in place. */
static inline int fuzz_is_unwritten(const fuzz_world_t *w, size_t least) {
    const fuzz_scene_t *s = w->scene;
    int i, unwritten = 0;
    for (i = 0; i < s->num_buffers; ++i) {
        const fuzz_buffer_t *f = &s->buffers[i];
        const int in_place = f->memory == FUZZ_DEVICE && s->schedule == SPIPE_SCHEDULE_ZERO_COPY;
        unwritten |= (f->kind == SPIPE_OUTPUT || f->kind == SPIPE_SINK) && f->writers == 0 &&
                     f->elem_bytes >= least && (least == 1 || f->kind == SPIPE_SINK || !in_place);
    }
    return s->checked && unwritten && w->count > 0;
}

/* The error is one that somebody gave on purpose, and it says whose. */
static inline void fuzz_check_failure(fuzz_world_t *w, cudaError_t e, const spipe_report_t *r,
                                      int ends_well) {
    const fuzz_scene_t *s = w->scene;
    const spipe_failure_t *f = &r->failure;
    int i, given = 0;
    for (i = 0; i < s->num_stages; ++i) {
        if (e != w->stage_hit[i]) continue;
        const int number = s->reversed ? s->num_stages - 1 - i : i;
        if (f->stage != number) continue;
        FUZZ_CHECK(w, f->chunk == s->stages[i].fails_at && strstr(f->message, s->stages[i].name),
                   "stage %d failed at %zu, and it says %s", i, s->stages[i].fails_at, f->message);
        given = 1;
    }
    for (i = 0; i < s->num_buffers; ++i) {
        if (e != w->part_hit[i] || f->stage != -1) continue;
        if (s->buffers[i].positioned && fuzz_num_failing(s) == 1) fuzz_check_part(w, i, r);
        given = 1;
    }
    given |= !ends_well && e == cudaErrorInvalidValue;
    given |= fuzz_is_unwritten(w, 1) && strstr(f->message, "wrote elements") != NULL;
    given |= w->faulty;
    given |= s->progress && s->stop_at > 0 && e == SPIPE_STOPPED;
    FUZZ_CHECK(w, given, "error %s, given by nobody: %s", cudaGetErrorName(e), f->message);
    FUZZ_CHECK(w, f->error == e && f->message[0], "the report says %s (%s)",
               cudaGetErrorName(f->error), f->message);
}

/* What a run takes is a matter of its slots, not of its length: what goes in, what comes out and
   what each host stage has, in pieces that begin at whole units. */
static inline void fuzz_check_memory(const fuzz_world_t *w, const spipe_report_t *r) {
    const fuzz_scene_t *s = w->scene;
    const size_t unit = 512, devices = s->devices ? (size_t)s->devices : 1;
    size_t slot = 0, resident = 0, places = 2;
    int i;
    for (i = 0; i < s->num_stages; ++i) places += s->stages[i].host != 0;
    for (i = 0; i < s->num_buffers; ++i) {
        const fuzz_buffer_t *f = &s->buffers[i];
        const size_t n = (s->chunk + f->before + f->after) * f->elem_bytes;
        if (f->kind == SPIPE_RESIDENT)
            resident += f->elem_bytes + unit;
        else
            slot += places * (n + unit);
    }
    FUZZ_CHECK(w,
               r->pinned_bytes <= devices * (r->depth * slot + resident) &&
                   r->device_bytes <= devices * (r->depth * slot + resident),
               "%zu bytes pinned, %zu of the device, for %zu slots of %zu", r->pinned_bytes,
               r->device_bytes, r->depth, slot);
}

static inline void fuzz_check(fuzz_world_t *w, cudaError_t e, const spipe_report_t *r) {
    const fuzz_scene_t *s = w->scene;
    const size_t chunks = r->chunk ? (w->count + r->chunk - 1) / r->chunk : 0;
    size_t whole = r->failure.chunks_whole * r->chunk;
    int i, ends_well;
    w->redone = s->devices && r->devices_failed;
    (void)fuzz_true_count(s, w->count, &ends_well);
    if (e == cudaSuccess) {
        FUZZ_CHECK(w, ends_well, "success, with a source that ended early");
        FUZZ_CHECK(w, !fuzz_is_unwritten(w, 4), "nobody missed an output");
        FUZZ_CHECK(w, r->failure.chunks_whole == chunks, "%zu of %zu chunks whole",
                   r->failure.chunks_whole, chunks);
        for (i = 0; i < s->num_stages; ++i) {
            FUZZ_CHECK(w, !s->stages[i].fails || s->stages[i].fails_at >= chunks,
                       "stage %d did not fail", i);
        }
        for (i = 0; i < s->num_buffers; ++i) {
            FUZZ_CHECK(w, w->part_hit[i] == cudaSuccess, "buffer %d failed: nobody heard", i);
        }
    } else {
        fuzz_check_failure(w, e, r, ends_well);
    }
    if (whole > w->count) whole = w->count;
    if (s->open_ended && !ends_well) return; /* halos may have read what lies behind the end */
    for (i = 0; i < s->num_buffers; ++i) fuzz_check_values(w, i, whole, e == cudaSuccess);
}

/* ---- faults -------------------------------------------------------------------------------- */
/* From here on calls are the library's, of which one fails in the first run. */
static inline void fuzz_arm(fuzz_world_t *w) {
    const fuzz_scene_t *s = w->scene;
    w->faulty = 0;
    if (!s->fault) return;
    hostcuda_fail_clear();
    hostcuda_fail(s->fault, s->fault_call, FUZZ_FAULT);
}

/* From here on they are the test's. Of what failed nothing is left for its next check. */
static inline void fuzz_disarm(fuzz_world_t *w) {
    if (!w->scene->fault) return;
    w->faulty = hostcuda_fail_fired() > 0;
    hostcuda_fail_clear();
    FUZZ_CHECK(w, cudaPeekAtLastError() == cudaSuccess, "CUDA's last error is %s",
               cudaGetErrorName(cudaPeekAtLastError()));
}

/* ---- the ways to run ----------------------------------------------------------------------- */
/* From now on nothing fails on purpose. */
static inline void fuzz_mend(fuzz_scene_t *s) {
    int i;
    for (i = 0; i < s->num_stages; ++i) s->stages[i].fails = 0;
    for (i = 0; i < s->num_buffers; ++i) s->buffers[i].fails = 0;
    s->stop_at = s->end_at = 0;
    s->fault = NULL;
}

/* If open ends disagree, a chunk before the nearest one may have read elements beyond it into its
   halo, because that end was not met yet. */
static inline size_t fuzz_known(const fuzz_scene_t *s, size_t count, int ends_well) {
    size_t after = 0;
    int i;
    if (ends_well || !s->open_ended) return count;
    for (i = 0; i < s->num_buffers; ++i) {
        if (s->buffers[i].kind == SPIPE_SOURCE && s->buffers[i].after > after) {
            after = s->buffers[i].after;
        }
    }
    return count > after ? count - after : 0;
}

static inline void fuzz_start(fuzz_world_t *w, size_t count) {
    int i, ends_well;
    for (i = 0; i < w->scene->num_stages; ++i) w->stage_hit[i] = cudaSuccess;
    w->refused_stage = -1;
    w->count = fuzz_true_count(w->scene, count, &ends_well);
    w->known = fuzz_known(w->scene, w->count, ends_well);
    fuzz_simulate(w->scene, w->count);
    fuzz_prepare(w);
    fuzz_prepare_device(w);
}

/* Another array of another kind of memory takes the place of one. Returns 0 if there is none. */
static inline int fuzz_other_array(fuzz_world_t *w, int i, fuzz_array_t *before) {
    const fuzz_buffer_t *f = &w->scene->buffers[i];
    *before = w->arrays[i];
    if (!fuzz_is_array(f) || w->scene->staging == SPIPE_STAGING_REGISTER) return 0;
    fuzz_array_make(&w->arrays[i], before->bytes, (before->memory + 1) % FUZZ_DEVICE);
    return 1;
}

static inline void fuzz_move(fuzz_world_t *w, spipe_pipeline_t *p, int i) {
    fuzz_array_t before;
    if (!fuzz_other_array(w, i, &before)) return;
    const cudaError_t e = spipe_pipeline_set_host(p, i, w->arrays[i].at);
    FUZZ_CHECK(w, e == cudaSuccess, "set_host: %s", cudaGetErrorName(e));
    SPIPE_CHECK(fuzz_array_free(&before));
}

/* With resources several calls, which a pipeline of the resources runs from the second on; before
   the fourth an array gives way to another. */
static inline void fuzz_one_shot(fuzz_world_t *w, const spipe_desc_t *d) {
    const int runs = d->resources ? 2 + w->scene->num_runs : 1;
    spipe_desc_t own = *d;
    spipe_report_t r;
    int k;
    for (k = 0; k < runs; ++k) {
        const int i = (int)(w->scene->salt % (unsigned)w->scene->num_buffers);
        fuzz_array_t before;
        if (k == 1) fuzz_mend(w->scene);
        if (k == 3 && fuzz_other_array(w, i, &before)) {
            own.buffers[i].host = w->arrays[i].at;
            SPIPE_CHECK(fuzz_array_free(&before));
        }
        fuzz_start(w, w->scene->count);
        fuzz_arm(w);
        const cudaError_t e = spipe_run(&own, &r);
        fuzz_disarm(w);
        /* a kept pipeline may hold a second way to compare, and a checked run guards */
        if (d->chunk != SPIPE_AUTO && d->depth != SPIPE_AUTO && !d->checked) {
            fuzz_check_memory(w, &r);
        }
        fuzz_snapshot(w);
        fuzz_snapshot_device(w);
        fuzz_check(w, e, &r);
    }
}

static inline void fuzz_kept(fuzz_world_t *w, const spipe_desc_t *d) {
    spipe_pipeline_t *p;
    fuzz_scene_t *s = w->scene;
    spipe_report_t r;
    size_t count = s->count;
    int k;
    cudaError_t e = spipe_pipeline_create(&p, d, &r.failure);
    FUZZ_CHECK(w, e == cudaSuccess, "create: %s", r.failure.message);
    for (k = 0; k < s->num_runs; ++k) {
        if (k == 1) fuzz_mend(s);
        if (k == 1 && s->count_then != count) {
            if (spipe_pipeline_set_count(p, s->count_then) == cudaSuccess) count = s->count_then;
        }
        if (k == 2) fuzz_move(w, p, (int)(s->salt % (unsigned)s->num_buffers));
        fuzz_start(w, count);
        fuzz_arm(w);
        e = spipe_pipeline_run(p, &r);
        fuzz_disarm(w);
        fuzz_snapshot(w);
        fuzz_snapshot_device(w);
        fuzz_check(w, e, &r);
    }
    e = spipe_pipeline_destroy(p);
    FUZZ_CHECK(w, e == cudaSuccess, "destroy: %s", cudaGetErrorName(e));
}

/* The arrays are filled and looked at in the order of the stream alone. */
static inline void fuzz_enqueued(fuzz_world_t *w, const spipe_desc_t *d) {
    spipe_pipeline_t *p;
    fuzz_scene_t *s = w->scene;
    spipe_report_t r;
    cudaStream_t stream;
    int k;
    SPIPE_CHECK(spipe_stream_create(&stream, SPIPE_PRIORITY_DEFAULT));
    cudaError_t e = spipe_pipeline_create(&p, d, &r.failure);
    FUZZ_CHECK(w, e == cudaSuccess, "create: %s", r.failure.message);
    for (k = 0; k < s->num_runs; ++k) {
        if (k == 1) fuzz_mend(s);
        fuzz_start(w, s->count); /* for what must be there before: arrays in device memory */
        fuzz_spoil(w);           /* the others are filled by the stream */
        SPIPE_CHECK(spipe_host_call(stream, fuzz_prepare, w));
        e = spipe_pipeline_enqueue(p, stream);
        SPIPE_CHECK(spipe_host_call(stream, fuzz_snapshot, w));
        SPIPE_CHECK(cudaStreamSynchronize(stream));
        const cudaError_t waited = spipe_pipeline_wait(p, &r);
        FUZZ_CHECK(w, e == cudaSuccess || waited == e, "enqueue: %s, wait: %s", cudaGetErrorName(e),
                   cudaGetErrorName(waited));
        fuzz_snapshot_device(w);
        fuzz_check(w, waited, &r);
    }
    e = spipe_pipeline_destroy(p);
    FUZZ_CHECK(w, e == cudaSuccess, "destroy: %s", cudaGetErrorName(e));
    SPIPE_CHECK(cudaStreamDestroy(stream));
}

/* Takes chunks, works on them on streams that take turns, and gives them back in order. *early: 1 =
   it was ended before the last one, or by a stage that gave up. */
static inline cudaError_t fuzz_loop(fuzz_world_t *w, spipe_pipeline_t *p,
                                    const cudaStream_t *streams, spipe_report_t *r, int *early) {
    const fuzz_scene_t *s = w->scene;
    size_t taken = 0, released = 0;
    spipe_chunk_t c;
    cudaError_t e = cudaSuccess;
    int i;
    *early = 0;
    while (e == cudaSuccess && !*early) {
        if (taken - released < s->held) {
            e = spipe_pipeline_next(p, streams[taken % s->num_streams], &c);
            if (e == cudaSuccess && c.count == 0) break;
        }
        if (taken - released >= s->held || (e == SPIPE_ALL_HELD && taken > released)) {
            e = spipe_pipeline_release(p, streams[released++ % s->num_streams]);
            continue;
        }
        for (i = 0; i < s->num_stages && e == cudaSuccess; ++i) {
            e = fuzz_run_stage(&c, &w->stages[i]);
            *early |= e != cudaSuccess;
        }
        *early |= ++taken == s->end_at;
    }
    const spipe_failure_t why = *spipe_pipeline_failure(p);
    for (i = 0; i < s->num_buffers; ++i) { /* which work on chunks that are held may change */
        if (s->buffers[i].kind == SPIPE_RESIDENT) (void)cudaDeviceSynchronize();
    }
    const cudaError_t ended = spipe_pipeline_end(p, r);
    if (*early || e == cudaSuccess || ended != cudaSuccess) return ended;
    r->failure = why; /* a loop that could not begin */
    return e;
}

static inline void fuzz_pulled(fuzz_world_t *w, const spipe_desc_t *d) {
    spipe_pipeline_t *p;
    fuzz_scene_t *s = w->scene;
    spipe_report_t r;
    cudaStream_t streams[2];
    int i, k, early;
    SPIPE_CHECK(spipe_stream_create(&streams[0], SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_stream_create(&streams[1], SPIPE_PRIORITY_DEFAULT));
    cudaError_t e = spipe_pipeline_create(&p, d, &r.failure);
    FUZZ_CHECK(w, e == cudaSuccess, "create: %s", r.failure.message);
    for (k = 0; k < 1 + s->num_runs; ++k) {
        if (k == 1) fuzz_mend(s);
        fuzz_start(w, s->count);
        fuzz_arm(w);
        e = fuzz_loop(w, p, streams, &r, &early);
        (void)cudaGetLastError(); /* the loop's own launch may be what failed */
        fuzz_disarm(w);
        if (w->faulty) (void)spipe_pipeline_end(p, NULL); /* which may be what failed */
        SPIPE_CHECK(
            cudaStreamSynchronize(streams[0])); /* work on chunks that were not given back */
        SPIPE_CHECK(cudaStreamSynchronize(streams[1]));
        fuzz_snapshot(w);
        fuzz_snapshot_device(w);
        if (!early || e != cudaSuccess) fuzz_check(w, e, &r);
        for (i = 0; i < s->num_buffers && early && e == cudaSuccess; ++i) {
            size_t whole = r.failure.chunks_whole * r.chunk;
            if (whole > w->count) whole = w->count;
            if (s->buffers[i].kind != SPIPE_RESIDENT) fuzz_check_values(w, i, whole, 0);
        }
    }
    e = spipe_pipeline_destroy(p);
    FUZZ_CHECK(w, e == cudaSuccess, "destroy: %s", cudaGetErrorName(e));
    SPIPE_CHECK(cudaStreamDestroy(streams[0]));
    SPIPE_CHECK(cudaStreamDestroy(streams[1]));
}

/* A description that must be refused, before anything is taken. */
static inline void fuzz_refused(fuzz_world_t *w, const spipe_desc_t *d) {
    spipe_report_t r;
    const int alive = hostcuda_leaks(NULL);
    hostcuda_calls_reset();
    const cudaError_t e = spipe_run(d, &r);
    FUZZ_CHECK(w, e == cudaErrorInvalidValue && r.failure.message[0], "not refused: %s (%s)",
               cudaGetErrorName(e), r.failure.message);
    FUZZ_CHECK(w, hostcuda_leaks(NULL) == alive && hostcuda_calls(NULL) == 0,
               "refused, but only after %ld calls of the runtime", hostcuda_calls(NULL));
}

/* Every other scene on one GPU has its memory, streams and threads from resources. */
static inline spipe_resources_t *fuzz_resources(const fuzz_world_t *w, spipe_desc_t *d) {
    const fuzz_scene_t *s = w->scene;
    spipe_resources_limits_t l = spipe_resources_limits_default();
    spipe_failure_t f;
    if (s->salt % 2 || s->devices || s->damage || s->refused) return NULL;
    l.device_bytes = (size_t)4 << 20;
    l.pinned_bytes = (size_t)4 << 20;
    l.threads = 1 + s->salt / 4 % 8;
    const cudaError_t e = spipe_resources_create(&d->resources, &l, &f);
    FUZZ_CHECK(w, e == cudaSuccess, "resources: %s", f.message);
    return d->resources;
}

static inline void fuzz_resources_end(const fuzz_world_t *w, spipe_resources_t *r) {
    spipe_resources_usage_t u;
    spipe_failure_t f;
    SPIPE_CHECK(spipe_resources_usage(r, &u));
    FUZZ_CHECK(w, u.runs + u.waiting + u.pipelines + u.device_bytes + u.pinned_bytes == 0,
               "%zu runs, %zu pipelines, %zu bytes were left in the resources", u.runs, u.pipelines,
               u.device_bytes + u.pinned_bytes);
    const cudaError_t e = spipe_resources_destroy(r, &f);
    FUZZ_CHECK(w, e == cudaSuccess, "resources: %s", f.message);
}

/* Runs a scene that was described. */
static inline void fuzz_run_scene(fuzz_world_t *w, const spipe_desc_t *d) {
    const fuzz_scene_t *s = w->scene;
    if (s->damage || s->refused)
        fuzz_refused(w, d);
    else if (s->way == FUZZ_ONE_SHOT)
        fuzz_one_shot(w, d);
    else if (s->way == FUZZ_KEPT)
        fuzz_kept(w, d);
    else if (s->way == FUZZ_PULLED)
        fuzz_pulled(w, d);
    else
        fuzz_enqueued(w, d);
}

static inline fuzz_world_t *fuzz_world_new(const unsigned char *data, size_t size) {
    static const fuzz_world_t fresh = fuzz_world_t();
    fuzz_world_t *w = new fuzz_world_t(fresh);
    w->scene = new fuzz_scene_t();
    fuzz_make(w->scene, data, size);
    return w;
}

static inline void fuzz_world_end(fuzz_world_t *w) {
    int i;
    for (i = 0; i < w->scene->num_buffers; ++i) {
        if (w->arrays[i].base) SPIPE_CHECK(fuzz_array_free(&w->arrays[i]));
    }
    delete w->scene;
    delete w;
}

static inline void fuzz_check_clean(const fuzz_world_t *w) {
    SPIPE_CHECK(cudaDeviceSynchronize());
    FUZZ_CHECK(w, hostcuda_leaks(NULL) == 0 && cudaGetLastError() == cudaSuccess,
               "%d things were left alive", hostcuda_leaks(stderr));
}

/* One scene to its end, its arrays freed but not what it is. */
static inline void fuzz_one_scene(fuzz_world_t *w) {
    int i;
    spipe_desc_t d = fuzz_describe(w);
    spipe_resources_t *shared = fuzz_resources(w, &d);
    fuzz_run_scene(w, &d);
    for (i = 0; i < w->scene->num_buffers; ++i) {
        if (w->arrays[i].base) SPIPE_CHECK(fuzz_array_free(&w->arrays[i]));
    }
    SPIPE_CHECK(cudaDeviceSynchronize());
    if (shared) fuzz_resources_end(w, shared);
    fuzz_check_clean(w);
}

static inline void fuzz_pipeline(const unsigned char *data, size_t size) {
    fuzz_world_t *w = fuzz_world_new(data, size);
    fuzz_one_scene(w);
    fuzz_world_end(w);
}

#endif
