// Where the packed weights of a program lie.
#pragma once

#include <cstdint>
#include <vector>

#include "program_spec.h"

namespace octavo {

struct PlacedWeight {
  int32_t index;
  int64_t offset;  // bytes, of its first bundle
  Panels panels;   // whose data is still missing
};

struct WeightLayout {
  std::vector<PlacedWeight> weights;  // each once, also if several ops use it
  int64_t bytes = 0;
};

// One weight behind the other in the order of ops, but the bundles of gates and ups, which a worker reads together, in turns.
WeightLayout lay_out_weights(const ProgramSpec& spec);

}  // namespace octavo
