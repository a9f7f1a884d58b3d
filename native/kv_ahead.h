// K and V that attention will read soon, fetched while linear layers compute.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

struct PagedAttentionOp;
struct StepView;

// What a worker will attend to in a decoding step, as nearly as blocks tell: the passes, and its share of the blocks of requests
// of few rows, one request after the other. With many such requests attention waits for memory, which has little to do while
// linear layers compute: they find what they need in the caches. Asking in passing, a few lines at a time, leaves them their
// share of the lines that a core may wait for at once; in one go it would cost them what attention gains.
class KvAhead {
 public:
  KvAhead() = default;  // nothing
  KvAhead(const PagedAttentionOp& op, const StepView& step, int32_t worker_index, int32_t num_workers);

  // Asks for a few lines.
  [[gnu::always_inline]] void fetch() {
    if (next_ == nullptr) return;
#pragma GCC unroll 8
    for (int64_t byte = 0; byte < kStep; byte += 64) __builtin_prefetch(next_ + byte, 0, 2);
    next_ += kStep;
    if (next_ == block_end_) find_block();
  }

  const std::byte* next() const { return next_; }  // null: there is nothing left

  static constexpr int64_t kStep = 128;  // bytes

 private:
  struct Entries {
    const int32_t* block_table;
    int32_t begin, end;  // from this worker's next one on

    int64_t size() const { return end - begin; }
  };

  void find_block();
  bool find_entry();
  Entries share_of(Entries entries);
  Entries entries_of_pass(int32_t pass) const;
  Entries entries_of_request(int32_t request) const;

  const StepView* step_ = nullptr;
  const std::byte* layer_ = nullptr;  // block 0
  const std::byte* next_ = nullptr;
  const std::byte* block_end_ = nullptr;  // whole steps
  Entries entries_{};
  int64_t blocks_left_ = 0;
  int32_t num_found_ = 0;  // passes, then requests, whose entries were taken
  int64_t skips_ = 0;      // entries of requests, before its share
  int64_t share_left_ = 0;
  int32_t num_passes_ = 0;
  int32_t group_ = 1;  // query heads per K/V head
  int32_t window_ = 0;
  int32_t worker_index_ = 0, num_workers_ = 1;
};

}  // namespace octavo
