/*  test_torture_files.cu -- files of random length, in elements of random size, are read and
    written by random pipelines while the system does a part of each call, interrupts it, fails at
    any byte, or has cut the file. Either every byte is right and the file is there; or the run says
    path and byte, its chunk is the first that needs that byte, the chunks called whole are in the
    output, and no file is there.

    usage: test_torture_files [--all] [--seed N]     --all: ten times as many */
#ifdef _WIN32
#include "tap.h"

int main(void) {
    tap_skip("files", "this test makes its files with POSIX calls");
    return tap_done();
}
#else
#include "replaced.h"

#include "torture_files.h"

#include "hostcuda.h"
#include "streampipe_devices.h"
#include "tap.h"

#include <string>
#include <vector>

#include <dirent.h>

enum { /* what the system does */
    NOTHING,
    PARTS,     /* calls do a part, and are interrupted */
    BAD_READ,  /* a byte cannot be read */
    BAD_WRITE, /* a byte cannot be written */
    CUT,       /* the input becomes shorter */
    NUM_KINDS
};

static const char *const kinds[] = {"nothing", "parts", "bad read", "bad write", "cut"};

typedef std::vector<unsigned char> bytes_t;

enum {
    HEADER = 13,
    MOST_BYTES = 60000
};

/* One scene. */
typedef struct scene {
    unsigned number;
    int kind, kept, devices, header, edge;
    size_t bytes, offset, elem, chunk, before, after;
    spipe_file_way_t way, out_way;
    size_t count, used, bad; /* elements; bytes of them; the bad byte, from the first of them */
    bytes_t data;
    /* beside the files */
    bytes_t array, sunk;
    size_t sunk_bytes;
    int sink_wrong, progress_wrong;
    size_t told;
    std::string wrong; /* the first thing that is */
} scene_t;

static char folder[] = "/tmp/streampipe_torture.XXXXXX", in_name[128], out_name[128];

static void complain(scene_t *s, const char *format, ...) TAP_PRINTF(2, 3);

static void complain(scene_t *s, const char *format, ...) {
    char words[600];
    va_list args;
    if (!s->wrong.empty()) return;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    s->wrong = words;
}

static size_t pick(size_t n) { return torture_random() % n; }

static int one_in(size_t n) { return pick(n) == 0; }

/* ---- a scene ------------------------------------------------------------------------------- */
static void make_sizes(scene_t *s) {
    static const size_t elems[] = {1, 2, 3, 16, 100, 4096, 5000};
    const size_t most = one_in(3) ? 300 : MOST_BYTES;
    s->elem = one_in(2) ? elems[pick(7)] : 1 + pick(700);
    s->used = 1 + pick(most);
    s->offset = one_in(3) ? pick(5000) : 0;
    s->count = (s->used + s->elem - 1) / s->elem;
    s->chunk = 1 + pick(s->count);
    if (s->count / s->chunk > 40) s->chunk = s->count / 40 + 1;
    s->data.resize(s->offset + s->used);
    for (unsigned char &byte : s->data) byte = (unsigned char)torture_random();
    s->bytes = s->data.size();
}

static void make(scene_t *s, unsigned number, int kind) {
    *s = scene_t();
    torture_system.random = number * 2654435761u + 99;
    s->number = number;
    s->kind = kind;
    make_sizes(s);
    s->way = (spipe_file_way_t)pick(4);
    s->out_way = one_in(4) ? SPIPE_FILE_ORDERED : SPIPE_FILE_AUTO;
    s->kept = one_in(3) && s->way != SPIPE_FILE_ORDERED && s->out_way != SPIPE_FILE_ORDERED;
    s->devices = !s->kept && one_in(3) ? 2 + (int)pick(2) : 0;
    s->header = one_in(3);
    if (s->way != SPIPE_FILE_ORDERED && one_in(3)) {
        s->before = pick((s->chunk < 3 ? s->chunk : 3) + 1);
        s->after = pick((s->chunk < 3 ? s->chunk : 3) + 1);
        s->edge = (int)pick(2);
    }
    s->array.resize(s->count);
    for (unsigned char &byte : s->array) byte = (unsigned char)torture_random();
    s->bad = pick(s->used);
}

