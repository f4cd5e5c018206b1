/*  torture_cases.h -- the pipelines that are tortured: scenes of tests/fuzz/fuzz_scene.h, written
    by hand so that every kind of buffer, schedule, staging and way to run is among them. */
#ifndef TORTURE_CASES_H
#define TORTURE_CASES_H

#include "../fuzz/fuzz_pipeline.h"

enum {
    SHAPE_MAP,     /* input -> output */
    SHAPE_CHAIN,   /* in/out and temporary, two stages */
    SHAPE_HALO,    /* input with a halo -> output */
    SHAPE_MANY,    /* three inputs -> two outputs, elements of several sizes */
    SHAPE_CARRY,   /* an ordered stage with a state in a resident buffer, up- and downloaded */
    SHAPE_COUNTS,  /* a histogram in a resident buffer, zeroed and downloaded */
    SHAPE_STREAM,  /* source -> sink, until the source ends */
    SHAPE_MIXED,   /* source with a halo and an array -> sink and an array */
    SHAPE_HOST,    /* device stage -> host stage -> device stage */
    SHAPE_DIAMOND, /* one stage, two side by side, one that joins them, by names */
    SHAPE_PLACED, /* positioned source -> positioned sink and sink in order, with a state; arrays */
    SHAPE_EITHER, /* source in order -> positioned sink, positioned source -> sink in order */
    SHAPE_SMALL   /* chunks of two elements */
};

enum {
    WAY_RUN,
    WAY_KEPT,
    WAY_CHANGED,
    WAY_ENQUEUED,
    WAY_REPLAYED,
    WAY_TURNS
};

typedef struct torture_case {
    const char *name;
    int shape, way;
    spipe_schedule_t schedule;
    spipe_staging_t staging;
    int memory;
    size_t threads, depth;
    int checked, progress;
} torture_case_t;

