#include "logit_rows.h"

#include <numeric>

namespace octavo {

StepView LogitRowsOfStep::make(const StepView& step) {
  const size_t count = static_cast<size_t>(step.num_logit_rows);
  token_ids_.resize(count);
  positions_.resize(count);
  request_of_row_.resize(count);
  logit_rows_.resize(count);
  std::iota(logit_rows_.begin(), logit_rows_.end(), 0);
  query_start_loc_.assign(static_cast<size_t>(step.num_requests) + 1, 0);
  for (size_t i = 0; i < count; ++i) {
    const int32_t row = step.logit_rows[i];
    token_ids_[i] = step.token_ids[row];
    positions_[i] = step.positions[row];
    request_of_row_[i] = step.request_of_row[row];
    ++query_start_loc_[static_cast<size_t>(request_of_row_[i]) + 1];
  }
  std::partial_sum(query_start_loc_.begin(), query_start_loc_.end(), query_start_loc_.begin());
  StepView kept = step;
  kept.num_tokens = step.num_logit_rows;
  kept.token_ids = token_ids_.data();
  kept.positions = positions_.data();
  kept.query_start_loc = query_start_loc_.data();
  kept.request_of_row = request_of_row_.data();
  kept.logit_rows = logit_rows_.data();
  kept.adapters = {};
  kept.shared = {};
  return kept;
}

}  // namespace octavo
