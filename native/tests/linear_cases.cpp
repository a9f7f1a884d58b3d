// Quantised activations, and linear in every format of weights.
#include <cstring>

#include "../half.h"
#include "../memory.h"
#include "../packing.h"
#include "digest_cases.h"

namespace octavo::digest {

namespace {

constexpr int32_t kDepth = 512;

struct Format {
  Quantization quantization;
  const char* name;
  std::vector<int32_t> half_offsets;  // of the float16 scales and minima in a block
};

const std::vector<Format>& formats() {
  static const std::vector<Format> all = {
      {Quantization::kF32, "F32", {}},        {Quantization::kF16, "F16", {}},
      {Quantization::kBF16, "BF16", {}},      {Quantization::kQ4_0, "Q4_0", {0}},
      {Quantization::kQ4_1, "Q4_1", {0, 2}},  {Quantization::kQ5_0, "Q5_0", {0}},
      {Quantization::kQ5_1, "Q5_1", {0, 2}},  {Quantization::kQ8_0, "Q8_0", {0}},
      {Quantization::kQ4_K, "Q4_K", {0, 2}},  {Quantization::kQ5_K, "Q5_K", {0, 2}},
      {Quantization::kQ6_K, "Q6_K", {208}},    {Quantization::kQ2_K, "Q2_K", {80, 82}},
      {Quantization::kQ3_K, "Q3_K", {108}},    {Quantization::kIQ4_NL, "IQ4_NL", {0}},
      {Quantization::kIQ4_XS, "IQ4_XS", {0}},
  };
  return all;
}

void write_half(std::byte* destination, float value) {
  const uint16_t half = float_to_half(value);
  std::memcpy(destination, &half, sizeof(half));
}

// One block of random weights as a model file stores them.
void fill_block(Random& random, const Format& format, std::byte* block) {
  const BlockFormat layout = block_format(format.quantization);
  for (int32_t i = 0; i < layout.bytes; ++i) block[i] = static_cast<std::byte>(random.below(256));
  for (const int32_t offset : format.half_offsets) write_half(block + offset, random.uniform(0.01f));
  const float value = random.uniform(1.0f);
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if (format.quantization == Quantization::kF32) std::memcpy(block, &bits, 4);
  if (format.quantization == Quantization::kF16) write_half(block, value);
  if (format.quantization == Quantization::kBF16) {
    const uint16_t upper = static_cast<uint16_t>(bits >> 16);
    std::memcpy(block, &upper, sizeof(upper));
  }
}

// A packed matrix and its memory.
struct PackedWeight {
  HugeMemory memory;
  Panels panels;
};

PackedWeight random_weight(Random& random, const Format& format, int32_t num_columns, ThreadPool& pool) {
  std::vector<std::byte> bytes(static_cast<size_t>(num_columns * row_bytes(format.quantization, kDepth)));
  const size_t block_bytes = static_cast<size_t>(block_format(format.quantization).bytes);
  for (size_t at = 0; at < bytes.size(); at += block_bytes) fill_block(random, format, bytes.data() + at);
  const RawWeight raw{format.quantization, num_columns, kDepth, bytes.data()};
  PackedWeight weight{{}, plan_panels(raw)};
  weight.memory = HugeMemory(static_cast<size_t>(panel_bytes(weight.panels)));
  pack_panels(raw, weight.panels, weight.memory.data(), pool);
  weight.panels.data = weight.memory.data();
  return weight;
}

std::vector<QuantizedGroup> quantize(Machine& machine, const std::vector<float>& x, int32_t width) {
  std::vector<QuantizedGroup> groups(x.size() / kGroupSize);
  const QuantizeRowsOp op{groups.data(), x.data(), width, RowSet::kTokens};
  const StepView view = rows_only(static_cast<int32_t>(x.size()) / width);
  machine.several.run([&](Worker& worker) { machine.kernels.quantize_rows(op, view, worker); });
  return groups;
}

// The largest of every group is 127, so that the others, multiples of a half, are quantised as they are.
std::vector<float> halves(Random& random, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = i % 16 == 5 ? 127.0f : 0.5f * static_cast<float>(random.below(507) - 253);
  }
  return values;
}

void run_quantize_case(Machine& machine, const std::string& name, const std::vector<float>& x) {
  Digest digest;
  for (const QuantizedGroup& group : quantize(machine, x, kDepth)) {
    digest.add_integers(std::span<const int8_t>(group.q));
    digest.add(group.scale);
    digest.add({&group.minimum_factor, 1});
    digest.add_integers(std::span<const int32_t>(group.minus_128_sum));
  }
  report("quantize_rows/" + name, digest);
}

struct LinearCase {
  const PackedWeight& weight;
  const std::vector<float>& x;  // [rows, kDepth]
  bool has_bias;
  bool accumulate;
};

Digest run_linear(Machine& machine, const LinearCase& linear_case, Random random) {
  const Panels& panels = linear_case.weight.panels;
  const int32_t rows = static_cast<int32_t>(linear_case.x.size()) / kDepth;
  const std::vector<QuantizedGroup> quantized = quantize(machine, linear_case.x, kDepth);
  const std::vector<float> bias = random.floats(panels.num_columns, 1.0f);
  std::vector<float> out = random.floats(int64_t{rows} * panels.num_columns, 1.0f);
  const LinearOp op{.out = out.data(), .out_width = panels.num_columns, .x = linear_case.x.data(),
                    .quantized = quantized.data(), .depth = kDepth, .parts = &panels, .num_parts = 1,
                    .bias = linear_case.has_bias ? bias.data() : nullptr, .accumulate = linear_case.accumulate,
                    .rows = RowSet::kTokens};
  const StepView view = rows_only(rows);
  machine.several.run([&](Worker& worker) { machine.kernels.linear(op, view, worker); });
  Digest digest;
  digest.add(out);
  return digest;
}

// The last panel is not full, and neither are the groups of panels that a single row takes at once.
void run_format_cases(Machine& machine, const Format& format, Random& random) {
  const PackedWeight weight = random_weight(random, format, 70, machine.several);
  for (const int32_t rows : {1, 2, 3, 4, 5, 7, 8, 13, 33}) {
    const std::vector<float> x = random.floats(int64_t{rows} * kDepth, 3.0f);
    const std::string name = std::string("linear/") + format.name + "/rows=" + std::to_string(rows);
    report(name, run_linear(machine, {weight, x, false, false}, random));
    report(name + "/bias/residual", run_linear(machine, {weight, x, true, true}, random));
  }
  const std::vector<float> hostile = random.any_floats(5 * kDepth);
  report(std::string("linear/") + format.name + "/any", run_linear(machine, {weight, hostile, true, false}, random));
}

}  // namespace

void run_linear_cases(Machine& machine) {
  Random random(1);
  run_quantize_case(machine, "ordinary", random.floats(9 * kDepth, 5.0f));
  run_quantize_case(machine, "tiny", random.floats(9 * kDepth, 1e-37f));
  run_quantize_case(machine, "ties", halves(random, 9 * kDepth));
  run_quantize_case(machine, "any", random.any_floats(9 * kDepth));
  run_quantize_case(machine, "zero", std::vector<float>(kDepth));
  for (const Format& format : formats()) run_format_cases(machine, format, random);
}

}  // namespace octavo::digest
