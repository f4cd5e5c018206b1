/* hcc's rewriter: who may call whom. nvcc refuses a kernel that calls a function of the host, and a
 * function of the host that calls one of the device; on the CPU both would run. */
#ifndef HOSTCUDA_REWRITER_SIDES_H
#define HOSTCUDA_REWRITER_SIDES_H

#include "preprocessed.h"

namespace rewriter {

/* Says of each such call in the user's files what to do; returns how many there are. */
int check_sides(const Source &source);

} /* namespace rewriter */

#endif
