/*  test_fuzz_readers.cu -- the fuzz target of the examples' readers for a few seconds: its corpus,
    and random bytes. `make fuzz` goes on for longer. */
#include "fuzz_readers.cu"
#include "fuzz_test.h"

int main(void) {
    fuzz_corpus("tests/fuzz/corpus/readers", 1);
    fuzz_some("what the examples read is what is there, or is refused", 4000,
              tap_thorough() ? 2 : 1);
    return tap_done();
}
