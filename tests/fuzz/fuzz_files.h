/*  fuzz_files.h -- files made out of bytes, descriptions that read and write parts of them, and
    what becomes of them: a reference that knows no chunks, ways or threads, only bytes. */
#ifndef FUZZ_FILES_H
#define FUZZ_FILES_H

#include "fuzz/fuzz_scene.h"
#include "hostcuda.h"
#include "streampipe_devices.h"
#include "streampipe_files.h"

#include <map>

#include <errno.h>
#include <sys/stat.h>

enum {
    FILES_INS = 3,
    FILES_OUTS = 2,
    FILES_DESCS = 3,
    FILES_MOST = 600, /* bytes of an input */
    FILES_ARRAY = 1024
};

enum {
    FILES_REGULAR,
    FILES_DESCRIPTOR, /* a file behind a descriptor of the process, or behind "-" */
    FILES_PIPE
};

enum {
    FILES_NO,
    FILES_YES,
    FILES_MAYBE /* an error of the runtime came between */
};

#define FILES_CHECK(cond, ...)                                                                     \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "fuzz: %s:%d: %s\n  ", __FILE__, __LINE__, #cond);                     \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fprintf(stderr, "\n%s", files_log.c_str());                                            \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static std::string files_log; /* what the scene did so far */

static void files_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void files_note(const char *format, ...) {
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    files_log += "  ";
    files_log += text;
    files_log += "\n";
}

/* ---- the model ------------------------------------------------------------------------------- */
typedef struct files_in {
    spipe_file_t f;
    std::string name;
    fuzz_data_t data;
    int pipe, used; /* used: a run has read of it; FILES_MAYBE */
} files_in_t;

typedef struct files_part {
    size_t end;
    int written, failed;
} files_part_t;

typedef struct files_out {
    spipe_file_t f;
    std::string name;
    int kind, fd;           /* fd: what is behind a descriptor or pipe */
    fuzz_data_t old;        /* what stands under the name now */
    int there;              /* 1 = something does */
    fuzz_data_t data, sure; /* what was written, and whether each byte is known */
    size_t own;
    std::map<size_t, files_part_t> parts; /* by offset */
} files_out_t;

typedef struct files_use {
    int file, ordered, edge;
    size_t offset, bytes, elem, before, after; /* bytes SPIPE_AUTO = not known */
} files_use_t;

typedef struct files_desc {
    spipe_desc_t d;
    std::vector<files_use_t> ins, outs;
    int made, takes, gives; /* takes, gives: 1 = an array is an input, an output */
    size_t chunk;
    size_t bad_chunk; /* where its stage fails */
} files_desc_t;

typedef struct files_world {
    fuzz_bytes_t b;
    int num_ins, num_outs;
    files_in_t ins[FILES_INS];
    files_out_t outs[FILES_OUTS];
    files_desc_t descs[FILES_DESCS];
    unsigned char array_in[FILES_ARRAY], array_out[FILES_ARRAY];
    spipe_resources_t *resources;
} files_world_t;

/* What a run must do. */
typedef struct files_fate {
    cudaError_t refused;         /* cudaSuccess = it begins */
    int fails, unsure;           /* a source fails; a halo is larger than the whole */
    int endless;                 /* until its sources end */
    size_t count, whole, chunks; /* elements; chunks before the one that fails; all chunks */
} files_fate_t;

static size_t files_ceil(size_t a, size_t b) { return a / b + (a % b != 0); }

static size_t files_least(size_t a, size_t b) { return a < b ? a : b; }

/* Bytes that an input has for a use. */
static size_t files_has(const files_world_t *w, const files_use_t &u) {
    const size_t all = w->ins[u.file].data.size() - u.offset;
    return u.bytes == SPIPE_AUTO ? all : files_least(all, u.bytes);
}

static size_t files_length(const files_use_t &u) {
    return u.bytes == SPIPE_AUTO ? SPIPE_AUTO : files_ceil(u.bytes, u.elem);
}

