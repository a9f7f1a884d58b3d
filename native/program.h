// A program bound to memory: ops with pointers in them, run as one step per call.
#pragma once

#include <deque>
#include <mutex>
#include <variant>
#include <vector>

#include "adapters.h"
#include "experts.h"
#include "gguf_block.h"
#include "kernel_table.h"
#include "kv_store.h"
#include "logit_rows.h"
#include "memory.h"
#include "next_step.h"
#include "octavo_native.h"
#include "packing.h"
#include "rope_table.h"
#include "shared_prefix.h"
#include "thread_pool.h"

namespace octavo {

// out[row] = weight[token_ids[row]] · scale, from the weight as the file stores it.
struct EmbedOp {
  float* out;
  RawWeight weight;
  float scale;
};

// rows[i] = rows[logit_rows[i]], if the step wants no other rows. The ops behind it run over those alone.
struct KeepLogitRowsOp {
  float* rows;
  int32_t width;
};

// out[i] = x[logit_rows[i]]
struct GatherRowsOp {
  float* out;
  const float* x;
  int32_t width;
};

using BoundOp =
    std::variant<EmbedOp, RmsNormOp, QuantizeRowsOp, LinearOp, RopeAndWriteKvOp, PagedAttentionOp, GatedActivationOp,
                 KeepLogitRowsOp, GatherRowsOp, SoftCapOp, ExpertsOp, LowRankProductOp, LowRankAddOp>;

// Numbers of OctavoOp::kind.
enum class OpKind : int32_t { kInput, kEmbed, kRmsNorm, kLinear, kRopeAndWriteKv, kPagedAttention, kGatedActivation, kLogits,
                              kMixtureOfExperts, kKeepLogitRows };

// What the compiler makes of a spec. The ops point into the rest.
struct CompiledProgram {
  std::vector<BoundOp> ops;
  std::vector<BoundOp> adapter_ops;  // instead of `ops` if a row has an adapter: nothing fused that would hide its output
  std::vector<AdaptableLinear> linears;  // by the number that adapters know
  std::vector<BoundOp> head_ops;  // run after `ops`, over the logit rows
  std::deque<std::vector<Panels>> parts;  // one vector for each linear; a deque keeps their addresses
  std::deque<RopeTableOwner> ropes;
  std::deque<GatedActivationOp> gated;  // those that a linear computes with its output
  ExpertsStore experts;
  std::vector<float*> slots;
  std::vector<float> vectors;  // norm weights and biases
  HugeMemory weights;
  HugeMemory buffers;
  int32_t vocab_size = 0;       // rows of the smallest embedding; 0 without one
  int32_t head_depth = 0;       // width of the head's rows
  int32_t head_width = 0;       // columns of the logits; 0 without a head
  bool head_is_integer = false;
};

CompiledProgram compile(const OctavoProgramSpec& spec, ThreadPool& pool, const KvStore* kv);

// When a step begins before it is asked for: numbers of octavo_program_begin_early.
enum class BeginEarly : int32_t { kNever, kUndisturbed, kAlways };

class Program {
 public:
  // `kv` may be null if no op uses the cache.
  Program(const OctavoProgramSpec& spec, ThreadPool& pool, KvStore* kv);
  ~Program() { pool_.give_up(); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void step(const OctavoStep& input);
  // `sampling` without logits: it is of those of the step. Then the step that follows if nothing happens begins.
  void step_and_sample(const OctavoStep& input, OctavoSampling sampling);
  void logits(const int32_t* rows, int32_t num_rows);

  const float* logits_data() const { return reinterpret_cast<const float*>(logits_.data()); }
  // Null if there is no such slot, or its rows are gone because the next step has begun.
  float* slot_data(int32_t slot) const;
  void share_passes(bool share) { shares_passes_ = share; }
  void begin_early(BeginEarly when) { begin_early_ = when; }
  int64_t num_early_steps() const { return num_early_steps_; }
  int32_t num_shared_passes() const { return num_shared_passes_; }
  void set_adapter(int32_t slot, const OctavoLowRank* pairs, int32_t num_pairs);
  int64_t adapter_bytes() const { return adapters_.num_bytes(); }
  int64_t weight_bytes() const { return static_cast<int64_t>(compiled_.weights.size()); }

 private:
  // Rows of a step, and what kernels want to know about them.
  struct RowsOfStep {
    StepView view{};
    AdapterRows adapters;
    SharedPrefixes shared_prefixes;
  };

  // What the workers run, of the step that is prepared.
  struct StepBody {
    Program& program;
    void operator()(Worker& worker) const { program.run_step(worker); }
  };

  void make_room_for_logits(int32_t num_rows);
  void prepare(const OctavoStep& input);
  void find_adapters_and_passes(RowsOfStep& rows, const OctavoStep& input);
  size_t scratch_bytes_for(const StepView& step) const;
  const StepView& rows_of_head() const { return drops_rows_ ? logit_rows_.view : all_rows_.view; }
  void compute(const OctavoStep& input);
  bool may_begin_next(const OctavoStep& input, const OctavoSampling& sampling) const;
  void begin_next(const OctavoStep& input, const OctavoSampling& sampling);
  void run_step(Worker& worker);
  WeightsAhead weights_after(const std::vector<BoundOp>& ops, size_t index, const StepView& step,
                             const Worker& worker) const;
  void run_ops(const std::vector<BoundOp>& ops, const StepView& all, Worker& worker);
  void run_op(const BoundOp& op, const StepView& step, Worker& worker);

  std::mutex mutex_;
  const KernelTable& kernels_;
  ThreadPool& pool_;
  CompiledProgram compiled_;
  KvView kv_{};
  bool has_kv_ = false;
  int32_t max_num_tokens_;
  int32_t logits_capacity_ = 0;
  HugeMemory logits_;          // [logits_capacity_, head_width]
  HugeMemory head_rows_;       // [logits_capacity_, head_depth], quantised if the head is integer
  HugeMemory attention_scratch_;
  std::vector<int32_t> request_of_row_;
  const bool may_drop_rows_;  // some op does, if a step lets it
  bool shares_passes_ = true;
  AdapterTable adapters_;
  RowsOfStep all_rows_;
  RowsOfStep logit_rows_;  // what is left if the step drops the others
  LogitRowsOfStep logit_rows_of_step_;
  bool drops_rows_ = false;
  bool has_step_ = false;  // the one that these are of was ready to run
  const StepBody body_{*this};
  BeginEarly begin_early_ = BeginEarly::kUndisturbed;
  NextStep next_;
  bool next_has_begun_ = false;  // so the rows of the last step are gone, whether the next one comes to its end or not
  uint32_t next_task_number_ = 0;
  int32_t num_shared_passes_ = 0;  // of the last step that was asked for
  int64_t num_early_steps_ = 0;
};

}  // namespace octavo
