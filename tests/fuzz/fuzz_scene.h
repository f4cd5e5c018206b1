/*  fuzz_scene.h -- a pipeline made out of bytes, and what it must give, computed serially over
    whole arrays. The reference looks at the scene and never at the pipeline: it knows no chunks,
    slots or streams. Any bytes make a scene; when they run out the rest is 0, which is the plainest
    choice.

    A stage does one or two operations: out[e] = mix(in[e], its neighbours at the ends of the halo,
    e, stage), byte by byte; an ordered one may carry a state in a resident buffer, others may count
    in one. Two stages that touch the same buffer, one of them writing, are always made to follow
    each other, so the outcome is the same in every schedule.                                     */
#ifndef FUZZ_SCENE_H
#define FUZZ_SCENE_H

#include "streampipe.h"

#include <string>
#include <vector>

typedef std::vector<unsigned char> fuzz_data_t;

typedef struct fuzz_bytes {
    const unsigned char *at;
    size_t left;
} fuzz_bytes_t;

static inline unsigned fuzz_byte(fuzz_bytes_t *b) {
    if (b->left == 0) return 0;
    --b->left;
    return *b->at++;
}

/* 0 .. n-1, n at most 65536; 0 where no bytes are left */
static inline size_t fuzz_pick(fuzz_bytes_t *b, size_t n) {
    const size_t low = fuzz_byte(b);
    return n <= 256 ? low % n : (low + 256 * fuzz_byte(b)) % n;
}

static inline int fuzz_one_in(fuzz_bytes_t *b, size_t n) { return fuzz_pick(b, n) == n - 1; }

enum {
    FUZZ_MAX_BUFFERS = 7,
    FUZZ_MAX_STAGES = 5,
    FUZZ_MAX_OPS = 2,
    FUZZ_MAX_COUNT = 700,
    FUZZ_SHARED = 16 /* counters in a resident buffer */
};

enum {
    FUZZ_PAGEABLE,
    FUZZ_PINNED,
    FUZZ_UNALIGNED,
    FUZZ_DEVICE,
    FUZZ_NUM_MEMORIES
};

enum {
    FUZZ_ONE_SHOT,
    FUZZ_KEPT,
    FUZZ_ENQUEUED,
    FUZZ_NUM_WAYS,
    FUZZ_PULLED = FUZZ_NUM_WAYS /* chosen by fuzz_surface.h alone, or inputs that are kept change */
};

typedef struct fuzz_op {
    int in, out, carry, shared; /* buffers; carry, shared: -1 = none */
} fuzz_op_t;

typedef struct fuzz_stage {
    int host, ordered, after_given, num_ops;
    unsigned after, before; /* stages named; all that come before it */
    int fails;
    size_t fails_at; /* chunk */
    fuzz_op_t ops[FUZZ_MAX_OPS];
    char name[16];
} fuzz_stage_t;

typedef struct fuzz_buffer {
    int kind, memory, edge, how;
    size_t elem_bytes, before, after;
    unsigned writers, readers;
    size_t gives;             /* source: elements until it ends */
    unsigned char pattern[4]; /* source: elements a call, modulo; 0 = as many as asked for */
    int positioned;           /* source or sink: any thread may call it, for any part */
    int split;                /* source: gives tickets in order, whose work any thread may do */
    int fails;
    size_t fails_at;   /* call of the source or sink; positioned: element */
    fuzz_data_t given; /* what the host array holds before a run */
    fuzz_data_t want;  /* and after it, or what a sink is handed */
} fuzz_buffer_t;

typedef struct fuzz_scene {
    int num_buffers, num_stages, way, num_runs, reversed, fixed, damage;
    size_t count;   /* elements in truth */
    int open_ended; /* 1 = the description leaves count to the sources */
    size_t chunk, depth, threads;
    spipe_schedule_t schedule;
    spipe_staging_t staging;
    spipe_priority_t priority;
    int checked, progress, once;
    int streamed;      /* 1 = no arrays, only sources and sinks */
    int refused;       /* 1 = the description must not be accepted */
    int devices;       /* pipelines that share a run; 0 = one, not of streampipe_devices.h */
    size_t stop_at;    /* progress: chunks after which to stop; 0 = never */
    size_t count_then; /* kept: elements from the second run on */
    unsigned salt;
    /* what fuzz_surface.h adds to a scene; 0 = nothing */
    size_t held, num_streams; /* pulled: chunks held at most, streams that take turns */
    size_t end_at;     /* pulled: chunks after which the first loop is ended; 0 = at its end */
    const char *fault; /* a function of CUDA's that fails once while the library runs, ... */
    long fault_call;   /* ... in this call of it */
    int own_devices;   /* 1 = several GPUs are different ones */
    fuzz_buffer_t buffers[FUZZ_MAX_BUFFERS];
    fuzz_stage_t stages[FUZZ_MAX_STAGES];
} fuzz_scene_t;

