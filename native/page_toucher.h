// Has the operating system provide pages of a mapping before anybody needs them.
#pragma once

#include <atomic>
#include <cstddef>
#include <thread>

namespace octavo {

// A page is zeroed when it is first used, and a virtual machine may have to ask its host for it: a step that writes
// to new blocks would take half as long again. A thread of the lowest priority uses them all first; it runs only while a
// processor has nothing else to do, from the first page to the last. What the pages hold is not changed.
class PageToucher {
 public:
  PageToucher(std::byte* begin, size_t num_bytes);  // whole pages
  ~PageToucher();                                   // stops it, wherever it is
  PageToucher(const PageToucher&) = delete;
  PageToucher& operator=(const PageToucher&) = delete;

 private:
  void touch(std::byte* begin, size_t num_bytes) const;

  std::atomic<bool> stops_{false};
  std::thread thread_;
};

}  // namespace octavo
