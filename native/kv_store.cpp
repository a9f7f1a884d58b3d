#include "kv_store.h"

#include <cstring>
#include <string>

#include "error.h"

namespace octavo {

namespace {

constexpr size_t kWorthTouching = size_t{16} << 20;  // bytes; a thread costs more than the pages of less

size_t store_bytes(const KvView& view, int64_t element_size) {
  const int64_t per_block = view.num_kv_heads * 2 * view.half_elements() * element_size;
  return static_cast<size_t>(per_block * view.num_layers * view.num_blocks);
}

KvView checked(KvView view) {
  check(view.num_layers > 0 && view.num_kv_heads > 0 && view.head_dim > 0, "a KV cache needs layers, heads and a head size");
  check(view.num_blocks > 0, "a KV cache needs at least one block");
  check(view.block_size > 0 && view.block_size % 8 == 0, "the block size must be a multiple of 8");
  check(view.dtype == KvDtype::kFloat16 || view.dtype == KvDtype::kFloat32, "the KV cache is float16 or float32");
  view.tile = view.block_size % 16 == 0 ? 16 : 8;
  return view;
}

// Calls visit(offset in the store, offset in the logical block) for every element of a block.
template <class Visit>
void for_each_element(const KvView& view, int32_t layer, int32_t block, const Visit& visit) {
  int64_t logical = 0;
  for (int half = 0; half < 2; ++half) {
    for (int32_t token = 0; token < view.block_size; ++token) {
      for (int32_t head = 0; head < view.num_kv_heads; ++head) {
        const int64_t base = view.head_offset(layer, block, head);
        for (int32_t d = 0; d < view.head_dim; ++d) {
          const int64_t value = view.half_elements() + static_cast<int64_t>(token) * view.head_dim + d;
          visit(base + (half == 0 ? view.key_offset(token, d) : value), logical++);
        }
      }
    }
  }
}

}  // namespace

KvStore::KvStore(KvView shape) : view_(checked(shape)) {
  memory_ = HugeMemory(store_bytes(view_, element_size()));
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
  const int64_t size = element_size();
  for_each_element(view_, layer, block, [&](int64_t stored, int64_t index) {
    std::memcpy(logical + index * size, view_.base + stored * size, static_cast<size_t>(size));
  });
}

void KvStore::write_block(int32_t layer, int32_t block, const std::byte* logical) {
  check_layer(layer);
  check_block(block);
  const int64_t size = element_size();
  for_each_element(view_, layer, block, [&](int64_t stored, int64_t index) {
    std::memcpy(view_.base + stored * size, logical + index * size, static_cast<size_t>(size));
  });
}

void KvStore::copy_blocks(const int32_t* pairs, int64_t num_pairs, ThreadPool& pool) {
  for (int64_t i = 0; i < 2 * num_pairs; ++i) check_block(pairs[i]);
  const int64_t block_bytes = view_.num_kv_heads * 2 * view_.half_elements() * element_size();
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
