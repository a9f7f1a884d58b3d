#include "program.h"

#include <algorithm>
#include <string>
#include <utility>

#include "error.h"
#include "isa.h"
#include "step_check.h"

namespace octavo {

namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

void embed(const EmbedOp& op, const StepView& step, Worker& worker) {
  const int64_t bytes = row_bytes(op.weight.quantization, op.weight.columns);
  for (int64_t row = claim(worker, 1); row < step.num_tokens; row = claim(worker, 1)) {
    float* out = op.out + row * op.weight.columns;
    dequantize_row(op.weight.quantization, op.weight.bytes + step.token_ids[row] * bytes, op.weight.columns, out);
    for (int64_t i = 0; i < op.weight.columns; ++i) out[i] *= op.scale;
  }
}

void gather_rows(const GatherRowsOp& op, const StepView& step, Worker& worker) {
  for (int64_t i = claim(worker, 1); i < step.num_logit_rows; i = claim(worker, 1)) {
    std::copy_n(op.x + static_cast<int64_t>(step.logit_rows[i]) * op.width, op.width, op.out + i * op.width);
  }
}

// Most layers of a model do.
bool needs_the_same_scratch(const PagedAttentionOp& a, const PagedAttentionOp& b) {
  return a.num_heads == b.num_heads && a.num_kv_heads == b.num_kv_heads && a.head_dim == b.head_dim &&
         a.window == b.window;
}

}  // namespace

Program::Program(const OctavoProgramSpec& spec, ThreadPool& pool, KvStore* kv)
    : kernels_(kernel_table(spec.isa)),
      pool_(pool),
      compiled_(compile(spec, pool, kv)),
      max_num_tokens_(spec.max_num_tokens) {
  if (kv != nullptr) {
    kv_ = kv->view();
    has_kv_ = true;
  }
  make_room_for_logits(spec.max_logit_rows);
}

float* Program::slot_data(int32_t slot) const {
  const bool exists = slot >= 0 && static_cast<size_t>(slot) < compiled_.slots.size();
  return exists ? compiled_.slots[static_cast<size_t>(slot)] : nullptr;
}

void Program::make_room_for_logits(int32_t num_rows) {
  if (compiled_.head_width == 0 || num_rows <= logits_capacity_) return;
  const size_t rows = static_cast<size_t>(num_rows);
  const size_t depth = static_cast<size_t>(compiled_.head_depth);
  // All of it first: if one allocation throws, the ops still point into the memory that they had.
  HugeMemory new_logits(rows * static_cast<size_t>(compiled_.head_width) * sizeof(float));
  HugeMemory new_head_rows(rows * (compiled_.head_is_integer ? depth / kGroupSize * sizeof(QuantizedGroup)
                                                             : depth * sizeof(float)));
  logits_ = std::move(new_logits);
  head_rows_ = std::move(new_head_rows);
  logits_capacity_ = num_rows;
  float* const x = reinterpret_cast<float*>(head_rows_.data());
  auto* const quantized = reinterpret_cast<QuantizedGroup*>(head_rows_.data());
  float* const logits = reinterpret_cast<float*>(logits_.data());
  for (BoundOp& op : compiled_.head_ops) {
    std::visit(Overloaded{[&](GatherRowsOp& gather) { gather.out = x; },
                          [&](QuantizeRowsOp& quantize) { quantize.out = quantized; },
                          [&](LinearOp& linear) { linear.x = x, linear.quantized = quantized, linear.out = logits; },
                          [&](SoftCapOp& cap) { cap.values = logits; }, [](auto&) {}},
               op);
  }
}

void Program::prepare(const OctavoStep& input) {
  const StepLimits limits{max_num_tokens_, compiled_.vocab_size, has_kv_ ? kv_.num_blocks : 0, kv_.block_size};
  check_step(input, limits, request_of_row_);
  make_room_for_logits(input.num_logit_rows);
  view_ = {input.num_tokens, input.num_requests, input.num_logit_rows, input.max_blocks_per_request,
           input.token_ids, input.positions, input.query_start_loc, input.seq_lens, input.block_tables,
           input.logit_rows, request_of_row_.data(), kv_, {}, nullptr, {}};
  view_.adapters = adapters_.group(view_, input.adapters);
  if (has_kv_ && shares_passes_) view_.shared = shared_prefixes_.find(view_);
  if (input.num_tokens > 0 && !compiled_.ropes.empty()) {
    const int32_t last = *std::max_element(input.positions, input.positions + input.num_tokens);
    for (RopeTableOwner& rope : compiled_.ropes) rope.cover(last + 1);
  }
  size_t scratch_bytes = 0;
  const PagedAttentionOp* before = nullptr;
  for (const BoundOp& op : compiled_.ops) {
    const auto* attention = std::get_if<PagedAttentionOp>(&op);
    if (attention == nullptr || (before != nullptr && needs_the_same_scratch(*attention, *before))) continue;
    scratch_bytes = std::max(scratch_bytes, kernels_.attention_scratch_bytes(*attention, view_, pool_.size()));
    before = attention;
  }
  if (scratch_bytes > attention_scratch_.size()) attention_scratch_ = HugeMemory(scratch_bytes);
  view_.shared_scratch = attention_scratch_.data();
}

