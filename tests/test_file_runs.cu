/*  test_file_runs.cu -- a file and its runs: each description has the part that was asked for when
    it was made, each run gets that part from its beginning, lengths that were not stated agree, and
    what a run did not write to the end is not committed. */
#ifndef _WIN32
#include "pipe_common.h"
#include "streampipe_devices.h"
#include "streampipe_files.h"

#include <string>
#include <vector>

#include <errno.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/time.h>

typedef std::vector<unsigned char> bytes_t;

static char folder[] = "/tmp/streampipe_runs.XXXXXX";
static std::string in_name, out_name;

static void write_file(const std::string &name, const bytes_t &data) {
    FILE *f = fopen(name.c_str(), "wb");
    for (size_t k = 0; f && k < data.size(); ++k) (void)putc(data[k], f);
    if (!f || fclose(f) != 0) exit(99);
}

static bytes_t read_file(const std::string &name) {
    bytes_t data;
    FILE *f = fopen(name.c_str(), "rb");
    for (int c = f ? getc(f) : EOF; c != EOF; c = getc(f)) data.push_back((unsigned char)c);
    if (f) fclose(f);
    return data;
}

static bytes_t some(size_t n) {
    bytes_t data(n);
    for (unsigned char &byte : data) byte = (unsigned char)pipe_random();
    return data;
}

static bytes_t part(const bytes_t &of, size_t from, size_t n) {
    return bytes_t(of.begin() + (ptrdiff_t)from, of.begin() + (ptrdiff_t)(from + n));
}

static bytes_t operator+(bytes_t a, const bytes_t &b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

static int says(const char *text, const char *a, const char *b = "") {
    return strstr(text, a) && strstr(text, b);
}

/* Buffer 1 becomes buffer 0; fails at a chunk, where one is named. */
static size_t bad_chunk = SIZE_MAX;

static cudaError_t keep(const spipe_chunk_t *c, void *) {
    if (c->index == bad_chunk) return cudaErrorNotSupported;
    return cudaMemcpyAsync(c->data[1], c->data[0], c->count * c->elem_bytes[0],
                           cudaMemcpyDeviceToDevice, c->stream);
}

/* Elements that a sink is given. */
static bytes_t taken;

static cudaError_t take(const spipe_part_t *part, void *user) {
    const void *src = part->data;
    const size_t first = part->first, count = part->count;
    const size_t elem = *(const size_t *)user;
    taken.resize((first + count) * elem);
    memcpy(&taken[first * elem], src, count * elem);
    return cudaSuccess;
}

static const size_t one = 1, ten = 10;

/* A description: a file, and what becomes of it. */
static spipe_desc_t reads(spipe_file_t *in, size_t elem = 10) {
    spipe_desc_t d = spipe_desc_default();
    d.chunk = 7;
    spipe_add_file_input(&d, in, elem);
    spipe_add_sink(&d, take, (void *)(elem == 1 ? &one : &ten), elem, SPIPE_IN_ORDER);
    spipe_add_stage(&d, "keep", keep, NULL);
    return d;
}

static spipe_desc_t copies(spipe_file_t *in, spipe_file_t *out, size_t elem = 10) {
    spipe_desc_t d = spipe_desc_default();
    d.chunk = 7;
    spipe_add_file_input(&d, in, elem);
    spipe_add_file_output(&d, out, elem);
    spipe_add_stage(&d, "keep", keep, NULL);
    return d;
}

static int gives(const spipe_desc_t &d, const bytes_t &want, spipe_report_t *r) {
    taken.clear();
    return spipe_run(&d, r) == cudaSuccess && taken == want;
}

static const char *const ways[] = {"chosen", "page cache", "past the cache", "in order"};

/* ---- what was asked for, and what was found -------------------------------------------------- */
static void test_described_again(int way) {
    const bytes_t data = some(1000);
    spipe_file_t in;
    spipe_report_t r;
    spipe_plan_t plan;
    memset(&r, 0, sizeof r);
    write_file(in_name, data);
    SPIPE_CHECK(spipe_file_open(&in, in_name.c_str(), NULL));
    in.way = (spipe_file_way_t)way;
    in.offset = 900;
    const spipe_desc_t tail = reads(&in);
    tap_ok(gives(tail, part(data, 900, 100), &r) && in.bytes == 100 && in.count == 10,
           "%s: from byte 900: %s", ways[way], r.failure.message);
    in.offset = 0;
    spipe_desc_t d = reads(&in);
    tap_ok(gives(d, data, &r) && in.bytes == 1000 && in.last_bytes == 10,
           "%s: then from byte 0: all 1000 bytes, not the 100 of before: %s", ways[way],
           r.failure.message);
    tap_ok(gives(tail, part(data, 900, 100), &r),
           "%s: and the first description still has its part", ways[way]);
    d = reads(&in, 1);
    d.count = 8;
    tap_ok(gives(d, part(data, 0, 8), &r), "%s: 8 elements", ways[way]);
    in.offset = 8;
    tap_ok(gives(reads(&in, 1), part(data, 8, 992), &r), "%s: then the 992 after them: %s",
           ways[way], r.failure.message);
    in.length = 80;
    tap_ok(gives(reads(&in), part(data, 8, 80), &r), "%s: 80 of them", ways[way]);
    in.length = SPIPE_AUTO;
    in.offset = 0;
    d = reads(&in);
    SPIPE_CHECK(spipe_plan(&d, 0, &plan, NULL));
    d = reads(&in);
    tap_ok(plan.count == 100 && gives(d, data, &r), "%s: added, planned, added again: all of it",
           ways[way]);
    in.bytes = 80;
    d = reads(&in);
    tap_ok(d.problem && says(d.problem, "assign length", in_name.c_str()), "%s",
           d.problem ? d.problem : "");
    spipe_file_close(&in);
}

/* An output that is written in parts, by several descriptions, and in part again. */
static void test_written_again(int way) {
    const bytes_t data = some(1000);
    spipe_file_t in, out;
    spipe_pipeline_t *p;
    spipe_report_t r;
    int good = 1;
    write_file(in_name, data);
    SPIPE_CHECK(spipe_file_open(&in, in_name.c_str(), NULL));
    SPIPE_CHECK(spipe_file_create(&out, out_name.c_str(), NULL));
    out.way = (spipe_file_way_t)way;
    in.length = 500;
    out.offset = 503;
    const spipe_desc_t second = copies(&in, &out);
    in.offset = 500;
    out.offset = 3;
    const spipe_desc_t first = copies(&in, &out);
    SPIPE_CHECK(spipe_file_write(&out, "abc", 3, 0, NULL));
    SPIPE_CHECK_RUN(&second, NULL);
    SPIPE_CHECK_RUN(&first, NULL);
    SPIPE_CHECK_RUN(&second, NULL);
    good &= out.bytes == 1003;
    SPIPE_CHECK(spipe_file_commit(&out, SPIPE_AUTO, NULL));
    spipe_file_close(&out);
    good &=
        read_file(out_name) == bytes_t{'a', 'b', 'c'} + part(data, 500, 500) + part(data, 0, 500);
    tap_ok(good, "%s: two parts and a header, each written by itself", ways[way]);
    SPIPE_CHECK(spipe_file_create(&out, out_name.c_str(), NULL));
    out.way = (spipe_file_way_t)way;
    in.offset = 0;
    const spipe_desc_t d = copies(&in, &out);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_run(p, NULL));
    SPIPE_CHECK(spipe_pipeline_set_count(p, 20));
    SPIPE_CHECK(spipe_pipeline_run(p, NULL));
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(spipe_file_commit(&out, SPIPE_AUTO, NULL));
    tap_ok(read_file(out_name) == part(data, 0, 200),
           "%s: a shorter run leaves nothing of the longer one before it", ways[way]);
    tap_ok(spipe_run(&d, NULL) == cudaErrorInvalidValue, "%s: committed, it takes no run",
           ways[way]);
    spipe_file_close(&out);
    SPIPE_CHECK(spipe_file_create(&out, out_name.c_str(), NULL));
    tap_ok(spipe_run(&d, &r) == cudaErrorInvalidValue && says(r.failure.message, "add it again"),
           "%s: %s", ways[way], r.failure.message);
    spipe_file_close(&out);
    spipe_file_close(&in);
    (void)remove(out_name.c_str());
}

