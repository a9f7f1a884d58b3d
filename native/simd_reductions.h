// Reductions of 16 lanes, of one vector or of several side by side. Included by simd.h only.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

#if defined(OCTAVO_SIMD_AVX512) || defined(OCTAVO_SIMD_AVX2)
#if defined(OCTAVO_SIMD_AVX512)
OCTAVO_INLINE __m256 lower_eight(f32x16 a) { return _mm512_castps512_ps256(a.part[0]); }
OCTAVO_INLINE __m256 upper_eight(f32x16 a) { return _mm512_extractf32x8_ps(a.part[0], 1); }
OCTAVO_INLINE __m256i lower_eight(i32x16 a) { return _mm512_castsi512_si256(a.part[0]); }
OCTAVO_INLINE __m256i upper_eight(i32x16 a) { return _mm512_extracti32x8_epi32(a.part[0], 1); }
#else
OCTAVO_INLINE __m256 lower_eight(f32x16 a) { return a.part[0]; }
OCTAVO_INLINE __m256 upper_eight(f32x16 a) { return a.part[1]; }
OCTAVO_INLINE __m256i lower_eight(i32x16 a) { return a.part[0]; }
OCTAVO_INLINE __m256i upper_eight(i32x16 a) { return a.part[1]; }
#endif

OCTAVO_INLINE float tree_sum(f32x16 a) {
  const __m256 eight = _mm256_add_ps(lower_eight(a), upper_eight(a));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

OCTAVO_INLINE float reduce_max(f32x16 a) {
  const __m256 eight = _mm256_max_ps(lower_eight(a), upper_eight(a));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

OCTAVO_INLINE int32_t reduce_add(i32x16 a) {
  const __m256i eight = _mm256_add_epi32(lower_eight(a), upper_eight(a));
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

OCTAVO_INLINE int32_t reduce_max(i32x16 a) {
  const __m256i eight = _mm256_max_epi32(lower_eight(a), upper_eight(a));
  const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
#else
OCTAVO_INLINE float tree_sum(f32x16 a) {
  alignas(64) float lanes[kLanes];
  store16(lanes, a);
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) lanes[i] += lanes[i + step];
  }
  return lanes[0];
}

OCTAVO_INLINE float reduce_max(f32x16 a) {
  alignas(64) float lanes[kLanes];
  store16(lanes, a);
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) lanes[i] = lanes[i] > lanes[i + step] ? lanes[i] : lanes[i + step];
  }
  return lanes[0];
}

OCTAVO_INLINE int32_t reduce_add(i32x16 a) {
  int32_t lanes[kLanes];
  store16_int(lanes, a);
  int32_t total = 0;
  for (int i = 0; i < kLanes; ++i) total += lanes[i];
  return total;
}

OCTAVO_INLINE int32_t reduce_max(i32x16 a) {
  int32_t lanes[kLanes];
  store16_int(lanes, a);
  int32_t largest = lanes[0];
  for (int i = 1; i < kLanes; ++i) largest = lanes[i] > largest ? lanes[i] : largest;
  return largest;
}
#endif

// Up to eight reductions at once, each in the order of tree_sum: lane r of the result is that of a[r]. Lanes from kCount on
// hold anything.
#if defined(OCTAVO_SIMD_AVX512)
template <int kCount, class Combine>
OCTAVO_INLINE f32x16 tree_reduce_rows(const f32x16 (&a)[kCount], Combine combine) {
  static_assert(kCount <= 8);
  vf halves[4], quarters[2];
#pragma GCC unroll 4
  for (int i = 0; i < (kCount + 1) / 2; ++i) {
    const vf x = a[2 * i].part[0], y = a[2 * i + 1 < kCount ? 2 * i + 1 : 2 * i].part[0];
    halves[i] = combine(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
  }
#pragma GCC unroll 2
  for (int i = 0; i < (kCount + 3) / 4; ++i) {
    const vf x = halves[2 * i], y = halves[4 * i + 2 < kCount ? 2 * i + 1 : 2 * i];
    quarters[i] = combine(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));
  }
  const vf x = quarters[0], y = quarters[kCount > 4 ? 1 : 0];
  const vf pairs = combine(_mm512_shuffle_ps(x, y, 0x44), _mm512_shuffle_ps(x, y, 0xee));
  const vf each = combine(_mm512_shuffle_ps(pairs, pairs, 0x88), _mm512_shuffle_ps(pairs, pairs, 0xdd));
  const vi order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 4, 8, 12, 1, 5, 9, 13);
  return {{_mm512_permutexvar_ps(order, each)}};
}

