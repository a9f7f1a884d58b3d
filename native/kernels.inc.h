// All kernels of one instruction set; the file that includes this one has said which.
#include "simd.h"

#include "kernel_table.h"

#include "activation_quantization.inc.h"
#include "attention.inc.h"
#include "elementwise.inc.h"
#include "experts.inc.h"
#include "linear.inc.h"
#include "low_rank.inc.h"
#include "probe.inc.h"
#include "rope_and_write_kv.inc.h"
#include "sampling.inc.h"

#define OCTAVO_STRING(x) #x
#define OCTAVO_NAME(x) OCTAVO_STRING(x)

namespace octavo::OCTAVO_ISA {

extern const KernelTable kKernels;
const KernelTable kKernels = {
    .name = OCTAVO_NAME(OCTAVO_ISA),
    .quantize_rows = quantize_rows,
    .linear = linear,
    .rms_norm = rms_norm,
    .gated_activation = gated_activation,
    .rope_and_write_kv = rope_and_write_kv,
    .soft_cap = soft_cap,
    .low_rank_product = low_rank_product,
    .low_rank_add = low_rank_add,
    .choose_experts = choose_experts,
    .add_experts = add_experts,
    .paged_attention = paged_attention,
    .attention_scratch_bytes = attention_scratch_bytes,
    .sample = sample,
    .logprobs = logprobs,
    .sample_scratch_bytes = sample_scratch_bytes,
    .probe = probe,
    .probe_operations = probe_operations,
};

}  // namespace octavo::OCTAVO_ISA