/* ---- lengths --------------------------------------------------------------------------------- */
static void test_two_files(int way) {
    const bytes_t data = some(1500);
    const std::string other = std::string(folder) + "/other";
    spipe_file_t a, b;
    spipe_failure_t f;
    spipe_report_t r;
    write_file(in_name, part(data, 0, 1000));
    write_file(other, data);
    SPIPE_CHECK(spipe_file_open(&a, in_name.c_str(), NULL));
    SPIPE_CHECK(spipe_file_open(&b, other.c_str(), NULL));
    a.way = b.way = (spipe_file_way_t)way;
    for (int k = 0; k < 2; ++k) {
        spipe_desc_t d = spipe_desc_default();
        spipe_add_file_input(&d, k ? &b : &a, 10);
        spipe_add_sink(&d, take, (void *)&ten, 10, SPIPE_IN_ORDER);
        spipe_add_file_input(&d, k ? &a : &b, 10);
        spipe_add_stage(&d, "keep", keep, NULL);
        tap_ok(spipe_run(&d, &r) == cudaErrorInvalidValue &&
                   says(r.failure.message, "150", "100") &&
                   spipe_desc_check(&d, &f) == cudaErrorInvalidValue,
               "%s: %s", ways[way], r.failure.message);
        d.count = 100;
        tap_ok(gives(d, part(data, 0, 1000), &r), "%s: with a count of 100: right", ways[way]);
    }
    spipe_file_close(&a);
    spipe_file_close(&b);
    (void)remove(other.c_str());
}

