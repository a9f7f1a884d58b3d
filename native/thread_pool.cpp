#include "thread_pool.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <system_error>

#include "error.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace octavo {

namespace {

constexpr int64_t kSpinNanoseconds = 50'000;
constexpr int32_t kMaxThreads = 1024;

void pause_processor() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int64_t now_nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

void futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  syscall(SYS_futex, &word, operation | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, 0);
}

// Rounding to nearest and subnormals, whatever a library in this process has set for the calling thread: bits
// would differ.
class DefaultFloatingPoint {
 public:
#if defined(__x86_64__)
  DefaultFloatingPoint() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~DefaultFloatingPoint() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#elif defined(__aarch64__)
  DefaultFloatingPoint() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}));
  }
  ~DefaultFloatingPoint() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }

 private:
  uint64_t saved_;
#endif
};

// Threads inherit the signal mask: signals are for the process's own threads.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }

 private:
  sigset_t saved_;
};

}  // namespace

int64_t claim(Worker& worker, int64_t count) { return static_cast<ThreadPool*>(worker.pool)->claim(count); }
void barrier(Worker& worker) { static_cast<ThreadPool*>(worker.pool)->barrier(); }

ThreadPool::ThreadPool(int32_t num_threads) {
  if (num_threads < 1 || num_threads > kMaxThreads) {
    throw Error("the number of threads must be 1 … " + std::to_string(kMaxThreads) + ", got " +
                std::to_string(num_threads));
  }
  for (int32_t i = 0; i < num_threads; ++i) workers_.push_back({i, num_threads, nullptr, this});
  grow_scratch(kWorkerScratchBytes);
  const BlockedSignals blocked;
  threads_.reserve(workers_.size());
  for (int32_t i = 1; i < num_threads; ++i) {
    threads_.emplace_back([this, i] { work(workers_[static_cast<size_t>(i)]); });
    pthread_setname_np(threads_.back().native_handle(), "octavo-kernel");
  }
}

ThreadPool::~ThreadPool() {
  task_ = nullptr;
  barrier();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::grow_scratch(size_t bytes_per_worker) {
  bytes_per_worker = round_up(bytes_per_worker, 64);
  if (bytes_per_worker * workers_.size() <= scratch_.size()) return;
  scratch_ = HugeMemory(bytes_per_worker * workers_.size());
  for (size_t i = 0; i < workers_.size(); ++i) workers_[i].scratch = scratch_.data() + bytes_per_worker * i;
}

void ThreadPool::run_task(Task task, const void* context) {
  const DefaultFloatingPoint floating_point;
  task_ = task;
  context_ = context;
  barrier();
  task(context, workers_[0]);
  barrier();
}

void ThreadPool::work(Worker& worker) {
  const DefaultFloatingPoint floating_point;
  for (;;) {
    barrier();
    if (task_ == nullptr) return;
    task_(context_, worker);
    barrier();
  }
}

void ThreadPool::barrier() {
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < size()) return wait_while(phase);
  arrived_.store(0, std::memory_order_relaxed);
  claimed_.store(0, std::memory_order_relaxed);
  // Sequentially consistent with wait_while(): either this thread sees the sleeper, or the sleeper sees the phase.
  phase_.store(phase + 1, std::memory_order_seq_cst);
  if (num_sleepers_.load(std::memory_order_seq_cst) > 0) futex(phase_, FUTEX_WAKE, INT_MAX);
}

void ThreadPool::wait_while(uint32_t phase) {
  const int64_t deadline = now_nanoseconds() + kSpinNanoseconds;
  do {
    for (int i = 0; i < 64; ++i) {
      if (phase_.load(std::memory_order_acquire) != phase) return;
      pause_processor();
    }
  } while (now_nanoseconds() < deadline);
  num_sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (phase_.load(std::memory_order_seq_cst) == phase) futex(phase_, FUTEX_WAIT, phase);
  num_sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace octavo
