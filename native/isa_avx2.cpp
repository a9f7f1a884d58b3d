// x86-64 with AVX2, FMA and F16C.
#define OCTAVO_ISA avx2
#define OCTAVO_SIMD_AVX2 1
#include "kernels.inc.h"
