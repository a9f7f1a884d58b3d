// Weights that a worker will read soon, fetched while it waits for others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "linear.h"

namespace octavo {

// A worker's share of the first panels of a linear layer: with few rows, reading weights takes most of a step, and memory
// would have nothing to do while the workers norm, rotate or attend. Workers claim pieces in turn, so pieces in turn are
// the best guess of what each will read.
class WeightsAhead {
 public:
  WeightsAhead() = default;  // nothing
  WeightsAhead(const LinearOp& op, const Worker& worker)
      : piece_bytes_(panels_per_piece(op, worker.count, kFewRows) * op.parts[0].stride),
        jump_((worker.count - 1) * piece_bytes_),
        next_(op.parts[0].data + worker.index * piece_bytes_),
        piece_end_(next_ + piece_bytes_),
        left_(kMostBytes) {}

  // Asks for a few lines.
  void fetch() {
    if (left_ <= 0) return;
    for (int64_t byte = 0; byte < kStep; byte += 64) __builtin_prefetch(next_ + byte, 0, 2);
    next_ += kStep;
    left_ -= kStep;
    if (next_ < piece_end_) return;
    next_ += jump_;
    piece_end_ = next_ + piece_bytes_;
  }

 private:
  static constexpr int64_t kStep = 512;
  static constexpr int64_t kMostBytes = 256 * 1024;  // a good part of a second-level cache

  int64_t piece_bytes_ = 0, jump_ = 0;
  const std::byte* next_ = nullptr;
  const std::byte* piece_end_ = nullptr;
  int64_t left_ = 0;
};

}  // namespace octavo
