// The block formats of GGUF, decoded to what all of them are: 32 small integers, scales and a minimum.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

// Same order as NATIVE_QUANTIZATIONS in native_library.py.
enum class Quantization : int32_t {
  kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K, kQ2_K, kQ3_K, kIQ4_NL, kIQ4_XS
};

struct BlockFormat {
  int32_t elements;  // per block
  int32_t bytes;
};

BlockFormat block_format(Quantization quantization);

constexpr bool is_float(Quantization quantization) { return quantization <= Quantization::kBF16; }

// Bytes of a row of `columns` elements; throws if they do not fill whole blocks.
int64_t row_bytes(Quantization quantization, int64_t columns);

// Weights i of a group are scale[i / 16] · q[i] + minimum[i / 16], where the product is exact in float32 for all formats
// but Q6_K and IQ4_XS. Q4_0 has q in 0 … 15 and minimum = -8 · scale, Q3_K q in 0 … 7 and minimum = -4 · scale.
struct DecodedGroup {
  int8_t q[32];
  float scale[2];
  float minimum[2];
};

// Group `index` (of 32 columns) of a row in one of the block formats.
DecodedGroup decode_group(Quantization quantization, const std::byte* row, int64_t index);

// A whole row as float32, any format.
void dequantize_row(Quantization quantization, const std::byte* row, int64_t columns, float* out);

}  // namespace octavo
