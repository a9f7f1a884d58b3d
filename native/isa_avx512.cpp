// x86-64 with AVX-512 F, BW, VL and DQ.
#define OCTAVO_ISA avx512
#define OCTAVO_SIMD_AVX512 1
#include "kernels.inc.h"
