// linear: rows times packed panels. Arithmetic: docs/adr/0001-arithmetic.md.
//
// A tile is kRows rows by kCols column vectors (kWidth columns each). One row and many run the same
// operations per output; only how many outputs are in flight differs.
#pragma once

#include "elementwise.inc.h"
#include "linear.h"

namespace octavo::OCTAVO_ISA {
namespace {

#if defined(OCTAVO_SIMD_AVX512)
constexpr int kTileRows = 8;
constexpr int kWideCols = 4;
#elif defined(OCTAVO_SIMD_AVX2)
constexpr int kTileRows = 4;
constexpr int kWideCols = 4;
#elif defined(OCTAVO_SIMD_NEON)
constexpr int kTileRows = 4;
constexpr int kWideCols = 8;
#else
constexpr int kTileRows = 1;
constexpr int kWideCols = 16;
#endif
static_assert(kWideCols % kParts == 0);
constexpr int kWidePanels = kWideCols / kParts;

// Rows whose quantised activations should stay in the second-level cache while panels pass by.
constexpr int64_t kRowBlockBytes = 512 * 1024;

OCTAVO_INLINE int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
OCTAVO_INLINE int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }
OCTAVO_INLINE int32_t ceil_div(int32_t a, int32_t b) { return (a + b - 1) / b; }

// ---- panels -------------------------------------------------------------------------------------------

template <PanelKind kKind>
struct Format {
  static constexpr bool kTwoMinima = kKind == PanelKind::kInt4TwoMinF32;
  static constexpr bool kFourBits = kTwoMinima || kKind == PanelKind::kInt4MinF16 || kKind == PanelKind::kInt4MinF32;
  static constexpr bool kTwoScales = kTwoMinima || kKind == PanelKind::kInt8TwoF32;
  static constexpr bool kHasMinimum = !kTwoScales && kKind != PanelKind::kInt8F16;
  static constexpr bool kFloat32Scales =
      kTwoScales || kKind == PanelKind::kInt4MinF32 || kKind == PanelKind::kInt8MinF32;
  static constexpr int kQuantBytes = kFourBits ? 256 : 512;
  static constexpr int kScaleSize = kFloat32Scales ? 4 : 2;
  static constexpr int kScaleVectorBytes = kPanelColumns * kScaleSize;
  static constexpr int kScaleBytes = kScaleVectorBytes * (kTwoMinima ? 4 : kHasMinimum || kTwoScales ? 2 : 1);

  OCTAVO_INLINE vf load_scale(const std::byte* p) {
    if constexpr (kFloat32Scales) {
      return vload(reinterpret_cast<const float*>(p));
    } else {
      return vload_f16(reinterpret_cast<const uint16_t*>(p));
    }
  }
};

// kWidth columns of an integer panel.
struct IntegerColumns {
  const std::byte* quants;
  const std::byte* scales;
};

// Exact sums over the halves of a group: kWidth columns by kRows rows, weights 0 … 15.
template <int kRows>
OCTAVO_INLINE void sum_four_bits(const std::byte* quants, const QuantizedGroup* x, int64_t x_stride, vi (&half0)[kRows],
                                 vi (&half1)[kRows]) {
  quad_sum sum0[kRows];
  quad_sum sum1[kRows];
  for (int r = 0; r < kRows; ++r) sum0[r] = sum1[r] = quad_zero();
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const vbytes both = load_bytes(quants + j * 64);
    const vbytes low = low_nibbles(both);
    const vbytes high = high_nibbles(both);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      sum0[r] = quad_add(sum0[r], low, splat_quad(x[r * x_stride].q + 4 * j));
      sum1[r] = quad_add(sum1[r], high, splat_quad(x[r * x_stride].q + 16 + 4 * j));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    half0[r] = quad_total(sum0[r]);
    half1[r] = quad_total(sum1[r]);
  }
}

// The same with signed weights of 8 bits, one half at a time.
template <int kRows>
OCTAVO_INLINE void sum_eight_bits(const std::byte* quants, const QuantizedGroup* x, int64_t x_stride, int which,
                                  vi (&half)[kRows]) {
  for (int r = 0; r < kRows; ++r) half[r] = signed_start(x[r * x_stride].minus_128_sum[which]);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const signed_weights weights = prepare_signed(load_bytes(quants + (which * 4 + j) * 64));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      half[r] = signed_add(half[r], weights, splat_quad(x[r * x_stride].q + which * 16 + 4 * j));
    }
  }
}

