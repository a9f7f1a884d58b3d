// aarch64 with the dot products of Armv8.2 (FEAT_DotProd).
#define OCTAVO_ISA neondotprod
#define OCTAVO_SIMD_NEON 1
#include "kernels.inc.h"
