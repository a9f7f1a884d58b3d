// The kernels of one instruction set. Each is called by every worker of the pool with the same arguments
// and shares the work out through claim() and its like (step.h); the driver sets a barrier after each.
#pragma once

#include "experts.h"
#include "linear.h"
#include "probe.h"
#include "step.h"

namespace octavo {

struct KernelTable {
  const char* name;

  // activation_quantization.inc.h
  void (*quantize_rows)(const QuantizeRowsOp&, const StepView&, Worker&);

  // linear.inc.h
  void (*linear)(const LinearOp&, const StepView&, Worker&);

  // elementwise.inc.h
  void (*rms_norm)(const RmsNormOp&, const StepView&, Worker&);
  void (*gated_activation)(const GatedActivationOp&, const StepView&, Worker&);
  void (*rope_and_write_kv)(const RopeAndWriteKvOp&, const StepView&, Worker&);
  void (*soft_cap)(const SoftCapOp&, const StepView&, Worker&);

  // low_rank.inc.h
  void (*low_rank_product)(const LowRankProductOp&, const StepView&, Worker&);
  void (*low_rank_add)(const LowRankAddOp&, const StepView&, Worker&);
  // experts.inc.h
  void (*choose_experts)(const ExpertsOp&, const StepView&, Worker&);
  void (*add_experts)(const ExpertsOp&, const StepView&, Worker&);

  // attention.inc.h
  void (*paged_attention)(const PagedAttentionOp&, const StepView&, Worker&);
  // Bytes of StepView::shared_scratch that paged_attention needs for this step with that many workers.
  size_t (*attention_scratch_bytes)(const PagedAttentionOp&, const StepView&, int32_t num_workers);

  // sampling.inc.h
  void (*sample)(const SampleOp&, Worker&);
  void (*logprobs)(const LogprobsOp&, Worker&);
  size_t (*sample_scratch_bytes)(int32_t vocab_size);

  // probe.inc.h
  void (*probe)(const ProbeOp&, Worker&);
  int64_t (*probe_operations)(ProbeKind);
};

}  // namespace octavo
