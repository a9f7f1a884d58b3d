// Attention of a few rows over one tile of 64 tokens: the only place where scores and values are computed.
//
// Decode, prefill and split sequences all come through attend_tile(): it may be called for any set of rows,
// in any grouping, and gives each row the same bits (ADR 0001). Lanes of the scores are tokens; lanes of the
// outputs are head elements. A lane of an invisible token is computed and thrown away by a select; values of
// invisible tokens are never touched.
#pragma once

#include "attention_plan.inc.h"
#include "simd_math.h"

namespace octavo::OCTAVO_ISA {
namespace {

constexpr int kTileColumns = kTileTokens / kLanes;  // vectors of 16 tokens
constexpr int kTileGranules = kTileTokens / 8;      // blocks hold a multiple of 8 tokens

// Rows that share a load, and vectors of 16 lanes per row: the accumulators, one loaded vector and one
// broadcast must fit the registers.
#if defined(OCTAVO_SIMD_AVX512)
constexpr int kMaxTileRows = 6;
constexpr int tile_vectors(int) { return 4; }
#elif defined(OCTAVO_SIMD_AVX2) || defined(OCTAVO_SIMD_NEON)
constexpr int kMaxTileRows = 6;
constexpr int tile_vectors(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }
#else
constexpr int kMaxTileRows = 1;
constexpr int tile_vectors(int) { return 1; }
#endif

OCTAVO_INLINE f32x16 load_kv(const float* p) { return load16(p); }
OCTAVO_INLINE f32x16 load_kv(const uint16_t* p) { return load16_f16(p); }

// Where a tile's K and V lie. Entries without a visible token repeat one that has some.
template <class Element>
struct TileView {
  const Element* keys[kTileColumns];     // [head_dim][16]: tokens 16 j … 16 j + 15
  const Element* values[kTileGranules];  // [8][value_stride]: tokens 8 i … 8 i + 7
};

// Rows of one K/V head in the middle of their online softmax; all strides in floats.
struct RowState {
  const float* queries;  // [rows][stride], scaled
  float* outputs;        // [rows][stride], not yet divided by sums
  float* maxima;         // [rows]; -inf before the first tile
  float* sums;           // [rows]
  int stride;
};

// Tokens of the tile that a row sees: begin … end - 1.
struct VisibleRange {
  int begin, end;
};

// Columns of 16 tokens that hold a visible one.
struct ColumnRange {
  int begin, end;
};

OCTAVO_INLINE ColumnRange columns_of(VisibleRange visible) {
  return {visible.begin / kLanes, (visible.end + kLanes - 1) / kLanes};
}

struct TileShape {
  int head_dim;
  int value_stride;
  float soft_cap;  // 0: none
};

template <class Element, bool kPrefetch>
struct TileJob {
  TileView<Element> tile;
  TileView<Element> next;  // fetched into the cache meanwhile; read only with kPrefetch
  TileShape shape;
};

constexpr int kLineBytes = 64;

// scores[r][16 j + lane] = Σ_d queries[r][d] · keys[j][d][lane], d ascending.
template <class Element, int kRows, int kVectors, bool kPrefetch>
OCTAVO_INLINE void score_columns(const TileJob<Element, kPrefetch>& job, const float* queries, int stride, int column,
                                 float* scores) {
  constexpr int kStep = kLineBytes / (kLanes * static_cast<int>(sizeof(Element)));
  f32x16 sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kVectors; ++j) sums[r][j] = splat16(0.0f);
  }
  const Element* const* keys = job.tile.keys + column;
  for (int d = 0; d < job.shape.head_dim; d += kStep) {
    if constexpr (kPrefetch) {
      for (int j = 0; j < kVectors; ++j) prefetch(job.next.keys[column + j] + d * kLanes);
    }
    _Pragma("GCC unroll 2") for (int i = d; i < d + kStep; ++i) {
      f32x16 key[kVectors];
      _Pragma("GCC unroll 4") for (int j = 0; j < kVectors; ++j) key[j] = load_kv(keys[j] + i * kLanes);
      _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r) {
        const f32x16 query = splat16(queries[r * stride + i]);
        _Pragma("GCC unroll 4") for (int j = 0; j < kVectors; ++j) sums[r][j] = fma(query, key[j], sums[r][j]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kVectors; ++j) store16(scores + r * kTileTokens + (column + j) * kLanes, sums[r][j]);
  }
}

template <class Element, int kRows, int kVectors, bool kPrefetch>
OCTAVO_INLINE void score_tile(const TileJob<Element, kPrefetch>& job, const RowState& rows, ColumnRange columns,
                              float* scores) {
  for (; columns.begin + kVectors <= columns.end; columns.begin += kVectors) {
    score_columns<Element, kRows, kVectors, kPrefetch>(job, rows.queries, rows.stride, columns.begin, scores);
  }
  if constexpr (kVectors > 1) {
    if (columns.begin < columns.end) score_tile<Element, kRows, kVectors / 2, kPrefetch>(job, rows, columns, scores);
  }
}

// outputs[r][d] = outputs[r][d] · corrections[r], then += weights[r][t] · values[t][d], t ascending.
template <class Element, int kRows, int kVectors, bool kPrefetch>
OCTAVO_INLINE void add_values_at(const TileJob<Element, kPrefetch>& job, const float* weights, const float* corrections,
                                 VisibleRange tokens, float* outputs, int stride, int d) {
  constexpr int kLines = (kVectors * kLanes * static_cast<int>(sizeof(Element)) + kLineBytes - 1) / kLineBytes;
  f32x16 sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    const f32x16 correction = splat16(corrections[r]);
    for (int j = 0; j < kVectors; ++j) sums[r][j] = mul(load16(outputs + r * stride + d + j * kLanes), correction);
  }
  for (int t = tokens.begin; t < tokens.end;) {
    const int granule_end = (t / 8 + 1) * 8 < tokens.end ? (t / 8 + 1) * 8 : tokens.end;
    const int offset = t % 8 * job.shape.value_stride + d;
    const Element* value_row = job.tile.values[t / 8] + offset;
    const Element* next_row = kPrefetch ? job.next.values[t / 8] + offset : nullptr;
    for (; t < granule_end; ++t, value_row += job.shape.value_stride) {
      f32x16 value[kVectors];
      _Pragma("GCC unroll 4") for (int j = 0; j < kVectors; ++j) value[j] = load_kv(value_row + j * kLanes);
      _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r) {
        const f32x16 weight = splat16(weights[r * kTileTokens + t]);
        _Pragma("GCC unroll 4") for (int j = 0; j < kVectors; ++j) sums[r][j] = fma(weight, value[j], sums[r][j]);
      }
      if constexpr (kPrefetch) {
        for (int i = 0; i < kLines; ++i) prefetch(reinterpret_cast<const char*>(next_row) + i * kLineBytes);
        next_row += job.shape.value_stride;
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kVectors; ++j) store16(outputs + r * stride + d + j * kLanes, sums[r][j]);
  }
}

