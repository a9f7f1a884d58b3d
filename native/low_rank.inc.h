// Low-rank adapters: rows of different adapters in one step, each row as if it were alone (ADR 0001).
//
// Rows of an adapter are found through a list, because requests with the same adapter need not be neighbours.
#pragma once

#include "elementwise.inc.h"
#include "low_rank.h"

namespace octavo::OCTAVO_ISA {
namespace {

constexpr int32_t kRowsTogether = 4;  // that share each vector of A or B
constexpr int32_t kPanelsPerUnit = 16;  // of B, which are short

OCTAVO_INLINE int32_t row_tiles(const AdapterGroup& group) {
  return (group.num_rows + kRowsTogether - 1) / kRowsTogether;
}

// Calls visit(group, pair, unit) for the units 0 … units(group, pair) - 1 of every pair that this worker gets.
template <class Units, class Visit>
OCTAVO_INLINE void for_claimed_pairs(const AdapterStepView& step, int32_t linear, Worker& worker, Units units,
                                     Visit visit) {
  int64_t next = claim(worker, 1), before = 0;
  for (int32_t g = 0; g < step.num_groups; ++g) {
    const AdapterGroup& group = step.groups[g];
    const int32_t end = group.adapter.first_pair[linear + 1];
    for (int32_t p = group.adapter.first_pair[linear]; p < end; ++p) {
      const LowRank& pair = group.adapter.pairs[p];
      const int64_t count = units(group, pair);
      for (; next < before + count; next = claim(worker, 1)) visit(group, pair, next - before);
      before += count;
    }
  }
}

// acc[r] = Σ over k ascending of fma(rows[r][k], panel[k], ·)
template <int kRows>
OCTAVO_INLINE void sum_products(const float* const* rows, const float* panel, int32_t depth, f32x16 (&acc)[kRows]) {
  for (int r = 0; r < kRows; ++r) acc[r] = splat16(0.0f);
  for (int32_t k = 0; k < depth; ++k) {
    const f32x16 weights = load16(panel + int64_t{k} * kRankLanes);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) acc[r] = fma(splat16(rows[r][k]), weights, acc[r]);
  }
}

template <int kRows>
void product_tile(const LowRankProductOp& op, const AdapterStepView& step, const LowRank& pair, int32_t first_row,
                  int32_t panel) {
  const float* rows[kRows];
  for (int r = 0; r < kRows; ++r) rows[r] = op.x + int64_t{step.rows[first_row + r]} * op.depth;
  f32x16 acc[kRows];
  sum_products<kRows>(rows, pair.a + int64_t{panel} * op.depth * kRankLanes, op.depth, acc);
  float* out = step.products + int64_t{first_row} * step.products_width + pair.first_product + panel * kRankLanes;
  for (int r = 0; r < kRows; ++r) store16(out + int64_t{r} * step.products_width, acc[r]);
}

template <int kRows>
void add_tile(const LowRankAddOp& op, const AdapterStepView& step, const LowRank& pair, int32_t first_row,
              int32_t panel) {
  const float* rows[kRows];
  for (int r = 0; r < kRows; ++r) {
    rows[r] = step.products + int64_t{first_row + r} * step.products_width + pair.first_product;
  }
  f32x16 acc[kRows];
  sum_products<kRows>(rows, pair.b + int64_t{panel} * pair.rank * kRankLanes, pair.rank, acc);
  const int32_t column = panel * kRankLanes, left = pair.num_columns - column;
  const int32_t lanes = left < kRankLanes ? left : kRankLanes;
  const f32x16 scale = splat16(pair.scale);
  for (int r = 0; r < kRows; ++r) {
    float* out = op.out + int64_t{step.rows[first_row + r]} * op.out_width + pair.first_column + column;
    store_lanes(out, add(load_lanes(out, lanes), mul(acc[r], scale)), lanes);
  }
}

// Calls tile.template operator()<rows>(first row) for the rows of one tile of a group: all at once, or one by one.
template <class Tile>
OCTAVO_INLINE void for_tile_rows(const AdapterGroup& group, int64_t tile_index, Tile tile) {
  const int32_t begin = static_cast<int32_t>(tile_index) * kRowsTogether;
  if (begin + kRowsTogether <= group.num_rows) return tile.template operator()<kRowsTogether>(group.first_row + begin);
  for (int32_t row = begin; row < group.num_rows; ++row) tile.template operator()<1>(group.first_row + row);
}

[[maybe_unused]] void low_rank_product(const LowRankProductOp& op, const StepView& step, Worker& worker) {
  const auto num_panels = [](const LowRank& pair) { return (pair.rank + kRankLanes - 1) / kRankLanes; };
  for_claimed_pairs(
      step.adapters, op.linear, worker,
      [&](const AdapterGroup& group, const LowRank& pair) { return int64_t{row_tiles(group)} * num_panels(pair); },
      [&](const AdapterGroup& group, const LowRank& pair, int64_t unit) {
        const int32_t panel = static_cast<int32_t>(unit % num_panels(pair));
        for_tile_rows(group, unit / num_panels(pair), [&]<int kRows>(int32_t first_row) {
          product_tile<kRows>(op, step.adapters, pair, first_row, panel);
        });
      });
}

[[maybe_unused]] void low_rank_add(const LowRankAddOp& op, const StepView& step, Worker& worker) {
  const auto num_panels = [](const LowRank& pair) { return (pair.num_columns + kRankLanes - 1) / kRankLanes; };
  const auto num_pieces = [&](const LowRank& pair) { return (num_panels(pair) + kPanelsPerUnit - 1) / kPanelsPerUnit; };
  for_claimed_pairs(
      step.adapters, op.linear, worker,
      [&](const AdapterGroup& group, const LowRank& pair) { return int64_t{row_tiles(group)} * num_pieces(pair); },
      [&](const AdapterGroup& group, const LowRank& pair, int64_t unit) {
        const int32_t begin = static_cast<int32_t>(unit % num_pieces(pair)) * kPanelsPerUnit;
        const int32_t wanted = begin + kPanelsPerUnit;
        const int32_t end = wanted < num_panels(pair) ? wanted : num_panels(pair);
        for_tile_rows(group, unit / num_pieces(pair), [&]<int kRows>(int32_t first_row) {
          for (int32_t panel = begin; panel < end; ++panel) add_tile<kRows>(op, step.adapters, pair, first_row, panel);
        });
      });
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
