// The memory of the paged KV cache. Its layout is KvView's.
#pragma once

#include <cstdint>
#include <optional>

#include "memory.h"
#include "page_toucher.h"
#include "step.h"
#include "thread_pool.h"

namespace octavo {

class KvStore {
 public:
  // `shape.base` is ignored, `shape.tile` too; shape.num_blocks includes the null block.
  explicit KvStore(KvView shape);

  const KvView& view() const { return view_; }
  int64_t num_bytes() const { return static_cast<int64_t>(memory_.size()); }

  // `logical` is [2, block_size, num_kv_heads, head_dim] in the store's dtype, float32 if that is int8; 0 is K, 1 is V.
  void read_block(int32_t layer, int32_t block, std::byte* logical) const;
  void write_block(int32_t layer, int32_t block, const std::byte* logical);

  // Copies source to destination in every layer, for each (source, destination) pair in order.
  void copy_blocks(const int32_t* pairs, int64_t num_pairs, ThreadPool& pool);

 private:
  void check_layer(int32_t layer) const;
  void check_block(int64_t block) const;

  KvView view_;
  HugeMemory memory_;
  std::optional<PageToucher> toucher_;  // ends before the memory does
};

}  // namespace octavo