static inline int fuzz_goes_in(const fuzz_buffer_t *b) {
    return b->kind == SPIPE_INPUT || b->kind == SPIPE_INOUT || b->kind == SPIPE_SOURCE;
}

static inline int fuzz_goes_out(const fuzz_buffer_t *b) {
    return b->kind == SPIPE_OUTPUT || b->kind == SPIPE_INOUT || b->kind == SPIPE_SINK;
}

static inline int fuzz_is_array(const fuzz_buffer_t *b) {
    return b->kind == SPIPE_INPUT || b->kind == SPIPE_INOUT || b->kind == SPIPE_OUTPUT;
}

/* ---- bytes to a scene ---------------------------------------------------------------------- */
static inline void fuzz_make_sizes(fuzz_scene_t *s, fuzz_bytes_t *b) {
    static const size_t chunks[] = {16, 1, 2, 7, 32, 64, 100, 3};
    const size_t how = fuzz_byte(b);
    size_t most;
    s->chunk = how % 16 < 8 ? chunks[how % 8] : 1 + how % 97;
    if (how % 16 == 15) s->chunk = SPIPE_AUTO;
    s->count = fuzz_pick(b, FUZZ_MAX_COUNT + 1);
    most = fuzz_one_in(b, 12) ? 40 : 11; /* chunks: what a run costs */
    if (s->chunk != SPIPE_AUTO)
        most *= s->chunk;
    else
        most = FUZZ_MAX_COUNT;
    if (s->count > most) s->count %= most;
    if (s->chunk != SPIPE_AUTO && how & 128) s->count -= s->count % s->chunk;
    s->depth = fuzz_pick(b, 8);
    if (s->depth == 0) s->depth = SPIPE_AUTO;
    s->threads = fuzz_pick(b, 5);
    s->threads = s->threads == 4 ? SPIPE_AUTO : s->threads;
    s->schedule = (spipe_schedule_t)fuzz_pick(b, 4);
    s->staging = (spipe_staging_t)fuzz_pick(b, 4);
    s->priority = (spipe_priority_t)fuzz_pick(b, 4);
    s->checked = fuzz_one_in(b, 8);
    s->progress = fuzz_one_in(b, 6);
    s->stop_at = s->progress ? fuzz_pick(b, 12) : 0;
    s->way = (int)fuzz_pick(b, FUZZ_NUM_WAYS);
    s->num_runs = 1;
    if (s->way != FUZZ_ONE_SHOT) s->num_runs += (int)fuzz_pick(b, fuzz_one_in(b, 4) ? 5 : 2);
    s->count_then = fuzz_one_in(b, 4) ? fuzz_pick(b, FUZZ_MAX_COUNT + 1) : s->count;
    if (s->count_then > most) s->count_then %= most;
    s->reversed = fuzz_one_in(b, 4);
    s->fixed = fuzz_one_in(b, 3);
    s->salt = fuzz_byte(b);
}

static inline void fuzz_make_buffer(fuzz_scene_t *s, fuzz_buffer_t *f, fuzz_bytes_t *b) {
    static const size_t sizes[] = {1, 4, 2, 3, 8, 12, 16, 33};
    static const int kinds[] = {SPIPE_INPUT,  SPIPE_OUTPUT, SPIPE_INOUT, SPIPE_TEMP,
                                SPIPE_SOURCE, SPIPE_SINK,   SPIPE_INPUT, SPIPE_OUTPUT};
    size_t i;
    f->kind = kinds[fuzz_pick(b, 8)];
    if (s->streamed && f->kind == SPIPE_INPUT) f->kind = SPIPE_SOURCE;
    if (s->streamed && fuzz_is_array(f)) f->kind = SPIPE_SINK;
    f->elem_bytes = sizes[fuzz_pick(b, 8)];
    f->memory = (int)fuzz_pick(b, FUZZ_NUM_MEMORIES);
    if ((f->kind == SPIPE_INPUT || f->kind == SPIPE_SOURCE) && fuzz_one_in(b, 3)) {
        size_t most = s->chunk != SPIPE_AUTO && s->chunk < 5 ? s->chunk : 5;
        if (s->count > 0 && s->count < most) most = s->count;
        if (s->count_then > 0 && s->count_then < most) most = s->count_then;
        f->before = fuzz_pick(b, most + 1);
        f->after = fuzz_pick(b, most + 1);
        f->edge = (int)fuzz_pick(b, 2);
    }
    f->gives = s->count;
    if (f->kind == SPIPE_SOURCE || f->kind == SPIPE_SINK) {
        for (i = 0; i < 4; ++i) f->pattern[i] = (unsigned char)fuzz_byte(b);
        f->fails = fuzz_one_in(b, 16);
        f->fails_at = f->fails ? fuzz_pick(b, 16) : 0;
    }
    if (f->kind == SPIPE_SOURCE && fuzz_one_in(b, 24)) f->gives = fuzz_pick(b, s->count + 2);
}

