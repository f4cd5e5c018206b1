/*  fuzz_files.cu -- any bytes as files, descriptions of parts of them, and what is done with these:
    runs of every kind, one after the other and at once, that succeed and fail; commits. Every byte
    of every output is compared with the reference of fuzz_files.h, and so is what is refused. */
#include "fuzz/fuzz_files.h"

static char files_folder[] = "/tmp/streampipe_fuzz.XXXXXX";

/* ---- files ----------------------------------------------------------------------------------- */
/* Opens by a name for a descriptor, or by "-" with the descriptor as standard input or output. */
static cudaError_t files_open_fd(files_world_t *w, spipe_file_t *f, std::string *name, int fd,
                                 int writing) {
    const int dash = fuzz_one_in(&w->b, 2), was = dash ? dup(writing) : -1;
    cudaError_t e;
    *name = dash ? "-" : "/dev/fd/" + std::to_string(fd);
    if (dash && (was < 0 || dup2(fd, writing) < 0)) exit(99);
    e = writing ? spipe_file_create(f, name->c_str(), NULL)
                : spipe_file_open(f, name->c_str(), NULL);
    if (dash && dup2(was, writing) < 0) exit(99);
    if (was >= 0) (void)close(was);
    return e;
}

static void files_open_in(files_world_t *w, int i) {
    static const size_t sizes[] = {0, 1, 7, 64, 100, 599};
    files_in_t *in = &w->ins[i];
    const size_t bytes =
        fuzz_one_in(&w->b, 3) ? sizes[fuzz_pick(&w->b, 6)] : fuzz_pick(&w->b, FILES_MOST);
    unsigned x = 1 + fuzz_byte(&w->b);
    int ends[2];
    in->data.resize(bytes);
    for (unsigned char &byte : in->data)
        byte = (unsigned char)((x = x * 1664525u + 1013904223u) >> 24);
    in->used = 0;
    in->pipe = fuzz_one_in(&w->b, 4);
    in->name = std::string(files_folder) + "/in" + std::to_string(i);
    if (in->pipe) {
        if (pipe(ends) != 0) exit(99);
        if (bytes > 0 && write(ends[1], in->data.data(), bytes) != (ssize_t)bytes) exit(99);
        (void)close(ends[1]);
        SPIPE_CHECK(files_open_fd(w, &in->f, &in->name, ends[0], 0));
        (void)close(ends[0]);
    } else {
        FILE *f = fopen(in->name.c_str(), "wb");
        for (unsigned char byte : in->data) (void)putc(byte, f);
        if (!f || fclose(f) != 0) exit(99);
        SPIPE_CHECK(spipe_file_open(&in->f, in->name.c_str(), NULL));
    }
    files_note("input %d: %zu bytes%s", i, bytes, in->pipe ? ", pipe" : "");
}

