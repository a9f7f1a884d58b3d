// Attention of a few rows over one tile of 64 tokens whose K and V are int8: ADR 0016. Scores and values are sums of
// products of integers, exact and so free of any order; what is left of float arithmetic is per token and per row.
//
// A token's weight is an integer of 8 bits, in units of the row's own for this tile. An invisible token weighs 0, so that it
// takes no part whatever its slot holds.
#pragma once

#include "attention_tile.inc.h"
#include "int8_rows.inc.h"

namespace octavo::OCTAVO_ISA {
namespace {

#if defined(OCTAVO_SIMD_AVX512)
constexpr int kValueVectors = 4;
constexpr int kColumnsAtOnce = 4;  // of exponentials
#else
constexpr int kValueVectors = 1;
constexpr int kColumnsAtOnce = 1;
#endif

constexpr float kIntegersFrom = 8388608.0f;  // 2^23: a float from here on has its integer in its lowest bits
constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLargestWeight = 255.0f;
constexpr float kSmallestPeak = 1e-30f;  // kLargestWeight / peak may not overflow
constexpr int kTileQuads = kTileTokens / 4;

template <>
struct TileView<int8_t> {
  const int8_t* keys[kTileColumns];         // [head_dim / 4][16][4]: tokens 16 j … 16 j + 15
  const int8_t* values[kTileGranules];      // [2][head_dim][4]: tokens 8 i … 8 i + 7
  const float* key_scales[kTileGranules];   // [16], in both places of a column
  const float* value_scales[kTileGranules];
};

// A row's Int8Query, in the place of its floats.
OCTAVO_INLINE const Int8Query& int8_query(const RowState& rows, int row) {
  return *reinterpret_cast<const Int8Query*>(rows.queries + row * rows.stride);
}

// The weights of the rows' tokens, and what their outputs are moved on by. Lanes are rows.
template <int kRows>
struct TileWeightsInt8 {
  alignas(64) uint8_t weights[kRows][kTileTokens];
  alignas(64) float steps[kLanes];  // the value of a weight of 1
  alignas(64) float corrections[kLanes];
};

// scores[r][16 j + lane] = float(Σ_d query[d] · key[d]) · the token's scale; the query's is still missing.
template <int kRows, int kVectors, bool kPrefetch>
OCTAVO_INLINE void score_columns(const TileJob<int8_t, kPrefetch>& job, const RowState& rows, int column, float* scores) {
  vi sums[kRows][kVectors][kParts];
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kVectors; ++j) OCTAVO_EACH_PART sums[r][j][i] = signed_start(int8_query(rows, r).minus_128_sum);
  }
  for (int d = 0; d < job.shape.head_dim; d += 4) {
    if constexpr (kPrefetch) {
      for (int j = 0; j < kVectors; ++j) prefetch(job.next.keys[column + j] + d * kLanes);
    }
    signed_weights keys[kVectors][kParts];
    _Pragma("GCC unroll 4") for (int j = 0; j < kVectors; ++j) {
      const int8_t* key = job.tile.keys[column + j] + d * kLanes;
      OCTAVO_EACH_PART keys[j][i] = prepare_signed(load_bytes(key + i * kWidth * 4));
    }
    _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r) {
      const vbytes query = splat_quad(int8_query(rows, r).q + d);
      _Pragma("GCC unroll 4") for (int j = 0; j < kVectors; ++j) {
        OCTAVO_EACH_PART sums[r][j][i] = signed_add(sums[r][j][i], keys[j][i], query);
      }
    }
  }
  for (int j = 0; j < kVectors; ++j) {
    if constexpr (kPrefetch) {
      prefetch(job.next.key_scales[2 * (column + j)]);
      prefetch(job.next.value_scales[2 * (column + j)]);
    }
    const f32x16 scale = load16(job.tile.key_scales[2 * (column + j)]);
    for (int r = 0; r < kRows; ++r) {
      i32x16 total;
      OCTAVO_EACH_PART total.part[i] = sums[r][j][i];
      store16(scores + r * kTileTokens + (column + j) * kLanes, mul(to_float(total), scale));
    }
  }
}

