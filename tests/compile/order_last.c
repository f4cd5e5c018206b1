/*  streampipe.h after everything else: it must get along with what is there. C, C++ and CUDA. */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __cplusplus
#include <algorithm>
#include <cuda_runtime.h>
#else
#include <cuda_runtime_api.h>
#endif

#include "streampipe.h"
#include "streampipe.h"

int main(void) { return 0; }
