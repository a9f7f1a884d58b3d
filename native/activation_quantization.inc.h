// Activations to int8 in groups of 16, as the integer linears read them. Arithmetic: docs/adr/0001-arithmetic.md.
//
// Ops whose rows an integer linear reads quantise them as they are made; quantize_rows is for the rest.
#pragma once

#include "linear.h"
#include "simd.h"

namespace octavo::OCTAVO_ISA {
namespace {

// 16 elements to int8; returns Σ q. A NaN becomes 0: its group's scale is NaN, which is what counts. The limits
// act only where 127 / largest overflows, below 4e-37.
OCTAVO_INLINE int32_t quantize_half(f32x16 values, int8_t* q, float* scale) {
  // As integers, magnitudes order like floats, and a NaN is above infinity: the maximum keeps it.
  const float largest = __builtin_bit_cast(float, reduce_max(bits_of(abs(values))));
  const float inverse = largest == 0.0f ? 0.0f : 127.0f / largest;
  const f32x16 scaled = mul(values, splat16(inverse));
  const f32x16 limited = min(max(scaled, splat16(-127.0f)), splat16(127.0f));
  const i32x16 rounded = to_int(select(is_nan(scaled), splat16(0.0f), limited));
  store16_as_bytes(q, rounded);
  *scale = largest / 127.0f;
  return reduce_add(rounded);
}

OCTAVO_INLINE void quantize_group(f32x16 first, f32x16 second, QuantizedGroup* group) {
  const int32_t sum0 = quantize_half(first, group->q, &group->scale[0]);
  const int32_t sum1 = quantize_half(second, group->q + 16, &group->scale[1]);
  group->minimum_factor = __builtin_fmaf(group->scale[1], static_cast<float>(sum1),
                                         group->scale[0] * static_cast<float>(sum0));
  group->minus_128_sum[0] = -128 * sum0;
  group->minus_128_sum[1] = -128 * sum1;
}

// Makes elements begin … end - 1 of a row, 16 by 16, with make(d), and stores them in float32 at `out` unless it
// is null, and quantised at `groups`. `begin` and `end` are multiples of 32; both pointers are those of element 0.
template <class Make>
OCTAVO_INLINE void store_quantized(float* out, QuantizedGroup* groups, int32_t begin, int32_t end, Make make) {
  for (int32_t d = begin; d < end; d += kGroupSize) {
    const f32x16 first = make(d), second = make(d + kLanes);
    quantize_group(first, second, groups + d / kGroupSize);
    if (out == nullptr) continue;
    store16(out + d, first);
    store16(out + d + kLanes, second);
  }
}

void quantize_rows(const QuantizeRowsOp& op, const StepView& step, Worker& worker) {
  const int64_t groups_per_row = op.width / kGroupSize;
  const int64_t num_groups = num_rows(step, op.rows) * groups_per_row;
  constexpr int64_t kPiece = 16;
  for (int64_t first = claim(worker, kPiece); first < num_groups; first = claim(worker, kPiece)) {
    const int64_t end = first + kPiece < num_groups ? first + kPiece : num_groups;
    for (int64_t group = first; group < end; ++group) {
      const int64_t row = group / groups_per_row, from = op.rows == RowSet::kTokens ? row : step.logit_rows[row];
      const float* x = op.x + (from * groups_per_row + group % groups_per_row) * kGroupSize;
      quantize_group(load16(x), load16(x + kLanes), op.out + group);
    }
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
