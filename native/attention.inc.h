// Paged attention: one family of kernels for decode, chunked prefill and split sequences (ADR 0001).
//
// A work item moves a block of rows over its partitions, tile by tile. Groups of up to kMaxTileRows rows
// share every load of K and V. When the partitions of a block are split among items, each is kept as
// (outputs, maxima, sums) and merged behind a barrier; otherwise each is merged as it is done. Both merge
// in ascending order, so the bits are the same.
#pragma once

#include "attention_tile.inc.h"

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
  float* keys;    // [kTileColumns][head_dim][16]: a tile that had to be copied
  float* values;  // [kTileTokens][stride]

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
    keys = take(int64_t{kTileTokens} * call.op.head_dim);
    values = take(int64_t{kTileTokens} * call.stride);
  }
};

constexpr int64_t largest_attention_scratch_bytes(int head_dim) {
  const int rows = max_item_rows(head_dim), stride = round_up_to_lanes(head_dim);
  return 4 * (int64_t{rows} * stride + 2 * partial_floats(rows, head_dim) + int64_t{kTileTokens} * (head_dim + stride) + 5 * kLanes);
}
static_assert(largest_attention_scratch_bytes(256) <= kWorkerScratchBytes && largest_attention_scratch_bytes(64) <= kWorkerScratchBytes);

OCTAVO_INLINE RowState row_state(float* partial, const float* queries, int num_rows, int stride) {
  float* maxima = partial + int64_t{num_rows} * stride;
  return {queries, partial, maxima, maxima + round_up_to_lanes(num_rows), stride};
}

OCTAVO_INLINE RowState rows_from(const RowState& rows, int first) {
  return {rows.queries + first * rows.stride, rows.outputs + first * rows.stride, rows.maxima + first, rows.sums + first,
          rows.stride};
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
    float* out = call.op.out + element_of(call, block, block.first_row + r, kv_head);
    const float inverse = 1.0f / rows.sums[r];
    for (int d = 0; d < call.op.head_dim; ++d) out[d] = rows.outputs[r * call.stride + d] * inverse;
  }
}

// A tile of one K/V head, and the tokens of it that any row of the item sees.
struct TileAddress {
  int kv_head;
  int first_token;
  VisibleRange visible;  // within the tile
};

// The blocks before and after the visible tokens may not exist, so their addresses are not looked up; those
// entries repeat an existing one, for the sake of the prefetch.
template <class Element>
TileView<Element> find_tile(const AttentionCall& call, const int32_t* block_table, const TileAddress& address) {
  const KvView& kv = call.step.kv;
  const int first = address.visible.begin / 8, last = (address.visible.end - 1) / 8;
  const int first_token = address.first_token + first * 8;
  int entry = first_token / kv.block_size, offset = first_token % kv.block_size;
  const auto head_of = [&](int table_entry) {
    return reinterpret_cast<const Element*>(kv.base) +
           kv.head_offset(call.op.layer, block_table[table_entry], address.kv_head);
  };
  const Element* head = head_of(entry);
  TileView<Element> view;
  for (int granule = 0; granule < kTileGranules; ++granule) {
    view.values[granule] = head + kv.half_elements() + int64_t{offset} * kv.head_dim;
    view.keys[granule / 2] = head + kv.key_offset(offset - offset % kv.tile, 0);
    if (granule < first || granule >= last) continue;
    offset += 8;
    if (offset == kv.block_size) {
      offset = 0;
      head = head_of(++entry);
    }
  }
  return view;
}

// Tiles of 16 tokens and whole vectors of values can be used where they lie.
OCTAVO_INLINE bool must_copy_tiles(const KvView& kv) { return kv.tile != kLanes || kv.head_dim % kLanes != 0; }

// [head_dim][16] as it is.
template <class Element>
void copy_key_column(const Element* keys, int head_dim, float* to) {
  for (int i = 0; i < head_dim * kLanes; i += kLanes) store16(to + i, load_kv(keys + i));
}

