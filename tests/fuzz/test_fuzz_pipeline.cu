/*  test_fuzz_pipeline.cu -- the fuzz target of pipelines for a few seconds: its corpus, where every
    fault that it ever found has a file, and random descriptions. `make fuzz` goes on for longer. */
#include "fuzz_pipeline.cu"
#include "fuzz_test.h"

int main(void) {
    const int all = tap_thorough();
    fuzz_corpus("tests/fuzz/corpus/pipeline", all ? 250 : 100);
    fuzz_some("a pipeline gives what serial code gives, whatever its description", 2000,
              all ? 6 : 2);
    return tap_done();
}
