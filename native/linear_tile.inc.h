// linear's tiles: the sums of a few rows by a few column vectors over k. Arithmetic: docs/adr/0001-arithmetic.md.
//
// A tile is kRows rows by kCols column vectors (kWidth columns each). One row and many run the same
// operations per output; only how many outputs are in flight differs.
#pragma once

#include "elementwise.inc.h"
#include "linear.h"

namespace octavo::OCTAVO_ISA {
namespace {

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
  static constexpr int kNumScales = kTwoMinima ? 4 : kHasMinimum || kTwoScales ? 2 : 1;
  static constexpr int kScaleBytes = kScaleVectorBytes * kNumScales;
  static constexpr int kGroupStride = kBundlePanels * (kQuantBytes + kScaleBytes);

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

// Exact sums over half `which` of a group: kCols column vectors by kRows rows, weights 0 … 15. A quad of activations is
// loaded once for all columns: loads are as scarce as multiplications. One half at a time, since a register that has to
// go to memory meanwhile takes the multipliers' time (AVX-512: of both, for a cycle).
template <int kRows, int kCols>
OCTAVO_INLINE void sum_four_bits(const IntegerColumns (&columns)[kCols], const QuantizedGroup* x, int64_t x_stride,
                                 int which, vi (&half)[kRows][kCols]) {
  quad_sum sum[kRows][kCols];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kCols; ++c) sum[r][c] = quad_zero();
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    vbytes weights[kCols];
#pragma GCC unroll 16
    for (int c = 0; c < kCols; ++c) {
      const vbytes both = load_bytes(columns[c].quants + j * kQuantStride);
      weights[c] = which == 0 ? low_nibbles(both) : high_nibbles(both);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const vbytes quad = splat_quad(x[r * x_stride].q + which * 16 + 4 * j);
#pragma GCC unroll 16
      for (int c = 0; c < kCols; ++c) sum[r][c] = quad_add(sum[r][c], weights[c], quad);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kCols; ++c) half[r][c] = quad_total(sum[r][c]);
  }
}

// The same with signed weights of 8 bits.
template <int kRows, int kCols>
OCTAVO_INLINE void sum_eight_bits(const IntegerColumns (&columns)[kCols], const QuantizedGroup* x, int64_t x_stride,
                                  int which, vi (&half)[kRows][kCols]) {
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kCols; ++c) half[r][c] = signed_start(x[r * x_stride].minus_128_sum[which]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    signed_weights weights[kCols];
    for (int c = 0; c < kCols; ++c) weights[c] = prepare_signed(load_bytes(columns[c].quants + (which * 4 + j) * kQuantStride));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const vbytes quad = splat_quad(x[r * x_stride].q + which * 16 + 4 * j);
#pragma GCC unroll 16
      for (int c = 0; c < kCols; ++c) half[r][c] = signed_add(half[r][c], weights[c], quad);
    }
  }
}

OCTAVO_INLINE float quant_sum(const QuantizedGroup& group, int half) {
  return static_cast<float>(group.minus_128_sum[half]) * (-1.0f / 128);  // exact
}

// A group's exact sums of one row and column vector become a product, added to `sum`.
template <class F>
OCTAVO_INLINE vf add_product(vf sum, vi half0, vi half1, const QuantizedGroup& group, const vf (&scale)[F::kNumScales]) {
  const vf first = mul(to_float(half0), vsplat(group.scale[0]));
  if constexpr (F::kTwoScales) {
    sum = fma(first, scale[0], sum);
    sum = fma(mul(to_float(half1), vsplat(group.scale[1])), scale[1], sum);
  } else {
    sum = fma(fma(to_float(half1), vsplat(group.scale[1]), first), scale[0], sum);
  }
  if constexpr (F::kHasMinimum) sum = fma(scale[1], vsplat(group.minimum_factor), sum);
  if constexpr (F::kTwoMinima) {
    for (int half = 0; half < 2; ++half) {
      sum = fma(scale[2 + half], vsplat(group.scale[half] * quant_sum(group, half)), sum);
    }
  }
  return sum;
}

// Adds one group's products to `acc`.
template <class F, int kRows, int kCols>
OCTAVO_INLINE void add_group(const IntegerColumns (&columns)[kCols], const QuantizedGroup* x, int64_t x_stride,
                             vf (&acc)[kRows][kCols]) {
  vi half0[kRows][kCols];
  vi half1[kRows][kCols];
  if constexpr (F::kFourBits) {
    sum_four_bits(columns, x, x_stride, 0, half0);
    sum_four_bits(columns, x, x_stride, 1, half1);
  } else {
    sum_eight_bits(columns, x, x_stride, 0, half0);
    sum_eight_bits(columns, x, x_stride, 1, half1);
  }
  vf scale[kCols][F::kNumScales];
#pragma GCC unroll 16
  for (int c = 0; c < kCols; ++c) {
#pragma GCC unroll 4
    for (int i = 0; i < F::kNumScales; ++i) scale[c][i] = F::load_scale(columns[c].scales + i * F::kScaleVectorBytes);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kCols; ++c) {
      acc[r][c] = add_product<F>(acc[r][c], half0[r][c], half1[r][c], x[r * x_stride], scale[c]);
    }
  }
}

// How many panels kCols column vectors are from, or one of which they are a part.
constexpr int panels_of(int cols) { return cols > kParts ? cols / kParts : 1; }

// What the tiles of many rows ask for between their groups, a few lines at a time: a core may wait for a few dozen lines at once,
// and who asks for more waits with its products, too.
class LinesAhead {
 public:
  LinesAhead() = default;  // nothing
  // `bytes` from `begin` on, in `num_parts` parts.
  LinesAhead(const std::byte* begin, int64_t bytes, int64_t num_parts)
      : next_(begin), end_(begin + bytes), step_(bytes / num_parts / 64 * 64 + 64) {}