void Program::set_adapter(int32_t slot, const OctavoLowRank* pairs, int32_t num_pairs) {
  auto adapter = num_pairs == 0 ? nullptr : std::make_unique<Adapter>(pairs, num_pairs, compiled_.linears);
  const std::lock_guard lock(mutex_);
  adapters_.set(slot, std::move(adapter));
}

void Program::step(const OctavoStep& input) {
  const std::lock_guard lock(mutex_);
  prepare(input);
  pool_.run([this](Worker& worker) {
    const bool adapts = view_.adapters.num_groups > 0;
    run_ops(adapts ? compiled_.adapter_ops : compiled_.ops, worker);
    if (view_.num_logit_rows == 0) return;
    run_ops(compiled_.head_ops, worker);
  });
}

void Program::logits(const int32_t* rows, int32_t num_rows) {
  const std::lock_guard lock(mutex_);
  check(compiled_.head_width > 0, "the program has no output head");
  check_logit_rows(rows, num_rows, view_.num_tokens);
  make_room_for_logits(num_rows);
  view_.logit_rows = rows;
  view_.num_logit_rows = num_rows;
  pool_.run([this](Worker& worker) {
    run_ops(compiled_.head_ops, worker);
  });
}

void Program::run_ops(const std::vector<BoundOp>& ops, Worker& worker) {
  for (size_t i = 0; i < ops.size(); ++i) {
    run_op(ops[i], worker);
    WeightsAhead ahead = weights_after(ops, i, worker);
    pool_.barrier(worker, ahead);
    if (std::holds_alternative<PagedAttentionOp>(ops[i])) worker.kv_ahead = kv_after(ops, i, worker);
  }
}

// Of the next linear, if reading weights is what such a step waits for.
WeightsAhead Program::weights_after(const std::vector<BoundOp>& ops, size_t index, const Worker& worker) const {
  if (view_.num_tokens > kFewRows) return {};
  for (size_t i = index + 1; i < ops.size(); ++i) {
    if (const auto* linear = std::get_if<LinearOp>(&ops[i])) return {*linear, worker};
  }
  return {};
}

// Of the next attention op, if linear layers until then compute rather than read weights.
KvAhead Program::kv_after(const std::vector<BoundOp>& ops, size_t index, const Worker& worker) const {
  if (view_.num_tokens <= kFewRows) return {};
  for (size_t i = index + 1; i < ops.size(); ++i) {
    const auto* attention = std::get_if<PagedAttentionOp>(&ops[i]);
    if (attention != nullptr) return {*attention, view_, worker.index, worker.count};
  }
  return {};
}

void Program::run_op(const BoundOp& op, Worker& worker) {
  std::visit(Overloaded{[&](const EmbedOp& o) { embed(o, view_, worker); },
                        [&](const RmsNormOp& o) { kernels_.rms_norm(o, view_, worker); },
                        [&](const QuantizeRowsOp& o) { kernels_.quantize_rows(o, view_, worker); },
                        [&](const LinearOp& o) { kernels_.linear(o, view_, worker); },
                        [&](const RopeAndWriteKvOp& o) { kernels_.rope_and_write_kv(o, view_, worker); },
                        [&](const PagedAttentionOp& o) { kernels_.paged_attention(o, view_, worker); },
                        [&](const GatedActivationOp& o) { kernels_.gated_activation(o, view_, worker); },
                        [&](const GatherRowsOp& o) { gather_rows(o, view_, worker); },
                        [&](const SoftCapOp& o) { kernels_.soft_cap(o, view_, worker); },
                        [&](const LowRankProductOp& o) { kernels_.low_rank_product(o, view_, worker); },
                        [&](const ExpertsOp& o) { run_experts(o, kernels_, view_, worker); },
                        [&](const LowRankAddOp& o) { kernels_.low_rank_add(o, view_, worker); }},
             op);
}

}  // namespace octavo
