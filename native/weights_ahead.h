// Weights that a worker will read soon, fetched while it waits for others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "linear.h"

namespace octavo {

// The first panels of a worker's share of a linear layer, and what lies behind them in the same part: with few rows,
// reading weights takes most of a step, and memory would have nothing to do while the workers norm, rotate or attend.
class WeightsAhead {
 public:
  WeightsAhead() = default;  // nothing
  WeightsAhead(const LinearOp& op, const Worker& worker) {
    const int32_t piece_panels = panels_per_piece(op, worker.count, kFewRows);
    const int64_t num_pieces = num_panel_pieces(op, piece_panels);
    const int64_t begin = share_begin(num_pieces, worker.index, worker.count);
    if (begin == share_begin(num_pieces, worker.index + 1, worker.count)) return;  // more workers than pieces
    const PanelPiece first = find_panels(op, piece_panels, begin);
    const Panels& part = op.parts[first.part];
    next_ = part.bundle_of(first.panel);
    left_ = std::min(kMostBytes, part.bundle_of(part.num_panels() + panels_in_bundle(part.kind) - 1) - next_);
  }

  const std::byte* next() const { return next_; }

  // Asks for a few lines.
  void fetch() {
    if (left_ <= 0) return;
    for (int64_t byte = 0; byte < kStep; byte += 64) __builtin_prefetch(next_ + byte, 0, 2);
    next_ += kStep;
    left_ -= kStep;
  }

 private:
  static constexpr int64_t kStep = 512;
  static constexpr int64_t kMostBytes = 256 * 1024;  // a good part of a second-level cache

  const std::byte* next_ = nullptr;
  int64_t left_ = 0;
};

}  // namespace octavo