template <int kCount>
OCTAVO_INLINE f32x16 tree_sum_rows(const f32x16 (&a)[kCount]) {
  return tree_reduce_rows(a, [](vf x, vf y) { return add(x, y); });
}

template <int kCount>
OCTAVO_INLINE f32x16 reduce_max_rows(const f32x16 (&a)[kCount]) {
  return tree_reduce_rows(a, [](vf x, vf y) { return max(x, y); });
}

template <int kCount>
OCTAVO_INLINE i32x16 reduce_max_rows(const i32x16 (&a)[kCount]) {
  f32x16 bits[kCount];
  for (int i = 0; i < kCount; ++i) bits[i] = from_bits(a[i]);
  return bits_of(tree_reduce_rows(bits, [](vf x, vf y) { return from_bits(max(bits_of(x), bits_of(y))); }));
}
#else
template <int kCount>
OCTAVO_INLINE f32x16 tree_sum_rows(const f32x16 (&a)[kCount]) {
  alignas(64) float lanes[kLanes] = {};
  for (int i = 0; i < kCount; ++i) lanes[i] = tree_sum(a[i]);
  return load16(lanes);
}

template <int kCount>
OCTAVO_INLINE f32x16 reduce_max_rows(const f32x16 (&a)[kCount]) {
  alignas(64) float lanes[kLanes] = {};
  for (int i = 0; i < kCount; ++i) lanes[i] = reduce_max(a[i]);
  return load16(lanes);
}

template <int kCount>
OCTAVO_INLINE i32x16 reduce_max_rows(const i32x16 (&a)[kCount]) {
  alignas(64) int32_t lanes[kLanes] = {};
  for (int i = 0; i < kCount; ++i) lanes[i] = reduce_max(a[i]);
  return load16_int(lanes);
}
#endif

// Sixteen reductions at once, exact ones, whose order is free: lane i of the result is that of vector i.
#if defined(OCTAVO_SIMD_AVX512)
// The lanes of four vectors, combined within each quarter of a register: quarter by quarter one lane for each vector.
template <class Combine>
OCTAVO_INLINE vi reduce_quarters(const i32x16* a, Combine combine) {
  const auto pair = [combine](vi x, vi y) { return combine(_mm512_unpacklo_epi32(x, y), _mm512_unpackhi_epi32(x, y)); };
  const vi ab = pair(a[0].part[0], a[1].part[0]), cd = pair(a[2].part[0], a[3].part[0]);
  return combine(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

// Even and odd quarters of both, combined.
template <class Combine>
OCTAVO_INLINE vi combine_quarters(vi a, vi b, Combine combine) {
  return combine(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

template <class Combine>
OCTAVO_INLINE i32x16 reduce_each(const i32x16 (&a)[kLanes], Combine combine) {
  const vi first = combine_quarters(reduce_quarters(a, combine), reduce_quarters(a + 4, combine), combine);
  const vi second = combine_quarters(reduce_quarters(a + 8, combine), reduce_quarters(a + 12, combine), combine);
  return {{combine_quarters(first, second, combine)}};
}

OCTAVO_INLINE i32x16 reduce_max_each(const i32x16 (&a)[kLanes]) {
  return reduce_each(a, [](vi x, vi y) { return max(x, y); });
}

OCTAVO_INLINE i32x16 reduce_add_each(const i32x16 (&a)[kLanes]) {
  return reduce_each(a, [](vi x, vi y) { return add(x, y); });
}
#else
OCTAVO_INLINE i32x16 reduce_max_each(const i32x16 (&a)[kLanes]) {
  int32_t lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = reduce_max(a[i]);
  return load16_int(lanes);
}

OCTAVO_INLINE i32x16 reduce_add_each(const i32x16 (&a)[kLanes]) {
  int32_t lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = reduce_add(a[i]);
  return load16_int(lanes);
}
#endif

}  // namespace
}  // namespace octavo::OCTAVO_ISA
