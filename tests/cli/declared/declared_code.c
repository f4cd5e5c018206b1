/*  The file that has the library's code for a program of three: see declared_caller.c. C and C++.
    SPIPE_DECLARATIONS as well: a program may give it to the compiler for all its files.        */
#define SPIPE_DECLARATIONS
#define SPIPE_DEFINITIONS
#include "streampipe.h"
#include "streampipe_devices.h"
#include "streampipe_files.h"
#include "streampipe_timeline.h"
#include "streampipe_tools.h"
