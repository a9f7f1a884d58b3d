// What attention's items have in common: their memory, the states of their rows, and the merge of partitions.
#pragma once

#include "attention_kv.inc.h"

namespace octavo::OCTAVO_ISA {
namespace {

// Everything that stays the same during one op.
struct AttentionCall {
  const PagedAttentionOp& op;
  const StepView& step;
  int group;   // query heads per K/V head
  int stride;  // of a row of queries or outputs in scratch memory: head_dim rounded up to 16
  PassPlan passes;

  AttentionCall(const PagedAttentionOp& op, const StepView& step, int num_workers)
      : op(op),
        step(step),
        group(op.num_heads / op.num_kv_heads),
        stride(round_up_to_lanes(op.head_dim)),
        passes(op, step, num_workers) {}

  // The first element of head `row % group` of a K/V head's query heads, in row `step_row` of the step.
  int64_t element_of(int64_t step_row, int kv_head, int row) const {
    return (step_row * op.num_heads + kv_head * group + row % group) * op.head_dim;
  }
  float* shared_scratch() const { return reinterpret_cast<float*>(step.shared_scratch); }

  VisibleRange visible_tokens(int position) const {
    const int begin = op.window > 0 && position >= op.window ? position - op.window + 1 : 0;
    return {begin, position + 1};
  }
};

// A worker's memory during an item.
struct AttentionScratch {
  float* queries;  // [rows, stride]
  float* merged;   // as a partial
  float* partial;
  TileCopy tile;