template <int kRows, int kVectors, bool kPrefetch>
OCTAVO_INLINE void score_tile(const TileJob<int8_t, kPrefetch>& job, const RowState& rows, ColumnRange columns,
                              float* scores) {
  for (; columns.begin + kVectors <= columns.end; columns.begin += kVectors) {
    score_columns<kRows, kVectors>(job, rows, columns.begin, scores);
  }
  if constexpr (kVectors > 1) {
    if (columns.begin < columns.end) score_tile<kRows, kVectors / 2>(job, rows, columns, scores);
  }
}

// What makes exponents of scores: fma(score, scale, offset).
struct ExponentFactors {
  float scale, offset;
};

// Of a row. Weights are relative to the peak, which weighs 255: a token that every row looks at most may well have the smallest
// values of all, and the others' weights would vanish beside it if they were relative to the largest exponential.
struct ExponentialSums {
  f32x16 total;  // of the exponentials, lane by lane
  i32x16 peak;   // the largest product with a value scale, lane by lane: as integers they order like floats, and a NaN is above infinity
};

// Turns the scores of a row's columns into the products of their exponentials and value scales.
template <int kColumns, bool kWhole>
OCTAVO_INLINE void exponentiate_columns(float* scores, VisibleRange visible, int column, ExponentFactors factors,
                                        const float* const* value_scales, ExponentialSums& sums) {
  f32x16 exponentials[kColumns];
  float* const score = scores + column * kLanes;
  _Pragma("GCC unroll 4") for (int j = 0; j < kColumns; ++j) {
    exponentials[j] = fma(load16(score + j * kLanes), splat16(factors.scale), splat16(factors.offset));
  }
  exp2_of_falls(exponentials);
  _Pragma("GCC unroll 4") for (int j = 0; j < kColumns; ++j) {
    const f32x16 exponential = visible_only<kWhole>(exponentials[j], visible, column + j, 0.0f);
    const f32x16 scale = visible_only<kWhole>(load16(value_scales[2 * (column + j)]), visible, column + j, 0.0f);
    const f32x16 products = mul(exponential, scale);
    store16(score + j * kLanes, products);
    sums.total = add(sums.total, exponential);
    sums.peak = max(sums.peak, bits_of(products));
  }
}

// Those of all its columns; the products of invisible tokens are 0.
template <bool kWhole>
OCTAVO_INLINE ExponentialSums exponentiate(float* scores, VisibleRange visible, ExponentFactors factors,
                                           const float* const* value_scales) {
  ExponentialSums sums = {splat16(0.0f), splat16_int(0)};
  if constexpr (kWhole) {
    for (int column = 0; column < kTileColumns; column += kColumnsAtOnce) {
      exponentiate_columns<kColumnsAtOnce, true>(scores, visible, column, factors, value_scales, sums);
    }
    return sums;
  }
  const ColumnRange columns = columns_of(visible);
  for (int column = 0; column < kTileColumns; ++column) {
    if (column < columns.begin || column >= columns.end) {
      store16(scores + column * kLanes, splat16(0.0f));
    } else {
      exponentiate_columns<1, false>(scores, visible, column, factors, value_scales, sums);
    }
  }
  return sums;
}

// Rounds a row's products to weights.
OCTAVO_INLINE void weigh(const float* products, float inverse, uint8_t* weights) {
  i32x16 integers[kTileColumns];
  _Pragma("GCC unroll 4") for (int column = 0; column < kTileColumns; ++column) {
    integers[column] = bits_of(fma(load16(products + column * kLanes), splat16(inverse), splat16(kIntegersFrom)));
  }
  store64_low_words_as_bytes(weights, integers);
}

OCTAVO_INLINE void scale_scores(float* scores, ColumnRange columns, float scale) {
  for (int column = columns.begin; column < columns.end; ++column) {
    store16(scores + column * kLanes, mul(load16(scores + column * kLanes), splat16(scale)));
  }
}