/* Nobody knows how long an array is but its owner. */
static void test_beside_array(int way) {
    const bytes_t data = some(1500);
    bytes_t y(1500, 7);
    spipe_file_t in;
    spipe_report_t r;
    write_file(in_name, data);
    SPIPE_CHECK(spipe_file_open(&in, in_name.c_str(), NULL));
    in.way = (spipe_file_way_t)way;
    for (int kind = 0; kind < 3; ++kind) {
        spipe_desc_t d = spipe_desc_default();
        spipe_add_file_input(&d, &in, 10);
        if (kind == 0) spipe_add_output(&d, y.data(), 10);
        if (kind == 1) spipe_add_inout(&d, y.data(), 10);
        if (kind == 2) spipe_add_temp(&d, 10);
        if (kind == 2) spipe_add_input(&d, y.data(), 10);
        spipe_add_stage(&d, "keep", keep, NULL);
        tap_ok(spipe_run(&d, &r) == cudaErrorInvalidValue && says(r.failure.message, "set count") &&
                   y == bytes_t(1500, 7),
               "%s: %s", ways[way], r.failure.message);
        d.count = 100;
        const int right = spipe_run(&d, &r) == cudaSuccess;
        bytes_t want(1500, 7);
        if (kind < 2) memcpy(want.data(), data.data(), 1000);
        tap_ok(right && y == want, "%s: with its length: right, and nothing behind it is touched",
               ways[way]);
        y.assign(1500, 7);
        d.count = 150; /* as many as the file has, stated after it was added */
        tap_ok(spipe_run(&d, &r) == cudaSuccess, "%s: with the file's length, stated: %s",
               ways[way], r.failure.message);
        y.assign(1500, 7);
    }
    spipe_file_close(&in);
}

static void test_empty(int way) {
    bytes_t y(100, 7);
    spipe_file_t in, out;
    spipe_report_t r;
    write_file(in_name, bytes_t());
    SPIPE_CHECK(spipe_file_open(&in, in_name.c_str(), NULL));
    SPIPE_CHECK(spipe_file_create(&out, out_name.c_str(), NULL));
    in.way = (spipe_file_way_t)way;
    spipe_desc_t d = spipe_desc_default();
    spipe_add_file_input(&d, &in, 10);
    spipe_add_output(&d, y.data(), 10);
    spipe_add_file_output(&d, &out, 10);
    spipe_add_stage(&d, "keep", keep, NULL);
    tap_ok(spipe_run(&d, &r) == cudaSuccess && r.count_done == 0 && y == bytes_t(100, 7) &&
               in.regular && in.count == 0 && in.bytes == 0,
           "%s: an empty file has no elements, beside an array, too: %s", ways[way],
           r.failure.message);
    SPIPE_CHECK(spipe_file_commit(&out, SPIPE_AUTO, NULL));
    tap_ok(access(out_name.c_str(), F_OK) == 0 && read_file(out_name).empty(),
           "%s: and its copy is empty", ways[way]);
    spipe_file_close(&in);
    spipe_file_close(&out);
    (void)remove(out_name.c_str());
}

static void test_beyond_the_end(int way) {
    const bytes_t data = some(995);
    spipe_file_t in;
    spipe_failure_t f;
    spipe_report_t r;
    spipe_pipeline_t *p;
    write_file(in_name, data);
    SPIPE_CHECK(spipe_file_open(&in, in_name.c_str(), NULL));
    in.way = (spipe_file_way_t)way;
    spipe_desc_t d = reads(&in);
    tap_ok(gives(d, data + bytes_t(5, 0), &r) && in.last_bytes == 5,
           "%s: a last element that is cut short is padded", ways[way]);
    d.count = 101;
    tap_ok(spipe_desc_check(&d, &f) == cudaErrorInvalidValue &&
               spipe_run(&d, &r) == cudaErrorInvalidValue &&
               strcmp(f.message, r.failure.message) == 0 &&
               says(f.message, in_name.c_str(), "ends at byte 995") &&
               says(f.message, "101 elements", "byte 1010") && !says(f.message, "shorter"),
           "%s: %s", ways[way], r.failure.message);
    d.count = 100;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_run(p, NULL));
    const cudaError_t e = spipe_pipeline_set_count(p, 2000);
    f = *spipe_pipeline_failure(p);
    tap_ok(e == cudaErrorInvalidValue && says(f.message, "ends at byte 995", "byte 20000"),
           "%s, set_count: %s", ways[way], f.message);
    taken.clear();
    tap_ok(spipe_pipeline_run(p, &r) == cudaSuccess && taken == data + bytes_t(5, 0),
           "%s: and the pipeline stays as it was", ways[way]);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    in.length = 500;
    d = reads(&in);
    d.count = 51;
    tap_ok(spipe_run(&d, &r) == cudaErrorInvalidValue &&
               says(r.failure.message, "part ends at byte 500", "byte 510"),
           "%s: %s", ways[way], r.failure.message);
    spipe_file_close(&in);
}

/* ---- each run from the beginning ------------------------------------------------------------- */
static void test_kept(int way, spipe_resources_t *resources) {
    const bytes_t data = some(1000);
    spipe_file_t in;
    spipe_pipeline_t *p;
    spipe_report_t r;
    int k, good = 1;
    write_file(in_name, data);
    SPIPE_CHECK(spipe_file_open(&in, in_name.c_str(), NULL));
    in.way = (spipe_file_way_t)way;
    in.offset = 100;
    spipe_desc_t d = reads(&in);
    d.resources = resources;
    d.count = 33;
    for (k = 0; k < 4; ++k) good &= gives(d, part(data, 100, 330), &r);
    tap_ok(good, "%s: each of four calls%s gives the same part: %s", ways[way],
           resources ? " with resources" : "", r.failure.message);
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (good = 1, k = 0; k < 12; ++k) {
        if (k == 8) SPIPE_CHECK(spipe_pipeline_set_count(p, 20));
        if (k == 10) SPIPE_CHECK(spipe_pipeline_set_count(p, 90));
        size_t n = k < 8 ? 330 : 200;
        if (k >= 10) n = 900;
        taken.clear();
        good &= spipe_pipeline_run(p, &r) == cudaSuccess && taken == part(data, 100, n);
    }
    tap_ok(good, "%s: and each of twelve runs of a kept pipeline%s: %s", ways[way],
           resources ? " with resources" : "", r.failure.message);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    spipe_file_close(&in);
}

