// Cuts one attention op of one step into work items, without memory: every worker walks the same list.
//
// A request's rows are its (position, query head of one K/V head) pairs, position first: row r of a request
// with `group` query heads per K/V head is position `first + r / group`, head `r % group` of the group.
// Neighbouring rows see almost the same tokens, in a decode step as in a prefill chunk.
//
// How the work is cut never changes a bit: tiles and partitions follow absolute positions only, and the
// partitions of a row are merged in ascending order whoever computed them.
#pragma once

#include "simd.h"
#include "step.h"

namespace octavo::OCTAVO_ISA {
namespace {

constexpr int kTileTokens = 64;

constexpr int round_up_to_lanes(int count) { return (count + kLanes - 1) / kLanes * kLanes; }
constexpr int at_least(int value, int least) { return value > least ? value : least; }
constexpr int at_most(int value, int most) { return value < most ? value : most; }
constexpr int64_t at_least(int64_t value, int64_t least) { return value > least ? value : least; }
constexpr int64_t at_most(int64_t value, int64_t most) { return value < most ? value : most; }

// Rows of an item at most: its queries and outputs (24 KB each) should stay near the core.
constexpr int kMaxItemRows = 96;
constexpr int max_item_rows(int head_dim) {
  return at_most(at_least(6144 / round_up_to_lanes(head_dim), 24), kMaxItemRows);
}

// Outputs [rows, padded head_dim], maxima [rows], sums [rows] of one partition of one K/V head.
constexpr int64_t partial_floats(int num_rows, int head_dim) {
  return int64_t{num_rows} * round_up_to_lanes(head_dim) + 2 * round_up_to_lanes(num_rows);
}

// Rows of one request, and the partitions that they see. One K/V head of them is the unit of work.
struct RowBlock {
  int32_t request;
  int32_t first_row, num_rows;  // within the request
  int32_t first_position;       // of row 0 of the request
  int32_t partition_begin, partition_end;
  int32_t heads_per_item;  // K/V heads that one item takes
  int32_t pieces;          // items that share a head's partitions; 1: not split
  int32_t last_pass;       // the shared pass over the partitions before partition_begin; -1: none
  int64_t partials;        // first float of the block's partials, [kv_head][partition][partial_floats]

  int num_partitions() const { return partition_end - partition_begin; }
  // Its partitions are computed apart, kept, and merged when all are there.
  bool keeps_partials() const { return pieces > 1 || last_pass >= 0; }
};

struct AttentionItem {
  RowBlock block;
  int32_t kv_head_begin, kv_head_end;
  int32_t partition_begin, partition_end;
};

// The shared passes of a step for one op. An item is a block of a pass's rows, a K/V head and a partition, or all partitions
// one after the other, merged as they are done: that needs them to be the first ones of the rows, and rows enough for all workers.
// Its partial lies in the shared scratch, [pass][kv_head][partition], where each pass has room for all its rows together.
class PassPlan {
 public:
  // A window of tokens rarely holds a whole partition for all rows: ops with one share nothing.
  PassPlan(const PagedAttentionOp& op, const StepView& step, int num_workers)
      : shared_(op.window > 0 ? SharedPassView{} : step.shared),
        group_(op.num_heads / op.num_kv_heads),
        num_kv_heads_(op.num_kv_heads),
        most_rows_(max_item_rows(op.head_dim)),
        merged_blocks_((kMergedItemsPerWorker * num_workers + op.num_kv_heads - 1) / op.num_kv_heads),
        unit_floats_(partial_floats(group_, op.head_dim)) {}

