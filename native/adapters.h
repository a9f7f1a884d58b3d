// The adapters that a program can apply, and which rows of a step have which.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "low_rank.h"
#include "memory.h"
#include "octavo_native.h"
#include "step.h"

namespace octavo {

// One linear of a program, as far as adapters care.
struct AdaptableLinear {
  int32_t depth;
  std::vector<int32_t> part_columns;
};

// One adapter, packed.
class Adapter {
 public:
  Adapter(const OctavoLowRank* pairs, int32_t num_pairs, const std::vector<AdaptableLinear>& linears);

  AdapterView view() const { return {pairs_.data(), first_pair_.data()}; }
  int32_t products_width() const { return products_width_; }
  int64_t num_bytes() const { return static_cast<int64_t>(memory_.size()); }

 private:
  std::vector<LowRank> pairs_;  // by linear
  std::vector<int32_t> first_pair_;
  int32_t products_width_ = 0;
  HugeMemory memory_;
};

// Which rows of a step have which adapter, and room for the products in between.
struct AdapterRows {
  std::vector<AdapterGroup> groups;
  std::vector<int32_t> rows;
  HugeMemory products;
};

// Numbered places for adapters. Not thread-safe: the program's lock guards it.
class AdapterTable {
 public:
  // Puts an adapter, or none, in a place.
  void set(int32_t slot, std::unique_ptr<Adapter> adapter);

  // The groups of a step, which lie in `memory`. slots: [num_requests], -1 for none; may be null.
  AdapterStepView group(const StepView& step, const int32_t* slots, AdapterRows& memory) const;

  int64_t num_bytes() const;

 private:
  std::vector<std::unique_ptr<Adapter>> adapters_;  // by slot
};

}  // namespace octavo
