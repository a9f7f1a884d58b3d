#include "page_toucher.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>

#include "blocked_signals.h"

#ifndef MADV_POPULATE_WRITE  // Linux 5.14
#define MADV_POPULATE_WRITE 23
#endif

namespace octavo {

namespace {
constexpr size_t kStep = size_t{2} << 20;  // a huge page: a moment's work
}

PageToucher::PageToucher(std::byte* begin, size_t num_bytes) {
  const BlockedSignals blocked;
  thread_ = std::thread([this, begin, num_bytes] { touch(begin, num_bytes); });
  pthread_setname_np(thread_.native_handle(), "octavo-pages");
}

PageToucher::~PageToucher() {
  stops_.store(true, std::memory_order_relaxed);
  thread_.join();
}

void PageToucher::touch(std::byte* begin, size_t num_bytes) const {
  const sched_param no_priority{};
  if (sched_setscheduler(0, SCHED_IDLE, &no_priority) != 0) return;  // it must not compete with the steps
  for (size_t done = 0; done < num_bytes && !stops_.load(std::memory_order_relaxed); done += kStep) {
    // An older kernel does not know this, and memory may be short: pages are then provided when they are used.
    if (madvise(begin + done, std::min(kStep, num_bytes - done), MADV_POPULATE_WRITE) != 0) return;
  }
}

}  // namespace octavo
