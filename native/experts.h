// A mixture of experts: each row goes through the few gated MLPs that its router prefers (ADR 0001).
//
// Rows are gathered by expert, so that each expert's weights are read once per step, and their results are added per
// row in the order of that row's own preferences: neither depends on which other rows there are.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "linear.h"
#include "memory.h"
#include "step.h"

namespace octavo {

constexpr int32_t kMaxExperts = 1024;

struct ExpertPanels {
  Panels gate, up, down;
};

// Memory for one mixture at a time. A row of the step for an expert that it prefers is a grouped row; those of
// expert 0 come first, then those of 1, …
struct ExpertsScratch {
  int32_t* expert_ids;  // [num_tokens, top_k], the most preferred first
  float* weights;       // the same shape
  int32_t* places;      // the same shape: the grouped row
  float* x;             // [num_tokens · top_k, hidden], grouped, as all below
  QuantizedGroup* quantized_x;
  float* gate_up;       // [num_tokens · top_k, 2 · intermediate]
  float* activated;     // [num_tokens · top_k, intermediate]
  QuantizedGroup* quantized_activated;
  float* results;       // [num_tokens · top_k, hidden]
};

struct ExpertsOp {
  float* out;                       // [num_tokens, hidden]; results are added to it
  const float* x;                   // [num_tokens, hidden]
  const QuantizedGroup* quantized;  // the same rows; null if no expert has integer panels
  const float* router;              // [num_tokens, num_experts]
  int32_t num_experts;
  int32_t top_k;
  int32_t hidden;
  bool normalized;  // the weights of a row's experts add up to 1
  Activation activation;

  // Filled in by ExpertsStore.
  int32_t intermediate = 0;
  const ExpertPanels* experts = nullptr;  // [num_experts]
  const ExpertsScratch* scratch = nullptr;
  // [num_experts + 1], grouped. The op's own: a worker that is late still walks over these experts.
  int32_t* first_row = nullptr;
};

struct KernelTable;

// Runs the op on every worker; there is a barrier between its phases.
void run_experts(const ExpertsOp& op, const KernelTable& kernels, const StepView& step, Worker& worker);

// What the mixtures of a program point to.
class ExpertsStore {
 public:
  // `panels`: gate, up and down of expert 0, then those of expert 1, … Throws if they do not fit the op's numbers.
  ExpertsOp add(ExpertsOp op, const std::vector<Panels>& panels, int32_t max_num_tokens);

  // Call once all have been added.
  void allocate();

 private:
  std::deque<std::vector<ExpertPanels>> panels_;
  std::deque<std::vector<int32_t>> first_rows_;
  std::unique_ptr<ExpertsScratch> scratch_ = std::make_unique<ExpertsScratch>();
  size_t num_choices_ = 0, hidden_elements_ = 0, intermediate_elements_ = 0;  // of the largest mixture
  HugeMemory memory_;
};

}  // namespace octavo