/* A resident buffer of its own for a stage; -1 without room. */
static inline int fuzz_make_resident(fuzz_scene_t *s, size_t bytes, fuzz_bytes_t *b) {
    fuzz_buffer_t *f = &s->buffers[s->num_buffers];
    if (s->num_buffers == FUZZ_MAX_BUFFERS) return -1;
    f->kind = SPIPE_RESIDENT;
    f->elem_bytes = bytes;
    f->how = (int)fuzz_pick(b, 4);
    f->memory = (int)fuzz_pick(b, FUZZ_DEVICE);
    return s->num_buffers++;
}

/* Whether a stage may read a buffer: what is there was there from the start or comes from stages
   that are over. */
static inline int fuzz_may_read(const fuzz_scene_t *s, int stage, int i) {
    const fuzz_buffer_t *f = &s->buffers[i];
    const unsigned mine = s->stages[stage].before | SPIPE_BIT(stage);
    if (f->kind == SPIPE_RESIDENT || (f->writers & ~mine)) return 0;
    return fuzz_goes_in(f) || f->writers;
}

static inline int fuzz_may_write(const fuzz_scene_t *s, int stage, int i) {
    const fuzz_buffer_t *f = &s->buffers[i];
    const unsigned mine = s->stages[stage].before | SPIPE_BIT(stage);
    return (fuzz_goes_out(f) || f->kind == SPIPE_TEMP) && !((f->writers | f->readers) & ~mine);
}

static inline void fuzz_make_op(fuzz_scene_t *s, int stage, fuzz_bytes_t *b) {
    fuzz_stage_t *st = &s->stages[stage];
    fuzz_op_t *op = &st->ops[st->num_ops];
    const int n = s->num_buffers;
    int k;
    const int in = (int)fuzz_pick(b, (size_t)n), out = (int)fuzz_pick(b, (size_t)n);
    op->in = op->out = op->carry = op->shared = -1;
    for (k = 0; k < n && op->in < 0; ++k) {
        if (fuzz_may_read(s, stage, (in + k) % n)) op->in = (in + k) % n;
    }
    for (k = 0; k < n && op->out < 0; ++k) {
        if (fuzz_may_write(s, stage, (out + k) % n)) op->out = (out + k) % n;
    }
    if (op->in < 0 || op->out < 0) return;
    if (!st->host && fuzz_one_in(b, 4)) {
        op->carry = fuzz_make_resident(s, sizeof(unsigned), b);
        if (op->carry >= 0) st->ordered = 1;
    } else if (!st->host && fuzz_one_in(b, 4)) {
        op->shared = fuzz_make_resident(s, FUZZ_SHARED * sizeof(unsigned), b);
    }
    s->buffers[op->in].readers |= SPIPE_BIT(stage);
    s->buffers[op->out].writers |= SPIPE_BIT(stage);
    ++st->num_ops;
}

static inline void fuzz_make_stage(fuzz_scene_t *s, int i, fuzz_bytes_t *b) {
    fuzz_stage_t *st = &s->stages[i];
    int k;
    snprintf(st->name, sizeof st->name, "s%d", i);
    st->host = fuzz_one_in(b, 4);
    st->ordered = fuzz_one_in(b, 5);
    st->after_given = fuzz_one_in(b, 3);
    st->after = st->after_given ? fuzz_byte(b) & (SPIPE_BIT(i) - 1) : 0;
    if (s->reversed && !st->after_given) {
        st->after_given = 1;
        st->after = i > 0 ? SPIPE_BIT(i - 1) : 0;
    }
    st->before = st->after;
    if (!st->after_given) st->before = i > 0 ? SPIPE_BIT(i - 1) : 0;
    for (k = i - 1; k >= 0; --k) {
        if (st->before & SPIPE_BIT(k)) st->before |= s->stages[k].before;
    }
    st->fails = fuzz_one_in(b, 20);
    st->fails_at = st->fails ? fuzz_pick(b, 24) : 0;
    const int wanted = (int)fuzz_pick(b, FUZZ_MAX_OPS + 1);
    for (k = 0; k < (wanted ? wanted : 1); ++k) fuzz_make_op(s, i, b);
    if (st->num_ops > 0) return;
    st->host = 0;   /* one that declares no buffer is refused, */
    s->checked = 0; /* and in a checked run one that does nothing */
}