/* Calls that state no count are the same call, too: one pipeline runs them. */
static void test_calls(spipe_resources_t *resources) {
    spipe_file_t in;
    int k;
    write_file(in_name, some(1000));
    SPIPE_CHECK(spipe_file_open(&in, in_name.c_str(), NULL));
    spipe_desc_t d = reads(&in, 2);
    d.resources = resources;
    const size_t before = resources->calls.num_idle;
    for (k = 0; k < 6; ++k) SPIPE_CHECK_RUN(&d, NULL);
    tap_ok(resources->calls.num_idle == before + 1, "six calls with resources have one pipeline");
    spipe_file_close(&in);
}

static void test_pull(int way) {
    const bytes_t data = some(1000);
    spipe_file_t in;
    spipe_pipeline_t *p;
    spipe_chunk_t c;
    cudaStream_t stream;
    int k, n, good = 1;
    write_file(in_name, data);
    SPIPE_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    SPIPE_CHECK(spipe_file_open(&in, in_name.c_str(), NULL));
    in.way = (spipe_file_way_t)way;
    spipe_desc_t d = reads(&in);
    d.num_stages = 0;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    for (k = 0; k < 3; ++k) { /* a loop that is left, and begun again */
        taken.clear();
        for (n = 0; n < (k < 2 ? 3 : 1000); ++n) {
            SPIPE_CHECK(spipe_pipeline_next(p, stream, &c));
            if (c.count == 0) break;
            SPIPE_CHECK(keep(&c, NULL));
            SPIPE_CHECK(cudaMemcpyAsync(c.data[1], c.data[0], c.count * 10,
                                        cudaMemcpyDeviceToDevice, stream));
            SPIPE_CHECK(spipe_pipeline_release(p, stream));
        }
        if (k < 2) SPIPE_CHECK(spipe_pipeline_end(p, NULL));
        good &= taken == (k < 2 ? part(data, 0, 210) : data);
    }
    tap_ok(good, "%s: a loop that was left begins with the first chunk again", ways[way]);
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(cudaStreamDestroy(stream));
    spipe_file_close(&in);
}

/* A pipe with so many bytes, and its other end closed. */
static int full_pipe(const bytes_t &data) {
    int ends[2];
    if (pipe(ends) != 0 || write(ends[1], data.data(), data.size()) != (ssize_t)data.size())
        exit(99);
    (void)close(ends[1]);
    return ends[0];
}

static void open_fd(spipe_file_t *f, int fd) {
    const std::string name = "/dev/fd/" + std::to_string(fd);
    static std::vector<std::string> names;
    names.reserve(100);
    names.push_back(name);
    SPIPE_CHECK(spipe_file_open(f, names.back().c_str(), NULL));
}

static void test_pipe_twice(void) {
    const bytes_t data = some(1000);
    spipe_file_t in, refuses;
    spipe_report_t r;
    const int fd = full_pipe(data);
    open_fd(&in, fd);
    SPIPE_CHECK(spipe_file_open(&refuses, in_name.c_str(), NULL));
    spipe_desc_t d = reads(&in);
    d.count = 30;
    spipe_desc_t other = d; /* a buffer behind the pipe refuses the run before it reads */
    write_file(in_name, data);
    spipe_file_close(&refuses);
    SPIPE_CHECK(spipe_file_create(&refuses, out_name.c_str(), NULL));
    spipe_add_file_output(&other, &refuses, 10);
    spipe_file_close(&refuses);
    tap_ok(spipe_run(&other, &r) == cudaErrorInvalidValue && says(r.failure.message, "closed"),
           "%s", r.failure.message);
    tap_ok(gives(d, part(data, 0, 300), &r), "a run that was refused has not read of a pipe: %s",
           r.failure.message);
    taken.clear();
    tap_ok(spipe_run(&d, &r) == cudaErrorNotPermitted && taken.empty() &&
               says(r.failure.message, in.path, "only once") && r.failure.chunks_whole == 0,
           "%s", r.failure.message);
    spipe_file_close(&in);
    (void)close(fd);
    const int more = full_pipe(data);
    open_fd(&in, more);
    in.length = 1001;
    d = reads(&in);
    tap_ok(in.count == 101 && spipe_run(&d, &r) == cudaErrorOperatingSystem &&
               says(r.failure.message, "at byte 1000", in.path),
           "%s", r.failure.message);
    spipe_file_close(&in);
    (void)close(more);
}

/* ---- commit ---------------------------------------------------------------------------------- */
static int stop(const spipe_progress_t *p, void *) { return p->chunks_done >= 3; }

