// Ops that take a row at a time: RMS norm, gated activation, soft cap, low-rank adapters, choice and sum of experts.
#include "../adapters.h"
#include "digest_cases.h"

namespace octavo::digest {

namespace {

constexpr int32_t kRows = 5;

void run_rms_norm_case(Machine& machine, const std::string& name, int32_t width, const std::vector<float>& x) {
  Random random(static_cast<uint64_t>(width));
  const std::vector<float> weight = random.floats(width, 2.0f);
  std::vector<float> out(x.size());
  const RmsNormOp op{out.data(), nullptr, x.data(), weight.data(), width, 1e-5f, false};
  const StepView view = rows_only(kRows);
  machine.several.run([&](Worker& worker) { machine.kernels.rms_norm(op, view, worker); });
  Digest digest;
  digest.add(out);
  report("rms_norm/" + name + "/width=" + std::to_string(width), digest);
}

void run_activation_case(Machine& machine, const std::string& name, int32_t width, const std::vector<float>& x) {
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    std::vector<float> out(x.size() / 2);
    const GatedActivationOp op{out.data(), nullptr, x.data(), width, activation};
    const StepView view = rows_only(kRows);
    machine.several.run([&](Worker& worker) { machine.kernels.gated_activation(op, view, worker); });
    Digest digest;
    digest.add(out);
    const std::string kind = activation == Activation::kSilu ? "silu/" : "gelu_tanh/";
    report("gated_activation/" + kind + name + "/width=" + std::to_string(width), digest);
  }
}

void run_soft_cap_case(Machine& machine, const std::string& name, int32_t width, std::vector<float> values) {
  const SoftCapOp op{values.data(), width, 30.0f};
  const StepView view = rows_only(kRows);
  machine.several.run([&](Worker& worker) { machine.kernels.soft_cap(op, view, worker); });
  Digest digest;
  digest.add(values);
  report("soft_cap/" + name + "/width=" + std::to_string(width), digest);
}

// Two requests with the adapter, one without, so that its rows are no neighbours.
void run_low_rank_case(Machine& machine, int32_t rank, int32_t depth, int32_t columns) {
  constexpr int32_t kTokens = 9;
  Random random(static_cast<uint64_t>(rank));
  const std::vector<float> x = random.floats(int64_t{kTokens} * depth, 2.0f), a = random.floats(int64_t{rank} * depth, 0.5f),
                           b = random.floats(int64_t{columns} * rank, 0.5f);
  std::vector<float> out = random.floats(int64_t{kTokens} * columns, 2.0f);
  const OctavoLowRank pair{a.data(), b.data(), 0, 0, rank, 0.75f};
  AdapterTable table;
  table.set(1, std::make_unique<Adapter>(&pair, 1, std::vector<AdaptableLinear>{{depth, {columns}}}));
  const std::vector<int32_t> starts{0, 3, 5, kTokens}, slots{1, -1, 1};
  StepView view = rows_only(kTokens);
  view.num_requests = 3;
  view.query_start_loc = starts.data();
  AdapterRows rows;
  view.adapters = table.group(view, slots.data(), rows);
  const LowRankProductOp product{x.data(), depth, 0};
  const LowRankAddOp addition{out.data(), columns, 0};
  machine.several.run([&](Worker& worker) {
    machine.kernels.low_rank_product(product, view, worker);
    barrier(worker);
    machine.kernels.low_rank_add(addition, view, worker);
  });
  Digest digest;
  digest.add(out);
  report("low_rank/rank=" + std::to_string(rank) + "/columns=" + std::to_string(columns), digest);
}

// Which experts a router chooses with what weights, and the sum of their results, which lie in another order.
void run_experts_case(Machine& machine, int32_t num_experts, bool normalized) {
  constexpr int32_t kTopK = 3, kHidden = 37, kChoices = kRows * kTopK;
  Random random(static_cast<uint64_t>(num_experts));
  const std::vector<float> router = random.floats(int64_t{kRows} * num_experts, 8.0f);
  std::vector<float> out = random.floats(int64_t{kRows} * kHidden, 2.0f), weights(kChoices),
                     results = random.floats(int64_t{kChoices} * kHidden, 2.0f);
  std::vector<int32_t> ids(kChoices), places(kChoices);
  for (int32_t i = 0; i < kChoices; ++i) places[static_cast<size_t>(i)] = kChoices - 1 - i;
  ExpertsScratch scratch{};
  scratch.expert_ids = ids.data();
  scratch.weights = weights.data();
  scratch.places = places.data();
  scratch.results = results.data();
  ExpertsOp op{out.data(), nullptr, nullptr, router.data(), num_experts, kTopK, kHidden, normalized, Activation::kSilu};
  op.scratch = &scratch;
  const StepView view = rows_only(kRows);
  machine.several.run([&](Worker& worker) {
    machine.kernels.choose_experts(op, view, worker);
    barrier(worker);
    machine.kernels.add_experts(op, view, worker);
  });
  Digest digest;
  digest.add_integers(std::span<const int32_t>(ids));
  digest.add(weights);
  digest.add(out);
  report("experts/" + std::to_string(num_experts) + (normalized ? "/normalized" : "/of all"), digest);
}

// Floats around odd multiples of log(2) / 2, where exp's exponent is a tie.
std::vector<float> near_ties(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const float tie = (static_cast<float>(i / 8 % 100) - 49.5f) * 0.6931472f;
    values[i] = __builtin_bit_cast(float, __builtin_bit_cast(int32_t, tie) + static_cast<int32_t>(i % 8) - 4);
  }
  return values;
}

}  // namespace

void run_row_cases(Machine& machine) {
  Random random(2);
  for (const int32_t width : {1, 15, 16, 33, 576}) {
    run_rms_norm_case(machine, "ordinary", width, random.floats(int64_t{kRows} * width, 4.0f));
    run_rms_norm_case(machine, "any", width, random.any_floats(int64_t{kRows} * width));
  }
  run_low_rank_case(machine, 1, 33, 5);
  run_low_rank_case(machine, 16, 96, 64);
  run_low_rank_case(machine, 40, 64, 300);
  for (const int32_t num_experts : {3, 16, 37}) {
    for (const bool normalized : {true, false}) run_experts_case(machine, num_experts, normalized);
  }
  for (const int32_t width : {1, 17, 600}) {
    run_activation_case(machine, "ordinary", width, random.floats(2 * int64_t{kRows} * width, 12.0f));
    run_activation_case(machine, "large", width, random.floats(2 * int64_t{kRows} * width, 200.0f));
    run_activation_case(machine, "ties", width, near_ties(2 * int64_t{kRows} * width));
    run_activation_case(machine, "any", width, random.any_floats(2 * int64_t{kRows} * width));
    run_soft_cap_case(machine, "ordinary", width, random.floats(int64_t{kRows} * width, 90.0f));
    run_soft_cap_case(machine, "any", width, random.any_floats(int64_t{kRows} * width));
  }
}

}  // namespace octavo::digest
