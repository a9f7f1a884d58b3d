// Row by row: RMS norm, gated activation, soft cap (ADR 0001).
#pragma once

#include "activation_quantization.inc.h"
#include "simd_math.h"
#include "step.h"

namespace octavo::OCTAVO_ISA {
namespace {

// Calls visit(begin, end) for the shares of the units 0 … total - 1 that this worker gets. A share is small enough to
// even out a busy neighbour and large enough to make claiming cheap.
template <class Visit>
OCTAVO_INLINE void for_claimed_ranges(Worker& worker, int64_t total, Visit visit) {
  const int64_t share = total / (int64_t{worker.count} * 8) + 1;
  for (int64_t begin = claim(worker, share); begin < total; begin = claim(worker, share)) {
    visit(begin, begin + share < total ? begin + share : total);
  }
}

// Calls visit(unit).
template <class Visit>
OCTAVO_INLINE void for_claimed(Worker& worker, int64_t total, Visit visit) {
  for_claimed_ranges(worker, total, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) visit(unit);
  });
}

// Calls visit(d, lanes) for vectors of 16 elements; the last may have fewer lanes.
template <class Visit>
OCTAVO_INLINE void for_lanes(int32_t width, Visit visit) {
  int32_t d = 0;
  for (; d + kLanes <= width; d += kLanes) visit(d, kLanes);
  if (d < width) visit(d, width - d);
}

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

// What a norm multiplies `width` elements by.
OCTAVO_INLINE f32x16 inverse_rms(const float* x, int32_t width, float eps) {
  f32x16 squares = splat16(0.0f);
  for_lanes(width, [&](int32_t d, int lanes) {
    const f32x16 values = load_lanes(x + d, lanes);
    squares = fma(values, values, squares);
  });
  const float mean = tree_sum(squares) / static_cast<float>(width);
  return splat16(1.0f / __builtin_sqrtf(mean + eps));
}

inline void rms_norm_row(const RmsNormOp& op, int64_t row) {
  const float* x = op.x + row * op.width;
  float* out = op.out == nullptr ? nullptr : op.out + row * op.width;
  const f32x16 inverse = inverse_rms(x, op.width, op.eps);
  const auto normed = [&](int32_t d, int lanes) {
    return mul(mul(load_lanes(x + d, lanes), inverse), load_lanes(op.weight + d, lanes));
  };
  if (op.accumulate) {
    for_lanes(op.width, [&](int32_t d, int lanes) {
      store_lanes(out + d, add(load_lanes(out + d, lanes), normed(d, lanes)), lanes);
    });
  } else if (op.quantized == nullptr) {
    for_lanes(op.width, [&](int32_t d, int lanes) { store_lanes(out + d, normed(d, lanes), lanes); });
  } else {
    store_quantized(out, op.quantized + row * (op.width / kGroupSize), 0, op.width,
                    [&](int32_t d) { return normed(d, kLanes); });
  }
}

[[maybe_unused]] void rms_norm(const RmsNormOp& op, const StepView& step, Worker& worker) {
  for_claimed(worker, step.num_tokens, [&](int64_t row) { rms_norm_row(op, row); });
}

OCTAVO_INLINE f32x16 silu(f32x16 x) {
  const f32x16 negated = sub(splat16(-0.0f), x);
  return div(x, add(splat16(1.0f), exp16(negated)));
}

OCTAVO_INLINE f32x16 gelu_tanh(f32x16 x) {
  const f32x16 inner = fma(mul(mul(splat16(0.044715f), x), x), x, x);
  const f32x16 tanh = tanh16(mul(splat16(0.7978845608f), inner));
  return mul(mul(splat16(0.5f), x), add(splat16(1.0f), tanh));
}

template <Activation kActivation>
void gated_activation_columns(const GatedActivationOp& op, int64_t row, int32_t begin, int32_t end) {
  const float* gate = op.gate_up + row * 2 * op.width;
  const float* up = gate + op.width;
  float* out = op.out == nullptr ? nullptr : op.out + row * op.width;
  const auto gated = [&](int32_t d, int lanes) {
    const f32x16 x = load_lanes(gate + d, lanes);
    const f32x16 activated = kActivation == Activation::kSilu ? silu(x) : gelu_tanh(x);
    return mul(activated, load_lanes(up + d, lanes));
  };
  if (op.quantized == nullptr) {
    for_lanes(end - begin, [&](int32_t d, int lanes) {
      store_lanes(out + begin + d, gated(begin + d, lanes), lanes);
    });
  } else {
    store_quantized(out, op.quantized + row * (op.width / kGroupSize), begin, end,
                    [&](int32_t d) { return gated(d, kLanes); });
  }
}

// Columns begin … end - 1 of a row; multiples of 32 if it is quantised.
inline void activate_columns(const GatedActivationOp& op, int64_t row, int32_t begin, int32_t end) {
  if (op.activation == Activation::kSilu) {
    gated_activation_columns<Activation::kSilu>(op, row, begin, end);
  } else {
    gated_activation_columns<Activation::kGeluTanh>(op, row, begin, end);
  }
}

[[maybe_unused]] void gated_activation(const GatedActivationOp& op, const StepView& step, Worker& worker) {
  constexpr int32_t kColumns = 512;  // of one unit: one row is work for several workers
  const int32_t units_per_row = (op.width + kColumns - 1) / kColumns;
  for_claimed(worker, int64_t{step.num_tokens} * units_per_row, [&](int64_t unit) {
    const int32_t begin = static_cast<int32_t>(unit % units_per_row) * kColumns;
    activate_columns(op, unit / units_per_row, begin, begin + kColumns < op.width ? begin + kColumns : op.width);
  });
}

[[maybe_unused]] void soft_cap(const SoftCapOp& op, const StepView& step, Worker& worker) {
  const f32x16 cap = splat16(op.cap);
  for_claimed(worker, step.num_logit_rows, [&](int64_t row) {
    float* values = op.values + row * op.width;
    for_lanes(op.width, [&](int32_t d, int lanes) {
      store_lanes(values + d, mul(cap, tanh16(div(load_lanes(values + d, lanes), cap))), lanes);
    });
  });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
