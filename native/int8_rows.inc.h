// Vectors as int8 with one scale, and the rotation of a head before it: how the int8 cache holds K and V (ADR 0016).
#pragma once

#include "simd.h"
#include "step.h"

namespace octavo::OCTAVO_ISA {
namespace {

constexpr int largest_power_of_two_in(int value) { return value & -value; }

// A head's vectors stay in registers, but where every lane is a register of its own.
#if defined(OCTAVO_SIMD_GENERIC)
#define OCTAVO_UNROLL_HEAD _Pragma("GCC unroll 1")
#else
#define OCTAVO_UNROLL_HEAD _Pragma("GCC unroll 16")
#endif

template <int kNumber>
struct Constant {
  static constexpr int value = kNumber;
};

// Lanes i and i ^ kDistance of 16 become their sum (in the lower) and the lower minus the higher.
template <int kDistance>
OCTAVO_INLINE f32x16 butterfly(f32x16 a) {
  alignas(64) float signs[kLanes];
  for (int i = 0; i < kLanes; ++i) signs[i] = (i & kDistance) != 0 ? -1.0f : 1.0f;
  return fma(a, load16(signs), swap_lanes<kDistance>(a));  // rounds once, as an addition does
}

// A head's elements in registers, 16 to a vector.
template <int kVectors>
struct HeadVectors {
  f32x16 of[kVectors];
};

template <int kVectors>
OCTAVO_INLINE HeadVectors<kVectors> load_head(const float* x) {
  HeadVectors<kVectors> head;
  OCTAVO_UNROLL_HEAD for (int i = 0; i < kVectors; ++i) head.of[i] = load16(x + i * kLanes);
  return head;
}

// Calls visit(the number of a head's vectors, as a constant).
template <class Visit>
OCTAVO_INLINE void with_head_vectors(int head_dim, Visit visit) {
  static_assert(kMaxHeadDim == 16 * kLanes);
  switch (head_dim / kLanes) {
    case 1: return visit(Constant<1>{});
    case 2: return visit(Constant<2>{});
    case 3: return visit(Constant<3>{});
    case 4: return visit(Constant<4>{});
    case 5: return visit(Constant<5>{});
    case 6: return visit(Constant<6>{});
    case 7: return visit(Constant<7>{});
    case 8: return visit(Constant<8>{});
    case 9: return visit(Constant<9>{});
    case 10: return visit(Constant<10>{});
    case 11: return visit(Constant<11>{});
    case 12: return visit(Constant<12>{});
    case 13: return visit(Constant<13>{});
    case 14: return visit(Constant<14>{});
    case 15: return visit(Constant<15>{});
    default: return visit(Constant<16>{});
  }
}

// Vectors i and i + kDistance of each run of 2·kDistance become their sum and their difference, up to the longest run.
template <int kDistance, int kVectors>
OCTAVO_INLINE void combine_vectors(HeadVectors<kVectors>& x) {
  if constexpr (kDistance < largest_power_of_two_in(kVectors)) {
    OCTAVO_UNROLL_HEAD for (int i = 0; i < kVectors; ++i) {
      if ((i & kDistance) != 0) continue;
      const f32x16 a = x.of[i], b = x.of[i + kDistance];
      x.of[i] = add(a, b);
      x.of[i + kDistance] = sub(a, b);
    }
    combine_vectors<2 * kDistance>(x);
  }
}

// Runs of n elements times the Walsh–Hadamard matrix of order n, n the largest power of two in the head's length.
// Queries and keys that are both rotated have n times the dot product, and no element sticks out of them.
template <int kVectors>
OCTAVO_INLINE void rotate(HeadVectors<kVectors>& x) {
  OCTAVO_UNROLL_HEAD for (int i = 0; i < kVectors; ++i) x.of[i] = butterfly<8>(butterfly<4>(butterfly<2>(butterfly<1>(x.of[i]))));
  combine_vectors<1>(x);
}

// 16 elements as integers within int8. A NaN becomes 0: its scale is NaN, which is what counts. The limits act
// only where 127 / largest overflows, below 4e-37.
OCTAVO_INLINE i32x16 quantized(f32x16 values, float inverse) {
  const f32x16 scaled = mul(values, splat16(inverse));
  const f32x16 limited = min(max(scaled, splat16(-127.0f)), splat16(127.0f));
  return to_int(select(is_nan(scaled), splat16(0.0f), limited));
}

// A head as integers in [-127, 127] times its scale.
template <int kVectors>
struct Int8Head {
  i32x16 of[kVectors];
  float scale;  // NaN if an element is
};

template <int kVectors>
OCTAVO_INLINE Int8Head<kVectors> quantize_head(const HeadVectors<kVectors>& x) {
  Int8Head<kVectors> head;
  i32x16 magnitudes = splat16_int(0);  // as integers they order like floats, and a NaN is above infinity
  OCTAVO_UNROLL_HEAD for (int i = 0; i < kVectors; ++i) magnitudes = max(magnitudes, bits_of(abs(x.of[i])));
  const float largest = __builtin_bit_cast(float, reduce_max(magnitudes));
  const float inverse = largest == 0.0f ? 0.0f : 127.0f / largest;
  OCTAVO_UNROLL_HEAD for (int i = 0; i < kVectors; ++i) head.of[i] = quantized(x.of[i], inverse);
  // Any NaN becomes the plain one: exp2_of_falls adds to the bits of what is computed from scales.
  head.scale = largest == largest ? largest / 127.0f : __builtin_nanf("");
  return head;
}

// A query as attention over an int8 cache wants it; it takes less room than the head's floats.
struct Int8Query {
  float scale;
  int32_t minus_128_sum;
  int8_t q[];
};

constexpr int int8_query_bytes(int head_dim) { return static_cast<int>(sizeof(Int8Query)) + head_dim; }

// `scale` is attention's. The floats may lie where the query goes.
template <int kVectors>
[[gnu::noinline]] void make_int8_query(const float* floats, float scale, Int8Query& query) {
  HeadVectors<kVectors> head = load_head<kVectors>(floats);
  rotate(head);
  const f32x16 factor = splat16(scale / static_cast<float>(largest_power_of_two_in(kVectors * kLanes)));
  OCTAVO_UNROLL_HEAD for (int i = 0; i < kVectors; ++i) head.of[i] = mul(head.of[i], factor);
  const Int8Head<kVectors> rounded = quantize_head(head);
  i32x16 sums = splat16_int(0);
  OCTAVO_UNROLL_HEAD for (int i = 0; i < kVectors; ++i) {
    store16_as_bytes(query.q + i * kLanes, rounded.of[i]);
    sums = add(sums, rounded.of[i]);
  }
  query.scale = rounded.scale;
  query.minus_128_sum = -128 * reduce_add(sums);
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