// exp(fall) of the rows' lanes. Most tiles have no row's maximum, and exp(0) is 1: nobody waits for it then.
template <int kRows>
OCTAVO_INLINE f32x16 falls_to_corrections(f32x16 falls) {
  falls = select(first_lanes(kRows), falls, splat16(0.0f));
  if (!any(less(falls, splat16(0.0f)))) return select(is_nan(falls), falls, splat16(1.0f));
  return exp16(falls);
}

// Where anything of the tile is visible to a row.
template <int kRows>
OCTAVO_INLINE mask16 rows_that_see(const VisibleRange* visible) {
  alignas(64) float sees[kLanes] = {};
  for (int r = 0; r < kRows; ++r) sees[r] = visible[r].begin < visible[r].end ? 1.0f : 0.0f;
  return greater(load16(sees), splat16(0.0f));
}

// The scales that scores still lack.
template <int kRows>
OCTAVO_INLINE f32x16 query_scales(const RowState& rows, bool capped) {
  if (capped) return splat16(1.0f);
  f32x16 scales = splat16(0.0f);
  for (int r = 0; r < kRows; ++r) scales = with_lane(scales, r, int8_query(rows, r).scale);
  return scales;
}

// Scores become weights; maxima and sums move on.
template <int kRows, bool kWhole>
OCTAVO_INLINE void weigh_tile(const TileView<int8_t>& tile, const RowState& rows, const VisibleRange* visible, bool capped,
                              float* scores, TileWeightsInt8<kRows>& to) {
  f32x16 largest[kRows], totals[kRows];
  _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r) {
    largest[r] = largest_in_lanes<kWhole>(scores + r * kTileTokens, visible[r]);
  }
  const f32x16 scales = query_scales<kRows>(rows, capped);
  const f32x16 maxima_before = load_first(rows.maxima, kRows), sums_before = load_first(rows.sums, kRows);
  const f32x16 maxima = max(mul(reduce_max_rows(largest), scales), maxima_before);
  const f32x16 corrections = select(equal(sums_before, splat16(0.0f)), splat16(0.0f),  // 0 for a row's first tile
                                    falls_to_corrections<kRows>(sub(maxima_before, maxima)));
  alignas(64) float exponent_scales[kLanes], exponent_offsets[kLanes];
  store16(exponent_scales, mul(scales, splat16(kLog2E)));
  store16(exponent_offsets, sub(splat16(0.0f), mul(maxima, splat16(kLog2E))));
  i32x16 peaks[kRows];
  for (int r = 0; r < kRows; ++r) {
    const ExponentFactors factors = {exponent_scales[r], exponent_offsets[r]};
    const ExponentialSums row = exponentiate<kWhole>(scores + r * kTileTokens, visible[r], factors, tile.value_scales);
    totals[r] = row.total;
    peaks[r] = row.peak;
  }
  const f32x16 peak = max(splat16(kSmallestPeak), from_bits(reduce_max_rows(peaks)));
  alignas(64) float inverses[kLanes];
  store16(inverses, div(splat16(kLargestWeight), peak));
  store16(to.steps, div(peak, splat16(kLargestWeight)));
  for (int r = 0; r < kRows; ++r) weigh(scores + r * kTileTokens, inverses[r], to.weights[r]);
  const f32x16 sums = fma(sums_before, corrections, tree_sum_rows(totals));
  store16(to.corrections, corrections);
  store_first(rows.maxima, maxima, kRows);
  store_first(rows.sums, kWhole ? sums : select(rows_that_see<kRows>(visible), sums, sums_before), kRows);
}

struct QuadRange {
  int begin, end;
};

