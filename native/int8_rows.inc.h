// Vectors as int8 with one scale, and the rotation of a head before it: how the int8 cache holds K and V (ADR 0016).
#pragma once

#include "simd.h"

namespace octavo::OCTAVO_ISA {
namespace {

constexpr int largest_power_of_two_in(int value) { return value & -value; }

// Lanes i and i ^ kDistance of 16 become their sum (in the lower) and the lower minus the higher.
template <int kDistance>
OCTAVO_INLINE f32x16 butterfly(f32x16 a) {
  alignas(64) float signs[kLanes];
  for (int i = 0; i < kLanes; ++i) signs[i] = (i & kDistance) != 0 ? -1.0f : 1.0f;
  return fma(a, load16(signs), swap_lanes<kDistance>(a));  // rounds once, as an addition does
}

// Runs of n elements times the Walsh–Hadamard matrix of order n, n the largest power of two in `count`, a multiple of 16.
// Queries and keys that are both rotated have n times the dot product, and no element sticks out of them.
inline void rotate(float* x, int count) {
  for (int i = 0; i < count; i += kLanes) {
    store16(x + i, butterfly<8>(butterfly<4>(butterfly<2>(butterfly<1>(load16(x + i))))));
  }
  const int run = largest_power_of_two_in(count);
  for (int distance = kLanes; distance < run; distance *= 2) {
    for (int i = 0; i < count; i += kLanes) {
      if ((i & distance) != 0) continue;
      const f32x16 a = load16(x + i), b = load16(x + i + distance);
      store16(x + i, add(a, b));
      store16(x + i + distance, sub(a, b));
    }
  }
}

// 16 elements as integers within int8. A NaN becomes 0: its scale is NaN, which is what counts. The limits act
// only where 127 / largest overflows, below 4e-37.
OCTAVO_INLINE i32x16 quantized(f32x16 values, float inverse) {
  const f32x16 scaled = mul(values, splat16(inverse));
  const f32x16 limited = min(max(scaled, splat16(-127.0f)), splat16(127.0f));
  return to_int(select(is_nan(scaled), splat16(0.0f), limited));
}

struct Int8Row {
  float scale;  // NaN if an element is
  int32_t sum;
};

// `count` elements, a multiple of 16, to integers in [-127, 127].
inline Int8Row quantize_row(const float* x, int count, int8_t* q) {
  i32x16 magnitudes = splat16_int(0);  // as integers they order like floats, and a NaN is above infinity
  for (int i = 0; i < count; i += kLanes) magnitudes = max(magnitudes, bits_of(abs(load16(x + i))));
  const float largest = __builtin_bit_cast(float, reduce_max(magnitudes));
  const float inverse = largest == 0.0f ? 0.0f : 127.0f / largest;
  i32x16 sums = splat16_int(0);
  for (int i = 0; i < count; i += kLanes) {
    const i32x16 integers = quantized(load16(x + i), inverse);
    store16_as_bytes(q + i, integers);
    sums = add(sums, integers);
  }
  // Any NaN becomes the plain one: exp2_of_falls adds to the bits of what is computed from scales.
  return {largest == largest ? largest / 127.0f : __builtin_nanf(""), reduce_add(sums)};
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
