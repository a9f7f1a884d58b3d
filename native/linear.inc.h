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

// What a piece of work covers: panels of one part by rows.
struct Piece {
  const Panels* part;
  int32_t first_column;  // of the part, for the bias
  int32_t panel_begin, panel_end;
  int32_t row_begin, row_end;
  float* out;  // of the first row and column
  int64_t out_stride;  // from row to row
  const std::byte* following;  // the panel that the worker reads afterwards
  KvAhead* kv_ahead;

  float* out_at(int32_t row, int32_t column) const {
    return out + (row - row_begin) * out_stride + column - panel_begin * kPanelColumns;
  }
  const std::byte* panel(int32_t index) const { return part->data + index * part->stride; }
  const std::byte* panel_or_following(int32_t index) const { return index < panel_end ? panel(index) : following; }
};

// out = residual + (acc + bias), of kRows rows from `column` on.
template <int kRows, int kCols>
OCTAVO_INLINE void write_tile(const LinearOp& op, const Piece& piece, float* out, int32_t column,
                              const vf (&acc)[kRows][kCols]) {
  const float* bias = op.bias == nullptr ? nullptr : op.bias + piece.first_column + column;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r, out += piece.out_stride) {
#pragma GCC unroll 16
    for (int c = 0; c < kCols; ++c) {
      vf sum = acc[r][c];
      if (bias != nullptr) sum = add(sum, vload(bias + c * kWidth));
      if (op.accumulate) sum = add(vload(out + c * kWidth), sum);
      vstore(out + c * kWidth, sum);
    }
  }
}

// The same for a part's last columns, fewer than the tile has.
[[gnu::noinline]] void write_edge(const LinearOp& op, const Piece& piece, float* out, int32_t column, const float* acc,
                                  int rows, int cols) {
  const int32_t end = piece.part->num_columns - column;
  for (int r = 0; r < rows; ++r, out += piece.out_stride, acc += cols) {
    for (int i = 0; i < cols && i < end; ++i) {
      const float sum = op.bias != nullptr ? acc[i] + op.bias[piece.first_column + column + i] : acc[i];
      out[i] = op.accumulate ? out[i] + sum : sum;
    }
  }
}

// kFetches: what the tile reads next comes while it runs.
template <PanelKind kKind, bool kFetches, int kRows, int kCols>
void run_tile(const LinearOp& op, const Piece& piece, int32_t panel, int first_slice, int32_t row) {
  vf acc[kRows][kCols];
  const int32_t column = panel * kPanelColumns + first_slice * kWidth;
  float* const out = piece.out_at(row, column);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kCols; ++c) prefetch_to_write(out + r * piece.out_stride + c * kWidth);
  }
  if constexpr (is_integer(kKind)) {
    const int64_t stride = op.depth / kGroupSize;
    const TileWeights weights = {*piece.part, piece.panel(panel), piece.panel_or_following(panel + panels_of(kCols)),
                                 *piece.kv_ahead};
    integer_tile<kKind, kFetches>(weights, first_slice, op.quantized + row * stride, stride, acc);
  } else {
    const float* x = op.x + static_cast<int64_t>(row) * op.depth;
    float_tile<kKind, kRows, kCols>(*piece.part, piece.panel(panel), first_slice, x, op.depth, acc);
  }
  constexpr int kTileColumns = kCols * kWidth;
  if (column + kTileColumns <= piece.part->num_columns) return write_tile(op, piece, out, column, acc);
  alignas(64) float sums[kRows * kTileColumns];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kCols; ++c) vstore(sums + (r * kCols + c) * kWidth, acc[r][c]);
  }
  write_edge(op, piece, out, column, sums, kRows, kTileColumns);
}

// The panels that kCols column vectors are from, by all rows of the piece that there are whole tiles for. Returns the row
// after them.
template <PanelKind kKind, bool kFetches, int kRows, int kCols>
OCTAVO_INLINE int32_t run_rows(const LinearOp& op, const Piece& piece, int32_t panel, int32_t row, int32_t row_end) {
  constexpr int kSlices = kCols > kParts ? kCols : kParts;
  for (; row + kRows <= row_end; row += kRows) {
    for (int slice = 0; slice < kSlices; slice += kCols) {
      run_tile<kKind, kFetches, kRows, kCols>(op, piece, panel, slice, row);
    }
  }
  return row;
}

// The first rows of the piece; what they read next comes while they run. Returns the row after them.
template <PanelKind kKind, int kCols>
OCTAVO_INLINE int32_t run_first_rows(const LinearOp& op, const Piece& piece, int32_t panel) {
  constexpr bool kFetches = is_integer(kKind);
  const int32_t row = piece.row_begin, rows = piece.row_end - row;
  if (rows >= kTileRows) return run_rows<kKind, kFetches, kTileRows, kCols>(op, piece, panel, row, row + kTileRows);
  if constexpr (kTileRows > 2) {
    if (rows >= 2) return run_rows<kKind, kFetches, 2, kCols>(op, piece, panel, row, row + 2);
  }
  return run_rows<kKind, kFetches, 1, kCols>(op, piece, panel, row, row + 1);
}