/* Byte k of element e of what is read; past its end there are zeros. */
static unsigned at(const scene_t *s, ptrdiff_t e, size_t k) {
    const ptrdiff_t last = (ptrdiff_t)s->count - 1;
    if ((e < 0 || e > last) && s->edge == SPIPE_EDGE_ZERO) return 0;
    if (e < 0) e = 0;
    if (e > last) e = last;
    const size_t byte = (size_t)e * s->elem + k;
    return byte < s->used ? s->data[s->offset + byte] : 0;
}

/* And of what comes out. */
static unsigned char want(const scene_t *s, size_t e, size_t k) {
    const unsigned left = at(s, (ptrdiff_t)e - (ptrdiff_t)s->before, k);
    const unsigned right = at(s, (ptrdiff_t)(e + s->after), k);
    return (unsigned char)(at(s, (ptrdiff_t)e, k) * 3 + left * 5 + right * 7 + s->array[e] + k);
}

/* ---- the pipeline -------------------------------------------------------------------------- */
typedef struct work {
    const unsigned char *in, *array;
    unsigned char *out, *sunk;
    size_t count, elem, before, after;
} work_t;

static __global__ void mix(work_t w) {
    for (size_t e = 0; e < w.count; ++e) {
        for (size_t k = 0; k < w.elem; ++k) {
            const unsigned char *of = w.in + e * w.elem + k;
            const unsigned left = *(of - w.before * w.elem), right = of[w.after * w.elem];
            w.out[e * w.elem + k] =
                (unsigned char)(*of * 3u + left * 5u + right * 7u + w.array[e] + k);
        }
        w.sunk[e] = w.out[e * w.elem];
    }
}

static cudaError_t stage(const spipe_chunk_t *c, void *user) {
    const scene_t *s = (const scene_t *)user;
    const work_t w = {(const unsigned char *)c->data[0],
                      (const unsigned char *)c->data[1],
                      (unsigned char *)c->data[2],
                      (unsigned char *)c->data[3],
                      c->count,
                      s->elem,
                      s->before,
                      s->after};
    return SPIPE_LAUNCH(mix, 1, 1, 0, c->stream, w);
}

static cudaError_t sink(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    scene_t *s = (scene_t *)user;
    s->sink_wrong |= first != s->sunk_bytes || first + count > s->count;
    if (s->sink_wrong) return cudaErrorUnknown;
    memcpy(&s->sunk[first], src, count);
    s->sunk_bytes += count;
    return cudaSuccess;
}

static int progress(const spipe_progress_t *p, void *user) {
    scene_t *s = (scene_t *)user;
    s->progress_wrong |=
        p->chunks_done < s->told || p->chunks_done * s->chunk > s->count + s->chunk;
    s->told = p->chunks_done;
    return 0;
}

static void describe(scene_t *s, spipe_desc_t *d, spipe_file_t *in, spipe_file_t *out) {
    static const int list[3] = {0, 0, 0};
    *d = spipe_desc_default();
    d->chunk = s->chunk;
    d->depth = 1 + pick(4);
    d->threads = pick(4);
    d->schedule = (spipe_schedule_t)pick(4);
    d->checked = one_in(6);
    if (one_in(4)) d->progress = progress;
    d->progress_user = s;
    in->way = s->way;
    in->offset = s->offset;
    in->length = s->used;
    out->way = s->out_way;
    if (s->header) out->offset = HEADER;
    spipe_add_file_input(d, in, s->elem);
    d->count = s->count; /* of a file that is read in order, too, because of the array */
    spipe_add_input(d, s->array.data(), 1);
    spipe_add_file_output(d, out, s->elem);
    spipe_add_sink(d, sink, s, 1, SPIPE_IN_ORDER);
    if (s->before + s->after > 0) {
        spipe_set_halo(d, 0, s->before, s->after, (spipe_edge_t)s->edge);
    }
    spipe_add_stage(d, "mix", stage, s);
    if (s->devices) spipe_devices_list(d, list, s->devices);
}

