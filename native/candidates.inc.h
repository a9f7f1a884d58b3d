// Which tokens may be sampled: top-k and top-p without sorting the vocabulary.
//
// A candidate has a weight in (0, 1]; 0 means that the token is none. The order of candidates is by weight
// descending, ties by ascending id. The cuts need only the head of that order, so candidates above a
// threshold are collected and sorted, and the threshold is lowered until they are enough.
#pragma once

#include "simd_math.h"

namespace octavo::OCTAVO_ISA {
namespace {

struct Candidate {
  uint32_t order;  // ~bits of the weight: ascending is by weight descending
  int32_t id;

  float weight() const { return __builtin_bit_cast(float, ~order); }
};

struct CandidateList {
  Candidate* entries;  // room for one more than there are weights
  Candidate* spare;    // the same
  int32_t count;
};

// Stable, by one of the two fields: 256 counters for each of its four bytes.
template <bool kById>
void sort_candidates(CandidateList& list) {
  for (int shift = 0; shift < 32; shift += 8) {
    const auto digit = [shift](const Candidate& c) {
      return (kById ? static_cast<uint32_t>(c.id) : c.order) >> shift & 255u;
    };
    int32_t starts[257] = {};
    for (int32_t i = 0; i < list.count; ++i) ++starts[digit(list.entries[i]) + 1];
    if (starts[digit(list.entries[0]) + 1] == list.count) continue;  // all share this byte
    for (int i = 0; i < 256; ++i) starts[i + 1] += starts[i];
    for (int32_t i = 0; i < list.count; ++i) list.spare[starts[digit(list.entries[i])]++] = list.entries[i];
    Candidate* const sorted = list.spare;
    list.spare = list.entries;
    list.entries = sorted;
  }
}

// Fills the list, ascending by id, with the tokens whose weight is at least `threshold`. `count` is a multiple of 64.
inline void collect_candidates(const float* weights, int32_t count, float threshold, CandidateList& list) {
  list.count = 0;
  for (int32_t begin = 0; begin < count; begin += 64) {
    const f32x16 lower = max(load16(weights + begin), load16(weights + begin + 16));
    const f32x16 upper = max(load16(weights + begin + 32), load16(weights + begin + 48));
    if (!(reduce_max(max(lower, upper)) >= threshold)) continue;
    for (int32_t i = begin; i < begin + 64; ++i) {  // written always and kept sometimes: no branch to mispredict
      list.entries[list.count] = {~__builtin_bit_cast(uint32_t, weights[i]), i};
      list.count += weights[i] >= threshold;
    }
  }
}

// In ascending order of ids.
inline double sum_weights(const CandidateList& list) {
  double total = 0.0;
  for (int32_t i = 0; i < list.count; ++i) total += static_cast<double>(list.entries[i].weight());
  return total;
}

inline double sum_weights(const float* weights, int32_t count) {
  double total = 0.0;
  for (int32_t i = 0; i < count; ++i) total += static_cast<double>(weights[i]);
  return total;
}

// Length of the shortest prefix, one at least, that weighs `wanted`; count + 1 if all are not enough.
inline int32_t prefix_that_weighs(const CandidateList& list, double wanted) {
  double running = 0.0;
  for (int32_t i = 0; i < list.count; ++i) {
    running += static_cast<double>(list.entries[i].weight());
    if (running >= wanted) return i + 1;
  }
  return list.count + 1;
}

struct Cuts {
  int32_t top_k;  // 0: none
  float top_p;    // 1 or more: none

  bool any() const { return top_k > 0 || top_p < 1.0f; }
};

// `list` holds every candidate of at least some weight, ordered by weight. Cuts it; false if the cut may lie
// below that weight.
inline bool cut_candidates(const Cuts& cuts, double total, bool complete, CandidateList& list) {
  if (cuts.top_k > 0) {
    if (list.count < cuts.top_k && !complete) return false;
    if (list.count > cuts.top_k) list.count = cuts.top_k;
    if (cuts.top_p >= 1.0f) return true;
    sort_candidates<true>(list);
    total = sum_weights(list);
    sort_candidates<false>(list);
  }
  const int32_t kept = prefix_that_weighs(list, static_cast<double>(cuts.top_p) * total);
  if (kept > list.count) return complete || cuts.top_k > 0;  // rounding only: all of them are kept
  list.count = kept;
  return true;
}

// The candidates that top-k and then top-p leave, ascending by id.
inline void select_candidates(const float* weights, int32_t count, const Cuts& cuts, CandidateList& list) {
  constexpr float kThresholds[] = {0x1p-7f, 0x1p-14f, 0x1p-28f, __FLT_DENORM_MIN__};
  const double total = cuts.top_k > 0 ? 0.0 : sum_weights(weights, count);
  for (const float threshold : kThresholds) {
    collect_candidates(weights, count, threshold, list);
    sort_candidates<false>(list);
    if (cut_candidates(cuts, total, threshold == __FLT_DENORM_MIN__, list)) break;
  }
  sort_candidates<true>(list);
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
