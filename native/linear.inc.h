// linear: rows times packed panels. Arithmetic: docs/adr/0001-arithmetic.md.
#pragma once

#include "linear_tile.inc.h"

namespace octavo::OCTAVO_ISA {
namespace {

#if defined(OCTAVO_SIMD_AVX512)
constexpr int kTileRows = 4;
constexpr int kTileCols = 2;  // column vectors of an integer tile of several rows
constexpr int kWideCols = 4;
#elif defined(OCTAVO_SIMD_AVX2)
constexpr int kTileRows = 4;
constexpr int kTileCols = 1;
constexpr int kWideCols = 4;
#elif defined(OCTAVO_SIMD_NEON)
constexpr int kTileRows = 4;
constexpr int kTileCols = 1;
constexpr int kWideCols = 8;
#else
constexpr int kTileRows = 1;
constexpr int kTileCols = 1;
constexpr int kWideCols = 16;
#endif
static_assert(kWideCols % kParts == 0);
constexpr int kWidePanels = kWideCols / kParts;
static_assert(kPieceMultiple % kWidePanels == 0);

// Rows whose quantised activations should stay in the second-level cache while panels pass by.
constexpr int64_t kRowBlockBytes = 512 * 1024;

OCTAVO_INLINE int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
OCTAVO_INLINE int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }
OCTAVO_INLINE int32_t ceil_div(int32_t a, int32_t b) { return (a + b - 1) / b; }

// out = residual + (acc + bias), for up to kWidth columns.
OCTAVO_INLINE void write_columns(const LinearOp& op, int32_t row, int32_t column, int32_t count, vf acc) {
  float* out = op.out + static_cast<int64_t>(row) * op.out_width + column;
  if (count >= kWidth) {
    if (op.bias != nullptr) acc = add(acc, vload(op.bias + column));
    if (op.accumulate) acc = add(vload(out), acc);
    vstore(out, acc);
    return;
  }
  float lanes[kWidth];
  vstore(lanes, acc);
  for (int i = 0; i < count; ++i) {
    const float sum = op.bias != nullptr ? lanes[i] + op.bias[column + i] : lanes[i];
    out[i] = op.accumulate ? out[i] + sum : sum;
  }
}

// What a piece of work covers: panels of one part by rows.
struct Piece {
  const Panels* part;
  int32_t first_column;  // of the part in `out`
  int32_t panel_begin, panel_end;
  int32_t row_begin, row_end;
  const std::byte* following;  // the panel that the worker reads afterwards

