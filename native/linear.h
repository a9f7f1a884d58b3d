// Packed weights, quantised activations, and the ops over them.
#pragma once

#include "step.h"

namespace octavo {

constexpr int32_t kPanelColumns = 16;
constexpr int32_t kGroupSize = 32;  // weights that share a scale

// 32 activations of a row: two groups of 16 with a scale each. One cache line.
struct alignas(64) QuantizedGroup {
  int8_t q[kGroupSize];
  float scale[2];
  float minimum_factor;         // fma(scale[1], float(S1), scale[0] · float(S0)), S = Σ q: meets the weights' minimum
  int32_t minus_128_sum[2];     // -128 · S of each half
};
static_assert(sizeof(QuantizedGroup) == 64);

// How a panel (16 columns of a weight matrix) is stored.
//
// Integer panels lie side by side in pairs, a bundle: of each group of k the vectors of quants of one panel and the other in
// turns, then their scales. A single row takes both at once on every instruction set, and so reads memory line by line from
// front to back, which memory does best, and processors foresee.
// 4 bits: u8[4][64] per group and panel; vector j, lane = column, 4 bytes = k 4j … 4j+3 of the group's first half in
// the low nibbles and of its second half in the high ones. 8 bits: s8[8][64], k 4j … 4j+3.
// Scales: [16] scales, then [16] minima if the kind has them, float16 or float32. kInt8TwoF32 has a scale for each
// half of a group instead of a minimum, and kInt4TwoMinF32 two scales, then two minima.
// Float panels are [k][16] in their own width, one after the other.
enum class PanelKind : int32_t {
  kInt4MinF16 = 0,  // Q4_1, Q4_0 (minimum = -8 · scale)
  kInt4MinF32 = 1,  // Q4_K, and Q4_0 whose minimum overflows float16
  kInt8F16 = 2,     // Q8_0, Q5_0, IQ4_NL
  kInt8MinF16 = 3,  // Q5_1
  kInt8MinF32 = 4,  // Q5_K
  kInt8TwoF32 = 5,  // Q6_K, IQ4_XS
  kInt4TwoMinF32 = 6,  // Q2_K, Q3_K
  kF32 = 7,
  kF16 = 8,
  kBF16 = 9,
};

constexpr bool is_integer(PanelKind kind) { return kind < PanelKind::kF32; }

constexpr int32_t kBundlePanels = 2;
constexpr int32_t kQuantStride = 64 * kBundlePanels;  // from one vector of a panel's quants to the next
constexpr int32_t panels_in_bundle(PanelKind kind) { return is_integer(kind) ? kBundlePanels : 1; }

struct Panels {
  const std::byte* data;
  int64_t bundle_bytes;  // float panels are bundles of one
  int64_t stride;        // from one bundle to the next: more than a bundle if those of gate and up lie in turns
  PanelKind kind;
  int32_t num_columns;  // the last bundle is filled up with zero weights
  int32_t depth;        // k

  int32_t num_panels() const { return (num_columns + kPanelColumns - 1) / kPanelColumns; }
  const std::byte* bundle_of(int32_t panel) const { return data + panel / panels_in_bundle(kind) * stride; }
};

struct QuantizeRowsOp {
  QuantizedGroup* out;  // [rows, width / 32]
  const float* x;       // [num_tokens, width]; of RowSet::kLogitRows, the logit rows are picked out
  int32_t width;
  RowSet rows;
};

struct LinearOp {
  float* out;  // [rows, out_width]
  int32_t out_width;
  const float* x;  // [rows, depth]
  const QuantizedGroup* quantized;  // the same rows; null if no part has integer panels
  int32_t depth;
  const Panels* parts;
  int32_t num_parts;
  const float* bias;  // [out_width] or null
  bool accumulate;    // add to what `out` holds
  RowSet rows;
  // Null, or the activation of `out`, computed with it: the parts are gate and up. Then nobody else reads `out`.
  const GatedActivationOp* gated;
};

// Workers claim a linear's panels in pieces. The smaller these are, the more evenly a matrix of few columns is shared out; but
// they hold whole bundles, what a gated linear quantises together, and, if one row meets floats, what its tile takes.
constexpr int32_t kPieceMultiple = 2, kWidePieceMultiple = 4;
static_assert(kPieceMultiple % kBundlePanels == 0 && kWidePieceMultiple % kPieceMultiple == 0);
static_assert(kWidePieceMultiple * kPanelColumns % kGroupSize == 0);
constexpr int32_t kFewRows = 8;  // reading weights is what so few rows wait for

inline int32_t panels_per_piece(const LinearOp& op, int32_t num_workers, int32_t num_rows) {
  bool is_wide = op.gated != nullptr;
  for (int32_t part = 0; part < op.num_parts; ++part) is_wide |= num_rows <= kFewRows && !is_integer(op.parts[part].kind);
  const int32_t multiple = is_wide ? kWidePieceMultiple : kPieceMultiple;
  const int32_t columns = op.gated == nullptr ? op.out_width : op.parts[0].num_columns;
  const int32_t wanted = columns / kPanelColumns / (8 * num_workers);
  const int32_t multiples = (wanted < 32 ? wanted : 32) / multiple;
  return (multiples > 1 ? multiples : 1) * multiple;
}

inline int32_t num_pieces_of(const Panels& part, int32_t piece_panels) {
  return (part.num_panels() + piece_panels - 1) / piece_panels;
}

// Pieces of all panels, part by part. The two parts of a gated linear count as one.
inline int64_t num_panel_pieces(const LinearOp& op, int32_t piece_panels) {
  int64_t pieces = 0;
  for (int32_t part = 0; part < (op.gated == nullptr ? op.num_parts : 1); ++part) {
    pieces += num_pieces_of(op.parts[part], piece_panels);
  }
  return pieces;
}

// Where a piece begins.
struct PanelPiece {
  int32_t part, panel;
  int32_t first_column;  // of the part, in the op's output
};

inline PanelPiece find_panels(const LinearOp& op, int32_t piece_panels, int64_t piece) {
  PanelPiece found{0, 0, 0};
  for (int32_t pieces; piece >= (pieces = num_pieces_of(op.parts[found.part], piece_panels)); ++found.part) {
    piece -= pieces;
    found.first_column += op.parts[found.part].num_columns;
  }
  found.panel = static_cast<int32_t>(piece) * piece_panels;
  return found;
}

}  // namespace octavo
