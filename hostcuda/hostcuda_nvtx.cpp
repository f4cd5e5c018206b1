/*  hostcuda_nvtx.cpp -- ranges of NVTX, counted by name. */
#include <nvtx3/nvToolsExt.h>

#include <map>
#include <mutex>
#include <string>

namespace {
std::mutex lock;

std::map<std::string, size_t> &names() {
    static auto *all = new std::map<std::string, size_t>; /* outlives exit */
    return *all;
}

size_t opened, closed;
thread_local int depth;
} /* namespace */

extern "C" int nvtxRangePushA(const char *message) {
    const std::lock_guard<std::mutex> held(lock);
    ++names()[message ? message : ""];
    ++opened;
    return depth++;
}

extern "C" int nvtxRangePop(void) {
    const std::lock_guard<std::mutex> held(lock);
    if (depth == 0) return -2; /* NVTX_NO_PUSH_POP_TRACKING */
    ++closed;
    return --depth;
}

extern "C" size_t hostcuda_ranges(const char *message) {
    const std::lock_guard<std::mutex> held(lock);
    if (!message) return opened;
    const auto at = names().find(message);
    return at == names().end() ? 0 : at->second;
}

extern "C" size_t hostcuda_ranges_open(void) {
    const std::lock_guard<std::mutex> held(lock);
    return opened - closed;
}
