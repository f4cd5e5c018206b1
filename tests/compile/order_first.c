/*  streampipe.h before anything else: it must bring all that it uses. C, C++ and CUDA. */
#include "streampipe.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) { return 0; }
