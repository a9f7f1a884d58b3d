// Low-rank adapters: what a kernel sees of them. Arithmetic: docs/adr/0001-arithmetic.md.
// Plain data, like step.h.
#pragma once

#include <cstdint>

namespace octavo {

constexpr int32_t kRankLanes = 16;  // ranks of a panel of A, columns of a panel of B
constexpr int32_t kMaxRank = 256;

// What one adapter adds to one part of a linear: out += (x · Aᵀ) · Bᵀ · scale.
struct LowRank {
  const float* a;  // [rank / 16][depth][16], missing ranks are zero
  const float* b;  // [num_columns / 16][rank][16], missing columns are zero
  int32_t rank;
  int32_t first_product;  // where x · Aᵀ lies in a row of products; a multiple of 16
  int32_t first_column;   // of the part in the linear's output
  int32_t num_columns;
  float scale;
};

// One adapter. Linear i has the pairs first_pair[i] … first_pair[i + 1] - 1.
struct AdapterView {
  const LowRank* pairs;
  const int32_t* first_pair;
};

// Rows of one step that have the same adapter.
struct AdapterGroup {
  AdapterView adapter;
  int32_t first_row, num_rows;  // of AdapterStepView::rows
};

struct AdapterStepView {
  const AdapterGroup* groups;
  int32_t num_groups;
  const int32_t* rows;     // rows of the step, those of a group side by side
  float* products;         // [rows in all groups, products_width]: x · Aᵀ of one linear at a time
  int32_t products_width;  // a multiple of 16
};

// products = x · Aᵀ for the rows with an adapter.
struct LowRankProductOp {
  const float* x;
  int32_t depth;
  int32_t linear;
};

// out += products · Bᵀ · scale for the same rows, which the linear has finished.
struct LowRankAddOp {
  float* out;
  int32_t out_width;
  int32_t linear;
};

}  // namespace octavo
