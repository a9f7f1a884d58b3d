// A fixed set of threads that run one function together. The caller's thread is worker 0.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "disturbance.h"
#include "memory.h"
#include "step.h"
#include "weights_ahead.h"

namespace octavo {

// A number that threads wait for: ~50 µs of spinning, then a futex. Spinning alone is ten times slower beside a busy
// neighbour, sleeping alone costs more than a small op takes.
class alignas(64) WaitableNumber {
 public:
  uint32_t load() const { return value_.load(std::memory_order_acquire); }
  uint32_t add(uint32_t difference);                    // returns the sum; wakes nobody
  bool exchange(uint32_t& expected, uint32_t desired);  // compare and exchange; on failure `expected` is what it is
  void wake();  // everybody who waits; after the change that they wait for
  bool has_sleepers() const { return num_sleepers_.load(std::memory_order_seq_cst) > 0; }

  // Returns once reached(value) holds, which may look at other things as well if who changes them changes the number, too, while
  // there are sleepers; calls idle() over and over until then, or until it goes to sleep.
  template <class Reached, class Idle>
  void wait_until(Reached reached, Idle idle) {
    const int64_t deadline = spin_deadline();
    do {
      for (int i = 0; i < 64; ++i) {
        if (reached(load())) return;
        idle();
      }
    } while (!is_over(deadline));
    begin_sleeping();
    for (uint32_t value = load(); !reached(value); value = load()) sleep(value);
    end_sleeping();
  }

  template <class Reached>
  void wait_until(Reached reached) {
    wait_until(reached, pause);
  }

 private:
  static int64_t spin_deadline();
  static bool is_over(int64_t deadline);
  static void pause();
  void begin_sleeping();
  void sleep(uint32_t value);
  void end_sleeping();

  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> num_sleepers_{0};
};

// A task is cut into phases by barriers, a phase into pieces that workers claim. A phase is over when its pieces are
// claimed and done: it waits for workers that hold a piece, never for one that the operating system lets wait. A
// worker that comes late finds the phases over and catches up. So the threads are as fast as the processors that they
// get, beside any neighbour. They are not pinned.
class ThreadPool {
 public:
  explicit ThreadPool(int32_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t size() const { return static_cast<int32_t>(workers_.size()); }

  // Calls body(worker) on the caller and on every worker that comes in time, and returns when all have returned. All
  // work must be claimed, by every worker in the same phases. The body does not throw. Each worker has at least
  // `scratch_bytes` of scratch memory, which the pool keeps.
  template <class Body>
  void run(const Body& body, size_t scratch_bytes = kWorkerScratchBytes) {
    const std::lock_guard lock(run_mutex_);
    give_up_started();
    grow_scratch(scratch_bytes);
    begin_task(call_body<Body>, &body);
    end_task();
  }

  // The same in two calls: from `start` on the other workers run the body, and with `finish` the caller joins them. The body
  // lives until then, or until it is given up, as it is by whatever else is run meanwhile. Returns the number of the task.
  template <class Body>
  uint32_t start(const Body& body) {
    const std::lock_guard lock(run_mutex_);
    give_up_started();
    begin_task(call_body<Body>, &body);
    has_started_ = true;
    return task_number_.load();
  }

  // False: the body was given up, and some of its work never done.
  bool finish(uint32_t task_number);

  // Returns when no worker is in a body that was started, and not finished; from now on its work is left undone.
  void give_up();

  // Whether other processes want the processors. One thread at a time asks.
  bool is_disturbed();

  int64_t claim(Worker& worker, int64_t count);
  int64_t claim_of(Worker& worker, int32_t owner, int64_t size);
  void barrier(Worker& worker);
  // The same; meanwhile, `ahead` comes into the worker's caches.
  void barrier(Worker& worker, WeightsAhead& ahead);

 private:
  using Task = void (*)(const void* context, Worker& worker);

  void grow_scratch(size_t bytes_per_worker);
  template <class Body>
  static void call_body(const void* context, Worker& worker) {
    (*static_cast<const Body*>(context))(worker);
  }
  void begin_task(Task task, const void* context);
  void end_task();
  void give_up_started();
  void work(Worker& worker);
  bool attend();
  void leave();
  void wake_phase_sleepers();
  bool enter_phase(Worker& worker, uint64_t pieces, uint64_t& state);
  template <class Idle>
  void end_phase(Worker& worker, Idle idle);

  std::mutex run_mutex_;
  HugeMemory scratch_;
  std::vector<Worker> workers_;
  // Of each worker: the phase in which its share was claimed from last, and how many pieces of it were.
  struct alignas(64) Share {
    std::atomic<uint64_t> state{0};
  };
  std::vector<Share> shares_;
  std::vector<std::thread> threads_;
  Task task_ = nullptr;
  const void* context_ = nullptr;
  uint32_t first_phase_ = 0;  // of the task
  bool has_started_ = false;  // a task that is not finished
  std::atomic<bool> gives_up_{false};
  Disturbance disturbance_;
  std::atomic<bool> ends_{false};

  // The current phase, the workers that hold a piece of it, and the next piece. A worker lags behind by less than a
  // task, so a few bits of the phase are enough.
  alignas(64) std::atomic<uint64_t> state_{0};
  WaitableNumber phase_ends_;   // of which sleepers were told
  WaitableNumber task_number_;  // of the latest task
  WaitableNumber attendance_;   // workers in the task besides the caller, and whether more may come
};

}  // namespace octavo
