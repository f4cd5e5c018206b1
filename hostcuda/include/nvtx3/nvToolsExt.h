/*  nvtx3/nvToolsExt.h -- hostcuda's place for NVIDIA's tool extension, as far as ranges go: they
    are counted, so that a test can ask which were opened and whether all were closed. */
#ifndef HOSTCUDA_NVTX3_H
#define HOSTCUDA_NVTX3_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A range of this thread; its depth, 0 for the outermost. Pop: negative if there is none. */
int nvtxRangePushA(const char *message);
int nvtxRangePop(void);

/* hostcuda's own: how many ranges were opened whose name is this (NULL: any), and how many of all
   threads' are still open. Any thread. */
size_t hostcuda_ranges(const char *message);
size_t hostcuda_ranges_open(void);

#ifdef __cplusplus
}
#endif
#endif
