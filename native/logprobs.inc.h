// One row of logits read as a distribution: its maximum, log-probabilities, ranks, most likely tokens (ADR 0001).
#pragma once

#include "simd_math.h"
#include "step.h"

namespace octavo::OCTAVO_ISA {
namespace {

struct RowScan {
  float maximum;
  int32_t argmax;  // the lowest id of the maximum
  bool finite;     // no NaN, no infinity
};

// Vocabularies stay below 2^24, so float32 lanes hold token ids exactly.
inline RowScan scan_row(const float* values, int32_t count) {
  f32x16 best = splat16(-__builtin_inff()), best_ids = splat16(0.0f), zeros = splat16(0.0f);
  f32x16 ids = iota16(0);
  int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const f32x16 z = load16(values + i);
    best_ids = select(greater(z, best), ids, best_ids);
    best = max(z, best);
    zeros = fma(z, splat16(0.0f), zeros);  // becomes NaN with the first z that is not finite
    ids = add(ids, splat16(static_cast<float>(kLanes)));
  }
  alignas(64) float maxima[kLanes], lane_ids[kLanes];
  store16(maxima, best);
  store16(lane_ids, best_ids);
  RowScan scan = {maxima[0], static_cast<int32_t>(lane_ids[0]), tree_sum(zeros) == 0.0f};
  for (int lane = 1; lane < kLanes; ++lane) {
    const int32_t id = static_cast<int32_t>(lane_ids[lane]);
    if (maxima[lane] > scan.maximum || (maxima[lane] == scan.maximum && id < scan.argmax)) {
      scan.maximum = maxima[lane];
      scan.argmax = id;
    }
  }
  for (; i < count; ++i) {
    scan.finite = scan.finite && values[i] * 0.0f == 0.0f;
    if (values[i] > scan.maximum) {
      scan.maximum = values[i];
      scan.argmax = i;
    }
  }
  return scan;
}

struct RowSums {
  double log_total;  // m + log Σ exp(z - m)
  int32_t larger;    // logits above the token's
};

inline RowSums sum_row(const float* logits, int32_t count, float maximum, float token_logit) {
  f64x16 weights = {};
  f32x16 larger = splat16(0.0f);
  const f32x16 one = splat16(1.0f), none = splat16(0.0f), token = splat16(token_logit), top = splat16(maximum);
  int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const f32x16 z = load16(logits + i);
    weights = add_widened(weights, exp16(sub(z, top)));
    larger = add(larger, select(greater(z, token), one, none));
  }
  if (i < count) {
    const f32x16 z = load_first(logits + i, count - i);
    const mask16 present = first_lanes(count - i);
    weights = add_widened(weights, select(present, exp16(sub(z, top)), none));
    larger = add(larger, select(present, select(greater(z, token), one, none), none));
  }
  alignas(64) float counts[kLanes];
  store16(counts, larger);
  int32_t num_larger = 0;
  for (const float lane : counts) num_larger += static_cast<int32_t>(lane);
  return {static_cast<double>(maximum) + __builtin_log(tree_sum(weights)), num_larger};
}

// Puts (id, logit) into its place among the first `count` of the largest, which has room for `room`.
OCTAVO_INLINE int insert_top(int32_t* ids, float* logits, int count, int room, int32_t id, float logit) {
  int place = count < room ? count : room - 1;
  for (; place > 0 && logits[place - 1] < logit; --place) {
    logits[place] = logits[place - 1];
    ids[place] = ids[place - 1];
  }
  logits[place] = logit;
  ids[place] = id;
  return count < room ? count + 1 : room;
}

// The `room` largest, descending, ties by ascending id: ids arrive ascending and only a larger logit overtakes.
inline void find_top(const float* logits, int32_t count, int room, int32_t* top_ids, float* top_logits) {
  constexpr int32_t kStep = 64;
  int found = 0;
  for (int32_t begin = 0; begin < count; begin += kStep) {
    const int32_t end = begin + kStep < count ? begin + kStep : count;
    if (found == room && end - begin == kStep) {
      const f32x16 lower = max(load16(logits + begin), load16(logits + begin + 16));
      const f32x16 upper = max(load16(logits + begin + 32), load16(logits + begin + 48));
      if (!any(greater(max(lower, upper), splat16(top_logits[room - 1])))) continue;
    }
    for (int32_t i = begin; i < end; ++i) {
      if (found == room && logits[i] <= top_logits[room - 1]) continue;
      found = insert_top(top_ids, top_logits, found, room, i, logits[i]);
    }
  }
}

inline void write_failed_row(const LogprobArrays& out, int32_t row, int32_t num_top) {
  out.failed[row] = 1;
  if (out.logprobs == nullptr) return;
  out.logprobs[row] = __builtin_nanf("");
  out.ranks[row] = 0;
  for (int64_t i = int64_t{row} * num_top; i < int64_t{row + 1} * num_top; ++i) {
    out.top_token_ids[i] = 0;
    out.top_logprobs[i] = __builtin_nanf("");
  }
}

// One row of logits, all finite.
struct LogitRow {
  const float* logits;  // [vocab_size]
  int32_t vocab_size;
  float maximum;
};

inline void write_logprobs(const LogprobArrays& out, int32_t row, int32_t num_top, const LogitRow& from,
                           int32_t token_id) {
  out.failed[row] = 0;
  if (out.logprobs == nullptr) return;
  const float token_logit = from.logits[token_id];
  const RowSums sums = sum_row(from.logits, from.vocab_size, from.maximum, token_logit);
  out.logprobs[row] = static_cast<float>(static_cast<double>(token_logit) - sums.log_total);
  out.ranks[row] = 1 + sums.larger;
  if (num_top == 0) return;
  float* top_logprobs = out.top_logprobs + int64_t{row} * num_top;
  find_top(from.logits, from.vocab_size, num_top, out.top_token_ids + int64_t{row} * num_top, top_logprobs);
  for (int32_t i = 0; i < num_top; ++i) {
    top_logprobs[i] = static_cast<float>(static_cast<double>(top_logprobs[i]) - sums.log_total);
  }
}

[[maybe_unused]] void logprobs(const LogprobsOp& op, Worker& worker) {
  for (int64_t i = claim(worker, 1); i < op.num_rows; i = claim(worker, 1)) {
    const int32_t row = static_cast<int32_t>(i);
    const float* logits = op.logits + i * op.vocab_size;
    const RowScan scan = scan_row(logits, op.vocab_size);
    if (scan.finite) {
      write_logprobs(op.out, row, op.num_top, {logits, op.vocab_size, scan.maximum}, op.token_ids[row]);
    } else {
      write_failed_row(op.out, row, op.num_top);
    }
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