// All rows of the piece by the panels that kCols column vectors are from. The rows after the first find these panels in the
// cache, and share the work of fetching those that follow: the first rows alone would ask for more than memory gives.
template <PanelKind kKind, int kCols>
OCTAVO_INLINE void run_panels(const LinearOp& op, const Piece& piece, int32_t panel) {
  const std::byte* following = piece.panel_or_following(panel + panels_of(kCols));
  const int64_t share = panels_of(kCols) * piece.part->stride * kTileRows / (piece.row_end - piece.row_begin);
  int32_t row = run_first_rows<kKind, kCols>(op, piece, panel);
  for (; row + kTileRows <= piece.row_end; row += kTileRows) {
    for (int64_t byte = 0; byte < share; byte += 64) prefetch(following + byte);
    following += share;
    run_rows<kKind, false, kTileRows, kCols>(op, piece, panel, row, row + kTileRows);
  }
  if constexpr (kTileRows > 2) row = run_rows<kKind, false, 2, kCols>(op, piece, panel, row, piece.row_end);
  if constexpr (kTileRows > 1) run_rows<kKind, false, 1, kCols>(op, piece, panel, row, piece.row_end);
}

template <PanelKind kKind>
void run_piece(const LinearOp& op, const Piece& piece) {
  // A row of an integer tile needs three registers per vector, one of a float tile one.
  constexpr int kCols = is_integer(kKind) ? kTileCols : kParts;
  int32_t panel = piece.panel_begin;
  if (piece.row_end - piece.row_begin == 1) {  // several panels at once hide the latency of fma
    for (; panel + kWidePanels <= piece.panel_end; panel += kWidePanels) {
      run_tile<kKind, is_integer(kKind), 1, kWideCols>(op, piece, panel, 0, piece.row_begin);
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

// Gates and ups that a worker keeps near its core until they are activated.
constexpr int64_t kGatedBlockBytes = 64 * 1024;
static_assert(kGatedBlockBytes <= kWorkerScratchBytes);

// Both halves of the piece's columns, then their activation, some rows at a time. Nobody else reads gates and ups, so they
// stay in the worker's own memory, where rows lie close together: rows of `op.out` may be multiples of a page apart, and a
// first-level cache has room for few of those.
inline void run_gated_piece(const LinearOp& op, const Piece& piece, std::byte* scratch) {
  const int32_t begin = piece.panel_begin * kPanelColumns;
  const int32_t columns = piece.panel_end * kPanelColumns - begin;
  const int32_t most_rows = static_cast<int32_t>(kGatedBlockBytes / (2 * columns * static_cast<int64_t>(sizeof(float))));
  const int32_t block_rows = larger(most_rows / kTileRows * kTileRows, kTileRows);
  Piece gate = piece, up = piece;
  gate.out = reinterpret_cast<float*>(scratch);
  up.out = gate.out + columns;
  gate.out_stride = up.out_stride = 2 * columns;
  up.part = op.parts + 1;
  up.first_column = op.gated->width;
  gate.following = up.panel(up.panel_begin);
  for (int32_t row = piece.row_begin; row < piece.row_end; row += block_rows) {
    gate.row_begin = up.row_begin = row;
    gate.row_end = up.row_end = smaller(row + block_rows, piece.row_end);
    up.following = up.row_end == piece.row_end ? piece.following : gate.panel(gate.panel_begin);
    run_any_piece(op, gate);
    run_any_piece(op, up);
    activate(*op.gated, {gate.out, up.out, gate.out_stride, row, gate.row_end, begin,
                         smaller(begin + columns, op.gated->width)});
  }
}

// ---- sharing the work out -----------------------------------------------------------------------------

// Pieces are numbered part by part, panels first, row blocks last: neighbours share their weights. The two parts of
// a gated linear count as one.
class PieceWalk {
 public:
  PieceWalk(const LinearOp& op, int32_t rows, int32_t num_workers)
      : op_(op),
        rows_(rows),
        num_blocks_(ceil_div(rows, most_rows(op))),
        block_rows_(ceil_div(ceil_div(rows, larger(num_blocks_, 1)), kTileRows) * kTileRows),
        piece_panels_(panels_per_piece(op, num_workers, rows)),
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
  // Whole tiles, so that blocks that are rounded up to whole tiles are never more than the rows fill.
  static int32_t most_rows(const LinearOp& op) {
    const auto rows = static_cast<int32_t>(kRowBlockBytes / (2 * int64_t{op.depth}));
    return larger(rows / kTileRows * kTileRows, 4 * kTileRows);
  }

  void set(int32_t number, int32_t num_panels, Piece& piece) const {
    piece.part = part_;
    piece.first_column = first_column_;
    piece.panel_begin = number / num_blocks_ * piece_panels_;
    piece.panel_end = smaller(piece.panel_begin + piece_panels_, num_panels);
    piece.row_begin = number % num_blocks_ * block_rows_;
    piece.row_end = smaller(piece.row_begin + block_rows_, rows_);
    piece.out = op_.out + piece.row_begin * int64_t{op_.out_width} + first_column_ + piece.panel_begin * kPanelColumns;
    piece.out_stride = op_.out_width;
  }

  const LinearOp& op_;
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
  piece.kv_ahead = next.kv_ahead = &worker.kv_ahead;
  bool found = walk.find(claim(worker, 1), piece);
  while (found) {
    found = walk.find(claim(worker, 1), next);
    piece.following = found ? next.panel(next.panel_begin) : piece.panel(piece.panel_end);
    if (op.gated == nullptr) {
      run_any_piece(op, piece);
    } else {
      run_gated_piece(op, piece, worker.scratch);
    }
    piece = next;
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