// [head_dim][8] into one half of [head_dim][16]; 16 elements of the source are two of the head, 8 tokens each.
template <class Element>
void copy_key_granule(const Element* keys, int head_dim, float* to) {
  alignas(64) float pair[kLanes];
  for (int d = 0; d < head_dim; d += 2) {
    store16(pair, load_kv(keys + d * 8));
    __builtin_memcpy(to + d * kLanes, pair, 8 * sizeof(float));
    __builtin_memcpy(to + (d + 1) * kLanes, pair + 8, 8 * sizeof(float));
  }
}

// 8 tokens, row by row; what a row lacks of whole vectors is filled up with zeros.
template <class Element>
void copy_values(const Element* values, int head_dim, float* to, int stride) {
  const int whole = head_dim / kLanes * kLanes;
  for (int token = 0; token < 8; ++token, values += head_dim, to += stride) {
    for (int d = 0; d < whole; d += kLanes) store16(to + d, load_kv(values + d));
    if (whole == head_dim) continue;
    alignas(64) Element tail[kLanes] = {};
    __builtin_memcpy(tail, values + whole, 8 * sizeof(Element));
    store16(to + whole, load_kv(tail));
  }
}

// Widens what holds visible tokens into [head_dim][16] keys and [64][stride] values.
template <class Element>
TileView<float> copy_tile(const AttentionCall& call, const TileView<Element>& tile, VisibleRange visible,
                          const AttentionScratch& scratch) {
  const KvView& kv = call.step.kv;
  TileView<float> copy;
  for (int granule = 0; granule < kTileGranules; ++granule) {
    float* keys = scratch.keys + granule / 2 * kv.head_dim * kLanes;
    float* values = scratch.values + granule * 8 * call.stride;
    copy.keys[granule / 2] = keys;
    copy.values[granule] = values;
    if (granule < visible.begin / 8 || granule > (visible.end - 1) / 8) continue;
    copy_values(tile.values[granule], kv.head_dim, values, call.stride);
    if (kv.tile == 8) {
      copy_key_granule(tile.values[granule] - kv.half_elements(), kv.head_dim, keys + granule % 2 * 8);
    } else if (granule % 2 == 0 || granule == visible.begin / 8) {
      copy_key_column(tile.keys[granule / 2], kv.head_dim, keys);
    }
  }
  return copy;
}

template <class Element>
class AttentionItemRun {
 public:
  AttentionItemRun(const AttentionCall& call, const AttentionItem& item, std::byte* memory)
      : call_(call),
        item_(item),
        block_(item.block),
        scratch_(call, item.block.num_rows, memory),
        block_table_(call.step.block_table(item.block.request)),
        copies_(must_copy_tiles(call.step.kv)) {
    const VisibleRange oldest = call.visible_tokens(position_of(0)), newest = call.visible_tokens(position_of(block_.num_rows - 1));
    tokens_.begin = static_cast<int>(at_least(oldest.begin, int64_t{item.partition_begin} * kPartitionTokens));
    tokens_.end = static_cast<int>(at_most(newest.end, int64_t{item.partition_end} * kPartitionTokens));
  }

  void run() {
    upcoming_ = find_tile<Element>(call_, block_table_, address(item_.kv_head_begin, tokens_.begin / kTileTokens * kTileTokens));
    for (int head = item_.kv_head_begin; head < item_.kv_head_end; ++head) run_head(head);
  }

 private:
  void run_head(int kv_head) {
    load_queries(call_, block_, kv_head, scratch_.queries);
    const RowState merged = row_state(scratch_.merged, scratch_.queries, block_.num_rows, call_.stride);
    reset_rows(merged, block_.num_rows);
    for (int partition = item_.partition_begin; partition < item_.partition_end; ++partition) {
      const RowState rows = row_state(partial(kv_head, partition), scratch_.queries, block_.num_rows, call_.stride);
      run_partition(kv_head, partition, rows);
      if (block_.pieces == 1) merge_partition(merged, rows, block_.num_rows);
    }
    if (block_.pieces == 1) write_outputs(call_, block_, kv_head, merged);
  }