static inline void fuzz_randomise(fuzz_data_t *d, size_t bytes, unsigned seed) {
    size_t i;
    d->resize(bytes);
    for (i = 0; i < bytes; ++i) {
        seed = seed * 1664525u + 1013904223u;
        (*d)[i] = (unsigned char)(seed >> 24);
    }
}

/* Several GPUs share the run, where none of what they cannot have is in the scene: a state that
   goes from chunk to chunk, a source in order with a halo; and at most one buffer to reduce,
   because the function that reduces is not told which it is. */
static inline void fuzz_make_devices(fuzz_scene_t *s, fuzz_bytes_t *b) {
    int i, reduced = 0, may = !s->damage && !s->refused && fuzz_one_in(b, 3);
    for (i = 0; i < s->num_buffers; ++i) {
        const fuzz_buffer_t *f = &s->buffers[i];
        if (f->kind == SPIPE_SOURCE && !f->positioned) may &= f->before + f->after == 0;
        reduced += f->kind == SPIPE_RESIDENT && (f->how & SPIPE_DOWNLOAD);
    }
    for (i = 0; i < s->num_stages * FUZZ_MAX_OPS; ++i) {
        const fuzz_stage_t *st = &s->stages[i / FUZZ_MAX_OPS];
        if (i % FUZZ_MAX_OPS < st->num_ops) may &= st->ops[i % FUZZ_MAX_OPS].carry < 0;
    }
    if (!may || reduced > 1) return;
    s->devices = 2 + (int)fuzz_pick(b, 2);
    s->way = FUZZ_ONE_SHOT;
    s->num_runs = 1;
    s->count_then = s->count;
    for (i = 0; i < s->num_stages; ++i) s->stages[i].ordered = 0;
}

/* Which of the sources and sinks are positioned. Such a one fails at any of its elements. */
static inline void fuzz_make_positioned(fuzz_scene_t *s, fuzz_buffer_t *f) {
    const int hosted = f->kind == SPIPE_SOURCE || f->kind == SPIPE_SINK;
    f->positioned = hosted && f->pattern[3] >= 160 && s->count > 0 && s->count_then > 0;
    if (!f->positioned) return;
    f->gives = s->count;
    f->fails_at = (f->pattern[0] + 256u * f->pattern[1]) % s->count;
}

/* Whatever the bytes, what comes out is consistent; a damaged description is damaged later. */
static inline void fuzz_make(fuzz_scene_t *s, const unsigned char *data, size_t size) {
    fuzz_bytes_t b = {data, size};
    int i, num, sources = 0, arrays = 0, halos = 0, plain = 1;
    fuzz_make_sizes(s, &b);
    num = 2 + (int)fuzz_pick(&b, 4);
    s->streamed = fuzz_one_in(&b, 5);
    for (s->num_buffers = 0; s->num_buffers < num; ++s->num_buffers) {
        fuzz_make_buffer(s, &s->buffers[s->num_buffers], &b);
    }
    for (i = 0; i < num; ++i) {
        fuzz_buffer_t *f = &s->buffers[i];
        fuzz_make_positioned(s, f);
        sources += f->kind == SPIPE_SOURCE && !f->positioned;
        halos += f->positioned && f->before + f->after > 0;
        arrays += fuzz_is_array(f);
    }
    s->open_ended = sources > 0 && arrays + halos == 0 && (fuzz_one_in(&b, 2) || s->count == 0);
    s->refused = sources > 0 && arrays > 0 && s->count == 0; /* 0 = until the sources end */
    s->num_stages = 1 + (int)fuzz_pick(&b, FUZZ_MAX_STAGES);
    for (i = 0; i < s->num_stages; ++i) fuzz_make_stage(s, i, &b);
    for (i = 0; i < s->num_stages; ++i) plain &= !s->stages[i].host && !s->stages[i].fails;
    for (i = 0; i < s->num_buffers; ++i) plain &= s->buffers[i].before + s->buffers[i].after == 0;
    s->once = plain && (s->num_stages == 1 ? fuzz_one_in(&b, 2) : s->salt & 1);
    s->fixed = s->fixed && plain;
    if (sources > 0 || s->way != FUZZ_KEPT) s->count_then = s->count;
    s->damage = fuzz_one_in(&b, 12) ? 1 + (int)fuzz_pick(&b, 255) : 0;
    fuzz_make_devices(s, &b);
    for (i = 0; i < s->num_buffers; ++i) {
        fuzz_buffer_t *f = &s->buffers[i];
        const size_t most = s->count > s->count_then ? s->count : s->count_then;
        const size_t n = f->kind == SPIPE_RESIDENT ? 1 : most + 1; /* 1: a source that has more */
        fuzz_randomise(&f->given, n * f->elem_bytes, s->salt + 77u * (unsigned)i);
    }
}

