/*  fuzz_pipeline.cu -- any bytes are a pipeline, and it gives what serial code gives (fuzz_scene.h,
    fuzz_pipeline.h). What libFuzzer calls, and fuzz_driver.cpp where there is no clang. */
#include "fuzz_pipeline.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    fuzz_pipeline(data, size);
    return 0;
}
