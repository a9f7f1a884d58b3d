// Activations to int8 in groups of 16, as the integer linears read them. Arithmetic: docs/adr/0001-arithmetic.md.
//
// Ops whose rows an integer linear reads quantise them as they are made; quantize_rows is for the rest.
#pragma once

#include "int8_rows.inc.h"
#include "linear.h"

namespace octavo::OCTAVO_ISA {
namespace {

OCTAVO_INLINE bool all_finite(f32x16 a) { return !any(is_nan(sub(a, a))); }

// Quantises groups eight at a time: the reductions and divisions of a single one wait for each other. Those that are
// left are due when it ends.
class GroupQuantizer {
 public:
  GroupQuantizer() { for (f32x16& value : values_) value = splat16(0.0f); }
  ~GroupQuantizer() {
    if (count_ > 0) quantize();
  }
  GroupQuantizer(const GroupQuantizer&) = delete;
  GroupQuantizer& operator=(const GroupQuantizer&) = delete;

  [[gnu::always_inline]] void add(f32x16 first, f32x16 second, QuantizedGroup* group) {
    values_[2 * count_] = first;
    values_[2 * count_ + 1] = second;
    groups_[count_] = group;
    if (++count_ == kGroups) quantize();
  }

 private:
  static constexpr int kGroups = kLanes / 2;

  // Of each half: scale = max |x| / 127, q = round(x · (127 / max |x|)), and what only sums of q are needed for.
  [[gnu::noinline]] void quantize() {
    alignas(64) float inverses[kLanes];
    i32x16 integers[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) integers[i] = bits_of(abs(values_[i]));
    const f32x16 largest = from_bits(reduce_max_each(integers)), zero = splat16(0.0f);
    const f32x16 inverse = select(equal(largest, zero), zero, div(splat16(127.0f), largest));
    store16(inverses, inverse);
    const float* each = inverses;
    forget(each);  // or GCC takes `inverse` apart with shuffles, which are scarcer than loads
    if (all_finite(largest) && all_finite(inverse)) {  // then there is nothing to limit, and no NaN
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) integers[i] = to_int(mul(values_[i], splat16(each[i])));
    } else {
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) integers[i] = quantized(values_[i], each[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kGroups; ++i) {
      if (i == count_) break;
      store16_as_bytes(groups_[i]->q, integers[2 * i]);
      store16_as_bytes(groups_[i]->q + 16, integers[2 * i + 1]);
    }
    finish(div(largest, splat16(127.0f)), to_float(reduce_add_each(integers)));
    count_ = 0;
  }

  // What is left of the groups once there are scales and sums of all halves.
  [[gnu::always_inline]] void finish(f32x16 scale, f32x16 sum) {
    alignas(64) float scales[kLanes], sums[kLanes], products[kLanes];
    alignas(64) int32_t minus_128_sums[kLanes];
    store16(scales, scale);
    store16(sums, sum);
    store16(products, mul(scale, sum));
    store16_int(minus_128_sums, to_int(mul(sum, splat16(-128.0f))));
    for (int i = 0; i < count_; ++i) {
      QuantizedGroup* group = groups_[i];
      __builtin_memcpy(group->scale, scales + 2 * i, sizeof(group->scale));
      group->minimum_factor = __builtin_fmaf(scales[2 * i + 1], sums[2 * i + 1], products[2 * i]);
      __builtin_memcpy(group->minus_128_sum, minus_128_sums + 2 * i, sizeof(group->minus_128_sum));
    }
  }

  f32x16 values_[kLanes];
  QuantizedGroup* groups_[kGroups];
  int count_ = 0;
};

// Makes the elements of a row, 16 by 16, with make(d), and stores them in float32 at `out` unless it is null, and quantised
// at `groups`, which the quantizer may do later. `width` is a multiple of 32.
template <class Make>
OCTAVO_INLINE void store_quantized(float* out, QuantizedGroup* groups, int32_t width, GroupQuantizer& quantizer, Make make) {
  for (int32_t d = 0; d < width; d += kGroupSize) {
    const f32x16 first = make(d), second = make(d + kLanes);
    quantizer.add(first, second, groups + d / kGroupSize);
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
    GroupQuantizer quantizer;
    for (int64_t group = first; group < end; ++group) {
      const int64_t row = group / groups_per_row, from = op.rows == RowSet::kTokens ? row : step.logit_rows[row];
      const float* x = op.x + (from * groups_per_row + group % groups_per_row) * kGroupSize;
      quantizer.add(load16(x), load16(x + kLanes), op.out + group);
    }
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