static int refused(spipe_file_t *out, const bytes_t &old, const char *words) {
    spipe_failure_t f;
    const cudaError_t e = spipe_file_commit(out, SPIPE_AUTO, &f);
    const int right = e == cudaErrorNotPermitted && says(f.message, words, out_name.c_str()) &&
                      read_file(out_name) == old;
    if (!right) tap_note("%s: %s", cudaGetErrorName(e), f.message);
    return right;
}

static void test_commit(int way) {
    static const int list[2] = {0, 0};
    const bytes_t data = some(1000), old = some(20);
    spipe_file_t in, out;
    spipe_report_t r;
    write_file(in_name, data);
    write_file(out_name, old);
    SPIPE_CHECK(spipe_file_open(&in, in_name.c_str(), NULL));
    SPIPE_CHECK(spipe_file_create(&out, out_name.c_str(), NULL));
    out.way = (spipe_file_way_t)way;
    spipe_desc_t d = copies(&in, &out);
    tap_ok(refused(&out, old, "no run has written"), "%s: not before a run", ways[way]);
    bad_chunk = 5;
    tap_ok(spipe_run(&d, &r) == cudaErrorNotSupported && refused(&out, old, "failed"),
           "%s: not after a run whose stage failed", ways[way]);
    spipe_devices_list(&d, list, 2);
    tap_ok(spipe_run(&d, &r) == cudaErrorNotSupported && refused(&out, old, "failed"),
           "%s: nor on several GPUs", ways[way]);
    bad_chunk = SIZE_MAX;
    d.hooks = NULL;
    d.progress = stop;
    tap_ok(spipe_run(&d, &r) == SPIPE_STOPPED && refused(&out, old, "failed"),
           "%s: nor after one that was stopped", ways[way]);
    d.progress = NULL;
    d.count = 101;
    tap_ok(spipe_run(&d, &r) == cudaErrorInvalidValue && refused(&out, old, "failed"),
           "%s: nor after one that was refused", ways[way]);
    d.count = SPIPE_AUTO;
    SPIPE_CHECK_RUN(&d, &r);
    d.count = 101;
    tap_ok(spipe_run(&d, &r) == cudaErrorInvalidValue &&
               spipe_file_commit(&out, SPIPE_AUTO, NULL) == cudaSuccess &&
               read_file(out_name) == data,
           "%s: but after one that succeeded, and one that wrote nothing", ways[way]);
    spipe_file_close(&out);
    write_file(out_name, old);
    SPIPE_CHECK(spipe_file_create(&out, out_name.c_str(), NULL));
    d = copies(&in, &out);
    SPIPE_CHECK(spipe_file_write(&out, data.data(), 10, 0, NULL));
    tap_ok(spipe_file_commit(&out, SPIPE_AUTO, NULL) == cudaSuccess &&
               read_file(out_name) == part(data, 0, 10),
           "%s: or after spipe_file_write alone", ways[way]);
    spipe_file_close(&out);
    spipe_file_close(&in);
    (void)remove(out_name.c_str());
}

/* A part that failed is not mended by another part. */
static void test_commit_parts(void) {
    const bytes_t data = some(1000), old = some(20);
    spipe_file_t in, out;
    write_file(in_name, data);
    write_file(out_name, old);
    SPIPE_CHECK(spipe_file_open(&in, in_name.c_str(), NULL));
    SPIPE_CHECK(spipe_file_create(&out, out_name.c_str(), NULL));
    in.length = 500;
    const spipe_desc_t first = copies(&in, &out);
    in.offset = out.offset = 500;
    const spipe_desc_t second = copies(&in, &out);
    bad_chunk = 5;
    int good = spipe_run(&first, NULL) == cudaErrorNotSupported;
    bad_chunk = SIZE_MAX;
    SPIPE_CHECK_RUN(&second, NULL);
    good &= refused(&out, old, "failed");
    SPIPE_CHECK_RUN(&first, NULL);
    good &= spipe_file_commit(&out, SPIPE_AUTO, NULL) == cudaSuccess && read_file(out_name) == data;
    tap_ok(good, "a part that failed must be written again, whatever other part succeeded");
    spipe_file_close(&out);
    spipe_file_close(&in);
    (void)remove(out_name.c_str());
}

