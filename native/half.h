// float16 and bfloat16 as integers, converted by bits: for code that runs on any processor.
#pragma once

#include <cstdint>

namespace octavo {

static inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 31u;
  const uint32_t fraction = half & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: fraction · 2^-24 is exact
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return __builtin_bit_cast(float, sign | __builtin_bit_cast(uint32_t, magnitude));
  }
  if (exponent == 31) {  // infinity, or a NaN made quiet
    return __builtin_bit_cast(float, sign | 0x7f800000u | (fraction ? 0x400000u | (fraction << 13) : 0u));
  }
  return __builtin_bit_cast(float, sign | ((exponent + 112u) << 23) | (fraction << 13));
}

// Rounds half to even; too large becomes infinity.
static inline uint16_t float_to_half(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65,520 and above
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 lines the half's last bit up with the float's
    const float shifted = __builtin_bit_cast(float, magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (__builtin_bit_cast(uint32_t, shifted) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

static inline float bfloat16_to_float(uint16_t value) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(value) << 16);
}

}  // namespace octavo