#define T_AUTO     SPIPE_AUTO
#define T_COPY     SPIPE_STAGING_COPY
#define T_REGISTER SPIPE_STAGING_REGISTER
#define T_DIRECT   SPIPE_STAGING_DIRECT
static const torture_case_t torture_cases[] = {
    {"pinned, engines", SHAPE_MAP, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 0, 3, 0,
     0},
    {"pinned, serial", SHAPE_MAP, WAY_RUN, SPIPE_SCHEDULE_SERIAL, T_COPY, FUZZ_PINNED, 0, T_AUTO, 0,
     0},
    {"pinned, several stages", SHAPE_CHAIN, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 0,
     3, 0, 0},
    {"pinned, mapped", SHAPE_MAP, WAY_RUN, SPIPE_SCHEDULE_ZERO_COPY, T_COPY, FUZZ_PINNED, 0, 3, 0,
     0},
    {"in/out and temporary, kept", SHAPE_CHAIN, WAY_KEPT, SPIPE_SCHEDULE_ENGINES, T_COPY,
     FUZZ_PINNED, 0, 4, 0, 0},
    {"staged by threads", SHAPE_MAP, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PAGEABLE, 2, 3,
     0, 0},
    {"staged by the caller", SHAPE_MAP, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_UNALIGNED, 0,
     3, 0, 0},
    {"staged, mapped", SHAPE_CHAIN, WAY_RUN, SPIPE_SCHEDULE_ZERO_COPY, T_COPY, FUZZ_PAGEABLE, 1, 3,
     0, 0},
    {"staged, kept", SHAPE_MAP, WAY_KEPT, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PAGEABLE, 1, 3, 0,
     0},
    {"pinned in place", SHAPE_CHAIN, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_REGISTER, FUZZ_PAGEABLE, 1,
     3, 0, 0},
    {"pinned in place, kept", SHAPE_MAP, WAY_KEPT, SPIPE_SCHEDULE_ENGINES, T_REGISTER,
     FUZZ_PAGEABLE, 1, 3, 0, 0},
    {"left to CUDA", SHAPE_MANY, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_DIRECT, FUZZ_PAGEABLE, 1, 3, 0,
     0},
    {"all choices left", SHAPE_MAP, WAY_RUN, SPIPE_SCHEDULE_AUTO, SPIPE_STAGING_AUTO, FUZZ_PAGEABLE,
     T_AUTO, T_AUTO, 0, 0},
    {"several arrays", SHAPE_MANY, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 0, 3, 0,
     0},
    {"several arrays, staged, kept", SHAPE_MANY, WAY_KEPT, SPIPE_SCHEDULE_ENGINES, T_COPY,
     FUZZ_PAGEABLE, 1, 3, 0, 0},
    {"halo", SHAPE_HALO, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 0, 3, 0, 0},
    {"halo, staged", SHAPE_HALO, WAY_KEPT, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PAGEABLE, 1, 3, 0,
     0},
    {"carry in a resident buffer", SHAPE_CARRY, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY,
     FUZZ_PINNED, 0, 3, 0, 0},
    {"carry, staged, kept", SHAPE_CARRY, WAY_KEPT, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PAGEABLE, 1,
     3, 0, 0},
    {"counts in a resident buffer", SHAPE_COUNTS, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY,
     FUZZ_PINNED, 0, 3, 0, 0},
    {"source and sink", SHAPE_STREAM, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PAGEABLE, 1, 3,
     0, 0},
    {"source and sink, no threads, kept", SHAPE_STREAM, WAY_KEPT, SPIPE_SCHEDULE_SERIAL, T_COPY,
     FUZZ_PAGEABLE, 0, T_AUTO, 0, 0},
    {"source with a halo beside arrays", SHAPE_MIXED, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY,
     FUZZ_PINNED, 1, 3, 0, 0},
    {"source and sink, mapped", SHAPE_MIXED, WAY_KEPT, SPIPE_SCHEDULE_ZERO_COPY, T_COPY,
     FUZZ_PAGEABLE, 1, 3, 0, 0},
    {"positioned", SHAPE_PLACED, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 3, 3, 0, 0},
    {"positioned, serial, no threads", SHAPE_PLACED, WAY_RUN, SPIPE_SCHEDULE_SERIAL, T_COPY,
     FUZZ_PAGEABLE, 0, T_AUTO, 0, 0},
    {"positioned, kept", SHAPE_PLACED, WAY_KEPT, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PAGEABLE, 2,
     3, 0, 0},
    {"positioned, progress", SHAPE_PLACED, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_UNALIGNED,
     3, 3, 0, 1},
    {"positioned, mapped", SHAPE_PLACED, WAY_RUN, SPIPE_SCHEDULE_ZERO_COPY, T_COPY, FUZZ_PINNED, 2,
     3, 0, 0},
    {"positioned, all choices left", SHAPE_PLACED, WAY_KEPT, SPIPE_SCHEDULE_AUTO,
     SPIPE_STAGING_AUTO, FUZZ_PAGEABLE, T_AUTO, T_AUTO, 0, 0},
    {"positioned, every step waited for", SHAPE_PLACED, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY,
     FUZZ_PINNED, 1, 3, 1, 0},
    {"positioned, enqueued", SHAPE_PLACED, WAY_ENQUEUED, SPIPE_SCHEDULE_ENGINES, T_COPY,
     FUZZ_PINNED, 2, 3, 0, 0},
    {"positioned beside those in order", SHAPE_EITHER, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY,
     FUZZ_PAGEABLE, 2, 3, 0, 1},
    {"positioned beside those in order, kept", SHAPE_EITHER, WAY_KEPT, SPIPE_SCHEDULE_ENGINES,
     T_COPY, FUZZ_PAGEABLE, 0, 3, 0, 0},
    {"host stage", SHAPE_HOST, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 1, 4, 0, 0},
    {"host stage, no threads, kept", SHAPE_HOST, WAY_KEPT, SPIPE_SCHEDULE_ENGINES, T_COPY,
     FUZZ_PAGEABLE, 0, 4, 0, 0},
    {"stages in a graph", SHAPE_DIAMOND, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 0, 3,
     0, 0},
    {"stages in a graph, kept", SHAPE_DIAMOND, WAY_KEPT, SPIPE_SCHEDULE_ENGINES, T_COPY,
     FUZZ_PINNED, 0, 3, 0, 0},
    {"small chunks", SHAPE_SMALL, WAY_KEPT, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 0, T_AUTO,
     0, 0},
    {"enqueued", SHAPE_MAP, WAY_ENQUEUED, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 0, 3, 0, 0},
    {"enqueued, carry", SHAPE_CARRY, WAY_ENQUEUED, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 0,
     3, 0, 0},
    {"enqueued, staged", SHAPE_MAP, WAY_ENQUEUED, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PAGEABLE, 1,
     3, 0, 0},
    {"replayed as a graph", SHAPE_MAP, WAY_REPLAYED, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 0,
     3, 0, 0},
    {"replayed, stages in a graph", SHAPE_DIAMOND, WAY_REPLAYED, SPIPE_SCHEDULE_ENGINES, T_COPY,
     FUZZ_PINNED, 0, 2, 0, 0},
    {"two cuts by turns", SHAPE_MAP, WAY_TURNS, SPIPE_SCHEDULE_AUTO, SPIPE_STAGING_AUTO,
     FUZZ_PINNED, T_AUTO, T_AUTO, 0, 0},
    {"two cuts by turns, several stages", SHAPE_CHAIN, WAY_TURNS, SPIPE_SCHEDULE_AUTO,
     SPIPE_STAGING_AUTO, FUZZ_PINNED, T_AUTO, T_AUTO, 0, 0},
    {"other arrays, another length", SHAPE_CHAIN, WAY_CHANGED, SPIPE_SCHEDULE_ENGINES, T_COPY,
     FUZZ_PINNED, 1, 3, 0, 0},
    {"every step waited for", SHAPE_MAP, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 0, 3,
     1, 0},
    {"progress told", SHAPE_CHAIN, WAY_RUN, SPIPE_SCHEDULE_ENGINES, T_COPY, FUZZ_PINNED, 0, 3, 0,
     1},
};