  bool any() const { return shared_.num_passes > 0; }
  const SharedPass& pass(int index) const { return shared_.passes[index]; }
  int num_passes() const { return shared_.num_passes; }
  int rows_of(const SharedPass& pass) const { return pass.num_rows * group_; }
  bool merges(const SharedPass& pass) const {
    return pass.parent < 0 && rows_of(pass) >= merged_blocks_ * kLeastMergedRows;
  }
  // Partials of a row.
  int num_partials(const SharedPass& pass) const { return merges(pass) ? 1 : pass.partition_end - pass.partition_begin; }
  int num_row_blocks(const SharedPass& pass) const {
    const int least = (rows_of(pass) + most_rows_ - 1) / most_rows_;
    return merges(pass) ? at_least(least, merged_blocks_) : least;
  }
  int64_t num_items(const SharedPass& pass) const {
    return int64_t{num_row_blocks(pass)} * num_kv_heads_ * num_partials(pass);
  }

  int64_t num_floats() const { return shared_.num_units * num_kv_heads_ * unit_floats_; }
  // First float of a partial of a pass's rows.
  int64_t partial(const SharedPass& pass, int kv_head, int number) const {
    const int64_t index = int64_t{kv_head} * num_partials(pass) + number;
    return (pass.first_unit * num_kv_heads_ + index * pass.num_rows) * unit_floats_;
  }

 private:
  static constexpr int kMergedItemsPerWorker = 3;
  static constexpr int kLeastMergedRows = 24;  // fewer would hardly share the loads of K and V

  const SharedPassView shared_;
  const int group_;
  const int num_kv_heads_;
  const int most_rows_;
  const int merged_blocks_;  // of rows, so that there are items enough
  const int64_t unit_floats_;  // of a row of the step: enough for its `group` rows in any partial
};

// Visits the row blocks of a step, request by request. The newest rows of a request see the most. With W workers its blocks 0
// (the newest), W, 2 W, … come first, then 1, W + 1, … and so on. So if it fills the step, each worker's share of the items
// begins with long ones and ends with short ones, which even out what is left.
class RowBlockWalk {
 public:
  RowBlockWalk(const PagedAttentionOp& op, const StepView& step, int num_workers)
      : op_(op),
        step_(step),
        passes_(op, step, num_workers),
        group_(op.num_heads / op.num_kv_heads),
        most_rows_(max_item_rows(op.head_dim)),
        num_workers_(num_workers) {
    restart();
    int64_t total = 0;
    while (next()) total += cost(block_);
    item_cost_ = at_least(total * op.num_kv_heads / (num_workers * kItemsPerWorker), kMinItemCost);
    restart();
    while (next()) continue;
    totals_ = before_;
    restart();
  }

  int64_t num_items() const { return totals_.items; }
  int64_t num_kept_blocks() const { return totals_.kept_blocks; }
  int64_t num_partial_floats() const { return totals_.partials; }  // of the passes, and of all blocks

  // Both are quick if nothing earlier was found just before.
  AttentionItem find_item(int64_t number) {
    if (number < before_.items) restart();
    while (block_.request < 0 || number >= before_.items + items_of_block()) next();
    return item(number - before_.items);
  }
  // Of the blocks that keep their partials.
  const RowBlock& find_kept_block(int64_t number) {
    if (number < before_.kept_blocks) restart();
    while (block_.request < 0 || !block_.keeps_partials() || number > before_.kept_blocks) next();
    return block_;
  }

 private:
  static constexpr int64_t kItemsPerWorker = 6;
  static constexpr int64_t kMinItemCost = 2 * kPartitionTokens;  // below, handing it out costs more than it gives
  static constexpr int64_t kRowsPerLoad = 2;  // loading a token's K/V costs about as much as two rows' arithmetic

  // Of blocks; `partials` counts floats, and those of the passes, too.
  struct Counts {
    int64_t items, kept_blocks, partials;
  };

  void restart() {
    block_ = {};
    block_.request = -1;
    num_blocks_ = first_of_turn_ = index_ = 0;
    before_ = {0, 0, passes_.num_floats()};
  }

