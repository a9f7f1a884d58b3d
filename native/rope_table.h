// Cosines and sines of a rope, for as many positions as any step has needed.
#pragma once

#include <cstdint>
#include <vector>

#include "step.h"

namespace octavo {

class RopeTableOwner {
 public:
  RopeTableOwner(std::vector<double> frequencies, double magnitude);

  // Its address does not change; its contents do when cover() makes it longer.
  const RopeTable& table() const { return table_; }

  // Makes the table reach at least positions 0 … num_positions - 1.
  void cover(int32_t num_positions);

 private:
  std::vector<double> frequencies_;
  double magnitude_;
  std::vector<float> cosines_;
  std::vector<float> sines_;
  RopeTable table_{nullptr, nullptr, 0};
};

}  // namespace octavo
