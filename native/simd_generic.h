// Any processor: one "register" is one lane. Slow, and bit-identical to the others. Included by simd.h only.

using vf = float;
using vi = int32_t;
struct vmask { bool m; };
struct vbytes { uint8_t byte[4]; };
constexpr int kWidth = 1;

OCTAVO_INLINE vf vload(const float* p) { return *p; }
OCTAVO_INLINE void vstore(float* p, vf a) { *p = a; }
OCTAVO_INLINE vf vsplat(float a) { return a; }
OCTAVO_INLINE vi vload_int(const int32_t* p) { return *p; }
OCTAVO_INLINE void vstore_int(int32_t* p, vi a) { *p = a; }
OCTAVO_INLINE vi vsplat_int(int32_t a) { return a; }
OCTAVO_INLINE vf vload_f16(const uint16_t* p) { return half_to_float(*p); }
OCTAVO_INLINE void vstore_f16(uint16_t* p, vf a) { *p = float_to_half(a); }
OCTAVO_INLINE vf vload_bf16(const uint16_t* p) { return bfloat16_to_float(*p); }

OCTAVO_INLINE vf add(vf a, vf b) { return a + b; }
OCTAVO_INLINE vf sub(vf a, vf b) { return a - b; }
OCTAVO_INLINE vf mul(vf a, vf b) { return a * b; }
OCTAVO_INLINE vf div(vf a, vf b) { return a / b; }
OCTAVO_INLINE vf fma(vf a, vf b, vf c) { return __builtin_fmaf(a, b, c); }
OCTAVO_INLINE vf sqrt(vf a) { return __builtin_sqrtf(a); }
OCTAVO_INLINE vf abs(vf a) { return __builtin_fabsf(a); }
OCTAVO_INLINE vf max(vf a, vf b) { return a > b ? a : b; }
OCTAVO_INLINE vf min(vf a, vf b) { return a < b ? a : b; }
OCTAVO_INLINE vf round_half_even(vf a) { return __builtin_rintf(a); }

OCTAVO_INLINE vi add(vi a, vi b) { return static_cast<vi>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b)); }
OCTAVO_INLINE vi max(vi a, vi b) { return a > b ? a : b; }
OCTAVO_INLINE vi bit_and(vi a, vi b) { return a & b; }
template <int kBits>
OCTAVO_INLINE vi shift_left(vi a) { return static_cast<vi>(static_cast<uint32_t>(a) << kBits); }
// Out of range (and NaN) gives the most negative integer, as on x86.
OCTAVO_INLINE vi to_int(vf a) {
  const vf rounded = __builtin_rintf(a);
  return rounded >= -2147483648.0f && rounded < 2147483648.0f ? static_cast<vi>(rounded) : INT32_MIN;
}
OCTAVO_INLINE vf to_float(vi a) { return static_cast<vf>(a); }
OCTAVO_INLINE vi bits_of(vf a) { return __builtin_bit_cast(vi, a); }
OCTAVO_INLINE vf from_bits(vi a) { return __builtin_bit_cast(vf, a); }

OCTAVO_INLINE vmask less(vf a, vf b) { return {a < b}; }
OCTAVO_INLINE vmask greater(vf a, vf b) { return {a > b}; }
OCTAVO_INLINE vmask equal(vf a, vf b) { return {a == b}; }
OCTAVO_INLINE vmask is_nan(vf a) { return {a != a}; }
OCTAVO_INLINE vmask less(vi a, vi b) { return {a < b}; }
OCTAVO_INLINE bool any(vmask m) { return m.m; }
OCTAVO_INLINE vf select(vmask m, vf if_true, vf if_false) { return m.m ? if_true : if_false; }
OCTAVO_INLINE vi lane_numbers() { return 0; }

OCTAVO_INLINE vbytes load_bytes(const void* p) {
  vbytes bytes;
  __builtin_memcpy(&bytes, p, sizeof(bytes));
  return bytes;
}
OCTAVO_INLINE vbytes splat_quad(const int8_t* p) { return load_bytes(p); }
OCTAVO_INLINE vbytes low_nibbles(vbytes a) {
  for (uint8_t& byte : a.byte) byte &= 15;
  return a;
}
OCTAVO_INLINE vbytes high_nibbles(vbytes a) {
  for (uint8_t& byte : a.byte) byte >>= 4;
  return a;
}

struct quad_sum { vi total; };
OCTAVO_INLINE quad_sum quad_zero() { return {0}; }
OCTAVO_INLINE quad_sum quad_add(quad_sum sum, vbytes weights, vbytes q) {
  for (int i = 0; i < 4; ++i) sum.total += weights.byte[i] * static_cast<int8_t>(q.byte[i]);
  return sum;
}
OCTAVO_INLINE vi quad_total(quad_sum sum) { return sum.total; }

struct signed_weights { vbytes value; };
OCTAVO_INLINE signed_weights prepare_signed(vbytes w) { return {w}; }
OCTAVO_INLINE vi signed_start(int32_t) { return 0; }
OCTAVO_INLINE vi signed_add(vi sum, signed_weights w, vbytes q) {
  for (int i = 0; i < 4; ++i) sum += static_cast<int8_t>(w.value.byte[i]) * static_cast<int8_t>(q.byte[i]);
  return sum;
}

using prepared_values = vbytes;
OCTAVO_INLINE prepared_values prepare_values(vbytes values) { return values; }
OCTAVO_INLINE vi add_weighted(vi sum, vbytes weights, prepared_values values) {
  return quad_add({sum}, weights, values).total;
}

OCTAVO_INLINE void store_as_bytes(int8_t* p, vi a) { *p = static_cast<int8_t>(a); }
