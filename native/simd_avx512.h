// AVX-512 (F, BW, VL, DQ) with or without VNNI: one register is 16 lanes. Included by simd.h only.

using vf = __m512;
using vi = __m512i;
using vmask = __mmask16;
using vbytes = __m512i;
constexpr int kWidth = 16;

OCTAVO_INLINE vf vload(const float* p) { return _mm512_loadu_ps(p); }
OCTAVO_INLINE void vstore(float* p, vf a) { _mm512_storeu_ps(p, a); }
OCTAVO_INLINE vf vsplat(float a) { return _mm512_set1_ps(a); }
OCTAVO_INLINE vi vload_int(const int32_t* p) { return _mm512_loadu_si512(p); }
OCTAVO_INLINE void vstore_int(int32_t* p, vi a) { _mm512_storeu_si512(p, a); }
OCTAVO_INLINE vi vsplat_int(int32_t a) { return _mm512_set1_epi32(a); }
OCTAVO_INLINE vf vload_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
OCTAVO_INLINE void vstore_f16(uint16_t* p, vf a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
OCTAVO_INLINE vf vload_bf16(const uint16_t* p) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

OCTAVO_INLINE vf add(vf a, vf b) { return _mm512_add_ps(a, b); }
OCTAVO_INLINE vf sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
OCTAVO_INLINE vf mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
OCTAVO_INLINE vf div(vf a, vf b) { return _mm512_div_ps(a, b); }
OCTAVO_INLINE vf fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
OCTAVO_INLINE vf sqrt(vf a) { return _mm512_sqrt_ps(a); }
OCTAVO_INLINE vf abs(vf a) { return _mm512_abs_ps(a); }
OCTAVO_INLINE vf max(vf a, vf b) { return _mm512_max_ps(a, b); }
OCTAVO_INLINE vf min(vf a, vf b) { return _mm512_min_ps(a, b); }
OCTAVO_INLINE vf round_half_even(vf a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

OCTAVO_INLINE vi add(vi a, vi b) { return _mm512_add_epi32(a, b); }
OCTAVO_INLINE vi max(vi a, vi b) { return _mm512_max_epi32(a, b); }
OCTAVO_INLINE vi bit_and(vi a, vi b) { return _mm512_and_si512(a, b); }
template <int kBits>
OCTAVO_INLINE vi shift_left(vi a) { return _mm512_slli_epi32(a, kBits); }
OCTAVO_INLINE vi to_int(vf a) { return _mm512_cvtps_epi32(a); }
OCTAVO_INLINE vf to_float(vi a) { return _mm512_cvtepi32_ps(a); }
OCTAVO_INLINE vi bits_of(vf a) { return _mm512_castps_si512(a); }
OCTAVO_INLINE vf from_bits(vi a) { return _mm512_castsi512_ps(a); }

OCTAVO_INLINE vmask less(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
OCTAVO_INLINE vmask greater(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
OCTAVO_INLINE vmask equal(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
OCTAVO_INLINE vmask is_nan(vf a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
OCTAVO_INLINE vmask less(vi a, vi b) { return _mm512_cmplt_epi32_mask(a, b); }
OCTAVO_INLINE bool any(vmask m) { return m != 0; }
OCTAVO_INLINE vf select(vmask m, vf if_true, vf if_false) { return _mm512_mask_mov_ps(if_false, m, if_true); }
template <int kDistance>
OCTAVO_INLINE vf swap_lanes(vf a) {
  if constexpr (kDistance == 8) return _mm512_shuffle_f32x4(a, a, 0x4e);
  if constexpr (kDistance == 4) return _mm512_shuffle_f32x4(a, a, 0xb1);
  return _mm512_permute_ps(a, kDistance == 2 ? 0x4e : 0xb1);
}
OCTAVO_INLINE vi lane_numbers() { return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }

OCTAVO_INLINE vbytes load_bytes(const void* p) { return _mm512_loadu_si512(p); }
OCTAVO_INLINE vbytes splat_quad(const int8_t* p) {
  int32_t quad;
  __builtin_memcpy(&quad, p, sizeof(quad));
  return _mm512_set1_epi32(quad);
}
OCTAVO_INLINE vbytes low_nibbles(vbytes a) { return _mm512_and_si512(a, _mm512_set1_epi8(15)); }
OCTAVO_INLINE vbytes high_nibbles(vbytes a) {
  return _mm512_and_si512(_mm512_srli_epi16(a, 4), _mm512_set1_epi8(15));
}

using prepared_values = vbytes;
OCTAVO_INLINE prepared_values prepare_values(vbytes values) { return values; }

#ifdef __AVX512VNNI__
// The compiler would move the sum of its own instruction's form from register to register in a loop.
OCTAVO_INLINE vi dot_quads(vi sum, vbytes weights, vbytes q) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(weights), "v"(q));
  return sum;
}

struct quad_sum { vi total; };
OCTAVO_INLINE quad_sum quad_zero() { return {_mm512_setzero_si512()}; }
OCTAVO_INLINE quad_sum quad_add(quad_sum sum, vbytes weights, vbytes q) {
  return {dot_quads(sum.total, weights, q)};
}
OCTAVO_INLINE vi quad_total(quad_sum sum) { return sum.total; }

// vpdpbusd wants unsigned weights: w + 128 is, and Σ q·w = Σ q·(w + 128) - 128·Σ q.
struct signed_weights { vbytes biased; };
OCTAVO_INLINE signed_weights prepare_signed(vbytes w) {
  return {_mm512_xor_si512(w, _mm512_set1_epi8(static_cast<char>(0x80)))};
}
OCTAVO_INLINE vi signed_start(int32_t minus_128_sum) { return _mm512_set1_epi32(minus_128_sum); }
OCTAVO_INLINE vi signed_add(vi sum, signed_weights w, vbytes q) { return dot_quads(sum, w.biased, q); }
OCTAVO_INLINE vi add_weighted(vi sum, vbytes weights, prepared_values values) {
  return dot_quads(sum, weights, values);
}
#else
// 16-bit partial sums. Four quads of weights ≤ 31: 4 steps · 2 products · 31 · 127 = 31,496 ≤ 32,767.
struct quad_sum { __m512i pairs; };
OCTAVO_INLINE quad_sum quad_zero() { return {_mm512_setzero_si512()}; }
OCTAVO_INLINE quad_sum quad_add(quad_sum sum, vbytes weights, vbytes q) {
  return {_mm512_add_epi16(sum.pairs, _mm512_maddubs_epi16(weights, q))};
}
OCTAVO_INLINE vi quad_total(quad_sum sum) { return _mm512_madd_epi16(sum.pairs, _mm512_set1_epi16(1)); }

// Σ q·w = Σ (±q)·|w|. One pair: 2 · 128 · 127 = 32,512 ≤ 32,767, so it is widened before it is added.
struct signed_weights { vbytes magnitude; __mmask64 negative; };
OCTAVO_INLINE signed_weights prepare_signed(vbytes w) { return {_mm512_abs_epi8(w), _mm512_movepi8_mask(w)}; }
OCTAVO_INLINE vi signed_start(int32_t) { return _mm512_setzero_si512(); }
OCTAVO_INLINE vi signed_add(vi sum, signed_weights w, vbytes q) {
  const vbytes turned = _mm512_mask_sub_epi8(q, w.negative, _mm512_setzero_si512(), q);
  return add(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(w.magnitude, turned), _mm512_set1_epi16(1)));
}

// Unsigned weights in two parts, 7 bits and the eighth. One pair: 2 · 128 · 127 = 32,512 ≤ 32,767.
OCTAVO_INLINE vi add_weighted(vi sum, vbytes weights, prepared_values values) {
  const vbytes eighth = _mm512_set1_epi8(static_cast<char>(0x80));
  const __m512i lower = _mm512_maddubs_epi16(_mm512_andnot_si512(eighth, weights), values);
  const __m512i upper = _mm512_maddubs_epi16(_mm512_and_si512(eighth, weights), values);
  const __m512i ones = _mm512_set1_epi16(1);
  return add(sum, add(_mm512_madd_epi16(lower, ones), _mm512_madd_epi16(upper, ones)));
}
#endif

OCTAVO_INLINE void store_as_bytes(int8_t* p, vi a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
}
