#include "kv_store.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "error.h"

namespace octavo {

namespace {

constexpr size_t kWorthTouching = size_t{16} << 20;  // bytes; a thread costs more than the pages of less

size_t store_bytes(const KvView& view) {
  return static_cast<size_t>(view.block_bytes() * view.num_layers * view.num_blocks);
}

KvView checked(KvView view) {
  check(view.num_layers > 0 && view.num_kv_heads > 0 && view.head_dim > 0, "a KV cache needs layers, heads and a head size");
  check(view.head_dim <= kMaxHeadDim, "the kernels take heads of at most 256 elements");
  check(view.num_blocks > 0, "a KV cache needs at least one block");
  check(view.block_size > 0 && view.block_size % 8 == 0, "the block size must be a multiple of 8");
  const bool int8 = view.dtype == KvDtype::kInt8;
  check(int8 || view.dtype == KvDtype::kFloat16 || view.dtype == KvDtype::kFloat32,
        "the KV cache is float16, float32 or int8");
  check(!int8 || view.head_dim % 16 == 0, "an int8 KV cache needs a head size that is a multiple of 16");
  view.tile = view.block_size % 16 == 0 ? 16 : 8;
  return view;
}

// Calls visit(kv_head, half, token, element of the logical block where the token's K (half 0) or V of that head begins).
template <class Visit>
void for_each_row(const KvView& view, const Visit& visit) {
  int64_t logical = 0;
  for (int32_t half = 0; half < 2; ++half) {
    for (int32_t token = 0; token < view.block_size; ++token) {
      for (int32_t head = 0; head < view.num_kv_heads; ++head, logical += view.head_dim) visit(head, half, token, logical);
    }
  }
}

int64_t stored_offset(const KvView& view, int32_t half, int32_t token, int32_t d) {
  return half == 0 ? view.key_offset(token, d) : view.value_offset(token, d);
}

float* scale_of(const KvView& view, const std::byte* head, int32_t half, int32_t token) {
  const std::byte* scale = head + view.scale_offset(half * view.block_size + token);
  return reinterpret_cast<float*>(const_cast<std::byte*>(scale));
}

// What kernels do to a row of K or V, with the same result (int8_rows.inc.h), one element at a time: for callers that
// look at blocks.
void rotate(float* x, int32_t count) {
  const int32_t run = count & -count;
  for (int32_t distance = 1; distance < run; distance *= 2) {
    for (int32_t i = 0; i < count; ++i) {
      if ((i & distance) != 0) continue;
      const float a = x[i], b = x[i + distance];
      x[i] = a + b;
      x[i + distance] = a - b;
    }
  }
}

void read_int8_row(const KvView& view, const std::byte* head, int32_t half, int32_t token, float* row) {
  const auto* elements = reinterpret_cast<const int8_t*>(head);
  const float scale = *scale_of(view, head, half, token);
  for (int32_t d = 0; d < view.head_dim; ++d) {
    row[d] = static_cast<float>(elements[stored_offset(view, half, token, d)]) * scale;
  }
  if (half == 1) return;
  rotate(row, view.head_dim);  // its own inverse, but for the factor
  const auto run = static_cast<float>(view.head_dim & -view.head_dim);
  for (int32_t d = 0; d < view.head_dim; ++d) row[d] /= run;
}

void write_int8_row(const KvView& view, std::byte* head, int32_t half, int32_t token, const float* row) {
  std::vector<float> x(row, row + view.head_dim);
  if (half == 0) rotate(x.data(), view.head_dim);
  float largest = 0.0f;
  for (const float value : x) largest = std::fabs(value) > largest || std::isnan(value) ? std::fabs(value) : largest;
  const float inverse = largest == 0.0f ? 0.0f : 127.0f / largest;
  auto* elements = reinterpret_cast<int8_t*>(head);
  for (int32_t d = 0; d < view.head_dim; ++d) {
    const float scaled = x[static_cast<size_t>(d)] * inverse;
    const float limited = std::isnan(scaled) ? 0.0f : std::clamp(scaled, -127.0f, 127.0f);
    elements[stored_offset(view, half, token, d)] = static_cast<int8_t>(std::nearbyintf(limited));
  }
  *scale_of(view, head, half, token) = std::isnan(largest) ? __builtin_nanf("") : largest / 127.0f;
}

}  // namespace

KvStore::KvStore(KvView shape) : view_(checked(shape)) {
  memory_ = HugeMemory(store_bytes(view_));
  view_.base = memory_.data();
  if (memory_.size() >= kWorthTouching) toucher_.emplace(memory_.data(), memory_.size());
}

void KvStore::check_layer(int32_t layer) const {
  if (layer < 0 || layer >= view_.num_layers) {
    throw Error("layer " + std::to_string(layer) + " is outside 0 … " + std::to_string(view_.num_layers - 1));
  }
}

void KvStore::check_block(int64_t block) const {
  if (block < 0 || block >= view_.num_blocks) {
    throw Error("block " + std::to_string(block) + " is outside 0 … " + std::to_string(view_.num_blocks - 1));
  }
}

void KvStore::read_block(int32_t layer, int32_t block, std::byte* logical) const {
  check_layer(layer);
  check_block(block);
  const auto size = static_cast<size_t>(element_bytes(view_.dtype));
  for_each_row(view_, [&](int32_t kv_head, int32_t half, int32_t token, int64_t index) {
    const std::byte* head = view_.head(layer, block, kv_head);
    if (view_.dtype == KvDtype::kInt8) {
      return read_int8_row(view_, head, half, token, reinterpret_cast<float*>(logical) + index);
    }
    for (int32_t d = 0; d < view_.head_dim; ++d) {
      const auto stored = static_cast<size_t>(stored_offset(view_, half, token, d));
      std::memcpy(logical + (static_cast<size_t>(index) + static_cast<size_t>(d)) * size, head + stored * size, size);
    }
  });
}

void KvStore::write_block(int32_t layer, int32_t block, const std::byte* logical) {
  check_layer(layer);
  check_block(block);
  const auto size = static_cast<size_t>(element_bytes(view_.dtype));
  for_each_row(view_, [&](int32_t kv_head, int32_t half, int32_t token, int64_t index) {
    std::byte* head = view_.head(layer, block, kv_head);
    if (view_.dtype == KvDtype::kInt8) {
      return write_int8_row(view_, head, half, token, reinterpret_cast<const float*>(logical) + index);
    }
    for (int32_t d = 0; d < view_.head_dim; ++d) {
      const auto stored = static_cast<size_t>(stored_offset(view_, half, token, d));
      std::memcpy(head + stored * size, logical + (static_cast<size_t>(index) + static_cast<size_t>(d)) * size, size);
    }
  });
}

void KvStore::copy_blocks(const int32_t* pairs, int64_t num_pairs, ThreadPool& pool) {
  for (int64_t i = 0; i < 2 * num_pairs; ++i) check_block(pairs[i]);
  const int64_t block_bytes = view_.block_bytes();
  pool.run([&](Worker& worker) {
    for (int64_t layer = claim(worker, 1); layer < view_.num_layers; layer = claim(worker, 1)) {
      std::byte* base = view_.base + layer * view_.num_blocks * block_bytes;
      for (int64_t i = 0; i < num_pairs; ++i) {  // source and destination may be the same block
        std::memmove(base + pairs[2 * i + 1] * block_bytes, base + pairs[2 * i] * block_bytes,
                     static_cast<size_t>(block_bytes));
      }
    }
  });
}

}  // namespace octavo
