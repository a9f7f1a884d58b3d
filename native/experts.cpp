#include "experts.h"

#include <algorithm>

#include "error.h"
#include "kernel_table.h"

namespace octavo {

namespace {

constexpr size_t kAlignment = 64;

// Gives every row of the step a place among its experts' rows, in the order of the step.
void group_rows(const ExpertsOp& op, int32_t num_tokens) {
  const int64_t total = int64_t{num_tokens} * op.top_k;
  const int32_t* ids = op.scratch->expert_ids;
  std::fill_n(op.first_row, op.num_experts + 1, 0);
  for (int64_t i = 0; i < total; ++i) ++op.first_row[ids[i] + 1];
  for (int32_t e = 0; e < op.num_experts; ++e) op.first_row[e + 1] += op.first_row[e];
  for (int64_t i = 0; i < total; ++i) op.scratch->places[i] = op.first_row[ids[i]]++;
  std::copy_backward(op.first_row, op.first_row + op.num_experts, op.first_row + op.num_experts + 1);
  op.first_row[0] = 0;
}

void gather_rows(const ExpertsOp& op, int32_t num_tokens, Worker& worker) {
  const int64_t total = int64_t{num_tokens} * op.top_k, groups = op.hidden / kGroupSize;
  for (int64_t i = claim(worker, 1); i < total; i = claim(worker, 1)) {
    const int64_t row = i / op.top_k, place = op.scratch->places[i];
    std::copy_n(op.x + row * op.hidden, op.hidden, op.scratch->x + place * op.hidden);
    if (op.quantized == nullptr) continue;
    std::copy_n(op.quantized + row * groups, groups, op.scratch->quantized_x + place * groups);
  }
}

// Gate, up and their activation for the grouped rows of one expert, which begin at `first`.
void run_gate_up(const ExpertsOp& op, const ExpertPanels& expert, int64_t first, const KernelTable& kernels,
                 const StepView& rows, Worker& worker) {
  const ExpertsScratch& scratch = *op.scratch;
  const Panels parts[] = {expert.gate, expert.up};
  float* gate_up = scratch.gate_up + first * 2 * op.intermediate;
  const GatedActivationOp gated{
      .out = is_integer(expert.down.kind) ? nullptr : scratch.activated + first * op.intermediate,
      .quantized = is_integer(expert.down.kind)
                       ? scratch.quantized_activated + first * (op.intermediate / kGroupSize)
                       : nullptr,
      .gate_up = gate_up,
      .width = op.intermediate,
      .activation = op.activation,
  };
  const LinearOp linear{
      .out = gate_up,
      .out_width = 2 * op.intermediate,
      .x = scratch.x + first * op.hidden,
      .quantized = scratch.quantized_x + first * (op.hidden / kGroupSize),
      .depth = op.hidden,
      .parts = parts,
      .num_parts = 2,
      .bias = nullptr,
      .accumulate = false,
      .rows = RowSet::kTokens,
      .gated = &gated,
  };
  kernels.linear(linear, rows, worker);
  barrier(worker);
}

void run_down(const ExpertsOp& op, const ExpertPanels& expert, int64_t first, const KernelTable& kernels,
              const StepView& rows, Worker& worker) {
  const LinearOp linear{
      .out = op.scratch->results + first * op.hidden,
      .out_width = op.hidden,
      .x = op.scratch->activated + first * op.intermediate,
      .quantized = op.scratch->quantized_activated + first * (op.intermediate / kGroupSize),
      .depth = op.intermediate,
      .parts = &expert.down,
      .num_parts = 1,
      .bias = nullptr,
      .accumulate = false,
      .rows = RowSet::kTokens,
      .gated = nullptr,
  };
  kernels.linear(linear, rows, worker);
  barrier(worker);
}

// Calls run(expert, first grouped row, view of as many rows) for every expert that has rows.
template <class Run>
void for_each_expert(const ExpertsOp& op, const StepView& step, Run run) {
  StepView rows = step;
  for (int32_t expert = 0; expert < op.num_experts; ++expert) {
    rows.num_tokens = op.first_row[expert + 1] - op.first_row[expert];
    if (rows.num_tokens > 0) run(op.experts[expert], op.first_row[expert], rows);
  }
}

void check_shapes(const ExpertsOp& op) {
  for (int32_t e = 0; e < op.num_experts; ++e) {
    const auto& [gate, up, down] = op.experts[e];
    for (const Panels& part : {gate, up}) {
      check(part.depth == op.hidden && part.num_columns == op.intermediate, "an expert's gate or up has another shape");
    }
    check(down.depth == op.intermediate && down.num_columns == op.hidden, "an expert's down has another shape");
  }
}

}  // namespace

ExpertsOp ExpertsStore::add(ExpertsOp op, const std::vector<Panels>& panels, int32_t max_num_tokens) {
  check(op.num_experts > 0 && op.num_experts <= kMaxExperts, "a mixture must have 1 to 1024 experts");
  check(op.top_k > 0 && op.top_k <= op.num_experts, "a row cannot go through so many experts");
  check(panels.size() == 3 * static_cast<size_t>(op.num_experts), "an expert's weights are missing");
  std::vector<ExpertPanels>& experts = panels_.emplace_back();
  for (size_t i = 0; i < panels.size(); i += 3) experts.push_back({panels[i], panels[i + 1], panels[i + 2]});
  op.experts = experts.data();
  op.intermediate = experts[0].gate.num_columns;
  check_shapes(op);
  op.first_row = first_rows_.emplace_back(experts.size() + 1).data();
  op.scratch = scratch_.get();
  const size_t choices = static_cast<size_t>(max_num_tokens) * static_cast<size_t>(op.top_k);
  num_choices_ = std::max(num_choices_, choices);
  hidden_elements_ = std::max(hidden_elements_, choices * static_cast<size_t>(op.hidden));
  intermediate_elements_ = std::max(intermediate_elements_, choices * static_cast<size_t>(op.intermediate));
  return op;
}

void ExpertsStore::allocate() {
  if (num_choices_ == 0) return;
  const size_t sizes[] = {
      num_choices_ * sizeof(int32_t),
      num_choices_ * sizeof(float),
      num_choices_ * sizeof(int32_t),
      hidden_elements_ * sizeof(float),
      hidden_elements_ / kGroupSize * sizeof(QuantizedGroup),
      2 * intermediate_elements_ * sizeof(float),
      intermediate_elements_ * sizeof(float),
      intermediate_elements_ / kGroupSize * sizeof(QuantizedGroup),
      hidden_elements_ * sizeof(float),
  };
  std::vector<size_t> offsets;
  size_t total = 0;
  for (const size_t size : sizes) offsets.push_back(total), total += round_up(size, kAlignment);
  memory_ = HugeMemory(total);
  const auto piece = [&]<class Element>(size_t index, Element*& to) {
    to = reinterpret_cast<Element*>(memory_.data() + offsets[index]);
  };
  piece(0, scratch_->expert_ids);
  piece(1, scratch_->weights);
  piece(2, scratch_->places);
  piece(3, scratch_->x);
  piece(4, scratch_->quantized_x);
  piece(5, scratch_->gate_up);
  piece(6, scratch_->activated);
  piece(7, scratch_->quantized_activated);
  piece(8, scratch_->results);
}

void run_experts(const ExpertsOp& op, const KernelTable& kernels, const StepView& step, Worker& worker) {
  worker.next_weights = nullptr;  // what follows all experts is not what follows each
  kernels.choose_experts(op, step, worker);
  barrier(worker);
  for (int64_t i = claim(worker, 1); i < 1; i = claim(worker, 1)) group_rows(op, step.num_tokens);
  barrier(worker);
  gather_rows(op, step.num_tokens, worker);
  barrier(worker);
  for_each_expert(op, step, [&](const ExpertPanels& expert, int64_t first, const StepView& rows) {
    run_gate_up(op, expert, first, kernels, rows, worker);
  });
  for_each_expert(op, step, [&](const ExpertPanels& expert, int64_t first, const StepView& rows) {
    run_down(op, expert, first, kernels, rows, worker);
  });
  kernels.add_experts(op, step, worker);
}

}  // namespace octavo
