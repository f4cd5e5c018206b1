/*  test_fuzz_surface.cu -- the fuzz target of all ways to use a pipeline for a few seconds: its
    corpus, where every fault that it ever found has a file, and random inputs. `make fuzz` goes on
    for longer. */
#include "fuzz_surface.cu"
#include "fuzz_test.h"

int main(void) {
    const int all = tap_thorough();
    fuzz_corpus("tests/fuzz/corpus/surface", all ? 250 : 100);
    fuzz_some("loops, split sources, GPUs, faults and threads give what serial code gives", 2000,
              all ? 6 : 2);
    return tap_done();
}
