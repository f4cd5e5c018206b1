/* hostcuda: the types come with the API. */
#include "cuda_runtime_api.h"