/* ---- several runs at once -------------------------------------------------------------------- */
/* In the middle of a loop of one pipeline, a run of another description. */
static void test_at_once(int way) {
    const bytes_t data = some(1000), old = some(20);
    spipe_file_t in, out, same;
    spipe_failure_t f;
    spipe_pipeline_t *p;
    spipe_chunk_t c;
    cudaStream_t stream;
    spipe_report_t r;
    write_file(in_name, data);
    write_file(out_name, old);
    SPIPE_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    SPIPE_CHECK(spipe_file_open(&in, in_name.c_str(), NULL));
    SPIPE_CHECK(spipe_file_open(&same, in_name.c_str(), NULL));
    SPIPE_CHECK(spipe_file_create(&out, out_name.c_str(), NULL));
    in.way = out.way = (spipe_file_way_t)way;
    spipe_desc_t d = copies(&in, &out), again = reads(&in), writes = copies(&same, &out);
    in.offset = 100;
    spipe_desc_t part_of_it = reads(&in);
    d.num_stages = 0;
    SPIPE_CHECK(spipe_pipeline_create(&p, &d, NULL));
    SPIPE_CHECK(spipe_pipeline_next(p, stream, &c));
    const cudaError_t e = spipe_run(&again, &r);
    if (way == SPIPE_FILE_ORDERED)
        tap_ok(e == cudaErrorNotPermitted && says(r.failure.message, in_name.c_str(), "once more"),
               "in order: %s", r.failure.message);
    else
        tap_ok(e == cudaSuccess && taken == data, "%s: two runs read the same part: right",
               ways[way]);
    tap_ok(spipe_run(&part_of_it, &r) == cudaErrorNotPermitted &&
               says(r.failure.message, in_name.c_str(), "once more"),
           "%s: another part: %s", ways[way], r.failure.message);
    tap_ok(spipe_run(&writes, &r) == cudaErrorNotPermitted &&
               says(r.failure.message, out_name.c_str(), "another run writes it"),
           "%s: %s", ways[way], r.failure.message);
    tap_ok(spipe_file_commit(&out, SPIPE_AUTO, &f) == cudaErrorNotPermitted &&
               says(f.message, "a run is writing it", out_name.c_str()) &&
               read_file(out_name) == old,
           "%s: %s", ways[way], f.message);
    while (c.count > 0) {
        SPIPE_CHECK(
            cudaMemcpyAsync(c.data[1], c.data[0], c.count * 10, cudaMemcpyDeviceToDevice, stream));
        SPIPE_CHECK(spipe_pipeline_release(p, stream));
        SPIPE_CHECK(spipe_pipeline_next(p, stream, &c));
    }
    SPIPE_CHECK(spipe_pipeline_destroy(p));
    SPIPE_CHECK(spipe_file_commit(&out, SPIPE_AUTO, NULL));
    tap_ok(read_file(out_name) == data && gives(part_of_it, part(data, 100, 900), &r),
           "%s: the first run is right, and after it the others may run", ways[way]);
    spipe_file_close(&out);
    spipe_file_close(&same);
    spipe_file_close(&in);
    SPIPE_CHECK(cudaStreamDestroy(stream));
    (void)remove(out_name.c_str());
}

typedef struct reader {
    const spipe_desc_t *d;
    int right;
} reader_t;

static cudaError_t count_up(const spipe_part_t *part, void *user) {
    __atomic_add_fetch((size_t *)user, part->count, __ATOMIC_RELAXED);
    return cudaSuccess;
}

static void *read_often(void *arg) {
    reader_t *r = (reader_t *)arg;
    spipe_desc_t d = *r->d;
    size_t n = 0;
    int k;
    d.buffers[1].user = &n;
    for (r->right = 1, k = 0; k < 30; ++k) r->right &= spipe_run(&d, NULL) == cudaSuccess;
    r->right &= n == 30 * 100;
    return NULL;
}

static void test_threads(void) {
    pthread_t threads[4];
    reader_t readers[4];
    spipe_file_t in;
    int k, good = 1;
    write_file(in_name, some(1000));
    SPIPE_CHECK(spipe_file_open(&in, in_name.c_str(), NULL));
    in.way = SPIPE_FILE_CACHED;
    spipe_desc_t d = reads(&in);
    d.num_buffers = 1;
    spipe_add_sink(&d, count_up, NULL, 10, SPIPE_ANY_ORDER);
    for (k = 0; k < 4; ++k) {
        readers[k].d = &d;
        if (pthread_create(&threads[k], NULL, read_often, &readers[k]) != 0) exit(99);
    }
    for (k = 0; k < 4; ++k) {
        pthread_join(threads[k], NULL);
        good &= readers[k].right;
    }
    tap_ok(good, "four threads run over one open file: each run is right");
    spipe_file_close(&in);
}

/* ---- a copy of an open file ------------------------------------------------------------------ */
static void test_copy(void) {
    const bytes_t data = some(100);
    spipe_file_t in, out, copy;
    spipe_failure_t f;
    spipe_report_t r;
    write_file(in_name, data);
    SPIPE_CHECK(spipe_file_open(&in, in_name.c_str(), NULL));
    SPIPE_CHECK(spipe_file_create(&out, out_name.c_str(), NULL));
    copy = in;
    spipe_desc_t d = reads(&copy);
    tap_ok(d.problem && says(d.problem, "a copy"), "%s", d.problem ? d.problem : "");
    spipe_file_close(&copy);
    spipe_file_close(&copy);
    d = copies(&in, &out);
    tap_ok(spipe_run(&d, &r) == cudaSuccess, "a copy that is closed closes nothing: %s",
           r.failure.message);
    copy = out;
    spipe_file_close(&out);
    tap_ok(spipe_file_commit(&copy, SPIPE_AUTO, &f) == cudaErrorInvalidValue &&
               spipe_file_write(&copy, "x", 1, 0, NULL) == cudaErrorInvalidValue,
           "nor does one of a file that was closed: %s", f.message);
    spipe_file_close(&copy);
    spipe_file_close(&in);
}