OCTAVO_INLINE float quant_sum(const QuantizedGroup& group, int half) {
  return static_cast<float>(group.minus_128_sum[half]) * (-1.0f / 128);  // exact
}

// Adds one group's products to `acc`, whose rows are acc_stride apart.
template <PanelKind kKind, int kRows>
OCTAVO_INLINE void add_group(IntegerColumns columns, const QuantizedGroup* x, int64_t x_stride, vf* acc, int acc_stride) {
  using F = Format<kKind>;
  vi half0[kRows];
  vi half1[kRows];
  if constexpr (F::kFourBits) {
    sum_four_bits<kRows>(columns.quants, x, x_stride, half0, half1);
  } else {
    sum_eight_bits<kRows>(columns.quants, x, x_stride, 0, half0);
    sum_eight_bits<kRows>(columns.quants, x, x_stride, 1, half1);
  }
  const vf scale = F::load_scale(columns.scales);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const QuantizedGroup& group = x[r * x_stride];
    const vf first = mul(to_float(half0[r]), vsplat(group.scale[0]));
    vf sum = acc[r * acc_stride];
    if constexpr (F::kTwoScales) {
      const vf second_scale = F::load_scale(columns.scales + F::kScaleVectorBytes);
      sum = fma(first, scale, sum);
      sum = fma(mul(to_float(half1[r]), vsplat(group.scale[1])), second_scale, sum);
    } else {
      sum = fma(fma(to_float(half1[r]), vsplat(group.scale[1]), first), scale, sum);
    }
    if constexpr (F::kHasMinimum) {
      const vf minimum = F::load_scale(columns.scales + F::kScaleVectorBytes);
      sum = fma(minimum, vsplat(group.minimum_factor), sum);
    }
    if constexpr (F::kTwoMinima) {
      for (int half = 0; half < 2; ++half) {
        const vf minimum = F::load_scale(columns.scales + (2 + half) * F::kScaleVectorBytes);
        sum = fma(minimum, vsplat(group.scale[half] * quant_sum(group, half)), sum);
      }
    }
    acc[r * acc_stride] = sum;
  }
}

// Weights come from memory about once per step, and the processor's own prefetching stops at each page and each
// jump. What is fetched is what the tile reads a little later, in the next panels once it is through with its own:
// far enough ahead for memory to answer, near enough for the first-level cache to hold it.
class Prefetch {
 public:
  Prefetch(const Panels& part, int num_panels)
      : num_groups_(part.depth / kGroupSize),
        groups_(num_groups_ < kGroupsAhead / num_panels ? num_groups_ : kGroupsAhead / num_panels),
        jump_(num_panels * part.stride) {}

  template <class F>
  [[gnu::always_inline]] void run(IntegerColumns columns, int64_t group) const {
    const bool leaves = group + groups_ >= num_groups_;
    const int64_t distance = leaves ? groups_ - num_groups_ : groups_, jump = leaves ? jump_ : 0;
#pragma GCC unroll 8
    for (int line = 0; line < F::kQuantBytes; line += 64) {
      prefetch(columns.quants + distance * F::kQuantBytes + jump + line);
    }
#pragma GCC unroll 2
    for (int line = 0; line < F::kScaleBytes; line += 64) {
      prefetch(columns.scales + distance * F::kScaleBytes + jump + line);
    }
  }

 private:
  static constexpr int kGroupsAhead = 24;  // of all panels together; docs/benchmarks/kernel-log.md has others

  int64_t num_groups_;  // of a panel
  int64_t groups_;      // ahead
  int64_t jump_;  // bytes from a panel of the tile to the one that follows it in the same place
};

