// How many candidates have about which weight: where a cut lies, without sorting those that it does not concern.
#pragma once

#include "simd_math.h"

namespace octavo::OCTAVO_ISA {
namespace {

// 32 buckets for each factor of 2, the largest weights first. As integers, positive floats order like floats.
constexpr int kBucketShift = 18;
constexpr uint32_t kBitsOfOne = 0x3f800000;
constexpr int kNumBuckets = kBitsOfOne >> kBucketShift;  // a weight of 0 is in none
constexpr int kCounterSets = 2;                          // equal neighbours do not wait for each other's count
constexpr int kNumCounters = kCounterSets * (kNumBuckets + 1);

// A counter holds a bucket's candidates, times this, plus how far below its largest weight each of them lies, in units
// of the last bit. Both fit for 4 million candidates.
constexpr int kCountShift = 42;

OCTAVO_INLINE float largest_of_bucket(int bucket) {
  return __builtin_bit_cast(float, kBitsOfOne - (static_cast<uint32_t>(bucket) << kBucketShift));
}
OCTAVO_INLINE float smallest_of_bucket(int bucket) {
  return __builtin_bit_cast(float, kBitsOfOne - (static_cast<uint32_t>(bucket + 1) << kBucketShift) + 1);
}
OCTAVO_INLINE float octave_of(float weight) {
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, weight) & 0x7f800000u);
}

// A bucket, and the candidates before it.
struct BucketPlace {
  int bucket;
  int32_t count_before;
  double weight_before;
  double weight_through;  // the bucket's own included

  // Whether these sums are what float64 gives in any order: all weights are multiples of the smallest one's last bit,
  // and no sum needs more bits than there are, 53, 23 of them below the smallest one's octave.
  bool is_exact() const {
    return weight_through <= static_cast<double>(octave_of(smallest_of_bucket(bucket))) * 0x1p30;
  }
};

class WeightHistogram {
 public:
  // `counters` has room for kNumCounters; `count` is a multiple of kCounterSets.
  WeightHistogram(const float* weights, int32_t count, uint64_t* counters) : counters_(counters) {
    __builtin_memset(counters, 0, sizeof(uint64_t) * kNumCounters);
    for (int32_t i = 0; i < count; i += kCounterSets) {
#pragma GCC unroll 4
      for (int set = 0; set < kCounterSets; ++set) {
        const uint32_t below = kBitsOfOne - __builtin_bit_cast(uint32_t, weights[i + set]);
        const uint32_t bucket = below >> kBucketShift < kNumBuckets ? below >> kBucketShift : kNumBuckets;
        counters[bucket * kCounterSets + set] += (uint64_t{1} << kCountShift) | (below & ((1u << kBucketShift) - 1));
      }
    }
  }

  // Where candidate number `wanted` by weight lies, or the last bucket if there are fewer.
  BucketPlace place_of_count(int32_t wanted) const {
    return find([wanted](const BucketPlace& place, int32_t count) { return place.count_before + count >= wanted; });
  }

  // Where the sum of weights reaches `wanted`, up to rounding, or the last bucket if it does not.
  BucketPlace place_of_weight(double wanted) const {
    return find([wanted](const BucketPlace& place, int32_t) { return place.weight_through >= wanted; });
  }

 private:
  template <class Reached>
  BucketPlace find(Reached reached) const {
    BucketPlace place = {0, 0, 0.0, 0.0};
    for (;; ++place.bucket) {
      const int32_t count = add_bucket(place);
      if (reached(place, count) || place.bucket == kNumBuckets - 1) return place;
      place.count_before += count;
      place.weight_before = place.weight_through;
    }
  }

  // Returns the bucket's count.
  int32_t add_bucket(BucketPlace& place) const {
    const uint64_t counter = counters_[place.bucket * kCounterSets] + counters_[place.bucket * kCounterSets + 1];
    if (counter == 0) return 0;
    const double count = static_cast<double>(counter >> kCountShift);
    const double below = static_cast<double>(counter & ((uint64_t{1} << kCountShift) - 1));
    const double last_bit = static_cast<double>(octave_of(smallest_of_bucket(place.bucket))) * 0x1p-23;
    place.weight_through += count * static_cast<double>(largest_of_bucket(place.bucket)) - below * last_bit;
    return static_cast<int32_t>(counter >> kCountShift);
  }

  const uint64_t* counters_;
};

}  // namespace
}  // namespace octavo::OCTAVO_ISA