/* ---- outputs that are not replaced ----------------------------------------------------------- */
/* A run whose output is a descriptor of this process, with a file behind it that has bytes. */
static bytes_t written_to(const char *name, int descriptor) {
    spipe_file_t in, out;
    write_file(out_name, bytes_t{'o', 'l', 'd'});
    const int fd = open(out_name.c_str(), O_WRONLY | O_APPEND), was = dup(descriptor);
    int right = fd >= 0 && dup2(fd, descriptor) >= 0 && write(descriptor, "before", 6) == 6;
    SPIPE_CHECK(spipe_file_open(&in, in_name.c_str(), NULL));
    SPIPE_CHECK(spipe_file_create(&out, name, NULL));
    const spipe_desc_t d = copies(&in, &out);
    right = right && spipe_run(&d, NULL) == cudaSuccess;
    right = right && spipe_file_write(&out, "x", 1, 0, NULL) == cudaErrorInvalidValue;
    right = right && spipe_file_commit(&out, SPIPE_AUTO, NULL) == cudaSuccess;
    spipe_file_close(&out);
    spipe_file_close(&in);
    right = right && write(descriptor, "after", 5) == 5;
    if (was >= 0 ? dup2(was, descriptor) < 0 : close(descriptor) != 0) exit(99);
    if (was >= 0) (void)close(was);
    (void)close(fd);
    return right ? read_file(out_name) : bytes_t();
}

static void test_descriptors(void) {
    const bytes_t data = some(1000), before = {'o', 'l', 'd', 'b', 'e', 'f', 'o', 'r', 'e'};
    const bytes_t want = before + data + bytes_t{'a', 'f', 't', 'e', 'r'};
    const std::string link = std::string(folder) + "/link";
    if (symlink("/dev/fd/77", link.c_str()) != 0) exit(99);
    write_file(in_name, data);
    tap_ok(written_to("-", 1) == want, "-: nothing before or after the run is lost");
    tap_ok(written_to("/dev/stdout", 1) == want, "/dev/stdout of a file: likewise");
    tap_ok(written_to("/dev/fd/1", 1) == want, "/dev/fd/1: likewise");
    tap_ok(written_to("/dev/fd/77", 77) == want, "/dev/fd/77: likewise");
    tap_ok(written_to(link.c_str(), 77) == want, "a link to it: likewise");
    if (access("/proc/self/fd", X_OK) == 0)
        tap_ok(written_to("/proc/self/fd/77", 77) == want, "/proc/self/fd/77: likewise");
    else
        tap_skip("/proc/self/fd/77", "there is no /proc");
    (void)remove(link.c_str());
    (void)remove(out_name.c_str());
}

static void test_mounted(void) {
    const bytes_t data = some((1 << 20) + 77);
    const std::string mounted = std::string(folder) + "/mounted";
    spipe_file_t in, out;
    spipe_failure_t f;
    int k, good = 1;
    write_file(in_name, data);
    write_file(out_name, some((1 << 20) + 1000)); /* longer than what replaces it */
    write_file(mounted, bytes_t());
    if (mount(out_name.c_str(), mounted.c_str(), NULL, MS_BIND, NULL) != 0) {
        tap_skip("an output that is a mount", "nothing can be mounted");
        (void)remove(mounted.c_str());
        return;
    }
    for (k = 0; k < 2; ++k) {
        SPIPE_CHECK(spipe_file_open(&in, in_name.c_str(), NULL));
        SPIPE_CHECK(spipe_file_create(&out, mounted.c_str(), NULL));
        const spipe_desc_t d = copies(&in, &out);
        SPIPE_CHECK_RUN(&d, NULL);
        const cudaError_t e = spipe_file_commit(&out, in.bytes, &f);
        good &= e == cudaSuccess && read_file(mounted) == data && read_file(out_name) == data;
        spipe_file_close(&out);
        spipe_file_close(&in);
    }
    tap_ok(good, "an output that is a mount is written over: %s", f.message);
    if (umount(mounted.c_str()) != 0) exit(99);
    (void)remove(mounted.c_str());
    (void)remove(out_name.c_str());
}

/* A commit that fails leaves the output as it is, so that it may be committed again. */
static void test_commit_again(void) {
    const bytes_t data = some(1000);
    const std::string there = std::string(folder) + "/sub", moved = there + ".moved";
    const std::string to = there + "/out";
    spipe_file_t in, out;
    spipe_failure_t f;
    write_file(in_name, data);
    if (mkdir(there.c_str(), 0700) != 0) exit(99);
    SPIPE_CHECK(spipe_file_open(&in, in_name.c_str(), NULL));
    SPIPE_CHECK(spipe_file_create(&out, to.c_str(), NULL));
    const spipe_desc_t d = copies(&in, &out);
    SPIPE_CHECK_RUN(&d, NULL);
    if (rename(there.c_str(), moved.c_str()) != 0) exit(99);
    const cudaError_t e = spipe_file_commit(&out, SPIPE_AUTO, &f);
    if (rename(moved.c_str(), there.c_str()) != 0) exit(99);
    tap_ok(e == cudaErrorOperatingSystem &&
               spipe_file_commit(&out, SPIPE_AUTO, NULL) == cudaSuccess && read_file(to) == data,
           "after %s the commit may be made again", f.message);
    spipe_file_close(&out);
    spipe_file_close(&in);
    tap_ok(remove(to.c_str()) == 0 && rmdir(there.c_str()) == 0, "and nothing else is left");
}

