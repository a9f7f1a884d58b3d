// Any processor.
#define OCTAVO_ISA generic
#define OCTAVO_SIMD_GENERIC 1
#include "kernels.inc.h"
