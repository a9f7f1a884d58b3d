// The decoding step that follows another one if nothing happens meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "octavo_native.h"

namespace octavo {

// Every request goes on with the token that was sampled for it, in the same place and in the blocks that it has.
class NextStep {
 public:
  // From a step and the tokens sampled in it, one for each logit row. False: what follows cannot be known, because a row is
  // not the last known token of its request, or a request needs another block.
  bool predict(const OctavoStep& step, const int32_t* token_ids, int32_t block_size);

  // Valid until the next prediction.
  const OctavoStep& step() const { return step_; }

  // Whether `step` is the one that was predicted, in everything that is read of it.
  bool is(const OctavoStep& step) const;

 private:
  int32_t num_blocks(int32_t request) const { return (seq_lens_[static_cast<size_t>(request)] - 1) / block_size_ + 1; }

  OctavoStep step_{};
  int32_t block_size_ = 1;
  std::vector<int32_t> token_ids_, positions_, seq_lens_, block_tables_, adapters_;
  std::vector<int32_t> row_numbers_;  // 0, 1, …: where requests begin, and logit rows
};

}  // namespace octavo