/* ---- the outcome --------------------------------------------------------------------------- */
/* The output's first elements are right, in an open file. */
static void check_bytes(scene_t *s, int fd, size_t elements) {
    const size_t skip = s->header ? HEADER : 0;
    size_t n = elements * s->elem, i;
    if (n > s->used && elements == s->count) n = s->used; /* what was committed ends there */
    bytes_t is(skip + n + 1);
    const ssize_t got = pread(fd, is.data(), skip + n, 0);
    if (got != (ssize_t)(skip + n)) complain(s, "%zd bytes, not %zu", got, skip + n);
    for (i = 0; i < n && s->wrong.empty(); ++i) {
        if (is[skip + i] != want(s, i / s->elem, i % s->elem)) {
            complain(s, "byte %zu of %zu, element %zu, is wrong", i, n, i / s->elem);
        }
    }
}

static int files_there(void) {
    DIR *dir = opendir(folder);
    int n = 0;
    while (dir && readdir(dir)) ++n;
    if (dir) closedir(dir);
    return n - 2; /* . and .. */
}

static void check_whole(scene_t *s, spipe_file_t *in, spipe_file_t *out, const spipe_report_t *r) {
    const size_t skip = s->header ? HEADER : 0, chunks = (s->count + s->chunk - 1) / s->chunk;
    struct stat st;
    size_t e;
    if (in->bytes != s->used || in->last_bytes != (s->used - 1) % s->elem + 1) {
        complain(s, "%zu bytes read, %zu of the last element", in->bytes, in->last_bytes);
    }
    if (r->failure.chunks_whole != chunks || r->failure.message[0]) {
        complain(s, "%zu of %zu chunks whole: %s", r->failure.chunks_whole, chunks,
                 r->failure.message);
    }
    for (e = 0; e < s->count; ++e) {
        if (s->sunk[e] != want(s, e, 0)) complain(s, "the sink's element %zu is wrong", e);
    }
    if (s->header && spipe_file_write(out, "thirteen byte", HEADER, 0, NULL) != cudaSuccess) {
        complain(s, "no header: %s", out->said.words);
    }
    if (files_there() != 1) complain(s, "it is there before it is committed");
    spipe_failure_t why;
    if (spipe_file_commit(out, skip + s->used, &why) != cudaSuccess) {
        complain(s, "not committed: %s", why.message);
    }
    const int fd = open(out_name, O_RDONLY);
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_size != (off_t)(skip + s->used)) {
        complain(s, "the output has not %zu bytes", skip + s->used);
    }
    if (s->wrong.empty()) check_bytes(s, fd, s->count);
    if (fd >= 0) (void)close(fd);
    (void)remove(out_name);
}

/* The first chunk that needs the bad byte, of an input with its halo; and the last. */
static size_t bad_chunk(const scene_t *s, int last) {
    const size_t e = s->bad / s->elem, most = (s->count - 1) / s->chunk;
    size_t chunk;
    if (last && (torture_system.lasts || s->kind == CUT)) return most;
    if (s->kind == BAD_WRITE) return e / s->chunk;
    chunk = (e > s->after ? e - s->after : 0) / s->chunk;
    if (last) chunk = (e + s->before) / s->chunk;
    return chunk < most ? chunk : most;
}

static size_t told_byte(const char *message) {
    const char *at_byte = strstr(message, "at byte ");
    size_t byte = 0;
    return at_byte && sscanf(at_byte, "at byte %zu", &byte) == 1 ? byte : SIZE_MAX;
}

/* Whether a chunk needs a byte of the file, with its halo, and calls for such bytes fail. */
static int told_fits(const scene_t *s, size_t byte, size_t chunk) {
    const int reading = s->kind != BAD_WRITE;
    const size_t skip = reading ? s->offset : (size_t)(HEADER * s->header);
    const size_t e = byte < skip ? SIZE_MAX / 2 : (byte - skip) / s->elem;
    const size_t before = reading ? s->before : 0;
    const size_t after = reading ? s->after : 0;
    const size_t first = chunk * s->chunk, end = first + s->chunk;
    return e + before >= first && e < end + after && byte >= torture_system.least;
}

