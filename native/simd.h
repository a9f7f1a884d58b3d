// 16 virtual lanes on every instruction set, so that a kernel is written once (docs/adr/0001-arithmetic.md).
//
// A file isa_*.cpp defines OCTAVO_ISA (its namespace) and one OCTAVO_SIMD_* and includes this header first.
// Two layers share their function names:
//   vf, vi          one hardware register of kWidth lanes (16, 8, 4 or 1): for loops that count registers
//   f32x16, i32x16  always 16 lanes
// Everything is static and always inlined: no code compiled for one instruction set can reach another
// through the linker. For the same reason kernels use no std:: templates.
//
//   load16 store16 splat16 load16_int store16_int splat16_int   load16_f16 store16_f16 load16_bf16
//   store16_as_bytes                           integers within int8
//   store16_as_bytes_of_quads(p, place, a)     the same, one byte of four each
//   store64_low_words_as_bytes                 of integers or of floats' bits
//   load_first(p, n) store_first(p, a, n)      first n lanes, n in 0…16; the lanes beyond read as 0
//   load_lanes(p, n) store_lanes(p, a, n)      the same where n is 16 most of the time
//   add sub mul div fma sqrt abs round_half_even
//   max(a, b) = a > b ? a : b    min(a, b) = a < b ? a : b    (b if either is NaN, on every machine)
//   max_or_nan(a, b)                           NaN if either is NaN
//   to_int (half to even) to_float bits_of from_bits shift_left<n> bit_and add max   integers
//   with_lane(a, i, x)                         a with x in lane i
//   swap_lanes<n>                              lane i gets lane i ^ n's
//   less greater equal is_nan first_lanes(n) any(mask) select(mask, if_true, if_false)
//   tree_sum reduce_max (reduce_add: integers) lane i with i + 8, then i + 4, i + 2, i + 1
//   reduce_max_each reduce_add_each            of 16 vectors of integers
//   reduce_max_rows tree_sum_rows              of up to 8 vectors of floats
#pragma once

#include <cstddef>
#include <cstdint>

#include "half.h"

#if defined(OCTAVO_SIMD_AVX512) || defined(OCTAVO_SIMD_AVX2)
#include <immintrin.h>
#elif defined(OCTAVO_SIMD_NEON)
#include <arm_neon.h>
#endif

#define OCTAVO_INLINE [[maybe_unused, gnu::always_inline]] static inline