  // Moves to the next block; false at the end.
  bool next() {
    if (block_.request >= 0) count_block();
    index_ += num_workers_;
    if (index_ >= num_blocks_) index_ = ++first_of_turn_;
    while (first_of_turn_ >= at_most(num_blocks_, num_workers_)) {
      if (!begin_request()) return false;
    }
    const int rows_of_newest = (num_rows_ - 1) % most_rows_ + 1;
    block_.num_rows = index_ == 0 ? rows_of_newest : most_rows_;
    block_.first_row = num_rows_ - rows_of_newest - index_ * most_rows_;
    set_partitions();
    set_pieces();
    return true;
  }

  bool begin_request() {
    if (++block_.request >= step_.num_requests) return false;
    const int32_t* rows = step_.query_start_loc + block_.request;
    num_rows_ = (rows[1] - rows[0]) * group_;
    num_blocks_ = (num_rows_ + most_rows_ - 1) / most_rows_;
    first_of_turn_ = index_ = 0;
    if (num_rows_ > 0) block_.first_position = step_.positions[rows[0]];
    return true;
  }

  void count_block() {
    before_.items += items_of_block();
    if (!block_.keeps_partials()) return;
    ++before_.kept_blocks;
    before_.partials += op_.num_kv_heads * head_partial_floats();
  }

  int64_t items_of_block() const {
    return (op_.num_kv_heads + block_.heads_per_item - 1) / block_.heads_per_item * int64_t{block_.pieces};
  }
  int64_t head_partial_floats() const {
    return block_.num_partitions() * partial_floats(block_.num_rows, op_.head_dim);
  }

  AttentionItem item(int64_t index) const {
    const int piece = static_cast<int>(index % block_.pieces);
    const int head = static_cast<int>(index / block_.pieces) * block_.heads_per_item;
    const int head_end = at_most(head + block_.heads_per_item, op_.num_kv_heads);
    const int partitions = block_.num_partitions();
    return {block_, head, head_end, block_.partition_begin + partitions * piece / block_.pieces,
            block_.partition_begin + partitions * (piece + 1) / block_.pieces};
  }

  int64_t cost(const RowBlock& block) const {
    return int64_t{block.num_partitions()} * kPartitionTokens * (block.num_rows + kRowsPerLoad);
  }

  void set_partitions() {
    const int oldest = block_.first_position + block_.first_row / group_;
    const int newest = block_.first_position + (block_.first_row + block_.num_rows - 1) / group_;
    const int first_token = op_.window > 0 ? at_least(oldest - op_.window + 1, 0) : 0;
    block_.last_pass = passes_.any() ? step_.shared.of_request[block_.request].deepest : -1;
    block_.partition_begin =
        block_.last_pass < 0 ? first_token / kPartitionTokens : step_.shared.passes[block_.last_pass].partition_end;
    block_.partition_end = newest / kPartitionTokens + 1;
  }

  void set_pieces() {
    block_.pieces = block_.heads_per_item = 1;
    block_.partials = before_.partials;
    if (item_cost_ == 0) return;  // the constructor's first walk, which only adds costs up
    const int64_t pieces = num_workers_ == 1 ? 1 : cost(block_) / item_cost_, heads = item_cost_ / cost(block_);
    block_.pieces = static_cast<int32_t>(at_most(at_least(pieces, int64_t{1}), int64_t{block_.num_partitions()}));
    block_.heads_per_item = static_cast<int32_t>(at_most(at_least(heads, int64_t{1}), int64_t{op_.num_kv_heads}));
  }

  const PagedAttentionOp& op_;
  const StepView& step_;
  const PassPlan passes_;
  const int group_;
  const int most_rows_;  // of a block
  const int num_workers_;
  int64_t item_cost_ = 0;
  Counts totals_ = {};
  Counts before_ = {};  // this block
  RowBlock block_ = {};
  int32_t num_rows_ = 0, num_blocks_ = 0;  // of the request
  int32_t index_ = 0, first_of_turn_ = 0;  // of its blocks, the newest being 0
};

}  // namespace
}  // namespace octavo::OCTAVO_ISA