template <class Element, int kRows, int kVectors, bool kPrefetch>
OCTAVO_INLINE void add_values(const TileJob<Element, kPrefetch>& job, const float* weights, const float* corrections,
                              VisibleRange tokens, float* outputs, int stride, int d = 0) {
  for (; d + kVectors * kLanes <= stride; d += kVectors * kLanes) {
    add_values_at<Element, kRows, kVectors, kPrefetch>(job, weights, corrections, tokens, outputs, stride, d);
  }
  if constexpr (kVectors > 1) {
    if (d < stride) {
      add_values<Element, kRows, kVectors / 2, kPrefetch>(job, weights, corrections, tokens, outputs, stride, d);
    }
  }
}

template <int kRows>
void cap_scores(float* scores, ColumnRange columns, float soft_cap) {
  const f32x16 cap = splat16(soft_cap);
  for (int r = 0; r < kRows; ++r) {
    for (int column = columns.begin; column < columns.end; ++column) {
      float* score = scores + r * kTileTokens + column * kLanes;
      store16(score, mul(cap, tanh16(div(load16(score), cap))));
    }
  }
}

// The values of a row's lanes in a column, `otherwise` in the lanes of invisible tokens. kWhole: all are visible.
template <bool kWhole>
OCTAVO_INLINE f32x16 visible_only(f32x16 values, VisibleRange visible, int column, float otherwise) {
  if constexpr (kWhole) return values;
  const int begin = visible.begin - column * kLanes, end = visible.end - column * kLanes;
  if (end < kLanes) values = select(first_lanes(end), values, splat16(otherwise));
  if (begin > 0) values = select(first_lanes(begin), splat16(otherwise), values);
  return values;
}

// Lane by lane the largest of a row's visible scores.
template <bool kWhole>
OCTAVO_INLINE f32x16 largest_in_lanes(const float* scores, VisibleRange visible) {
  const ColumnRange columns = kWhole ? ColumnRange{0, kTileColumns} : columns_of(visible);
  f32x16 largest = splat16(-__builtin_inff());
  _Pragma("GCC unroll 4") for (int column = columns.begin; column < columns.end; ++column) {
    largest = max(visible_only<kWhole>(load16(scores + column * kLanes), visible, column, -__builtin_inff()), largest);
  }
  return largest;
}

// Turns the scores of a row into weights exp(score - maximum) and returns their sum.
template <bool kWhole>
OCTAVO_INLINE float exponentiate(float* scores, VisibleRange visible, float maximum) {
  const ColumnRange columns = kWhole ? ColumnRange{0, kTileColumns} : columns_of(visible);
  f32x16 sums = splat16(0.0f);
  _Pragma("GCC unroll 4") for (int column = columns.begin; column < columns.end; ++column) {
    const f32x16 weights = exp16(sub(load16(scores + column * kLanes), splat16(maximum)));
    store16(scores + column * kLanes, weights);
    sums = add(sums, visible_only<kWhole>(weights, visible, column, 0.0f));
  }
  return tree_sum(sums);
}