namespace octavo::OCTAVO_ISA {
namespace {

#if defined(OCTAVO_SIMD_AVX512)
#include "simd_avx512.h"
#elif defined(OCTAVO_SIMD_AVX2)
#include "simd_avx2.h"
#elif defined(OCTAVO_SIMD_NEON)
#include "simd_neon.h"
#else
#include "simd_generic.h"
#endif

constexpr int kLanes = 16;
constexpr int kParts = kLanes / kWidth;

struct f32x16 { vf part[kParts]; };
struct i32x16 { vi part[kParts]; };
struct mask16 { vmask part[kParts]; };

#define OCTAVO_EACH_PART _Pragma("GCC unroll 16") for (int i = 0; i < kParts; ++i)
#define OCTAVO_LIFT1(Result, name, A) \
  OCTAVO_INLINE Result name(A a) { Result r; OCTAVO_EACH_PART r.part[i] = name(a.part[i]); return r; }
#define OCTAVO_LIFT2(Result, name, A) \
  OCTAVO_INLINE Result name(A a, A b) { Result r; OCTAVO_EACH_PART r.part[i] = name(a.part[i], b.part[i]); return r; }

OCTAVO_LIFT2(f32x16, add, f32x16)
OCTAVO_LIFT2(f32x16, sub, f32x16)
OCTAVO_LIFT2(f32x16, mul, f32x16)
OCTAVO_LIFT2(f32x16, div, f32x16)
OCTAVO_LIFT2(f32x16, max, f32x16)
OCTAVO_LIFT2(f32x16, min, f32x16)
OCTAVO_LIFT1(f32x16, sqrt, f32x16)
OCTAVO_LIFT1(f32x16, abs, f32x16)
OCTAVO_LIFT1(f32x16, round_half_even, f32x16)
OCTAVO_LIFT2(i32x16, add, i32x16)
OCTAVO_LIFT2(i32x16, max, i32x16)
OCTAVO_LIFT2(i32x16, bit_and, i32x16)
OCTAVO_LIFT1(i32x16, to_int, f32x16)
OCTAVO_LIFT1(f32x16, to_float, i32x16)
OCTAVO_LIFT1(i32x16, bits_of, f32x16)
OCTAVO_LIFT1(f32x16, from_bits, i32x16)
OCTAVO_LIFT2(mask16, less, f32x16)
OCTAVO_LIFT2(mask16, greater, f32x16)
OCTAVO_LIFT2(mask16, equal, f32x16)
OCTAVO_LIFT1(mask16, is_nan, f32x16)

#undef OCTAVO_LIFT1
#undef OCTAVO_LIFT2

template <int kBits>
OCTAVO_INLINE i32x16 shift_left(i32x16 a) {
  i32x16 r;
  OCTAVO_EACH_PART r.part[i] = shift_left<kBits>(a.part[i]);
  return r;
}

template <int kDistance>
OCTAVO_INLINE f32x16 swap_lanes(f32x16 a) {
  f32x16 r;
  if constexpr (kDistance >= kWidth) {
    OCTAVO_EACH_PART r.part[i] = a.part[i ^ (kDistance / kWidth)];
  } else {
    OCTAVO_EACH_PART r.part[i] = swap_lanes<kDistance>(a.part[i]);
  }
  return r;
}

OCTAVO_INLINE f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
  f32x16 r;
  OCTAVO_EACH_PART r.part[i] = fma(a.part[i], b.part[i], c.part[i]);
  return r;
}

OCTAVO_INLINE f32x16 load16(const float* p) {
  f32x16 r;
  OCTAVO_EACH_PART r.part[i] = vload(p + i * kWidth);
  return r;
}

OCTAVO_INLINE void store16(float* p, f32x16 a) { OCTAVO_EACH_PART vstore(p + i * kWidth, a.part[i]); }

OCTAVO_INLINE f32x16 splat16(float a) {
  f32x16 r;
  OCTAVO_EACH_PART r.part[i] = vsplat(a);
  return r;
}

OCTAVO_INLINE i32x16 load16_int(const int32_t* p) {
  i32x16 r;
  OCTAVO_EACH_PART r.part[i] = vload_int(p + i * kWidth);
  return r;
}

OCTAVO_INLINE void store16_int(int32_t* p, i32x16 a) { OCTAVO_EACH_PART vstore_int(p + i * kWidth, a.part[i]); }

OCTAVO_INLINE i32x16 splat16_int(int32_t a) {
  i32x16 r;
  OCTAVO_EACH_PART r.part[i] = vsplat_int(a);
  return r;
}

OCTAVO_INLINE f32x16 load16_f16(const uint16_t* p) {
  f32x16 r;
  OCTAVO_EACH_PART r.part[i] = vload_f16(p + i * kWidth);
  return r;
}

OCTAVO_INLINE void store16_f16(uint16_t* p, f32x16 a) { OCTAVO_EACH_PART vstore_f16(p + i * kWidth, a.part[i]); }

OCTAVO_INLINE f32x16 load16_bf16(const uint16_t* p) {
  f32x16 r;
  OCTAVO_EACH_PART r.part[i] = vload_bf16(p + i * kWidth);
  return r;
}

OCTAVO_INLINE f32x16 select(mask16 m, f32x16 if_true, f32x16 if_false) {
  f32x16 r;
  OCTAVO_EACH_PART r.part[i] = select(m.part[i], if_true.part[i], if_false.part[i]);
  return r;
}

OCTAVO_INLINE mask16 first_lanes(int n) {
  mask16 r;
  OCTAVO_EACH_PART r.part[i] = less(add(lane_numbers(), vsplat_int(i * kWidth)), vsplat_int(n));
  return r;
}

OCTAVO_INLINE bool any(mask16 m) {
  bool found = false;
  OCTAVO_EACH_PART found |= any(m.part[i]);
  return found;
}

OCTAVO_INLINE f32x16 max_or_nan(f32x16 a, f32x16 b) { return select(is_nan(a), a, max(a, b)); }

OCTAVO_INLINE f32x16 with_lane(f32x16 a, int lane, float value) {
#if defined(OCTAVO_SIMD_AVX512)
  return {{_mm512_mask_broadcastss_ps(a.part[0], static_cast<vmask>(1 << lane), _mm_set_ss(value))}};
#else
  alignas(64) float lanes[kLanes];
  store16(lanes, a);
  lanes[lane] = value;
  return load16(lanes);
#endif
}

#if defined(OCTAVO_SIMD_AVX512)
OCTAVO_INLINE vmask first_bits(int n) { return static_cast<vmask>((1u << n) - 1); }
OCTAVO_INLINE f32x16 load_first(const float* p, int n) { return {{_mm512_maskz_loadu_ps(first_bits(n), p)}}; }
OCTAVO_INLINE void store_first(float* p, f32x16 a, int n) { _mm512_mask_storeu_ps(p, first_bits(n), a.part[0]); }
#else
// Tails are rare and short, so a copy through memory is good enough.
OCTAVO_INLINE f32x16 load_first(const float* p, int n) {
  alignas(64) float lanes[kLanes] = {};
  __builtin_memcpy(lanes, p, sizeof(float) * static_cast<size_t>(n));
  return load16(lanes);
}

OCTAVO_INLINE void store_first(float* p, f32x16 a, int n) {
  alignas(64) float lanes[kLanes];
  store16(lanes, a);
  __builtin_memcpy(p, lanes, sizeof(float) * static_cast<size_t>(n));
}
#endif

// The first `lanes` of 1 … 16, mostly all.
OCTAVO_INLINE f32x16 load_lanes(const float* p, int lanes) {
  return lanes == kLanes ? load16(p) : load_first(p, lanes);
}

OCTAVO_INLINE void store_lanes(float* p, f32x16 a, int lanes) {
  if (lanes == kLanes) {
    store16(p, a);
  } else {
    store_first(p, a, lanes);
  }
}

OCTAVO_INLINE void store16_as_bytes(int8_t* p, i32x16 a) {
  OCTAVO_EACH_PART store_as_bytes(p + i * kWidth, a.part[i]);
}

// Byte `place` of each of 16 quads; the others stay.
OCTAVO_INLINE void store16_as_bytes_of_quads(int8_t* quads, int place, i32x16 a) {
#if defined(OCTAVO_SIMD_AVX512)
  const __m512i placed = _mm512_sll_epi32(a.part[0], _mm_cvtsi32_si128(8 * place));
  _mm512_mask_storeu_epi8(quads, 0x1111111111111111ull << place, placed);
#else
  alignas(64) int8_t bytes[kLanes];
  store16_as_bytes(bytes, a);
  for (int i = 0; i < kLanes; ++i) quads[i * 4 + place] = bytes[i];
#endif
}

// The lowest 16 bits of each lane of four vectors, numbers within uint8.
OCTAVO_INLINE void store64_low_words_as_bytes(uint8_t* p, const i32x16 (&a)[4]) {
#if defined(OCTAVO_SIMD_AVX512)
  alignas(64) static constexpr uint16_t kEven[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                                                     32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
  const __m512i even = _mm512_load_si512(kEven);
  const __m512i words01 = _mm512_permutex2var_epi16(a[0].part[0], even, a[1].part[0]);
  const __m512i words23 = _mm512_permutex2var_epi16(a[2].part[0], even, a[3].part[0]);
  const __m512i eights = _mm512_packus_epi16(words01, words23);  // 8 bytes of each, in turn
  _mm512_storeu_si512(p, _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), eights));
#else
  for (int i = 0; i < 4; ++i) {
    const i32x16 byte = bit_and(add(a[i], splat16_int(128)), splat16_int(255));  // 128 more, modulo 256
    store16_as_bytes(reinterpret_cast<int8_t*>(p) + i * kLanes, add(byte, splat16_int(-128)));
  }
#endif
}

// The compiler may not assume that what it points to is what was there before.
template <class T>
OCTAVO_INLINE void forget(const T*& p) { asm volatile("" : "+r"(p)::"memory"); }

OCTAVO_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }
OCTAVO_INLINE void prefetch_nearby(const void* p) { __builtin_prefetch(p, 0, 2); }  // into the second-level cache
OCTAVO_INLINE void prefetch_to_write(const void* p) { __builtin_prefetch(p, 1, 3); }

}  // namespace
}  // namespace octavo::OCTAVO_ISA

#include "simd_reductions.h"