static void files_open_out(files_world_t *w, int i) {
    files_out_t *o = &w->outs[i];
    int ends[2];
    o->data.clear();
    o->sure.clear();
    o->own = 0;
    o->parts.clear();
    if (o->kind == FILES_REGULAR) {
        SPIPE_CHECK(spipe_file_create(&o->f, o->name.c_str(), NULL));
        return;
    }
    if (o->fd >= 0) (void)close(o->fd);
    if (o->kind == FILES_PIPE) {
        if (pipe(ends) != 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) exit(99);
    } else {
        const std::string behind = std::string(files_folder) + "/behind";
        ends[1] = open(behind.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
        ends[0] = open(behind.c_str(), O_RDONLY);
        if (ends[0] < 0 || ends[1] < 0 || write(ends[1], "x", 1) != 1 || lseek(ends[0], 1, 0) != 1)
            exit(99);
        (void)unlink(behind.c_str());
    }
    o->fd = ends[0];
    SPIPE_CHECK(files_open_fd(w, &o->f, &o->name, ends[1], 1));
    (void)close(ends[1]);
}

static void files_first_out(files_world_t *w, int i) {
    files_out_t *o = &w->outs[i];
    o->kind = fuzz_one_in(&w->b, 4) ? 1 + (int)fuzz_pick(&w->b, 2) : FILES_REGULAR;
    o->fd = -1;
    o->there = 0;
    o->name = std::string(files_folder) + "/out" + std::to_string(i);
    files_open_out(w, i);
    files_note("output %d: kind %d", i, o->kind);
}

/* ---- descriptions ---------------------------------------------------------------------------- */
/* Adds an input, with a part that may not be there. Returns 0 if it was refused as it had to be. */
static int files_add_in(files_world_t *w, files_desc_t *d, int i) {
    files_in_t *in = &w->ins[i];
    const size_t size = in->data.size();
    files_use_t u = {i, 0, 0, 0, SPIPE_AUTO, 1 + fuzz_pick(&w->b, 40), 0, 0};
    if (fuzz_one_in(&w->b, 3)) u.elem = 1 + fuzz_pick(&w->b, 3);
    in->f.way = (spipe_file_way_t)fuzz_pick(&w->b, 4);
    in->f.offset = in->pipe || fuzz_one_in(&w->b, 2) ? 0 : fuzz_pick(&w->b, size + 2);
    in->f.length = fuzz_one_in(&w->b, 3) ? fuzz_pick(&w->b, size + 2) : SPIPE_AUTO;
    u.offset = in->f.offset;
    u.ordered = in->pipe || in->f.way == SPIPE_FILE_ORDERED;
    u.bytes = in->f.length;
    const int bad =
        !in->pipe && (u.offset > size || (u.bytes != SPIPE_AUTO && u.bytes > size - u.offset));
    if (!in->pipe && u.bytes == SPIPE_AUTO) u.bytes = size - u.offset;
    const int buffer = spipe_add_file_input(&d->d, &in->f, u.elem);
    files_note("  input %d from %zu, %zd bytes, elements of %zu, way %d%s", i, u.offset,
               (ssize_t)u.bytes, u.elem, (int)in->f.way, bad ? ": refused" : "");
    FILES_CHECK(bad == (buffer < 0) && bad == (d->d.problem != NULL), "%s",
                d->d.problem ? d->d.problem : "not refused");
    if (bad) return 0;
    FILES_CHECK(in->f.count == files_length(u), "count is %zu", in->f.count);
    if (!in->pipe && fuzz_one_in(&w->b, 4)) {
        u.before = fuzz_pick(&w->b, files_least(d->chunk, 2) + 1);
        u.after = fuzz_pick(&w->b, files_least(d->chunk, 2) + 1);
        u.edge = (int)fuzz_pick(&w->b, 2);
        spipe_set_halo(&d->d, buffer, u.before, u.after, (spipe_edge_t)u.edge);
        files_note("    halo %zu+%zu, edge %d", u.before, u.after, u.edge);
    }
    d->ins.push_back(u);
    return 1;
}

static void files_add_out(files_world_t *w, files_desc_t *d, int i) {
    files_out_t *o = &w->outs[i];
    files_use_t u = {i, 0, 0, 0, SPIPE_AUTO, 1 + fuzz_pick(&w->b, 12), 0, 0};
    o->f.way = (spipe_file_way_t)fuzz_pick(&w->b, 4);
    o->f.offset = 0;
    if (o->kind == FILES_REGULAR && fuzz_one_in(&w->b, 2)) o->f.offset = fuzz_pick(&w->b, 300);
    u.offset = o->f.offset;
    (void)o->parts[u.offset];
    FILES_CHECK(spipe_add_file_output(&d->d, &o->f, u.elem) >= 0, "%s", d->d.problem);
    files_note("  output %d at %zu, elements of %zu, way %d", i, u.offset, u.elem, (int)o->f.way);
    d->outs.push_back(u);
}

/* A count: not stated, what the files have, or another. */
static size_t files_stated(files_world_t *w, const files_desc_t &d) {
    const size_t kind = fuzz_pick(&w->b, 6);
    size_t n = files_ceil(files_has(w, d.ins[0]), d.ins[0].elem);
    for (const files_use_t &u : d.ins) {
        n = files_least(n, files_ceil(files_has(w, u), u.elem));
    }
    if (kind < 2) return SPIPE_AUTO;
    if (kind == 2) return n + 1 + fuzz_pick(&w->b, 5);
    if (kind == 3) return fuzz_pick(&w->b, n + 1);
    return n;
}

static void files_describe(files_world_t *w, files_desc_t *d) {
    const int first = (int)fuzz_pick(&w->b, (size_t)w->num_ins);
    int k;
    d->d = spipe_desc_default();
    d->ins.clear();
    d->outs.clear();
    d->made = 0;
    d->bad_chunk = SPIPE_AUTO;
    d->chunk = 1 + fuzz_pick(&w->b, 80);
    d->d.chunk = d->chunk;
    d->d.depth = 1 + fuzz_pick(&w->b, 3);
    d->d.threads = fuzz_pick(&w->b, 3);
    d->d.schedule = (spipe_schedule_t)fuzz_pick(&w->b, 4);
    d->d.checked = fuzz_one_in(&w->b, 8);
    if (fuzz_one_in(&w->b, 3)) d->d.resources = w->resources;
    files_note("description %d: chunks of %zu, depth %zu, threads %zu, schedule %d, checked %d, "
               "resources %d",
               (int)(d - w->descs), d->chunk, d->d.depth, d->d.threads, (int)d->d.schedule,
               d->d.checked, d->d.resources != NULL);
    for (k = 0; k < w->num_ins; ++k) {
        if (k > 0 && fuzz_one_in(&w->b, 2)) continue;
        if (!files_add_in(w, d, (first + k) % w->num_ins)) return;
    }
    d->takes = fuzz_one_in(&w->b, 6);
    d->gives = fuzz_one_in(&w->b, 6);
    if (d->takes) spipe_add_input(&d->d, w->array_in, 1);
    for (k = 0; k < w->num_outs; ++k) {
        if (k == 0 || fuzz_one_in(&w->b, 2)) files_add_out(w, d, (first + k) % w->num_outs);
    }
    if (d->gives) spipe_add_output(&d->d, w->array_out, 1);
    spipe_add_stage(&d->d, "work", files_stage, d);
    d->d.count = files_stated(w, *d);
    files_note("  count %zd%s%s", (ssize_t)d->d.count, d->takes ? ", an array in" : "",
               d->gives ? ", an array out" : "");
    d->made = 1;
}

/* ---- runs ------------------------------------------------------------------------------------ */
/* Before a run: what it must do. May let its stage fail. */
static files_fate_t files_before(files_world_t *w, files_desc_t *d, size_t count) {
    files_fate_t fate = files_fate_of(w, *d, count);
    memset(w->array_out, 0xEE, sizeof w->array_out);
    d->bad_chunk = fuzz_one_in(&w->b, 4) ? fuzz_pick(&w->b, fate.chunks + 1) : SPIPE_AUTO;
    return fate;
}

/* After it: that it did so, and what it left. hurt: 1 = an error of the runtime was injected, or
   several GPUs did chunks behind the one that failed. */
static void files_after(files_world_t *w, const files_desc_t &d, files_fate_t fate, cudaError_t e,
                        const spipe_failure_t *f, int hurt) {
    const int stage = d.bad_chunk < fate.chunks && (!fate.fails || d.bad_chunk < fate.whole);
    const int fails = stage || fate.fails;
    files_note("  -> %s, %zu chunks whole: %s", cudaGetErrorName(e), f->chunks_whole, f->message);
    if (fate.unsure && e == cudaErrorInvalidValue) return;
    if (fate.refused != cudaSuccess) {
        FILES_CHECK(e == fate.refused && f->message[0], "not refused, which is %s",
                    cudaGetErrorName(fate.refused));
        for (const files_use_t &u : d.outs) {
            if (w->outs[u.file].kind != FILES_REGULAR)
                FILES_CHECK(files_came(&w->outs[u.file]).empty(), "refused, but bytes came");
        }
        return;
    }
    FILES_CHECK(hurt || fails == (e != cudaSuccess), "it should %s", fails ? "fail" : "succeed");
    FILES_CHECK(e == cudaSuccess || f->message[0], "no sentence");
    if (!hurt && stage) FILES_CHECK(e == cudaErrorAssert, "of the stage");
    if (!hurt && fails && d.d.count != SPIPE_AUTO) {
        const size_t whole = stage ? d.bad_chunk : fate.whole;
        FILES_CHECK(f->chunks_whole == whole, "%zu chunks whole, not %zu", f->chunks_whole, whole);
    }
    if (e == cudaSuccess)
        files_leaves(w, d, fate, e, fate.chunks, FILES_NO);
    else
        files_leaves(w, d, fate, e, hurt ? 0 : f->chunks_whole, 1 + hurt);
}

/* Whether a pipe is there of which nobody knows whether it was read. */
static int files_lost(const files_world_t *w, const files_desc_t &d) {
    for (const files_use_t &u : d.ins) {
        if (w->ins[u.file].pipe && w->ins[u.file].used == FILES_MAYBE) return 1;
    }
    return 0;
}

static void files_run(files_world_t *w, files_desc_t *d) {
    static const int list[2] = {0, 0};
    static const char *const calls[] = {"cudaMemcpyAsync", "cudaStreamWaitEvent", "cudaEventRecord",
                                        "cudaMalloc", "cudaStreamSynchronize"};
    spipe_desc_t own = d->d;
    spipe_report_t r;
    const files_fate_t fate = files_before(w, d, d->d.count);
    int several = fuzz_one_in(&w->b, 6), hurt = fuzz_one_in(&w->b, 6);
    for (const files_use_t &u : d->ins) several &= !(u.ordered && u.before + u.after > 0);
    if (own.resources) several = 0;
    if (several) spipe_devices_list(&own, list, 2);
    files_note("run %d, stage fails at %zd, two GPUs %d, a call fails %d", (int)(d - w->descs),
               (ssize_t)d->bad_chunk, several, hurt);
    if (hurt)
        hostcuda_fail(calls[fuzz_pick(&w->b, 5)], 1 + (long)fuzz_pick(&w->b, 20),
                      cudaErrorNotSupported);
    const int may_fail = fate.fails || d->bad_chunk < fate.chunks;
    const cudaError_t e = spipe_run(&own, &r);
    hostcuda_fail_clear();
    if (hurt && fate.refused != cudaSuccess && e == cudaErrorNotSupported) return;
    files_after(w, *d, fate, e, &r.failure, (hurt || (several && may_fail)) && e != cudaSuccess);
    (void)cudaGetLastError();
}

static void files_kept(files_world_t *w, files_desc_t *d) {
    spipe_pipeline_t *p;
    spipe_report_t r;
    size_t count = d->d.count;
    int k;
    files_fate_t fate = files_fate_of(w, *d, count);
    cudaError_t e = spipe_pipeline_create(&p, &d->d, &r.failure);
    files_note("keep %d: %s", (int)(d - w->descs), r.failure.message);
    if (fate.unsure && e == cudaErrorInvalidValue) return;
    FILES_CHECK((e == cudaSuccess) == (fate.refused != cudaErrorInvalidValue), "create: %s",
                r.failure.message);
    if (e != cudaSuccess) return;
    for (k = 0; k < 4; ++k) {
        if (k > 0 && fuzz_one_in(&w->b, 2)) {
            const size_t then = files_stated(w, *d);
            const files_fate_t would = files_fate_of(w, *d, then);
            if (then == SPIPE_AUTO) continue;
            e = spipe_pipeline_set_count(p, then);
            files_note("  set_count %zu: %s", then, cudaGetErrorName(e));
            if (!would.unsure) {
                FILES_CHECK((e == cudaSuccess) == (would.refused != cudaErrorInvalidValue),
                            "set_count %zu: %s", then, spipe_pipeline_failure(p)->message);
            }
            if (e == cudaSuccess) count = then;
        }
        fate = files_before(w, d, count);
        files_note("  run, stage fails at %zd", (ssize_t)d->bad_chunk);
        e = spipe_pipeline_run(p, &r);
        files_after(w, *d, fate, e, &r.failure, 0);
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
}

/* Whether a run of one description must be refused while one of the other is under way. */
static int files_clash(const files_desc_t &a, const files_desc_t &b) {
    for (const files_use_t &u : a.ins) {
        for (const files_use_t &v : b.ins) {
            if (u.file != v.file) continue;
            if (u.ordered || v.ordered || u.offset != v.offset) return 1;
            if (u.bytes != v.bytes || u.elem != v.elem) return 1;
        }
    }
    for (const files_use_t &u : a.outs) {
        for (const files_use_t &v : b.outs) {
            if (u.file == v.file) return 1;
        }
    }
    return a.gives && b.gives; /* the array is one */
}

/* While a loop has a chunk: a run of another description, and commits. */
static void files_meanwhile(files_world_t *w, const files_desc_t &d) {
    files_desc_t *other = &w->descs[fuzz_pick(&w->b, FILES_DESCS)];
    spipe_report_t r;
    spipe_failure_t f;
    for (const files_use_t &u : d.outs) {
        FILES_CHECK(spipe_file_commit(&w->outs[u.file].f, SPIPE_AUTO, &f) == cudaErrorNotPermitted,
                    "committed in the middle of a run");
        files_check_name(&w->outs[u.file]);
    }
    if (!other->made || files_lost(w, *other) || (d.gives && other->gives)) return;
    const files_fate_t fate = files_fate_of(w, *other, other->d.count);
    const int clash = files_clash(d, *other);
    if (fate.refused == cudaErrorInvalidValue || fate.unsure || (!clash && other->gives)) return;
    other->bad_chunk = SPIPE_AUTO;
    const cudaError_t e = spipe_run(&other->d, &r);
    files_note("  meanwhile a run of %d: %s", (int)(other - w->descs), r.failure.message);
    if (clash)
        FILES_CHECK(e == cudaErrorNotPermitted, "two runs at once: %s", cudaGetErrorName(e));
    else
        files_after(w, *other, fate, e, &r.failure, 0);
}

static void files_pull(files_world_t *w, files_desc_t *d) {
    spipe_desc_t own = d->d;
    spipe_failure_t f;
    spipe_pipeline_t *p;
    spipe_chunk_t c;
    cudaStream_t stream;
    size_t n = 0;
    files_fate_t fate = files_before(w, d, d->d.count);
    const size_t most = fate.fails || fuzz_one_in(&w->b, 2) ? SIZE_MAX : 1 + fuzz_pick(&w->b, 3);
    own.num_stages = 0;
    d->bad_chunk = SPIPE_AUTO;
    files_note("pull %d, %zd chunks", (int)(d - w->descs), (ssize_t)most);
    cudaError_t e = spipe_pipeline_create(&p, &own, &f);
    if (fate.unsure && e == cudaErrorInvalidValue) return;
    FILES_CHECK((e == cudaSuccess) == (fate.refused != cudaErrorInvalidValue), "create: %s",
                f.message);
    if (e != cudaSuccess) return;
    SPIPE_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    c.count = 1;
    while (n < most && e == cudaSuccess) {
        e = spipe_pipeline_next(p, stream, &c);
        if (e != cudaSuccess || c.count == 0) break;
        if (n == 0) files_meanwhile(w, *d);
        SPIPE_CHECK(files_stage(&c, d));
        e = spipe_pipeline_release(p, stream);
        n += e == cudaSuccess;
    }
    if (e == cudaSuccess && c.count > 0) e = spipe_pipeline_end(p, NULL);
    f = *spipe_pipeline_failure(p);
    if (most < SIZE_MAX && n < fate.chunks && fate.refused == cudaSuccess) {
        files_note("  left after %zu chunks: %s", n, cudaGetErrorName(e));
        FILES_CHECK(e == cudaSuccess, "left: %s", f.message);
        if (n > 0) { /* what was read ahead is not known */
            for (const files_use_t &u : d->outs)
                files_written(w, *d, u, n * d->chunk, fate.count, 1, FILES_NO);
            for (const files_use_t &u : d->ins) w->ins[u.file].used = FILES_YES;
        }
    } else {
        files_after(w, *d, fate, e, &f, 0);
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(cudaStreamDestroy(stream));
}

/* ---- what else is done to outputs ------------------------------------------------------------ */
static void files_own(files_world_t *w, files_out_t *o) {
    const size_t at = fuzz_pick(&w->b, 700), bytes = fuzz_pick(&w->b, 50);
    unsigned char block[50];
    memset(block, (int)fuzz_byte(&w->b), sizeof block);
    const cudaError_t e = spipe_file_write(&o->f, block, bytes, at, NULL);
    files_note("write %zu bytes at %zu of output %d: %s", bytes, at, (int)(o - w->outs),
               cudaGetErrorName(e));
    FILES_CHECK(e == (o->kind == FILES_REGULAR ? cudaSuccess : cudaErrorInvalidValue), "write");
    if (e != cudaSuccess || bytes == 0) return;
    if (o->own < at + bytes) o->own = at + bytes;
    if (o->data.size() < at + bytes) o->data.resize(at + bytes);
    if (o->sure.size() < at + bytes) o->sure.resize(at + bytes, 1);
    memcpy(&o->data[at], block, bytes);
    memset(&o->sure[at], 1, bytes);
}

static void files_commit(files_world_t *w, int i) {
    files_out_t *o = &w->outs[i];
    const size_t end = files_end(o),
                 bytes = fuzz_one_in(&w->b, 2) ? SPIPE_AUTO : fuzz_pick(&w->b, end + 9);
    const int fit = files_fit(o);
    int known = 1;
    spipe_failure_t f;
    for (const auto &p : o->parts) known &= p.second.failed != FILES_MAYBE;
    if (o->kind == FILES_REGULAR && known)
        FILES_CHECK(o->f.bytes == end, "it ends at %zu, not %zu", o->f.bytes, end);
    const cudaError_t e = spipe_file_commit(&o->f, bytes, &f);
    files_note("commit %d, %zd bytes: %s", i, (ssize_t)bytes, f.message);
    FILES_CHECK(fit == FILES_MAYBE || e == (fit ? cudaSuccess : cudaErrorNotPermitted),
                "commit: %s", f.message);
    if (e == cudaSuccess && fit == FILES_YES && o->kind == FILES_REGULAR)
        files_check_committed(o, files_least(bytes, end));
    else if (e == cudaSuccess && o->kind == FILES_REGULAR) {
        o->old = files_read_back(o->name);
        o->there = 1;
    }
    files_check_name(o);
    if (e != cudaSuccess && fuzz_one_in(&w->b, 2)) return;
    for (files_desc_t &d : w->descs) { /* they are of the file that is closed now */
        int has = 0;
        for (const files_use_t &u : d.outs) has |= u.file == i;
        if (!d.made || !has) continue;
        spipe_report_t r;
        if (e == cudaSuccess && o->kind == FILES_REGULAR) {
            const cudaError_t late = spipe_run(&d.d, &r); /* or a pipe refuses it first */
            FILES_CHECK((late == cudaErrorInvalidValue || late == cudaErrorNotPermitted) &&
                            r.failure.message[0],
                        "a run after the commit: %s", cudaGetErrorName(late));
        }
        d.made = 0;
    }
    spipe_file_close(&o->f);
    files_check_name(o);
    files_open_out(w, i);
}

/* ---- one scene ------------------------------------------------------------------------------- */
static void files_do(files_world_t *w) {
    const size_t what = fuzz_pick(&w->b, 10);
    files_desc_t *d = &w->descs[fuzz_pick(&w->b, FILES_DESCS)];
    const int out = (int)fuzz_pick(&w->b, (size_t)w->num_outs);
    if (what == 0) return files_own(w, &w->outs[out]);
    if (what == 1 || what == 2) return files_commit(w, out);
    if (!d->made || what == 3) files_describe(w, d);
    if (!d->made || files_lost(w, *d)) return;
    if (what == 4 || what == 5) return files_kept(w, d);
    if (what == 6 || what == 7) return files_pull(w, d);
    files_run(w, d);
}

static void files_scene(const unsigned char *data, size_t size) {
    files_world_t *w = new files_world_t();
    spipe_resources_limits_t l = spipe_resources_limits_default();
    int i;
    w->b.at = data;
    w->b.left = size;
    files_log.clear();
    l.device_bytes = l.pinned_bytes = (size_t)4 << 20;
    l.threads = 2;
    if (fuzz_one_in(&w->b, 3)) SPIPE_CHECK(spipe_resources_create(&w->resources, &l, NULL));
    w->num_ins = 1 + (int)fuzz_pick(&w->b, FILES_INS);
    w->num_outs = 1 + (int)fuzz_pick(&w->b, FILES_OUTS);
    for (unsigned k = 0; k < FILES_ARRAY; ++k) w->array_in[k] = (unsigned char)(k * 37);
    for (i = 0; i < w->num_ins; ++i) files_open_in(w, i);
    for (i = 0; i < w->num_outs; ++i) files_first_out(w, i);
    while (w->b.left > 0) files_do(w);
    for (i = 0; i < w->num_outs; ++i) {
        spipe_file_close(&w->outs[i].f);
        files_check_name(&w->outs[i]);
        if (w->outs[i].fd >= 0) (void)close(w->outs[i].fd);
        if (w->outs[i].kind == FILES_REGULAR) (void)remove(w->outs[i].name.c_str());
    }
    for (i = 0; i < w->num_ins; ++i) {
        spipe_file_close(&w->ins[i].f);
        if (!w->ins[i].pipe) (void)remove(w->ins[i].name.c_str());
    }
    if (w->resources) SPIPE_CHECK(spipe_resources_destroy(w->resources, NULL));
    SPIPE_CHECK(cudaDeviceSynchronize());
    FILES_CHECK(hostcuda_leaks(NULL) == 0, "%d things were left alive", hostcuda_leaks(stderr));
    delete w;
}

static void files_remove_folder(void) { (void)rmdir(files_folder); }

extern "C" int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    static int begun;
    if (!begun && (!mkdtemp(files_folder) || atexit(files_remove_folder) != 0)) exit(99);
    begun = 1;
    files_scene(data, size);
    return 0;
}
