#include "gguf_block.h"

#include <cstring>
#include <string>

#include "error.h"
#include "half.h"

namespace octavo {

namespace {

template <class T>
T read(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

float read_half(const std::byte* p) { return half_to_float(read<uint16_t>(p)); }

int unsigned_at(const std::byte* p, int i) { return std::to_integer<int>(p[i]); }

// 16 bytes: low nibbles are elements 0 … 15, high nibbles 16 … 31.
void read_nibbles(const std::byte* packed, int8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = static_cast<int8_t>(unsigned_at(packed, i) & 15);
    q[i + 16] = static_cast<int8_t>(unsigned_at(packed, i) >> 4);
  }
}

void add_fifth_bits(const std::byte* high, int8_t* q) {
  const uint32_t bits = read<uint32_t>(high);
  for (int i = 0; i < 32; ++i) q[i] = static_cast<int8_t>(q[i] | ((bits >> i & 1u) << 4));
}

void set_scale(DecodedGroup& group, float scale, float minimum) {
  group.scale[0] = group.scale[1] = scale;
  group.minimum[0] = group.minimum[1] = minimum;
}

void decode_q4_0(const std::byte* block, DecodedGroup& group) {
  const float scale = read_half(block);
  read_nibbles(block + 2, group.q);
  set_scale(group, scale, -8.0f * scale);
}

void decode_q4_1(const std::byte* block, DecodedGroup& group) {
  read_nibbles(block + 4, group.q);
  set_scale(group, read_half(block), read_half(block + 2));
}

void decode_q5_0(const std::byte* block, DecodedGroup& group) {
  read_nibbles(block + 6, group.q);
  add_fifth_bits(block + 2, group.q);
  for (int8_t& q : group.q) q = static_cast<int8_t>(q - 16);
  set_scale(group, read_half(block), 0.0f);
}

void decode_q5_1(const std::byte* block, DecodedGroup& group) {
  read_nibbles(block + 8, group.q);
  add_fifth_bits(block + 4, group.q);
  set_scale(group, read_half(block), read_half(block + 2));
}

void decode_q8_0(const std::byte* block, DecodedGroup& group) {
  std::memcpy(group.q, block + 2, sizeof(group.q));
  set_scale(group, read_half(block), 0.0f);
}

// Scale and minimum of group j of a Q4_K or Q5_K block: 6 bits each, packed in 12 bytes. Their products with the
// block's float16 factors are exact.
void set_k_scale(const std::byte* block, int j, DecodedGroup& group) {
  const std::byte* packed = block + 4;
  int scale = 0;
  int minimum = 0;
  if (j < 4) {
    scale = unsigned_at(packed, j) & 63;
    minimum = unsigned_at(packed, j + 4) & 63;
  } else {
    scale = (unsigned_at(packed, j + 4) & 15) | (unsigned_at(packed, j - 4) >> 6 << 4);
    minimum = unsigned_at(packed, j + 4) >> 4 | (unsigned_at(packed, j) >> 6 << 4);
  }
  set_scale(group, read_half(block) * static_cast<float>(scale),
            -(read_half(block + 2) * static_cast<float>(minimum)));
}

// Groups 2i and 2i + 1 share 32 bytes: low nibbles, then high ones.
void read_k_nibbles(const std::byte* packed, int j, int8_t* q) {
  const int shift = j % 2 * 4;
  for (int i = 0; i < 32; ++i) q[i] = static_cast<int8_t>(unsigned_at(packed, j / 2 * 32 + i) >> shift & 15);
}

void decode_q4_k(const std::byte* block, int j, DecodedGroup& group) {
  read_k_nibbles(block + 16, j, group.q);
  set_k_scale(block, j, group);
}

void decode_q5_k(const std::byte* block, int j, DecodedGroup& group) {
  read_k_nibbles(block + 48, j, group.q);
  for (int i = 0; i < 32; ++i) {
    group.q[i] = static_cast<int8_t>(group.q[i] | ((unsigned_at(block + 16, i) >> j & 1) << 4));
  }
  set_k_scale(block, j, group);
}

void decode_q6_k(const std::byte* block, int j, DecodedGroup& group) {
  const int half = j / 4;     // of the block's 256 elements
  const int quarter = j % 4;  // of that half's 128
  const std::byte* low = block + half * 64 + quarter % 2 * 32;
  const std::byte* high = block + 128 + half * 32;
  for (int i = 0; i < 32; ++i) {
    const int bits = (unsigned_at(low, i) >> (quarter / 2 * 4) & 15) | ((unsigned_at(high, i) >> (quarter * 2) & 3) << 4);
    group.q[i] = static_cast<int8_t>(bits - 32);
  }
  const float scale = read_half(block + 208);
  for (int i = 0; i < 2; ++i) {
    group.scale[i] = scale * static_cast<float>(read<int8_t>(block + 192 + j * 2 + i));
  }
  group.minimum[0] = group.minimum[1] = 0.0f;
}

// Element i of group j of Q2_K and Q3_K: each half of the block has 32 bytes with two bits for each of its groups.
int two_bits(const std::byte* packed, int j, int i) { return unsigned_at(packed, j / 4 * 32 + i) >> (j % 4 * 2) & 3; }

// 16 bytes, each the scale (low nibble) and minimum of 16 elements.
void decode_q2_k(const std::byte* block, int j, DecodedGroup& group) {
  for (int i = 0; i < 32; ++i) group.q[i] = static_cast<int8_t>(two_bits(block + 16, j, i));
  for (int i = 0; i < 2; ++i) {
    const int packed = unsigned_at(block, 2 * j + i);
    group.scale[i] = read_half(block + 80) * static_cast<float>(packed & 15);
    group.minimum[i] = -(read_half(block + 82) * static_cast<float>(packed >> 4));
  }
}

// 6 bits, 32 for zero: the low four are nibbles of 8 bytes, the high two lie in the 4 bytes that follow.
int q3_k_scale(const std::byte* packed, int index) {
  const int low = unsigned_at(packed, index % 8) >> (index / 8 * 4) & 15;
  const int high = unsigned_at(packed, 8 + index % 4) >> (index / 4 * 2) & 3;
  return (low | high << 4) - 32;
}

void decode_q3_k(const std::byte* block, int j, DecodedGroup& group) {
  for (int i = 0; i < 32; ++i) {
    const int third_bit = unsigned_at(block, i) >> j & 1;
    group.q[i] = static_cast<int8_t>(two_bits(block + 32, j, i) | third_bit << 2);
  }
  for (int i = 0; i < 2; ++i) {
    group.scale[i] = read_half(block + 108) * static_cast<float>(q3_k_scale(block + 96, 2 * j + i));
    group.minimum[i] = -4.0f * group.scale[i];
  }
}

// What the 4-bit integers of IQ4_NL and IQ4_XS stand for: finer near zero, where most weights are.
constexpr int8_t kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

void read_non_linear(const std::byte* packed, int8_t* q) {
  read_nibbles(packed, q);
  for (int i = 0; i < 32; ++i) q[i] = kNonLinear[q[i]];
}

void decode_iq4_nl(const std::byte* block, DecodedGroup& group) {
  read_non_linear(block + 2, group.q);
  set_scale(group, read_half(block), 0.0f);
}

// Group j has a scale of 6 bits, 32 for zero: four in the nibbles of bytes 4 … 7, two in the 16 bits before them.
void decode_iq4_xs(const std::byte* block, int j, DecodedGroup& group) {
  read_non_linear(block + 8 + 16 * j, group.q);
  const int low = unsigned_at(block + 4, j / 2) >> (j % 2 * 4) & 15;
  const int high = read<uint16_t>(block + 2) >> (2 * j) & 3;
  set_scale(group, read_half(block) * static_cast<float>((low | high << 4) - 32), 0.0f);
}

float read_float(Quantization quantization, const std::byte* row, int64_t index) {
  if (quantization == Quantization::kF32) return read<float>(row + index * 4);
  const uint16_t bits = read<uint16_t>(row + index * 2);
  return quantization == Quantization::kF16 ? half_to_float(bits) : bfloat16_to_float(bits);
}

}  // namespace

BlockFormat block_format(Quantization quantization) {
  switch (quantization) {
    case Quantization::kF32: return {1, 4};
    case Quantization::kF16: return {1, 2};
    case Quantization::kBF16: return {1, 2};
    case Quantization::kQ4_0: return {32, 18};
    case Quantization::kQ4_1: return {32, 20};
    case Quantization::kQ5_0: return {32, 22};
    case Quantization::kQ5_1: return {32, 24};
    case Quantization::kQ8_0: return {32, 34};
    case Quantization::kQ4_K: return {256, 144};
    case Quantization::kQ5_K: return {256, 176};
    case Quantization::kQ6_K: return {256, 210};
    case Quantization::kQ2_K: return {256, 84};
    case Quantization::kQ3_K: return {256, 110};
    case Quantization::kIQ4_NL: return {32, 18};
    case Quantization::kIQ4_XS: return {256, 136};
  }
  throw Error("unknown quantisation " + std::to_string(static_cast<int32_t>(quantization)));
}

int64_t row_bytes(Quantization quantization, int64_t columns) {
  const BlockFormat format = block_format(quantization);
  if (columns % format.elements != 0) {
    throw Error("rows of " + std::to_string(columns) + " columns do not fill whole blocks of " +
                std::to_string(format.elements));
  }
  return columns / format.elements * format.bytes;
}

DecodedGroup decode_group(Quantization quantization, const std::byte* row, int64_t index) {
  const BlockFormat format = block_format(quantization);
  const int64_t groups_per_block = format.elements / 32;
  const std::byte* block = row + index / groups_per_block * format.bytes;
  const int j = static_cast<int>(index % groups_per_block);
  DecodedGroup group;
  switch (quantization) {
    case Quantization::kQ4_0: decode_q4_0(block, group); break;
    case Quantization::kQ4_1: decode_q4_1(block, group); break;
    case Quantization::kQ5_0: decode_q5_0(block, group); break;
    case Quantization::kQ5_1: decode_q5_1(block, group); break;
    case Quantization::kQ8_0: decode_q8_0(block, group); break;
    case Quantization::kQ4_K: decode_q4_k(block, j, group); break;
    case Quantization::kQ5_K: decode_q5_k(block, j, group); break;
    case Quantization::kQ6_K: decode_q6_k(block, j, group); break;
    case Quantization::kQ2_K: decode_q2_k(block, j, group); break;
    case Quantization::kQ3_K: decode_q3_k(block, j, group); break;
    case Quantization::kIQ4_NL: decode_iq4_nl(block, group); break;
    case Quantization::kIQ4_XS: decode_iq4_xs(block, j, group); break;
    default: throw Error("not a block format");
  }
  return group;
}

void dequantize_row(Quantization quantization, const std::byte* row, int64_t columns, float* out) {
  if (is_float(quantization)) {
    for (int64_t i = 0; i < columns; ++i) out[i] = read_float(quantization, row, i);
    return;
  }
  for (int64_t g = 0; g < columns / 32; ++g) {
    const DecodedGroup group = decode_group(quantization, row, g);
    for (int i = 0; i < 32; ++i) {
      out[g * 32 + i] = group.scale[i / 16] * static_cast<float>(group.q[i]) + group.minimum[i / 16];
    }
  }
}

}  // namespace octavo
