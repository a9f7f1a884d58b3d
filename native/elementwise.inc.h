// Row by row: RMS norm, rope with the write into the KV cache, gated activation, soft cap (ADR 0001).
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

struct RopeRow {
  const float* cosines;  // [half]
  const float* sines;
  int32_t half;  // pairs
};

OCTAVO_INLINE void rotate_half_split(const RopeRow& rope, const float* __restrict x, float* __restrict out) {
  for_lanes(rope.half, [&](int32_t d, int lanes) {
    const f32x16 x0 = load_lanes(x + d, lanes), x1 = load_lanes(x + rope.half + d, lanes);
    const f32x16 c = load_lanes(rope.cosines + d, lanes), s = load_lanes(rope.sines + d, lanes);
    store_lanes(out + d, fma(x0, c, sub(splat16(-0.0f), mul(x1, s))), lanes);
    store_lanes(out + rope.half + d, fma(x0, s, mul(x1, c)), lanes);
  });
}

// Left to the compiler, which knows how to take pairs apart.
OCTAVO_INLINE void rotate_interleaved(const RopeRow& rope, const float* __restrict x, float* __restrict out) {
  for (int32_t i = 0; i < rope.half; ++i) {
    const float x0 = x[2 * i], x1 = x[2 * i + 1], c = rope.cosines[i], s = rope.sines[i];
    out[2 * i] = __builtin_fmaf(x0, c, -(x1 * s));
    out[2 * i + 1] = __builtin_fmaf(x0, s, x1 * c);
  }
}

inline void rotate_head(const RopeAndWriteKvOp& op, const RopeRow& rope, const float* x, float* out) {
  if (op.style == RopeStyle::kInterleaved) {
    rotate_interleaved(rope, x, out);
  } else {
    rotate_half_split(rope, x, out);
  }
  for (int32_t d = op.rotary_dim; d < op.head_dim; ++d) out[d] = x[d];
}

constexpr int32_t kMaxHeadDim = 256;

// The head that is to be rotated: `head` itself, or `normed`, which receives its norm.
OCTAVO_INLINE const float* norm_head(const RopeAndWriteKvOp& op, const float* weight, const float* head, float* normed) {
  if (weight == nullptr) return head;
  const f32x16 inverse = inverse_rms(head, op.head_dim, op.eps);
  for_lanes(op.head_dim, [&](int32_t d, int lanes) {
    store_lanes(normed + d, mul(mul(load_lanes(head + d, lanes), inverse), load_lanes(weight + d, lanes)), lanes);
  });
  return normed;
}

// `count` values in the cache's dtype; `to` has room for whole vectors.
OCTAVO_INLINE void narrow(const float* values, int32_t count, float* to) {
  __builtin_memcpy(to, values, static_cast<size_t>(count) * sizeof(float));
}
OCTAVO_INLINE void narrow(const float* values, int32_t count, uint16_t* to) {
  for_lanes(count, [&](int32_t d, int lanes) { store16_f16(to + d, load_lanes(values + d, lanes)); });
}

template <class Element>
void write_kv(const KvView& kv, int64_t head_offset, int32_t token, const float* key, const float* value) {
  alignas(64) Element narrowed[kMaxHeadDim];
  Element* head = reinterpret_cast<Element*>(kv.base) + head_offset;
  narrow(key, kv.head_dim, narrowed);
  Element* keys = head + kv.key_offset(token, 0);
  for (int32_t d = 0; d < kv.head_dim; ++d) keys[d * kv.tile] = narrowed[d];
  narrow(value, kv.head_dim, narrowed);
  Element* values = head + kv.half_elements() + int64_t{token} * kv.head_dim;
  __builtin_memcpy(values, narrowed, static_cast<size_t>(kv.head_dim) * sizeof(Element));
}

// Where a row's token goes.
struct KvSlot {
  int32_t block;
  int32_t token;  // within the block
};

OCTAVO_INLINE KvSlot slot_of(const StepView& step, int64_t row) {
  const int32_t position = step.positions[row], block_size = step.kv.block_size;
  return {step.block_table(step.request_of_row[row])[position / block_size], position % block_size};
}

// A new token's keys lie one in each line of the block's tile, and none of these lines is in a cache. Stores would wait
// for them one after the other.
inline void fetch_slot(const RopeAndWriteKvOp& op, const KvView& kv, KvSlot slot) {
  const int64_t size = kv.dtype == KvDtype::kFloat16 ? 2 : 4;
  for (int32_t h = 0; h < op.num_kv_heads; ++h) {
    const std::byte* head = kv.base + kv.head_offset(op.layer, slot.block, h) * size;
    const std::byte* keys = head + kv.key_offset(slot.token, 0) * size;
    const std::byte* values = head + (kv.half_elements() + int64_t{slot.token} * kv.head_dim) * size;
    for (int64_t byte = 0; byte < kv.head_dim * kv.tile * size; byte += 64) prefetch_to_write(keys + byte);
    for (int64_t byte = 0; byte < kv.head_dim * size; byte += 64) prefetch_to_write(values + byte);
  }
}

inline void rope_and_write_row(const RopeAndWriteKvOp& op, const StepView& step, int64_t row) {
  alignas(64) float key[kMaxHeadDim];
  alignas(64) float normed[kMaxHeadDim];
  const KvView& kv = step.kv;
  const int32_t position = step.positions[row], half = op.rotary_dim / 2;
  const RopeRow rope = {op.rope->cosines + int64_t{position} * half, op.rope->sines + int64_t{position} * half, half};
  const float* head = op.qkv + row * (op.num_heads + 2 * op.num_kv_heads) * op.head_dim;
  float* out = op.out + row * op.num_heads * op.head_dim;
  for (int32_t h = 0; h < op.num_heads; ++h, head += op.head_dim, out += op.head_dim) {
    rotate_head(op, rope, norm_head(op, op.query_norm, head, normed), out);
  }
  const KvSlot slot = slot_of(step, row);
  for (int32_t h = 0; h < op.num_kv_heads; ++h, head += op.head_dim) {
    rotate_head(op, rope, norm_head(op, op.key_norm, head, normed), key);
    const float* value = head + op.num_kv_heads * op.head_dim;
    const int64_t offset = kv.head_offset(op.layer, slot.block, h);
    if (kv.dtype == KvDtype::kFloat16) {
      write_kv<uint16_t>(kv, offset, slot.token, key, value);
    } else {
      write_kv<float>(kv, offset, slot.token, key, value);
    }
  }
}

[[maybe_unused]] void rope_and_write_kv(const RopeAndWriteKvOp& op, const StepView& step, Worker& worker) {
  for_claimed_ranges(worker, step.num_tokens, [&](int64_t begin, int64_t end) {
    int32_t fetched = -1;  // the block; neighbouring rows of a prompt have the same
    for (int64_t row = begin; row < end; ++row) {
      const KvSlot slot = slot_of(step, row);
      if (slot.block != fetched || slot.token % step.kv.tile == 0) fetch_slot(op, step.kv, slot);
      fetched = slot.block;
    }
    for (int64_t row = begin; row < end; ++row) rope_and_write_row(op, step, row);
  });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
