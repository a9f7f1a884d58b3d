#include "step_check.h"

#include <string>

#include "error.h"

namespace octavo {

namespace {

[[noreturn]] void fail(const std::string& what, int64_t got, int64_t limit) {
  throw Error(what + " " + std::to_string(got) + " is outside 0 … " + std::to_string(limit));
}

void check_in(const char* what, int64_t value, int64_t limit) {
  if (value < 0 || value > limit) fail(what, value, limit);
}

void check_query_starts(const OctavoStep& step) {
  const int32_t* starts = step.query_start_loc;
  check(starts[0] == 0 && starts[step.num_requests] == step.num_tokens, "query_start_loc must begin at 0 and end at the number of tokens");
  for (int32_t i = 0; i < step.num_requests; ++i) {
    check(starts[i] <= starts[i + 1], "query_start_loc must not decrease");
  }
}

void check_positions(const OctavoStep& step, int32_t request, int32_t first, int32_t end) {
  const int32_t start = step.positions[first];
  check_in("position", start, INT32_MAX - (end - first));
  for (int32_t row = first; row < end; ++row) {
    check(step.positions[row] == start + row - first, "positions must be consecutive within a request");
  }
  if (step.positions[end - 1] >= step.seq_lens[request]) {
    fail("position", step.positions[end - 1], step.seq_lens[request] - 1);
  }
}

void check_blocks(const OctavoStep& step, const StepLimits& limits, int32_t request) {
  const int32_t used = (step.seq_lens[request] - 1) / limits.block_size + 1;
  check_in("number of blocks", used, step.max_blocks_per_request);
  const int32_t* table = step.block_tables + static_cast<int64_t>(request) * step.max_blocks_per_request;
  for (int32_t i = 0; i < used; ++i) check_in("block id", table[i], limits.num_blocks - 1);
}

void check_order_of_logit_rows(const OctavoStep& step, const std::vector<int32_t>& request_of_row) {
  for (int32_t i = 1; i < step.num_logit_rows; ++i) {
    const int32_t before = step.logit_rows[i - 1], row = step.logit_rows[i];
    const bool is_next_request =
        request_of_row[static_cast<size_t>(row)] > request_of_row[static_cast<size_t>(before)];
    check(row == before + 1 || is_next_request,
          "logit rows must be in order, and consecutive within a request, if no others are wanted");
  }
}

}  // namespace

void check_logit_rows(const int32_t* rows, int32_t num_rows, int32_t num_tokens) {
  check(num_rows >= 0, "the number of logit rows is negative");
  for (int32_t i = 0; i < num_rows; ++i) check_in("logit row", rows[i], num_tokens - 1);
}

void check_step(const OctavoStep& step, const StepLimits& limits, std::vector<int32_t>& request_of_row) {
  check(step.num_tokens >= 0 && step.num_requests >= 0 && step.max_blocks_per_request >= 0, "a count is negative");
  check_in("number of tokens", step.num_tokens, limits.max_num_tokens);
  check_query_starts(step);
  request_of_row.resize(static_cast<size_t>(step.num_tokens));
  for (int32_t i = 0; i < step.num_requests; ++i) {
    const int32_t first = step.query_start_loc[i];
    const int32_t end = step.query_start_loc[i + 1];
    for (int32_t row = first; row < end; ++row) request_of_row[static_cast<size_t>(row)] = i;
    if (limits.num_blocks == 0 || first == end) continue;
    check_positions(step, i, first, end);
    check_blocks(step, limits, i);
  }
  if (limits.vocab_size > 0) {
    for (int32_t row = 0; row < step.num_tokens; ++row) check_in("token id", step.token_ids[row], limits.vocab_size - 1);
  }
  check_logit_rows(step.logit_rows, step.num_logit_rows, step.num_tokens);
  if (step.only_logit_rows != 0) check_order_of_logit_rows(step, request_of_row);
}

}  // namespace octavo