enum {
    NUM_CASES = (int)(sizeof torture_cases / sizeof *torture_cases),
    CHUNK = 20,
    COUNT = 150
};

static int torture_buffer(fuzz_scene_t *s, int kind, size_t elem_bytes, int memory) {
    fuzz_buffer_t *f = &s->buffers[s->num_buffers];
    f->kind = kind;
    f->elem_bytes = elem_bytes;
    f->memory = memory;
    f->gives = s->count;
    f->pattern[0] = 0;
    f->pattern[1] = 7; /* as much as asked for and seven elements in turn */
    return s->num_buffers++;
}

static void torture_stage(fuzz_scene_t *s, int in, int out, int host, int carry, int shared) {
    fuzz_stage_t *st = &s->stages[s->num_stages];
    snprintf(st->name, sizeof st->name, "step%d", s->num_stages);
    st->host = host;
    st->ordered = carry >= 0;
    st->num_ops = 1;
    st->ops[0].in = in;
    st->ops[0].out = out;
    st->ops[0].carry = carry;
    st->ops[0].shared = shared;
    s->buffers[in].readers |= SPIPE_BIT(s->num_stages);
    s->buffers[out].writers |= SPIPE_BIT(s->num_stages);
    ++s->num_stages;
}

static void torture_halo(fuzz_scene_t *s, int i) {
    s->buffers[i].before = 2;
    s->buffers[i].after = 3;
    s->buffers[i].edge = i % 2;
}

static void torture_many(fuzz_scene_t *s, int memory) {
    const int a = torture_buffer(s, SPIPE_INPUT, 1, memory);
    const int b = torture_buffer(s, SPIPE_INPUT, 12, memory);
    const int c = torture_buffer(s, SPIPE_INPUT, 4, memory);
    const int y = torture_buffer(s, SPIPE_OUTPUT, 3, memory);
    const int z = torture_buffer(s, SPIPE_OUTPUT, 4, memory);
    torture_stage(s, a, y, 0, -1, -1);
    torture_stage(s, b, z, 0, -1, -1);
    s->stages[1].ops[1] = s->stages[1].ops[0]; /* and over it what comes of c */
    s->stages[1].ops[1].in = c;
    s->stages[1].num_ops = 2;
}

static void torture_diamond(fuzz_scene_t *s, int memory) {
    const int x = torture_buffer(s, SPIPE_INPUT, 4, memory);
    const int y = torture_buffer(s, SPIPE_OUTPUT, 4, memory);
    const int a = torture_buffer(s, SPIPE_TEMP, 4, memory);
    const int z = torture_buffer(s, SPIPE_OUTPUT, 2, memory);
    torture_stage(s, x, a, 0, -1, -1);
    torture_stage(s, a, y, 0, -1, -1);
    torture_stage(s, a, z, 0, -1, -1);
    torture_stage(s, z, y, 0, -1, -1);
    s->stages[2].after_given = s->stages[3].after_given = 1;
    s->stages[2].after = 1; /* beside step1 */
    s->stages[3].after = 2 | 4;
}

/* A source or sink that any thread may call, for any part. */
static int torture_positioned(fuzz_scene_t *s, int kind, size_t elem_bytes) {
    const int i = torture_buffer(s, kind, elem_bytes, FUZZ_PAGEABLE);
    s->buffers[i].positioned = 1;
    return i;
}

