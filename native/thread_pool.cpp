#include "thread_pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <system_error>

#include "blocked_signals.h"
#include "error.h"
#include "processor.h"

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

// ThreadPool::state_
constexpr int kHolderShift = 32, kPhaseShift = 44;
constexpr uint64_t kOneHolder = uint64_t{1} << kHolderShift;
constexpr uint64_t kOnePhase = uint64_t{1} << kPhaseShift;
constexpr uint64_t piece_of(uint64_t state) { return state & (kOneHolder - 1); }
constexpr bool has_holders(uint64_t state) { return (state & (kOnePhase - kOneHolder)) != 0; }
constexpr bool is_phase(uint64_t state, uint32_t phase) { return ((state >> kPhaseShift ^ phase) << kPhaseShift) == 0; }
static_assert(kMaxThreads < int64_t{1} << (kPhaseShift - kHolderShift));

// ThreadPool::Share
constexpr int kSharePhaseShift = 32;

// The next piece of a share, or a number that it has no piece for.
int64_t claim_of_share(std::atomic<uint64_t>& share, uint32_t phase, int64_t num_pieces) {
  uint64_t state = share.load(std::memory_order_relaxed);
  while (state >> kSharePhaseShift != phase) {
    const uint64_t first_claimed = uint64_t{phase} << kSharePhaseShift | 1;
    if (share.compare_exchange_weak(state, first_claimed, std::memory_order_relaxed)) return 0;
  }
  const int64_t next = static_cast<int64_t>(static_cast<uint32_t>(state));
  if (next >= num_pieces) return next;  // looking changes nothing, so whoever is done disturbs nobody
  return static_cast<int64_t>(static_cast<uint32_t>(share.fetch_add(1, std::memory_order_relaxed)));
}

constexpr uint32_t kMayAttend = uint32_t{1} << 31;  // ThreadPool::attendance_

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

}  // namespace

int64_t claim(Worker& worker, int64_t count) { return static_cast<ThreadPool*>(worker.pool)->claim(worker, count); }
int64_t claim_of(Worker& worker, int32_t owner, int64_t size) {
  return static_cast<ThreadPool*>(worker.pool)->claim_of(worker, owner, size);
}
void barrier(Worker& worker) { static_cast<ThreadPool*>(worker.pool)->barrier(worker); }

uint32_t WaitableNumber::add(uint32_t difference) {
  return value_.fetch_add(difference, std::memory_order_seq_cst) + difference;
}

bool WaitableNumber::exchange(uint32_t& expected, uint32_t desired) {
  return value_.compare_exchange_weak(expected, desired, std::memory_order_seq_cst, std::memory_order_acquire);
}

// Sequentially consistent with begin_sleeping() and the change before: either this thread sees the sleeper, or the
// sleeper sees the change.
void WaitableNumber::wake() {
  if (has_sleepers()) futex(value_, FUTEX_WAKE, INT_MAX);
}

