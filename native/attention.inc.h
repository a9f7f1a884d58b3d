// Paged attention: one family of kernels for decode, chunked prefill, split sequences and shared prefixes (ADR 0001).
//
// A work item moves a block of rows over its partitions, tile by tile. Groups of up to kMaxTileRows rows
// share every load of K and V. When the partitions of a block are split among items, or some of them are read for
// several requests at once, each is kept as (outputs, maxima, sums) and merged behind a barrier; otherwise each is
// merged as it is done. Both merge in ascending order, so the bits are the same.
#pragma once

#include "activation_quantization.inc.h"
#include "attention_shared.inc.h"

namespace octavo::OCTAVO_ISA {
namespace {

OCTAVO_INLINE float* kept_partial(const AttentionCall& call, const RowBlock& block, int kv_head, int partition) {
  const int64_t index = int64_t{kv_head} * block.num_partitions() + partition - block.partition_begin;
  return call.shared_scratch() + block.partials + index * partial_floats(block.num_rows, call.op.head_dim);
}

// The first element of the head that row `row` of a block's request belongs to.
OCTAVO_INLINE int64_t element_of(const AttentionCall& call, const RowBlock& block, int row, int kv_head) {
  return call.element_of(call.step.query_start_loc[block.request] + row / call.group, kv_head, row);
}

template <class Element>
void load_queries(const AttentionCall& call, const RowBlock& block, int kv_head, float* queries) {
  for (int r = 0; r < block.num_rows; ++r) {
    load_query<Element>(call, element_of(call, block, block.first_row + r, kv_head), queries + r * call.stride);
  }
}

inline void write_outputs(const AttentionCall& call, const RowBlock& block, int kv_head, const RowState& rows,
                          GroupQuantizer& quantizer) {
  for (int r = 0; r < block.num_rows; ++r) {
    const int64_t element = element_of(call, block, block.first_row + r, kv_head);
    const float* from = rows.outputs + r * call.stride;
    const float inverse = 1.0f / rows.sums[r];
    float* out = call.op.out == nullptr ? nullptr : call.op.out + element;
    if (call.op.quantized == nullptr) {
      for (int d = 0; d < call.op.head_dim; ++d) out[d] = from[d] * inverse;
    } else {
      store_quantized(out, call.op.quantized + element / kGroupSize, call.op.head_dim, quantizer,
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
        sequence_{call.step.kv, call.op.layer, call.step.block_table(item.block.request)} {
    for (int row = 0; row < block_.num_rows; ++row) row_sees_[row] = call.visible_tokens(position_of(row));
    tokens_.begin = at_least(row_sees_[0].begin, item.partition_begin * kPartitionTokens);
    tokens_.end = at_most(row_sees_[block_.num_rows - 1].end, item.partition_end * kPartitionTokens);
  }

  void run() {
    upcoming_ = find_tile<Element>(sequence_, address(item_.kv_head_begin, first_tile()));
    for (int head = item_.kv_head_begin; head < item_.kv_head_end; ++head) run_head(head);
  }

 private:
  void run_head(int kv_head) {
    load_queries<Element>(call_, block_, kv_head, scratch_.queries);
    const RowState merged = row_state(scratch_.merged, scratch_.queries, block_.num_rows, call_.stride);
    reset_rows(merged, block_.num_rows);
    for (int partition = item_.partition_begin; partition < item_.partition_end; ++partition) {
      float* partial = block_.keeps_partials() ? kept_partial(call_, block_, kv_head, partition) : scratch_.partial;
      const RowState rows = row_state(partial, scratch_.queries, block_.num_rows, call_.stride);
      run_partition(kv_head, partition, rows);
      if (!block_.keeps_partials()) merge_partition(merged, rows, block_.num_rows);
    }
    if (!block_.keeps_partials()) write_outputs(call_, block_, kv_head, merged, quantizer_);
  }

  void run_partition(int kv_head, int partition, const RowState& rows) {
    reset_rows(rows, block_.num_rows);
    const int end = at_most((partition + 1) * kPartitionTokens, tokens_.end);
    for (int token = at_least(partition * kPartitionTokens, first_tile()); token < end; token += kTileTokens) {
      const TileAddress here = address(kv_head, token);
      const TileView<Element> tile = upcoming_;
      upcoming_ = find_following(here, tile);
      attend_found_tile(call_, tile, upcoming_, here.visible, scratch_.tile, rows, block_.num_rows,
                        [&](int row) { return within_tile(row_sees_[row], token); });
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
  VisibleRange row_sees_[kMaxItemRows];
  VisibleRange tokens_;  // what the item's rows see of its partitions
  TileView<Element> upcoming_;
  GroupQuantizer quantizer_;
};

// One unit: a K/V head of a block that kept its partials.
inline void merge_kept_head(const AttentionCall& call, const RowBlock& block, int kv_head, std::byte* memory,
                            GroupQuantizer& quantizer) {
  const AttentionScratch scratch(call, block.num_rows, memory);
  const RowState merged = row_state(scratch.merged, nullptr, block.num_rows, call.stride);
  reset_rows(merged, block.num_rows);
  if (block.last_pass >= 0) merge_passes(call, block, kv_head, block.last_pass, merged);
  for (int partition = block.partition_begin; partition < block.partition_end; ++partition) {
    float* partial = kept_partial(call, block, kv_head, partition);
    merge_partition(merged, row_state(partial, nullptr, block.num_rows, call.stride), block.num_rows);
  }
  write_outputs(call, block, kv_head, merged, quantizer);
}

inline void merge_kept(const AttentionCall& call, RowBlockWalk& walk, Worker& worker) {
  GroupQuantizer quantizer;
  const int64_t heads = call.op.num_kv_heads, count = walk.num_kept_blocks() * heads;
  for (int64_t next = claim_nearby(worker, count); next < count; next = claim_nearby(worker, count)) {
    merge_kept_head(call, walk.find_kept_block(next / heads), static_cast<int>(next % heads), worker.scratch, quantizer);
  }
}

// The items of an op: those of each pass, and those of all row blocks. A worker's share is a run of each of these lists, so that
// it attends for rows near to those that it normed and rotated: they and their new K and V are in its core's caches (ADR 0020).
template <class Element>
class AttentionShares {
 public:
  AttentionShares(const AttentionCall& call, RowBlockWalk& walk, Worker& worker) : call_(call), walk_(walk), worker_(worker) {}

  void run() {
    ClaimedPiece piece;
    while (claim_shared_out(worker_, [&](int32_t owner) { return num_items_of(owner); }, piece)) run_piece(piece);
  }

 private:
  // Lists 0 … num_passes() - 1 are those of the passes, the one after them that of the row blocks.
  int num_passes() const { return call_.passes.num_passes(); }
  int64_t list_size(int list) const {
    return list < num_passes() ? call_.passes.num_items(call_.passes.pass(list)) : walk_.num_items();
  }

  int64_t num_items_of(int32_t owner) const {
    int64_t items = 0;
    for (int list = 0; list <= num_passes(); ++list) items += share_size(list_size(list), owner, worker_.count);
    return items;
  }

  void run_piece(ClaimedPiece piece) {
    for (int list = 0; list <= num_passes(); ++list) {
      const int64_t size = list_size(list), own = share_size(size, piece.owner, worker_.count);
      if (piece.number < own) return run_item(list, share_begin(size, piece.owner, worker_.count) + piece.number);
      piece.number -= own;
    }
  }

  void run_item(int list, int64_t item) {
    if (list < num_passes()) return PassItemRun<Element>(call_, call_.passes.pass(list), item, worker_.scratch).run();
    AttentionItemRun<Element>(call_, walk_.find_item(item), worker_.scratch).run();
  }

  const AttentionCall& call_;
  RowBlockWalk& walk_;
  Worker& worker_;
};

template <class Element>
void run_attention(const AttentionCall& call, Worker& worker) {
  RowBlockWalk walk(call.op, call.step, worker.count);
  AttentionShares<Element>(call, walk, worker).run();
  if (walk.num_kept_blocks() == 0) return;
  barrier(worker);
  merge_kept(call, walk, worker);
}

[[maybe_unused]] void paged_attention(const PagedAttentionOp& op, const StepView& step, Worker& worker) {
  const AttentionCall call(op, step, worker.count);
  switch (step.kv.dtype) {
    case KvDtype::kFloat16: return run_attention<uint16_t>(call, worker);
    case KvDtype::kFloat32: return run_attention<float>(call, worker);
    case KvDtype::kInt8: return run_attention<int8_t>(call, worker);
  }
}

[[maybe_unused]] size_t attention_scratch_bytes(const PagedAttentionOp& op, const StepView& step, int32_t num_workers) {
  return sizeof(float) * static_cast<size_t>(RowBlockWalk(op, step, num_workers).num_partial_floats());
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
