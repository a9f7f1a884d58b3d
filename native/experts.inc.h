// Per row: which experts it goes through with what weights, and the sum of their results (ADR 0001).
#pragma once

#include "elementwise.inc.h"
#include "experts.h"

namespace octavo::OCTAVO_ISA {
namespace {

// Ids of the `top_k` largest logits, the largest first, ties by ascending id. Whatever a row of NaNs gives are ids.
inline void choose_largest(const float* logits, int32_t num_experts, int32_t top_k, int32_t* ids) {
  bool taken[kMaxExperts] = {};
  for (int32_t j = 0; j < top_k; ++j) {
    int32_t best = -1;
    for (int32_t e = 0; e < num_experts; ++e) {
      if (!taken[e] && (best < 0 || logits[e] > logits[best])) best = e;
    }
    ids[j] = best;
    taken[best] = true;
  }
}

inline void choose_experts_of_row(const ExpertsOp& op, int64_t row) {
  const float* logits = op.router + row * op.num_experts;
  int32_t* ids = op.scratch->expert_ids + row * op.top_k;
  float* weights = op.scratch->weights + row * op.top_k;
  choose_largest(logits, op.num_experts, op.top_k, ids);
  const float largest = logits[ids[0]];
  float total = 0.0f;
  for (int32_t j = 0; j < op.top_k; ++j) {
    weights[j] = exp1(logits[ids[j]] - largest);
    total += weights[j];
  }
  if (!op.normalized) {
    f32x16 sum = splat16(0.0f);
    for_lanes(op.num_experts, [&](int32_t e, int lanes) {
      const f32x16 exponentials = exp16(sub(load_lanes(logits + e, lanes), splat16(largest)));
      sum = add(sum, select(first_lanes(lanes), exponentials, splat16(0.0f)));
    });
    total = tree_sum(sum);
  }
  for (int32_t j = 0; j < op.top_k; ++j) weights[j] /= total;
}

[[maybe_unused]] void choose_experts(const ExpertsOp& op, const StepView& step, Worker& worker) {
  for_claimed(worker, step.num_tokens, [&](int64_t row) { choose_experts_of_row(op, row); });
}

inline void add_experts_of_row(const ExpertsOp& op, int64_t row) {
  float* out = op.out + row * op.hidden;
  const int32_t* places = op.scratch->places + row * op.top_k;
  const float* weights = op.scratch->weights + row * op.top_k;
  for_lanes(op.hidden, [&](int32_t d, int lanes) {
    f32x16 sum = splat16(0.0f);
    for (int32_t j = 0; j < op.top_k; ++j) {
      sum = fma(splat16(weights[j]), load_lanes(op.scratch->results + int64_t{places[j]} * op.hidden + d, lanes), sum);
    }
    store_lanes(out + d, add(load_lanes(out + d, lanes), sum), lanes);
  });
}

[[maybe_unused]] void add_experts(const ExpertsOp& op, const StepView& step, Worker& worker) {
  for_claimed(worker, step.num_tokens, [&](int64_t row) { add_experts_of_row(op, row); });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
