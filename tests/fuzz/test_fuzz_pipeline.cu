/*  test_fuzz_pipeline.cu -- the fuzz target of pipelines for a few seconds: its corpus, where every
    fault that it ever found has a file, and random descriptions. `make fuzz` goes on for longer. */
#include "fuzz_pipeline.cu"
#include "fuzz_test.h"

int main(void) {
    fuzz_corpus("tests/fuzz/corpus/pipeline", 250);
    fuzz_some("a pipeline gives what serial code gives, whatever its description", 2000, 6);
    return tap_done();
}
