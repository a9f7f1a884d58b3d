// aarch64.
#define OCTAVO_ISA neon
#define OCTAVO_SIMD_NEON 1
#include "kernels.inc.h"