/* The number of elements; refused: the lengths do not say it. */
static void files_count(const files_world_t *w, const files_desc_t &d, size_t stated,
                        files_fate_t *fate) {
    size_t known = SPIPE_AUTO;
    int agree = 1;
    for (const files_use_t &u : d.ins) { /* 0 beside what has no length states nothing */
        if (stated == 0 && files_length(u) == SPIPE_AUTO) stated = SPIPE_AUTO;
    }
    for (const files_use_t &u : d.ins) {
        const size_t n = files_length(u);
        if (n == SPIPE_AUTO) continue;
        agree &= known == SPIPE_AUTO || known == n;
        known = n;
        if (stated != SPIPE_AUTO && stated > n) fate->refused = cudaErrorInvalidValue;
    }
    fate->count = stated != SPIPE_AUTO ? stated : known;
    if (stated != SPIPE_AUTO) return;
    if (!agree) fate->refused = cudaErrorInvalidValue;
    if ((d.takes || d.gives) && known != 0) fate->refused = cudaErrorInvalidValue;
    if (known != SPIPE_AUTO) return;
    fate->endless = 1;
    for (const files_use_t &u : d.ins) { /* all are pipes, which must end together */
        const size_t n = files_ceil(files_has(w, u), u.elem);
        fate->fails |= fate->count != SPIPE_AUTO && fate->count != n;
        fate->count = files_least(fate->count, n);
    }
}

static files_fate_t files_fate_of(const files_world_t *w, const files_desc_t &d, size_t stated) {
    files_fate_t fate = {cudaSuccess, 0, 0, 0, 0, 0, 0};
    size_t ends;
    files_count(w, d, stated, &fate);
    if (fate.refused != cudaSuccess) return fate;
    ends = fate.count;
    for (const files_use_t &u : d.ins) {
        const files_in_t &in = w->ins[u.file];
        const size_t has = files_has(w, u);
        const size_t wants = files_least(fate.count * u.elem, u.bytes);
        fate.unsure |= fate.count > 0 && (u.before > fate.count || u.after > fate.count);
        if (in.pipe && in.used) fate.refused = cudaErrorNotPermitted;
        if (has >= wants) continue;
        if (u.bytes == SPIPE_AUTO && files_ceil(has, u.elem) >= fate.count) continue;
        fate.fails = 1; /* at the chunk that needs what does not come */
        ends = files_least(ends, u.bytes == SPIPE_AUTO ? files_ceil(has, u.elem) : has / u.elem);
    }
    fate.chunks = files_ceil(fate.count, d.chunk);
    fate.whole = fate.fails ? ends / d.chunk : fate.chunks;
    return fate;
}

/* ---- bytes ----------------------------------------------------------------------------------- */
static unsigned files_byte(const files_world_t *w, const files_use_t &u, long e, size_t k,
                           size_t count) {
    const size_t has = files_has(w, u);
    if (e < 0 || e >= (long)count) {
        if (u.edge == SPIPE_EDGE_ZERO) return 0;
        e = e < 0 ? 0 : (long)count - 1;
    }
    const size_t at = (size_t)e * u.elem + k % u.elem;
    return at < has ? w->ins[u.file].data[u.offset + at] : 0;
}

static unsigned char files_want(const files_world_t *w, const files_desc_t &d, size_t e, size_t k,
                                size_t count) {
    unsigned sum = (unsigned)(e * 3 + k);
    for (const files_use_t &u : d.ins) {
        sum = sum * 5 + files_byte(w, u, (long)e, k, count);
        sum += 3 * files_byte(w, u, (long)e - (long)u.before, k, count);
        sum += 7 * files_byte(w, u, (long)(e + u.after), k, count);
    }
    return (unsigned char)(sum + (d.takes ? w->array_in[e] : 0));
}

