// Attention of a few rows over one tile of 64 tokens whose K and V are int8: ADR 0016. Scores and values are sums of
// products of integers, exact and so free of any order; what is left of float arithmetic is per token and per row.
//
// A token's weight is an integer of 14 bits, in two pieces of 7 that meet the values one after the other: no instruction
// set's 16-bit sums overflow. An invisible token weighs 0, so that it takes no part whatever its slot holds.
#pragma once

#include "attention_tile.inc.h"
#include "int8_rows.inc.h"

namespace octavo::OCTAVO_ISA {
namespace {

// Rows that share a load of values: two sums for each of their vectors.
constexpr int kMaxValueRows = kMaxTileRows < 3 ? kMaxTileRows : 3;
#if defined(OCTAVO_SIMD_AVX512)
constexpr int kValueVectors = 4;
#else
constexpr int kValueVectors = 1;
#endif

constexpr int kPieceBits = 7;
constexpr int32_t kPieceMask = (1 << kPieceBits) - 1;
constexpr float kIntegersFrom = 8388608.0f;  // 2^23: a float from here on has its integer in its lowest bits
constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLargestWeight = 16383.0f;     // 2^14 - 1
constexpr float kSmallestValueScale = 1e-30f;  // below, values count as zeros: kLargestWeight / scale might overflow
constexpr int kTileQuads = kTileTokens / 4;

template <>
struct TileView<int8_t> {
  const int8_t* keys[kTileColumns];         // [head_dim / 4][16][4]: tokens 16 j … 16 j + 15
  const int8_t* values[kTileGranules];      // [2][head_dim][4]: tokens 8 i … 8 i + 7
  const float* key_scales[kTileGranules];   // [16], in both places of a column
  const float* value_scales[kTileGranules];
};

// A query as int8, where RowState::queries has the row's floats otherwise.
struct Int8Query {
  float scale;
  int32_t minus_128_sum;
  int8_t q[];
};

OCTAVO_INLINE const Int8Query& int8_query(const RowState& rows, int row) {
  return *reinterpret_cast<const Int8Query*>(rows.queries + row * rows.stride);
}

// The weights of a row's tokens in pieces, and what its outputs are moved on by.
template <int kRows>
struct TileWeightsInt8 {
  alignas(64) int8_t pieces[2 * kRows][kTileTokens];  // of each row the upper bits, then the lower ones
  alignas(64) float corrections[kLanes];
  float steps[kRows];  // the value of a weight of 1
  bool sees[kRows];    // anything of the tile
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

// What makes weights of exponentials: the values' scales of the tokens that a row sees, over the largest of them.
struct ValueFactors {
  alignas(64) float factor[kTileTokens];  // 0 … kLargestWeight; 0 for an invisible token
  float step;
};

template <bool kWhole>
OCTAVO_INLINE void find_factors(const TileView<int8_t>& tile, VisibleRange visible, ValueFactors& factors) {
  const ColumnRange columns = kWhole ? ColumnRange{0, kTileColumns} : columns_of(visible);
  const auto scale = [&](int column) {
    return visible_only<kWhole>(load16(tile.value_scales[2 * column]), visible, column, 0.0f);
  };
  i32x16 magnitudes = splat16_int(0);  // as integers they order like floats, and a NaN is above infinity
  for (int column = columns.begin; column < columns.end; ++column) {
    magnitudes = max(magnitudes, bits_of(scale(column)));
  }
  const float largest = __builtin_bit_cast(float, reduce_max(magnitudes));
  const float inverse = largest <= kSmallestValueScale ? 0.0f : kLargestWeight / largest;
  factors.step = largest / kLargestWeight;
  for (int column = columns.begin; column < columns.end; ++column) {
    store16(factors.factor + column * kLanes, mul(scale(column), splat16(inverse)));
  }
}

// Turns the scores of a row into weights and returns the sum of their exponentials.
template <bool kWhole>
OCTAVO_INLINE float weigh(const float* scores, VisibleRange visible, float query_scale, float maximum,
                          const ValueFactors& factors, int8_t (*pieces)[kTileTokens]) {
  const ColumnRange columns = kWhole ? ColumnRange{0, kTileColumns} : columns_of(visible);
  const f32x16 scale = splat16(query_scale * kLog2E), offset = splat16(-(maximum * kLog2E));
  f32x16 sums = splat16(0.0f);
  i32x16 upper[kTileColumns], lower[kTileColumns];
  if constexpr (!kWhole) {
    for (int column = 0; column < kTileColumns; ++column) upper[column] = lower[column] = splat16_int(0);
  }
  _Pragma("GCC unroll 4") for (int column = columns.begin; column < columns.end; ++column) {
    const f32x16 exponents = fma(load16(scores + column * kLanes), scale, offset);
    const f32x16 exponentials = visible_only<kWhole>(exp2_of_falls(exponents), visible, column, 0.0f);
    sums = add(sums, exponentials);
    const i32x16 bits = bits_of(fma(exponentials, load16(factors.factor + column * kLanes), splat16(kIntegersFrom)));
    upper[column] = bit_and(shift_right<kPieceBits>(bits), splat16_int(kPieceMask));
    lower[column] = bit_and(bits, splat16_int(kPieceMask));
  }
  store64_as_bytes(pieces[0], upper);
  store64_as_bytes(pieces[1], lower);
  return tree_sum(sums);
}

OCTAVO_INLINE void scale_scores(float* scores, ColumnRange columns, float scale) {
  for (int column = columns.begin; column < columns.end; ++column) {
    store16(scores + column * kLanes, mul(load16(scores + column * kLanes), splat16(scale)));
  }
}

// exp(fall). Most tiles have no row's maximum, and exp(0) is 1: nobody waits for it then.
OCTAVO_INLINE f32x16 falls_to_corrections(f32x16 falls) {
  if (!any(less(falls, splat16(0.0f)))) return select(is_nan(falls), falls, splat16(1.0f));
  return exp16(falls);
}

// Scores become weights; maxima and sums move on.
template <int kRows, bool kWhole>
OCTAVO_INLINE void weigh_tile(const TileView<int8_t>& tile, const RowState& rows, const VisibleRange* visible,
                              bool capped, const float* scores, TileWeightsInt8<kRows>& weights) {
  f32x16 falls = splat16(0.0f);
  float maxima[kRows] = {};
  ValueFactors factors;
  if constexpr (kWhole) find_factors<true>(tile, visible[0], factors);
  _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r) {
    weights.sees[r] = kWhole || visible[r].begin < visible[r].end;
    if (!weights.sees[r]) {
      __builtin_memset(weights.pieces[2 * r], 0, 2 * kTileTokens);
      continue;
    }
    const float query_scale = capped ? 1.0f : int8_query(rows, r).scale;
    const float largest = largest_score<kWhole>(scores + r * kTileTokens, visible[r]) * query_scale;
    maxima[r] = largest > rows.maxima[r] ? largest : rows.maxima[r];
    falls = with_lane(falls, r, rows.maxima[r] - maxima[r]);
  }
  store16(weights.corrections, falls_to_corrections(falls));
  for (int r = 0; r < kRows; ++r) {
    if (!weights.sees[r]) continue;
    if constexpr (!kWhole) find_factors<false>(tile, visible[r], factors);
    const float query_scale = capped ? 1.0f : int8_query(rows, r).scale;
    const float total = weigh<kWhole>(scores + r * kTileTokens, visible[r], query_scale, maxima[r], factors,
                                      weights.pieces + 2 * r);
    weights.steps[r] = factors.step;
    weights.corrections[r] = rows.sums[r] == 0.0f ? 0.0f : weights.corrections[r];  // 0 for its first tile
    rows.sums[r] = __builtin_fmaf(rows.sums[r], weights.corrections[r], total);
    rows.maxima[r] = maxima[r];
  }
}

struct QuadRange {
  int begin, end;
};

// outputs[r][d] = fma(float(Σ weight · value[d]), the row's step, outputs[r][d] · correction).
template <int kFirst, int kRows, int kAllRows, int kVectors, bool kPrefetch>
[[gnu::noinline]] void add_values_at(const TileJob<int8_t, kPrefetch>& job, const TileWeightsInt8<kAllRows>& weights,
                                 QuadRange quads, const RowState& rows, int d) {
  vi sums[2 * kRows][kVectors][kParts];
  _Pragma("GCC unroll 8") for (int p = 0; p < 2 * kRows; ++p) {
    _Pragma("GCC unroll 4") for (int j = 0; j < kVectors; ++j) OCTAVO_EACH_PART sums[p][j][i] = vsplat_int(0);
  }
  for (int quad = quads.begin; quad < quads.end; ++quad) {
    const int offset = (quad % 2 * job.shape.head_dim + d) * 4;
    const int8_t* value_quads = job.tile.values[quad / 2] + offset;
    vbytes values[kVectors][kParts];
    _Pragma("GCC unroll 4") for (int j = 0; j < kVectors; ++j) {
      OCTAVO_EACH_PART values[j][i] = load_bytes(value_quads + (j * kLanes + i * kWidth) * 4);
      if constexpr (kPrefetch && kFirst == 0) prefetch(job.next.values[quad / 2] + offset + j * kLanes * 4);
    }
    _Pragma("GCC unroll 8") for (int p = 0; p < 2 * kRows; ++p) {
      const vbytes piece = splat_quad(weights.pieces[2 * kFirst + p] + quad * 4);
      _Pragma("GCC unroll 4") for (int j = 0; j < kVectors; ++j) {
        OCTAVO_EACH_PART sums[p][j][i] = add_weighted(sums[p][j][i], piece, values[j][i]);
      }
    }
  }
  _Pragma("GCC unroll 4") for (int r = 0; r < kRows; ++r) {
    const int row = kFirst + r;
    if (!weights.sees[row]) continue;
    const f32x16 step = splat16(weights.steps[row]), correction = splat16(weights.corrections[row]);
    _Pragma("GCC unroll 4") for (int j = 0; j < kVectors; ++j) {
      float* out = rows.outputs + row * rows.stride + d + j * kLanes;
      i32x16 total;
      OCTAVO_EACH_PART total.part[i] = add(shift_left<kPieceBits>(sums[2 * r][j][i]), sums[2 * r + 1][j][i]);
      store16(out, fma(to_float(total), step, mul(load16(out), correction)));
    }
  }
}

template <int kFirst, int kRows, int kAllRows, int kVectors, bool kPrefetch>
OCTAVO_INLINE void add_values(const TileJob<int8_t, kPrefetch>& job, const TileWeightsInt8<kAllRows>& weights,
                              QuadRange quads, const RowState& rows, int d = 0) {
  for (; d + kVectors * kLanes <= job.shape.head_dim; d += kVectors * kLanes) {
    add_values_at<kFirst, kRows, kAllRows, kVectors>(job, weights, quads, rows, d);
  }
  if constexpr (kVectors > 1) {
    if (d < job.shape.head_dim) add_values<kFirst, kRows, kAllRows, kVectors / 2>(job, weights, quads, rows, d);
  }
}

template <int kAllRows, int kFirst, bool kPrefetch>
OCTAVO_INLINE void add_all_values(const TileJob<int8_t, kPrefetch>& job, const TileWeightsInt8<kAllRows>& weights,
                                  QuadRange quads, const RowState& rows) {
  constexpr int kRows = kAllRows - kFirst < kMaxValueRows ? kAllRows - kFirst : kMaxValueRows;
  add_values<kFirst, kRows, kAllRows, kValueVectors>(job, weights, quads, rows);
  if constexpr (kFirst + kRows < kAllRows) add_all_values<kAllRows, kFirst + kRows>(job, weights, quads, rows);
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
    add_all_values<kRows, 0>(job, weights, {0, kTileQuads}, rows);
  } else {
    weigh_tile<kRows, false>(job.tile, rows, visible, capped, scores, weights);
    add_all_values<kRows, 0>(job, weights, {any.begin / 4, (any.end + 3) / 4}, rows);
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
