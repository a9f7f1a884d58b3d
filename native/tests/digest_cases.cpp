#include "digest_cases.h"

#include <cinttypes>
#include <cstdio>

namespace octavo::digest {

uint64_t Random::bits() {
  uint64_t z = state_ += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

int32_t Random::below(int32_t end) { return static_cast<int32_t>(bits() % static_cast<uint64_t>(end)); }

float Random::uniform(float magnitude) {
  const int32_t number = static_cast<int32_t>(bits() >> 39) - (1 << 24);  // of 25 bits: exact
  return static_cast<float>(number) * 0x1p-24f * magnitude;
}

float Random::any_float() { return __builtin_bit_cast(float, static_cast<uint32_t>(bits() >> 32)); }

std::vector<float> Random::floats(int64_t count, float magnitude) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform(magnitude);
  return values;
}

std::vector<float> Random::any_floats(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = any_float();
  return values;
}

void Digest::mix(uint64_t word) {
  state_ = (state_ ^ word) * 0x9E3779B97F4A7C15u + 1;
  state_ ^= state_ >> 32;
}

void Digest::add(std::span<const float> values) {
  for (const float value : values) mix(value != value ? 0x7fc00000u : __builtin_bit_cast(uint32_t, value));
}

void Digest::add_halves(std::span<const uint16_t> values) {
  for (const uint16_t value : values) mix((value & 0x7fffu) > 0x7c00u ? 0x7e00u : value);
}

StepView rows_only(int32_t count) {
  StepView view{};
  view.num_tokens = count;
  view.num_logit_rows = count;
  return view;
}

void report(const std::string& name, const Digest& digest) {
  std::printf("%s %016" PRIx64 "\n", name.c_str(), digest.value());
}

}  // namespace octavo::digest
