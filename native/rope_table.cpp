#include "rope_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace octavo {

RopeTableOwner::RopeTableOwner(std::vector<double> frequencies, double magnitude)
    : frequencies_(std::move(frequencies)), magnitude_(magnitude) {}

void RopeTableOwner::cover(int32_t num_positions) {
  if (num_positions <= table_.num_positions) return;
  const int64_t doubled = std::min<int64_t>(int64_t{table_.num_positions} * 2, INT32_MAX);
  const int32_t end = static_cast<int32_t>(std::max<int64_t>({num_positions, doubled, 512}));
  // Copies: if an allocation throws, the table still points into the vectors that it had.
  std::vector<float> cosines = cosines_;
  std::vector<float> sines = sines_;
  cosines.reserve(static_cast<size_t>(end) * frequencies_.size());
  sines.reserve(static_cast<size_t>(end) * frequencies_.size());
  for (int32_t position = table_.num_positions; position < end; ++position) {
    for (const double frequency : frequencies_) {
      const double angle = position * frequency;
      cosines.push_back(static_cast<float>(std::cos(angle) * magnitude_));
      sines.push_back(static_cast<float>(std::sin(angle) * magnitude_));
    }
  }
  cosines_.swap(cosines);
  sines_.swap(sines);
  table_ = {cosines_.data(), sines_.data(), end};
}

}  // namespace octavo
