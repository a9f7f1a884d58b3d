// linear: rows times packed panels. Arithmetic: docs/adr/0001-arithmetic.md.
#pragma once

#include "linear_tile.inc.h"

namespace octavo::OCTAVO_ISA {
namespace {

#if defined(OCTAVO_SIMD_AVX512)
constexpr int kTileRows = 4;
constexpr int kTileCols = 2;  // column vectors of an integer tile of several rows
constexpr int kWideCols = 2, kWideFloatCols = 4;  // of a tile of one row
#elif defined(OCTAVO_SIMD_AVX2)
constexpr int kTileRows = 4;
constexpr int kTileCols = 2;  // some sums go to memory meanwhile, which costs less than loading quads twice as often
constexpr int kWideCols = 4, kWideFloatCols = 4;
#elif defined(OCTAVO_SIMD_NEON)
constexpr int kTileRows = 4;
constexpr int kTileCols = 1;
constexpr int kWideCols = 8, kWideFloatCols = 8;
#else
constexpr int kTileRows = 1;
constexpr int kTileCols = 1;
constexpr int kWideCols = 32, kWideFloatCols = 16;
#endif
static_assert(kWideCols == kBundlePanels * kParts && kWideFloatCols % kParts == 0);
static_assert(kWidePieceMultiple % panels_of(kWideFloatCols) == 0);

// Rows whose quantised activations should stay in the second-level cache while panels pass by.
constexpr int64_t kRowBlockBytes = 512 * 1024;

// With so many rows for each worker, every worker reads all weights for rows of its own, the same in all linear layers and norms:
// weights that come once more from memory cost less than rows that move from core to core (ADR 0020).
constexpr int32_t kLeastOwnRows = 64;

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
  const std::byte* following;  // the bundle that the worker reads afterwards
  WeightPrefetch prefetch;
  KvAhead* kv_ahead;