static void check_failure(scene_t *s, cudaError_t e, const spipe_file_t *out,
                          const spipe_report_t *r) {
    const torture_system_t *sys = &torture_system;
    const int writing = s->kind == BAD_WRITE;
    const spipe_failure_t *f = &r->failure;
    const size_t first = bad_chunk(s, 0), last = s->devices ? bad_chunk(s, 1) : first;
    const char *why = "no more bytes come, though it is as long as it was";
    char text[400];
    if (s->kind != CUT) why = strerror(sys->bad_errno[writing]);
    /* Of several GPUs the one is told that failed first; of two chunks that both need the byte,
       because of a halo, the first one's read. */
    const int shared = s->devices || s->before + s->after > 0;
    const size_t told = shared ? told_byte(f->message) : sys->least.load();
    if (!told_fits(s, told, f->chunk)) complain(s, "byte %zu: %s", told, f->message);
    snprintf(text, sizeof text, "%s %s at byte %zu: %s", writing ? "writing" : "reading",
             writing ? out_name : in_name, told, why);
    if (e != cudaErrorOperatingSystem || f->error != e || !strstr(f->message, text)) {
        complain(s, "%s, not '%s': %s", cudaGetErrorName(e), text, f->message);
    }
    if (f->chunk < first || f->chunk > last || f->chunks_whole > f->chunk) {
        complain(s, "chunk %zu, not %zu to %zu; %zu whole: %s", f->chunk, first, last,
                 f->chunks_whole, f->message);
    }
    if (!s->devices && f->chunks_whole != first) {
        complain(s, "%zu chunks are whole, not %zu: %s", f->chunks_whole, first, f->message);
    }
    if (s->sunk_bytes < f->chunks_whole * s->chunk) {
        complain(s, "%zu chunks whole, but the sink had %zu", f->chunks_whole, s->sunk_bytes);
    }
    const int header = s->header;
    if (s->wrong.empty() && !header) check_bytes(s, out->fd, f->chunks_whole * s->chunk);
    if (files_there() != 1) complain(s, "a file is there, though the run failed");
}

/* ---- one scene ----------------------------------------------------------------------------- */
/* What the system does from now on. */
static void meddle(scene_t *s) {
    static const int of_reads[] = {EIO, ENXIO, ESTALE}, of_writes[] = {ENOSPC, EIO, EDQUOT, EFBIG};
    torture_system_t *sys = &torture_system;
    sys->is_short = s->kind != NOTHING && (s->kind == PARTS || one_in(2));
    sys->lasts = one_in(2);
    sys->least = SIZE_MAX;
    if (s->kind == BAD_READ) sys->bad_errno[READING] = of_reads[pick(3)];
    if (s->kind == BAD_WRITE) sys->bad_errno[WRITING] = of_writes[pick(4)];
    sys->bad_at[READING] = s->offset + s->bad;
    sys->bad_at[WRITING] = s->bad + (s->header ? HEADER : 0);
    if (s->kind == CUT) sys->cut = s->offset + s->bad;
}

static void start(scene_t *s) {
    s->sunk.assign(s->count, 0xEE);
    s->sunk_bytes = s->told = 0;
}

static void judge(scene_t *s, cudaError_t e, spipe_file_t *in, spipe_file_t *out,
                  const spipe_report_t *r) {
    if (s->kind == NOTHING || s->kind == PARTS)
        check_whole(s, in, out, r);
    else
        check_failure(s, e, out, r);
    if (s->sink_wrong || s->progress_wrong) {
        complain(s, "sink %d, progress %d", s->sink_wrong, s->progress_wrong);
    }
}

