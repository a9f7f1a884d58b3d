#include "program.h"

#include <algorithm>
#include <exception>
#include <span>
#include <string>
#include <utility>

#include "error.h"
#include "isa.h"
#include "sampler.h"
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

// In place, so one worker alone: a row's new place may be another's old one.
void keep_logit_rows(const KeepLogitRowsOp& op, const StepView& step, Worker& worker) {
  for (int64_t piece = claim(worker, 1); piece < 1; piece = claim(worker, 1)) {
    for (int32_t i = 0; i < step.num_logit_rows; ++i) {
      if (step.logit_rows[i] == i) continue;
      std::copy_n(op.rows + int64_t{step.logit_rows[i]} * op.width, op.width, op.rows + int64_t{i} * op.width);
    }
  }
}

void gather_rows(const GatherRowsOp& op, const StepView& step, Worker& worker) {
  for (int64_t i = claim(worker, 1); i < step.num_logit_rows; i = claim(worker, 1)) {
    std::copy_n(op.x + static_cast<int64_t>(step.logit_rows[i]) * op.width, op.width, op.out + i * op.width);
  }
}

bool may_drop_rows(const BoundOp& op) { return std::holds_alternative<KeepLogitRowsOp>(op); }

// Most layers of a model do.
bool needs_the_same_scratch(const PagedAttentionOp& a, const PagedAttentionOp& b) {
  return a.num_heads == b.num_heads && a.num_kv_heads == b.num_kv_heads && a.head_dim == b.head_dim &&
         a.window == b.window;
}

const LinearOp* first_linear(std::span<const BoundOp> ops) {
  for (const BoundOp& op : ops) {
    if (const auto* linear = std::get_if<LinearOp>(&op)) return linear;
  }
  return nullptr;
}

// Of the next attention op, if linear layers until then compute rather than read weights.
KvAhead kv_after(const std::vector<BoundOp>& ops, size_t index, const StepView& step, const Worker& worker) {
  if (step.num_tokens <= kFewRows) return {};
  for (size_t i = index + 1; i < ops.size(); ++i) {
    const auto* attention = std::get_if<PagedAttentionOp>(&ops[i]);
    if (attention != nullptr) return {*attention, step, worker.index, worker.count};
  }
  return {};
}

}  // namespace

Program::Program(const OctavoProgramSpec& spec, ThreadPool& pool, KvStore* kv)
    : kernels_(kernel_table(spec.isa)),
      pool_(pool),
      compiled_(compile(spec, pool, kv)),
      max_num_tokens_(spec.max_num_tokens),
      may_drop_rows_(std::ranges::any_of(compiled_.ops, may_drop_rows)) {
  if (kv != nullptr) {
    kv_ = kv->view();
    has_kv_ = true;
  }
  make_room_for_logits(spec.max_logit_rows);
}

float* Program::slot_data(int32_t slot) const {
  if (next_has_begun_) return nullptr;
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
  has_step_ = false;
  make_room_for_logits(input.num_logit_rows);
  all_rows_.view = {input.num_tokens, input.num_requests, input.num_logit_rows, input.max_blocks_per_request,
                    input.token_ids, input.positions, input.query_start_loc, input.seq_lens, input.block_tables,
                    input.logit_rows, request_of_row_.data(), kv_, {}, nullptr, {}};
  find_adapters_and_passes(all_rows_, input);
  drops_rows_ = may_drop_rows_ && input.only_logit_rows != 0 && input.num_logit_rows < input.num_tokens;
  if (drops_rows_) {
    logit_rows_.view = logit_rows_of_step_.make(all_rows_.view);
    find_adapters_and_passes(logit_rows_, input);
  }
  if (input.num_tokens > 0 && !compiled_.ropes.empty()) {
    const int32_t last = *std::max_element(input.positions, input.positions + input.num_tokens);
    for (RopeTableOwner& rope : compiled_.ropes) rope.cover(last + 1);
  }
  size_t scratch_bytes = scratch_bytes_for(all_rows_.view);
  if (drops_rows_) scratch_bytes = std::max(scratch_bytes, scratch_bytes_for(logit_rows_.view));
  if (scratch_bytes > attention_scratch_.size()) attention_scratch_ = HugeMemory(scratch_bytes);
  all_rows_.view.shared_scratch = logit_rows_.view.shared_scratch = attention_scratch_.data();
  has_step_ = true;
}

