/*  fuzz_failures.cu -- any bytes are a long run that fails on the device or is stopped, and it says
    of itself what is true (failures_scene.h, fuzz_failures.h). What libFuzzer calls, and
    fuzz_driver.cpp where there is no clang. */
#include "fuzz/fuzz_failures.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    fuzz_failures(data, size);
    return 0;
}