/* ---- descriptors that do not block, calls that are interrupted ------------------------------- */
typedef struct other_end {
    int fd;
    bytes_t data;
} other_end_t;

static void *write_slowly(void *arg) {
    other_end_t *o = (other_end_t *)arg;
    for (size_t at = 0; at < o->data.size(); at += 100) {
        if (at % 1000 == 0) usleep(2000); /* so that the reader finds nothing */
        if (write(o->fd, &o->data[at], 100) != 100) exit(99);
    }
    (void)close(o->fd);
    return NULL;
}

static void *read_slowly(void *arg) {
    other_end_t *o = (other_end_t *)arg;
    unsigned char block[4096];
    ssize_t n;
    usleep(20000); /* so that the writer finds it full */
    while ((n = read(o->fd, block, sizeof block)) > 0)
        o->data.insert(o->data.end(), block, block + n);
    return NULL;
}

static void test_not_blocking(void) {
    const bytes_t data = some(300000);
    other_end_t from = {-1, data}, to = {-1, bytes_t()};
    pthread_t feeder, drainer;
    spipe_file_t in, out;
    spipe_report_t r;
    int a[2], b[2];
    if (pipe(a) != 0 || pipe(b) != 0) exit(99);
    from.fd = a[1];
    to.fd = b[0];
    open_fd(&in, a[0]);
    const std::string name = "/dev/fd/" + std::to_string(b[1]);
    SPIPE_CHECK(spipe_file_create(&out, name.c_str(), NULL));
    if (fcntl(in.fd, F_SETFL, O_NONBLOCK) != 0 || fcntl(out.fd, F_SETFL, O_NONBLOCK) != 0) exit(99);
    const spipe_desc_t d = copies(&in, &out);
    pthread_create(&feeder, NULL, write_slowly, &from);
    pthread_create(&drainer, NULL, read_slowly, &to);
    const cudaError_t e = spipe_run(&d, &r);
    spipe_file_close(&out);
    (void)close(b[1]);
    pthread_join(feeder, NULL);
    pthread_join(drainer, NULL);
    tap_ok(e == cudaSuccess && to.data == data, "pipes that do not block are waited for: %s",
           r.failure.message);
    spipe_file_close(&in);
    (void)close(a[0]);
    (void)close(b[0]);
}

static void on_alarm(int) {}

static void *open_late(void *arg) {
    usleep(30000); /* several alarms */
    const int fd = open(in_name.c_str(), *(int *)arg);
    if (fd < 0) exit(99);
    usleep(1000);
    (void)close(fd);
    return NULL;
}

static void test_interrupted_open(int writing) {
    const struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    int how = writing ? O_RDONLY : O_WRONLY;
    struct sigaction act, was;
    sigset_t alarms;
    pthread_t other;
    spipe_file_t f;
    spipe_failure_t why;
    (void)remove(in_name.c_str());
    if (mkfifo(in_name.c_str(), 0600) != 0) exit(99);
    memset(&act, 0, sizeof act);
    act.sa_handler = on_alarm; /* without SA_RESTART */
    sigaction(SIGALRM, &act, &was);
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarms, NULL); /* in the other thread */
    pthread_create(&other, NULL, open_late, &how);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    const cudaError_t e = writing ? spipe_file_create(&f, in_name.c_str(), &why)
                                  : spipe_file_open(&f, in_name.c_str(), &why);
    setitimer(ITIMER_REAL, &never, NULL);
    pthread_join(other, NULL);
    sigaction(SIGALRM, &was, NULL);
    tap_ok(e == cudaSuccess, "opening a FIFO to be %s is tried again after a signal: %s",
           writing ? "written" : "read", why.message);
    spipe_file_close(&f);
    (void)remove(in_name.c_str());
}

int main(void) {
    spipe_resources_t *resources;
    if (!mkdtemp(folder)) exit(99);
    in_name = std::string(folder) + "/in";
    out_name = std::string(folder) + "/out";
    test_descriptors();
    SPIPE_CHECK(spipe_resources_create(&resources, NULL, NULL));
    for (int way = SPIPE_FILE_CACHED; way <= SPIPE_FILE_ORDERED; ++way) {
        test_described_again(way);
        test_two_files(way);
        test_beside_array(way);
        test_empty(way);
        test_beyond_the_end(way);
        test_kept(way, NULL);
        test_kept(way, resources);
        test_pull(way);
        if (way == SPIPE_FILE_DIRECT) continue; /* of inputs */
        test_written_again(way);
        test_commit(way);
        test_at_once(way);
    }
    test_calls(resources);
    test_pipe_twice();
    test_commit_parts();
    test_commit_again();
    test_threads();
    test_copy();
    test_mounted();
    test_not_blocking();
    test_interrupted_open(0);
    test_interrupted_open(1);
    SPIPE_CHECK(spipe_resources_destroy(resources, NULL));
    (void)remove(in_name.c_str());
    (void)rmdir(folder);
    return tap_done();
}
#else
#include "tap.h"

int main(void) {
    tap_skip("files and their runs", "this test makes its files with POSIX calls");
    return tap_done();
}
#endif
