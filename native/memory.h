// Large blocks of memory that ask for huge pages: weights and the KV cache stream 1.2 to 1.5 times faster from them.
#pragma once

#include <cstddef>

namespace octavo {

// Zeroed memory, taken from the system page by page as it is first touched. Owns; moves, does not copy.
class HugeMemory {
 public:
  HugeMemory() = default;
  explicit HugeMemory(size_t num_bytes);
  ~HugeMemory();
  HugeMemory(HugeMemory&& other) noexcept;
  HugeMemory& operator=(HugeMemory&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  void* mapping_ = nullptr;
  size_t mapping_size_ = 0;
};

constexpr size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace octavo
