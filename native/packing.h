// Re-packs a weight matrix, as a model file stores it, into the panels that linear reads. Lossless.
#pragma once

#include "gguf_block.h"
#include "linear.h"
#include "thread_pool.h"

namespace octavo {

struct RawWeight {
  Quantization quantization;
  int64_t rows;     // output features; 1 for a vector
  int64_t columns;  // depth
  const std::byte* bytes;
};

// How `weight` is to be packed: everything of Panels but the memory.
Panels plan_panels(const RawWeight& weight);

// Bytes of all bundles; a multiple of 64.
int64_t panel_bytes(const Panels& panels);

// Fills the panels at `destination` (zeroed, 64-byte aligned), which panels.data then points to. Returns whether all
// weights are finite.
bool pack_panels(const RawWeight& weight, const Panels& panels, std::byte* destination, ThreadPool& pool);

}  // namespace octavo
