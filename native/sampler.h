// Runs the sampling kernels over a batch of rows.
#pragma once

#include "kernel_table.h"
#include "octavo_native.h"
#include "thread_pool.h"

namespace octavo {

// Throws an Error if an index in the arrays is out of range.
void sample(const OctavoSampling& sampling, const KernelTable& kernels, ThreadPool& pool);

// Log-probabilities of sampling.token_ids, which are read; only logits, the counts and `out` are used besides.
void logprobs(const OctavoSampling& sampling, const KernelTable& kernels, ThreadPool& pool);

}  // namespace octavo
