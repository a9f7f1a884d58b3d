// Rope, and the write of K and V into the paged cache in its dtype (ADR 0001, ADR 0016).
#pragma once

#include "elementwise.inc.h"
#include "int8_rows.inc.h"

namespace octavo::OCTAVO_ISA {
namespace {

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
void write_kv(const KvView& kv, std::byte* head, int32_t token, const float* key, const float* value) {
  alignas(64) Element narrowed[kMaxHeadDim];
  Element* elements = reinterpret_cast<Element*>(head);
  narrow(key, kv.head_dim, narrowed);
  Element* keys = elements + kv.key_offset(token, 0);
  for (int32_t d = 0; d < kv.head_dim; ++d) keys[d * kv.tile] = narrowed[d];
  narrow(value, kv.head_dim, narrowed);
  Element* values = elements + kv.value_offset(token, 0);
  __builtin_memcpy(values, narrowed, static_cast<size_t>(kv.head_dim) * sizeof(Element));
}

// K goes in rotated.
template <int kVectors>
[[gnu::noinline]] void write_int8_kv(const KvView& kv, std::byte* head, int32_t token, const float* key, const float* value) {
  alignas(64) int8_t narrowed[kVectors * kLanes];
  int8_t* elements = reinterpret_cast<int8_t*>(head);
  float* scales = reinterpret_cast<float*>(head + kv.scale_offset(token));
  HeadVectors<kVectors> rotated = load_head<kVectors>(key);
  rotate(rotated);
  const Int8Head<kVectors> keys = quantize_head(rotated), values = quantize_head(load_head<kVectors>(value));
  scales[0] = keys.scale;
  scales[kv.block_size] = values.scale;
  OCTAVO_UNROLL_HEAD for (int i = 0; i < kVectors; ++i) store16_as_bytes(narrowed + i * kLanes, keys.of[i]);
  int8_t* to = elements + kv.key_offset(token, 0);
  for (int d = 0; d < kVectors * kLanes; d += 4) __builtin_memcpy(to + d * kv.tile, narrowed + d, 4);
  to = elements + kv.value_offset(token - token % 4, 0);
  OCTAVO_UNROLL_HEAD for (int i = 0; i < kVectors; ++i) store16_as_bytes_of_quads(to + i * kLanes * 4, token % 4, values.of[i]);
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
  const bool quads = kv.dtype == KvDtype::kInt8;
  const int64_t size = element_bytes(kv.dtype), value_bytes = kv.head_dim * size * (quads ? 4 : 1);
  for (int32_t h = 0; h < op.num_kv_heads; ++h) {
    std::byte* head = kv.head(op.layer, slot.block, h);
    const std::byte* keys = head + kv.key_offset(slot.token, 0) * size;
    const std::byte* values = head + kv.value_offset(slot.token, 0) * size;
    for (int64_t byte = 0; byte < kv.head_dim * kv.tile * size; byte += 64) prefetch_to_write(keys + byte);
    for (int64_t byte = 0; byte < value_bytes; byte += 64) prefetch_to_write(values + byte);
    if (!quads) continue;
    prefetch_to_write(head + kv.scale_offset(slot.token));
    prefetch_to_write(head + kv.scale_offset(slot.token + kv.block_size));
  }
}

// A head of queries, to where its floats go otherwise.
OCTAVO_INLINE void make_query(const RopeAndWriteKvOp& op, float* floats) {
  with_head_vectors(op.head_dim, [&](auto vectors) {
    make_int8_query<vectors.value>(floats, op.query_scale, *reinterpret_cast<Int8Query*>(floats));
  });
}

OCTAVO_INLINE void write_head_kv(const KvView& kv, std::byte* head, int32_t token, const float* key, const float* value) {
  switch (kv.dtype) {
    case KvDtype::kFloat16: return write_kv<uint16_t>(kv, head, token, key, value);
    case KvDtype::kFloat32: return write_kv<float>(kv, head, token, key, value);
    case KvDtype::kInt8:
      with_head_vectors(kv.head_dim, [&](auto vectors) { write_int8_kv<vectors.value>(kv, head, token, key, value); });
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
    if (op.int8_queries) make_query(op, out);
  }
  const KvSlot slot = slot_of(step, row);
  for (int32_t h = 0; h < op.num_kv_heads; ++h, head += op.head_dim) {
    rotate_head(op, rope, norm_head(op, op.key_norm, head, normed), key);
    write_head_kv(kv, kv.head(op.layer, slot.block, h), slot.token, key, head + op.num_kv_heads * op.head_dim);
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
