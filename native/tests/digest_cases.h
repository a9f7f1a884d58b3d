// What the cases of isa_digest share: inputs that are the same on every machine, digests, and a report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "../kernel_table.h"
#include "../thread_pool.h"

namespace octavo::digest {

// splitmix64: the same numbers everywhere, with integers and exact conversions only.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t bits();
  int32_t below(int32_t end);     // 0 … end - 1
  float uniform(float magnitude);  // -magnitude … magnitude
  float any_float();              // any bits: NaN, infinities and subnormals too

  std::vector<float> floats(int64_t count, float magnitude);
  std::vector<float> any_floats(int64_t count);

 private:
  uint64_t state_;
};

// Of numbers by their bits. Every NaN counts as the same one: which of its operands' NaNs an operation returns, and
// the sign of a new one, are the processor's.
class Digest {
 public:
  void add(std::span<const float> values);
  void add_halves(std::span<const uint16_t> values);
  template <class Integer>
  void add_integers(std::span<const Integer> values) {
    for (const Integer value : values) mix(static_cast<uint64_t>(static_cast<int64_t>(value)));
  }
  uint64_t value() const { return state_; }

 private:
  void mix(uint64_t word);

  uint64_t state_ = 0;
};

// The arrays behind a StepView.
struct Step {
  std::vector<int32_t> positions, query_start_loc, seq_lens, block_tables, request_of_row;
  std::vector<std::byte> shared_scratch;
  StepView view{};
};

// A step of `count` rows for ops that look at rows only: the tokens and the logit rows.
StepView rows_only(int32_t count);

// The kernels under test, on one worker and on several.
class Machine {
 public:
  explicit Machine(const KernelTable& kernels) : kernels(kernels) {}

  const KernelTable& kernels;
  ThreadPool single{1};
  ThreadPool several{3};
};

// Prints a line: name, digest.
void report(const std::string& name, const Digest& digest);

void run_linear_cases(Machine& machine);
void run_row_cases(Machine& machine);
void run_cache_cases(Machine& machine);
void run_sampling_cases(Machine& machine);

}  // namespace octavo::digest
