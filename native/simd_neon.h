// NEON (aarch64): one register is 4 lanes. Included by simd.h only.

using vf = float32x4_t;
using vi = int32x4_t;
using vmask = uint32x4_t;
using vbytes = int8x16_t;
constexpr int kWidth = 4;

OCTAVO_INLINE vf vload(const float* p) { return vld1q_f32(p); }
OCTAVO_INLINE void vstore(float* p, vf a) { vst1q_f32(p, a); }
OCTAVO_INLINE vf vsplat(float a) { return vdupq_n_f32(a); }
OCTAVO_INLINE vi vload_int(const int32_t* p) { return vld1q_s32(p); }
OCTAVO_INLINE void vstore_int(int32_t* p, vi a) { vst1q_s32(p, a); }
OCTAVO_INLINE vi vsplat_int(int32_t a) { return vdupq_n_s32(a); }
OCTAVO_INLINE vf vload_f16(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
OCTAVO_INLINE void vstore_f16(uint16_t* p, vf a) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a))); }
OCTAVO_INLINE vf vload_bf16(const uint16_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }

OCTAVO_INLINE vf add(vf a, vf b) { return vaddq_f32(a, b); }
OCTAVO_INLINE vf sub(vf a, vf b) { return vsubq_f32(a, b); }
OCTAVO_INLINE vf mul(vf a, vf b) { return vmulq_f32(a, b); }
OCTAVO_INLINE vf div(vf a, vf b) { return vdivq_f32(a, b); }
OCTAVO_INLINE vf fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
OCTAVO_INLINE vf sqrt(vf a) { return vsqrtq_f32(a); }
OCTAVO_INLINE vf abs(vf a) { return vabsq_f32(a); }
OCTAVO_INLINE vf select(vmask m, vf if_true, vf if_false) { return vbslq_f32(m, if_true, if_false); }
OCTAVO_INLINE vf max(vf a, vf b) { return select(vcgtq_f32(a, b), a, b); }
OCTAVO_INLINE vf min(vf a, vf b) { return select(vcltq_f32(a, b), a, b); }
OCTAVO_INLINE vf round_half_even(vf a) { return vrndnq_f32(a); }

OCTAVO_INLINE vi add(vi a, vi b) { return vaddq_s32(a, b); }
OCTAVO_INLINE vi max(vi a, vi b) { return vmaxq_s32(a, b); }
OCTAVO_INLINE vi bit_and(vi a, vi b) { return vandq_s32(a, b); }
template <int kBits>
OCTAVO_INLINE vi shift_left(vi a) { return vshlq_n_s32(a, kBits); }
OCTAVO_INLINE vi to_int(vf a) { return vcvtnq_s32_f32(a); }
OCTAVO_INLINE vf to_float(vi a) { return vcvtq_f32_s32(a); }
OCTAVO_INLINE vi bits_of(vf a) { return vreinterpretq_s32_f32(a); }
OCTAVO_INLINE vf from_bits(vi a) { return vreinterpretq_f32_s32(a); }

OCTAVO_INLINE vmask less(vf a, vf b) { return vcltq_f32(a, b); }
OCTAVO_INLINE vmask greater(vf a, vf b) { return vcgtq_f32(a, b); }
OCTAVO_INLINE vmask equal(vf a, vf b) { return vceqq_f32(a, b); }
OCTAVO_INLINE vmask is_nan(vf a) { return vmvnq_u32(vceqq_f32(a, a)); }
OCTAVO_INLINE vmask less(vi a, vi b) { return vcltq_s32(a, b); }
OCTAVO_INLINE bool any(vmask m) { return vmaxvq_u32(m) != 0; }
template <int kDistance>
OCTAVO_INLINE vf swap_lanes(vf a) {
  if constexpr (kDistance == 2) return vextq_f32(a, a, 2);
  return vrev64q_f32(a);
}
OCTAVO_INLINE vi lane_numbers() {
  const int32_t lanes[4] = {0, 1, 2, 3};
  return vld1q_s32(lanes);
}

OCTAVO_INLINE vbytes load_bytes(const void* p) { return vld1q_s8(static_cast<const int8_t*>(p)); }
OCTAVO_INLINE vbytes splat_quad(const int8_t* p) {
  int32_t quad;
  __builtin_memcpy(&quad, p, sizeof(quad));
  return vreinterpretq_s8_s32(vdupq_n_s32(quad));
}
OCTAVO_INLINE vbytes low_nibbles(vbytes a) { return vandq_s8(a, vdupq_n_s8(15)); }
OCTAVO_INLINE vbytes high_nibbles(vbytes a) {
  return vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s8(a), 4));
}

// Both operands are signed here: unsigned weights are at most 127. A product of int8 is exact in int16,
// and the sums are made in int32.
OCTAVO_INLINE vi dot_quads(vi sum, vbytes a, vbytes b) {
#ifdef __ARM_FEATURE_DOTPROD
  return vdotq_s32(sum, a, b);
#else
  const vi low = vpaddlq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)));
  const vi high = vpaddlq_s16(vmull_high_s8(a, b));
  return vaddq_s32(sum, vpaddq_s32(low, high));
#endif
}
struct quad_sum { vi total; };
OCTAVO_INLINE quad_sum quad_zero() { return {vdupq_n_s32(0)}; }
OCTAVO_INLINE quad_sum quad_add(quad_sum sum, vbytes weights, vbytes q) { return {dot_quads(sum.total, weights, q)}; }
OCTAVO_INLINE vi quad_total(quad_sum sum) { return sum.total; }

struct signed_weights { vbytes value; };
OCTAVO_INLINE signed_weights prepare_signed(vbytes w) { return {w}; }
OCTAVO_INLINE vi signed_start(int32_t) { return vdupq_n_s32(0); }
OCTAVO_INLINE vi signed_add(vi sum, signed_weights w, vbytes q) { return dot_quads(sum, w.value, q); }

using prepared_values = vbytes;
OCTAVO_INLINE prepared_values prepare_values(vbytes values) { return values; }

// Unsigned weights in two parts, 7 bits and the eighth.
OCTAVO_INLINE vi add_weighted(vi sum, vbytes weights, prepared_values values) {
  const vbytes lower = vandq_s8(weights, vdupq_n_s8(127));
  const vbytes eighth = vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s8(weights), 7));
  const vi upper = vshlq_n_s32(dot_quads(vdupq_n_s32(0), eighth, values), 7);
  return dot_quads(vaddq_s32(sum, upper), lower, values);
}

OCTAVO_INLINE void store_as_bytes(int8_t* p, vi a) {
  const int16x4_t words = vmovn_s32(a);
  const int8x8_t bytes = vmovn_s16(vcombine_s16(words, words));
  __builtin_memcpy(p, &bytes, 4);
}
