// AVX2 with FMA and F16C: one register is 8 lanes. Included by simd.h only.

using vf = __m256;
using vi = __m256i;
struct vmask { __m256 m; };
using vbytes = __m256i;
constexpr int kWidth = 8;

OCTAVO_INLINE vf vload(const float* p) { return _mm256_loadu_ps(p); }
OCTAVO_INLINE void vstore(float* p, vf a) { _mm256_storeu_ps(p, a); }
OCTAVO_INLINE vf vsplat(float a) { return _mm256_set1_ps(a); }
OCTAVO_INLINE vi vload_int(const int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
OCTAVO_INLINE void vstore_int(int32_t* p, vi a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a); }
OCTAVO_INLINE vi vsplat_int(int32_t a) { return _mm256_set1_epi32(a); }
OCTAVO_INLINE vf vload_f16(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
OCTAVO_INLINE void vstore_f16(uint16_t* p, vf a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
OCTAVO_INLINE vf vload_bf16(const uint16_t* p) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

OCTAVO_INLINE vf add(vf a, vf b) { return _mm256_add_ps(a, b); }
OCTAVO_INLINE vf sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
OCTAVO_INLINE vf mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
OCTAVO_INLINE vf div(vf a, vf b) { return _mm256_div_ps(a, b); }
OCTAVO_INLINE vf fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
OCTAVO_INLINE vf sqrt(vf a) { return _mm256_sqrt_ps(a); }
OCTAVO_INLINE vf abs(vf a) { return _mm256_and_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff))); }
OCTAVO_INLINE vf max(vf a, vf b) { return _mm256_max_ps(a, b); }
OCTAVO_INLINE vf min(vf a, vf b) { return _mm256_min_ps(a, b); }
OCTAVO_INLINE vf round_half_even(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

OCTAVO_INLINE vi add(vi a, vi b) { return _mm256_add_epi32(a, b); }
OCTAVO_INLINE vi max(vi a, vi b) { return _mm256_max_epi32(a, b); }
OCTAVO_INLINE vi bit_and(vi a, vi b) { return _mm256_and_si256(a, b); }
template <int kBits>
OCTAVO_INLINE vi shift_left(vi a) { return _mm256_slli_epi32(a, kBits); }
OCTAVO_INLINE vi to_int(vf a) { return _mm256_cvtps_epi32(a); }
OCTAVO_INLINE vf to_float(vi a) { return _mm256_cvtepi32_ps(a); }
OCTAVO_INLINE vi bits_of(vf a) { return _mm256_castps_si256(a); }
OCTAVO_INLINE vf from_bits(vi a) { return _mm256_castsi256_ps(a); }

OCTAVO_INLINE vmask less(vf a, vf b) { return {_mm256_cmp_ps(a, b, _CMP_LT_OQ)}; }
OCTAVO_INLINE vmask greater(vf a, vf b) { return {_mm256_cmp_ps(a, b, _CMP_GT_OQ)}; }
OCTAVO_INLINE vmask equal(vf a, vf b) { return {_mm256_cmp_ps(a, b, _CMP_EQ_OQ)}; }
OCTAVO_INLINE vmask is_nan(vf a) { return {_mm256_cmp_ps(a, a, _CMP_UNORD_Q)}; }
OCTAVO_INLINE vmask less(vi a, vi b) { return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(b, a))}; }
OCTAVO_INLINE bool any(vmask m) { return _mm256_movemask_ps(m.m) != 0; }
OCTAVO_INLINE vf select(vmask m, vf if_true, vf if_false) { return _mm256_blendv_ps(if_false, if_true, m.m); }
template <int kDistance>
OCTAVO_INLINE vf swap_lanes(vf a) {
  if constexpr (kDistance == 4) return _mm256_permute2f128_ps(a, a, 1);
  return _mm256_permute_ps(a, kDistance == 2 ? 0x4e : 0xb1);
}
OCTAVO_INLINE vi lane_numbers() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }

OCTAVO_INLINE vbytes load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
OCTAVO_INLINE vbytes splat_quad(const int8_t* p) {
  int32_t quad;
  __builtin_memcpy(&quad, p, sizeof(quad));
  return _mm256_set1_epi32(quad);
}
OCTAVO_INLINE vbytes low_nibbles(vbytes a) { return _mm256_and_si256(a, _mm256_set1_epi8(15)); }
OCTAVO_INLINE vbytes high_nibbles(vbytes a) {
  return _mm256_and_si256(_mm256_srli_epi16(a, 4), _mm256_set1_epi8(15));
}

// 16-bit partial sums. Four quads of weights ≤ 31: 4 steps · 2 products · 31 · 127 = 31,496 ≤ 32,767.
struct quad_sum { __m256i pairs; };
OCTAVO_INLINE quad_sum quad_zero() { return {_mm256_setzero_si256()}; }
OCTAVO_INLINE quad_sum quad_add(quad_sum sum, vbytes weights, vbytes q) {
  return {_mm256_add_epi16(sum.pairs, _mm256_maddubs_epi16(weights, q))};
}
OCTAVO_INLINE vi quad_total(quad_sum sum) { return _mm256_madd_epi16(sum.pairs, _mm256_set1_epi16(1)); }

// Σ q·w = Σ (±q)·|w|. One pair: 2 · 128 · 127 = 32,512 ≤ 32,767, so it is widened before it is added.
struct signed_weights { vbytes value; vbytes magnitude; };
OCTAVO_INLINE signed_weights prepare_signed(vbytes w) { return {w, _mm256_abs_epi8(w)}; }
OCTAVO_INLINE vi signed_start(int32_t) { return _mm256_setzero_si256(); }
OCTAVO_INLINE vi signed_add(vi sum, signed_weights w, vbytes q) {
  const __m256i pairs = _mm256_maddubs_epi16(w.magnitude, _mm256_sign_epi8(q, w.value));
  return add(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// Unsigned weights: two products of 8 bits and 8 may not fit into 16, so both are widened first, every other one of each.
struct prepared_values { __m256i even; __m256i odd; };
OCTAVO_INLINE prepared_values prepare_values(vbytes values) {
  return {_mm256_srai_epi16(_mm256_slli_epi16(values, 8), 8), _mm256_srai_epi16(values, 8)};
}
OCTAVO_INLINE vi add_weighted(vi sum, vbytes weights, prepared_values values) {
  const __m256i even = _mm256_madd_epi16(_mm256_and_si256(weights, _mm256_set1_epi16(255)), values.even);
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(weights, 8), values.odd);
  return add(sum, add(even, odd));
}

OCTAVO_INLINE void store_as_bytes(int8_t* p, vi a) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
}
