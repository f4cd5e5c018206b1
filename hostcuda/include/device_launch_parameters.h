/* hostcuda: threadIdx and the others come with cuda_runtime.h. */
#include "cuda_runtime.h"
