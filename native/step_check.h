// Checks of a step's arrays, once per step, so that kernels need none.
#pragma once

#include <cstdint>
#include <vector>

#include "octavo_native.h"

namespace octavo {

struct StepLimits {
  int32_t max_num_tokens;
  int32_t vocab_size;  // 0: token ids are not looked up
  int32_t num_blocks;  // 0: no cache; block tables and sequence lengths are not read
  int32_t block_size;
};

// Throws an Error that names what is wrong. Fills `request_of_row`.
void check_step(const OctavoStep& step, const StepLimits& limits, std::vector<int32_t>& request_of_row);

void check_logit_rows(const int32_t* rows, int32_t num_rows, int32_t num_tokens);

}  // namespace octavo
