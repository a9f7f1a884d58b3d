// Which tokens may be sampled: top-k and top-p without sorting the vocabulary.
//
// A candidate has a weight in (0, 1]; 0 means that the token is none. The order of candidates is by weight
// descending, ties by ascending id. In a peaked distribution the cuts need only the head of that order: candidates
// above a threshold are collected and sorted. In a flat one a histogram says between which weights the cut lies, and
// only the candidates there are sorted.
#pragma once

#include "weight_histogram.inc.h"

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
  uint64_t* counters;  // [kNumCounters]
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

// Weights from `least` to `most`.
struct WeightRange {
  float least, most;
};

// Fills the list, ascending by id, with the tokens of a range; gives up with more than `room`. `count` is a multiple
// of 64.
inline void collect_candidates(const float* weights, int32_t count, WeightRange range, int32_t room, CandidateList& list) {
  list.count = 0;
  for (int32_t begin = 0; begin < count && list.count <= room; begin += 64) {
    const f32x16 lower = max(load16(weights + begin), load16(weights + begin + 16));
    const f32x16 upper = max(load16(weights + begin + 32), load16(weights + begin + 48));
    if (!(reduce_max(max(lower, upper)) >= range.least)) continue;
    for (int32_t i = begin; i < begin + 64; ++i) {  // written always and kept sometimes: no branch to mispredict
      list.entries[list.count] = {~__builtin_bit_cast(uint32_t, weights[i]), i};
      list.count += static_cast<int32_t>(weights[i] >= range.least) & static_cast<int32_t>(weights[i] <= range.most);
    }
  }
}

// Sets the weights of all tokens behind `last` in the order of candidates to 0. `count` is a multiple of 16.
inline void keep_through(float* weights, int32_t count, Candidate last) {
  const f32x16 least = splat16(last.weight()), last_id = splat16(static_cast<float>(last.id)), none = splat16(0.0f);
  for (int32_t i = 0; i < count; i += kLanes) {
    const f32x16 values = load16(weights + i);
    const f32x16 ties = select(greater(iota16(i), last_id), none, select(equal(values, least), values, none));
    store16(weights + i, select(greater(values, least), values, ties));
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

// Length of the shortest prefix, one at least, that together with `running` weighs `wanted`; count + 1 if all are
// not enough.
inline int32_t prefix_that_weighs(const CandidateList& list, double running, double wanted) {
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
  const int32_t kept = prefix_that_weighs(list, 0.0, static_cast<double>(cuts.top_p) * total);
  if (kept > list.count) return complete || cuts.top_k > 0;  // rounding only: all of them are kept
  list.count = kept;
  return true;
}

// The weights of one row and the sum that top-p needs.
struct WeightRow {
  float* weights;
  int32_t count;  // a multiple of 64
  double total;   // 0 with top-k, which makes its own
};

// Sorts every candidate that weighs at least `least`; false if those are not enough, or more than `room`.
inline bool select_sorted(const WeightRow& row, const Cuts& cuts, float least, int32_t room, CandidateList& list) {
  collect_candidates(row.weights, row.count, {least, 1.0f}, room, list);
  if (list.count == 0 || list.count > room) return false;
  sort_candidates<false>(list);
  if (!cut_candidates(cuts, row.total, least == __FLT_DENORM_MIN__, list)) return false;
  sort_candidates<true>(list);
  return true;
}

// Sorts only the candidates of the bucket where the cut lies. False if it is not there, or if top-p's running sum,
// which follows the order of candidates, might differ in its last bits from the sum of those before the bucket.
inline bool select_in_bucket(const WeightRow& row, const Cuts& cuts, const BucketPlace& place, CandidateList& list) {
  const bool by_count = cuts.top_k > 0;
  if (!by_count && !place.is_exact()) return false;
  collect_candidates(row.weights, row.count, {smallest_of_bucket(place.bucket), largest_of_bucket(place.bucket)},
                     row.count, list);
  if (list.count == 0) return false;
  sort_candidates<false>(list);
  const double wanted = static_cast<double>(cuts.top_p) * row.total;
  if (!by_count && place.count_before > 0 && place.weight_before >= wanted) return false;
  const int32_t kept = by_count ? cuts.top_k - place.count_before : prefix_that_weighs(list, place.weight_before, wanted);
  if (kept > list.count) return false;
  keep_through(row.weights, row.count, list.entries[kept - 1]);
  return true;
}

// What top-k and then top-p leave, at least one candidate. True: the list holds it, ascending by id. False: the weights
// of all others are now 0.
inline bool select_candidates(float* weights, int32_t count, const Cuts& cuts, CandidateList& list) {
  constexpr float kPeaked[] = {0x1p-7f, 0x1p-14f};
  constexpr int32_t kPeakedRoom = 4096;
  const WeightRow row = {weights, count, cuts.top_k > 0 ? 0.0 : sum_weights(weights, count)};
  for (const float least : kPeaked) {
    if (select_sorted(row, cuts, least, kPeakedRoom, list)) return true;
    if (list.count > kPeakedRoom) break;
  }
  const WeightHistogram histogram(weights, count, list.counters);
  const BucketPlace place = cuts.top_k > 0 ? histogram.place_of_count(cuts.top_k)
                                           : histogram.place_of_weight(static_cast<double>(cuts.top_p) * row.total);
  const bool one_cut = cuts.top_k == 0 || cuts.top_p >= 1.0f;
  if (one_cut && select_in_bucket(row, cuts, place, list)) return false;
  return select_sorted(row, cuts, smallest_of_bucket(place.bucket), count, list) ||
         select_sorted(row, cuts, __FLT_DENORM_MIN__, count, list);
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
