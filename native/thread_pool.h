// A fixed set of threads that run one function together. The caller's thread is worker 0.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "memory.h"
#include "step.h"

namespace octavo {

// Waiting is ~50 µs of spinning, then a futex: spinning alone is ten times slower beside a busy neighbour,
// sleeping alone costs more than a small op takes. Threads are not pinned.
class ThreadPool {
 public:
  explicit ThreadPool(int32_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t size() const { return static_cast<int32_t>(workers_.size()); }

  // Calls body(worker) on every worker and returns when all have returned. The body does not throw. Each worker has
  // at least `scratch_bytes` of scratch memory, which the pool keeps.
  template <class Body>
  void run(const Body& body, size_t scratch_bytes = kWorkerScratchBytes) {
    const std::lock_guard lock(run_mutex_);
    grow_scratch(scratch_bytes);
    run_task([](const void* context, Worker& worker) { (*static_cast<const Body*>(context))(worker); }, &body);
  }

  int64_t claim(int64_t count) { return claimed_.fetch_add(count, std::memory_order_relaxed); }
  void barrier();

 private:
  using Task = void (*)(const void* context, Worker& worker);

  void grow_scratch(size_t bytes_per_worker);
  void run_task(Task task, const void* context);
  void work(Worker& worker);
  void wait_while(uint32_t phase);

  std::mutex run_mutex_;
  HugeMemory scratch_;
  std::vector<Worker> workers_;
  std::vector<std::thread> threads_;
  Task task_ = nullptr;  // null: the threads end
  const void* context_ = nullptr;

  alignas(64) std::atomic<int64_t> claimed_{0};
  alignas(64) std::atomic<int32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  alignas(64) std::atomic<int32_t> num_sleepers_{0};
};

}  // namespace octavo
