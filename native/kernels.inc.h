// All kernels of one instruction set; the file that includes this has said which.
#include "simd.h"

#include "kernel_table.h"

#include "linear.inc.h"
#if __has_include("elementwise.inc.h")
#include "simd_math.h"
#include "elementwise.inc.h"
#define HAVE_EW 1
#endif
#if __has_include("attention.inc.h")
#include "attention.inc.h"
#define HAVE_ATT 1
#endif
#if __has_include("sampling.inc.h")
#include "sampling.inc.h"
#define HAVE_SAMP 1
#endif

#define OCTAVO_STRING(x) #x
#define OCTAVO_NAME(x) OCTAVO_STRING(x)

namespace octavo::OCTAVO_ISA {

extern const KernelTable kKernels;
const KernelTable kKernels = {
    .name = OCTAVO_NAME(OCTAVO_ISA),
    .quantize_rows = quantize_rows,
    .linear = linear,
#ifdef HAVE_EW
    .rms_norm = rms_norm,
    .gated_activation = gated_activation,
    .rope_and_write_kv = rope_and_write_kv,
    .soft_cap = soft_cap,
#else
    .rms_norm = nullptr, .gated_activation = nullptr, .rope_and_write_kv = nullptr, .soft_cap = nullptr,
#endif
#ifdef HAVE_ATT
    .paged_attention = paged_attention,
    .attention_scratch_bytes = attention_scratch_bytes,
#else
    .paged_attention = nullptr, .attention_scratch_bytes = nullptr,
#endif
#ifdef HAVE_SAMP
    .sample = sample,
    .logprobs = logprobs,
    .sample_scratch_bytes = sample_scratch_bytes,
#else
    .sample = nullptr, .logprobs = nullptr, .sample_scratch_bytes = nullptr,
#endif
};

}  // namespace octavo::OCTAVO_ISA