// The tile's sums over k. Column vector c is slice (first_slice + c) % kParts of panel (first_slice + c) / kParts.
template <PanelKind kKind, int kRows, int kCols>
OCTAVO_INLINE void integer_tile(const Panels& part, const std::byte* panel, int first_slice, const QuantizedGroup* x,
                                int64_t x_stride, bool fetches, vf (&acc)[kRows][kCols]) {
  using F = Format<kKind>;
  const int64_t num_groups = part.depth / kGroupSize;
  const Prefetch ahead(part, kCols > kParts ? kCols / kParts : 1);
  IntegerColumns columns[kCols];
  for (int c = 0; c < kCols; ++c) {
    const int slice = (first_slice + c) % kParts;
    const std::byte* base = panel + (first_slice + c) / kParts * part.stride;
    columns[c].quants = base + slice * kWidth * 4;
    columns[c].scales = base + num_groups * F::kQuantBytes + slice * kWidth * F::kScaleSize;
    for (int r = 0; r < kRows; ++r) acc[r][c] = vsplat(0.0f);
  }
  for (int64_t g = 0; g < num_groups; ++g) {
#pragma GCC unroll 16
    for (int c = 0; c < kCols; ++c) {
      if (fetches && (first_slice + c) % kParts == 0) ahead.run<F>(columns[c], g);
      add_group<kKind, kRows>(columns[c], x + g, x_stride, &acc[0][c], kCols);
      columns[c].quants += F::kQuantBytes;
      columns[c].scales += F::kScaleBytes;
    }
  }
}

template <PanelKind kKind>
OCTAVO_INLINE vf load_weights(const std::byte* p) {
  if constexpr (kKind == PanelKind::kF32) return vload(reinterpret_cast<const float*>(p));
  if constexpr (kKind == PanelKind::kF16) return vload_f16(reinterpret_cast<const uint16_t*>(p));
  if constexpr (kKind == PanelKind::kBF16) return vload_bf16(reinterpret_cast<const uint16_t*>(p));
}

template <PanelKind kKind, int kRows, int kCols>
OCTAVO_INLINE void float_tile(const Panels& part, const std::byte* panel, int first_slice, const float* x,
                              int64_t x_stride, vf (&acc)[kRows][kCols]) {
  constexpr int kSize = kKind == PanelKind::kF32 ? 4 : 2;
  const std::byte* columns[kCols];
  for (int c = 0; c < kCols; ++c) {
    columns[c] = panel + (first_slice + c) / kParts * part.stride + (first_slice + c) % kParts * kWidth * kSize;
    for (int r = 0; r < kRows; ++r) acc[r][c] = vsplat(0.0f);
  }
  for (int64_t k = 0; k < part.depth; ++k) {
    vf weights[kCols];
#pragma GCC unroll 16
    for (int c = 0; c < kCols; ++c) weights[c] = load_weights<kKind>(columns[c] + k * kPanelColumns * kSize);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const vf value = vsplat(x[r * x_stride + k]);
#pragma GCC unroll 16
      for (int c = 0; c < kCols; ++c) acc[r][c] = fma(value, weights[c], acc[r][c]);
    }
  }
}

// ---- results ------------------------------------------------------------------------------------------

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
};

template <PanelKind kKind, int kRows, int kCols>
void run_tile(const LinearOp& op, const Piece& piece, int32_t panel, int first_slice, int32_t row) {
  vf acc[kRows][kCols];
  const std::byte* weights = piece.part->data + panel * piece.part->stride;
  if constexpr (is_integer(kKind)) {
    const int64_t stride = op.depth / kGroupSize;
    const bool fetches = row == piece.row_begin;  // later rows find the panel in the cache
    integer_tile<kKind, kRows, kCols>(*piece.part, weights, first_slice, op.quantized + row * stride, stride, fetches, acc);
  } else {
    const float* x = op.x + static_cast<int64_t>(row) * op.depth;
    float_tile<kKind, kRows, kCols>(*piece.part, weights, first_slice, x, op.depth, acc);
  }
  for (int c = 0; c < kCols; ++c) {
    const int32_t column = panel * kPanelColumns + (first_slice + c) * kWidth;
    const int32_t count = piece.part->num_columns - column;
    for (int r = 0; r < kRows; ++r) write_columns(op, row + r, piece.first_column + column, count, acc[r][c]);
  }
}