  void run_partition(int kv_head, int partition, const RowState& rows) {
    reset_rows(rows, block_.num_rows);
    const int begin = partition * kPartitionTokens;
    const int end = static_cast<int>(at_most(begin + kPartitionTokens, tokens_.end));
    for (int token = static_cast<int>(at_least(begin, tokens_.begin / kTileTokens * kTileTokens)); token < end; token += kTileTokens) {
      const TileAddress here = address(kv_head, token);
      const TileView<Element> tile = upcoming_;
      upcoming_ = find_following(here, tile);
      if (copies_) {
        const TileView<float> copy = copy_tile(call_, tile, here.visible, scratch_);
        run_tile<float>(copy, copy, here.first_token, {call_.op.head_dim, call_.stride, call_.op.soft_cap}, rows);
      } else {
        run_tile<Element>(tile, upcoming_, here.first_token, {call_.op.head_dim, call_.op.head_dim, call_.op.soft_cap}, rows);
      }
    }
  }

  // Groups of nearly equal size; the first of them prefetches the next tile for all.
  template <class Stored>
  void run_tile(const TileView<Stored>& tile, const TileView<Stored>& next, int first_token, const TileShape& shape, const RowState& rows) {
    const int num_groups = (block_.num_rows + kMaxTileRows - 1) / kMaxTileRows;
    VisibleRange visible[kMaxTileRows];
    for (int group = 0; group < num_groups; ++group) {
      const int first = block_.num_rows * group / num_groups;
      const int count = block_.num_rows * (group + 1) / num_groups - first;
      for (int r = 0; r < count; ++r) visible[r] = within_tile(call_.visible_tokens(position_of(first + r)), first_token);
      if (group == 0) {
        attend_tile<Stored, true>({tile, next, shape}, rows_from(rows, first), visible, count);
      } else {
        attend_tile<Stored, false>({tile, next, shape}, rows_from(rows, first), visible, count);
      }
    }
  }

  TileView<Element> find_following(const TileAddress& here, const TileView<Element>& otherwise) const {
    const int token = here.first_token + kTileTokens;
    if (token < tokens_.end) return find_tile<Element>(call_, block_table_, address(here.kv_head, token));
    if (here.kv_head + 1 == item_.kv_head_end) return otherwise;
    return find_tile<Element>(call_, block_table_, address(here.kv_head + 1, tokens_.begin / kTileTokens * kTileTokens));
  }

  TileAddress address(int kv_head, int first_token) const { return {kv_head, first_token, within_tile(tokens_, first_token)}; }

  static VisibleRange within_tile(VisibleRange tokens, int first_token) {
    return {static_cast<int>(at_least(tokens.begin - first_token, 0)), static_cast<int>(at_most(tokens.end - first_token, kTileTokens))};
  }

  int position_of(int row) const { return block_.first_position + (block_.first_row + row) / call_.group; }

  float* partial(int kv_head, int partition) const {
    return block_.pieces == 1 ? scratch_.partial : shared_partial(call_, block_, kv_head, partition);
  }

  const AttentionCall& call_;
  const AttentionItem& item_;
  const RowBlock& block_;
  const AttentionScratch scratch_;
  const int32_t* block_table_;
  const bool copies_;
  VisibleRange tokens_;  // of the item: from its first row's window to its last row's position, within its partitions
  TileView<Element> upcoming_;
};

// One unit: a K/V head of a split block.
inline void merge_split_head(const AttentionCall& call, const RowBlock& block, int kv_head, std::byte* memory) {
  const AttentionScratch scratch(call, block.num_rows, memory);
  const RowState merged = row_state(scratch.merged, nullptr, block.num_rows, call.stride);
  reset_rows(merged, block.num_rows);
  for (int partition = block.partition_begin; partition < block.partition_end; ++partition) {
    const RowState rows = row_state(shared_partial(call, block, kv_head, partition), nullptr, block.num_rows, call.stride);
    merge_partition(merged, rows, block.num_rows);
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