void Program::find_adapters_and_passes(RowsOfStep& rows, const OctavoStep& input) {
  rows.view.adapters = adapters_.group(rows.view, input.adapters, rows.adapters);
  if (has_kv_ && shares_passes_) rows.view.shared = rows.shared_prefixes.find(rows.view);
}

size_t Program::scratch_bytes_for(const StepView& step) const {
  size_t bytes = 0;
  const PagedAttentionOp* before = nullptr;
  for (const BoundOp& op : compiled_.ops) {
    const auto* attention = std::get_if<PagedAttentionOp>(&op);
    if (attention == nullptr || (before != nullptr && needs_the_same_scratch(*attention, *before))) continue;
    bytes = std::max(bytes, kernels_.attention_scratch_bytes(*attention, step, pool_.size()));
    before = attention;
  }
  return bytes;
}

void Program::set_adapter(int32_t slot, const OctavoLowRank* pairs, int32_t num_pairs) {
  auto adapter = num_pairs == 0 ? nullptr : std::make_unique<Adapter>(pairs, num_pairs, compiled_.linears);
  const std::lock_guard lock(mutex_);
  pool_.give_up();
  adapters_.set(slot, std::move(adapter));
}

void Program::step(const OctavoStep& input) {
  const std::lock_guard lock(mutex_);
  compute(input);
}

void Program::step_and_sample(const OctavoStep& input, OctavoSampling sampling) {
  const std::lock_guard lock(mutex_);
  check(sampling.num_rows == input.num_logit_rows && sampling.vocab_size == compiled_.head_width,
        "the sampling is of another number of rows or tokens than the step's logits have");
  compute(input);
  sampling.logits = logits_data();
  sample(sampling, kernels_, pool_);
  begin_next(input, sampling);
}

void Program::compute(const OctavoStep& input) {
  if (next_.is(input) && pool_.finish(next_task_number_)) {
    ++num_early_steps_;
  } else {
    pool_.give_up();
    prepare(input);
    pool_.run(body_);
  }
  next_has_begun_ = false;  // not before: a step that is refused leaves what the other one did
  num_shared_passes_ = all_rows_.view.shared.num_passes;
}

// With more rows nothing is gained by it: they do not wait for memory, and more often need another block. Beside busy neighbours
// a thread that never waits is interrupted more often with a piece in its hands. A row that failed needs its logits, to say why.
bool Program::may_begin_next(const OctavoStep& input, const OctavoSampling& sampling) const {
  if (begin_early_ == BeginEarly::kNever || pool_.size() == 1 || input.num_tokens > kFewRows) return false;
  if (begin_early_ == BeginEarly::kUndisturbed && pool_.is_disturbed()) return false;
  if (!has_kv_) return false;  // without a cache there is nothing to go on from
  if (sampling.vocab_size > compiled_.vocab_size) return false;  // a head may be wider than the embedding
  return std::none_of(sampling.out.failed, sampling.out.failed + sampling.num_rows, [](uint8_t failed) { return failed != 0; });
}

// The caller's thread is not needed for it, which looks at the tokens meanwhile.
void Program::begin_next(const OctavoStep& input, const OctavoSampling& sampling) {
  if (!may_begin_next(input, sampling) || !next_.predict(input, sampling.token_ids, kv_.block_size)) return;
  next_has_begun_ = true;
  try {
    prepare(next_.step());
  } catch (const std::exception&) {
    return;  // no memory: the step that was asked for is done all the same, and whoever asks for the next one is told
  }
  next_task_number_ = pool_.start(body_);
}