// Scores become weights; maxima and sums move on; corrections[r] is what the outputs so far are multiplied by.
template <int kRows, bool kWhole>
OCTAVO_INLINE void soften(const RowState& rows, const VisibleRange* visible, float* scores, float* corrections) {
  const auto sees_nothing = [&](int r) { return !kWhole && visible[r].begin >= visible[r].end; };
  alignas(64) float falls[kLanes] = {};
  float maxima[kRows] = {};
  for (int r = 0; r < kRows; ++r) {
    if (sees_nothing(r)) continue;
    const float largest = reduce_max(largest_in_lanes<kWhole>(scores + r * kTileTokens, visible[r]));
    maxima[r] = largest > rows.maxima[r] ? largest : rows.maxima[r];
    falls[r] = rows.maxima[r] - maxima[r];
  }
  store16(corrections, exp16(load16(falls)));
  for (int r = 0; r < kRows; ++r) {
    if (sees_nothing(r)) continue;  // its correction is exp(0) = 1
    const float total = exponentiate<kWhole>(scores + r * kTileTokens, visible[r], maxima[r]);
    corrections[r] = rows.sums[r] == 0.0f ? 0.0f : corrections[r];  // 0 for its first tile
    rows.sums[r] = __builtin_fmaf(rows.sums[r], corrections[r], total);
    rows.maxima[r] = maxima[r];
  }
}

OCTAVO_INLINE VisibleRange intersection(const VisibleRange* visible, int num_rows) {
  VisibleRange common = visible[0];
  for (int r = 1; r < num_rows; ++r) {
    common.begin = visible[r].begin > common.begin ? visible[r].begin : common.begin;
    common.end = visible[r].end < common.end ? visible[r].end : common.end;
  }
  return common;
}

OCTAVO_INLINE VisibleRange hull(const VisibleRange* visible, int num_rows) {
  VisibleRange all = {kTileTokens, 0};
  for (int r = 0; r < num_rows; ++r) {
    if (visible[r].begin >= visible[r].end) continue;
    all.begin = visible[r].begin < all.begin ? visible[r].begin : all.begin;
    all.end = visible[r].end > all.end ? visible[r].end : all.end;
  }
  return all;
}

// The tokens that not all rows of the group see are added row by row, before or after the common ones.
template <class Element, int kRows, bool kPrefetch>
void add_visible_values(const TileJob<Element, kPrefetch>& job, const RowState& rows, const VisibleRange* visible,
                        VisibleRange common, const float* weights, float* corrections) {
  constexpr float kUnchanged = 1.0f;
  const TileJob<Element, false> own_job = {job.tile, {}, job.shape};
  const auto add_own = [&](int r, float correction, VisibleRange tokens) {
    add_values<Element, 1, tile_vectors(1), false>(own_job, weights + r * kTileTokens, &correction, tokens,
                                                   rows.outputs + r * rows.stride, rows.stride);
  };
  if (common.begin >= common.end) {
    for (int r = 0; r < kRows; ++r) {
      if (visible[r].begin < visible[r].end) add_own(r, corrections[r], visible[r]);
    }
    return;
  }
  for (int r = 0; r < kRows; ++r) {
    if (visible[r].begin == common.begin) continue;
    add_own(r, corrections[r], {visible[r].begin, common.begin});
    corrections[r] = kUnchanged;
  }
  add_values<Element, kRows, tile_vectors(kRows), kPrefetch>(job, weights, corrections, common, rows.outputs,
                                                             rows.stride);
  for (int r = 0; r < kRows; ++r) {
    if (visible[r].end > common.end) add_own(r, kUnchanged, {common.end, visible[r].end});
  }
}

template <int kRows, class Element, bool kPrefetch>
void attend_tile_rows(const TileJob<Element, kPrefetch>& job, const RowState& rows, const VisibleRange* visible) {
  alignas(64) float scores[kRows * kTileTokens];
  alignas(64) float corrections[kLanes];
  const VisibleRange any = hull(visible, kRows), common = intersection(visible, kRows);
  if (any.begin >= any.end) return;
  const ColumnRange columns = columns_of(any);
  score_tile<Element, kRows, tile_vectors(kRows), kPrefetch>(job, rows, columns, scores);
  if (job.shape.soft_cap > 0.0f) cap_scores<kRows>(scores, columns, job.shape.soft_cap);
  if (common.begin == 0 && common.end == kTileTokens) {
    soften<kRows, true>(rows, visible, scores, corrections);
    add_values<Element, kRows, tile_vectors(kRows), kPrefetch>(job, scores, corrections, common, rows.outputs,
                                                               rows.stride);
  } else {
    soften<kRows, false>(rows, visible, scores, corrections);
    add_visible_values<Element, kRows, kPrefetch>(job, rows, visible, common, scores, corrections);
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
