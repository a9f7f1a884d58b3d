// A step whose rows are the logit rows of another: what is left of it once every layer has K and V of all rows.
#pragma once

#include <cstdint>
#include <vector>

#include "step.h"

namespace octavo {

class LogitRowsOfStep {
 public:
  // Logit rows are in order, and consecutive within a request. The view is valid until the next call and while the
  // step's arrays are; its adapters and shared passes are not filled in.
  StepView make(const StepView& step);

 private:
  std::vector<int32_t> token_ids_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> query_start_loc_;
  std::vector<int32_t> request_of_row_;
  std::vector<int32_t> logit_rows_;
};

}  // namespace octavo
