#include "memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "error.h"

namespace octavo {

namespace {
constexpr size_t kHugePage = size_t{2} << 20;
}

HugeMemory::HugeMemory(size_t num_bytes) : size_(num_bytes) {
  if (num_bytes == 0) return;
  const bool huge = num_bytes >= kHugePage / 2;
  mapping_size_ = huge ? round_up(num_bytes, kHugePage) + kHugePage : num_bytes;
  mapping_ = mmap(nullptr, mapping_size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    throw Error("cannot reserve " + std::to_string(num_bytes) + " bytes of memory: " + std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(mapping_);
  if (huge) {
    data_ = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(mapping_), kHugePage));
    madvise(data_, round_up(num_bytes, kHugePage), MADV_HUGEPAGE);  // advice: small pages work too
  }
}

HugeMemory::~HugeMemory() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_size_);
}

HugeMemory::HugeMemory(HugeMemory&& other) noexcept { *this = std::move(other); }

HugeMemory& HugeMemory::operator=(HugeMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_size_, other.mapping_size_);
  return *this;
}

}  // namespace octavo