void Program::run_step(Worker& worker) {
  worker.kv_ahead = {};  // that of an earlier step points into its arrays
  const bool adapts = all_rows_.view.adapters.num_groups > 0;
  run_ops(adapts ? compiled_.adapter_ops : compiled_.ops, all_rows_.view, worker);
  if (all_rows_.view.num_logit_rows > 0) run_ops(compiled_.head_ops, rows_of_head(), worker);
}

void Program::logits(const int32_t* rows, int32_t num_rows) {
  const std::lock_guard lock(mutex_);
  check(compiled_.head_width > 0, "the program has no output head");
  check(has_step_, "the last step did not run: there are no logits");
  check(!next_has_begun_, "the next step has begun: the rows of the last one are gone");
  check(!drops_rows_, "the last step kept nothing but its logit rows: there are no other logits");
  check_logit_rows(rows, num_rows, all_rows_.view.num_tokens);
  make_room_for_logits(num_rows);
  all_rows_.view.logit_rows = rows;
  all_rows_.view.num_logit_rows = num_rows;
  pool_.run([this](Worker& worker) {
    worker.kv_ahead = {};
    run_ops(compiled_.head_ops, all_rows_.view, worker);
  });
}

// Of the next linear, if reading weights is what such a step waits for.
WeightsAhead Program::weights_after(const std::vector<BoundOp>& ops, size_t index, const StepView& step,
                                    const Worker& worker) const {
  if (step.num_tokens > kFewRows) return {};
  const LinearOp* next = first_linear(std::span(ops).subspan(index + 1));
  const bool head_follows = &ops != &compiled_.head_ops && step.num_logit_rows > 0;
  if (next == nullptr && head_follows) next = first_linear(compiled_.head_ops);
  return next == nullptr ? WeightsAhead{} : WeightsAhead{*next, worker};
}

void Program::run_ops(const std::vector<BoundOp>& ops, const StepView& all, Worker& worker) {
  const StepView* step = &all;
  for (size_t i = 0; i < ops.size(); ++i) {
    const bool may_drop = may_drop_rows(ops[i]);
    if (may_drop && !drops_rows_) continue;
    if (may_drop && logit_rows_.view.num_tokens == 0) return;
    if (may_drop) step = &logit_rows_.view;
    WeightsAhead ahead = weights_after(ops, i, *step, worker);
    worker.next_weights = ahead.next();
    run_op(ops[i], may_drop ? all : *step, worker);
    pool_.barrier(worker, ahead);
    if (std::holds_alternative<PagedAttentionOp>(ops[i])) worker.kv_ahead = kv_after(ops, i, *step, worker);
  }
}

void Program::run_op(const BoundOp& op, const StepView& step, Worker& worker) {
  std::visit(Overloaded{[&](const EmbedOp& o) { embed(o, step, worker); },
                        [&](const RmsNormOp& o) { kernels_.rms_norm(o, step, worker); },
                        [&](const QuantizeRowsOp& o) { kernels_.quantize_rows(o, step, worker); },
                        [&](const LinearOp& o) { kernels_.linear(o, step, worker); },
                        [&](const RopeAndWriteKvOp& o) { kernels_.rope_and_write_kv(o, step, worker); },
                        [&](const PagedAttentionOp& o) { kernels_.paged_attention(o, step, worker); },
                        [&](const GatedActivationOp& o) { kernels_.gated_activation(o, step, worker); },
                        [&](const KeepLogitRowsOp& o) { keep_logit_rows(o, step, worker); },
                        [&](const GatherRowsOp& o) { gather_rows(o, step, worker); },
                        [&](const SoftCapOp& o) { kernels_.soft_cap(o, step, worker); },
                        [&](const LowRankProductOp& o) { kernels_.low_rank_product(o, step, worker); },
                        [&](const ExpertsOp& o) { run_experts(o, kernels_, step, worker); },
                        [&](const LowRankAddOp& o) { kernels_.low_rank_add(o, step, worker); }},
             op);
}

}  // namespace octavo
