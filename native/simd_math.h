// exp, tanh and float64 sums over 16 lanes: the one copy of each that every kernel uses (ADR 0001).
#pragma once

#include "simd.h"

namespace octavo::OCTAVO_ISA {
namespace {

// NaN stays NaN: min and max return their second argument if either is NaN.
OCTAVO_INLINE f32x16 exp16(f32x16 x) {
  x = min(splat16(88.37626f), max(splat16(-87.33654f), x));
  const f32x16 n = round_half_even(mul(x, splat16(1.44269504088896341f)));
  f32x16 f = fma(n, splat16(-0.693359375f), x);
  f = fma(n, splat16(2.12194440e-4f), f);
  f32x16 p = splat16(1.9875691500e-4f);
  p = fma(p, f, splat16(1.3981999507e-3f));
  p = fma(p, f, splat16(8.3334519073e-3f));
  p = fma(p, f, splat16(4.1665795894e-2f));
  p = fma(p, f, splat16(1.6666665459e-1f));
  p = fma(p, f, splat16(5.0000001201e-1f));
  const f32x16 mantissa = fma(mul(p, f), f, add(f, splat16(1.0f)));
  const i32x16 exponent = add(to_int(n), splat16_int(127));  // n is in -126 … 127
  return mul(mantissa, from_bits(shift_left<23>(exponent)));
}

// Each x becomes 2^x of the lesser of x and 0, to within 1.1e-4 of it: less than half the work of exp16. 2^0 is 1, and a NaN stays
// one. Step by step for all of them: a core looks only so many operations ahead, and those of one x wait for each other.
template <int kCount>
OCTAVO_INLINE void exp2_of_falls(f32x16 (&x)[kCount]) {
  const f32x16 rounder = splat16(12582912.0f);  // 1.5 · 2^23: what is added to it is rounded, in its lowest bits
  f32x16 shifted[kCount], p[kCount];
  const auto each = [](auto step) {
    _Pragma("GCC unroll 8") for (int i = 0; i < kCount; ++i) step(i);
  };
  each([&](int i) { x[i] = max(splat16(-126.0f), x[i]); });
  each([&](int i) { x[i] = min(splat16(0.0f), x[i]); });
  each([&](int i) { shifted[i] = add(x[i], rounder); });
  each([&](int i) { p[i] = sub(shifted[i], rounder); });
  each([&](int i) { x[i] = sub(x[i], p[i]); });
  each([&](int i) { p[i] = fma(splat16(5.50089301e-2f), x[i], splat16(2.42210959e-1f)); });
  each([&](int i) { p[i] = fma(p[i], x[i], splat16(6.93282927e-1f)); });
  each([&](int i) { p[i] = fma(p[i], x[i], splat16(1.0f)); });
  each([&](int i) { shifted[i] = from_bits(shift_left<23>(bits_of(shifted[i]))); });
  each([&](int i) { x[i] = from_bits(add(bits_of(p[i]), bits_of(shifted[i]))); });
}

OCTAVO_INLINE f32x16 tanh16(f32x16 x) {
  const f32x16 one = splat16(1.0f), two = splat16(2.0f);
  return sub(one, div(two, add(exp16(mul(two, x)), one)));
}

OCTAVO_INLINE float exp1(float x) {
  alignas(64) float lanes[kLanes];
  store16(lanes, exp16(splat16(x)));
  return lanes[0];
}

OCTAVO_INLINE f32x16 iota16(int first) {
  alignas(64) float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = static_cast<float>(first + i);
  return load16(lanes);
}

// 16 lanes of float64.
struct f64x16 {
  double lane[kLanes];
};

OCTAVO_INLINE f64x16 add_widened(f64x16 sum, f32x16 a) {
  alignas(64) float lanes[kLanes];
  store16(lanes, a);
  _Pragma("GCC unroll 16") for (int i = 0; i < kLanes; ++i) sum.lane[i] += static_cast<double>(lanes[i]);
  return sum;
}

OCTAVO_INLINE double tree_sum(f64x16 a) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) a.lane[i] += a.lane[i + step];
  }
  return a.lane[0];
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
