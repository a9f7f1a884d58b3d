// Shared passes: rows of several requests over the partitions that these have in common (shared_prefix.h).
#pragma once

#include "attention_rows.inc.h"

namespace octavo::OCTAVO_ISA {
namespace {

// One item: a block of a pass's rows, all of which see the whole partition, or all its partitions.
template <class Element>
class PassItemRun {
 public:
  PassItemRun(const AttentionCall& call, const SharedPass& pass, int64_t item, std::byte* memory)
      : call_(call), pass_(pass), sequence_{call.step.kv, call.op.layer, block_table()} {
    const int num_blocks = call.passes.num_row_blocks(pass), num_rows = call.passes.rows_of(pass);
    const int64_t num_units = call.passes.num_items(pass) / num_blocks;
    const int block = static_cast<int>(item / num_units);  // neighbouring items have the same rows
    const int64_t unit = item % num_units;
    partial_ = static_cast<int>(unit / call.op.num_kv_heads);
    kv_head_ = static_cast<int>(unit % call.op.num_kv_heads);
    first_row_ = num_rows * block / num_blocks;
    num_rows_ = num_rows * (block + 1) / num_blocks - first_row_;
    memory_ = memory;
  }

  void run() {
    const AttentionScratch scratch(call_, num_rows_, memory_);
    for (int r = 0; r < num_rows_; ++r) {
      const int row = first_row_ + r;
      const int64_t step_row = call_.step.shared.rows[pass_.first_row + row / call_.group];
      load_query<Element>(call_, call_.element_of(step_row, kv_head_, row), scratch.queries + r * call_.stride);
    }
    float* partial = call_.shared_scratch() + call_.passes.partial(pass_, kv_head_, partial_);
    const RowState kept =
        row_state(partial, scratch.queries, call_.passes.rows_of(pass_), call_.stride, first_row_);
    reset_rows(kept, num_rows_);
    if (!call_.passes.merges(pass_)) return run_partition(pass_.partition_begin + partial_, kept, scratch);
    const RowState rows = row_state(scratch.partial, scratch.queries, num_rows_, call_.stride);
    for (int partition = pass_.partition_begin; partition < pass_.partition_end; ++partition) {
      reset_rows(rows, num_rows_);
      run_partition(partition, rows, scratch);
      merge_partition(kept, rows, num_rows_);
    }
  }

 private:
  static constexpr VisibleRange kWhole = {0, kTileTokens};

  void run_partition(int partition, const RowState& rows, const AttentionScratch& scratch) {
    const int first_token = partition * kPartitionTokens;
    TileView<Element> tile = find_whole_tile(first_token);
    for (int token = first_token; token < first_token + kPartitionTokens; token += kTileTokens) {
      // Behind the pass's last tile there may be none.
      const int following = token + kTileTokens;
      const bool ends = following == (call_.passes.merges(pass_) ? pass_.partition_end : partition + 1) * kPartitionTokens;
      const TileView<Element> next = ends ? tile : find_whole_tile(following);
      attend_found_tile(call_, tile, next, kWhole, scratch.tile, rows, num_rows_, [](int) { return kWhole; });
      tile = next;
    }
  }

  // That of any of its requests.
  const int32_t* block_table() const {
    return call_.step.block_table(call_.step.request_of_row[call_.step.shared.rows[pass_.first_row]]);
  }
  TileView<Element> find_whole_tile(int first_token) const {
    return find_tile<Element>(sequence_, {kv_head_, first_token, kWhole});
  }

  const AttentionCall& call_;
  const SharedPass& pass_;
  const SequenceKv sequence_;
  int partial_, kv_head_;
  int first_row_, num_rows_;  // of the pass's (row of the step, query head) pairs
  std::byte* memory_;
};

// Moves a block's rows on by the passes of its request, from `index` and its parents, in ascending order.
inline void merge_passes(const AttentionCall& call, const RowBlock& block, int kv_head, int index,
                         const RowState& merged) {
  const SharedPass& pass = call.passes.pass(index);
  if (pass.parent >= 0) merge_passes(call, block, kv_head, pass.parent, merged);
  const int first = (call.step.shared.of_request[block.request].first_row - pass.first_row) * call.group;
  for (int number = 0; number < call.passes.num_partials(pass); ++number) {
    float* partial = call.shared_scratch() + call.passes.partial(pass, kv_head, number);
    merge_partition(merged, row_state(partial, nullptr, call.passes.rows_of(pass), call.stride, first + block.first_row),
                    block.num_rows);
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
