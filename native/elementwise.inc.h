// Row by row: RMS norm, gated activation, soft cap (ADR 0001).
#pragma once

#include "activation_quantization.inc.h"
#include "simd_math.h"
#include "step.h"

namespace octavo::OCTAVO_ISA {
namespace {

// Calls visit(begin, end) for the ranges of the units 0 … total - 1 that this worker gets: near its own part of them, so that
// one op after the other finds its rows in the caches of the core that it runs on (ADR 0020). A range is small enough to even
// out a busy neighbour and large enough to make claiming cheap, and whole fours if it can be, which norms take at once.
template <class Visit>
OCTAVO_INLINE void for_claimed_ranges(Worker& worker, int64_t total, Visit visit) {
  const int64_t least = total / (int64_t{worker.count} * 8) + 1, size = least > 2 ? (least + 3) / 4 * 4 : least;
  const int64_t num_ranges = (total + size - 1) / size;
  for (int64_t range = claim_nearby(worker, num_ranges); range < num_ranges; range = claim_nearby(worker, num_ranges)) {
    const int64_t begin = range * size;
    visit(begin, begin + size < total ? begin + size : total);
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

// What a norm multiplies each of kRows neighbouring rows by. One row's sum is a chain of additions that wait for each
// other; the chains of several rows do not.
template <int kRows>
OCTAVO_INLINE void inverse_rms(const float* x, int32_t width, float eps, f32x16 (&inverse)[kRows]) {
  f32x16 squares[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) squares[r] = splat16(0.0f);
  for_lanes(width, [&](int32_t d, int lanes) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const f32x16 values = load_lanes(x + int64_t{r} * width + d, lanes);
      squares[r] = fma(values, values, squares[r]);
    }
  });
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const float mean = tree_sum(squares[r]) / static_cast<float>(width);
    inverse[r] = splat16(1.0f / __builtin_sqrtf(mean + eps));
  }
}

OCTAVO_INLINE f32x16 inverse_rms(const float* x, int32_t width, float eps) {
  f32x16 inverse[1];
  inverse_rms(x, width, eps, inverse);
  return inverse[0];
}

OCTAVO_INLINE void rms_norm_row(const RmsNormOp& op, int64_t row, f32x16 inverse, GroupQuantizer& quantizer) {
  const float* x = op.x + row * op.width;
  float* out = op.out == nullptr ? nullptr : op.out + row * op.width;
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
    store_quantized(out, op.quantized + row * (op.width / kGroupSize), op.width, quantizer,
                    [&](int32_t d) { return normed(d, kLanes); });
  }
}

template <int kRows>
void rms_norm_rows(const RmsNormOp& op, int64_t first, GroupQuantizer& quantizer) {
  f32x16 inverse[kRows];
  inverse_rms(op.x + first * op.width, op.width, op.eps, inverse);
  for (int r = 0; r < kRows; ++r) rms_norm_row(op, first + r, inverse[r], quantizer);
}

[[maybe_unused]] void rms_norm(const RmsNormOp& op, const StepView& step, Worker& worker) {
  constexpr int kRows = 4;
  for_claimed_ranges(worker, step.num_tokens, [&](int64_t begin, int64_t end) {
    GroupQuantizer quantizer;
    int64_t row = begin;
    for (; row + kRows <= end; row += kRows) rms_norm_rows<kRows>(op, row, quantizer);
    for (; row < end; ++row) rms_norm_rows<1>(op, row, quantizer);
  });
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

// Gates and ups of a few rows, the columns begin … end - 1 of the layer. Of what is quantised, multiples of 32.
struct GatedBlock {
  const float* gate;  // of the first row and column
  const float* up;
  int64_t stride;  // from row to row
  int64_t row_begin, row_end;
  int32_t begin, end;
};

template <Activation kActivation>
void activate_block(const GatedActivationOp& op, const GatedBlock& block) {
  GroupQuantizer quantizer;
  const float *gate = block.gate, *up = block.up;
  for (int64_t row = block.row_begin; row < block.row_end; ++row, gate += block.stride, up += block.stride) {
    float* out = op.out == nullptr ? nullptr : op.out + row * op.width + block.begin;
    const auto gated = [&](int32_t d, int lanes) {
      const f32x16 x = load_lanes(gate + d, lanes);
      const f32x16 activated = kActivation == Activation::kSilu ? silu(x) : gelu_tanh(x);
      return mul(activated, load_lanes(up + d, lanes));
    };
    const int32_t width = block.end - block.begin;
    if (op.quantized == nullptr) {
      for_lanes(width, [&](int32_t d, int lanes) { store_lanes(out + d, gated(d, lanes), lanes); });
    } else {
      store_quantized(out, op.quantized + (row * op.width + block.begin) / kGroupSize, width, quantizer,
                      [&](int32_t d) { return gated(d, kLanes); });
    }
  }
}

inline void activate(const GatedActivationOp& op, const GatedBlock& block) {
  if (op.activation == Activation::kSilu) {
    activate_block<Activation::kSilu>(op, block);
  } else {
    activate_block<Activation::kGeluTanh>(op, block);
  }
}

[[maybe_unused]] void gated_activation(const GatedActivationOp& op, const StepView& step, Worker& worker) {
  constexpr int32_t kColumns = 512;  // of one unit: one row is work for several workers
  const int32_t units_per_row = (op.width + kColumns - 1) / kColumns;
  for_claimed(worker, int64_t{step.num_tokens} * units_per_row, [&](int64_t unit) {
    const int64_t row = unit / units_per_row;
    const int32_t begin = static_cast<int32_t>(unit % units_per_row) * kColumns;
    const int32_t end = begin + kColumns < op.width ? begin + kColumns : op.width;
    const float* gate = op.gate_up + row * 2 * op.width + begin;
    activate(op, {gate, gate + op.width, 2 * int64_t{op.width}, row, row + 1, begin, end});
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