typedef struct files_work {
    const unsigned char *in[FILES_INS], *array;
    unsigned char *out[FILES_OUTS], *given;
    size_t elem[FILES_INS], before[FILES_INS], after[FILES_INS], out_elem[FILES_OUTS];
    size_t num_ins, num_outs, first, count;
} files_work_t;

static __global__ void files_kernel(files_work_t w) {
    for (size_t e = 0; e < w.count; ++e) {
        for (size_t o = 0; o < w.num_outs + (w.given != NULL); ++o) {
            unsigned char *to = o < w.num_outs ? w.out[o] + e * w.out_elem[o] : w.given + e;
            const size_t bytes = o < w.num_outs ? w.out_elem[o] : 1;
            for (size_t k = 0; k < bytes; ++k) {
                unsigned sum = (unsigned)((w.first + e) * 3 + k);
                for (size_t i = 0; i < w.num_ins; ++i) {
                    const unsigned char *at = w.in[i] + e * w.elem[i] + k % w.elem[i];
                    sum = sum * 5 + *at;
                    sum += 3u * *(at - w.before[i] * w.elem[i]);
                    sum += 7u * at[w.after[i] * w.elem[i]];
                }
                to[k] = (unsigned char)(sum + (w.array ? w.array[e] : 0));
            }
        }
    }
}

static cudaError_t files_stage(const spipe_chunk_t *c, void *user) {
    const files_desc_t *d = (const files_desc_t *)user;
    files_work_t w;
    int next = 0;
    memset(&w, 0, sizeof w);
    if (c->index == d->bad_chunk) return cudaErrorAssert;
    for (const files_use_t &u : d->ins) {
        w.elem[w.num_ins] = u.elem;
        w.before[w.num_ins] = u.before;
        w.after[w.num_ins] = u.after;
        w.in[w.num_ins++] = (const unsigned char *)c->data[next++];
    }
    if (d->takes) w.array = (const unsigned char *)c->data[next++];
    for (const files_use_t &u : d->outs) {
        w.out_elem[w.num_outs] = u.elem;
        w.out[w.num_outs++] = (unsigned char *)c->data[next++];
    }
    if (d->gives) w.given = (unsigned char *)c->data[next++];
    w.first = c->first;
    w.count = c->count;
    return SPIPE_LAUNCH(files_kernel, 1, 1, 0, c->stream, w);
}

/* ---- what a run leaves ----------------------------------------------------------------------- */
static fuzz_data_t files_read_back(const std::string &name) {
    fuzz_data_t data;
    FILE *f = fopen(name.c_str(), "rb");
    for (int c = f ? getc(f) : EOF; c != EOF; c = getc(f)) data.push_back((unsigned char)c);
    if (f) fclose(f);
    return data;
}

/* What came out of a pipe, or was written behind a descriptor, since the last look. */
static fuzz_data_t files_came(files_out_t *o) {
    fuzz_data_t data(1 << 16);
    size_t n = 0;
    for (;;) {
        const ssize_t got = read(o->fd, &data[n], data.size() - n);
        if (got <= 0) break;
        n += (size_t)got;
    }
    data.resize(n);
    return data;
}

/* An output after a run that wrote its first n of `all` elements; a failure may have left more. */
static void files_written(files_world_t *w, const files_desc_t &d, const files_use_t &u, size_t n,
                          size_t all, int ended, int failed) {
    files_out_t *o = &w->outs[u.file];
    fuzz_data_t made(n * u.elem);
    for (size_t at = 0; at < made.size(); ++at) {
        made[at] = files_want(w, d, at / u.elem, at % u.elem, all);
    }
    if (o->kind != FILES_REGULAR) {
        const fuzz_data_t came = files_came(o);
        FILES_CHECK(failed == FILES_MAYBE || came == made, "%zu bytes came, not %zu", came.size(),
                    made.size());
    }
    if (!ended && n == 0 && failed != FILES_MAYBE) return; /* it is as it was */
    files_part_t *p = &o->parts[u.offset];
    p->end = n > 0 ? u.offset + n * u.elem : 0;
    p->written |= ended;
    p->failed = failed;
    const size_t touched = u.offset + (ended ? n : all) * u.elem;
    if (touched > o->data.size()) o->data.resize(touched);
    if (touched > o->sure.size()) o->sure.resize(touched, 1);
    for (size_t at = 0; at < touched - u.offset; ++at) {
        o->sure[u.offset + at] = at < made.size();
        if (at < made.size()) o->data[u.offset + at] = made[at];
    }
}

