#include "next_step.h"

#include <algorithm>
#include <numeric>

namespace octavo {

namespace {

// Every request has one row, whose logits are wanted and nothing else.
bool is_decoding(const OctavoStep& step) {
  if (step.num_tokens == 0 || step.only_logit_rows == 0) return false;
  if (step.num_requests != step.num_tokens || step.num_logit_rows != step.num_tokens) return false;
  for (int32_t row = 0; row < step.num_tokens; ++row) {
    if (step.query_start_loc[row] != row || step.logit_rows[row] != row) return false;
    if (step.positions[row] + 1 != step.seq_lens[row]) return false;
  }
  return true;
}

}  // namespace

bool NextStep::predict(const OctavoStep& step, const int32_t* token_ids, int32_t block_size) {
  const int32_t rows = step.num_tokens;
  step_ = {};
  if (!is_decoding(step)) return false;
  if (std::any_of(step.seq_lens, step.seq_lens + rows, [&](int32_t len) { return len % block_size == 0; })) return false;
  block_size_ = block_size;
  token_ids_.assign(token_ids, token_ids + rows);
  positions_.assign(step.seq_lens, step.seq_lens + rows);
  seq_lens_ = positions_;
  for (int32_t& len : seq_lens_) ++len;
  block_tables_.assign(step.block_tables, step.block_tables + int64_t{rows} * step.max_blocks_per_request);
  if (step.adapters != nullptr) adapters_.assign(step.adapters, step.adapters + rows);
  row_numbers_.resize(static_cast<size_t>(rows) + 1);
  std::iota(row_numbers_.begin(), row_numbers_.end(), 0);
  step_ = step;
  step_.token_ids = token_ids_.data();
  step_.positions = positions_.data();
  step_.query_start_loc = step_.logit_rows = row_numbers_.data();
  step_.seq_lens = seq_lens_.data();
  step_.block_tables = block_tables_.data();
  step_.adapters = step.adapters == nullptr ? nullptr : adapters_.data();
  return true;
}

bool NextStep::is(const OctavoStep& step) const {
  const int32_t rows = step_.num_tokens;
  if (rows == 0 || step.num_tokens != rows || !is_decoding(step)) return false;
  if ((step.adapters == nullptr) != (step_.adapters == nullptr)) return false;
  if (step.adapters != nullptr && !std::equal(adapters_.begin(), adapters_.begin() + rows, step.adapters)) return false;
  if (!std::equal(token_ids_.begin(), token_ids_.end(), step.token_ids)) return false;
  if (!std::equal(seq_lens_.begin(), seq_lens_.end(), step.seq_lens)) return false;
  for (int32_t request = 0; request < rows; ++request) {
    if (num_blocks(request) > step.max_blocks_per_request) return false;
    const int32_t* table = step.block_tables + int64_t{request} * step.max_blocks_per_request;
    const int32_t* known = step_.block_tables + int64_t{request} * step_.max_blocks_per_request;
    if (!std::equal(table, table + num_blocks(request), known)) return false;
  }
  return true;
}

}  // namespace octavo