/* A run that fails, one that fails elsewhere, and one that is right. */
static void run_kept(scene_t *s, const spipe_desc_t *d, spipe_file_t *in, spipe_file_t *out) {
    const int kind = s->kind;
    spipe_pipeline_t *p;
    spipe_report_t r;
    cudaError_t e = spipe_pipeline_create(&p, d, &r.failure);
    int k;
    if (e != cudaSuccess) return complain(s, "create: %s", r.failure.message);
    for (k = 0; k < 3 && s->wrong.empty(); ++k) {
        if (k > 0) s->bad = pick(s->used);
        if (k == 2) s->kind = PARTS;
        torture_system_mend();
        meddle(s);
        start(s);
        e = spipe_pipeline_run(p, &r);
        if (k == 2 || s->kind > PARTS) {
            judge(s, e, in, out, &r);
        } else if (e != cudaSuccess) {
            complain(s, "run %d: %s", k, r.failure.message);
        }
    }
    s->kind = kind;
    e = spipe_pipeline_destroy(p);
    if (e != cudaSuccess) complain(s, "destroy: %s", cudaGetErrorName(e));
}

static void run(scene_t *s) {
    spipe_file_t in, out;
    spipe_failure_t f;
    spipe_report_t r;
    spipe_desc_t d;
    FILE *file = fopen(in_name, "wb");
    if (!file || fwrite(s->data.data(), 1, s->bytes, file) != s->bytes || fclose(file)) exit(99);
    torture_system_mend();
    torture_system.cold = one_in(2);
    SPIPE_CHECK(spipe_file_open(&in, in_name, &f));
    SPIPE_CHECK(spipe_file_create(&out, out_name, &f));
    describe(s, &d, &in, &out);
    if (d.problem) complain(s, "%s", d.problem);
    if (s->kept) {
        run_kept(s, &d, &in, &out);
    } else {
        meddle(s);
        start(s);
        const cudaError_t e = spipe_run(&d, &r);
        judge(s, e, &in, &out, &r);
    }
    torture_system_mend();
    spipe_file_close(&in);
    spipe_file_close(&out);
    if (files_there() != 1) complain(s, "%d files are left", files_there() - 1);
    if (hostcuda_leaks(NULL) != 0) complain(s, "%d things are left alive", hostcuda_leaks(stderr));
    if (s->wrong.empty()) return;
    tap_note("scene %u, %s: %zu+%zu bytes, elements of %zu, chunks of %zu, halo %zu+%zu, way %d to "
             "%d, kept %d, devices %d, threads %zd, schedule %d, bad %zu",
             s->number, kinds[s->kind], s->offset, s->used, s->elem, s->chunk, s->before, s->after,
             (int)s->way, (int)s->out_way, s->kept, s->devices, (ssize_t)d.threads, (int)d.schedule,
             s->bad);
    tap_note("%s", s->wrong.c_str());
}

static void torture(int kind, unsigned num, unsigned seed) {
    torture_system_t *sys = &torture_system;
    unsigned k, wrong = 0;
    sys->parts = sys->interrupts = sys->errors = 0;
    for (k = 0; k < num && wrong < 5; ++k) {
        scene_t s;
        make(&s, seed + k, kind);
        run(&s);
        wrong += !s.wrong.empty();
    }
    const int met = kind == NOTHING ||
                    (sys->parts > 0 && sys->interrupts > 0 && (kind == PARTS || sys->errors > 0));
    tap_ok(wrong == 0 && met,
           "%s: %u files, %ld calls that did a part, %ld interrupted, %ld failed: %u wrong",
           kinds[kind], k, sys->parts.load(), sys->interrupts.load(), sys->errors.load(), wrong);
}

int main(int argc, char **argv) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    unsigned num = 25;
#else
    unsigned num = 100;
#endif
    unsigned seed = 1;
    int i, kind;
    for (i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--all") == 0)
            num *= 10;
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = (unsigned)atoi(argv[++i]);
    }
    torture_system_begin();
    if (!mkdtemp(folder)) exit(99);
    snprintf(in_name, sizeof in_name, "%s/in", folder);
    snprintf(out_name, sizeof out_name, "%s/out", folder);
    for (kind = NOTHING; kind < NUM_KINDS; ++kind) torture(kind, num, seed * 100000 + 7);
    (void)remove(in_name);
    (void)rmdir(folder);
    return tap_done();
}
#endif
