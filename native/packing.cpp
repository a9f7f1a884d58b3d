#include "packing.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <string>

#include "error.h"
#include "half.h"
#include "memory.h"

namespace octavo {

namespace {

// The largest float16; -8 times a Q4_0 scale must not exceed it.
constexpr float kLargestHalf = 65504.0f;

struct PanelFormat {
  int32_t quant_bytes;  // per group of 32, or per k of a float panel
  int32_t scale_size;
  int32_t num_scales;  // per column and group: scales and minima
};

PanelFormat panel_format(PanelKind kind) {
  switch (kind) {
    case PanelKind::kInt4MinF16: return {256, 2, 2};
    case PanelKind::kInt4MinF32: return {256, 4, 2};
    case PanelKind::kInt8F16: return {512, 2, 1};
    case PanelKind::kInt8MinF16: return {512, 2, 2};
    case PanelKind::kInt8MinF32:
    case PanelKind::kInt8TwoF32: return {512, 4, 2};
    case PanelKind::kInt4TwoMinF32: return {256, 4, 4};
    case PanelKind::kF32: return {4 * kPanelColumns, 0, 0};
    case PanelKind::kF16:
    case PanelKind::kBF16: return {2 * kPanelColumns, 0, 0};
  }
  throw Error("unknown panel kind");
}

int32_t scale_bytes(const PanelFormat& format) { return kPanelColumns * format.scale_size * format.num_scales; }

// From one group (float panels: one k) to the next.
int64_t group_bytes(PanelKind kind) {
  const PanelFormat format = panel_format(kind);
  return int64_t{panels_in_bundle(kind)} * (format.quant_bytes + scale_bytes(format));
}

bool minima_fit_half(const RawWeight& weight) {
  const int64_t num_blocks = weight.rows * weight.columns / 32;
  for (int64_t i = 0; i < num_blocks; ++i) {
    uint16_t scale;
    std::memcpy(&scale, weight.bytes + i * block_format(weight.quantization).bytes, sizeof(scale));
    if (!(__builtin_fabsf(8.0f * half_to_float(scale)) <= kLargestHalf)) return false;
  }
  return true;
}

PanelKind panel_kind(const RawWeight& weight) {
  switch (weight.quantization) {
    case Quantization::kF32: return PanelKind::kF32;
    case Quantization::kF16: return PanelKind::kF16;
    case Quantization::kBF16: return PanelKind::kBF16;
    case Quantization::kQ4_0: return minima_fit_half(weight) ? PanelKind::kInt4MinF16 : PanelKind::kInt4MinF32;
    case Quantization::kQ4_1: return PanelKind::kInt4MinF16;
    case Quantization::kQ4_K: return PanelKind::kInt4MinF32;
    case Quantization::kQ5_0:
    case Quantization::kIQ4_NL:
    case Quantization::kQ8_0: return PanelKind::kInt8F16;
    case Quantization::kQ5_1: return PanelKind::kInt8MinF16;
    case Quantization::kQ5_K: return PanelKind::kInt8MinF32;
    case Quantization::kIQ4_XS:
    case Quantization::kQ6_K: return PanelKind::kInt8TwoF32;
    case Quantization::kQ2_K:
    case Quantization::kQ3_K: return PanelKind::kInt4TwoMinF32;
  }
  throw Error("unknown quantisation");
}

void store_number(std::byte* destination, float value, int32_t size) {
  if (size == 4) {
    std::memcpy(destination, &value, sizeof(value));
  } else {
    const uint16_t half = float_to_half(value);
    std::memcpy(destination, &half, sizeof(half));
  }
}

// A column's 32 weights of one group into its lane of the group's vectors.
void store_quants(const DecodedGroup& group, bool four_bits, std::byte* lane) {
  for (int j = 0; j < (four_bits ? 4 : 8); ++j) {
    uint32_t quad;
    std::memcpy(&quad, group.q + 4 * j, sizeof(quad));
    if (four_bits) {
      uint32_t second_half;
      std::memcpy(&second_half, group.q + 16 + 4 * j, sizeof(second_half));
      quad |= second_half << 4;
    }
    std::memcpy(lane + j * kQuantStride, &quad, sizeof(quad));
  }
}

// In the order in which linear.h has them.
std::array<float, 4> scales_of(const DecodedGroup& group, PanelKind kind) {
  if (kind == PanelKind::kInt8TwoF32 || kind == PanelKind::kInt4TwoMinF32) {
    return {group.scale[0], group.scale[1], group.minimum[0], group.minimum[1]};
  }
  return {group.scale[0], group.minimum[0]};
}

bool all_finite(const DecodedGroup& group) {
  return std::isfinite(group.scale[0]) && std::isfinite(group.scale[1]) && std::isfinite(group.minimum[0]) &&
         std::isfinite(group.minimum[1]);
}

// Whether all weights are finite.
bool pack_integer_column(const RawWeight& weight, const Panels& panels, const std::byte* row, int32_t column,
                         int32_t place, std::byte* bundle) {
  const PanelFormat format = panel_format(panels.kind);
  const int64_t num_groups = panels.depth / kGroupSize;
  std::byte* quants = bundle + place * 64 + column * 4;
  std::byte* scales = bundle + kBundlePanels * format.quant_bytes + place * scale_bytes(format) + column * format.scale_size;
  bool finite = true;
  for (int64_t g = 0; g < num_groups; ++g) {
    const DecodedGroup group = decode_group(weight.quantization, row, g);
    store_quants(group, format.quant_bytes == 256, quants);
    const std::array<float, 4> values = scales_of(group, panels.kind);
    for (int32_t i = 0; i < format.num_scales; ++i) {
      store_number(scales + i * kPanelColumns * format.scale_size, values[static_cast<size_t>(i)], format.scale_size);
    }
    finite &= all_finite(group);
    quants += group_bytes(panels.kind);
    scales += group_bytes(panels.kind);
  }
  return finite;
}

// Whether all weights are finite: an exponent of ones alone makes an infinity or a NaN.
template <class Bits>
bool pack_float_column(const Panels& panels, const std::byte* row, int32_t column, std::byte* panel, Bits exponent) {
  bool finite = true;
  for (int64_t k = 0; k < panels.depth; ++k) {
    Bits bits;
    std::memcpy(&bits, row + k * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
    std::memcpy(panel + (k * kPanelColumns + column) * static_cast<int64_t>(sizeof(Bits)), &bits, sizeof(Bits));
    finite &= (bits & exponent) != exponent;
  }
  return finite;
}

// `place`: which panel of its bundle it is.
bool pack_column(const RawWeight& weight, const Panels& panels, const std::byte* row, int32_t column, int32_t place,
                 std::byte* bundle) {
  switch (panels.kind) {
    case PanelKind::kF32: return pack_float_column<uint32_t>(panels, row, column, bundle, 0x7F800000);
    case PanelKind::kF16: return pack_float_column<uint16_t>(panels, row, column, bundle, 0x7C00);
    case PanelKind::kBF16: return pack_float_column<uint16_t>(panels, row, column, bundle, 0x7F80);
    default: return pack_integer_column(weight, panels, row, column, place, bundle);
  }
}

bool pack_panel(const RawWeight& weight, const Panels& panels, int32_t index, std::byte* bundle) {
  const int64_t bytes = row_bytes(weight.quantization, weight.columns);
  const int64_t first_row = int64_t{index} * kPanelColumns;
  const int64_t count = std::min<int64_t>(kPanelColumns, weight.rows - first_row);
  bool finite = true;
  for (int32_t column = 0; column < count; ++column) {
    const std::byte* row = weight.bytes + (first_row + column) * bytes;
    finite &= pack_column(weight, panels, row, column, index % panels_in_bundle(panels.kind), bundle);
  }
  return finite;
}

}  // namespace

Panels plan_panels(const RawWeight& weight) {
  const PanelKind kind = panel_kind(weight);
  const int64_t units = is_integer(kind) ? weight.columns / kGroupSize : weight.columns;
  const int64_t bytes = static_cast<int64_t>(round_up(static_cast<size_t>(units * group_bytes(kind)), 64));
  return {nullptr, bytes, bytes, kind, static_cast<int32_t>(weight.rows), static_cast<int32_t>(weight.columns)};
}

int64_t panel_bytes(const Panels& panels) {
  const int32_t in_bundle = panels_in_bundle(panels.kind);
  return (panels.num_panels() + in_bundle - 1) / in_bundle * panels.bundle_bytes;
}

bool pack_panels(const RawWeight& weight, const Panels& panels, std::byte* destination, ThreadPool& pool) {
  std::atomic<bool> finite = true;
  pool.run([&](Worker& worker) {
    for (int64_t i = claim(worker, 1); i < panels.num_panels(); i = claim(worker, 1)) {
      const int64_t bundle = i / panels_in_bundle(panels.kind);
      if (!pack_panel(weight, panels, static_cast<int32_t>(i), destination + bundle * panels.stride)) finite = false;
    }
  });
  return finite;
}

}  // namespace octavo