  [[gnu::always_inline]] void fetch() {
    if (next_ >= end_) return;
    for (int64_t byte = 0; byte < step_; byte += 64) prefetch(next_ + byte);
    next_ += step_;
  }

 private:
  const std::byte* next_ = nullptr;
  const std::byte* end_ = nullptr;
  int64_t step_ = 0;
};

// What a tile is of: a bundle, or several float panels.
struct TilePanels {
  const Panels& part;
  int32_t index;  // of the first panel
  const std::byte* bundle;
  const std::byte* following;  // the bundle that the worker reads afterwards
  WeightPrefetch prefetch;
  KvAhead& kv_ahead;
  LinesAhead lines_ahead{};
};

// Weights come from memory about once per step. What is fetched is what the tile reads a little later, in the next bundle once
// it is through with its own: far enough ahead for memory to answer, near enough for the caches to hold it.
template <class F>
class Prefetch {
 public:
  Prefetch(const TilePanels& panels, int num_rows)
      : num_groups_(panels.part.depth / kGroupSize),
        groups_(groups_ahead(panels.prefetch)),
        bundle_(panels.bundle),
        following_(panels.following),
        is_nearby_(panels.prefetch == WeightPrefetch::kSecondLevel),
        begin_(is_nearby_ && num_rows == 1 ? begin_of_jump(panels) : 0) {}

  // While the tile runs over a group. From front to back: in another order memory answers a tenth slower.
  [[gnu::always_inline]] void run(int64_t group) const {
    const int64_t wanted = group + groups_;
    if (wanted < begin_) return;
    const std::byte* from = wanted < num_groups_ ? bundle_ + wanted * F::kGroupStride
                                                 : following_ + (wanted - num_groups_) * F::kGroupStride;
    // No function in between: a compiler that takes it for one without effects drops it.
    if (is_nearby_) {
#pragma GCC unroll 32
      for (int line = 0; line < F::kGroupStride; line += 64) prefetch_nearby(from + line);
    } else {
#pragma GCC unroll 32
      for (int line = 0; line < F::kGroupStride; line += 64) prefetch(from + line);
    }
  }

 private:
  // Of groups, on from this bundle's.
  int64_t begin_of_jump(const TilePanels& panels) const {
    return following_ == bundle_ + panels.part.bundle_bytes ? INT64_MAX : num_groups_;
  }

  int64_t groups_ahead(WeightPrefetch prefetch) const {
    const int64_t groups = prefetch == WeightPrefetch::kJustAhead ? kJustAhead : kFarAhead;
    return num_groups_ < groups ? num_groups_ : groups;
  }

  // docs/benchmarks/kernel-log.md has others
  static constexpr int kFarAhead = 12;
  static constexpr int kJustAhead = 1280 / F::kGroupStride;
  static_assert(kJustAhead > 0);

  int64_t num_groups_;  // of a bundle
  int64_t groups_;      // ahead
  const std::byte* bundle_;
  const std::byte* following_;
  bool is_nearby_;
  int64_t begin_;  // what comes before is not asked for
};

// The tile's sums over k. Column vector c is slice (first_slice + c) % kParts of panel (first_slice + c) / kParts.
template <PanelKind kKind, bool kFetches, int kRows, int kCols>
OCTAVO_INLINE void integer_tile(TilePanels& panels, int first_slice, const QuantizedGroup* x, int64_t x_stride,
                                vf (&acc)[kRows][kCols]) {
  using F = Format<kKind>;
  const int64_t num_groups = panels.part.depth / kGroupSize;
  const Prefetch<F> ahead(panels, kRows);
  IntegerColumns columns[kCols];
#pragma GCC unroll 16
  for (int c = 0; c < kCols; ++c) {
    const int slice = (first_slice + c) % kParts, panel = (first_slice + c) / kParts;
    const std::byte* scales = panels.bundle + kBundlePanels * F::kQuantBytes;
    columns[c].quants = panels.bundle + panel * 64 + slice * kWidth * 4;
    columns[c].scales = scales + panel * F::kScaleBytes + slice * kWidth * F::kScaleSize;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) acc[r][c] = vsplat(0.0f);
  }
  for (int64_t g = 0; g < num_groups; ++g) {
    if constexpr (kFetches) {
      if (first_slice == 0) ahead.run(g);
    } else {
      panels.kv_ahead.fetch();
      if (first_slice == 0) panels.lines_ahead.fetch();
    }
    add_group<F>(columns, x + g, x_stride, acc);
#pragma GCC unroll 16
    for (int c = 0; c < kCols; ++c) {
      columns[c].quants += F::kGroupStride;
      columns[c].scales += F::kGroupStride;
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
OCTAVO_INLINE void float_tile(TilePanels& panels, int first_slice, const float* x, int64_t x_stride,
                              vf (&acc)[kRows][kCols]) {
  constexpr int kSize = kKind == PanelKind::kF32 ? 4 : 2;
  const std::byte* columns[kCols];
  for (int c = 0; c < kCols; ++c) {
    const int slice = (first_slice + c) % kParts, panel = (first_slice + c) / kParts;
    columns[c] = panels.bundle + panel * panels.part.stride + slice * kWidth * kSize;
    for (int r = 0; r < kRows; ++r) acc[r][c] = vsplat(0.0f);
  }
  const int64_t depth = panels.part.depth;
  for (int64_t group = 0; group < depth; group += kGroupSize) {
    if (first_slice == 0) panels.lines_ahead.fetch();
    const int64_t end = group + kGroupSize < depth ? group + kGroupSize : depth;
    for (int64_t k = group; k < end; ++k) {
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
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
