// Paged attention: one family of kernels for decode, chunked prefill and split sequences (ADR 0001).
//
// A work item moves a block of rows over its partitions, tile by tile. Groups of up to kMaxTileRows rows
// share every load of K and V. When the partitions of a block are split among items, each is kept as
// (outputs, maxima, sums) and merged behind a barrier; otherwise each is merged as it is done. Both merge
// in ascending order, so the bits are the same.
#pragma once

#include "activation_quantization.inc.h"
#include "attention_kv.inc.h"

namespace octavo::OCTAVO_ISA {
namespace {

// Everything that stays the same during one op.
struct AttentionCall {
  const PagedAttentionOp& op;
  const StepView& step;
  int group;   // query heads per K/V head
  int stride;  // of a row of queries or outputs in scratch memory: head_dim rounded up to 16

  AttentionCall(const PagedAttentionOp& op, const StepView& step)
      : op(op), step(step), group(op.num_heads / op.num_kv_heads), stride(round_up_to_lanes(op.head_dim)) {}

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

OCTAVO_INLINE RowState row_state(float* partial, const float* queries, int num_rows, int stride) {
  float* maxima = partial + int64_t{num_rows} * stride;
  return {queries, partial, maxima, maxima + round_up_to_lanes(num_rows), stride};
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

// Moves `merged` on by the next partition in ascending order.
inline void merge_partition(const RowState& merged, const RowState& partial, int num_rows) {
  for (int r = 0; r < num_rows; ++r) {
    if (partial.sums[r] == 0.0f) continue;
    float* into = merged.outputs + r * merged.stride;
    const float* from = partial.outputs + r * partial.stride;
    if (merged.sums[r] == 0.0f) {  // the first one stands as it is
      for (int d = 0; d < merged.stride; d += kLanes) store16(into + d, load16(from + d));
      merged.maxima[r] = partial.maxima[r];
      merged.sums[r] = partial.sums[r];
      continue;
    }
    const float maximum = partial.maxima[r] > merged.maxima[r] ? partial.maxima[r] : merged.maxima[r];
    const float a = exp1(merged.maxima[r] - maximum), b = exp1(partial.maxima[r] - maximum);
    for (int d = 0; d < merged.stride; d += kLanes) {
      store16(into + d, fma(load16(into + d), splat16(a), mul(load16(from + d), splat16(b))));
    }
    merged.sums[r] = __builtin_fmaf(merged.sums[r], a, partial.sums[r] * b);
    merged.maxima[r] = maximum;
  }
}

OCTAVO_INLINE float* shared_partial(const AttentionCall& call, const RowBlock& block, int kv_head, int partition) {
  const int64_t index = int64_t{kv_head} * block.num_partitions() + partition - block.partition_begin;
  return reinterpret_cast<float*>(call.step.shared_scratch) + block.partials +
         index * partial_floats(block.num_rows, call.op.head_dim);
}

// The row of the step, and the first element of the head, that row `row` of a block's request belongs to.
OCTAVO_INLINE int64_t element_of(const AttentionCall& call, const RowBlock& block, int row, int kv_head) {
  const int64_t token = call.step.query_start_loc[block.request] + row / call.group;
  return (token * call.op.num_heads + kv_head * call.group + row % call.group) * call.op.head_dim;
}

inline void load_queries(const AttentionCall& call, const RowBlock& block, int kv_head, float* queries) {
  for (int r = 0; r < block.num_rows; ++r) {
    const float* q = call.op.q + element_of(call, block, block.first_row + r, kv_head);
    for (int d = 0; d < call.op.head_dim; ++d) queries[r * call.stride + d] = q[d] * call.op.scale;
  }
}

inline void write_outputs(const AttentionCall& call, const RowBlock& block, int kv_head, const RowState& rows) {
  for (int r = 0; r < block.num_rows; ++r) {
    const int64_t element = element_of(call, block, block.first_row + r, kv_head);
    const float* from = rows.outputs + r * call.stride;
    const float inverse = 1.0f / rows.sums[r];
    float* out = call.op.out == nullptr ? nullptr : call.op.out + element;
    if (call.op.quantized == nullptr) {
      for (int d = 0; d < call.op.head_dim; ++d) out[d] = from[d] * inverse;
    } else {
      store_quantized(out, call.op.quantized + element / kGroupSize, 0, call.op.head_dim,
                      [&](int32_t d) { return mul(load16(from + d), splat16(inverse)); });
    }
  }
}

template <class Element>
class AttentionItemRun {
 public:
  AttentionItemRun(const AttentionCall& call, const AttentionItem& item, std::byte* memory)
      : call_(call),
        item_(item),
        block_(item.block),
        scratch_(call, item.block.num_rows, memory),
        sequence_{call.step.kv, call.op.layer, call.step.block_table(item.block.request)},
        copies_(must_copy_tiles(call.step.kv)) {
    const VisibleRange oldest = call.visible_tokens(position_of(0));
    const VisibleRange newest = call.visible_tokens(position_of(block_.num_rows - 1));
    tokens_.begin = at_least(oldest.begin, item.partition_begin * kPartitionTokens);
    tokens_.end = at_most(newest.end, item.partition_end * kPartitionTokens);
  }

  void run() {
    upcoming_ = find_tile<Element>(sequence_, address(item_.kv_head_begin, first_tile()));
    for (int head = item_.kv_head_begin; head < item_.kv_head_end; ++head) run_head(head);
  }

 private:
  void run_head(int kv_head) {
    load_queries(call_, block_, kv_head, scratch_.queries);
    const RowState merged = row_state(scratch_.merged, scratch_.queries, block_.num_rows, call_.stride);
    reset_rows(merged, block_.num_rows);
    for (int partition = item_.partition_begin; partition < item_.partition_end; ++partition) {
      float* partial = block_.pieces == 1 ? scratch_.partial : shared_partial(call_, block_, kv_head, partition);
      const RowState rows = row_state(partial, scratch_.queries, block_.num_rows, call_.stride);
      run_partition(kv_head, partition, rows);
      if (block_.pieces == 1) merge_partition(merged, rows, block_.num_rows);
    }
    if (block_.pieces == 1) write_outputs(call_, block_, kv_head, merged);
  }

  void run_partition(int kv_head, int partition, const RowState& rows) {
    reset_rows(rows, block_.num_rows);
    const int end = at_most((partition + 1) * kPartitionTokens, tokens_.end);
    for (int token = at_least(partition * kPartitionTokens, first_tile()); token < end; token += kTileTokens) {
      const TileAddress here = address(kv_head, token);
      const TileView<Element> tile = upcoming_;
      upcoming_ = find_following(here, tile);
      if (copies_) {
        const TileView<float> copy = copy_tile(call_.step.kv, tile, here.visible, scratch_.tile);
        run_tile<float>({copy, copy, {call_.op.head_dim, call_.stride, call_.op.soft_cap}}, token, rows);
      } else {
        run_tile<Element>({tile, upcoming_, {call_.op.head_dim, call_.op.head_dim, call_.op.soft_cap}}, token, rows);
      }
    }
  }

  // Groups of nearly equal size; the first of them prefetches the next tile for all.
  template <class Stored>
  void run_tile(const TileJob<Stored, true>& job, int first_token, const RowState& rows) {
    const int num_groups = (block_.num_rows + kMaxTileRows - 1) / kMaxTileRows;
    VisibleRange visible[kMaxTileRows];
    for (int group = 0; group < num_groups; ++group) {
      const int first = block_.num_rows * group / num_groups;
      const int count = block_.num_rows * (group + 1) / num_groups - first;
      for (int r = 0; r < count; ++r) {
        visible[r] = within_tile(call_.visible_tokens(position_of(first + r)), first_token);
      }
      if (group == 0) {
        attend_tile<Stored, true>(job, rows_from(rows, first), visible, count);
      } else {
        attend_tile<Stored, false>({job.tile, job.next, job.shape}, rows_from(rows, first), visible, count);
      }
    }
  }

  TileView<Element> find_following(const TileAddress& here, const TileView<Element>& otherwise) const {
    const int token = here.first_token + kTileTokens;
    if (token < tokens_.end) return find_tile<Element>(sequence_, address(here.kv_head, token));
    if (here.kv_head + 1 == item_.kv_head_end) return otherwise;
    return find_tile<Element>(sequence_, address(here.kv_head + 1, first_tile()));
  }

  static VisibleRange within_tile(VisibleRange tokens, int first_token) {
    return {at_least(tokens.begin - first_token, 0), at_most(tokens.end - first_token, kTileTokens)};
  }

  TileAddress address(int kv_head, int first_token) const {
    return {kv_head, first_token, within_tile(tokens_, first_token)};
  }
  int first_tile() const { return tokens_.begin / kTileTokens * kTileTokens; }
  int position_of(int row) const { return block_.first_position + (block_.first_row + row) / call_.group; }

  const AttentionCall& call_;
  const AttentionItem& item_;
  const RowBlock& block_;
  const AttentionScratch scratch_;
  const SequenceKv sequence_;
  const bool copies_;
  VisibleRange tokens_;  // what the item's rows see of its partitions
  TileView<Element> upcoming_;
};

// One unit: a K/V head of a split block.
inline void merge_split_head(const AttentionCall& call, const RowBlock& block, int kv_head, std::byte* memory) {
  const AttentionScratch scratch(call, block.num_rows, memory);
  const RowState merged = row_state(scratch.merged, nullptr, block.num_rows, call.stride);
  reset_rows(merged, block.num_rows);
  for (int partition = block.partition_begin; partition < block.partition_end; ++partition) {
    float* partial = shared_partial(call, block, kv_head, partition);
    merge_partition(merged, row_state(partial, nullptr, block.num_rows, call.stride), block.num_rows);
  }
  write_outputs(call, block, kv_head, merged);
}

inline void merge_splits(const AttentionCall& call, RowBlockWalk& walk, Worker& worker) {
  walk.restart();
  int64_t next = claim(worker, 1), before = 0;
  while (walk.next()) {
    if (walk.block().pieces == 1) continue;
    for (; next < before + call.op.num_kv_heads; next = claim(worker, 1)) {
      merge_split_head(call, walk.block(), static_cast<int>(next - before), worker.scratch);
    }
    before += call.op.num_kv_heads;
  }
}

template <class Element>
void run_attention(const AttentionCall& call, Worker& worker) {
  RowBlockWalk walk(call.op, call.step, worker.count);
  int64_t next = claim(worker, 1), before = 0;
  while (walk.next()) {
    for (; next < before + walk.num_items(); next = claim(worker, 1)) {
      AttentionItemRun<Element>(call, walk.item(next - before), worker.scratch).run();
    }
    before += walk.num_items();
  }
  if (walk.partials_before() == 0) return;
  barrier(worker);
  merge_splits(call, walk, worker);
}

[[maybe_unused]] void paged_attention(const PagedAttentionOp& op, const StepView& step, Worker& worker) {
  const AttentionCall call(op, step);
  if (step.kv.dtype == KvDtype::kFloat16) {
    run_attention<uint16_t>(call, worker);
  } else {
    run_attention<float>(call, worker);
  }
}

[[maybe_unused]] size_t attention_scratch_bytes(const PagedAttentionOp& op, const StepView& step, int32_t num_workers) {
  RowBlockWalk walk(op, step, num_workers);
  while (walk.next()) continue;
  return sizeof(float) * static_cast<size_t>(walk.partials_before());
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
