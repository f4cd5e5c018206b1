/*  test_fuzz_files.cu -- the fuzz target of files for a few seconds: its corpus, which has a scene
    for each rule that was broken to see whether it is found, and random scenes. `make fuzz` goes on
    for longer. */
#include "fuzz_files.cu"
#include "fuzz_test.h"

int main(void) {
    const int all = tap_thorough();
    fuzz_corpus("tests/fuzz/corpus/files", all ? 250 : 50);
    fuzz_some("files have what was asked for, whatever was done before", 2000, all ? 6 : 2);
    return tap_done();
}