static void torture_placed(fuzz_scene_t *s, int memory) {
    const int x = torture_positioned(s, SPIPE_SOURCE, 4);
    const int y = torture_positioned(s, SPIPE_SINK, 4);
    const int z = torture_buffer(s, SPIPE_SINK, 3, memory);
    const int state = torture_buffer(s, SPIPE_RESIDENT, 4, memory);
    const int a = torture_buffer(s, SPIPE_INPUT, 2, memory);
    const int b = torture_buffer(s, SPIPE_OUTPUT, 1, memory);
    s->buffers[state].how = SPIPE_DOWNLOAD | SPIPE_UPLOAD;
    torture_halo(s, x);
    torture_stage(s, x, y, 0, -1, -1);
    torture_stage(s, x, z, 0, state, -1);
    torture_stage(s, a, b, 0, -1, -1);
}

static void torture_either(fuzz_scene_t *s, int memory) {
    const int x = torture_buffer(s, SPIPE_SOURCE, 4, memory);
    const int y = torture_positioned(s, SPIPE_SINK, 3);
    const int a = torture_positioned(s, SPIPE_SOURCE, 2);
    const int b = torture_buffer(s, SPIPE_SINK, 8, memory);
    torture_stage(s, x, y, 0, -1, -1);
    torture_stage(s, a, b, 0, -1, -1);
    s->open_ended = 1;
}

/* Fills in a case's buffers and stages. */
static void torture_shape(fuzz_scene_t *s, const torture_case_t *c) {
    int x, y, t;
    if (c->shape == SHAPE_MANY) return torture_many(s, c->memory);
    if (c->shape == SHAPE_DIAMOND) return torture_diamond(s, c->memory);
    if (c->shape == SHAPE_PLACED) return torture_placed(s, c->memory);
    if (c->shape == SHAPE_EITHER) return torture_either(s, c->memory);
    if (c->shape == SHAPE_STREAM || c->shape == SHAPE_MIXED) {
        x = torture_buffer(s, SPIPE_SOURCE, 4, c->memory);
        y = torture_buffer(s, SPIPE_SINK, 4, c->memory);
        torture_stage(s, x, y, 0, -1, -1);
        s->open_ended = c->shape == SHAPE_STREAM;
        if (c->shape == SHAPE_STREAM) return;
        torture_halo(s, x);
        x = torture_buffer(s, SPIPE_INPUT, 2, c->memory);
        y = torture_buffer(s, SPIPE_OUTPUT, 1, c->memory);
        return torture_stage(s, x, y, 0, -1, -1);
    }
    x = torture_buffer(s, c->shape == SHAPE_CHAIN ? SPIPE_INOUT : SPIPE_INPUT, 4, c->memory);
    if (c->shape == SHAPE_HALO) torture_halo(s, x);
    if (c->shape == SHAPE_CHAIN) {
        t = torture_buffer(s, SPIPE_TEMP, 8, c->memory);
        torture_stage(s, x, t, 0, -1, -1);
        return torture_stage(s, t, x, 0, -1, -1);
    }
    y = torture_buffer(s, SPIPE_OUTPUT, 4, c->memory);
    if (c->shape == SHAPE_CARRY || c->shape == SHAPE_COUNTS) {
        const int carry = c->shape == SHAPE_CARRY;
        t = torture_buffer(s, SPIPE_RESIDENT, carry ? 4 : FUZZ_SHARED * 4, c->memory);
        s->buffers[t].how = SPIPE_DOWNLOAD | (carry ? SPIPE_UPLOAD : 0);
        if (carry) return torture_stage(s, x, y, 0, t, -1);
        return torture_stage(s, x, y, 0, -1, t);
    }
    torture_stage(s, x, y, 0, -1, -1);
    if (c->shape != SHAPE_HOST) return;
    torture_stage(s, y, y, 1, -1, -1);
    torture_stage(s, y, y, 0, -1, -1);
}

static void torture_scene(fuzz_scene_t *s, const torture_case_t *c) {
    int i;
    s->count = s->count_then = COUNT;
    s->chunk = c->shape == SHAPE_SMALL ? 2 : CHUNK;
    if (c->schedule == SPIPE_SCHEDULE_AUTO) s->chunk = SPIPE_AUTO;
    s->depth = c->depth;
    s->threads = c->threads;
    s->schedule = c->schedule;
    s->staging = c->staging;
    s->checked = c->checked;
    s->progress = c->progress;
    s->fixed = c->way == WAY_REPLAYED;
    s->once = c->way == WAY_TURNS;
    s->salt = 17;
    torture_shape(s, c);
    for (i = 0; i < s->num_buffers; ++i) {
        fuzz_buffer_t *f = &s->buffers[i];
        fuzz_randomise(&f->given, (f->kind == SPIPE_RESIDENT ? 1 : COUNT + 1) * f->elem_bytes,
                       s->salt + 77u * (unsigned)i);
    }
}

#endif