int64_t WaitableNumber::spin_deadline() { return now_nanoseconds() + kSpinNanoseconds; }
bool WaitableNumber::is_over(int64_t deadline) { return now_nanoseconds() >= deadline; }
void WaitableNumber::pause() { pause_processor(); }
void WaitableNumber::begin_sleeping() {
  num_sleepers_.fetch_add(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
void WaitableNumber::sleep(uint32_t value) { futex(value_, FUTEX_WAIT, value); }
void WaitableNumber::end_sleeping() { num_sleepers_.fetch_sub(1, std::memory_order_relaxed); }

ThreadPool::ThreadPool(int32_t num_threads) {
  if (num_threads < 1 || num_threads > kMaxThreads) {
    throw Error("the number of threads must be 1 … " + std::to_string(kMaxThreads) + ", got " +
                std::to_string(num_threads));
  }
  shares_ = std::vector<Share>(static_cast<size_t>(num_threads));
  for (int32_t i = 0; i < num_threads; ++i) workers_.push_back({i, num_threads, nullptr, this, 0, false, nullptr, {}, weight_prefetch()});
  grow_scratch(kWorkerScratchBytes);
  const BlockedSignals blocked;
  threads_.reserve(workers_.size());
  for (int32_t i = 1; i < num_threads; ++i) {
    threads_.emplace_back([this, i] { work(workers_[static_cast<size_t>(i)]); });
    pthread_setname_np(threads_.back().native_handle(), "octavo-kernel");
  }
}

ThreadPool::~ThreadPool() {
  give_up();
  ends_.store(true, std::memory_order_release);
  task_number_.add(1);
  task_number_.wake();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::grow_scratch(size_t bytes_per_worker) {
  bytes_per_worker = round_up(bytes_per_worker, 64);
  if (bytes_per_worker * workers_.size() <= scratch_.size()) return;
  scratch_ = HugeMemory(bytes_per_worker * workers_.size());
  for (size_t i = 0; i < workers_.size(); ++i) workers_[i].scratch = scratch_.data() + bytes_per_worker * i;
}

void ThreadPool::begin_task(Task task, const void* context) {
  task_ = task;
  context_ = context;
  first_phase_ = workers_[0].phase;
  attendance_.add(kMayAttend);
  task_number_.add(1);
  task_number_.wake();
}

void ThreadPool::end_task() {
  const DefaultFloatingPoint floating_point;
  task_(context_, workers_[0]);
  barrier(workers_[0]);
  // All work is done; whoever has not noticed yet may still look at the task.
  if (attendance_.add(kMayAttend) != 0) attendance_.wait_until([](uint32_t workers) { return workers == 0; });
}

bool ThreadPool::finish(uint32_t task_number) {
  const std::lock_guard lock(run_mutex_);
  if (!has_started_ || task_number_.load() != task_number) return false;
  has_started_ = false;
  end_task();
  return true;
}

void ThreadPool::give_up() {
  const std::lock_guard lock(run_mutex_);
  give_up_started();
}

// Nobody gets a piece any more, so the caller is through at once, and the others are after the one that they hold. Whoever
// leaves a phase with pieces in it has seen this, and so has whoever enters a later one: nothing reads what was not done.
void ThreadPool::give_up_started() {
  if (!has_started_) return;
  has_started_ = false;
  gives_up_.store(true, std::memory_order_relaxed);
  end_task();
  gives_up_.store(false, std::memory_order_relaxed);
}

void ThreadPool::work(Worker& worker) {
  const DefaultFloatingPoint floating_point;
  for (uint32_t number = 0;;) {
    task_number_.wait_until([number](uint32_t current) { return current != number; });
    number = task_number_.load();
    if (!attend()) {
      if (ends_.load(std::memory_order_acquire)) return;
      continue;
    }
    worker.phase = first_phase_;
    task_(context_, worker);
    barrier(worker);
    leave();
  }
}

bool ThreadPool::is_disturbed() {
  const int64_t now = now_nanoseconds();
  if (disturbance_.is_due(now)) disturbance_.note(preemptions_of_this_process(), now);
  return disturbance_.goes_on();
}

bool ThreadPool::attend() {
  uint32_t attendance = attendance_.load();
  do {
    if ((attendance & kMayAttend) == 0) return false;
  } while (!attendance_.exchange(attendance, attendance + 1));
  return true;
}

void ThreadPool::leave() {
  if (attendance_.add(-uint32_t{1}) == 0) attendance_.wake();
}

// Makes the worker one that holds a piece, and takes so many from the counter, perhaps none. `state` becomes what it was
// before. False: the phase is over.
bool ThreadPool::enter_phase(Worker& worker, uint64_t pieces, uint64_t& state) {
  state = state_.load(std::memory_order_acquire);
  do {
    if (!is_phase(state, worker.phase)) return false;
  } while (!state_.compare_exchange_weak(state, state + kOneHolder + pieces, std::memory_order_acq_rel,
                                         std::memory_order_acquire));
  worker.holds_piece = true;
  return true;
}

int64_t ThreadPool::claim(Worker& worker, int64_t count) {
  if (gives_up_.load(std::memory_order_relaxed)) return kPhaseIsOver;
  const uint64_t pieces = static_cast<uint64_t>(count);
  if (worker.holds_piece) return static_cast<int64_t>(piece_of(state_.fetch_add(pieces, std::memory_order_relaxed)));
  uint64_t state;
  return enter_phase(worker, pieces, state) ? static_cast<int64_t>(piece_of(state)) : kPhaseIsOver;
}

// While a worker holds a piece the phase cannot end, so shares are of this phase or, not claimed from yet, of an earlier
// one.
int64_t ThreadPool::claim_of(Worker& worker, int32_t owner, int64_t size) {
  if (gives_up_.load(std::memory_order_relaxed)) return kPhaseIsOver;
  uint64_t entered;
  if (!worker.holds_piece && !enter_phase(worker, 0, entered)) return kPhaseIsOver;
  return claim_of_share(shares_[static_cast<size_t>(owner)].state, worker.phase, size);
}

void ThreadPool::barrier(Worker& worker) { end_phase(worker, pause_processor); }
void ThreadPool::barrier(Worker& worker, WeightsAhead& ahead) {
  end_phase(worker, [&ahead] {
    ahead.fetch();
    pause_processor();
  });
}

// Whoever comes here knows that no piece is left: it looked. So the phase is over once nobody holds one.
template <class Idle>
void ThreadPool::end_phase(Worker& worker, Idle idle) {
  if (worker.holds_piece) state_.fetch_sub(kOneHolder, std::memory_order_acq_rel);
  worker.holds_piece = false;
  const uint32_t phase = worker.phase++;
  uint64_t state = state_.load(std::memory_order_acquire);
  while (is_phase(state, phase)) {
    if (has_holders(state)) {
      const auto is_over = [this, phase](uint32_t) { return !is_phase(state_.load(std::memory_order_seq_cst), phase); };
      return phase_ends_.wait_until(is_over, idle);
    }
    const uint64_t next = uint64_t{worker.phase} << kPhaseShift;
    if (state_.compare_exchange_weak(state, next, std::memory_order_seq_cst, std::memory_order_acquire)) {
      return wake_phase_sleepers();
    }
  }
}

// Whoever spins looks at state_ itself: one line less goes from core to core.
void ThreadPool::wake_phase_sleepers() {
  if (!phase_ends_.has_sleepers()) return;
  phase_ends_.add(1);
  phase_ends_.wake();
}

}  // namespace octavo