  AttentionScratch(const AttentionCall& call, int num_rows, std::byte* memory) {
    float* next = reinterpret_cast<float*>(memory);
    const auto take = [&next](int64_t floats) {
      float* taken = next;
      next += (floats + kLanes - 1) / kLanes * kLanes;
      return taken;
    };
    queries = take(int64_t{num_rows} * call.stride);
    merged = take(partial_floats(num_rows, call.op.head_dim));
    partial = take(partial_floats(num_rows, call.op.head_dim));
    tile.keys = take(int64_t{kTileTokens} * call.op.head_dim);
    tile.values = take(int64_t{kTileTokens} * call.stride);
  }
};

constexpr int64_t largest_attention_scratch_bytes(int head_dim) {
  const int rows = max_item_rows(head_dim), stride = round_up_to_lanes(head_dim);
  const int64_t tile = int64_t{kTileTokens} * (head_dim + stride);
  return 4 * (int64_t{rows} * stride + 2 * partial_floats(rows, head_dim) + tile + 5 * kLanes);
}
static_assert(largest_attention_scratch_bytes(64) <= kWorkerScratchBytes);
static_assert(largest_attention_scratch_bytes(256) <= kWorkerScratchBytes);

// The rows of a partial of `num_rows` rows, from row `first` on; `queries` are theirs.
OCTAVO_INLINE RowState row_state(float* partial, const float* queries, int num_rows, int stride, int first = 0) {
  float* maxima = partial + int64_t{num_rows} * stride;
  float* sums = maxima + round_up_to_lanes(num_rows);
  return {queries, partial + int64_t{first} * stride, maxima + first, sums + first, stride};
}

OCTAVO_INLINE RowState rows_from(const RowState& rows, int first) {
  const int offset = first * rows.stride;
  return {rows.queries + offset, rows.outputs + offset, rows.maxima + first, rows.sums + first, rows.stride};
}

// Rows that see nothing keep a sum of 0, which no visible token allows: its largest weight is 1.
OCTAVO_INLINE void reset_rows(const RowState& rows, int num_rows) {
  for (int64_t i = 0; i < int64_t{num_rows} * rows.stride; i += kLanes) store16(rows.outputs + i, splat16(0.0f));
  for (int r = 0; r < num_rows; ++r) {
    rows.maxima[r] = -__builtin_inff();
    rows.sums[r] = 0.0f;
  }
}

// What the outputs of up to 16 rows are multiplied by when two partitions become one. The second is 0 for a row that
// saw nothing in the next partition, the first for one that saw nothing before.
struct MergeFactors {
  alignas(64) float merged[kLanes];
  alignas(64) float next[kLanes];
};

// Moves maxima and sums of rows first … first + count - 1 on.
OCTAVO_INLINE void merge_sums(const RowState& merged, const RowState& next, int first, int count, MergeFactors& factors) {
  const f32x16 zero = splat16(0.0f), one = splat16(1.0f);
  const f32x16 m = load_lanes(merged.maxima + first, count), l = load_lanes(merged.sums + first, count);
  const f32x16 next_m = load_lanes(next.maxima + first, count), next_l = load_lanes(next.sums + first, count);
  const mask16 is_first = equal(l, zero), is_empty = equal(next_l, zero);
  const f32x16 maximum = max(next_m, m), a = exp16(sub(m, maximum)), b = exp16(sub(next_m, maximum));
  const f32x16 sum = fma(l, a, mul(next_l, b));
  store16(factors.merged, select(is_first, zero, a));
  store16(factors.next, select(is_empty, zero, select(is_first, one, b)));
  store_lanes(merged.maxima + first, select(is_empty, m, select(is_first, next_m, maximum)), count);
  store_lanes(merged.sums + first, select(is_empty, l, select(is_first, next_l, sum)), count);
}

OCTAVO_INLINE void merge_outputs(float* merged, const float* next, int stride, float a, float b) {
  if (b == 0.0f) return;
  for (int d = 0; d < stride; d += kLanes) {
    const f32x16 added = load16(next + d);  // the first one stands as it is
    store16(merged + d, a == 0.0f ? added : fma(load16(merged + d), splat16(a), mul(added, splat16(b))));
  }
}

// Moves `merged` on by the next partition in ascending order.
inline void merge_partition(const RowState& merged, const RowState& next, int num_rows) {
  MergeFactors factors;
  for (int first = 0; first < num_rows; first += kLanes) {
    const int count = at_most(num_rows - first, kLanes);
    merge_sums(merged, next, first, count, factors);
    for (int r = 0; r < count; ++r) {
      const int offset = (first + r) * merged.stride;
      merge_outputs(merged.outputs + offset, next.outputs + offset, merged.stride, factors.merged[r], factors.next[r]);
    }
  }
}

// Of a head from `element` of the step's queries on, into a row of RowState::queries.
template <class Element>
OCTAVO_INLINE void load_query(const AttentionCall& call, int64_t element, float* query) {
  for (int d = 0; d < call.op.head_dim; ++d) query[d] = call.op.q[element + d] * call.op.scale;
}

template <>
[[gnu::always_inline]] inline void load_query<int8_t>(const AttentionCall& call, int64_t element, float* query) {
  const float* floats = call.op.q + element;
  if (call.op.int8_queries) {
    for (int i = 0; i * 4 < int8_query_bytes(call.op.head_dim); i += kLanes) __builtin_memcpy(query + i, floats + i, 64);
    return;
  }
  with_head_vectors(call.op.head_dim, [&](auto vectors) {
    make_int8_query<vectors.value>(floats, call.op.scale, *reinterpret_cast<Int8Query*>(query));
  });
}

// Moves `num_rows` ≤ kRows rows over one tile.
template <class Element, bool kPrefetch, int kRows = kMaxTileRows>
void attend_tile(const TileJob<Element, kPrefetch>& job, const RowState& rows, const VisibleRange* visible,
                 int num_rows) {
  if constexpr (kRows > 1) {
    if (num_rows < kRows) return attend_tile<Element, kPrefetch, kRows - 1>(job, rows, visible, num_rows);
  }
  attend_tile_rows<kRows>(job, rows, visible);
}

// Moves rows over a tile in groups of nearly equal size; the first of them prefetches the next tile for all.
// visible_to(row) is what that row sees of the tile.
template <class Element, class VisibleTo>
void attend_in_groups(const TileJob<Element, true>& job, const RowState& rows, int num_rows, VisibleTo visible_to) {
  const int num_groups = (num_rows + kMaxTileRows - 1) / kMaxTileRows;
  VisibleRange visible[kMaxTileRows];
  for (int group = 0; group < num_groups; ++group) {
    const int first = num_rows * group / num_groups;
    const int count = num_rows * (group + 1) / num_groups - first;
    for (int r = 0; r < count; ++r) visible[r] = visible_to(first + r);
    if (group == 0) {
      attend_tile<Element, true>(job, rows_from(rows, first), visible, count);
    } else {
      attend_tile<Element, false>({job.tile, job.next, job.shape}, rows_from(rows, first), visible, count);
    }
  }
}

// The same with a copy of the tile if it cannot be used where it lies.
template <class Element, class VisibleTo>
void attend_found_tile(const AttentionCall& call, const TileView<Element>& tile, const TileView<Element>& next,
                       VisibleRange visible, const TileCopy& memory, const RowState& rows, int num_rows,
                       VisibleTo visible_to) {
  if (must_copy_tiles(call.step.kv)) {
    const auto copy = copy_tile(call.step.kv, tile, visible, memory);
    const TileShape shape = {call.op.head_dim, call.stride, call.op.soft_cap};
    attend_in_groups<typename CopyOf<Element>::type>({copy, copy, shape}, rows, num_rows, visible_to);
  } else {
    const TileShape shape = {call.op.head_dim, call.op.head_dim, call.op.soft_cap};
    attend_in_groups<Element>({tile, next, shape}, rows, num_rows, visible_to);
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
