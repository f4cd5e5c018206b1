/* hostcuda: many programs include this header and use nothing of it, so it is there. The driver API
 * is not: hcc says so of each name that begins with cu or CU. */
#ifndef HOSTCUDA_CUDA_H
#define HOSTCUDA_CUDA_H

#include "cuda_runtime_api.h"

#define CUDA_VERSION CUDART_VERSION

#endif