  float* out_at(int32_t row, int32_t column) const {
    return out + (row - row_begin) * out_stride + column - panel_begin * kPanelColumns;
  }
  TilePanels tile_panels(int32_t first, int32_t count) const {
    const int32_t next = first + count;
    return {*part, first, part->bundle_of(first), next < panel_end ? part->bundle_of(next) : following,
            prefetch, *kv_ahead, {}};
  }
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
void run_tile(const LinearOp& op, const Piece& piece, TilePanels& panels, int first_slice, int32_t row) {
  vf acc[kRows][kCols];
  const int32_t column = panels.index * kPanelColumns + first_slice * kWidth;
  float* const out = piece.out_at(row, column);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kCols; ++c) prefetch_to_write(out + r * piece.out_stride + c * kWidth);
  }
  if constexpr (is_integer(kKind)) {
    const int64_t stride = op.depth / kGroupSize;
    integer_tile<kKind, kFetches>(panels, first_slice, op.quantized + row * stride, stride, acc);
  } else {
    const float* x = op.x + static_cast<int64_t>(row) * op.depth;
    float_tile<kKind, kRows, kCols>(panels, first_slice, x, op.depth, acc);
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

// A bundle by all rows of the piece that there are whole tiles for, kCols column vectors at a time. Returns the row after them.
template <PanelKind kKind, bool kFetches, int kRows, int kCols>
OCTAVO_INLINE int32_t run_rows(const LinearOp& op, const Piece& piece, TilePanels& panels, int32_t row,
                               int32_t row_end) {
  for (; row + kRows <= row_end; row += kRows) {
    for (int slice = 0; slice < panels_in_bundle(kKind) * kParts; slice += kCols) {
      run_tile<kKind, kFetches, kRows, kCols>(op, piece, panels, slice, row);
    }
  }
  return row;
}

// The first rows of a piece of few; what they read next comes while they run. Returns the row after them.
template <PanelKind kKind, int kCols>
OCTAVO_INLINE int32_t run_first_rows(const LinearOp& op, const Piece& piece, TilePanels& panels) {
  constexpr bool kFetches = is_integer(kKind);
  const int32_t row = piece.row_begin, rows = piece.row_end - row;
  if (rows >= kTileRows) return run_rows<kKind, kFetches, kTileRows, kCols>(op, piece, panels, row, row + kTileRows);
  if constexpr (kTileRows > 2) {
    if (rows >= 2) return run_rows<kKind, kFetches, 2, kCols>(op, piece, panels, row, row + 2);
  }
  return run_rows<kKind, kFetches, 1, kCols>(op, piece, panels, row, row + 1);
}

// Whole tiles of a piece of many rows. All share the work of fetching the bundle that follows; so they find their own one in the
// cache, but for a worker's first. Returns the row after them.
template <PanelKind kKind, int kCols>
OCTAVO_INLINE int32_t run_whole_tiles(const LinearOp& op, const Piece& piece, TilePanels& panels) {
  const std::byte* following = panels.following;
  const int64_t share = piece.part->bundle_bytes / ((piece.row_end - piece.row_begin) / kTileRows);
  int32_t row = piece.row_begin;
  for (; row + kTileRows <= piece.row_end; row += kTileRows, following += share) {
    panels.lines_ahead = {following, share, ceil_div(op.depth, kGroupSize)};
    run_rows<kKind, false, kTileRows, kCols>(op, piece, panels, row, row + kTileRows);
  }
  return row;
}

// A bundle by all rows of the piece.
template <PanelKind kKind, int kCols>
OCTAVO_INLINE void run_bundle(const LinearOp& op, const Piece& piece, int32_t panel) {
  TilePanels panels = piece.tile_panels(panel, panels_in_bundle(kKind));
  const bool many_rows = piece.row_end - piece.row_begin >= 2 * kTileRows;
  int32_t row = many_rows ? run_whole_tiles<kKind, kCols>(op, piece, panels) : run_first_rows<kKind, kCols>(op, piece, panels);
  if constexpr (kTileRows > 2) row = run_rows<kKind, false, 2, kCols>(op, piece, panels, row, piece.row_end);
  if constexpr (kTileRows > 1) run_rows<kKind, false, 1, kCols>(op, piece, panels, row, piece.row_end);
}

template <PanelKind kKind>
void run_piece(const LinearOp& op, const Piece& piece) {
  // A row of an integer tile needs three registers per vector, one of a float tile one.
  constexpr int kCols = is_integer(kKind) ? kTileCols : kParts;
  int32_t panel = piece.panel_begin;
  if (piece.row_end - piece.row_begin == 1) {  // several vectors at once hide the latency of fma
    constexpr int kWide = is_integer(kKind) ? kWideCols : kWideFloatCols, kPanels = panels_of(kWide);
    for (; panel + kPanels <= piece.panel_end; panel += kPanels) {
      TilePanels panels = piece.tile_panels(panel, kPanels);
      run_tile<kKind, is_integer(kKind), 1, kWide>(op, piece, panels, 0, piece.row_begin);
    }
  }
  for (; panel < piece.panel_end; panel += panels_in_bundle(kKind)) run_bundle<kKind, kCols>(op, piece, panel);
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

// A piece of gates, and the same columns of ups.
struct GatedPiece {
  Piece gate, up;
};

// Gates and ups of the rows, a bundle of each in turns, as they lie in memory (floats, which do not, all of each).
inline void run_both(const LinearOp& op, const GatedPiece& both) {
  const int32_t begin = both.gate.panel_begin, end = both.gate.panel_end;
  const int32_t step = is_integer(both.gate.part->kind) ? kBundlePanels : end - begin;
  Piece gate = both.gate, up = both.up;
  for (int32_t panel = begin; panel < end; panel += step) {
    gate.panel_begin = up.panel_begin = panel;
    gate.panel_end = up.panel_end = smaller(panel + step, end);
    gate.out = both.gate.out + (panel - begin) * kPanelColumns;
    up.out = both.up.out + (panel - begin) * kPanelColumns;
    gate.following = up.part->bundle_of(panel);
    up.following = gate.panel_end < end ? gate.part->bundle_of(gate.panel_end) : both.up.following;
    run_any_piece(op, gate);
    run_any_piece(op, up);
  }
}

// Both halves of the piece's columns, then their activation, some rows at a time. Nobody else reads gates and ups, so they
// stay in the worker's own memory, where rows lie close together: rows of `op.out` may be multiples of a page apart, and a
// first-level cache has room for few of those.
inline void run_gated_piece(const LinearOp& op, const Piece& piece, std::byte* scratch) {
  const int32_t begin = piece.panel_begin * kPanelColumns;
  const int32_t columns = piece.panel_end * kPanelColumns - begin;
  const int32_t most_rows = static_cast<int32_t>(kGatedBlockBytes / (2 * columns * static_cast<int64_t>(sizeof(float))));
  const int32_t block_rows = larger(most_rows / kTileRows * kTileRows, kTileRows);
  GatedPiece both{piece, piece};
  auto& [gate, up] = both;
  gate.out = reinterpret_cast<float*>(scratch);
  up.out = gate.out + columns;
  gate.out_stride = up.out_stride = 2 * columns;
  up.part = op.parts + 1;
  up.first_column = op.gated->width;
  for (int32_t row = piece.row_begin; row < piece.row_end; row += block_rows) {
    gate.row_begin = up.row_begin = row;
    gate.row_end = up.row_end = smaller(row + block_rows, piece.row_end);
    up.following = up.row_end == piece.row_end ? piece.following : gate.part->bundle_of(gate.panel_begin);
    run_both(op, both);
    activate(*op.gated, {gate.out, up.out, gate.out_stride, row, gate.row_end, begin,
                         smaller(begin + columns, op.gated->width)});
  }
}

// ---- sharing the work out -----------------------------------------------------------------------------

// Pieces are panels, part by part, of blocks of rows. The two parts of a gated linear count as one. Few rows: neighbours share
// their panels, and so their weights. Many: they share their rows, and each worker's share of the pieces is rows of its own.
class PieceWalk {
 public:
  PieceWalk(const LinearOp& op, int32_t rows, int32_t num_workers)
      : op_(op),
        rows_(rows),
        by_rows_(num_workers > 1 && rows / kLeastOwnRows >= num_workers),
        block_rows_(rows_of_block(op, by_rows_ ? num_workers : 1)),
        num_blocks_(ceil_div(rows, block_rows_)),
        piece_panels_(panels_per_piece(op, num_workers, rows)),
        num_panel_pieces_(num_panel_pieces(op, piece_panels_)) {}

  // Claims a piece. False: none is left.
  bool claim_next(Worker& worker, Piece& piece) const {
    const int64_t num_pieces = num_panel_pieces_ * num_blocks_;
    const int64_t number = claim_nearby(worker, num_pieces);
    if (number >= num_pieces) return false;
    set(number, piece);
    return true;
  }

 private:
  // Whole tiles, as many rows as stay near the core or fewer; blocks are as many as a multiple of `owners` if rows allow it.
  int32_t rows_of_block(const LinearOp& op, int32_t owners) const {
    const auto most = static_cast<int32_t>(kRowBlockBytes / (2 * int64_t{op.depth}));
    const int32_t blocks = ceil_div(rows_, larger(most / kTileRows * kTileRows, 4 * kTileRows));
    const int32_t rows = ceil_div(rows_, larger(ceil_div(blocks, owners) * owners, 1));
    return larger(ceil_div(rows, kTileRows), 1) * kTileRows;
  }

  void set(int64_t number, Piece& piece) const {
    const int64_t panel_piece = by_rows_ ? number % num_panel_pieces_ : number / num_blocks_;
    const auto block = static_cast<int32_t>(by_rows_ ? number / num_panel_pieces_ : number % num_blocks_);
    const PanelPiece panels = find_panels(op_, piece_panels_, panel_piece);
    piece.part = op_.parts + panels.part;
    piece.first_column = panels.first_column;
    piece.panel_begin = panels.panel;
    piece.panel_end = smaller(panels.panel + piece_panels_, piece.part->num_panels());
    piece.row_begin = block * block_rows_;
    piece.row_end = smaller(piece.row_begin + block_rows_, rows_);
    piece.out = op_.out + piece.row_begin * int64_t{op_.out_width} + piece.first_column + panels.panel * kPanelColumns;
    piece.out_stride = op_.out_width;
  }

  const LinearOp& op_;
  const int32_t rows_;
  const bool by_rows_;
  const int32_t block_rows_, num_blocks_, piece_panels_;
  const int64_t num_panel_pieces_;
};

inline const std::byte* after_last(const Piece& piece, const Worker& worker) {
  if (worker.next_weights != nullptr) return worker.next_weights;
  return piece.part->bundle_of(piece.panel_end + panels_in_bundle(piece.part->kind) - 1);
}

// A worker claims its next piece before it runs one, to know what to fetch meanwhile.
void linear(const LinearOp& op, const StepView& step, Worker& worker) {
  const PieceWalk walk(op, num_rows(step, op.rows), worker.count);
  Piece piece{}, next{};
  piece.prefetch = next.prefetch = worker.weight_prefetch;
  piece.kv_ahead = next.kv_ahead = &worker.kv_ahead;
  bool found = walk.claim_next(worker, piece);
  while (found) {
    found = walk.claim_next(worker, next);
    piece.following = found ? next.part->bundle_of(next.panel_begin) : after_last(piece, worker);
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
