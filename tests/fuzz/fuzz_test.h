/*  fuzz_test.h -- a fuzz target as a test: every file of its corpus is a check of its own, named as
    the file is, and some seconds of random inputs with a fixed seed are one more. A target that
    finds something aborts, and tests/tap_run counts that as a failure. */
#ifndef FUZZ_TEST_H
#define FUZZ_TEST_H

#include "tap.h"

#include <algorithm>
#include <string>
#include <vector>

#include <dirent.h>
#include <time.h>

extern "C" int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static std::vector<std::string> fuzz_files(const std::string &folder) {
    std::vector<std::string> names;
    DIR *dir = opendir(folder.c_str());
    while (const struct dirent *entry = dir ? readdir(dir) : NULL) {
        if (entry->d_name[0] != '.') names.push_back(entry->d_name);
    }
    if (dir) closedir(dir);
    std::sort(names.begin(), names.end());
    return names;
}

static std::vector<unsigned char> fuzz_read(const std::string &name) {
    std::vector<unsigned char> data;
    FILE *f = fopen(name.c_str(), "rb");
    for (int c = f ? getc(f) : EOF; c != EOF; c = getc(f)) data.push_back((unsigned char)c);
    if (f) fclose(f);
    return data;
}

/* Each for so many ms of processor time, at least once: some faults show only now and then. */
static void fuzz_corpus(const std::string &folder, long repeat_for) {
    const std::vector<std::string> names = fuzz_files(folder);
    for (const std::string &name : names) {
        const std::vector<unsigned char> data = fuzz_read(folder + "/" + name);
        const clock_t began = clock();
        int good = 1, runs = 0;
        tap_note("%s, %zu bytes", name.c_str(), data.size()); /* who it was, if it aborts */
        while (good && (clock() - began < repeat_for * CLOCKS_PER_SEC / 1000 || runs == 0)) {
            good = LLVMFuzzerTestOneInput(data.data(), data.size()) == 0;
            ++runs;
        }
        tap_ok(good, "%s, %d times", name.c_str(), runs);
    }
    tap_ok(!names.empty(), "%s holds %zu inputs", folder.c_str(), names.size());
}

/* So many random inputs, input i always the same one; when seconds are over, at least 21. */
static void fuzz_some(const char *what, unsigned long runs, double seconds) {
    const time_t began = time(NULL);
    std::vector<unsigned char> data;
    unsigned long i;
    unsigned x = 2463534242u;
    for (i = 0; i < runs && (i <= 20 || difftime(time(NULL), began) < seconds); ++i) {
        data.resize(64 + i % 200);
        for (unsigned char &byte : data) {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            byte = (unsigned char)(x >> 11);
        }
        (void)LLVMFuzzerTestOneInput(data.data(), data.size());
    }
    tap_ok(i > 20, "%lu random inputs: %s", i, what);
}

#endif
