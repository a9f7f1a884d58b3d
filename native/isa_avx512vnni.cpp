// x86-64 with AVX-512 F, BW, VL, DQ and VNNI.
#define OCTAVO_ISA avx512vnni
#define OCTAVO_SIMD_AVX512 1
#include "kernels.inc.h"