/* ---- what it must give --------------------------------------------------------------------- */
static inline unsigned char fuzz_mix(unsigned here, unsigned left, unsigned right, size_t at,
                                     unsigned salt) {
    return (unsigned char)(here * 7u + left * 3u + right * 5u + (unsigned)(at * 31u) + salt);
}

/* Byte k of element e of the whole, e being up to a halo beyond its ends. */
static inline unsigned fuzz_at(const fuzz_buffer_t *f, const fuzz_data_t &all, size_t count,
                               size_t e, size_t back, size_t ahead, size_t k) {
    const int outside = e < back || e - back + ahead >= count;
    if (outside && f->edge == SPIPE_EDGE_ZERO) return 0;
    e = e < back ? 0 : e - back + ahead;
    return all[(e >= count ? count - 1 : e) * f->elem_bytes + k];
}

static inline unsigned fuzz_word(const fuzz_data_t &d, size_t i) {
    unsigned value;
    memcpy(&value, &d[i * sizeof value], sizeof value);
    return value;
}

static inline void fuzz_set_word(fuzz_data_t *d, size_t i, unsigned value) {
    memcpy(&(*d)[i * sizeof value], &value, sizeof value);
}

static inline void fuzz_simulate_op(const fuzz_scene_t *s, int stage, const fuzz_op_t *op,
                                    std::vector<fuzz_data_t> &all, size_t count) {
    const fuzz_buffer_t *in = &s->buffers[op->in], *out = &s->buffers[op->out];
    fuzz_data_t from = all[(size_t)op->in]; /* a copy: in and out may be one buffer */
    fuzz_data_t *to = &all[(size_t)op->out];
    size_t e, k;
    for (e = 0; e < count; ++e) {
        unsigned state = 0;
        if (op->carry >= 0) {
            fuzz_data_t *carry = &all[(size_t)op->carry];
            state = fuzz_word(*carry, 0) * 33u + from[e * in->elem_bytes];
            fuzz_set_word(carry, 0, state);
        }
        if (op->shared >= 0) {
            fuzz_data_t *shared = &all[(size_t)op->shared];
            const size_t which = from[e * in->elem_bytes] % FUZZ_SHARED;
            fuzz_set_word(shared, which, fuzz_word(*shared, which) + 1);
        }
        for (k = 0; k < out->elem_bytes; ++k) {
            const size_t of = k % in->elem_bytes;
            const unsigned left = in->before ? fuzz_at(in, from, count, e, in->before, 0, of) : 0;
            const unsigned right = in->after ? fuzz_at(in, from, count, e, 0, in->after, of) : 0;
            (*to)[e * out->elem_bytes + k] =
                (unsigned char)(fuzz_mix(from[e * in->elem_bytes + of], left, right, e,
                                         s->salt + 13u * (unsigned)stage) +
                                (state >> 3));
        }
    }
}

/* From given to want, over count elements. */
static inline void fuzz_simulate(fuzz_scene_t *s, size_t count) {
    std::vector<fuzz_data_t> all((size_t)s->num_buffers);
    int i, k;
    for (i = 0; i < s->num_buffers; ++i) {
        const fuzz_buffer_t *f = &s->buffers[i];
        all[(size_t)i] = f->given;
        if (f->kind == SPIPE_RESIDENT && !(f->how & SPIPE_UPLOAD)) {
            all[(size_t)i].assign(f->elem_bytes, 0);
        }
    }
    for (i = 0; i < s->num_stages; ++i) { /* numbered so that each comes after those it waits for */
        for (k = 0; k < s->stages[i].num_ops; ++k) {
            fuzz_simulate_op(s, i, &s->stages[i].ops[k], all, count);
        }
    }
    for (i = 0; i < s->num_buffers; ++i) {
        fuzz_buffer_t *f = &s->buffers[i];
        const int comes_back =
            fuzz_goes_out(f) || (f->kind == SPIPE_RESIDENT && (f->how & SPIPE_DOWNLOAD));
        f->want = comes_back ? all[(size_t)i] : f->given;
    }
}

#endif