/* After a run whose first `whole` chunks are. */
static void files_leaves(files_world_t *w, const files_desc_t &d, const files_fate_t &fate,
                         cudaError_t e, size_t whole, int failed) {
    const int ended = e == cudaSuccess;
    const size_t n = files_least(whole * d.chunk, fate.count);
    for (const files_use_t &u : d.ins) {
        files_in_t *in = &w->ins[u.file];
        if (fate.count > 0 || fate.endless) in->used = ended ? FILES_YES : failed;
        if (!ended && fate.fails && whole == 0) in->used = FILES_MAYBE; /* perhaps another did */
        if (!ended || !u.ordered) continue;
        const size_t bytes = files_least(fate.count * u.elem, files_has(w, u));
        FILES_CHECK(in->f.bytes == bytes &&
                        in->f.last_bytes == (bytes > 0 ? (bytes - 1) % u.elem + 1 : 0),
                    "%zu bytes read, %zu of the last element; not %zu", in->f.bytes,
                    in->f.last_bytes, bytes);
    }
    for (const files_use_t &u : d.outs) files_written(w, d, u, n, fate.count, ended, failed);
    for (size_t e2 = 0; e2 < FILES_ARRAY && d.gives; ++e2) {
        if (e2 < n)
            FILES_CHECK(w->array_out[e2] == files_want(w, d, e2, 0, fate.count),
                        "element %zu of the array is wrong", e2);
        else if (ended || e2 >= fate.count)
            FILES_CHECK(w->array_out[e2] == 0xEE, "element %zu of the array was written", e2);
    }
}

/* Where an output ends. */
static size_t files_end(const files_out_t *o) {
    size_t end = o->own;
    for (const auto &p : o->parts) end = p.second.end > end ? p.second.end : end;
    return end;
}

/* Whether an output may be committed; FILES_MAYBE: nobody knows. */
static int files_fit(const files_out_t *o) {
    int written = o->parts.empty() || o->own > 0, maybe = 0;
    for (const auto &p : o->parts) {
        if (p.second.failed == FILES_YES) return FILES_NO;
        maybe |= p.second.failed == FILES_MAYBE;
        written |= p.second.written;
    }
    if (maybe) return FILES_MAYBE;
    return written ? FILES_YES : FILES_NO;
}

/* What stands under an output's name. */
static void files_check_name(const files_out_t *o) {
    if (o->kind != FILES_REGULAR) return;
    FILES_CHECK((access(o->name.c_str(), F_OK) == 0) == o->there, "there %d", o->there);
    if (o->there) FILES_CHECK(files_read_back(o->name) == o->old, "the old file is not as it was");
}

static void files_check_committed(files_out_t *o, size_t bytes) {
    o->old = files_read_back(o->name);
    o->there = 1;
    FILES_CHECK(o->old.size() == bytes, "%zu bytes, not %zu", o->old.size(), bytes);
    for (size_t at = 0; at < bytes; ++at) {
        const int sure = at >= o->sure.size() || o->sure[at];
        const unsigned want = at < o->data.size() ? o->data[at] : 0;
        FILES_CHECK(!sure || o->old[at] == want, "byte %zu of %zu is %u, not %u", at, bytes,
                    o->old[at], want);
    }
}

#endif