template <PanelKind kKind, int kRows>
OCTAVO_INLINE int32_t run_rows(const LinearOp& op, const Piece& piece, int32_t panel, int32_t row) {
  // Integer tiles are one vector wide, because a row needs three registers per vector; float tiles need one.
  constexpr int kCols = is_integer(kKind) && kRows > 1 ? 1 : kParts;
  for (; row + kRows <= piece.row_end; row += kRows) {
    for (int slice = 0; slice < kParts; slice += kCols) run_tile<kKind, kRows, kCols>(op, piece, panel, slice, row);
  }
  return row;
}

template <PanelKind kKind>
void run_piece(const LinearOp& op, const Piece& piece) {
  int32_t panel = piece.panel_begin;
  if (piece.row_end - piece.row_begin == 1) {  // several panels at once hide the latency of fma
    for (; panel + kWidePanels <= piece.panel_end; panel += kWidePanels) {
      run_tile<kKind, 1, kWideCols>(op, piece, panel, 0, piece.row_begin);
    }
  }
  for (; panel < piece.panel_end; ++panel) {
    int32_t row = run_rows<kKind, kTileRows>(op, piece, panel, piece.row_begin);
    if constexpr (kTileRows > 4) row = run_rows<kKind, 4>(op, piece, panel, row);
    if constexpr (kTileRows > 2) row = run_rows<kKind, 2>(op, piece, panel, row);
    if constexpr (kTileRows > 1) run_rows<kKind, 1>(op, piece, panel, row);
  }
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
  run_any_piece(op, piece);
  piece.part = op.parts + 1;
  piece.first_column = op.gated->width;
  run_any_piece(op, piece);
  const int32_t begin = piece.panel_begin * kPanelColumns;
  const int32_t end = smaller(piece.panel_end * kPanelColumns, op.gated->width);
  for (int32_t row = piece.row_begin; row < piece.row_end; ++row) activate_columns(*op.gated, row, begin, end);
}

// ---- sharing the work out -----------------------------------------------------------------------------

// Panels of one piece: a multiple of what one row takes at once, and of a quantised group's two.
OCTAVO_INLINE int32_t panels_per_piece(const LinearOp& op, int32_t num_workers) {
  constexpr int32_t kMultiple = kWidePanels > 2 ? kWidePanels : 2;
  const int32_t columns = op.gated == nullptr ? op.out_width : op.gated->width;
  const int32_t wanted = columns / kPanelColumns / (8 * num_workers);
  return larger(1, smaller(wanted, 32) / kMultiple) * kMultiple;
}

// Pieces are numbered part by part, panels first, row blocks last: neighbours share their weights. The two parts of
// a gated linear count as one.
void linear(const LinearOp& op, const StepView& step, Worker& worker) {
  const int32_t rows = num_rows(step, op.rows);
  const int64_t bytes_per_row = 2 * static_cast<int64_t>(op.depth);
  const int32_t fitting = static_cast<int32_t>(kRowBlockBytes / bytes_per_row);
  const int32_t block_rows = larger(fitting / kTileRows, 4) * kTileRows;
  const int32_t num_blocks = ceil_div(rows, block_rows);
  const int32_t piece_panels = panels_per_piece(op, worker.count);
  const Panels* const parts_end = op.parts + (op.gated == nullptr ? op.num_parts : 1);

  Piece piece{op.parts, 0, 0, 0, 0, 0};
  int64_t part_begin = 0;  // number of the part's first piece
  for (int64_t item = claim(worker, 1);; item = claim(worker, 1)) {
    int32_t num_panels = 0;
    for (;;) {
      if (piece.part == parts_end) return;
      num_panels = ceil_div(piece.part->num_columns, kPanelColumns);
      const int64_t part_end = part_begin + static_cast<int64_t>(ceil_div(num_panels, piece_panels)) * num_blocks;
      if (item < part_end) break;
      part_begin = part_end;
      piece.first_column += piece.part->num_columns;
      ++piece.part;
    }
    const int32_t local = static_cast<int32_t>(item - part_begin);
    piece.panel_begin = local / num_blocks * piece_panels;
    piece.panel_end = smaller(piece.panel_begin + piece_panels, num_panels);
    piece.row_begin = local % num_blocks * block_rows;
    piece.row_end = smaller(piece.row_begin + block_rows, rows);
    if (op.gated == nullptr) {
      run_any_piece(op, piece);
    } else {
      run_gated_piece(op, piece);
    }
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
