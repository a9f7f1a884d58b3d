// What kernels have to know of the processor beside its instruction sets.
#pragma once

#include "step.h"

namespace octavo {

// How this processor reads weights fastest; docs/adr/0018-weights-from-front-to-back.md has figures.
WeightPrefetch weight_prefetch();

}  // namespace octavo