  const std::byte* panel(int32_t index) const { return part->data + index * part->stride; }
  const std::byte* panel_or_following(int32_t index) const { return index < panel_end ? panel(index) : following; }
};

template <PanelKind kKind, int kRows, int kCols>
void run_tile(const LinearOp& op, const Piece& piece, int32_t panel, int first_slice, int32_t row) {
  vf acc[kRows][kCols];
  if constexpr (is_integer(kKind)) {
    const int64_t stride = op.depth / kGroupSize;
    const bool fetches = row == piece.row_begin;  // later rows find the panel in the cache
    const TileWeights weights = {*piece.part, piece.panel(panel),
                                 fetches ? piece.panel_or_following(panel + panels_of(kCols)) : nullptr};
    integer_tile<kKind>(weights, first_slice, op.quantized + row * stride, stride, acc);
  } else {
    const float* x = op.x + static_cast<int64_t>(row) * op.depth;
    float_tile<kKind, kRows, kCols>(*piece.part, piece.panel(panel), first_slice, x, op.depth, acc);
  }
  for (int c = 0; c < kCols; ++c) {
    const int32_t column = panel * kPanelColumns + (first_slice + c) * kWidth;
    const int32_t count = piece.part->num_columns - column;
    for (int r = 0; r < kRows; ++r) write_columns(op, row + r, piece.first_column + column, count, acc[r][c]);
  }
}

// As many rows as there are whole tiles of kRows for; returns the row after them.
template <PanelKind kKind, int kRows, int kCols>
OCTAVO_INLINE int32_t run_rows(const LinearOp& op, const Piece& piece, int32_t panel, int32_t row) {
  constexpr int kSlices = kCols > kParts ? kCols : kParts;
  for (; row + kRows <= piece.row_end; row += kRows) {
    for (int slice = 0; slice < kSlices; slice += kCols) run_tile<kKind, kRows, kCols>(op, piece, panel, slice, row);
  }
  return row;
}

// All rows of the piece by the panels that kCols column vectors are from.
template <PanelKind kKind, int kCols>
OCTAVO_INLINE void run_panels(const LinearOp& op, const Piece& piece, int32_t panel) {
  int32_t row = run_rows<kKind, kTileRows, kCols>(op, piece, panel, piece.row_begin);
  if constexpr (kTileRows > 2) row = run_rows<kKind, 2, kCols>(op, piece, panel, row);
  if constexpr (kTileRows > 1) run_rows<kKind, 1, kCols>(op, piece, panel, row);
}

template <PanelKind kKind>
void run_piece(const LinearOp& op, const Piece& piece) {
  // A row of an integer tile needs three registers per vector, one of a float tile one.
  constexpr int kCols = is_integer(kKind) ? kTileCols : kParts;
  int32_t panel = piece.panel_begin;
  if (piece.row_end - piece.row_begin == 1) {  // several panels at once hide the latency of fma
    for (; panel + kWidePanels <= piece.panel_end; panel += kWidePanels) {
      run_tile<kKind, 1, kWideCols>(op, piece, panel, 0, piece.row_begin);
    }
  }
  for (; panel + panels_of(kCols) <= piece.panel_end; panel += panels_of(kCols)) run_panels<kKind, kCols>(op, piece, panel);
  for (; panel < piece.panel_end; ++panel) run_panels<kKind, kCols < kParts ? kCols : kParts>(op, piece, panel);
}

OCTAVO_INLINE void run_any_piece(const LinearOp& op, const Piece& piece) {
  switch (piece.part->kind) {
    case PanelKind::kInt4MinF16: return run_piece<PanelKind::kInt4MinF16>(op, piece);
    case PanelKind::kInt4MinF32: return run_piece<PanelKind::kInt4MinF32>(op, piece);
    case PanelKind::kInt8F16: return run_piece<PanelKind::kInt8F16>(op, piece);
    case PanelKind::kInt8MinF16: return run_piece<PanelKind::kInt8MinF16>(op, piece);
    case PanelKind::kInt8MinF32: return run_piece<PanelKind::kInt8MinF32>(op, piece);
    case PanelKind::kInt8TwoF32: return run_piece<PanelKind::kInt8TwoF32>(op, piece);
    case PanelKind::kInt4TwoMinF32: return run_piece<PanelKind::kInt4TwoMinF32>(op, piece);
    case PanelKind::kF32: return run_piece<PanelKind::kF32>(op, piece);
    case PanelKind::kF16: return run_piece<PanelKind::kF16>(op, piece);
    case PanelKind::kBF16: return run_piece<PanelKind::kBF16>(op, piece);
  }
}

// Both halves of the piece's columns, then their activation while they are still near the core.
OCTAVO_INLINE void run_gated_piece(const LinearOp& op, Piece piece) {
  const std::byte* const following = piece.following;
  piece.following = op.parts[1].data + piece.panel_begin * op.parts[1].stride;
  run_any_piece(op, piece);
  piece.part = op.parts + 1;
  piece.first_column = op.gated->width;
  piece.following = following;
  run_any_piece(op, piece);
  const int32_t begin = piece.panel_begin * kPanelColumns;
  const int32_t end = smaller(piece.panel_end * kPanelColumns, op.gated->width);
  for (int32_t row = piece.row_begin; row < piece.row_end; ++row) activate_columns(*op.gated, row, begin, end);
}

// ---- sharing the work out -----------------------------------------------------------------------------

// Pieces are numbered part by part, panels first, row blocks last: neighbours share their weights. The two parts of
// a gated linear count as one.
class PieceWalk {
 public:
  PieceWalk(const LinearOp& op, int32_t rows, int32_t num_workers)
      : rows_(rows),
        num_blocks_(ceil_div(rows, most_rows(op))),
        block_rows_(ceil_div(ceil_div(rows, larger(num_blocks_, 1)), kTileRows) * kTileRows),
        piece_panels_(panels_per_piece(op, num_workers)),
        part_(op.parts),
        parts_end_(op.parts + (op.gated == nullptr ? op.num_parts : 1)) {}

  // Numbers only ascend. False: there is no such piece.
  bool find(int64_t number, Piece& piece) {
    for (; part_ != parts_end_; ++part_) {
      const int32_t num_panels = ceil_div(part_->num_columns, kPanelColumns);
      const int64_t end = part_begin_ + static_cast<int64_t>(ceil_div(num_panels, piece_panels_)) * num_blocks_;
      if (number < end) {
        set(static_cast<int32_t>(number - part_begin_), num_panels, piece);
        return true;
      }
      part_begin_ = end;
      first_column_ += part_->num_columns;
    }
    return false;
  }

 private:
  static int32_t most_rows(const LinearOp& op) {
    return larger(static_cast<int32_t>(kRowBlockBytes / (2 * int64_t{op.depth})), 4 * kTileRows);
  }

  void set(int32_t number, int32_t num_panels, Piece& piece) const {
    piece.part = part_;
    piece.first_column = first_column_;
    piece.panel_begin = number / num_blocks_ * piece_panels_;
    piece.panel_end = smaller(piece.panel_begin + piece_panels_, num_panels);
    piece.row_begin = number % num_blocks_ * block_rows_;
    piece.row_end = smaller(piece.row_begin + block_rows_, rows_);
  }

  const int32_t rows_, num_blocks_, block_rows_, piece_panels_;
  const Panels* part_;
  const Panels* const parts_end_;
  int64_t part_begin_ = 0;  // number of the part's first piece
  int32_t first_column_ = 0;
};

// A worker claims its next piece before it runs one, to know what to fetch meanwhile.
void linear(const LinearOp& op, const StepView& step, Worker& worker) {
  PieceWalk walk(op, num_rows(step, op.rows), worker.count);
  Piece piece{}, next{};
  bool found = walk.find(claim(worker, 1), piece);
  while (found) {
    found = walk.find(claim(worker, 1), next);
    piece.following = found ? next.panel(next.panel_begin) : piece.panel(piece.panel_end);
    if (op.gated == nullptr) {
      run_any_piece(op, piece);
    } else {
      run_gated_piece(op, piece);
    }
    piece = next;
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