// outputs[r][d] = fma(float(Σ weight · value[d]), the row's step, outputs[r][d] · correction).
template <int kRows, int kVectors, bool kWhole, bool kPrefetch>
[[gnu::noinline]] void add_values_at(const TileJob<int8_t, kPrefetch>& job, const TileWeightsInt8<kRows>& weights,
                                     QuadRange quads, const RowState& rows, const VisibleRange* visible, int d) {
  vi sums[kRows][kVectors][kParts];
  _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r) {
    _Pragma("GCC unroll 4") for (int j = 0; j < kVectors; ++j) OCTAVO_EACH_PART sums[r][j][i] = vsplat_int(0);
  }
  for (int quad = quads.begin; quad < quads.end; ++quad) {
    const int offset = (quad % 2 * job.shape.head_dim + d) * 4;
    const int8_t* value_quads = job.tile.values[quad / 2] + offset;
    prepared_values values[kVectors][kParts];
    _Pragma("GCC unroll 4") for (int j = 0; j < kVectors; ++j) {
      OCTAVO_EACH_PART values[j][i] = prepare_values(load_bytes(value_quads + (j * kLanes + i * kWidth) * 4));
      if constexpr (kPrefetch) prefetch(job.next.values[quad / 2] + offset + j * kLanes * 4);
    }
    _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r) {
      const vbytes weight = splat_quad(reinterpret_cast<const int8_t*>(weights.weights[r]) + quad * 4);
      _Pragma("GCC unroll 4") for (int j = 0; j < kVectors; ++j) {
        OCTAVO_EACH_PART sums[r][j][i] = add_weighted(sums[r][j][i], weight, values[j][i]);
      }
    }
  }
  _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r) {
    if (!kWhole && visible[r].begin >= visible[r].end) continue;
    const f32x16 step = splat16(weights.steps[r]), correction = splat16(weights.corrections[r]);
    _Pragma("GCC unroll 4") for (int j = 0; j < kVectors; ++j) {
      float* out = rows.outputs + r * rows.stride + d + j * kLanes;
      i32x16 total;
      OCTAVO_EACH_PART total.part[i] = sums[r][j][i];
      store16(out, fma(to_float(total), step, mul(load16(out), correction)));
    }
  }
}

template <int kRows, int kVectors, bool kWhole, bool kPrefetch>
OCTAVO_INLINE void add_values(const TileJob<int8_t, kPrefetch>& job, const TileWeightsInt8<kRows>& weights,
                              QuadRange quads, const RowState& rows, const VisibleRange* visible, int d = 0) {
  for (; d + kVectors * kLanes <= job.shape.head_dim; d += kVectors * kLanes) {
    add_values_at<kRows, kVectors, kWhole>(job, weights, quads, rows, visible, d);
  }
  if constexpr (kVectors > 1) {
    if (d < job.shape.head_dim) add_values<kRows, kVectors / 2, kWhole>(job, weights, quads, rows, visible, d);
  }
}

template <int kRows, bool kPrefetch>
void attend_tile_rows(const TileJob<int8_t, kPrefetch>& job, const RowState& rows, const VisibleRange* visible) {
  alignas(64) float scores[kRows * kTileTokens];
  TileWeightsInt8<kRows> weights;
  const VisibleRange any = hull(visible, kRows), common = intersection(visible, kRows);
  if (any.begin >= any.end) return;
  const ColumnRange columns = columns_of(any);
  const bool capped = job.shape.soft_cap > 0.0f;
  score_tile<kRows, tile_vectors(kRows)>(job, rows, columns, scores);
  if (capped) {
    for (int r = 0; r < kRows; ++r) scale_scores(scores + r * kTileTokens, columns, int8_query(rows, r).scale);
    cap_scores<kRows>(scores, columns, job.shape.soft_cap);
  }
  if (common.begin == 0 && common.end == kTileTokens) {
    weigh_tile<kRows, true>(job.tile, rows, visible, capped, scores, weights);
    add_values<kRows, kValueVectors, true>(job, weights, {0, kTileQuads}, rows, visible);
  } else {
    weigh_tile<kRows, false>(job.tile, rows, visible, capped, scores, weights);
    add_values<kRows, kValueVectors, false>(job, weights, {any.begin / 4, (any.end + 3) / 4}, rows, visible);
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
