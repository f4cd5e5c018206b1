/*  fuzz_surface.cu -- any bytes are a pipeline, by one of the ways to use it, or several that share
    resources (fuzz_surface.h). What libFuzzer calls, or fuzz_driver.cpp. */
#include "fuzz_surface.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    fuzz_surface(data, size);
    return 0;
}
